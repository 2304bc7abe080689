//! Limits what a command started by aye can reach, enforced by the kernel.
//!
//! A [`Policy`] says what a command may see and change. [`Launch::new`] turns a program and its arguments
//! into the program that is started instead: bubblewrap where the machine has it ([`Layers`]), and inside it,
//! or alone, the launcher, which is aye started again with the hidden first argument [`LAUNCH_ARG`]. The
//! launcher restricts its own process and becomes the program. Nothing happens between `fork` and `exec` of a
//! process with threads. A thread of the parent process can do the same where a launcher would be started alone, or
//! where the parent is itself inside the namespaces ([`Launch::supervised`]): [`ThreadLaunch`].
//!
//! A command in namespaces has only its own network unless its policy allows the network. With a [`Relay`],
//! a thread beside it passes connections on to aye's [`NetHub`], which reaches listed domains, and ports
//! of other commands of the conversation.
//!
//! On macOS, `sandbox-exec` enforces the same policy instead of all this.
//!
//! A launcher that cannot enforce its policy does not start the program.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files"))]

mod folder;
mod folder_stamp;
#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, reason = "rules about folders are made of their names")]
mod kernel;
mod launch;
#[allow(clippy::disallowed_methods, reason = "files of the system")]
mod layers;
#[allow(clippy::disallowed_methods, reason = "it runs inside, after the launcher has restricted itself")]
mod linked_cache;
mod mounts;
mod namespaces;
#[allow(clippy::disallowed_methods, reason = "a folder of aye's own")]
mod net;
#[allow(
    clippy::disallowed_methods,
    reason = "files of the system; what .git names must name the worktree from outside"
)]
mod policy;
pub mod protected;
mod refusal;
mod seatbelt;
#[allow(clippy::disallowed_methods, reason = "folders of the user, outside of projects")]
mod toolchains;
mod watched;

pub use aye_core::contract::judgement::Profile;
pub use folder::InodeId;
pub use folder_stamp::FolderStamp;
pub use launch::{LAUNCH_ARG, Launch, ThreadLaunch, launch_main, take_mounts};
pub use layers::{Layers, MIN_LANDLOCK};
pub use linked_cache::{CacheKind, LinkedCache};
pub use net::{Dialler, NetHub, NetSession, Relay, Serving, SystemDialler};
pub use policy::{MAX_MASKS, PartialFolder, Policy, Unusable, common_git_folder};
pub use refusal::SandboxRefusal;
pub use toolchains::{toolchains, unseen_folders};
pub use watched::{ProtectedBefore, ProtectedFiles, SetAside};
