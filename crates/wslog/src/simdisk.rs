//! A disk in memory that fails the way disks do, from a seed: for the simulator and the tests.
//!
//! The model: writes go to a page cache that every reader sees; `sync` moves a file's content to the disk, `sync_dir` the
//! names. [`SimDisk::crash`] (loss of power) decides for every sector how many of the unsynced writes to it arrived (a
//! sector is written whole: a later write never arrives without the earlier ones to the same sector), and how many of the
//! unsynced changes of names did (in order, as a journal does). [`SimDisk::kill`] (death of the process) loses nothing. Both
//! make every open handle useless and release the lock.
//!
//! A write past the page cache ([`SimWriter`]) is seen by readers, and is on the disk, when its end is taken. If its process dies before, all of it arrives or
//! nothing; if it fails or the power does, any of its sectors. To write into pages that are under way, or past unsynced bytes of the cache, is a mistake of the log's, and a
//! panic here.
//!
//! A failed sync leaves the page cache as it is, counts the pages as written, and may have written any of them (rule 17).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trireme_order::StoreError;
use trireme_types::SplitMix;

use crate::direct::{DirectWriter, PAGE, Pages};
use crate::names;
use crate::storage::{Storage, StorageFile, describe};

const SECTOR: u64 = 512;

/// Failures to come. All off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Bytes that may still be allocated; the write that exceeds them fails (no space), having written a part.
    pub space_left: Option<u64>,
    /// Writes that still succeed; the next one fails (I/O error), having written a part.
    pub writes_left: Option<u64>,
    /// Syncs (of files and of the directory) that still succeed; the next one fails (I/O error).
    pub syncs_left: Option<u64>,
    /// Every change fails.
    pub read_only: bool,
    /// Syncs report success and do nothing: a disk that lies.
    pub lying: bool,
}

/// A disk with one directory. Clones refer to the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    rng: SplitMix,
    faults: Faults,
    /// Rises with every crash and kill; handles of an older life are dead.
    life: u64,
    locked: bool,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    /// As every process sees them.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending_names: Vec<NameChange>,
    operations: u64,
    syncs: u64,
    /// Writes past the cache that are under way: file, offset, bytes.
    flights: Vec<(u64, u64, Vec<u8>)>,
}

#[derive(Clone)]
enum NameChange {
    Set(String, u64),
    Remove(String),
    Rename(String, String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Set(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

#[derive(Clone, Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

/// A writer past the page cache of a [`SimDisk`].
pub struct SimWriter {
    disk: SimDisk,
    life: u64,
    flight: Option<(SimFile, u64, Pages)>,
}

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Len(u64),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write(offset, bytes) => put(content, *offset, bytes),
            Change::Len(len) => content.resize(*len as usize, 0),
        }
    }
}

fn put(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset as usize..end].copy_from_slice(bytes);
}

impl Inode {
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable);
        }
    }

    /// The pending writes, or some of them, sector by sector, arrive or are lost.
    fn settle(&mut self, rng: &mut SplitMix) {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return;
        }
        let mode = rng.below(4);
        match mode {
            0 => {}
            1 => {
                for change in &pending {
                    change.apply(&mut self.durable);
                }
            }
            _ => {
                // How many of the changes each sector has seen. Lengths: a prefix of all changes decides.
                let prefix = rng.below(pending.len() as u64 + 1) as usize;
                let mut sectors: BTreeMap<u64, usize> = BTreeMap::new();
                for (at, change) in pending.iter().enumerate() {
                    match change {
                        Change::Len(len) => {
                            if at < prefix {
                                self.durable.resize(*len as usize, 0);
                            }
                        }
                        Change::Write(offset, bytes) => {
                            let end = offset + bytes.len() as u64;
                            let mut sector = offset / SECTOR;
                            while sector * SECTOR < end {
                                let all = pending.len() as u64 + 1;
                                let seen = *sectors.entry(sector).or_insert_with(|| match mode {
                                    // In order, up to a moment.
                                    2 => prefix,
                                    // Each as it likes.
                                    _ => rng.below(all) as usize,
                                });
                                if at < seen {
                                    let from = (sector * SECTOR).max(*offset);
                                    let to = ((sector + 1) * SECTOR).min(end);
                                    put(
                                        &mut self.durable,
                                        from,
                                        &bytes[(from - offset) as usize..(to - offset) as usize],
                                    );
                                }
                                sector += 1;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// An open file of a [`SimDisk`].
#[derive(Clone)]
pub struct SimFile {
    disk: SimDisk,
    inode: u64,
    name: Arc<str>,
    life: u64,
}

/// The lock of a [`SimDisk`].
pub struct SimLock {
    disk: SimDisk,
    life: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locked = false;
        }
    }
}

impl SimDisk {
    pub fn new(seed: u64) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(State {
                rng: SplitMix(seed),
                faults: Faults::default(),
                life: 0,
                locked: false,
                inodes: BTreeMap::new(),
                next_inode: 1,
                names: BTreeMap::new(),
                durable_names: BTreeMap::new(),
                pending_names: Vec::new(),
                operations: 0,
                syncs: 0,
                flights: Vec::new(),
            })),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another disk with what processes see on this one now, used by nobody: a snapshot, or a backup of it.
    pub fn copy(&self) -> SimDisk {
        let state = self.state();
        let copy = State {
            rng: SplitMix(state.rng.0),
            faults: state.faults,
            life: 0,
            locked: false,
            inodes: state.inodes.clone(),
            next_inode: state.next_inode,
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            pending_names: state.pending_names.clone(),
            operations: 0,
            syncs: 0,
            flights: Vec::new(),
        };
        SimDisk { state: Arc::new(Mutex::new(copy)) }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    pub fn faults(&self) -> Faults {
        self.state().faults
    }

    /// Changes and syncs so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// The process dies; the page cache stays.
    pub fn kill(&self) {
        let mut state = self.state();
        for (inode, offset, bytes) in std::mem::take(&mut state.flights) {
            let arrives = state.rng.below(2) == 0;
            state.part_arrives(inode, offset, &bytes, |_| arrives);
        }
        state.life += 1;
        state.locked = false;
    }

    /// The power fails: what was not synced arrives or not, as the seed decides.
    pub fn crash(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        for (inode, offset, bytes) in std::mem::take(&mut state.flights) {
            let (mode, mut each) = (state.rng.below(3), SplitMix(state.rng.next()));
            state.part_arrives(inode, offset, &bytes, |_| mode == 0 || mode == 1 && each.below(2) == 0);
        }
        state.life += 1;
        state.locked = false;
        let arrived = state.rng.below(state.pending_names.len() as u64 + 1) as usize;
        for change in state.pending_names.drain(..).take(arrived) {
            change.apply(&mut state.durable_names);
        }
        state.names = state.durable_names.clone();
        let used: std::collections::BTreeSet<u64> = state.names.values().copied().collect();
        state.inodes.retain(|n, _| used.contains(n));
        for inode in state.inodes.values_mut() {
            inode.settle(&mut state.rng);
            inode.content = inode.durable.clone();
        }
    }

    /// A way into its files past the page cache.
    pub fn direct_writer(&self) -> SimWriter {
        SimWriter { disk: self.clone(), life: self.state().life, flight: None }
    }

    /// Flips one bit of what is stored. `false` when there is no such byte.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> bool {
        let mut state = self.state();
        let Some(inode) = state.names.get(name).copied() else { return false };
        let Some(inode) = state.inodes.get_mut(&inode) else { return false };
        let mut hit = false;
        for content in [&mut inode.content, &mut inode.durable] {
            if let Some(byte) = content.get_mut(offset as usize) {
                *byte ^= 1 << (bit % 8);
                hit = true;
            }
        }
        hit
    }

    /// Names of all files as a process sees them.
    pub fn file_names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// Content of a file as a process sees it.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.inodes.get(state.names.get(name)?).map(|i| i.content.clone())
    }

    /// Removes every file, durably.
    pub fn wipe(&self) {
        let mut state = self.state();
        state.names.clear();
        state.durable_names.clear();
        state.pending_names.clear();
        state.inodes.clear();
    }
}

fn failure(name: &str, operation: &str, kind: io::ErrorKind) -> StoreError {
    describe(name, operation, &io::Error::from(kind))
}

impl State {
    /// Those sectors of a write past the cache get to the disk.
    fn part_arrives(&mut self, inode: u64, offset: u64, bytes: &[u8], mut arrives: impl FnMut(usize) -> bool) {
        let Some(inode) = self.inodes.get_mut(&inode) else { return };
        for (n, sector) in bytes.chunks(SECTOR as usize).enumerate() {
            if arrives(n) {
                let at = offset + n as u64 * SECTOR;
                put(&mut inode.durable, at, sector);
                put(&mut inode.content, at, sector);
            }
        }
    }

    fn is_in_flight(&self, inode: u64, from: u64, to: u64) -> bool {
        self.flights.iter().any(|(of, at, bytes)| *of == inode && *at < to && from < at + bytes.len() as u64)
    }

    /// Before every change.
    fn change(&mut self, name: &str, operation: &str) -> Result<(), StoreError> {
        self.operations += 1;
        if self.faults.read_only {
            return Err(failure(name, operation, io::ErrorKind::ReadOnlyFilesystem));
        }
        Ok(())
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    fn inode(&mut self, file: &SimFile, operation: &str) -> Result<&mut Inode, StoreError> {
        if file.life != self.life {
            return Err(failure(&file.name, operation, io::ErrorKind::BrokenPipe));
        }
        self.inodes.get_mut(&file.inode).ok_or_else(|| failure(&file.name, operation, io::ErrorKind::NotFound))
    }

    /// Counts a sync. `Ok(false)`: pretend.
    fn may_sync(&mut self, name: &str) -> Result<bool, StoreError> {
        self.operations += 1;
        self.syncs += 1;
        if self.faults.lying {
            return Ok(false);
        }
        match &mut self.faults.syncs_left {
            Some(0) => Err(failure(name, "sync", io::ErrorKind::Other)),
            Some(n) => {
                *n -= 1;
                Ok(true)
            }
            None => Ok(true),
        }
    }
}

impl Storage for SimDisk {
    type File = SimFile;
    type Lock = SimLock;

    fn lock(&self) -> Result<SimLock, StoreError> {
        let mut state = self.state();
        if state.locked {
            return Err(StoreError::InUse(format!("the disk is in use by another process ({})", names::LOCK)));
        }
        state.locked = true;
        Ok(SimLock { disk: self.clone(), life: state.life })
    }

    fn open(&self, name: &str) -> Result<Option<SimFile>, StoreError> {
        let state = self.state();
        Ok(state.names.get(name).map(|inode| SimFile {
            disk: self.clone(),
            inode: *inode,
            name: name.into(),
            life: state.life,
        }))
    }

    fn create(&self, name: &str) -> Result<SimFile, StoreError> {
        let mut state = self.state();
        state.change(name, "create")?;
        if let Some(inode) = state.names.get(name).copied() {
            if let Some(inode) = state.inodes.get_mut(&inode) {
                inode.content.clear();
                inode.pending.push(Change::Len(0));
            }
            return Ok(SimFile { disk: self.clone(), inode, name: name.into(), life: state.life });
        }
        let inode = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(inode, Inode::default());
        state.change_name(NameChange::Set(name.to_string(), inode));
        Ok(SimFile { disk: self.clone(), inode, name: name.into(), life: state.life })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let mut state = self.state();
        state.change(from, "rename")?;
        if !state.names.contains_key(from) {
            return Err(failure(from, "rename", io::ErrorKind::NotFound));
        }
        state.change_name(NameChange::Rename(from.to_string(), to.to_string()));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let mut state = self.state();
        state.change(name, "remove")?;
        if state.names.contains_key(name) {
            state.change_name(NameChange::Remove(name.to_string()));
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn sync_dir(&self) -> Result<(), StoreError> {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.may_sync("the directory")? {
            for change in state.pending_names.drain(..) {
                change.apply(&mut state.durable_names);
            }
        }
        Ok(())
    }
}

impl StorageFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut state = self.disk.state();
        state.inode(self, "write to")?;
        let page = |at: u64| at / PAGE as u64 * PAGE as u64;
        let (from, to) = (page(offset), page(offset + bytes.len() as u64 + PAGE as u64 - 1));
        assert!(
            bytes.is_empty() || !state.is_in_flight(self.inode, from, to),
            "a page that is under way is written again"
        );
        state.change(&self.name, "write to")?;
        let mut fail = None;
        let mut len = bytes.len();
        if let Some(left) = &mut state.faults.writes_left {
            if *left == 0 {
                fail = Some(io::ErrorKind::Other);
            }
            *left = left.saturating_sub(1);
        }
        let grows = (offset + len as u64).saturating_sub(state.inode(self, "write to")?.content.len() as u64);
        if let Some(left) = &mut state.faults.space_left {
            if grows > *left {
                fail = Some(io::ErrorKind::StorageFull);
            } else {
                *left -= grows;
            }
        }
        if fail.is_some() {
            len = state.rng.below(len as u64 + 1) as usize;
        }
        let part = &bytes[..len];
        let inode = state.inode(self, "write to")?;
        if !part.is_empty() {
            put(&mut inode.content, offset, part);
            inode.pending.push(Change::Write(offset, part.to_vec()));
        }
        match fail {
            Some(kind) => Err(failure(&self.name, "write to", kind)),
            None => Ok(()),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, StoreError> {
        let mut state = self.disk.state();
        let content = &state.inode(self, "read")?.content;
        let rest = content.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.disk.state().inode(self, "look at")?.content.len() as u64)
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        let mut state = self.disk.state();
        state.inode(self, "change the length of")?;
        assert!(!state.is_in_flight(self.inode, 0, u64::MAX), "a file is cut that is being written");
        state.change(&self.name, "change the length of")?;
        let inode = state.inode(self, "change the length of")?;
        inode.content.resize(len as usize, 0);
        inode.pending.push(Change::Len(len));
        Ok(())
    }

    fn fill(&self, len: u64) -> Result<(), StoreError> {
        {
            let mut state = self.disk.state();
            let grows = len.saturating_sub(state.inode(self, "write to")?.content.len() as u64);
            if let Some(left) = &mut state.faults.space_left {
                if grows > *left {
                    return Err(failure(&self.name, "write to", io::ErrorKind::StorageFull));
                }
                *left -= grows;
            }
        }
        self.set_len(len)
    }

    fn sync(&self) -> Result<(), StoreError> {
        let mut guard = self.disk.state();
        guard.inode(self, "sync")?;
        let state = &mut *guard;
        let done = state.may_sync(&self.name);
        let Some(inode) = state.inodes.get_mut(&self.inode) else {
            return Err(failure(&self.name, "sync", io::ErrorKind::NotFound));
        };
        match done {
            Ok(true) => inode.sync(),
            Ok(false) => {}
            Err(e) => {
                inode.settle(&mut state.rng);
                return Err(e);
            }
        }
        Ok(())
    }
}

impl DirectWriter<SimFile> for SimWriter {
    fn begin(&mut self, file: &SimFile, offset: u64, pages: Pages) -> Result<(), StoreError> {
        assert!(self.flight.is_none(), "one write at a time");
        let mut state = self.disk.state();
        state.change(&file.name, "write to")?;
        let lying = state.faults.lying;
        let bytes = pages.bytes().to_vec();
        let end = offset + bytes.len() as u64;
        assert!(
            !bytes.is_empty() && offset.is_multiple_of(PAGE as u64) && bytes.len().is_multiple_of(PAGE),
            "whole pages"
        );
        let inode = state.inode(file, "write to")?;
        assert!(end <= inode.content.len() as u64, "a write past the cache does not make a file grow");
        let dirty = |change: &Change| match change {
            Change::Write(at, bytes) => *at < end && offset < at + bytes.len() as u64,
            Change::Len(_) => true,
        };
        assert!(lying || !inode.pending.iter().any(dirty), "written past what the cache has not synced");
        state.flights.push((file.inode, offset, bytes));
        drop(state);
        self.flight = Some((file.clone(), offset, pages));
        Ok(())
    }

    fn is_under_way(&self) -> bool {
        self.flight.is_some()
    }

    /// It ends when it is asked about.
    fn outcome(&mut self) -> Option<Result<Pages, StoreError>> {
        let (file, offset, pages) = self.flight.take()?;
        let mut guard = self.disk.state();
        let state = &mut *guard;
        if state.life != self.life {
            return Some(Err(failure(&file.name, "write to", io::ErrorKind::BrokenPipe)));
        }
        state.flights.clear();
        let mut fails = false;
        if let Some(left) = &mut state.faults.writes_left {
            fails |= *left == 0;
            *left = left.saturating_sub(1);
        }
        let durable = state.may_sync(&file.name);
        if fails || durable.is_err() {
            // It is several requests for the disk, in any order.
            let (mode, mut each) = (state.rng.below(3), SplitMix(state.rng.next()));
            let front = state.rng.below(pages.bytes().len() as u64 / SECTOR + 1) as usize;
            state.part_arrives(file.inode, offset, pages.bytes(), |n| match mode {
                0 => n < front,
                1 => n >= front,
                _ => each.below(2) == 0,
            });
            return Some(Err(failure(&file.name, "write to", io::ErrorKind::Other)));
        }
        if let Some(inode) = state.inodes.get_mut(&file.inode) {
            put(&mut inode.content, offset, pages.bytes());
            match durable {
                Ok(true) => put(&mut inode.durable, offset, pages.bytes()),
                _ => inode.pending.push(Change::Write(offset, pages.bytes().to_vec())),
            }
        }
        Some(Ok(pages))
    }

    fn wait(&mut self, _longest: Option<Duration>) -> Option<Result<Pages, StoreError>> {
        self.outcome()
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use trireme_order::DiskFault;

    use super::*;

    #[test]
    fn crash_keeps_what_was_synced_and_tears_only_whole_sectors() {
        let mut torn = 0;
        for seed in 0..200 {
            let disk = SimDisk::new(seed);
            let file = disk.create("a").unwrap();
            file.write_at(0, &[1; 2048]).unwrap();
            file.sync().unwrap();
            disk.sync_dir().unwrap();
            file.write_at(0, &[2; 2048]).unwrap();
            file.write_at(1024, &[3; 512]).unwrap();
            disk.create("b").unwrap();
            disk.crash();
            assert!(file.write_at(0, &[0]).is_err(), "a handle of the dead process must not work");
            let content = disk.content("a").unwrap();
            assert_eq!(content.len(), 2048);
            for (at, sector) in content.chunks(512).enumerate() {
                assert!(sector.iter().all(|b| *b == sector[0]), "a sector was torn");
                assert!(if at == 2 { sector[0] <= 3 } else { sector[0] <= 2 });
            }
            torn += u32::from(content.contains(&1) && content.contains(&2));
        }
        assert!(torn > 20, "{torn}");
    }

    #[test]
    fn failed_sync_leaves_the_cache_and_forgets_to_write_it() {
        let mut lost = 0;
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            let file = disk.create("a").unwrap();
            disk.sync_dir().unwrap();
            disk.set_faults(Faults { syncs_left: Some(0), ..Faults::default() });
            file.write_at(0, b"x").unwrap();
            assert!(file.sync().is_err());
            disk.set_faults(Faults::default());
            assert_eq!(disk.content("a").unwrap(), b"x");
            file.sync().unwrap();
            disk.crash();
            lost += u32::from(disk.content("a").unwrap() != b"x");
        }
        assert!(lost > 5, "{lost}");
    }

    #[test]
    fn full_disk_and_read_only_disk_refuse_and_say_why() {
        let disk = SimDisk::new(1);
        let file = disk.create("a").unwrap();
        disk.set_faults(Faults { space_left: Some(10), ..Faults::default() });
        assert!(file.write_at(0, &[1; 8]).is_ok());
        assert!(file.write_at(0, &[1; 8]).is_ok(), "overwriting allocates nothing");
        let error = file.write_at(8, &[1; 8]).unwrap_err();
        assert!(matches!(error, StoreError::Disk { cause: DiskFault::Full, .. }), "{error}");
        disk.set_faults(Faults { read_only: true, ..Faults::default() });
        let error = file.write_at(0, &[1]).unwrap_err();
        assert!(matches!(error, StoreError::Disk { cause: DiskFault::ReadOnly, .. }), "{error}");
    }
}
