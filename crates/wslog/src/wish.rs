//! The wish of an operator's tool to the process that has the log open: to drop old entries. Two small files of text in the
//! log's directory, a wish and its answer, each renamed into place whole; an open of the log removes what is left of them.

use trireme_order::StoreError;
use trireme_types::Seqno;

use crate::names;
use crate::storage::{Storage, StorageFile};

/// No wish or answer is longer. Bytes.
const TEXT_MAX: u64 = 4096;

/// Keep everything from this seqno on, and drop what can be dropped below.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrimWish {
    /// Chosen by who wishes, so that an answer to somebody else is not taken for one's own.
    pub id: u64,
    pub keep_from: Seqno,
}

/// The result of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrimAnswer {
    pub id: u64,
    /// Bytes freed, and in words what had to stay nevertheless (empty: nothing); or why nothing was done. One line.
    pub outcome: Result<(u64, String), String>,
}

impl TrimWish {
    pub fn put<S: Storage>(&self, storage: &S) -> Result<(), StoreError> {
        put(storage, names::WISH_TMP, names::WISH, &format!("id {}\nkeep-from {}\n", self.id, self.keep_from.0))
    }

    /// The wish, if there is one. Its file is gone afterwards, so whoever made the wish can take it back by this, too. A file that cannot be
    /// read as a wish is none.
    pub fn take<S: Storage>(storage: &S) -> Result<Option<TrimWish>, StoreError> {
        let Some(text) = take(storage, names::WISH)? else { return Ok(None) };
        Ok(parse_wish(&text))
    }
}

impl TrimAnswer {
    pub fn put<S: Storage>(&self, storage: &S) -> Result<(), StoreError> {
        let line = |text: &str| text.replace(['\n', '\r'], " ");
        let text = match &self.outcome {
            Ok((freed, kept)) => format!("id {}\nfreed {freed}\n{}\n", self.id, line(kept)),
            Err(reason) => format!("id {}\nrefused\n{}\n", self.id, line(reason)),
        };
        put(storage, names::ANSWER_TMP, names::ANSWER, &text)
    }

    /// The answer to the wish `id`, if it is there; it is gone afterwards, and so is one to another wish.
    pub fn take<S: Storage>(storage: &S, id: u64) -> Result<Option<TrimAnswer>, StoreError> {
        let Some(text) = take(storage, names::ANSWER)? else { return Ok(None) };
        Ok(parse_answer(&text).filter(|answer| answer.id == id))
    }
}

fn parse_wish(text: &str) -> Option<TrimWish> {
    let mut lines = text.lines();
    let id = lines.next()?.strip_prefix("id ")?.parse().ok()?;
    let keep_from = Seqno::from_outside(lines.next()?.strip_prefix("keep-from ")?.parse::<u64>().ok()?)?;
    Some(TrimWish { id, keep_from })
}

fn parse_answer(text: &str) -> Option<TrimAnswer> {
    let mut lines = text.lines();
    let id = lines.next()?.strip_prefix("id ")?.parse().ok()?;
    let outcome = lines.next()?;
    let words = lines.next()?.to_string();
    let outcome = match outcome.strip_prefix("freed ") {
        Some(freed) => Ok((freed.parse().ok()?, words)),
        None if outcome == "refused" => Err(words),
        None => return None,
    };
    Some(TrimAnswer { id, outcome })
}

fn put<S: Storage>(storage: &S, temporary: &str, name: &str, text: &str) -> Result<(), StoreError> {
    storage.create(temporary)?.write_at(0, text.as_bytes())?;
    storage.rename(temporary, name)
}

fn take<S: Storage>(storage: &S, name: &str) -> Result<Option<String>, StoreError> {
    let Some(file) = storage.open(name)? else { return Ok(None) };
    let mut buf = vec![0; file.len()?.min(TEXT_MAX) as usize];
    let got = file.read_at(0, &mut buf)?;
    storage.remove(name)?;
    Ok(Some(String::from_utf8_lossy(&buf[..got]).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simdisk::SimDisk;

    #[test]
    fn wishes_and_answers_round_trip_once() {
        let disk = SimDisk::new(1);
        assert_eq!(TrimWish::take(&disk).unwrap(), None);
        let wish = TrimWish { id: 7, keep_from: Seqno(12) };
        wish.put(&disk).unwrap();
        assert_eq!(TrimWish::take(&disk).unwrap(), Some(wish.clone()));
        assert_eq!(TrimWish::take(&disk).unwrap(), None);
        for outcome in [Ok((4096, String::new())), Ok((0, "two\nlines".into())), Err("no".into())] {
            TrimAnswer { id: 7, outcome: outcome.clone() }.put(&disk).unwrap();
            let answer = TrimAnswer::take(&disk, 7).unwrap().unwrap();
            assert_eq!(answer.outcome, outcome.map(|(freed, kept)| (freed, kept.replace('\n', " "))));
            assert_eq!(TrimAnswer::take(&disk, 7).unwrap(), None);
        }
        TrimAnswer { id: 8, outcome: Err("no".into()) }.put(&disk).unwrap();
        assert_eq!(TrimAnswer::take(&disk, 7).unwrap(), None, "somebody else's");
    }

    #[test]
    fn what_is_no_wish_is_taken_away() {
        let disk = SimDisk::new(1);
        for text in ["", "id 1\n", "id x\nkeep-from 1\n", "id 1\nkeep-from -1\n", "\u{fffd}"] {
            put(&disk, names::WISH_TMP, names::WISH, text).unwrap();
            assert_eq!(TrimWish::take(&disk).unwrap(), None, "{text:?}");
            assert!(disk.open(names::WISH).unwrap().is_none());
        }
        for text in ["", "id 1\nfreed\n\n", "id 1\nfreed x\n\n", "id 1\nelse\nx\n", "id 1\nfreed 1"] {
            assert_eq!(parse_answer(text), None, "{text:?}");
        }
    }
}
