//! The settings of every server, from the files that were kept: those that all have in common, and the rest of each.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Names and addresses: they differ between nodes and say nothing about a result.
const PLACES: [&str; 12] = [
    "datadir",
    "socket",
    "pid-file",
    "log-error",
    "bind-address",
    "port",
    "server-id",
    "wsrep-node-name",
    "wsrep-node-address",
    "wsrep-node-incoming-address",
    "wsrep-sst-receive-address",
    "wsrep-cluster-name",
];

/// The settings in an option file: of several of one name the last counts.
fn read(text: &str) -> BTreeMap<String, String> {
    let mut section = String::new();
    let mut all = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            section = line.to_owned();
            continue;
        }
        // The scripts of state transfer have sections of their own.
        if !matches!(section.as_str(), "[mysqld]" | "[galera]" | "[server]" | "[mariadb]") {
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let name = name.trim().replace('_', "-");
        if !PLACES.contains(&name.as_str()) && !name.starts_with("wsrep-sst-auth") {
            all.insert(name, value.trim().to_owned());
        }
    }
    all
}

fn line((name, value): (&String, &String)) -> String {
    if value.is_empty() { name.clone() } else { format!("{name}={value}") }
}

/// The section of the report. Empty where a run kept none.
pub fn section(dir: &Path) -> String {
    let entries = std::fs::read_dir(dir.join("settings")).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    let mut servers: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    let mut others: Vec<(String, String)> = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match file.extension().is_some_and(|end| end == "cnf") {
            true => servers.push((name, read(&text))),
            false => others.push((name, text)),
        }
    }
    if servers.is_empty() && others.is_empty() {
        return String::new();
    }
    let mut text = "\n## Settings\n".to_owned();
    if let Some((_, first)) = servers.first() {
        let common: BTreeMap<String, String> = first
            .iter()
            .filter(|(name, value)| servers.iter().all(|(_, all)| all.get(*name) == Some(*value)))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let _ = write!(
            text,
            "\nEvery MariaDB server is told this in its `my.cnf`, and nothing else but names, addresses and what follows. The rest is the server's default, \
             and the provider's.\n\n    {}\n\n| servers | also told |\n|---|---|\n",
            common.iter().map(line).collect::<Vec<_>>().join("\n    ")
        );
        for (name, all) in &servers {
            let own: Vec<String> = all
                .iter()
                .filter(|(name, _)| !common.contains_key(*name))
                .map(|pair| format!("`{}`", line(pair)))
                .collect();
            let _ = writeln!(text, "| {name} | {} |", own.join(", ").replace('|', "\\|"));
        }
    }
    for (name, told) in others {
        let _ = write!(text, "\n{name}:\n\n    {}\n", told.trim_end().replace('\n', "\n    "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_counts_and_places_are_left_out() {
        let all = read(
            "# x\n[mysqld]\nport=1\nflush_log=1\n[galera]\nwsrep-sst-auth=sst:secret\nwsrep-on=ON\n[mysqld]\nflush-log=0\nlog-bin\n[sst]\nx=1\n",
        );
        let lines: Vec<String> = all.iter().map(line).collect();
        assert_eq!(lines, ["flush-log=0", "log-bin", "wsrep-on=ON"]);
    }

    #[test]
    fn what_all_have_is_told_once() {
        let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-bench-settings").unwrap();
        assert_eq!(section(&dir), "");
        std::fs::create_dir(dir.join("settings")).unwrap();
        std::fs::write(dir.join("settings/a.cnf"), "[mysqld]\nx=1\ny=2\n").unwrap();
        std::fs::write(dir.join("settings/b.cnf"), "[mysqld]\nx=1\ny=3\n").unwrap();
        std::fs::write(dir.join("settings/etcd.txt"), "etcd --name node1").unwrap();
        let text = section(&dir);
        assert!(text.contains("\n    x=1\n") && text.contains("| b | `y=3` |"), "{text}");
        assert!(text.contains("etcd:\n\n    etcd --name node1"), "{text}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
