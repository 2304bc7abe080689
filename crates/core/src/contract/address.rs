//! Addresses of this machine.

use std::net::IpAddr;

/// Whether a host of a URL, IPv6 in brackets or not, is this machine whatever a name server says.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback() || ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_of_this_machine_are_known() {
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
}
