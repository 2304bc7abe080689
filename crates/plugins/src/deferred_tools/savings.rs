use super::list::list;
use super::state::DeferralStateValue;
use super::tool::{TOOL_SEARCH, ToolSearchTool};
use aye_core::contract::tool::{Tool as _, ToolDescriptor};

/// The savings of deferring in each request, in tokens as the context window counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Savings {
    /// Tools that are deferred now.
    pub deferred: usize,
    /// Tools that were deferred and are offered now because they were requested.
    pub promoted: usize,
    /// The cost that the deferred tools would have.
    pub kept_out: usize,
    /// The cost of the list of their names.
    pub names: usize,
    /// The cost of the list and `ToolSearch`, which replace them.
    pub overhead: usize,
}

impl Savings {
    /// Returns the net saving.
    pub fn saved(&self) -> usize {
        self.kept_out.saturating_sub(self.overhead)
    }
}

/// Returns the cost of a tool in a request.
fn tokens(tool: &ToolDescriptor) -> usize {
    (tool.id.len() + tool.description.len() + tool.parameters.to_string().len()) / 4 + 10
}

/// Returns the savings of deferring for an agent with these tools; `None` if nothing is deferred.
pub fn savings(tools: &[ToolDescriptor], state: &DeferralStateValue) -> Option<Savings> {
    let is_there = |id: &str| tools.iter().any(|tool| tool.id == id);
    let deferred: Vec<_> = tools.iter().filter(|tool| state.is_deferred(&tool.id)).collect();
    let mut ids: Vec<&str> = deferred.iter().map(|tool| tool.id.as_str()).collect();
    ids.sort_unstable();
    let listed = list(ids.into_iter())?;
    let search = tools.iter().find(|tool| tool.id == TOOL_SEARCH).cloned();
    let names = listed.len() / 4 + 4;
    Some(Savings {
        names,
        deferred: deferred.len(),
        promoted: state.promoted().filter(|id| is_there(id)).count(),
        kept_out: deferred.into_iter().map(tokens).sum(),
        overhead: names + tokens(&search.unwrap_or_else(|| ToolSearchTool.descriptor())),
    })
}
