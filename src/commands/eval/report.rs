//! How often cases passed, with the interval that the true rate is in.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::case::EvalCase;
use super::run::{EvalEnd, EvalVariant, EvalWork};
use crate::commands::columns::columns;
use crate::commands::put_json;
use crate::contract::display::visible_line;
use crate::contract::summary::short_number;
use crate::failure::Failure;
use crate::program::{put, put_stderr};

/// Of the normal distribution, for an interval of 95 %.
const Z: f64 = 1.959_964;

/// The interval of Wilson for a rate: honest for few runs and for rates of 0 and 1.
fn wilson(passed: u32, runs: u32) -> (f64, f64) {
    if runs == 0 {
        return (0.0, 1.0);
    }
    let (n, rate) = (f64::from(runs), f64::from(passed) / f64::from(runs));
    let middle = rate + Z * Z / (2.0 * n);
    let half = Z * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt();
    let whole = 1.0 + Z * Z / n;
    (((middle - half) / whole).max(0.0), ((middle + half) / whole).min(1.0))
}

/// Several runs together.
#[derive(Clone, Debug, Default)]
struct EvalRow {
    variant: String,
    /// `None`: of all cases.
    case: Option<String>,
    runs: u32,
    passed: u32,
    tokens: u64,
    cost: f64,
    seconds: f64,
    cards: u64,
}

impl EvalRow {
    fn add(&mut self, end: &EvalEnd) {
        self.runs += 1;
        self.passed += u32::from(end.failures.is_empty());
        self.tokens += end.tokens;
        self.cost += end.cost;
        self.seconds += end.seconds;
        self.cards += end.cards;
    }

    fn interval(&self) -> (f64, f64) {
        wilson(self.passed, self.runs)
    }

    fn object(&self) -> Value {
        let (low, high) = self.interval();
        json!({
            "variant": self.variant,
            "case": self.case,
            "runs": self.runs,
            "passed": self.passed,
            "rate": f64::from(self.passed) / f64::from(self.runs.max(1)),
            "interval": [low, high],
            "tokens": self.tokens,
            "cost": self.cost,
            "seconds": self.seconds,
            "cards": self.cards,
        })
    }

    fn cells(&self) -> [String; 8] {
        let percent = |rate: f64| format!("{:.0} %", rate * 100.0);
        let (low, high) = self.interval();
        let each = |sum: f64| sum / f64::from(self.runs.max(1));
        [
            self.case.clone().unwrap_or_else(|| "all".to_owned()),
            self.variant.clone(),
            format!("{}/{}", self.passed, self.runs),
            percent(f64::from(self.passed) / f64::from(self.runs.max(1))),
            format!("{:.0}–{:.0} %", low * 100.0, high * 100.0),
            short_number(self.tokens / u64::from(self.runs.max(1))),
            format!("{:.4}", each(self.cost)),
            format!("{:.1} s  {} cards", each(self.seconds), self.cards),
        ]
    }
}

pub(super) struct EvalReport {
    rows: Vec<EvalRow>,
    runs: Vec<Value>,
}

impl EvalReport {
    pub(super) fn of(
        cases: &[EvalCase],
        variants: &[EvalVariant],
        work: &[EvalWork<'_>],
        ends: &[EvalEnd],
    ) -> Self {
        let mut rows = Vec::new();
        for variant in variants {
            let of = |case: Option<&str>| {
                let mut row = EvalRow {
                    variant: variant.name.clone(),
                    case: case.map(str::to_owned),
                    ..EvalRow::default()
                };
                let ended = work.iter().zip(ends).filter(|(work, _)| {
                    work.variant.name == variant.name && case.is_none_or(|case| case == work.case.name)
                });
                ended.for_each(|(_, end)| row.add(end));
                row
            };
            rows.extend(cases.iter().map(|case| of(Some(&case.name))));
            rows.push(of(None));
        }
        let run = |(work, end): (&EvalWork<'_>, &EvalEnd)| {
            json!({
                "case": work.case.name,
                "variant": work.variant.name,
                "run": work.nth,
                "passed": end.failures.is_empty(),
                "failures": end.failures,
                "tokens": end.tokens,
                "cost": end.cost,
                "seconds": end.seconds,
                "cards": end.cards,
            })
        };
        Self { rows, runs: work.iter().zip(ends).map(run).collect() }
    }

    pub(super) fn all_passed(&self) -> bool {
        self.rows.iter().all(|row| row.passed == row.runs)
    }

    pub(super) fn put(&self, is_json: bool) -> Result<(), Failure> {
        if is_json {
            let rows: Vec<_> = self.rows.iter().map(EvalRow::object).collect();
            return put_json(&json!({"rows": rows, "runs": self.runs}));
        }
        put(&self.text())
    }

    fn text(&self) -> String {
        let head = ["case", "", "passed", "rate", "95 %", "tokens", "cost", "time"].map(str::to_owned);
        let mut out = columns(std::iter::once(head).chain(self.rows.iter().map(EvalRow::cells)));
        let whole: Vec<_> = self.rows.iter().filter(|row| row.case.is_none()).collect();
        if let [one, other] = whole.as_slice() {
            let ((low, high), (other_low, other_high)) = (one.interval(), other.interval());
            let overlap = low <= other_high && other_low <= high;
            let words = if overlap {
                "the intervals overlap: the difference may be chance; more --runs make them narrower"
            } else {
                "the intervals do not overlap"
            };
            let _ = writeln!(out, "{words}");
        }
        out
    }
}

/// Reports a run that ended, on stderr.
pub(super) fn progress(work: &EvalWork<'_>, end: &EvalEnd) {
    let variant =
        if work.variant.name.is_empty() { String::new() } else { format!(" ({})", work.variant.name) };
    let word = if end.failures.is_empty() { "passed" } else { "failed" };
    put_stderr(&format!("{}{variant} {}: {word}", work.case.name, work.nth));
    for failure in &end.failures {
        put_stderr(&format!("  {}", visible_line(failure)));
    }
}

/// Lists cases.
pub(super) fn list(cases: &[EvalCase], is_json: bool) -> Result<(), Failure> {
    if is_json {
        let rows: Vec<_> =
            cases.iter().map(|case| json!({"case": case.name, "description": case.description})).collect();
        return put_json(&json!(rows));
    }
    put(&columns(cases.iter().map(|case| [case.name.clone(), case.description.clone()])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_wilson() {
        let near = |(low, high): (f64, f64), wanted: (f64, f64)| {
            assert!((low - wanted.0).abs() < 0.001 && (high - wanted.1).abs() < 0.001, "{low} {high}");
        };
        near(wilson(0, 10), (0.0, 0.278));
        near(wilson(10, 10), (0.722, 1.0));
        near(wilson(7, 10), (0.397, 0.892));
        near(wilson(0, 0), (0.0, 1.0));
    }
}
