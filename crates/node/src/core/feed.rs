//! How the server begins: at its own position, by a full copy, or, when a statement was cut off on all members, from half done data.

use std::time::{Duration, Instant};

use trireme_order::LogStore;
use trireme_surface::texts;
use trireme_types::{NodeId, Seqno, Uuid, View};

use super::Core;
use crate::backlog::Backlog;
use crate::queue::Item;
use crate::stop_signal;
use crate::{Level, ServerView, ViewStatus};
use trireme_replicator::message::AppMessage;
use trireme_replicator::progress::CatchUp;
use trireme_replicator::roster::NodeState;

/// How often a node whose server cannot hear it looks whether that was told to stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(500);

/// Deliveries between start and the moment the server has its state.
pub(super) enum Feed {
    /// Kept back: the server's position is not settled yet.
    Held(Backlog),
    Live,
}

impl Feed {
    pub(super) fn held() -> Feed {
        Feed::Held(Backlog::default())
    }
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Feed::Live)
    }
}

/// The server has not been told anything yet: whether it needs a full copy depends on what the others have.
pub(super) struct HalfDone {
    pub(super) own_view: Seqno,
    pub(super) view: View,
    /// The newest message about it on its way.
    pub(super) said: Option<(u64, u64)>,
    /// The operator knows for whom this waits.
    pub(super) explained: bool,
    /// When it was last looked whether the server was told to stop.
    pub(super) looked: Instant,
}

pub(super) struct StateRequest {
    pub(super) request: Vec<u8>,
    pub(super) retry_at: Option<Instant>,
    /// Chosen donor, once there is one.
    pub(super) donor: Option<NodeId>,
}

impl Core {
    /// The first own view: does the server continue from its own position, or does it need a full copy?
    pub(super) fn begin_feed(&mut self, own_view: Seqno, view: &View) {
        self.told = true;
        if self.arbitrates() {
            self.feed = Feed::Live;
            let first = self.server_view(ViewStatus::Primary, Some(own_view), view);
            self.tell(Item::Connected(first.clone()));
            self.tell(Item::View { view: first, closes: None });
            return;
        }
        if let Some((history, position)) = self.position.filter(|(_, position)| *position >= own_view) {
            // What the group orders next would be taken for applied already (SAFETY 18).
            self.shared.log(
                Level::Warn,
                format!(
                    "the data are at {history}:{position}, beyond {own_view}, where the group goes on: it has lost its newest \
                     commits, and a full copy is needed here. If no node can give one, start the cluster anew from the node with \
                     the highest position: safe_to_bootstrap: 1 in its grastate.dat, then galera_new_cluster"
                ),
            );
            self.position = None;
        }
        match self.position {
            Some((_, position)) if self.returning => {
                // An earlier incarnation is gone. What it streamed the others have rolled back, and the server does it when it sees a view
                // without itself; after the loss of all sequencers the history has none.
                let others = View {
                    members: view.members.iter().filter(|m| m.node != self.me.node).cloned().collect(),
                    ..*view
                };
                let absence = self.server_view(ViewStatus::Primary, Some(own_view.prev()), &others);
                self.returning = false;
                self.catch_up_from(position, Some((own_view, absence)));
            }
            None if self.returning => self.fail("the running server cannot take a full copy: restart it".into()),
            Some(_) if self.script && self.roster.ready_donor(self.me.node, &self.donor_list).is_ok() => {
                self.need_script(own_view, view);
            }
            Some((_, position)) => self.go_live(position, Some((own_view, view))),
            None if self.fallback.is_some_and(|at| at < own_view) && !self.roster.anyone_has_state() => {
                self.told = false;
                self.half_done = Some(HalfDone {
                    own_view,
                    view: view.clone(),
                    said: None,
                    explained: false,
                    looked: Instant::now(),
                });
            }
            None => self.need_copy(own_view, view),
        }
    }

    pub(super) fn need_copy(&mut self, own_view: Seqno, view: &View) {
        let history = self.shared.history();
        self.shared.log(Level::Info, texts::state_transfer_required((history, Some(own_view)), (Uuid::NIL, None)));
        let connected = self.server_view(ViewStatus::Primary, Some(own_view), view);
        self.tell(Item::Connected(connected));
        self.tell(Item::SstRequest { data: true });
    }

    /// The log has all that this server missed, but not what a donor's script tells it. Without anybody who could run that now
    /// (all nodes were down) the server goes on without.
    pub(super) fn need_script(&mut self, own_view: Seqno, view: &View) {
        self.shared
            .log(Level::Info, "wsrep_gtid_mode: asking a donor's script for wsrep_gtid_domain_id, not for data".into());
        let connected = self.server_view(ViewStatus::Primary, Some(own_view), view);
        self.tell(Item::Connected(connected));
        self.tell(Item::SstRequest { data: false });
    }

    /// With half done data: a full copy as soon as somebody has whole ones. If nobody has, and no voter is absent who might, one
    /// member goes on from its half done data and executes the statement again.
    pub(super) fn step_half_done(&mut self) {
        let Some(waiting) = &self.half_done else { return };
        if self.roster.anyone_has_state() {
            if let Some(HalfDone { own_view, view, .. }) = self.half_done.take() {
                self.told = true;
                self.need_copy(own_view, &view);
            }
            return;
        }
        if waiting.looked.elapsed() > LOOK_FOR_STOP {
            if stop_signal::is_pending() {
                return self.shared.die("The server was told to stop while it waited for whole data.".into());
            }
            if let Some(waiting) = &mut self.half_done {
                waiting.looked = Instant::now();
            }
        }
        if self.half_done.as_ref().is_some_and(|waiting| waiting.said.is_some()) {
            return;
        }
        let said = if !self.roster.lacks_state(self.me.node) {
            let Some(position) = self.fallback else { return };
            self.propose_app(&AppMessage::HalfDone { position })
        } else if !self.roster.nobody_has_state() {
            return;
        } else {
            let present = self.roster.view();
            let absent: Vec<String> = self
                .group
                .status()
                .voters
                .voters
                .iter()
                .filter(|v| present.get(v.node).is_none())
                .map(|v| v.node.to_string())
                .collect();
            if absent.is_empty() {
                self.propose_app(&AppMessage::GoOnHalfDone)
            } else {
                if self.half_done.as_ref().is_some_and(|waiting| !waiting.explained) {
                    self.shared.log(
                        Level::Warn,
                        format!(
                            "a statement was cut off on all members that are here; waiting for those that may have whole data: \
                             {}. If they are lost for good, stop this server, set safe_to_bootstrap: 1 in its grastate.dat and \
                             start it with galera_new_cluster",
                            absent.join(", ")
                        ),
                    );
                }
                if let Some(waiting) = &mut self.half_done {
                    waiting.explained = true;
                }
                return;
            }
        };
        if let Some(waiting) = &mut self.half_done {
            waiting.said = said;
        }
        self.drain();
    }

    pub(super) fn go_on_half_done(&mut self) {
        let (Some(HalfDone { own_view, view, .. }), Some(position)) = (self.half_done.take(), self.fallback) else {
            return;
        };
        self.shared.log(
            Level::Warn,
            format!(
                "a statement was cut off on all members: this one goes on from {position} and executes it again, the others copy \
                 from here"
            ),
        );
        self.told = true;
        self.position = Some((self.group.store().base().history, position));
        self.group.data_arrived();
        self.go_live(position, Some((own_view, &view)));
        self.publish();
    }

    /// Everything after `position` goes to the server from here on. With a view, the server is first told that it is
    /// connected: at that view when nothing comes before it, else at a private view at its own position, so that a
    /// server whose storage engine starts inside the view callback replays what it missed without a donor (SAFETY 20).
    pub(super) fn go_live(&mut self, position: Seqno, connect: Option<(Seqno, &View)>) {
        if self.feed.is_live() {
            return;
        }
        self.shared.monitor.reset(position);
        self.shared.votes.forget(position);
        self.floor = position;
        if let Some((own_view, view)) = connect {
            if position.next() == own_view {
                let first = self.server_view(ViewStatus::Primary, Some(own_view), view);
                self.tell(Item::Connected(first));
            } else {
                let private = self.server_view(ViewStatus::Primary, Some(position), view);
                self.tell(Item::Connected(private.clone()));
                self.tell(Item::View { view: private, closes: None });
            }
        }
        self.shared.mark_running(self.group.store().base().history);
        self.catch_up_from(position, None);
    }

    /// Hands over what was kept back after `position`; before the item that closes the given seqno, the server is told that view. The
    /// commit order stands where the server does: one that returns has been running, perhaps in the middle of a statement that must not
    /// be taken for done.
    fn catch_up_from(&mut self, position: Seqno, mut before: Option<(Seqno, ServerView)>) {
        let Feed::Held(mut items) = std::mem::replace(&mut self.feed, Feed::Live) else { return };
        self.handed = position;
        self.reported = position;
        if self.delivered.0.saturating_sub(position.0) > 1 {
            self.shared.log(Level::Info, texts::receiving_ist(position.next(), self.delivered));
        }
        self.catch_up = CatchUp::begin(position, self.delivered, self.now());
        while let Some(item) = items.pop() {
            if let Some((_, view)) = before.take_if(|(seqno, _)| item.seqno() == Some(*seqno)) {
                self.tell(Item::View { view, closes: None });
            }
            self.hand(item);
        }
    }

    pub(super) fn on_state_request(&mut self, request: Vec<u8>) {
        let words = request.strip_suffix(b"\0").unwrap_or(&request);
        if words == b"trivial" || words == b"none" || words.is_empty() {
            // The server says that it needs no data, or will get them by other means, or (empty) can run no script any more.
            let before = self.position.map_or(self.joined_at.prev(), |(_, own)| own);
            return self.on_state_received(Some(before));
        }
        self.request = Some(StateRequest { request, retry_at: Some(Instant::now()), donor: None });
    }

    pub(super) fn on_state_received(&mut self, position: Option<Seqno>) {
        self.request = None;
        if self.feed.is_live() {
            self.shared.log(Level::Info, "a state transfer was reported to a node that waits for none: ignored".into());
            return;
        }
        let own = self.position.map(|(_, own)| own);
        match position {
            Some(position) if own.is_some_and(|own| own != position) => {
                self.shared.die(format!(
                    "The script of the donor brought position {position} to a server that needs no data."
                ));
            }
            Some(position) => {
                self.position = Some((self.group.store().base().history, position));
                self.group.data_arrived();
                self.go_live(position, None);
                self.publish();
            }
            None => self.shared.die("State transfer failed: the server has no usable data. Need to abort.".into()),
        }
    }

    pub(super) fn ask_for_state(&mut self) {
        let Some(request) = &mut self.request else { return };
        if request.retry_at.is_some_and(|at| at <= Instant::now()) {
            request.retry_at = None;
            let message = AppMessage::StateRequest {
                donors: self.donor_list.clone(),
                request: request.request.clone(),
                position: self.position.map(|(_, own)| own),
            };
            if self.propose_app(&message).is_none() {
                if let Some(r) = &mut self.request {
                    r.retry_at = Some(Instant::now() + Duration::from_millis(200));
                }
            }
            self.drain();
        }
    }

    /// Joined once the server has its state, synced once the queue is short.
    pub(super) fn announce(&mut self) {
        if !self.settling() || self.announced.is_some() {
            return;
        }
        let message = match self.roster.state(self.me.node) {
            Some(NodeState::Primary | NodeState::Joiner) => AppMessage::Joined,
            Some(NodeState::Joined) if self.shared.queue.len() as u64 <= self.flow.limits().lower => AppMessage::Synced,
            _ => return,
        };
        self.announced = self.propose_app(&message);
        self.drain();
    }
}
