//! When the disk with the log fails: the node leaves the group, not its server, which takes it for a loss of the majority. Once the disk
//! works the log is opened anew, and the node joins again where its server stands, as a new incarnation.

use std::time::{Duration, Instant};

use super::Core;
use super::incarnation::Incarnation;
use crate::Level;
use crate::command::Command;
use crate::mailbox::Letter;
use crate::startup::{self, ConnectError};
use trireme_replicator::retention::EngineDisk;

/// Before the first look at the disk. Doubled for a disk that fails again soon.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const FIRST_LOOK_MAX: Duration = Duration::from_secs(60);
/// Looks in vain come at growing distances, up to this.
const LOOKS_APART_MAX: Duration = Duration::from_secs(10);
/// A disk that has worked for so long is taken for mended.
const MENDED_AFTER: Duration = Duration::from_secs(60);

impl Core {
    /// Until the disk works, or the connection is to end.
    pub(super) fn sit_out(&mut self) {
        if self.shared.data.is_inconsistent() {
            return self.become_over();
        }
        self.retire();
        let again = self.conn.returned.filter(|(when, _)| when.elapsed() < MENDED_AFTER);
        let first = again.map_or(FIRST_LOOK, |(_, before)| (before * 2).min(FIRST_LOOK_MAX));
        self.shared.host.log(
            Level::Warn,
            format!(
                "this node is out of the group until the disk with its write-set log works: it looks in {} s, then every {} s at most; nothing \
                 else need be done",
                first.as_secs(),
                first.max(LOOKS_APART_MAX).as_secs()
            ),
        );
        let mut pause = first;
        let mut told = String::new();
        while !self.shared.outage.await_end(pause) {
            match self.come_back(first) {
                Ok(()) => break,
                Err(error) if error.to_string() == told => {}
                Err(error) => {
                    let reason = error.to_string();
                    self.shared.host.log(Level::Info, format!("the write-set log cannot be opened yet: {reason}"));
                    told = reason;
                }
            }
            pause = (pause * 2).min(LOOKS_APART_MAX.max(first));
        }
        // A thread that ended the connection before the commands were opened again was not heard in any other way.
        if self.shared.outage.await_end(Duration::ZERO) {
            if self.shared.data.is_inconsistent() {
                // As when a node gives up in its group.
                self.shared.drop_all(true);
            }
            self.become_over();
        }
    }

    /// Out of the group. Proposals that were sent and are not decided are left open, as at the end of a connection (rule
    /// 22), but for statements in total-order isolation: they go on waiting, as in a loss of the majority, until the core
    /// that comes back knows.
    fn retire(&mut self) {
        self.on_non_primary(vec![self.inc.me.clone()]);
        self.inc.transport.close();
        // Before threads are told that nobody heard their message: a desync counts from here on all the same.
        self.shared.outage.out();
        self.conn.proposals.retire();
        for command in self.hang_up() {
            if matches!(command, Command::Leave | Command::GiveUp { .. }) {
                self.shared.outage.end();
            }
            command.refuse();
        }
        self.shared.votes.abandon();
        self.inc.group.store_mut().let_go();
    }

    /// Opens the log and looks for the group. **Errors:** what does not work yet.
    fn come_back(&mut self, first_look: Duration) -> Result<(), ConnectError> {
        let shared = self.shared.clone();
        let mut log = shared.reopen_log(self.inc.group.store_mut(), shared.outage_goes_on())?;
        let known = self
            .inc
            .replicator
            .roster()
            .view()
            .members
            .iter()
            .filter(|m| m.node != self.inc.me.node && !m.address.is_empty());
        let peers = self.conn.peers.clone().map(|mut peers| {
            peers.extend(known.map(|m| m.address.clone()));
            peers.sort();
            peers.dedup();
            peers
        });
        let position = (shared.data.history(), self.inc.replicator.handed());
        let plan = startup::rejoin(&shared.host, &mut log, &self.conn.cluster, peers, position)?;
        shared.set_reader(&log);
        shared.host.flight.note(trireme_flight::Event::LogWorks {});
        shared.host.log(
            Level::Info,
            format!("the write-set log works again: joining the group at {}:{}", position.0, position.1),
        );
        // The group is told what the server asks for from here on. Its failures before that are on record, and the replicator tells of them.
        shared.outage.returned(&shared.commands, plan.transport.waker());
        shared.complain_of_failures(shared.failures.save());
        let first = self.inc.replicator.to_return(position.0, shared.failures.known());
        self.conn.cluster.clone_from(&plan.cluster);
        self.conn.peers.clone_from(&plan.peers);
        // The unsent messages of the former incarnation mean nothing now: the others close its streaming transactions
        // themselves. The write sets that its clients wait for stay: the entry is delivered, or the first of this
        // incarnation's own session shows that it never will be.
        let disk = std::mem::replace(&mut self.inc.engine, EngineDisk::new(0));
        let (incarnation, failure) =
            Incarnation::begin(&shared, plan, log, self.conn.donor_list.clone(), first, Some(disk));
        self.inc = incarnation;
        self.become_back();
        self.conn.returned = Some((Instant::now(), first_look));
        if let Some(reason) = failure {
            self.fail(reason);
        }
        shared.host.settings.with(|o| o.set_group_connected(true));
        Ok(())
    }
}
