//! The requirements on every store, as tests of [`ThreadRunStore`]: [`store_suite!`] generates them for a
//! store. Each test gets its own store.
#![expect(missing_docs, reason = "the names say it")]
#![expect(clippy::unwrap_used, reason = "tests")]
#![cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "tests"))]

pub mod audit;
pub mod commands;
pub mod decisions;
pub mod fixtures;
pub mod journal;
pub mod mailbox;
pub mod profile;
pub mod threads;

use std::any::Any;
use std::sync::Arc;

use aye_core::contract::storage::ThreadRunStore;

/// A new store, for one test.
pub struct Opened {
    pub store: Arc<dyn ThreadRunStore>,
    /// Another handle of the same rows, as another process has one.
    pub other: Arc<dyn ThreadRunStore>,
    /// Values that must live as long as the store.
    pub keep: Box<dyn Any>,
}

/// The tests, for a store that a function opens: `store_suite!(crate::tests::suite::open)`.
#[macro_export]
macro_rules! store_suite {
    ($open:path) => {
        $crate::store_tests! {
            $open,
            journal {
                a_checkpoint_is_all_or_nothing
                runs_come_back_in_order_of_birth
                no_question_outlives_its_run
                a_decision_starts_one_execution_of_its_own_call
                a_no_starts_nothing
                intents_stay_open_until_their_outcome
                what_belongs_elsewhere_is_refused
                a_lease_that_is_over_is_taken_from_an_owner_that_lives
                a_paused_owner_writes_nothing_any_more
            }
            decisions {
                an_answer_counts_once
                a_spent_answer_is_repeated_and_a_closed_question_refuses
                what_expired_stays_expired
                one_look_at_the_clock_expires_all_that_is_due
                an_answer_in_time_is_not_taken_back_by_the_clock
                of_many_decisions_one_is_accepted
                questions_are_listed_oldest_first
                a_question_ends_early_only_when_nobody_answered
                a_grant_holds_until_its_time_its_uses_or_its_giver_end_it
                an_answer_and_the_rule_that_is_granted_with_it_are_one_transaction
            }
            threads {
                a_summary_ends_at_a_message_that_is_there
                messages_keep_their_order_and_the_tail_is_cheap
                a_thread_keeps_its_first_title
                the_summary_that_reaches_farthest_counts
                parts_of_a_thread_are_read_as_the_whole_says
                images_are_kept_beside_their_messages
                a_child_is_created_once_and_told_of_once
                questions_of_children_wait_with_their_parent
            }
            mailbox {
                a_claim_has_one_winner_and_its_token_ends_it
                the_order_is_priority_time_birth_number
                a_failed_try_is_counted_and_the_last_one_is_the_end
                a_queued_message_leaves_with_the_run_that_starts_with_it
                a_job_ends_in_the_transaction_that_ends_its_run
            }
            commands {
                each_look_gives_what_is_new
                an_end_is_written_once_and_queued
                the_next_run_hears_of_what_died_with_its_process
            }
            profile {
                bad_names_and_large_values_are_refused
                a_version_never_comes_back
                values_are_listed_by_key
            }
            audit {
                what_happens_to_a_call_is_told_in_a_chain
                a_closed_store_does_nothing
            }
        }

        #[tokio::test]
        async fn others_hear_what_is_committed() {
            let opened = $open();
            $crate::audit::others_hear_what_is_committed(&*opened.store, &*opened.other).await;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_tests {
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
    use super::{Arc, Opened};
    use aye_core::memory::InMemoryStore;

    pub(crate) fn open() -> Opened {
        let store = InMemoryStore::new();
        Opened { other: Arc::new(store.another()), store: Arc::new(store), keep: Box::new(()) }
    }

    crate::store_suite!(crate::tests::open);
}
