//! Rewinding, in keys and screens.

use crate::app::tests::TestApp;
use crate::host::{ThreadCmd, ThreadMsg};
use crate::msg::{Cmd, Msg};
use crate::thread_actions::{
    PickPurpose, RewindCmd, RewindMsg, RewindPoint, RewindPoints, RewindPreview, Rewound,
};
use crate::viewer::Document;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::Message;
use aye_core::contract::record::{StoredMessage, ThreadMarks, ThreadRecord, ThreadSummary};
use aye_core::contract::snapshot::{ChangedFile, Changes, FileChange, FileChangeKind, RewindTarget};
use aye_core::contract::tool::FilePreview;

fn talked(width: u16) -> TestApp {
    let mut app = TestApp::new(width, 24);
    app.start("hello");
    app.finish(TerminationReason::NaturalEnd);
    app
}

fn send_rewind(app: &mut TestApp, msg: RewindMsg) {
    app.send(Msg::Back(Box::new(msg)));
}

fn asked(app: &TestApp) -> Vec<&RewindCmd> {
    app.cmds.iter().filter_map(|cmd| if let Cmd::Back(cmd) = cmd { Some(cmd) } else { None }).collect()
}

fn points() -> RewindPoints {
    let point = |keep, text: &str| RewindPoint { keep, is_message: true, text: text.into(), at: 0 };
    RewindPoints {
        points: vec![
            point(0, "hello"),
            point(2, "now 漢字 and 👩‍👩‍👧 emoji\nsecond line"),
            point(6, "\u{1b}[31mred"),
        ],
        undo: Some("rewound 2 files to before “hello”".into()),
    }
}

fn file(change: FileChangeKind, path: &str, counts: Option<(usize, usize)>) -> ChangedFile {
    let (added, removed) = counts.unzip();
    ChangedFile { path: path.into(), change, added, removed }
}

fn preview() -> RewindPreview {
    RewindPreview {
        files: vec![
            file(FileChangeKind::Changed, "src/main.rs", Some((10, 2))),
            file(FileChangeKind::Deleted, "new 漢字.txt", Some((0, 3))),
            file(FileChangeKind::Created, "bytes.bin", None),
        ],
        no_files: None,
        moves: true,
        notes: vec!["not kept: big.iso (700 MiB)".into()],
    }
}

#[test]
fn pressing_escape_twice_on_an_empty_composer_opens_rewind() {
    let mut app = talked(80);
    app.keys("<esc>");
    assert!(app.live().contains("Esc again: rewind"), "{}", app.live());
    assert!(asked(&app).is_empty());
    app.wait(1500);
    app.keys("<esc>");
    assert!(asked(&app).is_empty(), "the first one was long ago");
    app.keys("<esc>");
    assert_eq!(asked(&app), [&RewindCmd::Points("t".into(), PickPurpose::Back)]);
    app.keys("<esc>");
    assert!(app.app.overlays.picker.is_none());

    // Another key in between: the second one is a first one.
    for between in ["x<backspace>", "/vim<enter>/vim<enter>", "<down>", "<ctrl-o><ctrl-o>"] {
        let mut app = talked(80);
        app.keys("<esc>");
        app.keys(between);
        assert!(!app.screen().contains("Esc again"), "{between}: {}", app.screen());
        app.keys("<esc>");
        assert!(asked(&app).is_empty(), "{between}");
    }
    let mut app = talked(80);
    app.keys("<esc>");
    app.send(Msg::Paste("x".into()));
    app.keys("<backspace><esc>");
    assert!(asked(&app).is_empty(), "a paste in between");

    let mut app = talked(80);
    app.keys("x<esc><esc>");
    assert!(asked(&app).is_empty(), "that does not leave the text being typed");
}

#[test]
fn a_rewind_is_previewed_before_it_happens() {
    let mut app = talked(80);
    app.keys("/rewind<enter>");
    send_rewind(&mut app, RewindMsg::Points(PickPurpose::Back, Ok(points())));
    insta::assert_snapshot!("rewind_points_80", app.live());
    app.keys("<down><down><enter>");
    assert_eq!(asked(&app).last(), Some(&&RewindCmd::Preview("t".into(), Some(2))));
    // A preview of another point is not shown.
    send_rewind(&mut app, RewindMsg::Preview(Some(0), Ok(preview())));
    assert!(app.app.overlays.picker.as_ref().is_some_and(crate::picker::Picker::is_loading));
    send_rewind(&mut app, RewindMsg::Preview(Some(2), Ok(preview())));
    for width in [40, 80, 140] {
        app.send(Msg::Resize(width, 24));
        insta::assert_snapshot!(format!("rewind_preview_{width}"), app.live());
    }
    app.keys("<down><enter>");
    assert_eq!(asked(&app).last(), Some(&&RewindCmd::Go("t".into(), Some(2), RewindTarget::Conversation)));

    let went = Rewound {
        thread: "t2".into(),
        text: Some("now 漢字".into()),
        words: "rewound the conversation to before “now”; /rewind can undo this".into(),
        failed: vec!["a.txt was not restored: a folder is in the way".into()],
    };
    send_rewind(&mut app, RewindMsg::Went(Ok(went)));
    assert!(matches!(app.cmds.last(), Some(Cmd::Thread(ThreadCmd::Open(Some(id)))) if id.as_str() == "t2"));
    let mut opened = crate::app::tests::opened(Vec::new());
    opened.thread.id = "t2".into();
    app.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened)))));
    assert_eq!(app.app.composer.text(), "now 漢字");
    assert!(app.screen().contains("was not restored: a folder is in the way"), "{}", app.screen());
}

#[test]
fn the_last_rewind_can_be_undone() {
    let mut app = talked(80);
    app.keys("/rewind<enter>");
    send_rewind(&mut app, RewindMsg::Points(PickPurpose::Back, Ok(points())));
    app.keys("<enter>");
    assert_eq!(asked(&app).last(), Some(&&RewindCmd::Preview("t".into(), None)));
    let none = RewindPreview {
        moves: true,
        no_files: Some("they are elsewhere".into()),
        ..RewindPreview::default()
    };
    send_rewind(&mut app, RewindMsg::Preview(None, Ok(none)));
    assert!(app.live().contains("files stay unchanged: they are elsewhere"), "{}", app.live());
    app.keys("<enter>");
    assert_eq!(asked(&app).last(), Some(&&RewindCmd::Go("t".into(), None, RewindTarget::Conversation)));
}

fn threads() -> Vec<ThreadSummary> {
    let row = |id: &str, title: &str, marks: ThreadMarks| ThreadSummary {
        thread: ThreadRecord {
            id: id.into(),
            title: title.into(),
            cwd: "/home/me/proj".into(),
            created_at: 1,
            updated_at: 1,
        },
        messages: 4,
        waiting: 0,
        status: None,
        damaged: None,
        marks,
    };
    let pinned = ThreadMarks { pinned: true, branch: Some("main".into()), ..ThreadMarks::default() };
    let left = ThreadMarks { left_for: Some("t1".into()), ..ThreadMarks::default() };
    vec![row("t1", "fix 漢字", pinned), row("t2", "the other one", left)]
}

#[test]
fn conversations_are_searched_by_content() {
    let mut app = talked(100);
    app.keys("/threads<enter>");
    app.send(Msg::Thread(ThreadMsg::Listed(Ok(threads()))));
    insta::assert_snapshot!("threads_100", app.live());
    app.keys("needle");
    let number = match asked(&app).last() {
        Some(RewindCmd::Search(number, words)) if words == "needle" => *number,
        other => panic!("{other:?}"),
    };
    assert!(app.live().contains("no match"));
    send_rewind(&mut app, RewindMsg::Found(number - 1, vec![("t1".into(), "old needle".into())], true));
    assert!(app.live().contains("no match"), "an older search");
    send_rewind(&mut app, RewindMsg::Found(number, vec![("t2".into(), "a needle in it".into())], true));
    assert!(app.live().contains("a needle in it"), "{}", app.live());
    app.keys("<enter>");
    assert!(matches!(app.cmds.last(), Some(Cmd::Thread(ThreadCmd::Open(Some(id)))) if id.as_str() == "t2"));
}

#[test]
fn the_menu_of_a_conversation_renames_pins_and_deletes_it() {
    let mut app = talked(80);
    let menu = |app: &mut TestApp| {
        app.keys("/threads<enter>");
        app.send(Msg::Thread(ThreadMsg::Listed(Ok(threads()))));
        app.keys("<right>");
    };
    menu(&mut app);
    insta::assert_snapshot!("thread_menu_80", app.live());
    app.keys("<down><enter>");
    assert!(app.live().contains("Name:  fix 漢字"), "{}", app.live());
    app.keys("<backspace>!<enter>");
    assert_eq!(asked(&app).last(), Some(&&RewindCmd::Rename("t1".into(), "fix 漢!".into())));
    menu(&mut app);
    app.keys("unpin<enter>");
    assert_eq!(asked(&app).last(), Some(&&RewindCmd::Pin("t1".into(), false)));
    menu(&mut app);
    app.keys("delete<enter><enter>");
    assert!(!asked(&app).iter().any(|cmd| matches!(cmd, RewindCmd::Delete(_))), "deny is the first answer");
    app.keys("<esc>");
    menu(&mut app);
    app.keys("delete<enter><down><enter>");
    assert_eq!(asked(&app).last(), Some(&&RewindCmd::Delete(ThreadId::from("t1"))));
    send_rewind(&mut app, RewindMsg::Deleted("t1".into(), Ok(())));
    assert!(matches!(app.cmds.last(), Some(Cmd::Thread(ThreadCmd::List))));
}

fn changed(path: &str, change: FileChangeKind, old: &str, new: &str) -> FileChange {
    let preview = FilePreview {
        path: format!("/w/{path}").into(),
        before: None,
        after: String::new(),
        old_text: Some(old.into()),
        new_text: Some(new.into()),
    };
    FileChange { about: file(change, path, None), preview: Some(preview) }
}

fn numbered(lines: std::ops::Range<usize>) -> String {
    lines.fold(String::new(), |text, n| text + &format!("line {n}\n"))
}

fn send_changes(app: &mut TestApp, changes: Changes) {
    let document = Box::new(Document::of_changes(&changes));
    send_rewind(app, RewindMsg::Changes(Ok((changes, document))));
}

fn some_changes() -> Changes {
    let old = "fn main() {\n    old();\n}\n".to_owned() + &numbered(0..20);
    let new = "fn main() {\n    new(\"👍 e\u{301}\");\n}\n".to_owned() + &numbered(0..18) + "end\n";
    Changes {
        files: vec![
            changed("src/漢字.rs", FileChangeKind::Changed, &old, &new),
            FileChange { about: file(FileChangeKind::Deleted, "bytes.bin", None), preview: None },
            changed("src/last.rs", FileChangeKind::Created, "", "one\ntwo\n"),
        ],
        more: 3,
        notes: vec!["since 12:00, before the first step".into()],
    }
}

#[test]
fn changes_are_read_by_file_and_hunk() {
    for width in [40, 80, 140] {
        let mut app = talked(width);
        app.keys("/diff<enter>");
        assert_eq!(asked(&app), [&RewindCmd::Changes("t".into(), String::new())]);
        send_changes(&mut app, some_changes());
        insta::assert_snapshot!(format!("diff_page_{width}"), app.screen());
        app.keys("]<enter>");
        insta::assert_snapshot!(format!("diff_folded_{width}"), app.screen());
    }
    let mut app = talked(80);
    send_changes(&mut app, some_changes());
    // The first file, its second hunk, folded separately.
    app.keys("]tt<enter>");
    assert!(app.screen().contains("▎  @@ -19,5 +19,4 @@ +1 −2  … 6 more"), "{}", app.screen());
    assert!(app.screen().contains("new(\"👍"), "the other one is not");
    app.keys("y");
    let copied = app.cmds.last().cloned();
    assert!(
        matches!(&copied, Some(Cmd::Copy(text)) if text.starts_with("@@ -19,5 +19,4 @@\n line 15\n")),
        "{copied:?}"
    );
    app.keys("]]]");
    assert!(app.screen().contains("no more below"), "{}", app.screen());
    assert!(app.screen().contains("src/last.rs"), "{}", app.screen());
    app.keys("<tab>");
    assert!(!app.screen().contains("new(\"👍"), "{}", app.screen());
    app.keys("q");
    assert!(app.app.overlays.viewer.is_none());
}

#[test]
fn twenty_thousand_lines_open_at_once() {
    let old: String = (0..20_000).fold(String::new(), |text, n| text + &format!("before {n}\n"));
    let new: String = (0..20_000).fold(String::new(), |text, n| text + &format!("after {n}\n"));
    let changes = Changes {
        files: vec![changed("long.rs", FileChangeKind::Changed, &old, &new)],
        ..Changes::default()
    };
    let mut app = talked(80);
    let document = Box::new(Document::of_changes(&changes));
    let began = std::time::Instant::now();
    send_rewind(&mut app, RewindMsg::Changes(Ok((changes, document))));
    assert!(app.screen().contains("long.rs +20000 −20000"), "{}", app.screen());
    app.keys("<end>");
    assert!(app.screen().contains("after 19999"), "{}", app.screen());
    // Only nearby rows are laid out: all of it takes seconds in a debug build.
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
    app.keys("<home>]t<down><pagedown>/after 9000<enter>");
    assert!(app.screen().contains("after 9000"), "{}", app.screen());
}

#[test]
fn changes_against_git_need_the_word_git() {
    let mut app = talked(80);
    app.keys("/diff ");
    assert!(app.live().contains("[git] [PATH]"), "{}", app.live());
    app.keys("git src/a b<enter>");
    assert_eq!(asked(&app), [&RewindCmd::GitChanges("src/a b".into())]);
    send_changes(&mut app, Changes::default());
    assert!(app.app.overlays.viewer.is_none());
    assert!(app.screen().contains("no differences"), "{}", app.screen());
}

#[test]
fn a_screen_reader_reads_the_changes_in_order() {
    let mut app = talked(80);
    app.app.display.is_linear = true;
    send_changes(&mut app, some_changes());
    assert!(app.app.overlays.viewer.is_none());
    let screen = app.scrollback.join("\n") + &app.live();
    assert!(screen.contains("6 files differ") && screen.contains("new(\"👍"), "{screen}");
}

fn stored(seq: u64, message: Message) -> StoredMessage {
    StoredMessage { seq, run_id: "r".into(), created_at: 0, message }
}

fn forks() -> Document {
    let begin = [Message::user("hello 漢字"), Message::assistant("Hello. What is it?")];
    let one = [
        Message::user("do it the first way"),
        Message::assistant("I did it so:\n\n```rust\nfn first() {}\n```\n\n- 👩‍👩‍👧 family\n- e\u{301}"),
        Message::user("more"),
        Message::assistant(
            "Here is more of the first way, in one sentence that is somewhat longer than a line.",
        ),
    ];
    let other = [Message::user("do it the other way"), Message::assistant("I did it otherwise.")];
    let as_stored = |rest: &[Message]| -> Vec<StoredMessage> {
        begin.iter().chain(rest).cloned().zip(1..).map(|(message, seq)| stored(seq, message)).collect()
    };
    Document::of_forks(["the first", ""], [&as_stored(&one), &as_stored(&other)])
}

#[test]
fn two_conversations_are_shown_as_one_diff() {
    for width in [40, 80, 100, 140] {
        let mut app = talked(width);
        app.keys("/compare t2<enter>");
        assert_eq!(asked(&app), [&RewindCmd::Compare("t".into(), "t2".into())]);
        send_rewind(&mut app, RewindMsg::Compared(Ok(Box::new(forks()))));
        insta::assert_snapshot!(format!("compared_{width}"), app.screen());
    }
    let mut app = talked(100);
    send_rewind(&mut app, RewindMsg::Compared(Ok(Box::new(forks()))));
    app.keys("]y");
    let copied = app.cmds.last().cloned();
    assert!(matches!(&copied, Some(Cmd::Copy(text)) if text == "the first → (no title)"), "{copied:?}");
    app.keys("ty");
    let copied = app.cmds.last().cloned();
    let is_patch =
        |text: &str| text.contains("-do it the first way") && text.contains("+do it the other way");
    assert!(matches!(&copied, Some(Cmd::Copy(text)) if is_patch(text)), "{copied:?}");
}
