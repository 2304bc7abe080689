//! Gemini CLI: `settings.json` and `commands/**/*.toml` in `.gemini/`, and `GEMINI.md`.

use serde_json::{Map, Value};

use super::{
    Behavior, Import, NewFile, NotImported, SourceFolder, command_starting, command_text, common_server,
    rewritten, texts,
};

pub(super) fn read(place: &SourceFolder<'_>, import: &mut Import) {
    let from = ".gemini/settings.json";
    if let Some(settings) = place.json(from, import) {
        self::settings(&settings, from, import);
    }
    for (name, file) in place.files(".gemini/commands", ".toml") {
        if let Some(command) = place.toml(&file, import) {
            let text = |key: &str| command.get(key).and_then(Value::as_str);
            match text("prompt") {
                Some(prompt) if prompt.contains("!{") => {
                    import.leave(
                        &format!("command {name}"),
                        "runs commands; nothing in a command's file is run here",
                        &file,
                    );
                }
                Some(prompt) => {
                    let prompt = prompt.replace("{{args}}", "$ARGUMENTS");
                    import.add_file("commands", &name, command_text(text("description"), &prompt), &file);
                }
                None => import.leave(&format!("command {name}"), "has no prompt", &file),
            }
        }
    }
    if place.is_user() {
        if let Some(text) = place.text(".gemini/GEMINI.md", import) {
            import.files.push(NewFile { path: "AGENTS.md".to_owned(), text });
        }
    } else if place.has("GEMINI.md") && !place.has("AGENTS.md") {
        import.leave("GEMINI.md", "aye reads AGENTS.md: `ln -s GEMINI.md AGENTS.md`", "GEMINI.md");
    }
}

fn settings(settings: &Map<String, Value>, from: &str, import: &mut Import) {
    for (name, server) in settings.get("mcpServers").and_then(Value::as_object).into_iter().flatten() {
        import.add_server(name, self::server(server), from);
    }
    let tools = settings.get("tools");
    let of = |key: &str, old: &str| {
        [texts(tools.and_then(|tools| tools.get(key))), texts(settings.get(old))].concat()
    };
    for rule in of("exclude", "excludeTools") {
        import.add_rule(Behavior::Deny, &rule, from, pattern(&rule, Behavior::Deny));
    }
    for rule in of("allowed", "allowedTools") {
        import.add_rule(Behavior::Allow, &rule, from, pattern(&rule, Behavior::Allow));
    }
    if !of("core", "coreTools").is_empty() {
        import.leave("tools.core", "`excluded_tools` of an agent leaves tools out: `aye docs agents`", from);
    }
    let known = ["mcpServers", "tools", "excludeTools", "allowedTools", "coreTools", "$schema"];
    let others: Vec<&str> = settings.keys().map(String::as_str).filter(|key| !known.contains(key)).collect();
    if !others.is_empty() {
        import.leave(&others.join(", "), "no rules or servers; see `aye docs configuration`", from);
    }
}

fn pattern(rule: &str, behavior: Behavior) -> Result<Vec<String>, NotImported> {
    let (tool, argument) = match rule.split_once('(') {
        Some((tool, rest)) => {
            (tool.trim(), Some(rest.trim_end_matches(')').trim()).filter(|text| !text.is_empty()))
        }
        None => (rule.trim(), None),
    };
    let ours = match tool {
        "run_shell_command" | "ShellTool" => {
            return Ok(vec![argument.map_or_else(|| "Bash".to_owned(), command_starting)]);
        }
        "read_file" | "read_many_files" | "ReadFileTool" => "Read",
        "write_file" | "WriteFileTool" => "Write",
        "replace" | "EditTool" => "Edit",
        "list_directory" | "LSTool" => "List",
        "glob" | "GlobTool" => "Glob",
        "search_file_content" | "grep_search" | "GrepTool" => "Grep",
        "web_fetch" | "WebFetchTool" => "WebFetch",
        _ => match tool.split_once("__") {
            Some((server, name)) if argument.is_none() => return Ok(vec![format!("mcp__{server}__{name}")]),
            _ => return Err("aye has no such tool".into()),
        },
    };
    match argument {
        Some(_) => Err("only commands have an argument there".into()),
        None if ours == "Edit" && behavior == Behavior::Allow => {
            Ok(vec!["Edit".to_owned(), "Write".to_owned()])
        }
        None => Ok(vec![ours.to_owned()]),
    }
}

fn server(server: &Value) -> Result<Map<String, Value>, NotImported> {
    let mut kept = common_server(&rewritten(server.clone(), &|text| Ok(with_braces(text)))?)?;
    for (theirs, ours) in [("includeTools", "enabled_tools"), ("excludeTools", "disabled_tools")] {
        if let Some(list) = server.get(theirs).filter(|list| !super::is_nothing(list)) {
            kept.insert(ours.to_owned(), list.clone());
        }
    }
    Ok(kept)
}

/// Returns a text with `${NAME}` for each `$NAME`, which means the same there.
fn with_braces(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let after = &rest[at + 1..];
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        out.push_str(&rest[..at]);
        if after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            out.extend(["${", &after[..end], "}"]);
        } else {
            out.push('$');
            out.push_str(&after[..end]);
        }
        rest = &after[end..];
    }
    out + rest
}
