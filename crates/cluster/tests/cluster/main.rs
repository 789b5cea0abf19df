//! Scenarios with real `mariadbd` servers.
//!
//! `cargo test -p trireme-cluster --test cluster -- name` runs the scenarios whose name contains `name`; `--list`
//! shows them. The provider is `$PROVIDER`, else `target/release/libtrireme.so`; without one everything is
//! reported as ignored, and so is, with its reason, a scenario that this machine cannot run ([`Bed::skip`]). `$FIRST_PORT`
//! moves all ports, so that two checkouts can run at a time. `$SETTINGS` (`file`, `command-line` or `mixed`) says where servers find their
//! settings. Without it some of those about starting after a crash run with both, and so do all with `$LONG`; where several servers are
//! restarted some have one place and some the other; else it is drawn. Scenarios start servers for seconds, so each groups several checks.
//! Those that another test in the short form stands in for run with `$LONG`, or when they are named.
//! Four run at a time, as most of their time is spent waiting; `--test-threads N` says otherwise. Those that measure time or memory run
//! alone, after the others.

mod appliers;
mod arbitrator;
mod attacker;
mod attacks;
mod bad_input;
mod binlog;
mod calm;
mod conflicts;
mod crashes;
mod ddl;
mod disks;
mod encrypted;
mod failure;
mod faults;
mod floods;
mod forks;
mod joins;
mod network;
mod odd_settings;
mod overdue;
mod panics;
mod power;
mod recoveries;
mod restarts;
mod rows;
mod small_logs;
mod support;
mod switch;
mod tls;
mod upgrades;

use failure::Failure;
use overdue::UnderWay;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use support::{About, Bed};
use trireme_cluster::Settings;

type Scenario = fn(&Bed);

/// The position in this table gives a scenario its ports: append, so that two checkouts agree.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("rows_of_every_shape_replicate", rows::rows_of_every_shape_replicate),
    ("ddl_runs_in_total_order", ddl::ddl_runs_in_total_order),
    ("conflicts_end_on_exactly_one_side", conflicts::conflicts_end_on_exactly_one_side),
    ("no_update_is_lost_under_contention", conflicts::no_update_is_lost_under_contention),
    ("parallel_appliers_give_equal_data", appliers::parallel_appliers_give_equal_data),
    ("binlog_and_gtid_agree_on_all_nodes", binlog::binlog_and_gtid_agree_on_all_nodes),
    ("joins_by_rsync_under_load", joins::joins_by_rsync_under_load),
    ("joins_by_mariabackup_under_load", joins::joins_by_mariabackup_under_load),
    ("joins_by_mysqldump_under_load", joins::joins_by_mysqldump_under_load),
    ("returning_node_catches_up_without_a_copy", joins::returning_node_catches_up_without_a_copy),
    ("joiner_killed_in_mid_transfer", joins::joiner_killed_in_mid_transfer),
    ("donor_is_chosen_by_name", joins::donor_is_chosen_by_name),
    ("killed_nodes_come_back_without_loss", crashes::killed_nodes_come_back_without_loss),
    ("a_stop_that_is_cut_short_loses_nothing", crashes::a_stop_that_is_cut_short_loses_nothing),
    ("whole_cluster_stops_and_starts_again", crashes::whole_cluster_stops_and_starts_again),
    ("paused_node_catches_up", crashes::paused_node_catches_up),
    ("seven_nodes_form_one_group", crashes::seven_nodes_form_one_group),
    ("minority_refuses_and_heals", network::minority_refuses_and_heals),
    ("strangers_and_mistakes_are_refused", bad_input::strangers_and_mistakes_are_refused),
    ("arbitrator_keeps_one_of_two_servers_going", arbitrator::arbitrator_keeps_one_of_two_servers_going),
    ("arbitrator_brings_what_only_it_holds", arbitrator::arbitrator_brings_what_only_it_holds),
    ("power_loss_in_mode_disk", power::power_loss_in_mode_disk),
    ("power_loss_behind_ddl", power::power_loss_behind_ddl),
    ("power_loss_past_the_page_cache", power::power_loss_past_the_page_cache),
    ("power_loss_in_mode_process", power::power_loss_in_mode_process),
    ("restarts_in_random_order", restarts::restarts_in_random_order),
    ("who_may_begin_is_decided_by_the_last_voters", restarts::who_may_begin_is_decided_by_the_last_voters),
    ("a_sick_log_disk_costs_one_node", disks::a_sick_log_disk_costs_one_node),
    ("a_sick_log_disk_past_the_page_cache_costs_one_node", disks::a_sick_log_disk_past_the_page_cache_costs_one_node),
    ("a_full_data_disk_costs_one_node", disks::a_full_data_disk_costs_one_node),
    ("killed_in_the_midst_of_ddl", recoveries::killed_in_the_midst_of_ddl),
    ("donor_and_joiner_killed_in_mid_transfer", recoveries::donor_and_joiner_killed_in_mid_transfer),
    ("killed_again_while_recovering", recoveries::killed_again_while_recovering),
    ("an_engine_that_is_open_first_recovers_too", recoveries::an_engine_that_is_open_first_recovers_too),
    ("clients_are_told_the_truth_in_faults", faults::clients_are_told_the_truth_in_faults),
    ("who_begins", forks::who_begins),
    ("forced_sides_do_not_merge", forks::forced_sides_do_not_merge),
    ("the_loser_of_a_vote_has_the_only_data", forks::the_loser_of_a_vote_has_the_only_data),
    ("binary_log_is_exact_after_a_crash", binlog::binary_log_is_exact_after_a_crash),
    ("an_encrypted_group_takes_new_certificates", tls::an_encrypted_group_takes_new_certificates),
    ("heavy_work_is_no_fault", calm::heavy_work_is_no_fault),
    ("all_without_power_in_mode_process", power::all_without_power_in_mode_process),
    ("small_logs_keep_what_the_engines_would_lose", small_logs::small_logs_keep_what_the_engines_would_lose),
    ("small_logs_stay_small", small_logs::small_logs_stay_small),
    ("a_panic_costs_the_node_and_not_the_server", panics::a_panic_costs_the_node_and_not_the_server),
    (
        "a_copy_that_the_log_has_outrun_is_asked_for_again",
        small_logs::a_copy_that_the_log_has_outrun_is_asked_for_again,
    ),
    ("the_loss_of_the_majority_is_told_behind_an_applier", network::the_loss_of_the_majority_is_told_behind_an_applier),
    ("bodies_by_multicast_between_machines", network::bodies_by_multicast_between_machines),
    ("floods_of_silent_and_shaking_strangers", floods::floods_of_silent_and_shaking_strangers),
    ("floods_of_strangers_in_clear_text", floods::floods_of_strangers_in_clear_text),
    ("an_encrypted_log_outlives_kills_and_new_keys", encrypted::an_encrypted_log_outlives_kills_and_new_keys),
    ("lies_of_linked_strangers", floods::lies_of_linked_strangers),
    ("a_rolling_upgrade_under_load", upgrades::a_rolling_upgrade_under_load),
    ("the_library_is_changed_and_changed_back", switch::the_library_is_changed_and_changed_back),
    ("floods_of_handshakes_with_certificates", floods::floods_of_handshakes_with_certificates),
    ("strangers_get_nothing_from_a_group_with_a_secret", attacks::strangers_get_nothing_from_a_group_with_a_secret),
    ("attacks_on_a_group_in_clear_text", attacks::attacks_on_a_group_in_clear_text),
    ("a_secret_is_changed_beside_an_arbitrator", arbitrator::a_secret_is_changed_beside_an_arbitrator),
    ("without_power_again_while_recovering", recoveries::without_power_again_while_recovering),
    ("told_to_stop_while_recovering", recoveries::told_to_stop_while_recovering),
    ("a_position_is_found_with_odd_settings", odd_settings::a_position_is_found_with_odd_settings),
    ("streaming_commits_beside_views", conflicts::streaming_commits_beside_views),
];

/// Those that end in the start of one server after a crash: how it finds its position then depends on where its settings are.
const ABOUT_STARTING: &[&str] =
    &["a_stop_that_is_cut_short_loses_nothing", "an_engine_that_is_open_first_recovers_too"];

/// Those in which several servers start after a stop, a kill or a loss of power: some have their settings in one place, and some in the
/// other.
const WITH_RESTARTS: &[&str] = &[
    "killed_nodes_come_back_without_loss",
    "whole_cluster_stops_and_starts_again",
    "power_loss_in_mode_disk",
    "killed_again_while_recovering",
    "power_loss_past_the_page_cache",
    "power_loss_behind_ddl",
    "power_loss_in_mode_process",
    "all_without_power_in_mode_process",
    "restarts_in_random_order",
    "who_may_begin_is_decided_by_the_last_voters",
    "killed_in_the_midst_of_ddl",
    "without_power_again_while_recovering",
    "who_begins",
    "binary_log_is_exact_after_a_crash",
    "small_logs_keep_what_the_engines_would_lose",
    "an_encrypted_log_outlives_kills_and_new_keys",
];

/// Those that are left to `make test-all`, each with what shows most of it in `make test`.
const IN_LONG_FORM: &[(&str, &str)] = &[
    ("seven_nodes_form_one_group", "scenarios of three, and the simulator with up to seven"),
    ("donor_is_chosen_by_name", "MariaDB's suites; joiner_killed_in_mid_transfer"),
    ("minority_refuses_and_heals", "the_loss_of_the_majority_is_told_behind_an_applier; trireme chaos, cuts"),
    ("clients_are_told_the_truth_in_faults", "trireme chaos, whose histories are judged"),
    ("donor_and_joiner_killed_in_mid_transfer", "joiner_killed_in_mid_transfer; trireme chaos, kill-joiner"),
    (
        "a_copy_that_the_log_has_outrun_is_asked_for_again",
        "trireme chaos, small-log; the simulator's scenario `an_old_copy`",
    ),
    ("power_loss_in_mode_process", "all_without_power_in_mode_process"),
    ("power_loss_past_the_page_cache", "power_loss_in_mode_disk; tests of the node and of the log with io_uring"),
    (
        "a_sick_log_disk_past_the_page_cache_costs_one_node",
        "a_sick_log_disk_costs_one_node; tests of the node and of the log with io_uring",
    ),
    ("binlog_and_gtid_agree_on_all_nodes", "binary_log_is_exact_after_a_crash; MariaDB's suites"),
    ("an_encrypted_group_takes_new_certificates", "tests of links with TLS; MariaDB's suites"),
    ("bodies_by_multicast_between_machines", "tests of links by multicast"),
    ("the_library_is_changed_and_changed_back", "the test of the packages"),
    ("heavy_work_is_no_fault", "the simulator's harmless runs"),
    ("attacks_on_a_group_in_clear_text", "strangers_get_nothing_from_a_group_with_a_secret"),
    ("floods_of_strangers_in_clear_text", "floods_of_silent_and_shaking_strangers"),
    ("floods_of_handshakes_with_certificates", "floods_of_silent_and_shaking_strangers"),
];

/// Those that judge how long something takes, how much memory it takes, or that a machine with much to do is no fault.
const ALONE: &[&str] = &[
    "heavy_work_is_no_fault",
    "floods_of_silent_and_shaking_strangers",
    "floods_of_handshakes_with_certificates",
    "floods_of_strangers_in_clear_text",
    "lies_of_linked_strangers",
];

/// Of what a scenario failed of: behind its own output, and in the summary.
const LINES_BEHIND_LOGS: usize = 40;
const LINES_IN_SUMMARY: usize = 2;

/// These take longest, so they are begun first: else all others would be done, and wait for them.
const LONG: &[&str] =
    &["a_panic_costs_the_node_and_not_the_server", "a_copy_that_the_log_has_outrun_is_asked_for_again"];

/// Of one scenario in the short form, and else. The longest take a fifth of it on a machine with two cores.
const LIMIT: Duration = Duration::from_secs(15 * 60);
const LONG_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);
const LOOK_FOR_OVERDUE: Duration = Duration::from_secs(1);

/// How many scenarios run at a time, unless `--test-threads` says otherwise. Each waits most of its time.
const LANES: usize = 4;

/// A scenario, and the places of settings that it runs with: one after the other, because it has the same ports each time.
struct Job {
    index: usize,
    name: &'static str,
    run: Scenario,
    places: Vec<Settings>,
}

enum Verdict {
    Passed,
    Skipped(String),
    Failed(Failure),
}

struct Ran {
    name: &'static str,
    verdict: Verdict,
}

/// One run of some scenarios, and their results.
struct Run {
    provider: PathBuf,
    under_way: UnderWay,
    limit: Duration,
    results: Mutex<Vec<Ran>>,
    filtered: usize,
    began: Instant,
}

impl Job {
    fn work(&self, run: &Run) {
        for settings in &self.places {
            let start = Instant::now();
            let bed = Bed::new(self.name, &run.provider, self.index, *settings);
            run.under_way.begin(self.name);
            let outcome = catch_unwind(AssertUnwindSafe(|| (self.run)(&bed)));
            run.under_way.end(self.name);
            let verdict = match (outcome, bed.skipped()) {
                (Err(panic), _) => Verdict::Failed(Failure::of(&*panic)),
                (Ok(()), Some(why)) => Verdict::Skipped(why),
                (Ok(()), None) => Verdict::Passed,
            };
            let said = match &verdict {
                Verdict::Passed => "ok".to_owned(),
                Verdict::Skipped(why) => format!("ignored: {why}"),
                // Once more, behind the ends of the servers' logs.
                Verdict::Failed(failure) => format!("FAILED\n{}", failure.told(LINES_BEHIND_LOGS, "    ")),
            };
            let seconds = start.elapsed().as_secs_f64();
            let first = said.lines().next().unwrap_or_default();
            let rest = &said[first.len()..];
            println!("test {} (settings: {settings}) ... {first} ({seconds:.1} s){rest}", self.name);
            run.ran(self.name, verdict);
        }
    }
}

impl Run {
    fn ran(&self, name: &'static str, verdict: Verdict) {
        self.results.lock().expect("no holder panics").push(Ran { name, verdict });
    }

    /// Runs `jobs` in so many lanes, in order.
    fn work(&self, jobs: VecDeque<Job>, lanes: usize) {
        let jobs = Mutex::new(jobs);
        let next = || jobs.lock().expect("no holder panics").pop_front();
        let (working, work) = mpsc::channel::<()>();
        thread::scope(|scope| {
            for lane in 0..lanes {
                let (working, next) = (working.clone(), &next);
                let body = move || {
                    while let Some(job) = next() {
                        job.work(self);
                    }
                    drop(working);
                };
                thread::Builder::new()
                    .name(format!("lane {lane}"))
                    .spawn_scoped(scope, body)
                    .expect("threads can be started");
            }
            drop(working);
            while work.recv_timeout(LOOK_FOR_OVERDUE) == Err(RecvTimeoutError::Timeout) {
                if let Some(name) = self.under_way.overdue(self.limit) {
                    self.end_overdue(name);
                }
            }
        });
    }

    /// Its thread cannot be ended alone.
    fn end_overdue(&self, name: &'static str) -> ! {
        let processes = overdue::end_descendants();
        let text = format!("still runs after {:?}, and ends the run; the processes were\n{processes}", self.limit);
        let failure = Failure::without_place(text);
        println!("test {name} ... FAILED\n{}", failure.told(LINES_BEHIND_LOGS, "    "));
        self.ran(name, Verdict::Failed(failure));
        self.report();
        std::process::exit(1);
    }

    /// The summary. Has nothing failed?
    fn report(&self) -> bool {
        let results = self.results.lock().expect("no holder panics");
        let (mut passed, mut skipped, mut failures) = (0, Vec::new(), Vec::new());
        for result in results.iter() {
            match &result.verdict {
                Verdict::Passed => passed += 1,
                Verdict::Skipped(why) => skipped.push(format!("    {}: {why}", result.name)),
                Verdict::Failed(failure) => {
                    failures.push(format!("    {}\n{}", result.name, failure.told(LINES_IN_SUMMARY, "        ")));
                }
            }
        }
        for (title, names) in [("not run", &skipped), ("failures", &failures)] {
            if !names.is_empty() {
                println!("\n{title}:\n{}", names.join("\n"));
            }
        }
        println!(
            "\ntest result: {}. {passed} passed; {} failed; {} ignored; 0 measured; {} filtered out; finished in {:.1}s",
            if failures.is_empty() { "ok" } else { "FAILED" },
            failures.len(),
            skipped.len(),
            self.filtered,
            self.began.elapsed().as_secs_f64()
        );
        failures.is_empty()
    }
}

fn main() -> ExitCode {
    let mut filters = Vec::new();
    let mut exact = false;
    let mut lanes = LANES;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => {
                for (name, _) in SCENARIOS {
                    println!("{name}: test");
                }
                return ExitCode::SUCCESS;
            }
            "--exact" => exact = true,
            "--test-threads" => match words.next().and_then(|n| n.parse().ok()) {
                Some(n) if n > 0 => lanes = n,
                _ => {
                    eprintln!("--test-threads wants a number above 0");
                    return ExitCode::from(2);
                }
            },
            flag if flag.starts_with('-') => {} // libtest's other flags mean nothing here
            _ => filters.push(word),
        }
    }
    let is_short = filters.is_empty() && !support::long_form();
    let left: &[(&str, &str)] = if is_short { IN_LONG_FORM } else { &[] };
    let wanted = |name: &str| {
        let is_named = filters.iter().any(|f| if exact { name == f } else { name.contains(f.as_str()) });
        if filters.is_empty() { left.iter().all(|(other, _)| *other != name) } else { is_named }
    };
    let jobs: Vec<Job> = SCENARIOS
        .iter()
        .enumerate()
        .filter(|(_, (name, _))| wanted(name))
        .map(|(index, (name, run))| {
            let about = match () {
                () if ABOUT_STARTING.contains(name) => About::Starting,
                () if WITH_RESTARTS.contains(name) => About::Restarts,
                () => About::Else,
            };
            Job { index, name, run: *run, places: support::places(about) }
        })
        .collect();
    let filtered = SCENARIOS.len() - jobs.len();
    let chosen: usize = jobs.iter().map(|job| job.places.len()).sum();

    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let provider = match std::env::var_os("PROVIDER") {
        // cargo runs tests in the crate's directory; a relative path is meant from where the user stands.
        Some(path) => root.join(path),
        None => root.join("target/release/libtrireme.so"),
    };
    if !provider.is_file() {
        println!("\nno provider at {}: set PROVIDER or build it in release mode", provider.display());
        println!("test result: ok. 0 passed; 0 failed; {chosen} ignored; 0 measured; {filtered} filtered out");
        return ExitCode::SUCCESS;
    }

    failure::note_places();
    println!("\nrunning {chosen} scenarios with {}", provider.display());
    for (name, instead) in left {
        println!("{name} runs in `make test-all`; here: {instead}");
    }
    let limit = if is_short { LIMIT } else { LONG_LIMIT };
    let (under_way, results) = (UnderWay::default(), Mutex::default());
    let run = Run { provider, under_way, limit, results, filtered, began: Instant::now() };
    let (alone, mut together) = jobs.into_iter().partition::<VecDeque<Job>, _>(|job| ALONE.contains(&job.name));
    together.make_contiguous().sort_by_key(|job| !LONG.contains(&job.name));
    run.work(together, lanes);
    run.work(alone, 1);
    if run.report() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
