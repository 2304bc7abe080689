//! The calls of the past, as questions that other rules can be asked.

use super::evaluate::{CallRequest, EnforcedProfiles, PreparedCall, Verdict};
use super::rules::RuleSet;
use aye_core::contract::audit::{PastAnswer, PastRow};
use aye_core::contract::ids::{CallId, ThreadId};
use aye_core::contract::judgement::Ruling;
use aye_core::contract::mode::Mode;
use serde_json::Value;
use std::collections::HashMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that calls ran in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastFolder {
    pub cwd: PathBuf,
    /// The root of its project.
    pub workspace: PathBuf,
    /// Whether the folder no longer exists: paths in it are judged by their text alone.
    pub is_gone: bool,
}

/// A question that was asked once or more: equal calls in the same folder are one question.
#[derive(Debug, Clone, PartialEq)]
pub struct PastQuestion {
    pub tool: String,
    pub arguments: Value,
    /// The folder, as its place in [`Past::folders`].
    pub folder: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PastMade {
    /// Its question, as its place in [`Past::questions`].
    pub question: usize,
    /// The number of its row in the audit.
    pub n: u64,
    /// When, in Unix milliseconds.
    pub at: u64,
    pub thread_id: ThreadId,
    pub call_id: CallId,
    /// The verdict of then.
    pub ruling: Ruling,
    /// The mode of then.
    pub mode: Mode,
    /// The user's decision, if a user was asked and answered.
    pub answer: Option<PastAnswer>,
}

#[derive(Debug, Default)]
pub struct Past {
    /// Every different call.
    pub questions: Vec<PastQuestion>,
    /// Every call, oldest first.
    pub calls: Vec<PastMade>,
    pub folders: Vec<PastFolder>,
    places: HashMap<String, usize>,
    known: HashMap<(String, String, usize), usize>,
}

impl Past {
    /// Adds a row of the store. `look` returns what is known of a folder; it is called once for each.
    pub fn add(&mut self, row: PastRow, mut folder_of: impl FnMut(&str) -> PastFolder) {
        match row {
            PastRow::Call(call) => {
                let folder = if let Some(folder) = self.places.get(&call.cwd) {
                    *folder
                } else {
                    self.folders.push(folder_of(&call.cwd));
                    self.places.insert(call.cwd.clone(), self.folders.len() - 1);
                    self.folders.len() - 1
                };
                let new = self.questions.len();
                let key = (call.tool, call.arguments, folder);
                let question = if let Some(question) = self.known.get(&key) {
                    *question
                } else {
                    let arguments = serde_json::from_str(&key.1).unwrap_or(Value::Null);
                    self.questions.push(PastQuestion { tool: key.0.clone(), arguments, folder });
                    self.known.insert(key, new);
                    new
                };
                self.calls.push(PastMade {
                    question,
                    n: call.n,
                    at: call.at,
                    thread_id: call.thread_id,
                    call_id: call.call_id,
                    ruling: call.ruling,
                    mode: call.mode,
                    answer: None,
                });
            }
            PastRow::Answer(call, answer) => {
                if let Some(call) = self.calls.get_mut(call) {
                    call.answer = call.answer.max(Some(answer));
                }
            }
        }
    }

    /// A question of the past, as the rules take it.
    pub fn question<'a>(&'a self, question: usize, home: Option<&'a Path>) -> CallRequest<'a> {
        let PastQuestion { tool, arguments, folder } = &self.questions[question];
        let PastFolder { cwd, workspace, .. } = &self.folders[*folder];
        CallRequest { tool, args: arguments, cwd, workspace, home, primary: None }
    }

    /// Returns the verdicts of rules on some of the questions, in their order. Uses all processors.
    pub(super) fn judge(&self, rules: &RuleSet, questions: &[usize], home: Option<&Path>) -> Vec<Verdict> {
        /// The number of questions that are judged at a time.
        const CHUNK: usize = 64;
        let chunks: Vec<&[usize]> = questions.chunks(CHUNK).collect();
        let judge = |chunk: &[usize]| -> Vec<Verdict> {
            // The files of today say nothing about what a command found then.
            let verdict = |question: CallRequest<'_>| match PreparedCall::of(&question) {
                Ok(call) => call.enforced_by(EnforcedProfiles::ALL).verdict_by_words(rules, None),
                Err(why) => Verdict::error(&why.to_string()),
            };
            chunk.iter().map(|question| verdict(self.question(*question, home))).collect()
        };
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(chunks.len());
        if threads < 2 {
            return chunks.into_iter().flat_map(judge).collect();
        }
        let next = AtomicUsize::new(0);
        let work = || -> Vec<(usize, Vec<Verdict>)> {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(chunk) = chunks.get(at) else { return done };
                done.push((at, judge(chunk)));
            }
        };
        let mut done: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("judging does not panic")).collect()
        });
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().flat_map(|(_, verdicts)| verdicts).collect()
    }
}
