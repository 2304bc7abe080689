//! The built-in tools: one file each, with the description for the model beside it as .md.
//!
//! [`builtin`] creates them from a [`ToolEnv`], which contains all they know about the world. No tool knows
//! whether it was permitted. Together their names, descriptions and schemas stay below 6,000 bytes, because
//! they are sent with each request.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod apply_patch;
mod args;
mod artifact;
mod ask_user;
mod atomic;
mod background;
mod bash;
mod change;
mod edit;
mod editor_text;
pub mod exec;
mod glob;
mod grep;
mod hint;
mod hunks;
mod judged;
mod lenient;
mod list;
mod masks;
mod matching;
mod misnamed;
mod page;
mod paths;
mod read;
mod sandbox;
mod screen;
mod seen_files;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
pub mod todo;
mod walk;
mod web_fetch;
mod web_net;
mod web_page;
mod web_search;
mod words;
mod write;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

pub use artifact::{FileArtifacts, RESULT_FILES, output_of, result_name};
use aye_core::contract::editor::EditorSlot;
use aye_core::contract::judgement::Profile;
use aye_core::contract::path_policy::PathPolicies;
use aye_core::contract::storage::ArtifactStore;
use aye_core::contract::tool::{
    ParsedCall, Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_core::contract::workspace::Workspace;
use aye_core::state::KeyRegistration;
use aye_files::known::KnownFiles;
pub use aye_http::root_cause;
pub use aye_sandbox::{Dialler, Serving};
pub use bash::refused_line;
use exec::{EnvVars, ExecConfig};
pub use sandbox::{
    Confined, Confinement, NotConfined, ReportedChanges, Sandbox, SandboxFolders, SandboxLimits, Withheld,
};
use seen_files::FileLedger;
pub use web_net::{UrlRefused, public_client};
pub use web_search::{SearchUrl, WebSearchProvider};

/// Creates the builder of an HTTP client: roots, proxies, names. The protection against private addresses is
/// added here.
pub type HttpFactory = Arc<dyn Fn() -> reqwest::ClientBuilder + Send + Sync>;

/// Everything that the tools know about the world; created by the composition root.
#[derive(Clone)]
pub struct ToolEnv {
    /// The workspace of the thread.
    pub workspace: Workspace,
    /// The folder for output that is too long for the model: a folder for each conversation (see [`output_of`]), in it one
    /// file a call. It is created when needed, with mode 0700.
    pub output_dir: PathBuf,
    /// Keeps what is too long for the model and known as a whole, and has what Read does not find in a file: that folder,
    /// unless it is given another store.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// The settings for running programs.
    pub exec: ExecConfig,
    /// The variables that programs may inherit; secrets are filtered out here: see [`exec::child_env`].
    pub variables: EnvVars,
    /// Names of variables that the configuration calls keys: never inherited.
    pub secret_variables: Vec<String>,
    /// Names of variables that the user wants commands to have, in the sandbox, too. A `*` at the end stands for the rest
    /// of the name.
    pub named_variables: Vec<String>,
    /// Makes WebFetch's client, with its first call. `None`: a plain one without a proxy.
    pub http: Option<HttpFactory>,
    /// Hosts that WebFetch may reach although they are not public: `localhost:8080`, `127.0.0.1`.
    pub web_allow_hosts: Vec<String>,
    /// The provider of web searches; without one there is no WebSearch.
    pub web_search: Option<WebSearchProvider>,
    /// The rules about files, for those that a call finds without naming them. `None`: there are no rules.
    pub policies: Option<Arc<dyn PathPolicies>>,
    /// The files that these rules are about, by identity: they are bound by them under any name.
    pub known: Arc<KnownFiles>,
    /// Keeps commands to what their profile allows. `None`: nothing does.
    pub sandbox: Option<Arc<Sandbox>>,
    /// The editor that has files of the workspace open.
    pub editor: EditorSlot,
    /// Whether there is the tool `apply_patch`, for models that are used to change files by patches: each file of one becomes
    /// a call of Edit or Write. Rules about `old_string` and `new_string` do not see such an Edit, so it is refused without
    /// this.
    pub patches: bool,
    ledger: Arc<FileLedger>,
}

impl ToolEnv {
    /// The usual settings, without a supervisor and without any variables.
    pub fn new(workspace: Workspace, output_dir: impl Into<PathBuf>) -> Self {
        let output_dir = output_dir.into();
        Self {
            workspace,
            artifacts: Arc::new(FileArtifacts::new(&output_dir)),
            output_dir,
            exec: ExecConfig::default(),
            variables: EnvVars::new(),
            secret_variables: Vec::new(),
            named_variables: Vec::new(),
            http: None,
            web_allow_hosts: Vec::new(),
            web_search: None,
            policies: None,
            known: Arc::default(),
            sandbox: None,
            editor: EditorSlot::default(),
            patches: false,
            ledger: Arc::default(),
        }
    }

    /// Returns the environment of a program to start outside the sandbox: see [`exec::child_env`]. The variables in `more`
    /// are added, secret or not: they were chosen for this program.
    pub fn child_env<K: Into<OsString>, V: Into<OsString>>(
        &self,
        more: impl IntoIterator<Item = (K, V)>,
    ) -> EnvVars {
        self.with_named(exec::child_env(&self.variables, &self.secret_variables), more)
    }

    /// Returns the environment of a program to start in a profile: in the sandbox, see [`exec::confined_env`], otherwise as
    /// [`ToolEnv::child_env`].
    pub fn env_in<K: Into<OsString>, V: Into<OsString>>(
        &self,
        profile: Option<Profile>,
        more: impl IntoIterator<Item = (K, V)>,
    ) -> EnvVars {
        if self.sandbox.is_none() || matches!(profile, None | Some(Profile::Outside)) {
            return self.child_env(more);
        }
        self.with_named(exec::confined_env(&self.variables, &self.secret_variables), more)
    }

    /// The same for a call, with the variables that its rules name.
    pub fn env_of_call<K: Into<OsString>, V: Into<OsString>>(
        &self,
        profile: Option<Profile>,
        ctx: &ToolCallContext,
        more: impl IntoIterator<Item = (K, V)>,
    ) -> EnvVars {
        let mut env = self.env_in::<OsString, OsString>(profile, []);
        env.extend(exec::named_env(&self.variables, &self.secret_variables, &ctx.opened.env));
        env.extend(more.into_iter().map(|(name, value)| (name.into(), value.into())));
        env
    }

    fn with_named<K: Into<OsString>, V: Into<OsString>>(
        &self,
        mut env: EnvVars,
        more: impl IntoIterator<Item = (K, V)>,
    ) -> EnvVars {
        env.extend(exec::named_env(&self.variables, &self.secret_variables, &self.named_variables));
        env.extend(more.into_iter().map(|(name, value)| (name.into(), value.into())));
        env
    }
}

/// All built-in tools, in the order in which the model reads them.
pub fn builtin(env: ToolEnv) -> Vec<Arc<dyn Tool>> {
    let env = Arc::new(env);
    let search =
        env.web_search.clone().map(|provider| Arc::new(web_search::WebSearch(provider)) as Arc<dyn Tool>);
    let patches: Option<Arc<dyn Tool>> = env.patches.then(|| Arc::new(apply_patch::ApplyPatch) as _);
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(read::Read { env: env.clone() }),
        Arc::new(write::Write { env: env.clone() }),
        Arc::new(edit::Edit { env: env.clone() }),
        Arc::new(list::List { env: env.clone() }),
        Arc::new(glob::Glob { env: env.clone() }),
        Arc::new(grep::Grep { env: env.clone() }),
        Arc::new(bash::Bash { env: env.clone() }),
        Arc::new(background::BashOutput { env: env.clone() }),
        Arc::new(background::BashInput),
        Arc::new(background::KillShell),
        Arc::new(web_fetch::WebFetch::new(env)),
        Arc::new(ask_user::AskUser),
        Arc::new(todo::TodoWrite),
    ];
    tools.extend(search);
    tools.extend(patches);
    tools
}

/// The state keys that the tools write; the composition root registers them.
pub fn state_keys() -> Vec<KeyRegistration> {
    vec![todo::registration()]
}

/// Runs file work on a thread that may block. Its token is cancelled with the call, and when the call's
/// future is dropped; the work checks the token and ends.
async fn blocking<T: Send + 'static>(
    ctx: &ToolCallContext,
    work: impl FnOnce(CancellationToken) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let token = ctx.cancellation.child_token();
    let _guard = token.clone().drop_guard();
    match tokio::task::spawn_blocking(move || work(token)).await {
        Ok(result) => result,
        Err(error) => Err(ToolError::Internal(format!("the tool failed: {error}"))),
    }
}

/// After a cancellation, how long a tool that only reads may take to return what it found so far.
const GRACE: Duration = Duration::from_millis(500);

/// Runs work like [`blocking`] if it changes nothing: after a cancellation the work is abandoned if it hangs
/// in the file system, as on a dead network mount.
async fn looking<T: Send + 'static>(
    ctx: &ToolCallContext,
    work: impl FnOnce(CancellationToken) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let given_up = async {
        ctx.cancellation.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = blocking(ctx, work) => result,
        () = given_up => Err(ToolError::ExecutionFailed("cancelled".into())),
    }
}

/// A call of a tool that only reads files.
struct SearchCall<A> {
    env: Arc<ToolEnv>,
    args: Arc<A>,
    search: fn(&ToolEnv, &ToolCallContext, &A, CancellationToken) -> Result<ToolResult, ToolError>,
}

#[async_trait]
impl<A: Send + Sync + 'static> ParsedCall for SearchCall<A> {
    async fn execute(&self, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let (env, args, call_ctx) = (Arc::clone(&self.env), Arc::clone(&self.args), ctx.clone());
        let search = self.search;
        looking(ctx, move |cancel| Ok(search(&env, &call_ctx, &args, cancel)?.into())).await
    }
}

/// A descriptor with the parts that all built-in tools share.
fn describe(name: &str, description: &str) -> ToolDescriptor {
    ToolDescriptor::new(name, name, description.trim()).with_class(ToolClass::Opaque)
}
