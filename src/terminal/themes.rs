//! The themes that come with aye and the user's own, and where the choice is stored.

use std::path::PathBuf;

use crate::config::{set_text, unset, write_private};
use crate::failure::{AppError, Failure};
use crate::program::foundation::Foundation;
use crate::tui::theme::{AUTO, Background, Depth, Theme, ThemeChoice, ThemeError, ThemeRow};

/// The maximum number of the user's own files listed.
const MAX_OWN: usize = 200;

fn depth(foundation: &Foundation) -> Depth {
    Depth::of(|name| foundation.env.var(name).map(str::to_owned))
}

fn folder(foundation: &Foundation) -> PathBuf {
    foundation.paths.config_dir.join("themes")
}

/// The themes that come with aye by name, in the order of the picker.
const EMBEDDED: [(&str, &str); 16] = [
    ("default", include_str!("../../themes/default.toml")),
    ("dark", include_str!("../../themes/dark.toml")),
    ("light", include_str!("../../themes/light.toml")),
    ("solarized-dark", include_str!("../../themes/solarized-dark.toml")),
    ("solarized-light", include_str!("../../themes/solarized-light.toml")),
    ("gruvbox-dark", include_str!("../../themes/gruvbox-dark.toml")),
    ("gruvbox-light", include_str!("../../themes/gruvbox-light.toml")),
    ("catppuccin-dark", include_str!("../../themes/catppuccin-dark.toml")),
    ("catppuccin-light", include_str!("../../themes/catppuccin-light.toml")),
    ("nord", include_str!("../../themes/nord.toml")),
    ("colour-blind-dark", include_str!("../../themes/colour-blind-dark.toml")),
    ("colour-blind-light", include_str!("../../themes/colour-blind-light.toml")),
    ("high-contrast-dark", include_str!("../../themes/high-contrast-dark.toml")),
    ("high-contrast-light", include_str!("../../themes/high-contrast-light.toml")),
    ("monochrome", include_str!("../../themes/monochrome.toml")),
    ("plain", include_str!("../../themes/plain.toml")),
];

/// The file and text of a theme that comes with aye.
fn embedded(name: &str) -> Option<(String, String)> {
    let (name, text) = EMBEDDED.iter().find(|(known, _)| *known == name)?;
    Some((format!("themes/{name}.toml"), (*text).to_owned()))
}

/// Returns the default theme of the settings.
pub(crate) fn default_theme() -> Theme {
    let read =
        embedded("default").and_then(|(file, text)| Theme::parse("default", &file, &text, embedded).ok());
    read.unwrap_or_default()
}

/// The theme of that name: one of the user's own, one that comes with aye, or a pair.
fn find(foundation: &Foundation, name: &str, depth: Depth) -> Result<Option<ThemeChoice>, ThemeError> {
    ThemeChoice::find(name, depth, |name| own(foundation, name).or_else(|| embedded(name)))
}

/// Returns the file and text of a theme of the user.
fn own(foundation: &Foundation, name: &str) -> Option<(String, String)> {
    // A name is a name, not a path.
    let is_plain = !name.is_empty() && !name.contains(['/', '\\']) && !name.starts_with('.');
    let file = folder(foundation).join(format!("{name}.toml"));
    let text = (is_plain && file.is_file()).then(|| std::fs::read_to_string(&file).ok()).flatten()?;
    Some((file.to_string_lossy().into_owned(), text))
}

/// The theme of the settings.
pub(crate) fn chosen(foundation: &Foundation) -> Result<ThemeChoice, Failure> {
    let name = match foundation.loaded.settings.theme.as_str() {
        "" => "default",
        name => name,
    };
    let found = find(foundation, name, depth(foundation));
    found.map_err(Failure::usage)?.ok_or_else(|| {
        let known = EMBEDDED.map(|(name, _)| name);
        Failure::usage(format!(
            "unknown theme `{name}`; expected {AUTO}, {} or a file in {}",
            known.join(", "),
            folder(foundation).display()
        ))
    })
}

/// Returns the background, if a variable indicates it.
pub(crate) fn background(foundation: &Foundation) -> Option<Background> {
    foundation.env.var("COLORFGBG").and_then(Background::of_colorfgbg)
}

/// Returns all themes that can be selected: `auto`, those of the user, the embedded ones, and pairs from
/// which the background selects.
pub(crate) fn list(foundation: &Foundation) -> Vec<ThemeRow> {
    let depth = depth(foundation);
    let row = |name: &str, detail: &str| {
        let theme = match find(foundation, name, depth) {
            Ok(Some(theme)) => Ok(theme),
            Ok(None) => Err("it cannot be read".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        ThemeRow { name: name.to_owned(), detail: detail.to_owned(), theme }
    };
    let mut rows = vec![row(AUTO, "dark or light, like the background")];
    let files = std::fs::read_dir(folder(foundation)).into_iter().flatten().flatten();
    let mut names: Vec<String> = files
        .take(MAX_OWN)
        .filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".toml")?.to_owned()))
        .filter(|name| !name.starts_with('.') && name != AUTO)
        .collect();
    names.sort();
    rows.extend(names.iter().map(|name| row(name, "yours")));
    for (name, _) in EMBEDDED.iter().filter(|(name, _)| names.iter().all(|own| own != name)) {
        if let Some(pair) = name.strip_suffix("-dark").filter(|pair| names.iter().all(|own| own != pair)) {
            rows.push(row(pair, "like the background"));
        }
        rows.push(row(name, about(name)));
    }
    rows
}

fn about(name: &str) -> &'static str {
    match name {
        "default" => "the terminal's own colours",
        "monochrome" => "one colour; weight and inversion",
        "plain" => "no colours and little weight",
        "colour-blind-dark" | "colour-blind-light" => "without red and green",
        _ => "",
    }
}

/// Writes a choice into the user's settings; `None` removes it from them.
pub(crate) fn keep(foundation: &Foundation, key: &str, value: Option<&str>) -> Result<PathBuf, AppError> {
    let file = foundation.paths.config_file();
    let wrong = |why: &dyn std::fmt::Display| format!("cannot write {}: {why}", file.display());
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(wrong(&error).into()),
    };
    // A link to a file stored elsewhere stays a link.
    let file = file.canonicalize().unwrap_or_else(|_| file.clone());
    let changed = match value {
        Some(value) => set_text(&text, key, value),
        None => unset(&text, key),
    };
    let changed = changed.map_err(|why| wrong(&why))?;
    if changed != text {
        write_private(&file, changed.as_bytes()).map_err(|why| wrong(&why))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::EMBEDDED;
    use super::embedded;
    use crate::tui::theme::{Role, Theme};

    #[test]
    fn every_theme_of_the_folder_is_embedded_and_valid() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/themes");
        let files =
            std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").file_name());
        let mut files: Vec<_> = files.map(|file| file.into_string().expect("a name")).collect();
        let mut names = EMBEDDED.map(|(name, _)| format!("{name}.toml"));
        files.sort();
        names.sort();
        assert_eq!(files, names);
        for (name, text) in EMBEDDED {
            let theme = Theme::parse(name, name, text, embedded);
            assert_eq!(theme.expect("right").name(), name);
        }
    }

    #[test]
    fn the_colourless_theme_matches_its_file() {
        let (file, text) = embedded("plain").expect("known");
        let theme = Theme::parse("plain", &file, &text, embedded).expect("right");
        for role in Role::ALL {
            assert_eq!(theme.style(*role), Theme::plain().style(*role), "{}", role.name());
        }
    }
}
