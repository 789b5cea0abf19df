//! Member states as a pure function of the ordered history: who is joiner, donor, joined, synced; which donor serves
//! whom; the commit cut; inconsistency votes. Every member computes the same.

use std::collections::BTreeMap;

use trireme_surface::texts;
use trireme_types::{DecodeError, NodeId, Reader, Seqno, Uuid, View, Writer};

/// Node states as `wsrep_local_state` and the log lines name them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeState {
    /// In a primary view, without the state.
    Primary,
    Joiner,
    Donor,
    Joined,
    Synced,
}

impl NodeState {
    pub fn name(self) -> &'static str {
        match self {
            NodeState::Primary => "PRIMARY",
            NodeState::Joiner => "JOINER",
            NodeState::Donor => "DONOR/DESYNCED",
            NodeState::Joined => "JOINED",
            NodeState::Synced => "SYNCED",
        }
    }

    fn from_u8(b: u8) -> Option<NodeState> {
        [NodeState::Primary, NodeState::Joiner, NodeState::Donor, NodeState::Joined, NodeState::Synced]
            .into_iter()
            .find(|s| *s as u8 == b)
    }
}

/// A member's ordered message that takes no seqno.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppMessage {
    /// The sender has the state up to its own position and catches up.
    Joined,
    /// The sender has caught up.
    Synced,
    Desync,
    Resync,
    /// The sender needs a full copy. `donors`: `wsrep_sst_donor`; `request`: the server's opaque bytes.
    StateRequest {
        donors: String,
        request: Vec<u8>,
    },
    /// The sender, a donor, is done with `joiner`.
    DonorDone {
        joiner: NodeId,
        ok: bool,
    },
    /// The sender has committed everything up to here.
    LastCommitted {
        seqno: Seqno,
    },
    /// Result of applying `seqno` at the sender: zero is success, else a hash of the error.
    Vote {
        seqno: Seqno,
        code: u64,
        text: String,
    },
}

impl AppMessage {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            AppMessage::Joined => w.u8(1),
            AppMessage::Synced => w.u8(2),
            AppMessage::Desync => w.u8(3),
            AppMessage::Resync => w.u8(4),
            AppMessage::StateRequest { donors, request } => {
                w.u8(5);
                w.str(donors);
                w.bytes(request);
            }
            AppMessage::DonorDone { joiner, ok } => {
                w.u8(6);
                w.uuid(joiner.0);
                w.bool(*ok);
            }
            AppMessage::LastCommitted { seqno } => {
                w.u8(7);
                w.u64(seqno.0);
            }
            AppMessage::Vote { seqno, code, text } => {
                w.u8(8);
                w.u64(seqno.0);
                w.u64(*code);
                w.str(text);
            }
        }
        w.buf
    }

    pub fn decode(bytes: &[u8]) -> Result<AppMessage, DecodeError> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            1 => AppMessage::Joined,
            2 => AppMessage::Synced,
            3 => AppMessage::Desync,
            4 => AppMessage::Resync,
            5 => AppMessage::StateRequest { donors: r.str(1 << 16)?, request: r.bytes(1 << 24)?.to_vec() },
            6 => AppMessage::DonorDone { joiner: NodeId(r.uuid()?), ok: r.bool()? },
            7 => AppMessage::LastCommitted { seqno: Seqno(r.u64()?) },
            8 => AppMessage::Vote { seqno: Seqno(r.u64()?), code: r.u64()?, text: r.str(1 << 16)? },
            _ => return Err(DecodeError::Invalid("member message")),
        };
        r.finish()?;
        Ok(message)
    }
}

/// What a step means for this member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A log line.
    Note(String),
    Warn(String),
    /// A member's state changed.
    Shift {
        node: NodeId,
        from: NodeState,
        to: NodeState,
    },
    DonorChosen {
        joiner: NodeId,
        donor: NodeId,
        request: Vec<u8>,
    },
    /// No donor now (`retry`) or ever.
    NoDonor {
        joiner: NodeId,
        retry: bool,
        reason: String,
    },
    TransferDone {
        joiner: NodeId,
        donor: NodeId,
        ok: bool,
    },
    /// Everything up to here is committed on every counted member.
    Cut(Seqno),
    /// Somebody voted on `seqno` first: the others answer.
    VoteBegun {
        seqno: Seqno,
    },
    /// The vote is decided: members whose code is another one are inconsistent.
    VoteDone {
        seqno: Seqno,
        winner: u64,
        losers: Vec<NodeId>,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct MemberState {
    node: NodeId,
    incarnation: u32,
    state: NodeState,
    desyncs: u32,
    last_committed: u64,
    /// As a donor: whom it serves.
    serves: Option<NodeId>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Vote {
    codes: BTreeMap<NodeId, u64>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roster {
    view: View,
    members: Vec<MemberState>,
    cut: u64,
    votes: BTreeMap<u64, Vote>,
    /// Decided votes, newest last, bounded: a laggard takes the historic result (SAFETY 28).
    decided: Vec<(u64, u64)>,
}

/// How many decided votes are remembered.
const DECIDED_MAX: usize = 256;

impl Roster {
    pub fn view(&self) -> &View {
        &self.view
    }

    #[cfg(test)]
    pub fn cut(&self) -> Seqno {
        Seqno(self.cut)
    }

    pub fn state(&self, node: NodeId) -> Option<NodeState> {
        self.find(node).map(|m| m.state)
    }

    pub fn desyncs(&self, node: NodeId) -> u32 {
        self.find(node).map_or(0, |m| m.desyncs)
    }

    /// Votes that wait for answers.
    pub fn open_votes(&self) -> Vec<Seqno> {
        self.votes.keys().map(|s| Seqno(*s)).collect()
    }

    pub fn decided(&self, seqno: Seqno) -> Option<u64> {
        self.decided.iter().find(|(s, _)| *s == seqno.0).map(|(_, code)| *code)
    }

    fn find(&self, node: NodeId) -> Option<&MemberState> {
        self.members.iter().find(|m| m.node == node)
    }

    fn find_mut(&mut self, node: NodeId) -> Option<&mut MemberState> {
        self.members.iter_mut().find(|m| m.node == node)
    }

    /// `index.segment (name)`, the way member log lines name a node.
    pub fn label(&self, node: NodeId) -> String {
        match self.view.members.iter().enumerate().find(|(_, m)| m.node == node) {
            Some((at, m)) => format!("{at}.{} ({})", m.segment, m.name),
            None => format!("-1.-1 ({node})"),
        }
    }

    /// A new view. Members that stay keep their state; newcomers start without it.
    pub fn apply_view(&mut self, view: &View, seqno: Seqno) -> Vec<Effect> {
        let mut effects = Vec::new();
        let old = std::mem::take(&mut self.members);
        self.members = view
            .members
            .iter()
            .map(|m| {
                old.iter().find(|o| o.node == m.node && o.incarnation == m.incarnation.0).cloned().unwrap_or(
                    MemberState {
                        node: m.node,
                        incarnation: m.incarnation.0,
                        state: NodeState::Primary,
                        desyncs: 0,
                        last_committed: 0,
                        serves: None,
                    },
                )
            })
            .collect();
        self.view = view.clone();
        // A donor whose joiner is gone is free again; a joiner whose donor is gone has to ask again.
        let present: Vec<NodeId> = self.members.iter().map(|m| m.node).collect();
        for o in &old {
            if let Some(joiner) = o.serves {
                if !present.contains(&o.node) && present.contains(&joiner) {
                    effects.push(Effect::TransferDone { joiner, donor: o.node, ok: false });
                }
            }
        }
        let _ = seqno;
        for seqno in self.votes.keys().copied().collect::<Vec<_>>() {
            self.count_vote(seqno, &mut effects);
        }
        effects
    }

    pub fn apply(&mut self, from: NodeId, message: AppMessage, at: Seqno) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.find(from).is_none() {
            return effects;
        }
        match message {
            // A repeated one must not take back what came after it.
            AppMessage::Joined => {
                if matches!(self.state(from), Some(NodeState::Primary | NodeState::Joiner)) {
                    self.shift(from, NodeState::Joined, &mut effects);
                }
            }
            AppMessage::Synced => {
                let m = self.find_mut(from).expect("checked above");
                if m.desyncs == 0 && m.serves.is_none() {
                    let was = m.state;
                    self.shift(from, NodeState::Synced, &mut effects);
                    if was != NodeState::Synced {
                        effects.push(Effect::Note(texts::synced_with_group(self.label(from))));
                    }
                }
            }
            AppMessage::Desync => {
                self.find_mut(from).expect("checked above").desyncs += 1;
                effects.push(Effect::Note(texts::desyncs_itself(self.label(from))));
                self.shift(from, NodeState::Donor, &mut effects);
            }
            AppMessage::Resync => {
                let m = self.find_mut(from).expect("checked above");
                m.desyncs = m.desyncs.saturating_sub(1);
                let free = m.desyncs == 0 && m.serves.is_none();
                effects.push(Effect::Note(texts::resyncs_itself(self.label(from))));
                if free {
                    self.shift(from, NodeState::Joined, &mut effects);
                }
            }
            AppMessage::StateRequest { donors, request } => self.choose_donor(from, &donors, request, &mut effects),
            AppMessage::DonorDone { joiner, ok } => {
                let m = self.find_mut(from).expect("checked above");
                if m.serves == Some(joiner) {
                    m.serves = None;
                    m.desyncs = m.desyncs.saturating_sub(1);
                    if m.desyncs == 0 {
                        self.shift(from, NodeState::Joined, &mut effects);
                    }
                    let outcome = if ok { "complete" } else { "failed" };
                    effects.push(Effect::Note(format!(
                        "{}: State transfer to {} {outcome}.",
                        self.label(from),
                        self.label(joiner)
                    )));
                    effects.push(Effect::TransferDone { joiner, donor: from, ok });
                }
            }
            AppMessage::LastCommitted { seqno } => {
                let m = self.find_mut(from).expect("checked above");
                m.last_committed = m.last_committed.max(seqno.0.min(at.0));
                self.move_cut(&mut effects);
            }
            AppMessage::Vote { seqno, code, text } => self.vote(from, seqno, code, &text, at, &mut effects),
        }
        effects
    }

    fn shift(&mut self, node: NodeId, to: NodeState, effects: &mut Vec<Effect>) {
        let Some(m) = self.find_mut(node) else { return };
        if m.state != to {
            let from = std::mem::replace(&mut m.state, to);
            effects.push(Effect::Shift { node, from, to });
        }
    }

    /// Counted in the commit cut and in votes.
    fn counted(&self, m: &MemberState) -> bool {
        matches!(m.state, NodeState::Synced | NodeState::Donor | NodeState::Joined)
            && self.view.get(m.node).is_some_and(|v| !v.stateless)
    }

    fn move_cut(&mut self, effects: &mut Vec<Effect>) {
        let Some(low) = self.members.iter().filter(|m| self.counted(m)).map(|m| m.last_committed).min() else { return };
        if low > self.cut {
            self.cut = low;
            effects.push(Effect::Cut(Seqno(low)));
        }
    }

    /// Donor choice (Galera's rules D1-D8): named donors in order, by prefix; a trailing comma means "or any"; own
    /// segment first.
    fn choose_donor(&mut self, joiner: NodeId, list: &str, request: Vec<u8>, effects: &mut Vec<Effect>) {
        self.shift(joiner, NodeState::Joiner, effects);
        let segment = self.view.get(joiner).map_or(0, |m| m.segment);
        let able = |r: &Roster, node: NodeId| r.view.get(node).is_some_and(|m| !m.stateless) && node != joiner;
        let any = list.is_empty() || list.ends_with(',');
        let mut candidates: Vec<NodeId> = Vec::new();
        for name in list.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            candidates.extend(self.view.members.iter().filter(|m| m.name.starts_with(name)).map(|m| m.node));
        }
        if any {
            let near = self.view.members.iter().filter(|m| m.segment == segment);
            let far = self.view.members.iter().filter(|m| m.segment != segment);
            candidates.extend(near.chain(far).map(|m| m.node));
        }
        candidates.retain(|n| able(self, *n));
        let ready = candidates.iter().copied().find(|n| self.state(*n) == Some(NodeState::Synced));
        match ready {
            Some(donor) => {
                effects.push(Effect::Note(texts::state_transfer_selected(
                    self.label(joiner),
                    list,
                    self.label(donor),
                    NodeState::Synced.name(),
                )));
                let m = self.find_mut(donor).expect("candidates are members");
                m.serves = Some(joiner);
                m.desyncs += 1;
                self.shift(donor, NodeState::Donor, effects);
                effects.push(Effect::DonorChosen { joiner, donor, request });
            }
            None => {
                let retry = !candidates.is_empty();
                let reason = if retry { texts::RETRY_LATER } else { texts::HOST_UNREACHABLE };
                effects.push(Effect::Warn(texts::state_transfer_impossible(self.label(joiner), list, reason)));
                effects.push(Effect::NoDonor { joiner, retry, reason: reason.into() });
            }
        }
    }

    fn vote(&mut self, from: NodeId, seqno: Seqno, code: u64, text: &str, at: Seqno, effects: &mut Vec<Effect>) {
        if seqno > at || self.decided(seqno).is_some() {
            return;
        }
        let first = !self.votes.contains_key(&seqno.0);
        let name = self.view.get(from).map_or("?", |m| m.name.as_str()).to_string();
        let place = self.view.position(from).map_or(-1, |p| p as i64);
        let verb = if first { "initiates vote" } else { "responds to vote" };
        effects.push(Effect::Note(format!("Member {place}({name}) {verb} on {seqno},{code:016x}:  {text}")));
        self.votes.entry(seqno.0).or_default().codes.insert(from, code);
        if first {
            effects.push(Effect::VoteBegun { seqno });
        }
        self.count_vote(seqno.0, effects);
    }

    /// Decided as soon as outstanding votes cannot change it: most votes win, success wins ties.
    fn count_vote(&mut self, seqno: u64, effects: &mut Vec<Effect>) {
        let Some(vote) = self.votes.get(&seqno) else { return };
        let voters: Vec<NodeId> = self
            .members
            .iter()
            .filter(|m| self.counted(m) || vote.codes.contains_key(&m.node))
            .map(|m| m.node)
            .collect();
        let mut tally: BTreeMap<u64, usize> = BTreeMap::new();
        for node in &voters {
            if let Some(code) = vote.codes.get(node) {
                *tally.entry(*code).or_default() += 1;
            }
        }
        let outstanding = voters.iter().filter(|n| !vote.codes.contains_key(n)).count();
        // Highest count; among equals the lowest code, and success is zero.
        let Some((winner, most)) = tally.iter().map(|(c, n)| (*c, *n)).max_by_key(|(c, n)| (*n, u64::MAX - *c)) else {
            return;
        };
        let rival = tally.iter().filter(|(c, _)| **c != winner).map(|(_, n)| *n).max().unwrap_or(0);
        let success = tally.get(&0).copied().unwrap_or(0);
        let safe = if winner == 0 {
            most >= rival + outstanding
        } else {
            most > rival + outstanding && most > success + outstanding
        };
        if !safe && outstanding > 0 {
            return;
        }
        let losers: Vec<NodeId> =
            voters.iter().copied().filter(|n| vote.codes.get(n).is_some_and(|c| *c != winner)).collect();
        let mut lines = format!("Votes over {seqno}:");
        for (code, n) in &tally {
            lines.push_str(&format!("\n   {code:016x}: {n}/{}", voters.len()));
        }
        lines.push_str(&format!("\nWinner: {winner:016x}"));
        effects.push(Effect::Note(lines));
        self.votes.remove(&seqno);
        self.decided.push((seqno, winner));
        if self.decided.len() > DECIDED_MAX {
            self.decided.remove(0);
        }
        effects.push(Effect::VoteDone { seqno: Seqno(seqno), winner, losers });
    }

    pub fn encode(&self, w: &mut Writer) {
        self.view.encode(w);
        w.u32(self.members.len() as u32);
        for m in &self.members {
            w.uuid(m.node.0);
            w.u32(m.incarnation);
            w.u8(m.state as u8);
            w.u32(m.desyncs);
            w.u64(m.last_committed);
            w.uuid(m.serves.map_or(Uuid::NIL, |n| n.0));
        }
        w.u64(self.cut);
        w.u32(self.votes.len() as u32);
        for (seqno, vote) in &self.votes {
            w.u64(*seqno);
            w.u32(vote.codes.len() as u32);
            for (node, code) in &vote.codes {
                w.uuid(node.0);
                w.u64(*code);
            }
        }
        w.u32(self.decided.len() as u32);
        for (seqno, code) in &self.decided {
            w.u64(*seqno);
            w.u64(*code);
        }
    }

    pub fn decode(r: &mut Reader<'_>) -> Result<Roster, DecodeError> {
        let view = View::decode(r)?;
        let count = r.count(1024)?;
        let members = (0..count)
            .map(|_| {
                Ok(MemberState {
                    node: NodeId(r.uuid()?),
                    incarnation: r.u32()?,
                    state: NodeState::from_u8(r.u8()?).ok_or(DecodeError::Invalid("node state"))?,
                    desyncs: r.u32()?,
                    last_committed: r.u64()?,
                    serves: Some(r.uuid()?).filter(|u| !u.is_nil()).map(NodeId),
                })
            })
            .collect::<Result<_, DecodeError>>()?;
        let cut = r.u64()?;
        let votes = (0..r.count(1 << 16)?)
            .map(|_| {
                let seqno = r.u64()?;
                let codes = (0..r.count(1024)?)
                    .map(|_| Ok((NodeId(r.uuid()?), r.u64()?)))
                    .collect::<Result<_, DecodeError>>()?;
                Ok((seqno, Vote { codes }))
            })
            .collect::<Result<_, DecodeError>>()?;
        let decided =
            (0..r.count(DECIDED_MAX)?).map(|_| Ok((r.u64()?, r.u64()?))).collect::<Result<_, DecodeError>>()?;
        Ok(Roster { view, members, cut, votes, decided })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trireme_types::{Incarnation, Member};

    fn node(n: u8) -> NodeId {
        NodeId(Uuid([n; 16]))
    }

    fn roster(names: &[&str]) -> Roster {
        let members = names
            .iter()
            .enumerate()
            .map(|(i, name)| Member {
                node: node(i as u8 + 1),
                incarnation: Incarnation(1),
                name: name.to_string(),
                ..Default::default()
            })
            .collect();
        let mut r = Roster::default();
        r.apply_view(&View { number: 1, members }, Seqno(1));
        r
    }

    fn sync(r: &mut Roster, nodes: &[u8]) {
        for n in nodes {
            r.apply(node(*n), AppMessage::Joined, Seqno(1));
            r.apply(node(*n), AppMessage::Synced, Seqno(1));
        }
    }

    fn donor(effects: &[Effect]) -> Option<NodeId> {
        effects.iter().find_map(|e| match e {
            Effect::DonorChosen { donor, .. } => Some(*donor),
            _ => None,
        })
    }

    fn request(r: &mut Roster, from: u8, donors: &str) -> Vec<Effect> {
        r.apply(node(from), AppMessage::StateRequest { donors: donors.into(), request: b"x".to_vec() }, Seqno(1))
    }

    #[test]
    fn named_donor_wins_and_a_trailing_comma_allows_any() {
        let mut r = roster(&["n1", "n2", "n3"]);
        sync(&mut r, &[1, 2]);
        assert_eq!(donor(&request(&mut r, 3, "n2")), Some(node(2)));
        let effects = request(&mut r, 3, "n2");
        assert!(effects.iter().any(|e| matches!(e, Effect::NoDonor { retry: true, .. })), "n2 is busy");
        assert_eq!(donor(&request(&mut r, 3, "n2,")), Some(node(1)));
        assert!(request(&mut r, 3, "nobody").iter().any(|e| matches!(e, Effect::NoDonor { retry: false, .. })));
    }

    #[test]
    fn donor_returns_to_joined_and_then_synced() {
        let mut r = roster(&["n1", "n2"]);
        sync(&mut r, &[1]);
        request(&mut r, 2, "");
        assert_eq!(r.state(node(1)), Some(NodeState::Donor));
        r.apply(node(1), AppMessage::Synced, Seqno(1));
        assert_eq!(r.state(node(1)), Some(NodeState::Donor), "not while donating");
        r.apply(node(1), AppMessage::DonorDone { joiner: node(2), ok: true }, Seqno(1));
        assert_eq!(r.state(node(1)), Some(NodeState::Joined));
        r.apply(node(1), AppMessage::Synced, Seqno(1));
        assert_eq!(r.state(node(1)), Some(NodeState::Synced));
    }

    #[test]
    fn cut_is_the_lowest_report_of_counted_members_and_never_falls() {
        let mut r = roster(&["n1", "n2"]);
        sync(&mut r, &[1, 2]);
        r.apply(node(1), AppMessage::LastCommitted { seqno: Seqno(10) }, Seqno(20));
        assert_eq!(r.cut(), Seqno(0));
        r.apply(node(2), AppMessage::LastCommitted { seqno: Seqno(7) }, Seqno(20));
        assert_eq!(r.cut(), Seqno(7));
        r.apply(node(2), AppMessage::LastCommitted { seqno: Seqno(5) }, Seqno(20));
        assert_eq!(r.cut(), Seqno(7));
    }

    fn outcome(effects: &[Effect]) -> Option<(u64, Vec<NodeId>)> {
        effects.iter().find_map(|e| match e {
            Effect::VoteDone { winner, losers, .. } => Some((*winner, losers.clone())),
            _ => None,
        })
    }

    fn cast(r: &mut Roster, from: u8, code: u64) -> Vec<Effect> {
        r.apply(node(from), AppMessage::Vote { seqno: Seqno(5), code, text: String::new() }, Seqno(9))
    }

    #[test]
    fn majority_wins_a_vote_and_success_wins_ties() {
        let mut r = roster(&["n1", "n2", "n3"]);
        sync(&mut r, &[1, 2, 3]);
        assert_eq!(outcome(&cast(&mut r, 1, 77)), None);
        assert_eq!(outcome(&cast(&mut r, 2, 77)), Some((77, vec![])));
        assert_eq!(r.decided(Seqno(5)), Some(77));
        let mut two = roster(&["n1", "n2"]);
        sync(&mut two, &[1, 2]);
        assert_eq!(outcome(&cast(&mut two, 1, 77)), None);
        assert_eq!(outcome(&cast(&mut two, 2, 0)), Some((0, vec![node(1)])));
    }

    #[test]
    fn a_view_change_recounts_open_votes() {
        let mut r = roster(&["n1", "n2"]);
        sync(&mut r, &[1, 2]);
        cast(&mut r, 1, 77);
        let mut alone = r.view().clone();
        alone.members.truncate(1);
        assert_eq!(outcome(&r.apply_view(&alone, Seqno(6))), Some((77, vec![])));
    }

    #[test]
    fn state_survives_encoding() {
        let mut r = roster(&["n1", "n2", "n3"]);
        sync(&mut r, &[1, 2]);
        request(&mut r, 3, "n2");
        cast(&mut r, 1, 77);
        let mut w = Writer::new();
        r.encode(&mut w);
        assert_eq!(Roster::decode(&mut Reader::new(&w.buf)).unwrap(), r);
    }
}
