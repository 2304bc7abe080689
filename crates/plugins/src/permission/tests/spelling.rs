//! Rules about files on volumes that take several spellings of a name for one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use aye_core::contract::path_policy::{PathAccess, PathPolicy as _};
use aye_core::contract::spelling::folded;
use aye_files::names::{Mounted, Volumes};
use aye_pattern::shell::analyse;
use aye_pattern::{Looked, Matcher};

use crate::permission::evaluate::path_holds;
use crate::permission::path::{PathRoots, resolve_path};
use crate::permission::reach::{self, RuleOverlap};
use crate::permission::*;

/// The files of this machine, as if every folder ignored case and how letters are composed.
#[derive(Debug)]
struct Folding;

impl Folding {
    fn real(path: &Path) -> Option<PathBuf> {
        let mut at = PathBuf::from("/");
        for name in path.iter().skip(1) {
            let exact = at.join(name);
            let is_one = |entry: &PathBuf| {
                let entry = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
                folded(&entry) == folded(&name.to_string_lossy())
            };
            let mut entries = fs::read_dir(&at).ok()?.flatten().map(|entry| entry.path());
            at = if exact.symlink_metadata().is_ok() { exact } else { entries.find(is_one)? };
        }
        Some(at)
    }
}

impl Volumes for Folding {
    fn id(&self, path: &Path) -> Option<(u64, u64)> {
        Mounted.id(&Folding::real(path)?)
    }

    fn entries(&self, folder: &Path) -> Option<Vec<(OsString, u64)>> {
        Mounted.entries(&Folding::real(folder)?)
    }

    fn setting(&self, _: &Path) -> Option<bool> {
        None
    }
}

fn rules(deny: &[&str]) -> RuleSet {
    RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Deny, deny).unwrap()
}

fn project(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for file in files {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x").unwrap();
    }
    (dir, root)
}

fn places<'a>(root: &'a Path, volumes: &'static dyn Volumes) -> PathRoots<'a> {
    PathRoots { cwd: root, workspace: root, home: None, volumes }
}

#[test]
fn a_deny_covers_every_spelling_that_names_the_file() {
    let (_dir, root) = project(&[".env", "Src/KEY", "caf\u{e9}/x", "other/.ENV"]);
    let denied = |volumes, rule: &str, path: &str| {
        let policy = FileRules::of(&rules(&[rule]), &places(&root, volumes));
        policy.restriction(&root.join(path), PathAccess::Write).is_some()
    };
    for (rule, path) in [
        ("Read(.env)", ".ENV"),
        ("Read(.env)", "other/.ENV"),
        ("Read(.ENV)", ".env"),
        ("Read(src/**)", "SRC/key"),
        ("Read(src/**)", "Src/new"),
        ("Read(file_path = \"src/key\")", "Src/KEY"),
        ("Read(file_path =~ \"key$\")", "Src/KEY"),
        ("Read(cafe\u{301}/**)", "caf\u{e9}/x"),
        ("Read(caf\u{e9})", "CAFE\u{301}/x"),
        ("Write(Gen/*.rs)", "gen/a.RS"),
        ("Write(new/**)", "New/a/b"),
    ] {
        assert!(denied(&Folding, rule, path), "{rule} and {path}");
        assert!(!denied(&Mounted, rule, path), "{rule} and {path}, which is another file here");
    }
    assert!(!denied(&Folding, "Read(.env)", ".ENVX"));
}

#[test]
fn an_allow_of_all_but_a_folder_does_not_reach_it_in_another_spelling() {
    let (_dir, root) = project(&["Secret/a", "SECRET2"]);
    let matcher = Matcher::glob("secret/**").unwrap();
    let looked = Looked { key: Some("file_path"), text: "", matcher: &matcher, negated: true };
    let permits = |volumes, path: &str| {
        let seen = resolve_path(path, &places(&root, volumes)).unwrap();
        seen.forms.iter().all(|forms| path_holds(&looked, forms, true))
    };
    assert!(!permits(&Folding, "Secret/a") && !permits(&Folding, "SECRET/A"));
    assert!(permits(&Folding, "SECRET2"));
    assert!(permits(&Mounted, "Secret/a"));
}

#[test]
fn an_allow_is_compared_with_the_name_that_the_folder_stores() {
    let (_dir, root) = project(&["Src/Main.rs"]);
    let views = |path: &str| resolve_path(path, &places(&root, &Folding)).unwrap().views;
    assert_eq!(views("SRC/main.rs"), [root.join("SRC/main.rs"), root.join("Src/Main.rs")]);
    assert_eq!(views("Src/Main.rs"), [root.join("Src/Main.rs")]);
    // A path to the workspace itself in another spelling leads into it.
    let upper = root.to_string_lossy().to_uppercase();
    let seen = resolve_path(&format!("{upper}/src/main.rs"), &places(&root, &Folding)).unwrap();
    assert!(seen.views.contains(&root.join("Src/Main.rs")), "{:?}", seen.views);
}

#[test]
fn what_a_walk_finds_is_compared_in_every_spelling() {
    let (_dir, root) = project(&[".ENV", "a/.Env", "a/README"]);
    let found = |volumes, path: &str| {
        let policy = FileRules::of(&rules(&["Read(**/.env)"]), &places(&root, volumes));
        policy.below(&root)(&root.join(path), false).is_some()
    };
    assert!(found(&Folding, ".ENV") && found(&Folding, "a/.Env") && !found(&Folding, "a/README"));
    assert!(!found(&Mounted, ".ENV") && !found(&Mounted, "a/.Env"));
}

#[test]
fn a_command_names_a_file_in_any_spelling() {
    let (_dir, root) = project(&[".env"]);
    let set = rules(&["Read(.env)"]);
    let denied = |volumes, line: &str| {
        let named = reach::named(&analyse(line), &places(&root, volumes), None);
        matches!(reach::meets(&set.rules()[0], &named), RuleOverlap::Yes(_))
    };
    assert!(denied(&Folding, "cat .ENV") && denied(&Folding, "cat <.eNv"));
    assert!(!denied(&Folding, "cat .ENVX") && !denied(&Mounted, "cat .ENV"));
}
