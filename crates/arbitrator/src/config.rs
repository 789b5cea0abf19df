//! The configuration, complete and checked: command line before file before defaults.

use std::fs;
use std::path::{Path, PathBuf};

use trireme_surface::address::{Backend, ClusterAddress};
use trireme_surface::{Defaults, Options};

use crate::Arbitrate;
use crate::place;

/// Longest member name in bytes; older tools read no more.
const NAME_MAX: usize = 31;
/// Longest cluster name in bytes (`gmcast.group`).
const GROUP_MAX: usize = 32;
/// History that is kept in any case. A joiner never comes here for it, so little will do.
const LOG_SIZE: &str = "32M";

/// A run to be done.
#[derive(Debug)]
pub struct Plan {
    pub address: String,
    pub group: String,
    pub name: String,
    /// Provider options, ours first: what comes later wins.
    pub options: String,
    pub dir: PathBuf,
    /// Bound on the log for the sake of servers that are away, in bytes.
    pub log_max: u64,
    pub log: Option<PathBuf>,
    pub daemon: bool,
    pub request: Option<Request>,
    pub status_file: Option<PathBuf>,
    /// Files with the secret, or with key, certificates and revocation list.
    pub secrets: Vec<PathBuf>,
}

/// Something that a server shall do for somebody else.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// As the server reads it: method and argument, each with a zero byte behind it.
    pub bytes: Vec<u8>,
    pub donor: String,
}

impl Request {
    fn new(sst: &str, donor: String) -> Result<Request, String> {
        let (method, argument) = sst.split_once(':').unwrap_or((sst, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if method.is_empty() || !method.chars().all(plain) {
            return Err(format!(
                "--sst {sst}: METHOD names a script wsrep_sst_METHOD of the server: letters, digits and _"
            ));
        }
        Ok(Request { bytes: format!("{method}\0{argument}\0").into_bytes(), donor })
    }
}

/// Reads the file, fills in defaults, checks. Opens no log; makes only the directory of a member that stays for a moment.
pub fn resolve(mut asked: Arbitrate) -> Result<Plan, String> {
    if let Some(path) = asked.cfg.clone() {
        let text = fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        merge(&mut asked, &text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let address = asked.address.or(asked.positional).filter(|a| !a.is_empty());
    let address = address.ok_or("Group address not specified: give it with --address gcomm://host1,host2")?;
    let group = asked.group.filter(|g| !g.is_empty());
    let group = group.ok_or("Group name not specified: give the servers' wsrep_cluster_name with --group")?;
    if group.len() > GROUP_MAX {
        return Err(format!("--group {group}: a cluster name has at most {GROUP_MAX} bytes"));
    }
    let name = asked.name.filter(|n| !n.is_empty()).unwrap_or_else(|| "garb".into());
    if name.len() > NAME_MAX {
        return Err(format!("--name {name}: a member's name has at most {NAME_MAX} bytes"));
    }
    let target = ClusterAddress::parse(&address).map_err(|e| format!("--address {address}: {e}"))?;
    if target.backend != Backend::Gcomm || target.peers.iter().all(|p| p.is_any()) {
        return Err(format!(
            "--address {address}: an arbitrator needs servers to arbitrate between: gcomm://host1,host2 (it cannot begin a \
             cluster)"
        ));
    }
    let request = match asked.sst.as_deref() {
        // garbd sends this when it wants nothing.
        None | Some("" | "trivial") => None,
        Some(sst) => Some(Request::new(sst, asked.donor.unwrap_or_default())?),
    };
    let given = asked.options.unwrap_or_default();
    let known = read_options(&given)?;
    let port = known.listen().port.unwrap_or_else(|| known.base_port());
    let (log, status_file) =
        (asked.log.map(|p| absolute(&p)).transpose()?, asked.status_file.map(|p| absolute(&p)).transpose()?);
    let dir = match (&request, asked.workdir) {
        // Stays for a moment and decides nothing: what it writes is not worth a place.
        (Some(_), _) => place::passing()?,
        (None, Some(dir)) => absolute(&dir)?,
        (None, None) => place::usual(&group, port)?,
    };
    let shown = dir.display();
    if shown.to_string().contains([';', '=', '\\']) {
        return Err(format!("--workdir {shown}: the directory's name must not contain ; = or \\"));
    }
    let mut options = format!("gcache.size={LOG_SIZE}; base_dir={shown}; gcache.dir={shown}; {given}");
    if request.is_some() {
        options.push_str("; pc.weight=0; pc.recovery=no");
    }
    let log_max = if known.is_set("gcache.size") { known.size("gcache.size") } else { place::half_of_free_space(&dir) };
    let secrets = files_of(&known);
    Ok(Plan { address, group, name, options, dir, log_max, log, daemon: asked.daemon, request, status_file, secrets })
}

/// How the group's traffic is protected.
fn files_of(options: &Options) -> Vec<PathBuf> {
    let names = [
        "repl.secret_file",
        "socket.ssl_key",
        "socket.ssl_cert",
        "socket.ssl_ca",
        "socket.ssl_password_file",
        "socket.ssl_crl",
    ];
    names.map(|name| options.text(name)).into_iter().filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// A daemon has another working directory.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn read_options(given: &str) -> Result<Options, String> {
    let mut options = Options::new(Defaults { data_dir: String::new(), node_address: String::new() });
    options.set_at_start(given).map_err(|errors| {
        let lines: Vec<String> = errors.iter().flat_map(|e| e.log_lines()).collect();
        format!("--options: {}", lines.join("; "))
    })?;
    Ok(options)
}

/// Lines `name = value`; one pair of double quotes around a value is taken off.
fn merge(asked: &mut Arbitrate, text: &str) -> Result<(), String> {
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| Err(format!("line {}: {why}", number + 1));
        let Some((key, value)) = line.split_once('=') else { return wrong("not `name = value`") };
        let value = value.trim();
        let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value).to_string();
        match key.trim() {
            // Typed in either way, it wins.
            "address" if asked.positional.is_some() => {}
            "address" => _ = asked.address.get_or_insert(value),
            "group" => _ = asked.group.get_or_insert(value),
            "options" => _ = asked.options.get_or_insert(value),
            "name" => _ = asked.name.get_or_insert(value),
            "workdir" => _ = asked.workdir.get_or_insert(value.into()),
            "log" => _ = asked.log.get_or_insert(value.into()),
            "sst" => _ = asked.sst.get_or_insert(value),
            "donor" => _ = asked.donor.get_or_insert(value),
            "daemon" => match value.as_str() {
                "1" | "yes" | "true" | "on" | "" => asked.daemon = true,
                "0" | "no" | "false" | "off" => {}
                _ => return wrong("daemon is yes or no"),
            },
            other => {
                return wrong(&format!(
                    "unknown name {other}; known are address, group, options, name, workdir, log, daemon, sst, donor"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(address: &str, group: &str) -> Arbitrate {
        Arbitrate {
            address: Some(address.into()),
            group: Some(group.into()),
            workdir: Some("/var/tmp/arbitrator".into()),
            ..Arbitrate::default()
        }
    }

    #[test]
    fn what_is_missing_or_senseless_is_named() {
        let refusal = |a| resolve(a).unwrap_err();
        assert!(refusal(asked("", "g")).contains("Group address not specified"));
        assert!(refusal(asked("gcomm://a", "")).contains("Group name not specified"));
        for nobody in ["gcomm://", "gcomm://0.0.0.0", "dummy://a"] {
            assert!(refusal(asked(nobody, "g")).contains("needs servers"), "{nobody}");
        }
        assert!(refusal(asked("http://a", "g")).contains("http://a"));
        assert!(
            refusal(Arbitrate { options: Some("nonsense=1".into()), ..asked("gcomm://a", "g") }).contains("nonsense")
        );
        assert!(refusal(Arbitrate { sst: Some("../x".into()), ..asked("gcomm://a", "g") }).contains("--sst"));
        assert!(refusal(Arbitrate { name: Some("x".repeat(32)), ..asked("gcomm://a", "g") }).contains("31"));
    }

    #[test]
    fn an_explicit_gcache_size_is_the_bound() {
        let plan = resolve(Arbitrate { options: Some("gcache.size=7M".into()), ..asked("gcomm://a", "g") }).unwrap();
        assert_eq!(plan.log_max, 7 << 20);
    }

    #[test]
    fn a_file_fills_in_what_was_not_typed() {
        let mut a = Arbitrate { group: Some("typed".into()), ..Arbitrate::default() };
        merge(&mut a, "# comment\naddress = \"gcomm://a,b\"\ngroup=file\ndaemon = yes\n").unwrap();
        assert_eq!((a.address.as_deref(), a.group.as_deref(), a.daemon), (Some("gcomm://a,b"), Some("typed"), true));
        assert!(merge(&mut a, "colour = red").unwrap_err().contains("line 1: unknown name colour"));
        assert!(merge(&mut a, "\nnonsense").unwrap_err().contains("line 2"));
    }

    #[test]
    fn a_request_is_what_the_server_reads() {
        assert_eq!(Request::new("backup", "n1".into()).unwrap().bytes, b"backup\0\0");
        assert_eq!(Request::new("backup:host:44/x", String::new()).unwrap().bytes, b"backup\0host:44/x\0");
        assert_eq!(
            resolve(Arbitrate { sst: Some("trivial".into()), ..asked("gcomm://a", "g") }).unwrap().request,
            None
        );
    }
}
