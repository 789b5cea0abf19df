//! A disk that does not answer to a write past the page cache, for tests.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trireme_order::StoreError;
use trireme_wslog::{DirFile, DirectWriter, Pages};

use crate::panics::Panics;

/// The place where its writes stand still.
const PLACE: &str = "write past the cache";
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// No write ends while nobody may pass the place. That it may again is not told to a poll: the next look finds out.
pub struct StalledWriter<W> {
    writer: W,
    panics: Arc<Panics>,
}

impl<W> StalledWriter<W> {
    pub fn new(writer: W, panics: Arc<Panics>) -> StalledWriter<W> {
        StalledWriter { writer, panics }
    }
}

impl<W: DirectWriter<DirFile>> DirectWriter<DirFile> for StalledWriter<W> {
    fn begin(&mut self, file: &DirFile, offset: u64, pages: Pages) -> Result<(), StoreError> {
        self.writer.begin(file, offset, pages)
    }

    fn is_under_way(&self) -> bool {
        self.writer.is_under_way()
    }

    fn outcome(&mut self) -> Option<Result<Pages, StoreError>> {
        if self.panics.holds(PLACE) { None } else { self.writer.outcome() }
    }

    fn wait(&mut self, longest: Option<Duration>) -> Option<Result<Pages, StoreError>> {
        if !self.is_under_way() {
            return None;
        }
        let until = longest.map(|longest| Instant::now() + longest);
        while self.panics.holds(PLACE) {
            if until.is_some_and(|until| Instant::now() >= until) {
                return None;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.writer.wait(longest)
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.writer.readable()
    }
}
