//! The addresses that WebFetch may connect to: public ones. A model must not reach addresses that only this
//! machine or its network can reach.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use aye_core::contract::address::is_public;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{ClientBuilder, Url};

/// The hosts that may be local all the same: `localhost`, or with a port `127.0.0.1:8080`.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedHosts(pub(super) Arc<[String]>);

impl AllowedHosts {
    fn allows_name(&self, host: &str) -> bool {
        self.0.iter().any(|entry| host_of(entry).eq_ignore_ascii_case(host))
    }

    /// Checks whether the text of a URL rules out requesting it, and returns why. Names are checked again
    /// when they are resolved.
    pub(super) fn check(&self, url: &Url) -> Result<(), UrlRefused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UrlRefused::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlRefused::User);
        }
        let Some(host) = url.host_str() else { return Err(UrlRefused::NoHost) };
        let port = url.port_or_known_default().unwrap_or(0);
        let named = |entry: &String| {
            entry.eq_ignore_ascii_case(host) || entry.eq_ignore_ascii_case(&format!("{host}:{port}"))
        };
        if self.0.iter().any(named) {
            return Ok(());
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) if !is_public(ip) => Err(UrlRefused::NotPublic(host.to_owned())),
            // The allowed entry is about another port, and the resolver does not know ports.
            Err(_) if self.allows_name(host) => Err(UrlRefused::Port { host: host.to_owned(), port }),
            _ => Ok(()),
        }
    }
}

/// Why a URL is not asked for.
#[derive(Debug, thiserror::Error)]
pub enum UrlRefused {
    #[error("is not a URL")]
    NoUrl,
    #[error("only http and https can be fetched, not {0}:")]
    Scheme(String),
    /// It brings a user name or password.
    #[error("a URL with a user name or password is not fetched")]
    User,
    /// It names no host.
    #[error("the URL has no host")]
    NoHost,
    /// Only this machine or its network has the address.
    #[error("{0} is not a public address")]
    NotPublic(String),
    /// Another port of the host is allowed.
    #[error("port {port} of {host} is not allowed")]
    Port { host: String, port: u16 },
    /// What is sent could be read on the way.
    #[error("must begin with https://")]
    NotTls,
    /// There is no client to ask with.
    #[error(transparent)]
    Client(#[from] reqwest::Error),
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

/// Applies the client's last settings: no automatic redirects, no addresses that are not public.
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
/// [`UrlRefused`].
pub fn public_client(url: &str, allowed: &[String]) -> Result<(reqwest::Client, Url), UrlRefused> {
    let url = Url::parse(url).map_err(|_| UrlRefused::NoUrl)?;
    let allowed = AllowedHosts(allowed.into());
    allowed.check(&url)?;
    if url.scheme() != "https" && !url.host_str().is_some_and(|host| allowed.allows_name(host)) {
        return Err(UrlRefused::NotTls);
    }
    let client = guarded(plain_builder(), &allowed).build()?;
    Ok((client, url))
}

/// The client of those who set none. It uses no proxy: a proxy would resolve the names, and the check of the addresses
/// would see only its own.
pub(super) fn plain_builder() -> ClientBuilder {
    aye_http::client_builder(None).no_proxy().connect_timeout(std::time::Duration::from_secs(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_validated_before_resolving() {
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
        check(&none, "https://example.org/x").expect("a public name");
        let some = AllowedHosts(["localhost:8080".into(), "127.0.0.1".into()].into());
        check(&some, "http://localhost:8080/").expect("an allowed host");
        assert!(check(&some, "http://localhost:9/").is_err());
        check(&some, "http://127.0.0.1:1234/").expect("an allowed host");
        assert!(check(&some, "http://127.0.0.2/").is_err());
        let given = |url: &str| public_client(url, &["localhost:8080".to_owned()]).map(|_| ());
        given("https://example.org/x").expect("a public name");
        given("http://localhost:8080/").expect("an allowed host");
        for url in ["http://example.org/", "https://127.0.0.1/", "http://localhost:9/", "x", "https://[::1]/"]
        {
            assert!(given(url).is_err(), "{url}");
        }
    }
}
