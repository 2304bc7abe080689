//! `aye upgrade`: installs the newest version, or says how whoever installed this one does that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use clap::Args;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::contract::display::visible;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::put;

/// Looks for packages, checks their sum and replaces a program in one step.
const SCRIPT: &str = include_str!("../../install.sh");

/// `aye upgrade`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  aye upgrade --check")]
pub struct UpgradeArgs {
    /// Say whether there is a newer version, and install nothing
    #[arg(long)]
    pub check: bool,
}

/// How the program was installed.
#[derive(Debug, PartialEq, Eq)]
enum Installer {
    /// From an archive: no package manager knows it.
    Archive,
    /// This command upgrades it.
    Manager(&'static str),
}

impl Installer {
    /// Tells it from the place of the program. `system` is the root of the file system.
    fn of(program: &Path, system: &Path) -> Self {
        let has = |path: &str| system.join(path).exists();
        let is_below = |name: &str| program.components().any(|part| part.as_os_str() == name);
        let folder = program.parent().unwrap_or(Path::new("/"));
        if is_below("node_modules") {
            return Self::Manager("npm install -g aye-cli@latest");
        }
        if is_below("Cellar") {
            return Self::Manager("brew upgrade aye");
        }
        if program.starts_with(system.join("nix/store")) {
            return Self::Manager("nix profile upgrade aye");
        }
        if is_of_pip(folder) {
            return Self::Manager("pip install --upgrade aye-cli");
        }
        // Cargo puts what it builds there, and what it installs beside its list.
        if folder.join("deps").is_dir() || is_of_cargo(folder) {
            return Self::Manager(
                "git pull && cargo install --locked --path .   # in your clone of the repository",
            );
        }
        if folder == system.join("usr/bin") {
            if has("var/lib/dpkg/info/aye.list") {
                return Self::Manager("sudo apt install ./aye_VERSION_ARCHITECTURE.deb");
            }
            let pacman = fs::read_dir(system.join("var/lib/pacman/local"));
            let is_of_pacman = |entry: io::Result<fs::DirEntry>| {
                entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("aye-"))
            };
            if pacman.is_ok_and(|mut entries| entries.any(is_of_pacman)) {
                return Self::Manager("makepkg -si   # with the PKGBUILD of the new version");
            }
            if has("var/lib/rpm") || has("usr/lib/sysimage/rpm") {
                return Self::Manager("sudo dnf install ./aye-VERSION.ARCHITECTURE.rpm");
            }
        }
        Self::Archive
    }
}

fn is_of_pip(bin: &Path) -> bool {
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let Some(environment) = bin.parent() else { return false };
    entries(environment.join("lib"))
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python"))
        .flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.path().join(name)))
        .flat_map(entries)
        .any(|entry| entry.file_name().to_string_lossy().starts_with("aye_cli-"))
}

fn is_of_cargo(bin: &Path) -> bool {
    let list = bin.parent().map(|root| fs::read_to_string(root.join(".crates.toml")));
    list.is_some_and(|list| list.is_ok_and(|list| list.contains("\"aye ")))
}

/// Carries out the command.
pub(crate) async fn run(args: &UpgradeArgs, foundation: &Foundation) -> Result<u8, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot tell where this program is: {error}")))?;
    if let Installer::Manager(command) = Installer::of(&program, Path::new("/")) {
        return put(&format!(
            "{} was not installed from an archive. To upgrade it:\n  {command}\n",
            visible(&program.to_string_lossy())
        ))
        .map(|()| 0);
    }
    let Some(url) = &foundation.loaded.settings.upgrade.url else {
        return Err(Failure::usage(
            "aye doesn't know where its packages are; set `upgrade.url` to their address in your config.toml, or install one \
             with `sh install.sh`",
        ));
    };
    let found = script(&["--newest", url]).await?;
    let newest = found.trim();
    let current = env!("CARGO_PKG_VERSION");
    if !is_newer(newest, current) {
        return put(&format!("aye {current} is the newest version: {url} has {}\n", visible(newest)))
            .map(|()| 0);
    }
    if args.check {
        return put(&format!("aye {newest} is there; this is {current}. `aye upgrade` installs it\n"))
            .map(|()| 0);
    }
    let folder = program.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let done = script(&["--to", &folder, url]).await?;
    put(&visible(&done)).map(|()| 0)
}

/// Runs the installer and returns what it printed.
async fn script(args: &[&str]) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("the installer cannot be run: {error}"));
    let mut shell = Command::new("/bin/sh")
        .args(["-s", "--"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = shell.stdin.take() {
        stdin.write_all(SCRIPT.as_bytes()).await.map_err(failed)?;
    }
    let Output { status, stdout, stderr } = shell.wait_with_output().await.map_err(failed)?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&stderr).replace("install.sh: ", "");
    Err(Failure::failed(visible(why.trim_end())))
}

/// Whether a version comes after another; what is no version does not.
fn is_newer(version: &str, than: &str) -> bool {
    let parts = |text: &str| {
        let parts: Option<Vec<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
        parts.filter(|parts| parts.len() == 3)
    };
    matches!((parts(version), parts(than)), (Some(version), Some(than)) if version > than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_installed_it_is_told_from_its_place() {
        let of = |program: &str, files: &[&str]| {
            let system = tempfile::tempdir().unwrap();
            for file in files.iter().chain([&program]) {
                let path = system.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "[v1]\n\"aye 0.2.0 (path+file:///aye)\" = [\"aye\"]\n").unwrap();
            }
            match Installer::of(&system.path().join(program), system.path()) {
                Installer::Archive => "archive",
                Installer::Manager(command) => command.split(' ').next().unwrap(),
            }
        };
        assert_eq!(of("home/me/.local/bin/aye", &[]), "archive");
        assert_eq!(of("usr/local/bin/aye", &["var/lib/dpkg/info/aye.list"]), "archive");
        assert_eq!(of("usr/bin/aye", &["var/lib/dpkg/info/aye.list"]), "sudo");
        assert_eq!(of("usr/bin/aye", &["var/lib/pacman/local/aye-bin-0.2.0-1/desc"]), "makepkg");
        assert_eq!(of("usr/bin/aye", &["var/lib/rpm/rpmdb.sqlite"]), "sudo");
        assert_eq!(of("usr/lib/node_modules/aye-cli-linux-x64/bin/aye", &[]), "npm");
        assert_eq!(of("opt/Cellar/aye/0.2.0/bin/aye", &[]), "brew");
        assert_eq!(of("nix/store/abc-aye/bin/aye", &[]), "nix");
        assert_eq!(
            of("v/bin/aye", &["v/lib/python3.11/site-packages/aye_cli-0.2.0.dist-info/RECORD"]),
            "pip"
        );
        assert_eq!(of("home/me/.cargo/bin/aye", &["home/me/.cargo/.crates.toml"]), "git");
        assert_eq!(of("src/aye/target/release/aye", &["src/aye/target/release/deps/aye.d"]), "git");
    }

    #[test]
    fn only_a_later_version_is_newer() {
        for (version, than) in [("0.2.1", "0.2.0"), ("0.10.0", "0.9.9"), ("1.0.0", "0.99.99")] {
            assert!(is_newer(version, than) && !is_newer(than, version), "{version} {than}");
        }
        for text in ["0.2.0", "", "latest", "0.3", "0.3.0.1", "0.3.0-rc1"] {
            assert!(!is_newer(text, "0.2.0"), "{text}");
        }
    }
}
