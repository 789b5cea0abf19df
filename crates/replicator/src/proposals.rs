//! Own proposals of a member that it has not heard of yet: who waits for them, and what he is told.
//!
//! The order takes proposals, gives them numbers, and delivers them. Here stands for whom each of them was made. Some are never ordered, and some
//! only after this member has begun another session, or is another incarnation. The rules are those for unknown outcomes (rule 22): nobody is told
//! that something did not happen unless that is certain, and nobody waits for ever.
//!
//! The driver says what the order has answered and delivered, and carries out the [`Fate`]s that [`Proposals::poll`] gives, in order.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use trireme_types::{ProposalNumber, Seqno, Session, SessionMark};

use crate::message::AppMessage;

/// A proposal of this member, in the order of sending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProposalId {
    /// The number of the own session.
    session: u64,
    /// Within the session.
    number: ProposalNumber,
}

/// As the order names a proposal. The session is an own one.
impl From<(Session, ProposalNumber)> for ProposalId {
    fn from((session, number): (Session, ProposalNumber)) -> ProposalId {
        ProposalId { session: session.number, number }
    }
}

impl ProposalId {
    /// Was it ordered before the log begins, if `last` is the newest proposal of this member that was? Proposals of a session that was over before
    /// are not known to have been ordered.
    fn is_covered(self, last: SessionMark) -> bool {
        self.session == last.session.number && self.number <= last.number
    }
}

/// A client whose write set is on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client<W> {
    pub waiter: W,
    /// It waits through a loss of the majority and an outage, however long that lasts: there is no truthful answer for a statement in total-order
    /// isolation whose order is not known (rule 22).
    pub patient: bool,
}

/// A write set that is not ordered yet.
#[derive(Debug)]
enum WriteSet<W> {
    Awaited(Client<W>),
    /// The end of a streaming transaction that nobody waits for. It is said again until it is ordered, since the others keep its locks until then.
    Rollback(Bytes),
}

impl<W> WriteSet<W> {
    /// The one that waits for it.
    fn client(&self) -> Option<&Client<W>> {
        match self {
            WriteSet::Awaited(client) => Some(client),
            WriteSet::Rollback(_) => None,
        }
    }

    fn into_client(self) -> Option<Client<W>> {
        match self {
            WriteSet::Awaited(client) => Some(client),
            WriteSet::Rollback(_) => None,
        }
    }
}

/// A client's write set that was ordered: [`Proposals::answer`] has to hear what the client is to be told.
#[must_use]
#[derive(Debug)]
pub struct Ordered<W> {
    id: ProposalId,
    client: Client<W>,
}

impl<W> Ordered<W> {
    pub fn waiter(&self) -> &W {
        &self.client.waiter
    }

    /// It is delivered once more.
    fn again(self) -> (ProposalId, WriteSet<W>) {
        (self.id, WriteSet::Awaited(self.client))
    }
}

/// The one that the outcome of a message concerns.
#[derive(Debug)]
enum AwaitedBy<T> {
    Thread(T),
    /// Nobody. It is said again until it is ordered.
    Nobody,
    /// The replicator, which says it again itself. It hears that it will not be ordered, as it counts what is on its way.
    Replicator,
    /// The server was told that its desync failed. If it is ordered all the same, a resync has to follow it.
    GivenUp,
}

/// A message that is not ordered yet.
#[derive(Debug)]
struct Said<T> {
    message: AppMessage,
    awaited_by: AwaitedBy<T>,
}

/// Something that has to be ordered. `T`: the thread that waits for the outcome of a message, if one does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owed<T> {
    Message(AppMessage, Option<T>),
    Rollback(Bytes),
}

/// The end of a proposal, for the driver to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate<W, T, A> {
    /// It was ordered, and the client goes on.
    Answered(W, A),
    /// Nobody was given it: it is ordered on no branch.
    Withdrawn(W),
    /// It was sent, and will not be ordered on this branch.
    NeverOrdered(W),
    /// The outcome is left open: it may be ordered, and is then closed by an applier (rule 22).
    Open(W),
    /// The thread's message was ordered, and has its effect here.
    Heard(T, AppMessage),
    /// It was not within the time that was given to it, or never will be.
    Unheard(T, AppMessage),
    /// The replicator's message is not on its way any more.
    Lost(AppMessage),
}

/// The own proposals of a server's connection, which outlives incarnations of its member. `W`: whom to tell of a write set. `T`: whom to tell of a
/// message. `A`: the answer for a write set that was ordered.
#[derive(Debug)]
pub struct Proposals<W, T, A> {
    /// From [`Proposals::sent`] to their delivery, to the proof that they never will be ordered, or to the end of patience. Patient ones outlive an
    /// outage of the log's disk.
    write_sets: BTreeMap<ProposalId, WriteSet<W>>,
    /// Ordered while the server was not fed, after an outage: the answer is given when what lies before it goes to the server
    /// ([`Proposals::release`]). Otherwise a client would execute a statement for which an applier still owes what comes before it.
    held: Vec<(Ordered<W>, A)>,
    /// From [`Proposals::said`] to their delivery, or to the proof that they never will be ordered.
    messages: BTreeMap<ProposalId, Said<T>>,
    /// From an attempt in vain to the next one as a member, or from [`Proposals::ask`] to the first one ([`Proposals::take_owed`]). A thread may wait
    /// for one of them.
    owed: VecDeque<Owed<T>>,
    /// Not carried out yet.
    fates: VecDeque<Fate<W, T, A>>,
}

impl<W, T, A> Default for Proposals<W, T, A> {
    fn default() -> Proposals<W, T, A> {
        Proposals {
            write_sets: BTreeMap::new(),
            held: Vec::new(),
            messages: BTreeMap::new(),
            owed: VecDeque::new(),
            fates: VecDeque::new(),
        }
    }
}

impl<W, T, A> Proposals<W, T, A> {
    pub fn poll(&mut self) -> Option<Fate<W, T, A>> {
        self.fates.pop_front()
    }

    /// Nothing that was said waits to be ordered, and no thread for anything to be said.
    pub fn is_empty(&self) -> bool {
        let has_thread = |owed: &Owed<T>| matches!(owed, Owed::Message(_, Some(_)));
        self.write_sets.is_empty() && self.messages.is_empty() && !self.owed.iter().any(has_thread)
    }

    /// Is a vote on the failure at `seqno` on its way, or owed?
    pub fn votes_on(&self, seqno: Seqno) -> bool {
        self.says(|message| matches!(message, AppMessage::Vote { seqno: failed, .. } if *failed == seqno))
    }

    /// Is a message of this kind?
    fn says(&self, is_meant: impl Fn(&AppMessage) -> bool) -> bool {
        let owed = self.owed.iter().filter_map(|owed| match owed {
            Owed::Message(message, _) => Some(message),
            Owed::Rollback(_) => None,
        });
        self.messages.values().map(|said| &said.message).chain(owed).any(is_meant)
    }

    /// Those who wait for the outcome of a write set.
    pub fn clients(&self) -> impl Iterator<Item = &W> {
        let unordered = self.write_sets.values().filter_map(WriteSet::client).map(|client| &client.waiter);
        unordered.chain(self.held.iter().map(|(ordered, _)| ordered.waiter()))
    }

    // --- what is said -----------------------------------------------------------------------------------------------

    /// The order has taken a client's write set.
    pub fn sent(&mut self, id: ProposalId, client: Client<W>) {
        self.write_sets.insert(id, WriteSet::Awaited(client));
    }

    /// The rollback of a streaming transaction was proposed. `None`: in vain.
    pub fn rollback_sent(&mut self, id: Option<ProposalId>, body: Bytes) {
        match id {
            Some(id) => drop(self.write_sets.insert(id, WriteSet::Rollback(body))),
            None => self.owe(Owed::Rollback(body)),
        }
    }

    /// A message was proposed for this thread, or, without one, for nobody: then it is said again until it is ordered. Without an `id` in vain.
    pub fn said(&mut self, id: Option<ProposalId>, message: AppMessage, thread: Option<T>) {
        let said = Said { message, awaited_by: thread.map_or(AwaitedBy::Nobody, AwaitedBy::Thread) };
        match id {
            Some(id) => drop(self.messages.insert(id, said)),
            None => self.lose(said),
        }
    }

    /// The order has taken a message of the replicator. That says all of them again by itself, but counts the requests for a full copy.
    pub fn replicator_said(&mut self, id: ProposalId, message: AppMessage) {
        if matches!(message, AppMessage::StateRequest { .. }) {
            self.messages.insert(id, Said { message, awaited_by: AwaitedBy::Replicator });
        }
    }

    /// A thread wants to say this, or, without one, it has to be ordered. It comes behind all that is owed. The driver proposes what
    /// [`Proposals::take_owed`] gives at once if a thread waits.
    pub fn ask(&mut self, message: AppMessage, thread: Option<T>) {
        self.owe(Owed::Message(message, thread));
    }

    fn owe(&mut self, owed: Owed<T>) {
        self.owed.push_back(owed);
    }

    pub fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// To be proposed now, in order. Messages that the order does not take are owed again, as they follow here. Unless this is a `member` it takes
    /// none: then everything stays, and threads hear that.
    ///
    /// The end of a desync, and what follows it, stays until each desync before it is ordered. Said in a later session than the desync, it could be
    /// ordered and the desync be lost: it would be nothing to the group, and the desync, said again, would last for ever.
    pub fn take_owed(&mut self, member: bool) -> VecDeque<Owed<T>> {
        if !member {
            self.refuse_threads();
            return VecDeque::new();
        }
        let is_on_its_way =
            |said: &Said<T>| said.message == AppMessage::Desync && matches!(said.awaited_by, AwaitedBy::Nobody);
        let mut follows_desync = self.messages.values().any(is_on_its_way);
        let waits = self.owed.iter().position(|owed| match owed {
            Owed::Message(AppMessage::Resync, _) => follows_desync,
            Owed::Message(AppMessage::Desync, None) => {
                follows_desync = true;
                false
            }
            Owed::Message(..) | Owed::Rollback(_) => false,
        });
        let rest = waits.map(|at| self.owed.split_off(at)).unwrap_or_default();
        std::mem::replace(&mut self.owed, rest)
    }

    // --- what the order delivers ------------------------------------------------------------------------------------

    /// Something of the own session `number` is delivered. Proposals of an older session that were not delivered before never will be (rules 4
    /// and 23).
    pub fn session_begun(&mut self, number: u64) {
        let begins = ProposalId { session: number, number: ProposalNumber::ZERO };
        for write_set in take_before(&mut self.write_sets, begins).into_values() {
            self.lose_write_set(write_set, Fate::NeverOrdered);
        }
        take_before(&mut self.messages, begins).into_values().for_each(|said| self.lose(said));
    }

    /// A write set of this member is delivered. Returns the client that waits for it, and executes it: so nobody else may. `None`: an applier
    /// closes it.
    pub fn write_set_ordered(&mut self, id: ProposalId) -> Option<Ordered<W>> {
        let client = self.write_sets.remove(&id)?.into_client()?;
        Some(Ordered { id, client })
    }

    /// `live`: the server is being fed, so the client may go on.
    pub fn answer(&mut self, ordered: Ordered<W>, answer: A, live: bool) {
        if live {
            self.fates.push_back(Fate::Answered(ordered.client.waiter, answer));
        } else {
            self.held.push((ordered, answer));
        }
    }

    /// The server was given all that lies before the held answers.
    pub fn release(&mut self) {
        let answers = std::mem::take(&mut self.held);
        self.fates.extend(answers.into_iter().map(|(ordered, answer)| Fate::Answered(ordered.client.waiter, answer)));
    }

    /// A message of this member is delivered, and has its effect.
    pub fn message_ordered(&mut self, id: ProposalId) {
        let Some(Said { message, awaited_by }) = self.messages.remove(&id) else { return };
        match awaited_by {
            AwaitedBy::Thread(thread) => self.fates.push_back(Fate::Heard(thread, message)),
            AwaitedBy::Nobody | AwaitedBy::Replicator => {}
            AwaitedBy::GivenUp => self.ask(AppMessage::Resync, None),
        }
    }

    /// The log begins anew with a state in which `last` is the newest proposal of this member: those up to it were ordered, their effect is in the
    /// state, and nobody delivers them any more.
    pub fn reset(&mut self, last: Option<SessionMark>) {
        // Delivery begins anew, and so they are delivered once more, and answered then.
        self.write_sets.extend(std::mem::take(&mut self.held).into_iter().map(|(ordered, _)| ordered.again()));
        let Some(last) = last else { return };
        // A server that goes on was given all that lies before the state, so this is for one that does not: it goes on without these answers.
        let covered = take_out(&mut self.write_sets, |id, _| id.is_covered(last));
        self.leave_open(covered.into_values().filter_map(WriteSet::into_client));
        for (_, Said { message, awaited_by }) in take_out(&mut self.messages, |id, _| id.is_covered(last)) {
            match awaited_by {
                AwaitedBy::Thread(thread) => self.fates.push_back(Fate::Heard(thread, message)),
                AwaitedBy::Nobody => {}
                // The state told it what became of it. It is not on its way any more, as if it had been lost.
                AwaitedBy::Replicator => self.fates.push_back(Fate::Lost(message)),
                AwaitedBy::GivenUp => self.ask(AppMessage::Resync, None),
            }
        }
    }

    // --- what is not ordered ----------------------------------------------------------------------------------------

    /// These were given to nobody, and never will be: they get a definite answer (rule 22).
    pub fn withdrawn(&mut self, ids: impl IntoIterator<Item = ProposalId>) {
        for id in ids {
            if let Some(write_set) = self.write_sets.remove(&id) {
                self.lose_write_set(write_set, Fate::Withdrawn);
            }
            if let Some(said) = self.messages.remove(&id) {
                self.lose(said);
            }
        }
    }

    /// There is no majority for long: who can be given a truthful answer gets it (rule 22). Messages that must not get lost are said again once it is
    /// certain that it was not ordered.
    pub fn give_up(&mut self) {
        let impatient = |write_set: &WriteSet<W>| write_set.client().is_some_and(|client| !client.patient);
        let given_up = take_out(&mut self.write_sets, |_, write_set| impatient(write_set));
        self.leave_open(given_up.into_values().filter_map(WriteSet::into_client));
        for (id, said) in std::mem::take(&mut self.messages) {
            if let Some(said) = self.abandon(said) {
                self.messages.insert(id, said);
            }
        }
        self.refuse_threads();
    }

    /// No thread waits any more for what was not proposed yet.
    fn refuse_threads(&mut self) {
        for owed in std::mem::take(&mut self.owed) {
            match owed {
                Owed::Message(message, Some(thread)) => {
                    self.lose(Said { message, awaited_by: AwaitedBy::Thread(thread) })
                }
                Owed::Message(_, None) | Owed::Rollback(_) => self.owe(owed),
            }
        }
    }

    /// Nobody executes a write set here any more: the outcome of all that were sent is left open.
    pub fn drop_clients(&mut self) {
        let held = std::mem::take(&mut self.held).into_iter().map(|(ordered, _)| ordered.client);
        // Rollbacks are let go of: the others end the streaming transactions of a member that is gone.
        let unordered = std::mem::take(&mut self.write_sets).into_values().filter_map(WriteSet::into_client);
        self.leave_open(unordered.chain(held));
    }

    /// The connection ends: whoever waits is answered.
    pub fn end(&mut self) {
        self.drop_clients();
        for said in std::mem::take(&mut self.messages).into_values() {
            let _ = self.abandon(said);
        }
        self.refuse_threads();
        self.owed.clear();
    }

    /// The incarnation ends, as the disk with its log has failed. Clients that wait however long it lasts go on waiting: their write set is
    /// delivered to the next incarnation, or the first of that one's own session shows that it never will be. All else that this one has to say
    /// means nothing to the group any more.
    pub fn retire(&mut self) {
        let held = std::mem::take(&mut self.held);
        let (patient, impatient) = held.into_iter().partition::<Vec<_>, _>(|(ordered, _)| ordered.client.patient);
        self.held = impatient;
        let mut patient: BTreeMap<_, _> = patient.into_iter().map(|(ordered, _)| ordered.again()).collect();
        let waits_on = |write_set: &WriteSet<W>| write_set.client().is_some_and(|client| client.patient);
        patient.extend(take_out(&mut self.write_sets, |_, write_set| waits_on(write_set)));
        self.end();
        self.write_sets = patient;
    }

    /// The group counts `counted` desyncs of a server that is desynced `wanted` times: it forgets them together with the member, when nobody hears
    /// that for a while. Those that it lacks are said again, once nothing that would change this is on its way.
    pub fn desync_again(&mut self, counted: u32, wanted: u32) {
        if counted < wanted && !self.says(|message| matches!(message, AppMessage::Desync | AppMessage::Resync)) {
            (counted..wanted).for_each(|_| self.ask(AppMessage::Desync, None));
        }
    }

    fn leave_open(&mut self, clients: impl Iterator<Item = Client<W>>) {
        self.fates.extend(clients.map(|client| Fate::Open(client.waiter)));
    }

    fn lose_write_set(&mut self, write_set: WriteSet<W>, fate: impl FnOnce(W) -> Fate<W, T, A>) {
        match write_set {
            WriteSet::Awaited(client) => self.fates.push_back(fate(client.waiter)),
            WriteSet::Rollback(body) => self.owe(Owed::Rollback(body)),
        }
    }

    /// This message was not ordered and never will be.
    fn lose(&mut self, said: Said<T>) {
        let Some(Said { message, awaited_by }) = self.abandon(said) else { return };
        match awaited_by {
            // Its end may be owed already.
            AwaitedBy::Nobody if message == AppMessage::Desync => self.owed.push_front(Owed::Message(message, None)),
            AwaitedBy::Nobody => self.ask(message, None),
            AwaitedBy::Replicator => self.fates.push_back(Fate::Lost(message)),
            AwaitedBy::Thread(_) | AwaitedBy::GivenUp => {}
        }
    }

    /// Its thread, if one waits, is told that it failed. Something may be left to do: a server that ends a desync goes on without it whatever
    /// it is told, and a desync that it was refused must not come into force behind its back.
    fn abandon(&mut self, said: Said<T>) -> Option<Said<T>> {
        let Said { message, awaited_by } = said;
        let AwaitedBy::Thread(thread) = awaited_by else { return Some(Said { message, awaited_by }) };
        self.fates.push_back(Fate::Unheard(thread, message.clone()));
        let awaited_by = match message {
            AppMessage::Resync => AwaitedBy::Nobody,
            AppMessage::Desync => AwaitedBy::GivenUp,
            _ => return None,
        };
        Some(Said { message, awaited_by })
    }
}

/// Takes out those that were sent before `begins`: most often none.
fn take_before<V>(of: &mut BTreeMap<ProposalId, V>, begins: ProposalId) -> BTreeMap<ProposalId, V> {
    if of.first_key_value().is_none_or(|(first, _)| *first >= begins) {
        return BTreeMap::new();
    }
    let newer = of.split_off(&begins);
    std::mem::replace(of, newer)
}

/// Takes out those that are as `is_out` says.
fn take_out<V>(of: &mut BTreeMap<ProposalId, V>, is_out: impl Fn(&ProposalId, &V) -> bool) -> BTreeMap<ProposalId, V> {
    let (out, rest) = std::mem::take(of).into_iter().partition(|(id, value)| is_out(id, value));
    *of = rest;
    out
}

#[cfg(test)]
mod tests {
    use trireme_types::{Incarnation, NodeId, Uuid};

    use super::*;

    type Own = Proposals<&'static str, &'static str, u64>;

    const DESYNC: AppMessage = AppMessage::Desync;
    const RESYNC: AppMessage = AppMessage::Resync;
    const EVICT: AppMessage = AppMessage::Evict { member: Uuid::NIL };

    fn first() -> Session {
        Session::first(NodeId(Uuid([1; 16])), Incarnation(1))
    }

    fn id(session: Session, number: u64) -> ProposalId {
        ProposalId::from((session, ProposalNumber(number)))
    }

    fn request() -> AppMessage {
        AppMessage::StateRequest { donors: String::new(), request: b"rsync".to_vec(), position: None }
    }

    fn client(waiter: &'static str) -> Client<&'static str> {
        Client { waiter, patient: false }
    }

    fn statement(waiter: &'static str) -> Client<&'static str> {
        Client { waiter, patient: true }
    }

    fn body() -> Bytes {
        Bytes::from_static(b"rollback")
    }

    fn fates(own: &mut Own) -> Vec<Fate<&'static str, &'static str, u64>> {
        std::iter::from_fn(|| own.poll()).collect()
    }

    fn owed(own: &mut Own) -> Vec<Owed<&'static str>> {
        own.take_owed(true).into()
    }

    /// One of each kind, of one session, by number from 1 on.
    fn all(session: Session) -> Own {
        let mut own = Own::default();
        own.sent(id(session, 1), client("client"));
        own.sent(id(session, 2), statement("statement"));
        own.rollback_sent(Some(id(session, 3)), body());
        own.said(Some(id(session, 4)), DESYNC, Some("desync"));
        own.said(Some(id(session, 5)), RESYNC, Some("resync"));
        own.said(Some(id(session, 6)), EVICT, Some("evict"));
        own.said(Some(id(session, 7)), AppMessage::Joined, None);
        own.replicator_said(id(session, 8), request());
        own
    }

    #[test]
    fn a_client_hears_of_its_write_set_once_and_an_applier_closes_what_nobody_waits_for() {
        let mut own = all(first());
        let ordered = own.write_set_ordered(id(first(), 1)).expect("a client waits");
        assert_eq!(*ordered.waiter(), "client");
        own.answer(ordered, 7, true);
        assert_eq!(fates(&mut own), [Fate::Answered("client", 7)]);
        assert!(own.write_set_ordered(id(first(), 1)).is_none());
        assert!(own.write_set_ordered(id(first(), 3)).is_none(), "nobody waits for a rollback");
        own.session_begun(first().following().number);
        assert!(!owed(&mut own).contains(&Owed::Rollback(body())), "it was ordered");
    }

    /// Rules 4 and 23.
    #[test]
    fn what_belongs_to_an_older_session_and_was_not_ordered_before_never_will_be() {
        let mut own = all(first());
        own.session_begun(first().number);
        assert_eq!(fates(&mut own), [], "it may be ordered yet");
        own.sent(id(first().following(), 1), client("later"));
        own.session_begun(first().following().number);
        let never = [
            Fate::NeverOrdered("client"),
            Fate::NeverOrdered("statement"),
            Fate::Unheard("desync", DESYNC),
            Fate::Unheard("resync", RESYNC),
            Fate::Unheard("evict", EVICT),
            Fate::Lost(request()),
        ];
        assert_eq!(fates(&mut own), never);
        assert_eq!(
            owed(&mut own),
            [Owed::Rollback(body()), Owed::Message(RESYNC, None), Owed::Message(AppMessage::Joined, None)],
            "what must not get lost is said again"
        );
        assert_eq!(own.clients().collect::<Vec<_>>(), [&"later"]);
    }

    /// Rule 22.
    #[test]
    fn what_was_given_to_nobody_gets_a_definite_answer() {
        let mut own = all(first());
        own.withdrawn((1..=8).map(|number| id(first(), number)));
        let withdrawn = [
            Fate::Withdrawn("client"),
            Fate::Withdrawn("statement"),
            Fate::Unheard("desync", DESYNC),
            Fate::Unheard("resync", RESYNC),
            Fate::Unheard("evict", EVICT),
            Fate::Lost(request()),
        ];
        assert_eq!(fates(&mut own), withdrawn);
        assert_eq!(owed(&mut own).len(), 3);
        assert!(own.is_empty());
    }

    /// Rule 22.
    #[test]
    fn at_the_end_of_patience_the_outcome_is_open_and_a_statement_waits_on() {
        let mut own = all(first());
        own.give_up();
        let given_up = [
            Fate::Open("client"),
            Fate::Unheard("desync", DESYNC),
            Fate::Unheard("resync", RESYNC),
            Fate::Unheard("evict", EVICT),
        ];
        assert_eq!(fates(&mut own), given_up);
        assert_eq!(own.clients().collect::<Vec<_>>(), [&"statement"]);
        own.give_up();
        assert_eq!(fates(&mut own), [], "each hears once");
        assert!(own.write_set_ordered(id(first(), 1)).is_none(), "an applier closes it");
        assert!(own.write_set_ordered(id(first(), 2)).is_some());
        own.session_begun(first().following().number);
        assert_eq!(fates(&mut own), [Fate::Lost(request())], "it was on its way all the time");
        let again = [Owed::Rollback(body()), Owed::Message(RESYNC, None), Owed::Message(AppMessage::Joined, None)];
        assert_eq!(owed(&mut own), again);
    }

    #[test]
    fn a_desync_that_its_thread_has_given_up_is_taken_back_if_it_is_ordered_after_all() {
        let mut own = all(first());
        own.give_up();
        for number in 4..=8 {
            own.message_ordered(id(first(), number));
        }
        assert_eq!(owed(&mut own), [Owed::Message(RESYNC, None)], "once: the other one was ordered");
        let mut own = all(first());
        own.give_up();
        own.reset(Some(SessionMark { session: first(), number: ProposalNumber(4) }));
        assert_eq!(owed(&mut own), [Owed::Message(RESYNC, None)], "and if a state holds it");
        let mut own = all(first());
        own.message_ordered(id(first(), 4));
        assert_eq!(fates(&mut own), [Fate::Heard("desync", DESYNC)]);
        assert_eq!(owed(&mut own), []);
    }

    #[test]
    fn what_the_order_does_not_take_is_owed_or_its_thread_hears() {
        let mut own = Own::default();
        own.rollback_sent(None, body());
        own.said(None, DESYNC, Some("desync"));
        own.said(None, RESYNC, Some("resync"));
        own.said(None, AppMessage::Joined, None);
        assert_eq!(fates(&mut own), [Fate::Unheard("desync", DESYNC), Fate::Unheard("resync", RESYNC)]);
        assert!(own.owes() && own.is_empty());
        let left = [Owed::Rollback(body()), Owed::Message(RESYNC, None), Owed::Message(AppMessage::Joined, None)];
        assert_eq!(owed(&mut own), left, "the desync never was, and must not come into force");
        assert!(!own.owes());
    }

    /// After an outage the group is yet to hear that the server is desynced, when the server ends that.
    #[test]
    fn the_end_of_a_desync_comes_behind_a_desync_that_is_owed() {
        let mut own = Own::default();
        own.desync_again(0, 1);
        own.ask(RESYNC, Some("resync"));
        own.ask(EVICT, Some("evict"));
        assert_eq!(owed(&mut own), [Owed::Message(DESYNC, None)]);
        // The order does not take it.
        own.said(None, DESYNC, None);
        assert_eq!(owed(&mut own), [Owed::Message(DESYNC, None)], "before its end");
        own.said(Some(id(first(), 1)), DESYNC, None);
        assert_eq!(owed(&mut own), [], "it is not ordered yet");
        // A session without it is begun: it was lost.
        own.session_begun(first().following().number);
        assert_eq!(owed(&mut own), [Owed::Message(DESYNC, None)]);
        own.said(Some(id(first().following(), 1)), DESYNC, None);
        own.message_ordered(id(first().following(), 1));
        let rest = [Owed::Message(RESYNC, Some("resync")), Owed::Message(EVICT, Some("evict"))];
        assert_eq!((fates(&mut own), owed(&mut own)), (vec![], rest.into()));
    }

    #[test]
    fn only_desyncs_that_the_group_lacks_are_said_again_and_none_beside_another_one() {
        let mut own = Own::default();
        own.desync_again(1, 1);
        own.desync_again(1, 0);
        assert!(!own.owes(), "a copy that is given counts as one more");
        own.desync_again(1, 2);
        own.desync_again(1, 2);
        assert_eq!(owed(&mut own), [Owed::Message(DESYNC, None)]);
        own.said(Some(id(first(), 1)), DESYNC, None);
        own.desync_again(1, 2);
        assert_eq!(owed(&mut own), [], "it is on its way");
        own.message_ordered(id(first(), 1));
        own.said(Some(id(first(), 2)), RESYNC, Some("resync"));
        own.desync_again(1, 2);
        assert_eq!(owed(&mut own), [], "its end is on its way");
    }

    #[test]
    fn a_thread_does_not_wait_for_what_cannot_be_proposed() {
        let unheard = [Fate::Unheard("resync", RESYNC), Fate::Unheard("evict", EVICT)];
        let waiting = || {
            let mut own = Own::default();
            own.desync_again(0, 1);
            own.ask(RESYNC, Some("resync"));
            own.ask(EVICT, Some("evict"));
            assert!(own.owes() && !own.is_empty());
            own
        };
        let mut own = waiting();
        assert_eq!(own.take_owed(false), []);
        assert_eq!(fates(&mut own), unheard);
        assert!(own.owes() && own.is_empty());

        let mut own = waiting();
        own.give_up();
        assert_eq!(fates(&mut own), unheard);
        assert_eq!(owed(&mut own), [Owed::Message(DESYNC, None)]);
        assert_eq!(owed(&mut own), [Owed::Message(RESYNC, None)], "the server has ended its desync");

        let mut own = waiting();
        own.end();
        assert_eq!(fates(&mut own), unheard);
        assert!(!own.owes());
    }

    #[test]
    fn of_the_replicators_messages_only_requests_for_a_copy_are_heard_of() {
        let mut own = Own::default();
        own.replicator_said(id(first(), 1), AppMessage::Joined);
        assert!(own.is_empty());
        own.replicator_said(id(first(), 2), request());
        assert!(!own.is_empty());
        own.message_ordered(id(first(), 2));
        assert_eq!((fates(&mut own), owed(&mut own)), (vec![], vec![]), "it hears of it as of any message");
        assert!(own.is_empty());
    }

    #[test]
    fn an_answer_waits_until_the_server_is_fed() {
        let mut own = all(first());
        let ordered = own.write_set_ordered(id(first(), 2)).expect("a client waits");
        own.answer(ordered, 7, false);
        assert_eq!(fates(&mut own), []);
        assert!(own.clients().any(|waiter| *waiter == "statement"));
        own.session_begun(first().following().number);
        assert!(!fates(&mut own).contains(&Fate::NeverOrdered("statement")), "it was ordered");
        own.release();
        assert_eq!(fates(&mut own), [Fate::Answered("statement", 7)]);
        own.release();
        assert_eq!(fates(&mut own), []);
    }

    /// A server that goes on in the place of the state has what lies before it. The rest is delivered once more, also what was ordered already and
    /// is not executed: it must not be executed twice.
    #[test]
    fn where_delivery_begins_anew_what_a_state_covers_is_over_and_the_rest_waits_on() {
        let session = first().following();
        let mut own = Own::default();
        own.said(Some(id(first(), 2)), AppMessage::Joined, Some("before"));
        own.sent(id(session, 1), client("covered"));
        own.rollback_sent(Some(id(session, 2)), body());
        own.said(Some(id(session, 3)), EVICT, Some("thread"));
        own.replicator_said(id(session, 4), request());
        own.said(Some(id(session, 5)), AppMessage::Joined, Some("later"));
        own.sent(id(session, 6), statement("held"));
        let held = own.write_set_ordered(id(session, 6)).expect("a client waits");
        own.answer(held, 7, false);
        own.reset(Some(SessionMark { session, number: ProposalNumber(4) }));
        assert_eq!(
            fates(&mut own),
            [Fate::Open("covered"), Fate::Heard("thread", EVICT), Fate::Lost(request())],
            "of an older session nothing is known"
        );
        own.release();
        assert_eq!(fates(&mut own), [], "its answer comes with its delivery");
        assert!(own.write_set_ordered(id(session, 6)).is_some());
        own.message_ordered(id(first(), 2));
        own.message_ordered(id(session, 5));
        let heard = [Fate::Heard("before", AppMessage::Joined), Fate::Heard("later", AppMessage::Joined)];
        assert_eq!(fates(&mut own), heard);
        own.session_begun(session.following().number);
        assert_eq!(owed(&mut own), [], "the rollback is in the state");
        let mut own = all(first());
        own.reset(None);
        assert_eq!(fates(&mut own), []);
    }

    /// Rule 22.
    #[test]
    fn in_an_outage_statements_wait_on_and_all_others_are_answered() {
        let mut own = all(first());
        own.ask(AppMessage::Joined, None);
        own.sent(id(first(), 9), statement("held"));
        own.sent(id(first(), 10), client("held client"));
        for number in [9, 10] {
            let held = own.write_set_ordered(id(first(), number)).expect("a client waits");
            own.answer(held, number, false);
        }
        own.retire();
        let out = [
            Fate::Open("client"),
            Fate::Open("held client"),
            Fate::Unheard("desync", DESYNC),
            Fate::Unheard("resync", RESYNC),
            Fate::Unheard("evict", EVICT),
        ];
        assert_eq!(fates(&mut own), out);
        assert_eq!(own.clients().collect::<Vec<_>>(), [&"statement", &"held"]);
        own.desync_again(0, 2);
        assert_eq!(owed(&mut own), [Owed::Message(DESYNC, None), Owed::Message(DESYNC, None)], "nothing of before");
        // The one was delivered before, and is once more; of the other one nothing was heard before something newer is.
        assert!(own.write_set_ordered(id(first(), 9)).is_some());
        own.session_begun(Session::first(first().node, Incarnation(2)).number);
        assert_eq!(fates(&mut own), [Fate::NeverOrdered("statement")]);
        assert_eq!(owed(&mut own), [], "the others end its streaming transactions, and forget its messages");
    }

    #[test]
    fn at_the_end_everybody_is_answered_and_nothing_is_owed() {
        let mut own = all(first());
        own.ask(AppMessage::Joined, None);
        own.sent(id(first(), 9), statement("held"));
        let held = own.write_set_ordered(id(first(), 9)).expect("a client waits");
        own.answer(held, 9, false);
        own.end();
        let end = [
            Fate::Open("client"),
            Fate::Open("statement"),
            Fate::Open("held"),
            Fate::Unheard("desync", DESYNC),
            Fate::Unheard("resync", RESYNC),
            Fate::Unheard("evict", EVICT),
        ];
        assert_eq!(fates(&mut own), end);
        assert!(own.is_empty() && !own.owes());
        assert_eq!(own.clients().count(), 0);
    }

    #[test]
    fn threads_wait_on_where_only_write_sets_are_given_up() {
        let mut own = all(first());
        own.drop_clients();
        assert_eq!(fates(&mut own), [Fate::Open("client"), Fate::Open("statement")]);
        own.message_ordered(id(first(), 5));
        assert_eq!(fates(&mut own), [Fate::Heard("resync", RESYNC)]);
    }
}
