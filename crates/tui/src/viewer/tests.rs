//! Moving around in conversations of any length.

use ratatui::text::Line;
use serde_json::json;

use super::*;
use crate::diff::DiffLayout;
use crate::host::HostInfo;
use crate::transcript::{Level, Moment};
use crate::view::layout_cache::text_of;
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::tool::ToolResult;

fn with_scene(transcript: &Transcript, info: &HostInfo, rows: usize, act: impl FnOnce(&Scene<'_>)) {
    let image_cache = crate::image_cache::ImageCache::default();
    let layout_context = LayoutContext {
        width: 40,
        info,
        now: Moment(0),
        whole: true,
        image_cache: &image_cache,
        epoch: 1,
        layout: DiffLayout::Auto,
    };
    act(&Scene { transcript, layout_context, rows });
}

fn transcript_of(count: usize) -> Transcript {
    let mut transcript = Transcript::default();
    for n in 0..count {
        transcript.push_user_message(format!("question {n}\nline two of {n}"), Vec::new());
        transcript.note(Level::Info, format!("note {n}"));
    }
    transcript
}

fn sight(reader: &Viewer, scene: &Scene<'_>) -> Vec<String> {
    let mut sheets = Sheets::new(RenderStyle { theme: Theme::plain(), highlighter: Highlighter::off() });
    let (first, skip) = reader.top(scene, &mut sheets);
    let mut rows = Vec::new();
    for index in first..scene.len() {
        let folded = reader.is_folded(scene.id(index));
        let lines: &[Line<'static>] = sheets.lines(scene.transcript, index, folded, &scene.layout_context);
        rows.extend(lines.iter().map(text_of).map(|row| row.trim_end().to_owned()));
        if rows.len() > skip + scene.rows {
            break;
        }
    }
    rows.into_iter().skip(skip).take(scene.rows).collect()
}

#[test]
fn it_follows_the_end_until_scrolled_away() {
    let info = HostInfo::default();
    let mut transcript = transcript_of(20);
    let mut reader = Viewer::new(true, &transcript);
    with_scene(&transcript, &info, 4, |scene| {
        assert_eq!(sight(&reader, scene), ["❯ question 19", "  line two of 19", "", "· note 19"]);
        reader.scroll(scene, -1);
        assert!(!reader.follows());
        assert_eq!(sight(&reader, scene)[3], "");
    });
    transcript.note(Level::Info, "one more");
    with_scene(&transcript, &info, 4, |scene| {
        assert_eq!(sight(&reader, scene)[3], "", "new entries do not scroll the view");
        reader.scroll(scene, 100);
        assert!(reader.follows());
        assert_eq!(sight(&reader, scene)[3], "· one more");
        reader.scroll(scene, -100_000);
        assert_eq!(sight(&reader, scene)[0], "❯ question 0");
        reader.end(scene, true);
        assert_eq!(sight(&reader, scene)[3], "· one more");
    });
}

#[test]
fn scrolling_up_and_down_returns_to_the_same_place() {
    let info = HostInfo::default();
    let transcript = transcript_of(50);
    let mut reader = Viewer::new(true, &transcript);
    with_scene(&transcript, &info, 7, |scene| {
        reader.scroll(scene, -60);
        let before = sight(&reader, scene);
        for by in [1, 5, 13, -4, -15] {
            reader.scroll(scene, by);
        }
        assert_eq!(sight(&reader, scene), before);
    });
}

#[test]
fn search_wraps_around_and_unfolds_matches() {
    let info = HostInfo::default();
    let transcript = transcript_of(30);
    let mut reader = Viewer::new(true, &transcript);
    with_scene(&transcript, &info, 5, |scene| {
        reader.fold_all(scene);
        reader.search = Search::new("TWO of 7");
        assert_eq!(reader.find(scene, true), SearchStep::Wrapped);
        assert!(sight(&reader, scene).contains(&"  line two of 7".to_owned()), "{:?}", sight(&reader, scene));
        reader.search = Search::new("note 2");
        let seen: Vec<String> = (0..4)
            .map(|_| {
                reader.find(scene, true);
                let row_position = reader.search.as_ref().and_then(|search| search.here).expect("found");
                reader.texts(scene, scene.index(row_position.id))[row_position.row].trim_end().to_owned()
            })
            .collect();
        assert_eq!(seen, ["· note 20", "· note 21", "· note 22", "· note 23"]);
        assert_eq!(reader.find(scene, false), SearchStep::Here);
        reader.search = Search::new("nowhere at all");
        assert_eq!(reader.find(scene, true), SearchStep::Nowhere);
        assert!(Search::new("  ").is_none());
    });
}

#[test]
fn it_moves_between_landmarks() {
    let info = HostInfo::default();
    let mut transcript = transcript_of(2);
    transcript.apply(Moment(0), &E::ToolCallStart { id: "c".into(), name: "Read".into() });
    transcript.apply(
        Moment(0),
        &E::ToolCallReady { id: "c".into(), name: "Read".into(), arguments: json!({"file_path": "x.rs"}) },
    );
    transcript.apply(
        Moment(0),
        &E::ToolCallDone {
            id: "c".into(),
            message_id: "m".into(),
            result: ToolResult::text("Read", "a\nb\nc"),
            outcome: ToolCallOutcome::Succeeded,
        },
    );
    transcript.note(Level::Info, "the end");
    let mut reader = Viewer::new(true, &transcript);
    with_scene(&transcript, &info, 3, |scene| {
        assert!(reader.jump(scene, Landmark::Tool, false));
        assert_eq!(reader.chosen(scene), 4);
        assert!(sight(&reader, scene).iter().any(|row| row.contains("Read")), "{:?}", sight(&reader, scene));
        assert!(!reader.jump(scene, Landmark::Question, false));
        assert!(reader.jump(scene, Landmark::Message, false));
        assert_eq!(reader.chosen(scene), 2);
        assert!(!reader.jump(scene, Landmark::Tool, false));
        reader.fold(scene);
        assert!(reader.is_folded(scene.id(2)));
    });
}

#[test]
fn selected_text_is_copied_as_shown() {
    let info = HostInfo::default();
    let mut transcript = Transcript::default();
    transcript.push_user_message("漢字 first\nsecond line", Vec::new());
    transcript.note(Level::Info, "third");
    let mut reader = Viewer::new(true, &transcript);
    with_scene(&transcript, &info, 10, |scene| {
        reader.drag(scene, true, 0, 2);
        assert_eq!(reader.marked(scene), None, "a click selects nothing");
        reader.drag(scene, false, 0, 5);
        assert_eq!(reader.marked(scene).as_deref(), Some("漢字"));
        reader.drag(scene, false, 3, 3);
        assert_eq!(reader.marked(scene).as_deref(), Some("漢字 first\n  second line\n\n· th"));
        reader.drag(scene, true, 1, 7);
        reader.drag(scene, false, 0, 7);
        assert_eq!(reader.marked(scene).as_deref(), Some("first\n  second"));
    });
}

#[test]
fn code_blocks_have_numbers() {
    let text = "a\n\n```rust\nfn x() {}\n```\n\n> ```sh now\n> ls\n> ```\n\n    indented\n";
    let blocks = source::code_blocks(text);
    let found: Vec<_> = blocks.iter().map(|code| (code.language.as_str(), code.text.as_str())).collect();
    assert_eq!(found, [("rust", "fn x() {}\n"), ("sh", "ls\n"), ("", "indented\n")]);
}

#[test]
fn an_empty_conversation_is_handled() {
    let info = HostInfo::default();
    let transcript = Transcript::default();
    let mut reader = Viewer::new(true, &transcript);
    with_scene(&transcript, &info, 1, |scene| {
        for by in [-1, 1, 100] {
            reader.scroll(scene, by);
        }
        reader.end(scene, false);
        reader.fold(scene);
        reader.fold_all(scene);
        assert!(!reader.jump(scene, Landmark::Message, true));
        assert_eq!(reader.under(scene, 3), None);
        reader.drag(scene, true, 0, 0);
        assert_eq!(reader.marked(scene), None);
        reader.search = Search::new("x");
        assert_eq!(reader.find(scene, true), SearchStep::Nowhere);
        assert_eq!(sight(&reader, scene), Vec::<String>::new());
    });
}
