//! The server's log of two-phase commits, `tc.log`, as a death leaves it that comes while it is made: empty, all zeros, or, after a loss of power,
//! its first page alone. It says nothing then, and no server starts with it ("Can't init tc log") until somebody removes it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

const FILE_NAME: &str = "tc.log";
/// With fewer pages the server takes it for damaged.
const PAGES_MIN: u64 = 3;
/// The mark, and the count of engines.
const HEAD: usize = 5;

fn page_size() -> u64 {
    // SAFETY: no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Removes it if it was never written. Only while no server has it open. Returns whether there was one to remove.
///
/// **Errors:** it cannot be read, or not be removed.
pub fn remove_unwritten(data_dir: &Path) -> io::Result<bool> {
    let path = data_dir.join(FILE_NAME);
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    // A written one begins with a mark and a count, and has its full length. The server syncs its first page before the length is on disk.
    let is_short = file.metadata()?.len() < PAGES_MIN * page_size();
    let mut head = if is_short { HEAD } else { 0 };
    let mut block = [0; 4096];
    loop {
        match file.read(&mut block)? {
            0 => break,
            read if block[head.min(read)..read].iter().any(|byte| *byte != 0) => return Ok(false),
            read => head = head.saturating_sub(read),
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
        let written = |length: u64, byte: u8| {
            let mut content = vec![0; length as usize];
            content[..HEAD].copy_from_slice(b"\xfe\x23\x05\x74\x02");
            content[HEAD] = byte;
            content
        };
        let page = page_size();
        for (content, removed) in [
            (vec![], true),
            (vec![0; 24_576], true),
            (written(page, 0), true),
            (written(page, 1), false),
            (written(3 * page, 0), false),
        ] {
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
