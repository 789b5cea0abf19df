//! How far a catch-up has come: for the server's event service and, now and then, for its log.

use std::time::Duration;

use trireme_types::{Seqno, Timestamp};

/// Between two events, and between two lines of the log.
const EVENT_EVERY: Duration = Duration::from_secs(1);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// From the position of the server's data to where the group was when the catch-up began.
#[derive(Debug)]
pub struct CatchUp {
    first: Seqno,
    last: Seqno,
    event_at: Timestamp,
    line_at: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Seqnos, of `total`.
    pub done: u64,
    pub total: u64,
    /// Worth a line of the log too.
    pub line: bool,
}

impl Progress {
    /// The event's value, in the form that the server keeps in its status file. A member's states as numbers of the
    /// C API: from joiner (1) to synced (4).
    pub fn json(self) -> String {
        let Progress { done, total, .. } = self;
        format!("{{ \"from\": 1, \"to\": 4, \"total\": {total}, \"done\": {done}, \"indefinite\": -1 }}")
    }
}

impl CatchUp {
    /// `None` when there is nothing worth telling of.
    pub fn begin(position: Seqno, group: Seqno, now: Timestamp) -> Option<CatchUp> {
        (group.0.saturating_sub(position.0) > 1).then_some(CatchUp {
            first: position,
            last: group,
            event_at: now,
            line_at: now.after(LINE_EVERY),
        })
    }

    /// The line that is to be told now, if anything; `left` has left commit order.
    pub fn look(&mut self, left: Seqno, now: Timestamp) -> Option<Progress> {
        let total = self.last.0 - self.first.0;
        let done = left.0.saturating_sub(self.first.0).min(total);
        if now < self.event_at && done < total {
            return None;
        }
        self.event_at = now.after(EVENT_EVERY);
        let line = now >= self.line_at || done == total;
        if line {
            self.line_at = now.after(LINE_EVERY);
        }
        Some(Progress { done, total, line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_at_the_beginning_once_a_second_and_at_the_end() {
        let at = |millis| Timestamp::ZERO.after(Duration::from_millis(millis));
        let mut c = CatchUp::begin(Seqno(10), Seqno(20), at(0)).unwrap();
        assert_eq!(c.look(Seqno(10), at(0)), Some(Progress { done: 0, total: 10, line: false }));
        assert_eq!(c.look(Seqno(11), at(900)), None);
        assert_eq!(c.look(Seqno(15), at(1000)), Some(Progress { done: 5, total: 10, line: false }));
        assert_eq!(c.look(Seqno(19), at(11_000)), Some(Progress { done: 9, total: 10, line: true }));
        assert_eq!(c.look(Seqno(25), at(11_001)), Some(Progress { done: 10, total: 10, line: true }));
    }

    #[test]
    fn a_view_alone_is_no_catch_up() {
        assert!(CatchUp::begin(Seqno(10), Seqno(11), Timestamp::ZERO).is_none());
        assert!(CatchUp::begin(Seqno(10), Seqno(0), Timestamp::ZERO).is_none());
    }

    #[test]
    fn the_value_is_json_with_the_fields_that_the_server_reads() {
        let text = Progress { done: 3, total: 7, line: false }.json();
        assert_eq!(text, r#"{ "from": 1, "to": 4, "total": 7, "done": 3, "indefinite": -1 }"#);
    }
}
