use crossterm::event::{KeyCode, KeyEventKind, KeyModifiers};
use proptest::prelude::*;
use tokio::sync::mpsc::unbounded_channel;

use super::*;

fn decode(bytes: &[u8]) -> Vec<TerminalEvent> {
    let mut decoder = InputDecoder::default();
    let mut events = Vec::new();
    decoder.feed(bytes, &mut events);
    decoder.flush(&mut events);
    events
}

/// Keys as words, so that a table is readable.
fn keys(bytes: &[u8]) -> String {
    let word = |event: &TerminalEvent| match event {
        TerminalEvent::Key(key) => {
            let repeat = if key.kind == KeyEventKind::Repeat { "*" } else { "" };
            let with = if key.modifiers.is_empty() { String::new() } else { format!("{}-", key.modifiers) };
            format!("{repeat}{with}{}", key.code)
        }
        other => format!("{other:?}"),
    };
    decode(bytes).iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn keys_in_legacy_and_kitty_form() {
    let table: &[(&str, &str)] = &[
        ("a", "a"),
        ("A", "Shift-A"),
        ("é漢", "é 漢"),
        ("\r", "Enter"),
        ("\n", "Control-j"),
        ("\t", "Tab"),
        ("\u{7f}", "Backspace"),
        ("\u{3}", "Control-c"),
        ("\u{0}", "Control-Space"),
        ("\u{1f}", "Control-7"),
        ("\u{1b}", "Esc"),
        ("\u{1b}\u{1b}", "Esc Esc"),
        ("\u{1b}b", "Alt-b"),
        ("\u{1b}\r", "Alt-Enter"),
        ("\u{1b}\u{7f}", "Alt-Backspace"),
        ("\u{1b}[A\u{1b}OB", "Up Down"),
        ("\u{1b}[1;5C", "Control-Right"),
        ("\u{1b}[H\u{1b}[4~\u{1b}[3;2~", "Home End Shift-Del"),
        ("\u{1b}[Z", "Shift-BackTab"),
        ("\u{1b}[9;2u", "Shift-BackTab"),
        ("\u{1b}OP\u{1b}[15~\u{1b}[24~\u{1b}[[B", "F1 F5 F12 F2"),
        ("\u{1b}[27u", "Esc"),
        ("\u{1b}[13;2u", "Shift-Enter"),
        ("\u{1b}[99;5u", "Control-c"),
        ("\u{1b}[97;5:3u", ""),
        ("\u{1b}[97;5:2u", "*Control-a"),
        ("\u{1b}[97:65;2u", "Shift-A"),
        ("\u{1b}[27;5;13~", "Control-Enter"),
        ("\u{1b}[57441;2u", ""),
        ("\u{1b}[I\u{1b}[O", "Focus(true) Focus(false)"),
        // Replies to queries and unknown sequences are not typed text, nor are mouse reports.
        ("\u{1b}[<0;;5Mx\u{1b}[<0;0;5My\u{1b}[<3;1;1M", "x y"),
        ("\u{1b}[M !!x", "x"),
        ("\u{1b}[?1u\u{1b}[?62;u\u{1b}[12;40Rx", "x"),
        ("\u{1b}]11;rgb:0/0/0\u{7}x\u{1b}P1$r\u{1b}\\y", "Background(Dark) x y"),
        // Its graphics support identifies it.
        ("\u{1b}P>|kitty(0.41.1)\u{1b}\\x", "x"),
        ("\u{1b}P>|WezTerm 20240203-110809-5046fc22\u{1b}\\x", "x"),
        ("\u{1b}P>|XTerm(388)\u{1b}\\x", "x"),
        ("\u{1b}[6;18;9tx\u{1b}[8;24;80ty\u{1b}[6;18t", "x y"),
        ("\u{1b}[?63;1;2;4;6cx", "x"),
        ("\u{1b}[?4;64c", ""),
        ("\u{1b}[?1;0;16Sx\u{1b}[?1;3;0Sy\u{1b}[?2;0;1;2S", "x y"),
        ("\u{1b}[201~x", "x"),
        ("\u{1b}]a", "Alt-] a"),
        // The rest of a sequence is awaited, however late it is.
        ("\u{1b}[", ""),
    ];
    for (bytes, expected) in table {
        let got = keys(bytes.as_bytes()).replace("Back Tab", "BackTab");
        assert_eq!(got, *expected, "{bytes:?}");
    }
    assert_eq!(decode(b"\xff\xc3x"), decode(b"x"));
}

#[test]
fn a_paste_is_one_event_with_clean_line_endings() {
    let paste = |text: &str| TerminalEvent::Paste(text.to_owned());
    assert_eq!(decode(b"\x1b[200~a\r\nb\rc\td\x1b[31m\x07\x1b[201~"), [paste("a\nb\nc\td[31m")]);
    assert_eq!(decode("\u{1b}[200~漢\u{1b}[201~x".as_bytes()).len(), 2);
    // Terminals that send keys as sequences do so with the line ends of a paste.
    let keys = "\u{1b}[200~a\u{1b}[106;5ub\u{1b}[27;5;106~c\u{1b}[13ud\u{1b}[105;5ue\u{1b}[228;1uf\u{1b}[120;5ug\u{1b}[9;5~\u{1b}[201~";
    assert_eq!(decode(keys.as_bytes()), [paste("a\nb\nc\nd\teäfg[9;5~")]);
    // Two pastes stay separate.
    let two = decode(b"\x1b[200~a\x1b[201~\x1b[200~b\x1b[201~");
    assert_eq!(two, [paste("a"), paste("b")]);
}

/// The events of bursts in their order.
fn bursts(bursts: &[&str]) -> Vec<TerminalEvent> {
    let (mut decoder, mut events, mut was_paste) = (InputDecoder::default(), Vec::new(), false);
    for burst in bursts {
        was_paste = decoder.feed_burst(burst.as_bytes(), was_paste, &mut events);
    }
    events
}

#[test]
fn several_lines_at_once_are_a_paste_in_a_terminal_that_does_not_mark_them() {
    let paste = |text: &str| TerminalEvent::Paste(text.to_owned());
    assert_eq!(bursts(&["one\rtwo\rthree"]), [paste("one\ntwo\nthree")]);
    assert_eq!(bursts(&["one\r\ntwo\tb\r\n"]), [paste("one\ntwo\tb\n")]);
    assert_eq!(bursts(&["a\r漢"]), [paste("a\n漢")]);
    // A long paste comes in pieces; a character may be cut in two.
    assert_eq!(bursts(&["one\rtw", "o\r"]), [paste("one\ntw"), paste("o\n")]);
    let (mut decoder, mut events) = (InputDecoder::default(), Vec::new());
    assert!(decoder.feed_burst(b"one\r\xe6\xbc", false, &mut events));
    decoder.feed_burst(b"\xa2", true, &mut events);
    assert_eq!(events, [vec![paste("one\n")], decode("漢".as_bytes())].concat());
}

#[test]
fn what_a_person_types_is_no_paste() {
    // Line ends alone, one line with its Enter, and keys that no text has.
    for keys in
        ["\r", "one\r", "\rone", "\r7\r", "one\r\r", "one\r \r", "a\x01\rb", "do it\x1b\rnow", "\x1b[A\rx\ry"]
    {
        assert_eq!(bursts(&[keys]), decode(keys.as_bytes()), "{keys:?}");
    }
    // Key by key, however fast.
    let keys: Vec<&str> = "one\rtwo\r".split("").filter(|key| !key.is_empty()).collect();
    assert_eq!(bursts(&keys), decode(b"one\rtwo\r"));
    // Enter after a paste sends it.
    assert_eq!(bursts(&["one\rtwo", "\r"]).last(), decode(b"\r").last());
    // A terminal that marks its pastes has not pasted anything else.
    let marked = "\x1b[200~a\x1b[201~";
    assert_eq!(bursts(&[marked, "one\rtwo"])[1..], decode(b"one\rtwo"));
}

#[test]
fn an_end_mark_inside_a_paste_does_not_end_it() {
    let events = decode(b"\x1b[200~a\x1b[201~y\r\x1b[201~");
    assert_eq!(events, [TerminalEvent::Paste("ay\n".to_owned())]);
    // The Enter typed after a paste is a key.
    let events = decode(b"\x1b[200~a\x1b[201~\r");
    assert_eq!(events.len(), 2);
}

#[test]
fn an_unterminated_paste_can_be_left_with_a_key() {
    let mut decoder = InputDecoder::default();
    let mut events = Vec::new();
    decoder.feed(b"\x1b[200~lost", &mut events);
    decoder.feed(b"\x03", &mut events);
    assert_eq!(events[0], TerminalEvent::Paste("lost".to_owned()));
    assert_eq!(events.len(), 2);
}

/// A terminal sends Alt and a key in one chunk. A key in another chunk was pressed after Escape, however
/// soon.
#[test]
fn a_key_soon_after_escape_is_not_an_alt_key() {
    let pieces = |pieces: &[&[u8]]| {
        let mut decoder = InputDecoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            decoder.feed(piece, &mut events);
        }
        decoder.flush(&mut events);
        events
    };
    for key in ["x", "y", "漢", "\r", "\u{3}", "\u{7f}"] {
        let apart = [decode(b"\x1b"), decode(key.as_bytes())].concat();
        assert_eq!(pieces(&[b"\x1b", key.as_bytes()]), apart, "{key:?}");
    }
    assert_eq!(pieces(&[b"\x1bx"]), decode(b"\x1bx"), "Alt");
    assert_eq!(pieces(&[b"\x1b", b"[A"]), decode(b"\x1b[A"), "a sequence over a slow line");
    assert_eq!(pieces(&[b"\x1b", b"\x1b"]), decode(b"\x1b\x1b"));
}

/// A slow line cuts a sequence anywhere. What follows `ESC [` is its rest, and never a key that denies or types.
#[test]
fn a_sequence_in_two_parts_is_one_key_however_late_its_rest_is() {
    for whole in
        ["\u{1b}[B", "\u{1b}[1;5C", "\u{1b}[13;2u", "\u{1b}[200~a\rb\u{1b}[201~", "\u{1b}[<35;150;7M"]
    {
        for at in 2..whole.len() {
            let mut decoder = InputDecoder::default();
            let mut events = Vec::new();
            decoder.feed(&whole.as_bytes()[..at], &mut events);
            assert!(!decoder.is_waiting(), "no time ends {:?}", &whole[..at]);
            decoder.flush(&mut events);
            decoder.feed(&whole.as_bytes()[at..], &mut events);
            assert_eq!(events, decode(whole.as_bytes()), "{whole:?} cut at {at}");
        }
    }
    // Ctrl-C ends a sequence whose rest is lost.
    let mut decoder = InputDecoder::default();
    let mut events = Vec::new();
    decoder.feed(b"\x1b[", &mut events);
    decoder.feed(b"\x03", &mut events);
    assert_eq!(events, decode(b"\x03"));
}

#[test]
fn a_large_paste_in_small_chunks_is_cheap() {
    let mut decoder = InputDecoder::default();
    let mut events = Vec::new();
    decoder.feed(PASTE_START, &mut events);
    for _ in 0..20_000 {
        decoder.feed(b"some more text of a long paste, line after line\r", &mut events);
    }
    assert!(!decoder.is_waiting(), "no timeout runs while a paste arrives");
    decoder.feed(b"\x1b[201~", &mut events);
    assert!(matches!(&events[..], [TerminalEvent::Paste(text)] if text.len() == 20_000 * 48));
}

const PASTE_START: &[u8] = b"\x1b[200~";

proptest! {
    #[test]
    fn chunk_boundaries_do_not_matter(
        bytes in proptest::collection::vec(prop_oneof![
            Just(b"\x1b[A".to_vec()), Just(b"\x1b[97;5u".to_vec()), Just("漢".as_bytes().to_vec()),
            Just(b"\x1b[200~pa\rste\x1b[201~".to_vec()), Just(b"\x1b[<0;1;1M".to_vec()),
            "[a-z]{1,3}".prop_map(String::into_bytes),
        ], 0..12),
        size in 1usize..5,
    ) {
        let bytes = bytes.concat();
        let mut decoder = InputDecoder::default();
        let mut events = Vec::new();
        for piece in bytes.chunks(size) {
            decoder.feed(piece, &mut events);
        }
        prop_assert_eq!(events, decode(&bytes));
    }

    #[test]
    fn arbitrary_bytes_are_handled(bytes in proptest::collection::vec(any::<u8>(), 0..200), escapes: bool) {
        let bytes: Vec<u8> =
            if escapes { bytes.iter().flat_map(|b| [0x1b, b'[', *b]).collect() } else { bytes };
        for event in decode(&bytes) {
            if let TerminalEvent::Key(key) = event {
                prop_assert!(!matches!(key.code, KeyCode::Char(c) if c.is_control()));
            }
        }
    }
}

#[test]
fn the_thread_reads_pauses_and_notices_the_end() {
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let (sender, mut events) = unbounded_channel();
    let input = Input::over(reader, sender).expect("a thread");
    let letter = |c| TerminalEvent::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));

    writer.write_all(b"a").expect("open");
    assert_eq!(events.blocking_recv(), Some(letter('a')));
    input.pause();
    writer.write_all(b"b").expect("open");
    assert!(events.try_recv().is_err(), "nothing is read while an editor has the terminal");
    input.resume();
    assert_eq!(events.blocking_recv(), Some(letter('b')));
    writer.write_all(b"\x1b").expect("open");
    assert_eq!(
        events.blocking_recv(),
        Some(TerminalEvent::Key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)))
    );
    writer.write_all(b"z").expect("open");
    drop(writer);
    assert_eq!(events.blocking_recv(), Some(letter('z')));
    assert_eq!(events.blocking_recv(), Some(TerminalEvent::Hangup));
    assert_eq!(events.blocking_recv(), None);
    input.pause();
    drop(input);
}

#[test]
fn the_thread_takes_lines_for_a_paste_unless_they_were_typed_ahead() {
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let (sender, mut events) = unbounded_channel();
    let mut next = || events.blocking_recv();
    writer.write_all(b"a\rb").expect("open");
    let input = Input::over(reader, sender).expect("a thread");
    let typed: Vec<_> = std::iter::repeat_with(&mut next).take(3).flatten().collect();
    assert_eq!(typed, decode(b"a\rb"), "nobody read it when it was typed");
    writer.write_all(b"one\rtwo").expect("open");
    assert_eq!(next(), Some(TerminalEvent::Paste("one\ntwo".to_owned())));
    drop(writer);
    assert_eq!(next(), Some(TerminalEvent::Hangup));
    drop(input);
}

/// An arrow key over a slow line: Escape would deny what waits for an answer.
#[test]
fn a_sequence_may_be_split_after_its_escape() {
    // Gaps of 80 ms were seen.
    const { assert!(ESCAPE_WAIT_MS >= 150) };
    let mut decoder = InputDecoder::default();
    let mut found = Vec::new();
    for piece in [&b"\x1b"[..], b"[", b"B"] {
        assert!(found.is_empty());
        decoder.feed(piece, &mut found);
    }
    assert_eq!(found, decode(b"\x1b[B"));
    found.clear();
    // What is no sequence was typed after Escape, not together with Alt.
    for piece in [&b"\x1b"[..], b"O"] {
        decoder.feed(piece, &mut found);
    }
    assert!(found.is_empty() && decoder.is_waiting());
    decoder.flush(&mut found);
    let capital = TerminalEvent::Key(KeyEvent::new(KeyCode::Char('O'), KeyModifiers::SHIFT));
    assert_eq!(found, [decode(b"\x1b").remove(0), capital]);
}

#[test]
fn dropping_the_input_ends_the_thread() {
    let (reader, _writer) = io::pipe().expect("a pipe");
    let (sender, mut events) = unbounded_channel();
    let input = Input::over(reader, sender).expect("a thread");
    input.pause();
    drop(input);
    assert_eq!(events.blocking_recv(), None);
}

#[test]
fn the_mouse_is_read_in_sgr_form() {
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    let mouse =
        |kind, column, row, modifiers| TerminalEvent::Mouse(MouseEvent { kind, column, row, modifiers });
    let none = KeyModifiers::NONE;
    assert_eq!(
        decode(b"\x1b[<0;10;5M\x1b[<32;300;5M\x1b[<0;300;5m\x1b[<64;1;1M\x1b[<81;2;2M"),
        [
            mouse(MouseEventKind::Down(MouseButton::Left), 9, 4, none),
            mouse(MouseEventKind::Drag(MouseButton::Left), 299, 4, none),
            mouse(MouseEventKind::Up(MouseButton::Left), 299, 4, none),
            mouse(MouseEventKind::ScrollUp, 0, 0, none),
            mouse(MouseEventKind::ScrollDown, 1, 1, KeyModifiers::CONTROL),
        ]
    );
}
