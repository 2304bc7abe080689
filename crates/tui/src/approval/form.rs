//! Filling in a surface: the selected field, box or button, and the input so far.

use serde_json::{Value, json};

use super::ask::Accepted;
use crate::composer::Composer;
use aye_core::contract::surface::{Surface, SurfaceNode, text_of};

/// The state of a form while it is filled in.
#[derive(Clone, Debug, Default)]
pub struct FormState {
    surface: Surface,
    stops: Vec<SurfaceNode>,
    cursor: Option<usize>,
    writing: Option<Box<Composer>>,
}

impl FormState {
    pub(super) fn of(surface: &Surface) -> FormState {
        let stops = surface.stops();
        FormState { surface: surface.clone(), stops, cursor: None, writing: None }
    }

    /// The surface with what was put in so far.
    pub fn surface(&self) -> &Surface {
        &self.surface
    }

    /// The fields, boxes and buttons, in order.
    pub fn stops(&self) -> &[SurfaceNode] {
        &self.stops
    }

    /// Whether the row after them is selected, which gives no answer.
    pub fn skips(&self) -> bool {
        self.cursor == Some(self.stops.len())
    }

    /// Returns the index of the selected one.
    pub fn cursor(&self) -> Option<usize> {
        self.cursor
    }

    /// Returns the selected piece.
    pub fn here(&self) -> Option<&SurfaceNode> {
        self.stops.get(self.cursor?)
    }

    /// The line that is being written.
    pub fn line(&self) -> Option<&Composer> {
        self.writing.as_deref()
    }

    /// Returns the prompt of the input line: the field's label, and whether the input is hidden.
    pub fn asks(&self) -> (String, bool) {
        match self.here() {
            Some(SurfaceNode::Field(field)) => (format!("{}: ", field.label), field.is_secret),
            Some(_) | None => (String::new(), false),
        }
    }

    pub(super) fn line_mut(&mut self) -> Option<&mut Composer> {
        self.writing.as_deref_mut()
    }

    pub(super) fn step(&mut self, by: isize) {
        let count = self.stops.len() as isize + 1;
        let at = match self.cursor {
            Some(at) => (at as isize + by).rem_euclid(count),
            None if by < 0 => count - 1,
            None => 0,
        };
        self.cursor = Some(at as usize);
    }

    pub(super) fn toggle(&mut self) {
        if let Some(SurfaceNode::Check(field)) = self.here().cloned() {
            self.put(&field.path, json!(field.value != true));
        }
    }

    /// Starts the line of the selected field, or else of the next one, with this text after what is in the field. Returns
    /// `false` if there is no field.
    pub(super) fn write(&mut self, text: &str) -> bool {
        let from = self.cursor.unwrap_or_default();
        let order = (from..self.stops.len()).chain(0..from.min(self.stops.len()));
        let field = order.filter_map(|at| match &self.stops[at] {
            SurfaceNode::Field(field) => Some((at, text_of(&field.value))),
            _ => None,
        });
        let Some((at, value)) = field.into_iter().next() else { return false };
        self.cursor = Some(at);
        let mut line = super::line();
        line.insert_text(&value);
        line.insert_text(text);
        self.writing = Some(Box::new(line));
        true
    }

    /// Enter: writes into a field, ticks a box, presses a button.
    pub(super) fn accept(&mut self) -> Accepted {
        if self.skips() {
            return Accepted::Skip;
        }
        let Some(here) = self.here().cloned() else { return Accepted::Nothing };
        match here {
            SurfaceNode::Field(_) => {
                self.write("");
                Accepted::Nothing
            }
            SurfaceNode::Check(_) => {
                self.toggle();
                Accepted::Nothing
            }
            SurfaceNode::Button(button) => Accepted::Answer(self.surface.pressed(&button.component)),
            SurfaceNode::Card(_)
            | SurfaceNode::Column(_)
            | SurfaceNode::Row(_)
            | SurfaceNode::List(_)
            | SurfaceNode::Table { .. }
            | SurfaceNode::Text { .. }
            | SurfaceNode::Image { .. }
            | SurfaceNode::Divider
            | SurfaceNode::Unknown(_) => Accepted::Nothing,
        }
    }

    /// Why Enter was no answer.
    pub(super) fn hint(&self) -> Option<String> {
        self.cursor.is_none().then(|| "select a field or a button first, with the arrows".to_owned())
    }

    /// Handles Enter in a field: keeps the text and moves to the next field.
    pub(super) fn written(&mut self) {
        let Some(mut line) = self.writing.take() else { return };
        if let Some(SurfaceNode::Field(field)) = self.here().cloned() {
            let text = line.take();
            // A number stays a number if the text still is one.
            let value = match (&field.value, text.trim().parse::<serde_json::Number>()) {
                (Value::Number(_), Ok(number)) => Value::Number(number),
                _ => Value::String(text),
            };
            self.put(&field.path, value);
        }
        self.step(1);
    }

    pub(super) fn stop_writing(&mut self) {
        self.writing = None;
    }

    fn put(&mut self, path: &str, value: Value) {
        self.surface.put(path, value);
        self.stops = self.surface.stops();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> FormState {
        let surface = json!({
            "id": "s", "root": "root", "data": {"n": 1},
            "components": {
                "root": {"kind": "Column", "props": {"children": ["name", "many", "ok", "go"]}},
                "name": {"kind": "TextField", "props": {"label": "Name"}},
                "many": {"kind": "TextField", "props": {"label": "Many", "value": {"path": "/n"}}},
                "ok": {"kind": "CheckBox", "props": {"label": "Ok"}},
                "go": {"kind": "Button", "props": {"label": "Go", "action": {"name": "go"}}},
            },
        });
        FormState::of(&serde_json::from_value(surface).expect("a surface"))
    }

    #[test]
    fn enter_alone_does_not_answer() {
        let mut form = form();
        assert_eq!(form.accept(), Accepted::Nothing);
        assert!(form.hint().is_some());
    }

    #[test]
    fn inputs_toggles_and_the_pressed_button_form_the_answer() {
        let mut form = form();
        form.step(1);
        for words in ["Ada", "25"] {
            assert_eq!(form.accept(), Accepted::Nothing);
            let line = form.line_mut().expect("a line");
            line.take();
            line.insert_text(words);
            form.written();
        }
        form.toggle();
        form.step(1);
        let Accepted::Answer(answer) = form.accept() else { panic!("no answer") };
        assert_eq!(answer["dataModel"], json!({"n": 25, "name": "Ada", "ok": true}));
        assert_eq!(answer["userAction"]["name"], "go");
    }

    #[test]
    fn an_unreadable_surface_has_no_buttons() {
        let mut form = FormState::of(&Surface::default());
        assert!(!form.write("x"));
        form.step(1);
        assert_eq!(form.accept(), Accepted::Skip, "nothing else is possible");
    }
}
