//! Where the log lies.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use trireme_node::free_space;

/// More would not help: a server that has been away for so long gets a full copy sooner.
const LOG_MAX: u64 = 16 << 30;
const LOG_MIN: u64 = 64 << 20;

/// Without `--workdir`: a place that survives a reboot, told apart by group and port.
pub fn usual(group: &str, port: u16) -> PathBuf {
    let group: String = group.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    let name = format!("{group}-{port}");
    let system = Path::new("/var/lib/trireme-arbitrator").join(&name);
    if prepare(&system).is_ok() {
        return system;
    }
    Path::new("/var/tmp").join(format!("trireme-arbitrator-{}", Uid::effective())).join(name)
}

/// For a member that stays for a moment.
pub fn passing() -> PathBuf {
    std::env::temp_dir().join(format!("trireme-arbitrator-{}", std::process::id()))
}

/// Makes the directory, and sees whether files can be made in it.
pub fn prepare(dir: &Path) -> Result<(), String> {
    let wrong = |e: std::io::Error| {
        format!("the directory {} cannot be used: {e}; give a writable one with --workdir", dir.display())
    };
    fs::create_dir_all(dir).map_err(wrong)?;
    let probe = dir.join(format!(".writable-{}", std::process::id()));
    fs::write(&probe, b"").map_err(wrong)?;
    fs::remove_file(&probe).map_err(wrong)
}

/// Of the file system in which `dir` is or will be.
pub fn half_of_free_space(dir: &Path) -> u64 {
    (free_space(dir) / 2).clamp(LOG_MIN, LOG_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_made_is_refused_with_its_name() {
        let refusal = prepare(Path::new("/dev/null/arbitrator")).unwrap_err();
        assert!(refusal.contains("/dev/null/arbitrator") && refusal.contains("--workdir"), "{refusal}");
    }

    #[test]
    fn the_bound_is_never_nothing() {
        assert!(half_of_free_space(Path::new("/no/such/place")) >= LOG_MIN);
    }
}
