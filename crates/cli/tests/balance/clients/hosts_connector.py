"""MariaDB Connector/Python with a list of hosts: what `trireme hosts --format python` printed. Prints the node that it came to."""

import sys

import mariadb

exec(sys.argv[1])
for host, port in HOSTS:  # noqa: F821: it was printed
    try:
        connection = mariadb.connect(host=host, port=port, user="app", password="secret", database="d", connect_timeout=5)
    except mariadb.Error:
        continue
    cursor = connection.cursor()
    cursor.execute("SELECT @@wsrep_node_name")
    print(cursor.fetchone()[0])
    break
else:
    sys.exit("no host takes the connection")
