//! Things that the log cannot do beside its duties as a [`LogStore`](trireme_order::LogStore), and why. It goes on without.

use std::io;

use trireme_order::StoreError;

/// Why there is no way past the page cache.
#[derive(Debug, thiserror::Error)]
pub enum NoDirectWriter {
    #[error("the log has failed")]
    Failed,
    /// A kernel or a container without io_uring.
    #[error("io_uring: {0}")]
    Kernel(io::Error),
    /// A file system without `O_DIRECT`, or a trial write that failed.
    #[error(transparent)]
    Disk(#[from] StoreError),
}

/// A log in clear text takes no keys while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the write-set log is in clear text: a restart begins to encrypt it")]
pub struct InClearText;
