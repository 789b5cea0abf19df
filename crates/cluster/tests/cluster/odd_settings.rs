//! Settings that are found where few servers have them. The position of a killed server is asked of a second process of its binary, and that one has
//! to find them too.
//!
//! Nobody takes a full copy here. The server puts paths between quotes as they are when it calls its script, and a quote in them breaks that, with
//! any provider.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use trireme_cluster::{Cluster, Endpoint, LogCursor, Node, Settings, Stop, find_program, wait_equal};

use crate::support::{Bed, Load, PATIENCE, assert_all_there, eventually, node, schema};

/// The node whose server the scenario starts by itself.
const ODD: u8 = 3;
/// Behind the names of the groups that name the data directory.
const SUFFIX: &str = "-odd";

/// How a server is told where its settings are. The data directory is named in a group with a suffix alone.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// In a file that `--defaults-extra-file` names, and in one below `MYSQL_HOME`.
    ExtraFile,
    /// Below `MYSQL_HOME`. The command line is the server's name, and nothing else.
    Environment,
}

/// A server is called by another name, has a space and a quote in its paths, and gets settings by [`Way`]s that an installed one does not use: killed
/// and started plainly, it knows its position, and what it lacks comes from the others' logs.
pub fn a_position_is_found_with_odd_settings(bed: &Bed) {
    let mut spec = bed.spec();
    // They are moved from there.
    spec.settings = Settings::File;
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    let mut kept = Load::start(&cluster.endpoints()).finish();
    cluster.stop(node(ODD), Stop::Graceful).unwrap();
    let place = Place::prepare(cluster.node(node(ODD)).unwrap());
    let endpoints = [1, ODD].map(|n| cluster.endpoint(node(n)).unwrap());
    for way in [Way::ExtraFile, Way::Environment] {
        let server = place.start(way);
        await_synced(&endpoints[1]);
        let load = Load::resume(&endpoints, &format!("{way:?}"));
        load.await_progress(50);
        server.kill();
        load.await_progress(50);
        let mut log = LogCursor::at_end(&place.log);
        let server = place.start(way);
        await_synced(&endpoints[1]);
        kept.extend(load.finish());
        assert_recovered(&log.lines(), way);
        assert_same(&cluster, &endpoints, &kept);
        server.kill();
    }
}

fn await_synced(endpoint: &Endpoint) {
    eventually(&format!("{} becomes Synced", endpoint.node), || {
        let asked = endpoint.session().map_err(|error| error.to_string())?;
        let state =
            { asked }.query("SHOW STATUS LIKE 'wsrep_local_state_comment'").map_err(|error| error.to_string())?;
        let state = state.texts();
        if state.iter().flatten().any(|text| text == "Synced") { Ok(()) } else { Err(format!("{state:?}")) }
    });
}

fn assert_recovered(lines: &[String], way: Way) {
    let says = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(says("asking the storage engine for it"), "{way:?}: it knew its position: {lines:#?}");
    assert!(says("recovered position"), "{way:?}: the position was not found: {lines:#?}");
    assert!(!says("State transfer required") && !says("SST received"), "{way:?}: a full copy: {lines:#?}");
}

fn assert_same(cluster: &Cluster, endpoints: &[Endpoint], kept: &BTreeSet<String>) {
    assert_all_there(cluster, ODD, kept);
    wait_equal(endpoints, PATIENCE).unwrap_or_else(|error| panic!("{error}"));
}

/// The files of such a server.
struct Place {
    /// Where it is started.
    dir: PathBuf,
    /// It has a space and a quote in its name, and so has what lies below.
    home: PathBuf,
    program: PathBuf,
    log: PathBuf,
}

impl Place {
    /// Moves the data of a stopped node, and the settings that it had in its file.
    fn prepare(old: &Node) -> Place {
        let dir = old.dir.clone();
        let home = dir.join("it's odd");
        let place = Place { program: home.join("the server"), log: old.log(), dir, home };
        let (data, alone) = (place.home.join("da ta's"), place.home.join("alone"));
        fs::create_dir_all(&alone).unwrap();
        let installed = find_program("mariadbd").expect("the other nodes run it");
        symlink(installed, &place.program).unwrap();
        fs::rename(old.data(), &data).unwrap();
        let text = fs::read_to_string(old.config()).unwrap();
        let mut common: Vec<&str> = text.lines().filter(|line| !line.starts_with("datadir=")).collect();
        // Root's servers change their user by themselves here.
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            common.extend(["[mysqld]", "user=mysql"]);
        }
        let common = common.join("\n");
        let suffixed = format!("[mariadbd{SUFFIX}]\ndatadir={}\n", data.display());
        fs::write(place.home.join("my.cnf"), &common).unwrap();
        fs::write(place.extra_file(), &suffixed).unwrap();
        fs::write(alone.join("my.cnf"), format!("{common}\n{suffixed}")).unwrap();
        let owner = fs::metadata(&data).unwrap().uid();
        chown(&place.home, Some(owner), None).unwrap();
        place
    }

    fn extra_file(&self) -> PathBuf {
        self.home.join("extra's.cnf")
    }

    fn start(&self, way: Way) -> Server {
        let mut command = Command::new(&self.program);
        match way {
            Way::ExtraFile => {
                // Servers go into their data directory, from where this relative path would lead nowhere.
                let relative = self.extra_file().strip_prefix(&self.dir).expect("it is below").to_owned();
                command.env("MYSQL_HOME", &self.home);
                command.arg(format!("--defaults-extra-file={}", relative.display()));
                command.arg(format!("--defaults-group-suffix={SUFFIX}"));
            }
            Way::Environment => {
                command.env("MYSQL_HOME", self.home.join("alone")).env("MYSQL_GROUP_SUFFIX", SUFFIX);
            }
        }
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Server(command.spawn().unwrap())
    }
}

/// It does not outlive the scenario.
struct Server(Child);

impl Server {
    /// SIGKILL; its ports are free when this returns.
    fn kill(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
