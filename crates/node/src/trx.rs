//! Local transactions: from the first key to release.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use trireme_certification::WriteSetBuilder;
use trireme_replicator::victim::{Fate, Stage, fate};
use trireme_types::Seqno;

use crate::stages::Stages;
use crate::{Code, Meta, TrxId, flags};

pub struct TrxState {
    /// Set in `node/transactions.rs` by `certify` and its answer, by `replay`, and by `release`, with which the next fragment begins; for a victim
    /// by [`TrxState::hit`].
    pub stage: Stage,
    pub builder: Option<WriteSetBuilder>,
    /// The body that was sent, kept for a replay.
    pub body: Option<Bytes>,
    pub meta: Option<Meta>,
    /// An append failed: certify must fail too, the server does not remember (contract 4.4).
    pub refused: Option<Code>,
    /// Flags of the last certify.
    pub flags: u32,
    /// When that began, and when it entered the commit order.
    pub begun: Option<Instant>,
    pub entered: Option<Instant>,
    /// How long it took until then.
    pub stages: Stages,
    /// The position of a view that has ended its stream on all nodes.
    pub ended_at: Option<Seqno>,
}

/// The answer to an ordered victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    pub code: Code,
    /// Its fragment begins a stream that nobody ends: the own server takes it for ended.
    pub begins_orphan: bool,
}

impl TrxState {
    /// The answer to an ordered victim of an abort (contract 4.5, 6.4).
    pub fn hit(&mut self, seqno: Seqno) -> Hit {
        let (begins, ends) = (self.flags & flags::TRX_START != 0, self.flags & flags::TRX_END != 0);
        let is_ended = self.ended_at.is_some_and(|view| view < seqno);
        match fate(ends) {
            Fate::Replay => {
                if is_ended && !begins {
                    // The others have no fragments of it any more. A replay would wait for the view, whose callback waits for this.
                    self.stage = Stage::Failed(seqno);
                }
                Hit { code: Code::BfAbort, begins_orphan: false }
            }
            Fate::RollBack => {
                self.stage = Stage::Failed(seqno);
                Hit { code: Code::TrxFail, begins_orphan: is_ended && begins }
            }
        }
    }
}

pub struct Trx {
    pub id: TrxId,
    state: Mutex<TrxState>,
    /// The brute-force mark. Set under the commit order's lock once the transaction is ordered.
    pub aborted: AtomicBool,
}

impl Trx {
    pub fn lock(&self) -> MutexGuard<'_, TrxState> {
        self.state.lock().expect("no holder of a transaction panics")
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }
}

const SHARDS: usize = 16;

/// Transactions by id. Ids are unique within a server process.
pub struct TrxMap {
    shards: [Mutex<HashMap<TrxId, Arc<Trx>>>; SHARDS],
}

impl Default for TrxMap {
    fn default() -> Self {
        TrxMap { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl TrxMap {
    fn shard(&self, id: TrxId) -> MutexGuard<'_, HashMap<TrxId, Arc<Trx>>> {
        self.shards[id.0 as usize % SHARDS].lock().expect("no holder of the transaction map panics")
    }

    pub fn get(&self, id: TrxId) -> Option<Arc<Trx>> {
        self.shard(id).get(&id).cloned()
    }

    pub fn get_or_create(&self, id: TrxId) -> Arc<Trx> {
        self.shard(id)
            .entry(id)
            .or_insert_with(|| {
                Arc::new(Trx {
                    id,
                    state: Mutex::new(TrxState {
                        stage: Stage::Collecting,
                        builder: None,
                        body: None,
                        meta: None,
                        refused: None,
                        flags: 0,
                        begun: None,
                        entered: None,
                        stages: Stages::default(),
                        ended_at: None,
                    }),
                    aborted: AtomicBool::new(false),
                })
            })
            .clone()
    }

    pub fn remove(&self, id: TrxId) {
        self.shard(id).remove(&id);
    }

    pub fn len(&self) -> usize {
        (0..SHARDS as u64).map(|s| self.shard(TrxId(s)).len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to an ordered victim at 9, with these flags, whose stream a view at this position ended; and whether a replay is refused.
    fn hit(flags: u32, view: Option<u64>) -> (Hit, bool) {
        let trx = TrxMap::default().get_or_create(TrxId(1));
        let mut state = trx.lock();
        (state.stage, state.flags, state.ended_at) = (Stage::Certified(Seqno(9)), flags, view.map(Seqno));
        (state.hit(Seqno(9)), state.stage == Stage::Failed(Seqno(9)))
    }

    /// The callback of the view waits for the client, whose replay would wait for the view; and the others have no fragments of it any more.
    #[test]
    fn a_stream_that_a_view_has_ended_is_not_replayed_behind_it() {
        let answer = |code, begins_orphan| Hit { code, begins_orphan };
        let (begins, ends) = (flags::TRX_START, flags::TRX_END);
        assert_eq!(hit(ends, Some(8)), (answer(Code::BfAbort, false), true));
        assert_eq!(hit(ends, Some(9)), (answer(Code::BfAbort, false), false), "the view is not before it");
        assert_eq!(hit(ends, None), (answer(Code::BfAbort, false), false));
        assert_eq!(hit(begins | ends, Some(8)), (answer(Code::BfAbort, false), false), "no stream");
        assert_eq!(hit(begins, Some(8)), (answer(Code::TrxFail, true), true), "the others begin a stream");
        assert_eq!(hit(begins, None), (answer(Code::TrxFail, false), true), "its server rolls it back everywhere");
        assert_eq!(hit(0, Some(8)), (answer(Code::TrxFail, false), true));
    }
}
