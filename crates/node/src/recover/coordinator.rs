//! The server's log of two-phase commits, `tc.log`, as a kill leaves it that comes while it is made: empty, or all zeros. It says nothing
//! then, and no server starts with it ("Can't init tc log") until somebody removes it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

const FILE_NAME: &str = "tc.log";

/// Removes it if it was never written. Only while no server has it open. Returns whether there was one to remove.
///
/// **Errors:** it cannot be read, or not be removed.
pub fn remove_unwritten(data_dir: &Path) -> io::Result<bool> {
    let path = data_dir.join(FILE_NAME);
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    // A written one begins with a mark, so one look tells.
    let mut block = [0; 4096];
    loop {
        match file.read(&mut block)? {
            0 => break,
            read if block[..read].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
    fs::remove_file(&path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_never_written_is_removed() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-coordinator-").unwrap();
        let path = dir.join(FILE_NAME);
        assert!(!remove_unwritten(&dir).unwrap(), "there is none");
        for (content, removed) in [(vec![], true), (vec![0; 24_576], true), (b"\xfe\x23\x05\x74\x02".to_vec(), false)] {
            fs::write(&path, content).unwrap();
            assert_eq!((remove_unwritten(&dir).unwrap(), path.exists()), (removed, !removed));
        }
        let mut late = vec![0; 24_576];
        late[20_000] = 1;
        fs::write(&path, late).unwrap();
        assert!(!remove_unwritten(&dir).unwrap());
        fs::remove_dir_all(&dir).unwrap();
    }
}
