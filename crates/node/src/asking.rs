//! Before a bootstrap: whoever has voted with this node is asked where it stands (rule 13).
//!
//! A bootstrap makes this node's log the cluster's, whatever others hold. A line `gcomm://` in a configuration file does so at every
//! start, and an operator may have picked the wrong node. So a node whose log names others connects to them as a member would, hears
//! their first word, and refuses when one of them is in a primary component, holds more of the log or has data beyond what is here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use trireme_order::{LogEnd, LogStore, Message, Presence, StoreError};
use trireme_transport::{NetConfig, NetEvent, Transport, TransportError};
use trireme_types::{EntryKind, Fork, Kinship, Lineage, LogIndex, Member, NodeId, Reader, Seqno, Uuid, View, VoterSet};

use crate::Level;
use crate::host::Host;
use crate::identity::{member, own_ip};
use crate::log::Log;
use crate::settings::SettingsError;

/// Why this node must not bootstrap, or cannot ask whether it may.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Log(#[from] StoreError),
    #[error("the write-set log ends before its last entry {0}")]
    LogEnds(LogIndex),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Network(#[from] TransportError),
    #[error(
        "a primary component of this cluster is running, {name} is in it: a second one would split it. Start this node with \
         wsrep_cluster_address=gcomm://{address} and without --wsrep-new-cluster"
    )]
    Primary { name: String, address: String },
    #[error(
        "{reason}. A member of this cluster runs, and refuses this node: a bootstrap could split the cluster. Start this node \
         with the addresses of the others in wsrep_cluster_address and without --wsrep-new-cluster, or stop the others first"
    )]
    Shunned { reason: String },
    #[error(
        "{name} holds more of this cluster's write-set log (up to entry {} of term {}; this node: entry {} of term {}): a bootstrap of \
         this node could lose commits. Bootstrap {name} instead, or start this node without --wsrep-new-cluster: the nodes form the \
         cluster again by themselves. To give up what only {name} holds, stop it first",
        theirs.index, theirs.term, own.index, own.term
    )]
    HoldsMore { name: String, theirs: LogEnd, own: LogEnd },
    #[error(
        "{name} has data up to seqno {theirs}, and this node has none, in its data or its write-set log, beyond seqno {own}: a bootstrap \
         of this node could lose commits. Bootstrap {name} if its data are to be gone on with. To give up what only {name} has, stop it first"
    )]
    HasData { name: String, theirs: Seqno, own: Seqno },
}

/// How long known peers have to answer. A few round trips and a connection; who is down does not answer at all.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The own log's knowledge of the cluster it belonged to.
struct Past {
    history: Uuid,
    lineage: Lineage,
    /// The newest set, committed or not.
    voters: VoterSet,
    members: BTreeMap<NodeId, Member>,
    last: LogEnd,
    seqno: Seqno,
}

impl Past {
    /// Reads the log from its newest checkpoint on.
    fn of(log: &Log) -> Result<Past, Refusal> {
        let base = log.checkpoint_before(Seqno(u64::MAX)).unwrap_or_else(|| log.base().clone());
        let mut past = Past {
            history: base.history,
            lineage: base.lineage.clone(),
            voters: base.voters.clone(),
            members: BTreeMap::new(),
            last: LogEnd::from(&base),
            seqno: base.seqno,
        };
        past.meet(&base.view);
        while past.last.index < log.last() {
            let entries = log.read(past.last.index.next(), 1 << 20)?;
            if entries.is_empty() {
                return Err(Refusal::LogEnds(log.last()));
            }
            for entry in entries {
                let header = entry.header;
                let mut r = Reader::new(&entry.payload);
                // An entry that does not decode stops the group thread, with a better message.
                match header.kind {
                    EntryKind::View => View::decode(&mut r).iter().for_each(|view| past.meet(view)),
                    EntryKind::Voters => {
                        let Ok(voters) = VoterSet::decode(&mut r) else { continue };
                        if !voters.fork.is_nil() {
                            let fork = Fork { index: header.index, seqno: header.seqno, id: voters.fork };
                            past.lineage = past.lineage.with(fork);
                        }
                        past.voters = voters;
                    }
                    EntryKind::Term | EntryKind::WriteSet | EntryKind::App | EntryKind::Setting => {}
                }
                past.last = LogEnd { term: header.term, index: header.index };
                past.seqno = header.seqno;
            }
        }
        Ok(past)
    }

    fn meet(&mut self, view: &View) {
        self.members.extend(view.members.iter().map(|m| (m.node, m.clone())));
    }

    /// For people; "none but this node" when there is nobody.
    fn names_of(&self, nodes: impl Iterator<Item = NodeId>) -> String {
        let names: Vec<String> = nodes.map(|n| self.members.get(&n).map_or_else(|| n.to_string(), label)).collect();
        if names.is_empty() { "none but this node".into() } else { names.join(", ") }
    }
}

fn label(m: &Member) -> String {
    format!("{} ({})", m.name, m.address)
}

/// The data of the node whose data reach furthest, of those that answered.
pub struct OthersData {
    name: String,
    history: Uuid,
    theirs: Seqno,
    /// Of the own log's last entry.
    log: Seqno,
}

impl OthersData {
    /// A bootstrap begins at the end of the own data, if the log does not reach it.
    pub fn compare(self, data: Option<(Uuid, Seqno)>) -> Result<(), Refusal> {
        let OthersData { name, history, theirs, log } = self;
        let data = data.filter(|data| data.0 == history).map_or(Seqno::ZERO, |data| data.1);
        let own = data.max(log);
        if theirs > own { Err(Refusal::HasData { name, theirs, own }) } else { Ok(()) }
    }
}

/// **Returns** the data that may speak against this bootstrap. The own data decide whether they do, and are not known yet.
pub fn known_voters(host: &Host, log: &Log, cluster: &str, peers: &[String]) -> Result<Option<OthersData>, Refusal> {
    let past = Past::of(log)?;
    let own = log.node_id();
    let doubtful = log.suspect().is_some() || log.hard_state().voters_committed > past.last.index;
    let mut open: BTreeSet<NodeId> = past.voters.voters.iter().map(|v| v.node).collect();
    // After a fork its maker votes alone, and the others are still there. A log that may lack its end does not say who votes by now.
    if past.lineage.newest().is_some() || doubtful {
        open.extend(past.members.keys());
    }
    open.remove(&own);
    // Some came in behind the end of the log, perhaps: it may be an old copy, and does not know. They are found by their addresses.
    let strangers = !past.history.is_nil() && !peers.is_empty();
    if open.is_empty() && !strangers {
        return Ok(None);
    }
    let known = past.names_of(open.iter().copied());
    let and = if strangers { ", and the addresses of wsrep_cluster_address" } else { "" };
    host.log(Level::Info, format!("bootstrap: asking the known members first: {known}{and}"));
    let me = member(host, own, log.incarnation());
    let mut net = NetConfig::new(me.clone(), cluster);
    net.bind_source = own_ip(&me).filter(|ip| ip.is_loopback());
    net.seeds = past.members.values().filter(|m| m.node != own).map(|m| m.address.clone()).collect();
    net.seeds.retain(|address| !address.is_empty());
    net.seeds.extend(peers.iter().cloned());
    host.protect(&mut net)?;
    let mut transport = Transport::new(net)?;
    let until = Instant::now() + PATIENCE;
    let mut names: BTreeMap<NodeId, Member> = past.members.clone();
    let mut better: Option<((usize, LogEnd), NodeId)> = None;
    let mut furthest: Option<(Seqno, NodeId)> = None;
    let mut primary = None;
    let mut shunned = None;
    let mut events = Vec::new();
    while primary.is_none() && shunned.is_none() && (strangers || !open.is_empty()) && Instant::now() < until {
        transport.poll(Some(until.saturating_duration_since(Instant::now())), &mut events);
        for event in events.drain(..) {
            match event {
                NetEvent::LinkUp { member, .. } => drop(names.insert(member.node, member)),
                NetEvent::Message { from, message: Message::Presence(theirs) } => {
                    open.remove(&from);
                    if theirs.primary {
                        primary = Some(from);
                    }
                    let log = more(&past, &theirs).filter(|log| better.is_none_or(|(best, _)| *log > best));
                    if let Some(log) = log {
                        better = Some((log, from));
                    }
                    furthest = furthest.max(data_of(&past, &theirs).map(|seqno| (seqno, from)));
                }
                NetEvent::Shunned { reason } => shunned = Some(reason),
                NetEvent::Message { .. }
                | NetEvent::LinkDown { .. }
                | NetEvent::RoundTrip { .. }
                | NetEvent::Log { .. }
                | NetEvent::Unwelcome { .. }
                | NetEvent::Twin { .. }
                | NetEvent::Admission { .. }
                | NetEvent::Certificates(_)
                | NetEvent::Broken { .. }
                | NetEvent::Refused { .. } => {}
            }
        }
    }
    transport.close();
    let name = |node: NodeId| names.get(&node).map_or_else(|| node.to_string(), label);
    if let Some(node) = primary {
        let address = names.get(&node).map_or("", |m| m.address.as_str());
        return Err(Refusal::Primary { name: name(node), address: address.to_owned() });
    }
    if let Some(reason) = shunned {
        return Err(Refusal::Shunned { reason });
    }
    if let Some(((_, theirs), node)) = better {
        return Err(Refusal::HoldsMore { name: name(node), theirs, own: past.last });
    }
    if !open.is_empty() {
        host.log(
            Level::Info,
            format!(
                "bootstrap without an answer from {}: what only they hold is lost, and they will take a full copy",
                past.names_of(open.into_iter())
            ),
        );
    }
    Ok(furthest.map(|(theirs, node)| OthersData { name: name(node), history: past.history, theirs, log: past.seqno }))
}

/// Its log, if that is of the same history and goes beyond the own one.
fn more(past: &Past, theirs: &Presence) -> Option<(usize, LogEnd)> {
    if theirs.history != past.history || past.history.is_nil() {
        return None;
    }
    match past.lineage.kinship(&theirs.lineage) {
        Kinship::Same if theirs.end() <= past.last => None,
        // Forced later, or longer.
        Kinship::Same | Kinship::Descendant(_) => Some((theirs.lineage.forks().len(), theirs.end())),
        Kinship::Ancestor | Kinship::Sibling => None,
    }
}

/// Its data, if they are of the same history: what it has was committed (rule 18). It may have lost its log.
fn data_of(past: &Past, theirs: &Presence) -> Option<Seqno> {
    let (history, seqno) = theirs.data?;
    // Commits of another branch were given up when the own one was forced.
    let of_branch = theirs.history.is_nil()
        || matches!(past.lineage.kinship(&theirs.lineage), Kinship::Same | Kinship::Descendant(_));
    (of_branch && !history.is_nil() && history == past.history).then_some(seqno)
}
