//! The cluster that a caller asks for.

use crate::disk::Disks;
use crate::error::{Error, Result};
use crate::node::{NodeId, Ports};
use crate::wait::Cancel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Away from the ports of installed servers (3306, 4444, 4567, 4568) and below the ephemeral range of Linux
/// (32768–60999), where outgoing connections could occupy them.
pub const DEFAULT_BASE_PORT: u16 = 21000;

/// How a joiner receives the whole data set. The names are those of `wsrep_sst_method`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SstMethod {
    Rsync,
    Mariabackup,
    Mysqldump,
}

impl fmt::Display for SstMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SstMethod::Rsync => "rsync",
            SstMethod::Mariabackup => "mariabackup",
            SstMethod::Mysqldump => "mysqldump",
        })
    }
}

impl FromStr for SstMethod {
    type Err = String;
    fn from_str(s: &str) -> std::result::Result<Self, String> {
        match s {
            "rsync" => Ok(SstMethod::Rsync),
            "mariabackup" => Ok(SstMethod::Mariabackup),
            "mysqldump" => Ok(SstMethod::Mysqldump),
            _ => Err(format!("`{s}` is not a transfer method: rsync, mariabackup or mysqldump")),
        }
    }
}

/// Where a server finds what it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Settings {
    /// In its `my.cnf`, as installed servers.
    #[default]
    File,
    /// On its command line, as in containers. Its file holds no more than a password and what scripts read.
    CommandLine,
    /// In its file where the node's number is odd, else on its command line.
    Mixed,
}

impl Settings {
    /// The same place for all nodes.
    pub const UNIFORM: [Settings; 2] = [Settings::File, Settings::CommandLine];
    pub const ALL: [Settings; 3] = [Settings::File, Settings::CommandLine, Settings::Mixed];

    pub(crate) fn on_command_line(self, id: NodeId) -> bool {
        match self {
            Settings::File => false,
            Settings::CommandLine => true,
            Settings::Mixed => id.raw().is_multiple_of(2),
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Settings::File => "file",
            Settings::CommandLine => "command-line",
            Settings::Mixed => "mixed",
        })
    }
}

impl FromStr for Settings {
    type Err = String;
    fn from_str(s: &str) -> std::result::Result<Self, String> {
        let found = Settings::ALL.into_iter().find(|settings| settings.to_string() == s);
        found.ok_or_else(|| format!("`{s}` is no place for settings: file, command-line or mixed"))
    }
}

/// Receives lines for the user while something slow runs.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// A cluster to start. Fill the fields that matter and take the rest from [`Spec::new`].
#[derive(Clone, Debug)]
pub struct Spec {
    pub nodes: u8,
    /// The provider library. Each node loads a copy of it, because the servers' user may not be able to read a
    /// build directory, and because a build must not replace a library that is mapped.
    pub provider: PathBuf,
    /// Everything goes below: data, sockets, logs, state. Must be short enough for a socket path (107 bytes).
    pub dir: PathBuf,
    pub base_port: u16,
    pub sst: SstMethod,
    pub settings: Settings,
    /// `wsrep_cluster_name`.
    pub name: String,
    /// Contents of `wsrep_provider_options` beyond addresses, `key=value;key=value`.
    pub provider_options: String,
    /// Lines `option=value` for every node's `[mysqld]` section.
    pub options: Vec<String>,
    /// The same for single nodes; these come last and win.
    pub node_options: BTreeMap<NodeId, Vec<String>>,
    /// The `trireme` command, to start an arbitrator beside the servers as the last node. `None`: no arbitrator.
    pub arbitrator: Option<PathBuf>,
    /// Encrypt the group's traffic, with an authority of the cluster's own.
    pub tls: bool,
    /// Encrypt it with a secret that the nodes share, and let nobody else in. Without effect with `tls`, and with Galera's library, which
    /// knows no secrets.
    pub secret: bool,
    /// A network namespace per node (root only), so that single nodes can be cut off.
    pub netns: bool,
    /// A file system per node (root only), so that the power of single machines can be cut.
    pub disks: Option<Disks>,
    /// How long one node may take to become Synced.
    pub start_limit: Duration,
    /// Servers without a provider, for comparison. They know nothing of each other.
    pub plain: bool,
    pub cancel: Cancel,
}

impl Spec {
    pub fn new(provider: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Spec {
        Spec {
            nodes: 3,
            provider: provider.into(),
            dir: dir.into(),
            base_port: DEFAULT_BASE_PORT,
            sst: SstMethod::Rsync,
            settings: Settings::File,
            name: "trireme".to_owned(),
            provider_options: String::new(),
            options: Vec::new(),
            node_options: BTreeMap::new(),
            arbitrator: None,
            tls: false,
            secret: true,
            netns: false,
            disks: None,
            start_limit: Duration::from_secs(120),
            plain: false,
            cancel: Cancel::default(),
        }
    }

    /// Adds a line to every node's `my.cnf`.
    pub fn option(mut self, line: impl Into<String>) -> Spec {
        self.options.push(line.into());
        self
    }

    /// Refuses what cannot work, before anything is touched.
    pub(crate) fn check(&self) -> Result<()> {
        let last = NodeId::new(self.nodes.saturating_add(u8::from(self.arbitrator.is_some())))
            .filter(|_| self.nodes > 0)
            .ok_or_else(|| Error::BadSpec(format!("{} nodes: choose between 1 and {}", self.nodes, NodeId::MAX)))?;
        if self.base_port < 1024 || Ports::of(self.base_port, last).is_none() {
            return Err(Error::BadSpec(format!(
                "base port {}: {} nodes need {} ports from it on, all between 1024 and 65535",
                self.base_port,
                self.nodes,
                u16::from(self.nodes) * Ports::PER_NODE
            )));
        }
        if !self.dir.is_absolute() {
            return Err(Error::BadSpec(format!("{}: the directory must be absolute", self.dir.display())));
        }
        // sun_path holds 108 bytes with the terminator; "/node32/mysqld.sock" is the longest suffix.
        let socket_len = self.dir.as_os_str().len() + "/node32/mysqld.sock".len();
        if socket_len > 107 {
            return Err(Error::BadSpec(format!(
                "{}: the path is too long for the servers' sockets, choose a shorter --dir",
                self.dir.display()
            )));
        }
        for line in self.options.iter().chain(self.node_options.values().flatten()) {
            if line.contains('\n') || line.trim_start().starts_with('[') {
                return Err(Error::BadSpec(format!("`{line}` is not a server option: write name=value")));
            }
        }
        if !self.plain && !self.provider.is_file() {
            return Err(Error::Missing {
                what: format!("the provider {}", self.provider.display()),
                advice: "install the package trireme-provider, build it with `cargo build --release -p trireme-provider`, or name another with --provider"
                    .to_owned(),
            });
        }
        // The server would name a copy, in a node that is half made.
        if !self.plain && !is_elf(&self.provider) {
            return Err(Error::BadSpec(format!("{} is not a shared library", self.provider.display())));
        }
        Ok(())
    }
}

/// `$TRIREME_CLUSTER_DIR`, else a directory of this user's below `/var/tmp`: readable for the servers' user, which
/// a home directory often is not, and kept over a reboot, which `/tmp` often is not.
pub fn default_dir() -> PathBuf {
    match std::env::var_os("TRIREME_CLUSTER_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            // In a namespace of one's own everybody is root.
            let user = crate::userns::outer().map_or_else(|| nix::unistd::geteuid().as_raw(), |(user, _)| user);
            PathBuf::from(format!("/var/tmp/trireme-{user}"))
        }
    }
}

/// A file that cannot be read is left to the one who loads it.
fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    match read {
        Ok(()) => magic == *b"\x7fELF",
        Err(error) => error.kind() != std::io::ErrorKind::UnexpectedEof,
    }
}

/// Galera's library has no option for a secret.
pub fn is_galera(provider: &Path) -> bool {
    provider.file_name().is_some_and(|name| name.to_string_lossy().contains("galera"))
}

/// Galera's library where distributions put it, for comparison runs.
pub fn galera_provider() -> Option<&'static Path> {
    ["/usr/lib/galera/libgalera_smm.so", "/usr/lib/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so"]
        .into_iter()
        .map(Path::new)
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        Spec::new("/bin/sh", "/tmp/x")
    }

    #[test]
    fn accepts_the_defaults() {
        spec().check().unwrap();
    }

    #[test]
    fn refuses_what_cannot_work() {
        assert!(Spec { nodes: 0, ..spec() }.check().is_err());
        assert!(Spec { nodes: 33, ..spec() }.check().is_err());
        assert!(Spec { base_port: 80, ..spec() }.check().is_err());
        assert!(Spec { base_port: 65520, ..spec() }.check().is_err());
        assert!(Spec { dir: "relative".into(), ..spec() }.check().is_err());
        assert!(Spec { dir: format!("/{}", "d".repeat(100)).into(), ..spec() }.check().is_err());
        assert!(Spec { provider: "/nonexistent.so".into(), ..spec() }.check().is_err());
        assert!(spec().option("a=1\n[galera]").check().is_err());
    }
}
