//! `trireme cluster logs`.

use crate::run::print_line;
use std::path::Path;
use std::time::Duration;
use trireme_cluster::{Cancel, LogCursor, tail, until};

/// Prints the last `lines` lines; with `go_on` every later one until Ctrl-C.
pub fn follow(log: &Path, lines: usize, go_on: bool, cancel: &Cancel) {
    let mut cursor = LogCursor::at_end(log);
    for line in tail(log, lines) {
        print_line(&line);
    }
    if !go_on {
        return;
    }
    // Ends only by Ctrl-C, which is the ordinary way out here and no failure.
    let _ = until("end of log", Duration::MAX, cancel, || {
        for line in cursor.lines() {
            print_line(&line);
        }
        Ok(Err::<(), _>(String::new()))
    });
}
