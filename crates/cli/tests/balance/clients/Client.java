import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** MariaDB Connector/J through a balancer: HOST and PORT, FILE to load, MEGABYTES of one packet. Prints what it saw. */
public class Client {
    static void check(boolean holds, String what) {
        if (!holds) throw new IllegalStateException(what);
    }

    public static void main(String[] args) throws Exception {
        String at = "jdbc:mariadb://" + args[0] + ":" + args[1] + "/d?user=app&password=secret&allowLocalInfile=true";
        String[][] ways = {{"tcp", ""}, {"tls", "&useSsl=true&trustServerCertificate=true"}, {"prepared", "&useServerPrepStmts=true"}};
        for (String[] way : ways) {
            Connection connection = DriverManager.getConnection(at + way[1]);
            Statement statement = connection.createStatement();
            ResultSet cipher = statement.executeQuery("SHOW STATUS LIKE 'Ssl_cipher'");
            cipher.next();
            check(cipher.getString(2).isEmpty() != way[0].equals("tls"), "TLS");
            statement.execute("DELETE FROM client");
            PreparedStatement insert = connection.prepareStatement("INSERT INTO client (c) VALUES (?)");
            insert.setString(1, "xxxxxxxxxx");
            insert.execute();
            statement.execute("LOAD DATA LOCAL INFILE '" + args[2] + "' INTO TABLE client (c)");
            ResultSet count = statement.executeQuery("SELECT COUNT(*) FROM client");
            count.next();
            check(count.getInt(1) == 4, "rows");
            String large = "y".repeat(Integer.parseInt(args[3]) << 20);
            PreparedStatement length = connection.prepareStatement("SELECT LENGTH(?)");
            length.setString(1, large);
            ResultSet measured = length.executeQuery();
            measured.next();
            check(measured.getInt(1) == large.length(), "a large packet");
            ResultSet number = statement.executeQuery("SELECT CONNECTION_ID()");
            number.next();
            try (Connection killer = DriverManager.getConnection(at + way[1])) {
                killer.createStatement().execute("KILL CONNECTION " + number.getLong(1));
            }
            try {
                statement.executeQuery("SELECT 1");
                check(false, "a killed session answers");
            } catch (SQLException expected) {
                System.out.println(way[0]);
            }
        }
    }
}
