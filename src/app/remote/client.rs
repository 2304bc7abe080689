//! The side that answers.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::net::UnixStream;

use super::place::Place;
use super::{Filter, Reply, Request, read_line, write_line};
use crate::app::{Failure, say};
use crate::config::Env;
use crate::contract::record::{DecideOutcome, Decision, InboxRow, SuspensionRecord};
use crate::store::InboxFilter;

/// So long is waited for a process: it may be stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// A question that another process holds in its memory.
#[derive(Debug)]
pub(in crate::app) struct RemoteQuestion {
    pub(in crate::app) record: SuspensionRecord,
    /// The process.
    pub(in crate::app) pid: u32,
    place: usize,
    socket: String,
}

/// What the beginning of an id stands for in all those processes.
pub(in crate::app) type RemoteLookup = Vec<RemoteQuestion>;

/// Speaks with all processes of this user that keep a conversation in memory and have open questions.
pub(in crate::app) struct Client {
    places: Vec<Place>,
}

impl Client {
    pub(in crate::app) fn new(env: &Env) -> Self {
        Self { places: Place::all(env) }
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

    /// The questions whose ids begin so. A whole id counts before beginnings.
    pub(in crate::app) async fn find(&self, prefix: &str) -> RemoteLookup {
        let request = Request::Show(prefix.to_owned());
        let mut found = Vec::new();
        for (place, socket) in self.sockets() {
            if let Some(Reply::Questions(records)) = self.ask_or_say(place, &socket, &request).await {
                let pid = pid_of(&socket);
                found.extend(records.into_iter().map(|record| RemoteQuestion {
                    record,
                    pid,
                    place,
                    socket: socket.clone(),
                }));
            }
        }
        if found.iter().any(|question| question.record.id.as_str() == prefix) {
            found.retain(|question| question.record.id.as_str() == prefix);
        }
        found
    }

    /// Stores an answer there.
    pub(in crate::app) async fn decide(
        &self,
        question: &RemoteQuestion,
        decision: Decision,
    ) -> Result<DecideOutcome, Failure> {
        let request = Request::Decide { id: question.record.id.clone(), decision: Box::new(decision) };
        match self.ask(question.place, &question.socket, &request).await {
            Ok(Reply::Outcome(outcome)) => Ok(outcome.into()),
            Ok(Reply::Refused(why)) => Err(Failure::usage(why)),
            Ok(Reply::Rows(_) | Reply::Questions(_)) => Err(Failure::failed(format!(
                "process {} gave no answer that can be read; look at its terminal",
                question.pid
            ))),
            Err(error) if is_gone(&error) => Ok(DecideOutcome::NotFound),
            // It may have been stored before the answer was lost.
            Err(error) => Err(Failure::failed(format!(
                "process {} did not say what became of the answer: {error}; look at its terminal",
                question.pid
            ))),
        }
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
            let line = line.ok_or_else(|| std::io::Error::other("it said nothing"))?;
            Ok(serde_json::from_slice(&line)?)
        };
        match tokio::time::timeout(PATIENCE, talk).await {
            Ok(reply) => reply,
            Err(_) => Err(std::io::Error::other(format!("nothing came for {} s", PATIENCE.as_secs()))),
        }
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

fn pid_of(socket: &str) -> u32 {
    socket.split('-').next().and_then(|pid| pid.parse().ok()).unwrap_or_default()
}
