//! What a cluster directory remembers between two commands: `cluster.json`, and a lock file.

use crate::disk::Disks;
use crate::error::{During, Error, Result};
use crate::netns::Network;
use crate::node::Node;
use crate::spec::SstMethod;
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
    pub options: Vec<String>,
    /// Servers without a provider.
    #[serde(default)]
    pub plain: bool,
    /// Each node has a certificate of the authority in the cluster's directory.
    #[serde(default)]
    pub tls: bool,
    /// Whom the servers run as; `None`: the user of this process.
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
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Error::NoCluster(dir.to_owned())),
        Err(error) => return Err(Error::Io { what: format!("cannot read {}", path.display()), error }),
    };
    let bad = |why: String| Error::BadState { path: path.clone(), why };
    let state: State = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    if state.format != FORMAT {
        return Err(bad(format!("format {}, expected {FORMAT}", state.format)));
    }
    Ok(state)
}

/// Replaces the file as a whole, so that a command killed in mid-write leaves the old one.
pub fn save(dir: &Path, state: &State) -> Result<()> {
    let path = file(dir);
    let new = path.with_extension("json.new");
    let mut text = serde_json::to_vec_pretty(state)
        .map_err(|error| Error::BadState { path: path.clone(), why: error.to_string() })?;
    text.push(b'\n');
    std::fs::write(&new, text).during(|| format!("cannot write {}", new.display()))?;
    std::fs::rename(&new, &path).during(|| format!("cannot write {}", path.display()))
}

/// Held by every command that changes the cluster; released when dropped, also by a crash.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, never read")] File);

pub fn lock(dir: &Path) -> Result<Lock> {
    let path = dir.join("lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .during(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Busy(dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(Error::Io { what: format!("cannot lock {}", path.display()), error }),
    }
}
