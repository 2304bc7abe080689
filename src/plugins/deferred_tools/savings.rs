use super::list::list;
use super::state::DeferralStateValue;
use super::tool::{TOOL_SEARCH, ToolSearchTool};
use crate::contract::tool::{Tool as _, ToolDescriptor};

/// What deferring saves in each request, in tokens as the context window counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Savings {
    /// Tools that are deferred now.
    pub deferred: usize,
    /// Tools that were deferred and are offered now because somebody asked for them.
    pub promoted: usize,
    /// What the deferred tools would cost.
    pub kept_out: usize,
    /// What their names and `ToolSearch` cost instead.
    pub overhead: usize,
}

impl Savings {
    /// What is saved in the end.
    pub fn saved(&self) -> usize {
        self.kept_out.saturating_sub(self.overhead)
    }
}

/// What a tool costs in a request.
fn tokens(tool: &ToolDescriptor) -> usize {
    (tool.id.len() + tool.description.len() + tool.parameters.to_string().len()) / 4 + 10
}

/// What deferring saves for an agent with these tools; `None` when nothing is deferred.
pub fn savings(tools: &[ToolDescriptor], state: &DeferralStateValue) -> Option<Savings> {
    let is_there = |id: &str| tools.iter().any(|tool| tool.id == id);
    let deferred: Vec<_> = tools.iter().filter(|tool| state.is_deferred(&tool.id)).collect();
    let mut names: Vec<&str> = deferred.iter().map(|tool| tool.id.as_str()).collect();
    names.sort_unstable();
    let told = list(names.into_iter())?;
    let search = tools.iter().find(|tool| tool.id == TOOL_SEARCH).cloned();
    Some(Savings {
        deferred: deferred.len(),
        promoted: state.promoted().filter(|id| is_there(id)).count(),
        kept_out: deferred.into_iter().map(tokens).sum(),
        overhead: told.len() / 4 + 4 + tokens(&search.unwrap_or_else(|| ToolSearchTool.descriptor())),
    })
}
