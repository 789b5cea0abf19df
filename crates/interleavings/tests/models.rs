//! Each model runs once for each interleaving of its threads. That nobody waits for ever needs no assertion.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use trireme_interleavings::eventfd::Poll;
use trireme_interleavings::gate::Gate;
use trireme_interleavings::held_back::{HeldBack, WriteSet};
use trireme_interleavings::item::{ApplyItem, Item};
use trireme_interleavings::mailbox::{Letter, Mailbox};
use trireme_interleavings::monitor::{Interrupted, OrderMonitor};
use trireme_interleavings::outage::{Look, Outage, Unread};
use trireme_interleavings::queue::ApplyQueue;
use trireme_interleavings::slot::Slot;
use trireme_interleavings::votes::Votes;
use trireme_interleavings::waker::Waker;
use trireme_replicator::message::AppMessage;
use trireme_replicator::votes::{ErrorClass, Settled};
use trireme_types::{LogIndex, Seqno};

/// Interleavings in which a thread is interrupted more often than this, where it could have gone on, are left out: there are too many.
const INTERRUPTIONS_MAX: usize = 3;

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(INTERRUPTIONS_MAX);
    builder.check(run);
}

// --- a slot ------------------------------------------------------------------------------------------------------------------------

#[test]
fn whoever_waits_for_a_slot_gets_the_first_answer() {
    model(|| {
        let slot = Arc::new(Slot::default());
        let fillers: Vec<_> = [1, 2]
            .map(|answer| {
                let slot = slot.clone();
                thread::spawn(move || slot.fill(answer))
            })
            .into();
        let answer = slot.wait();
        assert!(answer == 1 || answer == 2);
        fillers.into_iter().for_each(|filler| filler.join().unwrap());
    });
}

// --- the mailbox -------------------------------------------------------------------------------------------------------------------

/// Counts what becomes of it.
struct Counted(Arc<AtomicUsize>);

impl Letter for Counted {
    fn refuse(self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn a_reader_is_woken(letters: usize) {
    let (mailbox, poll) = (Arc::new(Mailbox::default()), Poll::default());
    let refused = Arc::new(AtomicUsize::new(0));
    mailbox.open(poll.waker());
    let write = |_| {
        let (mailbox, letter) = (mailbox.clone(), Counted(refused.clone()));
        thread::spawn(move || assert!(mailbox.push(letter)))
    };
    let writers: Vec<_> = (0..letters).map(write).collect();
    let mut read = Vec::new();
    let mut count = 0;
    while count < letters {
        poll.poll();
        mailbox.take(&mut read);
        count += read.drain(..).count();
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(refused.load(Ordering::SeqCst), 0);
}

#[test]
fn a_reader_that_sleeps_is_woken_for_every_letter() {
    model(|| a_reader_is_woken(1));
    model(|| a_reader_is_woken(2));
}

/// A thread that waits for an answer gets one, from the reader or by the refusal.
#[test]
fn a_letter_is_handed_out_or_refused_and_never_both_or_neither() {
    model(|| {
        let mailbox = Arc::new(Mailbox::default());
        let refused = Arc::new(AtomicUsize::new(0));
        mailbox.open(Poll::default().waker());
        let writers: Vec<_> = [(), ()]
            .map(|()| {
                let (mailbox, letter) = (mailbox.clone(), Counted(refused.clone()));
                thread::spawn(move || usize::from(mailbox.push(letter)))
            })
            .into();
        let mut rest = Vec::new();
        mailbox.close(&mut rest);
        let accepted: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert_eq!(accepted, rest.len());
        assert_eq!(accepted + refused.load(Ordering::SeqCst), 2);
    });
}

// --- the commit order --------------------------------------------------------------------------------------------------------------

#[test]
fn sections_are_entered_one_after_the_other() {
    model(|| {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        let last = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = [2u64, 1]
            .map(|n| {
                let (monitor, last) = (monitor.clone(), last.clone());
                thread::spawn(move || {
                    monitor.enter(Seqno(n), None).unwrap();
                    assert_eq!(last.swap(n as usize, Ordering::SeqCst) as u64, n - 1);
                    assert!(monitor.leave(Seqno(n)));
                    monitor.end(Seqno(n));
                })
            })
            .into();
        monitor.wait_ended(Seqno(2), None).unwrap();
        assert_eq!((monitor.left(), monitor.ended()), (Seqno(2), Seqno(2)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// An abort is answered by what becomes of its victim (contract 4.6).
#[test]
fn a_victim_is_aborted_or_enters_and_never_both() {
    model(|| {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        let mark = Arc::new(AtomicBool::new(false));
        let victim = {
            let (monitor, mark) = (monitor.clone(), mark.clone());
            thread::spawn(move || match monitor.enter(Seqno(2), Some(&mark)) {
                Ok(()) => {
                    assert!(monitor.leave(Seqno(2)));
                    false
                }
                Err(Interrupted::Aborted) => true,
                Err(other) => panic!("{other:?}"),
            })
        };
        let first = {
            let monitor = monitor.clone();
            thread::spawn(move || {
                monitor.enter(Seqno(1), None).unwrap();
                assert!(monitor.leave(Seqno(1)));
            })
        };
        let aborted = monitor.abort(Some(Seqno(2)), &mark);
        first.join().unwrap();
        assert_eq!(victim.join().unwrap(), aborted);
    });
}

/// Its turn may never come: the one before waits for its locks.
#[test]
fn a_victim_that_waits_for_its_turn_is_woken() {
    model(|| {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        let mark = Arc::new(AtomicBool::new(false));
        let victim = {
            let (monitor, mark) = (monitor.clone(), mark.clone());
            thread::spawn(move || monitor.enter(Seqno(2), Some(&mark)))
        };
        assert!(monitor.abort(Some(Seqno(2)), &mark));
        assert_eq!(victim.join().unwrap(), Err(Interrupted::Aborted));
    });
}

/// A statement that has begun ends before a pause, one that has not waits until it is over.
#[test]
fn nothing_begins_above_a_pause() {
    model(|| {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        let paused = Arc::new(AtomicBool::new(false));
        let applier = {
            let (monitor, paused) = (monitor.clone(), paused.clone());
            thread::spawn(move || {
                monitor.wait_start(Seqno(1), Seqno(0)).unwrap();
                assert!(!paused.load(Ordering::SeqCst));
                monitor.enter(Seqno(1), None).unwrap();
                assert!(monitor.leave(Seqno(1)));
                assert!(!paused.load(Ordering::SeqCst));
                monitor.end(Seqno(1));
            })
        };
        let at = monitor.pause().unwrap();
        paused.store(true, Ordering::SeqCst);
        assert_eq!((monitor.left(), monitor.ended()), (at, at));
        paused.store(false, Ordering::SeqCst);
        monitor.resume();
        applier.join().unwrap();
        assert_eq!(monitor.ended(), Seqno(1));
    });
}

/// A node that leaves in the middle: the seqno before never comes.
#[test]
fn everybody_is_let_go_when_the_order_is_closed() {
    model(|| {
        let monitor = Arc::new(OrderMonitor::new(Seqno(0)));
        let entering = {
            let monitor = monitor.clone();
            thread::spawn(move || monitor.enter(Seqno(3), None))
        };
        let waiting = {
            let monitor = monitor.clone();
            thread::spawn(move || monitor.wait_left(Seqno(2), None))
        };
        monitor.set_closed(true);
        assert_eq!(entering.join().unwrap(), Err(Interrupted::Closed));
        assert_eq!(waiting.join().unwrap(), Err(Interrupted::Closed));
    });
}

// --- write sets that flow control holds back -----------------------------------------------------------------------------------------

/// Of a transaction with this mark; its client waits to hear whether it was sent.
#[derive(Clone, Default)]
struct OfTransaction {
    aborted: Arc<AtomicBool>,
    sent: Arc<Slot<bool>>,
}

impl WriteSet for OfTransaction {
    fn is_recalled(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    fn refuse(self) {
        self.sent.fill(false);
    }
}

enum Sent {
    Propose(OfTransaction),
    Recall,
}

impl Letter for Sent {
    fn refuse(self) {}
}

/// An applier wants its locks, and flow control waits for the applier. Where the word of the abort came before the write set, that was held
/// behind another one, and nobody recalled it.
#[test]
fn a_victim_that_flow_control_holds_lets_go_of_its_locks() {
    model(|| {
        let (mailbox, poll) = (Arc::new(Mailbox::default()), Poll::default());
        mailbox.open(poll.waker());
        let victim = OfTransaction::default();
        let client = {
            let (mailbox, victim) = (mailbox.clone(), victim.clone());
            thread::spawn(move || {
                mailbox.push(Sent::Propose(victim.clone()));
                victim.sent.wait()
            })
        };
        let applier = {
            let (mailbox, aborted) = (mailbox.clone(), victim.aborted);
            thread::spawn(move || {
                assert!(OrderMonitor::new(Seqno(0)).abort(None, &aborted));
                mailbox.push(Sent::Recall);
            })
        };
        let mut held_back = HeldBack::default();
        held_back.hold(OfTransaction::default());
        let (mut commands, mut count) = (Vec::new(), 0);
        while count < 2 {
            poll.poll();
            mailbox.take(&mut commands);
            for command in commands.drain(..) {
                count += 1;
                match command {
                    Sent::Propose(write_set) => held_back.hold(write_set),
                    Sent::Recall => held_back.recall(),
                }
                assert!(held_back.next(|| false).is_none(), "flow control lets nothing pass");
            }
        }
        assert!(!client.join().unwrap());
        applier.join().unwrap();
        assert_eq!(held_back.len(), 1);
    });
}

// --- votes on errors ---------------------------------------------------------------------------------------------------------------

const AT: Seqno = Seqno(1);
const ERROR: ErrorClass = ErrorClass(77);

/// An applier that has applied `seqno`, or failed there, leaves it behind. Returns its debt then.
fn leaves(seqno: Seqno, monitor: &OrderMonitor, votes: &Votes) -> Settled {
    monitor.enter(seqno, None).unwrap();
    assert!(monitor.leave(seqno));
    votes.settle(seqno)
}

/// An applier is done with [`AT`] while the group thread does `meanwhile`. How often each says that something is to be done.
fn met_by(meanwhile: impl FnOnce(&OrderMonitor, &Votes) -> bool) -> (bool, Settled) {
    let (monitor, votes) = (Arc::new(OrderMonitor::new(Seqno(0))), Arc::new(Votes::default()));
    let applier = {
        let (monitor, votes) = (monitor.clone(), votes.clone());
        thread::spawn(move || leaves(AT, &monitor, &votes))
    };
    (meanwhile(&monitor, &votes), applier.join().unwrap())
}

/// The others wait for its word.
#[test]
fn a_vote_that_begins_is_answered_once() {
    model(|| {
        let (now, settled) = met_by(|monitor, votes| votes.begun(AT, || monitor.left()));
        assert_eq!(settled, if now { Settled::Nothing } else { Settled::Owed });
    });
}

/// Its data are not the group's.
#[test]
fn success_where_the_group_decided_for_an_error_is_noticed_once() {
    model(|| {
        let (now, settled) = met_by(|monitor, votes| votes.decided(AT, ERROR, || monitor.left()));
        assert_eq!(settled, if now { Settled::Nothing } else { Settled::Decided(ERROR) });
    });
}

#[test]
fn one_vote_hides_no_other() {
    model(|| {
        let (monitor, votes) = (Arc::new(OrderMonitor::new(Seqno(0))), Arc::new(Votes::default()));
        let applier = {
            let (monitor, votes) = (monitor.clone(), votes.clone());
            thread::spawn(move || [1, 2].map(|n| leaves(Seqno(n), &monitor, &votes)))
        };
        let now = [1, 2].map(|n| votes.begun(Seqno(n), || monitor.left()));
        assert!(!votes.begun(Seqno(3), || monitor.left()));
        votes.dismissed(Seqno(3), false);
        assert_eq!(applier.join().unwrap(), now.map(|now| if now { Settled::Nothing } else { Settled::Owed }));
    });
}

/// This node fails at [`AT`] while it loses its group and comes back to it, where the vote of another one is decided for success. It took a
/// vote that nobody had heard for one whose result it had yet to hear, and told nobody that its data are not the group's.
#[test]
fn an_error_is_compared_with_the_result_also_where_nobody_heard_of_it() {
    model(|| {
        let (monitor, votes) = (Arc::new(OrderMonitor::new(Seqno(0))), Arc::new(Votes::default()));
        let mailbox = Arc::new(Mailbox::default());
        mailbox.open(Poll::default().waker());
        let applier = {
            let (monitor, votes, mailbox) = (monitor.clone(), votes.clone(), mailbox.clone());
            thread::spawn(move || {
                let heard = votes.failed(AT, || mailbox.push(Word)).wait();
                (heard, leaves(AT, &monitor, &votes))
            })
        };
        mailbox.close(&mut Vec::new());
        votes.abandon();
        mailbox.open(Poll::default().waker());
        let now = votes.decided(AT, ErrorClass::SUCCESS, || monitor.left());
        let noticed = match applier.join().unwrap() {
            (Some(winner), settled) => (winner, settled) == (ErrorClass::SUCCESS, Settled::Nothing) && !now,
            (None, settled) => now != (settled == Settled::Decided(ErrorClass::SUCCESS)),
        };
        assert!(noticed);
    });
}

// --- the apply queue ---------------------------------------------------------------------------------------------------------------

fn apply(n: u64) -> Item {
    Item::Apply(ApplyItem {
        seqno: Seqno(n),
        index: LogIndex(n),
        depends_on: Seqno(0),
        ok: true,
        body: Some(Bytes::new()),
    })
}

/// An applier without work looks once more, some time later, before it sleeps.
fn lingers(_: &AtomicUsize) {
    thread::yield_now();
}

/// The items that two appliers took, in no order.
fn taken(queue: &Arc<ApplyQueue>, fill: impl FnOnce()) -> Vec<Option<Seqno>> {
    let appliers: Vec<_> = [(), ()]
        .map(|()| {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut seen = Vec::new();
                queue.arrive();
                while let Some(item) = queue.take(|| (), lingers) {
                    seen.push(item.seqno());
                    queue.done(item.is_write_set());
                }
                queue.depart();
                seen
            })
        })
        .into();
    fill();
    let mut all: Vec<_> = appliers.into_iter().flat_map(|applier| applier.join().unwrap()).collect();
    all.sort();
    all
}

#[test]
fn every_item_is_taken_once_and_appliers_return_when_it_is_closed() {
    model(|| {
        let queue = Arc::new(ApplyQueue::default());
        let all = taken(&queue, || {
            queue.push(apply(1));
            queue.push(apply(2));
            queue.close();
        });
        assert_eq!(all, [Some(Seqno(1)), Some(Seqno(2))]);
    });
}

#[test]
fn an_item_to_be_handled_alone_holds_nobody_for_ever() {
    model(|| {
        let queue = Arc::new(ApplyQueue::default());
        queue.push(apply(1));
        queue.push(Item::SstRequest { data: true });
        let all = taken(&queue, || {
            queue.push(apply(2));
            queue.close();
        });
        assert_eq!(all, [None, Some(Seqno(1)), Some(Seqno(2))]);
    });
}

/// Each push wakes somebody if nobody else comes for the item. One that finishes comes back, and calls the next.
#[test]
fn what_waited_for_an_item_alone_is_taken_by_all_who_are_there() {
    model(|| {
        let queue = Arc::new(ApplyQueue::default());
        queue.push(Item::SstRequest { data: true });
        let together = Arc::new((Mutex::new(0), Condvar::new()));
        let appliers: Vec<_> = [(), ()]
            .map(|()| {
                let (queue, together) = (queue.clone(), together.clone());
                thread::spawn(move || {
                    queue.arrive();
                    while let Some(item) = queue.take(|| (), lingers) {
                        if item.is_write_set() {
                            // Neither ends before the other has begun: both have to be awake.
                            let mut begun = together.0.lock().unwrap();
                            *begun += 1;
                            together.1.notify_all();
                            while *begun < 2 {
                                begun = together.1.wait(begun).unwrap();
                            }
                        }
                        queue.done(item.is_write_set());
                    }
                    queue.depart();
                })
            })
            .into();
        queue.push(apply(1));
        queue.push(apply(2));
        {
            // A close wakes everybody, and would hide that nobody was called.
            let mut begun = together.0.lock().unwrap();
            while *begun < 2 {
                begun = together.1.wait(begun).unwrap();
            }
        }
        queue.close();
        appliers.into_iter().for_each(|applier| applier.join().unwrap());
    });
}

/// The server takes an applier back after an item (contract 5.5): the other one goes on alone.
#[test]
fn an_applier_that_leaves_takes_nothing_with_it() {
    model(|| {
        let queue = Arc::new(ApplyQueue::default());
        for item in [apply(1), Item::SstRequest { data: true }, apply(2)] {
            queue.push(item);
        }
        queue.close();
        queue.arrive();
        let first = queue.take(|| (), lingers).expect("three are there");
        let stays = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut count = 0;
                while let Some(item) = queue.take(|| (), lingers) {
                    count += 1;
                    queue.done(item.is_write_set());
                }
                count
            })
        };
        queue.done(first.is_write_set());
        queue.depart();
        assert_eq!(stays.join().unwrap(), 2);
    });
}

/// A view beside the queue ends while others wait for it.
#[test]
fn what_waits_for_something_beside_the_queue_goes_on_after_it() {
    model(|| {
        let queue = Arc::new(ApplyQueue::default());
        queue.push(apply(1));
        let beside = queue.begin_beside().expect("a write set stands there");
        queue.push(Item::Synced { at: Seqno(1) });
        queue.close();
        let telling = thread::spawn(move || drop(beside));
        let all = taken(&queue, || ());
        assert_eq!(all, [None, Some(Seqno(1))]);
        telling.join().unwrap();
    });
}

// --- an outage of the log's disk ---------------------------------------------------------------------------------------------------

/// No time passes under the scheduler: what is not called would wait for ever.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

/// The log's disk, as an applier finds it.
#[derive(Clone, Copy)]
enum Disk {
    Fails,
    /// The log was let go of, or opened again and not repaired yet.
    HoldsNothing,
    Works,
}

/// The log's disk fails, and the group thread does as `core/outage.rs` has it, up to its return or to the end. Returns the result of an applier
/// that reads meanwhile.
fn read_in_an_outage(comes_back: bool) -> Result<(), Unread> {
    let (outage, mailbox) = (Arc::new(Outage::default()), Arc::new(Mailbox::<Counted, Waker>::default()));
    let disk = Arc::new(Mutex::new(Disk::Fails));
    let applier = {
        let (outage, disk) = (outage.clone(), disk.clone());
        thread::spawn(move || {
            outage.read(FOR_EVER, || match *disk.lock().unwrap() {
                Disk::Fails => Look::Failed,
                Disk::HoldsNothing => Look::Missing { behind: true },
                Disk::Works => Look::Found(()),
            })
        })
    };
    outage.out();
    *disk.lock().unwrap() = Disk::HoldsNothing;
    if comes_back {
        *disk.lock().unwrap() = Disk::Works;
        outage.returned(&mailbox, Poll::default().waker());
    } else {
        outage.over();
    }
    applier.join().unwrap()
}

/// It took an entry for lost that it had looked for in the log that was let go of, if the new one was there before it asked whether there was
/// an outage. Then the data of this node were given up.
#[test]
fn an_applier_reads_on_after_an_outage() {
    model(|| assert_eq!(read_in_an_outage(true), Ok(())));
}

#[test]
fn an_applier_hears_that_a_log_will_not_come_back() {
    model(|| assert_eq!(read_in_an_outage(false), Err(Unread::Ended)));
}

/// As [`Counted`], for words to the group thread.
struct Word;

impl Letter for Word {
    fn refuse(self) {}
}

/// The group thread's part, from the failure of the disk to the end of the connection, as in `Core::sit_out` and `Core::work`.
fn sit_out_until_the_end(outage: &Outage, mailbox: &Mailbox<Word, Waker>) {
    outage.out();
    let mut words = Vec::new();
    mailbox.close(&mut words);
    if !words.is_empty() {
        outage.end();
    }
    let poll = Poll::default();
    if !outage.await_end(Duration::ZERO) {
        // The disk works.
        outage.returned(mailbox, poll.waker());
        if !outage.await_end(Duration::ZERO) {
            words.clear();
            while words.is_empty() {
                poll.poll();
                mailbox.take(&mut words);
            }
        }
    }
    mailbox.close(&mut words);
    outage.over();
}

fn whoever_ends_the_connection_is_heard(end: impl Fn(&Outage, &Mailbox<Word, Waker>) + Copy + Send + Sync + 'static) {
    model(move || {
        let (outage, mailbox) = (Arc::new(Outage::default()), Arc::new(Mailbox::default()));
        mailbox.open(Poll::default().waker());
        let ending = {
            let (outage, mailbox) = (outage.clone(), mailbox.clone());
            thread::spawn(move || end(&outage, &mailbox))
        };
        sit_out_until_the_end(&outage, &mailbox);
        ending.join().unwrap();
    });
}

#[test]
fn a_server_that_stops_in_an_outage_is_heard() {
    whoever_ends_the_connection_is_heard(|outage, mailbox| outage.leave(mailbox, Word));
    whoever_ends_the_connection_is_heard(|outage, mailbox| _ = outage.give_up(mailbox, || Word));
}

/// A thread that failed while a connection was being prepared found nobody to tell, and the connection began.
#[test]
fn a_connection_that_is_ended_before_it_begins_ends() {
    model(|| {
        let (outage, mailbox) = (Arc::new(Outage::default()), Arc::new(Mailbox::default()));
        let (is_failed, poll) = (Arc::new(AtomicBool::new(false)), Poll::default());
        let fails = {
            let (outage, mailbox, is_failed) = (outage.clone(), mailbox.clone(), is_failed.clone());
            thread::spawn(move || {
                is_failed.store(true, Ordering::Relaxed);
                outage.leave(&mailbox, Word);
            })
        };
        outage.begin();
        if !is_failed.load(Ordering::Relaxed) {
            outage.open(&mailbox, poll.waker(), Word);
            poll.poll();
        }
        fails.join().unwrap();
    });
}

/// It sleeps between its looks at the disk.
#[test]
fn a_group_thread_that_waits_for_its_disk_is_woken_by_the_end() {
    model(|| {
        let (outage, mailbox) = (Arc::new(Outage::default()), Arc::new(Mailbox::<Word, Waker>::default()));
        outage.out();
        let group = {
            let outage = outage.clone();
            thread::spawn(move || outage.await_end(FOR_EVER))
        };
        outage.leave(&mailbox, Word);
        assert!(group.join().unwrap());
    });
}

/// The words of a client to the group thread.
enum Said {
    ToTheGroup(Arc<Slot<bool>>),
    /// It has its answer.
    Enough,
}

impl Letter for Said {
    fn refuse(self) {
        match self {
            Said::ToTheGroup(slot) => slot.fill(false),
            Said::Enough => {}
        }
    }
}

/// A member that is in its group after `before`, and whose server asks for `message` while its log's disk fails and works again. Returns
/// what its server was told, how often the group takes it for desynced then, and how often it would when it came back once more.
fn asked_in_an_outage(before: &[AppMessage], message: AppMessage) -> (bool, usize, u32) {
    let (outage, mailbox) = (Arc::new(Outage::default()), Arc::new(Mailbox::default()));
    before.iter().for_each(|message| outage.ordered(message));
    mailbox.open(Poll::default().waker());
    let client = {
        let (outage, mailbox, message) = (outage.clone(), mailbox.clone(), message.clone());
        thread::spawn(move || {
            let answer = outage.ask(&message, || {
                let slot = Arc::new(Slot::default());
                mailbox.push(Said::ToTheGroup(slot.clone()));
                slot.wait()
            });
            while !mailbox.push(Said::Enough) {
                thread::yield_now();
            }
            answer
        })
    };
    let (mut desyncs, mut enough) = (before.len(), false);
    let mut words = Vec::new();
    let mut carry_out = |words: &mut Vec<Said>, desyncs: &mut usize| {
        for said in words.drain(..) {
            match said {
                Said::ToTheGroup(slot) => {
                    *desyncs = if message == AppMessage::Desync { *desyncs + 1 } else { desyncs.saturating_sub(1) };
                    outage.ordered(&message);
                    slot.fill(true);
                }
                Said::Enough => enough = true,
            }
        }
        enough
    };
    mailbox.take(&mut words);
    carry_out(&mut words, &mut desyncs);
    outage.out();
    mailbox.close(&mut words);
    let (said, rest): (Vec<_>, Vec<_>) = words.drain(..).partition(|said| matches!(said, Said::ToTheGroup(_)));
    said.into_iter().for_each(Letter::refuse);
    words.extend(rest);
    let poll = Poll::default();
    outage.returned(&mailbox, poll.waker());
    desyncs = outage.desyncs() as usize;
    while !carry_out(&mut words, &mut desyncs) {
        poll.poll();
        mailbox.take(&mut words);
    }
    (client.join().unwrap(), desyncs, outage.desyncs())
}

/// Where a node came back between the refusal of a desync and its note, its server took it for desynced, and the group did not.
#[test]
fn a_desync_in_an_outage_is_told_to_the_group_or_remembered() {
    model(|| assert_eq!(asked_in_an_outage(&[], AppMessage::Desync), (true, 1, 1)));
}

#[test]
fn a_resync_in_an_outage_ends_the_desync() {
    model(|| assert_eq!(asked_in_an_outage(&[AppMessage::Desync], AppMessage::Resync), (true, 0, 0)));
}

// --- the way into the server -------------------------------------------------------------------------------------------------------

/// When it is closed, the library may be unloaded, and the storage engine with its server be gone.
#[test]
fn nobody_is_inside_a_gate_that_is_closed() {
    model(|| {
        let gate = Arc::new(Gate::default());
        let (inside, entered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let callers: Vec<_> = [(), ()]
            .map(|()| {
                let (gate, inside, entered) = (gate.clone(), inside.clone(), entered.clone());
                thread::spawn(move || {
                    let _ = gate.pass(|| {
                        entered.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                })
            })
            .into();
        assert!(gate.close(Instant::now() + FOR_EVER));
        let before = entered.load(Ordering::SeqCst);
        assert_eq!(inside.load(Ordering::SeqCst), 0);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert_eq!(entered.load(Ordering::SeqCst), before);
    });
}
