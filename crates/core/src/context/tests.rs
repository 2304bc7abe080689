//! Random histories, with and without summaries, in windows of all sizes.

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::compaction::LEFT_OUT;
use super::*;
use crate::contract::content::ContentBlock;
use crate::contract::message::{Message, Role, ToolCall, Visibility};
use crate::contract::outline::Outline;
use crate::contract::spec::{ContextCompactionMode, ContextWindowPolicy};

fn sizes_of(messages: &[Message]) -> Sizes {
    Sizes::of(&History::from(messages.to_vec()))
}

fn asks(ids: &[String], text: &str) -> Message {
    let calls = ids.iter().map(|id| ToolCall::new(id.as_str(), "Bash", json!({"command": "ls"}))).collect();
    Message::assistant_with(vec![ContentBlock::text(text)], calls)
}

/// One turn of a conversation, including calls without results, late or unrelated results, and reused ids.
#[derive(Clone, Debug)]
enum Turn {
    Instruct,
    Message(usize),
    Internal,
    Answer(usize),
    Work { calls: usize, answered: usize, size: usize, late: bool, again: bool },
    Stray,
}

fn turn() -> impl Strategy<Value = Turn> {
    let size = prop_oneof![4 => 0_usize..400, 1 => 8_000_usize..12_000];
    prop_oneof![
        1 => Just(Turn::Instruct),
        3 => (0_usize..600).prop_map(Turn::Message),
        1 => Just(Turn::Internal),
        3 => (0_usize..900).prop_map(Turn::Answer),
        6 => (1_usize..4, 0_usize..4, size, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
            |(calls, left, size, late, again)| Turn::Work {
                calls,
                // Most calls are answered.
                answered: if left == 3 { calls.saturating_sub(1) } else { calls },
                size,
                late: late && left == 2,
                again,
            }
        ),
        1 => Just(Turn::Stray),
    ]
}

fn history(turns: &[Turn]) -> Vec<Message> {
    let mut messages = Vec::new();
    for (nth, turn) in turns.iter().enumerate() {
        let words = |size: usize| format!("{nth} {}", "word ".repeat(size / 5));
        match turn {
            Turn::Instruct => messages.push(Message::system(format!("instruction {nth}"))),
            Turn::Message(size) => messages.push(Message::user(words(*size))),
            Turn::Internal => {
                let mut message = Message::user("a reminder");
                message.visibility = Visibility::Internal;
                messages.push(message);
            }
            Turn::Answer(size) => messages.push(Message::assistant(words(*size))),
            Turn::Work { calls, answered, size, late, again } => {
                let id = |call: usize| if *again { format!("c{call}") } else { format!("c{nth}.{call}") };
                messages.push(asks(&(0..*calls).map(id).collect::<Vec<_>>(), &words(20)));
                if *late {
                    messages.push(Message::user("by the way"));
                }
                for call in 0..*answered {
                    messages.push(Message::tool(id(call), words(*size)));
                }
            }
            Turn::Stray => messages.push(Message::tool("nobody", "asked for this")),
        }
    }
    messages
}

fn unpaired(messages: &[Arc<Message>]) -> Option<String> {
    let mut rest = messages.iter();
    while let Some(message) = rest.next() {
        if message.role == Role::Tool {
            return Some(format!("a result without its call: {message:?}"));
        }
        let mut seen = HashSet::new();
        for call in message.tool_calls.iter().filter(|call| seen.insert(&call.id)) {
            let result = rest.next();
            if result.and_then(|m| m.tool_call_id.as_deref()) != Some(call.id.as_str()) {
                return Some(format!("a call without its result: {call:?}"));
            }
        }
    }
    None
}

/// A growing conversation that is sent at each step and compacted.
struct Thread {
    sizes: Sizes,
    marks: Marks,
    from: usize,
    summary: Option<String>,
}

impl Thread {
    fn request(&mut self, history: &[Message], limits: FitLimits) -> (Fit, Arc<Vec<Arc<Message>>>) {
        self.sizes.take_in(&History::from(history.to_vec()));
        let fit = fit(&self.sizes, self.from, self.marks, limits);
        self.marks = fit.marks;
        let short = |at: usize| Some(Arc::new(preview(&history[at], "Read /tmp/x.")));
        let messages = assemble(
            &History::from(history.to_vec()),
            &self.sizes,
            &fit,
            self.summary.as_deref(),
            &[],
            short,
        );
        (fit, messages)
    }

    fn compact(&mut self, history: &[Message], policy: &ContextWindowPolicy) {
        let config = CompactionConfig { min_savings_ratio: 0.0, ..CompactionConfig::default() };
        let before = self.summary.as_deref().map_or(0, |text| text.len() / 4);
        if let Ok(plan) =
            plan(&self.sizes, (self.from, before, self.marks.previewed), policy, &config, 50_000)
        {
            assert!(self.sizes.is_safe(plan.upto) && plan.upto <= history.len());
            self.from = plan.upto;
            self.summary = Some(format!("of {} messages", plan.upto));
        }
    }
}

/// The messages that every request must contain.
fn pinned(history: &[Message]) -> Vec<String> {
    let mut texts: Vec<String> =
        history.iter().take_while(|m| m.role == Role::System).map(Message::text).collect();
    let last = history.iter().rev().find(|m| m.role == Role::User && m.visibility == Visibility::All);
    texts.extend(last.map(Message::text));
    texts
}

fn is_answered(history: &[Message], at: usize, id: &str) -> bool {
    let later = &history[at + 1..];
    let asked_again =
        later.iter().position(|m| m.tool_calls.iter().any(|call| call.id == id)).unwrap_or(later.len());
    later[..asked_again].iter().any(|m| m.tool_call_id.as_deref() == Some(id))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn pinned_messages_stay_and_calls_keep_their_results(
        turns in prop::collection::vec(turn(), 1..18),
        room in prop_oneof![Just(0_usize), 100_usize..3000, 3000_usize..30_000],
        recent in 0_usize..12,
        compact_at in 1_usize..9,
        to_frontier in any::<bool>(),
    ) {
        let whole = history(&turns);
        let mode = if to_frontier {
            ContextCompactionMode::CompactToSafeFrontier
        } else {
            ContextCompactionMode::KeepRecentRawSuffix
        };
        let policy = ContextWindowPolicy { compaction_mode: mode, ..ContextWindowPolicy::default() };
        let limits = FitLimits { room, recent };
        let mut thread = Thread { sizes: Sizes::default(), marks: Marks::default(), from: 0, summary: None };
        for end in 1..=whole.len() {
            let history = &whole[..end];
            let (fit, messages) = thread.request(history, limits);
            prop_assert_eq!(unpaired(&messages), None);
            let texts: Vec<String> = messages.iter().map(|message| message.text()).collect();
            for text in pinned(history) {
                prop_assert!(texts.contains(&text), "{text:?} is lost of {texts:?}");
            }
            for (at, message) in history.iter().enumerate() {
                for call in &message.tool_calls {
                    prop_assert!(
                        is_answered(history, at, &call.id)
                            || messages.iter().any(|m| m.id == message.id),
                        "the pending call {} is lost", call.id
                    );
                }
            }
            let newest = history.len().saturating_sub(recent).max(thread.from);
            for message in &history[newest..] {
                let is_stray = message.role == Role::Tool && !messages.iter().any(|m| m.id == message.id)
                    && !thread.sizes.is_tidy();
                prop_assert!(is_stray || messages.iter().any(|m| m.id == message.id), "a recent message is lost");
            }
            if let Some(summary) = &thread.summary {
                prop_assert_eq!(messages.iter().filter(|m| is_summary(m)).count(), 1);
                prop_assert!(texts.iter().any(|text| text.contains(summary)));
            }
            if !fit.is_over && thread.sizes.is_tidy() {
                // Preview sizes are estimates; all other sums are exact.
                let real: usize = messages
                    .iter()
                    .filter(|m| !is_summary(m) && !m.text().starts_with('['))
                    .map(|message| estimate::message_tokens(message))
                    .sum();
                prop_assert!(real <= room + 40 * messages.len(), "{real} tokens in {room}");
            }
            if end % compact_at == 0 {
                thread.compact(history, &policy);
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_request_extends_the_previous_one_until_trimmed(
        turns in prop::collection::vec(turn(), 1..18),
        room in 1000_usize..20_000,
    ) {
        let whole = history(&turns);
        let limits = FitLimits { room, recent: 6 };
        let mut thread = Thread { sizes: Sizes::default(), marks: Marks::default(), from: 0, summary: None };
        let mut last: Option<(Fit, Arc<Vec<Arc<Message>>>)> = None;
        for end in 1..=whole.len() {
            let (fit, messages) = thread.request(&whole[..end], limits);
            if let Some((before, earlier)) = &last
                && before.marks == fit.marks
                && before.pinned == fit.pinned
                && thread.sizes.is_tidy()
            {
                let same = |a: &Message, b: &Message| (a.role, a.text()) == (b.role, b.text());
                prop_assert!(
                    earlier.len() <= messages.len() && earlier.iter().zip(messages.iter()).all(|(a, b)| same(a, b)),
                    "{earlier:#?}\n{messages:#?}"
                );
            }
            // A model is asked once each call has its result.
            last = thread.sizes.is_tidy().then_some((fit, messages));
        }
    }
}

/// The part of a conversation that a starting process loads, in chunks of `step` messages.
fn loaded(whole: &[Message], floor: usize, limits: FitLimits, step: usize) -> (History, Sizes) {
    let outline = Outline::of(whole);
    let apart = outline.needed().into_iter().map(|at| (at, whole[at].clone())).collect();
    let mut history = History::part(outline, whole.len(), Vec::new(), apart);
    let mut sizes = Sizes::of(&history);
    while !sizes.suffices(floor, limits) {
        let base = history.base();
        history.prepend(whole[base.saturating_sub(step)..base].to_vec());
        sizes.take_in(&history);
    }
    (history, sizes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_the_same_with_only_the_tail_loaded(
        turns in prop::collection::vec(turn(), 1..24),
        room in prop_oneof![Just(0_usize), 100_usize..3000, 3000_usize..30_000, Just(usize::MAX)],
        recent in 0_usize..12,
        compact_at in 1_usize..9,
        restart_at in 1_usize..9,
        step in 1_usize..9,
    ) {
        let whole = history(&turns);
        let policy = ContextWindowPolicy::default();
        let limits = FitLimits { room, recent };
        let mut thread = Thread { sizes: Sizes::default(), marks: Marks::default(), from: 0, summary: None };
        // A process that started earlier and continues with its state.
        let mut old: Option<(History, Sizes)> = None;
        for end in 1..=whole.len() {
            let all = &whole[..end];
            let marks = thread.marks;
            let (fit_of_all, sent_of_all) = thread.request(all, limits);
            let floor = thread.from.max(marks.cut);
            let (history, sizes) = match old.take().filter(|_| end % restart_at != 0) {
                Some((mut history, mut sizes)) => {
                    history.push(all[end - 1].clone());
                    sizes.take_in(&history);
                    while !sizes.suffices(floor, limits) {
                        let base = history.base();
                        history.prepend(all[base.saturating_sub(step)..base].to_vec());
                        sizes.take_in(&history);
                    }
                    (history, sizes)
                }
                None => loaded(all, floor, limits, step),
            };
            let fit = fit(&sizes, thread.from, marks, limits);
            let short = |at: usize| Some(Arc::new(preview(&all[at], "Read /tmp/x.")));
            let sent = assemble(&history, &sizes, &fit, thread.summary.as_deref(), &[], short);
            // A result made up for an unanswered call has a new id each time.
            let texts_of = |messages: &[Arc<Message>]| -> Vec<_> {
                let one = |m: &Arc<Message>| (m.role, m.content.clone(), m.tool_calls.clone(), m.tool_call_id.clone());
                messages.iter().map(one).collect()
            };
            prop_assert_eq!(
                texts_of(&sent), texts_of(&sent_of_all), "{:?} is not {:?}, from {}", fit, fit_of_all, history.base()
            );
            prop_assert_eq!((fit.marks, fit.left_out), (fit_of_all.marks, fit_of_all.left_out));
            let mut history = history;
            history.forget_before(fit.marks.cut);
            old = Some((history, sizes));
            if end % compact_at == 0 {
                thread.compact(all, &policy);
            }
        }
    }

    #[test]
    fn a_plan_is_the_same_with_only_the_tail_loaded(
        turns in prop::collection::vec(turn(), 1..24),
        room in prop_oneof![100_usize..600, 100_usize..20_000],
        from in 0_usize..40,
        spare in 4_usize..9,
    ) {
        let whole = history(&turns);
        let all = sizes_of(&whole);
        let from = all.safe_before(from.min(whole.len()));
        let config = CompactionConfig { min_savings_ratio: 0.0, ..CompactionConfig::default() };
        let of_all = plan(&all, (from, 500, 0), &policy(), &config, room);
        // The messages from there on that fit the summariser, and some more.
        let read = |upto: usize| (from..upto).map(|at| read_tokens(all.at(at, usize::MAX), room)).sum::<usize>();
        let upto = (from..whole.len()).find(|upto| read(*upto) > room);
        let upto = upto.map_or(whole.len(), |upto| (upto + 4 + spare).min(whole.len()));
        let part = History::part(Outline::of(&whole), from, whole[from..upto].to_vec(), std::collections::BTreeMap::new());
        let of_part = plan(&Sizes::of(&part), (from, 500, 0), &policy(), &config, room);
        prop_assert_eq!(of_all, of_part);
    }
}

fn talk(count: usize, size: usize) -> Vec<Message> {
    (0..count)
        .map(|n| {
            let text = format!("{n} {}", "x".repeat(size));
            if n % 2 == 0 { Message::user(text) } else { Message::assistant(text) }
        })
        .collect()
}

#[test]
fn the_newest_messages_are_taken_while_they_fit() {
    // 100 messages of about 104 tokens; trimming leaves an eighth of the room.
    let messages = talk(100, 398);
    let sizes = sizes_of(&messages);
    let limits = FitLimits { room: 4000, recent: 4 };
    let fit = fit(&sizes, 0, Marks::default(), limits);
    assert!((3300..=3500).contains(&fit.tokens), "{fit:?}");
    assert_eq!(fit.left_out, fit.marks.cut);
    let one = sizes.at(99, 0);
    assert!(fit.tokens + one > 3500, "one more would still fit: {fit:?}");
    // The trim position is kept while it fits.
    let mut marks = fit.marks;
    let mut cuts = 0;
    let mut grown = messages.clone();
    for nth in 0..40 {
        grown.push(Message::user(format!("{nth} {}", "y".repeat(398))));
        let next = super::fit(&sizes_of(&grown), 0, marks, limits);
        cuts += usize::from(next.marks != marks);
        marks = next.marks;
        assert!(next.tokens <= 4000);
    }
    assert!((5..=12).contains(&cuts), "{cuts} trims in 40 steps");
}

#[test]
fn sizes_include_images_and_exclude_user_only_messages() {
    use crate::contract::image::{ImageFormat, ImageRef};
    let hash = "0".repeat(64);
    let image =
        ImageRef { hash, format: ImageFormat::Png, width: 8, height: 8, bytes: 64, name: "a.png".into() };
    let mut shown = Message::user("look");
    shown.content.push(ContentBlock::StoredImage(image));
    let mut own = Message::user("only on the screen");
    own.visibility = Visibility::Person;
    let flags = |sizes: &Sizes| (sizes.has_images(), sizes.has_user_only());

    let mut history = History::from(vec![Message::user("a"), Message::assistant("b")]);
    let mut sizes = Sizes::of(&history);
    assert_eq!(flags(&sizes), (false, false));
    history.push(shown.clone());
    sizes.take_in(&history);
    assert_eq!(flags(&sizes), (true, false), "appended");

    let whole = [shown, own, Message::assistant("c")];
    let apart = whole[..2].iter().cloned().enumerate().collect();
    let history = History::part(Outline::of(&whole), 2, vec![whole[2].clone()], apart);
    assert_eq!(flags(&Sizes::of(&history)), (true, true), "loaded from before the tail");
}

#[test]
fn the_minimum_of_recent_messages_always_stays() {
    let messages = talk(30, 4000);
    let fit = fit(&sizes_of(&messages), 0, Marks::default(), FitLimits { room: 10, recent: 7 });
    assert!(fit.is_over);
    assert_eq!(fit.marks.cut, 23);
}

#[test]
fn a_request_with_the_whole_conversation_shares_its_list() {
    let whole = FitLimits { room: 60_000, recent: 4 };
    let list = |messages: Vec<Message>, summary: Option<&str>, limits: FitLimits| {
        let history = History::from(messages);
        let sizes = Sizes::of(&history);
        let fit = fit(&sizes, 0, Marks::default(), limits);
        let sent = assemble(&history, &sizes, &fit, summary, &[], |_| Some(Arc::new(Message::user("short"))));
        (Arc::ptr_eq(&sent, &history.shared()), sent)
    };
    let talk = || [vec![Message::system("be brief")], talk(6, 10)].concat();
    let (is_shared, sent) = list(talk(), None, whole);
    assert!(is_shared);
    assert_eq!(sent.len(), talk().len());

    assert!(!list(talk(), Some("of nothing"), whole).0, "a summary comes before it");
    assert!(!list(talk(), None, FitLimits { room: 40, recent: 1 }).0, "its start is omitted");
    let unpaired = [talk(), vec![Message::tool("nobody", "a result")]].concat();
    assert!(!list(unpaired, None, whole).0, "a result has no call");
    let big = vec![asks(&["a".into()], ""), Message::tool("a", "line of a log\n".repeat(3000))];
    let (is_shared, sent) = list([big, talk()].concat(), None, whole);
    assert!(!is_shared && sent[1].text() == "short", "a result is a preview");
}

#[test]
fn the_latest_request_is_kept_through_a_long_run() {
    let mut messages =
        vec![Message::user("hello"), Message::assistant("hi"), Message::user("build the house")];
    for n in 0..60 {
        messages.push(asks(&[format!("c{n}")], "next"));
        messages.push(Message::tool(format!("c{n}"), "x".repeat(400)));
    }
    let sizes = sizes_of(&messages);
    let fit = fit(&sizes, 0, Marks::default(), FitLimits { room: 2000, recent: 4 });
    assert_eq!(fit.pinned, [2]);
    let sent = assemble(&History::from(messages.clone()), &sizes, &fit, None, &[], |_| None);
    assert_eq!(sent[0].text(), "build the house");
    assert_eq!(
        sent[1].text(),
        format!("[{} older messages of this conversation were left out here.]", fit.left_out)
    );
    assert_eq!(fit.left_out + sent.len() - 1, messages.len());
}

#[test]
fn large_results_are_whole_while_new_and_previews_later() {
    let big = || "line of a log\n".repeat(3000);
    let mut messages = vec![Message::user("look"), asks(&["a".into()], ""), Message::tool("a", big())];
    let limits = FitLimits { room: 60_000, recent: 4 };
    let new = fit(&sizes_of(&messages), 0, Marks::default(), limits);
    assert_eq!(new.marks.previewed, 0, "the model has not read it yet");
    messages.extend(talk(6, 10));
    let sizes = sizes_of(&messages);
    let old = fit(&sizes, 0, new.marks, limits);
    assert_eq!(old.marks, Marks { cut: 0, previewed: 5 });
    assert!(old.tokens < 700, "{old:?}");
    let sent = assemble(&History::from(messages.clone()), &sizes, &old, None, &[], |at| {
        Some(Arc::new(preview(&messages[at], "Read /x.")))
    });
    assert!(sent[2].text().contains("Read /x.]\n"));
    // Without room even a new result becomes a preview.
    let tight = fit(&sizes_of(&messages[..3]), 0, Marks::default(), FitLimits { room: 2000, recent: 4 });
    assert!(!tight.is_over && tight.marks.previewed == 3, "{tight:?}");
}

fn policy() -> ContextWindowPolicy {
    ContextWindowPolicy::default()
}

#[test]
fn a_plan_leaves_the_two_newest_and_pending_calls() {
    let mut messages = talk(40, 800);
    let config = CompactionConfig::default();
    let made = plan(&sizes_of(&messages), (0, 0, 0), &policy(), &config, usize::MAX).unwrap();
    assert_eq!((made.from, made.upto), (0, 38));
    let frontier =
        ContextWindowPolicy { compaction_mode: ContextCompactionMode::CompactToSafeFrontier, ..policy() };
    let made = plan(&sizes_of(&messages), (0, 0, 0), &frontier, &config, usize::MAX).unwrap();
    assert_eq!(made.upto, 40);
    // A pending call is not finished, nor are the messages after it.
    messages.push(asks(&["w".into(), "v".into()], ""));
    messages.push(Message::tool("v", "done"));
    let made = plan(&sizes_of(&messages), (0, 0, 0), &frontier, &config, usize::MAX).unwrap();
    assert_eq!(made.upto, 40);
    // An existing summary counts, and the messages it replaces are not read again.
    let made = plan(&sizes_of(&messages), (10, 500, 0), &policy(), &config, usize::MAX).unwrap();
    assert_eq!((made.from, made.upto), (10, 40));
    let sizes = sizes_of(&messages);
    assert_eq!(made.tokens, 500 + sizes.sum(10..40, 0) - sizes.at(38, 0), "the last request stays");
}

#[test]
fn messages_beyond_the_summarisers_window_are_left_for_later() {
    let messages = talk(400, 800);
    let made =
        plan(&sizes_of(&messages), (0, 0, 0), &policy(), &CompactionConfig::default(), 10_000).unwrap();
    assert!((45..=50).contains(&made.upto), "{made:?}");
}

#[test]
fn a_message_too_large_to_summarise_is_excerpted() {
    let mut messages = talk(6, 800);
    messages.insert(1, Message::user(format!("FIRST {} LAST", "ä".repeat(100_000))));
    let made =
        plan(&sizes_of(&messages), (0, 0, 0), &policy(), &CompactionConfig::default(), 10_000).unwrap();
    assert_eq!((made.from, made.upto), (0, 5), "it stops nothing");
    let text = prompt(
        History::from(messages[..5].to_vec()).tail(),
        None,
        None,
        &CompactionConfig::default(),
        10_000,
    );
    assert!((19_000..24_000).contains(&text.len()), "{}", text.len());
    let notice = "characters are left out here: the message is too large to be read at once]";
    assert!(
        text.contains("User: FIRST ää") && text.contains(notice) && text.contains("ä LAST\n\nAgent: 1 x")
    );
    assert_eq!(text.matches(notice).count(), 1);
}

#[test]
fn a_small_conversation_is_not_compacted() {
    let config = CompactionConfig::default();
    let small = sizes_of(&talk(6, 400));
    assert!(matches!(plan(&small, (0, 0, 0), &policy(), &config, 9999), Err(NoGain::TooLittle { .. })));
    assert_eq!(plan(&sizes_of(&talk(2, 9000)), (0, 0, 0), &policy(), &config, 9999), Err(NoGain::Nothing));
    let made = CompactionPlan { from: 0, upto: 9, tokens: 4000 };
    assert_eq!(accept(&made, 1000, &config), Ok(3000));
    assert_eq!(
        accept(&made, 2900, &config),
        Err(NoGain::TooLittle { gain: 1100, tokens: 4000 }),
        "the ratio"
    );
    assert_eq!(
        accept(&made, 2800, &config),
        Err(NoGain::TooLittle { gain: 1200, tokens: 4000 }),
        "reaching a ratio does not exceed it"
    );
    assert_eq!(accept(&made, 2799, &config), Ok(1201));
    let made = CompactionPlan { tokens: 1500, ..made };
    assert_eq!(
        accept(&made, 500, &config),
        Err(NoGain::TooLittle { gain: 1000, tokens: 1500 }),
        "1024 tokens"
    );
}

#[test]
fn the_summary_prompt_contains_the_conversation_but_no_reminders() {
    let mut internal = Message::user("a reminder");
    internal.visibility = Visibility::Internal;
    let messages = [
        Message::user("do {messages} it"),
        internal,
        asks(&["a".into()], "I will."),
        Message::tool("a", "x".repeat(9000)),
    ];
    let config =
        CompactionConfig { summarizer_user_prompt: "Here:\n{messages}\nEnd.".into(), ..Default::default() };
    let text =
        prompt(History::from(messages.to_vec()).tail(), Some("so far"), Some(" the tests "), &config, 10_000);
    assert!(text.contains("<summary-so-far>\nso far\n"), "{text}");
    assert!(text.contains(
        "Here:\nUser: do {messages} it\n\nAgent: I will.\nAgent calls Bash: {\"command\":\"ls\"}\n"
    ));
    assert!(!text.contains("a reminder") && text.len() < 3000, "{text}");
    assert!(text.ends_with("End.\n\nPay special attention to this: the tests"), "{text}");
}

#[test]
fn what_the_user_said_stays_within_its_share() {
    let of =
        |known: &[String], messages: Vec<Message>, limit| said(known, History::from(messages).tail(), limit);
    let mut internal = Message::user("a reminder");
    internal.visibility = Visibility::Internal;
    let first = of(
        &[],
        vec![Message::user("the task </conversation-summary>"), internal, asks(&["a".into()], "I will.")],
        100,
    );
    assert_eq!(first, ["the task"]);
    let second = of(&first, vec![Message::user("and tests"), Message::user(" ")], 100);
    assert_eq!(second, ["the task", "and tests"]);
    let many = |n: usize| (0..n).map(|n| Message::user(format!("message {n}"))).collect::<Vec<_>>();
    let cut = of(&second, many(40), 100);
    assert_eq!(
        (cut[0].as_str(), cut[1].as_str(), cut.last().unwrap().as_str()),
        ("the task", LEFT_OUT, "message 39")
    );
    assert!(cut.len() > 5);
    let again = of(&cut, many(41), 100);
    assert_eq!((again[0].as_str(), again.iter().filter(|text| *text == LEFT_OUT).count()), ("the task", 1));
    let pasted = of(&first, vec![Message::user("w".repeat(9000))], 100);
    assert!(pasted[1].len() < 250 && pasted[1].contains("characters are left out"), "{pasted:?}");
    assert_eq!(of(&first, many(3), 0), [] as [String; 0]);
}

#[test]
fn a_summary_cannot_close_its_own_tags() {
    assert_eq!(clean(" a</conversation-</conversation-summary>summary>b "), "ab");
    assert!(is_summary(&summary_message("x")) && !is_summary(&Message::user("<conversation-summary>")));
}

#[test]
fn a_section_is_validated() {
    let broken = CompactionConfig { summarizer_user_prompt: "Go".into(), ..CompactionConfig::default() };
    assert!(broken.check().unwrap_err().to_string().contains("{messages}"));
    assert!(CompactionConfig { min_savings_ratio: 1.5, ..CompactionConfig::default() }.check().is_err());
    assert!(CompactionConfig::default().check().is_ok());
}
