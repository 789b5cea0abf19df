//! The experiments: which points each has, what servers it needs, and how its results are shown.

pub mod durability;
pub mod faults;
pub mod insert;
pub mod oltp;
pub mod peers;
pub mod provider;
pub mod ratio;
pub mod tpcc;

use crate::field::{Context, Field};
use crate::plan::{Deployment, Experiment, Point, Servers, Settings};
use crate::record::Measured;
use crate::systems::Kind;

/// How the results of an experiment are laid out. A coordinate is `system`, `nodes`, or the name of something that a point has set.
pub struct Layout {
    pub title: &'static str,
    /// The procedure in words, for the report. `docs/benchmarks/README.md` says more.
    pub about: &'static str,
    pub values: &'static [Value],
    /// Those of the values that are also shown in units of the lone server and of Galera.
    pub ratios: &'static [usize],
    pub rows: &'static [&'static str],
    /// Empty: a column for each value.
    pub columns: &'static [&'static str],
    /// The coordinate of the x axis; `None`: no curves.
    pub x: Option<&'static str>,
    pub x_title: &'static str,
    /// One figure for each value of these. With a `?` before it: one for the points that have it, and one for the others.
    pub figures: &'static [&'static str],
    /// The experiment that was published, as a table in Markdown with its label. Never part of a graph or a ratio.
    pub published: &'static str,
}

impl Layout {
    /// One table with a row for each deployment and a column for each value, and no curves.
    pub const TABLE: Layout = Layout {
        title: "",
        about: "",
        values: &[],
        ratios: &[0],
        rows: &["system", "nodes"],
        columns: &[],
        x: None,
        x_title: "",
        figures: &[],
        published: "",
    };
}

pub struct Value {
    pub name: &'static str,
    pub title: &'static str,
    pub decimals: usize,
}

pub const fn value(name: &'static str, title: &'static str, decimals: usize) -> Value {
    Value { name, title, decimals }
}

pub fn layout(experiment: Experiment) -> &'static Layout {
    match experiment {
        Experiment::Insert => &insert::LAYOUT,
        Experiment::Ratio => &ratio::LAYOUT,
        Experiment::Oltp => &oltp::LAYOUT,
        Experiment::Tpcc => &tpcc::LAYOUT,
        Experiment::Durability => &durability::LAYOUT,
        Experiment::Peers => &peers::LAYOUT,
        Experiment::Faults => &faults::LAYOUT,
        Experiment::Provider => &provider::LAYOUT,
    }
}

/// Each point once.
pub fn points(experiment: Experiment, settings: &Settings) -> Vec<Point> {
    match experiment {
        Experiment::Insert => insert::points(settings),
        Experiment::Ratio => ratio::points(settings),
        Experiment::Oltp => oltp::points(settings),
        Experiment::Tpcc => tpcc::points(settings),
        Experiment::Durability => durability::points(settings),
        Experiment::Peers => peers::points(settings),
        Experiment::Faults => faults::points(settings),
        Experiment::Provider => provider::points(settings),
    }
}

pub fn servers(point: &Point, _settings: &Settings) -> Servers {
    let Ok(system) = point.system() else { return Servers::None };
    let deployment = |options: Vec<String>, netns| Deployment { system, nodes: point.nodes, options, netns };
    match point.experiment {
        Experiment::Insert | Experiment::Ratio | Experiment::Tpcc => Servers::Shared(deployment(Vec::new(), false)),
        Experiment::Oltp => Servers::Shared(deployment(oltp::options(point), false)),
        Experiment::Durability => Servers::Shared(deployment(durability::options(), false)),
        Experiment::Peers if matches!(system.kind(), Kind::Postgres | Kind::Etcd | Kind::Mysql) => Servers::None,
        Experiment::Peers => Servers::Own(deployment(Vec::new(), false)),
        Experiment::Faults => Servers::Own(deployment(Vec::new(), faults::can_cut())),
        Experiment::Provider => Servers::None,
    }
}

/// Seconds that a point takes by and large, without the start of its servers.
pub fn seconds(point: &Point, settings: &Settings) -> f64 {
    let once = 1.2 * settings.duration;
    match point.experiment {
        Experiment::Insert | Experiment::Ratio | Experiment::Oltp | Experiment::Provider => once + 1.0,
        Experiment::Durability => once + 1.5,
        Experiment::Tpcc => once + settings.by_preset(2.0, 10.0, 300.0),
        Experiment::Peers => once * 3.0 + 4.5 * settings.duration.clamp(0.5, 10.0) + 8.0,
        Experiment::Faults => faults::seconds(settings) + 15.0,
    }
}

/// How large a point is, beside the published one.
pub fn size(experiment: Experiment, settings: &Settings) -> String {
    match experiment {
        Experiment::Insert => insert::size(settings),
        Experiment::Ratio => ratio::size(settings),
        Experiment::Oltp => oltp::size(settings),
        Experiment::Tpcc => tpcc::size(settings),
        Experiment::Durability => durability::size(settings),
        Experiment::Peers => peers::size(settings),
        Experiment::Faults => faults::size(settings),
        Experiment::Provider => provider::size(settings),
    }
}

/// Programs without which it cannot be measured, each with the package that has it.
pub fn tools(experiment: Experiment) -> &'static [(&'static str, &'static str)] {
    match experiment {
        Experiment::Insert => &[("mariadb-slap", "mariadb-client")],
        Experiment::Oltp | Experiment::Durability => &[("sysbench", "sysbench")],
        Experiment::Ratio | Experiment::Tpcc | Experiment::Peers | Experiment::Faults | Experiment::Provider => &[],
    }
}

/// Measures a point. `field`: the servers that [`servers`] asked for.
pub fn run(context: &Context, point: &Point, field: Option<&mut Field>) -> Result<Measured, String> {
    match (point.experiment, field) {
        (Experiment::Insert, Some(field)) => insert::run(context, point, field),
        (Experiment::Ratio, Some(field)) => ratio::run(context, point, field),
        (Experiment::Oltp, Some(field)) => oltp::run(context, point, field),
        (Experiment::Tpcc, Some(field)) => tpcc::run(context, point, field),
        (Experiment::Durability, Some(field)) => durability::run(context, point, field),
        (Experiment::Peers, field) => peers::run(context, point, field),
        (Experiment::Faults, Some(field)) => faults::run(context, point, field),
        (Experiment::Provider, None) => provider::run(context, point),
        (experiment, _) => Err(format!("{experiment} without its servers")),
    }
}
