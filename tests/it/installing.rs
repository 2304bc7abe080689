//! install.sh and `aye upgrade` with packages whose program is a script.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::home::Home;
use crate::support::pty::Pty;

const GNU: &str = "unknown-linux-gnu";
const MUSL: &str = "unknown-linux-musl";

/// A folder with packages, and a user who has nothing yet.
struct Packages {
    top: TempDir,
}

impl Packages {
    /// Packages of one version for these targets. Their program prints its target, or fails.
    fn new(libcs: &[&str], does_start: bool) -> Self {
        Self::of("0.2.0", libcs, does_start)
    }

    fn of(version: &str, libcs: &[&str], does_start: bool) -> Self {
        let packages = Self { top: TempDir::with_prefix("a folder ").expect("a folder") };
        let folder = packages.folder();
        fs::create_dir_all(&folder).expect("a folder");
        fs::create_dir_all(packages.home()).expect("a folder");
        for libc in libcs {
            let stem = format!("aye-{version}-{}-{libc}", std::env::consts::ARCH);
            let program = folder.join(&stem).join("bin/aye");
            write(&program, &format!("#!/bin/sh\necho aye for {libc}\nexit {}\n", i32::from(!does_start)));
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
            for path in ["man/man1/aye.1", "completions/aye.bash", "completions/aye.fish", "completions/_aye"]
            {
                write(&folder.join(&stem).join("share").join(path), path);
            }
            packages.shell(&format!("tar -czf {stem}.tar.gz {stem} && rm -r {stem}"));
        }
        if !libcs.is_empty() {
            packages.shell("sha256sum *.tar.gz > SHA256SUMS");
        }
        packages
    }

    fn folder(&self) -> PathBuf {
        self.top.path().join("the packages")
    }

    fn home(&self) -> PathBuf {
        self.top.path().join("home")
    }

    fn program(&self) -> PathBuf {
        self.home().join(".local/bin/aye")
    }

    fn shell(&self, line: &str) {
        let done =
            Command::new("sh").args(["-c", line]).current_dir(self.folder()).status().expect("a shell");
        assert!(done.success(), "{line}");
    }

    fn install(&self, args: &[&str]) -> (bool, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
        let Output { status, stdout, stderr } = Command::new("sh")
            .arg(script)
            .args(args)
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(self.folder())
            .output()
            .expect("a shell");
        let said = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (status.success(), said)
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("written");
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn what_is_installed_can_be_removed_by_the_line_that_is_printed() {
    let packages = Packages::new(&[GNU, MUSL], true);
    write(&packages.program(), "an older one");
    let (is_installed, said) = packages.install(&["."]);
    assert!(is_installed, "{said}");
    let installed = fs::read_to_string(packages.program()).expect("installed");
    assert!(installed.contains("aye for"), "{installed}");
    assert!(said.contains("is not in PATH"), "{said}");
    assert_eq!(files(&packages.home()).len(), 5, "program, page, three completions and nothing else");
    let undo = said.lines().find_map(|line| line.strip_prefix("To remove it: ")).expect("how to undo it");
    packages.shell(undo);
    assert_eq!(files(&packages.home()), Vec::<PathBuf>::new());
}

#[test]
fn a_package_whose_sum_differs_changes_nothing() {
    let packages = Packages::new(&[GNU, MUSL], true);
    write(&packages.program(), "an older one");
    packages.shell("for f in *.tar.gz; do printf x >> $f; done");
    let (is_installed, said) = packages.install(&["."]);
    assert!(!is_installed && said.contains("is damaged") && said.contains("nothing was installed"), "{said}");
    assert_eq!(fs::read_to_string(packages.program()).expect("kept"), "an older one");
    assert_eq!(files(&packages.home()).len(), 1);
}

#[test]
fn a_program_that_does_not_start_replaces_nothing() {
    let packages = Packages::new(&[GNU, MUSL], false);
    write(&packages.program(), "an older one");
    let (is_installed, said) = packages.install(&["."]);
    assert!(!is_installed && said.contains("does not start on this machine"), "{said}");
    assert_eq!(fs::read_to_string(packages.program()).expect("kept"), "an older one");
    assert_eq!(files(&packages.home()).len(), 1);
}

#[test]
fn the_static_program_is_taken_where_there_is_no_other() {
    let packages = Packages::new(&[MUSL], true);
    let bin = packages.top.path().join("a bin");
    let (is_installed, said) = packages.install(&["--to", &bin.to_string_lossy(), "."]);
    assert!(is_installed && said.contains("aye for unknown-linux-musl"), "{said}");
    assert!(bin.join("aye").exists());
}

#[test]
fn what_cannot_be_installed_is_said() {
    let packages = Packages::new(&[], true);
    for (args, sentence) in [
        (vec!["."], "has no SHA256SUMS"),
        (vec!["http://example.invalid/aye"], "is not encrypted"),
        (vec!["--into", "."], "unknown option --into"),
        (vec![".", "."], "two places"),
    ] {
        let (is_installed, said) = packages.install(&args);
        assert!(!is_installed && said.contains(sentence), "{args:?}: {said}");
    }
    packages.shell("printf '%064d  aye-0.2.0-m68k-unknown-linux-gnu.tar.gz\\n' 0 > SHA256SUMS");
    let (is_installed, said) = packages.install(&["."]);
    assert!(!is_installed && said.contains("no package for this machine"), "{said}");
    assert_eq!(files(&packages.home()), Vec::<PathBuf>::new());
}

/// Serves the files of a folder on a loopback port until the process ends.
fn serve(folder: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let head =
                BufReader::new(&client).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            let line = head.collect::<Vec<_>>().into_iter().next().unwrap_or_default();
            let name = line.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
            let (status, body) = match fs::read(folder.join(name)) {
                Ok(body) => ("200 OK", body),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            // A client that gave up is no concern of the others.
            drop(client.write_all(head.as_bytes()).and_then(|()| client.write_all(&body)));
        }
    });
    url
}

#[test]
fn a_program_from_an_archive_upgrades_itself() {
    if ["curl", "wget"].iter().all(|name| Command::new(name).arg("--version").output().is_err()) {
        eprintln!("not tested, because neither curl nor wget is here");
        return;
    }
    let home = Home::new();
    let bin = home.root().join("bin");
    fs::create_dir_all(&bin).expect("a folder");
    let program = bin.join("aye");
    fs::copy(env!("CARGO_BIN_EXE_aye"), &program).expect("copied");
    let aye = |args: &[&str]| home.program(&program.to_string_lossy(), args).run();

    home.config("");
    aye(&["upgrade"]).exits(2).says("set `upgrade.url`");

    let same = Packages::of(env!("CARGO_PKG_VERSION"), &[GNU, MUSL], true);
    home.config(&format!("[upgrade]\nurl = \"{}\"\n", serve(same.folder())));
    aye(&["upgrade"]).exits(0).prints("is the newest version");

    let newer = Packages::of("99.0.0", &[GNU, MUSL], true);
    home.config(&format!("[upgrade]\nurl = \"{}\"\n", serve(newer.folder())));
    aye(&["upgrade", "--check"]).exits(0).prints("aye 99.0.0 is there");
    newer.shell("for f in *.tar.gz; do cp $f $f.right; printf x >> $f; done");
    aye(&["upgrade"]).exits(1).says("nothing was installed");
    aye(&["--version"]).exits(0).prints(env!("CARGO_PKG_VERSION"));

    newer.shell("for f in *.right; do mv $f ${f%.right}; done");
    aye(&["upgrade"]).exits(0).prints("Installed aye for");
    aye(&["--version"]).exits(0).prints("aye for");
}

#[test]
fn a_terminal_names_a_newer_version_where_it_may_look_for_one() {
    if ["curl", "wget"].iter().all(|name| Command::new(name).arg("--version").output().is_err()) {
        eprintln!("not tested, because neither curl nor wget is here");
        return;
    }
    let home = Home::new();
    let newer = Packages::of("99.0.0", &[GNU, MUSL], true);
    let url = serve(newer.folder());
    let starts = |settings: &str| {
        home.config(&format!("model = \"demo\"\n[upgrade]\n{settings}"));
        let tty = Pty::start(&home, &[], 100, 30);
        tty.ready();
        tty
    };
    let found = home.root().join("cache/aye/newest-version");
    // Not asked for: nothing is looked up.
    starts(&format!("url = \"{url}\"\n")).quit();
    assert!(!found.exists());
    let mut tty = starts(&format!("url = \"{url}\"\ncheck = true\n"));
    tty.shows("aye 99.0.0 is there");
    tty.quit();
    // The same day it is known without asking.
    let mut tty = starts("url = \"http://127.0.0.1:1\"\ncheck = true\n");
    tty.shows("aye 99.0.0 is there");
    tty.quit();
}
