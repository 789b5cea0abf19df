//! Servers whose write-set logs are encrypted (`repl.log_key_file`): killed, started again, given new keys, and the wrong one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use trireme_cluster::{Cluster, LogCursor, Start, Stop};

use crate::arbitrator;
use crate::support::{
    Bed, Load, assert_all_there, assert_equal, assert_no_copy, await_status, bounded, client, client_in_d, eventually,
    node, schema, start_all,
};

/// In rows and in a statement, and nowhere else.
const MARK: &str = "row-for-no-eyes";
const WRONG: u8 = 99;

/// The file with the keys, for the servers' user and nobody else.
struct Keys(PathBuf);

impl Keys {
    fn new() -> Keys {
        let dir = trireme_private::fresh_dir(Path::new("/var/tmp"), "trireme-test-keys").unwrap();
        // The servers' user gets through to a file that it is told of.
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o711)).unwrap();
        Keys(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("servers")
    }

    /// The first of `keys` seals.
    fn write(&self, keys: &[u8]) {
        let text: String = keys.iter().map(|n| format!("a7{}\n", format!("{n:02x}").repeat(31))).collect();
        trireme_private::replace(&self.file(), text.as_bytes(), 0o600).unwrap();
        if Uid::effective().is_root() {
            let user = User::from_name("mysql").unwrap().expect("servers do not run as root");
            chown(self.file(), Some(user.uid.as_raw()), None).unwrap();
        }
        // An operator's own copy, for `trireme log`.
        trireme_private::replace(&self.0.join("own"), text.as_bytes(), 0o600).unwrap();
    }

    /// The answer of `trireme log verify` about a node that is down.
    fn verify(&self, program: &Path, data: &Path, with_key: bool) -> Result<String, String> {
        let mut command = bounded(program);
        command.args(["log", "verify"]);
        if with_key {
            command.arg("--key-file").arg(self.0.join("own"));
        }
        let output = command.arg(data).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(said) } else { Err(said) }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn an_encrypted_log_outlives_kills_and_new_keys(bed: &Bed) {
    let Some(program) = arbitrator::command(bed) else { return };
    let keys = Keys::new();
    keys.write(&[1]);
    let mut spec = bed.spec();
    spec.provider_options = format!("repl.log_key_file={}", keys.file().display());
    let mut cluster = bed.up(&spec);
    schema(&cluster, 1);
    client(&cluster, 1).run(&format!("CREATE USER somebody@localhost IDENTIFIED BY '{MARK}'"));
    let mut writer = client_in_d(&cluster, 1);
    writer.run("CREATE TABLE marked (id INT PRIMARY KEY AUTO_INCREMENT, pad TEXT)");
    writer.run(&format!("INSERT INTO marked (pad) VALUES (REPEAT('{MARK} ', 1000))"));

    // Killed, and back by its own log and the others'.
    let load = Load::start(&cluster.endpoints()[..2]);
    back_without_a_copy(&mut cluster, &load, "the first key");

    // A new key while it runs; the log then needs both.
    keys.write(&[2, 1]);
    for n in 1..=3 {
        client(&cluster, n).run("SET GLOBAL wsrep_provider_options = 'repl.log_key_reload=1'");
    }
    load.await_progress(50);
    back_without_a_copy(&mut cluster, &load, "a new key");

    // The wrong key: refused, named, and nothing is changed.
    cluster.stop(node(3), Stop::Kill).unwrap();
    let data = cluster.node(node(3)).unwrap().data();
    let before = logs(&data);
    keys.write(&[WRONG]);
    let mut log = LogCursor::at_end(&cluster.node(node(3)).unwrap().log());
    assert!(cluster.start(node(3), Start::Recover, &mut |_| {}).is_err(), "it starts without its key");
    let lines = log.lines();
    let told = lines.iter().any(|line| line.contains("is encrypted with key") && line.contains("repl.log_key_file"));
    assert!(told, "{lines:#?}");
    assert_eq!(logs(&data), before);
    let said = keys.verify(&program, &data, true).unwrap_err();
    assert!(said.contains("is encrypted with key"), "{said}");
    // None at all.
    assert!(keys.verify(&program, &data, false).unwrap_err().contains("no key file is given"));
    keys.write(&[2, 1]);
    keys.verify(&program, &data, true).unwrap();
    cluster.start(node(3), Start::Recover, &mut |_| {}).unwrap();
    let acknowledged = load.finish();

    // All of them at once.
    cluster.kill_all().unwrap();
    for n in 1..=3 {
        for (name, bytes) in logs(&cluster.node(node(n)).unwrap().data()) {
            let told = bytes.windows(MARK.len()).any(|some| some == MARK.as_bytes());
            assert!(!told, "node{n}: {name} tells what is in the rows");
        }
    }
    let started = start_all(&mut cluster, &[node(2), node(3), node(1)], "all killed");
    assert_no_copy(&started, "all killed");
    for n in 1..=3 {
        assert_all_there(&cluster, n, &acknowledged);
    }
    assert_equal(&cluster);
}

fn back_without_a_copy(cluster: &mut Cluster, load: &Load, when: &str) {
    cluster.stop(node(3), Stop::Kill).unwrap();
    load.await_progress(50);
    let mut log = LogCursor::at_end(&cluster.node(node(3)).unwrap().log());
    cluster.start(node(3), Start::Recover, &mut |_| {}).unwrap_or_else(|error| panic!("{when}: {error}"));
    await_status(cluster, 3, "wsrep_local_state_comment", "Synced");
    assert_no_copy(&[(node(3), log.lines())], when);
    eventually("the third node answers", || {
        cluster.sql(node(3), "SELECT COUNT(*) FROM d.load_rows").map(drop).map_err(|error| error.to_string())
    });
}

/// The files of a node's log, but for those that its start makes anew before it looks.
fn logs(data: &Path) -> Vec<(String, Vec<u8>)> {
    let mut out: Vec<(String, Vec<u8>)> = fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| name.starts_with("trireme.") && name.ends_with(".galera.cache"))
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect();
    out.sort();
    out
}
