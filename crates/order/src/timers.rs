//! When this member acts without being told to. Nothing else of the group happens by time, but the writing of a large entry, which goes
//! on whenever there is a moment.

use trireme_types::Timestamp;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// Sequencer: the next heartbeat.
    Heartbeat,
    /// Bodies that did not come from their origins are asked for.
    Bodies,
    /// Nobody orders, as far as is heard: this member asks to stand. Not armed while it may not.
    Election,
    /// The consequences of silence. Armed as long as this member takes part.
    Check,
    /// The leave is given up. Armed while it leaves.
    Linger,
}

impl Timer {
    /// In the order in which those that are due at the same moment are carried out.
    pub const ALL: [Timer; 5] = [Timer::Heartbeat, Timer::Bodies, Timer::Election, Timer::Check, Timer::Linger];

    pub fn name(self) -> &'static str {
        match self {
            Timer::Heartbeat => "heartbeat",
            Timer::Bodies => "missing bodies",
            Timer::Election => "election",
            Timer::Check => "check",
            Timer::Linger => "linger",
        }
    }
}

/// Each timer is armed for one moment, or not at all.
#[derive(Default)]
pub(crate) struct Timers([Option<Timestamp>; Timer::ALL.len()]);

impl Timers {
    pub fn at(&self, timer: Timer) -> Option<Timestamp> {
        self.0[timer as usize]
    }

    pub fn is_armed(&self, timer: Timer) -> bool {
        self.at(timer).is_some()
    }

    pub fn is_due(&self, timer: Timer, now: Timestamp) -> bool {
        self.at(timer).is_some_and(|at| at <= now)
    }

    pub fn arm(&mut self, timer: Timer, at: Timestamp) {
        self.0[timer as usize] = Some(at);
    }

    /// An armed timer comes no later than this; one that is not armed stays so.
    pub fn hasten(&mut self, timer: Timer, at: Timestamp) {
        if let Some(planned) = &mut self.0[timer as usize] {
            *planned = at.min(*planned);
        }
    }

    pub fn disarm(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub fn disarm_all(&mut self) {
        *self = Timers::default();
    }

    pub fn next(&self) -> Option<(Timestamp, Timer)> {
        Timer::ALL.into_iter().filter_map(|t| Some((self.at(t)?, t))).min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_due_is_next_and_a_hastened_one_is_never_put_off() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.arm(Timer::Check, Timestamp(30));
        timers.arm(Timer::Election, Timestamp(20));
        assert_eq!(timers.next(), Some((Timestamp(20), Timer::Election)));
        timers.hasten(Timer::Election, Timestamp(25));
        assert_eq!(timers.at(Timer::Election), Some(Timestamp(20)));
        timers.hasten(Timer::Check, Timestamp(10));
        assert_eq!(timers.next(), Some((Timestamp(10), Timer::Check)));
        timers.hasten(Timer::Linger, Timestamp(1));
        assert!(!timers.is_armed(Timer::Linger), "there is nothing to hasten");
        assert!(timers.is_due(Timer::Check, Timestamp(10)) && !timers.is_due(Timer::Check, Timestamp(9)));
        timers.disarm(Timer::Check);
        assert_eq!(timers.next(), Some((Timestamp(20), Timer::Election)));
        timers.disarm_all();
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn each_timer_has_a_place_of_its_own() {
        for (place, timer) in Timer::ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, place, "{}", timer.name());
        }
    }
}
