//! The environment that the process was started with, as a value, so that only the application itself reads
//! the real environment.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The variables, the home directory and the working directory that one app works with.
///
/// Its `Debug` form shows the names of the variables only: their values hold keys.
#[derive(Clone, Default)]
pub struct Env {
    vars: BTreeMap<String, String>,
    home: Option<PathBuf>,
    cwd: PathBuf,
    /// Providers whose key was stored by a login. All clones share it: a login counts at once.
    stored: Arc<RwLock<BTreeSet<String>>>,
}

impl Env {
    /// Collects variables, home and working directory. Variables that are not UTF-8 are left out.
    pub fn new(
        vars: impl IntoIterator<Item = (OsString, OsString)>,
        home: Option<PathBuf>,
        cwd: impl Into<PathBuf>,
    ) -> Self {
        let vars = vars
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { vars, home, cwd: cwd.into(), ..Self::default() }
    }

    /// An environment made of literal pairs, for tests and embedding.
    pub fn of(vars: &[(&str, &str)], home: impl Into<PathBuf>, cwd: impl Into<PathBuf>) -> Self {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { vars, home: Some(home.into()), cwd: cwd.into(), ..Self::default() }
    }

    /// The same environment with one more variable.
    #[must_use]
    pub fn with_var(&self, name: &str, value: &str) -> Self {
        let mut env = self.clone();
        env.vars.insert(name.to_owned(), value.to_owned());
        env
    }

    /// Replaces the names of the providers whose key is stored.
    pub fn set_stored_keys(&self, providers: BTreeSet<String>) {
        *self.stored.write().unwrap_or_else(PoisonError::into_inner) = providers;
    }

    /// Returns whether a key of this provider is stored. The key itself is read when a model is first needed.
    pub fn has_stored_key(&self, provider: &str) -> bool {
        self.stored.read().unwrap_or_else(PoisonError::into_inner).contains(provider)
    }

    /// The names of the providers whose key is stored, and of keys with a name of their own: `provider@key`.
    pub fn stored_keys(&self) -> Vec<String> {
        self.stored.read().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The value of a variable; an empty one counts as not set.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// Returns whether a variable is set and not empty.
    pub fn has(&self, name: &str) -> bool {
        self.var(name).is_some()
    }

    /// All variables, for the environment of children (which must drop the secret ones).
    pub fn vars(&self) -> impl Iterator<Item = (&str, &str)> {
        self.vars.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the home directory, if there is one.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The folder that aye works in.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The same environment with another working directory (`-C DIR`), relative to this one.
    #[must_use]
    pub fn with_cwd(mut self, dir: impl AsRef<Path>) -> Self {
        self.cwd = self.cwd.join(dir);
        self
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("vars", &self.vars.keys().collect::<Vec<_>>())
            .field("home", &self.home)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}
