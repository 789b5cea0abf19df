//! The dumb oracle: remembers every write set with its keys in plain text and compares each new one with all of them.
//!
//! The tables are those of the C API's reference implementation as measured. Rows: first (lower seqno), columns: second, both in the
//! order shared, reference, update, exclusive.

use trireme_certification::{Head, KeyKind, Verdict, WriteSet, WriteSetBuilder, flags};
use trireme_types::{Incarnation, NodeId, Seqno, Session, Uuid};

pub const SAME_FAILS: [[u8; 4]; 4] = [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]];
pub const SAME_ORDERS: [[u8; 4]; 4] = [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]];
pub const FIRST_ABOVE_FAILS: [[u8; 4]; 4] = [[0; 4], [0; 4], [0; 4], [1; 4]];
pub const FIRST_ABOVE_ORDERS: [[u8; 4]; 4] = [[0; 4], [0; 4], [1; 4], [1; 4]];
pub const FIRST_BELOW_FAILS: [[u8; 4]; 4] = [[0, 0, 0, 1]; 4];
pub const FIRST_BELOW_ORDERS: [[u8; 4]; 4] = [[0, 0, 1, 1]; 4];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    pub parts: Vec<Vec<u8>>,
    pub kind: KeyKind,
}

pub fn key(text: &str, kind: KeyKind) -> Key {
    Key { parts: text.split('.').map(|p| p.as_bytes().to_vec()).collect(), kind }
}

#[derive(Clone, Debug)]
pub struct Trx {
    pub head: Head,
    pub keys: Vec<Key>,
    pub data: bool,
    pub session: Session,
}

impl Trx {
    pub fn encode(&self) -> WriteSet {
        let mut b = WriteSetBuilder::new();
        for key in &self.keys {
            b.add_key(key.parts.iter().map(|p| &p[..]), key.kind).unwrap();
        }
        if self.data {
            b.add_data(b"data");
        }
        WriteSet::parse(b.finish(&self.head).into_bytes()).unwrap()
    }
}

pub const PLAIN: u32 = flags::TRX_START | flags::TRX_END;
pub const TOI: u32 = PLAIN | flags::ISOLATION;

pub fn session(node: u8, number: u32) -> Session {
    Session::first(NodeId(Uuid([node; 16])), Incarnation(number))
}

/// An ordinary transaction of `node` with the given keys.
pub fn trx(node: u8, last_seen: u64, keys: &[Key]) -> Trx {
    Trx {
        head: Head { flags: PLAIN, last_seen: Seqno(last_seen), origin: Uuid([node; 16]), trx: 1, conn: 1 },
        keys: keys.to_vec(),
        data: true,
        session: session(node, 1),
    }
}

pub fn toi(node: u8, last_seen: u64, keys: &[Key]) -> Trx {
    let mut trx = trx(node, last_seen, keys);
    trx.head.flags = TOI;
    trx
}

#[derive(Default)]
pub struct Model {
    /// Everything that passed, with its seqno.
    passed: Vec<(u64, Trx)>,
    pub cut: u64,
    last_toi: u64,
    last_view: u64,
}

impl Model {
    pub fn view(&mut self, seqno: u64) {
        self.last_view = seqno;
    }

    /// (passes, depends on)
    pub fn certify(&mut self, seqno: u64, new: &Trx) -> (bool, u64) {
        let head = &new.head;
        let exempt = head.is_toi() || head.is_rollback();
        let (conflict, ordered) = self.scan(new);
        let stale = head.last_seen.0 < self.cut || head.last_seen.0 >= seqno;
        if !exempt && (conflict || stale) {
            return (false, seqno - 1);
        }
        let alone = exempt || head.flags & flags::PA_UNSAFE != 0 || new.keys.is_empty();
        let depends_on = if alone {
            seqno - 1
        } else {
            ordered.max(self.cut).max(self.last_toi).max(self.last_view).max(self.previous_fragment(new))
        };
        if head.is_toi() {
            self.last_toi = seqno;
        }
        self.passed.push((seqno, new.clone()));
        (true, depends_on)
    }

    fn scan(&self, new: &Trx) -> (bool, u64) {
        let (mut conflict, mut ordered) = (false, 0);
        for (seqno, first) in self.passed.iter().filter(|(seqno, _)| *seqno > self.cut) {
            for a in &first.keys {
                for b in &new.keys {
                    let (fails, orders) = match overlap(&a.parts, &b.parts) {
                        None => continue,
                        Some(tables) if first.head.is_toi() => (1, tables.1[3][3]),
                        Some((fails, orders)) => {
                            (fails[a.kind as usize][b.kind as usize], orders[a.kind as usize][b.kind as usize])
                        }
                    };
                    let elsewhere = first.session != new.session || first.head.is_toi();
                    conflict |= fails == 1 && elsewhere && *seqno > new.head.last_seen.0;
                    if orders == 1 {
                        ordered = ordered.max(*seqno);
                    }
                }
            }
        }
        (conflict, ordered)
    }

    fn previous_fragment(&self, new: &Trx) -> u64 {
        if !new.head.is_fragment() {
            return 0;
        }
        let name = |t: &Trx| (t.head.origin, t.head.trx);
        let newest = self.passed.iter().rev().find(|(_, t)| t.head.is_fragment() && name(t) == name(new));
        match newest {
            Some((seqno, t)) if !t.head.is_end() && !t.head.is_rollback() => *seqno,
            _ => 0,
        }
    }
}

type Table = [[u8; 4]; 4];

fn overlap(first: &[Vec<u8>], second: &[Vec<u8>]) -> Option<(Table, Table)> {
    if first == second {
        Some((SAME_FAILS, SAME_ORDERS))
    } else if second.starts_with(first) {
        Some((FIRST_ABOVE_FAILS, FIRST_ABOVE_ORDERS))
    } else if first.starts_with(second) {
        Some((FIRST_BELOW_FAILS, FIRST_BELOW_ORDERS))
    } else {
        None
    }
}

pub fn verdict(v: &Verdict) -> (bool, u64) {
    (v.ok(), v.depends_on.0)
}
