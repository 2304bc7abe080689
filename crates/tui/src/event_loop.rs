//! The UI loop: keys first, then answers of the host, then events of runs, then frames.
//!
//! A key is drawn at once. Events are taken in bulk and drawn at most once a frame. When nothing happens nothing is
//! scheduled: the loop sleeps until the next event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::app::{App, WallClock};
use super::highlight::Highlighter;
use super::host::{Host, HostEvent, ModelMsg, ProgramMsg, QuestionMsg, ThreadMsg, WritingMsg};
use super::image_cache::ImageCache;
use super::input::{Input, TerminalEvent};
use super::msg::Msg;
use super::status::{StatusCommand, TitleProgress};
use super::terminal::{self, LiveTerminal, Output, TerminalGuard, TtyOut};
use super::transcript::{EntryKind, Moment};
use super::view::{self, RenderStyle};
use super::{Cause, ExitStatus, TuiError, TuiOptions};
use aye_core::contract::event::AgentEvent;
use aye_core::contract::lifecycle::ToolCallOutcome;

mod commands;
mod perform;
mod screen;
#[cfg(test)]
mod tests;

use commands::{OwnTty, Tty, UiLoop};
pub(crate) use perform::Performer;
use screen::Screen;

/// The least time between two frames while events stream in.
const FRAME: Duration = Duration::from_millis(16);
/// A window that is being resized is left alone until its size has been stable for this long, but no longer
/// than the maximum: the terminal itself moves its contents in the meantime.
const RESIZE_QUIET: Duration = Duration::from_millis(25);
const RESIZE_MOST: Duration = Duration::from_millis(200);
/// Maximum events received at once.
const BULK: usize = 4096;

/// Everything that the loop waits for.
struct Loop {
    keys: UnboundedReceiver<TerminalEvent>,
    events: UnboundedReceiver<HostEvent>,
    answers: UnboundedReceiver<Msg>,
    /// New colours of code.
    colours: Arc<tokio::sync::Notify>,
    started: Instant,
}

impl Loop {
    fn now(&self) -> Moment {
        Moment(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

pub(super) async fn run(
    mut options: TuiOptions,
    host: Arc<dyn Host>,
    events: UnboundedReceiver<HostEvent>,
) -> Result<ExitStatus, TuiError> {
    let escapes = options.abilities.escapes;
    options.screen_reader |= !escapes;
    let guard = TerminalGuard::enter(escapes).map_err(TuiError::NoTerminal)?;
    let restore = guard.restore();
    let size = terminal::size().unwrap_or((80, 24));
    let (keys_in, keys) = unbounded_channel();
    let input = Input::start(keys_in).map_err(TuiError::NoTerminal)?;
    let (answers_in, answers) = unbounded_channel();
    watch_signals(&answers_in)?;

    let colours = Arc::new(tokio::sync::Notify::new());
    let notify = Arc::clone(&colours);
    let render_style = RenderStyle {
        theme: options.theme.on(options.background).clone().with_links(options.links.clone()),
        highlighter: Highlighter::in_thread(move || notify.notify_one()),
    };
    let abilities = screen::abilities(&options);
    // The title that was there comes back, and nothing is in progress any more.
    if abilities.title {
        restore.also(b"\x1b[23;2t");
    }
    if abilities.progress {
        restore.also(TitleProgress::None.bytes());
    }
    let out = Output::new(TtyOut, options.abilities.utf8);
    let live = LiveTerminal::new(out, size.0, size.1, options.reflow)
        .with_restore(&restore)
        .with_links(options.links.clone())
        .with_probe(terminal::size)
        .with_late_sizes(terminal::resize_report_delay(options.abilities.multiplexer));
    let mut screen = Screen::new(live, render_style, &options, restore.other_screen());
    let mut app = App::new(host.info(), options.keymap.clone(), wall_clock(options.utc_offset), size);
    app.display.segments = options.segments.clone();
    if options.status_command {
        app.display.feed = StatusCommand::on();
    }
    app.display.is_linear = options.screen_reader;
    if app.display.is_linear && escapes {
        // A line longer than a row continues in the next row.
        let _ = std::io::Write::write_all(screen.terminal.out_mut(), b"\x1b[?7h");
    }
    let draws_images = options.images && !app.display.is_linear;
    app.display.image_cache = ImageCache::new(abilities.pictures().filter(|_| draws_images));
    app.display.is_calm = options.reduced_motion || options.screen_reader;
    app.display.colours.theme = options.theme.clone();
    app.display.colours.background = options.background;
    app.queue.keeps_waiting = options.keep_waiting;
    app.display.rings = options.rings;
    app.set_vim(options.vim);
    if options.full {
        app.toggle_screen();
    }
    screen.append(view::banner(&app.info, size.0, &screen.render_style.theme));
    let waits = Loop { keys, events, answers, colours, started: Instant::now() };
    let performer = Performer::new(host, answers_in);
    let mut stage = UiLoop { app, screen, waits, performer, tty: OwnTty { guard, input } };

    let cause = match stage.begin(&options).await {
        Ok(None) => stage.turn().await,
        Ok(Some(cause)) => Ok(cause),
        Err(error) => Err(error),
    };
    let UiLoop { app, mut screen, mut performer, tty: OwnTty { guard, input }, .. } = stage;
    drop(input);
    let ended = screen.leave_other();
    // The text that was not sent is of no use on the screen of the shell.
    let finished = screen.feed.finished(&app, &screen.render_style);
    let growing = screen.feed.growing(&app, &screen.render_style);
    screen.append(finished);
    screen.append(growing);
    screen.end_linear();
    let ended = ended.and(screen.finish());
    drop(guard);
    let cause = cause?;
    if cause == Cause::Quit {
        ended.map_err(TuiError::Write)?;
    }
    performer.settle().await;
    let thread = app.conversation.id().cloned();
    let title = app.conversation.thread.as_ref().map(|thread| thread.title.clone()).unwrap_or_default();
    Ok(ExitStatus { thread, title, spent: super::status::spent(&app), waiting: app.own_cards(), cause })
}

impl<W: std::io::Write, T: Tty> UiLoop<W, T> {
    /// Asks for what is shown first, and shows the first frame.
    async fn begin(&mut self, options: &TuiOptions) -> Result<Option<Cause>, TuiError> {
        let mut first = match (&options.thread, options.choose_thread) {
            (_, true) => self.app.ask_which_thread(),
            (thread, false) => self.app.open_first(thread.clone()),
        };
        self.performer.load(&mut self.app);
        if options.first_start {
            self.app.welcome();
        }
        if let Some(prompt) = &options.initial_prompt {
            first.extend(self.app.submit_text(prompt));
        }
        if self.execute(first).await?.is_break() {
            return Ok(Some(Cause::Quit));
        }
        Ok(self.show().await?.1)
    }

    /// Goes round until the end.
    async fn turn(&mut self) -> Result<Cause, TuiError> {
        let mut bulk = Vec::with_capacity(BULK);
        let mut drawn_at = Instant::now();
        let mut resizing: Option<(Instant, Instant)> = None;
        let mut frame_due = self.screen.terminal.was_missed().then_some(drawn_at);
        loop {
            let waits = &mut self.waits;
            let deadline = self.app.deadline().map(|at| waits.started + Duration::from_millis(at.0));
            let mut at_once = false;
            let mut has_key = false;
            let mut msgs: Vec<Msg> = Vec::new();
            tokio::select! {
                biased;
                key = waits.keys.recv() => {
                    msgs.push(of_terminal(key.unwrap_or(TerminalEvent::Hangup)));
                    while let Ok(key) = waits.keys.try_recv() {
                        msgs.push(of_terminal(key));
                    }
                    has_key = !msgs.iter().all(|msg| matches!(msg, Msg::Resize(..)));
                    at_once = has_key;
                }
                Some(answer) = waits.answers.recv() => {
                    at_once = true;
                    msgs.push(answer);
                }
                () = until(frame_due), if frame_due.is_some() => at_once = true,
                count = waits.events.recv_many(&mut bulk, BULK), if !waits.events.is_closed() || !waits.events.is_empty() => {
                    let _ = count;
                    at_once = is_urgent(&self.app, &bulk);
                    msgs.extend(bulk.drain(..).map(of_host));
                }
                () = waits.colours.notified() => {}
                () = until(deadline), if deadline.is_some() => msgs.push(Msg::Tick),
            }
            for msg in msgs {
                if let Msg::Resize(width, height) = &msg {
                    self.screen.terminal.resize(*width, *height);
                    let since = resizing.map_or_else(Instant::now, |(since, _)| since);
                    let late = self.screen.terminal.late();
                    let quiet = Instant::now().min(since + RESIZE_MOST + 3 * late) + RESIZE_QUIET.max(late);
                    resizing = Some((since, quiet));
                }
                if let Some(cause) = self.handle_msg(msg).await? {
                    return Ok(cause);
                }
            }
            let ready = drawn_at + FRAME;
            let quiet = resizing.map(|(_, until)| until).filter(|until| !has_key && Instant::now() < *until);
            if let Some(quiet) = quiet {
                frame_due = Some(quiet);
            } else if at_once || Instant::now() >= ready {
                resizing = None;
                if let Some((width, height)) = terminal::size()
                    && (width, height) != self.app.display.size
                    && let Some(cause) = self.handle_msg(Msg::Resize(width, height)).await?
                {
                    return Ok(cause);
                }
                self.performer.let_begin().await;
                let (is_whole, cause) = self.show().await?;
                if let Some(cause) = cause {
                    return Ok(cause);
                }
                drawn_at = Instant::now();
                frame_due = (!is_whole).then_some(drawn_at);
            } else {
                frame_due = Some(ready);
            }
        }
    }
}

/// Whether the events are shown at once: a question, which the user has to answer, and the first words of an answer.
fn is_urgent(app: &App, events: &[HostEvent]) -> bool {
    let answer = app.conversation.transcript.entries().last().and_then(|entry| match &entry.kind {
        EntryKind::Assistant { text, .. } if !entry.is_done => Some(text),
        _ => None,
    });
    let has_begun = answer.is_some_and(|text| has_words(text));
    events.iter().any(|event| asks(event) || !has_begun && speaks(event))
}

/// Whether the event needs the user.
fn asks(event: &HostEvent) -> bool {
    match event {
        HostEvent::Agent(_, event) => {
            matches!(event, AgentEvent::ToolCallDone { outcome: ToolCallOutcome::Suspended, .. })
        }
        HostEvent::InboxChanged | HostEvent::Note(_) => false,
        HostEvent::Synced(sync) => !sync.waiting.is_empty(),
        HostEvent::Began(..) | HostEvent::Deferred(..) | HostEvent::Lost(_) => false,
        HostEvent::Skills(_) | HostEvent::Models(_) | HostEvent::LastHere(_) => false,
        HostEvent::Unsandboxed(_) | HostEvent::Warned(_) | HostEvent::ToolsChanged(_) => false,
    }
}

/// Whether the event has words of the model.
fn speaks(event: &HostEvent) -> bool {
    matches!(event, HostEvent::Agent(_, AgentEvent::TextDelta { delta }) if has_words(delta))
}

/// Whether there is something to read. The marks before the words (`## `, `- **`) are not shown yet, and a frame for them
/// would make the words wait for the next one.
fn has_words(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

fn of_host(event: HostEvent) -> Msg {
    match event {
        HostEvent::Agent(thread, event) => Msg::Agent(thread, Box::new(event)),
        HostEvent::InboxChanged => Msg::Question(QuestionMsg::InboxChanged),
        HostEvent::Note(text) => Msg::Note(text),
        HostEvent::Synced(sync) => Msg::Thread(ThreadMsg::Synced(sync)),
        HostEvent::Began(thread, row) => Msg::Thread(ThreadMsg::Began(thread, row)),
        HostEvent::Deferred(thread, row, input) => Msg::Thread(ThreadMsg::Deferred(thread, row, input)),
        HostEvent::Lost(thread) => Msg::Thread(ThreadMsg::Lost(thread)),
        HostEvent::Skills(rows) => Msg::Writing(WritingMsg::Skills(rows)),
        HostEvent::Models(rows) => Msg::Model(ModelMsg::Listed(rows)),
        HostEvent::LastHere(last) => Msg::Thread(ThreadMsg::LastHere(last)),
        HostEvent::Unsandboxed(lack) => Msg::Program(ProgramMsg::Unsandboxed(lack)),
        HostEvent::Warned(text) => Msg::Failed(text),
        HostEvent::ToolsChanged(rows) => Msg::Program(ProgramMsg::ToolsChanged(rows)),
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

fn of_terminal(event: TerminalEvent) -> Msg {
    match event {
        TerminalEvent::Key(key) => Msg::Key(key),
        TerminalEvent::Paste(text) => Msg::Paste(text),
        TerminalEvent::Mouse(event) => Msg::Mouse(event),
        TerminalEvent::Resize(width, height) => Msg::Resize(width, height),
        TerminalEvent::Focus(is_in_front) => Msg::Focus(is_in_front),
        TerminalEvent::Background(background) => Msg::Background(background),
        TerminalEvent::Hangup => Msg::Hangup,
    }
}

/// SIGTERM and SIGHUP end the program as a terminal that went away does.
fn watch_signals(answers: &UnboundedSender<Msg>) -> Result<(), TuiError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).map_err(TuiError::NoTerminal)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(TuiError::NoTerminal)?;
    let answers = answers.clone();
    tokio::spawn(async move {
        let msg = tokio::select! {
            _ = term.recv() => Msg::Terminate,
            _ = hangup.recv() => Msg::Hangup,
            () = answers.closed() => return,
        };
        let _ = answers.send(msg);
    });
    Ok(())
}

fn wall_clock(offset: i32) -> WallClock {
    let now = jiff::Timestamp::now();
    WallClock { at_zero: u64::try_from(now.as_millisecond()).unwrap_or(0), offset }
}
