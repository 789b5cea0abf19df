//! From start to end: the listeners, the signals, and what the control socket asks for.

use std::fs::File;
use std::io::{PipeWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::address::{Address, MYSQL_PORT};
use crate::config::{Check, Config, ListenerConfig};
use crate::control::{Command, Stat};
use crate::options::Serve;
use crate::pool::{ListenerId, TICK};
use crate::shell::balancer::Balancer;
use crate::shell::handover::Taken;
use crate::shell::listen::{self, Listener, SocketFile};
use crate::shell::output::Log;
use crate::shell::{admin, http, monitors, notify, session};
use crate::view::{self, NodeView, TotalsView, View};

/// Descriptors that are not a client's: listeners, looks, control, log.
const OWN_DESCRIPTORS: usize = 320;
/// Asked for at most where there is no limit.
const DESCRIPTORS_MAX: u64 = 1 << 20;
/// Everybody who can reach the file may be a client, as with a server's own socket.
const CLIENT_SOCKET_MODE: u32 = 0o777;
const CONTROL_SOCKET_MODE: u32 = 0o600;
/// For the process before to leave the name of the control socket.
const NAME_LIMIT: Duration = Duration::from_secs(5);
const NAME_PAUSE: Duration = Duration::from_millis(20);

/// Requests beyond the options of `trireme balance`.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    pub fifo: Option<PathBuf>,
    pub default_port: Option<u16>,
    pub nodelay_off: bool,
    pub keepalive_off: bool,
    pub passive: bool,
    /// SIGHUP is an end, as there is nothing to read again.
    pub hangup_ends: bool,
    /// The process that waits until this one serves.
    pub starter: Option<Starter>,
}

/// A pipe to the process that started this one in the background.
#[derive(Clone, Debug)]
pub struct Starter(Arc<PipeWriter>);

impl Starter {
    /// It serves.
    pub const DONE: &str = "started";

    pub fn new(pipe: PipeWriter) -> Starter {
        Starter(Arc::new(pipe))
    }

    /// One line. Nobody may be there any more to read it.
    pub fn tell(&self, line: &str) {
        let line = line.replace('\n', " ");
        let _ = (&*self.0).write_all(format!("{line}\n").as_bytes());
    }
}

pub struct Service {
    pub balancer: Arc<Balancer>,
    typed: Serve,
    extra: Extra,
    active: Mutex<Vec<Active>>,
    next_listener: Mutex<u32>,
    side: Mutex<Side>,
    last_stat: Mutex<(Instant, [u64; 5])>,
    /// Another process is the service now.
    given: AtomicBool,
    ended: Notify,
}

/// One open listener.
struct Active {
    config: ListenerConfig,
    /// With the port that was given for 0.
    address: Address,
    id: ListenerId,
    listener: Arc<Listener>,
    task: AbortHandle,
    file: SocketFile,
}

/// Open, and nobody is served there yet. Dropping it closes all.
struct Opened {
    listeners: Vec<(ListenerConfig, SocketFile, Listener)>,
    http: Http,
}

enum Http {
    Stays,
    Ends,
    Opened(Address, Listener, SocketFile),
}

impl Opened {
    /// The sockets' files are ours now, also those of the process before.
    fn own(&mut self) {
        for (config, file, _) in &mut self.listeners {
            file.own(&config.address);
        }
        if let Http::Opened(address, _, file) = &mut self.http {
            file.own(address);
        }
    }
}

/// The control socket. Nobody is answered there yet.
enum Control {
    Off,
    Opened(Listener, SocketFile),
    /// The process before has the name. Until it leaves, the socket has another one in the same directory.
    Beside(Listener, SocketFile, PathBuf),
}

/// Control socket and HTTP.
#[derive(Default)]
struct Side {
    control: Option<(AbortHandle, SocketFile)>,
    http: Option<(Address, Arc<Listener>, AbortHandle, SocketFile)>,
}

/// `trireme balance`. Until a signal or a command ends it.
pub fn serve(typed: Serve, extra: Extra) -> Result<(), String> {
    let config = adjusted(Config::resolve(&typed)?, &extra);
    // GLB starts without; there they are added by command.
    if config.nodes.is_empty() && extra.default_port.is_none() {
        return Err("no server is named: use --nodes".to_owned());
    }
    let threads = match typed.threads {
        Some(0) => return Err("--threads 0: there must be one at least".to_owned()),
        Some(threads) => threads,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let descriptors = raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(16)
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start threads: {e}"))?;
    let outcome = runtime.block_on(run(typed, extra, config, descriptors));
    runtime.shutdown_background();
    outcome
}

fn adjusted(mut config: Config, extra: &Extra) -> Config {
    config.nodelay = !extra.nodelay_off;
    config.keepalive = !extra.keepalive_off;
    if extra.passive {
        config.check = Check::Passive;
    }
    config
}

async fn run(typed: Serve, extra: Extra, config: Config, descriptors: usize) -> Result<(), String> {
    let log = Log::start();
    let mut taken = match &typed.takeover {
        None => None,
        Some(path) => {
            let path = path.clone();
            let taken = tokio::task::spawn_blocking(move || Taken::from(&path)).await;
            Some(taken.map_err(|e| e.to_string())??)
        }
    };
    let mut seed = [0; 8];
    let _ = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed));
    let clients_max = limit(&config, descriptors);
    let balancer = Balancer::new(config.clone(), clients_max, log, u64::from_le_bytes(seed));
    let service = Arc::new(Service {
        balancer: balancer.clone(),
        typed,
        extra,
        active: Mutex::default(),
        next_listener: Mutex::new(0),
        side: Mutex::default(),
        last_stat: Mutex::new((Instant::now(), [0; 5])),
        given: AtomicBool::new(false),
        ended: Notify::new(),
    });
    // Signals are caught before anybody can be told that we are there.
    let mut signals = Signals::catch()?;
    // Everything that can fail comes before the old process leaves, or nobody would serve.
    balancer.with(|pool, now| pool.configure(config.settings.clone(), &config.nodes, now))?;
    let mut opened = service.open(&config, &mut taken)?;
    let control = service.open_control(&config)?;
    if let Some(taken) = taken {
        // From here on the old process accepts no more. Clients wait in the sockets, which stay open.
        taken.done()?;
        opened.own();
    }
    service.begin(opened);
    service.begin_control(control).await;
    balancer.log(&format!(
        "trireme balance {}: {} clients at most; {}",
        env!("CARGO_PKG_VERSION"),
        clients_max,
        service.lines().join("; ")
    ));
    tokio::spawn(monitors::supervise(balancer.clone()));
    let ticking = balancer.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            ticking.with(|pool, now| pool.handle_time(now));
        }
    });
    if let Some(fifo) = service.extra.fifo.clone() {
        let service = service.clone();
        tokio::spawn(async move { admin::read_fifo(service, &fifo).await });
    }
    if let Some(starter) = &service.extra.starter {
        starter.tell(Starter::DONE);
    }
    tell(&balancer, notify::READY);
    let why = loop {
        tokio::select! {
            () = service.ended.notified() => break "the last session has ended",
            event = signals.next() => match event {
                Event::Reload if service.extra.hangup_ends => break "stopped by a signal",
                Event::Reload => match service.reload() {
                    Ok(text) => balancer.log(&text),
                    Err(reason) => balancer.log(&format!("nothing was changed: {reason}")),
                },
                Event::Leave => service.leave("asked to by SIGUSR1", false),
                Event::Stop => break "stopped by a signal",
            },
        }
    };
    balancer.log(why);
    if !service.given.load(Relaxed) {
        tell(&balancer, notify::STOPPING);
    }
    service.close_all();
    // The log's thread gets the time to write the last line.
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(())
}

fn tell(balancer: &Balancer, state: &str) {
    if let Err(reason) = notify::tell(state) {
        balancer.log(&format!("{state} was not told: {reason}"));
    }
}

enum Event {
    Reload,
    Leave,
    Stop,
}

struct Signals {
    hup: tokio::signal::unix::Signal,
    usr1: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
}

impl Signals {
    fn catch() -> Result<Signals, String> {
        let catch = |kind| signal(kind).map_err(|e| format!("cannot handle signals: {e}"));
        Ok(Signals {
            hup: catch(SignalKind::hangup())?,
            usr1: catch(SignalKind::user_defined1())?,
            term: catch(SignalKind::terminate())?,
            int: catch(SignalKind::interrupt())?,
            quit: catch(SignalKind::quit())?,
        })
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.hup.recv() => Event::Reload,
            _ = self.usr1.recv() => Event::Leave,
            _ = self.term.recv() => Event::Stop,
            _ = self.int.recv() => Event::Stop,
            _ = self.quit.recv() => Event::Stop,
        }
    }
}

/// As many open files as we may have.
fn raise_limit() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    let wanted = hard.min(DESCRIPTORS_MAX).max(soft);
    let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard);
    let now = getrlimit(Resource::RLIMIT_NOFILE).map_or(soft, |(soft, _)| soft);
    usize::try_from(now).unwrap_or(1024)
}

/// Two descriptors for each client.
fn limit(config: &Config, descriptors: usize) -> usize {
    let possible = (descriptors.saturating_sub(OWN_DESCRIPTORS) / 2).max(16);
    config.max_connections.map_or(possible, |asked| asked.min(possible))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    matches!((number(one), number(other)), (Some(one), Some(other)) if one == other)
}

/// The process before goes on if we fail, so a file of its sockets is not ours yet.
fn open_or_adopt(address: &Address, mode: u32, taken: &mut Option<Taken>) -> Result<(Listener, SocketFile), String> {
    match taken.as_mut().and_then(|taken| taken.remove(address)) {
        Some(descriptor) => Ok((Listener::adopt(address, descriptor)?, SocketFile::default())),
        None => Ok((Listener::open(address, mode)?, SocketFile::of(address))),
    }
}

impl Service {
    fn active(&self) -> MutexGuard<'_, Vec<Active>> {
        self.active.lock().expect("only pushed to and removed from")
    }

    fn side(&self) -> MutexGuard<'_, Side> {
        self.side.lock().expect("only replaced")
    }

    /// For servers that are named without a port: with GLB it is the listener's.
    pub fn default_port(&self) -> u16 {
        self.extra.default_port.unwrap_or(MYSQL_PORT)
    }

    /// Opens what `config` names and is not open: listeners, and HTTP. Nobody is served there before [`Service::begin`].
    fn open(&self, config: &Config, taken: &mut Option<Taken>) -> Result<Opened, String> {
        let mut listeners = Vec::new();
        for wanted in &config.listeners {
            if self.active().iter().any(|active| active.config.address == wanted.address) {
                continue;
            }
            let (listener, file) = open_or_adopt(&wanted.address, CLIENT_SOCKET_MODE, taken)?;
            listener.tune(session::tuning(config));
            listeners.push((wanted.clone(), file, listener));
        }
        let http = match &config.http {
            wanted if self.side().http.as_ref().map(|(address, ..)| address) == wanted.as_ref() => Http::Stays,
            None => Http::Ends,
            Some(address) => {
                let (listener, file) = open_or_adopt(address, CONTROL_SOCKET_MODE, taken)?;
                Http::Opened(address.clone(), listener, file)
            }
        };
        Ok(Opened { listeners, http })
    }

    /// From here on clients are served there. The number of new listeners.
    fn begin(self: &Arc<Self>, opened: Opened) -> usize {
        let count = opened.listeners.len();
        for (config, file, listener) in opened.listeners {
            let id = {
                let mut next = self.next_listener.lock().expect("a number");
                *next += 1;
                ListenerId(*next)
            };
            self.balancer.with(|pool, _| pool.add_listener(id, config.role, config.policy, config.top));
            let address = listener.address(&config.address);
            let listener = Arc::new(listener);
            let task = tokio::spawn(listen::accept(self.balancer.clone(), listener.clone(), id)).abort_handle();
            self.active().push(Active { config, address, id, listener, task, file });
        }
        let new = match opened.http {
            Http::Stays => return count,
            Http::Ends => None,
            Http::Opened(address, listener, file) => {
                let listener = Arc::new(listener);
                let task = tokio::spawn(http::accept(http::of(self.clone()), listener.clone())).abort_handle();
                Some((address, listener, task, file))
            }
        };
        if let Some((_, _, old, _)) = std::mem::replace(&mut self.side().http, new) {
            old.abort();
        }
        count
    }

    fn open_control(&self, config: &Config) -> Result<Control, String> {
        let Some(address) = &config.control else { return Ok(Control::Off) };
        match (address, &self.typed.takeover) {
            (Address::Unix(path), Some(before)) if is_same_file(path, before) => {
                let beside = path.with_file_name(format!(".{}", std::process::id()));
                let own = Address::Unix(beside);
                let listener = Listener::open(&own, CONTROL_SOCKET_MODE)?;
                Ok(Control::Beside(listener, SocketFile::of(&own), path.clone()))
            }
            _ => Ok(Control::Opened(Listener::open(address, CONTROL_SOCKET_MODE)?, SocketFile::of(address))),
        }
    }

    /// The process before needs a moment to leave the name. It takes no more clients, so nothing here may end this process.
    async fn begin_control(self: &Arc<Self>, control: Control) {
        let (listener, file) = match control {
            Control::Off => return,
            Control::Opened(listener, file) => (listener, file),
            Control::Beside(listener, mut file, path) => {
                let begun = Instant::now();
                while listen::is_taken(&path) && begun.elapsed() < NAME_LIMIT {
                    tokio::time::sleep(NAME_PAUSE).await;
                }
                if let Err(error) = file.rename(&path) {
                    self.balancer.log(&format!("no commands can be given at {}: {error}", path.display()));
                }
                (listener, file)
            }
        };
        let task = tokio::spawn(admin::accept(self.clone(), listener)).abort_handle();
        self.side().control = Some((task, file));
    }

    /// Another process has the listeners.
    pub fn is_given(&self) -> bool {
        self.given.load(Relaxed)
    }

    /// Where clients come in, and HTTP, for the next process.
    pub fn listeners(&self) -> Vec<(String, Arc<Listener>)> {
        let mut all: Vec<_> =
            self.active().iter().map(|a| (a.config.address.to_string(), a.listener.clone())).collect();
        if let Some((address, listener, ..)) = &self.side().http {
            all.push((address.to_string(), listener.clone()));
        }
        all
    }

    fn lines(&self) -> Vec<String> {
        self.active().iter().map(|a| format!("{} at {}", a.config.role.name(), a.address)).collect()
    }

    /// Reads the configuration again. Nothing is changed if it is wrong.
    fn reload(self: &Arc<Self>) -> Result<String, String> {
        if self.balancer.leaving.load(Relaxed) {
            return Err("it takes no clients any more, and ends with the last session".to_owned());
        }
        if self.typed.config.is_none() {
            return Err("there is no file to read again (--config)".to_owned());
        }
        let config = adjusted(Config::resolve(&self.typed)?, &self.extra);
        let old = self.balancer.config();
        if config.control != old.control {
            return Err("the control socket cannot be moved: use --takeover".to_owned());
        }
        // Everything that can fail comes first. Sockets that were opened are closed again if something does.
        let opened = self.open(&config, &mut None)?;
        self.balancer.with(|pool, now| pool.configure(config.settings.clone(), &config.nodes, now))?;
        let opened = self.begin(opened);
        let mut closed = 0;
        self.active().retain(|active| {
            let stays = config.listeners.iter().any(|wanted| wanted.address == active.config.address);
            if !stays {
                active.task.abort();
                self.balancer.with(|pool, _| pool.remove_listener(active.id));
                closed += 1;
            }
            stays
        });
        for active in self.active().iter_mut() {
            let wanted = config.listeners.iter().find(|wanted| wanted.address == active.config.address);
            if let Some(wanted) = wanted.filter(|wanted| **wanted != active.config) {
                let (id, ListenerConfig { role, policy, top, .. }) = (active.id, wanted.clone());
                self.balancer.with(|pool, _| pool.add_listener(id, role, policy, top));
                active.config = wanted.clone();
            }
        }
        self.balancer.set_clients_max(limit(&config, raise_limit()));
        self.balancer.set_config(config);
        Ok(format!("the configuration was read again: {opened} listeners opened, {closed} closed"))
    }

    /// No new clients; the process ends with the last session. `given`: others have the listeners now.
    pub fn leave(self: &Arc<Self>, why: &str, given: bool) {
        if self.balancer.leaving.swap(true, Relaxed) {
            return;
        }
        self.given.store(given, Relaxed);
        self.balancer.log(&format!("no new clients: {why}; {} sessions go on", self.balancer.clients()));
        for mut active in self.active().drain(..) {
            active.task.abort();
            if given {
                active.file.keep();
            }
        }
        let mut side = self.side();
        if given {
            if let Some((_, _, task, mut file)) = side.http.take() {
                task.abort();
                file.keep();
            }
            // The next process takes the name as soon as nobody listens there, so the file goes first.
            if let Some((task, file)) = side.control.take() {
                drop(file);
                task.abort();
            }
        }
        let service = self.clone();
        tokio::spawn(async move {
            // Those who were accepted a moment ago are counted by now.
            tokio::time::sleep(Duration::from_millis(200)).await;
            while service.balancer.clients() > 0 {
                let _ = tokio::time::timeout(Duration::from_millis(200), service.balancer.idle.notified()).await;
            }
            service.ended.notify_one();
        });
    }

    fn close_all(&self) {
        for active in self.active().drain(..) {
            active.task.abort();
        }
        *self.side() = Side::default();
    }

    // ---- commands ------------------------------------------------------------------------------------------------

    /// The answer to a command.
    pub fn execute(self: &Arc<Self>, command: Command) -> Result<String, String> {
        let ok = || "Ok\n".to_owned();
        let find = |text: &str| {
            self.balancer.with(|pool, _| pool.find(text)).ok_or_else(|| format!("there is no server `{text}`"))
        };
        match command {
            Command::GetInfo => Ok(self.view().getinfo()),
            Command::GetStat => Ok(self.stat().line()),
            Command::Status => Ok(self.status()),
            Command::Help => Ok(admin::help()),
            Command::Set { named, address, weight } => self
                .balancer
                .with(|pool, now| match pool.find(&address.to_string()).or_else(|| pool.named(&named)) {
                    Some(id) => pool.set_weight(id, weight, now),
                    None => pool.set_node(address, weight, now).map(drop),
                })
                .map(|()| ok()),
            Command::Remove(text) => {
                let id = find(&text)?;
                self.balancer.with(|pool, now| pool.remove(id, now));
                Ok(ok())
            }
            Command::Drain(text, close) => {
                let id = find(&text)?;
                self.balancer.with(|pool, now| pool.drain(id, close, now));
                Ok(ok())
            }
            Command::Undrain(text) => {
                let id = find(&text)?;
                self.balancer.with(|pool, now| pool.undrain(id, now));
                Ok(ok())
            }
            Command::Reload => self.reload().map(|text| format!("Ok: {text}\n")),
            Command::Leave => {
                self.leave("asked to by command", false);
                Ok(ok())
            }
            Command::Handover | Command::Upgrade => Err("only over a unix socket".to_owned()),
        }
    }

    /// All there is to see, as JSON and a newline.
    pub fn status(self: &Arc<Self>) -> String {
        serde_json::to_string(&self.view()).expect("numbers and strings") + "\n"
    }

    pub fn view(self: &Arc<Self>) -> View {
        let balancer = &self.balancer;
        let (nodes, writer, writer_changes) = balancer.with(|pool, _| {
            let nodes: Vec<_> = pool.nodes().map(|node| (node.id, NodeView::of(pool, node))).collect();
            let writer = nodes.iter().find(|(_, node)| node.writer).map(|(_, node)| node.name.clone());
            (nodes, writer, pool.writer_changes())
        });
        let listeners: Vec<_> = self.active().iter().map(|a| (a.address.to_string(), a.config.clone())).collect();
        let listeners = listeners
            .into_iter()
            .map(|(address, config)| {
                let serves = balancer.with(|pool, _| pool.serves(config.role));
                let policy = format!("{:?}{}", config.policy, if config.top { " top" } else { "" }).to_lowercase();
                view::listener(address, config.role, policy, serves)
            })
            .collect();
        let [to_server_bytes, to_client_bytes, reads, writes] = balancer.carried();
        let t = &balancer.totals;
        View {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: balancer.began.elapsed().as_secs_f64(),
            writer,
            writer_changes,
            clients: balancer.clients(),
            clients_max: balancer.clients_max(),
            leaving: balancer.leaving.load(Relaxed),
            listeners,
            nodes: nodes
                .into_iter()
                .map(|(id, mut node)| {
                    [node.to_server_bytes, node.to_client_bytes] = balancer.traffic(id);
                    node
                })
                .collect(),
            totals: TotalsView {
                accepted: t.accepted.load(Relaxed),
                refused_limit: t.refused_limit.load(Relaxed),
                refused_unfit: t.refused_unfit.load(Relaxed),
                held: t.held.load(Relaxed),
                held_served: t.held_served.load(Relaxed),
                broken: t.broken.load(Relaxed),
                accept_errors: t.accept_errors.load(Relaxed),
                pushed: t.pushed.load(Relaxed),
                split_reads: balancer.split.reads.load(Relaxed),
                split_unasked: balancer.split.unasked.load(Relaxed),
                split_pinned: balancer.split.pinned.load(Relaxed),
                split_moved: balancer.split.moved.load(Relaxed),
                split_repeated: balancer.split.repeated.load(Relaxed),
                to_server_bytes,
                to_client_bytes,
                reads,
                writes,
            },
        }
    }

    fn stat(&self) -> Stat {
        let [up, down, reads, writes] = self.balancer.carried();
        let opened = self.balancer.totals.accepted.load(Relaxed);
        let mut last = self.last_stat.lock().expect("numbers");
        let (since, before) = std::mem::replace(&mut *last, (Instant::now(), [up, down, reads, writes, opened]));
        Stat {
            to_server_bytes: up - before[0].min(up),
            to_client_bytes: down - before[1].min(down),
            reads: reads - before[2].min(reads),
            writes: writes - before[3].min(writes),
            opened: opened - before[4].min(opened),
            now: self.balancer.clients() as u64,
            elapsed_seconds: since.elapsed().as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;

    use crate::options::Words;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().join(format!("trireme-run-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).unwrap();
            Place(path)
        }
        fn path(&self, name: &str) -> String {
            self.0.join(name).to_str().unwrap().to_owned()
        }
        /// A balancer with a writer's and a control socket here, whose only server is not there.
        fn typed(&self) -> Serve {
            Serve {
                nodes: vec!["127.0.0.1:1".to_owned()],
                writer: vec![self.path("w")],
                control: Some(self.path("c")),
                monitors: vec!["off".to_owned()],
                threads: Some(1),
                hold: "60s".to_owned(),
                ..Words::default_serve()
            }
        }
        fn next(&self) -> Serve {
            Serve { takeover: Some(self.0.join("c")), ..self.typed() }
        }
        fn start(&self, typed: Serve) -> JoinHandle<Result<(), String>> {
            std::thread::spawn(move || serve(typed, Extra::default()))
        }
        fn ask(&self, command: &str) -> Result<String, String> {
            let io = |e: std::io::Error| e.to_string();
            let mut stream = UnixStream::connect(self.path("c")).map_err(io)?;
            stream.write_all(format!("{command}\n").as_bytes()).map_err(io)?;
            stream.shutdown(std::net::Shutdown::Write).map_err(io)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map_err(io)?;
            Ok(answer)
        }
        fn await_answer(&self, command: &str, wanted: impl Fn(&str) -> bool) {
            let begun = Instant::now();
            while !self.ask(command).is_ok_and(|answer| wanted(&answer)) {
                assert!(begun.elapsed() < Duration::from_secs(30), "{command}");
                std::thread::yield_now();
            }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_next_process_that_fails_leaves_everything_to_the_one_before() {
        let place = Place::new("upgrade");
        let first = place.start(place.typed());
        place.await_answer("status", |answer| answer.contains("\"leaving\":false"));
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let occupied = taken.local_addr().unwrap().to_string();
        let many = |n: u16| (1..=n).map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>();
        for wrong in [
            Serve { reader: vec![occupied], ..place.next() },
            Serve { control: Some(place.path("missing/c")), ..place.next() },
            Serve { nodes: many(200), ..place.next() },
        ] {
            assert!(serve(wrong, Extra::default()).is_err());
            UnixStream::connect(place.path("w")).unwrap();
            assert!(place.ask("status").unwrap().contains("\"leaving\":false"));
        }
        let second = place.start(place.next());
        first.join().unwrap().unwrap();
        place.await_answer("status", |answer| answer.contains("\"leaving\":false"));
        UnixStream::connect(place.path("w")).unwrap();
        assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 2, "no other names are left");
        place.ask("leave").unwrap();
        second.join().unwrap().unwrap();
        assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 0);
    }

    #[test]
    fn one_that_leaves_opens_nothing_again() {
        let place = Place::new("reload");
        std::fs::write(place.path("conf"), format!("reader = {}\n", place.path("r"))).unwrap();
        let typed = Serve { config: Some(place.0.join("conf")), ..place.typed() };
        let process = place.start(typed);
        place.await_answer("status", |answer| answer.contains("\"leaving\":false"));
        assert!(place.ask("reload").unwrap().starts_with("Ok"));
        // It waits for a server, and so it keeps the process.
        let client = UnixStream::connect(place.path("w")).unwrap();
        place.await_answer("status", |answer| answer.contains("\"clients\":1,"));
        place.ask("leave").unwrap();
        let told = place.ask("reload").unwrap();
        assert!(told.starts_with("Error: ") && told.contains("no clients"), "{told}");
        assert!(UnixStream::connect(place.path("w")).is_err() && UnixStream::connect(place.path("r")).is_err());
        drop(client);
        process.join().unwrap().unwrap();
    }
}
