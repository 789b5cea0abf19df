//! The meaning of the answers, in words.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::client::Trouble;
use crate::cluster::{Server, Votes};
use crate::facts::Facts;
use crate::survey::Target;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All that was asked answers, and is in its place.
    Well,
    /// Clients are served; something is missing or in the wrong state.
    Degraded,
    /// Clients are not served.
    Down,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub level: Level,
    /// The most important first.
    pub sentences: Vec<String>,
}

/// The voters that are there, by the word of the witness and by what was reached. `None`: no voters are known.
pub fn votes(witness: &Facts, group: &[&Facts], failed: &[(&Target, &Trouble)]) -> Option<Votes> {
    let voters = witness.voters();
    if voters.is_empty() {
        return None;
    }
    let silent = witness.names("wsrep_trireme_silent");
    let reached = |primary: bool| -> BTreeSet<&str> {
        group.iter().filter(|f| f.is_primary() == primary).filter_map(|f| f.name()).collect()
    };
    let (inside, outside) = (reached(true), reached(false));
    // Members of its view that did not answer us and that it does hear: so many of those without an answer are there.
    let size = witness.whole("wsrep_cluster_size").and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let unheard = silent.iter().filter(|name| !inside.contains(name.as_str())).count();
    // Nobody listens at the address of a member: its process is gone, though the view has it for some seconds more.
    let listed = witness.addresses();
    let gone = |(target, trouble): &&(&Target, &Trouble)| {
        matches!(trouble, Trouble::Refused(_)) && listed.iter().flatten().any(|address| address == *target)
    };
    let gone = failed.iter().filter(gone).count();
    let seats = size.saturating_sub(inside.len()).saturating_sub(unheard.max(gone));
    let (mut there, mut absent, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for (name, weight) in voters.iter().cloned() {
        // Outside a primary component nobody's word counts but that of those who answer.
        if silent.contains(&name) || (witness.is_primary() && outside.contains(name.as_str())) {
            absent.push(name);
        } else if inside.contains(name.as_str()) || (!witness.is_primary() && outside.contains(name.as_str())) {
            there.push(weight);
        } else {
            open.push((weight, name));
        }
    }
    // Which of them it is cannot be seen; the heavier ones are taken for absent.
    open.sort();
    for (place, (weight, name)) in open.into_iter().enumerate() {
        if witness.is_primary() && place < seats { there.push(weight) } else { absent.push(name) }
    }
    let weight: u64 = voters.iter().map(|(_, weight)| weight).sum();
    let weight_there: u64 = there.iter().sum();
    let needed = weight / 2 + 1;
    there.sort_unstable_by(|a, b| b.cmp(a));
    let mut left = weight_there;
    let survived = there
        .iter()
        .take_while(|weight| {
            left -= **weight;
            left >= needed
        })
        .count();
    absent.sort();
    Some(Votes {
        voters: voters.len() as u64,
        voters_there: there.len() as u64,
        weight,
        weight_there,
        needed,
        failures_survived: survived as u64,
        absent,
    })
}

/// `unseen`: how many servers did not answer at all.
pub fn verdict(group: &[&Facts], votes: Option<&Votes>, witness: Option<&Facts>, unseen: usize) -> Verdict {
    let mut sentences = Vec::new();
    let mut level = Level::Well;
    let mut say = |at: Level, text: String| {
        level = level.max(at);
        sentences.push(text);
    };
    let primary: Vec<&Facts> = group.iter().copied().filter(|facts| facts.is_primary()).collect();
    let name = |facts: &Facts| facts.name().unwrap_or("a server without a name").to_owned();
    if let Some((one, other)) = two_parts(&primary) {
        let text = format!(
            "{one} and {other} are in different primary components of this cluster: two parts take writes at once. Stop the clients of one part \
             now; its data have to be replaced by those of the other"
        );
        say(Level::Down, text);
    }
    if primary.is_empty() {
        let text =
            "no server that answers is in a primary component: statements are refused with error 1047".to_owned();
        say(Level::Down, text);
    }
    match votes {
        Some(votes) => {
            let (at, text) = of_votes(votes, !primary.is_empty());
            say(at, text);
        }
        None if !primary.is_empty() => {
            let (at, text) = of_size(&primary);
            say(at, text);
        }
        None => {}
    }
    if let Some(witness) = witness.filter(|w| w.is_primary() && w.text("wsrep_trireme_sequencer").is_none()) {
        let text =
            format!("{} knows no sequencer: a successor is being elected, and commits wait for it", name(witness));
        say(Level::Degraded, text);
    }
    for facts in group.iter().filter(|facts| !facts.is_primary() && !primary.is_empty()) {
        say(Level::Degraded, format!("{} is not in the primary component: it refuses statements", name(facts)));
    }
    for facts in &primary {
        let state = facts.text("wsrep_local_state_comment").unwrap_or("in an unknown state");
        if facts.whole("wsrep_local_state") != Some(4) {
            say(Level::Degraded, format!("{} is {state}", name(facts)));
        } else if !facts.is_on("wsrep_ready") {
            say(Level::Degraded, format!("{} is {state} and yet refuses statements (wsrep_ready is OFF)", name(facts)));
        }
        if facts.is_on("wsrep_desync") {
            say(
                Level::Degraded,
                format!("{} is desynced on demand (wsrep_desync=ON): it may fall behind without limit", name(facts)),
            );
        }
    }
    for facts in &primary {
        let queue = facts.whole("wsrep_local_recv_queue");
        if facts.is_on("wsrep_trireme_flow_control_gave_up") {
            let text = format!(
                "{} has {} write sets to apply, applies none, and slows nobody any more: it falls behind. Look for a locked table, a huge transaction \
                 or a slow disk there",
                name(facts),
                queue.unwrap_or(0)
            );
            say(Level::Degraded, text);
        // For a moment this is nothing, so it changes no exit code.
        } else if let Some(queue) = queue.filter(|queue| *queue >= LONG_QUEUE) {
            let text = format!(
                "{} has {queue} write sets to apply: if they do not get fewer, look for a locked table, a huge transaction or a slow disk there",
                name(facts)
            );
            say(Level::Well, text);
        }
    }
    // A majority of fast disks is enough for a commit, so this changes no exit code.
    for facts in group.iter() {
        if let Some(longest) = facts.number("wsrep_trireme_log_sync_longest").filter(|s| *s >= SLOW_SYNC) {
            let text = format!(
                "the disk of {} is slow: in the last ten seconds it took {longest:.2} s for a write or a sync of the write-set log. Look for what else uses that disk",
                name(facts)
            );
            say(Level::Well, text);
        }
    }
    let silent: BTreeSet<String> = primary.iter().flat_map(|facts| facts.names("wsrep_trireme_silent")).collect();
    for silent in silent {
        say(Level::Degraded, format!("{silent} is not heard by the others"));
    }
    for reason in
        primary.iter().filter_map(|facts| facts.text("wsrep_trireme_flow_control_reason")).collect::<BTreeSet<_>>()
    {
        say(Level::Well, format!("flow control: {reason}"));
    }
    for (what, variable) in [("provider", "wsrep_provider_version"), ("server", "version")] {
        let all: BTreeSet<&str> = group.iter().filter_map(|facts| facts.text(variable)).collect();
        if all.len() > 1 {
            let list: Vec<&str> = all.into_iter().collect();
            say(Level::Well, format!("{what} versions differ: {}", list.join(", ")));
        }
    }
    if let Some(open) = primary.iter().find(|facts| facts.text("wsrep_trireme_authentication") == Some("none")) {
        let text = format!("{} lets in everybody who reaches its port for members: set repl.secret_file", name(open));
        say(Level::Well, text);
    }
    if group.iter().any(|facts| facts.is_trireme() && !facts.is_extended()) {
        say(Level::Well, "votes and roles are shown where repl.status_extended=yes is set".to_owned());
    }
    let missing =
        primary.iter().filter_map(|facts| facts.whole("wsrep_cluster_size")).max().unwrap_or(0) - group.len() as i64;
    if missing > 0 && unseen == 0 {
        say(
            Level::Well,
            format!("{missing} of its members have no address for clients (arbitrators), or were not asked"),
        );
    }
    Verdict { level, sentences }
}

/// Write sets that wait to be applied: more than flow control lets pass by default.
const LONG_QUEUE: i64 = 32;
/// Of a write or a sync of the log, in seconds: what the flight recorder calls slow, too.
const SLOW_SYNC: f64 = 0.1;

fn of_votes(votes: &Votes, primary: bool) -> (Level, String) {
    let Votes { voters, voters_there: there, weight, weight_there, needed, failures_survived, absent } = votes;
    let equal = weight == voters;
    let mut text = format!("{there} of {voters} voters {} there", if *there == 1 { "is" } else { "are" });
    if !equal {
        text += &format!(", with {weight_there} of {weight} votes");
    }
    if !absent.is_empty() {
        text += &format!(" ({} {} not)", absent.join(", "), if absent.len() == 1 { "is" } else { "are" });
    }
    if weight_there < needed {
        text += &format!(": {needed} are needed to commit. Start or reconnect those that are missing");
        return (Level::Down, text);
    }
    text += &match (primary, failures_survived) {
        (_, 0) if *voters == 1 => ": it stands alone".to_owned(),
        (_, 0) => ": one more failure stops the cluster".to_owned(),
        (_, 1) => ": any one of them may fail".to_owned(),
        (_, n) => format!(": any {n} of them may fail at the same time"),
    };
    (if absent.is_empty() { Level::Well } else { Level::Degraded }, text)
}

/// Galera, or a node that does not tell: more than half of the last view has to stay.
fn of_size(primary: &[&Facts]) -> (Level, String) {
    let size = primary.iter().filter_map(|facts| facts.whole("wsrep_cluster_size")).max().unwrap_or(0);
    let text = match size {
        0 | 1 => "the primary component has one member: it stands alone".to_owned(),
        2 => "the primary component has two members: one more failure stops the cluster".to_owned(),
        n => match (n - 1) / 2 {
            1 => format!("the primary component has {n} members: any one of them may fail"),
            k => format!("the primary component has {n} members: any {k} of them may fail at the same time"),
        },
    };
    (Level::Well, text)
}

/// Two members that both are primary while neither lists the other. Views change while we ask; members that differ in part are such a change.
fn two_parts(primary: &[&Facts]) -> Option<(String, String)> {
    for (place, one) in primary.iter().enumerate() {
        for other in &primary[place + 1..] {
            let (Some(own), Some(its)) = (one.own_address(), other.own_address()) else { continue };
            let lists = |facts: &Facts, address| facts.addresses().into_iter().flatten().any(|a| a == address);
            if !lists(one, its) && !lists(other, own) {
                return Some((one.name()?.to_owned(), other.name()?.to_owned()));
            }
        }
    }
    None
}

/// Remarks that concern no cluster, or several.
pub fn notes(servers: &[Server], clusters: &[(String, Option<String>)]) -> Vec<String> {
    let mut out = Vec::new();
    for server in servers {
        let name = server.name.as_deref().unwrap_or(&server.address);
        match &server.trouble {
            Some(trouble) => {
                let name = server.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
                out.push(format!("{}{name}: {}", server.address, trouble.text));
            }
            None if server.cluster.is_none() => {
                out.push(format!("{name} replicates nothing: wsrep_on is OFF, or no provider is loaded"));
            }
            None => {}
        }
        if let Some(ahead) = server.clock_ahead_seconds.filter(|ahead| ahead.abs() > 1.0) {
            let (by, way) = (ahead.abs(), if ahead > 0.0 { "ahead of" } else { "behind" });
            out.push(format!(
                "the clock of {name} is {by:.1} s {way} this machine's: logs of different nodes are hard to compare"
            ));
        }
    }
    let names: BTreeSet<&str> = clusters.iter().map(|(name, _)| name.as_str()).collect();
    for name in names {
        let uuids: Vec<&str> = clusters
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, uuid)| uuid.as_deref().unwrap_or("no history yet"))
            .collect();
        if uuids.len() > 1 {
            out.push(format!(
                "there are {} clusters with the name {name}, with different data ({}): nodes of one cannot join the other without a full copy",
                uuids.len(),
                uuids.join(", ")
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Picture;
    use crate::facts::tests::facts;
    use crate::survey::Answer;

    const HISTORY: &str = "0d63b6dc-0000-11ef-8000-000000000001";
    const ADDRESSES: [&str; 3] = ["10.0.0.1:3306", "10.0.0.2:3306", "10.0.0.3:3306"];

    /// Member `n` of a group of three, of which those in `view` are left.
    fn member(n: usize, view: &[usize], more: &[(&str, &str)]) -> Facts {
        let addresses: Vec<&str> = view.iter().map(|n| ADDRESSES[n - 1]).collect();
        let index = view.iter().position(|other| *other == n).unwrap_or(0);
        let mut facts = facts(&[
            ("wsrep_provider_name", "Trireme"),
            ("wsrep_provider_version", "4.23(trireme 0.1.0)"),
            ("wsrep_on", "ON"),
            ("wsrep_cluster_name", "shop"),
            ("wsrep_cluster_state_uuid", HISTORY),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_cluster_size", &view.len().to_string()),
            ("wsrep_node_name", &format!("db{n}")),
            ("wsrep_gcomm_uuid", &format!("uuid-{n}")),
            ("wsrep_local_index", &index.to_string()),
            ("wsrep_local_state", "4"),
            ("wsrep_local_state_comment", "Synced"),
            ("wsrep_ready", "ON"),
            ("wsrep_incoming_addresses", &addresses.join(",")),
            ("wsrep_trireme_role", if n == 1 { "sequencer" } else { "voter" }),
            ("wsrep_trireme_sequencer", "db1"),
            ("wsrep_trireme_term", "7"),
            ("wsrep_trireme_voters", "db1:1,db2:1,db3:1"),
            ("wsrep_last_committed", "100"),
        ]);
        for (name, value) in more {
            facts.status.insert((*name).to_owned(), (*value).to_owned());
        }
        facts
    }

    fn seen(members: Vec<Facts>, failed: &[Trouble]) -> Picture {
        let at = |n: usize| Target::parse(ADDRESSES[n % 3], None).unwrap();
        let mut answers: Vec<(Target, Answer)> = members.into_iter().enumerate().map(|(n, f)| (at(n), Ok(f))).collect();
        let first = answers.len();
        answers.extend(failed.iter().enumerate().map(|(n, t)| (at(first + n), Err(t.clone()))));
        Picture::of(&answers)
    }

    fn first(picture: &Picture) -> (Level, &str) {
        (picture.level(), &picture.clusters[0].verdict.sentences[0])
    }

    #[test]
    fn all_are_there() {
        let picture = seen((1..=3).map(|n| member(n, &[1, 2, 3], &[])).collect(), &[]);
        assert_eq!(first(&picture), (Level::Well, "3 of 3 voters are there: any one of them may fail"));
        assert!(picture.notes.is_empty());
    }

    #[test]
    fn one_applies_nothing() {
        let all = |more: &[(&str, &str)]| {
            seen(vec![member(1, &[1, 2, 3], &[]), member(2, &[1, 2, 3], more), member(3, &[1, 2, 3], &[])], &[])
        };
        let picture = all(&[("wsrep_local_recv_queue", "99")]);
        let sentences = &picture.clusters[0].verdict.sentences;
        assert!(sentences.iter().any(|line| line.starts_with("db2 has 99 write sets to apply: if")), "{sentences:?}");
        assert_eq!(picture.level(), Level::Well);
        // Nobody waits for it any more.
        let picture = all(&[("wsrep_local_recv_queue", "99"), ("wsrep_trireme_flow_control_gave_up", "yes")]);
        let sentences = &picture.clusters[0].verdict.sentences;
        let told =
            |line: &String| line.starts_with("db2 has 99 write sets to apply, applies none, and slows nobody any more");
        assert!(sentences.iter().any(told), "{sentences:?}");
        assert_eq!(picture.level(), Level::Degraded);
    }

    #[test]
    fn one_has_a_slow_disk() {
        let seconds = |seconds: &str| {
            let slow = [("wsrep_trireme_log_sync_longest", seconds)];
            let members = vec![member(1, &[1, 2, 3], &[]), member(2, &[1, 2, 3], &slow), member(3, &[1, 2, 3], &[])];
            let picture = seen(members, &[]);
            assert_eq!(picture.level(), Level::Well);
            picture.clusters[0].verdict.sentences.join("\n")
        };
        let told = "the disk of db2 is slow: in the last ten seconds it took 0.15 s for a write or a sync of the write-set log";
        assert!(seconds("0.15").contains(told), "{}", seconds("0.15"));
        assert!(!seconds("0.099").contains("slow"), "{}", seconds("0.099"));
    }

    #[test]
    fn one_is_dead() {
        let refused = Trouble::Refused("Connection refused".into());
        let dropped = seen((1..=2).map(|n| member(n, &[1, 2], &[])).collect(), std::slice::from_ref(&refused));
        let verdict = "2 of 3 voters are there (db3 is not): one more failure stops the cluster";
        assert_eq!(first(&dropped), (Level::Degraded, verdict));
        // Before the view drops it, it is silent only.
        let silent = [("wsrep_trireme_silent", "db3")];
        let fresh = seen((1..=2).map(|n| member(n, &[1, 2, 3], &silent)).collect(), std::slice::from_ref(&refused));
        assert_eq!(first(&fresh), (Level::Degraded, verdict));
        assert_eq!(fresh.servers[2].name.as_deref(), Some("db3"));
        // And before the others notice, nobody listens at its address.
        let unnoticed = seen((1..=2).map(|n| member(n, &[1, 2, 3], &[])).collect(), &[refused]);
        assert_eq!(first(&unnoticed), (Level::Degraded, verdict));
    }

    #[test]
    fn one_that_refuses_our_account_is_there_by_the_word_of_the_others() {
        let denied = Trouble::Denied("Access denied".into());
        let picture = seen((1..=2).map(|n| member(n, &[1, 2, 3], &[])).collect(), &[denied]);
        assert_eq!(first(&picture), (Level::Degraded, "3 of 3 voters are there: any one of them may fail"));
        assert!(picture.notes[0].contains("refuses the account"), "{:?}", picture.notes);
    }

    #[test]
    fn the_majority_is_lost() {
        let off =
            [("wsrep_cluster_status", "non-Primary"), ("wsrep_trireme_role", "non-primary"), ("wsrep_ready", "OFF")];
        let picture = seen(vec![member(1, &[1], &off)], &[Trouble::Silent, Trouble::Silent]);
        assert_eq!(picture.level(), Level::Down);
        let sentences = &picture.clusters[0].verdict.sentences;
        assert!(sentences[0].contains("no server that answers is in a primary component"), "{sentences:?}");
        assert!(sentences[1].starts_with("1 of 3 voters is there (db2, db3 are not): 2 are needed"), "{sentences:?}");
    }

    #[test]
    fn weights_count() {
        let heavy = [("wsrep_trireme_voters", "db1:3,db2:1,db3:1")];
        let picture = seen((1..=3).map(|n| member(n, &[1, 2, 3], &heavy)).collect(), &[]);
        let text = "3 of 3 voters are there, with 5 of 5 votes: one more failure stops the cluster";
        assert_eq!(first(&picture), (Level::Well, text));
    }

    #[test]
    fn two_parts_that_are_primary_are_told_first() {
        let picture = seen(vec![member(1, &[1], &[]), member(2, &[2], &[])], &[]);
        let (level, text) = first(&picture);
        assert!(level == Level::Down && text.contains("different primary components"), "{text}");
    }

    #[test]
    fn two_clusters_with_one_name() {
        let other = [("wsrep_cluster_state_uuid", "99999999-0000-11ef-8000-000000000001")];
        let picture = seen(vec![member(1, &[1], &[]), member(2, &[2], &other)], &[]);
        assert_eq!(picture.clusters.len(), 2);
        assert!(picture.notes[0].starts_with("there are 2 clusters with the name shop"), "{:?}", picture.notes);
        // One that has no history yet belongs to the only one there is.
        let none = [("wsrep_cluster_state_uuid", "00000000-0000-0000-0000-000000000000")];
        let picture = seen(vec![member(1, &[1, 2], &[]), member(2, &[1, 2], &none)], &[]);
        assert_eq!(picture.clusters.len(), 1);
        // Nor does one that has left, and says no name any more, take the others down with it.
        let off = ("wsrep_cluster_status", "non-Primary");
        for uuid in [HISTORY, "00000000-0000-0000-0000-000000000000"] {
            let left = [("wsrep_cluster_name", ""), ("wsrep_cluster_state_uuid", uuid), off];
            let picture = seen(vec![member(1, &[1, 2], &[]), member(2, &[1, 2], &[]), member(3, &[3], &left)], &[]);
            let names: Vec<&str> = picture.clusters.iter().map(|cluster| &*cluster.name).collect();
            assert_eq!((names, picture.level()), (vec!["shop"], Level::Degraded), "{uuid}");
        }
    }

    #[test]
    fn galera_and_servers_without_provider() {
        let mut galera = member(1, &[1, 2], &[("wsrep_provider_name", "Galera")]);
        galera.status.retain(|name, _| !name.contains("trireme"));
        let mut plain = facts(&[("wsrep_on", "OFF"), ("hostname", "x")]);
        plain.clock = Some((-5.0, 0.1));
        let picture = seen(vec![galera, plain], &[]);
        assert_eq!(first(&picture).1, "the primary component has two members: one more failure stops the cluster");
        assert!(picture.notes.iter().any(|note| note.contains("x replicates nothing")));
        assert!(picture.notes.iter().any(|note| note.contains("5.0 s behind")));
    }

    #[test]
    fn nobody_answers() {
        let picture = seen(vec![], &[Trouble::Silent]);
        assert!(picture.is_empty());
        assert_eq!(picture.level(), Level::Down);
    }
}
