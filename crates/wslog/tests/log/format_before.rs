//! A log of the format before is read, and goes on in the current one. `format_before/` holds one that a provider of that time wrote, as it lay on
//! disk when the process was killed: a reset at 0, entries 1 to 40 of term 1 with checkpoints, a cut after 33, entries 34 to 51 of term 2.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use trireme_order::LogStore;
use trireme_types::{Base, Choice, Entry, HardState, Incarnation, LogIndex, NodeId, Seqno, Term, Uuid};
use trireme_wslog::{DirStorage, KEY_BYTES, LogKeys, OpenReport, Options, WriteSetLog, inspect};

use crate::support::dir::Dir;
use crate::support::entries::entry;

const NODE: NodeId = NodeId(Uuid([9; 16]));

/// A copy of the image, removed at the end.
struct Image(Dir);

impl Image {
    fn new() -> Image {
        let dir = Dir::new();
        for (name, bytes) in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format_before")) {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        Image(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn storage(&self) -> DirStorage {
        DirStorage::new(self.path()).unwrap()
    }

    fn open(&self, boot: &str, keys: Option<LogKeys>) -> (WriteSetLog<DirStorage>, OpenReport) {
        let options =
            Options { size: 64 << 10, segment_size_override: Some(4 << 10), keys, ..Options::new(NODE, boot) };
        WriteSetLog::open(self.storage(), &options).unwrap()
    }
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
}

/// Entry `index` of the image.
fn nth(index: u64) -> Entry {
    let (term, size) = if index <= 33 { (1, 100 + index as usize) } else { (2, 60) };
    entry(index, term, size)
}

fn base(index: u64) -> Base {
    let app = Bytes::from_static(b"application");
    let term = Term(u64::from(index > 0));
    Base { history: Uuid([5; 16]), index: LogIndex(index), term, seqno: Seqno(index), app, ..Base::default() }
}

fn sync(log: &mut WriteSetLog<DirStorage>) {
    if let Some(ticket) = log.begin_sync() {
        let done = ticket.run().unwrap();
        log.finish_sync(done).unwrap();
    }
}

fn all(log: &WriteSetLog<DirStorage>) -> Vec<Entry> {
    let mut out: Vec<Entry> = Vec::new();
    while out.len() < log.last().0 as usize {
        out.extend(log.read(LogIndex(out.len() as u64 + 1), 1000).unwrap());
    }
    out
}

#[test]
fn it_is_looked_at_without_a_change() {
    let dir = Image::new();
    let before = files(dir.path());
    let storage = DirStorage::read_only(dir.path()).unwrap();
    let verdict = inspect::verify(&storage, Some("boot 1"), None).unwrap();
    assert_eq!(
        (verdict.last, verdict.report.hole, verdict.report.suspect),
        (LogIndex(51), None, None),
        "{:?}",
        verdict.report
    );
    assert_eq!(inspect::summary(&storage, None).unwrap().segments.len(), 4);
    let mut seen = Vec::new();
    inspect::entries(&storage, None, None, |entry| {
        seen.push(entry);
        true
    })
    .unwrap();
    assert_eq!(seen, (1..=51).map(nth).collect::<Vec<_>>());
    assert_eq!(files(dir.path()), before);
}

#[test]
fn it_goes_on_in_the_current_format_with_everything_that_it_held() {
    for (boot, key) in [("boot 1", false), ("boot 1", true), ("boot 2", false)] {
        let dir = Image::new();
        let keys = || key.then(|| LogKeys::new(&[[3; KEY_BYTES]]).unwrap());
        let old: Vec<String> = files(dir.path()).into_keys().filter(|name| name.starts_with("trireme.0")).collect();
        let mut expected: Vec<Entry> = (1..=51).map(nth).collect();
        {
            let (mut log, report) = dir.open(boot, keys());
            assert!(report.unclean && report.hole.is_none() && report.suspect.is_none(), "{report:?}");
            assert_eq!((log.base(), all(&log)), (&base(0), expected.clone()));
            assert_eq!((log.node_id(), log.incarnation()), (NODE, Incarnation(7)));
            let hard = HardState {
                term: Term(2),
                vote: Choice { term: Term(2), of: NODE },
                voters_committed: LogIndex(1),
                committed: LogIndex(2),
                ..HardState::default()
            };
            assert_eq!(log.hard_state(), hard);
            // A checkpoint of that time, with the application's part.
            assert_eq!(log.checkpoint_before(Seqno(40)).map(|b| (b.index.0 > 0, b.app)), Some((true, base(0).app)));
            // New files are of today's version: none of the old files is written to.
            let kept: Vec<Vec<u8>> = old.iter().map(|name| std::fs::read(dir.path().join(name)).unwrap()).collect();
            for index in 52..=60 {
                log.append(&[nth(index)]).unwrap();
                expected.push(nth(index));
            }
            sync(&mut log);
            for (name, before) in old.iter().zip(kept) {
                assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), before, "{name}");
            }
        }
        let (log, report) = dir.open(boot, keys());
        assert!(report.hole.is_none() && report.suspect.is_none(), "{report:?}");
        assert_eq!((log.base(), all(&log)), (&base(0), expected));
    }
}

#[test]
fn a_log_that_began_anew_takes_no_state_of_the_format_before() {
    let dir = Image::new();
    let old: Vec<(String, Vec<u8>)> = files(dir.path()).into_iter().filter(|(name, _)| name.contains("ckpt")).collect();
    let (mut log, _) = dir.open("boot 1", None);
    let fresh = Base { history: Uuid([6; 16]), ..base(0) };
    log.reset(fresh.clone()).unwrap();
    drop(log);
    // Their removal was lost with the power.
    for (name, bytes) in old {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let (log, _) = dir.open("boot 2", None);
    assert_eq!((log.base(), log.last()), (&fresh, LogIndex(0)));
}

#[test]
fn damage_in_it_is_found_as_ever() {
    let dir = Image::new();
    let name = files(dir.path()).into_keys().find(|name| name.starts_with("trireme.0")).unwrap();
    let mut bytes = std::fs::read(dir.path().join(&name)).unwrap();
    bytes[600] ^= 1;
    std::fs::write(dir.path().join(&name), bytes).unwrap();
    let verdict = inspect::verify(&DirStorage::read_only(dir.path()).unwrap(), Some("boot 1"), None).unwrap();
    assert!(verdict.report.hole.is_some() || verdict.report.lost_history.is_some(), "{:?}", verdict.report);
}
