//! A skill, in a folder or compiled in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use aye_files::opener::FilePlace;
use sha2::{Digest, Sha256};

use super::front_matter::{self, MAX_FILE, Severity, SkillDoc, SkillIssue, SkillMeta};

/// Files of one skill that count for its hash; with more it cannot be vouched for.
const MAX_FILES: usize = 512;
/// Bytes of one skill that count for its hash.
const MAX_BYTES: u64 = 16 << 20;

/// Why something of a skill cannot be used. The model reads it.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// The skill has no file of that name.
    #[error("skill `{skill}` has no `{path}`{}", if known.is_empty() { String::new() } else { format!("; it has: {}", known.join(", ")) })]
    NotFound { skill: String, path: String, known: Vec<String> },
    /// The path leads out of the skill, or could.
    #[error("`{path}` leads out of the skill's folder; give a path inside it such as references/guide.md")]
    Escapes { path: String },
    /// Only files below `scripts/` run.
    #[error("`{path}` is not in scripts/; only scripts there can run")]
    NotAScript { path: String },
    /// Files below `scripts/` are run, not read.
    #[error("`{path}` is a script; run it with the tool skill_script")]
    IsAScript { path: String },
    /// No interpreter is known for the script.
    #[error("`{path}` has an unknown extension; expected .sh, .py or .js")]
    NoInterpreter { path: String },
    /// The file cannot be used: it changed since it was found, or a built-in skill is invalid.
    #[error("{issue}")]
    Broken {
        /// What is wrong with the file.
        issue: SkillIssue,
    },
    /// The folder contains more than can be vouched for.
    #[error("the skill's folder contains more than {MAX_FILES} files or {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    /// The file system says no.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A file of a skill, cut at the size that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its path inside the skill, with `/`.
    pub path: String,
    /// The content, or the start of it.
    pub bytes: Vec<u8>,
    /// Bytes that the whole file has.
    pub size: u64,
}

/// The interpreter of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpreter {
    /// `.sh`
    Bash,
    /// `.py`
    Python,
    /// `.js`
    Node,
}

impl Interpreter {
    /// The interpreter for a file name, by its ending.
    pub fn of(path: &str) -> Option<Self> {
        match Path::new(path).extension()?.to_str()? {
            "sh" => Some(Self::Bash),
            "py" => Some(Self::Python),
            "js" => Some(Self::Node),
            _ => None,
        }
    }

    /// The program to start.
    pub fn program(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Python => "python3",
            Self::Node => "node",
        }
    }

    /// The flag that takes a program text.
    fn text_flag(self) -> &'static str {
        match self {
            Self::Bash | Self::Python => "-c",
            Self::Node => "-e",
        }
    }
}

/// A script that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its path inside the skill, with `/`.
    pub path: String,
    pub interpreter: Interpreter,
    /// The location of the script's text.
    pub source: ScriptSource,
}

/// The location of a script's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptSource {
    /// In a file of the skill's folder, which is then the working directory.
    File {
        /// The file, links resolved.
        file: PathBuf,
        /// The skill's folder, links resolved.
        dir: PathBuf,
    },
    /// Compiled in; it runs in the folder that the run works in.
    Text(String),
}

impl Script {
    /// The arguments of the interpreter before those of the caller.
    pub fn arguments(&self) -> Vec<String> {
        match &self.source {
            ScriptSource::File { file, .. } => vec![file.to_string_lossy().into_owned()],
            ScriptSource::Text(text) => {
                let mut arguments = vec![self.interpreter.text_flag().to_owned(), text.clone()];
                match self.interpreter {
                    // Bash takes the word after the text as `$0`.
                    Interpreter::Bash => arguments.push(self.path.clone()),
                    Interpreter::Node => arguments.push("--".to_owned()),
                    Interpreter::Python => {}
                }
                arguments
            }
        }
    }
}

/// A folder of instructions, resources and scripts, wherever it is stored.
pub trait Skill: Send + Sync {
    /// The front matter, as it was when the skill was found.
    fn meta(&self) -> &SkillMeta;

    /// The instructions, literally, as they are now.
    fn instructions(&self) -> Result<String, SkillError>;

    /// Its folder, links resolved; `None` for one that is compiled in.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// A regular file of the skill outside of `scripts/`, at most `max` bytes of it. Links are followed only inside the
    /// skill.
    fn resource(&self, path: &str, max: u64) -> Result<Resource, SkillError>;

    /// A script below `scripts/`; `path` may leave that folder out.
    fn script(&self, path: &str) -> Result<Script, SkillError>;

    /// The files beside `SKILL.md`, sorted, with `/`, at most a few hundred.
    fn files(&self) -> Vec<String>;

    /// Returns a hash over all files; the user's consent applies to one content only.
    fn content_hash(&self) -> Result<String, SkillError>;

    /// Returns the skill's location: a folder, or `built in`.
    fn location(&self) -> String;
}

/// Takes `./a//b` apart; refuses what leads or could lead out of the folder.
pub(super) fn inner_path(path: &str) -> Result<String, SkillError> {
    let escapes = || SkillError::Escapes { path: path.to_owned() };
    if path.contains(['\0', '\\']) || path.trim().is_empty() {
        return Err(escapes());
    }
    let mut parts = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str().ok_or_else(escapes)?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(escapes()),
        }
    }
    if parts.is_empty() { Err(escapes()) } else { Ok(parts.join("/")) }
}

/// The path of a script below `scripts/`, and what runs it.
fn script_path(path: &str) -> Result<(String, Interpreter), SkillError> {
    let inner = inner_path(path)?;
    let inner = match inner.split_once('/') {
        Some(("scripts", _)) => inner,
        None => format!("scripts/{inner}"),
        Some(_) => return Err(SkillError::NotAScript { path: path.to_owned() }),
    };
    let interpreter =
        Interpreter::of(&inner).ok_or_else(|| SkillError::NoInterpreter { path: path.to_owned() })?;
    Ok((inner, interpreter))
}

/// A skill in a folder.
#[derive(Clone, Debug)]
pub struct FsSkill {
    meta: SkillMeta,
    dir: PathBuf,
    name: String,
    links: LinkPolicy,
}

/// Says of a file to which a link of a project leads whether it may be read.
pub type MayFollow = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// The links that are followed below a root of skills.
#[derive(Clone)]
pub(crate) enum LinkPolicy {
    /// All: the folder is the user's own.
    All,
    /// Those that stay inside a folder, whose path has its links resolved.
    Inside {
        boundary: PathBuf,
        /// The root itself, unless it is reached through a link. What is elsewhere may be kept from being read.
        root: Option<PathBuf>,
        may_follow: MayFollow,
    },
}

impl fmt::Debug for LinkPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("All"),
            Self::Inside { boundary, .. } => f.debug_tuple("Inside").field(boundary).finish(),
        }
    }
}

impl LinkPolicy {
    /// Links that stay inside a folder, whose path has its links resolved.
    pub(crate) fn inside(folder: PathBuf) -> Self {
        Self::Inside { root: Some(folder.clone()), boundary: folder, may_follow: Arc::new(|_| true) }
    }

    pub(crate) fn reach(&self, real: &Path) -> bool {
        match self {
            Self::All => true,
            Self::Inside { boundary, .. } => real.starts_with(boundary),
        }
    }

    /// Returns why a file is not read.
    fn refusal(&self, real: &Path) -> Option<&'static str> {
        match self {
            Self::Inside { .. } if !self.reach(real) => Some("links out of the project; not followed"),
            Self::Inside { root, may_follow, .. }
                if !root.as_ref().is_some_and(|root| real.starts_with(root)) && !may_follow(real) =>
            {
                Some("links to a file that rules keep from being read; not followed")
            }
            Self::All | Self::Inside { .. } => None,
        }
    }
}

/// The skills found below a folder.
#[derive(Debug, Default)]
pub struct FsDiscovery {
    /// Skills that can be used, by the order of their folders.
    pub skills: Vec<FsSkill>,
    /// Errors and warnings, including those of skills that are left out.
    pub warnings: Vec<SkillIssue>,
}

impl FsSkill {
    /// Finds the skills below a folder: each folder in it that has a `SKILL.md`. The walk is bounded.
    ///
    /// # Errors
    /// If the folder cannot be read. Problems of single skills are warnings.
    pub fn discover(root: impl AsRef<Path>) -> Result<FsDiscovery, SkillError> {
        super::discover::walk(root.as_ref(), None)
    }

    /// The skills as what a registry takes.
    pub fn into_arc_skills(skills: Vec<Self>) -> Vec<Arc<dyn Skill>> {
        skills.into_iter().map(|skill| Arc::new(skill) as Arc<dyn Skill>).collect()
    }

    /// Reads the skill in a folder, whose path must have its links resolved. `name` is the name that the folder has in
    /// its root, where it may be a link.
    pub(crate) fn load(dir: &Path, name: &str, links: &LinkPolicy) -> (Option<Self>, Vec<SkillIssue>) {
        let of = |doc: SkillDoc| Self {
            meta: doc.meta,
            dir: dir.to_path_buf(),
            name: name.to_owned(),
            links: links.clone(),
        };
        match read_doc(dir, name, links) {
            Ok((doc, issues)) => (Some(of(doc)), issues),
            Err(issues) => (None, issues),
        }
    }

    /// The folders that the skill's files may be in: its own, and the one that the user keeps its `SKILL.md` in.
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.dir.clone()];
        if matches!(self.links, LinkPolicy::All)
            && let Ok(doc) = self.dir.join(DOC).canonicalize()
            && let Some(kept) = doc.parent().filter(|kept| *kept != self.dir)
        {
            folders.push(kept.to_path_buf());
        }
        folders
    }

    /// The skill's folder, links resolved.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn find(&self, inner: &str) -> Result<PathBuf, SkillError> {
        let not_found = || SkillError::NotFound {
            skill: self.meta.name.clone(),
            path: inner.to_owned(),
            known: self.files(),
        };
        let real = self.dir.join(inner).canonicalize().map_err(|_| not_found())?;
        let is_inside = match inner {
            DOC => self.links.refusal(&real).is_none(),
            _ => self.folders().iter().any(|folder| real.starts_with(folder)),
        };
        if !is_inside {
            return Err(SkillError::Escapes { path: inner.to_owned() });
        }
        if real.is_file() { Ok(real) } else { Err(not_found()) }
    }

    /// Returns whether a file is below `scripts/`, in one of the skill's folders.
    fn is_script(&self, file: &Path) -> bool {
        self.folders().iter().any(|folder| file.starts_with(folder.join("scripts")))
    }

    /// All files with their sizes, hidden ones too, as paths inside the skill.
    fn walk_files(&self) -> Result<BTreeMap<String, u64>, SkillError> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.dir.clone()];
        let kept = self.folders().into_iter().nth(1);
        let mut linked = BTreeSet::new();
        let mut bytes = 0;
        while let Some(folder) = folders.pop() {
            let read = |source| SkillError::Read { path: folder.clone(), source };
            for entry in fs::read_dir(&folder).map_err(read)? {
                let entry = entry.map_err(read)?;
                let kind = entry.file_type().map_err(read)?;
                // A linked folder beside the linked `SKILL.md` has files of the skill, each folder once.
                let mut is_linked = || {
                    let real = entry.path().canonicalize().ok().filter(|real| real.is_dir());
                    let kept = kept.as_ref();
                    real.is_some_and(|real| {
                        kept.is_some_and(|kept| real.starts_with(kept) && real != *kept)
                            && linked.insert(real)
                    })
                };
                if kind.is_dir() || (kind.is_symlink() && is_linked()) {
                    folders.push(entry.path());
                } else {
                    // A link counts by its own path here; its target's bytes are hashed when it stays inside.
                    let size = entry.path().metadata().map_or(0, |meta| meta.len());
                    bytes += size;
                    let inner =
                        entry.path().strip_prefix(&self.dir).map(|path| path.to_string_lossy().into_owned());
                    files.insert(inner.unwrap_or_default(), size);
                }
                if files.len() + folders.len() > MAX_FILES || bytes > MAX_BYTES {
                    return Err(SkillError::TooLarge);
                }
            }
        }
        Ok(files)
    }
}

/// The file that makes a folder a skill.
pub(crate) const DOC: &str = "SKILL.md";

/// Opens a file by the path whose links were resolved and which was found to be inside: no link is followed that was made
/// since.
fn open_checked(real: &Path) -> io::Result<File> {
    FilePlace::of(real)?.open_regular()
}

/// Reads and checks `SKILL.md` of a folder.
fn read_doc(
    dir: &Path,
    name: &str,
    links: &LinkPolicy,
) -> Result<(SkillDoc, Vec<SkillIssue>), Vec<SkillIssue>> {
    let path = dir.join(DOC);
    let fail = |line, message: String| {
        Err(vec![SkillIssue { path: path.clone(), line, severity: Severity::Error, message }])
    };
    let real = match path.canonicalize() {
        Ok(real) if !real.is_file() => return fail(0, "is not a file".into()),
        Ok(real) => real,
        Err(error) => return fail(0, format!("cannot be read: {error}")),
    };
    if let Some(why) = links.refusal(&real) {
        return fail(0, why.into());
    }
    let mut bytes = Vec::new();
    if let Err(error) = open_checked(&real).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)) {
        return fail(0, format!("cannot be read: {error}"));
    }
    if bytes.len() as u64 > MAX_FILE {
        return fail(0, format!("is larger than {} KiB; move parts of it into references/", MAX_FILE / 1024));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..valid].split(|byte| *byte == b'\n').count();
            return fail(line, "is not UTF-8 text".into());
        }
    };
    let parsed = front_matter::parse(&path, &text, Some(name));
    match parsed.doc {
        Some(doc) => Ok((doc, parsed.issues)),
        None => Err(parsed.issues),
    }
}

impl Skill for FsSkill {
    fn meta(&self) -> &SkillMeta {
        &self.meta
    }

    fn instructions(&self) -> Result<String, SkillError> {
        match read_doc(&self.dir, &self.name, &self.links) {
            Ok((doc, _)) => Ok(doc.instructions),
            Err(issues) => {
                let issue = issues.into_iter().max_by_key(|issue| issue.severity);
                Err(issue.map_or(SkillError::TooLarge, |issue| SkillError::Broken { issue }))
            }
        }
    }

    fn resource(&self, path: &str, max: u64) -> Result<Resource, SkillError> {
        let inner = inner_path(path)?;
        let file = self.find(&inner)?;
        if self.is_script(&file) {
            return Err(SkillError::IsAScript { path: path.to_owned() });
        }
        let read = |source| SkillError::Read { path: file.clone(), source };
        let opened = open_checked(&file).map_err(read)?;
        let size = opened.metadata().map_err(read)?.len();
        let mut bytes = Vec::new();
        opened.take(max).read_to_end(&mut bytes).map_err(read)?;
        Ok(Resource { path: inner, bytes, size })
    }

    fn script(&self, path: &str) -> Result<Script, SkillError> {
        let (inner, interpreter) = script_path(path)?;
        let file = self.find(&inner)?;
        // A link inside scripts/ must not turn any other file of the skill into a program.
        if !self.is_script(&file) {
            return Err(SkillError::NotAScript { path: path.to_owned() });
        }
        Ok(Script { path: inner, interpreter, source: ScriptSource::File { file, dir: self.dir.clone() } })
    }

    fn files(&self) -> Vec<String> {
        let files = self.walk_files().unwrap_or_default();
        files.into_keys().filter(|path| path != DOC && !path.starts_with('.')).collect()
    }

    fn content_hash(&self) -> Result<String, SkillError> {
        let mut hash = ContentHash::default();
        for (inner, _) in self.walk_files()? {
            let path = self.dir.join(&inner);
            // An entry that is not a file inside the folder (a dangling or leaving link, a pipe) is hashed by
            // name only and not read.
            let bytes = match self.find(&inner) {
                Ok(file) => {
                    let mut bytes = Vec::new();
                    let read = open_checked(&file).and_then(|mut file| file.read_to_end(&mut bytes));
                    read.map_err(|source| SkillError::Read { path, source })?;
                    bytes
                }
                Err(_) => Vec::new(),
            };
            hash.add(&inner, &bytes);
        }
        Ok(hash.finish())
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn location(&self) -> String {
        self.dir.display().to_string()
    }
}

#[derive(Default)]
struct ContentHash(Sha256);

impl ContentHash {
    fn add(&mut self, path: &str, bytes: &[u8]) {
        // Lengths first, so that no two lists of files read the same.
        for part in [path.as_bytes(), bytes] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    fn finish(self) -> String {
        format!("{:x}", self.0.finalize())
    }
}

/// The parts of a skill that is compiled in.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedSkillData<'a> {
    /// The whole `SKILL.md`.
    pub skill_md: &'a str,
    /// References: path inside the skill, text.
    pub references: &'a [(&'a str, &'a str)],
    /// Assets: path inside the skill, bytes.
    pub assets: &'a [(&'a str, &'a [u8])],
}

/// A skill that is compiled in.
#[derive(Clone, Debug)]
pub struct EmbeddedSkill {
    doc: SkillDoc,
    files: BTreeMap<String, Vec<u8>>,
    skill_md: String,
}

impl EmbeddedSkill {
    /// Reads the parts. Paths without a folder are put below `references/` and `assets/`.
    ///
    /// # Errors
    /// The first thing that is wrong with its `SKILL.md`.
    pub fn new(data: &EmbeddedSkillData<'_>) -> Result<Self, SkillError> {
        let parsed = front_matter::parse(Path::new("SKILL.md"), data.skill_md, None);
        let Some(doc) = parsed.doc else {
            let issue = parsed.issues.into_iter().max_by_key(|issue| issue.severity);
            return Err(issue.map_or(SkillError::TooLarge, |issue| SkillError::Broken { issue }));
        };
        let below = |folder: &str, path: &str| {
            if path.contains('/') { path.to_owned() } else { format!("{folder}/{path}") }
        };
        let references =
            data.references.iter().map(|(path, text)| (below("references", path), text.as_bytes().to_vec()));
        let assets = data.assets.iter().map(|(path, bytes)| (below("assets", path), bytes.to_vec()));
        Ok(Self { doc, files: references.chain(assets).collect(), skill_md: data.skill_md.to_owned() })
    }

    /// Adds scripts: name below `scripts/`, text.
    #[must_use]
    pub fn with_scripts(mut self, scripts: &[(&str, &str)]) -> Self {
        for (name, text) in scripts {
            self.files.insert(format!("scripts/{name}"), text.as_bytes().to_vec());
        }
        self
    }

    fn find(&self, inner: &str) -> Result<&[u8], SkillError> {
        self.files.get(inner).map(Vec::as_slice).ok_or_else(|| SkillError::NotFound {
            skill: self.doc.meta.name.clone(),
            path: inner.to_owned(),
            known: self.files(),
        })
    }
}

impl Skill for EmbeddedSkill {
    fn meta(&self) -> &SkillMeta {
        &self.doc.meta
    }

    fn instructions(&self) -> Result<String, SkillError> {
        Ok(self.doc.instructions.clone())
    }

    fn resource(&self, path: &str, max: u64) -> Result<Resource, SkillError> {
        let inner = inner_path(path)?;
        let all = self.find(&inner)?;
        if inner.starts_with("scripts/") {
            return Err(SkillError::IsAScript { path: path.to_owned() });
        }
        let end = usize::try_from(max).unwrap_or(usize::MAX).min(all.len());
        Ok(Resource { bytes: all[..end].to_vec(), size: all.len() as u64, path: inner })
    }

    fn script(&self, path: &str) -> Result<Script, SkillError> {
        let (inner, interpreter) = script_path(path)?;
        let text = String::from_utf8_lossy(self.find(&inner)?).into_owned();
        Ok(Script { path: inner, interpreter, source: ScriptSource::Text(text) })
    }

    fn files(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    fn content_hash(&self) -> Result<String, SkillError> {
        let mut hash = ContentHash::default();
        hash.add("SKILL.md", self.skill_md.as_bytes());
        for (path, bytes) in &self.files {
            hash.add(path, bytes);
        }
        Ok(hash.finish())
    }

    fn location(&self) -> String {
        "built in".to_owned()
    }
}
