//! `aye acp`: serves an editor.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use aye_acp::{ClientServer, EditorHost, FolderHost, ModelOption, PromptCommand, Refusal, WrittenPart};
use futures::future::BoxFuture;
use reqwest::Url;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::cli::start::StartFlags;
use crate::commands::work::Signals;
use crate::compose::command_files::{self, CommandFile};
use crate::compose::{self, WrittenMessage, images};
use crate::config::{Env, TrustAssessment};
use crate::contract::content::ContentBlock;
use crate::contract::digest::sha256_hex;
use crate::contract::display::visible_line;
use crate::contract::editor::EditorFiles;
use crate::contract::ids::SuspensionId;
use crate::contract::message::Message;
use crate::contract::mode::Mode;
use crate::contract::record::{DecideOutcome, ThreadRecord};
use crate::contract::server::{ServerConfig, ServerScope, ServerTransport, ToolFilter};
use crate::contract::suspension::Answer;
use crate::failure::{AppError, Failure};
use crate::plugins::skills::list_rows;
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::models;
use crate::runtime::AgentRuntime;
use crate::session::{self, AnswerError, AnswerPlace, Reply};

/// The maximum size of a client's message, in bytes: images are the largest.
const MAX_LINE: u64 = 64 << 20;
/// The maximum number of unread messages from the client.
const WAITING: usize = 16;

pub(crate) async fn run(foundation: Foundation, cli: &StartFlags) -> Result<u8, Failure> {
    if std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "`aye acp` is started by an editor and speaks JSON-RPC on stdin and stdout; `aye docs editors` says how to \
             set it up",
        ));
    }
    let _log = crate::logging::to_file(&foundation.paths.log_dir());
    let host = Arc::new(Host { env: foundation.env.clone(), cli: cli.clone() });
    let mut signals = Signals::new();
    let outgoing = futures::sink::unfold(tokio::io::stdout(), |mut out, line: String| async move {
        out.write_all(line.as_bytes()).await?;
        out.write_all(b"\n").await?;
        out.flush().await?;
        Ok(out)
    });
    let incoming = futures::stream::unfold(lines(), |mut lines| async move {
        let line = lines.recv().await?;
        Some((line, lines))
    });
    let version = env!("CARGO_PKG_VERSION");
    let served = aye_acp::serve(host, version, incoming, Box::pin(outgoing), signals.next()).await;
    served.map_err(|why| Failure::failed(format!("the connection to the editor broke: {why}")))?;
    Ok(signals.first().unwrap_or(0))
}

/// Returns the lines of stdin, read by a separate thread: nothing waits for it when the program ends.
fn lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, lines) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while let Some(line) = next_line(&mut input, MAX_LINE).transpose() {
            let is_over = line.is_err();
            if sender.blocking_send(line).is_err() || is_over {
                return;
            }
        }
    });
    lines
}

/// Reads a line without its end; `None` at the end of the input. In place of one that cannot be used, it returns the
/// reason: that is no JSON either, so the client gets a parse error with it, and the session goes on.
fn next_line(input: &mut impl std::io::BufRead, most: u64) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    if input.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if !line.ends_with(b"\n") && line.len() as u64 == most {
        skip_line(input)?;
        return Ok(Some(format!("the message was dropped: it has more than {} MiB", most >> 20)));
    }
    let line = String::from_utf8(line)
        .unwrap_or_else(|error| format!("the message was dropped: {}", error.utf8_error()));
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Skips the rest of a line without keeping it.
fn skip_line(input: &mut impl std::io::BufRead) -> std::io::Result<()> {
    loop {
        let chunk = input.fill_buf()?;
        let (count, is_end) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (chunk.len(), chunk.is_empty()),
        };
        input.consume(count);
        if is_end {
            return Ok(());
        }
    }
}

/// The program before its folder is known.
struct Host {
    env: Env,
    /// The flags of this start.
    cli: StartFlags,
}

impl Host {
    fn foundation(&self, cwd: Option<&Path>) -> Result<(Foundation, StartFlags), Refusal> {
        let mut cli = self.cli.clone();
        if let Some(cwd) = cwd {
            cli.global.cd = Some(cwd.to_path_buf());
        }
        let foundation = Foundation::load(&cli, self.env.clone()).map_err(|e| Refusal::Invalid(e.message))?;
        Ok((foundation, cli))
    }
}

impl EditorHost for Host {
    fn open<'a>(
        &'a self,
        cwd: &'a Path,
        servers: Vec<ClientServer>,
    ) -> BoxFuture<'a, Result<Arc<dyn FolderHost>, Refusal>> {
        Box::pin(async move {
            let (mut foundation, cli) = self.foundation(Some(cwd))?;
            let settings = &foundation.loaded.settings.mcp;
            let (timeout, start_timeout) = (settings.timeout, settings.start_timeout);
            foundation.client_servers.splice(
                0..0,
                servers
                    .into_iter()
                    .map(|ClientServer { name, transport }| {
                        let shown = match &transport {
                            ServerTransport::Stdio { command, .. } => command.clone(),
                            ServerTransport::Http { .. } => "a URL given by the editor".to_owned(),
                        };
                        ServerConfig {
                            scope: ServerScope::Client,
                            place: "the editor".to_owned(),
                            digest: sha256_hex(&shown),
                            name,
                            transport,
                            shown,
                            timeout,
                            start_timeout,
                            revision: None,
                            tools: ToolFilter::default(),
                        }
                    })
                    .collect::<Vec<_>>(),
            );
            let mut warnings = Vec::new();
            warnings.extend(TrustAssessment::ignored_notice(&foundation.untrusted));
            if let Some(why) = models::needs_login(&foundation).await {
                return Err(Refusal::NoModel(why));
            }
            let app = AppContext::build(foundation, &cli).await.map_err(|e| Refusal::Failed(e.message))?;
            warnings.extend(app.warnings.iter().cloned());
            let news: News = Arc::default();
            let server_news = Arc::clone(&news);
            app.mcp.start(move |text| server_news.lock().unwrap_or_else(PoisonError::into_inner).push(text));
            let folder: Arc<dyn FolderHost> = Arc::new(Folder { app, warnings, news });
            Ok(folder)
        })
    }

    fn threads<'a>(&'a self, cwd: Option<&'a Path>) -> BoxFuture<'a, Result<Vec<ThreadRecord>, Refusal>> {
        Box::pin(async move {
            let (foundation, _) = self.foundation(None)?;
            let store = foundation.open_store_to_read().map_err(|e| Refusal::Failed(e.message))?;
            let threads = store.threads_page(cwd, 0, None).await;
            store.close().await;
            let threads = threads.map_err(|error| Refusal::Failed(error.to_string()))?;
            Ok(threads.into_iter().filter(|row| row.messages > 0).map(|row| row.thread).collect())
        })
    }
}

/// The program in one folder.
struct Folder {
    app: AppContext,
    warnings: Vec<String>,
    news: News,
}

/// Messages of MCP servers, stored until a client reads them.
type News = Arc<Mutex<Vec<String>>>;

impl Folder {
    fn resource(&self, uri: &str, text: &str) -> Result<ContentBlock, AppError> {
        let path = file_of(uri);
        let name = path.as_ref().map_or_else(|| uri.into(), |path| path.to_string_lossy());
        if let Some(path) = &path {
            images::may_be_read(&self.app, path, &name)?;
        }
        Ok(ContentBlock::text(format!("[{}]\n\n{text}", visible_line(&name))))
    }
}

fn invalid(error: AppError) -> Refusal {
    Refusal::Invalid(error.to_string())
}

/// The path of a `file:` address.
fn file_of(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()
}

impl FolderHost for Folder {
    fn runtime(&self) -> &AgentRuntime {
        &self.app.runtime
    }

    fn attach_editor(&self, files: Arc<dyn EditorFiles>) {
        // A session has one editor.
        let _ = self.app.foundation.editor.set(files);
    }

    fn cwd(&self) -> PathBuf {
        self.app.foundation.workspace.cwd.clone()
    }

    fn project(&self) -> PathBuf {
        self.app.permission.workspace().root.clone()
    }

    fn mode(&self) -> Mode {
        self.app.permission.mode()
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Refusal> {
        self.app.permission.set_mode(mode).map_err(|why| Refusal::Invalid(why.to_string()))
    }

    fn commands(&self) -> Vec<PromptCommand> {
        let skills = list_rows(&self.app.skills).into_iter().filter(|row| row.user_invocable);
        let skills = skills.map(|row| PromptCommand {
            description: row.summary(),
            name: row.name,
            hint: row.argument_hint,
        });
        let files = command_files::all(&self.app).into_iter();
        let files = files.map(|CommandFile { name, description, hint, .. }| PromptCommand {
            description,
            name,
            hint,
        });
        let mut names = BTreeSet::new();
        skills.chain(files).filter(|command| names.insert(command.name.clone())).collect()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn models(&self) -> Vec<ModelOption> {
        let rows = self.app.model_rows(&models::kept_offers(&self.app.foundation)).into_iter();
        let mut models: Vec<ModelOption> = rows
            .filter(|row| row.unusable.is_none() && !row.name.is_empty())
            .map(|row| ModelOption { name: row.name, is_current: row.is_current })
            .collect();
        if !models.iter().any(|model| model.is_current) {
            models.insert(0, ModelOption { name: self.app.selection().full_name(), is_current: true });
        }
        models
    }

    fn set_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move { self.app.set_model(name).await.map_err(invalid) })
    }

    fn prepare(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            self.app.mcp.settled().await;
            std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    fn message(&self, parts: Vec<WrittenPart>) -> BoxFuture<'_, Result<Message, Refusal>> {
        Box::pin(async move {
            let mut text = String::new();
            let mut goes_with = Vec::new();
            for part in parts {
                match part {
                    WrittenPart::Text(words) => text.push_str(&words),
                    // A mention, as the user types it in the terminal.
                    WrittenPart::Link { name, uri } => match file_of(&uri) {
                        Some(path) => text.extend(["@", &path.to_string_lossy()]),
                        None => text.extend(["[", &name, "](", &uri, ")"]),
                    },
                    WrittenPart::Resource { uri, text } => {
                        goes_with.push(self.resource(&uri, &text).map_err(invalid)?);
                    }
                    WrittenPart::Image(data) => {
                        goes_with.push(images::given(&self.app, &data).await.map_err(invalid)?);
                    }
                }
            }
            let written = WrittenMessage { attached: goes_with, ..WrittenMessage::typed(&text) };
            compose::message(&self.app, written).await.map_err(invalid)
        })
    }

    fn decide<'a>(
        &'a self,
        id: &'a SuspensionId,
        mut answer: Answer,
    ) -> BoxFuture<'a, Result<DecideOutcome, AnswerError>> {
        Box::pin(async move {
            let actor = self.app.actor("acp");
            let mut grant = None;
            if let Some(request) = answer.grant.take() {
                match self.app.checked_grant(request, actor.clone()).await {
                    Ok(checked) => grant = Some(checked),
                    Err(error) => {
                        tracing::warn!(question = %id, %error, "the rule is not granted; the call is allowed once");
                    }
                }
            }
            let reply = Reply { grant, ..Reply::from(answer) };
            let place = AnswerPlace::Runtime(&self.app.runtime);
            Ok(session::answer(place, id, reply, actor).await?.outcome)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.app.mcp.manager.close().await;
            self.app.notifier.finish().await;
            self.app.telemetry.end().await;
            self.app.store.leave().await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::next_line;

    #[test]
    fn an_unusable_line_does_not_end_the_input() {
        let text = [&b"{\"a\":\xff}\r\n"[..], &b"x".repeat(100), &b"\nlast"[..]].concat();
        let mut input = text.as_slice();
        let mut next = || next_line(&mut input, 64).expect("a line");
        assert!(next().expect("a reason").starts_with("the message was dropped: invalid utf-8"));
        assert!(next().expect("a reason").starts_with("the message was dropped: it has more than"));
        assert_eq!((next().as_deref(), next()), (Some("last"), None));
    }
}
