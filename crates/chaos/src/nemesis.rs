//! The kinds of faults of a run, by name.

use std::fmt;
use std::str::FromStr;

/// The kinds of faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nemesis {
    None,
    KillOne,
    KillAll,
    /// A server is told to stop and killed before it has, as by a service manager that loses patience.
    StopKill,
    Pause,
    PartitionWhole,
    PartitionOneWay,
    PartitionRing,
    HungDisk,
    SlowDisk,
    PowerOne,
    PowerAll,
    /// A server is told to stop, and its machine loses its power before it has.
    StopPower,
    /// A server starts after a crash, and its machine loses its power before it has.
    StartPower,
    LockedTables,
    /// Small logs, large write sets, and all killed amidst them.
    SmallLog,
    /// A node takes a full copy; it or its donor is killed meanwhile, or it is frozen until the copy is too old.
    KillJoiner,
    /// A node takes a full copy, undisturbed.
    Donor,
    /// All servers are restarted, one after the other.
    RollingRestart,
    /// One or two at a time of those that need no logs of their own, take no copies, and do not wait for a server's start.
    Mix,
}

impl Nemesis {
    pub const ALL: [Nemesis; 20] = [
        Nemesis::None,
        Nemesis::KillOne,
        Nemesis::KillAll,
        Nemesis::StopKill,
        Nemesis::Pause,
        Nemesis::PartitionWhole,
        Nemesis::PartitionOneWay,
        Nemesis::PartitionRing,
        Nemesis::HungDisk,
        Nemesis::SlowDisk,
        Nemesis::PowerOne,
        Nemesis::PowerAll,
        Nemesis::StopPower,
        Nemesis::StartPower,
        Nemesis::LockedTables,
        Nemesis::SmallLog,
        Nemesis::KillJoiner,
        Nemesis::Donor,
        Nemesis::RollingRestart,
        Nemesis::Mix,
    ];

    /// Whether it cuts the network, for which each node needs a namespace of its own.
    pub fn needs_network(self) -> bool {
        matches!(self, Nemesis::PartitionWhole | Nemesis::PartitionOneWay | Nemesis::PartitionRing | Nemesis::Mix)
    }

    pub(crate) fn needs_disks(self) -> bool {
        let of_power = [Nemesis::PowerOne, Nemesis::PowerAll, Nemesis::StopPower, Nemesis::StartPower];
        let of_disks = [Nemesis::HungDisk, Nemesis::SlowDisk, Nemesis::Mix];
        of_power.contains(&self) || of_disks.contains(&self)
    }

    /// Logs of few megabytes, so that soon something leaves them.
    pub(crate) fn wants_small_logs(self) -> bool {
        matches!(self, Nemesis::SmallLog | Nemesis::KillJoiner)
    }

    /// Full copies are made, and a server whose copy fails ends.
    pub(crate) fn takes_copies(self) -> bool {
        matches!(self, Nemesis::KillJoiner | Nemesis::Donor)
    }

    pub(crate) fn fits_a_single_server(self) -> bool {
        matches!(self, Nemesis::None | Nemesis::KillOne | Nemesis::KillAll | Nemesis::StopKill | Nemesis::Pause)
    }
}

impl fmt::Display for Nemesis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Nemesis::None => "none",
            Nemesis::KillOne => "kill-one",
            Nemesis::KillAll => "kill-all",
            Nemesis::StopKill => "stop-kill",
            Nemesis::Pause => "pause",
            Nemesis::PartitionWhole => "partition-whole",
            Nemesis::PartitionOneWay => "partition-one-way",
            Nemesis::PartitionRing => "partition-ring",
            Nemesis::HungDisk => "hung-disk",
            Nemesis::SlowDisk => "slow-disk",
            Nemesis::PowerOne => "power-one",
            Nemesis::PowerAll => "power-all",
            Nemesis::StopPower => "stop-power",
            Nemesis::StartPower => "start-power",
            Nemesis::LockedTables => "locked-tables",
            Nemesis::SmallLog => "small-log",
            Nemesis::KillJoiner => "kill-joiner",
            Nemesis::Donor => "donor",
            Nemesis::RollingRestart => "rolling-restart",
            Nemesis::Mix => "mix",
        })
    }
}

impl FromStr for Nemesis {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Nemesis::ALL.into_iter().find(|nemesis| nemesis.to_string() == text).ok_or_else(|| {
            let names: Vec<String> = Nemesis::ALL.iter().map(Nemesis::to_string).collect();
            format!("`{text}` is no nemesis: {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for nemesis in Nemesis::ALL {
            assert_eq!(nemesis.to_string().parse::<Nemesis>().unwrap(), nemesis);
        }
        assert!("flood".parse::<Nemesis>().unwrap_err().contains("kill-all"));
    }
}
