//! The disk alone: what the servers' syncs have to live with.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::hist::Histogram;

/// As much as a commit of one row, in a file that is written already, as logs are.
const BLOCK: usize = 512;
/// The least that goes past the page cache on every file system.
const PAGE: usize = 4096;
const FILE: usize = 4 << 20;

/// How a write reaches the disk for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `pwrite`, then `fdatasync`, of which only the second is timed.
    Fdatasync,
    /// `pwrite` past the page cache, then `fdatasync`.
    Direct,
    /// A file opened with `O_DSYNC`.
    Dsync,
    /// A file opened with `O_DIRECT`, written by io_uring with `RWF_DSYNC`.
    Uring,
}

impl Way {
    pub const ALL: [Way; 4] = [Way::Fdatasync, Way::Direct, Way::Dsync, Way::Uring];

    pub fn title(self) -> &'static str {
        match self {
            Way::Fdatasync => "fdatasync after a write",
            Way::Direct => "O_DIRECT, then fdatasync",
            Way::Dsync => "O_DSYNC",
            Way::Uring => "io_uring, O_DIRECT, RWF_DSYNC",
        }
    }
}

/// From now on this thread waits for no usual program, and sleeps no longer than it asks for: a disk does not queue for a processor, and what is
/// measured in this thread is the disk. Without the right to it nothing changes.
pub fn comes_first() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: a number, and a structure that outlives the call; both concern this thread only.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first);
    }
}

/// Latency of fdatasync after a small write, with one writer in each directory at the same time.
pub fn fdatasync(dirs: &[PathBuf], time: Duration) -> io::Result<Histogram> {
    syncs(dirs, Way::Fdatasync, BLOCK, time)
}

/// Latency of a durable write of `size` bytes, with one writer in each directory at the same time. A directory may be named more than once.
pub fn syncs(dirs: &[PathBuf], way: Way, size: usize, time: Duration) -> io::Result<Histogram> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            dirs.iter().enumerate().map(|(n, dir)| scope.spawn(move || one(dir, n, way, size, time))).collect();
        let mut all = Histogram::default();
        for thread in threads {
            all.merge(&thread.join().map_err(|_| io::Error::other("panicked"))??);
        }
        Ok(all)
    })
}

/// The same with one writer, which waits for no other program.
pub fn undisturbed(dir: &Path, size: usize, time: Duration) -> io::Result<Histogram> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            comes_first();
            one(dir, 0, Way::Fdatasync, size, time)
        });
        thread.join().map_err(|_| io::Error::other("panicked"))?
    })
}

fn one(dir: &Path, number: usize, way: Way, size: usize, time: Duration) -> io::Result<Histogram> {
    let path = dir.join(format!("bench-probe-{number}.log"));
    let result = measure(&path, way, size, time);
    let _ = std::fs::remove_file(&path);
    result
}

fn measure(path: &Path, way: Way, size: usize, time: Duration) -> io::Result<Histogram> {
    let file = File::create(path)?;
    file.write_all_at(&vec![0; FILE], 0)?;
    file.sync_all()?;
    drop(file);
    let flags = match way {
        Way::Fdatasync => 0,
        Way::Direct | Way::Uring => libc::O_DIRECT,
        Way::Dsync => libc::O_DSYNC,
    };
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    let size = if flags & libc::O_DIRECT != 0 { size.next_multiple_of(PAGE) } else { size };
    // Memory for O_DIRECT begins at a page.
    let memory = vec![1; size + PAGE];
    let from = memory.as_ptr().align_offset(PAGE);
    let data = &memory[from..from + size];
    let mut ring = if way == Way::Uring { Some(io_uring::IoUring::new(2)?) } else { None };
    let mut out = Histogram::default();
    let end = Instant::now() + time;
    let mut at = 0;
    while Instant::now() < end {
        let mut began = Instant::now();
        match &mut ring {
            Some(ring) => write_by_ring(ring, &file, data, at)?,
            None => file.write_all_at(data, at)?,
        }
        match way {
            Way::Fdatasync => {
                began = Instant::now();
                file.sync_data()?;
            }
            Way::Direct => file.sync_data()?,
            Way::Dsync | Way::Uring => {}
        }
        out.record(began.elapsed().as_nanos() as u64);
        at += size as u64;
        if at + size as u64 > FILE as u64 {
            at = 0;
        }
    }
    Ok(out)
}

fn write_by_ring(ring: &mut io_uring::IoUring, file: &File, data: &[u8], at: u64) -> io::Result<()> {
    let write = io_uring::opcode::Write::new(io_uring::types::Fd(file.as_raw_fd()), data.as_ptr(), data.len() as u32)
        .offset(at)
        .rw_flags(libc::RWF_DSYNC)
        .build();
    // SAFETY: file and data outlive the operation, whose end is awaited below.
    unsafe { ring.submission().push(&write) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().map_or(-libc::EIO, |entry| entry.result());
    match usize::try_from(result) {
        Ok(written) if written == data.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}
