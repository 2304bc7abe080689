//! The side that sends decisions.

use std::io::ErrorKind;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::net::UnixStream;

use super::place::Place;
use super::{Filter, Reply, Request, read_line, write_line};
use crate::app::{Failure, say};
use crate::config::Env;
use crate::contract::ids::SuspensionId;
use crate::contract::record::{DecideOutcome, Decision, InboxRow, SuspensionRecord, SuspensionStatus};
use crate::store::{InboxFilter, SuspensionLookup};

/// So long is waited for a process: it may be stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// A question that another process holds in its memory.
#[derive(Clone, Debug)]
struct RemoteQuestion {
    record: SuspensionRecord,
    pid: u32,
    place: usize,
    socket: String,
}

/// Speaks with all processes of this user that keep a conversation in memory and have open questions.
#[derive(Default)]
pub(in crate::app) struct Client {
    places: Vec<Place>,
    /// The questions that were found there, to be answered there.
    known: Mutex<Vec<RemoteQuestion>>,
}

impl Client {
    pub(in crate::app) fn new(env: &Env) -> Self {
        Self { places: Place::all(env), known: Mutex::default() }
    }

    /// What waits there and the filter leaves. A process that does not answer is told and left out.
    pub(in crate::app) async fn list(&self, filter: &InboxFilter) -> Vec<InboxRow> {
        let request = Request::List(Filter {
            thread: filter.thread.as_ref().map(ToString::to_string),
            tool: filter.tool.clone(),
            asked_before: filter.asked_before,
        });
        let mut rows = Vec::new();
        for (place, socket) in self.sockets() {
            if let Some(Reply::Rows(found)) = self.ask_or_say(place, &socket, &request).await {
                let pid = pid_of(&socket);
                rows.extend(found.into_iter().map(|row| InboxRow { ephemeral: Some(pid), ..row }));
            }
        }
        rows
    }

    /// The question that an id or its beginning means there, when it does not mean one of the store: `local` is what
    /// the store says. `ID@PID` means a process's own.
    ///
    /// # Errors
    /// The beginning of several.
    pub(in crate::app) async fn find(
        &self,
        id: &str,
        local: &SuspensionLookup,
    ) -> Result<Option<SuspensionRecord>, Failure> {
        if self.places.is_empty() {
            return Ok(None);
        }
        let (prefix, only) = match id.rsplit_once('@').map(|(prefix, pid)| (prefix, pid.parse::<u32>())) {
            Some((prefix, Ok(pid))) => (prefix, Some(pid)),
            Some((_, Err(_))) | None => (id, None),
        };
        let mut found = self.ask_all(prefix).await;
        found.retain(|question| only.is_none_or(|pid| pid == question.pid));
        let is_exact = |question: &RemoteQuestion| question.record.id.as_str() == prefix;
        let exact = found.iter().any(is_exact);
        if exact {
            found.retain(is_exact);
        }
        let locals: Vec<&SuspensionRecord> = match local {
            SuspensionLookup::One(record) => vec![record],
            SuspensionLookup::None => Vec::new(),
            SuspensionLookup::Many(records) => records.iter().collect(),
        };
        if found.is_empty() {
            return Ok(None);
        }
        if only.is_none() {
            let local_exact = locals.iter().find(|record| record.id.as_str() == id);
            // A whole id goes before beginnings, and what is open before what is over.
            if local_exact.is_some_and(|record| !exact || record.status == SuspensionStatus::Open) {
                return Ok(None);
            }
        }
        let others = if exact || only.is_some() { 0 } else { locals.len() };
        if found.len() + others > 1 {
            let mut names: Vec<String> =
                found.iter().map(|question| format!("{}@{}", question.record.id, question.pid)).collect();
            if others > 0 {
                names.extend(locals.iter().map(|record| record.id.to_string()));
            }
            return Err(Failure::usage(format!("`{id}` is not unique: {}", names.join(", "))));
        }
        let question = found.remove(0);
        let record = question.record.clone();
        self.known.lock().expect("no panic while they are held").push(question);
        Ok(Some(record))
    }

    /// The process that holds a question that was found.
    pub(in crate::app) fn holder(&self, id: &SuspensionId) -> Option<u32> {
        self.known(id).map(|question| question.pid)
    }

    fn known(&self, id: &SuspensionId) -> Option<RemoteQuestion> {
        let known = self.known.lock().expect("no panic while they are held");
        known.iter().find(|question| question.record.id == *id).cloned()
    }

    /// Stores an answer where its question was found; `None` when that is the store.
    pub(in crate::app) async fn decide(
        &self,
        id: &SuspensionId,
        decision: &Decision,
    ) -> Result<Option<DecideOutcome>, Failure> {
        let Some(question) = self.known(id) else { return Ok(None) };
        let pid = question.pid;
        let request = Request::Decide { id: id.clone(), decision: Box::new(decision.clone()) };
        match self.ask(question.place, &question.socket, &request).await {
            Ok(Reply::Outcome(outcome)) => Ok(Some(outcome.into())),
            Ok(Reply::Refused(why)) => Err(Failure::usage(why)),
            Ok(Reply::Rows(_) | Reply::Questions(_)) => {
                Err(Failure::failed(format!("process {pid} sent an unreadable answer")))
            }
            Err(error) if is_gone(&error) => Err(Failure::failed(format!(
                "process {pid} has no pending questions any more; nothing changed"
            ))),
            // It may have been stored before the words about it were lost.
            Err(error) => Err(Failure::failed(format!(
                "process {pid} did not confirm the decision: {error}; `aye inbox` lists pending questions"
            ))),
        }
    }

    async fn ask_all(&self, prefix: &str) -> Vec<RemoteQuestion> {
        let request = Request::Show(prefix.to_owned());
        let mut found = Vec::new();
        for (place, socket) in self.sockets() {
            if let Some(Reply::Questions(records)) = self.ask_or_say(place, &socket, &request).await {
                let pid = pid_of(&socket);
                let of = |record| RemoteQuestion { record, pid, place, socket: socket.clone() };
                found.extend(records.into_iter().map(of));
            }
        }
        found
    }

    fn sockets(&self) -> Vec<(usize, String)> {
        let of = |(at, place): (usize, &Place)| {
            place.sockets().into_iter().map(move |name| (at, name)).collect::<Vec<_>>()
        };
        self.places.iter().enumerate().flat_map(of).collect()
    }

    async fn ask_or_say(&self, place: usize, socket: &str, request: &Request) -> Option<Reply> {
        match self.ask(place, socket, request).await {
            Ok(Reply::Refused(why)) => {
                say(&format!("process {}: {why}", pid_of(socket)));
                None
            }
            Ok(reply) => Some(reply),
            Err(error) if is_gone(&error) => None,
            Err(error) => {
                say(&format!(
                    "process {} does not answer, so its questions are left out: {error}",
                    pid_of(socket)
                ));
                None
            }
        }
    }

    async fn ask(&self, place: usize, socket: &str, request: &Request) -> std::io::Result<Reply> {
        let place = &self.places[place];
        let talk = async {
            let mut stream = UnixStream::connect(place.address(socket)).await.inspect_err(|error| {
                // The process is gone and could not clean up.
                if error.kind() == ErrorKind::ConnectionRefused {
                    place.remove(socket);
                }
            })?;
            if stream.peer_cred()?.uid() != rustix::process::getuid().as_raw() {
                return Err(std::io::Error::other("it belongs to another user"));
            }
            let (reader, mut writer) = stream.split();
            write_line(&mut writer, request).await?;
            let line = read_line(&mut BufReader::new(reader)).await?;
            let line = line.ok_or_else(|| std::io::Error::other("it sent nothing"))?;
            Ok(serde_json::from_slice(&line)?)
        };
        match tokio::time::timeout(PATIENCE, talk).await {
            Ok(reply) => reply,
            Err(_) => Err(std::io::Error::other(format!("no data for {} s", PATIENCE.as_secs()))),
        }
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

fn pid_of(socket: &str) -> u32 {
    socket.split('-').next().and_then(|pid| pid.parse().ok()).unwrap_or_default()
}
