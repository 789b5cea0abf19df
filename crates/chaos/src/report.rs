//! The results of a run.

use crate::gaps::{SINGLE_MORE, THREADS};
use crate::interruption::{Attempt, Course, CourseEnd};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use trireme_history::Findings;

/// One or two faults and the way back.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Recovery {
    /// When the first struck, from the beginning of the load.
    pub at_ms: u64,
    pub faults: Vec<String>,
    pub lasted_ms: u64,
    /// Stops and starts that were to be cut short.
    pub attempts: Vec<Attempt>,
    /// Whether one of the nodes that ordered was hit.
    pub sequencer_hit: bool,
    /// Until the next fault: the longest time without a commit on all nodes together that were not hit; where all were, on all.
    pub gap_ms: u64,
    /// The same on one node alone that was not hit, or was back.
    pub gap_single_ms: u64,
    /// The promise for it.
    pub gap_limit_ms: Option<u64>,
    /// The same as one client saw it: the longest time without an answer to any of its operations.
    pub gap_client_ms: u64,
    /// The promise about that gap.
    pub gap_client_limit_ms: Option<u64>,
    /// Until the next fault: the longest time for which the machine kept a thread from running. Granted on top of the limit, for
    /// each of the threads that a commit passes.
    pub stall_ms: u64,
    /// Until the next fault: the longest time in which nobody was told of a commit.
    pub gap_overall_ms: u64,
    /// From the end of the fault (or the restart of the dead) until every node is Synced and answers causal reads.
    pub synced_ms: u64,
    /// Full copies (SST).
    pub copies: u32,
    /// Catch-ups from a log (IST).
    pub catch_ups: u32,
    /// Servers that ended by themselves, and why.
    pub ended: Vec<String>,
    /// It did not come back: all were killed and the most advanced one bootstrapped. The condition that had been waited for.
    pub by_hand: Option<String>,
}

impl Recovery {
    /// Gaps that are over their limit.
    pub(crate) fn broken_gaps(&self) -> Vec<String> {
        let single = self.gap_limit_ms.map(|limit| limit + SINGLE_MORE.as_millis() as u64);
        [
            (self.gap_ms, self.gap_limit_ms, "a commit on the nodes not hit"),
            (self.gap_single_ms, single, "a commit on a single node"),
            (self.gap_client_ms, self.gap_client_limit_ms, "an answer to a client"),
        ]
        .into_iter()
        .filter_map(|(gap, limit, what)| Some((gap, limit?, what)))
        .filter(|(gap, limit, _)| *gap > limit + THREADS * self.stall_ms)
        .map(|(gap, limit, what)| format!("{}: {gap} ms without {what}, of {limit}", self.faults.join(" and ")))
        .collect()
    }
}

/// Fewer attempts than this say nothing about how well the moments are chosen.
const ATTEMPTS_MIN: usize = 4;

/// How often a run cut stops short, or starts.
pub(crate) struct Tally {
    course: Course,
    cut_short: usize,
    attempts: usize,
}

impl Tally {
    /// A run that strikes too late shows nothing.
    pub fn too_few(&self) -> Option<String> {
        (self.attempts >= ATTEMPTS_MIN && 2 * self.cut_short < self.attempts)
            .then(|| format!("{self}: the others had come to their end before they were struck"))
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} cut short: {} of {}", self.course, self.cut_short, self.attempts)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub about: String,
    pub seconds: f64,
    pub ok: u64,
    pub failed: u64,
    pub unknown: u64,
    /// Acknowledged operations that changed data.
    pub commits: u64,
    /// By error number, with those of connecting.
    pub errors: BTreeMap<String, u64>,
    /// Longest time in which nobody was told of a commit.
    pub gap_overall_ms: u64,
    /// The same on the nodes together that the last fault had not hit.
    pub gap_healthy_ms: u64,
    /// The same on one node alone that had not been hit, or was back.
    pub gap_single_ms: u64,
    /// The longest time for which one client had no answer to any of its operations.
    pub gap_client_ms: u64,
    /// The same before the first fault, and what was promised of it.
    pub gap_quiet_ms: u64,
    pub gap_quiet_limit_ms: Option<u64>,
    pub stall_quiet_ms: u64,
    /// The longest time for which the machine kept a thread from running.
    pub stall_ms: u64,
    pub recoveries: Vec<Recovery>,
    /// Views (`wsrep_cluster_conf_id`) that the servers went through; unknown when the count began anew.
    pub views: Option<u64>,
    /// Why the nodes could not be shown to hold the same data; `None`: they do.
    pub difference: Option<String>,
    /// Lines of the servers' logs by which a mistake of the provider shows, each once and with its node.
    pub internal_errors: Vec<String>,
    pub findings: Findings,
    /// The broken promises; empty: all is well.
    pub broken: Vec<String>,
}

impl Report {
    pub fn copies(&self) -> u32 {
        self.recoveries.iter().map(|recovery| recovery.copies).sum()
    }

    pub fn catch_ups(&self) -> u32 {
        self.recoveries.iter().map(|recovery| recovery.catch_ups).sum()
    }

    pub fn synced_max_ms(&self) -> Option<u64> {
        self.recoveries.iter().map(|recovery| recovery.synced_ms).max()
    }

    pub fn unknown_share(&self) -> f64 {
        self.unknown as f64 / (self.ok + self.failed + self.unknown).max(1) as f64
    }

    /// How often a person had to bring the cluster back.
    pub fn by_hand(&self) -> usize {
        self.recoveries.iter().filter(|recovery| recovery.by_hand.is_some()).count()
    }

    /// How many of the stops and of the starts that were to be cut short were; of those that the run had none of, nothing.
    pub(crate) fn cut_short(&self) -> Vec<Tally> {
        let of = |course| {
            let mine = || self.recoveries.iter().flat_map(|recovery| &recovery.attempts).filter(|a| a.course == course);
            let cut_short = mine().filter(|attempt| attempt.end == CourseEnd::CutShort).count();
            Tally { course, cut_short, attempts: mine().count() }
        };
        Course::ALL.map(of).into_iter().filter(|tally| tally.attempts > 0).collect()
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = self.write(&mut out); // a String takes everything
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}", self.about)?;
        writeln!(
            out,
            "operations   {} ok, {} failed, {} unknown ({:.2} %) in {:.1} s; {} commits",
            self.ok,
            self.failed,
            self.unknown,
            100.0 * self.unknown_share(),
            self.seconds,
            self.commits
        )?;
        if !self.errors.is_empty() {
            let errors: Vec<String> = self.errors.iter().map(|(error, n)| format!("{error} ×{n}")).collect();
            writeln!(out, "errors       {}", errors.join(", "))?;
        }
        writeln!(
            out,
            "longest gap  {} ms overall, {} ms on the nodes that no fault had hit, {} ms on a single one of them, {} ms for one client, \
             {} ms before the first fault; the machine stood for {} ms",
            self.gap_overall_ms,
            self.gap_healthy_ms,
            self.gap_single_ms,
            self.gap_client_ms,
            self.gap_quiet_ms,
            self.stall_ms
        )?;
        for recovery in &self.recoveries {
            writeln!(
                out,
                "{:>7.1} s    {}{} for {:.1} s; gap {} ms{} (single node {} ms, anywhere {} ms, one client {} ms{}, machine {} ms); Synced {:.1} s later, {} catch-ups, {} full copies",
                recovery.at_ms as f64 / 1e3,
                recovery.faults.join(" and "),
                if recovery.sequencer_hit { " (the sequencer)" } else { "" },
                recovery.lasted_ms as f64 / 1e3,
                recovery.gap_ms,
                recovery.gap_limit_ms.map_or(String::new(), |limit| format!(" of {limit}")),
                recovery.gap_single_ms,
                recovery.gap_overall_ms,
                recovery.gap_client_ms,
                recovery.gap_client_limit_ms.map_or(String::new(), |limit| format!(" of {limit}")),
                recovery.stall_ms,
                recovery.synced_ms as f64 / 1e3,
                recovery.catch_ups,
                recovery.copies
            )?;
            for ended in &recovery.ended {
                writeln!(out, "             ended by itself: {ended}")?;
            }
            if let Some(why) = &recovery.by_hand {
                writeln!(out, "             brought back by hand: {why}")?;
            }
        }
        for tally in self.cut_short() {
            writeln!(out, "             {tally}")?;
        }
        if let Some(views) = self.views {
            writeln!(out, "views        {views}")?;
        }
        let equal = self.difference.as_deref().unwrap_or("equal on all nodes");
        writeln!(out, "data         {equal}")?;
        out.push_str(&describe(&self.findings));
        for broken in &self.broken {
            writeln!(out, "BROKEN       {broken}")?;
        }
        Ok(())
    }
}

/// Findings for a terminal.
pub fn describe(findings: &Findings) -> String {
    let mut out = String::new();
    if findings.classes.is_empty() {
        out.push_str("anomalies    none\n");
    }
    for (class, tally) in &findings.classes {
        let _ = writeln!(out, "anomaly      {class}: {} that count, {} allowed", tally.counted, tally.excused);
        for example in tally.examples.iter().take(2) {
            for line in example.text.lines() {
                let _ = writeln!(out, "               {line}");
            }
            if let Some(excuse) = example.excuse {
                let _ = writeln!(out, "               allowed: {excuse}");
            }
        }
    }
    if findings.incomplete {
        out.push_str("             (the search for cycles was cut short)\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_history::{Header, History, Isolation, check};

    impl Report {
        /// Of a run in which nothing happened.
        pub(crate) fn uneventful() -> Report {
            Report {
                about: String::new(),
                seconds: 1.0,
                ok: 0,
                failed: 0,
                unknown: 0,
                commits: 0,
                errors: BTreeMap::new(),
                gap_overall_ms: 0,
                gap_healthy_ms: 0,
                gap_single_ms: 0,
                gap_client_ms: 0,
                gap_quiet_ms: 0,
                gap_quiet_limit_ms: None,
                stall_quiet_ms: 0,
                stall_ms: 0,
                recoveries: Vec::new(),
                views: None,
                difference: None,
                internal_errors: Vec::new(),
                findings: check(&History { header: Header::new(Isolation::Snapshot), operations: Vec::new() }),
                broken: Vec::new(),
            }
        }
    }

    #[test]
    fn a_run_that_strikes_too_late_is_broken() {
        let too_few = |cut_short, completed| {
            let attempt = |end| Attempt { course: Course::Stop, end };
            let ends = [vec![CourseEnd::CutShort; cut_short], vec![CourseEnd::Completed; completed]].concat();
            let recoveries =
                ends.into_iter().map(|end| Recovery { attempts: vec![attempt(end)], ..Recovery::default() });
            let report = Report { recoveries: recoveries.collect(), ..Report::uneventful() };
            report.cut_short().iter().filter_map(Tally::too_few).collect::<Vec<_>>()
        };
        assert!(too_few(0, 0).is_empty());
        assert!(too_few(0, 3).is_empty(), "too few to tell");
        assert!(too_few(2, 2).is_empty());
        let said = "stops cut short: 2 of 5: the others had come to their end before they were struck";
        assert_eq!(too_few(2, 3), [said]);
    }

    #[test]
    fn a_gap_is_judged_by_its_limit_and_what_the_machine_stood() {
        let judged = |gap_ms, gap_single_ms, gap_limit_ms| {
            Recovery { gap_ms, gap_single_ms, gap_limit_ms, stall_ms: 20, ..Recovery::default() }.broken_gaps().len()
        };
        assert_eq!(judged(600, 2100, Some(500)), 0);
        assert_eq!(judged(601, 700, Some(500)), 1);
        assert_eq!(judged(100, 2101, Some(500)), 1);
        assert_eq!(judged(2600, 2700, Some(500)), 2);
        assert_eq!(judged(2600, 2700, None), 0);
        let client = |gap_client_ms| {
            Recovery { gap_client_ms, gap_client_limit_ms: Some(1000), ..Recovery::default() }.broken_gaps().len()
        };
        assert_eq!([client(1000), client(1001)], [0, 1]);
    }
}
