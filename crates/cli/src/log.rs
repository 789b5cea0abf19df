//! `trireme log`: looking into a node's write-set log, whether the node runs or not.
//!
//! Looking takes no lock and changes nothing. While the owner works, files come and go under our hands; so whatever
//! looks like damage is looked at again before it is told.

mod entry;
mod inspect;
mod key;
mod term;
mod trim;
mod verify;

use std::path::Path;
use std::time::Duration;

use trireme_order::StoreError;
use trireme_types::{LogIndex, Seqno};
use trireme_wslog::inspect::{Summary, Verdict, summary, verify};
use trireme_wslog::{DirStorage, IndexRange, LogKeys, read_boot_id};

use crate::args::LogAction;
use crate::run::print_line;

/// Looks at a log that seems damaged. A running owner trims now and then, never so often that each of these meets it.
const LOOKS: u32 = 3;

pub enum Outcome {
    Done,
    /// `verify` found damage.
    Damaged,
}

/// **Errors:** one line that says what to do.
pub fn run(action: LogAction) -> Result<Outcome, String> {
    match action {
        LogAction::Inspect { dir, entry, seqno, key_file, json } => {
            let look = look(&dir, key::read(key_file)?)?;
            match (entry, seqno) {
                (Some(index), _) => entry::show(&look, entry::Wanted::Index(LogIndex(index)), json)?,
                (None, Some(seqno)) => entry::show(&look, entry::Wanted::Seqno(Seqno(seqno)), json)?,
                (None, None) => inspect::log(&look, json)?,
            }
        }
        LogAction::Verify { dir, key_file, json } => return verify::log(&dir, &key::read(key_file)?, json),
        LogAction::Term { dir, raise, json } => term::log(&dir, raise.map(trireme_types::Term), json)?,
        LogAction::Trim { dir, keep_from, force, wait, key_file, json } => {
            trim::log(&dir, Seqno(keep_from), force, Duration::from_secs(wait), key::read(key_file)?, json)?;
        }
        LogAction::Key { action } => key::run(action)?,
    }
    Ok(Outcome::Done)
}

/// The content of the directory, and the result of opening it.
pub struct Look {
    pub storage: DirStorage,
    /// `None`: none were given.
    pub keys: Option<LogKeys>,
    pub summary: Summary,
    pub verdict: Verdict,
}

impl Look {
    /// Entries held; `None`: none.
    pub fn range(&self) -> Option<IndexRange> {
        let from = self.verdict.base.index.next();
        (from <= self.verdict.last).then_some(IndexRange { from, to: self.verdict.last })
    }

    /// The damage, a line each.
    pub fn damage(&self) -> Vec<String> {
        let mut out = Vec::new();
        let report = &self.verdict.report;
        if let Some(hole) = report.hole {
            out.push(format!("entries {hole} were acknowledged and are gone"));
        }
        if let Some(lost) = report.lost_history {
            out.push(format!("history {lost} below the base is lost; nothing acknowledged depends on it"));
        }
        if let Some(before) = report.suspect {
            out.push(format!("entries after {before} may be missing although this member acknowledged them"));
        }
        if self.summary.meta.as_ref().is_some_and(|meta| meta.copy_lost) {
            out.push("one of the two copies of the metadata is unreadable; the next start writes it again".to_owned());
        }
        for checkpoint in self.summary.checkpoints.iter().filter(|c| c.position.is_none()) {
            // Normal only for the newest one after a crash; it costs nothing in any case but this one's use.
            if self.is_closed() {
                out.push(format!("{} is not whole", checkpoint.name));
            }
        }
        if self.is_closed() && report.torn_tail_cut {
            out.push("the end is damaged although the log was closed".to_owned());
        }
        out
    }

    pub fn is_closed(&self) -> bool {
        self.summary.meta.as_ref().is_some_and(|meta| meta.clean)
    }
}

pub fn look(dir: &Path, keys: Option<LogKeys>) -> Result<Look, String> {
    let storage = DirStorage::read_only(dir).map_err(text)?;
    let boot_id = read_boot_id();
    let mut last = Err(String::new());
    for _ in 0..LOOKS {
        last = look_once(&storage, keys.as_ref(), &boot_id);
        if last.as_ref().is_ok_and(|look| look.damage().is_empty()) {
            break;
        }
    }
    let look = last?;
    if look.summary.meta.is_none() && look.summary.segments.is_empty() {
        return Err(format!(
            "no write-set log in {}: name a data directory, or the directory in the node's gcache.dir",
            dir.display()
        ));
    }
    Ok(look)
}

fn look_once(storage: &DirStorage, keys: Option<&LogKeys>, boot_id: &str) -> Result<Look, String> {
    let summary = summary(storage, keys).map_err(text)?;
    let verdict = verify(storage, Some(boot_id), keys).map_err(text)?;
    Ok(Look { storage: storage.clone(), keys: keys.cloned(), summary, verdict })
}

fn text(error: StoreError) -> String {
    error.to_string()
}

fn range_text(range: Option<IndexRange>) -> String {
    range.map_or_else(|| "none".to_owned(), |range| range.to_string())
}

fn range_json(range: Option<IndexRange>) -> serde_json::Value {
    range.map_or(serde_json::Value::Null, |r| serde_json::json!({ "from": r.from.raw(), "to": r.to.raw() }))
}

/// Aligned `name  value` lines.
fn print_fields(fields: &[(&str, String)]) {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in fields {
        print_line(&format!("{name:<width$}  {value}"));
    }
}
