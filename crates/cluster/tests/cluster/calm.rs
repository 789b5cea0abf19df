//! Work that is heavy and no fault: nobody is thrown out, no client is told of an error.
//!
//! `MEGABYTES` (of one transaction, default 64), `SECONDS` (of a transfer that stands still, and of full load of the processors;
//! default 4) in the environment.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trireme_cluster::{Cluster, NodeId, NodeStatus, SstMethod, Start};

use crate::support::{
    Bed, Load, assert_all_there, assert_equal, await_status, client, client_in_d, eventually, fill, from_environment,
    node, schema,
};

const JOINER: u8 = 3;

pub fn heavy_work_is_no_fault(bed: &Bed) {
    let mut spec = bed.spec();
    spec.provider_options = "repl.status_extended=yes".to_owned();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let seconds = Duration::from_secs(from_environment("SECONDS").unwrap_or(4));
    let load = Load::start(&cluster.endpoints());

    // One transaction, of a thousand bytes per row.
    let megabytes = from_environment("MEGABYTES").unwrap_or(64u32);
    client(&cluster, 1).run("SET GLOBAL wsrep_max_ws_size = 2147483647");
    let calm = Calm::now(&cluster, &load);
    fill(&cluster, megabytes * 1000);
    for n in 1..=3 {
        assert_eq!(client_in_d(&cluster, n).number("SELECT COUNT(*) FROM bulk"), i64::from(megabytes) * 1000);
    }
    load.await_progress(50);
    calm.still(&cluster, &load, &format!("a transaction of {megabytes} MB"));

    let calm = Calm::now(&cluster, &load);
    keep_processors_busy(seconds);
    load.await_progress(50);
    calm.still(&cluster, &load, &format!("no processor idle for {} s", seconds.as_secs()));
    let mut acknowledged = load.finish();

    // A transfer that takes long.
    cluster.kill(node(JOINER)).unwrap();
    await_status(&cluster, 1, "wsrep_cluster_size", "2");
    let _ = std::fs::remove_file(cluster.node(node(JOINER)).unwrap().data().join("grastate.dat"));
    let load = Load::resume(&cluster.endpoints(), "b");
    // The script that can be held up longest.
    cluster.set_options(node(JOINER), vec![format!("wsrep-sst-method={}", SstMethod::Mariabackup)]).unwrap();
    cluster.launch(node(JOINER), Start::Plain).unwrap();
    let giver = eventually("a donor is at work", || donor(&cluster));
    cluster.pause_transfer(giver).unwrap();
    let calm = Calm::now(&cluster, &load);
    load.await_progress(50);
    std::thread::sleep(seconds); // for so long nothing arrives
    assert_eq!(donor(&cluster), Ok(giver), "the transfer was to last");
    cluster.resume_transfer(giver).unwrap();
    cluster.wait_synced(node(JOINER), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    load.await_progress(50);
    calm.still(&cluster, &load, &format!("a transfer that stood still for {} s", seconds.as_secs()));

    acknowledged.extend(load.finish());
    for n in 1..=3 {
        assert_all_there(&cluster, n, &acknowledged);
    }
    assert_equal(&cluster);
}

fn donor(cluster: &Cluster) -> Result<NodeId, String> {
    let states = cluster.status();
    let donor = states.iter().find(|status| status.state.starts_with("Donor"));
    donor.map(|status| status.node).ok_or_else(|| format!("{:?}", states.iter().map(|s| &s.state).collect::<Vec<_>>()))
}

/// The figures that must not change, and the time since when.
struct Calm {
    began: Instant,
    views: f64,
    terms: f64,
    errors: u64,
}

impl Calm {
    fn now(cluster: &Cluster, load: &Load) -> Calm {
        Calm {
            began: Instant::now(),
            views: highest(cluster, "wsrep_cluster_conf_id"),
            terms: highest(cluster, "wsrep_trireme_term_changes"),
            errors: load.errors(),
        }
    }

    /// No view, hence no eviction, and no client error. The sequencer may have changed silently, which is counted.
    fn still(&self, cluster: &Cluster, load: &Load, what: &str) {
        let terms = highest(cluster, "wsrep_trireme_term_changes") - self.terms;
        let peaks: Vec<String> = cluster.nodes().iter().map(|node| peak_memory(node.pid)).collect();
        println!(
            "heavy_work_is_no_fault: {what}: {:.1} s, {terms} changes of the sequencer, peak memory {}",
            self.began.elapsed().as_secs_f64(),
            peaks.join(", ")
        );
        assert_eq!(load.errors(), self.errors, "{what}: a client was told of an error");
        assert_eq!(highest(cluster, "wsrep_cluster_conf_id"), self.views, "{what}: the view changed");
        for status in cluster.status() {
            assert!(status.is_synced() && status.members == Some(3), "{what}: {}: {status:?}", status.node);
        }
    }
}

fn highest(cluster: &Cluster, variable: &str) -> f64 {
    let values: Vec<f64> = cluster.status().iter().filter_map(|status: &NodeStatus| status.number(variable)).collect();
    assert!(!values.is_empty(), "nobody says {variable}");
    values.into_iter().fold(f64::MIN, f64::max)
}

fn peak_memory(pid: Option<i32>) -> String {
    let status = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok()).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or("unknown".to_owned(), |peak| peak.trim().to_owned())
}

/// Twice as many threads as there are processors.
fn keep_processors_busy(time: Duration) {
    let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    n = black_box(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                }
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
}
