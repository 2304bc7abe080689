//! Stored keys of providers: `aye login`, `aye logout`, `/login`, `/logout`.
//!
//! One file for each provider, mode 0600, with the key or a note that the system keyring has it. A start only lists the
//! files; a key is read when its model is used. A key belongs to the URL at which it was checked and is sent to no
//! other. Variables override stored keys.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{Paths, ResolvedProvider, key_sources, read_private, resolve_providers, write_private};
use crate::contract::display::visible_line;
use crate::contract::near::or_these;
use crate::failure::AppError;
use crate::llm::OffersError;
use crate::program::foundation::Foundation;
use crate::program::keyring::Keyring;
use crate::program::models::try_key;

/// The maximum length of a key.
pub(crate) const MAX_KEY: usize = 8 << 10;
/// The maximum length of a key's name.
const MAX_NAME: usize = 64;

/// The content of a key's file.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StoredKey {
    /// The URL at which the key was checked.
    base_url: String,
    /// The key, unless the keyring has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    keyring: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl StoredKey {
    /// Reads a key's file; returns `None` if it does not exist.
    fn read(file: &Path) -> Result<Option<Self>, AppError> {
        let Ok(about) = std::fs::metadata(file) else { return Ok(None) };
        if about.mode() & 0o077 != 0 {
            return Err(format!(
                "others can read {}; run chmod 600 on it, or `aye login` again",
                file.display()
            )
            .into());
        }
        let Some(text) = read_private(file, 2 * MAX_KEY as u64).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        // The parser's error would quote the file's content.
        let stored: Option<Self> = serde_json::from_str(&text).ok();
        stored
            .filter(|stored| stored.key.is_some() != stored.keyring)
            .map(Some)
            .ok_or_else(|| format!("{} cannot be read; run `aye login` again", file.display()).into())
    }

    fn write(&self, file: &Path) -> Result<(), AppError> {
        let text = serde_json::to_string(self).map_err(|_| "the key cannot be written")?;
        write_private(file, text.as_bytes()).map_err(|error| {
            let cause =
                std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{error}{cause}").into()
        })
    }

    /// The name of the key in the keyring. It contains the URL: installations with different settings may share one.
    fn name(&self, file: &Path) -> String {
        let provider = file.file_name().unwrap_or_default().to_string_lossy();
        format!("{provider} {}", self.base_url)
    }
}

/// The file of a provider's key.
pub(crate) fn file(paths: &Paths, provider: &str) -> PathBuf {
    paths.keys_dir().join(provider)
}

/// Lists the providers with a stored key. No key is read.
pub(crate) fn refresh_stored_keys(foundation: &Foundation) {
    let rows = std::fs::read_dir(foundation.paths.keys_dir()).into_iter().flatten().flatten();
    let names =
        rows.filter_map(|row| row.file_name().into_string().ok()).filter(|name| !name.starts_with('.'));
    foundation.env.set_stored_keys(names.collect::<BTreeSet<_>>());
}

/// Returns the stored key of a provider, if it belongs to that URL.
pub(crate) async fn read(
    foundation: &Foundation,
    provider: &str,
    base_url: &str,
) -> Result<Option<String>, AppError> {
    read_file(&file(&foundation.paths, provider), base_url, &foundation.keyring).await
}

/// Does the same, given the file.
pub(crate) async fn read_file(
    file: &Path,
    base_url: &str,
    keyring: &Keyring,
) -> Result<Option<String>, AppError> {
    match StoredKey::read(file)?.filter(|stored| stored.base_url == base_url) {
        Some(stored) if stored.keyring => match keyring.read(&stored.name(file), file).await? {
            Some(key) => Ok(Some(key)),
            None => Err("its key is no longer in the system keyring; run `aye login` again".into()),
        },
        Some(stored) => Ok(stored.key),
        None => Ok(None),
    }
}

/// Stores a key in the keyring when `keyring` is given, else in the file. A key that the keyring has for another
/// address is removed. The keyring comes first: a file never names a key that is not there.
async fn keep(file: &Path, base_url: &str, key: &str, keyring: Option<&Keyring>) -> Result<(), AppError> {
    let base_url = base_url.to_owned();
    let Some(keyring) = keyring else {
        return StoredKey { base_url, key: Some(key.to_owned()), keyring: false }.write(file);
    };
    let stored = StoredKey { base_url, key: None, keyring: true };
    let name = stored.name(file);
    keyring.store(&name, key).await?;
    if let Ok(Some(before)) = StoredKey::read(file)
        && before.keyring
        && before.base_url != stored.base_url
    {
        keyring.remove(&before.name(file)).await?;
    }
    stored.write(file)
}

/// Removes a key's file, and the key from the keyring if it is there. The file is removed even if no keyring
/// responds: aye does not use the key any more.
async fn forget(file: &Path, keyring: &Keyring) -> Result<(), AppError> {
    let stored = StoredKey::read(file).ok().flatten().filter(|stored| stored.keyring);
    std::fs::remove_file(file).map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
    let Some(name) = stored.map(|stored| stored.name(file)) else { return Ok(()) };
    keyring.remove(&name).await.map_err(|why| {
        let still =
            format!("aye no longer uses the key, but the keyring may still contain it as `{name}` of `aye`");
        format!("{why}; {still}").into()
    })
}

/// The name that aye has for a provider, which may be under a key.
fn known_as(name: &str) -> String {
    match name.strip_prefix("google") {
        Some(rest) if rest.is_empty() || rest.starts_with('@') => format!("gemini{rest}"),
        _ => name.to_owned(),
    }
}

fn is_key_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_plain)
}

/// The providers that a key can be stored for, and that one of them; `provider@key` is it under a key with a name.
pub(crate) fn provider(foundation: &Foundation, name: &str) -> Result<ResolvedProvider, AppError> {
    let name = known_as(name);
    let name = name.as_str();
    let all = takers(foundation);
    let (base, key) = name.split_once('@').map_or((name, None), |(base, key)| (base, Some(key)));
    if let Some(key) = key.filter(|key| !is_key_name(key)) {
        return Err(format!(
            "`{}` is no name for a key; use up to {MAX_NAME} letters, digits, `-`, `_` and `.`",
            visible_line(key)
        )
        .into());
    }
    let known = all.iter().find(|provider| provider.name == base);
    let under = |provider: &ResolvedProvider| {
        key.map_or_else(|| provider.clone(), |key| provider.under_key(key, &foundation.env))
    };
    known.map(under).ok_or_else(|| {
        let others = or_these(name, all.iter().map(|provider| provider.name.as_str()));
        format!("no provider `{}` uses a key{others}", visible_line(name)).into()
    })
}

/// The providers that a key can be stored for.
pub(crate) fn takers(foundation: &Foundation) -> Vec<ResolvedProvider> {
    let all = resolve_providers(&foundation.loaded.settings, &foundation.env);
    let is_file_name = |name: &str| {
        !name.starts_with('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c))
    };
    all.into_iter()
        .filter(|provider| {
            provider.name != "ollama" && !provider.base_url.is_empty() && is_file_name(&provider.name)
        })
        .collect()
}

/// Returns the source of each key, for `aye doctor`, and `false` if a stored key cannot be used. The keyring
/// is not unlocked.
pub(crate) async fn report(foundation: &Foundation) -> (bool, String) {
    let (mut is_well, mut rows) = (true, Vec::new());
    for source in key_sources(&foundation.loaded.settings, &foundation.env) {
        let file = file(&foundation.paths, &source.provider);
        let stored = match StoredKey::read(&file) {
            Ok(Some(stored)) if stored.keyring => match foundation.keyring.reach().await {
                Ok(()) => Ok("`aye login` (system keyring)".to_owned()),
                Err(why) => Err(format!("`aye login` (system keyring; {why})")),
            },
            Ok(_) => Ok(format!("`aye login` ({})", foundation.paths.display(&file))),
            Err(why) => Err(why.to_string()),
        };
        is_well &= stored.is_ok() || !source.is_stored;
        let stored = stored.unwrap_or_else(|why| why);
        let from = match (source.variable.filter(|_| source.is_set), source.is_stored) {
            (Some(variable), true) => format!("{variable}, which wins over {stored}"),
            (Some(variable), false) => variable,
            (None, _) => stored,
        };
        rows.push(format!("{}: {from}", source.provider));
    }
    let words = if rows.is_empty() { "none; `aye login` stores one".to_owned() } else { rows.join("; ") };
    (is_well, words)
}

pub(crate) struct KeyLogin {
    /// What was done, as a sentence.
    pub(crate) words: String,
    /// Whether the provider accepted the key.
    pub(crate) is_checked: bool,
}

/// Checks a key and stores it: in the keyring if `in_keyring`, or if the last login of the provider stored it
/// there. A key that cannot be checked is stored, too.
pub(crate) async fn log_in(
    foundation: &Foundation,
    name: &str,
    key: &str,
    in_keyring: bool,
) -> Result<KeyLogin, AppError> {
    let provider = provider(foundation, name)?;
    let key = key.trim();
    if key.is_empty() {
        return Err("the key is empty; nothing is stored".into());
    }
    if key.len() > MAX_KEY || key.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("invalid key: it contains spaces or is too long; nothing is stored".into());
    }
    let offered = match try_key(&provider, key).await {
        Ok(models) => Ok(models.len()),
        Err(OffersError::Refused(why)) => return Err(format!("{why}; nothing is stored").into()),
        Err(OffersError::Unreachable(why)) => Err(format!("no network ({why})")),
        Err(OffersError::Failed(why)) => Err(why),
    };
    let file = file(&foundation.paths, &provider.name);
    let was_in_keyring = matches!(StoredKey::read(&file), Ok(Some(before)) if before.keyring);
    let place = if in_keyring || was_in_keyring {
        let advice = if in_keyring {
            "without --keyring, a file that only you can read keeps the key".to_owned()
        } else {
            format!("after `aye logout {}`, a file that only you can read keeps the key", provider.name)
        };
        keep(&file, &provider.base_url, key, Some(&foundation.keyring))
            .await
            .map_err(|why| format!("{why}; nothing is stored; {advice}"))?;
        "the system keyring".to_owned()
    } else {
        keep(&file, &provider.base_url, key, None).await?;
        foundation.paths.display(&file)
    };
    refresh_stored_keys(foundation);
    let done = match &offered {
        Ok(1) => format!("logged in to {} (1 model)", provider.name),
        Ok(count) => format!("logged in to {} ({count} models)", provider.name),
        Err(why) => format!("saved, not checked: {why}"),
    };
    let words = format!("{done}; the key is in {place}{}", wins(foundation, &provider));
    Ok(KeyLogin { words, is_checked: offered.is_ok() })
}

/// Returns the note that a variable takes precedence over the stored key, if one does.
fn wins(foundation: &Foundation, provider: &ResolvedProvider) -> String {
    let set = provider.key_env.as_deref().filter(|name| foundation.env.has(name));
    set.map(|name| format!("; {name} is set and wins over it")).unwrap_or_default()
}

/// Removes a stored key; without a name, the only one.
pub(crate) async fn log_out(foundation: &Foundation, name: Option<&str>) -> Result<String, AppError> {
    refresh_stored_keys(foundation);
    let stored: Vec<String> = takers(foundation)
        .into_iter()
        .map(|provider| provider.name)
        .filter(|name| foundation.env.has_stored_key(name))
        .collect();
    let name = name.map(known_as);
    let name = match (name.as_deref(), stored.as_slice()) {
        (Some(name), _) => name,
        (None, []) => return Err("no key is stored".into()),
        (None, [only]) => only,
        (None, several) => {
            return Err(format!("name the provider; keys are stored for {}", several.join(", ")).into());
        }
    };
    let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    if !is_plain || !foundation.env.has_stored_key(name) {
        return Err(format!("no key is stored for `{}`", visible_line(name)).into());
    }
    let file = file(&foundation.paths, name);
    let forgotten = forget(&file, &foundation.keyring).await;
    refresh_stored_keys(foundation);
    forgotten?;
    let also = takers(foundation).into_iter().find(|provider| provider.name == name);
    let set = also.and_then(|provider| provider.key_env).filter(|name| foundation.env.has(name));
    let still = set.map(|name| format!("; {name} is still set")).unwrap_or_default();
    Ok(format!("the stored key of {name} is removed{still}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::keyring::tests::{mocked, without_service};

    const OPENAI: &str = "https://api.openai.com/v1/";

    async fn key_at(file: &Path, base_url: &str, keyring: &Keyring) -> Result<Option<String>, String> {
        read_file(file, base_url, keyring).await.map_err(|why| why.to_string())
    }

    #[tokio::test]
    async fn a_key_is_read_from_a_private_file_only_for_its_own_url() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("openai");
        let keyring = without_service();
        write_private(&file, br#"{"base_url": "https://api.openai.com/v1/", "key": "sk-canary"}"#)
            .expect("written");
        assert_eq!(key_at(&file, OPENAI, &keyring).await, Ok(Some("sk-canary".to_owned())));
        let other = key_at(&file, "http://127.0.0.1:9/v1/", &keyring).await;
        assert_eq!(other, Ok(None), "no other server gets it");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("mode");
        let why = key_at(&file, OPENAI, &keyring).await.expect_err("others can read it");
        assert!(why.contains("chmod 600") && !why.contains("canary"), "{why}");
        for broken in
            ["sk-canary", r#"{"base_url": "x"}"#, r#"{"base_url": "x", "key": "sk-canary", "keyring": true}"#]
        {
            write_private(&file, broken.as_bytes()).expect("written");
            let why = key_at(&file, OPENAI, &keyring).await.expect_err(broken);
            assert!(!why.contains("canary"), "{why}");
        }
        assert_eq!(key_at(&dir.path().join("nothing"), "x", &keyring).await, Ok(None));
    }

    #[tokio::test]
    async fn a_keyring_key_is_in_no_file_and_used_only_for_its_own_url() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("openai");
        let (keyring, _, opened) = mocked();
        keep(&file, OPENAI, "sk-canary", Some(&keyring)).await.expect("kept");
        let text = std::fs::read_to_string(&file).expect("a file");
        assert_eq!(text, r#"{"base_url":"https://api.openai.com/v1/","keyring":true}"#);
        assert_eq!(key_at(&file, OPENAI, &keyring).await, Ok(Some("sk-canary".to_owned())));
        let before = *opened.lock().expect("the count");
        assert_eq!(key_at(&file, "http://127.0.0.1:9/v1/", &keyring).await, Ok(None));
        assert_eq!(*opened.lock().expect("the count"), before, "it is not even asked");
        // A login at another address removes the key of the first.
        keep(&file, "http://127.0.0.1:9/v1/", "sk-next", Some(&keyring)).await.expect("kept");
        assert_eq!(keyring.read(&format!("openai {OPENAI}"), Path::new("/none")).await, Ok(None));
        forget(&file, &keyring).await.expect("forgotten");
        assert!(!file.exists());
        assert_eq!(keyring.read("openai http://127.0.0.1:9/v1/", Path::new("/none")).await, Ok(None));
    }

    #[tokio::test]
    async fn without_a_keyring_nothing_is_stored_elsewhere_and_a_logout_reports_leftovers() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("openai");
        let why = keep(&file, OPENAI, "sk-canary", Some(&without_service())).await.expect_err("no keyring");
        assert_eq!(why.to_string(), "no system keyring responds: no session bus");
        assert!(!file.exists());
        let (keyring, ..) = mocked();
        keep(&file, OPENAI, "sk-canary", Some(&keyring)).await.expect("kept");
        let why = key_at(&file, OPENAI, &without_service()).await.expect_err("no keyring");
        assert_eq!(why, "no system keyring responds: no session bus");
        let why = forget(&file, &without_service()).await.expect_err("no keyring").to_string();
        assert!(
            why.contains("may still contain it as `openai https://api.openai.com/v1/` of `aye`"),
            "{why}"
        );
        assert!(!file.exists(), "aye does not use it any more");
    }
}
