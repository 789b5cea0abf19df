//! Inconsistency votes in the model of a server: some write sets fail on one member, or on all alike, and the group decides who has wrong
//! data (rule 28).

use trireme_replicator::message::AppMessage;
use trireme_replicator::roster::NodeState;
use trireme_replicator::votes::{ErrorClass, Settled};
use trireme_types::{Member, Seqno};

use crate::cluster::{Cluster, Event, Stop};
use crate::database::By;
use crate::judge::Part;
use crate::options::{Kind, Sabotage};
use crate::rng::{Rng, mix};
use crate::situations::Situation;
use crate::watch::Stage;

/// A member that is alone with an error among so many with data is outvoted: with fewer, its word would be as good as theirs.
const MEMBERS_MIN: usize = 3;

/// The one of so many servers that fails alone, as follows from the seed.
pub(crate) fn fails_alone(seed: u64, servers: usize) -> usize {
    Rng::new(seed ^ 0x0065_7272).below(servers as u64) as usize
}

impl Cluster {
    /// The error with which the server in this place fails to apply an operation. It follows from the seed. In a harmless run all fail
    /// alike, in others one server fails alone.
    pub(crate) fn error_of(&self, slot: usize, op: u64, part: Part) -> Option<ErrorClass> {
        if self.options.error_share == 0.0 {
            return None;
        }
        let statement = part == Part::Isolated && self.options.statement_error_share > 0.0;
        let share = if statement { self.options.statement_error_share } else { self.options.error_share };
        let alike = match self.options.kind {
            Kind::Harmless => true,
            Kind::Swarm | Kind::Restored | Kind::Large | Kind::Hostile => {
                statement && self.options.statements_fail_alike
            }
        };
        let fails = (alike || fails_alone(self.options.seed, self.slots.len()) == slot)
            && Rng::new(self.options.seed ^ mix(op)).chance(share);
        fails.then_some(ErrorClass(1 << 63 | op))
    }

    /// May the server go on with what is next for it? Not while it waits for the outcome of a vote.
    pub(crate) fn passes_vote(&mut self, slot: usize) -> bool {
        let s = &mut self.slots[slot];
        let next = s.db.queue.front().and_then(|c| Some((Seqno(c.seqno), c.fails?, c.by == By::Statement, c.isolated)));
        let Some((seqno, code, own, isolated)) = next else { return true };
        let alike = isolated && self.options.statements_fail_alike;
        let Some(p) = &mut s.process else { return true };
        let roster = p.replicator.roster();
        let with_data = |m: &&Member| roster.state(m.node).is_some_and(|state| state >= NodeState::Donor);
        let members = p.view.as_ref().map_or(0, |v| v.members.iter().filter(with_data).count());
        if p.voting == Some(seqno) {
            return false;
        }
        let ((), outcome) = p.ballots.failed(seqno, || ());
        match outcome {
            Some(winner) => {
                self.slots[slot].db.note_failure(code);
                self.on_outcome(slot, seqno, winner)
            }
            None if own && p.outage.is_some() => {
                let _ = p.ballots.unheard(seqno);
                s.db.note_failure(code);
                self.outlive(slot);
                true
            }
            None if alike && p.outage.is_some() => {
                self.fail_in_outage(slot);
                false
            }
            None if !alike && (members < MEMBERS_MIN || !p.replicator.is_member()) => {
                // Nobody to ask: this time it works.
                let _ = p.ballots.unheard(seqno);
                if let Some(change) = s.db.queue.front_mut() {
                    change.fails = None;
                }
                true
            }
            None => {
                p.voting = Some(seqno);
                p.say(AppMessage::Vote { seqno, class: code, text: "error".into() });
                self.slots[slot].db.note_failure(code);
                self.log(|| format!("n{slot} fails at {seqno}"));
                self.arose(Situation::InconsistencyVote);
                if own {
                    self.break_in_statement(slot);
                }
                self.tempt(slot, Stage::Vote);
                false
            }
        }
    }

    /// The disk with the log of a server whose statement has failed is out before the vote is ordered. At one server at a time: the others
    /// have their data.
    fn break_in_statement(&mut self, slot: usize) {
        let alone = (0..self.slots.len())
            .all(|o| o == slot || self.is_running(o) && !self.sits_out(o) && self.slots[o].db.valid);
        if self.options.statement_error_share == 0.0 || self.calm || !alone || !self.outages.chance(0.7) {
            return;
        }
        let sick = self.any_sickness();
        let drops = self.outages.chance(0.3);
        let works_at = self.now + self.outages.exp(self.options.outage_mean);
        self.let_disk_refuse(slot, sick, 0, works_at, drops);
    }

    /// The statement at which the server in this place has failed goes on without its effect, since nobody can hear that.
    fn outlive(&mut self, slot: usize) {
        self.arose(Situation::StatementOutlived);
        self.log(|| format!("n{slot} goes on over a statement that failed"));
        let s = &mut self.slots[slot];
        if let Some(change) = s.db.queue.front_mut()
            && let Some(p) = &mut s.process
        {
            change.fails = None;
            change.rows.clear();
            p.outlived.insert(Seqno(change.seqno));
        }
    }

    /// The disk with the log in this place is out, and nobody hears of a failure. A client's statement goes on, and is compared with the
    /// result later. `false`: the server has ended.
    pub(crate) fn abandon_vote_in_outage(&mut self, slot: usize) -> bool {
        let s = &mut self.slots[slot];
        let Some(p) = &mut s.process else { return false };
        p.ballots.abandon();
        let Some(seqno) = p.voting.take() else { return true };
        let server = p.server;
        let Some(next) = s.db.queue.front().filter(|c| Seqno(c.seqno) == seqno) else { return true };
        if next.by != By::Statement {
            self.fail_in_outage(slot);
            return false;
        }
        self.outlive(slot);
        self.after(0, Event::Applied { slot, server, seqno: seqno.0 });
        true
    }

    /// A state has skipped the end of a vote without a result, for which the server in this place waits.
    pub(crate) fn end_skipped_votes(&mut self, slot: usize) {
        let Some(p) = &mut self.slots[slot].process else { return };
        if p.ballots.waiting().next().is_some() {
            // A vote of a session that is over is said again once something of the present one is ordered.
            p.replicator.handle_abandoned();
        }
        let ended = |failed: &Seqno| p.replicator.is_dismissed(*failed) && !p.proposals.votes_on(*failed);
        let ended: Vec<Seqno> = p.ballots.waiting().filter(ended).collect();
        for seqno in ended {
            self.on_vote_dismissed(slot, seqno, true);
        }
    }

    /// An applier of the server in this place fails while nobody can hear that: its data are not known to be the group's.
    fn fail_in_outage(&mut self, slot: usize) {
        self.give_up_data(slot);
        self.restart_server(slot);
    }

    fn give_up_data(&mut self, slot: usize) {
        let db = &mut self.slots[slot].db;
        db.outvoted |= db.valid;
        db.invalidate();
        db.queue.clear();
    }

    /// How `seqno`, which the server in this place has left behind, went there, as far as that is known.
    fn how_it_went(&self, slot: usize, seqno: Seqno) -> Option<ErrorClass> {
        match self.options.sabotage {
            Some(Sabotage::OutlivedForgotten) => Some(ErrorClass::SUCCESS),
            _ => self.slots[slot].db.noted(seqno),
        }
    }

    /// The vote on `seqno`, which the server in this place has left behind, had this result.
    fn compare_with_vote(&mut self, slot: usize, seqno: Seqno, winner: ErrorClass) {
        let outlived = self.slots[slot].process.as_mut().is_some_and(|p| p.outlived.remove(&seqno));
        if self.how_it_went(slot, seqno).is_some_and(|held| held != winner) {
            // It answered readers as soon as it had applied that, and nobody could know better.
            self.values.disown(slot, seqno.0);
            self.be_inconsistent(slot);
        } else if outlived {
            self.arose(Situation::OutlivedConfirmed);
        }
    }

    /// The others wait for this member's word on `seqno`, which its server has left behind.
    fn answer_vote(&mut self, slot: usize, seqno: Seqno) {
        let class = self.how_it_went(slot, seqno).unwrap_or(ErrorClass::SUCCESS);
        if let Some(p) = &mut self.slots[slot].process {
            p.say(AppMessage::Vote { seqno, class, text: String::new() });
        }
    }

    /// The server in this place failed at `seqno`, and the group has decided. `true`: it goes on.
    fn on_outcome(&mut self, slot: usize, seqno: Seqno, winner: ErrorClass) -> bool {
        let ignored = self.options.sabotage == Some(Sabotage::VoteIgnored);
        let Some(change) = self.slots[slot].db.queue.front_mut().filter(|c| Seqno(c.seqno) == seqno) else {
            return true;
        };
        if change.fails == Some(winner) || ignored {
            // It has no effect anywhere.
            change.fails = None;
            change.rows.clear();
            self.values.no_effect(change.op);
            return true;
        }
        self.be_inconsistent(slot);
        false
    }

    pub(crate) fn be_inconsistent(&mut self, slot: usize) {
        self.arose(Situation::VoteLost);
        self.give_up_data(slot);
        if let Some(p) = &mut self.slots[slot].process {
            p.stopped = Some(Stop::Server("its data are not the group's".into()));
        }
        self.schedule_step(slot);
    }

    /// Something was applied, and nobody here waits for the result of a vote on it.
    pub(crate) fn settle_vote(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        let at = Seqno(s.db.now.position);
        let Some(p) = s.process.as_mut().filter(|p| p.ballots.any()) else { return };
        match p.ballots.settle(at) {
            Settled::Nothing => {}
            Settled::Owed => self.answer_vote(slot, at),
            Settled::Decided(winner) => self.compare_with_vote(slot, at, winner),
        }
    }

    pub(crate) fn on_vote_begun(&mut self, slot: usize, seqno: Seqno) {
        let s = &mut self.slots[slot];
        let applied = s.db.valid && s.db.now.position >= seqno.0;
        let Some(p) = &mut s.process else { return };
        if p.ballots.begun(seqno) && applied && p.ballots.repay(seqno) {
            self.answer_vote(slot, seqno);
        }
    }

    pub(crate) fn on_vote_done(&mut self, slot: usize, seqno: Seqno, winner: ErrorClass, applied: bool) {
        let s = &mut self.slots[slot];
        let applied = applied && s.db.valid && s.db.now.position >= seqno.0;
        let Some(p) = &mut s.process else { return };
        match p.ballots.decided(seqno, winner) {
            Some(()) => self.end_vote(slot, seqno, winner),
            None if applied && p.ballots.settle(seqno) == Settled::Decided(winner) => {
                self.compare_with_vote(slot, seqno, winner);
            }
            None => {}
        }
    }

    pub(crate) fn on_vote_dismissed(&mut self, slot: usize, seqno: Seqno, lost: bool) {
        self.arose(Situation::VoteDismissed);
        let Some(p) = &mut self.slots[slot].process else { return };
        match p.ballots.dismissed(seqno, lost) {
            Some(()) => self.end_vote(slot, seqno, ErrorClass::SUCCESS),
            None if lost => self.compare_with_vote(slot, seqno, ErrorClass::SUCCESS),
            None => {}
        }
    }

    fn end_vote(&mut self, slot: usize, seqno: Seqno, winner: ErrorClass) {
        if let Some(p) = &mut self.slots[slot].process {
            p.voting = None;
        }
        if self.on_outcome(slot, seqno, winner)
            && let Some(p) = &self.slots[slot].process
        {
            let server = p.server;
            self.after(0, Event::Applied { slot, server, seqno: seqno.0 });
        }
    }
}
