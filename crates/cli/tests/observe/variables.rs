//! The status variables that servers show: all of them move on a cluster at work, but for those of which the page says why they do not.

use std::collections::{BTreeMap, BTreeSet};

use trireme_cluster::{ClusterGuard, NodeId};

use crate::dashboard::{Load, schema};
use crate::{cluster_of_three, until, until_seen};

const PAGE: &str = include_str!("../../../../docs/operations/status.md");

/// Those that stay zero, by the table at the end of the page.
fn stay_zero() -> BTreeSet<&'static str> {
    let table = PAGE.split_once("These stay zero:").expect("the page has the table").1;
    let first_cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    first_cells.flat_map(|(cell, _)| cell.split('`')).filter(|name| name.starts_with("wsrep_")).collect()
}

/// Variables that are zero because an option says so.
const AS_SET: &[&str] = &["wsrep_gmcast_segment"];

/// All values that a variable had on any node.
#[derive(Default)]
struct Seen(BTreeMap<String, BTreeSet<String>>);

impl Seen {
    fn look(&mut self, cluster: &ClusterGuard, nodes: &[u8]) {
        for n in nodes {
            let rows = cluster.sql(NodeId::new(*n).unwrap(), "SHOW GLOBAL STATUS LIKE 'wsrep\\_%'").unwrap().texts();
            for row in rows {
                let [name, value] = &row[..] else { panic!("{row:?}") };
                self.0.entry(name.to_ascii_lowercase()).or_default().insert(value.clone());
            }
        }
    }

    /// Has it been anything but zero, or empty? Some hold several numbers.
    fn has_moved(&self, name: &str) -> bool {
        let is_something = |part: &str| part.parse::<f64>().map_or(!part.is_empty(), |number| number != 0.0);
        self.0.get(name).is_some_and(|values| values.iter().flat_map(|value| value.split('/')).any(is_something))
    }

    /// Looks until all of these have moved.
    fn until(&mut self, cluster: &ClusterGuard, nodes: &[u8], names: &[&str]) {
        until_seen(&format!("{names:?} to move"), || {
            self.look(cluster, nodes);
            let still: Vec<&&str> = names.iter().filter(|name| !self.has_moved(name)).collect();
            if still.is_empty() { Ok(()) } else { Err(format!("{still:?} stay zero. {}", self.all())) }
        });
    }

    /// Of each variable the values that were seen, for messages. The longest lists are cut.
    fn all(&self) -> String {
        let one = |(name, values): (&String, &BTreeSet<String>)| {
            let few: Vec<&str> = values.iter().take(9).map(String::as_str).collect();
            format!("\n{name}: {} values: {}", values.len(), few.join(", "))
        };
        "All that was seen:".to_owned() + &self.0.iter().map(one).collect::<String>()
    }

    fn numbers(&self) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        let all = self.0.iter().map(|(name, values)| (name.as_str(), values));
        all.filter(|(_, values)| values.iter().all(|value| value.parse::<f64>().is_ok()))
    }
}

const ALL: &[u8] = &[1, 2, 3];

#[test]
#[ignore = "starts real servers: PROVIDER=… cargo test -p trireme-cli --test observe -- --ignored"]
fn every_variable_moves_or_the_page_says_why_it_does_not() {
    let mut cluster = cluster_of_three("variables", 400);
    schema(&cluster);
    let id = |n| NodeId::new(n).unwrap();
    let endpoints = cluster.endpoints();
    let session = |n: usize| endpoints[n - 1].session_in(Some("d")).unwrap();
    for n in ALL {
        cluster.sql(id(*n), "SET GLOBAL wsrep_slave_threads = 4").unwrap();
    }
    let mut seen = Seen::default();
    seen.look(&cluster, ALL);

    // Conflicts; and a client whose locks reach farther than its keys, so that it gives way to appliers after it was certified.
    let load = Load::start(cluster.endpoints());
    load.meet(true);
    let mut wide = session(2);
    let names = ["wsrep_local_cert_failures", "wsrep_local_bf_aborts", "wsrep_local_replays"];
    until_seen(&format!("{names:?} to move"), || {
        for _ in 0..20 {
            // Conflicts are what is wanted.
            let _ = wide.query("UPDATE load_ SET n = n + 1 WHERE id = 4 OR n < -1");
        }
        seen.look(&cluster, ALL);
        let still: Vec<&str> = names.into_iter().filter(|name| !seen.has_moved(name)).collect();
        if still.is_empty() { Ok(()) } else { Err(format!("{still:?} stay zero. {}", seen.all())) }
    });
    load.meet(false);
    let moved = [
        "wsrep_apply_oooe",
        "wsrep_apply_oool",
        "wsrep_apply_window",
        "wsrep_apply_waits",
        "wsrep_commit_window",
        "wsrep_cert_deps_distance",
        "wsrep_cert_interval",
        "wsrep_evs_repl_latency",
    ];
    seen.until(&cluster, ALL, &moved);

    let mut reader = session(1);
    reader.query("SET SESSION wsrep_sync_wait = 1").unwrap();
    reader.query("SELECT COUNT(*) FROM load_").unwrap();
    let mut open = session(1);
    open.query("BEGIN").unwrap();
    open.query("INSERT INTO load_ VALUES (77, 0)").unwrap();
    seen.until(&cluster, ALL, &["wsrep_causal_reads", "wsrep_open_transactions"]);
    open.query("ROLLBACK").unwrap();

    // A table that is locked for long enough, and several clients that wait for it at one node.
    let crowd = Load::start(vec![endpoints[0].clone(); 4]);
    let mut locker = session(3);
    // Writers wait for as long as it takes to look.
    locker.query("SET GLOBAL wsrep_provider_options='gcs.fc_patience=PT30S'").unwrap();
    load.pause(true);
    locker.query("SET SESSION lock_wait_timeout = 1").unwrap();
    until("the lock", || locker.query("LOCK TABLES load_ WRITE").is_ok());
    load.pause(false);
    let slow = [
        "wsrep_flow_control_paused",
        "wsrep_flow_control_paused_ns",
        "wsrep_flow_control_sent",
        "wsrep_flow_control_recv",
        "wsrep_local_recv_queue",
        "wsrep_local_recv_queue_avg",
        "wsrep_local_recv_queue_max",
        "wsrep_local_send_queue",
        "wsrep_local_send_queue_avg",
        "wsrep_local_send_queue_max",
    ];
    seen.until(&cluster, ALL, &slow);
    // The shortest that the queue has been: nothing, unless it is counted from now on.
    cluster.sql(id(3), "FLUSH NO_WRITE_TO_BINLOG STATUS").unwrap();
    seen.until(&cluster, ALL, &["wsrep_local_recv_queue_min"]);
    locker.query("UNLOCK TABLES").unwrap();
    drop(crowd);

    cluster.sql(id(2), "SET GLOBAL wsrep_desync = ON").unwrap();
    seen.until(&cluster, ALL, &["wsrep_desync_count"]);
    cluster.sql(id(2), "SET GLOBAL wsrep_desync = OFF").unwrap();

    cluster.pause(id(3)).unwrap();
    // The sequencer judges; it may be the one that is frozen, and is another one then.
    seen.until(&cluster, &[1, 2], &["wsrep_evs_delayed"]);
    cluster.resume(id(3)).unwrap();
    drop(load);

    for (name, values) in seen.numbers().filter(|(_, values)| values.len() == 1) {
        println!("{name} was {values:?} all the time");
    }
    let zero: BTreeSet<&str> = seen.numbers().map(|(name, _)| name).filter(|name| !seen.has_moved(name)).collect();
    let mut expected = stay_zero();
    assert!(expected.len() >= 5, "{expected:?}");
    expected.extend(AS_SET);
    let unknown: Vec<&&str> = zero.difference(&expected).collect();
    assert!(unknown.is_empty(), "these stayed zero: {unknown:?}. {}", seen.all());
    let stale: Vec<&&str> = expected.difference(&zero).collect();
    assert!(stale.is_empty(), "these moved, or are not shown: {stale:?}. {}", seen.all());
}
