//! What every HTTP client of aye shares: certificates, the user agent, and a parser for server-sent events.

mod sse;

use std::sync::OnceLock;

use aye_core::contract::address::is_this_machine;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Certificate, ClientBuilder, Url};

pub use sse::{EventTooLong, SseParser};

/// Starts a client for the server at `base`, or for any server if there is no base. Timeouts, redirects, compression
/// and the connection pool are for the caller to set.
///
/// - The certificates that come with the program are added to the machine's: without them reqwest refuses to
///   work, even for plain http, on a machine that has none.
/// - A server on this machine is never accessed through a proxy, and one without TLS loads no certificates.
pub fn client_builder(base: Option<&Url>) -> ClientBuilder {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster, with the same result.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut builder = reqwest::Client::builder().user_agent(concat!("aye/", env!("CARGO_PKG_VERSION")));
    if base.and_then(Url::host_str).is_some_and(is_this_machine) {
        builder = builder.no_proxy();
    }
    if base.is_some_and(|base| base.scheme() == "http") {
        builder.tls_certs_only([])
    } else {
        builder.tls_certs_merge(roots().iter().cloned())
    }
}

/// Returns the innermost cause of an error. It says what happened; those around it say that something did, and repeat the
/// URL.
pub fn root_cause(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Returns [`root_cause`], and the proxy if the connection went through one: what failed may be the proxy.
pub fn cause_with_proxy(error: &reqwest::Error) -> String {
    let cause = root_cause(error);
    let proxy = error.url().filter(|_| error.is_connect()).and_then(proxy_of);
    match proxy {
        Some(proxy) => format!("{cause}, through the proxy {proxy}"),
        None => cause,
    }
}

/// Returns the proxy that a client of [`client_builder`] uses for a URL, without its password: the environment names it.
pub fn proxy_of(url: &Url) -> Option<String> {
    proxy_by(&Matcher::from_system(), url)
}

fn proxy_by(proxies: &Matcher, url: &Url) -> Option<String> {
    if url.host_str().is_some_and(is_this_machine) {
        return None;
    }
    let proxy = proxies.intercept(&url.as_str().parse().ok()?)?;
    let (scheme, host) = (proxy.uri().scheme_str()?, proxy.uri().host()?);
    let port = proxy.uri().port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{scheme}://{host}{port}"))
}

/// The certificates that come with the program, parsed once.
fn roots() -> &'static [Certificate] {
    static ROOTS: OnceLock<Vec<Certificate>> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        roots.filter_map(|der| Certificate::from_der(der).ok()).collect()
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn the_user_agent_names_aye_and_its_version() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let url = Url::parse(&url).expect("a URL");
        for base in [None, Some(&url)] {
            let client = client_builder(base).no_proxy().build().expect("a client");
            let served = async {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut head = vec![0; 4096];
                let read = stream.read(&mut head).await.expect("a request");
                stream.write_all(b"HTTP/1.1 204 X\r\nConnection: close\r\n\r\n").await.expect("an answer");
                String::from_utf8_lossy(&head[..read]).to_ascii_lowercase()
            };
            let (answer, head) = tokio::join!(client.get(url.clone()).send(), served);
            assert_eq!(answer.expect("an answer").status(), 204);
            let agent = concat!("user-agent: aye/", env!("CARGO_PKG_VERSION"), "\r\n");
            assert!(head.contains(agent), "{head}");
        }
    }

    #[test]
    fn a_proxy_is_named_without_its_password() {
        let proxies = Matcher::builder().all("http://me:s3cret@proxy.corp:3128").no("inside.corp").build();
        let proxy = |url: &str| proxy_by(&proxies, &Url::parse(url).expect("a URL"));
        assert_eq!(proxy("https://api.example/v1").as_deref(), Some("http://proxy.corp:3128"));
        assert_eq!(proxy("https://inside.corp/v1"), None);
        assert_eq!(proxy("http://127.0.0.1:8080/v1"), None);
        assert_eq!(proxy_by(&Matcher::builder().build(), &Url::parse("https://a.b").expect("a URL")), None);
    }

    #[test]
    fn bundled_certificates_are_accepted() {
        let url = Url::parse("https://host/").expect("a URL");
        client_builder(Some(&url)).build().expect("a client");
        assert_eq!(roots().len(), webpki_root_certs::TLS_SERVER_ROOT_CERTS.len());
    }
}
