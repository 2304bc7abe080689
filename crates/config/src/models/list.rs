//! The models that can be chosen, and those that cannot with the reason.

use std::collections::BTreeSet;

use serde::Serialize;

use super::super::endpoints::{ProbeHit, ResolvedProvider, resolve_providers};
use super::super::env::Env;
use super::super::policy::MachinePolicy;
use super::super::providers::UNKNOWN_CONTEXT_WINDOW;
use super::super::redact::without_password;
use super::super::settings::Settings;
use super::super::table::{self, can_chat};
use super::{Chooser, ModelSelection, demo, gone};
use aye_core::contract::display::visible_line;
use aye_core::contract::spec::Price;

/// One line of `aye models`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedModel {
    /// The name for `--model`.
    pub name: String,
    pub provider: String,
    /// Whether the model can be used now.
    pub usable: bool,
    /// Whether this is the model that answers next.
    pub current: bool,
    /// Why it can, or why not and what to do.
    pub why: String,
    /// Tokens that fit in one request.
    pub context_window: u64,
    /// Prices, when they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// The provider that needs a key first, when `aye login` can store one.
    #[serde(skip)]
    pub login: Option<String>,
}

/// Returns the rows of `aye models` and `/model`: the model in use, those of the settings, the models that
/// servers list (`hits`) or else the known ones of each provider with a key, demo, and the defaults of
/// providers that need a key; without those that the machine's policy does not allow.
pub fn list_models(
    settings: &Settings,
    env: &Env,
    hits: &[ProbeHit],
    current: Option<&ModelSelection>,
    policy: Option<&MachinePolicy>,
) -> Vec<ListedModel> {
    let refusal = |selection: &ModelSelection| policy?.refuses_model(&selection.full_name());
    let chooser = Chooser { settings, env, origin: "settings".to_owned(), hits };
    let mut rows: Vec<ListedModel> = Vec::new();
    for (name, own) in &settings.models {
        let provider = own.provider.as_deref().unwrap_or("");
        rows.push(match chooser.named(name) {
            Ok(selection) => match refusal(&selection) {
                Some(why) => unusable(name.clone(), provider, why),
                None => {
                    ListedModel { name: name.clone(), ..usable(&selection, "in your settings".to_owned()) }
                }
            },
            Err(error) => unusable(name.clone(), provider, error.to_string()),
        });
    }
    let all = resolve_providers(settings, env);
    for hit in hits.iter().filter(|hit| all.iter().all(|known| known.base_url != hit.candidate.base_url)) {
        for offered in hit.models.iter().filter(|offered| can_chat(&hit.candidate.provider, &offered.id)) {
            let name = format!("{}/{}", hit.candidate.provider, offered.id);
            let selection = chooser.at_hit(&name, hit, &offered.id, String::new());
            if refusal(&selection).is_none() {
                rows.push(usable(&selection, format!("{} lists it", hit.candidate.base_url)));
            }
        }
    }
    let mut without_key = Vec::new();
    for provider in &all {
        let hit = hits.iter().find(|hit| hit.candidate.base_url == provider.base_url);
        if !provider.is_set_up() && hit.is_none() {
            without_key.push(without_a_key(provider));
            continue;
        }
        let reason = reason(provider, hit);
        let names: Vec<&str> = match hit {
            Some(hit) => {
                let ids = hit.models.iter().map(|offered| offered.id.as_str());
                ids.filter(|id| can_chat(&provider.name, id)).collect()
            }
            None if provider.is_elsewhere() => Vec::new(),
            None => table::models_of(&provider.name).collect(),
        };
        let default = provider.built_in.map_or("", |built_in| built_in.default_model);
        let names = if names.is_empty() && !provider.is_elsewhere() { vec![default] } else { names };
        // A vendor's default comes first; a server at another URL knows its own order best.
        let first = names.iter().copied().filter(|id| *id == default && !provider.is_elsewhere());
        let rest = names.iter().copied().filter(|id| *id != default || provider.is_elsewhere());
        for id in first.chain(rest) {
            let selection =
                chooser.selection(&format!("{}/{id}", provider.name), provider, id, String::new());
            if refusal(&selection).is_none() {
                rows.push(usable(&selection, reason.clone()));
            }
        }
        if names.is_empty() {
            let url = visible_line(&without_password(&provider.base_url)).into_owned();
            let why = format!("{url} did not list its models; write {}/NAME for one of them", provider.name);
            rows.push(ListedModel {
                usable: true,
                ..unusable(format!("{}/NAME", provider.name), &provider.name, why)
            });
        }
    }
    rows.push(usable(&demo(String::new()), "built in, needs no network".to_owned()));
    // A model of the settings that its server lists, too, is one model.
    let mut known = BTreeSet::new();
    rows.retain(|row| known.insert(row.name.clone()));
    if let Some(current) = current {
        mark(&mut rows, current, gone(current, hits));
    }
    rows.extend(without_key);
    rows
}

/// Puts the model in use first.
pub(super) fn mark(rows: &mut Vec<ListedModel>, current: &ModelSelection, gone: Option<String>) {
    let name = current.full_name();
    let at = rows.iter().position(|row| row.usable && row.name == name);
    let mut row = match at {
        Some(at) => rows.remove(at),
        None => usable(current, current.why.clone()),
    };
    row.current = true;
    if let Some(gone) = gone {
        row.why = gone;
    }
    rows.insert(0, row);
}

pub(super) fn usable(selection: &ModelSelection, why: String) -> ListedModel {
    ListedModel {
        name: selection.full_name(),
        provider: selection.provider.clone(),
        usable: true,
        current: false,
        why,
        context_window: selection.context_window,
        price: selection.price,
        login: None,
    }
}

pub(super) fn unusable(name: String, provider: &str, why: String) -> ListedModel {
    ListedModel {
        name,
        provider: provider.to_owned(),
        usable: false,
        current: false,
        why,
        context_window: UNKNOWN_CONTEXT_WINDOW,
        price: None,
        login: None,
    }
}

/// Why the models of a provider can be used.
pub(super) fn reason(provider: &ResolvedProvider, hit: Option<&ProbeHit>) -> String {
    let key = match &provider.key_env {
        _ if provider.is_key_stored => "key from `aye login`".to_owned(),
        Some(key_env) if provider.has_key => format!("{key_env} is set"),
        _ => String::new(),
    };
    match (hit, key.is_empty()) {
        (Some(_), true) => format!("{} lists it", visible_line(&provider.base_url)),
        (Some(_), false) => format!("listed, {key}"),
        (None, true) => "its URL is set".to_owned(),
        (None, false) => format!("{key}; not checked"),
    }
}

/// The row of a provider that cannot be used yet.
pub(super) fn without_a_key(provider: &ResolvedProvider) -> ListedModel {
    let default = provider.built_in.map(|built_in| built_in.default_model).filter(|model| !model.is_empty());
    let name = format!("{}/{}", provider.name, default.unwrap_or("NAME"));
    let is_local = provider.built_in.is_some_and(|built_in| built_in.key_envs.is_empty());
    let why = if is_local && !provider.is_base_url_set {
        format!("no server at {}; start it with `ollama serve`", provider.base_url)
    } else if provider.base_url.is_empty() {
        "it has no base_url".to_owned()
    } else {
        provider.key_advice()
    };
    let takes_key = provider.built_in.is_some() && !is_local;
    let login = takes_key.then(|| provider.name.clone());
    ListedModel { login, ..unusable(name, &provider.name, why) }
}
