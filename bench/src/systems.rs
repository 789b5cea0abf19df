//! The systems: a server alone, ours, and what a user would take instead; each with what its acknowledgement means.

use crate::field::Context;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use trireme_cluster::galera_provider;

/// A system under test. The names are those of `--systems`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// One MariaDB server without a provider, flush=1
    Plain,
    /// The same with flush=0
    #[value(name = "plain-0")]
    #[serde(rename = "plain-0")]
    PlainFast,
    /// One server with our provider and no group communication (dummy://), flush=0
    Dummy,
    /// One server with Galera's provider and its null backend (dummy://), flush=0
    GaleraDummy,
    /// Trireme, repl.durability=disk, flush=0
    TriremeDisk,
    /// Trireme, repl.durability=process, flush=0
    TriremeProcess,
    /// Galera, flush=0
    #[value(name = "galera-0")]
    #[serde(rename = "galera-0")]
    GaleraFast,
    /// Galera, flush=1
    #[value(name = "galera-1")]
    #[serde(rename = "galera-1")]
    GaleraDurable,
    /// Galera with flush as the experiment sets it
    Galera,
    /// MariaDB's asynchronous replication, nothing synced
    #[value(name = "async-0")]
    #[serde(rename = "async-0")]
    AsyncFast,
    /// MariaDB's asynchronous replication, sync_binlog=1 and flush=1
    #[value(name = "async-1")]
    #[serde(rename = "async-1")]
    AsyncDurable,
    /// MariaDB's semi-synchronous replication (AFTER_SYNC), nothing synced
    #[value(name = "semisync-0")]
    #[serde(rename = "semisync-0")]
    SemisyncFast,
    /// MariaDB's semi-synchronous replication (AFTER_SYNC), sync_binlog=1, flush=1, sync_relay_log=1
    #[value(name = "semisync-1")]
    #[serde(rename = "semisync-1")]
    SemisyncDurable,
    /// PostgreSQL, synchronous_standby_names='ANY 1 (…)', synchronous_commit=remote_write
    #[value(name = "postgres-0")]
    #[serde(rename = "postgres-0")]
    PostgresFast,
    /// PostgreSQL, synchronous_standby_names='ANY 1 (…)', synchronous_commit=on
    #[value(name = "postgres-1")]
    #[serde(rename = "postgres-1")]
    PostgresDurable,
    /// MySQL Group Replication with one primary, nothing synced
    #[value(name = "mysql-gr-0")]
    #[serde(rename = "mysql-gr-0")]
    MysqlFast,
    /// MySQL Group Replication with one primary, sync_binlog=1 and flush=1
    #[value(name = "mysql-gr-1")]
    #[serde(rename = "mysql-gr-1")]
    MysqlDurable,
    /// etcd: the replicated log without a database
    Etcd,
    /// etcd with --unsafe-no-fsync
    #[value(name = "etcd-0")]
    #[serde(rename = "etcd-0")]
    EtcdFast,
}

/// How the servers of a system are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Servers that know nothing of each other.
    Alone,
    /// Servers with our provider.
    Ours,
    Galera,
    /// A primary and its replicas.
    Replicated {
        semisync: bool,
    },
    Postgres,
    Etcd,
    Mysql,
}

impl System {
    /// The systems that every MariaDB experiment can measure.
    pub const USUAL: [System; 7] = [
        System::Plain,
        System::PlainFast,
        System::Dummy,
        System::TriremeDisk,
        System::TriremeProcess,
        System::GaleraFast,
        System::GaleraDurable,
    ];
    /// The same with Galera's null backend.
    pub const USUAL_ALSO_NULL: [System; 8] = [
        System::Plain,
        System::PlainFast,
        System::Dummy,
        System::GaleraDummy,
        System::TriremeDisk,
        System::TriremeProcess,
        System::GaleraFast,
        System::GaleraDurable,
    ];
    /// Of each kind one.
    pub const TINY: [System; 4] = [System::Plain, System::Dummy, System::TriremeDisk, System::GaleraDurable];
    /// Of each kind of peer one.
    pub const TINY_PEERS: [System; 6] = [
        System::TriremeDisk,
        System::GaleraDurable,
        System::SemisyncDurable,
        System::AsyncFast,
        System::PostgresDurable,
        System::Etcd,
    ];
    pub const PEERS: [System; 15] = [
        System::Plain,
        System::TriremeDisk,
        System::TriremeProcess,
        System::GaleraDurable,
        System::GaleraFast,
        System::SemisyncDurable,
        System::SemisyncFast,
        System::AsyncDurable,
        System::AsyncFast,
        System::PostgresDurable,
        System::PostgresFast,
        System::MysqlDurable,
        System::MysqlFast,
        System::Etcd,
        System::EtcdFast,
    ];

    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub fn title(self) -> &'static str {
        match self {
            System::Plain => "MariaDB alone, flush=1",
            System::PlainFast => "MariaDB alone, flush=0",
            System::Dummy => "Trireme without a group (dummy://), flush=0",
            System::GaleraDummy => "Galera without a group (dummy://), flush=0",
            System::TriremeDisk => "Trireme disk",
            System::TriremeProcess => "Trireme process",
            System::GaleraFast => "Galera, flush=0",
            System::GaleraDurable => "Galera, flush=1",
            System::Galera => "Galera, flush as the row says",
            System::AsyncFast => "asynchronous, nothing synced",
            System::AsyncDurable => "asynchronous, all synced",
            System::SemisyncFast => "semi-synchronous, nothing synced",
            System::SemisyncDurable => "semi-synchronous, all synced",
            System::PostgresFast => "PostgreSQL ANY 1, remote_write",
            System::PostgresDurable => "PostgreSQL ANY 1, on",
            System::MysqlFast => "MySQL Group Replication, nothing synced",
            System::MysqlDurable => "MySQL Group Replication, all synced",
            System::Etcd => "etcd (a log without a database)",
            System::EtcdFast => "etcd, --unsafe-no-fsync",
        }
    }

    /// The guarantee that a client has once its commit has returned.
    pub fn guarantee(self) -> &'static str {
        match self {
            System::Plain => "on this server's disk; one server only",
            System::PlainFast => "in this server's memory; the last second is lost when it dies",
            System::Dummy => "in this server's log on disk; one server only",
            System::GaleraDummy => "in this server's memory; the last second is lost when it dies",
            System::TriremeDisk => "in the logs of a majority, on disk: survives the loss of power everywhere",
            System::TriremeProcess => {
                "in the logs of a majority, in files: survives the death of every server, not the loss of power everywhere"
            }
            System::GaleraFast => "in the memory of every member; lost when all die at once",
            System::GaleraDurable => "in the memory of every member, and on the disk of the one that was asked",
            System::Galera => "in the memory of every member; for the rest see the experiment",
            System::AsyncFast => "in the memory of the primary; lost when it dies",
            System::AsyncDurable => "on the primary's disk; lost when it does not come back",
            System::SemisyncFast => {
                "in the memory of the primary and of one replica; after a timeout without a replica, of the primary only"
            }
            System::SemisyncDurable => {
                "on the disks of the primary and of one replica; after a timeout without a replica, of the primary only"
            }
            System::PostgresFast => "on the primary's disk and in the memory of one standby",
            System::PostgresDurable => "on the disks of the primary and of one standby",
            System::MysqlFast => "certified, and in the memory of a majority; lost when all die at once",
            System::MysqlDurable => "certified, in the memory of a majority, and on the disk of the primary",
            System::Etcd => "in the logs of a majority, on disk",
            System::EtcdFast => {
                "in the logs of a majority, in files: survives the death of every server, not the loss of power"
            }
        }
    }

    /// How clients go on when the server that takes writes dies.
    pub fn takeover(self) -> &'static str {
        match self {
            System::Plain | System::PlainFast | System::Dummy | System::GaleraDummy => "none: one server",
            System::TriremeDisk
            | System::TriremeProcess
            | System::GaleraFast
            | System::GaleraDurable
            | System::Galera => "every node takes writes",
            System::MysqlFast | System::MysqlDurable => "by itself; a router leads the clients",
            System::Etcd | System::EtcdFast => "by itself",
            System::AsyncFast
            | System::AsyncDurable
            | System::SemisyncFast
            | System::SemisyncDurable
            | System::PostgresFast
            | System::PostgresDurable => "by hand, or by a tool of its own (here by a script, at once)",
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            System::Plain | System::PlainFast => Kind::Alone,
            System::Dummy | System::TriremeDisk | System::TriremeProcess => Kind::Ours,
            System::GaleraDummy | System::GaleraFast | System::GaleraDurable | System::Galera => Kind::Galera,
            System::AsyncFast | System::AsyncDurable => Kind::Replicated { semisync: false },
            System::SemisyncFast | System::SemisyncDurable => Kind::Replicated { semisync: true },
            System::PostgresFast | System::PostgresDurable => Kind::Postgres,
            System::Etcd | System::EtcdFast => Kind::Etcd,
            System::MysqlFast | System::MysqlDurable => Kind::Mysql,
        }
    }

    pub fn is_group(self) -> bool {
        matches!(self.kind(), Kind::Ours | Kind::Galera) && !self.has_null_backend()
    }

    /// One server, whatever `--nodes` says.
    pub fn is_single(self) -> bool {
        matches!(self, System::Plain | System::PlainFast) || self.has_null_backend()
    }

    /// A provider that talks to nobody.
    pub fn has_null_backend(self) -> bool {
        matches!(self, System::Dummy | System::GaleraDummy)
    }

    /// `innodb_flush_log_at_trx_commit`.
    pub fn flush(self) -> u8 {
        match self {
            System::Plain
            | System::GaleraDurable
            | System::AsyncDurable
            | System::SemisyncDurable
            | System::MysqlDurable => 1,
            System::PlainFast
            | System::Dummy
            | System::GaleraDummy
            | System::TriremeDisk
            | System::TriremeProcess
            | System::GaleraFast
            | System::Galera
            | System::AsyncFast
            | System::SemisyncFast
            | System::PostgresFast
            | System::PostgresDurable
            | System::MysqlFast
            | System::Etcd
            | System::EtcdFast => 0,
        }
    }

    /// Why it cannot be measured on this machine.
    pub fn missing(self, context: &Context) -> Option<String> {
        match self.kind() {
            Kind::Galera if context.galera.is_none() => {
                Some("Galera's library is not installed: apt-get install galera-4, or name it with --galera".to_owned())
            }
            Kind::Postgres if postgres_bin().is_none() => {
                Some("PostgreSQL is not installed: apt-get install postgresql".to_owned())
            }
            Kind::Etcd if !have("etcd") => Some("etcd is not installed: apt-get install etcd-server".to_owned()),
            Kind::Mysql => context.mysql.clone().err(),
            Kind::Alone | Kind::Ours | Kind::Galera | Kind::Replicated { .. } | Kind::Postgres | Kind::Etcd => None,
        }
    }
}

/// The library that is given, or the installed one.
pub fn galera(given: Option<&PathBuf>) -> Option<PathBuf> {
    given.cloned().or_else(|| galera_provider().map(std::path::Path::to_owned))
}

/// Where Debian keeps PostgreSQL's programs: the newest version.
pub fn postgres_bin() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| ["initdb", "postgres", "pg_basebackup", "psql"].iter().all(|p| bin.join(p).exists()))
        .collect();
    versions.sort();
    versions.pop().map(|(_, bin)| bin)
}

/// Whether a program is in the path, sbin included.
pub fn have(program: &str) -> bool {
    path_of(program).is_some()
}

pub fn path_of(program: &str) -> Option<PathBuf> {
    let path = search_path();
    let dirs = path.split(':').filter(|dir| !dir.is_empty());
    dirs.map(|dir| std::path::Path::new(dir).join(program)).find(|file| file.is_file())
}

/// sbin, where Debian keeps servers, is not in every user's PATH.
pub fn search_path() -> String {
    format!("{}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", std::env::var("PATH").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_alike_on_the_command_line_and_in_files() {
        for system in System::value_variants() {
            let written = serde_json::to_string(system).unwrap();
            assert_eq!(written, format!("\"{}\"", system.name()));
            assert_eq!(System::from_str(&system.name(), false).unwrap(), *system);
        }
    }
}
