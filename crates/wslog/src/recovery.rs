//! The state that the files in the directory amount to. Reads only: `open` carries the decision out, `inspect` prints it.
//!
//! The rules, with their reasons, are in `docs/wslog-format.md`; in short: a record that cannot be read and lies above the durable
//! watermark, with nothing whole behind it, is a torn tail; so is one with whole records behind it when the page cache was lost
//! (unsynced pages reach the disk in any order). Everything else that is missing is a hole.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use trireme_order::StoreError;
use trireme_types::{Base, Durability, LogIndex, Seqno, Term, Uuid};

use crate::checkpoint::{self, Kept};
use crate::format::{Format, Meta, Origin, Purpose, SegmentHeader, Unlocked};
use crate::index::{Segment, Slot};
use crate::names::{self, Name};
use crate::options::{IndexRange, OpenReport};
use crate::scan::{self, ScanEnd};
use crate::seal::{FileKey, LogKeys};
use crate::storage::{Storage, StorageFile};

/// The log as it can be used, and what has to be done to the files first.
pub struct Recovered<F> {
    pub report: OpenReport,
    /// Without the application's part, see [`Recovered::load_base`].
    pub base: Base,
    /// Is the last segment of the format before? It takes no more records.
    pub ends_in_format_before: bool,
    /// Number of the checkpoint with which the log began.
    pub began: u64,
    /// The base's own checkpoint first, when it has one.
    pub kept: VecDeque<Kept>,
    pub segments: VecDeque<Segment<F>>,
    pub slots: VecDeque<Slot>,
    /// End of the last segment: where the next record goes and what it must name.
    pub end: u64,
    pub chain: u32,
    /// The next entry must begin a new segment that voids what lies behind.
    pub cut: bool,
    /// Files of no further use.
    pub remove: Vec<String>,
    /// Segments to be kept for a person to look at, out of the log's way.
    pub put_aside: Vec<u64>,
    /// Already put aside.
    pub damaged: Vec<u64>,
    /// Number of the newest cut or reset segment seen, or known to the metadata.
    pub epoch: u64,
    /// Highest number seen in any name.
    pub number_max: u64,
}

impl<F> Recovered<F> {
    /// Reads the base as a whole.
    pub fn load_base<S: Storage<File = F>>(&mut self, storage: &S, keys: Option<&LogKeys>) -> Result<(), StoreError> {
        let Some(number) = self.kept.front().map(|kept| kept.number) else { return Ok(()) };
        let Some((_, base)) = checkpoint::read(storage, number, keys)? else {
            return Err(StoreError::Damaged(format!("{} was whole and is not", names::checkpoint(number))));
        };
        self.base = base;
        Ok(())
    }
}

/// A gapless sequence of entries.
struct Run<F> {
    header: SegmentHeader,
    segments: Vec<Segment<F>>,
    slots: VecDeque<Slot>,
    end: ScanEnd,
    /// Of the last segment.
    format: Format,
}

impl<F> Run<F> {
    fn last(&self) -> LogIndex {
        LogIndex(self.header.first.0 - 1 + self.slots.len() as u64)
    }

    /// Term and seqno after `index`, when within the run or just before it.
    fn state_at(&self, index: LogIndex) -> Option<(Term, Seqno)> {
        if index == self.header.prev() {
            return Some((self.header.prev_term, self.header.prev_seqno));
        }
        let at = index.0.checked_sub(self.header.first.0)?;
        self.slots.get(usize::try_from(at).ok()?).map(|s| (s.term, s.seqno))
    }

    fn history(&self) -> Uuid {
        self.header.history
    }

    /// Is this a state after one of the run's entries, or the one before the first?
    fn fits(&self, kept: &Kept) -> bool {
        kept.history == self.history() && self.state_at(kept.index) == Some((kept.term, kept.seqno))
    }
}

/// The fate of files, and the remarks on it. Every step adds to it.
#[derive(Default)]
struct Findings {
    /// A line per thing an operator would want to know.
    notes: Vec<String>,
    /// Names of files of no further use.
    remove: Vec<String>,
    /// Numbers of segments to be kept for a person to look at.
    put_aside: Vec<u64>,
}

/// A segment file.
struct Found<F> {
    header: SegmentHeader,
    file: F,
    len: u64,
    /// `None`: in clear text.
    key: Option<Arc<FileKey>>,
}

/// Files by kind, those that the log begins with and later ones.
struct Listing<F> {
    /// By number; `None`: without a readable header.
    segments: BTreeMap<u64, Option<Found<F>>>,
    checkpoints: Vec<u64>,
    damaged: Vec<u64>,
    number_max: u64,
    /// The header of the newest cut or reset that the metadata knows of is gone, while older segments are there.
    epoch_lost: bool,
    /// The metadata knows of a cut or reset, and there is no segment at all.
    vanished: bool,
}

fn list<S: Storage>(
    storage: &S,
    meta: &Meta,
    keys: Option<&LogKeys>,
    findings: &mut Findings,
) -> Result<Listing<S::File>, StoreError> {
    let mut out = Listing {
        segments: BTreeMap::new(),
        checkpoints: Vec::new(),
        damaged: Vec::new(),
        number_max: 0,
        epoch_lost: false,
        vanished: false,
    };
    for name in storage.list()? {
        match names::parse(&name) {
            Some(Name::Segment(number)) => {
                out.number_max = out.number_max.max(number);
                let Some(file) = storage.open(&name)? else { continue };
                let len = file.len()?;
                match scan::header(&file)? {
                    Some(header) if header.number == number => {
                        let key = match header.unlock(keys)? {
                            Unlocked::Clear => Ok(None),
                            Unlocked::Sealed(key) => Ok(Some(Arc::new(key))),
                            Unlocked::Forged => Err(()),
                        };
                        out.segments.insert(number, key.ok().map(|key| Found { header, file, len, key }));
                    }
                    // Trimmed, then recycled, and the rename was lost: not a segment any more.
                    Some(h) if h.number > number => findings.remove.push(name),
                    _ => {
                        out.segments.insert(number, None);
                    }
                }
            }
            Some(Name::Checkpoint(number)) => {
                out.number_max = out.number_max.max(number);
                out.checkpoints.push(number);
            }
            Some(Name::Damaged(number)) => {
                out.number_max = out.number_max.max(number);
                out.damaged.push(number);
            }
            Some(Name::Temporary) => findings.remove.push(name),
            Some(Name::Spare | Name::Meta | Name::Lock) | None => {}
        }
    }
    out.checkpoints.sort_unstable();
    out.damaged.sort_unstable();
    out.begin(meta, findings);
    Ok(out)
}

impl<F> Listing<F> {
    /// Drops what lies before the beginning of the log: the newest reset, or the oldest segment.
    fn begin(&mut self, meta: &Meta, findings: &mut Findings) {
        let reset = self.segments.iter().rev().find_map(|(number, s)| match s {
            Some(found) if found.header.origin == Origin::Reset => Some(*number),
            _ => None,
        });
        if let Some(start) = reset {
            let rest = self.segments.split_off(&start);
            for number in std::mem::replace(&mut self.segments, rest).into_keys() {
                findings.remove.push(names::segment(number));
            }
        }
        // The newest cut or reset that the metadata knows of. If its header is gone while older segments are there, nobody can say
        // what of them it made void.
        self.epoch_lost = meta.epoch != 0
            && self.segments.keys().next().is_some_and(|n| *n < meta.epoch)
            && self.segments.get(&meta.epoch).is_none_or(Option::is_none);
        if self.epoch_lost {
            findings.notes.push(format!(
                "the header of segment {} is unreadable or the file is missing: the older segments cannot be used",
                meta.epoch
            ));
            let rest = self.segments.split_off(&meta.epoch);
            findings.put_aside.extend(std::mem::replace(&mut self.segments, rest).into_keys());
            self.segments.insert(meta.epoch, None);
        }
        self.vanished = meta.epoch != 0 && self.segments.is_empty();
    }
}

/// Are there any files that only a log leaves behind?
pub fn any_log_files<S: Storage>(storage: &S) -> Result<bool, StoreError> {
    Ok(storage.list()?.iter().any(|n| matches!(names::parse(n), Some(Name::Segment(_) | Name::Checkpoint(_)))))
}

/// The content of the segments.
struct History<F> {
    /// In order; a gap or damage between each two.
    runs: Vec<Run<F>>,
    /// Segments without a readable header.
    unreadable: Vec<u64>,
    /// Everything up to here was synced once.
    watermark: LogIndex,
    /// Number of the newest cut or reset.
    epoch: u64,
    /// Number of the checkpoint with which the log began. Numbers rise, so the highest is the newest log's.
    began: u64,
    /// Number and first index of each cut.
    cuts: Vec<(u64, LogIndex)>,
}

impl<F> History<F> {
    /// Is this a state of the log that the segments hold? An index, a term and a seqno name an entry within one branch only, and a file
    /// that was to be removed may have come back with a loss of power. So numbers of files decide: they only rise.
    fn knows(&self, number: u64, purpose: Purpose, index: LogIndex) -> bool {
        let of_this_log = match purpose {
            // Any other is that of a reset which did not come to its segment: of a log that never began.
            Purpose::Begins => number == self.began,
            Purpose::Kept => number > self.began,
            Purpose::Unsaid => self.began == 0,
        };
        of_this_log && !self.cuts.iter().any(|(cut, first)| number < *cut && index >= *first)
    }
}

/// Reads all records.
fn walk<S: Storage>(
    segments: BTreeMap<u64, Option<Found<S::File>>>,
    meta: &Meta,
    findings: &mut Findings,
) -> Result<History<S::File>, StoreError> {
    // The watermark: from the metadata, lowered by later cuts, and from the segments themselves.
    let mut noted = meta.synced;
    let mut out = History {
        runs: Vec::new(),
        unreadable: Vec::new(),
        watermark: LogIndex::ZERO,
        epoch: meta.epoch,
        began: 0,
        cuts: Vec::new(),
    };
    for (number, segment) in segments {
        let Some(Found { header, file, len, key }) = segment else {
            findings.notes.push(format!("segment {number} has no readable header"));
            out.unreadable.push(number);
            continue;
        };
        out.began = out.began.max(header.began);
        if header.origin == Origin::Cut {
            out.cuts.push((number, header.first));
        }
        if header.origin != Origin::Continues {
            out.epoch = out.epoch.max(number);
            out.watermark = out.watermark.min(header.prev());
            if number > meta.epoch {
                noted = noted.min(header.prev());
            }
            cut_runs(&mut out.runs, header.first, &mut findings.remove);
        }
        out.watermark = out.watermark.max(header.synced);
        let continues = out.runs.last().is_some_and(|run| {
            run.last() == header.prev()
                && run.history() == header.history
                && run.state_at(header.prev()) == Some((header.prev_term, header.prev_seqno))
        });
        if !continues {
            out.runs.push(Run {
                format: header.format,
                header,
                segments: Vec::new(),
                slots: VecDeque::new(),
                end: ScanEnd { end: 0, chain: 0, bad: None, watermark: LogIndex::ZERO },
            });
        }
        let Some(run) = out.runs.last_mut() else { continue };
        run.format = header.format;
        run.end = scan::walk(&file, &header, key.as_deref(), |_, slot| run.slots.push_back(slot))?;
        out.watermark = out.watermark.max(run.end.watermark);
        run.segments.push(Segment { number, first: header.first, file, capacity: len, key });
    }
    out.watermark = out.watermark.max(noted);
    Ok(out)
}

/// States of this log, rising in index; of two at one index the newer first.
struct States(Vec<(Kept, Base)>);

impl States {
    fn read<S: Storage>(
        storage: &S,
        numbers: &[u64],
        history: &History<S::File>,
        keys: Option<&LogKeys>,
        findings: &mut Findings,
    ) -> Result<States, StoreError> {
        let mut out = Vec::new();
        for number in numbers {
            match checkpoint::look(storage, *number, keys)? {
                Some((purpose, base)) if history.knows(*number, purpose, base.index) => {
                    out.push((Kept::new(*number, &base, None), base));
                }
                _ => findings.remove.push(names::checkpoint(*number)),
            }
        }
        out.sort_by_key(|(kept, _)| (kept.index, std::cmp::Reverse(kept.number)));
        Ok(States(out))
    }

    /// The run to go on with: one for which there is a state to begin with. The oldest that loses nothing synced (what follows it
    /// is unsynced debris), else the newest (what precedes it is damaged history).
    fn choose<F>(&self, history: &History<F>) -> Option<usize> {
        let usable = |run: &Run<F>| self.0.iter().any(|(kept, _)| run.fits(kept));
        let whole = history.runs.iter().position(|run| usable(run) && run.last() >= history.watermark);
        whole.or_else(|| history.runs.iter().rposition(usable))
    }
}

/// Reads and judges everything.
///
/// **Errors:** the disk fails, or a key is not among `keys`.
pub fn analyse<S: Storage>(
    storage: &S,
    meta: &Meta,
    boot_id: &str,
    keys: Option<&LogKeys>,
) -> Result<Recovered<S::File>, StoreError> {
    let rebooted = meta.boot_id.is_empty() || boot_id.is_empty() || meta.boot_id != boot_id;
    let mut findings = Findings::default();
    let mut listing = list(storage, meta, keys, &mut findings)?;
    let mut history = walk::<S>(std::mem::take(&mut listing.segments), meta, &mut findings)?;
    let states = States::read(storage, &listing.checkpoints, &history, keys, &mut findings)?;
    let mut out = Recovered {
        report: OpenReport { unclean: !meta.clean, rebooted, ..OpenReport::default() },
        base: Base::default(),
        ends_in_format_before: false,
        began: history.began,
        kept: VecDeque::new(),
        segments: VecDeque::new(),
        slots: VecDeque::new(),
        end: 0,
        chain: 0,
        cut: false,
        remove: Vec::new(),
        put_aside: Vec::new(),
        damaged: std::mem::take(&mut listing.damaged),
        epoch: history.epoch,
        number_max: listing.number_max,
    };
    match states.choose(&history) {
        Some(chosen) => {
            let later = history.runs.split_off(chosen + 1);
            let Some(run) = history.runs.pop() else {
                return Err(StoreError::Damaged("recovery lost its place".into()));
            };
            let end = begin_with(&mut out, run, states, &history, &mut findings);
            judge_end(&mut out, &end, &later, &mut history, &mut findings)?;
        }
        None => begin_with_nothing(&mut out, states, &listing, &mut history, &mut findings),
    }
    suspect(&mut out, meta, history.watermark, &mut findings);
    out.report.notes = findings.notes;
    out.remove = findings.remove;
    out.put_aside = findings.put_aside;
    out.put_aside.sort_unstable();
    out.put_aside.dedup();
    out.put_aside.retain(|n| !out.remove.contains(&names::segment(*n)));
    Ok(out)
}

/// Where the chosen run ends.
struct End {
    last: LogIndex,
    scan: ScanEnd,
}

/// The log is `run`, from its lowest state on. The entries that precede it in `history` are lost.
fn begin_with<F>(
    out: &mut Recovered<F>,
    mut run: Run<F>,
    states: States,
    history: &History<F>,
    findings: &mut Findings,
) -> End {
    let last = run.last();
    // States to keep: the lowest is the base.
    for (kept, base) in states.0 {
        let duplicate = out.kept.back().is_some_and(|k| k.index == kept.index);
        if !run.fits(&kept) || duplicate {
            findings.remove.push(names::checkpoint(kept.number));
            continue;
        }
        if out.kept.is_empty() {
            out.base = base;
        }
        out.kept.push_back(kept);
    }
    if let Some(earlier) = history.runs.first() {
        out.report.lost_history =
            Some(IndexRange { from: earlier.header.first, to: out.base.index.max(earlier.header.first) });
        findings
            .notes
            .push("segments before the newest usable state are damaged: the history before it is lost".to_string());
    }
    findings.put_aside.extend(history.runs.iter().flat_map(|r| &r.segments).map(|segment| segment.number));
    // Segments and entries that end at or below the base are not part of the log any more.
    let below = (out.base.index.0 - run.header.prev().0) as usize;
    run.slots.drain(..below.min(run.slots.len()));
    let firsts: Vec<LogIndex> = run.segments.iter().map(|s| s.first).collect();
    for (at, segment) in run.segments.drain(..).enumerate() {
        if firsts.get(at + 1).is_some_and(|next| next.prev() <= out.base.index) {
            findings.remove.push(names::segment(segment.number));
        } else {
            out.segments.push_back(segment);
        }
    }
    out.slots = run.slots;
    out.ends_in_format_before = run.format == Format::Before;
    out.end = run.end.end;
    out.chain = run.end.chain;
    End { last, scan: run.end }
}

/// Is the end of the chosen run where the log ended? `later`: the runs behind it.
fn judge_end<F: StorageFile>(
    out: &mut Recovered<F>,
    end: &End,
    later: &[Run<F>],
    history: &mut History<F>,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    let report = &mut out.report;
    let mut seen_behind = None;
    let tail = out.segments.back();
    if let Some(tail) = tail
        && let Some(behind) = scan::behind(&tail.file, tail.number, end.scan.end)?
    {
        if later.is_empty() {
            history.watermark = history.watermark.max(behind.watermark);
        }
        seen_behind = Some(behind.last);
    }
    let tail_number = tail.map_or(0, |segment| segment.number);
    if let Some(later_last) = later.iter().map(|r| r.last().max(r.header.prev())).max() {
        seen_behind = seen_behind.max(Some(later_last));
    }
    let header_lost = history.unreadable.iter().any(|n| *n > tail_number);
    let (last, next) = (end.last, end.last.next());
    if history.watermark >= next {
        let to = history.watermark.max(seen_behind.unwrap_or_default());
        report.hole = Some(IndexRange { from: next, to });
        findings.notes.push(format!(
            "entries {next}-{to} were synced and cannot be read: {}",
            end.scan.bad.unwrap_or("the log ends before them")
        ));
    } else if let (Some(seen), false) = (seen_behind, report.rebooted) {
        let to = seen.max(next);
        report.hole = Some(IndexRange { from: next, to });
        findings
            .notes
            .push(format!("entry {next} cannot be read although later ones can and the machine did not restart"));
    } else if seen_behind.is_some() || end.scan.bad.is_some() || header_lost {
        report.torn_tail_cut = true;
        findings.notes.push(format!(
            "the log was cut after entry {last}: what follows was never synced ({})",
            end.scan.bad.unwrap_or("later writes reached the disk before earlier ones")
        ));
    }
    out.cut = report.hole.is_some() || report.torn_tail_cut;
    let (before, behind): (Vec<u64>, Vec<u64>) = history.unreadable.iter().partition(|n| **n < tail_number);
    let behind = later.iter().flat_map(|r| r.segments.iter().map(|s| s.number)).chain(behind);
    if report.hole.is_some() {
        findings.put_aside.extend(behind);
    } else {
        findings.remove.extend(behind.map(names::segment));
    }
    findings.put_aside.extend(before);
    Ok(())
}

/// Either nothing was there, or it cannot be used.
fn begin_with_nothing<F>(
    out: &mut Recovered<F>,
    states: States,
    listing: &Listing<F>,
    history: &mut History<F>,
    findings: &mut Findings,
) {
    findings.remove.extend(states.0.iter().map(|(kept, _)| names::checkpoint(kept.number)));
    let from = history.runs.first().map_or(LogIndex(1), |r| r.header.first);
    let seen = history.runs.iter().map(Run::last).max().unwrap_or_default();
    if !history.runs.is_empty() || !history.unreadable.is_empty() || listing.epoch_lost || listing.vanished {
        out.report.hole = Some(IndexRange { from: LogIndex(1), to: history.watermark.max(seen).max(from) });
        findings.notes.push(
            "no usable state to begin the log with (checkpoint or segments damaged or missing): the log is empty"
                .to_string(),
        );
    }
    findings.put_aside.extend(history.runs.iter().flat_map(|r| r.segments.iter().map(|s| s.number)));
    findings.put_aside.extend(history.unreadable.iter().copied());
}

/// The entries that may be missing although they were acknowledged.
fn suspect<F>(out: &mut Recovered<F>, meta: &Meta, watermark: LogIndex, findings: &mut Findings) {
    let last = LogIndex(out.base.index.0 + out.slots.len() as u64);
    let report = &mut out.report;
    report.watermark = watermark;
    if let Some(hole) = report.hole {
        report.suspect = Some(hole.from.prev());
    } else if meta.process && report.rebooted && !meta.clean {
        report.suspect = Some(watermark.min(last));
        findings.notes.push(format!(
            "the machine restarted without a clean stop in durability mode {:?}: entries after {} may be missing",
            Durability::Process,
            watermark.min(last)
        ));
    }
    if let Some(before) = meta.suspect {
        report.suspect = Some(report.suspect.map_or(before, |now| now.min(before)));
    }
    if report.hole.is_none() {
        report.hole = meta.hole.map(|(from, to)| IndexRange { from, to });
    }
}

/// Forgets everything from `first` on.
fn cut_runs<F>(runs: &mut Vec<Run<F>>, first: LogIndex, remove: &mut Vec<String>) {
    while let Some(run) = runs.last_mut() {
        if run.header.first < first {
            let keep = (first.0 - run.header.first.0) as usize;
            run.slots.truncate(keep);
            while run.segments.len() > 1 && run.segments.last().is_some_and(|s| s.first >= first) {
                if let Some(segment) = run.segments.pop() {
                    remove.push(names::segment(segment.number));
                }
            }
            return;
        }
        for segment in &run.segments {
            remove.push(names::segment(segment.number));
        }
        runs.pop();
    }
}
