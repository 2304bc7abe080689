//! The frequency of a tool's use, as a Beta distribution that forgets.
//!
//! Each inference discounts both parameters; then a call counts for `a`, no call for `b`. Nothing is written
//! for a tool that is not called: its misses are added in one step when the estimate is needed.

use serde::{Deserialize, Serialize};

use super::config::DiscBetaParams;

/// The assumed frequency of use of an unknown tool.
pub const PRIOR: f64 = 0.01;
/// No parameter starts below this.
const LEAST: f64 = 0.01;
/// The 90th percentile of the normal distribution.
const Z90: f64 = 1.282;

/// The distribution of one tool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beta {
    /// The evidence for use.
    pub a: f64,
    /// The evidence against use.
    pub b: f64,
    /// The inferences it takes account of.
    pub turn: u64,
}

impl Beta {
    /// Before the first inference, with an estimate from before.
    pub fn start(p: f64, params: &DiscBetaParams) -> Self {
        let p = if p.is_finite() { p.clamp(0.0, 1.0) } else { PRIOR };
        Self { a: (p * params.n0).max(LEAST), b: ((1.0 - p) * params.n0).max(LEAST), turn: 0 }
    }

    /// After inferences up to this one, in none of which the tool was called.
    #[must_use]
    pub fn idle_until(self, turn: u64, params: &DiscBetaParams) -> Self {
        let Some(misses) = turn.checked_sub(self.turn).filter(|misses| *misses > 0) else { return self };
        let kept = params.omega.powf(misses as f64);
        let added = if params.omega < 1.0 { (1.0 - kept) / (1.0 - params.omega) } else { misses as f64 };
        Self { a: self.a * kept, b: self.b * kept + added, turn }
    }

    /// After this inference, in which the tool was called.
    #[must_use]
    pub fn called_in(self, turn: u64, params: &DiscBetaParams) -> Self {
        let before = self.idle_until(turn.saturating_sub(1), params);
        if before.turn >= turn {
            // Two calls of one inference are one use.
            return before;
        }
        Self { a: before.a * params.omega + 1.0, b: before.b * params.omega, turn }
    }

    /// Returns the expected frequency of use.
    pub fn mean(&self) -> f64 {
        self.a / (self.a + self.b)
    }

    /// Returns the upper bound of the frequency of use, with 90 % certainty.
    pub fn upper(&self) -> f64 {
        let t = self.a + self.b;
        (self.mean() + Z90 * (self.a * self.b / (t * t * (t + 1.0))).sqrt()).min(1.0)
    }
}
