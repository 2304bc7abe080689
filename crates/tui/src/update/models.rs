//! Models, reasoning effort, and the keys of providers.

use super::super::app::App;
use super::super::host::{ModelCmd, ModelMsg, ModelRow, Secret};
use super::super::msg::Cmd;
use super::super::picker::{PickRow, Picker, PickerKind};
use aye_core::contract::inference::ReasoningEffort;

/// The word that leaves the effort to the model.
const THEIR_OWN: &str = "default";

impl App {
    pub(super) fn model_msg(&mut self, msg: ModelMsg) {
        match msg {
            ModelMsg::Listed(models) => self.list_models(models),
            ModelMsg::Logins(providers) => self.list_logins(providers),
        }
    }

    /// Fills the list of models, the first time or with the models that servers list now: those that need a
    /// key are below a heading.
    pub(super) fn list_models(&mut self, models: Vec<ModelRow>) {
        self.overlays.need_key.clear();
        let (usable, rest): (Vec<_>, Vec<_>) = models.into_iter().partition(|model| model.unusable.is_none());
        for model in &rest {
            self.overlays.need_key.extend(model.login.clone().map(|provider| (model.name.clone(), provider)));
        }
        let row = |model: ModelRow| PickRow {
            note: if model.is_current { "in use".into() } else { String::new() },
            value: model.name.clone(),
            label: model.name,
            detail: model.note,
            unusable: model.unusable,
            is_heading: false,
        };
        let mut rows: Vec<PickRow> = usable.into_iter().map(row).collect();
        if !rest.is_empty() {
            let label = "Needs a key".to_owned();
            rows.push(PickRow { label, is_heading: true, ..PickRow::default() });
        }
        rows.extend(rest.into_iter().map(row));
        self.fill_picker(PickerKind::Models, rows);
    }

    /// Handles the selection of a model that cannot be used yet: asks for its provider's key, if one can be
    /// stored.
    pub(super) fn pick_without_key(&mut self, row: &PickRow) -> bool {
        let provider =
            self.overlays.need_key.iter().find(|(name, _)| *name == row.value).map(|(_, it)| it.clone());
        match provider {
            Some(provider) => self.ask_key(&provider),
            None => return false,
        }
        true
    }

    /// The providers have come that a key can be stored for.
    pub(super) fn list_logins(&mut self, providers: Vec<ModelRow>) {
        let row = |provider: ModelRow| PickRow {
            value: provider.name.clone(),
            label: provider.name,
            detail: provider.note,
            ..PickRow::default()
        };
        self.fill_picker(PickerKind::Logins, providers.into_iter().map(row).collect());
    }

    /// `/login [PROVIDER]`. A key is never taken from the text that is written: that is shown and kept as a draft.
    pub(super) fn login_command(&mut self, words: &str, cmds: &mut Vec<Cmd>) {
        match words.split_whitespace().collect::<Vec<_>>().as_slice() {
            [] => self.fetch(PickerKind::Logins, Cmd::Model(ModelCmd::Logins), cmds),
            [provider] => self.ask_key(provider),
            [provider, ..] => {
                self.ask_key(provider);
                self.show_hint("paste the key here; text after /login is ignored");
            }
        }
    }

    pub(super) fn ask_key(&mut self, provider: &str) {
        let row = PickRow {
            value: provider.to_owned(),
            label: provider.to_owned(),
            detail: "the key is checked and stored in a file that only you can read".to_owned(),
            ..PickRow::default()
        };
        self.overlays.picker = Some(Picker::new(PickerKind::Key, vec![row]));
    }

    /// Enter after a key was typed or pasted.
    pub(super) fn key_typed(&mut self, cmds: &mut Vec<Cmd>) {
        let Some(picker) = self.overlays.picker.take() else { return };
        let provider = picker.chosen().map(|row| row.value.clone()).unwrap_or_default();
        let key = picker.filter().trim().to_owned();
        if key.is_empty() {
            self.show_hint("no key entered");
        } else {
            self.show_hint(format!("checking the key of {provider} …"));
            cmds.push(Cmd::Model(ModelCmd::LogIn(provider, Secret(key))));
        }
    }

    /// `/effort [WORD]`.
    pub(super) fn effort_command(&mut self, word: &str, cmds: &mut Vec<Cmd>) {
        if word.is_empty() {
            let in_use = |is: bool| if is { "in use".to_owned() } else { String::new() };
            let row = |word: &str, detail: &str, note: String| PickRow {
                value: word.to_owned(),
                label: word.to_owned(),
                detail: detail.to_owned(),
                note,
                ..PickRow::default()
            };
            let mut rows = vec![row(THEIR_OWN, "the model's default", in_use(self.info.effort.is_none()))];
            for word in ReasoningEffort::WORDS {
                let effort = ReasoningEffort::parse(word);
                let detail = match effort {
                    Some(ReasoningEffort::None) => "no thinking",
                    Some(ReasoningEffort::Max) => "the most the model supports",
                    _ => "",
                };
                rows.push(row(word, detail, in_use(effort.is_some() && effort == self.info.effort)));
            }
            self.overlays.picker = Some(Picker::new(PickerKind::Efforts, rows));
            return;
        }
        match ReasoningEffort::parse(word) {
            None if word != THEIR_OWN => {
                let words = ReasoningEffort::WORDS.join(", ");
                self.show_hint(format!("unknown effort {word}; expected {words} or {THEIR_OWN}"));
            }
            effort => cmds.push(Cmd::Model(ModelCmd::SetEffort(effort))),
        }
    }
}
