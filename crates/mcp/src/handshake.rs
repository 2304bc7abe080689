//! How a connection is opened: which revision of the protocol is offered first, and what follows when the server
//! does not take it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, ClientLifecycleMode};

use aye_core::contract::server::ProtocolRevision;

/// Time in which a server answers `server/discover`, or counts as one that does not know it. Less than a headless
/// run waits for its servers.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// One way to open a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// `initialize`, because the server needed it at an earlier start.
    Remembered,
    /// `server/discover`, and `initialize` if the server does not know that.
    Probe,
    /// `initialize`, because the probe ended the connection.
    Initialize,
    /// `server/discover` without a time limit, because the server refuses `initialize`.
    Discover,
    /// The revision that the configuration names, and no other.
    Only(ProtocolRevision),
}

/// What a probe found out. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbeState(Arc<Probed>);

#[derive(Debug, Default)]
struct Probed {
    is_silent: AtomicBool,
    was_late: AtomicBool,
}

impl ProbeState {
    pub(super) fn was_silent(&self) {
        self.0.is_silent.store(true, Ordering::Release);
    }

    pub(super) fn was_late(&self) {
        self.0.was_late.store(true, Ordering::Release);
    }
}

impl Handshake {
    /// Returns the first way to open a connection.
    pub(super) fn first(revision: Option<ProtocolRevision>, is_known_to_initialize: bool) -> Self {
        match revision {
            Some(revision) => Self::Only(revision),
            None if is_known_to_initialize => Self::Remembered,
            None => Self::Probe,
        }
    }

    /// Returns the next way after this one failed; `None` if there is no other. Every way ends after two more.
    pub(super) fn after(&self, error: &ClientInitializeError, probe: &ProbeState) -> Option<Self> {
        if error.is_authorization_required() {
            return None;
        }
        let is_silent = probe.0.is_silent.load(Ordering::Acquire);
        match (self, error) {
            (Self::Remembered, _) => Some(Self::Probe),
            (Self::Probe, ClientInitializeError::JsonRpcError(_)) if is_silent => Some(Self::Discover),
            (Self::Probe, ClientInitializeError::LegacyFallbackFailed { fallback, .. }) => {
                match fallback.as_ref() {
                    ClientInitializeError::JsonRpcError(_) if is_silent => Some(Self::Discover),
                    // It answered the probe with an error and ended then.
                    ClientInitializeError::ConnectionClosed(_)
                    | ClientInitializeError::TransportError { .. } => Some(Self::Initialize),
                    _ => None,
                }
            }
            (
                Self::Probe,
                ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. },
            ) => Some(Self::Initialize),
            (Self::Probe | Self::Initialize | Self::Discover | Self::Only(_), _) => None,
        }
    }

    /// Returns whether a connection that was opened this way shows that the server needs `initialize` at once.
    pub(super) fn needs_initialize(&self, probe: &ProbeState, is_modern: bool) -> bool {
        match self {
            Self::Remembered | Self::Initialize => true,
            Self::Probe => {
                let Probed { is_silent, was_late } = &*probe.0;
                is_silent.load(Ordering::Acquire) && !was_late.load(Ordering::Acquire) && !is_modern
            }
            Self::Discover | Self::Only(_) => false,
        }
    }

    pub(super) fn lifecycle(&self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Probe => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::V_2025_11_25),
            },
            Self::Remembered | Self::Initialize => ClientLifecycleMode::Initialize,
            Self::Only(revision) if *revision != ProtocolRevision::V2026_07_28 => {
                ClientLifecycleMode::Initialize
            }
            Self::Discover | Self::Only(_) => ClientLifecycleMode::Discover { preferred_versions },
        }
    }

    /// Returns the revision that `initialize` offers.
    pub(super) fn offered(&self) -> ProtocolVersion {
        match self {
            Self::Only(ProtocolRevision::V2024_11_05) => ProtocolVersion::V_2024_11_05,
            Self::Only(ProtocolRevision::V2025_03_26) => ProtocolVersion::V_2025_03_26,
            Self::Only(ProtocolRevision::V2025_06_18) => ProtocolVersion::V_2025_06_18,
            _ => ProtocolVersion::V_2025_11_25,
        }
    }
}
