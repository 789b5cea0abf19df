//! Looking at a log without opening it: no lock, no change, also while its owner works with it (for `trireme log`).
//!
//! Use it over [`crate::DirStorage::read_only`]. On a live directory files come and go and the last record may be half written:
//! a torn tail is then no finding.

use bytes::Bytes;
use trireme_order::StoreError;
use trireme_types::{Base, Entry, HardState, Incarnation, LogIndex, NodeId, Seqno, Term, Uuid};

use crate::checkpoint;
use crate::format::{Meta, Origin, RECORD_HEADER, RecordHeader, SEGMENT_HEADER, Unlocked};
use crate::index::{Segment, Slot};
use crate::meta::{self, Found};
use crate::names::{self, Name};
use crate::options::{IndexRange, OpenReport};
use crate::recovery::{self, Recovered};
use crate::scan;
use crate::seal::{KeyId, LogKeys};
use crate::storage::{Storage, StorageFile, read_exact};

/// The metadata file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaInfo {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub history: Uuid,
    pub hard: HardState,
    /// Closed cleanly. `false` also while the log is open.
    pub clean: bool,
    /// The durability setting is `process`.
    pub process: bool,
    /// The watermark as last noted; the log may know better.
    pub synced: LogIndex,
    pub suspect: Option<LogIndex>,
    /// Changes of the voters may be missing, too.
    pub outdated: bool,
    pub hole: Option<IndexRange>,
    pub boot_id: String,
    /// One of the two copies is unreadable.
    pub copy_lost: bool,
}

/// One segment file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    pub name: String,
    pub number: u64,
    pub state: SegmentState,
    /// Indexes of its whole records; `None` when it has none.
    pub range: Option<IndexRange>,
    /// Seqnos after the first and the last whole record.
    pub seqnos: Option<(Seqno, Seqno)>,
    /// Bytes up to the end of the last whole record, and of the file.
    pub bytes_used: u64,
    pub bytes_file: u64,
    pub history: Uuid,
    /// By which it is sealed; `None`: in clear text.
    pub key: Option<KeyId>,
    /// Why what lies behind the last whole record is none, when something lies there. Normal in a segment whose tail a later
    /// one voided, and in a live log.
    pub bad: Option<&'static str>,
}

/// The relation of a segment to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentState {
    /// Continues the one before.
    Continues,
    /// Voids what older ones hold from its first index on.
    Cut,
    /// Voids all older ones.
    Reset,
    /// No readable header.
    Unreadable,
    /// Put aside by recovery because it lies behind damage.
    PutAside,
}

/// One checkpoint file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointInfo {
    pub name: String,
    pub number: u64,
    /// By which it is sealed; `None`: in clear text, or not whole.
    pub key: Option<KeyId>,
    /// `None`: not whole.
    pub position: Option<(LogIndex, Term, Seqno)>,
}

/// Everything in the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// `None`: absent or unreadable.
    pub meta: Option<MetaInfo>,
    /// By number.
    pub segments: Vec<SegmentInfo>,
    /// By number.
    pub checkpoints: Vec<CheckpointInfo>,
    /// Is a prepared segment at hand?
    pub spare: bool,
}

/// The result that opening the log would have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub report: OpenReport,
    /// State before the first entry, without the application's part.
    pub base: Base,
    /// Index of the last entry; the base's when there is none.
    pub last: LogIndex,
    /// States from which delivery may start, the base included.
    pub checkpoints: Vec<(LogIndex, Seqno)>,
}

/// The metadata; `None`: absent or unreadable. Needs no key.
pub fn metadata<S: Storage>(storage: &S) -> Result<Option<MetaInfo>, StoreError> {
    let Found::Meta { file, copy_lost } = meta::read(storage)? else { return Ok(None) };
    let m = file.meta();
    Ok(Some(MetaInfo {
        node: m.node,
        incarnation: m.incarnation,
        history: m.history,
        hard: m.hard,
        clean: m.clean,
        process: m.process,
        synced: m.synced,
        suspect: m.suspect,
        outdated: m.outdated,
        hole: m.hole.map(|(from, to)| IndexRange { from, to }),
        boot_id: m.boot_id.clone(),
        copy_lost,
    }))
}

/// The keys that the log needs to be opened, in no order. Reads what needs no key.
pub fn keys_needed<S: Storage>(storage: &S) -> Result<Vec<KeyId>, StoreError> {
    let mut out = Vec::new();
    for name in storage.list()? {
        match names::parse(&name) {
            Some(Name::Segment(_)) => {
                let Some(file) = storage.open(&name)? else { continue };
                out.extend(scan::header(&file)?.and_then(|header| header.seal).map(|seal| seal.mark.key));
            }
            Some(Name::Checkpoint(number)) => out.extend(checkpoint::key(storage, number)?.flatten()),
            Some(Name::Damaged(_) | Name::Temporary | Name::Spare | Name::Meta | Name::Lock) | None => {}
        }
    }
    Ok(out)
}

/// Lists what is there.
///
/// **Errors:** the disk fails, or a key is not among `keys`.
pub fn summary<S: Storage>(storage: &S, keys: Option<&LogKeys>) -> Result<Summary, StoreError> {
    let mut out = Summary { meta: metadata(storage)?, segments: Vec::new(), checkpoints: Vec::new(), spare: false };
    for name in storage.list()? {
        match names::parse(&name) {
            Some(Name::Segment(number)) => out.segments.extend(segment(storage, name, number, false, keys)?),
            Some(Name::Damaged(number)) => out.segments.extend(segment(storage, name, number, true, keys)?),
            Some(Name::Checkpoint(number)) => {
                let key = checkpoint::key(storage, number)?.flatten();
                let base = checkpoint::look(storage, number, keys)?;
                out.checkpoints.push(CheckpointInfo {
                    name,
                    number,
                    key,
                    position: base.map(|(_, b)| (b.index, b.term, b.seqno)),
                });
            }
            Some(Name::Spare) => out.spare = true,
            Some(Name::Meta | Name::Lock | Name::Temporary) | None => {}
        }
    }
    out.segments.sort_by_key(|s| s.number);
    out.checkpoints.sort_by_key(|c| c.number);
    Ok(out)
}

fn segment<S: Storage>(
    storage: &S,
    name: String,
    number: u64,
    aside: bool,
    keys: Option<&LogKeys>,
) -> Result<Option<SegmentInfo>, StoreError> {
    let Some(file) = storage.open(&name)? else { return Ok(None) };
    let mut out = SegmentInfo {
        name,
        number,
        state: SegmentState::Unreadable,
        range: None,
        seqnos: None,
        bytes_used: 0,
        bytes_file: file.len()?,
        history: Uuid::NIL,
        key: None,
        bad: Some("no readable header"),
    };
    let Some(header) = scan::header(&file)?.filter(|h| h.number == number) else { return Ok(Some(out)) };
    out.key = header.seal.map(|seal| seal.mark.key);
    let key = match header.unlock(keys) {
        Ok(Unlocked::Clear) => None,
        Ok(Unlocked::Sealed(key)) => Some(key),
        Ok(Unlocked::Forged) => return Ok(Some(out)),
        // A file that lies aside is no part of the log.
        Err(_) if aside => None,
        Err(error) => return Err(error),
    };
    let end = scan::walk(&file, &header, key.as_ref(), |record, slot| {
        let index = record.entry.index;
        out.range = Some(IndexRange { from: out.range.map_or(index, |r| r.from), to: index });
        out.seqnos = Some((out.seqnos.map_or(slot.seqno, |s| s.0), slot.seqno));
    })?;
    out.state = match (aside, header.origin) {
        (true, _) => SegmentState::PutAside,
        (false, Origin::Continues) => SegmentState::Continues,
        (false, Origin::Cut) => SegmentState::Cut,
        (false, Origin::Reset) => SegmentState::Reset,
    };
    out.bytes_used = end.end.max(SEGMENT_HEADER as u64);
    out.history = header.history;
    out.bad = end.bad;
    Ok(Some(out))
}

fn recovered<S: Storage>(
    storage: &S,
    boot_id: Option<&str>,
    keys: Option<&LogKeys>,
) -> Result<Recovered<S::File>, StoreError> {
    let meta = match meta::read(storage)? {
        Found::Meta { file, .. } => file.meta().clone(),
        Found::Unreadable => {
            return Err(StoreError::Damaged(format!("both copies in {} are unreadable", names::META)));
        }
        Found::Absent if recovery::any_log_files(storage)? => {
            return Err(StoreError::Damaged(format!("there are segments but no {}", names::META)));
        }
        Found::Absent => Meta::default(),
    };
    let boot_id = boot_id.map_or_else(|| meta.boot_id.clone(), str::to_string);
    recovery::analyse(storage, &meta, &boot_id, keys)
}

/// Judges everything as opening would, and changes nothing. `boot_id`: as in [`crate::Options`]; `None` judges as if the machine
/// had not restarted, which is the stricter way.
pub fn verify<S: Storage>(storage: &S, boot_id: Option<&str>, keys: Option<&LogKeys>) -> Result<Verdict, StoreError> {
    let found = recovered(storage, boot_id, keys)?;
    Ok(Verdict {
        last: LogIndex(found.base.index.0 + found.slots.len() as u64),
        checkpoints: found.kept.iter().map(|k| (k.index, k.seqno)).collect(),
        report: found.report,
        base: found.base,
    })
}

/// Calls `each` with the entries of the log within `range` (all when `None`) until it answers `false`.
pub fn entries<S: Storage>(
    storage: &S,
    range: Option<IndexRange>,
    keys: Option<&LogKeys>,
    mut each: impl FnMut(Entry) -> bool,
) -> Result<(), StoreError> {
    let found = recovered(storage, None, keys)?;
    let mut index = found.base.index;
    for slot in &found.slots {
        index = index.next();
        if range.is_some_and(|r| index < r.from) {
            continue;
        }
        if range.is_some_and(|r| index > r.to) {
            break;
        }
        let segment = found.segments.iter().find(|s| s.number == slot.segment);
        let Some(entry) = segment.map(|s| load(s, slot)).transpose()?.flatten() else {
            // Recycled under our hands by the owner.
            return Err(StoreError::Damaged(format!("entry {index} is gone or changed while it was being looked at")));
        };
        if !each(entry) {
            break;
        }
    }
    Ok(())
}

fn load<F: StorageFile>(segment: &Segment<F>, slot: &Slot) -> Result<Option<Entry>, StoreError> {
    let Some(bytes) = read_exact(&segment.file, slot.offset(), slot.record_len() as usize)? else { return Ok(None) };
    let bytes = Bytes::from(bytes);
    let Some(header) = RecordHeader::decode(&bytes, slot.segment) else { return Ok(None) };
    let payload = bytes.slice(RECORD_HEADER..RECORD_HEADER + slot.payload_len as usize);
    let whole = header.payload_len == slot.payload_len && crc32fast::hash(&payload) == header.payload_crc;
    let payload = match &segment.key {
        Some(key) if whole => header.open(slot.segment, key, &payload)?,
        Some(_) => None,
        None => whole.then_some(payload),
    };
    Ok(payload.map(|payload| Entry { header: header.entry, payload }))
}
