//! A configuration of words `name=value`, as the plugins of Nilometer take it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;

/// The words of a configuration; each is taken once, and an unused one is an error.
pub struct Settings<'a> {
    words: Vec<(&'a str, &'a str)>,
}

impl<'a> Settings<'a> {
    /// The words of a text, which white space separates.
    ///
    /// # Errors
    /// When a word has no `=`, or a name appears twice.
    pub fn parse(text: &'a str) -> Result<Settings<'a>, String> {
        let mut words: Vec<(&str, &str)> = Vec::new();
        for word in text.split_whitespace() {
            let Some((name, value)) = word.split_once('=') else {
                return Err(format!("`{word}` is not `name=value`"));
            };
            if words.iter().any(|(there, _)| *there == name) {
                return Err(format!("`{name}` stands twice"));
            }
            words.push((name, value));
        }
        Ok(Settings { words })
    }

    /// Whether a value is given and not yet taken.
    pub fn has(&self, name: &str) -> bool {
        self.words.iter().any(|(there, _)| *there == name)
    }

    /// Takes a value as text.
    pub fn text(&mut self, name: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|(there, _)| *there == name)?;
        Some(self.words.swap_remove(at).1)
    }

    /// Takes a value, if it is given.
    ///
    /// # Errors
    /// When it is not one of the type.
    pub fn optional<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(value) = self.text(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("`{name}={value}` cannot be read"))
    }

    /// Takes a value that must be given.
    ///
    /// # Errors
    /// When it is missing or not one of the type.
    pub fn required<T: FromStr>(&mut self, name: &str) -> Result<T, String> {
        self.optional(name)?.ok_or_else(|| format!("`{name}=` is missing"))
    }

    /// Takes a value, or `usual` if none is given.
    ///
    /// # Errors
    /// When it is not one of the type.
    pub fn or<T: FromStr>(&mut self, name: &str, usual: T) -> Result<T, String> {
        Ok(self.optional(name)?.unwrap_or(usual))
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// If a word was not taken: there is no such name.
    pub fn finish(self) -> Result<(), String> {
        match self.words.first() {
            Some((name, _)) => Err(format!("there is no setting `{name}`")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_once_and_none_is_left() {
        let mut settings = Settings::parse(" rate=8  burst=9 ").expect("words");
        assert_eq!(settings.required::<u64>("rate"), Ok(8));
        assert_eq!(settings.required::<u64>("rate"), Err("`rate=` is missing".into()));
        assert_eq!(settings.or("delay", 4u8), Ok(4));
        assert_eq!(settings.finish(), Err("there is no setting `burst`".into()));
    }

    #[test]
    fn wrong_settings_are_named() {
        let error = |text| Settings::parse(text).err().expect("an error");
        assert_eq!(error("fast"), "`fast` is not `name=value`");
        assert_eq!(error("a=1 a=2"), "`a` stands twice");
        let mut settings = Settings::parse("rate=much").expect("words");
        assert_eq!(settings.required::<u64>("rate"), Err("`rate=much` cannot be read".into()));
    }
}
