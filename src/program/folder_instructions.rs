//! `AGENTS.md` below the working directory: read when a file of its folder is first read or changed, and kept before the
//! model for the rest of the conversation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use crate::config::{InstructionPlaces, Instructions, MAX_INSTRUCTIONS};
use crate::contract::context_message::ContextMessage;
use crate::contract::path_policy::PathPolicies as _;
use crate::contract::workspace::Workspace;
use crate::phase::{AddContextMessage, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar};
use crate::plugins::permission::Permissions;
use crate::state::{
    JsonValue, KeyScope, MergeStrategy, Phase, StateCommand, StateError, StateKey, StateKeyOptions,
};

pub(crate) const FOLDER_INSTRUCTIONS_PLUGIN: &str = "folder-instructions";

/// The tools whose file counts as touched.
const TOOLS: [&str; 3] = ["Read", "Edit", "Write"];

/// The instructions of folders that the conversation touched, by file.
pub(crate) struct FolderInstructions;

impl StateKey for FolderInstructions {
    const KEY: &'static str = "instructions.folders";
    // Two files of one step may bring the same instructions.
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = BTreeMap<String, String>;
    type Update = (String, String);

    fn apply(value: &mut Self::Value, (file, text): Self::Update) {
        value.entry(file).or_insert(text);
    }
}

/// Reads the instructions of folders that are touched.
pub(crate) struct FolderInstructionsPlugin {
    touch: Touch,
    /// Whether nothing is read or shown.
    is_silent: bool,
}

impl FolderInstructionsPlugin {
    pub(crate) fn new(
        (workspace, config_dir): (&Workspace, &Path),
        start: &Instructions,
        rules: Permissions,
    ) -> Self {
        let used: usize = start.files.iter().map(|file| file.text.len()).sum();
        let touch = Touch {
            workspace: workspace.clone(),
            config_dir: config_dir.to_path_buf(),
            room: MAX_INSTRUCTIONS.saturating_sub(used),
            start: start.files.iter().map(|file| file.path.clone()).collect(),
            rules,
        };
        Self { touch, is_silent: false }
    }

    /// Reads and shows nothing, if so.
    pub(crate) fn silent_if(self, is_silent: bool) -> Self {
        Self { is_silent, ..self }
    }
}

impl Plugin for FolderInstructionsPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(
            FOLDER_INSTRUCTIONS_PLUGIN,
            "adds the instructions of folders below the working directory when they are touched",
        )
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<FolderInstructions>(StateKeyOptions {
            scope: KeyScope::Thread,
            ..StateKeyOptions::default()
        })?;
        if self.is_silent {
            return Ok(());
        }
        registrar.register_hook(Phase::AfterToolExecute, self.touch.clone());
        registrar.register_hook(Phase::BeforeInference, Offer);
        Ok(())
    }
}

#[derive(Clone)]
struct Touch {
    workspace: Workspace,
    config_dir: PathBuf,
    /// Bytes that the instructions of the start leave.
    room: usize,
    /// The files of the start.
    start: BTreeSet<PathBuf>,
    rules: Permissions,
}

impl Touch {
    /// The file of a call that succeeded.
    fn file(&self, ctx: &PhaseContext) -> Option<PathBuf> {
        let info = ctx.tool.as_ref().filter(|info| TOOLS.contains(&info.call.name.as_str()))?;
        ctx.tool_result.as_ref().filter(|result| result.is_success())?;
        let path = info.call.arguments.get("file_path").and_then(JsonValue::as_str)?;
        Some(self.workspace.cwd.join(path))
    }
}

#[async_trait]
impl PhaseHook for Touch {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let Some(file) = self.file(ctx) else { return Ok(command) };
        let known = ctx.state::<FolderInstructions>();
        let used: usize = known.into_iter().flat_map(BTreeMap::values).map(String::len).sum();
        let is_known = |path: &Path| {
            self.start.contains(path)
                || known.is_some_and(|known| known.contains_key(&*path.to_string_lossy()))
        };
        let Workspace { root, cwd, home } = &self.workspace;
        let rules = self.rules.policy(&ctx.agent_spec);
        let may_follow = |real: &Path| crate::program::links::may_follow(rules.as_ref(), real);
        let room = self.room.saturating_sub(used);
        let places = InstructionPlaces {
            config_dir: &self.config_dir,
            home: Some(home),
            root,
            cwd,
            may_follow: &may_follow,
        };
        let found = places.load_below(&file, room, &is_known);
        for warning in &found.warnings {
            tracing::warn!("{warning}");
        }
        for file in found.files {
            command.update::<FolderInstructions>((file.path.to_string_lossy().into_owned(), file.text));
        }
        Ok(command)
    }
}

struct Offer;

#[async_trait]
impl PhaseHook for Offer {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if let Some(text) = ctx.state::<FolderInstructions>().and_then(text_of) {
            command.schedule_action::<AddContextMessage>(ContextMessage::system(
                FOLDER_INSTRUCTIONS_PLUGIN,
                text,
            ))?;
        }
        Ok(command)
    }
}

/// Returns the text for the model, from the outermost folder to the innermost.
fn text_of(files: &BTreeMap<String, String>) -> Option<String> {
    if files.is_empty() {
        return None;
    }
    let file = |(path, text): (&String, &String)| crate::config::InstructionFile {
        path: path.into(),
        text: text.clone(),
        is_cut: false,
    };
    let mut files: Vec<_> = files.iter().map(file).collect();
    files.sort_by_key(|file| file.path.components().count());
    let text = Instructions { files, warnings: Vec::new() }.prompt();
    Some(format!(
        "# Instructions of the project for folders\n\nEach applies to the files in its folder.\n\n{text}"
    ))
}

/// Returns the bytes that a conversation's folder instructions have in each request.
pub(crate) fn size_in(state: &BTreeMap<String, JsonValue>) -> usize {
    let files = state.get(FolderInstructions::KEY).cloned().unwrap_or_default();
    let files: BTreeMap<String, String> = serde_json::from_value(files).unwrap_or_default();
    text_of(&files).map_or(0, |text| text.len())
}
