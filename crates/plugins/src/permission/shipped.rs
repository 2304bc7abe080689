//! The rules that come with aye.

use super::rules::{Layer, Rule, RuleSet, RuleSource, ToolPermissionBehavior};
use aye_pattern::Pattern;

/// The rules of `permissions.yaml`. Parsing the YAML and its examples would take half of every start; here a
/// line is the rule's line in that file, its behaviour and its pattern, separated by tabs. A test keeps the
/// two in sync and writes this file.
const TABLE: &str = include_str!("shipped.tsv");

/// The name the shipped rules are reported under.
const SHIPPED_NAME: &str = "built-in permissions.yaml";

/// Returns the rules that ship with aye. A test ensures that they load; if they did not, everything would
/// ask.
pub fn shipped_rules() -> RuleSet {
    let mut set = RuleSet::new();
    for line in TABLE.lines() {
        match rule_of(line) {
            Some(rule) => set.push(rule),
            None => set.refuse(format!("{SHIPPED_NAME}: {line}")),
        }
    }
    set
}

fn rule_of(row: &str) -> Option<Rule> {
    let (line, rest) = row.split_once('\t')?;
    let (behavior, pattern) = rest.split_once('\t')?;
    let behavior = match behavior {
        "allow" => ToolPermissionBehavior::Allow,
        "ask" => ToolPermissionBehavior::Ask,
        "deny" => ToolPermissionBehavior::Deny,
        _ => return None,
    };
    let file = Some(SHIPPED_NAME.to_owned());
    let origin = RuleSource { layer: Layer::Shipped, file, line: Some(line.parse().ok()?), grant: None };
    Some(Rule::new(Pattern::parse_own(pattern).ok()?, behavior, origin))
}

#[cfg(test)]
mod tests {
    use super::super::file::RuleFormat;
    use super::{Layer, RuleSet, SHIPPED_NAME, TABLE, shipped_rules};

    /// Checks patterns and examples with the reader of everybody's files. `AYE_BLESS=1` writes the table.
    #[test]
    fn the_shipped_table_matches_its_file() {
        let file = include_str!("../../../../permissions.yaml");
        let checked = RuleSet::read(file, RuleFormat::Yaml, Layer::Shipped, SHIPPED_NAME).unwrap();
        let row = |rule: &super::Rule| {
            format!("{}\t{}\t{}\n", rule.origin.line.unwrap(), rule.behavior, rule.pattern)
        };
        let table: String = checked.rules().iter().map(|rule| row(rule)).collect();
        if std::env::var_os("AYE_BLESS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/permission/shipped.tsv");
            std::fs::write(path, &table).unwrap();
            return;
        }
        assert_eq!(TABLE, table, "run this test with AYE_BLESS=1");
        assert_eq!(shipped_rules(), checked);
    }
}
