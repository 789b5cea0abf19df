//! The files of all nodes on one time line.
//!
//! Records of one node stay in the order in which it wrote them. Records about entries of the log come in the order of the log, which is the
//! same on all nodes: whoever says something about an entry says it before anybody says something about a later one. All else is put in order by
//! time, and since clocks differ, each clock is set right first: what several nodes recorded of the same entry they recorded at nearly the same
//! time, so the median of the differences is how far one clock is ahead of the other. Entries that a node read later than they were ordered
//! count for neither.

use std::collections::BTreeMap;

use trireme_types::LogIndex;

use crate::record::Record;

/// One node's records, by name.
pub struct Lane {
    pub name: String,
    /// In the order in which they were written.
    pub records: Vec<Record>,
}

/// How a node's clock stands to that of the first node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Clock {
    /// The others are measured by it.
    Reference,
    /// Ahead by so many nanoseconds; as the median of so many entries that both recorded.
    Ahead { ns: i64, entries: usize },
    /// The two have no entry in common: the clock is taken for right.
    Unknown,
}

pub struct Timeline {
    /// By lane.
    pub clocks: Vec<Clock>,
    /// Lane and place in it, in order.
    pub order: Vec<(usize, usize)>,
    /// Nanoseconds since 1970 by the clock of the reference, by lane and place.
    pub times: Vec<Vec<u64>>,
}

/// About an entry, as it was ordered.
fn entry(record: &Record) -> Option<LogIndex> {
    record.index.filter(|_| !record.late)
}

/// When each entry was first recorded by a node. An index that comes again lower begins another log: nothing is said about that one twice.
fn entries(records: &[Record]) -> BTreeMap<(u64, &'static str), u64> {
    let mut out = BTreeMap::new();
    for record in records {
        if let Some(index) = entry(record) {
            out.entry((index.0, record.event.word())).or_insert(record.unix_ns);
        }
    }
    out
}

fn ahead(of: &BTreeMap<(u64, &'static str), u64>, than: &BTreeMap<(u64, &'static str), u64>) -> Option<(i64, usize)> {
    let mut differences: Vec<i64> = of
        .iter()
        .filter_map(|(entry, time)| Some(i64::try_from(i128::from(*time) - i128::from(*than.get(entry)?)).unwrap_or(0)))
        .collect();
    differences.sort_unstable();
    let median = *differences.get(differences.len().saturating_sub(1) / 2)?;
    Some((median, differences.len()))
}

impl Timeline {
    pub fn of(lanes: &[Lane]) -> Timeline {
        let clocks = clocks(lanes);
        let times = lanes.iter().zip(&clocks).map(|(lane, clock)| times(lane, *clock)).collect::<Vec<_>>();
        let order = merge(lanes, &times);
        Timeline { clocks, order, times }
    }
}

/// The lane with the most entries, the first of several, is the reference; a lane that has none in common with it may have some with a lane that has.
fn clocks(lanes: &[Lane]) -> Vec<Clock> {
    let all: Vec<_> = lanes.iter().map(|lane| entries(&lane.records)).collect();
    let mut out = vec![Clock::Unknown; lanes.len()];
    let reference = (0..lanes.len()).max_by_key(|at| (all[*at].len(), usize::MAX - at));
    let Some(reference) = reference else { return out };
    out[reference] = Clock::Reference;
    let mut known = vec![(reference, 0_i64)];
    let mut at = 0;
    while let Some(&(lane, base)) = known.get(at) {
        at += 1;
        for other in 0..lanes.len() {
            if out[other] == Clock::Unknown
                && let Some((ns, entries)) = ahead(&all[other], &all[lane])
            {
                let ns = base.saturating_add(ns);
                out[other] = Clock::Ahead { ns, entries };
                known.push((other, ns));
            }
        }
    }
    out
}

/// Set right, and never going back within a lane.
fn times(lane: &Lane, clock: Clock) -> Vec<u64> {
    let ahead = match clock {
        Clock::Ahead { ns, .. } => ns,
        Clock::Reference | Clock::Unknown => 0,
    };
    lane.records.iter().map(|record| record.unix_ns.saturating_add_signed(ahead.saturating_neg())).collect()
}

fn merge(lanes: &[Lane], times: &[Vec<u64>]) -> Vec<(usize, usize)> {
    // For each place, the next one at or after it that is about an entry.
    let next_entry: Vec<Vec<Option<LogIndex>>> = lanes
        .iter()
        .map(|lane| {
            let mut next = vec![None; lane.records.len() + 1];
            for at in (0..lane.records.len()).rev() {
                next[at] = entry(&lane.records[at]).or(next[at + 1]);
            }
            next
        })
        .collect();
    let mut heads = vec![0; lanes.len()];
    let mut out = Vec::with_capacity(lanes.iter().map(|lane| lane.records.len()).sum());
    loop {
        let open = |lane: &usize| heads[*lane] < lanes[*lane].records.len();
        let least = (0..lanes.len()).filter(open).filter_map(|lane| next_entry[lane][heads[lane]]).min();
        // About an entry: not before all have said what they say about earlier ones. The lane with the least is never held up.
        let free = |lane: &usize| entry(&lanes[*lane].records[heads[*lane]]).is_none_or(|index| Some(index) <= least);
        let Some(lane) = (0..lanes.len()).filter(open).filter(free).min_by_key(|lane| times[*lane][heads[*lane]])
        else {
            return out;
        };
        out.push((lane, heads[lane]));
        heads[lane] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use trireme_types::Term;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: f64, index: u64, late: bool, event: Event) -> Record {
        Record {
            sequence: 0,
            unix_ns: (seconds * SECOND as f64) as u64,
            term: Term(1),
            index: (index > 0).then_some(LogIndex(index)),
            late,
            event,
        }
    }

    fn view() -> Event {
        Event::View { number: 1, seqno: Default::default(), members: Vec::new() }
    }

    fn lane(name: &str, records: Vec<Record>) -> Lane {
        Lane { name: name.into(), records }
    }

    #[test]
    fn clocks_are_set_right_by_what_all_recorded() {
        let a = lane(
            "a",
            vec![at(100.0, 5, false, view()), at(110.0, 0, false, Event::Left {}), at(120.0, 9, false, view())],
        );
        // An hour ahead.
        let b = lane(
            "b",
            vec![at(3700.01, 5, false, view()), at(3709.0, 0, false, Event::Stopped {}), at(3720.02, 9, false, view())],
        );
        // Caught up later, and has nothing in common with a, but with b.
        let c = lane("c", vec![at(50.0, 5, true, view()), at(60.0, 0, false, Event::Stopped {})]);
        let timeline = Timeline::of(&[a, b, c]);
        assert_eq!(timeline.clocks[0], Clock::Reference);
        let Clock::Ahead { ns, entries: 2 } = timeline.clocks[1] else { panic!("{:?}", timeline.clocks) };
        assert!((ns - 3600 * SECOND as i64).abs() < SECOND as i64 / 10);
        assert_eq!(timeline.clocks[2], Clock::Unknown);
        assert_eq!(timeline.order, [(2, 0), (2, 1), (0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)]);
    }

    #[test]
    fn entries_come_in_the_order_of_the_log_whatever_the_clocks_say() {
        // b's clock was set back in the middle.
        let a = lane("a", vec![at(10.0, 5, false, view()), at(20.0, 7, false, view()), at(30.0, 9, false, view())]);
        let b = lane(
            "b",
            vec![
                at(10.0, 5, false, view()),
                at(20.0, 7, false, view()),
                at(5.0, 8, false, view()),
                at(5.1, 9, false, view()),
            ],
        );
        let timeline = Timeline::of(&[a, b]);
        let indexes: Vec<u64> = timeline
            .order
            .iter()
            .map(|(lane, place)| if *lane == 0 { [5, 7, 9][*place] } else { [5, 7, 8, 9][*place] })
            .collect();
        assert!(indexes.is_sorted(), "{:?}", timeline.order);
    }

    #[test]
    fn nothing_is_lost_and_lanes_keep_their_order_whatever_is_in_them() {
        let mut random = trireme_types::SplitMix(7);
        for _ in 0..200 {
            let lanes: Vec<Lane> = (0..4)
                .map(|n| {
                    let records = (0..random.next() % 30).map(|_| {
                        at((random.next() % 100) as f64, random.next() % 20, random.next().is_multiple_of(5), view())
                    });
                    lane(&n.to_string(), records.collect())
                })
                .collect();
            let timeline = Timeline::of(&lanes);
            assert_eq!(timeline.order.len(), lanes.iter().map(|lane| lane.records.len()).sum::<usize>());
            for n in 0..4 {
                let places: Vec<usize> =
                    timeline.order.iter().filter(|(lane, _)| *lane == n).map(|(_, at)| *at).collect();
                assert!(places.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
