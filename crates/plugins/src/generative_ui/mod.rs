//! Surfaces described by the model: the tool `render_a2ui` accepts A2UI messages of version 0.8, in the
//! published form and in the book's form, checks them, and stores the resulting surfaces. A surface with a
//! button waits for the user; their input and the pressed button are the call's result.

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
