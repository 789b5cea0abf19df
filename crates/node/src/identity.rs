//! The identity of this node: its ids, what it tells others of itself, and the chance that ids are made of.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use trireme_surface::address::HostPort;
use trireme_types::{Incarnation, Member, MemberKind, NodeId, Uuid, Weight};

use crate::host::Host;

/// Longest member name in bytes; older tools read no more.
const NAME_MAX: usize = 31;

/// Seconds since the beginning of 2026. The counter of starts lies in the log, and goes back when an old copy of the directory is
/// put in its place: then the clock keeps the numbers of this start apart from those of the starts that were forgotten. Where
/// the clock goes back too, or there is more than one start in a second, the counter goes on.
pub fn by_the_clock() -> Incarnation {
    const YEAR_2026: u64 = 1_767_225_600;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    Incarnation(u32::try_from(now.saturating_sub(YEAR_2026)).unwrap_or(0))
}

pub fn member(host: &Host, node: NodeId, incarnation: Incarnation) -> Member {
    let args = &host.args;
    host.settings.with(|o| {
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

pub fn own_ip(me: &Member) -> Option<IpAddr> {
    HostPort::parse(&me.address).ok()?.host.parse().ok()
}

/// The kernel gives no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("cannot read /dev/urandom: {0}")]
pub struct NoChance(#[from] io::Error);

pub fn random<const N: usize>() -> Result<[u8; N], NoChance> {
    let mut bytes = [0; N];
    File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes))?;
    Ok(bytes)
}

pub fn random_uuid() -> Result<Uuid, NoChance> {
    let mut bytes: [u8; 16] = random()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

/// An id for a new member: the milliseconds of its creation first (RFC 9562, version 7), so that nodes sort, and get their
/// auto_increment_offset, in the order in which they were set up.
pub fn node_uuid(now: SystemTime) -> Result<Uuid, NoChance> {
    let millis = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    let mut uuid = random_uuid()?;
    uuid.0[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    uuid.0[6] = uuid.0[6] & 0x0f | 0x70;
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
