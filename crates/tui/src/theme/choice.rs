//! Theme names a user can choose: a theme, or a pair from which the background selects one.

use super::{Depth, Theme, ThemeError};

/// The name that selects `dark` or `light`, and `default` until the background is known.
pub const AUTO: &str = "auto";

/// The background colour of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    Dark,
    Light,
}

impl Background {
    /// Parses the variable `COLORFGBG`: `15;0`, `0;default;15`.
    pub fn of_colorfgbg(value: &str) -> Option<Background> {
        let (_, last) = value.rsplit_once(';')?;
        match last.parse::<u8>().ok()? {
            0..=6 | 8 => Some(Background::Dark),
            7 | 9..=15 => Some(Background::Light),
            16.. => None,
        }
    }

    /// Parses a terminal's answer to a background query: `11;rgb:1e1e/1e1e/2e2e`, also with an alpha.
    pub fn of_answer(answer: &str) -> Option<Background> {
        let colour = answer.strip_prefix("11;")?;
        let parts = colour.strip_prefix("rgb:").or_else(|| colour.strip_prefix("rgba:"))?;
        let mut parts = parts.split('/').map(|part| {
            let most = (1u32 << (4 * u32::try_from(part.len()).ok().filter(|n| (1..=4).contains(n))?)) - 1;
            Some(f64::from(u32::from_str_radix(part, 16).ok()?) / f64::from(most))
        });
        let mut next = || parts.next().flatten();
        let (red, green, blue) = (next()?, next()?, next()?);
        let luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        Some(if luminance < 0.5 { Background::Dark } else { Background::Light })
    }
}

/// A theme as it was asked for, on any background.
#[derive(Clone, Debug, PartialEq)]
pub struct ThemeChoice {
    /// The name it was requested by.
    pub name: String,
    unknown: Theme,
    dark: Theme,
    light: Theme,
}

impl ThemeChoice {
    /// Returns the theme of this name, or the pair `NAME-dark` and `NAME-light`; `Ok(None)` if neither
    /// exists. `find` returns the file and text of a theme.
    ///
    /// # Errors
    /// If the theme's file is invalid.
    pub fn find(
        name: &str,
        depth: Depth,
        find: impl Fn(&str) -> Option<(String, String)>,
    ) -> Result<Option<ThemeChoice>, ThemeError> {
        let one = |name: &str| -> Result<Option<Theme>, ThemeError> {
            let Some((file, text)) = find(name) else { return Ok(None) };
            Ok(Some(Theme::parse(name, &file, &text, &find)?.mapped(depth)))
        };
        let named = |unknown: Theme, dark: Theme, light: Theme| ThemeChoice {
            name: name.to_owned(),
            unknown,
            dark,
            light,
        };
        if let Some(theme) = one(name)? {
            return Ok(Some(named(theme.clone(), theme.clone(), theme)));
        }
        let (dark, light, otherwise) = if name == AUTO {
            ("dark".to_owned(), "light".to_owned(), "default".to_owned())
        } else {
            (format!("{name}-dark"), format!("{name}-light"), format!("{name}-dark"))
        };
        match (one(&otherwise)?, one(&dark)?, one(&light)?) {
            (Some(unknown), Some(dark), Some(light)) => Ok(Some(named(unknown, dark, light))),
            (_, _, _) => Ok(None),
        }
    }

    /// A theme that looks the same on every background.
    pub fn fixed(theme: Theme) -> ThemeChoice {
        ThemeChoice {
            name: theme.name().to_owned(),
            unknown: theme.clone(),
            dark: theme.clone(),
            light: theme,
        }
    }

    /// Returns whether the theme is the same on every background.
    pub fn is_fixed(&self) -> bool {
        self.dark.is_same(&self.light)
    }

    /// The theme on that background.
    pub fn on(&self, background: Option<Background>) -> &Theme {
        match background {
            None => &self.unknown,
            Some(Background::Dark) => &self.dark,
            Some(Background::Light) => &self.light,
        }
    }
}

impl Default for ThemeChoice {
    fn default() -> ThemeChoice {
        ThemeChoice::fixed(Theme::default())
    }
}

/// A theme that can be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct ThemeRow {
    /// The name stored in the settings.
    pub name: String,
    /// Its source or purpose.
    pub detail: String,
    /// The theme, or why it cannot be used.
    pub theme: Result<ThemeChoice, String>,
}
