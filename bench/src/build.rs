//! Which build of a program was measured: its hash, and for our library the version that it tells.

use crate::tool::{command, run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trireme_cluster::Cancel;

/// The words before the version in our library, as the server logs them.
const MARK: &[u8] = b"(trireme ";

/// SHA-256 of a file, in hex.
pub fn hash(path: &Path) -> Result<String, String> {
    let mut sum = command("sha256sum");
    sum.arg("--").arg(path);
    let said = run(sum, Duration::from_secs(60), &Cancel::default())?;
    let hash = said.trim_start_matches('\\').split(' ').next().unwrap_or_default();
    (hash.len() == 64).then(|| hash.to_owned()).ok_or_else(|| format!("sha256sum's answer is not understood: {said}"))
}

/// The version with its commit that our library holds. `None` in any other.
pub fn version(path: &Path) -> Option<String> {
    version_in(&std::fs::read(path).ok()?)
}

fn version_in(bytes: &[u8]) -> Option<String> {
    let at = bytes.windows(MARK.len()).position(|window| window == MARK)?;
    let rest = &bytes[at + MARK.len()..];
    let end = rest.iter().position(|byte| *byte == b')')?;
    std::str::from_utf8(&rest[..end]).ok().map(str::to_owned)
}

/// The files that results come from, each with its hash.
pub fn of(files: &[PathBuf]) -> Result<BTreeMap<String, String>, String> {
    files.iter().map(|file| Ok((file.display().to_string(), hash(file)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_tells_its_version_and_another_content_is_another_build() {
        assert_eq!(
            version_in(b"..26.4.23(trireme 0.2.0+20260131.0123abc)\0.."),
            Some("0.2.0+20260131.0123abc".to_owned())
        );
        assert_eq!(version_in(b"4.23(r1234)"), None);
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-bench-build").unwrap();
        let file = dir.join("lib.so");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(hash(&file).unwrap(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        std::fs::write(&file, "abd").unwrap();
        assert_ne!(hash(&file).unwrap(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
