//! Tokens, what they allow, and codes to sign in with.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aye_core::contract::digest::sha256_hex;
use aye_core::contract::foreign::ForeignError;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

/// Time for which a code can be used.
const CODE_LIFE: Duration = Duration::from_mins(5);
/// Wrong tokens of one address before its answers are slowed down.
const FREE_MISTAKES: u32 = 5;
/// Maximum delay of the answer to a wrong token.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Time without a wrong token after which an address is forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_mins(1);
/// Addresses that are remembered. When there are more, all are forgotten.
const ADDRESSES: usize = 4096;

/// The permissions of a token. No scope includes another one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    /// See conversations, questions and the audit.
    Read,
    /// Send messages, stop runs, start conversations.
    Chat,
    /// Answer questions.
    Decide,
    /// Delete conversations, define agents and models.
    Admin,
}

impl TokenScope {
    pub const ALL: [TokenScope; 4] =
        [TokenScope::Read, TokenScope::Chat, TokenScope::Decide, TokenScope::Admin];

    /// Its name in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenScope::Read => "read",
            TokenScope::Chat => "chat",
            TokenScope::Decide => "decide",
            TokenScope::Admin => "admin",
        }
    }
}

/// A stored token: only its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The name that its owner gave it.
    pub name: String,
    /// The scopes that the token allows.
    pub scopes: Vec<TokenScope>,
    /// SHA-256 of the token, hex.
    pub hash: String,
    /// Created, in Unix milliseconds.
    pub created_at: u64,
}

impl TokenRecord {
    /// The record of a token.
    pub fn of(token: &str, name: impl Into<String>, scopes: &[TokenScope], created_at: u64) -> Self {
        Self { name: name.into(), scopes: scopes.to_vec(), hash: sha256_hex(token), created_at }
    }
}

/// Keeps tokens, so that they outlive the server.
pub trait TokenStore: Send + Sync {
    /// The tokens that are valid now. One that was revoked in another process must not be among them.
    ///
    /// # Errors
    /// Why they cannot be read; then no token is valid.
    fn tokens(&self) -> Result<Vec<TokenRecord>, ForeignError>;

    /// Adds a token. One with the same name is replaced.
    ///
    /// # Errors
    /// Why it cannot be kept.
    fn add(&self, record: TokenRecord) -> Result<(), ForeignError>;
}

/// Returns a token that cannot be guessed: 244 random bits.
pub fn fresh_token() -> String {
    format!("aye_{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The name of the token.
    pub token: String,
    /// The scopes that the token allows.
    pub scopes: Vec<TokenScope>,
    /// The caller's own id of this request.
    pub correlation_id: Option<String>,
}

impl Caller {
    /// Whether the token allows a scope.
    pub fn may(&self, scope: TokenScope) -> bool {
        self.scopes.contains(&scope)
    }
}

/// The access control of the server.
pub struct Access {
    tokens: Box<dyn TokenStore>,
    /// Codes by their hash, each with the moment at which it ends.
    codes: Mutex<HashMap<String, Instant>>,
    failed_attempts: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl Access {
    /// Access by the tokens of a store.
    pub fn new(tokens: Box<dyn TokenStore>) -> Self {
        Self { tokens, codes: Mutex::default(), failed_attempts: Mutex::default() }
    }

    /// Returns the owner of a token; `None` if the token is invalid.
    pub fn caller(&self, token: &str) -> Option<Caller> {
        let hash = sha256_hex(token);
        let records = self.tokens.tokens().unwrap_or_else(|error| {
            tracing::error!(%error, "tokens cannot be read; every request is refused");
            Vec::new()
        });
        // All are compared, each in constant time.
        let mut found = None;
        for record in records {
            if bool::from(record.hash.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(Caller { token: record.name, scopes: record.scopes, correlation_id: None });
            }
        }
        found
    }

    /// A code that signs one device in, once, within five minutes.
    pub fn new_code(&self) -> String {
        let code = uuid::Uuid::new_v4().simple().to_string();
        let now = Instant::now();
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, ends| *ends > now);
        codes.insert(sha256_hex(&code), now + CODE_LIFE);
        code
    }

    /// Spends a code for a token. `None` for a code that is not valid.
    ///
    /// # Errors
    /// Why the token cannot be kept.
    pub fn sign_in(&self, code: &str, now_ms: u64) -> Result<Option<(String, TokenRecord)>, ForeignError> {
        let spent = self.codes.lock().unwrap_or_else(PoisonError::into_inner).remove(&sha256_hex(code));
        if spent.is_none_or(|ends| ends <= Instant::now()) {
            return Ok(None);
        }
        let token = fresh_token();
        let name = format!("browser {}", &sha256_hex(&token)[..8]);
        let record =
            TokenRecord::of(&token, name, &[TokenScope::Read, TokenScope::Chat, TokenScope::Decide], now_ms);
        self.tokens.add(record.clone())?;
        Ok(Some((token, record)))
    }

    /// Notes a wrong token and says how long to hold the answer back. Clients without an address count as one.
    pub fn mistake(&self, from: Option<IpAddr>) -> Duration {
        let from = from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let now = Instant::now();
        let mut failed_attempts = self.failed_attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if failed_attempts.len() >= ADDRESSES {
            failed_attempts.clear();
        }
        let (count, last) = failed_attempts.entry(from).or_insert((0, now));
        if now.duration_since(*last) > FORGIVEN_AFTER {
            *count = 0;
        }
        *count = count.saturating_add(1);
        *last = now;
        let over = count.saturating_sub(FREE_MISTAKES);
        if over == 0 { Duration::ZERO } else { (Duration::from_millis(50) * over).min(LONGEST_PAUSE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct InMemory(Mutex<Vec<TokenRecord>>);

    impl TokenStore for InMemory {
        fn tokens(&self) -> Result<Vec<TokenRecord>, ForeignError> {
            Ok(self.0.lock().expect("not poisoned").clone())
        }

        fn add(&self, record: TokenRecord) -> Result<(), ForeignError> {
            self.0.lock().expect("not poisoned").push(record);
            Ok(())
        }
    }

    #[test]
    fn a_code_signs_in_once() {
        let access = Access::new(Box::<InMemory>::default());
        let code = access.new_code();
        let (token, record) = access.sign_in(&code, 1).expect("it is kept").expect("it is valid");
        assert_eq!(access.sign_in(&code, 2).expect("nothing is kept"), None);
        assert_eq!(access.sign_in("guess", 2).expect("nothing is kept"), None);
        let caller = access.caller(&token).expect("the token is valid");
        assert_eq!(caller.token, record.name);
        assert!(caller.may(TokenScope::Decide) && !caller.may(TokenScope::Admin));
        assert!(!record.hash.contains(&token));
        assert!(access.caller(&token[1..]).is_none());
    }

    #[test]
    fn guessing_is_slowed_down_per_client() {
        let access = Access::new(Box::<InMemory>::default());
        let one = Some(IpAddr::from([192, 0, 2, 1]));
        for _ in 0..FREE_MISTAKES {
            assert_eq!(access.mistake(one), Duration::ZERO);
        }
        assert!(access.mistake(one) > Duration::ZERO);
        for _ in 0..1000 {
            access.mistake(one);
        }
        assert_eq!(access.mistake(one), LONGEST_PAUSE);
        assert_eq!(access.mistake(Some(IpAddr::from([192, 0, 2, 2]))), Duration::ZERO);
        let slowed = (0..=FREE_MISTAKES).any(|_| access.mistake(None) > Duration::ZERO);
        assert!(slowed, "clients behind a socket without addresses");
    }
}
