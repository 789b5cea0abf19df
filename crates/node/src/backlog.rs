//! Items in order, of which only the first keep what they carry: a backlog of millions is the log on disk, not memory.

use std::collections::VecDeque;

use bytes::Bytes;
use trireme_types::{LogIndex, Seqno};

use crate::item::{ApplyItem, Item};

/// Bodies beyond this many bytes are dropped and read from the log when their turn comes.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Items beyond this many are kept in short: 32 bytes each.
const ITEMS_MAX: usize = 1 << 16;

/// An item that cannot be kept whole: where the log has it, and what certification said.
struct Short {
    seqno: Seqno,
    index: LogIndex,
    depends_on: Seqno,
    ok: bool,
}

enum Rest {
    Apply(Short),
    /// Views and the like: few.
    Other(Box<Item>),
}

/// See the module.
#[derive(Default)]
pub struct Backlog {
    items: VecDeque<Item>,
    /// After `items`; empty unless they are full.
    rest: VecDeque<Rest>,
    body_bytes: usize,
}

fn length(item: &Item) -> usize {
    match item {
        Item::Apply(apply) => apply.body.as_ref().map_or(0, Bytes::len),
        Item::Connected(_)
        | Item::View { .. }
        | Item::Compare { .. }
        | Item::SstRequest { .. }
        | Item::Donate { .. }
        | Item::Synced { .. }
        | Item::Final { .. } => 0,
    }
}

impl Backlog {
    pub fn len(&self) -> usize {
        self.items.len() + self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        // The items that are kept in short come after these.
        self.items.is_empty()
    }

    pub fn push(&mut self, mut item: Item) {
        if self.items.len() >= ITEMS_MAX || !self.rest.is_empty() {
            self.rest.push_back(match item {
                Item::Apply(apply) => Rest::Apply(Short {
                    seqno: apply.seqno,
                    index: apply.index,
                    depends_on: apply.depends_on,
                    ok: apply.ok,
                }),
                other => Rest::Other(Box::new(other)),
            });
            return;
        }
        let bytes = length(&item);
        if self.body_bytes + bytes > BODY_BYTES_MAX {
            if let Item::Apply(apply) = &mut item {
                apply.body = None;
            }
        } else {
            self.body_bytes += bytes;
        }
        self.items.push_back(item);
    }

    pub fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    pub fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.body_bytes -= length(&item);
        match self.rest.pop_front() {
            Some(Rest::Apply(short)) => self.items.push_back(Item::Apply(short.into_item())),
            Some(Rest::Other(other)) => self.items.push_back(*other),
            None => {}
        }
        if self.rest.is_empty() && self.rest.capacity() > ITEMS_MAX {
            self.rest = VecDeque::new();
        }
        Some(item)
    }

    pub fn clear(&mut self) {
        *self = Backlog::default();
    }
}

impl Short {
    fn into_item(self) -> ApplyItem {
        let Short { seqno, index, depends_on, ok } = self;
        ApplyItem { seqno, index, depends_on, ok, body: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(n: u64) -> ApplyItem {
        ApplyItem { seqno: Seqno(n), index: LogIndex(n), depends_on: Seqno(0), ok: true, body: None }
    }

    #[test]
    fn large_backlogs_do_not_keep_their_bodies() {
        let mut backlog = Backlog::default();
        let body = Bytes::from(vec![0; BODY_BYTES_MAX / 2 + 1]);
        for n in 1..=2 {
            backlog.push(Item::Apply(ApplyItem { body: Some(body.clone()), ..apply(n) }));
        }
        let kept = |backlog: &mut Backlog| match backlog.pop() {
            Some(Item::Apply(item)) => item.body.is_some(),
            other => panic!("{other:?}"),
        };
        assert!(kept(&mut backlog));
        assert!(!kept(&mut backlog));
        backlog.push(Item::Apply(ApplyItem { body: Some(body), ..apply(3) }));
        assert!(kept(&mut backlog), "there is room again");
    }

    #[test]
    fn a_backlog_of_millions_is_in_order_and_small() {
        let mut backlog = Backlog::default();
        let count = 3_000_000u64;
        for n in 1..=count {
            backlog.push(Item::Apply(ApplyItem { ok: n % 7 != 0, ..apply(n) }));
            if n % 1_000_000 == 0 {
                backlog.push(Item::Synced { at: Seqno(n) });
            }
        }
        assert_eq!(backlog.len() as u64, count + 3);
        let memory = backlog.rest.capacity() * size_of::<Rest>() + backlog.items.capacity() * size_of::<Item>();
        assert!(memory < 192 << 20, "{memory} bytes for {count} items");
        let mut synced = Vec::new();
        let mut last = 0;
        while let Some(item) = backlog.pop() {
            match item {
                Item::Apply(item) => {
                    assert_eq!((item.seqno.0, item.index.0, item.ok), (last + 1, last + 1, (last + 1) % 7 != 0));
                    last += 1;
                }
                Item::Synced { at } => synced.push((at.0, last)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(last, count);
        assert_eq!(synced, [1_000_000, 2_000_000, 3_000_000].map(|n| (n, n)));
        assert!(backlog.rest.capacity() <= ITEMS_MAX, "and its memory is given back");
    }
}
