//! `trireme log` as its users meet it: the command itself, over logs made with the log's own code.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use serde_json::Value;
use trireme_certification::{Head, KeyKind, WriteSetBuilder, flags};
use trireme_order::LogStore;
use trireme_surface::secret::{Use, parse};
use trireme_types::{
    Base, Durability, Entry, EntryHeader, EntryKind, LogIndex, Member, MemberKind, NodeId, ProposalNumber, Seqno,
    Session, Term, Uuid, View, Voter, VoterSet, Weight, Writer,
};
use trireme_wslog::{DirStorage, LogKeys, Options, Trim, TrimAnswer, WriteSetLog, read_boot_id};

const NODE: NodeId = NodeId(Uuid([9; 16]));
const OTHER: NodeId = NodeId(Uuid([8; 16]));
/// Seqno 1 is the view; then come the write sets.
const WRITE_SETS: u64 = 400;

struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trireme-cli-log-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    /// The files that hold entries, oldest first.
    fn segments(&self) -> Vec<PathBuf> {
        let mut names: Vec<PathBuf> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|path| name(path).starts_with("trireme.0"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn trireme(words: &[&str], dir: &Dir) -> Output {
    let (action, rest) = words.split_first().unwrap();
    Command::new(env!("CARGO_BIN_EXE_trireme")).args(["log", action]).arg(&dir.0).args(rest).output().unwrap()
}

fn done(words: &[&str], dir: &Dir) -> String {
    let output = trireme(words, dir);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(words: &[&str], dir: &Dir) -> Value {
    serde_json::from_str(&done(&[words, &["--json"]].concat(), dir)).unwrap()
}

/// Fails with one line on stderr, which is returned.
fn refused(words: &[&str], dir: &Dir) -> String {
    let output = trireme(words, dir);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn entry(index: u64, seqno: u64, kind: EntryKind, payload: impl Into<Bytes>) -> Entry {
    let session = Session::first(OTHER, trireme_types::Incarnation(3));
    let internal = matches!(kind, EntryKind::Term | EntryKind::Voters | EntryKind::Setting);
    let header = EntryHeader {
        index: LogIndex(index),
        term: Term(2),
        seqno: Seqno(seqno),
        voters: LogIndex(2),
        session: if internal { Session::default() } else { session },
        number: ProposalNumber(if internal { 0 } else { index }),
        kind,
    };
    Entry { header, payload: payload.into() }
}

fn encoded(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::new();
    write(&mut w);
    w.buf
}

fn write_set(n: u64) -> Bytes {
    let mut builder = WriteSetBuilder::new();
    let row = n.to_le_bytes();
    builder.add_key([b"shop".as_slice(), b"orders".as_slice(), row.as_slice()], KeyKind::Exclusive).unwrap();
    builder.add_key([b"shop".as_slice(), b"stock".as_slice()], KeyKind::Shared).unwrap();
    builder.add_data(&[n as u8; 1000]);
    let head = Head {
        flags: flags::TRX_START | flags::TRX_END,
        last_seen: Seqno(n - 1),
        origin: Uuid([7; 16]),
        trx: 100 + n,
        conn: 5,
    };
    builder.finish(&head).into_bytes()
}

fn entries() -> Vec<Entry> {
    let voters = VoterSet {
        voters: vec![Voter { node: NODE, weight: Weight(1) }, Voter { node: OTHER, weight: Weight(2) }],
        fork: trireme_types::Uuid::NIL,
    };
    let members = vec![Member { node: NODE, name: "alpha".into(), address: "10.0.0.1:4567".into(), ..member() }];
    let view = View { number: 4, members };
    let mut out = vec![
        entry(1, 0, EntryKind::Term, Bytes::new()),
        entry(2, 0, EntryKind::Voters, encoded(|w| voters.encode(w))),
        entry(3, 1, EntryKind::View, encoded(|w| view.encode(w))),
        entry(4, 1, EntryKind::Setting, encoded(|w| w.bool(true))),
    ];
    out.extend((2..2 + WRITE_SETS).map(|n| entry(n + 3, n, EntryKind::WriteSet, write_set(n))));
    out
}

fn member() -> Member {
    Member {
        node: NODE,
        incarnation: trireme_types::Incarnation(1),
        name: String::new(),
        incoming: String::new(),
        address: String::new(),
        segment: 0,
        weight: Weight(1),
        kind: MemberKind::Data,
    }
}

/// A log of several small segments with a checkpoint in its middle, as a node leaves it that runs.
fn open_log(dir: &Dir) -> WriteSetLog<DirStorage> {
    fill_log(dir, None)
}

fn options(keys: Option<LogKeys>) -> Options {
    Options { size: 1 << 20, segment_size_override: Some(64 << 10), keys, ..Options::new(NODE, read_boot_id()) }
}

fn fill_log(dir: &Dir, keys: Option<LogKeys>) -> WriteSetLog<DirStorage> {
    let options = options(keys);
    let (mut log, _) = WriteSetLog::open(DirStorage::new(&dir.0).unwrap(), &options).unwrap();
    let base = Base { history: Uuid([5; 16]), ..Base::default() };
    log.reset(base.clone()).unwrap();
    let entries = entries();
    let (early, late) = entries.split_at(entries.len() / 2);
    log.append(early).unwrap();
    sync(&mut log);
    let last = early.last().unwrap().header;
    let state = Base {
        index: last.index,
        term: last.term,
        seqno: last.seqno,
        voters_at: last.voters,
        durability: Durability::Process,
        ..base
    };
    log.save_checkpoint(&state).unwrap();
    log.append(late).unwrap();
    sync(&mut log);
    log
}

fn sync(log: &mut WriteSetLog<DirStorage>) {
    while let Some(ticket) = log.begin_sync() {
        let done = ticket.run().unwrap();
        log.finish_sync(done).unwrap();
    }
}

fn closed_log() -> Dir {
    let dir = Dir::new();
    open_log(&dir).close().unwrap();
    dir
}

#[test]
fn live_and_closed_logs_are_summed_up_alike() {
    let dir = Dir::new();
    let log = open_log(&dir);
    let live = json(&["inspect"], &dir);
    log.close().unwrap();
    let closed = json(&["inspect"], &dir);
    assert_eq!((&live["meta"]["closed"], &closed["meta"]["closed"]), (&Value::Bool(false), &Value::Bool(true)));
    for report in [live, closed] {
        assert_eq!(report["entries"], serde_json::json!({ "from": 1, "to": 4 + WRITE_SETS }));
        assert_eq!(report["meta"]["member"], NODE.to_string());
        assert_eq!(report["gaps"], serde_json::json!([]));
        assert!(report["segments"].as_array().unwrap().len() > 3, "{report}");
        assert_eq!(report["checkpoints"].as_array().unwrap().len(), 2);
        let statistics = &report["statistics"];
        assert_eq!(statistics["kinds"]["write set"]["entries"], WRITE_SETS);
        assert_eq!(statistics["write_sets_by_origin"][OTHER.to_string()], WRITE_SETS);
        assert_eq!((&statistics["keys"], &statistics["malformed"]), (&Value::from(2 * WRITE_SETS), &Value::from(0)));
        assert_eq!(statistics["data_bytes"], 1000 * WRITE_SETS);
    }
    let text = done(&["inspect"], &dir);
    assert!(text.contains("SEGMENT") && text.contains(&NODE.to_string()), "{text}");
}

#[test]
fn entries_of_each_kind_are_decoded() {
    let dir = closed_log();
    let set = json(&["inspect", "--seqno", "77"], &dir);
    for (field, value) in [
        ("index", Value::from(80)),
        ("kind", Value::from("write set")),
        ("flags", serde_json::json!(["start", "commit"])),
        ("last_seen", Value::from(76)),
        ("origin", Value::from(OTHER.to_string())),
        ("incarnation", Value::from(3)),
        ("member", Value::from(Uuid([7; 16]).to_string())),
        ("transaction", Value::from(177)),
        ("keys", Value::from(2)),
        ("data_bytes", Value::from(1000)),
    ] {
        assert_eq!(set[field], value, "{field} of {set}");
    }
    let keys: Vec<&str> = set["key_hashes"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    let row = keys.iter().find(|key| key.ends_with(" exclusive")).unwrap();
    let table = keys.iter().find(|key| key.ends_with(" shared")).unwrap();
    assert_eq!((row.matches('/').count(), table.matches('/').count()), (2, 1), "{keys:?}");
    assert_eq!(row[..16], table[..16], "the same database");
    assert_ne!(row[17..33], table[17..33], "another table");
    assert_eq!(json(&["inspect", "--entry", "80"], &dir), set);
    // The entry behind the view has the view's seqno too, but did not take it.
    assert_eq!(json(&["inspect", "--seqno", "1"], &dir)["kind"], "view");
    assert_eq!(json(&["inspect", "--entry", "3"], &dir)["members"][0], format!("alpha ({NODE}, 10.0.0.1:4567)"));
    assert_eq!(json(&["inspect", "--entry", "2"], &dir)["voters"][1], format!("{OTHER} weight 2"));
    assert_eq!(json(&["inspect", "--entry", "4"], &dir)["durability"], "process");
    assert!(done(&["inspect", "--entry", "1"], &dir).contains("kind         term"));
    assert!(refused(&["inspect", "--entry", "9999"], &dir).contains("the log holds entries 1-404"));
    assert!(refused(&["inspect", "--seqno", "9999"], &dir).contains("no entry with seqno 9999"));
}

#[test]
fn an_entry_that_no_member_can_read_is_named() {
    let dir = Dir::new();
    let mut log = open_log(&dir);
    let (index, seqno) = (log.last().0 + 1, 2 + WRITE_SETS);
    log.append(&[
        entry(index, seqno, EntryKind::View, Bytes::from_static(&[0xff; 40])),
        entry(index + 1, seqno + 1, EntryKind::WriteSet, write_set(seqno + 1)),
    ])
    .unwrap();
    log.close().unwrap();
    let report = damaged(&dir);
    let said = report["damage"][0].as_str().unwrap();
    assert!(said.starts_with(&format!("entry {index} (View) can be read by no member")), "{report}");
    let text = String::from_utf8(trireme(&["verify"], &dir).stdout).unwrap();
    assert!(text.contains(said) && !text.contains("sound"), "{text}");
}

fn key(action: &str, file: &Path, dir: Option<&Dir>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trireme"));
    command.args(["log", "key", action]).arg(file).args(dir.map(|dir| &dir.0)).output().unwrap()
}

fn keys_in(file: &Path) -> LogKeys {
    let keys = parse(&std::fs::read(file).unwrap(), Use::Log).unwrap();
    LogKeys::new(&keys.into_iter().map(|key| key.0).collect::<Vec<_>>()).unwrap()
}

#[test]
fn an_encrypted_log_is_read_with_its_key_file_and_refused_without() {
    let (dir, place) = (Dir::new(), Dir::new());
    let file = place.0.join("log.key");
    let made = key("new", &file, None);
    assert!(made.status.success(), "{made:?}");
    let said = String::from_utf8(made.stdout).unwrap();
    let digits = std::fs::read_to_string(&file).unwrap().lines().last().unwrap().to_owned();
    let id = keys_in(&file).ids().next().unwrap().to_string();
    assert!(said.contains("repl.log_key_file=") && said.contains(&id) && !said.contains(&digits), "{said}");
    assert!(!key("new", &file, None).status.success(), "there is one");
    fill_log(&dir, Some(keys_in(&file))).close().unwrap();

    let given = ["--key-file", file.to_str().unwrap()];
    for words in [&["inspect"][..], &["inspect", "--entry", "80"], &["verify"], &["trim", "--keep-from", "300"]] {
        let said = refused(words, &dir);
        assert!(said.contains(&id) && said.contains("--key-file"), "{said}");
    }
    let report = json(&[&["inspect"], &given[..]].concat(), &dir);
    assert!(report["segments"].as_array().unwrap().iter().all(|segment| segment["key"] == id));
    assert_eq!(report["statistics"]["data_bytes"], 1000 * WRITE_SETS);
    assert_eq!(json(&[&["inspect", "--seqno", "77"], &given[..]].concat(), &dir)["transaction"], 177);
    assert!(done(&[&["inspect"], &given[..]].concat(), &dir).contains(&id));
    assert_eq!(json(&[&["verify"], &given[..]].concat(), &dir)["sound"], true);

    // A new key for what comes; the old one goes when nothing needs it.
    assert!(key("rotate", &file, None).status.success());
    let new = keys_in(&file).ids().next().unwrap().to_string();
    assert!(key("retire", &file, Some(&dir)).status.success());
    assert_eq!(keys_in(&file).ids().count(), 2, "the log needs the old one");
    let (mut log, _) = WriteSetLog::open(DirStorage::new(&dir.0).unwrap(), &options(Some(keys_in(&file)))).unwrap();
    let last = log.last().0;
    log.append(
        &(1..100).map(|n| entry(last + n, 401 + n, EntryKind::WriteSet, write_set(401 + n))).collect::<Vec<_>>(),
    )
    .unwrap();
    log.close().unwrap();
    let report = json(&[&["inspect"], &given[..]].concat(), &dir);
    let used: Vec<&str> = report["segments"].as_array().unwrap().iter().map(|s| s["key"].as_str().unwrap()).collect();
    assert!(used.first() == Some(&&*id) && used.last() == Some(&&*new), "{used:?}");
    done(&[&["trim", "--keep-from", "400"], &given[..]].concat(), &dir);
    let retired = key("retire", &file, Some(&dir));
    assert!(retired.status.success(), "{retired:?}");
    assert_eq!(json(&[&["verify"], &given[..]].concat(), &dir)["sound"], true, "with what is left");
    assert!(!key("retire", &file, Some(&place)).status.success(), "no log is there");

    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert!(refused(&[&["verify"], &given[..]].concat(), &dir).contains("chmod 0600"));
}

fn flip_a_bit(segment: &Path) {
    let file = std::fs::File::options().read(true).write(true).open(segment).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 20_000).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 20_000).unwrap();
}

/// The report of `verify`, whose exit code says the same.
fn damaged(dir: &Dir) -> Value {
    let output = trireme(&["verify", "--json"], dir);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["sound"], false);
    report
}

#[test]
fn lost_acknowledged_entries_are_found_and_named() {
    let dir = closed_log();
    assert_eq!(json(&["verify"], &dir)["sound"], true);
    flip_a_bit(dir.segments().iter().rev().nth(1).unwrap());
    let report = damaged(&dir);
    let (hole, held) = (&report["hole"], &report["entries"]);
    assert_eq!(hole["to"], 4 + WRITE_SETS, "{report}");
    assert_eq!(hole["from"].as_u64().unwrap(), held["to"].as_u64().unwrap() + 1, "{report}");
    let text = String::from_utf8(trireme(&["verify"], &dir).stdout).unwrap();
    assert!(text.contains("damage: entries") && text.contains("damaged: entries 1-"), "{text}");
    // It was only looked at: the second look finds the same.
    assert_eq!(damaged(&dir), report);
    assert_eq!(json(&["inspect"], &dir)["gaps"].as_array().unwrap().len(), 1);
}

#[test]
fn damage_below_a_checkpoint_costs_history_only() {
    let dir = closed_log();
    flip_a_bit(&dir.segments()[2]);
    let report = damaged(&dir);
    assert_eq!(report["entries"], serde_json::json!({ "from": 203, "to": 404 }));
    assert_eq!(report["lost_history"], serde_json::json!({ "from": 1, "to": 202 }));
    assert_eq!(report["hole"], Value::Null);
}

#[test]
fn damaged_metadata_is_found() {
    let dir = closed_log();
    let file = std::fs::File::options().write(true).open(dir.0.join("trireme.meta.galera.cache")).unwrap();
    file.write_all_at(&[0xff; 32], 4096).unwrap();
    let output = trireme(&["verify"], &dir);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("copies of the metadata"));
    file.write_all_at(&[0xff; 32], 0).unwrap();
    assert!(refused(&["verify"], &dir).contains("both copies"));
}

#[test]
fn trimming_keeps_what_it_was_told_to_keep() {
    let dir = closed_log();
    let before = dir.segments().len();
    let report = json(&["trim", "--keep-from", "300"], &dir);
    // Down to the checkpoint in the middle, not to 300: only there may a log begin.
    assert_eq!(report["entries"], serde_json::json!({ "from": 203, "to": 404 }));
    assert_eq!(report["first_seqno"], 200);
    assert!(report["bytes_freed"].as_u64().unwrap() > 0 && dir.segments().len() < before);
    let after = json(&["verify"], &dir);
    assert_eq!((&after["sound"], &after["closed"]), (&Value::Bool(true), &Value::Bool(true)));
    assert_eq!(json(&["inspect", "--seqno", "300"], &dir)["keys"], 2);
    assert!(refused(&["inspect", "--seqno", "100"], &dir).contains("after seqno 199"));
    assert!(done(&["trim", "--keep-from", "300"], &dir).contains("nothing to drop"));
    assert!(refused(&["trim", "--keep-from", "9999"], &dir).contains("not in the log"));
    // A refusal leaves no trace that would make the next start suspicious.
    assert_eq!(json(&["verify"], &dir)["closed"], true);
}

#[test]
fn nothing_above_the_wanted_seqno_goes() {
    let dir = closed_log();
    assert_eq!(json(&["trim", "--keep-from", "100"], &dir)["entries"]["from"], 1); // the checkpoint lies above
}

#[test]
fn a_log_in_use_is_trimmed_by_its_owner() {
    let dir = Dir::new();
    let mut log = open_log(&dir);
    let owner = std::thread::spawn(move || {
        let mut answers = 0;
        while answers < 2 {
            let Some(wish) = log.take_wish().unwrap() else {
                std::thread::yield_now();
                continue;
            };
            let outcome = match log.index_of(wish.keep_from) {
                Some(keep_from) => {
                    let before = log.bytes_held();
                    log.trim(Trim { keep_from, bytes_max: Some(0) }).unwrap();
                    Ok((before - log.bytes_held(), "; kept".to_string()))
                }
                None => Err("not in the log".to_string()),
            };
            log.answer_wish(&TrimAnswer { id: wish.id, outcome }).unwrap();
            answers += 1;
        }
        log
    });
    let report = json(&["trim", "--keep-from", "300"], &dir);
    assert_eq!((&report["entries"]["from"], &report["note"]), (&Value::from(203), &Value::from("kept")));
    assert!(report["bytes_freed"].as_u64().unwrap() > 0);
    assert!(refused(&["trim", "--keep-from", "9999"], &dir).contains("not in the log"));
    owner.join().unwrap().close().unwrap();
}

#[test]
fn trimming_is_refused_while_the_owner_takes_no_notice_or_the_log_is_unfinished() {
    let dir = Dir::new();
    let log = open_log(&dir);
    assert!(refused(&["trim", "--keep-from", "300", "--wait", "0"], &dir).contains("took no notice"));
    assert_eq!(log.take_wish().unwrap(), None, "nothing is left behind");
    drop(log); // as after kill -9
    assert!(refused(&["trim", "--keep-from", "300"], &dir).contains("not closed by its last user"));
    assert_eq!(json(&["trim", "--keep-from", "300", "--force"], &dir)["entries"]["from"], 203);
}

#[test]
fn the_term_is_raised_and_never_lowered_and_nothing_else_changes() {
    let dir = Dir::new();
    let log = open_log(&dir);
    let before = log.hard_state();
    assert!(refused(&["term", "--raise", "1000000"], &dir).contains("in use"));
    drop(log); // as after kill -9
    let judged = json(&["verify"], &dir);
    assert_eq!(json(&["term"], &dir)["term"], before.term.0);
    assert_eq!(json(&["term", "--raise", "1000000"], &dir)["term_before"], before.term.0);
    assert!(refused(&["term", "--raise", "1000000"], &dir).contains("is 1000000 already"));
    // From there no election could follow.
    for term in ["8070450532247928833", "18446744073709551615"] {
        assert!(refused(&["term", "--raise", term], &dir).contains("is to be removed"));
    }
    assert_eq!(json(&["verify"], &dir), judged, "it is as clean as it was");
    let (log, report) =
        WriteSetLog::open(DirStorage::new(&dir.0).unwrap(), &Options::new(NODE, read_boot_id())).unwrap();
    let after = log.hard_state();
    assert_eq!(
        (after.term, after.committed, after.voters_committed),
        (Term(1_000_000), before.committed, before.voters_committed)
    );
    assert_eq!(report.hole, None);
}

#[test]
fn directories_without_a_log_are_named() {
    let dir = Dir::new();
    for words in [&["inspect"][..], &["verify"], &["trim", "--keep-from", "1"]] {
        assert!(refused(words, &dir).contains("no write-set log in"));
    }
    assert!(std::fs::read_dir(&dir.0).unwrap().next().is_none(), "looking made files");
    std::fs::remove_dir(&dir.0).unwrap();
    assert!(refused(&["inspect"], &dir).contains("No such file"));
}
