//! Plugin sections of the settings: given to the active agent, and checked at start.

use crate::config::Provenance;
use crate::contract::spec::AgentSpec;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::parts::AGENT;
use crate::runtime::{AgentRuntime, ResolveError};

/// The table of the settings.
pub(crate) const TABLE: &str = "sections";

/// Sections of the settings that hold for every agent, joined with its own, with the list that is joined.
pub(crate) const FOR_ALL: [(&str, &str); 2] = [("permission", "rules"), ("stop", "conditions")];

/// Returns whether a section of the settings applies to every agent.
pub(crate) fn holds_for_all(key: &str) -> bool {
    FOR_ALL.iter().any(|(known, _)| *known == key)
}

/// Returns the agent with the settings for its plugins.
pub(crate) fn with_sections(spec: AgentSpec, foundation: &Foundation) -> AgentSpec {
    let sections = &foundation.loaded.settings.sections;
    sections.iter().fold(spec, |spec, (name, section)| spec.with_section(name, section.clone()))
}

/// Checks that each plugin can use its section. Returns warnings about sections that no plugin reads.
pub(crate) fn check(runtime: &AgentRuntime, foundation: &Foundation) -> Result<Vec<String>, Failure> {
    if foundation.loaded.settings.sections.is_empty() {
        return Ok(Vec::new());
    }
    let provenance = &foundation.loaded.provenance;
    let agent = runtime.try_resolve(AGENT).map_err(|error| Failure::usage(placed(&error, provenance)))?;
    let warning = |name: &String| {
        let place = provenance.origin_in(TABLE, name, "").map(|origin| format!("{origin}: "));
        format!("{}no plugin uses the section `{name}`", place.unwrap_or_default())
    };
    Ok(agent.warnings.iter().map(warning).collect())
}

/// Returns the error with its place in the settings.
fn placed(error: &ResolveError, provenance: &Provenance) -> String {
    let place = match error {
        ResolveError::InvalidPluginConfig { key, message, .. } => {
            provenance.origin_in(TABLE, key, &pointer_of(message))
        }
        ResolveError::AgentNotFound(_)
        | ResolveError::ModelNotFound(_)
        | ResolveError::ProviderNotFound(_)
        | ResolveError::PluginNotFound(_)
        | ResolveError::RemoteAgentNotDirectlyRunnable(_)
        | ResolveError::ToolIdConflict { .. }
        | ResolveError::InvalidToolPattern { .. }
        | ResolveError::InvalidDelegate { .. }
        | ResolveError::EnvBuild(_) => None,
    };
    match place {
        Some(place) => format!("{place}: {error}"),
        None => error.to_string(),
    }
}

/// Returns the part of a section that an error is about, as a JSON pointer: errors start with it, as
/// `/rules/0` or `rules[0]`. If the error starts with something else, the pointer leads nowhere, and the
/// place of the section itself is the right one.
pub(crate) fn pointer_of(message: &str) -> String {
    let part = message.split_once(": ").map_or("", |(part, _)| part).trim_start_matches('/');
    format!("/{}", part.replace('[', "/").replace(']', "").replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::pointer_of;

    #[test]
    fn an_error_starts_with_the_part_it_is_about() {
        assert_eq!(pointer_of("/rules/0/tool: 5 is not a text"), "/rules/0/tool");
        assert_eq!(pointer_of("conditions[2]: unknown variant"), "/conditions/2");
        assert_eq!(pointer_of("a.b[1].c: no"), "/a/b/1/c");
        assert_eq!(pointer_of("it must be a map"), "/");
    }
}
