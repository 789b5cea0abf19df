//! Statements that change schemas.

use crate::support::{Bed, assert_equal, await_status, client, client_in_d, eventually, schema};

pub fn ddl_runs_in_total_order(bed: &Bed) {
    let cluster = bed.up(&bed.spec());
    schema(&cluster, 2);
    let mut a = client_in_d(&cluster, 1);
    let mut b = client_in_d(&cluster, 2);
    let mut c = client_in_d(&cluster, 3);

    a.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)");
    b.run("INSERT INTO t VALUES (1,1),(2,2)");
    c.all(&["ALTER TABLE t ADD COLUMN w INT DEFAULT 7", "CREATE INDEX vw ON t (v, w)"]);
    // A causal read first: a statement that reads the table may be ended by one of before that is still to be applied here.
    a.run("SELECT COUNT(*) FROM t");
    a.all(&[
        "CREATE TABLE copy AS SELECT * FROM t",
        "CREATE TABLE shape LIKE t",
        "CREATE VIEW view1 AS SELECT id FROM t",
    ]);
    b.all(&["RENAME TABLE copy TO renamed", "INSERT INTO shape SELECT * FROM t", "TRUNCATE TABLE renamed"]);
    assert_eq!(c.number("SELECT SUM(w) FROM t"), 14);
    assert_eq!(c.number("SELECT COUNT(*) FROM shape"), 2);
    assert_eq!(c.number("SELECT COUNT(*) FROM renamed"), 0);
    assert_eq!(c.number("SELECT COUNT(*) FROM view1"), 2);
    a.run("DROP TABLE shape");
    assert_eq!(b.refused("SELECT * FROM shape"), 1146);
    // A failing statement fails alike everywhere and changes nothing.
    assert_eq!(b.refused("CREATE TABLE t (x INT)"), 1050);
    assert_eq!(c.refused("ALTER TABLE t DROP COLUMN nothere"), 1091);
    // Accounts and functions.
    a.all(&[
        "CREATE USER u1@localhost IDENTIFIED BY 'secret'",
        "GRANT SELECT ON d.* TO u1@localhost",
        "CREATE FUNCTION f1() RETURNS INT DETERMINISTIC RETURN 42",
    ]);
    b.run("SELECT 1"); // a causal read: what came before is applied
    assert_eq!(b.number("SELECT COUNT(*) FROM mysql.global_priv WHERE User='u1'"), 1);
    assert_eq!(c.number("SELECT f1()"), 42);

    // The same DDL from all nodes at once: exactly one creates, the others see it there.
    let mut created = 0;
    for client in [&mut a, &mut b, &mut c] {
        client.session.send("CREATE TABLE race (id INT PRIMARY KEY)").unwrap();
    }
    for client in [&mut a, &mut b, &mut c] {
        match client.session.receive() {
            Ok(_) => created += 1,
            Err(error) => assert_eq!(error.code(), Some(1050), "{error}"),
        }
    }
    assert_eq!(created, 1);

    // DDL between writers of the same table.
    a.run("CREATE TABLE busy (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    b.run("SELECT COUNT(*) FROM busy");
    let mut acknowledged = 0;
    for n in 0..20 {
        a.session.send(&format!("INSERT INTO busy (v) VALUES ({n})")).unwrap();
        b.session.send(&format!("ALTER TABLE busy ADD COLUMN c{n} INT")).unwrap();
        match a.session.receive() {
            Ok(_) => acknowledged += 1,
            Err(error) => assert_eq!(error.code(), Some(1213), "{error}"),
        }
        b.session.receive().unwrap_or_else(|error| panic!("ALTER number {n}: {error}"));
    }
    assert_eq!(c.number("SELECT COUNT(*) FROM busy"), acknowledged);
    assert_eq!(
        c.number("SELECT COUNT(*) FROM information_schema.columns WHERE table_schema='d' AND table_name='busy'"),
        22
    );

    // Rolling schema upgrade: each node by itself.
    for n in 1..=3 {
        let mut client = client_in_d(&cluster, n);
        client.all(&["SET SESSION wsrep_OSU_method = RSU", "ALTER TABLE t ADD INDEX rsu (w)"]);
        let others = (1..=3).filter(|other| *other > n);
        for other in others {
            let mut other = client_in_d(&cluster, other);
            assert_eq!(
                other.number(
                    "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema='d' AND index_name='rsu'"
                ),
                0,
                "RSU reached another node"
            );
        }
        await_status(&cluster, n, "wsrep_local_state_comment", "Synced");
    }

    // Desync and back; a global read lock holds this node up, and only this one.
    let mut one = client(&cluster, 1);
    one.run("SET GLOBAL wsrep_desync = ON");
    await_status(&cluster, 1, "wsrep_local_state_comment", "Donor/Desynced");
    b.run("INSERT INTO t (id, v) VALUES (50, 50)");
    one.run("SET GLOBAL wsrep_desync = OFF");
    await_status(&cluster, 1, "wsrep_local_state_comment", "Synced");
    one.run("FLUSH TABLES WITH READ LOCK");
    b.run("INSERT INTO t (id, v) VALUES (51, 51)");
    assert_eq!(c.number("SELECT COUNT(*) FROM t WHERE id=51"), 1);
    assert_eq!(one.number("SELECT COUNT(*) FROM d.t WHERE id=51"), 0);
    one.run("UNLOCK TABLES");
    eventually("node1 applies what waited for the lock", || {
        if one.number("SELECT COUNT(*) FROM d.t WHERE id=51") == 1 { Ok(()) } else { Err("row missing".to_owned()) }
    });

    a.run("CREATE DATABASE gone");
    b.run("DROP DATABASE gone");
    assert_eq!(c.number("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='gone'"), 0);
    assert_equal(&cluster);
}
