//! A plugin's crate compiled to WebAssembly, by whichever compiler is there that can.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Debian's compiler, with the sources of its own `core`.
const DEBIAN: &str = "/usr/bin/rustc";
const TARGET: &str = "wasm32-unknown-unknown";
const ADVICE: &str = "no compiler for wasm32-unknown-unknown is here: `rustup target add wasm32-unknown-unknown` adds \
    one, or on Debian `apt-get install rustc-web rust-web-src`";

/// A compiler that makes modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// The user's own, which has the target.
    Own,
    /// Debian's, which compiles `core` itself, with a linker.
    Debian(PathBuf),
}

impl Compiler {
    /// How it is named.
    pub fn name(&self) -> &'static str {
        match self {
            Compiler::Own => "rustc",
            Compiler::Debian(_) => "rustc-web",
        }
    }

    /// The first that is there.
    ///
    /// # Errors
    /// One line that says what to install.
    pub fn find() -> Result<Compiler> {
        let libraries = printed("rustc", &["--print", "target-libdir", "--target", TARGET]);
        if libraries.is_some_and(|directory| holds_core(Path::new(&directory))) {
            return Ok(Compiler::Own);
        }
        let sysroot = printed(DEBIAN, &["--print", "sysroot"]).context(ADVICE)?;
        if !Path::new(&sysroot).join("lib/rustlib/src/rust/library/core").is_dir() {
            bail!("{ADVICE}");
        }
        let native = printed("rustc", &["--print", "sysroot"]).unwrap_or_default();
        let host = printed("rustc", &["--print", "host-tuple"]).unwrap_or_default();
        let own = Path::new(&native).join("lib/rustlib").join(host).join("bin/rust-lld");
        if own.exists() {
            return Ok(Compiler::Debian(own));
        }
        for linker in ["/usr/bin/rust-lld", "/usr/bin/wasm-ld", "/usr/bin/wasm-ld-14"] {
            if Path::new(linker).exists() {
                return Ok(Compiler::Debian(linker.into()));
            }
        }
        bail!("{ADVICE}; and a linker: `apt-get install lld`")
    }
}

fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn holds_core(directory: &Path) -> bool {
    let mut entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
}

/// Compiles the crate in a directory: where its module is. What cargo says goes to stderr.
///
/// # Errors
/// When there is no crate, no compiler, or it does not compile.
pub fn build(directory: &Path, compiler: &Compiler) -> Result<PathBuf> {
    let shown = directory.display();
    if !directory.join("Cargo.toml").is_file() {
        bail!("{shown} has no Cargo.toml; `nilometer plugin new NAME` makes a plugin");
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--lib", "--target", TARGET]);
    cargo.arg("--message-format=json-render-diagnostics");
    cargo.current_dir(directory).env_remove("RUSTFLAGS").stderr(Stdio::inherit());
    if let Compiler::Debian(linker) = compiler {
        cargo.arg("-Zbuild-std=core,alloc").env("RUSTC", DEBIAN).env("RUSTC_BOOTSTRAP", "1");
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
    }
    let output = cargo.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("{shown} does not compile");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let made = text.lines().rev().find_map(module);
    let made = made.with_context(|| {
        format!(
            "{shown} makes no module: its Cargo.toml needs `crate-type = [\"cdylib\"]` under [lib]"
        )
    })?;
    Ok(directory.join(made))
}

/// The module that a message of cargo's names.
fn module(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let files = message.get("filenames")?.as_array()?;
    let mut names = files.iter().filter_map(|name| name.as_str());
    names.find(|name| name.ends_with(".wasm")).map(PathBuf::from)
}
