//! Disks that fill up, turn read-only, fail or hang: one node falls behind, the others go on, and it comes back.

use trireme_cluster::{Cluster, Disks, Liveness, LogCursor, Start, Stop, disks_available};

use crate::support::{
    Bed, Load, assert_all_there, assert_equal, await_status, client, eventually, log_io_of, node, schema, status_of,
};

/// The node whose disk it is.
const SICK: u8 = 3;

/// Each fault in turn, on the disk with one node's write-set log.
pub fn a_sick_log_disk_costs_one_node(bed: &Bed) {
    cost_one_node(bed, "threads");
}

/// The same, where the log is written past the page cache.
pub fn a_sick_log_disk_past_the_page_cache_costs_one_node(bed: &Bed) {
    cost_one_node(bed, "uring");
}

fn cost_one_node(bed: &Bed, log_io: &str) {
    if let Err(error) = disks_available() {
        return bed.skip(error);
    }
    let mut spec = bed.spec();
    // The log, and 8 MiB of the flight recorder.
    spec.disks = Some(Disks::of_log(80));
    // Small segments, so that the next one is needed soon; and enough of them for what a quick machine writes while the node is away.
    spec.provider_options = format!("gcache.size=32M; repl.log_io={log_io}; repl.status_extended=yes");
    let mut cluster = bed.up(&spec);
    if log_io_of(&cluster, SICK).as_deref() != Some(log_io) {
        return bed.skip("this machine has no io_uring");
    }
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints()[..2]);
    let disk = cluster.disk(node(SICK)).unwrap();

    // Full: the node leaves when it needs more room, and comes back when there is some.
    let mut log = LogCursor::at_end(&cluster.node(node(SICK)).unwrap().log());
    disk.fill_up().unwrap();
    await_out(&cluster, &mut log, "No space left on device");
    load.await_progress(50);
    disk.make_room().unwrap();
    await_back(&cluster, &load);

    // Read-only, as the kernel makes it after an error. The server runs on while the file system is unmounted and mounted again.
    disk.make_read_only().unwrap();
    await_out(&cluster, &mut log, "Read-only file system");
    load.await_progress(50);
    disk.power_on().unwrap();
    await_back(&cluster, &load);

    // Every operation fails, first while the server runs on, then with a restart.
    disk.cut_power().unwrap();
    await_out(&cluster, &mut log, "Input/output error");
    load.await_progress(50);
    disk.power_on().unwrap();
    await_back(&cluster, &load);
    assert_eq!(cluster.liveness(node(SICK)).unwrap(), Liveness::Running);
    disk.cut_power().unwrap();
    await_out(&cluster, &mut log, "Input/output error");
    repair_and_start(&mut cluster, &load);

    // It hangs, and nothing need be done once it goes on. A thread that waits for it cannot be told from a frozen machine. Past the page cache
    // no thread has to wait at once: until one does, the node stays, and follows the others.
    disk.freeze().unwrap();
    load.await_progress(50);
    let others = committed(&cluster, 1).unwrap();
    eventually("the node is dropped, or follows the others", || {
        let (size, own) = (status_of(&cluster, 1, "wsrep_cluster_size"), committed(&cluster, SICK));
        let follows = log_io == "uring" && own.is_some_and(|own| own >= others);
        if follows || size.as_deref() == Some("2") {
            Ok(())
        } else {
            Err(format!("size {size:?}, {own:?} of {others}"))
        }
    });
    load.await_progress(50);
    disk.thaw().unwrap();
    // The others may have decided just before that it goes, and nobody shows that yet. All that they commit from here on comes behind it.
    load.await_progress(50);
    let others = committed(&cluster, 1).unwrap();
    eventually("the node has what was committed since", || match committed(&cluster, SICK) {
        Some(own) if own >= others => Ok(()),
        own => Err(format!("{own:?} of {others}")),
    });
    await_back(&cluster, &load);

    let acknowledged = load.finish();
    assert_all_there(&cluster, SICK, &acknowledged);
    assert_equal(&cluster);
}

/// The node says why and leaves; its server runs and answers, but takes no commits; the others are two, and go on.
fn await_out(cluster: &Cluster, log: &mut LogCursor, reason: &str) {
    let mut seen = Vec::new();
    eventually(&format!("node{SICK} says: {reason}"), || {
        seen.extend(log.lines());
        if seen.iter().any(|line| line.contains(reason)) { Ok(()) } else { Err(format!("{} lines", seen.len())) }
    });
    await_status(cluster, 1, "wsrep_cluster_size", "2");
    await_status(cluster, SICK, "wsrep_ready", "OFF");
    assert_eq!(cluster.liveness(node(SICK)).unwrap(), Liveness::Running);
    assert_eq!(client(cluster, SICK).refused("INSERT INTO d.load_rows VALUES ('refused', 0, '')"), 1047);
}

fn committed(cluster: &Cluster, n: u8) -> Option<u64> {
    status_of(cluster, n, "wsrep_last_committed")?.parse().ok()
}

fn await_back(cluster: &Cluster, load: &Load) {
    cluster.wait_synced(node(SICK), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    await_status(cluster, 1, "wsrep_cluster_size", "3");
    load.await_progress(50);
}

fn repair_and_start(cluster: &mut Cluster, load: &Load) {
    load.await_progress(50);
    cluster.stop(node(SICK), Stop::Graceful).unwrap();
    cluster.disk(node(SICK)).unwrap().power_on().unwrap();
    cluster.start(node(SICK), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    await_back(cluster, load);
}

/// As by default the log lies in the data directory, and whichever needs room first meets the end of it. A write set that the engine has no
/// room for is an error that the others do not have: the node leaves, and needs a restart and a full copy.
pub fn a_full_data_disk_costs_one_node(bed: &Bed) {
    if let Err(error) = disks_available() {
        return bed.skip(error);
    }
    let mut spec = bed.spec();
    spec.disks = Some(Disks::of_data());
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints()[..2]);
    let disk = cluster.disk(node(SICK)).unwrap();
    disk.fill_up().unwrap();
    await_status(&cluster, 1, "wsrep_cluster_size", "2");
    load.await_progress(50);
    disk.make_room().unwrap();
    if cluster.liveness(node(SICK)).unwrap() == Liveness::Running {
        cluster.stop(node(SICK), Stop::Graceful).unwrap();
    }
    cluster.start(node(SICK), Start::Plain, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    await_back(&cluster, &load);
    let acknowledged = load.finish();
    assert_all_there(&cluster, SICK, &acknowledged);
    assert_equal(&cluster);
}
