//! Colours by meaning: a view asks for a role, a theme file defines how the role looks.
//!
//! A theme file has an optional `inherits`, a `[palette]` of named colours, and `[roles]`. Its palette applies to the
//! roles that it inherits, too. The program hands over the themes that come with it, and they are read like a user's
//! own; only the one without colours is part of this crate.

use std::sync::{Arc, OnceLock};

use ratatui::style::{Color, Modifier, Style};

use super::links::Links;

mod choice;
mod depth;
mod load;
#[cfg(test)]
pub(crate) mod tests;

pub use choice::{AUTO, Background, ThemeChoice, ThemeRow};
pub use depth::Depth;
pub use load::ThemeError;

macro_rules! roles {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The meaning of a piece of text on the screen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Role { $($(#[$doc])* $variant,)* }

        impl Role {
            /// Every role, in the order of the documentation.
            pub const ALL: &'static [Role] = &[$(Role::$variant,)*];

            /// The name theme files use.
            pub fn name(self) -> &'static str {
                match self { $(Role::$variant => $name,)* }
            }

            /// The role of that name in theme files.
            pub fn from_name(name: &str) -> Option<Role> {
                match name { $($name => Some(Role::$variant),)* _ => None }
            }
        }
    };
}

roles! {
    /// Ordinary text.
    Text = "text",
    /// Text that matters less: times, counts, hints.
    Dim = "dim",
    /// The program's own colour: prompt mark, active item.
    Accent = "accent",
    User = "user",
    /// The mark of the assistant's words.
    Assistant = "assistant",
    Thinking = "thinking",
    /// A tool's name and mark.
    Tool = "tool",
    /// The output of a tool.
    ToolOutput = "tool.output",
    Error = "error",
    Warning = "warning",
    Success = "success",
    Info = "info",
    /// An added line of a diff.
    DiffAdd = "diff.add",
    /// The words of an added line that are new.
    DiffAddWord = "diff.add.word",
    /// A removed line of a diff.
    DiffDel = "diff.del",
    /// The words of a removed line that are gone.
    DiffDelWord = "diff.del.word",
    /// An unchanged line of a diff.
    DiffContext = "diff.context",
    /// The head of a hunk, and gaps between hunks.
    DiffHunk = "diff.hunk",
    LineNumber = "line.number",
    /// Code in running text.
    Code = "code",
    CodeComment = "code.comment",
    CodeKeyword = "code.keyword",
    CodeString = "code.string",
    /// Numbers and other constants in code.
    CodeConstant = "code.constant",
    /// Names of functions in code.
    CodeFunction = "code.function",
    /// Names of types, tags and the like in code.
    CodeType = "code.type",
    /// Attributes, fields and parameters in code.
    CodeVariable = "code.variable",
    /// Operators and punctuation in code.
    CodePunctuation = "code.punctuation",
    Heading = "heading",
    /// The text of a link.
    Link = "link",
    /// The address of a link.
    LinkUrl = "link.url",
    /// Quoted text and its bar.
    Quote = "quote",
    /// Bullets and numbers of lists.
    Bullet = "list.bullet",
    /// Lines of tables and rules.
    Rule = "rule",
    Strong = "strong",
    Emphasis = "emphasis",
    /// The chosen row of a list.
    Selection = "selection",
    /// Letters of a row that matched what was typed.
    Match = "match",
    /// The frame of a card.
    CardBorder = "card.border",
    /// The title of a card.
    CardTitle = "card.title",
    /// A key in a hint.
    Key = "key",
    Status = "status",
    /// The part of the status line that says the mode.
    StatusMode = "status.mode",
    /// The background of the composer's text; without a background the composer has a frame.
    Composer = "composer",
    /// The frame of the composer.
    ComposerBorder = "composer.border",
    /// The composer's text while it is empty.
    Placeholder = "placeholder",
}

/// The same roles as in `themes/plain.toml`: a screen without any weight is hard to read.
const PLAIN_ROLES: [(Role, Modifier); 13] = [
    (Role::User, Modifier::BOLD),
    (Role::Tool, Modifier::BOLD),
    (Role::Error, Modifier::BOLD),
    (Role::DiffAddWord, Modifier::UNDERLINED),
    (Role::DiffDelWord, Modifier::UNDERLINED),
    (Role::Heading, Modifier::BOLD),
    (Role::Link, Modifier::UNDERLINED),
    (Role::Strong, Modifier::BOLD),
    (Role::Emphasis, Modifier::ITALIC),
    (Role::Selection, Modifier::REVERSED),
    (Role::Match, Modifier::BOLD),
    (Role::CardTitle, Modifier::BOLD),
    (Role::Key, Modifier::BOLD),
];

/// The marks of the parts of a bar on a page. Each has a colour of its own.
pub const BAR_MARKS: [char; 11] = ['█', '▚', '▓', '▛', '▟', '▞', '▜', '▙', '▒', '░', '·'];

/// The colours of [`BAR_MARKS`]. The themes have no more hues than these, so some parts have a faint one.
pub(crate) const BAR_COLOURS: [(Role, Modifier); BAR_MARKS.len()] = [
    (Role::Accent, Modifier::empty()),
    (Role::CodeFunction, Modifier::empty()),
    (Role::CodeKeyword, Modifier::empty()),
    (Role::CodeKeyword, Modifier::DIM),
    (Role::CodeType, Modifier::DIM),
    (Role::CodeFunction, Modifier::DIM),
    (Role::CodeString, Modifier::DIM),
    (Role::Text, Modifier::empty()),
    (Role::Success, Modifier::empty()),
    (Role::Warning, Modifier::empty()),
    (Role::Dim, Modifier::empty()),
];

/// A style for every role.
#[derive(Clone, Debug, PartialEq)]
pub struct Theme {
    name: Arc<str>,
    styles: Arc<[Style]>,
    links: Links,
}

impl Theme {
    /// The style of a role.
    pub fn style(&self, role: Role) -> Style {
        self.styles[role as usize]
    }

    /// The same theme, with text that leads to addresses.
    #[must_use]
    pub fn with_links(self, links: Links) -> Theme {
        Theme { links, ..self }
    }

    /// Returns the URLs of linked text.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The theme's name; two themes of one name in one process look the same.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether this is the same theme object, so that lines laid out with it can be reused.
    pub fn is_same(&self, other: &Theme) -> bool {
        Arc::ptr_eq(&self.styles, &other.styles)
    }

    /// No colours at all, only weight: for `NO_COLOR` and for snapshots. Made once.
    pub fn plain() -> Theme {
        static PLAIN: OnceLock<Theme> = OnceLock::new();
        let plain = || {
            let mut styles = vec![Style::new(); Role::ALL.len()];
            for (role, modifier) in PLAIN_ROLES {
                styles[role as usize] = Style::new().add_modifier(modifier);
            }
            Theme { name: "plain".into(), styles: styles.into(), links: Links::default() }
        };
        PLAIN.get_or_init(plain).clone()
    }

    /// Reads a theme file. `file` is what errors call it; `find` gives the file and the text of a theme that this one
    /// inherits from.
    pub fn parse(
        name: &str,
        file: &str,
        text: &str,
        find: impl Fn(&str) -> Option<(String, String)>,
    ) -> Result<Theme, ThemeError> {
        let mut styles = load::collect(name, file, text, &find)?;
        let styles = Role::ALL.iter().map(|role| styles.remove(role).unwrap_or_default()).collect();
        Ok(Theme { name: name.into(), styles, links: Links::default() })
    }

    /// The same theme with every colour taken out; weight, slant, underline and inversion stay.
    #[must_use]
    pub fn without_colours(&self) -> Theme {
        let bare = |style: &Style| Style {
            fg: None,
            bg: None,
            underline_color: None,
            add_modifier: style.add_modifier,
            sub_modifier: style.sub_modifier,
        };
        Theme {
            name: format!("{}, no colours", self.name).into(),
            styles: self.styles.iter().map(bare).collect(),
            links: self.links.clone(),
        }
    }

    /// The same theme with the colours that a terminal of that depth has.
    #[must_use]
    pub fn mapped(&self, depth: Depth) -> Theme {
        if depth == Depth::True {
            return self.clone();
        }
        if depth == Depth::None {
            return self.without_colours();
        }
        let map = |colour: Option<Color>| colour.map(|colour| depth.map(colour));
        let mapped = |style: &Style| Style {
            fg: map(style.fg),
            bg: map(style.bg),
            underline_color: map(style.underline_color),
            ..*style
        };
        Theme {
            name: Arc::clone(&self.name),
            styles: self.styles.iter().map(mapped).collect(),
            links: self.links.clone(),
        }
    }
}

impl Default for Theme {
    fn default() -> Theme {
        Theme::plain()
    }
}

/// A colour by its common name, `#rrggbb` or a number from 0 to 255.
fn colour(text: &str) -> Option<Color> {
    text.parse().ok()
}

/// The modifier of that name.
fn modifier(name: &str) -> Option<Modifier> {
    Some(match name {
        "bold" => Modifier::BOLD,
        "dim" => Modifier::DIM,
        "italic" => Modifier::ITALIC,
        "underline" => Modifier::UNDERLINED,
        "reverse" => Modifier::REVERSED,
        "strikethrough" => Modifier::CROSSED_OUT,
        _ => return None,
    })
}
