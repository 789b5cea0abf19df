use bytes::Bytes;
use trireme_types::{Entry, EntryHeader, EntryKind, LogIndex, ProposalNumber, Seqno, Session, Term};

/// A write set whose payload of `size` bytes follows from its place.
pub fn entry(index: u64, term: u64, size: usize) -> Entry {
    let header = EntryHeader {
        index: LogIndex(index),
        term: Term(term),
        seqno: Seqno(index),
        voters: LogIndex(1),
        session: Session::default(),
        number: ProposalNumber(index),
        kind: EntryKind::WriteSet,
    };
    Entry { header, payload: Bytes::from(vec![index as u8 ^ term as u8; size]) }
}
