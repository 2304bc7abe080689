//! Executes commands: requests to the host in their own tasks, their answers as messages. Each part knows its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::super::app::App;
use super::super::host::{Host, ProgramMsg};
use super::super::msg::{Cmd, Msg};
use aye_core::contract::foreign::ForeignError;

/// How long requests may take to end when the program ends.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Sends requests. Each is a task that is owned here.
pub(crate) struct Performer {
    host: Arc<dyn Host>,
    answers: UnboundedSender<Msg>,
    tasks: JoinSet<()>,
    /// A request was made since that was asked for last.
    is_asking: bool,
}

/// Where the answers to a request go.
#[derive(Clone)]
pub(crate) struct AnswerSender(UnboundedSender<Msg>);

impl AnswerSender {
    pub(crate) fn answer(&self, msg: impl Into<Msg>) {
        // Sending fails only after the loop has ended; the message is not needed then.
        let _ = self.0.send(msg.into());
    }

    pub(crate) fn failed(&self, error: &ForeignError) {
        self.answer(Msg::Failed(error.to_string()));
    }

    /// Shows the user the outcome, a success or a failure.
    pub(crate) fn note(&self, result: Result<String, ForeignError>) {
        match result {
            Ok(words) => self.answer(Msg::Note(words)),
            Err(error) => self.failed(&error),
        }
    }

    /// What the host says about itself now.
    pub(crate) fn info(&self, host: &dyn Host) {
        self.answer(ProgramMsg::Info(Box::new(host.info())));
    }
}

impl Performer {
    pub(super) fn new(host: Arc<dyn Host>, answers: UnboundedSender<Msg>) -> Performer {
        Performer { host, answers, tasks: JoinSet::new(), is_asking: false }
    }

    /// Loads the data that the first frame does not need.
    pub(super) fn load(&mut self, app: &mut App) {
        app.skills = self.host.skills();
        app.untrusted = self.host.untrusted();
        let host = Arc::clone(&self.host);
        self.spawn(async move { host.shown().await });
    }

    /// Sends requests to another host from now on; those that are under way stay with the one before.
    pub(super) fn serve(&mut self, host: Arc<dyn Host>) {
        self.host = host;
    }

    pub(super) fn host(&self) -> Arc<dyn Host> {
        Arc::clone(&self.host)
    }

    /// The host, and where its answers go.
    pub(crate) fn both(&self) -> (Arc<dyn Host>, AnswerSender) {
        (self.host(), AnswerSender(self.answers.clone()))
    }

    /// Delivers the result of something that the loop did itself, as an answer.
    pub(super) fn deliver(&self, msg: impl Into<Msg>) {
        let _ = self.answers.send(msg.into());
    }

    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task);
        self.is_asking = true;
    }

    /// Lets new requests run until they wait for something, such as the disk, while a frame is drawn.
    pub(super) async fn let_begin(&mut self) {
        if std::mem::take(&mut self.is_asking) {
            tokio::task::yield_now().await;
        }
    }

    /// Ends: requests that are under way may finish, for a moment.
    pub(super) async fn settle(&mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WAIT, all).await;
        self.tasks.shutdown().await;
    }

    pub(super) fn perform(&mut self, cmd: Cmd) {
        match cmd {
            Cmd::Thread(cmd) => cmd.perform(self),
            Cmd::Question(cmd) => cmd.perform(self),
            Cmd::Model(cmd) => cmd.perform(self),
            Cmd::Image(cmd) => cmd.perform(self),
            Cmd::Writing(cmd) => cmd.perform(self),
            Cmd::Program(cmd) => cmd.perform(self),
            Cmd::Back(cmd) => cmd.perform(self),
            // The loop does these itself.
            Cmd::AskBackground
            | Cmd::Copy(_)
            | Cmd::Notify { .. }
            | Cmd::ShowWhole(_)
            | Cmd::Redraw
            | Cmd::Suspend
            | Cmd::Editor(..)
            | Cmd::Compose(_)
            | Cmd::View(..)
            | Cmd::TakeOver(..)
            | Cmd::Renew
            | Cmd::Quit => {}
        }
    }
}
