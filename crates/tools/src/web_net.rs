//! Which addresses WebFetch may talk to: public ones. A model must not reach what only this machine or its network can.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{ClientBuilder, Url};

/// Whether an address belongs to the public internet.
pub(super) fn is_public(ip: IpAddr) -> bool {
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

/// Which hosts may be local all the same: `localhost`, or with a port `127.0.0.1:8080`.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedHosts(pub(super) Arc<[String]>);

impl AllowedHosts {
    fn allows_name(&self, host: &str) -> bool {
        self.0.iter().any(|entry| host_of(entry).eq_ignore_ascii_case(host))
    }

    /// Why a URL must not be asked for, by what it says. Names are looked at again when they are resolved.
    pub(super) fn check(&self, url: &Url) -> Result<(), String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("only http and https can be fetched, not {}:", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL with a user name or password is not fetched".into());
        }
        let Some(host) = url.host_str() else { return Err("the URL has no host".into()) };
        let port = url.port_or_known_default().unwrap_or(0);
        let named = |entry: &String| {
            entry.eq_ignore_ascii_case(host) || entry.eq_ignore_ascii_case(&format!("{host}:{port}"))
        };
        if self.0.iter().any(named) {
            return Ok(());
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) if !is_public(ip) => Err(format!("{host} is not a public address")),
            // The allowed entry is about another port, and the resolver does not know ports.
            Err(_) if self.allows_name(host) => Err(format!("port {port} of {host} is not allowed")),
            _ => Ok(()),
        }
    }
}

fn host_of(entry: &str) -> &str {
    match entry.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => entry,
    }
}

/// Resolves names to public addresses only: the connection goes to what was checked, so no name can answer twice.
struct PublicResolver(AllowedHosts);

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let all: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let any = allowed.allows_name(&host);
            let public: Vec<_> = all.into_iter().filter(|addr| any || is_public(addr.ip())).collect();
            if public.is_empty() {
                return Err(format!("{host} has no public address").into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// The client's last settings: no redirect by itself, no address that is not public.
pub(super) fn guarded(builder: ClientBuilder, allowed: &AllowedHosts) -> ClientBuilder {
    builder
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(Arc::new(PublicResolver(allowed.clone())))
        .referer(false)
}

/// A client of our own for who gives none: no proxy, and with the roots that come with the program beside the system's.
pub(super) fn plain_builder() -> ClientBuilder {
    // The first one counts; that another one is installed already is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS
        .iter()
        .filter_map(|der| reqwest::Certificate::from_der(der).ok());
    reqwest::Client::builder()
        .tls_certs_merge(roots)
        .no_proxy()
        .connect_timeout(std::time::Duration::from_secs(10))
        .user_agent(concat!("aye/", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_told_in_every_disguise() {
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
    fn urls_are_checked_by_what_they_say() {
        let none = AllowedHosts::default();
        let check = |allowed: &AllowedHosts, url: &str| allowed.check(&Url::parse(url).expect(url));
        for url in [
            "file:///etc/passwd",
            "ftp://x/",
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]:80/",
            "http://169.254.169.254/latest",
            "http://u:p@example.org/",
        ] {
            assert!(check(&none, url).is_err(), "{url}");
        }
        assert_eq!(check(&none, "https://example.org/x"), Ok(()));
        let some = AllowedHosts(["localhost:8080".into(), "127.0.0.1".into()].into());
        assert_eq!(check(&some, "http://localhost:8080/"), Ok(()));
        assert!(check(&some, "http://localhost:9/").is_err());
        assert_eq!(check(&some, "http://127.0.0.1:1234/"), Ok(()));
        assert!(check(&some, "http://127.0.0.2/").is_err());
    }
}
