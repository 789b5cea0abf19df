//! The flight recorder of this node: where its file lies, the thread that writes it, and what is noted because somebody looks, not because
//! something is done.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use trireme_flight::recorder::unix_ns;
use trireme_flight::{Event, Identity, Keeper, Recorder};
use trireme_types::{NodeId, Seqno};

use crate::Level;
use crate::metrics::Metrics;
use crate::picture::{Picture, Slow};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::threads::{Helper, Waits};

/// How often the file is written: what a process that is killed does not get told.
const EVERY: Duration = Duration::from_millis(50);
/// How often is looked at what happens all the time.
const LOOK: Duration = Duration::from_secs(1);
/// A thread that sleeps for 50 ms and wakes so much later did not run.
const STOOD_STILL: Duration = Duration::from_millis(200);
/// Of the thread of the group.
const LATE: Duration = Duration::from_millis(50);
/// Of a write or a sync of the log.
const SLOW_SYNC: Duration = Duration::from_millis(100);
/// One that has not ended for so long is told of before it ends; again at ten times that, and so on.
const SYNC_HANGS: Duration = Duration::from_secs(1);
/// A commit that takes so long is noted in the second in which it ends. Else the slowest of a minute is.
const SLOW_COMMIT: Duration = Duration::from_millis(100);
const SLOWEST_OF: Duration = Duration::from_secs(60);
/// A write set that has waited for so long for the server to apply anything; again at ten times that, and so on.
const APPLIES_NOTHING: Duration = Duration::from_secs(1);
/// In one second, by flow control.
const HELD_BACK: Duration = Duration::from_millis(10);
/// By so much the clocks of the machine and of this process drift apart in a second when somebody sets the former.
const CLOCK_SET: Duration = Duration::from_millis(500);

/// The recorder, and what its thread needs; `None` when it is switched off.
pub fn begin(settings: &Settings, node: NodeId, name: &str) -> (Recorder, Option<Keeper>) {
    let Some((dir, len)) = settings.flight_file() else { return (Recorder::off(), None) };
    let (recorder, incoming) = Recorder::new();
    let identity = Identity { node, name: name.to_owned() };
    recorder.note(Event::Started {
        name: name.to_owned(),
        node: node.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        process: u64::from(std::process::id()),
    });
    (recorder, Some(Keeper::new(dir, len, identity, incoming)))
}

/// A thread of its own: the disk with the log may hang, and what the node tells of itself elsewhere must not hang with it.
pub fn start(shared: &Arc<Shared>, keeper: Keeper, end: Receiver<()>) -> Helper {
    let (for_work, for_failure) = (shared.clone(), shared.clone());
    // After a panic nothing is recorded, and nothing else is amiss.
    Helper::once(
        "trireme-flight",
        Waits::BesideLog,
        move || run(&for_work, keeper, &end),
        move |said| {
            let text = format!("the flight recorder ended after an internal error: {said}. The node goes on");
            for_failure.host.log(Level::Warn, text);
        },
    )
}

/// Until the sender is gone.
fn run(shared: &Shared, mut keeper: Keeper, end: &mpsc::Receiver<()>) {
    loop {
        let ended = end.recv_timeout(EVERY) == Err(RecvTimeoutError::Disconnected);
        shared.panics.come_by("trireme-flight");
        if let Some(said) = keeper.keep(&shared.host.flight, Instant::now()) {
            shared.host.log(Level::Warn, said);
        }
        if ended {
            return;
        }
    }
}

/// The state thread's memory from one look to the next, for the recorder.
pub struct Watch {
    looked: Instant,
    /// The clock of the machine then, in nanoseconds since 1970.
    looked_unix_ns: u64,
    /// Since the last look.
    stood_still: Duration,
    group_late: Duration,
    /// When the slowest commit was last noted, and the commits until then.
    slowest: (Instant, u64),
    /// The member that the writers wait for, and whether it stands still.
    slowed_by: Option<(String, bool)>,
    paused: Duration,
    /// The position after which nothing is applied, since when, and the time at which that is noted next.
    stands: Option<(Seqno, Instant, Duration)>,
    /// The beginning of the write or sync that hangs, and the time at which that is noted next.
    sync_hangs: (Option<Instant>, Duration),
    unknown_outcomes: u64,
}

impl Watch {
    pub fn new(now: Instant) -> Watch {
        Watch {
            looked: now,
            looked_unix_ns: unix_ns(),
            stood_still: Duration::ZERO,
            group_late: Duration::ZERO,
            slowest: (now, 0),
            slowed_by: None,
            paused: Duration::ZERO,
            stands: None,
            sync_hangs: (None, SYNC_HANGS),
            unknown_outcomes: 0,
        }
    }

    /// This thread slept for so long, and wanted to for `wish`.
    pub fn note_sleep(&mut self, slept: Duration, wish: Duration) {
        self.stood_still = self.stood_still.max(slept.saturating_sub(wish));
    }

    /// The group thread took so long to notice a question.
    pub fn note_group(&mut self, delay: Duration) {
        self.group_late = self.group_late.max(delay);
    }

    /// Notes what there is to be noted, once a second.
    pub fn look(&mut self, shared: &Shared, picture: Option<&Picture>, now: Instant) {
        let flight = &shared.host.flight;
        if !flight.is_on() || now.saturating_duration_since(self.looked) < LOOK {
            return;
        }
        self.look_at_clocks(flight, now);
        self.look_at_appliers(shared, now);
        self.look_at_syncs(flight, &shared.metrics, now);
        self.look_at_commits(shared, now);
        self.look_at_flow(shared, picture, now);
        let more = flight.take_more();
        if more > 0 {
            flight.note(Event::More { count: more });
        }
        let unknown = shared.status.counters.unknown_outcomes.load(Relaxed);
        let count = unknown.saturating_sub(std::mem::replace(&mut self.unknown_outcomes, unknown));
        if count > 0 {
            flight.note(Event::UnknownOutcome { count });
        }
    }

    fn look_at_clocks(&mut self, flight: &Recorder, now: Instant) {
        let passed = now.saturating_duration_since(self.looked);
        let unix_ns = unix_ns();
        let expected = self.looked_unix_ns.saturating_add(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX));
        (self.looked, self.looked_unix_ns) = (now, unix_ns);
        let by = Duration::from_nanos(unix_ns.abs_diff(expected));
        if by >= CLOCK_SET {
            flight.note(Event::ClockSet { ahead: unix_ns > expected, by });
        }
        let still = std::mem::take(&mut self.stood_still);
        if still >= STOOD_STILL {
            flight.note(Event::StoodStill { time: still });
        }
        let late = std::mem::take(&mut self.group_late);
        if late >= LATE && late > still {
            flight.note(Event::GroupLate { time: late });
        }
    }

    fn look_at_appliers(&mut self, shared: &Shared, now: Instant) {
        let flight = &shared.host.flight;
        let left = shared.monitor.left();
        let delivered = shared.status.counters.delivered.load(Relaxed);
        // Also what an applier has in hand. A server that waits for a full copy is not expected to apply anything.
        let backlog = if shared.status.group().receiving { 0 } else { delivered.saturating_sub(left.0) };
        match &mut self.stands {
            Some((after, since, next)) if *after == left && backlog > 0 => {
                let time = now.saturating_duration_since(*since);
                if time >= *next {
                    *next = time * 10;
                    flight.note(Event::AppliesNothing { after: left, backlog, time });
                }
            }
            stands => {
                let told = stands.take().filter(|(_, _, next)| *next > APPLIES_NOTHING);
                if let Some((_, since, _)) = told {
                    flight.note(Event::AppliesAgain { after: now.saturating_duration_since(since) });
                }
                *stands = (backlog > 0).then_some((left, now, APPLIES_NOTHING));
            }
        }
    }

    fn look_at_syncs(&mut self, flight: &Recorder, metrics: &Metrics, now: Instant) {
        let slowest = metrics.disk.take();
        if slowest >= SLOW_SYNC {
            flight.note(Event::SlowSync { time: slowest });
        }
        let since = metrics.disk_since();
        if since != self.sync_hangs.0 {
            self.sync_hangs = (since, SYNC_HANGS);
        }
        let time = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if time >= self.sync_hangs.1 {
            self.sync_hangs.1 = time * 10;
            flight.note(Event::SyncHangs { time });
        }
    }

    fn look_at_commits(&mut self, shared: &Shared, now: Instant) {
        let (last, before) = self.slowest;
        let due = now.saturating_duration_since(last) >= SLOWEST_OF;
        let Some(slow) = shared.metrics.slowest.take_if(|total| due || total >= SLOW_COMMIT) else { return };
        let all = shared.status.counters.local_commits.load(Relaxed);
        self.slowest = (now, all);
        shared.host.flight.note(Event::SlowCommit {
            seqno: slow.seqno,
            total: slow.total,
            send: slow.stages.send,
            hold: slow.stages.hold,
            order: slow.stages.order,
            wait: slow.stages.wait,
            engine: slow.engine,
            commits: all.saturating_sub(before),
        });
    }

    fn look_at_flow(&mut self, shared: &Shared, picture: Option<&Picture>, now: Instant) {
        let flight = &shared.host.flight;
        let slowest = picture.and_then(|picture| picture.slow.first());
        let slowed_by = slowest.map(|slow| (slow.name.clone(), slow.rate == 0.0));
        let paused = shared.status.flow().paused(now);
        let held = paused.saturating_sub(std::mem::replace(&mut self.paused, paused));
        if slowed_by != self.slowed_by {
            flight.note(match slowest {
                // Thousandths fit: no rate is beyond that.
                Some(Slow { name: by, rate, backlog }) => {
                    let rate = if *rate == 0.0 { 0 } else { ((rate * 1e3) as u64).max(1) };
                    Event::SlowedBy { by: by.clone(), rate, backlog: *backlog }
                }
                None => Event::Unslowed {},
            });
            self.slowed_by = slowed_by;
        }
        if held >= HELD_BACK {
            let by = self.slowed_by.as_ref().map_or_else(String::new, |(by, _)| by.clone());
            flight.note(Event::HeldBack { by, time: held });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_flight::{Incoming, Record};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Kinds and times of what was noted since the last call.
    fn noted(incoming: &Incoming) -> Vec<(&'static str, Duration)> {
        let mut records: Vec<Record> = Vec::new();
        incoming.take(&mut records);
        let one = |record: Record| match record.event {
            Event::StoodStill { time } | Event::GroupLate { time } => (record.event.word(), time),
            Event::SlowSync { time } | Event::SyncHangs { time } => (record.event.word(), time),
            // It depends on the clock of this machine, too.
            ref event => (event.word(), Duration::ZERO),
        };
        records.into_iter().map(one).collect()
    }

    /// A look after a second in which the clock of the machine went on by `clock`.
    fn second(watch: &mut Watch, recorder: &Recorder, clock: i64) {
        let now = watch.looked + LOOK;
        watch.looked_unix_ns = unix_ns().wrapping_add_signed(clock * -1_000_000_000);
        watch.look_at_clocks(recorder, now);
    }

    #[test]
    fn a_process_that_did_not_run_and_one_whose_group_thread_alone_did_not() {
        let (recorder, incoming) = Recorder::new();
        let mut watch = Watch::new(Instant::now());
        watch.note_sleep(ms(60), EVERY);
        watch.note_group(ms(40));
        second(&mut watch, &recorder, 1);
        assert_eq!(noted(&incoming), []);
        // A frozen process: its group thread was late as well, and that says no more.
        watch.note_sleep(ms(6050), EVERY);
        watch.note_group(ms(5990));
        second(&mut watch, &recorder, 1);
        assert_eq!(noted(&incoming), [("stood-still", ms(6000))]);
        watch.note_group(ms(2300));
        second(&mut watch, &recorder, 1);
        assert_eq!(noted(&incoming), [("group-late", ms(2300))]);
    }

    #[test]
    fn a_clock_that_was_set() {
        let (recorder, incoming) = Recorder::new();
        let mut watch = Watch::new(Instant::now());
        for (seconds, ahead) in [(61, true), (-59, false)] {
            second(&mut watch, &recorder, seconds);
            let mut records = Vec::new();
            incoming.take(&mut records);
            let [Record { event, .. }] = &records[..] else { panic!("{records:?}") };
            assert_eq!(event.word(), "clock-set");
            let Event::ClockSet { ahead: told, by } = event else { panic!("{event:?}") };
            assert!(*told == ahead && by.abs_diff(ms(60_000)) < ms(1000), "{event:?}");
        }
        second(&mut watch, &recorder, 1);
        assert_eq!(noted(&incoming), []);
    }

    #[test]
    fn a_slow_sync_and_one_that_hangs() {
        let (recorder, incoming) = Recorder::new();
        let (metrics, start) = (Metrics::new(true), Instant::now());
        let mut watch = Watch::new(start);
        let mut look = |after| {
            watch.look_at_syncs(&recorder, &metrics, start + after);
            noted(&incoming)
        };
        for fast in [ms(3), ms(99)] {
            metrics.disk.record(fast);
        }
        assert_eq!(look(ms(0)), []);
        for slow in [ms(180), ms(150)] {
            metrics.disk.record(slow);
        }
        assert_eq!(look(ms(0)), [("slow-sync", ms(180))]);
        // One that hangs is told of while it does, and less and less often.
        metrics.sync_since.begin(start);
        let hangs = [(900, false), (1000, true), (2000, false), (9900, false), (10_000, true), (99_000, false)];
        for (after, told) in hangs {
            let expected = [("sync-hangs", ms(after))];
            let seen = look(ms(after));
            assert_eq!(seen, expected[..usize::from(told)], "after {after} ms");
        }
        assert!(metrics.slowest_of_disk(start + ms(99_000)) >= ms(98_000), "told while it lasts");
    }
}
