//! Handshakes, and how links begin and end. The protocol is described in [`crate::handshake`].

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use trireme_types::{Member, NodeId};

use crate::conn::{Claim, Conn, Contest, Phase, Up};
use crate::dialing::KNOWN_MAX;
use crate::gossip::Gossip;
use crate::handshake::{Handshake, Hello, LinkId, Refusal, clip, is_arbiter};
use crate::identity::{CERTIFICATES_FILE, Identity};
use crate::probe::Probe;
use crate::socket;
use crate::{DownCause, NetEvent, OtherCertificate, Transport};

/// How long the incarnation of a node counts that is no longer linked. For ever would let whoever took a name once, with the highest number
/// there is, keep its owner out. For ever counts the one that was in a view, and where peers show who they are the one that a member was
/// linked with: of a cloned disk, two would vote by turns.
const NEWEST_KEPT: Duration = Duration::from_secs(30);

/// How long a link may take to answer before it gives way to a newer connection of its node. Several round trips between continents.
const PONG_WITHIN: Duration = Duration::from_millis(750);

/// Lines about links of peers that are no members, up and down each, for one address and minute: several nodes of a host may be joining.
const LINK_LINES: u32 = 4;
/// The same while this node does not know who the members are: a whole cluster on one host may be starting.
const LINK_LINES_UNSETTLED: u32 = 16;

/// A node shows a certificate of other names than before. The text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("node {node} ('{name}') shows the certificate {now}, and showed {before} before")]
struct CertificateChange {
    node: NodeId,
    /// Those characters of it that can be printed.
    name: String,
    now: Identity,
    before: Identity,
}

/// Why a node with such a certificate is not linked, where that is configured.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}: refused (repl.other_certificate). If that is right, stop this node, remove that node's line from {file} beside its write-set log, \
     and start it",
    file = CERTIFICATES_FILE
)]
struct OtherCertificateShown(Box<CertificateChange>);

impl Transport {
    pub(crate) fn hello(&self) -> Hello {
        Hello {
            versions: self.cfg.versions,
            cluster: self.cfg.cluster.clone(),
            instance: self.instance,
            member: self.me.clone(),
            levels: self.cfg.levels,
            level: self.cfg.level,
        }
    }

    pub(crate) fn on_handshake(&mut self, slot: usize, message: Handshake, now: Instant) {
        let Some(conn) = self.conn(slot) else { return };
        // Taken out, so that every arm says what comes next.
        let phase = std::mem::replace(&mut conn.phase, Phase::Hello);
        match (phase, message) {
            (Phase::Hello, Handshake::Hello(hello)) => self.on_hello(slot, hello, now),
            (Phase::Ready(hello), Handshake::Ready { link, number }) => self.on_ready(slot, hello, link, number, now),
            (Phase::Confirm(hello), Handshake::Confirm { link }) => self.on_confirm(slot, hello, link, now),
            (Phase::Ack(hello, link), Handshake::Ack { number }) => self.go_up(slot, hello, link, number, now),
            (phase, Handshake::Refuse { refusal, instance, text }) => {
                conn.phase = phase;
                self.on_refuse(slot, refusal, instance, &text, now);
            }
            (phase, message) => {
                conn.phase = phase;
                let what = format!("it sent a {} that is not due", message.name());
                self.reject(slot, &what, now);
            }
        }
    }

    fn on_hello(&mut self, slot: usize, hello: Hello, now: Instant) {
        let Some((remote, dialled)) = self.conn(slot).map(|conn| (conn.remote, conn.dialled)) else { return };
        if let Err((refusal, text)) = self.examine(&hello, &remote.to_string()) {
            return self.refuse(slot, refusal, text, now);
        }
        let node = hello.member.node;
        if let Some((conn, room)) = self.conn(slot).and_then(|conn| conn.narrowed.take().map(|room| (conn, room))) {
            socket::widen(conn.stream.as_raw_fd(), room);
        }
        if let Some(at) = dialled {
            self.book.found(at, node);
        } else {
            self.say(slot, &Handshake::Hello(self.hello()));
        }
        let phase = if is_arbiter(self.me.node, node) {
            Phase::Ready(hello)
        } else {
            self.last_number += 1;
            let link = self.link_slot(node).and_then(|slot| self.conn(slot)).and_then(|conn| Some(conn.up()?.link));
            self.say(slot, &Handshake::Ready { link: link.unwrap_or_default(), number: self.last_number });
            Phase::Confirm(hello)
        };
        if let Some(conn) = self.conn(slot) {
            conn.phase = phase;
        }
    }

    /// May this peer be linked at all? The text is for the log of both ends, so it names both.
    fn examine(&self, hello: &Hello, remote: &str) -> Result<(), (Refusal, String)> {
        let Hello { versions, cluster, instance, member, levels, level } = hello;
        let (mine, name) = (&self.cfg, printable(&member.name));
        if *cluster != mine.cluster {
            let text = format!(
                "{remote} ('{name}') belongs to group '{}', the node that refuses it to another: wsrep_cluster_name differs",
                printable(cluster),
            );
            return Err((Refusal::Cluster, text));
        }
        if mine.versions.common(*versions).is_none() {
            let text = format!(
                "{remote} ('{name}') speaks protocol version {versions}, the node that refuses it ('{}') {}: upgrade the older one",
                self.me.name, mine.versions
            );
            return Err((Refusal::Versions, text));
        }
        if !levels.contains(mine.level) {
            let text = format!(
                "{remote} ('{name}') supports group level {levels}, and the group of the node that refuses it ('{}') is at level {}, which is \
                 never lowered: install a version of Trireme on '{name}' that supports it",
                self.me.name, mine.level
            );
            return Err((Refusal::Versions, text));
        }
        if !mine.levels.contains(*level) {
            let text = format!(
                "{remote} ('{name}') is in a group at level {level}, and the node that refuses it ('{}') supports group level {}: install a \
                 version of Trireme on '{}' that supports it",
                self.me.name, mine.levels, self.me.name
            );
            return Err((Refusal::Versions, text));
        }
        if member.node == self.me.node {
            if *instance == self.instance {
                return Err((Refusal::Own, "own address".to_owned()));
            }
            let text = format!(
                "{remote} ('{name}') has the node id {} of '{}', which is alive: one is cloned from the other's data directory; \
                 remove the write-set log and its identity from the copy",
                member.node, self.me.name
            );
            return Err((Refusal::Cloned, text));
        }
        if self
            .forgotten
            .iter()
            .any(|(node, incarnation, _)| (*node, *incarnation) == (member.node, member.incarnation))
        {
            return Err((Refusal::Forgotten, format!("{remote} ('{name}') was thrown out of the group a moment ago")));
        }
        if self.barred.contains(&member.node) {
            let text = format!(
                "{remote} ('{name}', node {}) violated the protocol, so '{}' gives it no link for a time",
                member.node, self.me.name
            );
            return Err((Refusal::Forgotten, text));
        }
        let linked = self.link_slot(member.node).and_then(|slot| self.conns[slot].as_ref());
        self.examine_against(linked, hello, remote)
    }

    /// Compares with the links that the same node has or had.
    fn examine_against(&self, linked: Option<&Conn>, hello: &Hello, remote: &str) -> Result<(), (Refusal, String)> {
        let name = printable(&hello.member.name);
        let node = hello.member.node;
        let newest = self.newest.get(&node).map(|(newest, _)| *newest).max(self.known.get(&node).copied());
        if newest.is_some_and(|newest| hello.member.incarnation < newest) {
            let text = format!(
                "{remote} ('{name}') is an older incarnation of node {node} than one that was linked here: one of them runs on a \
                 copy of the other's data directory; stop it, and remove the write-set log and its identity from there"
            );
            return Err((Refusal::Stale, text));
        }
        let Some((linked, other)) = linked.and_then(|conn| Some((conn.hello()?, conn.remote))) else { return Ok(()) };
        if hello.member.incarnation == linked.member.incarnation && hello.instance != linked.instance {
            let text = format!(
                "{remote} ('{name}') has the same node id {node} as '{}' at {other}, which is alive: one is cloned from the \
                 other's data directory; remove the write-set log and its identity from the copy",
                printable(&linked.member.name)
            );
            return Err((Refusal::Cloned, text));
        }
        Ok(())
    }

    /// The arbiter decides.
    fn on_ready(&mut self, slot: usize, hello: Hello, link: LinkId, number: u64, now: Instant) {
        let node = hello.member.node;
        let remote = self.conn(slot).map(|conn| conn.remote.to_string()).unwrap_or_default();
        if let Some(old) = self.link_slot(node) {
            let linked = self.conns[old].as_ref();
            if let Err((refusal, text)) = self.examine_against(linked, &hello, &remote) {
                return self.refuse(slot, refusal, text, now);
            }
            let Some(up) = linked.and_then(Conn::up) else { return };
            // An older statement was made before the peer had this link.
            if up.hello.instance == hello.instance && (up.link == link || number < up.ack) {
                return self.refuse(slot, Refusal::Duplicate, "linked already".to_owned(), now);
            }
        }
        // Only one connection can be waiting for its Ack, or for an answer of the link before it.
        if let Some(other) = self.in_the_way(node) {
            let newer = self.conns[other]
                .as_ref()
                .and_then(Conn::hello)
                .is_some_and(|other| other.member.incarnation < hello.member.incarnation);
            if !newer {
                return self.refuse(slot, Refusal::Duplicate, "being linked already".to_owned(), now);
            }
            self.lose(other, DownCause::Replaced, "a newer incarnation of the node takes over", now);
        }
        match self.link_slot(node) {
            Some(old) => self.contest(slot, old, hello, Claim::Ready, now),
            None => self.confirm(slot, hello),
        }
    }

    /// A connection of this node that has been confirmed, or is about to be.
    fn in_the_way(&self, node: NodeId) -> Option<usize> {
        let claims = |conn: &Conn| match &conn.phase {
            Phase::Ack(hello, _) => hello.member.node == node,
            Phase::Contest(contest) => contest.hello.member.node == node,
            Phase::Connecting
            | Phase::Admission(_)
            | Phase::Hello
            | Phase::Ready(_)
            | Phase::Confirm(_)
            | Phase::Up(_) => false,
        };
        self.conns.iter().position(|conn| conn.as_ref().is_some_and(claims))
    }

    fn confirm(&mut self, slot: usize, hello: Hello) {
        self.last_link += 1;
        let link = LinkId(self.last_link);
        self.say(slot, &Handshake::Confirm { link });
        if let Some(conn) = self.conn(slot) {
            conn.phase = Phase::Ack(hello, link);
        }
    }

    /// The arbiter has decided.
    fn on_confirm(&mut self, slot: usize, hello: Hello, link: LinkId, now: Instant) {
        let node = hello.member.node;
        if let Some(old) = self.link_slot(node) {
            let remote = self.conn(slot).map(|conn| conn.remote.to_string()).unwrap_or_default();
            if let Err((refusal, text)) = self.examine_against(self.conns[old].as_ref(), &hello, &remote) {
                return self.refuse(slot, refusal, text, now);
            }
            return self.contest(slot, old, hello, Claim::Confirm(link), now);
        }
        self.acknowledge(slot, hello, link, now);
    }

    fn acknowledge(&mut self, slot: usize, hello: Hello, link: LinkId, now: Instant) {
        self.last_number += 1;
        self.say(slot, &Handshake::Ack { number: self.last_number });
        self.go_up(slot, hello, link, 0, now);
    }

    /// A new connection says that the link in slot `old` is gone. That link is asked: an answer to a number that was drawn after the claim
    /// proves it wrong, since what a peer has dropped it does not read. Otherwise whoever knows a node's id, incarnation and instance, which
    /// every hello tells, could take a living link away.
    fn contest(&mut self, slot: usize, old: usize, hello: Hello, claim: Claim, now: Instant) {
        let number = self.jitter.next();
        let until = now + PONG_WITHIN.min(self.cfg.peer_timeout / 4);
        self.push_raw(old, Gossip::Ping(number).encode());
        if let Some(conn) = self.conn(slot) {
            conn.phase = Phase::Contest(Contest { hello, claim, number });
            conn.deadline = Some(until);
        }
        self.wake_at(until);
    }

    /// The link of `node` lives.
    pub(crate) fn on_pong(&mut self, node: NodeId, number: u64, now: Instant) {
        let asked =
            |conn: &Conn| matches!(&conn.phase, Phase::Contest(c) if c.hello.member.node == node && c.number == number);
        let Some(slot) = self.conns.iter().position(|conn| conn.as_ref().is_some_and(asked)) else { return };
        let claimant = |conn: &Conn| Some((conn.hello()?.clone(), conn.remote));
        let Some((hello, remote)) = self.conns[slot].as_ref().and_then(claimant) else { return };
        let linked = self.link_slot(node).and_then(|slot| self.conns[slot].as_ref()).and_then(claimant);
        let Some((linked, other)) = linked else { return };
        if hello.instance == linked.instance {
            return self.refuse(slot, Refusal::Duplicate, "linked already, and the link lives".to_owned(), now);
        }
        let text = format!(
            "{remote} ('{}') has the same node id {node} as '{}' at {other}, which is alive, and calls itself a newer incarnation: one is \
             cloned from the other's data directory, or somebody wants to take its place",
            printable(&hello.member.name),
            printable(&linked.member.name)
        );
        self.refuse(slot, Refusal::Alive, text, now);
    }

    /// The link did not answer in time, or is gone.
    fn on_uncontested(&mut self, slot: usize, now: Instant) {
        let deadline = now + self.cfg.peer_timeout;
        let Some(conn) = self.conn(slot) else { return };
        if !matches!(conn.phase, Phase::Contest(_)) {
            return;
        }
        let Phase::Contest(Contest { hello, claim, .. }) = std::mem::replace(&mut conn.phase, Phase::Hello) else {
            return;
        };
        conn.deadline = Some(deadline);
        let node = hello.member.node;
        // On the arbiter's word; a second one has none.
        while let Some(other) = self.in_the_way(node) {
            self.refuse(other, Refusal::Duplicate, "being linked already".to_owned(), now);
        }
        if let Some(old) = self.link_slot(node) {
            let same_instance =
                self.conns[old].as_ref().and_then(Conn::hello).is_some_and(|linked| linked.instance == hello.instance);
            let (cause, why) = match (same_instance, claim) {
                (true, Claim::Ready) => (DownCause::Reset, "the peer has lost the connection"),
                (true, Claim::Confirm(_)) => (DownCause::Replaced, "the peer has made a new connection"),
                (false, _) => (DownCause::Replaced, "a newer incarnation of the node takes over"),
            };
            self.lose(old, cause, why, now);
        }
        match claim {
            Claim::Ready => self.confirm(slot, hello),
            Claim::Confirm(link) => self.acknowledge(slot, hello, link, now),
        }
    }

    /// Links of peers that nothing is known of are few, and each source has a share of them. An address of members has a share of its own:
    /// behind one that translates addresses there may be anybody.
    fn has_room_for(&self, slot: usize, node: NodeId) -> bool {
        let known = self.known_ips();
        let stranger = |conn: &Conn, node: NodeId| conn.dialled.is_none() && !self.members.contains(&node);
        let Some(conn) = self.conns[slot].as_ref().filter(|conn| stranger(conn, node)) else { return true };
        let ip = conn.remote.ip();
        let strangers = self.links.iter().filter_map(|(node, slot)| {
            let conn = self.conns[*slot].as_ref()?;
            stranger(conn, *node).then(|| conn.remote.ip())
        });
        let (mut elsewhere, mut alike) = (0, 0);
        for from in strangers {
            elsewhere += usize::from(!known.contains(&from));
            alike += usize::from(from == ip);
        }
        alike < self.cfg.limits.stranger_links_per_source
            && (known.contains(&ip) || elsewhere < self.cfg.limits.stranger_links)
    }

    /// Remembers whose certificate a node shows. New files for the same names are no news.
    ///
    /// **Errors:** why it is not linked, when that is configured.
    fn know_by_certificate(&mut self, slot: usize, member: &Member, now: Instant) -> Result<(), OtherCertificateShown> {
        let Some(conn) = self.conns[slot].as_ref() else { return Ok(()) };
        // On one machine it is a trial, where nodes change their certificates for tests.
        let warn = !conn.remote.ip().is_loopback();
        let Some(who) = conn.identity().cloned() else { return Ok(()) };
        let before = self.shown.get(&member.node).filter(|before| before.names != who.names).cloned();
        if let Some(before) = before {
            let change =
                CertificateChange { node: member.node, name: printable(&member.name), now: who.clone(), before };
            match self.cfg.other_certificate {
                OtherCertificate::Warn => {
                    let key = format!("certificate of {}", member.node);
                    self.log_limited(now, &key, warn, printable(&change.to_string()));
                }
                OtherCertificate::Refuse => return Err(OtherCertificateShown(Box::new(change))),
            }
        }
        let room = self.shown.len() < KNOWN_MAX || self.shown.contains_key(&member.node);
        if room && self.shown.insert(member.node, who.clone()).as_ref() != Some(&who) {
            self.pending.push(NetEvent::Certificates(self.shown.clone()));
        }
        Ok(())
    }

    fn go_up(&mut self, slot: usize, hello: Hello, link: LinkId, ack: u64, now: Instant) {
        let (member, levels) = (hello.member.clone(), hello.levels);
        let node = member.node;
        debug_assert!(self.link_slot(node).is_none(), "the arbiter confirms one connection at a time");
        let Some(protocol) = self.cfg.versions.common(hello.versions) else { return };
        if !self.has_room_for(slot, node) {
            return self.reject(slot, "too many links of nodes that are no members", now);
        }
        if let Err(why) = self.know_by_certificate(slot, &member, now) {
            return self.certificate_refused(slot, &why.to_string(), now);
        }
        let first_probe = now + self.cfg.probe_every;
        let Some(conn) = self.conn(slot) else { return };
        conn.phase = Phase::Up(Up { hello, link, ack, since: now, bye: false, probe: Probe::new(first_probe) });
        conn.deadline = None;
        let (remote, dialled, scheme) = (conn.remote, conn.dialled, conn.scheme());
        let tls = conn.tls().map(|tls| format!(" ({tls})")).unwrap_or_default();
        self.newest.insert(node, (member.incarnation, None));
        self.links.push((node, slot));
        self.wake_at(first_probe);
        let known = Gossip::Addresses(self.addresses_to_tell()).encode();
        // Where somebody says that it listens is dialled, and told to others, once it is a member: the view says it then.
        let own = if self.is_member(node) { self.learn_peer(&member, remote, now) } else { None };
        if let Some(address) = own {
            let new = Gossip::Addresses(vec![address]).encode();
            let others: Vec<usize> =
                self.links.iter().map(|(_, other)| *other).filter(|other| *other != slot).collect();
            others.into_iter().for_each(|other| self.push_raw(other, new.clone()));
        }
        self.push_raw(slot, known);
        self.book.link_up(node, dialled);
        // Should it not be found again, that is news.
        let answered = self.book.iter().filter(|(_, entry)| entry.node == Some(node));
        let keys: Vec<String> = answered.map(|(_, entry)| format!("dial {}", entry.address)).collect();
        keys.iter().for_each(|key| self.limiter.settle(key));
        self.stats.links_up += 1;
        let text = format!("connection established to {node} ('{}') {scheme}://{remote}{tls}", printable(&member.name));
        self.log_link(node, remote.ip(), "up", false, text, now);
        self.pending.push(NetEvent::LinkUp { member, protocol, levels });
    }

    fn on_refuse(&mut self, slot: usize, refusal: Refusal, instance: u64, text: &str, now: Instant) {
        let Some(conn) = self.take(slot) else { return };
        if conn.up().is_some() {
            // Cannot be: a link reads frames.
            return;
        }
        // It ends this node, so it counts from those only whom this node called, and when both have said who they are: an honest peer
        // finds its link in the way no earlier. Anybody can connect and say it.
        let both_known = !matches!(conn.phase, Phase::Connecting | Phase::Hello);
        if refusal == Refusal::Alive && conn.dialled.is_some() && both_known {
            let reason = format!("{} has a link of this node's id that answers: {}", conn.remote, printable(text));
            self.pending.push(NetEvent::Twin { reason });
        }
        let Some(at) = conn.dialled else { return };
        let Some(address) = self.book.get(at).map(|entry| entry.address.to_string()) else { return };
        match refusal {
            Refusal::Own if instance == self.instance => {
                self.book.own.insert(conn.remote);
                self.book.found_own(at, now);
                let text =
                    format!("address '{}://{address}' points to own listening address, blacklisting", self.scheme());
                self.log_limited(now, &format!("own {address}"), false, text);
            }
            Refusal::Duplicate => self.fail(at, "linked already".to_owned(), now),
            Refusal::Own
            | Refusal::Cluster
            | Refusal::Versions
            | Refusal::Cloned
            | Refusal::Stale
            | Refusal::Alive
            | Refusal::Forgotten => {
                let text = format!("connection to '{}://{address}' was refused: {}", conn.scheme(), printable(text));
                self.log_limited(now, &format!("refused by {address} {}", refusal as u8), true, text.clone());
                if matches!(refusal, Refusal::Cluster | Refusal::Versions) {
                    self.pending.push(NetEvent::Unwelcome { reason: text.clone() });
                }
                if matches!(refusal, Refusal::Forgotten | Refusal::Stale) {
                    self.pending.push(NetEvent::Shunned { reason: text.clone() });
                }
                self.fail(at, text, now);
            }
        }
    }

    /// Tells the peer why, and closes.
    fn refuse(&mut self, slot: usize, refusal: Refusal, text: String, now: Instant) {
        let instance = self.instance;
        let Some(mut conn) = self.take(slot) else { return };
        conn.queue.push_raw(Handshake::Refuse { refusal, instance, text: text.clone() }.encode());
        // It fits into an empty socket buffer; if not, the peer sees the end.
        let _ = conn.flush();
        let _ = conn.stream.shutdown(std::net::Shutdown::Write);
        let quiet = matches!(refusal, Refusal::Own | Refusal::Duplicate);
        if let Some(at) = conn.dialled {
            if matches!(refusal, Refusal::Cluster | Refusal::Versions) {
                self.pending.push(NetEvent::Unwelcome { reason: format!("connection refused: {text}") });
            }
            if !quiet {
                self.log_limited(
                    now,
                    &format!("refuse {} {}", conn.remote, refusal as u8),
                    true,
                    format!("connection refused: {text}"),
                );
            }
            self.fail(at, text, now);
        } else if !quiet {
            self.report_refused(&conn, &format!("refused {} {}", conn.remote.ip(), refusal as u8), text, now);
        }
    }

    /// Closes a connection that is not up without an answer: its peer is not known to be a member, or not allowed.
    pub(crate) fn reject(&mut self, slot: usize, why: &str, now: Instant) {
        let Some(conn) = self.take(slot) else { return };
        match conn.dialled {
            Some(at) => self.dial_failed(at, why, now),
            None => self.report_stranger(&conn, why.to_owned(), now),
        }
    }

    /// One line per stranger, whatever it sends.
    fn report_stranger(&mut self, conn: &Conn, reason: String, now: Instant) {
        self.report_refused(conn, &format!("stranger {}", conn.remote.ip()), reason, now);
    }

    /// Closes a connection that the allow list does not allow. The line is Galera's word for word: operators and suites
    /// look for its beginning.
    pub(crate) fn not_allowed(&mut self, slot: usize, now: Instant) {
        let Some(conn) = self.take(slot) else { return };
        let ip = conn.remote.ip();
        self.stats.refused += 1;
        let text = format!("Connection not allowed, IP {ip} not found in allowlist.");
        if self.limiter.allow_stranger(now, &format!("allowlist {ip}")) {
            self.log(true, text);
        }
    }

    /// Closes a connection on which TLS did not come about. Unlike other failures to connect this does not mend itself, so
    /// both ends warn.
    pub(crate) fn tls_failed(&mut self, slot: usize, why: &str, now: Instant) {
        let Some(conn) = self.take(slot) else { return };
        let why = printable(why);
        let Some(at) = conn.dialled else { return self.report_stranger(&conn, why, now) };
        if let Some(entry) = self.book.get_mut(at) {
            entry.tls_failures = entry.tls_failures.wrapping_add(1);
            let address = entry.address.to_string();
            let text = format!("connection to 'ssl://{address}' failed: {why}");
            self.log_limited(now, &format!("tls {address}"), true, text);
        }
        self.fail(at, why, now);
    }

    /// Closes a connection whose certificate is good, but another one than is known of this node. Its line is its own, whatever strangers
    /// do at the same address.
    fn certificate_refused(&mut self, slot: usize, why: &str, now: Instant) {
        if self.conn(slot).is_some_and(|conn| conn.dialled.is_some()) {
            return self.tls_failed(slot, why, now);
        }
        let Some(conn) = self.take(slot) else { return };
        self.report_refused(&conn, &format!("certificate {}", conn.remote.ip()), printable(why), now);
    }

    fn report_refused(&mut self, conn: &Conn, key: &str, reason: String, now: Instant) {
        self.stats.refused += 1;
        if self.limiter.allow_stranger(now, key) {
            self.pending.push(NetEvent::Refused { address: conn.remote.to_string(), reason });
        }
    }

    pub(crate) fn on_deadline(&mut self, slot: usize, now: Instant) {
        let Some(conn) = self.conn(slot) else { return };
        let why = match conn.phase {
            Phase::Connecting => "Connection timed out",
            Phase::Admission(_) => "the allow list has not answered in time",
            Phase::Hello if conn.is_shaking() => "the TLS handshake was not finished in time",
            Phase::Hello if conn.buf.is_empty() => "it connected and said nothing",
            Phase::Hello | Phase::Ready(_) | Phase::Ack(..) | Phase::Confirm(_) => {
                "the handshake was not finished in time"
            }
            Phase::Contest(_) => return self.on_uncontested(slot, now),
            Phase::Up(_) => return,
        };
        self.reject(slot, why, now);
    }

    /// A connection is over, in whatever phase; does nothing when it is gone already.
    pub(crate) fn lose(&mut self, slot: usize, cause: DownCause, why: &str, now: Instant) {
        let Some(conn) = self.take(slot) else { return };
        match &conn.phase {
            Phase::Up(up) => {
                let node = up.hello.member.node;
                self.link_lost(node, up, &conn, cause, why, now);
            }
            Phase::Hello if self.cfg.clear_too && cause == DownCause::Reset && conn.ended_tls_unheard() => {
                if let Some(at) = conn.dialled {
                    self.book.retry_in_clear(at, conn.remote, now);
                    self.wake_at(now);
                }
            }
            Phase::Connecting | Phase::Hello => match conn.dialled {
                Some(at) if cause == DownCause::Local => self.fail(at, why.to_owned(), now),
                Some(at) => self.dial_failed(at, why, now),
                None if cause == DownCause::Local => {}
                None => self.report_stranger(&conn, format!("no handshake: {why}"), now),
            },
            // A known peer: it has decided for another connection, or dies; it will be dialled again.
            Phase::Ready(_) | Phase::Ack(..) | Phase::Confirm(_) | Phase::Contest(_) => {
                if let Some(at) = conn.dialled {
                    self.fail(at, why.to_owned(), now);
                }
            }
            Phase::Admission(_) => {}
        }
    }

    /// About links of known members every time. Others could make and break them without end, also while this node is without a primary
    /// component and does not know better: about them so many times a minute and address.
    fn log_link(&mut self, node: NodeId, ip: IpAddr, what: &str, warn: bool, text: String, now: Instant) {
        let times = if self.settled { LINK_LINES } else { LINK_LINES_UNSETTLED };
        if self.known.contains_key(&node) || self.limiter.allow_stranger_often(now, &format!("link {what} {ip}"), times)
        {
            self.log(warn, text);
        }
    }

    fn link_lost(&mut self, node: NodeId, up: &Up, conn: &Conn, cause: DownCause, why: &str, now: Instant) {
        self.stats.links_down += 1;
        if let Some(multicast) = &mut self.multicast {
            multicast.on_link_down(node, now);
        }
        if let Some((_, kept_until)) = self.newest.get_mut(&node) {
            *kept_until = Some(now + NEWEST_KEPT);
        }
        let lifetime = now.duration_since(up.since);
        let Transport { book, jitter, .. } = self;
        book.link_down(node, now, lifetime, jitter);
        if cause == DownCause::Bye {
            book.forget(node);
        }
        // Soon, and the timer sorts out when exactly.
        self.wake_at(now);
        let name = printable(&up.hello.member.name);
        let text = format!("connection to {node} ('{name}') {}://{} closed: {why}", conn.scheme(), conn.remote);
        self.log_link(node, conn.remote.ip(), "down", cause == DownCause::Garbage, text, now);
        self.pending.push(NetEvent::LinkDown { node, cause });
        let contests =
            |conn: &Conn| matches!(&conn.phase, Phase::Contest(contest) if contest.hello.member.node == node);
        if let Some(waits) = self.conns.iter().position(|conn| conn.as_ref().is_some_and(contests)) {
            self.on_uncontested(waits, now);
        }
    }

    /// Sends a step of a handshake at the end of this poll.
    fn say(&mut self, slot: usize, message: &Handshake) {
        self.push_raw(slot, message.encode());
    }

    pub(crate) fn push_raw(&mut self, slot: usize, bytes: Bytes) {
        if let Some(conn) = self.conn(slot) {
            conn.queue.push_raw(bytes);
            self.mark_dirty(slot);
        }
    }
}

/// A text from a peer, fit for one line of a log.
pub(crate) fn printable(text: &str) -> String {
    trireme_types::printable(clip(text, 512))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::time::Duration;

    use bytes::BytesMut;
    use trireme_types::{Incarnation, Uuid};

    use super::*;
    use crate::{Encoded, NetConfig, Sent, Versions};

    /// One connection of a peer that is played by hand.
    struct Played {
        socket: TcpStream,
        buf: BytesMut,
    }

    struct Stage {
        transport: Transport,
        events: Vec<NetEvent>,
    }

    fn member(id: u8) -> Member {
        Member {
            node: NodeId(Uuid([id; 16])),
            incarnation: Incarnation(1),
            name: format!("n{id}"),
            ..Member::default()
        }
    }

    fn hello(versions: Versions, instance: u64, member: Member) -> Hello {
        let levels = trireme_order::SUPPORTED;
        Hello { versions, cluster: "c".to_owned(), instance, member, levels, level: levels.min }
    }

    impl Stage {
        fn new(id: u8) -> Stage {
            let mut cfg = NetConfig::new(member(id), "c");
            cfg.listen = vec!["127.0.0.1:0".to_owned()];
            // Longer than any test: what ends does not end by itself.
            cfg.peer_timeout = Duration::from_secs(60);
            cfg.probe_every = Duration::from_secs(60);
            Stage { transport: Transport::new(cfg).unwrap(), events: Vec::new() }
        }

        fn connect(&mut self) -> Played {
            let socket = TcpStream::connect(("127.0.0.1", self.transport.listen_port())).unwrap();
            socket.set_nonblocking(true).unwrap();
            Played { socket, buf: BytesMut::new() }
        }

        /// Connects and exchanges hellos as member `id`.
        fn greet(&mut self, id: u8) -> Played {
            let mut played = self.connect();
            let versions = Versions::CURRENT;
            played.say(Handshake::Hello(hello(versions, 77, member(id))));
            assert!(matches!(self.hear(&mut played), Some(Handshake::Hello(_))));
            played
        }

        /// Pumps until the peer receives something; `None` when the connection ends.
        fn hear(&mut self, played: &mut Played) -> Option<Handshake> {
            for _ in 0..10_000 {
                self.transport.poll(Some(Duration::from_millis(1)), &mut self.events);
                if let Some(message) = Handshake::take(&mut played.buf).unwrap() {
                    return Some(message);
                }
                let mut some = [0; 4096];
                match played.socket.read(&mut some) {
                    Ok(0) => return None,
                    Ok(n) => played.buf.extend_from_slice(&some[..n]),
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
            panic!("nothing was said");
        }

        /// Pumps until this is the last event about links.
        fn until_last(&mut self, wanted: &str) {
            for _ in 0..10_000 {
                self.transport.poll(Some(Duration::from_millis(1)), &mut self.events);
                if self.links().ends_with(wanted) {
                    return;
                }
            }
            panic!("{:?}", self.events);
        }

        /// `up`s and `down`s so far.
        fn links(&self) -> String {
            let words = self.events.iter().filter_map(|event| match event {
                NetEvent::LinkUp { .. } => Some("up".to_owned()),
                NetEvent::LinkDown { cause, .. } => Some(format!("{cause:?}")),
                NetEvent::Message { .. }
                | NetEvent::Log { .. }
                | NetEvent::Admission { .. }
                | NetEvent::Unwelcome { .. }
                | NetEvent::Shunned { .. }
                | NetEvent::Twin { .. }
                | NetEvent::Certificates(_)
                | NetEvent::Broken { .. }
                | NetEvent::Refused { .. }
                | NetEvent::RoundTrip { .. } => None,
            });
            words.collect::<Vec<_>>().join(" ")
        }
    }

    impl Played {
        fn say(&mut self, message: Handshake) {
            self.socket.write_all(&message.encode()).unwrap();
        }
    }

    fn is_duplicate(heard: Option<Handshake>) -> bool {
        matches!(heard, Some(Handshake::Refuse { refusal: Refusal::Duplicate, .. }))
    }

    fn confirmed(heard: Option<Handshake>) -> LinkId {
        match heard {
            Some(Handshake::Confirm { link }) => link,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_arbiter_keeps_a_link_that_the_peer_has_too() {
        let mut stage = Stage::new(1);
        let mut first = stage.greet(2);
        first.say(Handshake::Ready { link: LinkId(0), number: 1 });
        let link = confirmed(stage.hear(&mut first));
        // Not up before the Ack, but a second connection is refused already.
        let mut second = stage.greet(2);
        second.say(Handshake::Ready { link: LinkId(0), number: 2 });
        assert!(is_duplicate(stage.hear(&mut second)));
        assert_eq!(stage.links(), "");
        first.say(Handshake::Ack { number: 4 });
        stage.until_last("up");
        // Said before the Ack was.
        let mut third = stage.greet(2);
        third.say(Handshake::Ready { link: LinkId(0), number: 3 });
        assert!(is_duplicate(stage.hear(&mut third)));
        // Said after it: the peer has the link.
        let mut fourth = stage.greet(2);
        fourth.say(Handshake::Ready { link, number: 5 });
        assert!(is_duplicate(stage.hear(&mut fourth)));
        assert_eq!(stage.links(), "up");
    }

    #[test]
    fn the_arbiter_replaces_a_link_that_the_peer_has_lost() {
        let mut stage = Stage::new(1);
        let mut first = stage.greet(2);
        first.say(Handshake::Ready { link: LinkId(0), number: 1 });
        let link = confirmed(stage.hear(&mut first));
        first.say(Handshake::Ack { number: 2 });
        stage.until_last("up");
        let mut second = stage.greet(2);
        second.say(Handshake::Ready { link: LinkId(0), number: 3 });
        assert_ne!(confirmed(stage.hear(&mut second)), link);
        assert_eq!(stage.links(), "up Reset");
        second.say(Handshake::Ack { number: 4 });
        stage.until_last("up Reset up");
    }

    #[test]
    fn the_other_end_obeys() {
        let mut stage = Stage::new(2);
        let mut first = stage.greet(1);
        assert_eq!(stage.hear(&mut first), Some(Handshake::Ready { link: LinkId(0), number: 1 }));
        first.say(Handshake::Confirm { link: LinkId(9) });
        assert_eq!(stage.hear(&mut first), Some(Handshake::Ack { number: 2 }));
        assert_eq!(stage.links(), "up");
        let mut second = stage.greet(1);
        assert_eq!(stage.hear(&mut second), Some(Handshake::Ready { link: LinkId(9), number: 3 }));
        second.say(Handshake::Confirm { link: LinkId(10) });
        assert_eq!(stage.hear(&mut second), Some(Handshake::Ack { number: 4 }));
        assert_eq!(stage.links(), "up Replaced up");
        second.socket.shutdown(Shutdown::Write).unwrap();
        stage.until_last("up Replaced up Reset");
    }

    #[test]
    fn an_end_that_arrives_together_with_data_is_seen() {
        let mut stage = Stage::new(1);
        let mut played = stage.connect();
        let versions = Versions::CURRENT;
        played.say(Handshake::Hello(hello(versions, 77, member(2))));
        played.socket.shutdown(Shutdown::Write).unwrap();
        // Its answer may come first.
        while stage.hear(&mut played).is_some() {}
    }

    #[test]
    fn steps_out_of_turn_end_the_connection() {
        let link = LinkId(5);
        for message in [Handshake::Confirm { link }, Handshake::Ack { number: 1 }, Handshake::Ready { link, number: 1 }]
        {
            let mut stage = Stage::new(1);
            let mut played = stage.connect();
            played.say(message);
            assert_eq!(stage.hear(&mut played), None);
            assert!(matches!(&stage.events[..], [NetEvent::Refused { reason, .. }] if reason.contains("not due")));
        }
        let mut stage = Stage::new(1);
        let mut played = stage.greet(2);
        played.say(Handshake::Confirm { link });
        assert_eq!(stage.hear(&mut played), None);
    }

    impl Stage {
        /// A connection from another address of this host.
        fn connect_from(&mut self, source: [u8; 4]) -> Played {
            let remote = (std::net::Ipv4Addr::LOCALHOST, self.transport.listen_port()).into();
            let options = self.transport.socket_options();
            let stream = crate::socket::connect(remote, Some(source.into()), &options).unwrap();
            // Taken over by the standard library: it has the same calls for tests as everything else here.
            let socket: TcpStream = std::os::fd::OwnedFd::from(stream).into();
            Played { socket, buf: BytesMut::new() }
        }
    }

    #[test]
    fn a_stream_behind_a_pipelined_handshake_gets_no_more_than_its_turn() {
        let mut stage = Stage::new(9);
        stage.transport.cfg.ask_admission = true;
        let stranger = stage.connect();
        stranger.socket.set_nonblocking(false).unwrap();
        let versions = Versions::CURRENT;
        let hello = Handshake::Hello(hello(versions, 77, member(1)));
        let mut wire = BytesMut::new();
        wire.extend_from_slice(&hello.encode());
        wire.extend_from_slice(&Handshake::Confirm { link: LinkId(1) }.encode());
        const FRAMES: usize = 200_000;
        let message = trireme_order::Message::Signal { body: Bytes::from_static(b"x") };
        let mut queue = crate::queue::SendQueue::default();
        queue.push(crate::Encoded::new(trireme_order::Class::Control, &message, true));
        let mut frame = Vec::new();
        while queue.bytes() > 0 {
            queue
                .write_with(|parts| {
                    parts.iter().for_each(|part| frame.extend_from_slice(part));
                    Ok(parts.iter().map(|part| part.len()).sum())
                })
                .unwrap();
        }
        (0..FRAMES).for_each(|_| wire.extend_from_slice(&frame));
        let mut socket = stranger.socket.try_clone().unwrap();
        let writer = std::thread::spawn(move || socket.write_all(&wire));
        let Stage { transport, events } = &mut stage;
        let token = loop {
            transport.poll(Some(Duration::from_millis(1)), events);
            let accepted = events.iter().find_map(|event| match event {
                NetEvent::Admission { token, .. } => Some(*token),
                _ => None,
            });
            if let Some(token) = accepted {
                break token;
            }
        };
        // The kernel's buffers are full of it by now, and the writer writes on.
        std::thread::sleep(Duration::from_millis(50));
        transport.admit(token, true);
        let mut came = 0;
        let end = Instant::now() + Duration::from_secs(20);
        // One in `admit`, one in the first poll, and what a read may bring beyond the end of a turn.
        let turn = crate::conn::READ_TURN / frame.len() * 3;
        assert!(turn < FRAMES * 3 / 4);
        while came < FRAMES {
            events.clear();
            transport.poll(Some(Duration::from_millis(1)), events);
            let here = events.iter().filter(|event| matches!(event, NetEvent::Message { .. })).count();
            assert!(here <= turn, "{here} messages in one poll");
            came += here;
            assert!(Instant::now() < end, "{came} of {FRAMES} came");
        }
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn the_kernel_keeps_little_for_who_has_not_said_who_it_is() {
        let mut stage = Stage::new(9);
        let silent = stage.connect();
        stage.pump(|stage| stage.transport.conns.iter().flatten().count() == 1);
        let narrowed = |stage: &Stage| stage.transport.conns.iter().flatten().filter(|c| c.narrowed.is_some()).count();
        let offered = narrowed(&stage);
        let _greeted = stage.greet(1);
        assert_eq!(narrowed(&stage), offered, "a hello ends it, for its own connection");
        drop(silent);
        stage.pump(|stage| stage.transport.conns.iter().flatten().count() == 1);
        assert_eq!(narrowed(&stage), 0);
    }

    #[test]
    fn one_source_cannot_push_out_who_comes_from_another() {
        let mut stage = Stage::new(9);
        stage.transport.cfg.limits.half_open = 32;
        // Far away: its first word takes long.
        let mut slow = stage.connect_from([127, 0, 0, 3]);
        let mut flood = Vec::new();
        for _ in 0..300 {
            flood.push(stage.connect_from([127, 0, 0, 2]));
            stage.transport.poll(Some(Duration::from_millis(1)), &mut stage.events);
        }
        assert!(stage.transport.stats().refused >= 200);
        let versions = Versions::CURRENT;
        slow.say(Handshake::Hello(hello(versions, 77, member(1))));
        assert!(matches!(stage.hear(&mut slow), Some(Handshake::Hello(_))));
    }

    #[test]
    fn addresses_of_members_have_places_of_their_own() {
        let mut stage = Stage::new(9);
        stage.transport.cfg.limits.half_open = 32;
        stage.transport.set_peers(&[Member { address: "127.0.0.3:1".to_owned(), ..member(1) }]);
        let mut slow = stage.connect_from([127, 0, 0, 3]);
        let mut flood = Vec::new();
        // A connection each from more sources than there are places.
        for n in 0..300u32 {
            flood.push(stage.connect_from([127, 0, 1 + (n / 200) as u8, 1 + (n % 200) as u8]));
            stage.transport.poll(Some(Duration::from_millis(1)), &mut stage.events);
        }
        let versions = Versions::CURRENT;
        slow.say(Handshake::Hello(hello(versions, 77, member(1))));
        assert!(matches!(stage.hear(&mut slow), Some(Handshake::Hello(_))));
    }

    impl Played {
        /// Answers the next ping, pumped by the other end meanwhile.
        fn pong(&mut self, stage: &mut Stage) {
            use crate::frame::{FrameReader, Lane};
            let mut reader = FrameReader::new(1 << 20);
            for _ in 0..10_000 {
                stage.transport.poll(Some(Duration::from_millis(1)), &mut stage.events);
                while let Some((lane, body)) = reader.next(&mut self.buf).unwrap() {
                    if let (Lane::Own, Some(Gossip::Ping(number))) = (lane, Gossip::decode(&body).unwrap()) {
                        return self.socket.write_all(&Gossip::Pong(number).encode()).unwrap();
                    }
                }
                let mut some = [0; 4096];
                match self.socket.read(&mut some) {
                    Ok(0) => panic!("closed"),
                    Ok(n) => self.buf.extend_from_slice(&some[..n]),
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
            panic!("nobody asked");
        }
    }

    impl Stage {
        /// As `greet`, by somebody who has heard the hello of member `id` and calls himself newer or, with `instance` 77, the same.
        fn greet_as_thief(&mut self, id: u8, incarnation: u32, instance: u64) -> Played {
            let mut played = self.connect();
            let member = Member { incarnation: Incarnation(incarnation), ..member(id) };
            let versions = Versions::CURRENT;
            played.say(Handshake::Hello(hello(versions, instance, member)));
            assert!(matches!(self.hear(&mut played), Some(Handshake::Hello(_))));
            played
        }
    }

    #[test]
    fn a_caller_who_says_that_this_node_is_a_twin_is_not_believed() {
        let mut stage = Stage::new(1);
        let text = "go away".to_owned();
        let mut stranger = stage.connect();
        stranger.say(Handshake::Refuse { refusal: Refusal::Alive, instance: 78, text: text.clone() });
        while stage.hear(&mut stranger).is_some() {}
        let mut caller = stage.greet(2);
        caller.say(Handshake::Refuse { refusal: Refusal::Alive, instance: 78, text });
        while stage.hear(&mut caller).is_some() {}
        assert!(!stage.events.iter().any(|event| matches!(event, NetEvent::Twin { .. })), "{:?}", stage.events);
    }

    #[test]
    fn a_link_that_answers_is_taken_away_by_nobody() {
        // This end decides.
        let mut stage = Stage::new(1);
        let mut first = stage.greet(2);
        first.say(Handshake::Ready { link: LinkId(0), number: 1 });
        confirmed(stage.hear(&mut first));
        first.say(Handshake::Ack { number: 2 });
        stage.until_last("up");
        for (incarnation, instance, newer) in [(u32::MAX, 78, true), (1, 77, false)] {
            let mut thief = stage.greet_as_thief(2, incarnation, instance);
            thief.say(Handshake::Ready { link: LinkId(0), number: 1 << 62 });
            first.pong(&mut stage);
            let heard = stage.hear(&mut thief);
            assert_eq!(matches!(heard, Some(Handshake::Refuse { refusal: Refusal::Alive, .. })), newer, "{heard:?}");
            assert_eq!(is_duplicate(heard), !newer);
        }
        assert_eq!(stage.links(), "up");
        // The owner is not kept out afterwards.
        drop(first);
        stage.until_last("up Reset");
        let mut again = stage.greet(2);
        again.say(Handshake::Ready { link: LinkId(0), number: 3 });
        confirmed(stage.hear(&mut again));

        // The peer decides.
        let mut stage = Stage::new(2);
        let mut first = stage.greet(1);
        assert!(matches!(stage.hear(&mut first), Some(Handshake::Ready { .. })));
        first.say(Handshake::Confirm { link: LinkId(9) });
        assert!(matches!(stage.hear(&mut first), Some(Handshake::Ack { .. })));
        for (incarnation, instance) in [(u32::MAX, 78), (1, 77)] {
            let mut thief = stage.greet_as_thief(1, incarnation, instance);
            assert!(matches!(stage.hear(&mut thief), Some(Handshake::Ready { .. })));
            thief.say(Handshake::Confirm { link: LinkId(10) });
            first.pong(&mut stage);
            assert!(matches!(stage.hear(&mut thief), Some(Handshake::Refuse { .. })));
        }
        assert_eq!(stage.links(), "up");
    }

    #[test]
    fn a_new_connection_waits_no_longer_than_the_old_one_lives() {
        let mut stage = Stage::new(1);
        let mut first = stage.greet(2);
        first.say(Handshake::Ready { link: LinkId(0), number: 1 });
        confirmed(stage.hear(&mut first));
        first.say(Handshake::Ack { number: 2 });
        stage.until_last("up");
        let mut second = stage.greet(2);
        second.say(Handshake::Ready { link: LinkId(0), number: 3 });
        let asked =
            |stage: &Stage| stage.transport.conns.iter().flatten().any(|c| matches!(c.phase, Phase::Contest(_)));
        stage.pump(|stage| asked(stage));
        let begun = Instant::now();
        drop(first);
        confirmed(stage.hear(&mut second));
        assert!(begun.elapsed() < PONG_WITHIN);
        assert_eq!(stage.links(), "up Reset");
    }

    impl Stage {
        /// A stage that knows its view, of itself and member 2, and of nobody else.
        fn settled(id: u8) -> Stage {
            let mut stage = Stage::new(id);
            stage.transport.set_peers(&[member(id), Member { address: "127.0.0.77:1".to_owned(), ..member(2) }]);
            stage.transport.set_sequencer(Some(NodeId(Uuid([id; 16]))));
            stage
        }

        /// Links with somebody who has a smaller id, or finds the connection closed.
        fn link_from(&mut self, id: u8, source: [u8; 4]) -> Option<Played> {
            let mut played = self.connect_from(source);
            let versions = Versions::CURRENT;
            played.say(Handshake::Hello(hello(versions, 77, member(id))));
            self.hear(&mut played)?;
            self.hear(&mut played)?;
            played.say(Handshake::Confirm { link: LinkId(u64::from(id)) });
            self.hear(&mut played).map(|_| played)
        }

        fn pump(&mut self, mut done: impl FnMut(&mut Stage) -> bool) {
            let end = Instant::now() + Duration::from_secs(20);
            while !done(self) {
                assert!(Instant::now() < end, "it did not happen");
                self.transport.poll(Some(Duration::from_millis(1)), &mut self.events);
            }
        }

        fn lines(&self) -> usize {
            let line = |event: &&NetEvent| matches!(event, NetEvent::Log { .. } | NetEvent::Refused { .. });
            self.events.iter().filter(line).count()
        }
    }

    fn wire(message: &trireme_order::Message, class: trireme_order::Class) -> Vec<u8> {
        let mut queue = crate::queue::SendQueue::default();
        queue.push(crate::Encoded::new(class, message, true));
        let mut out = Vec::new();
        while queue.bytes() > 0 {
            let written = queue.write_with(|parts| {
                parts.iter().for_each(|part| out.extend_from_slice(part));
                Ok(parts.iter().map(|part| part.len()).sum())
            });
            written.unwrap();
        }
        out
    }

    #[test]
    fn links_of_strangers_are_few_and_so_are_lines_about_them() {
        let mut stage = Stage::settled(200);
        stage.transport.cfg.limits.stranger_links_per_source = 5;
        let mut linked: Vec<Played> = Vec::new();
        for id in 3..60 {
            linked.extend(stage.link_from(id, [127, 0, 0, 2]));
        }
        assert_eq!(stage.transport.links().len(), 5);
        // From elsewhere there is room; a member has it anyway.
        linked.extend(stage.link_from(100, [127, 0, 0, 3]));
        assert!(stage.link_from(2, [127, 0, 0, 2]).is_some());
        assert_eq!(stage.transport.links().len(), 7);
        // Made and broken again and again.
        drop(linked);
        stage.pump(|stage| stage.transport.links().len() <= 1);
        for id in 3..60 {
            drop(stage.link_from(id, [127, 0, 0, 2]));
            stage.pump(|stage| stage.transport.links().len() <= 1);
        }
        assert!(stage.lines() <= 20, "{} lines", stage.lines());
    }

    #[test]
    fn lines_about_links_are_few_before_the_members_are_known() {
        let mut stage = Stage::new(200);
        for source in 2..=4 {
            for id in 3..40 {
                drop(stage.link_from(id, [127, 0, 0, source]).expect("there is room"));
                stage.pump(|stage| stage.transport.links().is_empty());
            }
        }
        assert!((10..=30).contains(&stage.lines()), "{} lines", stage.lines());
    }

    #[test]
    fn a_stranger_gets_no_memory_for_large_messages_or_unread_answers() {
        let mut stage = Stage::settled(200);
        let large = trireme_order::Message::Signal { body: Bytes::from(vec![0; 17 << 20]) };
        let begun = wire(&large, trireme_order::Class::Bulk)[..60_000].to_vec();
        for (id, stays) in [(2, true), (3, false)] {
            let mut peer = stage.link_from(id, [127, 0, 0, 2]).unwrap();
            peer.socket.write_all(&begun).unwrap();
            let node = NodeId(Uuid([id; 16]));
            // The head of a chunk is enough to know.
            peer.socket.write_all(&wire(&large, trireme_order::Class::Bulk)[60_000..70_000]).unwrap();
            if stays {
                for _ in 0..50 {
                    stage.transport.poll(Some(Duration::from_millis(1)), &mut stage.events);
                }
                assert!(stage.transport.link_slot(node).is_some());
            } else {
                stage.pump(|stage| stage.transport.link_slot(node).is_none());
            }
        }
        let node = NodeId(Uuid([4; 16]));
        let _peer = stage.link_from(4, [127, 0, 0, 2]).unwrap();
        let answer = trireme_order::Message::Signal { body: Bytes::from_static(b"answer") };
        // Never flushed: as if it did not read.
        let queued = (0..1_000_000)
            .take_while(|_| stage.transport.send(node, trireme_order::Class::Control, &answer) == crate::Sent::Queued)
            .count();
        assert!(queued < 50_000, "{queued} answers were queued");
        assert!(stage.transport.link_slot(node).is_none());
    }

    #[test]
    fn an_address_of_members_has_no_room_without_end_for_others() {
        let mut stage = Stage::settled(200);
        stage.transport.cfg.limits.stranger_links_per_source = 5;
        // The address of member 2, behind which others are too.
        let mut linked: Vec<Played> = Vec::new();
        for id in 3..40 {
            linked.extend(stage.link_from(id, [127, 0, 0, 77]));
        }
        assert_eq!(stage.transport.links().len(), 5);
        assert!(stage.link_from(2, [127, 0, 0, 77]).is_some());
    }

    #[test]
    fn a_message_that_does_not_go_on_ends_its_link() {
        let mut stage = Stage::settled(200);
        stage.transport.cfg.limits.unfinished_within = Duration::from_millis(300);
        let large =
            wire(&trireme_order::Message::Signal { body: Bytes::from(vec![0; 1 << 20]) }, trireme_order::Class::Bulk);
        let mut whole = stage.link_from(2, [127, 0, 0, 2]).unwrap();
        let mut begun = stage.link_from(3, [127, 0, 0, 2]).unwrap();
        let (two, three) = (NodeId(Uuid([2; 16])), NodeId(Uuid([3; 16])));
        begun.socket.write_all(&large[..100_000]).unwrap();
        let rest = large.clone();
        let mut socket = whole.socket.try_clone().unwrap();
        socket.set_nonblocking(false).unwrap();
        let writer = std::thread::spawn(move || socket.write_all(&rest).unwrap());
        stage.pump(|stage| stage.transport.link_slot(three).is_none());
        writer.join().unwrap();
        assert!(stage.transport.link_slot(two).is_some(), "what is whole stays");
        // A member as well.
        whole.socket.set_nonblocking(true).unwrap();
        whole.socket.write_all(&large[..100_000]).unwrap();
        stage.pump(|stage| stage.transport.link_slot(two).is_none());
    }

    #[test]
    fn all_links_together_have_a_bound_and_the_largest_goes() {
        let mut stage = Stage::settled(200);
        stage.transport.set_peers(&[200, 2, 3, 4].map(member));
        stage.transport.cfg.limits.memory_bytes = 4 << 20;
        let peers = [2, 3, 4].map(|id| stage.link_from(id, [127, 0, 0, 2]).unwrap());
        let node = |id| NodeId(Uuid([id; 16]));
        // The same body for all is there once.
        let body = trireme_order::Message::Signal { body: Bytes::from(vec![0; 3 << 20]) };
        let body = Encoded::new(trireme_order::Class::Bulk, &body, false);
        let sent = [2, 3, 4].map(|id| stage.transport.send_encoded(node(id), body.clone()));
        assert_eq!(sent, [Sent::Queued; 3]);
        stage.transport.bound_memory(Instant::now());
        assert_eq!(stage.transport.links().len(), 3);
        // Others of a megabyte and more are not.
        for _ in 0..2 {
            let body = trireme_order::Message::Signal { body: Bytes::from(vec![0; 1 << 20]) };
            stage.transport.send(node(3), trireme_order::Class::Bulk, &body);
        }
        stage.transport.bound_memory(Instant::now());
        assert!(stage.transport.link_slot(node(3)).is_none() && stage.transport.links().len() == 2);
        // A message that does not end counts as one that is not taken.
        let large = trireme_order::Message::Signal { body: Bytes::from(vec![0; 3 << 20]) };
        peers[2].socket.set_nonblocking(false).unwrap();
        let mut socket = peers[2].socket.try_clone().unwrap();
        let begun = wire(&large, trireme_order::Class::Bulk)[..2 << 20].to_vec();
        let writer = std::thread::spawn(move || socket.write_all(&begun));
        stage.pump(|stage| stage.transport.link_slot(node(4)).is_none());
        let _ = writer.join().unwrap();
        assert!(stage.transport.link_slot(node(2)).is_some());
    }

    /// A joiner is a stranger until the view names it, and is given a snapshot before.
    #[test]
    fn joiners_that_take_large_snapshots_are_left_to_it_and_who_takes_nothing_goes() {
        let mut stage = Stage::settled(200);
        stage.transport.cfg.limits.memory_bytes = 64 << 20;
        let node = |id| NodeId(Uuid([id; 16]));
        let mut peers = [3, 4, 5].map(|id| stage.link_from(id, [127, 0, 0, 2]).unwrap());
        for id in [3, 4, 5] {
            // Three times the part of strangers that take nothing.
            let snapshot = trireme_order::Message::Signal { body: Bytes::from(vec![id; 8 << 20]) };
            assert_eq!(stage.transport.send(node(id), trireme_order::Class::Bulk, &snapshot), crate::Sent::Queued);
        }
        let mut taken = [0, 0];
        let mut some = vec![0; 64 << 10];
        // The first two take theirs at a pace of their own; looks are a second apart, as far as they can tell.
        let start = Instant::now();
        for second in 0..10 {
            stage.transport.bound_memory(start + Duration::from_secs(second));
            let linked = |id| stage.transport.link_slot(node(id)).is_some();
            assert!(linked(3) && linked(4), "second {second}: one that takes its snapshot was closed");
            for (peer, taken) in peers[..2].iter_mut().zip(&mut taken) {
                peer.socket.set_nonblocking(true).unwrap();
                let until = *taken + (700 << 10);
                let end = Instant::now() + Duration::from_secs(20);
                while *taken < until {
                    stage.transport.poll(Some(Duration::ZERO), &mut stage.events);
                    *taken += peer.socket.read(&mut some).unwrap_or(0);
                    assert!(Instant::now() < end);
                }
            }
        }
        assert!(stage.transport.link_slot(node(5)).is_none(), "one that takes nothing stays");
    }

    #[test]
    fn a_stranger_that_sends_without_end_is_read_no_more_than_its_turn() {
        let mut stage = Stage::settled(200);
        let frame = wire(&trireme_order::Message::Signal { body: Bytes::new() }, trireme_order::Class::Control);
        let stream = frame.repeat((8 << 20) / frame.len());
        let Some(peer) = stage.link_from(3, [127, 0, 0, 2]) else { panic!("there is room") };
        let turn = crate::conn::READ_TURN_STRANGER / frame.len();
        let (mut sent, mut most) = (0, 0);
        let end = Instant::now() + Duration::from_secs(20);
        while sent < stream.len() {
            // As much as the kernel takes, so that reads are filled.
            while let Ok(n @ 1..) = (&peer.socket).write(&stream[sent..]) {
                sent += n;
            }
            let mut events = Vec::new();
            stage.transport.poll(Some(Duration::from_millis(1)), &mut events);
            most = most.max(events.iter().filter(|event| matches!(event, NetEvent::Message { .. })).count());
            assert!(Instant::now() < end, "{sent} bytes were taken");
        }
        // One read ends just below a turn, and one more is made.
        assert!((turn..turn * 5 / 2).contains(&most), "{most} messages at a time, a turn is {turn}");
    }

    #[test]
    fn many_small_messages_at_once_take_little_memory() {
        let mut stage = Stage::settled(200);
        let frame = wire(&trireme_order::Message::Signal { body: Bytes::new() }, trireme_order::Class::Control);
        let stream = frame.repeat(60_000 / frame.len());
        let peers: Vec<Played> = (3..33).filter_map(|id| stage.link_from(id, [127, 0, 0, 2])).collect();
        for peer in &peers {
            (&peer.socket).write_all(&stream).unwrap();
        }
        let all = peers.len() * (stream.len() / frame.len());
        // The events that fit, and the turn of the connection with which it was too much.
        let most = (8 << 20) / std::mem::size_of::<NetEvent>() + crate::conn::READ_TURN_STRANGER / frame.len() * 2;
        assert!(all > most * 2, "{all} messages show nothing");
        let (mut came, end) = (0, Instant::now() + Duration::from_secs(20));
        while came < all {
            let mut events = Vec::new();
            stage.transport.poll(Some(Duration::from_millis(1)), &mut events);
            let here = events.iter().filter(|event| matches!(event, NetEvent::Message { .. })).count();
            assert!(here <= most, "{here} messages in one poll, {most} at most");
            came += here;
            assert!(Instant::now() < end, "{came} of {all} came");
        }
    }

    #[test]
    fn a_stranger_makes_this_node_dial_nothing() {
        let mut stage = Stage::settled(200);
        let dialled = |stage: &Stage, text: &str| stage.transport.known_peers().iter().any(|peer| peer.address == text);
        for (id, heard) in [(2, true), (3, false)] {
            let mut peer = stage.link_from(id, [127, 0, 0, 2]).unwrap();
            peer.socket.write_all(&Gossip::Addresses(vec![format!("127.0.0.99:{id}")]).encode()).unwrap();
            let probe = trireme_order::Message::Signal { body: Bytes::new() };
            peer.socket.write_all(&wire(&probe, trireme_order::Class::Control)).unwrap();
            let node = NodeId(Uuid([id; 16]));
            stage.pump(|stage| {
                stage.events.iter().any(|event| matches!(event, NetEvent::Message { from, .. } if *from == node))
            });
            assert_eq!(dialled(&stage, &format!("127.0.0.99:{id}")), heard);
        }
    }

    /// While somebody is linked a place that he is known to be at is not dialled.
    #[test]
    fn a_stranger_who_says_to_listen_where_a_member_does_is_not_believed() {
        for (id, believed) in [(2, true), (3, false)] {
            let mut stage = Stage::settled(200);
            let at = "127.0.0.77:1";
            let mut played = stage.connect_from([127, 0, 0, 2]);
            let member = Member { address: at.to_owned(), ..member(id) };
            played.say(Handshake::Hello(hello(Versions::CURRENT, 77, member)));
            assert!(stage.hear(&mut played).is_some() && stage.hear(&mut played).is_some());
            played.say(Handshake::Confirm { link: LinkId(u64::from(id)) });
            assert!(stage.hear(&mut played).is_some());
            let peers = stage.transport.known_peers();
            let peer = peers.iter().find(|peer| peer.address == at).expect("the view names it");
            assert_eq!(peer.linked, believed, "{peer:?}");
        }
    }

    #[test]
    fn many_connections_at_once_wait_in_the_kernel_and_none_is_turned_away() {
        let stage = Stage::new(1);
        let port = stage.transport.listen_port();
        let room: usize = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
        // Nobody accepts them meanwhile. Beyond the room that there is, the kernel drops the request and asks again after a second.
        let at = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let waiting: Vec<_> = (0..room.min(600))
            .map(|n| {
                std::net::TcpStream::connect_timeout(&at, Duration::from_millis(900))
                    .unwrap_or_else(|error| panic!("{n}: {error}"))
            })
            .collect();
        assert!(waiting.len() > 128, "net.core.somaxconn is {room}");
    }

    #[test]
    fn a_name_taken_with_the_highest_number_is_not_taken_for_ever() {
        let mut stage = Stage::settled(200);
        let peer = stage.link_from(3, [127, 0, 0, 2]).unwrap();
        let node = NodeId(Uuid([3; 16]));
        stage.transport.newest.insert(node, (Incarnation(u32::MAX), None));
        drop(peer);
        stage.pump(|stage| stage.transport.link_slot(node).is_none());
        let (_, until) = stage.transport.newest[&node];
        let late = until.unwrap() + Duration::from_secs(1);
        stage.transport.on_time(late);
        assert!(stage.link_from(3, [127, 0, 0, 2]).is_some());
    }

    #[test]
    fn an_older_twin_of_a_member_is_never_linked_again() {
        let mut stage = Stage::settled(200);
        let peer = stage.link_from(2, [127, 0, 0, 2]).unwrap();
        let node = NodeId(Uuid([2; 16]));
        // The newer one is in a view.
        stage.transport.set_peers(&[member(200), Member { incarnation: Incarnation(5), ..member(2) }]);
        drop(peer);
        stage.pump(|stage| stage.transport.link_slot(node).is_none());
        // It leaves the view as well.
        stage.transport.set_peers(&[member(200)]);
        let (_, until) = stage.transport.newest[&node];
        stage.transport.on_time(until.unwrap() + Duration::from_secs(3600));
        assert!(stage.link_from(2, [127, 0, 0, 2]).is_none());
    }

    /// Whether a number that no view has confirmed is believed for ever depends on whether strangers could have said it.
    #[test]
    fn a_members_name_taken_in_clear_text_is_not_taken_for_ever() {
        for secret in [false, true] {
            let mut stage = Stage::settled(200);
            let peer = stage.link_from(2, [127, 0, 0, 2]).unwrap();
            let node = NodeId(Uuid([2; 16]));
            stage.transport.newest.insert(node, (Incarnation(u32::MAX), None));
            drop(peer);
            stage.pump(|stage| stage.transport.link_slot(node).is_none());
            let (_, until) = stage.transport.newest[&node];
            let context = crate::TlsContext::of_secrets(&[[1; crate::SECRET_LEN]]).unwrap();
            stage.transport.cfg.tls = secret.then_some(context);
            stage.transport.on_time(until.unwrap() + Duration::from_secs(3600));
            stage.transport.cfg.tls = None;
            assert_eq!(stage.link_from(2, [127, 0, 0, 2]).is_none(), secret);
        }
    }
}
