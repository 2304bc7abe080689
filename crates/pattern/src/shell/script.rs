//! Scripts of `sed` and code of `awk`: what they may run and write.

use super::Word;
use super::chars::excerpt;
use super::risk::RiskyWord;

/// Characters of a script that a reason shows.
const MAX_EXCERPT: usize = 40;

pub(super) fn sed(words: &[Word], risks: &mut Vec<RiskyWord>) {
    for (i, script) in scripts(words, risks) {
        if !is_harmless(&script) {
            let why =
                format!("the script `{}` may run a program or write a file", excerpt(&script, MAX_EXCERPT));
            risks.push(RiskyWord::runs(i, i, why));
        }
    }
}

/// Returns whether a `sed` command only prints, as GNU sed reads its scripts. Another sed may end a bracket
/// expression elsewhere, so use this only if the kernel keeps the command from writing.
pub fn sed_only_prints(words: &[Word]) -> bool {
    let mut risks = Vec::new();
    let scripts = scripts(words, &mut risks);
    risks.is_empty() && scripts.iter().all(|(_, script)| is_harmless(&without_brackets(script)))
}

/// A script with a letter in place of each bracket expression.
fn without_brackets(script: &str) -> String {
    let (mut out, mut rest) = (String::new(), script);
    while let Some(open) = rest.find('[') {
        let slashes = rest[..open].chars().rev().take_while(|c| *c == '\\').count();
        let (before, inside) = (&rest[..open], &rest[open + 1..]);
        let not = usize::from(inside.starts_with('^'));
        // The first character is a literal even if it is `]`.
        let first = not + usize::from(inside[not..].starts_with(']'));
        out.push_str(before);
        out.push('x');
        let end = inside[first..].find(']').filter(|_| slashes % 2 == 0);
        rest = end.map_or(inside, |end| inside[first + end + 1..].trim_start_matches(']'));
    }
    out + rest
}

/// Returns the scripts of a `sed` command, and their positions. Options that write or read a script from a
/// file are risks.
fn scripts(words: &[Word], risks: &mut Vec<RiskyWord>) -> Vec<(usize, String)> {
    let mut scripts: Vec<(usize, String)> = Vec::new();
    let mut operands = Vec::new();
    let mut i = 1;
    while let Some(word) = words.get(i) {
        let text = word.text.as_str();
        let next = || words.get(i + 1).map(|word| (i + 1, word.text.clone()));
        let mut takes_next = false;
        if let Some(long) = text.strip_prefix("--").filter(|long| !long.is_empty()) {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            if "in-place".starts_with(name) {
                risks.push(RiskyWord::writes(i, i, format!("`sed {text}` changes files")));
            } else if "file".starts_with(name) {
                risks.push(RiskyWord::runs(i, i + 1, format!("`sed {text}` reads its script from a file")));
                takes_next = value.is_none();
            } else if "expression".starts_with(name) {
                takes_next = value.is_none();
                scripts.extend(value.map(|value| (i, value.to_owned())).or_else(next));
            }
        } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            for (at, letter) in letters.char_indices() {
                let glued = &letters[at + letter.len_utf8()..];
                match letter {
                    'i' => risks.push(RiskyWord::writes(i, i, format!("`sed {text}` changes files"))),
                    'f' => {
                        risks.push(RiskyWord::runs(
                            i,
                            i + 1,
                            format!("`sed {text}` reads its script from a file"),
                        ));
                        takes_next = glued.is_empty();
                    }
                    'e' if glued.is_empty() => {
                        takes_next = true;
                        scripts.extend(next());
                    }
                    'e' => scripts.push((i, glued.to_owned())),
                    'l' => takes_next = glued.is_empty(),
                    _ => continue,
                }
                break; // the rest of the word belongs to this letter
            }
        } else {
            operands.push((i, text));
        }
        i += if takes_next { 2 } else { 1 };
    }
    if scripts.is_empty() {
        scripts.extend(operands.first().map(|(at, text)| (*at, String::from(*text))));
    }
    scripts
}

/// True for scripts of the plainest kind: printing, deleting, quitting, and `s` without the flags `e` and `w`.
fn is_harmless(script: &str) -> bool {
    let mut rest = script.trim();
    while !rest.is_empty() {
        rest = skip_addresses(rest).trim_start_matches([' ', '!']);
        let Some(command) = rest.chars().next() else { return false };
        rest = &rest[command.len_utf8()..];
        match command {
            'p' | 'd' | 'P' | 'D' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | '=' | 'l' => {}
            '{' => {
                rest = rest.trim_start();
                continue;
            }
            '}' => {}
            'q' | 'Q' => rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()),
            's' | 'y' => {
                let Some(delimiter) = rest.chars().next().filter(|c| c.is_ascii_punctuation() && *c != '\\')
                else {
                    return false;
                };
                rest = &rest[delimiter.len_utf8()..];
                for part in 0..2 {
                    let Some(end) = find_unescaped(rest, delimiter) else { return false };
                    let text = &rest[..end];
                    if text.contains('\n') || part == 0 && text.contains('[') && !has_plain_brackets(text) {
                        return false;
                    }
                    rest = &rest[end + delimiter.len_utf8()..];
                }
                rest = rest
                    .trim_start_matches(|c: char| matches!(c, 'g' | 'p' | 'i' | 'I') || c.is_ascii_digit());
            }
            _ => return false,
        }
        rest = rest.trim_start_matches([' ', '\t']);
        match rest.chars().next() {
            None => return true,
            Some(';' | '\n') => rest = rest[1..].trim_start(),
            Some('}') => {}
            Some(_) => return false,
        }
    }
    true
}

/// Returns true if every bracket expression in a text ends in it, and contains nothing that another sed would
/// read differently: in some of them a delimiter inside brackets ends the text, in others it does not.
fn has_plain_brackets(text: &str) -> bool {
    const CLASSES: &[&str] =
        &["alnum", "alpha", "blank", "digit", "lower", "punct", "space", "upper", "xdigit"];
    let text = CLASSES.iter().fold(text.to_owned(), |text, name| text.replace(&format!("[:{name}:]"), "x"));
    let mut rest = text.as_str();
    while let Some(open) = rest.find('[') {
        let slashes = rest[..open].chars().rev().take_while(|c| *c == '\\').count();
        rest = &rest[open + 1..];
        if slashes % 2 == 1 {
            continue; // `\[` is a letter
        }
        let inside = rest.strip_prefix('^').unwrap_or(rest);
        // The first character is a literal even if it is `]`.
        let Some(end) = inside.find(']').filter(|end| *end > 0) else { return false };
        if inside[..end].contains(['[', '\\']) {
            return false;
        }
        rest = &inside[end + 1..];
    }
    true
}

fn find_unescaped(text: &str, wanted: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(i, c)| {
        let hit = c == wanted && !escaped;
        escaped = c == '\\' && !escaped;
        hit.then_some(i)
    })
}

fn skip_addresses(text: &str) -> &str {
    let mut rest = text;
    for _ in 0..2 {
        if let Some(after) = rest.strip_prefix('/') {
            match find_unescaped(after, '/') {
                // A bracket can hide the end of the expression; then nothing is certain.
                Some(end) if !after[..end].contains('[') => rest = after[end + 1..].trim_start_matches('I'),
                _ => return text,
            }
        } else {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '$' | '~' | '+'));
        }
        match rest.trim_start().strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None => break,
        }
    }
    rest
}

/// Returns whether a program is one of the awks.
pub fn is_awk(program: &str) -> bool {
    matches!(program, "awk" | "gawk" | "mawk" | "nawk" | "original-awk")
}

pub(super) fn awk(words: &[Word], risks: &mut Vec<RiskyWord>) {
    let mut i = 1;
    while let Some(word) = words.get(i) {
        let text = word.text.as_str();
        match text {
            "-F" | "-v" => i += 1,
            _ if text.starts_with("-F") || text.starts_with("-v") => {}
            "--" => {}
            _ if text.starts_with('-') && text.len() > 1 => {
                risks.push(RiskyWord::runs(i, i + 1, format!("`awk {text}`")));
            }
            _ => break,
        }
        i += 1;
    }
    let Some(program) = words.get(i) else { return };
    let text = program.text.as_str();
    if ["system", "|", ">", "getline", "@", "close", "printf(", "fflush"]
        .iter()
        .any(|part| text.contains(part))
    {
        let why = format!("the code `{}` may run a program or write a file", excerpt(text, MAX_EXCERPT));
        risks.push(RiskyWord::runs(i, i, why));
    }
    // `x=value` operands and names are data.
}

/// The words of a `sed` or `awk` command that are code, or options and their values, and so name no file.
pub fn code_words(words: &[Word]) -> Vec<usize> {
    let text = |i: usize| words.get(i).map(|word| word.text.as_str());
    match text(0) {
        Some("sed" | "gsed") => {
            let mut found: Vec<usize> = scripts(words, &mut Vec::new()).into_iter().map(|(i, _)| i).collect();
            found.extend((1..words.len()).filter(|&i| text(i).is_some_and(|text| text.starts_with('-'))));
            found
        }
        Some(program) if is_awk(program) => {
            let mut end = 1;
            let mut has_file = false;
            while let Some(option) = text(end).filter(|text| text.starts_with('-') && *text != "-") {
                has_file |= option == "-f";
                end += if matches!(option, "-F" | "-v" | "-f") { 2 } else { 1 };
                if option == "--" {
                    break;
                }
            }
            let is_file = |i: usize| text(i - 1) == Some("-f");
            (1..end + usize::from(!has_file)).filter(|&i| !is_file(i)).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Word> {
        super::super::analyse(line).commands.remove(0).words
    }

    #[test]
    fn scripts_that_only_print() {
        for line in [
            "sed -n 1,5p f",
            "sed -n '/[0-9]/p' f",
            "sed -n '/^[^]/]*x/,/y/{p;q}' f",
            "sed -n -e '/a/{p}' -e 5q f",
            "sed 's/[a/b]/c/g' f",
            "sed -n '$p' f",
            "sed '1!d' f",
            "sed -n '10,${p}' f",
        ] {
            assert!(sed_only_prints(&words(line)), "{line}");
        }
        for line in [
            "sed -i s/a/b/ f",
            "sed -n 'w x' f",
            "sed 's/a/b/w x' f",
            "sed 's/[/]/b/w x' f",
            "sed '/a/{e ls\n}' f",
            "sed -n '1e ls' f",
            "sed -f script f",
            "sed 'r /etc/passwd' f",
        ] {
            assert!(!sed_only_prints(&words(line)), "{line}");
        }
    }

    #[test]
    fn code_arguments_are_not_files() {
        for (line, code) in [
            ("sed -n /a/p f", vec![2, 1]),
            ("sed -e /a/p f", vec![2, 1]),
            ("awk -F/ '{print $1}' f", vec![1, 2]),
            ("awk -F / -v x=/a '/b/' f", vec![1, 2, 3, 4, 5]),
            ("awk -f prog f", vec![1]),
            ("cat /a f", vec![]),
        ] {
            assert_eq!(code_words(&words(line)), code, "{line}");
        }
    }
}
