//! The types that travel in entries, checkpoints and snapshots.

use trireme_types::{
    Base, DecodeError, EntryHeader, EntryKind, LogIndex, Member, NodeId, ProposalNumber, Reader, Seqno, Session,
    SessionMark, Term, Uuid, View, Voter, VoterSet, Weight, Writer,
};

/// The first byte chooses the type. A value that decodes encodes to the same bytes, but for names of members, of which only
/// what can be printed is taken.
pub fn codecs(data: &[u8]) {
    let Some((&which, rest)) = data.split_first() else { return };
    match which % 5 {
        0 => printable(rest, Base::decode, Base::encode),
        1 => printable(rest, View::decode, View::encode),
        2 => same(rest, VoterSet::decode, VoterSet::encode),
        3 => same(rest, EntryHeader::decode, EntryHeader::encode),
        _ => printable(rest, Member::decode, Member::encode),
    }
}

fn same<T>(bytes: &[u8], decode: fn(&mut Reader<'_>) -> Result<T, DecodeError>, encode: fn(&T, &mut Writer)) {
    let mut r = Reader::new(bytes);
    if let Ok(value) = decode(&mut r) {
        let taken = bytes.len() - r.remaining();
        let mut w = Writer::new();
        encode(&value, &mut w);
        assert_eq!(w.buf, bytes[..taken], "canonical");
    }
}

/// A value that was decoded once stays as it is.
fn printable<T>(bytes: &[u8], decode: fn(&mut Reader<'_>) -> Result<T, DecodeError>, encode: fn(&T, &mut Writer)) {
    if let Ok(value) = decode(&mut Reader::new(bytes)) {
        let mut w = Writer::new();
        encode(&value, &mut w);
        assert!(decode(&mut Reader::new(&w.buf)).is_ok(), "its own encoding is read");
        same(&w.buf, decode, encode);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let node = NodeId(Uuid([3; 16]));
    let session = Session { node, number: 1 << 32 };
    let member =
        Member { node, name: "n1".into(), incoming: "h:3306".into(), address: "h:4567".into(), ..Member::default() };
    let view = View { number: 2, members: vec![member.clone(), Member::default()] };
    let voters = VoterSet { voters: vec![Voter { node, weight: Weight(1) }], fork: Uuid([5; 16]) };
    let base = Base {
        history: Uuid([9; 16]),
        index: LogIndex(5),
        term: Term(2),
        seqno: Seqno(4),
        voters: voters.clone(),
        voters_at: LogIndex(2),
        view: view.clone(),
        sessions: vec![SessionMark { session, number: ProposalNumber(7) }],
        app: bytes::Bytes::from_static(b"state"),
        ..Base::default()
    };
    let header = EntryHeader {
        index: LogIndex(6),
        term: Term(2),
        seqno: Seqno(5),
        voters: LogIndex(2),
        session,
        number: ProposalNumber(8),
        kind: EntryKind::App,
    };
    let with = |which: u8, encode: &dyn Fn(&mut Writer)| {
        let mut w = Writer { buf: vec![which] };
        encode(&mut w);
        w.buf
    };
    vec![
        with(0, &|w| base.encode(w)),
        with(0, &|w| Base { level: trireme_types::Level(2), ..base.clone() }.encode(w)),
        with(1, &|w| view.encode(w)),
        with(2, &|w| voters.encode(w)),
        with(3, &|w| header.encode(w)),
        with(4, &|w| member.encode(w)),
    ]
}
