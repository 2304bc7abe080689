//! Commands inside commands: wrappers, runners, and texts that another shell reads.

use super::risk::{own_risks, risks};
use super::tables::{PROGRAMS, Runner, WRAPPERS, WordList, Wrapper};
use super::{Analysis, MAX_DEPTH, Simple, Word, base_name, git, tail, walk};

/// The content of a command that is itself a command.
#[derive(Debug, PartialEq)]
pub(super) enum Inner {
    None,
    /// A command made of these words.
    Words(Vec<Word>),
    /// A text that a shell reads.
    Text(Word),
    /// Something, but it is not certain what.
    Unsure(String),
}

/// True for the wrappers that change neither what runs nor what it may do: they may be allowed when a rule allows
/// them and another rule allows the command inside.
pub fn is_transparent(program: &str) -> bool {
    matches!(program, "timeout" | "nice" | "ionice" | "stdbuf")
}

/// Unwraps every command from the `from`th on, and what is found on the way.
pub(super) fn unwrap_all(out: &mut Analysis, from: usize, depth: usize) {
    let mut index = from;
    while let Some(simple) = out.commands.get(index).cloned() {
        index += 1;
        if out.commands.len() > 2_000 {
            out.cannot_read("the command has too many parts");
            return;
        }
        if let Some(first) = simple.words.first()
            && (!first.is_known() || first.text.is_empty())
        {
            out.undecide("only the shell knows which program runs");
        }
        let mut explained = false;
        for inner in inner(&simple) {
            explained = true;
            match inner {
                Inner::None => {}
                Inner::Unsure(why) => out.undecide(why),
                Inner::Words(words) => {
                    // A chain of wrappers gets shorter with each step, so this ends.
                    let source = super::canonical(&words.iter().map(|w| w.text.as_str()).collect::<Vec<_>>());
                    let candidate = Simple { words, source, is_inner: true, ..Simple::default() };
                    if !candidate.words.is_empty() && !out.commands.contains(&candidate) {
                        out.commands.push(candidate);
                    }
                }
                Inner::Text(word) => read_text(&word, depth, out),
            }
        }
        // What a runner starts was found; that its own options can run something is a second thing.
        let risks = if !explained {
            risks(&simple.words)
        } else if simple.program().is_some_and(is_loose) {
            own_risks(&simple.words)
        } else {
            Vec::new()
        };
        if let Some(risk) = risks.into_iter().find(|risk| risk.executes) {
            out.undecide(risk.why);
        }
    }
}

fn read_text(word: &Word, depth: usize, out: &mut Analysis) {
    if word.has_holes {
        out.undecide("only the shell knows the text that runs");
    }
    if depth >= MAX_DEPTH {
        out.undecide("commands are nested too deeply");
        return;
    }
    let mut inside = Analysis::default();
    walk::read(&word.text, true, &mut inside);
    unwrap_all(&mut inside, 0, depth + 1);
    for mut command in inside.commands {
        command.is_inner = true;
        out.commands.push(command);
    }
    out.overwrites |= inside.overwrites;
    if let Some(why) = inside.unreadable.or(inside.undecided) {
        out.undecide(why);
    }
}

fn is_option(word: &Word) -> bool {
    word.text.starts_with('-') && word.text.len() > 1
}

/// Everything inside `simple`.
pub(super) fn inner(simple: &Simple) -> Vec<Inner> {
    let words = &simple.words;
    let arguments = tail(words, 1);
    let Some(program) = words.first().filter(|word| word.is_known()).map(|word| base_name(&word.text)) else {
        return Vec::new();
    };
    let program = program.strip_suffix(".exe").unwrap_or(program);
    if PROGRAMS.shells.contains(program) {
        return vec![shell(words)];
    }
    match program {
        "eval" => return vec![Inner::Text(join(arguments))],
        // The grammar takes a reserved word for a program in places where the shell does not.
        "!" | "if" | "then" | "else" | "elif" | "do" | "while" | "until" | "{" | "time" => {
            let rest = Inner::Words(arguments.to_vec());
            return if matches!(program, "!" | "time") {
                let own = arguments.iter().position(|word| !is_option(word)).unwrap_or(arguments.len());
                vec![rest, Inner::Words(tail(arguments, own).to_vec())]
            } else {
                vec![rest, Inner::Unsure(format!("`{program}` stands where a program is expected"))]
            };
        }
        "fi" | "done" | "esac" | "}" | "case" | "for" | "select" | "function" | "[[" | "in" => {
            return vec![Inner::Unsure(format!("`{program}` stands where a program is expected"))];
        }
        "source" | "." => return vec![Inner::Unsure("a sourced file can do anything".into())],
        "trap" => {
            return arguments
                .iter()
                .find(|word| !matches!(word.text.as_str(), "-" | "--" | "-p" | "-l"))
                .map(|word| Inner::Text(word.clone()))
                .into_iter()
                .collect();
        }
        "alias" => {
            let text = |word: &Word| {
                let (_, text) = word.text.split_once('=')?;
                Some(Inner::Text(Word { text: text.to_owned(), ..word.clone() }))
            };
            return arguments.iter().filter_map(text).collect();
        }
        "find" | "gfind" => return find(words),
        "fd" | "fdfind" => return fd(words),
        "git" => return git::inner(words),
        "ssh" | "mosh" | "autossh" | "slogin" => return vec![ssh(words)],
        "su" | "script" => {
            let texts = after_c(words);
            let shell = || vec![Inner::Unsure("a shell reads commands from elsewhere".into())];
            return if texts.is_empty() { shell() } else { texts };
        }
        "tar" | "gtar" | "bsdtar" => return tar(words),
        _ => {}
    }
    if let Some(wrapper) = WRAPPERS.of(program) {
        return wrapped(wrapper, program, words);
    }
    if let Some(subcommands) = WRAPPERS.loose(program) {
        return loose(subcommands, words);
    }
    Vec::new()
}

fn join(words: &[Word]) -> Word {
    let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    Word { text, has_holes: words.iter().any(|word| !word.is_known()), ..Word::default() }
}

fn shell(words: &[Word]) -> Inner {
    let (mut i, mut has_c, mut reads_stdin) = (1, false, false);
    while let Some(word) = words.get(i) {
        let text = word.text.as_str();
        if !word.is_known() {
            if has_c && !text.starts_with(['-', '+', super::HOLE]) {
                break; // the text itself; its holes are said when it is read
            }
            return Inner::Unsure("only the shell knows the options of the inner shell".into());
        }
        if text == "--" || text == "-" {
            i += 1;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            match long {
                "version" | "help" => return Inner::None,
                "command" => has_c = true,
                "rcfile" | "init-file" => i += 1,
                _ if long.starts_with("command=") => {
                    return Inner::Text(Word::literal(long.trim_start_matches("command=")));
                }
                _ => {}
            }
        } else if let Some(cluster) = text.strip_prefix(['-', '+']) {
            has_c |= cluster.contains(['c', 'C']);
            reads_stdin |= cluster.contains('s');
            if cluster.contains(['o', 'O']) {
                i += 1;
            }
        } else {
            break;
        }
        i += 1;
    }
    match words.get(i) {
        Some(text) if has_c => Inner::Text(text.clone()),
        Some(script) if !reads_stdin && script.is_known() && !script.text.starts_with("/dev/") => Inner::None,
        _ => Inner::Unsure("a shell reads commands from elsewhere".into()),
    }
}

fn find(words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    let mut i = 1;
    while let Some(word) = words.get(i) {
        if !word.is_known() {
            found.push(Inner::Unsure("only the shell knows an option of find".into()));
        }
        if matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            let rest = tail(words, i + 1);
            let end = rest.iter().position(|word| matches!(word.text.as_str(), ";" | "+"));
            let inner = end.and_then(|end| rest.get(..end)).unwrap_or(rest);
            found.extend(with_blanks(inner, &["{}"], false));
            i += 1 + inner.len();
        }
        i += 1;
    }
    found
}

/// The inner command of a program that fills in names: `{}` is only known later.
fn with_blanks(words: &[Word], blanks: &[&str], more: bool) -> Vec<Inner> {
    let mut words = words.to_vec();
    for word in &mut words {
        if blanks.iter().any(|blank| !blank.is_empty() && word.text.contains(blank)) {
            word.has_holes = true;
        }
    }
    let mut found = Vec::new();
    if words.first().is_some_and(|word| word.has_holes) {
        found.push(Inner::Unsure("which program runs is only known at run time".into()));
    }
    if more {
        words.push(Word { text: super::HOLE.to_string(), has_holes: true, ..Word::default() });
    }
    if !words.is_empty() {
        found.push(Inner::Words(words));
    }
    found
}

fn fd(words: &[Word]) -> Vec<Inner> {
    let at = words.iter().position(|word| {
        let text = word.text.as_str();
        matches!(text, "-x" | "-X" | "--exec" | "--exec-batch")
            || text.starts_with("--exec=")
            || text.starts_with("--exec-batch=")
            || (text.starts_with('-') && !text.starts_with("--") && text.contains(['x', 'X']))
    });
    let Some((at, option)) = at.and_then(|at| Some((at, words.get(at)?))) else { return Vec::new() };
    let mut inner = tail(words, at + 1).to_vec();
    if let Some((_, program)) = option.text.split_once('=') {
        inner.insert(0, Word::literal(program));
    }
    let mut found = with_blanks(&inner, &["{}", "{/}", "{//}", "{.}", "{/.}"], true);
    found.push(Inner::None);
    found
}

fn ssh(words: &[Word]) -> Inner {
    const VALUES: &str = "BbcDEeFIiJLlmOopQRSWw";
    let mut i = 1;
    while let Some(word) = words.get(i).filter(|word| is_option(word)) {
        let text = word.text.as_str();
        if text.starts_with("-o") || text.starts_with("-F") {
            return Inner::Unsure("an option of ssh can run a command".into());
        }
        if text.len() == 2 && text.chars().nth(1).is_some_and(|c| VALUES.contains(c)) {
            i += 1;
        }
        i += 1;
    }
    match words.get(i + 1..) {
        Some(rest) if !rest.is_empty() => Inner::Text(join(rest)),
        Some(_) => Inner::Unsure("a shell reads commands from elsewhere".into()),
        None => Inner::None,
    }
}

/// The texts after each `-c`, which a shell reads; the last one counts.
fn after_c(words: &[Word]) -> Vec<Inner> {
    const LONG: &[&str] = &["--command", "--session-command"];
    let mut found = Vec::new();
    for (i, word) in words.iter().enumerate().skip(1) {
        let text = word.text.as_str();
        let glued = match text.split_once('=') {
            Some((name, text)) if LONG.contains(&name) => Some(text),
            _ if text.starts_with("--") => None,
            _ => text.strip_prefix('-').and_then(|letters| letters.split_once('c')).map(|(_, text)| text),
        };
        if LONG.contains(&text) || glued == Some("") {
            found.extend(words.get(i + 1).map(|text| Inner::Text(text.clone())));
        } else if let Some(text) = glued {
            found.push(Inner::Text(Word { text: text.to_owned(), ..word.clone() }));
        }
    }
    found
}

fn tar(words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    for (i, word) in words.iter().enumerate().skip(1) {
        for flag in [
            "--to-command",
            "--use-compress-program",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
        ] {
            if let Some(text) = word.text.strip_prefix(flag) {
                let text = text.strip_prefix('=').map_or_else(
                    || words.get(i + 1).cloned(),
                    |text| Some(Word { text: text.to_owned(), ..word.clone() }),
                );
                found.extend(text.map(Inner::Text));
            }
        }
        if let Some(text) = word.text.strip_prefix("--checkpoint-action=exec=") {
            found.push(Inner::Text(Word { text: text.to_owned(), ..word.clone() }));
        }
    }
    if let Some(risk) = risks(words).into_iter().find(|risk| risk.executes) {
        found.push(Inner::Unsure(risk.why));
    }
    found
}

/// Returns the inner commands of a wrapper.
fn wrapped(wrapper: &Wrapper, program: &str, words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    let mut own_words = wrapper.own_words;
    let mut replaced: Vec<String> = Vec::new();
    let mut i = 1;
    while let Some(word) = words.get(i) {
        let text = word.text.as_str();
        if !word.is_known() {
            found.push(Inner::Unsure(format!("only the shell knows the arguments of `{program}`")));
            break;
        }
        if text == "--" {
            i += 1;
            found.extend((i..i + own_words).filter_map(|at| instead_of_own(program, words, at)));
            i += own_words;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            if program == "env" && name == "split-string" {
                let text = value.map(Word::literal).or_else(|| words.get(i + 1).cloned());
                found.extend(
                    text.map(|first| Inner::Text(join_first(first, words.get(i + 2..).unwrap_or_default()))),
                );
            }
            if value.is_none() && wrapper.long.contains(name) {
                i += 1;
            }
        } else if is_option(word) {
            let mut letters = text[1..].char_indices();
            let valued = letters.find(|(_, letter)| wrapper.short.contains(*letter));
            if let Some((at, letter)) = valued {
                let glued = &text[1 + at + letter.len_utf8()..];
                let value = if glued.is_empty() {
                    i += 1;
                    words.get(i).map(|word| word.text.clone()).unwrap_or_default()
                } else {
                    glued.to_owned()
                };
                if program == "env" && letter == 'S' {
                    found.push(Inner::Text(join_first(
                        Word::literal(value),
                        words.get(i + 1..).unwrap_or_default(),
                    )));
                } else if program.ends_with("xargs") && letter == 'I' {
                    replaced.push(value);
                }
            } else if program.ends_with("xargs") && text.starts_with("-i") {
                replaced.push(if text.len() > 2 { text[2..].to_owned() } else { "{}".to_owned() });
            } else if matches!(program, "command") && text.contains(['v', 'V']) {
                return vec![Inner::None]; // it only says where the program is
            }
        } else if own_words > 0 {
            found.extend(instead_of_own(program, words, i));
            own_words -= 1;
        } else if matches!(program, "env" | "sudo" | "doas") && is_assignment(text) {
            // The wrapper sets the variable and continues.
        } else {
            break;
        }
        i += 1;
    }
    if program == "runuser" {
        found.extend(after_c(words));
    }
    let rest = words.get(i..).unwrap_or_default();
    if rest.is_empty() {
        let is_shell = PROGRAMS.shell_by_default.contains(program) || asks_for_shell(program, words);
        found.push(if is_shell {
            Inner::Unsure("a shell reads commands from elsewhere".into())
        } else {
            Inner::None
        });
    } else if program.ends_with("xargs") {
        let blanks: Vec<&str> = replaced.iter().map(String::as_str).collect();
        found.extend(with_blanks(rest, &blanks, replaced.is_empty()));
    } else {
        // A program's name has no blanks and no quotes: this is a line for a shell.
        let first = rest.first().map_or("", |word| word.text.as_str());
        if program == "watch" || first.contains([' ', '\t', '\n', '\'', '"', '\\']) {
            found.push(Inner::Text(join(rest)));
        }
        found.push(Inner::Words(rest.to_vec()));
    }
    found
}

/// Returns whether `sudo` and its like are to start a shell.
fn asks_for_shell(program: &str, words: &[Word]) -> bool {
    matches!(program, "sudo" | "doas")
        && words.iter().skip(1).any(|word| {
            let text = word.text.as_str();
            let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
            matches!(text, "--shell" | "--login") || letters.is_some_and(|text| text.contains(['s', 'i']))
        })
}

/// Returns the command that starts where a wrapper's own word is expected: some wrappers work without that
/// word, such as `setarch -R`. A file or a number is never the program.
fn instead_of_own(program: &str, words: &[Word], at: usize) -> Option<Inner> {
    let is_own = matches!(program, "flock" | "chroot")
        || words.get(at)?.text.starts_with(|c: char| c.is_ascii_digit());
    (!is_own).then(|| Inner::Words(tail(words, at).to_vec()))
}

fn join_first(first: Word, rest: &[Word]) -> Word {
    let mut all = vec![first];
    all.extend_from_slice(rest);
    join(&all)
}

fn loose(subcommands: &WordList, words: &[Word]) -> Vec<Inner> {
    let start = if subcommands.is_empty() {
        1
    } else {
        let at = words.iter().position(|word| subcommands.contains(&word.text));
        match at {
            Some(at) if at > 0 => at + 1,
            _ => return Vec::new(),
        }
    };
    let mut found = vec![Inner::None];
    let program = words.first().map_or("", |word| base_name(&word.text));
    let is_keyword = program == "coproc";
    for (i, word) in words.iter().enumerate().skip(start).take(24) {
        let text = word.text.as_str();
        let text = if is_option(word) {
            text.split_once('=').map_or("", |(_, value)| value)
        } else {
            // A runner starts programs: what only a shell knows is an argument, as the `.` of `npx eslint .`.
            if is_keyword || !is_of_a_shell(text) {
                found.push(Inner::Words(tail(words, i).to_vec()));
            }
            text
        };
        if text.contains(' ') {
            found.push(Inner::Text(Word { text: text.to_owned(), ..word.clone() }));
        }
    }
    let is_program = |word: &Word| !is_option(word) && word.text.parse::<u64>().is_err();
    if !tail(words, start).iter().any(is_program) && PROGRAMS.shell_by_default.contains(program) {
        found.push(Inner::Unsure("a shell reads commands from elsewhere".into()));
    }
    found
}

/// True for words that mean something only where a shell reads them as a command.
fn is_of_a_shell(text: &str) -> bool {
    const KEYWORDS: &[&str] = &[
        "!", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "case", "esac",
        "select", "function", "in", "{", "}", "[[",
    ];
    PROGRAMS.stateful.contains(text) && text != "hash" || KEYWORDS.contains(&text)
}

/// The index of the program that a runner starts, if every word before it is understood. A rule that spells the runner
/// and the program covers all arguments of that program.
pub fn runner_program(words: &[Word]) -> Option<usize> {
    let program = words.first().filter(|word| word.is_known()).map(|word| base_name(&word.text))?;
    WRAPPERS.runners(program).find_map(|runner| runner.program(words))
}

impl Runner {
    fn program(&self, words: &[Word]) -> Option<usize> {
        let mut own_words = self.own_words;
        let mut has_subcommand = self.subcommands.is_empty();
        let mut i = 1;
        loop {
            let word = words.get(i).filter(|word| word.is_known())?;
            let text = word.text.as_str();
            if has_subcommand && !self.after.is_empty() {
                if self.after.contains(text) {
                    return words.get(i + 1).map(|_| i + 1);
                }
            } else if is_option(word) {
                let (name, value) =
                    text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
                if self.valued.contains(name) {
                    i += usize::from(value.is_none());
                } else if !self.flags.contains(name) || value.is_some() {
                    return None;
                }
            } else if !has_subcommand {
                if !self.subcommands.contains(text) {
                    return None;
                }
                if self.itself {
                    return Some(i);
                }
                has_subcommand = true;
            } else if own_words > 0 {
                own_words -= 1;
            } else {
                return Some(i);
            }
            i += 1;
        }
    }
}

fn is_loose(program: &str) -> bool {
    WRAPPERS.loose(program).is_some()
}

/// True for `NAME=value`.
pub(super) fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// True for programs whose subcommands run another one.
pub(super) fn is_runner(program: &str) -> bool {
    WRAPPERS.runners(program).next().is_some()
}

/// Returns true for programs that run another one whatever their words are.
pub(super) fn is_wrapper(program: &str) -> bool {
    WRAPPERS.of(program).is_some() || WRAPPERS.loose(program).is_some_and(WordList::is_empty)
}

/// True for wrappers whose inner program is found by their own options, and for runners that are some by a subcommand.
pub(super) fn is_explained(program: &str) -> bool {
    WRAPPERS.of(program).is_some()
        || WRAPPERS.loose(program).is_some_and(|subcommands| !subcommands.is_empty())
        || matches!(program, "eval" | "trap" | "ssh" | "su" | "script")
}

/// Returns the index of the word that names the inner program, for wrappers and runners; `None` if there is
/// no inner program.
pub(super) fn inner_start(words: &[Word]) -> Option<usize> {
    let simple = Simple { words: words.to_vec(), ..Simple::default() };
    let program = simple.program()?;
    let is_wrapper = WRAPPERS.of(program).is_some();
    let is_loose = WRAPPERS.loose(program).is_some_and(|subcommands| {
        subcommands.is_empty() || words.iter().skip(1).any(|word| subcommands.contains(&word.text))
    });
    if !is_wrapper && !is_loose {
        return None;
    }
    let mut start = None;
    for found in inner(&simple) {
        let at = match found {
            Inner::None => continue,
            Inner::Words(inner) => words.len().saturating_sub(inner.len()).max(1),
            Inner::Text(_) | Inner::Unsure(_) => words.len().saturating_sub(1),
        };
        start = Some(start.map_or(at, |other: usize| other.max(at)));
    }
    // Of a loose runner in other words it is unknown which one names the program, so a rule has to spell out all of them.
    let last = || runner_program(words).unwrap_or(words.len() - 1);
    if is_loose && start.is_some() { Some(last()) } else { start }
}
