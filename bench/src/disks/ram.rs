//! A file system with one directory of files in RAM, each the image of one disk. Its files take their time to sync; nothing else takes any.
//!
//! A loop device makes a disk of such a file, with a usual file system on it. That one's flushes (of `fsync`, `fdatasync`, `O_DSYNC`, `RWF_DSYNC`
//! and of its journal) all end as FSYNC of the file here, which sleeps. So nothing has to be known of how a server syncs. Reads and writes go past
//! this process: the kernel passes them on to the memory.

use crate::probe::comes_first;
use fuser::{
    BackingId, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, Request, TimeOrNow,
};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Each disk syncs at its own pace, so there is a thread for each, and some for all else.
const THREADS: usize = 16;
/// The kernel alone changes a file, so all that is known of it stays valid.
const VALID: Duration = Duration::from_secs(3600);
const MODE: u16 = 0o600;
/// As `/sys/block/…/stat` counts.
const SECTOR: f64 = 512.0;

/// How long syncs sleep, in nanoseconds; changed while the file system is in use.
#[derive(Debug, Default)]
pub struct Sleeps {
    pub each: AtomicU64,
    /// For each MiB that was written since the last sync of the same disk.
    pub per_mib: AtomicU64,
}

/// The mounted file system. It is unmounted when this is dropped.
pub struct Mounted(Option<fuser::BackgroundSession>);

/// Mounts it on `dir`, which exists.
pub fn mount(dir: &Path, sleeps: Arc<Sleeps>) -> io::Result<Mounted> {
    let images = Images { dir: dir.canonicalize()?, sleeps, state: Mutex::default() };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("trireme-bench-disks".to_owned()), MountOption::NoAtime];
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    fuser::spawn_mount(images, dir, &config).map(|session| Mounted(Some(session)))
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Its threads end with the last mount; who keeps one is not waited for.
        if let Some(session) = self.0.take() {
            drop(session);
        }
    }
}

struct Images {
    dir: PathBuf,
    sleeps: Arc<Sleeps>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_inode: BTreeMap<u64, Arc<Image>>,
    names: BTreeMap<OsString, u64>,
    /// How often each is open.
    open: BTreeMap<u64, u64>,
    last: u64,
}

struct Image {
    inode: u64,
    memory: File,
    /// The kernel's own hold on the memory.
    backing: OnceLock<BackingId>,
    written: Mutex<Written>,
}

/// The loop device's own count, as writes do not come by here.
#[derive(Default)]
struct Written {
    stat: Option<File>,
    sectors: u64,
}

impl Image {
    fn attributes(&self) -> FileAttr {
        let size = self.memory.metadata().map_or(0, |data| data.len());
        attributes(self.inode, FileType::RegularFile, MODE, size)
    }

    /// MiB since the last call.
    fn written_mib(&self, path: &Path) -> f64 {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.stat.is_none() {
            written.stat = loop_of(path);
            written.sectors = written.stat.as_ref().and_then(sectors_written).unwrap_or(0);
            return 0.0;
        }
        let now = written.stat.as_ref().and_then(sectors_written).unwrap_or(written.sectors);
        let since = now.saturating_sub(written.sectors);
        written.sectors = now;
        since as f64 * SECTOR / f64::from(1 << 20)
    }
}

/// The statistics of the loop device on a file.
fn loop_of(path: &Path) -> Option<File> {
    let devices = std::fs::read_dir("/sys/block").ok()?.flatten().map(|entry| entry.path());
    let mut on_it = devices.filter(|device| {
        std::fs::read(device.join("loop/backing_file"))
            .is_ok_and(|file| file.trim_ascii_end() == path.as_os_str().as_bytes())
    });
    File::open(on_it.next()?.join("stat")).ok()
}

fn sectors_written(stat: &File) -> Option<u64> {
    let mut text = [0; 256];
    let length = stat.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.split_whitespace().nth(6)?.parse().ok()
}

fn attributes(inode: u64, kind: FileType, perm: u16, size: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size,
        blocks: size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

fn memory(name: &OsStr) -> io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    // SAFETY: a C string that outlives the call.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else's.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Sleeps to the microsecond.
fn sleep(time: Duration) {
    thread_local!(static FIRST: () = comes_first());
    FIRST.with(|()| {});
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

impl Images {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn image(&self, inode: INodeNo) -> Option<Arc<Image>> {
        self.state().by_inode.get(&inode.0).cloned()
    }

    fn note_open(&self, image: &Image) {
        *self.state().open.entry(image.inode).or_default() += 1;
        // Perhaps by another loop device than last time.
        image.written.lock().unwrap_or_else(PoisonError::into_inner).stat = None;
    }
}

impl State {
    /// A file without a name goes with its last user.
    fn forget_unused(&mut self, inode: u64) {
        if self.open.get(&inode).is_none_or(|open| *open == 0) && !self.names.values().any(|named| *named == inode) {
            self.by_inode.remove(&inode);
            self.open.remove(&inode);
        }
    }
}

impl Filesystem for Images {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let missing =
            |_| io::Error::other("this kernel's FUSE passes no reads and writes on (CONFIG_FUSE_PASSTHROUGH)");
        config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).map_err(missing)?;
        config.set_max_stack_depth(1).map(drop).map_err(|_| io::Error::other("no stacking in FUSE"))
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.state();
        match state.names.get(name).and_then(|inode| state.by_inode.get(inode)) {
            Some(image) => reply.entry(&VALID, &image.attributes(), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if inode == INodeNo::ROOT {
            return reply.attr(&VALID, &attributes(1, FileType::Directory, 0o700, 0));
        }
        match self.image(inode) {
            Some(image) => reply.attr(&VALID, &image.attributes()),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(image) = self.image(inode) else { return reply.error(Errno::ENOENT) };
        match size.map_or(Ok(()), |size| image.memory.set_len(size)) {
            Ok(()) => reply.attr(&VALID, &image.attributes()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(&self, _: &Request, _: INodeNo, name: &OsStr, _mode: u32, _umask: u32, _flags: i32, reply: ReplyCreate) {
        let memory = match memory(name) {
            Ok(memory) => memory,
            Err(error) => return reply.error(error.into()),
        };
        let id = match reply.open_backing(&memory) {
            Ok(id) => id,
            Err(error) => return reply.error(error.into()),
        };
        let image = {
            let mut state = self.state();
            // The directory is the first.
            state.last = state.last.max(1) + 1;
            let inode = state.last;
            let image = Arc::new(Image { inode, memory, backing: OnceLock::from(id), written: Mutex::default() });
            state.by_inode.insert(inode, image.clone());
            state.names.insert(name.to_owned(), inode);
            image
        };
        self.note_open(&image);
        match image.backing.get() {
            Some(id) => reply.created_passthrough(
                &VALID,
                &image.attributes(),
                Generation(0),
                FileHandle(0),
                FopenFlags::empty(),
                id,
            ),
            None => reply.error(Errno::EIO),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let Some(image) = self.image(inode) else { return reply.error(Errno::ENOENT) };
        self.note_open(&image);
        match image.backing.get() {
            Some(id) => reply.opened_passthrough(FileHandle(0), FopenFlags::empty(), id),
            None => reply.error(Errno::EIO),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        if let Some(open) = state.open.get_mut(&inode.0) {
            *open = open.saturating_sub(1);
        }
        state.forget_unused(inode.0);
        drop(state);
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let each = self.sleeps.each.load(Ordering::Relaxed);
        let per_mib = self.sleeps.per_mib.load(Ordering::Relaxed);
        let mut nanoseconds = each;
        if per_mib > 0 {
            let state = self.state();
            let name = state.names.iter().find(|(_, named)| **named == inode.0).map(|(name, _)| self.dir.join(name));
            let image = state.by_inode.get(&inode.0).cloned();
            drop(state);
            if let (Some(image), Some(path)) = (image, name) {
                nanoseconds += (image.written_mib(&path) * per_mib as f64) as u64;
            }
        }
        sleep(Duration::from_nanos(nanoseconds));
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(image) = self.image(inode) else { return reply.error(Errno::ENOENT) };
        let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
            return reply.error(Errno::EINVAL);
        };
        // SAFETY: numbers, and a descriptor that is open during the call.
        match unsafe { libc::fallocate(image.memory.as_raw_fd(), mode, offset, length) } {
            0 => reply.ok(),
            _ => reply.error(io::Error::last_os_error().into()),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        let Some(inode) = state.names.remove(name) else {
            drop(state);
            return reply.error(Errno::ENOENT);
        };
        state.forget_unused(inode);
        drop(state);
        reply.ok();
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let state = self.state();
        let own = [(1, FileType::Directory, OsStr::new(".")), (1, FileType::Directory, OsStr::new(".."))];
        let files = state.names.iter().map(|(name, inode)| (*inode, FileType::RegularFile, name.as_os_str()));
        for (at, (inode, kind, name)) in (1..).zip(own.into_iter().chain(files)).skip(offset as usize) {
            if reply.add(INodeNo(inode), at, kind, name) {
                break;
            }
        }
        drop(state);
        reply.ok();
    }
}
