//! Values that outlive a thread, shared by an agent, a user's settings or a group of agents.
//!
//! A value has two names. The namespace ([`ProfileKey::KEY`]) belongs to a type and is fixed at compile time; the key
//! is any string and names the instance, such as an agent's name or a [`StateScope`].

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::storage::encode::encode;
pub use super::storage::error::StorageError;
use crate::state::{JsonValue, StateError};

/// The maximum number of attempts of [`ProfileAccess::update`] if others write at the same time.
const TRIES: usize = 100;

/// One namespace of values that outlive a thread.
///
/// Implemented by empty types; a plugin makes it known with `register_profile_key`.
pub trait ProfileKey: 'static + Send + Sync {
    /// Unique name; what the values are stored under.
    const KEY: &'static str;
    /// The value; its default is what a reader of a missing entry gets.
    type Value: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Writes the value as JSON.
    ///
    /// # Errors
    /// [`StateError::KeyEncode`].
    fn encode(value: &Self::Value) -> Result<JsonValue, StateError> {
        serde_json::to_value(value)
            .map_err(|e| StateError::KeyEncode { key: Self::KEY.into(), message: e.to_string() })
    }

    /// Reads the value from JSON.
    ///
    /// # Errors
    /// [`StateError::KeyDecode`].
    fn decode(value: JsonValue) -> Result<Self::Value, StateError> {
        serde_json::from_value(value)
            .map_err(|e| StateError::KeyDecode { key: Self::KEY.into(), message: e.to_string() })
    }
}

/// Usual texts for the key of a shared value. Any other text does as well.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateScope(String);

impl StateScope {
    /// One value for everybody.
    pub fn global() -> Self {
        Self("global".into())
    }

    /// A value of all runs that serve one thread.
    pub fn parent_thread(id: impl AsRef<str>) -> Self {
        Self(format!("parent_thread::{}", id.as_ref()))
    }

    /// A value of all instances of one agent.
    pub fn agent_type(name: impl AsRef<str>) -> Self {
        Self(format!("agent_type::{}", name.as_ref()))
    }

    /// A value of one thread.
    pub fn thread(id: impl AsRef<str>) -> Self {
        Self(format!("thread::{}", id.as_ref()))
    }

    /// A value of any other group.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for StateScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for StateScope {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The owner of a preference value; by convention, the owner's string is the value's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProfileOwner {
    Agent(String),
    /// All agents.
    System,
}

impl ProfileOwner {
    /// The key of the owner's values.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Agent(name) => name,
            Self::System => "system",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProfileEntry {
    pub key: String,
    /// Another one after each write, never one that was there before, and never 0.
    pub version: u64,
    /// When it was written, in Unix milliseconds.
    pub updated_at: u64,
    /// The value as JSON.
    pub value: Value,
}

/// Bytes of a namespace or a key.
const MAX_NAME: usize = 1024;
/// Bytes of a value as JSON: these are notes and counters, not files.
const MAX_VALUE: usize = 1024 * 1024;

/// A namespace and a key that a store takes.
///
/// # Errors
/// [`StorageError::Serialization`] says which one it does not take.
pub fn check_names(namespace: &str, key: &str) -> Result<(String, String), StorageError> {
    for (what, name) in [("namespace", namespace), ("key", key)] {
        if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
            let wanted = format!("1 to {MAX_NAME} bytes without a NUL");
            return Err(StorageError::Serialization(format!(
                "the {what} of a profile value must be {wanted}"
            )));
        }
    }
    Ok((namespace.to_owned(), key.to_owned()))
}

/// A value as a store keeps it.
///
/// # Errors
/// [`StorageError::Serialization`] when it is too large or nested too deeply.
pub fn encode_value(value: &Value) -> Result<String, StorageError> {
    let value = encode("the profile value", value)?;
    if value.len() > MAX_VALUE {
        let size = value.len();
        return Err(StorageError::Serialization(format!(
            "this profile value has {size} bytes; the maximum is {MAX_VALUE}"
        )));
    }
    Ok(value)
}

/// The storage of profile values.
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// Reads an entry.
    ///
    /// # Errors
    /// [`StorageError`].
    async fn get(&self, namespace: &str, key: &str) -> Result<Option<ProfileEntry>, StorageError>;

    /// Writes an entry and returns its new version. With `expected`, writes only if that is the current
    /// version; 0 means "not found".
    ///
    /// # Errors
    /// [`StorageError::VersionConflict`] and any other [`StorageError`].
    async fn put(
        &self,
        namespace: &str,
        key: &str,
        value: Value,
        expected: Option<u64>,
    ) -> Result<u64, StorageError>;

    /// Removes an entry. `false` when there was none.
    ///
    /// # Errors
    /// [`StorageError`].
    async fn remove(&self, namespace: &str, key: &str) -> Result<bool, StorageError>;

    /// All entries of a namespace, by key.
    ///
    /// # Errors
    /// [`StorageError`].
    async fn list(&self, namespace: &str) -> Result<Vec<ProfileEntry>, StorageError>;
}

/// The registered namespaces, each with its type.
#[derive(Clone, Debug, Default)]
pub struct ProfileKeys(BTreeMap<&'static str, TypeId>);

impl ProfileKeys {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `K`, for those who read values outside of a run.
    #[must_use]
    pub fn with<K: ProfileKey>(mut self) -> Self {
        self.0.insert(K::KEY, TypeId::of::<K>());
        self
    }

    /// Makes `K` known. Several may share one key type; two types cannot share one namespace.
    ///
    /// # Errors
    /// [`StateError::ProfileKeyAlreadyRegistered`].
    pub fn register<K: ProfileKey>(&mut self) -> Result<(), StateError> {
        match self.0.insert(K::KEY, TypeId::of::<K>()) {
            Some(known) if known != TypeId::of::<K>() => {
                self.0.insert(K::KEY, known);
                Err(StateError::ProfileKeyAlreadyRegistered { key: K::KEY.into() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns whether `K` is registered.
    pub fn knows<K: ProfileKey>(&self) -> bool {
        self.0.get(K::KEY) == Some(&TypeId::of::<K>())
    }

    /// The namespaces.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}

/// Typed reading and writing of values that outlive a thread.
///
/// There are no transactions over several values and the last writer wins, except for [`ProfileAccess::update`].
#[derive(Clone)]
pub struct ProfileAccess {
    store: Arc<dyn ProfileStore>,
    keys: Arc<ProfileKeys>,
}

impl ProfileAccess {
    /// Access to the values of these namespaces.
    pub fn new(store: Arc<dyn ProfileStore>, keys: impl Into<Arc<ProfileKeys>>) -> Self {
        Self { store, keys: keys.into() }
    }

    fn check<K: ProfileKey>(&self) -> Result<(), StorageError> {
        if self.keys.knows::<K>() {
            Ok(())
        } else {
            Err(StorageError::NotFound(format!("profile key not registered: {}", K::KEY)))
        }
    }

    async fn read_entry<K: ProfileKey>(&self, key: &str) -> Result<(K::Value, u64), StorageError> {
        self.check::<K>()?;
        match self.store.get(K::KEY, key).await? {
            Some(entry) => Ok((decoded::<K>(entry.value)?, entry.version)),
            None => Ok((K::Value::default(), 0)),
        }
    }

    /// Returns the value, or the default if there is none.
    ///
    /// # Errors
    /// [`StorageError`]: the namespace is not registered, the store failed, or the stored value does not fit
    /// the type.
    pub async fn read<K: ProfileKey>(&self, key: &str) -> Result<K::Value, StorageError> {
        Ok(self.read_entry::<K>(key).await?.0)
    }

    /// Writes the value, whatever was stored before.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn write<K: ProfileKey>(&self, key: &str, value: &K::Value) -> Result<(), StorageError> {
        self.check::<K>()?;
        self.store.put(K::KEY, key, encoded::<K>(value)?, None).await?;
        Ok(())
    }

    /// Removes the value, if it exists.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn delete<K: ProfileKey>(&self, key: &str) -> Result<(), StorageError> {
        self.check::<K>()?;
        self.store.remove(K::KEY, key).await?;
        Ok(())
    }

    /// All values of the namespace, by key.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn list<K: ProfileKey>(&self) -> Result<Vec<(String, K::Value)>, StorageError> {
        self.check::<K>()?;
        let entries = self.store.list(K::KEY).await?;
        entries.into_iter().map(|entry| Ok((entry.key, decoded::<K>(entry.value)?))).collect()
    }

    /// Reads, changes and writes as one step: if another task or process writes in between, the change is
    /// applied again to the new value. A change that fails is not written.
    ///
    /// # Errors
    /// [`StorageError`]; the inner error is the one that the change returned.
    pub async fn update<K, T, E>(
        &self,
        key: &str,
        mut change: impl FnMut(&mut K::Value) -> Result<T, E> + Send,
    ) -> Result<Result<T, E>, StorageError>
    where
        K: ProfileKey,
        T: Send,
        E: Send,
    {
        let mut tries = 0;
        loop {
            let (mut value, version) = self.read_entry::<K>(key).await?;
            let given = match change(&mut value) {
                Ok(given) => given,
                Err(refused) => return Ok(Err(refused)),
            };
            match self.store.put(K::KEY, key, encoded::<K>(&value)?, Some(version)).await {
                Ok(_) => return Ok(Ok(given)),
                Err(StorageError::VersionConflict { .. }) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl std::fmt::Debug for ProfileAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfileAccess").field("keys", &self.keys).finish_non_exhaustive()
    }
}

fn encoded<K: ProfileKey>(value: &K::Value) -> Result<Value, StorageError> {
    K::encode(value).map_err(|e| StorageError::Serialization(e.to_string()))
}

fn decoded<K: ProfileKey>(value: Value) -> Result<K::Value, StorageError> {
    K::decode(value).map_err(|e| StorageError::Serialization(e.to_string()))
}
