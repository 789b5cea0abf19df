//! The knowledge of one monitor: of its own node, of the others, of all together, and since when.
//!
//! Inputs: [`Station::handle_own`], [`Station::handle_peer`], and [`Station::tick`] twice a second. Outputs: [`Station::peers`] (whom to ask),
//! [`Station::frame`] (what goes to those who watch), [`Station::respond`]. Pure but for the words of the clock that it is given.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::changes::{Chronicle, SHOWN};
use crate::dashboard;
use crate::monitor::{Answer, Content, Look, Watch};
use crate::overview::{Overview, Roundup, Seen, identity};
use crate::series::{self, Series};
use crate::survey::Target;

/// Between two ticks.
pub const TICK: Duration = Duration::from_millis(500);
/// No group has more members.
const PEERS_MAX: usize = 64;
/// A peer that is not listed any more and says nothing is forgotten.
const FORGET: Duration = Duration::from_secs(600);

/// Another node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Peer {
    /// Where its monitor is.
    pub host: String,
    pub port: u16,
    /// Where clients reach its server, if its monitor was not named.
    pub server: Option<Target>,
}

impl Peer {
    /// A monitor that was named.
    pub fn named(text: &str, port: u16) -> Result<Peer, String> {
        match Target::parse(text, Some(port))? {
            Target::Tcp { host, port: own } => Ok(Peer { host, port: own.unwrap_or(port), server: None }),
            Target::Default => Err(format!("`{text}` is no monitor: write HOST or HOST:PORT")),
        }
    }

    fn target(&self) -> Target {
        let here = Target::Tcp { host: self.host.clone(), port: Some(self.port) };
        self.server.clone().unwrap_or(here)
    }
}

#[derive(Debug)]
struct Heard {
    watch: Watch,
    /// When it was last listed, or named, or told something.
    wanted: Instant,
    by_monitor: bool,
}

#[derive(Debug)]
pub struct Station {
    own: Watch,
    /// Port at which the others' monitors are looked for; `None`: at a socket there is none.
    port: Option<u16>,
    named: Vec<Peer>,
    peers: BTreeMap<Peer, Heard>,
    roundup: Roundup,
    series: Series,
    chronicle: Chronicle,
    overview: Option<Overview>,
    /// Whole second of the last row in the series.
    second: u64,
    ticks: u64,
}

impl Station {
    pub fn new(port: Option<u16>, named: Vec<Peer>, now: Instant) -> Station {
        Station {
            own: Watch::new(now),
            port,
            named,
            peers: BTreeMap::new(),
            roundup: Roundup::default(),
            series: Series::default(),
            chronicle: Chronicle::default(),
            overview: None,
            second: 0,
            ticks: 0,
        }
    }

    pub fn own(&self) -> &Watch {
        &self.own
    }

    pub fn overview(&self) -> Option<&Overview> {
        self.overview.as_ref()
    }

    /// `process`: is the one that wrote it there?
    pub fn handle_own(&mut self, look: Look, process: Option<(u32, bool)>, now: Instant) {
        self.own.handle(look, now);
        if let Some((process, there)) = process {
            self.own.handle_process(process, there);
        }
    }

    /// The look, unless this very monitor answered: that tells nothing of the peer.
    pub fn checked(&self, peer: &Peer, look: Look) -> Look {
        match (&look, self.own.state()) {
            (Look::File(Ok(state)), Some(own)) if identity(state) == identity(own) => Look::Unreadable(format!(
                "at {}:{} this very monitor answers: name that of the node with --peers",
                peer.host, peer.port
            )),
            _ => look,
        }
    }

    pub fn handle_peer(&mut self, peer: &Peer, look: Look, now: Instant) {
        let Some(heard) = self.peers.get_mut(peer) else { return };
        heard.by_monitor = !matches!(look, Look::Answer(_));
        if matches!(look, Look::File(Ok(_)) | Look::Answer(Ok(_))) {
            heard.wanted = now;
        }
        heard.watch.handle(look, now);
    }

    /// The monitors to ask from now on.
    pub fn peers(&mut self, now: Instant) -> Vec<Peer> {
        let mut wanted = self.named.clone();
        let states = std::iter::once(&self.own).chain(self.peers.values().map(|heard| &heard.watch));
        let own = self.own.state().and_then(|state| state.text("incoming_address"));
        for state in states.filter_map(Watch::state) {
            for address in state.text("incoming_addresses").unwrap_or_default().split(',') {
                let Ok(server @ Target::Tcp { .. }) = Target::parse(address.trim(), None) else { continue };
                let Target::Tcp { host, .. } = &server else { continue };
                if Some(address.trim()) == own || host.eq_ignore_ascii_case("auto") || host == "unspecified" {
                    continue;
                }
                let Some(port) = self.port else { continue };
                wanted.push(Peer { host: host.clone(), port, server: Some(server) });
            }
        }
        for peer in wanted {
            if self.peers.len() < PEERS_MAX || self.peers.contains_key(&peer) {
                let fresh = || Heard { watch: Watch::new(now), wanted: now, by_monitor: true };
                self.peers.entry(peer).or_insert_with(fresh).wanted = now;
            }
        }
        self.peers.retain(|_, heard| now.saturating_duration_since(heard.wanted) < FORGET);
        self.peers.keys().cloned().collect()
    }

    /// `unix`: seconds since 1970. Before the first look at the own node there is nothing to say: a cluster of which nothing is known is not down.
    pub fn tick(&mut self, now: Instant, unix: f64) {
        if self.own.state().is_none() && self.own.trouble().is_none() {
            return;
        }
        let mut seen = vec![Seen {
            target: self
                .own
                .state()
                .and_then(|s| Target::parse(s.text("incoming_address")?, None).ok())
                .unwrap_or(Target::Default),
            name: None,
            source: if self.own.by_file() { "file" } else { "server" },
            watch: &self.own,
        }];
        let known = |watch: &Watch| watch.state().map(identity);
        let mut there: Vec<String> = known(&self.own).into_iter().collect();
        // Those that tell something come first: who is reached at two addresses is one.
        let mut peers: Vec<(&Peer, &Heard)> = self.peers.iter().collect();
        peers.sort_by_key(|(_, heard)| heard.watch.trouble().is_some() || heard.watch.state().is_none());
        for (peer, heard) in peers {
            match known(&heard.watch) {
                Some(identity) if there.contains(&identity) => continue,
                Some(identity) => there.push(identity),
                None if seen.iter().any(|one| is_at(one.watch, &peer.target())) => continue,
                None => {}
            }
            let source = if heard.by_monitor { "monitor" } else { "server" };
            seen.push(Seen { target: peer.target(), name: self.name_at(&peer.target()), source, watch: &heard.watch });
        }
        let mut overview = self.roundup.look(&seen, now, unix);
        self.chronicle.look(&overview);
        overview.changes = self.chronicle.last(SHOWN);
        if unix as u64 != self.second {
            self.second = unix as u64;
            self.series.push(&overview);
        }
        self.ticks += 1;
        self.overview = Some(overview);
    }

    /// As the members name whom clients reach there.
    fn name_at(&self, target: &Target) -> Option<String> {
        let states = std::iter::once(&self.own).chain(self.peers.values().map(|heard| &heard.watch));
        states.filter_map(Watch::state).find_map(|state| {
            let addresses = state.text("incoming_addresses")?.split(',');
            let mut pairs = addresses.zip(state.text("members")?.split(','));
            pairs.find(|(address, _)| *address == target.to_string()).map(|(_, name)| name.to_owned())
        })
    }

    /// For those who watch: the overview, and the newest row of what is drawn.
    pub fn frame(&self) -> String {
        let Some(overview) = &self.overview else { return String::new() };
        format!("id: {}\nevent: cluster\ndata: {}\n\n", self.ticks, self.cluster(overview))
    }

    /// In one line.
    fn cluster(&self, overview: &Overview) -> serde_json::Value {
        let mut value = serde_json::to_value(overview).unwrap_or_default();
        let row: BTreeMap<&String, Vec<serde_json::Value>> =
            overview.nodes.iter().map(|node| (&node.name, series::to_json(node))).collect();
        value["row"] = json!(row);
        value["columns"] = json!(series::names());
        value
    }

    /// `target`: path and query. `page`: the client is a browser, or somebody who takes what comes.
    pub fn respond(&self, target: &str, page: bool, now: Instant) -> Answer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let json = |value: serde_json::Value| Answer {
            status: "200 OK",
            kind: "application/json",
            body: Content::Text(format!("{value:#}\n")),
        };
        match path {
            "/" if page => return dashboard::asset("/dashboard").unwrap_or_else(not_found),
            "/state" => {
                let mut value = self.own.json(now);
                value["cluster"] =
                    self.overview.as_ref().map_or(serde_json::Value::Null, |overview| self.cluster(overview));
                return json(value);
            }
            "/cluster" => {
                return json(self.overview.as_ref().map_or(serde_json::Value::Null, |overview| self.cluster(overview)));
            }
            "/history" => {
                let seconds = query.split('&').find_map(|pair| pair.strip_prefix("seconds=")?.parse().ok());
                let mut value = self.series.to_json(seconds.unwrap_or(600).min(86_400));
                value["changes"] = json!(self.chronicle.last(usize::MAX));
                return Answer {
                    status: "200 OK",
                    kind: "application/json",
                    body: Content::Text(format!("{value}\n")),
                };
            }
            "/watch" => return Answer { status: "200 OK", kind: "text/event-stream", body: Content::Watch },
            _ => {}
        }
        self.own.respond(target, now).or_else(|| dashboard::asset(path)).unwrap_or_else(not_found)
    }
}

fn is_at(watch: &Watch, target: &Target) -> bool {
    watch.state().and_then(|state| state.text("incoming_address")).is_some_and(|address| address == target.to_string())
}

fn not_found() -> Answer {
    let text = "there are /, /metrics, /health, /live, /ready, /state, /cluster, /watch, /history and /node\n";
    Answer { status: "404 Not Found", kind: "text/plain; charset=utf-8", body: Content::Text(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::tests::state;

    fn station(now: Instant) -> Station {
        let mut station = Station::new(Some(9105), vec![], now);
        station.handle_own(Look::File(Ok(state(1, 1, |state| state.unix_ns = 0))), None, now);
        // Not the first: that one may be old.
        station.handle_own(Look::File(Ok(state(1, 2, |_| {}))), None, now);
        station
    }

    fn both(station: &mut Station, second: u64, now: Instant) {
        station.handle_own(Look::File(Ok(state(1, second, |_| {}))), None, now);
        for peer in station.peers(now) {
            let node = if peer.host == "10.0.0.2" { 2 } else { 3 };
            station.handle_peer(&peer, Look::File(Ok(state(node, second, |_| {}))), now);
        }
        station.tick(now, 1000.0 + second as f64);
    }

    #[test]
    fn the_others_are_found_and_all_are_shown_by_any() {
        let start = Instant::now();
        let mut station = station(start);
        let hosts: Vec<String> =
            station.peers(start).iter().map(|peer| format!("{}:{}", peer.host, peer.port)).collect();
        assert_eq!(hosts, ["10.0.0.2:9105", "10.0.0.3:9105"]);
        for second in 3..=5 {
            both(&mut station, second, start + Duration::from_secs(second));
        }
        let overview = station.overview().unwrap();
        assert_eq!(overview.nodes.iter().map(|node| &*node.health).collect::<Vec<_>>(), ["synced"; 3]);
        assert_eq!(overview.sentences[0], "3 of 3 voters are there: any one of them may fail");
        let frame = station.frame();
        assert!(
            frame.ends_with("\n\n")
                && frame.contains("event: cluster\ndata: {")
                && frame.trim_end().lines().count() == 3,
            "{frame}"
        );
        let Content::Text(text) = station.respond("/history?seconds=60", false, start).body else { panic!() };
        let history: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((history["times"].as_array().unwrap().len(), history["nodes"].as_object().unwrap().len()), (3, 3));
    }

    #[test]
    fn a_monitor_that_is_not_reached_has_a_name_and_a_reason() {
        let now = Instant::now();
        let mut station = station(now);
        for peer in station.peers(now) {
            station.handle_peer(&peer, Look::Unreadable("its monitor does not answer".into()), now);
        }
        station.tick(now, 1000.0);
        let overview = station.overview().unwrap();
        assert_eq!((&*overview.nodes[2].name, &*overview.nodes[2].health), ("db3", "unknown"));
        assert_eq!(overview.sentences[0], "3 of 3 voters are there: any one of them may fail");
    }

    #[test]
    fn before_the_first_look_nothing_is_said() {
        let now = Instant::now();
        let mut station = Station::new(Some(9105), vec![], now);
        station.tick(now, 1000.0);
        assert!(station.overview().is_none() && station.frame().is_empty());
        let Content::Text(text) = station.respond("/cluster", false, now).body else { panic!() };
        assert_eq!(text, "null\n");
        station.handle_own(Look::Unreadable("there is no state file".into()), None, now);
        station.tick(now, 1000.5);
        assert!(station.overview().is_some_and(|overview| overview.notes[0].contains("there is no state file")));
    }

    #[test]
    fn a_monitor_that_meets_itself_says_so() {
        let now = Instant::now();
        let mut station = station(now);
        let peer = station.peers(now).remove(0);
        let look = station.checked(&peer, Look::File(Ok(state(1, 3, |_| {}))));
        station.handle_peer(&peer, look, now);
        station.tick(now, 1000.0);
        assert!(station.overview().unwrap().notes.iter().any(|note| note.contains("this very monitor")));
    }

    #[test]
    fn one_that_is_named_and_listed_is_one() {
        let now = Instant::now();
        let named = Peer::named("10.9.9.9:1", 9105).unwrap();
        let mut station = Station::new(Some(9105), vec![named.clone()], now);
        station.handle_own(Look::File(Ok(state(1, 2, |_| {}))), None, now);
        station.peers(now);
        let look = station.checked(&named, Look::File(Ok(state(2, 2, |_| {}))));
        assert!(matches!(look, Look::File(Ok(_))));
        station.handle_peer(&named, look, now);
        station.tick(now, 1000.0);
        let names: Vec<&str> = station.overview().unwrap().nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["db1", "db2", "db3"]);
        assert!(Peer::named("a b", 1).is_err());
    }

    #[test]
    fn what_browsers_and_programs_get_at_the_root() {
        let now = Instant::now();
        let station = station(now);
        let kind = |page| station.respond("/", page, now).kind;
        assert_eq!((kind(true), kind(false)), ("text/html; charset=utf-8", "text/plain; charset=utf-8"));
        assert_eq!(station.respond("/nowhere", true, now).status, "404 Not Found");
        assert_eq!(station.respond("/watch", true, now).body, Content::Watch);
    }
}
