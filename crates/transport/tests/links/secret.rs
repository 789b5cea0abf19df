//! Links between members that share a secret.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use trireme_certificates::{Authority, Files, Validity};
use trireme_order::Class;
use trireme_transport::{NetConfig, Protection, SECRET_LEN, TlsContext, TlsFiles};

use crate::support::*;

fn secret(n: u8) -> [u8; SECRET_LEN] {
    [n; SECRET_LEN]
}

fn context(secrets: &[u8]) -> TlsContext {
    let secrets: Vec<_> = secrets.iter().map(|n| secret(*n)).collect();
    TlsContext::of_secrets(&secrets).unwrap()
}

fn secret_config(n: u8, seeds: &[u16], secrets: &[u8]) -> NetConfig {
    NetConfig { tls: Some(context(secrets)), ..config(n, seeds) }
}

fn stay_apart(a: &mut Node, b: &mut Node) {
    for_a_while([a, b], Duration::from_millis(500));
    assert_eq!((a.ups(2), b.ups(1)), (0, 0));
}

#[test]
fn members_with_the_same_secret_link_and_talk() {
    let mut a = Node::new(secret_config(1, &[], &[7]));
    let mut b = Node::new(secret_config(2, &[a.port()], &[7]));
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    let tls = a.transport.links()[0].tls.clone().unwrap();
    assert!(tls.contains("TLSv1.3") && tls.contains("SHA256"), "{tls}");
    assert_eq!(a.transport.protection(), Protection::Secret);
    a.send(2, Class::Bulk, vec![1; 3 << 20]);
    b.send(1, Class::Control, "x");
    until([&mut a, &mut b], |[a, b]| a.bodies(2).len() == 1 && b.bodies(1).len() == 1);
}

#[test]
fn another_secret_is_refused_and_both_ends_say_so() {
    let mut a = Node::new(secret_config(1, &[], &[7]));
    let mut b = Node::new(secret_config(2, &[a.port()], &[8]));
    until([&mut a, &mut b], |[a, b]| a.logged("repl.secret_file") > 0 && b.logged("repl.secret_file") > 0);
    stay_apart(&mut a, &mut b);
}

#[test]
fn without_the_secret_nobody_is_linked() {
    // In clear text.
    let mut a = Node::new(secret_config(1, &[], &[7]));
    let mut b = Node::new(config(2, &[a.port()]));
    until([&mut a, &mut b], |[a, _]| a.logged("it speaks in clear text") > 0);
    stay_apart(&mut a, &mut b);
    // With a certificate, whoever issued it.
    let authority = Authority::new("any").unwrap();
    let dir = std::env::temp_dir().join(format!("trireme-secret-test-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let files = Files::below(&dir);
    files.write(&authority.issue("n", Validity::YEARS, None).unwrap(), &authority).unwrap();
    let tls =
        TlsFiles { key: files.key.clone(), cert: files.cert.clone(), ca: files.ca.clone(), ..TlsFiles::default() };
    let tls = TlsContext::load(&tls).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    // Either way round: the holder of the certificate dials, and is dialled.
    let mut b = Node::new(NetConfig { tls: Some(tls.clone()), ..config(2, &[a.port()]) });
    stay_apart(&mut a, &mut b);
    let mut b = Node::new(NetConfig { tls: Some(tls), ..config(2, &[]) });
    let mut a = Node::new(secret_config(1, &[b.port()], &[7]));
    stay_apart(&mut a, &mut b);
}

/// While a secret is being changed some have both and some only the old one.
#[test]
fn a_secret_is_changed_one_node_after_the_other() {
    let mut a = Node::new(secret_config(1, &[], &[7]));
    let mut b = Node::new(secret_config(2, &[a.port()], &[7]));
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    // Steps of a rollout; after each one a new link comes about, whoever dials.
    for (of_a, of_b) in [(&[8, 7][..], &[7][..]), (&[8, 7], &[8, 7]), (&[8], &[8, 7]), (&[8], &[8])] {
        a.transport.set_tls(context(of_a));
        b.transport.set_tls(context(of_b));
        for_a_while([&mut a, &mut b], Duration::from_millis(20));
        assert!(a.linked(2) && b.linked(1), "what is linked stays");
        let ups = b.ups(1);
        a.transport.kill_link(id(2));
        until([&mut a, &mut b], |[a, b]| b.ups(1) > ups && a.linked(2) && b.linked(1));
    }
    // The old one opens nothing any more.
    let mut late = Node::new(secret_config(3, &[a.port()], &[7]));
    for_a_while([&mut a, &mut b, &mut late], Duration::from_millis(500));
    assert_eq!(a.ups(3), 0);
}

/// The bytes that one connection showed are worth nothing in another: the very same bytes once more.
#[test]
fn a_recorded_connection_cannot_be_played_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut a = Node::new(secret_config(1, &[], &[7]));
    let mut b = Node::new(secret_config(2, &[listener.local_addr().unwrap().port()], &[7]));
    let port = a.port();
    // Between them; remembers what the dialler says.
    let tap = std::thread::spawn(move || {
        let (mut from_b, _) = listener.accept().unwrap();
        let mut to_a = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut back_from, mut back_to) = (to_a.try_clone().unwrap(), from_b.try_clone().unwrap());
        let back = std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
        let mut said = Vec::new();
        let mut room = [0; 4096];
        while let Ok(n @ 1..) = from_b.read(&mut room) {
            said.extend_from_slice(&room[..n]);
            if to_a.write_all(&room[..n]).is_err() {
                break;
            }
        }
        let _ = to_a.shutdown(std::net::Shutdown::Both);
        let _ = back.join();
        said
    });
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    b.transport.close();
    until([&mut a], |[a]| !a.linked(2));
    let said = tap.join().unwrap();
    assert!(said.len() > 500);
    let mut again = TcpStream::connect(("127.0.0.1", port)).unwrap();
    again.set_read_timeout(Some(LONG)).unwrap();
    again.write_all(&said).unwrap();
    let refused = a.transport.stats().refused;
    until([&mut a], |[a]| a.transport.stats().refused > refused);
    assert_eq!(a.ups(2), 1);
}

#[test]
fn with_dynamic_clear_text_and_secret_are_linked_and_it_shows() {
    let mut cfg = secret_config(1, &[], &[7]);
    cfg.clear_too = true;
    let mut a = Node::new(cfg);
    let mut b = Node::new(secret_config(2, &[a.port()], &[7]));
    let mut c = Node::new(config(3, &[a.port()]));
    until([&mut a, &mut b, &mut c], |[a, ..]| a.linked(2) && a.linked(3));
    let of = |n| a.transport.links().into_iter().find(|link| link.node == id(n)).unwrap().tls;
    assert!(of(2).is_some() && of(3).is_none());
    assert_eq!(a.transport.protection(), Protection::Loopback, "127.0.0.1 only");
}

#[test]
fn what_a_node_asks_of_others_shows_where_it_listens() {
    let listening = |tls: Option<TlsContext>, clear_too| {
        let mut cfg = NetConfig { tls, clear_too, ..config(1, &[]) };
        cfg.listen = vec!["0.0.0.0:0".to_owned()];
        Node::new(cfg).transport.protection()
    };
    assert_eq!(listening(None, false), Protection::None);
    assert_eq!(listening(Some(context(&[7])), false), Protection::Secret);
    assert_eq!(listening(Some(context(&[7])), true), Protection::Optional);
}

/// A peer's identity, its incarnation and what was drawn for it cannot be changed on the way.
#[test]
fn what_is_changed_on_the_way_ends_the_connection() {
    let mut a = Node::new(secret_config(1, &[], &[7]));
    let port = a.port();
    // The record of the dialler that is damaged: its hello, and what comes after it.
    for damaged in [2, 3] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut b = Node::new(secret_config(2, &[listener.local_addr().unwrap().port()], &[7]));
        let between = std::thread::spawn(move || {
            let (mut from_b, _) = listener.accept().unwrap();
            let mut to_a = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut back_from, mut back_to) = (to_a.try_clone().unwrap(), from_b.try_clone().unwrap());
            let back = std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
            let mut seen = 0;
            let mut head = [0; 5];
            while from_b.read_exact(&mut head).is_ok() {
                let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
                if from_b.read_exact(&mut body).is_err() {
                    break;
                }
                // 0x17: encrypted. The first of them ends the handshake.
                seen += u32::from(head[0] == 0x17);
                if head[0] == 0x17 && seen == damaged {
                    body[0] ^= 1;
                }
                if to_a.write_all(&head).and_then(|()| to_a.write_all(&body)).is_err() {
                    break;
                }
            }
            let _ = to_a.shutdown(std::net::Shutdown::Both);
            let _ = back.join();
            seen
        });
        let refused = a.transport.stats().refused;
        until([&mut a, &mut b], |[a, _]| a.transport.stats().refused > refused);
        assert_eq!((a.ups(2), b.ups(1)), (0, 0));
        b.transport.close();
        assert!(between.join().unwrap() >= damaged);
    }
}
