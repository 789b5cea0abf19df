//! `trireme log trim`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::json;
use trireme_order::LogStore;
use trireme_types::{NodeId, Seqno};
use trireme_wslog::{DirStorage, Options, Trim, WriteSetLog, read_boot_id};

use super::{look, range_json, range_text, text};
use crate::run::{print_json, print_line};

pub fn log(dir: &Path, keep_from: Seqno, force: bool, as_json: bool) -> Result<(), String> {
    let before = look(dir)?;
    let Some(meta) = &before.summary.meta else {
        return Err(format!("the log in {} has no metadata: start its node, or remove its files", dir.display()));
    };
    refuse_foreign_user(dir)?;
    let storage = DirStorage::new(dir).map_err(text)?;
    let probe = {
        use trireme_wslog::Storage;
        // Before anything else is said about the log: while its owner runs, all of it is in flux.
        storage.lock().map_err(text)?
    };
    drop(probe);
    if !meta.clean && !force {
        return Err(format!(
            "the log in {} was not closed by its last user, whose engine may still lack entries: start and stop the node \
             first, or repeat with --force",
            dir.display()
        ));
    }
    let mut options = Options::new(NodeId::default(), read_boot_id());
    // What was kept in files of some size goes on in such.
    options.segment_size_override = before.summary.segments.iter().map(|s| s.bytes_file).max().filter(|size| *size > 0);
    let (mut log, _) = WriteSetLog::open(storage, &options).map_err(text)?;
    let held_before = log.bytes_held();
    let trimmed = cut(&mut log, keep_from);
    let held = log.bytes_held();
    // Also after a refusal: it was opened, so it has to be closed, or the next start would call it unclean.
    log.close().map_err(text)?;
    trimmed?;
    let after = look(dir)?;
    let freed = held_before.saturating_sub(held);
    if as_json {
        print_json(&json!({
            "entries_before": range_json(before.range()),
            "entries": range_json(after.range()),
            "first_seqno": after.verdict.base.seqno.next().raw(),
            "bytes_freed": freed,
        }));
    } else if freed == 0 {
        print_line(&format!(
            "nothing to drop: entries {}; segments go as a whole, and only below a checkpoint",
            range_text(after.range())
        ));
    } else {
        print_line(&format!(
            "entries {} (were {}), {freed} bytes freed",
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
fn refuse_foreign_user(dir: &Path) -> Result<(), String> {
    let owner = |path: &Path| std::fs::metadata(path).map(|m| m.uid()).map_err(|e| format!("{}: {e}", path.display()));
    let (ours, theirs) = (owner(Path::new("/proc/self"))?, owner(dir)?);
    if ours == theirs {
        return Ok(());
    }
    Err(format!(
        "{} belongs to another user (uid {theirs}), and files made by this one would keep its server from starting: run \
         this as that user, as with `sudo -u mysql trireme log trim …`",
        dir.display()
    ))
}
