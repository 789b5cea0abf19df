//! Wording of log lines that others read: the server's test suites, log analysers and people who know Galera's logs.
//!
//! Three classes. *Required*: a suite counts the line. *Tolerated*: a suite allows exactly this wording at warning or error
//! level and fails on any other, so a warning about such a condition must use it. *Customary*: people and tools search for it.
//! Everything else is logged at informational level in our own words.
//!
//! No line may contain `DONOR` in upper case except [`shifting`] (galera_sst_stateless counts them).

use std::fmt;
use std::path::Path;

use trireme_types::{Seqno, Uuid};

/// -1 for "unknown", as in every Galera log.
struct Maybe(Option<Seqno>);

impl fmt::Display for Maybe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(seqno) => seqno.fmt(f),
            None => f.write_str("-1"),
        }
    }
}

// --- node states ---------------------------------------------------------------------------------------------------------

/// Info, required and customary.
pub fn shifting(from: &str, to: &str, at: Option<Seqno>) -> String {
    format!("Shifting {from} -> {to} (TO: {})", Maybe(at))
}

/// Info, customary.
pub fn synced_with_group(member: impl fmt::Display) -> String {
    format!("Member {member} synced with group.")
}

/// Info, customary.
pub fn desyncs_itself(member: impl fmt::Display) -> String {
    format!("Member {member} desyncs itself from group")
}

/// Info, customary.
pub fn resyncs_itself(member: impl fmt::Display) -> String {
    format!("Member {member} resyncs itself to group.")
}

// --- views ---------------------------------------------------------------------------------------------------------------

/// Info, customary.
pub fn new_component(primary: bool, own: Option<usize>, members: usize) -> String {
    let primary = if primary { "yes" } else { "no" };
    let own = own.map_or(-1, |own| own as i64);
    format!("New COMPONENT: primary = {primary}, bootstrap = no, my_idx = {own}, memb_num = {members}")
}

/// Info, customary.
pub fn flow_control_interval(lower: u64, upper: u64) -> String {
    format!("Flow-control interval: [{lower}, {upper}]")
}

/// Info: `pc.bootstrap` in a primary view.
pub const IGNORING_PC_BOOTSTRAP: &str = "ignoring 'pc.bootstrap' in state PRIM";

/// Info.
pub const ISOLATION_ON: &str = "turning isolation on";
pub const ISOLATION_OFF: &str = "turning isolation off";
pub const ISOLATION_FORCE_QUIT: &str = "turning isolation force quit";
/// Info.
pub const LOG_KEYS_RELOADED: &str =
    "repl.log_key_reload: the keys of the write-set log were read again; its next segment uses the first of them";
pub const SECRET_RELOADED: &str = "repl.secret_reload: the secrets were read again; new connections use them";
pub const SSL_RELOADED: &str = "socket.ssl_reload: certificates and keys were read again; new connections use them";
/// Error, tolerated in one test: what `gmcast.isolate=2` ends with.
pub const FORCED_QUIT: &str = "exception from gcomm, backend must be restarted: Gcomm backend termination was requested by setting gmcast.isolate=2.";

/// Info: `evs.evict`.
pub fn evicting(member: Uuid) -> String {
    format!("Evicting member {member} permanently from group")
}

/// Info: `evs.evict` without a value.
pub fn unevicting(member: Uuid) -> String {
    format!("unevicting {member}")
}

/// Error, on a node whose data directory is a copy of a living one's.
pub fn twin(reason: &str) -> String {
    format!(
        "another process with this node's id is a member of the group, so this one leaves it: one of the two runs on a copy of the other's data \
         directory. On the copy remove the files trireme.*.galera.cache, which makes it a new member, and start it again ({reason})"
    )
}

/// Error, on the evicted node.
pub const EVICTED: &str = "exception from gcomm, backend must be restarted: this node has been evicted out of the cluster, gcomm backend restart is required";

// --- connecting ------------------------------------------------------------------------------------------------------------

/// Error lines after a cluster address was refused, in order: `reason` is the first (see `ClusterAddressError`).
pub fn connect_failed(reason: &str, errno: i32, channel: &str, url: &str) -> Vec<String> {
    let text = errno_text(errno);
    vec![
        reason.to_owned(),
        format!("Failed to initialize backend using '{url}': -{errno} ({text})"),
        format!("Failed to open channel '{channel}' at '{url}': -{errno} ({text})"),
        format!("gcs connect failed: {text}"),
    ]
}

/// Error lines when no primary view was reached in time, in order.
pub fn primary_not_reached(channel: &str, url: &str) -> Vec<String> {
    vec![
        "failed to open gcomm backend connection: 110: failed to reach primary view: 110 (Connection timed out)".into(),
        "Failed to open backend connection: -110 (Connection timed out)".into(),
        format!("Failed to open channel '{channel}' at '{url}': -110 (Connection timed out)"),
        "gcs connect failed: Connection timed out".into(),
    ]
}

/// Error: nobody of the list can be resolved.
pub const NO_ADDRESS: &str = "No address to connect";

fn errno_text(errno: i32) -> &'static str {
    match errno {
        22 => "Invalid argument",
        94 => "Socket type not supported",
        _ => "Unknown error",
    }
}

/// Error: the node was not the last to leave. Tolerated in three tests by its beginning.
pub fn unsafe_to_bootstrap(file: &Path) -> String {
    format!(
        "It may not be safe to bootstrap the cluster from this node. It was not the last one to leave the cluster and may not \
         contain all the updates. To force cluster bootstrap with this node, edit the {} file manually and set \
         safe_to_bootstrap to 1 .",
        file.display()
    )
}

// --- state file ------------------------------------------------------------------------------------------------------------

/// Warning, tolerated.
pub fn state_file_missing(file: &Path) -> String {
    format!("Could not open state file for reading: '{}'", file.display())
}

/// Fatal: `what` must not be gone on with before the state file says so.
pub fn unmarked(what: &str) -> String {
    format!(
        "{what} cannot be marked in grastate.dat, so a crash would not be noticed. Need to abort. Make grastate.dat and the directory it is in \
         writable for the server, and start the server again."
    )
}

/// Warning, tolerated.
pub fn view_file_missing(file: &Path) -> String {
    format!("access file({}) failed(No such file or directory)", file.display())
}

/// Info, customary.
pub fn found_saved_state(uuid: Uuid, seqno: Option<Seqno>, safe_to_bootstrap: bool) -> String {
    format!("Found saved state: {uuid}:{}, safe_to_bootstrap: {}", Maybe(seqno), u8::from(safe_to_bootstrap))
}

/// Warning, tolerated: the server named a position and the file knows another one.
pub const INITIAL_POSITION_KEPT: &str = "Initial position was provided by configuration or SST, avoiding override";

// --- state transfer ----------------------------------------------------------------------------------------------------------

/// Info, customary.
pub fn state_transfer_required(group: (Uuid, Option<Seqno>), local: (Uuid, Option<Seqno>)) -> String {
    format!(
        "State transfer required:\n\tGroup state: {}:{}\n\tLocal state: {}:{}",
        group.0,
        Maybe(group.1),
        local.0,
        Maybe(local.1)
    )
}

/// Info, customary. `donors`: the configured list, empty for any. `state`: the donor's.
pub fn state_transfer_selected(
    joiner: impl fmt::Display,
    donors: &str,
    donor: impl fmt::Display,
    state: &str,
) -> String {
    format!("Member {joiner} requested state transfer from '{}'. Selected {donor}({state}) as donor.", or_any(donors))
}

/// Warning, tolerated with the reason `Resource temporarily unavailable`, which means: later.
pub fn state_transfer_impossible(joiner: impl fmt::Display, donors: &str, reason: &str) -> String {
    format!(
        "Member {joiner} requested state transfer from '{}', but it is impossible to select State Transfer donor: {reason}",
        or_any(donors)
    )
}

/// Warning. `who`: is here, or waited for.
pub fn nobody_has_data(who: &str) -> String {
    format!(
        "no member that is here knows where its data stand: {who}. Nothing is copied, and the data are as they were. Each server's log says at \
         its start why ('the position could not be recovered', or a state file that is missing). To go on without loss, mend that and start \
         the servers again; or stop them, run each once with --wsrep-recover and its usual settings, and start it with the 'Recovered \
         position' that it tells: --wsrep-start-position=UUID:SEQNO. To begin a new history from the data of one node, remove its \
         grastate.dat and start it with --wsrep-new-cluster: the others copy from it"
    )
}

/// Info, customary.
pub fn state_transfer_ended(donor: impl fmt::Display, joiner: impl fmt::Display, ok: bool) -> String {
    format!("{donor}: State transfer to {joiner} {}.", if ok { "complete" } else { "failed" })
}

pub const RETRY_LATER: &str = "Resource temporarily unavailable";
pub const HOST_UNREACHABLE: &str = "No route to host";

fn or_any(donors: &str) -> &str {
    if donors.is_empty() { "*any*" } else { donors }
}

/// Info on the joiner, required by galera_ist_progress.
pub fn receiving_ist(first: Seqno, last: Seqno) -> String {
    let count = (last.raw() + 1).saturating_sub(first.raw());
    format!("Receiving IST: {count} writesets, seqnos {first}-{last}")
}

/// Info on the joiner, from time to time.
pub fn receiving_ist_progress(done: u64, total: u64) -> String {
    let percent = if total == 0 { 100.0 } else { done as f64 * 100.0 / total as f64 };
    format!("Receiving IST...{percent:5.1}% ({done}/{total} events) complete.")
}

/// Error, tolerated in the tests of failing state transfers.
pub fn request_failed(reason: &str) -> String {
    format!("Requesting state transfer failed: {reason}")
}
/// Error, tolerated with [`request_failed`].
pub const NEVER_RECEIVE_STATE: &str = "Will never receive state. Need to abort.";
/// Fatal.
pub const SST_REQUEST_FAILED: &str = "SST request callback failed. This is unrecoverable, restart required.";

// --- inconsistency -----------------------------------------------------------------------------------------------------------

/// Error, tolerated where a suite provokes it.
pub fn inconsistent_by_consensus(history: Uuid, seqno: Seqno) -> String {
    format!("Inconsistency detected: Inconsistent by consensus on {history}:{seqno}")
}

/// Error, tolerated with the former.
pub fn vote_inconsistent(history: Uuid, seqno: Seqno) -> String {
    format!("Vote 0 (success) on {history}:{seqno} is inconsistent with group. Leaving cluster.")
}

// --- limits, pausing ---------------------------------------------------------------------------------------------------------

/// Info, customary.
pub fn paused_at(history: Uuid, seqno: Seqno) -> String {
    format!("Provider paused at {history}:{seqno}")
}
/// Info, customary.
pub fn resuming_at(seqno: Seqno) -> String {
    format!("resuming provider at {seqno}")
}
/// Info, customary.
pub const RESUMED: &str = "Provider resumed.";

#[cfg(test)]
mod tests {
    use super::*;

    const J: &str = "1.0 (node2)";
    const D: &str = "0.3 (node1)";

    #[test]
    fn lines_that_suites_and_tools_search_for() {
        assert_eq!(shifting("SYNCED", "DONOR/DESYNCED", Some(Seqno(5))), "Shifting SYNCED -> DONOR/DESYNCED (TO: 5)");
        assert_eq!(synced_with_group(J), "Member 1.0 (node2) synced with group.");
        assert_eq!(
            state_transfer_selected(J, "", D, "SYNCED"),
            "Member 1.0 (node2) requested state transfer from '*any*'. Selected 0.3 (node1)(SYNCED) as donor."
        );
        assert_eq!(receiving_ist(Seqno(3), Seqno(7)), "Receiving IST: 5 writesets, seqnos 3-7");
        assert_eq!(receiving_ist_progress(1, 4), "Receiving IST... 25.0% (1/4 events) complete.");
        assert_eq!(
            new_component(true, Some(0), 3),
            "New COMPONENT: primary = yes, bootstrap = no, my_idx = 0, memb_num = 3"
        );
        assert_eq!(
            found_saved_state(Uuid::NIL, None, true),
            format!("Found saved state: {}:-1, safe_to_bootstrap: 1", Uuid::NIL)
        );
    }

    #[test]
    fn the_chain_after_a_refused_address() {
        let chain = connect_failed("Backend not supported: foo", 94, "my_wsrep_cluster", "foo://");
        assert_eq!(chain[2], "Failed to open channel 'my_wsrep_cluster' at 'foo://': -94 (Socket type not supported)");
        assert_eq!(chain[3], "gcs connect failed: Socket type not supported");
        assert!(
            primary_not_reached("c", "gcomm://x")[0]
                .starts_with("failed to open gcomm backend connection: 110: failed to reach primary view: 110 ")
        );
    }

    #[test]
    fn only_shifting_says_donor_in_upper_case() {
        for line in [
            state_transfer_selected(J, "node1", D, "SYNCED"),
            state_transfer_impossible(J, "", RETRY_LATER),
            state_transfer_ended(D, J, true),
            state_transfer_ended(D, J, false),
        ] {
            assert!(!line.contains("DONOR"), "{line}");
        }
    }
}
