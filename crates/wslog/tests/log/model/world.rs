//! The log, what it promised, and how its process ends.

use std::collections::BTreeMap;

use bytes::Bytes;
use trireme_order::{LogStore, StoreError};
use trireme_types::{
    Base, Choice, Durability, Entry, EntryHeader, EntryKind, HardState, LogIndex, NodeId, ProposalNumber, Seqno,
    Session, SplitMix, Term, Uuid,
};
use trireme_wslog::{Faults, KEY_BYTES, LogKeys, OpenReport, Options, SimDisk, SyncTicket, Trim, WriteSetLog};

pub const NODE: NodeId = NodeId(Uuid([9; 16]));

/// Makes all choices: from given bytes first (a fuzzer's), then from the seed.
pub struct Rng {
    choices: std::vec::IntoIter<u8>,
    random: SplitMix,
}

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        if self.spent() {
            return self.random.below(n);
        }
        let low = u64::from(self.choices.next().unwrap_or(0));
        let high = if n > 256 { u64::from(self.choices.next().unwrap_or(0)) } else { 0 };
        // Near both ends of the range.
        (if n > 1 << 16 { low * (n >> 8) + high } else { low | high << 8 }) % n
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    /// No given bytes are left.
    pub fn spent(&self) -> bool {
        self.choices.as_slice().is_empty()
    }
}

/// The log must amount to one of these when the last operation failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    base: Base,
    /// Written, the last ones perhaps only in part.
    pub entries: BTreeMap<u64, Entry>,
    /// Everything up to here was written by calls that succeeded.
    pub written: u64,
    pub synced: u64,
    checkpoints: BTreeMap<u64, Base>,
}

impl Version {
    pub fn last(&self) -> u64 {
        self.entries.keys().next_back().copied().unwrap_or(self.base.index.0)
    }
    fn last_base(&self) -> &Base {
        &self.base
    }
    fn state_at(&self, index: u64) -> (Term, Seqno) {
        self.entries.get(&index).map_or((self.base.term, self.base.seqno), |e| (e.header.term, e.header.seqno))
    }
}

pub type Log = WriteSetLog<SimDisk>;

/// How the process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Close,
    Kill,
    Crash,
}

pub struct World {
    pub rng: Rng,
    pub disk: SimDisk,
    pub log: Option<Log>,
    pub tickets: Vec<SyncTicket<SimDisk>>,
    pub versions: Vec<Version>,
    /// Saved ones that may be found: one, or two when the last save failed.
    pub hard: Vec<HardState>,
    pub boot: u64,
    pub process: bool,
    /// A write or sync failed since the log was opened.
    pub failed: bool,
    /// The process ended by closing the log.
    closed: bool,
    seals: Seals,
    /// Keys in the file, the newest first; none: the log is in clear text.
    keys: Vec<[u8; KEY_BYTES]>,
    /// Appends go past the page cache where they can.
    past_cache: bool,
    counter: u64,
    pub trace: Vec<String>,
    pub torn_tails: u32,
    /// Writes past the cache that were begun.
    pub directly: u32,
}

/// An operator's way with keys between two starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seals {
    Never,
    FromTheStart,
    /// One day.
    Later,
    /// Puts new keys first.
    Rotated,
}

pub fn options(boot: u64) -> Options {
    Options {
        size: 64 << 10,
        segment_size_override: Some(8 << 10),
        slice_override: Some(1000),
        ..Options::new(NODE, format!("boot {boot}"))
    }
}

fn seqno_after(before: Seqno, kind: EntryKind) -> Seqno {
    if kind.takes_seqno() { before.next() } else { before }
}

impl World {
    pub fn new(seed: u64) -> World {
        World::with_choices(seed, Vec::new())
    }

    pub fn with_choices(seed: u64, choices: Vec<u8>) -> World {
        let mut world = World {
            rng: Rng { choices: choices.into_iter(), random: SplitMix(seed) },
            disk: SimDisk::new(seed ^ 0xd15c),
            log: None,
            tickets: Vec::new(),
            versions: vec![Version {
                base: Base::default(),
                entries: BTreeMap::new(),
                written: 0,
                synced: 0,
                checkpoints: BTreeMap::new(),
            }],
            hard: vec![HardState::default()],
            boot: 1,
            process: false,
            failed: false,
            closed: false,
            seals: [Seals::Never, Seals::FromTheStart, Seals::Later, Seals::Rotated][(seed / 3 % 4) as usize],
            keys: Vec::new(),
            past_cache: !(seed / 12).is_multiple_of(3),
            counter: 0,
            trace: Vec::new(),
            torn_tails: 0,
            directly: 0,
        };
        if matches!(world.seals, Seals::FromTheStart | Seals::Rotated) {
            world.keys.push([1; KEY_BYTES]);
        }
        let (log, report) = WriteSetLog::open(world.disk.clone(), &world.options(1)).unwrap();
        assert!(report.created);
        world.take(log);
        if seed.is_multiple_of(3) {
            world.process = true;
            world.log().set_durability(Durability::Process).unwrap();
        }
        world
    }

    pub fn options(&self, boot: u64) -> Options {
        let seed = self.counter ^ boot << 32;
        let keys = (!self.keys.is_empty()).then(|| LogKeys::new(&self.keys).unwrap().with_seed(seed));
        if self.past_cache {
            // The first records of a segment do not go past the cache.
            return Options { keys, size: 256 << 10, segment_size_override: Some(32 << 10), ..options(boot) };
        }
        Options { keys, ..options(boot) }
    }

    fn take(&mut self, mut log: Log) {
        if self.past_cache {
            log.write_past_cache(self.disk.direct_writer());
        }
        self.log = Some(log);
    }

    fn turn_keys(&mut self) {
        let turn = match self.seals {
            Seals::Never | Seals::FromTheStart => false,
            Seals::Later => self.keys.is_empty() && self.rng.one_in(3),
            Seals::Rotated => self.rng.one_in(3),
        };
        if turn {
            self.keys.insert(0, [self.keys.len() as u8 + 1; KEY_BYTES]);
        }
    }

    /// Without the newest key, or with another one only, nothing is opened and nothing is changed.
    fn try_wrong_keys(&self) {
        if self.seals != Seals::FromTheStart {
            return;
        }
        let content = |disk: &SimDisk| -> Vec<_> { disk.file_names().iter().map(|name| disk.content(name)).collect() };
        let before = content(&self.disk);
        for keys in [None, Some(LogKeys::new(&[[77; KEY_BYTES]]).unwrap())] {
            match WriteSetLog::open(self.disk.clone(), &Options { keys, ..options(self.boot) }) {
                Ok(_) => panic!("opened without the key"),
                Err(refused) => assert!(matches!(refused, StoreError::Key(_)), "{refused}"),
            }
        }
        assert_eq!(content(&self.disk), before);
    }

    pub fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    fn version(&mut self) -> &mut Version {
        assert_eq!(self.versions.len(), 1, "the outcome of an operation is still open");
        &mut self.versions[0]
    }

    fn entries(&mut self, term: u64) -> Vec<Entry> {
        let version = self.version();
        let mut index = version.last();
        let (last_term, mut seqno) = version.state_at(index);
        let term = Term(last_term.0.max(term));
        let count = 1 + self.rng.below(6);
        (0..count)
            .map(|_| {
                index += 1;
                self.counter += 1;
                let kind = if self.rng.one_in(4) { EntryKind::App } else { EntryKind::WriteSet };
                seqno = seqno_after(seqno, kind);
                let len = match self.rng.below(20) {
                    0 => 9000 + self.rng.below(9000),
                    1 => 0,
                    2..=5 => self.rng.below(3000),
                    _ => self.rng.below(300),
                };
                let number = self.counter;
                let payload: Vec<u8> = (0..len).map(|at| (at ^ number ^ (number >> 8)) as u8).collect();
                let header = EntryHeader {
                    index: LogIndex(index),
                    term,
                    seqno,
                    voters: LogIndex(1),
                    session: Session { node: NODE, number: 1 },
                    number: ProposalNumber(number),
                    kind,
                };
                Entry { header, payload: Bytes::from(payload) }
            })
            .collect()
    }

    fn note_written(&mut self) {
        let written = self.log().written().0;
        assert!(written >= self.version().written, "what is written stays so");
        self.version().written = written;
    }

    fn finish(&mut self, ticket: SyncTicket<SimDisk>) -> Result<(), StoreError> {
        let done = ticket.run()?;
        let (generation, upto) = (done.generation, done.upto.0);
        let result = self.log().finish_sync(done);
        if generation == self.log().generation() {
            let version = self.version();
            version.synced = version.synced.max(upto);
        }
        result
    }

    fn finish_tickets(&mut self) -> Result<(), StoreError> {
        std::mem::take(&mut self.tickets).into_iter().try_for_each(|ticket| self.finish(ticket))
    }

    /// One random operation. `Err` when the log has failed.
    pub fn step(&mut self) -> Result<(), StoreError> {
        // A write past the cache takes a log in which little else is going on.
        let syncs = self.past_cache && self.rng.one_in(2);
        let choice = if syncs { 50 + self.rng.below(15) } else { self.rng.below(100) };
        let name: &str;
        let result = match choice {
            0..=9 => {
                name = "write on";
                // Writing on need not be asked for where the cache is passed by, and may be.
                let asked = self.log().wants_write_on() || self.rng.one_in(8);
                let result = if asked { self.log().write_on() } else { Ok(()) };
                if result.is_ok() {
                    self.note_written();
                }
                result
            }
            10..=49 => {
                name = "append";
                let term = 1 + self.counter / 50;
                let entries = self.entries(term);
                let result = self.log().append(&entries);
                if result.is_ok() {
                    let (from, to) = (entries[0].header.index, self.log().last());
                    let read = self.log().read(from, usize::MAX).unwrap();
                    let terms: Vec<_> = (from.0..=to.0).map(|i| self.log().term_at(LogIndex(i))).collect();
                    // The written entries and those that are not written yet may be answered one after the other.
                    assert!(!read.is_empty() && entries.starts_with(&read), "what is appended can be read");
                    assert!(terms.iter().all(|term| *term == Some(entries[0].header.term)));
                    for e in entries.iter().filter(|e| e.header.kind.takes_seqno()) {
                        assert_eq!(self.log().index_of(e.header.seqno), Some(e.header.index));
                    }
                }
                let version = self.version();
                for e in entries {
                    version.entries.insert(e.header.index.0, e);
                }
                if result.is_ok() {
                    self.note_written();
                }
                result
            }
            50..=59 => {
                name = "begin sync";
                // As the node does it: one thing at a time.
                let alone = if self.past_cache && !self.rng.one_in(4) { self.finish_tickets() } else { Ok(()) };
                let begun = match alone {
                    Err(e) => Err(e),
                    Ok(()) if self.log().is_under_way() => Ok(None),
                    Ok(()) => self.log().begin_write(),
                };
                if begun.is_ok() {
                    self.note_written();
                }
                match begun {
                    Ok(Some(upto)) => {
                        assert!(upto > self.log().written() && upto <= self.log().last());
                        self.directly += 1;
                        Ok(())
                    }
                    Ok(None) => {
                        let ticket = self.log().begin_sync();
                        self.tickets.extend(ticket);
                        Ok(())
                    }
                    Err(e) => Err(e),
                }
            }
            60..=64 if self.log().is_under_way() => {
                name = "finish write";
                let done = self.log().finish_write().expect("the simulated disk is done when it is asked");
                done.map(|done| {
                    assert_eq!(done.generation, self.log().generation());
                    assert_eq!((self.log().written(), self.log().synced()), (done.upto, done.upto));
                    let version = self.version();
                    version.written = done.upto.0;
                    version.synced = done.upto.0;
                })
            }
            60..=69 => {
                name = "finish sync";
                if self.tickets.is_empty() {
                    return Ok(());
                }
                // Any of them, in any order.
                let at = self.rng.below(self.tickets.len() as u64) as usize;
                let ticket = self.tickets.swap_remove(at);
                self.finish(ticket)
            }
            70..=73 => {
                name = "truncate";
                let (low, high) = (self.log().base().index.0, self.log().last().0);
                // As the order does it: nothing that is committed, so nothing at or below a checkpoint.
                let low = low.max(self.version().checkpoints.keys().next_back().copied().unwrap_or(0));
                let index = high - self.rng.below(12).min(high - low);
                let before = self.version().clone();
                let result = self.log().truncate_after(LogIndex(index));
                // The write that was under way has ended before.
                let (written, synced) = (self.log().written().0, self.log().synced().0);
                let version = self.version();
                version.entries.retain(|i, _| *i <= index);
                if result.is_ok() {
                    assert!(written >= version.written.min(index) && synced >= version.synced.min(index));
                    (version.written, version.synced) = (written, synced);
                } else {
                    version.written = version.written.min(index);
                    version.synced = version.synced.min(index);
                }
                if result.is_err() {
                    self.versions.push(before);
                }
                result
            }
            74 => {
                name = "reset";
                let index = self.log().last().0 + self.rng.below(20) - self.rng.below(5).min(self.log().last().0);
                self.counter += 1;
                let base = Base {
                    history: Uuid([self.counter as u8; 16]),
                    index: LogIndex(index),
                    term: Term(1 + self.counter / 50),
                    seqno: Seqno(index / 2),
                    app: Bytes::from(vec![7; self.rng.below(2000) as usize]),
                    ..Base::default()
                };
                let before = self.version().clone();
                let result = self.log().reset(base.clone());
                *self.version() = Version {
                    base,
                    entries: BTreeMap::new(),
                    written: index,
                    synced: index,
                    checkpoints: BTreeMap::new(),
                };
                if result.is_err() {
                    self.versions.push(before);
                }
                result
            }
            75..=81 => {
                name = "checkpoint";
                if self.log().last() == self.log().base().index {
                    return Ok(());
                }
                // As the order does it: of what is delivered.
                let (first, last) = (self.log().first().0, self.log().written().0);
                if last < first {
                    return Ok(());
                }
                let newest = self.version().checkpoints.keys().next_back().copied().unwrap_or(0);
                let index = (last - self.rng.below(5).min(last - first)).max(newest + 1);
                if index > last {
                    return Ok(());
                }
                let (term, seqno) = self.version().state_at(index);
                let app = Bytes::from(vec![self.counter as u8; self.rng.below(3000) as usize]);
                let base = Base { index: LogIndex(index), term, seqno, app, ..self.version().base.clone() };
                self.version().checkpoints.insert(index, base.clone());
                self.log().save_checkpoint(&base)
            }
            82..=86 => {
                name = "trim";
                let keep_from = LogIndex(self.log().last().0.saturating_sub(self.rng.below(40)));
                let bytes_max = Some(self.rng.below(100 << 10));
                let before = self.log().first();
                let result = self.log().trim(Trim { keep_from, bytes_max });
                if let Ok(first) = result {
                    assert!(first <= keep_from.max(before), "trimmed beyond {keep_from}");
                }
                result.map(|_| ())
            }
            87..=92 => {
                name = "hard state";
                self.counter += 1;
                let state = HardState {
                    term: Term(self.counter),
                    vote: Choice { term: Term(self.counter), of: NODE },
                    entrusted: Choice { term: Term(self.counter - 1), of: NODE },
                    voters_committed: LogIndex(self.counter),
                    committed: LogIndex(self.counter),
                    branch: Uuid([self.counter as u8; 16]),
                };
                let result = self.log().save_hard_state(state);
                if result.is_ok() {
                    self.hard = vec![state];
                } else {
                    self.hard.push(state);
                }
                result
            }
            93..=95 => {
                name = "spare";
                if let Some(ticket) = self.log().begin_spare() {
                    let ready = ticket.run();
                    // Not being able to prepare is no failure of the log.
                    let _ = self.log().finish_spare(ready);
                }
                Ok(())
            }
            _ => {
                name = "read";
                let (first, last) = (self.log().first().0, self.log().last().0);
                if first > last {
                    return Ok(());
                }
                let from = first + self.rng.below(last - first + 1);
                let max = self.rng.below(20_000) as usize;
                let read = self.log().read(LogIndex(from), max)?;
                assert!(!read.is_empty());
                let sum: usize = read.iter().map(|e| e.payload.len()).sum();
                assert!(sum <= max || read.len() == 1);
                for (at, e) in read.iter().enumerate() {
                    assert_eq!(Some(e), self.versions[0].entries.get(&(from + at as u64)));
                }
                Ok(())
            }
        };
        let outcome = result.as_ref().map_or_else(|e| e.to_string(), |_| "ok".to_string());
        let (base, synced, last) = (self.log().base().index, self.log().synced(), self.log().last());
        self.trace.push(format!("{name}: {outcome} -> base {base} synced {synced} last {last}"));
        if result.is_ok() {
            self.check_agreement();
        }
        result
    }

    /// From one start of the process to the next: operations, perhaps on a failing disk, then an end, and the log is opened
    /// again and checked. Answers whether the log failed.
    pub fn life(&mut self) -> bool {
        let budget = 1 + self.rng.below(60);
        if self.rng.one_in(2) {
            let faults = match self.rng.below(4) {
                0 => Faults { space_left: Some(self.rng.below(40 << 10)), ..Faults::default() },
                1 => Faults { writes_left: Some(self.rng.below(60)), ..Faults::default() },
                2 => Faults { syncs_left: Some(self.rng.below(30)), ..Faults::default() },
                _ => Faults { read_only: true, ..Faults::default() },
            };
            self.disk.set_faults(faults);
        }
        let mut first = None;
        for _ in 0..budget {
            if let Err(e) = self.step() {
                first = Some(e);
                break;
            }
        }
        let mut end = [End::Close, End::Kill, End::Crash, End::Crash][self.rng.below(4) as usize];
        let log_failed = first.is_some();
        if let Some(first) = first {
            self.failed = true;
            let term = HardState::default();
            drop_faults(&self.disk);
            let refused = self.log().save_hard_state(term).unwrap_err();
            assert_eq!(refused, StoreError::Failed(Box::new(first.clone())));
            let refused = self.log().append(&[]).unwrap_err();
            assert_eq!(refused, StoreError::Failed(Box::new(first.clone())));
            if end == End::Close {
                end = End::Kill;
            }
        }
        drop_faults(&self.disk);
        let (report, end) = self.end(end).unwrap();
        self.check_reopened(end, &report, true);
        if self.process && self.rng.one_in(2) {
            self.log().set_suspect(None).unwrap();
        }
        log_failed
    }

    /// While the log is open.
    fn check_agreement(&mut self) {
        let log = self.log.as_ref().unwrap();
        let version = &self.versions[0];
        assert_eq!(log.last().0, version.last());
        assert_eq!(log.written().0, version.written.max(log.base().index.0));
        assert!(log.synced() <= log.written());
        assert_eq!(log.synced().0, version.synced.max(log.base().index.0));
        let first = log.first().0;
        for index in first..=version.last() {
            assert_eq!(log.term_at(LogIndex(index)), Some(version.state_at(index).0));
        }
        assert_eq!(log.term_at(LogIndex(version.last() + 1)), None);
        assert_eq!(log.term_at(log.base().index), Some(log.base().term));
    }

    pub fn end(&mut self, end: End) -> Result<(OpenReport, End), StoreError> {
        self.tickets.clear();
        let log = self.log.take().unwrap();
        self.closed = end == End::Close;
        match end {
            End::Close => {
                log.close().unwrap();
                let last = self.versions[0].last();
                self.versions[0].synced = last;
            }
            End::Kill => self.disk.kill(),
            End::Crash => {
                self.disk.crash();
                self.boot += 1;
            }
        }
        drop_faults(&self.disk);
        let mut end = end;
        if self.versions.iter().all(|version| *version.last_base() != Base::default()) {
            self.try_wrong_keys();
        }
        self.turn_keys();
        while self.rng.one_in(3) {
            let died = self.die_in_open();
            end = if end == End::Crash { end } else { died };
        }
        let (log, report) = WriteSetLog::open(self.disk.clone(), &self.options(self.boot))?;
        self.trace.push(format!("{end:?} -> {report:?} base {} last {}", log.base().index, log.last()));
        self.take(log);
        Ok((report, end))
    }

    /// Opens the log, during which the disk may fail, and lets the process die.
    fn die_in_open(&mut self) -> End {
        let faults = match self.rng.below(3) {
            0 => Faults { writes_left: Some(self.rng.below(12)), ..Faults::default() },
            1 => Faults { syncs_left: Some(self.rng.below(8)), ..Faults::default() },
            _ => Faults { space_left: Some(self.rng.below(9000)), ..Faults::default() },
        };
        self.disk.set_faults(faults);
        let opened = WriteSetLog::open(self.disk.clone(), &self.options(self.boot));
        let end = if self.rng.one_in(2) { End::Kill } else { End::Crash };
        self.trace.push(format!("open dies, then {end:?}: {:?}", opened.as_ref().map(|(_, r)| r.clone())));
        drop(opened);
        if end == End::Crash {
            self.disk.crash();
            self.boot += 1;
        } else {
            self.disk.kill();
        }
        drop_faults(&self.disk);
        self.failed = true;
        end
    }

    /// After reopening: which of the possible versions is it?
    pub fn check_reopened(&mut self, end: End, report: &OpenReport, strict: bool) {
        let log = self.log.as_ref().unwrap();
        assert_eq!(log.node_id(), NODE);
        assert!(self.hard.contains(&log.hard_state()), "a promise was taken back");
        let mut reasons = Vec::new();
        let fitting = self.versions.iter().find(|version| match fits(log, version, end, strict) {
            Ok(()) => true,
            Err(why) => {
                reasons.push(why);
                false
            }
        });
        let Some(fitting) = fitting else { panic!("fits no version: {reasons:?}") };
        let mut version = fitting.clone();
        if strict {
            assert_eq!(report.hole, None, "nothing synced was lost");
            assert_eq!(report.lost_history, None);
            if end == End::Kill && !self.failed {
                assert!(!report.torn_tail_cut, "nothing was torn");
                let past = if self.past_cache { log.last().0 } else { version.written };
                assert_eq!(log.last().0, past, "what was written, and nothing of what was not yet");
                assert!(log.last().0 >= version.written, "what was written");
            }
        }
        if !self.failed {
            assert_eq!((report.unclean, report.rebooted), (end != End::Close, end == End::Crash));
        }
        // After a death in the middle of opening, the boot id may or may not have been taken over.
        assert!(!report.rebooted || end == End::Crash);
        if self.process && !self.closed && end == End::Crash && strict && report.rebooted {
            let suspect = report.suspect.expect("process mode, power lost");
            assert!(suspect <= log.last());
        }
        self.torn_tails += u32::from(report.torn_tail_cut);
        let last = log.last().0;
        version.entries.retain(|i, _| *i <= last);
        version.checkpoints.retain(|i, _| *i <= last);
        version.base = Base { ..log.base().clone() };
        version.written = last;
        version.synced = last;
        self.hard = vec![log.hard_state()];
        self.versions = vec![version];
        self.failed = false;
        assert_eq!(log.synced(), log.last());
        self.check_agreement();
    }
}

pub fn drop_faults(disk: &SimDisk) {
    disk.set_faults(Faults::default());
}

pub fn fits(log: &Log, version: &Version, end: End, strict: bool) -> Result<(), String> {
    let base = log.base();
    let known = *base == version.base || version.checkpoints.get(&base.index.0) == Some(base);
    if !known {
        return Err(format!("unknown base {}", base.index));
    }
    let last = log.last().0;
    if last > version.last() {
        return Err(format!("entries up to {last} that were never written"));
    }
    let mut next = log.first();
    while next <= log.last() {
        let read = log.read(next, 5000).map_err(|e| e.to_string())?;
        if read.is_empty() {
            return Err(format!("{next} is not read"));
        }
        for e in read {
            if e.header.index != next || version.entries.get(&next.0) != Some(&e) {
                return Err(format!("other content at {next}"));
            }
            next = next.next();
        }
    }
    if strict {
        let must = if end == End::Crash { version.synced } else { version.written };
        if last < must {
            return Err(format!("ends at {last}, must go to {must}"));
        }
    }
    Ok(())
}
