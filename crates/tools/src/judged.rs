//! What was judged is what is opened: a path is resolved once, compared with what the gate judged, and opened without
//! following a link.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aye_core::contract::path_policy::{PathAccess, PathPolicy};
use aye_core::contract::tool::{ToolCallContext, ToolError};
use aye_files::known::FileId;
use aye_files::opener::{self, FilePlace};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::ToolEnv;
use super::paths::{PathError, escape, leaves, shown};

/// Why something was not opened.
#[derive(Debug)]
pub(super) enum JudgedError {
    Io(io::Error),
    Refused(ToolError),
}

impl From<Errno> for JudgedError {
    fn from(errno: Errno) -> JudgedError {
        JudgedError::Io(errno.into())
    }
}

impl From<io::Error> for JudgedError {
    fn from(error: io::Error) -> JudgedError {
        JudgedError::Io(error)
    }
}

impl From<ToolError> for JudgedError {
    fn from(error: ToolError) -> JudgedError {
        JudgedError::Refused(error)
    }
}

impl JudgedError {
    /// The error of a tool. `io` says it for the system's errors, except that a link came in the way.
    pub(super) fn or(self, name: &str, io: impl FnOnce(io::Error) -> ToolError) -> ToolError {
        match self {
            JudgedError::Refused(error) => error,
            JudgedError::Io(error) if Errno::from_io_error(&error).is_some_and(opener::is_link) => {
                ToolError::Moved(format!("{name} or a parent folder is now a link"))
            }
            JudgedError::Io(error) => io(error),
        }
    }
}

impl ToolEnv {
    pub(super) fn policy(&self, ctx: &ToolCallContext) -> Option<Arc<dyn PathPolicy>> {
        self.policies.as_ref().map(|policies| policies.policy(&ctx.agent_spec))
    }

    /// Refuses a file that a rule denies. The gate did so before, by the arguments; a link may have moved since.
    pub(super) fn must_not_be_denied(
        &self,
        ctx: &ToolCallContext,
        path: &Path,
        access: PathAccess,
    ) -> Result<(), ToolError> {
        match self.policy(ctx).and_then(|policy| policy.restriction(path, access)) {
            Some(rule) if rule.is_denied => Err(ToolError::Denied(rule.why)),
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a path that leads elsewhere than when the gate judged it. Without a judge, one inside the workspace must not
    /// lead out of it.
    pub(super) fn must_be_judged(
        &self,
        ctx: &ToolCallContext,
        path: &Path,
        real: &Path,
    ) -> Result<(), ToolError> {
        let name = || shown(&self.workspace, path);
        if ctx.judged.is_empty() {
            if leaves(&self.workspace, path, real) {
                return Err(PathError::Leaves { link: name(), real: escape(real) }.into());
            }
        } else if !ctx.judged.iter().any(|judged| judged == real) {
            return Err(ToolError::Moved(format!(
                "{} now leads elsewhere than when it was checked; try again",
                name()
            )));
        }
        Ok(())
    }

    /// Follows the links of a path, once: what is returned is to be opened without following any.
    pub(super) fn resolve_judged(&self, ctx: &ToolCallContext, path: &Path) -> Result<PathBuf, JudgedError> {
        let real = opener::resolve(path)?;
        self.must_be_judged(ctx, path, &real)?;
        Ok(real)
    }

    /// Refuses an open file that rules knew under another name and are still about. What they ask about, the user must have
    /// agreed to. `below`: the rest of the path, when `about` is a folder above it.
    pub(super) fn must_not_be_known(
        &self,
        ctx: &ToolCallContext,
        about: &Metadata,
        below: &Path,
        access: PathAccess,
    ) -> Result<(), ToolError> {
        let Some(name) = self.known.name(&FileId::of(about)) else { return Ok(()) };
        let name = if below.as_os_str().is_empty() { name } else { name.join(below) };
        match self.policy(ctx).and_then(|policy| policy.restriction(&name, access)) {
            Some(rule) if rule.is_denied => Err(ToolError::Denied(rule.why)),
            Some(rule) if ctx.resume.is_none() => Err(ToolError::Moved(rule.why)),
            Some(_) | None => Ok(()),
        }
    }

    /// Opens the folder of a resolved path. It and those above it must not be known to rules.
    pub(super) fn place(
        &self,
        ctx: &ToolCallContext,
        real: &Path,
        access: PathAccess,
    ) -> Result<FilePlace, JudgedError> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(Errno::ISDIR.into());
        };
        let folder = self.open(ctx, parent, Path::new(name), access, opener::PASSAGE)?;
        Ok(FilePlace { folder, name: name.to_owned() })
    }

    /// Opens a resolved folder, to be listed. It and those above it must not be known to rules.
    pub(super) fn open_folder(&self, ctx: &ToolCallContext, real: &Path) -> Result<OwnedFd, JudgedError> {
        self.open(ctx, real, Path::new(""), PathAccess::Read, opener::LISTED)
    }

    fn open(
        &self,
        ctx: &ToolCallContext,
        real: &Path,
        name: &Path,
        access: PathAccess,
        flags: OFlags,
    ) -> Result<OwnedFd, JudgedError> {
        if self.known.is_empty() {
            return Ok(opener::open(real, flags)?);
        }
        let below = real.strip_prefix("/").unwrap_or(real);
        let mut rest = below.components();
        let mut check = |fd: &OwnedFd| -> Result<(), JudgedError> {
            rest.next();
            let about = File::from(fd.try_clone()?).metadata()?;
            Ok(self.must_not_be_known(ctx, &about, &rest.as_path().join(name), access)?)
        };
        let top = opener::open(Path::new("/"), opener::PASSAGE)?;
        let fd = opener::open_by_steps(top, below, flags, &mut check)?;
        check(&fd)?;
        Ok(fd)
    }
}
