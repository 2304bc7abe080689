use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

struct World(tempfile::TempDir);

impl World {
    fn new(files: &[(&str, &str)]) -> Self {
        let world = Self(tempfile::tempdir().expect("a temporary folder"));
        for (path, text) in files {
            world.put(path, text);
        }
        world
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().expect("a real path").join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("a folder");
        fs::write(path, text).expect("writes");
    }

    fn store(&self) -> TrustStore {
        TrustStore::at(self.path("state/trust.json"))
    }

    fn assess(&self, folder: &str) -> TrustAssessment {
        let folder = self.path(folder);
        TrustAssessment::of(&folder, &crate::repository_root(&folder)).expect("a folder")
    }

    fn is_trusted(&self, folder: &str) -> bool {
        self.store().is_trusted(&self.assess(folder)).expect("readable")
    }
}

#[test]
fn a_folder_without_anything_to_trust_is_not_asked_about() {
    let world = World::new(&[
        ("r/.git/HEAD", ""),
        ("r/AGENTS.md", "text"),
        (
            "r/.aye/config.toml",
            "permission_mode = \"plan\"\nmax_turns = 3\n[providers.x]\nbase_url = \"http://evil\"\n",
        ),
    ]);
    assert_eq!(world.assess("r").items, []);
    assert!(world.is_trusted("r"));
}

#[test]
fn hooks_are_shown_in_full_and_trusted_with_their_files() {
    let hooks = "[[hooks]]\nphase = \"run_start\"\ncommand = [\"sh\", \"tools/check.sh\", \"a\\u001bb\"]\n\
                 [[hooks]]\nphase = \"before_tool_execute\"\ntool = \"Bash\"\ncommand = [\"./x\"]\n\
                 domains = [\"a.example\", \"*.b\\u001b.example\"]\n";
    let world = World::new(&[
        ("r/.git/HEAD", ""),
        ("r/.aye/hooks.toml", hooks),
        ("r/tools/check.sh", "exit 0\n"),
        ("r/sub/.aye/hooks.toml", "not toml at all"),
    ]);
    let items = world.assess("r/sub").items;
    let summaries: Vec<_> = items.iter().map(|item| item.summary.as_str()).collect();
    assert_eq!(
        summaries,
        [
            "runs commands automatically (hooks):\n  run_start  sh tools/check.sh a^[b\n  \
             before_tool_execute Bash ./x (network: a.example, *.b^[.example)",
            "runs commands automatically (hooks): not toml at all",
        ]
    );
    assert!(items.iter().all(|item| item.starts));
    let trust = || world.store().trust(&world.assess("r")).expect("stored");
    trust();
    assert!(world.is_trusted("r"));
    for (path, text) in [
        ("r/tools/check.sh", "exit 1\n"),
        ("r/x", "new"),
        ("r/.aye/hooks.toml", "[[hooks]]\n"),
        ("r/.aye/hooks/lib.sh", "new"),
        ("r/.aye/hooks/lib.sh", "changed"),
    ] {
        world.put(path, text);
        assert!(!world.is_trusted("r"), "{path}");
        trust();
        assert!(world.is_trusted("r"), "{path}");
    }
}

#[test]
fn everything_that_grants_or_runs_is_listed_with_its_content() {
    let world = World::new(&[
        ("r/.git/HEAD", ""),
        ("r/.aye/permissions.yaml", "# ours\nrules:\n  - {tool: 'Bash(*)', behavior: allow}\n"),
        ("r/.aye/config.toml", "model = \"big\"\nmax_turns = 0\n[mcp_servers.x]\ncommand = \"sh\"\n"),
        ("r/.mcp.json", "{\"mcpServers\": {\"x\": {\"command\": \"sh\"}}}"),
        ("r/.aye/reminders.json", "{\"rules\": []}"),
        ("r/.claude/skills/s/SKILL.md", "---\nname: s\ndescription: d\nallowed-tools: Bash(rm *)\n---\n"),
        ("r/.claude/skills/s/scripts/go.sh", "echo"),
        ("r/sub/.agents/skills/t/SKILL.md", "---\nname: t\ndescription: d\n---\n"),
        (
            "r/sub/.agents/skills/u/SKILL.md",
            "---\nname: u\ndescription: d\n\"allowed\\u002dtools\": Bash\n---\n",
        ),
    ]);
    let summaries: Vec<_> = world.assess("r").items.into_iter().map(|item| item.summary).collect();
    assert_eq!(summaries.len(), 5, "{summaries:?}");
    assert_eq!(summaries[0], "permission rules: rules:; - {tool: 'Bash(*)', behavior: allow}");
    assert_eq!(summaries[1], "adds reminders for the model after tool calls: {\"rules\": []}");
    assert_eq!(summaries[2], "settings: mcp_servers.x.command = \"sh\", max_turns = 0, model = \"big\"");
    assert_eq!(summaries[3], "starts programs or connects to servers (MCP):\n  x: starts sh");
    assert_eq!(summaries[4], "skill s, with 1 script, requests permission for: Bash(rm *)");
    assert_eq!(world.assess("r/sub").items.len(), 6);
}

#[test]
fn a_check_of_the_project_is_a_program_that_it_starts() {
    let world = World::new(&[
        ("r/.git/HEAD", ""),
        ("r/.aye/config.toml", "model = \"m\"\ntheme = \"x\"\n[checks]\n\"*.rs\" = \"make\"\n"),
    ]);
    let items = world.assess("r").items;
    assert_eq!(items.len(), 1);
    assert!(items[0].starts && items[0].summary.starts_with("settings: checks"), "{items:?}");
    assert!(items[0].summary.contains("*.rs") && items[0].summary.contains("make"), "{items:?}");
}

#[test]
fn trust_lasts_until_something_changes() {
    let world = World::new(&[
        ("r/.git/HEAD", ""),
        ("r/.aye/permissions.yaml", "rules: []"),
        ("r/.agents/skills/s/SKILL.md", "x"),
    ]);
    assert_eq!(world.assess("r").items.len(), 1, "a skill without tools grants nothing");
    assert!(!world.is_trusted("r"));
    world.store().trust(&world.assess("r")).expect("stored");
    assert!(world.is_trusted("r"));
    let mode = fs::metadata(world.path("state/trust.json")).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    world.put("r/.aye/permissions.yaml", "rules: [more]");
    let missing = world.store().missing(&world.assess("r")).expect("readable");
    assert_eq!(missing.len(), 1);
    assert!(missing[0].path.ends_with("permissions.yaml"));
    world.store().trust(&world.assess("r")).expect("stored");
    world.put("r/.agents/skills/s/scripts/x.sh", "echo");
    assert!(!world.is_trusted("r"), "a new script asks again");
    world.store().trust(&world.assess("r")).expect("stored");
    assert!(world.store().distrust(&world.path("r")).expect("stored"));
    assert!(!world.store().distrust(&world.path("r")).expect("stored"));
    assert!(!world.is_trusted("r"));
}

#[test]
fn trust_covers_a_repository_and_not_a_nested_one() {
    let world = World::new(&[
        ("r/.git/HEAD", ""),
        ("r/.aye/permissions.yaml", "rules: []"),
        ("r/sub/file", ""),
        ("r/nested/.git/HEAD", ""),
        ("r/nested/.aye/permissions.yaml", "rules: []"),
    ]);
    world.store().trust(&world.assess("r")).expect("stored");
    assert!(world.is_trusted("r/sub"));
    assert!(!world.is_trusted("r/nested"));
    world.put("r/sub/.aye/permissions.yaml", "rules: []");
    assert!(!world.is_trusted("r/sub"), "an absent part was not trusted");
}

/// Row PA037: a `.git` file pointing at a trusted repository does not inherit its trust.
#[test]
fn a_git_file_pointing_at_a_trusted_repository_is_not_trusted() {
    let world = World::new(&[("good/.git/HEAD", ""), ("good/.aye/permissions.yaml", "rules: []")]);
    world.store().trust(&world.assess("good")).expect("stored");
    let pointer = format!("gitdir: {}", world.path("good/.git").display());
    world.put("evil/.git", &pointer);
    world.put("evil/.aye/permissions.yaml", "rules: []");
    world.put("good/inner/.git", &pointer);
    world.put("good/inner/.aye/permissions.yaml", "rules: []");
    assert!(!world.is_trusted("evil"));
    assert!(!world.is_trusted("good/inner"));
    symlink(world.path("good"), world.path("link")).expect("a link");
    assert!(world.is_trusted("link"), "the real folder counts, not the name used to open it");
}

#[test]
fn a_linked_skill_is_found() {
    let world = World::new(&[
        ("r/.git/HEAD", ""),
        ("r/.agents/skills/a/b/c/d/e/f/SKILL.md", "x"),
        ("r/.agents/skills/a/b/c/d/e/f/scripts/x.sh", "x"),
    ]);
    assert_eq!(world.assess("r").items.len(), 0);
    symlink("a/b/c/d/e", world.path("r/.agents/skills/short")).expect("a link");
    assert_eq!(world.assess("r").items.len(), 1);
    let notice = TrustAssessment::ignored_notice(&world.assess("r").items).expect("a line");
    assert!(notice.contains("--trust") && notice.ends_with("/a/b/c/d/e/f"), "{notice}");
    assert_eq!(TrustAssessment::ignored_notice(&[]), None);
}

#[test]
fn a_broken_list_is_an_error_and_never_trust() {
    let world = World::new(&[("r/.git/HEAD", ""), ("r/.aye/permissions.yaml", "rules: []")]);
    for text in [
        "",
        "{",
        "[]",
        "{\"format\":1}",
        "{\"format\":2,\"folders\":{}}",
        "{\"format\":1,\"folders\":{},\"x\":1}",
        "{\"a\":1,}",
    ] {
        world.put("state/trust.json", text);
        assert!(world.store().is_trusted(&world.assess("r")).is_err(), "{text}");
        assert!(world.store().trust(&world.assess("r")).is_err(), "{text}: existing text is not discarded");
    }
    let why = world.store().folders().expect_err("broken").to_string();
    assert!(why.contains("trust.json") && why.contains("line 1 column"), "{why}");
}

#[test]
fn an_agent_with_more_than_a_description_needs_trust() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let root = dir.path().canonicalize().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("written");
    };
    write(
        ".claude/agents/plain.md",
        "---\nname: plain\ndescription: x\ntools: Read\n---\nThe model of permission.\n",
    );
    write(".aye/agents/deep/loose.md", "---\ndescription: x\npermission:\n  default_behavior: allow\n---\n");
    write(".agents/agents/other.md", "---\nmodel: a/b\n---\n");
    write(".agents/agents/spelled.md", "---\n\"permi\\x73sion\": {}\n---\n");
    let assessment = TrustAssessment::of(&root, &root).expect("the assessment succeeds");
    let lines: Vec<&str> = assessment.items.iter().map(|item| item.summary.as_str()).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0], "agent other: model: a/b");
    assert!(lines[1].starts_with("agent spelled: "), "{lines:?}");
    assert_eq!(lines[2], "agent loose: description: x; permission:; default_behavior: allow");
    assert!(assessment.items.iter().all(|item| !item.hash.is_empty()));
}
