//! PostgreSQL: a primary that waits for any one of its standbys. The clients are our own, over the server's unix socket.

use super::deaths::{self, Mortal};
use super::postgres_client::{Client, Failure};
use super::{SIZE, numbers_of_clients};
use crate::disks::OwnDisk;
use crate::field::{Context, pass_until};
use crate::plan::Point;
use crate::quota::Quotas;
use crate::record::Measured;
use crate::survivors::{self, Door, Doors, Row, Said, Writer};
use crate::systems::{System, postgres_bin};
use crate::tool::{self, Tool, command};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

struct Postgres<'a> {
    context: &'a Context,
    bin: PathBuf,
    dir: PathBuf,
    /// The user that the servers run as; they refuse to be root.
    user: Option<&'static str>,
    servers: Vec<Option<Tool>>,
    /// The number of the one that takes writes.
    primary: u8,
    /// With `--disks separate`; after the servers, which use them.
    disks: Vec<OwnDisk>,
    durable: bool,
    quotas: Option<Quotas>,
}

fn run_as() -> Option<&'static str> {
    // SAFETY: asks who we are.
    (unsafe { libc::geteuid() } == 0).then_some("postgres")
}

pub fn run(context: &Context, point: &Point) -> Result<Measured, String> {
    let (system, nodes) = (point.system()?, point.nodes);
    let bin = postgres_bin().ok_or("PostgreSQL is not installed")?;
    let dir = context.dir.join("postgres");
    let mut all = Postgres {
        context,
        bin,
        dir,
        user: run_as(),
        servers: Vec::new(),
        disks: Vec::new(),
        primary: 1,
        quotas: context.quotas()?,
        durable: system == System::PostgresDurable,
    };
    all.up(nodes)?;
    let mut measured = Measured::default();
    all.sql("CREATE TABLE t (id BIGSERIAL PRIMARY KEY, text VARCHAR(10000)); CREATE TABLE acknowledged (client INT, n BIGINT, text VARCHAR(200), PRIMARY KEY (client, n))")?;
    for clients in numbers_of_clients(&context.settings) {
        all.sql("TRUNCATE t")?;
        all.measure(clients, &mut measured)?;
    }
    all.faults(&mut measured)?;
    Ok(measured)
}

impl Postgres<'_> {
    fn command(&self, program: &str) -> std::process::Command {
        let program = self.bin.join(program).display().to_string();
        match self.user {
            None => command(&program),
            Some(user) => {
                let mut wrapped = command("setpriv");
                wrapped.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups", &program]);
                wrapped
            }
        }
    }

    fn data(&self, number: u8) -> PathBuf {
        self.dir.join(format!("node{number}"))
    }

    fn port(&self, number: u8) -> u16 {
        self.context.base_port + 10 * (u16::from(number) - 1)
    }

    fn own(&self, path: &Path) -> Result<(), String> {
        let Some(user) = self.user else { return Ok(()) };
        let mut chown = command("chown");
        chown.arg(user).arg(path);
        tool::run(chown, LIMIT, &self.context.cancel).map(drop)
    }

    fn up(&mut self, nodes: u8) -> Result<(), String> {
        let _ = std::fs::remove_dir_all(&self.dir);
        std::fs::create_dir_all(&self.dir).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        // The servers' user has to get through.
        let mut open = command("chmod");
        open.arg("0711").arg(&self.context.dir);
        tool::run(open, LIMIT, &self.context.cancel)?;
        self.own(&self.dir)?;
        for number in 1..=nodes {
            let data = self.data(number);
            if let Some(disk) = self.context.own_disk(&data)? {
                self.disks.push(disk);
                self.own(&data)?;
                // It refuses a directory that others may enter.
                let mut close = command("chmod");
                close.arg("0700").arg(&data);
                tool::run(close, LIMIT, &self.context.cancel)?;
            }
        }
        let mut initdb = self.command("initdb");
        initdb.args(["--auth=trust", "--username=bench", "--no-sync", "-D"]).arg(self.data(1));
        tool::run(initdb, LIMIT, &self.context.cancel)?;
        let standbys: Vec<String> = (2..=nodes).map(|n| format!("node{n}")).collect();
        let names = if standbys.is_empty() { String::new() } else { format!("ANY 1 ({})", standbys.join(",")) };
        let commit = if self.durable { "on" } else { "remote_write" };
        let config = format!(
            "listen_addresses='127.0.0.1'\nunix_socket_directories='{}'\nmax_connections=300\nshared_buffers=128MB\nmax_wal_size=2GB\nfull_page_writes=on\n\
             synchronous_commit={commit}\nhot_standby=on\n",
            self.dir.display()
        );
        let told = format!("{config}synchronous_standby_names='{names}'\n");
        let name = if self.durable { "postgres-1" } else { "postgres-0" };
        self.context.keep_settings(&format!("{name}.txt"), &told)?;
        let path = self.data(1).join("postgresql.conf");
        std::fs::write(&path, &config).map_err(|e| format!("{}: {e}", path.display()))?;
        self.start(1)?;
        for number in 2..=nodes {
            let mut backup = self.command("pg_basebackup");
            backup
                .args([
                    "--host=127.0.0.1",
                    "--username=bench",
                    "--checkpoint=fast",
                    "--no-sync",
                    "--write-recovery-conf",
                ])
                .arg(format!("--port={}", self.port(1)))
                .arg("-D")
                .arg(self.data(number));
            tool::run(backup, LIMIT, &self.context.cancel)?;
            let auto = self.data(number).join("postgresql.auto.conf");
            let connect = format!("primary_conninfo='{}'\n", self.conninfo(1, number));
            std::fs::write(&auto, connect).map_err(|e| format!("{}: {e}", auto.display()))?;
            self.start(number)?;
        }
        if !names.is_empty() {
            self.sql(&format!("ALTER SYSTEM SET synchronous_standby_names='{names}'"))?;
            self.sql("SELECT pg_reload_conf()")?;
        }
        self.await_standbys(nodes - 1)
    }

    /// How a standby finds its primary.
    fn conninfo(&self, primary: u8, standby: u8) -> String {
        format!("host=127.0.0.1 port={} user=bench application_name=node{standby}", self.port(primary))
    }

    fn await_standbys(&self, number: u8) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let said = self.sql("SELECT COUNT(*) FROM pg_stat_replication WHERE state='streaming'")?;
            if said.trim() == number.to_string() {
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                return Err(format!("{} of {number} standbys follow the primary", said.trim()));
            }
            pass_until(Instant::now() + Duration::from_millis(100), &self.context.cancel)?;
        }
    }

    fn start(&mut self, number: u8) -> Result<(), String> {
        let at = usize::from(number) - 1;
        self.servers.resize_with(self.servers.len().max(at + 1), || None);
        let began = Instant::now();
        loop {
            // It refuses as long as a process of the one that was killed lives.
            if self.servers[at].as_mut().is_none_or(Tool::has_ended) {
                let mut server = self.command("postgres");
                server.arg("-D").arg(self.data(number)).args(["-p", &self.port(number).to_string()]);
                let server = Tool::start(server)?;
                if let Some(quotas) = &mut self.quotas {
                    quotas.limit(number, server.pid())?;
                }
                self.servers[at] = Some(server);
            }
            match self.ask(number, "SELECT 1") {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > LIMIT => {
                    return Err(format!("PostgreSQL node{number} does not start: {error}"));
                }
                Err(_) => pass_until(Instant::now() + Duration::from_millis(100), &self.context.cancel)?,
            }
        }
    }

    fn sql(&self, statement: &str) -> Result<String, String> {
        self.ask(self.primary, statement)
    }

    fn ask(&self, number: u8, statement: &str) -> Result<String, String> {
        let mut psql = self.command("psql");
        psql.args([
            "--host=127.0.0.1",
            "--username=bench",
            "--dbname=postgres",
            "--tuples-only",
            "--no-align",
            "--no-psqlrc",
            "-c",
            statement,
        ])
        .arg(format!("--port={}", self.port(number)));
        tool::run(psql, LIMIT, &self.context.cancel)
    }

    /// The processes of a server: each connection has one of its own.
    fn processes(&self, number: u8) -> Vec<i32> {
        let Some(server) = self.servers.get(usize::from(number) - 1).and_then(Option::as_ref) else {
            return Vec::new();
        };
        let parent = |pid: i32| -> Option<i32> {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
        };
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let children = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| parent(*pid) == Some(server.pid()));
        std::iter::once(server.pid()).chain(children).collect()
    }

    fn pids(&self) -> Vec<i32> {
        (1..=self.nodes()).flat_map(|number| self.processes(number)).collect()
    }

    fn socket(&self, number: u8) -> PathBuf {
        self.dir.join(format!(".s.PGSQL.{}", self.port(number)))
    }

    fn measure(&self, clients: u32, measured: &mut Measured) -> Result<(), String> {
        let (socket, text) = (self.socket(1), "x".repeat(SIZE));
        let open = |_| {
            let mut client = Client::open(&socket, Duration::from_secs(60)).map_err(|e| e.to_string())?;
            client.prepare("INSERT INTO t (text) VALUES ($1)").map_err(|e| e.to_string())?;
            let text = text.clone();
            Ok(move |_| client.execute(&[&text]).map_err(|e| e.to_string()))
        };
        super::drive(self.context, clients, open, || self.pids(), measured)
    }

    fn faults(&mut self, measured: &mut Measured) -> Result<(), String> {
        let door = |number: u8| -> Door {
            let socket = self.socket(number);
            Box::new(move || -> Option<Box<dyn Writer>> {
                let mut client = Client::open(&socket, survivors::LIMIT).ok()?;
                client.prepare("INSERT INTO acknowledged VALUES ($1, $2, $3)").ok()?;
                Some(Box::new(client))
            })
        };
        let doors = Doors::moving((1..=self.nodes()).map(door).collect());
        deaths::run(self.context, self, &doors, measured)
    }
}

impl Writer for Client {
    fn write(&mut self, (client, n): Row) -> Said {
        match self.execute(&[&client.to_string(), &n.to_string(), &"x".repeat(100)]) {
            Ok(()) => Said::Acknowledged,
            Err(Failure::Refused(_)) => Said::Refused,
            Err(Failure::Gone(_)) => Said::Gone,
        }
    }
}

impl Mortal for Postgres<'_> {
    fn nodes(&self) -> u8 {
        self.servers.len() as u8
    }

    /// `ANY 1` needs one standby: of two servers none goes on alone.
    fn survives_one(&self) -> bool {
        self.nodes() >= 3
    }

    fn chief(&self) -> Result<u8, String> {
        Ok(self.primary)
    }

    fn primary(&self) -> Option<u8> {
        Some(self.primary)
    }

    fn kill(&mut self, number: u8) -> Result<(), String> {
        // Its processes would live on for a while, and answer.
        for pid in self.processes(number) {
            // SAFETY: a signal to a process that was just seen to be the server, which is ours, or its child.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        self.servers[usize::from(number) - 1] = None;
        Ok(())
    }

    fn bring_back(&mut self, number: u8) -> Result<(), String> {
        self.start(number)?;
        self.await_standbys(self.nodes() - 1)
    }

    fn kill_all(&mut self) -> Result<(), String> {
        (1..=self.nodes()).try_for_each(|number| self.kill(number))
    }

    fn start_all(&mut self) -> Result<(), String> {
        (1..=self.nodes()).try_for_each(|number| self.start(number))?;
        self.await_standbys(self.nodes() - 1)
    }

    /// The standby that has most of the log is promoted, and the others follow it and acknowledge for it.
    fn take_over(&mut self, dead: u8) -> Result<Option<u8>, String> {
        let standbys: Vec<u8> = (1..=self.nodes()).filter(|number| *number != dead).collect();
        let mut best = None;
        for number in &standbys {
            let received = self.ask(*number, "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::bigint")?;
            best = best.max(Some((received.trim().parse::<u64>().unwrap_or(0), *number)));
        }
        let (_, best) = best.ok_or("no standby is left")?;
        let others: Vec<u8> = standbys.into_iter().filter(|number| *number != best).collect();
        self.ask(best, "SELECT pg_promote()")?;
        for number in &others {
            self.ask(*number, &format!("ALTER SYSTEM SET primary_conninfo='{}'", self.conninfo(best, *number)))?;
            self.ask(*number, "SELECT pg_reload_conf()")?;
        }
        let names: Vec<String> = others.iter().map(|number| format!("node{number}")).collect();
        self.ask(best, &format!("ALTER SYSTEM SET synchronous_standby_names='ANY 1 ({})'", names.join(",")))?;
        self.ask(best, "SELECT pg_reload_conf()")?;
        self.primary = best;
        Ok(Some(best))
    }

    fn lacks(&self, number: u8, rows: &BTreeSet<Row>) -> Result<BTreeSet<Row>, String> {
        let text = self.ask(number, "SELECT client, n FROM acknowledged")?;
        let row = |line: &str| {
            let (client, n) = line.trim().split_once('|')?;
            Some((client.parse().ok()?, n.parse().ok()?))
        };
        let there: BTreeSet<Row> = text.lines().filter_map(row).collect();
        Ok(rows.difference(&there).copied().collect())
    }
}

impl Drop for Postgres<'_> {
    fn drop(&mut self) {
        let _ = self.kill_all();
        self.disks.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
