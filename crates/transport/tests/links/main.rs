//! Transports with real sockets on the loopback interface, pumped in turn by one thread until a condition holds.

mod multicast;
mod secret;
mod support;
mod tls;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_order::{Class, Message};
use trireme_transport::{
    AdmitToken, DownCause, Encoded, Isolation, NetEvent, Sent, Transport, TransportError, Versions,
};
use trireme_types::{Incarnation, Level, Levels};

use support::{LONG, Node, config, for_a_while, id, pair, pair_with, until};

#[test]
fn links_and_talks_both_ways_in_order() {
    let (mut a, mut b) = pair();
    for n in 0..1000u32 {
        assert_eq!(a.send(2, Class::Bulk, n.to_le_bytes().to_vec()), Sent::Queued);
        assert_eq!(b.send(1, Class::Control, n.to_le_bytes().to_vec()), Sent::Queued);
    }
    until([&mut a, &mut b], |[a, b]| b.bodies(1).len() == 1000 && a.bodies(2).len() == 1000);
    let numbers =
        |bodies: Vec<Bytes>| bodies.iter().map(|b| u32::from_le_bytes(b[..].try_into().unwrap())).collect::<Vec<_>>();
    assert_eq!(numbers(b.bodies(1)), (0..1000).collect::<Vec<_>>());
    assert_eq!(numbers(a.bodies(2)), (0..1000).collect::<Vec<_>>());
    assert_eq!(a.send(3, Class::Bulk, "x"), Sent::NotLinked);
}

#[test]
fn both_dial_and_keep_one_link() {
    // Whichever dials, whichever is the arbiter; with messages sent as soon as the link is up.
    for _ in 0..20 {
        let mut a = Node::new(config(1, &[]));
        let mut b = Node::new(config(2, &[a.port()]));
        a.transport.add_peer(&format!("127.0.0.1:{}", b.port())).unwrap();
        let mut sent = (0, 0);
        until([&mut a, &mut b], |[a, b]| {
            for (from, to, n) in [(a, 2, &mut sent.0), (b, 1, &mut sent.1)] {
                if *n < 50 && from.send(to, Class::Bulk, vec![*n]) == Sent::Queued {
                    *n += 1;
                }
            }
            sent == (50, 50)
        });
        until([&mut a, &mut b], |[a, b]| a.bodies(2).len() == 50 && b.bodies(1).len() == 50);
        assert_eq!((a.ups(2), a.downs(2), b.ups(1), b.downs(1)), (1, 0, 1, 0));
        for bodies in [a.bodies(2), b.bodies(1)] {
            assert!(bodies.iter().enumerate().all(|(n, body)| body[..] == [n as u8]));
        }
    }
}

#[test]
fn three_find_each_other_through_one_seed() {
    let mut a = Node::new(config(1, &[]));
    let mut b = Node::new(config(2, &[a.port()]));
    let mut c = Node::new(config(3, &[a.port()]));
    until([&mut a, &mut b, &mut c], |[a, b, c]| {
        a.linked(2) && a.linked(3) && b.linked(1) && b.linked(3) && c.linked(1) && c.linked(2)
    });
    let body = Encoded::new(Class::Bulk, &Message::Signal { body: Bytes::from(vec![7; 200_000]) }, true);
    let sent = [1, 2, 3].map(|to| c.transport.send_encoded(id(to), body.clone()));
    assert_eq!(sent, [Sent::Queued, Sent::Queued, Sent::NotLinked], "nobody is linked with itself");
    until([&mut a, &mut b, &mut c], |[a, b, _]| a.bodies(3) == [vec![7; 200_000]] && b.bodies(3) == [vec![7; 200_000]]);
}

#[test]
fn five_that_all_know_and_dial_each_other_keep_one_link_per_pair() {
    let mut nodes: [Node; 5] = std::array::from_fn(|n| Node::new(config(n as u8 + 1, &[])));
    let ports = nodes.each_ref().map(Node::port);
    for node in &mut nodes {
        // The own one included, as in a configuration that is the same on all nodes.
        ports.iter().for_each(|port| node.transport.add_peer(&format!("127.0.0.1:{port}")).unwrap());
    }
    let all_linked = |nodes: &mut [&mut Node; 5]| nodes.iter().all(|node| node.transport.links().len() == 4);
    until(nodes.each_mut(), all_linked);
    for_a_while(nodes.each_mut(), Duration::from_millis(500));
    for (a, node) in (1..).zip(&nodes) {
        for b in (1..=5).filter(|b| *b != a) {
            assert_eq!((node.ups(b), node.downs(b)), (1, 0), "{a} to {b}");
        }
    }
}

#[test]
fn a_transport_can_be_handed_to_its_thread() {
    fn sendable<T: Send>(_: &T) {}
    let (a, mut b) = pair();
    sendable(&a.transport);
    let Node { mut transport, mut events } = a;
    let thread = std::thread::spawn(move || {
        let end = Instant::now() + LONG;
        while Instant::now() < end && !events.iter().any(|event| matches!(event, NetEvent::Message { .. })) {
            transport.poll(None, &mut events);
        }
        transport.send(id(2), Class::Control, &Message::Signal { body: Bytes::from_static(b"from there") });
        transport.flush();
        transport.close();
    });
    b.send(1, Class::Control, "to there");
    until([&mut b], |[b]| b.bodies(1) == ["from there"]);
    thread.join().unwrap();
}

#[test]
fn round_trips_are_measured_and_one_that_hangs_is_told_before_it_answers() {
    let (mut a, mut b) = pair_with(|cfg| cfg.probe_every = Duration::from_millis(10));
    let measured = |event: &NetEvent| match event {
        NetEvent::RoundTrip { node, time } if *node == id(2) => Some(*time),
        _ => None,
    };
    until([&mut a, &mut b], |[a, b]| {
        a.count(|event| measured(event).is_some()) > 2
            && b.count(|event| matches!(event, NetEvent::RoundTrip { node, .. } if *node == id(1))) > 0
    });
    assert!(a.events.iter().filter_map(measured).all(|time| time > Duration::ZERO));
    // The other one does not run.
    let longest = a.events.iter().filter_map(measured).max().unwrap();
    let long = longest + Duration::from_millis(200);
    let told = |node: &Node| node.transport.links()[0].round_trip.unwrap();
    until([&mut a], |[a]| told(a) > long);
    assert!(a.events.iter().filter_map(measured).all(|time| time < long), "told before it is measured");
    until([&mut a, &mut b], |[a, _]| a.events.iter().filter_map(measured).any(|time| time > long));
    until([&mut a, &mut b], |[a, _]| told(a) < long);
    // A link that is new has none.
    a.transport.kill_link(id(2));
    assert!(a.transport.links().is_empty());
}

#[test]
fn reconnects_after_kill_link() {
    let (mut a, mut b) = pair();
    for round in 1..4 {
        let killer = if round % 2 == 0 { &mut a } else { &mut b };
        let other = if round % 2 == 0 { 2 } else { 1 };
        killer.transport.kill_link(id(other));
        assert_eq!(killer.send(other, Class::Control, "gone"), Sent::NotLinked);
        until([&mut a, &mut b], |[a, b]| a.ups(2) == round + 1 && b.ups(1) == round + 1 && a.linked(2) && b.linked(1));
        assert_eq!((a.downs(2), b.downs(1)), (round, round));
    }
    a.send(2, Class::Control, "again");
    until([&mut a, &mut b], |[_, b]| b.bodies(1) == ["again"]);
}

#[test]
fn a_peer_that_stops_says_so_and_is_found_again() {
    let (mut a, mut b) = pair();
    let port = b.port();
    b.send(1, Class::Bulk, vec![1; 100_000]);
    b.transport.close();
    until([&mut a], |[a]| a.downs(2) == 1);
    assert_eq!(a.bodies(2).len(), 1, "what was queued before close arrives");
    assert_eq!(a.count(|event| *event == NetEvent::LinkDown { node: id(2), cause: DownCause::Bye }), 1);
    assert!(a.transport.known_peers().is_empty(), "a leaver's learned address is not dialled on");
    drop(b);
    let mut cfg = config(2, &[a.port()]);
    cfg.me.incarnation = Incarnation(2);
    cfg.listen = vec![format!("127.0.0.1:{port}")];
    let mut b = Node::new(cfg);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
}

#[test]
fn a_newer_incarnation_does_not_replace_an_older_one_that_lives() {
    let (mut a, mut old) = pair();
    let mut cfg = config(2, &[a.port()]);
    cfg.me.incarnation = Incarnation(2);
    let mut new = Node::new(cfg);
    until([&mut a, &mut old, &mut new], |[a, _, new]| a.logged("cloned") >= 1 && new.logged("cloned") >= 1);
    assert!(a.linked(2) && old.linked(1) && a.downs(2) == 0);
    assert!(new.count(|event| matches!(event, NetEvent::Twin { .. })) >= 1, "and is told why");
    assert_eq!(old.count(|event| matches!(event, NetEvent::Twin { .. })), 0);
    // Once it is gone the newer one is welcome.
    drop(old);
    until([&mut a, &mut new], |[a, new]| new.linked(1) && a.ups(2) == 2);
}

#[test]
fn a_newer_incarnation_takes_over_from_one_that_hangs_and_the_older_is_refused() {
    let (mut a, mut old) = pair();
    let mut cfg = config(2, &[a.port()]);
    cfg.me.incarnation = Incarnation(2);
    let mut new = Node::new(cfg);
    until([&mut a, &mut new], |[a, new]| new.linked(1) && a.ups(2) == 2);
    assert_eq!(a.count(|event| *event == NetEvent::LinkDown { node: id(2), cause: DownCause::Replaced }), 1);
    until([&mut a, &mut old, &mut new], |[_, old, _]| old.logged("older incarnation") == 1);
    assert!(!old.linked(1) && new.linked(1));
    // Nor does it come back in a moment in which the newer one has no link.
    drop(new);
    until([&mut a], |[a]| !a.linked(2));
    for_a_while([&mut a, &mut old], Duration::from_millis(300));
    assert_eq!(a.ups(2), 2);
}

#[test]
fn a_clone_is_refused() {
    let (mut a, mut b) = pair();
    let mut twin = Node::new(config(2, &[a.port()]));
    until([&mut a, &mut b, &mut twin], |[a, _, twin]| a.logged("cloned") == 1 && twin.logged("cloned") >= 1);
    assert!(a.linked(2) && b.linked(1) && !twin.linked(1));
    assert_eq!(a.downs(2), 0);
    // The same against the node itself.
    let port = b.port();
    twin.transport.add_peer(&format!("127.0.0.1:{port}")).unwrap();
    until([&mut a, &mut b, &mut twin], |[_, b, _]| b.logged("cloned") == 1);
}

#[test]
fn own_address_is_blacklisted() {
    let mut a = Node::new(config(1, &[]));
    let own = a.port();
    a.transport.add_peer(&format!("127.0.0.1:{own}")).unwrap();
    let mut b = Node::new(config(2, &[own]));
    until([&mut a, &mut b], |[a, b]| {
        a.logged("points to own listening address, blacklisting") == 1 && a.linked(2) && b.linked(1)
    });
    for_a_while([&mut a, &mut b], Duration::from_millis(300));
    assert_eq!(a.ups(1), 0);
    assert_eq!(a.logged("refused"), 0);
}

#[test]
fn another_cluster_is_refused_on_both_sides() {
    let mut a = Node::new(config(1, &[]));
    let mut cfg = config(2, &[a.port()]);
    cfg.cluster = "other".to_owned();
    let mut b = Node::new(cfg);
    let (theirs, ours) = ("belongs to group 'other'", "the node that refuses it to another");
    until([&mut a, &mut b], |[a, b]| {
        a.logged(theirs) == 1 && a.logged(ours) == 1 && b.logged(theirs) == 1 && b.logged(ours) == 1
    });
    assert_eq!((a.logged("'test'"), b.logged("'test'")), (0, 0), "whoever guesses wrong is not told what is right");
    until([&mut a, &mut b], |[a, _]| a.transport.stats().refused >= 4);
    assert_eq!((a.logged(theirs), b.logged(theirs)), (1, 1), "said once, although it is tried again");
    assert!(!a.linked(2) && !b.linked(1));
}

#[test]
fn a_build_below_the_group_level_is_refused_with_both_named_and_its_link_ends_when_the_level_rises() {
    let range = |min, max| Levels { min: Level(min), max: Level(max) };
    let mut cfg = config(1, &[]);
    cfg.levels = range(1, 2);
    let mut a = Node::new(cfg);
    let mut cfg = config(2, &[a.port()]);
    cfg.levels = range(1, 1);
    let mut b = Node::new(cfg);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    assert_eq!(a.count(|event| matches!(event, NetEvent::LinkUp { levels, .. } if *levels == range(1, 1))), 1);
    a.transport.set_level(Level(2));
    let named = "supports group level 1, and the group of the node that refuses it ('node1') is at level 2";
    until([&mut a, &mut b], |[a, b]| !a.linked(2) && !b.linked(1) && a.logged(named) >= 1 && b.logged(named) >= 1);
    // The other way about: the one that is called supports less than the group of the caller.
    let mut cfg = config(3, &[]);
    cfg.levels = range(1, 1);
    let mut c = Node::new(cfg);
    let mut cfg = config(4, &[c.port()]);
    (cfg.levels, cfg.level) = (range(1, 2), Level(2));
    let mut d = Node::new(cfg);
    let named = "is in a group at level 2, and the node that refuses it ('node3') supports group level 1";
    until([&mut c, &mut d], |[c, d]| c.logged(named) >= 1 && d.logged(named) >= 1);
    // Both support it.
    let mut cfg = config(5, &[a.port()]);
    (cfg.levels, cfg.level) = (range(1, 3), Level(1));
    let mut e = Node::new(cfg);
    until([&mut a, &mut e], |[a, e]| a.linked(5) && e.linked(1));
}

#[test]
fn another_protocol_version_is_refused_with_both_named() {
    let mut cfg = config(1, &[]);
    cfg.versions = Versions { min: 1, max: 2 };
    let mut a = Node::new(cfg);
    let mut cfg = config(2, &[a.port()]);
    cfg.versions = Versions { min: 3, max: 4 };
    let mut b = Node::new(cfg);
    until([&mut a, &mut b], |[a, b]| {
        a.logged("protocol version 3..4") == 1
            && a.logged("1..2") == 1
            && b.logged("3..4") == 1
            && b.logged("1..2") == 1
    });
    // An overlapping range is fine and the newest common version is spoken.
    let mut cfg = config(3, &[a.port()]);
    cfg.versions = Versions { min: 2, max: 3 };
    let mut c = Node::new(cfg);
    until([&mut a, &mut c], |[a, c]| a.linked(3) && c.linked(1));
    assert_eq!(a.count(|event| matches!(event, NetEvent::LinkUp { protocol: 2, .. })), 1);
}

#[test]
fn strangers_are_refused_and_disturb_nobody() {
    let (mut a, mut b) = pair_with(|cfg| cfg.peer_timeout = Duration::from_secs(1));
    let mut huge = b"TRIREME\x01".to_vec();
    huge.extend_from_slice(&[0xff; 8]);
    let mut begun = b"TRIREME\x01".to_vec();
    begun.extend_from_slice(&[0, 1, 0, 0]);
    let random: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let sent: [&[u8]; 5] = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &huge, &random, b"", &begun];
    for (n, bytes) in sent.into_iter().enumerate() {
        let mut stranger = TcpStream::connect(("127.0.0.1", a.port())).unwrap();
        stranger.set_nonblocking(true).unwrap();
        // The peer may close in the middle.
        let _ = stranger.write(bytes);
        until([&mut a, &mut b], |_| match stranger.read(&mut [0; 64]) {
            Ok(0) => true,
            Ok(_) => panic!("a stranger got an answer"),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(_) => true,
        });
        assert_eq!(a.transport.stats().refused, n as u64 + 1);
    }
    assert_eq!(a.logged("an HTTP request"), 1);
    let refused =
        a.count(|event| matches!(event, NetEvent::Refused { address, .. } if address.starts_with("127.0.0.1:")));
    assert_eq!(refused, 1, "one line for all of them");
    assert_eq!((a.downs(2), b.downs(1)), (0, 0));
}

#[test]
fn silent_strangers_cannot_keep_members_out() {
    let mut cfg = config(1, &[]);
    cfg.limits.half_open = 8;
    cfg.peer_timeout = LONG * 2;
    let mut a = Node::new(cfg);
    let strangers: Vec<_> = (0..50).map(|_| TcpStream::connect(("127.0.0.1", a.port())).unwrap()).collect();
    let mut b = Node::new(config(2, &[a.port()]));
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1) && a.transport.stats().refused >= 42);
    drop(strangers);
}

#[test]
fn garbage_after_the_handshake_closes_the_link_with_a_reason() {
    // A message over the receiver's limit is what a member never sends.
    let (mut a, mut b) = pair_with(|cfg| cfg.limits.message_bytes = 1 << 20);
    b.send(1, Class::Bulk, vec![0; 2 << 20]);
    until([&mut a, &mut b], |[a, _]| a.logged("over the limit") == 1);
    assert_eq!(a.count(|event| *event == NetEvent::LinkDown { node: id(2), cause: DownCause::Garbage }), 1);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
}

#[test]
fn control_overtakes_a_big_message() {
    control_overtakes(pair());
}

fn control_overtakes((mut a, mut b): (Node, Node)) {
    let big: Bytes = (0..20 << 20).map(|n: u32| (n >> 3) as u8).collect::<Vec<_>>().into();
    a.send(2, Class::Bulk, big.clone());
    a.transport.flush();
    assert!(a.transport.queue_bytes(id(2)) > 10 << 20, "the kernel does not take it all at once");
    a.send(2, Class::Bulk, "after");
    for n in 0..10u8 {
        a.send(2, Class::Control, vec![n]);
    }
    until([&mut a, &mut b], |[_, b]| b.bodies(1).len() == 12);
    let got = b.bodies(1);
    assert!((0..10).all(|n| got[n][..] == [n as u8]), "control messages come first and in order");
    assert!(got[10] == big && got[11] == "after");
    assert_eq!(a.transport.queue_bytes(id(2)), 0);
}

#[test]
fn droppable_messages_are_dropped_over_the_limit_and_nothing_else() {
    let (mut a, mut b) = pair_with(|cfg| cfg.limits.droppable_bytes = 1 << 20);
    let mut queued = 0;
    let mut dropped = 0;
    for n in 0..40u8 {
        match a.send(2, Class::Droppable, vec![n; 100_000]) {
            Sent::Queued => queued += 1,
            Sent::Dropped => dropped += 1,
            Sent::NotLinked => panic!(),
        }
    }
    assert_eq!((queued, dropped), (10, 30));
    assert_eq!(a.transport.stats().dropped, 30);
    assert_eq!(a.send(2, Class::Bulk, vec![99; 2 << 20]), Sent::Queued);
    until([&mut a, &mut b], |[_, b]| b.bodies(1).len() == 11);
    assert_eq!(a.send(2, Class::Droppable, "small"), Sent::Queued);
    until([&mut a, &mut b], |[_, b]| b.bodies(1).len() == 12);
}

#[test]
fn an_overfull_queue_closes_the_link() {
    let (mut a, mut b) = pair_with(|cfg| cfg.limits.queue_bytes = 1 << 20);
    assert_eq!(a.send(2, Class::Bulk, vec![0; 900_000]), Sent::Queued);
    assert_eq!(a.send(2, Class::Bulk, vec![0; 900_000]), Sent::NotLinked);
    until([&mut a, &mut b], |[a, b]| a.downs(2) == 1 && a.linked(2) && b.linked(1));
    assert_eq!(a.count(|event| *event == NetEvent::LinkDown { node: id(2), cause: DownCause::Local }), 1);
}

/// The questions to the allow list so far.
fn asked(node: &Node) -> Vec<AdmitToken> {
    let tokens = node.events.iter().filter_map(|event| match event {
        NetEvent::Admission { token, address } => {
            assert_eq!(address, "127.0.0.1");
            Some(*token)
        }
        _ => None,
    });
    tokens.collect()
}

#[test]
fn the_allow_list_decides() {
    let mut cfg = config(1, &[]);
    cfg.ask_admission = true;
    let mut a = Node::new(cfg);
    let mut b = Node::new(config(2, &[a.port()]));
    until([&mut a, &mut b], |[a, _]| asked(a).len() == 1);
    let first = asked(&a)[0];
    a.transport.admit(first, false);
    until([&mut a, &mut b], |[a, _]| {
        a.logged("Connection not allowed, IP 127.0.0.1 not found in allowlist") == 1 && asked(a).len() == 2
    });
    assert!(!a.linked(2));
    a.transport.admit(first, true); // too late, and harmless
    let second = asked(&a)[1];
    a.transport.admit(second, true);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
}

/// A server that is slow to answer is not asked about more than can wait, however many come.
#[test]
fn a_server_that_does_not_answer_is_asked_no_more_than_it_can_be() {
    let mut cfg = config(1, &[]);
    cfg.ask_admission = true;
    let mut a = Node::new(cfg);
    for round in 1..=400 {
        let gone = TcpStream::connect(("127.0.0.1", a.port())).unwrap();
        until([&mut a], |[a]| asked(a).len() + a.transport.stats().refused as usize >= round);
        drop(gone);
    }
    assert_eq!(asked(&a).len(), 256);
    for token in asked(&a) {
        a.transport.admit(token, false);
    }
    let _next = TcpStream::connect(("127.0.0.1", a.port())).unwrap();
    until([&mut a], |[a]| asked(a).len() == 257);
}

/// Otherwise a member that is turned away, because the list has it no longer, is called back by those who turned it away.
#[test]
fn the_allow_list_decides_about_places_that_peers_told_as_well() {
    let mut b = Node::new(config(2, &[]));
    let mut cfg = config(1, &[]);
    cfg.ask_admission = true;
    let mut a = Node::new(cfg);
    let mut member = config(2, &[]).me;
    member.address = format!("127.0.0.1:{}", b.port());
    a.transport.set_peers(&[member]);
    until([&mut a, &mut b], |[a, _]| asked(a).len() == 1);
    a.transport.admit(asked(&a)[0], false);
    until([&mut a, &mut b], |[a, _]| a.logged("IP 127.0.0.1 is not in the allowlist") == 1 && asked(a).len() == 2);
    assert!(!a.linked(2) && !b.linked(1));
    a.transport.admit(asked(&a)[1], true);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    // A peer that is configured here is trusted here.
    let mut c = Node::new(config(3, &[]));
    a.transport.add_peer(&format!("127.0.0.1:{}", c.port())).unwrap();
    until([&mut a, &mut c], |[a, c]| a.linked(3) && c.linked(1));
    assert_eq!(asked(&a).len(), 2);
}

#[test]
fn isolation_closes_and_refuses_until_it_ends() {
    let (mut a, mut b) = pair();
    a.transport.isolate(Isolation::On);
    until([&mut a, &mut b], |[a, b]| a.downs(2) == 1 && b.downs(1) == 1);
    for_a_while([&mut a, &mut b], Duration::from_millis(300));
    assert_eq!((a.ups(2), b.ups(1)), (1, 1));
    a.transport.isolate(Isolation::Off);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
}

#[test]
fn forgotten_members_are_refused_for_a_while() {
    let (mut a, mut b) = pair();
    a.transport.forget(id(2));
    until([&mut a, &mut b], |[_, b]| b.logged("thrown out") >= 1);
    assert!(!a.linked(2));
    // time_wait is 5 s.
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
}

#[test]
fn a_node_that_is_refused_gets_no_link_until_it_is_not() {
    let (mut a, mut b) = pair();
    a.transport.bar(id(2), true);
    until([&mut a, &mut b], |[a, b]| a.downs(2) == 1 && b.logged("violated the protocol") >= 1);
    for_a_while([&mut a, &mut b], Duration::from_millis(300));
    assert_eq!((a.ups(2), b.ups(1), b.downs(1)), (1, 1, 1));
    a.transport.bar(id(2), false);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
}

#[test]
fn names_are_resolved_and_those_that_cannot_be_are_told_once() {
    let mut a = Node::new(config(1, &[]));
    let mut cfg = config(2, &[]);
    // `.invalid` never resolves (RFC 6761).
    cfg.seeds = vec!["nowhere.invalid:4567".to_owned(), format!("localhost:{}", a.port())];
    let mut b = Node::new(cfg);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1) && b.logged("cannot resolve") == 1);
    assert_eq!(
        b.count(|event| matches!(event, NetEvent::Log { warn: true, text } if text.contains("nowhere.invalid"))),
        1
    );
    for_a_while([&mut a, &mut b], Duration::from_millis(300));
    assert_eq!(b.logged("cannot resolve"), 1);
    b.transport.close();
}

#[test]
fn wakers_end_the_poll() {
    let mut a = Node::new(config(1, &[]));
    let waker = a.transport.waker();
    let (handed, taken) = std::sync::mpsc::channel();
    let (answer, answered) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        for n in 0..50 {
            handed.send(n).unwrap();
            (0..3).for_each(|_| waker.wake());
            answered.recv().unwrap();
        }
    });
    // Without wake-ups the transport's own look around once a second would end each poll: 50 s.
    let start = Instant::now();
    for n in 0..50 {
        while taken.try_recv() != Ok(n) {
            a.transport.poll(None, &mut a.events);
            assert!(start.elapsed() < LONG);
        }
        answer.send(()).unwrap();
    }
    thread.join().unwrap();
}

#[test]
fn an_address_in_use_is_an_error_that_says_what_to_do() {
    let a = Node::new(config(1, &[]));
    let mut cfg = config(2, &[]);
    cfg.listen = vec![format!("127.0.0.1:{}", a.port())];
    let error = Transport::new(cfg).err().unwrap();
    assert!(
        matches!(&error, TransportError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("Address already in use") && text.contains("choose another port"), "{text}");
    let mut cfg = config(2, &[]);
    cfg.seeds = vec!["no port".to_owned()];
    let error = Transport::new(cfg).err().unwrap();
    assert!(matches!(error, TransportError::Address(_)) && error.to_string().contains("host:port"), "{error:?}");
}

#[test]
fn connections_come_from_the_chosen_source() {
    let mut cfg = config(1, &[]);
    cfg.ask_admission = true;
    let mut a = Node::new(cfg);
    let mut cfg = config(2, &[a.port()]);
    cfg.bind_source = Some("127.0.0.9".parse().unwrap());
    let mut b = Node::new(cfg);
    until([&mut a, &mut b], |[a, _]| {
        a.count(|event| matches!(event, NetEvent::Admission { address, .. } if address == "127.0.0.9")) == 1
    });
}

#[test]
fn ipv6_and_any_address() {
    let mut cfg = config(1, &[]);
    cfg.listen = vec!["[::1]:0".to_owned()];
    cfg.me.address = "[::1]:0".to_owned();
    if TcpStream::connect("[::1]:1").is_err_and(|error| error.kind() != std::io::ErrorKind::ConnectionRefused) {
        return; // a host without IPv6
    }
    let mut a = Node::new(cfg);
    let mut cfg = config(2, &[]);
    cfg.seeds = vec![format!("[::1]:{}", a.port())];
    cfg.listen = vec!["[::]:0".to_owned()];
    cfg.me.address = String::new();
    let mut b = Node::new(cfg);
    until([&mut a, &mut b], |[a, b]| a.linked(2) && b.linked(1));
    let known = a.transport.known_peers();
    assert_eq!(known[0].address, format!("[::1]:{}", b.port()), "an address left open is seen from where it speaks");
}

/// A link's promise under constant breaking: what arrives between an up and a down is a gapless beginning, per class, of what
/// the peer sent after its own up.
#[test]
fn nothing_is_lost_reordered_or_repeated_within_a_link() {
    nothing_is_lost(pair());
}

fn nothing_is_lost((mut a, mut b): (Node, Node)) {
    struct Side {
        sent: [u32; 2],
        expected: [u32; 2],
        handled: usize,
        ups: usize,
    }
    let side = || Side { sent: [0; 2], expected: [0; 2], handled: 0, ups: 0 };
    let mut sides = [side(), side()];
    let classes = [Class::Control, Class::Bulk];
    let mut random = 12345u32;
    until([&mut a, &mut b], |[a, b]| {
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random
        };
        let [of_a, of_b] = &mut sides;
        for (node, side, peer) in [(a, of_a, 2), (b, of_b, 1)] {
            for event in &node.events[side.handled..] {
                match event {
                    NetEvent::LinkUp { .. } => {
                        (side.sent, side.expected) = ([0; 2], [0; 2]);
                        side.ups += 1;
                    }
                    NetEvent::Message { message: Message::Signal { body }, .. } => {
                        let class = usize::from(body[0]);
                        let number = u32::from_le_bytes(body[1..5].try_into().unwrap());
                        assert_eq!(number, side.expected[class], "{:?}", classes[class]);
                        side.expected[class] += 1;
                    }
                    _ => {}
                }
            }
            side.handled = node.events.len();
            if !node.linked(peer) {
                continue;
            }
            for _ in 0..next() % 8 {
                let class = (next() % 2) as usize;
                let mut body = vec![class as u8];
                body.extend_from_slice(&side.sent[class].to_le_bytes());
                body.resize(5 + if next() % 8 == 0 { 150_000 } else { 10 }, 0);
                if node.send(peer, classes[class], body) == Sent::Queued {
                    side.sent[class] += 1;
                }
            }
            if next() % 40 == 0 {
                node.transport.kill_link(id(peer));
            }
        }
        sides.iter().all(|side| side.ups > 8)
    });
}
