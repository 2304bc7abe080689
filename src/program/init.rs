//! `/init`: the task of writing AGENTS.md, and of proposing checks that fit what the project has. The model makes both by
//! edits, which the user reads first.

use std::fmt::Write as _;
use std::path::Path;

use crate::program::foundation::Foundation;
use crate::walk::read_regular;

/// The task itself.
const TASK: &str = "Write an AGENTS.md for this project: how to build, test and run it, how it is laid out, and the \
                    conventions that a newcomer would get wrong. Read the manifests, the documentation and the code first; say \
                    only what you saw. At most 60 lines. If there is one, improve it and keep what is true.";

/// The maximum bytes of a manifest that is read.
const MAX_MANIFEST: u64 = 256 << 10;

/// What the model is asked to do for `/init`.
pub(crate) fn task(foundation: &Foundation) -> String {
    let mut text = TASK.to_owned();
    let checks = proposed_checks(&foundation.workspace.root);
    if checks.is_empty() || !foundation.loaded.settings.checks.is_empty() {
        return text;
    }
    text.push_str(
        "\n\nThen propose checks: aye runs them after files were changed and shows you what they newly say. Add this table to \
         .aye/config.toml, keep what is there, and leave out what this project cannot run:\n```toml\n[checks]\n",
    );
    for (glob, command) in checks {
        let _ = writeln!(text, "{} = {}", toml_string(glob), toml_string(&command));
    }
    text.push_str("```");
    text
}

/// A string as TOML writes it. Ours have no control characters.
fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The checks that fit the files at the root of a project, by the globs of the files that they are for.
fn proposed_checks(root: &Path) -> Vec<(&'static str, String)> {
    let has = |name: &str| root.join(name).symlink_metadata().is_ok_and(|found| found.is_file());
    let contains = |name: &str, text: &str| {
        let manifest = read_regular(&root.join(name), MAX_MANIFEST);
        manifest.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
    };
    let mut checks = Vec::new();
    if has("Cargo.toml") {
        checks.push(("*.rs", "cargo check -q --message-format short".to_owned()));
    }
    if has("deno.json") || has("deno.jsonc") {
        checks.push(("*.ts", "deno check \"$@\"".to_owned()));
    } else if has("tsconfig.json") {
        let command = "npx --no-install tsc --noEmit --pretty false";
        checks.extend(["*.ts", "*.tsx"].map(|glob| (glob, command.to_owned())));
    } else if has("package.json") {
        checks.push(("*.js", "for file; do node --check \"$file\"; done".to_owned()));
    }
    let ruff = has("ruff.toml") || has(".ruff.toml") || contains("pyproject.toml", "[tool.ruff");
    let mypy = has("mypy.ini") || contains("pyproject.toml", "[tool.mypy") || contains("setup.cfg", "[mypy");
    let python = [
        ruff.then_some("ruff check --output-format concise \"$@\""),
        mypy.then_some("mypy --no-error-summary \"$@\""),
    ];
    let python = python.into_iter().flatten().collect::<Vec<_>>().join("; ");
    if !python.is_empty() {
        checks.push(("*.py", python));
    }
    if has("go.mod") {
        checks.push(("*.go", "go vet ./...".to_owned()));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposed(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        proposed_checks(dir.path()).into_iter().map(|(glob, command)| format!("{glob}: {command}")).collect()
    }

    #[test]
    fn a_project_gets_the_checks_of_what_it_has() {
        assert!(proposed(&[("README.md", "")]).is_empty());
        assert_eq!(
            proposed(&[("Cargo.toml", ""), ("go.mod", "")]),
            ["*.rs: cargo check -q --message-format short", "*.go: go vet ./..."]
        );
        assert_eq!(
            proposed(&[("package.json", "{}"), ("tsconfig.json", "{}")]),
            [
                "*.ts: npx --no-install tsc --noEmit --pretty false",
                "*.tsx: npx --no-install tsc --noEmit --pretty false"
            ]
        );
        assert_eq!(proposed(&[("tsconfig.json", "{}"), ("deno.json", "{}")]), ["*.ts: deno check \"$@\""]);
        assert_eq!(
            proposed(&[("pyproject.toml", "[tool.ruff]\n[tool.mypy]\n")]),
            ["*.py: ruff check --output-format concise \"$@\"; mypy --no-error-summary \"$@\""]
        );
        assert!(proposed(&[("pyproject.toml", "[project]\n")]).is_empty(), "nothing that could run");
    }

    #[test]
    fn the_table_is_toml() {
        let table = format!("a = {}", toml_string(r#"x "$@" \n"#));
        let parsed: toml::Table = toml::from_str(&table).unwrap();
        assert_eq!(parsed["a"].as_str(), Some(r#"x "$@" \n"#));
    }
}
