//! Grep: searches file contents with ripgrep's engine, in process.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};
use ignore::overrides::{Override, OverrideBuilder};
use rustix::fs::FileType;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::args::{CallArgs, invalid};
use super::judged::JudgedError;
use super::paths::{absolute, shown};
use super::walk::{self, Bounds, WalkGuard};
use super::{SearchCall, ToolEnv};
use aye_core::contract::path_policy::PathAccess;
use aye_core::contract::tool::{
    ParsedCall, Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

/// Maximum characters shown of an error about a pattern.
const MAX_ERROR: usize = 1000;
const NAME: &str = "Grep";
const FIELDS: &[&str] =
    &["pattern", "path", "glob", "output_mode", "-i", "-n", "-A", "-B", "-C", "head_limit", "multiline"];
/// Lines of a result when the call does not say.
const LINES: usize = 250;
/// Bytes of a result.
const MAX_TEXT: usize = 40_000;
/// Characters of a line.
const MAX_LINE: usize = 500;
/// Bytes of a pattern.
const MAX_PATTERN: usize = 10_000;
/// Bytes of a glob.
const MAX_GLOB: usize = 4096;
/// Memory for one line, or for one file when a match may span lines.
const MAX_HEAP: usize = 32 << 20;

pub(super) struct Grep {
    pub(super) env: Arc<ToolEnv>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Content,
    Files,
    Count,
}

struct GrepArgs {
    matcher: RegexMatcher,
    path: String,
    glob: Option<String>,
    mode: Mode,
    numbers: bool,
    before: usize,
    after: usize,
    limit: usize,
    multiline: bool,
}

fn parse(args: &Value) -> Result<GrepArgs, ToolError> {
    let args = CallArgs::new(NAME, args, FIELDS)?;
    let pattern = args.text("pattern")?;
    if pattern.is_empty() {
        return Err(invalid("`pattern` is empty; it would match everything"));
    }
    let glob = args.opt_text("glob")?;
    for (name, text, most) in [("pattern", Some(pattern), MAX_PATTERN), ("glob", glob, MAX_GLOB)] {
        if text.is_some_and(|text| text.len() > most) {
            return Err(invalid(format!("`{name}` is longer than {most} bytes")));
        }
    }
    let multiline = args.flag("multiline", false)?;
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(args.flag("-i", false)?).multi_line(true);
    if multiline {
        builder.dot_matches_new_line(true);
    } else {
        builder.crlf(true);
    }
    let matcher = builder.build(pattern).map_err(|error| {
        let error = error.to_string();
        let hint = if error.contains("not allowed") { "; set multiline to match over lines" } else { "" };
        // The message repeats the pattern, however long it is; the reason is at its end.
        let error = error.trim();
        let from = error.char_indices().rev().nth(MAX_ERROR).map_or(0, |(at, _)| at);
        let cut = if from > 0 { "…" } else { "" };
        invalid(format!("`pattern` is not a valid regular expression: {cut}{}{hint}", &error[from..]))
    })?;
    let mode = match args.opt_text("output_mode")? {
        None | Some("files_with_matches") => Mode::Files,
        Some("content") => Mode::Content,
        Some("count") => Mode::Count,
        Some(other) => {
            return Err(invalid(format!(
                "`output_mode` must be content, files_with_matches or count, not {other:?}"
            )));
        }
    };
    let count = |name| -> Result<Option<usize>, ToolError> {
        Ok(args.opt_count(name, 0)?.map(|n| usize::try_from(n).unwrap_or(usize::MAX)))
    };
    let around = count("-C")?.unwrap_or(0);
    Ok(GrepArgs {
        matcher,
        path: args.opt_text("path")?.unwrap_or(".").to_owned(),
        glob: glob.map(str::to_owned),
        mode,
        numbers: args.flag("-n", true)?,
        before: count("-B")?.unwrap_or(around).min(50),
        after: count("-A")?.unwrap_or(around).min(50),
        // 0 is what models write for "all of it", which is bounded by MAX_TEXT.
        limit: count("head_limit")?.map_or(LINES, |n| if n == 0 { usize::MAX } else { n }),
        multiline,
    })
}

/// A file whose reads fail once the time is over, so that one huge file cannot block a search.
struct Bounded<'a> {
    file: File,
    bounds: &'a Bounds,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.bounds.is_over() {
            return Err(io::Error::other("out of time"));
        }
        self.file.read(buf)
    }
}

/// The results so far.
#[derive(Default)]
struct GrepMatches {
    text: String,
    lines: usize,
    files: usize,
    matches: u64,
    full: bool,
}

/// Writes what is found in one file.
struct Printer<'a> {
    call: &'a GrepArgs,
    found: &'a mut GrepMatches,
    name: &'a str,
    bounds: &'a Bounds,
    count: u64,
    /// The file was named above its lines.
    is_named: bool,
}

impl Printer<'_> {
    fn line(&mut self, line: &str) {
        // Lines come below the name of their file, which counts as none of them.
        let heading = match self.call.mode {
            Mode::Content if !self.is_named => {
                let gap = if self.found.text.is_empty() { "" } else { "\n" };
                format!("{gap}{}\n", self.name)
            }
            Mode::Content | Mode::Files | Mode::Count => String::new(),
        };
        let size = self.found.text.len() + heading.len() + line.len();
        if self.found.lines >= self.call.limit || size > MAX_TEXT {
            self.found.full = true;
            return;
        }
        self.is_named = true;
        self.found.lines += 1;
        self.found.text.push_str(&heading);
        self.found.text.push_str(line);
        self.found.text.push('\n');
    }

    fn lines(&mut self, bytes: &[u8], number: Option<u64>, mark: char) {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        for (line, at) in bytes.split(|b| *b == b'\n').zip(0..) {
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
            let line = match line.char_indices().nth(MAX_LINE) {
                Some((cut, _)) => format!("{} [… {} more bytes]", &line[..cut], line.len() - cut),
                None => line.into_owned(),
            };
            let number = number.filter(|_| self.call.numbers).map(|n| format!("{}{mark} ", n + at));
            self.line(&format!("{}{line}", number.unwrap_or_default()));
        }
    }
}

impl Sink for Printer<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.count += 1;
        match self.call.mode {
            Mode::Files => return Ok(false),
            Mode::Count => {}
            Mode::Content => self.lines(found.bytes(), found.line_number(), ':'),
        }
        Ok(!self.found.full && !self.bounds.is_over())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        if self.call.mode == Mode::Content && *context.kind() != SinkContextKind::Other {
            self.lines(context.bytes(), context.line_number(), '-');
        }
        Ok(!self.found.full)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        if self.call.mode == Mode::Content {
            self.line("--");
        }
        Ok(!self.found.full)
    }
}

fn search_file(
    env: &ToolEnv,
    call: &GrepArgs,
    searcher: &mut Searcher,
    path: &Path,
    file: File,
    bounds: &Bounds,
    found: &mut GrepMatches,
) {
    let name = shown(&env.workspace, path);
    let mut printer = Printer { call, found, name: &name, bounds, count: 0, is_named: false };
    if let Err(error) = searcher.search_reader(&call.matcher, Bounded { file, bounds }, &mut printer) {
        // The file was searched up to the error.
        tracing::debug!(%error, file = name, "a file was not searched to its end");
    }
    let count = printer.count;
    if count == 0 {
        return;
    }
    printer.found.files += 1;
    printer.found.matches += count;
    match call.mode {
        Mode::Files => printer.line(&name),
        Mode::Count => printer.line(&format!("{name}:{count}")),
        Mode::Content => {}
    }
}

/// Opens the file that a call names.
fn file(env: &ToolEnv, ctx: &ToolCallContext, real: &Path, name: &str) -> Result<File, JudgedError> {
    let place = env.place(ctx, real, PathAccess::Read)?;
    if FileType::from_raw_mode(place.stat()?.st_mode) != FileType::RegularFile {
        let text = format!("{name} is neither a file nor a folder");
        return Err(ToolError::ExecutionFailed(text).into());
    }
    let file = place.open_regular()?;
    env.must_not_be_known(ctx, &file.metadata()?, Path::new(""), PathAccess::Read)?;
    Ok(file)
}

/// The files that `glob` selects.
fn overrides(root: &Path, glob: &str) -> Result<Override, ToolError> {
    let unreadable = |error: ignore::Error| {
        let error: String = error.to_string().chars().take(MAX_ERROR).collect();
        invalid(format!("invalid `glob`: {error}"))
    };
    let mut overrides = OverrideBuilder::new(root);
    overrides.add(glob).map_err(unreadable)?;
    overrides.build().map_err(unreadable)
}

fn grep(
    env: &ToolEnv,
    ctx: &ToolCallContext,
    call: &GrepArgs,
    cancel: CancellationToken,
) -> Result<ToolResult, ToolError> {
    let root = absolute(&env.workspace, "path", &call.path)?;
    let name = shown(&env.workspace, &root);
    let refused = |error: JudgedError| {
        error.or(&name, |error| match error.kind() {
            io::ErrorKind::NotFound => ToolError::NotFound(format!("{name} does not exist")),
            _ => ToolError::ExecutionFailed(format!("cannot search {name}: {error}")),
        })
    };
    let real = env.resolve_judged(ctx, &root).map_err(refused)?;
    let bounds = Bounds::new(cancel);
    let mut searcher = SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .line_number(true)
        .before_context(call.before)
        .after_context(call.after)
        .multi_line(call.multiline)
        .line_terminator(if call.multiline { LineTerminator::default() } else { LineTerminator::crlf() })
        .heap_limit(Some(MAX_HEAP))
        .build();
    let mut found = GrepMatches::default();
    let mut over = false;
    let guard = WalkGuard::new(env, ctx, &root);
    match env.open_folder(ctx, &real) {
        Ok(folder) => {
            let overrides = call.glob.as_deref().map(|glob| overrides(&root, glob)).transpose()?;
            let hidden = call.glob.as_deref().is_some_and(|glob| glob.starts_with('.'));
            let walk = walk::walk(folder, &root, hidden, overrides, &bounds, &guard);
            for entry in walk::entries(walk, &bounds, &mut over) {
                if !entry.is_file() || !guard.admits(&entry) {
                    continue;
                }
                let Ok(file) = entry.open() else { continue };
                if guard.admits_open(&entry, &file) {
                    search_file(env, call, &mut searcher, entry.path(), file, &bounds, &mut found);
                }
                if found.full {
                    break;
                }
            }
        }
        Err(JudgedError::Io(error)) if error.kind() == io::ErrorKind::NotADirectory => {
            // The call names it, so the rules about it were asked before.
            let file = file(env, ctx, &real, &name).map_err(refused)?;
            search_file(env, call, &mut searcher, &root, file, &bounds, &mut found);
        }
        Err(error) => return Err(refused(error)),
    }
    over |= bounds.is_over();
    Ok(answer(&found, over, &guard))
}

fn answer(found: &GrepMatches, over: bool, guard: &WalkGuard) -> ToolResult {
    let mut text = found.text.trim_end_matches('\n').to_owned();
    if found.matches == 0 {
        text.push_str("no match");
    }
    if found.full {
        text.push_str("\n[more matches; narrow the search or raise head_limit]");
    }
    text.push_str(&guard.note());
    text.push_str(walk::over_note(over));
    let details = json!({
        "files": found.files,
        "matches": found.matches,
        "truncated": found.full || over,
        "skipped": guard.skipped(),
    });
    ToolResult::text(NAME, text).with_details(details)
}

#[async_trait]
impl Tool for Grep {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("grep.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "regex"},
                    "path": {"type": "string"},
                    "glob": {"type": "string"},
                    "output_mode": {"enum": ["files_with_matches", "content", "count"]},
                    "-i": {"type": "boolean"},
                    "-n": {"type": "boolean"},
                    "-A": {"type": "integer"},
                    "-B": {"type": "integer"},
                    "-C": {"type": "integer"},
                    "head_limit": {"type": "integer"},
                    "multiline": {"type": "boolean"}
                },
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

impl Grep {
    fn call(&self, args: &Value) -> Result<SearchCall<GrepArgs>, ToolError> {
        Ok(SearchCall { env: Arc::clone(&self.env), args: Arc::new(parse(args)?), search: grep })
    }
}
