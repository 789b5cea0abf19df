//! The real log over its simulated disk, with the part of a node's driver that serves it: sync tickets, trimming, reopening.

use trireme_order::{LogStore, StoreError};
use trireme_types::{Base, Durability, Entry, HardState, LogIndex, NodeId, Seqno, Term};
use trireme_wslog::{Faults, KEY_BYTES, LogKeys, Options as LogOptions, SimDisk, SyncTicket, Trim, WriteSetLog};

use crate::options::{Options, Sabotage};
use crate::outage::Sick;
use crate::rng::Rng;
use crate::store::Appended;

pub struct RealStore {
    disk: SimDisk,
    /// Decides on its keys.
    seed: u64,
    /// `None` only while it is being reopened.
    log: Option<WriteSetLog<SimDisk>>,
    ticket: Option<SyncTicket<SimDisk>>,
    /// Appended entries go past the page cache where they can.
    past_cache: bool,
    /// A sync was begun that is not by ticket: a write past the cache, or one that has failed at once.
    written_past: bool,
    /// Its sync was already run when the ticket was drawn.
    early: Option<trireme_wslog::Synced>,
    node: NodeId,
    boot: u32,
    size: u64,
    segment: u64,
    slice: usize,
    /// About so much a write set adds.
    record: u64,
    sabotage: Option<Sabotage>,
    appended: Vec<Appended>,
    /// A report of a recovery that no fault explains.
    complaint: Option<String>,
    /// A fault made operations fail since the last clean open. Recovery may then find things that it would not find otherwise.
    fused: bool,
    /// The last open was after that, and nobody has been told.
    torn: bool,
    /// The log has failed, and its disk knows what may be missing.
    noted: bool,
    /// The setting in force.
    process: bool,
    /// Bits were flipped, or acknowledged entries may have been lost with the power: the log has reason to be suspect.
    harmed: bool,
}

impl RealStore {
    pub fn create(o: &Options, node: NodeId, seed: u64) -> RealStore {
        let disk = SimDisk::new(seed);
        if o.sabotage == Some(Sabotage::LyingDisk) {
            disk.set_faults(Faults { lying: true, ..Faults::default() });
        }
        let mut store = RealStore {
            disk,
            seed,
            log: None,
            ticket: None,
            past_cache: seed / 4 % 2 == 1,
            written_past: false,
            early: None,
            node,
            boot: 1,
            size: (o.retain * o.record_bytes()).max(16 << 10),
            segment: 4096 + o.checkpoint_every * 64,
            slice: o.piece_bytes,
            record: o.record_bytes(),
            sabotage: o.sabotage,
            appended: Vec::new(),
            complaint: None,
            fused: false,
            torn: false,
            noted: false,
            process: false,
            harmed: false,
        };
        store.open();
        store
    }

    /// The log that a node finds when it is started on a copy of this disk.
    pub fn copy(&self) -> RealStore {
        let mut copy = RealStore {
            disk: self.disk.copy(),
            log: None,
            ticket: None,
            early: None,
            appended: Vec::new(),
            complaint: None,
            ..*self
        };
        copy.open();
        copy
    }

    /// The log of every fourth disk is in clear text. Another one's key changes with each boot. One is encrypted from its second boot on.
    fn keys(&self) -> Option<LogKeys> {
        let key = |n: u8| [n + 1; KEY_BYTES];
        let keys: Vec<_> = match self.seed % 4 {
            0 => return None,
            1 => vec![key(0)],
            2 if self.boot == 1 => return None,
            2 => vec![key(0)],
            _ => (0..self.boot.min(200) as u8).rev().map(key).collect(),
        };
        let keys = LogKeys::new(&keys).expect("OpenSSL works");
        Some(keys.with_seed(self.seed ^ u64::from(self.boot) << 32))
    }

    fn log_options(&self) -> LogOptions {
        LogOptions {
            size: self.size,
            segment_size_override: Some(self.segment),
            slice_override: Some(self.slice),
            keys: self.keys(),
            ..LogOptions::new(self.node, format!("boot {}", self.boot))
        }
    }

    fn open(&mut self) {
        self.ticket = None;
        self.early = None;
        self.log = None;
        let options = self.log_options();
        let lying = self.sabotage == Some(Sabotage::LyingDisk);
        self.disk.set_faults(Faults { lying, ..Faults::default() });
        match WriteSetLog::open(self.disk.clone(), &options) {
            Ok((mut log, report)) => {
                if !self.fused && !self.harmed && !lying && (report.hole.is_some() || report.suspect.is_some()) {
                    self.complaint = Some(format!("recovery of a sound log: {report:?}"));
                }
                if self.sabotage == Some(Sabotage::HoleTrusted) && report.hole.is_some() {
                    let _ = log.set_suspect(None);
                }
                self.harmed = log.suspect().is_some();
                self.log = Some(log);
            }
            Err(e) => {
                if !lying {
                    self.complaint = Some(format!("a sound log does not open: {e}"));
                }
                // Something must be there to go on with; the complaint ends the run.
                self.disk.wipe();
                self.log = WriteSetLog::open(self.disk.clone(), &options).ok().map(|l| l.0);
            }
        }
        self.torn |= std::mem::take(&mut self.fused);
        self.written_past = false;
        self.write_past_cache();
    }

    fn write_past_cache(&mut self) {
        if self.past_cache
            && let Some(log) = &mut self.log
        {
            log.write_past_cache(self.disk.direct_writer());
        }
    }

    fn log(&self) -> &WriteSetLog<SimDisk> {
        self.log.as_ref().expect("open between calls")
    }

    fn log_mut(&mut self) -> &mut WriteSetLog<SimDisk> {
        self.log.as_mut().expect("open between calls")
    }

    pub fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    pub fn set_fuse(&mut self, operations: u32) {
        self.fused = true;
        let left = Some(u64::from(operations));
        let mut faults = self.disk.faults();
        match operations % 3 {
            0 => faults.writes_left = left,
            1 => faults.syncs_left = left,
            _ => faults.space_left = Some(u64::from(operations) * 100),
        }
        self.disk.set_faults(faults);
    }

    pub fn clear_fuse(&mut self) {
        let lying = self.disk.faults().lying;
        self.disk.set_faults(Faults { lying, ..Faults::default() });
    }

    /// The same, and the disk stays like that.
    pub fn break_soon(&mut self, sick: Sick, operations: u32) {
        self.fused = true;
        self.noted = false;
        let left = u64::from(operations);
        let mut faults = self.disk.faults();
        match sick {
            Sick::Full => faults.space_left = Some(left * 100),
            Sick::ReadOnly => faults.read_only = true,
            Sick::Writes => faults.writes_left = Some(left),
            Sick::Syncs => faults.syncs_left = Some(left),
        }
        self.disk.set_faults(faults);
    }

    /// The log has failed.
    pub fn doubt(&mut self) {
        self.noted = self.log_mut().doubt().is_ok();
    }

    /// The process that had the log open when its disk failed opens it again, as a node does (`crates/node/src/log.rs`). See
    /// [`crate::disk::Store::come_back`].
    pub fn come_back(&mut self, works: bool, drops: bool) -> Option<bool> {
        if !works {
            return None;
        }
        (self.ticket, self.early, self.written_past) = (None, None, false);
        let mut failed = self.log.take().expect("open between calls");
        assert!(failed.let_go(), "what is under way on this disk ends when it is asked about");
        self.clear_fuse();
        if drops {
            self.disk.crash();
        }
        match self.open_beside(&failed) {
            Ok(log) => {
                self.harmed = log.suspect().is_some();
                self.torn |= std::mem::take(&mut self.fused);
                let lost = log.written() < failed.written();
                self.log = Some(log);
                self.write_past_cache();
                Some(lost)
            }
            Err(e) => {
                self.complaint = Some(format!("a log does not open after an outage of its disk: {e}"));
                self.log = Some(failed);
                None
            }
        }
    }

    fn open_beside(&self, failed: &WriteSetLog<SimDisk>) -> Result<WriteSetLog<SimDisk>, StoreError> {
        let options = self.log_options();
        WriteSetLog::make_room(&self.disk, &options)?;
        let (mut log, _) = WriteSetLog::open(self.disk.clone(), &options)?;
        log.succeed(failed)?;
        Ok(log)
    }

    pub fn durability(&self) -> Durability {
        self.log().durability()
    }

    pub fn failed(&self) -> bool {
        self.log().failed().is_some()
    }

    pub fn failed_for_a_reason(&self) -> bool {
        let lying = self.sabotage == Some(Sabotage::LyingDisk);
        self.failed() && (self.fused || self.harmed || lying)
    }

    pub fn is_fused(&self) -> bool {
        self.fused
    }

    pub fn take_torn(&mut self) -> bool {
        std::mem::take(&mut self.torn)
    }

    pub fn take_appended(&mut self) -> Vec<Appended> {
        std::mem::take(&mut self.appended)
    }

    /// Draws a ticket; half the time its work is done at once, else when the completion is reported.
    pub fn begin_sync(&mut self, early: bool) -> Option<(u64, LogIndex)> {
        match self.log_mut().begin_write() {
            Ok(None) => {}
            Ok(Some(upto)) => {
                self.written_past = true;
                return Some((self.log().generation(), upto));
            }
            // The log has failed, which is told at the end of the sync.
            Err(_) => {
                self.written_past = true;
                return Some((self.log().generation(), self.log().last()));
            }
        }
        let ticket = self.log_mut().begin_sync()?;
        let unwritten = self.sabotage == Some(Sabotage::SyncUnwritten);
        let out = (ticket.generation, if unwritten { self.log().last() } else { ticket.upto });
        if early {
            self.early = ticket.run().ok();
        } else {
            self.ticket = Some(ticket);
        }
        Some(out)
    }

    pub fn writes_past_cache(&self) -> bool {
        self.log().is_under_way()
    }

    pub fn sync_all(&mut self) {
        let _ = self.log_mut().sync_all();
    }

    /// Whether the sync succeeded.
    pub fn complete_sync(&mut self) -> bool {
        if std::mem::take(&mut self.written_past) {
            // A truncation may have waited for its end.
            return match self.log_mut().finish_write() {
                Some(done) => done.is_ok(),
                None => !self.failed(),
            };
        }
        let early = self.early.take();
        let done = match self.ticket.take() {
            Some(ticket) => ticket.run().ok(),
            None => early,
        };
        done.is_some_and(|done| self.log_mut().finish_sync(done).is_ok())
    }

    pub fn housekeeping(&mut self) {
        let log = self.log_mut();
        if let Some(ticket) = log.begin_spare() {
            let _ = log.finish_spare(ticket.run());
        }
    }

    pub fn excess(&self) -> u64 {
        if self.failed() { 0 } else { self.log().excess().div_ceil(self.record) }
    }

    pub fn trim(&mut self, keep_from: LogIndex) {
        let _ = self.log_mut().trim(Trim { keep_from, bytes_max: None });
    }

    pub fn trim_wholly(&mut self, keep_from: LogIndex) {
        let _ = self.log_mut().trim(Trim { keep_from, bytes_max: Some(0) });
    }

    /// See [`crate::disk::Store::process_died`]. An entry that is not noted as lost is not lost, as in the simple log.
    pub fn process_died(&mut self, drops: bool) -> bool {
        let written = self.log().written();
        let unsynced = written > self.log().synced();
        self.ticket = None;
        self.early = None;
        self.log = None;
        if drops && (!self.process || self.noted || !unsynced) {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        self.open();
        self.log().written() < written
    }

    pub fn lose_power(&mut self, _rng: &mut Rng) {
        self.ticket = None;
        self.early = None;
        self.log = None;
        self.boot += 1;
        self.harmed |= self.process;
        self.disk.crash();
        self.open();
    }
}

impl RealStore {
    /// One bit somewhere in the log or in one copy of the metadata.
    pub fn damage(&mut self, rng: &mut Rng) {
        self.ticket = None;
        self.early = None;
        self.log = None;
        let names: Vec<String> = self.disk.file_names();
        if let Some(name) = rng.pick(&names) {
            let len = self.disk.content(name).map_or(0, |c| c.len() as u64);
            let offset = rng.below(len.max(1));
            if !name.contains("meta") || offset < 4096 {
                self.disk.flip_bit(name, offset, rng.below(8) as u8);
            }
        }
        self.harmed = true;
        self.disk.kill();
        self.open();
    }
}

impl LogStore for RealStore {
    fn base(&self) -> &Base {
        self.log().base()
    }
    fn last(&self) -> LogIndex {
        self.log().last()
    }
    fn written(&self) -> LogIndex {
        self.log().written()
    }
    fn held(&self) -> LogIndex {
        self.log().held()
    }
    fn wants_write_on(&self) -> bool {
        self.log().wants_write_on()
    }
    fn write_on(&mut self) -> Result<(), StoreError> {
        self.log_mut().write_on()
    }
    fn synced(&self) -> LogIndex {
        self.log().synced()
    }
    fn generation(&self) -> u64 {
        self.log().generation()
    }
    fn term_at(&self, index: LogIndex) -> Option<Term> {
        self.log().term_at(index)
    }
    fn index_of(&self, seqno: Seqno) -> Option<LogIndex> {
        self.log().index_of(seqno)
    }
    fn read(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Entry>, StoreError> {
        self.log().read(from, max_bytes)
    }
    fn append(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        self.log_mut().append(entries)?;
        self.appended.extend(entries.iter().map(Appended::of));
        Ok(())
    }
    fn truncate_after(&mut self, index: LogIndex) -> Result<(), StoreError> {
        self.log_mut().truncate_after(index)
    }
    fn reset(&mut self, base: Base) -> Result<(), StoreError> {
        self.log_mut().reset(base)
    }
    fn hard_state(&self) -> HardState {
        self.log().hard_state()
    }
    fn save_hard_state(&mut self, state: HardState) -> Result<(), StoreError> {
        self.log_mut().save_hard_state(state)
    }
    fn suspect(&self) -> Option<LogIndex> {
        self.log().suspect()
    }
    fn set_suspect(&mut self, after: Option<LogIndex>) -> Result<(), StoreError> {
        self.log_mut().set_suspect(after)?;
        self.harmed = after.is_some();
        Ok(())
    }
    fn is_outdated(&self) -> bool {
        self.log().is_outdated()
    }
    fn set_outdated(&mut self, outdated: bool) -> Result<(), StoreError> {
        self.log_mut().set_outdated(outdated)
    }
    fn is_damaged(&self) -> bool {
        self.log().is_damaged()
    }
    fn set_durability(&mut self, durability: Durability) -> Result<(), StoreError> {
        self.process = durability == Durability::Process;
        self.log_mut().set_durability(durability)
    }
    fn wants_checkpoint(&self) -> bool {
        self.log().wants_checkpoint()
    }
    fn save_checkpoint(&mut self, base: &Base) -> Result<(), StoreError> {
        self.log_mut().save_checkpoint(base)
    }
    fn checkpoint_before(&self, seqno: Seqno) -> Option<Base> {
        self.log().checkpoint_before(seqno)
    }
}
