//! Writes past the page cache by io_uring. The only file of this crate with code that the compiler cannot check.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use trireme_order::StoreError;

use crate::dir::DirFile;
use crate::direct::{DirectWriter, Pages};
use crate::storage::describe;

/// One write is under way at a time.
const ENTRIES: u32 = 2;
/// Between two looks at a write, where the kernel cannot wait for a time.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A write that was interrupted, was not taken for want of memory, or ended early is made once more, as a whole: its bytes are the same. So
/// often at most, then it has failed.
const ATTEMPTS_MAX: u32 = 8;
/// Before a request is handed over once more that the kernel had no memory for.
const BREATH: Duration = Duration::from_millis(1);

/// A ring of the thread that makes it: that one alone may use it, but for dropping it. A write that is under way when the process dies goes on without it,
/// and may reach the disk when another process has the file. So the ring holds the directory's lock too: the kernel lets go of what a ring holds when
/// nothing of it is under way any more.
pub struct RingWriter {
    /// Lives longer than what is under way.
    ring: ManuallyDrop<IoUring>,
    /// Counts ends of writes, for whoever waits in a poll. The ring's own descriptor does not end a poll of the thread that the ring is deferred to.
    ended: OwnedFd,
    /// The file that was written last, as it is for everybody and as it is here.
    file: Option<(Arc<File>, File)>,
    flight: Option<Flight>,
}

struct Flight {
    /// Not touched until the kernel is done with it.
    pages: ManuallyDrop<Pages>,
    offset: u64,
    path: Arc<str>,
    attempts: u32,
}

/// The end of a write, by a result of the kernel's.
#[derive(Debug)]
enum End {
    Done,
    /// It was not made, or not to its end, for a reason that passes.
    Again(io::Error),
    Failed(io::Error),
}

impl End {
    fn of(result: i32, len: usize) -> End {
        match usize::try_from(result) {
            Ok(written) if written == len => End::Done,
            Ok(written) => {
                End::Again(io::Error::new(io::ErrorKind::WriteZero, format!("{written} of {len} bytes were written")))
            }
            Err(_) => match io::Error::from_raw_os_error(-result) {
                error if passes(&error) => End::Again(error),
                error => End::Failed(error),
            },
        }
    }
}

fn no_direct_io() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the file system has no O_DIRECT")
}

/// An interruption, or want of memory.
fn passes(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

impl RingWriter {
    /// `lock`: what keeps other processes away from the files; it is kept, if need be, beyond the death of this process, until the disk has answered.
    ///
    /// **Errors:** the kernel has no io_uring, or it is forbidden here.
    pub fn new(lock: &File) -> io::Result<RingWriter> {
        // Completions are worked on when this thread asks, not whenever it comes by the kernel: so they interrupt none of its polls. Older kernels
        // do not know that, and what they do instead is right as well.
        let deferred = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES);
        let ring = match deferred {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => RingWriter::plain()?,
            other => other?,
        };
        RingWriter::with(ring, lock)
    }

    fn plain() -> io::Result<IoUring> {
        IoUring::builder().dontfork().build(ENTRIES)
    }

    fn with(ring: IoUring, lock: &File) -> io::Result<RingWriter> {
        // SAFETY: takes two numbers, and gives a descriptor or -1.
        let ended = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if ended < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it has just been opened, and nobody else knows of it.
        let ended = unsafe { OwnedFd::from_raw_fd(ended) };
        ring.submitter().register_eventfd(ended.as_raw_fd())?;
        ring.submitter().register_files(&[lock.as_raw_fd()])?;
        Ok(RingWriter { ring: ManuallyDrop::new(ring), ended, file: None, flight: None })
    }

    /// The file, opened once more, for this kind of writing.
    fn open(file: &DirFile) -> io::Result<File> {
        // A file has other names in the course of time, and its descriptor does not tell them.
        let path = format!("/proc/self/fd/{}", file.handle().as_raw_fd());
        OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EINVAL) => no_direct_io(),
                _ => error,
            }
        })
    }

    /// Makes it the one that is written to.
    fn file(&mut self, file: &DirFile) -> io::Result<()> {
        let known = self.file.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, file.handle()));
        if !known {
            self.file = Some((file.handle().clone(), RingWriter::open(file)?));
        }
        Ok(())
    }

    /// At multiples of how many bytes this file system writes past the page cache. `None`: the kernel does not say.
    ///
    /// **Errors:** it does not write so at all.
    pub fn alignment(file: &DirFile) -> io::Result<Option<u32>> {
        // SAFETY: all bits zero are a value of this type.
        let mut found: libc::statx = unsafe { std::mem::zeroed() };
        let (fd, flags) = (file.handle().as_raw_fd(), libc::AT_EMPTY_PATH);
        // SAFETY: an open descriptor, an empty path that ends, and a place for the answer.
        let done = unsafe { libc::statx(fd, c"".as_ptr(), flags, libc::STATX_DIOALIGN, &raw mut found) };
        if done != 0 || found.stx_mask & libc::STATX_DIOALIGN == 0 {
            return Ok(None);
        }
        if found.stx_dio_offset_align == 0 {
            return Err(no_direct_io());
        }
        Ok(Some(found.stx_dio_offset_align.max(found.stx_dio_mem_align)))
    }

    /// Hands over what is in the queue, and waits for `want` completions.
    fn enter(&self, want: usize) -> io::Result<()> {
        let mut attempts = 0;
        loop {
            match self.ring.submit_and_wait(want) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if passes(&error) && attempts < ATTEMPTS_MAX => {
                    attempts += 1;
                    std::thread::sleep(BREATH);
                }
                other => return other.map(drop),
            }
        }
    }

    /// As [`RingWriter::enter`] for one completion, which may not have come when it is over.
    fn enter_for(&self, longest: Duration) -> io::Result<()> {
        if !self.ring.params().is_feature_ext_arg() {
            // This kernel knows no such limit.
            std::thread::sleep(longest.min(LOOK_EVERY));
            return self.enter(0);
        }
        let longest = types::Timespec::from(longest);
        match self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&longest)) {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) || error.kind() == io::ErrorKind::Interrupted => {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Gives the write in `flight` to the kernel.
    fn submit(&mut self) -> io::Result<()> {
        let (Some(flight), Some((_, direct))) = (&self.flight, &self.file) else { return Ok(()) };
        let bytes = flight.pages.bytes();
        let len = u32::try_from(bytes.len()).expect("a write is bounded");
        let write = opcode::Write::new(types::Fd(direct.as_raw_fd()), bytes.as_ptr(), len)
            .offset(flight.offset)
            .rw_flags(libc::RWF_DSYNC)
            .build();
        // SAFETY: the buffer and the descriptor stay as they are until the completion has been seen. The buffer lies in `flight`, on the heap, which
        // nothing moves, changes or frees before `end`, which is only called with the completion's result; the descriptor lies in `file`, which
        // only `file()` replaces, for the next write.
        let pushed = unsafe { self.ring.submission().push(&write) };
        pushed.expect("nothing else is in the queue");
        self.enter(0)
    }

    /// Takes the end of the write that is under way. `None`: it goes on.
    fn end(&mut self, result: i32) -> Option<Result<Pages, StoreError>> {
        let Flight { pages, offset, path, attempts } = self.flight.take()?;
        let error = match End::of(result, pages.bytes().len()) {
            End::Done => return Some(Ok(ManuallyDrop::into_inner(pages))),
            End::Again(_) if attempts < ATTEMPTS_MAX => {
                self.flight = Some(Flight { pages, offset, path: path.clone(), attempts: attempts + 1 });
                match self.submit() {
                    Ok(()) => return None,
                    Err(error) => {
                        self.abandon();
                        error
                    }
                }
            }
            End::Again(error) | End::Failed(error) => {
                drop(ManuallyDrop::into_inner(pages));
                error
            }
        };
        Some(Err(describe(&path, "write to", &error)))
    }

    /// The kernel has not taken what was handed over, and will not: after this failure nothing is written any more.
    fn abandon(&mut self) {
        self.flight.take().map(|flight| ManuallyDrop::into_inner(flight.pages));
    }
}

impl DirectWriter<DirFile> for RingWriter {
    fn begin(&mut self, file: &DirFile, offset: u64, pages: Pages) -> Result<(), StoreError> {
        assert!(self.flight.is_none(), "one write at a time");
        let failed = |error: &io::Error| describe(file.path(), "write to", error);
        if !self.ring.submission().is_empty() {
            // It would go to the kernel with this one, and its buffer is gone.
            return Err(failed(&io::Error::other("the kernel has refused the write before")));
        }
        self.file(file).map_err(|e| failed(&e))?;
        // From here on the buffer is the kernel's, whatever becomes of this value.
        self.flight = Some(Flight { pages: ManuallyDrop::new(pages), offset, path: file.path().into(), attempts: 1 });
        if let Err(error) = self.submit() {
            self.abandon();
            return Err(failed(&error));
        }
        Ok(())
    }

    fn is_under_way(&self) -> bool {
        self.flight.is_some()
    }

    fn outcome(&mut self) -> Option<Result<Pages, StoreError>> {
        self.flight.as_ref()?;
        if self.ring.completion().is_empty() {
            if !self.ring.submission().taskrun() {
                return None;
            }
            if let Err(error) = self.enter(0) {
                return Some(Err(describe("the ring", "ask", &error)));
            }
        }
        let result = self.ring.completion().next()?.result();
        self.end(result)
    }

    fn wait(&mut self, longest: Option<Duration>) -> Option<Result<Pages, StoreError>> {
        self.flight.as_ref()?;
        let until = longest.map(|longest| Instant::now() + longest);
        loop {
            while self.ring.completion().is_empty() {
                let waited = match until {
                    None => self.enter(1),
                    Some(until) => match until.checked_duration_since(Instant::now()) {
                        None => return self.outcome(),
                        Some(left) => self.enter_for(left),
                    },
                };
                if let Err(error) = waited {
                    return Some(Err(describe("the ring", "wait for", &error)));
                }
            }
            let result = self.ring.completion().next()?.result();
            let ended = self.end(result);
            if ended.is_some() {
                return ended;
            }
        }
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ended.as_fd())
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        if self.flight.is_some() {
            // The kernel may still read the buffer. Both are lost, which costs less than bytes of others in the log.
            return;
        }
        // The kernel takes its time to end a ring; the lock is free at once.
        let _ = self.ring.submitter().unregister_files();
        // SAFETY: dropped here and nowhere else, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_whole_is_done_and_only_what_passes_is_tried_again() {
        assert!(matches!(End::of(8192, 8192), End::Done));
        for short in [0, 512, 4096, 8191] {
            assert!(matches!(End::of(short, 8192), End::Again(_)), "{short}");
        }
        for passing in [libc::EINTR, libc::EAGAIN, libc::EBUSY] {
            assert!(matches!(End::of(-passing, 8192), End::Again(_)), "{passing}");
        }
        for failure in [libc::EIO, libc::ENOSPC, libc::EINVAL, libc::EROFS, libc::ECANCELED, libc::EDQUOT] {
            assert!(matches!(End::of(-failure, 8192), End::Failed(_)), "{failure}");
        }
    }
}
