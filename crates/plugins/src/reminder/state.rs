use std::collections::BTreeMap;

use aye_core::state::{MergeStrategy, StateKey};

/// The step in which each rule fired last in the run.
pub struct RemindersFired;

impl StateKey for RemindersFired {
    const KEY: &'static str = "reminder.fired";
    // The later step counts, whichever is written first.
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = BTreeMap<String, u32>;
    type Update = (String, u32);

    fn apply(value: &mut Self::Value, (rule, step): Self::Update) {
        let last = value.entry(rule).or_default();
        *last = step.max(*last);
    }
}
