//! Where a router keeps its plugins: artefacts that were checked, trusted keys, revocations, and how new each was.
//!
//! ```text
//!   DIR/keys/ID.pub            keys that are trusted
//!   DIR/revoked                keys and modules that are no more
//!   DIR/artefacts/NAME-VERSION.nmp
//!   DIR/installed.json         of each name, the newest version and sequence that ever were
//! ```
//!
//! An artefact is checked when it is installed and again whenever it is loaded: its key or its module may have been
//! revoked since.

mod installed;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nilometer_files::document::together;
use nilometer_linux::system_file::within;
use nilometer_router::plugin::Class;
use semver::Version;

use crate::artefact::{ARTEFACT_BYTES_MAX, Artefact, BEGINNING, now_s};
use crate::keys::{PublicKey, Trust};
use crate::{Limits, WasmClass};
use installed::{Installed, Newest};

/// The longest list of revocations, key and list of what is installed, bytes.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Files that are looked at in a directory.
const FILES_MAX: usize = 10_000;
const LIST: &str = "installed.json";
const REVOKED: &str = "revoked";

/// A directory of plugins.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// A file within its limit, or none where there is none.
fn read(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let shown = path.display();
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| format!("cannot read {shown}"))?,
    };
    let bytes = within(file, bytes_max).with_context(|| format!("cannot read {shown}"))?;
    bytes.map(Some).ok_or_else(|| anyhow!("{shown} has more than {bytes_max} bytes"))
}

fn read_text(path: &Path) -> Result<Option<String>> {
    let Some(bytes) = read(path, TEXT_BYTES_MAX)? else { return Ok(None) };
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| anyhow!("{} is not UTF-8 text", path.display()))
}

/// The files of a directory with an ending, in order; none where there is no directory.
fn files(directory: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let shown = directory.display();
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.with_context(|| format!("cannot read {shown}"))?,
    };
    let mut found = Vec::new();
    for (number, entry) in entries.enumerate() {
        ensure!(number < FILES_MAX, "{shown} has more than {FILES_MAX} files");
        let path = entry.with_context(|| format!("cannot read {shown}"))?.path();
        if path.extension().is_some_and(|found| found == ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl Store {
    /// The plugins of a directory, which may still be missing.
    pub fn new(directory: &Path) -> Store {
        Store { directory: directory.to_owned() }
    }

    /// The default directory: the system's for root, one below the home directory for other users.
    pub fn usual_directory() -> PathBuf {
        let home = std::env::var_os("HOME").filter(|_| !rustix::process::geteuid().is_root());
        match (std::env::var_os("NILOMETER_PLUGINS"), home) {
            (Some(directory), _) => directory.into(),
            (None, Some(home)) => Path::new(&home).join(".local/share/nilometer/plugins"),
            (None, None) => "/var/lib/nilometer/plugins".into(),
        }
    }

    fn write(&self, below: &str, name: &str, bytes: &[u8], beginning: &[u8]) -> Result<()> {
        let directory = self.directory.join(below);
        let output = together::guard(&directory, Path::new(name), &[], true, beginning)?;
        together::write(&directory, &[(output, bytes)])
    }

    /// Which keys are trusted, and what was revoked.
    ///
    /// # Errors
    /// When a key or the list cannot be read: then nothing is trusted.
    pub fn trust(&self) -> Result<Trust> {
        let mut trust = Trust::default();
        for path in files(&self.directory.join("keys"), "pub")? {
            let text = read_text(&path)?.unwrap_or_default();
            let key = PublicKey::read(&text).and_then(|key| trust.trust(key));
            key.with_context(|| path.display().to_string())?;
        }
        let revoked = self.directory.join(REVOKED);
        let list = read_text(&revoked)?.unwrap_or_default();
        trust.revoke(&list).with_context(|| revoked.display().to_string())?;
        Ok(trust)
    }

    /// Trusts a key from now on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn trust_key(&self, key: &PublicKey) -> Result<()> {
        self.write(
            "keys",
            &format!("{}.pub", key.id()),
            key.text().as_bytes(),
            b"nilometer-plugin-key",
        )
    }

    /// Adds a line to the list of revocations: `key ID` or `module SHA-256`.
    ///
    /// # Errors
    /// When it is neither, or cannot be written.
    pub fn revoke(&self, line: &str) -> Result<()> {
        Trust::default().revoke(line)?;
        let mut list = read_text(&self.directory.join(REVOKED))?.unwrap_or_default();
        if !list.is_empty() && !list.ends_with('\n') {
            list.push('\n');
        }
        list.push_str(line);
        list.push('\n');
        self.write("", REVOKED, list.as_bytes(), b"")
    }

    /// Checks an artefact, tries its module, and keeps it. Where `expected` is given, it must be that plugin. An older
    /// version than ever was, or an older artefact of the same, is refused unless `allow_downgrade`.
    ///
    /// # Errors
    /// The first thing that is wrong; nothing was kept then.
    pub fn install(
        &self,
        bytes: &[u8],
        expected: Option<(&str, Option<&Version>)>,
        allow_downgrade: bool,
    ) -> Result<Artefact> {
        let artefact = Artefact::open(bytes, &self.trust()?, Some(now_s()))?;
        let manifest = &artefact.manifest;
        let (name, version) = (&manifest.name, &manifest.version);
        if let Some((wanted, of)) = expected {
            let is_it = wanted == name && of.is_none_or(|of| of == version);
            let wanted_version = of.map_or(String::new(), |of| format!(" {of}"));
            ensure!(is_it, "got {name} {version} instead of {wanted}{wanted_version}");
        }
        class(&artefact)?;
        let mut installed = self.installed()?;
        installed.admit(manifest, allow_downgrade)?;
        self.write("artefacts", &manifest.file_name(), bytes, BEGINNING)?;
        self.write("", LIST, installed.text()?.as_bytes(), b"{")?;
        Ok(artefact)
    }

    fn installed(&self) -> Result<Installed> {
        let path = self.directory.join(LIST);
        match read_text(&path)? {
            None => Ok(Installed::default()),
            Some(text) => Installed::read(&text).with_context(|| path.display().to_string()),
        }
    }

    /// The artefacts that are here, each with what is wrong with it by now.
    ///
    /// # Errors
    /// When the directory or its keys cannot be read.
    pub fn list(&self) -> Result<Vec<(PathBuf, Result<Artefact>)>> {
        let trust = self.trust()?;
        let open = |path: &Path| -> Result<Artefact> {
            let bytes = read(path, ARTEFACT_BYTES_MAX as u64)?.context("it is gone")?;
            Ok(Artefact::open(&bytes, &trust, None)?)
        };
        let paths = files(&self.directory.join("artefacts"), "nmp")?;
        Ok(paths.into_iter().map(|path| (path.clone(), open(&path))).collect())
    }

    /// The class of an artefact that is here: of a version, or of the one that was installed last.
    ///
    /// # Errors
    /// When it is not here, or may not run (any more).
    pub fn class(&self, name: &str, version: Option<&Version>) -> Result<WasmClass> {
        crate::wasm::check_name(name).map_err(|why| anyhow!("{why}"))?;
        let version = match version {
            Some(version) => version.clone(),
            None => match self.installed()?.of(name) {
                Some(Newest { current, .. }) => current.clone(),
                None => bail!("the plugin {name} is not installed in {}", self.directory.display()),
            },
        };
        let path = self.directory.join(format!("artefacts/{name}-{version}.nmp"));
        let found = read(&path, ARTEFACT_BYTES_MAX as u64)?;
        let bytes = found.with_context(|| format!("{name} {version} is not installed"))?;
        let open = || -> Result<WasmClass> {
            let artefact = Artefact::open(&bytes, &self.trust()?, None)?;
            let manifest = &artefact.manifest;
            ensure!(manifest.name == name && manifest.version == version, "it is another plugin");
            class(&artefact)
        };
        open().with_context(|| format!("{name} {version}"))
    }
}

/// The class that an artefact has, if it is what its manifest says.
fn class(artefact: &Artefact) -> Result<WasmClass> {
    let manifest = &artefact.manifest;
    let class = WasmClass::load(&artefact.module, &Limits::from(&manifest.limits))?;
    let facts = class.facts();
    let is_same = facts.name == manifest.name && facts.version == manifest.version.to_string();
    ensure!(
        is_same,
        "the module is {} {}, and the manifest says {} {}",
        facts.name,
        facts.version,
        manifest.name,
        manifest.version
    );
    Ok(class)
}
