//! One member's decisions, a situation per test.

use std::cell::Cell;
use std::time::Duration;
use trireme_replicator::message::AppMessage;
use trireme_replicator::retention::Growth;
use trireme_replicator::votes::ErrorClass;
use trireme_replicator::{
    Bounds, Connect, Effect, Failures, Feed, Offer, Position, Replicator, Severity, Sight, Start,
};
use trireme_types::{
    Incarnation, Level, LogIndex, Member, MemberKind, NodeId, Seqno, Timestamp, Uuid, View, Voter, VoterSet, Weight,
    Writer,
};

const HISTORY: Uuid = Uuid([7; 16]);
const FORK: Uuid = Uuid([8; 16]);

fn member(n: u8) -> Member {
    Member { node: NodeId(Uuid([n; 16])), incarnation: Incarnation(1), name: format!("n{n}"), ..Member::default() }
}

fn view(members: &[u8]) -> View {
    View { number: 1, members: members.iter().map(|n| member(*n)).collect() }
}

fn at(seqno: u64) -> Position {
    Position { history: HISTORY, seqno: Seqno(seqno) }
}

thread_local! {
    /// This is done with every member that this thread makes, to break it.
    static AT_START: Cell<Option<fn(&mut Replicator)>> = const { Cell::new(None) };
}

struct Subject {
    replicator: Replicator,
    index: u64,
    /// Its log cannot be synced.
    sick: bool,
}

impl Subject {
    /// Member 1; delivery begins after `base`.
    fn new(position: Option<u64>, fallback: Option<u64>, base: u64) -> Subject {
        Subject::with_failures(position, fallback, base, None)
    }

    fn with_failures(position: Option<u64>, fallback: Option<u64>, base: u64, failures: Option<Failures>) -> Subject {
        let (position, fallback) = (position.map(at), fallback.map(Seqno));
        let start = Start::Server { position, fallback, script: false, failures };
        let mut replicator = Replicator::new(&member(1), start, String::new(), Bounds::default());
        if let Some(change) = AT_START.get() {
            change(&mut replicator);
        }
        let mut subject = Subject { replicator, index: 0, sick: false };
        subject.reset(base);
        subject
    }

    fn reset(&mut self, base: u64) -> Vec<Effect> {
        self.reset_to(base, &[])
    }

    /// `state`: as another member knows it at the base.
    fn reset_to(&mut self, base: u64, state: &[u8]) -> Vec<Effect> {
        self.replicator.handle_reset(at(base), HISTORY, Level::FIRST, state).expect("it is well formed");
        self.effects()
    }

    fn state(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.replicator.encode(&mut w);
        w.buf
    }

    fn view(&mut self, seqno: u64, members: &[u8]) -> (Offer, Vec<Effect>) {
        self.index += 1;
        let offer = self.replicator.handle_view(Timestamp::ZERO, LogIndex(self.index), Seqno(seqno), &view(members));
        (offer, self.effects())
    }

    fn say(&mut self, from: u8, message: AppMessage) -> Vec<Effect> {
        self.index += 1;
        let seqno = self.replicator.delivered();
        let from = member(from).node;
        self.replicator.handle_message(Timestamp::ZERO, LogIndex(self.index), seqno, from, message);
        self.effects()
    }

    fn tick(&mut self) -> Vec<Effect> {
        self.tick_at(Timestamp::ZERO, &[])
    }

    fn tick_at(&mut self, now: Timestamp, voters: &[u8]) -> Vec<Effect> {
        self.tick_as(now, voters, false)
    }

    /// `orders`: the member is the sequencer.
    fn tick_as(&mut self, now: Timestamp, voters: &[u8], orders: bool) -> Vec<Effect> {
        let voter = |n: &u8| Voter { node: member(*n).node, weight: Weight(1) };
        let voters = || VoterSet { voters: voters.iter().map(voter).collect(), ..VoterSet::default() };
        let sight =
            Sight { left: Seqno::ZERO, backlog: 0, backlog_small: 0, orders, index_large: false, voters: &voters };
        self.replicator.handle_tick(now, sight);
        self.effects()
    }

    /// Has asked for a copy, which member 2 gives.
    fn copying(base: u64, own_view: u64) -> Subject {
        let mut s = Subject::new(None, None, base);
        s.view(own_view, &[1, 2]);
        s.say(2, AppMessage::Joined);
        s.say(2, AppMessage::Synced);
        s.replicator.handle_state_request(Timestamp::ZERO, b"rsync".to_vec());
        let asked = s.tick();
        let [Effect::DataAtRisk, Effect::Propose(request)] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(s.say(1, request.clone()), []);
        s
    }

    /// The effects but for the log's, and those about evictions or failures.
    fn effects(&mut self) -> Vec<Effect> {
        let mut all = Vec::new();
        while let Some(effect) = self.replicator.poll_effect() {
            if effect == Effect::SyncLog && !self.sick {
                self.replicator.handle_log_synced();
            }
            all.push(effect);
        }
        all.into_iter()
            .filter(|e| {
                !matches!(
                    e,
                    Effect::Log(Severity::Info | Severity::Warn, _)
                        | Effect::News(..)
                        | Effect::Evictions
                        | Effect::Remember(_)
                )
            })
            .collect()
    }

    /// Member 2 gave it.
    fn copy_arrives(&mut self, at: u64) -> Vec<Effect> {
        self.say(2, done());
        self.replicator.handle_state_received(Some(Seqno(at)));
        self.effects()
    }
}

fn dies(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Die(_)])
}

#[test]
fn a_server_whose_data_the_log_reaches_is_fed_from_its_own_position() {
    let mut s = Subject::new(Some(5), None, 3);
    let (offer, effects) = s.view(9, &[1, 2]);
    assert_eq!(offer, Offer::Keep);
    let connect = Some(Connect::AtPosition { seqno: Seqno(5), view: view(&[1, 2]) });
    assert_eq!(effects, [Effect::GoLive { position: at(5), connect }]);
    assert_eq!(s.replicator.handle_ordered(LogIndex(20), Seqno(10), false), Offer::Hand);
    assert_eq!(s.replicator.handle_ordered(LogIndex(20), Seqno(10), false), Offer::Skip);
}

#[test]
fn a_copy_ends_before_the_log_has_filled_the_disk() {
    let growth = Growth { held: 5 << 30, excess: 4 << 30, free: 1 << 20 };
    let mut s = Subject::copying(3, 5);
    s.replicator.handle_no_room(growth);
    let effects = s.effects();
    assert!(dies(&effects), "{effects:?}");
    assert!(!s.replicator.is_live());
    s.replicator.handle_no_room(growth);
    assert_eq!(s.effects(), [], "once");
    // With its data the server drains the log itself.
    let mut s = Subject::copying(3, 5);
    s.copy_arrives(6);
    assert!(s.replicator.is_live());
    s.replicator.handle_no_room(growth);
    assert!(s.replicator.is_live() && !dies(&s.effects()));
}

#[test]
fn data_that_the_log_does_not_reach_are_replaced() {
    let mut s = Subject::new(Some(5), None, 6);
    let (_, effects) = s.view(9, &[1, 2]);
    assert!(matches!(effects[..], [Effect::AskServer { data: true, .. }]), "{effects:?}");
}

/// As a server asks for data.
fn asks() -> AppMessage {
    AppMessage::StateRequest { donors: String::new(), request: b"rsync".to_vec(), position: None }
}

#[test]
fn where_all_lack_data_nobody_asks_but_says_whom_it_waits_for() {
    let mut s = Subject::new(None, None, 3);
    s.view(9, &[1, 2]);
    s.replicator.handle_state_request(Timestamp::ZERO, b"rsync".to_vec());
    assert_eq!(s.tick(), [Effect::DataAtRisk, Effect::Propose(asks())], "member 2 has not said anything");
    assert_eq!(s.say(1, asks()), [Effect::DataSafe], "refused: nobody will send anything");
    let later = |seconds| Timestamp::ZERO.after(Duration::from_secs(seconds));
    assert!(s.replicator.is_stranded(), "nobody gives anything, and it asks again");
    assert_eq!(s.tick_at(later(2), &[1, 2, 3]), [Effect::DataAtRisk, Effect::Propose(asks())]);
    assert!(!s.replicator.is_stranded(), "somebody may give");
    assert_eq!(s.say(2, asks()), []);
    assert_eq!(s.say(1, asks()), [Effect::DataSafe]);
    let absent = vec![member(3).node];
    assert_eq!(s.tick_at(later(4), &[1, 2, 3]), [Effect::DataSafe, Effect::NobodyHasData { absent }]);
    assert_eq!(s.tick_at(later(60), &[1, 2, 3]), [], "it was told");
    assert!(s.replicator.is_stranded());
    s.view(10, &[1, 2, 3]);
    assert_eq!(s.tick_at(later(61), &[1, 2, 3])[1..], [Effect::Propose(asks())], "member 3 may have data");
    assert_eq!(s.say(1, asks()), [Effect::DataSafe]);
    s.say(3, asks());
    assert_eq!(s.tick_at(later(63), &[1, 2, 3]), [Effect::DataSafe, Effect::NobodyHasData { absent: vec![] }]);
}

#[test]
fn a_server_without_data_that_is_alone_waits_for_the_other_voters() {
    let mut s = Subject::new(None, None, 3);
    s.view(9, &[1]);
    s.replicator.handle_state_request(Timestamp::ZERO, b"rsync".to_vec());
    let absent = vec![member(2).node];
    assert_eq!(s.tick_at(Timestamp::ZERO, &[1, 2]), [Effect::DataSafe, Effect::NobodyHasData { absent }]);
    s.view(10, &[1, 2]);
    assert_eq!(s.tick_at(Timestamp::ZERO, &[1, 2]), [Effect::DataAtRisk, Effect::Propose(asks())]);
}

/// Asks in a component with member 2, loses the majority, and is in one of these members now.
fn asked_before(mut s: Subject, members: &[u8]) -> Subject {
    s.view(9, &[1, 2]);
    s.replicator.handle_state_request(Timestamp::ZERO, b"rsync".to_vec());
    s.tick();
    s.replicator.handle_non_primary();
    s.view(10, members);
    s
}

/// Said once, and again in the next component.
fn asked_twice() -> Subject {
    let mut s = asked_before(Subject::new(None, None, 3), &[1, 2]);
    assert_eq!(s.tick(), [Effect::DataAtRisk, Effect::Propose(asks())]);
    s
}

/// A request from before a loss of the majority may still be ordered, and served.
#[test]
fn data_are_at_risk_until_every_request_was_refused() {
    let mut s = asked_twice();
    assert_eq!(s.say(1, asks()), [], "the first one");
    assert_eq!(s.say(1, asks()), [Effect::DataSafe]);
}

#[test]
fn nobody_is_asked_a_third_time_while_the_second_request_is_on_its_way() {
    let mut s = asked_twice();
    s.replicator.handle_lost(Timestamp::ZERO, &asks());
    assert_eq!(s.effects(), []);
    let later = Timestamp::ZERO.after(Duration::from_secs(60));
    assert_eq!(s.tick_at(later, &[1, 2]), []);
    s.replicator.handle_lost(later, &asks());
    assert_eq!(s.tick_at(later.after(Duration::from_secs(60)), &[1, 2]), [Effect::DataAtRisk, Effect::Propose(asks())]);
}

/// Asked while member 2 was there, and alone now.
fn asked_and_alone() -> Subject {
    let mut s = Subject::new(None, None, 3);
    s.replicator.handle_level(Level::WAITS_FOR_ALL);
    let mut s = asked_before(s, &[1]);
    let absent = vec![member(2).node];
    let effects = s.tick_at(Timestamp::ZERO, &[1, 2]);
    // A message that is ordered shows which of the former proposals are lost.
    assert_eq!(effects, [Effect::NobodyHasData { absent }, Effect::Propose(AppMessage::NoData)]);
    assert_eq!(s.tick_at(Timestamp::ZERO, &[1, 2]), []);
    s
}

#[test]
fn data_are_safe_once_the_last_request_is_known_to_be_lost() {
    let mut s = asked_and_alone();
    s.replicator.handle_lost(Timestamp::ZERO, &asks());
    assert_eq!(s.effects(), [Effect::DataSafe]);
}

#[test]
fn in_another_branch_nobody_knows_who_gives_in_the_former_one() {
    let mut s = asked_and_alone();
    s.replicator.note_branch(FORK);
    s.effects();
    s.replicator.handle_lost(Timestamp::ZERO, &asks());
    assert_eq!(s.effects(), []);
}

#[test]
fn a_copy_that_meets_the_log_is_gone_on_with() {
    let mut s = Subject::copying(3, 9);
    assert_eq!(s.copy_arrives(12), [Effect::DataArrived, Effect::GoLive { position: at(12), connect: None }]);
}

#[test]
fn a_copy_that_ends_below_a_base_that_came_meanwhile_is_refused() {
    let mut s = Subject::copying(3, 9);
    // Member 2 still gives at that base.
    let state = s.state();
    assert_eq!(s.reset_to(20, &state), [], "the server may not know yet where its data will end");
    let effects = s.copy_arrives(12);
    assert!(dies(&effects), "{effects:?}");
}

#[test]
fn a_copy_that_is_over_before_a_base_that_came_meanwhile_is_not_waited_for() {
    let mut s = Subject::copying(3, 9);
    let effects = s.reset(20);
    assert!(dies(&effects), "it has ended below the base, or failed: {effects:?}");
    assert_eq!(s.copy_arrives(20), [], "the server was told to end");
}

/// Members 1 and 2, of which 2 is synced and 1 has said that it wants a copy.
fn asked(base: u64) -> Subject {
    let mut s = Subject::new(None, None, base);
    s.view(9, &[1, 2]);
    s.say(2, AppMessage::Joined);
    s.say(2, AppMessage::Synced);
    s.replicator.handle_state_request(Timestamp::ZERO, b"rsync".to_vec());
    assert_eq!(s.tick(), [Effect::DataAtRisk, Effect::Propose(asks())]);
    s
}

#[test]
fn a_request_that_was_granted_in_the_part_that_a_snapshot_skips_is_known() {
    let granted = Subject::copying(3, 9).state();
    let mut s = asked(3);
    assert_eq!(s.reset_to(20, &granted), []);
    assert_eq!(s.tick(), [], "it was granted");
    let without_donor = s.view(21, &[1]).1;
    assert!(dies(&without_donor), "the donor is known: {without_donor:?}");
}

/// Swarm seed 75706237: it asked again, and nothing took that for the request that its donor was done with.
#[test]
fn a_request_from_before_a_loss_of_the_majority_that_was_granted_meanwhile_is_not_repeated() {
    let granted = Subject::copying(3, 9).state();
    let mut s = asked(3);
    s.replicator.handle_non_primary();
    s.reset_to(20, &granted);
    s.view(21, &[1, 2]);
    assert_eq!(s.tick(), [], "member 2 gives");
    let first = s.say(2, done());
    let then = s.copy_arrives(21);
    assert!(matches!(&then[..], [Effect::DataArrived, Effect::GoLive { .. }]), "{first:?} {then:?}");
}

#[test]
fn a_request_that_was_refused_in_the_part_that_a_snapshot_skips_is_repeated() {
    let mut s = asked(3);
    let not_yet = s.state();
    assert_eq!(s.reset_to(20, &not_yet), []);
    assert_eq!(s.tick(), [Effect::DataAtRisk, Effect::Propose(asks())]);
}

#[test]
fn a_request_that_is_ordered_a_second_time_does_not_make_data_safe_that_a_donor_replaces() {
    let mut s = asked(3);
    s.replicator.handle_non_primary();
    s.view(10, &[1, 2]);
    assert_eq!(s.tick(), [Effect::DataAtRisk, Effect::Propose(asks())]);
    assert_eq!(s.say(1, asks()), [], "member 2 gives");
    assert_eq!(s.say(1, asks()), []);
    assert_eq!(s.tick(), []);
}

#[test]
fn a_request_that_was_abandoned_is_repeated() {
    let mut s = asked(3);
    assert_eq!(s.tick(), []);
    s.replicator.handle_abandoned();
    assert_eq!(s.tick(), [Effect::DataAtRisk, Effect::Propose(asks())]);
}

#[test]
fn nothing_is_for_the_server_of_a_member_that_has_failed() {
    let mut s = Subject::new(Some(5), None, 5);
    s.view(6, &[1]);
    let effects = s.reset(20);
    assert!(matches!(effects[..], [Effect::Fail(_)]), "{effects:?}");
    assert_eq!(s.replicator.handle_ordered(LogIndex(20), Seqno(21), false), Offer::Skip);
    assert_eq!(s.view(22, &[1]).0, Offer::Skip);
    assert_eq!(s.replicator.handed(), Seqno(6), "where its data are");
    assert!(s.replicator.is_connected(), "it has to be told of the end");
    assert!(!s.replicator.serves());
}

/// The messages that an earlier session of this member left unsaid are known to be lost once something of the new one is
/// ordered.
#[test]
fn after_a_loss_of_the_majority_a_member_of_an_idle_group_says_where_it_is() {
    let mut s = Subject::new(Some(5), None, 5);
    s.view(6, &[1, 2]);
    s.say(1, AppMessage::Joined);
    s.say(1, AppMessage::Synced);
    assert_eq!(s.tick(), []);
    s.replicator.handle_non_primary();
    s.view(7, &[1, 2]);
    s.effects();
    assert_eq!(s.tick(), [Effect::Propose(AppMessage::LastCommitted { seqno: Seqno(0) })]);
    assert_eq!(s.tick(), [], "once");
}

/// Of the copy that member 1 gets.
fn done() -> AppMessage {
    AppMessage::DonorDone { joiner: member(1).node, ok: true }
}

/// Swarm seed 70112439: the donor was cut off, went on by itself (`pc.ignore_quorum`), and gave what only its side had.
#[test]
fn a_copy_is_taken_once_the_order_says_that_its_donor_is_done() {
    let mut s = Subject::copying(3, 9);
    s.replicator.handle_state_received(Some(Seqno(12)));
    assert_eq!(s.effects(), [], "the donor may be on another side by now");
    assert!(matches!(&s.say(2, done())[..], [Effect::DataArrived, Effect::GoLive { .. }]));

    let mut s = Subject::copying(3, 9);
    s.replicator.handle_state_received(Some(Seqno(12)));
    s.effects();
    let without_donor = s.view(10, &[1]).1;
    assert!(dies(&without_donor), "{without_donor:?}");
}

fn goes_live(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::DataArrived, Effect::GoLive { .. }])
}

#[test]
fn a_copy_whose_donor_was_done_in_the_part_that_a_snapshot_skips_is_taken() {
    let mut others = Subject::copying(3, 9);
    others.say(2, done());
    let mut s = Subject::copying(3, 9);
    s.replicator.handle_state_received(Some(Seqno(12)));
    s.effects();
    let effects = s.reset_to(10, &others.state());
    assert!(goes_live(&effects), "{effects:?}");
}

#[test]
fn a_request_that_is_ordered_a_second_time_takes_no_copy_back() {
    let mut s = Subject::copying(3, 9);
    assert_eq!(s.say(2, done()), []);
    assert_eq!(s.say(1, asks()), [], "nobody could give one by now, and nobody has to");
    s.replicator.handle_state_received(Some(Seqno(12)));
    let effects = s.effects();
    assert!(goes_live(&effects), "{effects:?}");
}

#[test]
fn data_that_a_person_brings_to_a_joiner_need_no_donor() {
    let mut s = Subject::new(None, None, 3);
    s.view(9, &[1, 2]);
    s.replicator.handle_state_request(Timestamp::ZERO, b"rsync".to_vec());
    s.replicator.handle_state_received(Some(Seqno(12)));
    let effects = s.effects();
    assert!(goes_live(&effects), "nobody was asked: {effects:?}");
}

#[test]
fn a_copy_that_nobody_here_gave_is_refused_once_the_request_cannot_come_any_more() {
    let mut s = asked(3);
    s.replicator.handle_state_received(Some(Seqno(12)));
    assert_eq!(s.effects(), [], "what was asked for may be granted yet");
    s.replicator.handle_non_primary();
    s.view(10, &[1, 2]);
    assert_eq!(s.tick(), [], "another donor would overwrite it");
    s.replicator.handle_refused(Timestamp::ZERO, &asks());
    let effects = s.effects();
    assert!(dies(&effects), "{effects:?}");
}

#[test]
fn a_copy_from_before_a_fork_is_refused_behind_it() {
    let mut s = Subject::copying(3, 9);
    s.replicator.note_branch(FORK);
    let effects = s.copy_arrives(12);
    assert!(dies(&effects), "{effects:?}");
}

#[test]
fn half_done_data_below_the_base_are_not_gone_on_with() {
    let mut s = Subject::new(None, Some(5), 3);
    let (_, effects) = s.view(9, &[1, 2]);
    assert_eq!(effects, [], "it is not told anything while nobody knows who has whole data");
    let effects = s.reset(7);
    assert!(matches!(effects[..], [Effect::AskServer { data: true, .. }]), "{effects:?}");
}

#[test]
fn half_done_data_of_another_history_are_not_gone_on_with() {
    let mut s = Subject::new(None, Some(5), 3);
    s.view(9, &[1]);
    s.replicator.handle_diverged();
    let effects = s.effects();
    assert!(matches!(effects[..], [Effect::AskServer { data: true, .. }]), "{effects:?}");
}

#[test]
fn of_half_done_data_one_member_goes_on() {
    let mut s = Subject::new(None, Some(5), 3);
    s.view(9, &[1]);
    assert_eq!(s.tick(), [Effect::Propose(AppMessage::HalfDone { position: Seqno(5) })]);
    assert_eq!(s.tick(), [], "once");
    s.say(1, AppMessage::HalfDone { position: Seqno(5) });
    assert_eq!(s.tick(), [Effect::Propose(AppMessage::GoOnHalfDone)]);
    // Swarm seed 75646415: the power failed, and with the log's end went the only word that older data are not the group's.
    let effects = s.say(1, AppMessage::GoOnHalfDone);
    assert!(matches!(effects[..], [Effect::SyncLog, Effect::DataArrived, Effect::GoLive { .. }]), "{effects:?}");
}

#[test]
fn half_done_data_wait_for_an_absent_server_and_for_no_absent_arbitrator() {
    for kind in [MemberKind::Data, MemberKind::Arbitrator] {
        let mut s = Subject::new(None, Some(5), 3);
        let mut both = view(&[1, 2]);
        both.members[1].kind = kind;
        s.replicator.handle_view(Timestamp::ZERO, LogIndex(6), Seqno(6), &both);
        s.view(9, &[1]);
        s.say(1, AppMessage::HalfDone { position: Seqno(5) });
        let goes_on = s.tick_at(Timestamp::ZERO, &[1, 2]).contains(&Effect::Propose(AppMessage::GoOnHalfDone));
        assert_eq!(goes_on, kind == MemberKind::Arbitrator);
    }
}

/// The disk with its log has failed. The server was told nothing.
#[test]
fn half_done_data_are_not_gone_on_with_before_the_log_is_synced() {
    let mut s = Subject::new(None, Some(5), 3);
    s.view(9, &[1]);
    s.say(1, AppMessage::HalfDone { position: Seqno(5) });
    s.replicator.handle_log_synced();
    assert_eq!(s.effects(), [], "nobody has asked for it");
    s.sick = true;
    let effects = s.say(1, AppMessage::GoOnHalfDone);
    assert!(matches!(effects[..], [Effect::SyncLog]), "{effects:?}");
    assert_eq!(s.view(10, &[1, 2]).0, Offer::Keep);
    assert!(!s.replicator.serves());
}

#[test]
fn a_server_that_serves_cannot_go_on_with_diverged_data() {
    let mut s = Subject::new(Some(5), None, 5);
    s.view(6, &[1]);
    s.replicator.handle_diverged();
    assert!(matches!(s.effects()[..], [Effect::Inconsistent(_)]));
}

#[test]
fn the_view_without_a_leaver_is_not_for_its_server() {
    let mut s = Subject::new(Some(5), None, 5);
    s.view(6, &[1, 2]);
    s.replicator.handle_leave();
    assert_eq!(s.view(7, &[2]).0, Offer::Skip);
    assert_eq!(s.replicator.handed(), Seqno(6), "where its data will be");
}

/// Its data, by a copy, were ahead of its log, which then began anew: behind what it had said of itself, and behind what followed from that.
#[test]
fn a_member_whose_own_word_lies_before_its_new_base_becomes_synced_all_the_same() {
    let (mut s, mut others) = (Subject::new(Some(5), None, 5), Subject::new(Some(5), None, 5));
    for subject in [&mut s, &mut others] {
        subject.view(6, &[1, 2]);
    }
    assert_eq!(s.tick(), [Effect::Propose(AppMessage::Joined)]);
    assert_eq!(s.tick(), [], "it is on its way");
    others.say(1, AppMessage::Joined);
    assert_eq!(s.reset_to(6, &others.state()), []);
    assert_eq!(s.tick(), [Effect::Propose(AppMessage::Synced)]);
    others.say(1, AppMessage::Synced);
    assert_eq!(s.reset_to(6, &others.state()), [Effect::Synced { at: Seqno(6) }]);
    assert_eq!(s.reset_to(6, &others.state()), [], "it knows");
    assert_eq!(s.tick(), []);
}

/// Member 1, which has data that are whole.
fn synced() -> Subject {
    let mut s = Subject::new(Some(5), None, 5);
    s.view(6, &[1, 2]);
    s.tick();
    s.say(1, AppMessage::Joined);
    s.tick();
    s.say(1, AppMessage::Synced);
    s
}

#[test]
fn a_donor_that_was_chosen_in_the_part_that_a_snapshot_skips_says_that_it_gives_nothing() {
    let (mut s, mut others) = (synced(), synced());
    assert!(matches!(&others.say(2, asks())[..], [Effect::Donate { .. }]));
    assert_eq!(s.reset_to(6, &others.state()), []);
    let done = AppMessage::DonorDone { joiner: member(2).node, ok: false };
    assert_eq!(s.tick(), [Effect::Propose(done.clone())]);
    assert_eq!(s.tick(), [], "it is on its way");
    s.replicator.handle_refused(Timestamp::ZERO, &done);
    assert_eq!(s.tick(), [Effect::Propose(done.clone())], "it got lost");
    s.say(1, done);
    assert_eq!(s.tick(), [Effect::Propose(AppMessage::Synced)], "it can be a donor again");
}

#[test]
fn a_donor_whose_server_was_asked_before_a_snapshot_is_at_it() {
    let mut s = synced();
    assert!(matches!(&s.say(2, asks())[..], [Effect::Donate { .. }]));
    let state = s.state();
    assert_eq!(s.reset_to(6, &state), []);
    assert_eq!(s.tick(), []);
}

#[test]
fn who_comes_back_to_a_running_server_goes_on_where_it_stands() {
    let mut s = Subject::new(Some(5), None, 5);
    s.view(6, &[1, 2]);
    let again = s.replicator.to_return(HISTORY, None);
    let mut me = member(1);
    me.incarnation = Incarnation(2);
    let mut r = Replicator::new(&me, again, String::new(), Bounds::default());
    r.handle_reset(at(3), HISTORY, Level::FIRST, &[]).unwrap();
    r.handle_ordered(LogIndex(5), Seqno(7), false);
    let now = View { number: 2, members: vec![me.clone(), member(2)] };
    assert_eq!(r.handle_view(Timestamp::ZERO, LogIndex(6), Seqno(8), &now), Offer::Keep);
    let effects: Vec<Effect> = std::iter::from_fn(|| r.poll_effect()).filter(|e| *e != Effect::Evictions).collect();
    let others = View { number: 2, members: vec![member(2)] };
    assert_eq!(effects, [Effect::Resume { position: at(6), seqno: Seqno(8), view: others }]);
    assert_eq!(r.feed(), &Feed::Live { handed: Seqno(8), floor: Seqno(5) });
}

fn vote(seqno: u64, code: u64) -> AppMessage {
    AppMessage::Vote { seqno: Seqno(seqno), class: ErrorClass(code), text: String::new() }
}

/// Swarm seed 78660119: a view without it made the others forget that it has no data. The vote waited for its answer, the donor for the vote, and it for
/// the donor.
#[test]
fn a_joiner_that_comes_back_into_the_view_says_again_that_it_has_no_data() {
    let mut s = Subject::copying(3, 9);
    s.replicator.handle_level(Level::WAITS_FOR_ALL);
    s.view(10, &[2]);
    s.view(11, &[2, 1]);
    assert_eq!(s.say(2, vote(11, 77)), [], "it may have data");
    assert_eq!(proposes(&s.tick()), [AppMessage::NoData]);
    assert_eq!(proposes(&s.tick()), [], "it is on its way");
    let decided = s.say(1, AppMessage::NoData);
    assert!(matches!(&decided[..], [Effect::VoteDone { seqno: Seqno(11), .. }]), "{decided:?}");
    assert_eq!(proposes(&s.tick()), [], "all know it");
}

/// Of data from the beginning on: `failed` with error 77.
fn failures(failed: &[u64]) -> Option<Failures> {
    let mut failures = Failures::begin(at(0));
    failed.iter().for_each(|seqno| failures.note(Seqno(*seqno), ErrorClass(77)));
    Some(failures)
}

/// Member 1 comes back with its data at 7, in which what is in `failed` is missing.
fn back(failed: &[u64]) -> Subject {
    back_with(failures(failed))
}

fn back_with(failures: Option<Failures>) -> Subject {
    let mut s = Subject::with_failures(Some(7), None, 2, failures);
    s.view(4, &[2, 3]);
    for n in [2, 3] {
        s.say(n, AppMessage::Joined);
        s.say(n, AppMessage::Synced);
    }
    s
}

fn proposes(effects: &[Effect]) -> Vec<AppMessage> {
    let said = |e: &Effect| if let Effect::Propose(message) = e { Some(message.clone()) } else { None };
    effects.iter().filter_map(said).collect()
}

#[test]
fn data_that_contradict_a_result_from_before_the_return_are_replaced_by_a_copy() {
    for (failed, codes, copies) in
        [(&[][..], [77, 77], true), (&[3], [77, 77], false), (&[3], [0, 0], true), (&[], [0, 0], false)]
    {
        let mut s = back(failed);
        s.say(2, vote(3, codes[0]));
        s.say(3, vote(3, codes[1]));
        assert_eq!(s.replicator.roster().decided(Seqno(3)), Some(ErrorClass(codes[0])));
        s.view(8, &[2, 3, 1]);
        let copying = matches!(s.replicator.feed(), Feed::Copying(_));
        assert_eq!(copying, copies, "failed {failed:?}, decided {codes:?}");
        assert_eq!(s.replicator.is_live(), !copies);
    }
}

#[test]
fn what_came_with_a_copy_is_not_compared() {
    // Nor is what is not known at all.
    for failures in [Some(Failures::begin(at(5))), None] {
        let mut s = Subject::with_failures(Some(7), None, 2, failures);
        s.view(4, &[2, 3]);
        for n in [2, 3] {
            s.say(n, AppMessage::Joined);
            s.say(n, vote(3, 77));
        }
        s.view(8, &[2, 3, 1]);
        assert!(s.replicator.is_live());
    }
}

#[test]
fn a_result_after_the_return_is_compared_with_what_the_data_hold() {
    for (failed, code, contradicted) in [(&[][..], 77, Some(0)), (&[5], 77, None), (&[5], 0, Some(77)), (&[], 0, None)]
    {
        let mut s = back(failed);
        s.view(8, &[2, 3, 1]);
        let mut effects = s.say(2, vote(5, code));
        effects.extend(s.say(3, vote(5, code)));
        let held = contradicted.map(|held| Effect::Contradicted { seqno: Seqno(5), held: ErrorClass(held) });
        assert_eq!(effects.into_iter().find(|e| matches!(e, Effect::Contradicted { .. })), held, "{failed:?} {code}");
    }
}

#[test]
fn who_is_back_answers_as_its_data_are_and_asks_about_what_it_failed_at() {
    let mut s = back(&[5]);
    s.view(8, &[2, 3, 1]);
    let asked = s.tick_at(Timestamp::ZERO.after(Duration::from_secs(2)), &[]);
    let again = proposes(&asked);
    let own = |m: &&AppMessage| matches!(m, AppMessage::Vote { seqno: Seqno(5), class: ErrorClass(77), .. });
    assert!(again.iter().any(|m| own(&m)), "nobody may have heard of it: {asked:?}");
    s.say(1, again.iter().find(own).unwrap().clone());
    let quiet = s.tick_at(Timestamp::ZERO.after(Duration::from_secs(4)), &[]);
    assert!(!proposes(&quiet).iter().any(|m| own(&m)), "it has voted");
    // On what it has applied somebody else asks.
    let begun = s.say(2, vote(6, 77));
    assert!(
        matches!(&proposes(&begun)[..], [AppMessage::Vote { seqno: Seqno(6), class: ErrorClass::SUCCESS, .. }]),
        "{begun:?}"
    );
    // Nobody has confirmed it in time.
    let closed = s.say(2, AppMessage::CloseVote { seqno: Seqno(5), as_of: None });
    assert_eq!(closed, [Effect::Contradicted { seqno: Seqno(5), held: ErrorClass(77) }]);
}

/// The votes whose end it proposes in that second, as the member that orders.
fn ends(s: &mut Subject, second: u64) -> Vec<Seqno> {
    let said = s.tick_as(Timestamp::ZERO.after(Duration::from_secs(second)), &[], true);
    let end = |m: AppMessage| if let AppMessage::CloseVote { seqno, .. } = m { Some(seqno) } else { None };
    proposes(&said).into_iter().filter_map(end).collect()
}

/// Those who have not got there yet have their time from there on, not what is left of that of the vote before.
#[test]
fn a_vote_that_begins_anew_after_a_dismissal_has_its_whole_time() {
    let mut s = back(&[]);
    s.view(8, &[2, 3, 1]);
    for n in 1..=3 {
        s.say(n, AppMessage::Joined);
        s.say(n, AppMessage::Synced);
    }
    let closes = |s: &mut Subject, second| ends(s, second).len();
    s.replicator.handle_ordered(LogIndex(40), Seqno(9), false);
    s.say(2, vote(9, 77));
    assert_eq!(closes(&mut s, 100), 0);
    assert_eq!(closes(&mut s, 111), 1);
    assert_eq!(closes(&mut s, 113), 0, "the first is on its way");
    s.say(1, AppMessage::CloseVote { seqno: Seqno(9), as_of: None });
    s.say(3, vote(9, 77));
    assert_eq!(closes(&mut s, 114), 0);
    assert_eq!(closes(&mut s, 123), 0);
    assert_eq!(closes(&mut s, 125), 1);
    // Nobody can answer without a majority.
    s.replicator.handle_non_primary();
    s.view(20, &[2, 3, 1]);
    assert_eq!(closes(&mut s, 200), 0);
    assert_eq!(closes(&mut s, 209), 0);
    assert_eq!(closes(&mut s, 211), 1);
}

/// Three servers that take clients, of which the second begins a backup.
fn one_is_backed_up() -> Subject {
    let mut s = back(&[]);
    s.replicator.handle_level(Level::WAITS_FOR_ALL);
    s.view(8, &[2, 3, 1]);
    for n in 1..=3 {
        s.say(n, AppMessage::Joined);
        s.say(n, AppMessage::Synced);
    }
    s.say(2, AppMessage::Desync);
    s.replicator.handle_ordered(LogIndex(40), Seqno(10), false);
    s
}

/// It stands still while it is copied or backed up, and is the only one that would stay.
#[test]
fn a_vote_waits_for_a_donor_rather_than_take_the_last_server_from_the_clients() {
    let mut s = one_is_backed_up();
    s.say(3, vote(9, 77));
    assert_eq!(ends(&mut s, 100), []);
    assert_eq!(ends(&mut s, 111), [Seqno(9)], "the first serves on");
    s.say(1, vote(9, 78));
    for second in [125, 140, 1000] {
        assert_eq!(ends(&mut s, second), [], "it is backed up for as long as that takes");
    }
    // One of those that failed is to serve a copy meanwhile.
    s.say(1, AppMessage::Desync);
    assert_eq!(ends(&mut s, 1002), []);
    s.say(2, AppMessage::Resync);
    assert_eq!(ends(&mut s, 1020), [], "it catches up");
    s.say(2, AppMessage::Synced);
    assert_eq!(ends(&mut s, 1021), [], "it may be about to say how it went");
    assert_eq!(ends(&mut s, 1032), [Seqno(9)], "it says nothing");
}

/// Each of two votes alone would leave a server to the clients.
#[test]
fn two_votes_that_end_together_do_not_take_all_servers_from_the_clients() {
    let mut s = one_is_backed_up();
    s.say(3, vote(9, 77));
    s.say(1, vote(9, 0));
    s.say(1, vote(10, 77));
    assert_eq!(ends(&mut s, 100), []);
    assert_eq!(ends(&mut s, 111), [Seqno(9)]);
    assert_eq!(ends(&mut s, 113), [], "the first is on its way");
}

/// All that are known to have data failed alike, or have lost a vote. The others may have none.
#[test]
fn a_vote_is_not_dismissed_while_that_would_take_the_last_data() {
    let mut s = back(&[]);
    s.replicator.handle_level(Level::WAITS_FOR_ALL);
    s.view(8, &[2, 3, 4, 1]);
    for n in 1..=3 {
        s.say(n, AppMessage::Joined);
    }
    let closes = |s: &mut Subject, second| ends(s, second).contains(&Seqno(9));
    s.replicator.handle_ordered(LogIndex(40), Seqno(9), false);
    // The third loses, and has not left yet.
    for (n, class) in [(1, 77), (2, 77), (3, 78), (4, 77)] {
        s.say(n, vote(8, class));
    }
    s.say(1, vote(9, 77));
    assert!(!closes(&mut s, 100));
    assert!(closes(&mut s, 111), "the second has data");
    s.say(2, vote(9, 77));
    assert!(!closes(&mut s, 150));
    // The fourth has data, and has not answered: it waits for a script.
    s.say(4, AppMessage::StateRequest { donors: String::new(), request: b"script".to_vec(), position: Some(Seqno(8)) });
    assert!(closes(&mut s, 170));
}

/// Its word of an earlier life is all that is known of what its data hold.
#[test]
fn without_notes_an_earlier_vote_is_not_taken_back() {
    let mut s = back_with(None);
    s.view(8, &[2, 3, 1]);
    s.say(2, vote(5, 78));
    s.say(1, vote(5, 77));
    s.replicator.handle_non_primary();
    let (_, effects) = s.view(10, &[2, 3, 1]);
    assert_eq!(proposes(&effects), [], "{effects:?}");
}

/// It is counted from there on, as it is when it says that it has joined.
#[test]
fn a_returning_member_that_is_desynced_answers_open_votes_at_once() {
    let mut s = back(&[3]);
    s.replicator.handle_level(Level::WAITS_FOR_ALL);
    s.say(2, vote(3, 77));
    s.view(8, &[2, 3, 1]);
    let answers = |m: &AppMessage| matches!(m, AppMessage::Vote { seqno: Seqno(3), class: ErrorClass(77), .. });
    let said = s.say(1, AppMessage::Desync);
    assert!(proposes(&said).iter().any(answers), "{said:?}");
}

/// The request that it was said for may be lost, which only something of the new session shows.
#[test]
fn a_member_whose_copy_is_here_speaks_in_its_new_session() {
    let mut s = Subject::new(None, None, 3);
    s.replicator.handle_level(Level::WAITS_FOR_ALL);
    s.view(9, &[1, 2]);
    s.say(2, AppMessage::Joined);
    s.say(2, AppMessage::Synced);
    s.replicator.handle_state_request(Timestamp::ZERO, b"rsync".to_vec());
    s.tick();
    s.replicator.handle_non_primary();
    s.replicator.handle_abandoned();
    s.view(10, &[1, 2]);
    s.replicator.handle_state_received(Some(Seqno(9)));
    let before = s.effects();
    assert_eq!(before, [], "its donor is not done");
    let said = s.tick_at(Timestamp::ZERO.after(Duration::from_secs(1)), &[1, 2]);
    assert_eq!(proposes(&said), [AppMessage::NoData], "{said:?}");
    let again = s.tick_at(Timestamp::ZERO.after(Duration::from_secs(2)), &[1, 2]);
    assert_eq!(proposes(&again), [], "once is enough");
}

/// Member 1, whose data were found at 2, has been up to 6, and its server failed at 5 of that. Another incarnation of it is in the view at 8.
/// `state`: as the others know it at 6, where its log begins. Also what it does with that.
fn beside_a_server_that_failed(state: &[u8]) -> (Subject, Vec<Effect>) {
    let mut s = Subject::with_failures(Some(2), None, 2, failures(&[]));
    for seqno in 3..7 {
        s.view(seqno, &[1, 2, 3]);
    }
    let again = s.replicator.to_return(HISTORY, failures(&[5]));
    let replicator = Replicator::new(&member(1), again, String::new(), Bounds::default());
    let mut back = Subject { replicator, index: s.index, sick: false };
    let effects = back.reset_to(6, state);
    back.view(7, &[2, 3]);
    for n in [2, 3] {
        back.say(n, AppMessage::Joined);
    }
    back.view(8, &[2, 3, 1]);
    (back, effects)
}

#[test]
fn a_server_that_failed_while_nobody_could_hear_it_is_asked_about_and_votes() {
    let (mut s, _) = beside_a_server_that_failed(&[]);
    assert!(s.replicator.awaits_result(), "it takes no clients");
    let said = proposes(&s.tick_at(Timestamp::ZERO.after(Duration::from_secs(2)), &[]));
    let own = |m: &&AppMessage| matches!(m, AppMessage::Vote { seqno: Seqno(5), class: ErrorClass(77), .. });
    s.say(1, said.iter().find(own).expect("nobody has heard of it").clone());
    // It is beyond its floor, and so the server's ballots compare.
    let lost = Effect::VoteDismissed { seqno: Seqno(5), lost: true };
    assert_eq!(s.say(2, AppMessage::CloseVote { seqno: Seqno(5), as_of: None }), [lost]);
}

#[test]
fn an_error_that_was_dismissed_in_an_earlier_life_is_not_of_the_data_that_come() {
    let mut s = Subject::with_failures(None, None, 2, failures(&[3]));
    s.view(3, &[1, 2, 3]);
    for n in [2, 3] {
        s.say(n, AppMessage::Joined);
    }
    s.say(1, vote(3, 77));
    let dismissed = s.say(2, AppMessage::CloseVote { seqno: Seqno(3), as_of: None });
    assert_eq!(dismissed, [Effect::VoteDismissed { seqno: Seqno(3), lost: false }]);
}

/// It is beyond its floor, and so the server's ballots compare.
#[test]
fn a_result_in_what_a_new_base_skips_is_compared_with_what_a_server_failed_at() {
    for code in [77, 78] {
        let mut other = back(&[]);
        other.view(8, &[2, 3, 1]);
        other.say(2, vote(5, code));
        other.say(3, vote(5, code));
        let winner = ErrorClass(code);
        assert_eq!(other.replicator.roster().decided(Seqno(5)), Some(winner));
        let (s, effects) = beside_a_server_that_failed(&other.state());
        assert!(effects.contains(&Effect::ResultKnown { seqno: Seqno(5), winner }), "{effects:?}");
        assert!(!s.replicator.awaits_result());
    }
}

/// As the group knows it at 9: write sets 3, 7 and 9 failed.
fn state_with_results() -> Vec<u8> {
    let mut other = back(&[]);
    (8..10).for_each(|seqno| drop(other.view(seqno, &[2, 3, 1])));
    for seqno in [3, 7, 9] {
        other.say(2, vote(seqno, 77));
        other.say(3, vote(seqno, 77));
    }
    other.state()
}

/// A server in the group, whose data were found at 4 and that was handed all up to 9.
fn up_to_9(failed: &[u64]) -> Subject {
    let mut s = Subject::with_failures(Some(4), None, 2, failures(failed));
    (5..10).for_each(|seqno| drop(s.view(seqno, &[2, 3, 1])));
    s
}

/// The server's ballots compare all that it applied in this life. The rest, which was found in its data, is compared here.
#[test]
fn results_that_come_with_a_state_are_those_of_votes() {
    let results = |effects: &[Effect]| -> Vec<Effect> {
        let told = |e: &&Effect| matches!(e, Effect::ResultKnown { .. } | Effect::Contradicted { .. });
        effects.iter().filter(told).cloned().collect()
    };
    let done = |seqno| Effect::ResultKnown { seqno: Seqno(seqno), winner: ErrorClass(77) };
    let contradicted = Effect::Contradicted { seqno: Seqno(3), held: ErrorClass::SUCCESS };
    for (failed, before) in [(&[3][..], None), (&[], Some(contradicted))] {
        let expected: Vec<Effect> = before.into_iter().chain([done(7), done(9)]).collect();
        let mut s = up_to_9(failed);
        assert_eq!(results(&s.reset_to(9, &state_with_results())), expected, "it begins with the state");
        let mut s = up_to_9(failed);
        s.replicator.handle_engine_awaited(&state_with_results()).expect("it is well formed");
        assert_eq!(results(&s.effects()), expected, "the state waits for the engine, which may wait for these");
        assert_eq!(s.replicator.roster().decided(Seqno(7)), None, "the state is not here yet");
    }
}

/// The part that a state skips may hold the end of a vote without a result.
#[test]
fn a_vote_that_is_neither_open_nor_decided_is_over() {
    let mut s = up_to_9(&[]);
    for n in [2, 3] {
        s.say(n, AppMessage::Joined);
    }
    assert!(s.replicator.is_dismissed(Seqno(8)), "its word is still to be ordered, or lost");
    s.say(1, vote(8, 77));
    assert!(!s.replicator.is_dismissed(Seqno(8)), "it is open");
    s.reset_to(9, &state_with_results());
    assert!(s.replicator.is_dismissed(Seqno(8)));
    assert!(!s.replicator.is_dismissed(Seqno(7)), "it is decided");
}

#[test]
fn a_state_that_waits_and_cannot_be_read_changes_nothing() {
    let mut s = up_to_9(&[]);
    let state = state_with_results();
    assert!(s.replicator.handle_engine_awaited(&state[..state.len() / 2]).is_err());
    assert!(s.effects().is_empty());
    s.replicator.handle_engine_awaited(&[]).expect("there is none");
    assert!(s.effects().is_empty());
}

/// Swarm seed 78356275: the one that had failed alone died, its vote came before the view in which the other was back, and nobody asked
/// that one again. An acknowledged commit was an error then.
#[test]
fn a_vote_that_began_without_a_majority_is_answered_in_the_next_view() {
    let begun = |effects: &[Effect]| effects.contains(&Effect::VoteBegun { seqno: Seqno(9) });
    let mut s = back(&[]);
    s.view(8, &[2, 3, 1]);
    s.view(9, &[2, 3, 1]);
    s.replicator.handle_non_primary();
    assert!(!begun(&s.say(2, vote(9, 77))), "nobody would hear the answer");
    assert!(begun(&s.view(10, &[2, 3, 1]).1));
    // Its word may be of a life whose data are gone.
    s.say(1, vote(9, 78));
    s.replicator.handle_non_primary();
    assert!(begun(&s.view(11, &[2, 3, 1]).1));
}

#[test]
fn an_error_of_an_earlier_life_is_taken_back_where_the_data_have_none() {
    let answers = |effects: &[Effect]| -> Vec<_> {
        let class =
            |m: AppMessage| if let AppMessage::Vote { seqno: Seqno(5), class, .. } = m { Some(class) } else { None };
        proposes(effects).into_iter().filter_map(class).collect()
    };
    let mut s = back(&[]);
    s.view(8, &[2, 3, 1]);
    s.view(9, &[2, 3, 1]);
    s.say(2, vote(5, 77));
    s.say(1, vote(5, 78));
    s.replicator.handle_non_primary();
    assert_eq!(answers(&s.view(10, &[2, 3, 1]).1), [ErrorClass::SUCCESS]);
    s.say(1, vote(5, 0));
    s.replicator.handle_non_primary();
    assert_eq!(answers(&s.view(11, &[2, 3, 1]).1), [], "it stands");

    let mut s = back(&[5]);
    s.view(8, &[2, 3, 1]);
    s.view(9, &[2, 3, 1]);
    s.say(2, vote(5, 78));
    s.say(1, vote(5, 77));
    s.replicator.handle_non_primary();
    assert_eq!(answers(&s.view(10, &[2, 3, 1]).1), [], "so it is in the data");
}

#[test]
fn what_failed_in_the_data_that_are_found_is_remembered_and_the_rest_is_not() {
    let mut s = Subject::with_failures(Some(7), None, 2, failures(&[5, 8]));
    s.index += 1;
    s.replicator.handle_view(Timestamp::ZERO, LogIndex(s.index), Seqno(8), &view(&[1, 2]));
    let kept = std::iter::from_fn(|| s.replicator.poll_effect())
        .find_map(|e| if let Effect::Remember(kept) = e { Some(kept) } else { None });
    assert_eq!(kept, failures(&[5]), "the engine has lost the other, and applies it again");
}

#[test]
fn outvoted_data_are_gone_on_with_when_nobody_has_others() {
    let mut s = back(&[]);
    s.say(2, vote(3, 77));
    s.say(3, vote(3, 77));
    // Both are gone for good; a person says so, or nobody else votes.
    s.view(8, &[1]);
    assert!(matches!(s.replicator.feed(), Feed::HalfDone(_)), "{:?}", s.replicator.feed());
    assert_eq!(proposes(&s.tick()), [AppMessage::HalfDone { position: Seqno(7) }]);
    s.say(1, AppMessage::HalfDone { position: Seqno(7) });
    let waits = s.tick_at(Timestamp::ZERO, &[1, 2]);
    assert_eq!(proposes(&waits), [], "the other voter may have data");
    assert_eq!(proposes(&s.tick_at(Timestamp::ZERO, &[1])), [AppMessage::GoOnHalfDone]);
    s.say(1, AppMessage::GoOnHalfDone);
    assert!(s.replicator.is_live());
    s.say(2, vote(3, 77));
    assert!(!s.effects().iter().any(|e| matches!(e, Effect::Contradicted { .. })));
}

#[test]
fn who_needs_a_copy_says_so_before_its_server_asks() {
    let mut s = Subject::new(None, None, 2);
    s.replicator.handle_level(Level::WAITS_FOR_ALL);
    let (_, effects) = s.view(4, &[1, 2]);
    assert_eq!(proposes(&effects), [AppMessage::NoData]);
}

/// Member 2 has gone on from data with a statement cut off, behind seqno 8, while member 1 was away with data at `own`.
fn overtaken(own: u64) -> Subject {
    let mut s = Subject::new(Some(own), None, 2);
    s.view(8, &[2]);
    s.say(2, AppMessage::HalfDone { position: Seqno(6) });
    s.say(2, AppMessage::GoOnHalfDone);
    s
}

#[test]
fn data_from_before_another_member_went_on_from_half_done_ones_are_replaced_by_a_copy() {
    // Older, as old, and newer than those that were gone on with; and a copy of what came of them.
    for (own, copies) in [(5, true), (6, true), (7, true), (8, false)] {
        let mut s = overtaken(own);
        s.say(2, AppMessage::Joined);
        s.view(9, &[1, 2]);
        assert_eq!(matches!(s.replicator.feed(), Feed::Copying(_)), copies, "{own}");
        assert_eq!(s.replicator.is_live(), !copies, "{own}");
    }
}

#[test]
fn data_from_before_that_are_gone_on_with_when_they_are_the_last() {
    let mut s = overtaken(7);
    s.view(9, &[1]);
    assert_eq!(proposes(&s.tick()), [AppMessage::HalfDone { position: Seqno(7) }]);
    s.say(1, AppMessage::HalfDone { position: Seqno(7) });
    assert_eq!(
        proposes(&s.tick_at(Timestamp::ZERO, &[1, 2])),
        [],
        "the other voter may have those that were gone on with"
    );
    assert_eq!(proposes(&s.tick_at(Timestamp::ZERO, &[1])), [AppMessage::GoOnHalfDone]);
    s.say(1, AppMessage::GoOnHalfDone);
    assert!(s.replicator.is_live());
}

#[test]
fn a_running_server_that_missed_that_ends_and_needs_a_copy() {
    let mut s = Subject::new(Some(5), None, 2);
    s.view(6, &[1, 2]);
    assert!(s.replicator.is_live());
    s.view(8, &[2]);
    s.say(2, AppMessage::HalfDone { position: Seqno(6) });
    let effects = s.say(2, AppMessage::GoOnHalfDone);
    assert!(matches!(effects[..], [Effect::Inconsistent(_)]), "{effects:?}");
}

/// The tests can fail: each of these breaks one rule, and the test of that rule must notice. Those that the simulator finds are in its own
/// table (`crates/sim/src/mutants.rs`).
#[cfg(feature = "mutants")]
mod mutants {
    use std::panic::catch_unwind;

    use trireme_replicator::{Mutant, Replicator};

    fn is_caught(by: fn(), broken: fn(&mut Replicator)) {
        super::AT_START.set(Some(broken));
        let outcome = catch_unwind(by);
        super::AT_START.set(None);
        assert!(outcome.is_err(), "nobody noticed");
        by();
    }

    #[test]
    fn goes_on_early() {
        is_caught(super::data_from_before_that_are_gone_on_with_when_they_are_the_last, |replicator| {
            replicator.set_mutant(Some(Mutant::GoesOnEarly));
        });
    }

    #[test]
    fn open_votes_ignored() {
        is_caught(super::a_vote_that_began_without_a_majority_is_answered_in_the_next_view, |replicator| {
            replicator.set_mutant(Some(Mutant::OpenVotesIgnored));
        });
    }

    #[test]
    fn overtaken_trusted() {
        is_caught(
            super::data_from_before_another_member_went_on_from_half_done_ones_are_replaced_by_a_copy,
            |replicator| {
                replicator.set_mutant(Some(Mutant::OvertakenTrusted));
            },
        );
    }
}
