//! The cost of a copy for a group compared with a unicast packet: run by hand, for its figures.

use std::time::Instant;

use nilometer_router::memory::Memory;
use nilometer_router::pipeline::groups::{MulticastPlan, StaticGroup};

use crate::bench::{Bench, framed, udp};

const BATCH: usize = 64;
const ROUNDS: usize = 2_000;

/// Nanoseconds that a batch took, per packet, to be in the virtual output queues.
fn batch_ns(bench: &mut Bench, frame: &[u8]) -> f64 {
    let places: Vec<_> = (0..BATCH)
        .map(|_| {
            let place = bench.memory.take(frame.len() as u16).expect("a buffer");
            bench.memory.frame_mut(place).copy_from_slice(frame);
            place
        })
        .collect();
    let start = Instant::now();
    bench.router.receive(bench.now, 0, &places, &mut bench.memory, &mut ());
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// `cargo test --release -p nilometer-router --test pipeline cost_of_copies -- --ignored --nocapture`
#[test]
#[ignore = "prints times"]
fn cost_of_copies() {
    let mut bench = Bench::with(|plans| {
        plans.ports.iter_mut().for_each(|port| port.multicast = Some(MulticastPlan::default()));
    });
    let groups: Vec<String> = (1..=3).map(|number| format!("239.1.0.{number}")).collect();
    for (receivers, group) in (1..=3).zip(&groups) {
        let fixed = StaticGroup { group: group.parse().expect("a group"), source: None };
        (1..=receivers).for_each(|port| bench.router.add_group(port, fixed).expect("room"));
    }
    bench.drain();
    for bytes in [18, 1_372] {
        let one = framed(0, &udp("198.19.0.9", "198.19.1.9", bytes));
        let mut frames = vec![one];
        for (number, group) in (1..).zip(&groups) {
            let mut frame = framed(0, &udp("198.19.0.9", group, bytes));
            frame[..6].copy_from_slice(&[1, 0, 0x5e, 1, 0, number]);
            frames.push(frame);
        }
        let mut times = vec![Vec::new(); frames.len()];
        for _ in 0..ROUNDS {
            for (frame, (expected, times)) in
                frames.iter().zip([1, 1, 2, 3].into_iter().zip(&mut times))
            {
                times.push(batch_ns(&mut bench, frame));
                assert_eq!(bench.drain().len(), BATCH * expected);
            }
        }
        let medians: Vec<f64> = times.into_iter().map(median).collect();
        let size = frames[0].len();
        println!(
            "{size} bytes: one host {:.0} ns; groups of 1, 2, 3: {:.0?} ns",
            medians[0],
            &medians[1..]
        );
    }
}
