//! Who is away, and what each of them lacks: the log keeps it, as long as there is room.

use std::collections::BTreeMap;

use trireme_types::{LogIndex, NodeId};

/// Members that were here and are not, be it that they left, died or are cut off. Remembered until they are back, or until this process
/// ends.
#[derive(Default)]
pub struct Absent {
    /// Those that were here when this was last looked at.
    here: BTreeMap<NodeId, String>,
    away: BTreeMap<NodeId, Away>,
}

struct Away {
    name: String,
    /// It has everything up to here. `None`: the log has been trimmed beyond it.
    held: Option<LogIndex>,
}

impl Absent {
    /// Members by id and name, and whether each is linked; and up to where a member's log is known to go.
    pub fn look(&mut self, members: impl Iterator<Item = (NodeId, String, bool)>, held: impl Fn(NodeId) -> LogIndex) {
        let mut before = std::mem::take(&mut self.here);
        for (node, name, linked) in members {
            before.remove(&node);
            if linked {
                self.away.remove(&node);
                self.here.insert(node, name);
            } else {
                self.miss(node, name, &held);
            }
        }
        for (node, name) in before {
            self.miss(node, name, &held);
        }
    }

    fn miss(&mut self, node: NodeId, name: String, held: impl Fn(NodeId) -> LogIndex) {
        self.away.entry(node).or_insert_with(|| Away { name, held: Some(held(node)) });
    }

    /// All have everything up to here. `None`: nobody for whom something is kept is away.
    pub fn hold(&self) -> Option<LogIndex> {
        self.away.values().filter_map(|a| a.held).min()
    }

    /// There is no room for what they lack. The names of those for whom something was kept.
    pub fn give_up(&mut self) -> Vec<String> {
        let kept_for = self.away.values_mut().filter_map(|a| a.held.take().map(|_| a.name.clone()));
        kept_for.collect()
    }
}

#[cfg(test)]
mod tests {
    use trireme_types::Uuid;

    use super::*;

    fn look(absent: &mut Absent, members: &[(u8, bool)], held: u64) {
        let members = members.iter().map(|(n, linked)| (NodeId(Uuid([*n; 16])), format!("n{n}"), *linked));
        absent.look(members, |_| LogIndex(held));
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
    fn who_was_given_up_is_held_for_again_only_after_a_return() {
        let mut absent = Absent::default();
        look(&mut absent, &[(1, true)], 5);
        look(&mut absent, &[(1, false)], 6);
        assert_eq!(absent.give_up(), ["n1"]);
        look(&mut absent, &[(1, false)], 7);
        assert_eq!(absent.hold(), None);
        assert!(absent.give_up().is_empty());
        look(&mut absent, &[(1, true)], 8);
        look(&mut absent, &[(1, false)], 9);
        assert_eq!(absent.hold(), Some(LogIndex(9)));
    }
}
