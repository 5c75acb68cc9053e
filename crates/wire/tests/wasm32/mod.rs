//! Examples of the workspace compiled to wasm32, for tests of several crates: by Debian's `rustc-web` with
//! `rust-web-src` (one compiler with the sources of its own `core`) and rustup's `rust-lld`.

use std::path::{Path, PathBuf};
use std::process::Command;

const COMPILER: &str = "/usr/bin/rustc";

/// What a command prints, or nothing when it cannot be run or fails.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The linker that comes with the native toolchain, if all that is needed is there; otherwise what is missing.
pub fn linker() -> Result<PathBuf, &'static str> {
    let sysroot = output(Command::new(COMPILER).args(["--print", "sysroot"])).ok_or("rustc-web")?;
    if !Path::new(&sysroot).join("lib/rustlib/src/rust/library/core").exists() {
        return Err("rust-web-src");
    }
    let native = output(Command::new("rustc").args(["--print", "sysroot"])).ok_or("rustc")?;
    let host = Path::new(&native).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
    if host.exists() { Ok(host) } else { Err("rust-lld") }
}

/// Compiles the examples that cargo's arguments choose; returns the folder of their modules.
pub fn build(linker: &Path, chosen: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = root.join("target/wasm");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--target", "wasm32-unknown-unknown"])
        .arg("-Zbuild-std=core,alloc")
        .args(chosen)
        .current_dir(root)
        .env("RUSTC", COMPILER)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &target)
        // (Compiling takes longer than running what was compiled.)
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker)
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("wasm32-unknown-unknown/release/examples")
}
