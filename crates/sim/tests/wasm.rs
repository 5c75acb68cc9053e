//! The simulator compiled to wasm32 and run under Node.js gives exactly the native results.
//!
//! Needs Debian's `rustc-web` with `rust-web-src` (one compiler with the sources of its own `core`),
//! rustup's `rust-lld`, and Node.js; without them it reports what it skipped. It is also the second
//! proof that the pure crates are pure: nothing of an operating system is there to be called.

extern crate alloc;

#[path = "../examples/dumbbell/figure_14.rs"]
mod figure_14;

use std::path::{Path, PathBuf};
use std::process::Command;

use figure_14::{Point, plan};
use nilometer_queue::DisciplineKind;
use nilometer_sim::Network;
use nilometer_sim::endpoint::Endpoint;
use nilometer_tcp::Config;
use nilometer_wire::{Span, Time};

const COMPILER: &str = "/usr/bin/rustc";
const FLOWS: u32 = 20;
const SECONDS: u32 = 5;

/// What a command prints, or nothing when it cannot be run or fails.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The linker that comes with the native toolchain, if all that is needed is there.
fn linker() -> Result<PathBuf, &'static str> {
    output(Command::new("node").arg("--version")).ok_or("Node.js")?;
    let sysroot = output(Command::new(COMPILER).args(["--print", "sysroot"])).ok_or("rustc-web")?;
    if !Path::new(&sysroot).join("lib/rustlib/src/rust/library/core").exists() {
        return Err("rust-web-src");
    }
    let native = output(Command::new("rustc").args(["--print", "sysroot"])).ok_or("rustc")?;
    let host = Path::new(&native).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
    if host.exists() { Ok(host) } else { Err("rust-lld") }
}

fn build(linker: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = root.join("target/wasm");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--target", "wasm32-unknown-unknown"])
        .args(["-Zbuild-std=core,alloc", "-p", "nilometer-sim", "--example", "wasm"])
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
    target.join("wasm32-unknown-unknown/release/examples/wasm.wasm")
}

fn native(kind: DisciplineKind, seed: u64) -> u64 {
    let point = Point { kind, buffer_packets: 200, flows: FLOWS, seed, tcp: Config::linux() };
    let mut network: Network<Endpoint> = Network::new(plan(&point), (), true);
    network.run_until(Time::ZERO + Span::from_secs(u64::from(SECONDS)));
    network.journal().digest
}

#[test]
fn node_gives_the_native_bits() {
    let linker = match linker() {
        Ok(linker) => linker,
        Err(missing) => return println!("skipped: wasm32 needs {missing}, which is not here"),
    };
    let module = build(&linker);
    let script = format!(
        "const bytes = require('fs').readFileSync(process.argv[1]);\
         for (const [kind, seed] of [[0, 1], [1, 2], [5, 3], [7, 4]]) {{\
           const {{ exports }} = new WebAssembly.Instance(new WebAssembly.Module(bytes));\
           const digest = exports.digest(kind, {FLOWS}, {SECONDS}, seed);\
           console.log(BigInt.asUintN(64, digest).toString());\
         }}"
    );
    let printed = output(Command::new("node").arg("-e").arg(script).arg(&module)).expect("Node.js");
    let expected: Vec<String> = [(0, 1), (1, 2), (5, 3), (7, 4)]
        .map(|(kind, seed)| native(DisciplineKind::ALL[kind], seed).to_string())
        .to_vec();
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}
