//! Changes one key of a settings file and leaves every other byte as the user wrote it.

use toml::de::DeTable;

/// Why a settings file was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsEditError {
    /// The file is not TOML: the parser's words.
    #[error("{0}")]
    Syntax(String),
    /// No position was found where the key could be set.
    #[error("cannot insert `{key}` into it")]
    NotInserted { key: String },
    /// The key cannot be removed without a change of the rest.
    #[error("cannot remove `{key}` from it")]
    NotRemoved { key: String },
}

fn parsed(settings: &str) -> Result<toml::Spanned<DeTable<'_>>, SettingsEditError> {
    DeTable::parse(settings).map_err(|error| SettingsEditError::Syntax(error.message().replace('\n', " ")))
}

/// The text with a key at the top of the file set to a text.
///
/// # Errors
/// The file cannot be read as TOML, or has no place for the key.
pub fn set_text(settings: &str, key: &str, value: &str) -> Result<String, SettingsEditError> {
    let table = parsed(settings)?;
    let literal = toml::Value::String(value.to_owned()).to_string();
    let entries = table.get_ref();
    if let Some((_, old)) = entries.iter().find(|(name, _)| name.get_ref() == key) {
        let mut text = settings.to_owned();
        text.replace_range(old.span(), &literal);
        return Ok(text);
    }
    // The key goes before the first table: after a table's header it would belong to that table.
    let line = format!("{key} = {literal}\n");
    let mut at = 0;
    for row in settings.split_inclusive('\n') {
        if row.trim_start().starts_with('[') {
            let candidate = format!("{}{line}{}", &settings[..at], &settings[at..]);
            // A line of a multi-line list may start like a table, so the result is checked.
            if is_set(&candidate, key, value) {
                return Ok(candidate);
            }
        }
        at += row.len();
    }
    let gap = if settings.is_empty() || settings.ends_with('\n') { "" } else { "\n" };
    let text = format!("{settings}{gap}{line}");
    if is_set(&text, key, value) {
        Ok(text)
    } else {
        Err(SettingsEditError::NotInserted { key: key.to_owned() })
    }
}

/// The text without a key at the top of the file.
///
/// # Errors
/// The file cannot be read as TOML, or the key cannot be removed alone.
pub fn unset(settings: &str, key: &str) -> Result<String, SettingsEditError> {
    let table = parsed(settings)?;
    let Some((name, old)) = table.get_ref().iter().find(|(name, _)| name.get_ref() == key) else {
        return Ok(settings.to_owned());
    };
    let (start, end) = (name.span().start, old.span().end);
    // A comment after the value describes the key, so the comment is removed too.
    let end = settings[end..].find('\n').map_or(settings.len(), |at| end + at + 1);
    let text = format!("{}{}", &settings[..start], &settings[end..]);
    let is_gone = DeTable::parse(&text)
        .is_ok_and(|table| table.get_ref().iter().all(|(name, _)| name.get_ref() != key));
    if is_gone { Ok(text) } else { Err(SettingsEditError::NotRemoved { key: key.to_owned() }) }
}

fn is_set(settings: &str, key: &str, value: &str) -> bool {
    let Ok(table) = DeTable::parse(settings) else { return false };
    table
        .get_ref()
        .iter()
        .any(|(name, found)| name.get_ref() == key && found.get_ref().as_str() == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editing_one_key_keeps_the_rest() {
        let text = "# mine\nmodel = \"m\" # good\n\n[tui]\nbell = true\n";
        let with = set_text(text, "theme", "nord").unwrap();
        assert_eq!(with, "# mine\nmodel = \"m\" # good\n\ntheme = \"nord\"\n[tui]\nbell = true\n");
        let again = set_text(&with, "theme", "dark").unwrap();
        assert!(again.contains("theme = \"dark\"\n[tui]"), "{again}");
        assert_eq!(set_text("", "theme", "a\"b").unwrap(), "theme = 'a\"b'\n");
        assert_eq!(set_text("model = \"m\"", "theme", "x").unwrap(), "model = \"m\"\ntheme = \"x\"\n");
        let list = "a = [\n  [1],\n]\n[t]\nb = 1\n";
        assert_eq!(set_text(list, "theme", "x").unwrap(), "a = [\n  [1],\n]\ntheme = \"x\"\n[t]\nb = 1\n");
        assert!(set_text("[broken", "theme", "x").is_err());
        assert_eq!(unset(text, "model").unwrap(), "# mine\n\n[tui]\nbell = true\n");
        assert_eq!(unset("a = 1\nmodel = \"m\"", "model").unwrap(), "a = 1\n");
        assert_eq!(unset(text, "bell").unwrap(), text, "only what is at the top");
        assert!(unset("[broken", "theme").is_err());
    }
}
