//! How long a word to a peer and back takes. Each member is asked again and again, one question at a time.

use std::time::{Duration, Instant};

use trireme_types::NodeId;

use crate::NetEvent;
use crate::conn::{Conn, Up};
use crate::gossip::Gossip;
use crate::transport::Transport;

/// Of one link.
pub(crate) struct Probe {
    /// When the next question is due.
    due: Instant,
    /// The number of the open question, and when it was asked.
    asked: Option<(u64, Instant)>,
    latest: Option<Duration>,
}

impl Probe {
    pub fn new(due: Instant) -> Probe {
        Probe { due, asked: None, latest: None }
    }

    /// The latest answer; or how long the next one is waited for, if that is longer already.
    pub fn round_trip(&self, now: Instant) -> Option<Duration> {
        let waiting = self.asked.map(|(_, at)| now.saturating_duration_since(at));
        let longer = |latest: Duration| waiting.map_or(latest, |waiting| latest.max(waiting));
        // A link whose first answer is not there yet has no round trip that could be told.
        self.latest.map(longer)
    }
}

impl Transport {
    /// Asks those members whose turn it is. Strangers are not asked: they could leave the questions unread.
    pub(crate) fn probe(&mut self, now: Instant) {
        for at in 0..self.links.len() {
            let (node, slot) = self.links[at];
            let (member, every, number) = (self.is_member(node), self.cfg.probe_every, self.jitter.next());
            let Some(Up { probe, .. }) = self.conn(slot).and_then(Conn::up_mut) else { continue };
            let is_due = probe.due <= now;
            if is_due {
                probe.due = now + every;
            }
            let next = probe.due;
            // A peer that does not answer is not asked once more.
            if is_due && member && probe.asked.is_none() {
                // Later than `now`, which lies before all that came in this poll.
                probe.asked = Some((number, Instant::now()));
                self.push_raw(slot, Gossip::Ping(number).encode());
            }
            self.wake_at(next);
        }
    }

    /// `false`: the number is not that of the open question on this link.
    pub(crate) fn on_probed(&mut self, slot: usize, node: NodeId, number: u64) -> bool {
        let Some(Up { probe, .. }) = self.conn(slot).and_then(Conn::up_mut) else { return false };
        let Some((_, at)) = probe.asked.take_if(|(asked, _)| *asked == number) else { return false };
        let time = at.elapsed();
        probe.latest = Some(time);
        self.pending.push(NetEvent::RoundTrip { node, time });
        true
    }
}
