use super::*;

fn key(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
    KeyEvent::new(code, modifiers)
}

fn refused(text: &str) -> String {
    Keymap::with_file("keys.toml", text).expect_err("it is wrong").to_string()
}

#[test]
fn embedded_keys_are_readable_and_every_action_has_a_key() {
    let keymap = Keymap::embedded();
    for action in Action::ALL {
        let found = KeyContext::ALL.iter().any(|place| !keymap.chord_of(*place, *action).is_empty());
        assert!(found, "{} has no key", action.name());
    }
}

#[test]
fn equivalent_keys_have_one_form() {
    let keymap = Keymap::embedded();
    for code in [KeyCode::BackTab, KeyCode::Tab] {
        let found = keymap.action(KeyContext::Composer, key(code, KeyModifiers::SHIFT));
        assert_eq!(found, Some(Action::CycleMode));
    }
    assert_eq!(
        keymap.action(KeyContext::Card, key(KeyCode::Char('y'), KeyModifiers::NONE)),
        Some(Action::Allow)
    );
    assert_eq!(keymap.action(KeyContext::Card, key(KeyCode::Char('Y'), KeyModifiers::SHIFT)), None);
    assert_eq!(Chord::parse("Ctrl-X"), Chord::parse("ctrl-x"));
    assert_eq!(Chord::parse("shift-a"), Chord::parse("A"));
    assert_eq!(Chord::parse("ctrl--").map(|chord| chord.to_string()).as_deref(), Some("Ctrl--"));
    for (text, shown) in [("alt-t", "Alt-T"), ("alt-T", "Alt-Shift-T"), ("alt-shift-t", "Alt-Shift-T")] {
        assert_eq!(Chord::parse(text).map(|chord| chord.to_string()).as_deref(), Some(shown), "{text}");
    }
    for wrong in ["", "ctrl-", "f13", "hyper-x", "xy", " "] {
        assert_eq!(Chord::parse(wrong), None, "{wrong:?}");
    }
}

#[test]
fn no_embedded_key_shadows_another() {
    // Loaded over themselves they are checked like a user's own keys.
    let keymap = Keymap::with_file("keymap.toml", include_str!("../keymap.toml"));
    assert_eq!(keymap, Ok(Keymap::embedded()));
}

#[test]
fn custom_keys_override_the_embedded_ones() {
    let keymap = Keymap::with_file("keys.toml", "[composer]\n\"ctrl-s\" = \"send\"\nenter = \"newline\"\n")
        .expect("valid");
    assert_eq!(
        keymap.action(KeyContext::Composer, key(KeyCode::Enter, KeyModifiers::NONE)),
        Some(Action::Newline)
    );
    assert_eq!(
        keymap.action(KeyContext::Composer, key(KeyCode::Char('s'), KeyModifiers::CONTROL)),
        Some(Action::Send)
    );
    let keymap = Keymap::with_file("keys.toml", "[card]\na = \"none\"\n").expect("valid");
    assert_eq!(keymap.action(KeyContext::Card, key(KeyCode::Char('a'), KeyModifiers::NONE)), None);
    assert!(keymap.help(KeyContext::Card).iter().all(|(_, what)| *what != Action::Grant.help()));
}

#[test]
fn mistakes_are_reported_with_file_and_line() {
    assert_eq!(
        refused("\n[composer]\n\"ctrl-x\" = \"sendd\"\n"),
        "keys.toml:3: unknown action 'sendd'; did you mean 'send'?"
    );
    assert_eq!(
        refused("[composer]\n\"ctrl-x\" = \"send\"\n\"Ctrl-X\" = \"newline\"\n"),
        "keys.toml:3: 'Ctrl-X' is the same key as 'ctrl-x' in [composer]"
    );
    assert!(refused("[nowhere]\n").starts_with("keys.toml:1: unknown table 'nowhere'"));
    assert!(refused("[card]\nxyz = \"allow\"\n").starts_with("keys.toml:2: invalid key 'xyz'"));
    assert!(
        refused("[composer]\nx = \"allow\"\n")
            .starts_with("keys.toml:2: action 'allow' has no effect in [composer]")
    );
    assert!(refused("[card]\nx = 5\n").starts_with("keys.toml:2: 'x' must name an action"));
    assert!(refused("[card\n").starts_with("keys.toml:1: "));
}

#[test]
fn no_reflex_key_approves() {
    for reflex in ["enter", "esc", "space", "ctrl-c", "ctrl-d", "ctrl-j", "ctrl-m"] {
        let error = refused(&format!("[card]\n{reflex} = \"allow\"\n"));
        assert!(error.contains("for 'allow'; use a letter"), "{error}");
    }
}

#[test]
fn a_key_sequence_is_one_binding() {
    let text = "[composer]\n\"ctrl-x ctrl-s\" = \"send\"\n\"ctrl-x k k\" = \"undo\"\n";
    let keymap = Keymap::with_file("keys.toml", text).expect("valid");
    let ctrl = |c| key(KeyCode::Char(c), KeyModifiers::CONTROL);
    let layers = KeyContext::Composer.layers();
    assert_eq!(keymap.stroke(layers, &[], ctrl('x')), Stroke::Pending);
    let begun = [Chord::of(ctrl('x'))];
    let Stroke::Key(whole) = keymap.stroke(layers, &begun, ctrl('s')) else { panic!("it is complete") };
    assert_eq!(keymap.action(KeyContext::Composer, whole), Some(Action::Send));
    assert_eq!(typed(whole), None);
    assert_eq!(keymap.stroke(layers, &begun, ctrl('q')), Stroke::Nothing);
    assert_eq!(
        keymap.stroke(KeyContext::Card.layers(), &[], ctrl('x')),
        Stroke::Key(ctrl('x')),
        "not of a card"
    );
    let help = keymap.help(KeyContext::Composer);
    assert!(
        help.iter().any(|(keys, _)| keys.ends_with("Ctrl-X K K") || keys.ends_with("Ctrl-X k k")),
        "{help:?}"
    );
    assert_eq!(keymap.continuations_of(layers, &begun).len(), 4, "the embedded ones and two more");
}

#[test]
fn keys_that_shadow_each_other_are_refused() {
    assert_eq!(
        refused("[composer]\n\"ctrl-a ctrl-b\" = \"send\"\n"),
        "keys.toml:2: 'Ctrl-A Ctrl-B' starts with 'Ctrl-A', which is 'line-start' in [composer]; remove one \
         of them with \"none\""
    );
    assert_eq!(
        refused("[global]\n\n\"ctrl-x\" = \"redraw\"\n"),
        "keys.toml:3: 'Ctrl-X' is 'redraw' here, and 'Ctrl-X Ctrl-E' in [composer] starts with it; remove one \
         of them with \"none\""
    );
    let freed = "[composer]\n\"ctrl-a ctrl-b\" = \"send\"\n\"ctrl-a\" = \"none\"\n";
    assert!(Keymap::with_file("keys.toml", freed).is_ok());
    assert!(refused("[composer]\n\"g g\" = \"text-start\"\n").contains("starts with a character"));
    assert!(refused("[card]\n\"g enter\" = \"allow\"\n").contains("for 'allow'; use a letter"));
    assert!(refused("[composer]\n\"ctrl-x a b c d\" = \"send\"\n").contains("invalid key"));
}
