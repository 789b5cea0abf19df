//! How far a reader has to be before a client reads there, so that the client sees what it wrote and what it read before.
//!
//! The writer tells the position of each commit with its answer (a GTID); the reader is asked to wait for that one, which needs no question to the
//! group. **Invariant:** whatever is not known for certain costs a wait for everything that is committed, and never an older read.

use crate::packet::{Cursor, Malformed};

/// The place of a commit in one numbering of a group: `DOMAIN-SERVER-NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gtid {
    domain: u32,
    server: u32,
    number: u64,
}

impl Gtid {
    pub fn parse(text: &[u8]) -> Option<Gtid> {
        let mut parts = std::str::from_utf8(text).ok()?.split('-');
        let gtid = Gtid {
            domain: parts.next()?.parse().ok()?,
            server: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(gtid)
    }

    /// Of the same numbering, and not before it.
    pub fn reaches(&self, other: &Gtid) -> bool {
        (self.domain, self.server) == (other.domain, other.server) && self.number >= other.number
    }
}

/// What a read on the reader has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The reader is known to be far enough.
    Nothing,
    Upto(Gtid),
    /// All that was committed when the read began.
    All,
}

#[derive(Debug)]
pub struct Causality {
    /// The client's newest commit of which the writer told the position.
    newest: Option<Gtid>,
    /// The client may have seen more than `newest` and more than its reader: nobody knows how far that was.
    unknown: bool,
    /// The reader is known to have this one.
    reached: Option<Gtid>,
    /// The reader numbers as the writer does, as far as is known.
    comparable: bool,
}

impl Default for Causality {
    /// Before a client's first statement: it may have written in an earlier connection.
    fn default() -> Causality {
        Causality { newest: None, unknown: true, reached: None, comparable: true }
    }
}

impl Causality {
    /// The writer has answered a statement that showed or changed something. A commit comes after all that its session saw before.
    pub fn handle_writer(&mut self, committed: Option<Gtid>) {
        let goes_on = |newest: Gtid| committed.is_none_or(|gtid| gtid.reaches(&newest) && gtid != newest);
        let goes_on = self.newest.is_none_or(goes_on);
        if !goes_on {
            // Somebody has set the numbers anew: the old ones say nothing about these.
            (self.newest, self.reached) = (None, None);
        }
        self.unknown = committed.is_none() || !goes_on;
        self.newest = committed.or(self.newest);
    }

    /// Another server is the writer from now on. What the client heard from the last one is not compared with what this one tells.
    pub fn handle_new_writer(&mut self) {
        (self.newest, self.unknown, self.reached) = (None, true, None);
    }

    /// Another server is the reader from now on.
    pub fn handle_reader(&mut self) {
        (self.unknown, self.reached, self.comparable) = (true, None, true);
    }

    /// The client's newest commit with a number.
    pub fn newest(&self) -> Option<Gtid> {
        self.newest
    }

    pub fn wait(&self) -> Wait {
        match self.newest {
            _ if self.unknown => Wait::All,
            None => Wait::Nothing,
            Some(newest) if self.reached.is_some_and(|reached| reached.reaches(&newest)) => Wait::Nothing,
            Some(newest) if self.comparable => Wait::Upto(newest),
            Some(_) => Wait::All,
        }
    }

    /// The reader has answered after this wait.
    pub fn handle_read(&mut self, wait: Wait) {
        match wait {
            Wait::Nothing => {}
            Wait::Upto(gtid) => self.reached = Some(gtid),
            Wait::All => (self.unknown, self.reached) = (false, self.newest),
        }
    }

    /// The reader's answer to a wait did not show that it has the commit.
    pub fn handle_incomparable(&mut self) {
        self.comparable = false;
    }
}

/// Without an answer for so long, in seconds, the writer reads instead.
const PATIENCE: u32 = 1;

/// Asks a reader to wait for a commit. Its answer has to pass [`has_waited`].
pub fn question(gtid: &Gtid) -> Vec<u8> {
    let Gtid { domain, server, number } = gtid;
    let wait = format!("WSREP_SYNC_WAIT_UPTO_GTID('{domain}-{server}-{number}', {PATIENCE})");
    // A server waits for nothing, and says that all is well, if it numbers in another way.
    format!("\x03SELECT {wait}, WSREP_LAST_SEEN_GTID(), @@GLOBAL.wsrep_gtid_mode").into_bytes()
}

/// Asks a reader how far it is, without a wait. Its answer has to pass [`has_waited`].
pub const SEEN: &[u8] = b"\x03SELECT 1, WSREP_LAST_SEEN_GTID(), @@GLOBAL.wsrep_gtid_mode";

/// Whether this row shows that the reader has the commit.
pub fn has_waited(row: &[Vec<u8>], gtid: &Gtid) -> bool {
    let [waited, seen, mode] = row else { return false };
    let seen = Gtid::parse(seen);
    waited == b"1" && mode == b"1" && seen.is_some_and(|seen| seen.reaches(gtid))
}

/// Whether a writer gives its commits the numbers of the group.
pub const NUMBERS: &[u8] = b"\x03SELECT @@GLOBAL.wsrep_gtid_mode AND @@GLOBAL.log_bin AND @@GLOBAL.log_slave_updates";
/// Has the writer tell the number of each commit in its answer, beside what it tells already.
pub const TRACK: &[u8] = b"\x03SET SESSION session_track_system_variables = \
    CONCAT_WS(',', NULLIF(@@SESSION.session_track_system_variables, ''), 'last_gtid')";

/// Set in an answer if the session's state has changed.
pub const STATE_CHANGED: u16 = 0x4000;
const SYSTEM_VARIABLE: u8 = 0;

/// The number of the commit in a whole OK packet to a client that follows its session's state.
pub fn committed(body: &[u8]) -> Option<Gtid> {
    read_committed(body).ok().flatten()
}

fn read_committed(body: &[u8]) -> Result<Option<Gtid>, Malformed> {
    let mut cursor = Cursor(body);
    if cursor.u8()? != 0 {
        return Ok(None);
    }
    cursor.lenenc()?;
    cursor.lenenc()?;
    let status = cursor.little(2)? as u16;
    cursor.little(2)?;
    if status & STATE_CHANGED == 0 {
        return Ok(None);
    }
    cursor.nullable_bytes()?;
    let mut changes = Cursor(cursor.nullable_bytes()?.unwrap_or_default());
    let mut newest = None;
    while !changes.0.is_empty() {
        let kind = changes.u8()?;
        let mut change = Cursor(changes.nullable_bytes()?.unwrap_or_default());
        if kind == SYSTEM_VARIABLE && change.nullable_bytes()? == Some(b"last_gtid") {
            newest = change.nullable_bytes()?.and_then(Gtid::parse);
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gtid(number: u64) -> Gtid {
        Gtid { domain: 0, server: 7, number }
    }

    #[test]
    fn a_client_reads_what_it_wrote_and_asks_the_group_only_for_what_nobody_has_numbered() {
        let mut of = Causality::default();
        assert_eq!(of.wait(), Wait::All, "it may come back after a failure");
        of.handle_read(Wait::All);
        assert_eq!(of.wait(), Wait::Nothing);
        of.handle_writer(Some(gtid(5)));
        assert_eq!(of.wait(), Wait::Upto(gtid(5)));
        of.handle_read(Wait::Upto(gtid(5)));
        assert_eq!(of.wait(), Wait::Nothing);
        // It read on the writer, which may be ahead of the reader.
        of.handle_writer(None);
        assert_eq!(of.wait(), Wait::All);
        // A commit after that covers it.
        of.handle_writer(Some(gtid(9)));
        assert_eq!(of.wait(), Wait::Upto(gtid(9)));
        of.handle_reader();
        assert_eq!(of.wait(), Wait::All, "what it read on the other one may be newer");
        of.handle_read(Wait::All);
        assert_eq!(of.wait(), Wait::Nothing, "that covered its commits too");
    }

    #[test]
    fn a_reader_that_numbers_differently_waits_for_all() {
        let mut of = Causality::default();
        of.handle_read(Wait::All);
        of.handle_writer(Some(gtid(5)));
        of.handle_incomparable();
        assert_eq!(of.wait(), Wait::All);
        of.handle_read(Wait::All);
        assert_eq!(of.wait(), Wait::Nothing);
        of.handle_writer(Some(gtid(6)));
        assert_eq!(of.wait(), Wait::All);
    }

    #[test]
    fn numbers_that_begin_anew_are_not_compared_with_the_old_ones() {
        let other = |number| Gtid { domain: 1, server: 7, number };
        for next in [gtid(3), gtid(500), other(501)] {
            let mut of = Causality::default();
            of.handle_writer(Some(gtid(500)));
            of.handle_read(Wait::All);
            of.handle_writer(Some(next));
            assert_eq!(of.wait(), Wait::All, "{next:?}");
        }
        let mut of = Causality::default();
        of.handle_writer(Some(gtid(500)));
        of.handle_new_writer();
        of.handle_read(Wait::All);
        of.handle_writer(Some(gtid(3)));
        assert_eq!(of.wait(), Wait::Upto(gtid(3)));
    }

    #[test]
    fn only_a_proof_counts_as_waited() {
        let row = |cells: [&str; 3]| cells.map(|cell| cell.as_bytes().to_vec());
        assert!(has_waited(&row(["1", "0-7-5", "1"]), &gtid(5)) && has_waited(&row(["1", "0-7-6", "1"]), &gtid(5)));
        for cells in [
            ["0", "0-7-5", "1"],
            ["1", "0-7-4", "1"],
            ["1", "0-8-5", "1"],
            ["1", "1-7-5", "1"],
            ["1", "0-7-5", "0"],
            ["1", "", "1"],
            ["1", "0-7-5,1-7-5", "1"],
        ] {
            assert!(!has_waited(&row(cells), &gtid(5)), "{cells:?}");
        }
        assert!(!has_waited(&[b"1".to_vec()], &gtid(5)));
    }

    #[test]
    fn the_number_of_a_commit_is_read_from_its_answer() {
        let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
        let change = |name: &str, value: &str| {
            let pair = [text(name), text(value)].concat();
            [&[SYSTEM_VARIABLE, pair.len() as u8], &pair[..]].concat()
        };
        let changes = [change("autocommit", "OFF"), change("last_gtid", "0-7-42")].concat();
        // Affected rows, number of a row, flags, warnings, no text.
        let body = [&[0, 1, 0, 0x02, 0x40, 0, 0, 0, changes.len() as u8], &changes[..]].concat();
        assert_eq!(committed(&body), Some(gtid(42)));
        for end in 0..body.len() {
            assert_eq!(committed(&body[..end]), None, "cut at {end}");
        }
        assert_eq!(committed(b"\x00\x01\x00\x02\x00\x00\x00"), None);
        assert_eq!(committed(b"\xff\x17\x04#42000no"), None);
        assert_eq!(question(&gtid(3))[0], 3);
    }
}
