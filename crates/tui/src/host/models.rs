//! Models, how hard they think, and the keys of their providers.

use super::super::event_loop::Performer;
use super::HostFuture;
use aye_core::contract::inference::ReasoningEffort;
pub use aye_core::contract::spec::Price;

/// A key as it was typed; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// A model that can be chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRow {
    /// The argument for [`ModelHost::set_model`].
    pub name: String,
    /// The provider of the model, and other notes.
    pub note: String,
    /// Why it cannot be used now, when it cannot.
    pub unusable: Option<String>,
    /// Whether this is the model that answers next.
    pub is_current: bool,
    /// The provider that needs a key first, when one can be stored.
    pub login: Option<String>,
}

/// Models and the keys of providers.
pub trait ModelHost: Send + Sync {
    /// Returns the models that can be chosen, and those that cannot with the reason, as far as they are
    /// known. Servers are queried in the background, and the models they list arrive as
    /// [`HostEvent::Models`](super::HostEvent::Models).
    fn models(&self) -> Vec<ModelRow>;

    /// Chooses the model for messages from now on, and in the settings. A sentence for the user.
    fn set_model<'a>(&'a self, name: &'a str) -> HostFuture<'a, String>;

    /// Chooses the model for messages from now on, in this session only. A sentence for the user.
    fn try_model<'a>(&'a self, name: &'a str) -> HostFuture<'a, String>;

    /// Sets how hard models think from now on, and in the settings; `None` leaves it to them. A sentence for the user.
    fn set_effort(&self, effort: Option<ReasoningEffort>) -> HostFuture<'_, String>;

    /// The providers that a key can be stored for, with what is known of their keys.
    fn logins(&self) -> Vec<ModelRow>;

    /// Tries a key, stores it, and uses the provider's model when there was none but the demo model.
    fn log_in<'a>(&'a self, provider: &'a str, key: Secret) -> HostFuture<'a, String>;

    /// Removes a stored key.
    fn log_out<'a>(&'a self, provider: Option<&'a str>) -> HostFuture<'a, String>;
}

/// Something is to be done with models or keys.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelCmd {
    /// Ask for the list of models.
    List,
    Set(String),
    /// Choose a model for this session.
    Try(String),
    /// Set how hard models think.
    SetEffort(Option<ReasoningEffort>),
    /// Ask for the providers that a key can be stored for.
    Logins,
    /// Try a key and store it.
    LogIn(String, Secret),
    /// Remove a stored key.
    LogOut(Option<String>),
}

/// Lists of models and providers.
#[derive(Clone, Debug)]
pub enum ModelMsg {
    /// The models, or what servers list of them now that they answered.
    Listed(Vec<ModelRow>),
    /// The providers that a key can be stored for.
    Logins(Vec<ModelRow>),
}

impl ModelCmd {
    pub(crate) fn perform(self, performer: &mut Performer) {
        let (host, send) = performer.both();
        match self {
            Self::List => send.answer(ModelMsg::Listed(host.models())),
            Self::Set(name) => performer.spawn(async move {
                send.note(host.set_model(&name).await);
                send.info(host.as_ref());
            }),
            Self::Try(name) => performer.spawn(async move {
                send.note(host.try_model(&name).await);
                send.info(host.as_ref());
            }),
            Self::SetEffort(effort) => performer.spawn(async move {
                send.note(host.set_effort(effort).await);
                send.info(host.as_ref());
            }),
            Self::Logins => send.answer(ModelMsg::Logins(host.logins())),
            Self::LogIn(provider, key) => performer.spawn(async move {
                send.note(host.log_in(&provider, key).await);
                send.info(host.as_ref());
            }),
            Self::LogOut(provider) => performer.spawn(async move {
                send.note(host.log_out(provider.as_deref()).await);
            }),
        }
    }
}
