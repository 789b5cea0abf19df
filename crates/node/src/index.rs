//! The group thread's certification index, and the errands on which it goes.
//!
//! Long work (a write set with very many keys, the state of an index that holds as many) is done by a thread of its own, to
//! which the whole index is handed over. Until it is back nothing is delivered; heartbeats, acknowledgements and votes go
//! on, so that no other member takes this one for dead. Nothing but time depends on where a piece of work was done: the
//! index is always with one thread, and sees the history in its order.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use bytes::Bytes;
use trireme_certification::{Certifier, Verdict, WriteSet};
use trireme_order::SnapshotRequest;
use trireme_types::{DecodeError, LogIndex, ProposalNumber, Seqno, Session, Writer};

/// A write set as delivered.
pub struct Delivered {
    pub index: LogIndex,
    pub seqno: Seqno,
    pub session: Session,
    pub number: ProposalNumber,
    pub body: Bytes,
}

/// The work that can take long.
pub enum Work {
    Judge {
        delivered: Delivered,
        write_set: WriteSet,
    },
    /// The state for `request`: `before`, then the index.
    Describe {
        request: SnapshotRequest,
        before: Writer,
    },
    /// Forget everything for this state.
    Load {
        state: Bytes,
    },
}

/// The result of it.
pub enum Found {
    Verdict { delivered: Delivered, write_set: WriteSet, verdict: Verdict },
    State { request: SnapshotRequest, state: Bytes },
    Loaded(Result<(), DecodeError>),
}

/// Keys that are looked at in one piece, a few milliseconds: to hand the index over costs a hundredth of that.
const KEYS_AT_ONCE_MAX: usize = 1 << 14;
/// Uses of keys whose memory is given back in one turn of the group thread: about a millisecond.
const RELEASE_AT_ONCE_MAX: usize = 1 << 13;
/// With more keys an index is put into a checkpoint only where there must be one: to write that file, and to read it back when the log is
/// trimmed, would take the group thread tenths of a second.
const CHECKPOINT_KEYS_MAX: usize = 1 << 18;
/// A key takes no less in an encoded state.
const KEY_BYTES_MIN: usize = 22;

impl Work {
    /// In keys.
    fn size(&self, certifier: &Certifier) -> usize {
        match self {
            Work::Judge { write_set, .. } => write_set.key_count(),
            Work::Describe { .. } => certifier.len(),
            Work::Load { state } => state.len() / KEY_BYTES_MIN,
        }
    }

    fn run(self, certifier: &mut Certifier) -> Found {
        match self {
            Work::Judge { delivered, write_set } => {
                let verdict = certifier.certify(delivered.seqno, &write_set, delivered.session);
                Found::Verdict { delivered, write_set, verdict }
            }
            Work::Describe { request, before: mut w } => {
                w.raw(&certifier.snapshot());
                Found::State { request, state: Bytes::from(w.buf) }
            }
            Work::Load { state } => Found::Loaded(Certifier::restore(&state).map(|loaded| *certifier = loaded)),
        }
    }
}

/// Work with the index that it needs.
pub struct Errand {
    certifier: Box<Certifier>,
    work: Work,
    back: Sender<(Box<Certifier>, Found)>,
}

impl Errand {
    pub fn run(mut self) {
        let found = self.work.run(&mut self.certifier);
        // Nobody waits for it where the group thread has ended.
        let _ = self.back.send((self.certifier, found));
    }
}

/// The thread that had the index has ended: a mistake in this program.
#[derive(Debug)]
pub struct Lost;

enum Place {
    Here(Box<Certifier>),
    Away(Receiver<(Box<Certifier>, Found)>),
}

/// See the module.
pub struct Index(Place);

impl Default for Index {
    fn default() -> Index {
        Index(Place::Here(Box::default()))
    }
}

impl Index {
    pub fn is_away(&self) -> bool {
        matches!(self.0, Place::Away(_))
    }

    /// For work that is short whatever the index holds.
    ///
    /// **Panics** while it is away: nothing is delivered then.
    pub fn here(&mut self) -> &mut Certifier {
        match &mut self.0 {
            Place::Here(certifier) => certifier,
            Place::Away(_) => panic!("nothing is delivered while the index is away"),
        }
    }

    /// Does the work at once, or calls `send` with what is to be run elsewhere: then [`Index::fetch`] has the answer some time later.
    pub fn begin(&mut self, work: Work, send: impl FnOnce(Errand)) -> Option<Found> {
        let certifier = self.here();
        if work.size(certifier) <= KEYS_AT_ONCE_MAX {
            return Some(work.run(certifier));
        }
        let (back, receiver) = channel();
        let Place::Here(certifier) = std::mem::replace(&mut self.0, Place::Away(receiver)) else { return None };
        send(Errand { certifier, work, back });
        None
    }

    /// The result of the errand, once that has ended.
    ///
    /// **Errors:** the index will not come back.
    pub fn fetch(&mut self) -> Result<Option<Found>, Lost> {
        let Place::Away(receiver) = &self.0 else { return Ok(None) };
        match receiver.try_recv() {
            Ok((certifier, found)) => {
                self.0 = Place::Here(certifier);
                Ok(Some(found))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Lost),
        }
    }

    /// Gives back memory, as much as one turn of the group thread may take for it; true while there is more.
    pub fn release(&mut self) -> bool {
        match &mut self.0 {
            Place::Here(certifier) => certifier.release(RELEASE_AT_ONCE_MAX),
            Place::Away(_) => false,
        }
    }

    /// Would a checkpoint be large? An index that is away is, or was a moment ago.
    pub fn is_large(&self) -> bool {
        match &self.0 {
            Place::Here(certifier) => certifier.len() > CHECKPOINT_KEYS_MAX,
            Place::Away(_) => true,
        }
    }

    /// Uses of keys above the cut; not known while it is away.
    pub fn retained(&self) -> Option<usize> {
        match &self.0 {
            Place::Here(certifier) => Some(certifier.retained()),
            Place::Away(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_certification::{Head, KeyKind, WriteSetBuilder, flags};
    use trireme_types::{Incarnation, NodeId, Uuid};

    /// A write set of `node` with the rows `from..from + rows`.
    fn delivered(seqno: u64, node: u8, last_seen: u64, from: u64, rows: usize) -> Work {
        let mut b = WriteSetBuilder::new();
        for row in from..from + rows as u64 {
            b.add_key([&b"d"[..], b"t", &row.to_le_bytes()], KeyKind::Exclusive).unwrap();
        }
        let node = Uuid([node; 16]);
        let head = Head {
            flags: flags::TRX_START | flags::TRX_END,
            last_seen: Seqno(last_seen),
            origin: node,
            trx: seqno,
            conn: 1,
        };
        let body = b.finish(&head).into_bytes();
        let write_set = WriteSet::parse(body.clone()).unwrap();
        let session = Session::first(NodeId(node), Incarnation(1));
        let delivered =
            Delivered { index: LogIndex(seqno), seqno: Seqno(seqno), session, number: ProposalNumber(seqno), body };
        Work::Judge { delivered, write_set }
    }

    fn describe() -> Work {
        let request = SnapshotRequest { at: LogIndex(1), peer: None };
        let mut before = Writer::new();
        before.u8(7);
        Work::Describe { request, before }
    }

    fn verdict(found: Found) -> Verdict {
        match found {
            Found::Verdict { verdict, .. } => verdict,
            Found::State { .. } | Found::Loaded(_) => panic!("a verdict was asked for"),
        }
    }

    /// Runs what is sent away, as the other thread would.
    fn elsewhere(index: &mut Index, work: Work) -> Found {
        let mut errand = None;
        assert!(index.begin(work, |e| errand = Some(e)).is_none(), "too large to be done at once");
        assert!(index.is_away());
        assert!(matches!(index.fetch(), Ok(None)), "nobody has done it");
        errand.unwrap().run();
        let found = index.fetch().unwrap().unwrap();
        assert!(!index.is_away());
        found
    }

    fn at_once(index: &mut Index, work: Work) -> Found {
        index.begin(work, |_| panic!("small enough to be done at once")).unwrap()
    }

    #[test]
    fn what_takes_long_is_done_elsewhere_with_the_same_result() {
        let mut index = Index::default();
        let mut plain = Certifier::new();
        let large = KEYS_AT_ONCE_MAX + 1;
        // (work, whether it is large); some of it conflicts with what came before.
        let history = [
            (delivered(1, 1, 0, 0, 10), false),
            (delivered(2, 2, 1, 5, large), true),
            (delivered(3, 1, 1, 7, 1), false),
            (delivered(4, 1, 1, 100, large), true),
            (delivered(5, 1, 3, 100, KEYS_AT_ONCE_MAX), false),
        ];
        let mut failed = 0;
        for (work, is_large) in history {
            let Work::Judge { delivered, write_set } = &work else { unreachable!() };
            let expected = plain.certify(delivered.seqno, write_set, delivered.session);
            failed += u64::from(!expected.ok());
            let found = if is_large { elsewhere(&mut index, work) } else { at_once(&mut index, work) };
            assert_eq!(verdict(found), expected);
        }
        assert_eq!(failed, 2);

        let Found::State { state, .. } = elsewhere(&mut index, describe()) else { panic!("a state was asked for") };
        assert_eq!(state[0], 7);
        assert_eq!(state[1..], plain.snapshot());
        let mut other = Index::default();
        let loaded = elsewhere(&mut other, Work::Load { state: state.slice(1..) });
        assert!(matches!(loaded, Found::Loaded(Ok(()))));
        assert_eq!(other.here().snapshot(), plain.snapshot());
    }

    #[test]
    fn the_state_of_a_small_index_is_described_and_loaded_at_once() {
        let mut index = Index::default();
        at_once(&mut index, delivered(1, 1, 0, 0, 10));
        let Found::State { state, .. } = at_once(&mut index, describe()) else { panic!("a state was asked for") };
        let mut other = Index::default();
        assert!(matches!(at_once(&mut other, Work::Load { state: state.slice(1..) }), Found::Loaded(Ok(()))));
        let damaged = at_once(&mut other, Work::Load { state: state.slice(2..) });
        assert!(matches!(damaged, Found::Loaded(Err(_))));
    }

    #[test]
    fn memory_is_given_back_in_turns() {
        let mut index = Index::default();
        let rows = 3 * RELEASE_AT_ONCE_MAX;
        elsewhere(&mut index, delivered(1, 1, 0, 0, rows));
        index.here().purge(Seqno(1));
        assert_eq!(index.retained(), Some(0));
        assert!(!index.is_large());
        for turn in 1..=3 {
            assert!(index.release(), "turn {turn}");
            assert_eq!(index.here().len(), rows + 2 - turn * RELEASE_AT_ONCE_MAX);
        }
        assert!(!index.release());
        assert_eq!(index.here().len(), 0);
    }

    #[test]
    fn checkpoints_are_put_off_until_the_keys_are_released() {
        let mut index = Index::default();
        elsewhere(&mut index, delivered(1, 1, 0, 0, CHECKPOINT_KEYS_MAX));
        assert!(index.is_large());
        index.here().purge(Seqno(1));
        assert!(index.release() && !index.is_large());
    }

    #[test]
    fn an_index_that_does_not_come_back_is_noticed() {
        let mut index = Index::default();
        assert!(index.begin(delivered(1, 1, 0, 0, KEYS_AT_ONCE_MAX + 1), drop).is_none());
        assert!(matches!(index.fetch(), Err(Lost)));
    }
}
