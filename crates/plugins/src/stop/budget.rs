//! Money: what a run cost so far, at the prices of the models that answered.

use std::sync::Arc;

use aye_core::contract::message::Role;
use aye_core::contract::spec::{BILLION, Price};
use aye_core::phase::PhaseContext;

/// The price of a model by its registered id; `None` when it is not known.
pub type Prices = Arc<dyn Fn(&str) -> Option<Price> + Send + Sync>;

/// A limit in the currency of the prices.
#[derive(Clone)]
pub(super) struct Budget {
    pub(super) most: f64,
    pub(super) prices: Prices,
}

/// What a run cost so far.
pub(super) enum RunCost {
    /// In billionths.
    Known(u64),
    /// It cannot be said, and why.
    Unknown(String),
}

impl Budget {
    /// Returns the cost of everything that the run is charged for, by its ledger. A subagent's model without a price
    /// counts nothing: the subagent was under the same budget, and was stopped for it.
    pub(super) fn cost(&self, ctx: &PhaseContext) -> RunCost {
        let answer = ctx.messages.iter().rev().find(|message| message.role == Role::Assistant);
        let noted = |key: &str| answer.and_then(|message| message.metadata.as_ref()?.get(key));
        let model = noted("model").and_then(|model| model.as_str()).unwrap_or_default();
        let has_usage = match &ctx.response {
            Some(response) => response.usage.is_some(),
            // The process was restarted since.
            None => noted("usage").is_some_and(|usage| !usage.is_null()),
        };
        match (self.prices)(model) {
            None => return RunCost::Unknown(format!("the model {model} has no price")),
            Some(price) if !has_usage && (price.input, price.output) != (0.0, 0.0) => {
                return RunCost::Unknown(format!("{model} does not report its token usage"));
            }
            Some(_) => {}
        }
        let costs =
            ctx.spent.iter().filter_map(|spent| Some((self.prices)(&spent.model)?.cost(&spent.usage)));
        RunCost::Known(costs.fold(0, u64::saturating_add))
    }

    /// Returns the amount granted to a run that continues.
    pub(super) fn more(&self) -> String {
        format!("${} more", money(self.most))
    }

    /// The reason to stop, when more was spent.
    pub(super) fn exceeded(&self, spent: u64) -> Option<String> {
        let spent = spent as f64 / BILLION;
        (spent > self.most).then(|| format!("${} spent; the budget is ${}", money(spent), money(self.most)))
    }
}

/// Formats an amount with two decimals, or with more if it is less than a cent.
fn money(amount: f64) -> String {
    if amount >= 0.01 || amount == 0.0 { format!("{amount:.2}") } else { format!("{amount:.6}") }
}
