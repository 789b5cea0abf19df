//! Asking the server's storage engine how far its log is on disk, which may wait for the engine: a thread of its own does it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use trireme_replicator::retention::Look;

use crate::command::Command;
use crate::shared::Shared;

pub enum EngineJob {
    Look { epoch: u64 },
    End,
}

/// Until [`EngineJob::End`]. Every look is answered with [`Command::EngineSeen`].
pub fn run_looks(shared: &Arc<Shared>, jobs: &Receiver<EngineJob>) {
    while let Ok(job) = jobs.recv() {
        match job {
            EngineJob::Look { epoch } => {
                shared.panics.come_by("trireme-engine");
                // Before the engine is asked: what has ended by now is in what it says it has written. Who has only left commit order may
                // not have committed in the engine yet.
                let look = Look { epoch, ended: shared.monitor.ended() };
                let log = shared.server.engine_log();
                shared.commands.push(Command::EngineSeen { look, log });
            }
            EngineJob::End => return,
        }
    }
}
