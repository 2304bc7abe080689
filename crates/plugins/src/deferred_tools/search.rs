//! The search of `ToolSearch`.

use std::collections::BTreeSet;

use super::index::Index;
use aye_core::contract::tool::ToolDescriptor;

/// Maximum tools in a result.
pub const MAX_RESULTS: usize = 5;

/// A query, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Exactly these tools, in this order.
    Select(Vec<String>),
    /// Tools that contain all of the required words; the more of the other words a tool contains, the higher
    /// it ranks.
    Words {
        /// In lower case.
        required: Vec<String>,
        /// In lower case, none twice.
        ranked: Vec<String>,
    },
}

impl Query {
    /// Parses a query; `None` if it contains no word.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(ids) = text.strip_prefix("select:") {
            let mut seen = BTreeSet::new();
            let ids = ids.split(',').map(str::trim).filter(|id| !id.is_empty());
            let ids: Vec<_> = ids.filter(|id| seen.insert(*id)).map(str::to_owned).collect();
            return (!ids.is_empty()).then_some(Self::Select(ids));
        }
        let (mut required, mut ranked) = (Vec::new(), Vec::new());
        for word in text.split_whitespace() {
            let (list, word) = match word.strip_prefix('+') {
                Some(word) => (&mut required, word),
                None => (&mut ranked, word),
            };
            let word = word.to_lowercase();
            if !word.is_empty() && !list.contains(&word) {
                list.push(word);
            }
        }
        (!required.is_empty() || !ranked.is_empty()).then_some(Self::Words { required, ranked })
    }
}

/// The result of a search.
#[derive(Debug, Default)]
pub(super) struct ToolMatches<'a> {
    pub(super) tools: Vec<&'a ToolDescriptor>,
    /// Names that no tool has.
    pub(super) unknown: Vec<String>,
    /// The number of further matches.
    pub(super) left_out: usize,
}

/// Searches the tools that may be deferred; an exact name finds any tool. Tools withheld from the model are
/// not found.
pub(super) fn search<'a>(index: &'a Index, query: &Query, is_kept: impl Fn(&str) -> bool) -> ToolMatches<'a> {
    let mut found = ToolMatches::default();
    match query {
        Query::Select(ids) => {
            for id in ids {
                let deferrable = index.deferrable.get(id).map(|entry| &entry.descriptor);
                match deferrable.or_else(|| index.eager.get(id)).filter(|_| !is_kept(id)) {
                    Some(tool) => found.tools.push(tool),
                    None => found.unknown.push(id.clone()),
                }
            }
        }
        Query::Words { required, ranked } => {
            let mut hits: Vec<(usize, &str, &ToolDescriptor)> = Vec::new();
            for (id, entry) in &index.deferrable {
                if is_kept(id) || !required.iter().all(|word| entry.words.contains(word.as_str())) {
                    continue;
                }
                let points = ranked.iter().filter(|word| entry.words.contains(word.as_str())).count();
                if points > 0 || !required.is_empty() {
                    hits.push((points, id, &entry.descriptor));
                }
            }
            hits.sort_by(|(a, a_id, _), (b, b_id, _)| b.cmp(a).then(a_id.cmp(b_id)));
            found.tools = hits.into_iter().map(|(_, _, tool)| tool).collect();
        }
    }
    found.left_out = found.tools.len().saturating_sub(MAX_RESULTS);
    found.tools.truncate(MAX_RESULTS);
    found
}
