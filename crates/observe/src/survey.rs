//! The servers to ask: those that were named, and those that they list as members.
//!
//! Input: [`Survey::handle_answer`]. Output: [`Survey::poll_target`], until it yields nothing while no question is open.

use std::collections::{BTreeSet, VecDeque};

use crate::client::Trouble;
use crate::facts::Facts;

/// One server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// Where the client goes by itself.
    Default,
    Tcp {
        host: String,
        port: Option<u16>,
    },
}

impl Target {
    /// `HOST`, `HOST:PORT`, `[V6]` or `[V6]:PORT`.
    pub fn parse(text: &str, port: Option<u16>) -> Result<Target, String> {
        let wrong = || format!("`{text}` is no server: write HOST or HOST:PORT");
        let (host, given) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            // Several colons without brackets: an address without port.
            None => match text.split_once(':') {
                Some((host, rest)) if !rest.contains(':') => (host, Some(rest)),
                Some(_) | None => (text, None),
            },
        };
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let port = given.map(number).transpose()?.or(port);
        if host.is_empty() || host.starts_with('-') || host.contains(char::is_whitespace) {
            return Err(wrong());
        }
        Ok(Target::Tcp { host: host.to_owned(), port })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Default => f.write_str("local"),
            Target::Tcp { host, port: None } => f.write_str(host),
            Target::Tcp { host, port: Some(port) } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Target::Tcp { host, port: Some(port) } => write!(f, "{host}:{port}"),
        }
    }
}

/// The result of one question.
pub type Answer = Result<Facts, Trouble>;

/// Servers to ask are bounded: no group has more members, and one that lists more is wrong.
const SERVERS_MAX: usize = 128;

#[derive(Debug, Default)]
pub struct Survey {
    open: VecDeque<Target>,
    known: BTreeSet<Target>,
    answers: Vec<(Target, Answer)>,
    discover: bool,
}

impl Survey {
    pub fn new(targets: Vec<Target>, discover: bool) -> Survey {
        let mut survey = Survey { discover, ..Survey::default() };
        for target in targets {
            survey.add(target);
        }
        survey
    }

    fn add(&mut self, target: Target) {
        if self.known.len() < SERVERS_MAX && self.known.insert(target.clone()) {
            self.open.push_back(target);
        }
    }

    pub fn poll_target(&mut self) -> Option<Target> {
        self.open.pop_front()
    }

    pub fn handle_answer(&mut self, target: Target, answer: Answer) {
        if let Ok(facts) = &answer {
            // Where the answering server is in its own list: it is not asked a second time.
            let own = facts.whole("wsrep_local_index").and_then(|n| usize::try_from(n).ok());
            for (index, address) in facts.addresses().into_iter().enumerate() {
                let Some(address) = address.filter(|_| self.discover) else { continue };
                if Some(index) == own {
                    self.known.insert(address.clone());
                    self.open.retain(|other| *other != address);
                } else {
                    self.add(address);
                }
            }
        }
        self.answers.push((target, answer));
    }

    /// The answers, one entry per server: a server that answered at two addresses is one, and an address that does not
    /// answer, but that an answering server has, is that server.
    pub fn finish(self) -> Vec<(Target, Answer)> {
        let mut seen = BTreeSet::new();
        let own: BTreeSet<Target> = self.answers.iter().filter_map(|(_, a)| a.as_ref().ok()?.own_address()).collect();
        let mut out = Vec::new();
        for (target, answer) in self.answers {
            let keep = match &answer {
                Ok(facts) => facts.identity().is_none_or(|identity| seen.insert(identity)),
                Err(_) => !own.contains(&target),
            };
            if keep {
                out.push((target, answer));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::facts;

    fn tcp(host: &str, port: u16) -> Target {
        Target::Tcp { host: host.into(), port: Some(port) }
    }

    fn member(index: usize) -> Facts {
        let index_text = index.to_string();
        facts(&[
            ("wsrep_incoming_addresses", "10.0.0.1:3306,,AUTO,10.0.0.2:3307"),
            ("wsrep_local_index", &index_text),
            ("wsrep_gcomm_uuid", &format!("uuid-{index}")),
        ])
    }

    #[test]
    fn the_others_are_found_and_nobody_is_asked_twice() {
        let mut survey = Survey::new(vec![Target::Default], true);
        assert_eq!(survey.poll_target(), Some(Target::Default));
        survey.handle_answer(Target::Default, Ok(member(0)));
        assert_eq!(survey.poll_target(), Some(tcp("10.0.0.2", 3307)));
        survey.handle_answer(tcp("10.0.0.2", 3307), Ok(member(3)));
        assert_eq!(survey.poll_target(), None);
        assert_eq!(survey.finish().len(), 2);
    }

    #[test]
    fn one_server_at_two_addresses_is_one_and_a_named_one_that_is_down_is_shown() {
        let mut survey = Survey::new(vec![tcp("a", 1), tcp("b", 2), tcp("c", 3)], false);
        survey.handle_answer(tcp("a", 1), Ok(member(0)));
        survey.handle_answer(tcp("b", 2), Ok(member(0)));
        survey.handle_answer(tcp("c", 3), Err(Trouble::Silent));
        survey.handle_answer(tcp("10.0.0.1", 3306), Err(Trouble::Silent));
        let heard: Vec<_> = survey.finish().into_iter().map(|(target, _)| target).collect();
        assert_eq!(heard, [tcp("a", 1), tcp("c", 3)]);
    }

    #[test]
    fn how_servers_are_written() {
        let parse = |text| Target::parse(text, Some(9)).map(|t| t.to_string());
        assert_eq!(parse("a").unwrap(), "a:9");
        assert_eq!(parse("a:1").unwrap(), "a:1");
        assert_eq!(parse("::1").unwrap(), "[::1]:9");
        assert_eq!(parse("[::1]:5").unwrap(), "[::1]:5");
        for bad in ["", "a:", "a:x", "a:0", "a:65536", "[::1]x", "-e", "a b", ":1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
