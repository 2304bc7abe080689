use super::*;

/// The file and text of a built-in theme.
pub(crate) fn from_folder(name: &str) -> Option<(String, String)> {
    let file = format!("{}/../../themes/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).ok()?;
    Some((format!("themes/{name}.toml"), text))
}

impl Theme {
    /// The built-in theme of that name.
    pub(crate) fn builtin(name: &str) -> Option<Theme> {
        let (file, text) = from_folder(name)?;
        Some(Theme::parse(name, &file, &text, from_folder).expect("is readable"))
    }

    fn builtin_names() -> Vec<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../themes");
        let files = std::fs::read_dir(folder).expect("the folder");
        let names: Vec<_> = files
            .map(|file| file.expect("a file").file_name().to_string_lossy().replace(".toml", ""))
            .collect();
        assert!(names.len() > 10, "{names:?}");
        names
    }
}

fn refused(text: &str) -> String {
    Theme::parse("mine", "mine.toml", text, from_folder).expect_err("it is wrong").to_string()
}

#[test]
fn plain_has_no_colour() {
    let plain = Theme::plain();
    for role in Role::ALL {
        let style = plain.style(*role);
        assert_eq!((style.fg, style.bg, style.underline_color), (None, None, None), "{}", role.name());
    }
}

#[test]
fn default_theme_names_every_role() {
    let (_, text) = from_folder("default").expect("is known");
    for role in Role::ALL {
        assert!(text.contains(role.name()), "{} is not in themes/default.toml", role.name());
    }
}

#[test]
fn default_theme_uses_the_terminals_own_colours() {
    let theme = Theme::builtin("default").expect("is known");
    for role in Role::ALL {
        let style = theme.style(*role);
        for colour in [style.fg, style.bg].into_iter().flatten() {
            assert!(!matches!(colour, Color::Rgb(..) | Color::Indexed(_)), "{}", role.name());
        }
    }
}

#[test]
fn a_theme_inherits_palette_and_roles() {
    let mother = "[palette]\nink = \"#102030\"\n[roles]\nerror = \"ink\"\ntool = \"blue\"\n";
    let find = |name: &str| (name == "mother").then(|| ("m.toml".to_owned(), mother.to_owned()));
    let text = "inherits = \"mother\"\n[roles]\ntool = { fg = \"ink\", modifiers = [\"bold\"] }\n";
    let theme = Theme::parse("mine", "mine.toml", text, find).expect("valid");
    assert_eq!(theme.style(Role::Error).fg, Some(Color::Rgb(0x10, 0x20, 0x30)));
    assert_eq!(theme.style(Role::Tool).fg, Some(Color::Rgb(0x10, 0x20, 0x30)));
    assert!(theme.style(Role::Tool).add_modifier.contains(Modifier::BOLD));
    assert_eq!(theme.without_colours().style(Role::Tool).fg, None);
}

#[test]
fn a_users_default_may_inherit_the_embedded_default() {
    let theme = Theme::parse(
        "default2",
        "d.toml",
        "inherits = \"default\"\n[roles]\nerror = \"blue\"\n",
        from_folder,
    );
    assert_eq!(theme.expect("valid").style(Role::Error).fg, Some(Color::Blue));
}

#[test]
fn errors_name_file_and_line() {
    assert_eq!(
        refused("[roles]\nerror = \"blurple\"\n"),
        "mine.toml:2: invalid colour 'blurple'; expected a name from [palette], red … bright-white, 0 … 255 \
         or #rrggbb"
    );
    assert_eq!(
        refused("[roles]\n\nerorr = \"red\"\n"),
        "mine.toml:3: unknown role 'erorr'; did you mean 'error'?"
    );
    assert_eq!(
        refused("colour = \"red\"\n"),
        "mine.toml:1: unknown key 'colour'; a theme has inherits, [palette] and [roles]"
    );
    assert!(
        refused("[roles]\nerror = { fg = \"red\", size = \"big\" }\n")
            .contains("mine.toml:2: unknown key 'size'")
    );
    assert!(refused("[roles]\nerror = { modifiers = [\"blink\"] }\n").contains("unknown modifier 'blink'"));
    assert!(refused("[roles]\nerror = 3\n").contains("must be a table"));
    assert!(refused("[roles\n").starts_with("mine.toml:1: "));
    assert!(refused("[roles]\ndiff.add = \"red\"\n").contains("names with a dot need quotes"));
    assert_eq!(refused("inherits = \"gone\"\n"), "mine.toml:1: cannot inherit from theme 'gone'; not found");
}

#[test]
fn a_cycle_of_themes_is_refused() {
    let find = |name: &str| {
        let other = if name == "a" { "b" } else { "a" };
        Some((format!("{name}.toml"), format!("inherits = \"{other}\"\n")))
    };
    let error = Theme::parse("mine", "mine.toml", "inherits = \"a\"\n", find).expect_err("a circle");
    assert!(error.what.contains("inherits from itself"), "{error}");
}

#[test]
fn a_palette_applies_to_inherited_roles() {
    let text = "inherits = \"dark\"\n[palette]\nmint = \"#010203\"\n";
    let theme = Theme::parse("mine", "mine.toml", text, from_folder).expect("valid");
    assert_eq!(theme.style(Role::Success).fg, Some(Color::Rgb(1, 2, 3)));
    assert_eq!(theme.style(Role::DiffAdd).fg, Some(Color::Rgb(1, 2, 3)));
    let dark = Theme::builtin("dark").expect("is known");
    assert_eq!(theme.style(Role::Error), dark.style(Role::Error));
    // Two levels: the most derived palette applies everywhere.
    let find = |name: &str| match name {
        "mother" => Some(("m.toml".to_owned(), text.to_owned())),
        name => from_folder(name),
    };
    let child = "inherits = \"mother\"\n[palette]\nmint = \"#040506\"\n";
    let theme = Theme::parse("child", "c.toml", child, find).expect("valid");
    assert_eq!(theme.style(Role::Success).fg, Some(Color::Rgb(4, 5, 6)));
}

fn rgb(theme: &Theme, role: Role) -> [f64; 3] {
    match theme.style(role).fg {
        Some(Color::Rgb(r, g, b)) => [r, g, b].map(f64::from),
        other => panic!("{} of {} is {other:?}", role.name(), theme.name()),
    }
}

/// A colour as seen without one kind of cones (Machado and others, 2009).
fn seen(rgb: [f64; 3], matrix: [[f64; 3]; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(rgb).map(|(m, c)| m * c).sum())
}

#[test]
fn the_colour_blind_pair_is_distinguishable_without_red_and_green() {
    const PROTAN: [[f64; 3]; 3] = [
        [0.152_286, 1.052_583, -0.204_868],
        [0.114_503, 0.786_281, 0.099_216],
        [-0.003_882, -0.048_116, 1.051_998],
    ];
    const DEUTAN: [[f64; 3]; 3] = [
        [0.367_322, 0.860_646, -0.227_968],
        [0.280_085, 0.672_501, 0.047_413],
        [-0.011_820, 0.042_940, 0.968_881],
    ];
    for name in ["colour-blind-dark", "colour-blind-light"] {
        let theme = Theme::builtin(name).expect("is known");
        for (one, other) in [(Role::DiffAdd, Role::DiffDel), (Role::Success, Role::Error)] {
            for matrix in [PROTAN, DEUTAN] {
                let (a, b) = (seen(rgb(&theme, one), matrix), seen(rgb(&theme, other), matrix));
                let far = a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
                assert!(far > 100.0, "{name}: {} and {} are {far:.0} apart", one.name(), other.name());
            }
        }
    }
}

fn luminance(rgb: [f64; 3]) -> f64 {
    let part = |c: f64| {
        let c = c / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(rgb[0]) + 0.7152 * part(rgb[1]) + 0.0722 * part(rgb[2])
}

/// The contrast of two colours by WCAG 2; `None` if one of them is the terminal's own.
fn contrast(one: Option<Color>, other: Option<Color>) -> Option<f64> {
    let of = |colour: Option<Color>| match colour {
        Some(Color::Rgb(r, g, b)) => Some(luminance([r, g, b].map(f64::from))),
        _ => None,
    };
    let (one, other) = (of(one)?, of(other)?);
    Some((one.max(other) + 0.05) / (one.min(other) + 0.05))
}

/// The terminal backgrounds that a theme is made for; empty if it leaves its colours to the terminal.
fn grounds(theme: &str) -> &'static [u32] {
    match theme {
        "default" | "monochrome" | "plain" => &[],
        "dark" | "colour-blind-dark" => &[0x00_0000, 0x0d_1117, 0x1e_1e1e],
        "high-contrast-dark" => &[0x00_0000],
        "light" | "colour-blind-light" | "high-contrast-light" => &[0xff_ffff],
        "solarized-dark" => &[0x00_2b36],
        "solarized-light" => &[0xfd_f6e3],
        "gruvbox-dark" => &[0x28_2828],
        "gruvbox-light" => &[0xfb_f1c7],
        "catppuccin-dark" => &[0x1e_1e2e],
        "catppuccin-light" => &[0xef_f1f5],
        "nord" => &[0x2e_3440],
        other => panic!("say what background {other} is made for"),
    }
}

/// Text has a contrast of 4.5, and secondary text one of 3: over the terminal's background, over the
/// composer's band, and, for code, over the lines of a diff. Frame lines are not text.
#[test]
fn every_theme_is_legible() {
    use Role::{
        Accent, CodeComment, CodePunctuation, Composer, ComposerBorder, DiffAdd, DiffDel, DiffHunk, Dim,
        Error, LineNumber, LinkUrl, Placeholder, Quote, Rule, Status, Thinking, ToolOutput, User,
    };
    let is_secondary = |role: Role| {
        matches!(
            role,
            Dim | Thinking
                | ToolOutput
                | LineNumber
                | CodeComment
                | CodePunctuation
                | DiffHunk
                | LinkUrl
                | Quote
                | Status
                | Placeholder
        )
    };
    let mut faint = Vec::new();
    for name in Theme::builtin_names() {
        let theme = Theme::builtin(&name).expect("is known");
        for ground in grounds(&name) {
            for role in Role::ALL.iter().copied().filter(|role| !matches!(role, Rule | ComposerBorder)) {
                let style = theme.style(role);
                // The terminal's own text colour may equal the band's.
                assert!(style.fg.is_some() || style.bg.is_none(), "{name}: {}", role.name());
                let mut over = vec![style.bg.unwrap_or(Color::from_u32(*ground))];
                if matches!(role, Placeholder | Accent | Error) {
                    over.extend([Composer, User].into_iter().filter_map(|band| theme.style(band).bg));
                }
                if role.name().starts_with("code") {
                    over.extend([DiffAdd, DiffDel].into_iter().filter_map(|line| theme.style(line).bg));
                }
                let least = if is_secondary(role) { 3.0 } else { 4.5 };
                for ground in over {
                    if let Some(ratio) = contrast(style.fg, Some(ground)).filter(|ratio| *ratio < least) {
                        faint.push(format!("{name}: {} has {ratio:.2} over {ground}", role.name()));
                    }
                }
            }
        }
    }
    assert!(faint.is_empty(), "{}", faint.join("\n"));
}

#[test]
fn high_contrast_has_high_contrast() {
    for (name, back) in [("high-contrast-dark", 0.0), ("high-contrast-light", 1.0)] {
        let theme = Theme::builtin(name).expect("is known");
        for role in Role::ALL.iter().filter(|role| theme.style(**role).bg.is_none()) {
            if theme.style(*role).fg.is_none() {
                assert!(!theme.style(*role).add_modifier.contains(Modifier::DIM), "{}", role.name());
                continue;
            }
            let own = luminance(rgb(&theme, *role));
            let ratio = (f64::max(own, back) + 0.05) / (f64::min(own, back) + 0.05);
            assert!(ratio >= 7.0, "{name}: {} has only {ratio:.1}", role.name());
        }
    }
}

#[test]
fn a_name_may_mean_a_pair() {
    let find =
        |name: &str| ThemeChoice::find(name, Depth::True, from_folder).expect("every theme file is valid");
    let pair = find("solarized").expect("a theme pair");
    assert_eq!(pair.on(Some(Background::Light)).name(), "solarized-light");
    assert_eq!((pair.on(None).name(), pair.is_fixed()), ("solarized-dark", false));
    let auto = find(AUTO).expect("a theme pair");
    assert_eq!((auto.on(None).name(), auto.on(Some(Background::Dark)).name()), ("default", "dark"));
    assert!(find("nord").expect("one").is_fixed());
    assert_eq!(find("nope"), None);
    let own = |name: &str| (name == "nord").then(|| ("n.toml".to_owned(), "[roles]\nerror=3".to_owned()));
    let error = ThemeChoice::find("nord", Depth::True, own).expect_err("the own file comes first");
    assert!(error.to_string().starts_with("n.toml:2"), "{error}");
}

#[test]
fn the_background_reply_is_parsed() {
    use Background::{Dark, Light};
    for (value, want) in
        [("15;0", Some(Dark)), ("0;default;15", Some(Light)), ("7;8", Some(Dark)), ("x", None)]
    {
        assert_eq!(Background::of_colorfgbg(value), want, "{value}");
    }
    for (answer, want) in [
        ("11;rgb:1e1e/1e1e/2e2e", Some(Dark)),
        ("11;rgb:ff/ff/ff", Some(Light)),
        ("11;rgba:ffff/f000/ffff/ffff", Some(Light)),
        ("11;rgb:f/0/0", Some(Dark)),
        ("11;rgb:fffff/0/0", None),
        ("11;rgb:ff/ff", None),
        ("10;rgb:ff/ff/ff", None),
    ] {
        assert_eq!(Background::of_answer(answer), want, "{answer}");
    }
}
