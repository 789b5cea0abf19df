//! Asks one server about itself, over a connection that stays: a login for each look would be a load, and broken-off logins make a
//! server block our host.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

use crate::address::Address;
use crate::health::Heard;
use crate::packet::{self, Answer, LoginAnswer, Malformed, ServerError, Step};
use crate::report::{ASK_FOR_MORE, ASK_STATUS, ASK_VARIABLES, PROVE, Report, WAIT_FOR_ALL};
use crate::shell::stream::{Stream, Tuning};
use crate::shell::tls::Tls;

pub struct Client {
    link: Link,
    number: u8,
    /// It was offered TLS.
    tls: bool,
    /// The address at the other end.
    peer: Option<SocketAddr>,
}

enum Link {
    Plain(BufReader<Stream>),
    Tls(Box<Tls>),
    /// TLS could not begin.
    Lost,
}

/// How an account logs in.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    pub user: &'a str,
    pub password: &'a str,
    /// By TLS where the server offers it.
    pub by_tls: bool,
    /// By TLS only, and to servers whose certificate this file's signed.
    pub ca: Option<&'a Path>,
}

#[derive(Debug)]
pub enum Trouble {
    /// No connection, or none any more.
    Gone(io::Error),
    Refused(ServerError),
    /// The account cannot log in with what we have.
    Method(String),
    /// No TLS with it, or none that is trusted.
    Tls(String),
    Malformed(Malformed),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Gone(error)
    }
}

impl From<Malformed> for Trouble {
    fn from(malformed: Malformed) -> Trouble {
        Trouble::Malformed(malformed)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Gone(error) => write!(f, "{error}"),
            Trouble::Refused(error) => write!(f, "{error}"),
            Trouble::Method(name) => write!(f, "the account logs in by {name}; use one with mysql_native_password"),
            Trouble::Tls(why) => f.write_str(why),
            Trouble::Malformed(malformed) => write!(f, "{malformed}"),
        }
    }
}

impl Trouble {
    /// Its meaning for the server's health. `logging_in`: it happened before the login was through.
    pub fn heard(self, logging_in: bool) -> Heard {
        match self {
            Trouble::Gone(error) => Heard::Refused(error.to_string()),
            Trouble::Refused(error) => match error.code {
                packet::TOO_MANY_CONNECTIONS => Heard::Full(error.to_string()),
                packet::SHUTTING_DOWN => Heard::Refused(error.to_string()),
                packet::HOST_BLOCKED => Heard::Wrong(format!("{error}; run FLUSH HOSTS there")),
                _ if logging_in => Heard::LoginDenied(error.to_string()),
                _ => Heard::Wrong(error.to_string()),
            },
            Trouble::Method(_) | Trouble::Tls(_) => Heard::LoginDenied(self.to_string()),
            Trouble::Malformed(malformed) => Heard::Wrong(malformed.to_string()),
        }
    }
}

/// One look over a connection of its own.
pub async fn look_once(address: &Address, user: &str, password: &str, limit: Duration) -> Heard {
    let look = async {
        let mut login = Login { user, password, by_tls: false, ca: None };
        let mut client = Client::enter(address, &mut login).await.map_err(|trouble| trouble.heard(true))?;
        let report = client.look().await.map_err(|trouble| trouble.heard(false))?;
        let tells_nothing = report.member().is_some_and(|m| m.trireme && m.primary && m.order.is_none());
        // Without the right to switch it on, the writer is chosen by index.
        if tells_nothing && client.ask_for_more().await.is_ok() {
            return client.look().await.map_err(|trouble| trouble.heard(false));
        }
        Ok(report)
    };
    match tokio::time::timeout(limit, look).await {
        Ok(Ok(report)) => Heard::Answer(report),
        Ok(Err(heard)) => heard,
        Err(_) => Heard::TimedOut,
    }
}

impl Client {
    pub async fn connect(address: &Address) -> Result<Client, Trouble> {
        let tuning = Tuning { nodelay: true, keepalive: true };
        let stream = Stream::connect(address, tuning).await?;
        let peer = stream.peer_address();
        Ok(Client { link: Link::Plain(BufReader::new(stream)), number: 0, tls: false, peer })
    }

    /// A connection that is logged in, by TLS if the server lets nobody in without.
    pub async fn enter(address: &Address, login: &mut Login<'_>) -> Result<Client, Trouble> {
        loop {
            let mut client = Client::connect(address).await?;
            match client.log_in(login).await {
                Ok(()) => return Ok(client),
                Err(trouble) if client.may_need_tls(login, &trouble) => login.by_tls = true,
                Err(trouble) => return Err(trouble),
            }
        }
    }

    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Whether another connection, by TLS, may be let in where this one was refused.
    pub fn may_need_tls(&self, login: &Login<'_>, trouble: &Trouble) -> bool {
        let Trouble::Refused(error) = trouble else { return false };
        let told = [packet::ACCESS_DENIED, packet::TLS_REQUIRED].contains(&error.code);
        told && self.tls && !login.by_tls && login.ca.is_none()
    }

    pub async fn log_in(&mut self, login: &Login<'_>) -> Result<(), Trouble> {
        let Login { user, password, .. } = *login;
        let body = self.read().await?;
        if let Some(error) = packet::parse_error(&body) {
            return Err(Trouble::Refused(error));
        }
        let greeting = packet::parse_greeting(&body)?;
        self.tls = greeting.tls;
        let by_tls = match (greeting.tls, login.ca) {
            (true, ca) => login.by_tls || ca.is_some(),
            (false, None) => false,
            (false, Some(_)) => return Err(Trouble::Tls("it offers no TLS, which --tls-ca asks for".to_owned())),
        };
        if by_tls {
            self.begin_tls(login.ca).await?;
        }
        self.write(&packet::login(user, password, &greeting.scramble, by_tls)).await?;
        loop {
            let body = self.read().await?;
            match packet::parse_login_answer(&body, password)? {
                LoginAnswer::Welcome => return Ok(()),
                LoginAnswer::Answer(answer) => self.write(&answer).await?,
                LoginAnswer::Refused(error) => return Err(Trouble::Refused(error)),
                LoginAnswer::Unknown(method) => return Err(Trouble::Method(method)),
            }
        }
    }

    /// One look.
    pub async fn look(&mut self) -> Result<Report, Trouble> {
        let began = Instant::now();
        let status = self.ask(ASK_STATUS).await?;
        let variables = self.ask(ASK_VARIABLES).await?;
        Ok(Report::from_rows(&status, &variables, began.elapsed()))
    }

    /// Switches the extended status on.
    pub async fn ask_for_more(&mut self) -> Result<(), Trouble> {
        self.ask(ASK_FOR_MORE).await.map(drop)
    }

    /// Before the first [`Client::prove`].
    pub async fn begin_proofs(&mut self) -> Result<(), Trouble> {
        self.ask(WAIT_FOR_ALL).await.map(drop)
    }

    /// Returns when the server has all that was committed before this was called.
    pub async fn prove(&mut self) -> Result<(), Trouble> {
        self.ask(PROVE).await.map(drop)
    }

    async fn ask(&mut self, sql: &str) -> Result<Vec<Vec<String>>, Trouble> {
        self.number = 0;
        self.write(&packet::query(sql)).await?;
        let mut answer = Answer::Head;
        loop {
            let body = self.read().await?;
            match answer.handle_packet(&body)? {
                Step::More(next) => answer = next,
                Step::Done(rows) => return Ok(rows),
                Step::Failed(error) => return Err(Trouble::Refused(error)),
            }
        }
    }

    async fn begin_tls(&mut self, ca: Option<&Path>) -> Result<(), Trouble> {
        self.write(&packet::login_head(true)).await?;
        self.number = self.number.wrapping_add(1);
        let Link::Plain(stream) = std::mem::replace(&mut self.link, Link::Lost) else {
            return Err(Trouble::Tls("TLS was begun twice".to_owned()));
        };
        match Tls::begin(stream.into_inner(), ca).await {
            Ok(tls) => self.link = Link::Tls(Box::new(tls)),
            // No later attempt mends a wrong certificate.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Trouble::Tls(error.to_string())),
            Err(error) => return Err(Trouble::Gone(error)),
        }
        Ok(())
    }

    async fn write(&mut self, body: &[u8]) -> Result<(), Trouble> {
        let packet = packet::packet(self.number, body);
        match &mut self.link {
            Link::Plain(stream) => stream.get_mut().write_all(&packet).await?,
            Link::Tls(tls) => tls.write_all(&packet).await?,
            Link::Lost => return Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        }
        Ok(())
    }

    async fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        match &mut self.link {
            Link::Plain(stream) => stream.read_exact(into).await.map(drop),
            Link::Tls(tls) => tls.read_exact(into).await,
            Link::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    async fn read(&mut self) -> Result<Vec<u8>, Trouble> {
        let mut head = [0; packet::HEADER];
        self.read_exact(&mut head).await?;
        let (len, number) = packet::header(head);
        if len > packet::PACKET_MAX {
            return Err(Malformed("a packet of more than a megabyte").into());
        }
        self.number = number.wrapping_add(1);
        let mut body = vec![0; len];
        self.read_exact(&mut body).await?;
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::path::PathBuf;
    use std::thread::JoinHandle;

    use openssl::asn1::Asn1Time;
    use openssl::hash::MessageDigest;
    use openssl::pkey::{PKey, Private};
    use openssl::rsa::Rsa;
    use openssl::ssl::{SslAcceptor, SslMethod};
    use openssl::x509::{X509, X509NameBuilder};

    fn certificate() -> (X509, PKey<Private>) {
        let key = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_text("CN", "test").unwrap();
        let name = name.build();
        let mut builder = X509::builder().unwrap();
        builder.set_version(2).unwrap();
        builder.set_subject_name(&name).unwrap();
        builder.set_issuer_name(&name).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        (builder.build(), key)
    }

    fn read_packet(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; packet::HEADER];
        stream.read_exact(&mut head)?;
        let (len, number) = packet::header(head);
        let mut body = vec![0; len];
        stream.read_exact(&mut body)?;
        Ok((number, body))
    }

    fn converse(mut stream: impl Read + Write, number: u8) -> io::Result<()> {
        stream.write_all(&packet::packet(number, b"\0\0\0\x02\0\0\0"))?;
        loop {
            let (number, _) = read_packet(&mut stream)?;
            stream.write_all(&packet::packet(number + 1, b"\0\0\0\x02\0\0\0"))?;
        }
    }

    /// A server that lets in nobody without TLS. It ends with its first client by TLS.
    fn server(certificate: X509, key: PKey<Private>) -> (Address, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut acceptor = SslAcceptor::mozilla_intermediate(SslMethod::tls_server()).unwrap();
        acceptor.set_certificate(&certificate).unwrap();
        acceptor.set_private_key(&key).unwrap();
        let acceptor = acceptor.build();
        let thread = std::thread::spawn(move || {
            loop {
                let mut stream = listener.accept().unwrap().0;
                let mut greeting = b"\x0aname\0\x07\0\0\0abcdefgh\0\xfe\xff\x2d\x02\0\xff\x81\x15".to_vec();
                greeting.extend_from_slice(&[0; 10]);
                greeting.extend_from_slice(b"ijklmnopqrst\0mysql_native_password\0");
                stream.write_all(&packet::packet(0, &greeting)).unwrap();
                let (number, body) = read_packet(&mut stream).unwrap();
                if body.len() > 32 {
                    let refusal = packet::packet(number + 1, b"\xff\x15\x04#28000Access denied");
                    stream.write_all(&refusal).unwrap();
                    continue;
                }
                assert_eq!((number, body), (1, packet::login_head(true)));
                let Ok(mut stream) = acceptor.accept(stream) else { return };
                let (number, body) = read_packet(&mut stream).unwrap();
                assert!(number == 2 && body.starts_with(&packet::login_head(true)) && body.len() > 32);
                let _ = converse(stream, 3);
                return;
            }
        });
        (Address::Tcp { host: "127.0.0.1".to_owned(), port }, thread)
    }

    async fn looks(address: &Address, ca: Option<&Path>) -> Result<Report, Trouble> {
        let login = Login { user: "u", password: "p", by_tls: ca.is_none(), ca };
        let mut client = Client::connect(address).await.unwrap();
        client.log_in(&login).await?;
        client.look().await
    }

    fn file(name: &str, certificate: &X509) -> PathBuf {
        let path = std::env::temp_dir().join(format!("trireme-{name}-{}.pem", std::process::id()));
        std::fs::write(&path, certificate.to_pem().unwrap()).unwrap();
        path
    }

    #[tokio::test]
    async fn a_server_that_insists_on_tls_is_looked_at_by_tls() {
        let (certificate, key) = certificate();
        let (address, thread) = server(certificate, key);
        let heard = look_once(&address, "u", "p", Duration::from_secs(20)).await;
        assert!(matches!(&heard, Heard::Answer(report) if report.member().is_none()), "{heard:?}");
        thread.join().unwrap();
    }

    #[tokio::test]
    async fn a_certificate_is_trusted_if_the_given_one_signed_it() {
        let (certificate, key) = certificate();
        let trusted = file("trusted", &certificate);
        let (address, thread) = server(certificate, key);
        looks(&address, Some(&trusted)).await.unwrap();
        thread.join().unwrap();
        let (other, key) = self::certificate();
        let (address, thread) = server(other, key);
        let trouble = looks(&address, Some(&trusted)).await.unwrap_err();
        assert!(matches!(&trouble, Trouble::Tls(why) if why.contains("certificate")), "{trouble}");
        thread.join().unwrap();
        std::fs::remove_file(trusted).unwrap();
        assert!(crate::shell::check_ca(Path::new("/nonexistent")).unwrap_err().contains("/nonexistent"));
    }
}
