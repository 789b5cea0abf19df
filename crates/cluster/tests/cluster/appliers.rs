//! Many writers, many appliers.

use crate::support::{Bed, assert_equal, client_in_d, eventually, handed_on, schema};

pub fn parallel_appliers_give_equal_data(bed: &Bed) {
    let cluster = bed.up(&bed.spec().option("wsrep_slave_threads=8"));
    schema(&cluster, 1);
    let mut a = client_in_d(&cluster, 1);
    a.all(&[
        "CREATE TABLE parent (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE child (id INT AUTO_INCREMENT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES parent(id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE nopk (a INT, b INT)",
        "CREATE TABLE uniq (id INT PRIMARY KEY, u INT, UNIQUE KEY (u))",
        "INSERT INTO parent SELECT seq, 0 FROM seq_1_to_200",
        "INSERT INTO uniq SELECT seq, seq FROM seq_1_to_200",
    ]);
    for n in 2..=3 {
        client_in_d(&cluster, n).run("SELECT COUNT(*) FROM uniq");
    }
    let cluster_ref = &*cluster;
    let committed: i64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3u8)
            .flat_map(|n| (0..4).map(move |w| (n, w)))
            .map(|(n, w)| scope.spawn(move || write_mix(cluster_ref, n, w)))
            .collect();
        writers.into_iter().map(|writer| handed_on(writer.join())).sum()
    });
    let mut look = client_in_d(&cluster, 2);
    assert_eq!(look.number("SELECT COUNT(*) FROM nopk"), committed, "acknowledged transactions each left one row");
    assert_eq!(look.number("SELECT COUNT(*) FROM child WHERE p NOT IN (SELECT id FROM parent)"), 0);
    assert_equal(&cluster);

    // Changing the number of appliers. One that is too many ends after its next write set. The server computes how many to start
    // from counters that such an end changes, and waits for ever when the two meet: so each end is awaited.
    for (threads, then) in [(1, 7), (16, 16), (2, 15)] {
        look.run(&format!("SET GLOBAL wsrep_slave_threads = {threads}"));
        a.run("INSERT INTO nopk SELECT seq, seq FROM seq_1_to_100");
        look.run("SELECT COUNT(*) FROM nopk");
        eventually(&format!("{then} appliers are left"), || {
            let running = look.number("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_applier_thread_count'");
            if running == then { Ok(()) } else { Err(format!("{running}")) }
        });
    }
    assert_eq!(look.number("SELECT COUNT(*) FROM nopk"), committed + 300);
    assert_equal(&cluster);
}

/// Transactions over all tables, each with one insert into the table without a key; returns how many committed.
fn write_mix(cluster: &trireme_cluster::Cluster, n: u8, writer: u32) -> i64 {
    let mut client = client_in_d(cluster, n);
    client.run("SET SESSION wsrep_sync_wait = 0");
    let mut random = u64::from(n) * 1000 + u64::from(writer);
    let mut draw = |limit: u64| {
        // Any cheap spread of rows will do.
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % limit
    };
    let mut committed = 0;
    for round in 0..120 {
        let parent = draw(200) + 1;
        let change = match draw(6) {
            0 => format!("INSERT INTO child (p, v) VALUES ({parent}, {round})"),
            1 => format!("UPDATE parent SET v = v + 1 WHERE id = {parent}"),
            2 => format!("DELETE FROM child WHERE p = {parent}"),
            3 => format!("UPDATE uniq SET u = u + 1000000 * {} WHERE id = {parent}", round + 1),
            4 => format!("REPLACE INTO uniq VALUES ({parent}, {})", draw(1_000_000_000)),
            _ => format!("UPDATE child SET v = v + 1 WHERE p BETWEEN {parent} AND {}", parent + 5),
        };
        let outcome = client
            .session
            .query("BEGIN")
            .and_then(|_| client.session.query(&change))
            .and_then(|_| client.session.query(&format!("INSERT INTO nopk VALUES ({n}, {round})")))
            .and_then(|_| client.session.query("COMMIT"));
        match outcome {
            Ok(_) => committed += 1,
            Err(error) => {
                assert!(matches!(error.code(), Some(1213 | 1205 | 1062 | 1452 | 1264)), "{change}: {error}");
                client.run("ROLLBACK");
            }
        }
    }
    committed
}
