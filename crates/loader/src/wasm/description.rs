//! What a module says of itself: its name, its version, what it sees and what it counts.

use nilometer_plugin::interface::{COUNTERS_MAX, description};

/// The longest name or version, bytes.
const NAME_BYTES_MAX: usize = 64;

/// A description that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) seen_bytes: u16,
    pub(super) counters: Vec<String>,
}

impl Description {
    /// Reads lines of a word and a value.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn read(text: &str) -> Result<Description, String> {
        let mut read = Description::default();
        let mut seen_bytes = None;
        for line in text.lines() {
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                description::NAME if read.name.is_empty() => read.name = name(value)?,
                description::VERSION if read.version.is_empty() => read.version = version(value)?,
                description::SEEN_BYTES if seen_bytes.is_none() => {
                    let bytes = value.parse();
                    seen_bytes =
                        Some(bytes.map_err(|_| format!("{value:?} is not a number of bytes"))?);
                }
                description::COUNTER => read.counters.push(counter(value)?),
                _ => return Err(format!("the line {:?}", shown(line))),
            }
        }
        read.seen_bytes = seen_bytes.ok_or("no seen-bytes")?;
        if read.name.is_empty() || read.version.is_empty() {
            return Err("no name or no version".to_owned());
        }
        if read.counters.len() > COUNTERS_MAX {
            return Err(format!("more than {COUNTERS_MAX} counters"));
        }
        Ok(read)
    }
}

fn shown(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX).collect()
}

/// Letters, digits and hyphens.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.starts_with('-');
    if is_name { Ok(text.to_owned()) } else { Err(format!("the name {:?}", shown(text))) }
}

/// Letters, digits, hyphens, dots and plus signs, from a digit on.
fn version(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.+".contains(&byte);
    let is_version = (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.as_bytes()[0].is_ascii_digit()
        && text.bytes().all(is_plain);
    if is_version { Ok(text.to_owned()) } else { Err(format!("the version {:?}", shown(text))) }
}

/// Lower-case letters, digits and low lines, as metrics have them.
fn counter(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_counter = (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.as_bytes()[0].is_ascii_lowercase()
        && text.bytes().all(is_plain);
    if is_counter { Ok(text.to_owned()) } else { Err(format!("the counter {:?}", shown(text))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "name drop-all\nversion 1.2.3\nseen-bytes 64\ncounter a\ncounter b_2\n";
        let read = Description::read(text).expect("a description");
        assert_eq!((read.name.as_str(), read.version.as_str()), ("drop-all", "1.2.3"));
        assert_eq!((read.seen_bytes, read.counters), (64, vec!["a".to_owned(), "b_2".to_owned()]));
    }

    #[test]
    fn anything_else_is_named() {
        let usual = "name a\nversion 1\nseen-bytes 0\n";
        let wrong = [
            ("", "no seen-bytes"),
            ("seen-bytes 0\nversion 1", "no name or no version"),
            ("name ../../etc", "the name \"../../etc\""),
            ("name a\nname b", "the line \"name b\""),
            ("version \u{1b}[31m", "the version \"\\u{1b}[31m\""),
            ("seen-bytes -1", "\"-1\" is not a number of bytes"),
            ("counter Up", "the counter \"Up\""),
            ("colour red", "the line \"colour red\""),
        ];
        for (text, message) in wrong {
            assert_eq!(Description::read(text).expect_err(text), message);
        }
        let many = format!("{usual}{}", "counter c\n".repeat(COUNTERS_MAX + 1));
        assert_eq!(Description::read(&many), Err("more than 64 counters".to_owned()));
    }
}
