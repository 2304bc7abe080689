//! The budget in money: the prices of the models that may answer.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::config::ModelSelection;
use crate::contract::display::visible_line;
use crate::contract::spec::Price;
use crate::failure::AppError;
use crate::plugins::stop::StopPlugin;
use crate::program::foundation::Foundation;
use crate::runtime::REMOTE_MODEL;

/// The prices of models, by their registered ids. Clones share them.
#[derive(Clone)]
pub(crate) struct PriceList {
    /// The budget and where it is set; nothing is looked up without one.
    most: Option<(f64, String)>,
    known: Arc<RwLock<HashMap<String, Price>>>,
}

impl PriceList {
    pub(crate) fn new(foundation: &Foundation) -> Self {
        let most = foundation.loaded.settings.stop.max_budget_usd.map(|most| {
            let origin = foundation.loaded.provenance.origin("stop.max_budget_usd");
            (most, origin.map(ToString::to_string).unwrap_or_default())
        });
        Self { most, known: Arc::default() }
    }

    /// Registers a model that may answer from now on.
    ///
    /// # Errors
    /// Under a budget, if the model's price is not known: a sentence for the user.
    pub(crate) fn admit(&self, id: &str, selection: &ModelSelection) -> Result<(), AppError> {
        let Some((most, origin)) = &self.most else { return Ok(()) };
        let price = selection.price.or_else(|| selection.is_demo().then(Price::default));
        let Some(price) = price else {
            let id = visible_line(id);
            let name = selection.model.escape_debug();
            return Err(format!(
                "the budget is ${most} ({origin}), but {id} has no price; add price = {{ input = …, output = \
                 … }} (per million tokens; 0 if it is free) below [models.\"{name}\"] in your \
                 config.toml, or remove the budget"
            )
            .into());
        };
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), price);
        Ok(())
    }

    /// Returns the plugin, with the budget if there is one. With `asks`, a limit asks whether the run may
    /// continue; if the limit is the budget, also with which of the cheaper models.
    pub(crate) fn over(&self, plugin: StopPlugin, asks: bool) -> StopPlugin {
        let known = Arc::clone(&self.known);
        let plugin = if asks {
            plugin.asking(Arc::new(move |model| {
                cheaper(&known.read().unwrap_or_else(PoisonError::into_inner), model)
            }))
        } else {
            plugin
        };
        let Some((most, _)) = &self.most else { return plugin };
        let known = Arc::clone(&self.known);
        plugin.with_budget(
            *most,
            Arc::new(move |id| {
                // A remote agent's model is paid for by whoever runs it.
                if id.starts_with(REMOTE_MODEL) {
                    return Some(Price::default());
                }
                known.read().unwrap_or_else(PoisonError::into_inner).get(id).copied()
            }),
        )
    }
}

/// Returns the models that cost less than this one, most expensive first, as many as fit into a question.
fn cheaper(known: &HashMap<String, Price>, model: &str) -> Vec<String> {
    const OFFERED: usize = 3;
    let worth = |price: &Price| price.input + price.output;
    let Some(own) = known.get(model).map(worth) else { return Vec::new() };
    let mut others: Vec<_> = known.iter().filter(|(_, price)| worth(price) < own).collect();
    others.sort_by(|(a, one), (b, two)| worth(two).total_cmp(&worth(one)).then_with(|| a.cmp(b)));
    others.into_iter().take(OFFERED).map(|(id, _)| id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cheaper_models_are_offered() {
        let price = |input| Price { input, ..Price::default() };
        let known: HashMap<_, _> = [("big", 5.0), ("mid", 2.0), ("small", 1.0), ("tiny", 0.5), ("free", 0.0)]
            .map(|(id, input)| (id.to_owned(), price(input)))
            .into();
        assert_eq!(cheaper(&known, "big"), ["mid", "small", "tiny"]);
        assert_eq!(cheaper(&known, "tiny"), ["free"]);
        assert!(cheaper(&known, "unknown").is_empty());
    }
}
