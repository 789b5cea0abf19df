//! Links with TLS, and what is no link because of it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use trireme_certificates::{Authority, Files, Validity};
use trireme_order::Class;
use trireme_transport::{DownCause, NetConfig, NetEvent, OtherCertificate, PeerNames, TlsContext, TlsFiles};

use crate::support::{LONG, Node, config, for_a_while, id, until};

/// A directory of certificates that goes when it is dropped.
struct Certs {
    dir: PathBuf,
}

impl Certs {
    fn new() -> Certs {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("trireme-tls-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).unwrap();
        Certs { dir }
    }

    /// Writes a certificate of `authority`; peers are checked against `trusted`.
    fn files(&self, authority: &Authority, trusted: &Authority, validity: Validity) -> TlsFiles {
        let files = Files::below(&self.dir);
        files.write(&authority.issue("node", validity, None).unwrap(), trusted).unwrap();
        TlsFiles { key: files.key, cert: files.cert, ca: files.ca, ..TlsFiles::default() }
    }
}

impl Drop for Certs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn authority() -> Authority {
    Authority::new("test authority").unwrap()
}

/// The files of a node of `authority`.
fn context(authority: &Authority) -> TlsContext {
    let certs = Certs::new();
    TlsContext::load(&certs.files(authority, authority, Validity::YEARS)).unwrap()
}

fn tls_config(n: u8, seeds: &[u16], tls: &TlsContext) -> NetConfig {
    NetConfig { tls: Some(tls.clone()), ..config(n, seeds) }
}

/// As `support::pair`, with TLS.
fn tls_pair() -> (Node, Node) {
    let authority = authority();
    let mut a = Node::new(tls_config(1, &[], &context(&authority)));
    let mut b = Node::new(tls_config(2, &[a.port()], &context(&authority)));
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    (a, b)
}

fn cipher(node: &Node) -> Option<String> {
    node.transport.links()[0].tls.clone()
}

/// Linked neither now nor a while later.
#[track_caller]
fn stay_apart(a: &mut Node, b: &mut Node) {
    for_a_while([a, b], Duration::from_millis(300));
    assert_eq!((a.ups(2), b.ups(1)), (0, 0));
}

#[test]
fn members_with_certificates_of_one_authority_link() {
    let (mut a, mut b) = tls_pair();
    assert!(cipher(&a).unwrap().starts_with("TLSv1.3, TLS_AES_"), "{:?}", cipher(&a));
    assert_eq!(cipher(&a), cipher(&b));
    assert_eq!(a.logged("ssl://127.0.0.1:"), 1);
    // From no record to many.
    let bodies: Vec<Bytes> = [0, 1, 16 << 10, (16 << 10) + 1, 64 << 10, 3 << 20]
        .into_iter()
        .map(|len| (0..len).map(|n| (n % 251) as u8).collect::<Vec<_>>().into())
        .collect();
    for body in &bodies {
        a.send(2, Class::Bulk, body.clone());
        b.send(1, Class::Bulk, body.clone());
    }
    until([&mut a, &mut b], |[a, b]| a.bodies(2).len() == bodies.len() && b.bodies(1).len() == bodies.len());
    assert!(a.bodies(2) == bodies && b.bodies(1) == bodies);
    b.transport.close();
    until([&mut a], |[a]| a.downs(2) == 1);
    assert_eq!(a.logged("closed: the peer closed the connection"), 1);
}

#[test]
fn control_overtakes_a_big_message() {
    super::control_overtakes(tls_pair());
}

#[test]
fn nothing_is_lost_reordered_or_repeated_within_a_link() {
    super::nothing_is_lost(tls_pair());
}

/// The bytes that go through a connection on its way.
#[derive(Default)]
struct Tap {
    seen: Mutex<Vec<u8>>,
    /// The next piece towards `port` arrives with a bit changed.
    damage: AtomicBool,
}

/// Passes one connection on to `port`.
fn tapped(port: u16) -> (u16, Arc<Tap>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let tap = Arc::new(Tap::default());
    let of_threads = tap.clone();
    std::thread::spawn(move || {
        let near = listener.accept().unwrap().0;
        let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let there = (near.try_clone().unwrap(), far.try_clone().unwrap(), true);
        for (mut from, mut to, to_port) in [there, (far, near, false)] {
            let tap = of_threads.clone();
            std::thread::spawn(move || {
                let mut some = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut some) {
                    some[n - 1] ^= u8::from(to_port && tap.damage.swap(false, Ordering::Relaxed));
                    tap.seen.lock().unwrap().extend_from_slice(&some[..n]);
                    if to.write_all(&some[..n]).is_err() {
                        break;
                    }
                }
                // The other end hears of it: the other thread holds these sockets open.
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
    });
    (own, tap)
}

/// A dialler that knows no way but the tap.
fn through(port: u16, tls: Option<TlsContext>) -> Node {
    let mut cfg = NetConfig { tls, listen: Vec::new(), ..config(2, &[port]) };
    cfg.limits.addresses = 0;
    Node::new(cfg)
}

#[test]
fn nothing_readable_goes_over_the_wire() {
    let authority = authority();
    for tls in [None, Some(context(&authority))] {
        let mut a = Node::new(NetConfig { tls: tls.clone(), ..config(1, &[]) });
        let (port, tap) = tapped(a.port());
        let mut b = through(port, tls.clone());
        until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
        b.send(1, Class::Bulk, "the salary of Kate");
        until([&mut a, &mut b], |[a, _]| a.bodies(2) == ["the salary of Kate"]);
        let seen = tap.seen.lock().unwrap();
        for secret in ["the salary of Kate", "node2"] {
            let readable = seen.windows(secret.len()).any(|some| some == secret.as_bytes());
            assert_eq!(readable, tls.is_none(), "{secret}");
        }
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused_and_both_say_so() {
    for dialler_is_wrong in [false, true] {
        let (ours, theirs) = (authority(), authority());
        let certs = Certs::new();
        // Trusts everybody's, but has the wrong one.
        let wrong = TlsContext::load(&certs.files(&theirs, &ours, Validity::YEARS)).unwrap();
        let right = context(&ours);
        let (of_a, of_b) = if dialler_is_wrong { (&right, &wrong) } else { (&wrong, &right) };
        let mut a = Node::new(tls_config(1, &[], of_a));
        let mut b = Node::new(tls_config(2, &[a.port()], of_b));
        let (refuser, refused) = ("is refused: ", "TLS: it refused the handshake: ");
        let (by_a, by_b) = if dialler_is_wrong { (refuser, refused) } else { (refused, refuser) };
        until([&mut a, &mut b], |[a, b]| a.logged(by_a) == 1 && b.logged(by_b) == 1);
        stay_apart(&mut a, &mut b);
        assert_eq!((a.logged("TLS: "), b.logged("TLS: ")), (1, 1), "said once, although it is tried again");
    }
}

/// The one that connects: OpenSSL asks for no more than that there.
#[test]
fn a_certificate_for_clients_is_no_members() {
    let authority = authority();
    let certs = Certs::new();
    let files = Files::below(&certs.dir);
    files.write(&authority.issue_to_client("joe-laptop").unwrap(), &authority).unwrap();
    let tls = TlsFiles { key: files.key, cert: files.cert, ca: files.ca, ..TlsFiles::default() };
    let mut a = Node::new(tls_config(1, &[], &context(&authority)));
    let mut b = Node::new(tls_config(2, &[a.port()], &TlsContext::load(&tls).unwrap()));
    until([&mut a, &mut b], |[a, _]| a.logged("serverAuth and clientAuth") == 1 && a.logged("joe-laptop") == 1);
    stay_apart(&mut a, &mut b);
}

#[test]
fn an_expired_certificate_is_refused_by_name() {
    let authority = authority();
    let certs = Certs::new();
    let expired = TlsContext::load(&certs.files(&authority, &authority, Validity::OVER)).unwrap();
    assert!(expired.days_left().unwrap() < 0 && context(&authority).days_left().unwrap() > 3600);
    let mut a = Node::new(tls_config(1, &[], &context(&authority)));
    let mut b = Node::new(tls_config(2, &[a.port()], &expired));
    until([&mut a, &mut b], |[a, b]| a.logged("certificate has expired") == 1 && b.logged("certificate expired") == 1);
    stay_apart(&mut a, &mut b);
}

#[test]
fn clear_text_and_tls_do_not_mix_and_both_ends_are_told() {
    let context = context(&authority());
    let mut a = Node::new(tls_config(1, &[], &context));
    let mut b = Node::new(config(2, &[a.port()]));
    until([&mut a, &mut b], |[a, b]| a.logged("it speaks in clear text") == 1 && b.logged("is socket.ssl on at") == 1);
    stay_apart(&mut a, &mut b);

    let mut a = Node::new(config(1, &[]));
    let mut b = Node::new(tls_config(2, &[a.port()], &context));
    until([&mut a, &mut b], |[a, b]| a.logged("is socket.ssl on at") == 1 && b.logged("is socket.ssl on at") == 1);
    stay_apart(&mut a, &mut b);
}

#[test]
fn strangers_who_stop_in_the_middle_are_dropped_and_keep_nobody_out() {
    let authority = authority();
    let mut cfg = tls_config(1, &[], &context(&authority));
    cfg.peer_timeout = Duration::from_secs(1);
    let mut a = Node::new(cfg);
    // A TLS record that never ends.
    let mut strangers: Vec<_> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", a.port())).unwrap()).collect();
    strangers.iter_mut().for_each(|stranger| stranger.write_all(&[0x16, 0x03, 0x01, 0x01, 0x00, 0x01]).unwrap());
    let mut b = Node::new(tls_config(2, &[a.port()], &context(&authority)));
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    until([&mut a, &mut b], |[a, _]| a.transport.stats().refused == 20);
    assert_eq!(a.logged("the TLS handshake was not finished in time"), 1);
    assert_eq!(a.downs(2), 0);
    for stranger in &mut strangers {
        stranger.set_read_timeout(Some(LONG)).unwrap();
        assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)));
    }
}

#[test]
fn a_peer_that_falls_silent_in_the_middle_is_given_up() {
    // It listens, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut cfg = tls_config(1, &[silent.local_addr().unwrap().port()], &context(&authority()));
    cfg.peer_timeout = Duration::from_millis(300);
    let mut a = Node::new(cfg);
    until([&mut a], |[a]| a.logged("the TLS handshake was not finished in time") == 1);
}

#[test]
fn garbage_within_tls_is_refused() {
    let mut a = Node::new(tls_config(1, &[], &context(&authority())));
    let mut stranger = TcpStream::connect(("127.0.0.1", a.port())).unwrap();
    stranger.write_all(&[0x16, 0x03, 0x01, 0x00, 0x04, 0xff, 0xff, 0xff, 0xff]).unwrap();
    until([&mut a], |[a]| a.logged("TLS: the handshake failed") == 1);
    let mut stranger = TcpStream::connect(("127.0.0.1", a.port())).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    until([&mut a], |[a]| a.transport.stats().refused == 2);
    // Told in words that TLS knows, if it should be a member.
    let mut answer = [0; 7];
    stranger.set_read_timeout(Some(LONG)).unwrap();
    stranger.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..3], [0x15, 0x03, 0x01]);
}

#[test]
fn damage_on_the_way_ends_the_link() {
    let context = context(&authority());
    let mut a = Node::new(tls_config(1, &[], &context));
    let (port, tap) = tapped(a.port());
    let mut b = through(port, Some(context));
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    tap.damage.store(true, Ordering::Relaxed);
    b.send(1, Class::Bulk, "meant otherwise");
    until([&mut a, &mut b], |[a, _]| a.downs(2) == 1);
    assert_eq!(a.count(|event| *event == NetEvent::LinkDown { node: id(2), cause: DownCause::Garbage }), 1);
    assert!(a.bodies(2).is_empty());
}

#[test]
fn new_certificates_hold_for_new_links_only() {
    let (old, new) = (authority(), authority());
    let mut a = Node::new(tls_config(1, &[], &context(&old)));
    let mut b = Node::new(tls_config(2, &[a.port()], &context(&old)));
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    a.transport.set_tls(context(&new));
    for_a_while([&mut a, &mut b], Duration::from_millis(200));
    a.send(2, Class::Bulk, "still here");
    until([&mut a, &mut b], |[_, b]| b.bodies(1) == ["still here"]);
    // One with the new certificate gets in, and the one with the old one not any more.
    let mut c = Node::new(tls_config(3, &[a.port()], &context(&new)));
    until([&mut a, &mut b, &mut c], |[a, _, c]| a.linked(3) && c.linked(1));
    a.transport.kill_link(id(2));
    until([&mut a, &mut b, &mut c], |[a, b, _]| {
        a.downs(2) == 1 && b.logged("is refused: ") + b.logged("TLS: it refused the handshake") > 0
    });
    assert_eq!(a.ups(2), 1);
    b.transport.set_tls(context(&new));
    until([&mut a, &mut b, &mut c], |[a, b, c]| a.linked(2) && b.linked(1) && b.linked(3) && c.linked(2));
}

#[test]
fn with_dynamic_both_kinds_of_peers_are_linked() {
    let context = context(&authority());
    let both = |n, seeds: &[u16]| NetConfig { clear_too: true, ..tls_config(n, seeds, &context) };
    // TLS where both can; either way of dialling a peer that cannot.
    let mut a = Node::new(both(1, &[]));
    let mut b = Node::new(both(2, &[a.port()]));
    let mut clear = Node::new(config(3, &[]));
    a.transport.add_peer(&format!("127.0.0.1:{}", clear.port())).unwrap();
    until([&mut a, &mut b, &mut clear], |[a, b, clear]| {
        a.linked(2) && b.linked(1) && a.linked(3) && b.linked(3) && clear.linked(1) && clear.linked(2)
    });
    let encrypted = |node: &Node, n: u8| {
        let links = node.transport.links();
        links.iter().find(|link| link.node == id(n)).unwrap().tls.is_some()
    };
    assert_eq!(clear.logged("is socket.ssl on at"), 0, "an attempt that goes on in clear text is no mistake");
    assert!(encrypted(&a, 2) && encrypted(&b, 1));
    assert!(!encrypted(&a, 3) && !encrypted(&b, 3));
    // When it comes back with TLS, its links are encrypted at once.
    let port = clear.port();
    drop(clear);
    until([&mut a, &mut b], |[a, b]| a.downs(3) == 1 && b.downs(3) == 1);
    let mut cfg = tls_config(3, &[a.port()], &context);
    cfg.me.incarnation.0 += 1;
    cfg.listen = vec![format!("127.0.0.1:{port}")];
    let mut strict = Node::new(cfg);
    until([&mut a, &mut b, &mut strict], |[a, b, c]| a.linked(3) && b.linked(3) && c.linked(1) && c.linked(2));
    assert!(encrypted(&a, 3) && encrypted(&b, 3));
}

#[test]
fn a_wrong_certificate_does_not_lead_to_clear_text() {
    let both = |n, seeds: &[u16]| NetConfig { clear_too: true, ..tls_config(n, seeds, &context(&authority())) };
    let mut a = Node::new(both(1, &[]));
    let mut b = Node::new(both(2, &[a.port()]));
    until([&mut a, &mut b], |[a, b]| a.logged("TLS: ") == 1 && b.logged("TLS: ") == 1);
    stay_apart(&mut a, &mut b);
}

#[test]
fn the_allow_list_comes_first() {
    let context = context(&authority());
    let mut a = Node::new(NetConfig { ask_admission: true, ..tls_config(1, &[], &context) });
    let mut b = Node::new(tls_config(2, &[a.port()], &context));
    until([&mut a, &mut b], |[a, _]| a.count(|event| matches!(event, NetEvent::Admission { .. })) == 1);
    for_a_while([&mut a, &mut b], Duration::from_millis(100));
    assert_eq!(a.transport.stats().bytes_received, 0, "nothing is read before the answer");
    let token = a.events.iter().find_map(|event| match event {
        NetEvent::Admission { token, .. } => Some(*token),
        _ => None,
    });
    a.transport.admit(token.unwrap(), true);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
}

#[test]
fn files_that_do_not_fit_are_errors_that_name_the_option() {
    let authority = authority();
    let certs = Certs::new();
    let good = certs.files(&authority, &authority, Validity::YEARS);
    TlsContext::load(&good).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = certs.dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let absent = certs.dir.join("absent");
    let garbage = write("garbage", b"no PEM");
    let other = write("other", &authority.issue("x", Validity::YEARS, None).unwrap().key);
    let refused = |files: TlsFiles, parts: &[&str]| {
        let error = TlsContext::load(&files).unwrap_err().to_string();
        parts.iter().for_each(|part| assert!(error.contains(part), "{error}"));
        assert!(!error.contains('\n'), "{error}");
    };
    refused(TlsFiles { key: absent.clone(), ..good.clone() }, &["socket.ssl_key", "absent", "No such file"]);
    refused(TlsFiles { cert: absent.clone(), ..good.clone() }, &["socket.ssl_cert", "absent"]);
    refused(TlsFiles { ca: absent.clone(), ..good.clone() }, &["socket.ssl_ca", "absent"]);
    refused(TlsFiles { key: garbage.clone(), ..good.clone() }, &["socket.ssl_key"]);
    refused(TlsFiles { cert: garbage.clone(), ..good.clone() }, &["socket.ssl_cert"]);
    refused(TlsFiles { ca: garbage, ..good.clone() }, &["socket.ssl_ca"]);
    refused(TlsFiles { key: other, ..good.clone() }, &["socket.ssl_key", "does not belong to the certificate"]);
    refused(TlsFiles { ciphers: "NO-SUCH".into(), ..good.clone() }, &["socket.ssl_cipher='NO-SUCH'"]);

    let issued = authority.issue("x", Validity::YEARS, Some("open sesame")).unwrap();
    let locked = TlsFiles { key: write("locked", &issued.key), cert: write("its", &issued.cert), ..good };
    let with = |password| TlsFiles { password: Some(password), ..locked.clone() };
    refused(locked.clone(), &["socket.ssl_key", "set socket.ssl_password_file"]);
    refused(with(write("wrong", b"sesame")), &["is the password in socket.ssl_password_file the right one?"]);
    refused(with(absent), &["socket.ssl_password_file", "No such file"]);
    TlsContext::load(&with(write("right", b"open sesame\nand a second line"))).unwrap();
}

#[test]
fn the_ciphers_are_the_chosen_ones() {
    let authority = authority();
    let certs = Certs::new();
    let files = certs.files(&authority, &authority, Validity::YEARS);
    let chosen = |ciphers: &str| TlsContext::load(&TlsFiles { ciphers: ciphers.into(), ..files.clone() }).unwrap();
    // A list for TLS 1.2 leaves TLS 1.3 alone.
    for (ciphers, spoken) in [
        ("TLS_CHACHA20_POLY1305_SHA256", "TLSv1.3, TLS_CHACHA20_POLY1305_SHA256"),
        ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.3, TLS_AES_256_GCM_SHA384"),
    ] {
        let mut a = Node::new(tls_config(1, &[], &chosen(ciphers)));
        let mut b = Node::new(tls_config(2, &[a.port()], &chosen("")));
        until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
        assert_eq!(cipher(&a).as_deref(), Some(spoken));
    }
}

/// A certificate of `authority` for `name`, and what `edit` makes of the rest.
fn named(authority: &Authority, name: &str, edit: impl FnOnce(&mut TlsFiles, &Certs)) -> TlsContext {
    let certs = Certs::new();
    let files = Files::below(&certs.dir);
    files.write(&authority.issue(name, Validity::YEARS, None).unwrap(), authority).unwrap();
    let mut tls = TlsFiles { key: files.key, cert: files.cert, ca: files.ca, ..TlsFiles::default() };
    edit(&mut tls, &certs);
    TlsContext::load(&tls).unwrap()
}

#[test]
fn only_named_certificates_are_members() {
    let authority = authority();
    let plain = |name: &str| named(&authority, name, |_, _| {});
    let choosy = |peers: &str| named(&authority, "node1", |tls, _| tls.peers = PeerNames::parse(peers).unwrap());
    assert!(choosy("node2").refuses_own().is_some() && choosy("node?").refuses_own().is_none());
    // Either side dials.
    for a_dials in [false, true] {
        for (name, taken) in [("node2", true), ("joe-laptop", false)] {
            let (mut a, mut b);
            if a_dials {
                b = Node::new(tls_config(2, &[], &plain(name)));
                a = Node::new(tls_config(1, &[b.port()], &choosy("node?")));
            } else {
                a = Node::new(tls_config(1, &[], &choosy("node?")));
                b = Node::new(tls_config(2, &[a.port()], &plain(name)));
            }
            if taken {
                until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
            } else {
                until([&mut a, &mut b], |[a, _]| a.logged("socket.ssl_peer_names") > 0 && a.logged("joe-laptop") > 0);
                stay_apart(&mut a, &mut b);
            }
        }
    }
}

#[test]
fn what_is_revoked_is_refused_and_loses_its_link() {
    let authority = authority();
    let issued = authority.issue("node2", Validity::YEARS, None).unwrap();
    let of_two = || {
        let certs = Certs::new();
        let files = Files::below(&certs.dir);
        files.write(&issued, &authority).unwrap();
        TlsContext::load(&TlsFiles { key: files.key, cert: files.cert, ca: files.ca, ..TlsFiles::default() }).unwrap()
    };
    let with_list = |revoked: &[&[u8]], days| {
        named(&authority, "node1", |tls, certs| {
            let path = certs.dir.join("crl.pem");
            std::fs::write(&path, authority.revoke(revoked, days).unwrap()).unwrap();
            tls.crl = Some(path);
        })
    };
    let nobody = with_list(&[], 30);
    assert!(nobody.crl_days_left().is_some_and(|days| days >= 28), "{:?}", nobody.crl_days_left());
    let mut a = Node::new(tls_config(1, &[], &nobody));
    let mut b = Node::new(tls_config(2, &[a.port()], &of_two()));
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    // The list is read again.
    a.transport.set_tls(with_list(&[&issued.cert], 30));
    until([&mut a, &mut b], |[a, _]| !a.linked(2));
    assert!(a.logged("it is revoked (socket.ssl_crl)") > 0);
    let ups = a.ups(2);
    until([&mut a, &mut b], |[a, _]| a.logged("certificate revoked (socket.ssl_crl)") > 0);
    assert_eq!(a.ups(2), ups);
    // A list that has ended tells nothing: nobody is taken until there is a newer one.
    let over = with_list(&[], -1);
    assert!(over.crl_days_left().is_some_and(|days| days < 0));
    let mut a = Node::new(tls_config(1, &[], &over));
    let mut b = Node::new(tls_config(2, &[a.port()], &of_two()));
    until([&mut a, &mut b], |[a, _]| a.logged("CRL has expired (socket.ssl_crl)") > 0);
    stay_apart(&mut a, &mut b);
    let certs = Certs::new();
    let empty = certs.dir.join("empty");
    std::fs::write(&empty, "").unwrap();
    let files = certs.files(&authority, &authority, Validity::YEARS);
    for bad in [empty, certs.dir.join("absent")] {
        let error = TlsContext::load(&TlsFiles { crl: Some(bad), ..files.clone() }).unwrap_err().to_string();
        assert!(error.contains("socket.ssl_crl"), "{error}");
    }
}

#[test]
fn a_node_that_comes_with_another_certificate_is_named_or_refused() {
    let authority = authority();
    let of = |name: &str| named(&authority, name, |_, _| {});
    for refuse in [false, true] {
        let mut cfg = tls_config(1, &[], &of("node1"));
        if refuse {
            cfg.other_certificate = OtherCertificate::Refuse;
        }
        let mut a = Node::new(cfg);
        let mut b = Node::new(tls_config(2, &[a.port()], &of("node2")));
        until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
        // New files for the same name are no news.
        b.transport.set_tls(of("node2"));
        a.transport.kill_link(id(2));
        until([&mut a, &mut b], |[a, b]| a.ups(2) == 2 && b.ups(1) == 2);
        assert_eq!(a.logged("shows the certificate"), 0);
        drop(b);
        until([&mut a], |[a]| !a.linked(2));
        // Connections of strangers at that address keep nothing back.
        drop(std::net::TcpStream::connect(("127.0.0.1", a.port())).unwrap());
        until([&mut a], |[a]| a.logged("no handshake") > 0);
        // Another member's certificate, under the same id.
        let mut thief = Node::new(tls_config(2, &[a.port()], &of("node3")));
        until([&mut a, &mut thief], |[a, _]| a.logged("shows the certificate 'node3'") > 0);
        if refuse {
            for_a_while([&mut a, &mut thief], Duration::from_millis(300));
            assert_eq!((a.ups(2), a.logged("repl.other_certificate") > 0), (2, true));
        } else {
            until([&mut a, &mut thief], |[a, _]| a.ups(2) == 3);
        }
        // Also by a process that was started since.
        let shown = a.events.iter().rev().find_map(|event| match event {
            NetEvent::Certificates(shown) => Some(shown.clone()),
            _ => None,
        });
        let shown = shown.expect("what is to be kept was told");
        let last = if refuse { "node2" } else { "node3" };
        assert_eq!(shown[&id(2)].names[0], last);
        drop((a, thief));
        let mut cfg = tls_config(1, &[], &of("node1"));
        cfg.other_certificate = OtherCertificate::Refuse;
        cfg.shown = shown;
        let mut a = Node::new(cfg);
        let mut other = Node::new(tls_config(2, &[a.port()], &of("node4")));
        until([&mut a, &mut other], |[a, _]| a.logged(&format!("showed '{last}'")) > 0);
        drop(other);
        let mut same = Node::new(tls_config(2, &[a.port()], &of(last)));
        until([&mut a, &mut same], |[a, _]| a.linked(2));
        assert_eq!(a.ups(2), 1);
    }
}
