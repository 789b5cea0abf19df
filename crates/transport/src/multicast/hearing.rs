//! How well a peer hears what this node sends by multicast, by its own account.

use std::time::{Duration, Instant};

/// So long a peer that misses much gets bodies over its link.
pub(crate) const ON_LINK: Duration = Duration::from_secs(10);
/// Judged after so many datagrams …
const ENOUGH: u64 = 16;
/// … or after so many answers.
const ANSWERS: u32 = 4;
/// A peer that leaves so many announcements in a row unanswered is taken for one that hears nothing.
const UNANSWERED: u32 = 8;
/// A peer that misses more than one in so many, and more than one, misses much. Each loss costs a question and a body from
/// the sequencer.
const ONE_IN: u64 = 20;

/// How bodies get to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// By its link, as long as it has not shown that it hears, and not before then.
    Link(Option<Instant>),
    Multicast,
}

/// The result of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// From now on by multicast.
    Hears,
    /// For a while by its link.
    Misses { missed: u64, of: u64 },
}

pub(crate) struct Hearing {
    way: Way,
    /// Where the present count begins: sent here, heard there.
    base: Option<(u64, u64)>,
    answers: u32,
    /// Announcements since the last answer.
    unanswered: u32,
    /// All that were judged as missed.
    pub missed: u64,
}

impl Hearing {
    pub fn new() -> Hearing {
        Hearing { way: Way::Link(None), base: None, answers: 0, unanswered: 0, missed: 0 }
    }

    pub fn hears(&self) -> bool {
        self.way == Way::Multicast
    }

    /// The peer is asked what it has heard.
    pub fn on_announced(&mut self, now: Instant) {
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered > UNANSWERED && self.hears() {
            (self.way, self.base) = (Way::Link(Some(now + ON_LINK)), None);
        }
    }

    /// The peer has heard so many when this node had sent so many. Datagrams that were under way then count as missed, and
    /// later as heard.
    pub fn on_answer(&mut self, sent: u64, heard: u64, now: Instant) -> Option<Turn> {
        self.unanswered = 0;
        let Some((sent_before, heard_before)) = self.base else {
            self.base = Some((sent, heard));
            return None;
        };
        let of = sent.saturating_sub(sent_before);
        let missed = of.saturating_sub(heard.saturating_sub(heard_before));
        self.answers += 1;
        if of < ENOUGH && self.answers < ANSWERS {
            return None;
        }
        (self.base, self.answers) = (Some((sent, heard)), 0);
        self.missed = self.missed.saturating_add(missed);
        let much = missed > 1 && missed > of / ONE_IN || missed == of;
        match self.way {
            Way::Multicast if much => {
                self.way = Way::Link(Some(now + ON_LINK));
                Some(Turn::Misses { missed, of })
            }
            Way::Link(until) if !much && until.is_none_or(|until| now >= until) => {
                self.way = Way::Multicast;
                Some(Turn::Hears)
            }
            Way::Link(_) | Way::Multicast => None,
        }
    }
}
