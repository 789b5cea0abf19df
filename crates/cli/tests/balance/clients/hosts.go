// Go's driver with a list of hosts: what `trireme hosts --format go` printed. Prints the node that it came to.
package main

import (
	"database/sql"
	"fmt"
	"os"
	"strings"

	_ "github.com/go-sql-driver/mysql"
)

func main() {
	for _, line := range strings.Fields(os.Args[1]) {
		db, err := sql.Open("mysql", strings.Replace(line, "USER:PASSWORD", "app:secret", 1))
		if err != nil {
			panic(err)
		}
		var name string
		if db.QueryRow("SELECT @@wsrep_node_name").Scan(&name) == nil {
			fmt.Println(name)
			return
		}
	}
	os.Exit(1)
}
