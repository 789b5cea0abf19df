//! What a node measures, and the file by which it tells.

use std::path::Path;

use trireme_metrics::names;
use trireme_metrics::state::{FILE_NAME, State};
use trireme_node::StatValue;

use crate::cluster::{Cluster, agree};
use crate::fake::until;

/// The newest whole content.
fn read(dir: &Path) -> Option<State> {
    State::decode(&std::fs::read(dir.join(FILE_NAME)).ok()?).ok()
}

#[test]
fn commits_move_the_metrics_and_the_state_file_tells_them() {
    let cluster = Cluster::new(2);
    let hosts = cluster.start();
    let dirs = [&cluster.sites[0].dir, &cluster.sites[1].dir];
    for n in 0..20 {
        hosts[0].commit("a", &format!("{n}"));
    }
    hosts[1].node().sync_wait(None, trireme_node::Wait::Default);
    let count = |site: usize, name: &str| {
        read(dirs[site]).and_then(|state| Some(state.histograms.get(name)?.count())).unwrap_or(0)
    };
    for stage in ["send", "order", "wait", "engine", "total"] {
        let name = format!("trireme_commit_seconds{{stage=\"{stage}\"}}");
        until("the stages of 20 commits", || count(0, &name) >= 20);
        assert_eq!(count(1, &name), 0, "{name} of a node without clients");
    }
    until("applied", || count(1, "trireme_apply_seconds") >= 20);
    until("a causal read", || count(1, "trireme_causal_read_seconds") == 1);
    until("a lag", || count(1, "trireme_apply_lag_seconds") > 0);
    until("syncs", || count(0, "trireme_log_sync_seconds") > 0);
    until("answers of the group thread", || count(0, "trireme_group_thread_delay_seconds") > 2);
    let number = |site: usize, name: &str| read(dirs[site]).and_then(|state| state.number(name));
    until("levels", || number(0, "trireme_status") == Some(0.0) && number(0, "trireme_has_sequencer") == Some(1.0));
    assert_eq!(number(0, "trireme_commits_total"), Some(20.0));
    assert_eq!(number(0, "trireme_is_sequencer").unwrap() + number(1, "trireme_is_sequencer").unwrap(), 1.0);
    // Every name is in the table.
    let state = read(dirs[0]).unwrap();
    for name in state.numbers.keys().chain(state.histograms.keys()) {
        let bare = name.split('{').next().unwrap();
        assert!(names::find(bare).is_some(), "{bare} is not described");
    }
    // And so are those that the server shows.
    let StatValue::Text(latency) = hosts[0].stat("evs_repl_latency") else { panic!("no text") };
    let parts: Vec<f64> = latency.split('/').map(|part| part.parse().unwrap()).collect();
    assert!(parts.len() == 5 && 0.0 < parts[0] && parts[0] <= parts[1] && parts[1] <= parts[2], "{latency}");
    assert_eq!(parts[4], 20.0);
    let window = |name: &str| match hosts[1].stat(name) {
        StatValue::Double(value) => value,
        other => panic!("{name}: {other:?}"),
    };
    assert!(window("apply_window") >= 1.0 && window("commit_window") >= 1.0);
    agree(hosts);
    until("closed", || read(dirs[0]).is_some_and(|state| state.closed));
}
