//! The plan of a run: a list of points. It is made from the arguments alone, so that the same command gives the same list.

use crate::args::{Disks, Measure, Preset};
use crate::experiments;
use crate::systems::System;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    Insert,
    Ratio,
    Oltp,
    Tpcc,
    Durability,
    Peers,
    Faults,
    Provider,
}

impl Experiment {
    pub const ALL: [Experiment; 8] = [
        Experiment::Insert,
        Experiment::Ratio,
        Experiment::Oltp,
        Experiment::Tpcc,
        Experiment::Durability,
        Experiment::Peers,
        Experiment::Faults,
        Experiment::Provider,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Experiment::Insert => "insert",
            Experiment::Ratio => "ratio",
            Experiment::Oltp => "oltp",
            Experiment::Tpcc => "tpcc",
            Experiment::Durability => "durability",
            Experiment::Peers => "peers",
            Experiment::Faults => "faults",
            Experiment::Provider => "provider",
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    pub experiment: Experiment,
    /// A system's name, or in `provider` a library's label.
    pub system: String,
    pub nodes: u8,
    /// The other settings that tell this point from others of its experiment: `threads`, `rows`, …
    pub set: BTreeMap<String, String>,
    /// From 1.
    pub repeat: u32,
}

impl Point {
    pub fn new(experiment: Experiment, system: impl Into<String>, nodes: u8) -> Point {
        Point { experiment, system: system.into(), nodes, set: BTreeMap::new(), repeat: 1 }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Point {
        self.set.insert(name.to_owned(), value.to_string());
        self
    }

    pub fn text(&self, name: &str) -> &str {
        self.set.get(name).map_or("", String::as_str)
    }

    /// A number among what is set.
    pub fn number(&self, name: &str) -> Result<u32, String> {
        self.text(name).parse().map_err(|_| format!("a point of {} without {name}", self.experiment))
    }

    pub fn system(&self) -> Result<System, String> {
        clap::ValueEnum::from_str(&self.system, false)
    }

    /// The name of its file.
    pub fn id(&self) -> String {
        let set: Vec<String> = self.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let words =
            [vec![self.experiment.name().to_owned(), self.system.clone(), format!("n{}", self.nodes)], set].concat();
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-=+_".contains(c) { c } else { '_' };
        let word = |word: &String| word.chars().map(plain).collect::<String>();
        format!("{}.r{}", words.iter().map(word).collect::<Vec<_>>().join("."), self.repeat)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}, {} node{}",
            self.experiment,
            self.system,
            self.nodes,
            if self.nodes == 1 { "" } else { "s" }
        )?;
        for (name, value) in &self.set {
            write!(f, ", {name} {value}")?;
        }
        if self.repeat > 1 { write!(f, ", repeat {}", self.repeat) } else { Ok(()) }
    }
}

/// The servers that a point needs. Points that need the same ones are measured on the same ones, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// No servers: the experiment brings its own.
    None,
    Shared(Deployment),
    /// The same for nobody else: what happens to them is part of the measurement.
    Own(Deployment),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    pub system: System,
    pub nodes: u8,
    /// Lines for every `my.cnf`.
    pub options: Vec<String>,
    /// A network namespace per node, so that nodes can be cut off.
    pub netns: bool,
}

/// All numbers that follow from the arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub preset: Preset,
    pub systems: Vec<System>,
    /// Empty: the experiment's own.
    pub nodes: Vec<u8>,
    pub scale: f64,
    /// Seconds.
    pub duration: f64,
    /// Empty: the experiment's own.
    pub threads: Vec<u32>,
    pub repeat: u32,
    /// Measured once, whatever `repeat` says.
    #[serde(default)]
    pub once: Vec<Experiment>,
    pub cpu_per_node: Option<f64>,
    pub disks: Disks,
    /// Of `--disks separate`, where it was given.
    #[serde(default)]
    pub disk_model: crate::disks::Asked,
    pub write_sets: Vec<String>,
    pub sizes: Vec<usize>,
    pub rows: u64,
    /// Milliseconds between nodes in `provider`. Empty: the experiment's own.
    #[serde(default)]
    pub rtt: Vec<f64>,
    /// Labels of further libraries in `provider`.
    pub libraries: Vec<String>,
    /// In `provider`: ours also with nothing measured.
    #[serde(default)]
    pub unmeasured: bool,
    pub options: Vec<String>,
    pub provider_options: String,
}

impl Settings {
    pub fn of(asked: &Measure) -> Settings {
        let (scale, duration, repeat) = match asked.preset {
            Preset::Tiny => (0.0001, 0.7, 1),
            Preset::Quick => (0.005, 2.0, 1),
            Preset::Report => (0.005, 1.5, 2),
            Preset::Full => (0.1, 10.0, 3),
        };
        let write_sets = match (asked.write_sets.is_empty(), asked.preset) {
            (false, _) => asked.write_sets.clone(),
            (true, Preset::Quick | Preset::Report) => vec!["rows".to_owned()],
            (true, Preset::Tiny | Preset::Full) => vec!["rows".to_owned(), "statements".to_owned()],
        };
        // Loading the tables, starting servers and waiting for them takes most of the time of these.
        let once = match (asked.preset, asked.repeat) {
            (Preset::Report, None) => {
                vec![Experiment::Tpcc, Experiment::Peers, Experiment::Faults, Experiment::Provider]
            }
            _ => Vec::new(),
        };
        Settings {
            preset: asked.preset,
            systems: asked.systems.clone(),
            nodes: asked.nodes.clone(),
            scale: asked.scale.unwrap_or(scale),
            duration: asked.duration.unwrap_or(duration),
            threads: asked.threads.clone(),
            repeat: asked.repeat.unwrap_or(repeat),
            once,
            cpu_per_node: asked.cpu_per_node,
            disks: asked.disks,
            disk_model: crate::disks::Asked { sync_us: asked.disk_sync, mib_us: asked.disk_per_mib },
            write_sets,
            sizes: asked.sizes.clone(),
            rows: asked.rows,
            rtt: asked.rtt.clone(),
            libraries: asked.library.iter().map(|subject| subject.label.clone()).collect(),
            unmeasured: asked.unmeasured,
            options: asked.options.clone(),
            provider_options: asked.provider_options.clone(),
        }
    }

    /// One of three values; in the preset `report` that of `quick`.
    pub fn by_preset<T>(&self, tiny: T, quick: T, full: T) -> T {
        match self.preset {
            Preset::Tiny => tiny,
            Preset::Quick | Preset::Report => quick,
            Preset::Full => full,
        }
    }

    /// Another value in the preset `report`.
    pub fn in_report<T>(&self, report: T, others: T) -> T {
        if self.preset == Preset::Report { report } else { others }
    }

    /// MiB of a node's disk with `--disks separate`.
    pub fn disk_mib(&self) -> u32 {
        self.by_preset(900, 1500, 12_000)
    }

    /// The systems to measure of those that an experiment knows; `usual` unless some are named.
    pub fn systems_of(&self, usual: &[System], known: &[System]) -> Vec<System> {
        match self.systems.is_empty() {
            true => usual.to_vec(),
            false => self.systems.iter().copied().filter(|system| known.contains(system)).collect(),
        }
    }

    pub fn nodes_or(&self, usual: &[u8]) -> Vec<u8> {
        if self.nodes.is_empty() { usual.to_vec() } else { self.nodes.clone() }
    }

    /// Numbers of nodes where the throughput over them is the subject. With a share of the processor for each it is a curve, and the scale
    /// model needs one and two.
    pub fn nodes_that_scale(&self, quick: &[u8]) -> Vec<u8> {
        let quick: &[u8] = if self.cpu_per_node.is_some() { &[1, 2, 3, 4] } else { quick };
        let tiny: &[u8] = if self.cpu_per_node.is_some() { &[1, 2] } else { &[2] };
        self.nodes_or(self.by_preset(tiny, quick, &[1, 2, 3, 4]))
    }

    pub fn threads_or(&self, usual: &[u32]) -> Vec<u32> {
        if self.threads.is_empty() { usual.to_vec() } else { self.threads.clone() }
    }

    /// Each system with each number of nodes that it can have; one server of those that have one only.
    pub fn deployments(&self, systems: &[System], nodes: &[u8]) -> Vec<(System, u8)> {
        let of = |system: &System| match system.is_single() {
            true => vec![(*system, 1)],
            false => nodes.iter().map(|nodes| (*system, *nodes)).collect(),
        };
        systems.iter().flat_map(of).collect()
    }
}

/// All points in the order in which they are measured: repeat by repeat; in each, servers by servers, the order of the systems turned by one
/// each time, so that a busy minute of the machine meets all alike.
pub fn points(experiments: &[Experiment], settings: &Settings) -> Vec<Point> {
    let once: Vec<Point> =
        experiments.iter().flat_map(|experiment| experiments::points(*experiment, settings)).collect();
    let mut groups: Vec<(Servers, Vec<Point>)> = Vec::new();
    for point in once {
        let servers = experiments::servers(&point, settings);
        match groups.iter_mut().find(|(known, _)| matches!(servers, Servers::Shared(_)) && *known == servers) {
            Some((_, group)) => group.push(point),
            None => groups.push((servers, vec![point])),
        }
    }
    let mut all = Vec::new();
    for repeat in 1..=settings.repeat {
        for (_, group) in &groups {
            let due = group.iter().filter(|point| repeat == 1 || !settings.once.contains(&point.experiment));
            all.extend(due.map(|point| Point { repeat, ..point.clone() }));
        }
        if !groups.is_empty() {
            groups.rotate_left(1);
        }
    }
    all
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::BTreeSet;

    pub fn settings(words: &[&str]) -> Settings {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            measure: Measure,
        }
        Settings::of(&<Cli as clap::Parser>::try_parse_from([&["x"], words].concat()).unwrap().measure)
    }

    #[test]
    fn every_point_has_a_file_of_its_own_in_every_preset() {
        for preset in ["tiny", "quick", "report", "full"] {
            let points = points(&Experiment::ALL, &settings(&["--preset", preset, "--repeat", "2"]));
            let ids: BTreeSet<String> = points.iter().map(Point::id).collect();
            assert_eq!(ids.len(), points.len(), "{preset}");
            for experiment in Experiment::ALL {
                assert!(points.iter().any(|point| point.experiment == experiment), "{preset}: {experiment}");
            }
        }
    }

    #[test]
    fn systems_take_turns_and_share_servers() {
        let settings = settings(&["--systems", "plain,galera-1,trireme-disk", "--nodes", "1,3", "--repeat", "3"]);
        let points = points(&[Experiment::Insert, Experiment::Ratio], &settings);
        let firsts: Vec<&str> =
            (1..=3).map(|r| points.iter().find(|p| p.repeat == r).unwrap().system.as_str()).collect();
        assert_eq!(firsts, ["plain", "galera-1", "galera-1"], "by one deployment further each time");
        // Both experiments of one deployment stand beside each other.
        let first: Vec<_> = points.iter().take_while(|p| p.system == "plain").map(|p| p.experiment).collect();
        assert!(first.contains(&Experiment::Insert) && first.contains(&Experiment::Ratio), "{first:?}");
    }

    #[test]
    fn a_report_measures_twice_what_has_a_spread() {
        let repeats = |words: &[&str], experiment: Experiment| {
            let settings = settings(&[&["--preset", "report"], words].concat());
            points(&[experiment], &settings).iter().map(|point| point.repeat).max()
        };
        assert_eq!((repeats(&[], Experiment::Ratio), repeats(&[], Experiment::Faults)), (Some(2), Some(1)));
        assert_eq!(repeats(&["--repeat", "3"], Experiment::Faults), Some(3), "what is named wins");
    }

    #[test]
    fn with_shares_of_the_processor_there_is_a_curve_over_the_nodes() {
        let nodes = |words: &[&str]| -> BTreeSet<u8> {
            let all = points(&[Experiment::Ratio, Experiment::Insert], &settings(words));
            all.iter().filter(|point| point.system == "trireme-disk").map(|point| point.nodes).collect()
        };
        assert_eq!(nodes(&["--cpu-per-node", "0.3"]), BTreeSet::from([1, 2, 3, 4]));
        assert_eq!(nodes(&["--cpu-per-node", "0.3", "--nodes", "1,5"]), BTreeSet::from([1, 5]));
    }

    #[test]
    fn what_is_named_wins_over_the_preset() {
        let settings = settings(&["--threads", "2,4", "--nodes", "2", "--systems", "trireme-disk", "--duration", "9"]);
        assert_eq!(settings.duration, 9.0);
        let points = points(&[Experiment::Oltp], &settings);
        assert!(points.iter().all(|p| p.nodes == 2 && p.system == "trireme-disk"), "{points:?}");
        assert_eq!(points.iter().map(|p| p.text("threads")).collect::<BTreeSet<_>>(), BTreeSet::from(["2", "4"]));
    }
}
