//! What a plugin costs a packet: native against WebAssembly, in batches of several sizes.
//!
//! `cargo run --release -p nilometer-loader --example cost [MODULE.wasm...]`: the modules are timed beside native plugins
//! that do nothing, count, and change the DSCP. All packets lie in the memory of the virtual clock; each batch is other
//! packets than the one before, 4,096 in all.

use std::time::Instant;

use nilometer_loader::{Limits, Native, WasmClass};
use nilometer_router::plugin::{Batch, Class, Effects, PacketFacts};
use nilometer_wire::Time;
use nilometer_wire::memory::{HeapMemory, Memory};

const PACKETS: usize = 4_096;
const FRAME_BYTES: u16 = 74;
const ROUNDS: usize = 7;

#[path = "../../plugin/examples/counting.rs"]
mod counting;
#[path = "../../plugin/examples/marking.rs"]
mod marking;
#[path = "../../plugin/examples/nothing.rs"]
mod nothing;

fn frames(memory: &mut HeapMemory) -> Vec<PacketFacts> {
    let frame = |_| {
        let place = memory.take(FRAME_BYTES).expect("a buffer");
        let bytes = memory.frame_mut(place);
        bytes[14] = 0x45;
        bytes[22] = 64;
        PacketFacts::new(place, FRAME_BYTES - 14, (0, None))
    };
    (0..PACKETS).map(frame).collect()
}

/// The least of several rounds: the machine is shared.
fn ns_per_packet(class: &dyn Class, batch: usize) -> f64 {
    let mut memory = HeapMemory::new(PACKETS as u32);
    let packets = frames(&mut memory);
    let mut instance = class.instantiate("10", 1).expect("an instance");
    let mut effects = Effects::default();
    let mut best = f64::INFINITY;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        for some in packets.chunks_exact(batch) {
            let mut batch = Batch::new(some, &mut memory);
            let now = Time::from_nanos(round as u64);
            instance.process(now, &mut batch, &mut effects).expect("no fault");
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / packets.len() as f64);
    }
    best
}

fn main() {
    let mut classes: Vec<Box<dyn Class>> = vec![
        Box::new(Native::<nothing::Nothing>::new()),
        Box::new(Native::<counting::Counting>::new()),
        Box::new(Native::<marking::Marking>::new()),
    ];
    for path in std::env::args().skip(1) {
        let module = std::fs::read(&path).expect("a module");
        classes.push(Box::new(WasmClass::load(&module, &Limits::default()).expect("a plugin")));
    }
    println!("plugin                     engine  seen  batch 1  32  256   ns a packet");
    for class in classes {
        let facts = class.facts();
        let cost = [1, 32, 256].map(|batch| format!("{:8.1}", ns_per_packet(&*class, batch)));
        println!(
            "{:26} {:6} {:5} {}",
            facts.name,
            facts.engine.name(),
            facts.seen_bytes,
            cost.join(" ")
        );
    }
}
