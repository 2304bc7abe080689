//! What the models of Anthropic accept, by their names: gateways and clouds serve them under names of their own.

use aye_core::contract::inference::ReasoningEffort;

/// The family of a model, from the cheapest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Haiku,
    Sonnet,
    Opus,
    /// The families above Opus, which always think.
    Above,
    /// Another vendor's model behind the same interface.
    Other,
}

/// How a model is asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkingForm {
    /// As much as it wants, guided by an effort.
    Adaptive,
    /// Up to a number of tokens.
    Budget,
}

/// A model of Anthropic, or one that is served the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claude {
    family: Family,
    version: (u32, u32),
}

impl Claude {
    /// Reads a name such as `claude-opus-4-5-20251101`, `anthropic/claude-sonnet-4.6`, `claude-3-5-haiku-latest` or
    /// `us.anthropic.claude-opus-4-6-v1:0`.
    pub(super) fn of(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let own = name.rsplit("claude").next().filter(|own| own.len() < name.len()).unwrap_or_default();
        let words = || own.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let family = words().find_map(|word| match word {
            "haiku" => Some(Family::Haiku),
            "sonnet" => Some(Family::Sonnet),
            "opus" => Some(Family::Opus),
            "fable" | "mythos" => Some(Family::Above),
            _ => None,
        });
        // Longer numbers are dates.
        let mut numbers = words()
            .take_while(|word| !word.starts_with('v'))
            .filter(|word| word.len() <= 2)
            .filter_map(|word| word.parse().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Self { family: family.unwrap_or(Family::Other), version }
    }

    fn is_from(self, version: (u32, u32)) -> bool {
        self.version >= version
    }

    /// The tokens of the longest answer.
    pub(super) fn max_output(self) -> u32 {
        match self.family {
            Family::Above => 128_000,
            Family::Opus | Family::Sonnet if self.is_from((4, 6)) => 128_000,
            Family::Haiku if self.is_from((5, 0)) => 128_000,
            Family::Opus if self.is_from((4, 5)) => 64_000,
            Family::Opus if self.is_from((4, 0)) => 32_000,
            Family::Opus => 4096,
            Family::Sonnet | Family::Haiku if self.is_from((3, 7)) => 64_000,
            Family::Sonnet | Family::Haiku if self.is_from((3, 5)) => 8192,
            Family::Sonnet | Family::Haiku => 4096,
            Family::Other => 64_000,
        }
    }

    /// Returns whether it thinks unless it is told not to.
    pub(super) fn thinks_by_default(self) -> bool {
        self.always_thinks()
            || matches!(self.family, Family::Haiku | Family::Sonnet | Family::Opus) && self.is_from((5, 0))
    }

    /// Returns whether it refuses to be told not to think.
    pub(super) fn always_thinks(self) -> bool {
        self.family == Family::Above || self.family != Family::Other && self.is_from((5, 5))
    }

    /// How it is asked to think.
    pub(super) fn thinking(self) -> ThinkingForm {
        let is_adaptive = match self.family {
            Family::Above => true,
            Family::Opus | Family::Sonnet => self.is_from((4, 6)),
            Family::Haiku => self.is_from((5, 0)),
            Family::Other => false,
        };
        if is_adaptive { ThinkingForm::Adaptive } else { ThinkingForm::Budget }
    }

    /// The word for an effort; `None` for a model that takes none, and for a budget.
    pub(super) fn effort(self, effort: ReasoningEffort) -> Option<&'static str> {
        // Claude Opus 4.5 knows the word too, but a budget says the same on every server.
        if self.thinking() != ThinkingForm::Adaptive {
            return None;
        }
        match effort {
            ReasoningEffort::Low => Some("low"),
            ReasoningEffort::Medium => Some("medium"),
            ReasoningEffort::High => Some("high"),
            ReasoningEffort::Max => Some("max"),
            ReasoningEffort::None | ReasoningEffort::Budget(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_under_any_vendors_name() {
        for (name, family, version) in [
            ("claude-opus-4-5-20251101", Family::Opus, (4, 5)),
            ("claude-opus-4-20250514", Family::Opus, (4, 0)),
            ("anthropic/claude-sonnet-4.6", Family::Sonnet, (4, 6)),
            ("claude-3-5-haiku-latest", Family::Haiku, (3, 5)),
            ("claude-3-opus-20240229", Family::Opus, (3, 0)),
            ("us.anthropic.claude-opus-4-6-v1:0", Family::Opus, (4, 6)),
            ("claude-sonnet-4@20250514", Family::Sonnet, (4, 0)),
            ("claude-fable-5-1", Family::Above, (5, 1)),
            ("kimi-k2.5", Family::Other, (0, 0)),
            ("opus-4", Family::Other, (0, 0)),
            ("", Family::Other, (0, 0)),
        ] {
            assert_eq!(Claude::of(name), Claude { family, version }, "{name}");
        }
    }

    /// The efforts of the table of models, against what the names say here.
    #[test]
    fn the_table_of_models_agrees() {
        for line in include_str!("../../config/src/models.jsonl").lines() {
            let row: serde_json::Value = serde_json::from_str(line).expect("a line of the table");
            if row["provider"] != "anthropic" || row["reasoning"] != true {
                continue;
            }
            let id = row["id"].as_str().expect("a name");
            let claude = Claude::of(id);
            let accepts =
                |word: &str| row["efforts"].as_array().is_some_and(|all| all.contains(&word.into()));
            assert_eq!(accepts("none"), !claude.always_thinks(), "{id}");
            assert_eq!(accepts("max"), claude.thinking() == ThinkingForm::Adaptive, "{id}");
            assert_eq!(row["max_output"], claude.max_output(), "{id}");
            let default = if claude.thinking() == ThinkingForm::Adaptive { "high" } else { "medium" };
            assert_eq!(row["default_effort"], default, "{id}");
        }
    }
}
