//! Allow rules that a user granted with a question.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Paths;
use crate::contract::clock::Clock;
use crate::contract::display::{call_summary, visible_line};
use crate::contract::grant::{GrantEnd, GrantPreview, GrantRequest, PastMatch};
use crate::contract::ids::SuspensionId;
use crate::contract::judgement::Profile;
use crate::contract::record::{GrantRecord, GrantScope, SuspensionRecord, SuspensionStatus};
use crate::contract::storage::{ChangeKind, RecentCall, SharedStore, StoreChange};
use crate::contract::suspension::Actor;
use crate::failure::AppError;
use crate::plugins::permission::{
    CallRequest, GrantRefusal, Permissions, PreparedCall, RuleSet, SandboxGrant, VerdictKind, check_grant_in,
};
use crate::program::app_context::AppContext;

/// The number of audit rows searched for calls that a pattern would have matched.
const HISTORY: u64 = 5_000;
/// The maximum number of distinct calls that a pattern is compared with.
const CALLS: usize = 400;
/// The maximum number of matches shown.
const SHOWN: usize = 8;
/// The maximum number of ended grants that a card names.
const ENDED: u64 = 200;

/// Applies changes of grants by other processes until the store is closed. Sleeps until one makes a change.
pub(crate) struct GrantWatch(tokio::task::JoinHandle<()>);

impl GrantWatch {
    pub(crate) fn start(store: SharedStore, permission: Permissions, clock: Arc<dyn Clock>) -> GrantWatch {
        GrantWatch(tokio::spawn(async move {
            let mut watch = match store.watch() {
                Ok(watch) => watch,
                Err(error) => {
                    tracing::warn!(%error, "grants changed by other processes apply from the next run");
                    return;
                }
            };
            loop {
                let StoreChange { kind, .. } = watch.next().await;
                if matches!(kind, ChangeKind::Grant | ChangeKind::Anything) {
                    load(&store, &permission, clock.now_ms()).await;
                }
            }
        }))
    }
}

impl Drop for GrantWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Loads the grants of a store.
pub(crate) async fn load(store: &SharedStore, permission: &Permissions, now_ms: u64) {
    let (grants, ended) = tokio::join!(store.grants(now_ms), store.ended_grants(ENDED));
    match grants {
        Ok(grants) => permission.set_grants(grants),
        Err(error) => tracing::warn!(%error, "grants could not be read; the previous ones stay"),
    }
    match ended {
        Ok(ended) => permission.set_ended(ended),
        Err(error) => tracing::warn!(%error, "expired grants could not be read"),
    }
}

impl AppContext {
    /// Reloads the grants of the store: another process may have added or revoked some.
    pub(crate) async fn load_grants(&self) {
        load(&self.store, &self.permission, self.clock.now_ms()).await;
    }

    /// Returns the grant to store, if it may be granted with its question.
    pub(crate) async fn checked_grant(
        &self,
        request: GrantRequest,
        actor: Actor,
    ) -> Result<GrantRecord, AppError> {
        let asked = open_question(&self.store, &request.suspension).await?;
        let rules = self.permission.rules_for(&asked.thread_id, &asked.run_id, &[]);
        check_pattern(&self.permission, &rules, &asked, self.primary(&asked), &request)?;
        check_opening(&self.foundation.paths, &request)?;
        let root = &self.permission.workspace().root;
        let reaches = match &request.scope {
            GrantScope::Run(id) => *id == asked.run_id,
            GrantScope::Thread(id) => *id == asked.thread_id,
            GrantScope::Project(path) => path == root,
            GrantScope::Everywhere => true,
        };
        if !reaches {
            return Err(format!("{} is not the folder of the question", request.scope).into());
        }
        record(request, &asked, self.clock.now_ms(), actor)
    }

    /// The primary argument of a call's tool.
    fn primary(&self, asked: &SuspensionRecord) -> Option<String> {
        let catalog = self.runtime.catalog();
        catalog.tool(&asked.ticket.pending.name)?.descriptor().primary_argument
    }

    /// Returns the past calls of this project that a pattern would have allowed.
    pub(crate) async fn preview_grant(
        &self,
        call_history: &CallHistory,
        suspension: &SuspensionId,
        pattern: &str,
    ) -> Result<GrantPreview, AppError> {
        let past = call_history.of(self, suspension).await?;
        let rules = self.permission.rules_for(&past.asked.thread_id, &past.asked.run_id, &[]);
        let (permission, primary) = (self.permission.clone(), self.primary(&past.asked));
        let pattern = pattern.to_owned();
        let work = move || preview(&permission, &rules, &past, primary, &pattern);
        Ok(tokio::task::spawn_blocking(work).await?)
    }
}

/// Returns the question if it is still pending.
pub(crate) async fn open_question(
    store: &SharedStore,
    id: &SuspensionId,
) -> Result<SuspensionRecord, AppError> {
    let found = store.suspension(id).await?;
    found
        .filter(|asked| asked.status == SuspensionStatus::Open)
        .ok_or_else(|| "the question is no longer pending".into())
}

/// Checks a pattern against the call that was asked about.
pub(crate) fn check_pattern(
    permission: &Permissions,
    rules: &RuleSet,
    asked: &SuspensionRecord,
    primary: Option<String>,
    request: &GrantRequest,
) -> Result<(), AppError> {
    let pattern = &request.pattern;
    let call = &asked.ticket.pending;
    let question = permission.question(&call.name, &call.arguments, primary.as_deref());
    if let Some(opened) = SandboxGrant::of(pattern) {
        return opened.check(question.home).map_err(|why| why.to_string().into());
    }
    let rule = PreparedCall::of(&question)
        .map_err(GrantRefusal::from)
        .and_then(|call| check_grant_in(&call, rules, pattern, profile_of(asked)));
    rule.map(drop).map_err(|why| why.to_string().into())
}

/// Checks a grant that opens the sandbox: sandboxed commands never reach aye's own files, and what they can
/// reach cannot be limited to a number of calls.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn check_opening(paths: &Paths, request: &GrantRequest) -> Result<(), AppError> {
    let Some(opened) = SandboxGrant::of(&request.pattern) else { return Ok(()) };
    if matches!(request.end, GrantEnd::Uses(_)) {
        return Err(
            "a grant that opens the sandbox ends at a time or when revoked, not after a number of calls"
                .into(),
        );
    }
    let SandboxGrant::Writable(folder) = opened else { return Ok(()) };
    for own in paths.own_folders() {
        if folder.starts_with(&own) || own.starts_with(&folder) {
            return Err(
                format!("{} contains aye's own files", visible_line(&folder.to_string_lossy())).into()
            );
        }
    }
    Ok(())
}

/// Returns the profile of a grant made with a question: always allowing a call outside the sandbox names that profile.
fn profile_of(asked: &SuspensionRecord) -> Option<Profile> {
    let is_out = asked.ticket.pending.arguments.get("outside") == Some(&serde_json::Value::Bool(true));
    is_out.then_some(Profile::Outside).filter(|_| asked.ticket.suspension.profile() == Some(Profile::Outside))
}

/// Returns the row of a new grant.
pub(crate) fn record(
    request: GrantRequest,
    asked: &SuspensionRecord,
    now_ms: u64,
    actor: Actor,
) -> Result<GrantRecord, AppError> {
    let sandbox = profile_of(asked).filter(|_| SandboxGrant::of(&request.pattern).is_none());
    let (expires_at, max_uses) = ends_at(&request.end, now_ms, &crate::program::zone())?;
    Ok(GrantRecord {
        id: uuid::Uuid::now_v7().to_string(),
        pattern: request.pattern.trim().to_owned(),
        sandbox,
        scope: request.scope,
        created_at: now_ms,
        expires_at,
        max_uses,
        uses: 0,
        revoked_at: None,
        suspension_id: Some(request.suspension),
        actor,
    })
}

/// Returns the time of an expiry, or the number of uses.
fn ends_at(
    end: &GrantEnd,
    now_ms: u64,
    zone: &jiff::tz::TimeZone,
) -> Result<(Option<u64>, Option<u64>), AppError> {
    let now = i64::try_from(now_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let now = now.ok_or("this machine's clock is wrong")?.to_zoned(zone.clone());
    let midnight_after = |date: jiff::civil::Date| {
        date.tomorrow().and_then(|next| next.to_zoned(zone.clone())).map_err(|error| error.to_string())
    };
    let at = match end {
        GrantEnd::Never => return Ok((None, None)),
        GrantEnd::Uses(uses) => return Ok((None, Some(*uses))),
        GrantEnd::Minutes(minutes) => return Ok((Some(now_ms.saturating_add(minutes * 60_000)), None)),
        GrantEnd::Today => midnight_after(now.date())?,
        GrantEnd::Until(text) => {
            let wrong = |error: jiff::Error| format!("invalid date `{text}`: {error}");
            if text.contains('T') {
                let time: jiff::civil::DateTime = text.parse().map_err(wrong)?;
                time.to_zoned(zone.clone()).map_err(wrong)?
            } else {
                midnight_after(text.parse().map_err(wrong)?)?
            }
        }
    };
    let at = u64::try_from(at.timestamp().as_millisecond()).unwrap_or(0);
    if at <= now_ms {
        return Err(format!("a grant {} would already have expired", end.words()).into());
    }
    Ok((Some(at), None))
}

/// The past calls of the project, read once for each question.
#[derive(Default)]
pub(crate) struct CallHistory {
    last: Mutex<Option<Arc<Past>>>,
}

struct Past {
    asked: SuspensionRecord,
    calls: Vec<Distinct>,
}

/// Equal calls.
struct Distinct {
    call: RecentCall,
    times: u64,
    declined: u64,
}

impl CallHistory {
    async fn of(&self, app: &AppContext, suspension: &SuspensionId) -> Result<Arc<Past>, AppError> {
        let known = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|past| past.asked.id == *suspension) {
            return Ok(known);
        }
        let asked = open_question(&app.store, suspension).await?;
        let root = &app.permission.workspace().root;
        let tool = &asked.ticket.pending.name;
        let calls = app.store.recent_calls(tool, root, HISTORY).await?;
        let calls = calls.into_iter().filter(|call| !is_of(&asked, call)).collect();
        let past = Arc::new(Past { calls: distinct(calls), asked });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&past));
        Ok(past)
    }
}

/// Returns whether this is the very call the question is about: that it matches is known.
fn is_of(asked: &SuspensionRecord, call: &RecentCall) -> bool {
    call.id.0 == asked.run_id && call.id.1 == asked.call_id
}

/// Groups equal calls, newest first.
fn distinct(calls: Vec<RecentCall>) -> Vec<Distinct> {
    let mut places: HashMap<(String, std::path::PathBuf), usize> = HashMap::new();
    let mut found: Vec<Distinct> = Vec::new();
    for call in calls {
        let declined = u64::from(call.declined);
        let next = found.len();
        let at = *places.entry((call.arguments.to_string(), call.cwd.clone())).or_insert(next);
        match found.get_mut(at) {
            Some(known) => {
                known.times += 1;
                known.declined += declined;
            }
            None => found.push(Distinct { call, times: 1, declined }),
        }
    }
    found.truncate(CALLS);
    found
}

fn preview(
    permission: &Permissions,
    rules: &RuleSet,
    past: &Past,
    primary: Option<String>,
    pattern: &str,
) -> GrantPreview {
    let asked = &past.asked.ticket.pending;
    let question = permission.question(&asked.name, &asked.arguments, primary.as_deref());
    if let Some(opened) = SandboxGrant::of(pattern) {
        let problem = opened.check(question.home).err().map(|why| why.to_string());
        return GrantPreview { problem, ..GrantPreview::default() };
    }
    let sandbox = profile_of(&past.asked);
    let rule = PreparedCall::of(&question)
        .map_err(GrantRefusal::from)
        .and_then(|call| check_grant_in(&call, rules, pattern, sandbox));
    let rule = match rule {
        Ok(rule) => rule,
        Err(problem) => {
            let problem = Some(problem.to_string());
            return GrantPreview { problem, of: past.calls.len(), ..GrantPreview::default() };
        }
    };
    let mut matches: Vec<PastMatch> = Vec::new();
    for known in &past.calls {
        let call = &known.call;
        let question = CallRequest {
            cwd: &call.cwd,
            ..permission.question(&call.tool, &call.arguments, primary.as_deref())
        };
        let Ok(prepared) = PreparedCall::of(&question) else { continue };
        if prepared.is_matched_by(&rule) && prepared.verdict_with(rules, &rule).decision == VerdictKind::Allow
        {
            matches.push(PastMatch {
                summary: call_summary(&call.tool, &call.arguments),
                times: known.times,
                declined: known.declined,
                last_at: call.at,
            });
        }
    }
    let (total, declined) = (matches.len(), matches.iter().filter(|row| row.declined > 0).count());
    // Calls that the user denied must be seen.
    matches.sort_by_key(|row| row.declined == 0);
    matches.truncate(SHOWN);
    GrantPreview { problem: None, matches, total, declined, of: past.calls.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> jiff::tz::TimeZone {
        jiff::tz::TimeZone::fixed(jiff::tz::offset(2))
    }

    fn ms(text: &str) -> u64 {
        u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap()
    }

    #[test]
    fn expiries_use_the_users_time_zone() {
        let now = ms("2026-11-21T22:30:00Z"); // 00:30 on the 22nd, there
        let at = |end: &str| {
            ends_at(&GrantEnd::parse(end).unwrap(), now, &zone()).map_err(|error| error.to_string())
        };
        assert_eq!(at("1h"), Ok((Some(now + 3_600_000), None)));
        assert_eq!(at("today"), Ok((Some(ms("2026-11-22T22:00:00Z")), None)));
        assert_eq!(at("2026-11-22"), Ok((Some(ms("2026-11-22T22:00:00Z")), None)));
        assert_eq!(at("2026-12-01T14:30"), Ok((Some(ms("2026-12-01T12:30:00Z")), None)));
        assert_eq!(at("5"), Ok((None, Some(5))));
        assert_eq!(at("never"), Ok((None, None)));
        assert!(at("2026-11-21").unwrap_err().contains("would already have expired"));
        assert!(at("2026-11-22T00:30").unwrap_err().contains("would already have expired"));
        assert!(at("2026-02-30").unwrap_err().contains("invalid date"));
    }
}
