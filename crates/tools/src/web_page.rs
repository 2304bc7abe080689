//! Pages of the web as text.

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

/// Decodes bytes by the charset of the `Content-Type`: UTF-8, or Latin-1 if stated there.
pub(super) fn decode(body: &[u8], media_type: &str) -> String {
    let latin = ["iso-8859-1", "latin1", "windows-1252"].iter().any(|name| media_type.contains(name));
    match std::str::from_utf8(body) {
        Ok(text) => text.to_owned(),
        Err(_) if latin => body.iter().map(|b| char::from(*b)).collect(),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
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

/// HTML as markdown.
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
    let skip = vec!["script", "style", "noscript", "svg", "template", "iframe", "head", "nav", "form"];
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
        assert!(is_html("text/html", "x") && is_html("", " <!DOCTYPE html><p>"));
        assert!(!is_html("text/plain", "<html>") && !is_html("application/json", "<html>"));
    }
}
