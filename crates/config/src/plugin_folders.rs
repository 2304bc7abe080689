//! The user's plugin folders: skills, agents, commands and MCP servers that come together, with a manifest
//! (`.claude-plugin/plugin.json`). Nothing in one is run because it is there, except the servers that it names.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use aye_core::contract::display::visible_line;
use serde_json::{Map, Value};

use super::paths::read_resolved;

const MANIFEST: &str = ".claude-plugin/plugin.json";
const MAX_MANIFEST: u64 = 256 << 10;
/// The maximum number of plugins.
const MAX_PLUGINS: usize = 100;

/// A plugin's folder. Each of its parts lies inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFolder {
    /// Its name, from the manifest.
    pub name: String,
    /// The folder, links resolved.
    pub dir: PathBuf,
    /// Folders of skills; they may be missing, and so may all others.
    pub skills: Vec<PathBuf>,
    pub agents: Vec<PathBuf>,
    pub commands: Vec<PathBuf>,
    /// Files of MCP servers.
    pub servers: Vec<PathBuf>,
}

/// Returns the plugins below the folder of the user's settings, by name, and what is wrong with others.
pub fn plugin_folders(config_dir: &Path) -> (Vec<PluginFolder>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let entries = fs::read_dir(config_dir.join("plugins")).into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    dirs.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    dirs.sort();
    let mut names = BTreeSet::new();
    for dir in dirs.iter().take(MAX_PLUGINS) {
        let mut notes = Vec::new();
        match read(dir, &mut notes) {
            Ok(plugin) if names.insert(plugin.name.clone()) => found.push(plugin),
            Ok(plugin) => {
                notes.push(format!("another plugin is named `{}`; this one is not used", plugin.name));
            }
            Err(why) => notes.push(format!("{why}; the plugin is not used")),
        }
        let place = dir.to_string_lossy();
        problems.extend(notes.iter().map(|note| format!("{}: {note}", visible_line(&place))));
    }
    if dirs.len() > MAX_PLUGINS {
        problems.push(format!("more than {MAX_PLUGINS} plugins; the rest is not used"));
    }
    (found, problems)
}

fn read(dir: &Path, notes: &mut Vec<String>) -> Result<PluginFolder, String> {
    let dir = dir.canonicalize().map_err(|error| error.to_string())?;
    let file = inside(&dir, MANIFEST).ok_or_else(|| format!("it has no {MANIFEST}"))?;
    let text = read_resolved(&file, MAX_MANIFEST).map_err(|error| format!("{MANIFEST}: {error}"))?;
    let manifest: Map<String, Value> = serde_json::from_str(&text.unwrap_or_default())
        .map_err(|error| format!("{MANIFEST} is no JSON object: {error}"))?;
    let name = manifest.get("name").and_then(Value::as_str).unwrap_or_default();
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        return Err(format!("`name` in {MANIFEST} must be letters, digits, `-` and `_`"));
    }
    if manifest.contains_key("hooks") || dir.join("hooks/hooks.json").exists() {
        notes.push("its hooks are not used; list their commands in hooks.toml".to_owned());
    }
    let mut parts = |key: &str, usual: &str| {
        let mut parts = vec![dir.join(usual)];
        let named: Vec<&Value> = match manifest.get(key) {
            None => Vec::new(),
            Some(Value::Array(list)) => list.iter().collect(),
            Some(one) => vec![one],
        };
        for value in named {
            match value.as_str().and_then(|path| inside(&dir, path)) {
                Some(path) if parts.contains(&path) => {}
                Some(path) => parts.push(path),
                None => {
                    let value = visible_line(&value.to_string()).into_owned();
                    notes.push(format!("`{key}`: {value} is no path inside the plugin; not used"));
                }
            }
        }
        // The usual place may be a link, too.
        parts.retain(|path| path.canonicalize().is_ok_and(|real| real.starts_with(&dir)));
        parts
    };
    Ok(PluginFolder {
        skills: parts("skills", "skills"),
        agents: parts("agents", "agents"),
        commands: parts("commands", "commands"),
        servers: parts("mcpServers", ".mcp.json"),
        name: name.to_owned(),
        dir,
    })
}

/// Returns a path below a folder, links resolved, if it exists and does not lead out.
fn inside(dir: &Path, path: &str) -> Option<PathBuf> {
    dir.join(path).canonicalize().ok().filter(|real| real.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(config: &Path, folder: &str, manifest: &str, files: &[&str]) -> PathBuf {
        let dir = config.join("plugins").join(folder);
        fs::create_dir_all(dir.join(".claude-plugin")).expect("made");
        fs::write(dir.join(MANIFEST), manifest).expect("written");
        for file in files {
            let file = dir.join(file);
            fs::create_dir_all(file.parent().expect("below")).expect("made");
            fs::write(file, "{}").expect("written");
        }
        dir
    }

    #[test]
    fn a_plugin_has_its_parts_where_its_manifest_says() {
        let temp = tempfile::tempdir().expect("a folder");
        let config = temp.path().canonicalize().expect("real");
        assert_eq!(plugin_folders(&config), (Vec::new(), Vec::new()));
        let dir = plugin(
            &config,
            "b",
            r#"{"name": "tools", "version": "1.0.0", "skills": ["./more", "./skills"], "mcpServers": "./srv.json",
                "commands": "../../out", "agents": {"x": 1}}"#,
            &["skills/a/SKILL.md", "more/b/SKILL.md", "srv.json", "hooks/hooks.json"],
        );
        fs::create_dir(config.join("out")).expect("made");
        std::os::unix::fs::symlink("../../out", dir.join("agents")).expect("linked");
        let (found, problems) = plugin_folders(&config);
        assert_eq!(
            found,
            [PluginFolder {
                name: "tools".into(),
                skills: vec![dir.join("skills"), dir.join("more")],
                agents: Vec::new(),
                commands: Vec::new(),
                servers: vec![dir.join("srv.json")],
                dir: dir.clone(),
            }]
        );
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems[0].ends_with("its hooks are not used; list their commands in hooks.toml"),
            "{problems:?}"
        );
        assert!(problems[1].contains("`agents`: {\"x\":1} is no path inside the plugin"), "{problems:?}");
        assert!(problems[2].contains("`commands`: \"../../out\" is no path inside"), "{problems:?}");
    }

    #[test]
    fn what_is_wrong_is_named_and_not_used() {
        let temp = tempfile::tempdir().expect("a folder");
        let config = temp.path();
        for (folder, manifest) in [
            ("a", "{\"name\": \"x\"}"),
            ("b", "{\"name\": \"x\"}"),
            ("c", "{\"name\": \"a b\"}"),
            ("d", "[]"),
        ] {
            plugin(config, folder, manifest, &[]);
        }
        fs::create_dir(config.join("plugins/e")).expect("made");
        fs::write(config.join("plugins/README.md"), "").expect("written");
        let (found, problems) = plugin_folders(config);
        assert_eq!(found.len(), 1);
        for (problem, word) in problems.iter().zip([
            "another plugin is named `x`",
            "`name` in .claude-plugin/plugin.json must be letters",
            "is no JSON object",
            "it has no .claude-plugin/plugin.json; the plugin is not used",
        ]) {
            assert!(problem.contains(word), "{problem}");
        }
        assert_eq!(problems.len(), 4);
    }
}
