use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::testing::Sandbox;

/// Answers each request by its path. Returns the port.
async fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("has a local address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buf = vec![0; 4096];
                let n = stream.read(&mut buf).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&buf[..n]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let answer = |status: &str, kind: &str, body: &[u8]| {
                    let head = format!(
                        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                        body.len()
                    );
                    [head.as_bytes(), body].concat()
                };
                let to = |location: &str| {
                    format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                        .into_bytes()
                };
                let bytes = match path.as_str() {
                    "/page" => answer("200 OK", "text/html; charset=utf-8", b"<h1>Hi</h1><p>you</p>"),
                    "/text" => answer("200 OK", "text/plain", b"<plain>"),
                    "/bin" => answer("200 OK", "application/zip", b"PK\x03\x04\0\0"),
                    "/nul" => answer("200 OK", "text/plain", b"a\0b"),
                    "/long" => answer("200 OK", "text/plain", "漢".repeat(60_000).as_bytes()),
                    "/huge" => answer("200 OK", "text/plain", &vec![b'x'; 6 << 20]),
                    "/loop" => to("/loop"),
                    "/local" => to("http://127.0.0.1:1/secret"),
                    "/file" => to("file:///etc/passwd"),
                    "/moved" => to("/page"),
                    "/away" => to(&format!("http://127.0.0.1:{port}/page")),
                    _ => answer("404 Not Found", "text/plain", b"nothing here"),
                };
                let _ = stream.write_all(&bytes).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn pages_are_fetched_as_text() {
    let port = server().await;
    let sandbox = Sandbox::with(|env| env.web_allow_hosts = vec![format!("localhost:{port}")]);
    let url = |path: &str| json!({"url": format!("http://localhost:{port}{path}")});
    assert_eq!(sandbox.ok("WebFetch", url("/page")).await, "# Hi\n\nyou");
    assert_eq!(sandbox.ok("WebFetch", url("/moved")).await, "# Hi\n\nyou");
    assert_eq!(sandbox.ok("WebFetch", url("/text")).await, "<plain>");
    let long = sandbox.call("WebFetch", url("/long")).await.expect("fetched");
    let text = long.model_text();
    assert_eq!(text.chars().filter(|c| *c == '漢').count(), 50_000);
    let file = long.details.expect("details")["output_file"].as_str().expect("a file").to_owned();
    assert!(text.contains(&file));
    assert_eq!(std::fs::read_to_string(file).expect("readable").chars().count(), 60_000);
    let huge = sandbox.call("WebFetch", url("/huge")).await.expect("fetched");
    assert!(huge.model_text().ends_with("[cut at 5242880 bytes]"));
    for (path, word) in [
        ("/bin", "application/zip"),
        ("/nul", "not shown as text"),
        ("/gone", "answered 404 Not Found\nnothing here"),
        ("/loop", "more than 5 redirects"),
        ("/local", "127.0.0.1 is not a public address"),
        ("/file", "only http and https"),
    ] {
        let text = sandbox.refused("WebFetch", url(path)).await;
        assert!(text.contains(word), "{path}: {text}");
    }
}

/// The rules judged the URL of the call, and no other host.
#[tokio::test]
async fn a_redirect_to_another_host_is_left_to_the_model() {
    let port = server().await;
    let hosts = vec![format!("localhost:{port}"), format!("127.0.0.1:{port}")];
    let sandbox = Sandbox::with(|env| env.web_allow_hosts = hosts);
    let url = format!("http://localhost:{port}/away");
    let found = sandbox.call("WebFetch", json!({"url": url})).await.expect("a result");
    let to = format!("http://127.0.0.1:{port}/page");
    assert!(
        found.model_text().contains(&format!("redirects to another server: {to}\n")),
        "{}",
        found.model_text()
    );
    assert!(!found.model_text().contains("Hi"));
    assert_eq!(found.details.expect("details")["redirect"], to);
}

#[tokio::test]
async fn local_hosts_are_refused_by_address_and_name() {
    let port = server().await;
    let sandbox = Sandbox::new();
    for (url, word) in [
        (format!("http://127.0.0.1:{port}/page"), "not a public address"),
        (format!("http://[::1]:{port}/page"), "not a public address"),
        // A name is resolved, and its addresses are checked.
        (format!("http://localhost:{port}/page"), "no public address"),
        ("ftp://example.org/".into(), "only http and https"),
        ("example.org".into(), "expected a full URL"),
    ] {
        let text = sandbox.refused("WebFetch", json!({"url": url})).await;
        assert!(text.contains(word), "{url}: {text}");
    }
}
