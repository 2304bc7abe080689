//! A terminal for a screen reader: lines one after another; written text never changes.
//!
//! The user's text is in the last line. It grows and shrinks at its end; any other change writes it again in a new
//! line.

use std::collections::BTreeMap;

use crate::wrap::width;

/// The output so far.
#[derive(Clone, Debug, Default)]
pub struct Linear {
    /// The last, unfinished line.
    prompt: String,
    /// The last lines written, by topic, so that nothing is repeated.
    written: BTreeMap<&'static str, Vec<String>>,
}

impl Linear {
    /// Returns the bytes of the new output: finished lines, the changed lines of each topic, and the prompt
    /// being typed.
    pub fn frame(
        &mut self,
        finished: &[String],
        topics: Vec<(&'static str, Vec<String>)>,
        prompt: &str,
    ) -> Vec<u8> {
        let mut lines: Vec<String> = finished.to_vec();
        for (topic, now) in topics {
            let before = self.written.get(topic).map(Vec::as_slice).unwrap_or_default();
            if before != now {
                // If a topic changes in part, only the new lines are written.
                lines.extend(now.iter().filter(|line| !before.contains(line)).cloned());
                self.written.insert(topic, now);
            }
        }
        let mut out = String::new();
        if lines.is_empty() {
            if let Some(more) = prompt.strip_prefix(self.prompt.as_str()) {
                out.push_str(more);
            } else if let Some(gone) = self.prompt.strip_prefix(prompt).filter(|_| !prompt.is_empty()) {
                for _ in 0..width(gone) {
                    out.push_str("\x08 \x08");
                }
            } else {
                out.push_str("\r\n");
                out.push_str(prompt);
            }
        } else {
            if !self.prompt.is_empty() {
                out.push_str("\r\n");
            }
            for line in lines {
                out.push_str(&line);
                out.push_str("\r\n");
            }
            out.push_str(prompt);
        }
        prompt.clone_into(&mut self.prompt);
        out.into_bytes()
    }

    /// Ends the last line.
    pub fn end(&mut self) -> &'static [u8] {
        let is_open = !std::mem::take(&mut self.prompt).is_empty();
        if is_open { b"\r\n" } else { b"" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(
        linear: &mut Linear,
        finished: &[&str],
        topics: &[(&'static str, &[&str])],
        prompt: &str,
    ) -> String {
        let finished: Vec<String> = finished.iter().map(ToString::to_string).collect();
        let topics =
            topics.iter().map(|(topic, lines)| (*topic, lines.iter().map(ToString::to_string).collect()));
        String::from_utf8(linear.frame(&finished, topics.collect(), prompt)).expect("it was text")
    }

    #[test]
    fn written_lines_never_change() {
        let mut linear = Linear::default();
        assert_eq!(frame(&mut linear, &["hello"], &[], "> "), "hello\r\n> ");
        assert_eq!(frame(&mut linear, &[], &[], "> a"), "a");
        assert_eq!(frame(&mut linear, &[], &[], "> a宽"), "宽");
        assert_eq!(frame(&mut linear, &[], &[], "> a"), "\u{8} \u{8}\u{8} \u{8}");
        assert_eq!(frame(&mut linear, &[], &[], "> a"), "", "nothing changed");
        assert_eq!(frame(&mut linear, &[], &[], "> b"), "\r\n> b");
        assert_eq!(frame(&mut linear, &[], &[("run", &["Working."])], "> b"), "\r\nWorking.\r\n> b");
        assert_eq!(frame(&mut linear, &[], &[("run", &["Working."])], "> b"), "", "it is said once");
        let form = frame(&mut linear, &[], &[("card", &["Which?", "1. red", "2. blue"])], "> b");
        assert_eq!(form, "\r\nWhich?\r\n1. red\r\n2. blue\r\n> b");
        let moved = frame(&mut linear, &[], &[("card", &["Which?", "1. red", "2. blue, chosen"])], "> b");
        assert_eq!(moved, "\r\n2. blue, chosen\r\n> b", "only what is new of it");
    }
}
