//! Log lines. Written by a thread of their own, so that a reader of the log who stands still stops nobody.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines that wait at most; more are counted instead.
const LINES_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub struct Log {
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// To standard error.
    pub fn start() -> Log {
        let (lines, receive) = sync_channel::<String>(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let missing = lost.clone();
        // It ends with the process: nothing else waits for a log.
        std::thread::spawn(move || {
            for line in receive {
                let mut err = std::io::stderr().lock();
                let _ = writeln!(err, "{line}");
                let lost = missing.swap(0, Relaxed);
                if lost > 0 {
                    let _ = writeln!(err, "{} {lost} lines are missing here: the log was not read", stamp());
                }
            }
        });
        Log { lines, lost }
    }

    pub fn line(&self, text: &str) {
        // Texts of servers and clients get a line each: nobody else may begin one.
        let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if self.lines.try_send(format!("{} {clean}", stamp())).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// UTC, to the millisecond.
fn stamp() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (now.as_secs() / 86_400, now.as_secs() % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        now.subsec_millis()
    )
}

/// Of a number of days since 1970-01-01 (the civil calendar in eras of 400 years, each beginning with March).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_779), (2026, 11, 22));
        assert_eq!(date(20_818), (2026, 12, 31));
    }
}
