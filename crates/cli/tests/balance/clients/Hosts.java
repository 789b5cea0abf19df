import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;

/** MariaDB Connector/J with lists of hosts: what `trireme hosts --format jdbc` printed. Prints the node that it came to by each line. */
public class Hosts {
    public static void main(String[] args) throws Exception {
        for (String line : args[0].split("\n")) {
            try (Connection connection = DriverManager.getConnection(line + "?user=app&password=secret&connectTimeout=5000")) {
                ResultSet name = connection.createStatement().executeQuery("SELECT @@wsrep_node_name");
                name.next();
                System.out.println(name.getString(1));
            }
        }
    }
}
