//! TLS without sockets: what peers must show each other, and one encrypted stream between two buffers.
//!
//! Both ends show a certificate and check the other's against the same authorities, as Galera does: whoever holds a certificate
//! of the authority is a member as far as the network goes, unless [`PeerNames`] and revocation lists say less. Host names are not
//! compared, since members know each other by addresses that change.
//!
//! Or both ends show that they know a secret: TLS 1.3 with an external pre-shared key (RFC 8446, 4.2.11) and fresh
//! Diffie-Hellman keys for each connection, so that a secret that gets known later opens nothing that was recorded. A peer
//! says who it is in the first message within the channel, so that is covered like everything else, and nothing of one
//! connection can be used in another. One end that is made to talk to itself (RFC 9257, "Selfie") finds its own `instance`
//! in the hello, and leaves.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use openssl::asn1::Asn1Time;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::sha::sha256;
use openssl::ssl::SslFiletype;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode, SslStream,
    SslVerifyMode, SslVersion,
};
use openssl::x509::store::X509Lookup;
use openssl::x509::verify::X509VerifyFlags;
use openssl::x509::{X509, X509ExtendedKeyUsage, X509VerifyResult};

use crate::error::TlsError;
use crate::identity::{Identity, PeerNames, Revoked};

/// Plaintext of one TLS record at most.
const RECORD_MAX: usize = 16 << 10;
/// Encrypted ahead of the socket: the most that a control message may find before it, the kernel's own buffer aside.
const AHEAD_MAX: usize = 64 << 10;
/// The type of the record that every handshake begins with.
pub(crate) const HANDSHAKE_RECORD: u8 = 0x16;
/// Alert, fatal, protocol_version: says to someone who speaks in clear text what is amiss.
pub(crate) const ALERT_VERSION: [u8; 7] = [0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46];

/// Those of TLS 1.3 whose hash is the one of a pre-shared key.
const SECRET_CIPHERS: &str = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

/// The `socket.ssl_*` options that name files or ciphers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFiles {
    /// PEM; may be encrypted with the password in `password`.
    pub key: PathBuf,
    /// PEM: the certificate, then those between it and the authority.
    pub cert: PathBuf,
    /// PEM: whose certificates are accepted.
    pub ca: PathBuf,
    /// The password is the first line.
    pub password: Option<PathBuf>,
    /// PEM: what the authorities have revoked; a list of each of them.
    pub crl: Option<PathBuf>,
    pub peers: PeerNames,
    /// OpenSSL's list for TLS 1.2; names that begin with `TLS_` are for TLS 1.3. Empty: OpenSSL's choice.
    pub ciphers: String,
}

/// The proof that members show each other: certificates, or that they know a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shows {
    Certificates,
    Secret,
}

/// Key, certificate and authorities, loaded and found to fit together; or secrets. Cheap to clone.
#[derive(Clone)]
pub struct TlsContext {
    acceptor: SslContext,
    /// At least one. Of several, each shows another secret.
    diallers: Vec<SslContext>,
    shows: Shows,
    /// How long the own certificate holds; secrets have no end.
    days_left: Option<i32>,
    peers: PeerNames,
    revoked: Revoked,
    /// Whose the own certificate is.
    own: Option<Identity>,
}

impl std::fmt::Debug for TlsContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsContext")
    }
}

impl TlsContext {
    /// Reads the files; blocks as long as they take.
    pub fn load(files: &TlsFiles) -> Result<TlsContext, TlsError> {
        let result = TlsContext::read(files);
        // OpenSSL keeps errors per thread, and the thread is the server's: what is left there would confuse its own TLS.
        drop(ErrorStack::get());
        result
    }

    /// Of a secret that all members know; the first is shown to others, all are accepted.
    pub fn of_secrets(secrets: &[[u8; SECRET_LEN]]) -> Result<TlsContext, TlsError> {
        let accepted: Arc<[Known]> = secrets.iter().map(Known::new).collect();
        if accepted.is_empty() {
            return Err(TlsError::NoSecret);
        }
        let diallers: Result<Vec<SslContext>, ErrorStack> = accepted.iter().cloned().map(context_that_shows).collect();
        let acceptor = context_that_accepts(accepted);
        drop(ErrorStack::get());
        let internal = |error: ErrorStack| TlsError::Setup(reasons(&error));
        let (acceptor, diallers) = (acceptor.map_err(internal)?, diallers.map_err(internal)?);
        Ok(TlsContext {
            acceptor,
            diallers,
            shows: Shows::Secret,
            days_left: None,
            peers: PeerNames::default(),
            revoked: Revoked::default(),
            own: None,
        })
    }

    fn read(files: &TlsFiles) -> Result<TlsContext, TlsError> {
        let internal = |error: ErrorStack| TlsError::Setup(reasons(&error));
        let mut context = SslContextBuilder::new(SslMethod::tls()).map_err(internal)?;
        context.set_min_proto_version(Some(SslVersion::TLS1_2)).map_err(internal)?;
        context.set_options(SslOptions::NO_COMPRESSION | SslOptions::NO_RENEGOTIATION | SslOptions::NO_TICKET);
        // Links live for days: nothing is resumed, so every link shows certificates.
        context.set_session_cache_mode(SslSessionCacheMode::OFF);
        context.set_num_tickets(0).map_err(internal)?;
        context.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        set_ciphers(&mut context, &files.ciphers)?;

        let bad =
            |option, path: &Path, why: &str| TlsError::File { option, path: path.to_owned(), why: why.to_owned() };
        context.set_ca_file(&files.ca).map_err(|e| bad("socket.ssl_ca", &files.ca, &reasons(&e)))?;
        let chain = context.set_certificate_chain_file(&files.cert);
        chain.map_err(|e| bad("socket.ssl_cert", &files.cert, &reasons(&e)))?;
        let pem = std::fs::read(&files.key).map_err(|e| bad("socket.ssl_key", &files.key, &e.to_string()))?;
        let password = match &files.password {
            Some(path) => first_line(path).map_err(|e| bad("socket.ssl_password_file", path, &e.to_string()))?,
            None => Vec::new(),
        };
        // A callback, because without one OpenSSL asks at the terminal.
        let key = PKey::private_key_from_pem_callback(&pem, |room| {
            let fits = password.len() <= room.len();
            room[..password.len() * usize::from(fits)].copy_from_slice(&password[..password.len() * usize::from(fits)]);
            Ok(password.len() * usize::from(fits))
        });
        let key = key.map_err(|e| {
            let encrypted = pem.windows(9).any(|word| word == b"ENCRYPTED");
            let hint = match (encrypted, files.password.is_some()) {
                (true, false) => " (it is encrypted: set socket.ssl_password_file)",
                (true, true) => " (is the password in socket.ssl_password_file the right one?)",
                (false, _) => "",
            };
            bad("socket.ssl_key", &files.key, &format!("{}{hint}", reasons(&e)))
        })?;
        let unfit = |e: ErrorStack| {
            let why = format!("it does not belong to the certificate '{}': {}", files.cert.display(), reasons(&e));
            bad("socket.ssl_key", &files.key, &why)
        };
        context.set_private_key(&key).map_err(unfit)?;
        context.check_private_key().map_err(unfit)?;
        let mut revoked = Revoked::default();
        if let Some(path) = &files.crl {
            let pem = std::fs::read(path).map_err(|e| bad("socket.ssl_crl", path, &e.to_string()))?;
            revoked = Revoked::parse(&pem).map_err(|why| bad("socket.ssl_crl", path, &why.to_string()))?;
            let store = context.cert_store_mut();
            let lists =
                store.add_lookup(X509Lookup::file()).and_then(|file| file.load_crl_file(path, SslFiletype::PEM));
            lists.map_err(|e| bad("socket.ssl_crl", path, &reasons(&e)))?;
            store.set_flags(X509VerifyFlags::CRL_CHECK | X509VerifyFlags::CRL_CHECK_ALL).map_err(internal)?;
        }
        let context = context.build();
        let own = context.certificate().map(Identity::of).transpose().map_err(internal)?;
        let end =
            context.certificate().map(|cert| Asn1Time::days_from_now(0).and_then(|now| now.diff(cert.not_after())));
        let days_left = end.transpose().map_err(internal)?.map_or(0, |left| left.days);
        let diallers = vec![context.clone()];
        Ok(TlsContext {
            acceptor: context,
            diallers,
            shows: Shows::Certificates,
            days_left: Some(days_left),
            peers: files.peers.clone(),
            revoked,
            own,
        })
    }

    /// How long the own certificate holds; negative when it has expired, and every peer refuses it. `None` without one.
    pub fn days_left(&self) -> Option<i32> {
        self.days_left
    }

    pub fn shows(&self) -> Shows {
        self.shows
    }

    /// How long the revocation lists hold; negative when one has ended, and every peer is refused. `None` without lists.
    pub fn crl_days_left(&self) -> Option<i32> {
        self.revoked.days_left().ok().flatten()
    }

    /// Whose the own certificate is, if it is not among those that this node takes: members with the same list refuse it.
    pub fn refuses_own(&self) -> Option<&Identity> {
        self.own.as_ref().filter(|own| !self.peers.allow(own))
    }

    /// Is this a member's certificate, as far as names and lists tell? That it is of an authority is known already.
    ///
    /// **Errors:** why not.
    fn judge(&self, certificate: &X509) -> Result<Identity, BadCertificate> {
        let who = Identity::of(certificate).map_err(|e| BadCertificate::Unreadable(reasons(&e)))?;
        if self.revoked.has(certificate) {
            return Err(BadCertificate::Revoked(who));
        }
        if !self.peers.allow(&who) {
            return Err(BadCertificate::NoMember(who));
        }
        Ok(who)
    }
}

/// Bytes of a secret.
pub const SECRET_LEN: usize = 32;

/// A secret and what it is called on the wire.
#[derive(Clone)]
struct Known {
    name: String,
    secret: [u8; SECRET_LEN],
}

impl Known {
    fn new(secret: &[u8; SECRET_LEN]) -> Known {
        // Tells which of several it is, and nothing about it: what is hashed cannot be guessed.
        let hash = sha256(&[b"trireme secret name\0", &secret[..]].concat());
        let name = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Known { name, secret: *secret }
    }
}

/// Without a certificate there is no way through a handshake but a secret that both know.
fn secret_context() -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContextBuilder::new(SslMethod::tls())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_options(SslOptions::NO_COMPRESSION | SslOptions::NO_RENEGOTIATION | SslOptions::NO_TICKET);
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_num_tickets(0)?;
    // A certificate in the place of the secret is refused: no authority is known.
    context.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
    context.set_ciphersuites(SECRET_CIPHERS)?;
    Ok(context)
}

fn context_that_shows(shown: Known) -> Result<SslContext, ErrorStack> {
    let mut context = secret_context()?;
    context.set_psk_client_callback(move |_, _, name, secret| {
        let ends = shown.name.len();
        // The name ends with a zero byte. No room: no secret is shown, and the handshake fails.
        if name.len() <= ends || secret.len() < SECRET_LEN {
            return Ok(0);
        }
        name[..ends].copy_from_slice(shown.name.as_bytes());
        name[ends] = 0;
        secret[..SECRET_LEN].copy_from_slice(&shown.secret);
        Ok(SECRET_LEN)
    });
    Ok(context.build())
}

fn context_that_accepts(accepted: Arc<[Known]>) -> Result<SslContext, ErrorStack> {
    let mut context = secret_context()?;
    // To OpenSSL a pre-shared key is a session, and an acceptor that verifies must name its own. (A dialler must not.)
    context.set_session_id_context(b"trireme")?;
    context.set_psk_server_callback(move |_, name, secret| {
        let known = accepted.iter().find(|known| name == Some(known.name.as_bytes()));
        let Some(known) = known.filter(|_| secret.len() >= SECRET_LEN) else { return Ok(0) };
        secret[..SECRET_LEN].copy_from_slice(&known.secret);
        Ok(SECRET_LEN)
    });
    Ok(context.build())
}

fn set_ciphers(context: &mut SslContextBuilder, list: &str) -> Result<(), TlsError> {
    let names = || list.split(':').map(str::trim).filter(|name| !name.is_empty());
    let newer: Vec<&str> = names().filter(|name| name.starts_with("TLS_")).collect();
    let older: Vec<&str> = names().filter(|name| !name.starts_with("TLS_")).collect();
    let bad = |e: ErrorStack| TlsError::Ciphers { list: list.to_owned(), why: reasons(&e) };
    if !newer.is_empty() {
        context.set_ciphersuites(&newer.join(":")).map_err(bad)?;
    }
    if !older.is_empty() {
        context.set_cipher_list(&older.join(":")).map_err(bad)?;
    }
    Ok(())
}

fn first_line(path: &PathBuf) -> io::Result<Vec<u8>> {
    let text = std::fs::read(path)?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
}

/// OpenSSL's reasons without its addresses and line numbers.
fn reasons(error: &ErrorStack) -> String {
    let mut all: Vec<String> = error
        .errors()
        .iter()
        .filter_map(|e| Some(e.reason()?.to_owned() + &e.data().map(|data| format!(" ({data})")).unwrap_or_default()))
        .collect();
    all.dedup();
    if all.is_empty() { "for a reason that OpenSSL does not tell".to_owned() } else { all.join(", ") }
}

/// Why a peer's certificate is refused. The texts are for the log.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadCertificate {
    /// OpenSSL's reasons.
    #[error("TLS: its certificate cannot be read: {0}")]
    Unreadable(String),
    #[error("TLS: its certificate {0} is refused: it is revoked (socket.ssl_crl)")]
    Revoked(Identity),
    #[error("TLS: its certificate {0} is refused: it is not among those in socket.ssl_peer_names")]
    NoMember(Identity),
    /// Good for one end of a connection only.
    #[error("TLS: its certificate {subject} is refused: its extended key usage is not both serverAuth and clientAuth")]
    OneEnd { subject: String },
    /// By OpenSSL, for what `option` names. `whose`: with a space before it, if known.
    #[error("TLS: its certificate{whose} is refused: {why} ({option})")]
    Unverified { whose: String, why: &'static str, option: &'static str },
}

/// Why a session does not come about, or ends. The texts are for the log. `why`: OpenSSL's reasons.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// Nothing that the peer did.
    #[error("{why}")]
    Setup { why: String },
    #[error("it speaks in clear text, and TLS is on here (socket.ssl or repl.secret_file)")]
    InClear,
    #[error("TLS: the handshake was finished without the secret (repl.secret_file)")]
    WithoutSecret,
    #[error(
        "TLS: it does not show the secret of this cluster: {why} (do both have the same secret in repl.secret_file?)"
    )]
    OtherSecret { why: String },
    /// It does not take the own secret.
    #[error("TLS: it refused the handshake: {why} (do both have the same secret in repl.secret_file?)")]
    SecretRefused { why: String },
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
    /// It does not take the own certificate.
    #[error("TLS: it refused the handshake: {why} (does its socket.ssl_ca cover this node's certificate?)")]
    CertificateRefused { why: String },
    #[error("TLS: the handshake failed: {why}")]
    Failed { why: String },
}

impl SessionError {
    fn setup(error: ErrorStack) -> SessionError {
        SessionError::Setup { why: reasons(&error) }
    }
}

/// Which end of a connection a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The attempts that failed before decide which secret is shown, when there are several.
    Dialler {
        attempt: u32,
    },
    Acceptor,
}

/// The bytes that the socket brought and those that it shall take.
#[derive(Default)]
struct Wire {
    incoming: BytesMut,
    outgoing: Vec<u8>,
    /// So much of `outgoing` is with the kernel.
    sent: usize,
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let n = buf.len().min(self.incoming.len());
        self.incoming.copy_to_slice(&mut buf[..n]);
        Ok(n)
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One end of an encrypted stream.
pub(crate) struct Session {
    stream: SslStream<Wire>,
    /// The peer has sent something.
    heard: bool,
    /// Small parts on their way into one record.
    gather: Vec<u8>,
    /// Room for what one record holds.
    plain: Box<[u8]>,
    context: TlsContext,
    /// Known when the handshake is done, if the peer has shown a certificate.
    peer: Option<Identity>,
}

impl Session {
    pub fn new(context: &TlsContext, side: Side) -> Result<Session, SessionError> {
        let chosen = match side {
            Side::Dialler { attempt } => &context.diallers[attempt as usize % context.diallers.len()],
            Side::Acceptor => &context.acceptor,
        };
        let mut ssl = Ssl::new(chosen).map_err(SessionError::setup)?;
        match side {
            Side::Dialler { .. } => ssl.set_connect_state(),
            Side::Acceptor => ssl.set_accept_state(),
        }
        let stream = SslStream::new(ssl, Wire::default()).map_err(SessionError::setup)?;
        Ok(Session {
            stream,
            heard: false,
            gather: Vec::new(),
            plain: vec![0; RECORD_MAX].into(),
            context: context.clone(),
            peer: None,
        })
    }

    /// Has the peer sent anything?
    pub fn heard(&self) -> bool {
        self.heard
    }

    /// Where received bytes go. At most one read's worth waits here, since whoever fills it goes on with `handshake` or `decrypt`.
    pub fn incoming(&mut self) -> &mut BytesMut {
        &mut self.stream.get_mut().incoming
    }

    /// Goes on with the handshake as far as the received bytes allow; true when it is done. Takes milliseconds of computing.
    ///
    /// **Errors:** the bytes then in `outgoing` tell the peer.
    pub fn handshake(&mut self) -> Result<bool, SessionError> {
        if !self.heard
            && let Some(first) = self.stream.get_ref().incoming.first().copied()
        {
            self.heard = true;
            // 20 to 23: the types of TLS records.
            if !(0x14..=0x17).contains(&first) {
                return Err(SessionError::InClear);
            }
        }
        match self.stream.do_handshake() {
            // OpenSSL's word for a handshake that rests on a pre-shared key.
            Ok(()) if self.context.shows == Shows::Secret && !self.stream.ssl().session_reused() => {
                Err(SessionError::WithoutSecret)
            }
            Ok(()) => Ok(self.check_peer().map(|()| true)?),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(false),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// A member dials and is dialled, so a certificate for one of the two is no member's. OpenSSL asks for the one that is in use.
    fn check_peer(&mut self) -> Result<(), BadCertificate> {
        let Some(certificate) = self.stream.ssl().peer_certificate() else { return Ok(()) };
        let both = X509ExtendedKeyUsage::SSL_SERVER | X509ExtendedKeyUsage::SSL_CLIENT;
        if certificate.extended_key_usage().is_none_or(|usage| usage.contains(both)) {
            self.peer = Some(self.context.judge(&certificate)?);
            return Ok(());
        }
        Err(BadCertificate::OneEnd { subject: format!("{:?}", certificate.subject_name()) })
    }

    /// Whose certificate the peer has shown.
    pub fn peer(&self) -> Option<&Identity> {
        self.peer.as_ref()
    }

    /// Would the peer's certificate be taken now?
    pub fn still_taken(&self, context: &TlsContext) -> Result<(), BadCertificate> {
        match self.stream.ssl().peer_certificate() {
            Some(certificate) => context.judge(&certificate).map(|_| ()),
            None => Ok(()),
        }
    }

    fn explain(&self, error: &openssl::ssl::Error) -> SessionError {
        let why = error.ssl_error().map_or_else(|| error.to_string(), reasons);
        // A reason is named after the alert that came from the other side.
        let by_peer = why.contains("alert");
        if self.context.shows == Shows::Secret {
            return if by_peer { SessionError::SecretRefused { why } } else { SessionError::OtherSecret { why } };
        }
        let verdict = self.stream.ssl().verify_result();
        if verdict != X509VerifyResult::OK {
            let subject = self.stream.ssl().peer_certificate().map(|cert| format!("{:?}", cert.subject_name()));
            let whose = subject.map(|name| format!(" {name}")).unwrap_or_default();
            let by_lists = verdict.error_string().contains("CRL") || verdict.error_string().contains("revoked");
            let option = if by_lists { "socket.ssl_crl" } else { "socket.ssl_ca" };
            return BadCertificate::Unverified { whose, why: verdict.error_string(), option }.into();
        }
        if by_peer { SessionError::CertificateRefused { why } } else { SessionError::Failed { why } }
    }

    /// Version and cipher, once the handshake is done.
    pub fn description(&self) -> String {
        let ssl = self.stream.ssl();
        format!("{}, {}", ssl.version_str(), ssl.current_cipher().map_or("no cipher", |cipher| cipher.name()))
    }

    /// Decrypts one record's worth behind the end of `into`; 0 when more must arrive first. An end announced within TLS is an
    /// error: no member sends it, since a link ends with a goodbye of its own.
    pub fn decrypt(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        // Asking in vain costs as much as a small message.
        if self.stream.get_ref().incoming.is_empty() && self.stream.ssl().pending() == 0 {
            return Ok(0);
        }
        match self.stream.ssl_read(&mut self.plain) {
            Ok(n) => {
                into.extend_from_slice(&self.plain[..n]);
                Ok(n)
            }
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(0),
            Err(error) => Err(io::Error::new(ErrorKind::InvalidData, self.explain(&error))),
        }
    }

    /// Encrypts from the front of `parts`, as much as may be ahead of the socket. Returns how much of it was taken.
    pub fn encrypt(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for part in parts {
            let mut rest: &[u8] = &part[..part.len().min(AHEAD_MAX - taken)];
            taken += rest.len();
            while !rest.is_empty() {
                if self.gather.is_empty() && rest.len() >= RECORD_MAX {
                    let (whole, tail) = rest.split_at(rest.len() / RECORD_MAX * RECORD_MAX);
                    self.seal(whole)?;
                    rest = tail;
                    continue;
                }
                let (now, later) = rest.split_at(rest.len().min(RECORD_MAX - self.gather.len()));
                self.gather.extend_from_slice(now);
                rest = later;
                if self.gather.len() == RECORD_MAX {
                    self.seal_gathered()?;
                }
            }
        }
        if !self.gather.is_empty() {
            self.seal_gathered()?;
        }
        Ok(taken)
    }

    fn seal_gathered(&mut self) -> io::Result<()> {
        let mut gathered = std::mem::take(&mut self.gather);
        let result = self.seal(&gathered);
        gathered.clear();
        self.gather = gathered;
        result
    }

    fn seal(&mut self, plain: &[u8]) -> io::Result<()> {
        // The wire takes everything, so nothing is left over.
        let n = self
            .stream
            .ssl_write(plain)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, self.explain(&error)))?;
        debug_assert_eq!(n, plain.len(), "partial writes are off");
        Ok(())
    }

    /// Encrypted bytes that the kernel has not taken.
    pub fn unsent(&self) -> usize {
        let wire = self.stream.get_ref();
        wire.outgoing.len() - wire.sent
    }

    /// Gives encrypted bytes to `send` until all are sent; false when it blocks.
    pub fn flush(&mut self, mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<bool> {
        let wire = self.stream.get_mut();
        while wire.sent < wire.outgoing.len() {
            match send(&[IoSlice::new(&wire.outgoing[wire.sent..])]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => wire.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        wire.outgoing.clear();
        wire.sent = 0;
        Ok(true)
    }
}
