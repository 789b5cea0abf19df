//! The results of one point, as its file holds them.

use crate::plan::Point;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub point: Point,
    pub outcome: Outcome,
    /// Seconds since 1970.
    pub began: u64,
    /// Seconds, with starts and preparations.
    pub took: f64,
    /// Part of the machine's processor time that neither the servers nor this command and its tools took, in percent. Absent where it
    /// was not measured.
    pub others_percent: Option<f64>,
    #[serde(flatten)]
    pub measured: Measured,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Measured,
    /// The reason of a failure.
    Failed(String),
    /// Why there was nothing to measure.
    Skipped(String),
}

/// Numbers by name; the name ends with the unit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
    /// Curves: time in seconds, and a value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Measured {
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        // JSON knows no infinity.
        if value.is_finite() {
            self.values.insert(name.into(), value);
        }
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

impl Record {
    pub fn value(&self, name: &str) -> Option<f64> {
        if self.outcome == Outcome::Measured { self.measured.values.get(name).copied() } else { None }
    }

    /// Whether it need not be measured again.
    pub fn is_done(&self) -> bool {
        matches!(self.outcome, Outcome::Measured | Outcome::Skipped(_))
    }

    pub fn write(&self, dir: &Path) -> Result<(), String> {
        write_json(&dir.join("points").join(format!("{}.json", self.point.id())), self)
    }
}

/// Written beside and renamed: a file is whole or not there.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| format!("{}: {e}", path.display()))?;
    write_text(path, &(text + "\n"))
}

pub fn write_text(path: &Path, text: &str) -> Result<(), String> {
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .map_err(|e| format!("cannot write {}: {e}; what was measured before is kept", path.display()))
}

pub fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{} is not readable: {e}", path.display()))
}

/// All records of a run.
pub fn read_all(dir: &Path) -> Result<Vec<Record>, String> {
    let points = dir.join("points");
    let entries = fs::read_dir(&points)
        .map_err(|e| format!("{} holds no run of `trireme bench`: {}: {e}", dir.display(), points.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "json"));
    files.sort();
    files.iter().map(|path| read_json(path)).collect()
}
