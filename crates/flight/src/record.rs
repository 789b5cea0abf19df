//! How an event is written: a record of whole units of 64 bytes.
//!
//! The first byte of each unit says whether a record begins in it or goes on; the other 63 are the record's. So nothing that stands in a
//! record, such as a text that a stranger sent, can pass for the beginning of one, and a reader finds the next record behind any damage.
//!
//! | bytes of a record | |
//! |---|---|
//! | 0–1 | length of what follows byte 5 |
//! | 2–5 | CRC-32 of the number of the unit in which it begins, of the length and of what follows |
//! | 6–13 | sequence number: rises by one for each record, over all starts |
//! | 14–21 | when, in nanoseconds since 1970, by the clock of the machine |
//! | 22–29 | the term that the node knew |
//! | 30–37 | index in the log of what this is about; 0: not of an entry |
//! | 38 | bit 0: read from the log later than it was ordered |
//! | 39– | kind (2 bytes) and fields, see [`Event`] |
//!
//! Numbers are little-endian.

use trireme_types::{DecodeError, LogIndex, Reader, Term, Writer};

use crate::event::{Event, LIST_MAX, TEXT_MAX};

/// A record begins at a multiple of it.
pub const UNIT: usize = 64;
/// Of a unit, without its first byte.
const ROOM: usize = UNIT - 1;
/// The longest record: no event is longer, which a test holds.
pub const UNITS_MAX: usize = 40;
const BEGINS: u8 = b'R';
const GOES_ON: u8 = b'c';
/// Length and checksum.
const HEAD: usize = 6;
const LATE: u8 = 1;

const _: () = assert!(UNITS_MAX * ROOM > HEAD + 64 + LIST_MAX * 66);
const _: () = assert!(UNITS_MAX * ROOM > HEAD + 64 + 4 * (TEXT_MAX + 2));

/// Something that happened, and when.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// Given by the file, see [`crate::Ring`].
    pub sequence: u64,
    /// By the clock of the machine.
    pub unix_ns: u64,
    /// That the node knew; zero: none yet.
    pub term: Term,
    /// Of the entry that this is about.
    pub index: Option<LogIndex>,
    /// The entry was read from the log, or caught up with, later than it was ordered: the time says nothing about when.
    pub late: bool,
    pub event: Event,
}

impl Record {
    /// Appends whole units. `unit`: where they will stand.
    pub fn encode(&self, unit: u32, out: &mut Vec<u8>) {
        let mut w = Writer::new();
        w.u64(self.sequence);
        w.u64(self.unix_ns);
        w.u64(self.term.0);
        w.u64(self.index.map_or(0, |index| index.0));
        w.u8(if self.late { LATE } else { 0 });
        self.event.encode(&mut w);
        let len = u16::try_from(w.buf.len()).expect("events are short");
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.extend(checksum(unit, &w.buf).to_le_bytes());
        bytes.extend(w.buf);
        for (at, part) in bytes.chunks(ROOM).enumerate() {
            out.push(if at == 0 { BEGINS } else { GOES_ON });
            out.extend_from_slice(part);
            out.resize(out.len().next_multiple_of(UNIT), 0);
        }
    }

    /// Of how many units it will be.
    pub fn units(&self) -> usize {
        let mut out = Vec::new();
        self.encode(0, &mut out);
        out.len() / UNIT
    }
}

fn checksum(unit: u32, body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&unit.to_le_bytes());
    crc.update(&(body.len() as u16).to_le_bytes());
    crc.update(body);
    crc.finalize()
}

/// The content of a unit.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// A record, of so many units.
    Record(Record, usize),
    /// Nothing was ever written, or it belongs to a record whose beginning is gone.
    Nothing,
    /// A record begins here that was written in part only, or damaged.
    Torn,
}

/// Looks at the unit at the beginning of `bytes`, which is the given one in its file.
pub fn look(unit: u32, bytes: &[u8]) -> Found {
    match bytes.first() {
        Some(&BEGINS) => {}
        Some(_) | None => return Found::Nothing,
    }
    let Some(found) = decode(unit, bytes) else { return Found::Torn };
    found
}

fn decode(unit: u32, bytes: &[u8]) -> Option<Found> {
    let first = bytes.get(..UNIT)?;
    let len = usize::from(u16::from_le_bytes([first[1], first[2]]));
    let crc = u32::from_le_bytes([first[3], first[4], first[5], first[6]]);
    let units = (HEAD + len).div_ceil(ROOM);
    if units > UNITS_MAX {
        return None;
    }
    let mut whole = Vec::with_capacity(units * ROOM);
    for (at, part) in bytes.get(..units * UNIT)?.chunks_exact(UNIT).enumerate() {
        if at > 0 && part[0] != GOES_ON {
            return None;
        }
        whole.extend_from_slice(&part[1..]);
    }
    let body = whole.get(HEAD..HEAD + len)?;
    if checksum(unit, body) != crc {
        return None;
    }
    // Written by a version that means something else by it: as good as torn.
    read(body).ok().map(|record| Found::Record(record, units))
}

fn read(body: &[u8]) -> Result<Record, DecodeError> {
    let mut r = Reader::new(body);
    let sequence = r.u64()?;
    let unix_ns = r.u64()?;
    let term = r.term()?;
    let index = r.index()?;
    let late = r.u8()? & LATE != 0;
    let event = Event::decode(&mut r)?;
    Ok(Record { sequence, unix_ns, term, index: Some(index).filter(|index| index.0 > 0), late, event })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn record(sequence: u64, event: Event) -> Record {
        Record {
            sequence,
            unix_ns: 1_000_000_000 * sequence,
            term: Term(3),
            index: Some(LogIndex(sequence)),
            late: false,
            event,
        }
    }

    fn long() -> Event {
        Event::View {
            number: 7,
            seqno: trireme_types::Seqno(9),
            members: (0..LIST_MAX).map(|n| format!("{n:064}")).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for event in [Event::Stopped {}, Event::Error { text: "é".repeat(240) }, long()] {
            let record = record(5, event);
            let mut bytes = Vec::new();
            record.encode(17, &mut bytes);
            assert_eq!(bytes.len() % UNIT, 0);
            assert!(bytes.len() / UNIT <= UNITS_MAX);
            assert_eq!(look(17, &bytes), Found::Record(record.clone(), record.units()));
            // At another place it is an older lap's, or somebody's forgery.
            assert_eq!(look(18, &bytes), Found::Torn);
        }
    }

    #[test]
    fn every_tear_and_every_wrong_bit_shows() {
        let record = record(5, long());
        let mut bytes = Vec::new();
        record.encode(0, &mut bytes);
        for len in 0..bytes.len() - UNIT {
            assert!(!matches!(look(0, &bytes[..len]), Found::Record(..)), "{len}");
            // The rest is what stood there before.
            let mut torn = bytes.clone();
            torn[len..].fill(0);
            assert!(!matches!(look(0, &torn), Found::Record(..)), "{len}");
        }
        let end = HEAD + 33 + 2 + 16 + 2 + LIST_MAX * 66;
        for at in 0..end {
            let mut wrong = bytes.clone();
            wrong[at / ROOM * UNIT + 1 + at % ROOM] ^= 4;
            assert_eq!(look(0, &wrong), Found::Torn, "{at}");
        }
    }

    #[test]
    fn a_text_that_looks_like_a_record_is_none() {
        let mut inner = Vec::new();
        record(9, Event::Stopped {}).encode(1, &mut inner);
        // Bytes as a stranger may send them: valid text, and aligned in every possible way.
        let inner: String = inner.iter().map(|byte| char::from(byte & 0x7f)).collect();
        for shift in 0..UNIT {
            let outer = record(5, Event::Warned { text: "R".repeat(shift) + &inner.repeat(3) });
            let mut bytes = Vec::new();
            outer.encode(0, &mut bytes);
            for unit in 1..bytes.len() / UNIT {
                assert_eq!(look(unit as u32, &bytes[unit * UNIT..]), Found::Nothing, "{shift}");
            }
        }
    }
}
