//! The term that a stopped member has promised, and a higher one by an operator's hand: members whose terms somebody has driven apart
//! do not believe each other (docs/protocol.md, section 2, *Trust*).

use trireme_order::{StoreError, TERM_RAISED_MAX};
use trireme_types::{HardState, Term};

use crate::meta::{self, Found};
use crate::storage::Storage;

/// The term becomes `term`; durable on return. To promise more is always safe; nothing else of the log is touched, so it is as clean or
/// suspect as it was. Answers the term before.
///
/// **Errors:** the log is open elsewhere, or has no readable metadata; the disk fails; `term` is not higher, or so high that
/// no election can follow.
pub fn raise_term<S: Storage>(storage: &S, term: Term) -> Result<Term, StoreError> {
    let _lock = storage.lock()?;
    let Found::Meta { mut file, .. } = meta::read(storage)? else {
        return Err(StoreError::Damaged("there is no readable metadata, so there is no term to raise".into()));
    };
    if term > TERM_RAISED_MAX {
        return Err(StoreError::Refused(format!(
            "no cluster gets to term {term} by itself, and none goes on from it. If another node shows it, that node's log is to \
             be removed (trireme.*.galera.cache), not this one's term raised"
        )));
    }
    let before = file.meta().hard.term;
    if term <= before {
        return Err(StoreError::Refused(format!("the term is {before} already, and a promise is not taken back")));
    }
    file.secure()?;
    file.save(|meta| meta.hard = HardState { term, ..meta.hard })?;
    Ok(before)
}
