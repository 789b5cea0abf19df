//! Bytes of the files. The tables in `docs/wslog-format.md` are the reference; this file is their only implementation.
//!
//! Everything is little-endian. Decoders take any bytes and answer `None` for what no encoder wrote.

use bytes::Bytes;
use trireme_order::StoreError;
use trireme_types::{
    Base, Choice, EntryHeader, EntryKind, HardState, Incarnation, LogIndex, NodeId, Reader, Seqno, Term, Uuid, Writer,
};

use crate::names;
use crate::seal::{self, FileKey, KeyId, KeyMark, LogKeys, SALT, TAG, What};

/// The version that is written. A reader refuses what it does not know rather than guess.
pub const VERSION: u32 = 3;
/// The version that is read besides: without encryption, and without a word of which state a log began with.
pub const VERSION_BEFORE: u32 = 2;

/// Bytes before the first record. A sector, so that no write of records ever touches the header's sector.
pub const SEGMENT_HEADER: usize = 512;
/// Bytes of a record before its payload; a multiple of 8 like every record's length.
pub const RECORD_HEADER: usize = 96;
/// Written after the last record of each append, where it fits: a zero magic says "nothing follows", also in a recycled
/// segment that is still full of its former content.
pub const TERMINATOR: [u8; 8] = [0; 8];
/// Largest payload. Leaves room for the header and a seal in 32-bit lengths; the server's own limit (2 GiB) is lower.
pub const RECORD_PAYLOAD_MAX: usize = 0xffff_fe00;

const SEGMENT_MAGIC: &[u8; 8] = b"trirmseg";
const META_MAGIC: &[u8; 8] = b"trirmeta";
const CHECKPOINT_MAGIC: &[u8; 8] = b"trirmckp";
const RECORD_MAGIC: u32 = 0x6365_5254; // "TRec"

const FLAG_CUT: u32 = 1;
const FLAG_RESET: u32 = 2;

/// The relation of a segment to the log before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Continues the segment before: its first index follows that one's last.
    Continues,
    /// All that segments of lower number hold from `first` on is void.
    Cut,
    /// Segments of lower number are void altogether.
    Reset,
}

/// By which tables a segment was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// [`VERSION_BEFORE`]: never written any more, only read.
    Before,
    Current,
}

/// First bytes of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    pub format: Format,
    /// Never used twice in a directory; mixed into every record's checksum.
    pub number: u64,
    pub origin: Origin,
    pub first: LogIndex,
    /// Of the entry before `first`.
    pub prev_term: Term,
    pub prev_seqno: Seqno,
    pub history: Uuid,
    /// The durable watermark when the segment was begun.
    pub synced: LogIndex,
    /// Number of the checkpoint with which the log began, at its last reset: tells this log from others that the directory has held. 0: it
    /// began in the format before, which does not tell.
    pub began: u64,
    /// `None`: the records are in clear text.
    pub seal: Option<SegmentSeal>,
}

/// By what the records of a segment are sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentSeal {
    pub mark: KeyMark,
    /// Authenticates the header.
    pub tag: [u8; TAG],
}

/// The key of a segment whose header was read.
pub enum Unlocked {
    Clear,
    Sealed(FileKey),
    /// The header was made by nobody who has the key.
    Forged,
}

impl SegmentHeader {
    /// The header of a segment that is sealed by the first of `keys`.
    pub fn sealed(mut self, keys: &LogKeys) -> Result<(SegmentHeader, FileKey), StoreError> {
        let (mark, key) = keys.begin(What::Segment, self.number)?;
        self.seal = Some(SegmentSeal { mark, tag: [0; TAG] });
        let tag = key.tag(&self.fields())?;
        self.seal = Some(SegmentSeal { mark, tag });
        Ok((self, key))
    }

    /// **Errors:** the key is not among `keys`.
    pub fn unlock(&self, keys: Option<&LogKeys>) -> Result<Unlocked, StoreError> {
        let Some(seal) = &self.seal else { return Ok(Unlocked::Clear) };
        let key = seal::unlock(keys, What::Segment, &names::segment(self.number), self.number, &seal.mark)?;
        Ok(if key.is_tag(&self.fields(), &seal.tag)? { Unlocked::Sealed(key) } else { Unlocked::Forged })
    }

    /// Everything but the tag and the checksum.
    fn fields(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.raw(SEGMENT_MAGIC);
        w.u32(match self.format {
            Format::Before => VERSION_BEFORE,
            Format::Current => VERSION,
        });
        w.u32(match self.origin {
            Origin::Continues => 0,
            Origin::Cut => FLAG_CUT,
            Origin::Reset => FLAG_RESET,
        });
        w.u64(self.number);
        w.u64(self.first.0);
        w.u64(self.prev_term.0);
        w.u64(self.prev_seqno.0);
        w.uuid(self.history);
        w.u64(self.synced.0);
        w.u64(self.began);
        if self.format == Format::Current {
            encode_mark(&mut w, self.seal.as_ref().map(|seal| &seal.mark));
        }
        w.buf
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer { buf: self.fields() };
        if self.format == Format::Current {
            w.raw(&self.seal.map_or([0; TAG], |seal| seal.tag));
        }
        let crc = crc32fast::hash(&w.buf);
        w.u32(crc);
        w.buf.resize(SEGMENT_HEADER, 0);
        w.buf
    }

    pub fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let bytes = bytes.get(..SEGMENT_HEADER)?;
        let mut r = Reader::new(bytes);
        if r.take(8).ok()? != SEGMENT_MAGIC {
            return None;
        }
        let format = match r.u32().ok()? {
            VERSION => Format::Current,
            VERSION_BEFORE => Format::Before,
            _ => return None,
        };
        let origin = match r.u32().ok()? {
            0 => Origin::Continues,
            FLAG_CUT => Origin::Cut,
            FLAG_RESET => Origin::Reset,
            _ => return None,
        };
        let mut header = SegmentHeader {
            format,
            number: r.u64().ok()?,
            origin,
            first: r.index().ok()?,
            prev_term: r.term().ok()?,
            prev_seqno: r.seqno().ok()?,
            history: r.uuid().ok()?,
            synced: r.index().ok()?,
            began: r.u64().ok()?,
            seal: None,
        };
        match format {
            Format::Before if header.began != 0 => return None,
            Format::Before => {}
            Format::Current => {
                let mark = decode_mark(&mut r)?;
                let tag: [u8; TAG] = r.take(TAG).ok()?.try_into().ok()?;
                header.seal = mark.map(|mark| SegmentSeal { mark, tag });
                if mark.is_none() && tag != [0; TAG] {
                    return None;
                }
            }
        }
        let covered = SEGMENT_HEADER - r.remaining();
        let crc = r.u32().ok()?;
        let rest_is_zero = bytes[covered + 4..].iter().all(|b| *b == 0);
        (crc == crc32fast::hash(&bytes[..covered]) && rest_is_zero && header.first.0 > 0).then_some(header)
    }

    /// The first record names this as its predecessor.
    pub fn chain(&self) -> u32 {
        crc32fast::hash(&self.encode())
    }

    /// The position before `first`, in the order's words.
    pub fn prev(&self) -> LogIndex {
        self.first.prev()
    }
}

/// Where the kind of the entry stands in a record's header: the last byte of what [`EntryHeader::encode`] writes.
const RECORD_KIND: usize = 4 * 4 + 8 + EntryHeader::ENCODED - 1;

/// Everything of a record but its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    pub payload_len: u32,
    /// `crc` of the record before, or [`SegmentHeader::chain`].
    pub chain: u32,
    pub payload_crc: u32,
    /// The durable watermark when the record was written.
    pub synced: LogIndex,
    pub entry: EntryHeader,
    /// Over all of the above and the segment's number: bytes of a recycled segment never pass.
    pub crc: u32,
}

impl RecordHeader {
    /// Appends the header of a record for `entry`; returns its checksum, the chain value of the next record. `payload_crc` may have
    /// been computed piece by piece.
    pub fn encode(
        out: &mut Vec<u8>,
        number: u64,
        chain: u32,
        synced: LogIndex,
        entry: &EntryHeader,
        payload_len: usize,
        payload_crc: u32,
    ) -> u32 {
        let start = out.len();
        let mut w = Writer { buf: std::mem::take(out) };
        w.u32(RECORD_MAGIC);
        w.u32(payload_len as u32);
        w.u32(chain);
        w.u32(payload_crc);
        w.u64(synced.0);
        entry.encode(&mut w);
        w.buf.resize(start + RECORD_HEADER - 4, 0);
        let crc = record_crc(number, &w.buf[start..]);
        w.u32(crc);
        *out = w.buf;
        crc
    }

    /// `None` unless the checksum fits segment `number`.
    pub fn decode(bytes: &[u8], number: u64) -> Option<RecordHeader> {
        let bytes = bytes.get(..RECORD_HEADER)?;
        let mut r = Reader::new(bytes);
        if r.u32().ok()? != RECORD_MAGIC {
            return None;
        }
        let crc = u32::from_le_bytes(bytes[RECORD_HEADER - 4..].try_into().ok()?);
        if crc != record_crc(number, &bytes[..RECORD_HEADER - 4]) {
            return None;
        }
        Some(RecordHeader {
            payload_len: r.u32().ok()?,
            chain: r.u32().ok()?,
            payload_crc: r.u32().ok()?,
            synced: r.index().ok()?,
            entry: EntryHeader::decode(&mut r).ok()?,
            crc,
        })
    }
}

/// The kind of a whole record header that a later version wrote: its checksum is right, and no kind of this version is named.
pub fn later_kind(bytes: &[u8], number: u64) -> Option<u8> {
    let bytes = bytes.get(..RECORD_HEADER)?;
    let (body, crc) = bytes.split_at(RECORD_HEADER - 4);
    let whole = may_be_record(bytes) && crc == record_crc(number, body).to_le_bytes();
    let kind = bytes[RECORD_KIND];
    (whole && EntryKind::from_u8(kind).is_none()).then_some(kind)
}

/// Makes this record's header one of another kind, with a right checksum.
#[cfg(test)]
pub fn set_kind(bytes: &mut [u8], number: u64, kind: u8) {
    bytes[RECORD_KIND] = kind;
    let crc = record_crc(number, &bytes[..RECORD_HEADER - 4]);
    bytes[RECORD_HEADER - 4..RECORD_HEADER].copy_from_slice(&crc.to_le_bytes());
}

/// The part of a record that its seal covers besides the payload: the header, but for the two checksums that follow from the
/// sealed payload.
pub fn associated(number: u64, chain: u32, synced: LogIndex, entry: &EntryHeader, stored_len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(RECORD_HEADER);
    RecordHeader::encode(&mut out, number, chain, synced, entry, stored_len, 0);
    out.truncate(RECORD_HEADER - 4);
    out
}

impl RecordHeader {
    /// The payload of this record of segment `number`. `None`: `stored` is not what was sealed.
    pub fn open(&self, number: u64, key: &FileKey, stored: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let associated = associated(number, self.chain, self.synced, &self.entry, self.payload_len as usize);
        key.open_record(&associated, stored)
    }
}

fn encode_mark(w: &mut Writer, mark: Option<&KeyMark>) {
    w.raw(&mark.map_or([0; 8], |mark| mark.key.0));
    w.raw(&mark.map_or([0; SALT], |mark| mark.salt));
}

/// The inner `None`: in clear text.
fn decode_mark(r: &mut Reader<'_>) -> Option<Option<KeyMark>> {
    let key = KeyId(r.take(8).ok()?.try_into().ok()?);
    let salt: [u8; SALT] = r.take(SALT).ok()?.try_into().ok()?;
    match key == KeyId::default() {
        true if salt == [0; SALT] => Some(None),
        true => None,
        false => Some(Some(KeyMark { key, salt })),
    }
}

fn record_crc(number: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Bytes of a record on disk.
pub fn record_len(payload: usize) -> u64 {
    RECORD_HEADER as u64 + (payload as u64).next_multiple_of(8)
}

/// Are these the first bytes of a place where no record was written?
pub fn is_end(bytes: &[u8]) -> bool {
    bytes.len() < 4 || bytes[..4] == [0; 4]
}

/// Could a record begin here? Cheap; to be followed by [`RecordHeader::decode`].
pub fn may_be_record(bytes: &[u8]) -> bool {
    bytes.len() >= 4 && bytes[..4] == RECORD_MAGIC.to_le_bytes()
}

/// Bytes of one copy of the metadata: one sector, so that a write is torn by no disk that keeps sectors whole.
pub const META_SLOT: usize = 512;
/// Where the copies begin: on different pages.
pub const META_OFFSETS: [u64; 2] = [0, 4096];
/// Length of the metadata file.
pub const META_FILE: u64 = 8192;

/// The state that outlives every segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Rises with every write; the highest whole copy counts.
    pub sequence: u64,
    pub node: NodeId,
    pub incarnation: Incarnation,
    /// Of the base of the log; nil when there is none yet.
    pub history: Uuid,
    pub hard: HardState,
    /// Was the log closed with everything synced?
    pub clean: bool,
    /// The durability setting last told to the log is `process`.
    pub process: bool,
    /// Everything up to here was synced when this was written, within the log that began or was cut with segment `epoch`.
    pub synced: LogIndex,
    /// Number of the newest cut or reset segment when this was written.
    pub epoch: u64,
    /// Numbers below this may have been used.
    pub number_limit: u64,
    /// [`crate::OpenReport::suspect`], until cleared.
    pub suspect: Option<LogIndex>,
    /// Changes of the voters may be missing, too. Cleared with `suspect`.
    pub outdated: bool,
    /// [`crate::OpenReport::hole`], until cleared.
    pub hole: Option<(LogIndex, LogIndex)>,
    pub boot_id: String,
}

const META_CLEAN: u32 = 1;
const META_PROCESS: u32 = 2;
const META_SUSPECT: u32 = 4;
const META_HOLE: u32 = 8;
const META_OUTDATED: u32 = 16;

impl Meta {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.raw(META_MAGIC);
        w.u32(VERSION);
        let mut flags = 0;
        for (set, flag) in [
            (self.clean, META_CLEAN),
            (self.process, META_PROCESS),
            (self.suspect.is_some(), META_SUSPECT),
            (self.hole.is_some(), META_HOLE),
            (self.outdated, META_OUTDATED),
        ] {
            flags |= if set { flag } else { 0 };
        }
        w.u32(flags);
        w.u64(self.sequence);
        w.uuid(self.node.0);
        w.u32(self.incarnation.0);
        w.u32(self.boot_id.len() as u32);
        w.uuid(self.history);
        w.u64(self.hard.term.0);
        w.uuid(self.hard.voted_for().0);
        w.u64(self.hard.voters_committed.0);
        w.u64(self.hard.committed.0);
        w.u64(self.synced.0);
        w.u64(self.epoch);
        w.u64(self.number_limit);
        w.u64(self.suspect.unwrap_or_default().0);
        let (from, to) = self.hole.unwrap_or_default();
        w.u64(from.0);
        w.u64(to.0);
        w.raw(self.boot_id.as_bytes());
        w.uuid(self.hard.branch);
        for choice in [self.hard.vote, self.hard.entrusted] {
            w.u64(choice.term.0);
            w.uuid(choice.of.0);
        }
        w.buf.resize(META_SLOT - 4, 0);
        let crc = crc32fast::hash(&w.buf);
        w.u32(crc);
        w.buf
    }

    /// The version of a whole copy that another version of this program wrote.
    pub fn other_version(bytes: &[u8]) -> Option<u32> {
        let bytes = bytes.get(..META_SLOT)?;
        let (body, crc) = bytes.split_at(META_SLOT - 4);
        let mut r = Reader::new(body);
        let whole = r.take(8).ok()? == META_MAGIC && crc == crc32fast::hash(body).to_le_bytes();
        let version = r.u32().ok()?;
        (whole && !matches!(version, VERSION | VERSION_BEFORE)).then_some(version)
    }

    pub fn decode(bytes: &[u8]) -> Option<Meta> {
        let bytes = bytes.get(..META_SLOT)?;
        let crc = u32::from_le_bytes(bytes[META_SLOT - 4..].try_into().ok()?);
        let body = &bytes[..META_SLOT - 4];
        let mut r = Reader::new(body);
        // The same in both versions.
        let known = r.take(8).ok()? == META_MAGIC && matches!(r.u32().ok()?, VERSION | VERSION_BEFORE);
        if !known || crc != crc32fast::hash(body) {
            return None;
        }
        let flags = r.u32().ok()?;
        let sequence = r.u64().ok()?;
        let node = NodeId(r.uuid().ok()?);
        let incarnation = Incarnation(r.u32().ok()?);
        let boot_len = r.u32().ok()? as usize;
        let history = r.uuid().ok()?;
        let term = r.term().ok()?;
        let voted_for = NodeId(r.uuid().ok()?);
        let voters_committed = r.index().ok()?;
        let committed = r.index().ok()?;
        let synced = r.index().ok()?;
        let epoch = r.u64().ok()?;
        let number_limit = r.u64().ok()?;
        let suspect = r.index().ok()?;
        let hole = (r.index().ok()?, r.index().ok()?);
        let boot_id = String::from_utf8(r.take(boot_len).ok()?.to_vec()).ok()?;
        // Zeros where a former build wrote it.
        let branch = r.uuid().ok()?;
        let mut choice = || Some(Choice { term: r.term().ok()?, of: NodeId(r.uuid().ok()?) });
        let (saved, entrusted) = (choice()?, choice()?);
        let vote = if voted_for.0.is_nil() { saved } else { Choice { term, of: voted_for } };
        let hard = HardState { term, vote, entrusted, voters_committed, committed, branch };
        Some(Meta {
            sequence,
            node,
            incarnation,
            history,
            hard,
            clean: flags & META_CLEAN != 0,
            process: flags & META_PROCESS != 0,
            synced,
            epoch,
            number_limit,
            suspect: (flags & META_SUSPECT != 0).then_some(suspect),
            outdated: flags & META_OUTDATED != 0,
            hole: (flags & META_HOLE != 0).then_some(hole),
            boot_id,
        })
    }
}

/// Bytes of a checkpoint before its state.
const CHECKPOINT_HEADER: usize = 80;
const CHECKPOINT_HEADER_BEFORE: usize = 32;
const CHECKPOINT_BEGINS: u64 = 1;

/// The purpose of a checkpoint in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A state within the log that is being written.
    Kept,
    /// The state with which a log begins anew. It is of that log only: without a segment that names it, it is nothing.
    Begins,
    /// Of the format before, which does not tell. It is of a log that began then.
    Unsaid,
}

/// A whole checkpoint file, sealed by the first of `keys`.
pub fn encode_checkpoint(
    number: u64,
    purpose: Purpose,
    base: &Base,
    keys: Option<&LogKeys>,
) -> Result<Vec<u8>, StoreError> {
    let mut state = Writer::new();
    base.encode(&mut state);
    let key = keys.map(|keys| keys.begin(What::Checkpoint, number)).transpose()?;
    let mut body = Writer::new();
    body.u64(number);
    body.u64((state.buf.len() + key.as_ref().map_or(0, |_| TAG)) as u64);
    body.u64(match purpose {
        Purpose::Kept => 0,
        Purpose::Begins => CHECKPOINT_BEGINS,
        Purpose::Unsaid => {
            return Err(StoreError::Refused("a checkpoint without a purpose is not written".into()));
        }
    });
    encode_mark(&mut body, key.as_ref().map(|(mark, _)| mark));
    match &key {
        Some((_, key)) => {
            let sealed = key.seal_whole(&body.buf, &state.buf)?;
            body.raw(&sealed);
        }
        None => body.raw(&state.buf),
    }
    let mut w = Writer::new();
    w.raw(CHECKPOINT_MAGIC);
    w.u32(VERSION);
    w.u32(crc32fast::hash(&body.buf));
    w.raw(&body.buf);
    Ok(w.buf)
}

/// The part of a checkpoint that can be read without its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointHead {
    pub purpose: Purpose,
    pub mark: Option<KeyMark>,
    /// Where the state begins, to which the file's end belongs.
    pub state: usize,
    /// Over everything from [`CheckpointHead::SUMMED`] on.
    pub crc: u32,
}

impl CheckpointHead {
    /// Bytes that are enough to read any head.
    pub const BYTES: usize = CHECKPOINT_HEADER;
    pub const SUMMED: usize = 16;

    /// `None` unless `bytes` begins a file of `len` bytes that was made for `number`. Whether the rest is whole the checksum tells.
    pub fn decode(number: u64, bytes: &[u8], len: u64) -> Option<CheckpointHead> {
        let mut r = Reader::new(bytes);
        if r.take(8).ok()? != CHECKPOINT_MAGIC {
            return None;
        }
        let state = match r.u32().ok()? {
            VERSION => CHECKPOINT_HEADER,
            VERSION_BEFORE => CHECKPOINT_HEADER_BEFORE,
            _ => return None,
        };
        let crc = r.u32().ok()?;
        if r.u64().ok()? != number || r.u64().ok()? != len.checked_sub(state as u64)? {
            return None;
        }
        if state == CHECKPOINT_HEADER_BEFORE {
            return Some(CheckpointHead { purpose: Purpose::Unsaid, mark: None, state, crc });
        }
        let purpose = match r.u64().ok()? {
            0 => Purpose::Kept,
            CHECKPOINT_BEGINS => Purpose::Begins,
            _ => return None,
        };
        Some(CheckpointHead { purpose, mark: decode_mark(&mut r)?, state, crc })
    }

    /// The key of the state. The inner `None`: in clear text.
    ///
    /// **Errors:** it is not among `keys`.
    pub fn unlock(&self, number: u64, keys: Option<&LogKeys>) -> Result<Option<FileKey>, StoreError> {
        let mark = self.mark.as_ref();
        mark.map(|mark| seal::unlock(keys, What::Checkpoint, &names::checkpoint(number), number, mark)).transpose()
    }

    /// The bytes that the seal of the state covers besides it.
    pub fn associated<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[CheckpointHead::SUMMED..self.state]
    }
}

/// `None` unless `bytes` is exactly what [`encode_checkpoint`] made for `number`.
///
/// **Errors:** its key is not among `keys`.
pub fn decode_checkpoint(
    number: u64,
    bytes: &[u8],
    keys: Option<&LogKeys>,
) -> Result<Option<(Purpose, Base)>, StoreError> {
    let Some(head) = CheckpointHead::decode(number, bytes, bytes.len() as u64) else { return Ok(None) };
    if head.crc != crc32fast::hash(&bytes[CheckpointHead::SUMMED..]) {
        return Ok(None);
    }
    let state = &bytes[head.state..];
    let opened = match head.unlock(number, keys)? {
        None => None,
        Some(key) => {
            let Some(opened) = key.open_whole(head.associated(bytes), state)? else { return Ok(None) };
            Some(opened)
        }
    };
    let mut r = Reader::new(opened.as_deref().unwrap_or(state));
    let base = Base::decode(&mut r).and_then(|base| r.finish().map(|()| base));
    Ok(base.ok().map(|base| (head.purpose, base)))
}

/// Magic, version and checksum made right: the decoders behind them see damage only this way.
#[cfg(feature = "fuzzing")]
pub fn seal_meta(slot: &mut [u8]) {
    slot[..8].copy_from_slice(META_MAGIC);
    slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32fast::hash(&slot[..META_SLOT - 4]);
    slot[META_SLOT - 4..META_SLOT].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(feature = "fuzzing")]
pub fn seal_segment(header: &mut [u8]) {
    const CRC_AT: usize = 136;
    header[..8].copy_from_slice(SEGMENT_MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[CRC_AT + 4..].fill(0);
    let crc = crc32fast::hash(&header[..CRC_AT]);
    header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(feature = "fuzzing")]
pub fn seal_record(header: &mut [u8], number: u64) -> u32 {
    header[..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
    let crc = record_crc(number, &header[..RECORD_HEADER - 4]);
    header[RECORD_HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
    crc
}

#[cfg(feature = "fuzzing")]
pub fn seal_checkpoint(bytes: &mut [u8], number: u64) {
    let Some(body) = bytes.len().checked_sub(CHECKPOINT_HEADER) else { return };
    bytes[..8].copy_from_slice(CHECKPOINT_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    bytes[24..32].copy_from_slice(&(body as u64).to_le_bytes());
    let crc = crc32fast::hash(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trireme_types::{ProposalNumber, Session};

    use super::*;

    fn entry_header(index: u64) -> EntryHeader {
        EntryHeader {
            index: LogIndex(index),
            term: Term(3),
            seqno: Seqno(index / 2),
            voters: LogIndex(1),
            session: Session { node: NodeId(Uuid([7; 16])), number: 9 },
            number: ProposalNumber(index),
            kind: EntryKind::WriteSet,
        }
    }

    fn meta() -> Meta {
        Meta {
            sequence: 5,
            node: NodeId(Uuid([1; 16])),
            incarnation: Incarnation(4),
            history: Uuid([2; 16]),
            hard: HardState {
                term: Term(9),
                vote: Choice { term: Term(8), of: NodeId(Uuid([3; 16])) },
                entrusted: Choice { term: Term(7), of: NodeId(Uuid([6; 16])) },
                voters_committed: LogIndex(4),
                committed: LogIndex(5),
                branch: Uuid([4; 16]),
            },
            clean: true,
            process: true,
            synced: LogIndex(77),
            epoch: 3,
            number_limit: 64,
            suspect: Some(LogIndex(70)),
            outdated: true,
            hole: Some((LogIndex(71), LogIndex(75))),
            boot_id: "b".repeat(crate::BOOT_ID_MAX),
        }
    }

    fn segment() -> SegmentHeader {
        SegmentHeader {
            format: Format::Current,
            number: 12,
            origin: Origin::Cut,
            first: LogIndex(5),
            prev_term: Term(2),
            prev_seqno: Seqno(3),
            history: Uuid([4; 16]),
            synced: LogIndex(4),
            began: 11,
            seal: None,
        }
    }

    fn keys() -> LogKeys {
        LogKeys::new(&[[5; 32]]).unwrap().with_seed(1)
    }

    #[test]
    fn headers_of_sealed_segments_are_readable_and_nobody_else_can_make_them() {
        let (header, _) = segment().sealed(&keys()).unwrap();
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
        assert!(matches!(header.unlock(Some(&keys())), Ok(Unlocked::Sealed(_))));
        assert!(matches!(segment().unlock(None), Ok(Unlocked::Clear)));
        assert!(header.unlock(None).is_err());
        let forged = SegmentHeader { synced: LogIndex(1), ..header };
        assert!(matches!(forged.unlock(Some(&keys())), Ok(Unlocked::Forged)));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn headers_round_trip_and_any_flipped_bit_is_seen() {
        let seg = segment().encode();
        assert_eq!(SegmentHeader::decode(&seg), Some(segment()));
        let m = meta().encode();
        assert_eq!((m.len(), Meta::decode(&m)), (META_SLOT, Some(meta())));
        let mut rec = Vec::new();
        let crc = RecordHeader::encode(&mut rec, 12, 99, LogIndex(3), &entry_header(5), 7, crc32fast::hash(b"payload"));
        let back = RecordHeader::decode(&rec, 12).unwrap();
        assert_eq!((back.crc, back.chain, back.synced, back.entry), (crc, 99, LogIndex(3), entry_header(5)));
        assert_eq!((rec.len(), back.payload_len, back.payload_crc), (RECORD_HEADER, 7, crc32fast::hash(b"payload")));
        assert_eq!(RecordHeader::decode(&rec, 13), None, "a recycled segment's bytes must not pass");
        let base = Base { index: LogIndex(3), ..Base::default() };
        let ckpt = encode_checkpoint(8, Purpose::Kept, &base, None).unwrap();
        let decoded = |number, bytes: &[u8]| decode_checkpoint(number, bytes, Some(&keys())).unwrap();
        assert_eq!(decoded(8, &ckpt), Some((Purpose::Kept, base.clone())));
        let begins = encode_checkpoint(8, Purpose::Begins, &base, None).unwrap();
        assert_eq!(decoded(8, &begins), Some((Purpose::Begins, base.clone())));
        let sealed = encode_checkpoint(8, Purpose::Kept, &base, Some(&keys())).unwrap();
        assert_eq!(decoded(8, &sealed), Some((Purpose::Kept, base)));
        assert!(decode_checkpoint(8, &sealed, None).is_err());
        assert_eq!((decoded(9, &ckpt), decoded(9, &sealed)), (None, None));
        for bit in 0..seg.len() * 8 {
            let mut bad = seg.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bad), None, "bit {bit}");
        }
        for bit in 0..m.len() * 8 {
            let mut bad = m.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Meta::decode(&bad), None, "bit {bit}");
        }
        for bit in 0..rec.len() * 8 {
            let mut bad = rec.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&bad, 12), None, "bit {bit}");
        }
        for ckpt in [ckpt, sealed] {
            for bit in 0..ckpt.len() * 8 {
                let mut bad = ckpt.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decoded(8, &bad), None, "bit {bit}");
            }
        }
    }

    proptest! {
        #[test]
        fn decoders_survive_random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..700), fix in any::<bool>()) {
            let mut bytes = bytes;
            if fix && bytes.len() >= 16 {
                // Past the checksum, so that the field decoders see random input too.
                bytes[..8].copy_from_slice(CHECKPOINT_MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
                let n = bytes.len();
                if n >= CHECKPOINT_HEADER {
                    bytes[24..32].copy_from_slice(&((n - CHECKPOINT_HEADER) as u64).to_le_bytes());
                    bytes[16..24].copy_from_slice(&1u64.to_le_bytes());
                }
                let crc = crc32fast::hash(&bytes[16..]);
                bytes[12..16].copy_from_slice(&crc.to_le_bytes());
            }
            let _ = decode_checkpoint(1, &bytes, Some(&keys()));
            let _ = SegmentHeader::decode(&bytes);
            let _ = RecordHeader::decode(&bytes, 1);
            let mut slot = bytes.clone();
            slot.resize(META_SLOT, 0);
            slot[..8].copy_from_slice(META_MAGIC);
            slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
            let crc = crc32fast::hash(&slot[..META_SLOT - 4]);
            slot[META_SLOT - 4..].copy_from_slice(&crc.to_le_bytes());
            let _ = Meta::decode(&slot);
        }
    }
}
