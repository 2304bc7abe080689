//! Settings, paths, trust and the choice of a model, all as values: what reads the environment is above.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

pub mod agents;
mod edit;
mod endpoints;
mod env;
mod instructions;
mod kinds;
mod layer;
mod layers;
mod models;
mod paths;
mod plugin_folders;
mod policy;
mod providers;
mod redact;
mod schema;
mod server_tables;
mod servers;
mod settings;
mod table;
mod trust;
mod zone;

pub use edit::{SettingsEditError, set_text, unset};
pub use endpoints::{
    OfferedModel, ProbeCandidate, ProbeHit, ResolvedProvider, normalise_base_url, probe_candidates,
    resolve_providers,
};
pub use env::Env;
pub use instructions::{InstructionFile, InstructionPlaces, Instructions, MAX_INSTRUCTIONS, repository_root};
pub use kinds::{OnAsk, STATUS_SEGMENTS};
pub use layer::{Key, Origin, Problem};
pub use layers::{
    ConfigError, ENV_KEYS, Flags, Loaded, Provenance, ProvenanceRow, Sources, load, project_config_files,
};
pub use models::{
    DEMO, KeySource, ListedModel, ModelSelection, SelectError, gone, key_sources, list_models, needs_probe,
    select_model, wants_list,
};
pub use paths::{
    Paths, PathsError, PrivateFileError, ReadTextError, create_private_dir, read_private, read_resolved,
    write_private,
};
pub use plugin_folders::{PluginFolder, plugin_folders};
pub use policy::{MachinePolicy, POLICY_FILE, PolicyError};
pub use providers::{BuiltInProvider, PROVIDERS};
pub use schema::{SettingDoc, documented_settings};
pub use server_tables::{ServerTableError, with_server, without_server};
pub use servers::{
    OfferedServer, SERVERS_FILE, Servers, UnsetVariable, add_plugin_servers, fill_variables, load_servers,
    load_session_servers, server_files,
};
pub use settings::{
    Adapter, BackgroundSettings, BashSettings, ContextSettings, Editing, Images, MailboxSettings,
    McpSettings, ModelSettings, OnLimit, PermissionMode, PriceSettings, ProviderSettings, QuestionSettings,
    RetrySettings, SandboxMissing, SandboxSettings, ScreenMode, ServeSettings, ServerSettings, Settings,
    SnapshotSettings, StopSettings, TelemetrySettings, ThreadSettings, TuiSettings, UpgradeSettings, Wake,
    WebhookFormat, WebhookSettings,
};
pub use table::{
    KnownModel, ModelEfforts, can_chat, known_price, models_of, price_of, successor, writes_patches,
};
pub use trust::{TrustAssessment, TrustError, TrustItem, TrustStore};
pub use zone::local_zone;
