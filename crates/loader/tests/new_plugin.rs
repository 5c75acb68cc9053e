//! A new plugin builds without a network, passes its own test, and becomes a class that does what it says.

use std::path::{Path, PathBuf};
use std::process::Command;

use nilometer_loader::build::{Compiler, build};
use nilometer_loader::{Limits, WasmClass, sdk};
use nilometer_router::plugin::Class;

fn made(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-plugin").join(name);
    // (What an earlier run left there would stand in for what is missing now.)
    for part in ["src", "nilometer-plugin"] {
        let _ = std::fs::remove_dir_all(folder.join(part));
    }
    let _ = std::fs::remove_file(folder.join("Cargo.toml"));
    for (path, text) in sdk::files(name).expect("a name") {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    folder
}

#[test]
fn a_new_plugin_passes_its_own_test_without_a_network() {
    let folder = made("every-other");
    let tested = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--quiet"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo");
    let stderr = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success(), "{stderr}");
    assert!(!stderr.contains("warning"), "{stderr}");
}

#[test]
fn a_new_plugin_becomes_a_module() {
    let folder = made("a-module");
    let compiler = match Compiler::find() {
        Ok(compiler) => compiler,
        Err(missing) => return println!("skipped: {missing}"),
    };
    let module = build(&folder, &compiler).expect("it compiles");
    let bytes = std::fs::read(module).expect("a module");
    let class = WasmClass::load(&bytes, &Limits::default()).expect("a class");
    assert_eq!((class.facts().name.as_str(), class.facts().seen_bytes), ("a-module", 20));
    assert_eq!(class.counters(), ["packets", "dropped"]);
    assert!(class.instantiate("drop_dscp=46", 1).is_ok());
    let refused = class.instantiate("colour=red", 1).err().expect("refused").to_string();
    assert_eq!(refused, "the configuration is refused: there is no setting `colour`");
    // What is no crate, and one that does not compile.
    let nowhere = build(&folder.join("src"), &compiler).expect_err("no crate");
    assert!(nowhere.to_string().contains("has no Cargo.toml"), "{nowhere}");
}
