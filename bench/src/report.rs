//! From the files of a run to what people look at: a report in Markdown, a table for programs (CSV), and graphs.

mod durability;
mod graph;
mod scale;
mod settings;
mod statistics;
mod tables;
mod wan;

use crate::environment::Environment;
use crate::experiments::provider::UNMEASURED;
use crate::experiments::{self, Layout, Value, layout};
use crate::plan::{Experiment, Settings};
use crate::record::{Outcome, Record, read_all, read_json, write_text};
use crate::runner::Plan;
use crate::systems::System;
use graph::{Curve, Figure};
use statistics::{Cells, Key, Summary};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tables::{Column, Words};

/// The system that a group's numbers are put in relation to, beside Galera.
const ALONE: System = System::Plain;
/// Percent of the machine's processor time from which on the work of others is marked.
pub const OTHERS_MOST: f64 = 10.0;
/// Columns that are higher than this have a figure of their own.
const UNITS_MOST: f64 = 8.0;

/// Writes `report.md`, `results.csv` and the graphs of a run.
pub fn write(dir: &Path) -> Result<(), String> {
    let run = Run::read(dir)?;
    let figures = dir.join("figures");
    std::fs::create_dir_all(&figures).map_err(|e| format!("cannot create {}: {e}", figures.display()))?;
    write_text(&dir.join("results.csv"), &tables::csv(&run.records))?;
    let mut text = run.head();
    for experiment in Experiment::ALL {
        let records = run.of(experiment);
        if records.is_empty() {
            continue;
        }
        let drawn = graphs(experiment, &records);
        for figure in &drawn {
            figure.draw(&figures)?;
        }
        text.push_str(&section(experiment, &run.plan.settings, &records, &drawn));
        if matches!(experiment, Experiment::Insert | Experiment::Ratio | Experiment::Tpcc) {
            text.push_str(&scale::section(experiment, &records, run.plan.settings.cpu_per_node.is_some()));
        }
        if experiment == Experiment::Provider {
            text.push_str(&wan::section(&records));
        }
    }
    text.push_str(&settings::section(dir));
    text.push_str(&run.tail());
    write_text(&dir.join("report.md"), &text)
}

/// The runs side by side: what each measured in units of its own lone server and its own Galera. Numbers of different runs stand beside each
/// other only where machine, server and settings are the same.
pub fn compare(dirs: &[PathBuf]) -> Result<String, String> {
    let runs: Vec<Run> = dirs.iter().map(|dir| Run::read(dir)).collect::<Result<_, _>>()?;
    let mut text = "# Runs of `trireme bench` compared\n\n".to_owned();
    for (n, (dir, run)) in dirs.iter().zip(&runs).enumerate() {
        let _ = writeln!(text, "{}. `{}`: {}", n + 1, dir.display(), run.environment.began);
        for (name, version) in &run.environment.versions {
            let _ = writeln!(text, "   - {name}: {version}");
        }
    }
    let differ = differences(&runs);
    let _ = match differ.is_empty() {
        true => writeln!(
            text,
            "\nProcessor, MariaDB and settings are the same in all of them, so the numbers themselves are compared too, after the ratios. Times at \
             which a machine does other work make such numbers differ as well."
        ),
        false => writeln!(
            text,
            "\nOnly ratios within each run are compared, and no numbers of different runs, since these differ: {}.",
            differ.join(", ")
        ),
    };
    for experiment in Experiment::ALL {
        let layout = layout(experiment);
        let mut section = String::new();
        for value in layout.ratios.iter().filter_map(|at| layout.values.get(*at)) {
            let all: Vec<Cells> = runs.iter().map(|run| Cells::of(&run.of(experiment), value.name)).collect();
            for (title, base) in bases() {
                let ratios: Vec<Cells> = all.iter().map(|cells| cells.in_units_of(|key| base.key(key))).collect();
                let title = format!("{}, in units of {title} in the same run", capital(value.title));
                section.push_str(&side_by_side(&title, &ratios, 2));
            }
            if differ.is_empty() {
                section.push_str(&side_by_side(&capital(value.title), &all, value.decimals));
            }
        }
        if !section.is_empty() {
            let _ = write!(text, "\n## {}\n{section}", layout.title);
        }
    }
    Ok(text)
}

/// Why numbers of these runs cannot be compared.
fn differences(runs: &[Run]) -> Vec<&'static str> {
    let differs = |of: &dyn Fn(&Run) -> Option<String>| runs.windows(2).any(|two| of(&two[0]) != of(&two[1]));
    let mut all = Vec::new();
    if differs(&|run| run.environment.machine.get("processor").cloned()) {
        all.push("the processor");
    }
    if differs(&|run| run.environment.versions.get("MariaDB").cloned()) {
        all.push("MariaDB's version");
    }
    if runs.windows(2).any(|two| two[0].plan.settings != two[1].plan.settings) {
        all.push("the settings (`plan.json` of each has them)");
    }
    all
}

/// A row for each point that any run has, a column for each run. Nothing where no two runs share a point.
fn side_by_side(title: &str, runs: &[Cells], decimals: usize) -> String {
    let mut keys: Vec<&Key> = Vec::new();
    for key in runs.iter().flat_map(Cells::keys) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let has = |key: &Key| runs.iter().filter(|cells| cells.get(key).is_some()).count();
    if !keys.iter().any(|key| has(key) > 1) {
        return String::new();
    }
    let columns: String = (1..=runs.len()).map(|n| format!(" run {n} |")).collect();
    let mut text = format!("\n{title}:\n\n| point |{columns}\n|---|{}\n", "---|".repeat(runs.len()));
    for key in keys {
        let _ = write!(text, "| {key} |");
        for cells in runs {
            let shown = cells.get(key).map_or_else(|| "–".to_owned(), |summary| summary.shown(decimals));
            let _ = write!(text, " {shown} |");
        }
        text.push('\n');
    }
    text
}

struct Run {
    plan: Plan,
    environment: Environment,
    records: Vec<Record>,
}

impl Run {
    fn read(dir: &Path) -> Result<Run, String> {
        let records = read_all(dir)?;
        Ok(Run {
            plan: read_json(&dir.join("plan.json"))?,
            environment: read_json(&dir.join("environment.json"))?,
            records,
        })
    }

    fn of(&self, experiment: Experiment) -> Vec<&Record> {
        self.records.iter().filter(|record| record.point.experiment == experiment).collect()
    }

    fn head(&self) -> String {
        let environment = &self.environment;
        let mut text =
            format!("# Results of `trireme bench`\n\nBegun {}, with `{}`.\n\n", environment.began, environment.command);
        if !environment.continued.is_empty() {
            let _ = writeln!(
                text,
                "- Gone on with at {}, with the same builds and settings.",
                environment.continued.join(", ")
            );
        }
        for remark in &environment.remarks {
            let _ = writeln!(text, "- {remark}");
        }
        text.push_str(&self.others());
        let repeats = self.plan.settings.repeat;
        let spread = if repeats > 1 { "the median (least–most)" } else { "the only measurement" };
        let once = &self.plan.settings.once;
        let once = match once.is_empty() || repeats == 1 {
            true => String::new(),
            false => format!(", but those of {} once", once.iter().map(|e| e.name()).collect::<Vec<_>>().join(", ")),
        };
        let _ = writeln!(
            text,
            "- Each point was measured {repeats} time{}{once}; shown is {spread}.",
            if repeats == 1 { "" } else { "s" }
        );
        text.push_str("\n| machine | |\n|---|---|\n");
        for (name, value) in environment.machine.iter().chain(&environment.versions) {
            let _ = writeln!(text, "| {name} | {value} |");
        }
        let mut systems: Vec<System> = self.records.iter().filter_map(|record| record.point.system().ok()).collect();
        systems.sort_unstable();
        systems.dedup();
        text.push_str(
            "\n| system | | an acknowledgement means | when the server that takes writes dies |\n|---|---|---|---|\n",
        );
        for system in systems {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                system.name(),
                system.title(),
                system.guarantee(),
                system.takeover()
            );
        }
        text
    }

    /// How much others worked while points were measured: of each experiment, and the points that they may have spoilt.
    fn others(&self) -> String {
        let mut parts = Vec::new();
        for experiment in Experiment::ALL {
            let loads: Vec<f64> = self.of(experiment).iter().filter_map(|record| record.others_percent).collect();
            if let Some(all) = Summary::of(&loads) {
                parts.push(format!("{experiment} {:.0} % ({:.0} % at most)", all.median, all.most));
            }
        }
        let spoilt: Vec<String> = self
            .records
            .iter()
            .filter(|record| record.others_percent.is_some_and(|percent| percent > OTHERS_MOST))
            .map(|record| record.point.to_string())
            .collect();
        let mut text = String::new();
        if !parts.is_empty() {
            let _ = writeln!(
                text,
                "- Work of others while points were measured, of the machine's processor time in the median: {}.",
                parts.join(", ")
            );
        }
        if !spoilt.is_empty() {
            let shown = spoilt.iter().take(10).cloned().collect::<Vec<_>>().join("; ");
            let _ = writeln!(
                text,
                "- **Others took more than {OTHERS_MOST} % while {} of {} points were measured**, so those may be too low: {shown}{}.",
                spoilt.len(),
                self.records.len(),
                if spoilt.len() > 10 { "; …" } else { "" }
            );
        }
        text
    }

    /// The missing points, each with its reason.
    fn tail(&self) -> String {
        let mut lines = Vec::new();
        for record in &self.records {
            match &record.outcome {
                Outcome::Measured => {}
                Outcome::Failed(reason) => lines.push(format!("- {}: failed: {reason}", record.point)),
                Outcome::Skipped(reason) => lines.push(format!("- {}: left out: {reason}", record.point)),
            }
        }
        match lines.is_empty() {
            true => String::new(),
            false => format!("\n## Not measured\n\n{}\n", lines.join("\n")),
        }
    }
}

fn section(experiment: Experiment, settings: &Settings, records: &[&Record], figures: &[Figure]) -> String {
    let layout = layout(experiment);
    let mut text =
        format!("\n## {}\n\n{}\n\n{}\n", layout.title, layout.about, experiments::size(experiment, settings));
    for figure in figures {
        let _ = write!(text, "\n![{}](figures/{}.svg)\n", figure.title, figure.name);
    }
    if layout.columns.is_empty() {
        let of = |(name, title, decimals): (String, String, usize)| Column {
            title,
            cells: Cells::of(records, &name),
            decimals,
        };
        let words: &[Words] = if experiment == Experiment::Peers { &PEERS_WORDS } else { &[] };
        if let Some(table) = tables::by_value(layout, values(layout, records).into_iter().map(of).collect(), words) {
            let _ = write!(text, "\n{table}");
        }
        text.push_str(&ratios(layout, records));
    } else {
        for (n, value) in layout.values.iter().enumerate() {
            let table = tables::pivot(layout, &Cells::of(records, value.name), value.decimals);
            let Some(table) = table else { continue };
            let _ = write!(text, "\n{}:\n\n{table}", capital(value.title));
            if layout.ratios.contains(&n) {
                text.push_str(&ratios_of(layout, records, value));
            }
        }
    }
    text.push_str(&notes(records));
    if experiment == Experiment::Durability {
        text.push_str(&durability::words(&Cells::of(records, layout.values[0].name)));
    }
    if !layout.published.is_empty() {
        let _ = write!(text, "\n{}", layout.published);
    }
    text
}

/// The remarks that were noted while points were measured, each once for each system.
fn notes(records: &[&Record]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for record in records {
        for note in &record.measured.notes {
            let line = format!("- {}, {} nodes: {note}", record.point.system, record.point.nodes);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    if lines.is_empty() { String::new() } else { format!("\nNotes:\n\n{}\n", lines.join("\n")) }
}

const PEERS_WORDS: [Words; 2] = [
    ("an acknowledgement means", System::guarantee),
    ("who takes over when the server that takes writes dies", System::takeover),
];

/// The values of a layout, and those that differ from them in the number of clients only: name, title, decimals.
fn values(layout: &Layout, records: &[&Record]) -> Vec<(String, String, usize)> {
    let mut all: Vec<(String, String, usize)> =
        layout.values.iter().map(|value| (value.name.to_owned(), value.title.to_owned(), value.decimals)).collect();
    let stem = |name: &str| {
        let (stem, number) = name.rsplit_once('_')?;
        Some((stem.to_owned(), number.parse::<u32>().ok()?))
    };
    let mut further: Vec<(u32, String)> = Vec::new();
    for name in records.iter().flat_map(|record| record.measured.values.keys()) {
        let Some((stem, clients)) = stem(name) else { continue };
        if stem == "commits_per_s" && !all.iter().any(|(known, ..)| known == name) {
            further.push((clients, name.clone()));
        }
    }
    further.sort();
    further.dedup();
    let place = all.iter().take_while(|(name, ..)| name.starts_with("commits_per_s_")).count();
    for (at, (clients, name)) in further.into_iter().enumerate() {
        all.insert(place + at, (name, format!("commits/s, {clients} clients"), 0));
    }
    all
}

/// The systems that results are put in relation to, each with its title.
fn bases() -> Vec<(String, Base)> {
    let of = |system: System| format!("{} ({})", system.name(), system.title());
    let alone =
        format!("{} (MariaDB alone, with the settings of the point where it has some, else flush=1)", ALONE.name());
    vec![
        (alone, Base::Alone(ALONE)),
        // With flush=0 as most groups have it: what a provider adds.
        (of(System::PlainFast), Base::Alone(System::PlainFast)),
        (of(System::GaleraDurable), Base::Group(System::GaleraDurable)),
        (of(System::GaleraFast), Base::Group(System::GaleraFast)),
        (format!("{} with the same settings", System::Galera.name()), Base::Group(System::Galera)),
        ("the same without metrics and flight recorder".to_owned(), Base::Unmeasured),
    ]
}

/// One value in units of the server alone, and of Galera.
fn ratios_of(layout: &Layout, records: &[&Record], value: &Value) -> String {
    let cells = Cells::of(records, value.name);
    let mut text = String::new();
    for (title, base) in bases() {
        if let Some(table) = tables::pivot(layout, &cells.in_units_of(|key| base.key(key)), 2) {
            let _ = write!(text, "\n{}, in units of {title}:\n\n{table}", capital(value.title));
        }
    }
    text
}

/// The same of all values that have ratios, in one table for each base.
fn ratios(layout: &Layout, records: &[&Record]) -> String {
    let mut text = String::new();
    for (title, base) in bases() {
        let column = |value: &Value| Column {
            title: value.title.to_owned(),
            cells: Cells::of(records, value.name).in_units_of(|key| base.key(key)),
            decimals: 2,
        };
        let all = layout.ratios.iter().filter_map(|at| layout.values.get(*at)).map(column).collect();
        if let Some(table) = tables::by_value(layout, all, &[]) {
            let _ = write!(text, "\nIn units of {title}:\n\n{table}");
        }
    }
    text
}

enum Base {
    Alone(System),
    /// As many nodes of that system, with all else alike.
    Group(System),
    /// The same library with nothing measured.
    Unmeasured,
}

impl Base {
    fn key(&self, key: &Key) -> Key {
        match self {
            Base::Group(system) => Key { system: system.name(), ..key.clone() },
            Base::Unmeasured => Key { system: format!("{}{UNMEASURED}", key.system), ..key.clone() },
            Base::Alone(system) => {
                let mut set = key.set.clone();
                if set.contains_key("masters") {
                    set.insert("masters".to_owned(), "1".to_owned());
                }
                // A server without a provider sends no write sets.
                if set.contains_key("write_sets") {
                    set.insert("write_sets".to_owned(), "rows".to_owned());
                }
                Key { system: system.name(), nodes: 1, set }
            }
        }
    }
}

fn graphs(experiment: Experiment, records: &[&Record]) -> Vec<Figure> {
    if experiment == Experiment::Faults {
        return faults(records).into_iter().collect();
    }
    let layout = layout(experiment);
    let mut all = Vec::new();
    let values: &[usize] = if experiment == Experiment::Oltp { &[0, 2] } else { &[0] };
    for value in values {
        let value = &layout.values[*value];
        let cells = Cells::of(records, value.name);
        match layout.x {
            Some(x) => all.extend(curves(experiment, layout, &cells, x, value.name, value.title)),
            None if !layout.columns.is_empty() => all.extend(bars(experiment, layout, &cells, value.title)),
            None => all.extend(clients(experiment, layout, records)),
        }
    }
    if experiment == Experiment::Tpcc {
        all.extend(units(experiment, layout, records));
    }
    all.retain(Figure::has_something);
    all
}

/// A curve for everything that is neither the x axis nor what figures differ in.
fn curves(experiment: Experiment, layout: &Layout, cells: &Cells, x: &str, value: &str, y_title: &str) -> Vec<Figure> {
    let mut figures: BTreeMap<Vec<String>, Figure> = BTreeMap::new();
    for (key, _) in cells.iter() {
        let place = place(layout, key);
        figures.entry(place.clone()).or_insert_with(|| {
            let name = [vec![experiment.name().to_owned(), value.to_owned()], place.clone()].concat().join("-");
            let title = [vec![layout.title.to_owned()], place].concat().join(", ");
            let mut figure = Figure::new(&name.replace([' ', '/'], "_"), &title, layout.x_title, y_title);
            figure.logarithmic = x != "nodes";
            figure
        });
    }
    let mut nodes: Vec<u8> = cells.keys().map(|key| key.nodes).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for (key, summary) in cells.iter() {
        let Ok(at) = key.coordinate(x).parse::<f64>() else { continue };
        let alone: Result<System, _> = clap::ValueEnum::from_str(&key.system, false);
        // A lone server stands in the figures of all numbers of nodes: it is what groups are compared with.
        let alone = alone.is_ok_and(System::is_single);
        let of_group = |name: &str| alone && matches!(name, "nodes" | "masters");
        let label = key.words(|name| name != x && !layout.figures.contains(&name) && !of_group(name));
        let mut seen: Vec<Vec<String>> = Vec::new();
        for nodes in nodes.iter().copied().filter(|nodes| alone || *nodes == key.nodes) {
            let place = place(layout, &Key { nodes, ..key.clone() });
            if seen.contains(&place) {
                continue;
            }
            if let Some(figure) = figures.get_mut(&place) {
                figure.add(&key.system, &label, at, summary);
            }
            seen.push(place);
        }
    }
    let mut all: Vec<Figure> = figures.into_values().collect();
    if x == "nodes" {
        all.iter_mut().for_each(|figure| figure.stretch(&ALONE.name()));
    }
    all
}

/// The figure of a point, in the words that tell it from other figures.
fn place(layout: &Layout, key: &Key) -> Vec<String> {
    let word = |name: &&str| match name.strip_prefix('?') {
        Some(name) => (!key.coordinate(name).is_empty()).then(|| format!("by {name}")),
        None => Some(format!("{name} {}", key.coordinate(name))),
    };
    layout.figures.iter().filter_map(word).collect()
}

/// Every column in units of the server alone: a group of bars for each column. Those that are many times higher than others have a figure of
/// their own, as else the others could not be seen.
fn units(experiment: Experiment, layout: &Layout, records: &[&Record]) -> Vec<Figure> {
    let figure = |name: &str| {
        let title = format!("{}, in units of {} ({})", layout.title, ALONE.name(), ALONE.title());
        Figure::new(&format!("{experiment}-{name}"), &title, "", "times the server alone")
    };
    let mut all = [figure("units"), figure("units-of-the-high")];
    for value in layout.ratios.iter().filter_map(|at| layout.values.get(*at)) {
        let cells = Cells::of(records, value.name).in_units_of(|key| Base::Alone(ALONE).key(key));
        let most = cells.iter().map(|(_, summary)| summary.most).fold(0.0, f64::max);
        let figure = &mut all[usize::from(most > UNITS_MOST)];
        if !cells.is_empty() {
            let at = figure.categories.len() as f64;
            figure.categories.push(value.title.to_owned());
            cells.iter().for_each(|(key, summary)| figure.add(&key.system, &key.to_string(), at, summary));
        }
    }
    all.into()
}

/// A group of bars for each row, one bar for each column.
fn bars(experiment: Experiment, layout: &Layout, cells: &Cells, y_title: &str) -> Vec<Figure> {
    let mut figures: BTreeMap<String, Figure> = BTreeMap::new();
    let rows: Vec<String> = cells.values_of(layout.rows);
    let joined = |key: &Key, names: &[&str], by: &str| {
        names.iter().map(|name| key.coordinate(name)).collect::<Vec<_>>().join(by)
    };
    let differs = |name: &&str| !layout.figures.contains(name);
    let columns: Vec<&str> = layout.columns.iter().copied().filter(differs).collect();
    for (key, summary) in cells.iter() {
        let row = joined(key, layout.rows, " / ");
        let Some(at) = rows.iter().position(|known| *known == row) else { continue };
        let place = place(layout, key);
        let name = [vec![experiment.name().to_owned()], place.clone()].concat().join("-").replace(' ', "_");
        let figure = figures.entry(name.clone()).or_insert_with(|| {
            let title = [vec![layout.title.to_owned()], place].concat().join(", ");
            Figure::new(&name, &title, &layout.rows.join(" / "), y_title)
        });
        figure.categories.clone_from(&rows);
        figure.add(&key.system, &joined(key, &columns, ", "), at as f64, summary);
    }
    figures.into_values().collect()
}

/// Values that are named by a number of clients, as bars.
fn clients(experiment: Experiment, layout: &Layout, records: &[&Record]) -> Option<Figure> {
    let mut figure = Figure::new(experiment.name(), layout.title, "clients", "commits/s");
    let named = values(layout, records).into_iter();
    let named =
        named.filter_map(|(name, ..)| Some((name.clone(), name.strip_prefix("commits_per_s_")?.parse::<u32>().ok()?)));
    let mut named: Vec<(String, u32)> = named.collect();
    named.sort_by_key(|(_, clients)| *clients);
    for (name, clients) in named {
        let cells = Cells::of(records, &name);
        if !cells.is_empty() {
            let at = figure.categories.len() as f64;
            figure.categories.push(clients.to_string());
            cells.iter().for_each(|(key, summary)| figure.add(&key.system, &key.system, at, summary));
        }
    }
    Some(figure)
}

/// Commits per second over time, a line for each system; the faults as bands.
fn faults(records: &[&Record]) -> Option<Figure> {
    let mut figure = Figure::new("faults", "Commits per second through faults", "seconds", "commits/s");
    figure.lines_only = true;
    for record in records.iter().filter(|record| record.point.repeat == 1) {
        let Some(line) = record.measured.series.get("commits_per_s") else { continue };
        figure.curves.push(Curve {
            label: format!("{}, {} nodes", record.point.system, record.point.nodes),
            family: record.point.system.clone(),
            points: line.iter().map(|(x, y)| (*x, Summary { median: *y, least: *y, most: *y, count: 1 })).collect(),
        });
        for (name, band) in &record.measured.series {
            if let (Some(event), Some((from, to))) = (name.strip_prefix("event "), band.first()) {
                figure.bands.insert(event.to_owned(), (*from, *to));
            }
        }
    }
    (!figure.curves.is_empty()).then_some(figure)
}

/// With thousands apart.
pub fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if rest.is_empty() { format!("{sign}{out}") } else { format!("{sign}{out}.{rest}") }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Preset;
    use crate::plan::Point;
    use crate::record::Measured;

    fn record(system: &str, nodes: u8, rows: u32, repeat: u32, rate: f64) -> Record {
        let mut measured = Measured::default();
        measured.set("rows_per_s", rate);
        if system == "plain" {
            measured.note("a remark of this point");
        }
        let others = if system == "plain" && repeat == 1 { 30.0 } else { 3.0 };
        let point = Point { repeat, ..Point::new(Experiment::Insert, system, nodes).with("rows", rows) };
        Record { point, outcome: Outcome::Measured, began: 0, took: 1.0, others_percent: Some(others), measured }
    }

    fn run(dir: &Path, factor: f64) {
        let settings = crate::plan::Settings {
            preset: Preset::Quick,
            systems: Vec::new(),
            nodes: Vec::new(),
            scale: 0.1,
            duration: 1.0,
            threads: Vec::new(),
            repeat: 3,
            once: Vec::new(),
            cpu_per_node: None,
            disks: crate::args::Disks::Shared,
            disk_model: crate::disks::Asked::default(),
            write_sets: Vec::new(),
            sizes: Vec::new(),
            rows: 1,
            rtt: Vec::new(),
            libraries: Vec::new(),
            unmeasured: false,
            options: Vec::new(),
            provider_options: String::new(),
        };
        let plan = Plan {
            experiments: vec![Experiment::Insert],
            settings,
            provider: "p".into(),
            galera: None,
            builds: BTreeMap::new(),
        };
        crate::runner::open(dir, &plan).unwrap();
        let environment = Environment {
            began: "2026-01-01 00:00:00 UTC".into(),
            command: "trireme bench insert".into(),
            machine: BTreeMap::new(),
            versions: BTreeMap::new(),
            continued: Vec::new(),
            remarks: Vec::new(),
        };
        crate::record::write_json(&dir.join("environment.json"), &environment).unwrap();
        for rows in [1, 100] {
            for (repeat, noise) in [(1, 0.9), (2, 1.0), (3, 1.3)] {
                for (system, nodes, rate) in
                    [("plain", 1, 8000.0), ("trireme-disk", 3, 4000.0), ("galera-1", 3, 2000.0)]
                {
                    record(system, nodes, rows, repeat, rate * noise * factor * f64::from(rows)).write(dir).unwrap();
                }
            }
        }
        let mut failed = record("galera-0", 3, 1, 1, 0.0);
        failed.outcome = Outcome::Failed("the servers do not start".into());
        failed.write(dir).unwrap();
    }

    #[test]
    fn a_report_has_medians_ratios_graphs_and_what_failed() {
        let base = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-bench-report").unwrap();
        let (one, other) = (base.join("one"), base.join("other"));
        run(&one, 1.0);
        run(&other, 0.5);
        write(&one).unwrap();
        let text = std::fs::read_to_string(one.join("report.md")).unwrap();
        assert!(text.contains("8,000 (7,200–10,400)"), "{text}");
        assert!(text.contains("| trireme-disk | 3 | 0.50 (0.50–0.50) | 0.50 (0.50–0.50) |"), "of plain: {text}");
        assert!(text.contains("| trireme-disk | 3 | 2.00 (2.00–2.00) | 2.00 (2.00–2.00) |"), "of Galera: {text}");
        assert!(text.contains("failed: the servers do not start"), "{text}");
        assert!(text.contains("Published in 2009"), "{text}");
        assert!(text.contains("The published run inserted 1,000,000 rows"), "{text}");
        assert!(text.contains("- plain, 1 nodes: a remark of this point"), "{text}");
        assert!(
            text.contains("insert 3 % (30 % at most)") && text.contains("may be too low: insert plain, 1 node"),
            "{text}"
        );
        let svg = std::fs::read_to_string(one.join("figures/insert-rows_per_s.svg")).unwrap();
        assert!(svg.contains("trireme-disk, nodes 3") && svg.contains("rows per transaction"), "{svg}");
        let png = std::fs::read(one.join("figures/insert-rows_per_s.png")).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 5000, "{}", png.len());
        let csv = std::fs::read_to_string(one.join("results.csv")).unwrap();
        assert!(csv.lines().any(|line| line.starts_with("insert,plain,1,rows=1,2,measured,rows_per_s,8000")), "{csv}");
        // One machine was half as fast: the ratios are the same.
        let both = compare(&[one.clone(), other.clone()]).unwrap();
        assert!(both.contains("| trireme-disk, nodes 3, rows 1 | 0.50 (0.50–0.50) | 0.50 (0.50–0.50) |"), "{both}");
        assert!(both.contains("| plain, nodes 1, rows 1 | 8,000 (7,200–10,400) | 4,000 (3,600–5,200) |"), "{both}");
        let file = other.join("environment.json");
        let mut environment: Environment = read_json(&file).unwrap();
        environment.machine.insert("processor".into(), "another one".into());
        crate::record::write_json(&file, &environment).unwrap();
        let both = compare(&[one, other]).unwrap();
        assert!(both.contains("0.50 (0.50–0.50) |") && both.contains("these differ: the processor."), "{both}");
        assert!(!both.contains("8,000"), "{both}");
        assert!(compare(&[base.join("neither"), base.join("nor")]).unwrap_err().contains("holds no run"));
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn the_lone_server_stands_in_the_figure_of_three_nodes() {
        let of = |system: &str, nodes: u8, threads: u32| {
            let mut measured = Measured::default();
            measured.set("transactions_per_s", f64::from(threads));
            let point = Point::new(Experiment::Oltp, system, nodes).with("threads", threads).with("masters", nodes);
            Record { point, outcome: Outcome::Measured, began: 0, took: 1.0, others_percent: None, measured }
        };
        let records = [of("plain", 1, 1), of("plain", 1, 8), of("galera-1", 3, 1), of("galera-1", 3, 8)];
        let drawn = graphs(Experiment::Oltp, &records.iter().collect::<Vec<_>>());
        let figure = drawn.iter().find(|figure| figure.name.ends_with("nodes_3")).unwrap();
        let labels: Vec<&str> = figure.curves.iter().map(|curve| curve.label.as_str()).collect();
        assert_eq!(labels, ["plain", "galera-1, masters 3"]);
    }

    #[test]
    fn numbers_have_thousands_apart() {
        assert_eq!(
            [number(1_234_567.0, 0), number(999.5, 1), number(-1000.0, 2), number(0.0, 0)],
            ["1,234,567", "999.5", "-1,000.00", "0"]
        );
    }
}
