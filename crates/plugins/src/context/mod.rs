//! The context window's plugin: it reads the section `compaction` of an agent. The runtime decides what fits
//! into a request, and when a summary is made.

use aye_core::context::{CompactionConfig, CompactionConfigKey};
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::spec::PluginConfigKey;
use aye_core::phase::{ConfigSchema, Plugin, PluginDescriptor};
use aye_core::state::JsonValue;

/// Name of the plugin.
pub const COMPACTION_PLUGIN: &str = "compaction";

/// The plugin that claims the section `compaction` and checks it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactionPlugin;

impl Plugin for CompactionPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(COMPACTION_PLUGIN, "summarises older messages")
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        vec![ConfigSchema {
            key: CompactionConfigKey::KEY,
            json_schema: schemars::schema_for!(CompactionConfig),
        }]
    }

    fn check_section(&self, _key: &str, section: &JsonValue) -> Result<(), ForeignError> {
        // A wrong shape is reported by the schema.
        let Ok(config) = serde_json::from_value::<CompactionConfig>(section.clone()) else { return Ok(()) };
        Ok(config.check()?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use aye_core::contract::spec::AgentSpec;
    use aye_core::phase::validate_sections;

    #[test]
    fn a_section_is_validated() {
        let plugins: [Arc<dyn Plugin>; 1] = [Arc::new(CompactionPlugin)];
        let check = |section| {
            let spec = AgentSpec::new("a").with_section("compaction", section);
            validate_sections(&plugins, &spec).map_err(|error| error.to_string())
        };
        assert_eq!(check(json!({"summary_max_tokens": 900, "summary_model": "small"})), Ok(Vec::new()));
        for (section, words) in [
            (json!({"summarizer_user_prompt": "Go"}), "{messages}"),
            (json!({"min_savings_ratio": 2}), "between 0 and 1"),
            (json!({"summary_max_tokens": "many"}), "/summary_max_tokens"),
            (json!({"sumary_model": "small"}), "sumary_model"),
        ] {
            let error = check(section).unwrap_err();
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
