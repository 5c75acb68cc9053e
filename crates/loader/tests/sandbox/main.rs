//! Modules that misbehave are refused or cut off with a clear reason, and packets stay as they were.

mod faults;
mod interface;
mod refusals;

use nilometer_loader::{Limits, WasmClass};
use nilometer_router::plugin::{Batch, Class, Effects, Fault, Instance, PacketFacts, PacketSet};
use nilometer_wire::Time;
use nilometer_wire::memory::{HeapMemory, Memory};

/// A module in text whose parts can be replaced. It has an area for 32 packets of 64 bytes at 4,096.
struct Module {
    imports: &'static str,
    globals: &'static str,
    memory: &'static str,
    description: &'static str,
    version: u32,
    area: &'static str,
    new: &'static str,
    process: &'static str,
    message: &'static str,
    timeout: &'static str,
    counters: &'static str,
}

impl Default for Module {
    fn default() -> Module {
        Module {
            imports: "",
            globals: "",
            memory: "2",
            description: "name test\\0aversion 1.0.0\\0aseen-bytes 64\\0acounter packets\\0a",
            version: 1,
            area: "i32.const 4096",
            new: "i32.const 0",
            process: "i32.const 0",
            message: "i32.const 0",
            timeout: "i32.const 0",
            counters: "i32.const 256",
        }
    }
}

impl Module {
    fn text(&self) -> String {
        let bytes = self.description.replace("\\0a", "\n").len();
        let place = (bytes as u64) << 32 | 16;
        format!(
            "(module {imports}
               (memory (export \"memory\") {memory})
               {globals}
               (data (i32.const 16) \"{description}\")
               (func (export \"nilometer_interface\") (result i32) i32.const {version})
               (func (export \"nilometer_describe\") (result i64) i64.const {place})
               (func (export \"nilometer_area\") (param i32) (result i32) {area})
               (func (export \"nilometer_new\") (param $at i32) (param $bytes i32) (param $seed i64)
                 (result i32) {new})
               (func (export \"nilometer_process\") (param $area i32) (param $packets i32)
                 (param $now i64) (result i32) {process})
               (func (export \"nilometer_message\") (param $at i32) (param $bytes i32)
                 (param $now i64) (result i32) {message})
               (func (export \"nilometer_timeout\") (param $now i64) (result i32) {timeout})
               (func (export \"nilometer_counters\") (result i32) {counters}))",
            imports = self.imports,
            globals = self.globals,
            memory = self.memory,
            description = self.description,
            version = self.version,
            area = self.area,
            new = self.new,
            process = self.process,
            message = self.message,
            timeout = self.timeout,
            counters = self.counters,
        )
    }

    fn binary(&self) -> Vec<u8> {
        let text = self.text();
        wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    fn class(&self) -> WasmClass {
        WasmClass::load(&self.binary(), &Limits::default()).expect("a class")
    }

    fn instance(&self) -> Box<dyn Instance> {
        self.class().instantiate("", 1).expect("an instance")
    }
}

/// Packets in a memory, each of other bytes.
struct Packets {
    memory: HeapMemory,
    facts: Vec<PacketFacts>,
    dropped: PacketSet,
    changed: PacketSet,
}

impl Packets {
    fn of(lengths: &[u16]) -> Packets {
        let mut memory = HeapMemory::new(lengths.len() as u32);
        let mut facts = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            let place = memory.take(14 + length).expect("a buffer");
            for (at, byte) in memory.frame_mut(place).iter_mut().enumerate() {
                *byte = (number * 31 + at) as u8;
            }
            let input = number as u16;
            facts.push(PacketFacts::new(place, *length, (input, Some(input + 100))));
        }
        let (dropped, changed) = (PacketSet::default(), PacketSet::default());
        Packets { memory, facts, dropped, changed }
    }

    fn process(&mut self, instance: &mut dyn Instance) -> (Result<(), Fault>, Effects) {
        let mut effects = Effects::default();
        let mut batch = Batch::new(&self.facts, &mut self.memory);
        let outcome = instance.process(Time::from_nanos(5), &mut batch, &mut effects);
        (self.dropped, self.changed) = (batch.dropped(), batch.changed());
        (outcome, effects)
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        self.facts.iter().map(|facts| self.memory.frame(facts.place).to_vec()).collect()
    }
}

/// The fault of a call with three packets, which are as they were.
fn fault(module: &Module) -> Fault {
    let mut instance = module.instance();
    let mut packets = Packets::of(&[60, 100, 20]);
    let before = packets.bytes();
    let (outcome, _) = packets.process(&mut *instance);
    assert_eq!(packets.bytes(), before, "the packets are as they were");
    assert!(packets.dropped.is_empty() && packets.changed.is_empty());
    outcome.expect_err("a fault")
}
