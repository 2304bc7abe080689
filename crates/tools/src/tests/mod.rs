//! Tools on a real file system.

mod change;
mod hostile;
#[cfg(target_os = "linux")]
mod race;
mod read;
mod refusals;
mod search;
mod web;

use crate::testing::Sandbox;

#[test]
fn the_descriptors_are_small() {
    let sandbox = Sandbox::new();
    let names = ["Read", "Write", "Edit", "List", "Glob", "Grep", "Bash", "WebFetch", "AskUser", "TodoWrite"];
    let bytes: usize = names
        .iter()
        .map(|name| {
            let tool = sandbox.tool(name).descriptor();
            assert_eq!(tool.id, *name);
            assert!(!tool.description.is_empty() && !tool.description.ends_with('\n'));
            jsonschema::validator_for(&tool.parameters).expect("a valid schema");
            tool.id.len() + tool.description.len() + tool.parameters.to_string().len()
        })
        .sum();
    assert!(bytes <= 6000, "{bytes}");
}
