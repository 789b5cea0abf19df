//! The command `upgrade`: the program that is on disk now, started by the one that runs, takes its listeners over.
//!
//! It is started from here, and not by an operator's shell, because a service manager takes a process for its service's only if it comes from
//! that service.

#![allow(unsafe_code)] // a second fork, for which the standard library has no words

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::libc;

use crate::address::Address;
use crate::shell::run::Service;

/// For the next process to take the listeners. Names that do not resolve may take some seconds.
pub const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Returns when the next process has the listeners.
pub async fn run(service: &Arc<Service>) -> Result<String, String> {
    if service.is_given() {
        return Err("another process has the listeners already".to_owned());
    }
    let Some(Address::Unix(control)) = service.balancer.config().control.clone() else {
        return Err("the next process takes over at a unix socket: start this one with --control PATH".to_owned());
    };
    let words: Vec<OsString> = std::env::args_os().collect();
    let started = tokio::task::spawn_blocking(move || start(&words, &control)).await;
    let next = started.map_err(|e| e.to_string())??;
    let begun = Instant::now();
    while !service.is_given() {
        let (ended, late) = (!runs(next), begun.elapsed() > LIMIT);
        if (ended || late) && !service.is_given() {
            let what = if ended { "has ended" } else { "has not taken the listeners over" };
            return Err(format!(
                "the next process, {next}, {what}: its last line in the log says why; this one goes on"
            ));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok("Ok: another process serves from now on; this one ends with its last session\n".to_owned())
}

/// As this process was started, with `--takeover`.
fn words_of(own: &[OsString], control: &Path) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut own = own.iter();
    while let Some(word) = own.next() {
        let text = word.to_string_lossy();
        if text == "--takeover" {
            let _ = own.next();
        } else if !text.starts_with("--takeover=") {
            words.push(word.clone());
        }
    }
    words.extend(["--takeover".into(), control.as_os_str().to_owned()]);
    words
}

/// The number of the next process.
fn start(own: &[OsString], control: &Path) -> Result<u32, String> {
    let words = words_of(own, control);
    let (mut numbers, number) = std::io::pipe().map_err(|e| e.to_string())?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let out = number.as_raw_fd();
    // SAFETY: between fork and exec only fork, write and _exit are called, which may be. The child in the middle ends at once, so that the next
    // process belongs to the service manager and not to us.
    unsafe {
        command.pre_exec(move || match libc::fork() {
            -1 => Err(std::io::Error::last_os_error()),
            0 => Ok(()),
            next => {
                libc::write(out, (&raw const next).cast(), size_of::<libc::pid_t>());
                libc::_exit(0)
            }
        });
    }
    let mut middle = command.spawn().map_err(|e| format!("cannot start {}: {e}", words[0].display()))?;
    middle.wait().map_err(|e| e.to_string())?;
    drop(number);
    let mut next = [0; size_of::<libc::pid_t>()];
    numbers.read_exact(&mut next).map_err(|e| format!("cannot start {}: {e}", words[0].display()))?;
    Ok(libc::pid_t::from_ne_bytes(next).unsigned_abs())
}

/// One that has ended and that nobody has waited for does not run.
fn runs(process: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_is_started_as_this_one_and_takes_over_from_it() {
        let next = |words: &[&str]| {
            let own: Vec<OsString> = words.iter().map(OsString::from).collect();
            let words = words_of(&own, Path::new("/run/c"));
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let wanted = "trireme balance --config x --takeover /run/c";
        assert_eq!(next(&["trireme", "balance", "--config", "x"]), wanted);
        assert_eq!(next(&["trireme", "balance", "--takeover", "/old", "--config", "x"]), wanted);
        assert_eq!(next(&["trireme", "balance", "--takeover=/old", "--config", "x"]), wanted);
    }
}
