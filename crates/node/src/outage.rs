//! The time in which the disk with the log does not work, as other threads than the group thread see it.
//!
//! Each step that threads may meet in is one function here, with the locks that it takes in their order: `crates/interleavings` has models of them.

use std::time::{Duration, Instant};

use trireme_replicator::desyncs::Desyncs;
use trireme_replicator::message::AppMessage;

use crate::mailbox::{Letter, Mailbox, Wake};
use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Default)]
struct State {
    /// The connection is to end, or has ended: nobody waits for the disk any more.
    ended: bool,
    /// The node is out of its group because of its disk.
    out: bool,
    /// How often the log was opened again.
    returns: u64,
    /// Counted here, as threads count in an outage themselves.
    desyncs: Desyncs,
}

#[derive(Default)]
pub struct Outage {
    state: Mutex<State>,
    changed: Condvar,
}

/// A look into the log.
pub enum Look<T> {
    Found(T),
    /// It is not there. `behind`: the log ends before it.
    Missing {
        behind: bool,
    },
    /// The log has failed.
    Failed,
    /// There is none: the node is closed.
    NoLog,
}

/// Why something cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// A log that works does not hold it.
    Lost,
    /// The connection ended before the log was there again.
    Ended,
}

impl Outage {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the outage panics")
    }

    /// A connection is being prepared, and nobody waits in the former one.
    pub fn begin(&self) {
        let mut state = self.lock();
        state.ended = false;
        state.out = false;
        state.desyncs = Desyncs::default();
    }

    /// It begins: `reader` reads the commands from here on. If it has been ended since, by a thread that found nobody to tell, `word` tells of
    /// that.
    pub fn open<L: Letter, W: Wake>(&self, commands: &Mailbox<L, W>, reader: W, word: L) {
        commands.open(reader);
        if self.await_end(Duration::ZERO) {
            commands.push(word);
        }
    }

    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// The log has failed, and the group was left.
    pub fn out(&self) {
        self.lock().out = true;
    }

    pub fn is_out(&self) -> bool {
        self.lock().out
    }

    /// The log has been opened again, and `reader` reads the commands from here on.
    pub fn returned<L: Letter, W: Wake>(&self, commands: &Mailbox<L, W>, reader: W) {
        // In this order: what the server asks for from here on is told to the group.
        commands.open(reader);
        self.back();
    }

    fn back(&self) {
        let mut state = self.lock();
        state.out = false;
        state.returns += 1;
        self.changed.notify_all();
    }

    /// How often the server is desynced, whatever the group has heard of that.
    pub fn desyncs(&self) -> u32 {
        self.lock().desyncs.count()
    }

    /// By the group thread: something that the server has asked for by [`Outage::ask`] was ordered. Before its thread hears of that.
    pub fn ordered(&self, message: &AppMessage) {
        self.lock().desyncs.heard(message);
    }

    /// Asks the group for a desync or its end by `say`. In an outage nobody is told, and the group is when this node comes back. False: the
    /// group was not told.
    pub fn ask(&self, message: &AppMessage, say: impl Fn() -> bool) -> bool {
        self.lock().desyncs.asked(message);
        loop {
            let seen = self.lock().returns;
            if say() {
                return true;
            }
            let mut state = self.lock();
            // Else this node came back in between, and has told the group what counted before this.
            if state.returns == seen {
                let out = state.out;
                return state.desyncs.unheard(message, out);
            }
        }
    }

    /// The connection has ended.
    pub fn over(&self) {
        // Together: a thread that finds nothing in the log has to see one or the other.
        let mut state = self.lock();
        state.out = false;
        state.ended = true;
        self.changed.notify_all();
    }

    /// Ends the connection by `word`. A group thread that waits for its disk hears no words: it sees that this is the end.
    pub fn leave<L: Letter, W: Wake>(&self, commands: &Mailbox<L, W>, word: L) {
        // First: a group thread that opens the commands after an outage looks at this then.
        self.end();
        commands.push(word);
    }

    /// The same, but a group thread that works hears of it by `word` alone. False: nobody may have heard that.
    pub fn give_up<L: Letter, W: Wake>(&self, commands: &Mailbox<L, W>, word: impl Fn() -> L) -> bool {
        let heard = commands.push(word());
        if !heard {
            // The group thread may wait for its disk, or just have ceased to.
            self.leave(commands, word());
        }
        heard
    }

    /// Waits for the end of the connection, but no longer than this; true when it came.
    pub fn await_end(&self, longest: Duration) -> bool {
        self.wait_while(Some(longest), |state| !state.ended).ended
    }

    /// Reads out of the log, through outages of its disk. A log that came back may lack its end until the others have repaired it: it is looked
    /// into every `again`.
    pub fn read<T>(&self, again: Duration, look: impl Fn() -> Look<T>) -> Result<T, Unread> {
        loop {
            // Before the look: a log that failed under it is another one after the next return.
            let seen = self.lock().returns;
            let (longest, is_lost) = match look() {
                Look::Found(found) => return Ok(found),
                Look::NoLog => return Err(Unread::Ended),
                Look::Failed => (None, false),
                Look::Missing { behind } => (Some(again), seen == 0 || !behind),
            };
            if is_lost && self.is_undisturbed(seen) {
                return Err(Unread::Lost);
            }
            let state = self.wait_while(longest, |state| !state.ended && state.returns == seen);
            if state.ended && state.returns == seen {
                return Err(Unread::Ended);
            }
        }
    }

    /// Is it the same log as when it had been opened again so often, and has it worked ever since? One that is let go of holds nothing.
    fn is_undisturbed(&self, seen: u64) -> bool {
        let state = self.lock();
        !state.out && !state.ended && state.returns == seen
    }

    fn wait_while(&self, longest: Option<Duration>, goes_on: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let deadline = longest.map(|longest| Instant::now() + longest);
        let mut state = self.lock();
        while goes_on(&state) {
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(state).expect("no holder of the outage panics"),
                Some(left) if left.is_zero() => break,
                Some(left) => self.changed.wait_timeout(state, left).expect("no holder of the outage panics").0,
            };
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOR_EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn what_a_log_that_works_does_not_hold_is_lost() {
        let outage = Outage::default();
        for behind in [false, true] {
            assert_eq!(outage.read::<()>(FOR_EVER, || Look::Missing { behind }), Err(Unread::Lost));
        }
    }

    #[test]
    fn what_a_log_that_came_back_lacks_at_its_end_is_looked_for_until_it_is_repaired() {
        let outage = Outage::default();
        outage.out();
        outage.back();
        let looks = std::cell::Cell::new(0);
        let look = |behind| {
            looks.set(looks.get() + 1);
            if looks.get() < 3 { Look::Missing { behind } } else { Look::Found(7) }
        };
        assert_eq!(outage.read(Duration::ZERO, || look(true)), Ok(7));
        looks.set(0);
        assert_eq!(outage.read(Duration::ZERO, || look(false)), Err(Unread::Lost), "nobody repairs that");
    }

    #[test]
    fn a_desync_that_the_group_does_not_hear_of_counts_in_an_outage_only_and_its_end_always() {
        let outage = Outage::default();
        assert!(!outage.ask(&AppMessage::Desync, || false));
        assert_eq!(outage.desyncs(), 0);
        outage.out();
        assert!(outage.ask(&AppMessage::Desync, || false));
        outage.back();
        assert_eq!(outage.desyncs(), 1);
        let resync = || {
            assert_eq!(outage.desyncs(), 0, "the group is not to be told of it again while this is on its way");
            false
        };
        assert!(!outage.ask(&AppMessage::Resync, resync));
        assert_eq!(outage.desyncs(), 0);
    }

    #[test]
    fn the_next_connection_waits_for_its_own_end() {
        let outage = Outage::default();
        outage.over();
        assert!(outage.await_end(FOR_EVER));
        outage.begin();
        assert!(!outage.await_end(Duration::ZERO));
    }
}
