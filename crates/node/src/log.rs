//! The write-set log of this node: opened where the options say, opened again after its disk failed, and looked into.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use trireme_order::{LogStore, StoreError};
use trireme_types::{Entry, EntryKind, LogIndex, NodeId, Reader, Seqno, View, VoterSet};
use trireme_wslog::{DirStorage, OpenReport, Options as LogOptions, WriteSetLog, read_boot_id};

use crate::Level;
use crate::host::Host;
use crate::identity::{NoChance, node_uuid};
use crate::metrics::{Metrics, Writes};
use crate::panics::Panics;
use crate::settings::{Settings, SettingsError};
use crate::space::free_space;

pub type Log = WriteSetLog<DirStorage>;

/// Why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The directory, or what lies there.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    NewId(#[from] NoChance),
    #[error("{needed} bytes are needed in {}, and {free} are free", dir.display())]
    NoRoom { needed: u64, free: u64, dir: PathBuf },
    /// A full copy would remove it, or bring another node's: scripts spare flat files only.
    #[error(
        "gcache.dir={} lies within the data directory {}, where a full copy of the data would overwrite the write-set log. Move its \
         trireme.*.galera.cache files to the data directory itself, or to a directory outside, and say so in gcache.dir",
        dir.display(),
        data.display()
    )]
    WithinData { dir: PathBuf, data: PathBuf },
    /// A thread still waits for the disk, with the log that has failed.
    #[error("the disk does not answer")]
    Silent,
}

/// A member becomes a voter soon after the view that lets it in. Farther back is not looked for the names of voters.
const VIEW_IS_WITHIN: usize = 10_000;

/// More would not help: a full copy is there sooner.
const KEPT_FOR_ABSENT_MAX: u64 = 16 << 30;

/// Opens the write-set log in `gcache.dir`, or makes one there, and tells what was found. The flag: it was closed in order.
/// `data_dir`: the server's, if there is one.
pub fn open(settings: &Settings, data_dir: Option<&Path>, say: &dyn Fn(Level, &str)) -> Result<(Log, bool), LogError> {
    let recover = settings.with(|o| o.bool("gcache.recover"));
    let (storage, options) = place(settings, Some(NodeId(node_uuid(SystemTime::now())?)), recover)?;
    if let Some(data_dir) = data_dir {
        keep_out(storage.path(), data_dir)?;
    }
    let (log, report) = WriteSetLog::open(storage, &options)?;
    tell(&log, &report, say);
    Ok((log, !report.unclean))
}

/// Opens it once more after its disk failed, when that works and has room. The log must be there: an empty directory is one whose file
/// system is not mounted.
pub fn reopen(settings: &Settings, failed: &mut Log, say: &dyn Fn(Level, &str)) -> Result<Log, LogError> {
    if !failed.let_go() {
        return Err(LogError::Silent);
    }
    let (storage, options) = place(settings, None, true)?;
    let (free, needed) = (free_space(storage.path()), options.segment_size());
    // Not to be found out by filling the disk.
    if free < needed && !Log::has_room(&storage, &options)? {
        return Err(LogError::NoRoom { needed, free, dir: storage.path().to_owned() });
    }
    Log::make_room(&storage, &options)?;
    let (mut log, report) = WriteSetLog::open(storage, &options)?;
    tell(&log, &report, say);
    if let Some(lost) = log.succeed(failed)? {
        say(Level::Warn, &format!("the disk lost entries {lost} of the write-set log: the others have to repair it"));
    }
    Ok(log)
}

/// How the group thread gets what is appended onto the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogIo {
    /// Past the page cache, by io_uring, as far as that goes; no other thread has to do with it.
    Uring,
    /// Through the page cache; another thread syncs it.
    Threads,
}

impl LogIo {
    pub fn name(self) -> &'static str {
        match self {
            LogIo::Uring => "uring",
            LogIo::Threads => "threads",
        }
    }
}

/// Prepares the log for the calling thread, as `repl.log_io` says and this machine allows. Its writes are measured.
pub fn begin_io(log: &mut Log, host: &Host, metrics: &Arc<Metrics>, panics: &Arc<Panics>) -> LogIo {
    log.watch_writes(Writes(metrics.clone()));
    let wanted = host.settings.with(|o| o.text("repl.log_io").to_owned());
    if wanted == "threads" {
        return LogIo::Threads;
    }
    match log.direct_writer() {
        Ok(writer) => {
            #[cfg(feature = "panics")]
            let writer = crate::stalled::StalledWriter::new(writer, panics.clone());
            #[cfg(not(feature = "panics"))]
            let _ = panics;
            log.write_past_cache(writer);
            LogIo::Uring
        }
        Err(why) => {
            let text = format!(
                "write-set log: written through the page cache and synced by a thread, as repl.log_io={wanted} cannot have io_uring here: {why}"
            );
            host.log(if wanted == "uring" { Level::Warn } else { Level::Info }, text);
            LogIo::Threads
        }
    }
}

/// Where the log lies, and how it is opened.
fn place(settings: &Settings, new_node: Option<NodeId>, recover: bool) -> Result<(DirStorage, LogOptions), LogError> {
    let (dir, size, keep) = settings
        .with(|o| (PathBuf::from(o.text("gcache.dir")), o.size("gcache.size"), o.size("gcache.keep_pages_size")));
    let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
    let storage = DirStorage::new(&dir)?;
    let mut options = LogOptions::new(new_node, read_boot_id());
    options.size = size;
    options.keep_pages_size = keep;
    options.recover = recover;
    options.keys = settings.log_keys()?;
    Ok((storage, options))
}

/// The log lies at the top of the data directory or outside.
fn keep_out(dir: &Path, data_dir: &Path) -> Result<(), LogError> {
    // A path that leads nowhere holds nothing.
    let (Ok(dir), Ok(data)) = (dir.canonicalize(), data_dir.canonicalize()) else { return Ok(()) };
    if dir != data && dir.starts_with(&data) { Err(LogError::WithinData { dir, data }) } else { Ok(()) }
}

/// How much the log may take for the sake of members that are away: a quarter of what is free now, unless `gcache.size` is given, which is
/// a bound then.
pub fn kept_for_absent(settings: &Settings) -> u64 {
    let (dir, given) = settings.with(|o| (PathBuf::from(o.text("gcache.dir")), o.is_set("gcache.size")));
    if given { 0 } else { (free_space(&dir) / 4).min(KEPT_FOR_ABSENT_MAX) }
}

fn tell(log: &Log, report: &OpenReport, say: &dyn Fn(Level, &str)) {
    if report.created {
        say(Level::Info, &format!("write-set log: created, member id {}", log.node_id()));
        return;
    }
    let base = log.base();
    let last_seqno = last_seqno(log);
    say(
        Level::Info,
        &format!(
            "write-set log: member id {}, history {}, seqnos {}-{last_seqno}, entries {}-{}{}",
            log.node_id(),
            base.history,
            base.seqno.next(),
            log.first(),
            log.last(),
            if report.unclean { ", not closed by its last user" } else { "" },
        ),
    );
    // A note that may cost this member its vote wants an operator's eye; the rest is what recovery is there for.
    let level = if report.suspect.is_some() || report.hole.is_some() { Level::Warn } else { Level::Info };
    for note in &report.notes {
        say(level, note);
    }
}

fn last_seqno(log: &Log) -> Seqno {
    match log.read(log.last(), 0) {
        Ok(entries) => entries.first().map_or(log.base().seqno, |e| e.header.seqno),
        Err(_) => log.base().seqno,
    }
}

/// The newest voter set in the log, committed or not, and its index.
fn newest_voters(log: &Log) -> (VoterSet, LogIndex) {
    let base = log.base();
    let newest = entry(log, log.last()).and_then(|last| match last.header.kind {
        EntryKind::Voters => Some(last),
        EntryKind::Term | EntryKind::WriteSet | EntryKind::View | EntryKind::App | EntryKind::Setting => {
            entry(log, last.header.voters).filter(|e| e.header.kind == EntryKind::Voters)
        }
    });
    newest
        .and_then(|e| Some((VoterSet::decode(&mut Reader::new(&e.payload)).ok()?, e.header.index)))
        .unwrap_or_else(|| (base.voters.clone(), base.index))
}

pub fn voters(log: &Log) -> VoterSet {
    newest_voters(log).0
}

fn entry(log: &Log, index: LogIndex) -> Option<Entry> {
    log.read(index, 0).ok()?.into_iter().next()
}

/// The view in which these voters were chosen: the last one before, or else the one that the log begins with.
fn view_of_voters(log: &Log, at: LogIndex) -> View {
    (log.base().index.0 + 1..=at.0)
        .rev()
        .take(VIEW_IS_WITHIN)
        .filter_map(|index| entry(log, LogIndex(index)))
        .find(|e| e.header.kind == EntryKind::View)
        .and_then(|e| View::decode(&mut Reader::new(&e.payload)).ok())
        .unwrap_or_else(|| log.base().view.clone())
}

/// For people: the voters in the log but for this node.
pub fn names_of_voters(log: &Log) -> String {
    let own = log.node_id();
    let (set, at) = newest_voters(log);
    let view = view_of_voters(log, at);
    let names: Vec<String> = set
        .voters
        .iter()
        .filter(|v| v.node != own)
        .map(|v| view.get(v.node).map_or_else(|| v.node.to_string(), |m| format!("{} ({})", m.name, m.address)))
        .collect();
    if names.is_empty() { "none but this node".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_within_the_data_directory_is_refused() {
        let top = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-log-place-").unwrap();
        let [data, within, beside] = ["data", "data/logs", "data-logs"].map(|name| top.join(name));
        for dir in [&within, &beside] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let link = top.join("link");
        std::os::unix::fs::symlink(&within, &link).unwrap();
        for (dir, refused) in [(&data, false), (&beside, false), (&within, true), (&link, true)] {
            assert_eq!(matches!(keep_out(dir, &data), Err(LogError::WithinData { .. })), refused, "{}", dir.display());
        }
        std::fs::remove_dir_all(&top).unwrap();
    }
}
