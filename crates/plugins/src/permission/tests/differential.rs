//! Runs lines that the shipped rules allow: they must write nothing and print nothing from outside.

use crate::permission::*;
use fastrand::Rng;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The number of generated lines; `AYE_CASES` raises it.
const CASES: usize = 600;

const PROGRAMS: &[&str] = &[
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "sed -n 1,5p",
    "sed s/o/x/",
    "awk '{print $1}'",
    "nl",
    "tac",
    "cut",
    "tr",
    "sort",
    "uniq",
    "comm",
    "diff",
    "cmp",
    "grep",
    "rg",
    "find",
    "fd",
    "tree",
    "file",
    "stat",
    "du",
    "df",
    "which",
    "type",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "md5sum",
    "sha256sum",
    "echo",
    "printf",
    "date",
    "uname",
    "jq",
    "git status",
    "git diff",
    "git log",
    "git show",
    "git blame",
    "git shortlog",
    "git describe",
    "git rev-parse",
    "git rev-list",
    "git ls-files",
    "git ls-tree",
    "git cat-file -p",
    "git grep",
    "git branch",
    "git tag -l",
    "git stash list",
    "git merge-base",
    "cd src &&",
    "(cd src/deep);",
    "cd src/deep && cat",
    "cd src/deep; cat",
    "cd nowhere && cat",
    "cd link && cat",
];
const OPERANDS: &[&str] = &[
    "a.txt",
    "b.txt",
    "src",
    "src/deep",
    ".env",
    "./.env",
    "../outside/secret",
    "../secret",
    "../../outside/secret",
    "out/secret",
    "out",
    "outfile",
    "-",
    "--",
    "*.txt",
    "HEAD",
    "HEAD:a.txt",
    "HEAD:.env",
    ":0:.env",
    "':(top).env'",
    "'.en?'",
    "made1",
    "made2",
    "1",
    "x",
    ".",
    "..",
    "link/../..",
    "link",
    "/etc/hostname",
];
const VALUES: &[&str] = &[
    "",
    "",
    "",
    "=.env",
    "=../outside/secret",
    "=outfile",
    "=made3",
    "=1",
    ".env",
    "../outside/secret",
    "outfile",
    "made4",
    "1",
];
const LONG: &[&str] = &[
    "files0-from",
    "file",
    "output",
    "exclude-from",
    "from-file",
    "to-file",
    "follow",
    "dereference",
    "recursive",
    "dereference-recursive",
    "include",
    "ignore-file",
    "pre",
    "no-index",
    "contents",
    "ignore-revs-file",
    "textconv",
    "ext-diff",
    "check",
    "reference",
    "compress-program",
    "random-source",
    "stat",
    "oneline",
    "patch",
    "name-only",
    "null",
    "all",
    "cached",
    "color",
    "unified",
    "regexp",
    "max-depth",
    "files",
    "sort",
    "exec",
    "delete",
    "fprint",
    "files0-fro",
    "fil",
    "outpu",
    "pathspec-from-file",
    "open-files-in-pager",
    "show-signature",
    "untracked",
];

/// Lines that are the same in every test run.
struct Lines(Rng);

impl Lines {
    fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        self.0.choice(of).unwrap()
    }

    fn word(&mut self) -> String {
        const LETTERS: &str = "aAbBcCdDeEfFgGhHiIklLmMnNoOpPqrRsStTuUvVwWxXzZ015.";
        match self.below(5) {
            0 | 1 => self.one(OPERANDS).to_owned(),
            2 => format!("--{}{}", self.one(LONG), self.one(VALUES)),
            3 if self.below(6) == 0 => format!("-{} {}", self.one(LONG), self.one(OPERANDS)),
            _ => {
                let letters =
                    (0..=self.below(3)).map(|_| LETTERS.as_bytes()[self.below(LETTERS.len())] as char);
                let letters: String = letters.collect();
                format!("-{letters}{}", self.one(VALUES))
            }
        }
    }

    fn line(&mut self) -> String {
        let program = self.one(PROGRAMS).to_owned();
        let words: Vec<String> = (0..=self.below(3)).map(|_| self.word()).collect();
        let line = format!("{program} {}", words.join(" "));
        if self.below(4) == 0 {
            let (next, word) = (self.one(PROGRAMS), self.word());
            return format!("{line} {} {next} {word}", self.one(&["|", "&&", ";", "||"]));
        }
        line
    }
}

fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                folders.push(path);
            } else {
                let content = std::fs::read(&path).unwrap_or_default();
                found.insert(path, content);
            }
        }
    }
    found
}

#[test]
fn allowed_lines_write_nothing_and_print_nothing_from_outside() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    let root = top.join("w");
    for folder in ["w/src/deep", "outside", "w/inner/one/two"] {
        std::fs::create_dir_all(top.join(folder)).unwrap();
    }
    for file in ["outside/secret", "secret", "w/secret"] {
        let text = if file == "w/secret" { "plain\n" } else { "CANARY-OUTSIDE\n" };
        std::fs::write(top.join(file), text).unwrap();
    }
    for (file, text) in
        [("a.txt", "one\nx\n1\n"), ("b.txt", "one\ny\n"), ("src/a.txt", "x\n"), ("src/deep/x", "x\n")]
    {
        std::fs::write(root.join(file), text).unwrap();
    }
    let line = |env: &mut Command, line: &str| {
        env.args(["-c", line]).current_dir(&root).stdin(Stdio::null()).env("HOME", &top).output().unwrap()
    };
    let setup = "git init -q && git add . && git -c user.name=a -c user.email=a@b commit -qm first && \
                 git tag v1 && echo two >> a.txt && ln -s ../outside out && ln -s ../outside/secret outfile && \
                 ln -s inner/one/two link && echo CANARY-ENV > .env";
    assert!(line(&mut Command::new("bash"), setup).status.success());
    let rules = shipped_rules();
    let before = files(&top);
    let cases = std::env::var("AYE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    let mut lines = Lines(Rng::with_seed(0x5eed_1234_abcd_0001));
    let (mut wrong, mut allowed) = (Vec::new(), 0);
    for _ in 0..cases {
        let text = lines.line();
        let args = json!({ "command": text });
        let question = CallRequest {
            tool: "Bash",
            args: &args,
            cwd: &root,
            workspace: &root,
            home: Some(&top),
            primary: None,
        };
        if evaluate(&rules, &question).decision != VerdictKind::Allow {
            continue;
        }
        allowed += 1;
        let mut shell = Command::new("timeout");
        let output = line(
            shell.args(["2", "bash"]).env("GIT_OPTIONAL_LOCKS", "0").env_remove("RIPGREP_CONFIG_PATH"),
            &text,
        );
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // Searches of whole folders are covered by another check.
        let walks = text.contains("grep") || text.contains("rg ") || text.contains("diff");
        if printed.contains("CANARY-OUTSIDE") || printed.contains("CANARY-ENV") && !walks {
            wrong.push(format!("{text}: printed {printed}"));
        }
        let after = files(&top);
        if after != before {
            wrong.push(format!("{text}: wrote"));
            for (path, _) in after.iter().filter(|(path, _)| !before.contains_key(*path)) {
                std::fs::remove_file(path).unwrap();
            }
            for (path, content) in before.iter().filter(|(path, content)| after.get(*path) != Some(content)) {
                std::fs::write(path, content).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(allowed > cases / 30, "{allowed} of {cases} were allowed: the lines test nothing");
}

/// Git commands that the shipped rules know, and ways to make them print file contents.
const GIT: &[&str] = &[
    "status",
    "diff",
    "log",
    "show",
    "blame",
    "shortlog",
    "describe",
    "rev-parse",
    "rev-list",
    "ls-files",
    "ls-tree",
    "cat-file -p",
    "grep",
    "branch",
    "tag -l",
    "stash list",
    "merge-base",
    "log -p",
    "show --stat",
    "diff --stat",
    "grep -e .",
    "log --oneline",
    "diff-tree",
    "range-diff",
];
const GIT_WORDS: &[&str] = &[
    "HEAD",
    "HEAD~1",
    "HEAD~1..HEAD",
    "v1",
    "v1:a.txt",
    "v1:src",
    "v1^{tree}",
    ":a.txt",
    "--",
    "--",
    "-e",
    "a.txt",
    "src",
    ".",
    "'.en?'",
    "'[.]env'",
    "'*'",
    "':/'",
    "':(top).'",
    "':(glob)**'",
    "':(icase).ENV'",
    "':!a.txt'",
    "':^src'",
    "'src/../.en?'",
    "-v",
    "-vv",
    "-s",
    "-sv",
    "-p",
    "-u",
    "-U1",
    "-W",
    "-c",
    "--cc",
    "-m",
    "-1",
    "-n1",
    "-L1,1:a.txt",
    "-SCANARY",
    "-GCANARY",
    "-z",
    "-R",
    "-a",
    "-b",
    "-w",
    "-h",
    "-l",
    "-i",
    "-E",
    "-O",
    "-M",
    "-C",
    "--check",
    "--patch",
    "--pat",
    "--stat",
    "--raw",
    "--numstat",
    "--patch-with-stat",
    "--patch-with-raw",
    "--unified=0",
    "--word-diff",
    "--color-words",
    "--remerge-diff",
    "--dd",
    "--diff-merges=on",
    "--follow",
    "--cached",
    "--staged",
    "--no-index",
    "--textconv",
    "--no-textconv",
    "--ext-diff",
    "--submodule=diff",
    "--binary",
    "--full-index",
    "--function-context",
    "--inter-hunk-context=1",
    "--verbose",
    "--show-notes",
    "--all",
    "--reflog",
    "--walk-reflogs",
    "--graph",
    "--format=%B",
    "--format=%H%n%b",
    "--pretty=raw",
    "--name-only",
    "--summary",
    "--find-object=HEAD:.env",
    "--pickaxe-all",
    "--pickaxe-regex",
    "--output-indicator-new=x",
    "--ws-error-highlight=all",
    "--color-moved",
    "--anchored=x",
    "--objects",
    "--header",
    "--stdin",
    "--batch",
    "--merge-base",
    "--no-patch",
    "--quiet",
    "--exit-code",
    "--porcelain",
    "--contents=a.txt",
    "--max-count=1",
    "--since=2000-01-01",
    "--author=a",
    "--grep=first",
    "--and",
    "--or",
    "--not",
    "--threads=1",
    "--open-files-in-pager",
    "--untracked",
    "--recurse-submodules",
    "--show-signature",
];

/// Knows the file names of a repository and the hashes of its secrets.
struct Known(Vec<String>);

#[async_trait::async_trait]
impl AskGit for Known {
    async fn changed(&self, _: GitChange) -> Vec<String> {
        Vec::new()
    }

    async fn names_in_history(&self, _: &Path, words: &[String]) -> Option<std::sync::Arc<NamesInHistory>> {
        let is_blob = |word: &String| self.0.iter().any(|hash| word.contains(&hash[..7]));
        (!words.iter().any(is_blob)).then_some(())?;
        Some(std::sync::Arc::new(
            [".env", "a.txt", "src/b.txt"].map(|name| name.as_bytes().to_vec()).to_vec(),
        ))
    }
}

#[tokio::test]
async fn git_prints_no_secret_from_its_objects_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("src")).unwrap();
    for (file, text) in [("a.txt", "one \n"), ("src/b.txt", "x\n"), (".env", "CANARY \n")] {
        std::fs::write(root.join(file), text).unwrap();
    }
    let run = |shell: &mut Command, line: &str| {
        let shell = shell.args(["-c", line]).current_dir(&root).stdin(Stdio::null()).env("HOME", &root);
        shell.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_PAGER", "cat").output().unwrap()
    };
    // The file is in commits and the index; on disk, the kernel would mask it.
    let setup = "git init -q && git config user.name a && git config user.email a@b && git add -f . && \
                 git commit -qm first && git tag v1 && echo 'CANARY two ' > .env && echo 'two ' >> a.txt && git add -f . && \
                 git commit -qm second && echo 'CANARY three ' > .env && git add -f .env && echo masked > .env";
    assert!(run(&mut Command::new("bash"), setup).status.success());
    let hashes = run(&mut Command::new("bash"), "git rev-parse HEAD:.env v1:.env :.env");
    let known = Known(String::from_utf8(hashes.stdout).unwrap().lines().map(str::to_owned).collect());
    let short: Vec<&str> = known.0.iter().flat_map(|hash| [hash.as_str(), &hash[..7]]).collect();
    let vocabulary = [GIT_WORDS, &short].concat();
    let rules = shipped_rules();
    let cases = std::env::var("AYE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    let mut lines = Lines(Rng::with_seed(0x5eed_1234_abcd_0002));
    let (mut wrong, mut allowed) = (Vec::new(), 0);
    for _ in 0..cases {
        let program = lines.one(GIT).to_owned();
        let words: Vec<&str> = (0..=lines.below(4)).map(|_| lines.one(&vocabulary)).collect();
        let text = format!("git {program} {}", words.join(" "));
        let args = json!({ "command": text });
        let (cwd, workspace) = (root.as_path(), root.as_path());
        let question = CallRequest { tool: "Bash", args: &args, cwd, workspace, home: None, primary: None };
        let call = PreparedCall::of(&question).unwrap().enforced_by(EnforcedProfiles::ALL);
        if call.with_history(Some(&known)).await.verdict(&rules).decision != VerdictKind::Allow {
            continue;
        }
        allowed += 1;
        let output = run(Command::new("timeout").args(["2", "bash"]), &text);
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if printed.contains("CANARY") && !text.contains("CANARY") || printed.contains("CANARY ") {
            wrong.push(format!("{text}: printed {printed}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(allowed > cases / 20, "{allowed} of {cases} were allowed: the lines test nothing");
}
