//! Asks one server about itself, over a connection that stays: a login for each look would be a load, and broken-off logins make a
//! server block our host.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

use crate::address::Address;
use crate::health::Heard;
use crate::packet::{self, Answer, LoginAnswer, Malformed, ServerError, Step};
use crate::report::{ASK_FOR_MORE, ASK_STATUS, ASK_VARIABLES, Report};
use crate::shell::stream::{Stream, Tuning};

pub struct Client {
    stream: BufReader<Stream>,
    number: u8,
}

#[derive(Debug)]
pub enum Trouble {
    /// No connection, or none any more.
    Gone(io::Error),
    Refused(ServerError),
    /// The account cannot log in with what we have.
    Method(String),
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
            Trouble::Method(_) => Heard::LoginDenied(self.to_string()),
            Trouble::Malformed(malformed) => Heard::Wrong(malformed.to_string()),
        }
    }
}

/// One look over a connection of its own.
pub async fn look_once(address: &Address, user: &str, password: &str, limit: Duration) -> Heard {
    let look = async {
        let mut client = Client::connect(address).await.map_err(|trouble| trouble.heard(true))?;
        client.log_in(user, password).await.map_err(|trouble| trouble.heard(true))?;
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
        Ok(Client { stream: BufReader::new(stream), number: 0 })
    }

    pub async fn log_in(&mut self, user: &str, password: &str) -> Result<(), Trouble> {
        let body = self.read().await?;
        if let Some(error) = packet::parse_error(&body) {
            return Err(Trouble::Refused(error));
        }
        let greeting = packet::parse_greeting(&body)?;
        self.write(&packet::login(user, password, &greeting.scramble)).await?;
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

    async fn write(&mut self, body: &[u8]) -> Result<(), Trouble> {
        self.stream.get_mut().write_all(&packet::packet(self.number, body)).await?;
        Ok(())
    }

    async fn read(&mut self) -> Result<Vec<u8>, Trouble> {
        let mut head = [0; packet::HEADER];
        self.stream.read_exact(&mut head).await?;
        let (len, number) = packet::header(head);
        if len > packet::PACKET_MAX {
            return Err(Malformed("a packet of more than a megabyte").into());
        }
        self.number = number.wrapping_add(1);
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body).await?;
        Ok(body)
    }
}
