//! Read: shows a page of a text file, or a picture.

use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Cursor, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use rustix::fs::FileType;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ToolEnv;
use super::args::{self, CallArgs, advised};
use super::artifact::is_output;
use super::atomic::{MAX_FILE, special_kind};
use super::change::note;
use super::misnamed;
use super::page::{self, FilePage};
use super::paths::{absolute, shown};
use super::text::{TextFile, binary_kind, is_unsaved};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::image::{ImageError, ImageFormat, ImageRef, MAX_IMAGE_BYTES};
use aye_core::contract::path_policy::PathAccess;
use aye_core::contract::tool::{
    ParsedCall, Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

const NAME: &str = "Read";
const LINES: usize = 2000;

/// Shows a page of a text file, or a picture.
pub(super) struct Read {
    pub(super) env: Arc<ToolEnv>,
}

struct ReadArgs {
    file_path: String,
    offset: usize,
    limit: usize,
}

fn parse(args: &Value) -> Result<ReadArgs, ToolError> {
    let args = CallArgs::new(NAME, args, &["file_path", "offset", "limit"])?;
    let count = |name, min| -> Result<Option<usize>, ToolError> {
        Ok(args.opt_count(name, min)?.map(|n| usize::try_from(n).unwrap_or(usize::MAX)))
    };
    Ok(ReadArgs {
        file_path: args.filled("file_path")?.to_owned(),
        // Line 0 is what some models call the first one.
        offset: count("offset", 0)?.unwrap_or(1).max(1),
        limit: count("limit", 1)?.unwrap_or(LINES),
    })
}

fn refuse(message: String) -> ToolError {
    ToolError::ExecutionFailed(message)
}

/// Opens a regular file; anything else is refused by what it is, without opening it. Returns where its path leads, too.
fn open(
    env: &ToolEnv,
    ctx: &ToolCallContext,
    path: &Path,
    name: &str,
) -> Result<(File, Metadata, PathBuf), ToolError> {
    let failed = |error: io::Error| refuse(format!("cannot read {name}: {error}"));
    let real = env.resolve_judged(ctx, path).map_err(|error| {
        error.or(name, |error| match error.kind() {
            io::ErrorKind::NotFound if path.symlink_metadata().is_ok() => {
                ToolError::NotFound(format!("{name} is a link to a missing file"))
            }
            io::ErrorKind::NotFound => {
                let meant = misnamed::did_you_mean(env, ctx, path).map(|meant| format!("; {meant}"));
                ToolError::NotFound(format!("{name} does not exist{}", meant.unwrap_or_default()))
            }
            _ => failed(error),
        })
    })?;
    if aye_platform::is_of_a_process(&real) {
        // `environ` of aye itself contains the keys of providers.
        return Err(refuse(format!("{name} belongs to a process and is not shown")));
    }
    env.must_not_be_denied(ctx, &real, PathAccess::Read)?;
    let opened = env.place(ctx, &real, PathAccess::Read).and_then(|place| {
        regular(FileType::from_raw_mode(place.stat()?.st_mode), &real, name)?;
        let file = place.open_regular()?;
        let meta = file.metadata()?;
        env.must_not_be_known(ctx, &meta, Path::new(""), PathAccess::Read)?;
        Ok((file, meta))
    });
    let (file, meta) = opened.map_err(|error| error.or(name, failed))?;
    Ok((file, meta, real))
}

fn regular(kind: FileType, real: &Path, name: &str) -> Result<(), ToolError> {
    let is_device = real.starts_with("/dev") && !real.starts_with("/dev/shm");
    match kind {
        FileType::Directory => Err(advised(format!("{name} is a folder"), "use List")),
        FileType::RegularFile if !is_device => Ok(()),
        FileType::Symlink => Err(ToolError::Moved(format!("{name} is now a link"))),
        FileType::Fifo | FileType::Socket => {
            Err(refuse(format!("{name} is {}, not a regular file", special_kind(kind))))
        }
        _ => Err(refuse(format!("{name} is a device, not a regular file"))),
    }
}

/// Reads a file, or the text that the editor has of it.
fn read(
    env: &ToolEnv,
    call: &ReadArgs,
    ctx: &ToolCallContext,
    open_text: Option<String>,
    cancel: &CancellationToken,
) -> Result<ToolResult, ToolError> {
    let path = absolute(&env.workspace, "file_path", &call.file_path)?;
    let name = shown(&env.workspace, &path);
    env.must_not_be_denied(ctx, &path, PathAccess::Read)?;
    let (mut file, meta, real) = open(env, ctx, &path, &name)?;
    let failed = |error: io::Error| refuse(format!("cannot read {name}: {error}"));
    let mut head = Vec::with_capacity(8192);
    file.by_ref().take(8192).read_to_end(&mut head).map_err(failed)?;
    if ImageFormat::of(&head).is_some() {
        return image(file, head, meta.len(), &name);
    }
    if head.len() == 8192 && head.iter().all(|b| *b == 0) {
        let text = format!(
            "[truncated: {name} has {} bytes and starts with NUL bytes; no text to show]",
            meta.len()
        );
        return Ok(ToolResult::text(NAME, text).with_details(json!({"truncated": true, "size": meta.len()})));
    }
    if let Some(kind) = binary_kind(&head) {
        return Err(refuse(format!("{name} is {kind}, {} bytes; it is not shown as text", meta.len())));
    }
    let mut encoding = None;
    let page = if meta.len() <= MAX_FILE {
        let mut bytes = head;
        file.by_ref().take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
        if let Some(text) = open_text.filter(|text| is_unsaved(text, &bytes)) {
            bytes = text.into_bytes();
        }
        note(env, ctx, &real, &bytes);
        if let Ok(file) = TextFile::decode(&bytes)
            && let Some(name) = file.other_encoding()
        {
            encoding = Some(name);
            bytes = file.text.into_bytes();
        }
        page::read(&mut Cursor::new(bytes), call.offset, call.limit, true, cancel)
    } else {
        file.rewind().map_err(failed)?;
        let mut reader: Box<dyn BufRead> = Box::new(BufReader::with_capacity(64 << 10, file));
        page::read(&mut reader, call.offset, call.limit, false, cancel)
    }
    .map_err(failed)?;
    answer(&name, call, &page, encoding)
}

fn answer(
    name: &str,
    call: &ReadArgs,
    page: &FilePage,
    encoding: Option<&str>,
) -> Result<ToolResult, ToolError> {
    if page.shown == 0 {
        if page.first_missing == 1 && page.ended {
            return Ok(ToolResult::text(NAME, format!("({name} is empty)")));
        }
        let message = if page.ended {
            format!("{name} has only {} lines; line {} does not exist", page.first_missing - 1, call.offset)
        } else {
            format!("{name} is too long: line {} was not reached in time", call.offset)
        };
        return Err(refuse(message));
    }
    let mut text = page.text.clone();
    let last = call.offset + page.shown - 1;
    if page.more {
        let of = page.total.map_or_else(String::new, |total| format!(" of {total}"));
        let _ = writeln!(
            text,
            "[truncated: lines {}-{last}{of}; continue with offset {}]",
            call.offset,
            last + 1
        );
    }
    if let Some(encoding) = encoding {
        let _ = writeln!(text, "[{encoding}, not UTF-8; Edit and Write keep this encoding]");
    }
    if page.lossy {
        text.push_str("[not UTF-8: undecodable bytes are shown as \u{fffd}; this file cannot be edited]\n");
    }
    if Path::new(name).extension().is_some_and(|e| e.eq_ignore_ascii_case("ipynb")) {
        text.push_str("[notebook, shown as JSON]\n");
    }
    let details = json!({"lines": page.shown, "first": call.offset, "total": page.total, "truncated": page.more || page.cut});
    Ok(ToolResult::text(NAME, text.trim_end_matches('\n')).with_details(details))
}

fn image(file: File, head: Vec<u8>, size: u64, name: &str) -> Result<ToolResult, ToolError> {
    let refused = |error| refuse(format!("{name} is not shown: {error}"));
    if size > MAX_IMAGE_BYTES {
        return Err(refused(ImageError::Heavy(size)));
    }
    let mut bytes = head;
    file.take(MAX_IMAGE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| refuse(format!("cannot read {name}: {error}")))?;
    let image = ImageRef::of(name, &bytes).map_err(refused)?;
    let ImageRef { format, width, height, .. } = &image;
    let text = format!("{name}: {}, {width}×{height} pixels, {} bytes", format.media_type(), bytes.len());
    let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
    let mut result = ToolResult::text(NAME, text);
    result.images.push(ContentBlock::image(format.media_type(), data));
    Ok(result)
}

#[async_trait]
impl Tool for Read {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("read.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "file_path": {"type": "string"},
                    "offset": {"type": "integer", "description": "first line"},
                    "limit": {"type": "integer", "description": "lines, default 2000"}
                },
                "required": ["file_path"]
            }))
            .with_category("file")
            .with_class(ToolClass::Pure)
            .with_primary_argument("file_path")
    }

    fn settle_args(&self, args: &mut Value) {
        args::rename(args, &args::FILE_PATH);
    }

    fn prepare(&self, args: &Value) -> Result<Option<Arc<dyn ParsedCall>>, ToolError> {
        Ok(Some(Arc::new(self.call(args)?)))
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.call(&args)?.execute(ctx).await
    }
}

impl Read {
    fn call(&self, args: &Value) -> Result<ReadCall, ToolError> {
        Ok(ReadCall { env: Arc::clone(&self.env), args: Arc::new(parse(args)?) })
    }
}

struct ReadCall {
    env: Arc<ToolEnv>,
    args: Arc<ReadArgs>,
}

#[async_trait]
impl ParsedCall for ReadCall {
    async fn execute(&self, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let (env, args, call_ctx) = (Arc::clone(&self.env), Arc::clone(&self.args), ctx.clone());
        let open_text = env.editor_text_to_show(ctx, &args.file_path).await;
        let work = move |cancel| Ok(read(&env, &args, &call_ctx, open_text, &cancel)?.into());
        match super::looking(ctx, work).await {
            Err(ToolError::NotFound(why)) => match self.kept(ctx).await? {
                Some(result) => Ok(result.into()),
                None => Err(ToolError::NotFound(why)),
            },
            done => done,
        }
    }
}

impl ReadCall {
    /// Shows output of this conversation whose file is on another machine.
    async fn kept(&self, ctx: &ToolCallContext) -> Result<Option<ToolResult>, ToolError> {
        let path = absolute(&self.env.workspace, "file_path", &self.args.file_path)?;
        if !is_output(&path) {
            return Ok(None);
        }
        let name = shown(&self.env.workspace, &path);
        let failed = |error: &dyn std::fmt::Display| refuse(format!("cannot read {name}: {error}"));
        let found = self
            .env
            .artifacts
            .artifact(&ctx.run_identity.thread_id, &path)
            .await
            .map_err(|error| failed(&error))?;
        let Some(content) = found else { return Ok(None) };
        let (offset, limit) = (self.args.offset, self.args.limit);
        let page = page::read(&mut Cursor::new(content), offset, limit, true, &ctx.cancellation)
            .map_err(|error| failed(&error))?;
        answer(&name, &self.args, &page, None).map(Some)
    }
}
