//! Logs that may lack what they acknowledged (rules 12, 16, 17): after a loss of power in mode `process`, behind damage, from a
//! backup that was put back, or replaced by a snapshot.
//!
//! A vote says two things. It is a *promise* (one per term), and it is *evidence*: nothing that I acknowledged is missing in the
//! candidate's log. A suspect log takes back the evidence only; promises are on disk in every mode. So a candidate needs
//! promises of a majority, and evidence of so many that the rest can have committed nothing alone. Where there are too few
//! whole logs for that, all voters together are evidence of everything that is left: the history goes on from the disk that reaches
//! furthest, and what is missing then is gone, which a fork record says.
//!
//! Acknowledgements of a suspect member count: they say what it holds now.

use std::collections::{BTreeMap, BTreeSet};

use trireme_types::{Fork, Kinship, Level, Lineage, LogIndex, NodeId, Seqno, Term, Timestamp, Uuid, Voter, VoterSet};

use crate::from_data::Reach;
use crate::group::Group;
use crate::mutant::Mutant;
use crate::role::{Role, Votes};
use crate::{Content, Evidence, LogEnd, LogStore, Message, Phase, Presence};

/// The power that a set of votes gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mandate {
    /// Everything that was committed is in this log.
    Complete,
    /// All voters are here: whatever is left of what was committed is on one of the disks present.
    WhatIsLeft,
}

/// A log that could be gone on with, the better the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LogHere {
    last: LogEnd,
    own: bool,
    base: Seqno,
    seqno: Seqno,
    node: NodeId,
}

fn log_here(node: NodeId, p: &Presence) -> LogHere {
    LogHere { last: p.end(), own: false, base: p.base, seqno: p.seqno, node }
}

/// How far data are brought by logs (their bases and ends): a log goes on where data, or another log that goes on from data, end.
fn brought_by(logs: impl Iterator<Item = (Seqno, Seqno)>, data: Seqno) -> Seqno {
    let logs: Vec<(Seqno, Seqno)> = logs.collect();
    let mut reach = data;
    while let Some(further) =
        logs.iter().filter(|(base, end)| *base <= reach && *end > reach).map(|(_, end)| *end).max()
    {
        reach = further;
    }
    reach
}

/// The things that a suspect log may lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    /// Entries that were acknowledged. The voters that the log names are the right ones to ask.
    Entries,
    /// Changes of the voters as well: those that the log names may be the voters of then, and decide nothing by being all there. The mark is
    /// on disk, until the log is whole again.
    Voters,
}

/// A suspect log is whole again once it equals that of a sequencer up to some entry, and is on disk up to there.
#[derive(Clone, Copy, Debug)]
enum Repair {
    /// By the sequencer of this term, whose log ended here.
    Planned(Term, LogIndex),
    /// It equalled that of a sequencer up to here when that one's term was over. Only its own disk is awaited.
    Copied(LogIndex),
}

/// Doubts of this member about its own log, and its knowledge of what others have acknowledged.
#[derive(Default)]
pub(crate) struct Suspicion {
    /// Set by the first heartbeat of a term, while suspect; kept by a promise to a later term; taken away where the log is cut off below, and by
    /// every new doubt.
    repair: Option<Repair>,
    /// Acknowledged in the present term of the present branch by a log that was replaced since: no repair ends below.
    forgotten: LogIndex,
    /// The newest acknowledgement heard of each node on the present branch (rule 12).
    recalled: BTreeMap<NodeId, (Term, LogIndex)>,
    /// The end of the branch that this member gave up last, because its only voter had not heard of it.
    given_up: Option<LogEnd>,
    /// How often the decision was left to the same one.
    words: Option<Words>,
}

/// The decision was left to this one so often, with a log that ended there.
struct Words {
    to: NodeId,
    log: LogEnd,
    times: u32,
}

/// An arbitrator that has not decided after so many words finds its log of no use to anybody: it may see more than others do.
const ENTRUSTED_MAX: u32 = 3;

/// Nodes without a vote and outside of the view whose acknowledgements are remembered: more than ever join at once.
const RECALLED_MAX: usize = 1024;

/// How a person has one node go on without those that are missing (docs/operations/recovery.md, *To force a node*). A server that waits in its
/// start answers no client.
const BY_HAND: &str = "force one node: SET GLOBAL wsrep_provider_options='pc.bootstrap=yes' goes on with the best log present. If the server waits \
                       in its start, stop it, set safe_to_bootstrap: 1 in its grastate.dat, and start it with galera_new_cluster";

impl Suspicion {
    fn note_word(&mut self, to: NodeId, log: LogEnd) {
        let again = self.words.as_ref().filter(|w| (w.to, w.log) == (to, log));
        let times = again.map_or(0, |w| w.times) + 1;
        self.words = Some(Words { to, log, times });
    }

    fn has_declined(&self, node: NodeId, last: LogEnd) -> bool {
        self.words.as_ref().is_some_and(|w| (w.to, w.log) == (node, last) && w.times >= ENTRUSTED_MAX)
    }

    pub fn note_given_up(&mut self, end: LogEnd) {
        self.given_up = Some(end);
    }

    /// Was this acknowledged on a branch that was given up since? Each term has one sequencer, so its acknowledgements are of one branch.
    fn gave_up(&self, term: Term, index: LogIndex) -> bool {
        self.given_up.is_some_and(|end| term == end.term && index <= end.index)
    }

    /// Another term, or branch.
    pub fn forget_acknowledged(&mut self) {
        self.forgotten = LogIndex::ZERO;
    }

    pub fn acknowledged_before(&self) -> LogIndex {
        self.forgotten
    }

    /// A log was replaced, and what it had acknowledged stays said although an era began with the new one.
    pub fn keep_acknowledged(&mut self, index: LogIndex) {
        self.forgotten = index;
    }

    /// Acknowledgements of strangers decide nothing, so only that many are remembered.
    pub fn remember_ack(&mut self, node: NodeId, named: bool, term: Term, index: LogIndex) {
        if named || self.recalled.len() < RECALLED_MAX {
            let newest = self.recalled.entry(node).or_default();
            *newest = (*newest).max((term, index));
        }
    }

    /// It acknowledged with another log.
    pub fn forget_peer(&mut self, node: NodeId) {
        self.recalled.remove(&node);
    }

    /// All acknowledged with another log.
    pub fn forget_all_of_peers(&mut self) {
        self.recalled.clear();
    }

    /// Is the own log to be repaired?
    pub fn plans_repair(&self) -> bool {
        self.repair.is_some()
    }

    fn end(&mut self) {
        self.repair = None;
        self.forgotten = LogIndex::ZERO;
    }
}

impl<S: LogStore> Group<S> {
    /// Is the own log evidence of everything that it acknowledged?
    pub(crate) fn is_whole(&self) -> bool {
        self.own.store().suspect().is_none() || self.is(Mutant::SuspectVotes)
    }

    /// The same of a peer's log, by its last word.
    pub(crate) fn says_whole(&self, node: NodeId) -> bool {
        self.evidence_of(node) == Evidence::Everything
    }

    /// Of what is a peer's log evidence, by its last word?
    fn evidence_of(&self, node: NodeId) -> Evidence {
        self.peers.get(&node).and_then(|p| p.told()).map_or(Evidence::Nothing, |p| p.evidence)
    }

    /// The same where it may be. A build without `WAITS_FOR_ALL` does not say when its log becomes whole.
    pub(crate) fn may_be_whole(&self, node: NodeId) -> bool {
        self.says_whole(node) || !self.peer_supports(node, Level::WAITS_FOR_ALL)
    }

    pub(crate) fn mandate(&self, now: Timestamp, votes: &Votes) -> Option<Mandate> {
        if !self.quorum(|n| votes.contains_key(&n)) {
            return None;
        }
        // Nobody can get this log from here, so something that was committed is given up by going on: whoever may have it is asked before.
        let leads_nobody = self.leads_nobody(now);
        if leads_nobody && (!self.all_have_told(now) || self.reach_of_data(now).is_none()) {
            return None;
        }
        let ahead = self.data_ahead(now);
        if !leads_nobody && ahead.is_none() && self.is_evidence(|n| votes.get(&n) == Some(&true)) {
            return Some(Mandate::Complete);
        }
        let usable = ahead.is_none_or(|ahead| ahead.usable);
        // By an old disk the voters may be others than those who decide by now. An arbitrator chooses among the logs that others tell of.
        let everybody = self.names_newest_voters()
            && !self.awaits_own_disk()
            && self.all_voters(|n| votes.contains_key(&n) && self.is_here(n))
            && self.voters_told_lately(now)
            && (!self.arbitrates() || self.all_have_told(now));
        (usable && everybody).then_some(Mandate::WhatIsLeft)
    }

    /// Are these logs together evidence of everything that was committed? The others together are no majority then, so each entry
    /// was acknowledged by one of these.
    pub(crate) fn is_evidence(&self, whole: impl Fn(NodeId) -> bool) -> bool {
        self.deciding().all(|set| !set.majority(|n| !whole(n)))
    }

    /// Holds it for everybody whose vote counts for anything?
    pub(crate) fn all_voters(&self, holds: impl Fn(NodeId) -> bool) -> bool {
        self.deciding().all(|set| set.voters.iter().all(|v| v.weight.0 == 0 || holds(v.node)))
    }

    /// Is the last word new of each voter that is here? A member that stood still reads old words first, and they do not tell whose log or data reach
    /// furthest.
    fn voters_told_lately(&self, now: Timestamp) -> bool {
        let lately = |n: NodeId| self.peers.get(&n).is_some_and(|p| p.told_lately(now).is_some());
        self.all_voters(|n| n == self.me() || !self.is_here(n) || lately(n))
    }

    /// Is it known of all voters how far their logs and data reach just now? And of every server of the newest view or without weight: it may
    /// hold what an arbitrator can give to nobody else. A member of a primary component does not go on telling.
    pub(crate) fn all_have_told(&self, now: Timestamp) -> bool {
        let told = |n: NodeId| self.peers.get(&n).and_then(|p| p.told_since(self.good_at, now));
        let tells = |n: NodeId| n == self.me() || self.is_here(n) && told(n).is_some_and(|p| !p.primary);
        // A server with a disk of its own id that was emptied has nothing to tell of.
        let is_empty = |p: &Presence| p.history.is_nil() && p.data.is_none() && p.holds.is_none();
        let voters = self.deciding().flat_map(|set| set.voters.iter().map(|v| v.node));
        let viewed = self.own.tail().view.members.iter().map(|m| m.node);
        let mut servers = voters.chain(viewed).filter(|n| !self.kind_of(*n).is_arbitrator());
        self.all_voters(tells) && servers.all(|n| tells(n) || told(n).is_some_and(is_empty))
    }

    /// Is this member here, with a log of the own branch, or with one that lost the fork at which this branch began, or with nothing that is
    /// left of its log?
    pub(crate) fn is_here(&self, node: NodeId) -> bool {
        let kin = || matches!(self.kinship_of(node), Some(Kinship::Same | Kinship::Ancestor));
        node == self.me() || kin() || self.has_lost_all(node)
    }

    /// Does this peer say that nothing is left of its log?
    fn has_lost_all(&self, node: NodeId) -> bool {
        // One that gives up its data tells of no history either, but of its log.
        let nothing = |p: &Presence| p.history.is_nil() && p.last_index == LogIndex::ZERO && p.base == Seqno::ZERO;
        self.peers
            .get(&node)
            .and_then(|p| p.told())
            .is_some_and(|p| nothing(p) && !p.is_whole() && p.lineage.forks().is_empty())
    }

    /// Does this candidate stand on a branch that the own log could still follow? A member that votes there has lost the fork's entry,
    /// most likely with its power. Its promises are on disk all the same, for whatever branch they were given, so it gives this one;
    /// but whatever it acknowledged behind the fork is gone, and its log is evidence of nothing. Its data may lie behind the fork too, on one
    /// branch or the other: that keeps it from following, and a copy heals it, but a promise is about logs.
    /// The same is true of one whose log is damaged from its beginning on, so that it knows of no history, if that was on this branch.
    pub(crate) fn lost_branch_of(&self, now: Timestamp, candidate: NodeId, branch: Uuid) -> bool {
        let behind = match self.fork_before(candidate, branch) {
            Some(fork) => self.commit < fork.index,
            // A member that went over to another branch never votes in the one that it left.
            // A build that did not note the branch may have written the promise.
            None => self.lost_all() && !branch.is_nil() && [branch, Uuid::NIL].contains(&self.own.branch()),
        };
        let free = matches!(self.phase(), Phase::Joining | Phase::NonPrimary) && self.standing().keeps_log();
        free && behind && !self.hears_sequencer(now)
    }

    /// Is nothing left of a log that may have held what this member acknowledged?
    pub(crate) fn lost_all(&self) -> bool {
        self.own.tail().history.is_nil() && self.own.store().suspect().is_some()
    }

    /// Is this peer, on a branch that began at `fork`, the one that this member's promise made a sequencer, and could the log follow it, if
    /// the data did not lie behind the fork? Then it may be that nothing is committed there without this log (of two voters), and no state
    /// is offered before: so the data go, and the log follows. Everything that was committed on that branch is in the sequencer's log, and it has
    /// data of its own, so nothing is lost with these.
    pub(crate) fn only_data_keep_it_from(&self, node: NodeId, fork: &Fork) -> bool {
        self.own.voted_for() == node && self.commit < fork.index && self.data_of(node).is_some()
    }

    /// The data are void. Can the log go on with the branch of the one to whom this member has promised its vote?
    pub(crate) fn follows_by_promise(&self) -> bool {
        match self.kinship_of(self.own.voted_for()) {
            Some(Kinship::Descendant(fork)) => self.commit < fork.index,
            Some(Kinship::Same | Kinship::Ancestor | Kinship::Sibling) | None => false,
        }
    }

    /// Does the own log name the newest voters, as far as can be known, if all that it names promise it their votes? An outdated log may lack the change
    /// behind the newest one that it holds. One of those who acknowledged that change can have lost none, unless the others are a majority alone. So that
    /// one has the change in its log, and would refuse its vote to a log without it.
    ///
    /// So may a damaged one. But where it has never heard of anybody else there is nobody to ask.
    fn names_newest_voters(&self) -> bool {
        let shows = |n: NodeId| self.evidence_of(n) >= Evidence::Voters && self.kinship_of(n) == Some(Kinship::Same);
        let damaged = || self.own.store().is_damaged() && !(self.is_alone() && self.knows_nobody());
        !(self.own.store().is_outdated() || damaged()) || self.is_evidence(shows)
    }

    /// Of what is the own log evidence?
    pub(crate) fn own_evidence(&self) -> Evidence {
        if self.is_whole() {
            Evidence::Everything
        } else if self.own.store().is_outdated() || self.own.store().is_damaged() || self.own.lacks_committed_voters() {
            Evidence::Nothing
        } else {
            Evidence::Voters
        }
    }

    /// Becomes the sequencer if these votes are enough.
    pub(crate) fn try_take_office(&mut self, now: Timestamp, votes: &Votes) -> bool {
        match self.mandate(now, votes) {
            None => return false,
            Some(Mandate::Complete) => self.become_sequencer(now, None),
            Some(Mandate::WhatIsLeft) => {
                let doubtful: Vec<NodeId> = votes.iter().filter(|(_, whole)| !**whole).map(|(n, _)| *n).collect();
                if !doubtful.is_empty() {
                    let text = format!(
                        "all voters are here, but the write-set logs of {} may lack entries that were acknowledged",
                        self.names_of(&doubtful)
                    );
                    self.log(true, text);
                }
                self.go_on_with_what_is_left(now);
            }
        }
        true
    }

    /// All voters have promised this term to whoever calls this, or to the one that entrusted it to this member. The history
    /// goes on from the disk that reaches furthest, whether its owner votes or not; a fork says that something may be missing.
    fn go_on_with_what_is_left(&mut self, now: Timestamp) {
        if self.is_forked_out() {
            self.log(
                true,
                "not going on with what is left: this history has been forced too often; bootstrap a new one".into(),
            );
            return self.become_follower(now, None);
        }
        let own = self.own.tail().index;
        let log = self.best_log_here(now);
        let ahead = self.furthest_data(now, log.map(|l| l.seqno).unwrap_or_default());
        self.tell_what_is_dropped(log.map(|l| l.seqno).max(ahead.map(|a| a.seqno)).unwrap_or_default());
        if let Some(ahead) = ahead {
            return self.hand_to_data(now, &ahead);
        }
        if let Some(log) = log.filter(|log| log.node != self.me()) {
            let (branch, term) = (self.own.tail().branch(), self.own.term());
            self.log(
                true,
                format!("{} has the best log, and decides what is gone on with", self.names_of(&[log.node])),
            );
            self.become_follower(now, None);
            self.suspicion.note_word(log.node, log.last);
            let saved = self.own.entrust(term, log.node);
            if self.worked(saved) {
                self.send(log.node, Content::Entrust.in_term(branch, term));
            }
            return;
        }
        let me = self.me();
        let voter = match self.someone_here_to_bring_up(now) {
            // The voters do not miss a member without a vote: once it is gone they decide again, by logs without the fork. So one of
            // them is the branch's only voter, and nothing is committed there before that one is on it.
            Some(voter) if self.arbitrates() || !self.votes_in_all(me) => voter,
            None if self.arbitrates() => return self.become_follower(now, None),
            Some(_) | None => me,
        };
        self.log(
            true,
            format!(
                "going on with the best log of all, which ends at entry {own}, seqno {}. What only the lost parts held is gone",
                self.own.tail().seqno
            ),
        );
        let fork = self.draw_fork();
        let voters = self.voters_of_branch(voter, fork);
        self.become_sequencer(now, Some(voters));
    }

    /// The voters of a branch that begins here by the promises of all: `voter` alone, so that somebody can commit there. But where two sets decide and the
    /// whole logs are evidence for one of them, their owners could elect a sequencer of a later term without this member: they may know that the
    /// newest change of the voters is committed, or not hold it. Then that set decides on the branch, too, and what a majority of it holds there is
    /// not undone by the others.
    fn voters_of_branch(&self, voter: NodeId, fork: Uuid) -> VoterSet {
        let same = |n: NodeId| self.kinship_of(n) == Some(Kinship::Same);
        let whole = |n: NodeId| if n == self.me() { self.is_whole() } else { same(n) && self.may_be_whole(n) };
        let rivals = self.deciding().find(|set| !set.majority(|n| !whole(n)));
        match rivals.filter(|_| !self.is_evidence(whole)) {
            Some(set) => VoterSet { voters: set.voters.clone(), fork },
            None => self.alone(voter, fork),
        }
    }

    /// Arbitrator: others go on without what only the log here holds.
    fn tell_what_is_dropped(&mut self, end: Seqno) {
        let (base, own) = (self.own.store().base().seqno, self.own.tail().seqno);
        if self.arbitrates() && end < own {
            let text = format!(
                "the write-set log of this arbitrator holds write sets up to seqno {own}, but only those behind {base}, and nothing that is \
                 here reaches that: the cluster goes on from seqno {end}, and what was committed behind it is lost"
            );
            self.log(true, text);
        }
    }

    /// May the word of one who has all promises of `term` be followed here? A sequencer of an earlier term is deposed by these, though nobody
    /// has told this member so, which has no vote to be asked for. One that orders and hears a majority shows that there are no such promises.
    pub(crate) fn may_obey(&self, now: Timestamp, term: Term) -> bool {
        let deposed = || term > self.own.term() && !self.hears_sequencer(now);
        term >= self.own.term() && (self.sequencer().is_none() || deposed())
    }

    pub(crate) fn on_entrust(&mut self, now: Timestamp, branch: Uuid, term: Term) {
        let free = self.may_obey(now, term) && self.standing().keeps_log();
        let idle = matches!(self.phase(), Phase::Joining | Phase::NonPrimary);
        let useful = !self.arbitrates() || self.someone_here_to_bring_up(now).is_some();
        if !self.is_own_branch(branch) || !free || !idle || !useful || !self.voters_told_lately(now) {
            return;
        }
        // All voters promised that term, so none of them is elected in it. But one of them may have got all promises of a later one meanwhile, by which
        // another branch has begun. A member without a vote is not asked for any.
        let later = |n: NodeId| self.peers.get(&n).and_then(|p| p.told()).is_some_and(|p| p.term > term);
        if self.deciding().flat_map(|set| &set.voters).any(|v| later(v.node)) {
            return;
        }
        if self.promise(term.next(), self.me()) {
            self.become_follower(now, None);
            self.go_on_with_what_is_left(now);
        }
    }

    /// The best log of the own branch among those that can be continued with the data here. With no data at all, the own one.
    ///
    /// One that begins just where the other logs end, by seqnos, and holds nothing that has a seqno, comes last: entries without one may lie
    /// between, and then nobody with data can go on with it. Its owner knows whether that is so.
    fn best_log_here(&self, now: Timestamp) -> Option<LogHere> {
        let Some(data) = self.data_here(now) else { return Some(self.own_log()) };
        let reach = self.reach_from(now, data);
        // A log that an arbitrator can give to nobody is of no use.
        let useful = !self.arbitrates() || self.someone_here_to_bring_up(now).is_some();
        let logs = self.logs_of_others(now).chain(self.logs_of_arbitrators(now)).chain(useful.then(|| self.own_log()));
        let meets = |log: &LogHere| log.own && (self.arbitrates() || self.goes_on_from(now, self.own.store().base()));
        let adds = |log: &LogHere| log.base < reach || log.base <= data || log.base < log.seqno || meets(log);
        logs.filter(|log| log.base <= reach).max_by_key(|log| (adds(log), *log))
    }

    fn own_log(&self) -> LogHere {
        LogHere {
            last: self.own.tail().end(),
            own: true,
            base: self.own.store().base().seqno,
            seqno: self.own.tail().seqno,
            node: self.me(),
        }
    }

    fn logs_of_others(&self, now: Timestamp) -> impl Iterator<Item = LogHere> {
        self.servers_here(now).into_iter().map(|(node, p)| log_here(node, p))
    }

    /// The logs that other arbitrators could give to a server.
    fn logs_of_arbitrators(&self, now: Timestamp) -> impl Iterator<Item = LogHere> {
        self.peers.iter().filter_map(move |(node, peer)| {
            let p = peer.told_lately(now).filter(|p| peer.member.kind.is_arbitrator() && !p.primary)?;
            let same = self.kinship_of(*node) == Some(Kinship::Same);
            let tried = self.suspicion.has_declined(*node, p.end());
            (same && !tried && self.is_of_use(now, *node)).then(|| log_here(*node, p))
        })
    }

    /// How far the data of those that are here can be brought by the logs that are here. `None`: nobody here has data.
    pub(crate) fn reach_of_data(&self, now: Timestamp) -> Option<Seqno> {
        self.data_here(now).map(|data| self.reach_from(now, data))
    }

    /// How far the data of those that are here reach, or the own log of one that can follow here by it.
    fn data_here(&self, now: Timestamp) -> Option<Seqno> {
        let held = self.servers_here(now).into_iter().filter_map(|(_, p)| p.holds);
        let lineage = &self.own.tail().lineage;
        let followers = self.peers.keys().filter_map(|node| self.reach_of_follower(now, *node, lineage));
        held.chain(self.holds()).chain(followers).max()
    }

    fn reach_from(&self, now: Timestamp, data: Seqno) -> Seqno {
        // An arbitrator's log is given to one server, and is none for others to go on from.
        let own = Some((self.own.store().base().seqno, self.own.tail().seqno)).filter(|_| !self.arbitrates());
        brought_by(self.logs_of_others(now).map(|l| (l.base, l.seqno)).chain(own), data)
    }

    /// Up to where a linked server without a primary component gets by its own log and data on the branch with this lineage, if it has not
    /// heard of the fork at which that began and its data let it follow.
    fn reach_of_follower(&self, now: Timestamp, node: NodeId, lineage: &Lineage) -> Option<Seqno> {
        let theirs = self.peers.get(&node)?.told_lately(now).filter(|p| !p.primary)?;
        match theirs.lineage.kinship(lineage) {
            Kinship::Descendant(_) => self.reach_on(node, lineage).map(Reach::end),
            Kinship::Same | Kinship::Ancestor | Kinship::Sibling => None,
        }
    }

    /// Has nobody data on the branch of this peer, which grew from the own one at `fork`, although somebody has on the own one, and could
    /// those not follow there (rule 10)?
    pub(crate) fn is_bare_branch(&self, now: Timestamp, theirs: &Presence, fork: &Fork) -> bool {
        let branch = theirs.lineage.branch(theirs.history);
        let there = self.peers.values().filter_map(|peer| peer.told_lately(now));
        let mut there = there.filter(|p| p.history == theirs.history && p.lineage.branch(p.history) == branch);
        let own = self.servers_here(now).into_iter().filter_map(|(_, p)| p.holds).chain(self.holds());
        let lowest = own.min();
        let stays = self.holds().is_some() && self.is_committed_beyond(fork);
        let follows = || {
            let reach = self.reach_of_data(now).map(|reach| reach.min(fork.seqno));
            lowest.is_some_and(|data| data <= fork.seqno) && reach.is_some_and(|reach| theirs.base <= reach)
        };
        lowest.is_some() && !there.any(|p| p.holds.is_some()) && (stays || !follows())
    }

    /// Would a group around the log of this peer, on a branch that grew from the own one, serve nobody, as far as members have told here? It is
    /// what the peer asks itself ([`Self::serves_nobody`]), seen from a member that does not know its log.
    pub(crate) fn serves_nobody_there(&self, now: Timestamp, theirs: &Presence) -> bool {
        let there: Vec<&Presence> = self
            .peers
            .values()
            .filter(|peer| !peer.member.kind.is_arbitrator())
            .filter_map(|peer| peer.told_lately(now))
            .filter(|p| !p.primary && p.history == theirs.history)
            .filter(|p| p.lineage.kinship(&theirs.lineage) == Kinship::Same)
            .collect();
        let own = self.holds().and_then(|holds| match self.own.tail().lineage.kinship(&theirs.lineage) {
            Kinship::Descendant(fork) if holds <= fork.seqno && !self.is_committed_beyond(&fork) => {
                Some(holds.max(self.own.tail().seqno).min(fork.seqno))
            }
            Kinship::Same | Kinship::Descendant(_) | Kinship::Ancestor | Kinship::Sibling => None,
        });
        let others = self.peers.keys().filter_map(|node| self.reach_of_follower(now, *node, &theirs.lineage));
        match there.iter().filter_map(|p| p.holds).chain(own).chain(others).max() {
            Some(data) => brought_by(there.iter().map(|p| (p.base, p.seqno)), data) < theirs.base,
            None => theirs.data.is_none(),
        }
    }

    /// Linked servers of the own branch without a primary component.
    pub(crate) fn servers_here(&self, now: Timestamp) -> Vec<(NodeId, &Presence)> {
        let heard = self.peers.iter().filter_map(|(node, peer)| {
            let p = peer.told_lately(now)?;
            let counts = !p.primary && !peer.member.kind.is_arbitrator();
            (counts && self.kinship_of(*node) == Some(Kinship::Same)).then_some((*node, p))
        });
        heard.collect()
    }

    /// Is it a voter whatever the others know of the newest change?
    fn votes_in_all(&self, node: NodeId) -> bool {
        self.deciding().all(|set| set.weight(node) > 0)
    }

    /// Those of the newest set whose logs are of this branch, and who were heard lately.
    pub(crate) fn voters_heard(&self, now: Timestamp) -> Vec<Voter> {
        let lately = |n: NodeId| self.peers.get(&n).is_some_and(|p| p.told_lately(now).is_some());
        let heard = |v: &Voter| self.kinship_of(v.node) == Some(Kinship::Same) && lately(v.node);
        self.own.tail().voters.voters.iter().copied().filter(heard).collect()
    }

    pub(crate) fn someone_here_to_bring_up(&self, now: Timestamp) -> Option<NodeId> {
        let mut here = self.voters_heard(now);
        here.retain(|v| self.votes_in_all(v.node));
        self.someone_to_bring_up(&here)
    }

    /// From now on the own log is no evidence. `false`: that could not be written down.
    pub(crate) fn begin_to_doubt(&mut self, lack: Lack) -> bool {
        if self.era.term() == self.own.term() {
            let acked = self.era.ack_of(self.me()).unwrap_or_default();
            self.suspicion.forgotten = self.suspicion.forgotten.max(acked);
        }
        self.suspicion.repair = None;
        let me = self.me();
        if let Some(ballot) = self.role.ballot_mut() {
            ballot.granted.insert(me, false);
        }
        let after = self.own.store().suspect().unwrap_or(LogIndex::ZERO);
        let saved = self.own.store_mut().set_suspect(Some(after));
        self.worked(saved) && self.note_lack(lack)
    }

    /// `false`: it could not be written down.
    fn note_lack(&mut self, lack: Lack) -> bool {
        if lack == Lack::Entries || self.own.store().is_outdated() {
            return true;
        }
        let saved = self.own.store_mut().set_outdated(true);
        self.worked(saved)
    }

    // --- repair ---------------------------------------------------------------------------------------------------

    /// The sequencer's log ended at `last` after the own one had lost what it lost. Everything that was acknowledged in earlier
    /// terms and committed is in that log, because it was elected by evidence; so is everything acknowledged in its own term.
    pub(crate) fn plan_repair(&mut self, term: Term, last: LogIndex) {
        let is_new = match self.suspicion.repair {
            Some(Repair::Planned(of, _)) => of != term,
            Some(Repair::Copied(_)) => false,
            None => true,
        };
        if self.own.store().suspect().is_some() && is_new {
            self.suspicion.repair = Some(Repair::Planned(term, last.max(self.suspicion.forgotten)));
            self.settle_suspicion();
        }
    }

    /// The present term is over: its sequencer compares no more.
    pub(crate) fn keep_repair(&mut self) {
        let upto = self.repaired_to();
        if upto > LogIndex::ZERO {
            self.suspicion.repair = Some(Repair::Copied(upto));
        }
    }

    /// The log was cut off behind `last`.
    pub(crate) fn spoil_repair(&mut self, last: LogIndex) {
        let stays = |repair: &Repair| match repair {
            Repair::Planned(..) => true,
            Repair::Copied(upto) => *upto <= last,
        };
        self.suspicion.repair = self.suspicion.repair.filter(stays);
    }

    /// Up to here the log is to be synced, whatever the mode: a repair counts when it is durable.
    pub(crate) fn repaired_to(&self) -> LogIndex {
        match self.suspicion.repair {
            Some(Repair::Planned(term, last)) if term == self.own.term() && self.era.verified() >= last => last,
            Some(Repair::Copied(last)) => last,
            Some(Repair::Planned(..)) | None => LogIndex::ZERO,
        }
    }

    /// Does the log become whole as soon as its end is on the own disk? Until then this member gives no vote: one that is no evidence stays none, or whoever
    /// gets it with all others would go on alone, while this member and others are evidence enough for a later term.
    pub(crate) fn awaits_own_disk(&self) -> bool {
        self.own.store().suspect().is_some() && self.repaired_to() > LogIndex::ZERO
    }

    pub(crate) fn settle_suspicion(&mut self) {
        if self.own.store().suspect().is_none() || !self.running() {
            return;
        }
        let settled = match self.role() {
            // Elected by evidence, by all, or by a person: this log is what there is, once something of the term is committed.
            Role::Sequencer(_) => self.own.store().term_at(self.commit) == Some(self.own.term()),
            // Also when that sequencer is not heard any more before the own disk is done, or its term is over: what it said stays true.
            Role::Follower { .. } | Role::PreCandidate(_) | Role::Candidate(_) => {
                let to = self.repaired_to();
                to > LogIndex::ZERO && self.own.synced() >= to && self.standing().keeps_log()
            }
        };
        if !settled {
            return;
        }
        self.suspicion.end();
        let saved = self.own.store_mut().set_suspect(None);
        if !self.worked(saved) {
            return;
        }
        let last = self.own.tail().index;
        self.log(false, format!("the write-set log is whole again up to entry {last}: it counts in elections"));
    }

    // --- what peers remember --------------------------------------------------------------------------------------

    /// A disk that was put back from a backup does not know what is missing. Its peers do.
    pub(crate) fn send_recall(&mut self, node: NodeId) {
        if let Some((term, index)) = self.acknowledged_by(node) {
            let branch = self.own.tail().branch();
            self.send(node, Content::Recall { index }.in_term(branch, term));
            let knows = self.peer_supports(node, Level::NAMED_TERMS);
            if let Some(LogEnd { term, index }) = self.voters_below(index).filter(|_| knows) {
                self.send(node, Message::VotersHeard { branch, term, index });
            }
        }
    }

    /// The newest change of the voters that is known here to be committed, of those up to `index`.
    fn voters_below(&self, index: LogIndex) -> Option<LogEnd> {
        let store = self.own.store();
        let known = index.min(self.commit.max(self.own.voters_committed()));
        let newest = self.own.tail().voters_at;
        // Each entry names the newest change before it.
        let before = || Some(store.read(known.next(), 0).ok()?.first()?.header.voters);
        let at = if newest <= known { Some(newest) } else { before() };
        let index =
            at.into_iter().chain([store.base().voters_at]).filter(|at| *at > LogIndex::ZERO && *at <= known).max()?;
        Some(LogEnd { term: store.term_at(index).unwrap_or_default(), index })
    }

    /// The newest acknowledgement heard of this node, as far as it still counts: where the own log has gone on with a later term, nothing of an
    /// earlier one was committed, or the later sequencer would have had it. Such a node may have taken off what it had acknowledged, to
    /// make room for that, and have got no further.
    fn acknowledged_by(&self, node: NodeId) -> Option<(Term, LogIndex)> {
        let (term, index) = self.suspicion.recalled.get(&node).copied()?;
        let before_later = self.own.last_up_to(term).filter(|last| *last < index.min(self.own.tail().index));
        Some((term, before_later.unwrap_or(index)))
    }

    pub(crate) fn on_recall(&mut self, now: Timestamp, from: NodeId, branch: Uuid, term: Term, index: LogIndex) {
        // A fork is a change of the voters, so it is on disk before it is acknowledged.
        let lacks_fork = self.fork_before(from, branch).is_some_and(|fork| fork.index <= index);
        if !self.is_own_branch(branch) && !lacks_fork || self.is(Mutant::ShortLogVotes) {
            return;
        }
        if self.suspicion.gave_up(term, index) {
            return;
        }
        // Entries go only when others of a later term come.
        let short = self.own.tail().term <= term && self.own.tail().index < index;
        let forgot = term > self.own.term();
        if !short && !forgot && !lacks_fork {
            return;
        }
        let suspect = self.own.store().suspect().is_some();
        // A suspect log may have lost entries with the power. But no term is lost with it: that is synced in every mode.
        let lack = if suspect && !forgot && !lacks_fork { Lack::Entries } else { Lack::Voters };
        if suspect && !forgot {
            if lacks_fork {
                // It is of another branch than what the log was compared with.
                self.suspicion.repair = None;
            }
            self.note_lack(lack);
            return;
        }
        if !suspect {
            self.log(
                true,
                format!(
                    "the write-set log ends at entry {}, but a peer has seen this node acknowledge entry {index} of term {term}: \
                     an old copy of the data directory was put back, or files are missing. The log does not count in elections \
                     before it is complete again",
                    self.own.tail().index
                ),
            );
        }
        if !self.begin_to_doubt(lack) {
            return;
        }
        if forgot {
            // The promise of that term is not known any more: it is treated as given away.
            if !self.promise(term, self.me()) {
                return;
            }
            self.become_follower(now, None);
        }
    }

    /// A change of the voters is on disk before it is acknowledged, whatever the mode. So one that this member acknowledged and that its log lacks
    /// was not lost with the power: the disk is an old one, and the voters that the log names are those of then.
    pub(crate) fn on_voters_heard(&mut self, branch: Uuid, voters: LogEnd) {
        let store = self.own.store();
        let other = store.term_at(voters.index).is_some_and(|term| term < voters.term);
        let lacks = self.own.tail().index < voters.index || other;
        // `Recall` came before, and made the log suspect if it lacks an acknowledged entry.
        let doubts = store.suspect().is_some() && !store.is_outdated() && self.running();
        if !self.is_own_branch(branch) || !lacks || !doubts || self.is(Mutant::ShortLogVotes) {
            return;
        }
        if self.note_lack(Lack::Voters) {
            let text = format!(
                "a peer knows of a change of the voters at entry {}, which this node acknowledged, and the write-set log here lacks it: an old copy \
                 of the data directory was put back, or files are missing",
                voters.index
            );
            self.log(true, text);
        }
    }

    /// A candidate that acknowledged more than its log holds hears so before it hears of a vote: then its own log is no evidence, and
    /// it needs that of others, whose refusal would only keep the best log that is left from going on.
    pub(crate) fn remind(&mut self, candidate: NodeId, last: LogEnd) {
        if self.acknowledged_by(candidate).is_some_and(|(term, index)| last.term <= term && last.index < index) {
            self.send_recall(candidate);
        }
    }

    // --- waiting --------------------------------------------------------------------------------------------------

    /// Says once whom this member waits for when that is not just a majority of the voters.
    pub(crate) fn explain_waiting(&mut self, now: Timestamp) {
        if self.sequencer().is_some() || now.since(self.good_at) <= self.cfg.timeouts.suspect {
            return;
        }
        if !matches!(self.phase(), Phase::Joining | Phase::NonPrimary) || !self.own.tail().voters.contains(self.me()) {
            return;
        }
        let me = self.me();
        let fresh = |n: NodeId| Some(self.peers.get(&n)?.told_lately(now)?.is_whole());
        let whole = |n: NodeId| if n == me { Some(self.is_whole()) } else { fresh(n) };
        let by_number = self.deciding().all(|set| {
            let heavy = || set.voters.iter().filter(|v| v.weight.0 > 0);
            heavy().filter(|v| whole(v.node).is_some()).count() * 2 > heavy().count()
        });
        let voters: BTreeSet<NodeId> =
            self.deciding().flat_map(|set| &set.voters).filter(|v| v.weight.0 > 0).map(|v| v.node).collect();
        let missing: Vec<NodeId> = voters.iter().copied().filter(|n| whole(*n).is_none()).collect();
        let doubtful: Vec<NodeId> = voters.into_iter().filter(|n| whole(*n) == Some(false)).collect();
        let here = |n: NodeId| whole(n).is_some();
        let why = if !doubtful.is_empty() {
            format!(
                "the write-set logs of {} may lack entries that were acknowledged (lost with the power in mode process, or \
                 damaged): a primary component needs more whole logs, or all voters",
                self.names_of(&doubtful)
            )
        } else if self.own.tail().voters.majority(here) && !self.quorum(here) {
            "the voters were about to change, and whether they did is not known here: a primary component needs a majority of \
             those before the change, too"
                .into()
        } else if by_number && !self.quorum(here) {
            "most voters are here, but those that are not weigh at least as much as all of them together (pc.weight)"
                .into()
        } else {
            return;
        };
        if self.told.waits_for.as_ref() == Some(&missing) {
            return;
        }
        let nothing_left: Vec<NodeId> = doubtful.iter().copied().filter(|n| self.has_lost_all(*n)).collect();
        let text = if !missing.is_empty() {
            format!("{why}. Waiting for {}. If they are gone for good, {BY_HAND}", self.names_of(&missing))
        } else if !self.names_newest_voters() || self.own.lacks_committed_voters() {
            format!(
                "the write-set log here is an old copy, or is damaged: all voters that it names are here, and there may be others by now. \
                 Waiting for a node with a newer log. If there is none, {BY_HAND}"
            )
        } else if !nothing_left.is_empty() {
            format!(
                "all voters are here, but nothing is left of the write-set logs of {}, and what one of them acknowledged on another \
                 branch of the history may be nowhere else. If nobody else has that branch, {BY_HAND}",
                self.names_of(&nothing_left)
            )
        } else {
            return;
        };
        self.log(true, text);
        self.told.waits_for = Some(missing);
    }

    pub(crate) fn names_of(&self, nodes: &[NodeId]) -> String {
        let name = |n: &NodeId| {
            let linked = || self.peers.get(n).map(|p| &p.member);
            let member =
                if *n == self.me() { Some(&self.cfg.me) } else { self.own.tail().view.get(*n).or_else(linked) };
            member.map_or_else(|| n.to_string(), |m| format!("{} ({})", m.name, m.address))
        };
        nodes.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_types::Uuid;

    #[test]
    fn what_strangers_acknowledge_is_remembered_within_bounds() {
        let mut suspicion = Suspicion::default();
        let node = |n: u32| NodeId(Uuid(u128::from(n).to_be_bytes()));
        for n in 0..100_000 {
            suspicion.remember_ack(node(n), false, Term(1), LogIndex(1));
        }
        assert_eq!(suspicion.recalled.len(), RECALLED_MAX);
        // A member has a place whatever came before it.
        suspicion.remember_ack(node(200_000), true, Term(1), LogIndex(7));
        assert_eq!(suspicion.recalled[&node(200_000)], (Term(1), LogIndex(7)));
    }
}
