//! The log's needs of a disk: named flat files in one directory. The seam at which the simulator puts its own disk.

use std::io;

use trireme_order::{DiskFault, StoreError};

/// One directory of flat files. Clones refer to the same directory.
///
/// Nothing survives the loss of power unless it was synced: the content of a file by [`StorageFile::sync`], its name by
/// [`Storage::sync_dir`].
pub trait Storage: Clone + Send + Sync + 'static {
    type File: StorageFile;
    /// Held as long as the log is open; released when dropped and when the process dies.
    type Lock: Send + Sync + 'static;

    /// Keeps every other process out. Fails with a text that says so when somebody else is in.
    fn lock(&self) -> Result<Self::Lock, StoreError>;
    /// Opens an existing file; `None` when there is none of that name.
    fn open(&self, name: &str) -> Result<Option<Self::File>, StoreError>;
    /// Creates a file, or empties an existing one.
    fn create(&self, name: &str) -> Result<Self::File, StoreError>;
    /// Replaces `to` when it exists.
    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError>;
    /// Absent files are no error.
    fn remove(&self, name: &str) -> Result<(), StoreError>;
    /// Names of all files, in no particular order.
    fn list(&self) -> Result<Vec<String>, StoreError>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> Result<(), StoreError>;
}

/// An open file. Clones refer to the same file; a rename does not disturb it.
#[allow(clippy::len_without_is_empty)] // `len` asks the disk; nobody asks whether a file is empty
pub trait StorageFile: Clone + Send + Sync + 'static {
    /// Writes all of `bytes`, extending the file where needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError>;
    /// Fills `buf` as far as the file goes; returns how many bytes were read.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, StoreError>;
    fn len(&self) -> Result<u64, StoreError>;
    fn set_len(&self, len: u64) -> Result<(), StoreError>;
    /// Makes the file `len` bytes of written zeros (not merely reserved blocks: those would turn every later sync into a
    /// journal commit, rule 19). For a fresh file only.
    fn fill(&self, len: u64) -> Result<(), StoreError>;
    /// Content (and length) durable on return. A failure is final for the file: the kernel may have forgotten that the
    /// pages are dirty, and a second call would lie.
    fn sync(&self) -> Result<(), StoreError>;
}

/// A failed operation: file, operation, cause, and what to do about it.
pub(crate) fn describe(path: &str, operation: &str, error: &io::Error) -> StoreError {
    let cause = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskFault::Full,
        io::ErrorKind::PermissionDenied => DiskFault::Denied,
        io::ErrorKind::ReadOnlyFilesystem => DiskFault::ReadOnly,
        io::ErrorKind::Unsupported => DiskFault::Unsupported,
        io::ErrorKind::NotFound => DiskFault::Gone,
        _ => DiskFault::Other,
    };
    StoreError::Disk { operation: operation.to_owned(), path: path.to_owned(), cause, said: error.to_string() }
}

/// Reads exactly `len` bytes; `None` when the file ends before.
pub(crate) fn read_exact<F: StorageFile>(file: &F, offset: u64, len: usize) -> Result<Option<Vec<u8>>, StoreError> {
    let mut buf = vec![0; len];
    let got = file.read_at(offset, &mut buf)?;
    Ok((got == len).then_some(buf))
}
