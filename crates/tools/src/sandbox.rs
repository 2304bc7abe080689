//! [`Sandbox`]: starts a command so that the kernel keeps it to a profile.

mod confinement;
mod folders;
mod unchanged;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aye_core::contract::digest::sha256_hex;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::path_policy::{PathAccess, PathPolicy};
use aye_core::contract::spec::AgentSpec;
use aye_files::known::KnownFiles;
use aye_sandbox::protected::SET_ASIDE;
use aye_sandbox::{
    CacheKind, Dialler, InodeId, Launch, Layers, LinkedCache, MAX_MASKS, NetHub, NetSession, PartialFolder,
    Policy, Profile, ProtectedFiles, Serving, SystemDialler, Unusable, toolchains, unseen_folders,
};

use super::ToolEnv;
use super::artifact::output_of;
use super::exec::{self, CommandLimits, ControlGroups, EnvVars, ExecRequest, Freezer, is_in_path};
use super::masks::{Folded, Masked, Masks, fold};
pub use confinement::{Confined, Confinement, NotConfined, ReportedChanges, Withheld};
use confinement::{hidden_folders, shown_in_part};
pub use folders::{SandboxFolders, SandboxLimits};
use folders::{private_folder, used_folder};
use unchanged::{MissingFiles, Unchangeable, Unchanged, is_installed};

/// Git's own settings in the home folder: without them git does not know whose repositories the user trusts. The folder
/// that contains some of them may contain passwords, too.
const GIT_SETTINGS: [&str; 4] =
    [".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes"];

/// Packages that are there already, and what says where they came from, so that a build without a network finds them.
const PACKAGES: [&str; 5] =
    [".cargo/registry", ".cargo/git", ".cargo/config.toml", "go/pkg/mod", ".npm/_cacache"];

/// Those of [`PACKAGES`] that commands can add to, each with its folder among aye's own, named as the program that
/// downloads.
const LINKED: [(CacheKind, &str, &str); 2] =
    [(CacheKind::Cargo, ".cargo/registry", "cargo"), (CacheKind::Go, "go/pkg/mod", "go")];

/// How often package managers try again without a network and with one. They take a refused connection for a broken one
/// and wait for seconds. `pip` names what failed only when it tries again.
const RETRIES: [(&str, &str, &str); 3] =
    [("npm_config_fetch_retries", "0", "2"), ("PIP_RETRIES", "1", "1"), ("CARGO_NET_RETRY", "0", "1")];

/// The state that all sandboxed commands share.
#[derive(Debug)]
pub struct Sandbox {
    own: PathBuf,
    home: Option<PathBuf>,
    path: OsString,
    folders: SandboxFolders,
    /// Looked up with the first command, because that starts a process.
    found: OnceLock<Found>,
    masks: Masks,
    dialler: Arc<dyn Dialler>,
    /// Made with the first command that has something to reach, or to be reached at.
    hub: OnceLock<Arc<NetHub>>,
    protected: Arc<ProtectedFiles>,
    /// What rules deny to change.
    unchangeable: Arc<Masks>,
    /// The sockets of each project when it was first looked at.
    sockets: Mutex<HashMap<PathBuf, Arc<[PathBuf]>>>,
    freezer: Arc<Freezer>,
}

/// The capabilities of the machine.
#[derive(Debug)]
struct Found {
    layers: Layers,
    toolchains: Vec<PathBuf>,
    /// The programs of [`LINKED`] that are installed.
    downloaders: Vec<CacheKind>,
    groups: Arc<ControlGroups>,
}

impl ToolEnv {
    /// The request in a form that makes the kernel keep the program to `what`. Without a sandbox, or outside, it stays as
    /// it is.
    ///
    /// # Errors
    /// [`NotConfined`]: the program must not be started then.
    pub async fn confine(
        &self,
        mut request: ExecRequest,
        what: Confined,
        agent: &AgentSpec,
    ) -> Result<(ExecRequest, Confinement), NotConfined> {
        let is_outside = self.sandbox.is_none() || what.profile == Profile::Outside;
        if is_outside && what.terminal {
            let own = self.exec.supervisor.as_ref().ok_or(NotConfined::NoSupervisor)?;
            let Launch { program, args, .. } = Launch::in_terminal(own, &request.program, &request.args);
            (request.program, request.args) = (program, args);
        }
        let workspace = self.workspace.root.clone();
        let rules = self.policies.as_ref().map(|policies| policies.policy(agent));
        let known = Arc::clone(&self.known);
        let Some(sandbox) = self.sandbox.clone() else { return Ok((request, Confinement::default())) };
        if is_outside {
            if let Some(rules) = rules {
                // What it renames stays bound by the rules. A folder such as the home folder is too large for that.
                let remember = move || {
                    if sandbox.problem(Profile::Workspace, false, &workspace).is_none() {
                        sandbox.find_known(&workspace, rules.as_ref(), &known);
                    }
                };
                tokio::task::spawn_blocking(remember).await?;
            }
            return Ok((request, Confinement::default()));
        }
        let mut withheld = Withheld::default();
        for name in self.variables.keys().filter(|name| !request.env.contains_key(*name)) {
            let text = name.to_string_lossy().into_owned();
            // The sandbox has a proxy of its own.
            if text.to_uppercase().ends_with("_PROXY") {
                continue;
            }
            if exec::is_own_key(name, &self.secret_variables) {
                withheld.own.push(text.clone());
            }
            withheld.names.push(text);
        }
        // It reads folders, and what the machine can enforce.
        let confined = tokio::task::spawn_blocking(move || {
            let kept = sandbox.confine(&mut request, &what, &workspace, rules.as_ref(), &known);
            kept.map(|kept| (request, Confinement { withheld, ..kept }))
        });
        confined.await.unwrap_or_else(|error| Err(error.into()))
    }
}

impl Sandbox {
    /// `own` is the file of a program whose `main` hands [`aye_sandbox::LAUNCH_ARG`] to [`aye_sandbox::launch_main`],
    /// `path` the value of `PATH`.
    pub fn new(own: PathBuf, home: Option<PathBuf>, path: OsString, folders: SandboxFolders) -> Self {
        Self {
            own,
            home,
            path,
            folders,
            found: OnceLock::new(),
            masks: Masks::default(),
            protected: Arc::default(),
            unchangeable: Arc::default(),
            sockets: Mutex::default(),
            freezer: Arc::default(),
            dialler: Arc::new(SystemDialler),
            hub: OnceLock::new(),
        }
    }

    /// The same with another way to find and to reach domains.
    #[must_use]
    pub fn dialling(mut self, dialler: Arc<dyn Dialler>) -> Self {
        self.dialler = dialler;
        self
    }

    /// Whether a host is one of the domains that commands may reach here.
    pub(super) fn reaches(&self, host: &str) -> bool {
        self.found().layers.bwrap.is_some() && self.folders.domains.iter().any(|domain| domain.matches(host))
    }

    /// Why commands in `workspace` cannot be kept to `profile`, on request with namespaces; `None` when they can. The
    /// first call starts a process.
    pub fn problem(&self, profile: Profile, namespaces: bool, workspace: &Path) -> Option<String> {
        let unusable = || self.check(&self.policy(profile, workspace)).err().map(|why| why.to_string());
        self.missing(profile, namespaces).or_else(unusable)
    }

    /// The layer that this machine does not have for commands in `workspace`, in a few words, such as `no bwrap`. The
    /// first call starts a process.
    pub fn lack(&self, workspace: &Path) -> Option<String> {
        self.found();
        self.known_lack(workspace)
    }

    /// Returns the layer that this machine does not have for commands in `workspace`, as far as it is known
    /// without starting a process.
    pub fn known_lack(&self, workspace: &Path) -> Option<String> {
        let layers = &self.found.get()?.layers;
        let here =
            || self.check(&self.policy(Profile::Workspace, workspace)).err().map(|_| "no sandbox here");
        layers.lack().or_else(here).map(str::to_owned)
    }

    /// Looks through the folders that commands see, so that a first command does not have to.
    pub fn prepare(&self, workspace: &Path, rules: &dyn PathPolicy, known: &KnownFiles) {
        self.find_known(workspace, rules, known);
        self.protected.prepare(&self.roots(workspace));
        self.sockets(workspace);
    }

    /// Looks for the files that rules are about, so that they are known under the names that they get.
    fn find_known(&self, workspace: &Path, rules: &dyn PathPolicy, known: &KnownFiles) {
        let policy = self.policy(Profile::Workspace, workspace);
        let (seen, toolchains) = self.seen(&policy);
        self.masks.below(&seen, &toolchains, rules, known);
        let roots = self.roots(workspace);
        if roots.iter().any(|root| rules.unchangeable_below(root).is_some()) {
            self.unchangeable.below(&roots, &[], &Unchangeable(rules), known);
        }
    }

    /// The folders that commands see: those that are searched whole, and those of PATH, of which only the entries are, because
    /// the user may keep other things in them.
    fn seen<'a>(&self, policy: &'a Policy) -> (Vec<&'a Path>, Vec<&'a Path>) {
        // Published files, too many to look at each of them.
        let is_package = |path: &Path| {
            let below = self.home.as_deref().and_then(|home| path.strip_prefix(home).ok());
            below.is_some_and(|name| PACKAGES.iter().any(|package| name == Path::new(package)))
        };
        let beside = policy.readable.iter().chain(&policy.writable).map(PathBuf::as_path);
        let whole =
            std::iter::once(policy.workspace.as_path()).chain(beside.filter(|path| !is_package(path)));
        (whole.collect(), policy.toolchains.iter().map(PathBuf::as_path).collect())
    }

    /// The project's folder and those that the user opens to commands.
    fn roots<'a>(&'a self, workspace: &'a Path) -> Vec<&'a Path> {
        let folders = self.folders.readable.iter().chain(&self.folders.writable).map(PathBuf::as_path);
        std::iter::once(workspace).chain(folders).collect()
    }

    fn missing(&self, profile: Profile, namespaces: bool) -> Option<String> {
        let layers = &self.found().layers;
        let is_enough = layers.can_enforce(profile) && (!namespaces || layers.bwrap.is_some());
        if is_enough { None } else { layers.missing().pop() }
    }

    /// Changes a request so that the kernel enforces its profile. It reads the workspace's folders that changed. The
    /// program's way to the network ends when what is returned is dropped.
    ///
    /// # Errors
    /// [`NotConfined`]: nothing may be started then.
    fn confine(
        &self,
        request: &mut ExecRequest,
        what: &Confined,
        workspace: &Path,
        rules: Option<&Arc<dyn PathPolicy>>,
        known: &Arc<KnownFiles>,
    ) -> Result<Confinement, NotConfined> {
        if let Some(missing) = self.missing(what.profile, false) {
            return Err(NotConfined::Missing(missing));
        }
        if !self.own.is_file() {
            return Err(NotConfined::OwnProgram(self.own.clone()));
        }
        let found = self.found();
        // The first look takes a while; the others need not stand still for it.
        let sockets = self.sockets(workspace);
        let live = self.freezer.enter();
        // Until it has started, the others cannot exchange anything that is looked at here.
        let frozen = self.freezer.freeze(1);
        let mut policy = self.policy(what.profile, workspace);
        policy.terminal = what.terminal;
        let output = output_of(&self.folders.output, what.thread.as_str());
        // What is in the project is visible anyway, and a link in its place may lead anywhere.
        let beside = what.readable.iter().filter(|path| !path.starts_with(workspace));
        policy.readable.extend(beside.chain([&output]).filter(|path| path.exists()).cloned());
        let tmp = self.tmp(&what.thread)?;
        let limits = &self.folders.limits;
        policy.processes = limits.processes.map(|_| limits.processes());
        let shared_memory = limits.memory_percent.map(|_| limits.memory() / 2);
        policy.shared_memory = shared_memory;
        request.limits = Some(Arc::new(CommandLimits {
            processes: limits.processes(),
            memory: limits.memory(),
            shared_memory,
            tmp: limits.tmp().map(|most| (tmp.clone(), most)),
            groups: Arc::clone(&found.groups),
        }));
        policy.tmp = Some(tmp);
        let mut notes = Vec::new();
        let mut missing = None;
        if what.profile == Profile::Workspace {
            let opened = what.opened.writable.iter().filter(|path| path.is_dir() && is_real(path));
            policy.writable.extend(opened.cloned());
            policy.masked.extend(sockets.iter().cloned());
        }
        let roots = policy.writable.iter().chain(&policy.readable).chain([&policy.workspace]);
        policy.masked.extend(roots.map(|root| root.join(SET_ASIDE)).filter(|path| path.is_dir()));
        if let Some(rules) = rules {
            // Downloads and version managers contain published files, too many to look at each of them.
            let is_denied =
                |path: &PathBuf| rules.restriction(path, PathAccess::Read).is_some_and(|rule| rule.is_denied);
            policy.readable.retain(|path| !is_denied(path));
            policy.toolchains.retain(|path| !is_denied(path));
            let most = MAX_MASKS.saturating_sub(policy.masked.len());
            let (Folded { masks, hidden, partial }, ids) =
                self.masked(what, &policy, rules.as_ref(), known, most);
            policy.masked.extend(masks);
            policy.ids = ids;
            notes.extend(hidden_folders(&hidden, workspace));
            for (path, masked) in partial {
                notes.push(shown_in_part(&path, workspace));
                policy.partial.push(part_of(path, &masked));
            }
            if what.profile == Profile::Workspace {
                missing = self.unchangeable(what, workspace, rules, known, &mut policy);
            }
        }
        let mut unchanged = None;
        if what.profile == Profile::Workspace {
            let roots: Vec<&Path> = policy.writable.iter().map(PathBuf::as_path).chain([workspace]).collect();
            let before = self.protected.before(&roots);
            let (protected, workspace) = (Arc::clone(&self.protected), workspace.to_path_buf());
            let freezer = Arc::clone(&self.freezer);
            unchanged = Some(Unchanged { protected, freezer, before, missing, workspace });
            request.env.extend(self.caches(&mut policy)?);
        }
        let network = self.way_out(what)?.map(Arc::new);
        policy.relay = network.as_ref().map(|network| network.relay());
        if what.profile == Profile::Workspace {
            let can_download = policy.relay.as_ref().is_some_and(|relay| relay.proxies);
            for (name, without, with) in RETRIES {
                let tries = if can_download { with } else { without };
                request.env.entry(name.into()).or_insert_with(|| tries.into());
            }
            if !can_download {
                self.use_npm_downloads(&mut request.env);
            }
            if found.layers.bwrap.is_some() {
                self.link_caches(&mut policy, can_download)?;
            }
        }
        self.check(&policy)?;
        let Launch { program, args, env, launcher } =
            Launch::new(&policy, &found.layers, &self.own, &request.cwd, &request.program, &request.args);
        (request.program, request.args, request.launcher) = (program, args, launcher);
        request.env.extend(env);
        request.frozen = Some(Arc::new(frozen));
        Ok(Confinement { network, unchanged, notes, withheld: Withheld::default(), live: Some(live) })
    }

    /// Returns the command's connection out of its network namespace, if there is a domain or port to reach.
    fn way_out(&self, what: &Confined) -> Result<Option<NetSession>, NotConfined> {
        if what.profile != Profile::Workspace || self.found().layers.bwrap.is_none() {
            return Ok(None);
        }
        let granted: Vec<_> = what.opened.domains.iter().filter_map(|name| name.parse().ok()).collect();
        let hub = match self.hub.get() {
            Some(hub) => hub,
            None if self.folders.domains.is_empty()
                && granted.is_empty()
                && what.serving == Serving::Never =>
            {
                return Ok(None);
            }
            None => {
                let folder = private_folder(&self.folders.sockets)?;
                self.hub.get_or_init(|| {
                    let domains = self.folders.domains.clone();
                    Arc::new(NetHub::new(folder, domains, Arc::clone(&self.dialler)))
                })
            }
        };
        hub.open(what.thread.as_str(), what.serving, &granted).map_err(NotConfined::Network)
    }

    fn policy(&self, profile: Profile, workspace: &Path) -> Policy {
        let mut policy = Policy::new(profile, workspace);
        let home = |names: &'static [&'static str]| {
            self.home.iter().flat_map(move |home| names.iter().map(move |name| home.join(name)))
        };
        let shared = home(&GIT_SETTINGS).chain(self.folders.readable.iter().cloned());
        policy.readable.extend(shared.filter(|path| path.exists()));
        if self.folders.opens_repository {
            policy.open_repository();
        }
        if profile == Profile::Workspace {
            policy.readable.extend(home(&PACKAGES).filter(|path| path.exists()));
            policy.writable.extend(self.folders.writable.iter().filter(|path| path.is_dir()).cloned());
        }
        // A folder whose name became a link in the meantime is another one.
        policy.writable.retain(|path| is_real(path));
        policy.toolchains.clone_from(&self.found().toolchains);
        policy.home.clone_from(&self.home);
        policy
    }

    /// Checks whether the kernel can enforce a policy, and that it reaches none of aye's own folders.
    fn check(&self, policy: &Policy) -> Result<(), Unusable> {
        let SandboxFolders { readable, writable, own, .. } = &self.folders;
        let mut reached = readable.iter().chain(writable).chain([&policy.workspace]);
        match reached.find(|folder| own.iter().any(|own| own.starts_with(folder) || folder.starts_with(own)))
        {
            Some(folder) => Err(Unusable::OwnFiles(folder.clone())),
            None => policy.check(),
        }
    }

    /// Returns the paths that rules keep from being read, and how to hide them. For a rule that asks, a path that
    /// the user made readable is allowed once and for all.
    fn masked(
        &self,
        what: &Confined,
        policy: &Policy,
        rules: &dyn PathPolicy,
        known: &KnownFiles,
        most: usize,
    ) -> (Folded, BTreeMap<PathBuf, InodeId>) {
        let (mut roots, toolchains) = self.seen(policy);
        roots.extend(what.opened.writable.iter().map(PathBuf::as_path));
        // Packages bring test keys and lists of public certificates, which need no secrecy; masked, they could neither be
        // used nor removed.
        let is_readable = |path: &Path| {
            what.profile == Profile::Workspace
                && (is_installed(&roots, path)
                    || self.folders.readable.iter().any(|readable| path.starts_with(readable)))
        };
        let find_masks = || -> Vec<Masked> {
            let masked = self.masks.below(&roots, &toolchains, rules, known).into_iter();
            masked.filter(|it| it.is_denied || !is_readable(&it.path)).collect()
        };
        // What was known of a folder that did not change may be out of date: some file systems give files new numbers.
        let is_same = |it: &Masked| {
            let now = || it.path.symlink_metadata().map(|about| (about.dev(), about.ino()));
            it.id.is_none_or(|id| now().is_ok_and(|now| now == id.device_and_inode()))
        };
        let mut masked = find_masks();
        if !masked.iter().all(is_same) {
            self.masks.forget();
            masked = find_masks();
        }
        let roots = [roots.as_slice(), &toolchains].concat();
        // A link is hidden with what it leads to.
        let known: HashMap<PathBuf, InodeId> = masked
            .iter()
            .filter_map(|it| {
                let (device, inode) = it.id?.device_and_inode();
                Some((it.path.clone(), InodeId(device, inode)))
            })
            .collect();
        let folded = fold(masked, &roots, most);
        let alone = folded.masks.iter().filter(|path| !path.is_symlink());
        let ids = alone.filter_map(|path| Some((path.clone(), *known.get(path)?))).collect();
        (folded, ids)
    }

    /// Makes what rules deny to change read-only. Of more than can be mounted, whole folders are.
    fn unchangeable(
        &self,
        what: &Confined,
        workspace: &Path,
        rules: &Arc<dyn PathPolicy>,
        known: &Arc<KnownFiles>,
        policy: &mut Policy,
    ) -> Option<MissingFiles> {
        let beside = self.folders.writable.iter().chain(&what.opened.writable).map(PathBuf::as_path);
        let roots: Vec<&Path> = std::iter::once(workspace).chain(beside).collect();
        if roots.iter().all(|root| rules.unchangeable_below(root).is_none()) {
            return None;
        }
        let found = self.unchangeable.below(&roots, &[], &Unchangeable(rules.as_ref()), known);
        let before = found.iter().map(|it| it.path.clone()).collect();
        let Folded { mut masks, partial, .. } = fold(found, &roots, MAX_MASKS);
        masks.extend(partial.into_iter().flat_map(|(_, entries)| entries));
        masks.retain(|path| !policy.masked.contains(path));
        policy.read_only = masks;
        Some(MissingFiles {
            rules: Arc::clone(rules),
            cache: Arc::clone(&self.unchangeable),
            known: Arc::clone(known),
            roots: roots.into_iter().map(Path::to_owned).collect(),
            before,
        })
    }

    /// The Unix sockets of a project that were there when it was first looked at: other programs listen there, outside the
    /// sandbox.
    fn sockets(&self, workspace: &Path) -> Arc<[PathBuf]> {
        let mut known = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.entry(workspace.to_owned()).or_insert_with(|| {
            let mut found = sockets_below(workspace);
            found.retain(|path| !self.folders.unix_sockets.contains(path));
            found.into()
        });
        Arc::clone(found)
    }

    /// The conversation's own `/tmp`.
    fn tmp(&self, thread: &ThreadId) -> Result<PathBuf, NotConfined> {
        let name = &sha256_hex(thread.as_str().as_bytes())[..16];
        private_folder(&self.folders.tmp)?;
        used_folder(&self.folders.tmp.join(name))
    }

    /// Package managers write to folders of aye's own: what runs outside must never be what a sandboxed command wrote.
    fn caches(&self, policy: &mut Policy) -> Result<Vec<(OsString, OsString)>, NotConfined> {
        let caches = used_folder(&self.folders.caches)?;
        policy.writable.push(caches.clone());
        let variables = [
            ("XDG_CACHE_HOME", "xdg"),
            ("npm_config_cache", "npm"),
            ("PIP_CACHE_DIR", "pip"),
            ("YARN_GLOBAL_FOLDER", "yarn"),
        ];
        Ok(variables.map(|(name, folder)| (name.into(), caches.join(folder).into_os_string())).into())
    }

    /// What cargo and go download has a place of aye's own, at the path of the user's downloads: from the first command
    /// on that can download anything. Each place costs two mounts, so one that nobody would use is left out.
    fn link_caches(&self, policy: &mut Policy, can_download: bool) -> Result<(), NotConfined> {
        let downloaders = &self.found().downloaders;
        for (kind, name, own) in LINKED {
            let own = self.folders.linked.join(own);
            let Some(path) = self.home.as_ref().map(|home| home.join(name)) else { continue };
            let is_used = || downloaders.contains(&kind) || path.is_dir();
            if own.is_dir() || (can_download && is_used()) {
                used_folder(&self.folders.linked)?;
                policy.readable.retain(|readable| *readable != path);
                policy.caches.push(LinkedCache { kind, path, own: private_folder(&own)? });
            }
        }
        Ok(())
    }

    /// Nothing can be downloaded: what the user has downloaded before is all that there is, so npm uses the user's cache.
    /// It cannot be written.
    fn use_npm_downloads(&self, env: &mut EnvVars) {
        let Some(npm) = self.home.as_ref().map(|home| home.join(".npm")) else { return };
        if npm.join("_cacache").is_dir() {
            let own = env.insert("npm_config_cache".into(), npm.into_os_string()).unwrap_or_default();
            env.insert("npm_config_logs_dir".into(), PathBuf::from(own).join("_logs").into_os_string());
        }
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| Found {
            layers: Layers::detect(&self.path),
            toolchains: toolchains(&self.path, self.home.as_deref(), self.folders.project.as_deref()),
            groups: Arc::new(ControlGroups::find()),
            downloaders: LINKED.iter().filter(|it| is_in_path(&self.path, it.2)).map(|it| it.0).collect(),
        })
    }

    /// Returns whether this machine can enforce `profile`, and as sentences what it cannot enforce, and what
    /// a command can still reach because of that, or cannot reach although the settings list domains.
    pub fn gaps(path: &OsStr, profile: Profile, domains: bool) -> (bool, Vec<String>) {
        let layers = Layers::detect(path);
        let mut gaps = layers.missing();
        gaps.extend(layers.holes(profile).into_iter().map(|(_, what)| format!("a command can {what}")));
        for folder in unseen_folders(path) {
            gaps.push(format!("commands do not see the programs in {folder}, a folder of PATH"));
        }
        if domains && layers.bwrap.is_none() {
            gaps.push("no command can reach sandbox.domains".to_owned());
        }
        (layers.can_enforce(profile), gaps)
    }
}

/// Whether no part of a path is a link.
fn is_real(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| real == path)
}

/// The Unix sockets below a folder. No link is followed.
#[expect(clippy::disallowed_methods, reason = "names are listed; the mounts compare what is behind them")]
fn sockets_below(folder: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::FileTypeExt as _;
    let (mut open, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_socket() => found.push(entry.path()),
                Ok(kind) if kind.is_dir() && !entry.path().ends_with(".git/objects") => {
                    open.push(entry.path());
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    found
}

/// A folder without its masked entries.
#[expect(clippy::disallowed_methods, reason = "names are listed; the mounts compare what is behind them")]
fn part_of(path: PathBuf, masked: &HashSet<PathBuf>) -> PartialFolder {
    let entries = std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
    PartialFolder { shown: entries.filter(|entry| !masked.contains(entry)).collect(), path }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use aye_core::contract::judgement::SandboxOpening;
    use aye_core::contract::path_policy::{PathCheck, PathRestriction};

    use super::*;

    /// Counts the checks that are made for folders.
    #[derive(Default)]
    struct NoRules(AtomicUsize);

    impl PathPolicy for NoRules {
        fn restriction(&self, _path: &Path, _access: PathAccess) -> Option<PathRestriction> {
            None
        }

        fn below(&self, _folder: &Path) -> PathCheck {
            self.0.fetch_add(1, Ordering::Relaxed);
            Arc::new(|_, _| None)
        }

        fn fingerprint(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_first_command_finds_the_checks_of_its_folders_made() {
        let dir = tempfile::tempdir().expect("a folder");
        let [workspace, bin, open] = ["workspace", "bin", "open"].map(|name| dir.path().join(name));
        for folder in [&workspace, &bin, &open] {
            std::fs::create_dir_all(folder).expect("made");
        }
        let folders = SandboxFolders { readable: vec![open], ..SandboxFolders::default() };
        let sandbox = Sandbox::new(PathBuf::new(), None, bin.into_os_string(), folders);
        let (rules, known) = (NoRules::default(), KnownFiles::default());
        sandbox.prepare(&workspace, &rules, &known);
        let made = rules.0.swap(0, Ordering::Relaxed);
        let policy = sandbox.policy(Profile::Workspace, &workspace);
        assert_eq!(made, 3, "the project, what the user opened, and a folder of PATH");
        let what = Confined {
            profile: Profile::Workspace,
            thread: ThreadId::from("t"),
            opened: SandboxOpening::default(),
            readable: Vec::new(),
            serving: Serving::Never,
            terminal: false,
        };
        sandbox.masked(&what, &policy, &rules, &known, 9);
        assert_eq!(rules.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn downloads_have_a_place_where_something_downloads() {
        let dir = tempfile::tempdir().expect("a folder");
        let [bin, home, linked] = ["bin", "home", "linked"].map(|name| dir.path().join(name));
        std::fs::create_dir_all(&bin).expect("made");
        std::os::unix::fs::symlink("/bin/sh", bin.join("cargo")).expect("linked");
        let folders = SandboxFolders { linked, ..SandboxFolders::default() };
        let sandbox = Sandbox::new(PathBuf::new(), Some(home.clone()), bin.into_os_string(), folders);
        let kinds = |can_download: bool| -> Vec<CacheKind> {
            let mut policy = sandbox.policy(Profile::Workspace, dir.path());
            sandbox.link_caches(&mut policy, can_download).expect("made");
            policy.caches.iter().map(|cache| cache.kind).collect()
        };
        assert_eq!(kinds(false), []);
        assert_eq!(kinds(true), [CacheKind::Cargo], "only cargo is installed");
        std::fs::create_dir_all(home.join("go/pkg/mod")).expect("made");
        assert_eq!(kinds(true), [CacheKind::Cargo, CacheKind::Go], "the user has modules");
        assert_eq!(kinds(false), [CacheKind::Cargo, CacheKind::Go], "commands have downloaded before");
    }
}
