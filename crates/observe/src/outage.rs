//! `trireme doctor --outage`: who would go on after a stop of all nodes, and what a forced start would lose.
//!
//! Judges as an election does (docs/protocol.md): of the whole logs the one with the highest last term counts, of equal ones the longest; and a
//! majority of the voters that it names has to be there.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

/// One node's log, as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Held {
    /// As the operator calls it.
    pub name: String,
    /// Id of the member in the log.
    pub node: String,
    pub history: String,
    /// Of the newest fork; the history's own where there was none.
    pub branch: String,
    /// Term of the last entry, and its index and seqno.
    pub term: u64,
    pub last: u64,
    pub seqno: u64,
    /// First seqno that it still holds.
    pub from: u64,
    /// Known to be held by a majority.
    pub committed: u64,
    /// Entries may be missing although this node acknowledged them: why.
    pub doubt: Option<String>,
    /// Id, weight, and the name if the log knows it.
    pub voters: Vec<(String, u32, String)>,
    /// The word of `grastate.dat`: the position of the data.
    pub data: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outlook {
    /// A majority of whole logs is there: plain starts suffice.
    ByItself,
    /// More nodes are needed.
    Waits,
    /// The logs are of different histories or branches.
    Different,
    NoLog,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verdict {
    pub outlook: Outlook,
    /// The node whose log is gone on with.
    pub best: Option<String>,
    pub sentences: Vec<String>,
}

pub fn judge(held: &[Held]) -> Verdict {
    let mut sentences = Vec::new();
    let order = |h: &&Held| (h.doubt.is_none(), h.term, h.last);
    let Some(best) = held.iter().max_by_key(order) else {
        let sentences = vec!["no write-set log could be read: nothing can be said".to_owned()];
        return Verdict { outlook: Outlook::NoLog, best: None, sentences };
    };
    let strangers: Vec<&Held> = held.iter().filter(|h| h.history != best.history || h.branch != best.branch).collect();
    for stranger in &strangers {
        let what = if stranger.history == best.history { "branch" } else { "history" };
        sentences.push(format!(
            "{} is of another {what} than {} ({}; {}): one of the two was forced or begun anew, and will take a full copy of the other's data",
            stranger.name, best.name, stranger.branch, best.branch
        ));
    }
    for doubted in held.iter().filter(|h| h.doubt.is_some()) {
        sentences.push(format!(
            "{} does not count for a majority: {}",
            doubted.name,
            doubted.doubt.as_deref().unwrap_or("")
        ));
    }
    let kin = |h: &&Held| h.history == best.history && h.branch == best.branch;
    let total: u32 = best.voters.iter().map(|(_, weight, _)| weight).sum();
    let by_id: BTreeMap<&str, &Held> = held.iter().filter(kin).map(|h| (h.node.as_str(), h)).collect();
    let (mut there, mut missing) = (0, Vec::new());
    for (id, weight, name) in &best.voters {
        match by_id.get(id.as_str()) {
            Some(found) if found.doubt.is_none() => there += weight,
            Some(_) => {}
            None => missing.push(if name.is_empty() { id.clone() } else { name.clone() }),
        }
    }
    let names: Vec<String> = best
        .voters
        .iter()
        .map(|(id, _, name)| {
            by_id
                .get(id.as_str())
                .map_or_else(|| if name.is_empty() { id.clone() } else { name.clone() }, |h| h.name.clone())
        })
        .collect();
    sentences.push(format!(
        "{} has the best log: it ends at seqno {} (entry {} of term {}). The voters are {}",
        best.name,
        best.seqno,
        best.last,
        best.term,
        names.join(", ")
    ));
    if !missing.is_empty() {
        sentences.push(format!("not looked at: {}", missing.join(", ")));
    }
    let decided = total > 0 && 2 * there > total;
    let all = missing.is_empty();
    if decided || all {
        let text = if decided {
            "Start the servers plainly, in any order: they go on by themselves, and nothing that was acknowledged is lost"
        } else {
            "All voters are there: start all servers plainly. They go on with the best log of all; what only the lost parts held is gone"
        };
        sentences.push(text.to_owned());
    } else {
        let text = format!(
            "These nodes alone wait for more: they hold {there} of {total} votes, and more than half are needed. Start those that are missing"
        );
        sentences.push(text);
        sentences.push(format!(
            "Only if they are gone for good: set safe_to_bootstrap: 1 in the grastate.dat of {}, start it with galera_new_cluster, and the others plainly. That loses what the missing ones \
             committed behind seqno {}, which cannot be seen from here",
            best.name, best.seqno
        ));
    }
    for other in held.iter().filter(kin).filter(|h| h.node != best.node && (h.term, h.last) != (best.term, best.last)) {
        let mut text = format!("Forced on {}, it would lose ", other.name);
        if other.seqno < best.seqno {
            let _ = write!(text, "seqnos {} to {}", other.seqno + 1, best.seqno);
        } else {
            let _ = write!(text, "what {} holds of term {}", best.name, best.term);
        }
        sentences.push(text);
    }
    let outlook = match (strangers.is_empty(), decided || all) {
        (false, _) => Outlook::Different,
        (true, true) => Outlook::ByItself,
        (true, false) => Outlook::Waits,
    };
    Verdict { outlook, best: Some(best.name.clone()), sentences }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(n: u64, term: u64, last: u64) -> Held {
        Held {
            name: format!("db{n}"),
            node: format!("id-{n}"),
            history: "h".into(),
            branch: "h".into(),
            term,
            last,
            seqno: last,
            from: 1,
            committed: 0,
            doubt: None,
            voters: (1..=3).map(|n| (format!("id-{n}"), 1, String::new())).collect(),
            data: None,
        }
    }

    #[test]
    fn the_last_term_goes_before_the_length() {
        let verdict = judge(&[held(1, 7, 100), held(2, 8, 90), held(3, 8, 95)]);
        assert_eq!((verdict.outlook, verdict.best.as_deref()), (Outlook::ByItself, Some("db3")));
        assert!(verdict.sentences.iter().any(|s| s == "Forced on db2, it would lose seqnos 91 to 95"), "{verdict:?}");
        // Longer, and of an older term: what it has behind was never committed.
        assert!(
            verdict.sentences.iter().any(|s| s == "Forced on db1, it would lose what db3 holds of term 8"),
            "{verdict:?}"
        );
    }

    #[test]
    fn two_of_three_suffice_and_one_does_not() {
        let verdict = judge(&[held(1, 7, 100), held(2, 7, 100)]);
        assert_eq!(verdict.outlook, Outlook::ByItself);
        let verdict = judge(&[held(1, 7, 100)]);
        assert_eq!(verdict.outlook, Outlook::Waits);
        assert!(verdict.sentences.iter().any(|s| s.contains("they hold 1 of 3 votes")), "{verdict:?}");
        assert!(verdict.sentences.iter().any(|s| s.contains("not looked at: id-2, id-3")), "{verdict:?}");
    }

    #[test]
    fn doubtful_logs_do_not_count() {
        let doubtful = |n| Held { doubt: Some("power loss".into()), ..held(n, 9, 500) };
        let verdict = judge(&[held(1, 7, 100), doubtful(2)]);
        assert_eq!((verdict.outlook, verdict.best.as_deref()), (Outlook::Waits, Some("db1")));
        // With all voters there, the best of all is taken.
        assert_eq!(judge(&[doubtful(1), doubtful(2), doubtful(3)]).outlook, Outlook::ByItself);
    }

    #[test]
    fn other_histories_are_told() {
        let verdict = judge(&[held(1, 7, 100), held(2, 7, 100), Held { branch: "f".into(), ..held(3, 6, 300) }]);
        assert_eq!(verdict.outlook, Outlook::Different);
        assert!(verdict.sentences[0].starts_with("db3 is of another branch"), "{verdict:?}");
        assert_eq!(judge(&[]).outlook, Outlook::NoLog);
    }
}
