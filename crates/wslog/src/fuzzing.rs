//! For the fuzzers: the decoders of single structures, and checksums made right after damage, so that what lies behind them is
//! reached.

use trireme_types::{EntryHeader, ProposalNumber, Reader};

use crate::format::{
    self, META_OFFSETS, META_SLOT, Meta, RECORD_HEADER, RecordHeader, SEGMENT_HEADER, SegmentHeader, decode_checkpoint,
    encode_checkpoint,
};
use crate::names::{self, Name};

const SEGMENT: u64 = 7;

/// The four kinds of structures, each from the same bytes with a right checksum.
pub fn structures(data: &[u8]) {
    let mut slot = data.to_vec();
    slot.resize(META_SLOT, 0);
    format::seal_meta(&mut slot);
    if let Some(meta) = Meta::decode(&slot) {
        assert_eq!(Meta::decode(&meta.encode()), Some(meta));
    }
    let mut head = data.to_vec();
    head.resize(SEGMENT_HEADER, 0);
    format::seal_segment(&mut head);
    if let Some(header) = SegmentHeader::decode(&head) {
        assert_eq!(header.encode(), head, "canonical");
    }
    let mut record = data.to_vec();
    record.resize(RECORD_HEADER, 0);
    format::seal_record(&mut record, SEGMENT);
    if let Some(header) = RecordHeader::decode(&record, SEGMENT) {
        let mut r = Reader::new(&record[24..]);
        assert_eq!(EntryHeader::decode(&mut r), Ok(header.entry));
    }
    let mut checkpoint = data.to_vec();
    format::seal_checkpoint(&mut checkpoint, SEGMENT);
    if let Ok(Some((purpose, base))) = decode_checkpoint(SEGMENT, &checkpoint, None) {
        let again = encode_checkpoint(SEGMENT, purpose, &base, None);
        assert_eq!(again.expect("nothing is sealed"), checkpoint, "canonical");
    }
}

/// Encoded structures to begin with.
pub fn structure_seeds() -> Vec<Vec<u8>> {
    let mut record = Vec::new();
    let entry = EntryHeader {
        index: trireme_types::LogIndex(5),
        term: trireme_types::Term(2),
        seqno: trireme_types::Seqno(4),
        voters: trireme_types::LogIndex(1),
        session: trireme_types::Session::default(),
        number: ProposalNumber(3),
        kind: trireme_types::EntryKind::WriteSet,
    };
    RecordHeader::encode(&mut record, SEGMENT, 1, trireme_types::LogIndex(4), &entry, 7, crc32fast::hash(b"payload"));
    let header = SegmentHeader {
        format: format::Format::Current,
        number: SEGMENT,
        origin: format::Origin::Cut,
        first: trireme_types::LogIndex(5),
        prev_term: trireme_types::Term(2),
        prev_seqno: trireme_types::Seqno(4),
        history: trireme_types::Uuid([1; 16]),
        synced: trireme_types::LogIndex(4),
        began: 2,
        seal: None,
    };
    let base = trireme_types::Base { index: trireme_types::LogIndex(4), ..trireme_types::Base::default() };
    let meta = Meta { boot_id: "boot".into(), suspect: Some(trireme_types::LogIndex(9)), ..Meta::default() };
    let checkpoint = encode_checkpoint(SEGMENT, format::Purpose::Kept, &base, None).expect("nothing is sealed");
    vec![record, header.encode(), checkpoint, meta.encode()]
}

/// Makes the checksums of a damaged file of this name right, as far as its structures are still where they were.
pub fn seal(name: &str, bytes: &mut [u8]) {
    match names::parse(name) {
        Some(Name::Meta) => {
            for offset in META_OFFSETS {
                if let Some(slot) = bytes.get_mut(offset as usize..offset as usize + META_SLOT) {
                    format::seal_meta(slot);
                }
            }
        }
        Some(Name::Checkpoint(number)) => format::seal_checkpoint(bytes, number),
        Some(Name::Segment(number)) => seal_records(number, bytes),
        Some(Name::Damaged(_) | Name::Temporary | Name::Spare | Name::Lock) | None => {}
    }
}

fn seal_records(number: u64, bytes: &mut [u8]) {
    if bytes.len() < SEGMENT_HEADER {
        return;
    }
    format::seal_segment(&mut bytes[..SEGMENT_HEADER]);
    let mut chain = crc32fast::hash(&bytes[..SEGMENT_HEADER]);
    let mut at = SEGMENT_HEADER;
    while bytes.len() >= at + RECORD_HEADER && format::may_be_record(&bytes[at..]) {
        let len = u32::from_le_bytes([bytes[at + 4], bytes[at + 5], bytes[at + 6], bytes[at + 7]]) as usize;
        let Some(payload) = bytes.get(at + RECORD_HEADER..at + RECORD_HEADER + len) else { return };
        let sum = crc32fast::hash(payload);
        bytes[at + 8..at + 12].copy_from_slice(&chain.to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&sum.to_le_bytes());
        chain = format::seal_record(&mut bytes[at..at + RECORD_HEADER], number);
        at += format::record_len(len) as usize;
    }
}
