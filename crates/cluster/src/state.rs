//! The memory of a cluster directory between two commands: `cluster.json`, and a lock file.

use crate::disk::Disks;
use crate::error::{During, Error, Result};
use crate::netns::Network;
use crate::node::Node;
use crate::spec::{Settings, SstMethod};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Of this file's format; a reader refuses others.
    pub format: u32,
    pub name: String,
    /// The provider as the user named it; nodes load copies.
    pub provider: PathBuf,
    pub provider_options: String,
    pub base_port: u16,
    pub sst: SstMethod,
    #[serde(default)]
    pub settings: Settings,
    pub options: Vec<String>,
    /// Of the account for state transfers, which may do everything.
    #[serde(default)]
    pub sst_password: String,
    /// Servers without a provider.
    #[serde(default)]
    pub plain: bool,
    /// Each node has a certificate of the authority in the cluster's directory.
    #[serde(default)]
    pub tls: bool,
    /// Each node has a copy of the secret in the cluster's directory.
    #[serde(default)]
    pub secret: bool,
    /// The user that the servers run as; `None`: the user of this process.
    pub user: Option<String>,
    pub network: Option<Network>,
    /// The command that runs as an arbitrator; nodes start copies.
    #[serde(default)]
    pub arbitrator: Option<PathBuf>,
    /// A disk per node; state files of before there were any have none.
    #[serde(default)]
    pub disks: Option<Disks>,
    pub nodes: Vec<Node>,
    /// Number of the last node ever added.
    pub last_node: u8,
}

pub const FORMAT: u32 = 1;

fn file(dir: &Path) -> PathBuf {
    dir.join("cluster.json")
}

/// The state in `dir`; [`Error::NoCluster`] if there is none.
pub fn load(dir: &Path) -> Result<State> {
    let path = file(dir);
    if !path.exists() {
        return Err(Error::NoCluster(dir.to_owned()));
    }
    // It names programs to run, users to run them as and directories to remove: only the caller's own word counts.
    trireme_private::check_dir(dir).map_err(Error::NotOurs)?;
    let text = trireme_private::read_own(&path).map_err(Error::NotOurs)?;
    let Some(text) = text else { return Err(Error::NoCluster(dir.to_owned())) };
    let bad = |why: String| Error::BadState { path: path.clone(), why };
    let state: State = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    if state.format != FORMAT {
        return Err(bad(format!("format {}, expected {FORMAT}", state.format)));
    }
    for node in &state.nodes {
        if node.dir != dir.join(node.id.to_string()) {
            return Err(bad(format!("{} does not lie where the directory of {} lies", node.dir.display(), node.id)));
        }
    }
    Ok(state)
}

/// Replaces the file as a whole, so that a command killed in mid-write leaves the old one.
pub fn save(dir: &Path, state: &State) -> Result<()> {
    let path = file(dir);
    let mut text = serde_json::to_vec_pretty(state)
        .map_err(|error| Error::BadState { path: path.clone(), why: error.to_string() })?;
    text.push(b'\n');
    trireme_private::replace(&path, &text, 0o600).during(|| format!("cannot write {}", path.display()))
}

/// Held by every command that changes the cluster; released when dropped, also by a crash.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, never read")] File);

pub fn lock(dir: &Path) -> Result<Lock> {
    let path = dir.join("lock");
    let file = trireme_private::open_own(&path, File::options().truncate(false).write(true))
        .during(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Busy(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(Error::Io { what: format!("cannot lock {}", path.display()), error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{NodeId, Ports};
    use std::os::unix::fs::PermissionsExt;

    fn state(dir: &Path) -> State {
        let id = NodeId::new(1).expect("1 is a node");
        let ports = Ports::of(21000, id).expect("in range");
        let node = Node {
            id,
            address: "127.0.0.11".to_owned(),
            ports,
            dir: dir.join("node1"),
            pid: None,
            options: Vec::new(),
            arbitrator: false,
        };
        State {
            format: FORMAT,
            name: "n".to_owned(),
            provider: "/p".into(),
            provider_options: String::new(),
            base_port: 21000,
            sst: SstMethod::Rsync,
            settings: Settings::CommandLine,
            options: Vec::new(),
            sst_password: "p".to_owned(),
            plain: false,
            tls: false,
            secret: false,
            user: None,
            network: None,
            arbitrator: None,
            disks: None,
            nodes: vec![node],
            last_node: 1,
        }
    }

    #[test]
    fn only_a_directory_of_ours_is_believed() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-state").unwrap();
        assert!(matches!(load(&dir), Err(Error::NoCluster(_))));
        save(&dir, &state(&dir)).unwrap();
        load(&dir).unwrap();
        let chmod = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        for (path, open, closed) in [(dir.clone(), 0o777, 0o700), (file(&dir), 0o666, 0o600)] {
            chmod(&path, open);
            assert!(matches!(load(&dir), Err(Error::NotOurs(_))), "{}", path.display());
            chmod(&path, closed);
        }
        if nix::unistd::geteuid().is_root() {
            for path in [file(&dir), dir.clone()] {
                std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
                assert!(matches!(load(&dir), Err(Error::NotOurs(_))), "{}", path.display());
            }
            std::os::unix::fs::chown(&dir, Some(0), None).unwrap();
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_a_state_file_names_lies_below_its_directory() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-state").unwrap();
        for elsewhere in ["/root".into(), dir.join("node2"), dir.join("../x"), dir.join("node1/../..")] {
            let mut wrong = state(&dir);
            wrong.nodes[0].dir = elsewhere;
            save(&dir, &wrong).unwrap();
            assert!(matches!(load(&dir), Err(Error::BadState { .. })));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
