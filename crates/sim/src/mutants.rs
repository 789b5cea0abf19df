//! Rules that are broken on purpose, and how often that has to be noticed. A checker that never fires proves nothing.
//!
//! A *mutant* breaks one rule, in the order (`crates/order/src/mutant.rs`), in what members decide by the history
//! (`crates/replicator/src/mutant.rs`), or in what is around them ([`Sabotage`](crate::Sabotage)). The ordinary runs have to notice: by a
//! verdict of a checker, or by an assertion of the code. `trireme-sim --mutants` counts how often they do.

use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};

use crate::directed::{
    a_failed_statement_in_an_outage, a_failed_sync, a_lock_in_a_stop, a_statement_in_an_outage, a_switch_under_load,
    a_vote_of_one, an_old_copy, an_old_disk, cloned, figure_8,
};
use crate::options::{Kind, Options};
use crate::run::run;

/// A mutant of the table in docs/testing.md.
pub struct Known {
    pub name: &'static str,
    /// Of docs/protocol.md, section 9. Empty: none of them.
    pub rules: &'static str,
    pub broken: &'static str,
    /// The way in which it is mostly noticed.
    pub seen: &'static str,
    pub runs: Runs,
}

/// Where it is looked for.
#[derive(Clone, Copy)]
pub enum Runs {
    /// In runs drawn from seeds. `floor`: at least so many of [`OF`] runs notice.
    Drawn { kind: Kind, floor: u64 },
    /// In a scenario of its own, with so many seeds. `floor`: so many of them notice.
    Directed { scenario: fn(u64, Option<&str>) -> Option<String>, seeds: u64, floor: u64 },
    /// In the tests of the order (`crates/order/tests/group/mutants.rs`): it takes a certain lie, or something that nobody does here.
    TestOfOrder,
    /// In the tests of the replicator (`crates/replicator/tests/replicator.rs`): it takes a member that was away for long, or one that never
    /// comes, beside data that a statement was cut off in everywhere.
    TestOfReplicator,
}

/// How long is it looked for?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Until it is noticed once: a minute of one processor for all of them.
    Short,
    /// To measure the rate: until it is noticed 50 times, or in 10,000 runs.
    Long,
}

/// Rates and floors are told of so many runs.
pub const OF: u64 = 100_000;

impl Form {
    /// Is it looked for in one more run? In no form is it given up before its floor allows that.
    fn goes_on(self, noticed: u64, runs: u64, floor: u64) -> bool {
        let longer = match self {
            Form::Short => false,
            Form::Long => noticed < 50 && runs < 10_000,
        };
        longer || noticed == 0 && runs < OF / floor
    }
}

/// The result of the search for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub noticed: u64,
    pub runs: u64,
    /// The first words with which it was noticed.
    pub text: String,
    /// It is noticed as often as it has to be.
    pub enough: bool,
}

impl Found {
    /// So many of [`OF`] runs notice.
    pub fn rate(&self) -> u64 {
        self.noticed * OF / self.runs.max(1)
    }
}

/// The verdict on a run: nothing, if all promises hold. An assertion of the code counts as well.
fn verdict(run: impl Fn() -> Option<String> + UnwindSafe) -> Option<String> {
    catch_unwind(run).unwrap_or_else(|_| Some("an assertion of the code".into()))
}

impl Known {
    /// Looks for it. `None`: it is not one of the simulator's.
    ///
    /// **Errors:** a run that fails without it tells nothing about it.
    pub fn search(&self, form: Form) -> Option<Result<Found, String>> {
        match self.runs {
            Runs::Drawn { kind, floor } => Some(self.search_drawn(kind, floor, form)),
            Runs::Directed { scenario, seeds, floor } => Some(self.count(
                |broken, seed| scenario(seed, broken),
                |noticed, runs| runs < seeds && (noticed < floor || form == Form::Long),
                |noticed, _| noticed >= floor,
            )),
            Runs::TestOfOrder | Runs::TestOfReplicator => None,
        }
    }

    /// At least so many of [`OF`] runs notice, if it is looked for in ordinary ones.
    pub fn floor(&self) -> Option<u64> {
        match self.runs {
            Runs::Drawn { floor, .. } => Some(floor),
            Runs::Directed { .. } | Runs::TestOfOrder | Runs::TestOfReplicator => None,
        }
    }

    fn search_drawn(&self, kind: Kind, floor: u64, form: Form) -> Result<Found, String> {
        let judged = |broken: Option<&str>, seed| {
            let mut options = Options::of(kind, seed);
            if let Some(name) = broken {
                assert!(options.break_by_name(name), "no mutant {name}");
            }
            run(options, false).failure.map(|f| f.text)
        };
        self.count(
            judged,
            |noticed, runs| form.goes_on(noticed, runs, floor),
            |noticed, runs| noticed * OF >= floor * runs,
        )
    }

    fn count(
        &self,
        judged: impl Fn(Option<&str>, u64) -> Option<String> + RefUnwindSafe,
        goes_on: impl Fn(u64, u64) -> bool,
        enough: impl Fn(u64, u64) -> bool,
    ) -> Result<Found, String> {
        let (mut noticed, mut runs, mut first) = (0, 0, String::new());
        while goes_on(noticed, runs) {
            let seed = runs;
            runs += 1;
            let Some(text) = verdict(|| judged(Some(self.name), seed)) else { continue };
            if let Some(text) = verdict(|| judged(None, seed)) {
                return Err(format!("seed {seed} fails without {}: {text}", self.name));
            }
            noticed += 1;
            if first.is_empty() {
                first = text;
            }
        }
        Ok(Found { noticed, runs, text: first, enough: enough(noticed, runs) })
    }

    /// Its row of the table in docs/testing.md, with the measured values.
    pub fn row(&self, found: &Found) -> String {
        let (begin, end) = self.row_around();
        let (noticed, runs) = (found.noticed, found.runs);
        match self.runs {
            Runs::Drawn { .. } => format!("{begin}{noticed} of {runs} | {}{end}", found.rate()),
            Runs::Directed { .. } => format!("{begin}{noticed} of {runs} | –{end}"),
            Runs::TestOfOrder | Runs::TestOfReplicator => format!("{begin}– | –{end}"),
        }
    }

    /// Its row before and behind the measured values.
    pub fn row_around(&self) -> (String, String) {
        let (place, floor) = match self.runs {
            Runs::Drawn { kind, floor } => (kind.name(), floor.to_string()),
            Runs::Directed { seeds, floor, .. } => ("scenario", format!("{floor} of {seeds}")),
            Runs::TestOfOrder => ("test of the order", "–".to_owned()),
            Runs::TestOfReplicator => ("test of the replicator", "–".to_owned()),
        };
        let rules = if self.rules.is_empty() { "–" } else { self.rules };
        let (name, broken, seen) = (self.name, self.broken, self.seen);
        (format!("| `{name}` | {rules} | {broken} | {seen} | {place} | "), format!(" | {floor} |"))
    }
}

/// The head of that table.
pub const HEAD: &str = "\
| mutant | rule | what is broken | mostly noticed as | where | noticed | of 100,000 | floor |
|---|---|---|---|---|---|---|---|";

macro_rules! known {
    ($($name:literal, $rules:literal, $runs:expr, $broken:literal => $seen:literal;)+) => {
        /// All of them, by the number of the rule.
        pub const KNOWN: &[Known] = &[
            $(Known { name: $name, rules: $rules, broken: $broken, seen: $seen, runs: $runs },)+
        ];
    };
}

const fn swarm(floor: u64) -> Runs {
    Runs::Drawn { kind: Kind::Swarm, floor }
}

const fn large(floor: u64) -> Runs {
    Runs::Drawn { kind: Kind::Large, floor }
}

const fn hostile(floor: u64) -> Runs {
    Runs::Drawn { kind: Kind::Hostile, floor }
}

const fn restored(floor: u64) -> Runs {
    Runs::Drawn { kind: Kind::Restored, floor }
}

known! {
    "longest-log", "1", swarm(40), "the longest log wins a vote, whatever its last term" => "committed entries replaced";
    "forgotten-promise", "1", swarm(300), "term and vote do not survive the process" => "an assertion of the order";
    "acks-of-any-term", "2", swarm(50), "an acknowledgement counts in whatever term it was given" => "delivered without a majority";
    "acks-kept", "2", swarm(375), "acknowledgements of the last term count in the next one" => "no primary view any more; delivered without a majority";
    "stale-sync", "2", swarm(40), "a sync counts that began before the tail was replaced" => "acknowledged and not on disk";
    "ack-unsynced", "2, 15", swarm(6000), "what is written counts as synced" => "delivered without a majority on disk";
    "ack-unwritten", "2", large(2500), "a large entry counts as written when its first piece is" => "acknowledged and not written";
    "sync-unwritten", "2", large(6000), "a sync counts for the record that is being written" => "acknowledged and not written";
    "lying-disk", "2", swarm(2000), "synced entries are lost with the power" => "two histories";
    "lost-writes", "2", swarm(3500), "written entries do not survive the process" => "two histories";
    "older-term-commits", "2", Runs::Directed { scenario: figure_8, seeds: 20, floor: 1 },
        "an entry of an older term is committed by counting (Raft's figure 8)" => "two histories";
    "pieces-mixed", "", large(50), "a record that is taken back before it is whole leaves its pieces to the next one"
        => "logs differ; a body that no client wrote";
    "bodies-withheld", "3", swarm(1000), "missing bodies are not handed out: safe, not live" => "no convergence";
    "duplicates", "4", swarm(2500), "what was ordered is ordered again" => "a number twice";
    "never-stands", "6", swarm(8000), "nobody stands for election: safe, not live" => "no convergence";
    "new-voters-alone", "8", swarm(500), "a voter change is decided by the new voters alone" => "delivered without a majority";
    "data-ignored", "10, 18", swarm(225), "where the members' data are is not looked at" => "nobody has data in the end";
    "two-incarnations", "12", swarm(2500), "a new incarnation enters beside the old one" => "a node twice in a view";
    "short-log-votes", "12", restored(2500), "a log that ends below what peers heard acknowledged counts as evidence" => "two histories";
    "voters-forgotten", "12", Runs::Directed { scenario: an_old_disk, seeds: 20, floor: 10 },
        "a member forgets at a start that the voters in its log may be those of then" => "an old disk decides by the voters of then";
    "twin-returns", "12", Runs::Directed { scenario: cloned, seeds: 20, floor: 1 },
        "whoever has seen a clone links the node that it replaced again" => "two histories";
    "fork-merged", "13", swarm(10), "which branch a log or a message belongs to is not looked at" => "no common primary view any more";
    "arbitrator-forgets", "14", swarm(25), "an arbitrator leads although it has dropped what a server lacks" => "an arbitrator gives a state without data";
    "switch-unsynced", "15", swarm(30), "a switch to mode `disk` is acknowledged before it is synced" => "acknowledged and not on disk";
    "process-kept", "15", Runs::Directed { scenario: a_switch_under_load, seeds: 20, floor: 10 },
        "after a switch to mode `disk` the log goes on saying `process` until a sync leaves nothing unsynced" => "a log that says `process` in mode `disk`";
    "suspect-votes", "16", swarm(75), "a log that may have lost its end with the power counts as evidence" => "two contents at one index of a branch";
    "term-unsynced", "16", swarm(2500), "in mode `process` the first entry of a term is acknowledged before it is synced" => "acknowledged and not on disk";
    "fork-unsuspected", "16", Runs::TestOfOrder, "a log whose end another branch takes the place of stays evidence of its own branch until the fork is in it"
        => "a log is taken for whole that lacks something";
    "outage-trusted", "16, 17", swarm(10), "a log that is opened again after an outage of its disk is not compared with what it had acknowledged"
        => "a log is taken for whole that lacks something";
    "doubt-unnoted", "16, 17", Runs::Directed { scenario: a_failed_sync, seeds: 20, floor: 10 },
        "a log whose disk has failed notes nothing of what that may have lost" => "a log is taken for whole that lacks something";
    "power-trusted", "16", swarm(850), "a log that has lost its end with the power is taken for whole" => "a log is taken for whole that lacks something";
    "hole-trusted", "17", swarm(325), "a log that ends at damage counts as evidence" => "a log is taken for whole that lacks something";
    "withdraw-sent", "22, 23", swarm(2000), "what was sent is withdrawn too" => "a withdrawn operation that is ordered";
    "statement-abandoned", "22", Runs::Directed { scenario: a_statement_in_an_outage, seeds: 20, floor: 10 }, "at an outage the client of an isolated statement hears that it was not executed" => "a withdrawn operation that is ordered";
    "answered-early", "", Runs::Directed { scenario: a_statement_in_an_outage, seeds: 20, floor: 10 },
        "a statement that was ordered before its server is fed again is answered at once" => "a server is fed again from elsewhere than it stands";
    "executed-twice", "", swarm(50000), "what a client executes goes to an applier as well" => "a client and an applier are given the same";
    "session-kept", "23", swarm(40), "after giving up, the same session gives the same numbers" => "an answer that belongs to another operation";
    "victim-spared", "23", swarm(325), "a local transaction that is in the way of an applier goes on" => "a lost update";
    "replay-overtaken", "23", swarm(125), "the server lets clients certify although an ordered victim waits to be applied again" => "a lost update; two that are applied together change the same row";
    "local-cut", "24", swarm(8000), "the certification index is cut by the own database's position" => "other states after the same entry";
    "lag-unordered", "24", swarm(2000), "whoever orders leaves a laggard out of its own cut, and does not order that" => "other states after the same entry";
    "isolation-ignored", "24", swarm(500), "an isolated statement is certified like any other" => "an isolated statement that may run beside another write set";
    "depends-on-ignored", "24", swarm(1750), "an applier begins before what the keys of its write set order before it is committed" => "two that are applied together change the same row";
    "streams-kept", "24", swarm(1500), "a view does not end the streaming transactions of those that left" => "other transactions open than should be";
    "read-committed", "25", swarm(500), "a read is sent to the committed position" => "a stale read";
    "read-without-round", "25", swarm(15), "a read is answered without asking a majority" => "a stale read";
    "half-done-trusted", "26", swarm(40), "data that a statement was cut off in count as whole" => "different data in the end";
    "goes-on-early", "26", Runs::TestOfReplicator, "a member goes on from half-done data although a voter is absent that may have whole ones" => "the test of that rule";
    "overtaken-trusted", "26", Runs::TestOfReplicator, "data from before another member went on from half-done ones are gone on with" => "the test of that rule";
    "vote-ignored", "28", swarm(125), "a member that was outvoted about an error goes on with what it has" => "different data in the end";
    "failure-forgotten", "28", swarm(10), "a node that is started again does not know what its server failed at" => "different data in the end";
    "outlived-forgotten", "28", Runs::Directed { scenario: a_failed_statement_in_an_outage, seeds: 20, floor: 10 }, "a statement that failed in an outage of the log's disk counts as a success" => "different data in the end";
    "contradiction-ignored", "28", swarm(15), "what the data held when they were found is not compared with what the group has decided" => "different data in the end";
    "newcomers-unasked", "28", Runs::Directed { scenario: a_vote_of_one, seeds: 20, floor: 10 },
        "a vote does not wait for members that have not said yet whether they have data" => "a vote that one member decides";
    "open-votes-ignored", "28", Runs::TestOfReplicator, "a member that comes back says nothing of the votes that began while nobody could hear it" => "the test of that rule";
    "position-trusted", "31", swarm(50), "a server goes on from the position that the state file claims, not from its engine's" => "other data on one node";
    "stop-unsynced", "31", swarm(375), "a stop records its position as on disk without waiting for the engine" => "a position recorded as on disk that is not there";
    "trimmed-in-memory", "32", swarm(50), "the log is trimmed by what is committed in memory" => "a log that begins behind what the engine has on disk";
    "replay-dropped", "32", Runs::TestOfOrder, "a log is replaced although it could still replay what the engine lacks on its disk" => "the test of that rule";
    "copy-unchecked", "33", Runs::Directed { scenario: an_old_copy, seeds: 20, floor: 10 }, "a copy is good for whatever log it meets" => "new write sets that do not commit";
    "marks-over-fork", "34", Runs::TestOfOrder, "what was known to be committed stays known behind a fork below it" => "the test of that rule";
    "stranger-believed", "35", hostile(5000), "whoever is linked is believed, whatever it says" => "an honest member is evicted";
    "stranger-overrules", "35", Runs::TestOfOrder, "log and data are given up for anybody" => "the test of that rule";
    "terms-unbounded", "35", hostile(2000), "any term is taken over" => "no majority when the liar is gone";
    "driven-up-stays-out", "35", Runs::TestOfOrder, "a voter whose term was raised alone is not let in again: safe, not live" => "the test of that rule";
    "away-stays-out", "35", Runs::TestOfOrder, "a member does not follow the terms of a majority beyond the bound: safe, not live" => "the test of that rule";
    "heavy-newcomer", "35", Runs::TestOfOrder, "a newcomer has the weight that it asks for at once" => "the test of that rule";
    "unreadable-written", "36", Runs::TestOfOrder, "an entry is written that no reader of the log accepts" => "the test of that rule";
    "level-alone", "37", swarm(50), "the group level rises without those that do not support it" => "a raise beside a linked member of a lower build";
    "violator-kept", "38", Runs::TestOfOrder, "a message that proves its sender a liar is handled like any other" => "the test of that rule";
    "stop-never-expires", "", swarm(250), "flow control: a stop that is not heard again stays in force" => "a stop that holds up commits and was not heard for long";
    "stop-said-once", "", swarm(800), "flow control: a stop in force is not said again" => "a stop in force that is not said again";
    "go-never-said", "", swarm(1750), "flow control: the end of a stop is not said" => "a stop whose end is not said";
    "never-gives-up", "", swarm(175), "flow control: a member that applies nothing asks for a stop without end" => "a stop beyond its patience";
    "recall-forgotten", "", Runs::Directed { scenario: a_lock_in_a_stop, seeds: 20, floor: 10 }, "a transaction that flow control holds back keeps its locks when an applier wants them" => "new write sets that do not commit";
    "room-ignored", "", swarm(650), "the log of a server that waits for its data goes on growing when its disk has no room" => "a log that fills the disk";
    "eviction-forgotten", "", swarm(75), "the order is not told who is evicted" => "no convergence: an evicted member is in the view";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Sabotage;

    #[test]
    fn no_mutant_is_forgotten() {
        let order = trireme_order::Mutant::ALL.iter().map(|m| m.name());
        let replicator = trireme_replicator::Mutant::ALL.iter().map(|m| m.name());
        let mut there: Vec<&str> = order.chain(replicator).chain(Sabotage::ALL.iter().map(|s| s.name())).collect();
        let mut known: Vec<&str> = KNOWN.iter().map(|k| k.name).collect();
        there.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, there);
    }

    /// A kind of runs that notices anything is no kind to look for a mutant in.
    #[test]
    fn what_fails_without_a_mutant_is_no_catch() {
        let sound = |_: Option<&str>, _| Some("always".to_owned());
        let known = &KNOWN[0];
        assert!(known.count(sound, |_, runs| runs < 3, |_, _| true).is_err());
        let broken = |broken: Option<&str>, seed: u64| broken.filter(|_| seed == 2).map(str::to_owned);
        let found = known.count(broken, |noticed, runs| noticed < 1 && runs < 9, |noticed, _| noticed > 0);
        assert_eq!(found, Ok(Found { noticed: 1, runs: 3, text: known.name.into(), enough: true }));
    }
}
