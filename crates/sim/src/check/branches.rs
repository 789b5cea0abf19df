//! Forced runs: histories may fork, but every branch is one history. What the first node delivers at an index of a branch,
//! every other node of that branch delivers there too, with the same past behind it (rule 13).

use std::collections::HashMap;

use trireme_types::{LogIndex, Uuid};

use super::Delivered;

#[derive(Default)]
pub struct Branches {
    delivered: HashMap<(Uuid, LogIndex), Delivered>,
}

impl Branches {
    pub fn deliver(&mut self, branch: Uuid, d: &Delivered) -> Result<(), String> {
        let known = self.delivered.entry((branch, d.index)).or_insert_with(|| d.clone());
        if known == d {
            return Ok(());
        }
        Err(format!("branch {branch} has two contents at index {}: first {known:?}, now {d:?}", d.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::What;
    use trireme_types::{Seqno, Session};

    #[test]
    fn another_past_on_the_same_branch_is_found() {
        let d = |chain| Delivered {
            index: LogIndex(3),
            seqno: Seqno(2),
            what: What::App { session: Session::default(), number: 1 },
            chain,
        };
        let mut b = Branches::default();
        assert_eq!(b.deliver(Uuid([1; 16]), &d(7)), Ok(()));
        assert_eq!(b.deliver(Uuid([1; 16]), &d(7)), Ok(()));
        assert_eq!(b.deliver(Uuid([2; 16]), &d(8)), Ok(()));
        assert!(b.deliver(Uuid([1; 16]), &d(8)).is_err());
    }
}
