//! The group level: which formats and rules are in force, alike on all members (docs/protocol.md, section 10).
//!
//! It is a function of the log: a new history begins with the lowest level that its founder supports, and an entry raises it. The sequencer
//! writes that entry as soon as all voters and all members of the view are linked, support the higher level and do not hold it back
//! (`repl.proto_max`), and nobody has left the view a short while ago: a node that is being upgraded may come back as it was. The level
//! never falls. A node that does not support the level in force is not linked, writes no entry that raises it, and does not begin
//! with a log or a state of that level.
//!
//! The rules of a level count from its entry on, in the log as in messages. Messages above the level in force are sent to nobody.
//! Optional messages are the exception: a receiver ignores those that it does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use trireme_types::{
    EntryHeader, EntryKind, Level, Levels, Member, NodeId, Setting, Timestamp, View, Writer, printable,
};

use crate::group::Group;
use crate::mutant::Mutant;
use crate::{Failure, LogStore, Message, Phase};

/// The levels that this build supports.
pub const SUPPORTED: Levels = Levels { min: Level::FIRST, max: Level::WAITS_FOR_ALL };

/// How long a node that has left the view keeps the level from rising without it, unless [`crate::Timeouts`] says otherwise: time for
/// a restart, and for a second thought.
pub(crate) const ABSENCE: Duration = Duration::from_secs(600);

/// Nodes that were in the view a short while ago.
#[derive(Default)]
pub(crate) struct Leavers {
    /// Members of the last delivered view.
    inside: BTreeSet<NodeId>,
    /// Those that are out since a view that was delivered then, with their names. Kept until they are in again.
    left: BTreeMap<NodeId, (String, Timestamp)>,
    /// The names of those inside.
    names: BTreeMap<NodeId, String>,
}

impl Leavers {
    /// Delivery begins with this view.
    pub fn begin(&mut self, view: &View) {
        self.inside = view.members.iter().map(|m| m.node).collect();
        self.names = view.members.iter().map(|m| (m.node, m.name.clone())).collect();
    }

    pub fn on_view(&mut self, now: Timestamp, view: &View) {
        for node in self.inside.iter().filter(|n| view.get(**n).is_none()) {
            let name = self.names.get(node).cloned().unwrap_or_default();
            self.left.insert(*node, (name, now));
        }
        self.left.retain(|node, _| view.get(*node).is_none());
        self.begin(view);
    }

    fn since(&self, now: Timestamp, patience: Duration) -> impl Iterator<Item = &str> {
        self.left.values().filter(move |(_, at)| now.since(*at) <= patience).map(|(name, _)| name.as_str())
    }
}

/// Payload of a `Term` entry from [`Level::NAMED_TERMS`] on.
pub(crate) fn encode_term(member: &Member) -> Bytes {
    let mut w = Writer::new();
    w.uuid(member.node.0);
    w.str(&member.name);
    Bytes::from(w.buf)
}

impl<S: LogStore> Group<S> {
    /// In force where delivery stands.
    pub fn level(&self) -> Level {
        self.done.level
    }

    /// May this log be read and gone on with here? If not, the group fails and says why.
    pub(crate) fn check_level_of_log(&mut self) {
        let (level, levels) = (self.own.tail().level, self.cfg.levels);
        if !levels.contains(level) && self.phase() != Phase::Failed {
            self.fail(Failure::LevelUnsupported { level, supported: levels });
        }
    }

    /// The highest level that this member lets the group rise to.
    fn own_limit(&self) -> Level {
        self.cfg.levels.max.min(self.cfg.level_hold.max(self.cfg.levels.min))
    }

    /// Is a build at the other end of the link that supports `level`?
    pub(crate) fn peer_supports(&self, node: NodeId, level: Level) -> bool {
        self.peers.get(&node).is_some_and(|p| p.levels.max >= level)
    }

    /// Up to which level this peer would go. `None`: it has not said.
    fn limit_of(&self, node: NodeId) -> Option<Level> {
        if node == self.me() {
            return Some(self.own_limit());
        }
        let peer = self.peers.get(&node)?;
        // One that knows no higher level has nothing to say about it.
        if peer.levels.max <= self.done.level { Some(peer.levels.max) } else { peer.level_limit }
    }

    /// Why the level does not rise to the highest that this build supports, as far as this member sees: a line for each node. Empty: it is
    /// there, or will be.
    pub fn level_waits_for(&self, now: Timestamp) -> Vec<String> {
        let wanted = self.cfg.levels.max;
        if self.own.tail().level >= wanted {
            return Vec::new();
        }
        let name = |node: NodeId| self.names_of(&[node]);
        let mut why: Vec<String> = Vec::new();
        for node in self.concerned_by_level() {
            match self.limit_of(node) {
                Some(limit) if limit >= wanted => {}
                Some(limit) if node == self.me() || self.peers.get(&node).is_some_and(|p| p.levels.max > limit) => {
                    why.push(format!("{} is held at level {limit} by repl.proto_max", name(node)));
                }
                Some(limit) => why.push(format!("{} supports level {limit} at most", name(node))),
                None => why.push(format!("{} is not linked", name(node))),
            }
        }
        why.extend(
            self.leavers
                .since(now, self.cfg.timeouts.level_absence)
                .map(|name| format!("{name} has left a short while ago")),
        );
        why
    }

    /// Those without whom the level does not rise.
    fn concerned_by_level(&self) -> BTreeSet<NodeId> {
        let voters = self.deciding().flat_map(|set| &set.voters).map(|v| v.node);
        let members = self.own.tail().view.members.iter().chain(&self.done.view.members).map(|m| m.node);
        voters.chain(members).collect()
    }

    /// Sequencer: the level rises as far as all go along. Called when nothing else is under way.
    pub(crate) fn step_level(&mut self, now: Timestamp) {
        if !self.leads() || self.phase() != Phase::Primary || !self.majority_heard(now) {
            return;
        }
        let settled = self.own.tail().level == self.done.level
            && self.own.tail().voters_at <= self.done.index
            && self.own.tail().view.number == self.done.view.number;
        let limits: Option<Vec<Level>> = self.concerned_by_level().into_iter().map(|n| self.limit_of(n)).collect();
        let lowest = limits.and_then(|limits| limits.into_iter().min());
        let lowest = if self.is(Mutant::LevelAlone) { Some(self.own_limit()) } else { lowest };
        let absent = self.leavers.since(now, self.cfg.timeouts.level_absence).next().is_some();
        let Some(level) = lowest.filter(|level| settled && *level > self.own.tail().level) else { return };
        if absent && !self.is(Mutant::LevelAlone) {
            return;
        }
        let mut w = Writer::new();
        Setting::Level(level).encode(&mut w);
        self.append_own(EntryKind::Setting, None, Bytes::from(w.buf));
    }

    /// The entry that raises it is committed.
    pub(crate) fn on_level_delivered(&mut self, now: Timestamp, level: Level) {
        // A version that does not know the level finds it below what is known to be committed, which no version ever cuts off.
        self.save_committed();
        self.log(false, format!("the group level is {level} from here on, on all members; it is never lowered"));
        let below: Vec<NodeId> =
            self.peers.iter().filter(|(_, p)| !p.levels.contains(level)).map(|(node, _)| *node).collect();
        for node in below {
            self.refuse_level(node);
            self.on_unlinked(now, node);
        }
    }

    fn refuse_level(&mut self, node: NodeId) {
        let levels = self.peers.get(&node).map_or(Levels::UNSAID, |p| p.levels);
        let name = self.names_of(&[node]);
        self.log_refused(&name, levels);
    }

    fn log_refused(&mut self, name: &str, levels: Levels) {
        let level = self.done.level;
        self.log(
            true,
            format!(
                "{name} is refused: it supports group level {levels}, and this group is at level {level}, which is never lowered. Install a \
                 version of Trireme there that supports level {level}"
            ),
        );
    }

    /// May a link with this peer count? A line names it if not.
    pub(crate) fn fits_level(&mut self, peer: &Member, levels: Levels) -> bool {
        if levels.contains(self.done.level) {
            return true;
        }
        let name = format!("{} ({})", printable(&peer.name), printable(&peer.address));
        self.log_refused(&name, levels);
        false
    }

    /// Does this entry, or state, put a level in force that this build does not support? It is not taken; a line names who sent it.
    pub(crate) fn is_beyond_level(&mut self, now: Timestamp, from: NodeId, level: Level) -> bool {
        let levels = self.cfg.levels;
        if levels.contains(level) {
            return false;
        }
        let what = format!(
            "belongs to a group at level {level}, and this version of Trireme supports {levels}: it is not followed. Install a version here \
             that supports level {level}"
        );
        self.complain(now, from, &what);
        true
    }

    /// The level that an entry puts in force, if it does that.
    pub(crate) fn level_of_entry(header: &EntryHeader, payload: &Bytes) -> Option<Level> {
        match (header.kind, Setting::decode(payload)) {
            (EntryKind::Setting, Ok(Setting::Level(level))) => Some(level),
            (EntryKind::Setting, Ok(Setting::Durability(_)) | Err(_)) => None,
            (EntryKind::Term | EntryKind::WriteSet | EntryKind::View | EntryKind::Voters | EntryKind::App, _) => None,
        }
    }

    // --- what peers hear of it ------------------------------------------------------------------------------------

    /// To those that know of levels at all.
    pub(crate) fn send_level_limit(&mut self) {
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        self.told.level_limit = Some(self.own_limit());
        for node in nodes {
            self.send_level_limit_to(node);
        }
    }

    pub(crate) fn send_level_limit_to(&mut self, node: NodeId) {
        if self.peer_supports(node, Level::NAMED_TERMS) {
            let limit = self.own_limit();
            self.send(node, Message::LevelLimit { limit });
        }
    }

    /// Has `repl.proto_max` changed since peers were told?
    pub(crate) fn owes_level_limit(&self) -> bool {
        self.told.level_limit != Some(self.own_limit())
    }

    pub(crate) fn on_level_limit(&mut self, from: NodeId, limit: Level) {
        if let Some(peer) = self.peers.get_mut(&from) {
            // A limit above what it supports says nothing.
            peer.level_limit = Some(limit.min(peer.levels.max));
        }
    }
}
