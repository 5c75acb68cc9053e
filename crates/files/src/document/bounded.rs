//! The only place where a whole file is read, within a limit on its length.
//!
//! The length that the system reports for a file is not a bound. A device, a pipe and most files in `/proc`
//! have the length 0 and no end, and a regular file may grow while it is read. So the length is not used: the
//! reader requests one byte more than the limit, and refuses the file if that byte comes.
//!
//! A parser's memory is a multiple of the text. For JSON that is parsed directly into its types it is up to 8
//! bytes for each byte, for TOML up to 85 for a text made for the purpose, which is why [`TOML_BYTES_MAX`] is
//! so much smaller; the reader of XML also limits its nodes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use nilometer_linux::system_file::within;

/// Bytes of a JSON document at most: a model that keeps a million addresses has about 100 MiB.
pub const JSON_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a TOML document at most: room for 200,000 static routes.
pub const TOML_BYTES_MAX: u64 = 16 << 20;
/// Bytes of an XML document at most.
pub const XML_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a table in plain lines at most, such as a law of a model or filters.
pub const LINES_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a file that holds a token at most.
pub const TOKEN_BYTES_MAX: u64 = 4 << 10;

/// The text of a file.
///
/// # Errors
/// When it cannot be read, has more than `bytes_max` bytes, or is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    let shown = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    text_of(file, &shown, bytes_max)
}

/// The text from `reader`; errors call it `shown`.
///
/// # Errors
/// When it cannot be read, has more than `bytes_max` bytes, or is not UTF-8.
pub fn text_of(reader: impl Read, shown: &str, bytes_max: u64) -> Result<String> {
    let unread = || format!("cannot read {shown}");
    let Some(bytes) = within(reader, bytes_max).with_context(unread)? else {
        bail!(
            "{shown}: has more than {bytes_max} bytes, the limit for a file of this kind; is it the right \
             one?"
        );
    };
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("cannot read {shown}: byte {at} is not UTF-8 text")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_applies_to_bytes_read_and_not_to_a_stated_length() {
        let read = |text: &[u8], most| text_of(text, "it", most).map_err(|why| why.to_string());
        assert_eq!(read(b"", 0), Ok(String::new()));
        assert_eq!(read(b"four", 4), Ok("four".to_owned()));
        let refused = read(b"fives", 4).expect_err("a byte too many");
        assert!(refused.contains("it: has more than 4 bytes"), "{refused}");
        // A letter that the limit cuts must not be reported as damage of the text.
        let refused = read("fivé".as_bytes(), 4).expect_err("a byte too many");
        assert!(refused.contains("more than 4 bytes"), "{refused}");
        let refused = read(b"ab\xffc", 4).expect_err("no text");
        assert_eq!(refused, "cannot read it: byte 2 is not UTF-8 text");
        let refused = read_text(Path::new("/dev/zero"), 4).expect_err("no end").to_string();
        assert!(refused.contains("/dev/zero: has more than 4 bytes"), "{refused}");
        assert_eq!(within(std::io::repeat(1), u64::from(u16::MAX)).expect("no end"), None);
    }

    #[test]
    fn files_without_a_length_are_read_to_their_end() {
        let about = std::fs::metadata("/proc/self/status").expect("it is there");
        assert_eq!(about.len(), 0, "else this test shows nothing");
        let text = read_text(Path::new("/proc/self/status"), 1 << 20).expect("some lines");
        assert!(text.contains("VmRSS:"), "{text}");
    }
}
