//! The requirements on every store, as tests: [`store_suite!`] generates those of a runtime's store ([`ThreadRunStore`]),
//! [`program_store_suite!`] the others of a program's ([`ProgramStore`]). Each test gets its own store.
#![expect(clippy::unwrap_used, reason = "tests")]
#![cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "tests"))]

pub mod artifacts;
pub mod audit;
pub mod commands;
pub mod decisions;
pub mod fixtures;
pub mod journal;
pub mod kept;
pub mod leases;
pub mod lists;
pub mod mailbox;
pub mod profile;
pub mod program_lists;
pub mod threads;
pub mod transfer;
pub mod workers;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use aye_core::contract::clock::{Clock, in_ms};
use aye_core::contract::program_store::ProgramStore;
use aye_core::contract::storage::{ArtifactStore, ThreadRunStore};

/// The time that a store counts by. Tests let it pass.
#[async_trait]
pub trait TestTime: Send + Sync {
    async fn pass(&self, time: Duration);
}

/// A clock for stores that take one. It stands still unless a test lets time pass.
#[derive(Default)]
pub struct TestClock {
    passed: AtomicU64,
}

impl TestClock {
    fn after(&self, start: u64) -> u64 {
        start + self.passed.load(Ordering::SeqCst)
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> u64 {
        self.after(1_700_000_000_000)
    }

    fn uptime_ms(&self) -> u64 {
        self.after(5000)
    }
}

#[async_trait]
impl TestTime for TestClock {
    async fn pass(&self, time: Duration) {
        self.passed.fetch_add(in_ms(time), Ordering::SeqCst);
    }
}

/// A new store, for one test.
pub struct Opened {
    pub store: Arc<dyn ThreadRunStore>,
    pub time: Arc<dyn TestTime>,
    /// Values that must live as long as the store.
    pub keep: Box<dyn Any>,
}

/// A new store of a program, for one test.
pub struct OpenedProgram {
    pub store: Arc<dyn ProgramStore>,
    /// Values that must live as long as the store.
    pub keep: Box<dyn Any>,
}

/// A new store of artifacts, for one test.
pub struct OpenedArtifacts {
    pub store: Arc<dyn ArtifactStore>,
    /// Values that must live as long as the store.
    pub keep: Box<dyn Any>,
}

/// The tests of a store of artifacts that a function opens as [`OpenedArtifacts`].
#[macro_export]
macro_rules! artifact_store_suite {
    ($open:path) => {
        $crate::store_tests! {
            $open,
            artifacts {
                what_was_kept_is_found_by_its_path
                what_is_no_name_is_neither_kept_nor_found
                what_is_too_long_is_refused_and_not_cut
            }
        }
    };
}

/// The tests, for a store that a function opens: `store_suite!(crate::tests::suite::open)`.
#[macro_export]
macro_rules! store_suite {
    ($open:path) => {
        $crate::store_tests! {
            $open, in_time,
            leases {
                an_expired_lease_is_taken_over_from_a_living_owner
                a_lease_that_nobody_took_over_is_renewed_after_its_end
                a_lease_of_an_owner_that_nobody_knows_lasts_until_its_end
                an_owner_is_alive_until_its_sign_is_gone
                all_handles_take_their_times_from_one_clock
                one_owner_has_a_lease_whatever_happened_before
            }
        }
        $crate::store_tests! {
            $open,
            journal {
                a_checkpoint_is_all_or_nothing
                runs_are_listed_in_creation_order
                no_question_outlives_its_run
                a_decision_starts_one_execution_of_its_own_call
                a_denial_starts_nothing
                intents_stay_pending_until_their_outcome
                a_stage_and_the_next_start_are_one_transaction
                foreign_rows_are_refused
                a_paused_owner_writes_nothing_after_losing_its_lease
                the_last_write_of_a_run_releases_the_lease
            }
            decisions {
                an_answer_counts_once
                a_spent_answer_is_repeated_and_a_closed_question_refuses
                an_expired_question_stays_expired
                all_due_questions_expire_at_once
                an_answer_in_time_is_not_revoked_by_expiry
                exactly_one_of_many_decisions_is_accepted
                questions_are_listed_oldest_first
                only_an_unanswered_question_is_closed_early
                a_grant_ends_by_expiry_use_or_revocation
                an_answer_and_its_grant_are_one_transaction
            }
            threads {
                a_summary_ends_at_an_existing_message
                messages_keep_their_order_and_the_tail_is_cheap
                a_thread_keeps_its_first_title
                the_summary_with_the_furthest_range_wins
                parts_of_a_thread_match_the_whole
                the_start_of_requests_that_was_frozen_last_counts
                images_are_stored_apart_from_their_messages
                a_child_is_created_once_and_reported_once
                child_questions_are_pending_with_their_parent
            }
            mailbox {
                a_claim_has_one_winner_and_its_token_ends_it a_schedule_passes_from_job_to_job
                the_order_is_priority_time_creation_number
                a_failed_attempt_is_counted_and_the_last_one_is_final
                a_queued_message_leaves_when_its_run_starts
                a_job_ends_in_the_transaction_that_ends_its_run
                a_run_that_waits_for_a_time_has_a_job
            }
            commands {
                each_read_returns_only_new_output
                an_exit_is_recorded_once_and_queued
                commands_of_a_conversation_are_listed_oldest_first
                the_next_run_is_notified_of_commands_that_died_with_their_process
                a_command_of_another_boot_has_ended
            }
            profile {
                invalid_names_and_large_values_are_refused
                a_version_is_never_reused
                values_are_listed_by_key
            }
            audit {
                a_calls_events_are_chained
                a_closed_store_does_nothing
                commits_are_published_to_other_handles
                changes_of_other_conversations_wake_nobody
            }
            lists {
                threads_are_listed_newest_change_first
                a_users_title_is_kept
                a_deleted_thread_leaves_its_audit
                runs_are_listed_newest_first
                parts_of_lists_match_the_whole
                open_jobs_are_listed_in_their_turn
            }
        }
    };
}

/// The tests of the other traits, for a store that a function opens as [`OpenedProgram`].
#[macro_export]
macro_rules! program_store_suite {
    ($open:path) => {
        $crate::store_tests! {
            $open,
            workers {
                the_first_job_of_a_free_thread_is_claimed
                of_several_workers_one_gets_a_job
                a_job_that_waits_for_an_answer_is_claimed_after_it
                a_job_typed_in_a_living_process_is_left_to_it
                jobs_of_dead_workers_are_reclaimed
                a_claimed_job_ends_or_returns
                jobs_are_listed_and_found
            }
            program_lists {
                the_inbox_has_what_waits_for_a_user
                a_prefix_names_one_question_for_good
                conversations_are_listed_and_found
                a_part_of_a_conversation_is_shown
                a_text_is_found_with_or_without_an_index
                tasks_of_all_conversations_are_listed
                the_audit_is_read_row_by_row_and_call_by_call
                a_reader_that_is_dropped_keeps_nobody_waiting
                past_calls_have_the_answers_of_users
            }
            kept {
                a_message_to_another_program_is_sent_until_it_is_taken
                urls_of_a_run_are_kept_with_its_thread
                a_definition_changes_only_as_expected
                what_was_typed_is_remembered_once
                a_moved_folder_keeps_its_conversations
                a_rewind_continues_in_a_copy
                old_conversations_are_pruned_unless_something_needs_them
                whoever_listens_is_known
                counts_outlive_their_threads
            }
            transfer {
                a_conversation_comes_back_as_it_left
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_tests {
    ($open:path, in_time, $($module:ident { $($name:ident)* })*) => {
        $(
            mod $module {
                $(
                    #[tokio::test]
                    async fn $name() {
                        $crate::$module::$name(&$open()).await;
                    }
                )*
            }
        )*
    };
    ($open:path, $($module:ident { $($name:ident)* })*) => {
        $(
            mod $module {
                $(
                    #[tokio::test]
                    async fn $name() {
                        let opened = $open();
                        $crate::$module::$name(&*opened.store).await;
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use super::{Arc, Opened, OpenedArtifacts, TestClock};
    use aye_local::InMemoryStore;

    pub(crate) fn open() -> Opened {
        let time = Arc::new(TestClock::default());
        let store = Arc::new(InMemoryStore::new().with_clock(time.clone()));
        Opened { store, time, keep: Box::new(()) }
    }

    pub(crate) fn open_artifacts() -> OpenedArtifacts {
        OpenedArtifacts { store: Arc::new(InMemoryStore::new()), keep: Box::new(()) }
    }

    crate::store_suite!(crate::tests::open);
    crate::artifact_store_suite!(crate::tests::open_artifacts);
}
