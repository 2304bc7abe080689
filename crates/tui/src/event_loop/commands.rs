//! The UI loop, the only place that executes commands.

use std::io;
use std::ops::ControlFlow;

use super::super::app::App;
use super::super::host::{ProgramMsg, Renewal};
use super::super::input::Input;
use super::super::msg::{Cmd, Msg};
use super::super::terminal::{self, TerminalGuard};
use super::super::view::scrollback::ScrollbackWriter;
use super::super::{Cause, TuiError};
use super::Loop;
use super::perform::Performer;
use super::screen::Screen;
use aye_core::contract::ids::ThreadId;

/// A terminal that is acquired and released.
pub(super) trait Tty {
    /// Not a key more is read.
    fn stop_reading(&self);
    /// The modes that the terminal had before are back.
    fn give(&self);
    /// The screen belongs to somebody else, who wants the terminal raw as we do.
    fn give_screen(&self);
    /// It is ours again, and keys are read.
    fn take(&self) -> io::Result<()>;
    /// Stops the process until it is continued.
    fn stop_process(&self) -> io::Result<()>;
}

/// The terminal of this process.
pub(super) struct OwnTty {
    pub(super) guard: TerminalGuard,
    pub(super) input: Input,
}

impl Tty for OwnTty {
    fn stop_reading(&self) {
        self.input.pause();
    }

    fn give(&self) {
        self.guard.pause();
    }

    fn give_screen(&self) {
        self.guard.pause_screen();
    }

    fn take(&self) -> io::Result<()> {
        self.guard.resume()?;
        self.input.resume();
        Ok(())
    }

    fn stop_process(&self) -> io::Result<()> {
        terminal::stop_process()
    }
}

/// The temporary user of the terminal.
#[derive(Clone, Copy)]
enum TerminalUser<'a> {
    /// The user's editor, with a text and its name.
    Editor(&'a str, &'a str),
    /// A background command of a conversation, by its id.
    Command(&'a ThreadId, &'a str),
}

/// The model, the screen that shows it, the sources that the loop waits for, and the performer of its
/// requests.
pub(super) struct UiLoop<W: io::Write, T> {
    pub(super) app: App,
    pub(super) screen: Screen<W>,
    pub(super) waits: Loop,
    pub(super) performer: Performer,
    pub(super) tty: T,
}

impl<W: io::Write, T: Tty> UiLoop<W, T> {
    /// Updates the model with a message and carries out its commands. Returns the cause if the program is to
    /// end.
    pub(super) async fn handle_msg(&mut self, msg: Msg) -> Result<Option<Cause>, TuiError> {
        let cause = match msg {
            Msg::Hangup => Cause::Hangup,
            Msg::Terminate => Cause::Terminated,
            _ => Cause::Quit,
        };
        let cmds = self.app.update(self.waits.now(), msg);
        Ok(self.execute(cmds).await?.is_break().then_some(cause))
    }

    pub(super) async fn execute(&mut self, cmds: Vec<Cmd>) -> Result<ControlFlow<()>, TuiError> {
        for cmd in cmds {
            match cmd {
                Cmd::Quit => return Ok(ControlFlow::Break(())),
                Cmd::Redraw => self.screen.redraw(),
                Cmd::Suspend => self.suspend()?,
                Cmd::Editor(id, draft) => {
                    let edited = self.run_in_terminal(TerminalUser::Editor(&draft.text, &draft.name)).await?;
                    self.performer.deliver(Msg::EditorClosed(id, draft.argument, edited));
                }
                Cmd::Renew => self.renew().await,
                Cmd::Compose(text) => {
                    let edited = self.run_in_terminal(TerminalUser::Editor(&text, "message.md")).await?;
                    self.performer.deliver(Msg::Composed(edited));
                }
                Cmd::View(name, text) => {
                    if let Err(why) = self.run_in_terminal(TerminalUser::Editor(&text, &name)).await? {
                        self.performer.deliver(Msg::Failed(why));
                    }
                }
                Cmd::TakeOver(thread, id) => {
                    if let Err(why) = self.run_in_terminal(TerminalUser::Command(&thread, &id)).await? {
                        self.performer.deliver(Msg::Failed(why));
                    }
                }
                Cmd::ShowWhole(entries) => {
                    for entry in entries {
                        let lines = ScrollbackWriter::whole(&self.app, &self.screen.render_style, entry);
                        self.screen.append(lines);
                    }
                }
                Cmd::AskBackground => self.screen.ask_background(),
                Cmd::Copy(text) => self.screen.copy(&text),
                Cmd::Notify { bell, desktop } => self.screen.alert(bell, desktop.as_deref()),
                other => self.performer.perform(other),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Rebuilds the program. Keys wait in the meantime: nothing is sent to a host that is about to go.
    async fn renew(&mut self) {
        let renewed = match self.performer.host().renew().await {
            Ok(Some(host)) => {
                let renewal = Renewal { info: host.info(), untrusted: host.untrusted() };
                self.performer.serve(host);
                self.performer.load(&mut self.app);
                Ok(Some(Box::new(renewal)))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        self.performer.deliver(ProgramMsg::Renewed(renewed));
    }

    /// Draws the current model and informs it; returns `false` if the size changed while the frame was drawn.
    pub(super) async fn show(&mut self) -> Result<(bool, Option<Cause>), TuiError> {
        self.screen.draw(&self.app).map_err(TuiError::Write)?;
        if self.screen.terminal.was_missed() {
            return Ok((false, None));
        }
        Ok((true, self.handle_msg(Msg::Drawn).await?))
    }

    /// Stops reading keys and draws what stays on the screen of the shell.
    fn finish_screen(&mut self) -> Result<(), TuiError> {
        self.tty.stop_reading();
        self.screen.leave_other().and_then(|()| self.screen.finish()).map_err(TuiError::Write)
    }

    fn take(&mut self) -> Result<(), TuiError> {
        self.tty.take().map_err(TuiError::NoTerminal)?;
        self.screen.redraw();
        Ok(())
    }

    /// Ctrl-Z: the terminal goes back to the shell until `fg`.
    fn suspend(&mut self) -> Result<(), TuiError> {
        self.finish_screen()?;
        self.tty.give();
        let stopped = self.tty.stop_process();
        self.take()?;
        if stopped.is_err() {
            self.app.show_hint("this process cannot be suspended here");
        }
        Ok(())
    }

    /// Lends the terminal to the user's editor, or to a command. Messages that arrive in the meantime are
    /// delivered afterwards; the end of the program also ends the editor.
    async fn run_in_terminal(&mut self, to: TerminalUser<'_>) -> Result<Result<String, String>, TuiError> {
        self.finish_screen()?;
        match to {
            TerminalUser::Editor(..) => self.tty.give(),
            TerminalUser::Command(..) => self.tty.give_screen(),
        }
        let host = self.performer.host();
        let mut later = Vec::new();
        let edited = {
            let editing = async {
                match to {
                    TerminalUser::Editor(text, name) => host.edit(text, name).await,
                    TerminalUser::Command(thread, id) => {
                        host.take_over(thread, id).await.map(|()| String::new())
                    }
                }
                .map_err(|error| error.to_string())
            };
            tokio::pin!(editing);
            loop {
                tokio::select! {
                    edited = &mut editing => break edited,
                    Some(answer) = self.waits.answers.recv() => {
                        let is_end = matches!(answer, Msg::Hangup | Msg::Terminate);
                        later.push(answer);
                        if is_end {
                            break Err("the editor was closed".to_owned());
                        }
                    }
                }
            }
        };
        self.take()?;
        for msg in later {
            self.performer.deliver(msg);
        }
        Ok(edited)
    }
}
