//! Emits the shared state of a run: a snapshot at each start and finish, and what commits changed in between.
//!
//! Only for a sink that wants it, and only the keys that declare themselves shared. Nothing of it is stored: the store
//! has the state itself.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::driver::Driver;
use aye_core::contract::event::AgentEvent;
use aye_core::state::PersistedState;

impl Driver {
    fn export_shared_state(&self) -> Option<PersistedState> {
        self.phases
            .store()
            .export_shared()
            .inspect_err(|error| tracing::warn!(run = %self.record.id, %error, "the state cannot be shown"))
            .ok()
    }

    pub(super) async fn announce_whole_state(&mut self) {
        if !self.events.sink.wants_state() {
            return;
        }
        if let Some(state) = self.export_shared_state() {
            self.events.emit(AgentEvent::StateSnapshot { snapshot: json!(state.values) }).await;
            self.events.shared_state = Some(state);
        }
    }

    /// Emits what changed since the sink last received the state.
    pub(super) async fn announce_state_change(&mut self) {
        // Before its first snapshot a sink cannot place a change, and one that wants none has no snapshot.
        let Some(known) = &self.events.shared_state else { return };
        if known.revision == self.phases.store().snapshot().revision {
            return;
        }
        let Some(state) = self.export_shared_state() else { return };
        let delta = patch(known, &state);
        self.events.shared_state = Some(state);
        if !delta.is_empty() {
            self.events.emit(AgentEvent::StateDelta { delta }).await;
        }
    }
}

/// The JSON patch operations that make the values of `before` those of `after`: one for each key that differs.
fn patch(before: &PersistedState, after: &PersistedState) -> Vec<Value> {
    let keys: BTreeSet<&String> = before.values.keys().chain(after.values.keys()).collect();
    let operation = |key: &String| {
        let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        match (before.values.get(key), after.values.get(key)) {
            (None, Some(value)) => Some(json!({"op": "add", "path": path, "value": value})),
            (Some(_), None) => Some(json!({"op": "remove", "path": path})),
            (Some(old), Some(new)) if old != new => {
                Some(json!({"op": "replace", "path": path, "value": new}))
            }
            (Some(_), Some(_)) | (None, None) => None,
        }
    };
    keys.into_iter().filter_map(operation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_one_operation_per_changed_key() {
        let state = |values: Value| PersistedState {
            revision: 1,
            values: serde_json::from_value(values).expect("a map"),
        };
        let before = state(json!({"same": 1, "gone": 2, "changed": {"a": 1}}));
        let after = state(json!({"same": 1, "changed": {"a": 2}, "a/b~c": null}));
        assert_eq!(
            patch(&before, &after),
            [
                json!({"op": "add", "path": "/a~1b~0c", "value": null}),
                json!({"op": "replace", "path": "/changed", "value": {"a": 2}}),
                json!({"op": "remove", "path": "/gone"}),
            ]
        );
        assert!(patch(&after, &after).is_empty());
    }
}
