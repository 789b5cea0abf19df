//! `--split` with servers that play a part: which packet goes to which server, and what the client is told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::*;

const IN_TRANSACTION: u16 = 1;
const AUTOCOMMIT: u16 = 2;

/// A member of a group of two: it answers a `SELECT` with its name, anything else with an OK, and errors as it is told.
pub struct Member {
    pub address: String,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    /// The clients' statements, in order, and how they logged in; the balancer's own are left out.
    heard: Mutex<Vec<String>>,
    /// Errors that the next statements with this beginning get.
    errors: Mutex<Vec<(String, u16)>>,
    /// It orders.
    writes: Mutex<bool>,
    /// The scramble of its last greeting.
    scramble: Mutex<Vec<u8>>,
    streams: Mutex<Vec<TcpStream>>,
    dead: AtomicBool,
    /// Questions for a proof that it is up to date; it does not answer them.
    proofs: AtomicU64,
    withholds: AtomicBool,
    /// It says nothing any more.
    frozen: AtomicBool,
}

impl Member {
    pub fn start(name: &'static str, writes: bool) -> Member {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let told = Arc::new(Told { writes: Mutex::new(writes), ..Told::default() });
        let shared = told.clone();
        thread::spawn(move || {
            for (i, stream) in listener.incoming().flatten().enumerate() {
                let told = shared.clone();
                if told.dead.load(Ordering::Relaxed) {
                    continue;
                }
                told.streams.lock().unwrap().push(stream.try_clone().unwrap());
                thread::spawn(move || drop(converse(stream, name, i as u8, &told)));
            }
        });
        Member { address, told }
    }

    fn heard(&self) -> Vec<String> {
        self.told.heard.lock().unwrap().clone()
    }

    fn fail_next(&self, statement: &str, code: u16) {
        self.told.errors.lock().unwrap().push((statement.to_owned(), code));
    }

    fn proofs(&self) -> u64 {
        self.told.proofs.load(Ordering::Relaxed)
    }

    /// It is late, and cannot say that it is up to date.
    fn withhold(&self, withholds: bool) {
        self.told.withholds.store(withholds, Ordering::Relaxed);
    }

    /// Its connections stay, and nothing is said over them.
    pub fn freeze(&self) {
        self.told.frozen.store(true, Ordering::Relaxed);
    }

    /// Ends every connection, and takes none any more.
    fn die(&self) {
        self.told.dead.store(true, Ordering::Relaxed);
        for stream in self.told.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn converse(mut stream: TcpStream, name: &str, number: u8, told: &Told) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut greeted = greeting(name);
    // The scramble's first byte tells connections apart.
    let at = greeted.windows(8).position(|w| w == b"abcdefgh").unwrap();
    greeted[at] = b'A' + number % 26;
    let scramble = [&greeted[at..at + 8], b"ijklmnopqrst"].concat();
    stream.write_all(&greeted)?;
    let (_, login) = numbered(&mut stream)?;
    let end = login[32..].iter().position(|b| *b == 0).unwrap() + 32;
    let user = String::from_utf8_lossy(&login[32..end]).into_owned();
    let proof = login[end + 2..end + 2 + usize::from(login[end + 1])].to_vec();
    let client = user != "root";
    if client {
        told.heard.lock().unwrap().push(format!("login {user} {}", String::from_utf8_lossy(&proof)));
        *told.scramble.lock().unwrap() = scramble;
    }
    // The client may look at what was heard as soon as it is let in.
    stream.write_all(&packet(2, &ok(AUTOCOMMIT)))?;
    let mut status = AUTOCOMMIT;
    loop {
        let (_, body) = numbered(&mut stream)?;
        if told.frozen.load(Ordering::Relaxed) {
            continue;
        }
        let sql = String::from_utf8_lossy(&body[1..]).into_owned();
        if !client && sql == "SELECT 1" {
            told.proofs.fetch_add(1, Ordering::Relaxed);
            while told.withholds.load(Ordering::Relaxed) {
                thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        if sql.starts_with("SHOW GLOBAL STATUS") {
            let role = if *told.writes.lock().unwrap() { "sequencer" } else { "voter" };
            let rows = [
                ("wsrep_provider_name", "Trireme"),
                ("wsrep_local_state", "4"),
                ("wsrep_ready", "ON"),
                ("wsrep_cluster_status", "Primary"),
                ("wsrep_gcomm_uuid", name),
                ("wsrep_trireme_role", role),
                ("wsrep_trireme_term", if role == "voter" { "1" } else { "2" }),
            ];
            stream.write_all(&result(&rows.map(|(a, b)| vec![a, b]), status))?;
            continue;
        }
        if sql.starts_with("SHOW GLOBAL VARIABLES") {
            stream.write_all(&result(&[vec!["wsrep_on", "ON"], vec!["wsrep_node_name", name]], status))?;
            continue;
        }
        if client {
            told.heard.lock().unwrap().push(format!("{:02x} {sql}", body[0]));
        }
        let error = {
            let mut errors = told.errors.lock().unwrap();
            errors.iter().position(|(beginning, _)| sql.starts_with(beginning.as_str())).map(|at| errors.remove(at).1)
        };
        if let Some(code) = error {
            let code = code.to_le_bytes();
            stream.write_all(&packet(1, &[&[0xff, code[0], code[1]], &b"#HY000played"[..]].concat()))?;
            continue;
        }
        match sql.split(' ').next().unwrap_or_default() {
            "BEGIN" => status |= IN_TRANSACTION,
            "COMMIT" => status &= !IN_TRANSACTION,
            _ => {}
        }
        let answer = match sql.starts_with("SELECT") {
            true => result(&[vec![name]], status),
            false => packet(1, &ok(status)),
        };
        stream.write_all(&answer)?;
    }
}

fn ok(status: u16) -> Vec<u8> {
    vec![0, 0, 0, status as u8, (status >> 8) as u8, 0, 0]
}

fn result(rows: &[Vec<&str>], status: u16) -> Vec<u8> {
    let end = [0xfe, 0, 0, status as u8, (status >> 8) as u8];
    let mut bodies = vec![vec![rows[0].len() as u8]];
    bodies.extend(rows[0].iter().map(|_| b"\x03def".to_vec()));
    bodies.push(end.to_vec());
    bodies.extend(
        rows.iter().map(|row| {
            row.iter().flat_map(|cell| [&[cell.len() as u8], cell.as_bytes()].concat()).collect::<Vec<u8>>()
        }),
    );
    bodies.push(end.to_vec());
    bodies.iter().enumerate().flat_map(|(i, body)| packet(i as u8 + 1, body)).collect()
}

fn numbered(stream: &mut impl Read) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
    stream.read_exact(&mut body)?;
    Ok((head[3], body))
}

/// A client without a library: each of its packets is known.
struct Client(TcpStream);

#[derive(Debug, PartialEq, Eq)]
enum Said {
    Text(String),
    Ok,
    Error(u16),
}

impl Client {
    /// `password`: it answers each scramble with the scramble's own first bytes, as far as a proof has place.
    fn enter(balancer: &Balancer, password: bool) -> Client {
        let mut stream = balancer.connect(0);
        let (number, greeting) = numbered(&mut stream).unwrap();
        assert_eq!((number, greeting[0]), (0, 10));
        // PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH.
        let mut body = (0x200u32 | 0x8000 | 0x8_0000).to_le_bytes().to_vec();
        body.extend_from_slice(&[0, 0, 0, 1, 45]);
        body.extend_from_slice(&[0; 23]);
        body.extend_from_slice(b"app\0");
        let proof = if password { b"first-server-answer!".to_vec() } else { Vec::new() };
        body.push(proof.len() as u8);
        body.extend_from_slice(&proof);
        body.extend_from_slice(b"mysql_native_password\0");
        stream.write_all(&packet(1, &body)).unwrap();
        let (mut number, mut answer) = numbered(&mut stream).unwrap();
        if answer[0] == 0xfe {
            assert!(password && number == 2, "it is asked for a password that it does not have");
            let scramble = &answer[1 + 22..1 + 22 + 20];
            stream.write_all(&packet(number + 1, scramble)).unwrap();
            (number, answer) = numbered(&mut stream).unwrap();
            assert_eq!(number, 4, "the numbers go on");
        }
        assert_eq!(answer[0], 0, "{answer:?}");
        Client(stream)
    }

    fn ask(&mut self, sql: &str) -> Said {
        self.command(0x03, sql)
    }

    fn command(&mut self, command: u8, text: &str) -> Said {
        self.try_command(command, text).unwrap()
    }

    fn try_command(&mut self, command: u8, text: &str) -> std::io::Result<Said> {
        self.0.write_all(&packet(0, &[&[command], text.as_bytes()].concat()))?;
        let (number, head) = numbered(&mut self.0)?;
        assert_eq!(number, 1);
        match head[0] {
            0x00 => return Ok(Said::Ok),
            0xff => return Ok(Said::Error(u16::from_le_bytes([head[1], head[2]]))),
            _ => {}
        }
        let mut packets = Vec::new();
        while packets.iter().filter(|body: &&Vec<u8>| body[0] == 0xfe).count() < 2 {
            packets.push(numbered(&mut self.0)?.1);
        }
        Ok(Said::Text(String::from_utf8_lossy(&packets[2][1..]).into_owned()))
    }

    fn is_on(&mut self, name: &str) -> bool {
        self.ask("SELECT 1") == Said::Text(name.to_owned())
    }
}

struct Stage {
    _place: Place,
    writer: Member,
    reader: Member,
    balancer: Balancer,
}

impl Stage {
    fn set() -> Stage {
        Stage::set_with("")
    }

    fn set_with(words: &str) -> Stage {
        let place = Place::new();
        let (writer, reader) = (Member::start("writer", true), Member::start("reader", false));
        let words = format!("--nodes {},{} --split 127.0.0.1:0 --hold 20s {words}", writer.address, reader.address);
        let balancer = Balancer::start(&place, &words);
        await_that("both are ready, and the writer is known", || {
            let status = balancer.status();
            let nodes = status["nodes"].as_array().unwrap();
            nodes.iter().all(|n| n["state"] == "ready") && status["writer"] == "writer"
        });
        Stage { _place: place, writer, reader, balancer }
    }

    fn count(&self, name: &str) -> u64 {
        self.balancer.status()["totals"][name].as_u64().unwrap()
    }

    /// The writer dies, and the reader orders in its place.
    fn change_writers(&self) {
        *self.reader.told.writes.lock().unwrap() = true;
        self.writer.die();
        // Before that, a statement could be on its way to it.
        await_that("it is known that the writer is gone", || {
            let status = self.balancer.status();
            let nodes = status["nodes"].as_array().unwrap();
            nodes.iter().any(|n| n["address"] == self.writer.address.as_str() && n["state"] == "out")
        });
    }
}

#[test]
fn reads_go_to_a_reader_that_waits_and_everything_else_to_the_writer() {
    let stage = Stage::set();
    let mut client = Client::enter(&stage.balancer, false);
    assert!(client.is_on("reader"));
    assert_eq!(client.ask("INSERT INTO t VALUES (1)"), Said::Ok);
    assert_eq!(client.ask("SELECT a FROM t FOR UPDATE"), Said::Text("writer".into()));
    assert_eq!(client.ask("BEGIN"), Said::Ok);
    assert!(client.is_on("writer"), "in a transaction");
    assert_eq!(client.ask("COMMIT"), Said::Ok);
    assert!(client.is_on("reader"));
    assert_eq!(client.command(0x0e, ""), Said::Ok);
    let reader = stage.reader.heard();
    assert_eq!(reader[..2], ["login app ", "03 SET SESSION wsrep_sync_wait = 1"]);
    assert!(!stage.writer.heard().iter().any(|sql| sql.contains("sync_wait")));
    assert_eq!(stage.count("split_reads"), 2);
}

#[test]
fn commands_take_the_name_that_a_server_gives_itself() {
    let stage = Stage::set();
    assert_eq!(stage.balancer.ask("set reader 3"), "Ok\n");
    let nodes = stage.balancer.status()["nodes"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 2, "none was added: {nodes:?}");
    assert!(nodes.iter().any(|n| n["address"] == stage.reader.address.as_str() && n["weight"] == 3.0), "{nodes:?}");
}

#[test]
fn a_client_with_a_password_answers_for_both_servers() {
    let stage = Stage::set();
    let mut client = Client::enter(&stage.balancer, true);
    assert!(client.is_on("reader"));
    assert_eq!(stage.writer.heard()[0], "login app first-server-answer!");
    let scramble = String::from_utf8(stage.reader.told.scramble.lock().unwrap().clone()).unwrap();
    assert_eq!(stage.reader.heard()[0], format!("login app {scramble}"));
}

#[test]
fn settings_are_made_on_both_and_state_pins() {
    let stage = Stage::set();
    let mut client = Client::enter(&stage.balancer, false);
    for sql in ["SET NAMES utf8mb4", "USE shop"] {
        assert_eq!(client.ask(sql), Said::Ok);
        // The reader got it before the next statement.
        assert!(client.is_on("reader"));
        let there = |member: &Member| member.heard().contains(&format!("03 {sql}"));
        assert!(there(&stage.reader) && there(&stage.writer), "{sql}");
    }
    assert_eq!(client.ask("SET @a = 1"), Said::Ok);
    assert!(client.is_on("writer"));
    assert_eq!(stage.count("split_pinned"), 1);
    // So does a prepared statement.
    let mut other = Client::enter(&stage.balancer, false);
    assert!(other.is_on("reader"));
    assert_eq!(other.command(0x16, "DO 1"), Said::Ok);
    assert!(other.is_on("writer"));
}

#[test]
fn what_did_not_happen_is_sent_again_and_the_rest_is_told() {
    let stage = Stage::set();
    let mut client = Client::enter(&stage.balancer, false);
    let insert = "INSERT INTO t VALUES (1)";
    stage.writer.fail_next("INSERT", 1213);
    stage.writer.fail_next("INSERT", 1047);
    assert_eq!(client.ask(insert), Said::Ok);
    assert_eq!(stage.count("split_repeated"), 2);
    stage.writer.fail_next("INSERT", 1180);
    assert_eq!(client.ask(insert), Said::Error(1180), "nobody knows whether that happened");
    assert_eq!(client.ask("BEGIN"), Said::Ok);
    stage.writer.fail_next("INSERT", 1213);
    assert_eq!(client.ask(insert), Said::Error(1213), "the transaction before it is gone");
    // A reader that cannot do it leaves it to the writer.
    assert_eq!(client.ask("COMMIT"), Said::Ok);
    stage.reader.fail_next("SELECT", 1205);
    assert!(client.is_on("writer"));
    assert!(client.is_on("reader"));
}

#[test]
fn a_session_without_state_goes_on_with_the_next_writer() {
    for password in [false, true] {
        let stage = Stage::set();
        let mut client = Client::enter(&stage.balancer, password);
        let mut busy = Client::enter(&stage.balancer, password);
        assert_eq!(client.ask("SET NAMES utf8mb4"), Said::Ok);
        assert_eq!(busy.ask("BEGIN"), Said::Ok);
        stage.change_writers();
        assert_eq!(client.ask("INSERT INTO t VALUES (1)"), Said::Ok, "password: {password}");
        let heard = stage.reader.heard();
        let insert = heard.iter().position(|sql| sql.contains("INSERT")).unwrap();
        assert!(heard[..insert].iter().filter(|sql| sql.contains("SET NAMES")).count() >= 2, "{heard:?}");
        assert!(busy.try_command(0x03, "COMMIT").is_err(), "its transaction is gone");
        assert_eq!(stage.count("split_moved"), 1);
    }
}

#[test]
fn own_reads_wait_for_nothing_where_the_reader_is_known_to_be_up_to_date() {
    let stage = Stage::set_with("--causal own");
    let mut client = Client::enter(&stage.balancer, false);
    assert!(client.is_on("reader"));
    assert!(stage.reader.proofs() >= 1, "it may have written in an earlier connection");
    // The login and the first read may each have asked.
    await_that("ten reads wait for nothing", || {
        let (asked, unasked) = (stage.reader.proofs(), stage.count("split_unasked"));
        assert!((0..10).all(|_| client.is_on("reader")));
        (stage.reader.proofs(), stage.count("split_unasked")) == (asked, unasked + 10)
    });
    let asked = stage.reader.proofs();
    assert!(asked <= 2, "{asked}");
    assert_eq!(client.ask("INSERT INTO t VALUES (1)"), Said::Ok);
    await_that("somebody asks before it reads", || stage.reader.proofs() > asked);
    assert!(client.is_on("reader"));
    assert!(!stage.reader.heard().iter().any(|sql| sql.contains("sync_wait")), "{:?}", stage.reader.heard());
    assert!(Stage::set_with("--causal all").reader.proofs() == 0);
}

#[test]
fn a_reader_that_does_not_prove_that_it_is_up_to_date_leaves_own_reads_to_the_writer() {
    let stage = Stage::set_with("--causal own");
    let mut client = Client::enter(&stage.balancer, false);
    assert!(client.is_on("reader"));
    let mut reads = Client::enter(&stage.balancer, false);
    assert!(reads.is_on("reader"));
    stage.reader.withhold(true);
    assert_eq!(client.ask("INSERT INTO t VALUES (1)"), Said::Ok);
    for _ in 0..3 {
        assert!(client.is_on("writer"));
        assert!(reads.is_on("reader"), "it has heard nothing from the writer");
    }
    stage.reader.withhold(false);
    await_that("it has caught up", || client.is_on("reader"));
    // Not in a primary component; and then the connection breaks.
    stage.reader.fail_next("SELECT 1", 1047);
    assert_eq!(client.ask("INSERT INTO t VALUES (2)"), Said::Ok);
    assert!(client.is_on("writer"));
    await_that("it proves it over another connection", || client.is_on("reader"));
}
