//! Output of a worker: a line per job on stdout, and its activity on stderr.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::is_dead;
use crate::commands::approvals::answer_commands;
use crate::contract::display::{escape_json, shortened, visible_line};
use crate::contract::ids::JobId;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::mailbox::MailboxJob;
use crate::contract::message::Message;
use crate::headless::{exit, exit_code};
use crate::program::{put, put_stderr};
use crate::runtime::AgentRunResult;

/// The worst first.
const RANK: [u8; 7] = [
    exit::FAILED,
    exit::BLOCKED,
    exit::LIMIT,
    exit::INTERRUPTED,
    exit::UNAVAILABLE,
    exit::WAITING,
    exit::EXPIRED,
];

pub(super) struct WorkReport {
    json: bool,
    /// The exit code of each job when last seen.
    codes: HashMap<JobId, u8>,
    has_reader: bool,
}

pub(super) fn begins(job: &MailboxJob) {
    let text = job.messages.first().map(Message::text).unwrap_or_default();
    let again = match (job.run_id.is_some(), job.attempt_count) {
        (_, tries @ 1..) => format!(" (attempt {})", tries + 1),
        (true, 0) => " (resumed)".to_owned(),
        (false, 0) => String::new(),
    };
    put_stderr(&format!("· job {}{again}: {}", job.sequence, first_line(&text)));
}

pub(super) fn ends_behind(job: &MailboxJob) {
    put_stderr(&format!("stopping after job {}; signal again to stop now", job.sequence));
}

pub(super) fn broken_off(job: &MailboxJob) {
    put_stderr(&format!("job {} is left to the next worker", job.sequence));
}

pub(super) fn lost(job: &MailboxJob) {
    put_stderr(&format!("job {} was taken over by another worker", job.sequence));
}

fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    visible_line(&shortened(line, 100)).into_owned()
}

impl WorkReport {
    pub(super) fn new(json: bool) -> WorkReport {
        WorkReport { json, codes: HashMap::new(), has_reader: true }
    }

    /// The exit status of the worker: that of the job that went worst.
    pub(super) fn exit(&self) -> u8 {
        let mut codes = RANK.into_iter().filter(|code| self.codes.values().any(|known| known == code));
        codes.next().unwrap_or(exit::DONE)
    }

    fn put(&mut self, line: &str) {
        // A reader that went away does not keep the jobs from being done.
        if self.has_reader && put(&format!("{line}\n")).is_err() {
            self.has_reader = false;
        }
    }

    /// A run came to an end, or to a question.
    pub(super) fn ended(&mut self, job: &MailboxJob, result: &AgentRunResult, left: Option<&MailboxJob>) {
        let (code, word) = exit_code(result);
        // What ended the run says what is missing; the last answer may claim otherwise.
        let stopped = match &result.termination {
            TerminationReason::Stopped(why) => why.detail.clone(),
            _ => None,
        };
        let (status, text) = match code {
            exit::UNAVAILABLE if !is_dead(left) => ("retry", why(left)),
            exit::UNAVAILABLE | exit::FAILED => ("dead", why(left)),
            exit::WAITING => (word, format!("for an answer: {}", answer_commands(&result.waiting))),
            _ => (word, stopped.clone().unwrap_or_else(|| result.response.clone())),
        };
        let code = if status == "dead" { exit::FAILED } else { code };
        self.codes.insert(job.job_id.clone(), code);
        if self.json {
            let waiting: Vec<_> = result.waiting.iter().map(|question| question.id.clone()).collect();
            let object = json!({
                "type": "job",
                "job": job.sequence,
                "job_id": job.job_id,
                "thread_id": job.mailbox_id,
                "run_id": result.run_id,
                "status": status,
                "response": result.response,
                "stopped": stopped,
                "error": left.and_then(|left| left.last_error.clone()),
                "attempts": left.map_or(job.attempt_count, |left| left.attempt_count),
                "retry_at": left.filter(|_| status == "retry").map(|left| left.available_at),
                "waiting": waiting,
                "exit": code,
            });
            self.object(&object);
        } else {
            self.line(job, status, &text);
        }
    }

    /// A job came to no run.
    pub(super) fn failed(&mut self, job: &MailboxJob, why: &str, left: Option<&MailboxJob>) {
        let status = if is_dead(left) { "dead" } else { "retry" };
        let code = if status == "dead" { exit::FAILED } else { exit::UNAVAILABLE };
        self.codes.insert(job.job_id.clone(), code);
        if self.json {
            let object = json!({
                "type": "job",
                "job": job.sequence,
                "job_id": job.job_id,
                "thread_id": job.mailbox_id,
                "status": status,
                "error": why,
                "attempts": left.map_or(job.attempt_count, |left| left.attempt_count),
                "retry_at": left.filter(|_| status == "retry").map(|left| left.available_at),
                "exit": code,
            });
            self.object(&object);
        } else {
            self.line(job, status, why);
        }
    }

    fn object(&mut self, object: &Value) {
        self.put(&escape_json(&object.to_string()));
    }

    fn line(&mut self, job: &MailboxJob, status: &str, text: &str) {
        let thread = visible_line(job.mailbox_id.as_str()).into_owned();
        self.put(format!("{:>4}  {status:<9}  {thread}  {}", job.sequence, first_line(text)).trim_end());
    }
}

fn why(left: Option<&MailboxJob>) -> String {
    left.and_then(|left| left.last_error.clone()).unwrap_or_default()
}
