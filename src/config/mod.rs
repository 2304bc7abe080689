//! Settings, paths, trust and the choice of a model, all as values: what reads the environment is above.

mod env;
mod layer;
mod layers;
mod paths;
mod schema;
mod settings;

pub use env::Env;
pub use layer::{Key, Origin, Problem, Value};
pub use layers::{
    ConfigError, ENV_KEYS, Flags, Loaded, Provenance, ProvenanceRow, Sources, load, project_config_files,
};
pub use paths::{Paths, PathsError, PrivateFileError, create_private_dir, write_private};
pub use settings::{
    Adapter, BashSettings, ModelSettings, PermissionMode, ProviderSettings, RetrySettings, Screen, Settings,
    StopSettings, TuiSettings, UnknownWord, documented_keys, tool_execution,
};
