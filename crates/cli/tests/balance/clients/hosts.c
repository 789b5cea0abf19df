/* MariaDB Connector/C with a list of hosts: what `trireme hosts --format c` printed. Prints the node that it came to. */
#include <mysql.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    MYSQL *m = mysql_init(NULL);
    unsigned seconds = 5;
    if (argc != 2 || strncmp(argv[1], "host=", 5)) return 2;
    mysql_options(m, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    if (!mysql_real_connect(m, argv[1] + 5, "app", "secret", "d", 0, NULL, 0) || mysql_query(m, "SELECT @@wsrep_node_name")) {
        fprintf(stderr, "%s\n", mysql_error(m));
        return 1;
    }
    MYSQL_RES *result = mysql_store_result(m);
    printf("%s\n", mysql_fetch_row(result)[0]);
    mysql_free_result(result);
    mysql_close(m);
    return 0;
}
