//! Images, from a user's file to the model and the screen, in the real program.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use aye::llm::WireFormat;
use serde_json::Value;

use crate::support::home::{Home, with_program};
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::mock_server::{MockServer, Reply};
use crate::support::pty::Pty;

/// A different colour in each pixel.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let byte = |n: u32, of: u32| u8::try_from(n * 255 / of).expect("a byte");
    let data: Vec<u8> = (0..height)
        .flat_map(|y| (0..width).flat_map(move |x| [byte(x, width), byte(y, height), 128]))
        .collect();
    encoder.write_header().expect("written").write_image_data(&data).expect("written");
    out
}

fn put(home: &Home, name: &str, bytes: &[u8]) {
    std::fs::write(home.work().join(name), bytes).expect("written");
}

/// How often the image appears in a request.
fn shown(chat: &Chat, bytes: &[u8]) -> usize {
    let url = format!("data:image/png;base64,{}", STANDARD.encode(bytes));
    let parts = chat.messages().iter().filter_map(|message| message["content"].as_array()).flatten();
    parts.filter(|part| part["image_url"]["url"] == url.as_str()).count()
}

#[test]
fn a_dropped_file_reaches_model_and_user_and_outlives_a_kill() {
    let llm = MockLlm::by(|_| Answer::say("A gradient."));
    let home = Home::with(&llm);
    let shot = png(64, 40);
    put(&home, "My Shot.png", &shot);
    let env = [("COLORTERM", "truecolor")];
    let tty = Pty::start_with(&home, &[], 100, 30, &env);
    tty.ready();
    tty.send("what is ");
    tty.paste(&format!("'{}' ", home.work().join("My Shot.png").display()));
    tty.shows("what is [image 1: My Shot.png 64×40]");
    tty.send("?\r");
    tty.shows("A gradient.");
    tty.shows("My Shot.png: PNG, 64×40");
    tty.wait("half blocks", |view| view.all().contains("▀▀▀▀"));
    let asked = llm.asked();
    assert_eq!(shown(&asked[0], &shot), 1, "{:#}", asked[0].body["messages"]);
    assert_eq!(asked[0].user(), "what is [image 1: My Shot.png 64×40] ?");
    // A draft outlives a kill, like a sent message.
    tty.paste("My\\ Shot.png");
    tty.shows("[image 2: My Shot.png 64×40]");
    tty.wait("the draft", |_| {
        let drafts = std::fs::read_dir(home.root().join("aye/state/drafts")).into_iter().flatten().flatten();
        drafts
            .into_iter()
            .any(|file| std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains("image 2")))
    });
    tty.kill();
    let mut tty = Pty::start_with(&home, &["-c"], 100, 40, &env);
    tty.shows("My Shot.png: PNG, 64×40");
    tty.shows("▀▀▀▀");
    tty.shows("[image 2: My Shot.png 64×40]");
    tty.send(" and this?\r");
    tty.wait("an answer", |view| view.all().matches("A gradient.").count() == 2);
    assert_eq!(shown(&llm.asked()[1], &shot), 2);
    tty.quit();
}

#[test]
fn an_image_is_opened_in_the_program_of_the_desktop() {
    let llm = MockLlm::by(|_| Answer::say("A gradient."));
    let home = Home::with(&llm);
    let shot = png(64, 40);
    put(&home, "shot.png", &shot);
    let opened = home.root().join("opened");
    let path = with_program(
        &home,
        "xdg-open",
        &format!("cp \"$1\" '{0}.new'; mv '{0}.new' '{0}'", opened.display()),
    );
    let temporary = home.root().join("temporary");
    std::fs::create_dir(&temporary).expect("a folder");
    let temporary = temporary.to_string_lossy();
    for (display, mut env) in [("", vec![]), (":7", vec![("DISPLAY", ":7")])] {
        env.extend([("PATH", path.as_str()), ("TMPDIR", &temporary)]);
        let mut tty = Pty::start_with(&home, &[], 100, 30, &env);
        tty.ready();
        tty.send("what is @shot.png\r");
        tty.shows("A gradient.");
        tty.send("\x0f");
        tty.wait("the viewer", |view| view.on_other_screen());
        tty.send("[o");
        if display.is_empty() {
            tty.shows("this machine has no desktop");
            assert!(!opened.exists());
        } else {
            until("it is opened", || opened.exists());
            assert_eq!(std::fs::read(&opened).expect("a copy"), shot);
        }
        tty.send("q");
        tty.quit();
        let left: Vec<_> = std::fs::read_dir(&*temporary).expect("a folder").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_mcp_servers_image_reaches_model_and_user() {
    let tool = "mcp__shed__shot";
    let llm =
        MockLlm::by(move |chat| match chat.messages().iter().any(|message| message["role"] == "tool") {
            true => Answer::say("It is done."),
            false if chat.knows(tool) => Answer::say("I will.").call("c1", tool, serde_json::json!({})),
            false => Answer::say("Not yet."),
        });
    let home = Home::with(&llm);
    let file = home.root().join("tools.json").to_string_lossy().into_owned();
    let list = serde_json::json!([{"name": "shot", "description": "x", "inputSchema": {"type": "object"}}]);
    std::fs::write(&file, list.to_string()).expect("written");
    std::fs::write(format!("{file}.shot"), STANDARD.encode(png(64, 40))).expect("written");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mcp_server.sh");
    home.ok(&["mcp", "add", "shed", "--", "sh", script, &file]);
    home.rules("rules: [{tool: 'mcp__shed__*', behavior: allow}]");
    let env = [("COLORTERM", "truecolor")];
    let mut tty = Pty::start_with(&home, &[], 100, 30, &env);
    tty.ready();
    // Nobody waits for the server.
    let mut asked = 0;
    while tty.look(|view| !view.all().contains("It is done.")) {
        asked += 1;
        tty.say("go");
        tty.wait("an answer", |view| {
            view.all().contains("It is done.") || view.all().matches("Not yet.").count() == asked
        });
    }
    tty.shows("image: PNG, 64×40");
    tty.wait("half blocks", |view| view.all().contains("▀▀▀▀"));
    assert_eq!(shown(&llm.last(), &png(64, 40)), 1, "{:#}", llm.last().body["messages"]);
    tty.quit();
    let mut tty = Pty::start_with(&home, &["-c"], 100, 30, &env);
    tty.shows("image: PNG, 64×40");
    tty.wait("half blocks", |view| view.all().contains("▀▀▀▀"));
    tty.quit();
}

#[test]
fn headless_takes_images_by_flag_and_name() {
    let llm = MockLlm::by(|_| Answer::say("Seen."));
    let home = Home::with(&llm);
    let (a, b) = (png(10, 10), png(20, 10));
    put(&home, "a.png", &a);
    put(&home, "b.png", &b);
    home.ok(&["-p", "compare with @b.png, and @none.png", "--image", "a.png"]);
    let asked = llm.asked();
    assert_eq!((shown(&asked[0], &a), shown(&asked[0], &b)), (1, 1), "{:#}", asked[0].body["messages"]);

    put(&home, "c.png", b"#!/bin/sh\n");
    let out = home.aye(&["-p", "x", "--image", "c.png"]).run().exits(2);
    assert!(out.stderr.contains("--image: c.png: not a PNG, JPEG, GIF or WebP image"), "{}", out.stderr);
    home.rules("rules:\n  - {tool: 'Read(b.png)', behavior: deny}\n");
    let out = home.aye(&["-p", "see @b.png"]).run().exits(2);
    assert!(out.stderr.contains("b.png is not attached: blocked by rule"), "{}", out.stderr);
    assert_eq!(llm.asked().len(), 1);
}

#[test]
fn ctrl_v_reads_the_clipboard_and_a_colourless_screen_describes_the_image() {
    let llm = MockLlm::by(|_| Answer::say("Seen."));
    let home = Home::with(&llm);
    let shot = png(30, 20);
    put(&home, "clip.png", &shot);
    let clip = home.work().join("clip.png");
    let script =
        format!("case \"$*\" in *TARGETS*) echo image/png;; *image/png*) cat '{}';; esac", clip.display());
    let path = with_program(&home, "xclip", &script);
    let env = [("PATH", path.as_str()), ("DISPLAY", ":7"), ("NO_COLOR", "1")];
    let mut tty = Pty::start_with(&home, &[], 90, 24, &env);
    tty.ready();
    tty.send("look ");
    tty.send("\x16");
    tty.shows("look [image 1: clipboard 30×20]");
    tty.send("\r");
    tty.shows("Seen.");
    tty.shows("clipboard: PNG, 30×20");
    assert!(!tty.look(|view| view.all().contains('▀')), "no colours, no image");
    assert_eq!(shown(&llm.asked()[0], &shot), 1);
    tty.quit();
}

/// The images in a request, in order, in each wire format: the media type and the bytes in base64. Ollama
/// names no type.
pub fn pictures(adapter: WireFormat, body: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(adapter, body, &mut found);
    found
}

fn collect(adapter: WireFormat, value: &Value, found: &mut Vec<(String, String)>) {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let of_url = |url: &Value| {
        let (kind, data) = url.as_str()?.strip_prefix("data:")?.split_once(";base64,")?;
        Some((kind.to_owned(), data.to_owned()))
    };
    let of_pair = |kind: &Value, data: &Value| Some((text(kind)?, text(data)?));
    let one = match adapter {
        WireFormat::OpenAi if value["type"] == "image_url" => of_url(&value["image_url"]["url"]),
        WireFormat::OpenAiResponses if value["type"] == "input_image" => of_url(&value["image_url"]),
        WireFormat::Anthropic if value["type"] == "image" && value["source"]["type"] == "base64" => {
            of_pair(&value["source"]["media_type"], &value["source"]["data"])
        }
        WireFormat::Gemini => {
            let inline = value.get("inlineData").or_else(|| value.get("inline_data"));
            inline.and_then(|inline| {
                let kind = inline.get("mimeType").or_else(|| inline.get("mime_type"))?;
                of_pair(kind, &inline["data"])
            })
        }
        WireFormat::Ollama => {
            let images = value["images"].as_array().into_iter().flatten();
            found.extend(images.filter_map(text).map(|data| (String::new(), data)));
            None
        }
        WireFormat::OpenAi | WireFormat::OpenAiResponses | WireFormat::Anthropic => None,
    };
    found.extend(one);
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect(adapter, value, found)),
        Value::Object(map) => map.values().for_each(|value| collect(adapter, value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An answer that says "Seen." in each wire format.
fn seen(adapter: WireFormat) -> Reply {
    let events: &[&str] = match adapter {
        WireFormat::OpenAi => &[
            r#"{"choices":[{"index":0,"delta":{"content":"Seen."}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            "[DONE]",
        ],
        WireFormat::OpenAiResponses => &[
            r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Seen."}"#,
            r#"{"type":"response.completed","response":{"id":"r1","object":"response","created_at":1,"model":"m","status":"completed","output":[],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}"#,
        ],
        WireFormat::Anthropic => &[
            r#"{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Seen."}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#,
            r#"{"type":"message_stop"}"#,
        ],
        WireFormat::Gemini => &[
            r#"{"candidates":[{"content":{"parts":[{"text":"Seen."}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"totalTokenCount":2}}"#,
        ],
        WireFormat::Ollama => {
            let lines = [
                r#"{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"Seen."},"done":false}"#,
                r#"{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}"#,
            ];
            return Reply::new(200, lines.map(|line| format!("{line}\n")).concat());
        }
    };
    let event = |data: &&str| {
        let kind = serde_json::from_str::<Value>(data)
            .ok()
            .and_then(|data| data["type"].as_str().map(str::to_owned));
        let name = kind.map(|kind| format!("event: {kind}\n")).unwrap_or_default();
        format!("{name}data: {data}\n\n")
    };
    Reply::sse(events.iter().map(event).collect::<String>())
}

/// Through the whole program: from the user's files to the bytes on the wire, and again from the store.
#[tokio::test(flavor = "multi_thread")]
async fn images_are_sent_in_each_providers_format() {
    let shot = png(10, 8);
    // The type of a file is detected from its bytes, not its name.
    let moving = b"GIF89a\x05\x00\x04\x00\x00\x00\x00;".to_vec();
    for adapter in WireFormat::ALL {
        let server = MockServer::start([seen(adapter)]).await;
        let home = Home::new();
        home.config(&format!(
            "model = \"mock/m1\"\n[providers.mock]\nadapter = \"{}\"\nbase_url = \"{}\"\n\
             api_key_env = \"MOCK_KEY\"\n[retry]\nmax_retries = 0\n",
            adapter.as_str(),
            server.url
        ));
        put(&home, "a.png", &shot);
        put(&home, "b.png", &moving);
        let run = move |home: Home, args: &'static [&'static str]| {
            tokio::task::spawn_blocking(move || {
                home.ok(args).prints("Seen.");
                home
            })
        };
        let home =
            run(home, &["-p", "compare 漢字", "--image", "a.png", "--image", "b.png"]).await.expect("ran");
        run(home, &["-c", "-p", "and again"]).await.expect("ran");
        let kind = |kind: &str| if adapter == WireFormat::Ollama { String::new() } else { kind.to_owned() };
        let expected =
            vec![(kind("image/png"), STANDARD.encode(&shot)), (kind("image/gif"), STANDARD.encode(&moving))];
        let asked = server.asked();
        let bodies: Vec<&Value> = asked
            .iter()
            .map(|asked| &asked.body)
            .filter(|body| body.to_string().contains("compare 漢字"))
            .collect();
        assert_eq!(bodies.len(), 2, "{adapter:?}: {asked:#?}");
        for body in bodies {
            assert_eq!(pictures(adapter, body), expected, "{adapter:?}: {body:#}");
        }
    }
}
