//! The group level: all that the members of a group do alike.

use std::fmt;

use crate::{DecodeError, Durability, Reader, Writer};

/// Names a set of formats and rules that have to be equal on all members. It rises, and never falls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Level(pub u16);

impl Level {
    /// Of a group in which it was never raised.
    pub const FIRST: Level = Level(1);
    /// From here on the first entry of each term says who orders in it.
    pub const NAMED_TERMS: Level = Level(2);
    /// From here on an inconsistency vote waits for members of which it is not known yet whether they have data, and counts what members have said
    /// that have left since.
    pub const WAITS_FOR_ALL: Level = Level(3);
}

impl Default for Level {
    fn default() -> Level {
        Level::FIRST
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The levels that a build supports, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels {
    pub min: Level,
    pub max: Level,
}

impl Levels {
    /// Of a build that says nothing about levels.
    pub const UNSAID: Levels = Levels { min: Level::FIRST, max: Level::FIRST };

    pub fn contains(self, level: Level) -> bool {
        self.min <= level && level <= self.max
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.max) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

/// A setting that an entry `Setting` puts in force, for the whole group and from its place in the order on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// One byte: 0 for disk, 1 for process.
    Durability(Durability),
    /// The byte 2 and the level, two bytes.
    Level(Level),
}

impl Setting {
    pub fn encode(self, w: &mut Writer) {
        match self {
            Setting::Durability(Durability::Disk) => w.u8(0),
            Setting::Durability(Durability::Process) => w.u8(1),
            Setting::Level(level) => {
                w.u8(2);
                w.u16(level.0);
            }
        }
    }

    /// **Errors:** anything else, what stands behind it included.
    pub fn decode(payload: &[u8]) -> Result<Setting, DecodeError> {
        let mut r = Reader::new(payload);
        let setting = match r.u8()? {
            0 => Setting::Durability(Durability::Disk),
            1 => Setting::Durability(Durability::Process),
            2 => Setting::Level(Level(r.u16()?)),
            _ => return Err(DecodeError::Invalid("setting")),
        };
        r.finish()?;
        Ok(setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip_and_others_are_refused() {
        for setting in [
            Setting::Durability(Durability::Disk),
            Setting::Durability(Durability::Process),
            Setting::Level(Level(0x0102)),
        ] {
            let mut w = Writer::new();
            setting.encode(&mut w);
            assert_eq!(Setting::decode(&w.buf), Ok(setting));
            w.u8(0);
            assert!(Setting::decode(&w.buf).is_err());
        }
        for bad in [&[][..], &[3], &[2], &[2, 1]] {
            assert!(Setting::decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_range_has_both_of_its_ends() {
        let levels = Levels { min: Level(2), max: Level(3) };
        assert!(levels.contains(Level(2)) && levels.contains(Level(3)));
        assert!(!levels.contains(Level(1)) && !levels.contains(Level(4)));
        assert_eq!((levels.to_string(), Levels::UNSAID.to_string()), ("2 to 3".to_owned(), "1".to_owned()));
    }
}
