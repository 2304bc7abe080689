//! `aye inbox --watch`: pending questions, then each new one.

use std::collections::HashSet;
use std::io::Write as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::list::filter;
use super::waiting;
use crate::commands::approvals::InboxArgs;
use crate::contract::display::escape_json;
use crate::contract::ids::SuspensionId;
use crate::contract::record::InboxRow;
use crate::contract::storage::{ChangeFeed, ChangeKind, InboxFilter, SharedStore};
use crate::failure::Failure;

/// How long to wait after a change for related ones: a step of a run makes several.
const GATHER: Duration = Duration::from_millis(30);

pub(super) async fn run(args: &InboxArgs, store: &SharedStore) -> Result<u8, Failure> {
    // Changes are received from here on; the first read includes everything committed before.
    let mut changes = store.watch().map_err(Failure::failed)?;
    let mut ends = Ends::new();
    let mut printed: HashSet<SuspensionId> = HashSet::new();
    loop {
        let now = store.clock().now_ms();
        let filter = filter(args, store, now).await?;
        let rows = waiting(store, InboxFilter { asked_before: None, ..filter.clone() }, now).await?;
        let is_due = |row: &InboxRow| filter.asked_before.is_none_or(|before| row.created_at < before);
        for row in rows.iter().filter(|row| is_due(row)) {
            if !printed.contains(&row.id) && !put_line(row)? {
                return Ok(0);
            }
        }
        // Until the next one has been pending for the requested time.
        let next = rows.iter().filter(|row| !is_due(row)).map(|row| row.created_at).min();
        let due = next.zip(filter.asked_before).map(|(asked, before)| asked - before + 1);
        // A closed question is never pending again.
        printed = rows.into_iter().filter(|row| is_due(row)).map(|row| row.id).collect();
        tokio::select! {
            code = ends.wait_for_end() => return Ok(code),
            () = a_change(&mut changes) => {}
            () = after(due) => {}
        }
    }
}

/// Waits until there may be a new question.
async fn a_change(changes: &mut Box<dyn ChangeFeed>) {
    loop {
        match changes.next_or_check().await.kind {
            ChangeKind::Run | ChangeKind::Anything => break,
            ChangeKind::Decision | ChangeKind::Owner | ChangeKind::Queue | ChangeKind::Grant => {}
        }
    }
    let _ = tokio::time::timeout(GATHER, async {
        loop {
            changes.next().await;
        }
    })
    .await;
}

async fn after(ms: Option<u64>) {
    match ms {
        Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        None => std::future::pending().await,
    }
}

/// Writes a row. Returns `false` if nobody reads the output any more.
fn put_line(row: &InboxRow) -> Result<bool, Failure> {
    let line = escape_json(&serde_json::to_string(row).unwrap_or_default());
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!("cannot write to stdout: {error}"))),
    }
}

/// The reasons to end: a signal, or a reader that has gone.
struct Ends {
    signals: Vec<(Signal, u8)>,
    no_reader: tokio::sync::oneshot::Receiver<()>,
}

impl Ends {
    fn new() -> Ends {
        let signals =
            [(SignalKind::interrupt(), 130), (SignalKind::terminate(), 143), (SignalKind::hangup(), 129)];
        let (gone, no_reader) = tokio::sync::oneshot::channel();
        // Sleeps in the kernel until the pipe's reader is gone; for a file, until the program ends.
        std::thread::spawn(move || {
            let out = std::io::stdout();
            let mut wanted = [PollFd::new(&out, PollFlags::empty())];
            while poll(&mut wanted, None).is_err_and(|error| error == rustix::io::Errno::INTR) {}
            let _ = gone.send(());
        });
        Ends {
            signals: signals
                .into_iter()
                .filter_map(|(kind, code)| Some((signal(kind).ok()?, code)))
                .collect(),
            no_reader,
        }
    }

    /// Waits for the end and returns its exit status.
    async fn wait_for_end(&mut self) -> u8 {
        let signals = self.signals.iter_mut().map(|(signal, code)| {
            Box::pin(async move {
                signal.recv().await;
                *code
            })
        });
        let signals: Vec<_> = signals.collect();
        let a_signal = async {
            if signals.is_empty() {
                std::future::pending().await
            } else {
                futures::future::select_all(signals).await.0
            }
        };
        tokio::select! {
            biased;
            code = a_signal => code,
            _ = &mut self.no_reader => 0,
        }
    }
}
