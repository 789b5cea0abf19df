//! Checkpoints: a file each, holding a whole encoded `Base`.
//!
//! Written without sync under their final name; a checkpoint counts for trimming only once a sync has covered it, and a torn one
//! fails its checksum and is as good as absent.

use trireme_order::StoreError;
use trireme_types::{Base, LogIndex, Reader, Seqno, Term, Uuid};

use crate::format::{CheckpointHead, Purpose, decode_checkpoint, encode_checkpoint};
use crate::names;
use crate::seal::{KeyId, LogKeys};
use crate::storage::{Storage, StorageFile, read_exact};

/// Larger files are none of ours; a bound for what recovery reads into memory.
const CHECKPOINT_FILE_MAX: u64 = 1 << 32;

/// A kept checkpoint; the state itself stays on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    pub number: u64,
    pub history: Uuid,
    pub index: LogIndex,
    pub term: Term,
    pub seqno: Seqno,
    /// `None`: durable. Else the serial of the newest sync ticket that does not cover it.
    pub written_after: Option<u64>,
}

impl Kept {
    pub fn new(number: u64, base: &Base, written_after: Option<u64>) -> Kept {
        Kept { number, history: base.history, index: base.index, term: base.term, seqno: base.seqno, written_after }
    }
}

/// Writes the file; neither its content nor its name is durable on return.
pub fn write<S: Storage>(
    storage: &S,
    number: u64,
    purpose: Purpose,
    base: &Base,
    keys: Option<&LogKeys>,
) -> Result<S::File, StoreError> {
    let bytes = encode_checkpoint(number, purpose, base, keys)?;
    let file = storage.create(&names::checkpoint(number))?;
    file.write_at(0, &bytes)?;
    Ok(file)
}

/// `None` when absent or not whole.
///
/// **Errors:** the disk fails, or its key is not among `keys`.
pub fn read<S: Storage>(
    storage: &S,
    number: u64,
    keys: Option<&LogKeys>,
) -> Result<Option<(Purpose, Base)>, StoreError> {
    match bytes(storage, number)? {
        Some(bytes) => decode_checkpoint(number, &bytes, keys),
        None => Ok(None),
    }
}

/// By which key it is sealed; the outer `None` when absent or not whole.
pub fn key<S: Storage>(storage: &S, number: u64) -> Result<Option<Option<KeyId>>, StoreError> {
    let Some(file) = storage.open(&names::checkpoint(number))? else { return Ok(None) };
    let whole = whole(&file, number)?;
    Ok(whole.map(|(_, head)| head.mark.map(|mark| mark.key)))
}

/// As [`read`], in little memory: everything of the state but the application's part, which is read and checked, and not kept.
pub fn look<S: Storage>(
    storage: &S,
    number: u64,
    keys: Option<&LogKeys>,
) -> Result<Option<(Purpose, Base)>, StoreError> {
    let Some(file) = storage.open(&names::checkpoint(number))? else { return Ok(None) };
    // First of all, so that a damaged name of a key is damage and no key that is missing.
    let Some((bytes, head)) = whole(&file, number)? else { return Ok(None) };
    let mut opener = head.unlock(number, keys)?.map(|key| key.open_in_pieces(head.associated(&bytes))).transpose()?;
    let mut state = Beginning { text: Vec::new(), read: 0, tried: 0, base: None };
    in_pieces(&file, head.state as u64, |piece| {
        match &mut opener {
            Some(opener) => state.add(&opener.next(piece)?),
            None => state.add(piece),
        }
        Ok(())
    })?;
    let authentic = opener.map_or(Ok(true), |opener| opener.end())?;
    Ok(state.end().filter(|_| authentic).map(|base| (head.purpose, base)))
}

/// The head of a file whose checksum is right, and its bytes.
fn whole<F: StorageFile>(file: &F, number: u64) -> Result<Option<(Vec<u8>, CheckpointHead)>, StoreError> {
    let Some((bytes, head)) = head(file, number)? else { return Ok(None) };
    let mut crc = crc32fast::Hasher::new();
    in_pieces(file, CheckpointHead::SUMMED as u64, |piece| {
        crc.update(piece);
        Ok(())
    })?;
    Ok((crc.finalize() == head.crc).then_some((bytes, head)))
}

/// Everything from `at` on.
fn in_pieces<F: StorageFile>(
    file: &F,
    mut at: u64,
    mut each: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let len = file.len()?;
    let mut buf = vec![0; len.saturating_sub(at).min(PIECE as u64) as usize];
    while at < len {
        let got = file.read_at(at, &mut buf)?;
        if got == 0 {
            // Shortened while it was looked at; the sums will not be right.
            break;
        }
        at += got as u64;
        each(&buf[..got])?;
    }
    Ok(())
}

/// Read at once.
const PIECE: usize = 256 << 10;

/// The beginning of a state, as far as it is needed.
struct Beginning {
    /// Empty once `base` is known.
    text: Vec<u8>,
    /// Bytes of the whole state so far.
    read: u64,
    /// Length of the text that was too short to decode.
    tried: usize,
    /// And at which byte the state has to end.
    base: Option<(Base, u64)>,
}

impl Beginning {
    fn add(&mut self, text: &[u8]) {
        self.read += text.len() as u64;
        if self.base.is_some() {
            return;
        }
        self.text.extend_from_slice(text);
        // Each attempt has twice as much, so all of them cost no more than two.
        if self.text.len() >= 2 * self.tried {
            self.decode();
        }
    }

    fn decode(&mut self) {
        let mut r = Reader::new(&self.text);
        match Base::decode_head(&mut r) {
            Ok((base, app)) => {
                let head = (self.text.len() - r.remaining()) as u64;
                self.base = Some((base, head.saturating_add(app)));
                self.text = Vec::new();
            }
            Err(_) => self.tried = self.text.len(),
        }
    }

    /// `None`: not the whole of a state, or something behind it.
    fn end(mut self) -> Option<Base> {
        if self.base.is_none() {
            self.decode();
        }
        self.base.filter(|(_, end)| *end == self.read).map(|(base, _)| base)
    }
}

fn head<F: StorageFile>(file: &F, number: u64) -> Result<Option<(Vec<u8>, CheckpointHead)>, StoreError> {
    let len = file.len()?;
    if len > CHECKPOINT_FILE_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; len.min(CheckpointHead::BYTES as u64) as usize];
    let got = file.read_at(0, &mut bytes)?;
    bytes.truncate(got);
    let head = CheckpointHead::decode(number, &bytes, len).filter(|head| bytes.len() >= head.state);
    Ok(head.map(|head| (bytes, head)))
}

fn bytes<S: Storage>(storage: &S, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(file) = storage.open(&names::checkpoint(number))? else { return Ok(None) };
    let len = file.len()?;
    if len > CHECKPOINT_FILE_MAX {
        return Ok(None);
    }
    read_exact(&file, 0, len as usize)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;

    use super::*;
    use crate::SimDisk;

    /// Remembers the largest read.
    #[derive(Clone)]
    struct Watched(SimDisk, Arc<AtomicUsize>);

    #[derive(Clone)]
    struct WatchedFile(<SimDisk as Storage>::File, Arc<AtomicUsize>);

    impl Storage for Watched {
        type File = WatchedFile;
        type Lock = <SimDisk as Storage>::Lock;
        fn lock(&self) -> Result<Self::Lock, StoreError> {
            self.0.lock()
        }
        fn open(&self, name: &str) -> Result<Option<WatchedFile>, StoreError> {
            Ok(self.0.open(name)?.map(|file| WatchedFile(file, self.1.clone())))
        }
        fn create(&self, name: &str) -> Result<WatchedFile, StoreError> {
            Ok(WatchedFile(self.0.create(name)?, self.1.clone()))
        }
        fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
            self.0.rename(from, to)
        }
        fn remove(&self, name: &str) -> Result<(), StoreError> {
            self.0.remove(name)
        }
        fn list(&self) -> Result<Vec<String>, StoreError> {
            self.0.list()
        }
        fn sync_dir(&self) -> Result<(), StoreError> {
            self.0.sync_dir()
        }
    }

    impl StorageFile for WatchedFile {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
            self.0.write_at(offset, bytes)
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, StoreError> {
            self.1.fetch_max(buf.len(), Ordering::Relaxed);
            self.0.read_at(offset, buf)
        }
        fn len(&self) -> Result<u64, StoreError> {
            self.0.len()
        }
        fn set_len(&self, len: u64) -> Result<(), StoreError> {
            self.0.set_len(len)
        }
        fn fill(&self, len: u64) -> Result<(), StoreError> {
            self.0.fill(len)
        }
        fn sync(&self) -> Result<(), StoreError> {
            self.0.sync()
        }
    }

    #[test]
    fn a_look_finds_what_reading_finds_in_pieces() {
        let disk = Watched(SimDisk::new(1), Arc::default());
        let keys = LogKeys::new(&[[7; 32]]).unwrap();
        // Within a piece, at its end, and over many.
        for (number, app) in [(1, 0), (2, 1000), (3, PIECE - 100), (4, 3 * PIECE), (5, 20 * PIECE + 17)] {
            for keys in [None, Some(&keys)] {
                let base = Base {
                    history: Uuid([3; 16]),
                    index: LogIndex(number),
                    term: Term(2),
                    seqno: Seqno(4),
                    app: Bytes::from(vec![9; app]),
                    ..Base::default()
                };
                write(&disk, number, Purpose::Kept, &base, keys).unwrap();
                assert_eq!(read(&disk, number, keys).unwrap(), Some((Purpose::Kept, base.clone())));
                disk.1.store(0, Ordering::Relaxed);
                let head = Base { app: Bytes::new(), ..base };
                assert_eq!(look(&disk, number, keys).unwrap(), Some((Purpose::Kept, head)));
                assert!(disk.1.load(Ordering::Relaxed) <= PIECE);
                assert_eq!(look(&disk, number + 1, keys).unwrap(), None, "there is none");
            }
        }
    }

    #[test]
    fn a_look_takes_nothing_that_reading_refuses() {
        let disk = SimDisk::new(1);
        let keys = LogKeys::new(&[[7; 32]]).unwrap();
        for keys in [None, Some(&keys)] {
            let base = Base { index: LogIndex(4), app: Bytes::from_static(b"state"), ..Base::default() };
            let file = write(&disk, 8, Purpose::Begins, &base, keys).unwrap();
            let whole = read_exact(&file, 0, file.len().unwrap() as usize).unwrap().unwrap();
            for bit in 0..whole.len() * 8 {
                let mut bad = whole.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                file.write_at(0, &bad).unwrap();
                assert!(matches!(look(&disk, 8, keys), Ok(None) | Err(_)), "bit {bit}");
            }
            for len in 0..whole.len() {
                let file = disk.create(&names::checkpoint(8)).unwrap();
                file.write_at(0, &whole[..len]).unwrap();
                assert_eq!(look(&disk, 8, keys).unwrap(), None, "{len} bytes");
            }
        }
    }
}
