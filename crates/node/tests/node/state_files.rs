//! State files that were damaged, edited, or are no files: each start does the right thing, or says why it does not start.

use std::fs;
use std::path::Path;

use trireme_node::Code;

use crate::cluster::{Cluster, agree};

/// The third node's way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expect {
    /// Its position counts: no full copy.
    CatchesUp,
    Copies,
    /// It does not start, and its log speaks of this.
    Refuses(&'static str),
}
use Expect::{CatchesUp, Copies, Refuses};

type Damage = fn(&Path);

fn edit(file: &Path, change: impl Fn(String) -> String) {
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, change(text)).unwrap();
}

/// The line that begins with `key` is replaced.
fn replace(file: &Path, key: &str, line: &str) {
    edit(file, |text| {
        let lines: Vec<&str> = text.lines().map(|old| if old.starts_with(key) { line } else { old }).collect();
        lines.join("\n") + "\n"
    });
}

fn make_directory(file: &Path) {
    let _ = fs::remove_file(file);
    fs::create_dir(file).unwrap();
}

const GRASTATE: &[(&str, Damage, Expect)] = &[
    ("untouched", |_| {}, CatchesUp),
    ("missing", |f| fs::remove_file(f).unwrap(), Copies),
    ("empty", |f| fs::write(f, "").unwrap(), Copies),
    ("cut off in the uuid", |f| edit(f, |text| text[..50].to_owned()), Copies),
    ("cut off in the seqno", |f| edit(f, |text| text[..text.find("seqno:").unwrap() + 10].to_owned()), Copies),
    ("no text", |f| fs::write(f, [0, 159, 146, 150, 255, 10]).unwrap(), Copies),
    ("another history", |f| replace(f, "uuid:", "uuid:    01234567-89ab-cdef-0123-456789abcdef"), Copies),
    ("no uuid", |f| replace(f, "uuid:", "uuid:    yes"), Copies),
    ("a seqno that nobody has reached", |f| replace(f, "seqno:", "seqno:   999999"), Copies),
    ("no number as seqno", |f| replace(f, "seqno:", "seqno:   many"), Copies),
    ("safe_to_bootstrap edited", |f| replace(f, "safe_to_bootstrap:", "safe_to_bootstrap: 1"), CatchesUp),
    ("a comment more", |f| edit(f, |text| format!("# mine\n{text}# the end\n")), CatchesUp),
    ("a directory", make_directory, Refuses("grastate.dat")),
];

#[test]
fn grastate_as_it_may_be_found() {
    check("grastate.dat", GRASTATE);
}

/// Only what Galera's tools may have left there: this node's own group is in its log.
const GVWSTATE: &[(&str, Damage, Expect)] = &[
    ("empty", |f| fs::write(f, "").unwrap(), CatchesUp),
    (
        "cut off",
        |f| fs::write(f, "my_uuid: 01234567-89ab-cdef-0123-456789abcdef\n#vwbeg\nview_id: 3 ").unwrap(),
        CatchesUp,
    ),
    ("no text", |f| fs::write(f, [0, 159, 146, 150, 255, 10]).unwrap(), CatchesUp),
    ("large", |f| fs::write(f, vec![b'x'; 1 << 20]).unwrap(), CatchesUp),
    ("a directory", make_directory, CatchesUp),
];

#[test]
fn gvwstate_as_it_may_be_found() {
    check("gvwstate.dat", GVWSTATE);
}

fn check(name: &str, cases: &[(&str, Damage, Expect)]) {
    let cluster = Cluster::new(3);
    let mut hosts = cluster.start();
    let mut third = Some(hosts.pop().unwrap());
    let file = cluster.sites[2].dir.join(name);
    for (case, damage, expect) in cases {
        hosts[0].commit("a", case);
        let last = hosts[0].lock().tables.position();
        let host = third.take().unwrap();
        host.reach(last);
        let tables = host.stop();
        hosts[0].wait("two left", |s| s.size() == 2);
        hosts[1].commit("b", case);
        damage(&file);
        if let Refuses(named) = expect {
            let reason = cluster.refused(2);
            assert!(reason.contains(named), "{name} {case}: {reason}");
            fs::remove_dir(&file).unwrap();
        }
        let mut back = cluster.host(2, tables, None, "");
        assert_eq!(back.connect(&cluster.url(), false), Code::Ok, "{name} {case}: {:#?}", back.lock().log);
        back.serve(2);
        back.wait("synced", |s| s.synced > 0);
        let copies = back.lock().sst_requests;
        let expected = u64::from(*expect != CatchesUp);
        assert_eq!(copies, expected, "{name} {case}: full copies; {:#?}", back.lock().log);
        back.commit("c", case);
        let _ = if file.is_dir() { fs::remove_dir(&file) } else { Ok(()) };
        third = Some(back);
    }
    hosts.push(third.unwrap());
    agree(hosts);
}
