//! Provider rows: answers that break off, lie, repeat themselves or never end, through the real binary. The
//! rows about the bytes of a stream are also in `wire`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Found, each, ensure, of_area};
use crate::support::home::{Home, Out};
use crate::support::llm::{Answer, MockLlm, Part};

type Check = fn() -> Found;

pub fn check_of(id: &str) -> Option<Check> {
    Some(match id {
        "PR003" => || answers(&(":\n\n:\n\n: keep\n\n".to_owned() + &whole("pong")), "pong"),
        "PR004" => || {
            answers(&whole("pong").replace("\n\n", "\r\n\r\n"), "pong")
                .and_then(|()| answers(&whole("pong").replace("\n\n", "\r\r"), "pong"))
        },
        "PR005" => || fails(&frame(&delta(json!({"content": "half"}))), &[1, 75]),
        "PR007" => one_byte_at_a_time,
        "PR010" => || {
            never_runs(
                json!({"index": 0, "id": "a", "function": {"name": "Bash", "arguments": "{\"command\":\"touch pwn "}}),
            )
        },
        "PR015" => deep_arguments,
        "PR017" => || unknown_tool("Bassh"),
        "PR018" => || unknown_tool("bash\0"),
        "PR021" => id_of_an_earlier_turn,
        "PR025" => tool_use_without_calls,
        "PR026" => retry_after_is_waited_for,
        "PR027" => || not_waited_for("Wed, 21 Oct 2099 07:28:00 GMT"),
        "PR028" => bad_retry_after,
        "PR035" => cut_in_a_call,
        "PR040" => no_tls,
        "PR041" => || answers(&whole("\u{1b}]52;c;AA==\u{7}"), "52;c;AA=="),
        "PR042" => after_the_end,
        "PR101o" => || status(401, "{\"error\":{\"message\":\"bad key\"}}", &[1]),
        "PR102o" => || status(403, "<html>\u{1b}[2Jforbidden</html>", &[1]),
        "PR103o" => || status(404, "{\"error\":{\"message\":\"no such model\"}}", &[1]),
        "PR104o" => || status(500, "", &[75]),
        "PR105o" => || status(503, "<html><body>busy</body></html>", &[75]),
        "PR106o" => || {
            status(
                529,
                "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}",
                &[75],
            )
        },
        "PR107o" => || status(200, "<html>not a stream</html>", &[1, 75]),
        "PR108o" => || status(204, "", &[1, 75]),
        "PR109o" => redirect,
        "PR110o" => || fails("data: {not json}\n\n", &[1, 75]),
        "PR111o" => || fails("data: [DONE]\n\n", &[0, 1, 75]),
        "PR112o" => || fails("", &[1, 75]),
        "PR113o" => || fails(&"data: x".repeat(1_000_000), &[1, 75]),
        "PR114o" => || fails("HTTP/1.1 200 OK\r\n\r\n", &[1, 75]),
        "PR115o" => || unknown_tool(""),
        "PR116o" => || unknown_tool(&"x".repeat(5000)),
        "PR117o" => || unknown_tool("\u{1b}[2J\u{202e}"),
        "PR118o" => || unknown_tool("../../Bash"),
        "PR119o" => doubled_ids,
        "PR120o" => || {
            never_runs(
                json!({"index": 0, "id": "a", "function": {"name": "Bash", "arguments": "[\"touch pwn\"]"}}),
            )
        },
        "PR121o" => || {
            never_runs(
                json!({"index": 0, "id": "a", "function": {"name": "Bash", "arguments": "{\"command\":\"touch pwn\"}{\"command\":\"touch pwn\"}"}}),
            )
        },
        "PR122o" => gzip_bomb,
        "PR123o" => || status(429, "", &[75]),
        _ => return None,
    })
}

#[test]
fn every_row() {
    let rows = of_area("provider").into_iter().filter(|row| check_of(&row.id).is_some()).collect();
    each(rows, |row| check_of(&row.id).expect("a check")());
}

fn frame(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn delta(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn whole(text: &str) -> String {
    frame(&delta(json!({"content": text}))) + &frame(&finish("stop")) + "data: [DONE]\n\n"
}

/// A server that sends these bytes to every client, in chunks of this size.
fn serve(bytes: Vec<u8>, size: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("a valid address"));
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let bytes = bytes.clone();
            std::thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                let mut got = Vec::new();
                let mut part = [0; 16384];
                // The head, and as much of the body as it announces.
                loop {
                    let Ok(count) = stream.read(&mut part) else { return };
                    got.extend_from_slice(&part[..count]);
                    // A TLS greeting is answered in plain text.
                    if got.first() == Some(&0x16) {
                        break;
                    }
                    let Some(head) = got.windows(4).position(|four| four == b"\r\n\r\n") else {
                        if count == 0 {
                            return;
                        }
                        continue;
                    };
                    let text = String::from_utf8_lossy(&got[..head]).to_lowercase();
                    let length = text
                        .lines()
                        .find_map(|l| l.strip_prefix("content-length:"))
                        .and_then(|n| n.trim().parse().ok())
                        .unwrap_or(0_usize);
                    if count == 0 || got.len() >= head + 4 + length {
                        break;
                    }
                }
                for piece in bytes.chunks(size.max(1)) {
                    if stream.write_all(piece).is_err() {
                        return;
                    }
                }
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read(&mut part);
            });
        }
    });
    url
}

fn http(status: u16, kind: &str, more: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{more}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn home_at(url: &str) -> Home {
    let home = Home::new();
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{url}\"\napi_key_env = \"MOCK_KEY\"\n[retry]\nmax_retries = 1\nbackoff_base_ms = 1\n"
    ));
    home
}

fn go(home: &Home) -> Out {
    home.aye(&["-p", "go"]).run()
}

fn is_decent(out: &Out) -> Found {
    let foreign = out.stderr.chars().find(|c| aye::contract::display::is_unsafe(*c));
    ensure(foreign.is_none(), || format!("{foreign:?} in {:?}", out.stderr))?;
    ensure(!out.stderr.contains("panicked"), || out.stderr.clone())?;
    ensure(out.stderr.len() < 20_000, || format!("{} bytes of error", out.stderr.len()))
}

fn answers(sse: &str, text: &str) -> Found {
    let home = home_at(&serve(http(200, "text/event-stream", "", sse.as_bytes()), usize::MAX));
    let out = go(&home);
    is_decent(&out)?;
    ensure(out.status.code() == Some(0) && out.stdout.contains(text), || {
        format!("{} {:?} {}", out.status, out.stdout, out.stderr)
    })
}

fn fails(sse: &str, codes: &[i32]) -> Found {
    status_of(http(200, "text/event-stream", "", sse.as_bytes()), codes)
}

fn status(code: u16, body: &str, codes: &[i32]) -> Found {
    status_of(
        http(code, if body.starts_with('{') { "application/json" } else { "text/html" }, "", body.as_bytes()),
        codes,
    )
}

/// Checks for one of these statuses and a message, in reasonable time; the prompt is kept.
fn status_of(bytes: Vec<u8>, codes: &[i32]) -> Found {
    let home = home_at(&serve(bytes, usize::MAX));
    let out = go(&home);
    is_decent(&out)?;
    ensure(out.status.code().is_some_and(|code| codes.contains(&code)), || {
        format!("{} {:?} {}", out.status, out.stdout, out.stderr)
    })?;
    ensure(codes.contains(&0) || !out.stderr.trim().is_empty(), || "no message was printed".into())?;
    let list = home.ok(&["threads", "show", &home.thread()]);
    ensure(list.stdout.contains("go"), || list.stdout.clone())
}

fn one_byte_at_a_time() -> Found {
    let body = whole("päng 漢字 👍");
    let home = home_at(&serve(http(200, "text/event-stream", "", body.as_bytes()), 1));
    let out = go(&home);
    ensure(out.stdout == "päng 漢字 👍\n", || format!("{} {:?} {}", out.status, out.stdout, out.stderr))
}

/// Checks that a call never runs, although everything is allowed.
fn never_runs(call: Value) -> Found {
    let body =
        frame(&delta(json!({"tool_calls": [call]}))) + &frame(&finish("tool_calls")) + "data: [DONE]\n\n";
    let home = home_at(&serve(http(200, "text/event-stream", "", body.as_bytes()), usize::MAX));
    let out = home.aye(&["-p", "go", "--allowed-tools", "Bash", "--max-turns", "3"]).run();
    is_decent(&out)?;
    ensure(!home.work().join("pwn").exists(), || format!("it ran: {}", out.stderr))
}

fn deep_arguments() -> Found {
    let deep = format!("{{\"command\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    never_runs(json!({"index": 0, "id": "a", "function": {"name": "Bash", "arguments": deep}}))?;
    let cut = "{\"a\":".repeat(10_000);
    never_runs(json!({"index": 0, "id": "a", "function": {"name": "Bash", "arguments": cut}}))
}

fn unknown_tool(name: &str) -> Found {
    let llm = MockLlm::answers([
        Answer::new().call("a", name, json!({"command": "touch pwn"})),
        Answer::say("done"),
    ]);
    let home = Home::with(&llm);
    let out = home.aye(&["-p", "go", "--allowed-tools", "Bash"]).run();
    is_decent(&out)?;
    ensure(!home.work().join("pwn").exists(), || "it ran".into())?;
    // A refused name may end the run, or be reported to the model; it is never guessed.
    match out.status.code() {
        Some(0) => {
            let last = llm.last();
            let results = last.results();
            ensure(results.len() <= 1, || format!("{results:?}"))
        }
        Some(1 | 3 | 75) => Ok(()),
        _ => Err(format!("{} {}", out.status, out.stderr)),
    }
}

fn id_of_an_earlier_turn() -> Found {
    let llm = MockLlm::answers([
        Answer::new().bash("a", "echo one >> log.txt"),
        Answer::new().bash("a", "echo two >> log.txt"),
        Answer::say("done"),
    ]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let first = home.question();
    home.ok(&["approvals", "approve", &first]);
    // The second call has the id of the first: its decision is not reused.
    home.aye(&["-c", "-p"]).run().exits(3);
    ensure(home.read("log.txt") == "one\n", || home.read("log.txt"))?;
    let second = home.question();
    ensure(first != second, || "the same question".into())?;
    home.ok(&["approvals", "deny", &second]);
    home.aye(&["-c", "-p"]).run().exits(0);
    llm.asked();
    ensure(home.read("log.txt") == "one\n", || home.read("log.txt"))
}

fn doubled_ids() -> Found {
    let llm = MockLlm::answers([
        Answer::new()
            .bash("a", "echo one >> log.txt")
            .bash("a", "echo two >> log.txt")
            .bash("", "echo three >> log.txt"),
        Answer::say("done"),
    ]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go", "--allowed-tools", "Bash"]).run().exits(0);
    let mut lines: Vec<String> = home.read("log.txt").lines().map(str::to_owned).collect();
    lines.sort();
    ensure(lines == ["one", "three", "two"] && llm.last().results().len() == 3, || format!("{lines:?}"))
}

fn tool_use_without_calls() -> Found {
    let body = frame(&delta(json!({"content": "so"}))) + &frame(&finish("tool_calls")) + "data: [DONE]\n\n";
    answers(&body, "so")
}

fn retry_after_is_waited_for() -> Found {
    // A second instead of seven: the rule is the same.
    let mut first = true;
    let llm = MockLlm::by(move |_| {
        if std::mem::take(&mut first) {
            Answer::error(429, "slow down").header("retry-after", "1")
        } else {
            Answer::say("pong")
        }
    });
    let home = home_at(&llm.url);
    let began = Instant::now();
    let out = go(&home);
    ensure(out.status.code() == Some(0) && began.elapsed() >= Duration::from_millis(950), || {
        format!("{:?} {}", began.elapsed(), out.stderr)
    })?;
    ensure(out.stderr.contains("retrying in 1."), || out.stderr.clone())?;
    // Seven seconds are waited for too, and a signal ends the wait.
    let llm = MockLlm::by(|_| Answer::error(429, "slow down").header("retry-after", "7"));
    let home = home_at(&llm.url);
    let run = home.aye(&["-p", "go"]).spawn();
    run.until_told("retrying in 7.");
    let began = Instant::now();
    run.signal(rustix::process::Signal::INT);
    let out = run.end();
    ensure(out.status.code() == Some(130) && began.elapsed() < Duration::from_secs(4), || {
        format!("{} {}", out.status, out.stderr)
    })?;
    ensure(out.stderr.contains("retrying in 7."), || out.stderr.clone())
}

fn not_waited_for(value: &'static str) -> Found {
    let llm = MockLlm::by(move |_| Answer::error(429, "slow down").header("retry-after", value));
    let home = home_at(&llm.url);
    let began = Instant::now();
    let out = go(&home);
    ensure(out.status.code() == Some(75) && began.elapsed() < Duration::from_secs(15), || {
        format!("{} {}", out.status, out.stderr)
    })?;
    ensure(llm.asked().len() == 1, || format!("{} requests", llm.asked().len()))
}

fn bad_retry_after() -> Found {
    for value in
        ["-5", "NaN", "1e9x", "", "soon", "0x7", "Wed, 99 Foo 2099 07:28:00 GMT", "999999999999999999999999"]
    {
        let llm = MockLlm::by(move |_| Answer::error(429, "slow down").header("retry-after", value));
        let home = home_at(&llm.url);
        let began = Instant::now();
        let out = go(&home);
        ensure(out.status.code() == Some(75) && began.elapsed() < Duration::from_secs(15), || {
            format!("{value}: {} {}", out.status, out.stderr)
        })?;
    }
    Ok(())
}

fn cut_in_a_call() -> Found {
    let body = frame(&delta(
        json!({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "Bash", "arguments": ""}}]}),
    ));
    let bytes = http(200, "text/event-stream", "", body.as_bytes());
    let home = home_at(&serve(bytes, usize::MAX));
    let out = home.aye(&["-p", "go", "--allowed-tools", "Bash"]).run();
    is_decent(&out)?;
    ensure(matches!(out.status.code(), Some(1 | 75)), || format!("{} {}", out.status, out.stderr))?;
    let llm = MockLlm::answers([Answer::new().bash("a", "touch pwn").part(Part::Cut), Answer::say("no")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go", "--allowed-tools", "Bash"]).run();
    ensure(!home.work().join("pwn").exists(), || "it ran".into())
}

/// A server without TLS, or with another one's certificate: an error, and never a request in plain text.
fn no_tls() -> Found {
    let url = serve(http(200, "text/event-stream", "", whole("pong").as_bytes()), usize::MAX)
        .replace("http://", "https://");
    let home = home_at(&url);
    let out = go(&home);
    is_decent(&out)?;
    ensure(matches!(out.status.code(), Some(1 | 75)) && !out.stdout.contains("pong"), || {
        format!("{} {}", out.status, out.stdout)
    })
}

fn after_the_end() -> Found {
    let body = whole("pong") + &whole("MORE") + &frame(&delta(json!({"content": "MORE"})));
    let home = home_at(&serve(http(200, "text/event-stream", "", body.as_bytes()), usize::MAX));
    let out = go(&home);
    ensure(out.stdout == "pong\n", || format!("{} {:?} {}", out.status, out.stdout, out.stderr))
}

/// A redirect to another host: the key is not sent along, and the stranger's answer is ignored.
fn redirect() -> Found {
    let other = serve(http(200, "text/event-stream", "", whole("STRANGER").as_bytes()), usize::MAX);
    let location = format!("location: {}/chat/completions\r\n", other.replace("127.0.0.1", "localhost"));
    for code in [301, 302, 307, 308] {
        let home = home_at(&serve(http(code, "text/plain", &location, b""), usize::MAX));
        let out = go(&home);
        is_decent(&out)?;
        ensure(out.status.code() != Some(0) && !out.stdout.contains("STRANGER"), || {
            format!("{code}: {} {}", out.status, out.stdout)
        })?;
    }
    Ok(())
}

/// 100 MiB of nothing in 100 KiB.
fn gzip_bomb() -> Found {
    let made = std::process::Command::new("bash")
        .args(["-c", "head -c 104857600 /dev/zero | gzip -9"])
        .output()
        .expect("gzip");
    let body = made.stdout;
    status_of(http(200, "text/event-stream", "content-encoding: gzip\r\n", &body), &[1, 75])
}
