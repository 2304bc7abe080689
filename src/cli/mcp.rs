//! `aye mcp ...`

use clap::{Args, Subcommand, ValueEnum};

use super::JsonFlag;

/// `aye mcp ...`
#[derive(Clone, Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  aye mcp add files -- npx -y @modelcontextprotocol/server-filesystem .\n  aye mcp add remote --url https://example.org/mcp --header 'Authorization=Bearer ${TOKEN}'\n  aye mcp test files\n  aye mcp login remote"
)]
pub enum McpCommand {
    /// List the servers that are known; nothing is started
    List(JsonFlag),
    /// Write a server down: a program behind `--`, or an address
    Add(McpAddArgs),
    /// Take a server out of the file that it stands in
    Remove {
        /// Its name
        name: String,
        /// Whose file
        #[arg(long, value_enum, default_value_t = McpScope::User)]
        scope: McpScope,
    },
    /// Start one server, show what it offers and how fast it answers, and end it
    Test {
        /// Its name
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Log in to a server (OAuth): shows where to go in a browser and waits for it to come back
    Login(McpLoginArgs),
    /// Forget the login at a server
    Logout {
        /// Its name
        name: String,
    },
    /// Start one server, show its tools with all that they say, and agree to them
    Trust {
        /// Its name
        name: String,
        /// Agree without being asked
        #[arg(long)]
        yes: bool,
    },
}

/// `aye mcp add ...`
#[derive(Args, Clone, Debug)]
pub struct McpAddArgs {
    /// Its name: a part of the names of its tools
    pub name: String,
    /// The address of a server that is there already
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub url: Option<String>,
    /// A header of each request; ${NAME} takes one of your variables
    #[arg(long = "header", value_name = "NAME=TEXT", requires = "url")]
    pub headers: Vec<String>,
    /// A variable of the program; ${NAME} takes one of yours
    #[arg(long = "env", value_name = "NAME=TEXT", requires = "command")]
    pub env: Vec<String>,
    /// Whose file it is written to: your settings, or the project's .mcp.json
    #[arg(long, value_enum, default_value_t = McpScope::User)]
    pub scope: McpScope,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "url")]
    pub command: Vec<String>,
}

/// `aye mcp login ...`
#[derive(Args, Clone, Debug)]
pub struct McpLoginArgs {
    /// Its name
    pub name: String,
    /// Ask for this instead of what the server proposes; may be given several times
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// Only show the address
    #[arg(long)]
    pub no_browser: bool,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait: u64,
}

/// Whose file a server stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum McpScope {
    /// The person's settings.
    User,
    /// The project's `.mcp.json`.
    Project,
}
