//! The memory that links may make this node hold: messages that do not end, and messages that nobody takes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use trireme_types::NodeId;

use crate::conn::Conn;
use crate::{DownCause, Transport};

/// A message that was begun grows by this much in [`Limits::unfinished_within`](crate::Limits), or its link is closed. Less than the slowest
/// network that a cluster can live with brings: one chunk, while chunks of other messages take their turns.
pub(crate) const PACE: usize = 4 << 10;
/// All strangers together have this part of [`Limits::memory_bytes`](crate::Limits) for what they do not take, bodies of write sets included.
const STRANGERS_PART: usize = 16;
/// And this part for what they take: several joiners may be given large snapshots at once, and are strangers until the view names them.
const TAKERS_PART: usize = 2;
/// A stranger that takes less than this of what waits for it, in so long a time, does not take it. Two looks: the first may come right
/// after a snapshot was queued.
const TAKES: usize = 512 << 10;
const TAKES_WITHIN: Duration = Duration::from_secs(2);

/// How many bytes there were when it was looked at, and when that was less than now by a pace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    bytes: usize,
    at: Instant,
}

impl Progress {
    /// Looks at what has come to `bytes`. True when it has grown by less than `pace` for `within`.
    pub fn stands(mark: &mut Option<Progress>, bytes: usize, pace: usize, now: Instant, within: Duration) -> bool {
        match mark {
            Some(progress) if bytes < progress.bytes + pace => now.duration_since(progress.at) >= within,
            Some(_) | None => {
                *mark = Some(Progress { bytes, at: now });
                false
            }
        }
    }
}

impl Transport {
    /// A peer that is no member may make us hold little, and so may all of them together.
    pub(crate) fn bound_stranger(&mut self, slot: usize, node: NodeId, now: Instant) {
        let max = self.cfg.limits.stranger_bytes;
        let held = |conn: &Conn| conn.frames.held() + conn.queue.control_cost();
        let Some(own) = self.conns[slot].as_ref().map(held) else { return };
        if own <= max / 64 {
            return;
        }
        let others = self.links.iter().filter(|(other, _)| *other != node && !self.is_member(*other));
        let others: usize = others.filter_map(|(_, slot)| Some(held(self.conns[*slot].as_ref()?))).sum();
        if own + others > max {
            let why = format!(
                "it is no member and makes this node hold {own} bytes, {others} more being held for others like it"
            );
            self.lose(slot, DownCause::Garbage, &why, now);
        }
    }

    /// Closes links on which a message does not go on, and, while all of them together hold too much, the one that holds most.
    pub(crate) fn bound_memory(&mut self, now: Instant) {
        let within = self.cfg.limits.unfinished_within;
        let links: Vec<(NodeId, usize)> = self.links.clone();
        for (_, slot) in &links {
            if self.conn(*slot).is_some_and(|conn| conn.frames.stands(now, within)) {
                let why =
                    format!("a message was begun, and less than {PACE} bytes of it came in {} s", within.as_secs());
                self.lose(*slot, DownCause::Garbage, &why, now);
            }
        }
        let max = self.cfg.limits.memory_bytes;
        let strangers: Vec<(NodeId, usize)> =
            links.iter().copied().filter(|(node, _)| !self.is_member(*node)).collect();
        let mut idle = strangers.clone();
        idle.retain(|(_, slot)| self.conn(*slot).is_some_and(|conn| conn.queue.stands(TAKES, now, TAKES_WITHIN)));
        self.bound_sum(&idle, max / STRANGERS_PART, "peers that are no members and do not take what is sent", now);
        self.bound_sum(&strangers, max / TAKERS_PART, "peers that are no members", now);
        self.bound_sum(&links, max, "all peers", now);
    }

    fn bound_sum(&mut self, links: &[(NodeId, usize)], max: usize, whose: &str, now: Instant) {
        loop {
            let conns = links.iter().filter_map(|(node, slot)| Some((*slot, self.conns[*slot].as_ref()?, *node)));
            let conns: Vec<(usize, &Conn)> = conns
                .filter(|(_, conn, node)| conn.up().is_some_and(|up| up.hello.member.node == *node))
                .map(|(slot, conn, _)| (slot, conn))
                .collect();
            // Counted once for each link: cheap, and more than there is.
            let at_most: usize = conns.iter().map(|(_, conn)| conn.frames.held() + conn.queue.bytes()).sum();
            if at_most <= max {
                return;
            }
            let mut seen = BTreeSet::new();
            let mut held = 0;
            for (_, conn) in &conns {
                held += conn.frames.held();
                conn.queue.for_each_body(|at, bytes| held += if seen.insert(at) { bytes } else { 0 });
            }
            if held <= max {
                return;
            }
            let most = conns.iter().max_by_key(|(_, conn)| conn.frames.held() + conn.queue.bytes());
            let Some((slot, own)) = most.map(|(slot, conn)| (*slot, conn.frames.held() + conn.queue.bytes())) else {
                return;
            };
            let why = format!(
                "{whose} together make this node hold {held} bytes, more than the limit of {max}, and this one {own}: the most"
            );
            self.lose(slot, DownCause::Garbage, &why, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_slowly_goes_on_and_what_trickles_does_not() {
        let start = Instant::now();
        let within = Duration::from_secs(30);
        let second = Duration::from_secs(1);
        let (mut slow, mut trickle) = (None, None);
        let mut stood = None;
        for n in 0..200u32 {
            let now = start + second * n;
            assert!(!Progress::stands(&mut slow, n as usize * 200, PACE, now, within));
            if Progress::stands(&mut trickle, n as usize, PACE, now, within) {
                stood = stood.or(Some(n));
            }
        }
        assert_eq!(stood, Some(30));
    }
}
