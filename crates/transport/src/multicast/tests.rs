//! A stream from one end to the other, by a network that loses, repeats and reorders.

use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_types::SplitMix;

use super::datagram::{DATAGRAM_MAX, MESSAGE_MAX, PART_MAX, WHOLE_MAX, address};
use super::hearing::{Hearing, ON_LINK, Turn};
use super::incoming::{HELD_MAX, Incoming};
use super::outgoing::Outgoing;

fn body(n: u64, len: usize) -> Bytes {
    let mut random = SplitMix(n);
    (0..len).map(|_| random.next() as u8).collect::<Vec<_>>().into()
}

fn push(out: &mut Outgoing, message: &Bytes, wire: &mut Vec<Vec<u8>>) {
    // In two parts, as messages come.
    let at = message.len() / 3;
    out.push(&[message.slice(..at), message.slice(at..)], &mut |datagram| wire.push(datagram.to_vec()));
}

fn flush(out: &mut Outgoing, wire: &mut Vec<Vec<u8>>) {
    out.flush(&mut |datagram| wire.push(datagram.to_vec()));
}

fn receive(incoming: &mut Incoming, datagram: &[u8]) -> (bool, Vec<Bytes>) {
    let mut got = Vec::new();
    let (_, number) = address(datagram).unwrap();
    let taken = incoming.receive(number, datagram, &mut |whole| got.push(whole));
    (taken, got)
}

fn ends(sealed: bool) -> (Outgoing, Incoming) {
    let out = Outgoing::new(sealed).unwrap();
    let incoming = Incoming::new(out.stream, out.key.as_ref(), 0).unwrap();
    (out, incoming)
}

#[test]
fn messages_of_all_sizes_arrive_and_small_ones_share_a_datagram() {
    for sealed in [false, true] {
        let (mut out, mut incoming) = ends(sealed);
        let sizes =
            [0, 1, 100, 100, WHOLE_MAX - 1, WHOLE_MAX, WHOLE_MAX + 1, PART_MAX * 2, PART_MAX * 2 + 1, MESSAGE_MAX];
        let sent: Vec<Bytes> = sizes.iter().enumerate().map(|(n, len)| body(n as u64, *len)).collect();
        let mut wire = Vec::new();
        sent.iter().for_each(|message| push(&mut out, message, &mut wire));
        flush(&mut out, &mut wire);
        assert!(wire.iter().all(|datagram| datagram.len() <= DATAGRAM_MAX));
        // Four small ones; two that fill one each; then 2, 2, 3 and 48 parts.
        assert_eq!(wire.len(), 1 + 2 + 2 + 2 + 3 + 48);
        assert_eq!(out.number, wire.len() as u64);
        let got: Vec<Bytes> = wire.iter().flat_map(|datagram| receive(&mut incoming, datagram).1).collect();
        assert!(got == sent);
        assert_eq!((incoming.heard, incoming.held()), (out.number, 0));
    }
}

#[test]
fn what_was_changed_repeated_or_sent_by_others_counts_not() {
    for sealed in [false, true] {
        let (mut out, mut incoming) = ends(sealed);
        let mut wire = Vec::new();
        let text = body(1, 300);
        push(&mut out, &text, &mut wire);
        flush(&mut out, &mut wire);
        for at in 8..wire[0].len() {
            let mut changed = wire[0].clone();
            changed[at] ^= 1;
            assert_eq!(receive(&mut incoming, &changed), (false, Vec::new()), "{at}");
            assert_eq!(receive(&mut incoming, &changed[..at.max(16)]), (false, Vec::new()), "{at}");
        }
        assert_eq!(receive(&mut incoming, &wire[0]), (true, vec![text]));
        assert_eq!(receive(&mut incoming, &wire[0]), (false, Vec::new()));
        assert_eq!(incoming.heard, 1);
        // Under another key, or none.
        let mut other = Incoming::new(out.stream, Some(&[1; 32]), 0).unwrap();
        assert_eq!(receive(&mut other, &wire[0]), (false, Vec::new()));
        // Before the announcement.
        let mut later = Incoming::new(out.stream, out.key.as_ref(), 1).unwrap();
        assert_eq!(receive(&mut later, &wire[0]), (false, Vec::new()));
    }
    let (mut out, _) = ends(true);
    let mut wire = Vec::new();
    push(&mut out, &Bytes::from_static(b"a word that can be read"), &mut wire);
    flush(&mut out, &mut wire);
    assert!(!wire[0].windows(4).any(|piece| piece == b"word"));
}

#[test]
fn what_comes_too_late_is_refused_and_numbers_may_jump() {
    let (mut out, mut incoming) = ends(false);
    let mut wire = Vec::new();
    for _ in 0..5000 {
        out.probe(&mut |datagram| wire.push(datagram.to_vec()));
    }
    for (number, taken) in [
        (10, true),
        (0, true),
        (1024, true),
        (10, false),
        (1, true),
        (0, false),
        (4999, true),
        (3975, false),
        (3976, true),
        (3976, false),
    ] {
        assert_eq!(receive(&mut incoming, &wire[number]).0, taken, "{number}");
    }
    // Nothing of before the jump is taken for seen.
    assert!((4000..4999).all(|number| receive(&mut incoming, &wire[number]).0));
}

#[test]
fn loss_repetition_and_disorder_lose_what_was_lost_and_nothing_more() {
    for seed in 0..40 {
        let mut random = SplitMix(seed);
        let (mut out, mut incoming) = ends(seed % 2 == 0);
        let (mut wire, mut sent) = (Vec::new(), Vec::new());
        for n in 0..400 {
            let limit = if random.below(10) == 0 { 12_000 } else { 900 };
            let message = body(seed * 1000 + n, random.below(limit) as usize + 8);
            push(&mut out, &message, &mut wire);
            sent.push(message);
            if random.below(3) == 0 {
                flush(&mut out, &mut wire);
            }
        }
        flush(&mut out, &mut wire);
        let loss = random.below(200);
        let mut way: Vec<Vec<u8>> = Vec::new();
        let (mut kept, mut whole) = (0, Vec::new());
        for datagram in wire {
            if random.below(1000) < loss {
                continue;
            }
            kept += 1;
            // A few places too early or late, and now and then twice.
            let places = random.below(4).min(way.len() as u64) as usize;
            if random.below(20) == 0 {
                way.push(datagram.clone());
            }
            way.insert(way.len() - places, datagram);
        }
        for datagram in &way {
            whole.extend(receive(&mut incoming, datagram).1);
            assert!(incoming.held() <= HELD_MAX);
        }
        assert_eq!(incoming.heard, kept, "each that came counts once");
        let mut left: Vec<&Bytes> = sent.iter().collect();
        for got in &whole {
            let at = left.iter().position(|message| *message == got).expect("sent, and not heard twice");
            left.remove(at);
        }
        assert!(loss > 0 || left.is_empty(), "seed {seed}: {} are missing", left.len());
        assert!(whole.len() > 50, "seed {seed}: {}", whole.len());
    }
}

#[test]
fn messages_that_never_become_whole_take_little_memory() {
    let (mut out, mut incoming) = ends(false);
    for n in 0..100 {
        let mut wire = Vec::new();
        push(&mut out, &body(n, MESSAGE_MAX), &mut wire);
        wire[1..].iter().for_each(|datagram| assert_eq!(receive(&mut incoming, datagram), (true, Vec::new())));
        assert!(incoming.held() <= HELD_MAX);
    }
}

/// The judgement of `hearing` when so many of so many were heard since the last time.
struct Judged {
    hearing: Hearing,
    now: Instant,
    sent: u64,
    heard: u64,
}

impl Judged {
    fn new() -> Judged {
        let mut judged = Judged { hearing: Hearing::new(), now: Instant::now(), sent: 0, heard: 0 };
        assert_eq!(judged.after(0, 0), None);
        judged
    }

    fn after(&mut self, sent: u64, heard: u64) -> Option<Turn> {
        (self.sent, self.heard) = (self.sent + sent, self.heard + heard);
        self.hearing.on_answer(self.sent, self.heard, self.now)
    }

    fn hears() -> Judged {
        let mut judged = Judged::new();
        assert_eq!(judged.after(20, 20), Some(Turn::Hears));
        judged
    }
}

#[test]
fn a_peer_has_to_show_that_it_hears() {
    let mut judged = Judged::new();
    assert!(!judged.hearing.hears());
    // Probes only: it takes a few.
    assert_eq!([1, 1, 1, 1].map(|n| judged.after(n, n)), [None, None, None, Some(Turn::Hears)]);
    assert!(judged.hearing.hears());
    let mut deaf = Judged::new();
    assert!((0..100).all(|_| deaf.after(5, 0).is_none()));
    assert!(!deaf.hearing.hears());
}

#[test]
fn a_peer_that_misses_much_goes_to_its_link_for_a_while() {
    let mut judged = Judged::hears();
    // One of few is an accident; what was under way is heard later.
    assert_eq!((judged.after(100, 97), judged.after(100, 103)), (None, None));
    assert_eq!((judged.after(16, 15), judged.after(1000, 950)), (None, None));
    assert!(judged.hearing.hears());
    assert_eq!(judged.after(100, 94), Some(Turn::Misses { missed: 6, of: 100 }));
    assert!(!judged.hearing.hears());
    assert_eq!(judged.after(100, 100), None, "not at once");
    judged.now += ON_LINK;
    assert_eq!(judged.after(100, 50), None, "nor while it misses much");
    assert_eq!(judged.after(100, 100), Some(Turn::Hears));
    assert_eq!(judged.after(40, 0), Some(Turn::Misses { missed: 40, of: 40 }));
    assert_eq!(judged.hearing.missed, 3 + 1 + 50 + 6 + 50 + 40);
}

#[test]
fn silence_is_noticed_without_traffic_too() {
    let mut judged = Judged::hears();
    assert_eq!([1, 1, 1].map(|n| judged.after(n, 0)), [None; 3]);
    assert_eq!(judged.after(1, 0), Some(Turn::Misses { missed: 4, of: 4 }));
    judged.now += ON_LINK + Duration::from_secs(60);
    assert_eq!(judged.after(100, 0), None);
    assert!(!judged.hearing.hears());
}

#[test]
fn a_peer_that_answers_no_more_goes_to_its_link() {
    let mut judged = Judged::hears();
    let mut announced = |times: u32| {
        (0..times).for_each(|_| judged.hearing.on_announced(judged.now));
        let hears = judged.hearing.hears();
        judged.after(1, 1);
        hears
    };
    assert_eq!([8, 8, 9].map(&mut announced), [true, true, false]);
}

/// Of a clear stream anybody can forge one.
#[test]
fn numbers_that_the_sender_cannot_have_reached_are_refused() {
    let (mut out, mut incoming) = ends(false);
    let mut wire = Vec::new();
    for number in [0, 1 << 19, 1 << 21, u64::MAX - 1] {
        out.number = number;
        out.probe(&mut |datagram| wire.push(datagram.to_vec()));
    }
    let taken = |incoming: &mut Incoming| wire.iter().map(|one| receive(incoming, one).0).collect::<Vec<_>>();
    assert_eq!(taken(&mut incoming), [true, true, false, false]);
    incoming.announced(1 << 20);
    assert_eq!(taken(&mut incoming), [false, false, true, false]);
}

#[test]
fn parts_of_another_message_complete_none() {
    let (mut out, mut incoming) = ends(false);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    push(&mut out, &body(1, PART_MAX * 2), &mut one);
    push(&mut out, &body(2, PART_MAX * 2), &mut other);
    assert_eq!(receive(&mut incoming, &one[0]), (true, Vec::new()));
    assert_eq!(receive(&mut incoming, &other[1]), (true, Vec::new()));
    assert_eq!(receive(&mut incoming, &other[0]), (true, vec![body(2, PART_MAX * 2)]));
}

#[test]
fn a_peer_that_lies_about_what_it_hears_brings_about_no_more_than_that() {
    let mut judged = Judged::hears();
    for (sent, heard) in [(u64::MAX, 0), (0, u64::MAX), (5, 3), (0, 0), (u64::MAX, u64::MAX)] {
        let _ = judged.hearing.on_answer(sent, heard, judged.now);
    }
}

#[test]
fn any_datagrams_are_survived() {
    let seeds = super::fuzz_seeds();
    seeds.iter().for_each(|seed| super::fuzz(seed));
    let mut random = SplitMix(1);
    for _ in 0..20_000 {
        let mut data = seeds[0].repeat(1 + random.below(3) as usize);
        for _ in 0..random.below(6) {
            let at = random.below(data.len() as u64) as usize;
            match random.below(3) {
                0 => data[at] = random.next() as u8,
                1 => data.truncate(at.max(1)),
                _ => data.insert(at, random.next() as u8),
            }
        }
        super::fuzz(&data);
    }
}
