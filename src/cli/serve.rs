//! `aye serve`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::JsonFlag;

/// `aye serve ...`
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// The subcommand; without one, serve.
    #[command(subcommand)]
    pub command: Option<ServeCommand>,
    /// Address and port, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    pub bind: String,
    /// File with the first token; without it, one is created beside the store
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Serve a public address without TLS: anyone who sees the traffic can use its token
    #[arg(long)]
    pub insecure_bind: bool,
}

/// `aye serve token`
#[derive(Clone, Debug, Subcommand)]
pub enum ServeCommand {
    /// Add, list and revoke tokens
    #[command(subcommand)]
    Token(TokenCommand),
}

/// `aye serve token ...`
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it once
    Add {
        /// Name of the token
        name: String,
        /// Scopes of the token
        #[arg(long, value_enum, value_delimiter = ',', default_values = ["read", "chat", "decide"])]
        scope: Vec<ScopeArg>,
    },
    /// List tokens
    List(JsonFlag),
    /// Revoke a token; it is refused at once
    Revoke {
        /// Its name
        name: String,
    },
}

/// A scope of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// See conversations, questions and the audit
    Read,
    /// Send messages, stop runs, start conversations
    Chat,
    /// Answer questions
    Decide,
    /// Delete conversations
    Admin,
}
