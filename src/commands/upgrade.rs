//! `aye upgrade`: installs the newest version, or says how whoever installed this one does that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::contract::display::visible;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::installer::{is_newer, script};
use crate::program::put;

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
}
