//! Surfaces that the model describes: the tool `render_a2ui` takes A2UI messages of version 0.8, as they are published
//! and in the book's form, checks them, and keeps what they make. One that has a button waits for the person; what they
//! put in and pressed is the call's result.

mod plugin;
mod state;
#[cfg(test)]
mod tests;
mod tool;
mod validation;

pub use plugin::{A2UI_PLUGIN, A2uiPlugin};
pub use state::{Surfaces, SurfacesUpdate};
pub use tool::{A2uiRenderTool, RENDER_TOOL};
pub use validation::{A2uiError, MAX_COMPONENTS, apply_messages};
