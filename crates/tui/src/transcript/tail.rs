//! The end of a running tool's output.

use std::collections::VecDeque;

/// The number of lines kept, and the maximum characters of a line.
const LINES: usize = 200;
const LINE_CHARS: usize = 2000;

/// The last lines of a stream; a carriage return restarts the line, as progress bars expect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tail {
    lines: VecDeque<String>,
    current: String,
    /// Whether a carriage return came: the next character restarts the line, unless it ends the line.
    returned: bool,
    dropped: usize,
}

impl Tail {
    pub fn push(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '\n' => {
                    self.lines.push_back(std::mem::take(&mut self.current));
                    self.returned = false;
                    if self.lines.len() > LINES {
                        self.lines.pop_front();
                        self.dropped += 1;
                    }
                }
                '\r' => self.returned = true,
                _ => {
                    if std::mem::take(&mut self.returned) {
                        self.current.clear();
                    }
                    if self.current.len() < LINE_CHARS {
                        self.current.push(c);
                    }
                }
            }
        }
    }

    /// Returns the total number of lines, including dropped ones.
    pub fn total(&self) -> usize {
        self.dropped + self.lines.len() + usize::from(!self.current.is_empty())
    }

    /// Returns whether nothing was printed.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// The last `n` lines, oldest first.
    pub fn last(&self, n: usize) -> Vec<&str> {
        let all = self.lines.iter().map(String::as_str);
        let current = Some(self.current.as_str()).filter(|line| !line.is_empty());
        let lines: Vec<&str> = all.chain(current).collect();
        lines[lines.len().saturating_sub(n)..].to_vec()
    }
}
