//! The base of every start: paths, settings, trust.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use aye_files::known::KnownFiles;
use aye_sandbox::common_git_folder;

use crate::cli::start::StartFlags;
use crate::config::{
    Env, InstructionPlaces, Instructions, Loaded, MachinePolicy, Origin, Paths, PluginFolder, Sources,
    TrustAssessment, TrustItem, TrustStore, load, load_session_servers, plugin_folders, project_config_files,
    read_private, repository_root, write_private,
};
use crate::contract::digest::sha256_hex;
use crate::contract::display::visible_line;
use crate::contract::editor::EditorSlot;
use crate::contract::inference::ReasoningEffort;
use crate::contract::path_policy::PathPolicy;
use crate::contract::server::ServerConfig;
use crate::contract::storage::SharedStore;
use crate::contract::workspace::Workspace;
use crate::failure::{AppError, Failure};
use crate::pattern::escape_glob;
use crate::plugins::permission::{Layer, RuleSet, ToolPermissionBehavior, shipped_rules};
use crate::program::checkout::checkout_of;
use crate::program::keyring::Keyring;
use crate::program::links::may_follow;
use crate::program::permit::GateKind;
use crate::program::prompt::GivenPrompt;
use crate::store::{OpenError, OpenErrorKind, Store};

/// The effort level of models, as the user set it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Effort(Arc<RwLock<Option<ReasoningEffort>>>);

impl Effort {
    pub(crate) fn get(&self) -> Option<ReasoningEffort> {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, effort: Option<ReasoningEffort>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = effort;
    }
}

pub(crate) struct Foundation {
    pub(crate) env: Env,
    pub(crate) paths: Paths,
    pub(crate) loaded: Loaded,
    pub(crate) workspace: Workspace,
    pub(crate) is_trusted: bool,
    /// Whether commands may change the repository of a linked worktree.
    pub(crate) opens_repository: bool,
    /// The items that need trust and are not trusted.
    pub(crate) untrusted: Vec<TrustItem>,
    pub(crate) assessment: TrustAssessment,
    pub(crate) warnings: Vec<String>,
    /// Whether nothing is stored.
    pub(crate) is_ephemeral: bool,
    /// Whether only the model, the built-in tools and the rules are used.
    pub(crate) is_bare: bool,
    pub(crate) effort: Effort,
    pub(crate) keyring: Keyring,
    /// MCP servers that the client of a session brings along.
    pub(crate) client_servers: Vec<ServerConfig>,
    /// The user's plugin folders.
    pub(crate) plugins: Vec<PluginFolder>,
    /// The editor that the program serves.
    pub(crate) editor: EditorSlot,
    /// What the command line says to the agent.
    pub(crate) given_prompt: GivenPrompt,
    /// What the program is a gate for.
    pub(crate) gate: GateKind,
}

/// The repository of a linked worktree, which is outside of the folder: commands may change it if the user trusts that.
pub(crate) fn repository_item(root: &Path) -> Option<TrustItem> {
    let common = common_git_folder(root)?;
    let shown = visible_line(&common.to_string_lossy()).into_owned();
    Some(TrustItem {
        path: root.join(".git"),
        summary: format!(
            "this folder is a worktree of the git repository {shown}: commands may change that repository, too, such as to \
             commit"
        ),
        starts: false,
        servers: Vec::new(),
        hash: sha256_hex(common.as_os_str().as_encoded_bytes()),
    })
}

fn is_repository(item: &TrustItem) -> bool {
    item.path.ends_with(".git")
}

impl Foundation {
    pub(crate) fn load(cli: &StartFlags, env: Env) -> Result<Self, Failure> {
        let env = match &cli.global.cd {
            None => env,
            Some(dir) => env.with_cwd(dir),
        };
        if env.cwd().as_os_str().is_empty() {
            // Only the shell still knows the name of a deleted folder.
            let name = env.var("PWD").map(|folder| format!(" {}", visible_line(folder))).unwrap_or_default();
            return Err(Failure::usage(format!(
                "the working folder{name} no longer exists; change to another folder, or name one with -C"
            )));
        }
        let cwd = env
            .cwd()
            .canonicalize()
            .map_err(|e| Failure::usage(format!("cannot work in {}: {e}", env.cwd().display())))?;
        if !cwd.is_dir() {
            return Err(Failure::usage(format!("{} is not a folder", cwd.display())));
        }
        let env = env.with_cwd(&cwd);
        let paths = Paths::from_env(&env).map_err(Failure::usage)?;
        let root = repository_root(&cwd);
        let home = env.home().map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
        let workspace = Workspace { cwd: cwd.clone(), root: root.clone(), home };
        let mut assessment = TrustAssessment::of(&cwd, &root)
            .map_err(|e| Failure::failed(format!("cannot read {}: {e}", cwd.display())))?;
        assessment.items.extend(repository_item(&root));
        let mut warnings: Vec<String> =
            aye_platform::cannot_see_processes().into_iter().map(str::to_owned).collect();
        let untrusted = if cli.global.trust || assessment.is_empty() {
            Vec::new()
        } else {
            match TrustStore::at(paths.trust_file()).missing(&assessment) {
                Ok(items) => items,
                Err(error) => {
                    warnings.push(error.to_string());
                    assessment.items.clone()
                }
            }
        };
        // A repository elsewhere is a matter of its own: it does not keep the project's settings from being used.
        let is_trusted = untrusted.iter().all(is_repository);
        let mut foundation = Self {
            loaded: settings(&paths, &root, &cwd, is_trusted, &env, cli)?,
            env,
            paths,
            workspace,
            is_trusted,
            opens_repository: !untrusted.iter().any(is_repository),
            untrusted,
            assessment,
            warnings,
            is_ephemeral: cli.global.ephemeral,
            is_bare: cli.global.bare,
            effort: Effort::default(),
            keyring: Keyring::system(),
            client_servers: Vec::new(),
            plugins: Vec::new(),
            given_prompt: given_prompt(cli, &cwd)?,
            gate: GateKind::None,
            editor: EditorSlot::default(),
        };
        foundation.warnings.extend(foundation.loaded.warnings.iter().map(ToString::to_string));
        foundation.effort.set(foundation.loaded.settings.effort);
        if !foundation.is_bare {
            let (plugins, problems) = plugin_folders(&foundation.paths.config_dir);
            foundation.plugins = plugins;
            foundation.warnings.extend(problems);
        }
        foundation.take_session_servers(cli)?;
        crate::program::keys::refresh_stored_keys(&foundation);
        Ok(foundation)
    }

    /// Reads the servers of `--mcp-config`; what is wrong there refuses the start.
    fn take_session_servers(&mut self, cli: &StartFlags) -> Result<(), Failure> {
        let cwd = &self.workspace.cwd;
        for file in &cli.global.mcp_config {
            let file = cwd.join(file);
            if let Err(error) = file.metadata() {
                return Err(Failure::usage(format!("--mcp-config {}: {error}", file.display())));
            }
            let read = load_session_servers(&file, &self.loaded.settings.mcp, cwd, &self.env);
            if let Some(problem) = read.problems.first() {
                return Err(Failure::usage(format!("--mcp-config: {problem}")));
            }
            self.client_servers.extend(read.usable);
        }
        Ok(())
    }

    /// Remembers that the user trusts what the folder would grant or run.
    pub(crate) fn trust(&self) -> Result<(), AppError> {
        Ok(TrustStore::at(self.paths.trust_file()).trust(&self.assessment)?)
    }

    /// Loads everything again after the user trusted the folder. Items changed since then are not trusted.
    pub(crate) fn renewed(&self, cli: &StartFlags) -> Result<Self, Failure> {
        let mut next = Self::load(cli, self.env.clone())?;
        // Items without a hash are trusted for this session only.
        if !next.is_trusted && next.untrusted.iter().all(|item| self.untrusted.contains(item)) {
            next.is_trusted = true;
            next.opens_repository = true;
            next.untrusted.clear();
            next.loaded =
                settings(&next.paths, &next.workspace.root, &next.workspace.cwd, true, &next.env, cli)?;
            next.warnings.extend(next.loaded.warnings.iter().map(ToString::to_string));
            next.effort.set(next.loaded.settings.effort);
        }
        Ok(next)
    }

    /// The rules in force: shipped, the machine's policy, user's, project's, this start's. A file that cannot be read makes
    /// everything ask; a wrong rule of the policy refuses the start.
    pub(crate) fn rules(&mut self, cli: &StartFlags) -> Result<RuleSet, Failure> {
        let mut rules = shipped_rules();
        match RuleSet::from_patterns(Layer::Shipped, ToolPermissionBehavior::Ask, self.own_files()) {
            Ok(set) => rules.join(set),
            Err(error) => rules.refuse(format!("aye's own folders cannot be protected: {error}")),
        }
        if let Some(policy) = self.loaded.provenance.policy() {
            let file = policy.path().display().to_string();
            rules.join(RuleSet::from_entries(policy.rules(), Layer::Policy, &file).map_err(Failure::usage)?);
        }
        let mut files = vec![(self.paths.permissions_file(), Layer::User)];
        if self.is_trusted {
            let mut levels: Vec<_> = self
                .workspace
                .cwd
                .ancestors()
                .take_while(|level| level.starts_with(&self.workspace.root))
                .map(|level| level.join(".aye/permissions.yaml"))
                .collect();
            levels.reverse();
            files.extend(levels.into_iter().map(|file| (file, Layer::Project)));
        }
        for (file, layer) in files {
            if file.symlink_metadata().is_err() {
                continue;
            }
            match RuleSet::load(&file, layer) {
                Ok(set) => rules.join(set),
                Err(error) => {
                    self.warnings.push(format!("{error}; until this is fixed, every call asks"));
                    rules.refuse(error.to_string());
                }
            }
        }
        for file in self.rules_of_checkout() {
            match RuleSet::load(&file, Layer::Project) {
                Ok(set) => {
                    for behavior in [ToolPermissionBehavior::Ask, ToolPermissionBehavior::Deny] {
                        rules.join(set.only(behavior));
                    }
                }
                Err(error) => rules.refuse(error.to_string()),
            }
        }
        let run = RuleSet::from_flags(&cli.global.allowed_patterns(), &cli.global.disallowed_patterns())
            .map_err(|e| Failure::usage(format!("--allowed-tools/--disallowed-tools: {e}")))?;
        rules.join(run);
        Ok(rules)
    }

    /// In a worktree that aye made, the files of rules of its checkout: what they ask about or deny holds here, also if it is
    /// not committed. What they allow does not, because nobody trusted it for this folder.
    fn rules_of_checkout(&self) -> Vec<PathBuf> {
        let Workspace { root, cwd, .. } = &self.workspace;
        let Some(checkout) = checkout_of(root, &self.paths.worktrees_dir()) else { return Vec::new() };
        let below = cwd.strip_prefix(root).unwrap_or(Path::new(""));
        let levels = below.ancestors().map(|level| checkout.join(level).join(".aye/permissions.yaml"));
        levels.filter(|file| file.symlink_metadata().is_ok()).collect()
    }

    /// The project's part of the name of a file or folder that each project has its own of.
    pub(crate) fn project_id(&self) -> String {
        sha256_hex(self.workspace.root.as_os_str().as_encoded_bytes())[..16].to_owned()
    }

    /// The files that rules were found to be about, also by earlier processes.
    pub(crate) fn known_files(&self) -> Arc<KnownFiles> {
        Arc::new(KnownFiles::kept_in(self.paths.known_files_dir().join(self.project_id())))
    }

    /// Patterns for aye's own files if the workspace contains them, or is among them: there, what is inside the workspace
    /// may include aye's rules, keys and trust.
    fn own_files(&self) -> Vec<String> {
        let root = &self.workspace.root;
        let own = self.paths.own_folders();
        // Long output is kept beside the store, to be read; settings contain no secrets.
        let [config, data, ..] = &own;
        let pattern = |tool: &str, own: &Path| {
            let below = if own == data && tool == "Read" { "*" } else { "**" };
            let glob = format!("{}/{below}", escape_glob(&own.to_string_lossy()));
            format!("{tool}(file_path ~ \"{}\")", glob.replace('\\', "\\\\").replace('"', "\\\""))
        };
        let reached = own.iter().filter(|own| own.starts_with(root) || root.starts_with(own));
        let of = |own: &PathBuf| {
            let tools = ["Read", "Edit", "Write"].into_iter().skip(usize::from(own == config));
            tools.map(|tool| pattern(tool, own)).collect::<Vec<_>>()
        };
        reached.flat_map(of).collect()
    }

    /// Reads the instructions, without those to which links lead that the rules restrict.
    pub(crate) fn instructions(&mut self, rules: &dyn PathPolicy) -> Instructions {
        if self.is_bare {
            return Instructions::default();
        }
        let Workspace { root, cwd, .. } = &self.workspace;
        let may_follow = |real: &Path| may_follow(rules, real);
        let (config_dir, home) = (self.paths.config_dir.as_path(), self.env.home());
        let places = InstructionPlaces { config_dir, home, root, cwd, may_follow: &may_follow };
        let instructions = places.load();
        self.warnings.extend(instructions.warnings.iter().cloned());
        instructions
    }

    pub(crate) fn open_store(&self) -> Result<SharedStore, Failure> {
        let store = self.open_writable().map_err(|closed| closed.failure)?;
        Ok(Arc::new(store))
    }

    /// Opens the store for a command that answers questions; names a read-only one as the reason.
    pub(crate) fn open_store_to_answer(&self) -> Result<SharedStore, Failure> {
        let opened = self.open_writable().map_err(|closed| {
            if !closed.is_read_only {
                return closed.failure;
            }
            let path = self.paths.display(&self.paths.database());
            Failure::failed(format!("{path} is read-only; the decision cannot be stored; nothing changed"))
        });
        Ok(Arc::new(opened?))
    }

    /// Opens the store for a command that only reads: a read-only one will do.
    pub(crate) fn open_store_to_read(&self) -> Result<SharedStore, Failure> {
        Ok(Arc::new(self.open_file_to_read()?))
    }

    /// The same for a command that needs a store in a file.
    pub(crate) fn open_file_to_read(&self) -> Result<Store, Failure> {
        let path = self.paths.database();
        let closed = match self.open_writable() {
            Ok(store) => return Ok(store),
            Err(closed) => closed,
        };
        if !closed.is_read_only || !path.is_file() {
            return Err(closed.failure);
        }
        let store = Store::open_to_read(&path).map_err(|error| Closed::from(&error).failure)?;
        crate::program::put_stderr(&format!(
            "{} is read-only; nothing can be changed here",
            self.paths.display(&path)
        ));
        Ok(store)
    }

    /// Whether a flag says what a headless run does with questions: it takes precedence over an agent's file.
    pub(crate) fn has_on_ask_flag(&self) -> bool {
        matches!(self.loaded.provenance.origin("on_ask"), Some(Origin::Flag(_)))
    }

    fn open_writable(&self) -> Result<Store, Closed> {
        if self.is_ephemeral {
            return Store::in_memory().map_err(|error| Closed::from(&error));
        }
        // If folders cannot be created and files cannot be written, the home is read-only.
        self.make_folders().map_err(|failure| Closed { failure, is_read_only: true })?;
        let path = self.paths.database();
        if self.store_is_gone() {
            let failure = Failure::failed(format!(
                "the store {} is missing or empty, although aye used it before; put it back, restore a backup with \
                 `aye store restore FILE`, or remove {} to start with an empty one",
                self.paths.display(&path),
                self.paths.display(&self.paths.store_marker()),
            ));
            return Err(Closed { failure, is_read_only: false });
        }
        let store = Store::open(&path).map_err(|error| Closed::from(&error))?;
        self.remember_store();
        Ok(store)
    }

    /// Returns whether a store existed that is now missing, or a file without a byte.
    pub(crate) fn store_is_gone(&self) -> bool {
        let path = self.paths.database();
        let is_gone = match path.symlink_metadata() {
            Ok(file) => file.is_file() && file.len() == 0,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        !self.is_ephemeral && is_gone && self.stores().iter().any(|known| *known == path.to_string_lossy())
    }

    /// Returns the stores that were used with these settings, one per line.
    fn stores(&self) -> Vec<String> {
        let text = read_private(&self.paths.store_marker(), MAX_MARKER).ok().flatten().unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Records that a store exists, so that it is not replaced by an empty one if it goes missing.
    pub(crate) fn remember_store(&self) {
        let path = self.paths.database().to_string_lossy().into_owned();
        let mut known = self.stores();
        if known.contains(&path) || path.contains('\n') {
            return;
        }
        known.push(path);
        if let Err(error) =
            write_private(&self.paths.store_marker(), format!("{}\n", known.join("\n")).as_bytes())
        {
            tracing::debug!(%error, "a store that vanishes will not be noticed");
        }
    }

    /// Removes a missing store from the list: the next one starts empty.
    pub(crate) fn forget_store(&self) -> Result<(), Failure> {
        let path = self.paths.database().to_string_lossy().into_owned();
        let mut known = self.stores();
        known.retain(|known| *known != path);
        let text: String = known.iter().flat_map(|path| [path.as_str(), "\n"]).collect();
        write_private(&self.paths.store_marker(), text.as_bytes()).map_err(Failure::failed)
    }

    pub(crate) fn make_folders(&self) -> Result<(), Failure> {
        self.paths.create().map_err(|error| {
            let cause = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
            Failure::failed(format!("{error}{cause} (--ephemeral keeps nothing and needs no folder)"))
        })
    }
}

/// Opens the store in a file that is not the one of the settings.
pub(crate) fn open_store_at(path: &Path) -> Result<SharedStore, OpenError> {
    Ok(Arc::new(Store::open(path)?))
}

/// The maximum bytes read of the list of stores.
const MAX_MARKER: u64 = 64 << 10;

/// Why the store could not be opened.
struct Closed {
    failure: Failure,
    /// It may still be readable.
    is_read_only: bool,
}

impl From<&OpenError> for Closed {
    fn from(error: &OpenError) -> Self {
        Closed {
            failure: Failure::failed(error.to_string()),
            is_read_only: error.kind() == OpenErrorKind::ReadOnly,
        }
    }
}

/// Reads what the command line says to the agent.
fn given_prompt(cli: &StartFlags, cwd: &Path) -> Result<GivenPrompt, Failure> {
    let read = |flag: &str, text: &Option<String>, file: &Option<PathBuf>| match (text, file) {
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(file)) => std::fs::read_to_string(cwd.join(file))
            .map(Some)
            .map_err(|error| Failure::usage(format!("{flag} {}: {error}", file.display()))),
        (None, None) => Ok(None),
    };
    let flags = &cli.global;
    Ok(GivenPrompt {
        own: read("--system-prompt-file", &flags.system_prompt, &flags.system_prompt_file)?,
        appended: read(
            "--append-system-prompt-file",
            &flags.append_system_prompt,
            &flags.append_system_prompt_file,
        )?,
    })
}

fn settings(
    paths: &Paths,
    root: &Path,
    cwd: &Path,
    is_trusted: bool,
    env: &Env,
    cli: &StartFlags,
) -> Result<Loaded, Failure> {
    let project = project_config_files(root, cwd);
    if let Some(folder) = cli.global.add_dir.iter().find(|folder| !cwd.join(folder).is_dir()) {
        let folder = visible_line(&folder.to_string_lossy()).into_owned();
        return Err(Failure::usage(format!("--add-dir {folder}: it is not a folder")));
    }
    let flags = cli.flags(&paths.config_dir, cwd);
    let policy = MachinePolicy::of_this_machine().map_err(Failure::usage)?;
    let sources = Sources {
        user: &paths.config_file(),
        project: &project,
        is_trusted,
        env,
        flags: &flags,
        policy: policy.as_ref(),
    };
    load(&sources).map_err(Failure::usage)
}
