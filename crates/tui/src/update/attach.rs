//! Attaches images to the text: by a path that was pasted or named, or from the clipboard.

use super::super::app::App;
use super::super::composer::dropped;
use super::super::host::{Attach, Attached, ImageCmd, ImageMsg};
use super::super::msg::Cmd;

impl App {
    pub(super) fn image_msg(&mut self, msg: ImageMsg, cmds: &mut Vec<Cmd>) {
        match msg {
            ImageMsg::Attached(words, found) => self.attached(&words, found, cmds),
            ImageMsg::Picture(hash, pixels) => self.display.image_cache.take(&hash, pixels),
            ImageMsg::Opened(Ok(())) => {}
            ImageMsg::Opened(Err(why)) => self.show_hint(why),
        }
    }

    /// Handles a paste that consists only of image paths: the text is inserted at once, and becomes
    /// placeholders once the images are read.
    pub(super) fn attach_dropped(&mut self, pasted: &str, cmds: &mut Vec<Cmd>) {
        for (words, path) in dropped::paths(pasted) {
            self.attach(words, Attach::Path(path), cmds);
        }
    }

    /// Attaches images that the text mentions with `@` and that were not tried yet. Returns `true` if the
    /// message is sent once they are read.
    pub(super) fn attach_mentioned(&mut self, behind: bool, cmds: &mut Vec<Cmd>) -> bool {
        for (words, path) in dropped::mentions(self.composer.text()) {
            if !self.attaching.tried.contains(&words) {
                self.attach(words, Attach::Path(path), cmds);
            }
        }
        if self.attaching.open.is_empty() {
            return false;
        }
        self.attaching.sends = Some(behind);
        true
    }

    /// The picture on the clipboard, or its text.
    pub(super) fn attach_clipboard(&mut self, cmds: &mut Vec<Cmd>) {
        if !self.attaching.open.contains("") {
            self.attach(String::new(), Attach::Clipboard, cmds);
        }
    }

    pub(super) fn attach(&mut self, words: String, what: Attach, cmds: &mut Vec<Cmd>) {
        if self.attaching.open.insert(words.clone()) {
            cmds.push(Cmd::Image(ImageCmd::Attach(words, what)));
        }
    }

    /// Handles the result of an attempt to read an attachment.
    pub(super) fn attached(&mut self, words: &str, found: Result<Attached, String>, cmds: &mut Vec<Cmd>) {
        if !self.attaching.open.remove(words) {
            return;
        }
        match found {
            Ok(Attached::Image(image)) => {
                self.composer.attach(words, image);
            }
            Ok(Attached::Text(text)) => self.composer.paste(&text),
            // It is a text like any other.
            Ok(Attached::Nothing) => drop(self.attaching.tried.insert(words.to_owned())),
            Err(why) => {
                self.attaching.tried.insert(words.to_owned());
                self.attaching.sends = None;
                self.show_hint(why);
            }
        }
        if self.attaching.open.is_empty()
            && let Some(behind) = self.attaching.sends.take()
            // It may have been taken away meanwhile; an empty text would mean something else.
            && !self.composer.is_empty()
        {
            self.send(behind, cmds);
        }
        self.refresh_palette(cmds);
    }
}
