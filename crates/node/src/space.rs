//! Room on a disk.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that are free for this user in the file system in which `dir` is or will be; 0 when nobody knows.
pub fn free_space(dir: &Path) -> u64 {
    std::path::absolute(dir).ok().and_then(|dir| dir.ancestors().find_map(free_at)).unwrap_or(0)
}

fn free_at(path: &Path) -> Option<u64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends with a zero byte; statvfs fills what it is given when it returns 0, and only then is it read.
    let found = unsafe {
        if libc::statvfs(path.as_ptr(), found.as_mut_ptr()) != 0 {
            return None;
        }
        found.assume_init()
    };
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_directory_that_will_be() {
        assert!(free_space(Path::new("/no/such/place")) > 0);
        assert!(free_space(Path::new(".")) > 0);
    }
}
