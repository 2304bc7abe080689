//! The host of a URL, as the tools that fetch it read it.

use super::LazyRegex;
use super::glob::{self, Reading};
use std::net::Ipv4Addr;
use url::{Host, Url};

/// What a pattern over a host starts with.
pub(super) const PREFIX: &str = "domain:";

/// A glob over the host of a URL.
#[derive(Debug, Clone)]
pub struct HostMatcher {
    text: String,
    hosts: LazyRegex,
}

impl HostMatcher {
    /// Reads `domain:HOST`. The error says what is wrong with the host.
    pub(super) fn parse(text: &str) -> Result<HostMatcher, String> {
        const EXAMPLE: &str = "write only the host, such as `domain:example.com`";
        let host = text.strip_prefix(PREFIX).unwrap_or(text).trim();
        if host.is_empty() || host.contains(['/', '@', '?', '#', ' ']) || has_port(host) {
            return Err(EXAMPLE.to_owned());
        }
        let host = if glob::is_glob(host) {
            host.to_lowercase()
        } else {
            let parsed = Url::parse(&format!("http://{host}/")).ok();
            parsed.as_ref().and_then(host_of).ok_or_else(|| EXAMPLE.to_owned())?
        };
        let hosts = glob::compile(&escape_address(&host), Reading::Text).map_err(|error| error.message)?;
        Ok(HostMatcher { text: text.to_owned(), hosts })
    }

    /// True for a URL of that host.
    pub(super) fn is_match(&self, url: &str) -> bool {
        Url::parse(url.trim()).ok().as_ref().and_then(host_of).is_some_and(|host| self.hosts.is_match(&host))
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The host of a URL in one spelling: lower case, no dot at the end, addresses in their shortest form.
fn host_of(url: &Url) -> Option<String> {
    Some(match url.host()? {
        Host::Domain(name) => name.trim_end_matches('.').to_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => match address.to_ipv4_mapped() {
            Some(address) => Ipv4Addr::to_string(&address),
            None => format!("[{address}]"),
        },
    })
}

/// The brackets of an IPv6 address are no wildcard.
fn escape_address(host: &str) -> String {
    if host.starts_with('[') { glob::escape(host) } else { host.to_owned() }
}

fn has_port(host: &str) -> bool {
    !host.starts_with('[') && host.contains(':') || host.contains("]:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_however_the_url_is_written() {
        for (pattern, url, want) in [
            ("domain:evil.example", "https://evil.example/x", true),
            ("domain:evil.example", "http://EVIL.example:8080", true),
            ("domain:evil.example", "https://user:pw@evil.example./x?y#z", true),
            ("domain:evil.example", "https:\\\\evil.example", true),
            ("domain:evil.example", "https:evil.example", true),
            ("domain:evil.example", " https://ev%69l.example/", true),
            ("domain:Evil.Example", "https://evil.example/", true),
            ("domain:evil.example", "https://good.example/evil.example", false),
            ("domain:evil.example", "https://evil.example@good.example/", false),
            ("domain:evil.example", "https://sub.evil.example/", false),
            ("domain:evil.example", "https://evil.example.com/", false),
            ("domain:*.evil.example", "https://sub.evil.example/", true),
            ("domain:*", "https://a/", true),
            ("domain:127.0.0.1", "http://0x7f.1/", true),
            ("domain:127.0.0.1", "http://[::ffff:127.0.0.1]/", true),
            ("domain:[::1]", "http://[0:0::1]/", true),
            ("domain:bücher.example", "https://xn--bcher-kva.example/", true),
            ("domain:evil.example", "evil.example", false),
        ] {
            assert_eq!(HostMatcher::parse(pattern).unwrap().is_match(url), want, "{pattern} on {url}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in ["domain:", "domain:https://x", "domain:x/y", "domain:x:80", "domain:a b", "domain:u@x"] {
            assert!(HostMatcher::parse(text).is_err(), "{text}");
        }
    }
}
