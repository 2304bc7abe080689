//! Every place where a write to the store can be cut, in every process of a story with questions.
#![cfg(feature = "failpoints")]

use crate::support::operator::{Operator, Plan, Step, Trouble};

const FIRST: Plan = &[("c1", true), ("c2", false)];
const SECOND: Plan = &[];

/// Lets the n-th process of the story die at each occurrence of the place, and each time goes on to the end.
fn at_each(place: &str, nth: usize) {
    for count in 1.. {
        assert!(count < 40, "{place} is reached for ever");
        let mut story = Operator::new(FIRST, SECOND);
        for _ in 0..nth {
            let step = story.next();
            assert_ne!(step, Step::Done, "the story is shorter");
            story.take(step, &Trouble::None);
        }
        let step = story.next();
        story.take(step, &Trouble::At(format!("{place}:{count}")));
        let died = story.deaths == 1;
        // The second process to die, at the same place, is the one that cleans up.
        if died {
            let step = story.next();
            story.take(step, &Trouble::At(format!("{place}:1")));
        }
        story.finish();
        if !died {
            return;
        }
    }
}

// Process 0 says something, 1 allows, 2 declines, 3 goes on.

#[test]
fn the_first_run_dies_at_a_checkpoint() {
    at_each("store.checkpoint.before", 0);
    at_each("store.checkpoint.after", 0);
}

#[test]
fn the_first_run_dies_at_an_intent() {
    at_each("store.begin.before", 0);
    at_each("store.begin.after", 0);
}

#[test]
fn a_decision_dies() {
    for nth in [1, 2] {
        at_each("store.decide.before", nth);
        at_each("store.decide.after", nth);
    }
}

#[test]
fn the_run_that_goes_on_dies_at_a_checkpoint() {
    at_each("store.checkpoint.before", 3);
    at_each("store.checkpoint.after", 3);
}

#[test]
fn the_run_that_goes_on_dies_at_an_intent() {
    at_each("store.begin.before", 3);
    at_each("store.begin.after", 3);
}
