//! The status variables.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use trireme_surface::status::{GroupStats, Latency, Stats};
use trireme_transport::Protection;

use crate::StatValue;
use crate::exposure;
use crate::shared::Shared;

/// Replication and group protocol that this version speaks, in Galera's numbering, so that tools which compare them go on.
const PROTOCOL_REPLICATOR: i64 = 11;
const PROTOCOL_GCS: i64 = 5;

/// Shown without `repl.status_extended` too: the list is otherwise Galera's, and suites that run on loopback addresses compare it.
fn unasked(protection: Option<Protection>) -> Vec<(String, StatValue)> {
    let shown = protection.filter(|protection| *protection != Protection::Loopback).map(exposure::name);
    shown.map(|name| ("trireme_authentication".to_owned(), name.into())).into_iter().collect()
}

/// Names come without the `wsrep_` prefix.
pub fn collect(shared: &Arc<Shared>) -> Vec<(String, StatValue)> {
    let c = &shared.status.counters;
    let status = shared.status.group();
    let queue = shared.queue.stats();
    let monitor = shared.monitor.stats();
    let (local_state, comment) = shared.local_state(&status);
    let (flow, now) = (shared.status.flow(), Instant::now());
    let extra = match shared.host.settings.status_extended().then(|| shared.picture()) {
        Some(Some(picture)) => {
            let mut pairs = picture.into_pairs();
            let held = if flow.active() { "ON" } else { "OFF" };
            pairs.push(("flow_control_status".to_owned(), held.into()));
            let longest = shared.metrics.slowest_of_disk(now).as_secs_f64();
            pairs.push(("trireme_log_sync_longest".to_owned(), StatValue::Double(longest)));
            pairs
        }
        Some(None) | None => unasked(status.protection),
    };
    let send_queue = shared.metrics.send_queue.take();
    let (min, avg, max, stddev, samples) = shared.metrics.latency.take(&shared.metrics.order);
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed) as i64;
    let stats = Stats {
        local_state_uuid: shared.data.history().to_string(),
        protocol_version: PROTOCOL_REPLICATOR,
        protocol_application: i64::from(shared.host.protocol()),
        protocol_replicator: PROTOCOL_REPLICATOR,
        protocol_gcs: PROTOCOL_GCS,
        last_committed: shared.monitor.left().0 as i64,
        replicated: load(&c.replicated_count),
        replicated_bytes: load(&c.replicated_bytes),
        repl_keys: load(&c.repl_keys),
        repl_keys_bytes: load(&c.repl_keys_bytes),
        repl_data_bytes: load(&c.repl_data_bytes),
        received: load(&c.received_count),
        received_bytes: load(&c.received_bytes),
        local_commits: load(&c.local_commits),
        local_cert_failures: load(&c.local_cert_failures),
        local_replays: load(&c.local_replays),
        local_send_queue: load(&c.held_back),
        local_send_queue_max: send_queue.0 as i64,
        local_send_queue_avg: send_queue.1,
        local_recv_queue: shared.queue.len() as i64,
        local_recv_queue_max: queue.max as i64,
        local_recv_queue_min: queue.min as i64,
        local_recv_queue_avg: if queue.samples == 0 { 0.0 } else { queue.sum as f64 / queue.samples as f64 },
        local_cached_downto: if status.first_seqno.0 == 0 { -1 } else { status.first_seqno.0 as i64 },
        flow_control_paused_ns: flow.paused(now).as_nanos() as i64,
        flow_control_paused: flow.paused_part(now),
        flow_control_sent: flow.sent as i64,
        flow_control_recv: flow.received as i64,
        flow_control_active: flow.active(),
        flow_control_requested: flow.requested,
        cert_deps_distance: c.mean(&c.deps_distance_sum),
        apply_oooe: monitor.apply_oooe(),
        apply_oool: monitor.apply_oool(),
        apply_window: monitor.apply_window(),
        apply_waits: monitor.apply_waits as i64,
        // In order, always.
        commit_oooe: 0.0,
        commit_oool: 0.0,
        commit_window: monitor.commit_window(),
        local_state,
        local_state_comment: comment.to_string(),
        cert_index_size: load(&c.cert_index_size),
        causal_reads: load(&c.causal_reads),
        cert_interval: c.mean(&c.interval_sum),
        open_transactions: shared.trxs.len() as i64,
        incoming_addresses: status.incoming.join(","),
        group: shared.connected().then(|| GroupStats {
            cluster_weight: i64::from(status.weight),
            desync_count: i64::from(status.desyncs),
            evs_delayed: status.delayed.join(","),
            evs_evict_list: status.evicted.iter().map(|u| u.to_string()).collect::<Vec<_>>().join(","),
            evs_repl_latency: Latency { min, avg, max, stddev, samples },
            evs_state: if status.member { "OPERATIONAL" } else { "GATHER" }.into(),
            gcomm_uuid: status.uuid.to_string(),
            gmcast_segment: i64::from(status.segment),
            extra,
        }),
        ..Stats::default()
    };
    stats.into_pairs()
}
