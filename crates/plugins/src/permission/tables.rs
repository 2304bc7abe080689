//! What is known of programs beyond what they run: `tables.toml`, read when a command first needs it.

use std::sync::LazyLock;

use aye_pattern::shell::{WordList, read_table};
use serde::Deserialize;

/// `tables.toml`; the comments there say what each list means.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PermissionTables {
    pub(super) grants: GrantTable,
    pub(super) programs: PrintingTable,
    pub(super) git: GitPrintingTable,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GrantTable {
    pub(super) with_subcommand: WordList,
    pub(super) anything: WordList,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PrintingTable {
    pub(super) names: WordList,
    pub(super) prints_no_content: WordList,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GitPrintingTable {
    pub(super) names: WordList,
    pub(super) takes_pathspecs: WordList,
    pub(super) prints_no_content: WordList,
    pub(super) summaries: WordList,
}

pub(super) static TABLES: LazyLock<PermissionTables> =
    LazyLock::new(|| read_table(include_str!("tables.toml")));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_read_and_name_nothing_twice() {
        let PermissionTables { grants, programs, git } = &*TABLES;
        for list in [
            &grants.with_subcommand,
            &grants.anything,
            &programs.names,
            &programs.prints_no_content,
            &git.names,
            &git.takes_pathspecs,
            &git.prints_no_content,
            &git.summaries,
        ] {
            assert!(!list.is_empty() && list.repeated().is_none(), "{list:?}");
        }
        let is_known = |word: &str| git.prints_no_content.contains(word);
        assert!(git.summaries.iter().all(is_known));
    }
}
