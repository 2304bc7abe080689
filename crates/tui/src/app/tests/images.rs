//! Images: attached in every way, sent, queued, withdrawn, and shown.

use ratatui::style::Color;
use serde_json::json;

use super::{TestApp, opened};
use crate::host::{
    Attach, Attached, ImageCmd, ImageMsg, OpenedThread, QueuedRow, ThreadCmd, ThreadMsg, UserInput,
};
use crate::image_cache::ImageCache;
use crate::msg::{Cmd, Msg};
use crate::theme::Depth;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::image::{ImageRef, Pixels};
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::record::StoredMessage;
use aye_core::contract::tool::ToolResult;

fn image(name: &str) -> ImageRef {
    ImageRef::of(name, b"GIF89a\x80\x02\xe0\x01").unwrap()
}

fn attached(test: &mut TestApp, words: &str, name: &str) {
    test.send(Msg::Image(ImageMsg::Attached(words.into(), Ok(Attached::Image(image(name))))));
}

fn started(cmds: &[Cmd]) -> Option<&UserInput> {
    cmds.iter().find_map(|cmd| match cmd {
        Cmd::Thread(ThreadCmd::Start(_, input)) => Some(input),
        _ => None,
    })
}

/// Red above, blue below, transparent on the right.
fn pixels() -> Pixels {
    let row = |colour: [u8; 3]| {
        [[colour[0], colour[1], colour[2], 255]; 6].into_iter().chain([[0; 4]; 2]).flatten()
    };
    let rgba = (0..4).flat_map(|y| row(if y < 2 { [250, 0, 0] } else { [0, 0, 250] })).collect();
    Pixels { width: 8, height: 4, rgba }
}

#[test]
fn a_dropped_file_becomes_a_mark_and_is_sent_with_the_message() {
    let mut test = TestApp::new(80, 24);
    test.keys("what is ");
    test.send(Msg::Paste("'/home/me/My Shot.gif' ".into()));
    assert!(test.cmds.contains(&Cmd::Image(ImageCmd::Attach(
        "'/home/me/My Shot.gif'".into(),
        Attach::Path("/home/me/My Shot.gif".into())
    ))));
    attached(&mut test, "'/home/me/My Shot.gif'", "My Shot.gif");
    assert_eq!(test.app.composer.text(), "what is [image 1: My Shot.gif 640×480] ");
    test.keys("?<enter>");
    let input = started(&test.cmds).expect("sent").clone();
    assert_eq!(input.text, "what is [image 1: My Shot.gif 640×480] ?");
    assert_eq!(input.images, [image("My Shot.gif")]);
    test.keys("and <ctrl-v>");
    assert!(test.cmds.contains(&Cmd::Image(ImageCmd::Attach(String::new(), Attach::Clipboard))));
    attached(&mut test, "", "clipboard");
    assert_eq!(test.app.composer.text(), "and [image 2: clipboard 640×480] ");
}

#[test]
fn enter_waits_for_files_named_with_an_at() {
    let mut test = TestApp::new(80, 24);
    test.keys("see @a.gif and @no.png.<enter>");
    assert!(started(&test.cmds).is_none(), "{:?}", test.cmds);
    attached(&mut test, "@a.gif", "a.gif");
    test.send(Msg::Image(ImageMsg::Attached("@no.png".into(), Ok(Attached::Nothing))));
    let input = started(&test.cmds).expect("sent");
    assert_eq!(input.text, "see [image 1: a.gif 640×480] and @no.png.");
    assert_eq!(input.images.len(), 1);
}

#[test]
fn failed_attachments_are_reported_and_nothing_is_sent() {
    let mut test = TestApp::new(80, 24);
    test.keys("see @a.gif<esc><enter>");
    test.send(Msg::Image(ImageMsg::Attached(
        "@a.gif".into(),
        Err("a.gif is not attached: it has 9.00 MiB".into()),
    )));
    assert!(test.screen().contains("a.gif is not attached: it has 9.00 MiB"), "{}", test.screen());
    assert!(started(&test.cmds).is_none());
    assert_eq!(test.app.composer.text(), "see @a.gif");
    test.keys("<enter>");
    assert_eq!(started(&test.cmds).expect("sent as text").text, "see @a.gif");
}

#[test]
fn queued_messages_keep_their_images() {
    let mut test = TestApp::new(80, 24);
    test.keys("go<enter>");
    test.keys("later ");
    test.send(Msg::Paste("/a.gif".into()));
    attached(&mut test, "/a.gif", "a.gif");
    test.keys("<enter>");
    let input = test.cmds.iter().find_map(|cmd| match cmd {
        Cmd::Thread(ThreadCmd::Enqueue(_, input)) => Some(input.clone()),
        _ => None,
    });
    let input = input.expect("queued");
    assert_eq!(input.images, [image("a.gif")]);
    // As loaded by another process: text and images of the store.
    let row = QueuedRow {
        id: 9,
        text: input.text.clone(),
        shown: None,
        images: input.images.clone(),
        note: String::new(),
        steers: false,
        is_report: false,
    };
    test.app.queue.rows.push(row);
    test.send(Msg::Thread(ThreadMsg::Unqueued { back: vec![9], gone: Vec::new() }));
    assert_eq!(test.app.composer.attached(), [image("a.gif")]);
}

fn stored(messages: Vec<Message>) -> OpenedThread {
    let stored = |(message, seq)| StoredMessage { seq, run_id: "r".into(), created_at: 1, message };
    opened(messages.into_iter().zip(1..).map(stored).collect())
}

fn shown(width: u16) -> String {
    let mut test = TestApp::new(width, 30);
    test.app.display.image_cache = ImageCache::new(Some(Depth::True));
    let message = Message::user_with(vec![
        ContentBlock::text("漢字 🎉 see [image 1: größe 漢字.gif 640×480]"),
        ContentBlock::StoredImage(image("größe 漢字.gif")),
        ContentBlock::StoredImage(ImageRef { hash: "b".into(), ..image("broken.gif") }),
    ]);
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(stored(vec![
        message,
        Message::assistant("Seen."),
    ]))))));
    assert!(
        test.scrollback.iter().all(|line| !line.contains("see [image")),
        "it waits: {:?}",
        test.scrollback
    );
    let asked = test.cmds.iter().filter(|cmd| matches!(cmd, Cmd::Image(ImageCmd::Picture(_)))).count();
    assert_eq!(asked, 2);
    test.send(Msg::Image(ImageMsg::Picture(image("").hash, Ok(pixels()))));
    test.send(Msg::Image(ImageMsg::Picture(
        "b".into(),
        Err("it cannot be decoded: its palette is \u{1b}[31mred".into()),
    )));
    assert!(test.scrollback.iter().any(|line| line.contains("Seen.")), "{:?}", test.scrollback);
    test.screen()
}

#[test]
fn images_are_shown_in_half_blocks_with_a_description() {
    for width in [40, 80, 140] {
        insta::assert_snapshot!(format!("pictures_{width}"), shown(width));
    }
}

#[test]
fn without_colours_there_is_only_the_description() {
    let mut test = TestApp::new(80, 24);
    let message =
        Message::user_with(vec![ContentBlock::text("see"), ContentBlock::StoredImage(image("a.gif"))]);
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(stored(vec![message]))))));
    assert!(test.cmds.iter().all(|cmd| !matches!(cmd, Cmd::Image(ImageCmd::Picture(_)))));
    assert!(test.screen().contains("a.gif: GIF, 640×480, 10 bytes"), "{}", test.screen());
}

#[test]
fn the_viewer_shows_images_too() {
    let mut test = TestApp::new(80, 24);
    test.app.display.image_cache = ImageCache::new(Some(Depth::Indexed));
    let message =
        Message::user_with(vec![ContentBlock::text("see"), ContentBlock::StoredImage(image("a.gif"))]);
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(stored(vec![message]))))));
    test.keys("<ctrl-o>");
    assert!(!test.screen().contains('▀'));
    test.send(Msg::Image(ImageMsg::Picture(image("").hash, Ok(pixels()))));
    assert!(test.screen().contains("a.gif: GIF"), "{}", test.screen());
    assert_eq!(Depth::Indexed.map(Color::Rgb(250, 0, 0)), Color::Indexed(196));
    test.cmds.clear();
    test.keys("o");
    assert_eq!(test.cmds, [Cmd::Image(ImageCmd::Open(vec![image("a.gif")]))]);
    test.send(Msg::Image(ImageMsg::Opened(Err("no desktop".into()))));
    assert!(test.screen().contains("no desktop"), "{}", test.screen());
}

#[test]
fn an_entry_without_an_image_opens_nothing() {
    let mut test = TestApp::new(80, 24);
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(stored(vec![Message::user("see")]))))));
    test.keys("<ctrl-o>");
    test.cmds.clear();
    test.keys("o");
    assert_eq!(test.cmds, []);
    assert!(test.screen().contains("this entry has no image"), "{}", test.screen());
}

/// A tool result with this number of images, one of them broken.
fn returned(test: &mut TestApp, id: &str, name: &str, count: usize) {
    let mut result = ToolResult::text(name, "the page");
    let named = |n: usize| ImageRef { hash: format!("h{n}"), ..image("image") };
    result.images = (0..count).map(|n| ContentBlock::StoredImage(named(n))).collect();
    result.images.push(ContentBlock::image("image/png", "bm9uZQ=="));
    test.call(id, name, json!({"url": "x"}));
    test.event(E::ToolCallDone {
        id: id.into(),
        message_id: "m".into(),
        result,
        outcome: ToolCallOutcome::Succeeded,
    });
}

#[test]
fn images_returned_by_a_tool_appear_below_it() {
    for width in [40, 80, 140] {
        let mut test = TestApp::new(width, 30);
        test.app.display.image_cache = ImageCache::new(Some(Depth::True));
        test.start("go");
        returned(&mut test, "a", "mcp__shots__take", 4);
        let asked = test.cmds.iter().filter(|cmd| matches!(cmd, Cmd::Image(ImageCmd::Picture(_)))).count();
        assert_eq!(asked, 4);
        assert!(test.scrollback.iter().all(|line| !line.contains("shots")), "{:?}", test.scrollback);
        for (n, hash) in ["h0", "h2", "h3"].into_iter().enumerate() {
            let mut pixels = pixels();
            pixels.rgba[0] = n as u8;
            test.send(Msg::Image(ImageMsg::Picture(hash.into(), Ok(pixels))));
        }
        test.send(Msg::Image(ImageMsg::Picture(
            "h1".into(),
            Err("it cannot be decoded: \u{1b}[31mred".into()),
        )));
        let shown = test.scrollback.join("\n");
        assert!(shown.contains("… 2 more images (Ctrl-O)"), "{shown}");
        insta::assert_snapshot!(format!("returned_{width}"), shown);
        test.keys("<ctrl-o>");
        assert!(test.screen().matches("image: GIF").count() >= 3, "{}", test.screen());
    }
}

#[test]
fn a_read_image_is_not_grouped_with_other_reads() {
    let mut test = TestApp::new(80, 30);
    test.app.display.image_cache = ImageCache::new(Some(Depth::True));
    test.start("go");
    returned(&mut test, "a", "Read", 1);
    test.send(Msg::Image(ImageMsg::Picture("h0".into(), Ok(pixels()))));
    assert!(test.scrollback.iter().any(|line| line.contains("Read") && line.contains("· 1 image")));
    assert!(test.scrollback.iter().any(|line| line.contains('▀')), "{:?}", test.scrollback);
    // Reopened it looks the same: then the images are in the message.
    let before = test.scrollback.clone();
    let mut message = Message::tool("a", "the page");
    message.content.push(ContentBlock::StoredImage(ImageRef { hash: "h0".into(), ..image("image") }));
    message.metadata =
        Some(json!({"tool_result": ToolResult::text("Read", "the page"), "outcome": "succeeded"}));
    let call = ToolCall::new("a", "Read", json!({"url": "x"}));
    let messages = vec![Message::user("go"), Message::assistant_with(Vec::new(), vec![call]), message];
    let mut test = TestApp::new(80, 30);
    test.app.display.image_cache = ImageCache::new(Some(Depth::True));
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(stored(messages))))));
    test.send(Msg::Image(ImageMsg::Picture("h0".into(), Ok(pixels()))));
    let tail = |lines: &[String]| {
        let from = lines.iter().position(|line| line.contains("Read")).expect("the call");
        lines[from..].to_vec()
    };
    assert_eq!(tail(&test.scrollback), tail(&before));
}
