//! The functions that the fuzzers call: one per target, on any bytes, that panics where a promise is broken.
//!
//! Coverage-guided runs (`make fuzz`, in `fuzz/`) and the ordinary tests, which replay `fuzz/corpus` and mutate it a little,
//! call the same functions. `docs/testing.md` says how to run and to add one.
#![forbid(unsafe_code)]

mod certification;
mod group;
mod log;
mod surface;
mod types;

use trireme_types::SplitMix;

/// One target.
pub struct Target {
    /// Of its binary in `fuzz/fuzz_targets` and of its directory in `fuzz/corpus`.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Valid inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Inputs that the ordinary test makes from the corpus by mutation.
    pub mutations: u32,
}

const CHEAP: u32 = 20_000;
const DEAR: u32 = 400;

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "types_codecs", run: types::codecs, seeds: types::seeds, mutations: CHEAP },
    Target {
        name: "wslog_structures",
        run: trireme_wslog::fuzzing::structures,
        seeds: trireme_wslog::fuzzing::structure_seeds,
        mutations: CHEAP,
    },
    Target { name: "wslog_recovery", run: log::recovery, seeds: log::recovery_seeds, mutations: DEAR },
    Target { name: "wslog_operations", run: log::operations, seeds: log::operation_seeds, mutations: DEAR },
    Target {
        name: "certification_writeset",
        run: certification::writeset,
        seeds: certification::writeset_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "certification_snapshot",
        run: certification::snapshot,
        seeds: certification::snapshot_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "certification_history",
        run: certification::history,
        seeds: certification::history_seeds,
        mutations: DEAR,
    },
    Target { name: "order_message", run: group::message, seeds: group::message_seeds, mutations: CHEAP },
    Target { name: "order_group", run: group::operations, seeds: group::operation_seeds, mutations: DEAR },
    Target { name: "order_liar", run: group::lies, seeds: group::operation_seeds, mutations: DEAR },
    Target {
        name: "transport_frames",
        run: trireme_transport::fuzzing::frames,
        seeds: trireme_transport::fuzzing::frame_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "transport_handshake",
        run: trireme_transport::fuzzing::handshake,
        seeds: trireme_transport::fuzzing::handshake_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "transport_secret",
        run: trireme_transport::fuzzing::secret,
        seeds: trireme_transport::fuzzing::secret_seeds,
        mutations: DEAR,
    },
    Target {
        name: "transport_gossip",
        run: trireme_transport::fuzzing::gossip,
        seeds: trireme_transport::fuzzing::gossip_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "transport_datagrams",
        run: trireme_transport::fuzzing::datagrams,
        seeds: trireme_transport::fuzzing::datagram_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "replicator_messages",
        run: trireme_replicator::fuzzing::messages,
        seeds: trireme_replicator::fuzzing::message_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "replicator_roster",
        run: trireme_replicator::fuzzing::roster,
        seeds: trireme_replicator::fuzzing::roster_seeds,
        mutations: CHEAP,
    },
    Target { name: "surface_options", run: surface::options, seeds: surface::option_seeds, mutations: CHEAP },
    Target { name: "surface_addresses", run: surface::addresses, seeds: surface::address_seeds, mutations: CHEAP },
    Target {
        name: "surface_state_files",
        run: surface::state_files,
        seeds: surface::state_file_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "flight_file",
        run: trireme_flight::fuzzing::file,
        seeds: trireme_flight::fuzzing::file_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "balance_packets",
        run: trireme_balance::fuzzing::packets,
        seeds: trireme_balance::fuzzing::packet_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "balance_split",
        run: trireme_balance::fuzzing::split,
        seeds: trireme_balance::fuzzing::split_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "balance_proxy",
        run: trireme_balance::fuzzing::proxy_header,
        seeds: trireme_balance::fuzzing::proxy_seeds,
        mutations: CHEAP,
    },
    Target {
        name: "balance_control",
        run: trireme_balance::fuzzing::control_line,
        seeds: trireme_balance::fuzzing::control_seeds,
        mutations: CHEAP,
    },
];

/// The target of that name.
///
/// # Panics
/// There is none.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no fuzz target {name}"))
}

/// Bytes without meaning, always the same: first inputs of the targets that read choices.
fn noise(count: u64, len: usize) -> Vec<Vec<u8>> {
    let mut random = SplitMix(count);
    (0..count).map(|_| (0..len).map(|_| random.next() as u8).collect()).collect()
}
