//! A ROUTER.toml read from its file, the old names of its tables included.

use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use nilometer_files::{document, say};

use super::config::RouterConfig;

/// A table that was renamed: the old name works for one more version.
const RENAMED: (&str, &str) = ("manners", "rfc1812");

/// The contents of a file.
pub struct Read {
    /// Its text.
    pub text: String,
    /// All keys that it has.
    pub keys: toml::Table,
    /// The router that it describes, not yet checked.
    pub config: RouterConfig,
}

/// Reads a file; prints a line to stderr where a table has its old name.
///
/// # Errors
/// One line: the file, and what is wrong with it.
pub fn read(path: &Path) -> Result<Read> {
    let text = document::bounded::read_text(path, document::bounded::TOML_BYTES_MAX)?;
    let name = path.display().to_string();
    let wrong = |error: toml::de::Error| document::toml_error(&name, &text, &error);
    let keys: toml::Table = toml::from_str(&text).map_err(wrong)?;
    let message = old_name(&keys).map_err(|why| anyhow!("{name}: {why}"))?;
    let config: RouterConfig = toml::from_str(&text).map_err(wrong)?;
    if let Some(message) = message {
        say!("warning: {name}: {message}");
    }
    Ok(Read { text, keys, config })
}

/// The message about a table that has its old name; an error where it has both.
fn old_name(keys: &toml::Table) -> Result<Option<String>> {
    let (old, new) = RENAMED;
    let has_old = keys.contains_key(old);
    ensure!(
        !(has_old && keys.contains_key(new)),
        "[{old}] is the old name of [{new}], and both are there; keep [{new}]"
    );
    Ok(has_old
        .then(|| format!("[{old}] is called [{new}] now; the old name goes with the next version")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Result<Option<String>> {
        old_name(&toml::from_str(text).expect("TOML"))
    }

    #[test]
    fn the_old_name_of_rfc1812_works_and_is_warned_of() {
        let [old, new] = ["manners", "rfc1812"].map(|name| format!("[{name}]\nhop_limit = 9\n"));
        for text in [&old, &new] {
            let config: RouterConfig = toml::from_str(text).expect("either name");
            assert_eq!(config.rfc1812.hop_limit, 9, "{text}");
            let saved = toml::to_string(&config).expect("TOML");
            assert!(saved.contains("[rfc1812]") && !saved.contains("manners"), "{saved}");
        }
        let warning = message(&old).expect("it works").expect("with a warning");
        assert!(warning.contains("[manners] is called [rfc1812] now"), "{warning}");
        assert_eq!(warning.lines().count(), 1);
        assert_eq!(message(&new).expect("it works"), None);
        let both = message(&format!("{old}{new}")).expect_err("refused").to_string();
        assert!(both.contains("both are there; keep [rfc1812]"), "{both}");
        // A direct parse of the text is refused as well.
        assert!(toml::from_str::<RouterConfig>(&format!("{old}{new}")).is_err());
    }
}
