//! URLs in running text, as links to themselves.

use ratatui::text::Span;

use crate::links::Links;

/// Returns the spans with the URLs in them turned into links. A URL that may continue in the next span is
/// left alone: its link would lead elsewhere than the text shows.
pub(super) fn linked(spans: &[Span<'static>], links: &Links) -> Vec<Span<'static>> {
    let mut out = Vec::with_capacity(spans.len());
    for (at, span) in spans.iter().enumerate() {
        let next = spans.get(at + 1).and_then(|next| next.content.chars().next());
        let continues = next.is_some_and(|c| !c.is_whitespace() && !is_outside(c));
        if span.style.underline_color.is_some() || !span.content.contains("://") {
            out.push(span.clone());
            continue;
        }
        let mut rest = span.content.as_ref();
        while let Some((begin, end)) = find(rest) {
            let is_cut = continues && end == rest.len();
            let link = if is_cut { span.style } else { span.style.patch(links.to(&rest[begin..end])) };
            if begin > 0 {
                out.push(Span::styled(rest[..begin].to_owned(), span.style));
            }
            out.push(Span::styled(rest[begin..end].to_owned(), link));
            rest = &rest[end..];
        }
        if !rest.is_empty() {
            out.push(Span::styled(rest.to_owned(), span.style));
        }
    }
    out
}

/// Characters that end an address.
fn is_outside(c: char) -> bool {
    matches!(c, '<' | '>' | '"' | '`' | '\'' | '|' | '(' | ')' | ',' | ';' | '!')
}

/// Returns the start and end of the first URL.
fn find(text: &str) -> Option<(usize, usize)> {
    let begin = [text.find("https://"), text.find("http://")].into_iter().flatten().min()?;
    let mut open = 0usize;
    let ends = |c: char| match c {
        '(' => {
            open += 1;
            false
        }
        ')' if open > 0 => {
            open -= 1;
            false
        }
        ')' | '<' | '>' | '"' | '`' | '|' => true,
        c => c.is_whitespace(),
    };
    let end = text[begin..].find(ends).map_or(text.len(), |at| begin + at);
    let address = text[begin..end].trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*', '_', '…']);
    Some((begin, begin + address.len().max("http://".len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let links = Links::of(|name| (name == "FORCE_HYPERLINK").then(|| "1".to_owned()));
        let spans: Vec<Span<'static>> = text.split('^').map(|part| Span::raw(part.to_owned())).collect();
        let out = linked(&spans, &links);
        let all: String = out.iter().map(|span| span.content.as_ref()).collect();
        assert_eq!(all, text.replace('^', ""));
        let is_link = |span: &&Span<'_>| span.style.underline_color.is_some();
        out.iter().filter(is_link).map(|span| span.content.to_string()).collect()
    }

    #[test]
    fn urls_in_text_end_where_a_reader_expects() {
        assert_eq!(
            found("see https://a.org/x, (http://b.org/y_(z)) and http://c.org/?q=1&r=2."),
            ["https://a.org/x", "http://b.org/y_(z)", "http://c.org/?q=1&r=2"]
        );
        assert_eq!(found("https:// http://"), Vec::<String>::new());
        assert_eq!(found("https://a.org/^bold"), Vec::<String>::new());
        assert_eq!(found("https://a.org^ bold"), ["https://a.org"]);
        assert_eq!(found("漢https://漢.org漢 x"), ["https://漢.org漢"]);
    }
}
