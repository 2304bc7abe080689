//! Notes across conversations: `aye memory`, and `/memory` in the terminal.

use std::sync::Arc;

use crate::contract::clock::Clock;
use crate::plugins::memory::{MemoryPlugin, NoteScopes};
use crate::program::foundation::Foundation;

/// The plugin, for the agent of this folder.
pub(crate) fn plugin(foundation: &Foundation, clock: &Arc<dyn Clock>) -> Arc<MemoryPlugin> {
    let plugin = MemoryPlugin::new(places(foundation), Arc::clone(clock));
    Arc::new(if foundation.is_bare { plugin.silent() } else { plugin })
}

pub(crate) fn places(foundation: &Foundation) -> NoteScopes {
    NoteScopes::new(foundation.workspace.root.clone())
}
