//! Expands the placeholders in the instructions of a skill. Nothing in the instructions is ever executed.

use std::path::Path;

/// Maximum bytes of instructions that the model reads.
const MAX_INSTRUCTIONS: usize = 64 * 1024;

/// The values inserted into the instructions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ArgumentValues<'a> {
    /// The text typed after the name.
    pub(super) typed: &'a str,
    /// The names of the arguments, in order.
    pub(super) names: &'a [String],
    /// The skill's folder; `None` for one that is compiled in.
    pub(super) dir: Option<&'a Path>,
    pub(super) session: &'a str,
}

/// Inserts the values into the instructions: `$ARGUMENTS` is all that was typed, `$ARGUMENTS[1]` and `$1` the
/// second argument as a shell would split it, `$name` the argument of that name, and `${CLAUDE_SKILL_DIR}`
/// the skill's folder. A backslash before a placeholder keeps it literal. If no placeholder refers to the
/// arguments, they are appended to the instructions.
pub(super) fn expanded(instructions: &str, values: ArgumentValues<'_>) -> String {
    let text = bounded(instructions);
    let typed = values.typed.trim();
    let words = shlex::split(typed).unwrap_or_else(|| typed.split_whitespace().map(str::to_owned).collect());
    let mut out = String::with_capacity(text.len() + typed.len());
    let mut rest = text.as_str();
    let mut is_placed = false;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        let Some((length, place)) = place_of(from, &values) else {
            out.push_str(before);
            out.push('$');
            rest = &from[1..];
            continue;
        };
        rest = &from[length..];
        if let Some(kept) = before.strip_suffix('\\') {
            out.push_str(kept);
            out.push_str(&from[..length]);
            continue;
        }
        out.push_str(before);
        is_placed |= !matches!(place, Place::Value(_));
        match place {
            Place::All => out.push_str(typed),
            Place::Word(index) => out.push_str(words.get(index).map_or("", String::as_str)),
            Place::Value(value) => out.push_str(&value),
        }
    }
    out.push_str(rest);
    if !is_placed && !typed.is_empty() {
        out = format!("{}\n\nARGUMENTS: {typed}\n", out.trim_end());
    }
    out
}

enum Place {
    All,
    Word(usize),
    Value(String),
}

/// Returns the placeholder at the start of the text, and its length.
fn place_of(text: &str, values: &ArgumentValues<'_>) -> Option<(usize, Place)> {
    let braced =
        |name: &str| text.strip_prefix("${")?.strip_prefix(name)?.strip_prefix('}').map(|_| name.len() + 3);
    if let Some(length) = braced("CLAUDE_SKILL_DIR") {
        return values.dir.map(|dir| (length, Place::Value(dir.to_string_lossy().into_owned())));
    }
    if let Some(length) = braced("CLAUDE_SESSION_ID") {
        return Some((length, Place::Value(values.session.to_owned())));
    }
    let name = text.strip_prefix('$')?;
    if let Some(after) = name.strip_prefix("ARGUMENTS") {
        if let Some((index, _)) = after.strip_prefix('[').and_then(|inner| inner.split_once(']'))
            && !index.is_empty()
            && let Ok(number) = index.parse()
        {
            return Some(("$ARGUMENTS[]".len() + index.len(), Place::Word(number)));
        }
        return (!continues(after)).then_some(("$ARGUMENTS".len(), Place::All));
    }
    let digits = name.len() - name.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits > 0 {
        let number = name[..digits].parse().ok().filter(|_| !continues(&name[digits..]))?;
        return Some((digits + 1, Place::Word(number)));
    }
    let index = values
        .names
        .iter()
        .position(|known| name.strip_prefix(known.as_str()).is_some_and(|after| !continues(after)))?;
    Some((values.names[index].len() + 1, Place::Word(index)))
}

/// Whether the text continues the word before it.
fn continues(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn bounded(instructions: &str) -> String {
    let mut text = instructions.to_owned();
    if text.len() > MAX_INSTRUCTIONS {
        let mut end = MAX_INSTRUCTIONS;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(text[..end].rfind('\n').map_or(end, |at| at + 1));
        text.push_str(
            "[cut here: instructions are limited to 64 KiB; read the rest from SKILL.md with load_skill_resource]\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, typed: &str) -> String {
        let names = ["issue".to_owned(), "branch".to_owned()];
        let dir = Some(Path::new("/s/my skill"));
        expanded(text, ArgumentValues { typed, names: &names, dir, session: "t1" })
    }

    #[test]
    fn arguments_replace_their_placeholders() {
        for (text, typed, wanted) in [
            ("Do $ARGUMENTS now.", " a 'b c' ", "Do a 'b c' now."),
            ("$0 then $1, $2!", "a 'b c'", "a then b c, !"),
            ("$ARGUMENTS[1] of $ARGUMENTS[0]", "x \"y z\"", "y z of x"),
            ("Fix $issue on $branch ($issues).", "7 main", "Fix 7 on main ($issues)."),
            ("Costs \\$5.00, not \\$ARGUMENTS but $0", "a", "Costs $5.00, not $ARGUMENTS but a"),
            ("$10 $1x $ARGUMENTSX $x $", "a b", " $1x $ARGUMENTSX $x $"),
            ("cd ${CLAUDE_SKILL_DIR}/x", "", "cd /s/my skill/x"),
            ("cd ${CLAUDE_SKILL_DIR}/x", "a", "cd /s/my skill/x\n\nARGUMENTS: a\n"),
            ("in ${CLAUDE_SESSION_ID} ${OTHER}", "", "in t1 ${OTHER}"),
            ("None here.\n", "  ", "None here.\n"),
            ("None here.\n", "go", "None here.\n\nARGUMENTS: go\n"),
            // Typed text is not expanded again, and nothing is executed.
            ("$0 $1 !`touch pwn`", "$1 $ARGUMENTS", "$1 $ARGUMENTS !`touch pwn`"),
            ("$0", "it's open", "it's"),
            ("$ARGUMENTS", "", ""),
        ] {
            assert_eq!(with(text, typed), wanted, "{text} with {typed}");
        }
        let compiled = expanded("${CLAUDE_SKILL_DIR}", ArgumentValues::default());
        assert_eq!(compiled, "${CLAUDE_SKILL_DIR}", "what is compiled in has no folder");
    }
}
