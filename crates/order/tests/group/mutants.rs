//! The tests can fail: each of these breaks one rule, and the test of that rule must notice. Those that the simulator finds are in its own
//! table (`crates/sim/src/mutants.rs`); most of these take a certain lie.

use std::panic::catch_unwind;

use trireme_order::{Group, MemStore, Mutant};

use crate::net::AT_START;
use crate::{forks, hostile, joining, levels, situations, suspicion, terms, violations};

fn is_caught(by: fn(), broken: fn(&mut Group<MemStore>)) {
    AT_START.set(Some(broken));
    let outcome = catch_unwind(by);
    AT_START.set(None);
    assert!(outcome.is_err(), "nobody noticed");
    by();
}

macro_rules! caught {
    ($($name:ident: $mutant:ident by $test:path),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                is_caught($test, |group| group.set_mutant(Some(Mutant::$mutant)));
            }
        )*
    };
}

caught!(
    stranger_believed: StrangerBelieved by hostile::nothing_that_a_linked_stranger_says_stops_the_group,
    stranger_overrules: StrangerOverrules by hostile::a_member_that_was_forced_once_gives_way_to_no_stranger,
    terms_unbounded: TermsUnbounded by hostile::a_member_cannot_drive_the_terms_up_either,
    driven_up_stays_out: DrivenUpStaysOut by terms::a_voter_that_was_driven_up_comes_back_to_the_terms_of_the_others,
    away_stays_out: AwayStaysOut by terms::a_member_that_was_away_while_the_terms_were_driven_up_comes_back,
    heavy_newcomer: HeavyNewcomer by hostile::a_heavy_newcomer_takes_the_majority_from_nobody,
    voters_forgotten: VotersForgotten by suspicion::old_disks_that_were_told_so_decide_nothing_by_the_voters_of_then_after_a_restart,
    fork_unsuspected: ForkUnsuspected by forks::a_log_that_follows_a_fork_with_an_end_of_its_own_is_suspect_before_that_goes,
    replay_dropped: ReplayDropped by joining::a_snapshot_waits_for_the_engine_of_a_server_that_keeps_its_data,
    marks_over_fork: MarksOverFork by forks::marks_of_what_was_committed_do_not_outlive_a_fork_below_them,
    unreadable_written: UnreadableWritten by hostile::an_entry_that_nobody_could_read_is_not_written,
    violator_kept: ViolatorKept by violations::a_member_that_lies_to_all_is_left_and_the_others_go_on,
    process_kept: ProcessKept by situations::after_a_switch_to_disk_the_log_stops_saying_process_although_there_is_no_pause,
    level_alone: LevelAlone by levels::a_rolling_upgrade_goes_one_step_back_until_the_last_one_is_done,
);
