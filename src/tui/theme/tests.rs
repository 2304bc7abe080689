use super::*;

fn refused(text: &str) -> String {
    Theme::parse("mine", "mine.toml", text, |_| None).expect_err("it is wrong").to_string()
}

#[test]
fn embedded_themes_are_readable_and_plain_has_no_colour() {
    for name in Theme::builtin_names() {
        assert_eq!(Theme::builtin(name).expect("known").name(), name);
    }
    let plain = Theme::plain();
    for role in Role::ALL {
        let style = plain.style(*role);
        assert_eq!((style.fg, style.bg, style.underline_color), (None, None, None), "{}", role.name());
    }
    assert_eq!(Theme::default().style(Role::Error).fg, Some(Color::Red));
    assert!(Theme::builtin("nope").is_none());
}

#[test]
fn default_theme_names_every_role() {
    let text = BUILTIN[0].1;
    for role in Role::ALL {
        assert!(text.contains(role.name()), "{} is not in themes/default.toml", role.name());
    }
}

#[test]
fn default_theme_uses_the_terminals_own_colours() {
    let theme = Theme::default();
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
    let find = |name: &str| (name == "mother").then(|| mother.to_owned());
    let text = "inherits = \"mother\"\n[roles]\ntool = { fg = \"ink\", modifiers = [\"bold\"] }\n";
    let theme = Theme::parse("mine", "mine.toml", text, find).expect("it is right");
    assert_eq!(theme.style(Role::Error).fg, Some(Color::Rgb(0x10, 0x20, 0x30)));
    assert_eq!(theme.style(Role::Tool).fg, Some(Color::Rgb(0x10, 0x20, 0x30)));
    assert!(theme.style(Role::Tool).add_modifier.contains(Modifier::BOLD));
    assert_eq!(theme.without_colours().style(Role::Tool).fg, None);
}

#[test]
fn a_users_default_may_inherit_the_embedded_default() {
    let theme =
        Theme::parse("default2", "d.toml", "inherits = \"default\"\n[roles]\nerror = \"blue\"\n", |_| None);
    assert_eq!(theme.expect("right").style(Role::Error).fg, Some(Color::Blue));
}

#[test]
fn complaints_name_file_and_line() {
    assert_eq!(
        refused("[roles]\nerror = \"blurple\"\n"),
        "mine.toml:2: 'blurple' is not a colour; use a name of [palette], red … bright-white, 0 … 255 or #rrggbb"
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
    assert_eq!(refused("inherits = \"gone\"\n"), "mine.toml:1: there is no theme 'gone' to inherit from");
}

#[test]
fn a_circle_of_themes_is_refused() {
    let find = |name: &str| Some(format!("inherits = \"{}\"\n", if name == "a" { "b" } else { "a" }));
    let error = Theme::parse("mine", "mine.toml", "inherits = \"a\"\n", find).expect_err("a circle");
    assert!(error.what.contains("inherits from itself"), "{error}");
}
