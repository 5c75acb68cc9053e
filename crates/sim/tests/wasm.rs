//! The simulator compiled to wasm32 and run under Node.js gives exactly the native results.
//!
//! Needs Debian's `rustc-web` with `rust-web-src` (one compiler with the sources of its own `core`),
//! rustup's `rust-lld`, and Node.js; without them it reports what it skipped. It is also the second
//! proof that the pure crates are pure: nothing of an operating system is there to be called.

extern crate alloc;

#[path = "../examples/dumbbell/figure_14.rs"]
mod figure_14;
#[path = "../../wire/tests/wasm32/mod.rs"]
mod wasm32;

use std::process::Command;

use figure_14::{Point, plan};
use nilometer_queue::DisciplineKind;
use nilometer_sim::Network;
use nilometer_sim::endpoint::Endpoint;
use nilometer_tcp::Config;
use nilometer_wire::{Span, Time};
use wasm32::output;

const FLOWS: u32 = 20;
const SECONDS: u32 = 5;

fn native(kind: DisciplineKind, seed: u64) -> u64 {
    let point = Point { kind, buffer_packets: 200, flows: FLOWS, seed, tcp: Config::linux() };
    let mut network: Network<Endpoint> = Network::new(plan(&point), (), true);
    network.run_until(Time::ZERO + Span::from_secs(u64::from(SECONDS)));
    network.journal().digest
}

#[test]
fn node_gives_the_native_bits() {
    let node = output(Command::new("node").arg("--version")).ok_or("Node.js");
    let linker = match node.and_then(|_| wasm32::linker()) {
        Ok(linker) => linker,
        Err(missing) => return println!("skipped: wasm32 needs {missing}, which is not here"),
    };
    let examples = wasm32::build(&linker, &["-p", "nilometer-sim", "--example", "wasm"]);
    let module = examples.join("wasm.wasm");
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
