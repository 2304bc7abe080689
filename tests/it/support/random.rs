//! The number of runs and the seed of random tests.

/// A number from the environment.
pub fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The seed in `AYE_SEED`, or a new one; it is printed.
#[expect(clippy::print_stdout, reason = "the harness shows it when the test fails")]
pub fn seed() -> u64 {
    let seed = number_of("AYE_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("seed: AYE_SEED={seed}");
    seed
}
