use crate::skills::skill::{LinkPolicy, MayFollow};
use crate::skills::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("has a parent")).expect("a folder");
    fs::write(path, text).expect("writes");
}

fn put_skill(root: &Path, name: &str) -> std::path::PathBuf {
    let dir = root.join(name);
    write(&dir.join("SKILL.md"), &format!("---\nname: {name}\ndescription: About {name}.\n---\n# {name}\n"));
    dir
}

fn names(skills: &[FsSkill]) -> Vec<&str> {
    skills.iter().map(|skill| skill.meta().name.as_str()).collect()
}

fn load(dir: &Path) -> (Option<FsSkill>, Vec<SkillIssue>) {
    FsSkill::load(dir, "s", &LinkPolicy::inside(dir.to_owned()))
}

fn temp() -> (TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().canonicalize().expect("a real path");
    (dir, path)
}

#[test]
fn skills_are_found_below_a_folder_and_broken_ones_reported() {
    let (_dir, root) = temp();
    put_skill(&root, "b");
    put_skill(&root, "a");
    put_skill(&root, "group/c");
    write(&root.join("broken/SKILL.md"), "---\nname: broken\n");
    let found = FsSkill::discover(&root).expect("readable");
    assert_eq!(names(&found.skills), ["a", "b"]);
    let found_warnings: Vec<_> = found.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(found_warnings.len(), 2, "{found_warnings:?}");
    assert_eq!(
        found_warnings[0],
        format!(
            "{}/broken/SKILL.md:1: the front matter is not closed; add a line `---` after it",
            root.display()
        )
    );
    assert!(FsSkill::discover(root.join("none")).is_err());
}

/// Row CO045: links to the outside and ignored folders yield nothing; the walk ends.
#[test]
fn the_walk_is_bounded_and_stays_inside() {
    let (_dir, root) = temp();
    let (_outside, outside) = temp();
    put_skill(&outside, "evil");
    let skills = root.join("skills");
    put_skill(&skills, "good");
    put_skill(&skills.join("node_modules"), "hidden");
    put_skill(&skills.join(".git"), "hidden");
    put_skill(&skills.join("a/b/c/d/e"), "deep");
    symlink("/", skills.join("root")).expect("a link");
    symlink(outside.join("evil"), skills.join("evil")).expect("a link");
    symlink(&skills, skills.join("loop")).expect("a link");
    symlink("nowhere", skills.join("dangling")).expect("a link");
    symlink("good", skills.join("again")).expect("a link");
    fs::create_dir(skills.join("filelink")).expect("a folder");
    symlink(outside.join("evil/SKILL.md"), skills.join("filelink/SKILL.md")).expect("a link");
    let found = FsSkill::discover(&skills).expect("readable");
    assert_eq!(names(&found.skills), ["good"]);
    let outside_warnings =
        found.warnings.iter().filter(|issue| issue.message.contains("links out of")).count();
    assert_eq!(outside_warnings, 3, "{:?}", found.warnings);
}

/// Row CO046: fixed precedence, one warning.
#[test]
fn the_first_root_wins_and_the_hidden_skill_is_reported_once() {
    let (_dir, root) = temp();
    let (repo, home) = (root.join("repo"), root.join("home"));
    let cwd = repo.join("sub");
    fs::create_dir_all(&cwd).expect("a folder");
    put_skill(&repo.join(".claude/skills"), "x");
    put_skill(&cwd.join(".aye/skills"), "x");
    put_skill(&home.join(".agents/skills"), "y");
    put_skill(&home.join("config/skills"), "y");
    symlink("../.claude/skills", repo.join(".aye")).ok();
    let mut roots = project_roots(&cwd, &repo);
    assert_eq!(roots.len(), 6);
    roots.extend(user_roots(&home.join("config"), Some(&home)));
    let discovery = discover(&roots, Vec::new());
    let rows = list_rows(&discovery);
    let used: Vec<_> =
        rows.iter().filter(|row| row.hidden_by.is_none()).map(|row| row.location.clone()).collect();
    assert_eq!(
        used,
        [cwd.join(".aye/skills/x").display().to_string(), home.join("config/skills/y").display().to_string()]
    );
    let hidden: Vec<_> = discovery.issues.iter().map(ToString::to_string).collect();
    assert_eq!(hidden.len(), 2, "{hidden:?}");
    assert!(hidden[0].contains("skill `x` is not used"));
    assert_eq!(discovery.registry().len(), 2);
}

#[test]
fn a_linked_root_counts_once_inside_the_project_and_never_outside() {
    let (_dir, root) = temp();
    let repo = root.join("repo");
    put_skill(&repo.join(".agents/skills"), "x");
    fs::create_dir_all(repo.join(".claude")).expect("a folder");
    symlink("../.agents/skills", repo.join(".claude/skills")).expect("a link");
    put_skill(&root.join("outside"), "evil");
    symlink(&root, repo.join(".aye")).expect("a link");
    fs::rename(root.join("outside"), root.join("skills")).expect("renames");
    let discovery = discover(&project_roots(&repo, &repo), Vec::new());
    assert_eq!(discovery.found.len(), 1);
    assert_eq!(discovery.issues.len(), 1, "{:?}", discovery.issues);
    assert!(discovery.issues[0].message.contains("links out of the project"));
}

/// Finds the skills of a root with its owner.
fn found(dir: &Path, scope: SkillScope, boundary: Option<&Path>) -> Discovery {
    let root = SkillRoot { dir: dir.to_owned(), scope, boundary: boundary.map(Path::to_owned) };
    discover(&[root], Vec::new())
}

#[test]
fn links_in_the_users_own_folders_are_followed() {
    let (_dir, root) = temp();
    let (skills, dotfiles) = (root.join("skills"), root.join("dotfiles"));
    fs::create_dir_all(skills.join("stowed")).expect("a folder");
    let whole = put_skill(&dotfiles, "whole");
    fs::rename(&whole, dotfiles.join("whole-v2")).expect("renamed");
    symlink("../dotfiles/whole-v2", skills.join("whole")).expect("a link");
    // Each file a link, as programs that keep dotfiles make them.
    let stowed = put_skill(&dotfiles, "stowed");
    write(&stowed.join("references/guide.md"), "guide");
    write(&stowed.join("scripts/run.sh"), "echo hi");
    write(&root.join("secret"), "secret");
    for name in ["SKILL.md", "references", "scripts"] {
        symlink(stowed.join(name), skills.join("stowed").join(name)).expect("a link");
    }
    symlink(root.join("secret"), skills.join("stowed/key.md")).expect("a link");
    let discovery = found(&skills, SkillScope::User, None);
    assert!(discovery.issues.is_empty(), "{:?}", discovery.issues);
    let registry = discovery.registry();
    assert!(registry.get("whole").is_some());
    let skill = registry.get("stowed").expect("found");
    assert_eq!(skill.instructions().expect("readable"), "# stowed\n");
    assert_eq!(skill.resource("references/guide.md", 99).expect("exists").bytes, b"guide");
    assert_eq!(skill.script("run.sh").expect("exists").path, "scripts/run.sh");
    assert!(matches!(skill.resource("scripts/run.sh", 9), Err(SkillError::IsAScript { .. })));
    assert!(
        matches!(skill.resource("key.md", 9), Err(SkillError::Escapes { .. })),
        "it is no file of the skill"
    );
    // Consent is for the content that is used, wherever it is kept.
    for file in ["scripts/run.sh", "references/guide.md", "SKILL.md"] {
        let before = skill.content_hash().expect("a hash");
        let text = fs::read_to_string(stowed.join(file)).expect("text");
        write(&stowed.join(file), &format!("{text}\nmore"));
        assert_ne!(before, skill.content_hash().expect("a hash"), "{file}");
    }
}

#[test]
fn links_in_a_repository_are_followed_inside_it() {
    let (_dir, root) = temp();
    let repo = root.join("repo");
    let skills = repo.join(".agents/skills");
    put_skill(&repo.join("shared"), "inner");
    put_skill(&root, "outer");
    fs::create_dir_all(skills.join("file")).expect("a folder");
    fs::create_dir_all(skills.join("away")).expect("a folder");
    symlink("../../shared/inner", skills.join("inner")).expect("a link");
    symlink(root.join("outer"), skills.join("outer")).expect("a link");
    write(&repo.join("shared/file.md"), "---\nname: file\ndescription: d\n---\nx");
    symlink("../../../shared/file.md", skills.join("file/SKILL.md")).expect("a link");
    symlink(root.join("outer/SKILL.md"), skills.join("away/SKILL.md")).expect("a link");
    symlink("../../../shared/file.md", skills.join("file/other.md")).expect("a link");
    let discovery = found(&skills, SkillScope::Project, Some(&repo));
    let registry = discovery.registry();
    let names: Vec<_> = registry.skills().iter().map(|skill| skill.meta().name.clone()).collect();
    assert_eq!(names, ["file", "inner"]);
    assert_eq!(discovery.issues.len(), 2, "{:?}", discovery.issues);
    assert!(discovery.issues.iter().all(|issue| issue.message.contains("links out of the project")));
    let file = registry.get("file").expect("found");
    assert!(matches!(file.resource("other.md", 9), Err(SkillError::Escapes { .. })));
    let before = file.content_hash().expect("a hash");
    write(&repo.join("shared/file.md"), "---\nname: file\ndescription: d\n---\ny");
    assert_ne!(before, file.content_hash().expect("a hash"), "the linked text counts");
}

#[test]
fn a_file_name_in_the_wrong_case_is_a_warning() {
    let (_dir, root) = temp();
    write(&root.join("a/skill.md"), "---\nname: a\ndescription: d\n---\nx");
    let discovery = found(&root, SkillScope::User, None);
    assert_eq!(discovery.registry().len(), 0);
    let issue = discovery.issues[0].to_string();
    assert!(
        issue.ends_with("a/skill.md: is not read: the file of a skill is called SKILL.md; rename it"),
        "{issue}"
    );
}

#[test]
fn resources_and_scripts_stay_inside_the_skill() {
    let (_dir, root) = temp();
    let dir = put_skill(&root, "s");
    write(&dir.join("references/guide.md"), "guide");
    write(&dir.join("scripts/run.sh"), "echo hi");
    write(&dir.join("scripts/data.txt"), "x");
    write(&dir.join("evil.sh"), "echo evil");
    write(&root.join("secret"), "secret");
    symlink("../../secret", dir.join("references/link")).expect("a link");
    symlink("../evil.sh", dir.join("scripts/evil.sh")).expect("a link");
    symlink("/etc", dir.join("etc")).expect("a link");
    let (skill, _) = load(&dir);
    let skill = skill.expect("loads");
    assert_eq!(skill.resource("references/guide.md", 3).expect("exists").bytes, b"gui");
    assert_eq!(skill.resource("./references//guide.md", 9).expect("exists").size, 5);
    for path in [
        "../secret",
        "/etc/passwd",
        "references/../../secret",
        "a\0b",
        "",
        ".",
        "references\\guide.md",
        "references/link",
        "etc/passwd",
    ] {
        let error = skill.resource(path, 10).expect_err(path);
        assert!(matches!(error, SkillError::Escapes { .. }), "{path}: {error}");
    }
    assert!(matches!(skill.resource("references", 1), Err(SkillError::NotFound { .. })));
    let script = skill.script("run.sh").expect("a script");
    assert_eq!(script, skill.script("scripts/run.sh").expect("a script"));
    assert_eq!(script.source, ScriptSource::File { file: dir.join("scripts/run.sh"), dir: dir.clone() });
    assert!(matches!(skill.script("references/guide.md"), Err(SkillError::NotAScript { .. })));
    assert!(matches!(skill.script("scripts/data.txt"), Err(SkillError::NoInterpreter { .. })));
    assert!(matches!(skill.script("scripts/evil.sh"), Err(SkillError::NotAScript { .. })));
    assert!(matches!(skill.script("scripts/../evil.sh"), Err(SkillError::Escapes { .. })));
    let why = skill.script("other.sh").expect_err("missing").to_string();
    assert!(why.contains("scripts/run.sh"), "{why}");
}

#[test]
fn the_hash_changes_with_any_file() {
    let (_dir, root) = temp();
    let dir = put_skill(&root, "s");
    write(&dir.join("scripts/run.sh"), "echo hi");
    let skill = load(&dir).0.expect("loads");
    let before = skill.content_hash().expect("a hash");
    assert_eq!(before, skill.content_hash().expect("a hash"));
    write(&dir.join("scripts/run.sh"), "echo ho");
    let after = skill.content_hash().expect("a hash");
    assert_ne!(before, after);
    write(&dir.join("scripts/.hidden"), "");
    assert_ne!(after, skill.content_hash().expect("a hash"));
}

#[test]
fn an_embedded_skill_has_the_same_parts() {
    let data = EmbeddedSkillData {
        skill_md: "---\nname: e\ndescription: d\nallowed-tools: Read\n---\nText $(touch pwn)\n",
        references: &[("guide.md", "guide")],
        assets: &[("logo.png", b"\x89PNG")],
    };
    let skill = EmbeddedSkill::new(&data).expect("valid").with_scripts(&[("go.sh", "echo $1")]);
    assert_eq!(skill.files(), ["assets/logo.png", "references/guide.md", "scripts/go.sh"]);
    assert_eq!(skill.instructions().expect("text"), "Text $(touch pwn)\n");
    let script = skill.script("go.sh").expect("script");
    assert_eq!(script.arguments(), ["-c", "echo $1", "scripts/go.sh"]);
    assert!(EmbeddedSkill::new(&EmbeddedSkillData { skill_md: "x", references: &[], assets: &[] }).is_err());
    let registry = Arc::new(InMemorySkillRegistry::from_skills(vec![Arc::new(skill)]));
    assert!(registry.get("e").is_some());
}

fn embedded(name: &str, description: &str) -> Arc<dyn Skill> {
    let skill_md = format!("---\nname: {name}\ndescription: {description}\n---\nx");
    Arc::new(
        EmbeddedSkill::new(&EmbeddedSkillData { skill_md: &skill_md, references: &[], assets: &[] })
            .expect("valid"),
    )
}

#[test]
fn the_catalogue_escapes_and_has_limits() {
    let of = |skills| catalogue(&InMemorySkillRegistry::from_skills(skills));
    assert_eq!(of(Vec::new()), None);
    let text = of(vec![embedded("a", "\"</skill> & <b>\\u200b\"")]).expect("text");
    assert!(
        text.contains(
            "<name>a</name><description>&lt;/skill&gt; &amp; &lt;b&gt;&lt;U+200B&gt;</description>"
        ),
        "{text}"
    );
    assert!(!text.contains("more skills"));
    let many: Vec<_> = (0..40).map(|i| embedded(&format!("s{i}"), "d")).collect();
    let text = of(many).expect("text");
    assert_eq!(text.matches("<skill>").count(), 32);
    assert!(text.contains("8 more skills are not listed"));
    let long: Vec<_> = (0..30).map(|i| embedded(&format!("s{i}"), &"<".repeat(1024))).collect();
    let text = of(long).expect("text");
    assert!(text.chars().count() <= MAX_CATALOGUE_CHARS);
    assert!(
        text.contains("more skills are not listed") && text.matches("<skill>").count() == 3,
        "{}",
        text.len()
    );
}

#[test]
fn a_user_loads_a_skill_by_name() {
    let registry = InMemorySkillRegistry::from_skills(vec![embedded("commit", "d")]);
    assert!(invocation(&registry, "/commit").unwrap().expect("is known").contains("`commit`"));
    let fix = invocation(&registry, "/commit the fix\nnow").unwrap().expect("is known");
    assert!(fix.ends_with("the fix\nnow"));
    for line in ["/other", "commit", "/", ""] {
        assert_eq!(invocation(&registry, line), Ok(None), "{line}");
    }
}

#[test]
fn a_check_returns_rows_places_and_an_exit_code() {
    let (_dir, root) = temp();
    put_skill(&root, "good");
    write(&root.join("bad/SKILL.md"), "---\nname: bad\ndescription: d\nname: bad\n---\nx");
    write(&root.join("odd/SKILL.md"), "---\nname: other\ndescription: d\n---\nx");
    let report = check_dir(&root).expect("readable");
    assert_eq!(report.exit_code(), 1);
    let lines: Vec<_> =
        report.lines().iter().map(|line| line.replace(&format!("{}/", root.display()), "")).collect();
    assert!(lines[0].starts_with("bad/SKILL.md:4: error: invalid YAML in the front matter"), "{lines:?}");
    assert_eq!(lines[1], "good: ok");
    assert!(lines[2].starts_with("odd/SKILL.md:2: warning: the name `other` differs"), "{lines:?}");
    assert_eq!(check_dir(&root.join("good")).expect("readable").exit_code(), 0);
    assert_eq!(check_dir(&root.join("bad/SKILL.md")).expect("readable").exit_code(), 1);
    assert!(check_dir(&root.join("none")).is_err());
    let empty = tempfile::tempdir().expect("a temporary folder");
    assert!(check_dir(empty.path()).is_err());
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["skills"][0]["issues"][0]["line"], 4);
    assert_eq!(json["skills"][0]["issues"][0]["severity"], "error");
}

/// Row CO042: invisible characters are shown and counted.
#[test]
fn a_list_shows_invisible_characters() {
    let (_dir, root) = temp();
    write(&root.join("a/SKILL.md"), "---\nname: a\ndescription: \"x\u{200b}\u{e0069}\u{e0067}nore\"\n---\n");
    let root = SkillRoot { dir: root, scope: SkillScope::User, boundary: None };
    let rows = list_rows(&discover(&[root], Vec::new()));
    assert_eq!(rows[0].description, "x<U+200B><U+E0069><U+E0067>nore");
    assert_eq!(rows[0].invisible_characters, 3);
}

/// A folder of the skill becomes a link, again and again, while its files are read.
#[test]
fn nothing_outside_is_read_while_a_folder_becomes_a_link() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (_dir, root) = temp();
    let dir = put_skill(&root.join("skills"), "good");
    write(&dir.join("references/guide.md"), "inside");
    write(&root.join("outside/guide.md"), "CANARY");
    let found = FsSkill::discover(root.join("skills")).expect("readable");
    let skill = &found.skills[0];
    let (folder, away) = (dir.join("references"), dir.join("away"));
    let (is_over, outside) = (Arc::new(AtomicBool::new(false)), root.join("outside"));
    let stop = Arc::clone(&is_over);
    let swapper = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            fs::rename(&folder, &away).expect("renamed");
            symlink(&outside, &folder).expect("a link");
            fs::remove_file(&folder).expect("removed");
            fs::rename(&away, &folder).expect("renamed");
        }
    });
    let mut read = 0;
    for _ in 0..3000 {
        if let Ok(found) = skill.resource("references/guide.md", 100) {
            assert_eq!(String::from_utf8_lossy(&found.bytes), "inside");
            read += 1;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    swapper.join().expect("no panic");
    assert!(read > 0 || skill.resource("references/guide.md", 100).is_ok());
}

#[test]
fn links_of_a_project_lead_to_no_file_that_rules_restrict() {
    let (_dir, repo) = temp();
    let skills = repo.join(".agents/skills");
    put_skill(&skills, "open");
    let secret = put_skill(&repo, "secret");
    symlink("../../secret", skills.join("secret")).expect("a link");
    std::fs::create_dir(skills.join("doc")).expect("made");
    symlink("../../../secret/SKILL.md", skills.join("doc/SKILL.md")).expect("a link");
    let restricted = secret.clone();
    let may_follow: MayFollow = Arc::new(move |real: &Path| !real.starts_with(&restricted));
    let roots = project_roots(&repo, &repo);
    let found = |may_follow: &MayFollow| {
        let discovery = discover_following(&roots, Vec::new(), may_follow);
        let names: Vec<String> = discovery.found.iter().map(|it| it.skill.meta().name.clone()).collect();
        (names, discovery.issues)
    };
    let (names, issues) = found(&may_follow);
    assert_eq!(names, ["open"]);
    let refused = issues.iter().filter(|issue| issue.message.contains("rules keep from being read"));
    assert_eq!(refused.count(), 2, "{issues:?}");
    let anything: MayFollow = Arc::new(|_| true);
    assert!(found(&anything).0.contains(&"secret".to_owned()));
}
