//! The one loop: keys first, then answers of the host, then what runs tell, then frames.
//!
//! A key is drawn at once. Events are taken in bulk and drawn at most once a frame. When nothing happens nothing is
//! scheduled: the loop sleeps until something comes.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::app::{App, WallClock};
use super::approval::edit::Draft;
use super::highlight::Highlighter;
use super::host::{Host, HostEvent};
use super::input::{Input, TerminalEvent};
use super::msg::{Cmd, Msg};
use super::terminal::{self, Desktop, LiveTerminal, TerminalGuard, TtyOut};
use super::transcript::Moment;
use super::view::feed::Feed;
use super::view::{self, Look};
use super::{Cause, ExitStatus, TuiError, TuiOptions};
use crate::contract::event::AgentEvent;
use crate::contract::lifecycle::ToolCallOutcome;

mod perform;
#[cfg(test)]
mod tests;

use perform::Performer;

/// The least time between two frames while events stream in.
const FRAME: Duration = Duration::from_millis(16);
/// How many events are taken in at once.
const BULK: usize = 4096;

/// The model with its screen.
struct Screen<W: io::Write> {
    terminal: LiveTerminal<W>,
    feed: Feed,
    look: Look,
    desktop: Desktop,
}

impl<W: io::Write> Screen<W> {
    /// Shows the model as it is now: finished lines go out for good, the rest is drawn below them.
    fn draw(&mut self, app: &App) -> io::Result<()> {
        let (width, height) = app.size;
        self.terminal.resize(width, height);
        let finished = self.feed.finished(app, &self.look);
        self.terminal.append(finished);
        let picture = view::live(app, &mut self.feed, &self.look);
        let rows = u16::try_from(picture.lines.len()).unwrap_or(u16::MAX).min(height);
        self.terminal.draw(rows, |area, buf| {
            for (y, line) in picture.lines.iter().enumerate().take(usize::from(area.height)) {
                buf.set_line(area.x, area.y + y as u16, line, area.width);
            }
            picture.caret
        })?;
        Ok(())
    }

    fn append(&mut self, lines: Vec<ratatui::text::Line<'static>>) {
        self.terminal.append(lines);
    }
}

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
    options: TuiOptions,
    host: Arc<dyn Host>,
    events: UnboundedReceiver<HostEvent>,
) -> Result<ExitStatus, TuiError> {
    let guard = TerminalGuard::enter().map_err(TuiError::NoTerminal)?;
    let restore = guard.restore();
    let size = terminal::size().unwrap_or((80, 24));
    let (keys_in, keys) = unbounded_channel();
    let input = Input::start(keys_in).map_err(TuiError::NoTerminal)?;
    let (answers_in, answers) = unbounded_channel();
    watch_signals(&answers_in)?;

    let colours = Arc::new(tokio::sync::Notify::new());
    let notify = Arc::clone(&colours);
    let look = Look {
        theme: options.theme.clone().with_links(options.links.clone()),
        highlighter: Highlighter::in_thread(move || notify.notify_one()),
    };
    let live = LiveTerminal::new(TtyOut, size.0, size.1, options.reflow)
        .with_restore(&restore)
        .with_links(options.links.clone());
    let mut screen = Screen { terminal: live, feed: Feed::default(), look, desktop: options.desktop };
    let mut app = App::new(host.info(), options.keymap.clone(), wall_clock(options.utc_offset), size);
    app.keeps_waiting = options.keep_waiting;
    app.rings = options.rings;
    app.set_vim(options.vim);
    screen.append(view::banner(&app.info, size.0, &screen.look.theme));
    let mut waits = Loop { keys, events, answers, colours, started: Instant::now() };
    let mut performer = Performer::new(host, answers_in);

    let first = match (&options.thread, options.choose_thread) {
        (_, true) => app.ask_which_thread(),
        (thread, false) => app.open_first(thread.clone()),
    };
    performer.load(&mut app);
    performer.do_all(first);
    if let Some(prompt) = &options.initial_prompt {
        performer.do_all(app.say(prompt));
    }
    screen.draw(&app).map_err(TuiError::Write)?;
    app.update(waits.now(), Msg::Drawn);

    let cause = turn(&mut app, &mut screen, &mut waits, &mut performer, &guard, &input).await;
    drop(input);
    // The text that was not sent is of no use on the screen of the shell.
    let finished = screen.feed.finished(&app, &screen.look);
    screen.append(finished);
    let growing = screen.feed.growing(&app, &screen.look);
    screen.append(growing);
    let ended = screen.terminal.finish(false);
    drop(guard);
    let cause = cause?;
    if cause == Cause::Quit {
        ended.map_err(TuiError::Write)?;
    }
    performer.settle().await;
    Ok(ExitStatus { thread: app.thread_id().cloned(), waiting: app.own_cards(), cause })
}

/// Goes round until the end.
async fn turn(
    app: &mut App,
    screen: &mut Screen<TtyOut>,
    waits: &mut Loop,
    performer: &mut Performer,
    guard: &TerminalGuard,
    input: &Input,
) -> Result<Cause, TuiError> {
    let mut bulk = Vec::with_capacity(BULK);
    let mut drawn_at = Instant::now();
    let mut frame_due: Option<Instant> = None;
    loop {
        let deadline = app.deadline().map(|at| waits.started + Duration::from_millis(at.0));
        let mut at_once = false;
        let mut msgs: Vec<Msg> = Vec::new();
        tokio::select! {
            biased;
            key = waits.keys.recv() => {
                at_once = true;
                msgs.push(of_terminal(key.unwrap_or(TerminalEvent::Hangup)));
                while let Ok(key) = waits.keys.try_recv() {
                    msgs.push(of_terminal(key));
                }
            }
            Some(answer) = waits.answers.recv() => {
                at_once = true;
                msgs.push(answer);
            }
            () = until(frame_due), if frame_due.is_some() => at_once = true,
            count = waits.events.recv_many(&mut bulk, BULK), if !waits.events.is_closed() || !waits.events.is_empty() => {
                let _ = count;
                // A question is shown at once: somebody has to answer it.
                at_once = bulk.iter().any(asks);
                msgs.extend(bulk.drain(..).map(of_host));
            }
            () = waits.colours.notified() => {}
            () = until(deadline), if deadline.is_some() => msgs.push(Msg::Tick),
        }
        let now = waits.now();
        for msg in msgs {
            let cause = match msg {
                Msg::Hangup => Cause::Hangup,
                Msg::Terminate => Cause::Terminated,
                _ => Cause::Quit,
            };
            for cmd in app.update(now, msg) {
                match cmd {
                    Cmd::Quit => return Ok(cause),
                    Cmd::Redraw => screen.terminal.redraw(),
                    Cmd::Suspend => suspend(app, screen, guard, input)?,
                    Cmd::Editor(id, draft) => {
                        let edited = lend(&draft, screen, waits, performer, guard, input).await?;
                        performer.tell(Msg::EditorClosed(id, draft.argument, edited));
                    }
                    Cmd::Compose(text) => {
                        let draft = Draft { argument: None, text, name: "message.md".to_owned() };
                        let edited = lend(&draft, screen, waits, performer, guard, input).await?;
                        performer.tell(Msg::Composed(edited));
                    }
                    Cmd::ShowWhole(entries) => {
                        for entry in entries {
                            let lines = Feed::whole(app, &screen.look, entry);
                            screen.append(lines);
                        }
                    }
                    Cmd::Copy(text) => copy(screen, &text),
                    Cmd::Notify { bell, desktop } => tell(screen, bell, desktop.as_deref()),
                    other => performer.perform(other),
                }
            }
        }
        let ready = drawn_at + FRAME;
        if at_once || Instant::now() >= ready {
            frame_due = None;
            if let Some((width, height)) = terminal::size()
                && (width, height) != app.size
            {
                app.update(now, Msg::Resize(width, height));
            }
            screen.draw(app).map_err(TuiError::Write)?;
            app.update(waits.now(), Msg::Drawn);
            drawn_at = Instant::now();
        } else {
            frame_due = Some(ready);
        }
    }
}

/// Whether a person is wanted.
fn asks(event: &HostEvent) -> bool {
    match event {
        HostEvent::Agent(_, event) => {
            matches!(event, AgentEvent::ToolCallDone { outcome: ToolCallOutcome::Suspended, .. })
        }
        HostEvent::InboxChanged | HostEvent::Note(_) => false,
        HostEvent::Synced(sync) => !sync.waiting.is_empty(),
        HostEvent::Began(..) | HostEvent::Deferred(..) | HostEvent::Lost(_) => false,
        HostEvent::Skills(_) | HostEvent::Warned(_) => false,
    }
}

fn of_host(event: HostEvent) -> Msg {
    match event {
        HostEvent::Agent(thread, event) => Msg::Agent(thread, Box::new(event)),
        HostEvent::InboxChanged => Msg::InboxChanged,
        HostEvent::Note(text) => Msg::Note(text),
        HostEvent::Synced(sync) => Msg::Synced(sync),
        HostEvent::Began(thread, row) => Msg::Began(thread, row),
        HostEvent::Deferred(thread, row, input) => Msg::Deferred(thread, row, input),
        HostEvent::Lost(thread) => Msg::Lost(thread),
        HostEvent::Skills(rows) => Msg::Skills(rows),
        HostEvent::Warned(text) => Msg::Failed(text),
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
        TerminalEvent::Resize(width, height) => Msg::Resize(width, height),
        TerminalEvent::Focus(is_in_front) => Msg::Focus(is_in_front),
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

/// Ctrl-Z: the terminal goes back to the shell until `fg`.
fn suspend(
    app: &mut App,
    screen: &mut Screen<TtyOut>,
    guard: &TerminalGuard,
    input: &Input,
) -> Result<(), TuiError> {
    input.pause();
    screen.terminal.finish(false).map_err(TuiError::Write)?;
    guard.pause();
    let stopped = terminal::stop_process();
    guard.resume().map_err(TuiError::NoTerminal)?;
    input.resume();
    screen.terminal.redraw();
    if stopped.is_err() {
        app.say_hint("this process cannot be stopped here");
    }
    Ok(())
}

/// Lends the terminal to the person's editor. What happens meanwhile is told afterwards; the end of the program ends the
/// editor too.
async fn lend(
    draft: &Draft,
    screen: &mut Screen<TtyOut>,
    waits: &mut Loop,
    performer: &Performer,
    guard: &TerminalGuard,
    input: &Input,
) -> Result<Result<String, String>, TuiError> {
    input.pause();
    screen.terminal.finish(false).map_err(TuiError::Write)?;
    guard.pause();
    let host = performer.host();
    let mut later = Vec::new();
    let edited = {
        let editing = host.edit(&draft.text, &draft.name);
        tokio::pin!(editing);
        loop {
            tokio::select! {
                edited = &mut editing => break edited,
                Some(answer) = waits.answers.recv() => {
                    let is_end = matches!(answer, Msg::Hangup | Msg::Terminate);
                    later.push(answer);
                    if is_end {
                        break Err("the editor was closed".to_owned());
                    }
                }
            }
        }
    };
    guard.resume().map_err(TuiError::NoTerminal)?;
    input.resume();
    screen.terminal.redraw();
    for msg in later {
        performer.tell(msg);
    }
    Ok(edited)
}

/// Puts text on the clipboard through the terminal (OSC 52), also over a remote shell.
fn copy(screen: &mut Screen<TtyOut>, text: &str) {
    use base64::Engine as _;
    use std::io::Write as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    let _ = screen.terminal.out_mut().write_all(format!("\x1b]52;c;{encoded}\x07").as_bytes());
}

/// Rings, and has the terminal show a notification. Neither moves the cursor or changes the picture.
fn tell(screen: &mut Screen<TtyOut>, bell: bool, desktop: Option<&str>) {
    use std::io::Write as _;
    let mut bytes = desktop.map(|text| screen.desktop.bytes(text)).unwrap_or_default();
    if bell {
        bytes.push(0x07);
    }
    let _ = screen.terminal.out_mut().write_all(&bytes);
}

fn wall_clock(offset: i32) -> WallClock {
    let now = jiff::Timestamp::now();
    WallClock { at_zero: u64::try_from(now.as_millisecond()).unwrap_or(0), offset }
}
