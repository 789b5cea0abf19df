// Go's driver through a balancer: SOCKET, HOST:PORT, FILE to load, MEGABYTES of one packet. Prints what it saw.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	socket, at, file := os.Args[1], os.Args[2], os.Args[3]
	megabytes, err := strconv.Atoi(os.Args[4])
	must(err)
	mysql.RegisterLocalFile(file)
	more := "?maxAllowedPacket=134217728"
	ways := [][2]string{
		{"socket", "app:secret@unix(" + socket + ")/d" + more},
		{"tcp", "app:secret@tcp(" + at + ")/d" + more},
		{"text", "app:secret@tcp(" + at + ")/d" + more + "&interpolateParams=true"},
		{"tls", "app:secret@tcp(" + at + ")/d" + more + "&tls=skip-verify"},
	}
	ctx := context.Background()
	for _, way := range ways {
		db, err := sql.Open("mysql", way[1])
		must(err)
		conn, err := db.Conn(ctx)
		must(err)
		var name, cipher string
		must(conn.QueryRowContext(ctx, "SHOW STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher))
		if (cipher != "") != (way[0] == "tls") {
			panic("TLS")
		}
		_, err = conn.ExecContext(ctx, "DELETE FROM client")
		must(err)
		_, err = conn.ExecContext(ctx, "INSERT INTO client (c) VALUES (?)", "xxxxxxxxxx")
		must(err)
		_, err = conn.ExecContext(ctx, "LOAD DATA LOCAL INFILE '"+file+"' INTO TABLE client (c)")
		must(err)
		var rows, length int
		must(conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM client").Scan(&rows))
		if rows != 4 {
			panic(rows)
		}
		large := strings.Repeat("y", megabytes<<20)
		must(conn.QueryRowContext(ctx, "SELECT LENGTH(?)", large).Scan(&length))
		if length != len(large) {
			panic(length)
		}
		var number int64
		must(conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&number))
		_, err = db.ExecContext(ctx, "KILL CONNECTION "+strconv.FormatInt(number, 10))
		must(err)
		if conn.QueryRowContext(ctx, "SELECT 1").Scan(&rows) == nil {
			panic("a killed session answers")
		}
		must(db.Close())
		fmt.Println(way[0])
	}
}
