//! A server's report about itself and its group.

use std::time::Duration;

use crate::address::Address;

/// The two questions of every look. Both work in a server that is not part of a primary component, where `SELECT` does not.
pub const ASK_STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_local_state', 'wsrep_ready', 'wsrep_cluster_status', \
     'wsrep_connected', 'wsrep_local_index', 'wsrep_incoming_addresses', 'wsrep_provider_name', 'wsrep_gcomm_uuid', \
     'wsrep_local_recv_queue', 'wsrep_desync_count', 'wsrep_trireme_role', 'wsrep_trireme_term', 'wsrep_trireme_silent', \
     'wsrep_trireme_voters', 'wsrep_trireme_sequencer', 'wsrep_trireme_hears_majority')";
pub const ASK_VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_node_name', 'wsrep_desync', \
     'wsrep_reject_queries', 'read_only', 'wsrep_sst_donor_rejects_queries', 'wsrep_provider_options')";
/// Makes a Trireme node tell its role and whom it does not hear.
pub const ASK_FOR_MORE: &str = "SET GLOBAL wsrep_provider_options = 'repl.status_extended=yes'";

/// Two that make an answer wait until the server has all that was committed when the second was asked.
pub const WAIT_FOR_ALL: &str = "SET SESSION wsrep_sync_wait = 1";
pub const PROVE: &str = "SELECT 1";

/// The server's part in its group. The numbers are those of `wsrep_local_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalState {
    Undefined,
    Joining,
    Donor,
    Joined,
    Synced,
    Other(i64),
}

impl LocalState {
    fn of(number: i64) -> LocalState {
        match number {
            0 => LocalState::Undefined,
            1 => LocalState::Joining,
            2 => LocalState::Donor,
            3 => LocalState::Joined,
            4 => LocalState::Synced,
            other => LocalState::Other(other),
        }
    }
}

/// The kind of server that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without a provider.
    Plain,
    Member(Member),
}

/// A member of a group, Trireme's or Galera's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub trireme: bool,
    pub name: String,
    /// `wsrep_gcomm_uuid`: two addresses with the same one are one server.
    pub uuid: String,
    pub primary: bool,
    pub ready: bool,
    pub state: LocalState,
    pub desynced: bool,
    pub rejects_queries: bool,
    /// Only together with the state `Donor`.
    pub donor_rejects_queries: bool,
    pub index: Option<u32>,
    pub segment: Option<u8>,
    pub addresses: Vec<Address>,
    pub backlog: u64,
    /// Only Trireme says this, and only with `repl.status_extended=yes`.
    pub order: Option<Order>,
}

/// The order, as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub sequencer: bool,
    pub term: u64,
    /// `wsrep_node_name` of those whom this node does not hear.
    pub silent: Vec<String>,
    /// It knows of no sequencer: there is an election, or no majority.
    pub leaderless: bool,
    /// It has not heard of a majority that is in touch for the time of an election: it is cut off, or was frozen, or the sequencer is dead.
    pub out_of_touch: bool,
    /// Names and weights of the members whose majority decides. Empty: not told.
    pub voters: Vec<(String, u64)>,
}

impl Order {
    /// Whether those voters are a majority that are not `gone`.
    pub fn has_majority(&self, gone: impl Fn(&str) -> bool) -> bool {
        let weigh = |wanted: bool| -> u64 {
            self.voters.iter().filter(|(name, _)| gone(name) == wanted).map(|(_, weight)| weight).sum()
        };
        self.voters.is_empty() || weigh(false) > weigh(true)
    }
}

/// The report that a monitor beside a member pushes about it (`/watch?node`): the order, as that member sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// `wsrep_node_name`.
    pub name: String,
    /// It tells about itself, as far as the monitor can see.
    pub alive: bool,
    pub sequencer: bool,
    pub term: u64,
    pub silent: Vec<String>,
    pub leaderless: bool,
}

/// A report that is older, in seconds, is not passed on as news. It tells every 50 ms.
const PUSHED_AGE_MAX: f64 = 0.5;

impl Pushed {
    /// `None`: it is no such event, or is not of now.
    pub fn parse(json: &str) -> Option<Pushed> {
        let event: serde_json::Value = serde_json::from_str(json).ok()?;
        let text = |name: &str| event[name].as_str();
        let alive = event["alive"].as_bool()?;
        if alive && event["age"].as_f64().is_none_or(|age| age > PUSHED_AGE_MAX) {
            return None;
        }
        let silent = event["silent"].as_array()?;
        Some(Pushed {
            name: text("name").filter(|name| !name.is_empty())?.to_owned(),
            alive,
            sequencer: text("role")? == "sequencer",
            term: event["term"].as_u64()?,
            silent: silent.iter().take(MEMBERS_MAX).filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            leaderless: text("sequencer")?.is_empty(),
        })
    }
}

/// One answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub kind: Kind,
    pub read_only: bool,
    /// Duration of the answer.
    pub took: Duration,
}

/// A group is never larger; a server that lists more is wrong.
const MEMBERS_MAX: usize = 128;

impl Report {
    /// Rows are name and value, as `SHOW` gives them; names in any case.
    pub fn from_rows(status: &[Vec<String>], variables: &[Vec<String>], took: Duration) -> Report {
        let find = |rows: &[Vec<String>], name: &str| -> Option<String> {
            rows.iter().find(|row| row.first().is_some_and(|n| n.eq_ignore_ascii_case(name)))?.get(1).cloned()
        };
        let stat = |name: &str| find(status, name);
        let variable = |name: &str| find(variables, name);
        let on = |value: Option<String>| value.is_some_and(|v| v.eq_ignore_ascii_case("ON") || v == "1");
        let read_only = on(variable("read_only"));
        let provider = stat("wsrep_provider_name").unwrap_or_default();
        // `wsrep_on` is OFF in a server without provider; the status variables exist there too.
        let plain = !on(variable("wsrep_on")) || provider.is_empty();
        if plain {
            return Report { kind: Kind::Plain, read_only, took };
        }
        let number = |name: &str| stat(name).and_then(|v| v.parse::<i64>().ok());
        let names = |text: String| text.split(',').map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect();
        let order = stat("wsrep_trireme_role").map(|role| Order {
            sequencer: role == "sequencer",
            term: stat("wsrep_trireme_term").and_then(|v| v.parse().ok()).unwrap_or(0),
            silent: names(stat("wsrep_trireme_silent").unwrap_or_default()),
            leaderless: stat("wsrep_trireme_sequencer").is_some_and(|name| name.is_empty()),
            out_of_touch: stat("wsrep_trireme_hears_majority").is_some_and(|yes| yes == "no"),
            voters: voters(&stat("wsrep_trireme_voters").unwrap_or_default()).unwrap_or_default(),
        });
        let rejects = |name: &str| variable(name).is_some_and(|v| !v.is_empty() && v != "NONE" && v != "OFF");
        Report {
            kind: Kind::Member(Member {
                trireme: provider == "Trireme",
                name: variable("wsrep_node_name").unwrap_or_default(),
                uuid: stat("wsrep_gcomm_uuid").unwrap_or_default(),
                primary: stat("wsrep_cluster_status").is_some_and(|v| v == "Primary"),
                ready: on(stat("wsrep_ready")),
                state: number("wsrep_local_state").map_or(LocalState::Undefined, LocalState::of),
                desynced: on(variable("wsrep_desync")) || number("wsrep_desync_count").is_some_and(|n| n > 0),
                rejects_queries: rejects("wsrep_reject_queries"),
                donor_rejects_queries: on(variable("wsrep_sst_donor_rejects_queries")),
                index: number("wsrep_local_index").and_then(|n| u32::try_from(n).ok()),
                segment: variable("wsrep_provider_options").and_then(|options| segment(&options)),
                addresses: stat("wsrep_incoming_addresses")
                    .unwrap_or_default()
                    .split(',')
                    .filter_map(Address::incoming)
                    .take(MEMBERS_MAX)
                    .collect(),
                backlog: number("wsrep_local_recv_queue").and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
                order,
            }),
            read_only,
            took,
        }
    }

    pub fn member(&self) -> Option<&Member> {
        match &self.kind {
            Kind::Plain => None,
            Kind::Member(member) => Some(member),
        }
    }

    pub fn order(&self) -> Option<&Order> {
        self.member()?.order.as_ref()
    }
}

/// `NAME:WEIGHT`, with commas between. `None`: it cannot be read, and then says nothing.
fn voters(text: &str) -> Option<Vec<(String, u64)>> {
    let one = |word: &str| {
        let (name, weight) = word.rsplit_once(':')?;
        Some((name.to_owned(), weight.parse::<u8>().ok()?.into()))
    };
    text.split(',').filter(|word| !word.is_empty()).map(one).collect()
}

fn segment(options: &str) -> Option<u8> {
    let value = options.split(';').find_map(|option| option.trim().strip_prefix("gmcast.segment"))?;
    value.trim_start().strip_prefix('=')?.trim().parse().ok()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn rows(pairs: &[(&str, &str)]) -> Vec<Vec<String>> {
        pairs.iter().map(|(name, value)| vec![(*name).to_owned(), (*value).to_owned()]).collect()
    }

    /// A healthy Trireme node for tests elsewhere.
    pub fn synced(name: &str, sequencer: bool, term: u64) -> Report {
        let role = if sequencer { "sequencer" } else { "voter" };
        let status = rows(&[
            ("wsrep_provider_name", "Trireme"),
            ("wsrep_local_state", "4"),
            ("wsrep_ready", "ON"),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_gcomm_uuid", name),
            ("wsrep_trireme_role", role),
            ("wsrep_trireme_term", &term.to_string()),
            ("wsrep_trireme_silent", ""),
        ]);
        Report::from_rows(&status, &rows(&[("wsrep_on", "ON"), ("wsrep_node_name", name)]), Duration::from_millis(1))
    }

    #[test]
    fn a_server_without_provider_is_plain() {
        let report = Report::from_rows(
            &rows(&[("wsrep_local_state", "0"), ("wsrep_provider_name", "")]),
            &rows(&[("wsrep_on", "OFF"), ("read_only", "ON")]),
            Duration::ZERO,
        );
        assert_eq!((report.kind, report.read_only), (Kind::Plain, true));
        assert_eq!(Report::from_rows(&[], &[], Duration::ZERO).kind, Kind::Plain);
    }

    #[test]
    fn a_member_of_a_galera_group() {
        let status = rows(&[
            ("wsrep_provider_name", "Galera"),
            ("wsrep_local_state", "2"),
            ("wsrep_ready", "ON"),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_local_index", "1"),
            ("wsrep_incoming_addresses", "10.0.0.1:3306,AUTO,,10.0.0.2:3307"),
            ("wsrep_local_recv_queue", "17"),
        ]);
        let variables = rows(&[
            ("wsrep_on", "ON"),
            ("wsrep_desync", "ON"),
            ("wsrep_reject_queries", "NONE"),
            ("wsrep_provider_options", "base_host = x; gmcast.segment = 3; gmcast.time_wait = PT5S;"),
        ]);
        let report = Report::from_rows(&status, &variables, Duration::ZERO);
        let member = report.member().unwrap();
        assert!(!member.trireme && member.order.is_none() && member.desynced && !member.rejects_queries);
        assert_eq!((member.state, member.index, member.backlog), (LocalState::Donor, Some(1), 17));
        assert_eq!(member.segment, Some(3));
        assert_eq!(
            member.addresses.iter().map(Address::to_string).collect::<Vec<_>>(),
            ["10.0.0.1:3306", "10.0.0.2:3307"]
        );
    }

    #[test]
    fn a_trireme_node_tells_who_orders() {
        let report = synced("n1", true, 7);
        assert_eq!(
            report.order(),
            Some(&Order {
                sequencer: true,
                term: 7,
                silent: vec![],
                leaderless: false,
                out_of_touch: false,
                voters: vec![]
            })
        );
    }

    #[test]
    fn a_majority_is_counted_by_weight() {
        let majority = |gone: &[&str], told: &str| {
            let told = voters(told).unwrap_or_default();
            let order =
                Order { sequencer: false, term: 1, silent: vec![], leaderless: true, out_of_touch: true, voters: told };
            order.has_majority(|name| gone.contains(&name))
        };
        assert!(majority(&[], "a:1,b:1,c:1"));
        assert!(majority(&["b"], "a:1,b:1,c:1"));
        assert!(!majority(&["b", "c"], "a:1,b:1,c:1"));
        assert!(!majority(&["b"], "a:1,b:1"), "half is none");
        assert!(majority(&["b", "c"], "a:3,b:1,c:1"));
        assert!(majority(&["b", "x"], "a:1,b:1,c:1"), "a member without a vote");
        // Not told, or not understood.
        assert!(majority(&["b", "c"], "") && majority(&["b", "c"], "a:1,b,c:1"));
    }

    #[test]
    fn events_of_a_monitor() {
        let event = |change: fn(&mut serde_json::Value)| {
            let mut event = serde_json::json!({
                "name": "n1", "alive": true, "age": 0.04, "role": "voter", "sequencer": "n2", "term": 7, "silent": ["n3"],
            });
            change(&mut event);
            Pushed::parse(&event.to_string())
        };
        let pushed = event(|_| {}).unwrap();
        assert_eq!((pushed.name.as_str(), pushed.term, pushed.silent.as_slice()), ("n1", 7, &["n3".to_owned()][..]));
        assert!(pushed.alive && !pushed.sequencer && !pushed.leaderless);
        let leader = event(|e| (e["role"], e["sequencer"]) = ("sequencer".into(), "".into())).unwrap();
        assert!(leader.sequencer && leader.leaderless);
        assert_eq!(event(|e| e["age"] = 0.6.into()), None, "old");
        assert!(event(|e| (e["alive"], e["age"]) = (false.into(), 9.into())).is_some_and(|gone| !gone.alive));
        for wrong in ["name", "alive", "age", "role", "sequencer", "term", "silent"] {
            let mut event = serde_json::json!({
                "name": "n1", "alive": true, "age": 0.04, "role": "voter", "sequencer": "n2", "term": 7, "silent": [],
            });
            event[wrong] = serde_json::Value::Null;
            assert_eq!(Pushed::parse(&event.to_string()), None, "{wrong}");
        }
        assert_eq!(Pushed::parse("{\"nodes\": []}"), None);
        assert_eq!(Pushed::parse("[1"), None);
    }
}
