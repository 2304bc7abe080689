//! The line that ends a run: how long it worked, what it did, and what it cost.

use std::collections::BTreeMap;

use aye_core::contract::amount::counted;

/// The counts of a run that no entry has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RunTally {
    /// The entry at which it started.
    pub(crate) from: u64,
    /// What the conversation had cost then.
    pub(crate) cost: f64,
    /// How long it worked, without the time that it waited for answers.
    pub(crate) active_ms: u64,
    /// The questions that it asked.
    pub(crate) asked: usize,
}

impl RunTally {
    /// Returns the line: `worked`, the number of calls, the changed files with their added and removed lines, and what the
    /// conversation costs now.
    pub(crate) fn line(&self, worked: &str, calls: usize, changes: &[(&str, u64, u64)], cost: f64) -> String {
        let mut parts = vec![format!("worked {worked}"), counted(calls, "call")];
        let mut files: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (path, added, removed) in changes {
            let sum = files.entry(path).or_default();
            *sum = (sum.0 + added, sum.1 + removed);
        }
        if !files.is_empty() {
            let (added, removed) = files.values().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            parts.push(format!("{} +{added} −{removed}", counted(files.len(), "file")));
        }
        match self.asked {
            0 => {}
            1 => parts.push("asked once".to_owned()),
            times => parts.push(format!("asked {times} times")),
        }
        if cost - self.cost >= 0.01 {
            parts.push(format!("${:.2}", cost - self.cost));
        }
        let keys = if files.is_empty() { "" } else { " ─ /diff · /rewind" };
        format!("{}{keys}", parts.join(" · "))
    }
}
