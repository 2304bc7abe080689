//! `/goal`: what the conversation works towards, and what is missing.

use serde::Deserialize as _;

use super::GoalState;
use crate::contract::display::visible_line;
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::RunStatus;
use crate::contract::storage::SharedStore;
use crate::failure::AppError;
use crate::state::StateKey as _;
use crate::tui::host::TextPage;

/// The page of a conversation, with the maximum rounds of the settings.
pub(crate) async fn page(
    store: &SharedStore,
    max_rounds: Option<u64>,
    thread: Option<&ThreadId>,
) -> Result<TextPage, AppError> {
    let run = match thread {
        Some(thread) => store.latest_run(thread).await?,
        None => None,
    };
    let state = run.as_ref().and_then(|run| GoalState::deserialize(run.state.get(GoalState::KEY)?).ok());
    let Some(state) = state.filter(|state| !state.goal.is_empty()) else {
        return Err("no goal is open; /goal CONDITION works until the model shows that it holds".into());
    };
    let rounds = match max_rounds {
        Some(most) => format!("{} of at most {most}", state.rounds),
        None => state.rounds.to_string(),
    };
    let is_over = run.is_some_and(|run| run.status == RunStatus::Done);
    let then =
        if is_over { "the run ended without it; /continue goes on" } else { "the run works towards it" };
    let goals = [
        ("command", state.goal.command.clone()),
        ("condition", state.goal.condition.clone()),
        ("rounds", Some(rounds)),
        ("missing", Some(state.missing())),
        ("now", Some(then.to_owned())),
    ];
    let text =
        goals.into_iter().filter_map(|(name, value)| Some(format!("{name}\t{}\n", visible_line(&value?))));
    Ok(TextPage { title: "Goal".to_owned(), text: text.collect(), ..TextPage::default() })
}
