//! PostgreSQL: a primary that waits for any one of its standbys. The clients are `pgbench`'s.

use super::{FAULT_CLIENTS, SIZE, dead_for, numbers_of_clients};
use crate::field::{Context, pass_until};
use crate::plan::Point;
use crate::record::Measured;
use crate::systems::{System, postgres_bin};
use crate::tool::{self, Tool, command};
use crate::usage::{self, Usage};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

struct Postgres<'a> {
    context: &'a Context,
    bin: PathBuf,
    dir: PathBuf,
    /// Whom the servers run as; they refuse to be root.
    user: Option<&'static str>,
    servers: Vec<Option<Tool>>,
    durable: bool,
}

fn run_as() -> Option<&'static str> {
    // SAFETY: asks who we are.
    (unsafe { libc::geteuid() } == 0).then_some("postgres")
}

pub fn run(context: &Context, point: &Point) -> Result<Measured, String> {
    let (system, nodes) = (point.system()?, point.nodes);
    let bin = postgres_bin().ok_or("PostgreSQL is not installed")?;
    let dir = context.dir.join("postgres");
    let mut all =
        Postgres { context, bin, dir, user: run_as(), servers: Vec::new(), durable: system == System::PostgresDurable };
    all.up(nodes)?;
    let mut measured = Measured::default();
    all.sql("CREATE TABLE t (id BIGSERIAL PRIMARY KEY, text VARCHAR(10000)); CREATE TABLE acknowledged (id BIGSERIAL PRIMARY KEY, text VARCHAR(200))")?;
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
            let connect = format!(
                "primary_conninfo='host=127.0.0.1 port={} user=bench application_name=node{number}'\n",
                self.port(1)
            );
            std::fs::write(&auto, connect).map_err(|e| format!("{}: {e}", auto.display()))?;
            self.start(number)?;
        }
        if !names.is_empty() {
            self.sql(&format!("ALTER SYSTEM SET synchronous_standby_names='{names}'"))?;
            self.sql("SELECT pg_reload_conf()")?;
        }
        self.await_standbys(nodes)
    }

    fn await_standbys(&self, nodes: u8) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let said = self.sql("SELECT COUNT(*) FROM pg_stat_replication WHERE state='streaming'")?;
            if said.trim() == (nodes - 1).to_string() {
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                return Err(format!("{} of {} standbys follow the primary", said.trim(), nodes - 1));
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
                self.servers[at] = Some(Tool::start(server)?);
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
        self.ask(1, statement)
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

    /// The processes of all servers: each connection has one of its own.
    fn pids(&self) -> Vec<i32> {
        let parents: Vec<i32> = self.servers.iter().flatten().map(Tool::pid).collect();
        let parent = |pid: i32| -> Option<i32> {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
        };
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut all: Vec<i32> = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| parent(*pid).is_some_and(|parent| parents.contains(&parent)))
            .collect();
        all.extend(parents);
        all
    }

    fn pgbench(&self, clients: u32, seconds: u64, table: &str, script: &Path) -> Result<std::process::Command, String> {
        let text = if table == "t" { SIZE } else { 100 };
        std::fs::write(script, format!("INSERT INTO {table} (text) VALUES ('{}');\n", "x".repeat(text)))
            .map_err(|e| format!("{}: {e}", script.display()))?;
        let mut pgbench = self.command("pgbench");
        pgbench
            .args(["--host=127.0.0.1", "--username=bench", "--no-vacuum", "--protocol=prepared", "--jobs=2"])
            .args([&format!("--port={}", self.port(1)), &format!("--client={clients}"), &format!("--time={seconds}")])
            .arg(format!("--file={}", script.display()));
        Ok(pgbench)
    }

    fn measure(&self, clients: u32, measured: &mut Measured) -> Result<(), String> {
        let seconds = self.context.settings.duration.ceil().max(1.0) as u64;
        let prefix = self.dir.join(format!("log{clients}"));
        let mut pgbench = self.pgbench(clients, seconds, "t", &self.dir.join("insert.sql"))?;
        pgbench.arg("--log").arg(format!("--log-prefix={}", prefix.display()));
        // Processes that serve a connection end with it, and their time goes to their parents.
        let pids: Vec<i32> = self.pids();
        let before = Usage::of(&pids);
        let said = tool::run(pgbench, Duration::from_secs(seconds + 60), &self.context.cancel)?;
        let used = usage::between(&before, &Usage::of(&pids));
        let rate = field(&said, "tps = ").ok_or_else(|| format!("pgbench's answer is not understood: {said}"))?;
        let done = field(&said, "number of transactions actually processed: ").unwrap_or(0.0);
        measured.set(format!("commits_per_s_{clients}"), rate);
        measured.note(format!(
            "processor time of {clients} clients' servers without that of their own processes: {:.0} µs per commit",
            used.servers.as_secs_f64() * 1e6 / done.max(1.0)
        ));
        // client, number, microseconds, …
        let mut times: Vec<u64> = Vec::new();
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("log{clients}.")) {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                times.extend(text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok()));
                let _ = std::fs::remove_file(entry.path());
            }
        }
        times.sort_unstable();
        for (name, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
            if let Some(time) = times.get(((times.len() as f64 * q) as usize).min(times.len().saturating_sub(1))) {
                measured.set(format!("{name}_ms_{clients}"), *time as f64 / 1e3);
            }
        }
        Ok(())
    }

    /// A standby dies under load and comes back, then all die.
    fn faults(&mut self, measured: &mut Measured) -> Result<(), String> {
        let dead_for = dead_for(&self.context.settings);
        let nodes = self.servers.len() as u8;
        let script = self.dir.join("acknowledged.sql");
        let seconds = (dead_for.as_secs_f64() * 4.0).ceil() as u64 + 120;
        let mut pgbench = self.pgbench(FAULT_CLIENTS, seconds, "acknowledged", &script)?;
        let prefix = self.dir.join("fault");
        pgbench.arg("--log").arg(format!("--log-prefix={}", prefix.display()));
        let load = Tool::start(pgbench)?;
        pass_until(Instant::now() + dead_for, &self.context.cancel)?;
        let mut struck = None;
        if nodes >= 2 {
            let at = seconds_since_1970();
            // Dropping kills it.
            self.servers[usize::from(nodes) - 1] = None;
            pass_until(Instant::now() + dead_for, &self.context.cancel)?;
            struck = Some((at, seconds_since_1970()));
            self.start(nodes)?;
            self.await_standbys(nodes)?;
        }
        self.servers.iter_mut().for_each(|server| drop(server.take()));
        // Its clients end with the server; it says so with an exit code.
        let _ = load.finish(LIMIT, &self.context.cancel);
        self.context.check_interrupted()?;
        for number in 1..=nodes {
            self.start(number)?;
        }
        let there: u64 = self.sql("SELECT COUNT(*) FROM acknowledged")?.trim().parse().map_err(|_| "no number")?;
        // When each was acknowledged: the fifth and the sixth word.
        let mut acknowledged: Vec<f64> = Vec::new();
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("fault.") {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                acknowledged.extend(text.lines().filter_map(|line| {
                    let mut words = line.split(' ').skip(4).map(str::parse::<f64>);
                    Some(words.next()?.ok()? + words.next()?.ok()? / 1e6)
                }));
            }
        }
        measured.set("acknowledged", acknowledged.len() as f64);
        measured.set("lost", (acknowledged.len() as u64).saturating_sub(there) as f64);
        if let Some((from, to)) = struck {
            acknowledged.retain(|at| (from..to).contains(at));
            acknowledged.extend([from, to]);
            acknowledged.sort_by(f64::total_cmp);
            measured.set("gap_one_s", acknowledged.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max));
        }
        Ok(())
    }
}

impl Drop for Postgres<'_> {
    fn drop(&mut self) {
        self.servers.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn seconds_since_1970() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64())
}

fn field(said: &str, name: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix(name))?;
    line.split([' ', '/']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_what_pgbench_prints() {
        let said = "number of transactions actually processed: 8123\nlatency average = 0.985 ms\ntps = 4061.2 (without initial connection time)\n";
        assert_eq!(super::field(said, "tps = "), Some(4061.2));
        assert_eq!(super::field(said, "number of transactions actually processed: "), Some(8123.0));
    }
}
