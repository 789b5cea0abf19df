//! `trireme log term`.

use std::path::Path;

use serde_json::json;
use trireme_types::Term;
use trireme_wslog::inspect::metadata;
use trireme_wslog::{DirStorage, raise_term};

use super::{text, trim::refuse_foreign_user};
use crate::run::{print_json, print_line};

pub fn log(dir: &Path, raise: Option<Term>, as_json: bool) -> Result<(), String> {
    let looked = DirStorage::read_only(dir).and_then(|storage| metadata(&storage)).map_err(text)?;
    let Some(meta) = looked else {
        return Err(format!("the log in {} has no metadata: start its node, or remove its files", dir.display()));
    };
    let term = match raise {
        None => meta.hard.term,
        Some(term) => {
            refuse_foreign_user(dir)?;
            let storage = DirStorage::new(dir).map_err(text)?;
            raise_term(&storage, term).map_err(text)?;
            term
        }
    };
    if as_json {
        print_json(&json!({ "term": term.0, "term_before": meta.hard.term.0 }));
    } else if raise.is_some() {
        print_line(&format!("term {term} (was {})", meta.hard.term));
    } else {
        print_line(&format!("term {term}"));
    }
    Ok(())
}
