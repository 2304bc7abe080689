//! The options that a client may set for a session: the permission mode and the model.

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema as acp;

use aye_core::contract::mode::Mode;

use super::ends::invalid;
use super::host::FolderHost;

/// The option that chooses the permission mode.
pub(crate) const MODE: &str = "mode";
/// The option that chooses the model.
pub(crate) const MODEL: &str = "model";

/// The modes that a client may enter: none in which aye stops asking.
const MODES: [(Mode, &str, &str); 3] = [
    (Mode::Ask, "Ask", "Asks before anything that your rules do not allow"),
    (Mode::AcceptEdits, "Accept edits", "Changes files of the project without asking"),
    (Mode::Plan, "Plan", "Reads and plans; changes nothing"),
];

/// The modes, and which one is entered.
pub(crate) fn modes(current: Mode) -> acp::SessionModeState {
    let mode = |(mode, name, description): (Mode, &str, &str)| {
        acp::SessionMode::new(acp::SessionModeId::new(mode.as_str()), name)
            .description(description.to_owned())
    };
    let mut modes: Vec<_> = MODES.map(mode).into();
    if !MODES.iter().any(|(mode, ..)| *mode == current) {
        modes.push(mode((current, current.as_str(), "Set by your settings")));
    }
    acp::SessionModeState::new(acp::SessionModeId::new(current.as_str()), modes)
}

/// The mode of that name, if a client may enter it.
pub(crate) fn mode(name: &str, current: Mode) -> Result<Mode, Error> {
    let named = Mode::parse(name);
    match named {
        Some(mode) if mode == current || MODES.iter().any(|(offered, ..)| *offered == mode) => Ok(mode),
        Some(mode) => Err(invalid(format!(
            "a client cannot enter the mode `{mode}`; set permission_mode in your settings"
        ))),
        None => Err(invalid(format!("unknown mode `{}`", name.escape_debug()))),
    }
}

/// All options of a session, with what is chosen.
pub(crate) fn options(host: &dyn FolderHost) -> Vec<acp::SessionConfigOption> {
    let state = modes(host.mode());
    let modes: Vec<_> = state
        .available_modes
        .into_iter()
        .map(|mode| {
            acp::SessionConfigSelectOption::new(mode.id.to_string(), mode.name).description(mode.description)
        })
        .collect();
    let mode =
        acp::SessionConfigOption::select(MODE, "Permission mode", state.current_mode_id.to_string(), modes)
            .category(acp::SessionConfigOptionCategory::Mode);
    let models = host.models();
    let Some(current) = models.iter().find(|model| model.is_current) else { return vec![mode] };
    let current = current.name.clone();
    let models: Vec<_> = models
        .into_iter()
        .map(|model| acp::SessionConfigSelectOption::new(model.name.clone(), model.name))
        .collect();
    let model = acp::SessionConfigOption::select(MODEL, "Model", current, models)
        .category(acp::SessionConfigOptionCategory::Model);
    vec![mode, model]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_can_switch_off_approvals() {
        for name in ["yolo", "auto"] {
            let why = mode(name, Mode::Ask).expect_err("refused").message;
            assert!(why.contains(name) && why.contains("permission_mode"), "{why}");
        }
        assert_eq!(mode("plan", Mode::Ask).expect("a mode"), Mode::Plan);
        assert!(mode("YOLO", Mode::Yolo).is_err() && mode("", Mode::Ask).is_err());
        let ids = |current| {
            modes(current).available_modes.iter().map(|mode| mode.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids(Mode::Ask), ["ask", "accept-edits", "plan"]);
        assert_eq!(ids(Mode::Yolo).last().map(String::as_str), Some("yolo"), "the settings chose it");
    }
}
