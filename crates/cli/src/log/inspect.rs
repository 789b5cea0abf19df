//! `trireme log inspect` of a whole log.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trireme_certification::WriteSet;
use trireme_types::{Entry, EntryKind, NodeId};
use trireme_wslog::KeyId;
use trireme_wslog::inspect::{CheckpointInfo, MetaInfo, SegmentInfo, SegmentState, entries};

use super::entry::kind_name;
use super::{Look, print_fields, range_json, range_text, text};
use crate::run::{print_json, print_line};
use crate::table;

pub fn log(look: &Look, as_json: bool) -> Result<(), String> {
    let mut statistics = Statistics::default();
    entries(&look.storage, None, look.keys.as_ref(), |entry| {
        statistics.count(&entry);
        true
    })
    .map_err(text)?;
    if as_json {
        print_json(&to_json(look, &statistics));
    } else {
        print_text(look, &statistics);
    }
    Ok(())
}

// --- statistics ------------------------------------------------------------------------------------------------------

#[derive(Default)]
struct Statistics {
    kinds: BTreeMap<&'static str, Kind>,
    origins: BTreeMap<NodeId, u64>,
    isolated: u64,
    fragments: u64,
    malformed: u64,
    keys: u64,
    data_bytes: u64,
}

#[derive(Default)]
struct Kind {
    entries: u64,
    bytes: u64,
    largest: u64,
}

impl Statistics {
    fn count(&mut self, entry: &Entry) {
        let bytes = entry.payload.len() as u64;
        let kind = self.kinds.entry(kind_name(entry.header.kind)).or_default();
        kind.entries += 1;
        kind.bytes += bytes;
        kind.largest = kind.largest.max(bytes);
        if entry.header.kind != EntryKind::WriteSet {
            return;
        }
        *self.origins.entry(entry.header.session.node).or_default() += 1;
        match WriteSet::parse(entry.payload.clone()) {
            Ok(set) => {
                self.keys += set.key_count() as u64;
                self.data_bytes += set.data_bytes() as u64;
                self.isolated += u64::from(set.head().is_toi());
                self.fragments += u64::from(set.head().is_fragment());
            }
            Err(_) => self.malformed += 1,
        }
    }

    fn to_json(&self) -> Value {
        let kinds: serde_json::Map<String, Value> = self
            .kinds
            .iter()
            .map(|(name, k)| {
                ((*name).to_owned(), json!({ "entries": k.entries, "bytes": k.bytes, "largest": k.largest }))
            })
            .collect();
        let origins: serde_json::Map<String, Value> =
            self.origins.iter().map(|(node, count)| (node.to_string(), json!(count))).collect();
        json!({
            "kinds": kinds,
            "write_sets_by_origin": origins,
            "isolated": self.isolated,
            "fragments": self.fragments,
            "malformed": self.malformed,
            "keys": self.keys,
            "data_bytes": self.data_bytes,
        })
    }
}

// --- for programs ----------------------------------------------------------------------------------------------------

fn to_json(look: &Look, statistics: &Statistics) -> Value {
    let base = &look.verdict.base;
    json!({
        "dir": look.storage.path(),
        "meta": look.summary.meta.as_ref().map(meta_json),
        "base": { "index": base.index.raw(), "seqno": base.seqno.raw(), "term": base.term.raw() },
        "entries": range_json(look.range()),
        "gaps": gaps(look).into_iter().map(|(range, why)| json!({ "range": range, "why": why })).collect::<Vec<_>>(),
        "segments": look.summary.segments.iter().map(segment_json).collect::<Vec<_>>(),
        "checkpoints": look.summary.checkpoints.iter().map(checkpoint_json).collect::<Vec<_>>(),
        "spare": look.summary.spare,
        "notes": look.verdict.report.notes,
        "statistics": statistics.to_json(),
    })
}

fn meta_json(meta: &MetaInfo) -> Value {
    json!({
        "member": meta.node.to_string(),
        "incarnation": meta.incarnation.raw(),
        "history": meta.history.to_string(),
        "term": meta.hard.term.raw(),
        "voted_for": meta.hard.voted_for().to_string(),
        "committed": meta.hard.committed.raw(),
        "synced": meta.synced.raw(),
        "closed": meta.clean,
        "durability": durability(meta),
        "suspect_after": meta.suspect.map(|index| index.raw()),
        "outdated": meta.outdated,
        "boot_id": meta.boot_id,
    })
}

fn segment_json(segment: &SegmentInfo) -> Value {
    json!({
        "name": segment.name,
        "number": segment.number,
        "state": state_name(segment.state),
        "entries": range_json(segment.range),
        "seqnos": segment.seqnos.map(|(from, to)| json!({ "from": from.raw(), "to": to.raw() })),
        "bytes_used": segment.bytes_used,
        "bytes_file": segment.bytes_file,
        "key": segment.key.map(|id| id.to_string()),
        "behind_the_end": segment.bad,
    })
}

fn checkpoint_json(checkpoint: &CheckpointInfo) -> Value {
    json!({
        "name": checkpoint.name,
        "whole": checkpoint.position.is_some(),
        "key": checkpoint.key.map(|id| id.to_string()),
        "index": checkpoint.position.map(|(index, _, _)| index.raw()),
        "seqno": checkpoint.position.map(|(_, _, seqno)| seqno.raw()),
    })
}

// --- for people ------------------------------------------------------------------------------------------------------

fn print_text(look: &Look, statistics: &Statistics) {
    let base = &look.verdict.base;
    let mut fields = Vec::new();
    match &look.summary.meta {
        Some(meta) => fields.extend([
            ("member", meta.node.to_string()),
            ("incarnation", meta.incarnation.to_string()),
            ("history", meta.history.to_string()),
            ("term", meta.hard.term.to_string()),
            ("durability", durability(meta).to_owned()),
            ("closed", if meta.clean { "yes" } else { "no (the node runs, or died)" }.to_owned()),
            ("committed", format!("entry {}, as last noted", meta.hard.committed)),
        ]),
        None => fields.push(("member", "unknown: no readable metadata".to_owned())),
    }
    fields.push(("begins after", format!("entry {}, seqno {}", base.index, base.seqno)));
    fields.push(("entries", range_text(look.range())));
    let gaps = gaps(look);
    fields.push(("gaps", if gaps.is_empty() { "none".to_owned() } else { gaps.len().to_string() }));
    print_fields(&fields);
    for (range, why) in gaps {
        print_line(&format!("gap {range}: {why}"));
    }
    for note in &look.verdict.report.notes {
        print_line(&format!("note: {note}"));
    }

    print_line("");
    let head = ["SEGMENT", "STATE", "ENTRIES", "SEQNOS", "USED", "SIZE", "KEY", "BEHIND THE END"].map(str::to_owned);
    let rows: Vec<Vec<String>> = look.summary.segments.iter().map(segment_row).collect();
    table::print(&head, &rows);

    print_line("");
    let head = ["CHECKPOINT", "ENTRY", "SEQNO", "KEY"].map(str::to_owned);
    let rows: Vec<Vec<String>> = look
        .summary
        .checkpoints
        .iter()
        .map(|c| match c.position {
            Some((index, _, seqno)) => {
                vec![c.name.clone(), index.to_string(), seqno.to_string(), key_text(c.key)]
            }
            None => vec![c.name.clone(), "not whole".to_owned(), "-".to_owned(), key_text(c.key)],
        })
        .collect();
    table::print(&head, &rows);

    print_line("");
    let head = ["KIND", "ENTRIES", "BYTES", "LARGEST"].map(str::to_owned);
    let rows: Vec<Vec<String>> = statistics
        .kinds
        .iter()
        .map(|(name, k)| vec![(*name).to_owned(), k.entries.to_string(), k.bytes.to_string(), k.largest.to_string()])
        .collect();
    table::print(&head, &rows);
    print_line("");
    print_fields(&[
        ("keys", statistics.keys.to_string()),
        ("data bytes", statistics.data_bytes.to_string()),
        ("isolated", statistics.isolated.to_string()),
        ("fragments", statistics.fragments.to_string()),
        ("malformed", statistics.malformed.to_string()),
    ]);
    for (node, count) in &statistics.origins {
        print_line(&format!("write sets of {node}  {count}"));
    }
}

fn segment_row(segment: &SegmentInfo) -> Vec<String> {
    vec![
        segment.name.clone(),
        state_name(segment.state).to_owned(),
        range_text(segment.range),
        segment.seqnos.map_or_else(|| "-".to_owned(), |(from, to)| format!("{from}-{to}")),
        segment.bytes_used.to_string(),
        segment.bytes_file.to_string(),
        key_text(segment.key),
        segment.bad.unwrap_or("-").to_owned(),
    ]
}

fn key_text(key: Option<KeyId>) -> String {
    key.map_or_else(|| "none".to_owned(), |id| id.to_string())
}

fn state_name(state: SegmentState) -> &'static str {
    match state {
        SegmentState::Continues => "continues",
        SegmentState::Cut => "cut",
        SegmentState::Reset => "reset",
        SegmentState::Unreadable => "unreadable",
        SegmentState::PutAside => "put aside",
    }
}

fn durability(meta: &MetaInfo) -> &'static str {
    if meta.process { "process" } else { "disk" }
}

/// Ranges of entries that should be there and are not.
fn gaps(look: &Look) -> Vec<(String, &'static str)> {
    let report = &look.verdict.report;
    let earlier = look.summary.meta.as_ref().and_then(|meta| meta.hole).filter(|hole| Some(*hole) != report.hole);
    [
        (report.lost_history, "damaged history below the base"),
        (report.hole, "synced once and now unreadable"),
        (earlier, "found missing at an earlier start and not yet confirmed by the others"),
    ]
    .into_iter()
    .filter_map(|(range, why)| Some((range?.to_string(), why)))
    .collect()
}
