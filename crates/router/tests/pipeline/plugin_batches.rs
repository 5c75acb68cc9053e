//! Batches through chains of plugins fare as their packets do one by one, and unchanged packets are not parsed
//! again.

use std::collections::BTreeMap;

use nilometer_router::classifier::{Action, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::memory::Memory;
use nilometer_router::plugin::{
    Batch, Effects, Fault, Instance, OnFault, PluginDecision, control::InstanceCounters,
};
use nilometer_stat::Rng;
use nilometer_wire::Time;

use crate::bench::{Bench, framed, udp};
use crate::plugins::{bind, class, send_to};

/// Does something with a batch.
struct Doing<F>(F);

impl<F: FnMut(&mut Batch<'_>) + Send> Instance for Doing<F> {
    fn process(&mut self, _: Time, batch: &mut Batch<'_>, _: &mut Effects) -> Result<(), Fault> {
        (self.0)(batch);
        Ok(())
    }
}

/// Does to each packet what its last bytes select, independent of the packets before.
fn obey(number: u8, batch: &mut Batch<'_>) {
    for at in 0..batch.packets().len() {
        let packet = batch.packet(at);
        let [.., mark, last] = *packet else { panic!("an empty packet") };
        let (end, is_four, mark) =
            (packet.len(), packet[0] >> 4 == 4, mark.wrapping_mul(7) + number);
        match last.wrapping_add(mark) % 9 {
            0 => batch.decide(at, PluginDecision::Drop),
            1 => batch.packet_mut(at)[10] ^= 1, // a checksum that is wrong
            2..6 if is_four => {
                let packet = batch.packet_mut(at);
                packet[end - 2] = mark;
                send_to(packet, [198, 19, mark % 4, mark / 4 % 5]);
            }
            6 => batch.packet_mut(at)[end - 2] = mark,
            _ => {}
        }
    }
}

fn enter(bench: &mut Bench, name: &str, work: impl FnMut(&mut Batch<'_>) + Send + 'static) {
    let plugins = bench.router.plugins_mut();
    plugins.add(name, class(name), Box::new(Doing(work)), OnFault::Drop).expect("room");
}

fn bench() -> Bench {
    let mut bench = Bench::with(|plans| plans.router.fabric.variant = None);
    for (number, name) in (1..).zip(["a", "b", "c", "d"]) {
        enter(&mut bench, name, move |batch| obey(number, batch));
    }
    bind(&mut bench, 0, "198.19.1.0/31", &["a"]);
    bind(&mut bench, 1, "198.19.1.2/31", &["b", "c", "d"]);
    bind(&mut bench, 2, "198.19.2.0/30", &["c", "a"]);
    bind(&mut bench, 3, "198.19.3.1/32", &["d"]);
    bind(&mut bench, 4, "198.19.0.0/31", &["b"]);
    bind(&mut bench, 5, "198.19.0.2/31", &["d", "d"]);
    bind(&mut bench, 6, "fd00:11::/64", &["b"]);
    let destination = "198.19.3.2/32".parse().expect("a prefix");
    let deny = Rule { destination, ..Rule::any(0, Action::Deny) };
    bench.router.tables_mut().filters4.insert(RuleId(7), deny).expect("room");
    bench
}

type Counts = (Vec<u64>, Vec<(u64, u64)>, Vec<InstanceCounters>);

/// Discards by reason, the filters' counters, and the instances'.
fn counts(bench: &Bench) -> Counts {
    let discards = bench.router.ports()[0].discards();
    let filters = bench.router.tables().filters4.iter();
    (
        Discard::ALL.iter().map(|why| discards.of(*why)).collect(),
        filters.map(|(_, _, met)| (met.packets, met.bytes)).collect(),
        bench.router.plugins().states().map(|state| state.counters).collect(),
    )
}

/// Frames by the port that they left by, in the order of their bytes: those whose destination was changed may have
/// overtaken others of their flow.
fn by_port(out: Vec<(usize, Vec<u8>)>) -> BTreeMap<usize, Vec<Vec<u8>>> {
    let mut left = BTreeMap::<_, Vec<_>>::new();
    out.into_iter().for_each(|(port, frame)| left.entry(port).or_default().push(frame));
    left.values_mut().for_each(|frames| frames.sort_unstable());
    left
}

#[test]
fn a_batch_fares_as_its_packets_one_by_one() {
    let (mut together, mut alone) = (bench(), bench());
    let mut rng = Rng::new(3, u32::from_be_bytes(*b"each"), 0);
    for _ in 0..if cfg!(debug_assertions) { 20 } else { 300 } {
        let burst = 1 + rng.below(20);
        let (mut third, mut fourth) = (0, 0);
        let frames: Vec<Vec<u8>> = (0..1 + rng.below(256))
            .map(|number| {
                if number % burst == 0 {
                    (third, fourth) = (rng.below(4), rng.below(5));
                }
                let mut packet = match rng.below(8) {
                    0 => udp("fd00:10::9", &format!("fd00:1{third}::{fourth}"), 30),
                    _ => udp("198.19.0.9", &format!("198.19.{third}.{fourth}"), 30),
                };
                let last = packet.len() - 1;
                packet[last - 1] = rng.below(256) as u8;
                packet[last] = rng.below(256) as u8;
                framed(0, &packet)
            })
            .collect();
        let (mut places, mut left_alone) = (Vec::new(), Vec::new());
        for frame in &frames {
            let place = together.memory.take(frame.len() as u16).expect("a buffer");
            together.memory.frame_mut(place).copy_from_slice(frame);
            places.push(place);
            left_alone.extend(alone.pass(0, frame));
        }
        together.router.receive(together.now, 0, &places, &mut together.memory, &mut ());
        assert_eq!(by_port(together.drain()), by_port(left_alone));
        assert_eq!(counts(&together), counts(&alone));
    }
    let (discards, filters, _) = counts(&together);
    for why in [Discard::Plugin, Discard::PluginLoop, Discard::HeaderChecksum, Discard::Denied] {
        assert!(discards[why as usize] > 0 || cfg!(debug_assertions), "{why}");
    }
    assert!(filters.iter().all(|(packets, _)| *packets > 0));
}

/// (A packet that leaves with a wrong checksum shows that nothing has checked it: a plugin that silently corrupts
/// packets is faulty, and only native code can be.)
#[test]
fn packets_not_marked_as_changed_are_not_parsed_again() {
    for (noted, left) in [(None, 3), (Some(1), 2)] {
        let mut bench = Bench::with(|plans| plans.router.fabric.variant = None);
        enter(&mut bench, "spoiler", move |batch| {
            for at in 0..batch.packets().len() {
                batch.lend(at)[10] ^= 0x10;
            }
            noted.into_iter().for_each(|at| batch.note_changed(at));
        });
        bind(&mut bench, 0, "198.19.1.0/24", &["spoiler"]);
        let places: Vec<_> = (0..3)
            .map(|number| {
                let frame = framed(0, &udp("198.19.0.9", "198.19.1.9", 30 + number));
                let place = bench.memory.take(frame.len() as u16).expect("a buffer");
                bench.memory.frame_mut(place).copy_from_slice(&frame);
                place
            })
            .collect();
        bench.router.receive(bench.now, 0, &places, &mut bench.memory, &mut ());
        let out = bench.drain();
        assert_eq!(out.len(), left, "{noted:?}");
        assert!(out.iter().all(|(_, frame)| frame.len() != 73 || noted.is_none()));
        let wrong = bench.router.ports()[0].discards().of(Discard::HeaderChecksum);
        assert_eq!(wrong, 3 - left as u64);
    }
}
