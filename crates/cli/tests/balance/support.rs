//! A balancer as a process of its own, and servers that play a part.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that ends with the test.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("trireme-balance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Place(dir)
    }
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running balancer. It is killed when dropped.
pub struct Balancer {
    pub child: Child,
    pub control: String,
}

impl Balancer {
    /// With a control socket in `place` and the words given, which are separated by blanks.
    pub fn start(place: &Place, words: &str) -> Balancer {
        Balancer::start_as(place, "control", words, None)
    }

    /// `descriptors`: the limit of open files.
    pub fn start_as(place: &Place, control: &str, words: &str, descriptors: Option<u32>) -> Balancer {
        let limit = descriptors.map_or(String::new(), |n| format!("ulimit -n {n};"));
        Balancer::start_after(place, control, &limit, words)
    }

    /// `first`: what the shell does before.
    pub fn start_after(place: &Place, control: &str, first: &str, words: &str) -> Balancer {
        let control = place.path(control);
        let program = env!("CARGO_BIN_EXE_trireme");
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("{first} exec {program} balance --control {control} {words}"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut balancer = Balancer { child, control };
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(&balancer.control).is_err() {
            assert!(balancer.child.try_wait().unwrap().is_none(), "the balancer ended");
            assert!(Instant::now() < deadline, "no control socket");
            thread::sleep(Duration::from_millis(5));
        }
        balancer
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn ask(&self, command: &str) -> String {
        ask(Path::new(&self.control), command)
    }

    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ask("status")).unwrap()
    }

    /// Where listener number `n` is.
    pub fn address(&self, n: usize) -> String {
        let address = self.status()["listeners"][n]["address"].as_str().unwrap().to_owned();
        address.replace("[::]", "127.0.0.1")
    }

    pub fn connect(&self, n: usize) -> TcpStream {
        let stream = TcpStream::connect(self.address(n)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Waits until every listener has a server.
    pub fn await_ready(&self) {
        await_that("every listener has a server", || {
            self.status()["listeners"].as_array().unwrap().iter().all(|l| l["serves"] == true)
        });
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn ask(control: &Path, command: &str) -> String {
    try_ask(control, command).unwrap()
}

/// An error: the balancer has gone, or has no place for us.
pub fn try_ask(control: &Path, command: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

pub fn await_that(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Greets, lets the balancer look, and sends back what else it gets.
pub struct Server {
    pub address: String,
    stop: Arc<AtomicBool>,
    /// The bytes before the first packet of each client.
    pub headers: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Sessions that are open, the balancer's own left out.
    pub clients: Arc<AtomicU32>,
    /// Logins so far, all of them the balancer's own.
    pub logins: Arc<AtomicU32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Echo,
    /// Expects a PROXY header of 28 bytes from clients.
    Proxied,
    /// Answers each connection with an error 1040, but the first: that is the look.
    Full,
    /// The same with an error 1129.
    Blocked,
    /// Accepts, and says nothing.
    Mute,
    /// Speaks another protocol.
    Garbage,
    /// Stops in the middle of its greeting.
    Half,
    /// Closes with unread bytes what comes after the look, so that it is reset: for clients with a PROXY header.
    Reset,
    /// Greets when everybody has gone.
    Late,
    /// Lets clients log in, and answers each question with a packet without an end.
    Endless,
}

pub fn greeting(name: &str) -> Vec<u8> {
    let mut body = vec![10];
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(b"\0\x07\0\0\0abcdefgh\0\xfe\xf7\x2d\x02\0\xff\x81\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0mysql_native_password\0");
    packet(0, &body)
}

pub fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as u32).to_le_bytes()[..3].to_vec();
    out.push(number);
    out.extend_from_slice(body);
    out
}

pub fn read_packet(stream: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}

impl Server {
    pub fn start(name: &str, manner: Manner) -> Server {
        Server::start_at(name, manner, "127.0.0.1:0")
    }

    pub fn start_at(name: &str, manner: Manner, address: &str) -> Server {
        let listener = TcpListener::bind(address).unwrap();
        let server = Server {
            address: listener.local_addr().unwrap().to_string(),
            stop: Arc::default(),
            headers: Arc::default(),
            clients: Arc::default(),
            logins: Arc::default(),
        };
        let (stop, headers) = (server.stop.clone(), server.headers.clone());
        let (clients, logins) = (server.clients.clone(), server.logins.clone());
        let name = name.to_owned();
        thread::spawn(move || {
            for (i, stream) in listener.incoming().enumerate() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (name, headers, clients) = (name.clone(), headers.clone(), clients.clone());
                let logins = logins.clone();
                // Ten thousand of them at once, each with next to no stack.
                let _ = thread::Builder::new().stack_size(32 * 1024).spawn(move || {
                    let _ = converse(stream, &name, manner, i, &headers, &clients, &logins);
                });
            }
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

fn converse(
    mut stream: TcpStream,
    name: &str,
    manner: Manner,
    number: usize,
    headers: &Mutex<Vec<Vec<u8>>>,
    clients: &AtomicU32,
    logins: &AtomicU32,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    match manner {
        Manner::Mute => {
            let mut buffer = [0; 64];
            while stream.read(&mut buffer)? > 0 {}
            return Ok(());
        }
        Manner::Garbage => {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")?;
            return Ok(());
        }
        Manner::Half => {
            stream.write_all(&greeting(name)[..20])?;
            let mut buffer = [0; 64];
            while stream.read(&mut buffer)? > 0 {}
            return Ok(());
        }
        Manner::Late => {
            thread::sleep(Duration::from_secs(3));
            stream.write_all(&greeting(name))?;
        }
        Manner::Reset if number > 0 => {
            stream.peek(&mut [0])?;
            return Ok(());
        }
        Manner::Full if number > 0 => {
            return stream.write_all(&packet(0, b"\xff\x10\x04#08004Too many connections"));
        }
        Manner::Blocked if number > 0 => {
            return stream.write_all(&packet(0, b"\xff\x69\x04#HY000Host '10.0.0.9' is blocked"));
        }
        Manner::Echo | Manner::Proxied | Manner::Full | Manner::Blocked | Manner::Reset | Manner::Endless => {
            stream.write_all(&greeting(name))?
        }
    }
    let mut first = [0; 1];
    stream.read_exact(&mut first)?;
    if first[0] == b'\r' {
        let mut header = vec![0; 27];
        stream.read_exact(&mut header)?;
        headers.lock().unwrap().push([&first[..], &header].concat());
        stream.read_exact(&mut first)?;
    }
    let mut rest = [0; 3];
    stream.read_exact(&mut rest)?;
    // A login is numbered 1; what our clients send is not.
    if rest[2] == 1 {
        let mut body = vec![0; usize::from(first[0])];
        stream.read_exact(&mut body)?;
        logins.fetch_add(1, Ordering::Relaxed);
        loop {
            let ok = packet(2, b"\0\0\0\x02\0\0\0");
            stream.write_all(&ok)?;
            read_packet(&mut stream)?;
            if manner == Manner::Endless {
                stream.write_all(&[0xff, 0xff, 0xff, 1])?;
                loop {
                    stream.write_all(&[b'x'; 4096])?;
                }
            }
        }
    }
    clients.fetch_add(1, Ordering::Relaxed);
    let outcome = echo(&mut stream, &[first[0], rest[0], rest[1], rest[2]]);
    clients.fetch_sub(1, Ordering::Relaxed);
    outcome
}

fn echo(stream: &mut TcpStream, first: &[u8]) -> std::io::Result<()> {
    stream.write_all(first)?;
    // A small stack: the buffer lies elsewhere.
    let mut buffer = vec![0; 1024];
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return stream.shutdown(std::net::Shutdown::Write);
        }
        stream.write_all(&buffer[..n])?;
    }
}

/// The version in the greeting, which is the server's name here; or the error that came instead.
pub fn greeted(stream: &mut impl Read) -> Result<String, (u16, String)> {
    let body = read_packet(stream).unwrap();
    match body[0] {
        10 => Ok(String::from_utf8_lossy(&body[1..]).split('\0').next().unwrap().to_owned()),
        0xff => Err((u16::from_le_bytes([body[1], body[2]]), String::from_utf8_lossy(&body[9..]).into_owned())),
        other => panic!("{other}"),
    }
}

/// Sends bytes and expects them back.
pub fn assert_echo(stream: &mut (impl Read + Write), bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes, "other bytes came back");
}
