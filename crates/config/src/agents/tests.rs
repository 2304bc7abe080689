use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;
use aye_core::contract::executor::ToolExecutionMode;

/// Parses one agent file with this text.
fn read(text: &str, form: AgentDialect) -> (Option<ParsedAgent>, Vec<String>) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("helper.md");
    fs::write(&path, text).expect("written");
    let (agent, issues) = read_file(&path, form, AgentScope::User);
    let prefix = format!("{}/", dir.path().display());
    let mark = |issue: &AgentIssue| if issue.severity == Severity::Error { "error" } else { "warning" };
    let reported = issues.iter().map(|i| format!("{}: {i}", mark(i)).replace(&prefix, "")).collect();
    (agent, reported)
}

fn good(text: &str) -> ParsedAgent {
    let (agent, reported) = read(text, AgentDialect::Own);
    assert_eq!(reported, [""; 0]);
    agent.expect("an agent")
}

#[test]
fn a_url_alone_is_an_a2a_endpoint() {
    let endpoint =
        good("---\nendpoint: https://agents.example:8443/x\n---\n").spec.endpoint.expect("an endpoint");
    assert_eq!((endpoint.backend.as_str(), endpoint.host()), ("a2a", "agents.example:8443"));
    assert_eq!(endpoint.timeout_ms, 300_000);
}

#[test]
fn every_field_of_an_agent_file_reaches_the_spec() {
    let agent = good(
        "---\nname: reviewer\ndescription: Looks at changes.\nmodel: openai/gpt-x\nmax_rounds: 7\n\
         max_continuation_retries: 1\ncontext_policy: {max_context_tokens: 1000}\nplugin_ids: [stop]\n\
         active_hook_filter: stop, skills\nallowed_tools: Read, Bash(git *) Grep\nexcluded_tools: [Write]\n\
         delegates: [researcher]\nhandoff: writer, tester\ntool_execution: sequential\n\
         endpoint: {backend: a2a, base_url: 'http://x'}\npermission:\n  rules: [{tool: Write, behavior: deny}]\n\
         sections:\n  stop:\n    conditions: []\n---\n\nYou review.\n\nCarefully.\n",
    );
    let spec = &agent.spec;
    assert_eq!(spec.id, "reviewer");
    assert_eq!(spec.description.as_deref(), Some("Looks at changes."));
    assert_eq!(spec.model, "openai/gpt-x");
    assert_eq!((spec.max_rounds, spec.max_continuation_retries), (7, 1));
    assert_eq!(spec.context_policy.as_ref().map(|p| p.max_context_tokens), Some(1000));
    assert_eq!(spec.plugin_ids, ["stop"]);
    assert!(spec.active_hook_filter.contains("skills") && spec.active_hook_filter.len() == 2);
    assert_eq!(spec.allowed_tools.as_deref(), Some(&["Read", "Bash(git *)", "Grep"].map(String::from)[..]));
    assert_eq!(spec.excluded_tools.as_deref(), Some(&["Write".to_owned()][..]));
    assert_eq!(spec.delegates, ["researcher"]);
    assert_eq!(spec.tool_execution, ToolExecutionMode::Sequential);
    assert_eq!(spec.endpoint.as_ref().map(|e| e.base_url.as_str()), Some("http://x"));
    assert_eq!(spec.sections["handoff"], json!({"agents": ["writer", "tester"]}));
    assert_eq!(spec.sections["permission"], json!({"rules": [{"tool": "Write", "behavior": "deny"}]}));
    assert_eq!(spec.sections["stop"], json!({"conditions": []}));
    assert_eq!(spec.system_prompt, "You review.\n\nCarefully.");
    assert!(agent.sets("max_rounds") && !agent.sets("registry"));
    let line = |pointer: &str| agent.place(pointer).rsplit(':').next().unwrap_or_default().to_owned();
    assert_eq!(line("/model"), "4");
    assert_eq!(line("/sections/stop/conditions/3"), "20", "the nearest part that is found");
    assert_eq!(line("/permission/rules"), "17");
}

#[test]
fn files_of_other_programs_keep_their_meaning() {
    let (agent, reported) = read(
        "---\nname: code-reviewer\ndescription: Use it: after each change\ntools: Read, Grep, Bash(git diff:*)\n\
         disallowedTools: Write\nmodel: inherit\ncolor: blue\npermissionMode: bypassPermissions\n---\nYou review.\n",
        AgentDialect::Shared,
    );
    assert_eq!(
        reported,
        [
            "warning: helper.md:3: a value with `: ` in it was read as text; put it in quotes",
            "warning: helper.md:8: `permissionMode` has no effect in aye and is ignored",
        ]
    );
    let agent = agent.expect("an agent");
    assert_eq!(agent.spec.model, "", "the user's");
    assert_eq!(agent.spec.allowed_tools.as_ref().map(Vec::len), Some(3));
    assert_eq!(agent.spec.excluded_tools.as_deref(), Some(&["Write".to_owned()][..]));
    assert!(!agent.insists_on_model);
}

#[test]
fn omitted_fields_have_defaults() {
    let agent = good("---\ndescription: Helps.\ntools:\n---\n");
    assert_eq!(agent.spec.id, "helper", "the name of the file");
    assert_eq!((agent.spec.model.as_str(), agent.spec.system_prompt.as_str()), ("", ""));
    assert_eq!(agent.spec.allowed_tools, None, "an omitted list means all tools");
    assert_eq!(agent.spec.max_rounds, 16);
    let none = good("---\nallowed_tools: []\n---\n");
    assert_eq!(none.spec.allowed_tools, Some(Vec::new()), "an empty list allows no tool");
}

#[test]
fn each_mistake_is_reported_with_its_line() {
    let cases = [
        ("You review.", "error: helper.md:1: does not start with front matter; the first line must be `---`"),
        ("---\nname: a\n", "error: helper.md:1: the front matter is not closed; add a line `---` after it"),
        ("---\nmodle: x\n---\n", "error: helper.md:2: unknown field `modle`; did you mean `model`?"),
        (
            "---\nmax_rounds: many\n---\n",
            "error: helper.md:2: `max_rounds` must be a whole number, not the string `many`",
        ),
        (
            "---\nmax_rounds: -1\n---\n",
            "error: helper.md:2: `max_rounds` must be a whole number, not the number -1",
        ),
        ("---\nname: [a]\n---\n", "error: helper.md:2: `name` must be a string, not a list"),
        (
            "---\nname: ../x\n---\n",
            "error: helper.md:2: invalid agent name `../x`; expected 1 to 48 letters, digits, `-` and `_`",
        ),
        ("---\nid: aye\n---\n", "error: helper.md:1: the name `aye` is reserved for the built-in agent"),
        (
            "---\ntools: Read\nallowed-tools: Write\n---\n",
            "error: helper.md:3: `allowed-tools` repeats `allowed_tools`",
        ),
        (
            "---\nallowed_tools: {a: b}\n---\n",
            "error: helper.md:2: `allowed_tools` must be a list of strings such as [a, b], not a map",
        ),
        ("---\nsections: []\n---\n", "error: helper.md:2: `sections` must be a map of sections, not a list"),
        (
            "---\npermission: {}\nsections: {permission: {}}\n---\n",
            "error: helper.md:3: duplicate section `permission`",
        ),
        (
            "---\nsystem_prompt: hi\n---\n",
            "error: helper.md:2: the prompt of a file belongs below its front matter; move it there",
        ),
        (
            "---\nhitl: never\n---\n",
            "error: helper.md:2: invalid `hitl`: unknown variant `never`, expected one of `auto`, `blocking`, `async`",
        ),
        (
            "---\ntool_execution: fast\n---\n",
            "error: helper.md:2: invalid `tool_execution`: unknown variant `fast`, expected one of `sequential`, `parallel_batch_approval`, `parallel_streaming`",
        ),
        (
            "---\nendpoint: {backend: a2a}\n---\n",
            "error: helper.md:2: invalid `endpoint`: missing field `base_url`",
        ),
        (
            "---\ncontext_policy: {max_tokens: 1}\n---\n",
            "error: helper.md:2: invalid `context_policy`: unknown field `max_tokens`",
        ),
        ("---\nname: a\nname: b\n---\n", "error: helper.md:3: invalid YAML in the front matter: "),
        (
            "---\nmodel: \"a\\u0007b\"\n---\n",
            "error: helper.md:2: `model` contains a control character; remove it",
        ),
    ];
    for (text, sentence) in cases {
        let (agent, reported) = read(text, AgentDialect::Own);
        assert!(agent.is_none(), "{text}");
        assert!(reported.iter().any(|reported| reported.starts_with(sentence)), "{text}\n{reported:#?}");
    }
    let (agent, reported) = read("---\nexcluded_tools: 'Bash(a'\n---\n", AgentDialect::Own);
    assert!(agent.is_none());
    assert!(
        reported[0].starts_with("error: helper.md:2: `Bash(a` in `excluded_tools` is not a tool pattern: "),
        "{reported:?}"
    );
}

#[test]
fn a_settings_table_has_the_same_fields() {
    let places: SourceLocator = Arc::new(|pointer| format!("config.toml{pointer}"));
    let table = json!({"model": "m", "system_prompt": "You help.", "tools": ["Read"]});
    let map = table.as_object().expect("a map");
    let (agent, reported) =
        read_fields(map, "helper", None, AgentDialect::Own, AgentScope::Settings, &places);
    assert_eq!(reported, []);
    let agent = agent.expect("an agent");
    assert_eq!((agent.spec.id.as_str(), agent.spec.system_prompt.as_str()), ("helper", "You help."));
    let wrong = json!({"max_rounds": "x"});
    let map = wrong.as_object().expect("a map");
    let (agent, reported) =
        read_fields(map, "helper", None, AgentDialect::Own, AgentScope::Settings, &places);
    assert!(agent.is_none());
    assert_eq!(reported[0].place, "config.toml/max_rounds");
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("written");
}

fn found(root: &Path, agents: &ParsedAgents) -> Vec<String> {
    let place = |agent: &ParsedAgent| agent.place("").replace(&format!("{}/", root.display()), "");
    agents
        .found
        .iter()
        .map(|agent| {
            format!(
                "{} {}{}",
                agent.spec.id,
                place(agent),
                if agent.hidden_by.is_some() { " hidden" } else { "" }
            )
        })
        .collect()
}

#[test]
fn the_nearest_root_wins_and_shadowing_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().canonicalize().expect("a folder");
    let text = "---\ndescription: x\n---\n";
    for name in [
        "repo/sub/.claude/agents/a.md",
        "repo/sub/.aye/agents/a.md",
        "repo/.agents/agents/a.md",
        "repo/.agents/agents/deep/er/b.md",
        "config/agents/a.md",
        "config/agents/README.md",
        "config/agents/note.txt",
        "home/.claude/agents/c.md",
        "home/.agents/agents/c.md",
        "outside/.agents/agents/never.md",
    ] {
        write(&root, name, text);
    }
    let mut roots = project_roots(&root.join("repo/sub"), &root.join("repo"));
    roots.extend(user_roots(&root.join("config"), Some(&root.join("home"))));
    let mut agents = ParsedAgents::default();
    discover(&roots, &mut agents);
    assert_eq!(
        found(&root, &agents),
        [
            "a repo/sub/.aye/agents/a.md",
            "a repo/sub/.claude/agents/a.md hidden",
            "a repo/.agents/agents/a.md hidden",
            "b repo/.agents/agents/deep/er/b.md",
            "a config/agents/a.md hidden",
            "c home/.claude/agents/c.md",
            "c home/.agents/agents/c.md hidden",
        ]
    );
    assert_eq!(agents.issues.len(), 4, "{:#?}", agents.issues);
    assert!(
        agents.issues[0].to_string().contains("the agent `a` is not used, because "),
        "{}",
        agents.issues[0]
    );
    // An invalid agent reveals the next one of its name.
    let issue = agents.get("a").expect("`a` exists").issue(Severity::Error, "", "no model");
    agents.refuse("a", issue);
    let used = agents.get("a").expect("another `a`").place("");
    assert!(used.ends_with("repo/sub/.claude/agents/a.md"), "{used}");
}

#[test]
fn project_links_stay_inside_and_one_file_is_one_agent() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().canonicalize().expect("a folder");
    write(&root, "secret/x.md", "---\ndescription: x\n---\n");
    write(&root, "repo/.agents/agents/a.md", "---\ndescription: x\n---\n");
    std::os::unix::fs::symlink(root.join("secret/x.md"), root.join("repo/.agents/agents/x.md"))
        .expect("a link");
    std::os::unix::fs::symlink(root.join("secret"), root.join("repo/.agents/agents/dir")).expect("a link");
    fs::create_dir_all(root.join("repo/.claude")).expect("a folder");
    std::os::unix::fs::symlink(root.join("repo/.agents/agents"), root.join("repo/.claude/agents"))
        .expect("a link");
    let mut agents = ParsedAgents::default();
    discover(&project_roots(&root.join("repo"), &root.join("repo")), &mut agents);
    assert_eq!(found(&root, &agents), ["a repo/.agents/agents/a.md"]);
    assert!(
        agents.issues.iter().all(|i| i.message.contains("links out of the project")),
        "{:#?}",
        agents.issues
    );
    assert!(agents.issues.len() >= 2);
}

#[test]
fn links_of_a_project_lead_to_no_file_that_rules_restrict() {
    let dir = tempfile::tempdir().expect("a folder");
    let repo = dir.path().canonicalize().expect("a real path");
    let folder = repo.join(".agents/agents");
    fs::create_dir_all(&folder).expect("made");
    fs::create_dir(repo.join("notes")).expect("made");
    fs::write(folder.join("own.md"), "---\ndescription: Own\n---\nx\n").expect("written");
    fs::write(repo.join("notes/private.md"), "---\ndescription: Private\n---\nx\n").expect("written");
    std::os::unix::fs::symlink("../../notes/private.md", folder.join("leak.md")).expect("linked");
    // A root that leads elsewhere is no better.
    fs::create_dir(repo.join(".claude")).expect("made");
    std::os::unix::fs::symlink("../notes", repo.join(".claude/agents")).expect("linked");
    let names = |may_follow: &dyn Fn(&Path) -> bool| -> Vec<String> {
        let mut agents = ParsedAgents::default();
        discover_following(&project_roots(&repo, &repo), &mut agents, may_follow);
        agents.used().map(|agent| agent.spec.id.clone()).collect()
    };
    assert_eq!(names(&|real| !real.starts_with(repo.join("notes"))), ["own"]);
    assert_eq!(names(&|_| true).len(), 2);
}

proptest::proptest! {
    /// Any file content parses to an agent or an error, without a panic.
    #[test]
    fn any_text_parses_or_is_an_error(text in "(---\n)?([a-z_]{1,12}: ?[\\PC\n]{0,20}\n?){0,5}(---\n)?\\PC{0,20}") {
        let (agent, reported) = read(&text, AgentDialect::Own);
        proptest::prop_assert!(agent.is_some() || reported.iter().any(|s| s.starts_with("error: ")), "{reported:?}");
    }
}
