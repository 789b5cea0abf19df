//! How the server begins, as the replicator decides it: the commit order is set, what was kept back is handed over, and what missing it
//! costs is shown.

use std::time::{Duration, Instant};

use trireme_order::LogStore;
use trireme_replicator::progress::CatchUp;
use trireme_replicator::retention::EngineDisk;
use trireme_replicator::{Connect, Position};
use trireme_surface::texts;
use trireme_types::{Seqno, View};

use super::Core;
use super::incarnation::Unfed;
use crate::item::Item;
use crate::stop_signal;
use crate::{Level, ServerView, ViewStatus};

/// How often a node whose server cannot hear it looks whether that was told to stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(500);

impl Core {
    /// A server that is told nothing yet does not tell us either that it is to stop.
    pub(super) fn look_for_stop(&mut self) {
        // A `connect` that waits looks for itself.
        let nobody_looks = self.conn.connected.is_none() && self.inc.replicator.is_stranded();
        if nobody_looks && self.conn.looked_for_stop.elapsed() > LOOK_FOR_STOP {
            self.conn.looked_for_stop = Instant::now();
            if stop_signal::is_pending() {
                self.shared.die("The server was told to stop while it waited for whole data.".into());
            }
        }
    }

    /// This node can do nothing more for a server that waits for its first data. Nothing but the end of the process ends that wait.
    pub(super) fn end_start(&self, reason: &str) {
        if self.conn.starts && self.conn.connected.is_none() && self.inc.replicator.is_unfed() {
            self.shared.die(format!("The server cannot be given its data: {reason}"));
        }
    }

    pub(super) fn go_live(&mut self, position: Position, connect: Option<Connect>) {
        self.shared.monitor.reset(position.seqno);
        match std::mem::replace(&mut self.inc.unfed, Unfed::Unknown) {
            Unfed::Open(end) if end == position.seqno => {}
            Unfed::OnDisk(end) if end == position.seqno => {
                self.inc.engine = EngineDisk::closed_at(self.shared.data.new_epoch(), end);
            }
            // The files of a copy may not be on the disk yet.
            Unfed::Open(_) | Unfed::OnDisk(_) | Unfed::Unknown => {
                self.inc.engine = EngineDisk::new(self.shared.data.new_epoch());
            }
        }
        let now = self.now();
        self.inc.group.note_engine_disk(now, self.inc.engine.upto());
        self.shared.votes.forget(position.seqno);
        // Where a history begins there is nothing in it to compare.
        let word = self.conn.word.take().filter(|_| position.seqno != Seqno::ZERO);
        match (connect, word) {
            (None, _) => {}
            (Some(Connect::AtView { seqno, view }), None) => {
                let first = self.server_view(ViewStatus::Primary, Some(seqno), &view);
                self.tell(Item::Connected(first));
            }
            // A view behind the position would take the place of the engine's position, which is to be compared.
            (Some(Connect::AtView { seqno: _, view } | Connect::AtPosition { seqno: _, view }), _) => {
                let private = self.server_view(ViewStatus::Primary, Some(position.seqno), &view);
                self.tell(Item::Connected(private.clone()));
                self.tell(Item::View { view: private, closes: None });
            }
        }
        if let Some(word) = word {
            self.tell(Item::Compare { position: position.seqno, word });
        }
        self.shared.data.mark_running(self.inc.group.store().base().history);
        self.catch_up_from(position.seqno, None);
        self.publish();
    }

    /// The commit order stands where the server does: it has been running, perhaps in the middle of a statement that must not be taken for
    /// done.
    pub(super) fn resume(&mut self, position: Position, seqno: Seqno, view: &View) {
        let absence = self.server_view(ViewStatus::Primary, Some(seqno.prev()), view);
        self.catch_up_from(position.seqno, Some((seqno, absence)));
    }

    /// Hands over what was kept back after `position`; before the item that closes the given seqno, the server is told that view.
    fn catch_up_from(&mut self, position: Seqno, mut before: Option<(Seqno, ServerView)>) {
        let mut items = std::mem::take(&mut self.inc.backlog);
        let delivered = self.inc.replicator.delivered();
        if delivered > position {
            let event = trireme_flight::Event::CatchesUp { from: position.next(), to: delivered };
            self.shared.host.flight.note(event);
        }
        if delivered.0.saturating_sub(position.0) > 1 {
            self.shared.host.log(Level::Info, texts::receiving_ist(position.next(), delivered));
        }
        self.inc.catch_up = CatchUp::begin(position, delivered, self.now());
        while let Some(item) = items.pop() {
            if let Some((_, view)) = before.take_if(|(seqno, _)| item.seqno() == Some(*seqno)) {
                self.tell(Item::View { view, closes: None });
            }
            if item.seqno().is_none_or(|seqno| seqno > position) {
                self.tell(item);
            }
        }
        self.conn.proposals.release();
        self.settle_proposals();
    }
}
