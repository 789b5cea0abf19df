//! Reads that wait for a position, and what holds the commit order or the group up: pause and desync (contract 6.3, 6.5).

use super::Node;
use crate::command::Command;
use crate::monitor::Interrupted;
use crate::slot::Slot;
use crate::{Code, Gtid, Level, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use trireme_replicator::message::AppMessage;
use trireme_surface::texts;
use trireme_types::Seqno;

impl Node {
    /// `upto` `None`: a causal read. The second value is the position reached.
    pub fn sync_wait(&self, upto: Option<Gtid>, timeout: Wait) -> (Code, Gtid) {
        let shared = &self.shared;
        let timeout = match timeout {
            Wait::Default => shared.host.settings.causal_read_timeout(),
            Wait::For(limit) => limit,
        };
        let begun = Instant::now();
        // Far limits (the server passes INT_MAX seconds) are no limit.
        let deadline = Instant::now().checked_add(timeout.min(Duration::from_secs(86_400 * 365)));
        let target = match upto {
            None => {
                let slot = Arc::new(Slot::default());
                shared.commands.push(Command::Read { slot: slot.clone() });
                let answer = match deadline {
                    Some(at) => slot.wait_until(at),
                    None => Some(slot.wait()),
                };
                match answer {
                    Some(Some(seqno)) => {
                        shared.status.counters.causal_reads.fetch_add(1, Relaxed);
                        seqno
                    }
                    Some(None) => return (Code::ConnFail, shared.position()),
                    None => return (Code::TrxFail, shared.position()),
                }
            }
            Some(gtid) if gtid.history != shared.data.history() => return (Code::TrxMissing, shared.position()),
            Some(gtid) => gtid.seqno.unwrap_or(Seqno::ZERO),
        };
        // A reader wants to see what was committed; the server, inside its own commit order, only that it has left.
        let waited = match upto {
            None => shared.monitor.wait_ended(target, deadline),
            Some(_) => shared.monitor.wait_left(target, deadline),
        };
        if upto.is_none() && waited.is_ok() && shared.metrics.is_on() {
            shared.metrics.causal_read.record(begun.elapsed());
        }
        match waited {
            Ok(()) => (Code::Ok, shared.position()),
            Err(Interrupted::TimedOut) => (Code::TrxFail, shared.position()),
            Err(Interrupted::Closed | Interrupted::Aborted) => (Code::ConnFail, shared.position()),
        }
    }

    pub fn last_committed(&self) -> Gtid {
        self.shared.position()
    }

    /// Last seqno that has left commit order, or `None` when pausing failed.
    pub fn pause(&self) -> Option<Seqno> {
        let shared = &self.shared;
        let at = shared.monitor.pause().ok()?;
        shared.data.save(|saved| saved.paused(shared.data.history(), at));
        shared.host.log(Level::Info, texts::paused_at(shared.data.history(), at));
        Some(at)
    }

    pub fn resume(&self) -> Code {
        let shared = &self.shared;
        if shared.monitor.paused() {
            shared.data.save(|saved| saved.resumed(shared.data.history()));
            shared.host.log(Level::Info, texts::resuming_at(shared.monitor.left()));
            shared.monitor.resume();
            shared.host.log(Level::Info, texts::RESUMED.into());
        }
        Code::Ok
    }

    pub fn desync(&self) -> Code {
        self.ask(AppMessage::Desync)
    }

    /// The server throws for any other answer than OK. A resync that the group does not hear now is said again later, and a node that has left is
    /// out of step with nobody.
    pub fn resync(&self) -> Code {
        let _ = self.ask(AppMessage::Resync);
        Code::Ok
    }

    fn ask(&self, message: AppMessage) -> Code {
        let say = || {
            let slot = Arc::new(Slot::default());
            self.shared.commands.push(Command::App { message: message.clone(), slot: Some(slot.clone()) });
            slot.wait()
        };
        if self.shared.outage.ask(&message, say) { Code::Ok } else { Code::ConnFail }
    }
}
