//! Waiting for the disk, beside the group thread.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use trireme_wslog::{DirStorage, SpareTicket, SyncTicket};

use crate::command::Command;
use crate::shared::Shared;
use crate::slot::Slot;

/// For the sync thread.
pub enum SyncJob {
    Sync(SyncTicket<DirStorage>),
    /// Fills it once everything before is done.
    Pass(Arc<Slot<()>>),
    End,
}

/// For the thread that prepares log segments, and disposes of what is large: filling one takes long enough to delay a commit that waits for a sync.
pub enum SpaceJob {
    Spare(SpareTicket<DirStorage>),
    /// Something so large that giving back its space, in memory or on the disk, takes tenths of a second.
    Drop(Box<dyn Send>),
    /// Fills it once everything before is done.
    Pass(Arc<Slot<()>>),
    End,
}

/// Until [`SyncJob::End`]. Every ticket is answered with [`Command::Synced`].
pub fn run_syncs(shared: &Arc<Shared>, jobs: &Receiver<SyncJob>) {
    while let Ok(job) = jobs.recv() {
        match job {
            SyncJob::Sync(ticket) => {
                shared.panics.come_by("trireme-sync");
                let begun = Instant::now();
                let outcome = ticket.run();
                shared.metrics.log_sync.record(begun.elapsed());
                shared.commands.push(Command::Synced(outcome));
            }
            SyncJob::Pass(slot) => slot.fill(()),
            SyncJob::End => return,
        }
    }
}

/// Until [`SpaceJob::End`]. Every ticket is answered with [`Command::SpareReady`].
pub fn run_space(shared: &Arc<Shared>, jobs: &Receiver<SpaceJob>) {
    while let Ok(job) = jobs.recv() {
        match job {
            SpaceJob::Spare(ticket) => {
                shared.panics.come_by("trireme-space");
                shared.commands.push(Command::SpareReady(ticket.run()));
            }
            SpaceJob::Drop(large) => drop(large),
            SpaceJob::Pass(slot) => slot.fill(()),
            SpaceJob::End => return,
        }
    }
}
