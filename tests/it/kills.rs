//! Random deaths: `AYE_KILLS=1000 cargo test --features failpoints --test it kills` for more of them.

use std::time::Duration;

use crate::support::operator::{Operator, Plan, Step, Trouble};

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

/// xorshift: the same numbers for the same seed everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_hundred_random_kills_lose_no_decision_and_repeat_no_command() {
    let kills = number("AYE_KILLS").unwrap_or(100) as usize;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let seed = number("AYE_SEED").unwrap_or(now.as_nanos() as u64) | 1;
    println!("seed: AYE_SEED={seed}");
    let mut dice = Dice(seed);
    let (mut deaths, mut stories) = (0, 0);
    while deaths < kills {
        let mut story = Operator::new(FIRST, SECOND);
        for _ in 0..40 {
            let mut step = story.next();
            if step == Step::Done || deaths + story.deaths >= kills {
                break;
            }
            // Going on before all is answered is fine too.
            if step == Step::Decide && dice.roll(5) == 0 {
                step = Step::Resume;
            }
            let trouble = if cfg!(feature = "failpoints") && dice.roll(2) == 0 {
                let place = PLACES[dice.roll(PLACES.len() as u64) as usize];
                Trouble::At(format!("{place}:{}", 1 + dice.roll(5)))
            } else if step == Step::Decide {
                Trouble::After(Duration::from_millis(dice.roll(60)))
            } else {
                Trouble::After(Duration::from_millis(dice.roll(300)))
            };
            story.take(step, &trouble);
        }
        story.finish();
        deaths += story.deaths;
        stories += 1;
    }
    println!("{deaths} kills in {stories} stories");
}
