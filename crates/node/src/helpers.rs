//! The node's own threads but for the group's: what each does with its jobs. They live from [`crate::Node::new`] to `close`.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use trireme_replicator::retention::Look;

use crate::Level;
use crate::command::Command;
use crate::engine::Eye;
use crate::jobs::{Chore, EngineJob, Inboxes, IndexJob, Notice, Service, SpaceJob, SyncJob};
use crate::shared::Shared;
use crate::state_file::{run_state, state_failed};
use crate::threads::{Helper, Waits};

/// Starts them all. `state_end`: its sender's end is the end of the state thread.
pub fn start(shared: &Arc<Shared>, inboxes: Inboxes, state_end: Receiver<()>) -> Vec<Helper> {
    let Inboxes { chores, services, notices, syncs, space, errands, looks } = inboxes;
    let (for_work, for_failure) = (shared.clone(), shared.clone());
    // A panic ends the measuring, and nothing else.
    let state = Helper::once(
        "trireme-state",
        Waits::DataDisk,
        move || run_state(&for_work, &state_end),
        move |said| state_failed(&for_failure, said),
    );
    vec![
        helper(shared, "trireme-chores", Waits::Server, move |shared| run_chores(shared, &chores)),
        helper(shared, "trireme-services", Waits::Server, move |shared| run_services(shared, &services)),
        helper(shared, "trireme-notices", Waits::Server, move |shared| run_notices(shared, &notices)),
        helper(shared, "trireme-sync", Waits::LogDisk, move |shared| run_syncs(shared, &syncs)),
        helper(shared, "trireme-space", Waits::LogDisk, move |shared| run_space(shared, &space)),
        helper(shared, "trireme-index", Waits::Nothing, move |shared| run_errands(shared, &errands)),
        helper(shared, "trireme-engine", Waits::Server, move |shared| run_looks(shared, &looks)),
        state,
    ]
}

/// One whose panic takes the node out of its group.
fn helper(shared: &Arc<Shared>, name: &'static str, waits: Waits, work: impl Fn(&Shared) + Send + 'static) -> Helper {
    let (for_work, for_failure) = (shared.clone(), shared.clone());
    Helper::start(name, waits, move || work(&for_work), move |said| for_failure.thread_failed(name, said))
}

/// Until [`Chore::End`]. Everything asked for before is done.
fn run_chores(shared: &Shared, chores: &Receiver<Chore>) {
    while let Ok(chore) = chores.recv() {
        shared.panics.come_by("trireme-chores");
        match chore {
            Chore::Log(level, text) => shared.host.server.log(level, &text),
            Chore::Die(text) => {
                shared.host.server.end(&text);
                shared.outlive(text);
            }
            Chore::End => return,
        }
    }
}

/// Until [`Service::End`].
fn run_services(shared: &Shared, asked: &Receiver<Service>) {
    while let Ok(service) = asked.recv() {
        shared.panics.come_by("trireme-services");
        match service {
            Service::Allow { token, address } => {
                let allowed = shared.host.server.allowed(&address);
                shared.commands.push(Command::Admit { token, allowed });
            }
            Service::Event(name, value) => shared.host.server.event(name, &value),
            Service::End => return,
        }
    }
}

/// Until [`Notice::End`].
fn run_notices(shared: &Shared, notices: &Receiver<Notice>) {
    while let Ok(notice) = notices.recv() {
        match notice {
            Notice::NonPrimary(view, beside) => {
                shared.panics.come_by("trireme-notices");
                shared.deliver_non_primary(&view);
                drop(beside);
            }
            Notice::End => return,
        }
    }
}

/// Until [`SyncJob::End`]. Every ticket is answered with [`Command::Synced`].
fn run_syncs(shared: &Shared, jobs: &Receiver<SyncJob>) {
    while let Ok(job) = jobs.recv() {
        match job {
            SyncJob::Sync(ticket) => {
                shared.panics.come_by("trireme-sync");
                let begun = Instant::now();
                shared.metrics.sync_since.begin(begun);
                let outcome = ticket.run();
                shared.metrics.note_sync(begun);
                shared.commands.push(Command::Synced(outcome));
            }
            SyncJob::Pass(slot) => slot.fill(()),
            SyncJob::End => return,
        }
    }
}

/// Until [`SpaceJob::End`]. Every ticket is answered with [`Command::SpareReady`].
fn run_space(shared: &Shared, jobs: &Receiver<SpaceJob>) {
    while let Ok(job) = jobs.recv() {
        match job {
            SpaceJob::Spare(ticket) => {
                shared.panics.come_by("trireme-space");
                shared.commands.push(Command::SpareReady(ticket.run()));
            }
            SpaceJob::Drop(large) => drop(large),
            SpaceJob::Certificates(shown) => {
                if let Err(why) = shared.host.settings.keep_certificates(&shown) {
                    shared.host.log(Level::Warn, why.to_string());
                }
            }
            SpaceJob::Pass(slot) => slot.fill(()),
            SpaceJob::End => return,
        }
    }
}

/// Until [`IndexJob::End`]. [`Command::IndexBack`] says that an errand has ended.
fn run_errands(shared: &Shared, jobs: &Receiver<IndexJob>) {
    while let Ok(job) = jobs.recv() {
        match job {
            IndexJob::Run(errand) => {
                shared.panics.come_by("trireme-index");
                errand.run();
                shared.commands.push(Command::IndexBack);
            }
            IndexJob::End => return,
        }
    }
}

/// Until [`EngineJob::End`]. Every look is answered with [`Command::EngineSeen`]. The only thread of the node that waits for the engine's log:
/// where that does not answer, everybody else goes on.
fn run_looks(shared: &Shared, jobs: &Receiver<EngineJob>) {
    let mut eye = Eye::new();
    while let Ok(job) = jobs.recv() {
        match job {
            EngineJob::Look { epoch, found } => {
                shared.panics.come_by("trireme-engine");
                // Before the engine is asked: what has ended by now is in what it says it has written. A write set that has
                // only left commit order may not be committed in the engine yet.
                let look = Look::new(epoch, found, shared.monitor.ended());
                let log = eye.look(&*shared.host.server);
                shared.commands.push(Command::EngineSeen { look, log });
            }
            EngineJob::Stop { history, left, ended, slot } => {
                slot.fill(eye.at_stop(&*shared.host.server, history, left, ended));
            }
            EngineJob::End => return,
        }
    }
}
