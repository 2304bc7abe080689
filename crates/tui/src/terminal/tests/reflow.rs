//! The live region in a reflowing terminal, with sizes that change at any time.

use std::fmt::Write as _;

use proptest::prelude::*;
use ratatui::style::Style;

use super::super::*;

#[expect(dead_code, reason = "it is shared with the tests of the whole program")]
#[path = "../../../../../tests/it/support/emulator.rs"]
mod emulator;
use emulator::Emulator;

struct Out(Emulator);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.process(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Marks the start of a live row.
const LIVE: char = 'L';

#[derive(Clone, Debug)]
enum Step {
    /// Finished lines with these numbers of words.
    Append(Vec<usize>),
    /// A live region: the filled columns of each row, and the caret.
    Draw(Vec<u16>, Option<(u16, u16)>),
    Resize(u16, u16),
}

fn step(rows: usize, far: u16) -> impl Strategy<Value = Step> {
    // A caret is in its text or right after it. Nobody can predict a terminal's handling of a caret far to
    // the right if the window gets narrower twice without a frame in between.
    let caret = proptest::option::of((0u16..far, 0u16..9));
    let width = prop_oneof![20u16..60, 20u16..400];
    prop_oneof![
        3 => proptest::collection::vec(0usize..12, 1..5).prop_map(Step::Append),
        4 => (proptest::collection::vec(prop_oneof![Just(0u16), 1u16..30, Just(400)], 1..rows), caret)
            .prop_map(|(rows, at)| Step::Draw(rows, at)),
        3 => (width, 5u16..40).prop_map(|(width, height)| Step::Resize(width, height)),
    ]
}

/// The final and the expected content of the terminal.
struct Played {
    lines: Vec<String>,
    finished: Vec<String>,
    live: usize,
    /// A live region no longer fitted when the terminal shrank: scrolled rows cannot be taken back.
    overflowed: bool,
}

fn play(steps: &[Step]) -> Played {
    let (mut width, mut height) = (80, 24);
    let mut term = LiveTerminal::new(Out(Emulator::new(width, height)), width, height, true);
    let (mut finished, mut words, mut overflowed) = (Vec::new(), 0, false);
    let mut shown: Vec<u16> = Vec::new();
    let last = [Step::Append(vec![1]), Step::Draw(vec![12, 400], Some((3, 1)))];
    for step in steps.iter().chain(&last) {
        match step {
            Step::Append(lines) => {
                for count in lines {
                    let mut line = String::new();
                    for _ in 0..*count {
                        let wide = if words % 5 == 0 { "漢" } else { "" };
                        let _ = write!(line, "{wide}w{words:04} ");
                        words += 1;
                    }
                    let line = line.trim_end().to_owned();
                    term.append([Line::from(line.clone())]);
                    finished.push(line);
                }
            }
            Step::Draw(rows, caret) => {
                term.draw(rows.len() as u16, |area, buf| {
                    for (y, columns) in rows.iter().enumerate().take(usize::from(area.height)) {
                        let columns = usize::from((*columns).min(area.width));
                        let text = format!("{LIVE}{}", "~".repeat(columns));
                        buf.set_stringn(0, y as u16, text, columns, Style::default());
                    }
                    let behind =
                        |y: u16| rows.get(usize::from(y)).map_or(0, |columns| (*columns).min(area.width - 1));
                    caret.map(|(x, y)| Position::new(x.min(behind(y.min(area.height.max(1) - 1))), y))
                })
                .expect("in-memory writes succeed");
                shown = rows.iter().take(usize::from(height)).map(|columns| (*columns).min(width)).collect();
            }
            Step::Resize(columns, rows) => {
                (width, height) = (*columns, *rows);
                overflowed |= overflows(&term.out.0, term.at.0, &shown, (width, height));
                term.out_mut().0.resize(width, height);
                term.resize(width, height);
            }
        }
    }
    let live = shown.len();
    Played { lines: term.out_mut().0.lines(), finished, live, overflowed }
}

/// Whether a live region with these columns in its rows is too large for the terminal's new size.
fn overflows(terminal: &Emulator, at: u16, shown: &[u16], (width, height): (u16, u16)) -> bool {
    let cursor = terminal.cursor().0.min(i32::from(height) - 1) as usize;
    let need: usize = shown.iter().map(|columns| usize::from(columns.div_ceil(width).max(1))).sum();
    // This terminal makes room for broken rows by moving what is above, even with room below.
    need > usize::from(height) || need - shown.len() + usize::from(at) > cursor
}

/// The words, without spaces and the live region.
fn words(lines: &[String]) -> String {
    lines.concat().chars().filter(|c| !c.is_whitespace() && !matches!(*c, '~' | '=' | LIVE)).collect()
}

thread_local! {
    /// The sizes returned by the next queries of the terminal; the last one stays.
    static SIZES: std::cell::RefCell<Vec<(u16, u16)>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn next_size() -> Option<(u16, u16)> {
    SIZES
        .with_borrow_mut(|sizes| if sizes.len() > 1 { Some(sizes.remove(0)) } else { sizes.first().copied() })
}

#[test]
fn a_resize_during_a_frame_loses_no_finished_line() {
    let finished: Vec<String> = (0..30).map(|n| format!("w{n:04}")).collect();
    let (wide, narrow) = ((80, 24), (40, 24));
    SIZES.set(vec![wide]);
    let mut term = LiveTerminal::new(Out(Emulator::new(80, 24)), 80, 24, true).with_probe(next_size);
    let draw = |term: &mut LiveTerminal<Out>, columns: usize| {
        term.draw(4, |area, buf| {
            for y in 0..area.height {
                buf.set_string(0, y, format!("{LIVE}{}", "~".repeat(columns)), Style::default());
            }
            Some(Position::new(1, 3))
        })
        .expect("in-memory writes succeed");
    };
    term.append(finished.iter().cloned().map(Line::from));
    draw(&mut term, 9);
    // The window gets narrower between the first query and the write.
    SIZES.set(vec![wide, narrow]);
    term.out_mut().0.resize(40, 24);
    draw(&mut term, 60);
    assert!(!term.was_missed());
    // The program receives the resize late.
    term.written = Instant::now().checked_sub(10 * TAKEN_IN);
    term.resize(40, 24);
    draw(&mut term, 9);
    let lines = term.out_mut().0.lines();
    let kept: Vec<&String> = lines.iter().filter(|line| line.starts_with('w')).collect();
    assert!(kept.iter().copied().eq(&finished), "{lines:#?}");
}

/// As in tmux: of several sizes within a quarter of a second the terminal reports the first at once, the last
/// later.
#[test]
fn a_late_resize_event_loses_no_finished_line() {
    let finished: Vec<String> = (0..20).map(|n| format!("w{n} finished")).collect();
    SIZES.set(vec![(100, 24)]);
    let mut term = LiveTerminal::new(Out(Emulator::new(100, 24)), 100, 24, true)
        .with_probe(next_size)
        .with_late_sizes(Duration::from_mins(1));
    let draw = |term: &mut LiveTerminal<Out>| {
        term.draw(6, |area, buf| {
            for y in 0..area.height {
                let row = format!("{LIVE}{}", "~".repeat(usize::from(area.width) - 1));
                buf.set_string(0, y, row, Style::default());
            }
            Some(Position::new(1, 5))
        })
        .expect("in-memory writes succeed");
    };
    term.append(finished.iter().cloned().map(Line::from));
    draw(&mut term);
    for (resize_reported, real) in [(140, 40), (40, 140), (140, 60), (60, 60)] {
        term.out_mut().0.resize(resize_reported, 24);
        term.resize(resize_reported, 24);
        SIZES.set(vec![(resize_reported, 24)]);
        term.out_mut().0.resize(real, 24);
        draw(&mut term);
        assert!(!term.was_missed());
        // The terminal has long processed the output when the size is reported.
        term.written = term.written.and_then(|at| at.checked_sub(2 * TAKEN_IN));
        term.resize_reported = term.resize_reported.and_then(|at| at.checked_sub(4 * TAKEN_IN));
    }
    let lines = term.out_mut().0.lines();
    let kept: Vec<&String> = lines.iter().filter(|line| line.starts_with('w')).collect();
    assert!(kept.iter().copied().eq(&finished), "{lines:#?}");
}

/// Sizes that the terminal reports after a frame was drawn for the previous size: lines and rows of that
/// frame. The cursor is parked in the first row, because frames arrive by themselves, or because a size was
/// just reported.
fn play_untold(steps: &[((u16, u16), usize, Vec<u16>)], is_dragged: bool) -> Played {
    let mut term = LiveTerminal::new(Out(Emulator::new(80, 24)), 80, 24, true);
    // The region is at the end of the screen.
    term.append((0..40).map(|_| Line::default()));
    if is_dragged {
        term.resize(81, 24);
        term.out_mut().0.resize(81, 24);
    }
    let (mut finished, mut live, mut overflowed) = (Vec::new(), 0, false);
    let draw = |term: &mut LiveTerminal<Out>, rows: &[u16], mark: char| {
        term.park(!is_dragged);
        term.draw(rows.len() as u16, |area, buf| {
            for (y, columns) in rows.iter().enumerate().take(usize::from(area.height)) {
                let text = format!("{LIVE}{}", mark.to_string().repeat(usize::from(*columns)));
                buf.set_stringn(0, y as u16, text, usize::from(area.width), Style::default());
            }
            Some(Position::new(1, rows.len() as u16 - 1))
        })
        .expect("in-memory writes succeed");
    };
    for (n, (size, lines, rows)) in steps.iter().enumerate() {
        draw(&mut term, rows, '~');
        let shown: Vec<u16> = rows.iter().map(|columns| (columns + 1).min(term.width)).collect();
        overflowed |= overflows(&term.out.0, term.at.0, &shown, *size);
        term.out_mut().0.resize(size.0, size.1);
        let words: Vec<String> = (0..*lines)
            .map(|line| (0..=9 * line).fold(String::new(), |text, i| format!("{text}w{n:02}{line}{i:02} ")))
            .map(|line| line.trim_end().to_owned())
            .collect();
        finished.extend(words.clone());
        term.append(words.into_iter().map(Line::from));
        // One frame prints finished lines, and one only changes cells.
        draw(&mut term, rows, '~');
        draw(&mut term, rows, '=');
        term.resize(size.0, size.1);
        draw(&mut term, rows, '=');
        live = rows.len();
    }
    Played { lines: term.out_mut().0.lines(), finished, live, overflowed }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_size_at_any_time_keeps_each_finished_line_once(steps in proptest::collection::vec(step(9, 19), 1..30)) {
        let played = play(&steps);
        prop_assert_eq!(words(&played.lines), words(&played.finished), "{:#?}", played.lines);
    }

    #[test]
    fn a_parked_cursor_leaves_nothing_of_a_frame_for_an_old_size(
        steps in proptest::collection::vec(
            (
                (20u16..160, 10u16..40),
                0usize..3,
                proptest::collection::vec(prop_oneof![Just(0u16), 1u16..30, Just(400)], 1..9),
            ),
            1..10,
        ),
        is_dragged in any::<bool>(),
    ) {
        let played = play_untold(&steps, is_dragged);
        prop_assert_eq!(words(&played.lines), words(&played.finished), "{:#?}", played.lines);
        if !played.overflowed {
            let shown = played.lines.iter().filter(|line| line.contains(LIVE)).count();
            prop_assert!(shown <= played.live, "{:#?}", played.lines);
        }
    }

    #[test]
    fn a_caret_at_the_far_right_is_followed(
        steps in proptest::collection::vec((step(9, 200), step(9, 200), 20u16..200, 5u16..40), 1..12)
    ) {
        let draws = |step: &Step| matches!(step, Step::Draw(..));
        let steps: Vec<Step> = steps
            .into_iter()
            .filter(|(first, second, ..)| draws(first) && !matches!(second, Step::Resize(..)))
            .flat_map(|(first, second, width, height)| [first, second, Step::Resize(width, height), Step::Draw(vec![9], None)])
            .collect();
        let played = play(&steps);
        prop_assert_eq!(words(&played.lines), words(&played.finished), "{:#?}", played.lines);
    }

    #[test]
    fn nothing_of_an_older_frame_is_left(steps in proptest::collection::vec(step(4, 19), 1..30)) {
        let played = play(&steps);
        if !played.overflowed {
            let shown = played.lines.iter().filter(|line| line.contains([LIVE, '~'])).count();
            prop_assert!(shown <= played.live, "{:#?}", played.lines);
        }
    }
}
