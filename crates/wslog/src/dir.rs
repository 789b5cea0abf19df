//! A real directory.
//!
//! Plain `pwrite`, `pread` and `fdatasync` through the standard library, which opens everything close-on-exec: the server forks
//! state-transfer scripts, and none of them may inherit the lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use trireme_order::StoreError;

use crate::direct::{DirectWriter, PAGE, Pages};
use crate::error::NoDirectWriter;
use crate::names;
use crate::storage::{Storage, StorageFile, describe};
use crate::uring::RingWriter;

/// The log holds rows and statements, passwords among them: never for everybody, whatever the process's mask. The group may
/// read, as it may read the data files beside it; an arbitrator's mask takes that away too.
const FILE_MODE: u32 = 0o660;
/// The kernel keeps the lock of a process that died with a write past the page cache under way, until the disk has answered, and for some milliseconds
/// after the death of any that wrote so. A disk that takes longer is for a person to look at.
const LOCK_WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The target of a link is not the log's.
const NO_LINKS: i32 = libc::O_NOFOLLOW;

/// Flat files in an existing directory.
#[derive(Clone)]
pub struct DirStorage {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    read_only: bool,
    watch: OnceLock<Box<dyn WriteWatch>>,
}

/// Hears of the writes through the page cache on which the log's owner waits. A slow disk shows in them as it does in syncs: the kernel lets a write
/// wait for what it is about to bring to the disk. Not of those past the page cache, and not of those that prepare a segment beside the log.
pub trait WriteWatch: Send + Sync {
    /// Called by the thread that writes, before it does.
    fn began(&self, at: Instant);
    /// Called afterwards, also after a write that failed.
    fn ended(&self, began: Instant);
}

/// Holds the lock file's lock.
pub struct DirLock {
    file: File,
}

/// An open file and its path for error texts.
#[derive(Clone)]
pub struct DirFile {
    file: Arc<File>,
    path: Arc<str>,
    dir: Arc<Shared>,
}

impl DirStorage {
    /// The directory must exist.
    pub fn new(path: impl AsRef<Path>) -> Result<DirStorage, StoreError> {
        DirStorage::with(path.as_ref(), false)
    }

    /// For looking only: every write fails, and read permission is enough.
    pub fn read_only(path: impl AsRef<Path>) -> Result<DirStorage, StoreError> {
        DirStorage::with(path.as_ref(), true)
    }

    fn with(path: &Path, read_only: bool) -> Result<DirStorage, StoreError> {
        let text = path.display().to_string();
        let handle = File::open(path).map_err(|e| describe(&text, "open the directory", &e))?;
        let kind = handle.metadata().map_err(|e| describe(&text, "look at", &e))?;
        if !kind.is_dir() {
            return Err(describe(&text, "use", &io::Error::from(io::ErrorKind::NotADirectory)));
        }
        Ok(DirStorage { shared: Arc::new(Shared { path: path.to_path_buf(), read_only, watch: OnceLock::new() }) })
    }

    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// For all files of this directory, the open ones as well. Only the first watch counts.
    pub(crate) fn watch_writes(&self, watch: Box<dyn WriteWatch>) {
        let _ = self.shared.watch.set(watch);
    }

    fn file(&self, name: &str, file: File) -> DirFile {
        DirFile { file: Arc::new(file), path: self.text(name).into(), dir: self.shared.clone() }
    }

    /// `None` when another process has it.
    #[allow(clippy::incompatible_msrv)] // File::try_lock: the alternative is a crate or unsafe code
    pub fn try_lock(&self) -> Result<Option<DirLock>, StoreError> {
        let name = names::LOCK;
        self.writable(name, "lock")?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .custom_flags(NO_LINKS)
            .open(self.full(name))
            .map_err(|e| describe(&self.text(name), "create the lock file", &e))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(DirLock { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(describe(&self.text(name), "lock", &e)),
        }
    }

    /// A way into the files of this directory, whose lock that is, past the page cache, for the calling thread. A trial write has gone that way.
    ///
    pub(crate) fn direct_writer(&self, lock: &DirLock) -> Result<RingWriter, NoDirectWriter> {
        let mut writer = RingWriter::new(&lock.file).map_err(NoDirectWriter::Kernel)?;
        let tried = self.try_direct(&mut writer);
        if !writer.is_under_way() {
            let _ = self.remove(names::TRIAL);
        }
        tried?;
        Ok(writer)
    }

    fn try_direct(&self, writer: &mut RingWriter) -> Result<(), StoreError> {
        let file = self.create(names::TRIAL)?;
        let failed = |error: &io::Error| describe(file.path(), "write past the page cache to", error);
        let align = RingWriter::alignment(&file).map_err(|e| failed(&e))?;
        if align.is_some_and(|align| !(PAGE as u32).is_multiple_of(align)) {
            let text = format!("this disk takes writes at multiples of {} bytes only", align.unwrap_or_default());
            return Err(failed(&io::Error::new(io::ErrorKind::Unsupported, text)));
        }
        file.fill(PAGE as u64)?;
        file.sync()?;
        let mut pages = Pages::default();
        pages.put(b"trial");
        pages.pad(0);
        writer.begin(&file, 0, pages)?;
        writer.wait(None).map_or(Ok(()), |outcome| outcome.map(drop))?;
        let mut found = [0; 5];
        file.read_at(0, &mut found)?;
        if &found == b"trial" {
            Ok(())
        } else {
            Err(StoreError::Damaged("what was written is not what is read".into()))
        }
    }

    fn full(&self, name: &str) -> PathBuf {
        self.shared.path.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.full(name).display().to_string()
    }

    fn writable(&self, name: &str, operation: &str) -> Result<(), StoreError> {
        if self.shared.read_only {
            return Err(describe(&self.text(name), operation, &io::Error::from(io::ErrorKind::PermissionDenied)));
        }
        Ok(())
    }
}

impl Storage for DirStorage {
    type File = DirFile;
    type Lock = DirLock;

    fn lock(&self) -> Result<DirLock, StoreError> {
        let until = Instant::now() + LOCK_WITHIN;
        loop {
            match self.try_lock()? {
                Some(lock) => return Ok(lock),
                None if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
                None => break,
            }
        }
        Err(StoreError::InUse(format!(
            "{} is in use by another process (it holds the lock on {}); stop that process, or give this \
             node its own gcache.dir. If there is none, the disk has not yet answered to the last write of one that died: wait for the disk",
            self.shared.path.display(),
            names::LOCK
        )))
    }

    fn open(&self, name: &str) -> Result<Option<DirFile>, StoreError> {
        let opened =
            OpenOptions::new().read(true).write(!self.shared.read_only).custom_flags(NO_LINKS).open(self.full(name));
        match opened {
            Ok(file) => Ok(Some(self.file(name, file))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(describe(&self.text(name), "open", &e)),
        }
    }

    fn create(&self, name: &str) -> Result<DirFile, StoreError> {
        self.writable(name, "create")?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .custom_flags(NO_LINKS)
            .open(self.full(name))
            .map_err(|e| describe(&self.text(name), "create", &e))?;
        Ok(self.file(name, file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.writable(from, "rename")?;
        std::fs::rename(self.full(from), self.full(to))
            .map_err(|e| describe(&self.text(from), &format!("rename to {to}"), &e))
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.writable(name, "remove")?;
        match std::fs::remove_file(self.full(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(describe(&self.text(name), "remove", &e)),
            _ => Ok(()),
        }
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        let fail = |e: io::Error| describe(&self.shared.path.display().to_string(), "list", &e);
        let mut out = Vec::new();
        for entry in std::fs::read_dir(&self.shared.path).map_err(fail)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry.map_err(fail)?.file_name().into_string() {
                out.push(name);
            }
        }
        Ok(out)
    }

    fn sync_dir(&self) -> Result<(), StoreError> {
        // Opened each time: a log that failed must not keep its file system from being unmounted and repaired.
        File::open(&self.shared.path)
            .and_then(|dir| dir.sync_all())
            .map_err(|e| describe(&self.shared.path.display().to_string(), "sync the directory", &e))
    }
}

impl DirFile {
    pub(crate) fn handle(&self) -> &Arc<File> {
        &self.file
    }

    /// Where it was when it was opened.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all_at(bytes, offset).map_err(|e| describe(&self.path, "write to", &e))
    }
}

impl StorageFile for DirFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(watch) = self.dir.watch.get() else { return self.write(offset, bytes) };
        let began = Instant::now();
        watch.began(began);
        let outcome = self.write(offset, bytes);
        watch.ended(began);
        outcome
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, StoreError> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(describe(&self.path, "read", &e)),
            }
        }
        Ok(done)
    }

    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.file.metadata().map_err(|e| describe(&self.path, "look at", &e))?.len())
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.file.set_len(len).map_err(|e| describe(&self.path, "change the length of", &e))
    }

    fn fill(&self, len: u64) -> Result<(), StoreError> {
        // As a constant they would be a sixteenth of the library.
        let zeros = vec![0; 256 * 1024];
        let mut at = 0;
        while at < len {
            let n = (len - at).min(zeros.len() as u64);
            self.write(at, &zeros[..n as usize])?;
            at += n;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|e| describe(&self.path, "sync", &e))
    }
}
