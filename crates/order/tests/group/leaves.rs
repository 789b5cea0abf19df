//! Members that leave at about the same time.

use std::time::Duration;

use trireme_order::{Event, Timeouts};

use crate::net::{Net, node};

/// The leavers leave in this order, each when so many messages have been delivered since the one before. One that is out hangs up, as its
/// driver does. Gives the time until all are out.
fn time_to_leave(members: u8, leavers: &[u8], messages: usize, busy: bool) -> Duration {
    let mut net = Net::cluster(members);
    let begun = net.now;
    if busy {
        (1..=members).for_each(|n| net.propose(n, "x"));
    }
    for n in leavers {
        let now = net.now;
        net.nodes.get_mut(n).unwrap().group.leave(now);
        net.drain(*n);
        for _ in 0..messages {
            let Some((from, to, message)) = net.queue.pop_front() else { break };
            net.nodes.get_mut(&to).unwrap().group.handle_message(now, node(from), message);
            net.drain(to);
        }
    }
    let mut left: Vec<u8> = leavers.to_vec();
    while !left.is_empty() {
        net.run(Duration::from_millis(10));
        let out: Vec<u8> = left.iter().copied().filter(|n| net.nodes[n].events.contains(&Event::Left)).collect();
        for n in out {
            assert!(!net.warned(n, "could not be ordered"), "{leavers:?} of {members}, {messages} messages apart");
            net.kill(n);
            left.retain(|l| *l != n);
        }
    }
    net.now.since(begun)
}

#[test]
fn whoever_leaves_beside_others_is_out_soon() {
    let mut slow = Vec::new();
    for (members, leavers) in [
        (2, vec![1, 2]),
        (2, vec![2, 1]),
        (3, vec![1, 2]),
        (3, vec![2, 1]),
        (3, vec![2, 3]),
        (3, vec![1, 2, 3]),
        (3, vec![3, 2, 1]),
        (5, vec![1, 2, 3, 4]),
        (5, vec![4, 3, 2, 1]),
        (5, vec![1, 2, 3, 4, 5]),
    ] {
        for messages in 0..40 {
            for busy in [false, true] {
                let took = time_to_leave(members, &leavers, messages, busy);
                // Where nobody is left to order it, a leave ends as the loss of a majority does.
                if took > Timeouts::default().suspect + Duration::from_secs(1) {
                    slow.push((members, leavers.clone(), messages, busy, took));
                }
            }
        }
    }
    assert!(slow.is_empty(), "{} slow: {slow:?}", slow.len());
}
