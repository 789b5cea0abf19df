//! Where the arbitrator stands, as JSON in a file for whoever watches it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use trireme_node::{Node, StatValue, ViewStatus};

use crate::nobody::Nobody;

pub struct StatusFile {
    path: PathBuf,
    written: Value,
}

impl StatusFile {
    pub fn new(path: &Path) -> StatusFile {
        StatusFile { path: path.to_owned(), written: Value::Null }
    }

    /// Writes when something has changed. Readers see the old file or the new one, never a part.
    pub fn update(&mut self, node: &Node, nobody: &Nobody) -> Result<(), String> {
        let now = report(node, nobody);
        if now == self.written {
            return Ok(());
        }
        let wrong = |e| format!("the status file {} cannot be written: {e}", self.path.display());
        // Names and states, for whoever watches.
        trireme_private::replace(&self.path, format!("{now:#}\n").as_bytes(), 0o644).map_err(wrong)?;
        self.written = now;
        Ok(())
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// A file that nobody keeps up to date would lie.
pub fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

fn report(node: &Node, nobody: &Nobody) -> Value {
    let stats = node.stats();
    let stat = |name: &str| {
        stats.iter().find(|(n, _)| n == name).map_or(Value::Null, |(_, value)| match value {
            StatValue::Text(text) => json!(text),
            StatValue::Int(n) => json!(n),
            StatValue::Double(x) => json!(x),
        })
    };
    let view = nobody.view.lock().expect("no holder of the view panics");
    let (status, members) = match &*view {
        Some(view) => {
            let status = match view.status {
                ViewStatus::Primary => "Primary",
                ViewStatus::NonPrimary => "non-Primary",
            };
            (status, view.members.iter().map(|m| m.name.clone()).collect())
        }
        None => ("Disconnected", Vec::new()),
    };
    json!({
        "pid": std::process::id(),
        "cluster_status": status,
        "cluster_size": members.len(),
        "members": members,
        "state": stat("local_state_comment"),
        "last_committed": stat("last_committed"),
        "cached_downto": stat("local_cached_downto"),
    })
}
