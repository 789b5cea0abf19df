//! Clients that go on through faults: they number their rows, remember what was acknowledged and when, and connect anew as long as it takes.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};
use trireme_cluster::{Endpoint, Session, SqlError};

/// A statement that is not answered within this time counts as unknown; longer than any outage that a cluster gets over by itself.
pub const LIMIT: Duration = Duration::from_secs(20);
/// Between two attempts of a client that is refused.
const PAUSE: Duration = Duration::from_millis(20);
/// The server's error for a node that is in no majority.
const NOT_READY: u16 = 1047;

pub const TABLE: &str =
    "CREATE TABLE bench.acknowledged (client INT, n BIGINT, text VARCHAR(200), PRIMARY KEY (client, n)) ENGINE=InnoDB";

/// A client and the number of its row.
pub type Row = (u32, u64);

/// The answer that a client got about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Acknowledged,
    /// An error; the connection goes on.
    Refused,
    /// No answer, or one with which a client goes elsewhere.
    Gone,
}

/// A connection through which rows are written.
pub trait Writer {
    fn write(&mut self, row: Row) -> Said;
}

/// How one server is reached; `None` as long as it is not.
pub type Door = Box<dyn Fn() -> Option<Box<dyn Writer>> + Send + Sync>;

/// Which servers clients go to. It can be changed while they run.
pub struct Doors {
    /// By the servers' numbers, from 1.
    all: Vec<Door>,
    /// Everybody goes there; 0: each to a server of its own.
    only: AtomicU8,
    /// Nobody goes there; 0: there is none such.
    spared: AtomicU8,
    /// Whether a client whose server fails tries the next one.
    moves: bool,
}

impl Doors {
    /// Clients that stay with their server.
    pub fn fixed(all: Vec<Door>) -> Doors {
        Doors { all, only: AtomicU8::new(0), spared: AtomicU8::new(0), moves: false }
    }

    /// Clients that know all servers.
    pub fn moving(all: Vec<Door>) -> Doors {
        Doors { moves: true, ..Doors::fixed(all) }
    }

    pub fn lead_all_to(&self, number: Option<u8>) {
        self.only.store(number.unwrap_or(0), Ordering::SeqCst);
    }

    pub fn spare(&self, number: Option<u8>) {
        self.spared.store(number.unwrap_or(0), Ordering::SeqCst);
    }

    /// The number of the server for a client that failed so often.
    fn number(&self, client: u32, failures: u64) -> u8 {
        match self.only.load(Ordering::SeqCst) {
            0 => {
                let spared = self.spared.load(Ordering::SeqCst);
                let numbers: Vec<u8> = (1..=self.all.len() as u8).filter(|number| *number != spared).collect();
                let turn = u64::from(client) + if self.moves { failures } else { 0 };
                numbers.get((turn % numbers.len().max(1) as u64) as usize).copied().unwrap_or(1)
            }
            only => only,
        }
    }

    fn open(&self, client: u32, failures: u64) -> Option<Box<dyn Writer>> {
        self.all.get(usize::from(self.number(client, failures)) - 1).and_then(|door| door())
    }
}

/// Doors of MariaDB servers.
pub fn sockets(endpoints: &[Endpoint]) -> Vec<Door> {
    let door = |endpoint: &Endpoint| -> Door {
        let socket = endpoint.socket().to_owned();
        Box::new(move || -> Option<Box<dyn Writer>> {
            let session = Session::open(&socket, Some("bench"), LIMIT).ok()?;
            Some(Box::new(session))
        })
    };
    endpoints.iter().map(door).collect()
}

impl Writer for Session {
    fn write(&mut self, (client, n): Row) -> Said {
        let text = "x".repeat(100);
        match self.query(&format!("INSERT INTO acknowledged VALUES ({client}, {n}, '{text}')")) {
            Ok(_) => Said::Acknowledged,
            Err(error) if error.code().is_some_and(|code| code != NOT_READY) => Said::Refused,
            Err(_) => Said::Gone,
        }
    }
}

/// The answers that clients got.
#[derive(Debug, Default)]
pub struct Seen {
    /// When each commit was acknowledged, since the clients began, sorted.
    pub commits: Vec<Duration>,
    /// The row of each acknowledgement, and when it came.
    pub acknowledged: Vec<(Duration, Row)>,
    /// Statements without an answer, or with a refusal that leaves open what happened.
    pub errors: Vec<Duration>,
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

    /// Answers that were errors between two moments.
    pub fn errors_between(&self, from: Duration, to: Duration) -> usize {
        self.errors.iter().filter(|at| (from..to).contains(*at)).count()
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

    /// The rows that were acknowledged until a moment.
    pub fn until(&self, moment: Duration) -> BTreeSet<Row> {
        self.acknowledged.iter().filter(|(at, _)| *at <= moment).map(|(_, row)| *row).collect()
    }
}

/// The rows of [`TABLE`] that a MariaDB server has.
pub fn rows_there(session: &mut Session) -> Result<BTreeSet<Row>, SqlError> {
    let answer = session.query("SELECT client, n FROM bench.acknowledged")?;
    let row = |row: &Vec<String>| Some((row.first()?.parse().ok()?, row.get(1)?.parse().ok()?));
    Ok(answer.texts().iter().filter_map(row).collect())
}

/// The clients as `body` sees them while they run.
pub struct Clients<'a> {
    began: Instant,
    seen: &'a Mutex<Seen>,
}

impl Clients<'_> {
    /// Since they began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Since the last commit, or since the clients began.
    pub fn silence(&self) -> Duration {
        let last = lock(self.seen).commits.last().copied().unwrap_or_default();
        self.now().saturating_sub(last)
    }

    /// The rows that were acknowledged until a moment.
    pub fn acknowledged(&self, moment: Duration) -> BTreeSet<Row> {
        lock(self.seen).until(moment)
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs `body` while `count` clients insert rows.
pub fn through<T>(
    doors: &Doors,
    count: u32,
    body: impl FnOnce(&Clients) -> Result<T, String>,
) -> Result<(T, Seen), String> {
    let began = Instant::now();
    let stop = AtomicBool::new(false);
    let seen = Mutex::new(Seen::default());
    let outcome = std::thread::scope(|scope| {
        for n in 0..count {
            let (stop, seen) = (&stop, &seen);
            scope.spawn(move || client(doors, n, began, stop, seen));
        }
        let outcome = body(&Clients { began, seen: &seen });
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    let mut seen = seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    seen.commits.sort_unstable();
    outcome.map(|value| (value, seen))
}

fn client(doors: &Doors, client: u32, began: Instant, stop: &AtomicBool, seen: &Mutex<Seen>) {
    let (mut n, mut failures) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let place = doors.number(client, failures);
        let Some(mut writer) = doors.open(client, failures) else {
            failures += 1;
            std::thread::sleep(PAUSE);
            continue;
        };
        // A client leaves a server that it is led away from.
        while !stop.load(Ordering::Relaxed) && doors.number(client, failures) == place {
            n += 1;
            let said = writer.write((client, n));
            let at = began.elapsed();
            let mut seen = lock(seen);
            match said {
                Said::Acknowledged => {
                    seen.commits.push(at);
                    seen.acknowledged.push((at, (client, n)));
                }
                Said::Refused | Said::Gone => seen.errors.push(at),
            }
            drop(seen);
            match said {
                Said::Acknowledged => {}
                Said::Refused => std::thread::sleep(PAUSE),
                Said::Gone => {
                    failures += 1;
                    std::thread::sleep(PAUSE);
                    break;
                }
            }
        }
    }
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

    #[test]
    fn clients_go_where_they_are_led() {
        let none = || -> Vec<Door> { (0..3).map(|_| -> Door { Box::new(|| None) }).collect() };
        let fixed = Doors::fixed(none());
        assert_eq!((fixed.number(0, 0), fixed.number(2, 0), fixed.number(0, 1)), (1, 3, 1));
        let moving = Doors::moving(none());
        assert_eq!((moving.number(0, 1), moving.number(0, 3)), (2, 1));
        moving.spare(Some(2));
        assert!((0..9).all(|n| moving.number(n, 0) != 2));
        moving.lead_all_to(Some(2));
        assert!((0..9).all(|n| moving.number(n, n.into()) == 2));
    }
}
