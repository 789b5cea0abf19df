//! Was the server told to stop before it can hear it?
//!
//! A server blocks the signals that end it, and has no thread to take them before its first connection is made: who waits for
//! peers without limit would have to be killed. They stay pending meanwhile, which everybody can see.

use std::fs;

const SIGINT: u32 = 2;
const SIGQUIT: u32 = 3;
const SIGTERM: u32 = 15;

/// Is a signal that asks for an end pending for the whole process?
pub fn is_pending() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| asks_to_stop(&status))
}

fn asks_to_stop(status: &str) -> bool {
    let shared = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let Some(mask) = shared.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()) else { return false };
    [SIGINT, SIGQUIT, SIGTERM].iter().any(|signal| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_that_end_a_server_count() {
        let status = |mask: &str| format!("Name:\tmariadbd\nSigPnd:\t0000000000004000\nShdPnd:\t{mask}\nSigBlk:\t0\n");
        assert!(asks_to_stop(&status("0000000000004000")), "SIGTERM");
        assert!(asks_to_stop(&status("0000000000000002")), "SIGINT");
        assert!(!asks_to_stop(&status("0000000000000001")), "SIGHUP");
        assert!(!asks_to_stop(&status("0000000000000000")));
        assert!(!asks_to_stop("Name:\tmariadbd\n"));
        assert!(!is_pending());
    }
}
