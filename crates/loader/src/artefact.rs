//! A plugin artefact: manifest, signature and module in one file, `NAME-VERSION.nmp`.
//!
//! ```text
//!   nilometer-plugin/1 ⏎ │ bytes of the manifest, u32 │ manifest, JSON │ key's id, 8 │ signature, 64 │ module
//!   └────────────── what the signature (ed25519) is of ──────────────────────────┘
//! ```
//!
//! The manifest has the module's length and SHA-256, so that the signature is of the module as well. Nothing of a file is
//! looked at before its signature holds, apart from lengths and the id of the key.

use std::time::{SystemTime, UNIX_EPOCH};

use nilometer_plugin::interface;
use semver::Version;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Limits;
use crate::keys::{KEY_ID_BYTES, KeyId, SIGNATURE_BYTES, SecretKey, SignatureError, Trust, hex};

/// How an artefact begins.
pub const BEGINNING: &[u8] = b"nilometer-plugin/1\n";
/// The longest manifest, bytes.
const MANIFEST_BYTES_MAX: usize = 16 << 10;
/// The longest artefact, bytes.
pub const ARTEFACT_BYTES_MAX: usize = Limits::MOST.module_bytes
    + MANIFEST_BYTES_MAX
    + BEGINNING.len()
    + 4
    + KEY_ID_BYTES
    + SIGNATURE_BYTES;

/// What an artefact says of its module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The plugin's name.
    pub name: String,
    /// Its version, by semantic versioning.
    pub version: Version,
    /// The version of the interface that the module is of.
    pub interface: u32,
    /// Grows with every signing: an artefact with a smaller one is old, whatever its version.
    pub sequence: u64,
    /// Until when it may be installed, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    /// Bytes of the module.
    pub module_bytes: usize,
    /// The SHA-256 of the module, in hexadecimal digits.
    pub sha256: String,
    /// What the module's instances may use.
    pub limits: ManifestLimits,
}

/// What the module's instances may use, as [`Limits`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestLimits {
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Instructions of a call.
    pub call_instructions: u64,
    /// Instructions for each packet of it.
    pub packet_instructions: u64,
}

impl From<&Limits> for ManifestLimits {
    fn from(limits: &Limits) -> ManifestLimits {
        ManifestLimits {
            memory_bytes: limits.memory_bytes,
            call_instructions: limits.call_instructions,
            packet_instructions: limits.packet_instructions,
        }
    }
}

impl From<&ManifestLimits> for Limits {
    fn from(limits: &ManifestLimits) -> Limits {
        Limits {
            memory_bytes: limits.memory_bytes,
            call_instructions: limits.call_instructions,
            packet_instructions: limits.packet_instructions,
            module_bytes: Limits::MOST.module_bytes,
            ..Limits::default()
        }
    }
}

/// Why a file is no artefact that may run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArtefactError {
    /// It begins otherwise.
    #[error("no plugin artefact: it does not begin with `nilometer-plugin/1`")]
    Beginning,
    /// It has too many bytes.
    #[error("the artefact has more than {ARTEFACT_BYTES_MAX} bytes")]
    TooLong,
    /// It ends before it should.
    #[error("the artefact is cut: it ends in its {0}")]
    Cut(&'static str),
    /// There is more than the module.
    #[error("the artefact has {0} bytes after its module")]
    LeftOver(usize),
    /// Its signature does not count.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Its manifest cannot be read.
    #[error("the manifest is wrong: {0}")]
    Manifest(String),
    /// It is of another version of the interface.
    #[error("it is of version {0} of the plugin interface, and this router supports 1")]
    Interface(u32),
    /// Its time is over.
    #[error("it expired {0} s ago")]
    Expired(u64),
    /// The module is another than the one that was signed.
    #[error("the module's digest is another than the manifest's: it was changed or damaged")]
    Digest,
    /// The module was revoked.
    #[error("{0} was revoked")]
    RevokedModule(String),
}

/// An artefact whose signature and digest hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artefact {
    /// What it says.
    pub manifest: Manifest,
    /// The key that signed it.
    pub key: KeyId,
    /// The module.
    pub module: Vec<u8>,
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

impl Manifest {
    /// Of a module.
    pub fn new(name: &str, version: Version, module: &[u8], limits: &Limits) -> Manifest {
        Manifest {
            name: name.to_owned(),
            version,
            interface: interface::VERSION,
            sequence: now_s(),
            expires_s: None,
            module_bytes: module.len(),
            sha256: digest(module),
            limits: limits.into(),
        }
    }

    /// The name of the file.
    pub fn file_name(&self) -> String {
        format!("{}-{}.nmp", self.name, self.version)
    }
}

/// Signs a module: the bytes of its artefact.
pub fn sign(manifest: &Manifest, module: &[u8], key: &SecretKey) -> Vec<u8> {
    let text = serde_json::to_vec(manifest).expect("a manifest is JSON");
    let mut bytes = BEGINNING.to_vec();
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text);
    bytes.extend(key.id().0);
    let signature = key.sign(&bytes);
    bytes.extend(signature);
    bytes.extend(module);
    bytes
}

/// Takes so many bytes from the front.
fn split<'a>(
    bytes: &mut &'a [u8],
    count: usize,
    part: &'static str,
) -> Result<&'a [u8], ArtefactError> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(ArtefactError::Cut(part))?;
    *bytes = rest;
    Ok(taken)
}

/// The manifest of an artefact whose signature is not checked: for lists alone, never for code that runs.
///
/// # Errors
/// When it cannot be read.
pub fn manifest_unverified(bytes: &[u8]) -> Result<Manifest, ArtefactError> {
    let mut rest = bytes.strip_prefix(BEGINNING).ok_or(ArtefactError::Beginning)?;
    let text = manifest_text(&mut rest)?;
    let manifest = serde_json::from_slice(text);
    let manifest: Manifest = manifest.map_err(|why| ArtefactError::Manifest(why.to_string()))?;
    split(&mut rest, KEY_ID_BYTES + SIGNATURE_BYTES, "signature")?;
    manifest.check(rest, &Trust::default(), None)?;
    Ok(manifest)
}

fn manifest_text<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], ArtefactError> {
    let length = split(rest, 4, "manifest")?;
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if length > MANIFEST_BYTES_MAX {
        return Err(ArtefactError::Manifest(format!("it has {length} bytes")));
    }
    split(rest, length, "manifest")
}

impl Artefact {
    /// Opens an artefact, if a trusted key has signed it and it is whole; what is revoked is refused, and what has
    /// expired by `now_s`, where that is given.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn open(
        bytes: &[u8],
        trust: &Trust,
        now_s: Option<u64>,
    ) -> Result<Artefact, ArtefactError> {
        if bytes.len() > ARTEFACT_BYTES_MAX {
            return Err(ArtefactError::TooLong);
        }
        let mut rest = bytes.strip_prefix(BEGINNING).ok_or(ArtefactError::Beginning)?;
        let text = manifest_text(&mut rest)?;
        let id = split(&mut rest, KEY_ID_BYTES, "signature")?;
        let key = KeyId(id.try_into().expect("as many bytes"));
        let signed = &bytes[..bytes.len() - rest.len()];
        let signature = split(&mut rest, SIGNATURE_BYTES, "signature")?;
        trust.verify(key, signed, signature.try_into().expect("as many bytes"))?;
        let manifest = serde_json::from_slice(text);
        let manifest: Manifest =
            manifest.map_err(|why| ArtefactError::Manifest(why.to_string()))?;
        manifest.check(rest, trust, now_s)?;
        Ok(Artefact { manifest, key, module: rest.to_vec() })
    }
}

impl Manifest {
    /// Holds a module against its manifest.
    fn check(&self, module: &[u8], trust: &Trust, now_s: Option<u64>) -> Result<(), ArtefactError> {
        crate::wasm::check_name(&self.name).map_err(ArtefactError::Manifest)?;
        if self.interface != interface::VERSION {
            return Err(ArtefactError::Interface(self.interface));
        }
        if module.len() < self.module_bytes {
            return Err(ArtefactError::Cut("module"));
        }
        if module.len() > self.module_bytes {
            return Err(ArtefactError::LeftOver(module.len() - self.module_bytes));
        }
        if digest(module) != self.sha256 {
            return Err(ArtefactError::Digest);
        }
        if trust.has_revoked(&self.sha256) {
            return Err(ArtefactError::RevokedModule(format!("{} {}", self.name, self.version)));
        }
        match (now_s, self.expires_s) {
            (Some(now), Some(end)) if now >= end => Err(ArtefactError::Expired(now - end)),
            _ => Ok(()),
        }
    }
}
