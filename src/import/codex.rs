//! Codex: `config.toml`, `rules/*.rules`, `prompts/*.md` and `AGENTS.md` in `.codex/`.

use serde_json::{Map, Value, json};

use super::{Behavior, Import, NewFile, NotImported, SourceFolder, command_starting, members, texts};

/// Rules of a list that one alternative of each word may become.
const MAX_COMMANDS: usize = 50;

pub(super) fn read(place: &SourceFolder<'_>, import: &mut Import) {
    let from = ".codex/config.toml";
    let settings = place.toml(from, import).unwrap_or_default();
    for (name, server) in settings.get("mcp_servers").and_then(Value::as_object).into_iter().flatten() {
        import.add_server(name, self::server(server), from);
    }
    for (key, why) in [
        ("approval_policy", "choose the mode with `permission_mode` in config.toml"),
        ("sandbox_mode", "commands are always sandboxed; `aye docs sandbox`"),
        (
            "sandbox_workspace_write",
            "`[sandbox] writable` and `domains` in config.toml open folders and hosts",
        ),
        ("model", "choose it with `model` in config.toml"),
        ("notify", "`notify` of a rule or `[questions]` does that; `aye docs rules`"),
    ] {
        if settings.contains_key(key) {
            import.leave(key, why, from);
        }
    }
    for (_, file) in place.files(".codex/rules", ".rules") {
        if let Some(text) = place.text(&file, import) {
            rules(&text, &file, import);
        }
    }
    if place.is_user() {
        for (name, file) in place.files(".codex/prompts", ".md") {
            if let Some(text) = place.text(&file, import) {
                import.add_file("commands", &name, text, &file);
            }
        }
        if let Some(text) = place.text(".codex/AGENTS.md", import) {
            import.files.push(NewFile { path: "AGENTS.md".to_owned(), text });
        }
    } else if place.has("AGENTS.md") && place.has(".codex") {
        import.in_place.push("AGENTS.md".to_owned());
    }
}

fn server(server: &Value) -> Result<Map<String, Value>, NotImported> {
    let Some(server) = server.as_object() else { return Err("is no table".into()) };
    if server.get("enabled") == Some(&Value::Bool(false)) {
        return Err("is turned off there".into());
    }
    let tools = [("enabled_tools", "enabled_tools"), ("disabled_tools", "disabled_tools")];
    let mut kept = members(server, &tools);
    if let Some(url) = server.get("url") {
        let mut headers = members(server, &[("http_headers", "headers")]);
        let headers = headers.entry("headers").or_insert_with(|| json!({}));
        if let (Some(headers), Some(variables)) =
            (headers.as_object_mut(), server.get("env_http_headers").and_then(Value::as_object))
        {
            let each = variables.iter().filter_map(|(name, variable)| Some((name, variable.as_str()?)));
            headers.extend(each.map(|(name, variable)| (name.clone(), json!(format!("${{{variable}}}")))));
        }
        if let (Some(headers), Some(variable)) =
            (headers.as_object_mut(), server.get("bearer_token_env_var").and_then(Value::as_str))
        {
            headers.insert("Authorization".to_owned(), json!(format!("Bearer ${{{variable}}}")));
        }
        kept.insert("url".to_owned(), url.clone());
        if !super::is_nothing(headers) {
            kept.insert("headers".to_owned(), headers.take());
        }
    } else if server.get("command").is_some_and(Value::is_string) {
        kept.extend(members(server, &[("command", "command"), ("args", "args"), ("env", "env")]));
    } else {
        return Err("has neither a command nor a url".into());
    }
    Ok(kept)
}

/// Reads the calls of `prefix_rule` in a file of rules.
pub(super) fn rules(text: &str, from: &str, import: &mut Import) {
    for call in calls(text) {
        let written = format!("prefix_rule({})", call.split_whitespace().collect::<Vec<_>>().join(" "));
        let behavior = match argument(call, "decision").as_deref() {
            None | Some("\"allow\"") => Behavior::Allow,
            Some("\"prompt\"") => Behavior::Ask,
            Some("\"forbidden\"") => Behavior::Deny,
            Some(_) => {
                import.leave(&written, "has an unknown decision", from);
                continue;
            }
        };
        let words = argument(call, "pattern")
            .and_then(|list| serde_json::from_str::<Vec<Value>>(&super::without_comments(&list)).ok());
        let commands = words.ok_or_else(no_list).and_then(|words| commands(&words));
        let patterns = commands.map(|all| all.iter().map(|command| command_starting(command)).collect());
        import.add_rule(behavior, &written, from, patterns);
    }
}

fn no_list() -> NotImported {
    "its pattern is no list of words".into()
}

/// Returns what is between the brackets of each call of `prefix_rule`.
fn calls(text: &str) -> Vec<&str> {
    let starts = text.match_indices("prefix_rule(").map(|(at, name)| (at, at + name.len()));
    let is_code = |at: usize| !text[..at].rsplit('\n').next().is_some_and(|line| line.contains('#'));
    let starts = starts.filter(|(at, _)| is_code(*at));
    starts.filter_map(|(_, start)| Some(&text[start..start + closing(&text[start..])?])).collect()
}

/// Returns the place of the bracket that closes what is open, outside of texts.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(end), c) if c == end => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') if depth == 0 => return Some(at),
            (None, ')' | ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

/// Returns an argument of a call, its texts between double quotes.
fn argument(call: &str, name: &str) -> Option<String> {
    let mut rest = call;
    loop {
        let (key, value) = rest.split_once('=')?;
        let value = value.trim_start();
        let end = match value.chars().next()? {
            '[' => closing(&value[1..])? + 2,
            quote @ ('"' | '\'') => value[1..].find(quote)? + 2,
            _ => value.find(',').unwrap_or(value.len()),
        };
        if key.trim_start_matches([',', ' ', '\n', '\t', '\r']).trim_end() == name {
            return Some(value[..end].trim_end().replace('\'', "\""));
        }
        rest = &value[end..];
    }
}

/// The commands that a list of words stands for, in which a word may be a list of alternatives.
fn commands(words: &[Value]) -> Result<Vec<String>, NotImported> {
    let mut commands = vec![String::new()];
    for word in words {
        let choices = match word {
            Value::String(word) => vec![word.clone()],
            list => texts(Some(list)),
        };
        if choices.is_empty() {
            return Err(no_list());
        }
        let quoted = choices.iter().map(|choice| shlex::try_quote(choice).map(String::from));
        let quoted = quoted.collect::<Result<Vec<_>, _>>().map_err(|error| NotImported(error.to_string()))?;
        commands = commands
            .iter()
            .flat_map(|start| quoted.iter().map(move |word| format!("{start} {word}")))
            .collect();
        if commands.len() > MAX_COMMANDS {
            return Err(NotImported(format!("stands for more than {MAX_COMMANDS} commands")));
        }
    }
    Ok(commands)
}
