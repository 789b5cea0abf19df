//! A small client for the MariaDB text protocol over a node's unix socket.
//!
//! Written here rather than taken from a crate: tests and benchmarks need error numbers, many cheap sessions and
//! time limits, all within one file; a full client brings dozens of dependencies. Only what a local test cluster
//! needs is there: an account without password, text results, and prepared statements with text parameters.
//! (Sources: MariaDB's documentation of the client/server protocol.)

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// Why a statement failed.
#[derive(Debug)]
pub enum SqlError {
    /// The server refused: its error number, SQLSTATE and text.
    Server { code: u16, state: String, text: String },
    /// The connection failed or ended; also when the time limit of the session passed.
    Connection(io::Error),
    /// The server sent what we do not understand.
    Protocol(&'static str),
}

impl SqlError {
    /// The server's error number, if it was the server who refused.
    pub fn code(&self) -> Option<u16> {
        match self {
            SqlError::Server { code, .. } => Some(*code),
            SqlError::Connection(_) | SqlError::Protocol(_) => None,
        }
    }
}

impl std::error::Error for SqlError {}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SqlError::Server { code, state, text } => write!(f, "ERROR {code} ({state}): {text}"),
            SqlError::Connection(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                f.write_str("the server did not answer within a minute; it may still execute the statement")
            }
            SqlError::Connection(error) => write!(f, "connection to the server: {error}"),
            SqlError::Protocol(what) => write!(f, "unexpected answer of the server: {what}"),
        }
    }
}

impl From<io::Error> for SqlError {
    fn from(error: io::Error) -> Self {
        SqlError::Connection(error)
    }
}

/// The answer to one statement. When a call answers with several results, the first with columns is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub columns: Vec<String>,
    /// `None` is NULL.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
    pub affected: u64,
    pub last_insert_id: u64,
    pub warnings: u16,
}

impl Answer {
    /// First column of the first row as text; `None` when there is no row or the value is NULL.
    pub fn text(&self) -> Option<String> {
        Self::lossy(self.rows.first()?.first()?)
    }

    /// Rows as text, NULL written as `NULL`.
    pub fn texts(&self) -> Vec<Vec<String>> {
        self.rows
            .iter()
            .map(|row| row.iter().map(|cell| Self::lossy(cell).unwrap_or_else(|| "NULL".to_owned())).collect())
            .collect()
    }

    fn lossy(cell: &Option<Vec<u8>>) -> Option<String> {
        cell.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// One connection to one node, logged in as `root`.
pub struct Session {
    stream: BufReader<UnixStream>,
    sequence: u8,
    connection_id: u32,
}

/// A server that stands still accepts nobody. Once enough of others wait, the next one would wait in `connect` for ever: unix(7). Writes fail after
/// `limit`, too.
fn connect_within(path: &Path, limit: Duration) -> Result<UnixStream, SqlError> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map_err(io::Error::from)?;
    let stream = UnixStream::from(fd);
    // That bounds `connect`.
    stream.set_write_timeout(Some(limit))?;
    let address = UnixAddr::new(path).map_err(io::Error::from)?;
    match connect(stream.as_raw_fd(), &address) {
        Ok(()) => Ok(stream),
        Err(Errno::EAGAIN) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        Err(other) => Err(io::Error::from(other).into()),
    }
}

/// A statement that the server has parsed: see [`Session::prepare`].
#[derive(Debug)]
pub struct Prepared {
    id: u32,
    params: usize,
}

const COM_QUIT: u8 = 1;
const COM_QUERY: u8 = 3;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_SET_OPTION: u8 = 0x1b;
const MULTI_STATEMENTS_ON: [u8; 2] = [0, 0];
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_CLOSE: u8 = 0x19;

// LONG_PASSWORD, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, MULTI_RESULTS, PLUGIN_AUTH.
const CAPABILITIES: u32 = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x2_0000 | 0x8_0000;
const CONNECT_WITH_DB: u32 = 0x8;
const UTF8MB4: u8 = 45;
const PACKET_MAX: usize = 0xff_ffff;
const MORE_RESULTS: u16 = 0x0008;
const TYPE_VAR_STRING: u16 = 253;

impl Session {
    /// Connects to the server behind `socket`. Every read and write of the session fails after `limit`.
    pub fn open(socket: &Path, database: Option<&str>, limit: Duration) -> Result<Session, SqlError> {
        let stream = connect_within(socket, limit)?;
        stream.set_read_timeout(Some(limit))?;
        let mut session = Session { stream: BufReader::new(stream), sequence: 0, connection_id: 0 };
        session.log_in(database)?;
        Ok(session)
    }

    /// The server's number of this connection, as `KILL` takes it.
    pub fn connection_id(&self) -> u32 {
        self.connection_id
    }

    /// Runs one statement and reads the whole answer.
    pub fn query(&mut self, sql: &str) -> Result<Answer, SqlError> {
        self.send(sql)?;
        self.receive()
    }

    /// Sends a statement without waiting; exactly one [`Session::receive`] must follow. Lets a test hold a statement
    /// that blocks without a thread of its own.
    pub fn send(&mut self, sql: &str) -> Result<(), SqlError> {
        self.sequence = 0;
        let mut packet = Vec::with_capacity(sql.len() + 1);
        packet.push(COM_QUERY);
        packet.extend_from_slice(sql.as_bytes());
        self.write_packet(&packet)
    }

    /// Reads the answer to [`Session::send`].
    pub fn receive(&mut self) -> Result<Answer, SqlError> {
        let mut kept: Option<Answer> = None;
        loop {
            let (answer, more) = self.read_result(false)?;
            if kept.as_ref().is_none_or(|k| k.columns.is_empty()) {
                kept = Some(answer);
            }
            if !more {
                return Ok(kept.unwrap_or_default());
            }
        }
    }

    /// Runs statements separated by semicolons, in order, until one fails; `take` gets each answer as it comes.
    pub fn query_each(&mut self, sql: &str, mut take: impl FnMut(Answer)) -> Result<(), SqlError> {
        self.sequence = 0;
        self.write_packet(&[&[COM_SET_OPTION][..], &MULTI_STATEMENTS_ON].concat())?;
        let reply = self.read_packet()?;
        if reply.first() == Some(&0xff) {
            return Err(parse_error(&reply));
        }
        self.send(sql)?;
        loop {
            let (answer, more) = self.read_result(false)?;
            take(answer);
            if !more {
                return Ok(());
            }
        }
    }

    /// Runs a statement through the binary protocol: prepare, execute with text parameters, close. Rows are not
    /// decoded: meant for statements that change data.
    pub fn execute_prepared(&mut self, sql: &str, rows: &[Vec<Option<&str>>]) -> Result<u64, SqlError> {
        let statement = self.prepare(sql)?;
        let mut affected = 0;
        let outcome = rows.iter().try_for_each(|row| {
            affected += self.execute(&statement, row)?;
            Ok(())
        });
        self.sequence = 0;
        let mut close = vec![COM_STMT_CLOSE];
        close.extend_from_slice(&statement.id.to_le_bytes());
        self.write_packet(&close)?;
        outcome.map(|()| affected)
    }

    /// A statement to be executed many times. It lives as long as the session.
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared, SqlError> {
        self.sequence = 0;
        let mut packet = vec![COM_STMT_PREPARE];
        packet.extend_from_slice(sql.as_bytes());
        self.write_packet(&packet)?;
        let head = self.read_packet()?;
        if head.first() == Some(&0xff) {
            return Err(parse_error(&head));
        }
        let mut cursor = Cursor(&head[1..]);
        let id = cursor.u32()?;
        let columns = cursor.u16()?;
        let params = cursor.u16()?;
        for count in [params, columns] {
            if count > 0 {
                for _ in 0..=count {
                    self.read_packet()?; // definitions, then EOF
                }
            }
        }
        Ok(Prepared { id, params: usize::from(params) })
    }

    /// Executes with text parameters and answers how many rows were changed; rows of a result are not decoded.
    pub fn execute(&mut self, statement: &Prepared, row: &[Option<&str>]) -> Result<u64, SqlError> {
        let Prepared { id, params } = *statement;
        if row.len() != params {
            return Err(SqlError::Protocol("wrong number of parameters for the prepared statement"));
        }
        self.sequence = 0;
        let mut packet = vec![COM_STMT_EXECUTE];
        packet.extend_from_slice(&id.to_le_bytes());
        packet.push(0); // no cursor
        packet.extend_from_slice(&1u32.to_le_bytes());
        if params > 0 {
            let mut nulls = vec![0u8; params.div_ceil(8)];
            for (i, value) in row.iter().enumerate() {
                if value.is_none() {
                    nulls[i / 8] |= 1 << (i % 8);
                }
            }
            packet.extend_from_slice(&nulls);
            packet.push(1); // types follow
            for _ in row {
                packet.extend_from_slice(&TYPE_VAR_STRING.to_le_bytes());
            }
            for value in row.iter().flatten() {
                put_lenenc(&mut packet, value.len() as u64);
                packet.extend_from_slice(value.as_bytes());
            }
        }
        self.write_packet(&packet)?;
        Ok(self.read_result(true)?.0.affected)
    }

    fn log_in(&mut self, database: Option<&str>) -> Result<(), SqlError> {
        let greeting = self.read_packet()?;
        if greeting.first() == Some(&0xff) {
            return Err(parse_error(&greeting));
        }
        let mut cursor = Cursor(&greeting[..]);
        if cursor.u8()? != 10 {
            return Err(SqlError::Protocol("handshake version is not 10"));
        }
        cursor.zero_terminated()?;
        self.connection_id = cursor.u32()?;

        let mut flags = CAPABILITIES;
        if database.is_some() {
            flags |= CONNECT_WITH_DB;
        }
        let mut packet = Vec::new();
        packet.extend_from_slice(&flags.to_le_bytes());
        packet.extend_from_slice(&0x4000_0000u32.to_le_bytes());
        packet.push(UTF8MB4);
        packet.extend_from_slice(&[0; 23]);
        packet.extend_from_slice(b"root\0");
        packet.push(0); // empty password
        if let Some(database) = database {
            packet.extend_from_slice(database.as_bytes());
            packet.push(0);
        }
        packet.extend_from_slice(b"mysql_native_password\0");
        self.write_packet(&packet)?;
        let mut reply = self.read_packet()?;
        if reply.first() == Some(&0xfe) {
            self.write_packet(&[])?; // asked to switch plugin: the password is empty for every one we accept
            reply = self.read_packet()?;
        }
        match reply.first() {
            Some(0x00) => Ok(()),
            Some(0xff) => Err(parse_error(&reply)),
            _ => Err(SqlError::Protocol("login answer")),
        }
    }

    fn read_result(&mut self, binary: bool) -> Result<(Answer, bool), SqlError> {
        let head = self.read_packet()?;
        match head.first() {
            None => Err(SqlError::Protocol("empty packet")),
            Some(0xff) => Err(parse_error(&head)),
            Some(0x00) => {
                let mut cursor = Cursor(&head[1..]);
                let affected = cursor.lenenc()?;
                let last_insert_id = cursor.lenenc()?;
                let status = cursor.u16()?;
                let warnings = cursor.u16()?;
                let answer = Answer { affected, last_insert_id, warnings, ..Answer::default() };
                Ok((answer, status & MORE_RESULTS != 0))
            }
            Some(0xfb) => Err(SqlError::Protocol("LOAD DATA LOCAL is not supported by this client")),
            Some(_) => {
                let count = Cursor(&head).lenenc()?;
                let mut answer = Answer::default();
                for _ in 0..count {
                    let packet = self.read_packet()?;
                    let mut cursor = Cursor(&packet);
                    for _ in 0..4 {
                        cursor.bytes()?; // catalog, schema, table, original table
                    }
                    answer.columns.push(String::from_utf8_lossy(cursor.bytes()?).into_owned());
                }
                self.read_packet()?; // EOF after the definitions
                loop {
                    let packet = self.read_packet()?;
                    match packet.first() {
                        Some(0xff) => return Err(parse_error(&packet)),
                        Some(0xfe) if packet.len() < 9 => {
                            let mut cursor = Cursor(&packet[1..]);
                            answer.warnings = cursor.u16()?;
                            return Ok((answer, cursor.u16()? & MORE_RESULTS != 0));
                        }
                        _ if binary => answer.rows.push(Vec::new()),
                        _ => {
                            let mut cursor = Cursor(&packet);
                            let mut row = Vec::with_capacity(answer.columns.len());
                            for _ in 0..count {
                                row.push(cursor.nullable_bytes()?.map(<[u8]>::to_vec));
                            }
                            answer.rows.push(row);
                        }
                    }
                }
            }
        }
    }

    fn write_packet(&mut self, mut payload: &[u8]) -> Result<(), SqlError> {
        loop {
            let chunk = payload.len().min(PACKET_MAX);
            let mut frame = Vec::with_capacity(chunk + 4);
            frame.extend_from_slice(&(chunk as u32).to_le_bytes()[..3]);
            frame.push(self.sequence);
            frame.extend_from_slice(&payload[..chunk]);
            self.stream.get_mut().write_all(&frame)?;
            self.sequence = self.sequence.wrapping_add(1);
            payload = &payload[chunk..];
            if chunk < PACKET_MAX {
                return Ok(());
            }
        }
    }

    fn read_packet(&mut self) -> Result<Vec<u8>, SqlError> {
        let mut packet = Vec::new();
        loop {
            let mut head = [0u8; 4];
            self.stream.read_exact(&mut head)?;
            let len = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
            self.sequence = head[3].wrapping_add(1);
            let start = packet.len();
            packet.resize(start + len, 0);
            self.stream.read_exact(&mut packet[start..])?;
            if len < PACKET_MAX {
                return Ok(packet);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sequence = 0;
        // Best effort: the server also notices the closed socket.
        let _ = self.write_packet(&[COM_QUIT]);
    }
}

fn parse_error(packet: &[u8]) -> SqlError {
    let Some((code, rest)) = packet.get(1..).and_then(|rest| rest.split_first_chunk::<2>()) else {
        return SqlError::Protocol("short error packet");
    };
    // Before login the SQLSTATE is left out.
    let (state, text) = match rest {
        [b'#', rest @ ..] if rest.len() >= 5 => rest.split_at(5),
        _ => (&b"HY000"[..], rest),
    };
    SqlError::Server {
        code: u16::from_le_bytes(*code),
        state: String::from_utf8_lossy(state).into_owned(),
        text: String::from_utf8_lossy(text).into_owned(),
    }
}

fn put_lenenc(out: &mut Vec<u8>, n: u64) {
    match n {
        0..=250 => out.push(n as u8),
        251..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&(n as u16).to_le_bytes());
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&(n as u32).to_le_bytes()[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&n.to_le_bytes());
        }
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], SqlError> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(SqlError::Protocol("short packet"))?;
        self.0 = tail;
        Ok(head)
    }
    fn little(&mut self, n: usize) -> Result<u64, SqlError> {
        Ok(self.take(n)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
    fn u8(&mut self) -> Result<u8, SqlError> {
        Ok(self.little(1)? as u8)
    }
    fn u16(&mut self) -> Result<u16, SqlError> {
        Ok(self.little(2)? as u16)
    }
    fn u32(&mut self) -> Result<u32, SqlError> {
        Ok(self.little(4)? as u32)
    }
    fn zero_terminated(&mut self) -> Result<&'a [u8], SqlError> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(SqlError::Protocol("unterminated text"))?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(text)
    }
    fn lenenc(&mut self) -> Result<u64, SqlError> {
        match self.u8()? {
            0xfb => Err(SqlError::Protocol("NULL where a number belongs")),
            0xfc => self.little(2),
            0xfd => self.little(3),
            0xfe => self.little(8),
            0xff => Err(SqlError::Protocol("bad length")),
            small => Ok(u64::from(small)),
        }
    }
    fn bytes(&mut self) -> Result<&'a [u8], SqlError> {
        let len = self.lenenc()?;
        self.take(usize::try_from(len).map_err(|_| SqlError::Protocol("bad length"))?)
    }
    fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, SqlError> {
        if self.0.first() == Some(&0xfb) {
            self.take(1)?;
            return Ok(None);
        }
        self.bytes().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_survive_a_round_trip() {
        for n in [0, 1, 250, 251, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, u64::from(u32::MAX) + 1] {
            let mut bytes = Vec::new();
            put_lenenc(&mut bytes, n);
            let mut cursor = Cursor(&bytes);
            assert_eq!(cursor.lenenc().unwrap(), n);
            assert!(cursor.0.is_empty());
        }
    }

    #[test]
    fn a_server_that_lets_nobody_in_is_given_up() {
        let path = std::env::temp_dir().join(format!("trireme-nobody-is-let-in-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        let refused = loop {
            match connect_within(&path, Duration::from_millis(50)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        std::fs::remove_file(&path).unwrap();
        assert!(!waiting.is_empty());
        assert!(
            matches!(&refused, SqlError::Connection(error) if error.kind() == io::ErrorKind::TimedOut),
            "{refused}"
        );
        drop(listener);
    }

    #[test]
    fn reads_error_packets() {
        let error = parse_error(b"\xff\xbd\x0440001#");
        assert_eq!(error.code(), Some(1213));
        let error = parse_error(b"\xff\xbd\x04#40001Deadlock found");
        assert_eq!(error.to_string(), "ERROR 1213 (40001): Deadlock found");
        assert!(parse_error(b"\xff").code().is_none());
    }

    #[test]
    fn short_packets_are_errors_not_panics() {
        assert!(Cursor(b"\x05abc").bytes().is_err());
        assert!(Cursor(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff").bytes().is_err());
        assert!(Cursor(b"").lenenc().is_err());
        assert!(Cursor(b"abc").zero_terminated().is_err());
        assert_eq!(Cursor(b"\xfb").nullable_bytes().unwrap(), None);
    }
}
