//! Reads theme files; every error names the file and the line.

use std::collections::BTreeMap;
use std::ops::Range;

use ratatui::style::{Color, Style};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Role, colour, modifier};

/// Why a theme was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct ThemeError {
    /// The file as the caller named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem and the expected value.
    pub what: String,
}

/// The maximum length of a chain of `inherits`.
const MAX_CHAIN: usize = 8;

/// Finds a theme that is inherited from: its file and text.
type Find<'a> = &'a dyn Fn(&str) -> Option<(String, String)>;

/// The styles of a theme and of those it inherits from.
pub(super) fn collect(
    name: &str,
    file: &str,
    text: &str,
    find: Find<'_>,
) -> Result<BTreeMap<Role, Style>, ThemeError> {
    let mut chain = vec![name.to_owned()];
    resolve(&mut chain, file, text, find, BTreeMap::new()).map(|(styles, _)| styles)
}

type Resolved = (BTreeMap<Role, Style>, BTreeMap<String, Color>);

/// `over` is the palette of the themes that inherit from this one: it counts here, too.
fn resolve(
    chain: &mut Vec<String>,
    file: &str,
    text: &str,
    find: Find<'_>,
    over: BTreeMap<String, Color>,
) -> Result<Resolved, ThemeError> {
    let source = Source { file, text };
    let table = DeTable::parse(text)
        .map_err(|error| source.error(error.span().unwrap_or(0..0), error.message().replace('\n', " ")))?;
    let table = table.into_inner();

    let mut palette = BTreeMap::new();
    // The palette comes first, wherever it is in the file: roles refer to its colours.
    for (key, value) in &table {
        match key.get_ref().as_ref() {
            "inherits" | "roles" => {}
            "palette" => {
                for (name, value) in source.table_of(value, "palette")? {
                    let text = source.text_of(value, name.get_ref())?;
                    let Some(colour) = colour(text) else {
                        return Err(source.bad_colour(value.span(), text));
                    };
                    palette.insert(name.get_ref().to_string(), colour);
                }
            }
            other => {
                let what = format!("unknown key '{other}'; a theme has inherits, [palette] and [roles]");
                return Err(source.error(key.span(), what));
            }
        }
    }
    palette.extend(over);
    let mut styles = BTreeMap::new();
    if let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == "inherits") {
        let parent = source.text_of(value, "inherits")?;
        if chain.iter().any(|known| known == parent) || chain.len() >= MAX_CHAIN {
            let what = format!("theme '{parent}' inherits from itself ({} -> {parent})", chain.join(" -> "));
            return Err(source.error(key.span(), what));
        }
        let Some((parent_file, parent_text)) = find(parent) else {
            return Err(
                source.error(value.span(), format!("cannot inherit from theme '{parent}'; not found"))
            );
        };
        chain.push(parent.to_owned());
        let inherited;
        (styles, inherited) = resolve(chain, &parent_file, &parent_text, find, palette.clone())?;
        palette = inherited.into_iter().chain(palette).collect();
    }
    if let Some((_, value)) = table.iter().find(|(key, _)| key.get_ref() == "roles") {
        for (key, value) in source.table_of(value, "roles")? {
            let name = key.get_ref().as_ref();
            let Some(role) = Role::from_name(name) else {
                let hint = closest(name).map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
                let quote = if value.get_ref().is_table() { " (names with a dot need quotes)" } else { "" };
                return Err(source.error(key.span(), format!("unknown role '{name}'{hint}{quote}")));
            };
            styles.insert(role, source.style_of(value, &palette)?);
        }
    }
    Ok((styles, palette))
}

struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, at: Range<usize>, what: impl Into<String>) -> ThemeError {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        ThemeError { file: self.file.to_owned(), line, what: what.into() }
    }

    fn bad_colour(&self, at: Range<usize>, text: &str) -> ThemeError {
        let what = format!(
            "invalid colour '{text}'; expected a name from [palette], red … bright-white, 0 … 255 or #rrggbb"
        );
        self.error(at, what)
    }

    fn text_of<'v>(&self, value: &'v Spanned<DeValue<'_>>, name: &str) -> Result<&'v str, ThemeError> {
        let kind = value.get_ref().type_str();
        value
            .get_ref()
            .as_str()
            .ok_or_else(|| self.error(value.span(), format!("'{name}' must be a quoted string, not {kind}")))
    }

    fn table_of<'v, 'i>(
        &self,
        value: &'v Spanned<DeValue<'i>>,
        name: &str,
    ) -> Result<&'v DeTable<'i>, ThemeError> {
        let kind = value.get_ref().type_str();
        value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.error(value.span(), format!("'{name}' must be a table, not {kind}")))
    }

    fn colour_of(
        &self,
        value: &Spanned<DeValue<'_>>,
        name: &str,
        palette: &BTreeMap<String, Color>,
    ) -> Result<Color, ThemeError> {
        let text = self.text_of(value, name)?;
        let found = palette.get(text).copied().or_else(|| colour(text));
        found.ok_or_else(|| self.bad_colour(value.span(), text))
    }

    fn style_of(
        &self,
        value: &Spanned<DeValue<'_>>,
        palette: &BTreeMap<String, Color>,
    ) -> Result<Style, ThemeError> {
        if value.get_ref().is_str() {
            return Ok(Style::new().fg(self.colour_of(value, "fg", palette)?));
        }
        let mut style = Style::new();
        for (key, value) in self.table_of(value, "a role")? {
            match key.get_ref().as_ref() {
                "fg" => style.fg = Some(self.colour_of(value, "fg", palette)?),
                "bg" => style.bg = Some(self.colour_of(value, "bg", palette)?),
                "underline" => style.underline_color = Some(self.colour_of(value, "underline", palette)?),
                "modifiers" => {
                    let Some(list) = value.get_ref().as_array() else {
                        return Err(self.error(value.span(), "'modifiers' must be a list, as in [\"bold\"]"));
                    };
                    for item in list {
                        let name = self.text_of(item, "modifiers")?;
                        let Some(found) = modifier(name) else {
                            let what = format!(
                                "unknown modifier '{name}'; expected bold, dim, italic, underline, reverse or \
                              strikethrough"
                            );
                            return Err(self.error(item.span(), what));
                        };
                        style = style.add_modifier(found);
                    }
                }
                other => {
                    let what = format!("unknown key '{other}'; a role has fg, bg, underline and modifiers");
                    return Err(self.error(key.span(), what));
                }
            }
        }
        Ok(style)
    }
}

/// The role whose name is nearest to a misspelt one.
fn closest(name: &str) -> Option<&'static str> {
    let common = |other: &str| name.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    Role::ALL
        .iter()
        .map(|role| role.name())
        .max_by_key(|known| common(known))
        .filter(|known| common(known) > 1)
}
