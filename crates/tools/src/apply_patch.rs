//! `apply_patch`: the patches that some models are used to write. One is never applied as a whole: each file of it becomes a
//! call of Edit or Write, so that rules, cards, snapshots and grants are those of these tools.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::args::{self, CallArgs, invalid};
use super::hunks;
use aye_core::contract::display::shortened;
use aye_core::contract::tool::{ParsedCall, Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput};

const NAME: &str = "apply_patch";
const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
/// Characters of a line that an error shows.
const SHOWN: usize = 80;

/// Stands for calls of Edit and Write.
pub(super) struct ApplyPatch;

/// What a patch does to one file.
#[derive(Debug, PartialEq, Eq)]
enum FilePart {
    Add { path: String, content: String },
    Update { path: String, hunks: String },
}

impl FilePart {
    fn call(self) -> (String, Value) {
        match self {
            Self::Add { path, content } => ("Write".into(), json!({"file_path": path, "content": content})),
            Self::Update { path, hunks } => ("Edit".into(), json!({"file_path": path, "patch": hunks})),
        }
    }
}

fn parse(args: &Value) -> Result<Vec<FilePart>, ToolError> {
    let args = CallArgs::new(NAME, args, &["input"])?;
    parts(args.filled("input")?).map_err(invalid)
}

/// Splits a patch into its files. Everything that is wrong with its form refuses all of it.
fn parts(patch: &str) -> Result<Vec<FilePart>, String> {
    let mut lines = patch.trim().lines();
    if lines.next().map(str::trim_end) != Some(BEGIN) || lines.next_back().map(str::trim_end) != Some(END) {
        return Err(format!("the patch must start with the line `{BEGIN}` and end with `{END}`"));
    }
    let mut parts: Vec<FilePart> = Vec::new();
    for line in lines {
        if let Some(path) = header(line, "*** Update File:")? {
            parts.push(FilePart::Update { path, hunks: String::new() });
        } else if let Some(path) = header(line, "*** Add File:")? {
            parts.push(FilePart::Add { path, content: String::new() });
        } else if let Some(path) = header(line, "*** Delete File:")? {
            return Err(format!(
                "nothing of the patch was applied: it deletes {path}; delete it by Bash with `rm`, and send the rest of the \
                 patch without it"
            ));
        } else if let Some(path) = header(line, "*** Move to:")? {
            return Err(format!(
                "nothing of the patch was applied: it moves a file to {path}; move it by Bash with `mv`, and then send a \
                 patch for the new path"
            ));
        } else {
            add_line(parts.last_mut(), line)?;
        }
    }
    for part in &parts {
        if let FilePart::Update { path, hunks } = part {
            hunks::parse(hunks).map_err(|why| format!("nothing of the patch was applied: {path}: {why}"))?;
        }
    }
    if parts.is_empty() {
        return Err("the patch names no file; write `*** Update File: PATH` or `*** Add File: PATH`".into());
    }
    Ok(parts)
}

/// Returns the path of a line that names one.
fn header(line: &str, word: &str) -> Result<Option<String>, String> {
    match line.strip_prefix(word).map(str::trim) {
        None => Ok(None),
        Some("") => Err(format!("`{word}` names no file")),
        Some(path) => Ok(Some(path.to_owned())),
    }
}

fn add_line(part: Option<&mut FilePart>, line: &str) -> Result<(), String> {
    let shown = || shortened(line, SHOWN).into_owned();
    match part {
        None => return Err(format!("the line `{}` stands before the first file of the patch", shown())),
        Some(FilePart::Update { hunks, .. }) => {
            hunks.push_str(line);
            hunks.push('\n');
        }
        Some(FilePart::Add { path, content }) => match line.strip_prefix('+') {
            Some(line) => {
                content.push_str(line);
                content.push('\n');
            }
            // Between two files.
            None if line.trim().is_empty() => {}
            None => {
                return Err(format!(
                    "nothing of the patch was applied: each line of the new file {path} must start with `+`, unlike `{}`",
                    shown()
                ));
            }
        },
    }
    Ok(())
}

#[async_trait]
impl Tool for ApplyPatch {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("apply_patch.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {"input": {"type": "string"}},
                "required": ["input"]
            }))
            .with_category("file")
    }

    fn settle_args(&self, args: &mut Value) {
        args::rename(args, &[("patch", "input")]);
    }

    fn stands_for(&self, args: &Value) -> Vec<(String, Value)> {
        parse(args).map(|parts| parts.into_iter().map(FilePart::call).collect()).unwrap_or_default()
    }

    /// What is left is a patch that cannot be read.
    fn prepare(&self, args: &Value) -> Result<Option<Arc<dyn ParsedCall>>, ToolError> {
        parse(args)?;
        Err(invalid("a patch is applied by calls of Edit and Write, one for each file; call these"))
    }

    async fn execute(&self, args: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.prepare(&args)?;
        Err(ToolError::Internal("a patch is not executed as a whole".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(patch: &str) -> String {
        let args = json!({"input": patch});
        assert!(ApplyPatch.stands_for(&args).is_empty(), "{patch}");
        ApplyPatch.validate_args(&args).expect_err("refused").to_string()
    }

    #[test]
    fn each_file_becomes_a_call_of_its_own() {
        let patch = "*** Begin Patch\n*** Update File: src/a b.rs\n@@ fn main() {\n-old\n+new\n*** End of File\n*** Add File: \
                     n.txt\n+one\n+\n+*** two\n\n*** Update File: c\n x\n+y\n*** End Patch\n";
        let mut args = json!({"patch": patch});
        ApplyPatch.settle_args(&mut args);
        let calls = ApplyPatch.stands_for(&args);
        let update =
            |path: &str, hunks: &str| ("Edit".to_owned(), json!({"file_path": path, "patch": hunks}));
        assert_eq!(
            calls,
            [
                update("src/a b.rs", "@@ fn main() {\n-old\n+new\n*** End of File\n"),
                ("Write".to_owned(), json!({"file_path": "n.txt", "content": "one\n\n*** two\n"})),
                update("c", " x\n+y\n"),
            ]
        );
        let text = ApplyPatch.validate_args(&args).expect_err("it stands for calls").to_string();
        assert!(text.contains("by calls of Edit and Write"), "{text}");
    }

    #[test]
    fn a_patch_that_is_wrong_anywhere_is_refused_as_a_whole() {
        let good = "*** Update File: a\n-x\n+y\n";
        for (parts, word) in [
            ("", "names no file"),
            ("-x\n", "the line `-x` stands before the first file"),
            ("*** Update File:\n-x\n+y\n", "`*** Update File:` names no file"),
            (&format!("{good}*** Delete File: gone.rs\n"), "it deletes gone.rs; delete it by Bash with `rm`"),
            (
                "*** Update File: a\n*** Move to: b\n-x\n+y\n",
                "it moves a file to b; move it by Bash with `mv`, and then",
            ),
            (&format!("{good}*** Add File: b\nplain\n"), "each line of the new file b must start with `+`"),
            (&format!("{good}*** Update File: b\n"), "b: there is no hunk"),
            (&format!("{good}*** Update File: b\n+y\n"), "b: hunk 1 has only new lines"),
        ] {
            let text = refusal(&format!("{BEGIN}\n{parts}{END}"));
            assert!(text.contains(word), "{parts:?}: {text}");
        }
        for patch in [good, "*** Begin Patch", &format!("{BEGIN}\n{good}"), "--- a/x\n+++ b/x\n"] {
            let text = refusal(patch);
            assert!(text.contains("must start with the line `*** Begin Patch` and end with"), "{text}");
        }
    }

    #[test]
    fn the_description_is_short() {
        let tool = ApplyPatch.descriptor();
        assert!(tool.description.len() + tool.parameters.to_string().len() <= 700);
    }
}
