//! Which certificates are members', besides being of the right authority: by name, by fingerprint, and not revoked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use openssl::asn1::Asn1Time;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::x509::{CrlStatus, X509, X509Crl, X509Ref};
use trireme_types::{NodeId, Uuid};

use crate::error::{BadPeerNames, BadShown};

/// SHA-256 of a certificate as it travels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SHA256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Fingerprint {
    /// 64 hexadecimal digits, with colons between them or not, as `openssl x509 -fingerprint -sha256` writes them.
    fn parse(text: &str) -> Option<Fingerprint> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let nibble = |digit: u8| (digit as char).to_digit(16);
            *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
        }
        Some(Fingerprint(bytes))
    }
}

/// The facts of a certificate about its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Common names of the subject, then alternative names (DNS, IP), in the certificate's order.
    pub names: Vec<String>,
    pub fingerprint: Fingerprint,
}

impl Identity {
    pub(crate) fn of(certificate: &X509Ref) -> Result<Identity, ErrorStack> {
        let common = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
        let mut names: Vec<String> = common.filter_map(|entry| entry.data().to_string().ok()).collect();
        for other in certificate.subject_alt_names().iter().flatten() {
            names.extend(other.dnsname().map(str::to_owned));
            names.extend(other.ipaddress().and_then(ip_text));
        }
        let digest = certificate.digest(MessageDigest::sha256())?;
        let mut fingerprint = Fingerprint([0; 32]);
        fingerprint.0.copy_from_slice(&digest);
        Ok(Identity { names, fingerprint })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names.is_empty() {
            true => write!(f, "without a name ({})", self.fingerprint),
            false => write!(f, "'{}' ({})", self.names.join("', '"), self.fingerprint),
        }
    }
}

/// Whose certificate each node showed last.
pub type ShownBy = BTreeMap<NodeId, Identity>;

/// Where a node keeps that over restarts: beside its log, under a name that state transfers leave alone.
pub const CERTIFICATES_FILE: &str = "trireme.certificates.galera.cache";

const CERTIFICATES_HEAD: &str = "# Whose certificate each node showed last (repl.other_certificate): node id, fingerprint, names. To forget one, remove its line \
     while the node that this file belongs to is stopped.";

/// The file's contents: a line for each node, fields separated by tabs.
pub fn print_shown(shown: &ShownBy) -> String {
    let mut out = format!("{CERTIFICATES_HEAD}\n");
    for (node, who) in shown {
        out += &format!("{node}\t{}", who.fingerprint);
        for name in &who.names {
            // A name may hold anything.
            let escape = |c: char| match c.is_control() || c == '%' {
                true => format!("%{:04x}", c as u32),
                false => c.to_string(),
            };
            out.push('\t');
            out.extend(name.chars().map(escape));
        }
        out.push('\n');
    }
    out
}

/// The output of [`print_shown`].
pub fn parse_shown(text: &str) -> Result<ShownBy, BadShown> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let parsed = lines.map(|(at, line)| {
        let of_line = || {
            let mut fields = line.split('\t');
            let node = NodeId(Uuid::parse(fields.next()?)?);
            let fingerprint = Fingerprint::parse(fields.next()?.strip_prefix("SHA256:")?)?;
            Some((node, Identity { fingerprint, names: fields.map(unescape).collect::<Option<_>>()? }))
        };
        of_line().ok_or(BadShown(at + 1))
    });
    parsed.collect()
}

fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push(char::from_u32(u32::from_str_radix(part.get(..4)?, 16).ok()?)?);
        out.push_str(&part[4..]);
    }
    Some(out)
}

fn ip_text(bytes: &[u8]) -> Option<String> {
    match bytes.len() {
        4 => Some(std::net::Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string()),
        16 => Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string()),
        _ => None,
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Rule {
    /// In lower case. `*` stands for any characters but dots, `?` for one.
    Name(String),
    Fingerprint(Fingerprint),
}

/// `socket.ssl_peer_names`: whose certificates are taken. Empty: all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerNames(Vec<Rule>);

impl PeerNames {
    /// Names and fingerprints (`SHA256:…`), separated by commas.
    pub fn parse(text: &str) -> Result<PeerNames, BadPeerNames> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let rules = parts.map(|part| {
            let fingerprint = part.get(..7).filter(|head| head.eq_ignore_ascii_case("sha256:"));
            match fingerprint {
                Some(_) => Fingerprint::parse(&part[7..])
                    .map(Rule::Fingerprint)
                    .ok_or_else(|| BadPeerNames::Fingerprint(part.to_owned())),
                None if part.chars().any(|c| c.is_whitespace() || c.is_control()) => {
                    Err(BadPeerNames::Name(part.to_owned()))
                }
                None => Ok(Rule::Name(part.to_ascii_lowercase())),
            }
        });
        Ok(PeerNames(rules.collect::<Result<_, _>>()?))
    }

    pub(crate) fn allow(&self, who: &Identity) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|rule| match rule {
                Rule::Fingerprint(fingerprint) => *fingerprint == who.fingerprint,
                Rule::Name(pattern) => {
                    who.names.iter().any(|name| matches(pattern.as_bytes(), name.to_ascii_lowercase().as_bytes()))
                }
            })
    }
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // How much of the pattern can have been used up by the characters so far.
    let mut at = vec![false; pattern.len() + 1];
    at[0] = true;
    let skip_stars = |at: &mut [bool]| (0..pattern.len()).for_each(|i| at[i + 1] |= at[i] && pattern[i] == b'*');
    skip_stars(&mut at);
    for &c in name {
        let mut next = vec![false; at.len()];
        for (i, &wanted) in pattern.iter().enumerate().filter(|(i, _)| at[*i]) {
            match wanted {
                b'*' => next[i] |= c != b'.',
                b'?' => next[i + 1] |= c != b'.',
                _ => next[i + 1] |= wanted == c,
            }
        }
        at = next;
        skip_stars(&mut at);
    }
    at[pattern.len()]
}

/// No revocation lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadRevoked {
    #[error("a list in it is damaged")]
    Damaged,
    #[error("it holds no revocation list (PEM, `-----BEGIN X509 CRL-----`)")]
    None,
}

/// Certificates that their authorities have taken back.
#[derive(Clone)]
pub(crate) struct Revoked(Arc<[X509Crl]>);

impl Default for Revoked {
    fn default() -> Revoked {
        Revoked(Arc::from([]))
    }
}

impl Revoked {
    /// All lists in a PEM file.
    pub fn parse(pem: &[u8]) -> Result<Revoked, BadRevoked> {
        const BEGIN: &[u8] = b"-----BEGIN X509 CRL-----";
        let starts: Vec<usize> = (0..pem.len()).filter(|at| pem[*at..].starts_with(BEGIN)).chain([pem.len()]).collect();
        let lists = starts.windows(2).map(|part| X509Crl::from_pem(&pem[part[0]..part[1]]));
        let lists: Vec<X509Crl> = lists.collect::<Result<_, _>>().map_err(|_| BadRevoked::Damaged)?;
        if lists.is_empty() {
            return Err(BadRevoked::None);
        }
        Ok(Revoked(lists.into()))
    }

    pub fn has(&self, certificate: &X509) -> bool {
        let of_its_issuer = self.0.iter().filter(|list| {
            list.issuer_name().try_cmp(certificate.issuer_name()).is_ok_and(|order| order == std::cmp::Ordering::Equal)
        });
        of_its_issuer.into_iter().any(|list| matches!(list.get_by_cert(certificate), CrlStatus::Revoked(_)))
    }

    /// How long the list holds that ends first; negative when it has ended, and every certificate is refused. `None` without any.
    pub fn days_left(&self) -> Result<Option<i32>, ErrorStack> {
        let now = Asn1Time::days_from_now(0)?;
        let days = self.0.iter().filter_map(|list| Some(now.diff(list.next_update()?).map(|left| left.days)));
        Ok(days.collect::<Result<Vec<i32>, ErrorStack>>()?.into_iter().min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(names: &[&str]) -> Identity {
        Identity { names: names.iter().map(|name| (*name).to_owned()).collect(), fingerprint: Fingerprint([0xab; 32]) }
    }

    #[test]
    fn names_match_as_patterns_and_stars_stop_at_dots() {
        let allow = |rules: &str, names: &[&str]| PeerNames::parse(rules).unwrap().allow(&who(names));
        assert!(allow("", &[]) && allow(" , ", &["anybody"]));
        assert!(allow("node1,node2", &["node2"]) && !allow("node1,node2", &["node3"]));
        assert!(allow("node?", &["NODE7"]) && !allow("node?", &["node77"]) && !allow("node?", &["node"]));
        assert!(allow("*.db.example.com", &["laptop", "n1.db.example.com"]));
        assert!(
            !allow("*.db.example.com", &["x.n1.db.example.com"]) && !allow("*", &["a.b"]) && allow("*", &["ab", "a.b"])
        );
        assert!(allow("a*b*c", &["aXbbYc"]) && !allow("a*b*c", &["aXbbY"]));
        assert!(allow("10.0.0.?", &["10.0.0.7"]));
        assert!(!allow("node1", &[]), "without a name");
    }

    #[test]
    fn what_was_shown_is_read_as_it_was_written() {
        let node = |n: u8| NodeId(Uuid([n; 16]));
        let names: [&[&str]; 4] =
            [&["node1", "node1.example.com"], &[], &["tab\tnewline\n%0009", ""], &["節点 \u{85}"]];
        let shown: ShownBy = (1..).map(node).zip(names.map(who)).collect();
        let text = print_shown(&shown);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert_eq!(parse_shown(&text).unwrap(), shown);
        assert_eq!(parse_shown("").unwrap(), ShownBy::new());
        for bad in ["x", "\t", "00000000-0000-0000-0000-000000000001\tSHA256:12", &text.replace("%0009", "%zzzz")] {
            assert!(parse_shown(bad).unwrap_err().to_string().contains("line "), "{bad}");
        }
    }

    #[test]
    fn fingerprints_match_however_they_are_written() {
        let plain = format!("sha256:{}", "ab".repeat(32));
        let colons = format!("SHA256:{}", ["AB"; 32].join(":"));
        for text in [plain, colons, who(&[]).fingerprint.to_string()] {
            assert!(PeerNames::parse(&text).unwrap().allow(&who(&[])), "{text}");
        }
        assert!(!PeerNames::parse(&format!("SHA256:{}", "00".repeat(32))).unwrap().allow(&who(&["n"])));
        for bad in ["SHA256:12", "a b", "SHA256:zz"] {
            assert!(PeerNames::parse(bad).is_err(), "{bad}");
        }
    }
}
