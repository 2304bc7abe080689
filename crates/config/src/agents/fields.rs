//! The fields of an agent, from front matter or from a table of the settings.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{AgentIssue, AgentScope, HitlMode, ParsedAgent, Severity, SourceLocator};
use aye_core::contract::display::visible_line;
use aye_core::contract::near::nearest;
use aye_core::contract::spec::{AgentSpec, RemoteEndpoint};
use aye_files::front_matter::split_list;
use aye_pattern::Pattern;

/// Characters of a name: the tool that delegates to the agent has it in its own name, which may have 64.
const MAX_NAME: usize = 48;

/// The agent that is always there.
const BUILT_IN: &str = "aye";

/// The fields, as they are spelled in files of aye; `-` is as good as `_`.
const FIELDS: [&str; 24] = [
    "name",
    "id",
    "description",
    "model",
    "system_prompt",
    "max_rounds",
    "max_continuation_retries",
    "context_policy",
    "plugin_ids",
    "active_hook_filter",
    "allowed_tools",
    "tools",
    "excluded_tools",
    "disallowed_tools",
    "delegates",
    "handoff",
    "tool_execution",
    "endpoint",
    "sections",
    "permission",
    "hitl",
    "worktree",
    "isolation",
    "color",
];

/// The form of an agent file: which programs the file is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentDialect {
    /// For aye: an unknown field is a mistake.
    Own,
    /// For other programs too: what they alone know is left out with a warning.
    Shared,
}

/// Reads the fields of one agent. `name` is the agent's name unless a field sets one, and `body` is the
/// prompt below the front matter.
pub fn read_fields(
    map: &Map<String, Value>,
    name: &str,
    body: Option<&str>,
    form: AgentDialect,
    scope: AgentScope,
    places: &SourceLocator,
) -> (Option<ParsedAgent>, Vec<AgentIssue>) {
    let mut reader = AgentReader {
        form,
        places,
        issues: Vec::new(),
        spec: AgentSpec::new(name),
        hitl: None,
        seen: Vec::new(),
    };
    for (key, value) in map {
        reader.field(key, value, body.is_some());
    }
    if let Some(body) = body {
        body.trim().clone_into(&mut reader.spec.system_prompt);
    }
    reader.check_name();
    let is_refused = reader.issues.iter().any(|issue| issue.severity == Severity::Error);
    let agent = ParsedAgent {
        spec: reader.spec,
        hitl: reader.hitl,
        given: reader.seen,
        insists_on_model: form == AgentDialect::Own,
        scope,
        path: None,
        places: places.clone(),
        hidden_by: None,
    };
    ((!is_refused).then_some(agent), reader.issues)
}

struct AgentReader<'a> {
    form: AgentDialect,
    places: &'a SourceLocator,
    issues: Vec<AgentIssue>,
    spec: AgentSpec,
    hitl: Option<HitlMode>,
    seen: Vec<&'static str>,
}

impl AgentReader<'_> {
    fn report(&mut self, severity: Severity, key: &str, message: String) {
        let pointer = if key.is_empty() { String::new() } else { format!("/{key}") };
        self.issues.push(AgentIssue { place: (self.places)(&pointer), severity, message });
    }

    fn wrong(&mut self, key: &str, message: String) {
        self.report(Severity::Error, key, message);
    }

    fn field(&mut self, key: &str, value: &Value, has_body: bool) {
        // `disallowedTools`, `allowed-tools` and `allowed_tools` are spellings of different programs.
        let mut plain = String::new();
        for c in key.chars() {
            if c.is_ascii_uppercase() && !plain.is_empty() {
                plain.push('_');
            }
            plain.push(if c == '-' { '_' } else { c.to_ascii_lowercase() });
        }
        let Some(field) = FIELDS.into_iter().find(|known| *known == plain) else {
            return self.unknown(key, &plain);
        };
        let field = match field {
            "id" => "name",
            "tools" => "allowed_tools",
            "disallowed_tools" => "excluded_tools",
            "isolation" => "worktree",
            other => other,
        };
        if self.seen.contains(&field) {
            return self.wrong(key, format!("`{key}` repeats `{field}`"));
        }
        if value.is_null() {
            return;
        }
        self.seen.push(field);
        match field {
            "name" => {
                if let Some(name) = self.text(key, value) {
                    self.spec.id = name;
                }
            }
            "description" => self.spec.description = self.text(key, value).filter(|text| !text.is_empty()),
            "model" => {
                let model = self.text(key, value).unwrap_or_default();
                self.spec.model = if model == "inherit" { String::new() } else { model };
            }
            "system_prompt" if has_body => {
                self.wrong(key, "the prompt of a file belongs below its front matter; move it there".into());
            }
            "system_prompt" => self.spec.system_prompt = self.text(key, value).unwrap_or_default(),
            "max_rounds" => {
                if let Some(rounds) = self.count(key, value) {
                    self.spec.max_rounds = rounds;
                }
            }
            "max_continuation_retries" => {
                if let Some(retries) = self.count(key, value) {
                    self.spec.max_continuation_retries = retries;
                }
            }
            "context_policy" => self.spec.context_policy = self.typed(key, value),
            // An address alone is one where A2A is spoken.
            "endpoint" => {
                self.spec.endpoint = match value {
                    Value::String(url) => Some(RemoteEndpoint::a2a(url.trim())),
                    other => self.typed(key, other),
                };
            }
            "hitl" => self.hitl = self.typed(key, value),
            "worktree" => {
                // Other programs write `isolation: worktree`.
                let is_named = value.as_str() == Some("worktree");
                if let Some(worktree) = if is_named { Some(true) } else { self.typed(key, value) } {
                    self.spec.worktree = worktree;
                }
            }
            "tool_execution" => {
                if let Some(mode) = self.typed(key, value) {
                    self.spec.tool_execution = mode;
                }
            }
            "plugin_ids" => self.spec.plugin_ids = self.list(key, value),
            "active_hook_filter" => {
                self.spec.active_hook_filter = self.list(key, value).into_iter().collect();
            }
            "delegates" => self.spec.delegates = self.list(key, value),
            "allowed_tools" => self.spec.allowed_tools = Some(self.patterns(key, value)),
            "excluded_tools" => self.spec.excluded_tools = Some(self.patterns(key, value)),
            "handoff" => {
                let agents = if value.is_object() { None } else { Some(self.list(key, value)) };
                let section = agents.map_or_else(|| value.clone(), |agents| json!({ "agents": agents }));
                self.section(key, "handoff", section);
            }
            "permission" => self.section(key, "permission", value.clone()),
            "sections" => match value.as_object() {
                Some(sections) => {
                    for (name, section) in sections {
                        self.section(key, name, section.clone());
                    }
                }
                None => self.wrong(key, format!("`{key}` must be a map of sections, not {}", what(value))),
            },
            // The field sets the agent's colour in other programs.
            _ => {}
        }
    }

    fn unknown(&mut self, key: &str, plain: &str) {
        let key_shown = visible_line(key).into_owned();
        let near = nearest(plain, FIELDS.into_iter().filter(|known| *known != "color"));
        match (self.form, near) {
            (AgentDialect::Own, Some(near)) => {
                self.wrong(key, format!("unknown field `{key_shown}`; did you mean `{near}`?"));
            }
            (AgentDialect::Own, None) => {
                let known: Vec<&str> = FIELDS
                    .into_iter()
                    .filter(|known| !matches!(*known, "id" | "tools" | "isolation" | "color"))
                    .collect();
                self.wrong(key, format!("unknown field `{key_shown}`; expected one of {}", known.join(", ")));
            }
            (AgentDialect::Shared, _) => {
                self.report(
                    Severity::Warning,
                    key,
                    format!("`{key_shown}` has no effect in aye and is ignored"),
                );
            }
        }
    }

    fn section(&mut self, key: &str, name: &str, section: Value) {
        if self.spec.sections.insert(name.to_owned(), section).is_some() {
            self.wrong(key, format!("duplicate section `{}`", visible_line(name)));
        }
    }

    fn text(&mut self, key: &str, value: &Value) -> Option<String> {
        match value.as_str() {
            Some(text) if !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) => {
                Some(text.trim().to_owned())
            }
            Some(_) => {
                self.wrong(key, format!("`{key}` contains a control character; remove it"));
                None
            }
            None => {
                self.wrong(key, format!("`{key}` must be a string, not {}", what(value)));
                None
            }
        }
    }

    fn count(&mut self, key: &str, value: &Value) -> Option<usize> {
        let count = value.as_u64().and_then(|n| usize::try_from(n).ok());
        if count.is_none() {
            self.wrong(key, format!("`{key}` must be a whole number, not {}", what(value)));
        }
        count
    }

    fn typed<T: DeserializeOwned>(&mut self, key: &str, value: &Value) -> Option<T> {
        match serde_json::from_value(value.clone()) {
            Ok(typed) => Some(typed),
            Err(error) => {
                self.wrong(key, format!("invalid `{key}`: {}", visible_line(&error.to_string())));
                None
            }
        }
    }

    /// A list, or a text with commas or blanks between its parts.
    fn list(&mut self, key: &str, value: &Value) -> Vec<String> {
        let parts: Option<Vec<String>> = match value {
            // In a text of YAML the quotes around a part of it belong to the text.
            Value::String(text) => {
                Some(split_list(text).0.into_iter().map(|part| unquoted(&part).to_owned()).collect())
            }
            Value::Array(items) => items.iter().map(|item| item.as_str().map(|s| s.trim().into())).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        match parts {
            Some(parts)
                if parts.iter().all(|part| !part.is_empty() && !part.chars().any(char::is_control)) =>
            {
                parts
            }
            Some(_) => {
                self.wrong(key, format!("`{key}` contains an empty string or one with control characters"));
                Vec::new()
            }
            None => {
                let found = what(value);
                self.wrong(key, format!("`{key}` must be a list of strings such as [a, b], not {found}"));
                Vec::new()
            }
        }
    }

    fn patterns(&mut self, key: &str, value: &Value) -> Vec<String> {
        let patterns = self.list(key, value);
        for pattern in &patterns {
            if let Err(error) = Pattern::parse(pattern) {
                let message = format!(
                    "`{}` in `{key}` is not a tool pattern: {}",
                    visible_line(pattern),
                    visible_line(&error.to_string())
                );
                self.wrong(key, message);
            }
        }
        patterns
    }

    fn check_name(&mut self) {
        let name = self.spec.id.clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name == BUILT_IN {
            self.wrong("name", format!("the name `{BUILT_IN}` is reserved for the built-in agent"));
        } else if name.is_empty() || !name.chars().all(is_plain) || name.len() > MAX_NAME {
            let message = format!(
                "invalid agent name `{}`; expected 1 to {MAX_NAME} letters, digits, `-` and `_`",
                visible_line(&name)
            );
            self.wrong("name", message);
        }
    }
}

fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

fn what(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => {
            let short: String = text.chars().take(60).collect();
            format!("the string `{}`", visible_line(&short))
        }
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}
