//! A cluster that ends with its owner: for tests and benchmarks.

use crate::cluster::{Cluster, Stop};
use crate::error::Result;
use crate::log::digest;
use crate::spec::{Progress, Spec};
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// Kills the servers and removes the directory when dropped; when dropped by a panic, prints the end of every
/// node's log first and keeps the directory.
pub struct ClusterGuard(Cluster);

/// Enough to see a failed start or a lost vote.
const LINES: usize = 60;

/// The end of a node's log, to standard error: for a test that failed.
pub fn print_end_of(log: &Path) {
    eprintln!("---- end of {} ----", log.display());
    digest(log, LINES).iter().for_each(|line| eprintln!("{line}"));
}

impl ClusterGuard {
    /// Starts a cluster; one left behind in the same directory by a killed run is removed first.
    pub fn up(spec: &Spec, say: Progress<'_>) -> Result<ClusterGuard> {
        Cluster::remove_leftover(&spec.dir)?;
        Cluster::up(spec, say).map(ClusterGuard)
    }

    /// Takes over a running cluster.
    pub fn new(cluster: Cluster) -> ClusterGuard {
        ClusterGuard(cluster)
    }
}

impl Deref for ClusterGuard {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl DerefMut for ClusterGuard {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.0
    }
}

impl Drop for ClusterGuard {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            self.0.nodes().iter().for_each(|node| print_end_of(&node.log()));
        }
        let outcome = self.0.down(Stop::Kill, !failed);
        if let Err(error) = outcome {
            eprintln!("cleaning up {}: {error}", self.0.dir().display());
        }
    }
}
