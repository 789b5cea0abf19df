//! A slow disk: it takes what is written in short turns only, so that every sync waits for one.

use crate::disk::Disk;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A sync waits half as long on average. Less than what a member takes for a death, or the disk would count as one that hangs.
const HANGS: Duration = Duration::from_millis(150);
/// The writes that gather meanwhile must get through, or the disk would hang in effect.
const TAKES: Duration = Duration::from_millis(50);

/// The disk is slow until this is dropped.
#[derive(Debug)]
pub struct Stutter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stutter {
    pub fn of(disk: Disk) -> Stutter {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                // A disk whose power is cut refuses, and is slow enough.
                if disk.freeze().is_ok() {
                    std::thread::sleep(HANGS);
                    let _ = disk.thaw();
                }
                std::thread::sleep(TAKES);
            }
        });
        Stutter { stop, thread: Some(thread) }
    }
}

impl Drop for Stutter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It ends thawed.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
