//! Programs and flags that run other programs or write files.
//!
//! A rule such as `Bash(sort *)` means reading; `sort -o file` writes. A risky word is allowed only by a rule that
//! spells it out, so `Bash(sort -o out.txt *)` still works.

use super::script::{awk, is_awk, sed};
use super::tables::{FLAGS, InterpreterFlags, PROGRAMS, ProgramFlags, without_version};
use super::unwrap::{self, is_assignment};
use super::{Word, base_name, git};

/// A word that makes a command do more than its name says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiskyWord {
    pub index: usize,
    /// The last word that a rule must spell out for the risk to be intended; larger than the command: all of
    /// them.
    pub through: usize,
    /// It can run another program (it only writes otherwise).
    pub executes: bool,
    /// The description of the risk.
    pub why: String,
}

impl RiskyWord {
    pub(super) fn runs(index: usize, through: usize, why: String) -> RiskyWord {
        RiskyWord { index, through, executes: true, why }
    }

    pub(super) fn writes(index: usize, through: usize, why: String) -> RiskyWord {
        RiskyWord { index, through, executes: false, why }
    }

    /// True when a rule whose first `spelled` words are literal (`all`: and which has no others) names the risk.
    pub fn is_named_by(&self, spelled: usize, all: bool) -> bool {
        all || (self.through != usize::MAX && spelled > self.through)
    }
}

/// True for commands whose words are understood: what they run is found, and nothing else in them is a program.
pub fn is_explained(words: &[Word]) -> bool {
    let program = words.first().map(|word| base_name(&word.text)).unwrap_or_default();
    if program == "cargo" {
        let mut plain = words.iter().skip(1).filter(|word| !word.text.starts_with(['-', '+']));
        return plain.next().is_none_or(|word| PROGRAMS.cargo.contains(&word.text));
    }
    PROGRAMS.plain.contains(program)
        || only_reads(program)
        || FLAGS.of(program).is_some()
        || PROGRAMS.shells.contains(program)
        || PROGRAMS.stateful.contains(program)
        || FLAGS.interpreter(program).is_some()
        || unwrap::is_explained(program)
}

/// Returns true for builtins that change the shell's state, so that it is no longer the one that was checked.
pub fn is_stateful(program: &str) -> bool {
    PROGRAMS.stateful.contains(program)
}

/// Programs whose arguments say what runs: a rule over any arguments of theirs would be a rule over anything.
pub fn runs_others(program: &str) -> bool {
    PROGRAMS.shells.contains(program)
        || PROGRAMS.stateful.contains(program)
        || PROGRAMS.programmable.contains(program)
        || FLAGS.interpreter(program).is_some()
        || unwrap::is_wrapper(program)
        || matches!(program, "ssh" | "mosh" | "autossh" | "slogin" | "su" | "script")
}

/// The risky words of a command.
pub fn risks(words: &[Word]) -> Vec<RiskyWord> {
    let mut risks = own_risks(words);
    let start = unwrap::inner_start(words);
    if let (Some(start), Some(first)) = (start, words.first()) {
        let program = base_name(&first.text);
        risks.insert(0, RiskyWord::runs(start, start, format!("`{program}` runs another program")));
    }
    // What a runner starts may be a runner or a shell: a rule has to spell what that one runs.
    if let Some(start) = unwrap::runner_program(words)
        && let Some(inner) = words.get(start..)
        && inner.first().is_some_and(|word| {
            let program = base_name(&word.text);
            PROGRAMS.shells.contains(program) || unwrap::is_wrapper(program) || unwrap::is_runner(program)
        })
    {
        risks.extend(self::risks(inner).into_iter().map(|risk| RiskyWord {
            index: risk.index + start,
            through: risk.through.saturating_add(start),
            ..risk
        }));
    }
    risks
}

/// The same, without what a wrapper or runner is there to run.
pub(super) fn own_risks(words: &[Word]) -> Vec<RiskyWord> {
    let Some(first) = words.first() else { return Vec::new() };
    let program = base_name(&first.text);
    let mut risks = Vec::new();
    if PROGRAMS.shells.contains(program) {
        shell(program, words, &mut risks);
    }
    if PROGRAMS.stateful.contains(program) {
        risks.push(RiskyWord::runs(
            0,
            usize::MAX,
            format!("`{program}` can change what other commands mean"),
        ));
    }
    if PROGRAMS.programmable.contains(program) {
        risks.push(RiskyWord::runs(0, usize::MAX, format!("`{program}` can run other programs")));
    }
    if let Some(interpreter) = FLAGS.interpreter(program) {
        interpret(without_version(program), interpreter, words, &mut risks);
    }
    if let Some(flags) = FLAGS.of(program) {
        scan(flags, program, words, &mut risks);
    }
    special(program, words, &mut risks);
    risks
}

fn shell(program: &str, words: &[Word], risks: &mut Vec<RiskyWord>) {
    let script = words.iter().skip(1).position(|word| !word.text.starts_with(['-', '+'])).map(|at| at + 1);
    let options = script.unwrap_or(words.len());
    let harmless = |text: &str| {
        matches!(text, "--version" | "--help" | "-e" | "-u" | "-x" | "-eu" | "-ex" | "-eux" | "-n")
    };
    if script.is_none() && !words.iter().skip(1).any(|word| word.text == "--version") {
        risks.push(RiskyWord::runs(0, usize::MAX, format!("`{program}` reads commands from elsewhere")));
    }
    for (i, word) in words.iter().enumerate().take(options).skip(1) {
        if !harmless(&word.text) {
            risks.push(RiskyWord::runs(i, usize::MAX, format!("`{} {}`", program, word.text)));
        }
    }
}

fn interpret(program: &str, interpreter: &InterpreterFlags, words: &[Word], risks: &mut Vec<RiskyWord>) {
    let InterpreterFlags { short, long, .. } = interpreter;
    let mut has_file = false;
    for (i, word) in words.iter().enumerate().skip(1) {
        let text = word.text.as_str();
        if text == "-" {
            risks.push(RiskyWord::runs(i, i, format!("`{program} -` reads code from elsewhere")));
        } else if let Some(name) = text.strip_prefix("--") {
            let name = name.split('=').next().unwrap_or(name);
            if matches!(name, "version" | "help") {
                has_file = true;
            } else if long.contains(name) {
                risks.push(RiskyWord::runs(i, i + 1, format!("`{program} --{name}` can run any code")));
                has_file = true;
            }
        } else if let Some(letters) = text.strip_prefix('-') {
            if matches!(text, "-V" | "-v" | "-h") {
                has_file = true;
            } else if letters.contains(|c| short.contains(c)) {
                risks.push(RiskyWord::runs(i, i + 1, format!("`{program} {text}` can run any code")));
                has_file = true;
            }
        } else {
            has_file = true;
            break;
        }
    }
    if !has_file {
        risks.push(RiskyWord::runs(0, usize::MAX, format!("`{program}` reads code from elsewhere")));
    }
}

fn scan(flags: &ProgramFlags, program: &str, words: &[Word], risks: &mut Vec<RiskyWord>) {
    let push = |risks: &mut Vec<RiskyWord>, i: usize, runs: bool| {
        let text = words.get(i).map_or("", |word| word.text.as_str());
        let why = if runs { "can run a program" } else { "writes a file" };
        let why = format!("`{program} {text}` {why}");
        risks.push(RiskyWord { index: i, through: i + 1, executes: runs, why });
    };
    for (i, word) in words.iter().enumerate().skip(1) {
        let text = word.text.as_str();
        if let Some(long) = text.strip_prefix("--").filter(|long| !long.is_empty()) {
            let name = long.split('=').next().unwrap_or(long);
            if flags.harmless.contains(name) {
                continue;
            }
            // GNU programs accept any unambiguous prefix of a long option.
            if flags.runs.starting_with(name).is_some() {
                push(risks, i, true);
            } else if flags.writes.starting_with(name).is_some() {
                push(risks, i, false);
            }
        } else if let Some(letters) = text.strip_prefix('-') {
            cluster(flags, &flags.valued_short, letters, i, &push, risks);
        } else if i == 1 && program.ends_with("tar") {
            cluster(flags, "", text, i, &push, risks);
        }
    }
}

fn cluster(
    flags: &ProgramFlags,
    valued: &str,
    letters: &str,
    i: usize,
    push: &dyn Fn(&mut Vec<RiskyWord>, usize, bool),
    risks: &mut Vec<RiskyWord>,
) {
    for letter in letters.chars() {
        if flags.runs_short.contains(letter) {
            return push(risks, i, true);
        }
        if flags.writes_short.contains(letter) {
            return push(risks, i, false);
        }
        if valued.contains(letter) {
            return;
        }
    }
}

/// Programs with a syntax of their own.
fn special(program: &str, words: &[Word], risks: &mut Vec<RiskyWord>) {
    let rest = || words.iter().enumerate().skip(1).map(|(i, word)| (i, word.text.as_str()));
    match program {
        "git" => risks.extend(git::risks(words)),
        "find" | "gfind" => {
            for (i, text) in rest() {
                if matches!(text, "-exec" | "-execdir" | "-ok" | "-okdir") {
                    risks.push(RiskyWord::runs(i, usize::MAX, format!("`find {text}`")));
                } else if matches!(text, "-delete" | "-fprint" | "-fprint0" | "-fprintf" | "-fls") {
                    risks.push(RiskyWord::writes(i, i + 1, format!("`find {text}`")));
                }
            }
        }
        "fd" | "fdfind" => {
            for (i, text) in rest() {
                let short = text.starts_with('-') && !text.starts_with("--") && text.contains(['x', 'X']);
                if short
                    || text.starts_with("--ex")
                        && !text.starts_with("--exclude")
                        && !text.starts_with("--extension")
                {
                    risks.push(RiskyWord::runs(i, usize::MAX, format!("`fd {text}`")));
                }
            }
        }
        "sed" | "gsed" => sed(words, risks),
        _ if is_awk(program) => awk(words, risks),
        "test" | "[" | "[[" | "printf" | "wait" => {
            for (i, text) in rest() {
                let names_variable = match program {
                    "printf" => text.starts_with("-v"),
                    "wait" => text.starts_with("-p"),
                    _ => matches!(text, "-v" | "-R"),
                };
                // A subscript is evaluated even when it is quoted.
                if names_variable || text.contains("[$(") || text.contains("[`") {
                    risks.push(RiskyWord::runs(
                        i,
                        usize::MAX,
                        format!("`{program} {text}` evaluates a variable's name"),
                    ));
                }
            }
        }
        "dd" => {
            for (i, text) in rest().filter(|(_, text)| text.starts_with("of=")) {
                risks.push(RiskyWord::writes(i, i, format!("`dd {text}` writes")));
            }
        }
        "uniq" | "xxd" => {
            // `-` is the first file, and after `--` nothing is an option. The value of one is taken for a file as well.
            let end = rest().find(|(_, text)| *text == "--").map_or(words.len(), |(i, _)| i);
            let is_operand =
                |i: usize, text: &str| i > end || i < end && (text == "-" || !text.starts_with('-'));
            let operands = rest().filter(|(i, text)| is_operand(*i, text)).count();
            if operands > 1 || rest().any(|(_, text)| text.starts_with("-r") || text.starts_with("--r")) {
                risks.push(RiskyWord::writes(
                    0,
                    usize::MAX,
                    format!("`{program}` with two names writes to the second"),
                ));
            }
        }
        "ssh" | "mosh" | "autossh" | "slogin" => {
            risks.push(RiskyWord::runs(0, usize::MAX, format!("`{program}` runs commands elsewhere")));
        }
        "su" | "script" => risks.push(RiskyWord::runs(0, usize::MAX, format!("`{program}` starts a shell"))),
        "make" | "gmake" => {
            for (i, text) in rest().filter(|(_, text)| text.contains('=') && !text.starts_with('-')) {
                risks.push(RiskyWord::runs(i, i, format!("`{text}` changes what make runs")));
            }
        }
        "cargo" => {
            for (i, text) in rest() {
                if text.starts_with('+') {
                    risks.push(RiskyWord::runs(i, i, "another toolchain".into()));
                }
            }
        }
        "npm" | "pnpm" | "yarn" | "bun" => {
            let sub = rest().find(|(_, text)| !text.starts_with('-'));
            if let Some((i, text @ ("config" | "c" | "set" | "edit" | "init" | "create" | "innit"))) = sub
                && words.len() > i + 1
            {
                risks.push(RiskyWord::runs(
                    i,
                    usize::MAX,
                    format!("`{program} {text}` can run other programs"),
                ));
            }
        }
        "go" => {
            for (i, text) in rest() {
                let name = text.trim_start_matches('-').split('=').next().unwrap_or_default();
                if text.starts_with('-')
                    && matches!(
                        name,
                        "exec"
                            | "toolexec"
                            | "vettool"
                            | "overlay"
                            | "C"
                            | "modfile"
                            | "ldflags"
                            | "gccgoflags"
                    )
                {
                    risks.push(RiskyWord::runs(i, i + 1, format!("`go {text}`")));
                } else if text.starts_with('-') && matches!(name, "o" | "w" | "coverprofile" | "cpuprofile") {
                    risks.push(RiskyWord::writes(i, i + 1, format!("`go {text}` writes")));
                }
            }
        }
        "gcc" | "g++" | "cc" | "c++" | "clang" | "clang++" | "rustc" => {
            for (i, text) in rest() {
                if ["-wrapper", "-fplugin", "-specs", "--specs", "-Clinker", "linker=", "-Zcodegen", "@"]
                    .iter()
                    .any(|flag| text.starts_with(flag))
                {
                    risks.push(RiskyWord::runs(i, i + 1, format!("`{program} {text}` can run a program")));
                }
            }
        }
        "gh" | "glab" => {
            let mut sub = rest().filter(|(_, text)| !text.starts_with('-'));
            if let Some((i, text @ ("alias" | "extension" | "extensions" | "ext" | "config" | "codespace"))) =
                sub.next()
            {
                risks.push(RiskyWord::runs(i, i + 1, format!("`{program} {text}` can run other programs")));
            }
        }
        "docker" | "podman" => {
            let sub = rest().find(|(_, text)| !text.starts_with('-'));
            if let Some((
                i,
                text @ ("build" | "buildx" | "cp" | "plugin" | "sandbox" | "stack" | "service" | "start"
                | "import" | "load" | "context"),
            )) = sub
            {
                risks.push(RiskyWord::runs(i, i, format!("`{program} {text}`")));
            }
        }
        "kubectl" => {
            if let Some((i, text @ ("cp" | "plugin" | "edit" | "port-forward" | "proxy" | "attach"))) =
                rest().find(|(_, text)| !text.starts_with('-'))
            {
                risks.push(RiskyWord::runs(i, i, format!("`kubectl {text}`")));
            }
        }
        "less" | "more" => {
            for (i, text) in rest().filter(|(_, text)| text.starts_with('+')) {
                risks.push(RiskyWord::runs(i, i, format!("`{program} {text}` gives a pager's command")));
            }
        }
        "hostname" | "domainname" => {
            for (i, _) in rest().filter(|(_, text)| !text.starts_with('-')) {
                risks.push(RiskyWord::writes(i, i, format!("`{program}` with a name sets it")));
            }
        }
        "env" if words.iter().skip(1).any(|word| is_assignment(&word.text)) => {
            let start = unwrap::inner_start(words).unwrap_or(usize::MAX);
            risks.push(RiskyWord::runs(1, start, "`env` sets variables".into()));
        }
        _ => {}
    }
}

/// Programs without flags that run or write: an unquoted glob may expand to anything for them.
pub fn globs_are_harmless(program: &str) -> bool {
    PROGRAMS.globs_are_harmless.contains(program)
}

/// Programs that do not write the files they are given.
pub fn only_reads(program: &str) -> bool {
    globs_are_harmless(program) || PROGRAMS.readers.contains(program)
}
