//! One entry, decoded.

use serde_json::{Value, json};
use trireme_certification::{Head, KeyKind, WriteSet, flags};
use trireme_types::{
    Durability, Entry, EntryKind, LogIndex, NodeId, Reader, Seqno, Setting, View, VoterSet, printable,
};
use trireme_wslog::IndexRange;
use trireme_wslog::inspect::entries;

use super::{Look, print_fields, range_text, text};
use crate::run::print_json;

#[derive(Clone, Copy)]
pub enum Wanted {
    Index(LogIndex),
    Seqno(Seqno),
}

pub fn show(look: &Look, wanted: Wanted, as_json: bool) -> Result<(), String> {
    let entry = find(look, wanted)?;
    let fields = fields(&entry);
    if as_json {
        let object: serde_json::Map<String, Value> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        print_json(&Value::Object(object));
    } else {
        let lines: Vec<(&str, String)> = fields.into_iter().map(|(name, value)| (name, plain(&value))).collect();
        print_fields(&lines);
    }
    Ok(())
}

fn find(look: &Look, wanted: Wanted) -> Result<Entry, String> {
    let range = match wanted {
        Wanted::Index(index) => Some(IndexRange { from: index, to: index }),
        Wanted::Seqno(_) => None,
    };
    let mut found = None;
    entries(&look.storage, range, look.keys.as_ref(), |entry| {
        let (here, beyond) = match wanted {
            Wanted::Index(_) => (true, false),
            Wanted::Seqno(seqno) => {
                (entry.header.kind.takes_seqno() && entry.header.seqno == seqno, entry.header.seqno > seqno)
            }
        };
        if here {
            found = Some(entry);
        }
        !(here || beyond)
    })
    .map_err(text)?;
    found.ok_or_else(|| {
        let held = range_text(look.range());
        match wanted {
            Wanted::Index(index) => format!("no entry {index}: the log holds entries {held}"),
            Wanted::Seqno(seqno) => {
                format!(
                    "no entry with seqno {seqno}: the log holds entries {held}, after seqno {}",
                    look.verdict.base.seqno
                )
            }
        }
    })
}

pub fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Term => "term",
        EntryKind::WriteSet => "write set",
        EntryKind::View => "view",
        EntryKind::Voters => "voters",
        EntryKind::App => "message",
        EntryKind::Setting => "setting",
    }
}

/// Names and values in the order of reading.
fn fields(entry: &Entry) -> Vec<(&'static str, Value)> {
    let header = &entry.header;
    let mut out = vec![
        ("index", json!(header.index.raw())),
        ("kind", json!(kind_name(header.kind))),
        ("term", json!(header.term.raw())),
        ("seqno", json!(header.seqno.raw())),
        ("takes_seqno", json!(header.kind.takes_seqno())),
        ("voters_at", json!(header.voters.raw())),
    ];
    if !header.session.node.0.is_nil() {
        out.push(("origin", json!(header.session.node.to_string())));
        out.push(("incarnation", json!(header.session.incarnation().raw())));
        out.push(("session", json!(header.session.number)));
        out.push(("number", json!(header.number.0)));
    }
    out.push(("bytes", json!(entry.payload.len())));
    out.extend(payload(entry));
    out
}

fn payload(entry: &Entry) -> Vec<(&'static str, Value)> {
    let mut r = Reader::new(&entry.payload);
    let decoded = match entry.header.kind {
        // From group level 2 on it says who orders.
        EntryKind::Term if !entry.payload.is_empty() => r.uuid().and_then(|node| {
            let name = r.str(256)?;
            Ok(vec![("sequencer", json!(format!("{} ({node})", printable(&name))))])
        }),
        EntryKind::Term | EntryKind::App => Ok(Vec::new()),
        EntryKind::WriteSet => WriteSet::parse(entry.payload.clone()).map(|set| write_set(&set)),
        EntryKind::View => View::decode(&mut r).map(|view| {
            let members: Vec<String> =
                view.members.iter().map(|m| format!("{} ({}, {})", m.name, m.node, m.address)).collect();
            vec![("view", json!(view.number)), ("members", json!(members))]
        }),
        EntryKind::Voters => VoterSet::decode(&mut r).map(|set| {
            let voters: Vec<String> = set.voters.iter().map(|v| voter(v.node, v.weight.raw())).collect();
            vec![("voters", json!(voters)), ("forced", json!(!set.fork.is_nil()))]
        }),
        EntryKind::Setting => Setting::decode(&entry.payload).map(|setting| match setting {
            Setting::Durability(Durability::Disk) => vec![("durability", json!("disk"))],
            Setting::Durability(Durability::Process) => vec![("durability", json!("process"))],
            Setting::Level(level) => vec![("group_level", json!(level.0))],
        }),
    };
    // Every member judges such an entry alike, so it is no damage of this log.
    decoded.unwrap_or_else(|error| vec![("malformed", json!(format!("{error:?}")))])
}

fn voter(node: NodeId, weight: u8) -> String {
    if weight == 1 { node.to_string() } else { format!("{node} weight {weight}") }
}

fn write_set(set: &WriteSet) -> Vec<(&'static str, Value)> {
    let head = set.head();
    let mut out = vec![
        ("flags", json!(flag_names(head))),
        ("last_seen", json!(head.last_seen.raw())),
        ("member", json!(head.origin.to_string())),
    ];
    if head.trx != u64::MAX {
        out.push(("transaction", json!(head.trx)));
    }
    out.extend([
        ("connection", json!(head.conn)),
        ("keys", json!(set.key_count())),
        ("key_bytes", json!(set.key_bytes())),
        ("data_bytes", json!(set.data_bytes())),
        ("key_hashes", json!(key_hashes(set))),
    ]);
    out
}

/// Equal hashes mean equal keys, so that two write sets can be compared; a key's names cannot be had back from them.
fn key_hashes(set: &WriteSet) -> Vec<String> {
    set.groups()
        .flat_map(|group| group.hashed().collect::<Vec<_>>())
        .map(|(parts, kind)| {
            let parts: Vec<String> = parts.iter().map(|part| format!("{part:016x}")).collect();
            let kind = match kind {
                KeyKind::Shared => "shared",
                KeyKind::Reference => "reference",
                KeyKind::Update => "update",
                KeyKind::Exclusive => "exclusive",
            };
            format!("{} {kind}", parts.join("/"))
        })
        .collect()
}

fn flag_names(head: &Head) -> Vec<String> {
    let known = [
        (flags::TRX_START, "start"),
        (flags::TRX_END, "commit"),
        (flags::ROLLBACK, "rollback"),
        (flags::ISOLATION, "isolation"),
        (flags::PA_UNSAFE, "not parallel"),
    ];
    let mut names: Vec<String> =
        known.iter().filter(|(bit, _)| head.flags & bit != 0).map(|(_, name)| (*name).to_owned()).collect();
    // Flags that mean something to the server only.
    let rest = known.iter().fold(head.flags, |rest, (bit, _)| rest & !bit);
    if rest != 0 {
        names.push(format!("0x{rest:x}"));
    }
    names
}

/// A value as a person writes it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}
