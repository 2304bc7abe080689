//! Edit with a patch: the lines that a hunk quotes say where it applies. Either all hunks apply, or none does.

use std::borrow::Cow;
use std::ops::Range;

use aye_core::contract::display::shortened;
use aye_core::contract::tool::{ToolCallContext, ToolError};
use serde_json::Value;

use super::ToolEnv;
use super::args::{CallArgs, advised, invalid};
use super::change::{ChangeArgs, ChangeNote, PlannedChange, PlannedFile, is_decided};
use super::edit::{NAME, UNIQUE, encoded, lines_of, numbered, surroundings};
use super::hint;
use super::matching::{self, Replacement};
use super::misnamed;
use super::seen_files::KnownContent;
use super::text::TextFile;

/// Characters of a line that an error shows.
const SHOWN: usize = 80;

/// Lines to be found in a file, and what comes there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PatchHunk {
    /// Lines above the place, from the outside in.
    anchors: Vec<String>,
    old: Vec<String>,
    new: Vec<String>,
    /// The place ends with the file.
    is_at_end: bool,
}

impl PatchHunk {
    fn is_empty(&self) -> bool {
        self.old.is_empty() && self.new.is_empty()
    }

    /// Adds a line that stays as it is.
    fn keep(&mut self, line: &str) {
        self.old.push(line.to_owned());
        self.new.push(line.to_owned());
    }
}

/// Reads hunks.
///
/// # Errors
/// What is wrong with them, in words.
pub(super) fn parse(text: &str) -> Result<Vec<PatchHunk>, String> {
    let mut hunks: Vec<PatchHunk> = Vec::new();
    let mut hunk = PatchHunk::default();
    // Lines without even a blank: between two lines of a hunk they are lines of the file, elsewhere they are left over.
    let mut empty = 0;
    for line in text.lines() {
        if line.is_empty() {
            empty += usize::from(!hunk.is_empty());
            continue;
        }
        let between = std::mem::take(&mut empty);
        if line.starts_with(['+', '-', ' ']) && !hunk.is_at_end {
            (0..between).for_each(|_| hunk.keep(""));
        }
        if let Some(anchor) = line.strip_prefix("@@") {
            if !hunk.is_empty() {
                hunks.push(std::mem::take(&mut hunk));
            }
            // Line numbers, as `diff` writes them, say nothing certain.
            if !anchor.trim().is_empty() && !anchor.trim_start().starts_with('-') {
                hunk.anchors.push(anchor.trim().to_owned());
            }
        } else if line.trim_end() == "*** End of File" {
            hunk.is_at_end = true;
        } else if hunk.is_at_end {
            return Err("lines follow `*** End of File`".into());
        } else if let Some(line) = line.strip_prefix('+') {
            hunk.new.push(line.to_owned());
        } else if let Some(line) = line.strip_prefix('-') {
            hunk.old.push(line.to_owned());
        } else if let Some(line) = line.strip_prefix(' ') {
            hunk.keep(line);
        } else {
            return Err(format!(
                "the line `{}` starts with none of ` `, `-`, `+` and `@@`",
                shortened(line, SHOWN)
            ));
        }
    }
    if !hunk.is_empty() || !hunk.anchors.is_empty() {
        hunks.push(hunk);
    }
    if hunks.is_empty() {
        return Err("there is no hunk".into());
    }
    for (hunk, nth) in hunks.iter().zip(1..) {
        if hunk.old == hunk.new {
            return Err(format!("hunk {nth} changes nothing"));
        }
        if hunk.old.is_empty() {
            return Err(format!(
                "hunk {nth} has only new lines; add the unchanged lines before or after them"
            ));
        }
    }
    Ok(hunks)
}

/// An Edit by hunks.
pub(super) struct PatchArgs {
    file_path: String,
    hunks: Vec<PatchHunk>,
}

impl PatchArgs {
    pub(super) fn parse(args: &Value) -> Result<Self, ToolError> {
        let args = CallArgs::new(NAME, args, &["file_path", "patch"])?;
        Ok(Self {
            file_path: args.filled("file_path")?.to_owned(),
            hunks: parse(args.filled("patch")?).map_err(invalid)?,
        })
    }
}

impl ChangeArgs for PatchArgs {
    const TOOL: &'static str = NAME;

    fn file_path(&self) -> &str {
        &self.file_path
    }

    fn plan(&self, env: &ToolEnv, ctx: &ToolCallContext) -> Result<PlannedChange, ToolError> {
        let subject = PlannedFile::inspect(env, &self.file_path)?;
        let name = &subject.name;
        let Some(bytes) = &subject.before else {
            let meant = misnamed::did_you_mean(env, ctx, &subject.real);
            let advice = meant.as_deref().unwrap_or("use `*** Add File` or Write to create it");
            return Err(advised(format!("{name} does not exist"), advice));
        };
        let file = TextFile::decode(bytes).map_err(|why| {
            ToolError::ExecutionFailed(format!("{name} is not UTF-8 text and cannot be edited: {why}"))
        })?;
        // As with Edit: what is there exactly once is its own proof, whatever else changed in the file.
        let is_stale = subject.seen(env, ctx) == KnownContent::Stale && !is_decided(ctx);
        let text = apply(&file.text, &self.hunks, name).map_err(|PatchFault { shown, more }| {
            let seen = is_stale.then(|| subject.seen_text(env, ctx)).flatten();
            let changed = seen.and_then(|seen| hint::changed(&seen, &file.text));
            let changed = changed.map(|lines| format!("\nwhat changed since you read it:{lines}"));
            let changed = changed.unwrap_or_default();
            let text = format!("{shown}{more}{changed}\nnothing in {name} was changed");
            ToolError::Advised { text, shown }
        })?;
        let after = encoded(&file, &text, name)?;
        if after == *bytes {
            return Err(invalid("the hunks change nothing"));
        }
        let note = is_stale.then(|| {
            let first = text.lines().zip(file.text.lines()).take_while(|(new, old)| new == old).count();
            let shown = "the file had changed since it was read".to_owned();
            ChangeNote { shown, lines: numbered(&text, first) }
        });
        Ok(PlannedChange { subject, after, encoding: file.encoding, is_known: !is_stale, note })
    }
}

/// Why a hunk has no place.
struct PatchFault {
    shown: String,
    /// What the model can do about it.
    more: String,
}

/// The text with all hunks applied.
fn apply(text: &str, hunks: &[PatchHunk], name: &str) -> Result<String, PatchFault> {
    // Hunks are of whole lines, so the last one gets a line end like the others for the time being.
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let is_open = !text.is_empty() && !text.ends_with('\n');
    let whole = if is_open { Cow::Owned(format!("{text}{end}")) } else { Cow::Borrowed(text) };
    let mut places = Vec::new();
    for (hunk, nth) in hunks.iter().zip(1..) {
        places.push((nth, place(&whole, hunk, nth, name)?));
    }
    places.sort_by_key(|(_, place)| place.range.start);
    for pair in places.windows(2) {
        if let [(one, before), (other, after)] = pair
            && before.range.end > after.range.start
        {
            return Err(PatchFault {
                shown: format!("hunks {} and {} overlap in {name}", one.min(other), one.max(other)),
                more: "; make one hunk of them".into(),
            });
        }
    }
    let places: Vec<Replacement> = places.into_iter().map(|(_, place)| place).collect();
    let mut text = matching::replaced(&whole, &places);
    if is_open && text.ends_with(end) {
        text.truncate(text.len() - end.len());
    }
    Ok(text)
}

/// Finds the one place of a hunk.
fn place(text: &str, hunk: &PatchHunk, nth: i32, name: &str) -> Result<Replacement, PatchFault> {
    let mut from = 0;
    for anchor in &hunk.anchors {
        from = below(text, from, anchor, nth, name)?;
    }
    let joined = |lines: &[String]| lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
    let (old, new) = (joined(&hunk.old), joined(&hunk.new));
    let mut places = matching::find(text, &old, &new);
    places.retain(|Replacement { range, .. }| {
        let is_line = range.start == 0 || text[..range.start].ends_with('\n');
        is_line && range.start >= from && (!hunk.is_at_end || range.end == text.len())
    });
    match places.as_slice() {
        [] => {
            let more = match hint::already(text, &new) {
                Some(line) => format!(", but its result is, at line {line}: the change may be there already"),
                None => hint::nearest(text, &old).replace("`old_string`", "the hunk"),
            };
            Err(PatchFault { shown: format!("hunk {nth} is not in {name}"), more })
        }
        [_] => Ok(places.remove(0)),
        many => {
            let (count, lines) = (many.len(), lines_of(text, many));
            Err(PatchFault {
                shown: format!("hunk {nth} occurs {count} times in {name}, at lines {lines}"),
                more: format!("; {UNIQUE}{}", surroundings(text, many)),
            })
        }
    }
}

/// Returns where the line that an anchor names starts: the whole line, or its start, if only one line has that.
fn below(text: &str, from: usize, anchor: &str, nth: i32, name: &str) -> Result<usize, PatchFault> {
    let mut start = from;
    let mut lines: Vec<(Range<usize>, bool)> = Vec::new();
    for line in text[from..].split_inclusive('\n') {
        let range = start..start + line.len();
        start = range.end;
        if line.trim_start().starts_with(anchor) {
            lines.push((range, line.trim() == anchor));
        }
    }
    if lines.iter().any(|(_, is_whole)| *is_whole) {
        lines.retain(|(_, is_whole)| *is_whole);
    }
    let shown =
        |what: &str| format!("the line `@@ {}` of hunk {nth} {what} {name}", shortened(anchor, SHOWN));
    match lines.as_slice() {
        [(line, _)] => Ok(line.start),
        [] => Err(PatchFault {
            shown: shown("is not in"),
            more: "; quote a whole line above the place, or leave it out".into(),
        }),
        many => {
            let at = |range: &Range<usize>| (text[..range.start].matches('\n').count() + 1).to_string();
            let at = many.iter().take(10).map(|(range, _)| at(range)).collect::<Vec<_>>().join(", ");
            let more = format!(", at lines {at}; quote another line, or put one of an outer block before it");
            Err(PatchFault { shown: shown("occurs more than once in"), more })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::Sandbox;

    fn patched(text: &str, patch: &str) -> Result<String, String> {
        let hunks = parse(patch)?;
        apply(text, &hunks, "f").map_err(|fault| format!("{}{}", fault.shown, fault.more))
    }

    #[test]
    fn hunks_replace_whole_lines_wherever_they_are_once() {
        for (text, patch, after) in [
            ("a\nb\nc\n", " a\n-b\n+B\n c\n", "a\nB\nc\n"),
            // In any order, and several at once.
            ("a\nb\nc\nd\n", "@@\n-d\n+D\n@@\n-a\n", "b\nc\nD\n"),
            // A part of a line is not a line.
            ("max = 1\nx = 1\nx = 10\n", "-x = 1\n+x = 2\n", "max = 1\nx = 2\nx = 10\n"),
            // The last line without an end, and with another.
            ("a\nb", "-b\n+c\n+d\n", "a\nc\nd"),
            ("a\nb", " a\n-b\n", "a"),
            ("a\r\nb\r\n", "-b\n+c\n+d\n", "a\r\nc\r\nd\r\n"),
            ("a\r\nb", "-b\n+c\n+d\n", "a\r\nc\r\nd"),
            // Anchors, as a whole line or the start of one; line numbers are ignored.
            ("f:\n  x\ng:\n  x\n", "@@ g:\n-  x\n+  y\n", "f:\n  x\ng:\n  y\n"),
            (
                "class A(B):\n  def f(x):\n    1\n",
                "@@ class A\n@@   def f\n-    1\n+    2\n",
                "class A(B):\n  def f(x):\n    2\n",
            ),
            ("f\nff\n  x\n", "@@ ff\n-  x\n+  y\n", "f\nff\n  y\n"),
            ("a\nb\n", "@@ -1,2 +1,2 @@ fn\n-b\n+c\n", "a\nc\n"),
            // The anchor may be the first line of the context.
            ("f:\n  x\n", "@@ f:\n f:\n-  x\n+  y\n", "f:\n  y\n"),
            ("x\ny\nx\n", "-x\n+z\n*** End of File\n", "x\ny\nz\n"),
            // Empty lines at the ends are left over.
            ("a\nb\n", "\n-b\n+c\n\n\n@@\n-a\n+A\n", "A\nc\n"),
            ("a\n\nb\nb\n", " a\n\n-b\n+c\n", "a\n\nc\nb\n"),
        ] {
            assert_eq!(patched(text, patch).as_deref(), Ok(after), "{text:?} {patch:?}");
        }
    }

    #[test]
    fn what_is_not_certain_is_refused() {
        for (text, patch, word) in [
            ("x\ny\nx\n", "-x\n+z\n", "hunk 1 occurs 2 times in f, at lines 1, 3; add surrounding lines"),
            ("a\nb\n", "-a\n+A\n@@\n-c\n+C\n", "hunk 2 is not in f"),
            ("  a\nb\n", "-a\n+A\n", "hunk 1 is not in f; lines 1-1 differ from it in blanks only"),
            ("let value = 2;\n", "-let value = 1;\n+let value = 2;\n", "but its result is, at line 1"),
            (
                "g:\n  x\ng:\n  x\n",
                "@@ g:\n-  x\n+  y\n",
                "`@@ g:` of hunk 1 occurs more than once in f, at lines 1, 3",
            ),
            ("f:\n  x\n", "@@ g:\n-  x\n+  y\n", "`@@ g:` of hunk 1 is not in f"),
            // The place is above the anchor.
            ("x\nf:\n", "@@ f:\n-x\n+y\n", "hunk 1 is not in f"),
            ("f:\n  x\n  x\n", "@@ f:\n-  x\n+  y\n", "occurs 2 times"),
            ("a\nb\nc\n", " a\n-b\n+B\n@@\n b\n-c\n+C\n", "hunks 1 and 2 overlap"),
            ("x\ny\n", "-x\n+z\n*** End of File\n", "hunk 1 is not in f"),
            ("x\n", "-x\n+z\n*** End of File\n y\n", "lines follow"),
            ("\nx\n", " \n-\n+y\n", "hunk 1 is not in f"),
            ("x\n", "x\n", "the line `x` starts with none of"),
            ("x\n", " x\n", "hunk 1 changes nothing"),
            ("x\n", "@@ x\n+y\n", "hunk 1 has only new lines"),
            ("x\n", "@@ x\n", "hunk 1 changes nothing"),
            ("x\n", "\n", "there is no hunk"),
        ] {
            let why = patched(text, patch).expect_err(patch);
            assert!(why.contains(word), "{text:?} {patch:?}: {why}");
        }
    }

    #[tokio::test]
    async fn a_patch_has_the_preconditions_of_an_edit() {
        let args = json!({"file_path": "a", "patch": "-one\n+1\n"});
        let sandbox = Sandbox::new();
        sandbox.write("a", "one\ntwo\n");
        let text = sandbox.refused("Edit", args).await;
        assert!(text.contains("unknown field \"patch\""), "nobody wanted patches: {text}");
        let sandbox = Sandbox::with(|env| env.patches = true);
        sandbox.write("a", "one\ntwo\n");
        let patch = |hunks: &str| json!({"file_path": "a", "patch": hunks});
        let text = sandbox.refused("Edit", json!({"file_path": "other.rs", "patch": "-x\n+y\n"})).await;
        assert_eq!(text, "other.rs does not exist; use `*** Add File` or Write to create it");
        // All or nothing.
        let text = sandbox.refused("Edit", patch("-one\n+1\n@@\n-three\n+3\n")).await;
        assert!(
            text.starts_with("hunk 2 is not in a") && text.ends_with("nothing in a was changed"),
            "{text}"
        );
        assert_eq!(sandbox.read("a"), b"one\ntwo\n");
        assert_eq!(sandbox.ok("Edit", patch("-one\n+1\n")).await, "changed a (+1 -1)");
        sandbox.ok("Read", json!({"file_path": "a"})).await;
        sandbox.write("a", "1\nTWO\n3\n");
        let text = sandbox.refused("Edit", patch("-two\n+2\n")).await;
        assert!(text.contains("what changed since you read it:\n1\t1\n2\tTWO\n3\t3"), "{text}");
        let text = sandbox.ok("Edit", patch("-3\n+4\n")).await;
        assert_eq!(text, "changed a (+1 -1); the file had changed since it was read:\n3\t4");
        for (args, word) in [
            (
                json!({"file_path": "a", "patch": "-x\n+y\n", "old_string": "x"}),
                "unknown field \"old_string\"",
            ),
            (json!({"file_path": "a", "patch": 3}), "`patch` must be a string"),
            (json!({"patch": "-x\n+y\n"}), "`file_path` is missing"),
        ] {
            let text = sandbox.refused("Edit", args).await;
            assert!(text.contains(word), "{text}");
        }
    }

    proptest! {
        /// A hunk of lines of the file, with some of them replaced, changes exactly these or is refused.
        #[test]
        fn a_hunk_never_changes_another_place(
            lines in prop::collection::vec("[ab]{0,2}", 1..9),
            from in 0_usize..9,
            count in 1_usize..5,
            changed in 0_usize..5,
            has_end in any::<bool>(),
        ) {
            // A last line without an end has a character at least.
            let has_end = has_end || lines.last().is_some_and(String::is_empty);
            let from = from.min(lines.len() - 1);
            let quoted = &lines[from..(from + count).min(lines.len())];
            let changed = changed.min(quoted.len() - 1);
            let hunk_line = |(nth, line): (usize, &String)| {
                if nth == changed { format!("-{line}\n+new\n") } else { format!(" {line}\n") }
            };
            let patch = quoted.iter().enumerate().map(hunk_line).collect::<Vec<_>>().concat();
            let mut text = lines.join("\n");
            if has_end {
                text.push('\n');
            }
            let mut after = lines.clone();
            after[from + changed] = "new".into();
            let mut after = after.join("\n");
            if has_end {
                after.push('\n');
            }
            if let Ok(found) = patched(&text, &patch) {
                prop_assert_eq!(found, after);
            }
        }
    }
}
