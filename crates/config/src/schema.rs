//! How the settings describe themselves: each table of [`settings`](super::settings) lists its fields here, and files,
//! flags, trust and the manual read nothing else.

use std::collections::BTreeMap;

use super::kinds::{Kind, OtherKind};
use super::layer::{Key, Values};
use super::settings::Settings;
use aye_core::contract::near::nearest;
use serde_json::Value as Json;
use toml::Value;

/// What a project's settings file may do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProjectMay {
    /// Nothing, trusted or not: endpoints and keys are the user's alone (CVE-2026-21852).
    Never,
    /// Set it once the folder is trusted.
    Set,
    /// Lower it at any time, raise it once the folder is trusted; 0 counts as "no limit".
    Lower,
    /// Choose a stricter word at any time, a less strict one never.
    Tighten,
}

/// One key with a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    /// See [`Kind::expected`].
    pub expected: fn() -> String,
    /// Returns what was found instead of a value of the kind.
    pub check: fn(&Value) -> Result<(), OtherKind>,
    /// See [`Kind::redacted`].
    pub redacted: fn(&Value) -> Value,
    /// See [`Kind::rank`].
    pub rank: fn(&Value) -> Option<u128>,
    is_optional: bool,
}

impl Leaf {
    const fn of<K: Kind>(is_optional: bool) -> Self {
        fn check<K: Kind>(value: &Value) -> Result<(), OtherKind> {
            K::read(value).map(drop)
        }
        let (expected, redacted, rank) = (K::expected, K::redacted, K::rank);
        Self { expected, check: check::<K>, redacted, rank, is_optional }
    }
}

/// A place in the tree of settings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Leaf(Leaf),
    Table(Fields),
    /// A table whose keys are names that the user chooses.
    Named(Fields),
    /// A table with one value for each name that the user chooses.
    Each(Leaf),
}

/// One key of a table.
#[derive(Debug)]
pub(crate) struct SettingField {
    pub name: &'static str,
    pub project: ProjectMay,
    /// The default as TOML.
    pub default: Option<&'static str>,
    pub node: Node,
    doc: &'static str,
}

pub(crate) type Fields = &'static [SettingField];

impl SettingField {
    /// Describes a field. A value without a default must be an `Option`, and only what has a default can be lowered:
    /// both are checked when aye is built.
    pub(crate) const fn new(
        name: &'static str,
        doc: &'static str,
        project: ProjectMay,
        default: Option<&'static str>,
        node: Node,
    ) -> Self {
        if let Node::Leaf(leaf) = node {
            assert!(leaf.is_optional != default.is_some(), "a value is an Option or has a default");
        }
        assert!(
            default.is_some() || matches!(project, ProjectMay::Never | ProjectMay::Set),
            "nothing to lower"
        );
        Self { name, project, default, node, doc }
    }

    /// The doc comment as a cell of the manual's table: no capital at the start and no full stop.
    fn cell(&self) -> String {
        let text = self.doc.trim().trim_end_matches('.');
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
                first.to_lowercase().chain(text.chars().skip(1)).collect()
            }
            _ => text.to_owned(),
        }
    }
}

/// What a field can be: a value, perhaps an optional one, or a table.
pub(crate) trait Part {
    /// What the field holds.
    type Value;
    const NODE: Node;
    /// Collects the part from the values at its key and below.
    fn collect(values: &Values, key: &Key, default: Option<&str>) -> Self::Value;
}

fn read<K: Kind>(values: &Values, key: &Key) -> Option<K::Value> {
    K::read(&values.get(key)?.value).ok()
}

impl<K: Kind> Part for K {
    type Value = K::Value;
    const NODE: Node = Node::Leaf(Leaf::of::<K>(false));
    fn collect(values: &Values, key: &Key, default: Option<&str>) -> K::Value {
        read::<K>(values, key)
            .or_else(|| K::read(&default?.parse().ok()?).ok())
            .expect("a test reads each default")
    }
}

impl<K: Kind> Part for Option<K> {
    type Value = Option<K::Value>;
    const NODE: Node = Node::Leaf(Leaf::of::<K>(true));
    fn collect(values: &Values, key: &Key, _: Option<&str>) -> Self::Value {
        read::<K>(values, key)
    }
}

/// A struct of settings, declared with [`table!`].
pub(crate) trait SettingsTable: Part<Value = Self> + Sized {
    const FIELDS: Fields;
}

/// The names that values directly or deeper below a key have there.
fn names_below(values: &Values, key: &Key) -> Vec<String> {
    let depth = key.0.len();
    let below = values.keys().filter(|other| other.0.len() > depth && other.0.starts_with(&key.0));
    let mut names: Vec<String> = below.map(|other| other.0[depth].clone()).collect();
    names.dedup();
    names
}

impl<T: SettingsTable> Part for BTreeMap<String, T> {
    type Value = Self;
    const NODE: Node = Node::Named(T::FIELDS);
    fn collect(values: &Values, key: &Key, _: Option<&str>) -> Self {
        let entry = |name: String| (name.clone(), T::collect(values, &key.with(&name), None));
        names_below(values, key).into_iter().map(entry).collect()
    }
}

impl Part for BTreeMap<String, Json> {
    type Value = Self;
    const NODE: Node = Node::Each(Leaf::of::<Json>(true));
    fn collect(values: &Values, key: &Key, _: Option<&str>) -> Self {
        let entry = |name: String| Some((name.clone(), read::<Json>(values, &key.with(&name))?));
        names_below(values, key).into_iter().filter_map(entry).collect()
    }
}

/// A table that aye uses as a type of another crate.
pub(crate) struct Converted<T, U>(std::marker::PhantomData<(T, U)>);

impl<T: SettingsTable, U: From<T>> Part for Converted<T, U> {
    type Value = U;
    const NODE: Node = T::NODE;
    fn collect(values: &Values, key: &Key, _: Option<&str>) -> U {
        T::collect(values, key, None).into()
    }
}

/// Declares a table of the settings: a struct with one field for each key, of the same name.
///
/// A field has a doc comment, which is its text in the manual; `#[project(...)]` with what a project may do, nothing
/// if it is left out; the type of the value, after `as` the [`Kind`] that reads it if that is another type; and a
/// default, or a type that is an `Option`.
macro_rules! table {
    ($(#[$about:meta])* $vis:vis struct $table:ident {
        $($(#[doc = $doc:literal])+ $(#[project($may:ident)])?
          pub $field:ident: $type:ty $(as $kind:ty)? $(= $default:tt)?,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $table {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl $crate::schema::SettingsTable for $table {
            const FIELDS: $crate::schema::Fields = &[$($crate::schema::SettingField::new(
                stringify!($field),
                concat!($($doc),+),
                [$($crate::schema::ProjectMay::$may,)? $crate::schema::ProjectMay::Never][0],
                [$(Some(stringify!($default)),)? None][0],
                <$crate::schema::part!($type $(, $kind)?) as $crate::schema::Part>::NODE,
            )),+];
        }

        impl $crate::schema::Part for $table {
            type Value = Self;
            const NODE: $crate::schema::Node =
                $crate::schema::Node::Table(<Self as $crate::schema::SettingsTable>::FIELDS);
            fn collect(values: &$crate::layer::Values, key: &$crate::layer::Key, _: Option<&str>) -> Self {
                Self {
                    $($field: <$crate::schema::part!($type $(, $kind)?) as $crate::schema::Part>::collect(
                        values,
                        &key.with(stringify!($field)),
                        [$(Some(stringify!($default)),)? None][0],
                    ),)+
                }
            }
        }

        impl Default for $table {
            fn default() -> Self {
                <Self as $crate::schema::Part>::collect(&Default::default(), &Default::default(), None)
            }
        }
    };
}

macro_rules! part {
    ($type:ty) => {
        $type
    };
    ($type:ty, $kind:ty) => {
        $kind
    };
}

pub(crate) use {part, table};

pub(crate) const ROOT: Fields = Settings::FIELDS;

/// Returns the field and the leaf that a dotted key names, or why it names none: the first part that is unknown, or
/// that it stops too early.
pub(crate) fn lookup(key: &Key) -> Result<(&'static SettingField, Leaf), String> {
    let mut fields = ROOT;
    let mut parts = key.0.iter().enumerate();
    while let Some((i, part)) = parts.next() {
        let upto = Key(key.0[..=i].to_vec());
        let rest = key.0.len() - i - 1;
        let Some(field) = fields.iter().find(|field| field.name == part) else {
            return Err(unknown_key(&upto, fields, part));
        };
        match field.node {
            Node::Leaf(leaf) if rest == 0 => return Ok((field, leaf)),
            Node::Leaf(_) => return Err(format!("`{upto}` is a value and cannot contain keys")),
            Node::Each(leaf) if rest == 1 => return Ok((field, leaf)),
            Node::Each(_) => {
                return Err(format!("`{key}` is not one of [{part}]; write {part}.NAME = VALUE"));
            }
            Node::Table(inner) => fields = inner,
            Node::Named(inner) => {
                fields = inner;
                if parts.next().is_none() {
                    let known = names(inner);
                    return Err(format!("`{key}` is a table; write {key}.NAME.KEY with one of {known}"));
                }
            }
        }
    }
    Err(format!("`{key}` is a table; write {key}.KEY with one of {}", names(fields)))
}

/// The message for an unknown key in a table with these fields.
pub(crate) fn unknown_key(key: &Key, siblings: Fields, name: &str) -> String {
    if key.0.len() == 1 && name == "hooks" {
        return "unknown key `hooks`; put hooks into hooks.toml beside this file".to_owned();
    }
    match suggest(siblings, name) {
        Some(near) => format!("unknown key `{key}`; did you mean `{near}`?"),
        None => format!("unknown key `{key}`; expected one of {}", names(siblings)),
    }
}

/// Suggests a replacement for an unknown key: a neighbour with a similar spelling, else the same word
/// elsewhere.
fn suggest(siblings: Fields, key: &str) -> Option<String> {
    let has = |fields: Fields| fields.iter().any(|field| field.name == key);
    nearest(key, siblings.iter().map(|field| field.name)).map(str::to_owned).or_else(|| {
        ROOT.iter().find_map(|field| match field.node {
            Node::Table(fields) => has(fields).then(|| format!("{}.{key}", field.name)),
            Node::Named(fields) => has(fields).then(|| format!("{}.NAME.{key}", field.name)),
            Node::Leaf(_) | Node::Each(_) => (field.name == key)
                .then(|| format!("{key}` at the top of the file, outside of any table; `{key}")),
        })
    })
}

/// The known names for messages that have no near miss to offer.
pub(crate) fn names(fields: Fields) -> String {
    fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ")
}

/// A setting, as the manual describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDoc {
    /// The key; `NAME` is a placeholder for a name that the user chooses.
    pub key: String,
    /// The values it takes.
    pub values: String,
    /// Its default, as TOML; without one, nothing is set.
    pub default: Option<&'static str>,
    /// What a project's settings file may do with the key.
    pub project: &'static str,
    /// The purpose of the key.
    pub doc: String,
}

/// Describes every key of the settings, for `docs/configuration.md`.
pub fn documented_settings() -> Vec<SettingDoc> {
    fn collect(fields: Fields, prefix: &str, rows: &mut Vec<SettingDoc>) {
        for field in fields {
            let key = format!("{prefix}{}", field.name);
            let (key, leaf) = match field.node {
                Node::Leaf(leaf) => (key, leaf),
                Node::Each(leaf) => (format!("{key}.NAME"), leaf),
                Node::Table(fields) => {
                    collect(fields, &format!("{key}."), rows);
                    continue;
                }
                Node::Named(fields) => {
                    collect(fields, &format!("{key}.NAME."), rows);
                    continue;
                }
            };
            let project = match field.project {
                ProjectMay::Never => "no",
                ProjectMay::Set => "if trusted",
                ProjectMay::Lower => "lower; raise if trusted",
                ProjectMay::Tighten => "make stricter",
            };
            let (values, doc) = ((leaf.expected)(), field.cell());
            rows.push(SettingDoc { key, values, default: field.default, project, doc });
        }
    }
    let mut rows = Vec::new();
    collect(ROOT, "", &mut rows);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_resolve_to_their_leaf() {
        let is_leaf = |parts: &[&str]| lookup(&Key(parts.iter().map(ToString::to_string).collect())).is_ok();
        assert!(is_leaf(&["model"]));
        assert!(is_leaf(&["models", "my.model", "price", "input"]));
        assert!(is_leaf(&["providers", "x", "base_url"]));
        assert!(!is_leaf(&["providers", "base_url"]), "that is a provider named base_url");
        assert!(!is_leaf(&["model", "x"]));
        assert!(!is_leaf(&["bash"]));
        assert!(is_leaf(&["sections", "stop"]));
        assert!(!is_leaf(&["sections"]));
        assert!(!is_leaf(&["sections", "stop", "policies"]));
        assert!(!is_leaf(&[]));
    }

    #[test]
    fn a_misspelled_key_gets_a_suggestion() {
        let at_root = |key| suggest(ROOT, key);
        assert_eq!(at_root("modle").as_deref(), Some("model"));
        assert_eq!(at_root("permission-mode").as_deref(), Some("permission_mode"));
        assert_eq!(at_root("provider").as_deref(), Some("providers"));
        assert_eq!(at_root("timeout_s").as_deref(), Some("stop.timeout_s"));
        assert_eq!(at_root("base_url").as_deref(), Some("providers.NAME.base_url"));
        assert_eq!(at_root("completely_else"), None);
    }

    #[test]
    fn every_default_is_a_value_of_its_key() {
        fn check(fields: Fields) -> usize {
            let of_field = |field: &SettingField| match field.node {
                Node::Leaf(leaf) | Node::Each(leaf) => field.default.map_or(0, |text| {
                    let value = text.parse().unwrap_or_else(|_| panic!("{}: {text}", field.name));
                    assert_eq!((leaf.check)(&value), Ok(()), "{}", field.name);
                    1
                }),
                Node::Table(fields) | Node::Named(fields) => check(fields),
            };
            fields.iter().map(of_field).sum()
        }
        assert!(check(ROOT) > 40);
    }
}
