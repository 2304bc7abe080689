//! A surface: components that a model names instead of drawing them, over a data model (A2UI v0.8). Front ends draw
//! it, and the user's input returns as an answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The action of a surface that waits for the user: the answer is
/// `{"userAction": {...}, "dataModel": {...}}`.
pub const ACTION_SURFACE: &str = "ui:Surface";

/// The action of a button that accepts a form, among others.
const ACCEPT: &str = "accept";

/// The maximum number of nodes that are drawn; later ones are left out, with a note.
pub const MAX_PIECES: usize = 2000;
/// The maximum nesting depth of components.
pub const MAX_DEPTH: usize = 24;

/// Components over data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Surface {
    /// Its id, unique in the conversation.
    pub id: String,
    /// The catalogue that its components are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog_id: Option<String>,
    /// The component that all others lie in; empty until one is named.
    #[serde(default)]
    pub root: String,
    /// The components by id.
    #[serde(default)]
    pub components: BTreeMap<String, Component>,
    /// The data for bound properties.
    #[serde(default)]
    pub data: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// Its kind, such as `Text`.
    pub kind: String,
    /// Its properties as they were sent.
    #[serde(default)]
    pub props: Map<String, Value>,
}

impl Component {
    /// The ids of the components that it names.
    pub fn references(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for key in ["child", "entryPointChild", "contentChild"] {
            found.extend(self.props.get(key).and_then(Value::as_str));
        }
        match self.props.get("children") {
            Some(Value::Array(ids)) => found.extend(ids.iter().filter_map(Value::as_str)),
            Some(Value::Object(children)) => {
                let list = children.get("explicitList").and_then(Value::as_array);
                found.extend(list.into_iter().flatten().filter_map(Value::as_str));
                // The template of either form.
                let template = children.get("template").unwrap_or(&Value::Null);
                for holder in [template.get("componentId"), children.get("componentId")] {
                    found.extend(holder.and_then(Value::as_str));
                }
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
        }
        for tab in self.props.get("tabItems").and_then(Value::as_array).into_iter().flatten() {
            found.extend(tab.get("child").and_then(Value::as_str));
        }
        found
    }
}

/// One thing to draw.
#[derive(Clone, Debug, PartialEq)]
pub enum SurfaceNode {
    /// A frame around its content.
    Card(Vec<SurfaceNode>),
    /// One below the other.
    Column(Vec<SurfaceNode>),
    /// Side by side.
    Row(Vec<SurfaceNode>),
    /// One below the other, each with a mark.
    List(Vec<SurfaceNode>),
    /// Columns with their names, and the cells row by row.
    Table {
        /// The names of the columns.
        columns: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    Text {
        text: String,
        /// `h1` to `h5`, `caption`, `body`; empty if not set.
        hint: String,
    },
    /// An image, shown as its description.
    Image {
        /// Its caption, else its address.
        caption: String,
    },
    Divider,
    /// A line of text that the user fills in.
    Field(Field),
    /// A box that the user ticks.
    Check(Field),
    Button(Button),
    /// A kind that is not drawn, or something that is missing.
    Unknown(String),
}

/// An input for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub component: String,
    /// The label of the input.
    pub label: String,
    pub value: Value,
    /// The JSON pointer to the value in the data; `/` and the component's id if the input is not bound.
    pub path: String,
    /// Whether the typed text must be hidden.
    pub is_secret: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Button {
    pub component: String,
    /// The label of the button.
    pub label: String,
    /// The name of the action; empty if pressing does nothing.
    pub action: String,
}

impl Surface {
    /// Returns the nodes to draw, from the root down.
    pub fn picture(&self) -> SurfaceNode {
        let mut left = MAX_PIECES;
        self.piece(&self.root, "", 0, &mut left)
    }

    /// The fields, boxes and buttons in the order in which they are drawn.
    pub fn stops(&self) -> Vec<SurfaceNode> {
        fn walk(piece: SurfaceNode, found: &mut Vec<SurfaceNode>) {
            match piece {
                SurfaceNode::Card(inner)
                | SurfaceNode::Column(inner)
                | SurfaceNode::Row(inner)
                | SurfaceNode::List(inner) => {
                    for piece in inner {
                        walk(piece, found);
                    }
                }
                SurfaceNode::Button(button) if button.action.is_empty() => {}
                SurfaceNode::Field(_) | SurfaceNode::Check(_) | SurfaceNode::Button(_) => found.push(piece),
                SurfaceNode::Table { .. }
                | SurfaceNode::Text { .. }
                | SurfaceNode::Image { .. }
                | SurfaceNode::Divider
                | SurfaceNode::Unknown(_) => {}
            }
        }
        let mut found = Vec::new();
        walk(self.picture(), &mut found);
        found
    }

    /// Returns whether something can be pressed: such a surface waits for the user.
    pub fn is_form(&self) -> bool {
        self.stops().iter().any(|piece| matches!(piece, SurfaceNode::Button(_)))
    }

    /// The names of the actions of its buttons, in order.
    pub fn actions(&self) -> Vec<String> {
        self.buttons().into_iter().map(|button| button.action).collect()
    }

    /// Returns the answer of accepting the surface as it stands: its only button is pressed, or the one that accepts.
    pub fn accepted(&self) -> Option<Value> {
        let buttons = self.buttons();
        let is_accept = |button: &&Button| button.action == ACCEPT;
        let button = match buttons.as_slice() {
            [only] => only,
            several => several.iter().find(is_accept)?,
        };
        Some(self.pressed(&button.component))
    }

    /// Returns the shortest answer of a press, as an example: of the button that accepts, otherwise of the first one.
    pub fn example_press(&self) -> Option<Value> {
        let buttons = self.buttons();
        let accepting = buttons.iter().find(|button| button.action == ACCEPT);
        let mut pressed = self.pressed(&accepting.or(buttons.first())?.component);
        if let Some(action) = pressed.get_mut("userAction").and_then(Value::as_object_mut) {
            let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
            action
                .retain(|name, value| name != "sourceComponentId" && !(name == "context" && is_empty(value)));
        }
        Some(pressed)
    }

    fn buttons(&self) -> Vec<Button> {
        let button = |piece| match piece {
            SurfaceNode::Button(button) => Some(button),
            _ => None,
        };
        self.stops().into_iter().filter_map(button).collect()
    }

    /// Puts a value at a place in the data; what is missing on the way is made.
    pub fn put(&mut self, path: &str, value: Value) {
        let mut place = &mut self.data;
        for step in path.split('/').filter(|step| !step.is_empty()) {
            let step = step.replace("~1", "/").replace("~0", "~");
            let known = place.as_array().map_or(0, Vec::len);
            let index = step.parse::<usize>().ok().filter(|index| *index < known);
            if index.is_none() && !place.is_object() {
                *place = json!({});
            }
            place = match index {
                Some(index) => &mut place[index],
                None => &mut place[step.as_str()],
            };
        }
        *place = value;
    }

    /// The answer of pressing a button.
    pub fn pressed(&self, button: &str) -> Value {
        let component = self.components.get(button).cloned().unwrap_or_default();
        let action = component.props.get("action").unwrap_or(&Value::Null);
        let context = action.pointer("/event/context").or_else(|| action.get("context"));
        let mut resolved = Map::new();
        match context {
            Some(Value::Object(entries)) => {
                for (key, value) in entries {
                    resolved.insert(key.clone(), self.bound(value, ""));
                }
            }
            Some(Value::Array(entries)) => {
                for entry in entries {
                    if let (Some(key), Some(value)) =
                        (entry.get("key").and_then(Value::as_str), entry.get("value"))
                    {
                        resolved.insert(key.to_owned(), self.bound(value, ""));
                    }
                }
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
        }
        json!({
            "userAction": {
                "name": action_name(&component),
                "surfaceId": self.id,
                "sourceComponentId": button,
                "context": resolved,
            },
            "dataModel": self.data,
        })
    }

    fn piece(&self, id: &str, scope: &str, depth: usize, left: &mut usize) -> SurfaceNode {
        let Some(component) = self.components.get(id) else {
            return SurfaceNode::Unknown(format!("`{id}` is missing"));
        };
        if depth > MAX_DEPTH || *left == 0 {
            return SurfaceNode::Unknown("…".into());
        }
        *left -= 1;
        let text = |key: &str| text_of(&self.bound(component.props.get(key).unwrap_or(&Value::Null), scope));
        let kind = component.kind.as_str();
        match kind {
            "Card" => SurfaceNode::Card(self.children(component, scope, depth, left)),
            "Column" | "Modal" | "Tabs" => SurfaceNode::Column(self.children(component, scope, depth, left)),
            "Row" => SurfaceNode::Row(self.children(component, scope, depth, left)),
            "List" => SurfaceNode::List(self.children(component, scope, depth, left)),
            "Table" => self.table(component, scope),
            "Text" => {
                let hint = [text("usageHint"), text("variant")].into_iter().find(|hint| !hint.is_empty());
                SurfaceNode::Text { text: text("text"), hint: hint.unwrap_or_default() }
            }
            "Heading" => SurfaceNode::Text { text: text("text"), hint: "h2".into() },
            "Image" | "Icon" | "Video" | "AudioPlayer" => {
                let named = ["caption", "altText", "alt", "description", "name", "url"];
                let caption = named.into_iter().map(text).find(|text| !text.is_empty());
                SurfaceNode::Image { caption: caption.unwrap_or_else(|| kind.to_lowercase()) }
            }
            "Divider" => SurfaceNode::Divider,
            "TextField" | "DateTimeInput" | "Slider" => {
                let key = ["text", "value"].into_iter().find(|key| component.props.contains_key(*key));
                SurfaceNode::Field(self.field(id, component, key.unwrap_or("value"), scope))
            }
            "CheckBox" => SurfaceNode::Check(self.field(id, component, "value", scope)),
            "Button" => {
                let own = text("label");
                let label = match component.props.get("child").and_then(Value::as_str) {
                    Some(child) if own.is_empty() => words_of(&self.piece(child, scope, depth + 1, left)),
                    Some(_) | None => own,
                };
                SurfaceNode::Button(Button {
                    component: id.to_owned(),
                    label,
                    action: action_name(component),
                })
            }
            other => {
                let inner = self.children(component, scope, depth, left);
                if inner.is_empty() {
                    SurfaceNode::Unknown(other.to_owned())
                } else {
                    SurfaceNode::Column(inner)
                }
            }
        }
    }

    fn children(
        &self,
        component: &Component,
        scope: &str,
        depth: usize,
        left: &mut usize,
    ) -> Vec<SurfaceNode> {
        let children = component.props.get("children");
        let template = children.and_then(|children| children.get("template").or(Some(children)));
        let repeated = template.and_then(|template| {
            let id = template.get("componentId")?.as_str()?;
            let path = template.get("dataBinding").or_else(|| template.get("path"))?.as_str()?;
            Some((id, absolute(path, scope)))
        });
        let Some((id, path)) = repeated else {
            let ids = component.references();
            return ids.into_iter().map(|id| self.piece(id, scope, depth + 1, left)).collect();
        };
        let steps: Vec<String> = match self.data.pointer(&path) {
            Some(Value::Array(items)) => (0..items.len()).map(|index| index.to_string()).collect(),
            Some(Value::Object(items)) => items.keys().map(|key| escaped(key)).collect(),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => Vec::new(),
        };
        let mut pieces = Vec::new();
        for step in steps {
            if *left == 0 {
                pieces.push(SurfaceNode::Unknown("…".into()));
                break;
            }
            pieces.push(self.piece(id, &format!("{path}/{step}"), depth + 1, left));
        }
        pieces
    }

    fn field(&self, id: &str, component: &Component, key: &str, scope: &str) -> Field {
        let bound = component.props.get(key).unwrap_or(&Value::Null);
        let own = || format!("/{}", escaped(id));
        let path = bound.get("path").and_then(Value::as_str).map_or_else(own, |path| absolute(path, scope));
        let value = self.data.pointer(&path).cloned().unwrap_or_else(|| self.bound(bound, scope));
        let text = |key: &str| text_of(&self.bound(component.props.get(key).unwrap_or(&Value::Null), scope));
        let label = ["label", "placeholder"].into_iter().map(text).find(|text| !text.is_empty());
        let kind = component.props.get("textFieldType").or_else(|| component.props.get("variant"));
        Field {
            component: id.to_owned(),
            label: label.unwrap_or_else(|| id.to_owned()),
            value,
            path,
            is_secret: kind.and_then(Value::as_str) == Some("obscured"),
        }
    }

    fn table(&self, component: &Component, scope: &str) -> SurfaceNode {
        let value = |key: &str| self.bound(component.props.get(key).unwrap_or(&Value::Null), scope);
        let mut keys = Vec::new();
        let mut columns = Vec::new();
        for column in value("columns").as_array().into_iter().flatten() {
            let named = |names: [&str; 3]| {
                names.into_iter().find_map(|name| column.get(name).and_then(Value::as_str)).map(str::to_owned)
            };
            let text = column.as_str().map(str::to_owned);
            let key = text.clone().or_else(|| named(["key", "field", "id"])).unwrap_or_default();
            columns.push(text.or_else(|| named(["label", "header", "title"])).unwrap_or_else(|| key.clone()));
            keys.push(key);
        }
        let rows = match value("rows") {
            Value::Null => value("data"),
            rows => rows,
        };
        let rows = rows.as_array().cloned().unwrap_or_default();
        let cells = |row: &Value| -> Vec<String> {
            match row {
                Value::Array(cells) => cells.iter().map(|cell| text_of(&self.bound(cell, scope))).collect(),
                row => keys.iter().map(|key| text_of(row.get(key).unwrap_or(&Value::Null))).collect(),
            }
        };
        SurfaceNode::Table { columns, rows: rows.iter().take(MAX_PIECES).map(cells).collect() }
    }

    /// Returns a property's value: its own, or the one that it refers to in the data.
    fn bound(&self, value: &Value, scope: &str) -> Value {
        let Some(object) = value.as_object() else { return value.clone() };
        if let Some(path) = object.get("path").and_then(Value::as_str)
            && let Some(found) = self.data.pointer(&absolute(path, scope))
        {
            return found.clone();
        }
        let literals = ["literalString", "literalNumber", "literalBoolean", "literalArray", "literal"];
        match literals.into_iter().find_map(|key| object.get(key)) {
            Some(literal) => literal.clone(),
            None if object.contains_key("path") => Value::Null,
            None => value.clone(),
        }
    }
}

fn action_name(component: &Component) -> String {
    let action = component.props.get("action").unwrap_or(&Value::Null);
    let named = action.pointer("/event/name").or_else(|| action.get("name")).unwrap_or(action);
    named.as_str().unwrap_or_default().to_owned()
}

/// Resolves the path of a property to a pointer into the data: a path without a leading slash is relative to
/// the current item.
fn absolute(path: &str, scope: &str) -> String {
    match path.strip_prefix('/') {
        Some("") => String::new(),
        Some(_) => path.trim_end_matches('/').to_owned(),
        None if path.is_empty() || path == "." => scope.to_owned(),
        None => format!("{scope}/{path}"),
    }
}

fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

/// A value as the text that is shown.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn words_of(piece: &SurfaceNode) -> String {
    match piece {
        SurfaceNode::Text { text, .. } => text.clone(),
        SurfaceNode::Image { caption } => caption.clone(),
        SurfaceNode::Card(inner)
        | SurfaceNode::Column(inner)
        | SurfaceNode::Row(inner)
        | SurfaceNode::List(inner) => {
            let words: Vec<String> = inner.iter().map(words_of).filter(|text| !text.is_empty()).collect();
            words.join(" ")
        }
        SurfaceNode::Table { .. }
        | SurfaceNode::Divider
        | SurfaceNode::Field(_)
        | SurfaceNode::Check(_)
        | SurfaceNode::Button(_)
        | SurfaceNode::Unknown(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surface(components: Value, data: Value) -> Surface {
        let components = components
            .as_object()
            .expect("components")
            .iter()
            .map(|(id, props)| {
                let mut props = props.as_object().expect("properties").clone();
                let kind = props.remove("kind").and_then(|kind| kind.as_str().map(str::to_owned));
                (id.clone(), Component { kind: kind.expect("a kind"), props })
            })
            .collect();
        Surface { id: "s".into(), root: "root".into(), components, data, ..Surface::default() }
    }

    #[test]
    fn values_are_literals_or_data_references() {
        let surface = surface(
            json!({
                "root": {"kind": "Column", "children": ["a", "b", "c", "d"]},
                "a": {"kind": "Text", "text": "own"},
                "b": {"kind": "Text", "text": {"literalString": "own too"}, "usageHint": "h1"},
                "c": {"kind": "Text", "text": {"path": "/user/name"}},
                "d": {"kind": "Text", "text": {"path": "/nowhere", "literalString": "else"}},
            }),
            json!({"user": {"name": "Ada"}}),
        );
        let text = |text: &str, hint: &str| SurfaceNode::Text { text: text.into(), hint: hint.into() };
        let expected = SurfaceNode::Column(vec![
            text("own", ""),
            text("own too", "h1"),
            text("Ada", ""),
            text("else", ""),
        ]);
        assert_eq!(surface.picture(), expected);
        assert!(!surface.is_form());
    }

    #[test]
    fn a_template_is_drawn_for_each_item() {
        for children in [
            json!({"template": {"componentId": "item", "dataBinding": "/items"}}),
            json!({"componentId": "item", "path": "/items"}),
        ] {
            let surface = surface(
                json!({
                    "root": {"kind": "List", "children": children},
                    "item": {"kind": "Text", "text": {"path": "name"}},
                }),
                json!({"items": [{"name": "one"}, {"name": "two"}]}),
            );
            let SurfaceNode::List(items) = surface.picture() else { panic!("no list") };
            assert_eq!(items.iter().map(words_of).collect::<Vec<_>>(), ["one", "two"]);
        }
    }

    #[test]
    fn a_form_returns_its_input() {
        let mut surface = surface(
            json!({
                "root": {"kind": "Card", "child": "all"},
                "all": {"kind": "Column", "children": ["name", "news", "go", "none"]},
                "name": {"kind": "TextField", "label": "Name", "value": {"path": "/customer/name"}},
                "news": {"kind": "CheckBox", "label": {"literalString": "News"}, "value": {"literalBoolean": true}},
                "go": {"kind": "Button", "child": "word", "action": {
                    "name": "submit", "context": [{"key": "who", "value": {"path": "/customer/name"}}],
                }},
                "word": {"kind": "Text", "text": "Send"},
                "none": {"kind": "Button", "label": "off"},
            }),
            json!({"customer": {"name": ""}}),
        );
        assert!(surface.is_form());
        let stops = surface.stops();
        let [SurfaceNode::Field(name), SurfaceNode::Check(news), SurfaceNode::Button(go)] = &stops[..] else {
            panic!("{stops:?}")
        };
        assert_eq!((name.path.as_str(), name.label.as_str()), ("/customer/name", "Name"));
        assert_eq!((news.path.as_str(), &news.value), ("/news", &json!(true)));
        assert_eq!((go.label.as_str(), go.action.as_str()), ("Send", "submit"));
        surface.put(&name.path, json!("Ada"));
        surface.put(&news.path, json!(false));
        let answer = surface.pressed("go");
        assert_eq!(answer["userAction"]["context"], json!({"who": "Ada"}));
        assert_eq!(answer["userAction"]["sourceComponentId"], "go");
        assert_eq!(answer["dataModel"], json!({"customer": {"name": "Ada"}, "news": false}));
    }

    #[test]
    fn cycles_and_floods_are_bounded() {
        let round = surface(json!({"root": {"kind": "Column", "children": ["root", "root"]}}), Value::Null);
        round.picture();
        let items: Vec<Value> = (0..100_000).map(Value::from).collect();
        let flood = surface(
            json!({
                "root": {"kind": "List", "children": {"componentId": "i", "path": "/items"}},
                "i": {"kind": "Text", "text": {"path": ""}},
            }),
            json!({"items": items}),
        );
        let SurfaceNode::List(items) = flood.picture() else { panic!("no list") };
        assert!(items.len() <= MAX_PIECES + 1, "{}", items.len());
    }

    #[test]
    fn tables_take_lists_and_objects() {
        let surface = surface(
            json!({"root": {"kind": "Table", "columns": ["a", {"key": "b", "label": "B"}], "rows": {"path": "/rows"}}}),
            json!({"rows": [{"a": 1, "b": "x"}, ["2", null]]}),
        );
        let rows = vec![vec!["1".to_owned(), "x".into()], vec!["2".into(), String::new()]];
        assert_eq!(surface.picture(), SurfaceNode::Table { columns: vec!["a".into(), "B".into()], rows });
    }
}
