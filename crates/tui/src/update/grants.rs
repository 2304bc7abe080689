//! The grant ledger: the list, one grant, and revoking it.

use super::super::app::App;
use super::super::host::{GrantRow, QuestionCmd};
use super::super::msg::Cmd;
use super::super::picker::{PickRow, Picker, PickerKind};
use super::super::transcript::Level;

/// The values of the rows of a grant.
const KEEP: &str = "keep";
const ASK: &str = "ask:";
const REVOKE: &str = "revoke:";

impl App {
    pub(super) fn list_grants(&mut self, grants: Vec<GrantRow>) {
        let rows = grants.iter().map(|grant| PickRow {
            value: grant.id.clone(),
            label: grant.pattern.clone(),
            detail: format!("{}, {}, used {}", grant.scope, grant.end, grant.uses),
            note: if grant.holds { String::new() } else { grant.state.clone() },
            ..PickRow::default()
        });
        let rows = rows.collect();
        self.overlays.grants = grants;
        self.fill_picker(PickerKind::Grants, rows);
    }

    /// Opens the details of a grant, with a row to revoke it.
    pub(super) fn open_grant(&mut self, id: &str) {
        let Some(grant) = self.overlays.grants.iter().find(|grant| grant.id == id) else { return };
        let row = |label: &str, detail: &str, value: &str| PickRow {
            value: value.to_owned(),
            label: label.to_owned(),
            detail: detail.to_owned(),
            ..PickRow::default()
        };
        let mut rows = vec![row("back", "to the list", KEEP)];
        if grant.holds {
            rows.push(row("revoke…", "stops allowing such calls", &format!("{ASK}{id}")));
        }
        let question = grant.question.as_deref().unwrap_or("none");
        for (name, text) in [
            ("pattern", grant.pattern.as_str()),
            ("scope", &grant.scope),
            ("state", &grant.state),
            ("end", &grant.end),
            ("uses", &grant.uses),
            ("granted", &grant.given),
            ("question", question),
            ("id", &grant.id),
        ] {
            rows.push(PickRow { is_heading: true, ..row(&format!("{name}: {text}"), "", "") });
        }
        self.overlays.picker = Some(Picker::new(PickerKind::Grant, rows));
    }

    /// Enter on a grant.
    pub(super) fn pick_grant(&mut self, value: &str, cmds: &mut Vec<Cmd>) {
        if let Some(id) = value.strip_prefix(REVOKE) {
            cmds.push(Cmd::Question(QuestionCmd::RevokeGrant(id.to_owned())));
        } else if let Some(id) = value.strip_prefix(ASK) {
            let pattern =
                self.overlays.grants.iter().find(|grant| grant.id == id).map(|grant| grant.pattern.clone());
            let row = |label: String, value: String| PickRow { value, label, ..PickRow::default() };
            let rows = vec![
                row("no, keep it".to_owned(), KEEP.to_owned()),
                row(format!("yes, revoke {}", pattern.unwrap_or_default()), format!("{REVOKE}{id}")),
            ];
            self.overlays.picker = Some(Picker::new(PickerKind::Grant, rows));
        } else if value == KEEP {
            self.overlays.picker = Some(Picker::loading(PickerKind::Grants));
            let grants = std::mem::take(&mut self.overlays.grants);
            self.list_grants(grants);
        }
    }

    pub(super) fn revoked(&mut self, id: &str, revoked: bool) {
        let grant = self.overlays.grants.iter().find(|grant| grant.id == id);
        let pattern = grant.map_or(id, |grant| grant.pattern.as_str()).to_owned();
        let text =
            if revoked { format!("revoked {pattern}") } else { format!("{pattern} was already revoked") };
        self.conversation.transcript.note(Level::Info, text);
    }
}
