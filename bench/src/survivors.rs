//! Clients that go on through faults: they number their rows, remember what was acknowledged and when, and connect anew as long as it takes.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trireme_cluster::{Endpoint, Session, SqlError};

/// A statement that is not answered within this time counts as unknown; longer than any outage that a cluster gets over by itself.
const LIMIT: Duration = Duration::from_secs(20);
/// Between two attempts of a client that is refused.
const PAUSE: Duration = Duration::from_millis(20);

pub const TABLE: &str =
    "CREATE TABLE bench.acknowledged (client INT, n BIGINT, text VARCHAR(200), PRIMARY KEY (client, n)) ENGINE=InnoDB";

/// The answers that clients got.
#[derive(Debug, Default)]
pub struct Seen {
    /// Since the clients began, sorted.
    pub commits: Vec<Duration>,
    /// Client and number of each acknowledged row.
    pub acknowledged: BTreeSet<(u32, u64)>,
    /// Statements without an answer, or with a refusal that leaves open what happened.
    pub unknown: u64,
}

impl Seen {
    /// The longest time without a commit between two moments; the edges count as commits.
    pub fn longest_gap(&self, from: Duration, to: Duration) -> Duration {
        let first = self.commits.partition_point(|at| *at < from);
        let inside = self.commits[first..].iter().copied().take_while(|at| *at <= to);
        let mut last = from;
        let mut longest = Duration::ZERO;
        for at in inside.chain([to]) {
            longest = longest.max(at.saturating_sub(last));
            last = at;
        }
        longest
    }

    /// Commits per second in each `width` from `from` on.
    pub fn rate(&self, from: Duration, to: Duration, width: Duration) -> Vec<f64> {
        let bins = (to.saturating_sub(from).as_secs_f64() / width.as_secs_f64()).round() as usize;
        let mut counts = vec![0.0; bins];
        for at in &self.commits {
            let Some(since) = at.checked_sub(from) else { continue };
            if let Some(count) = counts.get_mut((since.as_secs_f64() / width.as_secs_f64()) as usize) {
                *count += 1.0;
            }
        }
        counts.iter().map(|count| count / width.as_secs_f64()).collect()
    }

    /// How many acknowledged rows are not there.
    pub fn lost(&self, session: &mut Session) -> Result<u64, SqlError> {
        let answer = session.query("SELECT client, n FROM bench.acknowledged")?;
        let there: BTreeSet<(u32, u64)> = answer
            .texts()
            .iter()
            .filter_map(|row| Some((row.first()?.parse().ok()?, row.get(1)?.parse().ok()?)))
            .collect();
        Ok(self.acknowledged.difference(&there).count() as u64)
    }
}

/// Runs `body` while `count` clients insert rows, spread over `endpoints`. `body` gets the time since they began.
pub fn through<T>(
    endpoints: &[Endpoint],
    count: u32,
    body: impl FnOnce(&dyn Fn() -> Duration) -> Result<T, String>,
) -> Result<(T, Seen), String> {
    let began = Instant::now();
    let stop = AtomicBool::new(false);
    let seen = Mutex::new(Seen::default());
    let outcome = std::thread::scope(|scope| {
        for n in 0..count {
            let (endpoint, stop, seen) = (&endpoints[n as usize % endpoints.len()], &stop, &seen);
            scope.spawn(move || {
                let own = client(endpoint, n, began, stop);
                let mut all = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                all.commits.extend(own.commits);
                all.acknowledged.extend(own.acknowledged);
                all.unknown += own.unknown;
            });
        }
        let outcome = body(&|| began.elapsed());
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    let mut seen = seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    seen.commits.sort_unstable();
    outcome.map(|value| (value, seen))
}

fn client(endpoint: &Endpoint, client: u32, began: Instant, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let text = "x".repeat(100);
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut session) = Session::open(endpoint.socket(), Some("bench"), LIMIT) else {
            std::thread::sleep(PAUSE);
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            match session.query(&format!("INSERT INTO acknowledged VALUES ({client}, {n}, '{text}')")) {
                Ok(_) => {
                    seen.commits.push(began.elapsed());
                    seen.acknowledged.insert((client, n));
                }
                // Refused: a node that is in no majority, or a conflict with another one's row.
                Err(error) if error.code().is_some() => {
                    seen.unknown += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(_) => {
                    seen.unknown += 1;
                    break;
                }
            }
        }
        if !stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_rates_are_those_of_the_commits() {
        let ms = Duration::from_millis;
        let seen = Seen { commits: [10, 20, 90, 100, 150].map(ms).to_vec(), ..Seen::default() };
        assert_eq!(seen.longest_gap(ms(0), ms(160)), ms(70));
        assert_eq!(seen.longest_gap(ms(95), ms(300)), ms(150), "to the end");
        assert_eq!(seen.longest_gap(ms(200), ms(260)), ms(60), "no commit at all");
        assert_eq!(seen.rate(ms(0), ms(200), ms(100)), [30.0, 20.0]);
    }
}
