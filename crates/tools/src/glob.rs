//! Glob: finds files by name.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::args::{CallArgs, invalid};
use super::list::{SearchedFolder, folder};
use super::paths::shown;
use super::walk::{self, Bounds, WalkGuard};
use super::{SearchCall, ToolEnv};
use aye_core::contract::tool::{
    ParsedCall, Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

const NAME: &str = "Glob";
const MAX_FILES: usize = 200;
/// Bytes of a pattern.
const MAX_PATTERN: usize = 4096;

/// Finds files by name, the newest first.
pub(super) struct Glob {
    pub(super) env: Arc<ToolEnv>,
}

struct GlobArgs {
    /// The folder that the pattern names literally.
    below: String,
    matcher: GlobSet,
    /// The pattern has no slash: it is about names at any depth.
    names_only: bool,
    hidden: bool,
    /// The pattern is a folder: what is in it matches, folders too.
    is_folder: bool,
    path: String,
}

fn parse(args: &Value) -> Result<GlobArgs, ToolError> {
    let args = CallArgs::new(NAME, args, &["pattern", "path"])?;
    let pattern = args.filled("pattern")?;
    if pattern.contains('\0') {
        return Err(invalid("`pattern` contains a NUL byte"));
    }
    if pattern.len() > MAX_PATTERN {
        return Err(invalid(format!("`pattern` is longer than {MAX_PATTERN} bytes")));
    }
    let (below, mut rest) = split(pattern);
    let is_folder = rest.is_empty();
    if is_folder {
        rest.push('*');
    }
    let unreadable =
        |error: &globset::Error| invalid(format!("invalid `pattern`: {}", short(&error.kind().to_string())));
    let glob = GlobBuilder::new(&rest).literal_separator(true).build().map_err(|error| unreadable(&error))?;
    // A set of one: a matcher alone panics where its expression is too deep or too large.
    let matcher = GlobSetBuilder::new().add(glob).build().map_err(|error| unreadable(&error))?;
    Ok(GlobArgs {
        names_only: !rest.contains('/') && below.is_empty(),
        hidden: rest.split('/').any(|part| part.starts_with('.') || part.starts_with("{.")),
        is_folder,
        below,
        matcher,
        path: args.opt_text("path")?.unwrap_or(".").to_owned(),
    })
}

/// The end of an error's words: they may repeat the whole pattern first.
fn short(error: &str) -> String {
    const MOST: usize = 200;
    let error = error.trim();
    match error.char_indices().rev().nth(MOST) {
        Some((from, _)) => format!("…{}", &error[from..]),
        None => error.to_owned(),
    }
}

/// Splits a pattern into the folder that it names literally and the rest.
fn split(pattern: &str) -> (String, String) {
    let mut pattern = pattern;
    while let Some(rest) = pattern.strip_prefix("./") {
        pattern = rest;
    }
    let parts: Vec<_> = pattern.split('/').collect();
    let special = |part: &str| part.contains(['*', '?', '[', '{', '\\']);
    let literal = parts[..parts.len() - 1].iter().take_while(|part| !special(part)).count();
    let mut below = parts[..literal].join("/");
    if below.is_empty() && literal > 0 {
        below.push('/');
    }
    (below, parts[literal..].join("/"))
}

fn glob(
    env: &ToolEnv,
    ctx: &ToolCallContext,
    call: &GlobArgs,
    cancel: CancellationToken,
) -> Result<ToolResult, ToolError> {
    let mut searched = folder(env, ctx, &call.path)?;
    if !call.below.is_empty() {
        let below = if call.below.starts_with(['/', '~']) {
            call.below.clone()
        } else {
            searched.path.join(&call.below).to_string_lossy().into_owned()
        };
        searched = match folder(env, ctx, &below) {
            Ok(folder) => folder,
            Err(ToolError::NotFound(_)) => return Ok(ToolResult::text(NAME, "no file matches")),
            Err(error) => return Err(error),
        };
    }
    let SearchedFolder { path: base, folder, .. } = searched;
    let bounds = Bounds::new(cancel);
    let mut over = false;
    let mut found: Vec<(SystemTime, PathBuf, bool)> = Vec::new();
    let guard = WalkGuard::new(env, ctx, &base);
    let walk = walk::walk(folder, &base, call.hidden, None, &bounds, &guard);
    for entry in walk::entries(walk, &bounds, &mut over) {
        let is_dir = entry.is_dir();
        let is_listed = if is_dir { call.is_folder && entry.depth() == 1 } else { guard.admits(&entry) };
        if !is_listed || !is_match(call, &base, entry.path()) {
            continue;
        }
        let time =
            entry.metadata().ok().and_then(|meta| meta.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH);
        found.push((time, entry.into_path(), is_dir));
    }
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut text = String::new();
    for (_, path, is_dir) in found.iter().take(MAX_FILES) {
        text.push_str(&shown(&env.workspace, path));
        text.push_str(if *is_dir { "/\n" } else { "\n" });
    }
    if found.is_empty() {
        text.push_str("no file matches");
    } else if found.len() > MAX_FILES {
        let _ = write!(text, "[{} more; narrow the pattern]", found.len() - MAX_FILES);
    }
    over |= bounds.is_over();
    let text = format!("{}{}{}", text.trim_end(), guard.note(), walk::over_note(over));
    let details = json!({
        "count": found.len(),
        "truncated": over || found.len() > MAX_FILES,
        "skipped": guard.skipped(),
    });
    Ok(ToolResult::text(NAME, text).with_details(details))
}

fn is_match(call: &GlobArgs, base: &Path, path: &Path) -> bool {
    if call.names_only {
        return path.file_name().is_some_and(|name| call.matcher.is_match(Path::new(name)));
    }
    path.strip_prefix(base).is_ok_and(|path| call.matcher.is_match(path))
}

#[async_trait]
impl Tool for Glob {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("glob.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {"pattern": {"type": "string"}, "path": {"type": "string"}},
                "required": ["pattern"]
            }))
            .with_category("search")
            .with_class(ToolClass::Pure)
            .with_primary_argument("pattern")
    }

    fn prepare(&self, args: &Value) -> Result<Option<Arc<dyn ParsedCall>>, ToolError> {
        Ok(Some(Arc::new(self.call(args)?)))
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.call(&args)?.execute(ctx).await
    }
}

impl Glob {
    fn call(&self, args: &Value) -> Result<SearchCall<GlobArgs>, ToolError> {
        Ok(SearchCall { env: Arc::clone(&self.env), args: Arc::new(parse(args)?), search: glob })
    }
}
