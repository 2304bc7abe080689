//! The tokens that a run is charged for.

use super::driver::Driver;
use aye_core::contract::inference::{ModelUsage, TokenUsage};

impl Driver {
    /// Charges the run for the requests beside runs: summaries and titles.
    pub(super) fn charge_bill(&mut self) {
        let bill = self.shared.windows.take_bill(&self.record.thread_id);
        self.charge_all(&bill);
    }

    /// Enters a request into the run's ledger, which budgets read.
    pub(super) fn charge(&mut self, model: &str, usage: &TokenUsage) {
        self.record.usage.add(usage);
        ModelUsage::add_to(&mut self.record.spent, model, usage);
    }

    pub(super) fn charge_all(&mut self, spent: &[ModelUsage]) {
        for ModelUsage { model, usage } in spent {
            self.charge(model, usage);
        }
    }
}
