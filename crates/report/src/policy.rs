//! What a browser may do with a page: show it, with its own style and its own script, and nothing else.
//!
//! The page carries its own content security policy (W3C, Content Security Policy Level 3), since it is a
//! file without a server. Its one script and its one style are named by their digests (section 8.3), so that
//! text from outside, should it ever escape the escaping, is shown and not run. Nothing is fetched, no form
//! is sent, and no base is set. A server of pages may forbid more, for example all scripts: every figure is
//! drawn without them, and only the read-out beneath the pointer is then missing.

use sha2::{Digest, Sha256};

/// The policy of a page with this one style sheet and this one script, each the whole text of its element.
pub fn policy(style: &str, script: &str) -> String {
    format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; \
         form-action 'none'",
        source(style),
        source(script)
    )
}

/// How a policy names the element with this text.
pub fn source(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())))
}

/// RFC 4648, section 4.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= group.len() { digit as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_the_rfc_has_them() {
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, expected) in vectors.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), expected);
        }
    }

    /// The example of the recommendation, section 8.3.
    #[test]
    fn a_script_is_named_as_browsers_name_it() {
        let expected = "sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=";
        assert_eq!(source("alert('Hello, world.');"), expected);
    }
}
