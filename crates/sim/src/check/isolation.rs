//! Total-order isolation: such a statement always runs, after everything before it and before everything after it. No write set that had
//! not seen it touches the rows that it changed. A plain list against the certification index.

use std::collections::BTreeMap;

use trireme_types::{Seqno, Session};

use crate::judge::Part;

/// A write set and its verdict.
pub struct Judged<'a> {
    pub seqno: u64,
    pub session: Session,
    pub part: Part,
    pub last_seen: u64,
    pub keys: &'a [u16],
    pub ok: bool,
    pub depends_on: Seqno,
}

#[derive(Default)]
pub struct Isolation {
    last: u64,
    /// Newest isolated statement per key, and its session: statements of one session are in its own order.
    by_key: BTreeMap<u16, (u64, Session)>,
}

impl Isolation {
    pub fn judged(&mut self, j: &Judged<'_>) -> Result<(), String> {
        let at = j.seqno;
        if j.part == Part::Isolated {
            if !j.ok {
                return Err(format!("the isolated statement {at} failed certification"));
            }
            if j.depends_on.0 + 1 != at {
                return Err(format!("the isolated statement {at} may run beside what came after {}", j.depends_on));
            }
            self.last = at;
            self.by_key.extend(j.keys.iter().map(|key| (*key, (at, j.session))));
            return Ok(());
        }
        if !j.ok {
            return Ok(());
        }
        if j.depends_on.0 < self.last {
            return Err(format!("write set {at} may be applied beside the isolated statement {}", self.last));
        }
        let unseen = |key: &&u16| self.by_key.get(key).is_some_and(|(t, s)| *t > j.last_seen && *s != j.session);
        match j.keys.iter().find(unseen) {
            Some(key) if j.part != Part::Rollback => {
                Err(format!("write set {at} uses key {key} and had not seen the isolated statement that changed it"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isolated_statement_that_fails_or_shares_and_what_ignores_it_are_found() {
        let session = |n| Session { number: n, ..Session::default() };
        let judge = |i: &mut Isolation, seqno, part, last_seen, ok, depends_on| {
            let depends_on = Seqno(depends_on);
            i.judged(&Judged { seqno, session: session(seqno), part, last_seen, keys: &[7], ok, depends_on })
        };
        let mut i = Isolation::default();
        assert!(judge(&mut i, 5, Part::Isolated, 0, false, 4).is_err());
        assert!(judge(&mut i, 5, Part::Isolated, 0, true, 3).is_err());
        assert!(judge(&mut i, 5, Part::Isolated, 0, true, 4).is_ok());
        assert!(judge(&mut i, 6, Part::Whole, 4, true, 5).is_err());
        assert!(judge(&mut i, 6, Part::Whole, 5, true, 4).is_err());
        assert!(judge(&mut i, 6, Part::Whole, 4, false, 0).is_ok());
        assert!(judge(&mut i, 7, Part::Whole, 5, true, 5).is_ok());
    }
}
