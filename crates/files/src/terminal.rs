//! Messages: the only writer of lines on stderr, and escaping of names for display.
//!
//! Names of files and words from files may contain anything: an escape sequence that recolours or
//! rewrites a terminal, a line feed that splits a line in two, marks that reverse the direction of
//! writing so that a name reads as another. All of these are shown as escapes, as in a Rust string.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};
use std::path::Path;

/// Prints one line on stderr, with the program's name before it.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::terminal::line(format_args!($($words)*)) };
}

/// Prints one line on stderr, with the program's name before it; whatever it contains, it stays one
/// line.
pub fn line(words: fmt::Arguments<'_>) {
    eprintln!("nilometer: {}", plain(&words.to_string()));
}

/// A text with everything escaped that a terminal or a page would interpret instead of showing.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match is_unprintable(letter) {
            true => write!(shown, "{}", letter.escape_default()).expect("memory can be written"),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// A path, escaped for display.
pub fn shown(path: &Path) -> impl Display {
    plain(&path.display().to_string()).into_owned()
}

/// Control characters, line and paragraph separators, and letters that change the direction of
/// writing or are invisible (Unicode's Bidi_Control and the zero-width ones).
pub fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_text_is_unchanged() {
        let cases = [
            ("a\x1b[31mb\nc", r"a\u{1b}[31mb\nc"),
            ("tab\tcr\rdel\x7f", r"tab\tcr\rdel\u{7f}"),
            ("csi\u{9b}31m", r"csi\u{9b}31m"),
            ("exe.\u{202e}gpj", r"exe.\u{202e}gpj"),
            ("\u{feff}a\u{2028}b\u{200b}c", r"\u{feff}a\u{2028}b\u{200b}c"),
            ("Grüße, 5 µs – 中文 'x' \\ \"", "Grüße, 5 µs – 中文 'x' \\ \""),
        ];
        for (text, wanted) in cases {
            assert_eq!(plain(text), wanted);
            assert!(!shown(Path::new(text)).to_string().contains(is_unprintable));
        }
        assert!(matches!(plain("as it is"), Cow::Borrowed(_)));
    }
}
