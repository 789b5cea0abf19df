//! Bodies by multicast, on the loopback interface.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use trireme_order::{Class, Message};
use trireme_transport::{MulticastConfig, NetConfig, NetEvent, SECRET_LEN, Sent, TlsContext, Transport};
use trireme_types::{Member, ProposalNumber, Session};

use crate::support::{Node, config, id, until};

/// A group for each test: the kernel gives what is sent to one to all who listen on this host.
fn group() -> SocketAddrV4 {
    static LAST: AtomicU16 = AtomicU16::new(0);
    let part = std::process::id().to_le_bytes();
    SocketAddrV4::new(Ipv4Addr::new(239, 255, part[0], part[1]), 20_000 + LAST.fetch_add(1, Relaxed))
}

fn at(group: SocketAddrV4) -> Option<MulticastConfig> {
    Some(MulticastConfig { group, ttl: 1, interface: Ipv4Addr::LOCALHOST })
}

/// Nodes 1, 2, 3, …, linked with each other.
fn nodes<const N: usize>(edit: impl Fn(u8, &mut NetConfig)) -> [Node; N] {
    let mut seeds = Vec::new();
    let mut all = [(); N].map(|()| {
        let n = seeds.len() as u8 + 1;
        let mut cfg = config(n, &seeds);
        edit(n, &mut cfg);
        let node = Node::new(cfg);
        seeds.push(node.port());
        node
    });
    until(all.each_mut(), |all| all.iter().all(|node| node.transport.links().len() == N - 1));
    let members: Vec<u8> = (1..=N as u8).collect();
    all.iter_mut().for_each(|node| view(node, &members));
    all
}

/// The first of them orders.
fn view(node: &mut Node, members: &[u8]) {
    let members: Vec<Member> = members.iter().map(|n| config(*n, &[]).me).collect();
    node.transport.set_peers(&members);
    node.transport.set_sequencer(Some(members[0].node));
}

fn hears(node: &Node, peer: u8) -> bool {
    node.transport.hear_multicast().contains(&id(peer))
}

fn body(from: u8, number: u64, len: usize) -> Message {
    let body = (0..len).map(|at| (at as u64 + number) as u8).collect::<Vec<_>>().into();
    Message::Submit { session: Session { node: id(from), number: 1 }, number: ProposalNumber(number), app: false, body }
}

fn heard(node: &Node, from: u8) -> Vec<Message> {
    let message = |event: &NetEvent| match event {
        NetEvent::Message { from: node, message } if *node == id(from) => Some(message.clone()),
        _ => None,
    };
    node.events.iter().filter_map(message).collect()
}

/// From node 1 to the others, as an origin does it.
fn disseminate(from: &mut Node, others: &[u8], message: &Message) {
    for other in others {
        assert_eq!(from.transport.send(id(*other), Class::Droppable, message), Sent::Queued);
    }
    from.transport.flush();
}

fn reaches_all_once(sealed: bool) {
    let group = group();
    let mut all = nodes::<3>(|_, cfg| {
        cfg.multicast = at(group);
        cfg.tls = sealed.then(|| TlsContext::of_secrets(&[[7; SECRET_LEN]]).unwrap());
    });
    until(all.each_mut(), |[a, b, c]| hears(a, 2) && hears(a, 3) && hears(b, 1) && hears(c, 2));
    let [a, ..] = &mut all;
    let before = a.transport.stats();
    let sent: Vec<Message> =
        [10, 0, 1300, 1400, 5000, 60_000].iter().zip(1..).map(|(len, n)| body(1, n, *len)).collect();
    sent.iter().for_each(|message| disseminate(a, &[2, 3], message));
    let after = a.transport.stats();
    assert_eq!(after.messages_sent, before.messages_sent, "nothing over the links");
    assert_eq!(after.multicast.sent - before.multicast.sent, sent.len() as u64, "once for all");
    let bytes = after.multicast.bytes_sent - before.multicast.bytes_sent;
    assert!((67_710..75_000).contains(&bytes), "{bytes}");
    until(all.each_mut(), |[_, b, c]| heard(b, 1).len() == sent.len() && heard(c, 1).len() == sent.len());
    let [a, b, c] = &all;
    assert!(heard(b, 1) == sent && heard(c, 1) == sent);
    assert_eq!((heard(a, 2).len(), heard(a, 1).len()), (0, 0), "not what this node said itself");
    assert_eq!(b.transport.stats().multicast.received, sent.len() as u64);
}

#[test]
fn a_body_for_all_is_sent_once() {
    reaches_all_once(false);
}

#[test]
fn a_body_for_all_is_sent_once_and_sealed_where_links_are() {
    reaches_all_once(true);
}

#[test]
fn what_may_not_be_lost_or_is_large_stays_on_the_links() {
    let group = group();
    let mut all = nodes::<2>(|_, cfg| cfg.multicast = at(group));
    until(all.each_mut(), |[a, _]| hears(a, 2));
    let [a, _] = &mut all;
    let sent = a.transport.stats().multicast.sent;
    a.transport.send(id(2), Class::Bulk, &body(1, 1, 100));
    a.transport.send(id(2), Class::Droppable, &body(1, 2, 100_000));
    a.transport.send(id(2), Class::Droppable, &Message::Signal { body: "word".into() });
    assert_eq!(a.transport.stats().multicast.sent, sent);
    until(all.each_mut(), |[_, b]| heard(b, 1).len() == 3);
}

#[test]
fn who_hears_nothing_gets_bodies_over_its_link() {
    let (here, elsewhere) = (group(), group());
    // The second node listens elsewhere, the third one knows nothing of multicast.
    let mut all = nodes::<4>(|n, cfg| {
        cfg.multicast = match n {
            2 => at(elsewhere),
            3 => None,
            _ => at(here),
        }
    });
    until(all.each_mut(), |[a, .., d]| hears(a, 4) && hears(d, 1));
    let message = body(1, 1, 3000);
    let [a, ..] = &mut all;
    let before = a.transport.stats();
    disseminate(a, &[2, 3, 4], &message);
    let after = a.transport.stats();
    assert_eq!(after.messages_sent - before.messages_sent, 2);
    assert_eq!(after.multicast.sent - before.multicast.sent, 1);
    until(all.each_mut(), |[_, b, c, d]| [b, c, d].iter().all(|node| heard(node, 1) == [message.clone()]));
    assert!(!hears(&all[0], 2) && !hears(&all[0], 3) && !hears(&all[1], 1));
}

#[test]
fn a_link_that_ends_begins_another_stream() {
    let group = group();
    let mut all = nodes::<3>(|_, cfg| cfg.multicast = at(group));
    until(all.each_mut(), |[a, ..]| hears(a, 2) && hears(a, 3));
    all[0].transport.kill_link(id(3));
    // The others have to learn of it first.
    assert!(!hears(&all[0], 2) && !hears(&all[0], 3));
    let message = body(1, 1, 300);
    disseminate(&mut all[0], &[2], &message);
    until(all.each_mut(), |[a, b, _]| heard(b, 1).len() == 1 && hears(a, 2) && hears(a, 3));
    let message = body(1, 2, 300);
    disseminate(&mut all[0], &[2, 3], &message);
    until(all.each_mut(), |[_, b, c]| heard(b, 1).len() == 2 && heard(c, 1).len() == 1);
}

#[test]
fn nobody_tells_those_outside_of_the_view() {
    let group = group();
    let mut all = nodes::<3>(|_, cfg| cfg.multicast = at(group));
    until(all.each_mut(), |[a, ..]| hears(a, 2) && hears(a, 3));
    view(&mut all[0], &[1, 2]);
    // The answers that it has heard until now tell it nothing of what comes.
    assert!(!hears(&all[0], 2) && !hears(&all[0], 3));
    until(all.each_mut(), |[a, ..]| hears(a, 2));
    disseminate(&mut all[0], &[2], &body(1, 1, 300));
    until(all.each_mut(), |[_, b, _]| heard(b, 1).len() == 1);
    let [a, _, c] = &all;
    assert!(a.linked(3) && !hears(a, 3) && heard(c, 1).is_empty());
}

#[test]
fn who_orders_takes_bodies_from_links_only() {
    let group = group();
    let mut all = nodes::<3>(|_, cfg| cfg.multicast = at(group));
    until(all.each_mut(), |[_, b, _]| hears(b, 1) && hears(b, 3));
    disseminate(&mut all[1], &[1, 3], &body(2, 1, 300));
    all[1].transport.send(id(1), Class::Bulk, &body(2, 2, 300));
    until(all.each_mut(), |[a, _, c]| heard(c, 2).len() == 1 && !heard(a, 2).is_empty());
    assert_eq!(heard(&all[0], 2), [body(2, 2, 300)]);
}

#[test]
fn strangers_on_the_group_are_not_heard() {
    let group = group();
    let mut all = nodes::<2>(|_, cfg| cfg.multicast = at(group));
    until(all.each_mut(), |[a, b]| hears(a, 2) && hears(b, 1));
    let (events, refused) = (all[1].events.len(), all[1].transport.stats().refused);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..2000u64 {
        let datagram: Vec<u8> = (0..n % 1500).map(|at| (at * n) as u8).collect();
        stranger.send_to(&datagram, group).unwrap();
    }
    let message = body(1, 1, 300);
    disseminate(&mut all[0], &[2], &message);
    until(all.each_mut(), |[_, b]| heard(b, 1) == [message.clone()]);
    let lines = all[1].events[events..].iter().filter(|event| !matches!(event, NetEvent::Message { .. }));
    let lines: Vec<_> = lines.filter(|event| !matches!(event, NetEvent::RoundTrip { .. })).collect();
    assert!(lines.is_empty() && all[1].transport.stats().refused == refused, "{lines:?}");
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let mut cfg = config(1, &[]);
    let group = group();
    cfg.multicast = Some(MulticastConfig { interface: Ipv4Addr::new(192, 0, 2, 77), ..at(group).unwrap() });
    let error = Transport::new(cfg).err().unwrap().to_string();
    assert!(error.contains("192.0.2.77") && error.contains("gmcast.mcast_addr"), "{error}");
}
