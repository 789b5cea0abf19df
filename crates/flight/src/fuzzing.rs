//! For the fuzzers.

use trireme_types::{LogIndex, NodeId, SplitMix, Term, Uuid};

use crate::event::Event;
use crate::reading::Reading;
use crate::record::{Found, Record, UNIT, look};
use crate::ring::{HEAD_LEN, Identity, head};
use crate::timeline::{Lane, Timeline};

/// A file: whatever it holds, what is read of it can be written and read again, said in words and put on a time line.
pub fn file(data: &[u8]) {
    let Ok(reading) = Reading::decode(data) else { return };
    for record in &reading.records {
        assert!(!record.event.sentence().is_empty());
        let _ = (record.event.facts(), record.event.is_trouble(), record.event.topic().word());
        if let Event::Unknown { .. } = record.event {
            continue;
        }
        let mut bytes = Vec::new();
        record.encode(3, &mut bytes);
        assert_eq!(look(3, &bytes), Found::Record(record.clone(), bytes.len() / UNIT));
    }
    let mut half = reading.records.clone();
    half.truncate(half.len() / 2);
    let lanes = [Lane { name: "a".into(), records: reading.records }, Lane { name: "b".into(), records: half }];
    let timeline = Timeline::of(&lanes);
    assert_eq!(timeline.order.len(), lanes[0].records.len() + lanes[1].records.len());
}

pub fn file_seeds() -> Vec<Vec<u8>> {
    let identity = Identity { node: NodeId(Uuid([7; 16])), name: "db1".into() };
    let events = [
        Event::Started { name: "db1".into(), node: "x".into(), version: "1".into(), process: 7 },
        Event::View { number: 1, seqno: Default::default(), members: vec!["db1".into(), "db2".into()] },
        Event::Stopped {},
        Event::Unknown { code: 999 },
    ];
    let mut whole = head(16, &identity, 5);
    for (n, event) in events.into_iter().enumerate() {
        let record = Record {
            sequence: n as u64 + 1,
            unix_ns: SplitMix(n as u64).next(),
            term: Term(1),
            index: Some(LogIndex(n as u64)).filter(|index| index.0 > 0),
            late: n == 1,
            event,
        };
        let unit = (whole.len() - HEAD_LEN) / UNIT;
        record.encode(unit as u32, &mut whole);
    }
    let headless = vec![1; HEAD_LEN].into_iter().chain(whole[HEAD_LEN..].iter().copied()).collect();
    vec![whole, headless]
}
