//! The cost of tools in a request, in tokens.

use super::config::DiscBetaParams;
use aye_core::contract::tool::ToolDescriptor;

/// The cost of a tool when it is offered, and when only its name is listed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolCost {
    /// With its schema.
    pub full: f64,
    pub name: f64,
}

impl ToolCost {
    pub fn of(tool: &ToolDescriptor) -> Self {
        let schema = tool.parameters.to_string().len();
        Self { full: (schema as f64 / 4.0).max(10.0), name: (tool.id.len() as f64 / 4.0).max(1.0) }
    }

    /// Returns the saving in each request if the tool is deferred.
    pub fn saving(&self) -> f64 {
        (self.full - self.name).max(0.0)
    }

    /// A tool that is used less often than this is cheaper deferred.
    pub fn threshold(&self, params: &DiscBetaParams) -> f64 {
        (self.full - self.name) / params.gamma * params.thresh_mult
    }
}
