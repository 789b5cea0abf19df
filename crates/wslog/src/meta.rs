//! The metadata file: two copies in one preallocated file, each in a sector of its own.
//!
//! A durable save writes one copy and syncs, then writes the other without sync. The next save begins with that other one, so at
//! every moment one copy is whole on disk, and outside of a save both hold the newest state (as soon as the kernel wrote the
//! second): a single damaged sector takes back no promise. Two writes and one sync per save, no journal commit.

use trireme_order::StoreError;

use crate::format::{META_FILE, META_OFFSETS, META_SLOT, Meta, VERSION, VERSION_BEFORE};
use crate::names;
use crate::storage::{Storage, StorageFile, read_exact};

/// The open metadata file.
pub struct MetaFile<F> {
    /// `None` once the log was let go of.
    file: Option<F>,
    /// The copy that is known to be on disk; never overwritten without sync.
    durable: usize,
    meta: Meta,
}

/// The content of the file, as it was found.
pub enum Found<F> {
    /// No metadata file.
    Absent,
    /// Neither copy can be read.
    Unreadable,
    Meta {
        file: Box<MetaFile<F>>,
        /// One of the copies is unreadable.
        copy_lost: bool,
    },
}

/// Reads both copies; changes nothing.
pub fn read<S: Storage>(storage: &S) -> Result<Found<S::File>, StoreError> {
    let Some(file) = storage.open(names::META)? else { return Ok(Found::Absent) };
    let mut copies = Vec::new();
    for offset in META_OFFSETS {
        let bytes = read_exact(&file, offset, META_SLOT)?;
        if let Some(version) = bytes.as_ref().and_then(|b| Meta::other_version(b)) {
            return Err(StoreError::OtherVersion(format!(
                "this directory is of format {version}, this provider reads formats {VERSION_BEFORE} and {VERSION}. Use the \
                 provider that wrote it, or remove all files named trireme.*.galera.cache in this directory to join as a new member with \
                 a full copy"
            )));
        }
        copies.push(bytes.and_then(|b| Meta::decode(&b)));
    }
    let second = copies.pop().flatten();
    let first = copies.pop().flatten();
    let copy_lost = first.is_none() || second.is_none();
    let (durable, meta) = match (first, second) {
        (Some(a), Some(b)) if b.sequence > a.sequence => (1, b),
        (Some(a), _) => (0, a),
        (None, Some(b)) => (1, b),
        (None, None) => return Ok(Found::Unreadable),
    };
    Ok(Found::Meta { file: Box::new(MetaFile { file: Some(file), durable, meta }), copy_lost })
}

impl<F: StorageFile> MetaFile<F> {
    /// Makes the file; durable on return. A half-made file never carries the final name.
    pub fn create<S: Storage<File = F>>(storage: &S, meta: Meta) -> Result<MetaFile<F>, StoreError> {
        let file = storage.create(names::META_TMP)?;
        file.fill(META_FILE)?;
        let bytes = meta.encode();
        for offset in META_OFFSETS {
            file.write_at(offset, &bytes)?;
        }
        file.sync()?;
        storage.rename(names::META_TMP, names::META)?;
        storage.sync_dir()?;
        Ok(MetaFile { file: Some(file), durable: 0, meta })
    }

    /// Makes the copy that was read durable. It may have come from the page cache and never have reached the disk (even after
    /// a failed sync, rule 17), and the next save overwrites the other copy. Writing the same bytes makes the page dirty
    /// again, so that the sync really writes it.
    pub fn secure(&self) -> Result<(), StoreError> {
        let file = self.file()?;
        file.write_at(META_OFFSETS[self.durable], &self.meta.encode())?;
        file.sync()
    }

    fn file(&self) -> Result<&F, StoreError> {
        self.file.as_ref().ok_or_else(|| StoreError::Refused("its files are closed".into()))
    }

    /// Closes the file: nothing can be saved any more.
    pub fn let_go(&mut self) {
        self.file = None;
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Applies `change`; durable on return.
    pub fn save(&mut self, change: impl FnOnce(&mut Meta)) -> Result<(), StoreError> {
        change(&mut self.meta);
        self.meta.sequence += 1;
        let bytes = self.meta.encode();
        let target = 1 - self.durable;
        let file = self.file()?;
        file.write_at(META_OFFSETS[target], &bytes)?;
        file.sync()?;
        let former = self.durable;
        self.durable = target;
        self.file()?.write_at(META_OFFSETS[former], &bytes)
    }

    /// Applies `change`, durable some time later: for the watermark, of which an older value is merely less sharp.
    pub fn note(&mut self, change: impl FnOnce(&mut Meta)) -> Result<(), StoreError> {
        change(&mut self.meta);
        self.meta.sequence += 1;
        self.file()?.write_at(META_OFFSETS[1 - self.durable], &self.meta.encode())
    }
}
