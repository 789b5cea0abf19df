//! Names of the files. All end in `galera.cache`: the state-transfer scripts leave such names alone and copy plain files at the
//! top of the data directory to nobody, so neither the log nor the identity in it travels with the data.

pub const META: &str = "trireme.meta.galera.cache";
pub const META_TMP: &str = "trireme.meta.tmp.galera.cache";
pub const LOCK: &str = "trireme.lock.galera.cache";
pub const SPARE: &str = "trireme.spare.galera.cache";
pub const SPARE_TMP: &str = "trireme.spare.tmp.galera.cache";
pub const SEGMENT_TMP: &str = "trireme.segment.tmp.galera.cache";
/// The wish of an operator's tool to the log's owner, and the owner's answer.
pub const WISH: &str = "trireme.trim.galera.cache";
pub const WISH_TMP: &str = "trireme.trim.tmp.galera.cache";
pub const ANSWER: &str = "trireme.trimmed.galera.cache";
pub const ANSWER_TMP: &str = "trireme.trimmed.tmp.galera.cache";
/// Written to find out how files here can be written.
pub const TRIAL: &str = "trireme.trial.tmp.galera.cache";
const SUFFIX: &str = ".galera.cache";

/// The kinds of files of the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Name {
    Segment(u64),
    Checkpoint(u64),
    /// A segment that was put aside because it lies behind damage.
    Damaged(u64),
    /// Half-made, or not for longer than a moment; removed at the next open.
    Temporary,
    Spare,
    Meta,
    Lock,
}

/// `None` for files that are not ours.
pub fn parse(name: &str) -> Option<Name> {
    match name {
        META => return Some(Name::Meta),
        LOCK => return Some(Name::Lock),
        SPARE => return Some(Name::Spare),
        META_TMP | SPARE_TMP | SEGMENT_TMP | WISH | WISH_TMP | ANSWER | ANSWER_TMP | TRIAL => {
            return Some(Name::Temporary);
        }
        _ => {}
    }
    let middle = name.strip_prefix("trireme.")?.strip_suffix(SUFFIX)?;
    if let Some(n) = middle.strip_prefix("ckpt.") {
        return number(n).map(Name::Checkpoint);
    }
    if let Some(n) = middle.strip_prefix("damaged.") {
        return number(n).map(Name::Damaged);
    }
    number(middle).map(Name::Segment)
}

fn number(digits: &str) -> Option<u64> {
    let plain = digits.len() >= 8 && digits.len() <= 18 && digits.bytes().all(|b| b.is_ascii_digit());
    let canonical = digits.len() == 8 || !digits.starts_with('0');
    if plain && canonical { digits.parse().ok() } else { None }
}

pub fn segment(number: u64) -> String {
    format!("trireme.{number:08}{SUFFIX}")
}

pub fn checkpoint(number: u64) -> String {
    format!("trireme.ckpt.{number:08}{SUFFIX}")
}

pub fn damaged(number: u64) -> String {
    format!("trireme.damaged.{number:08}{SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_left_alone() {
        for n in [1, 99_999_999, 100_000_000] {
            assert_eq!(parse(&segment(n)), Some(Name::Segment(n)));
            assert_eq!(parse(&checkpoint(n)), Some(Name::Checkpoint(n)));
            assert_eq!(parse(&damaged(n)), Some(Name::Damaged(n)));
        }
        for n in [META, META_TMP, LOCK, SPARE, SPARE_TMP, SEGMENT_TMP, WISH, WISH_TMP, ANSWER, ANSWER_TMP, TRIAL] {
            assert!(parse(n).is_some() && n.ends_with("galera.cache"), "{n}");
        }
        for other in [
            "galera.cache",
            "trireme.1.galera.cache",
            "trireme.000000001.galera.cache",
            "ibdata1",
            "trireme..galera.cache",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
