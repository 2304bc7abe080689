//! Random kills: `AYE_KILLS=1000 cargo test --features failpoints --test it kills` for more of them.

use std::time::Duration;

use fastrand::Rng;

use crate::support::operator::{Operator, Plan, Step, Trouble};
use crate::support::random::{number_of, seed};

const FIRST: Plan = &[("c1", true), ("c2", false), ("c3", true)];
const SECOND: Plan = &[("d1", true), ("d2", false)];
const PLACES: [&str; 6] = [
    "store.checkpoint.before",
    "store.checkpoint.after",
    "store.begin.before",
    "store.begin.after",
    "store.decide.before",
    "store.decide.after",
];

#[test]
fn a_hundred_random_kills_lose_no_decision_and_repeat_no_command() {
    let kills = number_of("AYE_KILLS").unwrap_or(100) as usize;
    let mut dice = Rng::with_seed(seed());
    let (mut deaths, mut stories) = (0, 0);
    while deaths < kills {
        let mut story = Operator::new(FIRST, SECOND);
        for _ in 0..40 {
            let mut step = story.next();
            if step == Step::Done || deaths + story.deaths >= kills {
                break;
            }
            // Resuming before everything is answered is fine too.
            if step == Step::Decide && dice.u64(..5) == 0 {
                step = Step::Resume;
            }
            let trouble = if cfg!(feature = "failpoints") && dice.u64(..2) == 0 {
                let place = PLACES[dice.usize(..PLACES.len())];
                Trouble::At(format!("{place}:{}", 1 + dice.u64(..5)))
            } else if step == Step::Decide {
                Trouble::After(Duration::from_millis(dice.u64(..60)))
            } else {
                Trouble::After(Duration::from_millis(dice.u64(..300)))
            };
            story.take(step, &trouble);
        }
        story.finish();
        deaths += story.deaths;
        stories += 1;
    }
    println!("{deaths} kills in {stories} stories");
}
