//! The state files and the position that they, or the server, vouch for.

use std::io;
use std::path::PathBuf;

use trireme_replicator::position::Stop;
use trireme_surface::grastate::StateFile;
use trireme_surface::gvwstate::{Found, SavedView};
use trireme_surface::texts;
use trireme_types::{Member, Seqno, Uuid, View};

use crate::settings::Settings;
use crate::{InitArgs, Level, Server};

/// `grastate.dat` and `gvwstate.dat` with their life cycle.
pub struct Saved {
    /// `grastate.dat`, as it was written last.
    file: StateFile,
    /// Where `gvwstate.dat` lies; `None` with `pc.recovery=no`.
    view_dir: Option<PathBuf>,
    /// Where the data are, while no connection moves them: from the start, or a stop, to `running`. Dropped by every doubt.
    position: Option<(Uuid, Seqno)>,
    /// The position that the server was started with (`--wsrep-start-position`).
    given: Option<(Uuid, Seqno)>,
    /// The position that the storage engine had on disk at the last stop, if that was one.
    on_disk: Option<(Uuid, Seqno)>,
    /// The server has its state and the file says "running".
    live: bool,
    /// A full copy is on its way: from `receiving` to `running`, or to its refusal.
    receiving: bool,
    /// There was a state file at start.
    found: bool,
    /// `gvwstate.dat` is of this process: a clean stop removes it.
    view_written: bool,
    /// How many statements have ended, and of how many of them, the oldest, the effects are on disk. The file keeps the marks of the others.
    ended: u64,
    synced: u64,
    /// A write that failed, for the log.
    trouble: Option<String>,
}

/// `grastate.dat` is there, and nobody knows what is in it.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read: {error}; check what it is and its permissions, or move it away for a full copy", file.display())]
pub struct StateFileError {
    file: PathBuf,
    error: io::Error,
}

impl Saved {
    pub fn open(args: &InitArgs, settings: &Settings, server: &dyn Server) -> Result<Saved, StateFileError> {
        let dir = args.data_dir();
        let (file, found) = match args.arbitrator {
            Some(_) => (StateFile::none(), true),
            None => StateFile::open(dir).map_err(|error| StateFileError { file: dir.join("grastate.dat"), error })?,
        };
        if !found {
            server.log(Level::Warn, &texts::state_file_missing(file.path()));
        }
        let state = file.state();
        if args.arbitrator.is_none() {
            server.log(Level::Info, &texts::found_saved_state(state.uuid, state.seqno, state.safe_to_bootstrap));
        }
        let own = state.seqno.filter(|_| !state.uuid.is_nil()).map(|s| (state.uuid, s));
        let given = args.position.filter(|g| !g.history.is_nil()).and_then(|g| g.seqno.map(|s| (g.history, s)));
        // The position that the server read from its engine wins: it is where the data are (contract 3.8). But never a
        // position of a history that the file calls unsafe: a half-done DDL or a broken transfer leaves no usable data.
        let position = match (own, given) {
            (_, Some(given)) if state.uuid == given.0 || state.uuid.is_nil() && !found => Some(given),
            (Some(own), _) => Some(own),
            (None, _) => None,
        };
        if own.is_some() && given.is_some() && own != given {
            server.log(Level::Warn, texts::INITIAL_POSITION_KEPT);
        }
        let view_dir = settings.with(|o| o.bool("pc.recovery").then(|| PathBuf::from(o.text("base_dir"))));
        if let Some(dir) = &view_dir {
            match SavedView::read(dir) {
                Found::View(_) => {}
                Found::Missing if args.arbitrator.is_some() => {}
                Found::Missing => server.log(Level::Warn, &texts::view_file_missing(&dir.join("gvwstate.dat"))),
                Found::Broken(why) => server.log(Level::Warn, &format!("ignoring gvwstate.dat: {why}")),
            }
        }
        Ok(Saved {
            file,
            view_dir,
            position,
            given,
            on_disk: state.on_disk,
            live: false,
            receiving: false,
            found,
            view_written: false,
            ended: 0,
            synced: 0,
            trouble: None,
        })
    }

    /// The state file was removed and nobody else vouches for a position: to Galera's users that is how a bootstrap is
    /// forced, as the beginning of a new history.
    pub fn disowned(&self) -> bool {
        !self.found && self.position.is_none()
    }

    /// There is a log of this history here. Somebody who removed the state file beside it wants a full copy, or a new history: no position on
    /// the command line, which the server's unit always gives, stands against that.
    pub fn note_log(&mut self, history: Uuid) {
        if !self.found && self.given.is_some_and(|(of, _)| of == history) {
            (self.position, self.given) = (None, None);
        }
    }

    /// The last stop was none: a position that the file names may be older or newer than what the engine recovers to (it is
    /// written while a read lock holds everything up, and edited by people).
    pub fn doubt(&mut self) {
        self.on_disk = None;
        if self.position != self.given {
            self.position = None;
        }
    }

    /// The history in which a crash cut a statement off, nil if none.
    pub fn unfinished(&self) -> Uuid {
        self.file.state().unfinished
    }

    pub fn given(&self) -> Option<(Uuid, Seqno)> {
        self.given
    }

    /// Did the storage engine have the position on disk when the node stopped?
    pub fn is_on_disk(&self) -> bool {
        self.position.is_some() && self.position == self.on_disk
    }

    /// Where the server's data are, as far as the server or the state file say.
    pub fn position(&self) -> Option<(Uuid, Seqno)> {
        self.position
    }

    pub fn set_position(&mut self, position: Option<(Uuid, Seqno)>) {
        self.position = position;
    }

    /// The data were left half changed, or are not the group's.
    pub fn is_damaged(&self) -> bool {
        self.receiving || self.file.is_corrupt()
    }

    /// The history that the file names, also when the seqno is not known.
    pub fn history(&self) -> Uuid {
        self.file.state().uuid
    }

    pub fn safe_to_bootstrap(&self) -> bool {
        self.file.state().safe_to_bootstrap
    }

    pub fn unsafe_reason(&self) -> String {
        texts::unsafe_to_bootstrap(self.file.path())
    }

    /// Was it written?
    fn note<T>(&mut self, result: std::io::Result<T>) -> bool {
        let written = result.is_ok();
        if let Err(e) = result {
            self.trouble = Some(format!("a state file could not be written: {e}"));
        }
        written
    }

    /// The first failure since the last call.
    pub fn take_trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// `has_data`: the server here does not wait for its first ones.
    pub fn on_view(&mut self, history: Uuid, view: &View, me: &Member, has_data: bool) {
        // Arbitrators have nothing that a server could lack.
        let safe = has_data && view.members.iter().filter(|m| !m.kind.is_arbitrator()).count() == 1;
        let result = self.file.set_safe_to_bootstrap(safe);
        self.note(result);
        if let Some(dir) = self.view_dir.clone() {
            let view = SavedView {
                my_uuid: me.uuid(),
                view_uuid: view.members.first().map_or(history, Member::uuid),
                view_seqno: view.number,
                bootstrap: false,
                members: view.members.iter().map(|m| (m.uuid(), m.segment)).collect(),
            };
            self.view_written = true;
            let result = view.write(&dir);
            self.note(result);
        }
    }

    /// The server has its state: from here on only a clean stop knows the position.
    pub fn running(&mut self, history: Uuid) {
        self.live = true;
        self.receiving = false;
        self.synced = self.ended;
        self.position = None;
        self.on_disk = None;
        let result = self.file.restore(history, None);
        self.note(result);
    }

    /// The empty data are the beginning of `history`: durable before the log says so, or a crash in between would leave a log whose
    /// beginning nobody has.
    pub fn found(&mut self, history: Uuid) {
        self.position = Some((history, Seqno::ZERO));
        let result = self.file.set(history, Some(Seqno::ZERO));
        self.note(result);
    }

    /// Was there never any data here, as far as the state file knows?
    pub fn is_blank(&self) -> bool {
        match self.position {
            None => self.history().is_nil(),
            Some((_, seqno)) => seqno == Seqno::ZERO,
        }
    }

    /// A full copy is about to replace the data. False: a crash in it would not be noticed, so it must not begin.
    #[must_use]
    pub fn receiving(&mut self) -> bool {
        self.receiving = true;
        let result = self.file.mark_receiving();
        self.note(result)
    }

    /// The full copy was refused: the data are as they were.
    pub fn refused(&mut self) {
        self.receiving = false;
        let result = self.file.unmark_receiving();
        self.note(result);
    }

    /// False: it is not on disk, and the next life takes the data for good.
    pub fn corrupt(&mut self) -> bool {
        self.position = None;
        let result = self.file.mark_corrupt();
        self.note(result)
    }

    /// A statement whose half could not be undone begins. False: a crash in it would not be noticed, so it must not begin. Then the mark
    /// counts as not set.
    #[must_use]
    pub fn begin_unsafe(&mut self) -> bool {
        let result = self.file.mark_unsafe();
        let marked = self.note(result);
        if !marked {
            self.end_unsafe();
        }
        marked
    }

    /// Tries it. A statement that is about to be ordered may be refused yet; once it is ordered it cannot.
    pub fn is_writable(&mut self) -> bool {
        let result = self.file.write_again();
        self.note(result)
    }

    fn end_unsafe(&mut self) {
        let result = self.file.mark_safe();
        self.note(result);
    }

    /// A statement has ended. Its mark stays until its effect is on disk ([`end_synced`](Self::end_synced)).
    pub fn end_statement(&mut self) {
        self.ended += 1;
    }

    /// How many have ended.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Have some ended whose effects are not known to be on disk?
    pub fn owes_sync(&self) -> bool {
        self.synced < self.ended
    }

    /// The effects of the first `count` that ended are on disk.
    pub fn end_synced(&mut self, count: u64) {
        while self.synced < count {
            self.synced += 1;
            self.end_unsafe();
        }
    }

    pub fn paused(&mut self, history: Uuid, at: Seqno) {
        if self.live {
            let result = self.file.set(history, Some(at));
            self.note(result);
        }
    }

    pub fn resumed(&mut self, history: Uuid) {
        if self.live {
            let result = self.file.set(history, None);
            self.note(result);
        }
    }

    /// Has the server a state of whose position the file says nothing?
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Left the group in order. `None`: with data that are not the group's, or without its state.
    pub fn stopped(&mut self, history: Uuid, stop: Option<Stop>) {
        if let Some(stop) = stop {
            let (position, result) = match stop {
                Stop::OnDisk(seqno) => (Some(seqno), self.file.set_on_disk(history, seqno)),
                Stop::Claimed(seqno) => (Some(seqno), self.file.set(history, Some(seqno))),
                Stop::Unknown => (None, self.file.set(history, None)),
            };
            self.position = position.map(|seqno| (history, seqno));
            self.on_disk = self.file.state().on_disk;
            self.note(result);
        }
        self.live = false;
        if let Some(dir) = self.view_dir.clone().filter(|_| std::mem::take(&mut self.view_written)) {
            let result = SavedView::remove(&dir);
            self.note(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_go_with_a_sync_that_began_after_their_statements_had_ended() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-saved-").unwrap();
        let mut saved = Saved {
            file: StateFile::open(&dir).unwrap().0,
            view_dir: None,
            position: None,
            given: None,
            on_disk: None,
            live: false,
            receiving: false,
            found: false,
            view_written: false,
            ended: 0,
            synced: 0,
            trouble: None,
        };
        let history = Uuid([1; 16]);
        saved.running(history);
        let one_more = |saved: &mut Saved| {
            assert!(saved.begin_unsafe());
            saved.end_statement();
            saved.ended()
        };
        let [_, failed, covered] = [(); 3].map(|()| one_more(&mut saved));
        // While the third is synced, another one ends.
        let last = one_more(&mut saved);
        saved.end_synced(covered);
        let unfinished = || StateFile::open(&dir).unwrap().0.state().unfinished;
        assert_eq!((saved.owes_sync(), unfinished()), (true, history));
        // A sync that began long before says nothing of it.
        saved.end_synced(failed);
        assert_eq!((saved.owes_sync(), unfinished()), (true, history));
        saved.end_synced(last);
        assert_eq!((saved.owes_sync(), unfinished()), (false, Uuid::NIL));
        assert!(saved.begin_unsafe());
        saved.end_synced(last);
        assert_eq!((saved.owes_sync(), unfinished()), (false, history), "that one has not ended");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
