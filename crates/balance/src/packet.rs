//! The few packets of the MariaDB client/server protocol that a balancer writes or reads: errors, greeting, login, and the
//! answers to its own questions. (Source: MariaDB's documentation of the protocol.)

use std::fmt;

use openssl::sha::sha1;

/// Header of every packet: three bytes length, one byte number.
pub const HEADER: usize = 4;

/// The longest packet that we accept from a server. A greeting has less than 300 bytes, the longest status value some thousand.
pub const PACKET_MAX: usize = 1 << 20;

/// `ER_CON_COUNT_ERROR`: clients know it as "Too many connections".
pub const TOO_MANY_CONNECTIONS: u16 = 1040;
/// `ER_UNKNOWN_COM_ERROR`: what a server without a primary component answers.
pub const NOT_PREPARED: u16 = 1047;
/// `ER_SERVER_SHUTDOWN`.
pub const SHUTTING_DOWN: u16 = 1053;
/// `ER_HOST_IS_BLOCKED`: too many incomplete logins from our host.
pub const HOST_BLOCKED: u16 = 1129;
/// `ER_ACCESS_DENIED_ERROR`: also for an account that may come by TLS only, and came without.
pub const ACCESS_DENIED: u16 = 1045;
/// `ER_SECURE_TRANSPORT_REQUIRED` of MySQL. MariaDB says that access is denied.
pub const TLS_REQUIRED: u16 = 3159;

/// An error that a server or we send to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    pub code: u16,
    pub state: String,
    pub text: String,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR {} ({}): {}", self.code, self.state, self.text)
    }
}

/// Our text, never longer than clients keep (512 bytes).
const ERROR_TEXT_MAX: usize = 480;

/// A whole packet that refuses a client in place of a greeting. The connectors show its number and text.
pub fn error_packet(error: &ServerError) -> Vec<u8> {
    let mut body = vec![0xff];
    body.extend_from_slice(&error.code.to_le_bytes());
    body.push(b'#');
    body.extend(error.state.bytes().chain(std::iter::repeat(b'0')).take(5));
    body.extend(error.text.bytes().take(ERROR_TEXT_MAX));
    packet(0, &body)
}

/// Puts the header before a body, which is shorter than 16 MiB.
pub fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 0xff_ffff, "only short packets are sent");
    let mut out = Vec::with_capacity(HEADER + body.len());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes()[..3]);
    out.push(number);
    out.extend_from_slice(body);
    out
}

/// Length of the body and number, from a header.
pub fn header(bytes: [u8; HEADER]) -> (usize, u8) {
    (u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) as usize, bytes[3])
}

/// Reads an error packet's body; `None`: it is none.
pub fn parse_error(body: &[u8]) -> Option<ServerError> {
    let rest = body.strip_prefix(&[0xff])?;
    let (code, rest) = rest.split_first_chunk::<2>()?;
    let (state, text) = match rest {
        [b'#', rest @ ..] if rest.len() >= 5 => rest.split_at(5),
        _ => (&b"HY000"[..], rest),
    };
    Some(ServerError {
        code: u16::from_le_bytes(*code),
        state: String::from_utf8_lossy(state).into_owned(),
        text: String::from_utf8_lossy(text).into_owned(),
    })
}

/// The first packet of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub version: String,
    pub connection_id: u32,
    pub scramble: [u8; 20],
    /// It offers TLS.
    pub tls: bool,
}

/// Reads the body of a greeting of protocol version 10.
pub fn parse_greeting(body: &[u8]) -> Result<Greeting, Malformed> {
    let mut cursor = Cursor(body);
    if cursor.u8()? != 10 {
        return Err(Malformed("the greeting is not of protocol version 10"));
    }
    let version = String::from_utf8_lossy(cursor.zero_terminated()?).into_owned();
    let connection_id = cursor.u32()?;
    let first = cursor.take(8)?;
    cursor.take(1)?;
    let tls = cursor.little(2)? & u64::from(TLS) != 0;
    cursor.take(1 + 2 + 2 + 1 + 6 + 4)?; // character set, status, more capabilities, length, filler, MariaDB's capabilities
    let second = cursor.take(12)?;
    let mut scramble = [0; 20];
    scramble[..8].copy_from_slice(first);
    scramble[8..].copy_from_slice(second);
    Ok(Greeting { version, connection_id, scramble, tls })
}

// LONG_PASSWORD, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH.
const CAPABILITIES: u32 = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;
const TLS: u32 = 0x800;
const UTF8MB4: u8 = 45;
pub const NATIVE: &[u8] = b"mysql_native_password";

/// The first bytes of a login. Alone, with `tls`, it asks for TLS; the whole login follows encrypted.
pub fn login_head(tls: bool) -> Vec<u8> {
    let capabilities = CAPABILITIES | if tls { TLS } else { 0 };
    let mut body = capabilities.to_le_bytes().to_vec();
    body.extend_from_slice(&(PACKET_MAX as u32).to_le_bytes());
    body.push(UTF8MB4);
    body.extend_from_slice(&[0; 23]);
    body
}

/// The body of the login packet.
pub fn login(user: &str, password: &str, scramble: &[u8; 20], tls: bool) -> Vec<u8> {
    let mut body = login_head(tls);
    body.extend(user.bytes().filter(|byte| *byte != 0));
    body.push(0);
    let proof = native_proof(password, scramble);
    body.push(proof.len() as u8);
    body.extend_from_slice(&proof);
    body.extend_from_slice(NATIVE);
    body.push(0);
    body
}

/// The client's answer of `mysql_native_password`; empty for an empty password.
pub fn native_proof(password: &str, scramble: &[u8; 20]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = sha1(password.as_bytes());
    let twice = sha1(&once);
    let mask = sha1(&[&scramble[..], &twice].concat());
    once.iter().zip(mask).map(|(a, b)| a ^ b).collect()
}

/// A server's answer to a login packet, or to the answer to a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginAnswer {
    Welcome,
    /// Another way to log in is asked for. This is the body to answer with.
    Answer(Vec<u8>),
    Refused(ServerError),
    /// The account needs a method that we do not have.
    Unknown(String),
}

pub fn parse_login_answer(body: &[u8], password: &str) -> Result<LoginAnswer, Malformed> {
    match body {
        [0x00, ..] => Ok(LoginAnswer::Welcome),
        [0xff, ..] => parse_error(body).map(LoginAnswer::Refused).ok_or(Malformed("short error packet")),
        [0xfe, rest @ ..] => {
            let mut cursor = Cursor(rest);
            let method = cursor.zero_terminated()?;
            if method != NATIVE {
                return Ok(LoginAnswer::Unknown(String::from_utf8_lossy(method).into_owned()));
            }
            let mut scramble = [0; 20];
            scramble.copy_from_slice(cursor.take(20)?);
            Ok(LoginAnswer::Answer(native_proof(password, &scramble)))
        }
        [] | [_, ..] => Err(Malformed("unexpected answer to the login")),
    }
}

/// The body of a question in text.
pub fn query(sql: &str) -> Vec<u8> {
    [&[3], sql.as_bytes()].concat()
}

/// The answer to one question, packet by packet. Rows beyond [`ROWS_MAX`] are an error.
#[derive(Debug)]
pub enum Answer {
    Head,
    Definitions { left: u64 },
    Rows(Vec<Vec<String>>),
}

/// No `SHOW` of ours has as many.
const ROWS_MAX: usize = 4096;
const COLUMNS_MAX: u64 = 64;

/// The state of an answer after one more packet.
#[derive(Debug)]
pub enum Step {
    More(Answer),
    Done(Vec<Vec<String>>),
    Failed(ServerError),
}

impl Answer {
    pub fn handle_packet(self, body: &[u8]) -> Result<Step, Malformed> {
        if body.first() == Some(&0xff) {
            return parse_error(body).map(Step::Failed).ok_or(Malformed("short error packet"));
        }
        let ends = body.first() == Some(&0xfe) && body.len() < 9;
        Ok(match self {
            Answer::Head if body.first() == Some(&0x00) => Step::Done(Vec::new()),
            Answer::Head => match Cursor(body).lenenc()? {
                0 | COLUMNS_MAX.. => return Err(Malformed("a result without or with very many columns")),
                columns => Step::More(Answer::Definitions { left: columns }),
            },
            Answer::Definitions { left: 0 } if ends => Step::More(Answer::Rows(Vec::new())),
            Answer::Definitions { left: 0 } => return Err(Malformed("no end after the columns")),
            Answer::Definitions { left } => Step::More(Answer::Definitions { left: left - 1 }),
            Answer::Rows(rows) if ends => Step::Done(rows),
            Answer::Rows(rows) if rows.len() == ROWS_MAX => return Err(Malformed("too many rows")),
            Answer::Rows(mut rows) => {
                let mut cursor = Cursor(body);
                let mut row = Vec::new();
                while !cursor.0.is_empty() {
                    row.push(String::from_utf8_lossy(cursor.nullable_bytes()?.unwrap_or_default()).into_owned());
                }
                rows.push(row);
                Step::More(Answer::Rows(rows))
            }
        })
    }
}

/// Not what the protocol allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Reads the fields of a packet from its front.
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Malformed("a packet is too short"))?;
        self.0 = tail;
        Ok(head)
    }
    pub fn little(&mut self, n: usize) -> Result<u64, Malformed> {
        Ok(self.take(n)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.little(1)? as u8)
    }
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(self.little(4)? as u32)
    }
    pub fn zero_terminated(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(Malformed("a text has no end"))?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(text)
    }
    /// A text that ends with a zero byte or with the packet.
    pub fn text_to_end(&mut self) -> &'a [u8] {
        self.zero_terminated().unwrap_or_else(|_| std::mem::take(&mut self.0))
    }
    pub fn lenenc(&mut self) -> Result<u64, Malformed> {
        match self.u8()? {
            0xfb | 0xff => Err(Malformed("bad length")),
            0xfc => self.little(2),
            0xfd => self.little(3),
            0xfe => self.little(8),
            small => Ok(u64::from(small)),
        }
    }
    pub fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        if self.0.first() == Some(&0xfb) {
            self.take(1)?;
            return Ok(None);
        }
        let len = self.lenenc()?;
        self.take(usize::try_from(len).map_err(|_| Malformed("bad length"))?).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting_body() -> Vec<u8> {
        let mut body = vec![10];
        body.extend_from_slice(b"10.11.11-MariaDB\0");
        body.extend_from_slice(&7u32.to_le_bytes());
        body.extend_from_slice(b"abcdefgh\0");
        body.extend_from_slice(&[0xfe, 0xf7, 45, 2, 0, 0xff, 0x81, 21]);
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&[0x1d, 0, 0, 0]);
        body.extend_from_slice(b"ijklmnopqrst\0");
        body.extend_from_slice(b"mysql_native_password\0");
        body
    }

    #[test]
    fn reads_a_greeting() {
        let greeting = parse_greeting(&greeting_body()).unwrap();
        assert_eq!((greeting.version.as_str(), greeting.connection_id), ("10.11.11-MariaDB", 7));
        assert_eq!(&greeting.scramble, b"abcdefghijklmnopqrst");
    }

    #[test]
    fn a_greeting_cut_anywhere_is_an_error() {
        let body = greeting_body();
        for end in 0..body.len() - 23 {
            assert!(parse_greeting(&body[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn errors_survive_a_round_trip() {
        let error = ServerError { code: 1040, state: "08004".into(), text: "Too many connections".into() };
        let bytes = error_packet(&error);
        let (len, number) = header(bytes[..4].try_into().unwrap());
        assert_eq!((len, number), (bytes.len() - 4, 0));
        assert_eq!(parse_error(&bytes[4..]), Some(error));
        assert_eq!(parse_error(b"\xff\x10\x04Too many connections").unwrap().state, "HY000");
        assert_eq!(parse_error(b"\xff\x10"), None);
    }

    /// The server keeps SHA1(SHA1(password)) and checks the proof like this.
    #[test]
    fn the_proof_is_what_a_server_checks() {
        let scramble = *b"abcdefghijklmnopqrst";
        let proof = native_proof("secret", &scramble);
        let stored = sha1(&sha1(b"secret"));
        let mask = sha1(&[&scramble[..], &stored].concat());
        let once: Vec<u8> = proof.iter().zip(mask).map(|(a, b)| a ^ b).collect();
        assert_eq!(sha1(&once), stored);
        assert!(native_proof("", &scramble).is_empty());
    }

    #[test]
    fn an_answer_is_read_packet_by_packet() {
        let packets: [&[u8]; 7] =
            [b"\x02", b"def 1", b"def 2", b"\xfe\0\0\x02\0", b"\x01a\x02bc", b"\x01d\xfb", b"\xfe\0\0\x02\0"];
        let mut answer = Answer::Head;
        for (i, body) in packets.iter().enumerate() {
            match answer.handle_packet(body).unwrap() {
                Step::More(next) => answer = next,
                Step::Done(rows) => {
                    assert_eq!(i, 6);
                    assert_eq!(rows, [["a", "bc"], ["d", ""]]);
                    return;
                }
                Step::Failed(error) => panic!("{error}"),
            }
        }
        panic!("no end");
    }

    #[test]
    fn hostile_answers_are_errors() {
        assert!(Answer::Head.handle_packet(b"").is_err());
        assert!(Answer::Head.handle_packet(b"\xfd\xff\xff\xff").is_err());
        assert!(Answer::Definitions { left: 0 }.handle_packet(b"abc").is_err());
        assert!(Answer::Rows(Vec::new()).handle_packet(b"\x05ab").is_err());
        assert!(Answer::Rows(vec![Vec::new(); ROWS_MAX]).handle_packet(b"\x01a").is_err());
        assert!(matches!(Answer::Head.handle_packet(b"\xff\x17\x04#42000no"), Ok(Step::Failed(_))));
    }

    #[test]
    fn logins() {
        assert_eq!(parse_login_answer(b"\0\0\0", ""), Ok(LoginAnswer::Welcome));
        let switch = [b"\xfemysql_native_password\0".as_slice(), b"abcdefghijklmnopqrst\0"].concat();
        assert_eq!(parse_login_answer(&switch, ""), Ok(LoginAnswer::Answer(Vec::new())));
        assert_eq!(parse_login_answer(b"\xfeclient_ed25519\0x", ""), Ok(LoginAnswer::Unknown("client_ed25519".into())));
        assert!(parse_login_answer(b"\x07", "").is_err());
        assert!(parse_login_answer(b"", "").is_err());
    }
}
