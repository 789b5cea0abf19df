//! The process-wide switch has a test binary of its own, since it cuts every transport of the process.

use std::time::{Duration, Instant};

use trireme_transport::{
    InvalidIsolation, Isolation, NetConfig, NetEvent, Transport, isolate_all, isolation_of_process,
};
use trireme_types::{Member, NodeId, Uuid};

fn node(n: u8, seed: Option<u16>) -> (Transport, Vec<NetEvent>) {
    let me = Member { node: NodeId(Uuid([n; 16])), address: "127.0.0.1:0".to_owned(), ..Member::default() };
    let mut cfg = NetConfig::new(me, "test");
    cfg.listen = vec!["127.0.0.1:0".to_owned()];
    cfg.seeds = seed.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    (Transport::new(cfg).unwrap(), Vec::new())
}

fn until(nodes: &mut [(Transport, Vec<NetEvent>); 2], done: impl Fn(&[(Transport, Vec<NetEvent>); 2]) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done(nodes) {
        assert!(Instant::now() < end, "{:?} {:?}", nodes[0].1, nodes[1].1);
        for (transport, events) in nodes.iter_mut() {
            transport.poll(Some(Duration::from_millis(1)), events);
        }
    }
}

fn ups_and_downs((_, events): &(Transport, Vec<NetEvent>)) -> (usize, usize) {
    let count = |wanted: fn(&NetEvent) -> bool| events.iter().filter(|event| wanted(event)).count();
    (count(|event| matches!(event, NetEvent::LinkUp { .. })), count(|event| matches!(event, NetEvent::LinkDown { .. })))
}

#[test]
fn the_process_is_cut_off_and_comes_back() {
    let a = node(1, None);
    let port = a.0.listen_port();
    let mut nodes = [a, node(2, Some(port))];
    until(&mut nodes, |nodes| nodes.iter().all(|node| ups_and_downs(node) == (1, 0)));

    assert_eq!(isolate_all(3), Err(InvalidIsolation(3)));
    assert_eq!(isolation_of_process(), Isolation::Off);
    isolate_all(1).unwrap();
    // From outside, before any transport has run: the listener is dead already.
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    until(&mut nodes, |nodes| nodes.iter().all(|node| ups_and_downs(node) == (1, 1)));
    assert_eq!(nodes[0].0.isolation(), Isolation::On);

    isolate_all(0).unwrap();
    until(&mut nodes, |nodes| nodes.iter().all(|node| ups_and_downs(node) == (2, 1)));
    assert_eq!(nodes[0].0.listen_port(), port);

    // On and off again between two polls: the sockets are dead although the mode is off.
    isolate_all(2).unwrap();
    isolate_all(0).unwrap();
    until(&mut nodes, |nodes| nodes.iter().all(|node| ups_and_downs(node) == (3, 2)));
}
