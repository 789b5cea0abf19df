//! Networks without root: a user namespace, in which the user is root over networks and mounts of its own, and nobody
//! else exists. Servers, and the scripts that they start, refuse to be root or try to become somebody: they get one more
//! namespace, in which the user is just that.

use crate::error::{Error, Result};
use crate::process::{run, search_path};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The words before a command that is to run in a new one. `ip netns` keeps its names below `/run`.
const WORDS: [&str; 9] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--mount",
    "sh",
    "-c",
    "mount -t tmpfs none /run && mkdir /run/netns && ip link set lo up && exec \"$@\"",
    "sh",
];

/// User and group that this process has outside, if it is in such a namespace.
pub fn outer() -> Option<(u32, u32)> {
    let read = |file| only_root(&std::fs::read_to_string(file).ok()?);
    read("/proc/self/uid_map").zip(read("/proc/self/gid_map"))
}

/// Whether this process is in such a namespace.
pub fn is_inside() -> bool {
    outer().is_some()
}

/// The words before a command that is to run as the user; none outside of such a namespace.
pub fn as_oneself() -> Vec<String> {
    let Some((uid, gid)) = outer() else { return Vec::new() };
    ["unshare".to_owned(), "--user".to_owned(), format!("--map-user={uid}"), format!("--map-group={gid}")].to_vec()
}

/// `0 OUTER 1` is all that the map of such a namespace says.
fn only_root(map: &str) -> Option<u32> {
    let mut words = map.split_whitespace();
    let (inner, outer, count) = (words.next()?, words.next()?, words.next()?);
    (inner == "0" && count == "1" && words.next().is_none()).then(|| outer.parse().ok()).flatten()
}

/// Starts this program anew in such a namespace, with the same arguments, in the place of this process. **Returns** only
/// when that is not possible.
pub fn enter() -> Result<()> {
    let words = || {
        let mut command = Command::new(WORDS[0]);
        command.args(&WORDS[1..]).env("PATH", search_path());
        command
    };
    run(words().arg("true"))
        .map_err(|error| Error::BadSpec(format!("cutting the network needs root or a user namespace: {error}")))?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let error = words().arg(program).args(arguments).exec();
    Err(Error::Io { what: "cannot start in a user namespace".to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_namespace_of_one_is_taken_for_one() {
        assert_eq!(only_root("         0       1000          1\n"), Some(1000));
        assert_eq!(only_root("         0          0 4294967295\n"), None, "the machine itself");
        assert_eq!(only_root("         0     100000      65536\n"), None, "a container");
        assert_eq!(only_root("      1000       1000          1\n"), None);
        assert_eq!(only_root("0 1000 1\n1 100000 65536\n"), None);
    }
}
