//! opencode: `opencode.json`, agents and commands in `.opencode/` or `~/.config/opencode/`.

use serde_json::{Map, Value};

use super::{
    Behavior, Import, NewFile, NotImported, SourceFolder, command_text, members, rewritten, split_front,
};

pub(super) fn read(place: &SourceFolder<'_>, import: &mut Import) {
    let (folder, settings): (_, &[&str]) = if place.is_user() {
        (".config/opencode", &[".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"])
    } else {
        (
            ".opencode",
            &["opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"],
        )
    };
    for from in settings {
        if let Some(settings) = place.json(from, import) {
            self::settings(&settings, from, import);
        }
    }
    for name in ["command", "commands"] {
        for (name, file) in place.files(&format!("{folder}/{name}"), ".md") {
            if let Some(text) = place.text(&file, import) {
                command(&name, &text, &file, import);
            }
        }
    }
    for name in ["agent", "agents"] {
        for (name, file) in place.files(&format!("{folder}/{name}"), ".md") {
            if let Some(text) = place.text(&file, import) {
                agent(&name, &text, &file, import);
            }
        }
    }
    if place.is_user() {
        if let Some(text) = place.text(".config/opencode/AGENTS.md", import) {
            import.files.push(NewFile { path: "AGENTS.md".to_owned(), text });
        }
    } else if place.has("AGENTS.md") && (place.has(".opencode") || place.has("opencode.json")) {
        import.in_place.push("AGENTS.md".to_owned());
    }
}

fn settings(settings: &Map<String, Value>, from: &str, import: &mut Import) {
    for (key, value) in settings.get("permission").and_then(Value::as_object).into_iter().flatten() {
        permission(key, value, from, import);
    }
    for (name, server) in settings.get("mcp").and_then(Value::as_object).into_iter().flatten() {
        import.add_server(name, self::server(server), from);
    }
    for (name, command) in settings.get("command").and_then(Value::as_object).into_iter().flatten() {
        let text = |key: &str| command.get(key).and_then(Value::as_str);
        match text("template") {
            Some(template) => {
                import.add_file("commands", name, command_text(text("description"), template), from);
            }
            None => import.leave(&format!("command {name}"), "has no template", from),
        }
    }
    if settings.contains_key("agent") {
        import.leave("agent", "agents are files here: `aye docs agents`", from);
    }
    let known = ["permission", "mcp", "command", "agent", "$schema"];
    let others: Vec<&str> = settings.keys().map(String::as_str).filter(|key| !known.contains(key)).collect();
    if !others.is_empty() {
        import.leave(&others.join(", "), "no rules, servers or commands; see `aye docs configuration`", from);
    }
}

fn permission(key: &str, value: &Value, from: &str, import: &mut Import) {
    let tools: &[&str] = match key {
        "bash" => &["Bash"],
        "edit" => &["Edit", "Write"],
        "read" => &["Read"],
        "webfetch" => &["WebFetch"],
        "list" => &["List"],
        "glob" => &["Glob"],
        "grep" => &["Grep"],
        "task" => &["agent_run_*"],
        "skill" => &["skill"],
        _ => return import.leave(&format!("permission.{key}"), "aye has no such tool", from),
    };
    let behavior = |word: &Value| match word.as_str() {
        Some("allow") => Some(Behavior::Allow),
        Some("ask") => Some(Behavior::Ask),
        Some("deny") => Some(Behavior::Deny),
        _ => None,
    };
    if let Some(behavior) = behavior(value) {
        // What no rule matches asks anyway.
        if behavior != Behavior::Ask {
            let all = tools.iter().map(|tool| (*tool).to_owned()).collect();
            import.add_rule(behavior, &format!("permission.{key}"), from, Ok(all));
        }
        return;
    }
    let Some(patterns) = value.as_object() else {
        return import.leave(&format!("permission.{key}"), "is neither a word nor a list of patterns", from);
    };
    // There the last pattern that matches counts; here deny beats ask beats allow. A later pattern that is milder than one
    // that covers it means something else here.
    let mut before: Vec<(&str, Behavior)> = Vec::new();
    for (pattern, word) in patterns {
        let what = format!("permission.{key}: {pattern}");
        let Some(behavior) = behavior(word) else {
            import.leave(&what, "has an unknown word", from);
            continue;
        };
        if pattern == "*" && behavior == Behavior::Ask {
            continue;
        }
        let is_exception =
            before.iter().any(|(earlier, other)| *other > behavior && covers(earlier, pattern));
        before.push((pattern, behavior));
        if is_exception {
            import.leave(&what, "is an exception of a stricter pattern; here the stricter one counts", from);
            continue;
        }
        let translated = match (key, pattern.as_str()) {
            (_, "*") => Ok(tools.iter().map(|tool| (*tool).to_owned()).collect()),
            ("bash", command) => Ok(vec![format!("Bash({command})")]),
            ("edit", path) if behavior == Behavior::Allow => {
                Ok(vec![format!("Edit({path})"), format!("Write({path})")])
            }
            ("edit", path) => Ok(vec![format!("Edit({path})")]),
            ("read", path) => Ok(vec![format!("Read({path})")]),
            ("webfetch", url) => Ok(vec![format!("WebFetch({url})")]),
            ("task", name) => Ok(vec![format!("agent_run_{name}")]),
            ("skill", name) => Ok(vec![format!("skill(skill ~ {})", Value::from(name))]),
            _ => Err("arguments are compared differently here".into()),
        };
        import.add_rule(behavior, &what, from, translated);
    }
}

/// Whether a pattern matches whatever another one matches, as far as their beginnings tell.
fn covers(wide: &str, narrow: &str) -> bool {
    match wide.split_once('*') {
        Some((start, _)) => narrow.starts_with(start.trim_end()),
        None => narrow == wide,
    }
}

fn server(server: &Value) -> Result<Map<String, Value>, NotImported> {
    let server = rewritten(server.clone(), &variables)?;
    let Some(server) = server.as_object() else { return Err("is no object".into()) };
    if server.get("enabled") == Some(&Value::Bool(false)) {
        return Err("is turned off there".into());
    }
    if server.contains_key("url") {
        return Ok(members(server, &[("url", "url"), ("headers", "headers")]));
    }
    let mut words = super::texts(server.get("command"));
    if words.is_empty() {
        return Err("has neither a command nor a url".into());
    }
    let mut kept = Map::new();
    kept.insert("command".to_owned(), words.remove(0).into());
    if !words.is_empty() {
        kept.insert("args".to_owned(), words.into());
    }
    kept.extend(members(server, &[("environment", "env")]));
    Ok(kept)
}

fn command(name: &str, text: &str, from: &str, import: &mut Import) {
    let (front, body) = split_front(text);
    let description = front.iter().find_map(|line| line.strip_prefix("description:"));
    import.add_file("commands", name, command_text(description.map(unquoted), body), from);
}

fn agent(name: &str, text: &str, from: &str, import: &mut Import) {
    let (front, body) = split_front(text);
    let has = |key: &str| front.iter().any(|line| line.starts_with(key));
    if has("tools:") || has("permission:") {
        let why = "has rights of its own; write it again: `aye docs agents`";
        return import.leave(&format!("agent {name}"), why, from);
    }
    let Some(description) = front.iter().find_map(|line| line.strip_prefix("description:")) else {
        return import.leave(&format!("agent {name}"), "has no description", from);
    };
    let description = Value::from(unquoted(description));
    let text = format!("---\nname: {name}\ndescription: {description}\n---\n\n{}\n", body.trim());
    import.add_file("agents", name, text, from);
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let between = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    between('"').or_else(|| between('\'')).unwrap_or(text)
}

/// Returns a text with `${NAME}` for each `{env:NAME}`.
fn variables(text: &str) -> Result<String, NotImported> {
    if text.contains("{file:") {
        return Err("takes a value from a file; put it into a variable".into());
    }
    Ok(text.replace("{env:", "${"))
}
