//! Write: makes a file or replaces all of it.

use std::sync::Arc;

use async_trait::async_trait;
use encoding_rs::UTF_8;
use serde_json::{Value, json};

use super::ToolEnv;
use super::args::{self, CallArgs, advised};
use super::change::{ChangeArgs, ChangeCall, PlannedChange, PlannedFile, is_decided};
use super::edit::encoded;
use super::hint;
use super::seen_files::KnownContent;
use super::text::{LineEnding, TextFile, to_crlf};
use aye_core::contract::tool::{
    ParsedCall, Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput,
};

const NAME: &str = "Write";

/// Makes a file or replaces all of it.
pub(super) struct Write {
    pub(super) env: Arc<ToolEnv>,
}

struct WriteArgs {
    file_path: String,
    content: String,
}

fn parse(args: &Value) -> Result<WriteArgs, ToolError> {
    let args = CallArgs::new(NAME, args, &["file_path", "content"])?;
    Ok(WriteArgs {
        file_path: args.filled("file_path")?.to_owned(),
        content: args.text("content")?.to_owned(),
    })
}

fn plan(env: &ToolEnv, call: &WriteArgs, ctx: &ToolCallContext) -> Result<PlannedChange, ToolError> {
    let content = call.content.as_str();
    let subject = PlannedFile::inspect(env, &call.file_path)?;
    let name = &subject.name;
    let (after, encoding) = match &subject.before {
        None => (content.as_bytes().to_vec(), UTF_8),
        Some(bytes) => {
            match subject.seen(env, ctx) {
                // A user who decided saw the diff against the current file, and is asked again if the file
                // changes once more.
                KnownContent::Stale if !is_decided(ctx) => {
                    let what = format!("{name} changed since it was read");
                    let text = TextFile::decode(bytes).map(|file| file.text).ok();
                    let changed = subject.seen_text(env, ctx).zip(text);
                    let changed = changed.and_then(|(seen, text)| hint::changed(&seen, &text));
                    let changed = changed.map(|lines| format!("; what changed:{lines}")).unwrap_or_default();
                    return Err(advised(
                        what,
                        &format!("Read it again before replacing it, or use Edit{changed}"),
                    ));
                }
                KnownContent::Unknown if !is_decided(ctx) && *bytes != content.as_bytes() => {
                    let text = format!("{name} exists; Read it before replacing it, or use Edit");
                    return Err(ToolError::Advised {
                        text,
                        shown: format!("{name} exists and was not read"),
                    });
                }
                KnownContent::Stale | KnownContent::Unknown | KnownContent::Current => {}
            }
            let old = TextFile::decode(bytes).map_err(|why| {
                ToolError::ExecutionFailed(format!("{name} is not UTF-8 text and cannot be replaced: {why}"))
            })?;
            let crlf = (old.ending == LineEnding::Crlf && !content.contains('\r')).then(|| to_crlf(content));
            (encoded(&old, crlf.as_deref().unwrap_or(content), name)?, old.encoding)
        }
    };
    Ok(PlannedChange { subject, after, encoding, is_known: true, note: None })
}

#[async_trait]
impl Tool for Write {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("write.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
                "required": ["file_path", "content"]
            }))
            .with_category("file")
            .with_class(ToolClass::Verifiable)
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

impl Write {
    fn call(&self, args: &Value) -> Result<ChangeCall<WriteArgs>, ToolError> {
        Ok(ChangeCall { env: Arc::clone(&self.env), args: Arc::new(parse(args)?) })
    }
}

impl ChangeArgs for WriteArgs {
    const TOOL: &'static str = NAME;

    fn file_path(&self) -> &str {
        &self.file_path
    }

    fn plan(&self, env: &ToolEnv, ctx: &ToolCallContext) -> Result<PlannedChange, ToolError> {
        plan(env, self, ctx)
    }
}
