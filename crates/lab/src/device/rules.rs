//! The rules of a packet filter: a user's file, or the built-in ones.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use nilometer_files::document::bounded::read_text;
use nilometer_linux::nftables;
use serde::{Deserialize, Serialize};

/// The name of the rules among the results, and of the built-in ones in messages.
pub const RULES_FILE: &str = "rules.nft";

/// The longest file of rules, bytes.
const RULES_BYTES_MAX: u64 = 1 << 20;

/// Rules in the language of nftables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PathBuf", into = "PathBuf")]
pub struct Rules {
    path: PathBuf,
    text: String,
}

impl From<PathBuf> for Rules {
    fn from(path: PathBuf) -> Rules {
        Rules { path, text: String::new() }
    }
}

impl From<Rules> for PathBuf {
    fn from(rules: Rules) -> PathBuf {
        rules.path
    }
}

impl Rules {
    /// Those that are built in: a stateful firewall.
    pub fn built_in() -> Rules {
        Rules { path: RULES_FILE.into(), text: nftables::STATEFUL.to_owned() }
    }

    /// Reads the file, as it is seen from a folder.
    ///
    /// # Errors
    /// When it cannot be read as a text, or includes other files.
    pub fn load(&mut self, folder: &Path) -> Result<()> {
        self.path = folder.join(&self.path);
        self.text = read_text(&self.path, RULES_BYTES_MAX)?;
        let includes = self.text.lines().any(|line| line.trim_start().starts_with("include"));
        ensure!(
            !includes,
            "{}: rules that include other files could not be kept among the results; put all into one file",
            self.path.display()
        );
        Ok(())
    }

    /// Where they are from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Their text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same rules, under their name among the results.
    pub fn as_kept(&self) -> Rules {
        Rules { path: RULES_FILE.into(), text: self.text.clone() }
    }
}
