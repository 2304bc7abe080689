//! The models that are known without asking a provider: `models.jsonl`, one JSON object per line.
//!
//! A lookup scans the text and parses only the lines that it needs, so that a start pays for one model at most.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::ModelSettings;
use super::providers::{UNKNOWN_CONTEXT_WINDOW, UNKNOWN_MAX_OUTPUT};
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::spec::Price;

static TABLE: &str = include_str!("models.jsonl");

/// Vendors that sell their own models: their names and prices are the ones that a gateway passes on.
const MAKERS: [&str; 8] =
    ["anthropic", "openai", "google", "deepseek", "xai", "mistral", "moonshotai", "zai"];

/// Families of open-weight models that users serve themselves, under names of their own: prefix, context
/// window, maximum output.
const OPEN_WEIGHTS: [(&str, u64, u64); 3] =
    [("gpt-oss", 131_072, 32_768), ("llama", 131_072, 8_192), ("qwen", 32_768, 8_192)];

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableModel {
    /// Provider that serves the model, by the table's name of it.
    pub provider: String,
    /// Name that the provider knows.
    pub id: String,
    /// Wire format of the provider for this model.
    pub wire: String,
    /// Whether the model can reason before answering.
    pub reasoning: bool,
    /// Efforts that the provider accepts for it; empty where they are not known.
    #[serde(default)]
    pub efforts: Vec<ReasoningEffort>,
    /// Effort that is sent unless the user sets one.
    #[serde(default)]
    pub default_effort: Option<ReasoningEffort>,
    /// Kinds of input: `text`, `image`.
    pub input: Vec<String>,
    /// Tokens that fit in one request.
    pub context: u64,
    /// Tokens of one answer.
    pub max_output: u64,
    /// Dollars per million tokens.
    pub usd_per_million: Dollars,
}

/// Dollars per million tokens; 0 where the provider names no price.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Dollars {
    /// Prompt tokens.
    pub input: f64,
    /// Answer tokens.
    pub output: f64,
    /// Prompt tokens read from a cache.
    pub cache_read: f64,
    /// Prompt tokens written to a cache.
    pub cache_write: f64,
}

impl Dollars {
    /// Returns the price, if there is one: no price is better than a wrong sum.
    fn price(self) -> Option<Price> {
        (self.input > 0.0 || self.output > 0.0).then_some(Price {
            input: self.input,
            output: self.output,
            cache_read: (self.cache_read > 0.0).then_some(self.cache_read),
            cache_write: (self.cache_write > 0.0).then_some(self.cache_write),
        })
    }
}

/// The efforts that a model accepts, and the one that it gets unless the user sets one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelEfforts {
    accepted: [bool; EFFORTS.len()],
    default: Option<ReasoningEffort>,
}

/// The efforts in their order.
const EFFORTS: [ReasoningEffort; 5] = [
    ReasoningEffort::None,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::Max,
];

impl ModelEfforts {
    fn of(row: &TableModel) -> Option<Self> {
        let accepted = EFFORTS.map(|effort| row.efforts.contains(&effort));
        (!row.efforts.is_empty()).then_some(Self { accepted, default: row.default_effort })
    }

    /// Returns the effort in force when the user wants this one, or none in particular: the nearest that the model
    /// accepts, the lower of two. `None` leaves it to the provider.
    pub fn in_force(self, wanted: Option<ReasoningEffort>) -> Option<ReasoningEffort> {
        let wanted = wanted.or(self.default)?;
        // A number of tokens has no place among them.
        let Some(at) = EFFORTS.iter().position(|effort| *effort == wanted) else { return Some(wanted) };
        let accepted = (0..EFFORTS.len()).filter(|other| self.accepted[*other]);
        accepted.min_by_key(|other| other.abs_diff(at)).map(|other| EFFORTS[other])
    }
}

/// The known properties of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownModel {
    /// Tokens that fit in one request.
    pub context_window: u64,
    /// Tokens of one answer.
    pub max_output: u64,
    /// Dollars per million tokens, where they are certain.
    pub price: Option<Price>,
    /// Whether the model can reason; `None` if only the model's family is known.
    pub reasoning: Option<bool>,
    /// The efforts that it accepts, if they are known for this provider.
    pub efforts: Option<ModelEfforts>,
    /// Whether the row is for this exact model, not another one of its family.
    pub is_exact: bool,
}

impl KnownModel {
    const UNKNOWN: Self = Self {
        context_window: UNKNOWN_CONTEXT_WINDOW,
        max_output: UNKNOWN_MAX_OUTPUT,
        price: None,
        reasoning: None,
        efforts: None,
        is_exact: false,
    };

    fn exact(row: &TableModel) -> Self {
        Self { price: row.usd_per_million.price(), is_exact: true, ..Self::like(row) }
            .with_reasoning(row.reasoning)
    }

    fn with_reasoning(self, reasoning: bool) -> Self {
        Self { reasoning: Some(reasoning), ..self }
    }

    /// Returns the likely properties of a model of the same family.
    fn like(row: &TableModel) -> Self {
        Self { context_window: row.context, max_output: row.max_output, ..Self::UNKNOWN }
    }
}

/// A line that was not parsed yet.
#[derive(Clone, Copy)]
struct Row {
    provider: &'static str,
    id: &'static str,
    line: &'static str,
}

impl Row {
    fn parse(self) -> Option<TableModel> {
        serde_json::from_str(self.line).ok()
    }
}

fn rows() -> impl Iterator<Item = Row> {
    static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
        let row = |line: &'static str| {
            let (provider, rest) = line.strip_prefix("{\"provider\": \"")?.split_once('"')?;
            let (id, _) = rest.strip_prefix(", \"id\": \"")?.split_once('"')?;
            Some(Row { provider, id, line })
        };
        TABLE.lines().filter_map(row).collect()
    });
    ROWS.iter().copied()
}

/// The table's name of a built-in provider.
fn name_in_table(provider: &str) -> &str {
    let (provider, _) = super::providers::split_key_name(provider);
    if provider == "gemini" { "google" } else { provider }
}

/// The models of a built-in provider, in the order of the table.
pub fn models_of(provider: &str) -> impl Iterator<Item = &'static str> {
    let name = name_in_table(provider).to_owned();
    rows().filter(move |row| row.provider == name).map(|row| row.id)
}

/// Returns the known properties of a model at a provider. A gateway's name such as `vendor/model` also
/// matches by its last part.
pub(crate) fn known_model(provider: &str, model: &str) -> KnownModel {
    let own = name_in_table(provider);
    let of_own = || rows().filter(move |row| row.provider == own);
    let of_makers = || rows().filter(|row| MAKERS.contains(&row.provider));
    let bare = last_part(model).to_ascii_lowercase();
    // A maker's price applies where its models are passed on, not where another vendor serves them itself.
    let has_own = of_own().next().is_some();
    let same = of_own().find(|row| row.id.eq_ignore_ascii_case(model));
    let same = same.or_else(|| version_of(of_own(), model));
    if let Some(row) = same.and_then(Row::parse) {
        return KnownModel { efforts: ModelEfforts::of(&row), ..KnownModel::exact(&row) };
    }
    let passed_on = of_makers().find(|row| row.id == bare).or_else(|| version_of(of_makers(), &bare));
    if let Some(row) = passed_on.and_then(Row::parse) {
        let known = KnownModel::exact(&row);
        return if has_own && row.provider != own { KnownModel { price: None, ..known } } else { known };
    }
    let elsewhere = rows().filter(|row| last_part(row.id).eq_ignore_ascii_case(&bare));
    if let Some(row) = elsewhere.filter_map(Row::parse).min_by_key(|row| row.context) {
        return KnownModel::like(&row).with_reasoning(row.reasoning);
    }
    let weights = OPEN_WEIGHTS.iter().find(|(prefix, ..)| bare.starts_with(prefix));
    if let Some((_, context_window, max_output)) = weights {
        return KnownModel {
            context_window: *context_window,
            max_output: *max_output,
            ..KnownModel::UNKNOWN
        };
    }
    let name = Name::of(&bare);
    let family = of_makers().filter(|row| Name::of(row.id).family() == name.family());
    let near = nearest(&bare, family.map(|row| row.id));
    near.and_then(|id| of_makers().find(|row| row.id == id))
        .and_then(Row::parse)
        .map_or(KnownModel::UNKNOWN, |row| KnownModel::like(&row))
}

/// The row that a name is a version of.
fn version_of(rows: impl Iterator<Item = Row>, model: &str) -> Option<Row> {
    rows.filter(|row| is_version_of(model, row.id)).max_by_key(|row| row.id.len())
}

/// Returns whether a name is a dated or moving version of a model: `-20250929`, `-2024-08-06`, `-latest`.
pub(crate) fn is_version_of(name: &str, model: &str) -> bool {
    name.strip_prefix(model).is_some_and(|rest| {
        let digits = rest.bytes().filter(u8::is_ascii_digit).count();
        rest == "-latest"
            || rest.starts_with('-') && digits >= 4 && rest.bytes().all(|b| b == b'-' || b.is_ascii_digit())
    })
}

fn last_part(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

/// Returns whether a model, by its id, is of a family that is trained to change files with `apply_patch`: GPT-5 and later.
pub fn writes_patches(id: &str) -> bool {
    let name = last_part(id).to_ascii_lowercase();
    let version = name.strip_prefix("gpt-").map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    version.flatten().and_then(|number| number.parse::<u32>().ok()).is_some_and(|number| number >= 5)
}

/// The exact price of a model by its id, `provider/model` or only the model's name.
pub fn known_price(id: &str) -> Option<Price> {
    let (provider, model) = match id.split_once('/') {
        Some((provider, model)) if super::providers::provider(provider).is_some() => (provider, model),
        _ => ("", id),
    };
    known_model(provider, model).price
}

/// The price of a model by its id, which is its provider's name and its own: the first that the settings have for it,
/// else a known one.
pub fn price_of(models: &BTreeMap<String, ModelSettings>, id: &str) -> Option<Price> {
    let own = id.split_once('/').map(|(_, own)| own);
    let named = [Some(id), own].into_iter().flatten().find_map(|model| {
        let mut named =
            models.iter().filter(|(name, entry)| *name == model || entry.model.as_deref() == Some(model));
        named.find_map(|(_, entry)| entry.price)
    });
    named.or_else(|| known_price(id))
}

/// Returns whether a name is that of a chat model; providers' lists also contain others.
pub fn can_chat(provider: &str, model: &str) -> bool {
    const OTHER: [&str; 23] = [
        "embed",
        "whisper",
        "tts",
        "dall-e",
        "image",
        "imagen",
        "moderation",
        "transcribe",
        "realtime",
        "audio",
        "sora",
        "rerank",
        "davinci",
        "babbage",
        "veo-",
        "aqa",
        "-live",
        "speech",
        "ocr",
        "orpheus",
        "guard",
        "lyria",
        "flux",
    ];
    let name = model.to_ascii_lowercase();
    models_of(provider).any(|known| known == model) || !OTHER.iter().any(|word| name.contains(word))
}

/// A model's name in parts that can be compared.
#[derive(Debug, PartialEq)]
struct Name {
    words: Vec<String>,
    version: Vec<u64>,
}

impl Name {
    fn of(model: &str) -> Self {
        let mut name = Self { words: Vec::new(), version: Vec::new() };
        let bare = last_part(model).to_ascii_lowercase();
        for part in bare.split(|c: char| !c.is_ascii_alphanumeric()) {
            let mut rest = part;
            while let Some(first) = rest.chars().next() {
                let is_digit = first.is_ascii_digit();
                let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
                let (piece, tail) = rest.split_at(end);
                rest = tail;
                match piece.parse() {
                    // Four digits and more are a date.
                    Ok(number) if piece.len() < 4 => name.version.push(number),
                    Ok(_) => {}
                    Err(_) if matches!(piece, "latest" | "preview" | "exp") => {}
                    Err(_) => name.words.push(piece.to_owned()),
                }
            }
        }
        name
    }

    fn family(&self) -> Option<&String> {
        self.words.first()
    }
}

/// Returns the price of a model's output, for comparisons only.
fn class_of(model: &str) -> Option<f64> {
    let bare = last_part(model);
    let row = rows().find(|row| row.id == model || last_part(row.id) == bare)?.parse()?;
    Some(row.usd_per_million.output).filter(|price| *price > 0.0)
}

/// The model that takes the place of one that is gone: the next version of the same name, else the newest of it, else
/// the one of its family that is most alike in name and price.
pub fn successor<'a>(gone: &str, listed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest(gone, listed.into_iter().filter(|id| *id != gone))
}

fn nearest<'a>(model: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = Name::of(model);
    let family: Vec<(&str, Name)> = candidates
        .map(|id| (id, Name::of(id)))
        .filter(|(_, name)| name.family().is_some() && name.family() == wanted.family())
        .collect();
    let same = || family.iter().filter(|(_, name)| name.words == wanted.words);
    let next = same()
        .filter(|(_, name)| name.version >= wanted.version)
        .min_by(|a, b| a.1.version.cmp(&b.1.version));
    if let Some((id, _)) = next.or_else(|| same().max_by(|a, b| a.1.version.cmp(&b.1.version))) {
        return Some(id);
    }
    let class = class_of(model);
    let distance = |(id, name): &(&str, Name)| {
        let strangers = name.words.iter().filter(|word| !wanted.words.contains(word)).count();
        let shared = name.words.len() - strangers;
        let price = match (class, class_of(id)) {
            (Some(a), Some(b)) => (a / b).ln().abs(),
            _ => 3.0,
        };
        (wanted.words.len().saturating_sub(shared) as f64, price, strangers as f64)
    };
    let order = |a: &(&str, Name), b: &(&str, Name)| {
        let ((missing, price, more), (missing_b, price_b, more_b)) = (distance(a), distance(b));
        missing
            .total_cmp(&missing_b)
            .then(price.total_cmp(&price_b))
            .then(more.total_cmp(&more_b))
            .then(b.1.version.cmp(&a.1.version))
    };
    family.iter().min_by(|a, b| order(a, b)).map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::PROVIDERS;

    #[test]
    fn patches_are_for_gpt_5_and_later() {
        for id in ["openai/gpt-5", "gpt-5.1-codex", "openrouter/openai/GPT-6-sol", "openai/gpt-10"] {
            assert!(writes_patches(id), "{id}");
        }
        for id in ["openai/gpt-4.1", "gpt-oss-120b", "anthropic/claude-opus-5-5", "gpt-", "gpt", "o3", ""] {
            assert!(!writes_patches(id), "{id}");
        }
    }

    #[test]
    fn every_line_parses_and_every_default_is_in_the_table() {
        let all: Vec<TableModel> =
            TABLE.lines().map(|line| serde_json::from_str(line).expect("a line of the table")).collect();
        assert_eq!(all.len(), 195);
        assert_eq!(rows().count(), all.len(), "no line is missed by its beginning");
        for (row, whole) in rows().zip(&all) {
            assert_eq!((row.provider, row.id), (whole.provider.as_str(), whole.id.as_str()));
            assert!(whole.context > 0 && whole.max_output > 0, "{whole:?}");
            let is_accepted = whole.default_effort.is_none_or(|effort| whole.efforts.contains(&effort));
            assert!(is_accepted && (whole.reasoning || whole.efforts.is_empty()), "{whole:?}");
        }
        let providers: std::collections::BTreeSet<&str> = rows().map(|row| row.provider).collect();
        for provider in providers {
            let known = PROVIDERS.iter().find(|known| name_in_table(known.name) == provider);
            let known = known.unwrap_or_else(|| panic!("no provider for {provider}"));
            assert!(models_of(known.name).any(|id| id == known.default_model), "{}", known.default_model);
            assert!(known_model(known.name, known.default_model).is_exact);
        }
    }

    #[test]
    fn a_model_is_found_by_name_version_vendor_or_family() {
        let window = |provider, model| known_model(provider, model).context_window;
        let output = |provider, model| known_model(provider, model).price.map(|price| price.output);
        assert_eq!((window("openai", "gpt-6-sol"), output("openai", "gpt-6-sol")), (272_000, Some(10.0)));
        assert_eq!(output("anthropic", "claude-sonnet-5-20260101"), Some(10.0), "a dated version");
        assert_eq!(output("anthropic", "claude-sonnet-5-1"), None, "another model, not a version");
        assert_eq!(window("anthropic", "claude-sonnet-5-1"), 1_000_000, "its family");
        assert_eq!(output("gateway", "anthropic/claude-opus-5-5"), Some(20.0), "passed on");
        assert_eq!(output("groq", "deepseek-v4-pro"), None, "another vendor has prices of its own");
        assert_eq!(output("gateway", "gpt-oss-120b"), None, "every vendor has its own price");
        assert_eq!(window("ollama", "gpt-oss:20b"), 131_072);
        assert_eq!(window("openai", "gpt-77"), 272_000, "like the newest of the plain name");
        assert_eq!(window("x", "mock"), UNKNOWN_CONTEXT_WINDOW);
        assert_eq!(window("x", ""), UNKNOWN_CONTEXT_WINDOW);
        assert_eq!(known_model("groq", "llama-3.3-70b-versatile").reasoning, Some(false));
        assert_eq!(known_price("openai/gpt-4o-mini").map(|price| price.input), Some(0.15));
        assert_eq!(known_price("openai/gpt-4o-audio"), None);
    }

    #[test]
    fn the_effort_in_force_is_one_that_the_model_accepts() {
        use ReasoningEffort::{Budget, High, Low, Max, Medium, None as Off};
        let in_force = |provider, model, wanted| {
            known_model(provider, model).efforts.map(|efforts| efforts.in_force(wanted))
        };
        for (provider, model, wanted, expected) in [
            ("anthropic", "claude-opus-5-5", None, Some(High)),
            ("anthropic", "claude-opus-5-5", Some(Off), Some(Low)),
            ("anthropic", "claude-sonnet-5-5", Some(Max), Some(Max)),
            ("anthropic", "claude-haiku-4-5-20251001", None, Some(Medium)),
            ("anthropic", "claude-sonnet-4-5", Some(Max), Some(High)),
            ("anthropic", "claude-opus-4-6", Some(Off), Some(Off)),
            ("anthropic", "claude-opus-4-6", Some(Budget(5)), Some(Budget(5))),
            ("openai", "gpt-5", Some(Off), Some(Low)),
            ("openai", "gpt-5.1", None, Some(Medium)),
            ("openai", "gpt-5.1", Some(Max), Some(High)),
            ("openai", "gpt-5-pro", Some(Low), Some(High)),
            ("openai", "gpt-6-sol", Some(Max), Some(Max)),
            ("gemini", "gemini-3.8-flash", None, None),
            ("gemini", "gemini-3.8-flash", Some(Max), Some(High)),
            ("groq", "openai/gpt-oss-120b", Some(Off), Some(Low)),
        ] {
            assert_eq!(in_force(provider, model, wanted), Some(expected), "{model} {wanted:?}");
        }
        for (provider, model) in [
            ("openai", "gpt-4o-mini"),
            ("deepseek", "deepseek-flash"),
            ("gateway", "anthropic/claude-opus-5-5"),
            ("x", "mock"),
        ] {
            assert_eq!(in_force(provider, model, Some(High)), None, "{model}");
        }
        for model in ["claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-2"] {
            let known = known_model("anthropic", model);
            assert_eq!((known.is_exact, known.max_output), (true, 128_000), "{model}");
        }
    }

    #[test]
    fn the_closest_successor_is_the_next_version_then_the_same_class() {
        for (gone, listed, expected) in [
            (
                "claude-sonnet-4-5",
                &["claude-opus-5", "claude-sonnet-5", "claude-sonnet-4-6"][..],
                Some("claude-sonnet-4-6"),
            ),
            ("gpt-5", &["gpt-6-luna", "gpt-6-astra", "gpt-6-sol", "gpt-5-mini"], Some("gpt-6-sol")),
            (
                "gemini-2.5-flash",
                &["gemini-3.1-pro-preview", "gemini-3.8-flash", "gemini-3.5-flash"],
                Some("gemini-3.5-flash"),
            ),
            ("grok-4.7", &["grok-4.3", "grok-4.6"], Some("grok-4.6")),
            ("deepseek-chat", &["deepseek-v4-pro", "deepseek-flash"], Some("deepseek-flash")),
            ("claude-3-5-haiku-20241022", &["claude-sonnet-5", "claude-haiku-4-5"], Some("claude-haiku-4-5")),
            ("mine", &["gpt-6-sol"], None),
            ("", &["gpt-6-sol"], None),
        ] {
            assert_eq!(successor(gone, listed.iter().copied()), expected, "{gone}");
        }
    }

    #[test]
    fn lists_contain_only_chat_models() {
        for other in ["text-embedding-3-large", "whisper-1", "gpt-image-2", "dall-e-3", "tts-1"] {
            assert!(!can_chat("openai", other), "{other}");
        }
        for model in ["gpt-6-sol", "gpt-realtime-2.1", "o3", "brand-new"] {
            assert!(can_chat("openai", model), "{model}");
        }
    }
}
