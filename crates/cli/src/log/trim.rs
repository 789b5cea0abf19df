//! `trireme log trim`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use trireme_order::LogStore;
use trireme_types::{NodeId, Seqno};
use trireme_wslog::{DirStorage, LogKeys, Options, Trim, TrimAnswer, TrimWish, WriteSetLog, read_boot_id};

use super::{Look, look, range_json, range_text, text};
use crate::run::{print_json, print_line};

/// From when it was heard: dropping a segment takes milliseconds, and large logs have a hundred.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub fn log(
    dir: &Path,
    keep_from: Seqno,
    force: bool,
    wait: Duration,
    keys: Option<LogKeys>,
    as_json: bool,
) -> Result<(), String> {
    let before = look(dir, keys.clone())?;
    let Some(meta) = &before.summary.meta else {
        return Err(format!("the log in {} has no metadata: start its node, or remove its files", dir.display()));
    };
    refuse_foreign_user(dir)?;
    let storage = DirStorage::new(dir).map_err(text)?;
    // Before anything else is said about the log: while its owner runs, all of it is in flux.
    if storage.try_lock().map_err(text)?.is_none() {
        let (freed, kept) = ask_owner(&storage, keep_from, wait)?;
        return tell(&before, &look(dir, keys)?, freed, &kept, as_json);
    }
    if !meta.clean && !force {
        return Err(format!(
            "the log in {} was not closed by its last user, whose engine may still lack entries: start and stop the node \
             first, or repeat with --force. If its server is running and waits for its disk, leave the log to it",
            dir.display()
        ));
    }
    let mut options = Options::new(NodeId::default(), read_boot_id());
    options.keys = keys.clone();
    // A log that was kept in files of some size goes on in such.
    options.segment_size_override = before.summary.segments.iter().map(|s| s.bytes_file).max().filter(|size| *size > 0);
    let (mut log, _) = WriteSetLog::open(storage, &options).map_err(text)?;
    let held_before = log.bytes_held();
    let trimmed = cut(&mut log, keep_from);
    let held = log.bytes_held();
    // Also after a refusal: it was opened, so it has to be closed, or the next start would call it unclean.
    log.close().map_err(text)?;
    trimmed?;
    tell(&before, &look(dir, keys)?, held_before.saturating_sub(held), "", as_json)
}

/// The process that has the log open drops what it can spare.
fn ask_owner(storage: &DirStorage, keep_from: Seqno, wait: Duration) -> Outcome {
    let id = u64::from(std::process::id()) << 32
        | u64::from(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.subsec_nanos()));
    TrimWish { id, keep_from }.put(storage).map_err(text)?;
    if let Some(outcome) = await_answer(storage, id, wait)? {
        return outcome;
    }
    if TrimWish::take(storage).map_err(text)?.is_some() {
        return Err(format!(
            "the process that has the log open took no notice within {} s, and nothing was done: it may be starting or stopping",
            wait.as_secs()
        ));
    }
    // It is not there to be taken back: the owner has it.
    await_answer(storage, id, ANSWERED_WITHIN)?.unwrap_or_else(|| {
        Err("the process that has the log open has heard it, and its answer got lost: see its error log for what it did".to_owned())
    })
}

type Outcome = Result<(u64, String), String>;

fn await_answer(storage: &DirStorage, id: u64, longest: Duration) -> Result<Option<Outcome>, String> {
    let deadline = Instant::now() + longest;
    loop {
        if let Some(answer) = TrimAnswer::take(storage, id).map_err(text)? {
            return Ok(Some(answer.outcome));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// `kept`: what had to stay, and for whom something is lost.
fn tell(before: &Look, after: &Look, freed: u64, kept: &str, as_json: bool) -> Result<(), String> {
    if as_json {
        print_json(&json!({
            "entries_before": range_json(before.range()),
            "entries": range_json(after.range()),
            "first_seqno": after.verdict.base.seqno.next().raw(),
            "bytes_freed": freed,
            "note": kept.trim_start_matches("; "),
        }));
    } else if freed == 0 {
        print_line(&format!(
            "nothing to drop: entries {}; segments go as a whole, and only below a checkpoint{kept}",
            range_text(after.range())
        ));
    } else {
        print_line(&format!(
            "entries {} (were {}), {freed} bytes freed{kept}",
            range_text(after.range()),
            range_text(before.range())
        ));
    }
    Ok(())
}

fn cut(log: &mut WriteSetLog<DirStorage>, keep_from: Seqno) -> Result<(), String> {
    if keep_from <= log.base().seqno {
        return Ok(()); // gone already
    }
    let Some(index) = log.index_of(keep_from) else {
        return Err(format!(
            "seqno {keep_from} is not in the log: the newest entries have to stay, so name one that is"
        ));
    };
    log.trim(Trim { keep_from: index, bytes_max: Some(0) }).map(|_| ()).map_err(text)
}

/// Files made by another user than the server's would keep the node from starting.
pub fn refuse_foreign_user(dir: &Path) -> Result<(), String> {
    let owner = |path: &Path| std::fs::metadata(path).map(|m| m.uid()).map_err(|e| format!("{}: {e}", path.display()));
    let (ours, theirs) = (owner(Path::new("/proc/self"))?, owner(dir)?);
    if ours == theirs {
        return Ok(());
    }
    Err(format!(
        "{} belongs to another user (uid {theirs}), and files made by this one would keep its server from starting: run \
         this as that user, as with `sudo -u mysql trireme log …`",
        dir.display()
    ))
}
