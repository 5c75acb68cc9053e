//! Keys that sign plugins, keys that are trusted, and what was revoked.
//!
//! A key is a line of text: `nilometer-plugin-key DIGITS` if public, `nilometer-plugin-secret-key DIGITS` if secret. The
//! id is the beginning of the public key's SHA-256. A list of revocations has lines `key ID` and `module SHA-256`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};

/// Bytes of a key's id.
pub const KEY_ID_BYTES: usize = 8;
/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;
const KEY_BYTES: usize = 32;
const PUBLIC: &str = "nilometer-plugin-key";
const SECRET: &str = "nilometer-plugin-secret-key";
/// Keys that are trusted at most, and lines of a list of revocations.
const KEYS_MAX: usize = 1_024;
const REVOKED_MAX: usize = 100_000;

/// A key's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u8; KEY_ID_BYTES]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Its key is not trusted.
    #[error(
        "signed by key {0}, which is not trusted here (`nilometer plugin key trust` trusts one)"
    )]
    UnknownKey(KeyId),
    /// Its key was revoked.
    #[error("signed by key {0}, which was revoked")]
    RevokedKey(KeyId),
    /// The signature is of something else.
    #[error("the signature does not hold: the manifest was changed, or key {0} did not sign it")]
    Signature(KeyId),
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why a text is no key, or a list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is something else.
    #[error("no key: it must be a line `{0} DIGITS` with 64 hexadecimal digits")]
    Text(&'static str),
    /// The secret key was given where the public key is wanted.
    #[error("this is a secret key; give the one that ends with `.pub`")]
    IsSecret,
    /// No signature could be trusted that it makes.
    #[error("the key is weak: any signature would hold")]
    Weak,
    /// A line of the list of revocations.
    #[error("line {0} of the list of revocations is neither `key ID` nor `module SHA-256`")]
    Revocation(usize),
    /// There are too many.
    #[error("more than {0} lines")]
    TooMany(usize),
}

fn bytes_of<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let is_hex = digits.len() == 2 * N && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (byte, at) in bytes.iter_mut().zip((0..digits.len()).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    is_hex.then_some(bytes)
}

fn key_bytes(text: &str, kind: &'static str) -> Result<[u8; KEY_BYTES], KeyError> {
    let (found, digits) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    match found {
        SECRET if kind == PUBLIC => Err(KeyError::IsSecret),
        _ if found == kind => bytes_of(digits).ok_or(KeyError::Text(kind)),
        _ => Err(KeyError::Text(kind)),
    }
}

impl FromStr for KeyId {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<KeyId, KeyError> {
        bytes_of(text).map(KeyId).ok_or(KeyError::Text("ID"))
    }
}

/// A key that signs.
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// Of 32 unpredictable bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> SecretKey {
        SecretKey(SigningKey::from_bytes(&bytes))
    }

    /// Reads the line of one.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(text: &str) -> Result<SecretKey, KeyError> {
        key_bytes(text, SECRET).map(SecretKey::new)
    }

    /// Its line.
    pub fn text(&self) -> String {
        format!("{SECRET} {}\n", hex(self.0.as_bytes()))
    }

    /// The key by which others hold its signatures.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Its id.
    pub fn id(&self) -> KeyId {
        self.public().id()
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.0.sign(bytes).to_bytes()
    }
}

/// A key by which signatures are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads the line of one.
    ///
    /// # Errors
    /// When it is none, or a weak one.
    pub fn read(text: &str) -> Result<PublicKey, KeyError> {
        let bytes = key_bytes(text, PUBLIC)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Text(PUBLIC))?;
        if key.is_weak() { Err(KeyError::Weak) } else { Ok(PublicKey(key)) }
    }

    /// Its line.
    pub fn text(&self) -> String {
        format!("{PUBLIC} {}\n", hex(self.0.as_bytes()))
    }

    /// Its id.
    pub fn id(&self) -> KeyId {
        let digest = Sha256::digest(self.0.as_bytes());
        KeyId(digest[..KEY_ID_BYTES].try_into().expect("as many bytes"))
    }
}

/// Which keys are trusted, and what was revoked.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    keys: BTreeMap<KeyId, PublicKey>,
    revoked_keys: BTreeSet<KeyId>,
    revoked_modules: BTreeSet<String>,
}

impl Trust {
    /// Trusts a key.
    ///
    /// # Errors
    /// When there are too many.
    pub fn trust(&mut self, key: PublicKey) -> Result<(), KeyError> {
        if self.keys.len() >= KEYS_MAX {
            return Err(KeyError::TooMany(KEYS_MAX));
        }
        self.keys.insert(key.id(), key);
        Ok(())
    }

    /// Takes a list of revocations.
    ///
    /// # Errors
    /// When a line is none: nothing is trusted by a list that cannot be read.
    pub fn revoke(&mut self, list: &str) -> Result<(), KeyError> {
        for (number, line) in list.lines().enumerate() {
            if number >= REVOKED_MAX {
                return Err(KeyError::TooMany(REVOKED_MAX));
            }
            let wrong = KeyError::Revocation(number + 1);
            match line.trim().split_once(' ') {
                Some(("key", id)) => {
                    _ = self.revoked_keys.insert(id.trim().parse().map_err(|_| wrong)?);
                }
                Some(("module", digits)) => {
                    let digest: [u8; 32] = bytes_of(digits.trim()).ok_or(wrong)?;
                    self.revoked_modules.insert(hex(&digest));
                }
                _ if line.trim().is_empty() => {}
                _ => return Err(wrong),
            }
        }
        Ok(())
    }

    /// The trusted keys, and whether each was revoked.
    pub fn keys(&self) -> impl Iterator<Item = (KeyId, bool)> + '_ {
        self.keys.keys().map(|id| (*id, self.revoked_keys.contains(id)))
    }

    pub(crate) fn has_revoked(&self, sha256: &str) -> bool {
        self.revoked_modules.contains(sha256)
    }

    pub(crate) fn verify(
        &self,
        id: KeyId,
        signed: &[u8],
        signature: &[u8; SIGNATURE_BYTES],
    ) -> Result<(), SignatureError> {
        if self.revoked_keys.contains(&id) {
            return Err(SignatureError::RevokedKey(id));
        }
        let key = self.keys.get(&id).ok_or(SignatureError::UnknownKey(id))?;
        let holds = key.0.verify_strict(signed, &Signature::from_bytes(signature));
        holds.map_err(|_| SignatureError::Signature(id))
    }
}
