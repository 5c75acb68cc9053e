//! What a router keeps: nothing that is older than it was, or that was revoked since.

use nilometer_loader::Store;
use nilometer_loader::artefact::{Manifest, sign};
use nilometer_router::plugin::Class;

use super::{artefact, key, manifest, module, scratch, version};

/// A store that trusts the first key.
fn store(name: &str) -> Store {
    let store = Store::new(&scratch(name).join("made"));
    store.trust_key(&key(1).public()).expect("trusted");
    store
}

fn message(outcome: anyhow::Result<impl Sized>) -> String {
    let error = outcome.err().expect("refused");
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn an_artefact_is_kept_and_loaded() {
    let store = store("kept");
    assert!(message(store.class("idle", None)).contains("the plugin idle is not installed"));
    store.install(&artefact("1.0.0", 1), None, false).expect("installed");
    store.install(&artefact("1.1.0", 2), Some(("idle", None)), false).expect("installed");
    store.install(&artefact("1.1.0", 2), None, false).expect("the same again");
    let loaded = store.class("idle", None).expect("a class");
    assert_eq!(loaded.facts().version, "1.1.0");
    let older = store.class("idle", Some(&version("1.0.0"))).expect("still here");
    assert_eq!(older.facts().version, "1.0.0");
    let list = store.list().expect("a list");
    assert_eq!(list.len(), 2);
    assert!(list.iter().all(|(_, artefact)| artefact.is_ok()));
    assert!(message(store.class("../idle", None)).contains("the name"));
}

#[test]
fn nothing_older_comes_back_unless_it_is_let() {
    let store = store("older");
    store.install(&artefact("1.10.0", 20), None, false).expect("installed");
    let older = artefact("1.9.0", 30);
    let line = message(store.install(&older, None, false));
    assert!(line.contains("idle 1.9.0 is older than 1.10.0"), "{line}");
    let replayed = artefact("1.10.0", 19);
    let line = message(store.install(&replayed, None, false));
    assert!(line.contains("possible replay of an old artefact"), "{line}");
    let replayed = artefact("2.0.0", 19);
    assert!(message(store.install(&replayed, None, false)).contains("replay of an old artefact"));
    let other_module = module("1.10.0", 3);
    let other = Manifest { sequence: 40, ..manifest("1.10.0", &other_module) };
    let line = message(store.install(&sign(&other, &other_module, &key(1)), None, false));
    assert!(line.contains("a change needs a new version"), "{line}");
    assert_eq!(store.class("idle", None).expect("a class").facts().version, "1.10.0");
    // Let, it is what runs, and the newest is remembered all the same.
    store.install(&older, None, true).expect("let");
    assert_eq!(store.class("idle", None).expect("a class").facts().version, "1.9.0");
    assert!(
        message(store.install(&artefact("1.9.5", 50), None, false)).contains("older than 1.10.0")
    );
}

#[test]
fn artefacts_revoked_since_are_not_loaded() {
    let store = store("revoked");
    let kept = store.install(&artefact("1.0.0", 1), None, false).expect("installed");
    assert!(message(store.revoke("modules all")).contains("neither"));
    store.revoke(&format!("module {}", kept.manifest.sha256)).expect("revoked");
    assert!(message(store.class("idle", None)).contains("idle 1.0.0 was revoked"));
    store.install(&artefact("1.0.1", 2), None, false).expect("another module");
    store.revoke(&format!("key {}", key(1).id())).expect("revoked");
    let line = message(store.class("idle", None));
    assert!(line.ends_with(&format!("signed by key {}, which was revoked", key(1).id())), "{line}");
    assert!(message(store.install(&artefact("1.0.2", 3), None, false)).contains("revoked"));
    let list = store.list().expect("a list");
    assert!(list.iter().all(|(_, artefact)| artefact.is_err()));
}

#[test]
fn another_plugin_than_the_one_that_was_wanted_is_refused() {
    let store = store("another");
    let bytes = artefact("1.0.0", 1);
    let line = message(store.install(&bytes, Some(("nat", None)), false));
    assert_eq!(line, "got idle 1.0.0 instead of nat");
    let wanted = version("1.0.1");
    let line = message(store.install(&bytes, Some(("idle", Some(&wanted))), false));
    assert_eq!(line, "got idle 1.0.0 instead of idle 1.0.1");
    assert!(store.list().expect("a list").is_empty(), "nothing was kept");
}

#[test]
fn a_manifest_that_lies_about_its_module_is_refused() {
    let store = store("lies");
    let module = module("1.0.0", 2);
    let lie = Manifest { version: version("9.0.0"), ..manifest("1.0.0", &module) };
    let line = message(store.install(&sign(&lie, &module, &key(1)), None, false));
    assert_eq!(line, "the module is idle 1.0.0, and the manifest says idle 9.0.0");
    let text = b"not WebAssembly";
    let lie = sign(&manifest("1.0.0", text), text, &key(1));
    assert!(message(store.install(&lie, None, false)).contains("not a valid module"));
}
