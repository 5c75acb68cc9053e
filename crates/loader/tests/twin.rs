//! The same plugin, native and in WebAssembly, does the same to the same packets.
//!
//! Needs Debian's `rustc-web` with `rust-web-src` and rustup's `rust-lld`; without them it says what it skipped.

#[path = "../../wire/tests/wasm32/mod.rs"]
mod wasm32;

use nilometer_loader::{Limits, WasmClass, builtin};
use nilometer_router::plugin::{Batch, Class, Effects, Instance, PacketFacts, PacketSet};
use nilometer_stat::Rng;
use nilometer_wire::Time;
use nilometer_wire::memory::{HeapMemory, Memory};

const BATCHES: u64 = 100;

/// Configurations with which each does something.
const CONFIGURATIONS: [(&str, &str); 10] = [
    ("counter", ""),
    ("delay", "delay=2 jitter=1 order=free packets=100"),
    ("firewall", "inside=10.0.0.0/8 allow=tcp:80 table=500"),
    ("loss", "rate=0.2 burst=3"),
    ("wave-video", ""),
    ("nat", "inside=10.0.0.0/8 outside=192.0.2.3 mappings=300"),
    ("policer", "cir=8000000 cbs=3000 pir=16000000 pbs=6000 yellow=dscp:12"),
    ("remarker", "dscp=0 map=46:10,3:4"),
    ("sampler", "every=3 collector=192.0.2.9:4739 source=192.0.2.1:9000 flows=50"),
    ("scrubber", "per_source=3 table=200 timeout=1"),
];

/// A frame with an IPv4 packet of few hosts and ports, so that flows meet again; some are damaged.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; 14 + 20 + 20 + rng.below(100) as usize];
    let ip = &mut bytes[14..];
    let length = ip.len() as u16;
    ip[0] = 0x45;
    ip[1] = rng.below(256) as u8;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip[8] = 64;
    ip[9] = [1, 6, 6, 17, 17, 47][rng.below(6) as usize];
    let inside = [10, 0, 0, rng.below(5) as u8];
    let outside = [192, 0, 2, rng.below(5) as u8];
    let (source, destination) =
        if rng.below(2) == 0 { (inside, outside) } else { (outside, inside) };
    ip[12..16].copy_from_slice(&source);
    ip[16..20].copy_from_slice(&destination);
    for port in [20, 22] {
        let number = [53u16, 80, 5_000, 5_001][rng.below(4) as usize];
        ip[port..port + 2].copy_from_slice(&number.to_be_bytes());
    }
    ip[24] = rng.below(256) as u8;
    ip[33] = [2, 16, 18, 17, 4][rng.below(5) as usize];
    if ip[9] == 1 {
        ip[20] = [0, 8, 3, 11][rng.below(4) as usize];
    }
    if rng.below(20) == 0 {
        let at = rng.below(ip.len() as u64) as usize;
        ip[at] = rng.below(256) as u8;
    }
    bytes
}

/// What an instance did to a batch: the packets, which it dropped and changed, and what else it wants.
fn process(
    instance: &mut dyn Instance,
    now: Time,
    frames: &[Vec<u8>],
) -> (Vec<Vec<u8>>, [PacketSet; 2], Effects) {
    let mut memory = HeapMemory::new(frames.len() as u32);
    let mut facts = Vec::new();
    for frame in frames {
        let place = memory.take(frame.len() as u16).expect("a buffer");
        memory.frame_mut(place).copy_from_slice(frame);
        let ip_bytes = (frame.len() - 14) as u16;
        facts.push(PacketFacts::new(place, ip_bytes, (3, Some(1))));
    }
    let mut effects = Effects::default();
    let mut batch = Batch::new(&facts, &mut memory);
    instance.process(now, &mut batch, &mut effects).expect("no fault");
    let sets = [batch.dropped(), batch.changed()];
    let frames = facts.iter().map(|facts| memory.frame(facts.place).to_vec()).collect();
    (frames, sets, effects)
}

fn compare(native: &dyn Class, wasm: &dyn Class, configuration: &str) {
    let name = &native.facts().name;
    let mut native = native.instantiate(configuration, 9).expect("an instance");
    let mut wasm = wasm.instantiate(configuration, 9).expect("an instance");
    let mut rng = Rng::new(17, 0, 0);
    let mut changed = 0;
    for number in 0..BATCHES {
        let now = Time::from_nanos(number * 40_000_000);
        while native.poll_timeout().is_some_and(|at| at <= now) {
            let (mut one, mut other) = (Effects::default(), Effects::default());
            native.handle_timeout(now, &mut one).expect("no fault");
            wasm.handle_timeout(now, &mut other).expect("no fault");
            assert_eq!(one, other, "{name}: a timer");
        }
        let count = 1 + rng.below(256) as usize;
        let frames: Vec<Vec<u8>> = (0..count).map(|_| frame(&mut rng)).collect();
        let one = process(&mut *native, now, &frames);
        let other = process(&mut *wasm, now, &frames);
        assert!(one == other, "{name}: batch {number} differs");
        changed += frames.iter().zip(&one.0).filter(|(before, after)| before != after).count();
        changed += one.1[0].len();
        let is_noted = |at: usize| frames[at] == one.0[at] || one.1[1].contains(at);
        assert!((0..count).all(is_noted), "{name}: what was changed is noted");
        assert_eq!(native.poll_timeout(), wasm.poll_timeout(), "{name}");
        assert_eq!(native.counters(), wasm.counters(), "{name}");
    }
    let does_nothing = ["counter", "sampler", "wave-video"].contains(&name.as_str());
    assert_eq!(changed == 0, does_nothing, "{name}: {changed} packets");
}

#[test]
fn plugins_do_the_same_in_webassembly() {
    let linker = match wasm32::linker() {
        Ok(linker) => linker,
        Err(missing) => return println!("skipped: wasm32 needs {missing}, which is not here"),
    };
    let modules = wasm32::build(&linker, &["-p", "nilometer-plugins", "--examples"]);
    // (The interface of modules knows no labels.)
    for class in builtin().into_iter().filter(|class| class.facts().name != "mpls") {
        let name = &class.facts().name;
        let module = std::fs::read(modules.join(format!("{}.wasm", name.replace('-', "_"))))
            .expect("a module");
        let wasm = WasmClass::load(&module, &Limits::default()).expect("a plugin");
        assert_eq!(wasm.facts().name, *name);
        assert_eq!(wasm.facts().version, class.facts().version);
        assert_eq!(wasm.facts().seen_bytes, class.facts().seen_bytes);
        let configuration = CONFIGURATIONS.iter().find(|(of, _)| of == name).expect("one").1;
        compare(&*class, &wasm, configuration);
    }
}
