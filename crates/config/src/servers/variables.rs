//! Variables in the texts of servers.

use aye_core::contract::display::visible_line;

use crate::env::Env;

/// The variables that a text names.
pub(super) fn variables(text: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let _ = fill(text, &mut |name, default| {
        found.push((name.to_owned(), default.map(str::to_owned)));
        Some(String::new())
    });
    found
}

/// A variable that a text needs and that has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", how_to_set(.0))]
pub struct UnsetVariable(pub String);

fn how_to_set(name: &str) -> String {
    let Some((_, input)) = name.split_once(':') else {
        return format!(
            "it needs the variable {name}, which is not set; set it, or write ${{{name}:-default}}"
        );
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let variable: String = input.chars().map(plain).collect();
    format!(
        "it needs `${{{}}}`, which another program asks for and aye does not; write ${{{variable}}} and set that \
         variable",
        visible_line(name)
    )
}

/// Placeholders of other programs: `${input:NAME}` and the like. Sent as they are, they would be a wrong password.
const FOREIGN: [&str; 3] = ["input:", "command:", "config:"];

/// Fills variables of the environment into a text: `${NAME}`, and `${NAME:-default}`.
///
/// # Errors
/// Which one has no value.
pub fn fill_variables(text: &str, env: &Env) -> Result<String, UnsetVariable> {
    let value = |name: &str, default: Option<&str>| {
        env.var(name).map(str::to_owned).or_else(|| default.map(str::to_owned))
    };
    fill(text, &mut { value })
}

/// Fills in `${NAME}`, `${env:NAME}` and `${NAME:-default}`.
pub(super) fn fill(
    text: &str,
    value: &mut dyn FnMut(&str, Option<&str>) -> Option<String>,
) -> Result<String, UnsetVariable> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let inner = &rest[at + 2..];
        let Some(end) = inner.find('}') else { break };
        let (name, default) = match inner[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inner[..end], None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        out.push_str(&rest[..at]);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_name {
            out.push_str(&value(name, default).ok_or_else(|| UnsetVariable(name.to_owned()))?);
        } else if FOREIGN.iter().any(|prefix| name.starts_with(prefix)) {
            out.push_str(&value(name, default).ok_or_else(|| UnsetVariable(name.to_owned()))?);
        } else {
            out.push_str(&rest[at..=at + 2 + end]);
        }
        rest = &inner[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}
