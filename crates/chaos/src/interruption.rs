//! Stops and starts that do not come to their end: when they are struck, by what, and whether that was in time.

use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};
use trireme_cluster::{Cluster, Dice, Liveness, LogCursor, NodeId, Result, START_LINES, Start, Stop, until};

/// A stop takes a third of a second on an idle machine, and one second on a busy one. Later moments: [`StopMoment::Recorded`].
const STOP_BEGINS_MS: u64 = 250;
/// It has ended by then in any case.
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// The last word of a server that has stopped.
const STOPPED: &str = ": Shutdown complete";
/// A start has come by its moment, or to its end, by then.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The last word of a start.
const STARTED: &str = "WSREP: Synchronized with group, ready for connections";

/// The end of a server that does not come to it by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    Kill,
    /// It takes along what the disk had not got.
    PowerCut,
}

impl Blow {
    pub fn strike(self, cluster: &mut Cluster, node: NodeId) -> Result<()> {
        match self {
            Blow::Kill => cluster.stop(node, Stop::Kill),
            Blow::PowerCut => cluster.cut_power(&[node]),
        }
    }
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Blow::Kill => "killed",
            Blow::PowerCut => "without power",
        })
    }
}

/// When a server that was told to stop is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopMoment {
    /// As soon as its state file has a position: the provider has ended, and the storage engine has not.
    Recorded,
    /// So long after it was told.
    After(Duration),
}

impl StopMoment {
    pub fn draw(dice: &mut Dice) -> StopMoment {
        let some_time = StopMoment::After(Duration::from_millis(dice.below(STOP_BEGINS_MS)));
        if dice.one_in(2) { StopMoment::Recorded } else { some_time }
    }
}

impl fmt::Display for StopMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopMoment::Recorded => f.write_str("when its stop was recorded"),
            StopMoment::After(time) => write!(f, "{} ms into its stop", time.as_millis()),
        }
    }
}

/// When a server that starts after a crash is struck, in the order in which a start comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartMoment {
    EngineAsked,
    PositionKnown,
    CatchUpBegun,
    EngineOpen,
    /// Clients may connect, and it is not Synced yet.
    Serving,
}

impl StartMoment {
    pub const ALL: [StartMoment; 5] = [
        StartMoment::EngineAsked,
        StartMoment::PositionKnown,
        StartMoment::CatchUpBegun,
        StartMoment::EngineOpen,
        StartMoment::Serving,
    ];

    pub fn draw(dice: &mut Dice) -> StartMoment {
        StartMoment::ALL[dice.below(StartMoment::ALL.len() as u64) as usize]
    }

    fn line(self) -> &'static str {
        let [asked, known, begun, open] = START_LINES;
        match self {
            StartMoment::EngineAsked => asked,
            StartMoment::PositionKnown => known,
            StartMoment::CatchUpBegun => begun,
            StartMoment::EngineOpen => open,
            StartMoment::Serving => ": ready for connections",
        }
    }

    /// Not every start comes by every moment: the next one stands in for it.
    fn is_reached(self, said: &[String]) -> bool {
        let from_here = || StartMoment::ALL.into_iter().skip_while(|moment| *moment != self);
        said.iter().any(|line| from_here().any(|moment| line.contains(moment.line())))
    }
}

impl fmt::Display for StartMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StartMoment::EngineAsked => "as its start asked the engine",
            StartMoment::PositionKnown => "as its start knew its position",
            StartMoment::CatchUpBegun => "as its start caught up",
            StartMoment::EngineOpen => "as its start opened the engine",
            StartMoment::Serving => "as its start let clients in",
        })
    }
}

/// A stop or a start that was to be cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    pub course: Course,
    pub end: CourseEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Course {
    Stop,
    Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CourseEnd {
    CutShort,
    /// It was over before it was struck, and the round shows nothing about cutting it short.
    Completed,
}

impl Course {
    pub(crate) const ALL: [Course; 2] = [Course::Stop, Course::Start];

    fn ended(self, said: &[String], last_word: &str) -> Attempt {
        let completed = said.iter().any(|line| line.ends_with(last_word));
        Attempt { course: self, end: if completed { CourseEnd::Completed } else { CourseEnd::CutShort } }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Course::Stop => "stops",
            Course::Start => "starts",
        })
    }
}

/// Tells a running server to stop, and strikes it meanwhile.
pub(crate) fn cut_stop_short(cluster: &mut Cluster, node: NodeId, moment: StopMoment, blow: Blow) -> Result<Attempt> {
    let state = cluster.node(node)?.data().join("grastate.dat");
    let mut log = LogCursor::at_end(&cluster.node(node)?.log());
    cluster.ask_to_stop(node)?;
    let told = Instant::now();
    until(format!("the moment to strike {node} in its stop"), STOP_LIMIT, cluster.cancel(), || {
        let reached = match moment {
            StopMoment::Recorded => std::fs::read_to_string(&state).is_ok_and(|text| !text.contains("seqno:   -1")),
            StopMoment::After(time) => told.elapsed() >= time,
        };
        let over = cluster.liveness(node)? == Liveness::Gone;
        Ok(if reached || over { Ok(()) } else { Err("it still ends".to_owned()) })
    })?;
    blow.strike(cluster, node)?;
    Ok(Course::Stop.ended(&log.lines(), STOPPED))
}

/// Ends a server by `first`, starts it again, and cuts its power meanwhile.
pub(crate) fn cut_start_short(
    cluster: &mut Cluster,
    node: NodeId,
    first: Blow,
    moment: StartMoment,
    how: Start,
) -> Result<Attempt> {
    first.strike(cluster, node)?;
    let mut log = LogCursor::at_end(&cluster.node(node)?.log());
    let mut said = Vec::new();
    cluster.launch(node, how)?;
    until(format!("the moment to strike {node} in its start"), START_LIMIT, cluster.cancel(), || {
        said.extend(log.lines());
        let over = cluster.liveness(node)? == Liveness::Gone;
        Ok(if moment.is_reached(&said) || over { Ok(()) } else { Err(said.last().cloned().unwrap_or_default()) })
    })?;
    Blow::PowerCut.strike(cluster, node)?;
    said.extend(log.lines());
    Ok(Course::Start.ended(&said, STARTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| format!("2026-11-28  8:55:19 0 [Note] {line}")).collect()
    }

    #[test]
    fn a_moment_that_a_start_does_not_come_by_is_that_of_the_next_one() {
        let lines = said(&["WSREP: recovered position 220e8c98-4b20-49c3-b00d-3146b381bd04:1706"]);
        assert!(StartMoment::EngineAsked.is_reached(&lines));
        assert!(StartMoment::PositionKnown.is_reached(&lines));
        assert!(!StartMoment::CatchUpBegun.is_reached(&lines));
        let lines = said(&["WSREP: Server initialized"]);
        assert!(StartMoment::CatchUpBegun.is_reached(&lines));
        assert!(!StartMoment::Serving.is_reached(&lines));
        assert!(StartMoment::Serving.is_reached(&said(&["mariadbd: ready for connections."])));
    }

    #[test]
    fn what_had_come_to_its_end_was_not_cut_short() {
        let stop = |lines: &[&str]| Course::Stop.ended(&said(lines), STOPPED).end;
        let ends = "mariadbd (initiated by: unknown): Normal shutdown";
        assert_eq!(stop(&[ends, "Shutdown completed; log sequence number 15; transaction id 4"]), CourseEnd::CutShort);
        assert_eq!(stop(&[ends, "mariadbd: Shutdown complete"]), CourseEnd::Completed);
        let start = |lines: &[&str]| Course::Start.ended(&said(lines), STARTED).end;
        assert_eq!(start(&["mariadbd: ready for connections."]), CourseEnd::CutShort);
        assert_eq!(start(&["WSREP: Synchronized with group, ready for connections"]), CourseEnd::Completed);
    }
}
