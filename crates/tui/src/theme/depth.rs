//! The number of colours of a terminal, and the nearest of them.

use ratatui::style::Color;

/// The number of colours the terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// None: weight and inversion only.
    None,
    /// The sixteen that the user configured in the terminal.
    Sixteen,
    /// A cube of 216, and greys.
    Indexed,
    /// All.
    #[default]
    True,
}

/// Terminals that show all colours and say so nowhere but in their name.
const TRUE_TERMS: [&str; 8] =
    ["xterm-kitty", "xterm-ghostty", "alacritty", "foot", "wezterm", "contour", "rio", "konsole"];
const TRUE_PROGRAMS: [&str; 6] = ["iTerm.app", "vscode", "ghostty", "WezTerm", "Hyper", "rio"];

impl Depth {
    /// Returns the depth that the environment variables indicate. A non-empty `NO_COLOR` means no colours.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Depth {
        let get = |name: &str| variable(name).unwrap_or_default();
        let (term, program) = (get("TERM"), get("TERM_PROGRAM"));
        if !get("NO_COLOR").is_empty() || matches!(term.as_str(), "" | "dumb") {
            return Depth::None;
        }
        let is_announced = matches!(get("COLORTERM").as_str(), "truecolor" | "24bit");
        if is_announced
            || term.ends_with("-direct")
            || TRUE_TERMS.iter().any(|name| term.starts_with(name))
            || TRUE_PROGRAMS.contains(&program.as_str())
            || !get("WT_SESSION").is_empty()
        {
            return Depth::True;
        }
        if term.contains("256") || program == "Apple_Terminal" {
            return Depth::Indexed;
        }
        Depth::Sixteen
    }

    /// Returns the display name.
    pub fn name(self) -> &'static str {
        match self {
            Depth::None => "no colours",
            Depth::Sixteen => "16 colours",
            Depth::Indexed => "256 colours",
            Depth::True => "24-bit colours",
        }
    }

    /// The nearest colour of this depth. The terminal's own sixteen stay what they are.
    pub(crate) fn map(self, colour: Color) -> Color {
        match (self, colour) {
            (Depth::Indexed, Color::Rgb(r, g, b)) => Color::Indexed(indexed([r, g, b])),
            (Depth::Sixteen, Color::Rgb(r, g, b)) => sixteen([r, g, b]),
            (Depth::Sixteen, Color::Indexed(n @ 16..)) => sixteen(of_index(n)),
            (Depth::None, _) => Color::Reset,
            (Depth::Sixteen | Depth::Indexed | Depth::True, other) => other,
        }
    }
}

/// The steps of the cube.
const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// Returns roughly how different two colours look: components the eye sees better count more.
fn distance(a: [u8; 3], b: [u8; 3]) -> u32 {
    let part = |i: usize| u32::from(a[i].abs_diff(b[i])).pow(2);
    2 * part(0) + 4 * part(1) + 3 * part(2)
}

fn of_index(n: u8) -> [u8; 3] {
    match n {
        0..16 => SIXTEEN[usize::from(n)].1,
        16..232 => {
            let n = n - 16;
            [STEPS[usize::from(n / 36)], STEPS[usize::from(n / 6 % 6)], STEPS[usize::from(n % 6)]]
        }
        232.. => [8 + (n - 232) * 10; 3],
    }
}

fn indexed(rgb: [u8; 3]) -> u8 {
    // The first sixteen are whatever the user configured.
    (16..=255).min_by_key(|n| distance(of_index(*n), rgb)).unwrap_or(15)
}

/// The usual values of the sixteen.
const SIXTEEN: [(Color, [u8; 3]); 16] = [
    (Color::Black, [0, 0, 0]),
    (Color::Red, [205, 0, 0]),
    (Color::Green, [0, 205, 0]),
    (Color::Yellow, [205, 205, 0]),
    (Color::Blue, [0, 0, 238]),
    (Color::Magenta, [205, 0, 205]),
    (Color::Cyan, [0, 205, 205]),
    (Color::Gray, [229, 229, 229]),
    (Color::DarkGray, [127, 127, 127]),
    (Color::LightRed, [255, 0, 0]),
    (Color::LightGreen, [0, 255, 0]),
    (Color::LightYellow, [255, 255, 0]),
    (Color::LightBlue, [92, 92, 255]),
    (Color::LightMagenta, [255, 0, 255]),
    (Color::LightCyan, [0, 255, 255]),
    (Color::White, [255, 255, 255]),
];

/// By hue, because distance alone makes most pleasant colours grey.
fn sixteen(rgb: [u8; 3]) -> Color {
    let most = rgb.iter().copied().max().unwrap_or(0);
    let least = rgb.iter().copied().min().unwrap_or(0);
    let spread = most - least;
    if spread < 32 || u16::from(spread) * 4 < u16::from(most) {
        return match most {
            0..48 => Color::Black,
            48..160 => Color::DarkGray,
            160..240 => Color::Gray,
            240.. => Color::White,
        };
    }
    let has = |part: u8| part - least > spread / 2;
    let bits = u8::from(has(rgb[0])) | u8::from(has(rgb[1])) << 1 | u8::from(has(rgb[2])) << 2;
    // A dark background colour behind light text must not be bright: only bright colours map to the bright
    // half.
    let index = usize::from(bits) + if most >= 200 { 8 } else { 0 };
    SIXTEEN[index].0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Depth {
        Depth::of(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_environment_decides_the_depth() {
        assert_eq!(of(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")]), Depth::True);
        assert_eq!(of(&[("TERM", "tmux-256color")]), Depth::Indexed);
        assert_eq!(of(&[("TERM", "xterm")]), Depth::Sixteen);
        assert_eq!(of(&[("TERM", "xterm-kitty")]), Depth::True);
        assert_eq!(of(&[("TERM", "xterm-256color"), ("NO_COLOR", "1")]), Depth::None);
        assert_eq!((of(&[]), of(&[("TERM", "dumb"), ("COLORTERM", "24bit")])), (Depth::None, Depth::None));
    }

    #[test]
    fn colours_become_the_nearest_available() {
        let rgb = Color::Rgb;
        assert_eq!(Depth::Indexed.map(rgb(255, 0, 0)), Color::Indexed(196));
        assert_eq!(Depth::Indexed.map(rgb(0x80, 0x80, 0x80)), Color::Indexed(244));
        let of = |r, g, b| Depth::Sixteen.map(rgb(r, g, b));
        assert_eq!(of(0x79, 0xc0, 0xff), Color::LightCyan);
        assert_eq!(of(0xff, 0x7b, 0x72), Color::LightRed);
        assert_eq!(of(0x12, 0x26, 0x1e), Color::Black, "the back of an added line");
        assert_eq!(of(0x11, 0x63, 0x29), Color::Green);
        assert_eq!((of(250, 250, 250), of(120, 120, 125)), (Color::White, Color::DarkGray));
        assert_eq!(Depth::Sixteen.map(Color::Indexed(196)), Color::LightRed);
        assert_eq!(Depth::Sixteen.map(Color::Blue), Color::Blue);
        assert_eq!(Depth::True.map(rgb(1, 2, 3)), rgb(1, 2, 3));
    }
}
