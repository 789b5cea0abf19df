//! Where the log lies.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use trireme_node::free_space;

/// More would not help: a server that has been away for so long gets a full copy sooner.
const LOG_MAX: u64 = 16 << 30;
const LOG_MIN: u64 = 64 << 20;

/// Without `--workdir`: a place that survives a reboot, told apart by group and port.
pub fn usual(group: &str, port: u16) -> Result<PathBuf, String> {
    let group: String = group.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    let name = format!("{group}-{port}");
    let system = Path::new("/var/lib/trireme-arbitrator").join(&name);
    if prepare(&system).is_ok() {
        return Ok(system);
    }
    // Everybody may make a directory of this name: it counts only if it is ours.
    let own = Path::new("/var/tmp").join(format!("trireme-arbitrator-{}", Uid::effective()));
    trireme_private::own_dir(&own).map_err(|e| format!("{e}; give a directory with --workdir"))?;
    Ok(own.join(name))
}

/// A new directory for a member that stays for a moment.
pub fn passing() -> Result<PathBuf, String> {
    let base = std::env::temp_dir();
    trireme_private::fresh_dir(&base, "trireme-arbitrator")
        .map_err(|e| format!("no directory can be made in {}: {e}; set TMPDIR", base.display()))
}

/// Makes the directory for this user alone, and sees whether files can be made in it. The log in it holds the servers' rows and
/// statements.
pub fn prepare(dir: &Path) -> Result<(), String> {
    let advice = "give a directory of this user's own with --workdir";
    trireme_private::own_dir(dir).map_err(|e| format!("{e}; {advice}"))?;
    let probe = dir.join(format!(".writable-{}", std::process::id()));
    let wrong = |e: std::io::Error| format!("the directory {} cannot be used: {e}; {advice}", dir.display());
    trireme_private::write_new(&probe, b"").map_err(wrong)?;
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
    fn a_directory_is_for_this_user_alone_and_a_wider_one_is_refused() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let base = passing().unwrap();
        prepare(&base.join("own")).unwrap();
        assert_eq!(fs::metadata(base.join("own")).unwrap().mode() & 0o777, 0o700);
        fs::create_dir(base.join("wide")).unwrap();
        fs::set_permissions(base.join("wide"), fs::Permissions::from_mode(0o777)).unwrap();
        let refusal = prepare(&base.join("wide")).unwrap_err();
        assert!(refusal.contains("other users can write to") && refusal.contains("--workdir"), "{refusal}");
        std::os::unix::fs::symlink(base.join("own"), base.join("link")).unwrap();
        assert!(prepare(&base.join("link")).unwrap_err().contains("a link is not followed"));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn the_bound_is_never_nothing() {
        assert!(half_of_free_space(Path::new("/no/such/place")) >= LOG_MIN);
    }
}
