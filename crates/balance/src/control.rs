//! The commands of the control socket: GLB's, and ours beside them. One line each.

use crate::address::Address;
use crate::config;

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// GLB's table.
    GetInfo,
    /// GLB's line of statistics.
    GetStat,
    /// Everything, as JSON.
    Status,
    /// Adds a server or changes its weight; 0 drains it. `named`: as it was typed, which may be the name of a server that is there.
    Set {
        named: String,
        address: Address,
        weight: f64,
    },
    /// GLB: a negative weight.
    Remove(String),
    /// With `true`, its sessions end at once.
    Drain(String, bool),
    Undrain(String),
    /// As SIGHUP.
    Reload,
    /// Hands the listeners to the one who asks.
    Handover,
    /// Starts the program anew, as it is on disk now, and hands the listeners to it.
    Upgrade,
    /// Ends with the last session, as after SIGUSR1.
    Leave,
    Help,
}

pub const HELP: &str = "\
status                       everything, as JSON
getinfo                      servers and connections, as a table
getstat                      traffic since the last getstat, in one line
set SERVER WEIGHT            add a server or change its weight; 0: no new clients
add SERVER [WEIGHT]          the same, with weight 1
HOST:PORT:WEIGHT             the same, as GLB has it; a negative weight removes
remove SERVER                remove a server, and end its sessions
drain SERVER [now]           no new clients; with `now` its sessions end
undrain SERVER               new clients again
reload                       read the file of --config again
upgrade                      start the program on disk, which takes the clients that come from then on
leave                        no new clients; end with the last session
SERVER is HOST:PORT, [IPV6]:PORT, a socket's path, or the server's name
";

/// The longest line that is read.
pub const LINE_MAX: usize = 1024;

pub fn parse(line: &str, default_port: u16) -> Result<Command, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let weight = |text: &str| match text.parse::<f64>() {
        Ok(weight) if weight.is_finite() => Ok(weight),
        Ok(_) | Err(_) => Err(format!("`{text}` is no weight")),
    };
    let set = |text: &str, weight: f64| match weight < 0.0 {
        true => Ok(Command::Remove(text.to_owned())),
        false => {
            Address::server(text, default_port).map(|address| Command::Set { named: text.to_owned(), address, weight })
        }
    };
    match words[..] {
        ["getinfo"] => Ok(Command::GetInfo),
        ["getstat"] => Ok(Command::GetStat),
        ["status"] => Ok(Command::Status),
        ["reload"] => Ok(Command::Reload),
        ["handover"] => Ok(Command::Handover),
        ["upgrade"] => Ok(Command::Upgrade),
        ["leave"] => Ok(Command::Leave),
        ["help"] => Ok(Command::Help),
        ["set", server, text] => set(server, weight(text)?),
        ["add", server] => set(server, 1.0),
        ["add", server, text] => set(server, weight(text)?),
        ["remove", server] => Ok(Command::Remove(server.to_owned())),
        ["drain", server] => Ok(Command::Drain(server.to_owned(), false)),
        ["drain", server, "now"] => Ok(Command::Drain(server.to_owned(), true)),
        ["undrain", server] => Ok(Command::Undrain(server.to_owned())),
        [glb] if glb.contains([':', '=']) => match glb.rsplit_once(':') {
            Some((server, text)) if text.starts_with('-') && weight(text).is_ok() => {
                Ok(Command::Remove(Address::server(server, default_port)?.to_string()))
            }
            _ => {
                let (address, weight) = config::server(glb, default_port)?;
                Ok(Command::Set { named: address.to_string(), address, weight })
            }
        },
        [] => Err("an empty line".to_owned()),
        _ => Err("no such command; `help` lists them".to_owned()),
    }
}

/// GLB's `getstat`, of what was counted since the last one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    pub to_server_bytes: u64,
    pub to_client_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    pub opened: u64,
    pub now: u64,
    pub elapsed_seconds: f64,
}

impl Stat {
    pub fn line(&self) -> String {
        let bytes = self.to_server_bytes + self.to_client_bytes;
        // Each byte is received once and sent once. Polls are not counted apart from reads and writes.
        format!(
            "in: {} out: {} recv: {bytes} / {} send: {bytes} / {} conns: {} / {} poll: {} / {} / {} elapsed: {:.6}\n",
            self.to_server_bytes,
            self.to_client_bytes,
            self.reads,
            self.writes,
            self.opened,
            self.now,
            self.reads,
            self.writes,
            self.reads + self.writes,
            self.elapsed_seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(named: &str, at: &str, weight: f64) -> Result<Command, String> {
        Ok(Command::Set { named: named.to_owned(), address: Address::server(at, 3306).unwrap(), weight })
    }

    #[test]
    fn glbs_commands() {
        assert_eq!(parse("getinfo\n", 3306), Ok(Command::GetInfo));
        assert_eq!(parse("10.0.0.1:3306:2", 3306), set("10.0.0.1:3306", "10.0.0.1:3306", 2.0));
        assert_eq!(parse("10.0.0.1:3306:0", 3306), set("10.0.0.1:3306", "10.0.0.1:3306", 0.0));
        assert_eq!(parse("10.0.0.1:3306:-1", 3306), Ok(Command::Remove("10.0.0.1:3306".into())));
        assert_eq!(parse("10.0.0.1:3307", 3306), set("10.0.0.1:3307", "10.0.0.1:3307", 1.0));
    }

    #[test]
    fn our_commands() {
        assert_eq!(parse(" drain  node1 now ", 3306), Ok(Command::Drain("node1".into(), true)));
        assert_eq!(parse("set [::1]:5 0.5", 3306), set("[::1]:5", "[::1]:5", 0.5));
        assert_eq!(parse("add a", 3306), set("a", "a:3306", 1.0));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["", " ", "drain", "set a", "set a nan", "set a inf", "getinfo x", "GET / HTTP/1.1", "a:b:c", "x"] {
            assert!(parse(bad, 3306).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_line_of_statistics() {
        let stat = Stat {
            to_server_bytes: 1,
            to_client_bytes: 2,
            reads: 3,
            writes: 4,
            opened: 5,
            now: 6,
            elapsed_seconds: 1.5,
        };
        assert_eq!(
            stat.line(),
            "in: 1 out: 2 recv: 3 / 3 send: 3 / 4 conns: 5 / 6 poll: 3 / 4 / 7 elapsed: 1.500000\n"
        );
    }
}
