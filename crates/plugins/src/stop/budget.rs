//! Money: what a run cost so far, at the prices of the models that answered.

use std::sync::Arc;

use aye_core::contract::child::ChildRunState;
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::message::Role;
use aye_core::contract::spec::Price;
use aye_core::phase::PhaseContext;

/// The price of a model by its registered id; `None` when it is not known.
pub type Prices = Arc<dyn Fn(&str) -> Option<Price> + Send + Sync>;

/// A limit in the currency of the prices.
#[derive(Clone)]
pub(super) struct Budget {
    pub(super) most: f64,
    pub(super) prices: Prices,
}

/// The cost of the current inference, in billionths.
pub(super) enum InferenceCost {
    Known(u64),
    /// It cannot be said, and why.
    Unknown(String),
}

/// Billionths in one unit of the currency.
pub(super) const BILLION: f64 = 1e9;

impl Budget {
    /// Returns the cost of the latest inference.
    pub(super) fn cost(&self, ctx: &PhaseContext) -> InferenceCost {
        let said = ctx.messages.iter().rev().find(|message| message.role == Role::Assistant);
        let noted = |key: &str| said.and_then(|message| message.metadata.as_ref()?.get(key).cloned());
        let usage = match &ctx.response {
            Some(response) => response.usage,
            // The process was restarted since.
            None => {
                noted("usage").and_then(|usage| serde_json::from_value::<Option<TokenUsage>>(usage).ok()?)
            }
        };
        let model = noted("model").and_then(|model| model.as_str().map(str::to_owned)).unwrap_or_default();
        let Some(price) = (self.prices)(&model) else {
            return InferenceCost::Unknown(format!("the model {model} has no price"));
        };
        match usage {
            Some(usage) => InferenceCost::Known(cost(&price, &usage)),
            None if price.input == 0.0 && price.output == 0.0 => InferenceCost::Known(0),
            None => InferenceCost::Unknown(format!("{model} does not report its token usage")),
        }
    }

    /// Returns the cost of the children whose results led to the latest inference. Usage without a known
    /// price is left out: a child under the same budget was already stopped for it.
    pub(super) fn cost_of_children(&self, ctx: &PhaseContext) -> u64 {
        // The results before the first inference of a run are those of an earlier run.
        if ctx.progress.steps < 2 {
            return 0;
        }
        let mut from_newest = ctx.messages.iter().rev().skip_while(|message| message.role != Role::Assistant);
        // The answer itself.
        from_newest.next();
        from_newest
            .take_while(|message| message.role != Role::Assistant)
            .flat_map(|message| ChildRunState::spent_below(message))
            .filter_map(|spent| Some(cost(&(self.prices)(&spent.model)?, &spent.usage)))
            .fold(0, u64::saturating_add)
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

/// In billionths: prices are for a million tokens.
fn cost(price: &Price, usage: &TokenUsage) -> u64 {
    let count = |tokens: Option<i32>| f64::from(tokens.unwrap_or(0).max(0));
    let cached = count(usage.cache_read_tokens).min(count(usage.prompt_tokens));
    let fresh = count(usage.prompt_tokens) - cached;
    let cached_price = price.cache_read.unwrap_or(price.input);
    let millionths =
        fresh * price.input + cached * cached_price + count(usage.completion_tokens) * price.output;
    // Never negative, and saturated by the conversion.
    (millionths * 1000.0).round() as u64
}

/// Formats an amount with two decimals, or with more if it is less than a cent.
fn money(amount: f64) -> String {
    if amount >= 0.01 || amount == 0.0 { format!("{amount:.2}") } else { format!("{amount:.6}") }
}
