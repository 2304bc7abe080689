//! The card of this server: what it offers to other agents.

use axum::Json;
use axum::extract::State;
use aye_encode::a2a::{A2A_BINDING, A2A_RPC_BINDING, A2A_VERSION, A2aCapabilities, A2aInterface};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::host::ServerTexts;
use crate::hub::Hub;
use crate::routes::extract::HubState;

/// Returns what this server offers, for clients that search for agents. The card names no folder and no
/// model.
pub(super) async fn card(State(hub): HubState) -> Json<Value> {
    Json(public_card(&hub))
}

fn public_card(hub: &Hub) -> Value {
    let interface = |path: &str, binding: &str| A2aInterface {
        url: hub.url.as_deref().map_or_else(String::new, |url| format!("{url}{path}")),
        protocol_binding: binding.into(),
        protocol_version: A2A_VERSION.into(),
    };
    let interfaces = [interface("/v1/a2a", A2A_BINDING), interface("/v1/a2a/rpc", A2A_RPC_BINDING)];
    let push_notifications = hub.program.pushes().is_some();
    let capabilities = A2aCapabilities { streaming: true, push_notifications, extended_agent_card: true };
    let ServerTexts { about, skill: [id, name, description], .. } = hub.program.texts();
    json!({
        "name": "aye",
        "description": about,
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": interfaces,
        "capabilities": capabilities,
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "securitySchemes": { "token": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } },
        "securityRequirements": [{ "schemes": { "token": { "list": [] } } }],
        "skills": [{
            "id": id,
            "name": name,
            "description": description,
            "tags": ["coding"],
        }],
    })
}

/// The same for callers with a token: with the agents, each as a tenant and a skill.
pub(super) async fn extended_card(hub: &Hub) -> Result<Value, ApiError> {
    let mut card = public_card(hub);
    let capabilities = hub.program.capabilities().await?;
    let bases = card["supportedInterfaces"].as_array().cloned().unwrap_or_default();
    for agent in capabilities["agents"].as_array().into_iter().flatten() {
        let (Some(id), about) = (agent["id"].as_str(), &agent["description"]) else { continue };
        let about = about.as_str().unwrap_or("An agent of this server");
        let skill = json!({ "id": id, "name": id, "description": about, "tags": ["agent"] });
        let interfaces = bases.iter().cloned().map(|mut interface| {
            interface["tenant"] = id.into();
            ("supportedInterfaces", interface)
        });
        for (list, entry) in interfaces.chain([("skills", skill)]) {
            if let Some(list) = card[list].as_array_mut() {
                list.push(entry);
            }
        }
    }
    Ok(card)
}
