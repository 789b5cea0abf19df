//! `gvwstate.dat`: the last primary view, kept so that all its members can re-form it after all of them went down.
//!
//! Written at every primary view, removed on a clean stop, left in place by a crash. Always replaced as a whole: temporary
//! file, sync, rename, sync of the directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use trireme_types::Uuid;

const NAME: &str = "gvwstate.dat";
const TEMPORARY: &str = "gvwstate.dat.tmp";
/// A view of this many bytes has far more members than a group can have.
const MAX_LEN: u64 = 1 << 20;

/// A stored view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedView {
    pub my_uuid: Uuid,
    pub view_uuid: Uuid,
    pub view_seqno: u64,
    pub bootstrap: bool,
    /// Members with their segments.
    pub members: Vec<(Uuid, u8)>,
}

/// The result of reading.
#[derive(Debug)]
pub enum Found {
    View(SavedView),
    /// Log [`crate::texts::view_file_missing`].
    Missing,
    /// To be treated as missing, with a warning.
    Broken(String),
}

impl SavedView {
    pub fn read(dir: &Path) -> Found {
        let path = dir.join(NAME);
        match fs::metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Found::Missing,
            Ok(m) if m.len() > MAX_LEN => return Found::Broken(format!("{} bytes", m.len())),
            Ok(_) | Err(_) => {}
        }
        match fs::read_to_string(&path) {
            Ok(text) => SavedView::parse(&text).map_or_else(|| Found::Broken("unexpected content".into()), Found::View),
            Err(e) => Found::Broken(e.to_string()),
        }
    }

    /// Replaces the file. On an error the old one is still whole.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let temporary = dir.join(TEMPORARY);
        let mut file = File::create(&temporary)?;
        file.write_all(self.print().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, dir.join(NAME))?;
        File::open(dir)?.sync_all()
    }

    /// Removes the file; its absence is no error.
    pub fn remove(dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(NAME)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The content of the file.
    pub fn print(&self) -> String {
        let mut out = format!(
            "my_uuid: {}\n#vwbeg\nview_id: 3 {} {}\nbootstrap: {}\n",
            self.my_uuid,
            self.view_uuid,
            self.view_seqno,
            u8::from(self.bootstrap)
        );
        for (uuid, segment) in &self.members {
            out += &format!("member: {uuid} {segment}\n");
        }
        out + "#vwend\n"
    }

    /// `None` when anything is missing or malformed. Unknown lines are skipped.
    pub fn parse(text: &str) -> Option<SavedView> {
        let (mut my_uuid, mut view, mut bootstrap, mut ended) = (None, None, None, false);
        let mut members = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["my_uuid:", uuid] => my_uuid = Some(Uuid::parse(uuid)?),
                ["view_id:", _kind, uuid, seqno] => view = Some((Uuid::parse(uuid)?, seqno.parse().ok()?)),
                ["bootstrap:", flag] => bootstrap = Some(*flag != "0"),
                ["member:", uuid, segment] => members.push((Uuid::parse(uuid)?, segment.parse().ok()?)),
                ["#vwend"] => ended = true,
                _ => {}
            }
        }
        let (view_uuid, view_seqno) = view?;
        (ended && !members.is_empty()).then_some(())?;
        Some(SavedView { my_uuid: my_uuid?, view_uuid, view_seqno, bootstrap: bootstrap?, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    const A: Uuid = Uuid([1; 16]);
    const B: Uuid = Uuid([2; 16]);

    fn view() -> SavedView {
        SavedView { my_uuid: A, view_uuid: B, view_seqno: 7, bootstrap: false, members: vec![(A, 0), (B, 3)] }
    }

    #[test]
    fn the_format_is_galeras() {
        let expect =
            format!("my_uuid: {A}\n#vwbeg\nview_id: 3 {B} 7\nbootstrap: 0\nmember: {A} 0\nmember: {B} 3\n#vwend\n");
        assert_eq!(view().print(), expect);
    }

    #[test]
    fn written_read_and_removed() {
        let dir = TestDir::new("gvwstate");
        assert!(matches!(SavedView::read(dir.path()), Found::Missing));
        view().write(dir.path()).unwrap();
        assert!(!dir.path().join(TEMPORARY).exists());
        match SavedView::read(dir.path()) {
            Found::View(found) => assert_eq!(found, view()),
            other => panic!("{other:?}"),
        }
        SavedView::remove(dir.path()).unwrap();
        SavedView::remove(dir.path()).unwrap();
        assert!(matches!(SavedView::read(dir.path()), Found::Missing));
    }

    #[test]
    fn a_broken_file_is_told_from_a_missing_one() {
        let dir = TestDir::new("gvwstate-broken");
        let whole = view().print();
        let cut = &whole[..whole.len() - 8];
        for text in
            [cut, "", "my_uuid: x\n", &whole.replace("view_id: 3", "view_id:"), &whole.replace(" 7\n", " seven\n")]
        {
            fs::write(dir.path().join(NAME), text).unwrap();
            assert!(matches!(SavedView::read(dir.path()), Found::Broken(_)), "{text:?}");
        }
    }
}
