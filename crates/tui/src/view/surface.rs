//! Surfaces of a model as lines: frames, columns, tables, and the fields of a form.

use pulldown_cmark::Alignment;
use ratatui::text::{Line, Span};

use super::super::markdown::table::Table;
use super::super::theme::{Role, Theme};
use super::super::wrap::{Wrap, truncate, width};
use aye_core::contract::display::{visible, visible_line};
use aye_core::contract::surface::{Button, Field, Surface, SurfaceNode, text_of};

/// The minimum width of a column; if less is available, columns are placed below each other.
const NARROWEST: usize = 12;
/// The space between columns.
const GAP: usize = 2;

/// The mark before the element selected with the arrows.
pub(super) const HERE: &str = "▸ ";

/// The field or button selected with the arrows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct At<'a> {
    pub(super) component: Option<&'a str>,
    /// Its place in the data, for components that are drawn several times.
    pub(super) path: Option<&'a str>,
}

/// Renders a surface as lines of at most `columns` columns.
pub(super) fn surface(surface: &Surface, at: At<'_>, columns: u16, theme: &Theme) -> Vec<Line<'static>> {
    SurfaceStyle { theme, at }.piece(&surface.picture(), usize::from(columns.max(1)))
}

struct SurfaceStyle<'a> {
    theme: &'a Theme,
    at: At<'a>,
}

impl SurfaceStyle<'_> {
    fn piece(&self, piece: &SurfaceNode, columns: usize) -> Vec<Line<'static>> {
        let wrap = Wrap::words(columns as u16);
        match piece {
            SurfaceNode::Card(inner) => self.card(inner, columns),
            SurfaceNode::Column(inner) => self.column(inner, columns),
            SurfaceNode::Row(inner) => self.row(inner, columns),
            SurfaceNode::List(inner) => inner
                .iter()
                .flat_map(|piece| {
                    let lines = self.piece(piece, columns.saturating_sub(2).max(1));
                    lines.into_iter().enumerate().map(|(row, line)| {
                        before(
                            Span::styled(if row == 0 { "• " } else { "  " }, self.theme.style(Role::Dim)),
                            line,
                        )
                    })
                })
                .collect(),
            SurfaceNode::Table { columns: names, rows } => self.table(names, rows, columns),
            SurfaceNode::Text { text, hint } => {
                let role = match hint.as_str() {
                    "h1" | "h2" | "h3" | "h4" | "h5" => Role::Heading,
                    "caption" => Role::Dim,
                    _ => Role::Text,
                };
                wrap.text(&visible(text), self.theme.style(role))
            }
            SurfaceNode::Image { caption } => {
                wrap.text(&format!("[picture: {}]", visible_line(caption)), self.theme.style(Role::Dim))
            }
            SurfaceNode::Divider => vec![Line::styled("─".repeat(columns), self.theme.style(Role::Dim))],
            SurfaceNode::Field(field) => self.field(field, columns),
            SurfaceNode::Check(field) => self.check(field, columns),
            SurfaceNode::Button(button) => self.button(button, columns),
            SurfaceNode::Unknown(what) => {
                wrap.text(&format!("({} is not shown here)", visible_line(what)), self.theme.style(Role::Dim))
            }
        }
    }

    fn column(&self, inner: &[SurfaceNode], columns: usize) -> Vec<Line<'static>> {
        inner.iter().flat_map(|piece| self.piece(piece, columns)).collect()
    }

    fn card(&self, inner: &[SurfaceNode], columns: usize) -> Vec<Line<'static>> {
        let dim = self.theme.style(Role::Dim);
        if columns < 8 {
            return self.column(inner, columns);
        }
        let inside = columns - 4;
        let mut lines = vec![Line::styled(format!("╭{}╮", "─".repeat(columns - 2)), dim)];
        for line in self.column(inner, inside) {
            let blank = " ".repeat(inside.saturating_sub(line.width()));
            let mut line = before(Span::styled("│ ", dim), line);
            line.spans.push(Span::raw(blank));
            line.spans.push(Span::styled(" │", dim));
            lines.push(line);
        }
        lines.push(Line::styled(format!("╰{}╯", "─".repeat(columns - 2)), dim));
        lines
    }

    /// Renders elements side by side, each with an equal share of the width, if there is room.
    fn row(&self, inner: &[SurfaceNode], columns: usize) -> Vec<Line<'static>> {
        let count = inner.len();
        if count < 2 || count * NARROWEST + (count - 1) * GAP > columns {
            return self.column(inner, columns);
        }
        let share = (columns - (count - 1) * GAP) / count;
        let cells: Vec<Vec<Line<'static>>> = inner.iter().map(|piece| self.piece(piece, share)).collect();
        let rows = cells.iter().map(Vec::len).max().unwrap_or(0);
        (0..rows)
            .map(|row| {
                let mut spans = Vec::new();
                for (n, cell) in cells.iter().enumerate() {
                    let line = cell.get(row).cloned().unwrap_or_default();
                    let fill = share.saturating_sub(line.width()) + if n + 1 < count { GAP } else { 0 };
                    spans.extend(line.spans.into_iter().map(|span| span.patch_style(line.style)));
                    spans.push(Span::raw(" ".repeat(fill)));
                }
                Line::from(spans)
            })
            .collect()
    }

    fn table(&self, names: &[String], rows: &[Vec<String>], columns: usize) -> Vec<Line<'static>> {
        let style = self.theme.style(Role::Text);
        let cells = |row: &[String]| -> Vec<Vec<Span<'static>>> {
            row.iter().map(|cell| vec![Span::styled(visible_line(cell).into_owned(), style)]).collect()
        };
        let widest = rows.iter().map(Vec::len).chain([names.len()]).max().unwrap_or(0);
        let mut table = Table::new(vec![Alignment::None; widest]);
        table.rows.push(cells(names));
        table.rows.extend(rows.iter().map(|row| cells(row)));
        table.lines(columns as u16, self.theme)
    }

    fn is_at(&self, component: &str, path: Option<&str>) -> bool {
        self.at.component == Some(component) && (path.is_none() || self.at.path == path)
    }

    fn mark(&self, is_here: bool) -> Span<'static> {
        Span::styled(if is_here { HERE } else { "  " }, self.theme.style(Role::Accent))
    }

    fn field(&self, field: &Field, columns: usize) -> Vec<Line<'static>> {
        let is_here = self.is_at(&field.component, Some(&field.path));
        let label = format!("{}: ", visible_line(&field.label));
        let text = text_of(&field.value);
        let shown = match (field.is_secret, text.is_empty()) {
            (_, true) => "…".to_owned(),
            (true, false) => "•".repeat(text.chars().count().min(12)),
            (false, false) => visible_line(&text).into_owned(),
        };
        let role = if text.is_empty() { Role::Dim } else { Role::Text };
        let line = Line::from(vec![
            Span::styled(label, self.theme.style(if is_here { Role::Accent } else { Role::Dim })),
            Span::styled(shown, self.theme.style(role)),
        ]);
        self.marked(is_here, &line, columns)
    }

    fn check(&self, field: &Field, columns: usize) -> Vec<Line<'static>> {
        let is_here = self.is_at(&field.component, Some(&field.path));
        let tick = if field.value == true { "[x] " } else { "[ ] " };
        let style = self.theme.style(if is_here { Role::Accent } else { Role::Text });
        let line = Line::styled(format!("{tick}{}", visible_line(&field.label)), style);
        self.marked(is_here, &line, columns)
    }

    fn button(&self, button: &Button, columns: usize) -> Vec<Line<'static>> {
        let is_here = self.is_at(&button.component, None);
        let role = match (is_here, button.action.is_empty()) {
            (true, _) => Role::Accent,
            (false, true) => Role::Dim,
            (false, false) => Role::Text,
        };
        let label = if button.label.is_empty() { &button.action } else { &button.label };
        let text = truncate(&visible_line(label), columns.saturating_sub(6) as u16);
        self.marked(is_here, &Line::styled(format!("[ {text} ]"), self.theme.style(role)), columns)
    }

    fn marked(&self, is_here: bool, line: &Line<'static>, columns: usize) -> Vec<Line<'static>> {
        let mark = self.mark(is_here);
        let blank = Span::raw(" ".repeat(width(&mark.content)));
        Wrap::words(columns as u16).prefix(vec![mark], vec![blank]).line(line)
    }
}

fn before(lead: Span<'static>, line: Line<'static>) -> Line<'static> {
    let style = line.style;
    let mut spans = vec![lead];
    spans.extend(line.spans.into_iter().map(|span| {
        let own = span.style;
        Span { style: style.patch(own), ..span }
    }));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use aye_core::contract::surface::Component;

    fn form() -> Surface {
        let mut surface = Surface { id: "s".into(), root: "root".into(), ..Surface::default() };
        for (id, kind, props) in [
            ("root", "Card", json!({"child": "all"})),
            ("all", "Column", json!({"children": ["title", "two", "table", "ok", "go", "pic", "odd"]})),
            ("title", "Text", json!({"text": "New order 注文", "usageHint": "h1"})),
            ("two", "Row", json!({"children": ["name", "mail"]})),
            ("name", "TextField", json!({"label": "Name", "value": {"path": "/name"}})),
            ("mail", "TextField", json!({"label": "Mail\u{202e}", "value": {"path": "/mail"}})),
            ("table", "Table", json!({"columns": ["what", "how many"], "rows": [["tea", 2], ["🍎", 10]]})),
            ("ok", "CheckBox", json!({"label": "agreed", "value": true})),
            ("go", "Button", json!({"label": "Send", "action": {"event": {"name": "send"}}})),
            ("pic", "Image", json!({"url": "x.png", "caption": "a cup"})),
            ("odd", "Hologram", json!({})),
        ] {
            let props = props.as_object().expect("an object").clone();
            surface.components.insert(id.into(), Component { kind: kind.into(), props });
        }
        surface.data = json!({"name": "Ada", "mail": ""});
        surface
    }

    fn text(columns: u16) -> String {
        let at = At { component: Some("name"), path: Some("/name") };
        let lines = surface(&form(), at, columns, &Theme::plain());
        for line in &lines {
            assert!(line.width() <= usize::from(columns), "{line:?} in {columns}");
        }
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_form_is_drawn_at_each_width() {
        insta::assert_snapshot!("surface_60", text(60));
        insta::assert_snapshot!("surface_30", text(30));
        for columns in 1..30 {
            text(columns);
        }
    }
}
