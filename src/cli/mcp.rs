//! `aye mcp ...`

use clap::{Args, Subcommand, ValueEnum};

use super::JsonFlag;

/// `aye mcp ...`
#[derive(Clone, Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  aye mcp add files -- npx -y @modelcontextprotocol/server-filesystem .\n  aye mcp add remote --url https://example.org/mcp --header 'Authorization=Bearer ${TOKEN}'\n  aye mcp test files\n  aye mcp login remote"
)]
pub enum McpCommand {
    /// Serve the agents of this folder as tools over stdin and stdout
    ///
    /// Questions go to the client's user if the client supports that; otherwise the call fails, and the error says how
    /// to answer. `aye serve` offers the same at /v1/mcp.
    Serve,
    /// List the configured servers without starting them
    List(JsonFlag),
    /// Add a server: a program after `--`, or --url
    Add(McpAddArgs),
    /// Remove a server from its settings file
    Remove {
        /// Name of the server
        name: String,
        /// The settings file to remove it from
        #[arg(long, value_enum, default_value_t = McpScope::User)]
        scope: McpScope,
    },
    /// Start one server, show its tools and response time, and stop it
    Test {
        /// Name of the server
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Log in to a server (OAuth) in a browser
    Login(McpLoginArgs),
    /// Log out of a server
    Logout {
        /// Name of the server
        name: String,
    },
    /// Start one server, show its tools in full, and trust them
    Trust {
        /// Name of the server
        name: String,
        /// Trust without asking
        #[arg(long)]
        yes: bool,
    },
}

/// `aye mcp add ...`
#[derive(Args, Clone, Debug)]
pub struct McpAddArgs {
    /// Name of the server; becomes part of its tools' names
    pub name: String,
    /// The URL of a running server
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub url: Option<String>,
    /// A header of each request; ${NAME} inserts an environment variable
    #[arg(long = "header", value_name = "NAME=TEXT", requires = "url")]
    pub headers: Vec<String>,
    /// An environment variable for the program; ${NAME} inserts one of yours
    #[arg(long = "env", value_name = "NAME=TEXT", requires = "command")]
    pub env: Vec<String>,
    /// The file to write: your settings, or the project's .mcp.json
    #[arg(long, value_enum, default_value_t = McpScope::User)]
    pub scope: McpScope,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "url")]
    pub command: Vec<String>,
}

/// `aye mcp login ...`
#[derive(Args, Clone, Debug)]
pub struct McpLoginArgs {
    /// Name of the server
    pub name: String,
    /// Request this scope instead of the server's proposal; repeatable
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// Show the URL without opening a browser
    #[arg(long)]
    pub no_browser: bool,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait: u64,
}

/// The file of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum McpScope {
    /// The user's settings.
    User,
    /// The project's `.mcp.json`.
    Project,
}
