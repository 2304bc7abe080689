//! [`Policy`]: what a command may see and change, as plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use aye_core::contract::judgement::Profile;
use serde::{Deserialize, Serialize};

use crate::folder::InodeId;
use crate::linked_cache::LinkedCache;
use crate::net::Relay;

/// Maximum number of masked files and folders: each one is a mount.
pub const MAX_MASKS: usize = 500;

/// The parts of the machine that a command may see and change. All paths are absolute, without links and
/// `..`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The profile: how much of the machine the command may access.
    pub profile: Profile,
    pub workspace: PathBuf,
    /// The user's home folder. Not visible, except for what else is named here.
    pub home: Option<PathBuf>,
    /// Additional visible files and folders.
    pub readable: Vec<PathBuf>,
    /// Additional writable folders, in [`Profile::Workspace`] only.
    pub writable: Vec<PathBuf>,
    /// Downloads that the command can add to, in [`Profile::Workspace`] where there are namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<LinkedCache>,
    /// Folders of programs, see [`toolchains`](crate::toolchains).
    pub toolchains: Vec<PathBuf>,
    /// Files and folders that cannot be read wherever they are. At most [`MAX_MASKS`].
    pub masked: Vec<PathBuf>,
    /// Files and folders that cannot be changed, in [`Profile::Workspace`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<PathBuf>,
    /// What was at these paths when the rules were applied to them: those of masked and read-only files. If something
    /// else is there when the command starts, it does not start. Of other paths it counts what is there now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ids: BTreeMap<PathBuf, InodeId>,
    /// Folders with more files to hide than to show. Nothing can be created in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partial: Vec<PartialFolder>,
    /// The folder that is `/tmp` for the command; without one, `/tmp` is empty and ends with the command.
    pub tmp: Option<PathBuf>,
    /// Whether the command may use the network, in [`Profile::Workspace`] only.
    pub network: bool,
    /// Processes and threads that the command may have at once. The kernel counts them for users other than root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes of shared memory in `/dev/shm`, where bubblewrap can limit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<u64>,
    /// Whether the standard input is a terminal that becomes the command's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
    /// The way out of a network namespace of its own, in [`Profile::Workspace`] only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<Relay>,
}

/// A folder with only some visible entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartialFolder {
    /// The folder: the workspace, or one of the readable and writable folders.
    pub path: PathBuf,
    pub shown: Vec<PathBuf>,
}

/// Why no sandbox can be made for a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The workspace is `/`.
    Root,
    /// The workspace is the home folder or contains it.
    ContainsHome(PathBuf),
    /// The workspace contains, or is, a folder of the system that the sandbox replaces.
    System(PathBuf),
    /// A folder that commands could reach contains aye's own files, or is among them.
    OwnFiles(PathBuf),
    /// More files are masked than can be.
    TooManyMasks(usize),
    /// More files are kept from being changed than can be.
    TooManyReadOnly(usize),
    /// A path is not absolute.
    Relative(PathBuf),
    /// A path is not UTF-8.
    NotText(PathBuf),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Root => f.write_str("the workspace is /; start aye in a project folder"),
            Unusable::ContainsHome(home) => write!(
                f,
                "the workspace contains the home folder {}; start aye in a project folder",
                home.display()
            ),
            Unusable::System(path) => {
                write!(f, "the workspace contains {}; start aye in a project folder", path.display())
            }
            Unusable::OwnFiles(path) => write!(
                f,
                "{} contains aye's own files; start aye in a project folder, and name other folders in \
                 sandbox.readable and sandbox.writable",
                path.display()
            ),
            Unusable::TooManyMasks(count) => {
                write!(f, "the rules hide {count} files, and at most {MAX_MASKS} can be hidden")
            }
            Unusable::TooManyReadOnly(count) => write!(
                f,
                "the rules keep {count} files from being changed, and at most {MAX_MASKS} can be protected; name their \
                 folders in the rules"
            ),
            Unusable::NotText(path) => write!(f, "the path {} is not UTF-8", path.display()),
            Unusable::Relative(path) => write!(f, "the path {} is not absolute", path.display()),
        }
    }
}

impl std::error::Error for Unusable {}

/// Folders that the sandbox makes itself: a workspace that contains one would bring the machine's own back.
const REPLACED: &[&str] = &["/proc", "/dev", "/tmp", "/run", "/sys", "/etc", "/usr"];

impl Policy {
    /// A policy for a workspace with nothing added. The folder of its git repository is readable if it is elsewhere.
    pub fn new(profile: Profile, workspace: impl Into<PathBuf>) -> Policy {
        let workspace = workspace.into();
        let mut policy = Policy {
            profile,
            workspace,
            home: None,
            readable: Vec::new(),
            writable: Vec::new(),
            caches: Vec::new(),
            toolchains: Vec::new(),
            masked: Vec::new(),
            read_only: Vec::new(),
            ids: BTreeMap::new(),
            partial: Vec::new(),
            tmp: None,
            network: false,
            processes: None,
            shared_memory: None,
            terminal: false,
            relay: None,
        };
        // A linked worktree's `.git` is a file that names a folder of the main repository.
        policy.readable.extend(common_git_folder(&policy.workspace));
        policy
    }

    /// Lets the command change the repository of a linked worktree, in [`Profile::Workspace`]: the user trusts the folder.
    pub fn open_repository(&mut self) {
        if let Some(common) =
            common_git_folder(&self.workspace).filter(|_| self.profile == Profile::Workspace)
        {
            self.readable.retain(|path| *path != common);
            self.writable.push(common);
        }
    }

    /// Checks whether the kernel can enforce the policy at all.
    ///
    /// # Errors
    /// The reason why not: the workspace is not a project's folder, or too many files are masked.
    pub fn check(&self) -> Result<(), Unusable> {
        let lists = [&self.readable, &self.writable, &self.toolchains, &self.masked, &self.read_only];
        let partial = self.partial.iter().flat_map(|folder| folder.shown.iter().chain([&folder.path]));
        let caches = self.caches.iter().flat_map(|cache| [&cache.path, &cache.own]);
        let others = partial.chain(caches).chain(&self.tmp).chain([&self.workspace]);
        for path in lists.into_iter().flatten().chain(others) {
            if !path.is_absolute() {
                return Err(Unusable::Relative(path.clone()));
            }
            if path.to_str().is_none() {
                return Err(Unusable::NotText(path.clone()));
            }
        }
        if self.workspace == Path::new("/") {
            return Err(Unusable::Root);
        }
        if let Some(home) = self.home.as_ref().filter(|home| home.starts_with(&self.workspace)) {
            return Err(Unusable::ContainsHome(home.clone()));
        }
        if let Some(path) = REPLACED.iter().find(|path| Path::new(path).starts_with(&self.workspace)) {
            return Err(Unusable::System(PathBuf::from(path)));
        }
        // Each entry of a partial folder is a mount, too.
        let mounts = self.masked.len() + self.partial.iter().map(|folder| folder.shown.len()).sum::<usize>();
        if mounts > MAX_MASKS {
            return Err(Unusable::TooManyMasks(mounts));
        }
        if self.read_only.len() > MAX_MASKS {
            return Err(Unusable::TooManyReadOnly(self.read_only.len()));
        }
        Ok(())
    }

    /// The folders that the command may change.
    pub(crate) fn writable_folders(&self) -> Vec<&Path> {
        match self.profile {
            Profile::Workspace => {
                let writable = self.writable.iter().map(PathBuf::as_path);
                writable.chain([self.workspace.as_path()]).filter(|path| path.is_dir()).collect()
            }
            Profile::Read | Profile::Outside => Vec::new(),
        }
    }

    /// The downloads that the command can add to, for the profile that can.
    pub(crate) fn linked_caches(&self) -> &[LinkedCache] {
        if self.profile == Profile::Workspace { &self.caches } else { &[] }
    }

    /// The way out of a network namespace of its own, for the profile that may have one.
    pub(crate) fn way_out(&self) -> Option<&Relay> {
        self.relay.as_ref().filter(|_| self.profile == Profile::Workspace && !self.network)
    }

    /// Returns the parts of the machine that are visible besides the workspace.
    pub(crate) fn visible(&self) -> impl Iterator<Item = &Path> {
        self.readable.iter().chain(&self.toolchains).map(PathBuf::as_path)
    }

    /// Returns the paths that cannot be read, as far as they exist and could be read otherwise: those that
    /// the policy names, and secrets of the system. A link is replaced by its target.
    pub(crate) fn masks(&self) -> Vec<PathBuf> {
        // What rules were applied to was found without following links.
        let (judged, named): (Vec<&PathBuf>, Vec<&PathBuf>) =
            self.masked.iter().partition(|path| self.ids.contains_key(*path));
        let others = named.into_iter().cloned().chain(system_secrets());
        let mut masks: Vec<PathBuf> = others.filter_map(|path| path.canonicalize().ok()).collect();
        masks.extend(judged.into_iter().cloned());
        masks.sort();
        masks.dedup();
        // A masked folder already hides what is below it.
        let all = masks.clone();
        masks.retain(|mask| !all.iter().any(|other| other != mask && mask.starts_with(other)));
        masks
    }
}

/// Secrets below `/etc`. Only root can read most of them, and root may be who aye runs as.
const SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/security/opasswd",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/NetworkManager/system-connections",
    "/etc/ppp/chap-secrets",
    "/etc/ppp/pap-secrets",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/docker/key.json",
    "/etc/apt/auth.conf",
    "/etc/apt/auth.conf.d",
];

fn system_secrets() -> impl Iterator<Item = PathBuf> {
    let keys = std::fs::read_dir("/etc/ssh").into_iter().flatten().flatten().map(|entry| entry.path());
    let keys = keys.filter(|path| path.to_string_lossy().ends_with("_key"));
    SECRETS
        .iter()
        .map(PathBuf::from)
        .chain(keys)
        .filter(|path| rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok())
}

/// The folder of the repository that a linked worktree belongs to, when it is outside the workspace.
///
/// The project's own files only say where to look, because a project can write anything into them. What counts is
/// written on the other side: git keeps an entry `COMMON/worktrees/NAME` for each worktree, and the entry's file `gitdir`
/// names the worktree's `.git` (gitrepository-layout(5)).
pub fn common_git_folder(workspace: &Path) -> Option<PathBuf> {
    let is_plain = |file: &Path| file.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    let workspace = workspace.canonicalize().ok()?;
    let git = workspace.join(".git");
    let link = std::fs::read_to_string(&git).ok().filter(|_| is_plain(&git))?;
    let entry = workspace.join(link.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    let worktrees = entry.parent().filter(|folder| folder.ends_with("worktrees"))?;
    let common = worktrees.parent()?;
    if common.starts_with(&workspace) || workspace.starts_with(common) {
        return None;
    }
    let back = entry.join("gitdir");
    let named = std::fs::read_to_string(&back).ok().filter(|_| is_plain(&back))?;
    let is_repository = common.join("HEAD").is_file() && common.join("objects").is_dir();
    let names_this = entry.join(named.trim()).canonicalize().is_ok_and(|named| named == git);
    (is_repository && names_this).then(|| common.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_that_contains_everything_is_refused() {
        let home = Some(PathBuf::from("/home/me"));
        let of =
            |workspace: &str| Policy { home: home.clone(), ..Policy::new(Profile::Read, workspace) }.check();
        assert_eq!(of("/"), Err(Unusable::Root));
        assert_eq!(of("/home/me"), Err(Unusable::ContainsHome("/home/me".into())));
        assert_eq!(of("/home"), Err(Unusable::ContainsHome("/home/me".into())));
        assert_eq!(of("/tmp"), Err(Unusable::System("/tmp".into())));
        assert_eq!(of("project"), Err(Unusable::Relative("project".into())));
        assert_eq!(of("/home/me/project"), Ok(()));
        assert_eq!(of("/tmp/project"), Ok(()));
        assert_eq!(of("/srv/x"), Ok(()));
    }

    #[test]
    fn masks_have_a_limit() {
        let masked = vec![PathBuf::from("/w/a"); MAX_MASKS + 1];
        let policy = Policy { masked, ..Policy::new(Profile::Read, "/w") };
        assert_eq!(policy.check(), Err(Unusable::TooManyMasks(MAX_MASKS + 1)));
    }

    #[test]
    fn a_mask_inside_a_masked_folder_is_one_mask() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        std::fs::create_dir(root.join("keys")).expect("written");
        std::fs::write(root.join("keys/a"), "").expect("written");
        std::os::unix::fs::symlink("keys/a", root.join("link")).expect("written");
        let masked = ["keys/a", "keys", "link", "missing"].map(|name| root.join(name)).to_vec();
        let policy = Policy { masked, ..Policy::new(Profile::Read, &root) };
        let masks: Vec<_> = policy.masks().into_iter().filter(|path| path.starts_with(&root)).collect();
        assert_eq!(masks, [root.join("keys")]);
    }

    #[test]
    fn a_linked_worktree_includes_its_repository() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        let main = root.join("main/.git");
        std::fs::create_dir_all(main.join("worktrees/x")).expect("written");
        std::fs::create_dir_all(root.join("linked")).expect("written");
        std::fs::write(main.join("worktrees/x/commondir"), "../..\n").expect("written");
        std::fs::write(root.join("linked/.git"), "gitdir: ../main/.git/worktrees/x\n").expect("written");
        assert_eq!(common_git_folder(&root.join("linked")), None, "not a repository yet");
        std::fs::create_dir(main.join("objects")).expect("written");
        std::fs::write(main.join("HEAD"), "ref: refs/heads/main\n").expect("written");
        assert_eq!(common_git_folder(&root.join("linked")), None, "not a worktree of it");
        let back = main.join("worktrees/x/gitdir");
        std::fs::write(&back, root.join("main/.git").display().to_string()).expect("written");
        assert_eq!(common_git_folder(&root.join("linked")), None, "another one's worktree");
        std::fs::write(&back, format!("{}\n", root.join("linked/.git").display())).expect("written");
        assert_eq!(Policy::new(Profile::Read, root.join("linked")).readable, vec![main.clone()]);
        let mut policy = Policy::new(Profile::Workspace, root.join("linked"));
        assert_eq!((&policy.readable, policy.writable.len()), (&vec![main.clone()], 0), "not trusted yet");
        policy.open_repository();
        assert_eq!((policy.readable.len(), policy.writable), (0, vec![main]));
        assert!(Policy::new(Profile::Read, root.join("main")).readable.is_empty());
    }

    #[test]
    fn what_a_project_writes_opens_no_other_repository() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        let write = |name: &str, text: &str| std::fs::write(root.join(name), text).expect("written");
        for folder in ["other/.git/objects", "project/fake", "project/a/worktrees/x"] {
            std::fs::create_dir_all(root.join(folder)).expect("written");
        }
        write("other/.git/HEAD", "ref: refs/heads/main\n");
        for entry in ["fake", "a/worktrees/x"] {
            write("project/.git", &format!("gitdir: {entry}\n"));
            let other = root.join("other/.git");
            write(&format!("project/{entry}/commondir"), &format!("{}\n", other.display()));
            let back = root.join("project/.git");
            write(&format!("project/{entry}/gitdir"), &format!("{}\n", back.display()));
            write(&format!("project/{entry}/HEAD"), "ref: refs/heads/main\n");
            assert_eq!(common_git_folder(&root.join("project")), None, "{entry}");
        }
        // The other repository has an entry, but for another worktree; the project's copy of it does not count.
        std::fs::create_dir_all(root.join("other/.git/worktrees/x")).expect("written");
        write("other/.git/worktrees/x/gitdir", &format!("{}\n", root.join("elsewhere/.git").display()));
        write("project/.git", "gitdir: ../other/.git/worktrees/x\n");
        assert_eq!(common_git_folder(&root.join("project")), None);
    }

    #[test]
    fn a_policy_survives_the_launcher_arguments() {
        let policy =
            Policy { network: true, tmp: Some("/x".into()), ..Policy::new(Profile::Workspace, "/w") };
        let text = serde_json::to_string(&policy).expect("written");
        assert!(text.contains(r#""profile":"workspace""#));
        assert_eq!(serde_json::from_str::<Policy>(&text).expect("read"), policy);
    }
}
