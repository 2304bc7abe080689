//! Maps scopes of syntax definitions to roles of the theme.

use std::collections::HashMap;

use syntect::parsing::Scope;

use crate::theme::Role;

/// Prefixes of scopes and their roles; the first match counts, so the longer ones come first. `None`
/// continues with the enclosing scope.
const TABLE: &[(&str, Option<Role>)] = &[
    ("comment", Some(Role::CodeComment)),
    ("punctuation.definition.comment", Some(Role::CodeComment)),
    ("constant.character.escape", Some(Role::CodeConstant)),
    ("string.unquoted", None),
    ("string", Some(Role::CodeString)),
    ("punctuation.definition.string", Some(Role::CodeString)),
    ("constant", Some(Role::CodeConstant)),
    ("support.constant", Some(Role::CodeConstant)),
    ("keyword.operator.word", Some(Role::CodeKeyword)),
    ("keyword.operator.logical.python", Some(Role::CodeKeyword)),
    ("keyword.operator", Some(Role::CodePunctuation)),
    ("keyword", Some(Role::CodeKeyword)),
    ("storage.type.numeric", Some(Role::CodeType)),
    ("storage", Some(Role::CodeKeyword)),
    ("variable.language", Some(Role::CodeKeyword)),
    ("entity.name.function", Some(Role::CodeFunction)),
    ("entity.name.macro", Some(Role::CodeFunction)),
    ("support.function", Some(Role::CodeFunction)),
    ("support.macro", Some(Role::CodeFunction)),
    ("variable.function", Some(Role::CodeFunction)),
    ("entity.name.tag", Some(Role::CodeKeyword)),
    ("entity.name.section", Some(Role::Heading)),
    ("entity.other.attribute-name", Some(Role::CodeVariable)),
    ("entity.other.inherited-class", Some(Role::CodeType)),
    ("entity.name", Some(Role::CodeType)),
    ("support.type", Some(Role::CodeType)),
    ("support.class", Some(Role::CodeType)),
    ("variable", Some(Role::CodeVariable)),
    ("markup.heading", Some(Role::Heading)),
    ("markup.inserted", Some(Role::DiffAdd)),
    ("markup.deleted", Some(Role::DiffDel)),
    ("meta.diff.range", Some(Role::DiffHunk)),
    ("meta.diff.header", Some(Role::DiffHunk)),
    ("punctuation.definition.inserted", Some(Role::DiffAdd)),
    ("punctuation.definition.deleted", Some(Role::DiffDel)),
    ("punctuation.section.interpolation", Some(Role::CodePunctuation)),
    ("punctuation.definition", None),
    ("punctuation", Some(Role::CodePunctuation)),
];

/// Answers which role a stack of scopes has, and remembers the answers.
pub(super) struct Roles {
    table: Vec<(Scope, Option<Role>)>,
    known: HashMap<Scope, Option<Role>>,
}

impl Default for Roles {
    fn default() -> Roles {
        let scope = |name: &str| Scope::new(name).expect("names of the table are short");
        Roles {
            table: TABLE.iter().map(|(name, role)| (scope(name), *role)).collect(),
            known: HashMap::new(),
        }
    }
}

impl Roles {
    /// The role of the innermost scope that has one.
    pub(super) fn of(&mut self, stack: &[Scope]) -> Option<Role> {
        stack.iter().rev().find_map(|scope| {
            let table = &self.table;
            *self.known.entry(*scope).or_insert_with(|| {
                table.iter().find(|(prefix, _)| prefix.is_prefix_of(*scope)).and_then(|(_, role)| *role)
            })
        })
    }
}
