//! Data that reach beyond every log (rule 18): all machines lost their power in mode `process`, and an engine had flushed more than
//! any write-set log; or a disk had lied.
//!
//! Everything that data hold was committed, so nobody goes on with a log that ends below the data of a present member. A log cannot be made
//! from data, but a history can go on behind them. When all voters are here and have given their promises to the one with the best
//! log, everything that is left is on the table, and nobody else can be elected meanwhile. Then the member whose data reach
//! furthest begins a branch at its position: its log is empty there, it alone votes, and the others follow as after any fork. Those
//! whose data end at the very same position go on with them, the rest take a full copy. (docs/decisions/0008)

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trireme_types::{Base, Fork, Kinship, Lineage, LogIndex, Member, NodeId, Seqno, Term, Timestamp, Uuid, View};

use crate::group::Group;
use crate::io::{Event, Output};
use crate::message::Presence;
use crate::mutant::Mutant;
use crate::replication::Progress;
use crate::role::Sequencer;
use crate::standing::Offer;
use crate::{Content, JoinState, LogStore, Phase};

/// A present member whose data reach beyond the own log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Ahead {
    pub seqno: Seqno,
    /// A log of this branch lies beside the data. Without one nothing says on which branch of the history they are.
    pub usable: bool,
    pub node: NodeId,
}

/// A place in a history.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: LogIndex,
    /// Of the last entry up to there that has one.
    seqno: Seqno,
}

impl Place {
    /// The end of what a log that ends here has in common with the branch that begins at `fork`.
    fn before(self, fork: &Fork) -> Place {
        Place { index: self.index.min(fork.index.prev()), seqno: self.seqno.min(fork.seqno) }
    }
}

/// How far a server gets by itself on a branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Up to here it can take a state.
    data: Seqno,
    /// The end of its log, from which it can go on.
    log: Place,
}

impl Reach {
    pub fn end(self) -> Seqno {
        self.data.max(self.log.seqno)
    }

    /// Does a log that begins at `base` go on from there?
    fn meets(self, base: &Base) -> bool {
        base.seqno <= self.data || base.index <= self.log.index
    }
}

/// How long a log waits for the engine. One that does not tell is given a minute, and what was read back at a start another one. Then it is stuck:
/// an applier may wait for a vote, and the vote for this member. One of which nothing is known at all may not be open: no applier waits, and that its
/// data are there is a claim.
const ENGINE_PATIENCE: Duration = Duration::from_secs(150);

/// A log that does not take the place of the own one yet, because the engine does not have on its disk what only the own one can replay.
#[derive(Debug)]
pub(crate) struct Awaited {
    /// The engine has to have so much.
    seqno: Seqno,
    since: Timestamp,
    /// The state with which the log begins, if a sequencer has offered one.
    offer: Option<Offer>,
    /// It does not get there before this member goes on.
    stuck: bool,
    /// An operator has been told that this has no end.
    told: bool,
}

/// The data of the server that this member belongs to, and whether logs go on from them.
#[derive(Default)]
pub(crate) struct ServerData {
    /// Where they were at the start, whether or not the log vouches for them. Set by `note_data` and `look_for_component`; taken away by
    /// `replace_log`, where the new log does not go on from them, and by `on_data_discarded`.
    pub position: Option<(Uuid, Seqno)>,
    /// As it was told when it began to look for a component, until it is in one. Without a position: no log vouches for the data, or
    /// they are void. Set by `look_for_component` and `on_data_discarded`; taken away by `become_primary`.
    pub brings: Option<JoinState>,
    /// There are data, and the log goes on where they end. Set by `begin_history`, `look_for_component`, `data_arrived`, `replace_log` and
    /// `begin_from_data`; taken away by `on_data_discarded`.
    pub stocked: bool,
    /// A statement was cut off in the data, which end here. The server may yet go on with them (rule 26). Set by
    /// `note_half_done`; taken away by `replace_log`, where the new log begins behind them, and by `on_data_discarded`.
    pub half_done: Option<Seqno>,
    /// Up to where the server's engine has them on its disk (rule 32). `None`: all of them, as the server found them there.
    /// Set by `on_engine_disk`; taken away by `on_data_discarded`.
    pub on_disk: Option<Seqno>,
    /// A log that is to take the place of the own one waits for that. Set by `may_begin_log_at` and `keep_offer`; ended by `on_engine_disk`,
    /// `replace_log` and `on_data_discarded`.
    pub awaited: Option<Awaited>,
    /// They hold everything up to here, whatever `commit` knows of it. Delivery may have passed that. Zero: unknown.
    /// Set by `with_applied`, and by `on_snapshot` when a log is replaced; zero again by `on_data_discarded`.
    pub applied: Seqno,
    /// Entries up to this term may be among them: that of the last one that was delivered before the log was replaced. Zero: unknown. Set by
    /// `on_snapshot`, as `applied` is; zero again by `on_data_discarded`.
    pub applied_term: Term,
    /// Linked servers of whose data it turned out that the log here does not go on from them. Filled by `spare_data_of`;
    /// a new link takes one out (`on_linked`).
    pub out_of_reach: BTreeSet<NodeId>,
    /// Members that gave a person's word back, since nothing here gets to where their logs begin. Filled by `note_declined`; a person's own word
    /// here empties it, and each is forgotten after `Timeouts::suspect`.
    pub declined: BTreeMap<NodeId, Declined>,
    /// The member that a person's word was passed on to last, and when. It may give that back, whoever it is. Set by `on_force`.
    pub passed_on: Option<(NodeId, Timestamp)>,
}

/// A log with this lineage that begins here, or behind it, is of no use to the data here.
#[derive(Debug)]
pub(crate) struct Declined {
    pub lineage: Lineage,
    pub base: Seqno,
    pub at: Timestamp,
}

impl ServerData {
    pub fn is_declined(&self, log: &Presence) -> bool {
        self.declined.values().any(|d| d.lineage == log.lineage && log.base >= d.base)
    }
}

impl ServerData {
    pub fn with_applied(applied: Seqno) -> ServerData {
        ServerData { applied, ..ServerData::default() }
    }

    /// The position that a log vouches for, while this member is not in a component.
    pub fn brought(&self) -> Option<(Uuid, Seqno)> {
        self.brings.as_ref().and_then(|state| state.position)
    }

    /// Has the engine everything up to here on its disk?
    fn is_on_disk(&self, seqno: Seqno) -> bool {
        self.on_disk.is_none_or(|upto| seqno <= upto)
    }

    /// The state that waits for that, with which the next log begins.
    fn offer(&self) -> Option<&Offer> {
        self.awaited.as_ref().and_then(|awaited| awaited.offer.as_ref())
    }

    /// Are the data where they were at the start, and does a log vouch for that?
    pub fn is_brought(&self) -> bool {
        self.brings.as_ref().is_some_and(|state| state.position == self.position)
    }
}

impl<S: LogStore> Group<S> {
    /// Whose data reach furthest beyond the own log? Something that was committed is not in it then.
    pub(crate) fn data_ahead(&self, now: Timestamp) -> Option<Ahead> {
        self.furthest_data(now, self.own.tail().seqno)
    }

    /// Whose data reach furthest beyond `end`?
    pub(crate) fn furthest_data(&self, now: Timestamp, end: Seqno) -> Option<Ahead> {
        if self.is(Mutant::DataIgnored) {
            return None;
        }
        let ahead = |node: NodeId, data: Option<(Uuid, Seqno)>, usable: bool| {
            data.filter(|(history, seqno)| *history == self.own.tail().history && *seqno > end)
                .map(|(_, seqno)| Ahead { seqno, usable, node })
        };
        let vouched = self.phase() == Phase::Joining && self.data.is_brought();
        let own = self.data.position.or(self.lost_half_done().map(|seqno| (self.own.tail().history, seqno)));
        let me = ahead(self.me(), own, vouched && self.data.position.is_some());
        let others = self.peers.iter().filter_map(|(node, peer)| {
            let p = peer.told_lately(now)?;
            let logless = p.history.is_nil();
            let same = self.kinship_of(*node) == Some(Kinship::Same);
            ahead(*node, p.data.filter(|_| logless || same), same)
        });
        others.chain(me).max()
    }

    /// The end of data with a statement cut off in them, if the log lost that end. Nobody can repeat the statement, and without it they cannot be
    /// gone on with. But they hold commits that may be nowhere else, so a person has to decide (rules 18, 26).
    fn lost_half_done(&self) -> Option<Seqno> {
        self.data.half_done.filter(|end| *end > self.own.tail().seqno && self.phase() == Phase::Joining)
    }

    /// Would a group around the log of this peer give up data that only [`Self::lost_half_done`] tells of?
    pub(crate) fn would_lose_half_done(&self, node: NodeId) -> bool {
        let theirs = || self.peers.get(&node).and_then(|p| Some(p.told()?.seqno));
        self.lost_half_done().is_some_and(|end| theirs().is_none_or(|seqno| seqno < end))
            && !self.is(Mutant::DataIgnored)
    }

    /// A person decides for this member, whose log lost its end, but whose own data do not: the data go on, not the log (rule 10). `false`: this is
    /// not such a member.
    pub(crate) fn force_from_own_data(&mut self, now: Timestamp) -> bool {
        let me = self.me();
        let data = self.data.position.filter(|(_, seqno)| *seqno > self.own.tail().seqno);
        let position = self.data.brought();
        let Some((history, seqno)) = data.filter(|d| Some(*d) == position) else { return false };
        if self.phase() != Phase::Joining || history != self.own.tail().history || self.is(Mutant::DataIgnored) {
            return false;
        }
        if !self.may_begin_log_at(now, seqno) {
            // The log alone would be gone on with without these data.
            let text = "not made primary yet: the write-set log lacks commits that are in the data of this node, and the storage engine does \
                        not have all of these on disk. Set pc.bootstrap=1 again in some seconds";
            self.log(true, text.into());
            return true;
        }
        let index = self.beyond_all_logs();
        self.begin_from_data(now, index, seqno);
        self.sequencer() == Some(me)
    }

    /// The end of the data, if the own log does not reach that.
    pub(crate) fn data_beyond_own_log(&self) -> Option<Seqno> {
        let brought =
            self.data.brought().filter(|(history, _)| *history == self.own.tail().history).map(|(_, seqno)| seqno);
        self.holds().max(brought).filter(|held| *held > self.own.tail().seqno && !self.is(Mutant::DataIgnored))
    }

    /// The same of a server that runs: its log was replaced.
    pub(crate) fn data_of_a_running_server_beyond_its_log(&self) -> Option<Seqno> {
        let runs = self.phase() == Phase::NonPrimary && self.data.brings.is_none();
        self.data_beyond_own_log().filter(|_| runs)
    }

    /// The end of the data of `voter`, if a branch that begins behind the own log with this one as its only voter gave some of them up. A server gives its
    /// data to a log only when it starts (`force_from_own_data`).
    pub(crate) fn data_given_up_with(&self, voter: NodeId) -> Option<Seqno> {
        if voter == self.me() {
            return self.data_of_a_running_server_beyond_its_log();
        }
        let same = self.kinship_of(voter) == Some(Kinship::Same);
        self.data_of(voter).filter(|held| same && *held > self.own.tail().seqno)
    }

    /// No index of any log that is here: no entry of theirs is taken for one of a branch that begins there.
    fn beyond_all_logs(&self) -> LogIndex {
        let logs = self.peers.values().filter_map(|p| Some(p.told()?.last_index));
        logs.chain([self.own.tail().index]).max().unwrap_or_default().next()
    }

    /// Would a group around this log have no data to begin with, nor get any by it (rule 10)? Says why.
    pub(crate) fn serves_nobody(&self, now: Timestamp) -> Option<String> {
        if self.is(Mutant::DataIgnored) || self.arbitrates() {
            return None;
        }
        let base = self.own.store().base();
        match self.reach_of_data(now) {
            Some(reach) if reach < base.seqno || !self.goes_on_from(now, base) => {
                Some(format!("the data here reach seqno {reach}, and its log goes on behind {}", base.seqno))
            }
            Some(_) => None,
            // Data for which nobody vouches are the server's own affair: it may know how to go on (a statement that was cut off everywhere).
            None => self.data.position.is_none().then(|| "no node here has data".into()),
        }
    }

    /// Do data, or a log beside data, meet `base`, where the own log begins? Seqnos alone do not say so where both are the same: entries without
    /// one may lie between. Logs that begin earlier and end later or there are taken for such that go on from the data. Not where it was
    /// tried, and turned out otherwise: such a log may hold other entries than were ordered.
    pub(crate) fn goes_on_from(&self, now: Timestamp, base: &Base) -> bool {
        let meets = |reach: Reach| reach.meets(base) || base.seqno < reach.log.seqno;
        let logs = self.servers_here(now);
        self.holds().is_some()
            || logs.iter().any(|(_, p)| p.base < base.seqno && (p.seqno > base.seqno || p.last_index >= base.index))
            || self.peers.keys().any(|node| {
                let here = self.peers.get(node).and_then(|p| p.told_lately(now)).is_some_and(|p| !p.primary);
                let tried = self.data.out_of_reach.contains(node);
                here && !tried && self.reach_on_this_branch(*node).is_some_and(meets)
            })
    }

    /// Does it take somebody who is not here before anything can be decided about data that are ahead of this log?
    pub(crate) fn waits_for_data(&mut self, now: Timestamp) -> bool {
        let Some(ahead) = self.data_ahead(now) else {
            self.told.ahead = None;
            return self.waits_for_a_copy(now);
        };
        self.told.useless = None;
        if ahead.usable && self.all_voters(|n| self.is_here(n)) {
            return false;
        }
        let told = (ahead.node, ahead.seqno);
        if self.told.ahead.replace(told) != Some(told) {
            let own_data = ahead.node == self.me();
            let name = self.peers.get(&ahead.node).map_or("this node".into(), |p| p.member.name.clone());
            let (seqno, own) = (ahead.seqno, self.own.tail().seqno);
            let when = if ahead.usable {
                "When all voters are back, the cluster goes on from the data that reach furthest"
            } else {
                "No write-set log says where these data belong, so a person has to decide"
            };
            let how = if own_data && ahead.usable {
                "To go on with these data at once, set pc.bootstrap=1 here".into()
            } else {
                format!(
                    "To go on with the data of {name} at once, bootstrap it; to go on without those commits, set pc.bootstrap=1 here"
                )
            };
            self.log(
                true,
                format!(
                    "not forming the cluster again: the data of {name} reach seqno {seqno}, but the write-set log here ends at {own}: \
                     commits are missing from it (power loss in mode process, a disk that lies, a log that was removed). {when}. \
                     Start the nodes that may have them. {how}"
                ),
            );
        }
        true
    }

    /// Data are here, and this log does not go on from them, nor from any log that does: a group around it would have to throw them
    /// away, and nobody would have any (rule 10). It takes a member with more.
    fn waits_for_a_copy(&mut self, now: Timestamp) -> bool {
        let base = self.own.store().base().seqno;
        let reach =
            self.reach_of_data(now).filter(|r| *r < base && !self.arbitrates() && !self.is(Mutant::DataIgnored));
        let at_stake = self.data_at_stake().filter(|(node, _)| self.heirs_for(now, *node).is_empty());
        let Some(short) = reach.or(at_stake.map(|(_, seqno)| seqno)) else {
            self.told.useless = None;
            return false;
        };
        // A branch that was just begun from them leads here.
        let leads = |(node, _)| matches!(self.kinship_of(node), Some(Kinship::Descendant(_)));
        if reach.is_none() && at_stake.is_some_and(leads) || self.told.useless.replace(short) == Some(short) {
            return true;
        }
        let text = match at_stake.filter(|_| reach.is_none()) {
            None => format!(
                "not forming the cluster again: the write-set log here goes on behind seqno {base}, and no data that are here reach \
                 further than {short}. Start a node whose data do. To go on from {short} without what came behind it, set \
                 pc.bootstrap=1 on a node with data"
            ),
            Some((node, _)) => format!(
                "not forming the cluster again: of the nodes here only {} has data, up to seqno {short}, and the write-set log here does \
                 not go on from them. Start a node with data that it goes on from. To go on from those without what came behind them, \
                 set pc.bootstrap=1 on that node",
                self.names_of(&[node])
            ),
        };
        self.log(true, text);
        true
    }

    /// A linked server with data of this history whose data a group around this log could only throw away: they are beyond what the log
    /// goes on from, or on another branch. `None` also where this member or somebody whom the log can bring up has data, too.
    fn data_at_stake(&self) -> Option<(NodeId, Seqno)> {
        if self.has_data() || self.arbitrates() || self.is(Mutant::DataIgnored) {
            return None;
        }
        let held = self.peers.keys().filter_map(|node| Some((self.is_reached(*node), self.data_of(*node)?, *node)));
        let (reached, seqno, node) = held.max()?;
        (!reached).then_some((node, seqno))
    }

    /// Has this server data of the own history, be it such for which no log vouches? It may know how to go on from these.
    fn has_data(&self) -> bool {
        let base = self.own.store().base();
        let found = self.data.position.is_some_and(|(history, end)| history == base.history && end >= base.seqno);
        self.data.stocked || found || self.data.half_done.is_some()
    }

    /// Has nobody here told of data? Those that come then bring ends that any entry of the log here may be needed for.
    pub(crate) fn nobody_has_data(&self) -> bool {
        !self.has_data() && !self.is(Mutant::DataIgnored) && self.peers.keys().all(|node| self.data_of(*node).is_none())
    }

    /// Up to where this linked server has data of the own history, as it told.
    pub(crate) fn data_of(&self, node: NodeId) -> Option<Seqno> {
        let peer = self.peers.get(&node)?;
        let p = peer.told().filter(|p| p.history == self.own.tail().history && !p.history.is_nil())?;
        p.holds.filter(|_| !peer.member.kind.is_arbitrator())
    }

    /// Does the log here go on where the data of this server, or its own log behind them, end?
    fn is_reached(&self, node: NodeId) -> bool {
        !self.data.out_of_reach.contains(&node)
            && self.reach_on_this_branch(node).is_some_and(|reach| reach.meets(self.own.store().base()))
    }

    /// How far this linked server gets on the branch here by its own data and its own log behind them. It may not have heard yet of the fork
    /// at which the branch began, if its data let it follow.
    fn reach_on_this_branch(&self, node: NodeId) -> Option<Reach> {
        self.reach_on(node, &self.own.tail().lineage)
    }

    /// Up to where this linked server has data that can go on on the branch here, as it told.
    pub(crate) fn data_on_this_branch(&self, node: NodeId) -> Option<Seqno> {
        self.reach_on_this_branch(node).map(|reach| reach.data)
    }

    /// The same on the branch with this lineage.
    pub(crate) fn reach_on(&self, node: NodeId, lineage: &Lineage) -> Option<Reach> {
        let theirs = self.peers.get(&node)?.told()?;
        let data = self.data_of(node)?;
        let log = Place { index: theirs.last_index, seqno: theirs.seqno };
        match theirs.lineage.kinship(lineage) {
            Kinship::Same => Some(Reach { data, log }),
            Kinship::Descendant(fork) if data <= fork.seqno => Some(Reach { data, log: log.before(&fork) }),
            Kinship::Descendant(_) | Kinship::Ancestor | Kinship::Sibling => None,
        }
    }

    /// Has this linked server the only data, on a branch that it would have to give up together with them?
    pub(crate) fn only_data_elsewhere(&self, node: NodeId) -> Option<Seqno> {
        self.only_data(node).filter(|_| self.reach_on_this_branch(node).is_none())
    }

    /// Linked servers whose logs go on from the data of this one, or from its own log behind them, so that they could order and bring it
    /// up. Some may have to follow the branch here first. Those that begin no earlier than the log here are of no more use than that.
    fn heirs_for(&self, now: Timestamp, node: NodeId) -> Vec<NodeId> {
        let Some(reach) = self.reach_on_this_branch(node) else { return Vec::new() };
        let own = self.own.store().base().seqno;
        let goes_on = |n: NodeId| {
            let may_order = |m: &Member| m.weight.0 > 0 && !m.kind.is_arbitrator();
            // A log that ends with the very seqno at which theirs begins need not meet that: not every entry has a seqno.
            let reaches = |base: Seqno| (base <= reach.data || base < reach.log.seqno) && base < own;
            self.peers.get(&n).is_some_and(|p| may_order(&p.member) && p.told().is_some_and(|p| reaches(p.base)))
        };
        let heirs = self.peers.keys().copied().filter(|n| *n != node && goes_on(*n));
        heirs.filter(|n| self.kinship_of(*n) == Some(Kinship::Same) || self.may_follow_by_log(now, *n)).collect()
    }

    /// Has this linked server not heard yet of the fork at which the branch here began, and does its log end where the one here goes on, with
    /// no data beyond the fork?
    fn may_follow_by_log(&self, now: Timestamp, node: NodeId) -> bool {
        let Some(theirs) = self.peers.get(&node).and_then(|p| p.told_lately(now)) else { return false };
        let Kinship::Descendant(fork) = theirs.lineage.kinship(&self.own.tail().lineage) else { return false };
        let meets = self.own.store().base().index <= theirs.last_index.min(fork.index.prev());
        theirs.history == self.own.tail().history && meets && theirs.holds.is_none_or(|data| data <= fork.seqno)
    }

    /// Up to where this linked server has data, if nobody in the group around this member has any that it can keep there.
    pub(crate) fn only_data(&self, node: NodeId) -> Option<Seqno> {
        let keeps = |n: NodeId| self.is_reached(n) || self.goes_on_by_log(n);
        let others = || self.peers.keys().any(|n| *n != node && self.data_of(*n).is_some() && keeps(*n));
        self.data_of(node).filter(|_| !self.has_data() && !self.is(Mutant::DataIgnored) && !others())
    }

    /// Is this peer in the view, and does its log go on from here already? It may have told long ago how far that reached.
    fn goes_on_by_log(&self, node: NodeId) -> bool {
        let base = self.own.store().base().index;
        let follows = |s: &Sequencer| {
            s.progress.get(&node).and_then(Progress::held).is_some_and(|held| held >= base && held > LogIndex::ZERO)
        };
        self.own.tail().view.get(node).is_some() && self.role.leading().is_none_or(follows)
    }

    /// Would this member give up the only data for the component of `sequencer`, in which nobody has any (rule 10)? `lineage`: that of the
    /// component. Somebody of whom it is not known counts as one without data: those here are kept. So does a server that is outside, too: it
    /// would give up its data for the same reason.
    pub(crate) fn keeps_only_data_from(&self, sequencer: NodeId, term: Term, lineage: &Lineage) -> bool {
        let own = self.data.stocked || self.data.brought().is_some();
        let is_inside = |node: NodeId| node == sequencer || self.follows(node, sequencer, term, lineage);
        let has_data = |node: NodeId| is_inside(node) && self.reach_on(node, lineage).is_some();
        own && !self.is(Mutant::DataIgnored) && !self.peers.keys().any(|node| has_data(*node))
    }

    /// Has this peer said that it is in the component of that sequencer, or holds entries of its term? The sequencer begins its term with one.
    fn follows(&self, node: NodeId, sequencer: NodeId, term: Term, lineage: &Lineage) -> bool {
        self.peers.get(&node).and_then(|p| p.told()).is_some_and(|theirs| {
            let same = || theirs.lineage.kinship(lineage) == Kinship::Same;
            theirs.primary && theirs.sequencer == Some(sequencer) || theirs.last_term == term && same()
        })
    }

    /// A state, or entries, of this peer's branch contradict the log here, and would cost the only data. They are kept; a line says why, now and
    /// then.
    pub(crate) fn keep_only_data(&mut self, now: Timestamp, from: NodeId) {
        let Some(left_out) = self.room_for_a_line(now, from) else { return };
        let text = format!(
            "the component of {} contradicts the write-set log here, but nobody in it has data: this node keeps its own, and stays \
             outside{left_out}",
            self.names_of(&[from])
        );
        self.log(true, text);
    }

    /// Sequencer: has every server of the view told whether it has data, and each that has, but for `node`, answered in this term? So it is
    /// known whether its log goes on from here.
    fn view_has_told(&self, node: NodeId) -> bool {
        let Some(s) = self.role.leading() else { return false };
        let told = |n: NodeId| n == self.me() || self.peers.get(&n).is_some_and(|p| p.told().is_some());
        let unheard = |n: NodeId| s.progress.get(&n).is_some_and(|p| !p.answered);
        let silent = |n: NodeId| n != node && self.data_of(n).is_some() && unheard(n);
        self.own.tail().view.members.iter().all(|m| (m.kind.is_arbitrator() || told(m.node)) && !silent(m.node))
    }

    /// Sequencer: does this joiner have the only data, and do they reach beyond the log here? Let in, it would have to give them up. The
    /// group ends, and is formed again from those data.
    pub(crate) fn is_behind_only_data(
        &mut self,
        now: Timestamp,
        node: NodeId,
        position: Option<(Uuid, Seqno)>,
    ) -> bool {
        let (history, end) = (self.own.tail().history, self.own.tail().seqno);
        let ahead = position.is_some_and(|(of, seqno)| of == history && seqno > end);
        if !ahead || self.kinship_of(node) != Some(Kinship::Same) || self.only_data(node).is_none() {
            return false;
        }
        let name = self.names_of(&[node]);
        self.log(
            true,
            format!("nobody in this component has data but {name}, whose data reach beyond its write-set logs, which end at {end}: it ends"),
        );
        self.become_follower(now, None);
        true
    }

    /// Sequencer: this server has the only data, up to `data`, and would lose them by what it needs to come in (rule 10). It gets
    /// nothing. A member with a log that goes on from those data orders instead; without such a log the group has nothing to offer to
    /// anybody, and ends.
    pub(crate) fn spare_data_of(&mut self, now: Timestamp, node: NodeId, data: Seqno) {
        let heirs = self.heirs_for(now, node);
        let name = self.names_of(&[node]);
        if heirs.is_empty() {
            if !self.view_has_told(node) {
                return;
            }
            self.log(
                true,
                format!(
                    "nobody in this component has data, and its write-set logs do not go on from those of {name}, which reach seqno {data}: \
                     it ends, since what it could offer would cost these data. Start a node with data, or with an older log. To go on from \
                     the data of {name} without what came behind them, set pc.bootstrap=1 there"
                ),
            );
            self.data.out_of_reach.insert(node);
            return self.become_follower(now, None);
        }
        let tail = self.own.tail().index;
        let votes = |n: &&NodeId| self.own.tail().voters.weight(**n) > 0;
        let Some(s) = self.role.leading() else { return };
        let complete = |n: &&NodeId| s.progress.get(*n).and_then(Progress::held) == Some(tail);
        let Some(heir) = heirs.iter().filter(votes).find(complete).copied() else { return };
        if self.call_heir(now, heir) {
            let text =
                format!("{} orders from here on: its log goes on from the data of {name}", self.names_of(&[heir]));
            self.log(false, text);
        }
    }

    /// All voters have promised this term to this member, whose log is the best of all: nobody else decides now.
    pub(crate) fn hand_to_data(&mut self, now: Timestamp, ahead: &Ahead) {
        let Ahead { node, seqno, .. } = *ahead;
        let (branch, term, own) = (self.own.tail().branch(), self.own.term(), self.own.tail().seqno);
        let index = self.beyond_all_logs();
        let name = self.names_of(&[node]);
        self.log(
            true,
            format!(
                "all voters are here, and no write-set log reaches beyond seqno {own}, but the data of {name} reach {seqno}: the \
                 cluster goes on from there. What no log and no data hold is gone"
            ),
        );
        self.become_follower(now, None);
        if node == self.me() {
            self.begin_from_data(now, index, seqno);
        } else {
            self.send(node, Content::BeginFromData { index, seqno }.in_term(branch, term));
            // Its engine may not have these data on disk yet. Then all this is done again, and again.
            self.candidacy.wait_until(now.after(self.cfg.timeouts.election * 4));
        }
    }

    pub(crate) fn on_begin_from_data(
        &mut self,
        now: Timestamp,
        from: NodeId,
        branch: Uuid,
        term: Term,
        index: LogIndex,
        seqno: Seqno,
    ) {
        if !self.is_own_branch(branch) || !self.may_obey(now, term) {
            return;
        }
        // As it was when this member gave its promise; or by whom the one that it gave it to has entrusted.
        if term > self.own.term() {
            self.adopt_term(now, term);
            self.own.promise_with_next(term, from);
        }
        if term == self.own.term() && self.own.voted_for() == from {
            self.begin_from_data(now, index, seqno);
        }
    }

    /// May a log that begins at `seqno` replace the own one, which can replay what the engine loses in a crash (rule 32)? If not, the engine
    /// is asked for.
    pub(crate) fn may_begin_log_at(&mut self, now: Timestamp, seqno: Seqno) -> bool {
        if self.data.is_on_disk(seqno) || self.is(Mutant::ReplayDropped) {
            return true;
        }
        if let Some(awaited) = &mut self.data.awaited {
            awaited.seqno = seqno;
            return !self.waits_for_engine(now);
        }
        self.data.awaited = Some(Awaited { seqno, since: now, offer: None, stuck: false, told: false });
        let text = format!(
            "the write-set log here is not replaced yet by one that begins at seqno {seqno}: the storage engine of this node does not have \
             so much on disk"
        );
        self.log(false, text);
        false
    }

    /// Is the engine still waited for? Without end where nothing is known of it and nobody else here has data that reach so far: should the engine
    /// turn out to have less than was claimed, only the own log can bring its data there.
    fn waits_for_engine(&mut self, now: Timestamp) -> bool {
        let Some(awaited) = &self.data.awaited else { return false };
        let seqno = awaited.seqno;
        if !awaited.stuck && now.since(awaited.since) <= ENGINE_PATIENCE {
            return true;
        }
        let known = self.data.on_disk.is_none_or(|upto| upto > Seqno::ZERO);
        // Those of a sequencer go with its log, and it does not tell again.
        let orders = self.sequencer();
        let reaches = |node| self.data_of(node).is_some_and(|data| data >= seqno || orders == Some(node));
        if known || self.peers.keys().any(|node| reaches(*node)) {
            return false;
        }
        let first = self.data.awaited.as_mut().is_some_and(|awaited| !std::mem::replace(&mut awaited.told, true));
        if first {
            let text = format!(
                "the write-set log here stays: nobody else here has data up to seqno {seqno}, and the storage engine of this node has not said \
                 whether it does. Start the server again, for its engine to be asked"
            );
            self.log(true, text);
        }
        true
    }

    /// The state that was not taken is taken as soon as the engine allows it.
    pub(crate) fn keep_offer(&mut self, offer: Offer) {
        if let Some(awaited) = &mut self.data.awaited {
            let app = offer.base.app.clone();
            awaited.offer = Some(offer);
            self.out.push_back(Output::Event(Event::EngineAwaited { app }));
        }
    }

    /// Does a state of this sequencer wait that lets the data go on? A later one may begin behind them.
    pub(crate) fn keeps_offer_of(&mut self, now: Timestamp, from: NodeId, term: Term) -> bool {
        self.data.offer().is_some_and(|offer| (offer.from, offer.term) == (from, term)) && self.waits_for_engine(now)
    }

    /// Up to where the engine has to get before this member gets anything new: a state waits for that. `None`: there is no such state, or this member
    /// follows another sequencer, or the same one in another term.
    pub fn state_awaits_engine(&self) -> Option<Seqno> {
        let offer = self.data.offer()?;
        let present = (offer.from, offer.term);
        let follows_another = self.sequencer().is_some_and(|orders| (orders, self.own.term()) != present);
        let waits = !follows_another && self.peers.contains_key(&offer.from);
        self.data.awaited.as_ref().filter(|_| waits).map(|awaited| awaited.seqno)
    }

    /// The engine waits for what comes behind the state that waits for it.
    pub(crate) fn on_engine_stuck(&mut self, now: Timestamp) {
        if self.state_awaits_engine().is_none() {
            return;
        }
        let Some(awaited) = &mut self.data.awaited else { return };
        let Some(offer) = awaited.offer.clone() else { return };
        awaited.stuck = true;
        self.on_snapshot(now, offer);
        // It was not taken, for another reason. A later one waits as any other.
        if let Some(awaited) = &mut self.data.awaited {
            awaited.stuck = false;
        }
    }

    /// The engine has its data on disk up to here.
    pub(crate) fn on_engine_disk(&mut self, now: Timestamp, upto: Seqno) {
        self.data.on_disk = Some(upto);
        let Some(awaited) = self.data.awaited.take_if(|awaited| awaited.seqno <= upto) else { return };
        let offer = awaited.offer.filter(|offer| self.running() && self.peers.contains_key(&offer.from));
        if let Some(offer) = offer {
            self.on_snapshot(now, offer);
        }
    }

    fn begin_from_data(&mut self, now: Timestamp, index: LogIndex, seqno: Seqno) {
        let history = self.own.tail().history;
        let position = self.data.brought();
        if self.phase() != Phase::Joining
            || self.standing().gives_up_data()
            || position != Some((history, seqno))
            || self.data.stocked && seqno < self.own.tail().seqno
            || index <= self.own.tail().index
            || index > INDEX_MAX
            || self.own.tail().lineage.forks().len() >= Lineage::FORKS_MAX
        {
            return;
        }
        if !self.may_begin_log_at(now, seqno) {
            return;
        }
        let id = self.draw_fork();
        self.log(false, format!("going on from the data of this node: branch {id} begins after seqno {seqno}"));
        let base = Base {
            history,
            index,
            term: self.own.term(),
            seqno,
            voters: self.alone(self.me(), Uuid::NIL),
            voters_at: index,
            view: View { number: self.own.tail().view.number, ..View::default() },
            durability: self.own.tail().durability,
            lineage: self.own.tail().lineage.with(Fork { index, seqno, id }),
            level: self.own.tail().level,
            ..Base::default()
        };
        if !self.replace_log(base) {
            return;
        }
        self.data.stocked = true;
        self.send_presence(now);
        self.take_over(now, None);
    }
}

/// No log gets here by counting.
const INDEX_MAX: LogIndex = LogIndex(1 << 62);
