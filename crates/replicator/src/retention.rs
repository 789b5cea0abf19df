//! The entries that may go from the own log: none that this node's engine, a member, or a member that is away for a while
//! may still need.

use std::time::Duration;

use trireme_types::{Base, LogIndex, Seqno, Timestamp};

/// How long a commit may take from the engine's memory to its disk on a server that does not tell how far its engine's log is on disk.
/// InnoDB flushes it every second unless told otherwise (`innodb_flush_log_at_timeout`), and a slow disk may take seconds for that. The
/// kernel writes what no process syncs after half a minute (`vm.dirty_expire_centisecs`).
pub const UNSEEN_FLUSH_MAX: Duration = Duration::from_secs(60);

/// The state of the storage engine's own log (InnoDB's redo log), as the server tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineLog {
    /// The engine is not open: the server is starting, or waits for a full copy.
    Closed,
    /// There is an engine, but this server does not tell.
    Silent,
    /// In the engine's own count, which only rises: where its log ends, and up to where the disk has it.
    At { written: u64, durable: u64 },
}

/// How much of its log the engine took for written when this process first looked. The log that a killed process wrote without a sync is read
/// back after a restart as if the disk had it. A sync of this process proves it, or the time in which the kernel writes it by itself.
#[derive(Clone, Copy, Debug)]
pub struct FirstLook {
    durable: u64,
    at: Timestamp,
}

impl FirstLook {
    pub fn new(durable: u64, at: Timestamp) -> FirstLook {
        FirstLook { durable, at }
    }

    /// Is it true that the disk has the log up to `durable`, as the engine says now?
    pub fn proves(self, durable: u64, now: Timestamp) -> bool {
        durable > self.durable || now.since(self.at) >= UNSEEN_FLUSH_MAX
    }
}

/// When the engine was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Of [`EngineDisk::new`].
    pub epoch: u64,
    /// Everything up to here was committed in the engine's memory *before* it was asked.
    pub ended: Seqno,
}

impl Look {
    /// `found`: of a server that is not fed yet, up to where its engine is known to have the history; `ended`: up to where this process has
    /// fed it. That begins with what somebody claimed, and the engine may lack it.
    pub fn new(epoch: u64, found: Option<Seqno>, ended: Seqno) -> Look {
        Look { epoch, ended: found.unwrap_or(ended) }
    }
}

/// When the disk has what the engine had committed at a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// When the engine's log is on disk up to here.
    Written(u64),
    /// By this time.
    By(Timestamp),
}

/// Up to where the engine of this node has the history on its disk. A commit that the server calls done may be in memory only, for as long
/// as the engine's settings allow.
#[derive(Debug)]
pub struct EngineDisk {
    /// Of these data. Looks of another epoch do not count (`see`).
    epoch: u64,
    /// On disk up to here. Only rises (`see`).
    upto: Seqno,
    /// How much of its log the engine took for written at the first look, until a sync or time proves it.
    at_first: Option<FirstLook>,
    /// One at a time: the bound follows with one flush of delay.
    waiting: Option<(Seqno, Due)>,
}

impl EngineDisk {
    /// For the data that the server has from here on. `epoch`: another one for other data; a look from before does not count.
    pub fn new(epoch: u64) -> EngineDisk {
        EngineDisk { epoch, upto: Seqno::ZERO, at_first: None, waiting: None }
    }

    /// The same for data that are on disk up to here, because the engine was closed in order before the server opened it.
    pub fn closed_at(epoch: u64, upto: Seqno) -> EngineDisk {
        EngineDisk { upto, ..EngineDisk::new(epoch) }
    }

    /// The same data under another clock, which shows `now`. Each wait for a time begins anew.
    #[must_use]
    pub fn under_other_clock(self, now: Timestamp) -> EngineDisk {
        let at_first = self.at_first.map(|first| FirstLook::new(first.durable, now));
        let waiting = self.waiting.map(|(upto, due)| match due {
            Due::Written(_) => (upto, due),
            Due::By(_) => (upto, Due::By(now.after(UNSEEN_FLUSH_MAX))),
        });
        EngineDisk { at_first, waiting, ..self }
    }

    /// Everything up to here is on disk. [`Seqno::ZERO`]: nothing is known.
    pub fn upto(&self) -> Seqno {
        self.upto
    }

    /// Goes into each look of which [`EngineDisk::see`] is told.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Is a first look still to come? It should come early, see [`FirstLook`].
    pub fn is_unseen(&self) -> bool {
        self.at_first.is_none()
    }

    pub fn first_look(&self) -> Option<FirstLook> {
        self.at_first
    }

    /// The engine was looked at.
    pub fn see(&mut self, look: Look, log: EngineLog, now: Timestamp) {
        if look.epoch != self.epoch {
            return;
        }
        match log {
            EngineLog::Closed => self.waiting = None,
            EngineLog::Silent => {
                if let Some((upto, Due::By(time))) = self.waiting
                    && time <= now
                {
                    self.upto = self.upto.max(upto);
                    self.waiting = None;
                }
                if self.waiting.is_none() && look.ended > self.upto {
                    self.waiting = Some((look.ended, Due::By(now.after(UNSEEN_FLUSH_MAX))));
                }
            }
            EngineLog::At { written, durable } => {
                let synced = self.at_first.get_or_insert(FirstLook::new(durable, now)).proves(durable, now);
                let reached = |due: Due| match due {
                    Due::Written(end) => synced && durable >= end,
                    Due::By(_) => false,
                };
                if let Some((upto, due)) = self.waiting
                    && reached(due)
                {
                    self.upto = self.upto.max(upto);
                    self.waiting = None;
                }
                if reached(Due::Written(written)) {
                    self.upto = self.upto.max(look.ended);
                    self.waiting = None;
                } else if self.waiting.is_none() && look.ended > self.upto {
                    self.waiting = Some((look.ended, Due::Written(written)));
                }
            }
        }
    }
}

/// A log of which nothing may go, because the server behind it waits for its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    /// Bytes of the log.
    pub held: u64,
    /// Of these, beyond what the operator lets it have.
    pub excess: u64,
    /// Bytes that are free where it lies; 0 when nobody knows.
    pub free: u64,
}

/// Least bytes that the log of a server without its data leaves free: what a busy cluster brings in a few seconds. The data directory is
/// mostly on the same disk, and a full one ends more than this log.
pub const FREE_MIN: u64 = 128 << 20;
/// The operator is told before.
const FREE_TOLD: u64 = 8 * FREE_MIN;

/// The verdict on the room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Enough,
    /// It gets short.
    Short,
    /// The log goes no further.
    None,
}

impl Growth {
    pub fn room(self) -> Room {
        match self.free {
            _ if self.excess == 0 => Room::Enough,
            // On a disk that is full the log fails by itself.
            0 => Room::Enough,
            free if free < FREE_MIN => Room::None,
            free if free < FREE_TOLD => Room::Short,
            _ => Room::Enough,
        }
    }
}

/// For whose sake something stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// This node: what its engine would lack after a crash. For an arbitrator, what a server may lack.
    Own,
    /// A member that is here and has not received everything.
    Member,
    /// Members that are away.
    Absent,
}

/// The first entry that each may still need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    pub own: LogIndex,
    /// `None`: no member's need counts.
    pub members: Option<LogIndex>,
    /// `None`: nobody is away for whom something is kept.
    pub absent: Option<LogIndex>,
}

/// The first entry of a log, which begins behind `base` and ends at `last`, that is needed by whom everything up to `upto` has reached.
/// `index_of`: where a seqno lies in it.
pub fn needed_from(
    upto: Seqno,
    base: &Base,
    last: LogIndex,
    index_of: impl FnOnce(Seqno) -> Option<LogIndex>,
) -> LogIndex {
    if upto <= base.seqno { base.index.next() } else { index_of(upto.next()).unwrap_or(last.next()) }
}

impl Needs {
    /// The first entry that has to stay, and for whom. This node's own need is told first, since no setting changes it.
    pub fn keep_from(&self) -> (LogIndex, Need) {
        let mut keep = (self.own, Need::Own);
        for (first, need) in [(self.members, Need::Member), (self.absent, Need::Absent)] {
            if let Some(first) = first.filter(|first| *first < keep.0) {
                keep = (first, need);
            }
        }
        keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see(disk: &mut EngineDisk, ended: u64, written: u64, durable: u64) -> u64 {
        let look = Look { epoch: disk.epoch(), ended: Seqno(ended) };
        disk.see(look, EngineLog::At { written, durable }, Timestamp::ZERO);
        disk.upto().0
    }

    #[test]
    fn of_a_server_that_is_not_fed_yet_only_what_was_found_counts() {
        let claimed = Seqno(2000);
        let mut disk = EngineDisk::new(1);
        let at = |log, ended| (Look::new(1, Some(ended), claimed), EngineLog::At { written: log, durable: log });
        for log in [50, 60] {
            let (look, log) = at(log, Seqno(1500));
            disk.see(look, log, Timestamp::ZERO);
        }
        assert_eq!(disk.upto(), Seqno(1500), "the engine never had what was claimed");
        assert_eq!(Look::new(1, None, Seqno(1600)).ended, Seqno(1600));
    }

    #[test]
    fn what_was_committed_before_a_look_counts_once_the_disk_has_what_was_written_then() {
        let mut disk = EngineDisk::new(0);
        assert!(disk.is_unseen());
        assert_eq!(see(&mut disk, 10, 1000, 900), 0);
        assert!(!disk.is_unseen());
        assert_eq!(see(&mut disk, 20, 2000, 999), 0, "a part of it");
        assert_eq!(see(&mut disk, 30, 3000, 1000), 10, "and not what came after the look");
        assert_eq!(see(&mut disk, 40, 4000, 2999), 10);
        assert_eq!(see(&mut disk, 50, 5000, 3000), 30);
        assert_eq!(see(&mut disk, 60, 6000, 6000), 60, "all of it");
    }

    #[test]
    fn what_the_disk_seemed_to_have_at_the_start_is_proved_by_a_sync_or_by_time() {
        let mut disk = EngineDisk::new(0);
        assert_eq!(see(&mut disk, 10, 1000, 1000), 0);
        assert_eq!(see(&mut disk, 10, 1000, 1000), 0);
        assert_eq!(see(&mut disk, 11, 1100, 1100), 11);
        let mut idle = EngineDisk::new(0);
        let look = Look { epoch: 0, ended: Seqno(10) };
        for (seconds, upto) in [(0, 0), (59, 0), (60, 10)] {
            let now = Timestamp::ZERO.after(Duration::from_secs(seconds));
            idle.see(look, EngineLog::At { written: 1000, durable: 1000 }, now);
            assert_eq!(idle.upto(), Seqno(upto), "or by the kernel's writing");
        }
    }

    #[test]
    fn data_that_were_closed_in_order_are_on_disk() {
        let mut disk = EngineDisk::closed_at(0, Seqno(10));
        assert!(disk.is_unseen());
        assert_eq!(disk.upto(), Seqno(10));
        assert_eq!(see(&mut disk, 12, 1000, 1000), 10, "of what came behind them nothing is known");
        assert_eq!(see(&mut disk, 12, 1000, 1001), 12);
    }

    /// A new clock shows less than the old one did.
    #[test]
    fn another_clock_costs_the_time_that_has_passed_and_nothing_else() {
        let after = |seconds| Timestamp::ZERO.after(Duration::from_secs(seconds));
        let look = Look { epoch: 0, ended: Seqno(10) };
        let at = EngineLog::At { written: 1000, durable: 1000 };
        let mut told = EngineDisk::new(0);
        told.see(look, at, after(500));
        let mut told = told.under_other_clock(Timestamp::ZERO);
        told.see(look, at, after(59));
        assert_eq!(told.upto(), Seqno::ZERO);
        told.see(look, at, after(60));
        assert_eq!(told.upto(), Seqno(10));
        let mut silent = EngineDisk::new(0);
        silent.see(look, EngineLog::Silent, after(500));
        let mut silent = silent.under_other_clock(Timestamp::ZERO);
        silent.see(look, EngineLog::Silent, after(59));
        assert_eq!(silent.upto(), Seqno::ZERO);
        silent.see(look, EngineLog::Silent, after(60));
        assert_eq!(silent.upto(), Seqno(10));
        let mut synced = EngineDisk::new(0);
        assert_eq!(see(&mut synced, 10, 1000, 900), 0);
        let mut synced = synced.under_other_clock(Timestamp::ZERO);
        assert_eq!(see(&mut synced, 11, 1100, 1000), 10, "a sync of this process");
    }

    #[test]
    fn other_data_are_looked_at_anew() {
        let mut disk = EngineDisk::new(0);
        see(&mut disk, 10, 1000, 900);
        see(&mut disk, 10, 1000, 1000);
        assert_eq!(disk.upto(), Seqno(10));
        let old = Look { epoch: disk.epoch(), ended: Seqno(500) };
        let mut disk = EngineDisk::new(1);
        assert_eq!(disk.upto(), Seqno::ZERO);
        disk.see(old, EngineLog::At { written: 1, durable: 1 }, Timestamp::ZERO);
        assert!(disk.is_unseen(), "the look was at the old data");
        see(&mut disk, 3, 2000, 1500);
        assert_eq!(see(&mut disk, 3, 2000, 2000), 3);
    }

    #[test]
    fn a_server_that_tells_nothing_is_given_time() {
        let mut disk = EngineDisk::new(0);
        let mut see = |ended: u64, seconds: u64, log| {
            let look = Look { epoch: 0, ended: Seqno(ended) };
            disk.see(look, log, Timestamp::ZERO.after(Duration::from_secs(seconds)));
            disk.upto().0
        };
        assert_eq!(see(10, 0, EngineLog::Silent), 0);
        assert_eq!(see(20, 59, EngineLog::Silent), 0);
        assert_eq!(see(30, 60, EngineLog::Silent), 10);
        assert_eq!(see(40, 119, EngineLog::Silent), 10);
        assert_eq!(see(40, 120, EngineLog::Closed), 10, "an engine that is not open flushes nothing");
        assert_eq!(see(40, 121, EngineLog::Silent), 10);
        assert_eq!(see(50, 181, EngineLog::Silent), 40);
    }

    #[test]
    fn a_log_that_nothing_may_leave_stops_before_its_disk_is_full() {
        let room = |excess, free| Growth { held: 1 << 30, excess, free }.room();
        assert_eq!(room(1, u64::MAX), Room::Enough);
        assert_eq!(room(1, FREE_TOLD), Room::Enough);
        assert_eq!(room(1, FREE_TOLD - 1), Room::Short);
        assert_eq!(room(1, FREE_MIN), Room::Short);
        assert_eq!(room(1, FREE_MIN - 1), Room::None);
        assert_eq!(room(1, 0), Room::Enough, "unknown");
        assert_eq!(room(0, 1), Room::Enough, "within its size it may fill what it was given");
    }

    #[test]
    fn a_log_is_needed_from_the_next_seqno_on() {
        let base = Base { index: LogIndex(10), seqno: Seqno(4), ..Base::default() };
        let from = |upto| {
            // Seqnos 5 to 7 lie at 12, 14 and 16.
            let index_of = |seqno: Seqno| (5..8).contains(&seqno.0).then_some(LogIndex(2 * seqno.0 + 2));
            needed_from(Seqno(upto), &base, LogIndex(17), index_of)
        };
        assert_eq!((from(0), from(4)), (LogIndex(11), LogIndex(11)), "all of it");
        assert_eq!((from(5), from(6)), (LogIndex(14), LogIndex(16)));
        assert_eq!(from(7), LogIndex(18), "nothing");
    }

    #[test]
    fn what_anybody_needs_stays() {
        let needs = |own, members: Option<u64>, absent: Option<u64>| {
            Needs { own: LogIndex(own), members: members.map(LogIndex), absent: absent.map(LogIndex) }.keep_from()
        };
        assert_eq!(needs(7, None, None), (LogIndex(7), Need::Own));
        assert_eq!(needs(7, Some(7), Some(7)), (LogIndex(7), Need::Own));
        assert_eq!(needs(7, Some(6), Some(8)), (LogIndex(6), Need::Member));
        assert_eq!(needs(7, Some(6), Some(5)), (LogIndex(5), Need::Absent));
    }
}
