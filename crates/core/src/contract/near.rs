//! Similar names: suggestions for an unknown one.

/// Edits that turn one word into the other, case ignored, `-` and `_` the same, a swap of neighbours counted as one.
pub fn distance(a: &str, b: &str) -> usize {
    // Keys are short; a very long one is not a misspelling and not worth the square of its length.
    let [a, b] =
        [a, b].map(|word| word.to_lowercase().chars().take(40).collect::<String>().replace('-', "_"));
    strsim::osa_distance(&a, &b)
}

/// Returns whether a word may be a misspelling of a name: the edit distance is small enough for a typing
/// error.
pub fn is_near(name: &str, word: &str) -> bool {
    distance(name, word) <= (word.chars().count() / 3).clamp(1, 3)
}

/// Returns the name that an unknown word probably means: the nearest one that is near enough, the first if
/// several are equal.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names.into_iter().filter(|name| is_near(name, word)).min_by_key(|name| distance(name, word))
}

/// Returns the end of a "not found" message: the near name, or the existing names, up to a dozen.
pub fn or_these<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    if let Some(near) = nearest(word, names.iter().copied()) {
        return format!("; did you mean `{near}`?");
    }
    match names.len() {
        0 => "; none exist".to_owned(),
        n @ 1..=12 => format!("; there {} {}", if n == 1 { "is" } else { "are" }, names.join(", ")),
        n => format!("; there are {n}, such as {}", names[..12].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_or_else_all() {
        let names = ["researcher", "reviewer", "writer"];
        assert_eq!(or_these("reviewr", names), "; did you mean `reviewer`?");
        assert_eq!(or_these("Writer", names), "; did you mean `writer`?");
        assert_eq!(or_these("cook", names), "; there are researcher, reviewer, writer");
        assert_eq!(or_these("cook", ["aye"]), "; there is aye");
        assert_eq!(or_these("cook", []), "; none exist");
        let many: Vec<String> = (0..20).map(|n| format!("agent-number-{n}")).collect();
        assert!(
            or_these("x", many.iter().map(String::as_str))
                .starts_with("; there are 20, such as agent-number-0,")
        );
    }
}
