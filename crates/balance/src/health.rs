//! Whether a server may get clients, from what it answered and from what it did not.
//!
//! One [`Health`] per server. Inputs are [`Health::handle`] with what a look brought, and the word of the other members, which
//! the pool passes to [`Health::fitness`] because it alone sees all servers.

use std::fmt;
use std::time::{Duration, Instant};

use crate::report::{Kind, LocalState, Member, Order, Pushed, Report};

/// The result of one look at a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    Answer(Report),
    /// The question is not answered yet, though an answer takes much less as a rule.
    Late,
    /// Nor after the time limit.
    TimedOut,
    /// Nobody listens there, or the connection was reset: the process is gone.
    Refused(String),
    /// It listens and has no connection left for us. Clients may still have some.
    Full(String),
    /// It does not let us look.
    LoginDenied(String),
    /// It answers something that is no MariaDB server's, or an error.
    Wrong(String),
    /// A watchdog's verdict, and how long its program took to find it.
    Watchdog(Verdict, Option<Duration>),
}

/// The present opinion of another member of the primary component about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The named member does not hear it.
    Silent(String),
    /// The named member listed it before and does not any more: it left.
    Left(String),
    /// The named member orders since, in a later term than it did.
    Replaced(String),
    /// Not a word but their absence: so many of the voters that it knows are gone that nobody can order for it.
    Alone,
}

/// The verdict of a watchdog script. The numbers are GLB's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    NotFound,
    NotReady,
    Avoid,
    Ready,
}

/// May it get clients?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitness {
    Ready,
    /// Only if nobody is ready.
    LastChoice(Why),
    Out(Why),
}

impl Fitness {
    pub fn is_out(&self) -> bool {
        matches!(self, Fitness::Out(_))
    }

    pub fn why(&self) -> Option<&Why> {
        match self {
            Fitness::Ready => None,
            Fitness::LastChoice(why) | Fitness::Out(why) => Some(why),
        }
    }

    /// Must sessions end that are open already? They would hang, or get nothing but errors.
    pub fn ends_sessions(&self) -> bool {
        match self {
            Fitness::Ready | Fitness::LastChoice(_) => false,
            Fitness::Out(why) => match why {
                Why::Refused(_) | Why::Silent | Why::SilentFor(_) | Why::Left(_) | Why::Replaced(_) => true,
                Why::NotPrimary | Why::Minority | Why::NotFound | Why::NotFit => true,
                // Its sessions work, or the server itself ended them.
                Why::Unseen | Why::NotReady | Why::State(_) | Why::Wrong(_) | Why::Rejects => false,
                Why::Full(_) | Why::Denied(_) | Why::Donor | Why::Desynced | Why::Avoid | Why::Contested(_) => false,
            },
        }
    }
}

/// The reason, for people and for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Not looked at yet.
    Unseen,
    Refused(String),
    /// It does not answer us.
    Silent,
    /// The named member does not hear it, and neither do we.
    SilentFor(String),
    /// The named member does not list it any more, and it does not answer us.
    Left(String),
    /// The named member has taken its place as sequencer, and it does not answer us.
    Replaced(String),
    NotPrimary,
    /// It is in the primary component by its own account, and there is no majority that could order.
    Minority,
    NotReady,
    State(LocalState),
    Wrong(String),
    Rejects,
    NotFound,
    /// The watchdog says that it must not have clients. With GLB that is an end as well.
    NotFit,
    // Last choice:
    Full(String),
    Denied(String),
    Donor,
    Desynced,
    Avoid,
    /// It answers us, and the named member says that it does not hear it.
    Contested(String),
}

impl Why {
    /// One word, for metrics and tables.
    pub fn word(&self) -> &'static str {
        match self {
            Why::Unseen => "unseen",
            Why::Refused(_) => "refused",
            Why::Silent | Why::SilentFor(_) => "silent",
            Why::Left(_) => "left",
            Why::Replaced(_) => "replaced",
            Why::NotPrimary => "non-primary",
            Why::Minority => "minority",
            Why::NotReady | Why::NotFit => "not-ready",
            Why::State(LocalState::Joining) => "joining",
            Why::State(LocalState::Joined) => "joined",
            Why::State(_) => "not-synced",
            Why::Wrong(_) => "wrong",
            Why::Rejects => "rejects",
            Why::NotFound => "not-found",
            Why::Full(_) => "full",
            Why::Denied(_) => "denied",
            Why::Donor => "donor",
            Why::Desynced => "desynced",
            Why::Avoid => "avoid",
            Why::Contested(_) => "contested",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Unseen => f.write_str("not looked at yet"),
            Why::Refused(error) => write!(f, "no connection: {error}"),
            Why::Silent => f.write_str("does not answer"),
            Why::SilentFor(name) => write!(f, "does not answer, and {name} does not hear it either"),
            Why::Replaced(name) => write!(f, "does not answer, and {name} has taken its place as sequencer"),
            Why::Left(name) => write!(f, "does not answer, and {name} does not list it any more"),
            Why::NotPrimary => f.write_str("not part of a primary component"),
            Why::Minority => f.write_str("has no majority of its group beside it"),
            Why::NotReady => f.write_str("not ready for statements"),
            Why::State(LocalState::Joining) => f.write_str("joining the group"),
            Why::State(LocalState::Joined) => f.write_str("joined, and catching up"),
            Why::State(state) => write!(f, "not synced ({state:?})"),
            Why::Wrong(what) => write!(f, "answers wrongly: {what}"),
            Why::Rejects => f.write_str("wsrep_reject_queries is set"),
            Why::NotFound => f.write_str("the watchdog does not find it"),
            Why::NotFit => f.write_str("not ready, by the watchdog's word"),
            Why::Full(text) => write!(f, "has no connection left: {text}"),
            Why::Denied(text) => write!(f, "its state is unknown, as it refuses our login: {text}"),
            Why::Donor => f.write_str("donor of a state transfer"),
            Why::Desynced => f.write_str("desynced"),
            Why::Avoid => f.write_str("the watchdog wants it avoided"),
            Why::Contested(name) => write!(f, "answers, but {name} does not hear it"),
        }
    }
}

/// An election takes less. A member that has known of no sequencer for so long is cut off from a majority, which it calls non-primary only
/// after the timeouts of its group.
const ELECTION: Duration = Duration::from_millis(750);

/// News of an election reaches all members in less. Half of what a client may notice at most is spent before: until its peers miss a member,
/// and until it misses them.
const NEWS: Duration = Duration::from_millis(100);

/// Between looks while some server is late, is missed by others or went out just now: the word of the others counts.
pub const HURRY: Duration = Duration::from_millis(40);

/// Three looks of one that hurries: a single answer without a sequencer may have been given in the moment of an election.
const _: () = assert!(NEWS.as_millis() >= 2 * HURRY.as_millis());

/// Everything known of one server.
#[derive(Debug)]
pub struct Health {
    last: Last,
    /// When the last answer came.
    answered: Option<Instant>,
    report: Option<Report>,
    /// A question has been open for longer than an answer takes.
    late: bool,
    /// Since when its answers have named no sequencer.
    leaderless: Option<Instant>,
    /// For how long, up to the last answer.
    leaderless_for: Duration,
    /// Since when another member has been known to order in a later term than this one's answers are of.
    replaced: Option<Instant>,
    /// The newest term in which it said that it orders.
    led: Option<u64>,
}

#[derive(Debug)]
enum Last {
    Nothing,
    Answer,
    TimedOut,
    Refused(String),
    Full(String),
    LoginDenied(String),
    Wrong(String),
    Watchdog(Verdict),
}

impl Default for Health {
    fn default() -> Health {
        Health {
            last: Last::Nothing,
            answered: None,
            report: None,
            late: false,
            leaderless: None,
            leaderless_for: Duration::ZERO,
            replaced: None,
            led: None,
        }
    }
}

impl Health {
    pub fn handle(&mut self, heard: Heard, now: Instant) {
        self.late = matches!(heard, Heard::Late | Heard::TimedOut);
        self.last = match heard {
            Heard::Late => return,
            Heard::Answer(report) => {
                self.report = Some(report);
                self.note_order(now);
                self.answered = Some(now);
                Last::Answer
            }
            Heard::TimedOut => Last::TimedOut,
            Heard::Refused(text) => Last::Refused(text),
            Heard::Full(text) => Last::Full(text),
            Heard::LoginDenied(text) => Last::LoginDenied(text),
            Heard::Wrong(text) => Last::Wrong(text),
            Heard::Watchdog(verdict, _) => {
                self.answered = Some(now);
                Last::Watchdog(verdict)
            }
        };
    }

    /// Keeps what follows from the order that the newest report tells.
    fn note_order(&mut self, now: Instant) {
        let order = self.report.as_ref().and_then(Report::order);
        self.led = order.filter(|order| order.sequencer).map(|order| order.term).or(self.led);
        let without = order.is_some_and(|order| order.leaderless);
        self.leaderless = without.then(|| self.leaderless.unwrap_or(now));
        self.leaderless_for = self.leaderless.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
    }

    /// The order as a monitor beside the server tells it, between two answers. It is no sign that the server answers clients. Returns whether it
    /// was news.
    pub fn handle_pushed(&mut self, pushed: &Pushed, now: Instant) -> bool {
        let order = match self.report.as_mut().map(|report| &mut report.kind) {
            Some(Kind::Member(Member { order: Some(order), .. })) if pushed.alive => order,
            Some(Kind::Member(_) | Kind::Plain) | None => return false,
        };
        // It may have been on its way while the server answered itself.
        if pushed.term < order.term {
            return false;
        }
        let Pushed { sequencer, term, leaderless, .. } = *pushed;
        let told = Order { sequencer, term, leaderless, silent: pushed.silent.clone(), ..order.clone() };
        let news = *order != told;
        *order = told;
        self.note_order(now);
        news
    }

    /// Whether another member is known to order in a later term than this one's last answer is of.
    pub fn handle_replaced(&mut self, replaced: bool, now: Instant) {
        self.replaced = replaced.then(|| self.replaced.unwrap_or(now));
    }

    /// The last answer, however old; who orders and who is in the group follows from fresh ones only: [`Health::fresh`].
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// When the last answer came.
    pub fn answered(&self) -> Option<Instant> {
        self.answered
    }

    /// The last answer, if nothing worse was heard since and it is not older than `age`.
    pub fn fresh(&self, now: Instant, age: Duration) -> Option<&Report> {
        let young = self.answered.is_some_and(|at| now.saturating_duration_since(at) <= age);
        self.report.as_ref().filter(|_| young && matches!(self.last, Last::Answer))
    }

    pub fn is_late(&self) -> bool {
        self.late
    }

    /// Its last answer named no sequencer.
    pub fn is_leaderless(&self) -> bool {
        self.leaderless.is_some()
    }

    /// By its last answer it has not heard of a majority for the time of an election.
    pub fn is_out_of_touch(&self) -> bool {
        let order = self.report.as_ref().and_then(Report::order).filter(|_| matches!(self.last, Last::Answer));
        order.is_some_and(|order| order.out_of_touch)
    }

    /// It orders, or did until a moment ago, and hears no majority. Others may miss a sequencer for a moment while they get a new one; this one
    /// would be the first to know.
    fn leads_nobody(&self) -> bool {
        let order = self.report.as_ref().and_then(Report::order);
        let led = order.filter(|order| (order.sequencer || order.leaderless) && self.led == Some(order.term));
        led.is_some() && self.is_out_of_touch()
    }

    /// `word`: of another member. Alone it decides nothing, as that member may be the one in trouble.
    pub fn fitness(&self, word: Option<&Word>) -> Fitness {
        let own = self.own_fitness();
        // An answer that is younger by so much than the other's, and still of the term before: whoever hears its group knows better.
        let behind = self.replaced.zip(self.answered).is_some_and(|(at, answered)| answered >= at + NEWS);
        match word {
            Some(_) if behind && !own.is_out() => Fitness::Out(Why::Minority),
            Some(_) if self.replaced.is_some() && self.leads_nobody() && !own.is_out() => Fitness::Out(Why::Minority),
            Some(Word::Alone) if !own.is_out() => Fitness::Out(Why::Minority),
            // Two signs of one thing: the others go on without it.
            Some(Word::Silent(_) | Word::Left(_) | Word::Replaced(_))
                if !own.is_out() && self.leaderless_for >= NEWS =>
            {
                Fitness::Out(Why::Minority)
            }
            Some(Word::Silent(name)) if !own.is_out() && self.late => Fitness::Out(Why::SilentFor(name.clone())),
            Some(Word::Left(name)) if !own.is_out() && self.late => Fitness::Out(Why::Left(name.clone())),
            Some(Word::Replaced(name)) if !own.is_out() && self.late => Fitness::Out(Why::Replaced(name.clone())),
            // Between the two of us it is alive. It may be cut off from its group, which it will find out itself.
            Some(Word::Silent(name)) if own == Fitness::Ready => Fitness::LastChoice(Why::Contested(name.clone())),
            Some(_) | None => own,
        }
    }

    fn own_fitness(&self) -> Fitness {
        match &self.last {
            Last::Nothing => Fitness::Out(Why::Unseen),
            Last::TimedOut => Fitness::Out(Why::Silent),
            Last::Refused(text) => Fitness::Out(Why::Refused(text.clone())),
            Last::Full(text) => Fitness::LastChoice(Why::Full(text.clone())),
            Last::LoginDenied(text) => Fitness::LastChoice(Why::Denied(text.clone())),
            Last::Wrong(text) => Fitness::Out(Why::Wrong(text.clone())),
            Last::Watchdog(Verdict::NotFound) => Fitness::Out(Why::NotFound),
            Last::Watchdog(Verdict::NotReady) => Fitness::Out(Why::NotFit),
            Last::Watchdog(Verdict::Avoid) => Fitness::LastChoice(Why::Avoid),
            Last::Watchdog(Verdict::Ready) => Fitness::Ready,
            Last::Answer => match self.report.as_ref().map(|report| &report.kind) {
                None => Fitness::Out(Why::Unseen),
                Some(Kind::Plain) => Fitness::Ready,
                Some(Kind::Member(member)) if member.primary && self.leaderless_for >= ELECTION => {
                    Fitness::Out(Why::Minority)
                }
                Some(Kind::Member(member)) => of_member(member),
            },
        }
    }
}

fn of_member(member: &Member) -> Fitness {
    if !member.primary {
        return Fitness::Out(Why::NotPrimary);
    }
    if member.rejects_queries {
        return Fitness::Out(Why::Rejects);
    }
    match member.state {
        LocalState::Donor if member.donor_rejects_queries => Fitness::Out(Why::Rejects),
        LocalState::Joining | LocalState::Joined | LocalState::Undefined | LocalState::Other(_) => {
            Fitness::Out(Why::State(member.state))
        }
        LocalState::Donor | LocalState::Synced if !member.ready => Fitness::Out(Why::NotReady),
        // A desynced node has the same number as a donor.
        LocalState::Donor if member.desynced => Fitness::LastChoice(Why::Desynced),
        LocalState::Donor => Fitness::LastChoice(Why::Donor),
        LocalState::Synced if member.desynced => Fitness::LastChoice(Why::Desynced),
        LocalState::Synced => Fitness::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::synced;

    fn heard(inputs: impl IntoIterator<Item = Heard>) -> Health {
        let mut health = Health::default();
        for input in inputs {
            health.handle(input, Instant::now());
        }
        health
    }

    fn with(change: impl FnOnce(&mut Member)) -> Heard {
        let mut report = synced("n1", false, 1);
        if let Kind::Member(member) = &mut report.kind {
            change(member);
        }
        Heard::Answer(report)
    }

    #[test]
    fn the_states_of_a_member() {
        let cases: [(Heard, Fitness); 9] = [
            (with(|_| {}), Fitness::Ready),
            (with(|m| m.primary = false), Fitness::Out(Why::NotPrimary)),
            (with(|m| m.ready = false), Fitness::Out(Why::NotReady)),
            (with(|m| m.state = LocalState::Joining), Fitness::Out(Why::State(LocalState::Joining))),
            (with(|m| m.state = LocalState::Joined), Fitness::Out(Why::State(LocalState::Joined))),
            (with(|m| m.state = LocalState::Donor), Fitness::LastChoice(Why::Donor)),
            (with(|m| m.desynced = true), Fitness::LastChoice(Why::Desynced)),
            (with(|m| m.rejects_queries = true), Fitness::Out(Why::Rejects)),
            (
                with(|m| {
                    m.state = LocalState::Donor;
                    m.donor_rejects_queries = true;
                }),
                Fitness::Out(Why::Rejects),
            ),
        ];
        for (input, fitness) in cases {
            assert_eq!(heard([input.clone()]).fitness(None), fitness, "{input:?}");
        }
    }

    #[test]
    fn a_member_without_a_majority_is_out_and_its_sessions_end() {
        let leaderless = || with(|m| m.order.as_mut().expect("a Trireme node").leaderless = true);
        let mut health = heard([leaderless()]);
        assert_eq!(health.fitness(None), Fitness::Ready, "there may be an election");
        assert_eq!(health.fitness(Some(&Word::Alone)), Fitness::Out(Why::Minority));
        let word = Word::Silent("n2".into());
        assert!(!health.fitness(Some(&word)).is_out(), "perhaps it does not know yet");
        health.handle(leaderless(), Instant::now() + NEWS);
        assert_eq!(health.fitness(None), Fitness::Ready, "there may be an election");
        assert_eq!(health.fitness(Some(&word)), Fitness::Out(Why::Minority));
        let later = Instant::now() + ELECTION;
        health.handle(leaderless(), later);
        assert_eq!(health.fitness(None), Fitness::Out(Why::Minority));
        assert!(health.fitness(None).ends_sessions());
        health.handle(with(|_| {}), later);
        assert_eq!(health.fitness(None), Fitness::Ready);
    }

    #[test]
    fn a_refused_connection_is_down_at_once_and_an_answer_is_up_at_once() {
        let mut health = heard([with(|_| {}), Heard::Refused("Connection refused".into())]);
        assert!(health.fitness(None).is_out() && health.fitness(None).ends_sessions());
        health.handle(with(|_| {}), Instant::now());
        assert_eq!(health.fitness(None), Fitness::Ready);
    }

    #[test]
    fn late_alone_is_nothing_and_with_another_members_word_it_is_out() {
        let health = heard([with(|_| {}), Heard::Late]);
        assert_eq!(health.fitness(None), Fitness::Ready);
        assert_eq!(health.fitness(Some(&Word::Silent("n2".into()))), Fitness::Out(Why::SilentFor("n2".into())));
        assert!(health.fitness(Some(&Word::Silent("n2".into()))).ends_sessions());
        assert_eq!(health.fitness(Some(&Word::Left("n2".into()))), Fitness::Out(Why::Left("n2".into())));
    }

    #[test]
    fn a_server_that_answers_is_not_out_by_hearsay() {
        let health = heard([with(|_| {})]);
        assert_eq!(health.fitness(Some(&Word::Silent("n2".into()))), Fitness::LastChoice(Why::Contested("n2".into())));
        assert_eq!(health.fitness(Some(&Word::Left("n2".into()))), Fitness::Ready);
    }

    #[test]
    fn a_server_that_refuses_our_login_still_serves_if_nobody_else_does() {
        let health = heard([Heard::LoginDenied("ERROR 1045".into())]);
        assert!(matches!(health.fitness(None), Fitness::LastChoice(Why::Denied(_))));
    }

    #[test]
    fn a_watchdogs_word() {
        for (verdict, out, ends) in [
            (Verdict::NotFound, true, true),
            (Verdict::NotReady, true, true),
            (Verdict::Avoid, false, false),
            (Verdict::Ready, false, false),
        ] {
            let fitness = heard([Heard::Watchdog(verdict, None)]).fitness(None);
            assert_eq!((fitness.is_out(), fitness.ends_sessions()), (out, ends), "{verdict:?}");
        }
    }

    #[test]
    fn an_old_answer_is_not_fresh() {
        let health = heard([with(|_| {})]);
        let now = Instant::now();
        assert!(health.fresh(now, Duration::from_secs(1)).is_some());
        assert!(health.fresh(now + Duration::from_secs(5), Duration::from_secs(1)).is_none());
        let health = heard([with(|_| {}), Heard::Refused(String::new())]);
        assert!(health.fresh(now, Duration::from_secs(1)).is_none());
    }
}
