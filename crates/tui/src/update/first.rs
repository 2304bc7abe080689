//! The first start: names the active model and how to connect another. Asks nothing.

use super::super::app::App;
use super::super::transcript::Level;
use super::super::view::spoken_model;

impl App {
    /// Shows the words of the first start, above the text that is written.
    pub fn welcome(&mut self) {
        let text = if self.info.is_demo {
            "I am the demo model: I come with aye and work offline. I understand a few commands and use the \
             same tools, rules and questions as any model. Try `list files`, `run ls -l` or `help`.\nTo \
             connect a real model, type /login and paste a key, or start Ollama. /model lists the available \
             models."
                .to_owned()
        } else {
            format!(
                "Using {} ({}). /model lists the others, /login connects another provider, /theme changes the colours.",
                spoken_model(&self.info),
                self.info.model_why
            )
        };
        self.conversation.transcript.note(Level::Info, text);
    }
}
