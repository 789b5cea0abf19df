//! Starts, stops, kills, pauses, cuts off and inspects real `mariadbd` nodes.
//!
//! One implementation serves the `trireme cluster` command, the integration tests and the benchmarks, so that
//! what a user sees by hand is what the tests prove. The servers are the stock ones of the machine; only the
//! provider library differs, and any provider that speaks wsrep API v26 can be given.
//!
//! Reading order: [`Spec`] (what to start) → [`Cluster`] (what runs, with every operation on it) →
//! [`Session`] (SQL to one node) → [`NodeStatus`] (what one node says about itself).
//!
//! **Invariant:** no process is ever signalled that this library did not start. A process is recognised by its
//! command line naming the node's own `my.cnf` below the cluster's directory (servers), or by an environment
//! variable that holds that directory (the state transfer scripts that a server started); a bare pid is never
//! trusted.

#![deny(unsafe_code)] // but for one ioctl, see `disk`

mod checksum;
mod cluster;
mod config;
mod dice;
mod disk;
mod error;
mod guard;
mod log;
mod netns;
mod node;
mod process;
mod recovery;
mod spec;
mod sql;
mod state;
mod status;
mod stutter;
mod template;
mod userns;
mod wait;

pub use checksum::{TableSums, table_checksums, wait_equal};
pub use cluster::{Cluster, Endpoint, Start, Stop};
pub use dice::Dice;
pub use disk::{Disk, Disks, Holds, check as disks_available};
pub use error::{Error, Result};
pub use guard::{ClusterGuard, print_end_of};
pub use log::{LogCursor, START_LINES, tail};
pub use netns::check as namespaces_available;
pub use node::{Node, NodeId, Ports};
pub use process::{Liveness, find_program};
pub use recovery::Position;
pub use spec::{DEFAULT_BASE_PORT, Progress, Settings, Spec, SstMethod, default_dir, galera_provider, is_galera};
pub use sql::{Answer, Prepared, Session, SqlError};
pub use status::{NodeStatus, sample};
pub use stutter::Stutter;
pub use userns::{enter as enter_user_namespace, is_inside as in_user_namespace};
pub use wait::{Cancel, until};
