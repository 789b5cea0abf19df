//! The part of the history that was ordered before this node was in the group. At each start the log is read again from its
//! beginning, so that the roster and the certification index are what they were; the log of the server speaks of what
//! happens now.

use std::fmt;
use std::time::{Duration, Instant};

use trireme_types::Seqno;

/// Counts what is delivered up to the first own view.
pub(super) struct Past {
    began: Instant,
    write_sets: u64,
    views: u64,
    messages: u64,
    /// First and last.
    seqnos: Option<(Seqno, Seqno)>,
}

/// An entry of the past.
pub(super) enum Entry {
    WriteSet,
    View,
    Message,
}

impl Past {
    pub(super) fn begin() -> Past {
        Past { began: Instant::now(), write_sets: 0, views: 0, messages: 0, seqnos: None }
    }

    /// `seqno`: with a message, the last one before it.
    pub(super) fn count(&mut self, entry: &Entry, seqno: Seqno) {
        let counted = match entry {
            Entry::WriteSet => &mut self.write_sets,
            Entry::View => &mut self.views,
            Entry::Message => &mut self.messages,
        };
        *counted += 1;
        match entry {
            Entry::Message => {}
            Entry::WriteSet | Entry::View => {
                let (first, last) = self.seqnos.get_or_insert((seqno, seqno));
                *last = seqno.max(*first);
            }
        }
    }

    /// The summary for the operator; nothing, if there was nothing.
    pub(super) fn summary(&self) -> Option<String> {
        let summary = Summary { past: self, took: self.began.elapsed() };
        (self.entries() > 0).then(|| summary.to_string())
    }

    fn entries(&self) -> u64 {
        self.write_sets + self.views + self.messages
    }
}

struct Summary<'a> {
    past: &'a Past,
    took: Duration,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Past { write_sets, views, messages, seqnos, .. } = self.past;
        write!(
            f,
            "replayed {} entries of the write-set log in {:.1} s: ",
            self.past.entries(),
            self.took.as_secs_f64()
        )?;
        if let Some((first, last)) = seqnos {
            write!(f, "seqnos {first}-{last}, ")?;
        }
        write!(f, "{write_sets} write sets, {views} views, {messages} messages of members")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_told_in_one_line() {
        let mut past = Past::begin();
        assert_eq!(past.summary(), None);
        past.count(&Entry::Message, Seqno(13));
        let only = Summary { past: &past, took: Duration::from_millis(40) };
        assert_eq!(
            only.to_string(),
            "replayed 1 entries of the write-set log in 0.0 s: 0 write sets, 0 views, 1 messages of members"
        );
        past.count(&Entry::View, Seqno(14));
        past.count(&Entry::Message, Seqno(14));
        past.count(&Entry::WriteSet, Seqno(15));
        past.count(&Entry::WriteSet, Seqno(16));
        let all = Summary { past: &past, took: Duration::from_millis(1240) };
        assert_eq!(
            all.to_string(),
            "replayed 5 entries of the write-set log in 1.2 s: seqnos 14-16, 2 write sets, 1 views, 2 messages of members"
        );
    }
}
