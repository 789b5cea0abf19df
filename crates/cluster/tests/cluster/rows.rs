//! Replication of rows.

use crate::support::{Bed, assert_equal, client_in_d, eventually, schema};
use std::collections::BTreeSet;

pub fn rows_of_every_shape_replicate(bed: &Bed) {
    let cluster = bed.up(&bed.spec());
    schema(&cluster, 1);
    let mut a = client_in_d(&cluster, 1);
    let mut b = client_in_d(&cluster, 2);
    let mut c = client_in_d(&cluster, 3);

    // No primary key: equal rows, and an UPDATE and a DELETE that hit only some.
    a.run("CREATE TABLE nopk (a INT, b VARCHAR(20))");
    b.run("INSERT INTO nopk VALUES (1,'x'),(1,'x'),(2,'y'),(NULL,NULL)");
    c.all(&["UPDATE nopk SET b='z' WHERE a=1 LIMIT 1", "DELETE FROM nopk WHERE a=2"]);
    assert_eq!(a.number("SELECT COUNT(*) FROM nopk"), 3);

    // Composite and unique keys, with NULLs in the unique one.
    a.run("CREATE TABLE keyed (a INT, b CHAR(5), c INT, d INT, PRIMARY KEY (a,b), UNIQUE KEY (c), UNIQUE KEY (d,c))");
    b.run("INSERT INTO keyed VALUES (1,'a',1,1),(1,'b',NULL,1),(2,'a',NULL,NULL)");
    c.all(&["UPDATE keyed SET b='c' WHERE a=1 AND b='b'", "REPLACE INTO keyed VALUES (3,'x',1,9)"]);
    assert_eq!(a.number("SELECT COUNT(*) FROM keyed"), 3);
    assert_eq!(b.refused("INSERT INTO keyed VALUES (9,'q',1,0)"), 1062);

    // Foreign keys: cascades run on every node by themselves.
    a.all(&[
        "CREATE TABLE parent (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent(id) ON UPDATE CASCADE ON DELETE CASCADE)",
        "CREATE TABLE orphan (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent(id) ON UPDATE SET NULL ON DELETE SET NULL)",
        "INSERT INTO parent VALUES (1,1),(2,2),(3,3)",
        "INSERT INTO child VALUES (1,1),(2,2),(3,2)",
        "INSERT INTO orphan VALUES (1,1),(2,2)",
    ]);
    b.run("UPDATE parent SET id=10 WHERE id=1");
    c.run("DELETE FROM parent WHERE id=2");
    assert_eq!(a.text("SELECT GROUP_CONCAT(id,':',p ORDER BY id) FROM child"), "1:10");
    assert_eq!(a.number("SELECT COUNT(*) FROM orphan WHERE p IS NULL"), 2);
    assert_eq!(b.refused("INSERT INTO child VALUES (9,99)"), 1452);

    // Large and structured values.
    a.run("CREATE TABLE big (id INT PRIMARY KEY, b LONGBLOB, j JSON, t LONGTEXT CHARACTER SET utf8mb4)");
    b.run("INSERT INTO big VALUES (1, REPEAT(UNHEX('00FF27225C0A'), 800000), '{\"k\": [1, null, \"ü\"]}', REPEAT('𝄞', 1000))");
    c.run("UPDATE big SET j = JSON_SET(j, '$.n', 5) WHERE id=1");
    assert_eq!(a.number("SELECT LENGTH(b) FROM big"), 4_800_000);
    assert_eq!(a.number("SELECT JSON_VALUE(j, '$.n') FROM big"), 5);

    // Partitions, generated columns, triggers.
    a.all(&[
        "CREATE TABLE parts (id INT PRIMARY KEY, v INT) PARTITION BY HASH(id) PARTITIONS 4",
        "CREATE TABLE ranges (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)",
        "CREATE TABLE gen (a INT PRIMARY KEY, b INT AS (a*2) VIRTUAL, c INT AS (a*3) PERSISTENT, KEY (b))",
        "CREATE TABLE audit (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20))",
        "CREATE TRIGGER t1 AFTER INSERT ON parts FOR EACH ROW INSERT INTO audit(what) VALUES (CONCAT('row ', NEW.id))",
    ]);
    b.all(&[
        "INSERT INTO parts SELECT seq, seq FROM seq_1_to_50",
        "INSERT INTO ranges SELECT seq, seq FROM seq_90_to_110",
    ]);
    c.all(&[
        "UPDATE ranges SET id = id + 50 WHERE id = 95",
        "INSERT INTO gen (a) VALUES (1),(2),(3)",
        "DELETE FROM gen WHERE b=4",
    ]);
    assert_eq!(a.number("SELECT COUNT(*) FROM audit"), 50);
    assert_eq!(a.number("SELECT SUM(b+c) FROM gen"), 20);

    // Sequences: values drawn on any node are never drawn twice.
    a.run("CREATE SEQUENCE seq START WITH 1 INCREMENT BY 0 CACHE 10");
    let mut drawn = BTreeSet::new();
    for _ in 0..15 {
        for client in [&mut a, &mut b, &mut c] {
            let value = client.number("SELECT NEXTVAL(seq)");
            assert!(drawn.insert(value), "sequence gave {value} twice");
        }
    }

    // AUTO_INCREMENT from several masters at the same time.
    a.run("CREATE TABLE autoinc (id INT AUTO_INCREMENT PRIMARY KEY, origin INT)");
    b.run("SELECT COUNT(*) FROM autoinc"); // waits until the table is there
    c.run("SELECT COUNT(*) FROM autoinc");
    for _ in 0..100 {
        for (origin, client) in [(1, &mut a), (2, &mut b), (3, &mut c)] {
            client.session.send(&format!("INSERT INTO autoinc (origin) VALUES ({origin}),({origin})")).unwrap();
        }
        for client in [&mut a, &mut b, &mut c] {
            client.session.receive().unwrap_or_else(|error| panic!("auto_increment on {}: {error}", client.node));
        }
    }
    assert_eq!(a.number("SELECT COUNT(DISTINCT id) FROM autoinc"), 600);
    assert_eq!(a.number("SELECT @@auto_increment_increment"), 3);

    // LOAD DATA, prepared statements (text and binary protocol), procedures.
    let file = cluster.dir().join("load.csv");
    let lines: String = (1..=2000).map(|n| format!("{n},name {n}\n")).collect();
    std::fs::write(&file, lines).unwrap();
    a.run("CREATE TABLE loaded (id INT PRIMARY KEY, name VARCHAR(20))");
    b.run("SELECT COUNT(*) FROM loaded"); // LOAD DATA does not wait for the table, a SELECT does
    b.run(&format!("LOAD DATA INFILE '{}' INTO TABLE loaded FIELDS TERMINATED BY ','", file.display()));
    assert_eq!(c.number("SELECT COUNT(*) FROM loaded"), 2000);
    let rows: Vec<Vec<Option<&str>>> =
        vec![vec![Some("5001"), Some("it's")], vec![Some("5002"), None], vec![Some("5003"), Some("")]];
    let affected = c.session.execute_prepared("INSERT INTO loaded VALUES (?, ?)", &rows).unwrap();
    assert_eq!(affected, 3);
    a.all(&[
        "PREPARE s FROM 'UPDATE loaded SET name = ? WHERE id = ?'",
        "SET @n = 'prepared', @i = 7",
        "EXECUTE s USING @n, @i",
        "CREATE PROCEDURE fill(n INT) BEGIN WHILE n > 0 DO INSERT INTO loaded VALUES (10000 + n, 'proc'); SET n = n - 1; END WHILE; END",
    ]);
    b.run("CALL fill(20)");
    assert_eq!(c.text("SELECT name FROM loaded WHERE id=7"), "prepared");
    assert_eq!(c.number("SELECT COUNT(*) FROM loaded"), 2023);

    // Long transactions, savepoints, rollbacks; a temporary table stays where it is.
    a.all(&[
        "CREATE TABLE sp (id INT PRIMARY KEY)",
        "BEGIN",
        "INSERT INTO sp VALUES (1)",
        "SAVEPOINT s1",
        "INSERT INTO sp VALUES (2)",
        "SAVEPOINT s2",
        "INSERT INTO sp VALUES (3)",
        "ROLLBACK TO SAVEPOINT s1",
        "INSERT INTO sp VALUES (4)",
        "COMMIT",
        "BEGIN",
        "INSERT INTO sp VALUES (100)",
        "ROLLBACK",
        "CREATE TEMPORARY TABLE tmp AS SELECT * FROM sp",
        "BEGIN",
        "INSERT INTO sp SELECT seq FROM seq_1000_to_3000",
        "UPDATE sp SET id = id + 10000 WHERE id >= 2000",
        "COMMIT",
    ]);
    assert_eq!(b.text("SELECT GROUP_CONCAT(id ORDER BY id) FROM sp WHERE id < 1000"), "1,4");
    assert_eq!(b.number("SELECT COUNT(*) FROM sp"), 2003);
    assert_eq!(b.refused("SELECT * FROM tmp"), 1146);

    // A causal read sees what was acknowledged elsewhere just before, every time.
    for n in 0..200 {
        a.run(&format!("INSERT INTO nopk VALUES ({n}, 'causal')"));
        let seen = b.number("SELECT COUNT(*) FROM nopk WHERE b='causal'");
        assert_eq!(seen, n + 1, "a causal read on node2 missed a row acknowledged on node1");
    }

    assert_equal(&cluster);
    // At rest all nodes stand at the same position.
    eventually("all nodes show the same position", || {
        let seqnos: Vec<Option<i64>> = cluster.status().iter().map(|s| s.seqno).collect();
        if seqnos[0].is_some() && seqnos.iter().all(|s| *s == seqnos[0]) { Ok(()) } else { Err(format!("{seqnos:?}")) }
    });
}
