//! Plugins entered, bound, replaced and removed a thousand times while packets pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nilometer_router::classifier::{Action, Rule, RuleId};
use nilometer_router::memory::Memory;
use nilometer_router::plugin::{
    Batch, ClassFacts, Effects, Engine, Fault, Instance, OnFault, PluginDecision,
};
use nilometer_wire::{Span, Time};

use crate::bench::{Bench, PORTS, framed, udp};

const CHANGES: u32 = if cfg!(debug_assertions) { 50 } else { 1_000 };
/// Packets of each flow that arrive between two changes.
const TOGETHER: usize = 3;

/// Writes its version into the packets of its flow.
struct Versioned {
    version: u8,
    processed: Arc<AtomicU64>,
}

impl Instance for Versioned {
    fn process(&mut self, _: Time, batch: &mut Batch<'_>, _: &mut Effects) -> Result<(), Fault> {
        for at in 0..batch.packets().len() {
            batch.packet_mut(at)[42] = self.version;
            batch.decide(at, PluginDecision::Forward);
        }
        self.processed.fetch_add(batch.packets().len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// A flow's next packet, with its number in the identification.
fn packet(flow: u8, number: u32) -> Vec<u8> {
    let mut packet = udp("198.19.0.9", &format!("198.19.1.{flow}"), 30);
    packet[38..42].copy_from_slice(&number.to_be_bytes());
    packet[42] = 0;
    framed(0, &packet)
}

fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[52], frame[53], frame[54], frame[55]])
}

#[test]
fn a_thousand_changes_under_load_lose_and_reorder_nothing() {
    let mut bench = Bench::with(|plans| plans.router.fabric.variant = None);
    let processed = Arc::new(AtomicU64::new(0));
    let instance = |version: u8| -> Box<dyn Instance> {
        Box::new(Versioned { version, processed: Arc::clone(&processed) })
    };
    let facts = || ClassFacts {
        name: "versioned".into(),
        version: "1".into(),
        engine: Engine::Native,
        seen_bytes: u16::MAX,
    };
    let (mut sent, mut by_flow) = (0u32, BTreeMap::<u8, Vec<(u32, u8)>>::new());
    let mut pass = |bench: &mut Bench| {
        let mut places = Vec::new();
        for _ in 0..TOGETHER {
            for flow in [1, 2, 3] {
                let frame = packet(flow, sent);
                let place = bench.memory.take(frame.len() as u16).expect("a buffer");
                bench.memory.frame_mut(place).copy_from_slice(&frame);
                places.push(place);
            }
            sent += 1;
        }
        bench.router.receive(bench.now, 0, &places, &mut bench.memory, &mut ());
        // (Packets received before a change may leave after it.)
        bench.now += Span::from_nanos(2_000);
        bench.router.advance(bench.now, &mut bench.memory, &mut ());
        for port in 0..PORTS {
            for _ in 0..3 * TOGETHER {
                let Some(place) = bench.router.transmit(bench.now, port, &mut bench.memory) else {
                    break;
                };
                let frame = bench.memory.frame(place);
                by_flow.entry(frame[33]).or_default().push((number_of(frame), frame[56]));
                bench.memory.give(place);
            }
        }
    };
    for round in 0..CHANGES {
        let first = (round % 100) as u8 * 2 + 4;
        pass(&mut bench);
        let plugins = bench.router.plugins_mut();
        plugins.add("one", facts(), instance(first), OnFault::Drop).expect("room");
        pass(&mut bench);
        let chain = bench.router.plugins_mut().bind(&["one"]).expect("it is there");
        let destination = "198.19.1.2/32".parse().expect("a prefix");
        let rule = Rule { destination, ..Rule::any(0, Action::Active(chain)) };
        bench.router.tables_mut().filters4.insert(RuleId(0), rule).expect("room");
        pass(&mut bench);
        bench.router.plugins_mut().replace("one", facts(), instance(first + 1)).expect("it");
        pass(&mut bench);
        bench.router.tables_mut().filters4.remove(RuleId(0)).expect("it is there");
        bench.router.plugins_mut().unbind(chain);
        pass(&mut bench);
        bench.router.plugins_mut().remove("one").expect("no chain names it");
    }
    for _ in 0..40 {
        pass(&mut bench);
    }
    let rest = bench.drain();
    for (_, frame) in &rest {
        by_flow.entry(frame[33]).or_default().push((number_of(frame), frame[56]));
    }
    for (flow, left) in &by_flow {
        let numbers: Vec<u32> = left.iter().map(|(number, _)| *number).collect();
        assert_eq!(
            numbers,
            (0..sent).collect::<Vec<_>>(),
            "flow {flow}: nothing lost or reordered"
        );
        let touched = left.iter().filter(|(_, version)| *version != 0).count();
        let expected = if *flow == 2 { CHANGES as usize * 2 * TOGETHER } else { 0 };
        assert_eq!(touched, expected, "flow {flow}");
    }
    // Between the old version and the new no packet was without one.
    let versions: Vec<u8> = by_flow[&2].iter().map(|(_, version)| *version).collect();
    for (round, of_round) in versions.chunks(5 * TOGETHER).take(CHANGES as usize).enumerate() {
        let first = (round % 100) as u8 * 2 + 4;
        let expected = [0, 0, first, first + 1, 0].map(|version| [version; TOGETHER]);
        assert_eq!(of_round, expected.as_flattened(), "round {round}");
    }
    assert_eq!(processed.load(Ordering::Relaxed), u64::from(CHANGES) * 2 * TOGETHER as u64);
}

/// Always requests to be called at once.
struct AlwaysDue(Arc<AtomicU64>);

impl Instance for AlwaysDue {
    fn process(&mut self, _: Time, _: &mut Batch<'_>, _: &mut Effects) -> Result<(), Fault> {
        Ok(())
    }

    fn handle_timeout(&mut self, _: Time, _: &mut Effects) -> Result<(), Fault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(Time::ZERO)
    }
}

#[test]
fn a_timer_that_is_always_due_is_served_ten_times_a_millisecond() {
    let mut bench = Bench::new();
    let calls = Arc::new(AtomicU64::new(0));
    let class = ClassFacts {
        name: "hasty".into(),
        version: "1".into(),
        engine: Engine::Native,
        seen_bytes: 0,
    };
    let hasty = Box::new(AlwaysDue(Arc::clone(&calls)));
    bench.router.plugins_mut().add("hasty", class, hasty, OnFault::Drop).expect("room");
    bench.drain(); // a millisecond
    assert_eq!(calls.load(Ordering::Relaxed), 10);
    assert!(bench.router.poll_timeout().is_some_and(|due| due > bench.now));
}
