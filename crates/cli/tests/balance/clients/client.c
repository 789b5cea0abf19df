/* MariaDB Connector/C through a balancer: SOCKET, HOST and PORT, FILE to load, MEGABYTES of one packet. Prints what it saw. */
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static MYSQL *connection;

static void must(int failed, const char *what) {
    if (failed) {
        fprintf(stderr, "%s: %s\n", what, connection ? mysql_error(connection) : "");
        exit(1);
    }
}

static MYSQL *enter(const char *way, char **argv) {
    MYSQL *m = mysql_init(NULL);
    my_bool on = 1, off = 0;
    unsigned long large = 128UL << 20;
    int tls = !strcmp(way, "tls"), local = !strcmp(way, "socket");
    mysql_options(m, MYSQL_OPT_LOCAL_INFILE, &on);
    mysql_options(m, MYSQL_OPT_MAX_ALLOWED_PACKET, &large);
    mysql_options(m, MYSQL_OPT_SSL_ENFORCE, tls ? &on : &off);
    mysql_options(m, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &off);
    connection = m;
    must(!mysql_real_connect(m, local ? NULL : argv[2], "app", "secret", "d", atoi(argv[3]), local ? argv[1] : NULL, 0), way);
    return m;
}

static long number(MYSQL *m, const char *sql, int column) {
    must(mysql_query(m, sql), sql);
    MYSQL_RES *result = mysql_store_result(m);
    must(!result, sql);
    MYSQL_ROW row = mysql_fetch_row(result);
    must(!row, sql);
    long value = row[column][0] ? atol(row[column]) + (row[column][0] > '9') : 0;
    mysql_free_result(result);
    return value;
}

static void prepared(MYSQL *m, const char *text) {
    MYSQL_STMT *s = mysql_stmt_init(m);
    MYSQL_BIND bind[1];
    const char *sql = "INSERT INTO client (c) VALUES (?)";
    memset(bind, 0, sizeof bind);
    bind[0].buffer_type = MYSQL_TYPE_STRING;
    bind[0].buffer = (char *)text;
    bind[0].buffer_length = strlen(text);
    must(mysql_stmt_prepare(s, sql, strlen(sql)), "prepare");
    must(mysql_stmt_bind_param(s, bind), "bind");
    must(mysql_stmt_execute(s), "execute");
    mysql_stmt_close(s);
}

int main(int argc, char **argv) {
    const char *ways[] = {"socket", "tcp", "tls"};
    if (argc != 6) return 2;
    for (int i = 0; i < 3; i++) {
        MYSQL *m = enter(ways[i], argv);
        char sql[1024];
        size_t len = (size_t)atoi(argv[5]) << 20;
        must((number(m, "SHOW STATUS LIKE 'Ssl_cipher'", 1) != 0) != (i == 2), "TLS");
        must(mysql_query(m, "DELETE FROM client"), "delete");
        prepared(m, "xxxxxxxxxx");
        snprintf(sql, sizeof sql, "LOAD DATA LOCAL INFILE '%s' INTO TABLE client (c)", argv[4]);
        must(mysql_query(m, sql), "load");
        must(number(m, "SELECT COUNT(*) FROM client", 0) != 4, "rows");
        char *large = malloc(len + 64);
        memcpy(large, "SELECT LENGTH('", 15);
        memset(large + 15, 'y', len);
        strcpy(large + 15 + len, "')");
        must((size_t)number(m, large, 0) != len, "a large packet");
        free(large);
        snprintf(sql, sizeof sql, "KILL CONNECTION %ld", number(m, "SELECT CONNECTION_ID()", 0));
        MYSQL *killer = enter(ways[i], argv);
        must(mysql_query(killer, sql), "kill");
        mysql_close(killer);
        connection = m;
        must(!mysql_query(m, "SELECT 1"), "a killed session answers");
        mysql_close(m);
        puts(ways[i]);
    }
    return 0;
}
