//! Keys of providers in the system's keyring: the Secret Service, on macOS the keychain.
//!
//! The keyring is accessed when a key is stored, first needed or removed, never at a start. It may wait for
//! the user to unlock it, so each request has a thread of its own, which is left alone if the work is
//! cancelled.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use keyring_core::{CredentialStore, Entry, Error};

use crate::contract::display::visible_line;

/// The service under which the keyring lists the keys.
const SERVICE: &str = "aye";

/// How long a keyring that needs no unlocking may take.
const PROMPT: Duration = Duration::from_secs(3);

type Open = dyn Fn() -> keyring_core::Result<Arc<CredentialStore>> + Send + Sync;

/// The system's keyring. Clones share the keys that were read.
#[derive(Clone)]
pub(crate) struct Keyring {
    open: Arc<Open>,
    read: Arc<Mutex<HashMap<String, (FileVersion, String)>>>,
}

/// The version of the file that refers to the keyring: a new version means a new login.
#[derive(Clone, PartialEq, Eq)]
struct FileVersion(u64, Option<SystemTime>);

impl FileVersion {
    fn of(file: &Path) -> Option<Self> {
        let about = std::fs::metadata(file).ok()?;
        Some(Self(about.ino(), about.modified().ok()))
    }
}

/// What the system keyring did not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyringError {
    #[error("no system keyring responds{0}")]
    Absent(String),
    #[error("the system keyring does not respond")]
    Silent,
    #[error("the system keyring did not return the key: {0}")]
    NotRead(String),
    #[error("the system keyring did not store the key: {0}")]
    NotStored(String),
    #[error("the system keyring did not remove the key: {0}")]
    NotRemoved(String),
}

impl Keyring {
    /// The keyring of the user's session.
    pub(crate) fn system() -> Self {
        #[cfg(all(feature = "keyring", target_os = "macos"))]
        return Self::opened_by(|| Ok(apple_native_keyring_store::keychain::Store::new()?));
        #[cfg(all(feature = "keyring", not(target_os = "macos")))]
        return Self::opened_by(|| Ok(zbus_secret_service_keyring_store::Store::new()?));
        #[cfg(not(feature = "keyring"))]
        Self::opened_by(|| {
            Err(Error::NotSupportedByStore("this aye was built without the feature `keyring`".into()))
        })
    }

    fn opened_by(
        open: impl Fn() -> keyring_core::Result<Arc<CredentialStore>> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::new(open), read: Arc::default() }
    }

    /// Reads a key; returns `None` if the keyring has none. `file` refers to the key: it is read once per version.
    pub(crate) async fn read(&self, name: &str, file: &Path) -> Result<Option<String>, KeyringError> {
        let version = FileVersion::of(file);
        if let Some((known, key)) = self.read.lock().unwrap_or_else(PoisonError::into_inner).get(name)
            && Some(known) == version.as_ref()
        {
            return Ok(Some(key.clone()));
        }
        let key = match self.act(name, Entry::get_password).await? {
            Ok(key) => key,
            Err(Error::NoEntry) => return Ok(None),
            Err(error) => {
                return Err(KeyringError::NotRead(cause(&error)));
            }
        };
        if let Some(version) = version {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            read.insert(name.to_owned(), (version, key.clone()));
        }
        Ok(Some(key))
    }

    /// Stores a key, replacing one with the same name.
    pub(crate) async fn store(&self, name: &str, key: &str) -> Result<(), KeyringError> {
        let key = key.to_owned();
        let stored = self.act(name, move |entry| entry.set_password(&key)).await?;
        stored.map_err(|error| KeyringError::NotStored(cause(&error)))
    }

    /// Removes a key, if it exists.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), KeyringError> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        match self.act(name, Entry::delete_credential).await? {
            Ok(()) | Err(Error::NoEntry) => Ok(()),
            Err(error) => Err(KeyringError::NotRemoved(cause(&error))),
        }
    }

    /// Checks that a keyring responds, without unlocking it.
    pub(crate) async fn reach(&self) -> Result<(), KeyringError> {
        match tokio::time::timeout(PROMPT, self.act("", |_| Ok(()))).await {
            Ok(reached) => reached.map(|_| ()),
            Err(_) => Err(KeyringError::Silent),
        }
    }

    /// Performs one operation on an entry. The outer error means that there is no keyring.
    async fn act<T: Send + 'static>(
        &self,
        name: &str,
        act: impl FnOnce(&Entry) -> keyring_core::Result<T> + Send + 'static,
    ) -> Result<keyring_core::Result<T>, KeyringError> {
        let (open, name) = (Arc::clone(&self.open), name.to_owned());
        let (send, done) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let outcome = open()
                .map_err(|error| KeyringError::Absent(format!(": {}", cause(&error))))
                .map(|store| store.build(SERVICE, &name, None).and_then(|entry| act(&entry)));
            let _ = send.send(outcome);
        });
        done.await.unwrap_or_else(|_| Err(KeyringError::Absent(String::new())))
    }
}

/// Returns the innermost cause of an error. None of them quotes a key.
fn cause(error: &Error) -> String {
    match error {
        Error::PlatformFailure(why) | Error::NoStorageAccess(why) => {
            visible_line(&why.to_string()).into_owned()
        }
        Error::BadEncoding(_) | Error::BadDataFormat(..) => "it is not text".to_owned(),
        other => visible_line(&other.to_string()).into_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use keyring_core::mock;

    use super::*;

    /// A keyring of one test, and how often it was opened.
    pub(crate) fn mocked() -> (Keyring, Arc<mock::Store>, Arc<Mutex<usize>>) {
        let store = mock::Store::new().expect("a store");
        let opened = Arc::new(Mutex::new(0));
        let (given, count) = (Arc::clone(&store), Arc::clone(&opened));
        let keyring = Keyring::opened_by(move || {
            *count.lock().expect("the count") += 1;
            Ok(given.clone())
        });
        (keyring, store, opened)
    }

    /// Returns the keyring of a machine without a desktop.
    pub(crate) fn without_service() -> Keyring {
        Keyring::opened_by(|| Err(Error::PlatformFailure("no session bus".into())))
    }

    #[tokio::test]
    async fn a_key_is_requested_once_per_login() {
        let dir = tempfile::tempdir().expect("a folder");
        let (file, next) = (dir.path().join("box"), dir.path().join("next"));
        let (keyring, store, opened) = mocked();
        std::fs::write(&file, "1").expect("written");
        keyring.store("box", "one").await.expect("stored");
        assert_eq!(keyring.read("box", &file).await, Ok(Some("one".into())));
        assert_eq!(keyring.clone().read("box", &file).await, Ok(Some("one".into())));
        assert_eq!(*opened.lock().expect("the count"), 2, "one to store, one to read");
        // Another process logs in.
        let entry =
            keyring_core::api::CredentialStoreApi::build(&*store, SERVICE, "box", None).expect("an entry");
        entry.set_password("two").expect("stored");
        std::fs::write(&next, "2").expect("written");
        std::fs::rename(&next, &file).expect("replaced");
        assert_eq!(keyring.read("box", &file).await, Ok(Some("two".into())));
        keyring.remove("box").await.expect("removed");
        assert_eq!(keyring.read("box", &file).await, Ok(None));
        keyring.remove("box").await.expect("nothing to remove");
    }

    #[tokio::test]
    async fn a_failing_keyring_says_why_without_the_key() {
        let (keyring, store, _) = mocked();
        let entry =
            keyring_core::api::CredentialStoreApi::build(&*store, SERVICE, "box", None).expect("an entry");
        let cred: &mock::Cred = entry.as_any().downcast_ref().expect("a mock");
        cred.set_error(Error::NoStorageAccess("the user dismissed the prompt".into()));
        let why = keyring.read("box", Path::new("/none")).await.expect_err("locked");
        assert_eq!(
            why.to_string(),
            "the system keyring did not return the key: the user dismissed the prompt"
        );
        entry.set_secret(b"\xffcanary").expect("stored");
        let why = keyring.read("box", Path::new("/none")).await.expect_err("no text").to_string();
        assert!(!why.contains("canary") && why.ends_with("it is not text"), "{why}");
        assert_eq!(without_service().reach().await, Err(KeyringError::Absent(": no session bus".into())));
        assert_eq!(keyring.reach().await, Ok(()));
    }
}
