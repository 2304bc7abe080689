//! Names of servers and tools that every provider accepts: letters, digits, `_` and `-`, at most 64 in all.
//!
//! A tool is called `mcp__SERVER__TOOL`. The server's part contains no `__`, so that the parts can be told
//! apart, and is unique: a rule over `mcp__SERVER__*` means one server.

use std::collections::BTreeMap;

use aye_core::contract::digest::sha256_hex;

/// The prefix of every server's tools.
pub const PREFIX: &str = "mcp__";
/// The maximum length accepted by providers.
const MAX_ID: usize = 64;
const MAX_SERVER: usize = 32;

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn cleaned(name: &str) -> String {
    name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// A name cut to a length, the end replaced by a piece of the whole name's hash.
fn shortened(name: &str, original: &str, max: usize) -> String {
    let mut short: String = name.chars().take(max.saturating_sub(7)).collect();
    short.push('_');
    short.push_str(&sha256_hex(original)[..6]);
    short
}

/// The part of a server in the names of its tools.
pub fn server_part(name: &str) -> String {
    let mut part = String::new();
    for c in cleaned(name).chars() {
        if !(c == '_' && part.ends_with('_')) {
            part.push(c);
        }
    }
    let part = part.trim_matches('_');
    if part.is_empty() {
        return format!("server_{}", &sha256_hex(name)[..6]);
    }
    if part.len() > MAX_SERVER { shortened(part, name, MAX_SERVER) } else { part.to_owned() }
}

/// Returns the names for the tools of one server, in their order; `None` for a tool with a duplicate name.
pub(crate) fn tool_ids(server_part: &str, names: &[&str]) -> Vec<Option<String>> {
    let begin = format!("{PREFIX}{server_part}__");
    let max = MAX_ID.saturating_sub(begin.len());
    let is_exact = |name: &str| !name.is_empty() && name.len() <= max && name.chars().all(is_plain);
    let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        *wanted.entry(cleaned(name)).or_default() += 1;
    }
    let mut taken = std::collections::BTreeSet::new();
    let mut ids = vec![None; names.len()];
    // Names that need no change come first: nothing else may take one of them.
    for (id, name) in ids.iter_mut().zip(names) {
        if is_exact(name) && taken.insert((*name).to_owned()) {
            *id = Some(format!("{begin}{name}"));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for (id, name) in ids.iter_mut().zip(names) {
        if is_exact(name) || !seen.insert(*name) {
            continue;
        }
        let clean = cleaned(name);
        let is_alone = wanted[&clean] == 1 && !clean.is_empty() && clean.len() <= max;
        let clean = if is_alone { clean } else { shortened(&clean, name, max) };
        if taken.insert(clean.clone()) {
            *id = Some(format!("{begin}{clean}"));
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_names_have_no_double_underscores() {
        for (name, part) in [
            ("github", "github"),
            ("my server", "my_server"),
            ("a__b", "a_b"),
            ("__x__", "x"),
            ("a\u{202e}gpj.exe", "a_gpj_exe"),
        ] {
            assert_eq!(server_part(name), part);
        }
        assert!(server_part("…").starts_with("server_"));
        assert_eq!(server_part(&"x".repeat(64)).len(), MAX_SERVER);
        assert_ne!(server_part(&"x".repeat(63)), server_part(&"x".repeat(64)));
    }

    #[test]
    fn tools_keep_their_names_if_possible_and_never_share_one() {
        let ids = tool_ids("s", &["Bash", "a.b", "a/b", "a_b", "ok", "ok", "", "sp ace"]);
        let ids: Vec<_> = ids.into_iter().map(|id| id.map(|id| id["mcp__s__".len()..].to_owned())).collect();
        assert_eq!(ids[0].as_deref(), Some("Bash"), "a name of ours is no other tool's");
        assert_eq!(ids[3].as_deref(), Some("a_b"), "the name that needs no change has it");
        assert!(ids[1].as_ref().is_some_and(|id| id.starts_with("a_b_")), "{ids:?}");
        assert_ne!(ids[1], ids[2]);
        assert_eq!(ids[4].as_deref(), Some("ok"));
        assert_eq!(ids[5], None, "the same name twice is one tool");
        assert_eq!(ids[7].as_deref(), Some("sp_ace"));
        // The names do not depend on the order.
        let back = tool_ids("s", &["a_b", "a/b", "a.b"]);
        assert_eq!(back[2].as_ref().map(|id| &id[8..]), ids[1].as_deref());
    }

    #[test]
    fn all_names_are_accepted_by_providers() {
        let long: Vec<String> = (0..50).map(|n| format!("{}{n}", "tool ".repeat(20))).collect();
        let names: Vec<&str> = long.iter().map(String::as_str).chain(["é", "日本語", "x-y_z"]).collect();
        let ids = tool_ids(&server_part(&"s".repeat(64)), &names);
        let mut all: Vec<_> = ids.into_iter().map(|id| id.expect("a name")).collect();
        assert!(all.iter().all(|id| id.len() <= MAX_ID && id.chars().all(is_plain)), "{all:?}");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), names.len());
    }
}
