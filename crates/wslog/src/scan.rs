//! Walking through one segment, record by record, without changing anything.

use trireme_order::StoreError;
use trireme_types::{LogIndex, Seqno};

use crate::format::{
    RECORD_HEADER, RecordHeader, SEGMENT_HEADER, SegmentHeader, is_end, later_kind, may_be_record, record_len,
};
use crate::index::Slot;
use crate::seal::FileKey;
use crate::storage::StorageFile;

/// Where and why a walk ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanEnd {
    /// Offset behind the last whole record.
    pub end: u64,
    /// Checksum of the last whole record, which the next one must name.
    pub chain: u32,
    /// Why what lies at `end` is no record; `None` when nothing was written there.
    pub bad: Option<&'static str>,
    /// Highest durable watermark named by a record.
    pub watermark: LogIndex,
}

/// Whole records behind the end of a walk: proof that more was written than can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behind {
    pub last: LogIndex,
    pub watermark: LogIndex,
}

/// Reads ahead through a file.
struct Window<'a, F> {
    file: &'a F,
    /// Of the file; nothing is read or set aside beyond.
    len: u64,
    start: u64,
    buf: Vec<u8>,
}

const READ_AHEAD: usize = 1 << 20;

impl<'a, F: StorageFile> Window<'a, F> {
    fn new(file: &'a F, len: u64) -> Self {
        Window { file, len, start: 0, buf: Vec::new() }
    }

    /// Bytes from `offset` on: `len` of them, fewer where the file ends.
    fn get(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        let inside = offset >= self.start && offset + len as u64 <= self.start + self.buf.len() as u64;
        if !inside {
            let mut buf = std::mem::take(&mut self.buf);
            let rest = self.len.saturating_sub(offset);
            buf.resize(rest.min(len.max(READ_AHEAD) as u64) as usize, 0);
            let got = self.file.read_at(offset, &mut buf)?;
            buf.truncate(got);
            self.buf = buf;
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        let to = (from + len).min(self.buf.len());
        Ok(&self.buf[from..to])
    }
}

/// The header of a segment file; `None` when it is unreadable.
pub fn header<F: StorageFile>(file: &F) -> Result<Option<SegmentHeader>, StoreError> {
    let mut buf = vec![0; SEGMENT_HEADER];
    let got = file.read_at(0, &mut buf)?;
    Ok(SegmentHeader::decode(&buf[..got]))
}

/// Walks from the first record on and calls `each` with every whole record and its place. Without `key` the seals of a sealed segment
/// are not looked at.
pub fn walk<F: StorageFile>(
    file: &F,
    header: &SegmentHeader,
    key: Option<&FileKey>,
    mut each: impl FnMut(&RecordHeader, Slot),
) -> Result<ScanEnd, StoreError> {
    let len = file.len()?;
    let mut window = Window::new(file, len);
    let mut out = ScanEnd { end: SEGMENT_HEADER as u64, chain: header.chain(), bad: None, watermark: LogIndex::ZERO };
    let mut expected = header.first;
    let mut seqno: Seqno = header.prev_seqno;
    loop {
        let head = window.get(out.end, RECORD_HEADER)?;
        if is_end(head) {
            return Ok(out);
        }
        let Some(record) = RecordHeader::decode(head, header.number) else {
            // Not damage: to cut it off would cut off what was acknowledged.
            if let Some(kind) = later_kind(head, header.number) {
                return Err(StoreError::OtherVersion(format!(
                    "segment {} holds an entry of kind {kind}, which a later version of Trireme wrote. Install that version; \
                     nothing was changed",
                    header.number
                )));
            }
            out.bad = Some("no record header with a right checksum");
            return Ok(out);
        };
        let next = out.end + record_len(record.payload_len as usize);
        let bad = if record.chain != out.chain {
            Some("the record does not follow the one before")
        } else if record.entry.index != expected {
            Some("the record has another index than its place")
        } else if record.entry.seqno < seqno {
            Some("the seqno goes back")
        } else if next > len {
            Some("the record goes beyond the end of the file")
        } else {
            let payload = window.get(out.end + RECORD_HEADER as u64, record.payload_len as usize)?;
            let whole = payload.len() == record.payload_len as usize && crc32fast::hash(payload) == record.payload_crc;
            let genuine = match key {
                Some(key) if whole => record.open(header.number, key, payload)?.is_some(),
                Some(_) | None => true,
            };
            match (whole, genuine) {
                (false, _) => Some("the payload does not fit its checksum"),
                (true, false) => Some("the record was not sealed with the key of its segment"),
                (true, true) => None,
            }
        };
        if bad.is_some() {
            out.bad = bad;
            return Ok(out);
        }
        let at = (out.end / 8) as u32;
        let slot = Slot {
            term: record.entry.term,
            seqno: record.entry.seqno,
            segment: header.number,
            at,
            payload_len: record.payload_len,
        };
        each(&record, slot);
        out.watermark = out.watermark.max(record.synced);
        out.chain = record.crc;
        out.end = next;
        expected = expected.next();
        seqno = record.entry.seqno;
    }
}

/// Looks for records of this segment behind `from` (the end of a walk), at any place where one could begin.
pub fn behind<F: StorageFile>(file: &F, number: u64, from: u64) -> Result<Option<Behind>, StoreError> {
    let len = file.len()?;
    let mut window = Window::new(file, len);
    let mut out: Option<Behind> = None;
    // A whole header at `from` itself is not "behind": it is the torn record.
    let mut at = from + 8;
    while at + RECORD_HEADER as u64 <= len {
        let head = window.get(at, RECORD_HEADER)?;
        if may_be_record(head)
            && let Some(record) = RecordHeader::decode(head, number)
        {
            let so_far = out.get_or_insert(Behind { last: LogIndex::ZERO, watermark: LogIndex::ZERO });
            so_far.last = so_far.last.max(record.entry.index);
            so_far.watermark = so_far.watermark.max(record.synced);
        }
        at += 8;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use trireme_types::{EntryHeader, EntryKind, NodeId, ProposalNumber, Session, Term, Uuid};

    use super::*;
    use crate::format::{Format, Origin};
    use crate::simdisk::SimDisk;
    use crate::storage::Storage;

    const SEGMENT: u64 = 3;

    /// One entry, and then one whose kind is `kind`.
    fn file(kind: u8) -> (<SimDisk as Storage>::File, SegmentHeader) {
        let header = SegmentHeader {
            format: Format::Current,
            number: SEGMENT,
            origin: Origin::Continues,
            first: LogIndex(1),
            prev_term: Term(1),
            prev_seqno: Seqno(0),
            history: Uuid([1; 16]),
            synced: LogIndex(0),
            began: SEGMENT,
            seal: None,
        };
        let mut bytes = header.encode();
        let entry = |index| EntryHeader {
            index: LogIndex(index),
            term: Term(1),
            seqno: Seqno(0),
            voters: LogIndex(0),
            session: Session { node: NodeId::default(), number: 0 },
            number: ProposalNumber::ZERO,
            kind: EntryKind::Term,
        };
        let nothing = crc32fast::hash(b"");
        let chain = RecordHeader::encode(&mut bytes, SEGMENT, header.chain(), LogIndex(0), &entry(1), 0, nothing);
        let second = bytes.len();
        RecordHeader::encode(&mut bytes, SEGMENT, chain, LogIndex(0), &entry(2), 0, nothing);
        crate::format::set_kind(&mut bytes[second..], SEGMENT, kind);
        let disk = SimDisk::new(1);
        let file = disk.create("segment").unwrap();
        file.fill(1 << 16).unwrap();
        file.write_at(0, &bytes).unwrap();
        (file, header)
    }

    #[test]
    fn an_entry_of_a_later_version_is_no_damage() {
        let (file, header) = file(77);
        let error = walk(&file, &header, None, |_, _| {}).unwrap_err();
        assert!(matches!(error, StoreError::OtherVersion(_)), "{error:?}");
        assert!(error.to_string().contains("kind 77, which a later version of Trireme wrote"), "{error}");
    }

    #[test]
    fn an_entry_of_a_known_kind_is_read() {
        let (file, header) = file(EntryKind::Setting as u8);
        let mut kinds = Vec::new();
        let end = walk(&file, &header, None, |record, _| kinds.push(record.entry.kind)).unwrap();
        assert_eq!((kinds, end.bad), (vec![EntryKind::Term, EntryKind::Setting], None));
    }
}
