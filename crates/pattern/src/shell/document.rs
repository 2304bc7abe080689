//! Quoted here-documents that only become a text: `"$(cat <<'EOF' … EOF)"`.

/// Bash before version 4 ends a substitution at the first `)` that it finds, even in a here-document.
const HAS_OLD_BASH: bool = cfg!(target_os = "macos");

/// The text of a substitution that is nothing but `cat` with a quoted here-document.
pub(super) fn inert(substitution: &str) -> Option<String> {
    let inside = substitution.strip_prefix("$(")?.strip_suffix(')')?;
    let (text, rest) = read(inside)?;
    rest.trim_matches([' ', '\t', '\n']).is_empty().then_some(text)
}

/// Reads `cat <<'EOF'`, its lines and its end; returns the text and what follows.
pub(super) fn read(text: &str) -> Option<(String, &str)> {
    let blanks = [' ', '\t'];
    let rest = text.trim_start_matches(['\n', ' ', '\t']).strip_prefix("cat")?;
    let rest = rest.trim_start_matches(blanks).strip_prefix("<<")?.trim_start_matches(blanks);
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let (name, rest) = rest.get(1..)?.split_once(quote)?;
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut left = rest.trim_start_matches(blanks).strip_prefix('\n').filter(|_| is_plain)?;
    let mut body = String::new();
    loop {
        let (line, next) = left.split_once('\n')?;
        left = next;
        if line == name {
            break;
        }
        body.push_str(line);
        body.push('\n');
    }
    let is_odd = HAS_OLD_BASH && body.contains(['(', ')', '\'', '"', '`', '$', '\\']);
    (!is_odd).then(|| (body.trim_end_matches('\n').to_owned(), left))
}

#[cfg(test)]
mod tests {
    use super::inert;

    #[test]
    fn only_a_quoted_document_in_cat_is_a_text() {
        for (text, want) in [
            ("$(cat <<'EOF'\nfix\nEOF\n)", Some("fix")),
            ("$(cat <<\"E_1\"\na\n\nb\n\nE_1\n)", Some("a\n\nb")),
            ("$( cat  <<  'EOF' \nEOF\n  )", Some("")),
            ("$(cat <<EOF\nfix\nEOF\n)", None),
            ("$(cat <<-'EOF'\nfix\nEOF\n)", None),
            ("$(cat <<'E F'\nfix\nE F\n)", None),
            ("$(cat <<'EOF'\nfix\nEOF)", None),
            ("$(cat <<'EOF'\nfix\nEOF\ntouch pwn\n)", None),
            ("$(cat <<'EOF' | sh\nfix\nEOF\n)", None),
            ("$(cat <<'EOF' > pwn\nfix\nEOF\n)", None),
            ("$(cat x <<'EOF'\nfix\nEOF\n)", None),
            ("$(concat <<'EOF'\nfix\nEOF\n)", None),
            ("$(sh <<'EOF'\nfix\nEOF\n)", None),
            ("`cat <<'EOF'\nfix\nEOF\n`", None),
        ] {
            assert_eq!(inert(text).as_deref(), want, "{text}");
        }
    }
}
