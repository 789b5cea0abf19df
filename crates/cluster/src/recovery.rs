//! Where a stopped node stands, asked of its storage engine as the service scripts of the distributions do.

use crate::error::{During, Error, Result};
use crate::log::cause_of_death;
use crate::node::Node;
use crate::process::{Launch, run};
use std::fmt;

/// A `uuid:seqno` position, possibly with a GTID behind a comma. Ordered by seqno alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The whole text, as `--wsrep-start-position` takes it.
    pub text: String,
    /// −1: unknown. (The sentinel is the server's text form; it does not travel further.)
    pub seqno: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Position {
    fn parse(text: &str) -> Option<Position> {
        let seqno = text.split(',').next()?.rsplit_once(':')?.1.parse().ok()?;
        Some(Position { text: text.to_owned(), seqno })
    }
}

/// Runs the server with `--wsrep-recover`, which repairs the storage engine, prints its position and ends. The
/// provider is not loaded. The node must be stopped. `arguments`: what its server is told beside its file.
pub(crate) fn recover(launch: Launch<'_>, node: &Node, arguments: &[String]) -> Result<Position> {
    let log = node.dir.join("recover.log");
    let _ = std::fs::remove_file(&log);
    let outcome = run(launch
        .command(node, "mariadbd")
        .arg(format!("--defaults-file={}", node.config().display()))
        .args(arguments)
        .arg("--wsrep-recover")
        .arg(format!("--log-error={}", log.display())));
    let text = std::fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    if outcome.is_err() {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        return Err(Error::Died { node: node.id, cause: cause_of_death(&lines), log });
    }
    text.lines()
        .filter_map(|line| line.split_once("WSREP: Recovered position:"))
        .filter_map(|(_, position)| Position::parse(position.trim()))
        .next_back()
        .ok_or_else(|| Error::Died { node: node.id, cause: "no recovered position in its log".to_owned(), log })
}

/// Marks the node as the one that may start the group anew: what an operator does in `grastate.dat` after
/// comparing all positions. A node without that file needs no mark.
pub(crate) fn mark_safe_to_bootstrap(node: &Node) -> Result<()> {
    let path = node.data().join("grastate.dat");
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(()) };
    let marked: String = text
        .lines()
        .map(|line| {
            if line.starts_with("safe_to_bootstrap:") {
                "safe_to_bootstrap: 1\n".to_owned()
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    // In place: owner and mode stay.
    std::fs::write(&path, marked).during(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_positions_with_and_without_gtid() {
        let plain = Position::parse("6b0e1d2c-0000-11ee-8000-000000000000:42").unwrap();
        assert_eq!(plain.seqno, 42);
        let gtid = Position::parse("6b0e1d2c-0000-11ee-8000-000000000000:42,1-2-3").unwrap();
        assert_eq!(gtid.seqno, 42);
        assert!(gtid.text.ends_with(",1-2-3"));
        assert_eq!(Position::parse("00000000-0000-0000-0000-000000000000:-1").unwrap().seqno, -1);
        assert_eq!(Position::parse("nonsense"), None);
    }
}
