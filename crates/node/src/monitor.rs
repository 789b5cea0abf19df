//! The commit order: every seqno is entered and left exactly once, in order (contract 5.3).
//!
//! Server threads block here and nowhere else for ordering. Each waiter sleeps on a condition of its own, so that a step
//! wakes only who must run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use trireme_types::Seqno;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Why a wait ended without its condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupted {
    /// The brute-force mark of the waiting transaction was set.
    Aborted,
    /// The monitor was closed: the node is leaving.
    Closed,
    TimedOut,
}

struct State {
    /// Everything up to here has left.
    left: u64,
    /// Everything up to here has ended: the engine has made it visible, which is later than leaving (contract 4.2).
    ended: u64,
    /// Ended above a gap.
    ended_above: BTreeSet<u64>,
    /// The seqno inside the section: always `left + 1` when set.
    inside: Option<u64>,
    /// The highest seqno that has begun: its effects may be under way in the server, so a pause has to wait for it.
    begun: u64,
    /// The last seqno that this node will ever close, once that is known (it left the group, or hears no majority).
    last: Option<u64>,
    /// Nothing above this starts or enters while set (`pause`).
    pause_at: Option<u64>,
    /// Nothing above any of these enters (a donor callback is running at that position).
    barriers: Vec<u64>,
    /// Waiters for their turn to enter, or for the end of a pause (`wait_unpaused`), by seqno.
    turns: BTreeMap<u64, Arc<Condvar>>,
    /// Waiters for a position to have left, or to have ended, by (position, ticket).
    positions: BTreeMap<(u64, u64), Arc<Condvar>>,
    tickets: u64,
    closed: bool,
    stats: Stats,
}

/// Counters for the status variables.
#[derive(Clone, Copy, Default)]
pub struct Stats {
    pub apply_waits: u64,
    /// Write sets that began, of those that did so although one before them had not ended, and sum of the distances from the last that had
    /// ended to the last that had begun.
    pub begun: u64,
    pub begun_out_of_order: u64,
    pub apply_window: u64,
    /// Those that ended, and of them those that did so although one before them had not.
    pub ended: u64,
    pub ended_out_of_order: u64,
    /// Those that entered the commit order, and sum of the distances from the last that had left to the last that waited for its turn.
    pub entered: u64,
    pub commit_window: u64,
}

impl Stats {
    pub fn apply_oooe(&self) -> f64 {
        mean(self.begun_out_of_order, self.begun)
    }

    pub fn apply_oool(&self) -> f64 {
        mean(self.ended_out_of_order, self.ended)
    }

    pub fn apply_window(&self) -> f64 {
        mean(self.apply_window, self.begun)
    }

    pub fn commit_window(&self) -> f64 {
        mean(self.commit_window, self.entered)
    }
}

fn mean(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

/// See the module.
pub struct OrderMonitor {
    state: Mutex<State>,
}

impl OrderMonitor {
    pub fn new(left: Seqno) -> OrderMonitor {
        OrderMonitor {
            state: Mutex::new(State {
                left: left.0,
                ended: left.0,
                ended_above: BTreeSet::new(),
                inside: None,
                begun: left.0,
                last: None,
                pause_at: None,
                barriers: Vec::new(),
                turns: BTreeMap::new(),
                positions: BTreeMap::new(),
                tickets: 0,
                closed: false,
                stats: Stats::default(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the commit order panics")
    }

    /// Continue at another position: after a state transfer, with nobody inside.
    pub fn reset(&self, left: Seqno) {
        let mut s = self.lock();
        s.left = left.0;
        s.ended = left.0;
        s.ended_above.clear();
        s.inside = None;
        s.begun = left.0;
        s.last = None;
        s.wake_all();
    }

    /// Nothing above `last` will come, as far as can be told: who waits for such a position is let go. `None`: it will.
    pub fn set_last(&self, last: Option<Seqno>) {
        let mut s = self.lock();
        s.last = last.map(|l| l.0);
        s.wake_all();
    }

    /// Let go of everybody (leaving), or accept waiters again.
    pub fn set_closed(&self, closed: bool) {
        let mut s = self.lock();
        s.closed = closed;
        if closed {
            s.pause_at = None;
            s.barriers.clear();
            s.wake_all();
        }
    }

    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Last seqno that has left.
    pub fn left(&self) -> Seqno {
        Seqno(self.lock().left)
    }

    /// Everything up to here has ended: it is committed in the engine's memory.
    pub fn ended(&self) -> Seqno {
        Seqno(self.lock().ended)
    }

    /// Waits for the turn of `seqno`. With `abort`, a set mark ends the wait, but never once the section is entered: the
    /// decision is made under the monitor's lock, the same as [`abort`](Self::abort)'s.
    pub fn enter(&self, seqno: Seqno, abort: Option<&AtomicBool>) -> Result<(), Interrupted> {
        let n = seqno.0;
        let mut s = self.lock();
        let mut own: Option<Arc<Condvar>> = None;
        loop {
            if abort.is_some_and(|a| a.load(Ordering::Relaxed)) {
                s.turns.remove(&n);
                return Err(Interrupted::Aborted);
            }
            if s.may_enter(n) {
                s.turns.remove(&n);
                s.inside = Some(n);
                s.begun = s.begun.max(n);
                let last = s.turns.last_key_value().map_or(n, |(last, _)| n.max(*last));
                s.stats.entered += 1;
                s.stats.commit_window += last - s.left;
                return Ok(());
            }
            // The call that should have left it failed half-way: whoever releases the transaction closes it.
            if s.inside == Some(n) {
                return Ok(());
            }
            // Already closed on this node: nothing left to order (never in a correct run; do not hang the server).
            if s.left >= n || s.closed && s.left + 1 < n {
                s.turns.remove(&n);
                return Err(Interrupted::Closed);
            }
            let condition = own.get_or_insert_with(Default::default).clone();
            s.turns.insert(n, condition.clone());
            s = condition.wait(s).expect("no holder of the commit order panics");
        }
    }

    /// Leaves the section of `seqno`. False when it was not inside (left before, or never entered).
    pub fn leave(&self, seqno: Seqno) -> bool {
        let mut s = self.lock();
        if s.inside != Some(seqno.0) {
            return false;
        }
        s.inside = None;
        s.left = seqno.0;
        let next = s.turns.get(&(seqno.0 + 1)).cloned();
        let reached: Vec<_> = s.positions.range(..=(seqno.0, u64::MAX)).map(|(_, waiter)| waiter.clone()).collect();
        // Without the lock: they would wait for that at once.
        drop(s);
        next.iter().chain(&reached).for_each(|waiter| waiter.notify_one());
        true
    }

    /// The engine is done with `seqno`: what it wrote can be read.
    pub fn end(&self, seqno: Seqno) {
        let mut s = self.lock();
        if seqno.0 <= s.ended {
            return;
        }
        if s.ended_above.insert(seqno.0) {
            s.stats.ended += 1;
            s.stats.ended_out_of_order += u64::from(seqno.0 > s.ended + 1);
        }
        let before = s.ended;
        while s.ended_above.first() == Some(&(s.ended + 1)) {
            s.ended_above.pop_first();
            s.ended += 1;
        }
        if s.ended > before {
            for (_, waiter) in s.positions.range(..=(s.ended, u64::MAX)) {
                waiter.notify_one();
            }
        }
    }

    /// Waits for the turn of `seqno` and for the end of everything before it: for a position that the server writes into the engine by
    /// itself. With a binary log, who has left may not have committed in the engine yet, and a crash must not find a position there
    /// that its data do not reach.
    pub fn enter_when_ended(&self, seqno: Seqno) -> Result<(), Interrupted> {
        self.enter(seqno, None)?;
        // Cut short where the node leaves: the section is entered all the same.
        let _ = self.wait_ended_before(seqno);
        Ok(())
    }

    /// Waits until `seqno` may start in a world where everything before it has ended: a statement or a view, whose position the server
    /// stores by itself, see [`enter_when_ended`](Self::enter_when_ended).
    pub fn wait_start_when_ended(&self, seqno: Seqno) -> Result<(), Interrupted> {
        self.wait_start(seqno, seqno.prev())?;
        self.wait_ended_before(seqno)
    }

    /// Each write set that was handed to appliers ends, also beyond the last seqno that clients may wait for while no majority is heard.
    fn wait_ended_before(&self, seqno: Seqno) -> Result<(), Interrupted> {
        let before = seqno.prev().0;
        self.wait_position(self.lock(), before, None, |s| s.ended >= before, |_| false).map(drop)
    }

    /// Waits until everything up to `seqno` can be read.
    pub fn wait_ended(&self, seqno: Seqno, deadline: Option<Instant>) -> Result<(), Interrupted> {
        let s = self.lock();
        let hopeless = |s: &State| s.last.is_some_and(|last| seqno.0 > last);
        self.wait_position(s, seqno.0, deadline, |s| s.ended >= seqno.0, hopeless).map(drop)
    }

    /// Sets a transaction's brute-force mark unless it has entered (or left) its section.
    pub fn abort(&self, seqno: Option<Seqno>, mark: &AtomicBool) -> bool {
        let s = self.lock();
        if let Some(n) = seqno {
            if s.inside == Some(n.0) || s.left >= n.0 {
                return false;
            }
        }
        mark.store(true, Ordering::Relaxed);
        if let Some(condition) = seqno.and_then(|n| s.turns.get(&n.0)) {
            condition.notify_one();
        }
        true
    }

    /// Waits until everything up to `seqno` has left.
    pub fn wait_left(&self, seqno: Seqno, deadline: Option<Instant>) -> Result<(), Interrupted> {
        let s = self.lock();
        let hopeless = |s: &State| s.last.is_some_and(|last| seqno.0 > last);
        self.wait_position(s, seqno.0, deadline, |s| s.left >= seqno.0, hopeless).map(drop)
    }

    /// Waits until everything up to `seqno` has left, all of which was handed out. It leaves, also beyond the last seqno that clients may wait for
    /// while no majority is heard.
    pub fn wait_handed(&self, seqno: Seqno) -> Result<(), Interrupted> {
        self.wait_position(self.lock(), seqno.0, None, |s| s.left >= seqno.0, |_| false).map(drop)
    }

    /// Waits until `seqno` may start applying: `depends_on` has left and no pause is below it.
    pub fn wait_start(&self, seqno: Seqno, depends_on: Seqno) -> Result<(), Interrupted> {
        let mut s = self.lock();
        let ready = |s: &State| s.left >= depends_on.0 && s.pause_at.is_none_or(|p| seqno.0 <= p);
        if !ready(&s) {
            s.stats.apply_waits += 1;
        }
        let mut s = self.wait_position(s, depends_on.0, None, ready, |_| false)?;
        s.begin(seqno.0);
        Ok(())
    }

    fn wait_position<'a>(
        &self,
        mut s: MutexGuard<'a, State>,
        position: u64,
        deadline: Option<Instant>,
        ready: impl Fn(&State) -> bool,
        hopeless: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>, Interrupted> {
        let ticket = s.tickets;
        s.tickets += 1;
        let mut own: Option<Arc<Condvar>> = None;
        let result = loop {
            if ready(&s) {
                break Ok(());
            }
            if s.closed || hopeless(&s) {
                break Err(Interrupted::Closed);
            }
            let condition = own.get_or_insert_with(Default::default).clone();
            s.positions.insert((position, ticket), condition.clone());
            s = match deadline {
                None => condition.wait(s).expect("no holder of the commit order panics"),
                Some(at) => {
                    let now = Instant::now();
                    if now >= at {
                        break Err(Interrupted::TimedOut);
                    }
                    condition.wait_timeout(s, at - now).expect("no holder of the commit order panics").0
                }
            };
        };
        s.positions.remove(&(position, ticket));
        result.map(|()| s)
    }

    /// Stops everything that has not begun, waits until the rest has left, and returns the position.
    ///
    /// It must not wait for what has not begun: the server pauses while it holds locks (FLUSH TABLES WITH READ LOCK) that an
    /// applier which begins now would need.
    pub fn pause(&self) -> Result<Seqno, Interrupted> {
        let mut s = self.lock();
        let limit = s.left.max(s.begun);
        s.pause_at = Some(limit);
        // A disconnect in between breaks the pause; then there is nothing to wait for.
        let s = self.wait_position(s, limit, None, |s| s.ended >= limit || s.pause_at.is_none(), |_| false)?;
        if s.pause_at == Some(limit) { Ok(Seqno(limit)) } else { Err(Interrupted::Closed) }
    }

    pub fn resume(&self) {
        let mut s = self.lock();
        s.pause_at = None;
        s.wake_all();
    }

    pub fn paused(&self) -> bool {
        self.lock().pause_at.is_some()
    }

    /// A freshly certified local transaction above a pause waits here (contract 6.3). It may hold row locks that an applier
    /// below the pause needs, so a brute-force mark ends the wait.
    pub fn wait_unpaused(&self, seqno: Seqno, mark: &AtomicBool) -> Result<(), Interrupted> {
        let n = seqno.0;
        let mut s = self.lock();
        let result = loop {
            if mark.load(Ordering::Relaxed) {
                break Err(Interrupted::Aborted);
            }
            if s.closed || s.pause_at.is_none_or(|p| n <= p) {
                s.begin(n);
                break Ok(());
            }
            let condition: Arc<Condvar> = s.turns.entry(n).or_default().clone();
            s = condition.wait(s).expect("no holder of the commit order panics");
        };
        s.turns.remove(&n);
        result
    }

    /// Nothing above `seqno` enters until the barrier is lifted. In a monitor that is closed nobody would lift it.
    pub fn raise_barrier(&self, seqno: Seqno) {
        let mut s = self.lock();
        if !s.closed {
            s.barriers.push(seqno.0);
        }
    }

    pub fn lift_barrier(&self, seqno: Seqno) {
        let mut s = self.lock();
        if let Some(at) = s.barriers.iter().position(|b| *b == seqno.0) {
            s.barriers.swap_remove(at);
        }
        s.wake_all();
    }

    pub fn stats(&self) -> Stats {
        self.lock().stats
    }

    pub fn reset_stats(&self) {
        self.lock().stats = Stats::default();
    }
}

impl State {
    fn begin(&mut self, n: u64) {
        self.begun = self.begun.max(n);
        self.stats.begun += 1;
        self.stats.begun_out_of_order += u64::from(n > self.ended + 1);
        self.stats.apply_window += self.begun.saturating_sub(self.ended);
    }

    fn may_enter(&self, n: u64) -> bool {
        self.inside.is_none()
            && self.left + 1 == n
            && self.pause_at.is_none_or(|p| n <= p)
            && self.barriers.iter().all(|b| n <= *b)
    }

    fn wake_all(&mut self) {
        for waiter in self.turns.values().chain(self.positions.values()) {
            waiter.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_section_that_was_not_left_is_left_by_whoever_releases() {
        let m = OrderMonitor::new(Seqno(0));
        m.enter(Seqno(1), None).unwrap();
        m.enter(Seqno(1), None).unwrap();
        assert!(m.leave(Seqno(1)));
        m.enter(Seqno(2), None).unwrap();
    }

    #[test]
    fn sections_are_entered_in_order_whatever_the_arrival() {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        let order = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = [3u64, 1, 4, 2]
            .into_iter()
            .map(|n| {
                let (monitor, order) = (monitor.clone(), order.clone());
                thread::spawn(move || {
                    monitor.enter(Seqno(n), None).unwrap();
                    order.lock().unwrap().push(n);
                    assert!(monitor.leave(Seqno(n)));
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn an_abort_wakes_a_waiting_enter_but_not_one_inside() {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        let mark = Arc::new(AtomicBool::new(false));
        let (m, k) = (monitor.clone(), mark.clone());
        let waiting = thread::spawn(move || m.enter(Seqno(2), Some(&k)));
        assert!(monitor.abort(Some(Seqno(2)), &mark));
        assert_eq!(waiting.join().unwrap(), Err(Interrupted::Aborted));
        let inside = AtomicBool::new(false);
        monitor.enter(Seqno(1), Some(&inside)).unwrap();
        assert!(!monitor.abort(Some(Seqno(1)), &inside));
        assert!(!inside.load(Ordering::Relaxed));
    }

    #[test]
    fn pause_waits_for_open_sections_and_holds_later_ones() {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        monitor.enter(Seqno(1), None).unwrap();
        let m = monitor.clone();
        let (told, tell) = mpsc::channel();
        let pausing = thread::spawn(move || {
            let at = m.pause().unwrap();
            told.send(()).unwrap();
            at
        });
        while !monitor.paused() {
            thread::yield_now();
        }
        assert!(tell.try_recv().is_err());
        monitor.leave(Seqno(1));
        monitor.end(Seqno(1));
        assert_eq!(pausing.join().unwrap(), Seqno(1));
        let m = monitor.clone();
        let next = thread::spawn(move || m.enter(Seqno(2), None));
        assert_eq!(monitor.left(), Seqno(1));
        monitor.resume();
        next.join().unwrap().unwrap();
    }

    #[test]
    fn a_pause_does_not_wait_for_what_has_not_begun_and_is_waited_for_by_certified_transactions() {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        // 1 is queued and has not begun: the pause ends at once.
        assert_eq!(monitor.pause().unwrap(), Seqno(0));
        let mark = Arc::new(AtomicBool::new(false));
        let (m, k) = (monitor.clone(), mark.clone());
        let local = thread::spawn(move || m.wait_unpaused(Seqno(2), &k));
        while monitor.lock().turns.is_empty() {
            thread::yield_now();
        }
        assert!(monitor.abort(Some(Seqno(2)), &mark));
        assert_eq!(local.join().unwrap(), Err(Interrupted::Aborted));
        monitor.resume();
        monitor.wait_unpaused(Seqno(2), &AtomicBool::new(false)).unwrap();
        let m = monitor.clone();
        let pausing = thread::spawn(move || m.pause());
        while !monitor.paused() {
            thread::yield_now();
        }
        for n in [1, 2] {
            monitor.enter(Seqno(n), None).unwrap();
            monitor.leave(Seqno(n));
            monitor.end(Seqno(n));
        }
        assert_eq!(pausing.join().unwrap(), Ok(Seqno(2)));
    }

    #[test]
    fn what_has_left_can_be_read_only_when_everything_before_it_has_ended() {
        let monitor = OrderMonitor::new(Seqno(0));
        for n in 1..=2 {
            monitor.enter(Seqno(n), None).unwrap();
            monitor.leave(Seqno(n));
        }
        let now = || Some(Instant::now());
        monitor.end(Seqno(2));
        assert_eq!(monitor.wait_ended(Seqno(1), now()), Err(Interrupted::TimedOut));
        assert_eq!(monitor.wait_left(Seqno(2), now()), Ok(()));
        monitor.end(Seqno(1));
        assert_eq!(monitor.wait_ended(Seqno(2), now()), Ok(()));
    }

    /// A thread that waits so, once it does.
    fn waiter(
        monitor: &Arc<OrderMonitor>,
        wait: fn(&OrderMonitor) -> Result<(), Interrupted>,
    ) -> thread::JoinHandle<Result<(), Interrupted>> {
        let m = monitor.clone();
        let waiting = thread::spawn(move || wait(&m));
        while monitor.lock().positions.is_empty() && !waiting.is_finished() {
            thread::yield_now();
        }
        waiting
    }

    /// Runs `wait` for 2 while 1 has left and has not ended: it returns only when that has.
    fn waits_for_the_end_of_1(monitor: &Arc<OrderMonitor>, wait: fn(&OrderMonitor) -> Result<(), Interrupted>) {
        monitor.enter(Seqno(1), None).unwrap();
        monitor.leave(Seqno(1));
        let waiting = waiter(monitor, wait);
        assert!(!waiting.is_finished());
        monitor.end(Seqno(1));
        assert_eq!(waiting.join().unwrap(), Ok(()));
    }

    #[test]
    fn a_position_of_its_own_waits_for_those_before_it_to_end() {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        waits_for_the_end_of_1(&monitor, |m| m.enter_when_ended(Seqno(2)));
        assert!(monitor.leave(Seqno(2)));
    }

    #[test]
    fn a_statement_or_view_starts_when_those_before_it_have_ended() {
        waits_for_the_end_of_1(&Arc::new(OrderMonitor::new(Seqno(0))), |m| m.wait_start_when_ended(Seqno(2)));
    }

    /// A node that catches up and hears no majority yet hands on what lies beyond the position at which it lost that.
    #[test]
    fn a_statement_beyond_the_last_position_starts_when_those_before_it_have_ended() {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        monitor.set_last(Some(Seqno(0)));
        waits_for_the_end_of_1(&monitor, |m| m.wait_start_when_ended(Seqno(2)));
    }

    /// A donor is asked for a copy at a position that its own client has yet to leave, while it hears no majority: the order goes on with what was
    /// on its way. A copy that is given up there would be missed for ever.
    #[test]
    fn what_was_handed_out_is_waited_for_also_beyond_the_last_position() {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        monitor.set_last(Some(Seqno(0)));
        let waiting = waiter(&monitor, |m| m.wait_handed(Seqno(1)));
        monitor.enter(Seqno(1), None).unwrap();
        monitor.leave(Seqno(1));
        assert_eq!(waiting.join().unwrap(), Ok(()));
        let waiting = waiter(&monitor, |m| m.wait_handed(Seqno(2)));
        monitor.set_closed(true);
        assert_eq!(waiting.join().unwrap(), Err(Interrupted::Closed), "the node leaves");
    }

    #[test]
    fn a_barrier_in_a_monitor_that_was_closed_holds_nobody_up_later() {
        let monitor = OrderMonitor::new(Seqno(0));
        monitor.set_closed(true);
        monitor.raise_barrier(Seqno(0));
        monitor.set_closed(false);
        assert!(monitor.lock().may_enter(1));
    }

    #[test]
    fn waiting_for_a_position_that_will_not_come_ends() {
        let monitor = Arc::new(OrderMonitor::new(Seqno(3)));
        let m = monitor.clone();
        let waiting = thread::spawn(move || m.wait_left(Seqno(9), None));
        monitor.set_last(Some(Seqno(5)));
        assert_eq!(waiting.join().unwrap(), Err(Interrupted::Closed));
        let m = monitor.clone();
        let reached = thread::spawn(move || m.wait_left(Seqno(4), None));
        monitor.enter(Seqno(4), None).unwrap();
        monitor.leave(Seqno(4));
        assert_eq!(reached.join().unwrap(), Ok(()));
    }

    #[test]
    fn a_barrier_holds_later_sections() {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        monitor.raise_barrier(Seqno(1));
        monitor.enter(Seqno(1), None).unwrap();
        monitor.leave(Seqno(1));
        let m = monitor.clone();
        let next = thread::spawn(move || m.enter(Seqno(2), None));
        while monitor.lock().turns.is_empty() {
            thread::yield_now();
        }
        assert_eq!(monitor.lock().inside, None);
        monitor.lift_barrier(Seqno(1));
        next.join().unwrap().unwrap();
    }
}
