"""MariaDB Connector/Python through a balancer: SOCKET, HOST and PORT, FILE to load, MEGABYTES of one packet. Prints what it saw."""

import sys
import time

import mariadb

socket, host, port, file, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
common = dict(user="app", password="secret", database="d", autocommit=True, local_infile=True)
ways = {
    "socket": dict(unix_socket=socket),
    "tcp": dict(host=host, port=port),
    "tls": dict(host=host, port=port, ssl=True, ssl_verify_cert=False),
}
for name, way in ways.items():
    connection = mariadb.connect(**common, **way)
    cursor = connection.cursor()
    cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
    encrypted = bool(cursor.fetchone()[1])
    assert encrypted == (name == "tls"), name
    cursor.execute("DELETE FROM client")
    cursor.execute("INSERT INTO client (c) VALUES (?)", ("x" * 10,))
    cursor.execute("SELECT c FROM client")
    assert cursor.fetchall() == [("x" * 10,)]
    prepared = connection.cursor(prepared=True)
    for n in (1, 2):
        prepared.execute("SELECT ? + COUNT(*) FROM client", (n,))
        assert prepared.fetchone() == (n + 1,)
    prepared.close()
    cursor.execute("LOAD DATA LOCAL INFILE '" + file + "' INTO TABLE client (c)")
    cursor.execute("SELECT COUNT(*) FROM client")
    assert cursor.fetchone() == (4,)
    large = "y" * (megabytes << 20)
    cursor.execute("SELECT ?", (large,))
    assert cursor.fetchone() == (large,)
    # Idle for longer than any time limit of a balancer that could be one of seconds.
    time.sleep(6)
    cursor.execute("SELECT CONNECTION_ID()")
    number = cursor.fetchone()[0]
    killer = mariadb.connect(**common, **way)
    killer.cursor().execute("KILL CONNECTION %d" % number)
    killer.close()
    try:
        cursor.execute("SELECT 1")
        raise SystemExit("a killed session answers")
    except mariadb.Error:
        pass
    print(name)
