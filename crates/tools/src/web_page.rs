//! Pages of the web as text.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use super::text::likely_encoding;

/// Tags nest this deep at most in a page that is converted; the converter calls itself for each.
const MAX_DEPTH: usize = 400;
/// Room for the converter.
const STACK: usize = 32 << 20;

/// Elements that have no end tag, or whose end tag may be left out.
const OPEN: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
    "p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "option", "optgroup", "rp", "rt",
    "colgroup", "param",
];

/// Bytes at the start of a page that may name its encoding.
const HEAD: usize = 1024;

/// Decodes bytes as browsers do: by a byte order mark, else by the charset of the `Content-Type`, else by the one that the
/// page names. What is UTF-8 is read as that, whatever it is called; what nothing names is guessed.
pub(super) fn decode(body: &[u8], media_type: &str) -> String {
    let encoding = encoding(body, media_type).unwrap_or_else(|| likely_encoding(body));
    encoding.decode(body).0.into_owned()
}

/// Whether bytes with NULs are a text in two-byte units.
pub(super) fn is_utf16(body: &[u8], media_type: &str) -> bool {
    encoding(body, media_type).is_some_and(|encoding| encoding == UTF_16LE || encoding == UTF_16BE)
}

fn encoding(body: &[u8], media_type: &str) -> Option<&'static Encoding> {
    if let Some((encoding, _)) = Encoding::for_bom(body) {
        return Some(encoding);
    }
    let stated = charset(media_type);
    if let Some(encoding) = stated.filter(|encoding| !encoding.is_ascii_compatible()) {
        return Some(encoding);
    }
    if std::str::from_utf8(body).is_ok() {
        return Some(UTF_8);
    }
    stated.or_else(|| {
        let head = String::from_utf8_lossy(&body[..body.len().min(HEAD)]).to_ascii_lowercase();
        let mut metas = head.split("<meta").skip(1).map(|meta| meta.split('>').next().unwrap_or_default());
        let xml = head.strip_prefix("<?xml").and_then(|xml| label_after(xml.split("?>").next()?, "encoding"));
        let named = metas.find_map(charset).or(xml)?;
        // What could be read this far is no two-byte text.
        Some(if named.is_ascii_compatible() { named } else { UTF_8 })
    })
}

fn charset(text: &str) -> Option<&'static Encoding> {
    label_after(text, "charset")
}

/// The encoding of `word = "label"`, with or without quotes.
fn label_after(text: &str, word: &str) -> Option<&'static Encoding> {
    let mut rest = text;
    loop {
        rest = &rest[rest.find(word)? + word.len()..];
        if let Some(value) = rest.trim_start().strip_prefix('=') {
            let value = value.trim_start().trim_start_matches(['"', '\'']);
            let end = value.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '>' | '/'));
            return Encoding::for_label(&value.as_bytes()[..end.unwrap_or(value.len())]);
        }
    }
}

/// Whether a text is HTML, by the server's content type or, if there is none, by the start of the text.
pub(super) fn is_html(kind: &str, text: &str) -> bool {
    if !kind.is_empty() && kind != "text/plain" {
        return kind == "text/html" || kind == "application/xhtml+xml";
    }
    let start: String = text.trim_start().chars().take(15).collect::<String>().to_ascii_lowercase();
    kind.is_empty() && (start.starts_with("<!doctype html") || start.starts_with("<html"))
}

pub(super) async fn markdown(html: String) -> String {
    let (tx, rx) = tokio::sync::oneshot::channel();
    let work = move || {
        // The receiver is gone when the call was cancelled.
        let _ = tx.send(convert(&html));
    };
    // A thread of its own for the sake of its stack.
    match std::thread::Builder::new().name("html".into()).stack_size(STACK).spawn(work) {
        Ok(_) => rx.await.unwrap_or_else(|_| "(the page cannot be converted)".into()),
        Err(error) => format!("(the page cannot be converted: {error})"),
    }
}

fn convert(html: &str) -> String {
    if depth(html) > MAX_DEPTH {
        return strip_tags(html);
    }
    let skip = vec!["script", "style", "noscript", "svg", "template", "iframe", "head"];
    let converter = htmd::HtmlToMarkdown::builder().skip_tags(skip).build();
    match converter.convert(html) {
        Ok(text) => collapse(&text),
        Err(_) => strip_tags(html),
    }
}

/// At most one empty line in a row, nothing invisible at the ends of lines.
fn collapse(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines().map(str::trim_end) {
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.trim().to_owned()
}

/// About how deep the tags nest: end tags that may be left out are not counted.
fn depth(html: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0_usize);
    for piece in html.split('<').skip(1) {
        let (end, rest) = piece.strip_prefix('/').map_or((false, piece), |rest| (true, rest));
        let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
        if name.is_empty() || OPEN.contains(&name.to_ascii_lowercase().as_str()) {
            continue;
        }
        if end {
            now = now.saturating_sub(1);
        } else {
            now += 1;
            most = most.max(now);
        }
    }
    most
}

/// Returns the text between the tags, for pages that were not written to be read.
fn strip_tags(html: &str) -> String {
    let mut out = String::with_capacity(html.len() / 2);
    for (at, piece) in html.split('<').enumerate() {
        let text = if at == 0 { piece } else { piece.split_once('>').map_or("", |(_, text)| text) };
        out.push_str(text);
        if !text.ends_with(char::is_whitespace) {
            out.push(' ');
        }
    }
    collapse(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn html_becomes_markdown() {
        let html = "<html><head><title>t</title><style>x{}</style></head><body><h1>Head</h1><script>evil()</script>\
                    <p>One <b>bold</b> <a href=\"/x\">link</a></p><ul><li>a<li>b</ul></body></html>";
        let text = markdown(html.into()).await;
        assert!(text.starts_with("# Head\n\nOne **bold** [link](/x)"), "{text}");
        assert!(!text.contains("evil") && !text.contains("x{}"), "{text}");
    }

    #[tokio::test]
    async fn what_a_form_or_a_menu_contains_is_content() {
        let html = "<form id=aspnetForm><nav><a href='/install'>Install</a></nav><h1>Head</h1><p>Text</p>\
                    <input name=q><button>Go</button></form>";
        let text = markdown(html.into()).await;
        for part in ["[Install](/install)", "# Head", "Text"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[tokio::test]
    async fn a_page_full_of_tags_is_harmless() {
        let text = markdown("<div>".repeat(200_000) + "deep").await;
        assert_eq!(text.trim(), "deep");
        let text = markdown("<p>".repeat(20_000) + "flat").await;
        assert!(text.ends_with("flat"));
        let text = markdown("<b>".repeat(390) + "near the limit").await;
        assert!(text.contains("near the limit"), "{text}");
        let text = markdown("<li><ul>".repeat(390) + "near").await;
        assert!(text.contains("near"), "{}", text.len());
    }

    #[test]
    fn charsets_and_content_types() {
        assert_eq!(decode(b"caf\xe9", "text/html; charset=iso-8859-1"), "café");
        assert_eq!(decode("café".as_bytes(), "text/html"), "café");
        // Browsers read Latin-1 as windows-1252, by the standard.
        assert_eq!(decode(b"\x80 5 \x96 caf\xe9", "text/html; charset=\"iso-8859-1\""), "€ 5 – café");
        for page in [
            &b"<html><head><meta charset=windows-1251><p>\xcf\xf0\xe8"[..],
            b"<META http-equiv='Content-Type' content='text/html; charset=windows-1251'><p>\xcf\xf0\xe8",
            b"<?xml version='1.0' encoding='windows-1251'?><p>\xcf\xf0\xe8",
        ] {
            assert!(decode(page, "text/html").ends_with("При"), "{}", decode(page, "text/html"));
        }
        assert_eq!(decode(b"<meta charset=utf-16><p>\xe9", "text/html"), "<meta charset=utf-16><p>\u{fffd}");
        assert_eq!(decode(b"<p>Gr\xfc\xdfe aus M\xfcnchen", "text/html"), "<p>Grüße aus München");
        assert_eq!(decode(b"\xff\xfea\0\xe9\0", "text/html"), "aé");
        assert!(is_utf16(b"a\0", "text/plain; charset=utf-16le") && !is_utf16(b"a\0", "text/plain"));
        assert!(is_html("text/html", "x") && is_html("", " <!DOCTYPE html><p>"));
        assert!(!is_html("text/plain", "<html>") && !is_html("application/json", "<html>"));
    }
}
