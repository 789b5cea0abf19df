//! `grastate.dat`: the position of the local data, in the form that operators, scripts and test suites read and edit.
//!
//! ```text
//! # GALERA saved state
//! version: 2.1
//! uuid:    <36 characters>
//! seqno:   <decimal>
//! safe_to_bootstrap: <0|1>
//! ```
//!
//! The file is always written in place and never replaced: its inode and owner stay. It is small enough for one sector, so a
//! write is not torn in practice; a torn one would parse to an unknown position, which is the safe reading. Recovery trusts
//! the write-set log; this file may be rewritten by others at any time while the server is down.
//!
//! While a statement in total order isolation or a state transfer changes data that a crash would leave half done, the file
//! carries the *unsafe* mark: zero UUID, seqno -1. Marks are counted. For a statement a comment names the history, in case no member
//! has whole data after a crash. *Corrupt* has no such comment and stays until a new state has been received.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use trireme_types::{Seqno, Uuid};

/// Longest content. A longer file is rewritten short.
const MAX_LEN: usize = 256;

/// The content of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedState {
    /// Nil: no state.
    pub uuid: Uuid,
    /// `None` where the file says -1: unknown.
    pub seqno: Option<Seqno>,
    pub safe_to_bootstrap: bool,
    /// The history in which a statement was being executed when the file was last written; nil: none was. Kept in a comment, so
    /// that to everybody else the file says "no state", as Galera's does.
    pub unfinished: Uuid,
    /// The position that the storage engine had on disk when the node stopped. Kept in a comment, as above.
    pub on_disk: Option<(Uuid, Seqno)>,
}

/// Followed by the history.
const UNFINISHED: &str = "# unfinished statement in ";
/// Followed by a position.
const ON_DISK: &str = "# on disk ";

impl SavedState {
    /// The meaning of a missing file.
    pub const NONE: SavedState =
        SavedState { uuid: Uuid::NIL, seqno: None, safe_to_bootstrap: true, unfinished: Uuid::NIL, on_disk: None };

    /// Reads the content of a file. Unknown lines are skipped, missing ones leave their default, and a last line without its
    /// line end does not count: it may be half written.
    pub fn parse(content: &str) -> SavedState {
        let mut state = SavedState::NONE;
        for line in content.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            if let Some(history) = line.strip_prefix(UNFINISHED) {
                state.unfinished = Uuid::parse(history.trim()).unwrap_or(Uuid::NIL);
            }
            if let Some(position) = line.strip_prefix(ON_DISK) {
                state.on_disk = parse_position(position.trim());
            }
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match key.trim() {
                "uuid" => state.uuid = Uuid::parse(value).unwrap_or(Uuid::NIL),
                "seqno" => state.seqno = value.parse::<u64>().ok().and_then(Seqno::from_outside),
                "safe_to_bootstrap" => state.safe_to_bootstrap = value.parse() != Ok(0),
                _ => {}
            }
        }
        state
    }

    /// The content of the file, as it is written.
    pub fn print(&self) -> String {
        let seqno = self.seqno.map_or("-1".to_owned(), |s| s.to_string());
        let mut out = format!(
            "# GALERA saved state\nversion: 2.1\nuuid:    {}\nseqno:   {seqno}\nsafe_to_bootstrap: {}\n",
            self.uuid,
            u8::from(self.safe_to_bootstrap)
        );
        if !self.unfinished.is_nil() {
            out += &format!("{UNFINISHED}{}\n", self.unfinished);
        }
        if let Some((history, seqno)) = self.on_disk {
            out += &format!("{ON_DISK}{history}:{seqno}\n");
        }
        out
    }
}

fn parse_position(text: &str) -> Option<(Uuid, Seqno)> {
    let (history, seqno) = text.split_once(':')?;
    Some((Uuid::parse(history)?, Seqno::from_outside(seqno.parse::<u64>().ok()?)?))
}

/// The open state file.
#[derive(Debug)]
pub struct StateFile {
    /// Empty: nothing is ever written.
    path: PathBuf,
    /// Opened at the first write: a start that fails before must leave no file behind.
    file: Option<File>,
    /// The content of the file if there were no marks.
    state: SavedState,
    /// Open marks of [`StateFile::mark_unsafe`].
    unsafe_marks: u32,
    corrupt: bool,
    /// The data are being replaced.
    receiving: bool,
    /// The state that was last written, to skip equal writes, and its length, to pad shorter ones.
    written: Option<SavedState>,
    len: usize,
}

impl StateFile {
    /// Reads the file in that directory; changes nothing. The flag says whether there was one: if not, the caller warns with
    /// [`crate::texts::state_file_missing`].
    ///
    /// **Errors**: reading failed for another reason than the file's absence.
    pub fn open(dir: &Path) -> io::Result<(StateFile, bool)> {
        let path = dir.join("grastate.dat");
        let mut content = Vec::new();
        let found = match File::open(&path) {
            Ok(file) => {
                // Bounded, because the file may be anything.
                file.take(64 << 10).read_to_end(&mut content)?;
                true
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(e),
        };
        let state = SavedState::parse(&String::from_utf8_lossy(&content));
        let len = content.len();
        let file = StateFile {
            path,
            file: None,
            state,
            unsafe_marks: 0,
            corrupt: false,
            receiving: false,
            written: None,
            len,
        };
        Ok((file, found))
    }

    /// For a member without data: there is nothing to say about them, and no file.
    pub fn none() -> StateFile {
        StateFile {
            path: PathBuf::new(),
            file: None,
            state: SavedState::NONE,
            unsafe_marks: 0,
            corrupt: false,
            receiving: false,
            written: None,
            len: 0,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The present state, marks aside.
    pub fn state(&self) -> SavedState {
        self.state
    }

    /// Saves a position. While marked unsafe or corrupt the position is remembered but the file goes on saying "none".
    pub fn set(&mut self, uuid: Uuid, seqno: Option<Seqno>) -> io::Result<()> {
        (self.state.uuid, self.state.seqno) = (uuid, seqno);
        (self.state.unfinished, self.state.on_disk) = (Uuid::NIL, None);
        self.write()
    }

    /// Saves a position that the storage engine has on disk. Marks count as with [`StateFile::set`].
    pub fn set_on_disk(&mut self, uuid: Uuid, seqno: Seqno) -> io::Result<()> {
        (self.state.uuid, self.state.seqno) = (uuid, Some(seqno));
        (self.state.unfinished, self.state.on_disk) = (Uuid::NIL, Some((uuid, seqno)));
        self.write()
    }

    /// Saves whether this node may start the cluster.
    pub fn set_safe_to_bootstrap(&mut self, safe: bool) -> io::Result<()> {
        self.state.safe_to_bootstrap = safe;
        self.write()
    }

    /// From here on a crash leaves data that only a full copy repairs. Counted.
    pub fn mark_unsafe(&mut self) -> io::Result<()> {
        self.unsafe_marks += 1;
        self.write()
    }

    /// Takes one mark back; with the last one the UUID returns, the seqno stays unknown. One too many does nothing.
    pub fn mark_safe(&mut self) -> io::Result<()> {
        self.unsafe_marks = self.unsafe_marks.saturating_sub(1);
        self.write()
    }

    /// The data are about to be replaced: a crash leaves nothing of use. Stays until [`StateFile::restore`] or
    /// [`StateFile::unmark_receiving`].
    pub fn mark_receiving(&mut self) -> io::Result<()> {
        self.receiving = true;
        self.write()
    }

    /// Nothing was replaced, and nothing will be.
    pub fn unmark_receiving(&mut self) -> io::Result<()> {
        self.receiving = false;
        self.write()
    }

    /// The local data is not what the group has. Stays until [`StateFile::restore`].
    pub fn mark_corrupt(&mut self) -> io::Result<()> {
        self.corrupt = true;
        self.write()
    }

    pub fn is_corrupt(&self) -> bool {
        self.corrupt
    }

    /// A new state was received: ends "corrupt" and all unsafe marks.
    pub fn restore(&mut self, uuid: Uuid, seqno: Option<Seqno>) -> io::Result<()> {
        self.corrupt = false;
        self.receiving = false;
        self.unsafe_marks = 0;
        self.set(uuid, seqno)
    }

    /// Writes the file once more, so that it is known that this works: nothing can be undone any more when a mark fails that comes later.
    /// With an open mark the next one needs no write, and neither does this.
    pub fn write_again(&mut self) -> io::Result<()> {
        if self.unsafe_marks == 0 {
            self.written = None;
        }
        self.write()
    }

    /// An editor saves a file by putting another one in its place: what is written to the one that is open here, nobody would ever read.
    fn look_at_path(&mut self) {
        let Some(file) = &self.file else { return };
        let place = |metadata: io::Result<Metadata>| metadata.ok().map(|m| (m.dev(), m.ino(), m.len()));
        let (open, there) = (place(file.metadata()), place(std::fs::metadata(&self.path)));
        if open.is_none() || open != there {
            (self.file, self.written) = (None, None);
            self.len = there.map_or(0, |(_, _, len)| len as usize);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let state = if self.corrupt || self.receiving {
            SavedState {
                uuid: Uuid::NIL,
                seqno: None,
                unfinished: Uuid::NIL,
                on_disk: None,
                // There is nothing to begin with.
                safe_to_bootstrap: false,
            }
        } else if self.unsafe_marks > 0 {
            SavedState { uuid: Uuid::NIL, seqno: None, unfinished: self.state.uuid, on_disk: None, ..self.state }
        } else {
            self.state
        };
        if self.path.as_os_str().is_empty() {
            return Ok(());
        }
        self.look_at_path();
        if self.written == Some(state) {
            return Ok(());
        }
        // After a failed write nothing is known about the content, so the next call must write again.
        self.written = None;
        let mut content = state.print().into_bytes();
        let shorten = self.len > MAX_LEN;
        let target = if shorten { content.len() } else { self.len.max(content.len()) };
        // Old text behind a shorter new one would be read: blank it out, in a line of its own.
        if content.len() < target {
            content.resize(target - 1, b' ');
            content.push(b'\n');
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().write(true).create(true).truncate(false).open(&self.path)?),
        };
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&content)?;
        if shorten {
            file.set_len(content.len() as u64)?;
        }
        file.sync_data()?;
        self.len = content.len();
        self.written = Some(state);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    const U: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const ZERO: &str = "00000000-0000-0000-0000-000000000000";

    fn uuid() -> Uuid {
        Uuid::parse(U).unwrap()
    }
    fn content(dir: &TestDir) -> String {
        std::fs::read_to_string(dir.path().join("grastate.dat")).unwrap()
    }
    fn open(dir: &TestDir) -> StateFile {
        StateFile::open(dir.path()).unwrap().0
    }
    fn text(uuid: &str, seqno: &str, safe: u8) -> String {
        format!("# GALERA saved state\nversion: 2.1\nuuid:    {uuid}\nseqno:   {seqno}\nsafe_to_bootstrap: {safe}\n")
    }

    #[test]
    fn a_missing_file_means_no_state_and_is_not_created_by_opening() {
        let dir = TestDir::new("grastate-missing");
        let (file, found) = StateFile::open(dir.path()).unwrap();
        assert!(!found);
        assert_eq!(file.state(), SavedState::NONE);
        assert!(!file.path().exists());
    }

    #[test]
    fn what_an_editor_has_put_in_its_place_is_written_to() {
        let dir = TestDir::new("grastate-edited");
        let path = dir.path().join("grastate.dat");
        let mut file = open(&dir);
        file.set(uuid(), None).unwrap();
        let edited = dir.path().join("grastate.dat.new");
        std::fs::write(&edited, format!("{}# a note of the editor\n", text(U, "-1", 1))).unwrap();
        std::fs::rename(&edited, &path).unwrap();
        file.mark_unsafe().unwrap();
        assert_eq!(open(&dir).state().uuid, Uuid::NIL);
        assert_eq!(open(&dir).state().unfinished, uuid());
        std::fs::remove_file(&path).unwrap();
        file.mark_safe().unwrap();
        assert_eq!(content(&dir), text(U, "-1", 1));
    }

    #[test]
    fn the_format_is_exact() {
        let dir = TestDir::new("grastate-format");
        let mut file = open(&dir);
        file.set(uuid(), Some(Seqno(42))).unwrap();
        assert_eq!(content(&dir), text(U, "42", 1));
        let (again, found) = StateFile::open(dir.path()).unwrap();
        assert!(found);
        assert_eq!(again.state(), file.state());
    }

    #[test]
    fn what_was_on_disk_is_a_comment_for_everybody_else() {
        let dir = TestDir::new("grastate-on-disk");
        let mut file = open(&dir);
        file.set_on_disk(uuid(), Seqno(42)).unwrap();
        assert_eq!(content(&dir), format!("{}# on disk {U}:42\n", text(U, "42", 1)));
        assert_eq!(open(&dir).state().on_disk, Some((uuid(), Seqno(42))));
        file.set_safe_to_bootstrap(false).unwrap();
        assert_eq!(open(&dir).state().on_disk, Some((uuid(), Seqno(42))), "it is about the data");
        file.set(uuid(), Some(Seqno(42))).unwrap();
        assert_eq!(open(&dir).state().on_disk, None);
        for broken in ["# on disk", "# on disk x", "# on disk 7", "# on disk x:7"] {
            assert_eq!(SavedState::parse(&format!("{broken}\n")).on_disk, None, "{broken}");
        }
        assert_eq!(SavedState::parse(&format!("# on disk {U}:-1\n")).on_disk, None);
    }

    #[test]
    fn a_shorter_content_is_padded_in_the_same_file() {
        use std::os::unix::fs::MetadataExt;
        let dir = TestDir::new("grastate-pad");
        let mut file = open(&dir);
        file.set(uuid(), Some(Seqno(123_456))).unwrap();
        let before = std::fs::metadata(file.path()).unwrap();
        file.set(uuid(), None).unwrap();
        let after = std::fs::metadata(file.path()).unwrap();
        assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
        assert!(content(&dir).starts_with(&text(U, "-1", 1)));
        assert_eq!(open(&dir).state().seqno, None);
        assert_eq!(content(&dir).matches("safe_to_bootstrap").count(), 1);
        assert!(content(&dir).ends_with('\n'));
    }

    #[test]
    fn edits_by_others_are_read() {
        let dir = TestDir::new("grastate-edit");
        let write = |text: &str| std::fs::write(dir.path().join("grastate.dat"), text).unwrap();
        write(&format!("# comment: x\nfuture: 1\n\n uuid : {U}\nseqno:7\n"));
        assert_eq!(open(&dir).state(), SavedState { uuid: uuid(), seqno: Some(Seqno(7)), ..SavedState::NONE });
        write(&format!("uuid: {U}\nseqno: 7\nsafe_to_bootstrap: 0"));
        assert!(open(&dir).state().safe_to_bootstrap, "a line without its end does not count");
        write(&format!("uuid: {U}\nseqno: x\nsafe_to_bootstrap: 0\n"));
        assert_eq!(open(&dir).state(), SavedState { uuid: uuid(), safe_to_bootstrap: false, ..SavedState::NONE });
        write("\u{0}\u{1}garbage\nuuid: nonsense\n");
        assert_eq!(open(&dir).state(), SavedState::NONE);
    }

    #[test]
    fn a_long_file_is_rewritten_short() {
        let dir = TestDir::new("grastate-long");
        std::fs::write(dir.path().join("grastate.dat"), format!("{}{}", text(U, "1", 0), "# padding\n".repeat(40)))
            .unwrap();
        let mut file = open(&dir);
        file.set(uuid(), Some(Seqno(2))).unwrap();
        assert_eq!(content(&dir), text(U, "2", 0));
    }

    #[test]
    fn unsafe_marks_are_counted_and_the_last_one_restores_the_uuid() {
        let dir = TestDir::new("grastate-unsafe");
        let mut file = open(&dir);
        file.set(uuid(), None).unwrap();
        file.mark_unsafe().unwrap();
        file.mark_unsafe().unwrap();
        assert!(content(&dir).contains(ZERO));
        file.mark_safe().unwrap();
        assert!(content(&dir).contains(ZERO));
        file.mark_safe().unwrap();
        // Padded to the length with the mark.
        assert_eq!(content(&dir).trim_end(), text(U, "-1", 1).trim_end());
        file.mark_safe().unwrap();
        file.mark_unsafe().unwrap();
        assert!(content(&dir).contains(ZERO), "one unmark too many is not saved up");
    }

    #[test]
    fn an_unfinished_statement_is_told_from_replaced_data() {
        let dir = TestDir::new("grastate-unfinished");
        let mut file = open(&dir);
        file.set(uuid(), None).unwrap();
        file.mark_unsafe().unwrap();
        let cut_off = open(&dir).state();
        assert_eq!(cut_off, SavedState { unfinished: uuid(), ..SavedState::NONE });
        // It is remembered until there is a state again.
        let mut again = open(&dir);
        again.set_safe_to_bootstrap(false).unwrap();
        assert_eq!(open(&dir).state().unfinished, uuid());
        again.mark_receiving().unwrap();
        assert_eq!(open(&dir).state(), SavedState { safe_to_bootstrap: false, ..SavedState::NONE });
        again.restore(uuid(), None).unwrap();
        assert_eq!(open(&dir).state(), SavedState { uuid: uuid(), safe_to_bootstrap: false, ..SavedState::NONE });
        file.mark_safe().unwrap();
        assert!(open(&dir).state().unfinished.is_nil());
    }

    #[test]
    fn corrupt_stays_until_a_new_state_arrives() {
        let dir = TestDir::new("grastate-corrupt");
        let mut file = open(&dir);
        file.set(uuid(), None).unwrap();
        file.mark_corrupt().unwrap();
        file.set(uuid(), Some(Seqno(9))).unwrap();
        file.set_safe_to_bootstrap(false).unwrap();
        assert!(content(&dir).starts_with(&text(ZERO, "-1", 0)));
        file.restore(uuid(), Some(Seqno(10))).unwrap();
        assert_eq!(
            SavedState::parse(&content(&dir)),
            SavedState { uuid: uuid(), seqno: Some(Seqno(10)), safe_to_bootstrap: false, ..SavedState::NONE }
        );
    }

    /// The last write went well, and the next one will not: who asks before a mark is needed hears of it.
    #[test]
    fn that_nothing_can_be_written_is_known_before_a_mark() {
        let dir = TestDir::new("grastate-probe");
        let mut file = open(&dir);
        file.set(uuid(), None).unwrap();
        file.write_again().unwrap();
        std::fs::remove_file(file.path()).unwrap();
        std::os::unix::fs::symlink("/dev/full", file.path()).unwrap();
        assert!(file.write_again().is_err());
        assert!(file.mark_unsafe().is_err());
    }

    #[test]
    fn a_failed_write_is_reported_and_the_next_one_tries_again() {
        let dir = TestDir::new("grastate-fail");
        let mut file = open(&dir);
        let away = dir.path().with_extension("away");
        std::fs::rename(dir.path(), &away).unwrap();
        assert!(file.set(uuid(), Some(Seqno(1))).is_err());
        assert!(file.write_again().is_err());
        std::fs::rename(&away, dir.path()).unwrap();
        file.write_again().unwrap();
        assert_eq!(content(&dir), text(U, "1", 1));
    }
}
