//! List: shows what is in a folder.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::args::CallArgs;
use super::paths::{absolute, escape, shown};
use super::walk::{self, Bounds, WalkGuard};
use super::{SearchCall, ToolEnv};
use aye_core::contract::tool::{
    ParsedCall, Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_files::opener;
use aye_files::walk::WalkEntry;

const NAME: &str = "List";
const MAX_ENTRIES: usize = 500;
const MAX_DEPTH: u64 = 10;
/// Entries of the folder that are counted.
const MAX_COUNTED: usize = 100_000;

/// Shows what is in a folder.
pub(super) struct List {
    pub(super) env: Arc<ToolEnv>,
}

struct ListArgs {
    path: String,
    depth: usize,
}

fn parse(args: &Value) -> Result<ListArgs, ToolError> {
    let args = CallArgs::new(NAME, args, &["path", "depth"])?;
    let depth = args.opt_count("depth", 1)?.unwrap_or(1).min(MAX_DEPTH);
    Ok(ListArgs { path: args.opt_text("path")?.unwrap_or(".").to_owned(), depth: depth as usize })
}

/// A folder in which a search starts.
pub(super) struct SearchedFolder {
    /// As the call names it.
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) folder: OwnedFd,
}

/// Opens the folder in which a search starts.
pub(super) fn folder(env: &ToolEnv, ctx: &ToolCallContext, path: &str) -> Result<SearchedFolder, ToolError> {
    let path = absolute(&env.workspace, "path", path)?;
    let name = shown(&env.workspace, &path);
    let opened = env.resolve_judged(ctx, &path).and_then(|real| env.open_folder(ctx, &real));
    let folder = opened.map_err(|error| {
        error.or(&name, |error| match error.kind() {
            std::io::ErrorKind::NotFound => ToolError::NotFound(format!("{name} does not exist")),
            std::io::ErrorKind::NotADirectory => {
                ToolError::ExecutionFailed(format!("{name} is not a folder"))
            }
            _ => ToolError::ExecutionFailed(format!("cannot list {name}: {error}")),
        })
    })?;
    Ok(SearchedFolder { path, name, folder })
}

fn line(entry: &WalkEntry, indent: usize) -> String {
    let name = escape(Path::new(entry.file_name()));
    let blanks = "  ".repeat(indent);
    if entry.is_dir() {
        format!("{blanks}{name}/\n")
    } else if entry.is_symlink() {
        let target = entry.link_target().map(|target| escape(&target)).unwrap_or_default();
        format!("{blanks}{name} -> {target}\n")
    } else {
        format!("{blanks}{name}\n")
    }
}

fn list(
    env: &ToolEnv,
    ctx: &ToolCallContext,
    call: &ListArgs,
    cancel: CancellationToken,
) -> Result<ToolResult, ToolError> {
    let SearchedFolder { path, name, folder } = folder(env, ctx, &call.path)?;
    let bounds = Bounds::new(cancel);
    let mut over = false;
    let (mut text, mut count, mut top) = (String::new(), 0_usize, 0_usize);
    let guard = WalkGuard::new(env, ctx, &path);
    let all = opener::count(&folder, MAX_COUNTED)
        .map_err(|error| ToolError::ExecutionFailed(format!("cannot list {name}: {error}")))?;
    let walk = walk::walk(folder, &path, false, None, &bounds, &guard).max_depth(call.depth);
    for entry in walk::entries(walk, &bounds, &mut over) {
        if !entry.is_dir() && !guard.admits(&entry) {
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
        "path": path,
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

    fn prepare(&self, args: &Value) -> Result<Option<Arc<dyn ParsedCall>>, ToolError> {
        Ok(Some(Arc::new(self.call(args)?)))
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.call(&args)?.execute(ctx).await
    }
}

impl List {
    fn call(&self, args: &Value) -> Result<SearchCall<ListArgs>, ToolError> {
        Ok(SearchCall { env: Arc::clone(&self.env), args: Arc::new(parse(args)?), search: list })
    }
}
