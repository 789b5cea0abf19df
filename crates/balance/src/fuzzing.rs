//! Entry points for the fuzzers: whatever a server, a client, a proxy or an operator sends is read without a panic and within bounds.

use crate::address::MYSQL_PORT;
use crate::control::{self, Command};
use crate::packet::{self, Answer, LoginAnswer, Step};
use crate::proxy::{self, Header, Origin};
use crate::report::Report;
use crate::split::{Opening, PROOF, Progress, Reply, classify, offer};

/// A server's side of a connection, cut into packets as its headers say: a greeting, answers to a login, an answer to a question.
pub fn packets(data: &[u8]) {
    let bodies = bodies(data);
    let mut answer = Answer::Head;
    for body in &bodies {
        let _ = packet::parse_greeting(body);
        if let Some(error) = packet::parse_error(body) {
            let again = packet::error_packet(&error);
            assert!(again.len() <= 512, "longer than clients keep");
            assert_eq!(packet::parse_error(&again[packet::HEADER..]).map(|e| e.code), Some(error.code));
        }
        if let Ok(LoginAnswer::Answer(proof)) = packet::parse_login_answer(body, "secret") {
            assert_eq!(proof.len(), 20);
        }
        answer = match answer.handle_packet(body) {
            Ok(Step::More(next)) => next,
            Ok(Step::Done(rows)) => {
                let report = Report::from_rows(&rows, &rows, std::time::Duration::ZERO);
                let listed = report.member().map_or(0, |member| member.addresses.len());
                assert!(listed <= 128, "{listed} members");
                Answer::Head
            }
            Ok(Step::Failed(_)) | Err(_) => Answer::Head,
        };
    }
}

pub fn packet_seeds() -> Vec<Vec<u8>> {
    let sequence = |bodies: &[&[u8]]| -> Vec<u8> {
        bodies.iter().enumerate().flat_map(|(i, body)| packet::packet(i as u8, body)).collect()
    };
    let greeting = b"\x0a10.11.11-MariaDB\0\x07\0\0\0abcdefgh\0\xfe\xf7\x2d\x02\0\xff\x81\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0mysql_native_password\0";
    let rows: [&[u8]; 8] = [
        b"\x02",
        b"def 1",
        b"def 2",
        b"\xfe\0\0\x02\0",
        b"\x13wsrep_provider_name\x07Trireme",
        b"\x08wsrep_on\x02ON",
        b"\x18wsrep_incoming_addresses\x0ea:1,[::1]:2, :",
        b"\xfe\0\0\x02\0",
    ];
    vec![
        sequence(&[greeting]),
        sequence(&[b"\xff\x10\x04#08004Too many connections"]),
        sequence(&[b"\0\0\0\x02\0\0\0", b"\xfemysql_native_password\0abcdefghijklmnopqrst\0"]),
        sequence(&rows),
    ]
}

/// A client's side of a connection, packet by packet, and the answers to it: a login, statements; the first byte says whether answers end by the
/// new form.
pub fn split(data: &[u8]) {
    let Some((&form, wire)) = data.split_first() else { return };
    let mut reply = Reply::new(form & 1 == 1);
    for body in bodies(wire) {
        if let Ok(Opening::Login(login)) = Opening::parse(body) {
            for proof in [&[][..], &[7; PROOF]] {
                let again = login.with_proof(proof);
                assert!(again.len() <= body.len() + PROOF + 64, "a login grows");
                let Ok(Opening::Login(read)) = Opening::parse(&again) else { panic!("our own login cannot be read") };
                assert_eq!(read.proof, proof);
                assert_eq!(read.with_proof(proof), again);
            }
        }
        if let Ok(offered) = offer(body) {
            assert_eq!(offered.len(), body.len());
        }
        let statement = classify(body);
        assert_eq!(classify(&[body, b" "].concat()), statement, "a blank at the end says nothing");
        if !matches!(reply.handle(body, body.len()), Ok(Progress::More)) {
            reply = Reply::new(form & 1 == 1);
        }
    }
}

pub fn split_seeds() -> Vec<Vec<u8>> {
    let sequence = |form: u8, bodies: &[&[u8]]| -> Vec<u8> {
        let packets = bodies.iter().enumerate().flat_map(|(i, body)| packet::packet(i as u8, body));
        std::iter::once(form).chain(packets).collect()
    };
    let statements: [&[u8]; 6] = [
        b"SELECT a, COUNT(*) FROM `t` WHERE b = 'it''s' -- end",
        b"INSERT INTO t VALUES ('x@y'), (\"\\\"\")",
        b"SET NAMES utf8mb4 COLLATE 'x', @@session.a := -1",
        b"/*!50000 SET */ @a = 1; CALL p()",
        b"WITH c AS (SELECT 1) (SELECT LAST_INSERT_ID())",
        b"SHOW WARNINGS",
    ];
    let rows: [&[u8]; 4] = [b"\x01", b"def 1", b"\x01a", b"\xfe\0\0\x02\0\0\0"];
    vec![
        sequence(0, &[&packet::login("app", "secret", &[b'a'; 20], false)]),
        sequence(0, &statements),
        sequence(1, &rows),
        sequence(0, &[b"\0\x01\x05\x0a\0\0\0", b"\xff\x17\x04#42000no", b"\xfbfile"]),
    ]
}

/// As many whole packets as there are.
fn bodies(mut data: &[u8]) -> Vec<&[u8]> {
    let mut bodies = Vec::new();
    while let Some((head, rest)) = data.split_first_chunk::<{ packet::HEADER }>() {
        let (len, _) = packet::header(*head);
        let Some((body, rest)) = rest.split_at_checked(len) else { break };
        bodies.push(body);
        data = rest;
    }
    bodies
}

/// The header of the PROXY protocol. A header is whole or bad after a bounded number of bytes, and its verdict does not change with those behind it.
pub fn proxy_header(data: &[u8]) {
    match proxy::decode(data) {
        Header::More => assert!(data.len() < 5000, "a header without an end"),
        Header::Whole(len, client) => {
            assert!(0 < len && len <= data.len());
            assert_eq!(proxy::decode(&data[..len]), Header::Whole(len, client));
            if let Some(from) = client {
                let again = proxy::encode(Origin::Client { from, to: from });
                assert_eq!(proxy::decode(&again), Header::Whole(again.len(), Some(from)));
            }
        }
        Header::Bad => assert_eq!(proxy::decode(&[data, b"x"].concat()), Header::Bad),
    }
}

pub fn proxy_seeds() -> Vec<Vec<u8>> {
    let at = |text: &str| text.parse().expect("an address");
    vec![
        proxy::encode(Origin::Local),
        proxy::encode(Origin::Client { from: at("1.2.3.4:5"), to: at("6.7.8.9:10") }),
        proxy::encode(Origin::Client { from: at("[1::2]:3"), to: at("[4::5]:6") }),
        b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n\x01\0\0\x01x".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
    ]
}

/// A line of the control socket. A server that a command names can be printed and named again.
pub fn control_line(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(control::LINE_MAX)]);
    if let Ok(Command::Set { address, weight, .. }) = control::parse(&text, MYSQL_PORT) {
        assert!(weight.is_finite() && weight >= 0.0);
        let again = control::parse(&format!("set {address} {weight}"), MYSQL_PORT);
        assert_eq!(again, Ok(Command::Set { named: address.to_string(), address, weight }));
    }
}

pub fn control_seeds() -> Vec<Vec<u8>> {
    let lines = control::HELP.lines().filter_map(|line| line.split("  ").next()).map(str::to_owned);
    let more =
        ["10.0.0.1:3306:2", "[::1]:3306:-1", "set /run/a.sock 0.5", "drain node1 now", "add a"].map(str::to_owned);
    lines.chain(more).map(String::into_bytes).collect()
}
