//! `trireme monitor`: reads the node's state file, or asks its server, and answers. What it answers is decided in `trireme-observe`.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use trireme_balance::{Address, Answer, Request, serve_monitor};
use trireme_metrics::State;
use trireme_metrics::state::{FILE_NAME, LEN};
use trireme_observe::monitor::{Look, Monitor, Watch};
use trireme_observe::status;

/// Between two looks at the file.
const EVERY: Duration = Duration::from_millis(250);
/// Between two questions to a server without such a file.
const ASK_EVERY: Duration = Duration::from_secs(1);

pub fn run(asked: &Monitor) -> ExitCode {
    match serve(asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("trireme monitor: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn serve(asked: &Monitor) -> Result<(), String> {
    let listen = Address::listener(&asked.listen, "127.0.0.1")?;
    let agent = asked.agent.as_ref().map(|text| Address::listener(text, "127.0.0.1")).transpose()?;
    let token = asked.token_file.as_deref().map(token).transpose()?;
    for address in [Some(&listen), agent.as_ref()].into_iter().flatten() {
        if token.is_none() && !is_near(address) {
            return Err(format!(
                "whoever reaches {address} could read it: listen at 127.0.0.1 (and let a proxy with TLS stand before it), or give --token-file"
            ));
        }
    }
    let target = asked.connect.targets()?.into_iter().next().ok_or("no server is named")?;
    let watch = Arc::new(Mutex::new(Watch::new(Instant::now())));
    {
        let (watch, asked) = (watch.clone(), asked.clone());
        thread::spawn(move || {
            loop {
                let (look, pause) = match read(&asked.data_dir) {
                    Some(look) => (look, EVERY),
                    None => (Look::Answer(status::ask(&asked.connect, &target, false).map(Box::new)), ASK_EVERY),
                };
                lock(&watch).handle(look, Instant::now());
                thread::sleep(pause);
            }
        });
    }
    let for_agent = watch.clone();
    let line: Arc<dyn Fn() -> String + Send + Sync> =
        Arc::new(move || lock(&for_agent).health(Instant::now()).agent().to_owned());
    let respond = Arc::new(move |request: &Request<'_>| {
        if token.as_deref().is_some_and(|token| !same(token, request.bearer.unwrap_or_default())) {
            return Answer {
                status: "401 Unauthorized",
                kind: "text/plain",
                body: "the token is missing or wrong\n".to_owned(),
            };
        }
        let answer = lock(&watch).respond(request.target, Instant::now());
        Answer { status: answer.status, kind: answer.kind, body: answer.body }
    });
    serve_monitor(&listen, respond, agent.map(|address| (address, line)))
}

/// The state file. `None`: there is none.
fn read(data_dir: &Path) -> Option<Look> {
    let path = data_dir.join(FILE_NAME);
    let mut bytes = Vec::new();
    let outcome = File::open(&path).and_then(|file| file.take(2 * LEN as u64).read_to_end(&mut bytes));
    match outcome {
        Ok(_) => Some(Look::File(State::decode(&bytes))),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(Look::Unreadable(format!("{}: {error}", path.display()))),
    }
}

/// This machine only.
fn is_near(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } => {
            host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

fn token(path: &Path) -> Result<String, String> {
    let text = trireme_private::read_secret(path)?.ok_or_else(|| format!("there is no {}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() { Err(format!("{} holds no token", path.display())) } else { Ok(line.to_owned()) }
}

/// Takes as long whatever is wrong.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |wrong, (a, b)| wrong | (a ^ b)) == 0
}

fn lock(watch: &Mutex<Watch>) -> MutexGuard<'_, Watch> {
    watch.lock().expect("no holder of the watch panics")
}
