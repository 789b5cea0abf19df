//! How soon a thread runs that is woken.
//!
//! All that a node commits passes its commit order, one after the other. An applier that waits for a processor holds up there all that stand
//! behind it, clients included. Where many threads share few processors, that makes the longest commits. Linux from 6.12 on lets any thread ask for
//! short slices: when it is woken, it runs before threads with longer ones. Its part of the processors stays the same, and the threads change more
//! often, which costs some throughput. So appliers ask for it only while they are behind. Other kernels ignore the wish or refuse it.

use std::marker::PhantomData;

/// The shortest slice that Linux grants.
const SLICE_NS: u64 = 100_000;
/// Appliers with more than this before them are behind, until nothing waits any more.
const BEHIND: usize = 16;

/// The slices of the calling thread. They are the usual ones again when this is dropped.
pub struct Prompt {
    /// In nanoseconds; zero: the kernel tells no slices.
    usual: u64,
    short: bool,
    /// Another thread has slices of its own.
    here: PhantomData<*const ()>,
}

impl Prompt {
    pub fn begin() -> Prompt {
        Prompt { usual: attributes().map_or(0, |a| a.sched_runtime), short: false, here: PhantomData }
    }

    /// For an applier, before so many write sets.
    pub fn look(&mut self, backlog: usize) {
        if backlog > BEHIND || backlog == 0 {
            self.set(backlog > BEHIND);
        }
    }

    fn set(&mut self, short: bool) {
        if short == self.short || self.usual <= SLICE_NS {
            return;
        }
        self.short = short;
        // Read again: an operator may have changed the rest meanwhile.
        if let Some(now) = attributes().filter(is_fair) {
            set_attributes(&libc::sched_attr { sched_runtime: if short { SLICE_NS } else { self.usual }, ..now });
        }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Is this one of the policies that divide the processors by weight? A real-time thread has no need of this.
fn is_fair(a: &libc::sched_attr) -> bool {
    [libc::SCHED_OTHER, libc::SCHED_BATCH].map(|policy| policy as u32).contains(&a.sched_policy)
}

/// Of the calling thread.
fn attributes() -> Option<libc::sched_attr> {
    const SIZE: usize = size_of::<libc::sched_attr>();
    let mut found = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    // SAFETY: the kernel writes no more than the size that it is told. All bits zero are a valid value.
    unsafe {
        let result = libc::syscall(libc::SYS_sched_getattr, 0, found.as_mut_ptr(), SIZE, 0);
        (result == 0).then(|| found.assume_init())
    }
}

/// A refusal changes nothing, and nothing depends on it.
fn set_attributes(wanted: &libc::sched_attr) {
    // SAFETY: the kernel reads the structure, whose size stands in it, and changes the calling thread alone.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(wanted), 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_short_while_the_backlog_is_long_and_nothing_else_changes() {
        let others = |a: &libc::sched_attr| (a.sched_policy, a.sched_flags, a.sched_nice, a.sched_priority);
        let before = attributes().unwrap();
        let usual = before.sched_runtime;
        // A kernel before 6.12 tells no slices.
        let short = if usual == 0 || !is_fair(&before) { usual } else { SLICE_NS };
        let mut prompt = Prompt::begin();
        let backlogs = [(BEHIND, usual), (BEHIND + 1, short), (1, short), (0, usual), (1, usual), (BEHIND + 1, short)];
        for (backlog, slice) in backlogs {
            prompt.look(backlog);
            let now = attributes().unwrap();
            assert_eq!((now.sched_runtime, others(&now)), (slice, others(&before)), "before {backlog} write sets");
        }
        drop(prompt);
        assert_eq!(attributes().unwrap().sched_runtime, usual);
    }
}
