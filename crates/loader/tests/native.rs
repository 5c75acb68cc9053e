//! A native plugin that panics ends with its call: the router hears why, and which packets it may have changed.

use nilometer_loader::Native;
use nilometer_plugin::{Context, Decision, Packet, Plugin};
use nilometer_router::plugin::{Batch, Class, Effects, Fault, Instance, PacketFacts, Refusal};
use nilometer_wire::Time;
use nilometer_wire::memory::{HeapMemory, Memory};

/// Panics in the calls that its settings name.
struct Panics {
    at: String,
    packets: u32,
}

impl Plugin for Panics {
    const NAME: &'static str = "panics";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 20;
    const COUNTERS: &'static [&'static str] = &["packets"];

    fn new(configuration: &str) -> Result<Panics, String> {
        assert_ne!(configuration, "new", "as it was configured");
        Ok(Panics { at: configuration.to_owned(), packets: 0 })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        self.packets += 1;
        context.count(0, 1);
        if self.packets % 2 == 1 {
            packet.bytes_mut()[1] = 99;
        }
        if self.packets == 4 && self.at == "process" {
            context.log("a line that nobody is to read");
            let _ = packet.bytes()[usize::from(packet.ip_bytes()) * 2];
        }
        Decision::Forward
    }

    fn message(&mut self, message: &str, _: &mut Context<'_>) -> Result<String, String> {
        Ok(message[1..].to_owned())
    }

    fn timeout(&mut self, _: &mut Context<'_>) {
        std::panic::panic_any(7);
    }
}

fn instance(configuration: &str) -> Box<dyn Instance> {
    Native::<Panics>::new().instantiate(configuration, 1).expect("an instance")
}

fn line(outcome: Result<impl std::fmt::Debug, Fault>) -> String {
    match outcome {
        Err(Fault::Panic(line)) => line,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_native_plugin_that_panics_is_caught_with_its_reason() {
    let mut memory = HeapMemory::new(6);
    let packets: Vec<PacketFacts> = (0..6)
        .map(|input| {
            let place = memory.take(54).expect("a buffer");
            PacketFacts::new(place, 40, (input, None))
        })
        .collect();
    let mut instance = instance("process");
    let mut batch = Batch::new(&packets, &mut memory);
    let mut effects = Effects::default();
    let outcome = instance.process(Time::ZERO, &mut batch, &mut effects);
    let (dropped, changed) = (batch.dropped(), batch.changed());
    assert_eq!(line(outcome), "index out of bounds: the len is 20 but the index is 80");
    assert!(dropped.is_empty());
    // The first and the third were changed; what it did to the fourth, at which it panicked, is unknown.
    assert_eq!(changed.iter().collect::<Vec<_>>(), [0, 2, 3]);
    let bytes = packets.iter().map(|facts| memory.frame(facts.place)[15]);
    assert_eq!(bytes.collect::<Vec<_>>(), [99, 0, 99, 0, 0, 0]);
    assert_eq!(instance.counters(), [("packets".to_owned(), 4)]);
}

#[test]
fn other_calls_that_panic_are_caught_as_well() {
    let mut effects = Effects::default();
    let answer = instance("").handle_message(Time::ZERO, "", &mut effects);
    assert!(line(answer).contains("byte index 1"), "the message is empty");
    let timed = instance("").handle_timeout(Time::ZERO, &mut effects);
    assert_eq!(line(timed), "it does not say why");
    match Native::<Panics>::new().instantiate("new", 1).err() {
        Some(Refusal::Fault(Fault::Panic(line))) => assert!(line.contains("as it was configured")),
        other => panic!("{other:?}"),
    }
}
