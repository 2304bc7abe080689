use std::collections::BTreeSet;
use std::sync::Arc;

use super::Plugin;
use crate::contract::spec::AgentSpec;
use crate::state::JsonValue;

/// A config section that its plugin cannot use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("section `{key}` of agent `{agent}` (plugin `{plugin}`): {message}")]
pub struct SectionError {
    pub agent: String,
    /// The plugin that reads the section.
    pub plugin: &'static str,
    pub key: String,
    /// The location in the section, and the problem.
    pub message: String,
}

/// Checks each section of an agent against the schemas of its plugins, and returns the sorted names of the
/// sections that no plugin reads: typing errors, or sections of a removed plugin. An agent without sections
/// costs nothing.
///
/// # Errors
/// The first section that does not fit.
pub fn validate_sections(plugins: &[Arc<dyn Plugin>], spec: &AgentSpec) -> Result<Vec<String>, SectionError> {
    if spec.sections.is_empty() {
        return Ok(Vec::new());
    }
    let mut unclaimed: BTreeSet<&str> = spec.sections.keys().map(String::as_str).collect();
    for plugin in plugins {
        for schema in plugin.config_schemas() {
            let Some(section) = spec.sections.get(schema.key) else { continue };
            unclaimed.remove(schema.key);
            plugin
                .check_section(schema.key, section)
                .map_err(|error| error.to_string())
                .and_then(|()| check_schema(schema.json_schema.as_value(), section))
                .map_err(|message| SectionError {
                    agent: spec.id.clone(),
                    plugin: plugin.descriptor().name,
                    key: schema.key.to_owned(),
                    message,
                })?;
        }
    }
    Ok(unclaimed.into_iter().map(str::to_owned).collect())
}

fn check_schema(schema: &JsonValue, section: &JsonValue) -> Result<(), String> {
    let validator =
        jsonschema::validator_for(schema).map_err(|e| format!("its own schema is not a schema: {e}"))?;
    let problems: Vec<_> = validator
        .iter_errors(section)
        .map(|error| match error.instance_path().as_str() {
            "" => error.to_string(),
            path => format!("{path}: {error}"),
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}
