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
}

impl TrxState {
    /// The answer to an ordered victim of an abort (contract 4.5, 6.4).
    pub fn hit(&mut self, seqno: Seqno) -> Code {
        match fate(self.flags & flags::TRX_END != 0) {
            Fate::Replay => Code::BfAbort,
            Fate::RollBack => {
                self.stage = Stage::Failed(seqno);
                Code::TrxFail
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
