//! A temporary workspace for each test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::ToolEnv;
use aye_core::contract::tool::{Tool, ToolCallContext, ToolError, ToolResult};
use aye_core::contract::workspace::Workspace;

pub(super) struct Sandbox {
    _dir: tempfile::TempDir,
    pub(super) workspace: Workspace,
    tools: Vec<Arc<dyn Tool>>,
}

impl Sandbox {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut ToolEnv)) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().canonicalize().expect("exists");
        let (cwd, home) = (base.join("w"), base.join("home"));
        for folder in [&cwd, &home] {
            std::fs::create_dir(folder).expect("a folder");
        }
        let workspace = Workspace { cwd: cwd.clone(), root: cwd, home };
        let mut env = ToolEnv::new(workspace.clone(), base.join("outputs"));
        env.variables = [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())].into();
        change(&mut env);
        Self { _dir: dir, workspace, tools: super::builtin(env) }
    }

    pub(super) fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.workspace.cwd.join(Path::new(name.as_ref()))
    }

    pub(super) fn write(&self, name: impl AsRef<OsStr>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(&path, bytes).expect("written");
        path
    }

    pub(super) fn link(&self, target: impl AsRef<Path>, name: &str) {
        std::os::unix::fs::symlink(target, self.path(name)).expect("a link");
    }

    pub(super) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("readable")
    }

    pub(super) fn tool(&self, name: &str) -> Arc<dyn Tool> {
        self.tools.iter().find(|t| t.descriptor().id == name).expect("a tool").clone()
    }

    pub(super) async fn call(&self, tool: &str, args: Value) -> Result<ToolResult, ToolError> {
        self.call_in(tool, args, &ToolCallContext::test_default()).await
    }

    pub(super) async fn call_in(
        &self,
        tool: &str,
        args: Value,
        ctx: &ToolCallContext,
    ) -> Result<ToolResult, ToolError> {
        let tool = self.tool(tool);
        tool.validate_args(&args)?;
        Ok(tool.execute(args, ctx).await?.result)
    }

    /// Returns the text of a successful call.
    pub(super) async fn ok(&self, tool: &str, args: Value) -> String {
        let result = self.call(tool, args).await.expect("a result");
        assert!(result.is_success(), "{result:?}");
        result.model_text()
    }

    /// Returns the text of a refused call: an error or an error result.
    pub(super) async fn refused(&self, tool: &str, args: Value) -> String {
        match self.call(tool, args).await {
            Ok(result) => {
                assert!(result.is_error(), "{result:?}");
                result.model_text()
            }
            Err(error) => error.to_string(),
        }
    }
}
