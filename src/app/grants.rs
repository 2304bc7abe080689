//! Allow rules that a person gave at a question.

use super::agent::App;
use crate::contract::ids::SuspensionId;
use crate::contract::record::{GrantRecord, GrantScope};
use crate::pattern::Pattern;

impl App {
    /// Brings the grants of the store into force: another process may have added or revoked some.
    pub(super) async fn load_grants(&self) {
        match self.store.grants(self.clock.now_ms()).await {
            Ok(grants) => self.permission.set_grants(grants),
            Err(error) => tracing::warn!(%error, "grants could not be read; none is in force"),
        }
    }

    /// Stores a grant as it was shown.
    pub(super) async fn add_grant(
        &self,
        suspension: &SuspensionId,
        pattern: &str,
        scope: GrantScope,
        channel: &str,
    ) -> Result<(), String> {
        Pattern::parse(pattern).map_err(|e| format!("the pattern `{pattern}` is wrong: {e}"))?;
        let grant = GrantRecord {
            id: uuid::Uuid::now_v7().to_string(),
            pattern: pattern.to_owned(),
            scope,
            created_at: self.clock.now_ms(),
            expires_at: None,
            max_uses: None,
            uses: 0,
            revoked_at: None,
            suspension_id: Some(suspension.clone()),
            actor: self.actor(channel),
        };
        self.store.add_grant(grant).await.map_err(|e| e.to_string())?;
        self.load_grants().await;
        Ok(())
    }
}
