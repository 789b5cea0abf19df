//! The storage engine that runs in this process: is it where this node goes on from, and what does it have on disk at a stop (rule 31)?

use std::time::{Duration, Instant};

use trireme_replicator::position::{self, Elsewhere, Word};
use trireme_types::{Seqno, Uuid};

use crate::{EngineLog, Server};

/// Compares a position with that of the engine, which runs. May wait for the engine.
///
/// **Errors:** where the engine is instead.
pub fn compare(server: &dyn Server, at: (Uuid, Seqno), word: Word) -> Result<(), Elsewhere> {
    let found = server.engine_position().map(Into::into);
    position::compare(found, server.process().is_some(), at.into(), word)
}

/// How long a stop waits for the engine to flush its log. InnoDB does so every second unless told otherwise.
const FLUSH_MAX: Duration = Duration::from_secs(5);
/// How long it waits for an engine that does not answer at all.
pub const STOP_MAX: Duration = Duration::from_secs(6);
const _: () = assert!(STOP_MAX.as_millis() > FLUSH_MAX.as_millis() + LOOK_EVERY.as_millis());
/// How often the engine is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The position that a stop may write down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The storage engine has it on disk.
    OnDisk(Seqno),
    /// The node closed everything up to there; no engine tells what it has on disk. The next start asks.
    Claimed(Seqno),
    /// A crash from here on leaves the engine somewhere else. The next start asks.
    Unknown,
}

/// The position of data that nobody changes any more. `left`: what has left commit order; `ended`: what of that has ended. With a binary log
/// a commit leaves first and reaches the engine later, and where the engine is meanwhile is not where it will be. Waits for the engine's log,
/// a few seconds at most if it answers: for the thread that asks the engine.
pub fn at_stop(server: &dyn Server, history: Uuid, left: Seqno, ended: Seqno) -> Stop {
    if ended < left {
        return Stop::Unknown;
    }
    let Some((found, seqno)) = server.engine_position() else {
        return if server.process().is_some() { Stop::Unknown } else { Stop::Claimed(left) };
    };
    if found != history {
        return Stop::Unknown;
    }
    let until = Instant::now() + FLUSH_MAX;
    let mut end = None;
    loop {
        match server.engine_log() {
            EngineLog::At { written, durable } if durable >= *end.get_or_insert(written) => return Stop::OnDisk(seqno),
            EngineLog::At { .. } if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            EngineLog::At { .. } | EngineLog::Closed => return Stop::Unknown,
            EngineLog::Silent => return Stop::Claimed(seqno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use std::cell::RefCell;

    const HERE: Uuid = Uuid([1; 16]);
    const ELSEWHERE: Uuid = Uuid([2; 16]);

    fn at(seqno: u64) -> Option<(Uuid, Seqno)> {
        Some((HERE, Seqno(seqno)))
    }

    /// A server of which nothing is asked but its engine.
    struct Engine {
        position: Option<(Uuid, Seqno)>,
        is_server: bool,
        /// Its log, look by look; the last one stays.
        log: RefCell<Vec<EngineLog>>,
    }

    mod stub {
        use super::*;
        use crate::{Applied, Gtid, Handle, Meta, RecvCtx, ServerProcess, ServerView};

        impl Server for super::Locked {
            fn engine_position(&self) -> Option<(Uuid, Seqno)> {
                self.0.lock().unwrap().position
            }
            fn engine_log(&self) -> EngineLog {
                let engine = self.0.lock().unwrap();
                let mut log = engine.log.borrow_mut();
                if log.len() > 1 { log.remove(0) } else { log[0] }
            }
            fn process(&self) -> Option<ServerProcess> {
                self.0.lock().unwrap().is_server.then(ServerProcess::default)
            }
            fn connected(&self, _: &ServerView) -> bool {
                unreachable!()
            }
            fn view(&self, _: RecvCtx, _: &ServerView) -> bool {
                unreachable!()
            }
            fn wants_script(&self) -> bool {
                unreachable!()
            }
            fn sst_request(&self) -> Result<Vec<u8>, ()> {
                unreachable!()
            }
            fn apply(&self, _: RecvCtx, _: Handle, _: u32, _: &[u8], _: &Meta) -> Applied {
                unreachable!()
            }
            fn sst_donate(&self, _: RecvCtx, _: &[u8], _: Gtid, _: bool) -> bool {
                unreachable!()
            }
            fn synced(&self) -> bool {
                unreachable!()
            }
            fn log(&self, _: Level, _: &str) {
                unreachable!()
            }
            fn end(&self, _: &str) {
                unreachable!()
            }
            fn allowed(&self, _: &str) -> bool {
                unreachable!()
            }
            fn event(&self, _: &str, _: &str) {
                unreachable!()
            }
        }
    }

    struct Locked(std::sync::Mutex<Engine>);

    fn engine(position: Option<(Uuid, Seqno)>, is_server: bool, log: Vec<EngineLog>) -> Locked {
        Locked(std::sync::Mutex::new(Engine { position, is_server, log: RefCell::new(log) }))
    }

    fn written(written: u64, durable: u64) -> EngineLog {
        EngineLog::At { written, durable }
    }

    #[test]
    fn a_stop_records_what_the_engine_has_on_disk() {
        let server = engine(at(9), true, vec![written(100, 50), written(120, 99), written(130, 100)]);
        assert_eq!(at_stop(&server, HERE, Seqno(9), Seqno(9)), Stop::OnDisk(Seqno(9)), "up to where it was at first");
    }

    /// A commit is queued for the binary log: the engine is one behind, and will not stay there.
    #[test]
    fn a_stop_records_nothing_while_a_commit_is_under_way() {
        let server = engine(at(8), true, vec![written(100, 100)]);
        assert_eq!(at_stop(&server, HERE, Seqno(9), Seqno(8)), Stop::Unknown);
    }

    #[test]
    fn a_stop_records_no_position_that_the_next_start_could_not_rely_on() {
        let closed = engine(at(9), true, vec![written(100, 50), EngineLog::Closed]);
        assert_eq!(at_stop(&closed, HERE, Seqno(9), Seqno(9)), Stop::Unknown);
        let elsewhere = engine(Some((ELSEWHERE, Seqno(9))), true, vec![written(1, 1)]);
        assert_eq!(at_stop(&elsewhere, HERE, Seqno(9), Seqno(9)), Stop::Unknown);
        let unopened = engine(None, true, vec![EngineLog::Silent]);
        assert_eq!(at_stop(&unopened, HERE, Seqno(9), Seqno(9)), Stop::Unknown);
        let silent = engine(at(9), true, vec![EngineLog::Silent]);
        assert_eq!(at_stop(&silent, HERE, Seqno(9), Seqno(9)), Stop::Claimed(Seqno(9)));
        let nobody = engine(None, false, vec![EngineLog::Silent]);
        assert_eq!(at_stop(&nobody, HERE, Seqno(9), Seqno(9)), Stop::Claimed(Seqno(9)));
    }

    #[test]
    fn an_engine_that_runs_confirms_or_contradicts() {
        let position = (HERE, Seqno(9));
        let log = || vec![EngineLog::Silent];
        assert_eq!(compare(&engine(at(9), true, log()), position, Word::Engine), Ok(()));
        assert!(compare(&engine(at(8), true, log()), position, Word::Engine).is_err());
        assert!(compare(&engine(at(8), true, log()), position, Word::Operator).is_err());
        assert!(compare(&engine(None, true, log()), position, Word::Engine).is_err());
        assert_eq!(compare(&engine(None, true, log()), position, Word::Operator), Ok(()));
        assert_eq!(compare(&engine(None, false, log()), position, Word::Engine), Ok(()), "nobody to ask");
    }
}
