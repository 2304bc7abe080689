//! What covers the prompt.

use crate::host::GrantRow;
use crate::picker::Picker;
use crate::thread_actions::RewindState;
use crate::viewer::Viewer;
use aye_core::contract::record::InboxRow;

/// What covers the prompt or the whole screen, and the rows that it shows.
#[derive(Debug, Default)]
pub struct Overlays {
    /// A list in place of the text.
    pub picker: Option<Picker>,
    /// The whole transcript on its own screen, while it is open.
    pub viewer: Option<Viewer>,
    /// The conversation on the whole screen, while that is the terminal's other one.
    pub pane: Option<Viewer>,
    /// The pending questions of all conversations, while their list is open.
    pub inbox: Vec<InboxRow>,
    /// The ledger of grants, while it is shown.
    pub grants: Vec<GrantRow>,
    /// Going back, and the list of conversations.
    pub back: RewindState,
    /// Models of the list that need a key first, with the provider that it is stored for.
    pub(crate) need_key: Vec<(String, String)>,
    /// The number of documents opened in the viewer.
    pub(crate) documents: u32,
    /// Whether the list of conversations was opened at the start.
    pub(crate) resumes_by_list: bool,
}

impl Overlays {
    /// Whether the terminal's alternate screen is needed.
    pub fn wants_other_screen(&self) -> bool {
        self.viewer.is_some() || self.pane.is_some()
    }
}
