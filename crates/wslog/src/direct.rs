//! Writing past the page cache: one write at a time, of whole pages, which nobody waits for and which is durable when it is done.
//!
//! A buffer under way belongs to its writer, so nobody can change it meanwhile: it goes there and comes back.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use trireme_order::StoreError;

/// Writes begin and end at multiples of this, in the file and in memory. The logical blocks of a device are no larger (one where they are fails
/// the trial write and is not written to in this way), and the pages of the cache that a write passes by are as large.
pub const PAGE: usize = 4096;
/// Most bytes of one write. Bytes that wait beyond them go with the next one.
pub const PAGES_MAX: usize = 512 * 1024;

/// A buffer for whole pages, at such an address.
pub struct Pages {
    memory: Box<[u8]>,
    /// Where the first page begins.
    start: usize,
    len: usize,
}

impl Default for Pages {
    fn default() -> Self {
        let memory = vec![0; PAGES_MAX + PAGE].into_boxed_slice();
        let start = memory.as_ptr().align_offset(PAGE);
        assert!(start < PAGE, "bytes can be aligned to a page");
        Pages { memory, start, len: 0 }
    }
}

impl Pages {
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// Bytes that still fit.
    pub fn room(&self) -> usize {
        PAGES_MAX - self.len
    }

    /// Appends. More than fits is a mistake of the caller's.
    pub fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.room(), "more than fits into a write");
        let at = self.start + self.len;
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends zeros up to the end of a page: `at_least` of them.
    pub fn pad(&mut self, at_least: usize) {
        let len = (self.len + at_least).next_multiple_of(PAGE);
        assert!(len <= PAGES_MAX, "more than fits into a write");
        self.memory[self.start + self.len..self.start + len].fill(0);
        self.len = len;
    }

    /// Forgets what lies behind the first `len` bytes, and the whole pages among these. Returns how many bytes went in front.
    pub fn keep_last_page(&mut self, len: usize) -> usize {
        assert!(len <= self.len, "nothing is kept that was not there");
        let gone = len - len % PAGE;
        self.memory.copy_within(self.start + gone..self.start + len, self.start);
        self.len = len - gone;
        gone
    }
}

/// Writes pages past the page cache. Drop it only when nothing is under way, or lose the memory of what is.
///
/// The kernel keeps page cache and such writes in agreement: what lies in the cache of the pages that are written is written back before, and
/// dropped. The log does not rely on the first (it writes no page in both ways without a sync in between), and on the second for reads only.
pub trait DirectWriter<F>: Send + 'static {
    /// Begins to write all of `pages`, whole pages, at `offset`, a multiple of [`PAGE`] within the file. Does not wait for the disk. One write at a time.
    fn begin(&mut self, file: &F, offset: u64, pages: Pages) -> Result<(), StoreError>;
    /// Is there one that has not been asked about until its end?
    fn is_under_way(&self) -> bool;
    /// `None`: it is still under way, or there is none. `Ok`: it is on the disk. An error may have left any part of it there, and is final.
    fn outcome(&mut self) -> Option<Result<Pages, StoreError>>;
    /// As [`DirectWriter::outcome`], and waits for it; no longer than `longest`, if that is said.
    fn wait(&mut self, longest: Option<Duration>) -> Option<Result<Pages, StoreError>>;
    /// Becomes readable, anew each time, when there is an outcome; nobody reads from it. `None`: somebody else knows when to ask.
    fn readable(&self) -> Option<BorrowedFd<'_>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_the_last_one_is_kept() {
        let mut pages = Pages::default();
        assert_eq!(pages.bytes().as_ptr().align_offset(PAGE), 0);
        pages.put(&[1; PAGE + 10]);
        pages.pad(8);
        assert_eq!(pages.bytes().len(), 2 * PAGE);
        assert!(pages.bytes()[PAGE + 10..].iter().all(|b| *b == 0));
        assert_eq!(pages.keep_last_page(PAGE + 10), PAGE);
        assert_eq!(pages.bytes(), [1; 10]);
        // The bytes that lay there before are no padding.
        pages.pad(PAGE - 10);
        assert_eq!(pages.bytes().len(), PAGE);
        assert_eq!(pages.keep_last_page(PAGE), PAGE);
        assert!(pages.bytes().is_empty());
        pages.put(&[2; PAGE]);
        pages.pad(1);
        assert_eq!(pages.bytes()[PAGE..], [0; PAGE]);
    }
}
