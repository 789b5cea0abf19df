//! All that is settled before the group thread starts: where to listen, and how to begin.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::time::Duration;

use trireme_order::{Config, LogStore, StoreError};
use trireme_surface::address::HostPort;
use trireme_surface::texts;
use trireme_transport::{MulticastConfig, NetConfig, Transport, TransportError};
use trireme_types::{LogIndex, Member, Seqno, Uuid};

use crate::Level;
use crate::asking;
use crate::engine;
use crate::exposure;
use crate::host::Host;
use crate::identity::{NoChance, by_the_clock, member, own_ip, random, random_uuid};
use crate::log::{Log, LogError, names_of_voters, voters};
use crate::position::{self, NoBeginning, Settled};
use crate::recover::Engine;
use crate::saved::Saved;
use crate::settings::{SettingsError, Target};

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
    pub engine: Engine,
    /// The position has yet to be confirmed by the engine that the first view opens.
    pub unconfirmed: bool,
    /// A server that has just been started and needs no data gets what a donor's script brings all the same.
    pub script: bool,
    pub patience: Patience,
    pub seed: u64,
}

/// The arguments of `connect`.
pub struct Wish<'a> {
    pub cluster: &'a str,
    pub target: &'a Target,
    pub bootstrap: bool,
    /// The first connection of this process.
    pub first: bool,
}

/// Why there is no connection to the group. The text is for the operator, each line of it for the log.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("this node is out of service after an internal error: restart the server")]
    OutOfService,
    #[error("appliers of the former connection have not ended")]
    FormerAppliers,
    #[error("the write-set log is not open: restart the server")]
    NoLog,
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log refused to begin.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    NewId(#[from] NoChance),
    #[error(
        "an arbitrator has no data to begin a cluster with: give it the addresses of the servers, as in gcomm://host1,host2"
    )]
    NothingToBegin,
    #[error("{0}")]
    UnsafeToBootstrap(String),
    #[error(transparent)]
    NoBeginning(#[from] NoBeginning),
    #[error(transparent)]
    Bootstrap(#[from] asking::Refusal),
    #[error("{}: none of {} resolves; check wsrep_cluster_address and the name service", texts::NO_ADDRESS, .0.join(", "))]
    Unresolved(Vec<String>),
    /// `repl.require_auth`, and peers need to show nothing.
    #[error("{0}")]
    Exposed(String),
    #[error(transparent)]
    Network(#[from] TransportError),
    #[error("{}", texts::primary_not_reached(cluster, url).join("\n"))]
    NotReached { cluster: String, url: String },
    #[error("the server was told to stop before it was connected")]
    Stopped,
    #[error("the connection was closed before a primary view was reached")]
    Closed,
    /// This node cannot go on in this group: what the group thread said.
    #[error("{0}")]
    Failed(String),
}

/// Decides how to begin. Listens already on return.
pub fn prepare(host: &Host, log: &mut Log, wish: &Wish<'_>, saved: &mut Saved) -> Result<Plan, ConnectError> {
    let peers = match wish.target {
        Target::Alone => &[][..],
        Target::Peers(peers) => peers,
    };
    let alone = matches!(wish.target, Target::Alone);
    let bootstrap = alone || wish.bootstrap || peers.is_empty();
    saved.note_log(log.base().history);
    let arbitrator = host.args.arbitrator.is_some();
    if bootstrap && arbitrator {
        return Err(ConnectError::NothingToBegin);
    }
    if !bootstrap {
        some_address(peers)?;
    }
    if bootstrap && !alone && !saved.safe_to_bootstrap() {
        return Err(ConnectError::UnsafeToBootstrap(saved.unsafe_reason()));
    }
    let anew = bootstrap && saved.disowned();
    // A new history takes nothing from the others' one.
    let asks = bootstrap && !alone && !anew;
    let others = if asks { asking::known_voters(host, log, wish.cluster, peers)? } else { None };
    let settled = if anew || arbitrator { Settled::NOTHING } else { position::settle(host, log, saved, bootstrap)? };
    let position = settled.position;
    let half_done = position.is_none() && !anew && !arbitrator;
    let half_done = if half_done { position::of_half_done(host, log, saved) } else { Settled::NOTHING };
    let fallback = half_done.position;
    let engine = if fallback.is_some() { half_done.engine } else { settled.engine };
    if let Some(others) = others {
        others.compare(position.or(fallback))?;
    }
    if let (true, Engine::Left, Some((history, seqno))) = (bootstrap, engine, position) {
        host.log(
            Level::Warn,
            format!(
                "the storage engine could not be asked whether its data are at {history}:{seqno}, and this bootstrap begins there: if they are \
                 older, the commits in between are missing here"
            ),
        );
    }
    if bootstrap && engine == Engine::Runs {
        // The log begins anew where the data end, and can replay nothing of them.
        if !engine::await_flush(&*host.server) {
            host.log(
                Level::Warn,
                "the storage engine's log is not known to be on disk, and the write-set log begins anew behind these data: a loss of power \
                 before the engine has flushed its log loses the commits in it"
                    .into(),
            );
        }
    }
    let start = if bootstrap {
        let (history, position) = match position.or(fallback) {
            Some(known) => known,
            None if anew => fresh(host, log)?,
            None => {
                position::refuse_half_done(log, saved)?;
                fresh(host, log)?
            }
        };
        if alone { Start::Alone { history, position } } else { Start::Bootstrap { history, position } }
    } else {
        Start::Join {
            position: position::with_log(host, log, position),
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
    let expect = if blank { host.settings.with(|o| o.int("pc.bootstrap_expect")) as u8 } else { 0 };
    let peers = (!alone).then(|| peers.to_vec());
    let (transport, config) = listen(host, log, wish.cluster, peers.as_deref())?;
    let patience = host.settings.with(|o| {
        if !o.bool("pc.wait_prim") {
            Patience::None
        } else if known && o.bool("pc.recovery") || bootstrap || expect > 0 {
            Patience::Unlimited
        } else {
            Patience::Limited(o.period("pc.wait_prim_timeout"))
        }
    });
    if patience == Patience::Unlimited && !bootstrap && expect == 0 {
        host.log(Level::Info, format!("waiting for peers to form the group again: {}", names_of_voters(log)));
    }
    let config = Config { expect, ..config };
    let unwelcome_max = host.settings.with(|o| o.period("pc.wait_prim_timeout"));
    let script = wish.first && host.server.wants_script();
    let seed = u64::from_le_bytes(random()?);
    let cluster = wish.cluster.to_string();
    // A server that bootstraps resets its engine's position in the first view: it was asked before.
    let unconfirmed = !bootstrap && (engine != Engine::Runs && position.is_some() || fallback.is_some());
    Ok(Plan { cluster, peers, transport, unwelcome_max, config, start, engine, unconfirmed, script, patience, seed })
}

/// A new incarnation of this member, at its address.
fn listen(
    host: &Host,
    log: &mut Log,
    cluster: &str,
    peers: Option<&[String]>,
) -> Result<(Transport, Config), ConnectError> {
    let incarnation = log.begin_incarnation(by_the_clock())?;
    let me = member(host, log.node_id(), incarnation);
    let transport = open_transport(host, cluster, &me, peers)?;
    let me = Member { address: transport.me().address.clone(), ..me };
    Ok((transport, host.settings.order(me)))
}

/// How a server that runs, with its data at `position`, joins its group again. Listens already on return.
pub fn rejoin(
    host: &Host,
    log: &mut Log,
    cluster: &str,
    peers: Option<Vec<String>>,
    position: (Uuid, Seqno),
) -> Result<Plan, ConnectError> {
    let (transport, config) = listen(host, log, cluster, peers.as_deref())?;
    let unwelcome_max = host.settings.with(|o| o.period("pc.wait_prim_timeout"));
    let position = Some(position);
    let start = Start::Join { position: position::with_log(host, log, position), data: position, fallback: None };
    let (script, patience, seed) = (false, Patience::Unlimited, u64::from_le_bytes(random()?));
    // The engine has been running, and is in the middle of commits: what has left commit order is in it.
    let (engine, unconfirmed) = (Engine::Runs, false);
    let cluster = cluster.to_string();
    Ok(Plan { cluster, peers, transport, unwelcome_max, config, start, engine, unconfirmed, script, patience, seed })
}

fn fresh(host: &Host, log: &Log) -> Result<(Uuid, Seqno), NoChance> {
    let history = random_uuid()?;
    if log.last() > log.base().index {
        host.log(
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

/// `peers`: `None` for a node without network.
fn open_transport(
    host: &Host,
    cluster: &str,
    me: &Member,
    peers: Option<&[String]>,
) -> Result<Transport, ConnectError> {
    let mut net = NetConfig::new(me.clone(), cluster);
    let Some(peers) = peers else { return Ok(Transport::new(net)?) };
    host.protect(&mut net)?;
    let (listen, chosen) = host.settings.with(|o| {
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
    net.multicast = host.settings.with(|o| {
        let group = o.multicast()?;
        let ttl = u8::try_from(o.int("gmcast.mcast_ttl")).unwrap_or(u8::MAX);
        // On the network where the others are, as far as the options tell.
        let here = |ip: IpAddr| if let IpAddr::V4(v4) = ip { Some(v4) } else { None };
        let place = listen.host.parse().ok().and_then(here).filter(|ip| !ip.is_unspecified());
        let interface = place.or_else(|| own.and_then(here)).unwrap_or(Ipv4Addr::UNSPECIFIED);
        Some(MulticastConfig { group, ttl, interface })
    });
    let only = |ip: IpAddr| HostPort { host: ip.to_string(), ..listen.clone() };
    let (place, other) = match (chosen, loopback, own) {
        (true, ..) | (false, _, None) => (listen.clone(), None),
        // Nobody else is told of another address, so nobody else has a reason to connect.
        (false, _, Some(ip)) if ip.is_loopback() => (only(ip), None),
        (false, _, Some(ip)) => (listen.clone(), Some(only(ip))),
    };
    let mut listen_at = |place: HostPort| {
        net.listen = vec![place.to_string()];
        Transport::new(net.clone())
    };
    let transport = match listen_at(place) {
        Ok(transport) => transport,
        // The first failure is the one to tell: the other is an attempt around it.
        Err(first) => other.and_then(|place| listen_at(place).ok()).ok_or(first)?,
    };
    let refusal = exposure::refusal(transport.protection(), &transport.listens());
    match refusal.filter(|_| host.settings.with(|o| o.bool("repl.require_auth"))) {
        Some(refusal) => Err(ConnectError::Exposed(refusal)),
        None => Ok(transport),
    }
}

/// At least one peer has to have an address: a name that nobody knows is a mistake, and waiting would hide it.
fn some_address(peers: &[String]) -> Result<(), ConnectError> {
    if peers.iter().any(|peer| peer.to_socket_addrs().is_ok_and(|mut found| found.next().is_some())) {
        return Ok(());
    }
    Err(ConnectError::Unresolved(peers.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_with_an_address_is_enough() {
        assert!(some_address(&["host.invalid:4567".into(), "127.0.0.1:4567".into()]).is_ok());
        assert!(some_address(&["host.invalid:4567".into()]).unwrap_err().to_string().contains("host.invalid"));
    }
}
