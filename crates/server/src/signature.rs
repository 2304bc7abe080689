//! Signatures of messages between this program and others that share a key: `t=SECONDS,v1=HEX`, where HEX is the
//! HMAC-SHA256 of the seconds, a dot and the body.

use ring::hmac;

/// Maximum difference between the two clocks, in seconds.
const LEEWAY: u64 = 300;

fn signed(at: u64, body: &[u8]) -> Vec<u8> {
    [format!("{at}.").as_bytes(), body].concat()
}

/// The signature of a body that is sent at this Unix time.
pub fn sign(key: &[u8], at: u64, body: &[u8]) -> String {
    let mut text = format!("t={at},v1=");
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &signed(at, body));
    for byte in tag.as_ref() {
        use std::fmt::Write as _;
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Whether this body was signed with the key, within five minutes of this Unix time. Compared in constant
/// time.
pub fn is_signed(key: &[u8], signature: &str, body: &[u8], now: u64) -> bool {
    let Some((at, hex)) = signature.strip_prefix("t=").and_then(|rest| rest.split_once(",v1=")) else {
        return false;
    };
    let Ok(at) = at.parse::<u64>() else { return false };
    let digits = hex.as_bytes().chunks(2).map(|pair| {
        let pair =
            std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u8::from_str_radix(pair, 16).ok().filter(|_| pair.len() == 2)
    });
    let Some(tag) = digits.collect::<Option<Vec<u8>>>() else { return false };
    !key.is_empty()
        && at.abs_diff(now) <= LEEWAY
        && hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), &signed(at, body), &tag).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_covers_one_body_time_and_key() {
        // printf '1000.{"a":1}' | openssl dgst -sha256 -hmac key
        let signed = sign(b"key", 1000, b"{\"a\":1}");
        assert_eq!(signed, "t=1000,v1=703e95d4ed8aa99f3cf59728e8680a5aef1eb7fb7c4e4c827051b950902ca353");
        let is = |key: &[u8], text: &str, body: &[u8], now| is_signed(key, text, body, now);
        assert!(is(b"key", &signed, b"{\"a\":1}", 1000) && is(b"key", &signed, b"{\"a\":1}", 1300));
        assert!(!is(b"key", &signed, b"{\"a\":1}", 1301), "too old");
        assert!(!is(b"key", &signed, b"{\"a\":1}", 699), "from the future");
        assert!(!is(b"kez", &signed, b"{\"a\":1}", 1000));
        assert!(!is(b"key", &signed, b"{\"a\":2}", 1000));
        assert!(!is(b"key", &signed.replace("t=1000", "t=1001"), b"{\"a\":1}", 1000));
        for wrong in ["", "t=1000", "t=1000,v1=", "t=x,v1=00", "v1=00,t=1000", "t=1000,v1=0", "t=1000,v1=+f"]
        {
            assert!(!is(b"key", wrong, b"{\"a\":1}", 1000), "{wrong}");
        }
        assert!(!is(b"", &sign(b"", 1000, b""), b"", 1000), "no key is no signature");
    }
}
