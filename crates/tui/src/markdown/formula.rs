//! Formulas in the form of TeX as text that a terminal can show: `\int_0^1 x^2\,dx` is `∫₀¹ x² dx`.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// Commands that stand for a sign.
const SIGNS: &[(&str, &str)] = &[
    ("alpha", "α"),
    ("beta", "β"),
    ("gamma", "γ"),
    ("delta", "δ"),
    ("epsilon", "ε"),
    ("varepsilon", "ε"),
    ("zeta", "ζ"),
    ("eta", "η"),
    ("theta", "θ"),
    ("iota", "ι"),
    ("kappa", "κ"),
    ("lambda", "λ"),
    ("mu", "μ"),
    ("nu", "ν"),
    ("xi", "ξ"),
    ("pi", "π"),
    ("rho", "ρ"),
    ("sigma", "σ"),
    ("tau", "τ"),
    ("phi", "φ"),
    ("varphi", "φ"),
    ("chi", "χ"),
    ("psi", "ψ"),
    ("omega", "ω"),
    ("Gamma", "Γ"),
    ("Delta", "Δ"),
    ("Theta", "Θ"),
    ("Lambda", "Λ"),
    ("Xi", "Ξ"),
    ("Pi", "Π"),
    ("Sigma", "Σ"),
    ("Phi", "Φ"),
    ("Psi", "Ψ"),
    ("Omega", "Ω"),
    ("int", "∫"),
    ("oint", "∮"),
    ("sum", "∑"),
    ("prod", "∏"),
    ("partial", "∂"),
    ("nabla", "∇"),
    ("infty", "∞"),
    ("cdot", "·"),
    ("times", "×"),
    ("div", "÷"),
    ("pm", "±"),
    ("mp", "∓"),
    ("le", "≤"),
    ("leq", "≤"),
    ("ge", "≥"),
    ("geq", "≥"),
    ("ne", "≠"),
    ("neq", "≠"),
    ("ll", "≪"),
    ("gg", "≫"),
    ("approx", "≈"),
    ("equiv", "≡"),
    ("sim", "∼"),
    ("propto", "∝"),
    ("to", "→"),
    ("rightarrow", "→"),
    ("leftarrow", "←"),
    ("leftrightarrow", "↔"),
    ("Rightarrow", "⇒"),
    ("implies", "⇒"),
    ("Leftrightarrow", "⇔"),
    ("iff", "⇔"),
    ("mapsto", "↦"),
    ("in", "∈"),
    ("notin", "∉"),
    ("subset", "⊂"),
    ("subseteq", "⊆"),
    ("supset", "⊃"),
    ("cup", "∪"),
    ("cap", "∩"),
    ("setminus", "∖"),
    ("emptyset", "∅"),
    ("forall", "∀"),
    ("exists", "∃"),
    ("neg", "¬"),
    ("land", "∧"),
    ("wedge", "∧"),
    ("lor", "∨"),
    ("vee", "∨"),
    ("oplus", "⊕"),
    ("otimes", "⊗"),
    ("circ", "∘"),
    ("ldots", "…"),
    ("dots", "…"),
    ("cdots", "⋯"),
    ("langle", "⟨"),
    ("rangle", "⟩"),
    ("lfloor", "⌊"),
    ("rfloor", "⌋"),
    ("lceil", "⌈"),
    ("rceil", "⌉"),
    ("ell", "ℓ"),
];

/// Names of functions, which stand as they are.
const FUNCTIONS: &[&str] = &[
    "sin", "cos", "tan", "log", "ln", "exp", "lim", "max", "min", "det", "dim", "gcd", "sup", "inf", "arg",
    "mod",
];

/// Commands whose braces hold text that stands as it is.
const WRAPPERS: &[&str] =
    &["text", "mathrm", "mathbf", "mathit", "mathbb", "mathcal", "operatorname", "boldsymbol", "textbf"];

/// Commands that only say how large something is drawn.
const SIZES: &[&str] = &["left", "right", "displaystyle", "limits", "big", "Big", "bigl", "bigr"];

/// Depth of braces in braces.
const MAX_DEPTH: usize = 30;

/// Returns the formula in signs of Unicode. A command that is not known stays as it was written.
pub(super) fn formula(tex: &str) -> String {
    let mut out = String::with_capacity(tex.len());
    group(&mut tex.chars().peekable(), &mut out, 0);
    out.trim().to_owned()
}

/// Whether text between dollar signs is a formula: prices and variables of a shell are not.
pub(super) fn is_tex(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    chars.windows(2).any(|pair| match pair {
        ['\\', c] => c.is_ascii_alphabetic() || ",;:!{}\\".contains(*c),
        ['^' | '_', '{'] => true,
        [c, '^'] => c.is_alphanumeric() || matches!(c, ')' | '}'),
        _ => false,
    })
}

/// The text with formulas in `\(…\)` and `\[…\]` in the dollar signs that Markdown knows. Code stays as it is.
pub(super) fn in_dollars(source: &str) -> Cow<'_, str> {
    if !source.contains("\\(") && !source.contains("\\[") {
        return source.into();
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find(['`', '\\']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with('`') {
            let (span, after) = rest.split_at(code(rest));
            out.push_str(span);
            rest = after;
        } else if let Some(taken) = delimited(rest, &mut out) {
            rest = &rest[taken..];
        } else {
            // A backslash and what it escapes.
            let escaped = 1 + rest.chars().nth(1).map_or(0, char::len_utf8);
            let (escape, after) = rest.split_at(escaped);
            out.push_str(escape);
            rest = after;
        }
    }
    out.push_str(rest);
    out.into()
}

/// The length of a code span at the start.
fn code(rest: &str) -> usize {
    let ticks = rest.len() - rest.trim_start_matches('`').len();
    let mut from = ticks;
    while let Some(at) = rest[from..].find('`').map(|at| from + at) {
        let run = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        if run == ticks {
            return at + run;
        }
        from = at + run;
    }
    ticks
}

/// Writes the formula at the start, and returns its length with its ends.
fn delimited(rest: &str, out: &mut String) -> Option<usize> {
    let (close, mark) = match rest.as_bytes().get(1)? {
        b'(' => ("\\)", "$"),
        b'[' => ("\\]", "$$"),
        _ => return None,
    };
    let end = rest.find(close)?;
    let inner = rest.get(2..end)?.trim();
    if !is_tex(inner) || inner.contains(['$', '`']) || inner.contains("\n\n") {
        return None;
    }
    out.extend([mark, inner, mark]);
    Some(end + close.len())
}

/// Writes what comes up to the brace that closes the group, or the end.
fn group(rest: &mut Peekable<Chars<'_>>, out: &mut String, depth: usize) {
    while let Some(c) = rest.next() {
        match c {
            '}' if depth > 0 => return,
            '{' if depth < MAX_DEPTH => group(rest, out, depth + 1),
            '{' | '}' | '&' => {}
            '\\' => command(rest, out, depth),
            '^' => out.push_str(&script(&argument(rest, depth), '^', superscript)),
            '_' => out.push_str(&script(&argument(rest, depth), '_', subscript)),
            c if c.is_whitespace() => space(out),
            c => out.push(c),
        }
    }
}

fn space(out: &mut String) {
    if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
}

/// The group, command or character that belongs to what stands before it.
fn argument(rest: &mut Peekable<Chars<'_>>, depth: usize) -> String {
    let mut out = String::new();
    while rest.next_if(|c| c.is_whitespace()).is_some() {}
    match rest.next() {
        Some('{') if depth < MAX_DEPTH => group(rest, &mut out, depth + 1),
        Some('\\') => command(rest, &mut out, depth + 1),
        Some(c) => out.push(c),
        None => {}
    }
    out.trim().to_owned()
}

/// What follows a backslash.
fn command(rest: &mut Peekable<Chars<'_>>, out: &mut String, depth: usize) {
    let Some(first) = rest.next() else { return out.push('\\') };
    match first {
        ',' | ':' | ';' | ' ' | '>' => return space(out),
        '!' => return,
        '\\' => return out.push_str("; "),
        c if !c.is_ascii_alphabetic() => return out.push(c),
        _ => {}
    }
    let mut name = first.to_string();
    while let Some(c) = rest.next_if(char::is_ascii_alphabetic) {
        name.push(c);
    }
    match name.as_str() {
        "quad" | "qquad" => space(out),
        "frac" | "dfrac" | "tfrac" if depth < MAX_DEPTH => {
            let (above, below) = (argument(rest, depth), argument(rest, depth));
            out.extend([closed(&above), "/".to_owned(), closed(&below)]);
        }
        "sqrt" if depth < MAX_DEPTH => out.extend(["√".to_owned(), closed(&argument(rest, depth))]),
        name if SIZES.contains(&name) => {}
        name if WRAPPERS.contains(&name) && depth < MAX_DEPTH => out.push_str(&argument(rest, depth)),
        name if FUNCTIONS.contains(&name) => out.push_str(name),
        name => match SIGNS.iter().find(|(known, _)| *known == name) {
            Some((_, sign)) => out.push_str(sign),
            None => out.extend(["\\", name]),
        },
    }
}

/// The text in parentheses, if more than one thing is in it.
fn closed(text: &str) -> String {
    let is_one = text.chars().all(char::is_alphanumeric) || text.chars().count() == 1;
    if is_one { text.to_owned() } else { format!("({text})") }
}

/// The text raised or lowered, if Unicode has each of its characters so.
fn script(text: &str, mark: char, of: fn(char) -> Option<char>) -> String {
    let small: Option<String> = text.chars().filter(|c| *c != ' ').map(of).collect();
    small.filter(|small| !small.is_empty()).unwrap_or_else(|| match text.chars().count() {
        0 | 1 => format!("{mark}{text}"),
        _ => format!("{mark}({text})"),
    })
}

fn superscript(c: char) -> Option<char> {
    const FROM: &str = "0123456789+-=()nixyaTk";
    const INTO: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣʸᵃᵀᵏ";
    FROM.chars().zip(INTO.chars()).find(|(from, _)| *from == c).map(|(_, into)| into)
}

fn subscript(c: char) -> Option<char> {
    const FROM: &str = "0123456789+-=()aeijknx";
    const INTO: &str = "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑᵢⱼₖₙₓ";
    FROM.chars().zip(INTO.chars()).find(|(from, _)| *from == c).map(|(_, into)| into)
}

#[cfg(test)]
mod tests {
    use super::{formula, in_dollars, is_tex};

    #[test]
    fn formulas_are_signs_and_their_spaces_are_blanks() {
        for (tex, shown) in [
            (r"\int_0^1 x^2\,dx = \frac{1}{3}", "∫₀¹ x² dx = 1/3"),
            (r"a\;b\:c\quad d\!e\ f", "a b c de f"),
            (r"\alpha \leq \beta_{i+1}", "α ≤ βᵢ₊₁"),
            (r"\frac{a+b}{2c}", "(a+b)/2c"),
            (r"\sqrt{x^2 + y^2}", "√(x² + y²)"),
            (r"e^{i\pi} + 1 = 0", "e^(iπ) + 1 = 0"),
            (r"\left( \text{if } x \in \mathbb{R} \right)", "( if x ∈ R )"),
            (r"\{1, \dots, n\}", "{1, …, n}"),
            (r"\unknown{x}", r"\unknownx"),
            (r"\lim_{n \to \infty} a_n", "lim_(n → ∞) aₙ"),
            (r"a \\ b", "a ; b"),
            (r"x \", "x \\"),
            ("", ""),
        ] {
            assert_eq!(formula(tex), shown, "{tex}");
        }
    }

    #[test]
    fn only_formulas_are_taken_for_formulas() {
        for tex in [r"x\,y", r"\alpha", "x^2", "a_{i}", "(a)^n"] {
            assert!(is_tex(tex), "{tex}");
        }
        for text in ["5 and ", "HOME/", "x", "", r"C:\1", "a_b", "^x"] {
            assert!(!is_tex(text), "{text}");
        }
        for (text, shown) in [
            (r"so \( x^2 \) is, and \[\sum x\]", r"so $x^2$ is, and $$\sum x$$"),
            (r"`\( x^2 \)` and ``a ` \(x^2\)``", r"`\( x^2 \)` and ``a ` \(x^2\)``"),
            (r"\[not a link\](x) and \(this\)", r"\[not a link\](x) and \(this\)"),
            (r"\\(x^2\) \(x^2", r"\\(x^2\) \(x^2"),
            (r"\(x^2 \( \ä\", r"\(x^2 \( \ä\"),
        ] {
            assert_eq!(in_dollars(text), shown, "{text}");
        }
    }

    #[test]
    fn any_text_ends() {
        let deep = "{".repeat(10_000) + r"\frac" + &"^".repeat(10_000);
        formula(&deep);
        formula(&r"\sqrt".repeat(10_000));
        formula(&r"\frac{".repeat(10_000));
        formula(&"^^__}}{{\\".repeat(100));
    }
}
