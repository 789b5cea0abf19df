//! `trireme doctor --outage`: reads the logs of stopped nodes. `trireme-observe` says what they mean.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use trireme_observe::outage::{Held, Outlook, judge};
use trireme_surface::grastate::SavedState;
use trireme_types::{EntryKind, NodeId, Reader, View, VoterSet};
use trireme_wslog::inspect::entries;

use crate::log::look;
use crate::run::print_line;
use crate::table;

pub fn run(dirs: &[String], as_json: bool) -> ExitCode {
    let mut held = Vec::new();
    let mut unread = Vec::new();
    for word in dirs {
        let (name, dir) = match word.split_once('=') {
            Some((name, dir)) if !name.contains('/') => (name.to_owned(), dir),
            Some(_) | None => (word.trim_end_matches('/').to_owned(), word.as_str()),
        };
        match read(&name, Path::new(dir)) {
            Ok(found) => held.push(found),
            Err(reason) => unread.push(format!("{name}: {reason}")),
        }
    }
    let verdict = judge(&held);
    if as_json {
        print_line(&format!("{:#}", json!({ "version": 1, "nodes": held, "unread": unread, "verdict": verdict })));
    } else {
        let head = ["NODE", "TERM", "ENTRY", "SEQNO", "FROM", "LOG", "GRASTATE"].map(str::to_owned);
        let row = |h: &Held| {
            vec![
                h.name.clone(),
                h.term.to_string(),
                h.last.to_string(),
                h.seqno.to_string(),
                h.from.to_string(),
                if h.doubt.is_some() { "doubtful" } else { "whole" }.to_owned(),
                table::or_dash(h.data.as_ref()),
            ]
        };
        table::print(&head, &held.iter().map(row).collect::<Vec<_>>());
        for line in unread.iter().chain(&verdict.sentences) {
            print_line(&format!("{}.", line.trim_end_matches('.')));
        }
    }
    match verdict.outlook {
        Outlook::NoLog => ExitCode::FAILURE,
        Outlook::ByItself if unread.is_empty() => ExitCode::SUCCESS,
        Outlook::ByItself | Outlook::Waits | Outlook::Different => ExitCode::from(3),
    }
}

fn read(name: &str, dir: &Path) -> Result<Held, String> {
    let look = look(dir, None)?;
    let meta = look.summary.meta.as_ref().ok_or("the log has no metadata")?;
    let base = &look.verdict.base;
    let (mut term, mut last, mut seqno) = (base.term, base.index, base.seqno);
    let mut voters = base.voters.clone();
    let mut lineage = base.lineage.clone();
    let mut names: BTreeMap<NodeId, String> = base.view.members.iter().map(|m| (m.node, m.name.clone())).collect();
    entries(&look.storage, None, look.keys.as_ref(), |entry| {
        let header = &entry.header;
        (term, last, seqno) = (header.term, header.index, header.seqno);
        let mut r = Reader::new(&entry.payload);
        match header.kind {
            EntryKind::Voters => {
                if let Ok(set) = VoterSet::decode(&mut r) {
                    if !set.fork.is_nil() {
                        lineage = lineage.with(trireme_types::Fork {
                            index: header.index,
                            seqno: header.seqno,
                            id: set.fork,
                        });
                    }
                    voters = set;
                }
            }
            EntryKind::View => {
                if let Ok(view) = View::decode(&mut r) {
                    names.extend(view.members.into_iter().map(|m| (m.node, m.name)));
                }
            }
            EntryKind::Term | EntryKind::WriteSet | EntryKind::App | EntryKind::Setting => {}
        }
        true
    })
    .map_err(|error| error.to_string())?;
    let report = &look.verdict.report;
    let doubt = match (report.hole, report.suspect) {
        (Some(hole), _) => Some(format!("entries {hole} were acknowledged and are gone")),
        (None, Some(after)) => Some(format!("entries after {after} may be missing although it acknowledged them")),
        (None, None) => None,
    };
    let saved = fs::read_to_string(dir.join("grastate.dat")).ok().map(|text| SavedState::parse(&text));
    Ok(Held {
        name: name.to_owned(),
        node: meta.node.to_string(),
        history: base.history.to_string(),
        branch: lineage.branch(base.history).to_string(),
        term: term.raw(),
        last: last.raw(),
        seqno: seqno.raw(),
        from: base.seqno.next().raw(),
        committed: meta.hard.committed.raw(),
        doubt,
        voters: voters
            .voters
            .iter()
            .map(|v| (v.node.to_string(), u32::from(v.weight.raw()), names.get(&v.node).cloned().unwrap_or_default()))
            .collect(),
        data: saved.map(|s| s.seqno.map_or_else(|| "not known".to_owned(), |seqno| seqno.to_string())),
    })
}
