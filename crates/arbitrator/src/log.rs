//! Log lines as garbd writes them: to standard error, a file, or the system's log. Times are UTC.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use trireme_node::Level;

enum Sink {
    Stderr,
    File(File),
    /// `None` when there is no system log: lines are lost then, as with any daemon.
    System(Option<UnixDatagram>),
}

pub struct Log {
    sink: Mutex<Sink>,
    debug: bool,
}

impl Log {
    pub fn stderr() -> Log {
        Log { sink: Mutex::new(Sink::Stderr), debug: std::env::var_os("TRIREME_DEBUG").is_some() }
    }

    /// Appends to `path`.
    pub fn file(path: &Path) -> Result<Log, String> {
        let file = trireme_private::open_own(path, OpenOptions::new().append(true));
        let file = file.map_err(|e| format!("cannot write the log file {}: {e}", path.display()))?;
        Ok(Log { sink: Mutex::new(Sink::File(file)), ..Log::stderr() })
    }

    pub fn system() -> Log {
        let socket = UnixDatagram::unbound().and_then(|s| s.connect("/dev/log").map(|()| s)).ok();
        Log { sink: Mutex::new(Sink::System(socket)), ..Log::stderr() }
    }

    pub fn line(&self, level: Level, text: &str) {
        let (name, severity) = match level {
            Level::Fatal => ("FATAL", 2),
            Level::Error => ("ERROR", 3),
            Level::Warn => (" WARN", 4),
            Level::Info => (" INFO", 6),
            Level::Debug => ("DEBUG", 7),
        };
        if level == Level::Debug && !self.debug {
            return;
        }
        let mut sink = self.sink.lock().expect("no holder of the log panics");
        // A log that cannot be written must not end what is logged.
        let _ = match &mut *sink {
            Sink::Stderr => writeln!(std::io::stderr(), "{} {name}: {text}", stamp(SystemTime::now())),
            Sink::File(file) => writeln!(file, "{} {name}: {text}", stamp(SystemTime::now())),
            Sink::System(Some(socket)) => {
                // Facility 3: system daemons.
                let line = format!("<{}>garbd[{}]: {text}", 3 * 8 + severity, std::process::id());
                socket.send(line.as_bytes()).map(drop)
            }
            Sink::System(None) => Ok(()),
        };
    }
}

/// `2026-01-31 23:59:59.123`
fn stamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = date(seconds / 86_400);
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}.{millis:03}")
}

/// The day that is so many after 1970-01-01. Years are counted from 1 March, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_people_read_them() {
        let at = |s| stamp(UNIX_EPOCH + Duration::from_millis(s));
        assert_eq!(at(0), "1970-01-01 00:00:00.000");
        assert_eq!(at(951_782_399_999), "2000-02-28 23:59:59.999");
        assert_eq!(at(951_782_400_000), "2000-02-29 00:00:00.000");
        assert_eq!(at(1_709_251_199_000), "2024-02-29 23:59:59.000");
        assert_eq!(at(1_709_251_200_000), "2024-03-01 00:00:00.000");
        assert_eq!(at(4_102_444_799_000), "2099-12-31 23:59:59.000");
    }
}
