//! For the fuzzers: what members tell each other, and what every member computes from it.

use trireme_types::{Incarnation, Member, NodeId, Reader, Seqno, Uuid, View, Writer};

use crate::flow;
use crate::message::{AppMessage, OpenVote};
use crate::roster::Roster;
use crate::votes::ErrorClass;

/// Ordered messages without a seqno, and the signal of flow control.
pub fn messages(data: &[u8]) {
    if let Ok(message) = AppMessage::decode(data) {
        assert_eq!(message.encode(), data, "canonical");
    }
    flow::fuzz(data);
}

pub fn message_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = all_messages().iter().map(AppMessage::encode).collect();
    seeds.push(flow::fuzz_seed());
    seeds
}

fn all_messages() -> Vec<AppMessage> {
    vec![
        AppMessage::Joined,
        AppMessage::Synced,
        AppMessage::Desync,
        AppMessage::Resync,
        AppMessage::StateRequest { donors: "n2,".into(), request: b"rsync".to_vec(), position: None },
        AppMessage::StateRequest { donors: String::new(), request: b"rsync".to_vec(), position: Some(Seqno(7)) },
        AppMessage::DonorDone { joiner: node(2), ok: true },
        AppMessage::LastCommitted { seqno: Seqno(7) },
        AppMessage::Vote { seqno: Seqno(5), class: ErrorClass(77), text: "error".into() },
        AppMessage::Evict { member: Uuid([3; 16]) },
        AppMessage::Lagging { node: node(2), seqno: Seqno(7) },
        AppMessage::CloseVote { seqno: Seqno(5), as_of: None },
        AppMessage::CloseVote { seqno: Seqno(5), as_of: Some(OpenVote { view: 3, failed: vec![node(1), node(2)] }) },
        AppMessage::NoData,
    ]
}

fn node(n: u8) -> NodeId {
    NodeId(Uuid([n; 16]))
}

/// An encoded roster (length in the first two bytes), and then messages: sender, length, bytes. Sender 0xff with some bytes is a
/// view of as many members. Every step is done on the roster and on a copy that was sent to a joiner, which must agree.
pub fn roster(data: &[u8]) {
    let mut r = Reader::new(data);
    let Some(mut roster) = r.u16().ok().and_then(|n| r.take(usize::from(n)).ok()).and_then(decode) else { return };
    let mut seqno = Seqno(10);
    while let (Ok(from), Ok(len)) = (r.u8(), r.u8()) {
        let Ok(body) = r.take(usize::from(len)) else { return };
        let mut copy = decode(&encode(&roster)).expect("what was encoded is decoded");
        assert_eq!(copy, roster);
        seqno = Seqno(seqno.0 + 1);
        let (one, other) = match AppMessage::decode(body) {
            _ if from == 0xff => {
                let view = view(seqno.0, len % 6);
                (roster.apply_view(&view), copy.apply_view(&view))
            }
            Ok(message) => (roster.apply(node(from), message.clone(), seqno), copy.apply(node(from), message, seqno)),
            Err(_) => continue,
        };
        assert_eq!((one, &roster), (other, &copy), "every member computes the same");
    }
}

fn view(number: u64, members: u8) -> View {
    let member = |n| Member { node: node(n), incarnation: Incarnation(1), name: format!("n{n}"), ..Member::default() };
    View { number, members: (1..=members).map(member).collect() }
}

fn encode(roster: &Roster) -> Vec<u8> {
    let mut w = Writer::new();
    roster.encode(&mut w);
    w.buf
}

fn decode(bytes: &[u8]) -> Option<Roster> {
    let mut r = Reader::new(bytes);
    Roster::decode(&mut r).ok()
}

pub fn roster_seeds() -> Vec<Vec<u8>> {
    let mut roster = Roster::default();
    roster.apply_view(&view(1, 3));
    for n in 1..=2 {
        roster.apply(node(n), AppMessage::Joined, Seqno(1));
        roster.apply(node(n), AppMessage::Synced, Seqno(1));
    }
    let state = encode(&roster);
    let mut seed = (state.len() as u16).to_le_bytes().to_vec();
    seed.extend_from_slice(&state);
    for (at, message) in all_messages().into_iter().enumerate() {
        for from in [1 + at as u8 % 3, 3] {
            let body = message.encode();
            seed.extend_from_slice(&[from, body.len() as u8]);
            seed.extend_from_slice(&body);
        }
    }
    seed.extend_from_slice(&[0xff, 2, 0, 0]);
    vec![seed]
}
