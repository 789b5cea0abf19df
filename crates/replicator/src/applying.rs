//! When an applier may begin with a write set that others may still be busy before.

use trireme_types::Seqno;

/// The last seqno that has to have left commit order before an applier begins with the write set at `seqno`. `certified`: what certification says that it
/// depends on; `None`: it failed. `last_seen`: what its origin had committed when it was sent, which an optimistic server does not wait
/// for.
pub fn begins_behind(seqno: Seqno, certified: Option<Seqno>, last_seen: Seqno, optimistic: bool) -> Seqno {
    match certified {
        // It only takes its place.
        None => seqno.prev(),
        Some(depends_on) if optimistic => depends_on,
        Some(depends_on) => depends_on.max(last_seen.min(seqno.prev())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_applier_waits_for_what_the_write_set_depends_on_and_for_what_its_origin_had_seen() {
        let behind = |certified: Option<u64>, last_seen, optimistic| {
            begins_behind(Seqno(9), certified.map(Seqno), Seqno(last_seen), optimistic).0
        };
        assert_eq!(behind(Some(3), 5, false), 5);
        assert_eq!(behind(Some(3), 5, true), 3);
        assert_eq!(behind(Some(7), 5, false), 7);
        assert_eq!(behind(Some(3), 20, false), 8, "never itself");
        assert_eq!((behind(None, 5, true), behind(None, 5, false)), (8, 8));
    }
}
