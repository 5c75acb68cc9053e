//! The command as it was typed, for results that say how they are repeated.

/// The words of the command line, quoted for a shell where they need it.
pub(super) fn command_line() -> String {
    let is_plain = |word: &str| {
        !word.is_empty()
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,+".contains(c))
    };
    let words = std::env::args().skip(1).map(|word| match is_plain(&word) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    std::iter::once("nilometer".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
