//! Claude Code: `settings.json`, `settings.local.json` and the servers in `~/.claude.json`. What lies in `.claude/` besides
//! is read in place.

use serde_json::{Map, Value};

use super::{
    Behavior, Import, ImportedHook, NotImported, SourceFolder, command_starting, common_server, texts,
};

pub(super) fn read(place: &SourceFolder<'_>, import: &mut Import) {
    for name in ["skills", "commands", "agents"] {
        let path = format!(".claude/{name}");
        if place.has(&path) {
            import.in_place.push(path);
        }
    }
    for from in [".claude/settings.json", ".claude/settings.local.json"] {
        if let Some(settings) = place.json(from, import) {
            self::settings(&settings, from, place, import);
        }
    }
    if place.is_user() {
        let from = ".claude.json";
        let state = place.json(from, import).unwrap_or_default();
        for (name, server) in state.get("mcpServers").and_then(Value::as_object).into_iter().flatten() {
            import.add_server(name, common_server(server), from);
        }
        let instructions = ".claude/CLAUDE.md";
        if let Some(text) = place.text(instructions, import) {
            import.files.push(super::NewFile { path: "AGENTS.md".to_owned(), text });
        }
    } else {
        for path in ["CLAUDE.md", ".mcp.json"] {
            if place.has(path) {
                import.in_place.push(path.to_owned());
            }
        }
    }
}

fn settings(settings: &Map<String, Value>, from: &str, place: &SourceFolder<'_>, import: &mut Import) {
    let permissions = settings.get("permissions").and_then(Value::as_object).cloned().unwrap_or_default();
    for (key, behavior) in [("deny", Behavior::Deny), ("ask", Behavior::Ask), ("allow", Behavior::Allow)] {
        for rule in texts(permissions.get(key)) {
            let translated = pattern(&rule, behavior, place.is_user());
            import.add_rule(behavior, &rule, from, translated);
        }
    }
    if permissions.contains_key("defaultMode") {
        import.leave(
            "permissions.defaultMode",
            "choose the mode with `permission_mode` in config.toml",
            from,
        );
    }
    if permissions.contains_key("additionalDirectories") {
        let why = "`[sandbox] writable` in config.toml opens folders to commands";
        import.leave("permissions.additionalDirectories", why, from);
    }
    for (event, groups) in settings.get("hooks").and_then(Value::as_object).into_iter().flatten() {
        hooks(event, groups, from, import);
    }
    let known = ["permissions", "hooks", "$schema"];
    let others: Vec<&str> = settings.keys().map(String::as_str).filter(|key| !known.contains(key)).collect();
    if !others.is_empty() {
        import.leave(&others.join(", "), "no rules, servers or hooks; see `aye docs configuration`", from);
    }
}

/// Translates a rule such as `Bash(npm run test:*)`.
pub(super) fn pattern(rule: &str, behavior: Behavior, is_user: bool) -> Result<Vec<String>, NotImported> {
    let (tool, argument) = match rule.split_once('(') {
        Some((tool, rest)) => {
            let Some(argument) = rest.strip_suffix(')') else {
                return Err("has no closing bracket".into());
            };
            (tool.trim(), Some(argument.trim()).filter(|argument| !matches!(*argument, "" | "*")))
        }
        None => (rule.trim(), None),
    };
    if tool.starts_with("mcp__") {
        return match argument {
            None => Ok(vec![tool.to_owned()]),
            Some(_) => Err("rules about a server's tool have no argument there".into()),
        };
    }
    let ours = match tool {
        "Bash" | "Read" | "Write" | "Edit" | "WebFetch" | "Glob" | "Grep" | "TodoWrite" | "BashOutput" => {
            tool
        }
        "MultiEdit" => "Edit",
        "LS" => "List",
        "KillShell" | "KillBash" => "KillShell",
        "Skill" => {
            return Ok(vec![argument.map_or_else(
                || "skill".to_owned(),
                |name| format!("skill(skill = {})", Value::from(name)),
            )]);
        }
        "Task" | "Agent" => return Ok(vec![format!("agent_run_{}", argument.unwrap_or("*"))]),
        _ => return Err("aye has no such tool".into()),
    };
    let Some(argument) = argument else {
        let also_writes = ours == "Edit" && behavior == Behavior::Allow;
        return Ok([ours].into_iter().chain(also_writes.then_some("Write")).map(str::to_owned).collect());
    };
    match ours {
        "Bash" => match argument.strip_suffix(":*") {
            Some(words) => Ok(vec![command_starting(words)]),
            None if argument.contains(":*") => Err("`:*` counts only at the end".into()),
            None => Ok(vec![format!("Bash({argument})")]),
        },
        "Read" | "Write" | "Edit" => {
            let path = path(argument, is_user)?;
            // What may be edited there may be written. What may not, not either: here that is true of any rule about Edit.
            let also_writes = ours == "Edit" && behavior == Behavior::Allow;
            let tools = [ours].into_iter().chain(also_writes.then_some("Write"));
            Ok(tools.map(|tool| format!("{tool}({path})")).collect())
        }
        "WebFetch" => Ok(vec![format!("WebFetch({argument})")]),
        _ => Err(NotImported(format!("arguments of {ours} are compared differently here"))),
    }
}

/// A path as aye writes it: `//x` is absolute there, `/x` begins at the project.
fn path(path: &str, is_user: bool) -> Result<String, NotImported> {
    if let Some(absolute) = path.strip_prefix("//") {
        return Ok(format!("/{absolute}"));
    }
    match path.strip_prefix('/') {
        Some(_) if is_user => Err("a path from `/` begins at ~/.claude there".into()),
        Some(inner) => Ok(format!("./{inner}")),
        None => Ok(path.to_owned()),
    }
}

fn hooks(event: &str, groups: &Value, from: &str, import: &mut Import) {
    let phase = match event {
        "PreToolUse" => "before_tool_execute",
        "PostToolUse" => "after_tool_execute",
        "UserPromptSubmit" => "run_start",
        "Stop" => "run_end",
        _ => return import.leave(&format!("hooks of {event}"), "aye has no such boundary", from),
    };
    for group in groups.as_array().into_iter().flatten() {
        let matcher = group.get("matcher").and_then(Value::as_str).unwrap_or_default();
        let tool = match tools(matcher) {
            Ok(tool) => tool.filter(|_| phase.ends_with("tool_execute")),
            Err(why) => {
                import.leave(&format!("{event} hooks of {matcher}"), &why.0, from);
                continue;
            }
        };
        let Some(hooks) = group.get("hooks").and_then(Value::as_array) else {
            import.leave(&format!("{event} hooks of {matcher}"), "has no list `hooks`", from);
            continue;
        };
        for hook in hooks {
            let command = hook.get("command").and_then(Value::as_str);
            match (hook.get("type").and_then(Value::as_str), command) {
                (None | Some("command"), Some(command)) => import.hooks.push(ImportedHook {
                    phase,
                    tool: tool.clone(),
                    command: command.to_owned(),
                    timeout: hook.get("timeout").and_then(Value::as_u64).unwrap_or(60).clamp(1, 600),
                }),
                _ => import.leave(&format!("a hook of {event}"), "only commands are run here", from),
            }
        }
    }
}

/// Translates a matcher, a regular expression on names of tools.
fn tools(matcher: &str) -> Result<Option<String>, NotImported> {
    if matches!(matcher, "" | "*" | ".*") {
        return Ok(None);
    }
    if matcher.contains('/') {
        return Err("a matcher with `/` has no form here".into());
    }
    let mut names: Vec<String> = Vec::new();
    for name in matcher.split('|') {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let ours = match name {
            "MultiEdit" => "Edit",
            "LS" => "List",
            "Task" | "Agent" => "agent_run_.*",
            "Skill" => "skill",
            other => other,
        };
        if plain && !ours.starts_with("mcp__") && !ours.contains('*') {
            // A misspelt or foreign name would never match.
            pattern(name, Behavior::Ask, true)?;
        }
        if !names.iter().any(|known| known == ours) {
            names.push(ours.to_owned());
        }
    }
    let is_plain = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match names.as_slice() {
        [one] if is_plain(one) => Ok(Some(one.clone())),
        _ => Ok(Some(format!("/({})/", names.join("|")))),
    }
}
