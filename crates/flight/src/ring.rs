//! The file: a head, and units that are written round and round.
//!
//! | bytes | |
//! |---|---|
//! | 0–7 | `TRIFLIGH` |
//! | 8–11 | version, 1 |
//! | 12–15 | CRC-32 of bytes 16–511 |
//! | 16–23 | number of units |
//! | 24–39 | id of the node |
//! | 40–47 | when the head was written, in nanoseconds since 1970 |
//! | 48–49 | length of the node's name, and the name |
//! | 512– | units of 64 bytes, see [`crate::record`] |
//!
//! The file has its full size from the beginning, so that a full disk does not stop it. A record never reaches over the end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use trireme_types::NodeId;

use crate::reading::{Bad, Reading};
use crate::record::{Record, UNIT, UNITS_MAX};

/// In the directory of the write-set log. The ending keeps the server's scripts for full copies away from it.
pub const FILE_NAME: &str = "trireme.flight.galera.cache";
/// The name for a file that was found in the place and is another node's, or of a later version.
pub const FORMER_NAME: &str = "trireme.flight.former.galera.cache";
pub const HEAD_LEN: usize = 512;
pub(crate) const MAGIC: &[u8; 8] = b"TRIFLIGH";
pub const VERSION: u32 = 1;
/// The part of the head that its checksum covers.
pub(crate) const HEAD_COVERED: std::ops::Range<usize> = 16..HEAD_LEN;
const NAME_MAX: usize = 256;
/// The least that is worth a file.
pub const LEN_MIN: u64 = 64 << 10;
/// Nothing in it is worth more.
pub const LEN_MAX: u64 = 1 << 30;
/// Zeros are written in pieces.
const PIECE: usize = 1 << 20;

/// Whose file it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub node: NodeId,
    pub name: String,
}

/// The place that records are written to.
pub trait Medium {
    /// All of it, or an error.
    fn put(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl Medium for File {
    fn put(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

/// The writer of one file.
pub struct Ring<M = File> {
    medium: M,
    units: u32,
    /// Where the next record goes.
    unit: u32,
    sequence: u64,
}

/// The number of units in a file of so many bytes.
pub fn units_of(len: u64) -> u32 {
    ((len.clamp(LEN_MIN, LEN_MAX) - HEAD_LEN as u64) / UNIT as u64) as u32
}

pub(crate) fn head(units: u32, identity: &Identity, unix_ns: u64) -> Vec<u8> {
    let mut out = vec![0; HEAD_LEN];
    let mut end = identity.name.len().min(NAME_MAX);
    while !identity.name.is_char_boundary(end) {
        end -= 1;
    }
    let name = &identity.name.as_bytes()[..end];
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[16..24].copy_from_slice(&u64::from(units).to_le_bytes());
    out[24..40].copy_from_slice(&identity.node.0.0);
    out[40..48].copy_from_slice(&unix_ns.to_le_bytes());
    out[48..50].copy_from_slice(&(name.len() as u16).to_le_bytes());
    out[50..50 + name.len()].copy_from_slice(name);
    let crc = crc32fast::hash(&out[HEAD_COVERED]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out
}

impl Ring {
    /// Goes on with the file in `dir`, or makes it, `len` bytes long. A file of another node, or of a later version, is put
    /// aside under [`FORMER_NAME`]. `now`: in nanoseconds since 1970. **Errors:** the disk's.
    pub fn open(dir: &Path, len: u64, identity: &Identity, now: u64) -> io::Result<Ring> {
        let path = dir.join(FILE_NAME);
        let units = units_of(len);
        let kept = match former(&path, identity)? {
            Former::None => Vec::new(),
            Former::Ours(reading) if reading.units == units => {
                let file = open(&path, false)?;
                file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
                let mut ring = Ring { medium: file, units, unit: reading.next_unit, sequence: reading.next_sequence };
                // The name may be another one.
                ring.medium.put(&head(units, identity, now), 0)?;
                ring.unit %= ring.units;
                return Ok(ring);
            }
            // The option has changed: what fits is taken along.
            Former::Ours(reading) => reading.records,
            Former::Foreign => {
                std::fs::rename(&path, dir.join(FORMER_NAME))?;
                Vec::new()
            }
        };
        // Made under another name, so that a disk that gets full in the middle costs nothing.
        let new = NewFile(dir.join("trireme.flight.tmp.galera.cache"));
        let _ = std::fs::remove_file(&new.0);
        let file = open(&new.0, true)?;
        let whole = HEAD_LEN + units as usize * UNIT;
        let zeros = vec![0; PIECE.min(whole)];
        for at in (0..whole).step_by(PIECE) {
            file.put(&zeros[..PIECE.min(whole - at)], at as u64)?;
        }
        file.put(&head(units, identity, now), 0)?;
        let next = kept.last().map_or(1, |record| record.sequence + 1);
        let mut ring = Ring { medium: file, units, unit: 0, sequence: next };
        ring.write(newest(&kept, units as usize - UNITS_MAX))?;
        std::fs::rename(&new.0, &path)?;
        Ok(ring)
    }
}

/// The newest of them that take at most so many units.
fn newest(records: &[Record], units_max: usize) -> &[Record] {
    let mut units = 0;
    let fit = records.iter().rev().take_while(|record| {
        units += record.units();
        units <= units_max
    });
    &records[records.len() - fit.count()..]
}

/// Removed unless it has been given its name.
struct NewFile(PathBuf);

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

enum Former {
    None,
    Ours(Reading),
    Foreign,
}

fn former(path: &Path, identity: &Identity) -> io::Result<Former> {
    let mut options = OpenOptions::new();
    // No link is followed, and no pipe is waited for: the directory is the server's, but a copy may have brought one.
    let file = match options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Former::None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(Former::Foreign),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Ok(Former::Foreign);
    }
    let mut bytes = Vec::new();
    file.take(LEN_MAX).read_to_end(&mut bytes)?;
    Ok(match Reading::decode(&bytes) {
        Ok(reading) if reading.identity.as_ref().is_some_and(|found| found.node == identity.node) => {
            Former::Ours(reading)
        }
        Ok(_) => Former::Foreign,
        Err(Bad::Empty) => Former::None,
        Err(Bad::NotOurs | Bad::Version(_)) => Former::Foreign,
    })
}

fn open(path: &Path, new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(new).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)
}

impl<M: Medium> Ring<M> {
    /// A new one in a medium that holds zeros.
    pub fn blank(medium: M, units: u32) -> Ring<M> {
        Ring { medium, units, unit: 0, sequence: 1 }
    }

    /// Numbers the records, from the next number on, and writes them. **Errors:** some of them may not be there.
    pub fn append(&mut self, records: &mut [Record]) -> io::Result<()> {
        for record in records.iter_mut() {
            record.sequence = self.sequence;
            self.sequence += 1;
        }
        self.write(records)
    }

    fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let mut batch = Vec::new();
        let mut begin = self.unit;
        for record in records {
            let before = batch.len();
            record.encode(self.unit, &mut batch);
            let units = ((batch.len() - before) / UNIT) as u32;
            if self.unit + units > self.units {
                // To the beginning. The records that an older lap left at the end would be older than those between.
                batch.truncate(before);
                batch.resize((self.units - begin) as usize * UNIT, 0);
                self.flush(&batch, begin)?;
                batch.clear();
                (self.unit, begin) = (0, 0);
                record.encode(0, &mut batch);
            }
            self.unit += units;
        }
        self.flush(&batch, begin)
    }

    fn flush(&self, batch: &[u8], unit: u32) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.medium.put(batch, (HEAD_LEN + unit as usize * UNIT) as u64)
    }

    pub fn medium(&self) -> &M {
        &self.medium
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::record::tests::record;
    use std::cell::RefCell;
    use trireme_types::Uuid;

    pub struct Memory(RefCell<Vec<u8>>);

    impl Medium for Memory {
        fn put(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            let offset = offset as usize;
            self.0.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    fn identity(id: u8) -> Identity {
        Identity { node: NodeId(Uuid([id; 16])), name: format!("db{id}") }
    }

    fn memory(units: u32) -> Ring<Memory> {
        let mut bytes = head(units, &identity(1), 7);
        bytes.resize(HEAD_LEN + units as usize * UNIT, 0);
        Ring::blank(Memory(RefCell::new(bytes)), units)
    }

    fn text(n: u64) -> Event {
        Event::Warned { text: "x".repeat((n * 37 % 400) as usize) }
    }

    fn sequences(reading: &Reading) -> Vec<u64> {
        reading.records.iter().map(|record| record.sequence).collect()
    }

    #[test]
    fn the_newest_are_kept_without_a_gap() {
        let mut ring = memory(50);
        for n in 1..500 {
            ring.append(&mut [record(0, text(n))]).unwrap();
            let reading = Reading::decode(&ring.medium.0.borrow()).unwrap();
            let found = sequences(&reading);
            assert_eq!(found.last(), Some(&n));
            assert!(found.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{found:?}");
            assert!(n < 5 || found.len() >= 4, "{found:?}");
            assert_eq!((reading.torn, reading.missing), (0, 0), "{n}");
            assert_eq!(reading.next_sequence, n + 1);
            assert_eq!(reading.next_unit % 50, ring.unit % 50, "{n}");
        }
    }

    #[test]
    fn one_batch_may_go_round() {
        let mut ring = memory(50);
        let mut records: Vec<Record> = (1..40).map(|n| record(n, text(n))).collect();
        ring.append(&mut records).unwrap();
        let reading = Reading::decode(&ring.medium.0.borrow()).unwrap();
        assert_eq!(reading.records.last(), records.last());
        assert_eq!(reading.torn, 0);
    }

    #[test]
    fn whatever_part_of_a_write_arrives_the_others_are_read() {
        let mut ring = memory(40);
        for n in 1..60 {
            ring.append(&mut [record(0, text(n))]).unwrap();
        }
        let before = ring.medium.0.borrow().clone();
        let old = sequences(&Reading::decode(&before).unwrap());
        ring.append(&mut [record(0, text(11)), record(0, text(5))]).unwrap();
        let after = ring.medium.0.borrow().clone();
        // In pieces of the disk, in any order: each piece is old or new.
        for pieces in 0..64_u32 {
            let mut bytes = before.clone();
            for (piece, at) in (HEAD_LEN..bytes.len()).step_by(UNIT * 3).enumerate() {
                if pieces >> (piece % 6) & 1 == 1 {
                    let end = bytes.len().min(at + UNIT * 3);
                    bytes[at..end].copy_from_slice(&after[at..end]);
                }
            }
            let found = sequences(&Reading::decode(&bytes).unwrap());
            // The records that the write did not touch are there.
            let untouched: Vec<u64> =
                sequences(&Reading::decode(&after).unwrap()).into_iter().filter(|n| old.contains(n)).collect();
            assert!(untouched.iter().all(|n| found.contains(n)), "{pieces:b}: {found:?} of {untouched:?}");
        }
    }

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let dir = std::env::temp_dir().join(format!("trireme-flight-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).unwrap();
            Dir(dir)
        }

        fn read(&self, name: &str) -> Result<Reading, Bad> {
            Reading::decode(&std::fs::read(self.0.join(name)).unwrap())
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_restart_goes_on_where_the_last_run_ended() {
        let dir = Dir::new("restart");
        for start in 0..3 {
            let mut ring = Ring::open(&dir.0, LEN_MIN, &identity(1), start).unwrap();
            ring.append(&mut [record(0, text(start)), record(0, Event::Stopped {})]).unwrap();
        }
        let path = dir.0.join(FILE_NAME);
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, LEN_MIN));
        let reading = dir.read(FILE_NAME).unwrap();
        assert_eq!(sequences(&reading), [1, 2, 3, 4, 5, 6]);
        assert_eq!(reading.identity, Some(identity(1)));
        assert!(!dir.0.join(FORMER_NAME).exists());
    }

    #[test]
    fn another_size_takes_along_what_fits() {
        let dir = Dir::new("size");
        let mut ring = Ring::open(&dir.0, 4 * LEN_MIN, &identity(1), 0).unwrap();
        for n in 0..2000 {
            ring.append(&mut [record(0, Event::Error { text: n.to_string() })]).unwrap();
        }
        drop(ring);
        let mut ring = Ring::open(&dir.0, LEN_MIN, &identity(1), 0).unwrap();
        ring.append(&mut [record(0, Event::Stopped {})]).unwrap();
        let found = sequences(&dir.read(FILE_NAME).unwrap());
        assert_eq!((found.last(), found.windows(2).all(|pair| pair[0] + 1 == pair[1])), (Some(&2001), true));
        assert!(found.len() > 20);
    }

    #[test]
    fn files_of_others_are_put_aside() {
        let dir = Dir::new("others");
        let mut ring = Ring::open(&dir.0, LEN_MIN, &identity(1), 0).unwrap();
        ring.append(&mut [record(0, Event::Stopped {})]).unwrap();
        let path = dir.0.join(FILE_NAME);
        // A later version's.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = 9;
        std::fs::write(&path, &bytes).unwrap();
        Ring::open(&dir.0, LEN_MIN, &identity(1), 0).unwrap();
        assert_eq!(dir.read(FORMER_NAME).unwrap_err(), Bad::Version(9));
        // A link is not followed.
        let victim = dir.0.join("victim");
        std::fs::write(&victim, "mine").unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        Ring::open(&dir.0, LEN_MIN, &identity(1), 0).unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
        // A copied data directory brings another node's.
        let mut ring = Ring::open(&dir.0, LEN_MIN, &identity(2), 0).unwrap();
        ring.append(&mut [record(0, Event::Stopped {})]).unwrap();
        let reading = dir.read(FILE_NAME).unwrap();
        assert_eq!((reading.identity, reading.records.len()), (Some(identity(2)), 1));
        assert_eq!(dir.read(FORMER_NAME).unwrap().identity, Some(identity(1)));
    }
}
