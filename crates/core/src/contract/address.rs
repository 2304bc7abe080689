//! Addresses and names of machines: this one, private ones, and lists of domains.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Returns whether a URL's host, an IPv6 address in brackets or not, is this machine whatever a name server
/// says.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback() || ip.is_unspecified())
}

/// Returns whether an address belongs to the public internet.
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !(ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_broadcast()
        || ip.is_documentation()
        || ip.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19)))
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    // Addresses that carry an IPv4 one are what that one is: mapped, compatible, NAT64, 6to4.
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] if high != 0 || low > 1 => return is_public_v4(v4(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return is_public_v4(v4(high, low)),
        [0x2002, high, low, ..] => return is_public_v4(v4(high, low)),
        _ => {}
    }
    // 2000::/3 is all that is routed, less Teredo, ORCHID and documentation.
    (segments[0] & 0xe000) == 0x2000
        && !(segments[0] == 0x2001 && (segments[1] < 0x200 || segments[1] == 0xdb8))
        && !(segments[0] == 0x3fff && segments[1] < 0x1000)
}

/// A domain that commands may reach: `docs.example.org`, or `*.example.com` for every name below that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainPattern {
    name: String,
    is_below: bool,
}

impl DomainPattern {
    /// Returns whether the pattern matches a host's name. An address never matches.
    pub fn matches(&self, host: &str) -> bool {
        let Some(host) = domain_name(host) else { return false };
        match host.strip_suffix(self.name.as_str()) {
            Some("") => !self.is_below,
            Some(below) => self.is_below && below.ends_with('.'),
            None => false,
        }
    }

    /// Returns whether this pattern matches every name that another one matches.
    pub fn covers(&self, other: &DomainPattern) -> bool {
        self == other || self.is_below && self.matches(&other.name)
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_below { "*." } else { "" }, self.name)
    }
}

impl FromStr for DomainPattern {
    type Err = &'static str;

    /// # Errors
    /// What is wrong with it.
    fn from_str(text: &str) -> Result<DomainPattern, &'static str> {
        let (is_below, name) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if name.contains('*') {
            return Err("`*` can only be the first part, as in \"*.example.com\"");
        }
        if name.contains("://") || name.contains(['/', ':', '@']) {
            return Err("write only the name, without scheme, port or path");
        }
        if !name.is_ascii() {
            return Err("write the name in its ASCII form, which starts with xn--");
        }
        if name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return Err("commands reach names only, not IP addresses");
        }
        if is_this_machine(name) {
            return Err("a sandboxed command has its own localhost; no setting is needed");
        }
        match domain_name(name) {
            Some(name) => Ok(DomainPattern { name, is_below }),
            None => Err("a name has at least two parts of letters, digits and `-`"),
        }
    }
}

/// Normalises a host's name for comparison: lower case, without the dot of the root. Returns `None` if it is
/// not a name of at least two parts, or one that some program could read as an address.
pub fn domain_name(host: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_part = |part: &str| {
        (1..=63).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let (_, last) = host.rsplit_once('.')?;
    // Numbers at the end make an address of it, hexadecimal ones too.
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"));
    (host.len() <= 253 && !is_number && host.split('.').all(is_part)).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_this_machine_are_recognised() {
        for host in [
            "localhost",
            "LocalHost.",
            "a.localhost",
            "127.1.2.3",
            "0.0.0.0",
            "[::1]",
            "::ffff:127.0.0.1",
            "::",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in
            ["", "localhost.example.com", "notlocalhost", "10.0.0.1", "128.0.0.1", "[2001:db8::1]", "127"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn private_addresses_are_recognised_in_every_notation() {
        for ip in [
            "127.0.0.1",
            "127.8.8.8",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "ff02::1",
            "2001:db8::1",
            "fec0::1",
        ] {
            assert!(!is_public(ip.parse().expect(ip)), "{ip}");
        }
        for ip in ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:1.1.1.1", "172.32.0.1", "2a00::1"] {
            assert!(is_public(ip.parse().expect(ip)), "{ip}");
        }
    }

    #[test]
    fn a_pattern_matches_only_its_names() {
        let matches =
            |pattern: &str, host: &str| pattern.parse::<DomainPattern>().expect(pattern).matches(host);
        for (pattern, host) in [
            ("docs.example.org", "docs.example.org"),
            ("docs.example.org", "DOCS.Example.org."),
            ("Docs.Example.ORG", "docs.example.org"),
            ("*.example.com", "a.example.com"),
            ("*.example.com", "a.b.example.com"),
        ] {
            assert!(matches(pattern, host), "{pattern} {host}");
        }
        for (pattern, host) in [
            ("docs.example.org", "example.org"),
            ("docs.example.org", "a.docs.example.org"),
            ("docs.example.org", "docs.example.org.evil.net"),
            ("*.example.com", "example.com"),
            ("*.example.com", "notexample.com"),
            ("*.example.com", ".example.com"),
            ("*.example.com", "a..example.com"),
            ("*.example.com", "a\0.example.com"),
            ("*.example.com", "127.0.0.1"),
        ] {
            assert!(!matches(pattern, host), "{pattern} {host}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_refused() {
        for text in [
            "",
            "*",
            "*.com",
            "com",
            "localhost",
            "a.localhost",
            "a.*.com",
            "**.example.com",
            "https://example.com",
            "example.com:443",
            "example.com/x",
            "10.0.0.1",
            "*.0.0.1",
            "[::1]",
            "::1",
            "1.0x7f",
            "bücher.example",
            "-a.example",
            "a b.example",
        ] {
            assert!(text.parse::<DomainPattern>().is_err(), "{text}");
        }
        assert_eq!("*.Example.com".parse::<DomainPattern>().expect("valid").to_string(), "*.example.com");
    }
}
