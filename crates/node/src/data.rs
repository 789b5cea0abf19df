//! This node's knowledge of the server's data: of which history they are, how far they may be trusted, and what the state
//! files say of them.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use trireme_replicator::position::Stop;
use trireme_types::{Member, Seqno, Uuid, View};

use crate::Level;
use crate::engine;
use crate::host::Host;
use crate::saved::Saved;
use crate::threads::lock;

/// See the module. For any thread; `saved` may be held for as long as the disk takes to write a state file, and at a start for as long as
/// the engine takes to tell its position.
pub struct Data {
    host: Arc<Host>,
    saved: Mutex<Saved>,
    /// The history that the data are, or will be, of; changed by the group thread.
    history: Mutex<Uuid>,
    /// They are not the group's any more. Until the next `connect`.
    inconsistent: AtomicBool,
    /// Last seqno of the connection that has ended or is ending.
    last: AtomicU64,
    /// How often they have become others, as far as looks at the engine are concerned.
    epochs: AtomicU64,
}

impl Data {
    pub fn new(host: Arc<Host>, saved: Saved) -> Data {
        let position = saved.position();
        Data {
            host,
            history: Mutex::new(position.map_or(Uuid::NIL, |(history, _)| history)),
            inconsistent: AtomicBool::new(false),
            last: AtomicU64::new(position.map_or(0, |(_, seqno)| seqno.0)),
            epochs: AtomicU64::new(0),
            saved: Mutex::new(saved),
        }
    }

    pub fn set_history(&self, history: Uuid) {
        *lock(&self.history) = history;
    }

    pub fn history(&self) -> Uuid {
        *lock(&self.history)
    }

    /// Another number at each call.
    pub fn new_epoch(&self) -> u64 {
        self.epochs.fetch_add(1, Relaxed)
    }

    /// Changes the state files; tells the operator when they cannot be written.
    pub fn save<T>(&self, change: impl FnOnce(&mut Saved) -> T) -> T {
        let mut saved = lock(&self.saved);
        let result = change(&mut saved);
        let trouble = saved.take_trouble();
        drop(saved);
        if let Some(text) = trouble {
            self.host.log(Level::Warn, text);
        }
        result
    }

    pub fn on_primary_view(&self, view: &View, me: &Member, history: Uuid, has_data: bool) {
        self.save(|saved| saved.on_view(history, view, me, has_data));
    }

    pub fn mark_running(&self, history: Uuid) {
        self.save(|saved| saved.running(history));
    }

    /// The data here, which are empty, are the beginning of `history`.
    pub fn found(&self, history: Uuid) {
        self.save(|saved| saved.found(history));
    }

    /// A connection begins: what was wrong with them is settled by it.
    pub fn begin(&self) {
        self.inconsistent.store(false, Relaxed);
    }

    pub fn is_inconsistent(&self) -> bool {
        self.inconsistent.load(Relaxed)
    }

    /// At once, without a word to the disk: what fails in consequence is no news.
    pub fn note_inconsistent(&self) {
        self.inconsistent.store(true, Relaxed);
    }

    pub fn mark_inconsistent(&self) {
        self.note_inconsistent();
        self.discard();
    }

    /// They are of no use here, and the state file says so; a full copy makes it good.
    ///
    /// False: the state file cannot be written, so that the next life would take them for good.
    pub fn discard(&self) -> bool {
        self.save(Saved::corrupt)
    }

    /// It is not known that what the server is about to store follows what it has. Only a full copy makes the data good.
    pub fn doubt(&self) {
        if !self.is_inconsistent() {
            let reason = "the data here may lack what the group has: a full copy is needed at the next start";
            self.host.log(Level::Error, reason.into());
            self.mark_inconsistent();
        }
    }

    pub fn last(&self) -> Seqno {
        Seqno(self.last.load(Relaxed))
    }

    pub fn set_last(&self, last: Seqno) {
        self.last.store(last.0, Relaxed);
    }

    /// Puts on disk what statements have done that have ended, and takes back their marks.
    pub fn sync_statements(&self) -> io::Result<()> {
        // Of those that end from here on nobody knows whether this covers them.
        let ended = self.save(|saved| saved.ended());
        engine::sync_statement(self.host.args.data_dir())?;
        self.save(|saved| saved.end_synced(ended));
        Ok(())
    }

    /// Writes the position down once everything of a connection that ended has left commit order, and the engine has it on disk. Does
    /// nothing when that is done already, or was never possible. `queued`: something waits for appliers, and without them nobody has
    /// closed it, or will. `at_stop`: what may be said of the position of these data, as far as the engine answers; it may wait, and no lock
    /// is held meanwhile.
    pub fn settle_position(&self, left: Seqno, queued: bool, at_stop: impl FnOnce(Uuid) -> Option<Stop>) {
        let inconsistent = self.is_inconsistent();
        if inconsistent {
            // The thread that found that out may not have come to write it down.
            self.discard();
        } else if self.save(|saved| saved.owes_sync()) {
            // If it fails once more, the mark stays in the file.
            let _ = self.sync_statements();
        }
        if left < self.last() && !queued && !inconsistent {
            return;
        }
        let known = !inconsistent && self.save(|saved| saved.is_live());
        let stop = known.then(|| at_stop(self.history()).unwrap_or_else(|| self.unanswered(left)));
        if stop == Some(Stop::Unknown) {
            let text =
                "the storage engine has not written its last commits to disk: the next start asks it for its position";
            self.host.log(Level::Info, text.into());
        }
        self.save(|saved| saved.stopped(self.history(), stop));
    }

    fn unanswered(&self, left: Seqno) -> Stop {
        let text = format!("the storage engine has not answered for {:?}, and is not waited for", engine::STOP_MAX);
        self.host.log(Level::Warn, text);
        if self.host.server.process().is_some() { Stop::Unknown } else { Stop::Claimed(left) }
    }
}
