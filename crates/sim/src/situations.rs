//! How often each situation of the protocol arose in a run, by what the simulator itself saw: messages as they were sent, entries as they
//! landed in logs, harm as it was done to nodes. A campaign adds them up and fails when one arose in too few of its runs: seeds that meet
//! nothing prove nothing.

use crate::options::Kind;

macro_rules! situations {
    ($($(#[$doc:meta])* $name:ident = $text:literal: $swarm:literal),+ $(,)?) => {
        trireme_types::named! {
            pub enum Situation { $($(#[$doc])* $name = $text,)+ }
        }

        impl Situation {
            /// At least so many of 10,000 runs of the swarm. About half of what was measured.
            fn floor_of_swarm(self) -> u64 {
                match self { $(Situation::$name => $swarm),+ }
            }
        }
    };
}

situations! {
    // Terms.
    /// Somebody began to order in a term of its own.
    Election = "election": 4_700,
    /// Two asked for votes in one term.
    SplitVote = "two candidates in one term": 45,
    /// A vote was refused.
    VoteRefused = "vote refused": 390,
    /// A sequencer asked another member to take over.
    HandOver = "hand-over": 340,
    /// A member replaced the end of its log by what a newer term has there.
    TailReplaced = "tail of a log replaced": 680,
    /// A member's log and the sequencer's did not meet.
    LogRejected = "log does not meet": 2_900,
    /// A member asked for bodies that had not come from their origin.
    BodiesAsked = "bodies asked for": 3_600,
    /// A causal read asked the sequencer of another node.
    ReadRound = "causal read asks another node": 4_100,
    /// The majority was lost.
    NonPrimary = "majority lost": 1_200,
    /// An arbitrator ordered.
    ArbitratorLeads = "arbitrator orders": 160,
    // Voters, views, forks.
    VoterChange = "voter change": 5_000,
    /// A term began while a change of the voters was in somebody's log and known to be committed by nobody.
    ElectionInVoterChange = "election during a voter change": 520,
    Fork = "fork": 240,
    /// A component was asked for by hand.
    ForcedRun = "forced run": 66,
    /// Members of a branch that lost discarded their data.
    DataDiscarded = "data discarded": 9,
    /// Somebody was thrown out.
    Evicted = "evicted": 60,
    /// A node left in order.
    Left = "left in order": 670,
    /// An identity came back on a new disk.
    NewDisk = "disk replaced": 42,
    // Logs that may lack something.
    /// A process began on a log that is no evidence.
    Suspect = "log under suspicion": 660,
    /// It became evidence again.
    SuspicionSettled = "suspicion settled": 640,
    /// All voters were there, and the one with the best log was told to decide.
    Entrusted = "best log told to decide": 3,
    /// A branch began where data reach beyond all logs.
    BegunFromData = "branch begun from data": 25,
    /// A server went on with an arbitrator's log: its data hold the entries that the arbitrator had dropped.
    DroppedInData = "arbitrator's log begins in data": 2,
    /// Power was lost, and entries with it.
    EntriesLost = "entries lost with the power": 440,
    /// A change of the durability setting was committed.
    DurabilitySwitched = "durability switched": 55,
    /// The power of all, or most, failed after one.
    PowerAfterSwitch = "power of most lost after a switch": 7,
    /// In the end acknowledged commits were gone that may be lost.
    CommitsLost = "commits lost with the power": 25,
    /// An old copy of a disk was put back.
    OldDisk = "old disk put back": 0,
    /// The disk of a log failed, and its node sat out.
    Outage = "log's disk in outage": 330,
    /// It worked again.
    OutageEnded = "outage of a log's disk over": 280,
    /// And what was not synced was gone, or the process died before.
    OutageLost = "entries lost in an outage": 23,
    /// A server was fed again from where it stood.
    Resumed = "server goes on after an outage": 240,
    /// A desync counted in it, and the group was told when the node was back.
    DesyncedInOutage = "desynced in an outage": 5,
    /// A client's statement was ordered before its server was fed again.
    OrderedUnfed = "own statement ordered before the server is fed": 35,
    /// Neither writes nor syncs returned.
    DiskHung = "log's disk hangs": 170,
    /// A process died in the middle of a record.
    TornRecord = "death in the middle of a record": 180,
    /// A process died while it wrote past the page cache.
    PastCacheCut = "death with a write past the cache": 67,
    // Joining, copies, servers.
    SnapshotSent = "snapshot sent": 4_700,
    /// To a member that votes.
    SnapshotToVoter = "snapshot sent to a voter": 150,
    CopyUnderWay = "full copy under way": 4_700,
    CopyFailed = "full copy failed": 950,
    /// It arrived, and the log had moved on: another one is asked for.
    CopyOfNoUse = "full copy of no use": 70,
    /// A process died in the middle of a statement in total-order isolation.
    HalfDone = "half-done statement": 35,
    /// Nobody had better data: the half-done ones were gone on with.
    HalfDoneGoneOnWith = "half-done data gone on with": 3,
    /// … that reach further than all logs, for a person to look at: such a run has no common view in the end. Too seldom for a floor; a test in
    /// `run.rs` has it.
    HalfDoneAhead = "half-done data ahead of all logs": 0,
    /// … that end before all logs begin, likewise, and nobody has others.
    HalfDoneBehind = "half-done data behind all logs": 0,
    /// The only data that logs go on from lost a vote, and the winner's are gone: a person looks at the loser's files.
    Outvoted = "only data lost a vote": 0,
    /// The data that are left end before the logs begin: a person said in the end that the cluster goes on from them.
    PersonDecided = "person goes on from old data": 0,
    /// … once the arbitrator was stopped that has what the servers can no longer be given.
    ArbitratorStopped = "arbitrator stopped for a person's word": 0,
    /// Nothing came of what an operator had forced, and in the end it was forced again.
    ForcedAgain = "forced again in the end": 0,
    /// The engine could not be asked at a start, and when it ran it was elsewhere than the state file says.
    ClaimRefused = "claim not confirmed by the engine": 8,
    /// Several were at work in a server at a time.
    AppliedTogether = "write sets applied together": 4_700,
    /// One was done before another one that is ordered before it.
    AppliedAhead = "applied before its turn to commit": 4_600,
    /// A client waited for a row.
    LockWait = "client waits for a lock": 2_900,
    /// An applier wanted its locks.
    GaveWay = "client gives way to an applier": 1_300,
    /// It was a streaming transaction that had got fragments committed, and waited for nothing to be ordered.
    StreamHit = "streaming transaction hit between fragments": 400,
    /// It wanted to commit, and nothing was sent while somebody replayed.
    HeldBack = "commit held back": 350,
    /// And was aborted meanwhile.
    Recalled = "commit held back and aborted": 180,
    /// And it was ordered already.
    Replayed = "ordered transaction applied again": 780,
    /// The engine was asked at a start, and was elsewhere than the state file says.
    ClaimCorrected = "claim corrected by the engine": 10,
    /// A member asked the others to write less.
    FlowStop = "flow control: stop said": 1_090,
    /// And a client had to wait for that.
    FlowHeld = "flow control: commit held back": 870,
    /// And an applier wanted its locks meanwhile.
    FlowRecalled = "flow control: held back and aborted": 140,
    /// Nothing more was heard of whoever said stop.
    FlowExpired = "flow control: stop expired unheard": 160,
    /// A member that applied nothing asked for nothing any more.
    FlowGivenUp = "flow control: member gave up": 130,
    /// As by a backup.
    OrderPaused = "commit order paused": 1_200,
    /// A thread of a server waited for a message, which the group did not hear in time.
    ThreadUnheard = "thread's message not heard": 110,
    /// A server failed to apply something, and asked the group.
    InconsistencyVote = "inconsistency vote": 180,
    /// It died before there was a result, and its engine had stored that it was done.
    DeathInVote = "death in a vote, behind what failed": 27,
    /// And it was outvoted.
    VoteLost = "inconsistency vote lost": 180,
    /// A client's statement failed and went on, because the disk with the log was out.
    StatementOutlived = "failed statement goes on in an outage": 55,
    /// And in the end the group had failed alike.
    OutlivedConfirmed = "its error confirmed after the outage": 48,
    /// There was no majority for a result in time.
    VoteDismissed = "inconsistency vote dismissed": 0,
    /// A client was told that its commit did not happen.
    Withdrawn = "commit withdrawn": 210,
    /// A node gave up what it had proposed.
    GivenUp = "proposals given up": 220,
    /// Because there was no majority for too long.
    PatienceOver = "proposals given up without a majority": 160,
    /// A statement in total-order isolation was among them, and its client waits on.
    StatementWaits = "statement waits on": 22,
    /// Its client heard that it was not executed, because it never will be ordered.
    NeverOrdered = "statement known never to be ordered": 10,
    /// A view ended streaming transactions.
    StreamsEnded = "streams ended by a view": 1_200,
    /// A log kept entries that a member which is away lacks.
    KeptForAbsent = "log kept for an absent member": 1_500,
    /// An operator's trim dropped something.
    LogTrimmed = "log trimmed by an operator": 230,
    /// Or some of what it was to drop had to stay.
    TrimHeldBack = "operator's trim held back": 560,
    /// The log of a server that waited for its data left too little room on its disk.
    NoRoom = "no room for a log without data": 320,
    /// A server was chosen to give a copy for an arbitrator.
    DonorForArbitrator = "donor for an arbitrator": 410,
    /// A laggard was left out of the commit cut.
    Laggard = "laggard left out of the cut": 1_300,
    /// Nodes are dead for good, and the others have to go on.
    DeadMinority = "dead minority": 2_500,
    // Two builds in one cluster.
    /// A node came back with the former build after the newer one.
    SteppedBack = "step back to the former build": 210,
    /// The level rose in a cluster that had been of two builds.
    LevelRaised = "group level raised": 540,
    /// The former build found a log above its level.
    BuildRefused = "former build refused by its log": 160,
    // Harm that met a state of the protocol.
    StruckVoterChange = "struck: voter change in flight": 1_000,
    StruckFork = "struck: fork at k of n": 8,
    StruckPromise = "struck: promise saved, answer queued": 50,
    StruckSnapshot = "struck: snapshot sent": 270,
    StruckCopy = "struck: full copy under way": 1_400,
    StruckStatement = "struck: statement in isolation": 130,
    StruckVote = "struck: vote on an error of its own open": 85,
    StruckOutage = "struck: log's disk in outage": 90,
    StruckStart = "struck: start": 480,
    StruckStop = "struck: stop": 260,
    StruckFlow = "struck: flow control's stop": 280,
    // A node lies.
    /// A lie was heard.
    Lie = "lie": 0,
    /// One that docs/protocol.md names was left out.
    HarmfulLie = "lie with a cost left out": 0,
    /// A node proved itself a liar, and was left.
    LiarLeft = "liar left": 0,
    /// The others were no majority of the voters without the liar, and a person had to decide.
    LiarNeeded = "liar needed": 0,
}

impl Situation {
    /// At most so many of 10,000 runs of any kind, for the situations that excuse a run: without them it would fail. Half-done data lay ahead of
    /// all logs in one of 50,000 runs of the swarm; the others arose in none of 3,000.
    fn ceiling(self) -> Option<u64> {
        match self {
            Situation::HalfDoneAhead => Some(1),
            Situation::HalfDoneBehind => Some(1),
            Situation::Outvoted => Some(1),
            Situation::PersonDecided => Some(4),
            Situation::ArbitratorStopped => Some(1),
            Situation::ForcedAgain => Some(4),
            Situation::LiarNeeded => Some(20),
            _ => None,
        }
    }

    /// The same of runs in which a node lies.
    fn floor_of_hostile(self) -> u64 {
        match self {
            Situation::Lie => 9_500,
            Situation::HarmfulLie => 5_000,
            Situation::LiarLeft => 1_000,
            Situation::Election => 5_000,
            _ => 0,
        }
    }
}

/// Counters of one run, or of many.
#[derive(Clone, Debug)]
pub struct Situations([u64; Situation::ALL.len()]);

impl Default for Situations {
    fn default() -> Situations {
        Situations([0; Situation::ALL.len()])
    }
}

impl Situations {
    pub fn arose(&mut self, situation: Situation) {
        self.0[situation as usize] += 1;
    }

    pub fn times(&self, situation: Situation) -> u64 {
        self.0[situation as usize]
    }
}

/// The situations that a campaign met.
#[derive(Default)]
pub struct Census {
    runs: u64,
    /// Runs in which it arose.
    met: Situations,
    times: Situations,
}

/// A floor or ceiling is held against a campaign in which it is so many runs: in smaller ones chance decides.
const EXPECTED_MIN: u64 = 10;

impl Census {
    pub fn add(&mut self, run: &Situations) {
        self.runs += 1;
        for &situation in Situation::ALL {
            let at = situation as usize;
            self.met.0[at] += u64::from(run.0[at] > 0);
            self.times.0[at] += run.0[at];
        }
    }

    /// At least so many runs of a campaign of `kind`; `None`: that is not asked.
    fn floor(&self, situation: Situation, kind: Kind) -> Option<u64> {
        let of_10_000 = match kind {
            Kind::Swarm => situation.floor_of_swarm(),
            Kind::Harmless => 0,
            Kind::Large if situation == Situation::TornRecord => 2_200,
            Kind::Restored if situation == Situation::OldDisk => 3_900,
            Kind::Hostile => situation.floor_of_hostile(),
            Kind::Large | Kind::Restored => 0,
        };
        self.bound(of_10_000)
    }

    /// At most so many runs of a campaign; `None`: that is not asked.
    fn ceiling(&self, situation: Situation) -> Option<u64> {
        self.bound(situation.ceiling()?)
    }

    /// So many of 10,000, in runs of this campaign, if there are enough of them to tell.
    fn bound(&self, of_10_000: u64) -> Option<u64> {
        let bound = self.runs * of_10_000 / 10_000;
        (bound >= EXPECTED_MIN).then_some(bound)
    }

    /// Those that arose in too many runs.
    pub fn frequent(&self) -> Vec<Situation> {
        let is_frequent = |s: &&Situation| self.ceiling(**s).is_some_and(|ceiling| self.met.times(**s) > ceiling);
        Situation::ALL.iter().filter(is_frequent).copied().collect()
    }

    /// Those that arose in too few runs.
    pub fn rare(&self, kind: Kind) -> Vec<Situation> {
        let is_rare = |s: &&Situation| self.floor(**s, kind).is_some_and(|floor| self.met.times(**s) < floor);
        Situation::ALL.iter().filter(is_rare).copied().collect()
    }

    /// A line for each.
    pub fn table(&self, kind: Kind) -> String {
        let mut out = format!("{:<42} {:>10} {:>12} {:>10} {:>10}\n", "situation", "runs", "times", "floor", "ceiling");
        let asked = |bound: Option<u64>| bound.map_or("-".into(), |bound| bound.to_string());
        for &situation in Situation::ALL {
            let (floor, ceiling) = (asked(self.floor(situation, kind)), asked(self.ceiling(situation)));
            let (met, times) = (self.met.times(situation), self.times.times(situation));
            out += &format!("{:<42} {met:>10} {times:>12} {floor:>10} {ceiling:>10}\n", situation.name());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many runs, in some of which it arose.
    fn campaign(situation: Situation, runs: u64, met: u64) -> Census {
        let mut census = Census::default();
        for at in 0..runs {
            let mut run = Situations::default();
            (0..u64::from(at < met) * 3).for_each(|_| run.arose(situation));
            census.add(&run);
        }
        census
    }

    #[test]
    fn a_campaign_that_meets_too_little_is_found_out() {
        let campaign = |runs, met| campaign(Situation::OldDisk, runs, met);
        assert_eq!(campaign(100, 39).rare(Kind::Restored), []);
        assert_eq!(campaign(100, 38).rare(Kind::Restored), [Situation::OldDisk]);
        assert_eq!(campaign(100, 0).rare(Kind::Harmless), [], "nobody asks there");
        assert_eq!(campaign(20, 0).rare(Kind::Restored), [], "too few to tell");
        assert_eq!(campaign(100, 39).times.times(Situation::OldDisk), 117);
    }

    #[test]
    fn a_campaign_that_is_excused_too_often_is_found_out() {
        let ceiling = Situation::ForcedAgain.ceiling().expect("it excuses a run");
        let campaign = |runs, met| campaign(Situation::ForcedAgain, runs, met);
        assert_eq!(campaign(100_000, 10 * ceiling).frequent(), []);
        assert_eq!(campaign(100_000, 10 * ceiling + 1).frequent(), [Situation::ForcedAgain]);
        assert_eq!(campaign(10, 1).frequent(), [], "too few to tell");
    }
}
