//! Checkpoints: a file each, holding a whole encoded `Base`.
//!
//! Written without sync under their final name; a checkpoint counts for trimming only once a sync has covered it, and a torn one
//! fails its checksum and is as good as absent.

use trireme_order::StoreError;
use trireme_types::{Base, LogIndex, Seqno, Term, Uuid};

use crate::format::{Purpose, checkpoint_head, decode_checkpoint, encode_checkpoint};
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
    let head = bytes(storage, number)?.and_then(|bytes| checkpoint_head(number, &bytes));
    Ok(head.map(|head| head.mark.map(|mark| mark.key)))
}

fn bytes<S: Storage>(storage: &S, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(file) = storage.open(&names::checkpoint(number))? else { return Ok(None) };
    let len = file.len()?;
    if len > CHECKPOINT_FILE_MAX {
        return Ok(None);
    }
    read_exact(&file, 0, len as usize)
}
