//! Edit: replaces a text in a file.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::ToolEnv;
use super::args::{self, CallArgs, advised, invalid};
use super::change::{ChangeArgs, ChangeCall, ChangeNote, PlannedChange, PlannedFile, is_decided};
use super::hint;
use super::hunks::PatchArgs;
use super::matching;
use super::misnamed;
use super::seen_files::KnownContent;
use super::text::TextFile;
use aye_core::contract::tool::{
    ParsedCall, Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput,
};

pub(super) const NAME: &str = "Edit";
/// Maximum places listed when a text occurs more than once.
const MAX_PLACES: usize = 10;
/// Lines that show what an edit made of a text that was not quoted exactly.
const NOTED_LINES: usize = 3;
/// Maximum places whose surroundings are shown.
const MAX_SURROUNDINGS: usize = 5;
/// Maximum lines shown before a place.
const MAX_BEFORE: usize = 4;

/// Replaces a text in a file.
pub(super) struct Edit {
    pub(super) env: Arc<ToolEnv>,
}

struct EditArgs {
    file_path: String,
    old: String,
    new: String,
    all: bool,
}

fn parse(args: &Value) -> Result<EditArgs, ToolError> {
    let args = CallArgs::new(NAME, args, &["file_path", "old_string", "new_string", "replace_all"])?;
    let call = EditArgs {
        file_path: args.filled("file_path")?.to_owned(),
        old: args.text("old_string")?.to_owned(),
        new: args.text("new_string")?.to_owned(),
        all: args.flag("replace_all", false)?,
    };
    if call.old.is_empty() {
        return Err(invalid(
            "`old_string` is empty; quote the text to replace, or use Write to create a file",
        ));
    }
    if call.old == call.new {
        return Err(invalid("`old_string` and `new_string` are the same; nothing would change"));
    }
    Ok(call)
}

fn failed(message: String) -> ToolError {
    ToolError::ExecutionFailed(message)
}

fn plan(env: &ToolEnv, call: &EditArgs, ctx: &ToolCallContext) -> Result<PlannedChange, ToolError> {
    let subject = PlannedFile::inspect(env, &call.file_path)?;
    let name = &subject.name;
    let Some(bytes) = &subject.before else {
        let meant = misnamed::did_you_mean(env, ctx, &subject.real);
        return Err(advised(
            format!("{name} does not exist"),
            meant.as_deref().unwrap_or("use Write to create it"),
        ));
    };
    let seen = subject.seen(env, ctx);
    let file = TextFile::decode(bytes)
        .map_err(|why| failed(format!("{name} is not UTF-8 text and cannot be edited: {why}")))?;
    let mut places = matching::find(&file.text, &call.old, &call.new);
    // A user who decided saw the diff against the current file, and is asked again if the file changes once more. Without
    // one, the text itself is the proof, if it is there exactly and once.
    let is_stale = seen == KnownContent::Stale && !is_decided(ctx);
    if is_stale && (places.len() != 1 || call.all) {
        return Err(stale(name, call, (&file.text, &places), subject.seen_text(env, ctx).as_deref()));
    }
    let mut ignoring = None;
    if places.is_empty()
        && let Some((place, ignored)) = matching::find_lenient(&file.text, &call.old, &call.new)
    {
        places.push(place);
        ignoring = Some(ignored);
    }
    match places.len() {
        0 => {
            let text = match hint::already(&file.text, &call.new) {
                Some(line) => format!(
                    "`old_string` is not in {name}, but `new_string` is, at line {line}: the change may be there already"
                ),
                None => format!("`old_string` is not in {name}{}", hint::nearest(&file.text, &call.old)),
            };
            return Err(ToolError::Advised { text, shown: format!("the text to replace is not in {name}") });
        }
        1 => {}
        count if !call.all => {
            let occurs = occurs(count, name, &file.text, &places);
            return Err(ToolError::Advised {
                text: format!(
                    "`old_string` {occurs}; {UNIQUE}, or set replace_all{}",
                    surroundings(&file.text, &places)
                ),
                shown: format!("the text to replace {occurs}"),
            });
        }
        _ if seen == KnownContent::Unknown && !is_decided(ctx) => {
            return Err(advised(format!("{name} was not read"), "Read it before using replace_all"));
        }
        _ => {}
    }
    let text = matching::replaced(&file.text, &places);
    let after = encoded(&file, &text, name)?;
    if after == *bytes {
        return Err(invalid("`old_string` and `new_string` differ only in line ends, which are preserved"));
    }
    let start = places.first().map_or(0, |place| place.range.start);
    let note = match ignoring {
        Some(ignored) => Some(format!("matched ignoring {ignored}")),
        None => is_stale.then(|| "the file had changed since it was read".to_owned()),
    };
    let note =
        note.map(|shown| ChangeNote { shown, lines: numbered(&text, text[..start].matches('\n').count()) });
    Ok(PlannedChange { subject, after, encoding: file.encoding, is_known: !is_stale, note })
}

/// Some lines of a text from this one on, as Read shows them.
pub(super) fn numbered(text: &str, from: usize) -> String {
    hint::numbered(text.lines().enumerate().skip(from).take(NOTED_LINES))
}

/// What a model can do about a text that occurs more than once.
pub(super) const UNIQUE: &str = "add surrounding lines to make it unique";

fn occurs(count: usize, name: &str, text: &str, places: &[matching::Replacement]) -> String {
    format!("occurs {count} times in {name}, at lines {}", lines_of(text, places))
}

/// Refuses an edit of a file that is not what the model saw, with what it needs to try again: where the text may be now, and
/// the lines that changed.
fn stale(
    name: &str,
    call: &EditArgs,
    (text, places): (&str, &[matching::Replacement]),
    seen: Option<&str>,
) -> ToolError {
    let shown = format!("{name} changed since it was read");
    if call.all {
        return advised(shown, "Read it again before using replace_all");
    }
    let changed = seen.and_then(|seen| hint::changed(seen, text));
    let found = if places.is_empty() {
        // What was quoted rightly is among the lines that changed.
        let was_there = seen.is_some_and(|seen| !matching::find(seen, &call.old, &call.new).is_empty());
        let near = match (was_there && changed.is_some(), hint::already(text, &call.new)) {
            (_, Some(line)) => {
                format!(", but `new_string` is, at line {line}: the change may be there already")
            }
            (true, None) => String::new(),
            (false, None) => hint::nearest(text, &call.old),
        };
        if near.is_empty() && changed.is_none() {
            return advised(shown, "Read it again");
        }
        format!("is not in it now{near}")
    } else {
        let occurs = occurs(places.len(), "it now", text, places);
        format!("{occurs}; {UNIQUE}{}", surroundings(text, places))
    };
    let changed = changed.map(|lines| format!("\nwhat changed:{lines}")).unwrap_or_default();
    ToolError::Advised { text: format!("{shown}: `old_string` {found}{changed}"), shown }
}

/// The lines before each place, as many as tell the places apart, and its first.
pub(super) fn surroundings(text: &str, places: &[matching::Replacement]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let at = |place: &matching::Replacement| text[..place.range.start].matches('\n').count();
    let at: Vec<usize> = places.iter().take(MAX_SURROUNDINGS).map(at).collect();
    let before = |at: usize, count: usize| &lines[at.saturating_sub(count)..at.min(lines.len())];
    let is_enough = |count: &usize| {
        let mut known = HashSet::new();
        at.iter()
            .all(|at| known.insert(before(*at, *count).iter().map(|line| line.trim()).collect::<Vec<_>>()))
    };
    let count = (1..=MAX_BEFORE).find(is_enough).unwrap_or(1);
    let around = at.iter().map(|at| {
        let before = at.saturating_sub(count);
        hint::numbered(lines.iter().copied().enumerate().skip(before).take(at - before + 1))
    });
    around.collect::<Vec<_>>().join("\n--")
}

/// Returns the bytes of a file with another text.
pub(super) fn encoded(file: &TextFile, text: &str, name: &str) -> Result<Vec<u8>, ToolError> {
    file.encode(text).map_err(|c| {
        let encoding = file.encoding.name();
        failed(format!(
            "{name} is {encoding}, which does not have `{c}` (U+{:04X}); nothing was written. Use other characters, or \
             convert the file to UTF-8 first",
            u32::from(c)
        ))
    })
}

pub(super) fn lines_of(text: &str, places: &[matching::Replacement]) -> String {
    let mut lines: Vec<_> = places
        .iter()
        .take(MAX_PLACES)
        .map(|place| (text[..place.range.start].matches('\n').count() + 1).to_string())
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

    fn settle_args(&self, args: &mut Value) {
        args::rename(args, &args::FILE_PATH);
        args::rename(args, &[("old_str", "old_string"), ("new_str", "new_string")]);
    }

    fn prepare(&self, args: &Value) -> Result<Option<Arc<dyn ParsedCall>>, ToolError> {
        Ok(Some(self.call(args)?))
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.call(&args)?.execute(ctx).await
    }
}

impl Edit {
    fn call(&self, args: &Value) -> Result<Arc<dyn ParsedCall>, ToolError> {
        let env = Arc::clone(&self.env);
        // A part of a patch: see `apply_patch`. The schema does not offer it.
        if self.env.patches && args.get("patch").is_some() {
            return Ok(Arc::new(ChangeCall { env, args: Arc::new(PatchArgs::parse(args)?) }));
        }
        Ok(Arc::new(ChangeCall { env, args: Arc::new(parse(args)?) }))
    }
}

impl ChangeArgs for EditArgs {
    const TOOL: &'static str = NAME;

    fn file_path(&self) -> &str {
        &self.file_path
    }

    fn plan(&self, env: &ToolEnv, ctx: &ToolCallContext) -> Result<PlannedChange, ToolError> {
        plan(env, self, ctx)
    }
}
