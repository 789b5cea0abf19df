//! When the disk with the log fails: the node leaves the group, not its server, which takes it for a loss of the majority. Once the disk
//! works the log is opened anew, and the node joins again where its server stands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trireme_order::{LogStore, StoreError};
use trireme_types::Durability;

use super::{Command, Core, Log, Owed, Pending, refuse};
use crate::Level;
use crate::roster::AppMessage;
use crate::slot::Slot;
use crate::startup;

/// Before the first look at the disk. Doubled for a disk that fails again soon.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LOOKS_APART_MAX: Duration = Duration::from_secs(60);
/// A disk that has worked for so long is taken for mended.
const MENDED_AFTER: Duration = Duration::from_secs(60);
/// How long a sent, undecided commit waits, as in a component without majority.
const PATIENCE: Duration = Duration::from_secs(10);

impl Core {
    /// Until the disk works, or the connection is to end.
    pub(super) fn sit_out(&mut self) {
        self.retire();
        let again = self.returned.filter(|(when, _)| when.elapsed() < MENDED_AFTER);
        let pause = again.map_or(FIRST_LOOK, |(_, before)| (before * 2).min(LOOKS_APART_MAX));
        self.shared.log(
            Level::Warn,
            format!(
                "this node is out of the group until the disk with its write-set log works, which is looked for every {} s; nothing \
                 else need be done",
                pause.as_secs()
            ),
        );
        let since = Instant::now();
        let mut told = String::new();
        loop {
            if self.shared.outage.await_end(pause) {
                if self.shared.is_inconsistent() {
                    self.shared.mark_inconsistent();
                }
                return self.end_now();
            }
            if since.elapsed() > PATIENCE {
                self.answer_impatient();
            }
            match self.come_back(pause) {
                Ok(()) => return,
                Err(reason) if reason == told => {}
                Err(reason) => {
                    self.shared.log(Level::Info, format!("the write-set log cannot be opened yet: {reason}"));
                    told = reason;
                }
            }
        }
    }

    /// Out of the group. Whoever waits for a write set that was sent goes on waiting: it may be ordered.
    fn retire(&mut self) {
        self.on_non_primary(vec![self.me.clone()]);
        self.withdraw();
        self.drop_held_back();
        self.transport.close();
        let mut rest = Vec::new();
        self.shared.commands.close(&mut rest);
        for command in rest {
            if matches!(command, Command::Leave | Command::GiveUp { .. }) {
                self.shared.outage.end();
            }
            refuse(command);
        }
        self.shared.settings.with(|o| o.set_group_connected(false));
        self.shared.change_flow_figures(|f| {
            f.pause(Instant::now(), false);
            f.requested = false;
        });
        // What this incarnation still had to say means nothing once it is gone: the others close its streaming transactions themselves.
        self.owed.clear();
        self.pending.retain(|_, pending| matches!(pending, Pending::Owned { .. }));
        for (_, pending) in self.pending_app.drain() {
            if let Some(slot) = pending.slot {
                slot.fill(false);
            }
        }
        self.group.store_mut().let_go();
    }

    /// A log without all that was acknowledged is no evidence of what was committed (SAFETY 16).
    fn admit_loss(&self, log: &mut Log) -> Result<(), StoreError> {
        let failed = self.group.store();
        let acknowledged = match failed.durability() {
            Durability::Disk => failed.synced(),
            Durability::Process => failed.reader().held().1,
        };
        if log.last() < acknowledged && log.suspect().is_none() {
            self.shared
                .log(Level::Warn, format!("the disk lost entries {} to {acknowledged} of the log", log.last().next()));
            log.set_suspect(Some(log.last()))?;
        }
        Ok(())
    }

    /// Opens the log and looks for the group. **Errors:** what does not work yet.
    fn come_back(&mut self, pause: Duration) -> Result<(), String> {
        let shared = self.shared.clone();
        let mut log = shared.reopen_log()?;
        log.make_room().map_err(|e| e.to_string())?;
        self.admit_loss(&mut log).map_err(|e| e.to_string())?;
        let known = self.roster.view().members.iter().filter(|m| m.node != self.me.node && !m.address.is_empty());
        let peers = self.peers.clone().map(|mut peers| {
            peers.extend(known.map(|m| m.address.clone()));
            peers.sort();
            peers.dedup();
            peers
        });
        let position = (shared.history(), self.handed);
        let plan = startup::rejoin(&shared, &mut log, &self.cluster, peers, position)?;
        shared.set_reader(&log);
        shared.commands.open(plan.transport.waker());
        shared.settings.with(|o| o.set_group_connected(true));
        shared.log(
            Level::Info,
            format!("the write-set log works again: joining the group at {}:{}", position.0, position.1),
        );
        let mut core = Core::new(shared, plan, log, self.donor_list.clone(), Arc::new(Slot::default()));
        core.connected = None;
        core.returning = true;
        core.returned = Some((Instant::now(), pause));
        core.told = true;
        core.handed = self.handed;
        core.floor = self.floor;
        core.joined_at = self.joined_at;
        core.session = self.session;
        core.pending = std::mem::take(&mut self.pending);
        core.names = std::mem::take(&mut self.names);
        core.silences = self.silences;
        core.durability = self.durability;
        core.non_primary_since = Some(Instant::now());
        // The server's `wsrep_desync` outlives this.
        core.owed.extend((0..self.roster.desyncs(self.me.node)).map(|_| Owed::App(AppMessage::Desync)));
        *self = core;
        Ok(())
    }
}
