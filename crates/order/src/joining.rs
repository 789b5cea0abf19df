//! Letting others in, and being let in: joins, and the states that members begin with.

use trireme_types::{Base, Kinship, LogIndex, NodeId, ProposalNumber, Seqno, Term, Timestamp, Uuid};

use crate::group::Group;
use crate::message::JoinRequest;
use crate::mutant::Mutant;
use crate::replication::Progress;
use crate::role::Joiner;
use crate::standing::{Offer, Standing};
use crate::suspicion::Lack;
use crate::{Content, LogEnd, LogStore, Message, Phase};

impl<S: LogStore> Group<S> {
    // --- asking to be let in --------------------------------------------------------------------------------------

    pub(crate) fn send_join(&mut self) {
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            self.send_join_to(node);
        }
    }

    pub(crate) fn send_join_to(&mut self, node: NodeId) {
        if self.begins_apart_from(node) {
            return;
        }
        let request = JoinRequest {
            member: self.own_member(),
            history: self.own.tail().history,
            lineage: self.own.tail().lineage.clone(),
            usable: self.standing().keeps_log(),
            last_index: self.own.tail().index,
            last_term: self.own.tail().term,
            position: self.data.brought(),
            view: self.done.view.number,
        };
        self.send(node, Message::Join(request));
    }

    /// A sequencer, be it of itself alone so far, has a history to go on with: it asks to be let into no other one, and is not taken
    /// into one. A bootstrap beside another cluster would else end in that cluster.
    fn begins_apart_from(&self, node: NodeId) -> bool {
        let theirs = self.peers.get(&node).and_then(|p| Some(p.told()?.history));
        self.leads() && theirs != Some(self.own.tail().history)
    }

    pub(crate) fn on_join(&mut self, now: Timestamp, from: NodeId, request: JoinRequest) {
        let same_history = request.history == self.own.tail().history;
        let kinship =
            if self.is(Mutant::ForkMerged) { Kinship::Same } else { request.lineage.kinship(&self.own.tail().lineage) };
        // Up to where its log can be this one's.
        let common = match kinship {
            Kinship::Same => Some(self.own.tail().index),
            Kinship::Descendant(fork) => Some(fork.index.prev()),
            Kinship::Ancestor | Kinship::Sibling => None,
        };
        let usable = same_history && request.usable && common.is_some();
        let tail = self.own.tail().index;
        if request.member.node != from {
            return;
        }
        if self.is_evicted(now, &request.member) {
            return self.send(from, Message::Evicted);
        }
        let arbitrates = self.arbitrates();
        let answers = self.answered(from).is_some_and(|at| now.since(at) <= self.cfg.timeouts.election * 2);
        let settled = self.own.tail().voters_at <= self.commit.max(self.own.voters_committed());
        let votes = self.own.tail().voters.contains(from) || !settled && self.own.tail().voters_before.contains(from);
        let heard = self.majority_heard(now);
        let Some(s) = self.role.leading_mut() else { return };
        // A voter that has lost its whole log gets one before: it may take that to be established.
        let lost_all = request.history.is_nil() && votes;
        if !(s.established || lost_all) || arbitrates {
            return;
        }
        if !request.history.is_nil() && same_history && kinship != Kinship::Same {
            // It has been on another branch since it voted here, and does not remember what it promised (rules 12, 13). One that has only
            // lost the fork does, and follows again.
            if votes && !usable {
                s.of_other_branches.insert(from);
                return self.step_membership(now);
            }
            if !heard {
                // Nobody gives up a branch for a component that may be gone.
                return;
            }
        }
        let inside = self.own.tail().view.get(from).is_some_and(|m| m.incarnation == request.member.incarnation);
        let mut usable = usable;
        if self.has_unreachable_term(now, from) {
            // Its promises are of terms in which nobody here can ever ask for them. Without a vote they bind it no more, and it begins anew.
            if votes && heard {
                if let Some(s) = self.role.leading_mut() {
                    s.of_other_branches.insert(from);
                }
                return self.step_membership(now);
            }
            if votes || inside {
                return;
            }
            usable = false;
        }
        if self.is_behind_only_data(now, from, request.position) {
            return;
        }
        let members_max = self.cfg.limits.members_max;
        let Some(s) = self.role.leading_mut() else { return };
        let mut others = s.joiners.keys().filter(|n| **n != from && self.own.tail().view.get(**n).is_none());
        if !inside
            && self.own.tail().view.get(from).is_none()
            && self.own.tail().view.members.len() + others.by_ref().count() >= members_max
        {
            let is_known = std::mem::replace(&mut s.is_full, true);
            if let Some(left_out) = Some(()).filter(|()| !is_known).and_then(|()| self.room_for_a_line(now, from)) {
                let text = format!("no more than {members_max} members: others that ask are not let in{left_out}");
                self.log(true, text);
            }
            return;
        }
        s.is_full = false;
        if inside {
            // One that has not delivered the newest view yet will find itself in it; one that hears nothing never would.
            if request.view == self.own.tail().view.number && answers {
                s.want_view.insert(from);
            }
        } else {
            let incarnation = request.member.incarnation;
            let before = s.joiners.insert(from, Joiner { member: request.member, position: request.position });
            if before.is_none_or(|j| j.member.incarnation != incarnation) {
                self.tell_of_gap(now, from, request.position);
            }
        }
        let Some(s) = self.role.leading_mut() else { return };
        match s.progress.get(&from) {
            Some(p) if usable || p.snapshot_since.is_some() => {}
            // One is under way. (Probes say nothing here: a log of no history does not answer them.)
            Some(p) if p.rests_from_snapshots(now) => {}
            None if usable => {
                let next = request.last_index.min(common.unwrap_or(tail)).min(tail).next();
                s.progress.insert(from, Progress::new(next, tail, now));
            }
            before => {
                let snapshots = before.map_or(0, |p| p.snapshots);
                s.progress
                    .insert(from, Progress { snapshots, answered: true, ..Progress::new(tail.next(), tail, now) });
                self.need_snapshot_for(now, from);
            }
        }
        self.step_membership(now);
    }

    /// A joiner with data that the kept log does not reach back to. In Galera's words, and as there on the side that keeps the log:
    /// they are looked for.
    fn tell_of_gap(&mut self, now: Timestamp, from: NodeId, position: Option<(Uuid, Seqno)>) {
        let base = self.own.store().base();
        let Some((_, at)) = position.filter(|(history, at)| *history == base.history && *at < base.seqno) else {
            return;
        };
        let first = at.next();
        if let Some(left_out) = self.room_for_a_line(now, from) {
            self.log(false, format!("IST first seqno {first} not found from cache, falling back to SST{left_out}"));
        }
    }

    /// The peer's log can't be continued: give it a state to begin with, as old as its data need and we still have.
    pub(crate) fn need_snapshot_for(&mut self, now: Timestamp, node: NodeId) {
        if self.arbitrates() && !self.is(Mutant::ArbitratorForgets) {
            return self.bring_up_by_state(now, node);
        }
        let history = self.own.tail().history;
        let Some(s) = self.role.leading_mut() else { return };
        let Some(p) = s.progress.get_mut(&node) else { return };
        if p.rests_from_snapshots(now) {
            // It did not help, or has not arrived.
            return self.defer_snapshot_for(now, node);
        }
        p.snapshot_since = Some(now);
        let position = s.joiners.get(&node).and_then(|j| j.position).filter(|(h, _)| *h == history);
        // A log of another branch is replaced by one that lies on this one, never by a part of the past that both have: whoever
        // forgets what it acknowledged there must not be taken for one who has never left.
        let branch = self.own.tail().branch();
        let same = self.kinship_of(node) == Some(Kinship::Same);
        // A member is bound no more by what it has promised only by a state in which it has no vote.
        let renews = self.has_unreachable_term(now, node);
        let releases = |base: &Base| !renews || base.voters_at >= self.own.tail().voters_at;
        let lies_here = |base: &Base| same || base.lineage.branch(base.history) == branch;
        if let Some(data) = self.only_data_elsewhere(node) {
            self.spare_data_of(now, node, data);
            return self.defer_snapshot_for(now, node);
        }
        let kept = position.and_then(|(_, seqno)| self.own.store().checkpoint_before(seqno));
        if let Some(base) = kept.filter(|base| lies_here(base) && releases(base)) {
            return self.send_snapshot(now, node, base);
        }
        // It may have told where its data are, and not have asked from there yet, or not ask at all, as a server that runs: two of these would each get
        // a state behind their data because the other one has some. Or from the past that both have, if it forgets nothing by that.
        let only = self.only_data(node);
        let allowed = |base: &Base| only.is_some() || releases(base) && self.lies_behind_log_of(node, base);
        let fits = |base: &Base| (lies_here(base) || self.has_nothing_behind(node, base)) && allowed(base);
        let told = self.data_on_this_branch(node).and_then(|data| self.own.store().checkpoint_before(data));
        if let Some(base) = told.filter(fits) {
            return self.send_snapshot(now, node, base);
        }
        if let Some(data) = only {
            self.spare_data_of(now, node, data);
            return self.defer_snapshot_for(now, node);
        }
        let theirs = self.peers.get(&node).and_then(|p| p.told());
        if self.nobody_has_data() && theirs.is_some_and(|p| p.history.is_nil()) {
            let base = self.own.store().base().clone();
            // One that votes by an old state would decide with the voters of then.
            let votes = base.voters.contains(node) || self.own.tail().voters.contains(node);
            if base.index > LogIndex::ZERO && !votes {
                return self.send_snapshot(now, node, base);
            }
        }
        self.ask_for_snapshot(Some(node));
    }

    /// Is this base behind the end of the peer's log, by index and by term? Where it is not, the log holds something else than was ordered, and so may
    /// the data: they must not go on.
    fn lies_behind_log_of(&self, node: NodeId, base: &Base) -> bool {
        let theirs = self.peers.get(&node).and_then(|p| p.told());
        theirs.is_some_and(|p| p.last_index < base.index && p.last_term <= base.term)
    }

    /// Can this peer, which lacks the fork at which the own branch began, take this base of the past before it without losing an entry that was
    /// ever committed? Also one whose log is longer, and ends in an earlier term: no fork lies between, so the base's sequencer held all that was
    /// committed in terms before its own, and what the peer has beyond that would go at the first entry of that log.
    fn has_nothing_behind(&self, node: NodeId, base: &Base) -> bool {
        let Some(theirs) = self.peers.get(&node).and_then(|p| p.told()) else { return false };
        match theirs.lineage.kinship(&self.own.tail().lineage) {
            Kinship::Descendant(fork) => {
                base.lineage == theirs.lineage && base.index < fork.index && theirs.end() <= LogEnd::from(base)
            }
            Kinship::Same | Kinship::Ancestor | Kinship::Sibling => false,
        }
    }

    /// Wait, don't repeat it at the speed of the network.
    pub(crate) fn defer_snapshot_for(&mut self, now: Timestamp, node: NodeId) {
        let next = self.own.tail().index.next();
        if let Some(p) = self.progress_of(node) {
            p.snapshot_since = None;
            p.probing = true;
            p.probed_at = Some(now);
            p.next = next;
        }
    }

    pub(crate) fn send_snapshot(&mut self, now: Timestamp, node: NodeId, base: Base) {
        let tail = self.own.tail().index;
        let term = self.own.term();
        let Some(p) = self.progress_of(node) else { return };
        p.snapshot_since = None;
        p.snapshot_sent = Some(now);
        p.snapshots = p.snapshots.saturating_add(1);
        p.matched = LogIndex::ZERO;
        p.restart(base.index.next(), tail);
        p.probed_at = Some(now);
        let lineage = self.own.tail().lineage.clone();
        self.send(node, Message::Snapshot { term, lineage, base: Box::new(base) });
        // The probe comes behind it.
        if let Some(p) = self.progress_of(node) {
            p.probed_at = None;
        }
    }

    pub(crate) fn on_snapshot(&mut self, now: Timestamp, offer: Offer) {
        let Offer { from, term, lineage, base } = offer;
        let same = base.history == self.own.tail().history;
        if !same && self.begins_apart_from(from) || self.is_beyond_level(now, from, base.level) {
            return;
        }
        let kinship = match self.own.tail().lineage.kinship(&lineage) {
            _ if self.is(Mutant::ForkMerged) => Kinship::Same,
            kinship => kinship,
        };
        let of_branch = same && kinship == Kinship::Same;
        // Its sequencer has let the others take this member's vote: what was promised in terms that nobody reaches binds it no more.
        // A state from before that may come late, and this member may have voted since.
        let without_vote = !base.voters.contains(self.me()) && base.index >= self.own.tail().voters_at;
        let renewed = same && Self::is_driven_up(self.own.term(), term) && without_vote;
        // Shorter than the base, or with a tail that was never committed where the group has something else.
        let behind = base.index > self.own.tail().index
            || base.index > self.commit && self.own.store().term_at(base.index) != Some(base.term);
        let keeps_log = self.standing().keeps_log();
        let wanted = !keeps_log || !of_branch || behind || renewed;
        // A member so far behind that nobody keeps what it lacks is told so too: its driver sees the reset and leaves.
        let lagging = self.sequencer() == Some(from) && (behind || !of_branch);
        if !matches!(self.phase(), Phase::Joining | Phase::NonPrimary) && keeps_log && !lagging || !wanted {
            return;
        }
        if self.is_strange_state(same) && !self.continues_here(from, &lineage, &base) && !self.may_overrule(now, from) {
            return;
        }
        // A log of which nothing is left does not say whose promises these are: they are kept. Nor do they go with the branch.
        let promised = (same || self.own.tail().history.is_nil()) && !renewed;
        if term < self.own.term() && promised {
            let (branch, term) = (lineage.branch(base.history), self.own.term());
            return self.send(from, Content::HeartbeatAck { round: 0 }.in_term(branch, term));
        }
        let contradicts = match kinship {
            Kinship::Same => self.standing().is_doubled() || self.data_contradict(&base),
            Kinship::Descendant(fork) => !self.can_follow(&fork),
            Kinship::Ancestor | Kinship::Sibling => true,
        };
        let data_go_first = match self.standing() {
            Standing::Keeps | Standing::OutOfReach | Standing::GivesWay { .. } => same && contradicts,
            Standing::Diverged { .. } => true,
            Standing::Discarded { .. } => false,
        };
        if data_go_first {
            if !self.standing().gives_up_data() && self.keeps_only_data_from(from, term, &lineage) {
                return self.keep_only_data(now, from);
            }
            if self.standing().is_doubled() && !self.is_known_by(&base) {
                let what = "has a state that does not name all whom the write-set log here has named: an old copy of its data directory was put \
                            back. Log and data are kept. If it is the one to go on with, remove the write-set log and grastate.dat of this \
                            node; it takes a full copy then";
                self.complain(now, from, what);
                // As long as that one is there this member orders nothing beside it.
                return self.hear_of_rival(now);
            }
            // Rule 13.
            return self.become_diverged(Some(Offer { from, term, lineage, base }));
        }
        if self.would_keep_data(&base) {
            if !self.may_begin_log_at(now, base.seqno) {
                return self.keep_offer(Offer { from, term, lineage, base });
            }
        } else if self.keeps_offer_of(now, from, term) {
            return;
        }
        let by_them = self.orders_by_voters_of(&base, from, term);
        if !promised || term > self.own.term() {
            // Terms of another history mean nothing here. Its sequencer has this member's vote now.
            self.own.promise_with_next(term, from);
        }
        // The base need not reach what the old log acknowledged: no evidence of that any more (rules 10, 12). One of a later term does: its
        // sequencer held all that was committed before, and of that term itself the old log has nothing.
        let reaches = of_branch && LogEnd::from(&base) >= self.own.tail().end();
        let comparable = same && (of_branch || base.lineage == self.own.tail().lineage);
        let lack = if self.may_name_former_voters(comparable, by_them, &base) { Lack::Voters } else { Lack::Entries };
        let had_a_log = !self.own.tail().history.is_nil() || self.own.store().suspect().is_some();
        // A damaged log may end before a change of the voters that was committed. The mark that tells of it goes with the log.
        let lost_voters = comparable && self.own.voters_committed() > base.voters_at;
        if had_a_log && (!reaches || lost_voters) && !self.begin_to_doubt(lack) {
            return;
        }
        let forgotten = self.suspicion.acknowledged_before();
        let view = base.view.clone();
        let held = self.holds().unwrap_or_default().max(self.data.applied);
        // Those that delivery has not reached say nothing of it.
        let term = if self.done.seqno >= held { self.done.term } else { self.data.applied_term };
        if !self.replace_log(base) {
            return;
        }
        // Data that are kept say until delivery has passed them what this member may follow.
        (self.data.applied, self.data.applied_term) = match self.data.stocked {
            true => (held, term),
            false => (Seqno::ZERO, Term::ZERO),
        };
        self.become_follower(now, Some((from, lineage)));
        self.suspicion.keep_acknowledged(forgotten);
        if matches!(self.phase(), Phase::Primary | Phase::Leaving) {
            // The view that threw this member out may be among what was skipped.
            self.on_view_delivered(now, &view);
        }
    }

    /// Is this state perhaps from before a change of the voters, so that those that it names decide no more? Nobody knows what a log of which nothing is
    /// left had named, and indices of others are not comparable. Otherwise a state that is no older than all changes that this member knows of names
    /// whom the own log names: they count no more and no less than before. But there was a change if its sender does not order
    /// by them (`by_them`).
    fn may_name_former_voters(&self, comparable: bool, by_them: bool, base: &Base) -> bool {
        let known = self.own.tail().voters_at.max(self.own.voters_committed());
        if comparable && base.voters_at < known {
            return true;
        }
        let is_as_new = comparable && !self.own.tail().history.is_nil() && by_them;
        base.voters.contains(self.me()) && !is_as_new
    }

    /// Does the one that orders in `term` do that as one of the voters that `base` names, or by a promise of this member: given to it, or to one of
    /// these in the term before, who may have entrusted it?
    fn orders_by_voters_of(&self, base: &Base, from: NodeId, term: Term) -> bool {
        let vote = self.own.last_vote();
        let by_another = || vote.term.next() == term && vote.of != self.me() && base.voters.contains(vote.of);
        base.voters.contains(from)
            || (vote.term, vote.of) == (term, from)
            || self.own.entrusted_in(term) == Some(from)
            || by_another()
    }

    /// Would a state of this, or another, history replace what only the own cluster may replace? A member that has a log of voters belongs to them;
    /// only one that was started with it may be meant to join another cluster.
    fn is_strange_state(&self, same: bool) -> bool {
        let belongs = !self.own.tail().history.is_nil() && !self.own.tail().voters.voters.is_empty();
        belongs && (same || self.phase() != Phase::Joining)
    }

    /// Would the data of this server go on behind a log that begins at `base`? Data that no log here reached may fit that one. Those that
    /// end below it are of no use from there on.
    fn would_keep_data(&self, base: &Base) -> bool {
        let found = self.data.position.filter(|_| self.data.is_brought());
        let own = self.holds().map(|seqno| (self.own.tail().history, seqno));
        let held = if self.data.stocked { own } else { found };
        let held = held.filter(|(history, _)| *history == base.history).map(|(_, seqno)| seqno);
        held.is_some_and(|held| held >= base.seqno) && !self.arbitrates()
    }

    /// From here on the log begins at `base`. `false`: it could not be replaced.
    pub(crate) fn replace_log(&mut self, base: Base) -> bool {
        self.data.stocked = self.would_keep_data(&base);
        self.data.awaited = None;
        self.data.position = self.data.position.filter(|_| self.data.stocked);
        self.data.half_done = self.data.half_done.filter(|end| *end >= base.seqno);
        let replaced = self.own.reset(base.clone()).and_then(|()| self.own.save_base_committed(&base));
        if !self.worked(replaced) {
            return false;
        }
        self.become_keeping();
        self.spoil_repair(base.index);
        self.begin_at(base);
        self.renew_session();
        self.become_leaderless();
        self.end_era();
        // The mode of the new log may not have been written down.
        self.phase() != Phase::Failed
    }

    /// After a fork this side may not know the numbers that the other side ordered: what comes next would wait for them for
    /// ever. Pending proposals are given up, as in `abandon_pending`.
    fn renew_session(&mut self) {
        let first = self.proposals.first_number();
        let ordered = match self.done.sessions.get(&self.me()) {
            Some(last) if last.session == self.proposals.session() => last.number,
            Some(_) | None => ProposalNumber::ZERO,
        };
        if ordered.next() < first {
            self.proposals.give_up();
        }
    }
}
