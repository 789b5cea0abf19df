//! Branches of a history: where each member says that it stands, what happens when two of them meet, and how one begins by force (rule 13).

use trireme_types::{Fork, Kinship, Level, LogIndex, NodeId, Seqno, Term, Timestamp, Uuid, Voter, VoterSet, Weight};

use crate::from_data::Declined;
use crate::group::{CHECK_EVERY, Group};
use crate::message::Presence;
use crate::mutant::Mutant;
use crate::standing::{Rival, Standing};
use crate::{Evidence, LogStore, Message, Phase};

impl<S: LogStore> Group<S> {
    // --- how they are related -------------------------------------------------------------------------------------

    /// Is this the branch that the own log belongs to?
    pub(crate) fn is_own_branch(&self, branch: Uuid) -> bool {
        !branch.is_nil() && (branch == self.own.tail().branch() || self.is(Mutant::ForkMerged))
    }

    /// Where the own log ends to be comparable with that of the sequencer it follows: the first fork that it lacks.
    pub(crate) fn common_end(&self) -> LogIndex {
        if self.is(Mutant::ForkMerged) {
            return LogIndex(u64::MAX);
        }
        match self.own.tail().lineage.kinship(self.era.lineage()) {
            Kinship::Same => LogIndex(u64::MAX),
            Kinship::Descendant(fork) => fork.index,
            Kinship::Ancestor | Kinship::Sibling => LogIndex::ZERO,
        }
    }

    /// May this log and these data go on with a branch that begins at `fork`? Nothing that was committed, and nothing that the
    /// data hold, may lie behind it.
    pub(crate) fn can_follow(&self, fork: &Fork) -> bool {
        !self.is_committed_beyond(fork) && self.data.applied <= fork.seqno
    }

    /// Is anything committed in the own log that a branch which begins at `fork` lacks? A member with data beside such a log keeps both.
    pub(crate) fn is_committed_beyond(&self, fork: &Fork) -> bool {
        self.commit >= fork.index
    }

    /// How a linked peer's log relates to the own one. `None`: not known, or of another history.
    pub(crate) fn kinship_of(&self, node: NodeId) -> Option<Kinship> {
        let presence = self.peers.get(&node)?.told()?;
        if presence.history != self.own.tail().history || presence.history.is_nil() {
            return None;
        }
        if self.is(Mutant::ForkMerged) {
            return Some(Kinship::Same);
        }
        Some(self.own.tail().lineage.kinship(&presence.lineage))
    }

    /// The first fork that the own log lacks of that branch, on which this peer stands.
    pub(crate) fn fork_before(&self, node: NodeId, branch: Uuid) -> Option<Fork> {
        let theirs = self.peers.get(&node)?.told()?;
        match self.kinship_of(node)? {
            Kinship::Descendant(fork) if theirs.lineage.branch(theirs.history) == branch => Some(fork),
            Kinship::Same | Kinship::Descendant(_) | Kinship::Ancestor | Kinship::Sibling => None,
        }
    }

    /// Is it known that this peer stands on a branch that the own log will never be on?
    pub(crate) fn is_of_other_branch(&self, node: NodeId) -> bool {
        matches!(self.kinship_of(node), Some(Kinship::Sibling | Kinship::Descendant(_)))
    }

    // --- where everybody stands -----------------------------------------------------------------------------------

    fn presence(&self, now: Timestamp) -> Presence {
        let keeps_log = self.standing().keeps_log();
        Presence {
            // A member that has given up its branch speaks for none.
            history: if self.standing().gives_up_data() { Uuid::NIL } else { self.own.tail().history },
            lineage: self.own.tail().lineage.clone(),
            term: self.own.term(),
            // A log that is to be replaced is no better than none.
            last_term: if keeps_log { self.own.tail().term } else { Term::ZERO },
            last_index: if keeps_log { self.own.tail().index } else { LogIndex::ZERO },
            base: self.own.store().base().seqno,
            seqno: self.own.tail().seqno,
            primary: self.goes_on(now),
            evidence: self.own_evidence(),
            data: self.data.position.filter(|_| self.phase() == Phase::Joining),
            holds: self.holds(),
            founding: self.founding(now),
            sequencer: self.vouches_for(),
        }
    }

    /// In a primary component that has a majority at this moment. A member that has given its vote away does not speak for the old one any more,
    /// and not yet for the next one.
    fn goes_on(&self, now: Timestamp) -> bool {
        self.phase() == Phase::Primary
            && self.standing().keeps_log()
            && self.led_terms.newest == self.own.term()
            && now.since(self.good_at) <= self.cfg.timeouts.election * 2
    }

    pub(crate) fn send_presence(&mut self, now: Timestamp) {
        self.told.branch = self.own.tail().branch();
        self.told.sequencer = self.vouches_for();
        self.told.stocked = self.data.stocked;
        self.told.evidence = self.own_evidence();
        self.told.base = self.own.store().base().seqno;
        let presence = self.presence(now);
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            self.send(node, Message::Presence(self.as_told_to(node, presence.clone())));
        }
    }

    pub(crate) fn send_presence_to(&mut self, now: Timestamp, node: NodeId) {
        let presence = self.as_told_to(node, self.presence(now));
        self.send(node, Message::Presence(presence));
    }

    /// Where the own log is committed beyond the fork at which this peer's branch began, the data belong beside it, and cannot follow. An older build
    /// hears no more than it can read.
    fn as_told_to(&self, node: NodeId, mut presence: Presence) -> Presence {
        if let Some(Kinship::Descendant(fork)) = self.kinship_of(node)
            && self.is_committed_beyond(&fork)
        {
            presence.holds = presence.holds.map(|held| held.max(fork.seqno.next()));
        }
        if presence.evidence == Evidence::Voters && !self.peer_supports(node, Level::WAITS_FOR_ALL) {
            presence.evidence = Evidence::Nothing;
        }
        presence
    }

    /// Two primary components of one history: both have to find out, whenever they meet.
    pub(crate) fn tell_other_branches(&mut self, now: Timestamp) {
        let nodes: Vec<NodeId> = self
            .peers
            .keys()
            .copied()
            .filter(|node| match self.kinship_of(*node) {
                Some(Kinship::Same) => self.leads_beside(*node),
                Some(Kinship::Descendant(_) | Kinship::Ancestor | Kinship::Sibling) => true,
                None => false,
            })
            .collect();
        for node in nodes {
            self.send_presence_to(now, node);
        }
    }

    /// Does this peer of the own branch say that it leads a primary component, which is not the one here?
    fn leads_beside(&self, node: NodeId) -> bool {
        let leads = |p: &Presence| p.primary && p.sequencer == Some(node);
        self.peers.get(&node).and_then(|p| p.told()).is_some_and(leads)
            && self.sequencer() != Some(node)
            && self.own.tail().view.get(node).is_none()
    }

    pub(crate) fn on_presence(&mut self, now: Timestamp, from: NodeId, presence: Presence) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let branch = presence.lineage.branch(presence.history);
        let log = Some(presence.end()).filter(|_| !presence.primary);
        let before = peer.presence.replace((now, presence)).map(|(_, p)| p.lineage.branch(p.history));
        if !self.running() {
            return;
        }
        let kinship = self.kinship_of(from);
        if kinship == Some(Kinship::Same) {
            if let Some(last) = log {
                self.hear_of_log(now, from, last);
            }
        }
        if before != Some(branch) {
            if kinship != Some(Kinship::Same) {
                // All its acknowledgements are of another log.
                self.era.forget_ack_of(from);
                // It may have acknowledged the fork that it lacks now: then it is told so.
                if kinship != Some(Kinship::Ancestor) {
                    self.suspicion.forget_peer(from);
                }
                if let Some(s) = self.role.leading_mut() {
                    s.progress.remove(&from);
                }
            }
            self.track(now, from);
        }
        self.meet(now, from);
    }

    /// A peer of another branch that is in a primary component, as this member is: one of the two has to go.
    fn meet(&mut self, now: Timestamp, from: NodeId) {
        self.meet_double(now, from);
        let Some(theirs) = self.peers.get(&from).and_then(|p| p.told()) else { return };
        let other = !matches!(self.kinship_of(from), Some(Kinship::Same) | None);
        if !other || !theirs.primary {
            return;
        }
        let lesser = self.own.tail().lineage.precedence(&theirs.lineage) == std::cmp::Ordering::Less;
        let theirs = theirs.lineage.branch(theirs.history);
        if !self.may_overrule(now, from) {
            return;
        }
        if lesser {
            self.hear_of_rival(now);
        }
        if !self.goes_on(now) {
            return;
        }
        if lesser {
            self.log(
                true,
                "another primary component of this cluster runs, separated from this one by a forced change (pc.bootstrap, \
                 pc.ignore_sb, pc.ignore_quorum or a bootstrap). It goes on; this node leaves. Commits on this side since then \
                 are not part of it: save them from here before you restart this node, which then gets a full copy"
                    .into(),
            );
            self.give_way(now, Rival::Branch);
        } else if self.told.met != theirs {
            self.told.met = theirs;
            self.log(
                true,
                "another primary component of this cluster runs, separated from this one by a forced change. This one goes on; \
                 the nodes of the other leave and get a full copy when they are restarted"
                    .into(),
            );
        }
    }

    /// A primary component of the own branch, with another sequencer, while this member goes on alone: it was started with an old disk,
    /// which names nobody else any more, or nobody yet. Another that leads may be as lonely, and the one of the old disk: the longer log goes on.
    fn meet_double(&mut self, now: Timestamp, from: NodeId) {
        let me = self.me();
        let Some(theirs) = self.peers.get(&from).and_then(|p| p.told()) else { return };
        let leads = theirs.sequencer.is_some_and(|s| s != me) && theirs.primary;
        if !leads || self.kinship_of(from) != Some(Kinship::Same) || !self.is_alone() {
            return;
        }
        // It was cut off, or stood still, when the others left it behind: it follows another one in a term before this one, with a log that is
        // a part of the own. Or it has only just heard of that term's sequencer, whose entries are here: what it still has of a term before goes
        // when they come. An old copy that went on alone leads, and says so itself.
        let term_at = |index| self.own.store().term_at(index);
        let is_part = term_at(theirs.last_index) == Some(theirs.last_term);
        let newest_of_then = || self.own.last_up_to(theirs.term).and_then(term_at);
        let becomes_part = || theirs.last_term < theirs.term && newest_of_then() == Some(theirs.term);
        let outrun =
            theirs.sequencer != Some(from) && theirs.term < self.own.tail().term && (is_part || becomes_part());
        if outrun {
            return;
        }
        let longer = theirs.sequencer != Some(from) || (theirs.last_index, from) > (self.own.tail().index, me);
        if self.standing().is_doubled() {
            self.hear_of_rival(now);
        }
        if !self.leads() || !self.goes_on(now) {
            return;
        }
        if !longer {
            let what = "orders in this cluster, too, as an old copy of its data directory was put back: this node goes on, as its write-set log is \
                        the longer one. Stop that one, save its commits since then, remove its write-set log and grastate.dat, and start it again";
            return self.complain(now, from, what);
        }
        if !self.may_overrule(now, from) {
            return;
        }
        let name = self.names_of(&[from]);
        let text = format!(
            "{name} is in a primary component of this cluster, while this node went on alone: an old copy of the data directory was put \
             back. That component goes on; this node leaves. Commits here since then are not part of it, and are replaced by a \
             full copy"
        );
        self.log(true, text);
        self.give_way(now, Rival::Double);
    }

    fn give_way(&mut self, now: Timestamp, rival: Rival) {
        self.become_non_primary(vec![self.own_member()]);
        self.become_yielding(now, rival);
    }

    pub(crate) fn stop_yielding(&mut self, now: Timestamp) {
        let timeouts = &self.cfg.timeouts;
        let Standing::GivesWay { rival, heard } = self.standing() else { return };
        let patience = match rival {
            // It says where it stands every 100 ms. A lie of one that is gone keeps nobody here for longer.
            Rival::Branch => timeouts.suspect.max(timeouts.inactive / 3),
            Rival::Double => timeouts.inactive,
        };
        if now.since(*heard) <= patience {
            return;
        }
        self.log(
            true,
            "the primary component that this node gave way to is not heard of any more: this node goes on with its own branch".into(),
        );
        self.become_keeping();
        self.become_follower(now, None);
    }

    // --- force ----------------------------------------------------------------------------------------------------

    /// `pc.ignore_sb`, `pc.ignore_quorum`: go on with what is left (rule 13).
    pub(crate) fn maybe_force(&mut self, now: Timestamp) -> bool {
        if now.since(self.good_at) <= self.cfg.timeouts.suspect
            || self.arbitrates()
            || !self.may_stand()
            // Only voters compare their logs below.
            || !self.own.tail().voters.contains(self.me())
            || !self.is_whole()
            || self.counts_somebody_gone(now)
            || self.serves_nobody(now).is_some()
            || self.data_of_a_running_server_beyond_its_log().is_some()
            // A branch behind this log would give them up.
            || self.data_ahead(now).is_some_and(|ahead| ahead.node != self.me())
        {
            return false;
        }
        let me = self.me();
        let voters = &self.own.tail().voters;
        let alive: Vec<Voter> = voters
            .voters
            .iter()
            .filter(|v| {
                let unheard = self.peers.get(&v.node).is_some_and(|p| p.presence.is_none());
                let same = || unheard || self.kinship_of(v.node) == Some(Kinship::Same);
                v.node == me || self.heard_recently(now, v.node) && same()
            })
            .copied()
            .collect();
        let weight: u32 = alive.iter().map(|v| u32::from(v.weight.0)).sum();
        let half = 2 * weight == voters.total();
        let text = if half && self.cfg.ignore_sb {
            "Ignoring possible split-brain (allowed by configuration) from view:"
        } else if self.cfg.ignore_quorum && 2 * weight <= voters.total() {
            "Ignoring lack of quorum"
        } else {
            return false;
        };
        // The best log goes on, and only one of the members may do it (rule 1).
        let mine = (self.own.tail().term, self.own.tail().index, std::cmp::Reverse(me));
        for v in alive.iter().filter(|v| v.node != me) {
            let log = self
                .peers
                .get(&v.node)
                .and_then(|p| p.presence.as_ref())
                .filter(|(at, _)| now.since(*at) < CHECK_EVERY * 10);
            match log {
                Some((_, p)) if (p.last_term, p.last_index, std::cmp::Reverse(v.node)) < mine => {}
                // Better than this one, or not known yet.
                Some(_) | None => return false,
            }
        }
        self.log(true, text.into());
        self.force(now, me);
        true
    }

    /// Does the word of somebody count who is not heard any more, or a word from before the majority was lost? Log and data of that one need not be
    /// here. Such a word does not count for long.
    fn counts_somebody_gone(&self, now: Timestamp) -> bool {
        self.peers.iter().any(|(node, peer)| {
            let still = peer.told_since(self.good_at, now).is_some() && self.heard_recently(now, *node);
            peer.told_lately(now).is_some() && !still
        })
    }

    /// `pc.bootstrap`: make the reachable non-primary members primary (fork record). No effect when primary.
    pub fn force_primary(&mut self, now: Timestamp) {
        self.input(|group| group.on_force(now, None));
    }

    /// `from`: the member that passes a person's word on.
    pub(crate) fn on_force(&mut self, now: Timestamp, from: Option<NodeId>) {
        if !matches!(self.phase(), Phase::NonPrimary | Phase::Joining) {
            return;
        }
        if let Some(why) = self.cannot_be_forced() {
            // A peer says it as often as it likes.
            let left_out = from.map_or(Some(String::new()), |from| self.room_for_a_line(now, from));
            if let Some(left_out) = left_out {
                self.log(true, format!("not made primary: {why}{left_out}"));
            }
            return;
        }
        self.note_declined(now, from);
        // A log that goes on from nobody's data serves nobody, however long it is (rule 10).
        let (base, reach) = (self.own.store().base(), self.reach_of_data(now));
        let goes_on = reach.is_none_or(|reach| base.seqno <= reach && self.goes_on_from(now, base));
        let (useful, reach) = (self.arbitrates() || goes_on, reach.unwrap_or(Seqno(u64::MAX)));
        let mine = if useful { (0, self.own.tail().term, self.own.tail().index) } else { Default::default() };
        // A log that ends before the data here would give the rest of these up.
        let held = self.data_beyond_own_log();
        let mut best: Option<((usize, Term, LogIndex), NodeId)> = None;
        let mut alive = Vec::new();
        for (node, peer) in &self.peers {
            let Some(p) = peer.told_lately(now).filter(|p| !p.primary) else { continue };
            // A branch that grew from this one was forced later, and knows more of what was meant to last.
            let forks = match self.kinship_of(*node) {
                Some(Kinship::Same | Kinship::Descendant(_)) if self.data.is_declined(p) => continue,
                Some(Kinship::Same) if held.is_some_and(|held| p.seqno < held) => continue,
                Some(Kinship::Same) if p.base > reach || !self.is_of_use(now, *node) => continue,
                Some(Kinship::Same) if !useful && p.base >= base.seqno => continue,
                Some(Kinship::Same) => 0,
                Some(Kinship::Descendant(fork)) if self.is_bare_branch(now, p, &fork) => continue,
                // It would refuse, and nothing would come of the command. An arbitrator never does.
                Some(Kinship::Descendant(_))
                    if !peer.member.kind.is_arbitrator() && self.serves_nobody_there(now, p) =>
                {
                    continue;
                }
                Some(Kinship::Descendant(_)) => p.lineage.forks().len(),
                Some(Kinship::Ancestor | Kinship::Sibling) | None => continue,
            };
            let log = (forks, p.last_term, p.last_index);
            alive.push(Voter { node: *node, weight: peer.member.weight });
            // The member that passed the word on has judged by other neighbours, perhaps: back to it, the word would go round for ever.
            if log > mine && from != Some(*node) && best.is_none_or(|(best, _)| log > best) {
                best = Some((log, *node));
            }
        }
        // The data of whoever passed the word on may be the only ones, and nothing here goes on from them. Or it is on the branch from which the one
        // here grew, and knows others there.
        let gets_back = |n: NodeId| match self.kinship_of(n) {
            Some(Kinship::Same) => self.data_of(n).is_some(),
            Some(Kinship::Ancestor) => true,
            Some(Kinship::Descendant(_) | Kinship::Sibling) | None => false,
        };
        let owner = from.filter(|n| !useful && gets_back(*n));
        match best.map(|(_, node)| node).or(owner) {
            Some(node) => {
                self.data.passed_on = Some((node, now));
                self.send(node, Message::Force);
            }
            None if self.arbitrates() => match self.someone_to_bring_up(&alive) {
                Some(server) => self.force(now, server),
                None => {
                    let text = "not made primary: this arbitrator has the newest log, but what the servers lack of it is dropped; stop \
                                the arbitrator to go on without it"
                        .into();
                    self.log(true, text);
                }
            },
            None => {
                self.tell_what_is_given_up(now);
                let me = self.me();
                self.force(now, me);
            }
        }
    }

    /// Was a person's word passed on to this peer last?
    pub(crate) fn has_passed_word_to(&self, node: NodeId) -> bool {
        self.data.passed_on.is_some_and(|(to, _)| to == node)
    }

    /// May this peer give a person's word back, as it was passed on to it just now?
    pub(crate) fn may_decline(&self, now: Timestamp, from: NodeId) -> bool {
        self.data.passed_on.is_some_and(|(to, at)| to == from && now.since(at) <= self.cfg.timeouts.suspect)
    }

    /// A person's word is passed on to a later branch, or within the own one to a better log. So one from a later branch gives it back,
    /// as a member without data does to one with data: nothing there goes on from these, nor behind it.
    fn note_declined(&mut self, now: Timestamp, from: Option<NodeId>) {
        let lately = self.cfg.timeouts.suspect;
        self.data.declined.retain(|_, d| from.is_some() && now.since(d.at) <= lately);
        let Some(from) = from else { return };
        let is_later = matches!(self.kinship_of(from), Some(Kinship::Descendant(_)));
        if is_later || self.holds().is_some() && self.data_of(from).is_none() {
            let Some(log) = self.peers.get(&from).and_then(|p| p.told()) else { return };
            self.data.declined.insert(from, Declined { lineage: log.lineage.clone(), base: log.base, at: now });
        }
    }

    /// Why a person cannot make the log and the data of this member the ones that are gone on with.
    fn cannot_be_forced(&self) -> Option<&'static str> {
        match self.standing() {
            Standing::Keeps | Standing::GivesWay { .. } => self.own.tail().history.is_nil().then_some(
                "this node has no write-set log of any cluster. Do it on a node that has been in one, or bootstrap this node as the first of a \
                 new cluster",
            ),
            Standing::OutOfReach => Some(
                "the write-set log of this node does not go on from its own data, which need a copy. Do it on a node whose log does, or \
                 bootstrap this node to go on from its data alone",
            ),
            Standing::Diverged { .. } | Standing::Discarded { .. } => Some(
                "the data of this node contradict what the cluster has committed, and wait to be replaced by a full copy. Do it on another \
                 node",
            ),
        }
    }

    /// Begins a branch of its own, with this member as the only voter: nobody else has it yet, so nobody else can have promised anything
    /// in it. The linked ones follow and get their votes back as any joiner does. An arbitrator does it for a server.
    fn force(&mut self, now: Timestamp, voter: NodeId) {
        if self.is_forked_out() {
            self.log(true, "not forced: this history has been forced too often; bootstrap a new one".into());
            return;
        }
        if let Some(why) = self.serves_nobody(now) {
            let text = format!(
                "not made primary: {why}, so nobody could use the write-set log of this node. Do it on a node \
                 with data, or bootstrap this one"
            );
            return self.log(true, text);
        }
        if let Some(held) = self.data_given_up_with(voter) {
            let name = if voter == self.me() { "this node".into() } else { self.names_of(&[voter]) };
            let text = format!(
                "not made primary: the data of {name} reach seqno {held}, but the write-set log of this node only {}. The commits between would be \
                 lost. Stop all nodes that are left and bootstrap {name} (safe_to_bootstrap: 1 in grastate.dat, galera_new_cluster), or do this on \
                 a node whose log reaches that",
                self.own.tail().seqno
            );
            return self.log(true, text);
        }
        self.become_keeping();
        if voter == self.me() && self.force_from_own_data(now) {
            return;
        }
        let id = self.draw_fork();
        self.log(
            false,
            format!(
                "primary component forced by this node alone: branch {id} begins after seqno {}",
                self.own.tail().seqno
            ),
        );
        let voters = self.alone(voter, id);
        self.take_over(now, Some(voters));
    }

    /// This member, or a linked one, as the only voter.
    pub(crate) fn alone(&self, voter: NodeId, fork: Uuid) -> VoterSet {
        let weight = self.peers.get(&voter).map_or(self.wishes.weight(), |p| p.member.weight);
        // Somebody must be able to decide.
        VoterSet { voters: vec![Voter { node: voter, weight: weight.max(Weight(1)) }], fork }
    }
}
