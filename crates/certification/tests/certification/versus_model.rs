//! Random histories: the index answers as the model does, and so does every copy of it, however it came by its state.

use proptest::prelude::*;
use trireme_certification::{Certifier, Head, KeyKind, flags};
use trireme_types::{Seqno, Uuid};

use crate::model::{Key, Model, PLAIN, TOI, Trx, session, verdict};

#[derive(Clone, Debug)]
enum Step {
    /// The last-seen seqno is `lag` behind the one before.
    Write {
        trx: Trx,
        lag: u64,
    },
    View,
    /// The cut moves to so many behind the newest seqno.
    Purge {
        behind: u64,
    },
    /// One of the copies gives back memory that the other keeps.
    Release {
        uses_max: usize,
    },
    /// One of the copies is replaced by a restored snapshot of it.
    Transfer,
}

fn kind() -> impl Strategy<Value = KeyKind> {
    prop::sample::select(&KeyKind::ALL[..])
}

fn any_key() -> impl Strategy<Value = Key> {
    (prop::collection::vec(0u8..3, 1..4), kind()).prop_map(|(parts, kind)| {
        // Few databases, more rows.
        let parts = parts.iter().enumerate().map(|(depth, p)| vec![b"abc"[usize::from(*p).min(depth)]]).collect();
        Key { parts, kind }
    })
}

fn any_flags() -> impl Strategy<Value = u32> {
    prop_oneof![
        12 => Just(PLAIN),
        1 => Just(TOI),
        1 => Just(PLAIN | flags::PA_UNSAFE),
        1 => Just(flags::TRX_START),
        2 => Just(0),
        1 => Just(flags::TRX_END),
        1 => Just(flags::TRX_END | flags::PA_UNSAFE),
        1 => Just(flags::ROLLBACK | flags::PA_UNSAFE),
    ]
}

fn write() -> impl Strategy<Value = Step> {
    let origin = (0u8..3, 0u32..2, 0u64..2);
    let lag = prop_oneof![8 => 0u64..6, 1 => 0u64..30, 1 => Just(u64::MAX)];
    (any_flags(), origin, prop::collection::vec(any_key(), 0..4), any::<bool>(), lag).prop_map(
        |(flags, (node, number, trx), keys, data, lag)| {
            // A rollback carries no keys.
            let keys = if flags & flags::ROLLBACK != 0 { Vec::new() } else { keys };
            let keys = keys
                .into_iter()
                .map(|k| if flags == TOI { Key { kind: KeyKind::Exclusive, ..k } } else { k })
                .collect();
            let head = Head { flags, last_seen: Seqno::ZERO, origin: Uuid([node; 16]), trx, conn: 1 };
            Step::Write { trx: Trx { head, keys, data, session: session(node, number) }, lag }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => write(),
        1 => Just(Step::View),
        3 => (0u64..8).prop_map(|behind| Step::Purge { behind }),
        3 => (0usize..6).prop_map(|uses_max| Step::Release { uses_max }),
        1 => Just(Step::Transfer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn index_copies_and_model_agree(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::default();
        let mut index = Certifier::new();
        let mut copy = Certifier::new();
        let mut seqno = 0;
        for step in steps {
            match step {
                Step::Write { mut trx, lag } => {
                    seqno += 1;
                    // One in ten claims to have seen itself.
                    trx.head.last_seen = Seqno(if lag == u64::MAX { seqno } else { (seqno - 1).saturating_sub(lag) });
                    let ws = trx.encode();
                    let got = index.certify(Seqno(seqno), &ws, trx.session);
                    prop_assert_eq!(verdict(&got), model.certify(seqno, &trx), "{} at {} cut {}", format!("{trx:?}"), seqno, model.cut);
                    prop_assert_eq!(copy.certify(Seqno(seqno), &ws, trx.session), got);
                }
                Step::View => {
                    seqno += 1;
                    model.view(seqno);
                    index.note_view(Seqno(seqno));
                    copy.note_view(Seqno(seqno));
                }
                Step::Purge { behind } => {
                    let cut = seqno.saturating_sub(behind);
                    model.cut = model.cut.max(cut);
                    index.purge(Seqno(cut));
                    copy.purge(Seqno(cut));
                }
                Step::Release { uses_max } => {
                    let before = (copy.retained(), copy.len());
                    copy.release(uses_max);
                    prop_assert_eq!(copy.retained(), before.0);
                    prop_assert!(copy.len() + uses_max >= before.1, "more than it was allowed");
                }
                Step::Transfer => copy = Certifier::restore(&copy.snapshot()).unwrap(),
            }
            prop_assert_eq!(index.snapshot(), copy.snapshot());
        }
        // Everything goes in the end, nothing is leaked.
        for index in [&mut index, &mut copy] {
            index.purge(Seqno(seqno));
            prop_assert_eq!(index.retained(), 0);
            while index.release(7) {}
            prop_assert_eq!(index.len(), 0);
        }
    }

    /// Many uses of one row and its table by few sessions: what a key may forget.
    #[test]
    fn a_hot_row_is_remembered_well_enough(
        uses in prop::collection::vec((0u8..3, kind(), 0u64..12, prop::sample::select(&["d.t", "d.t.r", "d.t.r", "d.t.r"][..])), 4..40),
        toi_at in 0usize..80,
    ) {
        let mut model = Model::default();
        let mut index = Certifier::new();
        for (at, (node, kind, lag, text)) in uses.into_iter().enumerate() {
            let seqno = at as u64 + 1;
            let last_seen = (seqno - 1).saturating_sub(lag);
            let mut trx = crate::model::trx(node, last_seen, &[crate::model::key(text, kind)]);
            if at == toi_at {
                trx.head.flags = TOI;
            }
            let got = index.certify(Seqno(seqno), &trx.encode(), trx.session);
            prop_assert_eq!(verdict(&got), model.certify(seqno, &trx));
        }
    }

    #[test]
    fn damaged_snapshots_never_panic(at in 0usize..600, value in any::<u8>(), cut in 0usize..600) {
        let mut index = Certifier::new();
        for seqno in 1..8u64 {
            let keys = [crate::model::key("a.b.c", KeyKind::ALL[seqno as usize % 4])];
            let mut trx = crate::model::trx(seqno as u8 % 3, seqno - 1, &keys);
            if seqno == 2 {
                trx.head.flags = flags::TRX_START;
            }
            index.certify(Seqno(seqno), &trx.encode(), trx.session);
        }
        let mut bytes = index.snapshot();
        let at = at % bytes.len();
        bytes[at] = value;
        if let Ok(mut restored) = Certifier::restore(&bytes) {
            restored.purge(Seqno(u64::MAX));
            restored.release(usize::MAX);
            prop_assert_eq!(restored.len(), 0);
        }
        let cut = cut % bytes.len();
        prop_assert!(Certifier::restore(&bytes[..cut]).is_err());
    }
}
