//! List: shows what is in a folder.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ToolEnv;
use super::args::CallArgs;
use super::paths::{absolute, escape, shown};
use super::walk::{self, Bounds, WalkGuard};
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

const NAME: &str = "List";
const MAX_ENTRIES: usize = 500;
const MAX_DEPTH: u64 = 10;

/// Shows what is in a folder.
pub(super) struct List {
    pub(super) env: Arc<ToolEnv>,
}

fn parse(args: &Value) -> Result<(&str, usize), ToolError> {
    let args = CallArgs::new(NAME, args, &["path", "depth"])?;
    let depth = args.opt_count("depth", 1)?.unwrap_or(1).min(MAX_DEPTH);
    Ok((args.opt_text("path")?.unwrap_or("."), depth as usize))
}

/// Returns the folder in which a search starts.
pub(super) fn folder(env: &ToolEnv, path: &str) -> Result<(PathBuf, String), ToolError> {
    let folder = absolute(&env.workspace, "path", path)?;
    let name = shown(&env.workspace, &folder);
    match folder.metadata() {
        Ok(meta) if meta.is_dir() => Ok((folder, name)),
        Ok(_) => Err(ToolError::ExecutionFailed(format!("{name} is not a folder"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(ToolError::NotFound(format!("{name} does not exist")))
        }
        Err(error) => Err(ToolError::ExecutionFailed(format!("cannot list {name}: {error}"))),
    }
}

fn line(entry: &ignore::DirEntry, indent: usize) -> String {
    let name = escape(Path::new(entry.file_name()));
    let blanks = "  ".repeat(indent);
    match entry.file_type() {
        Some(kind) if kind.is_dir() => format!("{blanks}{name}/\n"),
        Some(kind) if kind.is_symlink() => {
            let target = std::fs::read_link(entry.path()).map(|t| escape(&t)).unwrap_or_default();
            format!("{blanks}{name} -> {target}\n")
        }
        _ => format!("{blanks}{name}\n"),
    }
}

fn list(
    env: &ToolEnv,
    ctx: &ToolCallContext,
    args: &Value,
    cancel: CancellationToken,
) -> Result<ToolResult, ToolError> {
    let (path, depth) = parse(args)?;
    let (folder, name) = folder(env, path)?;
    let bounds = Bounds::new(cancel);
    let mut over = false;
    let (mut text, mut count, mut top) = (String::new(), 0_usize, 0_usize);
    let guard = WalkGuard::new(env, ctx, &folder);
    let walk = walk::builder(&folder, false, None, &bounds, &guard).max_depth(Some(depth)).build();
    for entry in walk::entries(walk, &bounds, &mut over).filter(|entry| entry.depth() > 0) {
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        if !is_dir && !guard.admits(&entry) {
            continue;
        }
        count += 1;
        top += usize::from(entry.depth() == 1);
        if count <= MAX_ENTRIES {
            text.push_str(&line(&entry, entry.depth() - 1));
        }
    }
    if count > MAX_ENTRIES {
        let _ = writeln!(text, "[{} more; List a subfolder]", count - MAX_ENTRIES);
    }
    let all = std::fs::read_dir(&folder)
        .map_err(|error| ToolError::ExecutionFailed(format!("cannot list {name}: {error}")))?
        .take(100_000)
        .count();
    over |= bounds.is_over();
    let hidden = all.saturating_sub(top + guard.skipped_here());
    if hidden > 0 && !over {
        let _ = writeln!(text, "[{hidden} hidden or ignored]");
    }
    if text.is_empty() && guard.skipped() == 0 {
        text = format!("({name} is empty)");
    }
    let text = format!("{}{}{}", text.trim_end(), guard.note(), walk::over_note(over));
    let text = text.trim_start_matches('\n').to_owned();
    let details = json!({
        "path": folder,
        "count": count,
        "truncated": over || count > MAX_ENTRIES,
        "skipped": guard.skipped(),
    });
    Ok(ToolResult::text(NAME, text).with_details(details))
}

#[async_trait]
impl Tool for List {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("list.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "depth": {"type": "integer", "description": "default 1"}
                }
            }))
            .with_category("search")
            .with_class(ToolClass::Pure)
            .with_primary_argument("path")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        parse(args).map(|_| ())
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let (env, call_ctx) = (self.env.clone(), ctx.clone());
        super::looking(ctx, move |cancel| Ok(list(&env, &call_ctx, &args, cancel)?.into())).await
    }
}
