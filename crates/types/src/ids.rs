//! Identifiers and positions. Each is a newtype so that one can never be passed for another.

use std::fmt;
use std::time::Duration;

/// A 128-bit identifier, printed in the canonical 8-4-4-4-12 form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    pub const NIL: Uuid = Uuid([0; 16]);

    pub fn is_nil(self) -> bool {
        self == Self::NIL
    }

    /// Parses the 36-character form. `None` for anything else.
    pub fn parse(text: &str) -> Option<Uuid> {
        let text = text.as_bytes();
        if text.len() != 36 {
            return None;
        }
        let mut out = [0u8; 16];
        let mut nibbles = 0;
        for (at, &c) in text.iter().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if c != b'-' {
                    return None;
                }
                continue;
            }
            let digit = (c as char).to_digit(16)? as u8;
            out[nibbles / 2] = (out[nibbles / 2] << 4) | digit;
            nibbles += 1;
        }
        Some(Uuid(out))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The stable identity of a voter. It belongs to the log, not to the process: see rule 12 in docs/protocol.md.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct NodeId(pub Uuid);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub struct $name(pub $int);

        impl $name {
            pub const ZERO: $name = $name(0);
            pub fn next(self) -> Self {
                $name(self.0 + 1)
            }
            /// The one before; stays at zero.
            pub fn prev(self) -> Self {
                $name(self.0.saturating_sub(1))
            }
            pub fn raw(self) -> $int {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

/// The highest number that is taken from outside (a peer, a disk, a file, the server) where numbers are counted up one by one. None
/// that was counted comes near it; and from here on a node can count for longer than it lives without a number that does not fit, be
/// it into the signed 64 bits of the server's interface.
pub const NUMBER_MAX: u64 = 1 << 62;

/// Highest term that is taken from outside. Terms are no counters: whoever lies can drive them up, as far as the time lets it, and an operator
/// a bit further. Elections have to go on from there, so terms that follow have to be readable.
pub const TERM_MAX: Term = Term((1 << 63) - 1);

number!(
    /// Position in the total order as the server sees it. The first event is 1; zero is "nothing yet".
    Seqno, u64
);
number!(
    /// Position in the log. Every entry takes one, also those that take no seqno. The first entry is 1.
    LogIndex, u64
);
number!(
    /// The time in which one sequencer orders, by number. Changes often, takes no seqno, invisible to the server.
    Term, u64
);
number!(
    /// Counts the proposals of one session, from 1 on. Zero stands for none.
    ProposalNumber, u64
);
number!(
    /// Counts the starts of a node; part of the member UUID that the server sees.
    Incarnation, u32
);
number!(
    /// Vote weight, 0..=255.
    Weight, u8
);
number!(
    /// Nanoseconds since an arbitrary start. Always an argument, never read inside a pure crate.
    Timestamp, u64
);

impl Seqno {
    /// A seqno from outside; `None` for a number that cannot be one.
    pub fn from_outside(number: impl TryInto<u64>) -> Option<Seqno> {
        number.try_into().ok().filter(|n| *n <= NUMBER_MAX).map(Seqno)
    }
}

impl Timestamp {
    pub fn after(self, d: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(d.as_nanos().min(u128::from(u64::MAX)) as u64))
    }
    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// One run of numbered write sets of one origin (rules 4, 23). `number` rises at every start and whenever a sent
/// write set is abandoned: `incarnation << 32 | counter`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Session {
    pub node: NodeId,
    pub number: u64,
}

impl Session {
    pub fn first(node: NodeId, incarnation: Incarnation) -> Session {
        Session { node, number: u64::from(incarnation.0) << 32 }
    }
    pub fn following(self) -> Session {
        Session { number: self.number + 1, ..self }
    }
    pub fn incarnation(self) -> Incarnation {
        Incarnation((self.number >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_round_trips_and_rejects_other_text() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(Uuid::parse(text).unwrap().to_string(), text);
        for bad in ["", "01234567", "0123456789abcdef0123456789abcdef0123", "g1234567-89ab-cdef-0123-456789abcdef"] {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
    }
}
