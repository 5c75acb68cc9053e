//! The key file of `flows --anonymise`.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nilometer_flow::anonymise::{CryptoPan, KEY_BYTES};

use nilometer_linux::system_file::within;

/// No key file is longer: hexadecimal digits, and the end of their line.
const FILE_BYTES_MAX: usize = 2 * KEY_BYTES + 2;

/// Reads the mapping whose key is in a file: 32 bytes as they are, or 64 hexadecimal digits in a line.
///
/// # Errors
/// When it cannot be read or is neither.
pub(super) fn read(path: &Path) -> Result<CryptoPan> {
    let name = path.display();
    let read = File::open(path).and_then(|file| within(file, FILE_BYTES_MAX as u64));
    let bytes = read.with_context(|| format!("cannot read the key {name}"))?;
    match bytes.and_then(|bytes| key(&bytes)) {
        Some(key) => Ok(CryptoPan::new(&key)),
        None => bail!(
            "{name} is not a key: it must hold {KEY_BYTES} bytes, or {} hexadecimal digits in one line; \
             `head -c 32 /dev/urandom` makes one",
            2 * KEY_BYTES
        ),
    }
}

fn key(bytes: &[u8]) -> Option<[u8; KEY_BYTES]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    let line = std::str::from_utf8(bytes).ok()?;
    let digits = line.strip_suffix('\n').unwrap_or(line);
    let digits = digits.strip_suffix('\r').unwrap_or(digits);
    let is_hex = digits.len() == 2 * KEY_BYTES && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let mut key = [0; KEY_BYTES];
    for (byte, at) in key.iter_mut().zip((0..digits.len()).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    is_hex.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bytes_or_digits_and_nothing_else() {
        let raw: Vec<u8> = (100..132).collect();
        let digits: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected: Option<[u8; KEY_BYTES]> = raw[..].try_into().ok();
        for ending in ["", "\n", "\r\n"] {
            assert_eq!(key((digits.clone() + ending).as_bytes()), expected);
        }
        assert_eq!(key(digits.to_uppercase().as_bytes()), expected);
        assert_eq!(key(&raw), expected);
        let wrong = [&raw[1..], b"", &digits.as_bytes()[1..], &[b'+'; 64], &[0xff; 64]];
        for bytes in wrong {
            assert_eq!(key(bytes), None, "{bytes:?}");
        }
        assert_eq!(key((digits.clone() + "\n\n").as_bytes()), None);
        assert_eq!(key((digits + "0").as_bytes()), None);
    }
}
