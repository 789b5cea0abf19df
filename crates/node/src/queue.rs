//! The items that the group has delivered and the server has not yet been told: taken in order by the `recv` threads.

use std::sync::Arc;
use std::time::Instant;

use crate::backlog::Backlog;
use crate::item::Item;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Default)]
struct State {
    items: Backlog,
    closed: bool,
    /// Threads waiting inside `take`.
    waiting: usize,
    /// Of these, so many were woken and have not looked again. Each is called once, for one item.
    called: usize,
    /// One thread looks for the next item without sleeping (`lingers`): it is on the way to whatever comes.
    lingers: bool,
    /// Threads between `arrive` and `depart`.
    present: usize,
    /// Items taken whose handling has not ended.
    busy: usize,
    /// One of them is to be handled alone.
    alone: bool,
    /// Items that wait, and that are being handled, which are no write sets: the server is told of these one after the other.
    words_waiting: usize,
    words_busy: usize,
    /// The server is being told something beside the queue: only write sets may be taken meanwhile.
    beside: bool,
    /// Somebody wants to know when no more than this many wait.
    watched: Option<usize>,
    stats: QueueStats,
}

impl State {
    /// Can the next item be taken?
    fn front_is_free(&self) -> bool {
        let free =
            |item: &Item| !self.alone && (self.busy == 0 || !item.alone()) && (!self.beside || item.is_write_set());
        self.items.front().is_some_and(free)
    }
}

/// For `wsrep_local_recv_queue_*`.
#[derive(Clone, Copy, Default)]
pub struct QueueStats {
    pub max: u64,
    pub min: u64,
    pub samples: u64,
    pub sum: u64,
}

/// Something is told to the server beside the queue, until this is dropped: also where it never comes to that.
pub struct Beside(Arc<ApplyQueue>);

impl Drop for Beside {
    fn drop(&mut self) {
        let mut s = self.0.lock();
        s.beside = false;
        self.0.call(s);
    }
}

/// See the module.
#[derive(Default)]
pub struct ApplyQueue {
    state: Mutex<State>,
    /// Number of items, for those who look often; changes under the lock.
    length: AtomicUsize,
    /// Something can be taken, or nothing more will come.
    ready: Condvar,
    /// The last thread has departed.
    empty: Condvar,
}

impl ApplyQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the apply queue panics")
    }

    pub fn push(&self, item: Item) {
        let mut s = self.lock();
        s.words_waiting += usize::from(!item.is_write_set());
        s.items.push(item);
        self.length.store(s.items.len(), Relaxed);
        let n = s.items.len() as u64;
        s.stats.max = s.stats.max.max(n);
        s.stats.min = s.stats.min.min(n);
        s.stats.samples += 1;
        s.stats.sum += n - 1;
        self.call(s);
    }

    /// Wakes a thread if there is an item that can be taken and nobody on the way to it; all of them, if nothing more will come. Without the
    /// lock: they would wait for that at once.
    fn call(&self, mut s: MutexGuard<'_, State>) {
        let over = s.closed && s.items.is_empty() && s.waiting > 0;
        let one_more = s.waiting > s.called && s.items.len() > s.called + usize::from(s.lingers) && s.front_is_free();
        s.called += usize::from(one_more);
        drop(s);
        if over {
            self.ready.notify_all();
        } else if one_more {
            self.ready.notify_one();
        }
    }

    /// Asks for one call of `sank` when no more than `mark` items wait; `false` if that is so already. A later call takes the
    /// place of an earlier one.
    pub fn watch(&self, mark: Option<usize>) -> bool {
        let mut s = self.lock();
        let above = mark.is_none_or(|mark| s.items.len() > mark);
        s.watched = mark.filter(|_| above);
        above
    }

    /// The next item, in order; `None` once closed and empty. `sank`: see [`ApplyQueue::watch`]. `linger` waits as long
    /// as it thinks fit for the number of items to become more than none.
    pub fn take(&self, sank: impl Fn(), linger: impl Fn(&AtomicUsize)) -> Option<Item> {
        let mut s = self.lock();
        let mut has_lingered = false;
        loop {
            if s.front_is_free()
                && let Some(item) = s.items.pop()
            {
                if !item.is_write_set() {
                    s.words_waiting -= 1;
                    s.words_busy += 1;
                }
                self.length.store(s.items.len(), Relaxed);
                s.busy += 1;
                s.alone = item.alone();
                let left = s.items.len();
                let has_sunk = s.watched.take_if(|mark| left <= *mark).is_some();
                // The item behind it may have waited for the same.
                self.call(s);
                if has_sunk {
                    sank();
                }
                return Some(item);
            }
            if s.closed && s.items.is_empty() {
                return None;
            }
            if !has_lingered && !s.lingers && s.items.is_empty() {
                s.lingers = true;
                drop(s);
                linger(&self.length);
                s = self.lock();
                s.lingers = false;
                has_lingered = true;
                continue;
            }
            has_lingered = false;
            s.waiting += 1;
            s = self.ready.wait(s).expect("no holder of the apply queue panics");
            s.waiting -= 1;
            s.called = s.called.saturating_sub(1);
        }
    }

    /// The handling of a taken item has ended. The caller looks for the next item, or departs: so nobody is woken for an
    /// item that the caller takes anyway.
    pub fn done(&self, write_set: bool) {
        let mut s = self.lock();
        s.busy -= 1;
        s.words_busy -= usize::from(!write_set);
        s.alone = false;
    }

    /// Begins to tell the server something beside the queue, before the write sets that stand in the way: they are ordered, and will
    /// be applied whatever the server is told. `None` when none stand there, or something whose place is before it as well.
    pub fn begin_beside(self: &Arc<Self>) -> Option<Beside> {
        let mut s = self.lock();
        let behind_write_sets = s.busy > 0 || !s.items.is_empty();
        let behind_words = s.words_waiting > 0 || s.words_busy > 0 || s.beside;
        let begins = behind_write_sets && !behind_words && !s.closed;
        s.beside |= begins;
        begins.then(|| Beside(Arc::clone(self)))
    }

    /// A thread begins to take items.
    pub fn arrive(&self) {
        self.lock().present += 1;
    }

    /// It has taken its last one.
    pub fn depart(&self) {
        let mut s = self.lock();
        s.present -= 1;
        if s.present == 0 {
            self.empty.notify_all();
        }
        // Its last item may have held up one that another thread can take now.
        self.call(s);
    }

    /// Waits until no thread takes items any more; false when some still do at the deadline.
    pub fn wait_empty(&self, deadline: Instant) -> bool {
        let mut s = self.lock();
        while s.present > 0 {
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            s = self.empty.wait_timeout(s, deadline - now).expect("no holder of the apply queue panics").0;
        }
        true
    }

    /// No more items: takers return when what is queued has been taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    pub fn open(&self) {
        let mut s = self.lock();
        s.closed = false;
        s.items.clear();
        s.words_waiting = 0;
        self.length.store(0, Relaxed);
    }

    /// Drops everything not yet taken.
    pub fn clear(&self) {
        let mut s = self.lock();
        s.items.clear();
        s.words_waiting = 0;
        self.length.store(0, Relaxed);
        self.call(s);
    }

    pub fn len(&self) -> usize {
        self.length.load(Relaxed)
    }

    pub fn stats(&self) -> QueueStats {
        self.lock().stats
    }

    pub fn reset_stats(&self) {
        let mut s = self.lock();
        let n = s.items.len() as u64;
        s.stats = QueueStats { max: n, min: n, samples: 0, sum: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ApplyItem;
    use bytes::Bytes;
    use std::sync::mpsc;
    use std::thread;
    use trireme_types::{LogIndex, Seqno};

    fn apply(n: u64) -> Item {
        Item::Apply(ApplyItem {
            seqno: Seqno(n),
            index: LogIndex(n),
            depends_on: Seqno(0),
            ok: true,
            body: Some(Bytes::from_static(b"body")),
        })
    }

    /// docs/operations/flow-control.md says what a long backlog costs.
    #[test]
    fn an_item_without_its_body_is_small() {
        assert!(size_of::<Item>() <= 160, "{}", size_of::<Item>());
    }

    #[test]
    fn an_item_to_be_handled_alone_waits_for_those_before_and_holds_those_after() {
        let queue = Arc::new(ApplyQueue::default());
        for item in [apply(1), apply(2), Item::SstRequest { data: true }, apply(3)] {
            queue.push(item);
        }
        // Two threads, which leave after their items.
        for n in [1, 2] {
            queue.arrive();
            assert_eq!(queue.take(|| (), |_| ()).unwrap().seqno(), Some(Seqno(n)));
        }
        let leave = || {
            queue.done(true);
            queue.depart();
        };
        let (tell, told) = mpsc::channel();
        let (go, gate) = mpsc::channel();
        let taker = {
            let queue = queue.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let item = queue.take(|| (), |_| ()).unwrap();
                    tell.send(item.seqno()).unwrap();
                    gate.recv().unwrap();
                    queue.done(item.is_write_set());
                }
            })
        };
        leave();
        assert!(told.try_recv().is_err(), "one is still being handled");
        leave();
        assert_eq!(told.recv().unwrap(), None);
        assert!(told.try_recv().is_err(), "the lone one is still being handled");
        go.send(()).unwrap();
        assert_eq!(told.recv().unwrap(), Some(Seqno(3)));
        go.send(()).unwrap();
        taker.join().unwrap();
    }

    #[test]
    fn beside_it_only_write_sets_are_taken() {
        let queue = Arc::new(ApplyQueue::default());
        assert!(queue.begin_beside().is_none(), "nothing stands in the way");
        queue.push(apply(1));
        queue.take(|| (), |_| ()).unwrap();
        let beside = queue.begin_beside().unwrap();
        assert!(queue.begin_beside().is_none(), "one after the other");
        queue.push(apply(2));
        queue.push(Item::Synced { at: Seqno(2) });
        assert_eq!(queue.take(|| (), |_| ()).unwrap().seqno(), Some(Seqno(2)));
        queue.done(true);
        queue.done(true);
        let (tell, told) = mpsc::channel();
        let taker = {
            let queue = queue.clone();
            thread::spawn(move || tell.send(queue.take(|| (), |_| ()).unwrap().is_write_set()).unwrap())
        };
        assert!(told.try_recv().is_err());
        drop(beside);
        assert!(!told.recv().unwrap());
        taker.join().unwrap();
        queue.push(apply(3));
        assert!(queue.begin_beside().is_none(), "the server is being told something else");
        queue.done(false);
        assert!(queue.begin_beside().is_some());
    }

    /// A node that gives up drops what is queued, and its server hears of a lost majority all the same.
    #[test]
    fn what_was_dropped_stands_in_nobodys_way() {
        let queue = Arc::new(ApplyQueue::default());
        queue.push(apply(1));
        queue.take(|| (), |_| ()).unwrap();
        queue.push(Item::Synced { at: Seqno(1) });
        assert!(queue.begin_beside().is_none());
        queue.clear();
        assert!(queue.begin_beside().is_some());
    }

    /// The thread that would tell it is gone.
    #[test]
    fn what_nobody_tells_holds_nothing_up() {
        let queue = Arc::new(ApplyQueue::default());
        queue.push(apply(1));
        queue.take(|| (), |_| ()).unwrap();
        let (notices, gone) = mpsc::channel();
        drop(gone);
        assert!(notices.send(queue.begin_beside().unwrap()).is_err());
        queue.done(true);
        queue.push(Item::Synced { at: Seqno(1) });
        assert!(!queue.take(|| (), |_| ()).unwrap().is_write_set());
    }

    #[test]
    fn a_watcher_is_told_once_when_the_queue_has_sunk() {
        let queue = ApplyQueue::default();
        for n in 1..=4 {
            queue.push(apply(n));
        }
        let told = std::cell::Cell::new(0);
        let take = || queue.take(|| told.set(told.get() + 1), |_| ()).unwrap();
        assert!(!queue.watch(Some(4)), "it has sunk already");
        take();
        assert_eq!(told.get(), 0);
        assert!(queue.watch(Some(1)));
        take();
        assert_eq!(told.get(), 0);
        take();
        take();
        assert_eq!(told.get(), 1);
        queue.push(apply(5));
        assert!(queue.watch(Some(0)));
        queue.watch(None);
        take();
        assert_eq!(told.get(), 1);
    }

    #[test]
    fn closing_ends_takers_after_what_is_queued() {
        let queue = ApplyQueue::default();
        queue.push(apply(1));
        queue.close();
        assert!(queue.take(|| (), |_| ()).is_some());
        assert!(queue.take(|| (), |_| ()).is_none());
    }
}
