//! `trireme status`: every server of a cluster, and a verdict.

use std::io::Write;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::json;

use crate::client::{Connect, Trouble};
use crate::cluster::{Picture, Server};
use crate::facts::{ASK, ASK_FOR_MORE, Facts};
use crate::survey::{Answer, Survey, Target};
use crate::table::{self, or_dash, printable};
use crate::verdict::Level;

/// Changes when a field of the JSON changes its meaning or goes; new fields do not change it.
pub const JSON_VERSION: u32 = 1;

const NOTES: &str = "\
The `mariadb` client asks the servers, with its own settings: option files, sockets, accounts and authentication plugins work as they
do there. One server is enough; the others are found by the list of members that it shows, and asked with the same account. The account
needs no privilege; with SUPER, Trireme nodes are told to show votes and roles too (repl.status_extended=yes, which stays set).

BEHIND: write sets that the foremost server has and this one has not. QUEUE: received and not yet applied. LOG FROM: first seqno in its log.
MAY BE AWAY: how long a member may be away until a full copy is needed, at the mean rate since the server started.

Exit codes:
  0  all servers answer and are in their place
  1  no server answered; one line on stderr for each
  2  wrong usage
  3  clients are served, but something is missing: a server, a voter, a state
  4  clients are not served: no primary component, or two of them";

#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Status {
    #[command(flatten)]
    pub connect: Connect,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show it again every so many seconds (1 without a number), until Ctrl-C; with --json an object per line
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    pub watch: Option<u16>,
    /// Set nothing, also not that a node shows votes and roles
    #[arg(long)]
    pub look_only: bool,
}

/// `trireme status`.
pub fn run(asked: &Status) -> ExitCode {
    let targets = match asked.connect.targets() {
        Ok(targets) => targets,
        Err(reason) => {
            eprintln!("trireme status: {reason}");
            return ExitCode::from(2);
        }
    };
    loop {
        let picture = Picture::of(&ask_all(&asked.connect, targets.clone(), !asked.look_only));
        let text = match (asked.json, asked.watch) {
            (true, None) => format!("{:#}\n", to_json(&picture)),
            (true, Some(_)) => format!("{}\n", to_json(&picture)),
            (false, None) => to_text(&picture),
            // Clears the screen and begins at its top.
            (false, Some(_)) => format!("\x1b[2J\x1b[H{}", to_text(&picture)),
        };
        let mut out = std::io::stdout().lock();
        // A closed pipe is no error, and ends a watch.
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match asked.watch {
            Some(seconds) if written.is_ok() => {
                drop(out);
                thread::sleep(Duration::from_secs(seconds.into()));
            }
            Some(_) | None => return exit(&picture),
        }
    }
}

fn exit(picture: &Picture) -> ExitCode {
    ExitCode::from(match picture.level() {
        _ if picture.is_empty() => 1,
        Level::Well => 0,
        Level::Degraded => 3,
        Level::Down => 4,
    })
}

/// Asks the targets and whom they list, all of a round at the same time.
pub fn ask_all(connect: &Connect, targets: Vec<Target>, extend: bool) -> Vec<(Target, Answer)> {
    let mut survey = Survey::new(targets, !connect.no_discover);
    loop {
        let round: Vec<Target> = std::iter::from_fn(|| survey.poll_target()).collect();
        if round.is_empty() {
            break;
        }
        for (target, answer) in ask_round(connect, round, extend) {
            survey.handle_answer(target, answer);
        }
    }
    let answers = survey.finish();
    if answers.iter().all(|(_, answer)| *answer != Err(Trouble::Silent)) {
        return answers;
    }
    // Those that answered did so before the silence was waited for. Their word of now is worth more.
    let (heard, silent): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, answer)| answer.is_ok());
    let mut answers = ask_round(connect, heard.into_iter().map(|(target, _)| target).collect(), extend);
    answers.extend(silent);
    answers
}

fn ask_round(connect: &Connect, targets: Vec<Target>, extend: bool) -> Vec<(Target, Answer)> {
    thread::scope(|scope| {
        let asked: Vec<_> = targets
            .into_iter()
            .map(|target| {
                let of = target.clone();
                (target, scope.spawn(move || ask(connect, &of, extend)))
            })
            .collect();
        let failed = || Err(Trouble::Other("asking it failed".to_owned()));
        asked.into_iter().map(|(target, thread)| (target, thread.join().unwrap_or_else(|_| failed()))).collect()
    })
}

/// Asks one server. `extend`: a Trireme node is told to show votes and roles, if it may be told.
pub fn ask(connect: &Connect, target: &Target, extend: bool) -> Answer {
    let look = || {
        let asked = unix_time();
        let text = connect.ask(target, ASK)?;
        Facts::parse(&text, asked, unix_time()).map_err(Trouble::Other)
    };
    let facts = look()?;
    if extend && facts.is_trireme() && !facts.is_extended() && connect.ask(target, ASK_FOR_MORE).is_ok() {
        return look();
    }
    Ok(facts)
}

/// Seconds since 1970.
pub fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

fn to_json(picture: &Picture) -> serde_json::Value {
    json!({
        "version": JSON_VERSION,
        "time": unix_time(),
        "level": picture.level(),
        "clusters": picture.clusters,
        "servers": picture.servers,
        "notes": picture.notes,
    })
}

fn to_text(picture: &Picture) -> String {
    let mut out = Vec::new();
    for (place, cluster) in picture.clusters.iter().enumerate() {
        let mut head = vec![
            format!("cluster {} ({})", cluster.name, cluster.uuid.as_deref().unwrap_or("no history yet")),
            if cluster.primary { "primary" } else { "not primary" }.to_owned(),
        ];
        head.extend(cluster.members.map(|n| format!("{n} member{}", if n == 1 { "" } else { "s" })));
        head.extend(cluster.durability.as_ref().map(|mode| format!("durability {mode}")));
        head.extend(cluster.group_level.map(|level| format!("group level {level}")));
        let servers: Vec<&Server> = picture.servers.iter().filter(|server| server.cluster == Some(place)).collect();
        head.extend(traffic(
            cluster.tls,
            servers.iter().filter_map(|server| server.authentication.as_deref()).collect(),
        ));
        head.extend(common(&servers, |server| server.provider.as_deref()).map(|p| format!("{p} on all")));
        head.extend(cluster.term.map(|term| format!("term {term}")));
        out.push(head.join(", "));
        out.extend(rows(&servers));
        let waits = cluster.group_level_waits_for.as_ref().filter(|why| !why.is_empty());
        out.extend(waits.map(|why| format!("The group level stays as it is: {why}.")));
        out.extend(cluster.verdict.sentences.iter().map(|sentence| format!("{sentence}.")));
        out.push(String::new());
    }
    let loose: Vec<&Server> = picture.servers.iter().filter(|server| server.cluster.is_none()).collect();
    if !loose.is_empty() && picture.clusters.is_empty() {
        out.extend(rows(&loose));
    }
    out.extend(picture.notes.iter().map(|note| format!("{note}.")));
    while out.last().is_some_and(String::is_empty) {
        out.pop();
    }
    out.iter().map(|line| printable(line) + "\n").collect()
}

/// How the members' traffic is protected, as far as one of the servers tells.
fn traffic(tls: Option<bool>, mut said: Vec<&str>) -> Option<String> {
    said.sort_unstable();
    said.dedup();
    match (said.as_slice(), tls) {
        (["secret" | "certificates"], _) => Some(format!("traffic encrypted ({})", said[0])),
        (["none" | "none, loopback only"], _) | ([], Some(false)) => Some("traffic in clear text".to_owned()),
        ([], Some(true)) => Some("traffic encrypted".to_owned()),
        ([], None) => None,
        (said, _) => Some(format!("members have to show: {}", said.join(" or "))),
    }
}

fn common<'a>(servers: &[&'a Server], of: impl Fn(&'a Server) -> Option<&'a str>) -> Option<&'a str> {
    let first = of(servers.first()?)?;
    servers.iter().all(|server| of(server) == Some(first)).then_some(first)
}

fn rows(servers: &[&Server]) -> Vec<String> {
    let head =
        ["NODE", "STATE", "ROLE", "VOTES", "SEQNO", "BEHIND", "QUEUE", "LOG FROM", "MAY BE AWAY", "SERVER", "ADDRESS"];
    let row = |server: &&Server| {
        let state = match &server.state {
            Some(state) if server.ready || state != "Synced" => state.clone(),
            Some(state) => format!("{state} (not ready)"),
            None => server.trouble.as_ref().map_or("-", |t| t.kind).to_owned(),
        };
        vec![
            or_dash(server.name.as_ref()),
            state,
            or_dash(server.role.as_deref().or(if server.primary { Some("primary") } else { None })),
            or_dash(server.votes),
            or_dash(server.seqno),
            or_dash(server.behind),
            or_dash(server.queue),
            or_dash(server.log_from),
            or_dash(server.away_seconds.map(table::time)),
            or_dash(server.version.as_ref()),
            server.address.clone(),
        ]
    };
    table::lines(&head.map(str::to_owned), &servers.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_that_tells_is_enough_to_know_how_the_traffic_is_protected() {
        let words = |tls, said: &[&str]| traffic(tls, said.to_vec()).unwrap_or_default();
        assert_eq!(words(Some(false), &["secret"]), "traffic encrypted (secret)");
        assert_eq!(words(Some(false), &["none", "none"]), "traffic in clear text");
        assert_eq!(words(Some(true), &[]), "traffic encrypted");
        assert_eq!(words(None, &[]), "");
        assert_eq!(words(None, &["secret", "none"]), "members have to show: none or secret");
    }
}
