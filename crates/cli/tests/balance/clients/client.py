"""PyMySQL through a balancer: SOCKET, HOST and PORT, FILE to load, MEGABYTES of one packet. Prints what it saw."""

import ssl
import sys
import time

import pymysql

socket, host, port, file, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
common = dict(user="app", password="secret", database="d", autocommit=True, local_infile=True, max_allowed_packet=128 << 20)
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
ways = {
    "socket": dict(unix_socket=socket, ssl_disabled=True),
    "tcp": dict(host=host, port=port, ssl_disabled=True),
    "tls": dict(host=host, port=port, ssl=context),
}
for name, way in ways.items():
    connection = pymysql.connect(**common, **way)
    with connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        encrypted = bool(cursor.fetchone()[1])
        assert encrypted == (name == "tls"), name
        cursor.execute("DELETE FROM client")
        cursor.execute("INSERT INTO client (c) VALUES (%s)", ("x" * 10,))
        cursor.execute("SELECT c FROM client")
        assert cursor.fetchall() == (("x" * 10,),)
        cursor.execute("LOAD DATA LOCAL INFILE '" + file + "' INTO TABLE client (c)")
        cursor.execute("SELECT COUNT(*) FROM client")
        assert cursor.fetchone() == (4,)
        large = "y" * (megabytes << 20)
        cursor.execute("SELECT %s", (large,))
        assert cursor.fetchone() == (large,)
        # Idle for longer than any time limit of a balancer that could be one of seconds.
        time.sleep(6)
        cursor.execute("SELECT CONNECTION_ID()")
        number = cursor.fetchone()[0]
    killer = pymysql.connect(**common, **way)
    with killer.cursor() as cursor:
        cursor.execute("KILL CONNECTION %d" % number)
    killer.close()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        raise SystemExit("a killed session answers")
    except pymysql.MySQLError:
        pass
    print(name)
