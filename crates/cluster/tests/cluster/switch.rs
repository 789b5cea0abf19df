//! From Galera to Trireme and back, as an operator does it: all are stopped in order, one line is changed, the last one begins.

use std::path::Path;

use trireme_cluster::{Cluster, Start, Stop, galera_provider};

use crate::support::{Bed, Load, assert_all_there, assert_equal, history, node, schema};

const NODES: u8 = 3;

pub fn the_library_is_changed_and_changed_back(bed: &Bed) {
    let Some(galera) = galera_provider().filter(|_| !bed.is_galera()) else {
        return bed.skip("this takes both libraries: Galera's (package galera-4) and ours");
    };
    let mut spec = bed.spec();
    spec.provider = galera.to_owned();
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let load = Load::start(&cluster.endpoints());
    load.await_progress(50);
    let mut kept = load.finish();
    let begun = history(&cluster, 1);
    for (round, library) in [("ours", bed.provider()), ("back", galera)] {
        change(&mut cluster, library);
        assert_eq!(history(&cluster, 1), begun, "{round}: the data go on in their history");
        for n in 1..=NODES {
            assert_all_there(&cluster, n, &kept);
        }
        let load = Load::resume(&cluster.endpoints(), round);
        load.await_progress(50);
        kept.extend(load.finish());
    }
    assert_equal(&cluster);
}

fn change(cluster: &mut Cluster, library: &Path) {
    for n in 1..=NODES {
        cluster.stop(node(n), Stop::Graceful).unwrap_or_else(|error| panic!("{error}"));
    }
    cluster.set_provider(library).unwrap_or_else(|error| panic!("{error}"));
    for n in (1..=NODES).rev() {
        // The last one to leave begins; the others are started as systemd does.
        let how = if n == NODES { Start::Bootstrap } else { Start::Recover };
        cluster.start(node(n), how, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    }
}
