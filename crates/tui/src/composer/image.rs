//! Images in the composer's text: each is a short placeholder that moves and is deleted as one.

use super::Composer;
use super::paste::Paste;
use aye_core::contract::image::ImageRef;

impl Composer {
    /// Puts a picture in the place of these words, or at the caret when there are none. `false`: they are gone.
    pub fn attach(&mut self, words: &str, image: ImageRef) -> bool {
        let Some(at) =
            self.text.find(words).filter(|_| !words.is_empty()).or(words.is_empty().then_some(self.caret))
        else {
            return false;
        };
        let mut number = self.images + 1;
        while self.text.contains(&format!("[image {number}: ")) {
            number += 1;
        }
        self.images = number;
        let mark = image.mark(number);
        let caret = self.caret;
        self.replace(at..at + words.len(), &mark);
        if caret < at {
            self.caret = caret;
        } else if caret > at + words.len() {
            self.caret = caret - words.len() + mark.len();
        } else if words.is_empty() && !self.text[self.caret..].starts_with(char::is_whitespace) {
            self.insert_text(" ");
        }
        self.pastes.push(Paste { text: mark.clone(), mark, image: Some(image) });
        true
    }

    /// Returns the images whose marks are in the text, in order.
    pub fn attached(&self) -> Vec<ImageRef> {
        self.marks().into_iter().filter_map(|(_, nth)| self.pastes[nth].image.clone()).collect()
    }

    /// Restores the images whose marks are in a text that is put back.
    pub fn restore_marks(&mut self, text: &str, images: &[ImageRef]) {
        for image in images {
            let Some(range) = image.mark_in(text) else { continue };
            let mark = text[range].to_owned();
            self.pastes.retain(|paste| paste.mark != mark);
            self.pastes.push(Paste { text: mark.clone(), mark, image: Some(image.clone()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str) -> ImageRef {
        let header = b"GIF89a\x80\x02\xe0\x01";
        ImageRef::of(name, header).unwrap()
    }

    #[test]
    fn an_image_is_a_mark_deleted_as_one() {
        let mut composer = Composer::default();
        composer.insert_text("see @shot.gif there");
        assert!(composer.attach("@shot.gif", image("shot.gif")));
        assert_eq!(composer.text(), "see [image 1: shot.gif 640×480] there");
        assert_eq!(composer.caret(), composer.text().len(), "the caret stays where it is written");
        assert!(composer.attach("", image("clipboard")));
        assert_eq!(composer.whole(), "see [image 1: shot.gif 640×480] there[image 2: clipboard 640×480] ");
        assert_eq!(composer.attached().len(), 2);
        assert!(!composer.open_paste(), "there is nothing to open");
        composer.left();
        composer.delete_left();
        assert_eq!(composer.attached(), [image("shot.gif")]);
        composer.undo();
        assert_eq!(composer.attached().len(), 2, "undo brings it back");
        assert!(!composer.attach("@gone.gif", image("gone.gif")));
    }

    #[test]
    fn drafts_and_returned_messages_keep_their_images() {
        let mut composer = Composer::default();
        composer.attach("", image("a.gif"));
        let draft: crate::composer::paste::Draft =
            serde_json::from_value(serde_json::to_value(composer.draft()).unwrap()).unwrap();
        let mut other = Composer::default();
        other.restore(draft);
        assert_eq!(other.attached(), [image("a.gif")]);
        let (text, images) = (other.whole(), other.attached());
        other.take();
        assert!(other.attached().is_empty());
        other.restore_marks(&text, &images);
        other.put_back(&text);
        assert_eq!(other.attached(), [image("a.gif")]);
        other.insert_text(" ");
        other.attach("", image("b.gif"));
        assert!(other.text().contains("[image 2: b.gif"), "{}", other.text());
    }
}
