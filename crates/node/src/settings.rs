//! Options in force: the table of `surface`, with what is read on hot paths kept aside.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trireme_order::{Config, Limits, Timeouts};
use trireme_surface::address::{Backend, ClusterAddress};
use trireme_surface::options::value::parse_bool;
use trireme_surface::{Defaults, OptionError, Options, secret, texts};
use trireme_transport::{
    BadPeerNames, CERTIFICATES_FILE, NetConfig, OtherCertificate, PeerNames, SECRET_LEN, ShownBy, Shows, TlsContext,
    TlsError, TlsFiles, parse_shown, print_shown,
};
use trireme_types::{Durability, Level as GroupLevel, Member};
use trireme_wslog::{KEY_BYTES, LogKeys};

use crate::space::free_space;
use crate::{InitArgs, Level};

/// Options that cannot be used as they are. The text of each is the operator's: it names the option, the file, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{}", lines(.0).join("; "))]
    Options(Vec<OptionError>),
    /// Galera's chain of log lines.
    #[error("{0}")]
    Address(String),
    #[error("{}", lines(.0).join("\n"))]
    AddressOptions(Vec<OptionError>),
    /// A file with a secret, which `option` names.
    #[error("{option}: {why}")]
    Secret { option: &'static str, why: String },
    #[error("socket.ssl_peer_names: {0}")]
    PeerNames(#[from] BadPeerNames),
    #[error(
        "{why}. It says whose certificate each node showed last (repl.other_certificate); if it is of no use, remove it: {}",
        path.display()
    )]
    KeptCertificates { why: String, path: PathBuf },
    /// The files of TLS do not fit.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The disk does not take the file. The text is a line for the log.
#[derive(Debug, thiserror::Error)]
#[error("whose certificates the nodes show is not kept over a restart: {} cannot be written: {source}", path.display())]
pub struct CertificatesNotKept {
    path: PathBuf,
    source: io::Error,
}

fn lines(errors: &[OptionError]) -> Vec<String> {
    errors.iter().flat_map(OptionError::log_lines).collect()
}

/// See the module.
pub struct Settings {
    options: Mutex<Options>,
    max_ws_size: AtomicU64,
    causal_read_ms: AtomicU64,
    log_conflicts: AtomicBool,
    optimistic_pa: AtomicBool,
    status_extended: AtomicBool,
    debug: AtomicBool,
}

/// The year 2026: a clock that shows less is wrong.
const UNIX_TIME_MIN: Duration = Duration::from_secs(1_767_225_600);
/// Long enough to get a new certificate, even over holidays.
const EXPIRY_WARNING_DAYS: i32 = 30;
/// Lists are issued far more often than certificates.
const CRL_WARNING_DAYS: i32 = 7;

pub const DURABILITY: &str = "repl.durability";
/// Beyond it the group level does not rise while this node is in.
pub const LEVEL_HOLD: &str = "repl.proto_max";

/// Options of flow control.
#[derive(Clone, Copy, Debug)]
pub struct FlowSettings {
    pub limit: u64,
    pub factor: f64,
    pub single_primary: bool,
    pub donors_count: bool,
    pub patience: Duration,
}

/// Where `wsrep_cluster_address` leads.
pub enum Target {
    /// `dummy://`: no network.
    Alone,
    Peers(Vec<String>),
}

impl Settings {
    pub fn new(args: &InitArgs) -> Result<Settings, SettingsError> {
        let mut options =
            Options::new(Defaults { data_dir: args.data_dir.clone(), node_address: args.node_address.clone() });
        options.set_at_start(&args.options).map_err(SettingsError::Options)?;
        let settings = Settings {
            options: Mutex::new(options),
            max_ws_size: AtomicU64::new(0),
            causal_read_ms: AtomicU64::new(0),
            log_conflicts: AtomicBool::new(false),
            optimistic_pa: AtomicBool::new(true),
            status_extended: AtomicBool::new(false),
            debug: AtomicBool::new(false),
        };
        settings.with(|o| o.set_group_connected(false));
        settings.cache();
        // A fault in the files is found now, not when the network is wanted.
        settings.tls(None)?;
        Ok(settings)
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Options) -> T) -> T {
        look(&mut self.options.lock().expect("no holder of the options panics"))
    }

    /// Key, certificates and authorities, or the secret, as the files hold them now; `None` in clear text. `peers` are the names of
    /// certificates that are about to be taken, instead of those in force.
    pub fn tls(&self, peers: Option<&str>) -> Result<Option<TlsContext>, SettingsError> {
        if let Some(path) = self.with(|o| o.secret_file().map(PathBuf::from)) {
            let bad = |why: String| SettingsError::Secret { option: "repl.secret_file", why };
            let text = trireme_private::read_secret(&path).map_err(bad)?;
            let text = text.ok_or_else(|| {
                bad(format!("there is no {0}: make one with `trireme secret new {0}`", path.display()))
            })?;
            let secrets =
                secret::parse(&text, secret::Use::Members).map_err(|why| bad(format!("{}: {why}", path.display())))?;
            let secrets: Vec<[u8; SECRET_LEN]> = secrets.into_iter().map(|secret| secret.0).collect();
            return Ok(Some(TlsContext::of_secrets(&secrets)?));
        }
        let names = peers.map_or_else(|| self.with(|o| o.text("socket.ssl_peer_names").to_owned()), str::to_owned);
        let peers = PeerNames::parse(&names)?;
        let files = self.with(|o| {
            o.tls().then(|| {
                let path = |name| PathBuf::from(o.text(name));
                let set = |name| Some(path(name)).filter(|path| !path.as_os_str().is_empty());
                TlsFiles {
                    key: path("socket.ssl_key"),
                    cert: path("socket.ssl_cert"),
                    // A certificate that signs itself is its own authority.
                    ca: set("socket.ssl_ca").unwrap_or_else(|| path("socket.ssl_cert")),
                    password: set("socket.ssl_password_file"),
                    ciphers: o.text("socket.ssl_cipher").to_owned(),
                    crl: set("socket.ssl_crl"),
                    peers: peers.clone(),
                }
            })
        });
        Ok(files.map(|files| TlsContext::load(&files)).transpose()?)
    }

    /// Where the flight recorder's file lies, beside the log, and its size; `None`: it is switched off.
    pub fn flight_file(&self) -> Option<(PathBuf, u64)> {
        let (dir, len) = self.with(|o| (PathBuf::from(o.text("gcache.dir")), o.size("repl.flight_size")));
        let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
        (len > 0).then_some((dir, len))
    }

    /// Bytes that are free where the write-set log lies; 0 when nobody knows.
    pub fn free_for_log(&self) -> u64 {
        let dir = self.with(|o| PathBuf::from(o.text("gcache.dir")));
        free_space(if dir.as_os_str().is_empty() { Path::new(".") } else { &dir })
    }

    /// The keys of the write-set log, as the file holds them now; `None`: it is in clear text.
    pub fn log_keys(&self) -> Result<Option<LogKeys>, SettingsError> {
        let Some(path) = self.with(|o| o.log_key_file().map(PathBuf::from)) else { return Ok(None) };
        let bad = |why: String| SettingsError::Secret { option: "repl.log_key_file", why };
        let text = trireme_private::read_secret(&path).map_err(bad)?;
        let text = text.ok_or_else(|| {
            bad(format!("there is no {0}: make one with `{1} {0}`", path.display(), secret::Use::Log.maker()))
        })?;
        let keys = secret::parse(&text, secret::Use::Log).map_err(|why| bad(format!("{}: {why}", path.display())))?;
        let keys: Vec<[u8; KEY_BYTES]> = keys.into_iter().map(|key| key.0).collect();
        LogKeys::new(&keys).map(Some).map_err(|e| bad(e.to_string()))
    }

    /// How connections are protected.
    pub fn protect(&self, net: &mut NetConfig) -> Result<(), SettingsError> {
        net.tls = self.tls(None)?;
        net.clear_too = self.with(|o| o.bool("socket.dynamic"));
        net.other_certificate = match self.with(|o| o.text("repl.other_certificate") == "refuse") {
            true => OtherCertificate::Refuse,
            false => OtherCertificate::Warn,
        };
        if self.with(|o| o.tls()) {
            net.shown = self.kept_certificates()?;
        }
        Ok(())
    }

    fn certificates_file(&self) -> PathBuf {
        self.with(|o| Path::new(o.text("gcache.dir")).join(CERTIFICATES_FILE))
    }

    /// Whose certificates the nodes showed last, to a process before this one. An error of a file that cannot be believed: to go on without it
    /// would bind the node ids anew.
    fn kept_certificates(&self) -> Result<ShownBy, SettingsError> {
        let path = self.certificates_file();
        let bad = |why: String| SettingsError::KeptCertificates { why, path: path.clone() };
        let Some(bytes) = trireme_private::read_own(&path).map_err(bad)? else { return Ok(ShownBy::new()) };
        parse_shown(&String::from_utf8_lossy(&bytes)).map_err(|e| bad(e.to_string()))
    }

    /// For the next process.
    pub fn keep_certificates(&self, shown: &ShownBy) -> Result<(), CertificatesNotKept> {
        let path = self.certificates_file();
        let kept = trireme_private::replace(&path, print_shown(shown).as_bytes(), 0o600);
        kept.map_err(|source| CertificatesNotKept { path, source })
    }

    /// Faults of the TLS files that do not prevent their use.
    pub fn complaints(&self, context: &TlsContext) -> Vec<(Level, String)> {
        let key = self.with(|o| PathBuf::from(o.text("socket.ssl_key")));
        let by_others = (context.shows() == Shows::Certificates).then(|| key_complaint(&key)).flatten();
        let of_context = complaints(context).into_iter().map(|line| (Level::Warn, line));
        of_context.chain(by_others.map(|line| (self.advice_level(), line))).collect()
    }

    /// How loudly this node advises to protect what is not protected. One that the others reach at a loopback address is a trial, and
    /// MariaDB's suites, whose keys everybody can read, take a warning for a failure.
    pub fn advice_level(&self) -> Level {
        let host = self.with(|o| o.text("base_host").to_owned());
        let literal = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        let loopback = host == "localhost" || literal.is_ok_and(|address| address.is_loopback());
        if loopback { Level::Info } else { Level::Warn }
    }

    /// Must peers show a secret or a certificate?
    pub fn is_protected(&self) -> bool {
        self.with(|o| o.tls() || o.secret_file().is_some())
    }

    /// After every change of the table.
    pub fn cache(&self) {
        self.with(|o| {
            if o.tls() || o.secret_file().is_some() {
                // The server's FLUSH SSL looks for this name.
                o.show("socket.ssl_reload", "1");
            }
            self.max_ws_size.store(o.int("repl.max_ws_size").max(0) as u64, Relaxed);
            self.causal_read_ms.store(o.period("repl.causal_read_timeout").as_millis() as u64, Relaxed);
            self.log_conflicts.store(o.bool("cert.log_conflicts"), Relaxed);
            self.optimistic_pa.store(o.bool("cert.optimistic_pa"), Relaxed);
            self.status_extended.store(o.bool("repl.status_extended"), Relaxed);
            self.debug.store(o.bool("debug"), Relaxed);
        });
    }

    /// Bytes; a larger write set is refused.
    pub fn max_ws_size(&self) -> usize {
        self.max_ws_size.load(Relaxed) as usize
    }
    pub fn causal_read_timeout(&self) -> Duration {
        Duration::from_millis(self.causal_read_ms.load(Relaxed))
    }
    pub fn log_conflicts(&self) -> bool {
        self.log_conflicts.load(Relaxed)
    }
    /// With `no`, what came from another node is applied only after everything that its origin had seen.
    pub fn optimistic_pa(&self) -> bool {
        self.optimistic_pa.load(Relaxed)
    }
    pub fn status_extended(&self) -> bool {
        self.status_extended.load(Relaxed)
    }
    pub fn debug(&self) -> bool {
        self.debug.load(Relaxed)
    }
    /// Looked up when an option or the view changes.
    pub fn flow(&self) -> FlowSettings {
        self.with(|o| FlowSettings {
            limit: o.size("gcs.fc_limit"),
            factor: o.real("gcs.fc_factor"),
            single_primary: o.bool("gcs.fc_single_primary") || o.bool("gcs.fc_master_slave"),
            donors_count: o.bool("gcs.sync_donor"),
            patience: o.period("gcs.fc_patience"),
        })
    }
    pub fn print(&self) -> String {
        self.with(|o| o.print())
    }

    /// Reads a cluster address. The error holds Galera's chain of log lines.
    pub fn target(&self, url: &str, channel: &str) -> Result<Target, SettingsError> {
        let address = ClusterAddress::parse(url).map_err(|e| {
            SettingsError::Address(texts::connect_failed(&e.to_string(), e.errno(), channel, url).join("\n"))
        })?;
        self.with(|o| {
            o.set_uri_port(address.port());
            o.set_from_uri(&address.options)
        })
        .map_err(SettingsError::AddressOptions)?;
        self.cache();
        Ok(match address.backend {
            Backend::Dummy => Target::Alone,
            Backend::Gcomm => {
                let own = self.with(|o| o.base_port());
                let peer_port =
                    if self.with(|o| o.is_set("base_port")) { own } else { trireme_surface::address::DEFAULT_PORT };
                Target::Peers(
                    address
                        .peers
                        .iter()
                        .filter(|p| !p.is_any())
                        .map(|p| {
                            let mut p = p.clone();
                            p.port.get_or_insert(peer_port);
                            p.to_string()
                        })
                        .collect(),
                )
            }
        })
    }

    /// `pc.bootstrap` among the configured options: once.
    pub fn bootstrap_wanted(&self) -> bool {
        let triggers = self.with(|o| o.take_triggers());
        triggers.iter().any(|(name, value)| *name == "pc.bootstrap" && parse_bool(value).unwrap_or(false))
    }

    /// Shows the durability mode in force; returns what was shown before, if somebody had set that and it is another.
    pub fn show_durability(&self, mode: Durability) -> Option<Durability> {
        self.with(|o| {
            let before = durability(o.text(DURABILITY));
            let set = o.is_set(DURABILITY);
            if before != mode {
                o.show(DURABILITY, durability_name(mode));
            }
            (set && before != mode).then_some(before)
        })
    }

    /// Configuration of the ordering core.
    pub fn order(&self, me: Member) -> Config {
        self.with(|o| {
            let mut config = Config {
                me,
                timeouts: Timeouts::default(),
                unix_at_zero: unix_time(),
                ignore_sb: o.bool("pc.ignore_sb"),
                ignore_quorum: o.bool("pc.ignore_quorum"),
                // Set by whoever knows that there is no state.
                expect: 0,
                durability: durability(o.text(DURABILITY)),
                levels: trireme_order::SUPPORTED,
                level_hold: GroupLevel(u16::try_from(o.int(LEVEL_HOLD)).unwrap_or(u16::MAX)),
                batch_bytes_max: 1 << 20,
                inflight_bytes_max: 16 << 20,
                cache_bytes_max: 16 << 20,
                limits: Limits::default(),
            };
            set_timeouts(&mut config.timeouts, o);
            config
        })
    }
}

/// By the wall clock of this machine, for [`Config::unix_at_zero`].
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().max(UNIX_TIME_MIN)
}

/// Reasons for which links will not come about, now or later. Links that exist outlive a certificate; it is the next restart
/// that fails, at a bad moment.
fn complaints(context: &TlsContext) -> Vec<String> {
    let when = |days: i32| if days < 0 { "has expired".to_owned() } else { format!("expires in {days} days") };
    let mut lines = Vec::new();
    if let Some(days) = context.days_left().filter(|days| *days < EXPIRY_WARNING_DAYS) {
        lines.push(format!("the certificate in socket.ssl_cert {}: peers refuse it from then on", when(days)));
    }
    if let Some(days) = context.crl_days_left().filter(|days| *days < CRL_WARNING_DAYS) {
        lines.push(format!("a list in socket.ssl_crl {}: from then on this node takes nobody", when(days)));
    }
    if let Some(own) = context.refuses_own() {
        let own = trireme_types::printable(&own.to_string());
        lines.push(format!("this node's own certificate {own} is not in socket.ssl_peer_names: nodes with the same list refuse this one"));
    }
    lines
}

/// A program that can read the key can be this node.
fn key_complaint(path: &Path) -> Option<String> {
    let mode = trireme_private::used_by_others(path)?;
    Some(format!(
        "the key in socket.ssl_key='{0}' can be used by other users of this host (mode {mode:04o}): chmod 0600 '{0}', owner: the server's user",
        path.display()
    ))
}

pub fn durability_name(mode: Durability) -> &'static str {
    match mode {
        Durability::Disk => "disk",
        Durability::Process => "process",
    }
}

pub fn durability(text: &str) -> Durability {
    if text == "process" { Durability::Process } else { Durability::Disk }
}

fn set_timeouts(timeouts: &mut Timeouts, o: &Options) {
    timeouts.suspect = o.period("evs.suspect_timeout");
    timeouts.inactive = o.period("evs.inactive_timeout");
    timeouts.linger = o.period("pc.linger");
}
