//! From start to end: one node, one thread that keeps it company, and the signals.

use std::ffi::c_void;
use std::fs;
use std::process::ExitCode;
use std::ptr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use trireme_node::{Arbitrator, Code, InitArgs, Level, NoDonor, Node, RecvCtx};

use crate::config::{Plan, resolve};
use crate::log::Log;
use crate::nobody::Nobody;
use crate::status::StatusFile;
use crate::watch::Watch;
use crate::{Arbitrate, place};

/// More than any protocol that servers agree on: an arbitrator never holds back an upgrade.
const ANY_PROTOCOL: i32 = 127;
/// As everywhere: 1 is for what was understood and failed.
const WRONG_USAGE: u8 = 2;
/// How often the status file is brought up to date, and the files with the secret are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

enum News {
    /// SIGTERM, SIGINT or SIGHUP.
    Stop,
    /// The group was not reached, or was left for another reason than `Stop`.
    Ended(String),
    /// A server has taken on the request.
    Taken(Result<String, NoDonor>),
}

/// `trireme arbitrate`. Until stopped; the exit code is documented in the command's help.
pub fn run(asked: Arbitrate) -> ExitCode {
    run_as(asked, WRONG_USAGE)
}

/// `wrong_usage`: the exit code for settings that cannot be used.
pub(crate) fn run_as(asked: Arbitrate, wrong_usage: u8) -> ExitCode {
    // Its log holds what the servers' tables hold, and nobody else has any business with its other files.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let plan = match resolve(asked) {
        Ok(plan) => plan,
        Err(reason) => {
            eprintln!("trireme arbitrate: {reason}");
            return ExitCode::from(wrong_usage);
        }
    };
    let outcome: Result<_, String> = (|| {
        place::prepare(&plan.dir)?;
        let to_file = plan.log.as_deref().map(Log::file).transpose()?;
        if plan.daemon {
            // Everything that can be refused has been, and no thread runs yet.
            nix::unistd::daemon(false, false).map_err(|e| format!("cannot go to the background: {e}"))?;
        }
        let log = match to_file {
            Some(log) => log,
            None if plan.daemon => Log::system(),
            None => Log::stderr(),
        };
        Ok((plan, Arc::new(log)))
    })();
    match outcome {
        Err(reason) => {
            eprintln!("trireme arbitrate: {reason}");
            ExitCode::FAILURE
        }
        Ok((plan, log)) => {
            let outcome = arbitrate(&plan, &log);
            if plan.request.is_some() {
                let _ = fs::remove_dir_all(&plan.dir);
            }
            match outcome {
                Ok(farewell) => {
                    log.line(Level::Info, &farewell);
                    ExitCode::SUCCESS
                }
                Err(reason) => {
                    log.line(Level::Fatal, &reason);
                    ExitCode::FAILURE
                }
            }
        }
    }
}

fn arbitrate(plan: &Plan, log: &Arc<Log>) -> Result<String, String> {
    log.line(
        Level::Info,
        &format!("trireme arbitrator {}, directory {}", env!("CARGO_PKG_VERSION"), plan.dir.display()),
    );
    let (news, hear) = mpsc::channel();
    let signals = news.clone();
    ctrlc::set_handler(move || drop(signals.send(News::Stop))).map_err(|e| format!("cannot handle signals: {e}"))?;
    let nobody = Arc::new(Nobody { log: log.clone(), view: Mutex::new(None), status_file: plan.status_file.clone() });
    let args = InitArgs {
        node_name: plan.name.clone(),
        data_dir: plan.dir.display().to_string(),
        options: plan.options.clone(),
        protocol: ANY_PROTOCOL,
        arbitrator: Some(Arbitrator { log_max: plan.log_max }),
        ..InitArgs::default()
    };
    let mut watch = Watch::new(plan.secrets.clone());
    let node = Arc::new(Node::new(args, nobody.clone()).map_err(|e| e.to_string())?);
    let company = {
        let (node, news) = (node.clone(), news.clone());
        let (group, address) = (plan.group.clone(), plan.address.clone());
        let request = plan.request.as_ref().map(|r| (r.bytes.clone(), r.donor.clone()));
        thread::spawn(move || keep_company(&node, &group, &address, request, &news))
    };
    let mut status = plan.status_file.as_deref().map(StatusFile::new);
    let outcome = loop {
        match hear.recv_timeout(LOOK_EVERY) {
            Ok(News::Stop) => break Ok("stopped by a signal: left the group".to_string()),
            Ok(News::Ended(reason)) => break Err(reason),
            Ok(News::Taken(Ok(server))) => break Ok(format!("the request was taken on by {server}")),
            Ok(News::Taken(Err(reason))) => break Err(format!("no server can take on the request: {reason}")),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Err("all threads have ended".to_string()),
        }
        if watch.look() {
            // The node's log says what came of it. With files that do not fit it goes on with those before.
            node.options_set("repl.secret_reload=1");
        }
        if let Some(trouble) = status.as_mut().and_then(|s| s.update(&node, &nobody).err()) {
            log.line(Level::Warn, &trouble);
            status = None;
        }
    };
    node.disconnect();
    let _ = company.join();
    node.close();
    outcome
}

/// Connects, and takes what a server's applier would take, until the connection ends.
fn keep_company(node: &Arc<Node>, group: &str, address: &str, request: Option<(Vec<u8>, String)>, news: &Sender<News>) {
    let donor = request.as_ref().map_or("", |(_, donor)| donor.as_str());
    let ended = |why: &str| drop(news.send(News::Ended(why.to_string())));
    if node.connect(group, address, donor, false) != Code::Ok {
        return ended("the group was not reached; the lines before say why");
    }
    if let Some((bytes, _)) = request {
        let (node, news) = (node.clone(), news.clone());
        thread::spawn(move || news.send(News::Taken(node.ask_donor(bytes))));
    }
    // A context is for a server's session, and there is none.
    node.recv(RecvCtx(ptr::null_mut::<c_void>()));
    ended("the group was left; the lines before say why");
}
