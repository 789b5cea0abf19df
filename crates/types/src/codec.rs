//! Little-endian encoding shared by frames, log records and metadata.
//!
//! Decoding never panics and never allocates more than the input's own length: every count is checked against what is left.

use crate::{LogIndex, NUMBER_MAX, ProposalNumber, Seqno, TERM_MAX, Term, Uuid};

/// Why bytes could not be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The input ends before the value does.
    Truncated,
    /// A field holds a value that no encoder writes.
    Invalid(&'static str),
    /// A length or count exceeds its limit.
    TooLong(&'static str),
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("input ends in the middle of a value"),
            DecodeError::Invalid(what) => write!(f, "invalid {what}"),
            DecodeError::TooLong(what) => write!(f, "{what} exceeds its limit"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Appends values to a buffer.
#[derive(Default)]
pub struct Writer {
    pub buf: Vec<u8>,
}

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }
    pub fn u8(&mut self, v: u8) {
        self.buf.push(v);
    }
    pub fn bool(&mut self, v: bool) {
        self.u8(u8::from(v));
    }
    pub fn u16(&mut self, v: u16) {
        self.buf.extend_from_slice(&v.to_le_bytes());
    }
    pub fn u32(&mut self, v: u32) {
        self.buf.extend_from_slice(&v.to_le_bytes());
    }
    pub fn u64(&mut self, v: u64) {
        self.buf.extend_from_slice(&v.to_le_bytes());
    }
    pub fn uuid(&mut self, v: Uuid) {
        self.buf.extend_from_slice(&v.0);
    }
    /// Length (u64) and bytes.
    pub fn bytes(&mut self, v: &[u8]) {
        self.u64(v.len() as u64);
        self.buf.extend_from_slice(v);
    }
    pub fn str(&mut self, v: &str) {
        self.bytes(v.as_bytes());
    }
    pub fn raw(&mut self, v: &[u8]) {
        self.buf.extend_from_slice(v);
    }
}

/// Takes values from a slice.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        if n > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        let (head, tail) = self.rest.split_at(n);
        self.rest = tail;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("boolean")),
        }
    }
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        Ok(Uuid(self.array()?))
    }
    /// Something that is counted from zero and goes on rising by one: at most [`NUMBER_MAX`].
    pub fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Some(self.u64()?).filter(|n| *n <= NUMBER_MAX).ok_or(DecodeError::TooLong(what))
    }
    pub fn seqno(&mut self) -> Result<Seqno, DecodeError> {
        self.number("seqno").map(Seqno)
    }
    pub fn index(&mut self) -> Result<LogIndex, DecodeError> {
        self.number("log index").map(LogIndex)
    }
    pub fn proposal_number(&mut self) -> Result<ProposalNumber, DecodeError> {
        self.number("proposal number").map(ProposalNumber)
    }
    pub fn term(&mut self) -> Result<Term, DecodeError> {
        Some(Term(self.u64()?)).filter(|term| *term <= TERM_MAX).ok_or(DecodeError::TooLong("term"))
    }
    /// A u32 count of items of at least one byte each, at most `max`.
    pub fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let n = self.u32()? as usize;
        if n > max || n > self.rest.len() {
            return Err(DecodeError::TooLong("count"));
        }
        Ok(n)
    }
    /// The bytes that [`Writer::bytes`] wrote, at most `max` of them.
    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8], DecodeError> {
        let n = self.u64()?;
        if n > max as u64 {
            return Err(DecodeError::TooLong("byte string"));
        }
        self.take(n as usize)
    }
    pub fn str(&mut self, max: usize) -> Result<String, DecodeError> {
        let bytes = self.bytes(max)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Invalid("UTF-8"))
    }
    /// Fails unless everything was taken.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Invalid("trailing bytes")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Base, EntryHeader, EntryKind, Fork, Lineage, NodeId, Session, View};

    const BEYOND: u64 = NUMBER_MAX + 1;

    fn encoded(encode: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::new();
        encode(&mut w);
        w.buf
    }

    #[test]
    fn what_is_counted_ends_long_before_the_numbers_do() {
        for (number, taken) in [(0, true), (NUMBER_MAX, true), (BEYOND, false), (1 << 63, false), (u64::MAX, false)] {
            let bytes = number.to_le_bytes();
            assert_eq!(Reader::new(&bytes).seqno().is_ok(), taken, "{number}");
            assert_eq!(Reader::new(&bytes).index().is_ok(), taken, "{number}");
            assert_eq!(Seqno::from_outside(number).is_some(), taken, "{number}");
        }
        assert_eq!(Seqno::from_outside(-1), None);
    }

    /// Above where a liar can drive them to there is room for elections.
    #[test]
    fn terms_end_later() {
        for (term, taken) in [(0, true), (BEYOND, true), (TERM_MAX.0, true), (TERM_MAX.0 + 1, false), (u64::MAX, false)]
        {
            assert_eq!(Reader::new(&term.to_le_bytes()).term().is_ok(), taken, "{term}");
        }
    }

    #[test]
    fn no_part_of_an_entry_lies_beyond() {
        let header = EntryHeader {
            index: LogIndex(NUMBER_MAX),
            term: TERM_MAX,
            seqno: Seqno(NUMBER_MAX),
            voters: LogIndex(NUMBER_MAX),
            session: Session { node: NodeId(Uuid([1; 16])), number: u64::MAX },
            number: ProposalNumber(NUMBER_MAX),
            kind: EntryKind::View,
        };
        let decode = |h: &EntryHeader| EntryHeader::decode(&mut Reader::new(&encoded(|w| h.encode(w))));
        assert_eq!(decode(&header), Ok(header));
        let beyond = [
            EntryHeader { index: LogIndex(BEYOND), ..header },
            EntryHeader { term: TERM_MAX.next(), ..header },
            EntryHeader { seqno: Seqno(BEYOND), ..header },
            EntryHeader { voters: LogIndex(BEYOND), ..header },
            EntryHeader { number: ProposalNumber(BEYOND), ..header },
        ];
        for header in beyond {
            assert!(matches!(decode(&header), Err(DecodeError::TooLong(_))), "{header:?}");
        }
    }

    #[test]
    fn no_view_fork_or_base_lies_beyond() {
        let view = encoded(|w| View { number: BEYOND, members: Vec::new() }.encode(w));
        assert_eq!(View::decode(&mut Reader::new(&view)), Err(DecodeError::TooLong("view number")));
        let fork = Fork { index: LogIndex(1), seqno: Seqno(BEYOND), id: Uuid([1; 16]) };
        let lineage = encoded(|w| Lineage::default().with(fork).encode(w));
        assert_eq!(Lineage::decode(&mut Reader::new(&lineage)), Err(DecodeError::TooLong("seqno")));
        let beyond = [
            Base { index: LogIndex(BEYOND), ..Base::default() },
            Base { term: TERM_MAX.next(), ..Base::default() },
            Base { seqno: Seqno(BEYOND), ..Base::default() },
            Base { voters_at: LogIndex(BEYOND), ..Base::default() },
            Base { view: View { number: BEYOND, members: Vec::new() }, ..Base::default() },
        ];
        for base in beyond {
            let bytes = encoded(|w| base.encode(w));
            assert!(matches!(Base::decode(&mut Reader::new(&bytes)), Err(DecodeError::TooLong(_))), "{base:?}");
        }
    }
}
