//! One client of a `--split` listener: its writes on the writer, its reads on another member, until it has state that only one server knows.
//!
//! Statements are handed on as they came. A session on the writer and one on a reader belong to this client alone. [`crate::split`] decides which
//! statement may go where. As soon as something comes that is not understood, the client and the writer are joined byte by byte for good.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::config::{Causal, Config};
use crate::packet::{self, Malformed, NATIVE, ServerError};
use crate::pool::{ListenerId, NodeId, Role};
use crate::proxy::{self, Origin};
use crate::shell::balancer::{Balancer, Session};
use crate::shell::proof::{Proof, Reached};
use crate::shell::pump::pump;
use crate::shell::session::{ASK_AGAIN, Hindrance};
use crate::shell::stream::{Stream, Tuning};
use crate::split::{Class, End, Login, Opening, Progress, Reply, classify, offer, switch_to_native};

/// A longer command is not read: it goes to the writer as bytes.
const COMMAND_MAX: usize = (1 << 20) + 1;
/// Packets of a login are far smaller.
const LOGIN_MAX: usize = 64 * 1024;
/// Different settings that a client may make. More are no settings but a use that we do not understand.
const SETTINGS_MAX: usize = 64;
/// Collected for a client before it is written.
const OUT_MAX: usize = 32 * 1024;
/// Read at once at most.
const READ: usize = 16 * 1024;
/// A statement that lost against another one is sent again so often.
const RETRIES: u32 = 5;
/// Between two attempts while no server takes a statement.
const PAUSE: Duration = Duration::from_millis(20);
/// A reader that was lost is sought again after this.
const SEEK_READER: Duration = Duration::from_secs(1);

const QUIT: u8 = 0x01;
const INIT_DB: u8 = 0x02;
const QUERY: u8 = 0x03;
const PING: u8 = 0x0e;
const RESET: u8 = 0x1f;

const IN_TRANSACTION: u16 = 0x1;
const AUTOCOMMIT: u16 = 0x2;

const LOST_TO_ANOTHER: u16 = 1213;
const LOCK_TIMEOUT: u16 = 1205;
const KILLED: u16 = 1927;
/// A read waits for everything that was committed before it.
const CAUSAL: &[u8] = b"\x03SET SESSION wsrep_sync_wait = 1";
const NOT_CAUSAL: &[u8] = b"\x03SET SESSION wsrep_sync_wait = DEFAULT";

/// Since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Statements that a reader answered.
    pub reads: AtomicU64,
    /// Of these, with `--causal own`, those that waited for nothing: the reader was known to be far enough.
    pub unasked: AtomicU64,
    /// Clients that were joined to the writer for good.
    pub pinned: AtomicU64,
    /// Clients that went on with another writer.
    pub moved: AtomicU64,
    /// Statements that were sent once more, as the server had said that nothing happened.
    pub repeated: AtomicU64,
}

/// A connection, and the bytes that were read ahead.
struct Wire {
    stream: Stream,
    bytes: Vec<u8>,
    at: usize,
}

impl Wire {
    fn new(stream: Stream, bytes: Vec<u8>) -> Wire {
        Wire { stream, bytes, at: 0 }
    }

    fn ready(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Reads until `n` bytes are there. May be dropped at any time: nothing is lost.
    async fn fill(&mut self, n: usize) -> io::Result<()> {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        if self.bytes.is_empty() {
            // One that waits for its client owns no buffer.
            self.bytes = Vec::new();
            self.stream.readable().await?;
        }
        while self.bytes.len() < n {
            self.bytes.reserve(READ);
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Length and number of the next packet.
    async fn header(&mut self) -> io::Result<(usize, u8)> {
        if self.ready().len() < packet::HEADER {
            self.fill(packet::HEADER).await?;
        }
        let head = self.ready().first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(packet::header(*head))
    }

    /// A whole packet of at most `max` bytes: its number and its body.
    async fn packet(&mut self, max: usize) -> io::Result<(u8, Vec<u8>)> {
        let (len, number) = self.header().await?;
        if len > max {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"));
        }
        if self.ready().len() < packet::HEADER + len {
            self.fill(packet::HEADER + len).await?;
        }
        let body = self.ready()[packet::HEADER..packet::HEADER + len].to_vec();
        self.at += packet::HEADER + len;
        Ok((number, body))
    }

    async fn send(&mut self, number: u8, body: &[u8]) -> io::Result<()> {
        self.stream.write_all(&packet::packet(number, body)).await
    }

    /// The meaning of the next packet to `reply`, and its length. The packet stays where it is.
    async fn peek(&mut self, reply: &mut Reply) -> io::Result<(Progress, usize)> {
        let (len, _) = self.header().await?;
        let look = packet::HEADER + len.min(Reply::LOOK);
        if self.ready().len() < look {
            self.fill(look).await?;
        }
        let head = &self.ready()[packet::HEADER..look];
        let progress =
            reply.handle(head, len).map_err(|Malformed(text)| io::Error::new(io::ErrorKind::InvalidData, text))?;
        Ok((progress, packet::HEADER + len))
    }
}

/// A session on a server. Dropping it ends it.
struct Backend {
    lease: Session,
    wire: Wire,
    /// Of a reader whose reads do not wait each for themselves.
    proof: Option<Arc<Proof>>,
}

impl Backend {
    /// Until something comes though nothing was asked, or the session must end.
    async fn stirs(backend: &mut Option<Backend>) {
        match backend {
            None => std::future::pending().await,
            Some(backend) => tokio::select! {
                _ = backend.wire.fill(1) => {}
                () = backend.lease.end.notified() => {}
            },
        }
    }

    async fn send(&mut self, body: &[u8]) -> io::Result<()> {
        unless_ended(&self.lease.end, self.wire.send(0, body)).await
    }

    /// The first packet of an answer. An error: the server is gone, or its sessions must end.
    async fn first(&mut self, reply: &mut Reply) -> io::Result<(Progress, usize)> {
        unless_ended(&self.lease.end, self.wire.peek(reply)).await
    }

    /// Does `work` with another server. Meanwhile this one's session ends when it must.
    async fn aside<T>(backend: &mut Option<Backend>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        while let Some(Backend { lease, .. }) = backend {
            tokio::select! {
                done = &mut work => return done,
                () = lease.end.notified() => *backend = None,
            }
        }
        work.await
    }

    /// Runs a command of ours, or of the client's once more, and takes in the answer.
    async fn run(&mut self, body: &[u8], without_eof: bool) -> io::Result<End> {
        self.send(body).await?;
        let mut reply = Reply::new(without_eof);
        loop {
            let (progress, len) = self.first(&mut reply).await?;
            unless_ended(&self.lease.end, self.wire.fill(len)).await?;
            self.wire.at += len;
            match progress {
                Progress::More => {}
                Progress::Last(end) => return Ok(end),
                Progress::Opaque => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// An error, if the session must end before the work is done. Neither a client nor a server that does not read may hold it up.
async fn unless_ended<T>(end: &Notify, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        done = work => done,
        () = end.notified() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// The ways in which a client's login lets us log in at other servers later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credential {
    /// An account without a password: log in anywhere at any time.
    Empty,
    /// The client has answered for the servers of its login, and answers no more.
    Spent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Writer,
    Reader,
}

/// The outcome of an attempt with one server.
enum Trial {
    Taken,
    /// There is none, or it has gone: a sign tells when that changes.
    Nobody,
    /// It does not take the session at present. No sign tells when it does.
    Failed,
}

enum Flow {
    Next,
    /// With this command, unless it is still unread.
    Pin(Option<Vec<u8>>),
    End,
}

/// The client is gone, or must connect again.
struct Over;

impl From<io::Error> for Over {
    fn from(_: io::Error) -> Over {
        Over
    }
}

struct Conversation<'a> {
    balancer: &'a Arc<Balancer>,
    config: &'a Config,
    listener: ListenerId,
    source: Option<IpAddr>,
    client: Wire,
    writer: Option<Backend>,
    reader: Option<Backend>,
    /// When a reader was sought last.
    sought: Instant,
    /// When the client may have learnt something last that this reader need not have: from the writer, from another reader, or elsewhere before it
    /// came.
    since: Instant,
    login: Login,
    credential: Credential,
    /// Commands that made the session what it is, for every server that serves it.
    settings: Vec<Vec<u8>>,
    /// The writer's flags, of its last answer.
    status: u16,
    /// Which one ran the last statement.
    last: Side,
    /// The writer has the number of an inserted row, which a move would lose; it was lost.
    inserted: bool,
    forgotten: bool,
}

/// Until one of them has gone. `first`: the writer's greeting.
pub async fn serve(
    balancer: &Arc<Balancer>,
    config: &Config,
    stream: Stream,
    listener: ListenerId,
    source: Option<IpAddr>,
    lease: Session,
    server: Stream,
    first: Vec<u8>,
) {
    let end = lease.end.clone();
    let (mut client, wire) = (Wire::new(stream, Vec::new()), Wire::new(server, first));
    let mut writer = Backend { lease, wire, proof: None };
    let entered = tokio::select! {
        entered = enter(&mut client, &mut writer) => entered,
        () = end.notified() => return,
    };
    match entered {
        Ok(Entered::Read { login, credential, number, welcome, asked }) => {
            let mut conversation = Conversation {
                balancer,
                config,
                listener,
                source,
                client,
                writer: Some(writer),
                reader: None,
                sought: Instant::now(),
                since: Instant::now(),
                login,
                credential,
                settings: Vec::new(),
                status: 0,
                last: Side::Writer,
                inserted: false,
                forgotten: false,
            };
            let _ = conversation.go(number, welcome, asked).await;
        }
        Ok(Entered::Opaque) => {
            balancer.split.pinned.fetch_add(1, Relaxed);
            join(&mut client, &mut writer).await;
        }
        // Or the login was refused, which is rare enough to count too.
        Err(Over) => balancer.with(|pool, _| pool.handle_broken_login(writer.lease.node)),
    }
}

enum Entered {
    Read {
        login: Login,
        credential: Credential,
        /// The writer's welcome, which the client has not got yet, and its number.
        number: u8,
        welcome: Vec<u8>,
        /// The writer has asked it to switch the method. Some clients do that only once.
        asked: bool,
    },
    Opaque,
}

/// The client's login at the writer, up to the welcome.
async fn enter(client: &mut Wire, writer: &mut Backend) -> Result<Entered, Over> {
    let (number, greeting) = writer.wire.packet(LOGIN_MAX).await?;
    client.send(number, &offer(&greeting).map_err(|_| Over)?).await?;
    writer.lease.greeted();
    // Unread: what cannot be read goes on as it came.
    let (len, _) = client.header().await?;
    if len > LOGIN_MAX {
        return Err(Over);
    }
    client.fill(packet::HEADER + len).await?;
    let body = client.ready()[packet::HEADER..packet::HEADER + len].to_vec();
    let Opening::Login(login) = Opening::parse(&body).map_err(|_| Over)? else { return Ok(Entered::Opaque) };
    let mut method = login.method.clone().unwrap_or_else(|| NATIVE.to_vec());
    let mut proof = login.proof.clone();
    let mut asked = false;
    let (number, body) = client.packet(LOGIN_MAX).await?;
    writer.wire.send(number, &body).await?;
    loop {
        tokio::select! {
            said = writer.wire.packet(LOGIN_MAX) => {
                let (number, body) = said?;
                match body.first() {
                    Some(0x00) => {
                        let credential = if proof.is_empty() && method == NATIVE { Credential::Empty } else { Credential::Spent };
                        // Another method cannot be repeated, and is not asked for twice.
                        let asked = asked || method != NATIVE;
                        return Ok(Entered::Read { login, credential, number, welcome: body, asked });
                    }
                    Some(0xfe) => {
                        asked = true;
                        method = packet::Cursor(&body[1..]).zero_terminated().map_err(|_| Over)?.to_vec();
                    }
                    Some(0xff) => {
                        client.send(number, &body).await?;
                        return Err(Over);
                    }
                    Some(_) | None => {}
                }
                client.send(number, &body).await?;
            }
            said = client.packet(LOGIN_MAX) => {
                let (number, body) = said?;
                writer.wire.send(number, &body).await?;
                proof = body;
            }
        }
    }
}

/// Client and writer, byte by byte, until one of them has gone or the session must end.
async fn join(client: &mut Wire, writer: &mut Backend) {
    let end = writer.lease.end.clone();
    let whole = async {
        writer.wire.stream.write_all(client.ready()).await?;
        client.stream.write_all(writer.wire.ready()).await?;
        (client.bytes, client.at, writer.wire.bytes, writer.wire.at) = (Vec::new(), 0, Vec::new(), 0);
        pump(&mut client.stream, &mut writer.wire.stream, &writer.lease.traffic).await;
        io::Result::Ok(())
    };
    tokio::select! {
        _ = whole => {}
        () = end.notified() => {}
    }
}

impl Conversation<'_> {
    async fn go(&mut self, number: u8, welcome: Vec<u8>, asked: bool) -> Result<(), Over> {
        let Ok(Progress::Last(End::Done { status, .. })) = Reply::new(true).handle(&welcome, welcome.len()) else {
            return Err(Over);
        };
        self.status = status;
        let number = match self.credential {
            Credential::Empty => {
                self.seek_reader().await;
                number
            }
            Credential::Spent if self.login.can_switch() && !asked => self.enter_reader(number).await?,
            Credential::Spent => number,
        };
        self.client.send(number, &welcome).await?;
        loop {
            tokio::select! {
                head = self.client.header() => {
                    let flow = match head?.0 {
                        len if len > COMMAND_MAX => Flow::Pin(None),
                        _ => {
                            let (_, body) = self.client.packet(COMMAND_MAX).await?;
                            self.command(body).await?
                        }
                    };
                    match flow {
                        Flow::Next => {}
                        Flow::Pin(command) => return self.pin(command).await,
                        Flow::End => return self.quit().await,
                    }
                }
                () = Backend::stirs(&mut self.writer) => self.handle_stir().await?,
                () = Backend::stirs(&mut self.reader) => self.reader = None,
            }
        }
    }

    /// The writer has gone, or says something of its own accord, while the client asks nothing.
    async fn handle_stir(&mut self) -> Result<(), Over> {
        if let Some(writer) = self.writer.as_mut().filter(|writer| !writer.wire.ready().is_empty()) {
            let limit = self.config.connect_timeout;
            let (number, body) = timeout(limit, writer.wire.packet(LOGIN_MAX)).await.map_err(|_| Over)??;
            let goes = packet::parse_error(&body).is_some_and(|error| error.code == packet::SHUTTING_DOWN);
            if !goes {
                // Somebody has ended this session on purpose.
                self.client.send(number, &body).await?;
                return Err(Over);
            }
        }
        self.leave_writer()
    }

    /// Does without the writer until the next statement. **Errors** if nothing of the session could be had elsewhere.
    fn leave_writer(&mut self) -> Result<(), Over> {
        self.writer = None;
        self.forgotten |= std::mem::take(&mut self.inserted);
        match self.credential {
            _ if !self.is_free() => Err(Over),
            Credential::Spent if self.reader.is_none() => Err(Over),
            Credential::Spent | Credential::Empty => Ok(()),
        }
    }

    /// No transaction is open, and each statement is one of its own.
    fn is_free(&self) -> bool {
        self.status & IN_TRANSACTION == 0 && self.status & AUTOCOMMIT != 0
    }

    async fn quit(&mut self) -> Result<(), Over> {
        for backend in [&mut self.writer, &mut self.reader].into_iter().flatten() {
            // Else the server would count a client that broke off.
            let _ = backend.send(&[QUIT]).await;
        }
        Ok(())
    }

    async fn pin(&mut self, command: Option<Vec<u8>>) -> Result<(), Over> {
        self.balancer.split.pinned.fetch_add(1, Relaxed);
        if let Some(reader) = &mut self.reader {
            let _ = reader.send(&[QUIT]).await;
        }
        if self.writer.is_none() && !self.find_writer(Instant::now() + self.config.hold).await? {
            return Err(Over);
        }
        self.reader = None;
        let writer = self.writer.as_mut().ok_or(Over)?;
        if let Some(command) = command {
            writer.send(&command).await?;
        }
        join(&mut self.client, writer).await;
        Ok(())
    }

    async fn command(&mut self, body: Vec<u8>) -> Result<Flow, Over> {
        match body.first() {
            Some(&QUIT) => return Ok(Flow::End),
            Some(&PING) => drop(self.write(&body, false, true).await?),
            Some(&INIT_DB) => self.set(body).await?,
            Some(&RESET) => self.reset(&body).await?,
            Some(&QUERY) => {
                let statement = classify(&body[1..]);
                if statement.looks_back && self.forgotten {
                    // The answer went down with the writer that it was about.
                    return Err(Over);
                }
                match statement.class {
                    Class::Pins => return Ok(Flow::Pin(Some(body))),
                    Class::Read if self.is_free() && self.read(&body).await? => {}
                    Class::Read => drop(self.write(&body, true, true).await?),
                    Class::About if self.last == Side::Reader && self.read(&body).await? => {}
                    Class::About => drop(self.write(&body, false, false).await?),
                    Class::Write { retry } => drop(self.write(&body, retry, false).await?),
                    Class::Setting => self.set(body).await?,
                }
            }
            Some(_) | None => return Ok(Flow::Pin(Some(body))),
        }
        match self.settings.len() > SETTINGS_MAX {
            true => Ok(Flow::Pin(Some(vec![PING]))),
            false => Ok(Flow::Next),
        }
    }

    async fn set(&mut self, body: Vec<u8>) -> Result<(), Over> {
        if !matches!(self.write(&body, false, false).await?, Some(End::Done { .. })) {
            return Ok(());
        }
        let without_eof = self.login.deprecates_eof();
        if let Some(reader) = &mut self.reader
            && !matches!(reader.run(&body, without_eof).await, Ok(End::Done { .. }))
        {
            self.reader = None;
        }
        // The same again takes the place of the first: constants overwrite each other.
        self.settings.retain(|setting| *setting != body);
        self.settings.push(body);
        Ok(())
    }

    async fn reset(&mut self, body: &[u8]) -> Result<(), Over> {
        if !matches!(self.write(body, false, false).await?, Some(End::Done { .. })) {
            return Ok(());
        }
        (self.inserted, self.forgotten) = (false, false);
        // The default schema is kept by a reset.
        self.settings
            .retain(|setting| setting.first() == Some(&INIT_DB) || classify(&setting[1..]).is_use(&setting[1..]));
        if let Some(mut reader) = self.reader.take() {
            let without_eof = self.login.deprecates_eof();
            let reset = matches!(reader.run(body, without_eof).await, Ok(End::Done { .. }));
            if reset {
                self.reader = self.make_wait(reader).await;
            }
        }
        Ok(())
    }

    // ---- statements ------------------------------------------------------------------------------------------------

    /// Has the reader answer. `false`: nobody has answered yet.
    async fn read(&mut self, body: &[u8]) -> Result<bool, Over> {
        if self.reader.is_none() && self.credential == Credential::Empty && self.sought.elapsed() >= SEEK_READER {
            self.seek_reader().await;
        }
        let Some(reader) = &mut self.reader else { return Ok(false) };
        if let Some(proof) = &reader.proof {
            let reached = tokio::select! {
                reached = proof.reaches(self.since, reader.wire.stream.peer_address()) => reached,
                () = reader.lease.end.notified() => {
                    self.reader = None;
                    return Ok(false);
                }
            };
            match reached {
                Reached::Already => drop(self.balancer.split.unasked.fetch_add(1, Relaxed)),
                Reached::Now => {}
                Reached::No => return Ok(false),
            }
        }
        let mut reply = Reply::new(self.login.deprecates_eof());
        let first = match reader.send(body).await {
            Ok(()) => reader.first(&mut reply).await,
            Err(error) => Err(error),
        };
        match first {
            // A read can be repeated, whatever became of it. The writer answers instead.
            Err(_) => {
                self.reader = None;
                Ok(false)
            }
            Ok((Progress::Last(End::Error { code: packet::NOT_PREPARED | packet::SHUTTING_DOWN | KILLED }), _)) => {
                self.reader = None;
                Ok(false)
            }
            // It could not catch up in time.
            Ok((Progress::Last(End::Error { code: LOCK_TIMEOUT | LOST_TO_ANOTHER }), len)) => {
                reader.wire.fill(len).await?;
                reader.wire.at += len;
                Ok(false)
            }
            Ok(first) => {
                self.balancer.split.reads.fetch_add(1, Relaxed);
                let had_writer = self.writer.is_some();
                Backend::aside(&mut self.writer, relay(reader, &mut self.client, reply, first)).await?;
                if had_writer && self.writer.is_none() {
                    self.leave_writer()?;
                }
                self.last = Side::Reader;
                Ok(true)
            }
        }
    }

    /// Has the writer answer. `retry`: it may be sent again when the server says that nothing happened; `harmless`: also when it says nothing.
    /// `None`: nobody was there, which the client was told.
    async fn write(&mut self, body: &[u8], retry: bool, harmless: bool) -> Result<Option<End>, Over> {
        let outcome = self.write_there(body, retry, harmless).await;
        if body != [PING] {
            self.since = Instant::now();
            if let Some(proof) = self.reader.as_ref().and_then(|reader| reader.proof.as_ref()) {
                proof.ask();
            }
        }
        outcome
    }

    async fn write_there(&mut self, body: &[u8], retry: bool, harmless: bool) -> Result<Option<End>, Over> {
        let free = self.is_free();
        let deadline = Instant::now() + self.config.hold;
        let mut lost = 0;
        loop {
            if self.writer.is_none() && !self.find_writer(deadline).await? {
                return Ok(None);
            }
            let writer = self.writer.as_mut().ok_or(Over)?;
            let mut reply = Reply::new(self.login.deprecates_eof());
            let first = match writer.send(body).await {
                Ok(()) => writer.first(&mut reply).await,
                Err(error) => Err(error),
            };
            let first = match first {
                Ok(first) => first,
                // It may have happened, and nobody can say.
                Err(_) if !harmless => return Err(Over),
                Err(_) => {
                    self.leave_writer()?;
                    continue;
                }
            };
            let code = match first.0 {
                Progress::Last(End::Error { code }) => Some(code),
                Progress::Last(End::Done { .. }) | Progress::More | Progress::Opaque => None,
            };
            let refused = free && code == Some(packet::NOT_PREPARED) && Instant::now() < deadline;
            let undone = free && retry && code == Some(LOST_TO_ANOTHER) && lost < RETRIES;
            if refused || undone {
                writer.wire.fill(first.1).await?;
                writer.wire.at += first.1;
                self.balancer.split.repeated.fetch_add(1, Relaxed);
                lost += u32::from(undone);
                let node = writer.lease.node;
                if refused {
                    sleep(self.balancer.jitter(PAUSE)).await;
                    if self.balancer.with(|pool, _| pool.writer()).is_some_and(|now| now != node) {
                        self.leave_writer()?;
                    }
                }
                continue;
            }
            let end = Backend::aside(&mut self.reader, relay(writer, &mut self.client, reply, first)).await?;
            if let End::Done { status, inserted } = end {
                self.status = status;
                self.inserted |= inserted;
                self.forgotten &= !inserted;
            } else if self.status & IN_TRANSACTION != 0 {
                // An error may have ended the transaction or not, and does not say so.
                self.status = self.ask_status().await?;
            }
            self.last = Side::Writer;
            return Ok(Some(end));
        }
    }

    async fn ask_status(&mut self) -> Result<u16, Over> {
        let without_eof = self.login.deprecates_eof();
        match self.writer.as_mut().ok_or(Over)?.run(&[PING], without_eof).await? {
            End::Done { status, .. } => Ok(status),
            End::Error { .. } => Ok(self.status),
        }
    }

    // ---- servers ---------------------------------------------------------------------------------------------------

    /// Finds a writer for a session that can be had anywhere. `false`: there was none in time, and the client was told.
    async fn find_writer(&mut self, deadline: Instant) -> Result<bool, Over> {
        loop {
            let balancer = self.balancer.clone();
            let mut sign = std::pin::pin!(balancer.changed().notified());
            sign.as_mut().enable();
            let failed = match self.try_writer().await? {
                Trial::Taken => {
                    self.balancer.split.moved.fetch_add(1, Relaxed);
                    return Ok(true);
                }
                Trial::Nobody => false,
                Trial::Failed => true,
            };
            if Instant::now() >= deadline {
                let text =
                    "trireme balance: no server is ready for the statement, and nothing of it has happened".to_owned();
                let error = ServerError { code: packet::NOT_PREPARED, state: "08S01".into(), text };
                let whole = packet::error_packet(&error);
                self.client.send(1, &whole[packet::HEADER..]).await?;
                return Ok(false);
            }
            if failed {
                // The end of our own attempt is a sign too. Those that wait do not hammer: each tries once in this time.
                let _ = timeout_at(deadline, sleep(self.balancer.jitter(ASK_AGAIN))).await;
                continue;
            }
            tokio::select! {
                () = sign => {}
                () = sleep(self.balancer.jitter(PAUSE)) => {}
            }
        }
    }

    async fn try_writer(&mut self) -> Result<Trial, Over> {
        let mut backend = match self.credential {
            Credential::Empty => {
                let Ok(lease) = self.balancer.begin(self.listener, self.source, &[]) else { return Ok(Trial::Nobody) };
                let node = lease.node;
                match self.connect(lease).await {
                    Ok((backend, _)) => match self.log_in(backend, b"").await {
                        Some(backend) => backend,
                        None => return Ok(Trial::Failed),
                    },
                    Err(why) => {
                        why.tell(self.balancer, node);
                        return Ok(match why {
                            Hindrance::Refused(_) => Trial::Nobody,
                            Hindrance::Blocked | Hindrance::Failed => Trial::Failed,
                        });
                    }
                }
            }
            // The reader has this client's login already. It must be the one that the others choose too.
            Credential::Spent => {
                let node = self.reader.as_ref().ok_or(Over)?.lease.node;
                if self.balancer.with(|pool, _| pool.writer()) != Some(node) {
                    return Ok(Trial::Nobody);
                }
                let mut reader = self.reader.take().ok_or(Over)?;
                reader.proof = None;
                reader.lease.promote();
                if !matches!(reader.run(NOT_CAUSAL, self.login.deprecates_eof()).await, Ok(End::Done { .. })) {
                    return Err(Over);
                }
                reader
            }
        };
        match self.prepare(&mut backend).await {
            Some(status) => {
                self.status = status;
                self.writer = Some(backend);
                Ok(Trial::Taken)
            }
            None => Ok(Trial::Failed),
        }
    }

    /// Makes a new session what the client's is.
    async fn prepare(&self, backend: &mut Backend) -> Option<u16> {
        let mut status = AUTOCOMMIT;
        for setting in &self.settings {
            match backend.run(setting, self.login.deprecates_eof()).await {
                Ok(End::Done { status: now, .. }) => status = now,
                Ok(End::Error { .. }) | Err(_) => return None,
            }
        }
        Some(status)
    }

    /// A reader for an account without a password.
    async fn seek_reader(&mut self) {
        self.sought = Instant::now();
        let Some(lease) = self.lease_reader() else { return };
        if let Ok((backend, _)) = self.connect(lease).await
            && let Some(backend) = self.log_in(backend, b"").await
        {
            self.reader = self.make_causal(backend).await;
            self.since = Instant::now();
        }
    }

    /// A reader while the client still answers: it waits for the writer's welcome. Gives that one's number.
    async fn enter_reader(&mut self, number: u8) -> Result<u8, Over> {
        let Some(lease) = self.lease_reader() else { return Ok(number) };
        let Ok((backend, scramble)) = self.connect(lease).await else { return Ok(number) };
        self.client.send(number, &switch_to_native(&scramble)).await?;
        let (number, proof) = self.client.packet(LOGIN_MAX).await?;
        if proof.len() == crate::split::PROOF
            && let Some(backend) = self.log_in(backend, &proof).await
        {
            self.reader = self.make_causal(backend).await;
            self.since = Instant::now();
        }
        Ok(number.wrapping_add(1))
    }

    /// Only members of a group can wait for what was committed elsewhere.
    fn lease_reader(&self) -> Option<Session> {
        let writer = self.writer.as_ref().map(|writer| writer.lease.node);
        let tried: Vec<NodeId> = writer.into_iter().collect();
        let lease = self.balancer.begin_as(Role::Reader, self.listener, self.source, &tried).ok()?;
        self.balancer.with(|pool, _| pool.is_member(lease.node)).then_some(lease)
    }

    async fn make_causal(&self, backend: Backend) -> Option<Backend> {
        let mut backend = self.make_wait(backend).await?;
        self.prepare(&mut backend).await?;
        Some(backend)
    }

    /// Has each read wait for all commits, or sees to it that somebody knows how far the server is.
    async fn make_wait(&self, mut backend: Backend) -> Option<Backend> {
        match self.config.causal {
            Causal::Own => {
                let proof = self.balancer.proof(&backend.lease);
                proof.ask();
                backend.proof = Some(proof);
                Some(backend)
            }
            Causal::All => match backend.run(CAUSAL, self.login.deprecates_eof()).await {
                Ok(End::Done { .. }) => Some(backend),
                Ok(End::Error { .. }) | Err(_) => None,
            },
        }
    }

    /// Up to the greeting, with the scramble in it.
    async fn connect(&self, lease: Session) -> Result<(Backend, [u8; 20]), Hindrance> {
        let (config, source) = (self.config, self.source);
        let connect = async move {
            let tuning = Tuning { nodelay: config.nodelay, keepalive: config.keepalive };
            let mut stream = Stream::connect(&lease.address, tuning).await?;
            if config.send_proxy {
                let at = |ip| std::net::SocketAddr::new(ip, 0);
                let origin = source.map_or(Origin::Local, |ip| Origin::Client { from: at(ip), to: at(ip) });
                stream.write_all(&proxy::encode(origin)).await?;
            }
            let mut wire = Wire::new(stream, Vec::new());
            let (_, body) = wire.packet(LOGIN_MAX).await?;
            if let Some(error) = packet::parse_error(&body) {
                return Err(Hindrance::from(&error));
            }
            let greeting = packet::parse_greeting(&body).map_err(|_| Hindrance::Failed)?;
            lease.greeted();
            Ok((Backend { lease, wire, proof: None }, greeting.scramble))
        };
        timeout(self.config.connect_timeout, connect).await.map_err(|_| Hindrance::Failed)?
    }

    async fn log_in(&self, mut backend: Backend, proof: &[u8]) -> Option<Backend> {
        let login = async {
            backend.wire.send(1, &self.login.with_proof(proof)).await.ok()?;
            let (number, body) = backend.wire.packet(LOGIN_MAX).await.ok()?;
            match body.first()? {
                0x00 => return Some(()),
                // The client's library named another method first. An account without a password needs no other answer.
                0xfe if proof.is_empty() && body[1..].starts_with(NATIVE) => {}
                _ => return None,
            }
            backend.wire.send(number.wrapping_add(1), b"").await.ok()?;
            let (_, body) = backend.wire.packet(LOGIN_MAX).await.ok()?;
            (body.first() == Some(&0x00)).then_some(())
        };
        timeout(self.config.connect_timeout, login).await.ok()??;
        Some(backend)
    }
}

/// Hands an answer on, packet by packet. `first`: its first packet, which is there but was not handed on.
async fn relay(
    backend: &mut Backend,
    client: &mut Wire,
    mut reply: Reply,
    first: (Progress, usize),
) -> Result<End, Over> {
    let mut out = Vec::new();
    let mut next = first;
    loop {
        let (progress, len) = next;
        copy(backend, client, &mut out, len).await?;
        match progress {
            Progress::More => {}
            Progress::Last(end) => {
                unless_ended(&backend.lease.end, client.stream.write_all(&out)).await?;
                return Ok(end);
            }
            // It asks for a file, which no statement that we let through may do.
            Progress::Opaque => return Err(Over),
        }
        next = backend.first(&mut reply).await?;
    }
}

async fn copy(backend: &mut Backend, client: &mut Wire, out: &mut Vec<u8>, len: usize) -> Result<(), Over> {
    backend.lease.traffic.to_client_bytes.fetch_add(len as u64, Relaxed);
    let mut left = len;
    while left > 0 {
        if backend.wire.ready().is_empty() {
            unless_ended(&backend.lease.end, backend.wire.fill(1)).await?;
        }
        let part = backend.wire.ready().len().min(left);
        out.extend_from_slice(&backend.wire.ready()[..part]);
        backend.wire.at += part;
        left -= part;
        if out.len() >= OUT_MAX {
            unless_ended(&backend.lease.end, client.stream.write_all(out)).await?;
            out.clear();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    use tokio::net::{TcpListener, TcpStream};

    use crate::address::Address;
    use crate::config::Check;
    use crate::health::Heard;
    use crate::options::{Serve, Words};
    use crate::policy::Policy;
    use crate::report::tests::synced;
    use crate::shell::output::Log;
    use crate::shell::stream::Nodelay;

    const SPLIT: ListenerId = ListenerId(1);

    /// A group of two, the first of which orders. Their ports stand in for servers, and nobody looks after them.
    struct Stage {
        balancer: Arc<Balancer>,
        config: Arc<Config>,
        servers: Vec<TcpListener>,
        nodes: Vec<NodeId>,
    }

    impl Stage {
        async fn set() -> Stage {
            let typed = Serve { split: vec!["1".into()], exec: Some("true".into()), ..Words::default_serve() };
            let mut config = Config::resolve(&typed).unwrap();
            config.check = Check::Passive;
            (config.interval, config.settings.fresh) = (Duration::from_secs(1000), Duration::from_secs(1000));
            config.settings.grace = Duration::ZERO;
            let balancer = Balancer::new(config, 100, Log::start(), 1);
            balancer.with(|pool, _| pool.add_listener(SPLIT, Role::Split, Policy::Least, false));
            let (mut servers, mut nodes) = (Vec::new(), Vec::new());
            for (i, name) in ["n1", "n2"].into_iter().enumerate() {
                let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = server.local_addr().unwrap().port();
                let address = Address::Tcp { host: "127.0.0.1".into(), port };
                let id = balancer.with(|pool, now| pool.set_node(address, 1.0, now)).unwrap();
                // The only look at it.
                while balancer.with(|pool, _| pool.nodes().any(|node| node.fitness.is_out())) {
                    tokio::task::yield_now().await;
                }
                balancer.heard(id, Heard::Answer(synced(name, i == 0, 1)));
                servers.push(server);
                nodes.push(id);
            }
            Stage { config: balancer.config(), balancer, servers, nodes }
        }

        /// A session on one of the servers.
        async fn back(&self, n: usize) -> Backend {
            let tried: Vec<NodeId> = self.nodes.iter().copied().filter(|node| *node != self.nodes[n]).collect();
            let lease = self.balancer.begin_as(Role::Any, SPLIT, None, &tried).unwrap();
            let stream = Stream::connect(&lease.address, Tuning { nodelay: true, keepalive: false }).await.unwrap();
            lease.greeted();
            Backend { lease, wire: Wire::new(stream, Vec::new()), proof: None }
        }

        /// A client that has logged in, without a server yet, and its own end.
        async fn enter(&self) -> (Conversation<'_>, TcpStream) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let stream = Stream::Tcp(listener.accept().await.unwrap().0, Nodelay::Settled);
            let mut body = (0x200u32 | 0x8000 | 0x8_0000).to_le_bytes().to_vec();
            body.extend_from_slice(&[0; 28]);
            body.extend_from_slice(b"app\0\0mysql_native_password\0");
            let Ok(Opening::Login(login)) = Opening::parse(&body) else { panic!("no login") };
            let conversation = Conversation {
                balancer: &self.balancer,
                config: &self.config,
                listener: SPLIT,
                source: None,
                client: Wire::new(stream, Vec::new()),
                writer: None,
                reader: None,
                sought: Instant::now(),
                since: Instant::now(),
                login,
                credential: Credential::Empty,
                settings: Vec::new(),
                status: AUTOCOMMIT,
                last: Side::Writer,
                inserted: false,
                forgotten: false,
            };
            (conversation, client)
        }
    }

    /// A result without end, to whatever was asked.
    async fn pour(server: &TcpListener) {
        let (mut stream, _) = server.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        let head = [packet::packet(1, &[1]), packet::packet(2, b"\x03def"), packet::packet(3, b"\xfe\0\0\x02\0")];
        let mut bytes = head.concat();
        while stream.write_all(&bytes).await.is_ok() {
            bytes = packet::packet(4, &[1; 10_000]);
        }
    }

    #[tokio::test]
    async fn a_session_ends_when_it_must_also_if_its_client_does_not_read() {
        for (reads, ended) in [(false, 0), (true, 1), (true, 0)] {
            let stage = Stage::set().await;
            let (mut conversation, mut client) = stage.enter().await;
            let writer = stage.back(0).await;
            let reader = stage.back(1).await;
            let ends = [writer.lease.end.clone(), reader.lease.end.clone()];
            let traffic = if reads { reader.lease.traffic.clone() } else { writer.lease.traffic.clone() };
            let leases =
                || stage.balancer.with(|pool, _| pool.nodes().map(|node| node.connections).collect::<Vec<_>>());
            (conversation.writer, conversation.reader) = (Some(writer), Some(reader));
            let statement = if reads { b"\x03SELECT 1".to_vec() } else { b"\x03SHOW TABLES".to_vec() };
            let ask = conversation.command(statement);
            let play = async {
                client.read_u8().await.unwrap();
                // All buffers between are full when nothing moves any more.
                let (mut carried, mut before) = (traffic.to_client_bytes.load(Relaxed), 0);
                while carried > before {
                    sleep(Duration::from_millis(100)).await;
                    (before, carried) = (carried, traffic.to_client_bytes.load(Relaxed));
                }
                ends[ended].notify_one();
                let begun = Instant::now();
                while leases()[ended] > 0 && begun.elapsed() < Duration::from_secs(20) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                // Its servers are left when it is over.
                told = ask => assert!(told.is_err()),
                () = play => assert_eq!(leases()[ended], 0),
                () = pour(&stage.servers[usize::from(reads)]) => unreachable!(),
            }
        }
    }

    #[tokio::test]
    async fn a_reader_that_got_the_writes_is_left_when_others_get_them() {
        let stage = Stage::set().await;
        let (mut conversation, _client) = stage.enter().await;
        conversation.credential = Credential::Spent;
        conversation.reader = Some(stage.back(1).await);
        let tell = |orders: usize, term| {
            for (i, name) in ["n1", "n2"].into_iter().enumerate() {
                stage.balancer.heard(stage.nodes[i], Heard::Answer(synced(name, i == orders, term)));
            }
        };
        stage.balancer.heard(stage.nodes[0], Heard::Refused("gone".into()));
        stage.balancer.heard(stage.nodes[1], Heard::Answer(synced("n2", true, 2)));
        let obeys = async {
            let (mut stream, _) = stage.servers[1].accept().await.unwrap();
            stream.read_exact(&mut vec![0; packet::HEADER + NOT_CAUSAL.len()]).await.unwrap();
            stream.write_all(&packet::packet(1, &[0, 0, 0, 2, 0, 0, 0])).await.unwrap();
            stream
        };
        let (found, _stream) = tokio::join!(conversation.find_writer(Instant::now() + ASK_AGAIN), obeys);
        assert!(matches!(found, Ok(true)));
        let end = conversation.writer.as_ref().unwrap().lease.end.clone();
        tell(0, 3);
        let ticks = async {
            loop {
                sleep(crate::pool::TICK).await;
                stage.balancer.with(|pool, now| pool.handle_time(now));
            }
        };
        tokio::select! {
            ended = timeout(Duration::from_secs(20), end.notified()) => ended.unwrap(),
            () = ticks => unreachable!(),
        }
    }

    #[tokio::test]
    async fn a_writer_that_is_full_keeps_the_sessions_that_it_has() {
        let stage = Stage::set().await;
        let asked = AtomicUsize::new(0);
        let full = async {
            loop {
                let (mut stream, _) = stage.servers[0].accept().await.unwrap();
                asked.fetch_add(1, Relaxed);
                let error = ServerError { code: 1040, state: "08004".into(), text: "Too many connections".into() };
                let _ = stream.write_all(&packet::error_packet(&error)).await;
            }
        };
        let other = stage.balancer.begin(SPLIT, None, &[]).unwrap();
        let (mut conversation, _client) = stage.enter().await;
        let deadline = Instant::now() + ASK_AGAIN * 2;
        let found = tokio::select! {
            found = conversation.find_writer(deadline) => found,
            () = full => unreachable!(),
        };
        assert!(matches!(found, Ok(false)));
        assert_eq!(stage.balancer.with(|pool, _| pool.writer()), Some(stage.nodes[0]));
        assert!(timeout(Duration::ZERO, other.end.notified()).await.is_err(), "it goes on");
        assert!((2..=5).contains(&asked.load(Relaxed)), "{asked:?}");
    }
}
