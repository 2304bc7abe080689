//! Executes commands: requests to the host in their own tasks, their answers as messages.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::super::app::App;
use super::super::host::Host;
use super::super::msg::{Cmd, Msg};
use aye_core::contract::record::SuspensionStatus;

/// How long requests may take to end when the program ends.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Sends requests. Each is a task that is owned here.
pub(super) struct Performer {
    host: Arc<dyn Host>,
    answers: UnboundedSender<Msg>,
    tasks: JoinSet<()>,
    /// A request was made since that was asked for last.
    is_asking: bool,
}

impl Performer {
    pub(super) fn new(host: Arc<dyn Host>, answers: UnboundedSender<Msg>) -> Performer {
        Performer { host, answers, tasks: JoinSet::new(), is_asking: false }
    }

    /// What the first frame does not need.
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

    /// Something that the loop did itself, told as an answer.
    pub(super) fn tell(&self, msg: Msg) {
        let _ = self.answers.send(msg);
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task);
        self.is_asking = true;
    }

    /// Lets new requests come as far as they can before they wait for something: for the disk, while a picture is made.
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
        let (host, answers) = (Arc::clone(&self.host), self.answers.clone());
        let send = move |msg: Msg| {
            // The loop is over when nobody listens; then nobody wants to know.
            let _ = answers.send(msg);
        };
        match cmd {
            Cmd::Open(thread) => self.spawn(async move {
                let opened = host.open_thread(thread).await.map(Box::new);
                send(Msg::Info(Box::new(host.info())));
                send(Msg::Opened(opened));
            }),
            Cmd::Earlier(thread, seq) => self.spawn(async move {
                let messages = host.earlier(&thread, seq).await;
                send(Msg::Earlier(thread, messages));
            }),
            Cmd::Place(thread, message) => self.spawn(async move {
                let place = host.place(&thread, &message).await;
                send(Msg::Placed(thread, message, place));
            }),
            Cmd::Start(thread, input) => self.spawn(async move {
                let started = host.start(&thread, input.clone()).await;
                send(Msg::Started(started.map_err(|error| (error, input))));
            }),
            Cmd::Enqueue(thread, input) => self.spawn(async move {
                let row = host.enqueue(&thread, input.clone()).await;
                send(Msg::Enqueued(input, row));
            }),
            Cmd::Unqueue(ids) => self.spawn(async move {
                let (mut back, mut gone) = (Vec::new(), Vec::new());
                for id in ids {
                    match host.unqueue(id).await {
                        Ok(true) => back.push(id),
                        Ok(false) => gone.push(id),
                        Err(error) => send(Msg::Failed(error)),
                    }
                }
                send(Msg::Unqueued { back, gone });
            }),
            Cmd::WhoAnswered(id) => self.spawn(async move {
                match host.question(&id).await {
                    Ok(Some(record)) if record.status != SuspensionStatus::Open => {
                        send(Msg::Closed(Box::new(record)));
                    }
                    Ok(_) => {}
                    Err(error) => send(Msg::Failed(error)),
                }
            }),
            Cmd::Decide(id, answer) => self.spawn(async move {
                let outcome = host.decide(&id, answer).await;
                send(Msg::Decided(id, outcome));
            }),
            Cmd::Review(id, arguments) => self.spawn(async move {
                let review = host.review(&id, &arguments).await;
                send(Msg::Reviewed(id, arguments, review));
            }),
            Cmd::PreviewGrant(id, pattern) => self.spawn(async move {
                let preview = host.preview_grant(&id, &pattern).await;
                send(Msg::GrantPreviewed(id, pattern, preview));
            }),
            Cmd::Attach(words, what) => self.spawn(async move {
                send(Msg::Attached(words, host.attach(what).await));
            }),
            Cmd::Picture(image) => self.spawn(async move {
                let pixels = host.picture(&image).await;
                send(Msg::Picture(image.hash, pixels));
            }),
            Cmd::Pack(image) => self.spawn(async move {
                let packed = host.packed(&image).await;
                send(Msg::Packed(image.hash, packed));
            }),
            Cmd::Plate(image, canvas) => self.spawn(async move {
                let drawn = host.plate(&image, canvas).await;
                send(Msg::Plate(image.hash, drawn));
            }),
            Cmd::History => self.spawn(async move { send(Msg::History(host.history().await)) }),
            Cmd::KeepDraft(keep) => self.spawn(async move { host.keep_draft(keep).await }),
            Cmd::Draft(thread, is_new) => self.spawn(async move {
                if let Some(draft) = host.draft(&thread, is_new).await {
                    send(Msg::Draft(thread, draft));
                }
            }),
            Cmd::Grants => self.spawn(async move { send(Msg::Grants(host.grants().await)) }),
            Cmd::RevokeGrant(id) => self.spawn(async move {
                let revoked = host.revoke_grant(&id).await;
                send(Msg::Revoked(id, revoked));
            }),
            Cmd::Cancel(thread) => host.cancel(&thread),
            Cmd::ToBackground(thread) => {
                if !host.to_background(&thread) {
                    send(Msg::Failed("the command cannot be moved to the background".to_owned()));
                }
            }
            Cmd::Expire(thread) => host.expired(&thread),
            Cmd::Threads => self.spawn(async move { send(Msg::Threads(host.threads().await)) }),
            Cmd::Inbox => self.spawn(async move { send(Msg::Inbox(host.inbox().await)) }),
            Cmd::CountElsewhere(here) => self.spawn(async move {
                match host.waiting_elsewhere(here.as_ref()).await {
                    Ok(count) => send(Msg::Elsewhere(count)),
                    Err(error) => tracing::warn!(error, "pending questions elsewhere could not be counted"),
                }
            }),
            Cmd::Question(id) => self.spawn(async move {
                let found = host.opened_question(&id).await.map(|found| found.map(Box::new));
                send(Msg::Question(id, found));
            }),
            Cmd::Models => send(Msg::Models(host.models())),
            Cmd::Logins => send(Msg::Logins(host.logins())),
            Cmd::LogIn(provider, key) => self.spawn(async move {
                match host.log_in(&provider, key).await {
                    Ok(words) => send(Msg::Note(words)),
                    Err(error) => send(Msg::Failed(error)),
                }
                send(Msg::Info(Box::new(host.info())));
            }),
            Cmd::LogOut(provider) => self.spawn(async move {
                match host.log_out(provider.as_deref()).await {
                    Ok(words) => send(Msg::Note(words)),
                    Err(error) => send(Msg::Failed(error)),
                }
            }),
            Cmd::SetEffort(effort) => self.spawn(async move {
                send(host.set_effort(effort).await.map_or_else(Msg::Failed, Msg::Note));
                send(Msg::Info(Box::new(host.info())));
            }),
            Cmd::Trust => self.spawn(async move { send(Msg::Trusted(host.trust().await)) }),
            Cmd::Info => self.spawn(async move { send(Msg::Info(Box::new(host.info()))) }),
            Cmd::StatusLine(json) => {
                self.spawn(async move { send(Msg::StatusLine(host.status_line(json).await)) });
            }
            Cmd::Themes(wanted) => send(Msg::Themes(host.themes(), wanted)),
            Cmd::Keep(choice, value) => self.spawn(async move {
                if let Err(error) = host.keep(choice, &value).await {
                    send(Msg::Failed(format!("the {} applies now but was not saved: {error}", choice.key())));
                }
            }),
            Cmd::Skills => send(Msg::Skills(host.skills())),
            Cmd::Rules => send(Msg::Rules(host.permissions())),
            Cmd::SetMode(mode) => {
                if let Err(error) = host.set_mode(mode) {
                    send(Msg::Failed(error));
                }
                send(Msg::Info(Box::new(host.info())));
            }
            Cmd::SetModel(name) => self.spawn(async move {
                send(host.set_model(&name).await.map_or_else(Msg::Failed, Msg::Note));
                send(Msg::Info(Box::new(host.info())));
            }),
            Cmd::Files(number, query) => self.spawn(async move {
                send(Msg::Files(number, host.complete_files(&query).await));
            }),
            Cmd::Export(thread, format) => {
                self.spawn(async move { send(Msg::Exported(host.export(&thread, format).await)) });
            }
            Cmd::Page(thread, name, words) => self.spawn(async move {
                send(Msg::Page(host.page(thread.as_ref(), &name, &words).await));
                send(Msg::Info(Box::new(host.info())));
            }),
            Cmd::Back(cmd) => self.spawn(async move { send(Msg::Back(Box::new(host.back(cmd).await))) }),
            Cmd::Remember(prompt) => self.spawn(async move { host.remember(&prompt).await }),
            // The loop does these itself.
            Cmd::AskBackground
            | Cmd::AskTerminal(_)
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
