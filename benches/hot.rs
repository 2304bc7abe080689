//! What runs often, measured in the process: `cargo bench`, or `cargo bench -- markdown` for one of them.
//!
//! The goals and what whole processes reach are in `docs/speed.md`; `scripts/speed` measures those.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a benchmark that cannot be set up should stop")]

mod sample;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aye::context::{CompactionConfig, FitLimits, History, Marks, Sizes, accept, assemble, fit, plan, prompt};
use aye::contract::event::AgentEvent;
use aye::contract::executor::ToolExecutionMode;
use aye::contract::identity::{RunIdentity, RunOrigin};
use aye::contract::ids::ThreadId;
use aye::contract::lifecycle::RunStatus;
use aye::contract::mailbox::MailboxJob;
use aye::contract::message::Message;
use aye::contract::record::{Checkpoint, RunRecord, ThreadRecord};
use aye::contract::spec::ContextWindowPolicy;
use aye::contract::tool::{Tool as _, ToolCallContext, ToolDescriptor};
use aye::plugins::deferred_tools::{DeferralRule, DeferredToolsPlugin, ToolLoadMode, ToolSearchTool};
use aye::plugins::permission::{CallRequest, PreparedCall, evaluate, shipped_rules};
use aye::run::{Directive, Fact, Gate, Run, Settled};
use aye::store::{InboxFilter, Store};
use aye::tui::app::{App, WallClock};
use aye::tui::highlight::Highlighter;
use aye::tui::host::OpenedThread;
use aye::tui::host::{QuestionMsg, ThreadMsg};
use aye::tui::msg::Msg;
use aye::tui::terminal::LiveTerminal;
use aye::tui::theme::Theme;
use aye::tui::transcript::{Moment, Transcript};
use aye::tui::view::layout_cache::Sheets;
use aye::tui::view::scrollback::ScrollbackWriter;
use aye::tui::view::{self, RenderStyle};
use aye::{
    AgentSpec, ExecutionEnv, Phase, PhaseContext, PhaseHook, PhaseRuntime, Plugin, PluginDescriptor,
    PluginRegistrar, StateCommand, StateError, StateStore,
};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

const SIZE: (u16, u16) = (120, 40);
const DELTAS: usize = 20_000;
/// How many deltas one frame takes in: what arrives in 16 ms when they come as fast as a socket takes them.
const PER_FRAME: usize = 400;

fn look() -> RenderStyle {
    let text = include_str!("../themes/default.toml");
    let theme = Theme::parse("default", "default.toml", text, |_| None).expect("it can be read");
    RenderStyle { theme, highlighter: Highlighter::in_thread(|| {}) }
}

/// The screen as the loop of the terminal draws it, into nothing.
struct Screen {
    app: App,
    feed: ScrollbackWriter,
    look: RenderStyle,
    terminal: LiveTerminal<std::io::Sink>,
}

impl Screen {
    fn new() -> Screen {
        Screen {
            app: App::new(sample::info(), aye::tui::keymap::Keymap::default(), WallClock::default(), SIZE),
            feed: ScrollbackWriter::default(),
            look: look(),
            terminal: LiveTerminal::new(std::io::sink(), SIZE.0, SIZE.1, false),
        }
    }

    fn open(&mut self, opened: OpenedThread) {
        self.app.update(Moment(0), Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened)))));
    }

    fn draw(&mut self) {
        let lines = self.feed.finished(&self.app, &self.look);
        self.terminal.append(lines);
        let picture = view::live(&self.app, &mut self.feed, &self.look);
        let rows = (picture.lines.len() as u16).min(SIZE.1);
        self.terminal
            .draw(rows, |area, buf| {
                for (y, line) in picture.lines.iter().enumerate().take(usize::from(area.height)) {
                    buf.set_line(area.x, area.y + y as u16, line, area.width);
                }
                picture.caret
            })
            .unwrap();
    }
}

/// An answer of 20,000 deltas from the first event to the last frame: model, markdown, layout, cells.
fn markdown(c: &mut Criterion) {
    let deltas = sample::markdown_deltas(DELTAS);
    let thread = ThreadId::from("t");
    let events: Vec<AgentEvent> = std::iter::once(sample::run_start())
        .chain(deltas.iter().map(|delta| AgentEvent::TextDelta { delta: delta.clone() }))
        .collect();
    let mut group = c.benchmark_group("stream");
    group.sample_size(10);
    group.bench_function("20000 deltas with frames", |b| {
        b.iter_batched(
            || {
                let mut screen = Screen::new();
                screen.open(sample::opened(0));
                screen
            },
            |mut screen| {
                for (at, chunk) in events.chunks(PER_FRAME).enumerate() {
                    for event in chunk {
                        let msg = Msg::Agent(thread.clone(), Box::new(event.clone()));
                        screen.app.update(Moment(at as u64 * 16), msg);
                    }
                    screen.draw();
                }
                screen
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("fold 20000 deltas", |b| {
        b.iter(|| {
            let mut transcript = Transcript::default();
            for event in &events {
                transcript.apply(Moment(1), event);
            }
            transcript
        });
    });
    group.finish();
}

/// A stored thread of 10,000 entries: from the file to the first picture.
fn open(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let rt = runtime();
    let store = Store::open(&dir.path().join("aye.db")).unwrap();
    rt.block_on(sample::fill(&store, 10_000));
    let id = ThreadId::from("t");
    let mut group = c.benchmark_group("open");
    group.sample_size(10);
    group.bench_function("read 10000 messages", |b| {
        b.iter(|| rt.block_on(store.messages(&id)).unwrap());
    });
    group.bench_function("10000 entries to the first picture", |b| {
        b.iter(|| {
            let messages = rt.block_on(store.messages(&id)).unwrap();
            let mut screen = Screen::new();
            screen.open(OpenedThread { messages, ..sample::opened(0) });
            screen.draw();
            screen
        });
    });
    group.finish();
}

/// 100,000 entries: a frame inline and in the viewer, a step of scrolling, and another size.
fn long(c: &mut Criterion) {
    let key = |code, modifiers| Msg::Key(KeyEvent::new(code, modifiers));
    let mut group = c.benchmark_group("100000 entries");
    group.sample_size(20);
    let mut screen = Screen::new();
    screen.open(sample::opened(133_333));
    screen.draw();
    let mut n = 0u16;
    group.bench_function("a key and its frame", |b| {
        b.iter(|| {
            screen.app.update(Moment(1), key(KeyCode::Char('x'), KeyModifiers::NONE));
            screen.app.update(Moment(1), key(KeyCode::Backspace, KeyModifiers::NONE));
            screen.draw();
        });
    });
    group.bench_function("another size, inline", |b| {
        b.iter(|| {
            n += 1;
            screen.app.update(Moment(1), Msg::Resize(80 + n % 40, 40));
            screen.draw();
        });
    });
    let mut sheets = Sheets::new(look());
    screen.app.update(Moment(1), key(KeyCode::Char('o'), KeyModifiers::CONTROL));
    let picture = |app: &App, sheets: &mut Sheets| {
        let viewer = app.overlays.viewer.as_ref().expect("it is open");
        view::viewer::viewer(app, viewer, sheets)
    };
    group.bench_function("a page up in the viewer and its frame", |b| {
        b.iter(|| {
            screen.app.update(Moment(1), key(KeyCode::PageUp, KeyModifiers::NONE));
            picture(&screen.app, &mut sheets)
        });
    });
    group.bench_function("another size, in the viewer", |b| {
        b.iter(|| {
            n += 1;
            screen.app.update(Moment(1), Msg::Resize(80 + n % 40, 40));
            picture(&screen.app, &mut sheets)
        });
    });
    group.bench_function("a search through all", |b| {
        b.iter(|| {
            for c in "/not to be found\n".chars() {
                let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
                screen.app.update(Moment(1), key(code, KeyModifiers::NONE));
            }
        });
    });
    group.finish();
}

/// 10,000 questions that wait: from the file to the first picture of their list, and a letter typed in it.
fn inbox(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let rt = runtime();
    let store = Store::open(&dir.path().join("aye.db")).unwrap();
    rt.block_on(sample::fill_inbox(&store, 10_000));
    let read = || rt.block_on(store.inbox(InboxFilter::default())).unwrap();
    let key = |code, modifiers| Msg::Key(KeyEvent::new(code, modifiers));
    let listed = || {
        let mut screen = Screen::new();
        screen.open(sample::opened(0));
        screen.app.update(Moment(0), key(KeyCode::Char('t'), KeyModifiers::CONTROL));
        screen.app.update(Moment(0), Msg::Question(QuestionMsg::Inbox(Ok(read()))));
        screen.draw();
        screen
    };
    let mut group = c.benchmark_group("inbox");
    group.sample_size(20);
    group.bench_function("read 10000 rows", |b| b.iter(read));
    group.bench_function("count 10000 rows", |b| {
        b.iter(|| rt.block_on(store.waiting_count(Some(&ThreadId::from("t0")), 9)).unwrap());
    });
    group.bench_function("short ids of 10000 rows", |b| {
        let ids: Vec<_> = read().into_iter().map(|row| row.id).collect();
        b.iter(|| rt.block_on(store.short_ids(ids.clone(), 12)).unwrap());
    });
    group.bench_function("10000 rows to the first picture", |b| b.iter(listed));
    group.bench_function("a letter and its picture", |b| {
        b.iter_batched_ref(
            listed,
            |screen| {
                screen.app.update(Moment(1), key(KeyCode::Char('9'), KeyModifiers::NONE));
                screen.draw();
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// The shipped rules: read at a start, and 200 commands judged by them.
fn rules(c: &mut Criterion) {
    c.bench_function("rules/read the shipped ones", |b| b.iter(shipped_rules));
    let commands = sample::commands(200);
    let args: Vec<_> = commands.iter().map(|command| json!({ "command": command })).collect();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().canonicalize().unwrap();
    let judge = |rules: &aye::plugins::permission::RuleSet, args: &serde_json::Value| {
        let question = CallRequest {
            tool: "Bash",
            args,
            cwd: &place,
            workspace: &place,
            home: Some(Path::new("/home/user")),
            primary: Some("command"),
        };
        evaluate(rules, &question)
    };
    c.bench_function("rules/first command of a start", |b| {
        b.iter_batched(shipped_rules, |rules| judge(&rules, &args[0]), BatchSize::SmallInput);
    });
    let rules = shipped_rules();
    c.bench_function("rules/200 commands", |b| {
        b.iter(|| args.iter().map(|args| judge(&rules, args)).collect::<Vec<_>>());
    });
    c.bench_function("rules/200 commands with every rule that was tried", |b| {
        b.iter(|| {
            let tried = |args| {
                let question = CallRequest {
                    tool: "Bash",
                    args,
                    cwd: &place,
                    workspace: &place,
                    home: Some(Path::new("/home/user")),
                    primary: Some("command"),
                };
                PreparedCall::of(&question).map(|call| (call.verdict(&rules), call.tried(&rules)))
            };
            args.iter().map(tried).collect::<Vec<_>>()
        });
    });
}

/// One step of the machine: an answer with one call, gated, run, settled, and the step after it.
fn machine(c: &mut Criterion) {
    c.bench_function("run/one step with a call", |b| {
        b.iter_batched(
            || Run::new(ToolExecutionMode::Sequential),
            |mut run| {
                let phase = |phase| Fact::PhaseDone { phase, stop: None };
                let mut directives: Vec<Directive> = Vec::new();
                for fact in [
                    Fact::Started,
                    phase(Phase::RunStart),
                    phase(Phase::StepStart),
                    phase(Phase::BeforeInference),
                    Fact::Inferred { calls: vec!["c1".into()] },
                    phase(Phase::AfterInference),
                    Fact::Gated { call: "c1".into(), gate: Gate::Proceed },
                    Fact::Settled { call: "c1".into(), outcome: Settled::Succeeded },
                    phase(Phase::StepEnd),
                ] {
                    directives.extend(run.apply(fact).unwrap());
                }
                (run, directives)
            },
            BatchSize::SmallInput,
        );
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The durable commits of a call, on the disk of the folder for temporary files.
fn store(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let rt = runtime();
    let store = Store::open(&dir.path().join("aye.db")).unwrap();
    let (fence, run) = rt.block_on(sample::begin_thread(&store));
    let empty = |run: &RunRecord| Checkpoint::new(fence.clone(), run.clone());
    let mut group = c.benchmark_group("store");
    group.measurement_time(Duration::from_secs(3));
    group.bench_function("checkpoint", |b| {
        b.iter(|| rt.block_on(store.checkpoint(empty(&run))).unwrap());
    });
    let mut n = 0;
    group.bench_function("begin", |b| {
        b.iter(|| {
            n += 1;
            rt.block_on(store.begin(sample::begin(&fence, &run, &format!("b{n}"), None))).unwrap();
        });
    });
    group.bench_function("ask, decide, begin", |b| {
        b.iter(|| {
            n += 1;
            let call = format!("d{n}");
            rt.block_on(async {
                let opened = vec![sample::question(&run, &call)];
                let waiting = RunRecord { status: RunStatus::Waiting, ..run.clone() };
                store.checkpoint(Checkpoint { opened, ..empty(&waiting) }).await.unwrap();
                store.decide(&call.as_str().into(), sample::yes(&call), 3).await.unwrap();
                store.begin(sample::begin(&fence, &run, &call, Some(&call))).await.unwrap();
            });
        });
    });
    group.finish();
    rt.block_on(store.close());
}

/// Jobs from their birth to their end: each waited for alone, and many that share their waits for the disk.
fn mailbox(c: &mut Criterion) {
    const TOGETHER: usize = 128;
    let dir = tempfile::tempdir().unwrap();
    let rt = runtime();
    let store = Store::open(&dir.path().join("aye.db")).unwrap();
    let threads: Vec<ThreadId> = (0..TOGETHER).map(|n| ThreadId::from(format!("t{n}"))).collect();
    rt.block_on(async {
        for id in &threads {
            store.create_thread(ThreadRecord { id: id.clone(), ..sample::thread() }).await.unwrap();
        }
    });
    let mailbox = store.mailbox();
    let cycle = |thread: &ThreadId| {
        let (mailbox, thread) = (mailbox.clone(), thread.clone());
        async move {
            let job = MailboxJob::new(thread.clone(), vec![Message::user("do it")], 1);
            mailbox.enqueue(job).await.unwrap();
            let job = mailbox.claim(&thread, "worker", 1, 2, 30_000).await.unwrap().pop().unwrap();
            mailbox.ack(&job.job_id, job.claim_token.as_deref().unwrap(), 3).await.unwrap();
        }
    };
    let mut group = c.benchmark_group("mailbox");
    group.measurement_time(Duration::from_secs(3)).sample_size(20);
    group.throughput(Throughput::Elements(1));
    group.bench_function("enqueue, claim, ack, each durable", |b| {
        b.iter(|| rt.block_on(cycle(&threads[0])));
    });
    group.throughput(Throughput::Elements(TOGETHER as u64));
    group.bench_function("128 at a time", |b| {
        b.iter(|| rt.block_on(futures::future::join_all(threads.iter().map(&cycle))));
    });
    group.finish();
    rt.block_on(store.close());
}

struct Quiet(&'static str);

impl Plugin for Quiet {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(self.0, "does nothing, as most plugins do in most phases")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_hook(Phase::BeforeInference, QuietHook);
        Ok(())
    }
}

struct QuietHook;

#[async_trait]
impl PhaseHook for QuietHook {
    async fn run(&self, _: &PhaseContext) -> Result<StateCommand, StateError> {
        Ok(StateCommand::new())
    }
}

/// One phase with 20 plugins that have a hook in it.
fn phase(c: &mut Criterion) {
    const NAMES: [&str; 20] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];
    let rt = runtime();
    let plugins: Vec<Arc<dyn Plugin>> =
        NAMES.iter().map(|name| Arc::new(Quiet(name)) as Arc<dyn Plugin>).collect();
    let env = ExecutionEnv::from_plugins(&plugins).unwrap();
    let state = StateStore::new();
    let phases = PhaseRuntime::new(state.clone()).unwrap();
    phases.install(&env).unwrap();
    let spec = Arc::new(AgentSpec::new("bench"));
    let identity = RunIdentity::new("t".into(), None, "r".into(), None, "bench".into(), RunOrigin::User);
    c.bench_function("phase/20 plugins", |b| {
        b.iter(|| {
            let ctx = PhaseContext::new(Phase::BeforeInference, identity.clone(), Arc::clone(&spec))
                .with_snapshot(state.snapshot());
            rt.block_on(phases.run_phase(&env, ctx)).unwrap()
        });
    });
}

/// A hook that does nothing in each phase of a step.
struct Attentive(&'static str);

const STEP: [Phase; 4] = [Phase::StepStart, Phase::BeforeInference, Phase::AfterInference, Phase::StepEnd];

impl Plugin for Attentive {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(self.0, "looks on in every phase of a step")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        for phase in STEP {
            registrar.register_hook(phase, QuietHook);
        }
        Ok(())
    }
}

/// 500 tools of servers: the phases of a step that keep them out of the request, among 20 plugins; and a search.
fn deferred(c: &mut Criterion) {
    const NAMES: [&str; 19] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s"];
    let rt = runtime();
    let tools: Arc<[ToolDescriptor]> =
        sample::tools(500).into_iter().chain([ToolSearchTool.descriptor()]).collect();
    let servers = DeferralRule { tool: "mcp__*".into(), mode: ToolLoadMode::Deferred };
    let plugin = DeferredToolsPlugin::new(Vec::new()).with_default_rules(vec![servers]);
    let mut plugins: Vec<Arc<dyn Plugin>> = vec![Arc::new(plugin)];
    plugins.extend(NAMES.iter().map(|name| Arc::new(Attentive(name)) as Arc<dyn Plugin>));
    let env = ExecutionEnv::from_plugins(&plugins).unwrap();
    let state = StateStore::new();
    let phases = PhaseRuntime::new(state.clone()).unwrap();
    phases.install(&env).unwrap();
    let spec = Arc::new(AgentSpec::new("bench"));
    let identity = RunIdentity::new("t".into(), None, "r".into(), None, "bench".into(), RunOrigin::User);
    let step = || {
        for phase in STEP {
            let ctx = PhaseContext::new(phase, identity.clone(), Arc::clone(&spec))
                .with_snapshot(state.snapshot())
                .with_tools(Arc::clone(&tools));
            rt.block_on(phases.run_phase(&env, ctx)).unwrap();
        }
    };
    step();
    let mut group = c.benchmark_group("deferred");
    group.bench_function("a step of 20 plugins with 500 tools", |b| b.iter(step));
    let mut ctx = ToolCallContext::test_default();
    ctx.snapshot = state.snapshot();
    group.bench_function("search 500 tools", |b| {
        b.iter(|| {
            rt.block_on(ToolSearchTool.execute(json!({"query": "+create issue comment"}), &ctx)).unwrap()
        });
    });
    group.finish();
}

/// A conversation of about 200,000 tokens: what a request of it costs, and a compaction besides the model.
fn window(c: &mut Criterion) {
    let messages = sample::messages(3_000);
    let tokens = aye::context::estimate::messages_tokens(&messages);
    assert!((150_000..260_000).contains(&tokens), "{tokens} tokens");
    let history = History::from(messages.clone());
    let sizes = Sizes::of(&history);
    let limits = FitLimits { room: tokens / 2, recent: 10 };
    let mut group = c.benchmark_group("context");
    group.bench_function("measure 200k tokens", |b| b.iter(|| Sizes::of(&history)));
    group.bench_function("fit 200k tokens", |b| b.iter(|| fit(&sizes, 0, Marks::default(), limits)));
    group.bench_function("one more message and its request", |b| {
        b.iter_batched_ref(
            || {
                (
                    Sizes::of(&History::from(messages[..2_999].to_vec())),
                    fit(&sizes, 0, Marks::default(), limits).marks,
                )
            },
            |(sizes, marks)| {
                sizes.take_in(&history);
                let fit = fit(sizes, 0, *marks, limits);
                assemble(&history, sizes, &fit, None, &[], |_| None)
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("a request of a short conversation", |b| {
        let short = History::from(messages[..12].to_vec());
        let sizes = Sizes::of(&short);
        b.iter(|| {
            let fit = fit(&sizes, 0, Marks::default(), limits);
            assemble(&short, &sizes, &fit, None, &[], |_| None)
        });
    });
    let (policy, config) = (ContextWindowPolicy::default(), CompactionConfig::default());
    group.bench_function("compaction of 200k tokens", |b| {
        b.iter(|| {
            let sizes = Sizes::of(&history);
            let plan = plan(&sizes, (0, 0, 0), &policy, &config, usize::MAX).unwrap();
            let asked = prompt(&history.tail()[plan.from..plan.upto], None, None, &config, 200_000);
            (accept(&plan, 900, &config).unwrap(), asked)
        });
    });
    group.finish();
}

criterion_group!(
    benches, window, markdown, open, long, inbox, rules, machine, store, mailbox, phase, deferred
);
criterion_main!(benches);
