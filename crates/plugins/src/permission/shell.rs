//! Rules against the parts of a shell command.

use super::command_match::{is_safe_assignment, matchers, no_files};
use super::evaluate::{Allowed, CallRequest, EnforcedProfiles, SHELL_TOOL, excerpt, named};
use super::files::FileRules;
use super::grant::{pattern_word, spelled_by_prefix};
use super::path::{self, PathRoots};
use super::protected;
use super::rules::{Layer, Rule, RuleSet};
use super::tables::TABLES;
use aye_core::contract::judgement::Profile;
use aye_pattern::shell::{
    Analysis, ProgramWords, Simple, Word, canonical, globs_are_harmless, is_awk, is_stateful, is_transparent,
    only_named, only_reads, risks, sed_only_prints,
};
use aye_pattern::{Args, Looked, Matcher, Pattern, Quantifier};
use std::cell::OnceCell;
use std::path::PathBuf;

/// Returns what allows a command line. All rules are about the tool.
pub(super) fn allowed<'r>(
    rules: &[&'r Rule],
    analysis: &Analysis,
    question: &CallRequest<'_>,
    all: &RuleSet,
    enforced: EnforcedProfiles,
) -> Result<Allowed<'r>, NotAllowed> {
    let allowed = allowed_by(rules, analysis, question, all, enforced)?;
    // The kernel keeps no part of a line from writing when another part may write: each is judged by its words.
    if enforced.read && allowed.profile != Profile::Read {
        return allowed_by(rules, analysis, question, all, EnforcedProfiles::default());
    }
    Ok(allowed)
}

fn allowed_by<'r>(
    rules: &[&'r Rule],
    analysis: &Analysis,
    question: &CallRequest<'_>,
    all: &RuleSet,
    enforced: EnforcedProfiles,
) -> Result<Allowed<'r>, NotAllowed> {
    let is_whole = |rule: &&&Rule| rule.pattern.is_unconditional() && rule.origin.layer != Layer::Shipped;
    // The exact text of the whole line was allowed: what was seen is what runs.
    let whole =
        rules.iter().find(is_whole).or_else(|| rules.iter().find(|rule| names_whole_line(rule, question)));
    if let Some(rule) = whole
        && let Some(allowed) = Allowed::by(&[rule])
    {
        return Ok(Allowed { profile: rule.profile(), ..allowed });
    }
    let commands = analysis.plain().map_err(|why| not_by_itself(why, question))?;
    if commands.is_empty() {
        return Err(NotAllowed::from("it contains no command"));
    }
    let at = question.cwd.to_owned();
    let files = OnceCell::new();
    let mut walk =
        Walk { rules, question, all, files, at, moved: false, is_lost: false, is_held: enforced.read };
    let mut used: Vec<&'r Rule> = Vec::new();
    for (index, command) in commands.into_iter().enumerate() {
        used.extend(walk.command(command, index == 0 && analysis.starts_with_cd)?);
    }
    let commands = analysis.plain().unwrap_or_default();
    // If several rules allow a command, a user's rule wins over a shipped one, and among those the one that
    // spells out most words.
    let mut rules = rules.to_vec();
    rules.sort_by_key(|rule| (rule.origin.layer == Layer::Shipped, std::cmp::Reverse(spelled_words(rule))));
    let walk = Walk { rules: &rules, files: OnceCell::new(), at: walk.at.clone(), is_lost: false, ..walk };
    let by: Vec<(&Simple, Vec<&Rule>)> = commands
        .iter()
        .filter_map(|command| {
            command.call()?;
            let mut rules = walk.rules_of(command).unwrap_or_default();
            // Of a wrapper such as `timeout`, what it runs counts.
            rules.drain(..usize::from(rules.len() > 1));
            Some((*command, rules))
        })
        .collect();
    // Git that the user allowed runs what the repository names anyway.
    let mut git = by.iter().filter(|(command, _)| runs_git(command)).peekable();
    let is_shipped = |rule: &&Rule| rule.origin.layer == Layer::Shipped;
    let guards_git = git.peek().is_some() && git.all(|(_, rules)| rules.iter().all(is_shipped));
    let is_stateful = by.iter().any(|(command, _)| command.program().is_some_and(is_stateful));
    let profile = together(by.iter().filter_map(|(_, rules)| rules.iter().map(|rule| rule.profile()).max()))?;
    if analysis.is_compound && (is_stateful || profile != Profile::Read) {
        return Err(not_by_itself("a loop or condition around commands that do more than read", question));
    }
    let allowed = Allowed::by(&used).ok_or("no rule covers this")?;
    Ok(Allowed { guards_git, profile, env: env_of(by.iter().map(|(_, rules)| rules.as_slice())), ..allowed })
}

/// The variables of a line. All of its commands get them, so the rules of each must name them.
fn env_of<'a, 'r: 'a>(commands: impl Iterator<Item = &'a [&'r Rule]>) -> Vec<String> {
    // `cd` needs no rule.
    let mut commands = commands.filter(|rules| !rules.is_empty());
    let names = |rules: &[&Rule], name: &String| rules.iter().any(|rule| rule.env.contains(name));
    let Some(first) = commands.next() else { return Vec::new() };
    let mut env: Vec<String> = first.iter().flat_map(|rule| rule.env.iter().cloned()).collect();
    commands.for_each(|rules| env.retain(|name| names(rules, name)));
    env
}

/// The profile of a line, by those of its commands.
fn together(mut profiles: impl Iterator<Item = Profile>) -> Result<Profile, NotAllowed> {
    let first = profiles.next().unwrap_or(Profile::Read);
    profiles.try_fold(first, |all, profile| {
        if (all == Profile::Outside) == (profile == Profile::Outside) {
            Ok(all.max(profile))
        } else {
            Err("part of the line runs in the sandbox and part of it outside; run them as two calls".into())
        }
    })
}

/// Returns the number of words of a command that a rule spells out.
fn spelled_words(rule: &Rule) -> usize {
    matchers(rule).iter().map(|matcher| matcher.literal_words().0.len()).max().unwrap_or_default()
}

fn runs_git(command: &Simple) -> bool {
    let texts = command.texts();
    let first = texts.first();
    first == Some(&"git") || first.is_some_and(|program| is_transparent(program)) && texts.contains(&"git")
}

/// Why no rule allows a command line, and the rule that would: a sentence for the card.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotAllowed(pub(super) String);

impl From<&str> for NotAllowed {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

/// Explains why a line asks whatever rules allow its commands, and what would allow it.
pub(super) fn not_by_itself(why: &str, question: &CallRequest<'_>) -> NotAllowed {
    let line = question.args.get("command").and_then(serde_json::Value::as_str).unwrap_or_default();
    let exact = Pattern::literal(question.tool, "command", line).to_string();
    NotAllowed(if exact.chars().count() <= MAX_RULE && line.lines().count() == 1 {
        format!("{why}{ONLY_WHOLE}: {exact}")
    } else {
        format!("{why}{ONLY_WHOLE}")
    })
}

/// Start of the remedy for a line whose commands no rule allows one by one.
const ONLY_WHOLE: &str = ", so only this exact line can be always allowed";
/// Start of the remedy for a command that no rule covers.
const ADD: &str = "; add `";

/// The reason without the rule that would allow the call, where a rule would not help.
pub(super) fn without_remedy(why: &str) -> &str {
    let remedy = [ONLY_WHOLE, ADD].into_iter().filter_map(|start| why.rfind(start)).min();
    remedy.map_or(why, |at| &why[..at])
}

/// A longer rule is not part of a reason.
const MAX_RULE: usize = 80;

/// Why a command asks that no rule is about, and the rule that would change that.
fn not_covered(part: &str, rule: Option<String>) -> NotAllowed {
    let add = rule.map(|rule| format!("{ADD}{rule}`")).unwrap_or_default();
    NotAllowed(format!("no rule covers `{part}`{add}"))
}

/// The rule that would allow a command, as broad as is sensible.
fn rule_for_any(words: ProgramWords<'_>) -> Option<String> {
    let texts = words.texts();
    // More words than a rule spells out may not run programs, write files or change what is protected.
    let covers = |spelled: &usize| {
        risks(words.all()).iter().all(|risk| risk.is_named_by(*spelled, false))
            && (only_reads(words.name()) || protected_argument(&texts).is_none())
    };
    let by_prefix = || {
        let spelled = spelled_by_prefix(words).filter(covers)?;
        rule_for(texts.get(..spelled)?, true)
    };
    // Of a reader whose operands can be code, the option says what it does.
    let by_option = || {
        let [_, option, _, ..] = texts.as_slice() else { return None };
        let is_option = only_reads(words.name()) && option.starts_with('-') && covers(&1);
        is_option.then(|| rule_for(texts.get(..2)?, true)).flatten()
    };
    by_prefix().or_else(by_option).or_else(|| rule_for(&texts, false))
}

/// The protected file that an argument names.
fn protected_argument(texts: &[&str]) -> Option<String> {
    texts.iter().skip(1).find_map(|text| {
        let text = text.split_once('=').map_or(*text, |(_, value)| value);
        protected::protected_name(std::path::Path::new(text))
    })
}

/// A rule for these words and `more`, to be named in a reason.
fn rule_for(words: &[&str], more: bool) -> Option<String> {
    let text = words.iter().map(|word| pattern_word(word)).collect::<Vec<_>>().join(" ");
    let text = format!("{SHELL_TOOL}({text}{})", if more { " *" } else { "" });
    let is_short = text.chars().count() <= MAX_RULE && !text.contains(char::is_control);
    text.is_ascii().then_some(text).filter(|text| is_short && Pattern::parse(text).is_ok())
}

/// Returns whether an allow rule applies to a command line or any command in it, whatever its result is.
pub(super) fn speaks_about(rule: &Rule, question: &CallRequest<'_>, parts: &[CommandPart<'_>]) -> bool {
    rule.pattern.is_unconditional()
        || names_whole_line(rule, question)
        || parts.iter().any(|part| hits(rule, question, part, &mut |_| {}))
}

/// A command as rules see it.
pub(super) struct CommandPart<'a> {
    texts: Vec<&'a str>,
    canonical: String,
}

impl<'a> CommandPart<'a> {
    pub(super) fn of(words: ProgramWords<'a>) -> CommandPart<'a> {
        let texts = words.texts();
        CommandPart { canonical: canonical(&texts), texts }
    }

    /// Every command of a line that starts a program.
    pub(super) fn all(analysis: &'a Analysis) -> Vec<CommandPart<'a>> {
        analysis.commands.iter().filter_map(Simple::call).map(CommandPart::of).collect()
    }
}

/// Returns whether a rule matches a command by its words; `look` is called with each value that is compared.
fn hits(
    rule: &Rule,
    question: &CallRequest<'_>,
    part: &CommandPart<'_>,
    visit: &mut dyn FnMut(&Looked<'_>),
) -> bool {
    let test = &mut |looked: Looked<'_>| {
        if looked.key != Some("command") {
            return looked.holds();
        }
        visit(&looked);
        looked.matcher.is_match_words(&part.texts, &part.canonical) != looked.negated
    };
    rule.pattern.matches_by(question.tool, question.args, Some("command"), Quantifier::Every, test)
}

/// The number of words that a rule which matches a command spells out, and whether they are all of its words.
fn spelled_by(rule: &Rule, question: &CallRequest<'_>, part: &CommandPart<'_>) -> Option<(usize, bool)> {
    let mut spelled = (0, false);
    let is_hit = hits(rule, question, part, &mut |looked| {
        if !looked.negated {
            let (literal, all) = looked.matcher.literal_words();
            spelled = spelled.max((literal.len(), all));
        }
    });
    is_hit.then_some(spelled)
}

pub(super) fn names_whole_line(rule: &Rule, question: &CallRequest<'_>) -> bool {
    let Args::All(conditions) = rule.pattern.args() else { return false };
    let is_exact = |c: &aye_pattern::Condition| {
        c.path.single_key() == Some("command") && !c.negated && matches!(c.matcher, Matcher::Exact(_))
    };
    conditions.iter().any(is_exact)
        && rule.pattern.matches(question.tool, question.args, Some("command"), Quantifier::Every)
}

/// The walk over the commands of a plain line.
struct Walk<'w, 'r> {
    rules: &'w [&'r Rule],
    question: &'w CallRequest<'w>,
    all: &'w RuleSet,
    /// The rules that are about files; built when a word looks like a file.
    files: OnceCell<FileRules>,
    /// The folder the shell is in.
    at: PathBuf,
    moved: bool,
    /// A command before this one may have changed the shell's folder, or what words mean.
    is_lost: bool,
    /// The kernel keeps what rules that come with aye allow to reading.
    is_held: bool,
}

impl<'r> Walk<'_, 'r> {
    /// The rules for one command; none when it needs none. `leads`: the rest of the line runs only if it succeeds.
    fn command(&mut self, command: &Simple, leads: bool) -> Result<Vec<&'r Rule>, NotAllowed> {
        let set = command.assignments.iter().find(|assignment| !is_safe_assignment(assignment));
        if let Some(assignment) = set
            && self.spelled_with_assignments(command).is_none()
        {
            let why = format!("`{}` is set for a command", assignment.name);
            return Err(not_by_itself(&why, self.question));
        }
        let Some(call) = command.call() else { return Ok(Vec::new()) };
        let first = call.program();
        if !first.is_literal() || first.text.is_empty() || first.text.contains(char::is_whitespace) {
            return Err(not_by_itself(
                &format!("`{}` is not a plain program name", first.text),
                self.question,
            ));
        }
        if first.text == "cd" {
            if !leads {
                return Err(NotAllowed::from(
                    "`cd` is accepted only as the first command of the line, followed by `&&`",
                ));
            }
            self.change_folder(command)?;
            return Ok(Vec::new());
        }
        if self.moved {
            if first.text.contains('/') && !first.text.starts_with('/') {
                return Err(NotAllowed(format!("`{}` is a different program after `cd`", first.text)));
            }
            if first.text == "git" {
                return Err(NotAllowed::from("git reads the settings of another folder after `cd`"));
            }
        }
        let used = self.rules_of(command)?;
        self.is_lost |= is_stateful(&first.text);
        Ok(used)
    }

    fn change_folder(&mut self, command: &Simple) -> Result<(), NotAllowed> {
        let target = match command.words.as_slice() {
            [_, target] => target,
            [_, dashes, target] if dashes.text == "--" => target,
            _ => return Err(NotAllowed::from("`cd` without a folder leaves the workspace")),
        };
        if !target.is_literal() || target.text.starts_with(['-', '~']) || target.text.is_empty() {
            return Err(NotAllowed(format!("cannot tell where `cd {}` leads", target.text)));
        }
        // The shell takes `..` by the letters, programs by the links: after a link the two are different folders.
        if target.text.split('/').any(|part| part == "..") {
            return Err(NotAllowed(format!("cannot tell where `cd {}` leads", target.text)));
        }
        let places = PathRoots { cwd: &self.at, ..self.question.places() };
        let seen = path::resolve_path(&target.text, &places).map_err(|why| NotAllowed(why.to_string()))?;
        if seen.is_dangling || !seen.is_inside {
            return Err(NotAllowed(format!("`cd {}` leaves the workspace", target.text)));
        }
        let next = seen.views.last().cloned().unwrap_or_default();
        // A workspace that does not exist is one of an example, or of the past.
        if !next.is_dir() && self.at.is_dir() {
            return Err(NotAllowed(format!("`cd {}` fails: no such folder", target.text)));
        }
        self.moved |= next != path::resolve(&self.at).0;
        self.at = next;
        Ok(())
    }

    /// The rules that allow a command. One that sets variables may be spelled out by a rule with them.
    fn rules_of(&self, command: &Simple) -> Result<Vec<&'r Rule>, NotAllowed> {
        let Some(call) = command.call() else { return Ok(Vec::new()) };
        match self.spelled_with_assignments(command) {
            Some(rules) => Ok(rules),
            None => self.words(call),
        }
    }

    /// The rules for a command if one spells the variables that it sets and its program: `Bash(FOO=1 npm test *)`.
    fn spelled_with_assignments(&self, command: &Simple) -> Option<Vec<&'r Rule>> {
        let call = command.call()?;
        let count = command.assignments.len();
        let is_known = command.assignments.iter().all(|set| set.value.is_literal());
        if count == 0 || !is_known || !call.all().iter().all(Word::is_literal) {
            return None;
        }
        let set = command
            .assignments
            .iter()
            .map(|set| Word { text: format!("{}={}", set.name, set.value.text), ..Word::default() });
        let words: Vec<Word> = set.chain(call.all().iter().cloned()).collect();
        let part = CommandPart::of(ProgramWords::of(&words)?);
        self.rules.iter().find_map(|&rule| {
            let (spelled, all) = spelled_by(rule, self.question, &part)?;
            let rest = spelled.checked_sub(count).filter(|rest| *rest > 0 || all)?;
            let inner = self.fits(rule, call, &call.texts(), (rest, all)).ok()?;
            Some([vec![rule], inner].concat())
        })
    }

    fn words(&self, call: ProgramWords<'_>) -> Result<Vec<&'r Rule>, NotAllowed> {
        let (words, program) = (call.all(), call.name());
        let doubt = |word: &Word| {
            let what =
                if word.is_glob { "an unquoted pattern" } else { "an argument that the shell expands" };
            let why = format!("`{}` is {what}, and `{program}` may take it for an option", word.text);
            not_by_itself(&why.replace('\u{fffc}', "…"), self.question)
        };
        // The values of a loop's variable, which the shell takes apart again, are left to the kernel.
        let is_glob = |word: &Word| word.is_glob && !word.has_holes && (!word.is_odd || self.is_held);
        if let Some(word) = words.iter().find(|word| !word.is_literal() && !is_glob(word)) {
            return Err(doubt(word));
        }
        // If a file name starts with a dash, a glob can expand to an option.
        let is_open = |word: &&Word| is_glob(word) && (word.is_odd || !globs_are_harmless(program));
        let glob = words.iter().find(is_open);
        let part = CommandPart::of(call);
        let mut why = match glob {
            Some(word) => doubt(word),
            None => not_covered(&excerpt(&part.canonical), rule_for_any(call)),
        };
        for &rule in self.rules {
            let spelled = spelled_by(rule, self.question, &part);
            let Some(spelled) = spelled.filter(|_| glob.is_none() || self.holds(rule)) else { continue };
            match self.fits(rule, call, &part.texts, spelled) {
                Ok(inner) => return Ok([vec![rule], inner].concat()),
                Err(reason) => why = reason,
            }
        }
        // A wrapper needs no rule of its own: it follows the rule for what it runs.
        if is_transparent(program)
            && let [risk] = &risks(words)[..]
            && risk.executes
            && risk.index > 0
            && let Some(inner) = call.skip_to(risk.index)
        {
            return self.words(inner);
        }
        Err(why)
    }

    /// Checks that a rule that matches the words also covers what they do, and returns the rules for what
    /// they wrap.
    fn fits(
        &self,
        rule: &Rule,
        call: ProgramWords<'_>,
        texts: &[&str],
        (spelled, all): (usize, bool),
    ) -> Result<Vec<&'r Rule>, NotAllowed> {
        let (words, program) = (call.all(), call.name());
        let mut inner = Vec::new();
        // Whatever its code is, awk only reads there.
        let is_code = self.holds(rule) && (is_awk(program) || program == "sed" && sed_only_prints(words));
        let found = risks(words);
        // The rule that is proposed has to name every risk, not only the first.
        let through = found.iter().map(|risk| risk.through).max().unwrap_or_default();
        for risk in found {
            if is_code || risk.is_named_by(spelled, all) {
                continue;
            }
            if is_transparent(program)
                && risk.executes
                && risk.index > 0
                && let Some(wrapped) = call.skip_to(risk.index)
            {
                // The wrapper is allowed; what it wraps needs a rule of its own.
                inner.extend(self.words(wrapped)?);
                continue;
            }
            let front = texts.get(..=through).unwrap_or(texts);
            let would = rule_for(front, through < texts.len())
                .map(|rule| format!("{ADD}{rule}`"))
                .unwrap_or_default();
            return Err(NotAllowed(format!("{} does not cover it: {}{would}", named(rule), risk.why)));
        }
        if !all && !only_reads(program) {
            for text in texts.iter().skip(1) {
                let text = text.split_once('=').map_or(*text, |(_, value)| value);
                if let Some(name) = protected::protected_name(std::path::Path::new(text))
                    && !protected::is_named_by(&name, rule)
                {
                    return Err(NotAllowed(format!("`{name}` is protected")));
                }
            }
        }
        if rule.origin.layer == Layer::Shipped {
            if self.is_lost {
                return Err(NotAllowed::from("an earlier command may have changed the shell's folder"));
            }
            let add = |why: NotAllowed| match rule_for(texts, false) {
                Some(rule) => NotAllowed(format!("{why}; add `{rule}`")),
                None => why,
            };
            if !self.is_held {
                if is_awk(program) {
                    return Err(add(NotAllowed(format!("a program in `{program}` may read any file"))));
                }
                only_named(words).map_err(|more| add(NotAllowed(more.to_string())))?;
            }
            self.stays_inside(call).map_err(add)?;
        }
        Ok(inner)
    }

    /// Returns whether the kernel restricts what the rule allows to reading.
    fn holds(&self, rule: &Rule) -> bool {
        self.is_held && rule.origin.layer == Layer::Shipped && rule.profile() == Profile::Read
    }

    /// Checks that a command allowed by a shipped rule reads only inside the workspace, and nothing that a
    /// rule asks about.
    fn stays_inside(&self, call: ProgramWords<'_>) -> Result<(), NotAllowed> {
        let places = PathRoots { cwd: &self.at, ..self.question.places() };
        let (words, program) = (call.all(), call.name());
        let texts = no_files(words);
        for (i, word) in words.iter().enumerate().skip(1) {
            if texts.contains(&i) {
                continue;
            }
            if !self.is_held && program == "git" && names_files_by_pattern(words, &word.text) {
                return Err(NotAllowed(format!("cannot tell which files `{}` names", word.text)));
            }
            let names_only = TABLES.programs.prints_no_content.contains(program);
            if word.is_glob && !names_only && !self.is_held {
                return Err(NotAllowed::from("cannot tell which files the glob names"));
            }
            let mut candidates = vec![word.text.as_str()];
            if let Some((_, value)) = word.text.split_once('=') {
                candidates.push(value);
            }
            if word.text.starts_with('-') && !word.text.starts_with("--") && word.text.len() > 2 {
                candidates.extend(word.text.get(2..));
            }
            // `git show REVISION:PATH`, `git show :STAGE:PATH`, `git log -L 1,5:PATH`
            candidates.extend(word.text.match_indices(':').filter_map(|(at, _)| word.text.get(at + 1..)));
            for text in candidates.into_iter().filter(|text| !text.is_empty()) {
                let seen = path::resolve_path(text, &places).map_err(|why| NotAllowed(why.to_string()))?;
                if !seen.is_inside {
                    return Err(NotAllowed(format!("`{text}` is outside the workspace")));
                }
                if !names_only && self.is_guarded(text) {
                    return Err(NotAllowed(format!("`{text}` may contain a secret")));
                }
            }
        }
        Ok(())
    }

    /// True when reading the file would be asked about or denied.
    fn is_guarded(&self, text: &str) -> bool {
        let files = self.files.get_or_init(|| FileRules::of(self.all, &self.question.places()));
        let places = PathRoots { cwd: &self.at, ..self.question.places() };
        path::resolve_path(text, &places).is_ok_and(|seen| files.restricts_reading(&seen.forms))
    }
}

/// Returns whether a word of a git command that shows file contents is a pattern or has magic: `'.en?'`,
/// `:(top).env`.
fn names_files_by_pattern(words: &[Word], text: &str) -> bool {
    words.get(1).is_some_and(|sub| TABLES.git.takes_pathspecs.contains(&sub.text))
        && !text.starts_with('-')
        && (text.contains(['*', '?', '[', '\\']) || text.starts_with(':') && has_magic(text))
}

/// Returns whether a word that starts with `:` is a pathspec with magic, or a search: `:PATH` and
/// `:STAGE:PATH` are neither.
fn has_magic(text: &str) -> bool {
    text.chars().nth(1).is_some_and(|c| c.is_ascii_punctuation() && !matches!(c, '.' | '_' | '-'))
}
