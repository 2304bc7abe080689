//! Rules against single commands: what one matches as it is written, what it may match, and what it mentions.

use super::rules::Rule;
use aye_pattern::shell::{
    Analysis, Assignment, OptionFit, Simple, Word, canonical, code_words, is_explained,
};
use aye_pattern::{Args, Condition, Looked, Matcher};

/// The result of matching a deny or ask rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hit {
    Yes,
    /// Only the shell would know.
    Maybe,
    No,
}

/// Checks one comparison of a deny or ask rule against every command found anywhere.
pub(super) fn restricts(looked: &Looked<'_>, analysis: &Analysis) -> Hit {
    let matcher = looked.matcher;
    let programs = analysis.commands.iter().filter(|command| !command.words.is_empty());
    if looked.negated {
        let mut hit = Hit::No;
        for command in programs {
            match as_written(matcher, command) {
                Hit::No => return Hit::Yes,
                Hit::Maybe => hit = Hit::Maybe,
                Hit::Yes => {}
            }
        }
        return hit;
    }
    if matcher.is_match(looked.text) || matcher.is_match(looked.text.trim()) {
        return Hit::Yes;
    }
    let mut hit = Hit::No;
    for command in &analysis.commands {
        match against(matcher, command) {
            Hit::Yes => return Hit::Yes,
            Hit::Maybe => hit = Hit::Maybe,
            Hit::No => {}
        }
    }
    hit
}

/// Checks a comparison against a command; the options that it names count in every spelling.
pub(super) fn against(matcher: &Matcher, command: &Simple) -> Hit {
    let hit = as_written(matcher, command);
    if hit == Hit::Yes || !matcher.names_options() {
        return hit;
    }
    let fits: Vec<OptionFit> = command.spellings().iter().map(|words| matcher.options_fit(words)).collect();
    if fits.contains(&OptionFit::Yes) {
        Hit::Yes
    } else if fits.contains(&OptionFit::Maybe) {
        Hit::Maybe
    } else {
        hit
    }
}

fn as_written(matcher: &Matcher, command: &Simple) -> Hit {
    if matcher.is_match(&command.source) {
        return Hit::Yes;
    }
    let mut hit = Hit::No;
    for words in command.spellings() {
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        if texts.is_empty() {
            continue;
        }
        if matcher.is_match_words(&texts, &canonical(&texts)) || matcher.is_match(&texts.join(" ")) {
            return Hit::Yes;
        }
        if could_match(matcher, &words) {
            hit = Hit::Maybe;
        }
    }
    hit
}

/// Returns true if some substitution of the unknown parts would match. A command whose program is unknown is
/// not checked here: it is undecided as a whole.
fn could_match(matcher: &Matcher, words: &[Word]) -> bool {
    if words.iter().all(Word::is_known) || !words.first().is_some_and(Word::is_known) {
        return false;
    }
    if let Matcher::Regex(regex) = matcher {
        // The words before the first unknown one often rule out a match: `echo $X` is no `^rm `.
        let known: Vec<&str> =
            words.iter().take_while(|word| word.is_known()).map(|word| word.text.as_str()).collect();
        return [known.join(" "), canonical(&known)]
            .iter()
            .any(|start| regex.could_match(&format!("{start} ")));
    }
    let (literal, _) = matcher.literal_words();
    for (want, word) in literal.iter().zip(words) {
        if !word.is_known() {
            return true;
        }
        if *want != word.text {
            return false;
        }
    }
    true
}

/// The comparisons of the command in a rule, negated ones aside.
pub(super) fn matchers(rule: &Rule) -> Vec<&Matcher> {
    match rule.pattern.args() {
        Args::Any => Vec::new(),
        Args::Primary(matcher) => vec![matcher],
        Args::All(all) => {
            let is_about = |c: &&Condition| c.path.single_key() == Some("command") && !c.negated;
            all.iter().filter(is_about).map(|condition| &condition.matcher).collect()
        }
    }
}

/// Returns whether a command's program is unknown here, so that it may run what its words name.
pub(super) fn may_run_others(command: &Simple) -> bool {
    command.program().is_some()
        && (command.words.len() > 1 && !is_explained(&command.words) || variables(command).next().is_some())
}

/// The values of variables that are set for a command. Some name programs: `LESSOPEN`, `MAKEFLAGS`.
fn variables(command: &Simple) -> impl Iterator<Item = &str> {
    command.assignments.iter().filter(|set| !is_safe_assignment(set)).map(|set| set.value.text.as_str())
}

/// Returns whether the words of a command contain the program that a rule names, or anything that the rule
/// matches.
pub(super) fn mentions(matcher: &Matcher, command: &Simple) -> bool {
    let (literal, _) = matcher.literal_words();
    let Some(call) = command.call() else { return false };
    if let Some(program) = literal.first() {
        let program = program.rsplit('/').next().unwrap_or(program);
        return call.arguments().any(|word| holds_program(&word.text, program))
            || !is_name(call.name()) && holds_program(call.name(), program)
            || variables(command).any(|text| holds_program(text, program));
    }
    // A comparison without a program of its own: does it match from any word on?
    let texts = call.texts();
    texts.iter().enumerate().skip(1).any(|(at, text)| {
        let rest = texts.get(at..).unwrap_or_default();
        matcher.is_match_words(rest, &canonical(rest))
            || text
                .match_indices(|c: char| !c.is_alphanumeric())
                .any(|(i, c)| matcher.is_match(text.get(i + c.len()..).unwrap_or_default()))
            || text.contains(' ') && matcher.is_match(text)
    }) || variables(command).any(|text| matcher.is_match(text))
}

/// A command as a reason shows it. What a wrapper adds is only known when it runs.
pub(super) fn shown(command: &Simple) -> String {
    command.source.replace('\u{fffc}', "…").replace("'…'", "…")
}

/// Returns whether a word is the name of a program and nothing more.
fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+'))
}

/// Returns whether a text contains a program's name as a word, or attached to a letter that takes it: `-crm`. The text
/// may be a line for another shell, which removes quotes: `r''m`.
fn holds_program(text: &str, program: &str) -> bool {
    const QUOTES: [char; 3] = ['\'', '"', '\\'];
    if text.contains(QUOTES) && holds_program(&text.replace(QUOTES, ""), program) {
        return true;
    }
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/');
    text.split(|c: char| !is_part(c)).any(|token| {
        let name = token.rsplit('/').next().unwrap_or(token);
        let glued = name.strip_prefix('-').and_then(|rest| rest.get(1..));
        name == program || glued == Some(program)
    })
}

/// Variables that change how a program talks, not what it does.
pub(super) fn is_safe_assignment(assignment: &Assignment) -> bool {
    const SAFE: &[&str] = &[
        "LANG",
        "LANGUAGE",
        "TZ",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
        "LINES",
        "TERM",
        "CI",
        "RUST_BACKTRACE",
        "RUST_LOG",
        "RUST_LIB_BACKTRACE",
        "CARGO_TERM_COLOR",
        "CARGO_TERM_PROGRESS_WHEN",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "NODE_ENV",
        "GIT_TERMINAL_PROMPT",
        "GIT_OPTIONAL_LOCKS",
        "DEBIAN_FRONTEND",
        "TIMEFORMAT",
        "POSIXLY_CORRECT",
        "BLOCKSIZE",
        "BLOCK_SIZE",
        "MAKELEVEL",
        "GOFLAGS_NONE",
    ];
    let known = SAFE.contains(&assignment.name.as_str())
        || assignment
            .name
            .strip_prefix("LC_")
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_uppercase()));
    known && assignment.value.is_literal() && !assignment.value.text.contains(['/', '%', '\n', ':'])
}

/// Returns the words of a command that certainly name no file: the search term of a search, code of `sed` and
/// `awk`.
pub(super) fn no_files(words: &[Word]) -> Vec<usize> {
    let mut found = code_words(words);
    found.extend(searched_for(words));
    found
}

/// Returns the index of the word that a search looks for, only if this is certain.
fn searched_for(words: &[Word]) -> Option<usize> {
    let (program, arguments) = words.split_first()?;
    if program.text == "git" && arguments.first().is_some_and(|word| word.text == "grep") {
        return searched_for(arguments).map(|at| at + 1);
    }
    if !matches!(program.text.as_str(), "grep" | "egrep" | "fgrep" | "rg") {
        return None;
    }
    let names_it = |text: &str| match text.strip_prefix("--") {
        Some(long) => ["files", "regexp", "file", "type-list"].iter().any(|name| long.starts_with(name)),
        None => text.starts_with('-') && text.contains(['e', 'f']),
    };
    if words.iter().skip(1).any(|word| names_it(&word.text)) {
        return None;
    }
    words.iter().skip(1).position(|word| !word.text.starts_with('-')).map(|at| at + 1)
}
