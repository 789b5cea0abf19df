//! The state file: what a node knows of itself, written over and over in place.
//!
//! | bytes | |
//! |---|---|
//! | 0–7 | `TRIREME` and a zero |
//! | 8–11 | version, 1 |
//! | 12–15 | length of the body |
//! | 16–23 | how often it was written |
//! | 24–31 | when, in nanoseconds since 1970 |
//! | 32–35 | process |
//! | 36–39 | bit 0: the node was stopped in order |
//! | 40–43 | CRC-32 of bytes 0–39 and of the body |
//! | 64– | the body, then zeros up to [`LEN`] |
//!
//! Numbers are little-endian. The body is text, a line for each fact: `n NAME{LABELS} NUMBER`, `h NAME{LABELS} SUM_NS COUNT…` (a
//! [`crate::histogram`]), `t NAME TEXT`. A reader skips lines that it does not know.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::histogram::{BUCKETS, Snapshot};

pub const FILE_NAME: &str = "trireme.state.galera.cache";
/// Of the file, always.
pub const LEN: usize = 24 * 1024;
const HEAD: usize = 64;
const MAGIC: &[u8; 8] = b"TRIREME\0";
const VERSION: u32 = 1;
const CLOSED: u32 = 1;

/// The lines that are going to be written.
#[derive(Default)]
pub struct Body {
    text: String,
}

impl Body {
    /// `name`: with its labels, see [`label`].
    pub fn number(&mut self, name: &str, value: f64) {
        let _ = writeln!(self.text, "n {name} {value}");
    }

    pub fn histogram(&mut self, name: &str, snapshot: &Snapshot) {
        let _ = write!(self.text, "h {name} {}", snapshot.sum_ns);
        for count in &snapshot.counts {
            let _ = write!(self.text, " {count}");
        }
        self.text.push('\n');
    }

    pub fn text(&mut self, name: &str, value: &str) {
        let line: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(self.text, "t {name} {line}");
    }

    /// The whole file. Lines that do not fit are left out, from the end, and a line says so.
    pub fn encode(mut self, sequence: u64, unix_ns: u64, process: u32, closed: bool) -> Vec<u8> {
        const CUT: &str = "t truncated yes\n";
        if self.text.len() > LEN - HEAD {
            let room = LEN - HEAD - CUT.len();
            let end = self.text.as_bytes()[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            self.text.truncate(end);
            self.text.push_str(CUT);
        }
        let mut out = vec![0; LEN];
        let body = self.text.as_bytes();
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
        out[16..24].copy_from_slice(&sequence.to_le_bytes());
        out[24..32].copy_from_slice(&unix_ns.to_le_bytes());
        out[32..36].copy_from_slice(&process.to_le_bytes());
        out[36..40].copy_from_slice(&(if closed { CLOSED } else { 0 }).to_le_bytes());
        out[HEAD..HEAD + body.len()].copy_from_slice(body);
        let crc = checksum(&out[..40], body);
        out[40..44].copy_from_slice(&crc.to_le_bytes());
        out
    }
}

/// `name{key="value",…}`.
pub fn label(name: &str, labels: &[(&str, &str)]) -> String {
    let mut out = format!("{name}{{");
    for (place, (key, value)) in labels.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let _ = write!(out, "{comma}{key}=\"");
        for c in value.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                // A blank would end the name in the file.
                c if c.is_control() || c.is_whitespace() => out.push('_'),
                c => out.push(c),
            }
        }
        out.push('"');
    }
    out + "}"
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(head);
    crc.update(body);
    crc.finalize()
}

/// A file that was read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct State {
    pub sequence: u64,
    /// When it was written, by the clock of that machine.
    pub unix_ns: u64,
    pub process: u32,
    /// The node was stopped in order.
    pub closed: bool,
    /// By name with labels.
    pub numbers: BTreeMap<String, f64>,
    pub histograms: BTreeMap<String, Snapshot>,
    pub texts: BTreeMap<String, String>,
}

/// Why a file tells nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bad {
    /// Another program's, or empty.
    NotOurs,
    /// Of a version that is not known here.
    Version(u32),
    /// Read while it was written, or damaged. Worth another look.
    Torn,
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bad::NotOurs => f.write_str("it is no state file of a Trireme node"),
            Bad::Version(n) => {
                write!(
                    f,
                    "its format is {n}, and this program knows {VERSION} only: use the `trireme` of the node's version"
                )
            }
            Bad::Torn => f.write_str("its checksum does not fit: it is damaged"),
        }
    }
}

impl State {
    pub fn decode(bytes: &[u8]) -> Result<State, Bad> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(Bad::NotOurs);
        }
        let Some(head) = bytes.get(..HEAD) else { return Err(Bad::Torn) };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| head[at + n]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| head[at + n]));
        if word(8) != VERSION {
            return Err(Bad::Version(word(8)));
        }
        let body = bytes.get(HEAD..).and_then(|rest| rest.get(..word(12) as usize)).ok_or(Bad::Torn)?;
        if checksum(&head[..40], body) != word(40) {
            return Err(Bad::Torn);
        }
        let text = std::str::from_utf8(body).map_err(|_| Bad::Torn)?;
        let mut out = State {
            sequence: long(16),
            unix_ns: long(24),
            process: word(32),
            closed: word(36) & CLOSED != 0,
            ..State::default()
        };
        text.lines().for_each(|line| out.take(line));
        Ok(out)
    }

    fn take(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (Some(kind), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else { return };
        match kind {
            "n" => {
                if let Ok(value) = rest.parse() {
                    self.numbers.insert(name.to_owned(), value);
                }
            }
            "t" => {
                self.texts.insert(name.to_owned(), rest.to_owned());
            }
            "h" => {
                let numbers: Option<Vec<u64>> = rest.split(' ').map(|word| word.parse().ok()).collect();
                let Some((sum_ns, counts)) = numbers.as_deref().and_then(<[u64]>::split_first) else { return };
                let Ok(counts) = <[u64; BUCKETS]>::try_from(counts) else { return };
                self.histograms.insert(name.to_owned(), Snapshot { counts, sum_ns: *sum_ns });
            }
            _ => {}
        }
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use std::time::Duration;

    fn file() -> Vec<u8> {
        let mut body = Body::default();
        body.number("trireme_term", 7.0);
        body.number(&label("trireme_member_silent", &[("member", "a \"b\"\n")]), 1.0);
        let histogram = Histogram::default();
        histogram.record(Duration::from_millis(3));
        body.histogram("trireme_apply_seconds", &histogram.snapshot());
        body.text("role", "sequencer\nn trireme_term 8");
        body.encode(5, 6, 7, false)
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = file();
        assert_eq!(bytes.len(), LEN);
        let state = State::decode(&bytes).unwrap();
        assert_eq!((state.sequence, state.unix_ns, state.process, state.closed), (5, 6, 7, false));
        assert_eq!(state.number("trireme_term"), Some(7.0));
        assert_eq!(state.number("trireme_member_silent{member=\"a_\\\"b\\\"_\"}"), Some(1.0));
        assert_eq!(state.histograms["trireme_apply_seconds"].count(), 1);
        assert_eq!(state.text("role"), Some("sequencer n trireme_term 8"));
    }

    #[test]
    fn other_files_are_told_apart() {
        assert_eq!(State::decode(b""), Err(Bad::NotOurs));
        assert_eq!(State::decode(&[0; LEN]), Err(Bad::NotOurs));
        let mut future = file();
        future[8] = 9;
        assert_eq!(State::decode(&future), Err(Bad::Version(9)));
        assert_eq!(State::decode(&file()[..40]), Err(Bad::Torn));
        assert_eq!(State::decode(&file()[..80]), Err(Bad::Torn));
        // Half of one and half of another.
        for at in (12..LEN).step_by(7).filter(|at| (12..44).contains(at) || (64..300).contains(at)) {
            let mut torn = file();
            torn[at] ^= 0x10;
            let read = State::decode(&torn);
            assert!(read == Err(Bad::Torn) || read == State::decode(&file()), "{at}");
        }
    }

    #[test]
    fn too_much_is_cut_at_a_line() {
        let mut body = Body::default();
        for n in 0..4000 {
            body.number(&format!("trireme_{n}"), 1.0);
        }
        let state = State::decode(&body.encode(0, 0, 0, true)).unwrap();
        assert!(state.closed && state.text("truncated") == Some("yes"));
        assert!(state.numbers.len() > 1000 && state.numbers.values().all(|n| *n == 1.0));
    }

    #[test]
    fn lines_of_a_later_version_are_skipped() {
        let mut body = Body::default();
        body.text.push_str("q new thing\nn\nh x 1 2\nn y abc\n\nt role voter\n");
        let state = State::decode(&body.encode(0, 0, 0, false)).unwrap();
        assert_eq!((state.numbers.len(), state.histograms.len(), state.text("role")), (0, 0, Some("voter")));
    }
}
