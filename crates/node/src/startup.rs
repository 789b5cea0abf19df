//! What is settled before the group thread starts: the log, the own identity, where to listen, and how to begin.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trireme_order::{Config, LogStore};
use trireme_surface::address::HostPort;
use trireme_transport::{NetConfig, Transport};
use trireme_types::{
    Entry, EntryKind, Incarnation, LogIndex, Member, MemberKind, NodeId, Reader, Seqno, Uuid, View, VoterSet, Weight,
};
use trireme_wslog::{DirStorage, OpenReport, Options as LogOptions, WriteSetLog, read_boot_id};

use crate::Level;
use crate::asking;
use crate::core::Log;
use crate::exposure;
use crate::position::{self, Settled};
use crate::saved::Saved;
use crate::settings::{Settings, Target};
use crate::shared::Shared;
use crate::space::free_space;

/// Longest member name in bytes; older tools read no more.
const NAME_MAX: usize = 31;

/// A member becomes a voter soon after the view that lets it in. Farther back is not looked for the names of voters.
const VIEW_IS_WITHIN: usize = 10_000;

/// How long `connect` waits for a primary view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// `pc.wait_prim=no`: the group is looked for in the background.
    None,
    /// `pc.wait_prim_timeout`, for a node that belongs to nobody yet.
    Limited(Duration),
    /// A node with a stored configuration waits for its peers (rule 30).
    Unlimited,
}

/// How to begin.
#[derive(Clone, Debug)]
pub enum Start {
    Bootstrap {
        history: Uuid,
        position: Seqno,
    },
    /// `data`: where the data are, although perhaps no log vouches for them. `fallback`: where data with a statement cut off in them
    /// are, when there are no others.
    Join {
        position: Option<(Uuid, Seqno)>,
        data: Option<(Uuid, Seqno)>,
        fallback: Option<Seqno>,
    },
    /// `dummy://`: a group of one that talks to nobody.
    Alone {
        history: Uuid,
        position: Seqno,
    },
}

/// Everything the group thread starts with.
pub struct Plan {
    pub cluster: String,
    /// Addresses to begin with; `None` for a node without network.
    pub peers: Option<Vec<String>>,
    pub transport: Transport,
    /// A node that peers refuse, for what waiting does not mend, gives up after this.
    pub unwelcome_max: Duration,
    pub config: Config,
    pub start: Start,
    /// The position has yet to be confirmed by the engine that the first view opens.
    pub unconfirmed: bool,
    /// A server that has just been started and needs no data gets what a donor's script brings all the same.
    pub script: bool,
    pub patience: Patience,
    pub seed: u64,
}

/// What `connect` was called with.
pub struct Wish<'a> {
    pub cluster: &'a str,
    pub target: &'a Target,
    pub bootstrap: bool,
    /// The first connection of this process.
    pub first: bool,
}

/// More would not help: a full copy is there sooner.
const KEPT_FOR_ABSENT_MAX: u64 = 16 << 30;

// --- the log ---------------------------------------------------------------------------------------------------------------

/// Opens the write-set log in `gcache.dir`, or makes one there, and tells what was found. The flag: it was closed in order.
pub fn open_log(settings: &Settings, say: &dyn Fn(Level, &str)) -> Result<(Log, bool), String> {
    let recover = settings.with(|o| o.bool("gcache.recover"));
    let (storage, options) = place(settings, Some(NodeId(node_uuid(SystemTime::now())?)), recover)?;
    let (log, report) = WriteSetLog::open(storage, &options).map_err(|e| e.to_string())?;
    tell(&log, &report, say);
    Ok((log, !report.unclean))
}

/// Opens it once more after its disk failed, when that works and has room. The log must be there: an empty directory is one whose file
/// system is not mounted.
pub fn reopen_log(settings: &Settings, failed: &mut Log, say: &dyn Fn(Level, &str)) -> Result<Log, String> {
    failed.let_go();
    let (storage, options) = place(settings, None, true)?;
    let (free, needed) = (free_space(storage.path()), options.segment_size());
    // Not to be found out by filling the disk.
    if free < needed && !Log::has_room(&storage, &options).map_err(|e| e.to_string())? {
        return Err(format!("{needed} bytes are needed in {}, and {free} are free", storage.path().display()));
    }
    Log::make_room(&storage, &options).map_err(|e| e.to_string())?;
    let (mut log, report) = WriteSetLog::open(storage, &options).map_err(|e| e.to_string())?;
    tell(&log, &report, say);
    if let Some(lost) = log.succeed(failed).map_err(|e| e.to_string())? {
        say(Level::Warn, &format!("the disk lost entries {lost} of the write-set log: the others have to repair it"));
    }
    Ok(log)
}

/// Where the log lies, and how it is opened.
fn place(settings: &Settings, new_node: Option<NodeId>, recover: bool) -> Result<(DirStorage, LogOptions), String> {
    let (dir, size, keep) = settings
        .with(|o| (PathBuf::from(o.text("gcache.dir")), o.size("gcache.size"), o.size("gcache.keep_pages_size")));
    let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
    let storage = DirStorage::new(&dir).map_err(|e| e.to_string())?;
    let mut options = LogOptions::new(new_node, read_boot_id());
    options.size = size;
    options.keep_pages_size = keep;
    options.recover = recover;
    options.keys = settings.log_keys()?;
    Ok((storage, options))
}

/// How much the log may take for the sake of members that are away: a quarter of what is free now, unless `gcache.size` is given, which is
/// a bound then.
pub fn kept_for_absent(settings: &Settings) -> u64 {
    let (dir, given) = settings.with(|o| (PathBuf::from(o.text("gcache.dir")), o.is_set("gcache.size")));
    if given { 0 } else { (free_space(&dir) / 4).min(KEPT_FOR_ABSENT_MAX) }
}

fn tell(log: &Log, report: &OpenReport, say: &dyn Fn(Level, &str)) {
    if report.created {
        say(Level::Info, &format!("write-set log: created, member id {}", log.node_id()));
        return;
    }
    let base = log.base();
    let last_seqno = last_seqno(log);
    say(
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
        say(level, note);
    }
}

fn last_seqno(log: &Log) -> Seqno {
    match log.read(log.last(), 0) {
        Ok(entries) => entries.first().map_or(log.base().seqno, |e| e.header.seqno),
        Err(_) => log.base().seqno,
    }
}

/// The newest voter set in the log, committed or not, and its index.
fn newest_voters(log: &Log) -> (VoterSet, LogIndex) {
    let base = log.base();
    let newest = entry(log, log.last()).and_then(|last| match last.header.kind {
        EntryKind::Voters => Some(last),
        _ => entry(log, last.header.voters).filter(|e| e.header.kind == EntryKind::Voters),
    });
    newest
        .and_then(|e| Some((VoterSet::decode(&mut Reader::new(&e.payload)).ok()?, e.header.index)))
        .unwrap_or_else(|| (base.voters.clone(), base.index))
}

fn voters(log: &Log) -> VoterSet {
    newest_voters(log).0
}

fn entry(log: &Log, index: LogIndex) -> Option<Entry> {
    log.read(index, 0).ok()?.into_iter().next()
}

/// The view in which these voters were chosen: the last one before, or else the one that the log begins with.
fn view_of_voters(log: &Log, at: LogIndex) -> View {
    (log.base().index.0 + 1..=at.0)
        .rev()
        .take(VIEW_IS_WITHIN)
        .filter_map(|index| entry(log, LogIndex(index)))
        .find(|e| e.header.kind == EntryKind::View)
        .and_then(|e| View::decode(&mut Reader::new(&e.payload)).ok())
        .unwrap_or_else(|| log.base().view.clone())
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
    let arbitrator = shared.args.arbitrator.is_some();
    if bootstrap && arbitrator {
        return Err("an arbitrator has no data to begin a cluster with: give it the addresses of the servers, as in \
                    gcomm://host1,host2"
            .into());
    }
    if !bootstrap {
        some_address(peers)?;
    }
    if bootstrap && !alone && !saved.safe_to_bootstrap() {
        return Err(saved.unsafe_reason());
    }
    let anew = bootstrap && saved.disowned();
    // A new history takes nothing from the others' one.
    if bootstrap && !alone && !anew {
        asking::known_voters(shared, log, wish.cluster, peers)?;
    }
    let Settled { position, unconfirmed } =
        if anew || arbitrator { Settled::default() } else { position::settle(shared, log, saved, bootstrap)? };
    let half_done = position.is_none() && !anew && !arbitrator;
    let fallback = if half_done { position::of_half_done(shared, log, saved) } else { None };
    let start = if bootstrap {
        let (history, position) = match position.or(fallback) {
            Some(known) => known,
            None if anew => fresh(shared, log)?,
            None => {
                position::refuse_half_done(log, saved)?;
                fresh(shared, log)?
            }
        };
        if alone { Start::Alone { history, position } } else { Start::Bootstrap { history, position } }
    } else {
        Start::Join {
            position: position::with_log(shared, log, position),
            data: position,
            fallback: fallback.map(|(_, seqno)| seqno),
        }
    };
    // Has this node a group to come back to (rule 30)? After a clean stop it is no voter of it any more. A server that runs is
    // another matter: whoever names a new address in a session wants an answer.
    let known = voters(log).contains(log.node_id())
        || wish.first && !voters(log).voters.is_empty() && log.base().history == saved.history();
    // No state of any kind: neither data nor a log.
    let blank = !bootstrap && !arbitrator && saved.is_blank() && log.last() == LogIndex::ZERO;
    let expect = if blank { shared.settings.with(|o| o.int("pc.bootstrap_expect")) as u8 } else { 0 };
    let peers = (!alone).then(|| peers.to_vec());
    let (transport, config) = listen(shared, log, wish.cluster, peers.as_deref())?;
    let patience = shared.settings.with(|o| {
        if !o.bool("pc.wait_prim") {
            Patience::None
        } else if known && o.bool("pc.recovery") || bootstrap || expect > 0 {
            Patience::Unlimited
        } else {
            Patience::Limited(o.period("pc.wait_prim_timeout"))
        }
    });
    if patience == Patience::Unlimited && !bootstrap && expect == 0 {
        shared.log(Level::Info, format!("waiting for peers to form the group again: {}", names_of_voters(log)));
    }
    let config = Config { expect, ..config };
    let unwelcome_max = shared.settings.with(|o| o.period("pc.wait_prim_timeout"));
    let script = wish.first && shared.server.wants_script();
    let seed = u64::from_le_bytes(random()?);
    let cluster = wish.cluster.to_string();
    // A server that bootstraps resets its engine's position in the first view: it was asked before.
    let unconfirmed = !bootstrap && (unconfirmed && position.is_some() || fallback.is_some());
    Ok(Plan { cluster, peers, transport, unwelcome_max, config, start, unconfirmed, script, patience, seed })
}

/// A new incarnation of this member, at its address.
fn listen(
    shared: &Shared,
    log: &mut Log,
    cluster: &str,
    peers: Option<&[String]>,
) -> Result<(Transport, Config), String> {
    let incarnation = log.begin_incarnation(by_the_clock()).map_err(|e| e.to_string())?;
    let me = member(shared, log.node_id(), incarnation);
    let transport = open_transport(shared, cluster, &me, peers)?;
    let me = Member { address: transport.me().address.clone(), ..me };
    Ok((transport, shared.settings.order(me)))
}

/// How a server that runs, with its data at `position`, joins its group again. Listens already on return.
pub fn rejoin(
    shared: &Shared,
    log: &mut Log,
    cluster: &str,
    peers: Option<Vec<String>>,
    position: (Uuid, Seqno),
) -> Result<Plan, String> {
    let (transport, config) = listen(shared, log, cluster, peers.as_deref())?;
    let unwelcome_max = shared.settings.with(|o| o.period("pc.wait_prim_timeout"));
    let position = Some(position);
    let start = Start::Join { position: position::with_log(shared, log, position), data: position, fallback: None };
    let (script, patience, seed) = (false, Patience::Unlimited, u64::from_le_bytes(random()?));
    // The engine has been running, and is in the middle of commits: what has left commit order is in it.
    let unconfirmed = false;
    let cluster = cluster.to_string();
    Ok(Plan { cluster, peers, transport, unwelcome_max, config, start, unconfirmed, script, patience, seed })
}

fn names_of_voters(log: &Log) -> String {
    let own = log.node_id();
    let (set, at) = newest_voters(log);
    let view = view_of_voters(log, at);
    let names: Vec<String> = set
        .voters
        .iter()
        .filter(|v| v.node != own)
        .map(|v| view.get(v.node).map_or_else(|| v.node.to_string(), |m| format!("{} ({})", m.name, m.address)))
        .collect();
    if names.is_empty() { "none but this node".into() } else { names.join(", ") }
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

/// Seconds since the beginning of 2026. The counter of starts lies in the log, and goes back when an old copy of the directory is
/// put in its place: then the clock keeps the numbers of this start apart from those of the starts that were forgotten. Where
/// the clock goes back too, or there is more than one start in a second, the counter goes on.
fn by_the_clock() -> Incarnation {
    const YEAR_2026: u64 = 1_767_225_600;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    Incarnation(u32::try_from(now.saturating_sub(YEAR_2026)).unwrap_or(0))
}

pub(crate) fn member(shared: &Shared, node: NodeId, incarnation: Incarnation) -> Member {
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
            kind: match &args.arbitrator {
                Some(_) => MemberKind::Arbitrator,
                None if o.bool("gcs.stateless") => MemberKind::Stateless,
                None => MemberKind::Data,
            },
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

/// `peers`: `None` for a node without network.
fn open_transport(shared: &Shared, cluster: &str, me: &Member, peers: Option<&[String]>) -> Result<Transport, String> {
    let mut net = NetConfig::new(me.clone(), cluster);
    let Some(peers) = peers else { return Transport::new(net) };
    shared.settings.protect(shared, &mut net)?;
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
        (true, ..) => vec![listen.clone()],
        // Nobody else is told of another address, so nobody else has a reason to connect.
        (false, _, Some(ip)) if ip.is_loopback() => vec![only(ip)],
        (false, _, Some(ip)) => vec![listen.clone(), only(ip)],
        (false, _, None) => vec![listen.clone()],
    }
    .into_iter();
    let mut first = candidates.next();
    let mut reason = String::new();
    while let Some(listen) = first {
        net.listen = vec![listen.to_string()];
        match Transport::new(net.clone()) {
            Ok(transport) => {
                let refusal = exposure::refusal(transport.protection(), &transport.listens());
                return match refusal.filter(|_| shared.settings.with(|o| o.bool("repl.require_auth"))) {
                    Some(refusal) => Err(refusal),
                    None => Ok(transport),
                };
            }
            Err(e) if reason.is_empty() => reason = e,
            // The first failure is the one to tell: the others are attempts around it.
            Err(_) => {}
        }
        first = candidates.next();
    }
    Err(reason)
}

pub(crate) fn own_ip(me: &Member) -> Option<IpAddr> {
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
