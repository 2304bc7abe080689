use proptest::prelude::ProptestConfig;

mod cases;
mod differential;
mod enforce;
mod files;
mod grammar;
mod granting;
mod judgement;
mod lines;
mod opening;
mod past;
mod plugin;
mod reasons;
mod rules;
mod spelling;
mod terms;

/// What the library uses if `PROPTEST_CASES` is not set.
const UNSET: u32 = 256;

/// The configuration of a property test with a number of cases of its own; `PROPTEST_CASES` sets another one.
fn with_cases(usual: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: if config.cases == UNSET { usual } else { config.cases }, ..config }
}
