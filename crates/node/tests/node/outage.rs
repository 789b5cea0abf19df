//! The disk with one node's log fails and works again; its server runs on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use trireme_node::{Code, StatValue, ViewStatus};

use crate::cluster::{Cluster, Host, agree, copy, goes_on_with, needs_a_copy, write_much};
use crate::fake::{End, Tables, until};
use crate::flight::{BY_A_BROKEN_LOG, recorded};
use crate::operators::block;

/// Bytes.
pub const MORE_THAN_A_SEGMENT: usize = 4_000_000;

/// Where the log of a node lies: a directory that can be taken away, so that no new segments can be made in it.
pub struct Disk {
    there: PathBuf,
    away: PathBuf,
}

impl Disk {
    fn of(cluster: &Cluster, site: usize) -> Disk {
        let dir = &cluster.sites[site].dir;
        let disk = Disk { there: dir.with_extension("logs"), away: dir.with_extension("away") };
        fs::create_dir(&disk.there).unwrap();
        disk
    }

    pub fn there(&self) -> &Path {
        &self.there
    }

    pub fn option(&self) -> String {
        format!("gcache.dir={}", self.there.display())
    }

    pub fn fail(&self) {
        fs::rename(&self.there, &self.away).unwrap();
    }

    pub fn mend(&self) {
        fs::rename(&self.away, &self.there).unwrap();
    }

    /// The present content.
    fn image(&self) -> PathBuf {
        let image = self.there.with_extension("image");
        copy(&self.there, &image);
        image
    }
}

/// Three nodes, the last one with its log on a disk of its own.
pub fn three(cluster: &Cluster) -> (Vec<Host>, Host, Disk) {
    three_with(cluster, "")
}

/// `options`: more of the last one's.
fn three_with(cluster: &Cluster, options: &str) -> (Vec<Host>, Host, Disk) {
    let hosts = vec![cluster.bootstrap(), cluster.join(1)];
    let disk = Disk::of(cluster, 2);
    let mut third = cluster.host(2, Tables::default(), None, &format!("{}; {options}", disk.option()));
    assert_eq!(third.connect(&cluster.url(), false), Code::Ok);
    third.serve(2);
    third.wait("synced", |s| s.synced == 1);
    for host in hosts.iter().chain([&third]) {
        host.wait("all in", |s| s.size() == 3);
    }
    (hosts, third, disk)
}

/// The disk works, and the third server, which was stopped in the outage, is started again.
#[track_caller]
fn comes_back_with_its_data(cluster: &Cluster, kept: Tables, disk: &Disk, others: Vec<Host>) {
    disk.mend();
    // The log was not closed in order, so the server's engine is asked as after a crash.
    let position = kept.gtid();
    let mut back = cluster.host(2, kept, Some(position), &disk.option());
    back.comes_back_without_a_copy(cluster);
    goes_on_with(back, others);
}

/// The disk fails when it needs room for another segment.
pub fn break_down(disk: &Disk, writer: &Host, host: &Host) {
    disk.fail();
    write_much(writer, MORE_THAN_A_SEGMENT);
    await_out(host);
}

/// Its own log says that it is out. An applier that is held up keeps the view from the server.
fn await_outage(host: &Host) {
    host.wait("says so", |s| {
        s.log.iter().any(|(_, line)| line.contains("until the disk with its write-set log works"))
    });
}

pub fn await_out(host: &Host) {
    host.wait("out", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
    await_outage(host);
}

#[test]
fn it_comes_back_by_itself_once_the_disk_works() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    break_down(&disk, &hosts[0], &third);
    hosts[0].wait("two left", |s| s.size() == 2);
    assert!(matches!(third.run("a", "refused"), End::Failed(_)), "it takes no commits");
    hosts[1].commit("a", "missed");
    third.wait("looked in vain", |s| s.log.iter().any(|(_, line)| line.contains("cannot be opened yet")));
    disk.mend();
    third.wait("synced again", |s| s.synced == 2);
    hosts[0].wait("three", |s| s.size() == 3);
    // Their file lies on that disk, and was away with it.
    recorded(&[&disk.there], BY_A_BROKEN_LOG);
    {
        let s = third.lock();
        assert_eq!((s.sst_requests, s.finals), (1, 0), "no copy but the first, and the server was not disconnected");
    }
    goes_on_with(third, hosts);
}

#[test]
fn it_may_fail_again() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    for round in 1..=2 {
        break_down(&disk, &hosts[0], &third);
        hosts[0].wait("two left", |s| s.size() == 2);
        disk.mend();
        third.wait("synced again", |s| s.synced == 1 + round);
    }
    assert_eq!(third.lock().sst_requests, 1);
    goes_on_with(third, hosts);
}

/// A directory whose file system is not mounted is no log to begin anew with.
#[test]
fn an_empty_directory_is_not_taken_for_its_log() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    break_down(&disk, &hosts[0], &third);
    fs::create_dir(&disk.there).unwrap();
    third.wait("looked in vain", |s| s.log.iter().any(|(_, line)| line.contains("is the file system mounted")));
    fs::remove_dir_all(&disk.there).unwrap();
    disk.mend();
    third.wait("synced again", |s| s.synced == 2);
    goes_on_with(third, hosts);
}

#[test]
fn what_the_disk_lost_is_admitted_and_repaired() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    let image = disk.image();
    hosts[0].commit("a", "acknowledged by the third, then lost");
    third.reach(hosts[0].lock().tables.position());
    break_down(&disk, &hosts[0], &third);
    fs::rename(image, &disk.there).unwrap();
    third.wait("synced again", |s| s.synced == 2);
    assert!(third.lock().log.iter().any(|(_, line)| line.contains("the disk lost entries")), "{:#?}", third.lock().log);
    assert_eq!(third.lock().sst_requests, 1, "its data are whole");
    goes_on_with(third, hosts);
}

#[test]
fn commits_that_are_under_way_are_answered_and_agree() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    std::thread::scope(|scope| {
        let (begin, begun) = mpsc::channel();
        let busy = &third;
        scope.spawn(move || {
            assert!(matches!(busy.run("own", "before"), End::Committed(_)));
            begin.send(()).unwrap();
            let mut own = 0..;
            while !matches!(busy.run(&format!("own{}", own.next().unwrap()), "x"), End::Failed(_)) {}
        });
        begun.recv().unwrap();
        disk.fail();
        write_much(&hosts[0], MORE_THAN_A_SEGMENT);
    });
    await_out(&third);
    disk.mend();
    third.wait("synced again", |s| s.synced == 2);
    goes_on_with(third, hosts);
}

#[test]
fn without_peers_it_goes_on_alone() {
    let cluster = Cluster::new(1);
    let disk = Disk::of(&cluster, 0);
    let mut host = cluster.host(0, Tables::default(), None, &disk.option());
    assert_eq!(host.connect("gcomm://", true), Code::Ok);
    host.serve(2);
    host.wait("synced", |s| s.synced == 1);
    let history = host.lock().tables.history;
    disk.fail();
    let large = "x".repeat(100_000);
    let mut acknowledged = 0;
    while matches!(host.run(&format!("k{acknowledged}"), &large), End::Committed(_)) {
        acknowledged += 1;
    }
    await_out(&host);
    disk.mend();
    host.wait("synced again", |s| s.synced == 2);
    {
        // The server rolls back at a view without itself what the old incarnation streamed.
        let s = host.lock();
        let back: Vec<_> = s.views.iter().rev().take(3).map(|v| (v.status, v.own, v.members.len())).collect();
        let primary = ViewStatus::Primary;
        assert_eq!(back, [(primary, Some(0), 1), (primary, None, 0), (ViewStatus::NonPrimary, Some(0), 1)]);
    }
    host.commit("a", "after");
    assert_eq!(host.lock().tables.history, history);
    agree(vec![host]);
}

#[test]
fn when_most_disks_failed_the_cluster_comes_back_with_them() {
    let cluster = Cluster::new(3);
    let first = cluster.bootstrap();
    let disks = [Disk::of(&cluster, 1), Disk::of(&cluster, 2)];
    let mut hosts = vec![first];
    for (site, disk) in (1..).zip(&disks) {
        let mut host = cluster.host(site, Tables::default(), None, &disk.option());
        assert_eq!(host.connect(&cluster.url(), false), Code::Ok);
        host.serve(2);
        host.wait("synced", |s| s.synced == 1);
        hosts.push(host);
    }
    hosts[0].wait("all in", |s| s.size() == 3);
    disks.iter().for_each(Disk::fail);
    let large = "x".repeat(100_000);
    let mut i = 0;
    while matches!(hosts[0].run(&format!("k{i}"), &large), End::Committed(_)) {
        i += 1;
    }
    hosts[1..].iter().for_each(await_out);
    let before: Vec<u64> = hosts.iter().map(|host| host.lock().synced).collect();
    disks.iter().for_each(Disk::mend);
    for (host, before) in hosts.iter().zip(before) {
        host.wait("synced again", |s| s.synced > before && s.size() == 3);
    }
    hosts[1].commit("a", "after");
    agree(hosts);
}

#[test]
fn what_the_server_asked_for_meanwhile_is_remembered() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    assert_eq!((third.node().desync(), third.stat("desync_count")), (Code::Ok, StatValue::Text("1".into())));
    break_down(&disk, &hosts[0], &third);
    assert_eq!(third.node().desync(), Code::Ok);
    assert_eq!(third.node().options_set("repl.durability=process"), Code::NodeFail);
    disk.mend();
    hosts[0].wait("three", |s| s.size() == 3);
    until("desynced twice", || {
        third.node().stats().contains(&("desync_count".to_string(), StatValue::Text("2".into())))
    });
    assert_eq!((third.node().resync(), third.node().resync()), (Code::Ok, Code::Ok));
    third.wait("synced again", |s| s.synced == 2);
    goes_on_with(third, hosts);
}

/// It has nobody to vote with, so its data may not be the others'.
#[test]
fn an_error_of_an_applier_meanwhile_costs_a_full_copy() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    let hold = block(&third, b"bad");
    third.lock().failing.insert(b"bad".to_vec(), b"Error_code: 1114;".to_vec());
    // One after the other: who fails after the connection has ended must not wait for a vote either.
    for key in ["a", "b", "c", "d"] {
        hosts[0].commit(key, "bad");
    }
    disk.fail();
    // More would wait for the one that is held.
    write_much(&hosts[0], MORE_THAN_A_SEGMENT);
    await_outage(&third);
    drop(hold);
    third.wait("out for good", |s| s.finals == 1);
    disk.mend();
    needs_a_copy(&cluster, third, &disk.option(), hosts);
}

#[test]
fn a_stop_while_it_comes_back_is_heard() {
    let cluster = Cluster::new(3);
    let (hosts, mut third, disk) = three(&cluster);
    break_down(&disk, &hosts[0], &third);
    disk.mend();
    third.wait("comes back", |s| s.log.iter().any(|(_, line)| line.contains("works again")));
    third.disconnect();
    assert_eq!(third.connect(&cluster.url(), false), Code::Ok, "{:#?}", third.lock().log);
    third.serve(2);
    third.wait("synced", |s| s.synced >= 2);
    goes_on_with(third, hosts);
}

#[test]
fn a_new_connection_does_not_wait_for_it() {
    let cluster = Cluster::new(3);
    let (hosts, mut third, disk) = three(&cluster);
    break_down(&disk, &hosts[0], &third);
    third.disconnect();
    assert_eq!(third.lock().finals, 1);
    assert_eq!(third.connect(&cluster.url(), false), Code::NodeFail, "the disk does not work yet");
    disk.mend();
    assert_eq!(third.connect(&cluster.url(), false), Code::Ok, "{:#?}", third.lock().log);
    third.serve(2);
    third.wait("synced again", |s| s.synced == 2);
    assert_eq!(third.lock().sst_requests, 1, "only the first time");
    goes_on_with(third, hosts);
}

#[test]
fn a_server_that_is_stopped_meanwhile_knows_where_it_stands() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    break_down(&disk, &hosts[0], &third);
    let kept = third.stop();
    let state = fs::read_to_string(cluster.sites[2].dir.join("grastate.dat")).unwrap();
    assert!(state.contains(&format!("seqno:   {}\n", kept.position())), "{state}");
    hosts[0].commit("a", "missed");
    comes_back_with_its_data(&cluster, kept, &disk, hosts);
}

/// Bodies beyond the memory for them would have to be read back from the log.
#[test]
fn a_server_that_is_stopped_before_its_backlog_can_be_read_keeps_its_data() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three_with(&cluster, "gcs.fc_limit=100000");
    let hold = block(&third, b"held");
    hosts[0].commit("a", "held");
    write_much(&hosts[0], 40 << 20);
    disk.fail();
    write_much(&hosts[0], MORE_THAN_A_SEGMENT);
    await_outage(&third);
    drop(hold);
    third.wait("applies what it has in memory", |s| s.tables.position() > 100);
    let kept = third.stop();
    let state = fs::read_to_string(cluster.sites[2].dir.join("grastate.dat")).unwrap();
    assert!(!state.contains("00000000-0000-0000-0000-000000000000"), "{state}");
    comes_back_with_its_data(&cluster, kept, &disk, hosts);
}

/// Its main thread waits for the state, and hears nothing.
#[test]
fn a_server_that_waits_for_its_first_data_ends_when_its_node_can_do_nothing_more() {
    let cluster = Cluster::new(3);
    let hosts = [cluster.bootstrap(), cluster.join(1)];
    hosts.iter().for_each(|host| assert_eq!(host.node().desync(), Code::Ok));
    let disk = Disk::of(&cluster, 2);
    let mut third = cluster.host(2, Tables::default(), None, &disk.option());
    assert_eq!(third.connect(&cluster.url(), false), Code::Ok);
    third.serve(1);
    third.wait("asks for a copy, and nobody is free", |s| s.sst_requests == 1);
    let state = third.grastate(&cluster.sites[2]);
    assert!(state.contains("safe_to_bootstrap: 0"), "{state}");
    disk.fail();
    write_much(&hosts[0], MORE_THAN_A_SEGMENT);
    third.wait("ends", |s| s.ended.as_ref().is_some_and(|text| text.contains("cannot be given its data")));
    third.stop();
    hosts.into_iter().for_each(|host| drop(host.stop()));
}

/// The others may execute it: an answer before that is known would be a guess.
#[test]
fn a_statement_under_way_is_answered_when_its_outcome_is_known() {
    let cluster = Cluster::new(3);
    let (hosts, third, disk) = three(&cluster);
    disk.fail();
    let fake = third.fake.clone();
    let large = "x".repeat(MORE_THAN_A_SEGMENT);
    let client = thread::spawn(move || fake.toi(9, "t", &large, b""));
    await_out(&third);
    hosts[0].wait("two left", |s| s.size() == 2);
    let ordered = hosts[0].lock().tables.position();
    disk.mend();
    third.wait("synced again", |s| s.synced == 2);
    let seqno = client.join().unwrap().expect("the others have executed it, and so does this one");
    assert!(seqno <= ordered, "{seqno} is not the one that the others had by {ordered}");
    goes_on_with(third, hosts);
}

#[test]
fn a_disk_that_does_not_answer_holds_up_nobody_for_long() {
    let cluster = Cluster::new(3);
    // By io_uring no thread need wait for it, and the log can be opened again.
    let (hosts, mut third, disk) = three_with(&cluster, "repl.log_io=threads");
    let node = third.node();
    node.stall_in("trireme-sync", true);
    break_down(&disk, &hosts[0], &third);
    disk.mend();
    third.wait("has looked", |s| s.log.iter().any(|(_, line)| line.ends_with("the disk does not answer")));
    third.disconnect();
    assert!(!node.close(), "a thread still waits for the disk");
    node.stall_in("trireme-sync", false);
    agree(hosts);
}

#[test]
fn a_write_past_the_cache_that_hangs_holds_up_nobody_for_long() {
    let cluster = Cluster::new(3);
    let (hosts, mut third, _disk) = three_with(&cluster, "repl.log_io=uring; repl.status_extended=yes");
    if third.stat("trireme_log_io") != StatValue::Text("uring".into()) {
        eprintln!("SKIPPED: this machine has no io_uring");
        return;
    }
    // A write that was begun in another way is done with.
    hosts[0].commit("a", "before");
    third.reach(hosts[0].lock().tables.position());
    let node = third.node();
    node.stall_in("write past the cache", true);
    // The others have them on their disks. This one's own log does not.
    until("a write is under way", || {
        hosts[0].commit("a", "meanwhile");
        node.is_stalled_in("write past the cache")
    });
    third.commit("b", "its own");
    third.reach(hosts[0].lock().tables.position());
    third.disconnect();
    let told = "the disk with the write-set log does not answer";
    assert!(third.lock().log.iter().any(|(_, line)| line.contains(told)), "{:#?}", third.lock().log);
    assert!(!node.close(), "its thread still waits for the disk");
    node.stall_in("write past the cache", false);
    until("the thread has ended", || node.close());
    agree(hosts);
}

/// As in a container whose rules forbid it.
#[test]
fn without_io_uring_a_thread_syncs_and_the_log_says_why() {
    let cluster = Cluster::new(1);
    // Rules hold for the thread that makes them, and for those that it starts.
    thread::scope(|scope| {
        scope.spawn(|| {
            forbid_io_uring();
            let mut host = cluster.host(0, Tables::default(), None, "repl.log_io=uring; repl.status_extended=yes");
            assert_eq!(host.connect(&cluster.url(), true), Code::Ok);
            host.serve(2);
            host.wait("synced", |s| s.synced == 1);
            host.commit("a", "b");
            assert_eq!(host.stat("trireme_log_io"), StatValue::Text("threads".into()));
            let told = |line: &str| {
                line.contains("repl.log_io=uring cannot have io_uring here: io_uring: Operation not permitted")
            };
            assert_eq!(host.lock().log.iter().filter(|(_, line)| told(line)).count(), 1, "{:#?}", host.lock().log);
            agree(vec![host]);
        });
    });
}

/// From now on, for this thread and those that it starts, the call that makes a ring is not permitted.
fn forbid_io_uring() {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let answer = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let rules = [
        // The number of the call is the first word of what is looked at.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, answer),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: rules.len() as u16, filter: rules.as_ptr().cast_mut() };
    // SAFETY: the program lives as long as the call, which only reads it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
