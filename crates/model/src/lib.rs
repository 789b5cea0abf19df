//! An exhaustive model of what the protocol adds to Raft: voters that change, logs that may lack what they acknowledged,
//! and the fork with which a group goes on from what is left (docs/protocol.md, sections 4, 5, 6 and 8).
//!
//! The simulator runs the real code for as many schedules as time allows. The model runs a small abstraction for *all*
//! schedules within its bounds: three members, a few terms, entries, losses of power and changes of voters. It was written
//! from the protocol's text and shares no code with `crates/order`.
//!
//! Steps that the model joins into one:
//! - A vote is asked for, given and counted at once. A reply that arrives late is the same as an earlier vote that is used late.
//! - An append and its acknowledgement are one step, and the acknowledgement stays counted when its sender loses it later.
//!   A lost acknowledgement is the same as a commit that the sequencer does not take.
//! - A member that is down is one that takes no step. The step `Restart` does what a crash does to its memory.
//!
//! Left out: views, snapshots, arbitrators, positions of data, branches that an operator forces, and pre-votes. They decide
//! who is served and when, but only votes, acknowledgements and forks decide what is committed.

use std::num::NonZero;

use smallvec::{SmallVec, smallvec};
use stateright::{Checker, HasDiscoveries, Model, Property, Representative};

pub mod runs;

/// Number of members.
pub const NODES: usize = 3;

/// A member: 0, 1 or 2.
pub type Node = usize;

/// Members as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Set(pub u8);

impl Set {
    pub const ALL: Set = Set(0b111);

    fn alone(node: Node) -> Set {
        Set(1 << node)
    }

    fn has(self, node: Node) -> bool {
        self.0 & (1 << node) != 0
    }

    fn members(self) -> impl Iterator<Item = Node> {
        (0..NODES).filter(move |n| self.has(*n))
    }

    /// More than half of this set?
    fn majority(self, holds: impl Fn(Node) -> bool) -> bool {
        2 * self.members().filter(|n| holds(*n)).count() > self.members().count()
    }
}

/// The kinds of entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Kind {
    /// The first entry of a term.
    Term,
    /// Something that a client wrote.
    Data,
    Voters(Set),
}

/// An entry of a log. Branch and term name its sequencer, so two entries of one index are equal when these are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Entry {
    pub branch: u8,
    pub term: u8,
    pub kind: Kind,
}

/// The entries of a log. States are copied by the million, so what is within the bounds of `runs.rs` needs no memory of its own.
pub type Log = SmallVec<[Entry; 5]>;

/// Lengths, not indexes: `log[..commit]` is committed.
pub type Len = usize;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    Follower,
    /// For each member whether it promised, and whether its log is whole.
    Candidate([Option<bool>; NODES]),
    /// The length that each member acknowledged in this term.
    Sequencer([Len; NODES]),
}

/// One member: first what its disk holds, then its memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    pub term: u8,
    pub voted: Option<Node>,
    /// Everything written. A loss of power may take what is not synced.
    pub log: Log,
    pub synced: Len,
    /// The log may lack entries that this member acknowledged.
    pub suspect: bool,
    /// The log was this long when its newest voters were known to be committed.
    pub mark: Len,
    /// So much was known to be committed when that was last written down, which may be longer ago.
    pub hint: Len,
    pub role: Role,
    /// The sequencer that it follows in its term; itself as the sequencer.
    pub follows: Option<Node>,
    /// As far as the log is known to be the sequencer's.
    pub verified: Len,
    /// Once the log is the sequencer's up to here, and synced, it is whole.
    pub repair: Option<Len>,
    pub commit: Len,
}

impl Member {
    fn branch(&self) -> u8 {
        self.log.last().map_or(0, |e| e.branch)
    }

    fn last(&self) -> (u8, Len) {
        (self.log.last().map_or(0, |e| e.term), self.log.len())
    }

    /// The newest voters and the log's length with their entry, then those before.
    fn voters(&self) -> (Set, Len, Set) {
        let mut found = (Set(0), 0, Set(0));
        for (at, entry) in self.log.iter().enumerate() {
            if let Kind::Voters(set) = entry.kind {
                let fork = at > 0 && self.log[at - 1].branch != entry.branch;
                found = (set, at + 1, if fork { set } else { found.0 });
            }
        }
        found
    }

    /// The sets of voters whose majorities decide.
    fn deciding(&self, rules: &Rules) -> SmallVec<[Set; 2]> {
        let (set, at, before) = self.voters();
        let settled = rules.broken == Some(Mutant::NewVotersAlone) || at <= self.commit.max(self.mark);
        if settled || before.0 == 0 { smallvec![set] } else { smallvec![set, before] }
    }

    fn majority(&self, rules: &Rules, holds: impl Fn(Node) -> bool) -> bool {
        self.deciding(rules).into_iter().all(|set| set.majority(&holds))
    }

    /// How much of the log it may acknowledge.
    fn durable(&self, rules: &Rules) -> Len {
        if rules.synced_acks {
            return self.synced;
        }
        let term = self.last().0;
        let first_of_term = self.log.iter().position(|e| e.term == term).map_or(0, |at| at + 1);
        let landmark = self.voters().1.max(first_of_term);
        if self.synced < landmark { self.synced.max(landmark - 1) } else { self.log.len() }
    }

    /// Takes over a higher term.
    fn adopt(&mut self, term: u8) {
        if term > self.term {
            self.term = term;
            self.voted = None;
            self.follow(None);
        }
    }

    fn follow(&mut self, sequencer: Option<Node>) {
        self.role = Role::Follower;
        self.follows = sequencer;
        self.verified = 0;
        self.repair = None;
    }

    /// A mark that is on disk: voters are known to be committed.
    fn note_commit(&mut self) {
        let (_, at, _) = self.voters();
        if at <= self.commit {
            self.mark = self.mark.max(at);
        }
        if matches!(self.role, Role::Sequencer(_)) && self.is_established() {
            self.suspect = false;
        }
    }

    /// As a sequencer: is the first entry of its term committed?
    fn is_established(&self) -> bool {
        self.log[..self.commit].iter().any(|e| (e.term, e.branch) == (self.term, self.branch()))
    }

    /// The fork's entry comes next: what it undoes is not committed any more (rule 34).
    fn lower_marks(&mut self, rules: &Rules) {
        if rules.broken != Some(Mutant::MarksKept) {
            self.mark = self.mark.min(self.log.len());
            self.hint = self.hint.min(self.log.len());
        }
    }

    fn settle_suspicion(&mut self, rules: &Rules) {
        let at_once = rules.broken == Some(Mutant::RepairedAtOnce);
        if self.repair.is_some_and(|to| at_once || self.verified >= to && self.synced >= to) {
            self.suspect = false;
            self.repair = None;
        }
    }

    fn truncate(&mut self, to: Len) {
        self.log.truncate(to);
        self.synced = self.synced.min(to);
        self.verified = self.verified.min(to);
    }

    /// Its state after a death of the process.
    fn restart(&mut self) {
        self.follow(None);
        self.commit = self.mark.max(self.hint).min(self.log.len());
    }
}

/// A deliberately broken rule. The model has to find each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutant {
    /// A suspect log counts as evidence.
    SuspectVotes,
    /// A majority of promises is enough, whatever is suspect.
    NoEvidence,
    /// While a change of voters is in doubt, the new ones decide alone.
    NewVotersAlone,
    /// The longest log is the best one.
    LongestLog,
    /// The marks of what is committed stay when a fork begins below them.
    MarksKept,
    /// A suspect log counts as whole when it follows a sequencer, before it holds what that one has.
    RepairedAtOnce,
    /// An entry of an older term counts as committed when a majority holds it.
    OlderTermCommits,
    /// One member alone decides on a branch, whoever could elect another sequencer on the old one.
    ForkedAlone,
}

/// Bounds and rules of a run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Mode `disk`: nothing is acknowledged before it is synced. Else mode `process`.
    pub synced_acks: bool,
    pub first_voters: Set,
    /// The run begins with member 0 as the established sequencer of term 1, whom all follow. Else nobody has been elected yet.
    pub begun: bool,
    pub terms: u8,
    pub log: Len,
    pub restarts: u8,
    pub power_losses: u8,
    /// Losses of entries that were synced.
    pub damages: u8,
    pub voter_changes: u8,
    pub forks: u8,
    /// How often a member writes down how much it knows to be committed.
    pub hints: u8,
    pub broken: Option<Mutant>,
}

/// Everything there is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub members: [Member; NODES],
    /// The entries that were committed anywhere, and so may have been acknowledged to a client.
    pub done: Log,
    /// The term in which each of these was.
    pub done_in: SmallVec<[u8; 5]>,
    pub forks: u8,
    pub restarts: u8,
    pub power_losses: u8,
    pub damages: u8,
    pub voter_changes: u8,
    pub hints: u8,
    /// The first promise that was broken.
    pub fault: Option<&'static str>,
}

/// Members have no names but their place: states that differ in the places only are one.
impl Representative for State {
    fn representative(&self) -> State {
        let mut order: [Node; NODES] = std::array::from_fn(|n| n);
        order.sort_by_key(|n| {
            let m = &self.members[*n];
            (&m.log, m.term, m.synced, m.suspect, m.mark, m.hint, m.commit, m.verified, m.repair)
        });
        let mut place = [0; NODES];
        order.iter().enumerate().for_each(|(at, node)| place[*node] = at);
        let set = |set: Set| Set(set.members().map(|n| 1 << place[n]).sum());
        let log = |log: &[Entry]| -> Log {
            let entry = |e: &Entry| match e.kind {
                Kind::Voters(voters) => Entry { kind: Kind::Voters(set(voters)), ..*e },
                Kind::Term | Kind::Data => *e,
            };
            log.iter().map(entry).collect()
        };
        let members = order.map(|node| {
            let m = &self.members[node];
            Member {
                voted: m.voted.map(|n| place[n]),
                follows: m.follows.map(|n| place[n]),
                log: log(&m.log),
                role: match &m.role {
                    Role::Follower => Role::Follower,
                    Role::Candidate(votes) => Role::Candidate(order.map(|n| votes[n])),
                    Role::Sequencer(acks) => Role::Sequencer(order.map(|n| acks[n])),
                },
                ..m.clone()
            }
        });
        State { members, done: log(&self.done), ..self.clone() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    Stand(Node),
    /// Voter, candidate.
    Vote(Node, Node),
    TakeOffice(Node),
    Write(Node),
    ChangeVoters(Node, Set),
    /// From the sequencer, to a member: what that one lacks first.
    Replicate(Node, Node),
    Sync(Node),
    Commit(Node),
    Hint(Node),
    Restart(Node),
    /// And so much of the log is left.
    LosePower(Node, Len),
    Damage(Node, Len),
    /// Of a branch of which too many of its voters have not heard.
    GiveUp(Node),
}

/// How one log relates to another.
#[derive(PartialEq, Eq, Debug)]
enum Kinship {
    Same,
    /// The other one grew from it by a fork at this index.
    Ancestor(Len),
    Other,
}

/// The forks of a log: index and branch.
fn lineage(log: &[Entry]) -> SmallVec<[(Len, u8); 2]> {
    (1..log.len()).filter(|at| log[*at].branch != log[at - 1].branch).map(|at| (at, log[at].branch)).collect()
}

fn kinship(one: &[Entry], other: &[Entry]) -> Kinship {
    let (one, other) = (lineage(one), lineage(other));
    if one == other {
        Kinship::Same
    } else if other.starts_with(&one) {
        Kinship::Ancestor(other[one.len()].0)
    } else {
        Kinship::Other
    }
}

fn common(one: &[Entry], other: &[Entry]) -> Len {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

impl Rules {
    /// How much of what was committed the sequencer of a term has to have. An entry that was committed in a later term is
    /// not its business: it only has not heard yet that its own term is over.
    fn due(state: &State, term: u8) -> Len {
        state.done_in.iter().take_while(|of| **of < term).count()
    }

    fn take_office(&self, state: &mut State, candidate: Node) -> Option<()> {
        let me = &state.members[candidate];
        let Role::Candidate(votes) = me.role else { return None };
        if !me.majority(self, |n| votes[n].is_some()) {
            return None;
        }
        let deciding = me.deciding(self);
        let evidence = deciding.iter().all(|set| !set.majority(|n| votes[n] != Some(true)));
        if evidence || self.broken == Some(Mutant::NoEvidence) {
            if common(&me.log, &state.done) < Self::due(state, me.term) {
                state.fault = Some("elected by evidence without something that was committed");
            }
            self.become_sequencer(state, candidate, None);
            return Some(());
        }
        let here = |n: Node| kinship(&state.members[n].log, &me.log) != Kinship::Other;
        if !deciding.iter().all(|set| set.members().all(|n| votes[n].is_some() && here(n))) || state.forks == self.forks
        {
            return None;
        }
        let owner = (0..NODES)
            .filter(|n| kinship(&state.members[*n].log, &me.log) == Kinship::Same)
            .max_by_key(|n| (state.members[*n].last(), *n == candidate))?;
        if owner != candidate {
            let term = me.term + 1;
            if term > self.terms || state.members[owner].term > me.term || state.members[owner].follows.is_some() {
                return None;
            }
            state.members[candidate].follow(None);
            state.members[owner].term = term;
            state.members[owner].voted = Some(owner);
        }
        let deciding = state.members[owner].deciding(self);
        let votes_in_all = |n: Node| deciding.iter().all(|set| set.has(n));
        let voter = (0..NODES)
            .filter(|n| *n != owner && votes_in_all(*n))
            .filter(|n| kinship(&state.members[*n].log, &state.members[owner].log) == Kinship::Same)
            .max_by_key(|n| state.members[*n].last())
            .filter(|_| !votes_in_all(owner))
            .unwrap_or(owner);
        // These could elect another sequencer by evidence, if they knew more of a change of voters, or less. So they take part.
        let rivals = deciding.iter().copied().find(|set| !set.majority(|n| votes[n] != Some(true)));
        let voters = match rivals {
            Some(set) if self.broken != Some(Mutant::ForkedAlone) => set,
            Some(_) | None => Set::alone(voter),
        };
        // All that vote were to be asked: also those of voters that were committed and of whom this log does not know.
        let newest =
            state.done.iter().rev().find_map(|e| if let Kind::Voters(set) = e.kind { Some(set) } else { None });
        let asked = deciding.iter().copied().chain(newest).flat_map(Set::members).collect::<Vec<Node>>();
        let left = asked.iter().map(|n| common(&state.members[*n].log, &state.done)).max().unwrap_or(0);
        if common(&state.members[owner].log, &state.done) < left {
            state.fault = Some("went on without something that was committed and that a voter's disk still has");
        }
        let kept = common(&state.members[owner].log, &state.done);
        state.done.truncate(kept);
        state.done_in.truncate(kept);
        self.become_sequencer(state, owner, Some(voters));
        Some(())
    }

    fn become_sequencer(&self, state: &mut State, node: Node, fork: Option<Set>) {
        let me = &mut state.members[node];
        me.role = Role::Sequencer([0; NODES]);
        me.follows = Some(node);
        me.repair = None;
        if let Some(voters) = fork {
            state.forks += 1;
            me.lower_marks(self);
            me.log.push(Entry { branch: state.forks, term: me.term, kind: Kind::Voters(voters) });
        }
        let branch = me.branch();
        me.log.push(Entry { branch, term: me.term, kind: Kind::Term });
        me.verified = me.log.len();
        self.acknowledge(state, node);
    }

    /// Tells its sequencer how much this member may acknowledge.
    fn acknowledge(&self, state: &mut State, node: Node) {
        let me = &state.members[node];
        let (term, held) = (me.term, me.durable(self).min(me.verified));
        let Some(sequencer) = me.follows else { return };
        let to = &mut state.members[sequencer];
        if let (true, Role::Sequencer(acks)) = (to.term == term, &mut to.role) {
            acks[node] = acks[node].max(held);
        }
    }

    fn replicate(&self, state: &mut State, from: Node, to: Node) -> Option<()> {
        let source = state.members[from].clone();
        if !matches!(source.role, Role::Sequencer(_)) || from == to {
            return None;
        }
        let peer = &mut state.members[to];
        if peer.term > source.term || peer.term == source.term && matches!(peer.role, Role::Sequencer(_)) {
            return None;
        }
        match kinship(&peer.log, &source.log) {
            Kinship::Same => {}
            // A member that somebody of its own branch leads stays there.
            Kinship::Ancestor(fork) if peer.commit <= fork && peer.follows.is_none_or(|f| f == from) => {}
            Kinship::Ancestor(_) | Kinship::Other => return None,
        }
        let before = peer.clone();
        peer.adopt(source.term);
        if peer.follows != Some(from) {
            peer.follow(Some(from));
        }
        let same = common(&peer.log, &source.log);
        if same < peer.log.len() && same < source.log.len() {
            if same < peer.commit {
                state.fault = Some("a committed entry would be truncated");
                return Some(());
            }
            if source.log[same].branch != peer.branch() {
                // Taking the own tail off and appending the fork are two operations of the disk.
                peer.suspect = true;
                peer.truncate(same);
                return Some(());
            }
            peer.truncate(same);
        }
        if let Some(next) = source.log.get(same) {
            if next.branch != peer.branch() {
                peer.lower_marks(self);
            }
            peer.log.push(*next);
            peer.verified = same + 1;
        } else {
            peer.verified = same;
        }
        if peer.suspect && peer.repair.is_none() {
            peer.repair = Some(source.log.len());
        }
        // Before the fork's entry is here, what its branch has committed says nothing about this log.
        if peer.branch() == source.branch() {
            peer.commit = peer.commit.max(source.commit.min(peer.verified));
        }
        peer.note_commit();
        peer.settle_suspicion(self);
        let changed = before != *peer;
        self.acknowledge(state, to);
        changed.then_some(())
    }

    /// Every member counts for itself, as far as its log is the sequencer's.
    fn commit(&self, state: &mut State, node: Node) -> Option<()> {
        let me = &state.members[node];
        let sequencer = me.follows?;
        let acks = match state.members[sequencer].role {
            Role::Sequencer(acks) if state.members[sequencer].term == me.term => acks,
            _ => return None,
        };
        let own = me.durable(self).min(me.verified);
        let held = |n: Node| if n == node { own } else { acks[n] };
        let mut committed = None;
        for to in me.commit + 1..=me.verified {
            let entry = me.log[to - 1];
            let of_term = entry.term == me.term && entry.branch == me.branch();
            if (of_term || self.broken == Some(Mutant::OlderTermCommits)) && me.majority(self, |n| held(n) >= to) {
                committed = Some(to);
            }
        }
        let to = committed?;
        if common(&me.log, &state.done) < to.min(state.done.len()) {
            state.fault = Some("two histories");
        }
        if state.done.len() < to {
            state.done = Log::from_slice(&me.log[..to]);
            state.done_in.resize(to, me.term);
        }
        let me = &mut state.members[node];
        me.commit = to;
        me.note_commit();
        Some(())
    }

    fn vote(&self, state: &mut State, voter: Node, candidate: Node) -> Option<()> {
        let other = state.members[candidate].clone();
        let Role::Candidate(mut votes) = other.role else { return None };
        if voter == candidate
            || votes[voter].is_some()
            || !other.deciding(self).iter().any(|s| s.has(voter)) && !other.voters().2.has(voter)
        {
            return None;
        }
        let me = &mut state.members[voter];
        if me.term > other.term {
            return None;
        }
        let lost = match kinship(&me.log, &other.log) {
            Kinship::Same => false,
            Kinship::Ancestor(fork) if me.commit <= fork => true,
            Kinship::Ancestor(_) | Kinship::Other => return None,
        };
        let raised = other.term > me.term;
        me.adopt(other.term);
        let good = match self.broken {
            Some(Mutant::LongestLog) => other.log.len() >= me.log.len(),
            _ => other.last() >= me.last(),
        };
        let free = me.voted.is_none_or(|v| v == candidate) && me.follows.is_none();
        if !free || !(lost || good) || other.log.len() < me.mark {
            return raised.then_some(());
        }
        me.suspect |= lost;
        me.voted = Some(candidate);
        votes[voter] = Some(!me.suspect || self.broken == Some(Mutant::SuspectVotes));
        state.members[candidate].role = Role::Candidate(votes);
        Some(())
    }

    fn stand(&self, state: &mut State, node: Node) -> Option<()> {
        let me = &mut state.members[node];
        let votes = me.voters().0.has(node) || me.voters().2.has(node);
        if matches!(me.role, Role::Sequencer(_)) || me.term == self.terms || !votes || me.log.len() < me.mark {
            return None;
        }
        me.adopt(me.term + 1);
        me.voted = Some(node);
        let mut promised = [None; NODES];
        promised[node] = Some(!me.suspect || self.broken == Some(Mutant::SuspectVotes));
        me.role = Role::Candidate(promised);
        Some(())
    }

    fn change_voters(&self, state: &mut State, node: Node, set: Set) -> Option<()> {
        let me = &state.members[node];
        let (now, at, _) = me.voters();
        let other = now != set && set.has(node);
        let Role::Sequencer(acks) = me.role else { return None };
        // A newcomer's log is close to the end.
        let ready = set.members().all(|n| now.has(n) || acks[n] == me.log.len());
        if !me.is_established()
            || at > me.commit
            || !other
            || !ready
            || !self.may_append(me)
            || state.voter_changes == self.voter_changes
        {
            return None;
        }
        state.voter_changes += 1;
        self.append(state, node, Kind::Voters(set));
        Some(())
    }

    fn may_append(&self, me: &Member) -> bool {
        let (_, at, _) = me.voters();
        let blocked = at > me.commit.max(me.mark) && me.log[at - 1].term == me.term;
        matches!(me.role, Role::Sequencer(_)) && me.log.len() < self.log && !blocked
    }

    fn append(&self, state: &mut State, node: Node, kind: Kind) {
        let me = &mut state.members[node];
        me.log.push(Entry { branch: me.branch(), term: me.term, kind });
        me.verified = me.log.len();
        self.acknowledge(state, node);
    }

    /// Those of the branch's voters that have not heard of it keep the others from committing anything there.
    fn give_up(&self, state: &mut State, node: Node) -> Option<()> {
        let me = &state.members[node];
        let (set, at, _) = me.voters();
        let begun = at > 1 && me.log[at - 2].branch != me.log[at - 1].branch && at > me.commit;
        let unheard = |n: Node| n != node && matches!(kinship(&state.members[n].log, &me.log), Kinship::Ancestor(_));
        if !begun || me.follows.is_some() || set.majority(|n| !unheard(n)) {
            return None;
        }
        let me = &mut state.members[node];
        me.truncate(at - 1);
        me.suspect = true;
        Some(())
    }

    fn lose_power(&self, state: &mut State, node: Node, left: Len) -> Option<()> {
        let me = &mut state.members[node];
        if state.power_losses == self.power_losses || left < me.synced || left > me.log.len() {
            return None;
        }
        state.power_losses += 1;
        me.truncate(left);
        me.synced = left;
        me.suspect |= !self.synced_acks;
        me.restart();
        Some(())
    }

    fn damage(&self, state: &mut State, node: Node, left: Len) -> Option<()> {
        let me = &mut state.members[node];
        if state.damages == self.damages || left == 0 || left >= me.synced {
            return None;
        }
        state.damages += 1;
        me.truncate(left);
        me.suspect = true;
        me.restart();
        Some(())
    }
}

impl Model for Rules {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let voters = Entry { branch: 0, term: 0, kind: Kind::Voters(self.first_voters) };
        let first = Entry { branch: 0, term: 1, kind: Kind::Term };
        let log: Log = if self.begun { smallvec![voters, first] } else { smallvec![voters] };
        let member = |node: Node| Member {
            term: u8::from(self.begun),
            voted: self.begun.then_some(0),
            synced: log.len(),
            suspect: false,
            mark: 1,
            hint: 1,
            role: if self.begun && node == 0 { Role::Sequencer([log.len(); NODES]) } else { Role::Follower },
            follows: self.begun.then_some(0),
            verified: if self.begun { log.len() } else { 0 },
            repair: None,
            commit: log.len(),
            log: log.clone(),
        };
        let (members, done) = (std::array::from_fn(member), log.clone());
        vec![State {
            members,
            done,
            done_in: if self.begun { smallvec![0, 1] } else { smallvec![0] },
            forks: 0,
            restarts: 0,
            power_losses: 0,
            damages: 0,
            voter_changes: 0,
            hints: 0,
            fault: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        for node in 0..NODES {
            let me = &state.members[node];
            let others = (0..NODES).filter(|n| *n != node);
            match me.role {
                Role::Follower => actions.extend([Action::Stand(node), Action::GiveUp(node)]),
                Role::Candidate(votes) => {
                    actions.extend([Action::Stand(node), Action::TakeOffice(node)]);
                    actions.extend(others.filter(|n| votes[*n].is_none()).map(|voter| Action::Vote(voter, node)));
                }
                Role::Sequencer(_) => actions.extend(others.map(|peer| Action::Replicate(node, peer))),
            }
            if me.follows.is_some() {
                actions.push(Action::Commit(node));
            }
            if self.may_append(me) {
                actions.push(Action::Write(node));
            }
            if me.synced < me.log.len() {
                actions.push(Action::Sync(node));
            }
            if state.voter_changes < self.voter_changes {
                actions.extend((1..=Set::ALL.0).map(|set| Action::ChangeVoters(node, Set(set))));
            }
            if state.hints < self.hints && me.hint < me.commit {
                actions.push(Action::Hint(node));
            }
            if state.restarts < self.restarts {
                actions.push(Action::Restart(node));
            }
            if state.power_losses < self.power_losses {
                actions.extend((me.synced..=me.log.len()).map(|left| Action::LosePower(node, left)));
            }
            if state.damages < self.damages {
                actions.extend((1..me.synced).map(|left| Action::Damage(node, left)));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Stand(node) => self.stand(&mut state, node)?,
            Action::Vote(voter, candidate) => self.vote(&mut state, voter, candidate)?,
            Action::TakeOffice(node) => self.take_office(&mut state, node)?,
            Action::Write(node) => self.append(&mut state, node, Kind::Data),
            Action::ChangeVoters(node, set) => self.change_voters(&mut state, node, set)?,
            Action::Replicate(from, to) => self.replicate(&mut state, from, to)?,
            Action::Sync(node) => {
                let me = &mut state.members[node];
                me.synced = me.log.len();
                me.settle_suspicion(self);
                self.acknowledge(&mut state, node);
            }
            Action::Commit(node) => self.commit(&mut state, node)?,
            Action::Hint(node) => {
                state.hints += 1;
                state.members[node].hint = state.members[node].commit;
            }
            Action::Restart(node) => {
                state.restarts += 1;
                state.members[node].restart();
            }
            Action::LosePower(node, left) => self.lose_power(&mut state, node, left)?,
            Action::Damage(node, left) => self.damage(&mut state, node, left)?,
            Action::GiveUp(node) => self.give_up(&mut state, node)?,
        }
        Some(state)
    }
}

/// The result of the exploration of one run.
pub struct Found {
    /// Different states that were reached.
    pub states: usize,
    /// The first promise that was broken; none when all states within the bounds were seen.
    pub broken: Option<Broken>,
}

pub struct Broken {
    pub promise: String,
    /// From the beginning. Members may change places after each, so a number names one only within a step.
    pub steps: Vec<Action>,
}

/// The rules once more, with one state for all that differ in the members' places only.
#[derive(Clone)]
struct Placeless(Rules);

impl Model for Placeless {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.0.init_states().iter().map(State::representative).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.0.actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        Some(self.0.next_state(last, action)?.representative())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no promise is broken", |_, state: &State| state.fault.is_none()),
            Property::always("one sequencer per branch and term", |_, state: &State| {
                let orders = |m: &Member| matches!(m.role, Role::Sequencer(_));
                let same =
                    |a: &Member, b: &Member| orders(a) && orders(b) && a.term == b.term && a.branch() == b.branch();
                (0..NODES).all(|a| (0..a).all(|b| !same(&state.members[a], &state.members[b])))
            }),
            Property::always("nothing is taken for committed that was not", |_, state: &State| {
                // On a branch that a fork has overtaken, what the fork undid may still be taken for committed.
                let newest = |m: &&Member| m.branch() == state.forks;
                state.members.iter().filter(newest).all(|m| m.commit <= common(&m.log, &state.done))
            }),
        ]
    }
}

/// How to go through the schedules.
#[derive(Clone, Copy)]
pub enum Search {
    /// The short ones first. The states that are still to be gone on from are kept: gigabytes in large bounds.
    Broad,
    /// Each to its end. The steps to each state are kept and copied, which takes twice the time.
    Deep,
}

/// Goes through all schedules within the bounds, or up to the first broken promise. Uses all processors.
pub fn explore(rules: Rules, search: Search) -> Found {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let checker = Placeless(rules).checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    match search {
        Search::Broad => found(&checker.spawn_bfs().join()),
        Search::Deep => found(&checker.spawn_dfs().join()),
    }
}

fn found(checker: &impl Checker<Placeless>) -> Found {
    let broken = checker.discoveries().into_iter().next().map(|(name, path)| Broken {
        promise: path.last_state().fault.unwrap_or(name).to_string(),
        steps: path.into_actions(),
    });
    Found { states: checker.unique_state_count(), broken }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_schedule_breaks_a_promise() {
        for (name, rules) in runs::small() {
            let found = explore(rules, Search::Broad);
            assert!(found.states > 1000, "{name}: {} states are no exploration", found.states);
            assert!(found.broken.is_none(), "{name}: {}", found.broken.unwrap().promise);
        }
    }

    #[test]
    fn every_broken_rule_is_found() {
        for (name, rules) in runs::mutants() {
            assert!(explore(rules, Search::Broad).broken.is_some(), "{name}: not found");
        }
    }

    #[test]
    fn forks_and_changes_of_voters_are_within_the_bounds() {
        // A promise that is broken as soon as it happens: so that "nothing broken" is not said of a model that stands still.
        let reached = |rules: Rules, hit: fn(&State) -> bool| {
            let mut seen: Vec<State> = rules.init_states();
            let mut known = std::collections::HashSet::new();
            while let Some(state) = seen.pop() {
                if hit(&state) {
                    return true;
                }
                seen.extend(
                    rules
                        .next_steps(&state)
                        .into_iter()
                        .map(|(_, s)| s.representative())
                        .filter(|s| known.insert(s.clone())),
                );
            }
            false
        };
        let [_, (_, forks), (_, voters), _, (_, both), _] = runs::small().try_into().unwrap();
        assert!(reached(forks, |s| s.done.iter().any(|e| e.branch > 0 && e.kind == Kind::Term)));
        // Behind the first entry, and not by a fork.
        fn changed(log: &[Entry]) -> bool {
            log[1..].iter().any(|e| e.branch == 0 && matches!(e.kind, Kind::Voters(_)))
        }
        assert!(reached(voters, |s| changed(&s.done)));
        // A fork behind a change of voters, and one that leaves a change out.
        assert!(reached(both.clone(), |s| s.members.iter().any(|m| m.branch() == 1 && changed(&m.log))));
        assert!(reached(both, |s| s.voter_changes == 1 && s.done.iter().any(|e| e.branch == 1) && !changed(&s.done)));
    }
}
