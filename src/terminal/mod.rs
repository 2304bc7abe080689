//! What the program does for the terminal: it serves the requests of the front end, keeps the conversation on the
//! screen in step with the store, and finds what is completed and shown.

pub(crate) mod attend;
pub(crate) mod background;
pub(crate) mod compare;
pub(crate) mod drafts;
pub(crate) mod editor;
pub(crate) mod files;
pub(crate) mod follow;
pub(crate) mod host;
pub(crate) mod pages;
pub(crate) mod rewind;
pub(crate) mod statusline;
pub(crate) mod take_over;
pub(crate) mod themes;
pub(crate) mod titles;
