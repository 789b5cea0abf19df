//! How often a server wants to be left out of flow control, as its group has to be told after an outage of the log's disk.

use crate::message::AppMessage;

/// Desyncs that the server has asked for and not ended since. The group forgets them together with the incarnation that said them: the next one
/// says them again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Desyncs(u32);

impl Desyncs {
    /// A thread is about to ask for this. A resync counts from here on, as the server goes on without its desync whatever it is told.
    pub fn asked(&mut self, message: &AppMessage) {
        if matches!(message, AppMessage::Resync) {
            self.0 = self.0.saturating_sub(1);
        }
    }

    /// A thread's message was ordered. To be counted before the thread hears of it: it may ask for the next one at once.
    pub fn heard(&mut self, message: &AppMessage) {
        if matches!(message, AppMessage::Desync) {
            self.0 += 1;
        }
    }

    /// The group does not hear a thread's message. `out`: because the disk with the log does not work, and so a desync counts until the group can
    /// be told. Returns the answer to the thread.
    pub fn unheard(&mut self, message: &AppMessage, out: bool) -> bool {
        if out {
            self.heard(message);
        }
        out
    }

    /// So often the next incarnation has to desync.
    pub fn count(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desync_that_nobody_hears_counts_in_an_outage_only_and_its_end_always() {
        let mut desyncs = Desyncs::default();
        assert!(!desyncs.unheard(&AppMessage::Desync, false), "the server is told that it failed");
        assert_eq!(desyncs.count(), 0);
        assert!(desyncs.unheard(&AppMessage::Desync, true), "it is told to the group later");
        assert_eq!(desyncs.count(), 1);
        desyncs.asked(&AppMessage::Desync);
        assert_eq!(desyncs.count(), 1, "it is not ordered");
        desyncs.asked(&AppMessage::Resync);
        assert_eq!(desyncs.count(), 0, "whatever the server will be told");
        desyncs.heard(&AppMessage::Desync);
        desyncs.heard(&AppMessage::Joined);
        desyncs.heard(&AppMessage::Resync);
        assert_eq!(desyncs.count(), 1, "nothing else counts");
        desyncs.asked(&AppMessage::Resync);
        assert!(desyncs.unheard(&AppMessage::Resync, true));
        assert_eq!(desyncs.count(), 0);
    }
}
