//! The group thread as its owner sees it. A disk that does not answer may hold up its end, and with it the log, but not the owner.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::log::Log;
use crate::slot::Slot;
use crate::threads::spawn;

/// How long a write of the log that is under way when the thread ends is waited for. A disk that takes longer is taken for one that does not answer.
const LAST_WRITE: Duration = Duration::from_secs(10);

pub struct GroupThread {
    handle: JoinHandle<Option<Log>>,
    told: Arc<Slot<End>>,
}

enum End {
    Done,
    /// Once the disk has answered.
    HeldUp,
}

/// Tells of the end, however it comes.
struct Tells(Arc<Slot<End>>);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.fill(End::Done);
    }
}

impl GroupThread {
    /// `body` gives the log back, or nothing if its state is unknown.
    pub fn start(body: impl FnOnce() -> Option<Log> + Send + 'static) -> GroupThread {
        let told = Arc::new(Slot::default());
        let tells = Tells(told.clone());
        let handle = spawn("trireme-group", move || {
            let mut log = body();
            // A write that this thread has begun is finished by the kernel in this thread's name.
            if let Some(log) = &mut log
                && !log.write_by_cache(Some(LAST_WRITE))
            {
                tells.0.fill(End::HeldUp);
                log.write_by_cache(None);
            }
            drop(tells);
            log
        });
        GroupThread { handle, told }
    }

    /// Waits until it has ended, and gives the log. Comes back with itself when the disk holds up its end.
    pub fn join(self) -> Result<Option<Log>, GroupThread> {
        match self.told.wait() {
            End::Done => Ok(self.handle.join().unwrap_or(None)),
            End::HeldUp => Err(self),
        }
    }

    /// For one that was held up: as [`GroupThread::join`], without waiting.
    pub fn join_if_over(self) -> Result<Option<Log>, GroupThread> {
        if self.handle.is_finished() { Ok(self.handle.join().unwrap_or(None)) } else { Err(self) }
    }
}
