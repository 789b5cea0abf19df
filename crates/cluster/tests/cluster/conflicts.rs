//! Writers on different nodes that want the same rows.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;

use crate::support::{Bed, Client, assert_equal, client_in_d, eventually, handed_on, schema};

const DEADLOCK: u16 = 1213;

pub fn conflicts_end_on_exactly_one_side(bed: &Bed) {
    let cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    let mut a = client_in_d(&cluster, 1);
    let mut b = client_in_d(&cluster, 2);
    let mut look = client_in_d(&cluster, 1);
    a.all(&["CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t SELECT seq, 0 FROM seq_1_to_100"]);
    b.run("SELECT COUNT(*) FROM t");

    // An open transaction loses against one that committed elsewhere, at its next step at the latest.
    a.all(&["BEGIN", "UPDATE t SET v=1 WHERE id=1"]);
    b.run("UPDATE t SET v=2 WHERE id=1");
    eventually("node1 has node2's value", || match look.number("SELECT v FROM t WHERE id=1") {
        2 => Ok(()),
        v => Err(format!("v = {v}")),
    });
    assert_eq!(a.refused("COMMIT"), DEADLOCK);
    assert_eq!(a.number("SELECT v FROM t WHERE id=1"), 2);

    // Different rows: both commit.
    a.all(&["BEGIN", "UPDATE t SET v=3 WHERE id=2"]);
    b.all(&["BEGIN", "UPDATE t SET v=4 WHERE id=3"]);
    a.run("COMMIT");
    b.run("COMMIT");

    // The same row, commits sent at the same moment, many times: exactly one side wins every time.
    let mut wins = [0, 0];
    for n in 0..100 {
        let id = n % 10 + 10;
        a.all(&["BEGIN", &format!("UPDATE t SET v={} WHERE id={id}", 1000 + n)]);
        // The other side may wait behind an applier or be chosen as the victim at once.
        let begun = b
            .session
            .query("BEGIN")
            .and_then(|_| b.session.query(&format!("UPDATE t SET v={} WHERE id={id}", 2000 + n)));
        a.session.send("COMMIT").unwrap();
        let b_won = begun.is_ok() && {
            b.session.send("COMMIT").unwrap();
            expect_deadlock_or_ok(b.session.receive())
        };
        let a_won = expect_deadlock_or_ok(a.session.receive());
        assert!(a_won != b_won, "round {n}: node1 {}, node2 {}", verdict(a_won), verdict(b_won));
        let expected = if a_won { 1000 + n } else { 2000 + n };
        assert_eq!(b.number(&format!("SELECT v FROM t WHERE id={id}")), expected);
        wins[usize::from(b_won)] += 1;
        if !b_won {
            b.run("ROLLBACK");
        }
        if !a_won {
            a.run("ROLLBACK");
        }
    }
    assert_eq!(wins[0] + wins[1], 100);

    // Two inserts of one key.
    a.all(&["BEGIN", "INSERT INTO t VALUES (500, 1)"]);
    b.all(&["BEGIN", "INSERT INTO t VALUES (500, 2)", "COMMIT"]);
    let code = a.refused("COMMIT");
    assert!(code == DEADLOCK || code == 1062, "error {code}");
    assert_eq!(a.number("SELECT v FROM t WHERE id=500"), 2);

    // A parent deleted elsewhere while a child is inserted here.
    a.all(&[
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p(id))",
        "INSERT INTO p VALUES (1)",
        "BEGIN",
        "INSERT INTO c VALUES (1, 1)",
    ]);
    b.run("DELETE FROM p WHERE id=1");
    assert_eq!(a.refused("COMMIT"), DEADLOCK);
    assert_eq!(a.number("SELECT COUNT(*) FROM c"), 0);

    // DDL from elsewhere ends an open transaction on its table.
    a.all(&["BEGIN", "UPDATE t SET v=9 WHERE id=90"]);
    b.run("ALTER TABLE t ADD COLUMN w INT");
    assert_eq!(a.refused("COMMIT"), DEADLOCK);
    assert_eq!(b.number("SELECT v FROM t WHERE id=90"), 0);

    assert_equal(&cluster);
}

fn expect_deadlock_or_ok(outcome: Result<trireme_cluster::Answer, trireme_cluster::SqlError>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.code(), Some(DEADLOCK), "{error}");
            false
        }
    }
}

fn verdict(won: bool) -> &'static str {
    if won { "committed" } else { "was refused" }
}

/// One transaction. `false`: it was refused for a conflict, and is rolled back.
fn attempt(client: &mut Client, steps: &[&str]) -> bool {
    let outcome = steps.iter().try_for_each(|step| client.session.query(step).map(drop));
    if let Err(error) = &outcome {
        assert!(matches!(error.code(), Some(DEADLOCK | 1205)), "{error}");
        client.run("ROLLBACK");
    }
    outcome.is_ok()
}

/// How many transactions of all writers were done, and how many were refused.
fn sums(writers: Vec<ScopedJoinHandle<'_, (i64, i64)>>) -> (i64, i64) {
    let counts = writers.into_iter().map(|writer| handed_on(writer.join()));
    counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Counters incremented from all nodes: the sum must be the number of acknowledged increments. Brute-force aborts,
/// replays and retried statements all happen on the way.
pub fn no_update_is_lost_under_contention(bed: &Bed) {
    let cluster = bed.up(&bed.spec().option("wsrep_slave_threads=4"));
    schema(&cluster, 1);
    let mut a = client_in_d(&cluster, 1);
    a.all(&[
        "CREATE TABLE counter (id INT PRIMARY KEY, v INT NOT NULL)",
        "INSERT INTO counter SELECT seq, 0 FROM seq_1_to_5",
    ]);
    for n in 2..=3 {
        client_in_d(&cluster, n).run("SELECT COUNT(*) FROM counter");
    }
    const WRITERS_PER_NODE: usize = 2;
    const ROUNDS: usize = 150;
    let cluster_ref = &*cluster;
    let (acknowledged, refused) = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3u8)
            .flat_map(|n| (0..WRITERS_PER_NODE).map(move |w| (n, w)))
            .map(|(n, w)| {
                scope.spawn(move || {
                    let mut client = client_in_d(cluster_ref, n);
                    let (mut acknowledged, mut refused) = (0, 0);
                    for round in 0..ROUNDS {
                        let id = (round + w) % 5 + 1;
                        // Half in transactions of two statements, half by autocommit.
                        let update = format!("UPDATE counter SET v=v+1 WHERE id={id}");
                        let done = match round % 2 {
                            0 => attempt(&mut client, &["BEGIN", &update, "COMMIT"]),
                            _ => attempt(&mut client, &[&update]),
                        };
                        *if done { &mut acknowledged } else { &mut refused } += 1;
                    }
                    (acknowledged, refused)
                })
            })
            .collect();
        sums(writers)
    });
    assert!(acknowledged > 0 && refused > 0, "no contention: {acknowledged} acknowledged, {refused} refused");
    for n in 1..=3 {
        let sum = client_in_d(&cluster, n).number("SELECT SUM(v) FROM counter");
        assert_eq!(sum, acknowledged, "node{n}");
    }
    assert_equal(&cluster);
}

/// A view with the members of the one before it ends all streaming transactions, wherever they are. Its callback waits until the own ones have
/// ended, also one whose commit is ordered behind it.
pub fn streaming_commits_beside_views(bed: &Bed) {
    let cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    client_in_d(&cluster, 1).run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL)");
    (2..=3).for_each(|n| drop(client_in_d(&cluster, n).run("SELECT COUNT(*) FROM t")));
    const ROUNDS: usize = 60;
    let tried = &AtomicUsize::new(0);
    let cluster_ref = &*cluster;
    let (committed, ended) = std::thread::scope(|scope| {
        let stream = move |n| {
            let mut client = client_in_d(cluster_ref, n);
            client.all(&["SET wsrep_trx_fragment_unit='statements'", "SET wsrep_trx_fragment_size=1"]);
            let (mut committed, mut ended) = (0, 0);
            for _ in 0..ROUNDS {
                tried.fetch_add(1, Relaxed);
                let steps = ["BEGIN", "INSERT INTO t (v) VALUES (1)", "INSERT INTO t (v) VALUES (2)", "COMMIT"];
                *if attempt(&mut client, &steps) { &mut committed } else { &mut ended } += 1;
            }
            (committed, ended)
        };
        let writers: Vec<_> = [1, 2, 2, 3].map(|n| scope.spawn(move || stream(n))).into();
        let mut operator = client_in_d(cluster_ref, 1);
        for change in 1..30 {
            eventually("some transactions more", || {
                let tried = tried.load(Relaxed);
                if tried > 8 * change || tried == 4 * ROUNDS { Ok(()) } else { Err(format!("{tried} tried")) }
            });
            let weight = change % 2 + 1;
            operator.run(&format!("SET GLOBAL wsrep_provider_options='pc.weight={weight}'"));
        }
        sums(writers)
    });
    assert!(committed > 0 && ended > 0, "{committed} committed, {ended} ended by a view");
    for n in 1..=3 {
        let mut client = client_in_d(&cluster, n);
        assert_eq!(client.number("SELECT COUNT(*) FROM t WHERE v=1"), committed, "node{n}");
        assert_eq!(client.number("SELECT COUNT(*) FROM t WHERE v=2"), committed, "node{n}");
        eventually("no fragment is left", || match client.number("SELECT COUNT(*) FROM mysql.wsrep_streaming_log") {
            0 => Ok(()),
            left => Err(format!("node{n} has {left}")),
        });
    }
    assert_equal(&cluster);
}
