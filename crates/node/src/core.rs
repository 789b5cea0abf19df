//! The group thread: owns the sockets, the ordering core and the certification index; turns deliveries into answers for
//! waiting clients and items for the appliers. It never calls the server (rule 29).
//!
//! Here: its turn, and what it tells. Inputs are in `inputs`, what the group has ordered in `delivery`, how the server
//! begins in `feed`, what every turn looks after in `house`, flow control in `throttle`, the time without a log in `outage`, the end in `ending`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::log::Log;
use trireme_flight as flight;
use trireme_order::{Content, Envelope, Event, LogStore, Message, Output, StoreError};
use trireme_surface::texts;
use trireme_types::{DecodeError, NodeId, Seqno, Timestamp, View, Writer, panic_text};
use trireme_wslog::Synced;

use crate::command::Command;
use crate::index::Work;
use crate::item::Item;
use crate::mailbox::Letter;
use crate::picture::{Picture, Slow, Trip};
use crate::shared::Shared;
use crate::slot::Slot;
use crate::startup::{ConnectError, Plan, Start};
use crate::status::GroupStatus;
use crate::{CAPABILITIES, Level, ServerView, ViewMember, ViewStatus};
use trireme_replicator::{self as replicator, Failures, NoDonor, Position};

mod connection;
mod delivery;
mod ending;
mod feed;
mod house;
mod incarnation;
mod inputs;
mod outage;
mod past;
mod terms;
mod throttle;

use connection::Connection;
use ending::Ending;
use incarnation::{Incarnation, Syncing};

/// The group thread. Its state lives as long as the server's connection, or as long as one incarnation in the group: a return after an
/// outage of the log's disk puts another incarnation in the place of the one that ended, and the connection goes on.
pub struct Core {
    shared: Arc<Shared>,
    conn: Connection,
    inc: Incarnation,
}

/// Acknowledgements are not queued behind more than this.
const ACKS_BEHIND_MAX: usize = 1 << 20;

impl Core {
    pub fn new(
        shared: Arc<Shared>,
        plan: Plan,
        log: Log,
        donor_list: String,
        connected: Option<Arc<Slot<Result<(), ConnectError>>>>,
        starts: bool,
    ) -> Core {
        let first = first(&plan, shared.host.args.arbitrator.is_some(), shared.failures.known());
        let conn = Connection::begin(&shared, &plan, donor_list, connected, starts);
        let (inc, failure) = Incarnation::begin(&shared, plan, log, conn.donor_list.clone(), first, None);
        let mut core = Core { shared, conn, inc };
        if let Some(reason) = failure {
            core.fail(reason);
        }
        core
    }

    /// Is there no server behind this node?
    fn arbitrates(&self) -> bool {
        self.conn.log_max.is_some()
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.inc.started.elapsed().as_nanos() as u64)
    }

    /// Runs until left; gives the log back, unless its state is unknown because of a mistake in this program.
    pub fn run(mut self) -> Option<Log> {
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        if let Err(payload) = &ended {
            self.tell_panic(&**payload);
        }
        // A thread that waits for this one would wait for ever; and the server waits for the final view.
        let answered = catch_unwind(AssertUnwindSafe(|| self.answer_all()));
        let finished = catch_unwind(AssertUnwindSafe(|| self.last_words()));
        for payload in [&answered, &finished].into_iter().filter_map(|outcome| outcome.as_ref().err()) {
            self.tell_panic(&**payload);
        }
        self.inc.transport.close();
        self.shared.host.flight.note(flight::Event::Left {});
        if ended.is_err() || answered.is_err() || finished.is_err() {
            return None;
        }
        Some(self.inc.group.into_store())
    }

    fn tell_panic(&self, payload: &(dyn Any + Send)) {
        let said = panic_text(payload);
        self.shared.note_panic("trireme-group", said);
        let text =
            format!("Internal error in thread trireme-group: {said}. This node leaves the group; restart the server.");
        self.shared.host.log(Level::Fatal, text.clone());
        self.end_start(&text);
    }

    fn work(&mut self) {
        let mut events = Vec::new();
        let mut commands = Vec::new();
        let mut releasing = false;
        self.drain();
        loop {
            match self.ending() {
                Ending::Over { .. } => return,
                Ending::SitsOut => {
                    self.sit_out();
                    continue;
                }
                Ending::GoesOn | Ending::Leaves | Ending::Drops => {}
            }
            let timeout = if releasing { Duration::ZERO } else { self.next_timeout() };
            self.inc.transport.poll(Some(timeout), &mut events);
            for event in events.drain(..) {
                self.on_net(event);
            }
            self.shared.panics.come_by("trireme-group");
            let voted_before = std::mem::take(&mut self.inc.voted_before);
            self.shared.commands.take(&mut commands);
            for command in commands.drain(..) {
                self.on_command(command);
            }
            self.end_skipped_votes(voted_before);
            self.look_at_write();
            self.fetch_index();
            let now = self.now();
            if self.inc.group.poll_timeout().is_some_and(|(at, _)| at <= now) {
                self.inc.group.handle_timeout(now);
            }
            self.drain();
            self.keep_house();
            self.regulate();
            releasing = self.inc.index.release();
            self.space_checkpoints();
        }
    }

    fn next_timeout(&self) -> Duration {
        let now = self.now();
        let mut wait = self.inc.group.poll_timeout().map_or(Duration::from_millis(500), |(at, _)| at.since(now));
        // Waiting for the appliers to catch up, or for a retry.
        if self.inc.replicator.is_requesting()
            || self.inc.replicator.is_settling()
            || self.inc.non_primary_since.is_some()
        {
            wait = wait.min(Duration::from_millis(20));
        }
        if let Some(flow) = self.inc.flow.wait(!self.conn.held_back.is_empty()) {
            wait = wait.min(flow);
        }
        wait.min(Duration::from_millis(500))
    }

    fn drain(&mut self) {
        loop {
            let now = self.now();
            let Some(output) = self.inc.group.poll_output(now) else { break };
            if matches!(output, Output::Deliver(_) | Output::Event(Event::NeedSnapshot(_))) && self.inc.index.is_away()
            {
                self.inc.waiting.push_back(output);
            } else {
                self.on_output(output);
            }
        }
        self.inc.transport.flush();
        if self.inc.group.wants_sync() {
            self.begin_sync();
        }
    }

    fn on_output(&mut self, output: Output) {
        match output {
            Output::Send { to, message, .. }
                if matches!(message.content(), Some(Content::Ack { .. })) && self.reads_nothing(to) => {}
            // A message that cannot be sent now is the protocol's own business: it hears of the link's end.
            Output::Send { to, class, message } => {
                self.note_vote(to, &message);
                let _ = self.inc.transport.send(to, class, &message);
            }
            Output::Deliver(delivery) => self.on_delivery(delivery),
            Output::Event(event) => self.on_event(event),
        }
    }

    /// The messages of an election tell the recorder what happens in it.
    fn note_vote(&mut self, to: NodeId, message: &Message) {
        let flight = &self.shared.host.flight;
        let Message::InTerm(Envelope { term, content, .. }) = message else { return };
        if let Content::VoteReply { granted, .. } = content {
            flight.note(flight::Event::Voted { term: term.0, to: self.name(to), granted: *granted });
        } else if let Content::Vote { .. } = content
            && self.inc.stood.replace(*term) != Some(*term)
        {
            flight.note(flight::Event::Stands { term: term.0 });
        }
    }

    fn begin_sync(&mut self) {
        if self.inc.syncing != Syncing::Nothing || self.inc.group.store().failed().is_some() {
            return;
        }
        let log = self.inc.group.store_mut();
        match log.begin_write() {
            Ok(Some(_)) => {
                let begun = Instant::now();
                self.shared.metrics.sync_since.begin(begun);
                self.inc.syncing = Syncing::Writing(begun);
            }
            Ok(None) => {
                if let Some(ticket) = log.begin_sync() {
                    self.inc.syncing = Syncing::ByThread;
                    self.shared.jobs.sync(ticket);
                }
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// A write past the page cache may have ended.
    fn look_at_write(&mut self) {
        let Syncing::Writing(begun) = self.inc.syncing else { return };
        let log = self.inc.group.store_mut();
        let done = log.finish_write();
        if done.is_none() && log.is_under_way() {
            return;
        }
        self.shared.metrics.note_sync(begun);
        match done {
            Some(done) => self.on_synced(done),
            // A truncation has waited for it.
            None => self.inc.syncing = Syncing::Nothing,
        }
    }

    fn on_synced(&mut self, done: Result<Synced, StoreError>) {
        self.inc.syncing = Syncing::Nothing;
        let now = self.now();
        match done {
            Ok(synced) => self.inc.group.handle_synced(now, synced.generation, synced.upto),
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// A frozen peer's acknowledgements would pile up without bound. It does not need them: the sequencer tells it what is
    /// committed. To the sequencer they go in any case: it counts them, and is not frozen for longer than its term.
    fn reads_nothing(&self, peer: NodeId) -> bool {
        self.inc.transport.queue_bytes(peer) > ACKS_BEHIND_MAX && self.inc.group.sequencer() != Some(peer)
    }

    fn on_event(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::NonPrimary { reachable } => self.on_non_primary(reachable),
            Event::Left => self.become_over(),
            Event::ReadAt { read, seqno } => {
                if let Some(slot) = self.conn.reads.remove(&read.0) {
                    slot.fill(Some(seqno));
                }
            }
            Event::ReadFailed { read } => {
                if let Some(slot) = self.conn.reads.remove(&read.0) {
                    slot.fill(None);
                }
            }
            Event::DataDiverged => {
                self.inc.replicator.handle_diverged();
                // Before the log is replaced: no crash may leave the group's log beside these data.
                if !self.arbitrates() && !self.shared.data.discard() {
                    let what = "The data here, which are of another branch of the history";
                    return self.fail_for_good(texts::unmarked(what));
                }
                self.inc.group.data_discarded(now);
                self.carry_out();
            }
            Event::EngineAwaited { app } => {
                if let Err(error) = self.inc.replicator.handle_engine_awaited(&app) {
                    self.fail(unreadable(&error));
                }
                self.carry_out();
            }
            Event::Found { history } => {
                self.inc.replicator.handle_found(history);
                self.shared.data.found(history);
                if let Err(error) = self.inc.group.bootstrap(now, history, Seqno::ZERO) {
                    self.fail(error.to_string());
                }
            }
            Event::Signal { from, body } => self.inc.flow.on_signal(now, from, &body),
            Event::NeedSnapshot(request) if request.peer.is_none() && self.puts_off_checkpoint() => {
                self.inc.group.decline_snapshot(&request);
            }
            // The answer takes long where the index is large, and nothing is delivered meanwhile.
            Event::NeedSnapshot(request) if !self.inc.group.wants_snapshot(&request) => {}
            Event::NeedSnapshot(request) => {
                let mut before = Writer::new();
                self.inc.replicator.encode(&mut before);
                self.begin_work(Work::Describe { request, before });
            }
            Event::TermChanged { term, sequencer } => {
                let flight = &self.shared.host.flight;
                flight.set_term(term);
                let name = sequencer.map_or_else(String::new, |node| self.name(node));
                flight.note(flight::Event::Term { sequencer: name.clone() });
                if sequencer.is_none() {
                    self.shared.host.log(Level::Debug, format!("term {term} without a sequencer so far"));
                } else if self.inc.told_terms.is_worth_a_line(now, term) {
                    self.shared.host.log(Level::Info, format!("term {term}, sequencer {name}"));
                }
            }
            Event::Silent { node, silent } => {
                let peer = self.name(node);
                if silent {
                    *self.conn.silences.entry(node).or_default() += 1;
                    self.inc.silent.insert(node, Instant::now());
                    self.shared.host.flight.note(flight::Event::Silent { peer });
                } else {
                    let since = self.inc.silent.remove(&node);
                    let after = since.map_or(Duration::ZERO, |since| since.elapsed());
                    self.shared.host.flight.note(flight::Event::Heard { peer, after });
                }
                let state = if silent { "is silent" } else { "is heard again" };
                self.shared.host.log(Level::Info, format!("member {} {state}", self.name(node)));
                self.publish();
            }
            Event::Refuse { node, refused } => self.inc.transport.bar(node, refused),
            Event::Evicted => {
                self.shared.host.flight.note(flight::Event::Evicted {});
                self.fail(texts::EVICTED.into());
            }
            Event::Log { warn, text } => self.shared.host.log(if warn { Level::Warn } else { Level::Info }, text),
            Event::Failed(why) => self.fail(why.to_string()),
        }
    }

    /// This node cannot go on in this group.
    fn fail(&mut self, reason: String) {
        // Without a log, a server whose data are good needs no more than to wait.
        let waits = self.inc.replicator.serves() && !self.shared.data.is_inconsistent();
        let failed = self.inc.group.store().failed().filter(|_| waits && self.ending().may_sit_out());
        let Some(failed) = failed.map(|error| error.to_string()) else { return self.fail_for_good(reason) };
        self.give_up_log(reason);
        self.shared.host.flight.note(flight::Event::LogFailed { reason: failed });
        self.become_out();
    }

    /// The same, also where the server would serve.
    fn fail_for_good(&mut self, reason: String) {
        self.give_up_log(reason);
        self.become_over();
    }

    fn give_up_log(&mut self, reason: String) {
        self.shared.host.log(Level::Error, reason.clone());
        self.doubt_log();
        match self.conn.connected.take() {
            Some(slot) => slot.fill(Err(ConnectError::Failed(reason))),
            None => self.end_start(&reason),
        }
    }

    /// A log that has failed may have lost what this node has acknowledged.
    fn doubt_log(&mut self) {
        if self.inc.group.store().failed().is_none() {
            return;
        }
        match self.inc.group.store_mut().doubt() {
            Ok(None) => {}
            Ok(Some(after)) => self.shared.host.log(
                Level::Warn,
                format!("the disk may have lost entries after {after} of the write-set log: if it has, the others repair it"),
            ),
            Err(error) => self.shared.host.log(
                Level::Warn,
                format!(
                    "the disk may have lost the end of the write-set log and does not take a note of that ({error}): restart this server only \
                     while the others run"
                ),
            ),
        }
    }

    /// The last words to everybody who waits.
    fn answer_all(&mut self) {
        if let Some(slot) = self.conn.connected.take() {
            slot.fill(Err(ConnectError::Closed));
        }
        self.withdraw();
        self.conn.proposals.end();
        self.hang_up().into_iter().for_each(Letter::refuse);
        self.shared.votes.end();
        self.shared.outage.over();
    }

    /// The last words to the server.
    fn last_words(&mut self) {
        self.shared.status.set_group(GroupStatus { uuid: self.inc.me.uuid(), ..GroupStatus::default() });
        if self.inc.replicator.is_connected() {
            let view = self.server_view(ViewStatus::NonPrimary, None, &View::default());
            let last = self.inc.replicator.handed();
            self.shared.set_last(last);
            self.shared.queue.push(Item::Final { view, last });
        } else {
            // To a server that was never connected a final view would be a mistake.
            self.shared.queue.clear();
        }
        self.shared.queue.close();
    }

    /// All who wait for the group are answered, and nobody is heard from here on. The fates of own proposals are decided before. Returns the
    /// commands that came too late.
    fn hang_up(&mut self) -> Vec<Command> {
        self.settle_proposals();
        self.drop_held_back();
        self.shared.status.change_flow(|f| {
            f.pause(Instant::now(), false);
            f.requested = false;
        });
        for (_, slot) in self.conn.reads.drain() {
            slot.fill(None);
        }
        for (_, slot) in self.conn.weight_waiters.drain(..) {
            slot.fill(false);
        }
        if let Some(slot) = self.conn.asked.take() {
            slot.fill(Err(NoDonor::Left));
        }
        let mut rest = Vec::new();
        self.shared.commands.close(&mut rest);
        self.shared.host.settings.with(|o| o.set_group_connected(false));
        rest
    }

    fn publish(&mut self) {
        let roster = self.inc.replicator.roster();
        let member = self.inc.replicator.is_member();
        let state = if member { roster.state(self.inc.me.node) } else { None };
        self.set_flow_counts(state);
        let roster = self.inc.replicator.roster();
        // The members that decide; without the majority nobody does.
        let decides = if member { &roster.view().members[..] } else { &[] };
        let total: u32 = decides.iter().map(|m| u32::from(m.weight.0)).sum();
        self.shared.status.set_group(GroupStatus {
            member,
            state,
            receiving: !self.inc.replicator.is_live(),
            desyncs: roster.desyncs(self.inc.me.node),
            evicted: roster.evicted().to_vec(),
            delayed: self.delayed(),
            incoming: roster.view().members.iter().map(|m| m.incoming.clone()).collect(),
            names: roster.view().members.iter().map(|m| m.name.clone()).collect(),
            cluster: self.conn.cluster.clone(),
            weight: total,
            uuid: self.inc.me.uuid(),
            segment: self.inc.me.segment,
            first_seqno: self.inc.group.store().base().seqno.next(),
            protection: Some(self.inc.transport.protection()),
        });
    }

    /// The members that this node does not hear, for `wsrep_evs_delayed`.
    fn delayed(&self) -> Vec<String> {
        let members = self.inc.replicator.roster().view().members.iter();
        let silent = members.filter(|member| self.inc.silent.contains_key(&member.node));
        let shown = silent.map(|member| {
            let times = self.conn.silences.get(&member.node).copied().unwrap_or(0);
            format!("{}:tcp://{}:{times}", member.uuid(), member.address)
        });
        shown.collect()
    }

    /// Something that was ordered; of interest when it is new.
    fn log_ordered(&self, level: Level, text: String) {
        self.shared.host.log(if self.inc.past.is_some() { Level::Debug } else { level }, text);
    }

    fn names_of(&self, nodes: &[NodeId]) -> String {
        nodes.iter().map(|n| self.name(*n)).collect::<Vec<_>>().join(", ")
    }

    fn name(&self, node: NodeId) -> String {
        // Of the others views tell; before the first one there is none.
        let own = || (node == self.inc.me.node).then(|| self.shared.host.args.node_name.clone());
        self.conn.names.get(&node).cloned().or_else(own).unwrap_or_else(|| node.to_string())
    }

    /// This node's part in the group.
    fn role(&self) -> &'static str {
        let order = self.inc.group.status();
        if !self.inc.replicator.is_member() {
            "non-primary"
        } else if order.sequencer == Some(self.inc.me.node) {
            "sequencer"
        } else if order.voters.contains(self.inc.me.node) {
            "voter"
        } else {
            "member"
        }
    }

    fn picture(&self) -> Picture {
        let order = self.inc.group.status();
        let name = |node: NodeId| self.name(node);
        Picture {
            taken: Instant::now(),
            term: order.term.0,
            term_changes: order.term_changes,
            sequencer: order.sequencer.map_or_else(String::new, name),
            hears_majority: self.inc.group.hears_majority(self.now()),
            voters: order.voters.voters.iter().map(|v| (name(v.node), v.weight.0)).collect(),
            durability: order.durability,
            level: order.level,
            level_waits_for: self.inc.group.level_waits_for(self.now()),
            log_first: self.inc.group.store().first(),
            log_last: order.last,
            log_durable: order.durable,
            log_committed: order.committed,
            log_bytes: self.inc.group.store().bytes_held(),
            log_io: self.inc.log_io.name(),
            log_bytes_max: self.inc.kept_for_absent_max.max(self.shared.host.settings.with(|o| o.size("gcache.size"))),
            read_requests: order.read_requests,
            slow: self
                .inc
                .flow
                .slow()
                .into_iter()
                .map(|s| Slow { name: name(s.node), rate: s.rate, backlog: s.backlog })
                .collect(),
            flow_limits: self.inc.flow.limits(),
            role: self.role(),
            flow_gave_up: self.inc.flow.gave_up(),
            silent: self.inc.silent.keys().map(|n| name(*n)).collect(),
            silences: self.conn.silences.values().sum(),
            round_trips: self.round_trips(),
            commit_cut: self.inc.replicator.roster().cut(),
            protection: self.inc.transport.protection(),
            connections_refused: self.inc.transport.stats().refused,
            connections_half_open: self.inc.transport.stats().half_open,
            links_of_strangers: self.inc.transport.stats().stranger_links,
            link_bytes: self.inc.transport.stats().bytes_sent,
            multicast: self.inc.transport.stats().multicast,
            multicast_members: self.hear_multicast(),
            violators: self.inc.group.left_peers().into_iter().map(name).collect(),
            unknown_outcomes: self.shared.status.counters.unknown_outcomes.load(Relaxed),
        }
    }

    fn hear_multicast(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.inc.transport.hear_multicast().into_iter().map(|node| self.name(node)).collect();
        names.sort();
        names
    }

    fn round_trips(&self) -> Vec<Trip> {
        let one = |link: trireme_transport::LinkInfo| {
            let times = self.conn.round_trips.get(&link.node)?.clone();
            Some(Trip { peer: self.name(link.node), latest: link.round_trip?, times })
        };
        let mut trips: Vec<Trip> = self.inc.transport.links().into_iter().filter_map(one).collect();
        trips.sort_by(|a, b| a.peer.cmp(&b.peer));
        trips.dedup_by(|a, b| a.peer == b.peer);
        trips
    }

    /// Each client that waits for a write set is answered.
    fn abandon_all(&mut self) {
        self.withdraw();
        self.conn.proposals.drop_clients();
        self.settle_proposals();
        self.drop_held_back();
    }

    fn server_view(&self, status: ViewStatus, seqno: Option<Seqno>, view: &View) -> ServerView {
        let own_uuid = self.inc.me.uuid();
        let members: Vec<ViewMember> = view
            .members
            .iter()
            .map(|m| ViewMember { uuid: m.uuid(), name: m.name.clone(), incoming: m.incoming.clone() })
            .collect();
        ServerView {
            history: self.shared.data.history(),
            seqno: seqno.or(Some(self.shared.monitor.left())),
            number: (status == ViewStatus::Primary).then_some(view.number),
            status,
            capabilities: CAPABILITIES,
            own: members.iter().position(|m| m.uuid == own_uuid),
            members,
            protocol: self.shared.host.protocol(),
        }
    }
}

/// How the server begins that is started now.
fn first(plan: &Plan, arbitrates: bool, failures: Option<Failures>) -> replicator::Start {
    if arbitrates {
        return replicator::Start::Nobody;
    }
    let at = |(history, seqno)| Position { history, seqno };
    let (position, fallback) = match &plan.start {
        Start::Bootstrap { history, position } | Start::Alone { history, position } => {
            (Some((*history, *position)), None)
        }
        Start::Join { position, fallback, .. } => (*position, *fallback),
    };
    replicator::Start::Server { position: position.map(at), fallback, script: plan.script, failures }
}

fn unreadable(error: &DecodeError) -> String {
    format!("the group's state could not be read: {error}")
}
