//! A cluster in a directory, and everything that can be done to it.

use crate::config;
use crate::disk::{self, Disk, Holds};
use crate::error::{During, Error, Result};
use crate::log::{LogCursor, cause_of_death, hangs_before_opening, last_run, milestone};
use crate::netns::{self, Network};
use crate::node::{Node, NodeId, Ports};
use crate::process::{self, Launch, Liveness, kill_helpers, liveness, run};
use crate::recovery::{self, Position};
use crate::spec::{Progress, Spec, is_galera};
use crate::sql::{Answer, Session};
use crate::state::{self, FORMAT, Lock, State};
use crate::status::{NodeStatus, sample};
use crate::template::{self, draw};
use crate::userns;
use crate::wait::{Cancel, until};
use nix::sys::signal::Signal;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trireme_certificates::{Authority, Validity};

/// How a node is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// As a service manager does: ask the storage engine where it stands, then pass that on to the provider.
    Recover,
    /// The bare server; the provider has only its own state file to go by.
    Plain,
    /// The first node of a new group (`--wsrep-new-cluster`), with its recovered position.
    Bootstrap,
}

/// How a node is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM; the server leaves the group and writes everything out.
    Graceful,
    /// SIGKILL.
    Kill,
}

/// The secret that all nodes of the cluster share (`repl.secret_file`).
const SECRET_FILE: &str = "secret";
/// A graceful stop writes out every dirty page and waits for clients.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// From the last line of a start to the opening for clients it is milliseconds; then a stop is heard at once.
const DEAF_LIMIT: Duration = Duration::from_secs(5);
/// The kernel ends a killed process within moments, unless it hangs in a disk.
const KILL_LIMIT: Duration = Duration::from_secs(20);
/// Statements of [`Cluster::sql`]; also bounds a hung node.
const SQL_LIMIT: Duration = Duration::from_secs(60);

/// Where sessions to one node are opened; owned, so that threads can take it along.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub node: NodeId,
    socket: PathBuf,
}

impl Endpoint {
    /// A session whose every call fails after a minute.
    pub fn session(&self) -> Result<Session> {
        self.session_in(None)
    }

    /// The same with a default schema.
    pub fn session_in(&self, database: Option<&str>) -> Result<Session> {
        Session::open(&self.socket, database, SQL_LIMIT).map_err(|error| Error::Sql { node: self.node, error })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

/// A handle. Dropping it changes nothing; see [`crate::ClusterGuard`] for one that ends with its owner.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    state: State,
    cancel: Cancel,
    start_limit: Duration,
    /// Present in handles that may change the cluster.
    _lock: Option<Lock>,
}

/// Removes the directories of nodes, those of forgotten ones too, and the cluster's own files. Whether a node had left one.
fn remove_files(dir: &Path) -> Result<bool> {
    let reading = || format!("cannot list {}", dir.display());
    let mut found = false;
    for entry in std::fs::read_dir(dir).during(reading)? {
        let path = entry.during(reading)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix("node").unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            std::fs::remove_dir_all(&path).during(|| format!("cannot remove {}", path.display()))?;
            found = true;
        }
    }
    for file in ["cluster.json", "lock", SECRET_FILE].into_iter().chain(Authority::FILES) {
        let _ = std::fs::remove_file(dir.join(file));
    }
    // Stays if the user keeps other files in it.
    let _ = std::fs::remove_dir(dir);
    Ok(found)
}

impl Cluster {
    // ---- obtaining one -------------------------------------------------------------------------------------

    /// Starts a new cluster and waits until every node is Synced. On failure or Ctrl-C everything started is ended
    /// again; logs stay in the directory.
    pub fn up(spec: &Spec, say: Progress<'_>) -> Result<Cluster> {
        spec.check()?;
        let old = match state::load(&spec.dir) {
            Ok(old) => Some(old),
            Err(Error::NoCluster(_)) => None,
            Err(error @ Error::NotOurs(_)) => return Err(error),
            // Unreadable: replaced.
            Err(_) => None,
        };
        if let Some(old) = old {
            let nodes: Vec<NodeId> =
                old.nodes.iter().filter(|node| liveness(node) != Liveness::Gone).map(|node| node.id).collect();
            if nodes.is_empty() {
                return Err(Error::BadSpec(format!(
                    "{} holds a stopped cluster: start it again with `trireme cluster up` or remove it with `trireme cluster down`",
                    spec.dir.display()
                )));
            }
            return Err(Error::AlreadyRunning { dir: spec.dir.clone(), nodes });
        }
        let real_root = nix::unistd::geteuid().is_root() && userns::outer().is_none();
        let user = real_root.then(|| "mysql".to_owned());
        template::uid_of(user.as_deref())?;
        if spec.netns {
            netns::check()?;
        }
        if spec.disks.is_some() {
            disk::check()?;
        }
        // The servers in it let anybody in who reaches their sockets.
        trireme_private::own_dir(&spec.dir).map_err(Error::NotOurs)?;
        if let Some(user) = &user {
            template::let_in(&spec.dir, user)?;
        }
        let lock = state::lock(&spec.dir)?;
        let provider = match spec.plain {
            true => spec.provider.clone(),
            false => {
                std::fs::canonicalize(&spec.provider).during(|| format!("cannot find {}", spec.provider.display()))?
            }
        };
        let mut cluster = Cluster {
            dir: spec.dir.clone(),
            state: State {
                format: FORMAT,
                name: spec.name.clone(),
                provider,
                provider_options: spec.provider_options.clone(),
                base_port: spec.base_port,
                sst: spec.sst,
                settings: spec.settings,
                options: spec.options.clone(),
                sst_password: String::new(),
                plain: spec.plain,
                tls: spec.tls,
                secret: spec.secret && !spec.tls && !spec.plain && !is_galera(&spec.provider),
                user,
                network: spec.netns.then(|| Network::new(spec.base_port)),
                arbitrator: spec.arbitrator.clone(),
                disks: spec.disks.clone(),
                nodes: Vec::new(),
                last_node: 0,
            },
            cancel: spec.cancel.clone(),
            start_limit: spec.start_limit,
            _lock: Some(lock),
        };
        let outcome = cluster.first_start(spec, say);
        if let Err(error) = outcome {
            cluster.give_up(say);
            return Err(error);
        }
        Ok(cluster)
    }

    fn first_start(&mut self, spec: &Spec, say: Progress<'_>) -> Result<()> {
        if let Some(network) = &self.state.network {
            network.create()?;
        }
        if self.state.disks.is_some() {
            disk::share_mounts(&self.dir)?;
        }
        for n in 1..=spec.nodes {
            let options = NodeId::new(n).and_then(|id| spec.node_options.get(&id)).cloned().unwrap_or_default();
            self.create_node(options, false, say)?;
        }
        if self.state.arbitrator.is_some() {
            self.create_node(Vec::new(), true, say)?;
        }
        let ids: Vec<NodeId> = self.state.nodes.iter().map(|node| node.id).collect();
        if self.state.provider_options.contains("pc.bootstrap_expect") {
            // Nobody is chosen: each waits for the others.
            for id in &ids {
                self.launch_at(*id, Start::Plain, None)?;
            }
            for id in ids {
                self.wait_synced(id, say)?;
            }
            return Ok(());
        }
        for (i, id) in ids.into_iter().enumerate() {
            // A new data directory has no position to recover.
            let how = if i == 0 && !self.state.plain { Start::Bootstrap } else { Start::Plain };
            self.launch_at(id, how, None)?;
            self.wait_synced(id, say)?;
        }
        Ok(())
    }

    /// Starts the nodes of a stopped cluster again, beginning with the one whose data is furthest ahead.
    pub fn revive(&mut self, say: Progress<'_>) -> Result<()> {
        let outcome = self.try_revive(say);
        if outcome.is_err() {
            for id in self.ids() {
                // The first error is the one worth reporting.
                let _ = self.stop(id, Stop::Kill);
            }
        }
        outcome
    }

    fn try_revive(&mut self, say: Progress<'_>) -> Result<()> {
        if let Some(network) = &mut self.state.network {
            network.cuts.clear();
            network.create()?;
            for node in &self.state.nodes {
                network.add_node(node.id)?;
            }
        }
        if self.state.nodes.iter().any(|node| node.arbitrator) {
            // It may hold what no server does: nobody is made the first, they find each other.
            for id in self.ids() {
                self.launch(id, Start::Recover)?;
            }
            return self.ids().into_iter().try_for_each(|id| self.wait_synced(id, say));
        }
        let mut positions: Vec<(NodeId, Position)> = Vec::new();
        for id in self.ids() {
            if liveness(self.node(id)?) != Liveness::Gone {
                return Err(Error::StillRunning(id));
            }
            let position = self.position(id)?;
            say(&format!("{id} stands at {position}"));
            positions.push((id, position));
        }
        let Some((first, _)) = positions.iter().max_by_key(|(id, p)| (p.seqno, std::cmp::Reverse(*id))).cloned() else {
            return Ok(());
        };
        recovery::mark_safe_to_bootstrap(self.node(first)?)?;
        positions.sort_by_key(|(id, _)| (*id != first, *id));
        for (id, position) in positions {
            let how = if id == first { Start::Bootstrap } else { Start::Recover };
            self.launch_at(id, how, Some(&position))?;
            self.wait_synced(id, say)?;
        }
        Ok(())
    }

    /// The cluster in `dir`, to look at.
    pub fn open(dir: &Path) -> Result<Cluster> {
        let state = state::load(dir)?;
        let cancel = Cancel::default();
        Ok(Cluster { dir: dir.to_owned(), state, cancel, start_limit: Duration::from_secs(120), _lock: None })
    }

    /// The cluster in `dir`, to change; fails while another handle of this kind exists, in any process.
    pub fn open_to_change(dir: &Path, cancel: Cancel) -> Result<Cluster> {
        state::load(dir)?; // before the lock file appears in a directory that is none of ours
        let lock = state::lock(dir)?;
        Ok(Cluster { cancel, _lock: Some(lock), ..Cluster::open(dir)? })
    }

    /// Ends and removes what a killed run left in `dir`; nothing there is fine.
    pub fn remove_leftover(dir: &Path) -> Result<()> {
        match Cluster::open_to_change(dir, Cancel::default()) {
            Ok(mut old) => old.down(Stop::Kill, true),
            Err(Error::NoCluster(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    // ---- looking -------------------------------------------------------------------------------------------

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The provider as named at `up`.
    pub fn provider(&self) -> &Path {
        &self.state.provider
    }

    /// Ends every wait of this handle.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    pub fn nodes(&self) -> &[Node] {
        &self.state.nodes
    }

    pub fn ids(&self) -> Vec<NodeId> {
        self.state.nodes.iter().map(|node| node.id).collect()
    }

    pub fn node(&self, id: NodeId) -> Result<&Node> {
        self.state
            .nodes
            .iter()
            .find(|node| node.id == id)
            .ok_or_else(|| Error::NoSuchNode { asked: id, have: self.ids() })
    }

    pub fn liveness(&self, id: NodeId) -> Result<Liveness> {
        Ok(liveness(self.node(id)?))
    }

    /// Why a node's server ended, from its log.
    pub fn cause_of_end(&self, id: NodeId) -> Result<String> {
        Ok(cause_of_death(last_run(&crate::log::tail(&self.node(id)?.log(), 200))))
    }

    /// One look at every node, all at the same time.
    pub fn status(&self) -> Vec<NodeStatus> {
        std::thread::scope(|scope| {
            let looks: Vec<_> = self.state.nodes.iter().map(|node| scope.spawn(|| sample(node))).collect();
            looks
                .into_iter()
                .zip(&self.state.nodes)
                .map(|(look, node)| look.join().unwrap_or_else(|_| sample(node)))
                .collect()
        })
    }

    pub fn endpoint(&self, id: NodeId) -> Result<Endpoint> {
        let node = self.node(id)?;
        Ok(Endpoint { node: id, socket: node.socket() })
    }

    /// Endpoints of all nodes that run.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.state
            .nodes
            .iter()
            .filter(|node| !node.arbitrator && liveness(node) == Liveness::Running)
            .map(|node| Endpoint { node: node.id, socket: node.socket() })
            .collect()
    }

    pub fn session(&self, id: NodeId) -> Result<Session> {
        let node = self.node(id)?;
        if node.arbitrator {
            return Err(Error::NoServer(id));
        }
        if liveness(node) == Liveness::Gone {
            return Err(Error::NotRunning(id));
        }
        self.endpoint(id)?.session()
    }

    /// One statement in a session of its own.
    pub fn sql(&self, id: NodeId, statement: &str) -> Result<Answer> {
        self.session(id)?.query(statement).map_err(|error| Error::Sql { node: id, error })
    }

    /// Several statements in one session, until one fails; `take` gets each answer.
    pub fn sql_each(&self, id: NodeId, statements: &str, take: impl FnMut(Answer)) -> Result<()> {
        self.session(id)?.query_each(statements, take).map_err(|error| Error::Sql { node: id, error })
    }

    /// Where the storage engine of a stopped node stands.
    pub fn position(&self, id: NodeId) -> Result<Position> {
        let node = self.node(id)?;
        if liveness(node) != Liveness::Gone {
            return Err(Error::StillRunning(id));
        }
        self.write_config(node)?;
        recovery::recover(self.launch_for(id).as_launch(), node, &self.arguments(node))
    }

    // ---- single nodes --------------------------------------------------------------------------------------

    /// Starts a stopped node without waiting for it.
    pub fn launch(&mut self, id: NodeId, how: Start) -> Result<()> {
        self.find_network(id)?;
        let position = match how {
            _ if self.node(id)?.arbitrator => None,
            Start::Plain => None,
            Start::Recover | Start::Bootstrap => Some(self.position(id)?),
        };
        self.launch_at(id, how, position.as_ref())
    }

    /// Lets other handles change the cluster from here on; this one may only look. For a wait that may be long and depend
    /// on what somebody else does.
    pub fn release(&mut self) {
        self._lock = None;
    }

    /// Starts a stopped node and waits until it is Synced.
    pub fn start(&mut self, id: NodeId, how: Start, say: Progress<'_>) -> Result<()> {
        self.launch(id, how)?;
        self.wait_synced(id, say)
    }

    /// Ends a node and waits until its process is gone. Fine if it already is. A server that was told to stop in the last
    /// moments of its start, and hangs for it, is killed, as systemd would do.
    pub fn stop(&mut self, id: NodeId, how: Stop) -> Result<()> {
        let node = self.node(id)?.clone();
        let limit = match how {
            Stop::Graceful => {
                process::signal(&node, Signal::SIGTERM)?;
                // A paused process takes the signal only when it goes on.
                process::signal(&node, Signal::SIGCONT)?;
                STOP_LIMIT
            }
            Stop::Kill => {
                process::signal(&node, Signal::SIGKILL)?;
                KILL_LIMIT
            }
        };
        let asked = Instant::now();
        let (mut log, mut seen) = (LogCursor::at_start(&node.log()), Vec::new());
        let mut deaf = || {
            let late = asked.elapsed() > DEAF_LIMIT;
            if late {
                seen.extend(log.lines());
            }
            late && hangs_before_opening(&seen)
        };
        // Not to be interrupted: Ctrl-C during the clean-up must not leave processes behind.
        until(format!("{id} ends"), limit, &Cancel::default(), || {
            if process::released(&node) {
                return Ok(Ok(()));
            }
            if how == Stop::Graceful && deaf() {
                process::signal(&node, Signal::SIGKILL)?;
            }
            Ok(Err(format!("pid {:?} is there", node.pid)))
        })?;
        self.await_released(&node)?;
        self.change_node(id, |node| node.pid = None)
    }

    /// SIGTERM, without waiting for what becomes of it.
    pub fn ask_to_stop(&mut self, id: NodeId) -> Result<()> {
        if !process::signal(self.node(id)?, Signal::SIGTERM)? {
            return Err(Error::NotRunning(id));
        }
        Ok(())
    }

    /// SIGKILL, as a crash of the server; scripts it started end too.
    pub fn kill(&mut self, id: NodeId) -> Result<()> {
        if liveness(self.node(id)?) == Liveness::Gone {
            return Err(Error::NotRunning(id));
        }
        self.stop(id, Stop::Kill)
    }

    /// SIGKILL to every node before the end of any is waited for, as a loss of all machines would.
    pub fn kill_all(&mut self) -> Result<()> {
        for node in &self.state.nodes {
            process::signal(node, Signal::SIGKILL)?;
        }
        for id in self.ids() {
            self.stop(id, Stop::Kill)?;
        }
        Ok(())
    }

    /// Cuts the power of these nodes' machines at one moment and switches it on again: what their disks had not got is
    /// gone, their servers are dead, their next boot has begun. Start them like after any reboot.
    pub fn cut_power(&mut self, ids: &[NodeId]) -> Result<()> {
        let disks: Vec<Disk> = ids.iter().map(|id| self.disk(*id)).collect::<Result<_>>()?;
        for disk in &disks {
            disk.cut_power()?;
        }
        for id in ids {
            process::signal(self.node(*id)?, Signal::SIGKILL)?;
        }
        for (id, disk) in ids.iter().zip(&disks) {
            self.stop(*id, Stop::Kill)?;
            disk.power_on()?;
            disk::boot(self.node(*id)?)?;
        }
        Ok(())
    }

    /// The disk of a node in a cluster with [`Spec::disks`].
    pub fn disk(&self, id: NodeId) -> Result<Disk> {
        let disks = self.state.disks.as_ref().ok_or_else(|| disk::missing(id))?;
        Ok(Disk::of(disks, self.node(id)?))
    }

    /// SIGSTOP: the process stays, its sockets stay open, nothing moves.
    pub fn pause(&mut self, id: NodeId) -> Result<()> {
        self.signal_running(id, Signal::SIGSTOP)
    }

    pub fn resume(&mut self, id: NodeId) -> Result<()> {
        self.signal_running(id, Signal::SIGCONT)
    }

    /// SIGSTOP to what transfers a node's state to another: it stands still, and the node goes on.
    pub fn pause_transfer(&mut self, id: NodeId) -> Result<()> {
        self.node(id).map(|node| process::signal_helpers(node, Signal::SIGSTOP)).map(drop)
    }

    pub fn resume_transfer(&mut self, id: NodeId) -> Result<()> {
        self.node(id).map(|node| process::signal_helpers(node, Signal::SIGCONT)).map(drop)
    }

    fn signal_running(&self, id: NodeId, signal: Signal) -> Result<()> {
        if process::signal(self.node(id)?, signal)? { Ok(()) } else { Err(Error::NotRunning(id)) }
    }

    /// Waits until the node is Synced and serves clients. Tells `say` about state transfers on the way.
    pub fn wait_synced(&self, id: NodeId, say: Progress<'_>) -> Result<()> {
        let node = self.node(id)?;
        let mut log = LogCursor::at_end(&node.log());
        // Lines that were written before we began to look may hold the reason of an early end.
        let mut seen: Vec<String> = crate::log::tail(&node.log(), 200);
        until(format!("{id} becomes Synced"), self.start_limit, &self.cancel, || {
            let fresh = log.lines();
            for line in fresh.iter().filter_map(|line| milestone(line)) {
                say(&format!("{id}: {line}"));
            }
            seen.extend(fresh);
            let status = sample(node);
            if status.is_synced() || (self.state.plain && Session::open(&node.socket(), None, SQL_LIMIT).is_ok()) {
                return Ok(Ok(()));
            }
            if status.pid.is_none() {
                seen.extend(log.lines());
                return Err(Error::Died { node: id, cause: cause_of_death(last_run(&seen)), log: node.log() });
            }
            Ok(Err(format!("state {}", status.state)))
        })?;
        if node.arbitrator {
            say(&format!("{id} is Synced ({}, arbitrator)", node.group_endpoint()));
        } else {
            say(&format!("{id} is Synced ({}:{}, socket {})", node.address, node.ports.sql, node.socket().display()));
        }
        Ok(())
    }

    /// Adds a node to the running group; it receives its data by state transfer.
    pub fn add(&mut self, options: Vec<String>, say: Progress<'_>) -> Result<NodeId> {
        for id in self.ids() {
            self.find_network(id)?;
        }
        let id = self.create_node(options, false, say)?;
        let outcome = self.launch_at(id, Start::Plain, None).and_then(|()| self.wait_synced(id, say));
        if outcome.is_err() {
            let _ = self.stop(id, Stop::Kill);
            let _ = self.forget(id);
            say(&format!("{id} is taken back; its files stay in {}", self.dir.join(id.to_string()).display()));
        }
        outcome.map(|()| id)
    }

    /// Stops a node, lets the cluster forget it and removes its files.
    pub fn remove(&mut self, id: NodeId) -> Result<()> {
        self.stop(id, Stop::Graceful)?;
        self.remove_disk(id)?;
        let dir = self.node(id)?.dir.clone();
        self.forget(id)?;
        std::fs::remove_dir_all(&dir).during(|| format!("cannot remove {}", dir.display()))
    }

    /// Replaces a node's own `my.cnf` lines; they take effect at its next start.
    pub fn set_options(&mut self, id: NodeId, options: Vec<String>) -> Result<()> {
        self.change_node(id, |node| node.options = options)
    }

    /// The provider to copy at the next start of any node: the way to a rolling upgrade.
    pub fn set_provider(&mut self, provider: &Path) -> Result<()> {
        self.state.provider =
            std::fs::canonicalize(provider).during(|| format!("cannot find {}", provider.display()))?;
        self.save()
    }

    // ---- the network ---------------------------------------------------------------------------------------

    /// Cuts the groups from each other, both ways. A node in no group forms one together with the others that were
    /// not named. Earlier cuts stay.
    pub fn partition(&mut self, groups: &[Vec<NodeId>]) -> Result<()> {
        for id in groups.iter().flatten() {
            self.node(*id)?;
        }
        let group_of = |id: NodeId| groups.iter().position(|group| group.contains(&id));
        let ids = self.ids();
        for from in &ids {
            for to in &ids {
                if from != to && group_of(*from) != group_of(*to) {
                    self.cut(*from, *to)?;
                }
            }
        }
        Ok(())
    }

    /// Lets everything that `from` sends to `to` vanish; the other direction still works.
    pub fn cut(&mut self, from: NodeId, to: NodeId) -> Result<()> {
        self.node(from)?;
        self.node(to)?;
        self.find_network(from)?;
        self.state.network.as_mut().ok_or(Error::NoNamespaces)?.cut(from, to)?;
        self.save()
    }

    /// Undoes every cut. Where networks cannot be cut there is none.
    pub fn heal(&mut self) -> Result<()> {
        for (from, _) in self.cuts() {
            self.find_network(*from)?;
        }
        let Some(network) = self.state.network.as_mut() else { return Ok(()) };
        network.heal()?;
        self.save()
    }

    /// A node with a network of its own cannot be started, nor cut off, where that network is not seen.
    fn find_network(&self, id: NodeId) -> Result<()> {
        match &self.state.network {
            Some(network) if !network.is_here(id) => Err(Error::NetworkElsewhere(id)),
            Some(_) | None => Ok(()),
        }
    }

    /// Cuts in force.
    pub fn cuts(&self) -> &[(NodeId, NodeId)] {
        self.state.network.as_ref().map_or(&[], |network| &network.cuts)
    }

    // ---- the end -------------------------------------------------------------------------------------------

    /// Ends every node; with `purge` the directory goes too. The first failure is reported after all was tried.
    pub fn down(&mut self, how: Stop, purge: bool) -> Result<()> {
        let mut first_error = None;
        for id in self.ids() {
            // A test that failed may have left it frozen.
            if let Ok(disk) = self.disk(id) {
                disk.let_go();
            }
            let mut outcome = self.stop(id, how);
            if outcome.is_err() && how == Stop::Graceful {
                outcome = self.stop(id, Stop::Kill);
            }
            if let Err(error) = outcome {
                first_error.get_or_insert(error);
            }
        }
        if let Some(network) = &mut self.state.network {
            for node in &self.state.nodes {
                network.remove_node(node.id);
            }
            network.remove();
        }
        if let Some(error) = first_error {
            return Err(error);
        }
        if purge {
            for id in self.ids() {
                self.remove_disk(id)?;
            }
            if self.state.disks.is_some() {
                disk::unshare_mounts(&self.dir);
            }
            remove_files(&self.dir)?;
            return Ok(());
        }
        self.save()
    }

    /// Removes what a start that did not succeed left in `dir`, where no cluster is. Whether there was anything.
    pub fn remove_remains(dir: &Path) -> Result<bool> {
        match state::load(dir) {
            Err(Error::NoCluster(_)) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(Error::BadSpec(format!("{} holds a cluster", dir.display()))),
        }
        if !dir.exists() {
            return Ok(false);
        }
        trireme_private::check_dir(dir).map_err(Error::NotOurs)?;
        let _lock = state::lock(dir)?;
        remove_files(dir)
    }

    fn give_up(&mut self, say: Progress<'_>) {
        if let Err(error) = self.down(Stop::Kill, false) {
            say(&format!("cleaning up: {error}"));
        }
        // The next `up` starts from nothing; logs stay for reading.
        let _ = std::fs::remove_file(self.dir.join("cluster.json"));
        for node in &self.state.nodes {
            let _ = self.remove_disk(node.id);
            let _ = std::fs::remove_dir_all(node.data());
        }
        if self.state.disks.is_some() {
            disk::unshare_mounts(&self.dir);
        }
    }

    // ---- inside --------------------------------------------------------------------------------------------

    fn create_node(&mut self, options: Vec<String>, arbitrator: bool, say: Progress<'_>) -> Result<NodeId> {
        let id = NodeId::new(self.state.last_node + 1).ok_or_else(|| {
            Error::BadSpec(format!("node numbers end at {}: take the cluster down and start a new one", NodeId::MAX))
        })?;
        let ports = Ports::of(self.state.base_port, id).ok_or_else(|| {
            Error::BadSpec(format!("the ports of {id} would exceed 65535: choose a lower --base-port"))
        })?;
        let address = match &self.state.network {
            Some(network) => network.address(id),
            None => format!("127.0.0.{}", 10 + id.raw()),
        };
        let node = Node { id, address, ports, dir: self.dir.join(id.to_string()), pid: None, options, arbitrator };
        self.check_ports(&node)?;
        // Known to the state file before anything exists, so that `down` finds it whatever happens next.
        let dir = node.dir.clone();
        let data = node.data();
        let log = node.log();
        self.state.nodes.push(node);
        self.state.last_node = id.raw();
        self.save()?;
        // Left behind by a failed start.
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).during(|| format!("cannot create {}", dir.display()))?;
        let mut owned = vec![dir.clone(), log.clone()];
        if let Some(disks) = self.state.disks.clone() {
            disk::boot(self.node(id)?)?;
            self.disk(id)?.create(disks.mib)?;
            if disks.holds == Holds::Log {
                owned.push(self.node(id)?.log_dir());
            }
        }
        std::fs::write(&log, "").during(|| format!("cannot write {}", log.display()))?;
        self.give_away(&owned)?;
        if self.state.tls {
            let authority = Authority::of_dir(&self.dir).during(|| "cannot keep an authority".to_owned())?;
            self.certify(id, &authority)?;
        }
        if self.state.secret {
            self.share_secret(id)?;
        }
        if let Some(network) = &self.state.network {
            network.add_node(id)?;
        }
        let reachable = run(self.launch_for(id).as_launch().command(self.node(id)?, "test").arg("-w").arg(&dir));
        if reachable.is_err() {
            return Err(Error::BadSpec(format!(
                "the servers run as `{}`, who cannot reach {}: choose a --dir below /var/tmp",
                self.state.user.as_deref().unwrap_or("you"),
                self.dir.display()
            )));
        }
        if !arbitrator {
            self.state.sst_password = template::copy_to(&data, self.state.user.as_deref(), say)?;
            self.save()?;
        }
        if self.state.disks.is_some() {
            self.disk(id)?.sync()?;
        }
        Ok(id)
    }

    /// Makes files those of the user whom the servers run as.
    fn give_away(&self, paths: &[PathBuf]) -> Result<()> {
        let Some(user) = &self.state.user else { return Ok(()) };
        let uid = template::uid_of(Some(user))?;
        for path in paths {
            std::os::unix::fs::chown(path, Some(uid), None).during(|| format!("cannot chown {}", path.display()))?;
        }
        Ok(())
    }

    /// Gives a node a copy of the cluster's secret, which is made with the first one.
    fn share_secret(&self, id: NodeId) -> Result<()> {
        let shared = self.dir.join(SECRET_FILE);
        let secret = match trireme_private::read_secret(&shared).map_err(Error::NotOurs)? {
            Some(secret) => secret,
            None => {
                let secret = draw(32).during(|| "cannot draw a secret".to_owned())?.into_bytes();
                trireme_private::write_new(&shared, &secret).during(|| format!("cannot write {}", shared.display()))?;
                secret
            }
        };
        let copy = self.node(id)?.secret_file();
        trireme_private::write_new(&copy, &secret).during(|| format!("cannot write {}", copy.display()))?;
        self.give_away(&[copy])?;
        // Full copies, as `trireme secret transfer` does it.
        let bytes =
            trireme_surface::secret::parse(&secret, trireme_surface::secret::Use::Members).map_err(Error::NotOurs)?;
        let authority = Authority::of_secret(&bytes[0].0).map_err(std::io::Error::other);
        let authority = authority.during(|| "cannot make an authority of the secret".to_owned())?;
        self.certify(id, &authority)
    }

    /// Gives a node a new certificate of `authority`, and peers that have one of it as well. The node uses it from its next
    /// start, or from `socket.ssl_reload` on.
    pub fn certify(&self, id: NodeId, authority: &Authority) -> Result<()> {
        let files = self.node(id)?.tls_files();
        let issued = authority.issue(&id.to_string(), Validity::YEARS, None).map_err(std::io::Error::other);
        let written = issued.and_then(|issued| files.write(&issued, authority));
        written.during(|| format!("cannot write the certificate of {id}"))?;
        self.give_away(&[files.key])
    }

    /// Takes the node's disk away, if it has one.
    fn remove_disk(&self, id: NodeId) -> Result<()> {
        if self.state.disks.is_none() {
            return Ok(());
        }
        self.disk(id)?.remove()?;
        let _ = std::fs::remove_file(disk::boot_file(self.node(id)?));
        Ok(())
    }

    fn launch_at(&mut self, id: NodeId, how: Start, position: Option<&Position>) -> Result<()> {
        if self.cancel.is_set() {
            return Err(Error::Interrupted);
        }
        let node = self.node(id)?;
        if liveness(node) != Liveness::Gone {
            return Err(Error::StillRunning(id));
        }
        self.await_released(node)?;
        self.check_ports(node)?;
        self.write_config(node)?;
        if node.arbitrator {
            let _ = std::fs::remove_file(node.status_file());
            self.copy_program(node)?;
            let words = [format!("--status-file={}", node.status_file().display())];
            let pid = process::start_server(self.launch_for(id).as_launch(), node, &words)?;
            return self.change_node(id, |node| node.pid = Some(pid));
        }
        self.copy_provider(node)?;
        // A server killed while it ran leaves its socket; connecting to it would only confuse.
        let _ = std::fs::remove_file(node.socket());
        let mut arguments = self.arguments(node);
        if how == Start::Bootstrap {
            arguments.push("--wsrep-new-cluster".to_owned());
        }
        // An unknown position says nothing the provider would not know better.
        if let Some(position) = position.filter(|position| position.seqno >= 0) {
            arguments.push(format!("--wsrep-start-position={position}"));
        }
        let pid = process::start_server(self.launch_for(id).as_launch(), node, &arguments)?;
        self.change_node(id, |node| node.pid = Some(pid))
    }

    /// The arguments of the node's server beside its file, whatever it is started for.
    fn arguments(&self, node: &Node) -> Vec<String> {
        if self.state.settings.on_command_line(node.id) { config::arguments(&self.state, node) } else { Vec::new() }
    }

    fn write_config(&self, node: &Node) -> Result<()> {
        let path = node.config();
        let text = match node.arbitrator {
            true => config::render_arbitrator(&self.state, node),
            false => {
                let temporary = node.temporary();
                std::fs::create_dir_all(&temporary).during(|| format!("cannot create {}", temporary.display()))?;
                self.give_away(&[temporary])?;
                config::render(&self.state, node)
            }
        };
        std::fs::write(&path, text).during(|| format!("cannot write {}", path.display()))
    }

    fn copy_provider(&self, node: &Node) -> Result<()> {
        if self.state.plain {
            return Ok(());
        }
        let copy = node.provider(&self.state.provider);
        let new = node.dir.join("provider.new");
        std::fs::copy(&self.state.provider, &new)
            .during(|| format!("cannot copy {} to {}", self.state.provider.display(), new.display()))?;
        std::fs::rename(&new, &copy).during(|| format!("cannot write {}", copy.display()))
    }

    fn copy_program(&self, node: &Node) -> Result<()> {
        let Some(program) = &self.state.arbitrator else {
            return Err(Error::BadSpec(format!("{}: it is not known which command to run", node.id)));
        };
        let new = node.dir.join("garbd.new");
        std::fs::copy(program, &new).during(|| format!("cannot copy {} to {}", program.display(), new.display()))?;
        std::fs::rename(&new, node.program()).during(|| format!("cannot write {}", node.program().display()))
    }

    /// Waits until a server that has ended has given back its ports and files, and ends the scripts that it left behind.
    fn await_released(&self, node: &Node) -> Result<()> {
        // Not to be interrupted: Ctrl-C during the clean-up must not leave processes behind.
        until(format!("{} gives back its ports", node.id), KILL_LIMIT, &Cancel::default(), || {
            let seen = if !process::released(node) {
                "some of its threads are still there"
            } else if !kill_helpers(node) {
                "its scripts are still there"
            } else {
                return Ok(Ok(()));
            };
            Ok(Err(seen.to_owned()))
        })
    }

    fn check_ports(&self, node: &Node) -> Result<()> {
        if self.state.network.is_some() {
            return Ok(()); // a namespace of its own has all ports free
        }
        for (what, port) in node.ports.named() {
            // The library sets SO_REUSEADDR, so connections in TIME_WAIT do not count.
            if TcpListener::bind((node.address.as_str(), port)).is_err() {
                return Err(Error::PortInUse { node: node.id, what, address: node.address.clone(), port });
            }
        }
        Ok(())
    }

    fn launch_for(&self, id: NodeId) -> OwnedLaunch {
        OwnedLaunch {
            user: self.state.user.clone(),
            namespace: self.state.network.as_ref().map(|network| network.namespace(id)),
            boot: self.state.disks.as_ref().and_then(|_| self.node(id).ok()).map(disk::boot_file),
        }
    }

    fn change_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) -> Result<()> {
        if let Some(node) = self.state.nodes.iter_mut().find(|node| node.id == id) {
            change(node);
        }
        self.save()
    }

    fn forget(&mut self, id: NodeId) -> Result<()> {
        if let Some(network) = &mut self.state.network {
            network.remove_node(id);
        }
        self.state.nodes.retain(|node| node.id != id);
        self.save()
    }

    fn save(&self) -> Result<()> {
        state::save(&self.dir, &self.state)
    }
}

/// [`Launch`] borrows; this lends.
struct OwnedLaunch {
    user: Option<String>,
    namespace: Option<String>,
    boot: Option<PathBuf>,
}

impl OwnedLaunch {
    fn as_launch(&self) -> Launch<'_> {
        Launch { user: self.user.as_deref(), namespace: self.namespace.as_deref(), boot: self.boot.as_deref() }
    }
}
