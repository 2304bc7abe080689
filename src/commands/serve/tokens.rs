//! The tokens of the server: the first one in a file of its own, further ones as hashes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::commands::serve::{ScopeArg, TokenCommand};
use crate::config::{Paths, PrivateFileError, read_private, write_private};
use crate::contract::clock::{Clock as _, SystemClock};
use crate::contract::display::visible_line;
use crate::contract::foreign::ForeignError;
use crate::failure::Failure;
use crate::program::{put, put_stderr};
use crate::server::{TokenRecord, TokenScope, TokenStore, fresh_token};

/// The name of the first token.
const FIRST: &str = "owner";
/// The maximum bytes read of a token file.
const MAX_FILE: u64 = 1 << 20;
/// The length in bytes of a token read from a file.
const TOKEN_LENGTH: std::ops::RangeInclusive<usize> = 16..=512;

/// The files of the tokens. They are read for each request, so that a revoked token is refused at once.
#[derive(Clone, Debug)]
pub(super) struct TokenFiles {
    first: PathBuf,
    further: PathBuf,
}

/// Why tokens cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenFileError {
    /// A file cannot be read, or is something else.
    #[error("cannot read {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: ForeignError },
    /// The file of the first token does not contain a token.
    #[error(
        "{} must contain one token: {} to {} printable characters without spaces",
        .0.display(), TOKEN_LENGTH.start(), TOKEN_LENGTH.end()
    )]
    NoToken(PathBuf),
    /// The tokens cannot be serialised.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] PrivateFileError),
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    tokens: Vec<TokenRecord>,
}

impl TokenFiles {
    pub(super) fn of(paths: &Paths, first: Option<PathBuf>) -> Self {
        Self { first: first.unwrap_or_else(|| paths.serve_token_file()), further: paths.serve_tokens_file() }
    }

    /// Creates the first token if none exists. Returns the file that contains it.
    pub(super) fn ensure(&self, is_given: bool) -> Result<&Path, Failure> {
        if self.first.symlink_metadata().is_err() {
            if is_given {
                return Err(Failure::usage(format!(
                    "the token file {} does not exist",
                    self.first.display()
                )));
            }
            write_private(&self.first, format!("{}\n", fresh_token()).as_bytes()).map_err(Failure::failed)?;
        }
        self.first_token().map_err(Failure::usage)?;
        Ok(&self.first)
    }

    fn first_token(&self) -> Result<Option<String>, TokenFileError> {
        let text = read_private(&self.first, MAX_FILE)
            .map_err(|why| TokenFileError::Unreadable { path: self.first.clone(), why: why.into() })?;
        let Some(text) = text else { return Ok(None) };
        let token = text.trim();
        let is_token =
            TOKEN_LENGTH.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token {
            return Err(TokenFileError::NoToken(self.first.clone()));
        }
        Ok(Some(token.to_owned()))
    }

    fn kept(&self) -> Result<Kept, TokenFileError> {
        let failed = |why: ForeignError| TokenFileError::Unreadable { path: self.further.clone(), why };
        let text = read_private(&self.further, MAX_FILE).map_err(|error| failed(error.into()))?;
        text.map_or_else(
            || Ok(Kept::default()),
            |text| serde_json::from_str(&text).map_err(|error| failed(error.into())),
        )
    }

    fn keep(&self, kept: &Kept) -> Result<(), TokenFileError> {
        let text = serde_json::to_string_pretty(kept)?;
        Ok(write_private(&self.further, format!("{text}\n").as_bytes())?)
    }
}

impl TokenStore for TokenFiles {
    fn tokens(&self) -> Result<Vec<TokenRecord>, ForeignError> {
        let mut tokens = self.kept()?.tokens;
        if let Some(first) = self.first_token()? {
            tokens.push(TokenRecord::of(&first, FIRST, &TokenScope::ALL, 0));
        }
        Ok(tokens)
    }

    fn add(&self, record: TokenRecord) -> Result<(), ForeignError> {
        let mut kept = self.kept()?;
        kept.tokens.retain(|token| token.name != record.name);
        kept.tokens.push(record);
        Ok(self.keep(&kept)?)
    }
}

/// `aye serve token`
pub(super) fn run(command: TokenCommand, files: &TokenFiles) -> Result<u8, Failure> {
    match command {
        TokenCommand::Add { name, scope } => {
            let is_name = !name.trim().is_empty() && !name.chars().any(char::is_control) && name != FIRST;
            if !is_name || name.chars().count() > 64 {
                return Err(Failure::usage(format!(
                    "invalid token name `{}`; use 1 to 64 characters, not `{FIRST}`",
                    visible_line(&name)
                )));
            }
            if files.kept().map_err(Failure::failed)?.tokens.iter().any(|token| token.name == name) {
                return Err(Failure::usage(format!(
                    "the token `{}` already exists; revoke it first",
                    visible_line(&name)
                )));
            }
            let token = fresh_token();
            let mut scopes: Vec<TokenScope> = scope.into_iter().map(TokenScope::from).collect();
            scopes.sort_unstable();
            scopes.dedup();
            let record = TokenRecord::of(&token, name, &scopes, SystemClock.now_ms());
            files.add(record).map_err(Failure::failed)?;
            put_stderr("the token, shown only once:");
            put(&format!("{token}\n"))?;
        }
        TokenCommand::List(json) => {
            let tokens = files.tokens().map_err(Failure::failed)?;
            if json.json {
                let shown: Vec<_> = tokens
                    .iter()
                    .map(|token| serde_json::json!({ "name": token.name, "scopes": token.scopes, "created_at": token.created_at }))
                    .collect();
                crate::commands::put_json(&serde_json::json!(shown))?;
                return Ok(0);
            }
            let width = tokens.iter().map(|token| token.name.chars().count()).max().unwrap_or(0);
            for token in &tokens {
                let scopes: Vec<_> = token.scopes.iter().map(|scope| scope.as_str()).collect();
                put(&format!("{:width$}  {}\n", visible_line(&token.name), scopes.join(", ")))?;
            }
        }
        TokenCommand::Revoke { name } => {
            if name == FIRST {
                return Err(Failure::usage(format!(
                    "the token `{FIRST}` is stored in {}; remove that file, and the next start creates a new one",
                    files.first.display()
                )));
            }
            let mut kept = files.kept().map_err(Failure::failed)?;
            let before = kept.tokens.len();
            kept.tokens.retain(|token| token.name != name);
            if kept.tokens.len() == before {
                return Err(Failure::usage(format!(
                    "unknown token `{}`; `aye serve token list` shows all",
                    visible_line(&name)
                )));
            }
            files.keep(&kept).map_err(Failure::failed)?;
            put_stderr(&format!("revoked {}", visible_line(&name)));
        }
    }
    Ok(0)
}

impl From<ScopeArg> for TokenScope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Read => Self::Read,
            ScopeArg::Chat => Self::Chat,
            ScopeArg::Decide => Self::Decide,
            ScopeArg::Admin => Self::Admin,
        }
    }
}
