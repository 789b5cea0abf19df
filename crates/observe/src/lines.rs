//! The meaning of lines in a server's error log, and what to do about them.
//!
//! Every piece of text stands in the source of the provider; a test looks whether it still does.

use serde::Serialize;

/// The subject of a line. `trireme events` shows those that have one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    View,
    Term,
    State,
    Transfer,
    Link,
    Silence,
    Vote,
    Fork,
    Eviction,
    Flow,
    Log,
    Position,
    Security,
    Setting,
    Panic,
}

impl Topic {
    pub const ALL: [Topic; 15] = [
        Topic::View,
        Topic::Term,
        Topic::State,
        Topic::Transfer,
        Topic::Link,
        Topic::Silence,
        Topic::Vote,
        Topic::Fork,
        Topic::Eviction,
        Topic::Flow,
        Topic::Log,
        Topic::Position,
        Topic::Security,
        Topic::Setting,
        Topic::Panic,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Topic::View => "view",
            Topic::Term => "term",
            Topic::State => "state",
            Topic::Transfer => "transfer",
            Topic::Link => "link",
            Topic::Silence => "silence",
            Topic::Vote => "vote",
            Topic::Fork => "fork",
            Topic::Eviction => "eviction",
            Topic::Flow => "flow",
            Topic::Log => "log",
            Topic::Position => "position",
            Topic::Security => "security",
            Topic::Setting => "setting",
            Topic::Panic => "panic",
        }
    }
}

/// The program that prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    Provider,
    /// The MariaDB server, on the provider's behalf.
    Server,
}

/// One kind of line.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// They all occur in the line, in this order.
    pub pieces: &'static [&'static str],
    pub topic: Topic,
    pub origin: Origin,
    pub meaning: &'static str,
    pub action: &'static str,
}

impl Line {
    pub fn fits(&self, text: &str) -> bool {
        let mut rest = text;
        self.pieces.iter().all(|piece| match rest.find(piece) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    }

    /// As it is shown: what differs from line to line is an ellipsis.
    pub fn shown(&self) -> String {
        self.pieces.join(" … ")
    }
}

/// The first kind that fits; those with more to say stand before those with less.
pub fn find(text: &str) -> Option<&'static Line> {
    LINES.iter().find(|line| line.fits(text))
}

const NOTHING: &str = "Nothing.";

const fn ours(topic: Topic, pieces: &'static [&'static str], meaning: &'static str, action: &'static str) -> Line {
    Line { pieces, topic, origin: Origin::Provider, meaning, action }
}

const fn servers(topic: Topic, pieces: &'static [&'static str], meaning: &'static str, action: &'static str) -> Line {
    Line { pieces, topic, origin: Origin::Server, meaning, action }
}

pub const LINES: &[Line] = &[
    // --- views and states
    ours(
        Topic::View,
        &["New COMPONENT: primary = ", ", bootstrap = no, my_idx = "],
        "The view changed. `primary = yes`: this node may commit; `memb_num` counts the members. `primary = no`: it hears no majority and refuses statements (error 1047).",
        "If it says `no`: find out which nodes it does not hear, and mend the network or start them. It returns by itself.",
    ),
    ours(
        Topic::Term,
        &["term ", ", sequencer "],
        "The members elected the named one; it orders the write sets from here on. Clients notice nothing but a pause of less than a second.",
        "Nothing. If it comes again and again: look for pauses of machines, and at the network.",
    ),
    ours(
        Topic::State,
        &["Shifting ", " -> "],
        "The state of this node changed: OPEN → PRIMARY → JOINER → JOINED → SYNCED. DONOR/DESYNCED: it gives a full copy, or was desynced.",
        NOTHING,
    ),
    ours(
        Topic::State,
        &[" synced with group."],
        "The named member has applied what it lacked. It serves clients.",
        NOTHING,
    ),
    ours(
        Topic::State,
        &["Member ", " resyncs itself to group."],
        "The named member ended its desync: it catches up, and its pace counts again.",
        NOTHING,
    ),
    ours(
        Topic::State,
        &["Member ", " desyncs itself from group"],
        "The named member falls behind on purpose: a backup, a full copy, or wsrep_desync=ON.",
        "Set wsrep_desync=OFF when the reason is over.",
    ),
    ours(
        Topic::View,
        &["waiting for peers to form the group again: "],
        "This node knows its cluster and waits for the named nodes; a majority of the voters is needed.",
        "Start the named nodes. If they are gone for good, see `trireme doctor --outage`, and docs/operations/recovery.md.",
    ),
    ours(
        Topic::View,
        &["waiting for ", " nodes without state to begin a cluster (pc.bootstrap_expect); with this node: "],
        "A new cluster begins when as many nodes as pc.bootstrap_expect are here.",
        "Start the other nodes. If there are no more, set the number to what there is, on all.",
    ),
    ours(
        Topic::Setting,
        &["pc.weight=", " is not in force yet: it will be as soon as a majority can decide without the weight"],
        "The group cannot change this weight now: too few others would be left to decide.",
        "Start the missing voters, or set the former weight again.",
    ),
    ours(
        Topic::Setting,
        &["pc.bootstrap_expect differs: "],
        "The nodes do not agree how many begin the cluster.",
        "Set the same number on all nodes.",
    ),
    ours(
        Topic::View,
        &["failed to reach primary view: 110"],
        "No primary component was found in time (pc.wait_prim_timeout). The server ends.",
        "Look whether the nodes in wsrep_cluster_address run and can be reached on their group port (4567); start the server again.",
    ),
    ours(
        Topic::View,
        &["a primary component of this cluster is running, ", " is in it: a second one would split it"],
        "A bootstrap was asked for while the cluster runs. It was refused, because two clusters with different data would be the result.",
        "Start this node with the address of the others in wsrep_cluster_address, without --wsrep-new-cluster.",
    ),
    ours(
        Topic::View,
        &["A member of this cluster runs, and refuses this node: a bootstrap could split the cluster"],
        "A bootstrap was refused: the others live. They threw this node out, caught it in a lie, or its data directory is an old copy.",
        "Start this node with the addresses of the others in wsrep_cluster_address, without --wsrep-new-cluster. It is let in at once, or when the time is over.",
    ),
    ours(
        Topic::View,
        &[" holds more of this cluster's write-set log (up to entry "],
        "Another node has commits that this one lacks. Its bootstrap was refused.",
        "Bootstrap the node that is named, or start this node without --wsrep-new-cluster.",
    ),
    ours(
        Topic::View,
        &[" has data up to seqno ", ", and this node has none, in its data or its write-set log, beyond seqno "],
        "The data of another node, which lost its log, hold commits that this node lacks. Its bootstrap was refused.",
        "Bootstrap the node that is named. To give up what only that one has, stop it first.",
    ),
    ours(
        Topic::View,
        &["It may not be safe to bootstrap the cluster from this node."],
        "This node was not the last to leave. Others may hold commits that it lacks.",
        "Start the nodes plainly: they find the best log by themselves. Only if the others are lost for good, set safe_to_bootstrap: 1 in grastate.dat.",
    ),
    ours(
        Topic::Fork,
        &["bootstrap without an answer from ", ": what only they hold is lost, and they will take a full copy"],
        "This node began without asking the named ones. Commits that only they have are lost.",
        "Nothing, if that was meant. They take a full copy when they come.",
    ),
    ours(
        Topic::Fork,
        &["another primary component of this cluster runs, separated from this one by a forced change"],
        "The cluster was split by a forced change and both parts went on. This node's part gives way.",
        "Save what was committed on this part only, before a full copy replaces it.",
    ),
    ours(
        Topic::Fork,
        &["is in a primary component of this cluster, while this node went on alone"],
        "An old copy of the data directory was put back, here or there, and both sides went on. This one gives way.",
        "Save what was committed on this node only, before a full copy replaces it.",
    ),
    ours(
        Topic::Fork,
        &["orders in this cluster, too, as an old copy of its data directory was put back"],
        "Another node went on alone from an old copy, and so did this one, which has the longer log. Both take commits.",
        "Stop the one with the old copy, save its commits since then, remove its write-set log and grastate.dat, and start it again.",
    ),
    ours(
        Topic::Fork,
        &["has a state that does not name all whom the write-set log here has named"],
        "Another node went on alone from an old copy, and this one gave way. Its data are kept: the other's are older.",
        "Stop the one with the old copy, remove its write-set log and grastate.dat, and start it again.",
    ),
    ours(
        Topic::Fork,
        &["going on from the data of this node: branch ", " begins after seqno "],
        "A forced change: the cluster goes on from this node's data, and what lay beyond is given up.",
        "Nodes that hold more take a full copy.",
    ),
    ours(
        Topic::Fork,
        &["going on with the best log of all, which ends at entry "],
        "All logs may lack their end (power loss in mode process). All voters are here, so the best one is taken.",
        "Compare the last commits with what the applications logged.",
    ),
    ours(
        Topic::Fork,
        &["not forming the cluster again: "],
        "Going on would lose commits that are known to exist. The line says which, and what to start.",
        "Do what the line says. Force nothing before you have read it.",
    ),
    ours(
        Topic::Fork,
        &["not made primary: "],
        "pc.bootstrap was set here, and this node cannot go on alone. The line says why.",
        "Do what the line says; docs/operations/recovery.md has the ways.",
    ),
    ours(
        Topic::Fork,
        &["the write-set logs of ", " may lack entries that were acknowledged"],
        "Too few whole logs are here to be sure that nothing acknowledged is lost.",
        "Start more nodes; with all of them the cluster goes on by itself.",
    ),
    ours(
        Topic::Fork,
        &["the write-set log here is an old copy, or is damaged: all voters that it names are here"],
        "An old copy of the data directory was put back, or the write-set log was damaged. The voters may have changed since.",
        "Start the other nodes. If all of them are gone, or were put back too: force the one with the newest data (docs/operations/recovery.md).",
    ),
    ours(
        Topic::Fork,
        &["most voters are here, but those that are not weigh at least as much", "Waiting for "],
        "The majority counts by weight (pc.weight), and a member that is not here has too much of it.",
        "Start the named node. If it is gone for good: force another (docs/operations/recovery.md); then lower the weights.",
    ),
    // --- members, links
    ours(Topic::Link, &["connection established to "], "A link to a member stands.", NOTHING),
    ours(
        Topic::Link,
        &["connection to ", " failed: ", "; trying again"],
        "A peer cannot be reached. That is normal while it is down.",
        "If it runs: look at its address, its port 4567, firewalls, and at TLS on both ends.",
    ),
    ours(
        Topic::Link,
        &["cannot resolve the host of address '", "; trying again"],
        "The name of a peer has no address at present.",
        "Look at the name service, and at wsrep_cluster_address.",
    ),
    ours(
        Topic::Link,
        &["connection to '", "' was refused: "],
        "The peer does not let this node in, and says why behind the colon.",
        "Mend what it says: the name of the cluster, versions, the node's identity.",
    ),
    ours(
        Topic::Link,
        &["connection to ", " closed: "],
        "A link ended, for the reason behind the colon. `Connection reset by peer`: the other process ended.",
        "If it comes again and again: look at the network, and at the other node's log.",
    ),
    ours(
        Topic::Link,
        &["Connection not allowed, IP ", " not found in allowlist."],
        "A stranger was turned away by mysql.wsrep_allowlist.",
        "If it is a member: put its address into that table.",
    ),
    ours(
        Topic::Link,
        &["wsrep_cluster_name differs"],
        "A node of another cluster connected.",
        "Give all nodes of a cluster the same wsrep_cluster_name, and different clusters different ones.",
    ),
    ours(
        Topic::Link,
        &["one is cloned from the other's data directory"],
        "Two nodes have the same identity, because one is a copy of the other's data directory.",
        "Stop the copy, remove all trireme.*.galera.cache files and gvwstate.dat from it, and start it again.",
    ),
    ours(
        Topic::Link,
        &["runs on a copy of the other's data directory"],
        "Two nodes have the same identity, because one is a copy of the other's data directory.",
        "Stop the copy, remove all trireme.*.galera.cache files and gvwstate.dat from it, and start it again.",
    ),
    ours(
        Topic::Link,
        &["speaks protocol version ", ": upgrade the older one"],
        "Two versions of the provider have no protocol in common.",
        "Upgrade the older one first.",
    ),
    ours(
        Topic::Link,
        &["supports group level ", "which is never lowered"],
        "A node has a version of Trireme that does not support the level that the group has reached.",
        "Install a version there that supports it. docs/operations/upgrade.md says how levels rise.",
    ),
    ours(
        Topic::Link,
        &["group at level ", "supports group level"],
        "This node has a version of Trireme that does not support the level of the group that it calls.",
        "Install a version here that supports it. docs/operations/upgrade.md says how levels rise.",
    ),
    ours(
        Topic::Log,
        &["the write-set log of this node is at group level "],
        "The log was written by a group whose level this version of Trireme does not support. Nothing was changed.",
        "Install a version that supports it. docs/operations/upgrade.md says how levels rise.",
    ),
    ours(
        Topic::Log,
        &["holds an entry of kind ", "which a later version of Trireme wrote"],
        "The log was written by a later version of Trireme. Nothing was changed.",
        "Install that version.",
    ),
    ours(
        Topic::Setting,
        &["the group level is ", "from here on, on all members"],
        "All members support a higher group level, and it is in force. A version below it can no longer join.",
        "Nothing.",
    ),
    ours(
        Topic::Setting,
        &["repl.proto_max=", " comes too late"],
        "The group level is above what this setting allows, and it is never lowered.",
        "Remove the setting, or set it to the level in force or above.",
    ),
    ours(
        Topic::Link,
        &["cannot listen on ", "Address already in use"],
        "Another process has the port for members.",
        "Stop it (perhaps a former server that is still ending), or set gmcast.listen_addr.",
    ),
    ours(
        Topic::Link,
        &["cannot listen on ", ": not permitted; "],
        "The system forbids the port.",
        "Allow it in SELinux or AppArmor, or take a port above 1023.",
    ),
    ours(
        Topic::Link,
        &["cannot listen on "],
        "The port for members cannot be opened. Nobody can connect to this node.",
        "Look at gmcast.listen_addr and wsrep_node_address.",
    ),
    ours(
        Topic::Link,
        &["a checksum does not match: the data was damaged on the way"],
        "The network changed bytes. The link is made anew, and nothing is lost.",
        "Look for a broken network card, switch or offloading if it happens again.",
    ),
    ours(
        Topic::Link,
        &["something that is not this protocol (a port scanner, or a member that runs other software)"],
        "Something else than Trireme spoke on the port for members.",
        "A scanner: close the port to it. Galera's library on a node of this cluster: all nodes need the same provider.",
    ),
    ours(
        Topic::Silence,
        &["member ", "is silent"],
        "A member was not heard for 0.4 to 0.8 s: frozen, cut off, or dead. Commits go on without it, if a majority is left.",
        "If it does not end by itself, look at that node. The view drops it after evs.suspect_timeout (5 s).",
    ),
    ours(
        Topic::Silence,
        &["member ", "is heard again"],
        "The silence of a member is over.",
        "If it comes again and again: look at the network and at pauses of that machine.",
    ),
    // --- transfers
    ours(
        Topic::Transfer,
        &["The server cannot be given its data: "],
        "This node can do nothing more for a server that waits for its first data. The server ends.",
        "Mend what the line names and start the server again.",
    ),
    ours(
        Topic::Transfer,
        &["State transfer required:"],
        "This node's data are behind the group's. The rest comes from the others' logs, or as a full copy.",
        NOTHING,
    ),
    ours(
        Topic::Transfer,
        &["requested state transfer from '", "'. Selected ", ") as donor."],
        "A full copy begins, from the node that is named last.",
        "Nothing. The donor may serve slowly for as long as it takes.",
    ),
    ours(
        Topic::Transfer,
        &["requested state transfer from '", "', but it is impossible to select State Transfer donor: "],
        "A member needs a full copy, and nobody can give one now. `Resource temporarily unavailable`: it is tried again.",
        "Wait; if it lasts, look at wsrep_sst_donor and at the states of the others.",
    ),
    ours(
        Topic::Transfer,
        &[": State transfer to ", " failed."],
        "A full copy failed. The reason is in the log of the transfer script, on both nodes.",
        "Look at both logs for `WSREP_SST`; then restart the joiner.",
    ),
    ours(Topic::Transfer, &[": State transfer to ", "complete"], "A full copy has arrived.", NOTHING),
    ours(
        Topic::Transfer,
        &["Receiving IST: ", " writesets, seqnos "],
        "This node gets what it missed from the logs of the others; no full copy is needed.",
        NOTHING,
    ),
    ours(Topic::Transfer, &["Receiving IST...", " events) complete."], "How far that has come.", NOTHING),
    ours(
        Topic::Transfer,
        &["IST first seqno ", " not found from cache, falling back to SST"],
        "This node was away longer than the logs of the others reach back. It needs a full copy.",
        "If it happens often: let the logs be larger (gcache.size, free space). `trireme status` shows how long a node may be away.",
    ),
    ours(
        Topic::Transfer,
        &["the log holds more than ", " bytes for members that are away", "so it needs a full copy when it comes back"],
        "A member has been away too long, and the log can keep no more for it.",
        "Bring the member back soon, or expect a full copy. More free space, or a larger gcache.size, keeps more.",
    ),
    ours(
        Topic::Transfer,
        &["what this node missed is no longer kept by any member: restart it to get a full copy"],
        "This node lacks entries that no log holds any more.",
        "Restart the server; it asks for a full copy.",
    ),
    ours(
        Topic::Transfer,
        &["the running server cannot take a full copy: restart it"],
        "A full copy is needed, and a server takes one only while it starts.",
        "Restart the server.",
    ),
    ours(
        Topic::Transfer,
        &["The full copy ends at ", "Start the server again, and it asks for another copy."],
        "The copy took so long that what lies behind it is kept by nobody.",
        "Start the server again. If it happens again, let the logs of the donors be larger.",
    ),
    ours(
        Topic::Transfer,
        &["Requesting state transfer failed: "],
        "This node could not get a full copy.",
        "Look at the reason, mend it, restart the server.",
    ),
    ours(
        Topic::Transfer,
        &["SST sending failed: "],
        "The script that gives a full copy failed on this donor.",
        "Look at the lines of `WSREP_SST` before it: a missing program, credentials (wsrep_sst_auth), disk space.",
    ),
    ours(
        Topic::Transfer,
        &["SST failed: "],
        "The script that takes a full copy failed.",
        "Look at the lines of `WSREP_SST` before it, here and on the donor.",
    ),
    ours(
        Topic::Transfer,
        &["SST brought history "],
        "The copy belongs to another cluster.",
        "Look at wsrep_sst_donor, and whether two clusters have one name.",
    ),
    ours(
        Topic::Transfer,
        &["no member that is here knows where its data stand: "],
        "All nodes lack the position of their data, so none may copy from another.",
        "Do what the line says: run each with --wsrep-recover, and start it with the position that it tells.",
    ),
    // --- data
    ours(
        Topic::Vote,
        &["Inconsistency detected: Inconsistent by consensus on "],
        "A write set failed here and not on the others: the data of this node differ. It leaves.",
        "Restart it for a full copy. Find out who wrote here with wsrep_on=OFF or sql_log_bin=0, or ran DDL with wsrep_OSU_method=RSU.",
    ),
    ours(
        Topic::Vote,
        &["Vote 0 (success) on ", " is inconsistent with group. Leaving cluster."],
        "The write set worked here and failed on the majority: the data of this node differ. It leaves.",
        "Restart it for a full copy, and find out who wrote here only.",
    ),
    ours(
        Topic::Vote,
        &[
            "the data here contradict what the group decided about write set ",
            " while this node was away: a full copy is needed.",
        ],
        "A write set went here otherwise than on the others, and this node ended before the vote did. It takes a full copy.",
        "Find out who wrote with wsrep_on=OFF or sql_log_bin=0, here or on the others.",
    ),
    ours(
        Topic::Vote,
        &["nobody has data in which write set ", " went as the group decided: this member goes on from "],
        "All voters are here, and the data of all contradict a vote. The node with the newest data goes on, the others copy from it.",
        "Compare the tables of that write set with what they should hold.",
    ),
    ours(
        Topic::Vote,
        &["no member that is here has data in which write set ", " went as the group decided"],
        "The data of all nodes that are here contradict a vote on that write set. They wait for the named voters.",
        "Start the named nodes. If they are lost for good, do what the line says.",
    ),
    ours(
        Topic::Vote,
        &[" could not be written: ", "If this node ends before a vote on an error is decided"],
        "The node could not note which write set failed here. After a restart it does not know whether its data differ.",
        "Look at the file system that holds gcache.dir: space, permissions, errors of the disk.",
    ),
    ours(
        Topic::Vote,
        &["Vote over ", " found no majority in time and is dismissed"],
        "The members did not agree in time whose data differ.",
        "Compare the tables of that write set on all nodes.",
    ),
    ours(
        Topic::Vote,
        &["Vote over ", " waits for ", "those that failed are the last that serve"],
        "A write set failed on the last servers that take clients. The others are copied, backed up or catch up, and have not answered.",
        "End the backup or the copy there (a lock, `wsrep_desync`), or stop those servers.",
    ),
    ours(
        Topic::Vote,
        &["Failed to apply write set ", "; leaving the group"],
        "A write set of the group cannot be applied here, so the data differ or the disk fails.",
        "Look at the server's error before it. Restart for a full copy.",
    ),
    ours(
        Topic::Vote,
        &["certification conflict: ", " fails: "],
        "Two nodes changed the same row at the same time. The later one gets error 1213.",
        "Nothing: the application repeats it. Where it is frequent, send writes for the same rows to one node.",
    ),
    ours(
        Topic::Setting,
        &["transaction size limit (", ") exceeded: "],
        "A transaction is larger than repl.max_ws_size (or wsrep_max_ws_size). It is refused.",
        "Split it, raise the limit, or use streaming (wsrep_trx_fragment_size).",
    ),
    // --- flow control
    ours(
        Topic::Flow,
        &["flow control: ", " has more to apply than it can; the group may write "],
        "A member is slower than the writers, and slows the group to its pace.",
        "Look at that node: disk, load, locks, wsrep_slave_threads.",
    ),
    ours(
        Topic::Flow,
        &[
            "flow control: nothing was applied here for ",
            "this node no longer slows the others, and lags until it gets on",
        ],
        "The appliers of this node stand still: a lock, a huge transaction, a full disk. The others go on without waiting for it.",
        "Look at SHOW PROCESSLIST here, for `Waiting for table metadata lock` and the like.",
    ),
    ours(
        Topic::Flow,
        &[" lags behind at ", " and does not hold up certification any more"],
        "A member is so far behind that the others stop keeping keys in memory for it.",
        "Look at that node, as for flow control.",
    ),
    ours(Topic::Flow, &["Member ", " has caught up to "], "That member is back in step.", NOTHING),
    // --- eviction
    ours(
        Topic::Eviction,
        &["Evicting member ", " permanently from group"],
        "An operator (evs.evict) threw a member out.",
        "It may come back after `evs.evict=` without a value, and a restart.",
    ),
    ours(
        Topic::Eviction,
        &["this node has been evicted out of the cluster"],
        "An operator threw this node out.",
        "Ask why; then restart the server.",
    ),
    ours(
        Topic::Eviction,
        &["') was thrown out of the group a moment ago"],
        "A member that was thrown out tries to come back.",
        "Nothing; after a moment it is let in, unless it is on the list (wsrep_evs_evict_list).",
    ),
    // --- the write-set log and its disk
    ours(
        Topic::Log,
        &["this node is out of the group until the disk with its write-set log works"],
        "The log cannot be written. The node acknowledges nothing more, and its server goes on answering reads.",
        "Make room, or mend the disk; the node joins again by itself.",
    ),
    ours(Topic::Log, &["the write-set log works again: joining the group at "], "The disk works again.", NOTHING),
    ours(
        Topic::Log,
        &["write-set log: cannot ", ": "],
        "An operation on the write-set log failed. The line says which, and what to do.",
        "Do what stands behind the semicolon.",
    ),
    ours(
        Topic::Log,
        &["the write-set log holds ", " bytes, more than gcache.size and gcache.keep_pages_size allow"],
        "The log is larger than it should be, because the storage engine here has not written its last commits to disk.",
        "Look for a slow disk, and at innodb_flush_log_at_timeout.",
    ),
    ours(
        Topic::Log,
        &["the log has reached its bound of "],
        "The log of an arbitrator is full: a server that lacks what was dropped needs another server.",
        "Bring the missing server back, or give the arbitrator more room.",
    ),
    ours(
        Topic::Log,
        &["the disk lost entries ", " of the write-set log: the others have to repair it"],
        "Entries on disk are gone: a damaged disk, or files that were removed. The node does not vote until the others have repaired its log.",
        "Look into the kernel log for errors of the disk. Keep the others running.",
    ),
    ours(
        Topic::Log,
        &["the disk may have lost "],
        "Entries may be missing after a failed sync or a power loss.",
        "Nothing, while the others run: they repair it.",
    ),
    ours(
        Topic::Log,
        &["an old copy of the data directory was put back, or files are missing"],
        "This node acknowledged more than its log holds: a restored snapshot, or removed files. It has no vote until it is repaired.",
        "Nothing, while the others run. Do not put back copies of data directories of single nodes.",
    ),
    ours(
        Topic::Log,
        &["this directory is of format "],
        "Another version of the provider wrote the log.",
        "Use that version, or remove all files trireme.*.galera.cache for a full copy.",
    ),
    ours(
        Topic::Log,
        &["write-set log: ", " is encrypted with key "],
        "The key that this file of the log was written with is not in repl.log_key_file, or none is set. Nothing was changed.",
        "Put the key file back. If the key is lost, remove all files trireme.*.galera.cache for a full copy.",
    ),
    ours(
        Topic::Log,
        &["write-set log: ", " is in use by another process"],
        "Another process holds the lock of the log's directory.",
        "Stop it: perhaps the former server is still ending. Or give this node its own gcache.dir.",
    ),
    ours(
        Topic::Log,
        &[
            "gcache.dir=",
            " lies within the data directory ",
            ", where a full copy of the data would overwrite the write-set log",
        ],
        "State-transfer scripts remove or replace directories below the data directory. The server does not start.",
        "Move the log's files as the line says, and set gcache.dir.",
    ),
    ours(
        Topic::Log,
        &["both copies in ", " are unreadable"],
        "The node's identity and promises cannot be read.",
        "Remove all files trireme.*.galera.cache: the node joins as a new member, with a full copy.",
    ),
    ours(
        Topic::Log,
        &["the machine restarted without a clean stop in durability mode "],
        "The power was lost in mode process: entries may be missing. The node does not vote until its log is whole again.",
        "Start the others.",
    ),
    ours(
        Topic::Log,
        &["the write-set log is whole again up to entry "],
        "The others have repaired this node's log; it votes again.",
        NOTHING,
    ),
    ours(
        Topic::Log,
        &["replayed ", " entries of the write-set log in "],
        "At the start, what the storage engine lacked came from the node's own log.",
        NOTHING,
    ),
    ours(
        Topic::Log,
        &["repl.durability=", " was set on this node, but the cluster's mode is "],
        "The mode is the cluster's: what my.cnf of this node says does not count.",
        "Set it with SET GLOBAL wsrep_provider_options on any member, and in my.cnf of all.",
    ),
    ours(
        Topic::Log,
        &["repl.durability is now ", ", on all members"],
        "The mode of durability was changed for the whole cluster.",
        NOTHING,
    ),
    // --- position of the data
    ours(
        Topic::Position,
        &[
            "the storage engine is at ",
            " as grastate.dat or --wsrep-start-position has it: going on from where the engine is",
        ],
        "The state file and the storage engine disagreed. The engine is right.",
        "If the position came by --wsrep-start-position: remove that option.",
    ),
    ours(
        Topic::Position,
        &["the storage engine is ", "written twice. The server ends."],
        "The data are not where this node meant to go on from. The server ends before harm is done.",
        "Restart the server, as the line says.",
    ),
    ours(
        Topic::Position,
        &["the position could not be recovered: "],
        "The position of the data is not known, for the reason behind the colon. A full copy may be needed.",
        "Mend the reason and start again; or run mariadbd --wsrep-recover by hand.",
    ),
    ours(Topic::Position, &["recovered position "], "The storage engine was asked where its data are.", NOTHING),
    ours(
        Topic::Position,
        &["has no write-set log that belongs to it: a full copy is needed"],
        "The data are of a history whose log is not here.",
        "Nothing: it asks for a full copy.",
    ),
    ours(
        Topic::Position,
        &["grastate.dat cannot be written"],
        "The data directory cannot be written. DDL is refused here.",
        "Make room, or mend its permissions.",
    ),
    ours(
        Topic::Position,
        &["DDL statement ", " cannot be marked in grastate.dat"],
        "The data directory cannot be written while DDL of another node has to be executed. The server ends.",
        "Make the data directory writable and start the server.",
    ),
    ours(
        Topic::Position,
        &["what DDL statement ", " did cannot be synced, so that grastate.dat keeps its mark"],
        "The disk does not take what a statement changed. The node goes on. After a crash it asks for a full copy.",
        "Look at the disk. The next statement that can be synced takes the mark away, or the stop does.",
    ),
    ours(
        Topic::Position,
        &["write set ", " is not applied: the connection ends before it can be read back"],
        "The disk with the log had failed, and the server stopped. Its data end before this write set.",
        "Nothing: the next start goes on from there.",
    ),
    ours(
        Topic::Position,
        &["the storage engine could not be asked whether its data are at ", ", and this bootstrap begins there"],
        "The position of a bootstrap is the word of grastate.dat or of --wsrep-start-position alone.",
        "Find out why the engine did not answer. If rows are missing here, stop all and bootstrap another node.",
    ),
    ours(
        Topic::Position,
        &[" cannot be marked in grastate.dat, so a crash would not be noticed"],
        "The data are about to be replaced, and the file that has to say so cannot be written. The server ends.",
        "Make grastate.dat and its directory writable for the server and start it.",
    ),
    ours(
        Topic::Position,
        &["the full copy cannot be synced to disk"],
        "The files of a full copy are there, and the disk does not take them. The server ends.",
        "Look at the disk, then start the server: it asks for another copy.",
    ),
    // --- security
    ours(
        Topic::Security,
        &["this node listens on ", ": whoever reaches that port can read and change all data"],
        "The port for members is open to everybody who reaches it.",
        "`trireme secret new FILE`, copy it to all nodes, and set repl.secret_file; or use TLS with certificates.",
    ),
    ours(
        Topic::Security,
        &[", violates the protocol: it ", "Its link is closed and refused for "],
        "The named peer sent what no build of Trireme sends: a faulty build or machine, or a stranger with the secret. It is left.",
        "Stop what runs there. If it is not yours, change the secret or revoke its certificate. A mended one is let in after the time.",
    ),
    ours(
        Topic::Security,
        &[" violates the protocol: it ", "That is ignored. Its link stays"],
        "The same, of a peer without which the others are no majority. Such messages are ignored.",
        "The same. Before you stop it, start another member.",
    ),
    ours(
        Topic::Security,
        &[", which violated the protocol, may be linked again: "],
        "The time for which a peer was refused is over, or the others need it for their majority.",
        NOTHING,
    ),
    ours(
        Topic::Security,
        &["do both have the same secret in repl.secret_file?"],
        "Two nodes do not share a secret.",
        "Copy the same file to both, and SET GLOBAL wsrep_provider_options='repl.secret_reload=1'.",
    ),
    ours(
        Topic::Security,
        &["TLS: its certificate", " is refused: "],
        "The certificate of a peer is not accepted here, for the reason behind the colon.",
        "Look at its expiry date, its authority (socket.ssl_ca) and its extended key usage: `trireme doctor`.",
    ),
    ours(
        Topic::Security,
        &["the certificate in socket.ssl_cert ", ": peers refuse it from then on"],
        "This node's certificate ends soon, or has ended.",
        "Put a new one in its place and SET GLOBAL wsrep_provider_options='socket.ssl_reload=1'.",
    ),
    ours(
        Topic::Security,
        &["a list in socket.ssl_crl ", ": from then on this node takes nobody"],
        "A revocation list ends soon, or has ended. Then no certificate can be checked, and all are refused.",
        "Put a current list of each authority in its place and SET GLOBAL wsrep_provider_options='socket.ssl_reload=1'.",
    ),
    ours(
        Topic::Security,
        &["the key in socket.ssl_key='", "' can be used by other users of this host"],
        "A reader of that key can be this node.",
        "chmod 0600, owner: the server's user. If somebody may have read it: a new key, and the old certificate revoked (socket.ssl_crl).",
    ),
    ours(
        Topic::Security,
        &["the full copy by '", "' is not protected as the group is: "],
        "Full copies of the data go by scripts that verify nobody, perhaps in clear text.",
        "`trireme secret transfer`, and the lines that it prints in the section [sst] of my.cnf, on every node.",
    ),
    ours(
        Topic::Security,
        &["another process with this node's id is a member of the group, so this one leaves it"],
        "This server runs on a copy of a running node's data directory.",
        "On the copy remove the files trireme.*.galera.cache, which makes it a new member, and start it again.",
    ),
    ours(
        Topic::Security,
        &["(is socket.ssl on at one end only?)"],
        "One node speaks TLS and the other does not.",
        "Set TLS on both; to change a running cluster use socket.dynamic=yes meanwhile.",
    ),
    ours(
        Topic::Security,
        &["it speaks in clear text, and TLS is on here"],
        "A peer speaks in clear text, and this node wants TLS.",
        "Set TLS, or the secret, on that node too.",
    ),
    ours(
        Topic::Security,
        &[" more lines about connections of strangers were left out"],
        "Many strangers connect to the port for members.",
        "Close the port to all but the members.",
    ),
    // --- mistakes of ours
    ours(
        Topic::Panic,
        &["Internal error in ", "This node is out of service until the server is restarted."],
        "A mistake in the provider. The node has left the group, and its server answers on.",
        "`trireme bundle`, report it, and restart the server.",
    ),
    ours(
        Topic::Panic,
        &["Internal error in thread trireme-group: ", "This node leaves the group; restart the server."],
        "A mistake in the provider. The node has left the group, and its server answers on.",
        "`trireme bundle`, report it, and restart the server.",
    ),
    // --- of the server
    servers(
        Topic::State,
        &["Synchronized with group, ready for connections"],
        "This node has caught up and serves clients.",
        NOTHING,
    ),
    servers(
        Topic::State,
        &["WSREP has not yet prepared node for application use"],
        "Error 1047: the node is not in a primary component, or not synced.",
        "`trireme status` says why.",
    ),
    servers(
        Topic::Transfer,
        &["WSREP_SST: [ERROR]"],
        "The script of a full copy failed.",
        "Read this line and those around it: a missing program (socat, rsync, mariadb-backup), credentials, disk space, a port (4444).",
    ),
    servers(
        Topic::Vote,
        &["BF lock wait long"],
        "An applier waits for a lock that no local transaction gives up.",
        "Look at SHOW ENGINE INNODB STATUS on that node; report it if it stays.",
    ),
];

/// The table as a page of the documents.
pub fn page() -> String {
    let mut out = String::from(
        "# Lines of the error log\n\nMade by `trireme explain --list`. `trireme explain` takes a line, or a whole log, and says the same. An ellipsis stands for \
         the part that differs.\n\n| line | topic | meaning | what to do |\n|---|---|---|---|\n",
    );
    for line in LINES {
        let shown = line.shown().replace('|', "\\|");
        out += &format!("| `{}` | {} | {} | {} |\n", shown.trim(), line.topic.word(), line.meaning, line.action);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.push(path);
            }
        }
    }

    /// Text of the code as it runs: a backslash at the end of a line swallows the line end and what the next one begins with.
    fn code() -> String {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for name in ["node", "provider", "transport", "order", "wslog", "surface", "replicator"] {
            sources(&top.join(name).join("src"), &mut files);
        }
        let mut out = String::new();
        for file in files {
            let text = fs::read_to_string(file).unwrap();
            let mut joined = false;
            for line in text.lines() {
                let line = if joined { line.trim_start() } else { line };
                joined = line.ends_with('\\');
                out += line.strip_suffix('\\').unwrap_or(line);
                if !joined {
                    out.push('\n');
                }
            }
        }
        out
    }

    #[test]
    fn every_line_is_still_printed_by_the_code() {
        let code = code();
        let missing: Vec<&str> = LINES
            .iter()
            .filter(|line| line.origin == Origin::Provider)
            .flat_map(|line| line.pieces.iter().copied())
            .filter(|piece| !code.contains(piece))
            .collect();
        assert!(missing.is_empty(), "the code no longer says: {missing:#?}");
    }

    #[test]
    fn every_line_is_found_as_itself() {
        for line in LINES {
            let text = line.pieces.join(" 17 ");
            let found = find(&text).unwrap();
            assert_eq!(found.pieces, line.pieces, "{text}");
        }
        let topics: BTreeSet<Topic> = LINES.iter().map(|line| line.topic).collect();
        assert_eq!(topics.len(), Topic::ALL.len());
    }

    #[test]
    fn real_lines() {
        let topic = |text| find(text).map(|line| line.topic);
        let view = "2026-11-23  0:01:20 0 [Note] WSREP: New COMPONENT: primary = yes, bootstrap = no, my_idx = 0, memb_num = 2";
        assert_eq!(topic(view), Some(Topic::View));
        assert_eq!(topic("member node3 is silent"), Some(Topic::Silence));
        assert_eq!(topic("InnoDB: Buffer pool(s) load completed"), None);
        assert_eq!(topic(""), None);
    }

    #[test]
    fn the_page_is_that_of_the_code() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/log-lines.md");
        if std::env::var_os("UPDATE_PAGES").is_some() {
            fs::write(&path, page()).unwrap();
        }
        let written = fs::read_to_string(path).unwrap_or_default();
        assert!(written == page(), "docs/operations/log-lines.md is old: UPDATE_PAGES=1 cargo test -p trireme-observe");
    }
}
