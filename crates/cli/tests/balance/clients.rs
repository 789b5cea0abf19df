//! Real clients through a balancer, at a `--writer` and at a `--split` listener: unix socket, TCP, TLS, prepared statements, `LOAD DATA LOCAL`, large
//! packets, `KILL`, idle times. They run with the tests of real servers; a client that is not installed is skipped with a reason.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trireme_cluster::{ClusterGuard, Spec};

use crate::support::*;

/// Of one packet. `max_allowed_packet` of the server must allow it.
const MEGABYTES: &str = "64";
const LISTENERS: [&str; 2] = ["writer", "split"];

struct Scene {
    place: Place,
    _cluster: ClusterGuard,
    balancer: Balancer,
    file: String,
}

impl Scene {
    /// One server with TLS, and one member beside it for reads. `None`: certificates cannot be made here.
    fn set(index: u16) -> Option<Scene> {
        let place = Place::new();
        let (key, certificate) = certificate(&place)?;
        let top = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let provider = top.join(std::env::var("PROVIDER").expect("PROVIDER names the library"));
        let first: u16 = std::env::var("FIRST_PORT").ok().map_or(27000, |text| text.parse().unwrap());
        let base_port = first + 100 * index;
        let mut spec = Spec::new(provider, PathBuf::from(format!("/var/tmp/trireme-balance-{base_port}")))
            .option("innodb_flush_log_at_trx_commit=0")
            .option("local_infile=ON")
            .option("max_allowed_packet=128M")
            .option(format!("ssl_cert={certificate}"))
            .option(format!("ssl_key={key}"));
        spec.nodes = 2;
        spec.base_port = base_port;
        spec.name = format!("clients-{base_port}");
        let cluster = ClusterGuard::up(&spec, &mut |_| {}).unwrap();
        let id = cluster.ids()[0];
        for sql in [
            "CREATE USER root@'127.%'",
            "GRANT ALL ON *.* TO root@'127.%'",
            "CREATE USER app@'127.%' IDENTIFIED VIA mysql_native_password USING PASSWORD('secret')",
            "GRANT ALL ON *.* TO app@'127.%'",
            "CREATE DATABASE d",
            "CREATE TABLE d.client (id BIGINT PRIMARY KEY AUTO_INCREMENT, c VARCHAR(40))",
        ] {
            cluster.sql(id, sql).unwrap();
        }
        let node = &cluster.nodes()[0];
        let words: Vec<String> = LISTENERS
            .iter()
            .flat_map(|role| [format!("--{role} {}", place.path(role)), format!("--{role} 127.0.0.1:0")])
            .collect();
        let words = format!("--nodes {}:{} {}", node.address, node.ports.sql, words.join(" "));
        let balancer = Balancer::start(&place, &words);
        await_that("both servers are ready", || {
            balancer.status()["nodes"].as_array().unwrap().iter().filter(|n| n["state"] == "ready").count() == 2
        });
        let file = place.path("rows.txt");
        std::fs::write(&file, "a\nb\nc\n").unwrap();
        Some(Scene { place, _cluster: cluster, balancer, file })
    }

    /// Socket, host and port of a listener.
    fn ways(&self, role: &str) -> [String; 3] {
        let listeners = self.balancer.status()["listeners"].clone();
        let mut addresses =
            listeners.as_array().unwrap().iter().filter(|l| l["role"] == role).map(|l| l["address"].as_str().unwrap());
        let tcp = addresses.find(|address| !address.starts_with('/')).unwrap();
        let (host, port) = tcp.rsplit_once(':').unwrap();
        [self.place.path(role), host.to_owned(), port.to_owned()]
    }
}

/// A key and a certificate of its own. `None`: they cannot be made here.
pub fn certificate(place: &Place) -> Option<(String, String)> {
    let (key, certificate) = (place.path("key.pem"), place.path("cert.pem"));
    let words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test",
        "-keyout",
        &key,
        "-out",
        &certificate,
    ];
    let made = Command::new("openssl").args(words).output();
    if !made.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no openssl command to make a certificate with");
        return None;
    }
    open_to_all(&place.0, 0o755);
    open_to_all(Path::new(&key), 0o644);
    Some((key, certificate))
}

fn open_to_all(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn source(name: &str) -> String {
    format!("{}/tests/balance/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The printed lines: the ways that worked.
pub fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).replace('\n', " ")
}

fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Debian's, whatever Python comes first.
pub fn python_with_pymysql() -> Option<&'static str> {
    let has_it = |python: &&str| works(Command::new(python).args(["-c", "import pymysql"]));
    ["/usr/bin/python3", "python3"].into_iter().find(has_it)
}

/// One of its own with MariaDB Connector/Python. `None`, with a reason: that cannot be done here.
pub fn python_with_connector(place: &Place) -> Option<String> {
    let (dir, connector) = (place.path("python"), "mariadb==1.1.14");
    let python = format!("{dir}/bin/python");
    let made = works(Command::new("python3").args(["-m", "venv", &dir]))
        && works(Command::new(&python).args(["-m", "pip", "install", "-q", connector]));
    if !made {
        eprintln!("skipped: {connector} cannot be built: apt-get install gcc libmariadb-dev python3-dev python3-venv");
        return None;
    }
    Some(python)
}

/// Builds one of the programs in Go. `None`, with a reason: that cannot be done here.
pub fn go_program(place: &Place, name: &str) -> Option<String> {
    if !works(Command::new("go").arg("version")) {
        eprintln!("skipped: apt-get install golang-go");
        return None;
    }
    let dir = place.path("go");
    std::fs::create_dir(&dir).unwrap();
    std::fs::copy(source(name), format!("{dir}/client.go")).unwrap();
    let go = |words: &[&str]| works(Command::new("go").args(words).current_dir(&dir));
    let driver = "github.com/go-sql-driver/mysql@v1.9.3";
    if !(go(&["mod", "init", "client"]) && go(&["get", driver]) && go(&["build", "-o", "client", "."])) {
        eprintln!("skipped: {driver} cannot be had from the module proxy");
        return None;
    }
    Some(format!("{dir}/client"))
}

/// Debian's, with what runs it. `None`, with a reason: one of them is missing.
pub fn jar_of_connector_j() -> Option<&'static str> {
    const JAR: &str = "/usr/share/java/mariadb-java-client.jar";
    if !Path::new(JAR).exists() || !works(Command::new("javac").arg("-version")) {
        eprintln!("skipped: apt-get install libmariadb-java default-jdk-headless");
        return None;
    }
    Some(JAR)
}

#[test]
#[ignore = "starts real servers"]
fn connector_c() {
    let config = Command::new("mariadb_config").args(["--cflags", "--libs"]).output();
    let Some(flags) = config.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: apt-get install gcc libmariadb-dev");
        return;
    };
    let Some(scene) = Scene::set(5) else { return };
    let (program, flags) = (scene.place.path("client"), String::from_utf8(flags.stdout).unwrap());
    let compiled =
        Command::new("cc").args(["-o", &program, &source("client.c")]).args(flags.split_whitespace()).output().unwrap();
    printed(&compiled);
    for role in LISTENERS {
        let output = Command::new(&program).args(scene.ways(role)).args([&scene.file, MEGABYTES]).output().unwrap();
        assert_eq!(printed(&output), "socket tcp tls ", "{role}");
    }
}

#[test]
#[ignore = "starts real servers"]
fn pymysql() {
    let Some(python) = python_with_pymysql() else {
        eprintln!("skipped: apt-get install python3-pymysql");
        return;
    };
    let Some(scene) = Scene::set(6) else { return };
    for role in LISTENERS {
        let mut command = Command::new(python);
        let output =
            command.arg(source("client.py")).args(scene.ways(role)).args([&scene.file, MEGABYTES]).output().unwrap();
        assert_eq!(printed(&output), "socket tcp tls ", "{role}");
    }
}

#[test]
#[ignore = "starts real servers"]
fn connector_python() {
    let place = Place::new();
    let Some(python) = python_with_connector(&place) else { return };
    let Some(scene) = Scene::set(10) else { return };
    for role in LISTENERS {
        let mut command = Command::new(&python);
        let command = command.arg(source("connector.py")).args(scene.ways(role)).args([&scene.file, MEGABYTES]);
        assert_eq!(printed(&command.output().unwrap()), "socket tcp tls ", "{role}");
    }
}

#[test]
#[ignore = "starts real servers"]
fn go_driver() {
    let place = Place::new();
    let Some(program) = go_program(&place, "client.go") else { return };
    let Some(scene) = Scene::set(7) else { return };
    for role in LISTENERS {
        let [socket, host, port] = scene.ways(role);
        let words = [socket, format!("{host}:{port}"), scene.file.clone(), MEGABYTES.to_owned()];
        let output = Command::new(&program).args(words).output().unwrap();
        assert_eq!(printed(&output), "socket tcp text tls ", "{role}");
    }
}

#[test]
#[ignore = "starts real servers"]
fn connector_j() {
    let Some(jar) = jar_of_connector_j() else { return };
    let Some(scene) = Scene::set(8) else { return };
    for role in LISTENERS {
        let [_, host, port] = scene.ways(role);
        let mut command = Command::new("java");
        command.args(["-cp", jar, &source("Client.java"), &host, &port, &scene.file, MEGABYTES]);
        assert_eq!(printed(&command.output().unwrap()), "tcp tls prepared ", "{role}");
    }
}
