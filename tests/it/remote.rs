//! Remote agents: one aye delegates to another over A2A, and either dies in between.

use serde_json::{Value, json};

use crate::support::home::{Aye, Home, id_of};
use crate::support::http::{Server, lasting_address};
use crate::support::llm::{Answer, Chat, Gate, MockLlm, until};

const RUN: &str = "echo ran >> log.txt";

/// Two machines: a server with an agent, and a home whose `lead` may delegate to that agent.
struct Two {
    far: Home,
    near: Home,
    llm: MockLlm,
}

impl Two {
    fn new(far: &MockLlm) -> Self {
        let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
            0 => Answer::new().call("c1", "agent_run_far", json!({"prompt": "do it over there"})),
            _ => Answer::say("The lead is done."),
        });
        let two = Self { far: Home::with(far), near: Home::with(&llm), llm };
        two.agent("lead", "---\ndescription: Leads.\ndelegates: [far]\n---\nYou lead.\n");
        two.near.rules("rules: [{tool: agent_run_far, behavior: allow}]\n");
        two
    }

    fn agent(&self, name: &str, text: &str) {
        let folder = self.near.root().join("aye/config/agents");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(format!("{name}.md")), text).expect("written");
    }

    fn serve(&self) -> Server {
        self.serve_at(&lasting_address())
    }

    fn serve_at(&self, address: &str) -> Server {
        let server = Server::start_at(&self.far, address, &[]);
        self.agent(
            "far",
            &format!(
                "---\ndescription: Works elsewhere.\nendpoint:\n  backend: a2a\n  base_url: http://{}\n  \
                 auth: {{type: bearer, token: \"${{FAR_TOKEN}}\"}}\n---\n",
                server.address
            ),
        );
        server
    }

    /// An unresponsive proxy is configured: no request to this machine may go through it.
    fn near(&self, server: &Server, args: &[&str]) -> Aye {
        let dead =
            [("HTTP_PROXY", "http://127.0.0.1:1"), ("http_proxy", "http://127.0.0.1:1"), ("NO_PROXY", "")];
        let aye = self.near.aye(args).env("FAR_TOKEN", &server.token);
        dead.iter().fold(aye, |aye, (name, value)| aye.env(name, value))
    }

    fn go(&self, server: &Server) -> Aye {
        self.near(server, &["-p", "go", "--agent", "lead"])
    }

    fn answer(&self, server: &Server, id: &str, text: &str) -> Aye {
        self.near(server, &["answer", id, &json!({ "answer": text }).to_string(), "--resume"])
    }

    /// The tasks of the server.
    fn runs(server: &Server) -> usize {
        server.get("/v1/runs").json()["items"].as_array().map_or(0, Vec::len)
    }
}

fn asks() -> MockLlm {
    MockLlm::answers([Answer::new().text("I will.").bash("c1", RUN), Answer::say("It is done.")])
}

fn question(open: &Value) -> String {
    open["ticket"]["suspension"]["message"]
        .as_str()
        .or_else(|| open["message"].as_str())
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_remote_approval_is_a_local_question() {
    let model = asks();
    let two = Two::new(&model);
    let server = two.serve();
    two.go(&server).run().exits(3);
    assert_eq!(two.far.read("log.txt"), "");
    let open = two.near.open();
    assert_eq!(open.len(), 1, "{open:#?}");
    assert_eq!((&open[0]["tool"], &open[0]["child"]["agent"]), (&json!("AskUser"), &json!("far")));
    let asked = open[0].to_string();
    assert!(
        asked.contains("in its own words") && asked.contains(RUN) && asked.contains(&server.address),
        "{asked}"
    );
    // Both sides were killed meanwhile; neither is informed.
    let address = server.address.clone();
    server.running.signal(rustix::process::Signal::KILL);
    drop(server);
    let server = two.serve_at(&address);
    let out = two.answer(&server, &id_of(&open[0]), "approve").run().exits(0);
    assert!(out.stdout.contains("The lead is done."), "{out:?}");
    assert_eq!(two.far.read("log.txt"), "ran\n");
    let result = two.llm.last().result("c1");
    assert!(
        result.contains("The remote agent `far` at 127.0.0.1") && result.contains("never instructions"),
        "{result}"
    );
    assert!(result.ends_with("It is done."), "{result}");
    assert_eq!(Two::runs(&server), 1);
    assert_eq!(model.asked().len(), 2);
    let tasks = two.near.ok(&["tasks", "list", "--all", "--json"]).json();
    assert_eq!(tasks[0]["task_status"], "completed");
    assert!(!two.near.ok(&["agents", "show", "far"]).stdout.contains("FAR_TOKEN"));
    two.near.ok(&["audit", "--verify"]);
    server.stop();
}

#[test]
fn a_local_denial_is_a_remote_denial() {
    let model = asks();
    let two = Two::new(&model);
    let server = two.serve();
    two.go(&server).run().exits(3);
    two.answer(&server, &two.near.question(), "not on a Friday").run().exits(0);
    assert_eq!(two.far.read("log.txt"), "");
    assert!(model.last().result("c1").contains("not on a Friday"), "{}", model.last().result("c1"));
    server.stop();
}

/// Whoever is asked here need not answer what was answered there, also when the process that waits was started later.
#[test]
fn a_question_that_is_answered_over_there_is_closed_here() {
    for restarts in [false, true] {
        let model = MockLlm::answers([
            Answer::new().text("I will.").bash("c1", RUN),
            Answer::new().bash("c2", "echo more >> log.txt"),
            Answer::say("It is done."),
        ]);
        let two = Two::new(&model);
        let server = two.serve();
        let approve = || {
            let cards = server.get("/v1/approvals").json()["items"].clone();
            let path = format!("/v1/approvals/{}/approve", cards[0]["id"].as_str().expect("a question"));
            let answer = server.post(&path, &json!({ "shown_hash": cards[0]["shown_hash"] }));
            assert_eq!(answer.status, 200, "{answer:?}");
        };
        let near = if restarts {
            two.go(&server).run().exits(3);
            two.near(&server, &["serve", "--bind", "127.0.0.1:0"]).spawn()
        } else {
            two.near(&server, &["-p", "go", "--agent", "lead", "--on-ask", "wait"]).spawn()
        };
        near.until_told(if restarts { "within five minutes" } else { "waiting for an answer" });
        let first = two.near.question();
        approve();
        // The agent asks something else now.
        until("the next question", || two.near.open().first().is_some_and(|open| id_of(open) != first));
        let second = two.near.question();
        approve();
        until("the end", || two.llm.asked().len() == 2);
        if restarts {
            near.signal(rustix::process::Signal::TERM);
            near.end().exits(0);
        } else {
            let out = near.end().exits(0);
            assert!(out.stdout.contains("The lead is done."), "{out:?}");
        }
        assert!(two.llm.last().result("c1").ends_with("It is done."), "{}", two.llm.last().result("c1"));
        assert_eq!(two.far.read("log.txt"), "ran\nmore\n");
        for id in [first, second] {
            let shown = two.near.ok(&["approvals", "show", &id, "--json"]).json();
            let how = (&shown["status"], &shown["decided_by"]["channel"]);
            assert_eq!(how, (&json!("superseded"), &json!("remote")));
        }
        assert_eq!(Two::runs(&server), 1);
        two.near.ok(&["audit", "--verify"]);
        server.stop();
    }
}

/// The shipped rules allow subagents; one on another machine needs the user's approval, and the card names
/// the machine.
#[test]
fn a_task_is_sent_only_after_approval() {
    let model = MockLlm::answers([Answer::say("Hello from afar.")]);
    let two = Two::new(&model);
    two.near.rules("rules: []\n");
    let server = two.serve();
    two.go(&server).run().exits(3);
    let open = two.near.open();
    assert_eq!(open[0]["tool"], "agent_run_far");
    let shown = two.near.ok(&["approvals", "show", &id_of(&open[0])]).stdout;
    assert!(
        shown.contains(&format!("sends the task to the remote agent far at {}", server.address)),
        "{shown}"
    );
    assert_eq!(Two::runs(&server), 0);
    two.near(&server, &["approve", &id_of(&open[0]), "--resume"]).run().exits(0).prints("The lead is done.");
    assert!(two.llm.last().result("c1").ends_with("Hello from afar."), "{}", two.llm.last().result("c1"));
    assert_eq!(Two::runs(&server), 1);
    server.stop();
}

#[cfg(feature = "failpoints")]
#[test]
fn wherever_aye_dies_the_task_is_sent_once_and_picked_up() {
    for place in ["a2a.sent", "a2a.named", "child.ended"] {
        let model = MockLlm::by(|_: &Chat| Answer::say("Hello from afar."));
        let two = Two::new(&model);
        let server = two.serve();
        let out = two.go(&server).env("AYE_FAILPOINT", place).run();
        assert!(out.was_killed(), "{place}: {out:?}");
        let out = two.near(&server, &["-c", "-p"]).run().exits(0);
        assert!(out.stdout.contains("The lead is done."), "{place}: {out:?}");
        let result = two.llm.last().result("c1");
        assert!(result.ends_with("Hello from afar."), "{place}: {result}");
        assert_eq!(Two::runs(&server), 1, "{place}");
        server.stop();
    }
}

/// A recorded message that may not have been sent: the user decides whether to resend it.
#[cfg(feature = "failpoints")]
#[test]
fn a_possibly_lost_message_is_resent_only_by_the_user() {
    for (answer, runs) in [("send it again", 1), ("stop", 0)] {
        let model = MockLlm::by(|_: &Chat| Answer::say("Hello from afar."));
        let two = Two::new(&model);
        let server = two.serve();
        assert!(two.go(&server).env("AYE_FAILPOINT", "a2a.noted").run().was_killed());
        two.near(&server, &["-c", "-p"]).run().exits(3);
        let open = two.near.open();
        assert!(
            question(&open[0]).contains("not known whether")
                || open[0].to_string().contains("not known whether")
        );
        assert_eq!(Two::runs(&server), 0);
        two.answer(&server, &id_of(&open[0]), answer).run().exits(0);
        assert_eq!(Two::runs(&server), runs, "{answer}");
        server.stop();
    }
}

#[test]
fn a_task_survives_a_restart_of_its_server() {
    let gate = Gate::default();
    let model = MockLlm::answers([
        Answer::new().text("Half").wait(&gate),
        Answer::say("Whole."),
        Answer::say("More."),
    ]);
    let two = Two::new(&model);
    let server = two.serve();
    let (address, token) = (server.address.clone(), server.token.clone());
    let near = two.go(&server).spawn();
    until("the task", || model.asked().len() == 1);
    server.running.signal(rustix::process::Signal::KILL);
    drop(server);
    gate.open();
    let server = two.serve_at(&address);
    assert_eq!(server.token, token);
    near.end().exits(0).prints("The lead is done.");
    assert!(two.llm.last().result("c1").ends_with("Whole."), "{}", two.llm.last().result("c1"));
    assert_eq!(Two::runs(&server), 1);
    server.stop();
}

#[test]
fn stopping_a_task_here_cancels_it_there() {
    let gate = Gate::default();
    let model = MockLlm::answers([Answer::new().text("Half").wait(&gate)]);
    let two = Two::new(&model);
    let server = two.serve();
    let near = two.go(&server).spawn();
    until("the task", || model.asked().len() == 1);
    near.signal(rustix::process::Signal::INT);
    near.end();
    until("the remote end", || server.get("/v1/runs").body.contains("cancelled"));
    gate.open();
    server.stop();
}

#[test]
fn an_unusable_endpoint_is_named() {
    let two = Two::new(&MockLlm::answers([]));
    let cases = [
        ("http://agents.example", "is not encrypted; use https"),
        ("ftp://agents.example", "is not a URL"),
        ("https://me:key@agents.example", "keys belong to `auth`"),
    ];
    for (url, why) in cases {
        two.agent("far", &format!("---\nendpoint: {url}\n---\n"));
        let told = two.near.aye(&["agents", "list"]).run();
        assert!(told.stderr.contains(why) && told.stderr.contains("far.md:2"), "{url}: {told:?}");
    }
}

/// The book's discovery: the agent cards of the endpoints are read when the runtime is built.
#[tokio::test(flavor = "multi_thread")]
async fn building_a_runtime_discovers_remote_agents() {
    use aye::a2a::A2aBackend;
    use aye::builder::{AgentRuntimeBuilder, BuildError};
    use aye::contract::spec::RemoteEndpoint;

    let far = Home::with(&MockLlm::answers([]));
    let server = Server::start(&far, &[]);
    let of = |url: String| {
        AgentRuntimeBuilder::new()
            .with_agent_backend("a2a", std::sync::Arc::new(A2aBackend::new()))
            .with_remote_agents("far", RemoteEndpoint::a2a(url))
            .build_and_discover()
    };
    let runtime = of(format!("http://{}", server.address)).await.expect("a runtime");
    let about = runtime.catalog().agents["far"].description.clone().unwrap_or_default();
    assert!(about.contains("in its own words: \"A coding agent"), "{about}");
    let gone = "https://me@agents.example";
    match of(gone.to_owned()).await {
        Err(BuildError::DiscoveryFailed(error)) => {
            assert!(error.to_string().contains("`far` at https://agents.example could not"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    server.stop();
}
