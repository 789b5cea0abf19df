//! Waiting for a condition: the only place that sleeps.

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at a condition. Short against a server's start (seconds), long against the cost of a look.
const PAUSE: Duration = Duration::from_millis(50);

/// Set by a signal handler; every wait ends with [`Error::Interrupted`] soon after.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Looks until `look` answers `Ok(Ok(value))`. `Ok(Err(text))` means "not yet", where `text` says what was seen and
/// goes into the error if the time runs out; `Err` ends the wait at once.
pub fn until<T>(
    what: impl Into<String>,
    limit: Duration,
    cancel: &Cancel,
    mut look: impl FnMut() -> Result<std::result::Result<T, String>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let last = match look()? {
            Ok(value) => return Ok(value),
            Err(seen) => seen,
        };
        if cancel.is_set() {
            return Err(Error::Interrupted);
        }
        if start.elapsed() >= limit {
            return Err(Error::Timeout { what: what.into(), after: limit, last });
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_what_was_seen_last() {
        let mut n = 0;
        let error = until("x", Duration::from_millis(120), &Cancel::default(), || {
            n += 1;
            Ok(Err::<(), _>(format!("look {n}")))
        })
        .unwrap_err();
        assert!(n >= 2);
        assert_eq!(error.to_string(), format!("x: not within 0 s; last seen: look {n}"));
    }

    #[test]
    fn ends_when_cancelled() {
        let cancel = Cancel::default();
        cancel.set();
        let error = until("x", Duration::from_secs(60), &cancel, || Ok(Err::<(), _>(String::new())));
        assert!(matches!(error, Err(Error::Interrupted)));
    }
}
