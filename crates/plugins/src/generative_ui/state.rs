use std::collections::BTreeMap;

use aye_core::contract::surface::Surface;
use aye_core::state::{KeyScope, MergeStrategy, StateKey};

/// The surfaces of a conversation, by id: later calls change them.
pub struct Surfaces;

/// A change of [`Surfaces`].
#[derive(Clone, Debug, PartialEq)]
pub enum SurfacesUpdate {
    /// Puts a surface in the place of the one of the same id.
    Put(Box<Surface>),
    Delete(String),
}

impl StateKey for Surfaces {
    const KEY: &'static str = "generative_ui.surfaces";
    // Two calls of one step that draw different surfaces are both kept.
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = BTreeMap<String, Surface>;
    type Update = SurfacesUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            SurfacesUpdate::Put(surface) => {
                value.insert(surface.id.clone(), *surface);
            }
            SurfacesUpdate::Delete(id) => {
                value.remove(&id);
            }
        }
    }
}
