//! The text that lists the deferred tools for the model. The same tools give the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aye_core::contract::display::visible_line;

/// Maximum bytes of listed names; tools that are left out can be searched for.
const BUDGET: usize = 6 * 1024;
/// Maximum servers in the list.
const MAX_GROUPS: usize = 64;

/// The text; `None` when nothing is deferred.
pub(super) fn list<'a>(deferred: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for id in deferred {
        let (group, name) = split(id);
        groups.entry(group).or_default().push(name);
    }
    if groups.is_empty() {
        return None;
    }
    let more_groups = groups.len().saturating_sub(MAX_GROUPS);
    let shown: Vec<_> = groups.into_iter().take(MAX_GROUPS).collect();
    let shares = shares(&shown.iter().map(|(_, names)| bytes(names)).collect::<Vec<_>>());
    let mut text = String::from(
        "<deferred_tools>\nThese tools exist, but not all of their parameters are loaded. Load a tool with \
         ToolSearch (`select:NAME`, or search words) before you call it the first time.",
    );
    for ((group, mut names), share) in shown.into_iter().zip(shares) {
        names.sort_unstable();
        text.push('\n');
        if !group.is_empty() {
            let _ = write!(text, "{}*: ", visible_line(group));
        }
        let (mut used, mut listed) = (0, 0);
        for name in &names {
            used += name.len() + 2;
            if used > share {
                break;
            }
            if listed > 0 {
                text.push_str(", ");
            }
            text.push_str(&visible_line(name));
            listed += 1;
        }
        match names.len() - listed {
            0 => {}
            left if listed == 0 => {
                let _ = write!(text, "{left} tools");
            }
            left => {
                let _ = write!(text, " and {left} more");
            }
        }
    }
    if more_groups > 0 {
        let _ = write!(text, "\nand the tools of {more_groups} more servers");
    }
    text.push_str("\n</deferred_tools>");
    Some(text)
}

/// The server's part of a name, such as `mcp__github__`, and the rest.
fn split(id: &str) -> (&str, &str) {
    let server = id.strip_prefix("mcp__").and_then(|rest| rest.find("__"));
    id.split_at(server.map_or(0, |end| "mcp__".len() + end + "__".len()))
}

fn bytes(names: &[&str]) -> usize {
    names.iter().map(|name| name.len() + 2).sum()
}

/// Shares the budget: who needs less than an equal part leaves the rest to the others.
fn shares(needs: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|place| (needs[*place], *place));
    let (mut left, mut shares) = (BUDGET, vec![0; needs.len()]);
    for (done, place) in order.iter().enumerate() {
        let share = needs[*place].min(left / (needs.len() - done));
        shares[*place] = share;
        left -= share;
    }
    shares
}
