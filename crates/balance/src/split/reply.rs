//! The answer to a command in text, packet by packet: where it ends, and what it says about the session.

use crate::packet::{Cursor, Malformed};

/// The server asks the client for a file.
const LOCAL_FILE: u8 = 0xfb;
const MORE_RESULTS: u16 = 0x8;
/// A packet of this size goes on in the next one.
pub const FULL: usize = 0xff_ffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    part: Part,
    /// The client's capability DEPRECATE_EOF.
    without_eof: bool,
    /// The next packet only goes on with the last one.
    continued: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    Definitions { left: u64 },
    DefinitionsEnd,
    Rows,
}

/// The result of one more packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    More,
    Last(End),
    /// The bytes that follow are no answer as we know it.
    Opaque,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done {
        /// The server's status flags.
        status: u16,
        /// A row got a number that `LAST_INSERT_ID()` shows.
        inserted: bool,
    },
    Error {
        code: u16,
    },
}

impl Reply {
    /// To a question in text.
    pub fn new(without_eof: bool) -> Reply {
        Reply { part: Part::Head, without_eof, continued: false }
    }

    /// Bytes of a packet that must be there to judge it; its length may be less.
    pub const LOOK: usize = 1 + 9 + 9 + 2 + 2;

    /// `head`: the first bytes of a packet's body of `len` bytes, as many as [`Reply::LOOK`] if it has them.
    pub fn handle(&mut self, head: &[u8], len: usize) -> Result<Progress, Malformed> {
        let continues = std::mem::replace(&mut self.continued, len == FULL);
        if continues {
            return Ok(Progress::More);
        }
        let first = *head.first().ok_or(Malformed("an empty packet"))?;
        let eof = first == 0xfe && if self.without_eof { len < FULL } else { len < 9 };
        Ok(match self.part {
            _ if first == 0xff && self.part != Part::DefinitionsEnd => {
                let code = head.get(1..3).ok_or(Malformed("short error packet"))?;
                Progress::Last(End::Error { code: u16::from_le_bytes([code[0], code[1]]) })
            }
            Part::Head if first == 0x00 => self.end(ok_status(head)?),
            Part::Head if first == LOCAL_FILE => Progress::Opaque,
            Part::Head => {
                let left = Cursor(head).lenenc()?;
                self.part = Part::Definitions { left };
                Progress::More
            }
            Part::Definitions { left } => {
                self.part = match left {
                    0 | 1 if self.without_eof => Part::Rows,
                    0 | 1 => Part::DefinitionsEnd,
                    more => Part::Definitions { left: more - 1 },
                };
                Progress::More
            }
            Part::DefinitionsEnd if eof => {
                self.part = Part::Rows;
                Progress::More
            }
            Part::DefinitionsEnd => return Err(Malformed("no end after the columns")),
            Part::Rows if eof && self.without_eof => self.end(ok_status(head)?),
            Part::Rows if eof => {
                let status = head.get(3..5).ok_or(Malformed("a short end"))?;
                self.end((u16::from_le_bytes([status[0], status[1]]), false))
            }
            Part::Rows => Progress::More,
        })
    }

    fn end(&mut self, (status, inserted): (u16, bool)) -> Progress {
        if status & MORE_RESULTS != 0 {
            self.part = Part::Head;
            return Progress::More;
        }
        Progress::Last(End::Done { status, inserted })
    }
}

/// Flags of an OK packet, and whether it has the number of an inserted row.
fn ok_status(body: &[u8]) -> Result<(u16, bool), Malformed> {
    let mut cursor = Cursor(body);
    cursor.u8()?;
    cursor.lenenc()?;
    let inserted = cursor.lenenc()? != 0;
    Ok((cursor.little(2)? as u16, inserted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(without_eof: bool, packets: &[&[u8]]) -> Vec<Progress> {
        let mut reply = Reply::new(without_eof);
        packets.iter().map(|body| reply.handle(body, body.len()).unwrap()).collect()
    }

    const OK: Progress = Progress::Last(End::Done { status: 2, inserted: false });

    #[test]
    fn answers_end_where_they_do() {
        assert_eq!(read(false, &[b"\0\x01\x05\x02\0\0\0"]), [Progress::Last(End::Done { status: 2, inserted: true })]);
        assert_eq!(read(false, &[b"\xff\x17\x04#42000no"]), [Progress::Last(End::Error { code: 1047 })]);
        let rows: [&[u8]; 6] = [b"\x02", b"def 1", b"def 2", b"\xfe\0\0\x02\0", b"\x01a\x01b", b"\xfe\0\0\x02\0"];
        assert_eq!(
            read(false, &rows),
            [Progress::More, Progress::More, Progress::More, Progress::More, Progress::More, OK]
        );
        let rows: [&[u8]; 4] = [b"\x01", b"def 1", b"\x01a", b"\xfe\0\0\x02\0\0\0"];
        assert_eq!(read(true, &rows), [Progress::More, Progress::More, Progress::More, OK]);
        assert_eq!(
            read(true, &[b"\x01", b"def 1", b"\xff\x69\x05#HY000x"])[2],
            Progress::Last(End::Error { code: 1385 })
        );
    }

    #[test]
    fn several_results_are_one_answer() {
        assert_eq!(read(false, &[b"\0\0\0\x0a\0\0\0", b"\0\0\0\x02\0\0\0"]), [Progress::More, OK]);
    }

    #[test]
    fn what_goes_on_is_not_looked_at() {
        let mut reply = Reply { part: Part::Rows, without_eof: false, continued: false };
        assert_eq!(reply.handle(b"\xfd\xff\xff\xff", FULL), Ok(Progress::More));
        assert_eq!(reply.handle(b"\xff\x01\x02", 3), Ok(Progress::More), "the rest of a row");
        assert_eq!(reply.handle(b"\xfe\0\0\x02\0", 5), Ok(OK));
    }

    #[test]
    fn hostile_answers_are_errors() {
        for bad in [&b""[..], b"\xff", b"\0", b"\xfd\xff"] {
            assert!(Reply::new(false).handle(bad, bad.len()).is_err(), "{bad:?}");
        }
        assert_eq!(read(false, &[b"\xfbfile"]), [Progress::Opaque]);
    }
}
