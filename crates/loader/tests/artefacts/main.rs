//! Artefacts that are damaged, old, revoked or of unknown signers are refused with one line, as are servers that cheat.

mod server;
mod store;

use std::path::{Path, PathBuf};

use nilometer_loader::artefact::{Artefact, ArtefactError, Manifest, sign};
use nilometer_loader::keys::{KeyError, PublicKey, SecretKey, SignatureError, Trust};
use nilometer_loader::{Limits, WasmClass};
use nilometer_router::plugin::Class;
use semver::Version;

/// A module that forwards everything; `pages` makes modules differ.
fn module(version: &str, pages: u32) -> Vec<u8> {
    let description = format!("name idle\nversion {version}\nseen-bytes 0\n");
    let place = (description.len() as u64) << 32 | 16;
    let description = description.replace('\n', "\\0a");
    let text = format!(
        "(module (memory (export \"memory\") {pages}) (data (i32.const 16) \"{description}\")
           (func (export \"nilometer_interface\") (result i32) i32.const 1)
           (func (export \"nilometer_describe\") (result i64) i64.const {place})
           (func (export \"nilometer_area\") (param i32) (result i32) i32.const 4096)
           (func (export \"nilometer_new\") (param i32 i32 i64) (result i32) i32.const 0)
           (func (export \"nilometer_process\") (param i32 i32 i64) (result i32) i32.const 0)
           (func (export \"nilometer_message\") (param i32 i32 i64) (result i32) i32.const 1)
           (func (export \"nilometer_timeout\") (param i64) (result i32) i32.const 0)
           (func (export \"nilometer_counters\") (result i32) i32.const 256))"
    );
    wat::parse_str(text).expect("a module")
}

fn key(number: u8) -> SecretKey {
    SecretKey::new([number; 32])
}

fn trust() -> Trust {
    let mut trust = Trust::default();
    trust.trust(key(1).public()).expect("room");
    trust
}

fn version(text: &str) -> Version {
    text.parse().expect("a version")
}

fn manifest(version_text: &str, module: &[u8]) -> Manifest {
    let mut made = Manifest::new("idle", version(version_text), module, &Limits::default());
    made.sequence = 100;
    made
}

/// The artefact of a version, signed by the key that is trusted.
fn artefact(version_text: &str, sequence: u64) -> Vec<u8> {
    let module = module(version_text, 2);
    let manifest = Manifest { sequence, ..manifest(version_text, &module) };
    sign(&manifest, &module, &key(1))
}

/// A folder of this test's own, empty.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("artefacts").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}

fn refused(bytes: &[u8], trust: &Trust) -> ArtefactError {
    Artefact::open(bytes, trust, Some(1_000)).expect_err("refused")
}

#[test]
fn signed_artefacts_are_opened() {
    let opened = Artefact::open(&artefact("1.2.3", 7), &trust(), Some(1_000)).expect("opened");
    assert_eq!((opened.manifest.sequence, opened.key), (7, key(1).id()));
    assert_eq!(opened.manifest.file_name(), "idle-1.2.3.nmp");
    let class = WasmClass::load(&opened.module, &Limits::default()).expect("a class");
    assert_eq!(class.facts().version, "1.2.3");
}

#[test]
fn every_cut_and_every_changed_byte_is_refused() {
    let whole = artefact("1.2.3", 7);
    for end in 0..whole.len() {
        refused(&whole[..end], &trust());
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        refused(&changed, &trust());
    }
    assert_eq!(refused(&whole[..whole.len() - 1], &trust()), ArtefactError::Cut("module"));
    assert_eq!(refused(&whole[..40], &trust()), ArtefactError::Cut("manifest"));
    let longer = [&whole[..], b"more"].concat();
    assert_eq!(refused(&longer, &trust()), ArtefactError::LeftOver(4));
    let mut damaged = whole.clone();
    *damaged.last_mut().expect("bytes") ^= 1;
    assert_eq!(refused(&damaged, &trust()), ArtefactError::Digest);
    let mut changed = whole;
    changed[30] ^= 1; // in the manifest
    assert_eq!(refused(&changed, &trust()), SignatureError::Signature(key(1).id()).into());
}

#[test]
fn unknown_and_revoked_keys_are_refused() {
    let module = module("1.0.0", 2);
    let by_other = sign(&manifest("1.0.0", &module), &module, &key(2));
    assert_eq!(refused(&by_other, &trust()), SignatureError::UnknownKey(key(2).id()).into());
    let ours = artefact("1.0.0", 1);
    let mut revoked = trust();
    revoked.revoke(&format!("\nkey {}\n", key(1).id())).expect("a list");
    assert_eq!(refused(&ours, &revoked), SignatureError::RevokedKey(key(1).id()).into());
    let mut revoked = trust();
    let digest = Artefact::open(&ours, &trust(), None).expect("opened").manifest.sha256;
    revoked.revoke(&format!("module {digest}")).expect("a list");
    assert_eq!(refused(&ours, &revoked), ArtefactError::RevokedModule("idle 1.0.0".into()));
}

#[test]
fn a_key_cannot_stand_for_another() {
    // The id of the trusted key, and a signature by another.
    let module = module("1.0.0", 2);
    let mut forged = sign(&manifest("1.0.0", &module), &module, &key(2));
    let ours = sign(&manifest("1.0.0", &module), &module, &key(1));
    let id_at = forged.len() - module.len() - 72;
    forged[id_at..id_at + 8].copy_from_slice(&ours[id_at..id_at + 8]);
    assert_eq!(refused(&forged, &trust()), SignatureError::Signature(key(1).id()).into());
}

#[test]
fn other_interfaces_and_expired_artefacts_are_refused() {
    let module = module("1.0.0", 2);
    let signed = |manifest: Manifest| sign(&manifest, &module, &key(1));
    let other = signed(Manifest { interface: 2, ..manifest("1.0.0", &module) });
    assert_eq!(refused(&other, &trust()), ArtefactError::Interface(2));
    let expired = signed(Manifest { expires_s: Some(990), ..manifest("1.0.0", &module) });
    assert_eq!(refused(&expired, &trust()), ArtefactError::Expired(10));
    // What was installed in time may go on.
    assert!(Artefact::open(&expired, &trust(), None).is_ok());
    let wrong = signed(Manifest { name: "../../etc".into(), ..manifest("1.0.0", &module) });
    assert_eq!(refused(&wrong, &trust()), ArtefactError::Manifest("the name \"../../etc\"".into()));
    assert_eq!(refused(b"\0asm", &trust()), ArtefactError::Beginning);
}

#[test]
fn keys_are_lines_and_nothing_else() {
    let secret = key(9);
    let again = SecretKey::read(&secret.text()).expect("a key");
    assert_eq!(again.id(), secret.id());
    let public = secret.public();
    assert_eq!(PublicKey::read(&public.text()), Ok(public.clone()));
    assert_eq!(PublicKey::read(&secret.text()), Err(KeyError::IsSecret));
    assert!(SecretKey::read(&public.text()).is_err());
    let weak = format!("nilometer-plugin-key {}", "0".repeat(64));
    assert_eq!(PublicKey::read(&weak), Err(KeyError::Weak));
    for text in ["", "nilometer-plugin-key 12", "nilometer-plugin-key", "ssh-ed25519 AAAA"] {
        assert!(PublicKey::read(text).is_err(), "{text}");
    }
    let list = "key 0011223344556677\nmodules all\n";
    assert_eq!(Trust::default().revoke(list), Err(KeyError::Revocation(2)));
}
