use super::output::{OutputMatcher, ResultView};
use aye_core::contract::context_message::{ContextMessage, ContextTarget};
use aye_core::contract::display::shortened;
use aye_core::phase::ToolCallInfo;
use aye_pattern::{Pattern, Quantifier};

/// Where a reminder stands in the request, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReminderTarget {
    /// Before the agent's system prompt, in the next step.
    System,
    /// Behind the agent's system prompt, in the next step.
    SuffixSystem,
    /// Behind the agent's system prompt, from the next step on for the rest of the run.
    Session,
    /// Behind the last message of the conversation, in the next step.
    Conversation,
}

impl ReminderTarget {
    /// The words, as they stand in files.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("system", Self::System),
        ("suffix_system", Self::SuffixSystem),
        ("session", Self::Session),
        ("conversation", Self::Conversation),
    ];

    /// Its word.
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
    /// Whether the name was given.
    pub is_named: bool,
    /// The calls it is about.
    pub pattern: Pattern,
    /// The results it is about.
    pub output: OutputMatcher,
    /// Where its words stand.
    pub target: ReminderTarget,
    /// What the model is reminded of.
    pub content: String,
    /// For so many steps after it fired it does not fire again.
    pub cooldown_turns: u32,
    /// The line it stands on, when it is from a file.
    pub line: Option<u64>,
}

impl ReminderRule {
    /// Whether it is about this call with this result.
    pub fn matches(&self, tool: &ToolCallInfo, seen: &ResultView<'_>) -> bool {
        let primary = tool.descriptor.as_ref().and_then(|known| known.primary_argument.as_deref());
        self.pattern.matches(&tool.call.name, &tool.call.arguments, primary, Quantifier::One)
            && self.output.matches(seen)
    }

    /// What is put before the model. Its cooldown has been seen to.
    pub(super) fn message(&self, key: &str) -> ContextMessage {
        let (target, persistent) = match self.target {
            ReminderTarget::System => (ContextTarget::SystemFront, false),
            ReminderTarget::SuffixSystem => (ContextTarget::System, false),
            ReminderTarget::Session => (ContextTarget::System, true),
            ReminderTarget::Conversation => (ContextTarget::Conversation, false),
        };
        ContextMessage {
            key: format!("reminder.{key}"),
            content: self.content.clone(),
            target,
            persistent,
            cooldown_turns: 0,
        }
    }

    /// What the person reads when it fired.
    pub(super) fn notice(&self) -> String {
        const SHOWN: usize = 200;
        let one_line = self.content.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = shortened(&one_line, SHOWN).into_owned();
        if self.is_named { format!("{}: {text}", self.name) } else { text }
    }
}
