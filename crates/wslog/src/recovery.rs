//! What the files in the directory amount to. Reads only: `open` carries the decision out, `inspect` prints it.
//!
//! The rules, with their reasons, are in `docs/wslog-format.md`; in short: a record that cannot be read and lies above the durable
//! watermark, with nothing whole behind it, is a torn tail; so is one with whole records behind it when the page cache was lost
//! (unsynced pages reach the disk in any order). Everything else that is missing is a hole.

use std::collections::{BTreeMap, VecDeque};

use trireme_order::StoreError;
use trireme_types::{Base, Durability, LogIndex, Seqno, Term, Uuid};

use crate::checkpoint::{self, Kept};
use crate::format::{Meta, Origin, SegmentHeader};
use crate::index::{Segment, Slot};
use crate::names::{self, Name};
use crate::options::{IndexRange, OpenReport};
use crate::scan::{self, ScanEnd};
use crate::storage::{Storage, StorageFile};

/// The log as it can be used, and what has to be done to the files first.
pub struct Recovered<F> {
    pub report: OpenReport,
    pub base: Base,
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

/// A gapless sequence of entries.
struct Run<F> {
    header: SegmentHeader,
    segments: Vec<Segment<F>>,
    slots: VecDeque<Slot>,
    end: ScanEnd,
    capacity: u64,
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
}

/// Files by kind.
struct Listing<F> {
    segments: BTreeMap<u64, Option<(SegmentHeader, F, u64)>>,
    checkpoints: Vec<u64>,
    damaged: Vec<u64>,
    remove: Vec<String>,
    number_max: u64,
}

fn list<S: Storage>(storage: &S) -> Result<Listing<S::File>, StoreError> {
    let mut out = Listing {
        segments: BTreeMap::new(),
        checkpoints: Vec::new(),
        damaged: Vec::new(),
        remove: Vec::new(),
        number_max: 0,
    };
    for name in storage.list()? {
        match names::parse(&name) {
            Some(Name::Segment(number)) => {
                out.number_max = out.number_max.max(number);
                let Some(file) = storage.open(&name)? else { continue };
                let len = file.len()?;
                match scan::header(&file)? {
                    Some(h) if h.number == number => {
                        out.segments.insert(number, Some((h, file, len)));
                    }
                    // Trimmed, then recycled, and the rename was lost: not a segment any more.
                    Some(h) if h.number > number => out.remove.push(name),
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
            Some(Name::Temporary) => out.remove.push(name),
            Some(Name::Spare | Name::Meta | Name::Lock) | None => {}
        }
    }
    out.checkpoints.sort_unstable();
    out.damaged.sort_unstable();
    Ok(out)
}

/// Are there any files that only a log leaves behind?
pub fn any_log_files<S: Storage>(storage: &S) -> Result<bool, StoreError> {
    Ok(storage.list()?.iter().any(|n| matches!(names::parse(n), Some(Name::Segment(_) | Name::Checkpoint(_)))))
}

/// Reads and judges everything.
pub fn analyse<S: Storage>(storage: &S, meta: &Meta, boot_id: &str) -> Result<Recovered<S::File>, StoreError> {
    let rebooted = meta.boot_id.is_empty() || boot_id.is_empty() || meta.boot_id != boot_id;
    let mut listing = list(storage)?;
    let mut notes = Vec::new();
    let mut remove = std::mem::take(&mut listing.remove);
    let mut put_aside = Vec::new();

    // Where does the log begin? At the newest reset, or with the oldest segment.
    let reset = listing.segments.iter().rev().find_map(|(number, s)| match s {
        Some((h, ..)) if h.origin == Origin::Reset => Some(*number),
        _ => None,
    });
    if let Some(start) = reset {
        let rest = listing.segments.split_off(&start);
        for number in std::mem::replace(&mut listing.segments, rest).into_keys() {
            remove.push(names::segment(number));
        }
    }
    // The newest cut or reset that the metadata knows of. If its header is gone while older segments are there, nobody can say
    // what of them it made void.
    let epoch_lost = meta.epoch != 0
        && listing.segments.keys().next().is_some_and(|n| *n < meta.epoch)
        && listing.segments.get(&meta.epoch).is_none_or(Option::is_none);
    let mut unreadable: Vec<u64> = Vec::new();
    if epoch_lost {
        notes.push(format!(
            "the header of segment {} is unreadable or the file is missing: the older segments cannot be used",
            meta.epoch
        ));
        let rest = listing.segments.split_off(&meta.epoch);
        put_aside.extend(std::mem::replace(&mut listing.segments, rest).into_keys());
        unreadable.push(meta.epoch);
    }
    let vanished = meta.epoch != 0 && listing.segments.is_empty();

    // The watermark: from the metadata, lowered by later cuts, and from the segments themselves.
    let mut noted = meta.synced;
    let mut epoch = meta.epoch;
    let mut watermark = LogIndex::ZERO;
    let mut runs: Vec<Run<S::File>> = Vec::new();
    for (number, segment) in std::mem::take(&mut listing.segments) {
        let Some((header, file, len)) = segment else {
            notes.push(format!("segment {number} has no readable header"));
            unreadable.push(number);
            continue;
        };
        if header.origin != Origin::Continues {
            epoch = epoch.max(number);
            watermark = watermark.min(header.prev());
            if number > meta.epoch {
                noted = noted.min(header.prev());
            }
            cut_runs(&mut runs, header.first, &mut remove);
        }
        watermark = watermark.max(header.synced);
        let continues = runs.last().is_some_and(|run| {
            run.last() == header.prev()
                && run.history() == header.history
                && run.state_at(header.prev()) == Some((header.prev_term, header.prev_seqno))
        });
        if !continues {
            runs.push(Run {
                header,
                segments: Vec::new(),
                slots: VecDeque::new(),
                end: ScanEnd { end: 0, chain: 0, bad: None, watermark: LogIndex::ZERO },
                capacity: 0,
            });
        }
        let Some(run) = runs.last_mut() else { continue };
        run.end = scan::walk(&file, &header, |_, slot| run.slots.push_back(slot))?;
        run.capacity = len;
        watermark = watermark.max(run.end.watermark);
        run.segments.push(Segment { number, first: header.first, file, capacity: len });
    }
    watermark = watermark.max(noted);

    // The run to go on with: one for which there is a state to begin with. The oldest that loses nothing synced (what follows it
    // is unsynced debris), else the newest (what precedes it is damaged history).
    let mut checkpoints: Vec<(Kept, Base)> = Vec::new();
    for number in &listing.checkpoints {
        match checkpoint::read(storage, *number)? {
            Some(base) => checkpoints.push((Kept::new(*number, &base, None), base)),
            None => remove.push(names::checkpoint(*number)),
        }
    }
    checkpoints.sort_by_key(|(kept, _)| (kept.index, std::cmp::Reverse(kept.number)));
    let fits = |run: &Run<S::File>, kept: &Kept| {
        kept.history == run.history() && run.state_at(kept.index) == Some((kept.term, kept.seqno))
    };
    let usable = |run: &Run<S::File>| checkpoints.iter().any(|(kept, _)| fits(run, kept));
    let chosen =
        runs.iter().position(|run| usable(run) && run.last() >= watermark).or_else(|| runs.iter().rposition(usable));

    let mut report = OpenReport { unclean: !meta.clean, rebooted, ..OpenReport::default() };
    let mut out = Recovered {
        report: OpenReport::default(),
        base: Base::default(),
        kept: VecDeque::new(),
        segments: VecDeque::new(),
        slots: VecDeque::new(),
        end: 0,
        chain: 0,
        cut: false,
        remove: Vec::new(),
        put_aside: Vec::new(),
        damaged: listing.damaged,
        epoch,
        number_max: listing.number_max,
    };

    let last;
    if let Some(chosen) = chosen {
        let later = runs.split_off(chosen + 1);
        let Some(mut run) = runs.pop() else { return Err(StoreError("write-set log: recovery lost its place".into())) };
        // States to keep: the lowest is the base.
        for (kept, base) in checkpoints {
            let duplicate = out.kept.back().is_some_and(|k| k.index == kept.index);
            if !fits(&run, &kept) || duplicate {
                remove.push(names::checkpoint(kept.number));
                continue;
            }
            if out.kept.is_empty() {
                out.base = base;
            }
            out.kept.push_back(kept);
        }
        last = run.last();
        if let Some(earlier) = runs.first() {
            report.lost_history =
                Some(IndexRange { from: earlier.header.first, to: out.base.index.max(earlier.header.first) });
            notes
                .push("segments before the newest usable state are damaged: the history before it is lost".to_string());
        }
        for segment in runs.iter().flat_map(|r| &r.segments) {
            put_aside.push(segment.number);
        }
        // Segments and entries that end at or below the base are not part of the log any more.
        let below = (out.base.index.0 - run.header.prev().0) as usize;
        run.slots.drain(..below.min(run.slots.len()));
        let firsts: Vec<LogIndex> = run.segments.iter().map(|s| s.first).collect();
        for (at, segment) in run.segments.drain(..).enumerate() {
            if firsts.get(at + 1).is_some_and(|next| next.prev() <= out.base.index) {
                remove.push(names::segment(segment.number));
            } else {
                out.segments.push_back(segment);
            }
        }

        // The end: is it where the log ended?
        let mut seen_behind = None;
        let tail = out.segments.back().map(|s| (s.file.clone(), s.number));
        if let Some((file, number)) = &tail
            && let Some(behind) = scan::behind(file, *number, run.end.end)?
        {
            if later.is_empty() {
                watermark = watermark.max(behind.watermark);
            }
            seen_behind = Some(behind.last);
        }
        let tail_number = tail.map_or(0, |(_, number)| number);
        if let Some(later_last) = later.iter().map(|r| r.last().max(r.header.prev())).max() {
            seen_behind = seen_behind.max(Some(later_last));
        }
        let header_lost = unreadable.iter().any(|n| *n > tail_number);
        let next = last.next();
        if watermark >= next {
            let to = watermark.max(seen_behind.unwrap_or_default());
            report.hole = Some(IndexRange { from: next, to });
            notes.push(format!(
                "entries {next}-{to} were synced and cannot be read: {}",
                run.end.bad.unwrap_or("the log ends before them")
            ));
        } else if let (Some(seen), false) = (seen_behind, rebooted) {
            let to = seen.max(next);
            report.hole = Some(IndexRange { from: next, to });
            notes.push(format!("entry {next} cannot be read although later ones can and the machine did not restart"));
        } else if seen_behind.is_some() || run.end.bad.is_some() || header_lost {
            report.torn_tail_cut = true;
            notes.push(format!(
                "the log was cut after entry {last}: what follows was never synced ({})",
                run.end.bad.unwrap_or("later writes reached the disk before earlier ones")
            ));
        }
        out.cut = report.hole.is_some() || report.torn_tail_cut;
        let behind_us: Vec<u64> = later
            .iter()
            .flat_map(|r| r.segments.iter().map(|s| s.number))
            .chain(unreadable.iter().copied().filter(|n| *n > tail_number))
            .collect();
        if report.hole.is_some() {
            put_aside.extend(behind_us);
        } else {
            remove.extend(behind_us.into_iter().map(names::segment));
        }
        for number in unreadable.iter().filter(|n| **n < tail_number) {
            put_aside.push(*number);
        }
        out.slots = run.slots;
        out.end = run.end.end;
        out.chain = run.end.chain;
    } else {
        // Nothing to begin with. Either nothing was there, or it cannot be used.
        last = LogIndex::ZERO;
        remove.extend(listing.checkpoints.iter().map(|n| names::checkpoint(*n)));
        let from = runs.first().map_or(LogIndex(1), |r| r.header.first);
        let seen = runs.iter().map(Run::last).max().unwrap_or_default();
        if !runs.is_empty() || !unreadable.is_empty() || epoch_lost || vanished {
            report.hole = Some(IndexRange { from: LogIndex(1), to: watermark.max(seen).max(from) });
            notes.push(
                "no usable state to begin the log with (checkpoint or segments damaged or missing): the log is empty"
                    .to_string(),
            );
        }
        put_aside.extend(runs.iter().flat_map(|r| r.segments.iter().map(|s| s.number)));
        put_aside.extend(unreadable.iter().copied());
    }

    report.watermark = watermark;
    if let Some(hole) = report.hole {
        report.suspect = Some(hole.from.prev());
    } else if meta.process && rebooted && !meta.clean {
        report.suspect = Some(watermark.min(last));
        notes.push(format!(
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
    report.notes = notes;
    put_aside.sort_unstable();
    put_aside.dedup();
    put_aside.retain(|n| !remove.contains(&names::segment(*n)));
    out.report = report;
    out.remove = remove;
    out.put_aside = put_aside;
    Ok(out)
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
