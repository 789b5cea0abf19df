//! Write sets, snapshots of the index, and histories against the oracle of the crate's own tests.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use trireme_certification::{Certifier, Head, KeyKind, WriteSet, WriteSetBuilder, flags};
use trireme_types::{Seqno, Uuid};

#[path = "../../certification/tests/certification/model.rs"]
#[allow(dead_code)]
mod model;

use model::{Key, Model, PLAIN, TOI, Trx, session, verdict};

/// A body as it comes out of the log. A body that can be read can be certified and purged.
pub fn writeset(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let Ok(ws) = WriteSet::parse(bytes) else { return };
    assert_eq!(ws.encoded_bytes(), data.len());
    assert_eq!(ws.data_bytes(), ws.data().len());
    assert_ne!(ws.has_data(), ws.data().is_empty());
    let mut index = Certifier::new();
    for seqno in 1..=3 {
        let verdict = index.certify(Seqno(seqno), &ws, session(1, 1));
        assert!(verdict.depends_on < Seqno(seqno));
    }
    let copy = Certifier::restore(&index.snapshot()).expect("what was written is read");
    assert_eq!(copy.snapshot(), index.snapshot());
    index.purge(Seqno(3));
    index.release(usize::MAX);
    assert_eq!(index.len(), 0);
}

pub fn writeset_seeds() -> Vec<Vec<u8>> {
    let head = Head { flags: PLAIN, last_seen: Seqno(0), origin: Uuid([1; 16]), trx: 5, conn: 6 };
    let bodies = [&[][..], &["d.t.r"], &["d.t.r", "d.t.s", "d.u", "e"]].map(|keys| {
        let mut b = WriteSetBuilder::new();
        for (at, key) in keys.iter().enumerate() {
            b.add_key(key.split('.').map(str::as_bytes), KeyKind::ALL[at % 4]).expect("few parts");
        }
        b.add_data(b"row events");
        b.finish(&head).into_bytes().to_vec()
    });
    bodies.to_vec()
}

/// The index as a joiner gets it. A restored index gives a snapshot like that of every other member, and goes on.
pub fn snapshot(data: &[u8]) {
    let Ok(mut index) = Certifier::restore(data) else { return };
    let once = index.snapshot();
    let again = Certifier::restore(&once).expect("what was written is read");
    assert_eq!(again.snapshot(), once, "canonical");
    let next = index.last().0.saturating_add(1);
    if next < u64::MAX {
        let trx = model::trx(1, index.cut().0, &[model::key("d.t.r", KeyKind::Exclusive)]);
        let _ = index.certify(Seqno(next), &trx.encode(), trx.session);
    }
    index.purge(Seqno(u64::MAX));
    index.release(usize::MAX);
    assert_eq!(index.len(), 0);
}

pub fn snapshot_seeds() -> Vec<Vec<u8>> {
    let mut index = Certifier::new();
    let mut seeds = vec![index.snapshot()];
    for seqno in 1..8u64 {
        let keys = [model::key("a.b.c", KeyKind::ALL[seqno as usize % 4]), model::key("a.b", KeyKind::Shared)];
        let mut trx = model::trx(seqno as u8 % 3, seqno - 1, &keys[..1 + seqno as usize % 2]);
        if seqno == 2 {
            trx.head.flags = flags::TRX_START;
        }
        if seqno == 5 {
            trx.head.flags = TOI;
        }
        index.certify(Seqno(seqno), &trx.encode(), trx.session);
        seeds.push(index.snapshot());
    }
    seeds
}

/// A history: the index answers as the oracle does, and so does a copy that was restored from a snapshot on the way.
pub fn history(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let _ = run_history(&mut u);
}

fn run_history(u: &mut Unstructured<'_>) -> Result<()> {
    let mut model = Model::default();
    let mut index = Certifier::new();
    let mut copy = Certifier::new();
    let mut seqno = 0;
    while !u.is_empty() {
        match u.int_in_range(0..=15u8)? {
            0 => {
                seqno += 1;
                model.view(seqno);
                index.note_view(Seqno(seqno));
                copy.note_view(Seqno(seqno));
            }
            1 => {
                let cut = seqno - u64::from(u.int_in_range(0..=8u8)?).min(seqno);
                model.cut = model.cut.max(cut);
                index.purge(Seqno(cut));
                copy.purge(Seqno(cut));
            }
            2 => copy = Certifier::restore(&copy.snapshot()).expect("what was written is read"),
            _ => {
                let mut trx = transaction(u)?;
                seqno += 1;
                let lag = u64::from(u.int_in_range(0..=12u8)?);
                // Some claim to have seen themselves.
                trx.head.last_seen = Seqno(if lag == 12 { seqno } else { (seqno - 1).saturating_sub(lag) });
                let ws = trx.encode();
                let got = index.certify(Seqno(seqno), &ws, trx.session);
                assert_eq!(verdict(&got), model.certify(seqno, &trx), "{trx:?} at {seqno}, cut {}", model.cut);
                assert_eq!(copy.certify(Seqno(seqno), &ws, trx.session), got);
            }
        }
        assert_eq!(index.snapshot(), copy.snapshot());
    }
    for index in [&mut index, &mut copy] {
        index.purge(Seqno(seqno));
        index.release(usize::MAX);
        assert_eq!(index.len(), 0, "nothing is leaked");
    }
    Ok(())
}

fn transaction(u: &mut Unstructured<'_>) -> Result<Trx> {
    const FLAGS: [u32; 8] = [
        PLAIN,
        PLAIN,
        TOI,
        PLAIN | flags::PA_UNSAFE,
        flags::TRX_START,
        0,
        flags::TRX_END,
        flags::ROLLBACK | flags::PA_UNSAFE,
    ];
    let flags = *u.choose(&FLAGS)?;
    let (node, number, trx) = (u.int_in_range(0..=2u8)?, u.int_in_range(0..=1u32)?, u.int_in_range(0..=1u64)?);
    // A rollback carries no keys.
    let count = if flags & flags::ROLLBACK != 0 { 0 } else { u.int_in_range(0..=3u8)? };
    let keys = (0..count)
        .map(|_| {
            let depth = u.int_in_range(1..=3usize)?;
            // Few databases, more rows.
            let parts =
                (0..depth).map(|at| Ok(vec![b"abc"[u.int_in_range(0..=2usize)?.min(at)]])).collect::<Result<_>>()?;
            let kind = if flags == TOI { KeyKind::Exclusive } else { *u.choose(&KeyKind::ALL)? };
            Ok(Key { parts, kind })
        })
        .collect::<Result<_>>()?;
    let head = Head { flags, last_seen: Seqno::ZERO, origin: Uuid([node; 16]), trx, conn: 1 };
    Ok(Trx { head, keys, data: u.arbitrary()?, session: session(node, number) })
}

pub fn history_seeds() -> Vec<Vec<u8>> {
    crate::noise(8, 300)
}
