//! Takes a file apart, whatever is in it.

use trireme_types::{NodeId, Uuid};

use crate::record::{Found, Record, UNIT, look};
use crate::ring::{HEAD_COVERED, HEAD_LEN, Identity, MAGIC, VERSION};

/// The content of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// Whose it is; `None`: the head is damaged.
    pub identity: Option<Identity>,
    /// In the order in which they were written.
    pub records: Vec<Record>,
    /// Records that are damaged, or were written in part.
    pub torn: usize,
    /// Numbers that lack between the first record and the last.
    pub missing: u64,
    /// Units for which the file was made.
    pub units: u32,
    /// Behind the newest record. May be behind the last unit.
    pub next_unit: u32,
    pub next_sequence: u64,
}

/// Why a file tells nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    Empty,
    /// Another program's.
    NotOurs,
    /// Of a version that is not known here.
    Version(u32),
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bad::Empty => f.write_str("it is empty: nothing was recorded yet"),
            Bad::NotOurs => f.write_str("it is no flight recorder's file"),
            Bad::Version(n) => write!(
                f,
                "its format is {n}, and this program knows {VERSION} only: use the `trireme` of the node's version"
            ),
        }
    }
}

impl Reading {
    /// Reads as much as can be read.
    pub fn decode(bytes: &[u8]) -> Result<Reading, Bad> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(Bad::Empty);
        }
        let head = head(bytes);
        if let Head::Version(version) = head {
            return Err(Bad::Version(version));
        }
        let data = bytes.get(HEAD_LEN..).unwrap_or(&[]);
        let held = u32::try_from(data.len() / UNIT).unwrap_or(u32::MAX);
        let (identity, units) = match head {
            Head::Whole(identity, units) => (Some(identity), units),
            Head::Damaged | Head::Version(_) => (None, held),
        };
        let mut out =
            Reading { identity, records: Vec::new(), torn: 0, missing: 0, units, next_unit: 0, next_sequence: 1 };
        let mut unit = 0;
        while unit < held.min(units) {
            match look(unit, &data[unit as usize * UNIT..]) {
                Found::Record(record, count) => {
                    unit += count as u32;
                    if record.sequence >= out.next_sequence && record.sequence < u64::MAX {
                        (out.next_sequence, out.next_unit) = (record.sequence + 1, unit);
                    }
                    out.records.push(record);
                }
                Found::Torn => {
                    out.torn += 1;
                    unit += 1;
                }
                Found::Nothing => unit += 1,
            }
        }
        if out.identity.is_none() && out.records.is_empty() {
            return Err(Bad::NotOurs);
        }
        out.records.sort_by_key(|record| record.sequence);
        let numbers = out.records.windows(2).map(|pair| pair[1].sequence.saturating_sub(pair[0].sequence + 1));
        out.missing = numbers.fold(0, u64::saturating_add);
        Ok(out)
    }
}

enum Head {
    Whole(Identity, u32),
    Damaged,
    Version(u32),
}

fn head(bytes: &[u8]) -> Head {
    let Some(head) = bytes.get(..HEAD_LEN) else { return Head::Damaged };
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| head[at + n]));
    if &head[..8] != MAGIC || crc32fast::hash(&head[HEAD_COVERED]) != word(12) {
        return Head::Damaged;
    }
    if word(8) != VERSION {
        return Head::Version(word(8));
    }
    let name = usize::from(u16::from_le_bytes([head[48], head[49]]));
    let name = head[50..HEAD_COVERED.end].get(..name).map(String::from_utf8_lossy);
    let units = u64::from_le_bytes(std::array::from_fn(|n| head[16 + n]));
    let (Some(name), Ok(units)) = (name, u32::try_from(units)) else { return Head::Damaged };
    let node = NodeId(Uuid(std::array::from_fn(|n| head[24 + n])));
    Head::Whole(Identity { node, name: name.into_owned() }, units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::record::tests::record;
    use crate::ring;

    fn file() -> Vec<u8> {
        let identity = Identity { node: NodeId(Uuid([7; 16])), name: "db1".into() };
        let mut bytes = ring::head(64, &identity, 0);
        for n in 1..=10 {
            let unit = (bytes.len() - HEAD_LEN) / UNIT;
            record(n, Event::Error { text: format!("{n:100}") }).encode(unit as u32, &mut bytes);
        }
        bytes.resize(HEAD_LEN + 64 * UNIT, 0);
        bytes
    }

    #[test]
    fn foreign_empty_and_future_files_are_told_apart() {
        assert_eq!(Reading::decode(b""), Err(Bad::Empty));
        assert_eq!(Reading::decode(&[0; 10_000]), Err(Bad::Empty));
        assert_eq!(Reading::decode(b"#!/bin/sh"), Err(Bad::NotOurs));
        let noise: Vec<u8> = (0..20_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        assert_eq!(Reading::decode(&noise), Err(Bad::NotOurs));
        let mut future = file();
        future[8] = 2;
        assert_eq!(Reading::decode(&future), Err(Bad::Version(2)));
    }

    #[test]
    fn damage_costs_what_is_damaged_and_no_more() {
        let whole = Reading::decode(&file()).unwrap();
        assert_eq!((whole.records.len(), whole.torn, whole.missing), (10, 0, 0));
        for at in (HEAD_LEN..file().len()).step_by(13) {
            let mut bytes = file();
            bytes[at] ^= 0xff;
            let reading = Reading::decode(&bytes).unwrap();
            assert!(reading.records.len() >= 9, "{at}");
            assert!(reading.records.iter().all(|record| whole.records.contains(record)), "{at}");
        }
        // In the middle of the file the rest is missed by its number.
        let mut bytes = file();
        bytes[HEAD_LEN + 15 * UNIT + 9] ^= 1;
        let reading = Reading::decode(&bytes).unwrap();
        assert_eq!((reading.records.len(), reading.torn, reading.missing), (9, 1, 1));
        // A head that was torn costs the name.
        let mut bytes = file();
        bytes[20] ^= 1;
        let reading = Reading::decode(&bytes).unwrap();
        assert_eq!((reading.identity, reading.records.len()), (None, 10));
        // A file that was cut off.
        let reading = Reading::decode(&file()[..HEAD_LEN + 10 * UNIT]).unwrap();
        assert!(reading.records.len() >= 3);
    }
}
