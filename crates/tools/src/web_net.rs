//! Which addresses WebFetch may talk to: public ones. A model must not reach what only this machine or its network can.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use aye_core::contract::address::is_public;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{ClientBuilder, Url};

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

/// A client for one URL that other programs gave: it talks to public addresses over TLS, and to hosts that are allowed
/// all the same.
///
/// # Errors
/// Why the URL is not asked, as the rest of a sentence.
pub fn public_client(url: &str, allowed: &[String]) -> Result<(reqwest::Client, Url), String> {
    let url = Url::parse(url).map_err(|_| "is not a URL".to_owned())?;
    let allowed = AllowedHosts(allowed.into());
    allowed.check(&url)?;
    if url.scheme() != "https" && !url.host_str().is_some_and(|host| allowed.allows_name(host)) {
        return Err("must begin with https://".to_owned());
    }
    let client = guarded(plain_builder(), &allowed).build().map_err(|error| error.to_string())?;
    Ok((client, url))
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
        let given = |url: &str| public_client(url, &["localhost:8080".to_owned()]).map(|_| ());
        assert_eq!(given("https://example.org/x"), Ok(()));
        assert_eq!(given("http://localhost:8080/"), Ok(()));
        for url in ["http://example.org/", "https://127.0.0.1/", "http://localhost:9/", "x", "https://[::1]/"]
        {
            assert!(given(url).is_err(), "{url}");
        }
    }
}
