//! The login of a client, as far as it must be read to log in to a second server for the same user.
//!
//! `mysql_native_password` proves that a client knows the password by an answer to one server's random scramble. That answer is worth nothing at
//! another server. So the client itself is asked once more, by the request to switch the method, with the second server's scramble.

use crate::packet::{self, Cursor, Malformed, NATIVE};

const CONNECT_WITH_DB: u32 = 0x8;
const COMPRESS: u32 = 0x20;
const PROTOCOL_41: u32 = 0x200;
const SSL: u32 = 0x800;
const SECURE_CONNECTION: u32 = 0x8000;
const PLUGIN_AUTH: u32 = 0x8_0000;
const LENENC_AUTH: u32 = 0x20_0000;
const ZSTD: u32 = 0x400_0000;
const DEPRECATE_EOF: u32 = 0x100_0000;
/// MariaDB's own capabilities, above the 32 common ones: progress reports, and results without the descriptions of their columns.
const PROGRESS: u8 = 0x1;
const CACHE_METADATA: u8 = 0x10;

/// Position of the fields of a greeting behind its version text: connection id, scramble, filler.
const CAPABILITIES_AT: usize = 4 + 8 + 1;
const EXTENDED_AT: usize = CAPABILITIES_AT + 2 + 1 + 2 + 2 + 1 + 6;

/// A server's greeting without the capabilities that would hide from us where an answer ends. The client does not use what it is not offered.
pub fn offer(greeting: &[u8]) -> Result<Vec<u8>, Malformed> {
    let version = greeting.iter().position(|byte| *byte == 0).ok_or(Malformed("a text has no end"))? + 1;
    let mut offered = greeting.to_vec();
    let fields =
        offered.get_mut(version..).filter(|f| f.len() >= EXTENDED_AT + 4).ok_or(Malformed("a short greeting"))?;
    fields[CAPABILITIES_AT] &= !(COMPRESS as u8);
    // The upper half of the common ones stands behind character set and status.
    fields[CAPABILITIES_AT + 6] &= !((ZSTD >> 24) as u8);
    fields[EXTENDED_AT] &= !(PROGRESS | CACHE_METADATA);
    Ok(offered)
}

/// The first packet of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    Login(Login),
    /// It begins TLS, compresses, or speaks a protocol that we do not read: its bytes go to the writer.
    Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    capabilities: u32,
    /// From the packet's size limit to the reserved bytes, and MariaDB's capabilities in these.
    fixed: Vec<u8>,
    user: Vec<u8>,
    pub proof: Vec<u8>,
    pub database: Option<Vec<u8>>,
    pub method: Option<Vec<u8>>,
    /// Attributes of the connection, as they came.
    rest: Vec<u8>,
}

impl Opening {
    pub fn parse(body: &[u8]) -> Result<Opening, Malformed> {
        let mut cursor = Cursor(body);
        let capabilities = cursor.u32()?;
        if capabilities & PROTOCOL_41 == 0 || capabilities & (SSL | COMPRESS | ZSTD) != 0 {
            return Ok(Opening::Opaque);
        }
        let fixed = cursor.take(4 + 1 + 23)?.to_vec();
        let user = cursor.zero_terminated()?.to_vec();
        let proof = if capabilities & LENENC_AUTH != 0 {
            cursor.nullable_bytes()?.ok_or(Malformed("a login without an answer"))?.to_vec()
        } else if capabilities & SECURE_CONNECTION != 0 {
            let len = cursor.u8()?;
            cursor.take(usize::from(len))?.to_vec()
        } else {
            return Ok(Opening::Opaque);
        };
        // Clients leave out the end of what comes last.
        let mut text = |flag: u32| (capabilities & flag != 0).then(|| cursor.text_to_end().to_vec());
        let database = text(CONNECT_WITH_DB);
        let method = text(PLUGIN_AUTH);
        Ok(Opening::Login(Login { capabilities, fixed, user, proof, database, method, rest: cursor.0.to_vec() }))
    }
}

impl Login {
    /// Answers of servers end as this capability says.
    pub fn deprecates_eof(&self) -> bool {
        self.capabilities & DEPRECATE_EOF != 0
    }

    /// Whether the client can be asked to switch the method.
    pub fn can_switch(&self) -> bool {
        self.capabilities & PLUGIN_AUTH != 0
    }

    /// The body of a login of the same user to another server.
    pub fn with_proof(&self, proof: &[u8]) -> Vec<u8> {
        let mut body = self.capabilities.to_le_bytes().to_vec();
        body.extend_from_slice(&self.fixed);
        body.extend_from_slice(&self.user);
        body.push(0);
        // A proof has 20 bytes or none: as length of one byte both forms are the same.
        body.push(proof.len() as u8);
        body.extend_from_slice(proof);
        if let Some(database) = &self.database {
            body.extend_from_slice(database);
            body.push(0);
        }
        if self.method.is_some() {
            body.extend_from_slice(NATIVE);
            body.push(0);
        }
        body.extend_from_slice(&self.rest);
        body
    }
}

/// The body that asks a client for the answer to another server's scramble.
pub fn switch_to_native(scramble: &[u8; 20]) -> Vec<u8> {
    [&[0xfe], NATIVE, &[0], &scramble[..], &[0]].concat()
}

/// A proof of `mysql_native_password`.
pub const PROOF: usize = 20;

const _: () = assert!(PROOF < 0xfb, "a length of one byte");
const _: () = assert!(EXTENDED_AT + 4 < packet::PACKET_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn login(capabilities: u32) -> Vec<u8> {
        let mut body = capabilities.to_le_bytes().to_vec();
        body.extend_from_slice(&[0, 0, 0, 1, 45]);
        body.extend_from_slice(&[7; 23]);
        body.extend_from_slice(b"app\0\x14");
        body.extend_from_slice(&[b'x'; 20]);
        if capabilities & CONNECT_WITH_DB != 0 {
            body.extend_from_slice(b"shop\0");
        }
        if capabilities & PLUGIN_AUTH != 0 {
            body.extend_from_slice(b"mysql_native_password\0");
        }
        body.extend_from_slice(b"\x04\x01a\x01b");
        body
    }

    const USUAL: u32 = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH | CONNECT_WITH_DB;

    #[test]
    fn a_login_is_made_anew_with_another_proof() {
        let body = login(USUAL);
        let Ok(Opening::Login(read)) = Opening::parse(&body) else { panic!() };
        assert_eq!((read.user.as_slice(), read.database.as_deref()), (&b"app"[..], Some(&b"shop"[..])));
        assert_eq!(read.with_proof(&[b'x'; 20]), body);
        let Ok(Opening::Login(again)) = Opening::parse(&read.with_proof(b"")) else { panic!() };
        assert_eq!(again, Login { proof: Vec::new(), ..read });
    }

    #[test]
    fn what_cannot_be_read_is_opaque() {
        for more in [SSL, COMPRESS, ZSTD] {
            assert_eq!(Opening::parse(&login(USUAL | more)), Ok(Opening::Opaque));
        }
        assert_eq!(Opening::parse(&login(SECURE_CONNECTION)), Ok(Opening::Opaque));
    }

    #[test]
    fn a_login_cut_anywhere_does_no_harm() {
        let body = login(USUAL);
        for end in 0..body.len() {
            let _ = Opening::parse(&body[..end]);
        }
        assert!(Opening::parse(&body[..20]).is_err());
    }

    #[test]
    fn capabilities_are_taken_from_a_greeting() {
        let greeting = b"\x0a10.11\0\x07\0\0\0abcdefgh\0\xfe\xf7\x2d\x02\0\xff\x85\x15\0\0\0\0\0\0\x1d\0\0\0ijklmnopqrst\0mysql_native_password\0";
        let offered = offer(greeting).unwrap();
        let changed: Vec<(u8, u8)> =
            greeting.iter().copied().zip(offered.iter().copied()).filter(|(a, b)| a != b).collect();
        assert_eq!(changed, [(0xfe, 0xde), (0x85, 0x81), (0x1d, 0x0c)]);
        assert_eq!(packet::parse_greeting(&offered), packet::parse_greeting(greeting));
        assert!(offer(b"\x0a10.11\0\x07").is_err());
    }
}
