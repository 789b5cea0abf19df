//! What is settled before the group thread starts: the log, the own identity, where to listen, and how to begin.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use trireme_order::{Config, LogStore, Message};
use trireme_surface::address::HostPort;
use trireme_transport::{NetConfig, NetEvent, Transport};
use trireme_types::{EntryKind, Incarnation, Member, NodeId, Reader, Seqno, Uuid, VoterSet, Weight};
use trireme_wslog::{DirStorage, OpenReport, Options as LogOptions, WriteSetLog, read_boot_id};

use crate::core::{Log, Start};
use crate::node::Shared;
use crate::recover;
use crate::saved::Saved;
use crate::settings::{Settings, Target};
use crate::{Level, Server};

/// Longest member name in bytes; older tools read no more.
const NAME_MAX: usize = 31;

/// How long known peers have to answer before a node that may bootstrap does so. A few round trips and a connection.
const ASK_PEERS: Duration = Duration::from_millis(1500);

/// How long `connect` waits for a primary view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// `pc.wait_prim=no`: the group is looked for in the background.
    None,
    /// `pc.wait_prim_timeout`, for a node that belongs to nobody yet.
    Limited(Duration),
    /// A node with a stored configuration waits for its peers (SAFETY 30).
    Unlimited,
}

/// Everything the group thread starts with.
pub struct Plan {
    pub transport: Transport,
    pub config: Config,
    pub start: Start,
    pub patience: Patience,
    pub seed: u64,
}

/// What `connect` was called with.
pub struct Wish<'a> {
    pub cluster: &'a str,
    pub target: &'a Target,
    pub bootstrap: bool,
}

// --- the log ---------------------------------------------------------------------------------------------------------------

/// Opens the write-set log in `gcache.dir`, or makes one there, and tells what was found.
pub fn open_log(settings: &Settings, server: &dyn Server) -> Result<Log, String> {
    let (dir, size, keep, recover) = settings.with(|o| {
        (
            PathBuf::from(o.text("gcache.dir")),
            o.size("gcache.size"),
            o.size("gcache.keep_pages_size"),
            o.bool("gcache.recover"),
        )
    });
    let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
    let storage = DirStorage::new(&dir).map_err(|e| e.to_string())?;
    let mut options = LogOptions::new(NodeId(node_uuid(SystemTime::now())?), read_boot_id());
    options.size = size;
    options.keep_pages_size = keep;
    options.recover = recover;
    let (log, report) = WriteSetLog::open(storage, &options).map_err(|e| e.to_string())?;
    tell(&log, &report, server);
    Ok(log)
}

fn tell(log: &Log, report: &OpenReport, server: &dyn Server) {
    if report.created {
        server.log(Level::Info, &format!("write-set log: created, member id {}", log.node_id()));
        return;
    }
    let base = log.base();
    let last_seqno = last_seqno(log);
    server.log(
        Level::Info,
        &format!(
            "write-set log: member id {}, history {}, seqnos {}-{last_seqno}, entries {}-{}{}",
            log.node_id(),
            base.history,
            base.seqno.next(),
            log.first(),
            log.last(),
            if report.unclean { ", not closed by its last user" } else { "" },
        ),
    );
    // What may cost this member its vote wants an operator's eye; the rest is what recovery is there for.
    let level = if report.suspect.is_some() || report.hole.is_some() { Level::Warn } else { Level::Info };
    for note in &report.notes {
        server.log(level, note);
    }
}

fn last_seqno(log: &Log) -> Seqno {
    match log.read(log.last(), 0) {
        Ok(entries) => entries.first().map_or(log.base().seqno, |e| e.header.seqno),
        Err(_) => log.base().seqno,
    }
}

/// The newest voter set in the log, committed or not.
fn voters(log: &Log) -> VoterSet {
    let base = log.base();
    let Some(last) = log.read(log.last(), 0).ok().and_then(|e| e.into_iter().next()) else {
        return base.voters.clone();
    };
    let entry = if last.header.kind == EntryKind::Voters {
        Some(last)
    } else {
        log.read(last.header.voters, 0).ok().and_then(|e| e.into_iter().next())
    };
    entry
        .filter(|e| e.header.kind == EntryKind::Voters)
        .and_then(|e| VoterSet::decode(&mut Reader::new(&e.payload)).ok())
        .unwrap_or_else(|| base.voters.clone())
}

// --- connecting --------------------------------------------------------------------------------------------------------------

/// Decides how to begin. Listens already on return.
pub fn prepare(shared: &Shared, log: &mut Log, wish: &Wish<'_>, saved: &mut Saved) -> Result<Plan, String> {
    let peers = match wish.target {
        Target::Alone => &[][..],
        Target::Peers(peers) => peers,
    };
    let alone = matches!(wish.target, Target::Alone);
    let bootstrap = alone || wish.bootstrap || peers.is_empty();
    if !bootstrap {
        some_address(peers)?;
    }
    if bootstrap && !alone && !saved.safe_to_bootstrap() {
        return Err(saved.unsafe_reason());
    }
    let anew = bootstrap && saved.disowned();
    if bootstrap && !alone && !anew {
        refuse_a_second_primary(shared, log, wish.cluster, peers)?;
    }
    let position = if anew { None } else { settle_position(shared, log, saved) };
    let start = if bootstrap {
        let (history, position) = match position {
            Some(known) => known,
            None => fresh(shared, log)?,
        };
        if alone { Start::Alone { history, position } } else { Start::Bootstrap { history, position } }
    } else {
        Start::Join { position: confirmed(shared, log, position) }
    };
    let known = voters(log).contains(log.node_id());
    let incarnation = log.begin_incarnation().map_err(|e| e.to_string())?;
    let me = member(shared, log.node_id(), incarnation);
    let transport = open_transport(shared, wish.cluster, &me, if alone { None } else { Some(peers) })?;
    let patience = shared.settings.with(|o| {
        if !o.bool("pc.wait_prim") {
            Patience::None
        } else if known && o.bool("pc.recovery") || bootstrap {
            Patience::Unlimited
        } else {
            Patience::Limited(o.period("pc.wait_prim_timeout"))
        }
    });
    if patience == Patience::Unlimited && !bootstrap {
        shared.log(Level::Info, format!("waiting for peers to form the group again: {}", names_of_voters(log)));
    }
    let me = Member { address: transport.me().address.clone(), ..me };
    let config = shared.settings.order(me);
    Ok(Plan { transport, config, start, patience, seed: u64::from_le_bytes(random()?) })
}

fn names_of_voters(log: &Log) -> String {
    let own = log.node_id();
    let view = &log.base().view;
    let names: Vec<String> = voters(log)
        .voters
        .iter()
        .filter(|v| v.node != own)
        .map(|v| view.get(v.node).map_or_else(|| v.node.to_string(), |m| format!("{} ({})", m.name, m.address)))
        .collect();
    if names.is_empty() { "none but this node".into() } else { names.join(", ") }
}

/// The position of the server's data: what the server or the state file says, else what the server's binary reads out of the
/// data directory, where that may be trusted (SAFETY 21).
fn settle_position(shared: &Shared, log: &Log, saved: &mut Saved) -> Option<(Uuid, Seqno)> {
    if let Some(position) = saved.position() {
        return Some(position);
    }
    // A nil history in the state file says that there are no usable data: nothing was there yet, the data were left half
    // changed, or an operator has removed the file to get a full copy.
    let history = saved.history();
    if history.is_nil() || saved.is_damaged() || log.base().history != history || log.last() == log.base().index {
        return None;
    }
    shared.log(
        Level::Info,
        "the position of the data is not known (unclean stop): asking the storage engine for it".into(),
    );
    match recover::position(&shared.args.data_dir) {
        Ok((found, seqno)) if found == history => {
            shared.log(Level::Info, format!("recovered position {found}:{seqno}"));
            saved.set_position(Some((found, seqno)));
            Some((found, seqno))
        }
        Ok((found, seqno)) => {
            shared
                .log(Level::Info, format!("recovered position {found}:{seqno} is not of history {history}: not used"));
            None
        }
        Err(reason) => {
            shared.log(Level::Info, format!("the position could not be recovered: {reason}"));
            None
        }
    }
}

/// To join, a position counts only together with the log that led there: nothing else says on which branch of the history it
/// lies (SAFETY 18).
fn confirmed(shared: &Shared, log: &Log, position: Option<(Uuid, Seqno)>) -> Option<(Uuid, Seqno)> {
    let (history, seqno) = position?;
    if log.base().history == history {
        return Some((history, seqno));
    }
    shared.log(
        Level::Info,
        format!("local state {history}:{seqno} has no write-set log that belongs to it: a full copy is needed"),
    );
    None
}

fn fresh(shared: &Shared, log: &Log) -> Result<(Uuid, Seqno), String> {
    let history = random_uuid()?;
    if log.last() > log.base().index {
        shared.log(
            Level::Info,
            format!(
                "the position of the data in history {} is not known: beginning a new history {history}. To continue the old one \
                 instead, stop now, find the position with mariadbd --wsrep-recover and start with --wsrep-start-position",
                log.base().history
            ),
        );
    }
    Ok((history, Seqno::ZERO))
}

fn member(shared: &Shared, node: NodeId, incarnation: Incarnation) -> Member {
    let args = &shared.args;
    shared.settings.with(|o| {
        let host = o.text("base_host").to_string();
        let address = HostPort { host: host.clone(), port: Some(o.listen().port.unwrap_or_else(|| o.base_port())) };
        Member {
            node,
            incarnation,
            name: cut(&args.node_name, NAME_MAX),
            incoming: cut(&args.node_incoming, 255),
            // Without a host, peers take the address that they see.
            address: if host.is_empty() { String::new() } else { address.to_string() },
            segment: o.int("gmcast.segment") as u8,
            weight: Weight(o.int("pc.weight") as u8),
            stateless: o.bool("gcs.stateless"),
        }
    })
}

fn cut(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}

/// A node that has peers asks them before it begins a primary component of its own: one may exist (SAFETY 13). A line
/// `gcomm://` in a configuration file does so at every start.
fn refuse_a_second_primary(shared: &Shared, log: &Log, cluster: &str, peers: &[String]) -> Result<(), String> {
    let own = log.node_id();
    let voters = voters(log);
    if voters.voters.iter().all(|v| v.node == own) {
        return Ok(());
    }
    let me = member(shared, own, log.incarnation());
    let mut net = NetConfig::new(me.clone(), cluster);
    net.bind_source = own_ip(&me).filter(|ip| ip.is_loopback());
    net.seeds = log
        .base()
        .view
        .members
        .iter()
        .filter(|m| m.node != own && !m.address.is_empty())
        .map(|m| m.address.clone())
        .collect();
    net.seeds.extend(peers.iter().cloned());
    let mut transport = Transport::new(net)?;
    let history = log.base().history;
    let until = Instant::now() + ASK_PEERS;
    let mut events = Vec::new();
    let mut primary = None;
    while primary.is_none() && Instant::now() < until {
        transport.poll(Some(until.saturating_duration_since(Instant::now())), &mut events);
        for event in events.drain(..) {
            if let NetEvent::Message { from, message: Message::Heartbeat { history: theirs, majority: true, .. } } =
                event
            {
                if theirs == history {
                    primary = Some(from);
                }
            }
        }
    }
    let addresses: Vec<String> = transport.known_peers().into_iter().filter(|p| p.linked).map(|p| p.address).collect();
    transport.close();
    match primary {
        None => Ok(()),
        Some(node) => Err(format!(
            "a primary component of this cluster is running, led by {node}: a second one would split it. Start this node with \
             wsrep_cluster_address=gcomm://{} and without --wsrep-new-cluster",
            addresses.join(",")
        )),
    }
}

/// `peers`: `None` for a node without network.
fn open_transport(shared: &Shared, cluster: &str, me: &Member, peers: Option<&[String]>) -> Result<Transport, String> {
    let mut net = NetConfig::new(me.clone(), cluster);
    let Some(peers) = peers else { return Transport::new(net) };
    let (listen, chosen) = shared.settings.with(|o| {
        net.peer_timeout = o.period("gmcast.peer_timeout");
        net.time_wait = o.period("gmcast.time_wait");
        net.checksum = o.int("socket.checksum") != 0;
        net.send_buffer = o.auto_size("socket.send_buf_size").map(|n| n as usize);
        net.recv_buffer = o.auto_size("socket.recv_buf_size").map(|n| n as usize);
        (o.listen(), o.is_set("gmcast.listen_addr"))
    });
    net.seeds = peers.to_vec();
    net.ask_admission = true;
    let own = own_ip(me);
    // Several nodes on one machine, told apart by their loopback addresses: the port of all of them may be the same.
    let loopback = own.filter(|ip| matches!(ip, IpAddr::V4(v4) if v4.is_loopback() && v4.octets() != [127, 0, 0, 1]));
    net.bind_source = loopback;
    let only = |ip: IpAddr| HostPort { host: ip.to_string(), ..listen.clone() };
    let mut candidates = match (chosen, loopback, own) {
        (true, _, _) => vec![listen.clone()],
        (false, Some(ip), _) => vec![only(ip)],
        (false, None, Some(ip)) => vec![listen.clone(), only(ip)],
        (false, None, None) => vec![listen.clone()],
    }
    .into_iter();
    let mut first = candidates.next();
    let mut reason = String::new();
    while let Some(listen) = first {
        net.listen = vec![listen.to_string()];
        match Transport::new(net.clone()) {
            Ok(transport) => return Ok(transport),
            Err(e) if reason.is_empty() => reason = e,
            // The first failure is the one to tell: the others are attempts around it.
            Err(_) => {}
        }
        first = candidates.next();
    }
    Err(reason)
}

fn own_ip(me: &Member) -> Option<IpAddr> {
    HostPort::parse(&me.address).ok()?.host.parse().ok()
}

// --- randomness ----------------------------------------------------------------------------------------------------------------

fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut bytes))
        .map_err(|e| format!("cannot read /dev/urandom: {e}"))?;
    Ok(bytes)
}

pub fn random_uuid() -> Result<Uuid, String> {
    let mut bytes: [u8; 16] = random()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

/// At least one peer has to have an address: a name that nobody knows is a mistake, and waiting would hide it.
fn some_address(peers: &[String]) -> Result<(), String> {
    if peers.iter().any(|peer| peer.to_socket_addrs().is_ok_and(|mut found| found.next().is_some())) {
        return Ok(());
    }
    Err(format!(
        "{}: none of {} resolves; check wsrep_cluster_address and the name service",
        trireme_surface::texts::NO_ADDRESS,
        peers.join(", ")
    ))
}

/// An id for a new member: the milliseconds of its creation first (RFC 9562, version 7), so that nodes sort, and get their
/// auto_increment_offset, in the order in which they were set up.
fn node_uuid(now: SystemTime) -> Result<Uuid, String> {
    let millis = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    let mut uuid = random_uuid()?;
    uuid.0[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    uuid.0[6] = uuid.0[6] & 0x0f | 0x70;
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_with_an_address_is_enough() {
        assert!(some_address(&["host.invalid:4567".into(), "127.0.0.1:4567".into()]).is_ok());
        assert!(some_address(&["host.invalid:4567".into()]).unwrap_err().contains("host.invalid"));
    }

    #[test]
    fn nodes_sort_by_the_time_of_their_creation() {
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let ids = [1_000, 1_001, 1_700_000_000_000].map(|ms| node_uuid(at(ms)).unwrap());
        assert!(ids.is_sorted());
        assert_ne!(node_uuid(at(5)).unwrap(), node_uuid(at(5)).unwrap());
    }

    #[test]
    fn names_are_cut_at_whole_characters() {
        assert_eq!(cut("node1", 31), "node1");
        assert_eq!(cut(&"ä".repeat(20), 31), "ä".repeat(15));
    }

    #[test]
    fn random_ids_differ() {
        assert_ne!(random_uuid().unwrap(), random_uuid().unwrap());
    }
}
