//! The hint that a project has settings of another agent. It is shown once for each project.

use std::path::Path;

use clap::ValueEnum as _;

use super::{ForeignAgent, ImportScope, SourceFolder, changes};
use crate::config::write_private;

/// Returns the hint for a project, unless its marker exists, and makes the marker. Nothing that could be imported, no hint;
/// no hint either if it could not be remembered.
pub(crate) fn hint(root: &Path, marker: &Path) -> Option<String> {
    if marker.exists() {
        return None;
    }
    let place = SourceFolder { scope: ImportScope::Project, folder: root };
    let has_news = |origin: &&ForeignAgent| {
        let import = origin.read(&place);
        !changes(&import, ImportScope::Project, root).is_ok_and(|(changes, _)| changes.is_empty())
    };
    let names: Vec<_> =
        ForeignAgent::value_variants().iter().filter(has_news).map(|origin| origin.name()).collect();
    let names = match names.as_slice() {
        [] => return None,
        [only] => (*only).to_owned(),
        [some @ .., last] => format!("{} and {last}", some.join(", ")),
    };
    write_private(marker, b"").ok()?;
    Some(format!("This project has settings of {names}; `aye import` shows what aye would take over."))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_project_with_settings_of_others_gets_one_hint() {
        let dir = tempfile::tempdir().expect("a folder");
        let (root, marker) = (dir.path().join("project"), dir.path().join("state/offered"));
        fs::create_dir_all(root.join(".claude/skills/a")).expect("made");
        assert_eq!(hint(&root, &marker), None, "skills are read where they are");
        fs::write(root.join(".claude/settings.json"), r#"{"permissions": {"deny": ["Read(.env)"]}}"#)
            .expect("written");
        fs::create_dir(root.join(".cursor")).expect("made");
        fs::write(root.join(".cursor/mcp.json"), r#"{"mcpServers": {"a": {"command": "a"}}}"#)
            .expect("written");
        let text = hint(&root, &marker).expect("a hint");
        assert_eq!(
            text,
            "This project has settings of Claude Code and Cursor; `aye import` shows what aye would take over."
        );
        assert_eq!(hint(&root, &marker), None, "once");
        let place = dir.path().join("file");
        fs::write(&place, "").expect("written");
        assert_eq!(hint(&root, &place.join("x")), None, "it could not be remembered");
    }

    #[test]
    fn what_was_imported_is_not_offered() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(dir.path().join(".claude")).expect("made");
        fs::create_dir_all(dir.path().join(".aye")).expect("made");
        fs::write(dir.path().join(".claude/settings.json"), r#"{"permissions": {"deny": ["Read(.env)"]}}"#)
            .expect("written");
        fs::write(
            dir.path().join(".aye/permissions.yaml"),
            "rules:\n  - {tool: \"Read(.env)\", behavior: deny}\n",
        )
        .expect("written");
        assert_eq!(hint(dir.path(), &dir.path().join("marker")), None);
    }
}
