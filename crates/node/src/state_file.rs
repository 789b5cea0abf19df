//! The thread that writes what a node measures into the state file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trireme_flight::Event;
use trireme_metrics::Body;
use trireme_metrics::state::{FILE_NAME, label};
use trireme_types::{Durability, Seqno};

use crate::Level;
use crate::command::Command;
use crate::exposure;
use crate::flight::Watch;
use crate::picture::{Picture, Slow, Trip};
use crate::settings::durability_name;
use crate::shared::Shared;
use crate::slot::Slot;

/// How often the file is written.
const EVERY: Duration = Duration::from_millis(50);
/// How often it is looked whether the file is still the one in the directory: scripts of full copies clear it.
const LOOK_AT_FILE: Duration = Duration::from_secs(1);
/// Delivered positions whose end is awaited, to tell how old is what is applied: a minute's worth. More are not noted.
const MARKS_MAX: usize = 1200;

/// Until the sender is gone. With `repl.metrics=no` nothing is written, and what is looked at is for the flight recorder alone.
pub fn run_state(shared: &Shared, end: &Receiver<()>) {
    let mut writer = Writer::new(&shared.host.args.data_dir);
    let measures = shared.metrics.is_on();
    if !measures {
        writer.remove();
        if !shared.host.flight.is_on() {
            return;
        }
    }
    let mut seen = Seen::default();
    let mut watch = Watch::new(Instant::now());
    loop {
        let slept = Instant::now();
        let ended = end.recv_timeout(EVERY) == Err(RecvTimeoutError::Disconnected);
        let now = Instant::now();
        watch.note_sleep(now.saturating_duration_since(slept), EVERY);
        if let Some(delay) = seen.look(shared, now) {
            watch.note_group(delay);
        }
        watch.look(shared, seen.picture.as_ref(), now);
        if measures {
            writer.write(seen.body(shared), ended);
        }
        if ended {
            return;
        }
    }
}

/// The consequence of a panic of the state thread.
pub fn state_failed(shared: &Shared, said: &str) {
    shared.host.flight.note(Event::Panicked { thread: "trireme-state".into(), said: said.to_owned() });
    let text = format!("metrics: nothing is measured any more after an internal error: {said}. The node goes on");
    shared.host.log(Level::Warn, text);
}

/// The file. It is of no use to anybody that a failure to write it were told each time: the age of its content tells.
struct Writer {
    path: PathBuf,
    file: Option<File>,
    looked: Option<Instant>,
    sequence: u64,
}

impl Writer {
    fn new(data_dir: &str) -> Writer {
        Writer { path: Path::new(data_dir).join(FILE_NAME), file: None, looked: None, sequence: 0 }
    }

    fn write(&mut self, body: Body, closed: bool) {
        self.look_at_file();
        let Some(file) = &self.file else { return };
        self.sequence += 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let bytes = body.encode(self.sequence, now, std::process::id(), closed);
        if file.write_all_at(&bytes, 0).is_err() {
            self.file = None;
        }
    }

    /// One of an earlier start would say that the node hangs.
    fn remove(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn look_at_file(&mut self) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_AT_FILE) {
            return;
        }
        self.looked = Some(Instant::now());
        let inode = |metadata: std::io::Result<std::fs::Metadata>| metadata.ok().map(|m| (m.dev(), m.ino()));
        let own = self.file.as_ref().and_then(|file| inode(file.metadata()));
        if own.is_none() || own != inode(std::fs::symlink_metadata(&self.path)) {
            let mut options = OpenOptions::new();
            // No link is followed: the directory is the server's, but a copy may have brought one.
            options
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o640)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
            self.file = options.open(&self.path).ok();
        }
    }
}

/// The state thread's memory from one look to the next.
#[derive(Default)]
struct Seen {
    /// The question that is open, and since when.
    asked: Option<(Instant, Arc<Slot<Option<Picture>>>)>,
    picture: Option<Picture>,
    /// Delivered positions that have not ended, and when they were first seen; the oldest first.
    marks: std::collections::VecDeque<(Seqno, Instant)>,
    /// At the last look.
    delivered: Seqno,
    /// Time for which writers were held back, at the last look.
    paused: Duration,
    /// By name and reason, in seconds.
    held_by: std::collections::BTreeMap<(String, &'static str), f64>,
}

impl Seen {
    /// How long the group thread took to notice a question, if it has answered.
    fn look(&mut self, shared: &Shared, now: Instant) -> Option<Duration> {
        let delay = self.ask(shared, now);
        self.note_lag(shared, now);
        let paused = shared.status.flow().paused(now);
        let more = paused.saturating_sub(self.paused).as_secs_f64();
        self.paused = paused;
        if more > 0.0 {
            let slowest = self.picture.as_ref().and_then(|picture| picture.slow.first());
            let who = match slowest {
                Some(Slow { name, rate: 0.0, .. }) => (name.clone(), "stands"),
                Some(Slow { name, .. }) => (name.clone(), "behind"),
                None => (String::new(), "unknown"),
            };
            // Names of members that there ever were: few.
            *self.held_by.entry(who).or_default() += more;
        }
        delay
    }

    /// The group thread is asked about itself, one question at a time; how long it takes to notice is news, too.
    fn ask(&mut self, shared: &Shared, now: Instant) -> Option<Duration> {
        let mut delay = None;
        if let Some((since, slot)) = &self.asked {
            let answer = slot.wait_until(now)?;
            if let Some(picture) = &answer {
                let took = picture.taken.saturating_duration_since(*since);
                shared.metrics.delay.record(took);
                delay = Some(took);
            }
            self.picture = answer;
        }
        let slot = Arc::new(Slot::default());
        let since = Instant::now();
        shared.commands.push(Command::Describe { slot: slot.clone() });
        self.asked = Some((since, slot));
        delay
    }

    fn note_lag(&mut self, shared: &Shared, now: Instant) {
        let ended = shared.monitor.ended();
        while let Some((_, since)) = self.marks.front().copied().filter(|(seqno, _)| *seqno <= ended) {
            shared.metrics.apply_lag.record(now.saturating_duration_since(since));
            self.marks.pop_front();
        }
        let delivered = Seqno(shared.status.counters.delivered.load(Relaxed));
        // Another history, after a full copy.
        if self.marks.back().is_some_and(|(seqno, _)| *seqno > delivered) {
            self.marks.clear();
        }
        if delivered == std::mem::replace(&mut self.delivered, delivered) {
            return;
        }
        if delivered <= ended {
            // Delivered and applied between two looks.
            shared.metrics.apply_lag.record(Duration::ZERO);
        } else if self.marks.len() < MARKS_MAX {
            self.marks.push_back((delivered, now));
        }
    }

    fn body(&self, shared: &Shared) -> Body {
        let mut body = Body::default();
        let metrics = &shared.metrics;
        let stage = |name| label("trireme_commit_seconds", &[("stage", name)]);
        for (name, histogram) in [
            (stage("send"), &metrics.send),
            (stage("hold"), &metrics.hold),
            (stage("order"), &metrics.order),
            (stage("wait"), &metrics.turn),
            (stage("engine"), &metrics.engine),
            (stage("total"), &metrics.total),
            ("trireme_log_sync_seconds".to_owned(), &metrics.log_sync),
            ("trireme_apply_seconds".to_owned(), &metrics.apply),
            ("trireme_apply_lag_seconds".to_owned(), &metrics.apply_lag),
            ("trireme_causal_read_seconds".to_owned(), &metrics.causal_read),
            ("trireme_group_thread_delay_seconds".to_owned(), &metrics.delay),
        ] {
            body.histogram(&name, &histogram.snapshot());
        }
        self.counts(shared, &mut body);
        self.group(shared, &mut body);
        body
    }

    fn counts(&self, shared: &Shared, body: &mut Body) {
        let c = &shared.status.counters;
        let flow = shared.status.flow();
        for (name, value) in [
            ("trireme_commits_total", c.local_commits.load(Relaxed)),
            ("trireme_write_sets_sent_total", c.replicated_count.load(Relaxed)),
            ("trireme_write_sets_sent_bytes_total", c.replicated_bytes.load(Relaxed)),
            ("trireme_write_sets_received_total", c.received_count.load(Relaxed)),
            ("trireme_write_sets_received_bytes_total", c.received_bytes.load(Relaxed)),
            ("trireme_certification_failures_total", c.local_cert_failures.load(Relaxed)),
            ("trireme_replays_total", c.local_replays.load(Relaxed)),
            ("trireme_causal_reads_total", c.causal_reads.load(Relaxed)),
            ("trireme_unknown_outcomes_total", c.unknown_outcomes.load(Relaxed)),
            ("trireme_flow_control_stops_sent_total", flow.sent),
            ("trireme_flow_control_stops_received_total", flow.received),
            ("trireme_last_committed_seqno", shared.monitor.left().0),
            ("trireme_delivered_seqno", c.delivered.load(Relaxed)),
            ("trireme_apply_queue", shared.queue.len() as u64),
            ("trireme_send_queue", c.held_back.load(Relaxed)),
            ("trireme_open_transactions", shared.trxs.len() as u64),
            ("trireme_certification_keys", c.cert_index_size.load(Relaxed)),
            ("trireme_flow_control_paused", u64::from(flow.active())),
        ] {
            body.number(name, value as f64);
        }
        for ((by, reason), seconds) in &self.held_by {
            let name = label("trireme_flow_control_seconds_total", &[("by", by), ("reason", reason)]);
            body.number(&name, *seconds);
        }
    }

    fn group(&self, shared: &Shared, body: &mut Body) {
        let status = shared.status.group();
        let (local_state, comment) = shared.local_state(&status);
        let primary = status.member && shared.connected();
        let level = match (primary, local_state) {
            (true, 4) => 0,
            (true, _) => 1,
            (false, _) => 2,
        };
        body.number("trireme_status", f64::from(level));
        body.number("trireme_primary", f64::from(u8::from(primary)));
        body.number("trireme_local_state", local_state as f64);
        body.number("trireme_cluster_size", if primary { status.incoming.len() as f64 } else { 0.0 });
        let silent = self.asked.as_ref().map_or(0.0, |(since, _)| since.elapsed().as_secs_f64());
        body.number("trireme_group_thread_silent_seconds", silent);
        let sync = shared.metrics.slowest_of_disk(Instant::now()).as_secs_f64();
        body.number("trireme_log_sync_longest_seconds", sync);
        body.text("name", &shared.host.args.node_name);
        body.text("version", env!("CARGO_PKG_VERSION"));
        body.text("history", &shared.data.history().to_string());
        body.text("local_state_comment", comment);
        if shared.outage.is_out() {
            body.text("log", "failed");
        }
        body.text("incoming_addresses", &status.incoming.join(","));
        body.text("incoming_address", &shared.host.args.node_incoming);
        body.text("members", &status.names.join(","));
        body.text("cluster", &status.cluster);
        let Some(picture) = &self.picture else { return };
        for (name, value) in [
            ("trireme_term", picture.term),
            ("trireme_term_changes_total", picture.term_changes),
            ("trireme_silences_total", picture.silences),
            ("trireme_connections_refused_total", picture.connections_refused),
            ("trireme_is_sequencer", u64::from(picture.role == "sequencer")),
            ("trireme_has_sequencer", u64::from(!picture.sequencer.is_empty())),
            ("trireme_log_first_index", picture.log_first.0),
            ("trireme_log_last_index", picture.log_last.0),
            ("trireme_log_durable_index", picture.log_durable.0),
            ("trireme_log_committed_index", picture.log_committed.0),
            ("trireme_log_bytes", picture.log_bytes),
            ("trireme_log_max_bytes", picture.log_bytes_max),
            ("trireme_flow_control_gave_up", u64::from(picture.flow_gave_up)),
            ("trireme_durability_disk", u64::from(picture.durability == Durability::Disk)),
        ] {
            body.number(name, value as f64);
        }
        for (name, weight) in &picture.voters {
            body.number(&label("trireme_voter_weight", &[("member", name)]), f64::from(*weight));
            let silent = f64::from(u8::from(picture.silent.contains(name)));
            body.number(&label("trireme_member_silent", &[("member", name)]), silent);
        }
        for Slow { name, rate, backlog } in &picture.slow {
            body.number(&label("trireme_flow_control_rate", &[("by", name)]), *rate);
            body.number(&label("trireme_flow_control_backlog", &[("by", name)]), *backlog as f64);
        }
        for Trip { peer, latest, .. } in &picture.round_trips {
            let name = label("trireme_peer_round_trip_latest_seconds", &[("peer", peer)]);
            body.number(&name, latest.as_secs_f64());
        }
        body.text("role", picture.role);
        body.text("sequencer", &picture.sequencer);
        body.text("durability", durability_name(picture.durability));
        body.text("authentication", exposure::name(picture.protection));
        body.text("silent", &picture.silent.join(","));
        // Last: the longest, and the first to go where the file is too short.
        for Trip { peer, times, .. } in &picture.round_trips {
            body.histogram(&label("trireme_peer_round_trip_seconds", &[("peer", peer)]), times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_metrics::State;

    fn read(path: &Path) -> State {
        State::decode(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn the_file_is_written_in_place_and_made_anew_when_it_is_gone() {
        let dir = std::env::temp_dir().join(format!("trireme-metrics-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut writer = Writer::new(dir.to_str().unwrap());
        writer.write(Body::default(), false);
        let first = read(&writer.path);
        writer.write(Body::default(), false);
        assert_eq!(read(&writer.path).sequence, first.sequence + 1);
        std::fs::remove_file(&writer.path).unwrap();
        writer.looked = None;
        writer.write(Body::default(), true);
        assert!(read(&writer.path).closed);
        // Nothing is written behind a link.
        let victim = dir.join("victim");
        std::fs::write(&victim, "mine").unwrap();
        std::fs::remove_file(&writer.path).unwrap();
        std::os::unix::fs::symlink(&victim, &writer.path).unwrap();
        writer.looked = None;
        writer.write(Body::default(), false);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
        std::fs::remove_dir_all(&dir).unwrap();
        writer.looked = None;
        writer.write(Body::default(), false);
    }
}
