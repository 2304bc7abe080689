//! Settings made of the values that the layers say.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use super::super::layer::{Key, Value, parse_duration};
use super::super::tree::Tree;
use super::{ModelSettings, ProviderSettings, ServerSettings, SettingValues, WebhookFormat, WebhookSettings};
use aye_core::contract::mailbox::MailboxConfig;
use aye_core::contract::spec::Price;
use aye_core::contract::terms::Notify;

pub(super) fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(super) struct Getter<'a>(pub(super) &'a SettingValues);

impl Getter<'_> {
    pub(super) fn get(&self, dotted: &str) -> Option<&Value> {
        self.0.get(&Key::of(dotted))
    }

    pub(super) fn text(&self, dotted: &str) -> Option<String> {
        text_of(self.get(dotted)?)
    }

    pub(super) fn word<T: FromStr>(&self, dotted: &str) -> Option<T> {
        self.text(dotted)?.parse().ok()
    }

    pub(super) fn count(&self, dotted: &str) -> Option<u64> {
        count_of(self.get(dotted)?)
    }

    pub(super) fn limit(&self, dotted: &str) -> Option<u64> {
        self.count(dotted).filter(|limit| *limit > 0)
    }

    pub(super) fn number(&self, dotted: &str) -> Option<f64> {
        match self.get(dotted)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn flag(&self, dotted: &str) -> bool {
        matches!(self.get(dotted), Some(Value::Flag(true)))
    }

    pub(super) fn mailbox(&self) -> MailboxConfig {
        let standard = MailboxConfig::default();
        let time = |key: &str| self.text(key).and_then(|text| parse_duration(&text));
        let ms = |key: &str, otherwise: u64| {
            time(key).map_or(otherwise, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        };
        let lease_ms = ms("mailbox.lease", standard.lease_ms);
        MailboxConfig {
            lease_ms,
            lease_renewal_interval: Duration::from_millis(lease_ms / 3),
            gc_ttl: time("mailbox.keep").unwrap_or(standard.gc_ttl),
            default_max_attempts: self
                .count("mailbox.max_attempts")
                .map_or(standard.default_max_attempts, to_u32),
            default_retry_delay_ms: ms("mailbox.retry_delay", standard.default_retry_delay_ms),
            max_retry_delay_ms: ms("mailbox.max_retry_delay", standard.max_retry_delay_ms),
            ..standard
        }
    }

    pub(super) fn list(&self, dotted: &str) -> Vec<String> {
        match self.get(dotted) {
            Some(Value::List(texts)) => texts.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn notify(&self, dotted: &str) -> Option<Vec<Notify>> {
        let Value::List(texts) = self.get(dotted)? else { return None };
        let entry = |text: &String| {
            let value = serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into());
            Notify::read(&value).ok()
        };
        Some(texts.iter().filter_map(entry).collect())
    }

    pub(super) fn trees(&self, table: &str) -> BTreeMap<String, Tree> {
        let of_table = |(key, value): (&Key, &Value)| match (key.0.as_slice(), value) {
            ([first, name], Value::Tree(tree)) if first == table => Some((name.clone(), tree.clone())),
            _ => None,
        };
        self.0.iter().filter_map(of_table).collect()
    }

    pub(super) fn time(&self, dotted: &str) -> Option<Duration> {
        parse_duration(&self.text(dotted)?)
    }

    pub(super) fn server(&self, name: &str) -> ServerSettings {
        let value = |field| self.named("mcp_servers", name, &[field]);
        let text = |field| value(field).and_then(text_of);
        let list = |field| match value(field) {
            Some(Value::List(texts)) => texts.clone(),
            Some(Value::Text(_) | Value::Count(_) | Value::Number(_) | Value::Flag(_) | Value::Tree(_))
            | None => Vec::new(),
        };
        let table = |field| -> BTreeMap<String, String> {
            let pair =
                |text: String| text.split_once('=').map(|(name, text)| (name.to_owned(), text.to_owned()));
            list(field).into_iter().filter_map(pair).collect()
        };
        let time = |field| text(field).and_then(|text| parse_duration(&text));
        ServerSettings {
            command: text("command"),
            args: list("args"),
            env: table("env"),
            cwd: text("cwd"),
            url: text("url"),
            headers: table("headers"),
            oauth_client_id: text("oauth_client_id"),
            oauth_client_secret: text("oauth_client_secret"),
            oauth_port: value("oauth_port").and_then(count_of),
            oauth_scopes: list("oauth_scopes"),
            oauth_grant: text("oauth_grant"),
            timeout: time("timeout"),
            start_timeout: time("start_timeout"),
            enabled: value("enabled") != Some(&Value::Flag(false)),
        }
    }

    pub(super) fn named(&self, table: &str, name: &str, rest: &[&str]) -> Option<&Value> {
        let parts = [table, name].into_iter().chain(rest.iter().copied());
        self.0.get(&Key(parts.map(str::to_owned).collect()))
    }

    pub(super) fn provider(&self, name: &str) -> ProviderSettings {
        let text = |field| self.named("providers", name, &[field]).and_then(text_of);
        ProviderSettings {
            adapter: text("adapter").and_then(|word| word.parse().ok()),
            base_url: text("base_url"),
            api_key_env: text("api_key_env"),
        }
    }

    pub(super) fn webhook(&self, name: &str) -> WebhookSettings {
        let text = |field| self.named("webhooks", name, &[field]).and_then(text_of);
        WebhookSettings {
            url: text("url"),
            format: text("format").map(|word| WebhookFormat::of(&word)).unwrap_or_default(),
            secret_env: text("secret_env"),
        }
    }

    pub(super) fn model(&self, name: &str) -> ModelSettings {
        let text = |field| self.named("models", name, &[field]).and_then(text_of);
        let count = |field| self.named("models", name, &[field]).and_then(count_of);
        let price = |field| match self.named("models", name, &["price", field])? {
            Value::Number(number) => Some(*number),
            _ => None,
        };
        let has_price = price("input").is_some() || price("output").is_some();
        ModelSettings {
            provider: text("provider"),
            model: text("model"),
            context_window: count("context_window"),
            max_output: count("max_output"),
            price: has_price.then(|| Price {
                input: price("input").unwrap_or_default(),
                output: price("output").unwrap_or_default(),
                cache_read: price("cache_read"),
            }),
        }
    }
}

pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

pub(super) fn count_of(value: &Value) -> Option<u64> {
    match value {
        Value::Count(number) => Some(*number),
        _ => None,
    }
}
