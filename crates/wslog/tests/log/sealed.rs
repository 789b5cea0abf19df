//! Encryption at rest: who has the disk and not the key reads nothing and changes nothing; who has it notices no difference.

use bytes::Bytes;
use trireme_order::LogStore;
use trireme_types::{
    Base, Entry, EntryHeader, EntryKind, LogIndex, NodeId, ProposalNumber, Seqno, Session, Term, Uuid,
};
use trireme_wslog::{
    KEY_BYTES, LogKeys, OpenReport, Options, SimDisk, Storage, StorageFile, Trim, WriteSetLog, inspect,
};

const NODE: NodeId = NodeId(Uuid([9; 16]));
const SECRET: &[u8] = b"IDENTIFIED BY 'card-4111111111111111'";
const SLICE: usize = 1000;

type Log = WriteSetLog<SimDisk>;

fn keys(bytes: &[u8]) -> Option<LogKeys> {
    let keys: Vec<[u8; KEY_BYTES]> = bytes.iter().map(|byte| [*byte; KEY_BYTES]).collect();
    (!keys.is_empty()).then(|| LogKeys::new(&keys).unwrap())
}

/// `bytes`: keys, the one that seals first; none: clear text.
fn options(bytes: &[u8]) -> Options {
    Options {
        size: 64 << 10,
        segment_size_override: Some(8 << 10),
        slice_override: Some(SLICE),
        keys: keys(bytes),
        ..Options::new(NODE, "boot")
    }
}

fn open(disk: &SimDisk, bytes: &[u8]) -> (Log, OpenReport) {
    WriteSetLog::open(disk.clone(), &options(bytes)).unwrap()
}

fn refused(disk: &SimDisk, bytes: &[u8]) -> String {
    WriteSetLog::open(disk.clone(), &options(bytes)).err().expect("opened without the key").to_string()
}

fn base(index: u64) -> Base {
    Base {
        history: Uuid([3; 16]),
        index: LogIndex(index),
        term: Term(1),
        seqno: Seqno(index),
        app: Bytes::from(SECRET.repeat(3)),
        ..Base::default()
    }
}

fn entry(index: u64, times: usize) -> Entry {
    let header = EntryHeader {
        index: LogIndex(index),
        term: Term(1),
        seqno: Seqno(index),
        voters: LogIndex(1),
        session: Session { node: NODE, number: 1 },
        number: ProposalNumber(index),
        kind: EntryKind::WriteSet,
    };
    Entry { header, payload: Bytes::from(SECRET.repeat(times)) }
}

/// Every seventh is larger than a slice.
fn nth(index: u64) -> Entry {
    entry(index, if index.is_multiple_of(7) { 100 } else { 5 })
}

/// Entries from the next one to `to`, some larger than a slice, and a checkpoint for each ten; all on disk.
fn fill(log: &mut Log, to: u64) {
    for index in log.last().0 + 1..=to {
        log.append(&[nth(index)]).unwrap();
        while log.written() < log.last() {
            log.write_on().unwrap();
        }
        if index % 10 == 0 {
            log.save_checkpoint(&base(index)).unwrap();
        }
    }
    let done = log.begin_sync().unwrap().run().unwrap();
    log.finish_sync(done).unwrap();
}

fn check(log: &Log, to: u64) {
    assert_eq!(log.last(), LogIndex(to));
    let mut next = log.first();
    while next <= log.last() {
        for read in log.read(next, 5000).unwrap() {
            assert_eq!(read, nth(next.0));
            next = next.next();
        }
    }
}

fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let mut out: Vec<_> =
        disk.file_names().into_iter().map(|name| (name.clone(), disk.content(&name).unwrap())).collect();
    out.sort();
    out
}

fn tells(disk: &SimDisk) -> Vec<String> {
    let tells = |content: &[u8]| content.windows(16).any(|bytes| bytes == &SECRET[..16]);
    files(disk).into_iter().filter(|(_, content)| tells(content)).map(|(name, _)| name).collect()
}

fn sealed(bytes: &[u8], to: u64) -> SimDisk {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk, bytes);
    log.reset(base(0)).unwrap();
    fill(&mut log, to);
    drop(log);
    disk.kill();
    disk
}

#[test]
fn the_disk_tells_nothing_and_the_key_everything() {
    assert!(!tells(&sealed(&[], 50)).is_empty(), "in clear text it does");
    let disk = sealed(&[1], 50);
    assert_eq!(tells(&disk), Vec::<String>::new());
    let (log, report) = open(&disk, &[1]);
    assert_eq!((report.hole, report.torn_tail_cut, log.base()), (None, false, &base(0)));
    check(&log, 50);
    let found = log.checkpoint_before(Seqno(50)).unwrap();
    assert_eq!(found, base(50));
    // A tool sees the same, with the key and only with it.
    drop(log);
    let mut seen = 0;
    inspect::entries(&disk, None, keys(&[1]).as_ref(), |_| {
        seen += 1;
        true
    })
    .unwrap();
    assert_eq!(seen, 50);
    let summary = inspect::summary(&disk, keys(&[1]).as_ref()).unwrap();
    let id = keys(&[1]).unwrap().ids().next();
    assert!(summary.segments.iter().all(|s| s.key == id && s.bad.is_none()));
    assert!(summary.checkpoints.iter().all(|c| c.key == id && c.position.is_some()));
    assert!(inspect::verify(&disk, None, None).is_err());
    assert!(inspect::summary(&disk, keys(&[2]).as_ref()).is_err());
}

#[test]
fn without_the_right_key_nothing_is_opened_and_nothing_changed() {
    let disk = sealed(&[1], 50);
    let before = files(&disk);
    let id = keys(&[1]).unwrap().ids().next().unwrap().to_string();
    for wrong in [&[][..], &[2], &[2, 3]] {
        let said = refused(&disk, wrong);
        assert!(said.contains(&id) && said.contains("repl.log_key_file"), "{said}");
        disk.kill();
    }
    assert_eq!(files(&disk), before);
    check(&open(&disk, &[2, 1]).0, 50);
}

/// A torn tail is one by its checksums, and the wrong key is the wrong key.
#[test]
fn a_torn_tail_is_no_wrong_key_and_a_wrong_key_no_torn_tail() {
    let mut torn = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(&disk, &[1]);
        log.reset(base(0)).unwrap();
        fill(&mut log, 10);
        log.append(&(11..=40).map(|index| entry(index, 5)).collect::<Vec<_>>()).unwrap();
        drop(log);
        disk.crash();
        let before = files(&disk);
        let said = refused(&disk, &[2]);
        assert!(said.contains("encrypted with key"), "{said}");
        assert_eq!(files(&disk), before);
        disk.kill();
        let options = Options { boot_id: "other boot".into(), ..options(&[1]) };
        let (log, report) = WriteSetLog::open(disk.clone(), &options).unwrap();
        assert_eq!(report.hole, None);
        assert!(log.last() >= LogIndex(10));
        torn += u32::from(report.torn_tail_cut);
    }
    assert!(torn > 5, "{torn} torn tails");
}

#[test]
fn a_log_in_clear_text_goes_on_sealed_and_its_clear_files_go_one_by_one() {
    let disk = sealed(&[], 50);
    let clear = tells(&disk);
    let (mut log, report) = open(&disk, &[1]);
    assert_eq!(report.hole, None);
    check(&log, 50);
    fill(&mut log, 100);
    assert_eq!(tells(&disk), clear, "nothing more is told");
    // With a kill in between, too.
    drop(log);
    disk.kill();
    let (mut log, _) = open(&disk, &[1]);
    check(&log, 100);
    log.trim(Trim { keep_from: LogIndex(100), bytes_max: Some(0) }).unwrap();
    assert!(log.first() > LogIndex(50));
    fill(&mut log, 140);
    // Not even as the former content of a file that is used again.
    assert_eq!(tells(&disk), Vec::<String>::new());
    check(&log, 140);
    drop(log);
    disk.kill();
    assert!(refused(&disk, &[]).contains("no key file"));
}

#[test]
fn a_key_is_replaced_in_the_middle_and_the_old_one_needed_as_long_as_its_files_are_there() {
    let disk = sealed(&[1], 50);
    let (mut log, _) = open(&disk, &[2, 1]);
    fill(&mut log, 100);
    // And while it runs.
    log.use_keys(&keys(&[3]).unwrap()).unwrap();
    fill(&mut log, 150);
    check(&log, 150);
    drop(log);
    disk.kill();
    for missing in [&[3, 2][..], &[3, 1], &[2, 1]] {
        assert!(refused(&disk, missing).contains("encrypted with key"));
        disk.kill();
    }
    let (mut log, _) = open(&disk, &[3, 2, 1]);
    check(&log, 150);
    log.trim(Trim { keep_from: LogIndex(150), bytes_max: Some(0) }).unwrap();
    fill(&mut log, 170);
    drop(log);
    disk.kill();
    check(&open(&disk, &[3]).0, 170);

    let clear = sealed(&[], 5);
    assert!(open(&clear, &[]).0.use_keys(&keys(&[1]).unwrap()).is_err());
}

/// An attacker who can write to the disk makes the checksums right as well.
#[test]
fn what_was_changed_by_somebody_without_the_key_is_damage() {
    let segment = |disk: &SimDisk| {
        let names = disk.file_names();
        names.into_iter().filter(|name| name.starts_with("trireme.0")).max().unwrap()
    };
    let seal = |number: u64, header: &mut [u8]| {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&number.to_le_bytes());
        sum.update(&header[..92]);
        let sum = sum.finalize();
        header[92..96].copy_from_slice(&sum.to_le_bytes());
    };
    // A byte of the payload; the watermark in the record's header; that in the segment's header.
    for change in 0..3 {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(&disk, &[1]);
        log.reset(base(0)).unwrap();
        log.append(&[entry(1, 5)]).unwrap();
        let done = log.begin_sync().unwrap().run().unwrap();
        log.finish_sync(done).unwrap();
        log.close().unwrap();
        let name = segment(&disk);
        let mut content = disk.content(&name).unwrap();
        let number = u64::from_le_bytes(content[16..24].try_into().unwrap());
        let len = u32::from_le_bytes(content[516..520].try_into().unwrap()) as usize;
        match change {
            0 => content[512 + 96 + 30] ^= 1,
            1 => content[512 + 16] ^= 1,
            _ => content[64] ^= 1,
        }
        let sum = crc32fast::hash(&content[608..608 + len]);
        content[524..528].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32fast::hash(&content[..136]);
        content[136..140].copy_from_slice(&sum.to_le_bytes());
        let chain = crc32fast::hash(&content[..512]);
        content[520..524].copy_from_slice(&chain.to_le_bytes());
        seal(number, &mut content[512..608]);
        disk.kill();
        disk.open(&name).unwrap().unwrap().write_at(0, &content).unwrap();
        let (log, report) = open(&disk, &[1]);
        assert!(report.hole.is_some() && report.suspect.is_some(), "change {change}: {report:?}");
        assert_eq!(log.last(), LogIndex(0));
    }
}

/// A process that dies in the middle of a large record leaves a part of it where the next one writes. The seals of the two
/// must differ.
#[test]
fn what_is_written_anew_at_a_place_is_sealed_anew() {
    let disk = sealed(&[1], 3);
    let heads = |disk: &SimDisk| -> Vec<Vec<u8>> {
        // Where the record will be: behind three others and the header.
        let content = disk.content("trireme.00000002.galera.cache").unwrap();
        let record = 96 + (5 * SECRET.len() + 40usize).next_multiple_of(8);
        let at = 512 + 3 * record + 96;
        vec![content[at..at + 16].to_vec(), content[at + 16..at + 24].to_vec()]
    };
    let mut seen = Vec::new();
    for _ in 0..5 {
        let (mut log, _) = open(&disk, &[1]);
        assert_eq!(log.last(), LogIndex(3));
        for _ in 0..3 {
            // Begun, taken back, and begun again by the same process.
            log.append(&[entry(4, 100)]).unwrap();
            assert_eq!(log.written(), LogIndex(3));
            seen.push(heads(&disk));
            log.truncate_after(LogIndex(3)).unwrap();
        }
        drop(log);
        disk.kill();
    }
    let writers: std::collections::BTreeSet<_> = seen.iter().map(|head| head[0].clone()).collect();
    assert_eq!(writers.len(), 5);
    let all: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(all.len(), seen.len());
    assert!(seen.iter().all(|head| head[0] != [0; 16]));
}
