//! [`Sandbox`]: starts a command so that the kernel keeps it to a profile.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use aye_sandbox::{Launch, Layers, Policy, Profile, toolchains};
use tokio::sync::OnceCell;

use super::exec::ExecRequest;

/// Git's own settings in the home folder: without them git does not know whose repositories the user trusts.
const GIT_SETTINGS: [&str; 2] = [".gitconfig", ".config/git"];

/// What all sandboxed commands have in common.
#[derive(Debug)]
pub struct Sandbox {
    own: PathBuf,
    home: Option<PathBuf>,
    path: OsString,
    readable: Vec<PathBuf>,
    found: OnceCell<Found>,
}

/// What the machine has. Looked up with the first command, because that starts a process.
#[derive(Debug)]
struct Found {
    layers: Layers,
    toolchains: Vec<PathBuf>,
}

impl Sandbox {
    /// `own` is the file of a program whose `main` hands [`aye_sandbox::LAUNCH_ARG`] to [`aye_sandbox::launch_main`],
    /// `path` the value of `PATH`; `readable` are folders beside the workspace that commands may read.
    pub fn new(own: PathBuf, home: Option<PathBuf>, path: OsString, readable: Vec<PathBuf>) -> Self {
        Self { own, home, path, readable, found: OnceCell::new() }
    }

    /// Changes a request so that the kernel enforces `profile` on it. Where the machine cannot, or the workspace is
    /// not a project's folder, the request stays as it is: only the rules hold then.
    ///
    /// # Errors
    /// A sentence when aye's own program file, which becomes the launcher, is gone.
    pub async fn confine(
        &self,
        request: &mut ExecRequest,
        profile: Profile,
        workspace: &Path,
    ) -> Result<(), String> {
        let found = self.found().await?;
        let policy = self.policy(profile, workspace, &found.toolchains);
        if !found.layers.can_enforce(profile) || policy.check().is_err() {
            return Ok(());
        }
        if !self.own.is_file() {
            return Err(format!("aye's program {} is gone; start aye again", self.own.display()));
        }
        let Launch { program, args, env } =
            Launch::new(&policy, &found.layers, &self.own, &request.cwd, &request.program, &request.args);
        (request.program, request.args) = (program, args);
        request.env.extend(env);
        Ok(())
    }

    fn policy(&self, profile: Profile, workspace: &Path, toolchains: &[PathBuf]) -> Policy {
        let mut policy = Policy::new(profile, workspace);
        let git = self.home.iter().flat_map(|home| GIT_SETTINGS.map(|name| home.join(name)));
        policy.readable.extend(git.chain(self.readable.iter().cloned()).filter(|path| path.exists()));
        policy.toolchains = toolchains.to_vec();
        policy.home.clone_from(&self.home);
        policy
    }

    async fn found(&self) -> Result<&Found, String> {
        let look = || async {
            let (path, home) = (self.path.clone(), self.home.clone());
            let look = move || Found {
                layers: Layers::detect(&path),
                toolchains: toolchains(&path, home.as_deref()),
            };
            tokio::task::spawn_blocking(look).await.map_err(|error| error.to_string())
        };
        self.found.get_or_try_init(look).await
    }

    /// What this machine cannot enforce, as sentences, and what a command in `profile` can still reach because of it.
    pub fn gaps(path: &OsStr, profile: Profile) -> (bool, Vec<String>) {
        let layers = Layers::detect(path);
        let mut gaps = layers.missing();
        gaps.extend(layers.holes(profile).into_iter().map(|(_, what)| format!("a command can {what}")));
        (layers.can_enforce(profile), gaps)
    }
}
