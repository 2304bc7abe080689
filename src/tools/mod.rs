//! The built-in tools: one file each, the description the model reads beside it as .md.
//!
//! [`builtin`] makes them from a [`ToolEnv`], which holds all they know about the world. No tool knows whether it was
//! permitted. Together their names, descriptions and schemas stay below 6,000 bytes: they go out with each request.

mod args;
mod bash;
pub mod exec;
mod paths;
#[cfg(test)]
mod testing;

use std::path::PathBuf;
use std::sync::Arc;

use crate::contract::tool::{Tool, ToolClass, ToolDescriptor};
use crate::contract::workspace::Workspace;
use exec::{Env, ExecConfig};

/// What the tools know about the world; made by the composition root.
#[derive(Clone)]
pub struct ToolEnv {
    /// Where the thread works.
    pub workspace: Workspace,
    /// Where output that is too long for the model is written, one file a call. It is made when needed, mode 0700.
    pub output_dir: PathBuf,
    /// How programs are run.
    pub exec: ExecConfig,
    /// The variables that programs may inherit; secrets are filtered out here: see [`exec::child_env`].
    pub variables: Env,
    /// Names of variables that the configuration calls keys: never inherited.
    pub secret_variables: Vec<String>,
}

impl ToolEnv {
    /// The usual settings, without a supervisor and without any variables.
    pub fn new(workspace: Workspace, output_dir: impl Into<PathBuf>) -> Self {
        Self {
            workspace,
            output_dir: output_dir.into(),
            exec: ExecConfig::default(),
            variables: Env::new(),
            secret_variables: Vec::new(),
        }
    }
}

/// All built-in tools, in the order in which the model reads them.
pub fn builtin(env: ToolEnv) -> Vec<Arc<dyn Tool>> {
    let env = Arc::new(env);
    vec![Arc::new(bash::Bash { env })]
}

/// A descriptor with the parts that all built-in tools share.
fn describe(name: &str, description: &str) -> ToolDescriptor {
    ToolDescriptor::new(name, name, description.trim()).with_class(ToolClass::Opaque)
}
