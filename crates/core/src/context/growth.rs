//! Says at the end of a conversation what changed since the start of its requests was frozen.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::json;

use crate::contract::digest::sha256_hex;
use crate::contract::display::shortened;
use crate::contract::prefix::{PrefixRecord, PromptChanges, PromptPart};
use crate::contract::tool::ToolDescriptor;

/// The start of the key of an agent's own text.
pub const AGENT_KEY: &str = "agent:";
/// A text of fewer bytes is repeated as a whole when it changes.
const SHORT: usize = 400;
/// The longest name of a text, in characters.
const LABEL: usize = 80;

/// What the next request should say beside its messages.
#[derive(Clone, Copy)]
pub struct PromptNow<'a> {
    pub parts: &'a [PromptPart],
    pub tools: &'a [ToolDescriptor],
    /// Whether a tool that is not among them may be called all the same.
    pub is_callable: &'a dyn Fn(&str) -> bool,
    /// Whether the model has just read a text.
    pub is_shown: &'a dyn Fn(&str) -> bool,
}

/// A tool as a line of text, for a model that does not find it in the list of its tools.
pub fn function_line(tool: &ToolDescriptor) -> String {
    let function = json!({"description": tool.description, "name": tool.id, "parameters": tool.parameters});
    // Text from a server must not look like the end of the block.
    format!("<function>{}</function>", function.to_string().replace('<', "\\u003c"))
}

fn digest(tool: &ToolDescriptor) -> String {
    let mut digest = sha256_hex(tool.parameters.to_string());
    digest.truncate(16);
    digest
}

impl PromptChanges {
    /// The changes since this record: none if these belong to another one.
    #[must_use]
    pub fn since(self, prefix: &PrefixRecord) -> Self {
        if self.at_seq == prefix.at_seq {
            return self;
        }
        Self { at_seq: prefix.at_seq, ..Self::default() }
    }

    fn part<'a>(&'a self, prefix: &'a PrefixRecord, key: &str) -> Option<&'a PromptPart> {
        match self.parts.get(key) {
            Some(changed) => changed.as_ref(),
            None => prefix.system.iter().find(|part| part.key == key),
        }
    }

    /// Returns whether the model knows a tool and may call it.
    pub fn offers(&self, prefix: &PrefixRecord, tool: &str) -> bool {
        match self.tools.get(tool) {
            Some(changed) => changed.is_some(),
            None => prefix.tools.iter().any(|known| known.id == tool),
        }
    }

    fn is_current(&self, prefix: &PrefixRecord, tool: &ToolDescriptor) -> bool {
        match self.tools.get(&tool.id) {
            Some(changed) => changed.as_ref().is_some_and(|known| *known == digest(tool)),
            None => is_frozen(prefix, tool),
        }
    }

    /// Takes in what is true now, and returns the messages that say so.
    pub fn tell(&mut self, prefix: &PrefixRecord, now: &PromptNow<'_>) -> Vec<String> {
        let mut texts = Vec::new();
        let keys: BTreeSet<&str> = now.parts.iter().map(|part| part.key.as_str()).collect();
        let known: BTreeSet<&str> = prefix
            .system
            .iter()
            .map(|part| part.key.as_str())
            .chain(self.parts.keys().map(String::as_str))
            .collect();
        let gone: Vec<String> = (known.into_iter())
            .filter(|key| !keys.contains(key) && self.part(prefix, key).is_some())
            .map(str::to_owned)
            .collect();
        for key in gone {
            if let Some(part) = self.part(prefix, &key).filter(|part| !part.ends_silently)
                && !key.starts_with(AGENT_KEY)
            {
                texts.push(format!("This no longer applies: {}", label(&part.text)));
            }
            self.parts.insert(key, None);
        }
        for part in now.parts {
            let before = self.part(prefix, &part.key);
            let is_own = part.key.starts_with(AGENT_KEY);
            if before.is_some_and(|before| before.text == part.text) {
                continue;
            }
            if !(now.is_shown)(&part.text) {
                let is_frozen =
                    prefix.system.iter().any(|frozen| frozen.text == part.text && frozen.key == part.key);
                texts.push(match before {
                    Some(before) => changed(&before.text, &part.text),
                    None if is_frozen && is_own => format!(
                        "From here on you are the agent `{}` again: the instructions at the start apply.",
                        &part.key[AGENT_KEY.len()..]
                    ),
                    None if is_frozen => format!("This applies again: {}", label(&part.text)),
                    None if is_own => format!(
                        "From here on you are the agent `{}`. These instructions replace those of the agent before:\n\n{}",
                        &part.key[AGENT_KEY.len()..],
                        part.text
                    ),
                    None => part.text.clone(),
                });
            }
            self.parts.insert(part.key.clone(), Some(part.clone()));
        }
        texts.extend(self.report_tools(prefix, now));
        texts
    }

    fn report_tools(&mut self, prefix: &PrefixRecord, now: &PromptNow<'_>) -> Option<String> {
        let (mut lines, mut again, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for tool in now.tools {
            if self.is_current(prefix, tool) {
                continue;
            }
            let is_withheld = self.tools.get(&tool.id).is_some_and(Option::is_none);
            if is_withheld && is_frozen(prefix, tool) {
                again.push(tool.id.clone());
                self.tools.remove(&tool.id);
                continue;
            }
            let line = function_line(tool);
            if !(now.is_shown)(&line) {
                lines.push(line);
            }
            self.tools.insert(tool.id.clone(), Some(digest(tool)));
        }
        let offered: BTreeSet<&str> = now.tools.iter().map(|tool| tool.id.as_str()).collect();
        let known: BTreeSet<&str> = prefix
            .tools
            .iter()
            .map(|tool| tool.id.as_str())
            .chain(self.tools.keys().map(String::as_str))
            .collect();
        for tool in known {
            if !offered.contains(tool) && self.offers(prefix, tool) && !(now.is_callable)(tool) {
                gone.push(tool.to_owned());
            }
        }
        for tool in &gone {
            self.tools.insert(tool.clone(), None);
        }
        let mut text = String::new();
        if !lines.is_empty() {
            let _ = write!(
                text,
                "These tools are new or have other parameters. They are not in your list of tools; call them by \
                 name all the same.\n<functions>\n{}\n</functions>",
                lines.join("\n")
            );
        }
        for (what, names) in
            [("Tools that cannot be used now", gone), ("Tools that can be used again", again)]
        {
            if !names.is_empty() {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = write!(text, "{gap}{what}: {}.", names.join(", "));
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Whether a tool is in the frozen list with these parameters. What else is said about it may differ.
fn is_frozen(prefix: &PrefixRecord, tool: &ToolDescriptor) -> bool {
    prefix.tools.iter().any(|known| known.id == tool.id && known.parameters == tool.parameters)
}

fn label(text: &str) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    shortened(first, LABEL).into_owned()
}

/// Says how a text changed: by its lines, if that is much shorter than the text.
fn changed(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (removed, added) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let bytes: usize = removed.iter().chain(added).map(|line| line.len() + 3).sum();
    if after.len() < SHORT || bytes * 2 > after.len() {
        return format!("This replaces what was said before under `{}`:\n\n{after}", label(before));
    }
    let mut text = format!("What was said before under `{}` changed in these lines:", label(before));
    for (sign, lines) in [('-', removed), ('+', added)] {
        for line in lines {
            let _ = write!(text, "\n{sign} {line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(key: &str, text: &str) -> PromptPart {
        PromptPart { key: key.into(), text: text.into(), ends_silently: false }
    }

    fn tool(id: &str, parameter: &str) -> ToolDescriptor {
        ToolDescriptor::new(id, id, "does it")
            .with_parameters(json!({"type": "object", "required": [parameter]}))
    }

    fn reported(
        changes: &mut PromptChanges,
        prefix: &PrefixRecord,
        parts: &[PromptPart],
        tools: &[ToolDescriptor],
    ) -> Vec<String> {
        let now =
            PromptNow { parts, tools, is_callable: &|_| false, is_shown: &|text| text.contains("shown") };
        changes.tell(prefix, &now)
    }

    #[test]
    fn each_change_of_a_text_is_said_once() {
        let long = (0..40).fold(String::new(), |text, n| text + &format!("line {n} of the notes\n"));
        let prefix = PrefixRecord {
            system: vec![part("agent:a", "You are a."), part("date", "Date: 1."), part("notes", &long)],
            ..PrefixRecord::default()
        };
        let mut changes = PromptChanges::default();
        let mut parts = prefix.system.clone();
        assert_eq!(reported(&mut changes, &prefix, &parts, &[]), [""; 0]);
        assert_eq!(changes, PromptChanges::default());

        parts[1].text = "Date: 2.".into();
        parts[2].text = long.replace("line 7 of", "line seven of");
        parts.push(part("skill", "Do it so."));
        parts.push(part("seen", "It was shown."));
        let texts = reported(&mut changes, &prefix, &parts, &[]);
        assert_eq!(
            texts,
            [
                "This replaces what was said before under `Date: 1.`:\n\nDate: 2.",
                "What was said before under `line 0 of the notes` changed in these lines:\n- line 7 of the notes\n\
                 + line seven of the notes",
                "Do it so.",
            ]
        );
        assert_eq!(reported(&mut changes, &prefix, &parts, &[]), [""; 0], "once");

        parts.retain(|part| part.key != "skill" && part.key != "date");
        let texts = reported(&mut changes, &prefix, &parts, &[]);
        assert_eq!(texts, ["This no longer applies: Date: 2.", "This no longer applies: Do it so."]);
        assert_eq!(reported(&mut changes, &prefix, &parts, &[]), [""; 0]);
        parts.push(part("date", "Date: 1."));
        assert_eq!(reported(&mut changes, &prefix, &parts, &[]), ["This applies again: Date: 1."]);
    }

    #[test]
    fn another_agent_is_introduced_and_the_first_one_comes_back() {
        let prefix = PrefixRecord { system: vec![part("agent:a", "You are a.")], ..PrefixRecord::default() };
        let mut changes = PromptChanges::default();
        let texts = reported(&mut changes, &prefix, &[part("agent:b", "You are b.")], &[]);
        assert!(
            texts.len() == 1 && texts[0].contains("agent `b`") && texts[0].ends_with("You are b."),
            "{texts:?}"
        );
        let texts = reported(&mut changes, &prefix, &prefix.system.clone(), &[]);
        assert_eq!(texts, ["From here on you are the agent `a` again: the instructions at the start apply."]);
    }

    #[test]
    fn tools_come_go_and_change_by_message() {
        let prefix =
            PrefixRecord { tools: vec![tool("Read", "a"), tool("Edit", "a")], ..PrefixRecord::default() };
        let mut changes = PromptChanges::default();
        let joined = |changes: &mut PromptChanges, tools: &[ToolDescriptor]| {
            reported(changes, &prefix, &[], tools).join("|")
        };
        assert_eq!(joined(&mut changes, &prefix.tools), "");
        let text = joined(&mut changes, &[tool("Read", "a"), tool("New", "b")]);
        assert!(text.contains(&function_line(&tool("New", "b"))), "{text}");
        assert!(text.ends_with("Tools that cannot be used now: Edit."), "{text}");
        assert!(
            changes.offers(&prefix, "New")
                && changes.offers(&prefix, "Read")
                && !changes.offers(&prefix, "Edit")
        );
        assert_eq!(joined(&mut changes, &[tool("Read", "a"), tool("New", "b")]), "");
        let text = joined(&mut changes, &[tool("Read", "c"), tool("Edit", "a")]);
        assert!(text.contains(&function_line(&tool("Read", "c"))) && !text.contains("\"Edit\""), "{text}");
        assert!(text.ends_with("cannot be used now: New.\nTools that can be used again: Edit."), "{text}");
        let mut described = tool("Edit", "a");
        described.description = "does it well".into();
        assert_eq!(joined(&mut changes, &[tool("Read", "c"), described]), "", "only parameters matter");
    }

    #[test]
    fn changes_of_another_start_do_not_count() {
        let changes =
            PromptChanges { at_seq: 3, parts: [("a".into(), None)].into(), ..PromptChanges::default() };
        let prefix = PrefixRecord { at_seq: 5, ..PrefixRecord::default() };
        assert_eq!(changes.since(&prefix), PromptChanges { at_seq: 5, ..PromptChanges::default() });
    }
}
