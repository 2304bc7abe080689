//! Cursor: `mcp.json`, the permissions of its command line, and commands in `.cursor/`. Its rules for the editor are texts
//! with conditions that AGENTS.md does not have.

use serde_json::Value;

use super::{Behavior, Import, NotImported, SourceFolder, command_starting, common_server, texts};

pub(super) fn read(place: &SourceFolder<'_>, import: &mut Import) {
    let from = ".cursor/mcp.json";
    let servers = place.json(from, import).unwrap_or_default();
    for (name, server) in servers.get("mcpServers").and_then(Value::as_object).into_iter().flatten() {
        import.add_server(name, common_server(server), from);
    }
    let from = if place.is_user() { ".cursor/cli-config.json" } else { ".cursor/cli.json" };
    let settings = place.json(from, import).unwrap_or_default();
    for (key, behavior) in [("deny", Behavior::Deny), ("allow", Behavior::Allow)] {
        for rule in texts(settings.get("permissions").and_then(|rules| rules.get(key))) {
            import.add_rule(behavior, &rule, from, pattern(&rule, behavior));
        }
    }
    for (name, file) in place.files(".cursor/commands", ".md") {
        if let Some(text) = place.text(&file, import) {
            import.add_file("commands", &name, text, &file);
        }
    }
    for (name, file) in place.files(".cursor/rules", ".mdc") {
        import.leave(&format!("rule {name}"), "put its text into AGENTS.md", &file);
    }
    for (file, why) in [
        (".cursorrules", "put its text into AGENTS.md"),
        (".cursor/hooks.json", "hooks there read other input; `aye docs hooks`"),
    ] {
        if place.has(file) {
            import.leave(file, why, file);
        }
    }
}

fn pattern(rule: &str, behavior: Behavior) -> Result<Vec<String>, NotImported> {
    let Some((tool, argument)) = rule.strip_suffix(')').and_then(|rule| rule.split_once('(')) else {
        return Err("is not of the form TOOL(ARGUMENT)".into());
    };
    let (tool, argument) = (tool.trim(), argument.trim());
    match tool {
        "Shell" if matches!(argument, "*" | "**") => Ok(vec!["Bash".to_owned()]),
        "Shell" => match argument.split_once(':') {
            None => Ok(vec![command_starting(argument)]),
            Some((command, "*")) => Ok(vec![command_starting(command)]),
            Some((command, arguments)) => Ok(vec![format!("Bash({command} {arguments})")]),
        },
        "Read" => Ok(vec![format!("Read({argument})")]),
        "Write" if behavior == Behavior::Allow => {
            Ok(vec![format!("Edit({argument})"), format!("Write({argument})")])
        }
        "Write" => Ok(vec![format!("Edit({argument})")]),
        "WebFetch" if argument == "*" => Ok(vec!["WebFetch".to_owned()]),
        "WebFetch" => Ok(vec![format!("WebFetch(domain:{argument})")]),
        "Mcp" => match argument.split_once(':') {
            Some((server, name)) => Ok(vec![format!("mcp__{server}__{name}")]),
            None => Ok(vec![format!("mcp__{argument}")]),
        },
        _ => Err("aye has no such tool".into()),
    }
}
