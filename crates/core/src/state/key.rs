use std::any::{Any, TypeId};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::model::{JsonValue, encode};
use super::{StateError, StateMap};

/// The lifetime of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyScope {
    /// Back to its default when a run starts.
    #[default]
    Run,
    /// Kept over the runs of a thread.
    Thread,
}

/// The rule for two writers of a key in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergeStrategy {
    /// One writer a commit; a second one is run again on the new state.
    #[default]
    Exclusive,
    /// Updates commute: any order gives the same value, so all are kept.
    Commutative,
}

/// One named slot of the state: a value, how it is updated, how long it lives.
///
/// Implemented by empty types; the type is the key.
pub trait StateKey: 'static + Send + Sync {
    /// Unique name, by convention `plugin.key`.
    const KEY: &'static str;
    /// The merge strategy for two writers in one phase.
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;
    /// The lifetime of the value.
    const SCOPE: KeyScope = KeyScope::Run;
    /// Whether front ends that follow the state receive the value, such as a page of AG-UI. By default it stays inside.
    const SHARED: bool = false;
    /// The value; its default is what a reader of an unset key may assume.
    type Value: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The change that [`StateKey::apply`] understands.
    type Update: Send + 'static;

    fn apply(value: &mut Self::Value, update: Self::Update);

    /// Writes the value as JSON.
    ///
    /// # Errors
    /// [`StateError::KeyEncode`].
    fn encode(value: &Self::Value) -> Result<JsonValue, StateError> {
        encode(Self::KEY, value)
    }

    /// Reads the value from JSON.
    ///
    /// # Errors
    /// [`StateError::KeyDecode`].
    fn decode(json: JsonValue) -> Result<Self::Value, StateError> {
        serde_json::from_value(json)
            .map_err(|e| StateError::KeyDecode { key: Self::KEY.into(), message: e.to_string() })
    }
}

/// The options with which a key is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateKeyOptions {
    /// Written at checkpoints and restored when the thread is loaded; so it is by default.
    pub persistent: bool,
    /// Kept when the plugin that registered it is uninstalled; by default it is removed with its value.
    pub retain_on_uninstall: bool,
    /// The lifetime of the value; a key whose type declares `Thread` is always `Thread`, whatever is set
    /// here.
    pub scope: KeyScope,
}

impl Default for StateKeyOptions {
    fn default() -> Self {
        Self { persistent: true, retain_on_uninstall: false, scope: KeyScope::Run }
    }
}

pub(super) type ErasedValue = Arc<dyn Any + Send + Sync>;
type EncodeFn = fn(&(dyn Any + Send + Sync)) -> Result<JsonValue, StateError>;
type DecodeFn = fn(JsonValue) -> Result<ErasedValue, StateError>;

/// A registered key with its type erased.
#[derive(Clone, Copy, Debug)]
pub struct KeyRegistration {
    /// [`StateKey::KEY`].
    pub key: &'static str,
    /// [`StateKey::MERGE`].
    pub merge: MergeStrategy,
    /// The scope in force.
    pub scope: KeyScope,
    /// Whether checkpoints include the key.
    pub persistent: bool,
    /// Whether the key and its value are kept when the plugin that registered the key is uninstalled.
    pub retain_on_uninstall: bool,
    /// [`StateKey::SHARED`].
    pub shared: bool,
    pub(super) type_id: TypeId,
    pub(super) encode: EncodeFn,
    pub(super) decode: DecodeFn,
}

impl KeyRegistration {
    /// Registers `K`.
    pub fn of<K: StateKey>(options: StateKeyOptions) -> Self {
        let scope = if K::SCOPE == KeyScope::Thread { KeyScope::Thread } else { options.scope };
        Self {
            key: K::KEY,
            merge: K::MERGE,
            scope,
            persistent: options.persistent || scope == KeyScope::Thread,
            retain_on_uninstall: options.retain_on_uninstall,
            shared: K::SHARED,
            type_id: TypeId::of::<K>(),
            encode: |value| match value.downcast_ref::<K::Value>() {
                Some(value) => K::encode(value),
                None => Err(StateError::KeyEncode { key: K::KEY.into(), message: "another type".into() }),
            },
            decode: |json| Ok(Arc::new(K::decode(json)?) as ErasedValue),
        }
    }

    /// Returns whether the other registration is for the same key type with the same options.
    pub fn is_same(&self, other: &Self) -> bool {
        self.type_id == other.type_id
            && self.scope == other.scope
            && self.persistent == other.persistent
            && self.retain_on_uninstall == other.retain_on_uninstall
    }
}

pub(super) fn update<K: StateKey>(map: &mut StateMap, update: K::Update) {
    // The second update of one batch finds a value that no snapshot shares, and need not copy it again.
    if let Some(value) = map.unshared::<K>() {
        K::apply(value, update);
        return;
    }
    let mut value = map.get::<K>().cloned().unwrap_or_default();
    K::apply(&mut value, update);
    map.insert::<K>(value);
}
