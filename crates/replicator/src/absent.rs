//! The members that are away, and what each of them lacks: the log keeps it, as long as there is room.

use std::collections::{BTreeMap, BTreeSet};

use trireme_types::{LogIndex, NodeId, View, VoterSet};

/// Members that were here and are not, be it that they left, died or are cut off. Remembered until they are back, or until this process
/// ends.
#[derive(Default)]
pub struct Absent {
    /// Those that were here when this was last looked at.
    here: BTreeSet<NodeId>,
    /// Up to where each of them has everything. `None`: the log has been trimmed beyond it.
    away: BTreeMap<NodeId, Option<LogIndex>>,
}

/// Those for whom something may have to be kept: who is in the view and has data, and who votes and is not in it, because it died before
/// this node, `me`, came.
pub fn others<'a>(view: &'a View, voters: &'a VoterSet, me: NodeId) -> impl Iterator<Item = NodeId> + 'a {
    let members = view.members.iter().filter(|m| !m.kind.is_arbitrator()).map(|m| m.node);
    let dead = voters.voters.iter().map(|v| v.node).filter(|n| view.get(*n).is_none());
    members.chain(dead).filter(move |n| *n != me)
}

impl Absent {
    /// [`others`], and whether each is linked; and up to where a member's log is known to go.
    pub fn look(&mut self, members: impl Iterator<Item = (NodeId, bool)>, held: impl Fn(NodeId) -> LogIndex) {
        let mut missed = std::mem::take(&mut self.here);
        for (node, linked) in members {
            if linked {
                missed.remove(&node);
                self.away.remove(&node);
                self.here.insert(node);
            } else {
                missed.insert(node);
            }
        }
        for node in missed {
            self.away.entry(node).or_insert_with(|| Some(held(node)));
        }
    }

    /// All have everything up to here. `None`: nobody for whom something is kept is away.
    pub fn hold(&self) -> Option<LogIndex> {
        self.away.values().filter_map(|held| *held).min()
    }

    /// The log begins after `base` now. Those who lack more.
    pub fn trimmed(&mut self, base: LogIndex) -> Vec<NodeId> {
        let lost = |(node, held): (&NodeId, &mut Option<LogIndex>)| held.take_if(|held| *held < base).map(|_| *node);
        self.away.iter_mut().filter_map(lost).collect()
    }

    /// There is no room for what they lack. Those for whom something was kept.
    pub fn give_up(&mut self) -> Vec<NodeId> {
        self.away.iter_mut().filter_map(|(node, held)| held.take().map(|_| *node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use trireme_types::Uuid;

    use super::*;

    fn node(n: u8) -> NodeId {
        NodeId(Uuid([n; 16]))
    }

    fn look(absent: &mut Absent, members: &[(u8, bool)], held: u64) {
        absent.look(members.iter().map(|(n, linked)| (node(*n), *linked)), |_| LogIndex(held));
    }

    #[test]
    fn what_a_member_lacks_is_held_from_its_loss_to_its_return() {
        let mut absent = Absent::default();
        look(&mut absent, &[(1, true), (2, true)], 5);
        assert_eq!(absent.hold(), None);
        look(&mut absent, &[(1, true), (2, false)], 10);
        assert_eq!(absent.hold(), Some(LogIndex(10)), "cut off");
        look(&mut absent, &[(1, true)], 20);
        assert_eq!(absent.hold(), Some(LogIndex(10)), "and out of the view");
        look(&mut absent, &[], 30);
        assert_eq!(absent.hold(), Some(LogIndex(10)), "another one left");
        look(&mut absent, &[(2, true)], 40);
        assert_eq!(absent.hold(), Some(LogIndex(30)));
        look(&mut absent, &[(1, true), (2, true)], 50);
        assert_eq!(absent.hold(), None);
    }

    #[test]
    fn for_whom_the_log_was_trimmed_nothing_is_held() {
        let mut absent = Absent::default();
        look(&mut absent, &[(1, true), (2, true)], 5);
        look(&mut absent, &[(1, false), (2, true)], 10);
        look(&mut absent, &[(1, false), (2, false)], 20);
        assert_eq!(absent.trimmed(LogIndex(10)), []);
        assert_eq!(absent.trimmed(LogIndex(11)), [node(1)]);
        assert_eq!(absent.hold(), Some(LogIndex(20)));
    }

    #[test]
    fn who_was_given_up_is_held_for_again_only_after_a_return() {
        let mut absent = Absent::default();
        look(&mut absent, &[(1, true)], 5);
        look(&mut absent, &[(1, false)], 6);
        assert_eq!(absent.give_up(), [node(1)]);
        look(&mut absent, &[(1, false)], 7);
        assert_eq!(absent.hold(), None);
        assert!(absent.give_up().is_empty());
        look(&mut absent, &[(1, true)], 8);
        look(&mut absent, &[(1, false)], 9);
        assert_eq!(absent.hold(), Some(LogIndex(9)));
    }
}
