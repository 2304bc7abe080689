use std::ffi::OsStr;

use super::evaluator::Evaluator;
use super::*;
use crate::policy::PartialFolder;

fn project() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().canonicalize().expect("it exists");
    for folder in ["work/.git/hooks", "work/.github", "work/src/keys", "tools", "tmp"] {
        std::fs::create_dir_all(root.join(folder)).expect("written");
    }
    for file in ["work/.git/config", "work/.envrc", "work/.env", "work/src/keys/a"] {
        std::fs::write(root.join(file), "").expect("written");
    }
    (dir, root)
}

fn policy(profile: Profile, root: &Path) -> Policy {
    Policy {
        toolchains: vec![root.join("tools")],
        masked: vec![root.join("work/.env"), root.join("work/src/keys")],
        tmp: Some(root.join("tmp")),
        ..Policy::new(profile, root.join("work"))
    }
}

/// What may be done with paths below the folder of a test.
struct Judge {
    profile: Evaluator,
    root: String,
}

impl Judge {
    fn of(policy: &Policy, root: &Path) -> Judge {
        Judge {
            profile: Evaluator::of(&profile(policy)),
            root: private(root).to_str().expect("text").to_owned(),
        }
    }

    fn path(&self, path: &str) -> String {
        if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", self.root) }
    }

    fn reads(&self, path: &str) -> bool {
        let path = self.path(path);
        let may: Vec<bool> = ["file-read-data", "file-read-xattr", "file-map-executable"]
            .iter()
            .map(|operation| self.profile.may(operation, &path))
            .collect();
        // A mask that leaves one of them open is none.
        assert!(may.iter().all(|one| *one == may[0]), "{path}: {may:?}");
        may[0]
    }

    fn writes(&self, path: &str) -> bool {
        let path = self.path(path);
        let may = |operation| self.profile.may(operation, &path);
        let all = ["file-write-data", "file-write-create", "file-write-unlink", "file-write-mode"].map(may);
        assert!(all.iter().all(|one| *one == all[0]), "{path}: {all:?}");
        all[0]
    }
}

/// The profile after what all have, with `ROOT` for the folder and without the folders above it and secrets of the system: they are those of this machine.
fn shown(policy: &Policy, root: &Path) -> String {
    let text = profile(policy);
    let text = text.strip_prefix(BASE).expect("it starts with what all have");
    let root = private(root);
    let above: Vec<String> =
        root.ancestors().skip(1).map(|path| format!("(literal {})", quoted(path))).collect();
    let is_here =
        |line: &&str| line.contains("\"/private/etc/") || above.iter().any(|above| line.contains(above));
    let lines: Vec<&str> = text.lines().filter(|line| !is_here(line)).collect();
    let root = root.display().to_string();
    let text = lines.join("\n") + "\n";
    text.replace(&root, "ROOT").replace(&expression(&root, false), "ROOT")
}

/// Compares a profile with a file beside this one. With `INSTA_UPDATE=always` the file is written.
fn is_golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/seatbelt/golden").join(name);
    if std::env::var_os("INSTA_UPDATE").as_deref() == Some(OsStr::new("always")) {
        std::fs::write(&file, text).expect("written");
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        golden == text,
        "{} is out of date; run this test with INSTA_UPDATE=always:\n{text}",
        file.display()
    );
}

#[test]
fn profiles_are_as_they_were_reviewed() {
    let (_dir, root) = project();
    is_golden("read.sb", &shown(&policy(Profile::Read, &root), &root));
    is_golden("workspace.sb", &shown(&policy(Profile::Workspace, &root), &root));
}

#[test]
fn read_only_writes_nothing_but_tmp() {
    let (_dir, root) = project();
    let judge = Judge::of(&policy(Profile::Read, &root), &root);
    for path in
        ["work", "work/src/main.rs", "tools/bin/x", "tmp/x", "/usr/lib/x.dylib", "/opt/homebrew/bin/git"]
    {
        assert!(judge.reads(path), "{path}");
    }
    for path in
        ["work/.env", "work/src/keys", "work/src/keys/a", "other", "/Users/me/.ssh/id", "/private/tmp/x"]
    {
        assert!(!judge.reads(path) && !judge.writes(path), "{path}");
    }
    assert!(
        judge.writes("tmp/x")
            && !judge.writes("work/x")
            && !judge.writes("tools/x")
            && !judge.writes("/usr/x")
    );
}

#[test]
fn a_workspace_is_writable_except_protected_files_and_masks() {
    let (_dir, root) = project();
    let judge = Judge::of(&policy(Profile::Workspace, &root), &root);
    for path in [
        "work/x",
        "work/src/main.rs",
        "work/.git/objects/ab/c",
        "work/.git/HEAD",
        "work/.git/index",
        "work/.github/CODEOWNERS",
        "work/.gitignore",
        "work/src/.git",
        "work/src/agents.md",
        "work/target/head",
        "work/heads",
    ] {
        assert!(judge.writes(path) && judge.reads(path), "{path}");
    }
    for path in [
        // There.
        "work/.envrc",
        "work/.git/config",
        "work/.git/hooks",
        "work/.git/hooks/pre-commit",
        // Not there yet: the file itself, and what would be in it as a folder.
        "work/.git/config.worktree",
        "work/.git/info/attributes",
        "work/.npmrc",
        "work/.vscode",
        "work/.vscode/tasks.json",
        "work/.github/workflows",
        "work/.github/workflows/x.yml",
        "work/.cargo/config.toml",
        "work/AGENTS.local.md",
        "work/mise.local.toml",
        // The volume may take these for the same.
        "work/.NPMRC",
        "work/.Vscode/tasks.json",
        "work/AGENTS.md",
        "work/.GitHub/Workflows/x.yml",
        "work/.MISE.toml",
    ] {
        assert!(!judge.writes(path) && judge.reads(path), "{path}");
    }
    // Nor can a folder on the way be moved away, or another one be moved there.
    for folder in ["work/.git", "work/src", "work/.github"] {
        assert!(!judge.writes(folder) && judge.reads(folder), "{folder}");
    }
    for path in ["work/.env", "work/src/keys", "work/src/keys/a", "work/src/keys/b"] {
        assert!(!judge.writes(path) && !judge.reads(path), "{path}");
    }
    assert!(!judge.profile.may("network-outbound", "/private/var/run/mDNSResponder"));
}

#[test]
fn of_a_repository_only_what_runs_programs_is_protected() {
    let (_dir, root) = project();
    let git = root.join("main.git");
    std::fs::create_dir_all(git.join("objects")).expect("written");
    std::fs::write(git.join("HEAD"), "ref: x").expect("written");
    let policy = Policy { writable: vec![git], ..policy(Profile::Workspace, &root) };
    let judge = Judge::of(&policy, &root);
    assert!(judge.writes("main.git/HEAD") && judge.writes("main.git/refs/heads/x"));
    assert!(!judge.writes("main.git/config") && !judge.writes("main.git/hooks/x"));
}

#[test]
fn what_is_denied_comes_after_what_is_allowed() {
    let (_dir, root) = project();
    std::fs::create_dir_all(root.join("work/src/keys/public")).expect("written");
    // A folder that is opened in a masked one, and a mask in a folder that is opened.
    let policy = Policy {
        readable: vec![root.join("work/src/keys/public"), root.join("tools")],
        masked: vec![root.join("work/src/keys"), root.join("tools")],
        ..policy(Profile::Workspace, &root)
    };
    let judge = Judge::of(&policy, &root);
    assert!(!judge.reads("work/src/keys/public/x") && !judge.reads("tools/bin/x"));
    assert!(judge.reads("work/src/x"));
}

#[test]
fn of_a_partial_folder_only_some_entries_are_reached() {
    let (_dir, root) = project();
    let folder = PartialFolder { path: root.join("work"), shown: vec![root.join("work/src")] };
    let judge = Judge::of(&Policy { partial: vec![folder], ..policy(Profile::Workspace, &root) }, &root);
    assert!(judge.reads("work") && judge.reads("work/src/x") && judge.writes("work/src/x"));
    assert!(!judge.reads("work/x") && !judge.writes("work/new") && !judge.reads("work/src/keys/a"));
}

#[test]
fn paths_lead_through_the_links_of_the_system() {
    for (path, real) in [
        ("/tmp/x", "/private/tmp/x"),
        ("/var/folders/ab/T/x", "/private/var/folders/ab/T/x"),
        ("/etc", "/private/etc"),
        ("/private/tmp/x", "/private/tmp/x"),
        ("/variable", "/variable"),
        ("/Users/me/tmp", "/Users/me/tmp"),
    ] {
        assert_eq!(private(Path::new(path)), Path::new(real));
    }
    let policy =
        Policy { tmp: Some("/var/folders/ab/T/x".into()), ..Policy::new(Profile::Read, "/Users/me/w") };
    let judge = Judge::of(&policy, Path::new("/Users/me"));
    assert!(judge.writes("/private/var/folders/ab/T/x/file") && !judge.writes("/private/var/folders/ab/T/y"));
    // Each part of a path is looked up: the links, and every folder above.
    for path in [
        "/tmp",
        "/var",
        "/etc",
        "/private/var/folders/ab",
        "/private/var/folders",
        "/Users",
        "/Users/me",
        "/",
    ] {
        assert!(judge.profile.may("file-read-metadata", path), "{path}");
    }
    assert!(judge.reads("/private/etc/ssl/cert.pem") && !judge.writes("/private/etc/hosts"));
    for folder in ["/Users", "/Users/me", "/private/var/folders"] {
        assert!(!judge.profile.may("file-read-data", folder), "{folder} can be listed");
    }
}

#[test]
fn what_programs_need_of_the_system_is_there() {
    let judge = Judge::of(&Policy::new(Profile::Read, "/Users/me/w"), Path::new("/Users/me"));
    let may = |operation: &str, path: &str| judge.profile.may(operation, path);
    assert!(may("ipc-posix-sem", "/mp-1") && may("pseudo-tty", "") && may("sysctl-read", "kern.sysv.semmni"));
    assert!(!may("sysctl-read", "kern.procargs2"), "the keys of aye");
    assert!(
        may("file-write-data", "/dev/ptmx")
            && may("file-ioctl", "/dev/ptmx")
            && may("file-ioctl", "/dev/ttys012")
    );
    assert!(
        !may("file-read-data", "/dev/ttys012") && !may("file-write-data", "/dev/ttys012"),
        "somebody else's terminal"
    );
    assert!(
        may("file-write-data", "/dev/null")
            && !may("file-write-create", "/dev/x")
            && !may("file-read-data", "/dev/disk0")
    );
    assert!(may("file-read-data", "/") && !may("file-read-data", "/Volumes"));
    for library in [
        "/System/Library/Frameworks/Foundation.framework/Foundation",
        "/opt/homebrew/Cellar/node/24/lib/libnode.dylib",
        "/Applications/Xcode.app/Contents/Developer/usr/lib/libxcrun.dylib",
        "/Applications/Xcode-beta.app/Contents/Developer/usr/bin/clang",
        "/Library/Developer/CommandLineTools/usr/bin/git",
    ] {
        assert!(judge.reads(library) && !judge.writes(library), "{library}");
    }
    assert!(
        !judge.reads("/Applications/Mail.app/x")
            && !judge.reads("/Applications/Xcode.apple")
            && !judge.reads("/Library/Keychains/System.keychain")
    );
    assert!(may("mach-lookup", "com.apple.cfprefsd.daemon"));
    for service in
        ["com.apple.trustd.agent", "com.apple.SecurityServer", "com.apple.coreservices.launchservicesd"]
    {
        assert!(!may("mach-lookup", service), "{service}");
    }
}

#[test]
fn the_network_is_open_only_for_a_workspace() {
    let of = |profile| {
        let policy = Policy { network: true, ..Policy::new(profile, "/Users/me/w") };
        Judge::of(&policy, Path::new("/Users/me")).profile
    };
    let (open, closed) = (of(Profile::Workspace), of(Profile::Read));
    assert!(
        open.may("network-outbound", "")
            && open.may("mach-lookup", "com.apple.trustd.agent")
            && !open.may("mach-lookup", "com.apple.SecurityServer")
    );
    assert!(!closed.may("network-outbound", "") && !closed.may("mach-lookup", "com.apple.trustd.agent"));
}

#[test]
fn any_path_is_one_string() {
    assert_eq!(quoted(Path::new(r#"/w/a" (b) \c"#)), r#""/w/a\" (b) \\c""#);
    let (_dir, root) = project();
    let odd = root.join(r#"a" (b) [c] \d +e;"#);
    std::fs::create_dir_all(&odd).expect("made");
    let policy = Policy::new(Profile::Workspace, &odd);
    let judge = Judge::of(&policy, &odd);
    assert!(judge.writes("x") && !judge.writes(".ENVRC") && !judge.writes("/x"));
}

#[test]
fn an_expression_matches_a_name_in_any_case() {
    assert_eq!(expression(".env*", true), r"\.[eE][nN][vV][^/]*");
    assert_eq!(expression("/w/a+b*", false), r"/w/a\+b\*");
}
