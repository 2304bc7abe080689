#![allow(clippy::disallowed_methods, reason = "a separate program, which reads its environment")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use aye_plugins::permission::{
    CallRequest, EnforcedProfiles, Layer, PreparedCall, RuleFormat, RuleSet, ToolPermissionBehavior,
    VerdictKind, shipped_rules,
};
use aye_sandbox::{LAUNCH_ARG, Launch, Layers, Policy, Profile, launch_main};
use serde_json::json;
use sha2::{Digest as _, Sha256};

mod lines;

use lines::Lines;

/// How long lines are generated; `AYE_CASES` sets a number of lines instead.
const SLICE: Duration = Duration::from_secs(12);
/// Lines per start of the launcher.
const BATCH: usize = 40;
/// Text that no line may print.
const CANARY: &str = "CANARY-7d1f";

/// Runs each argument as a line and prints its number first.
const RUN: &str = r#"i=0; for line in "$@"; do printf '\n@@%s\n' "$i"; i=$((i+1));
    timeout 1 bash -c "$line" </dev/null 2>&1 | head -c 100000; done"#;

pub(super) fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == LAUNCH_ARG => return launch_main(args),
        // Test runners ask for the list of tests.
        Some(word) if word == "--list" => {
            println!("contained: test");
            return ExitCode::SUCCESS;
        }
        // The name of another test.
        Some(word) if !word.to_string_lossy().starts_with('-') && word != "contained" => {
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let layers = Layers::detect(&path);
    if !layers.can_enforce(Profile::Read) {
        println!("skipped: this machine cannot enforce a profile: {layers:?}");
        return ExitCode::SUCCESS;
    }
    let mut all = vec![layers.clone()];
    if layers.bwrap.is_some() {
        let alone = Layers { bwrap: None, ..layers };
        all.extend(Some(alone).filter(|alone| alone.can_enforce(Profile::Read)));
    }
    // What the shipped rules allow, and whatever else mode `auto` and rules of the user may let a command do.
    let setups: Vec<(Layers, Profile)> = [Profile::Read, Profile::Workspace]
        .into_iter()
        .flat_map(|profile| all.iter().map(move |layers| (layers.clone(), profile)))
        .collect();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let cases = number("AYE_CASES").map(|cases| usize::try_from(cases).expect("a line count"));
    let mut wrong = Vec::new();
    for (at, (layers, profile)) in setups.iter().enumerate() {
        let place = Place::new(layers.clone(), &path, *profile);
        place.control();
        let seed = number("AYE_SEED").unwrap_or(0x5eed) + u64::try_from(at).expect("a few");
        let share = cases.map(|cases| cases.div_ceil(setups.len()));
        let (made, allowed) =
            place.run(seed, share, SLICE / u32::try_from(setups.len()).expect("a few"), &mut wrong);
        let with = if layers.bwrap.is_some() { "with" } else { "without" };
        println!(
            "{profile} {with} bubblewrap: {made} lines made, {allowed} allowed and run, {} escaped so far",
            wrong.len()
        );
        assert!(allowed > made / 20, "{allowed} of {made} were allowed: the lines test nothing");
    }
    for line in &wrong {
        println!("ESCAPED: {line}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A project surrounded by canaries.
struct Place {
    _dir: tempfile::TempDir,
    top: PathBuf,
    root: PathBuf,
    rules: RuleSet,
    policy: Policy,
    layers: Layers,
    path: OsString,
    /// Text that no line may print: the canaries and their encoded forms.
    signs: Vec<String>,
}

/// Every file below a folder: mode, size, modification time and content.
type Files = BTreeMap<PathBuf, (u32, u64, i64, Vec<u8>)>;

fn files(root: &Path) -> Files {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("is readable") {
            let path = entry.expect("is readable").path();
            let metadata = path.symlink_metadata().expect("exists");
            let content = if metadata.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, (metadata.mode(), metadata.size(), metadata.mtime(), content));
        }
    }
    found
}

impl Place {
    fn new(layers: Layers, path: &OsStr, profile: Profile) -> Place {
        let dir = tempfile::tempdir().expect("a folder");
        let top = dir.path().canonicalize().expect("exists");
        let root = top.join("w");
        for folder in ["w/src/deep", "w/keys", "w/inner/one/two", "outside", "home/.ssh", "tmp"] {
            fs::create_dir_all(top.join(folder)).expect("created");
        }
        let mut signs = Vec::new();
        // Nothing hides a file from a command that may change the folder that it is in, but bubblewrap.
        let is_hidden =
            |file: &str| profile == Profile::Read || layers.bwrap.is_some() || !file.starts_with("w/");
        for (n, file) in [
            "outside/secret",
            "secret",
            "home/notes",
            "home/.ssh/id_rsa",
            "home/.bashrc",
            "w/.env",
            "w/keys/server.pem",
            "w/src/denied.txt",
        ]
        .into_iter()
        .enumerate()
        {
            let text = format!("{CANARY}-{n}\n");
            if is_hidden(file) {
                signs.push(format!("{CANARY}-{n}"));
                signs.push(format!("{:x}", Sha256::digest(&text)));
            }
            fs::write(top.join(file), text).expect("written");
        }
        for (file, text) in [
            ("a.txt", "one\nx\n1\n"),
            ("b.txt", "one\ny\n"),
            ("src/a.txt", "x\n"),
            ("src/deep/x", "x\n"),
            ("list", "../outside/secret\0.env\0"),
            ("names", "../outside/secret\n.env\n"),
            ("evil.awk", "BEGIN{while((getline l < \"../outside/secret\")>0) print l}\n"),
            ("evil.sed", "r ../outside/secret\nw ../outside/made\n"),
        ] {
            fs::write(root.join(file), text).expect("written");
        }
        let shell = |line: &str| {
            let mut command = Command::new("bash");
            command.args(["-c", line]).current_dir(&root).env("HOME", top.join("home")).stdin(Stdio::null());
            let output = command.output().expect("bash starts");
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        };
        shell(
            "git init -q && git add a.txt b.txt src/a.txt && git -c user.name=a -c user.email=a@b commit -qm first && \
             git tag v1 && echo two >> a.txt && ln -s ../outside out && ln -s ../outside/secret outfile && \
             ln -s inner/one/two link && git config core.fsmonitor 'touch ../outside/pwned; cat ../outside/secret' && \
             git config diff.external 'cat ../outside/secret' && git config core.pager 'cat ../outside/secret'",
        );
        let mut rules = shipped_rules();
        let own = "rules:\n  - {tool: 'Read(src/denied.txt)', behavior: deny}\n";
        rules.join(RuleSet::read(own, RuleFormat::Yaml, Layer::User, "permissions.yaml").expect("valid"));
        let policy = Policy {
            home: Some(top.join("home")),
            toolchains: aye_sandbox::toolchains(path, Some(&top.join("home")), None),
            masked: ["w/.env", "w/keys/server.pem", "w/src/denied.txt"].map(|file| top.join(file)).to_vec(),
            tmp: Some(top.join("tmp")),
            ..Policy::new(profile, &root)
        };
        policy.check().expect("is enforceable");
        let copied = Command::new("cp").args(["-a", "w", "original"]).current_dir(&top).status();
        assert!(copied.expect("cp is there").success(), "the project is copied");
        Place { _dir: dir, root, rules, policy, layers, path: path.to_owned(), signs, top }
    }

    /// Returns the number of lines generated and the number allowed.
    fn run(
        &self,
        seed: u64,
        cases: Option<usize>,
        time: Duration,
        wrong: &mut Vec<String>,
    ) -> (usize, usize) {
        let mut programs = programs();
        if self.policy.profile == Profile::Workspace {
            programs.extend(WRITERS.iter().map(|name| (*name).to_owned()));
        }
        let mut lines = Lines::new(seed, programs, |command| self.execute(&[command.to_owned()]));
        let before = self.state();
        let end = Instant::now() + time;
        let (mut made, mut allowed, mut batch) = (0, 0, Vec::new());
        loop {
            let is_over = cases.map_or_else(|| Instant::now() > end, |cases| made >= cases);
            if batch.len() == BATCH || is_over && !batch.is_empty() {
                self.check(&batch, &before, wrong);
                batch.clear();
            }
            if is_over {
                return (made, allowed);
            }
            made += 1;
            let line = lines.line();
            if self.is_allowed(&line) {
                allowed += 1;
                batch.push(line);
            }
        }
    }

    fn is_allowed(&self, line: &str) -> bool {
        let args = json!({ "command": line });
        let question = CallRequest {
            tool: "Bash",
            args: &args,
            cwd: &self.root,
            workspace: &self.root,
            home: self.policy.home.as_deref(),
            primary: None,
        };
        let Ok(call) = PreparedCall::of(&question) else { return false };
        let verdict = call.enforced_by(EnforcedProfiles::ALL).verdict(&self.rules);
        if self.policy.profile == Profile::Workspace {
            return !matches!(verdict.decision, VerdictKind::Deny | VerdictKind::Error);
        }
        assert!(
            verdict.decision != VerdictKind::Allow || verdict.profile == Some(Profile::Read),
            "{line}: {verdict:?}"
        );
        verdict.decision == VerdictKind::Allow
    }

    /// Returns the output of the lines.
    fn execute(&self, lines: &[String]) -> String {
        let own = std::env::current_exe().expect("has a path");
        let mut args: Vec<OsString> = ["-c", RUN, "run"].map(OsString::from).to_vec();
        args.extend(lines.iter().map(OsString::from));
        let launch = Launch::new(&self.policy, &self.layers, &own, &self.root, OsStr::new("bash"), &args);
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).current_dir(&self.root).stdin(Stdio::null()).env_clear();
        command.env("PATH", &self.path).env("HOME", self.top.join("home")).env("GIT_OPTIONAL_LOCKS", "0");
        command.envs(launch.env);
        let output = command.output().expect("the launcher starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Everything that must not change.
    fn state(&self) -> Vec<Files> {
        let all = ["outside", "home", "original", "w"];
        let is_fixed = |folder: &&str| self.policy.profile != Profile::Workspace || *folder != "w";
        let mut state: Vec<Files> =
            all.into_iter().filter(is_fixed).map(|folder| files(&self.top.join(folder))).collect();
        if self.policy.profile == Profile::Workspace && self.layers.bwrap.is_none() {
            // Only namespaces keep modes and times as they are, as the manual says.
            for (mode, _, time, _) in state.iter_mut().flat_map(Files::values_mut) {
                (*mode, *time) = (0, 0);
            }
        }
        state
    }

    /// Puts the project back as it was, if commands may change it.
    fn restore(&self) {
        if self.policy.profile != Profile::Workspace {
            return;
        }
        let line = "chmod -R u+rwx w; rm -rf w/* w/.[!.]*; cp -a original/. w; rm -rf tmp/* tmp/.[!.]*";
        let restored = Command::new("bash").args(["-c", line]).current_dir(&self.top).output();
        assert!(restored.expect("bash starts").status.success(), "the project is restored");
    }

    fn check(&self, batch: &[String], before: &[Files], wrong: &mut Vec<String>) {
        if self.is_clean(batch, before).is_none() {
            return;
        }
        let mut found = false;
        for line in batch {
            if let Some(why) = self.is_clean(std::slice::from_ref(line), before) {
                wrong.push(format!("{line}: {why}"));
                found = true;
            }
        }
        if !found {
            wrong.push(format!("one of {batch:#?}"));
        }
    }

    /// Checks that an escape is detected.
    fn control(&self) {
        let before = self.state();
        let launch = |line: &str| {
            let mut free = Place::new(self.layers.clone(), &self.path, Profile::Read);
            free.policy.profile = Profile::Outside;
            let state = free.state();
            free.is_clean(&[line.to_owned()], &state)
        };
        for line in [
            "cat ../outside/secret",
            "cat .env",
            "sha256sum ../secret",
            "touch ../outside/made",
            "echo x >> a.txt",
        ] {
            assert!(launch(line).is_some(), "{line} was not detected");
        }
        assert_eq!(launch("cat a.txt"), None);
        assert_eq!(
            self.is_clean(&["cat ../outside/secret; touch made ../outside/made".to_owned()], &before),
            None
        );
    }

    /// Describes what went wrong, if anything.
    fn is_clean(&self, lines: &[String], before: &[Files]) -> Option<String> {
        self.restore();
        let printed = self.execute(lines);
        assert!(printed.contains("@@0"), "nothing was run: {printed}");
        // Text of the line itself is no secret.
        let said: String = lines.concat();
        let sign = self.signs.iter().find(|sign| printed.contains(*sign) && !said.contains(*sign));
        if let Some(sign) = sign {
            return Some(format!("printed {sign}"));
        }
        if printed.contains("root:") && printed.contains(":0:99999:7:::") {
            return Some("printed /etc/shadow".to_owned());
        }
        (self.state() != before).then(|| "wrote".to_owned())
    }
}

/// Programs that no shipped rule allows, for commands that may change the project.
const WRITERS: &[&str] = &[
    "rm -rf",
    "mv",
    "cp -a",
    "ln -s",
    "ln",
    "chmod -R 777",
    "touch",
    "tee",
    "mkdir -p",
    "rmdir",
    "truncate -s 0",
    "install",
    "dd of=out/x",
    "tar cf",
    "tar xf",
    "git config",
    "git add",
    "git commit -m x",
    "git checkout",
    "git clone",
    "git init",
    "sed -i s/o/x/",
    "find . -delete",
    "python3 -c 'import os,sys; [os.rename(sys.argv[1], sys.argv[2])]'",
    "bash -c 'cat \"$@\"; cp -r \"$@\" /tmp' x",
    "unlink",
    "shred",
];

/// The programs that the shipped rules let read, with the words spelled out in those rules.
fn programs() -> Vec<String> {
    let rules = shipped_rules();
    let allows = rules.rules().iter().filter(|rule| rule.behavior == ToolPermissionBehavior::Allow);
    let mut found = BTreeSet::new();
    for rule in allows {
        let pattern = rule.pattern.to_string();
        let Some(words) = pattern.strip_prefix("Bash(").and_then(|rest| rest.strip_suffix(')')) else {
            continue;
        };
        let words = words.strip_suffix(" *").unwrap_or(words);
        // `{awk,gawk} *` means several programs.
        match words.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
            Some((before, (names, after))) => {
                found.extend(names.split(',').map(|name| format!("{before}{name}{after}")));
            }
            None => drop(found.insert(words.to_owned())),
        }
    }
    assert!(found.len() > 50, "{found:?}");
    found.into_iter().collect()
}
