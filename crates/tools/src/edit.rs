//! Edit: replaces a text in a file.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::ToolEnv;
use super::args::{CallArgs, advised, invalid};
use super::change::{self, PlannedChange, PlannedFile, is_decided};
use super::hint;
use super::seen_files::KnownContent;
use super::text::{LineEnding, TextFile, to_crlf};
use aye_core::contract::tool::{
    FilePreview, Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput,
};

const NAME: &str = "Edit";
/// Maximum places listed when a text occurs more than once.
const MAX_PLACES: usize = 10;

/// Replaces a text in a file.
pub(super) struct Edit {
    pub(super) env: Arc<ToolEnv>,
}

struct EditArgs<'a> {
    file_path: &'a str,
    old: &'a str,
    new: &'a str,
    all: bool,
}

fn parse(args: &Value) -> Result<EditArgs<'_>, ToolError> {
    let args = CallArgs::new(NAME, args, &["file_path", "old_string", "new_string", "replace_all"])?;
    let call = EditArgs {
        file_path: args.filled("file_path")?,
        old: args.text("old_string")?,
        new: args.text("new_string")?,
        all: args.flag("replace_all", false)?,
    };
    if call.old.is_empty() {
        return Err(invalid("`old_string` is empty; use Write to create a file"));
    }
    if call.old == call.new {
        return Err(invalid("`old_string` and `new_string` are the same; nothing would change"));
    }
    Ok(call)
}

fn failed(message: String) -> ToolError {
    ToolError::ExecutionFailed(message)
}

fn plan(env: &ToolEnv, args: &Value, ctx: &ToolCallContext) -> Result<PlannedChange, ToolError> {
    let call = parse(args)?;
    let subject = PlannedFile::look(env, call.file_path)?;
    let name = &subject.name;
    let Some(bytes) = &subject.before else {
        return Err(advised(format!("{name} does not exist"), "use Write to create it"));
    };
    let seen = subject.seen(env, ctx);
    // A user who decided saw the diff against the current file, and is asked again if the file changes once
    // more.
    if seen == KnownContent::Stale && !is_decided(ctx) {
        return Err(advised(format!("{name} changed since it was read"), "Read it again"));
    }
    let Some(file) = TextFile::decode(bytes) else {
        return Err(failed(format!("{name} is not UTF-8 text and cannot be edited")));
    };
    let (old, new) = wording(&file, call.old, call.new);
    let places = places(&file.text, &old);
    match places.len() {
        0 => {
            let text = format!("`old_string` is not in {name}{}", hint::nearest(&file.text, call.old));
            return Err(ToolError::Advised { text, shown: format!("the text to replace is not in {name}") });
        }
        1 => {}
        count if !call.all => {
            let occurs =
                format!("occurs {count} times in {name}, at lines {}", lines_of(&file.text, &places));
            return Err(ToolError::Advised {
                text: format!(
                    "`old_string` {occurs}; add surrounding lines to make it unique, or set replace_all"
                ),
                shown: format!("the text to replace {occurs}"),
            });
        }
        _ if seen == KnownContent::Unknown && !is_decided(ctx) => {
            return Err(advised(format!("{name} was not read"), "Read it before using replace_all"));
        }
        _ => {}
    }
    let text = if call.all { file.text.replace(&old, &new) } else { file.text.replacen(&old, &new, 1) };
    let after = file.encode(&text);
    if after == *bytes {
        return Err(invalid("`old_string` and `new_string` differ only in line ends, which are preserved"));
    }
    Ok(PlannedChange { subject, after })
}

/// Returns the two texts with the file's own line endings: models write `\n` whatever the file uses.
fn wording(file: &TextFile, old: &str, new: &str) -> (String, String) {
    let crlf = || (to_crlf(old), to_crlf(new));
    match file.ending {
        LineEnding::Lf => (old.into(), new.into()),
        LineEnding::Crlf => crlf(),
        LineEnding::Mixed if file.text.contains(old) => (old.into(), new.into()),
        LineEnding::Mixed => crlf(),
    }
}

/// Returns where a text starts, including overlapping places: `aa` occurs twice in `aaa`.
fn places(text: &str, old: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(old) {
        found.push(from + at);
        let step = text[from + at..].chars().next().map_or(1, char::len_utf8);
        from += at + step;
    }
    found
}

fn lines_of(text: &str, places: &[usize]) -> String {
    let mut lines: Vec<_> = places
        .iter()
        .take(MAX_PLACES)
        .map(|at| (text[..*at].matches('\n').count() + 1).to_string())
        .collect();
    if places.len() > MAX_PLACES {
        lines.push("…".into());
    }
    lines.join(", ")
}

#[async_trait]
impl Tool for Edit {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("edit.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "file_path": {"type": "string"},
                    "old_string": {"type": "string"},
                    "new_string": {"type": "string"},
                    "replace_all": {"type": "boolean"}
                },
                "required": ["file_path", "old_string", "new_string"]
            }))
            .with_category("file")
            .with_class(ToolClass::Verifiable)
            .with_primary_argument("file_path")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        parse(args).map(|_| ())
    }

    async fn preview(&self, args: &Value, ctx: &ToolCallContext) -> Result<Vec<FilePreview>, ToolError> {
        change::preview(&self.env, plan, args, ctx).await
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        change::make(&self.env, (NAME, plan), args, ctx).await
    }
}
