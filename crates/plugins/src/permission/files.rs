//! The rules about files, as one value for everything that reads or writes them.
//!
//! A rule about `Read` that denies or asks binds whatever reads the file: Grep, Glob, List, Edit, Write,
//! mentions, attachments and commands. One about `Edit` or `Write` binds whatever writes it. An allow never
//! extends to another tool, so this value contains none.

use super::evaluate::path_holds;
use super::path::{self, Forms, PathRoots};
use super::rules::{Rule, RuleSet, ToolPermissionBehavior as Behavior};
use aye_core::contract::path_policy::{PathAccess, PathCheck, PathPolicy, PathRestriction};
use aye_core::contract::spelling;
use aye_files::known::KnownFiles;
use aye_files::names::Volumes;
use aye_pattern::{Args, Quantifier};
use regex::Regex;
use serde_json::{Value, json};
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The argument of Read, Edit and Write that their rules are about.
const KEY: &str = "file_path";

/// The tools whose rules speak about an access.
fn speakers(access: PathAccess) -> &'static [&'static str] {
    match access {
        PathAccess::Read => &["Read"],
        PathAccess::Write => &["Read", "Edit", "Write"],
    }
}

/// Returns whether a deny or ask rule binds an access to a file, or to a folder, which represents everything
/// in it.
pub(super) fn binds(rule: &Rule, access: PathAccess, forms: &[Forms], is_folder: bool) -> bool {
    rule.behavior != Behavior::Allow
        && speakers(access)
            .iter()
            .any(|tool| rule.pattern.matches_tool(tool) && matches(rule, tool, forms, is_folder))
}

/// Returns whether a rule could bind a call of another tool because of the files in it.
pub(super) fn may_bind(rule: &Rule, tool: &str) -> bool {
    rule.behavior != Behavior::Allow
        && matches!(tool, "Read" | "Edit" | "Write" | "List" | "Glob" | "Grep" | "Bash")
        && speakers(PathAccess::Write).iter().any(|speaker| rule.pattern.matches_tool(speaker))
}

fn matches(rule: &Rule, tool: &str, forms: &[Forms], is_folder: bool) -> bool {
    // The forms are compared: the text only shows that the argument exists.
    let args: Value = json!({ KEY: forms.first().map_or("", |forms| forms.absolute.as_str()) });
    rule.pattern.matches_by(tool, &args, Some(KEY), Quantifier::One, &mut |looked| {
        if looked.key != Some(KEY) {
            return looked.holds();
        }
        let holds = |forms: &Forms| path_holds(&looked, forms, false);
        if is_folder {
            // A rule about everything but some files says nothing about the folder that they lie in.
            !looked.negated && forms.iter().any(|forms| holds(forms) || holds(&forms.inside()))
        } else {
            forms.iter().any(holds)
        }
    })
}

/// A rule as a restriction.
fn restriction(rule: &Rule) -> PathRestriction {
    PathRestriction {
        is_denied: rule.behavior == Behavior::Deny,
        why: format!("{} by rule `{}` ({})", rule.behavior.verb(), rule.pattern, rule.origin),
    }
}

/// Deny and ask rules about files, seen from a folder.
#[derive(Debug, Clone)]
pub struct FileRules {
    rules: Vec<Arc<Rule>>,
    cwd: PathBuf,
    workspace: PathBuf,
    home: Option<PathBuf>,
    volumes: &'static dyn Volumes,
    known: Arc<KnownFiles>,
    sieves: Arc<Sieves>,
}

impl FileRules {
    /// Those of a set.
    pub fn of(rules: &RuleSet, places: &PathRoots<'_>) -> FileRules {
        let speaks = |rule: &&Arc<Rule>| {
            rule.behavior != Behavior::Allow
                && speakers(PathAccess::Write).iter().any(|tool| rule.pattern.matches_tool(tool))
        };
        FileRules {
            rules: rules.rules().iter().filter(speaks).cloned().collect(),
            cwd: places.cwd.to_owned(),
            workspace: places.workspace.to_owned(),
            home: places.home.map(Path::to_owned),
            volumes: places.volumes,
            known: Arc::default(),
            sieves: Arc::default(),
        }
    }

    /// The same rules, which also bind the known files under other names.
    #[must_use]
    pub fn knowing(self, known: Arc<KnownFiles>) -> FileRules {
        FileRules { known, ..self }
    }

    fn places(&self) -> PathRoots<'_> {
        let home = self.home.as_deref();
        PathRoots { cwd: &self.cwd, workspace: &self.workspace, home, volumes: self.volumes }
    }

    pub(super) fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Returns whether these are the same rules.
    pub(super) fn is_of(&self, rules: &[Arc<Rule>]) -> bool {
        are_same(&self.rules, rules)
    }

    /// The strictest rule against an access.
    fn strictest(&self, access: PathAccess, forms: &[Forms], is_folder: bool) -> Option<&Arc<Rule>> {
        let found = self.rules.iter().filter(|rule| binds(rule, access, forms, is_folder));
        found.max_by_key(|rule| (rule.behavior, rule.pattern.specificity()))
    }

    /// Returns whether a rule restricts reading the file that these forms name.
    pub(super) fn restricts_reading(&self, forms: &[Forms]) -> bool {
        self.strictest(PathAccess::Read, forms, false).is_some()
    }

    /// Returns the strictest rule against reading a file; none if the text cannot be a path.
    pub(super) fn against_reading(&self, text: &str) -> Option<&Arc<Rule>> {
        let seen = path::resolve_path(text, &self.places()).ok()?;
        self.strictest(PathAccess::Read, &seen.forms, false)
    }

    /// The check of the entries below a folder, without the rules that ask about the folder itself.
    pub(super) fn inside(&self, folder: &Path) -> Inside {
        let real = path::resolve(folder).0;
        let workspace = path::resolve(&self.workspace).0;
        let mut roots = vec![folder.to_owned()];
        if real != folder {
            roots.push(real);
        }
        let forms: Vec<Forms> =
            roots.iter().map(|root| path::forms(root, &self.places(), &workspace)).collect();
        let mut rules = self.clone();
        rules.rules.retain(|rule| {
            rule.pattern.matches_tool("Read")
                && (rule.behavior == Behavior::Deny || !binds(rule, PathAccess::Read, &forms, true))
        });
        let sieve = self.sieves.of(&rules.rules);
        Inside { sieve, rules, access: PathAccess::Read, folder: folder.to_owned(), roots, workspace }
    }

    /// The check of the entries below a folder that rules about Edit or Write deny to change.
    fn unchangeable_inside(&self, folder: &Path) -> Option<Inside> {
        let denies = |rule: &&Arc<Rule>| {
            rule.behavior == Behavior::Deny
                && ["Edit", "Write"].iter().any(|tool| rule.pattern.matches_tool(tool))
                && !rule.pattern.matches_tool("Read")
        };
        let denied: Vec<Arc<Rule>> = self.rules.iter().filter(denies).cloned().collect();
        if denied.is_empty() {
            return None;
        }
        let mut inside = self.inside(folder);
        inside.sieve = self.sieves.of(&denied);
        inside.rules.rules = denied;
        inside.access = PathAccess::Write;
        Some(inside)
    }
}

impl PathPolicy for FileRules {
    fn restriction(&self, path: &Path, access: PathAccess) -> Option<PathRestriction> {
        // A name that is not valid text is looked up by its escaped form.
        let text = aye_core::contract::display::escape_path(path);
        let seen = path::resolve_path(&text, &self.places()).ok()?;
        let known = path::known_forms(&seen.views, &self.known, &self.places());
        let forms = [seen.forms, known].concat();
        self.strictest(access, &forms, false).map(|rule| restriction(rule))
    }

    fn below(&self, folder: &Path) -> PathCheck {
        let inside = self.inside(folder);
        Arc::new(move |path, is_folder| inside.rule(path, is_folder).map(|rule| restriction(rule)))
    }

    fn unchangeable_below(&self, folder: &Path) -> Option<PathCheck> {
        let inside = self.unchangeable_inside(folder)?;
        Some(Arc::new(move |path, is_folder| inside.rule(path, is_folder).map(|rule| restriction(rule))))
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        (&self.cwd, &self.workspace, &self.home).hash(&mut hasher);
        for rule in &self.rules {
            (rule.behavior as u8, rule.pattern.to_string()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The rules for entries below one folder.
pub(super) struct Inside {
    rules: FileRules,
    access: PathAccess,
    sieve: Arc<Sieve>,
    folder: PathBuf,
    roots: Vec<PathBuf>,
    workspace: PathBuf,
}

impl Inside {
    /// The strictest rule against the access to an entry that was found without following links.
    pub(super) fn rule(&self, path: &Path, is_folder: bool) -> Option<&Arc<Rule>> {
        let rest = path.strip_prefix(&self.folder).ok()?;
        let places = self.rules.places();
        let view = |root: &PathBuf| path::forms(&root.join(rest), &places, &self.workspace);
        let forms: Vec<Forms> = self.roots.iter().map(view).collect();
        if !self.sieve.catches(&forms, is_folder) {
            return None;
        }
        self.rules.strictest(self.access, &forms, is_folder)
    }
}

fn are_same(some: &[Arc<Rule>], others: &[Arc<Rule>]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// The sieves made so far. A command sees a dozen folders to which mostly the same rules apply, and
/// making a sieve takes a millisecond.
#[derive(Debug, Default)]
struct Sieves(Mutex<Vec<Arc<Sieve>>>);

impl Sieves {
    fn of(&self, rules: &[Arc<Rule>]) -> Arc<Sieve> {
        let mut sieves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sieve) = sieves.iter().find(|sieve| are_same(&sieve.rules, rules)) {
            return Arc::clone(sieve);
        }
        let sieve = Arc::new(Sieve::of(rules));
        sieves.push(Arc::clone(&sieve));
        sieve
    }
}

/// One expression that matches whatever any of the rules matches, in some spelling: it clears nearly all files at once.
#[derive(Debug)]
struct Sieve {
    rules: Vec<Arc<Rule>>,
    /// None: only the rules themselves know what they match.
    regex: Option<Regex>,
}

impl Sieve {
    fn of(rules: &[Arc<Rule>]) -> Sieve {
        Sieve { rules: rules.to_owned(), regex: Sieve::regex(rules) }
    }

    fn regex(rules: &[Arc<Rule>]) -> Option<Regex> {
        let mut sources: Vec<String> = Vec::new();
        for rule in rules {
            match rule.pattern.args() {
                Args::Primary(matcher) => sources.extend(matcher.covering_sources()),
                Args::All(conditions) => {
                    let plain = conditions.iter().find(|c| !c.negated && c.path.single_key() == Some(KEY));
                    sources.extend(plain?.matcher.covering_sources());
                }
                Args::Any => return None,
            }
        }
        let any = sources.iter().map(|source| format!("(?:{source})")).collect::<Vec<_>>().join("|");
        // No rule at all: an expression that matches nothing.
        Regex::new(if any.is_empty() { r"[^\s\S]" } else { &any }).ok()
    }

    fn catches(&self, forms: &[Forms], is_folder: bool) -> bool {
        let Some(regex) = &self.regex else { return true };
        let texts = |forms: &Forms| {
            let dotted = forms.relative.iter().map(|text| format!("./{text}"));
            let mut texts: Vec<String> =
                forms.relative.iter().chain(&forms.home).cloned().chain(dotted).collect();
            texts.push(forms.absolute.clone());
            texts
        };
        let finds = |text: &str| regex.is_match(text) || is_folder && regex.is_match(&format!("{text}/"));
        let mut texts = forms.iter().flat_map(texts);
        texts.any(|text| finds(&text) || !spelling::is_folded(&text) && finds(&spelling::folded(&text)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::Layer;
    use super::*;
    use aye_files::names::Mounted;

    fn rules(deny: &[&str], ask: &[&str]) -> RuleSet {
        let mut set = RuleSet::from_patterns(Layer::User, Behavior::Deny, deny).unwrap();
        set.join(RuleSet::from_patterns(Layer::User, Behavior::Ask, ask).unwrap());
        set
    }

    fn policy(deny: &[&str], ask: &[&str], root: &Path) -> FileRules {
        FileRules::of(
            &rules(deny, ask),
            &PathRoots { cwd: root, workspace: root, home: None, volumes: &Mounted },
        )
    }

    #[test]
    fn the_stricter_rule_is_reported_and_writing_implies_reading() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let policy = policy(&["Read(**/.env)", "Write(gen/**)"], &["Read(**/.e*)"], &root);
        let at =
            |path: &str, access| policy.restriction(&root.join(path), access).map(|found| found.is_denied);
        assert_eq!(at("a/.env", PathAccess::Read), Some(true));
        assert_eq!(at("a/.env", PathAccess::Write), Some(true));
        assert_eq!(at(".envx", PathAccess::Read), Some(false));
        assert_eq!(at("gen/x", PathAccess::Read), None);
        assert_eq!(at("gen/x", PathAccess::Write), Some(true));
        assert_eq!(at("x", PathAccess::Write), None);
        std::os::unix::fs::symlink(".env", root.join("plain")).unwrap();
        assert_eq!(at("plain", PathAccess::Read), Some(true));
    }

    #[test]
    fn folders_with_the_same_rules_share_a_sieve() {
        let root = Path::new("/w");
        let policy = policy(&["Read(**/.env)", "Write(gen/**)"], &["Read(**/*.pem)", "Read(keys/**)"], root);
        let sieve = |folder: &str| policy.inside(&root.join(folder)).sieve;
        assert!(Arc::ptr_eq(&sieve("src"), &sieve("docs")));
        let copy = policy.clone();
        assert!(Arc::ptr_eq(&sieve("src"), &copy.inside(&root.join("tests")).sieve));
        assert!(!Arc::ptr_eq(&sieve("src"), &sieve("keys")), "the question about the folder was answered");
        let changes = || policy.unchangeable_inside(root).expect("a rule about writing").sieve;
        assert!(Arc::ptr_eq(&changes(), &changes()));
        assert!(!Arc::ptr_eq(&sieve("src"), &changes()));
    }

    #[test]
    fn rules_apply_to_entries_of_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("keys")).unwrap();
        let check = |deny: &[&str], ask: &[&str], folder: &str, path: &str, is_folder| {
            policy(deny, ask, &root).below(&root.join(folder))(&root.join(path), is_folder)
                .map(|r| r.is_denied)
        };
        assert_eq!(check(&["Read(**/.env)"], &[], "", "a/.env", false), Some(true));
        assert_eq!(check(&["Read(**/.env)"], &[], "", "a/b", false), None);
        assert_eq!(check(&["Read(keys/**)"], &[], "", "keys", true), Some(true));
        assert_eq!(check(&["Read(keys)"], &[], "", "keys", true), Some(true));
        for rule in
            ["Read(keys/)", "Read(./keys/)", "Read(**/keys/)", "Read(keys)", "Read(file_path = \"keys/\")"]
        {
            assert_eq!(check(&[rule], &[], "", "keys", true), Some(true), "{rule}");
            assert_eq!(check(&[rule], &[], "", "keys/a", false), Some(true), "{rule}");
            assert_eq!(check(&[rule], &[], "", "keyss/a", false), None, "{rule}");
        }
        assert_eq!(check(&["Read(keys)"], &[], "", "src/keys/a", false), Some(true));
        assert_eq!(check(&["Read(src/keys)"], &[], "", "src/keys/a", false), Some(true));
        assert_eq!(check(&["Read(file_path !~ \"keys/\")"], &[], "", "keys/a", false), Some(true));
        assert_eq!(check(&["Read(file_path =~ \"\\.PEM$\")"], &[], "", "x.PEM", false), Some(true));
        assert_eq!(check(&["Read(file_path !~ \"src/**\")"], &[], "", "src", true), None);
        assert_eq!(check(&["Read(file_path !~ \"src/**\")"], &[], "", "doc/x", false), Some(true));
        assert_eq!(check(&["Read(file_path !~ \"src/**\")"], &[], "", "src/x", false), None);
        // The question about the folder was answered before the search started.
        assert_eq!(check(&[], &["Read(keys/**)"], "keys", "keys/a", false), None);
        assert_eq!(check(&[], &["Read(keys/**)"], "", "keys/a", false), Some(false));
        assert_eq!(check(&[], &["Read"], "", "x", false), None);
        assert_eq!(check(&[], &[], "", "x", false), None);
    }
}
