use proptest::prelude::*;

use super::*;

/// The behaviour of one random hook.
#[derive(Clone, Debug)]
struct Wish {
    name: bool,
    count: Option<u64>,
    countdown: Option<u32>,
    announces: bool,
}

fn wish() -> impl Strategy<Value = Wish> {
    (any::<bool>(), proptest::option::of(0..9_u64), proptest::option::of(0..15_u32), any::<bool>())
        .prop_map(|(name, count, countdown, announces)| Wish { name, count, countdown, announces })
}

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn plugin(name: &'static str, wish: Wish) -> Arc<dyn Plugin> {
    part(name, move |r| {
        let wish = wish.clone();
        let hook = Hook(move |ctx: &PhaseContext| {
            let mut command = StateCommand::new();
            if wish.name {
                let mut names = ctx.state::<Names>().cloned().unwrap_or_default();
                names.push(name.to_owned());
                command.update::<Names>(names);
            }
            if let Some(count) = wish.count {
                command.update::<Count>(count);
            }
            if let Some(from) = wish.countdown {
                command.schedule_action::<Countdown>(from)?;
            }
            if wish.announces {
                command.emit::<Announced>(name.to_owned())?;
            }
            Ok(command)
        });
        r.register_phase_hook(name, Phase::StepStart, hook)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Every exclusive write, count, action and effect of every hook is applied exactly once, however many
    /// phases run concurrently.
    #[test]
    fn every_update_is_applied_exactly_once(
        wishes in proptest::collection::vec(wish(), 1..NAMES.len()),
        phases in 1..4_usize,
    ) {
        let plugins = wishes.iter().zip(NAMES).map(|(wish, name)| plugin(name, wish.clone()));
        let bench = Bench::new(plugins);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reports = runtime.block_on(futures::future::join_all(
            (0..phases).map(|_| bench.phase(Phase::StepStart)),
        ));
        for report in reports {
            prop_assert!(report.unwrap().rounds <= 16);
        }
        let landed = |pick: fn(&Wish) -> bool| {
            let mut names: Vec<_> = wishes
                .iter()
                .zip(NAMES)
                .filter(|(wish, _)| pick(wish))
                .flat_map(|(_, name)| std::iter::repeat_n(name.to_owned(), phases))
                .collect();
            names.sort();
            names
        };
        let mut names = bench.names();
        if phases == 1 {
            // A single phase keeps the registration order.
            prop_assert!(names.is_sorted());
        }
        names.sort();
        prop_assert_eq!(names, landed(|wish| wish.name));
        let mut announced: Vec<_> = bench.ears.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
        announced.sort();
        prop_assert_eq!(announced, landed(|wish| wish.announces));
        let each: u64 = wishes
            .iter()
            .map(|wish| wish.count.unwrap_or(0) + wish.countdown.map_or(0, |from| u64::from(from) + 1))
            .sum();
        prop_assert_eq!(bench.count(), each * phases as u64);
        let rest = bench.runtime.store().read::<PendingScheduledActions>().unwrap_or_default();
        prop_assert_eq!(rest, vec![]);
    }
}
