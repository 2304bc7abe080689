//! Completions while a command or a path is being typed.

use std::ops::Range;

use super::host::SkillRow;
use super::wrap::truncate;

/// Maximum columns of a name in a sentence that says that it is not a command.
const MAX_NAME: u16 = 13;

/// A command that starts with `/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    /// Its name, without the slash.
    pub name: &'static str,
    /// The argument that may follow it.
    pub argument: &'static str,
    /// The description of the command.
    pub help: &'static str,
    /// Words that may follow it first.
    pub words: &'static [&'static str],
    /// Names that people know from other agents. A skill or a command file of the same name takes precedence.
    pub aliases: &'static [Alias],
    pub action: SlashAction,
}

/// Another name of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The name, without the slash.
    pub name: &'static str,
    /// The words that it stands for besides the command; where there are any, typed ones are dropped.
    pub words: &'static str,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlashAction {
    Help,
    New,
    Resume,
    Threads,
    Inbox,
    Model,
    Effort,
    Login,
    Logout,
    Mode,
    Theme,
    Skills,
    Permissions,
    Grants,
    Continue,
    Goal,
    Init,
    Vim,
    Copy,
    Export,
    Screen,
    Quit,
    Thread(ThreadAction),
    Page(HostPage),
}

/// What a command does with a conversation as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadAction {
    Rewind,
    Fork,
    Diff,
    Rename,
    Compare,
}

/// A page with which the host answers the command of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPage {
    Agent,
    Memory,
    Stats,
    Queue,
    Plugins,
    Tasks,
    Context,
    Compact,
    Btw,
    Goal,
    Mcp,
    Serve,
    Doctor,
    Status,
    Config,
    Hooks,
    Feedback,
}

/// The commands, in the order in which they are offered.
pub const COMMANDS: &[SlashCommand] = &[
    command("help", "", "keys and commands", SlashAction::Help)
        .aliases(&[alias("hotkeys", ""), alias("keybindings", "")]),
    command("new", "", "start a new conversation", SlashAction::New),
    command("resume", "[ID]", "resume a conversation", SlashAction::Resume).aliases(&[alias("sessions", "")]),
    command("threads", "", "list all conversations", SlashAction::Threads),
    command("inbox", "", "pending questions everywhere", SlashAction::Inbox),
    command("model", "[NAME]", "choose the model", SlashAction::Model),
    command("effort", "[none|low|medium|high|max|default]", "set the reasoning effort", SlashAction::Effort)
        .words(&["none", "low", "medium", "high", "max", "default"]),
    command("login", "[PROVIDER]", "store a provider's key and use its models", SlashAction::Login),
    command("logout", "[PROVIDER]", "remove a stored key", SlashAction::Logout),
    page("agent", "[NAME]", "show or choose the agent", HostPage::Agent).aliases(&[alias("agents", "")]),
    command(
        "mode",
        "[NAME]",
        "set the permission mode: ask, accept-edits, auto, plan or yolo",
        SlashAction::Mode,
    )
    .words(&["ask", "accept-edits", "auto", "plan", "yolo"])
    .aliases(&[alias("plan", "plan")]),
    command("theme", "[NAME]", "choose the theme", SlashAction::Theme),
    command("skills", "", "list skills", SlashAction::Skills),
    command("permissions", "", "list the rules in force", SlashAction::Permissions),
    command("grants", "", "list and revoke grants", SlashAction::Grants),
    page("memory", "[add|edit|forget]", "show memory: notes about you and this project", HostPage::Memory)
        .words(&["add", "edit", "forget"]),
    page(
        "stats",
        "[model|tool|day] [TIME]",
        "show usage: answers, calls, tokens, cost, waiting",
        HostPage::Stats,
    )
    .words(&["model", "tool", "day"])
    .aliases(&[alias("cost", ""), alias("usage", "")]),
    command("continue", "", "continue after a limit", SlashAction::Continue),
    command(
        "goal",
        "[CONDITION]",
        "work until the model shows that this holds; show the goal",
        SlashAction::Goal,
    ),
    page("queue", "", "show the queue of all conversations", HostPage::Queue),
    page("plugins", "[AGENT]", "plugins and what they registered", HostPage::Plugins),
    page(
        "tasks",
        "[open|stop ID]",
        "list subagents and background commands, take over a terminal, stop one",
        HostPage::Tasks,
    )
    .words(&["open", "stop"]),
    page(
        "context",
        "[exact]",
        "show what fills the context window, or the next request itself",
        HostPage::Context,
    )
    .words(&["exact"]),
    page("compact", "[HINT]", "summarise older messages to make room", HostPage::Compact),
    page(
        "btw",
        "QUESTION",
        "ask about this conversation, without tools and without entering it",
        HostPage::Btw,
    ),
    page(
        "mcp",
        "[NAME | trust|restart|login|logout NAME]",
        "MCP servers: tools, trust, restart, login",
        HostPage::Mcp,
    )
    .words(&["trust", "restart", "login", "logout", "cancel"]),
    page(
        "serve",
        "[stop | FLAGS]",
        "serve this folder to browsers and phones, or stop that",
        HostPage::Serve,
    )
    .words(&["stop"]),
    page("doctor", "", "show what the terminal supports", HostPage::Doctor),
    page(
        "status",
        "",
        "show model, key, mode, folder, settings files and conversation of this session",
        HostPage::Status,
    ),
    page("config", "", "show each setting and where it comes from", HostPage::Config)
        .aliases(&[alias("settings", "")]),
    page("hooks", "", "list the hooks in force", HostPage::Hooks),
    page("feedback", "", "show what to attach to a report", HostPage::Feedback),
    command(
        "init",
        "",
        "let the model write AGENTS.md from this project, and propose checks",
        SlashAction::Init,
    ),
    command("vim", "", "switch vi keys on or off", SlashAction::Vim),
    command("copy", "", "copy the last answer", SlashAction::Copy),
    command("rewind", "", "rewind conversation, files or both", SlashAction::Thread(ThreadAction::Rewind))
        .aliases(&[alias("undo", "")]),
    command("fork", "", "fork at a message or step", SlashAction::Thread(ThreadAction::Fork))
        .aliases(&[alias("branch", "")]),
    command(
        "diff",
        "[git] [PATH]",
        "show file changes since the start of this conversation or the last commit",
        SlashAction::Thread(ThreadAction::Diff),
    )
    .words(&["git"]),
    command("rename", "[TITLE]", "name this conversation", SlashAction::Thread(ThreadAction::Rename)),
    command(
        "compare",
        "[ID]",
        "compare with another conversation",
        SlashAction::Thread(ThreadAction::Compare),
    ),
    command("export", "[md|json|html]", "export this conversation to a file", SlashAction::Export)
        .words(&["md", "json", "html"]),
    command("screen", "", "switch between inline and full screen", SlashAction::Screen),
    command("clear", "", "start a new conversation, as /new", SlashAction::New),
    command("quit", "", "quit; questions stay in the inbox", SlashAction::Quit).aliases(&[alias("exit", "")]),
];

impl SlashCommand {
    const fn words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }

    const fn aliases(self, aliases: &'static [Alias]) -> Self {
        Self { aliases, ..self }
    }

    /// Returns its own name and argument, as they are typed.
    pub fn syntax(&self) -> String {
        format!("/{} {}", self.name, self.argument).trim_end().to_owned()
    }
}

const fn command(
    name: &'static str,
    argument: &'static str,
    help: &'static str,
    action: SlashAction,
) -> SlashCommand {
    SlashCommand { name, argument, help, words: &[], aliases: &[], action }
}

const fn page(
    name: &'static str,
    argument: &'static str,
    help: &'static str,
    page: HostPage,
) -> SlashCommand {
    command(name, argument, help, SlashAction::Page(page))
}

const fn alias(name: &'static str, words: &'static str) -> Alias {
    Alias { name, words }
}

/// Returns the command of this name.
pub fn command_named(name: &str) -> Option<&'static SlashCommand> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// Returns the command that another name stands for.
pub fn command_of_alias(name: &str) -> Option<(&'static SlashCommand, &'static Alias)> {
    all_aliases().find(|(_, alias)| alias.name == name)
}

fn all_aliases() -> impl Iterator<Item = (&'static SlashCommand, &'static Alias)> {
    COMMANDS.iter().flat_map(|command| command.aliases.iter().map(move |alias| (command, alias)))
}

/// The kind of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    Commands,
    Skills,
    /// Words after a command.
    Words,
    Files,
}

/// One thing that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionItem {
    /// The inserted text.
    pub label: String,
    /// The description of the item.
    pub detail: String,
    /// Whether words may follow, so that accepting it does not send it.
    pub takes_words: bool,
}

/// A list below the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Palette {
    /// The kind of completions.
    pub offer: CompletionKind,
    /// The bytes of the text that accepting replaces.
    pub range: Range<usize>,
    /// The text written so far, without its mark.
    pub query: String,
    /// The rows, best first.
    pub rows: Vec<CompletionItem>,
    pub selected: usize,
    /// Whether the user selected it.
    pub is_chosen: bool,
    /// The text above the rows: the syntax of the command, and what it does.
    pub help: String,
}

impl Palette {
    pub fn chosen(&self) -> Option<&CompletionItem> {
        self.rows.get(self.selected)
    }

    /// Moves the choice, round the ends.
    pub fn step(&mut self, by: isize) {
        if !self.rows.is_empty() {
            self.is_chosen = true;
            self.selected = (self.selected as isize + by).rem_euclid(self.rows.len() as isize) as usize;
        }
    }

    /// Returns the text to insert for a row.
    pub fn text_of(&self, row: &CompletionItem) -> String {
        match self.offer {
            CompletionKind::Commands | CompletionKind::Skills => format!("/{} ", row.label),
            // A folder continues; a space would end the path.
            CompletionKind::Words => format!("{} ", row.label),
            CompletionKind::Files if row.label.ends_with(['/', ':']) => format!("@{}", row.label),
            CompletionKind::Files if row.label.contains(' ') => format!("@\"{}\" ", row.label),
            CompletionKind::Files => format!("@{} ", row.label),
        }
    }
}

/// Returns the completion that fits the text at the caret: its kind, its bytes, and the query.
pub fn wanted(text: &str, caret: usize) -> Option<(CompletionKind, Range<usize>, &str)> {
    let before = text.get(..caret)?;
    if let Some(query) = before.strip_prefix('/')
        && is_command_word(query)
        && !query.contains(char::is_whitespace)
    {
        return Some((CompletionKind::Commands, 0..caret, query));
    }
    if let Some(query) = before.strip_prefix('$').filter(|query| is_command_word(query)) {
        return Some((CompletionKind::Skills, 0..caret, query));
    }
    if let Some((name, _)) = before.strip_prefix('/').and_then(|command| command.split_once(' '))
        && is_command_word(name)
        && !name.is_empty()
        && !before.contains('\n')
    {
        let start = before.rfind(' ').map_or(0, |at| at + 1);
        if !before[start..].starts_with('@') {
            return Some((CompletionKind::Words, start..caret, &before[start..]));
        }
    }
    let start = before
        .rfind(char::is_whitespace)
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    let query = before[start..].strip_prefix('@')?;
    Some((CompletionKind::Files, start..caret, query))
}

/// Whether a word after a slash can be a command: a path such as `/usr/bin` is not.
pub fn is_command_word(word: &str) -> bool {
    word.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ':'))
}

/// Returns the name, with its slash, of the command that `text` starts with, if it matches nothing that
/// exists. While the name is still being typed, anything that contains it is a match.
pub fn unknown_command<'a>(text: &'a str, skills: &[SkillRow]) -> Option<&'a str> {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let name = text[..end].strip_prefix('/').filter(|name| !name.is_empty() && is_command_word(name))?;
    let mut names =
        COMMANDS.iter().map(|command| command.name).chain(skills.iter().map(|skill| skill.name.as_str()));
    let is_known = if end < text.len() {
        names.any(|known| known == name) || command_of_alias(name).is_some()
    } else {
        !commands(name, skills).is_empty()
    };
    (!is_known).then_some(&text[..end])
}

/// Says that a `/name` is not a command. In 60 columns, the remedy is not cut off.
pub fn not_a_command(name: &str) -> String {
    format!("{} is not a command; a leading space sends it", truncate(name, MAX_NAME))
}

/// Returns the syntax of the command that a text starts with, and the completions for the words after it.
pub fn words(text: &str, query: &str, skills: &[SkillRow]) -> Option<(String, Vec<CompletionItem>)> {
    let (name, rest) = text.strip_prefix('/')?.split_once(' ')?;
    if let Some(command) = command_named(name) {
        let is_first = rest.trim_start() == query || rest.trim().is_empty();
        let fits = command.words.iter().filter(|word| is_first && word.starts_with(query) && **word != query);
        let row = |word: &&str| CompletionItem {
            label: (*word).to_owned(),
            detail: String::new(),
            takes_words: true,
        };
        return Some((format!("{}  {}", command.syntax(), command.help), fits.map(row).collect()));
    }
    let skill = skills.iter().find(|skill| skill.name == name)?;
    Some((format!("/{} …  {}", skill.name, skill.description), Vec::new()))
}

/// Returns the skills for a query: those that start with it, then those that contain it.
pub fn skills(query: &str, skills: &[SkillRow]) -> Vec<CompletionItem> {
    let query = query.to_lowercase();
    let row = |skill: &SkillRow| CompletionItem {
        label: skill.name.clone(),
        detail: skill.description.clone(),
        takes_words: true,
    };
    let (mut first, rest): (Vec<CompletionItem>, Vec<CompletionItem>) =
        skills.iter().map(row).partition(|row| row.label.to_lowercase().starts_with(&query));
    first.extend(rest.into_iter().filter(|row| row.label.to_lowercase().contains(&query)));
    first
}

/// Returns the commands and skills for a query: those that start with it, then those that contain it.
pub fn commands(query: &str, skills: &[SkillRow]) -> Vec<CompletionItem> {
    let query = query.to_lowercase();
    let all = COMMANDS.iter().map(|command| CompletionItem {
        label: command.name.to_owned(),
        detail: command.help.to_owned(),
        takes_words: false,
    });
    let skills = skills.iter().map(|skill| CompletionItem {
        label: skill.name.clone(),
        detail: skill.description.clone(),
        takes_words: true,
    });
    let rows: Vec<CompletionItem> = all.chain(skills).collect();
    let (mut first, rest): (Vec<CompletionItem>, Vec<CompletionItem>) =
        rows.into_iter().partition(|row| row.label.to_lowercase().starts_with(&query));
    // An exact match beats a prefix match.
    first.sort_by_key(|row| row.label.to_lowercase() != query);
    first.extend(rest.into_iter().filter(|row| row.label.to_lowercase().contains(&query)));
    // Other names are only for those who type them.
    let is_new = |alias: &str| first.iter().all(|row| row.label != alias);
    let others: Vec<CompletionItem> = all_aliases()
        .filter(|(_, alias)| !query.is_empty() && alias.name.starts_with(&query) && is_new(alias.name))
        .map(|(command, alias)| CompletionItem {
            label: alias.name.to_owned(),
            detail: format!("the same as /{} {}", command.name, alias.words).trim_end().to_owned(),
            takes_words: false,
        })
        .collect();
    first.extend(others);
    first
}

#[cfg(test)]
mod tests {
    use super::super::wrap::width;
    use super::*;

    #[test]
    fn commands_complete_at_the_start_and_paths_after_an_at() {
        assert_eq!(wanted("$re", 3), Some((CompletionKind::Skills, 0..3, "re")));
        assert_eq!((wanted("$a b", 4), wanted("a $re", 5)), (None, None));
        assert_eq!(wanted("/mo", 3), Some((CompletionKind::Commands, 0..3, "mo")));
        assert_eq!(wanted("/model x", 8), Some((CompletionKind::Words, 7..8, "x")));
        assert_eq!(wanted("/review @sr", 11), Some((CompletionKind::Files, 8..11, "sr")));
        assert_eq!(wanted("/usr/bin", 8), None);
        assert_eq!(wanted("see @src/m", 10), Some((CompletionKind::Files, 4..10, "src/m")));
        assert_eq!(wanted("a@b", 3), None);
        assert_eq!(wanted("漢\u{3000}@x", "漢\u{3000}@x".len()), Some((CompletionKind::Files, 6..8, "x")));
    }

    #[test]
    fn command_arguments_are_completed_with_their_syntax() {
        let labels = |text: &str, query: &str| {
            let (help, rows) = words(text, query, &[]).expect("a command");
            (help, rows.into_iter().map(|row| row.label).collect::<Vec<_>>())
        };
        let (help, rows) = labels("/mode ", "");
        assert!(help.starts_with("/mode [NAME]  set the permission mode: ask"), "{help}");
        assert_eq!(rows, ["ask", "accept-edits", "auto", "plan", "yolo"]);
        assert_eq!(labels("/mode a", "a").1, ["ask", "accept-edits", "auto"]);
        assert!(labels("/mode ask", "ask").1.is_empty() && labels("/mode ask x", "x").1.is_empty());
        assert_eq!(words("/nothing x", "x", &[]), None);
    }

    #[test]
    fn a_name_is_unknown_once_it_matches_no_command() {
        assert_eq!(unknown_command("/mod", &[]), None);
        assert_eq!(unknown_command("/mod x", &[]), Some("/mod"));
        assert_eq!(unknown_command("/modle", &[]), Some("/modle"));
        assert_eq!(unknown_command("/mode plan", &[]), None);
        assert_eq!(unknown_command("/usr/bin is a folder", &[]), None);
        assert_eq!(unknown_command("/", &[]), None);
        assert_eq!(unknown_command(" /modle", &[]), None);
        let skill = SkillRow { name: "review".into(), description: String::new(), origin: "user".into() };
        assert_eq!(unknown_command("/review this", &[skill]), None);
    }

    #[test]
    fn the_remedy_for_an_unknown_command_fits_a_narrow_terminal() {
        let help = not_a_command("/summarise-this-conversation");
        assert!(help.ends_with("a leading space sends it") && width(&help) <= 56, "{help}");
    }

    #[test]
    fn an_exact_command_comes_first() {
        for name in ["mode", "model", "thread", "theme"]
            .into_iter()
            .filter(|name| COMMANDS.iter().any(|command| command.name == *name))
        {
            assert_eq!(commands(name, &[])[0].label, name);
        }
        assert_eq!(commands("MODE", &[])[0].label, "mode");
    }

    #[test]
    fn other_names_are_known_to_those_who_type_them() {
        for (_, Alias { name, .. }) in all_aliases() {
            assert_eq!(command_named(name), None, "/{name} is a command");
            assert_eq!(unknown_command(&format!("/{name} x"), &[]), None);
            assert_eq!(commands(name, &[]).iter().filter(|row| row.label == *name).count(), 1);
        }
        assert!(commands("", &[]).iter().all(|row| command_of_alias(&row.label).is_none()));
        assert_eq!(commands("usage", &[])[0].detail, "the same as /stats");
        assert_eq!(
            commands("plan", &[]).last().map(|row| row.detail.as_str()),
            Some("the same as /mode plan")
        );
        let skill = SkillRow { name: "plan".into(), description: "own".into(), origin: "user".into() };
        let rows = commands("plan", &[skill]);
        assert_eq!(rows.iter().map(|row| row.detail.as_str()).collect::<Vec<_>>(), ["own"]);
    }

    #[test]
    fn prefix_matches_come_first() {
        let skill =
            SkillRow { name: "review".into(), description: "look at it".into(), origin: "bundled".into() };
        let labels: Vec<String> = commands("re", &[skill]).into_iter().map(|row| row.label).collect();
        assert_eq!(labels, ["resume", "rewind", "rename", "review", "threads", "compare", "screen"]);
    }
}
