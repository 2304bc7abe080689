//! What the settings of a start mean for single parts of the program.

use std::sync::Arc;

use crate::config::{ModelSelection, fill_variables};
use crate::contract::clock::Clock;
use crate::contract::spec::ModelEntry;
use crate::plugins::permission::{Mode, Permissions, RuleSet};
use crate::program::checkout::readable_dependencies;
use crate::program::foundation::Foundation;
use crate::tools::{self, ToolEnv};

/// The name of the agent that users talk to.
pub(crate) const AGENT: &str = "aye";

/// Applies rules in the folder and the mode that the settings name. By the clock grants expire.
pub(crate) fn permissions_of(foundation: &Foundation, rules: RuleSet, clock: Arc<dyn Clock>) -> Permissions {
    let (workspace, known) = (foundation.workspace.clone(), foundation.known_files());
    let permissions = Permissions::knowing(workspace, clock, rules, mode_of(foundation), known);
    let policy = foundation.loaded.provenance.policy();
    if let Some((policy, most)) = policy.and_then(|policy| Some((policy, policy.permission_mode()?))) {
        permissions.limit_mode(most, policy.path().display().to_string());
    }
    permissions
}

pub(crate) fn mode_of(foundation: &Foundation) -> Mode {
    foundation.loaded.settings.permission_mode
}

pub(crate) fn entry_of(selection: &ModelSelection) -> ModelEntry {
    ModelEntry { provider: selection.full_name(), model_name: selection.model.clone() }
}

/// Reads who searches the web.
///
/// # Errors
/// What is wrong in the settings: then nobody does.
pub(crate) fn web_search(foundation: &Foundation) -> Result<Option<tools::WebSearchProvider>, String> {
    let settings = &foundation.loaded.settings.web;
    let Some(search) = &settings.search else { return Ok(None) };
    let filled = |(name, value): (&String, &String)| {
        let value = fill_variables(value, &foundation.env).map_err(|error| error.to_string())?;
        Ok((name.clone(), value))
    };
    let headers: Vec<_> = settings.search_headers.iter().map(filled).collect::<Result<_, String>>()?;
    tools::WebSearchProvider::parse(search, &headers).map(Some)
}

pub(crate) fn tool_env(foundation: &Foundation) -> ToolEnv {
    let settings = &foundation.loaded.settings;
    let secret_variables =
        settings.providers.values().filter_map(|provider| provider.api_key_env.clone()).collect();
    let mut env = ToolEnv::new(foundation.workspace.clone(), foundation.paths.output_dir());
    env.exec.supervisor = aye_platform::own_program(&foundation.paths.programs_dir());
    env.exec.max_timeout = env.exec.max_timeout.max(settings.bash.timeout);
    env.exec.default_timeout = settings.bash.timeout;
    env.exec.max_output = usize::try_from(settings.bash.max_output).unwrap_or(usize::MAX);
    env.variables = foundation.env.vars().map(|(name, value)| (name.into(), value.into())).collect();
    env.secret_variables = secret_variables;
    env.named_variables.clone_from(&settings.sandbox.env);
    env.editor = Arc::clone(&foundation.editor);
    env.patches = settings.apply_patch;
    env.web_search = web_search(foundation).ok().flatten();
    // The launcher is found inside of other namespaces, where /proc/self is another process.
    if settings.sandbox.enabled
        && let Ok(own) = std::env::current_exe()
    {
        let path = foundation.env.var("PATH").unwrap_or_default().into();
        let home = foundation.env.home().map(std::path::Path::to_path_buf);
        let sandbox = tools::Sandbox::new(own, home, path, sandbox_folders(foundation));
        env.sandbox = Some(Arc::new(crate::program::dialler::of(sandbox, &foundation.env)));
    }
    env
}

/// The path without `.` and `..`, which does not ask the file system.
fn normalized(path: &std::path::Path) -> std::path::PathBuf {
    let mut normal = std::path::PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(normal.pop()),
            std::path::Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// Returns the folders that sandboxed commands get in addition to the workspace. A folder that does not exist
/// is left out.
fn sandbox_folders(foundation: &Foundation) -> tools::SandboxFolders {
    let settings = &foundation.loaded.settings.sandbox;
    let root = &foundation.workspace.root;
    let path = |text: &String| match (text.strip_prefix("~/"), foundation.env.home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => root.join(text),
    };
    let all = |written: &[String]| -> Vec<std::path::PathBuf> {
        let real = |text: &String| {
            let path = path(text);
            let real = path.canonicalize().ok()?;
            // A link in the project may lead anywhere.
            let leads_out = normalized(&path).starts_with(root) && !real.starts_with(root);
            (!leads_out).then_some(real)
        };
        written.iter().filter_map(real).collect()
    };
    // What the commands of one project downloaded and may have changed is nothing that another one's should build from.
    let project = foundation.project_id();
    tools::SandboxFolders {
        unix_sockets: settings.sockets.iter().map(path).collect(),
        readable: [all(&settings.readable), readable_dependencies(root, &foundation.paths.worktrees_dir())]
            .concat(),
        writable: all(&settings.writable),
        tmp: foundation.paths.cache_dir.join("tmp"),
        caches: foundation.paths.cache_dir.join("packages").join(&project),
        linked: foundation.paths.cache_dir.join("linked").join(&project),
        domains: settings.domains.clone(),
        sockets: foundation.paths.cache_dir.join("net"),
        output: output_dir(foundation),
        project: Some(root.clone()),
        limits: tools::SandboxLimits {
            processes: settings.max_processes,
            memory_percent: settings.max_memory_percent,
            tmp_mib: settings.max_tmp_mib,
        },
        opens_repository: foundation.opens_repository,
        own: foundation.paths.own_folders().into(),
    }
}

/// Returns the folder for long output by its real path: rules resolve symbolic links.
pub(crate) fn output_dir(foundation: &Foundation) -> std::path::PathBuf {
    let dir = foundation.paths.output_dir();
    let real = dir.parent().and_then(|parent| parent.canonicalize().ok());
    real.and_then(|parent| Some(parent.join(dir.file_name()?))).unwrap_or(dir)
}
