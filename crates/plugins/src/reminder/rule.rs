use super::output::{OutputMatcher, ResultView};
use aye_core::contract::context_message::ContextMessage;
use aye_core::contract::display::shortened;
use aye_core::phase::ToolCallInfo;
use aye_pattern::{Pattern, Quantifier};

/// The place of a reminder in the request, and how long it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReminderTarget {
    /// Before the agent's system prompt, in the next step.
    System,
    /// After the agent's system prompt, in the next step.
    SuffixSystem,
    /// After the agent's system prompt, from the next step until the end of the run.
    Session,
    /// After the last message of the conversation, in the next step.
    Conversation,
}

impl ReminderTarget {
    /// The names used in files.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("system", Self::System),
        ("suffix_system", Self::SuffixSystem),
        ("session", Self::Session),
        ("conversation", Self::Conversation),
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::SuffixSystem => "suffix_system",
            Self::Session => "session",
            Self::Conversation => "conversation",
        }
    }
}

/// One reminder that is ready to fire.
#[derive(Clone, Debug, PartialEq)]
pub struct ReminderRule {
    /// Its name: the one it was given, else `rule-{index}-{tool}`.
    pub name: String,
    /// Whether the name was configured.
    pub is_named: bool,
    /// The calls it is about.
    pub pattern: Pattern,
    /// The results it is about.
    pub output: OutputMatcher,
    /// The place of the reminder in the request.
    pub target: ReminderTarget,
    /// The text of the reminder.
    pub content: String,
    /// The number of steps after firing during which the rule does not fire again.
    pub cooldown_turns: u32,
    /// The line of the rule, if it comes from a file.
    pub line: Option<u64>,
}

impl ReminderRule {
    /// Whether the rule applies to this call with this result.
    pub fn matches(&self, tool: &ToolCallInfo, seen: &ResultView<'_>) -> bool {
        let primary = tool.descriptor.as_ref().and_then(|known| known.primary_argument.as_deref());
        self.pattern.matches(&tool.call.name, &tool.call.arguments, primary, Quantifier::One)
            && self.output.matches(seen)
    }

    /// Returns the message for the model. The caller has already applied the cooldown.
    pub(super) fn message(&self, key: &str) -> ContextMessage {
        // Wherever a rule wants it, it comes after what the model has read: the start of a request never changes.
        ContextMessage::conversation(format!("reminder.{key}"), self.content.clone())
    }

    /// Returns the notice shown to the user when the rule fires.
    pub(super) fn notice(&self) -> String {
        const SHOWN: usize = 200;
        let one_line = self.content.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = shortened(&one_line, SHOWN).into_owned();
        if self.is_named { format!("{}: {text}", self.name) } else { text }
    }
}
