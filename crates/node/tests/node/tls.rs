//! Encrypted groups: starting, catching up, asking before a bootstrap, new certificates.

use std::os::unix::fs::PermissionsExt;

use trireme_certificates::{Authority, Files, Validity};
use trireme_node::{Code, ViewStatus};
use trireme_surface::texts;

use crate::cluster::{Cluster, Host, Site, agree};
use crate::fake::{Fake, Tables, until};

/// Gives a node a certificate of `authority`.
fn certify(site: &Site, authority: &Authority) {
    let issued = authority.issue(&site.name, Validity::YEARS, None).unwrap();
    Files::below(&site.dir).write(&issued, authority).unwrap();
}

fn tls_cluster(nodes: usize, authority: &Authority) -> Cluster {
    let mut cluster = Cluster::new(nodes);
    for site in &mut cluster.sites {
        certify(site, authority);
        site.options = Files::below(&site.dir).options();
    }
    cluster
}

fn count(host: &Fake, part: &str) -> usize {
    host.lock().log.iter().filter(|(_, text)| text.contains(part)).count()
}

/// Breaks all links of a node and lets it come back over new ones.
fn relink(host: &Host, others: &[&Host]) {
    let size = others.len() + 1;
    let synced = host.lock().synced;
    assert_eq!(host.node().options_set("gmcast.isolate=1"), Code::Ok);
    host.wait("non-primary", |s| s.views.last().is_some_and(|v| v.status == ViewStatus::NonPrimary));
    others[0].wait("one gone", |s| s.size() == size - 1);
    assert_eq!(host.node().options_set("gmcast.isolate=0"), Code::Ok);
    // As a server does before it lets clients in.
    host.wait("back", |s| s.size() == size && s.synced > synced);
    others[0].wait("back", |s| s.size() == size);
}

#[test]
fn an_encrypted_group_commits_and_takes_new_certificates_without_a_stop() {
    let (old, new) = (Authority::new("old").unwrap(), Authority::new("new").unwrap());
    let cluster = tls_cluster(3, &old);
    let hosts = cluster.start();
    for host in &hosts {
        host.commit(&host.name, "before");
        assert!(host.node().options_get().contains("socket.ssl_reload = 1; "), "which FLUSH SSL looks for");
        host.wait("both links encrypted", |s| s.log.iter().filter(|(_, t)| t.contains("(TLSv1.3, ")).count() >= 2);
        assert_eq!(count(host, "tcp://"), 0);
    }
    // A file that does not fit is refused and changes nothing.
    let third = &cluster.sites[2];
    let key = std::fs::read(third.dir.join("key.pem")).unwrap();
    std::fs::copy(cluster.sites[0].dir.join("key.pem"), third.dir.join("key.pem")).unwrap();
    assert_eq!(hosts[2].node().options_set("socket.ssl_reload=1"), Code::NodeFail);
    hosts[2].wait("the reason", |s| s.log.iter().any(|(_, t)| t.contains("does not belong to the certificate")));
    relink(&hosts[2], &[&hosts[0], &hosts[1]]);
    std::fs::write(third.dir.join("key.pem"), key).unwrap();
    // A new authority, and all new links need it.
    for (site, host) in cluster.sites.iter().zip(&hosts) {
        certify(site, &new);
        assert_eq!(host.node().options_set("socket.ssl_reload=1"), Code::Ok);
        host.wait("told", |s| s.log.iter().any(|(_, t)| t == texts::SSL_RELOADED));
    }
    hosts[0].commit("a", "over old links");
    relink(&hosts[2], &[&hosts[0], &hosts[1]]);
    hosts[2].commit("a", "over new links");
    agree(hosts);
}

#[test]
fn a_node_that_was_away_catches_up_and_a_bootstrap_asks_over_tls() {
    let cluster = tls_cluster(3, &Authority::new("a").unwrap());
    let mut hosts = cluster.start();
    hosts[2].commit("a", "before");
    let third = hosts.pop().unwrap().stop();
    hosts[0].wait("two left", |s| s.size() == 2);
    for i in 0..50 {
        hosts[1].commit(&format!("k{i}"), &"x".repeat(10_000));
    }
    cluster.allow_bootstrap(2);
    let position = third.gtid();
    let wrong = cluster.host(2, third.clone(), Some(position), "");
    assert_eq!(wrong.connect(&cluster.url(), true), Code::NodeFail);
    assert_eq!(count(&wrong, "a second one would split it"), 1, "{:#?}", wrong.lock().log);
    wrong.stop();
    let mut back = cluster.host(2, third, Some(position), "");
    back.comes_back_without_a_copy(&cluster);
    hosts.push(back);
    agree(hosts);
}

#[test]
fn a_reload_without_tls_is_accepted_and_means_nothing() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    assert_eq!(host.node().options_set("socket.ssl_reload=1"), Code::Ok);
    assert!(!host.node().options_get().contains("socket.ssl_reload"));
    assert_eq!(count(&host, texts::SSL_RELOADED), 0);
    host.stop();
}

#[test]
fn files_that_are_missing_are_found_at_the_start() {
    let mut cluster = tls_cluster(1, &Authority::new("a").unwrap());
    std::fs::remove_file(cluster.sites[0].dir.join("cert.pem")).unwrap();
    let reason = cluster.refused(0);
    assert!(reason.contains("socket.ssl_cert=") && reason.contains("cert.pem"), "{reason}");
    cluster.sites[0].options = "socket.ssl=yes".to_owned();
    assert!(cluster.refused(0).contains("TLS needs both socket.ssl_key and socket.ssl_cert"));
}

#[test]
fn a_certificate_that_expires_soon_is_warned_of() {
    let authority = Authority::new("a").unwrap();
    let cluster = tls_cluster(1, &authority);
    let until = |days| {
        let issued = authority.issue("n1", Validity { from: -1, until: days }, None).unwrap();
        Files::below(&cluster.sites[0].dir).write(&issued, &authority).unwrap();
    };
    until(40);
    let host = cluster.bootstrap();
    assert_eq!(count(&host, "the certificate in socket.ssl_cert"), 0);
    until(20);
    assert_eq!(host.node().options_set("socket.ssl_reload=1"), Code::Ok);
    host.wait("the warning", |s| {
        s.log.iter().any(|(_, t)| t.contains("the certificate in socket.ssl_cert expires in "))
    });
    host.stop();
}

fn secret(n: u8) -> String {
    format!("a7{}\n", format!("{n:02x}").repeat(31))
}

/// Writes the secrets into a node's file and makes it use that.
fn share(site: &mut Site, secrets: &[u8]) {
    let file = site.dir.join("secret");
    let text: String = secrets.iter().map(|n| secret(*n)).collect();
    trireme_private::replace(&file, text.as_bytes(), 0o600).unwrap();
    site.options = format!("repl.secret_file={}", file.display());
}

#[test]
fn a_group_with_a_secret_commits_and_changes_it_without_a_stop() {
    let mut cluster = Cluster::new(3);
    cluster.sites.iter_mut().for_each(|site| share(site, &[1]));
    let hosts = cluster.start();
    for host in &hosts {
        host.commit(&host.name, "before");
        host.wait("both links encrypted", |s| s.log.iter().filter(|(_, t)| t.contains("(TLSv1.3, ")).count() >= 2);
        assert_eq!(count(host, "tcp://"), 0);
    }
    // One node after the other; after each one, a node comes back over new links.
    for round in [&[2, 1][..], &[2]] {
        for (n, host) in hosts.iter().enumerate() {
            share(&mut cluster.sites[n], round);
            assert_eq!(host.node().options_set("repl.secret_reload=1"), Code::Ok);
            if n == 1 {
                relink(&hosts[2], &[&hosts[0], &hosts[1]]);
                hosts[2].commit("a", "in the middle");
            }
        }
    }
    hosts[0].wait("told", |s| s.log.iter().any(|(_, t)| t == texts::SECRET_RELOADED));
    relink(&hosts[2], &[&hosts[0], &hosts[1]]);
    hosts[2].commit("a", "after");
    agree(hosts);
}

#[test]
fn a_secret_that_others_can_read_or_that_is_none_is_refused() {
    let mut cluster = Cluster::new(1);
    share(&mut cluster.sites[0], &[1]);
    let file = cluster.sites[0].dir.join("secret");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let reason = cluster.refused(0);
    assert!(reason.contains("repl.secret_file") && reason.contains("chmod 0600"), "{reason}");
    std::fs::remove_file(&file).unwrap();
    assert!(cluster.refused(0).contains("trireme secret new"));
    trireme_private::write_new(&file, b"password\n").unwrap();
    let reason = cluster.refused(0);
    assert!(reason.contains("line 1 is no secret"), "{reason}");
    cluster.sites[0].options.push_str("; socket.ssl=yes; socket.ssl_key=k; socket.ssl_cert=c");
    assert!(cluster.refused(0).contains("exclude each other"));
}

const PASSWORD: &str = "identified by a long and secret word";

/// Files of the node's log in which the password stands.
fn told(site: &Site) -> usize {
    let logs = site.log_files().into_iter();
    logs.filter(|path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(PASSWORD.len()).any(|bytes| bytes == PASSWORD.as_bytes())
    })
    .count()
}

fn encrypt(site: &mut Site, keys: &[u8]) {
    let file = site.dir.join("log.key");
    let text: String = keys.iter().map(|n| secret(*n)).collect();
    trireme_private::replace(&file, text.as_bytes(), 0o600).unwrap();
    site.options = format!("repl.log_key_file={}", file.display());
}

#[test]
fn an_encrypted_log_tells_nothing_and_its_node_comes_back_with_the_key_only() {
    let mut cluster = Cluster::new(1);
    let again = |cluster: &Cluster, tables: Tables| {
        let mut host = cluster.host(0, tables, None, "");
        assert_eq!(host.connect(&cluster.url(), true), Code::Ok, "{:#?}", host.lock().log);
        host.serve(2);
        host
    };
    // From clear text on: nothing more is told.
    let host = cluster.bootstrap();
    host.commit("a", PASSWORD);
    let tables = host.stop();
    let clear = told(&cluster.sites[0]);
    assert!(clear > 0);
    encrypt(&mut cluster.sites[0], &[1]);
    let host = again(&cluster, tables);
    host.commit("b", PASSWORD);
    assert_eq!(told(&cluster.sites[0]), clear);
    // A new key while it runs.
    encrypt(&mut cluster.sites[0], &[2, 1]);
    assert_eq!(host.node().options_set("repl.log_key_reload=1"), Code::Ok);
    host.wait("told", |s| s.log.iter().any(|(_, t)| t == texts::LOG_KEYS_RELOADED));
    host.commit("c", PASSWORD);
    let tables = host.stop();
    assert_eq!(told(&cluster.sites[0]), clear);
    encrypt(&mut cluster.sites[0], &[3]);
    let reason = cluster.refused(0);
    assert!(reason.contains("is encrypted with key") && reason.contains("repl.log_key_file"), "{reason}");
    cluster.sites[0].options.clear();
    assert!(cluster.refused(0).contains("no key file is given"));
    encrypt(&mut cluster.sites[0], &[2, 1]);
    let host = again(&cluster, tables);
    host.commit("d", "after");
    host.stop();
    let file = cluster.sites[0].dir.join("log.key");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let reason = cluster.refused(0);
    assert!(reason.contains("repl.log_key_file") && reason.contains("chmod 0600"), "{reason}");
}

#[test]
fn who_wants_authentication_does_not_listen_for_everybody() {
    let mut cluster = Cluster::new(1);
    // Loopback: nobody else can come.
    cluster.sites[0].options = "repl.require_auth=yes".to_owned();
    let host = cluster.bootstrap();
    assert_eq!(count(&host, "whoever reaches that port"), 0);
    host.stop();
    let mut cluster = Cluster::new(1);
    cluster.sites[0].options = "repl.require_auth=yes; gmcast.listen_addr=tcp://0.0.0.0:0".to_owned();
    let host = cluster.host(0, Tables::default(), None, "");
    assert_eq!(host.connect("gcomm://", true), Code::NodeFail);
    assert_eq!(count(&host, "repl.require_auth=yes, and this node listens on tcp://0.0.0.0:"), 1);
    host.stop();
}

#[test]
fn who_listens_for_everybody_is_told_how_to_mend_it() {
    let mut cluster = Cluster::new(1);
    cluster.sites[0].options = "gmcast.listen_addr=tcp://0.0.0.0:0".to_owned();
    let host = cluster.bootstrap();
    host.wait("the warning", |s| s.log.iter().any(|(_, t)| t.contains("whoever reaches that port")));
    host.wait("the first line", |s| s.log.iter().any(|(_, t)| t.contains("trireme secret new")));
    host.wait("the second line", |s| s.log.iter().any(|(_, t)| t.contains("repl.secret_file=/etc/mysql")));
    assert_eq!(count(&host, "whoever reaches that port"), 1);
    // Without being asked for.
    assert_eq!(host.stat("trireme_authentication"), trireme_node::StatValue::Text("none".into()));
    host.stop();
}

#[test]
fn what_protects_a_node_is_shown_without_being_asked_for() {
    let mut cluster = Cluster::new(2);
    share(&mut cluster.sites[0], &[1]);
    let host = cluster.bootstrap();
    assert_eq!(host.stat("trireme_authentication"), trireme_node::StatValue::Text("secret".into()));
    host.stop();
    // In clear text on a loopback address there is nothing to tell.
    cluster.sites[0].options = String::new();
    let host = cluster.bootstrap();
    assert!(host.node().stats().iter().all(|(name, _)| !name.starts_with("trireme")));
    host.stop();
}

#[test]
fn refused_connections_are_counted() {
    let mut cluster = Cluster::new(1);
    share(&mut cluster.sites[0], &[1]);
    let host = cluster.bootstrap();
    assert_eq!(host.node().options_set("repl.status_extended=yes"), Code::Ok);
    assert_eq!(host.int("trireme_connections_refused"), 0);
    assert_eq!(host.stat("trireme_authentication"), trireme_node::StatValue::Text("secret".into()));
    let mut stranger = std::net::TcpStream::connect(&cluster.sites[0].address).unwrap();
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n").unwrap();
    // Closed by the node once it has counted.
    let mut end = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stranger, &mut end);
    assert_eq!(host.int("trireme_connections_refused"), 1);
    host.stop();
}

#[test]
fn connections_that_are_being_opened_are_counted() {
    let cluster = Cluster::new(1);
    let host = cluster.bootstrap();
    assert_eq!(host.node().options_set("repl.status_extended=yes"), Code::Ok);
    let silent: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect(&cluster.sites[0].address).unwrap()).collect();
    until("all three to be seen", || host.int("trireme_connections_half_open") == 3);
    drop(silent);
    until("all to be gone", || host.int("trireme_connections_half_open") == 0);
    assert_eq!(host.int("trireme_links_of_strangers"), 0);
    host.stop();
}

#[test]
fn certificates_of_members_are_named_and_can_be_revoked_without_a_stop() {
    let authority = Authority::new("a").unwrap();
    let mut cluster = tls_cluster(2, &authority);
    let crl = cluster.sites[0].dir.join("crl.pem");
    std::fs::write(&crl, authority.revoke(&[], 3).unwrap()).unwrap();
    let key = cluster.sites[0].dir.join("key.pem");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o604)).unwrap();
    let more = format!("; socket.ssl_crl={}; socket.ssl_peer_names=n?", crl.display());
    cluster.sites[0].options.push_str(&more);
    let hosts = cluster.start();
    hosts[0]
        .wait("the end of the list", |s| s.log.iter().any(|(_, t)| t.contains("a list in socket.ssl_crl expires in ")));
    hosts[0].wait("the key's mode", |s| s.log.iter().any(|(_, t)| t.contains("(mode 0604): chmod 0600")));
    hosts[0].commit("a", "together");
    // Other names: the second is no member any more.
    assert_eq!(hosts[0].node().options_set("socket.ssl_peer_names=sha256:12"), Code::NodeFail);
    assert_eq!(hosts[0].node().options_set("socket.ssl_peer_names=n1"), Code::Ok);
    hosts[0]
        .wait("refused by name", |s| s.log.iter().any(|(_, t)| t.contains("not among those in socket.ssl_peer_names")));
    assert_eq!(hosts[0].node().options_set("socket.ssl_peer_names=n1,n2"), Code::Ok);
    let links = |s: &crate::fake::State| s.log.iter().filter(|(_, t)| t.starts_with("connection established")).count();
    hosts[0].wait("a new link", |s| links(s) == 2 && s.views.last().is_some_and(|v| v.status == ViewStatus::Primary));
    hosts[0].commit("a", "together again");
    // And revoked.
    let second = std::fs::read(cluster.sites[1].dir.join("cert.pem")).unwrap();
    std::fs::write(&crl, authority.revoke(&[&second], 30).unwrap()).unwrap();
    assert_eq!(hosts[0].node().options_set("socket.ssl_reload=1"), Code::Ok);
    hosts[0].wait("revoked", |s| s.log.iter().any(|(_, t)| t.contains("it is revoked (socket.ssl_crl)")));
    hosts.into_iter().for_each(|host| drop(host.stop()));
}

#[test]
fn whose_certificate_a_node_showed_is_known_after_a_restart() {
    let mut cluster = tls_cluster(2, &Authority::new("a").unwrap());
    cluster.sites[0].options.push_str("; repl.other_certificate=refuse");
    let kept = cluster.sites[0].dir.join(trireme_transport::CERTIFICATES_FILE);
    let mut hosts = cluster.start();
    // Written beside, by a thread of its own.
    until("the file", || kept.exists());
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    let second = hosts.remove(1).stop();
    let first = hosts.remove(0).stop();
    // As if the second had shown another one before.
    let text = std::fs::read_to_string(&kept).unwrap();
    assert!(text.contains("\tn2\n"), "{text}");
    std::fs::write(&kept, text.replace("\tn2\n", "\tn9\n")).unwrap();
    let again = |tables| {
        let mut host = cluster.host(0, tables, None, "");
        assert_eq!(host.connect(&cluster.url(), true), Code::Ok, "{:#?}", host.lock().log);
        host.serve(2);
        host
    };
    let host = again(first);
    let mut other = cluster.host(1, second, None, "");
    let joined = std::thread::scope(|scope| {
        let joins = scope.spawn(|| other.connect(&cluster.url(), false));
        let refused = "remove that node's line from trireme.certificates";
        host.wait("refused", |s| s.log.iter().any(|(_, t)| t.contains(refused)));
        let tables = host.stop();
        // The operator agrees.
        let text = std::fs::read_to_string(&kept).unwrap();
        let kept_lines: Vec<&str> = text.lines().filter(|line| !line.contains("\tn9")).collect();
        std::fs::write(&kept, kept_lines.join("\n")).unwrap();
        let host = again(tables);
        assert_eq!(joins.join().unwrap(), Code::Ok);
        host
    });
    other.serve(2);
    joined.wait("together", |s| s.size() == 2);
    agree(vec![joined, other]);
    // A list that cannot be read is not overlooked.
    std::fs::write(&kept, "n2 is good\n").unwrap();
    let host = cluster.host(0, Tables::default(), None, "");
    assert_ne!(host.connect(&cluster.url(), true), Code::Ok);
    host.wait("told", |s| s.log.iter().any(|(_, t)| t.contains("line 1 is not") && t.contains("remove it")));
}
