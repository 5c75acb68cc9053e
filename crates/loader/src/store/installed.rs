//! Of each plugin, the newest version and sequence that ever were here, so that a rollback is noticed.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use semver::Version;
use serde::{Deserialize, Serialize};

use crate::artefact::Manifest;

const FORMAT: &str = "nilometer-plugins-installed/1";

/// What was newest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Newest {
    /// The version that was installed last.
    pub(super) current: Version,
    version: Version,
    sequence: u64,
    /// Of the module of that version.
    sha256: String,
}

/// What was newest of each name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Installed {
    format: String,
    plugins: BTreeMap<String, Newest>,
}

impl Default for Installed {
    fn default() -> Installed {
        Installed { format: FORMAT.to_owned(), plugins: BTreeMap::new() }
    }
}

impl Installed {
    pub(super) fn read(text: &str) -> Result<Installed> {
        let read: Installed = serde_json::from_str(text)?;
        ensure!(read.format == FORMAT, "its format is `{}`, and not `{FORMAT}`", read.format);
        Ok(read)
    }

    pub(super) fn text(&self) -> Result<String> {
        nilometer_files::document::json_text(self)
    }

    pub(super) fn of(&self, name: &str) -> Option<&Newest> {
        self.plugins.get(name)
    }

    /// Admits an artefact, and remembers it.
    pub(super) fn admit(&mut self, manifest: &Manifest, allow_downgrade: bool) -> Result<()> {
        let Manifest { name, version, sequence, sha256, .. } = manifest;
        let fresh = || Newest {
            current: version.clone(),
            version: version.clone(),
            sequence: *sequence,
            sha256: sha256.clone(),
        };
        let Some(newest) = self.plugins.get_mut(name) else {
            self.plugins.insert(name.clone(), fresh());
            return Ok(());
        };
        if !allow_downgrade {
            if *version < newest.version {
                bail!(
                    "{name} {version} is older than {}, which was installed before; --allow-downgrade takes \
                     it",
                    newest.version
                );
            }
            if *sequence < newest.sequence {
                bail!(
                    "{name} {version} is older than the installed artefact (sequence {sequence}, not {}): \
                     possible replay of an old artefact; --allow-downgrade accepts it",
                    newest.sequence
                );
            }
            if *version == newest.version && *sha256 != newest.sha256 {
                bail!(
                    "{name} {version} was installed with another module; a change needs a new version"
                );
            }
        }
        newest.current = version.clone();
        if *version >= newest.version {
            newest.version = version.clone();
            newest.sha256 = sha256.clone();
        }
        newest.sequence = newest.sequence.max(*sequence);
        Ok(())
    }
}
