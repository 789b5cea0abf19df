//! Work that depends on state rather than on one event, looked at in every turn.

use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_flight as flight;
use trireme_order::{LogStore, Phase, StoreError};
use trireme_surface::texts;
use trireme_types::{LogIndex, Seqno};
use trireme_wslog::{Trim, TrimAnswer};

use trireme_replicator::Sight;

use super::Core;
use super::incarnation::Unfed;
use crate::Level;
use crate::settings::{durability_name, unix_time};
use trireme_replicator::absent::others;
use trireme_replicator::retention::{Growth, Need, Needs, Room, needed_from};

/// How often the log's housekeeping is looked at.
const KEEP_LOG_EVERY: Duration = Duration::from_secs(1);
/// Bytes beyond `gcache.size + gcache.keep_pages_size` that are kept for members that have not received them: two of the largest write sets. A
/// member that lags further behind would need a full copy, as one that was away too long does.
const KEEP_FOR_MEMBERS_MAX: u64 = 4 << 30;
/// How long a wish to trim the log waits for the storage engine: it flushes every second unless told otherwise.
const WISH_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes beyond its size that the log holds for the storage engine's sake before the operator is told, if it is also more than the size:
/// some seconds of a busy cluster are nothing to tell of.
const ENGINE_EXCESS_TOLD: u64 = 64 << 20;
/// And how often.
const ENGINE_TOLD_EVERY: Duration = Duration::from_secs(600);
/// Uses of keys in the certification index (a hundred bytes each at worst) beyond which a member that lags does not keep them there.
const INDEX_KEYS_MAX: usize = 1 << 21;
/// How often the operator is told that the disk gets short while the server waits for its data.
const GROWTH_TOLD_EVERY: Duration = Duration::from_secs(60);
/// How long a sent, undecided commit waits in a non-primary component before it is given up.
const NON_PRIMARY_PATIENCE: Duration = Duration::from_secs(10);

/// The result of a trim that an operator wished for.
struct Trimmed {
    /// Bytes.
    freed: u64,
    kept: Kept,
    /// Names of members that are away and lack something of what was dropped.
    lost: Option<String>,
}

/// The part of a trim that could not be done.
enum Kept {
    Nothing,
    /// By an arbitrator.
    ForServer,
    ForEngine,
    ForMember,
}

impl Trimmed {
    /// The part that had to stay, and the members that lack something now, for a line that has told of the bytes.
    fn remainder(&self) -> String {
        let kept = match self.kept {
            Kept::Nothing => "",
            Kept::ForServer => "; a server lacks some of the rest",
            Kept::ForEngine => "; the storage engine of this node does not have the rest on disk yet",
            Kept::ForMember => "; a member that is here lacks some of the rest",
        };
        let lost = self.lost.as_ref().map(|names| {
            format!("; {names} needs a full copy now when it comes back, unless another member has what was dropped")
        });
        format!("{kept}{}", lost.unwrap_or_default())
    }
}

/// Why an operator's wish to trim the log is not granted.
#[derive(Debug, thiserror::Error)]
enum TrimRefused {
    #[error("the server of this node is being brought up and needs the log: try again when it is synced")]
    ServerNeedsIt,
    #[error("seqno {0} is not in the log: the newest entries have to stay, so name one that is")]
    NotInLog(Seqno),
    #[error(transparent)]
    Log(#[from] StoreError),
}

impl Core {
    pub(super) fn keep_house(&mut self) {
        if self.inc.non_primary_since.is_some_and(|since| since.elapsed() > NON_PRIMARY_PATIENCE) {
            self.inc.non_primary_since = None;
            self.give_up_waiting();
        }
        self.look_at_engine_patience();
        // Beside a peer of this cluster a wrong address costs nothing.
        if !self.inc.group.is_unlinked() {
            self.inc.unwelcome = None;
        }
        if self.conn.connected.is_some()
            && let Some((since, reason)) = &self.inc.unwelcome
            && since.elapsed() > self.inc.unwelcome_max
        {
            let reason = format!("{reason}; nobody else formed the group within {:?}", self.inc.unwelcome_max);
            return self.fail(reason);
        }
        // Before anything is read again: who orders has just been decided.
        let inside = self.inc.replicator.is_member() && self.inc.non_primary_since.is_none();
        self.inc.transport.set_sequencer(self.inc.group.sequencer().filter(|_| inside));
        if self.inc.log_kept.elapsed() >= KEEP_LOG_EVERY {
            self.conn.reminder.look(&self.shared.host, self.inc.transport.protection(), &self.inc.transport.listens());
            self.inc.log_kept = Instant::now();
            self.inc.group.set_unix_at_zero(unix_time().saturating_sub(self.inc.started.elapsed()));
            self.look_at_engine();
            self.keep_log();
        }
        self.inc.group.set_hear_multicast(self.inc.transport.hear_multicast());
        self.tell_progress();
        // Also without a majority: nobody else hears the signal.
        self.look_for_stop();
        if !self.inc.replicator.is_member() {
            return;
        }
        self.pay_owed();
        let now = self.now();
        let group = &self.inc.group;
        let sight = Sight {
            left: self.shared.monitor.left(),
            backlog: self.shared.queue.len() as u64,
            backlog_small: self.inc.flow.limits().lower,
            orders: self.inc.group.sequencer() == Some(self.inc.me.node),
            index_large: self.inc.index.retained().is_some_and(|uses| uses > INDEX_KEYS_MAX),
            voters: &|| group.status().voters,
        };
        self.inc.replicator.handle_tick(now, sight);
        if self.carry_out() {
            self.drain();
        }
    }

    pub(super) fn tell_progress(&mut self) {
        let now = self.now();
        let Some(catch_up) = &mut self.inc.catch_up else { return };
        let Some(progress) = catch_up.look(self.shared.monitor.left(), now) else { return };
        self.shared.jobs.event("progress", progress.json());
        if progress.line {
            self.shared.host.log(Level::Info, texts::receiving_ist_progress(progress.done, progress.total));
        }
        if progress.done == progress.total {
            let at = self.shared.monitor.left();
            self.shared.host.flight.note(flight::Event::CaughtUp { at });
            self.inc.catch_up = None;
        }
    }

    /// A state waits for the engine for long: perhaps for an applier that waits for a client, who waits for a write set that is ordered in or
    /// behind what the state skips; or for a vote with a result behind it.
    fn look_at_engine_patience(&mut self) {
        let Some(upto) = self.inc.group.state_awaits_engine() else {
            self.inc.engine_awaited_since = None;
            return;
        };
        let since = *self.inc.engine_awaited_since.get_or_insert_with(Instant::now);
        if since.elapsed() <= NON_PRIMARY_PATIENCE {
            return;
        }
        self.inc.engine_awaited_since = None;
        self.give_up_waiting();
        if self.shared.votes.waiting().iter().any(|seqno| *seqno <= upto) {
            let now = self.now();
            self.inc.group.note_engine_stuck(now);
            self.drain();
        }
    }

    /// No majority, or no state of the group, for long.
    pub(super) fn give_up_waiting(&mut self) {
        if self.conn.proposals.is_empty() {
            return;
        }
        self.inc.group.abandon_pending();
        self.inc.replicator.handle_abandoned();
        self.conn.proposals.give_up();
        self.settle_proposals();
        self.drain();
    }

    pub(super) fn pay_owed(&mut self) {
        if let Some(counted) = self.inc.replicator.counted_desyncs() {
            self.conn.proposals.desync_again(counted, self.shared.outage.desyncs());
        }
        if !self.conn.proposals.owes() || self.inc.group.status().phase != Phase::Primary {
            return;
        }
        self.propose_owed();
        self.drain();
    }

    /// Looks who is away, so that they can go on from this log when they are back.
    pub(super) fn look_for_absent(&mut self) {
        if self.inc.kept_for_absent_max == 0 || self.arbitrates() || !self.inc.replicator.is_live() {
            return;
        }
        let group = &self.inc.group;
        let first = group.store().first().prev();
        let status = group.status();
        let others = others(&status.view, &status.voters, self.inc.me.node).map(|n| (n, group.is_linked(n)));
        self.inc.absent.look(others, |n| group.held_by(n).unwrap_or(first));
        let max = self.inc.kept_for_absent_max;
        if self.inc.absent.hold().is_some() && group.store().bytes_held() > max {
            let lost = self.inc.absent.give_up();
            let names = self.names_of(&lost);
            self.shared.host.log(
                Level::Warn,
                format!(
                    "the log holds more than {max} bytes for members that are away (a quarter of the space that was free at the start, at \
                     most 16 GiB): what {names} lacks is dropped, so it needs a full copy when it comes back"
                ),
            );
        }
    }

    /// The mode is the cluster's, whatever this node's file of options says.
    pub(super) fn look_at_durability(&mut self) {
        let mode = self.inc.group.status().durability;
        if !self.inc.replicator.is_member() || self.inc.group.is_durability_wished() {
            return;
        }
        let name = durability_name(mode);
        let set = self.shared.host.settings.show_durability(mode);
        let before = self.conn.durability.replace(mode);
        if before != Some(mode) {
            self.shared.host.flight.note(flight::Event::Durability { mode: name.to_owned() });
        }
        match (before, set) {
            (Some(before), _) if before == mode => {}
            (Some(_), _) => self.shared.host.log(Level::Info, format!("repl.durability is now {name}, on all members")),
            (None, Some(set)) => self.shared.host.log(
                Level::Warn,
                format!(
                    "repl.durability={} was set on this node, but the cluster's mode is {name}, and that is what counts; to change it, SET \
                     GLOBAL wsrep_provider_options on any member",
                    durability_name(set)
                ),
            ),
            (None, None) => {}
        }
    }

    /// `trireme log trim` on a node that runs.
    fn trim_as_wished(&mut self) {
        let (wish, since) = match self.inc.group.store().take_wish() {
            Ok(Some(wish)) => (wish, Instant::now()),
            Ok(None) => match self.conn.wish.take() {
                Some(waiting) => waiting,
                None => return,
            },
            Err(error) => return self.shared.host.log(Level::Warn, format!("a wish to trim the log: {error}")),
        };
        // All commits so far are on disk in a moment.
        if self.waits_for_engine(wish.keep_from) && since.elapsed() < WISH_PATIENCE {
            self.conn.wish = Some((wish, since));
            return;
        }
        let trimmed = self.trim_to(wish.keep_from);
        let outcome = trimmed.map(|t| (t.freed, t.remainder())).map_err(|refused| refused.to_string());
        let (level, text) = match &outcome {
            Ok((freed, kept)) => (Level::Info, format!("{freed} bytes freed{kept}")),
            Err(reason) => (Level::Warn, reason.clone()),
        };
        self.shared
            .host
            .log(level, format!("an operator wished to trim the log below seqno {}: {text}", wish.keep_from));
        if let Err(error) = self.inc.group.store().answer_wish(&TrimAnswer { id: wish.id, outcome }) {
            self.shared.host.log(Level::Warn, format!("the answer to a wish to trim the log: {error}"));
        }
    }

    /// Does the storage engine not have on disk what would have to be, and could be?
    fn waits_for_engine(&self, keep_from: Seqno) -> bool {
        let log = self.inc.group.store();
        let reached = keep_from <= log.base().seqno.next() || keep_from <= self.inc.engine.upto().next();
        self.inc.replicator.is_live()
            && !self.arbitrates()
            && !reached
            && keep_from <= self.shared.monitor.left().next()
    }

    /// Drops what lies below `keep_from`, though members that are away may lack it; never what the server behind this node or a linked
    /// member needs.
    fn trim_to(&mut self, keep_from: Seqno) -> Result<Trimmed, TrimRefused> {
        if !self.inc.replicator.is_live() {
            return Err(TrimRefused::ServerNeedsIt);
        }
        let own = self.own_need();
        let by_members = self.inc.group.held_by_members();
        let arbitrates = self.arbitrates();
        let log = self.inc.group.store_mut();
        // Nothing with a number lies below.
        if keep_from <= log.base().seqno.next() {
            return Ok(Trimmed { freed: 0, kept: Kept::Nothing, lost: None });
        }
        let wanted = log.index_of(keep_from).ok_or(TrimRefused::NotInLog(keep_from))?;
        let needs = Needs { own, members: Some(by_members.next()), absent: None };
        let (keep, kept) = match needs.keep_from() {
            (keep, _) if wanted <= keep => (wanted, Kept::Nothing),
            (keep, Need::Own) if arbitrates => (keep, Kept::ForServer),
            (keep, Need::Own) => (keep, Kept::ForEngine),
            (keep, Need::Member | Need::Absent) => (keep, Kept::ForMember),
        };
        let before = log.bytes_held();
        log.trim(Trim { keep_from: keep, bytes_max: Some(0) })?;
        let freed = before.saturating_sub(log.bytes_held());
        let base = log.first().prev();
        let lost = self.inc.absent.trimmed(base);
        let lost = (!lost.is_empty()).then(|| self.names_of(&lost));
        Ok(Trimmed { freed, kept, lost })
    }

    /// The first entry that this node may need itself: to replay what its storage engine loses in a crash (rule 32). Nobody's wish and
    /// no size counts against that. For an arbitrator: what a server may lack.
    fn own_need(&self) -> LogIndex {
        let log = self.inc.group.store();
        let upto = if self.arbitrates() { self.shared.monitor.left() } else { self.inc.engine.upto() };
        let after = needed_from(upto, log.base(), log.last(), |seqno| log.index_of(seqno));
        if self.arbitrates() { after.min(self.inc.group.held_by_servers().0.next()) } else { after }
    }

    /// Only when somebody wants to know: it is no work, but it takes a lock of the engine.
    fn look_at_engine(&mut self) {
        let for_trim = self.inc.group.store().wants_trim() || self.conn.wish.is_some();
        let live = self.inc.replicator.is_live();
        let found = match self.inc.unfed {
            Unfed::Open(end) => end,
            Unfed::OnDisk(_) | Unfed::Unknown => Seqno::ZERO,
        };
        // One that runs is looked at early: a first look proves nothing yet.
        let wanted = for_trim && live || self.inc.engine.is_unseen() && (live || found > Seqno::ZERO);
        if (wanted || self.inc.group.awaits_engine_disk()) && !self.inc.engine_asked && !self.arbitrates() {
            self.inc.engine_asked = true;
            // One that returns to a running server was fed by this process.
            let fed = self.inc.replicator.serves();
            self.shared.jobs.look_at_engine(self.inc.engine.epoch(), (!fed).then_some(found));
        }
    }

    /// The size that an operator has set is exceeded for the engine's sake.
    fn tell_of_engine(&mut self, keep: LogIndex) {
        let log = self.inc.group.store();
        let held = log.bytes_held();
        let much = log.excess() > (held - log.excess()).max(ENGINE_EXCESS_TOLD);
        if !much || self.conn.engine_told.is_some_and(|when| when.elapsed() < ENGINE_TOLD_EVERY) {
            return;
        }
        self.conn.engine_told = Some(Instant::now());
        self.shared.host.log(
            Level::Warn,
            format!(
                "the write-set log holds {held} bytes, more than gcache.size and gcache.keep_pages_size allow: the storage engine of this node \
                 does not have entries from {keep} on on disk yet, and nothing is dropped before it has (innodb_flush_log_at_timeout, or a slow \
                 disk)"
            ),
        );
    }

    /// While the server waits for its data nothing leaves the log, and a busy cluster can fill its disk.
    fn look_at_room(&mut self) {
        let log = self.inc.group.store();
        if self.inc.replicator.is_live() || !log.wants_trim() {
            return;
        }
        let free = self.shared.host.settings.free_for_log();
        let growth = Growth { held: log.bytes_held(), excess: log.excess(), free };
        match growth.room() {
            Room::Enough => {}
            Room::Short => {
                if self.conn.growth_told.is_some_and(|when| when.elapsed() < GROWTH_TOLD_EVERY) {
                    return;
                }
                self.conn.growth_told = Some(Instant::now());
                self.shared.host.log(
                    Level::Warn,
                    format!(
                        "the write-set log holds {} bytes and {free} are free on its disk: nothing of it can be dropped before the full copy is here",
                        growth.held
                    ),
                );
            }
            Room::None => {
                self.inc.replicator.handle_no_room(growth);
                self.carry_out();
            }
        }
    }

    pub(super) fn keep_log(&mut self) {
        self.look_at_room();
        let live = self.inc.replicator.is_live();
        let own = self.own_need();
        let mut for_engine = None;
        let held_by_servers = self.inc.group.held_by_servers();
        let held_by_members = self.inc.group.held_by_members();
        let log_max = self.conn.log_max;
        self.look_for_absent();
        let held_by_absent = self.inc.absent.hold();
        let log = self.inc.group.store_mut();
        // Found by a reader: nobody else may have a need of the log for long.
        if let Some(error) = log.failed() {
            return self.fail(error.to_string());
        }
        let first = log.first();
        let mut result = Ok(());
        // Until the server's position is known nothing says what it will need.
        if live && log.wants_trim() {
            let members = (log.excess() <= KEEP_FOR_MEMBERS_MAX).then(|| held_by_members.next());
            let needs = Needs { own, members, absent: held_by_absent.map(LogIndex::next) };
            let (keep_from, need) = needs.keep_from();
            let (all, some) = held_by_servers;
            for_engine = (need == Need::Own && log_max.is_none()).then_some(keep_from);
            result = log.trim(Trim { keep_from, bytes_max: None }).map(drop);
            if let Some(bytes_max) = log_max.filter(|max| result.is_ok() && log.bytes_held() > *max) {
                // Never what no server has: with more weight than they, this member alone could have committed it.
                result = log.trim(Trim { keep_from: some.next(), bytes_max: Some(bytes_max) }).map(drop);
                let first = log.first();
                let told = std::mem::replace(&mut self.conn.told_of_bound, first > all.next());
                if self.conn.told_of_bound && !told {
                    self.shared.host.log(
                        Level::Warn,
                        format!(
                            "the log has reached its bound of {bytes_max} bytes and now begins at {first}: a server that has not \
                             acknowledged what was dropped can go on only with another server that has it"
                        ),
                    );
                }
            }
        }
        if let Some(keep) = for_engine {
            self.tell_of_engine(keep);
        }
        self.trim_as_wished();
        self.look_at_durability();
        let keep_pages = self.shared.host.settings.with(|o| o.size("gcache.keep_pages_size"));
        self.inc.group.store_mut().keep_beyond(keep_pages);
        let log = self.inc.group.store_mut();
        let trimmed = log.first() != first;
        let removed = log.take_removed();
        if !removed.is_empty() {
            self.shared.jobs.drop_elsewhere(removed);
        }
        let unused: Vec<Bytes> = self.inc.large.extract_if(.., |body| body.is_unique()).collect();
        if !unused.is_empty() {
            self.shared.jobs.drop_elsewhere(unused);
        }
        match (result, log.begin_spare()) {
            (Err(error), _) => return self.fail(error.to_string()),
            (Ok(()), Some(ticket)) => self.shared.jobs.prepare_space(ticket),
            (Ok(()), None) => {}
        }
        if trimmed {
            self.publish();
        }
        // In mode `process` nobody waits for it: a loss of power costs the last second and no more.
        self.begin_sync();
    }
}
