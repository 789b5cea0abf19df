//! From what was typed to what is done.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

use crate::address::{Address, MYSQL_PORT};
use crate::options::{Serve, Words};
use crate::policy::Policy;
use crate::pool::{Role, Settings};
use crate::proxy::Network;
use crate::shell::check_ca;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerConfig {
    pub address: Address,
    pub role: Role,
    pub policy: Policy,
    pub top: bool,
}

/// The way to find out a server's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// By a login, and questions.
    Login,
    /// By a program.
    Exec(String),
    /// Not at all, as GLB without a watchdog: a server is good until it refuses a client.
    Passive,
}

/// The writes that a read of a `--split` listener has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Causal {
    /// All that was committed before it.
    All,
    /// Those that its client made or read before.
    Own,
}

/// Where monitors of the servers are listened to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Monitors {
    Off,
    /// At this port of each server's host, if one answers there.
    Beside(u16),
    At(Vec<Address>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub listeners: Vec<ListenerConfig>,
    pub nodes: Vec<(Address, f64)>,
    pub settings: Settings,
    pub user: String,
    pub password: String,
    /// Looks log in by TLS, to servers whose certificate this file's signed.
    pub tls_ca: Option<PathBuf>,
    pub interval: Duration,
    pub timeout: Duration,
    pub connect_timeout: Duration,
    pub hold: Duration,
    /// `None`: as the limit of open files allows.
    pub max_connections: Option<usize>,
    pub check: Check,
    pub causal: Causal,
    pub monitors: Monitors,
    /// A word that monitors ask for.
    pub monitor_token: Option<String>,
    pub send_proxy: bool,
    pub accept_proxy: Vec<Network>,
    pub control: Option<Address>,
    pub http: Option<Address>,
    pub nodelay: bool,
    pub keepalive: bool,
}

/// Where `trireme monitor` answers.
pub const MONITOR_PORT: u16 = 9105;

/// Shorter looks would be a load of their own.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

impl Config {
    /// Resolves what was typed, together with the file that it names.
    pub fn resolve(typed: &Serve) -> Result<Config, String> {
        let Some(path) = &typed.config else { return Config::of(typed) };
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let words = file_words(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut file = Words::try_parse_from(words).map_err(|e| format!("{}: {e}", path.display()))?.serve;
        if file.config.is_some() || file.takeover.is_some() || file.threads.is_some() {
            return Err(format!("{}: config, takeover and threads can only be typed", path.display()));
        }
        overlay(&mut file, typed);
        Config::of(&file)
    }

    fn of(o: &Serve) -> Result<Config, String> {
        let policy: Policy = o.policy.parse()?;
        let mut listeners = Vec::new();
        for (role, addresses) in
            [(Role::Writer, &o.writer), (Role::Reader, &o.reader), (Role::Any, &o.any), (Role::Split, &o.split)]
        {
            for text in addresses {
                listeners.push(ListenerConfig { address: Address::listener(text, &o.bind)?, role, policy, top: o.top });
            }
        }
        for text in &o.listen {
            listeners.push(listener(text, &o.bind, policy, o.top)?);
        }
        if listeners.is_empty() {
            return Err("no listener is named: use --writer, --reader, --any, --split or --listen".to_owned());
        }
        for (i, one) in listeners.iter().enumerate() {
            let zero = matches!(one.address, Address::Tcp { port: 0, .. });
            if !zero && listeners[..i].iter().any(|other| other.address == one.address) {
                return Err(format!("two listeners at {}", one.address));
            }
        }
        let nodes: Vec<(Address, f64)> =
            o.nodes.iter().map(|text| server(text, MYSQL_PORT)).collect::<Result<_, _>>()?;
        let (interval, timeout) = (time("interval", &o.interval)?, time("timeout", &o.timeout)?);
        if interval < INTERVAL_MIN || timeout < INTERVAL_MIN {
            return Err(format!("--interval and --timeout must be {} ms at least", INTERVAL_MIN.as_millis()));
        }
        let limit = |name: &str, value: Option<usize>| match value {
            Some(0) => Err(format!("--{name} 0 would serve nobody")),
            other => Ok(other),
        };
        limit("connecting-limit", Some(o.connecting_limit))?;
        Ok(Config {
            listeners,
            nodes,
            settings: Settings {
                fresh: interval * 2 + timeout,
                grace: time("grace", &o.grace)?,
                ramp: time("ramp", &o.ramp)?,
                node_limit: limit("node-limit", o.node_limit)?.unwrap_or(usize::MAX),
                connecting_limit: o.connecting_limit,
                discover: !o.no_discover,
                segment: o.segment,
                by_latency: o.by_latency,
            },
            user: o.user.clone(),
            password: o.password_file.as_deref().map(first_line).transpose()?.unwrap_or_default(),
            tls_ca: o.tls_ca.clone().map(|file| check_ca(&file).map(|()| file)).transpose()?,
            interval,
            timeout,
            connect_timeout: time("connect-timeout", &o.connect_timeout)?,
            hold: time("hold", &o.hold)?,
            max_connections: limit("max-connections", o.max_connections)?,
            check: o.exec.clone().map_or(Check::Login, Check::Exec),
            causal: match (o.causal.as_str(), &o.exec) {
                ("all", _) => Causal::All,
                ("own", None) => Causal::Own,
                ("own", Some(_)) => {
                    return Err("--causal own needs an account to ask with, and --exec has none".to_owned());
                }
                (other, _) => return Err(format!("--causal {other}: all or own")),
            },
            monitors: monitors(&o.monitors)?,
            monitor_token: o.monitor_token_file.as_deref().map(first_line).transpose()?,
            send_proxy: o.send_proxy,
            accept_proxy: o.accept_proxy.iter().map(|text| Network::parse(text)).collect::<Result<_, _>>()?,
            control: o.control.as_deref().map(|text| local(text, "control")).transpose()?,
            http: o.http.as_deref().map(|text| Address::listener(text, "127.0.0.1")).transpose()?,
            nodelay: true,
            keepalive: true,
        })
    }
}

/// The control socket has no password. Everybody who reaches it rules the balancer.
fn local(text: &str, name: &str) -> Result<Address, String> {
    let address = Address::listener(text, "127.0.0.1")?;
    match address.ip() {
        Some(ip) if !ip.is_loopback() => Err(format!("--{name} {text}: only loopback or a unix socket")),
        None if matches!(&address, Address::Tcp { host, .. } if host != "localhost") => {
            Err(format!("--{name} {text}: only loopback or a unix socket"))
        }
        Some(_) | None => Ok(address),
    }
}

/// `HOST[:PORT[:WEIGHT]]`; what has brackets or is a path takes `=WEIGHT` too.
pub fn server(text: &str, default_port: u16) -> Result<(Address, f64), String> {
    let weight_of = |digits: &str| match digits.parse::<f64>() {
        Ok(weight) if weight.is_finite() && weight >= 0.0 => Ok(weight),
        Ok(_) | Err(_) => Err(format!("`{text}`: `{digits}` is no weight (a number from 0 on)")),
    };
    if let Some((address, weight)) = text.rsplit_once('=') {
        return Ok((Address::server(address, default_port)?, weight_of(weight)?));
    }
    let plain = !text.starts_with(['[', '/']);
    match text.rsplit_once(':') {
        Some((address, weight)) if plain && text.matches(':').count() == 2 && !text.starts_with("::") => {
            Ok((Address::server(address, default_port)?, weight_of(weight)?))
        }
        Some((address, weight)) if text.starts_with('[') && address.contains("]:") => {
            Ok((Address::server(address, default_port)?, weight_of(weight)?))
        }
        Some(_) | None => Ok((Address::server(text, default_port)?, 1.0)),
    }
}

fn listener(text: &str, bind: &str, policy: Policy, top: bool) -> Result<ListenerConfig, String> {
    let wrong = || format!("`{text}` is no listener: write ADDRESS=ROLE[:POLICY[:top]]");
    let (address, kind) = text.rsplit_once('=').ok_or_else(wrong)?;
    let mut words = kind.split(':');
    let role = match words.next() {
        Some("writer") => Role::Writer,
        Some("reader") => Role::Reader,
        Some("any") => Role::Any,
        Some("split") => Role::Split,
        Some(_) | None => return Err(wrong()),
    };
    let policy = words.next().map(str::parse).transpose()?.unwrap_or(policy);
    let top = match words.next() {
        None => top,
        Some("top") => true,
        Some(_) => return Err(wrong()),
    };
    Ok(ListenerConfig { address: Address::listener(address, bind)?, role, policy, top })
}

/// `off`, a port, or addresses.
fn monitors(words: &[String]) -> Result<Monitors, String> {
    match words {
        [word] if word == "off" => Ok(Monitors::Off),
        [word] if word.bytes().all(|byte| byte.is_ascii_digit()) => match word.parse() {
            Ok(port) if port > 0 => Ok(Monitors::Beside(port)),
            Ok(_) | Err(_) => Err(format!("--monitors {word}: a port is 1 to 65535; `off` for none")),
        },
        _ => words.iter().map(|word| Address::server(word, MONITOR_PORT)).collect::<Result<_, _>>().map(Monitors::At),
    }
}

/// `250ms`, `5s`, `1m`, or seconds without a unit.
pub fn time(name: &str, text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("--{name} {text}: the units are ms, s, m and h")),
    };
    let seconds = number.parse::<f64>().map_err(|_| format!("--{name} {text}: write a time like 250ms or 5s"))? * scale;
    if seconds > 86_400.0 {
        return Err(format!("--{name} {text}: more than a day"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn first_line(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// `name = value` lines to words of a command line. A name alone, or with `yes`, is a switch.
fn file_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"'))),
            None => (line, None),
        };
        if name.is_empty() || name.starts_with('-') || name.contains(char::is_whitespace) {
            return Err(format!("line {}: `{line}` is not of the form name = value", i + 1));
        }
        let switch = matches!(name, "top" | "no-discover" | "by-latency" | "send-proxy");
        match value {
            Some("yes") | None if switch => words.push(format!("--{name}")),
            Some("no") if switch => {}
            _ if switch => return Err(format!("line {}: {name} is yes or no", i + 1)),
            Some(value) => words.push(format!("--{name}={value}")),
            None => return Err(format!("line {}: {name} needs a value", i + 1)),
        }
    }
    Ok(words)
}

/// Puts what was typed over what a file says. An option that has a default counts as typed if it differs from that.
fn overlay(file: &mut Serve, typed: &Serve) {
    let default = Words::default_serve();
    macro_rules! take {
        ($($field:ident),*) => { $( if typed.$field != default.$field { file.$field = typed.$field.clone(); } )* };
    }
    take!(
        nodes,
        writer,
        reader,
        any,
        split,
        causal,
        listen,
        policy,
        top,
        bind,
        user,
        password_file,
        tls_ca,
        interval,
        timeout,
        connect_timeout
    );
    take!(hold, grace, ramp, max_connections, node_limit, connecting_limit, no_discover, segment, by_latency, exec);
    take!(monitors, monitor_token_file, send_proxy, accept_proxy, control, http);
    let Serve { config: _, takeover: _, threads: _, .. } = file;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &[&str]) -> Serve {
        Words::try_parse_from(words).unwrap().serve
    }

    fn resolve(words: &[&str]) -> Result<Config, String> {
        Config::resolve(&typed(words))
    }

    #[test]
    fn one_line_is_a_whole_configuration() {
        let config = resolve(&["--nodes", "127.0.0.1:3306", "--writer", "3307", "--reader", "3308"]).unwrap();
        assert_eq!(config.listeners.iter().map(|l| l.role).collect::<Vec<_>>(), [Role::Writer, Role::Reader]);
        assert_eq!(config.listeners[0].address.to_string(), "[::]:3307");
        assert_eq!(config.hold, Duration::from_secs(5));
    }

    #[test]
    fn servers_with_weights() {
        let read = |text: &str| server(text, 3306).map(|(address, weight)| (address.to_string(), weight));
        assert_eq!(read("a"), Ok(("a:3306".into(), 1.0)));
        assert_eq!(read("a:1:2.5"), Ok(("a:1".into(), 2.5)));
        assert_eq!(read("[::1]:1:2"), Ok(("[::1]:1".into(), 2.0)));
        assert_eq!(read("[::1]:1"), Ok(("[::1]:1".into(), 1.0)));
        assert_eq!(read("::1"), Ok(("[::1]:3306".into(), 1.0)));
        assert_eq!(read("/run/s=3"), Ok(("/run/s".into(), 3.0)));
        assert!(read("a:1:x").is_err() && read("a:1:-1").is_err() && read("a:1:inf").is_err());
    }

    #[test]
    fn listeners_with_policies() {
        let config =
            resolve(&["--nodes", "a", "--listen", "127.0.0.1:3310=any:source:top", "--policy", "round"]).unwrap();
        let one = &config.listeners[0];
        assert_eq!((one.role, one.policy, one.top), (Role::Any, Policy::Source, true));
        for bad in ["3310", "3310=all", "3310=any:fastest", "3310=any:least:bottom"] {
            assert!(resolve(&["--nodes", "a", "--listen", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_reason() {
        assert!(resolve(&["--nodes", "a"]).unwrap_err().contains("--writer"));
        assert!(resolve(&["--nodes", "", "--writer", "1"]).is_err());
        assert!(resolve(&["--nodes", "a", "--writer", "1", "--reader", "1"]).unwrap_err().contains("two listeners"));
        assert!(resolve(&["--nodes", "a", "--writer", "1", "--hold", "5y"]).is_err());
        assert!(resolve(&["--nodes", "a", "--writer", "1", "--interval", "0"]).is_err());
        assert!(resolve(&["--nodes", "a", "--writer", "1", "--control", "10.0.0.1:4444"]).is_err());
        assert!(resolve(&["--nodes", "a", "--writer", "1", "--node-limit", "0"]).is_err());
        assert!(resolve(&["--nodes", "a", "--split", "1", "--causal", "none"]).is_err());
        assert!(resolve(&["--nodes", "a", "--split", "1", "--causal", "own", "--exec", "x"]).is_err());
    }

    #[test]
    fn monitors_beside_the_servers_named_ones_and_none() {
        let of = |text: &str| resolve(&["--nodes", "a", "--writer", "1", "--monitors", text]).map(|c| c.monitors);
        assert_eq!(resolve(&["--nodes", "a", "--writer", "1"]).unwrap().monitors, Monitors::Beside(MONITOR_PORT));
        assert_eq!((of("off"), of("9200")), (Ok(Monitors::Off), Ok(Monitors::Beside(9200))));
        let named = |text: &str| Address::server(text, 0).unwrap();
        assert_eq!(of("a,b:1,/run/m"), Ok(Monitors::At(vec![named("a:9105"), named("b:1"), named("/run/m")])));
        assert!(of("0").is_err() && of("70000").is_err() && of("a,off:x").is_err());
    }

    #[test]
    fn times() {
        assert_eq!(time("x", "250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(time("x", "1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("x", "2m"), Ok(Duration::from_secs(120)));
        assert!(time("x", "").is_err() && time("x", "-1s").is_err() && time("x", "1w").is_err());
    }

    #[test]
    fn a_file_and_what_is_typed_over_it() {
        let path = std::env::temp_dir().join(format!("trireme-balance-test-{}", std::process::id()));
        std::fs::write(&path, "# servers\nnodes = a:1, b:2:3\nwriter = 1\n\nhold = \"9s\"\nsend-proxy = yes\n")
            .unwrap();
        let file = path.to_str().unwrap();
        let config = resolve(&["--config", file, "--hold", "2s"]).unwrap();
        assert_eq!((config.nodes.len(), config.hold, config.send_proxy), (2, Duration::from_secs(2), true));
        assert!(resolve(&["--config", "/nonexistent"]).is_err());
        for bad in ["nonsense = 1", "--nodes = a", "send-proxy = maybe", "hold", "takeover = /x"] {
            std::fs::write(&path, format!("nodes = a\nwriter = 1\n{bad}\n")).unwrap();
            assert!(resolve(&["--config", file]).is_err(), "{bad}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
