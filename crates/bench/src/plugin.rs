//! What plugins cost: the whole pipeline with every packet through one, beside the pipeline without.
//!
//! The router is that of [`super::pipeline`], with one filter that every packet meets: it permits, or it hands the
//! packet to a plugin. Three plugins are timed, native and in WebAssembly: one that does nothing, one that counts
//! packets and bytes, and one that changes the header (the DSCP, and the checksum with it). Those in WebAssembly are
//! written by hand (`plugin.wat`), so that the bench needs no compiler; a fourth does nothing to packets that are copied
//! to it whole. Each is timed with its instructions counted, as in a router, and without.
//!
//! There is one router: where its buffers and tables lie costs as many nanoseconds more or less as a plugin does. Its
//! filter is changed between two rounds. Each round with a plugin has one without beside it, before it and behind it
//! by turns, and a plugin's cost is the median of their differences. The pipeline without a plugin takes its turn as if
//! it were one: its difference, of rounds that do the same, says how far the others can be trusted.

use anyhow::{Context, Result, bail, ensure};
use nilometer_loader::{Limits, Native, WasmClass};
use nilometer_plugin::{Context as Call, Decision, Packet, Plugin};
use nilometer_router::pipeline::Router;
use nilometer_router::plugin::{Class, Engine, OnFault};
use nilometer_router::{Action, Rule, RuleId};
use serde::Serialize;

use super::pipeline::flows::{self, Sequence};
use super::pipeline::machine::{CHECK_BYTES, Machine};
use super::pipeline::rounds::Clocked;
use super::pipeline::tables::Routes;
use super::pipeline::{Options, Variant};

/// The module whose description and whose work on a packet are filled in.
const MODULE: &str = include_str!("plugin.wat");
/// Bytes of a header that is looked at.
const HEADER_BYTES: u16 = 20;
/// The DSCP that packets get: AF11 (RFC 2597).
const DSCP: u8 = 10;

/// What one plugin costs in batches of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// What it does to a packet; `none` for the pipeline without.
    pub plugin: &'static str,
    /// `none`, `native` or `wasm`.
    pub engine: &'static str,
    /// Packets that a port receives at once.
    pub batch: usize,
    /// Whether its instructions are counted, `on` or `off`; nothing of the kind exists natively.
    pub limits: &'static str,
    /// Bytes of a packet that are copied to it, and back where it changes them.
    pub copied: u16,
    /// Nanoseconds of CPU time that it adds to a packet; of `none`, the difference of two rounds alike.
    pub ns_per_packet: f64,
    /// Lower and upper quartile of the rounds.
    pub ns_per_packet_quartiles: [f64; 2],
    /// Nanoseconds of a packet through the whole pipeline with it.
    pub pipeline_ns_per_packet: f64,
    /// Million packets a second of one core through the whole pipeline with it.
    pub mpps: f64,
    /// Packets that it processed.
    pub packets: u64,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct PluginTimes {
    /// By plugin, engine, batch and limits.
    pub points: Vec<Point>,
    /// Bytes of a frame, check sequence included.
    pub frame_bytes: u16,
    /// Rounds of which the median counts.
    pub rounds: u32,
}

struct NoOp;

impl Plugin for NoOp {
    const NAME: &'static str = "no-op";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 0;

    fn new(_: &str) -> Result<NoOp, String> {
        Ok(NoOp)
    }

    fn process(&mut self, _: &mut Packet<'_>, _: &mut Call<'_>) -> Decision {
        Decision::Forward
    }
}

struct Counting;

impl Plugin for Counting {
    const NAME: &'static str = "counting";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 0;
    const COUNTERS: &'static [&'static str] = &["packets", "bytes"];

    fn new(_: &str) -> Result<Counting, String> {
        Ok(Counting)
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Call<'_>) -> Decision {
        context.count(0, 1);
        context.count(1, packet.ip_bytes().into());
        Decision::Forward
    }
}

struct Changing;

impl Plugin for Changing {
    const NAME: &'static str = "header-changing";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = HEADER_BYTES;

    fn new(_: &str) -> Result<Changing, String> {
        Ok(Changing)
    }

    fn process(&mut self, packet: &mut Packet<'_>, _: &mut Call<'_>) -> Decision {
        match packet.set_dscp(DSCP) {
            Ok(()) => Decision::Forward,
            Err(_) => Decision::Drop,
        }
    }
}

/// The work of a module on the packet whose descriptor is at `$at`: none, as a packet that nothing is decided on is
/// forwarded.
const FORWARD: &str = "";
const COUNT: &str = "(i64.store (i32.const 256) (i64.add (i64.load (i32.const 256)) (i64.const 1)))
  (i64.store (i32.const 264)
    (i64.add (i64.load (i32.const 264)) (i64.load16_u offset=6 (local.get $at))))";
/// (By RFC 1624, equation 3, in words as they lie there: a sum in ones' complement is the same in either byte order.)
const CHANGE: &str = "(local.set $packet (i32.load (local.get $at)))
  (local.set $tos
    (i32.or (i32.and (i32.load8_u offset=1 (local.get $packet)) (i32.const 3)) (i32.const {tos})))
  (local.set $sum (i32.add
    (i32.add
      (i32.xor (i32.load16_u offset=10 (local.get $packet)) (i32.const 0xffff))
      (i32.xor (i32.load16_u (local.get $packet)) (i32.const 0xffff)))
    (i32.or (i32.load8_u (local.get $packet)) (i32.shl (local.get $tos) (i32.const 8)))))
  (local.set $sum
    (i32.add (i32.and (local.get $sum) (i32.const 0xffff)) (i32.shr_u (local.get $sum) (i32.const 16))))
  (local.set $sum
    (i32.add (i32.and (local.get $sum) (i32.const 0xffff)) (i32.shr_u (local.get $sum) (i32.const 16))))
  (i32.store8 offset=1 (local.get $packet) (local.get $tos))
  (i32.store16 offset=10 (local.get $packet) (i32.xor (local.get $sum) (i32.const 0xffff)))
  (i32.store16 offset=12 (local.get $at) (i32.const 0x0100))";

/// A plugin as it is timed.
struct Case {
    plugin: &'static str,
    limits: &'static str,
    copied: u16,
    class: Option<Box<dyn Class>>,
}

impl Case {
    fn engine(&self) -> &'static str {
        self.class.as_ref().map_or("none", |class| class.facts().engine.name())
    }

    /// The name of its instance.
    fn name(&self) -> String {
        format!("{}-{}-{}", self.plugin, self.engine(), self.limits)
    }

    fn native<P: Plugin + Send + 'static>() -> Case {
        let class = Box::new(Native::<P>::new());
        Case { plugin: P::NAME, limits: "off", copied: 0, class: Some(class) }
    }

    fn wasm(plugin: &'static str, seen_bytes: u16, work: &str, has_budget: bool) -> Result<Case> {
        let module = wat::parse_str(module(plugin, seen_bytes, work))?;
        let class = match has_budget {
            true => WasmClass::load(&module, &Limits::default()),
            false => WasmClass::load_without_budget(&module, &Limits::default()),
        };
        let class: Box<dyn Class> = Box::new(class.with_context(|| plugin)?);
        let limits = if has_budget { "on" } else { "off" };
        Ok(Case { plugin, limits, copied: seen_bytes, class: Some(class) })
    }
}

/// The text of a module.
fn module(plugin: &str, seen_bytes: u16, work: &str) -> String {
    let lines = [
        format!("name {plugin}"),
        "version 1.0.0".to_owned(),
        format!("seen-bytes {seen_bytes}"),
        "counter packets".to_owned(),
        "counter bytes".to_owned(),
    ];
    let description = lines.map(|line| line + "\n").concat();
    let place = (description.len() as u64) << 32 | 16;
    let tos = u32::from(DSCP) << 2;
    MODULE
        .replace("{description}", &description.replace('\n', "\\0a"))
        .replace("{place}", &place.to_string())
        .replace("{work}", work)
        .replace("{tos}", &tos.to_string())
}

fn cases(packet_bytes: u16) -> Result<Vec<Case>> {
    let mut cases = vec![
        Case { plugin: "none", limits: "off", copied: 0, class: None },
        Case::native::<NoOp>(),
        Case::native::<Counting>(),
        Case::native::<Changing>(),
    ];
    for has_budget in [true, false] {
        cases.push(Case::wasm("no-op", 0, FORWARD, has_budget)?);
        cases.push(Case::wasm("counting", 0, COUNT, has_budget)?);
        cases.push(Case::wasm("header-changing", HEADER_BYTES, CHANGE, has_budget)?);
        cases.push(Case::wasm("no-op-copied", packet_bytes, FORWARD, has_budget)?);
    }
    Ok(cases)
}

/// Times the plugins in batches of these sizes; `options` are those of the pipeline, with one variant.
///
/// # Errors
/// When a file cannot be read, no flow can be made from what is in it, or a packet is lost.
pub fn time_plugins(options: &Options, batches: &[usize]) -> Result<PluginTimes> {
    let routes = Routes::find(options)?;
    let everything = [Rule::any(0, Action::Permit)];
    let drawn = flows::draw(&routes, &everything, options.flows, options.seed)?;
    let mut points = Vec::new();
    for &batch in batches {
        let options = Options { batch, ..options.clone() };
        let sequence = Sequence::arrange(&drawn, &routes, Variant::Complete, &options)?;
        let machine = Machine::new(&routes, &everything, Variant::Complete, None, &options)?;
        let mut clocked = Clocked::new(machine, sequence, &options);
        let mut at_work = Vec::new();
        for case in cases(options.frame_bytes - CHECK_BYTES - 14)? {
            let action = enter(&case, clocked.router_mut(), options.seed)?;
            at_work.push((case, action, Vec::new()));
        }
        for round in 0..=options.rounds {
            for (_, action, pairs) in &mut at_work {
                let pair = pair(&mut clocked, *action, round % 2 == 0)?;
                // (The first fills the caches.)
                if round > 0 {
                    pairs.push(pair);
                }
            }
        }
        clocked.check()?;
        let dropped = clocked.dropped();
        ensure!(dropped.is_empty(), "packets were dropped: {dropped:?}");
        for (case, _, pairs) in &at_work {
            points.push(point(case, clocked.router(), pairs, batch)?);
        }
    }
    Ok(PluginTimes { points, frame_bytes: options.frame_bytes, rounds: options.rounds })
}

/// Enters the plugin of a case, and says what a filter does to hand packets to it.
fn enter(case: &Case, router: &mut Router, seed: u64) -> Result<Action> {
    let Some(class) = &case.class else { return Ok(Action::Permit) };
    let instance = class.instantiate("", seed)?;
    let plugins = router.plugins_mut();
    plugins.add(&case.name(), class.facts().clone(), instance, OnFault::Drop)?;
    Ok(Action::Active(plugins.bind(&[case.name()])?))
}

/// Nanoseconds of a packet in a round of the filter's `action`, and in one that permits.
fn pair(clocked: &mut Clocked, action: Action, is_first: bool) -> Result<[f64; 2]> {
    let mut round = |action| -> Result<f64> {
        let filters = &mut clocked.router_mut().tables_mut().filters4;
        filters.remove(RuleId(0));
        filters.insert(RuleId(0), Rule::any(0, action))?;
        filters.settle();
        Ok(1e3 / clocked.plain_round().mpps())
    };
    Ok(match is_first {
        true => [round(action)?, round(Action::Permit)?],
        false => {
            let without = round(Action::Permit)?;
            [round(action)?, without]
        }
    })
}

fn point(case: &Case, router: &Router, pairs: &[[f64; 2]], batch: usize) -> Result<Point> {
    let name = case.name();
    let state = router.plugins().states().find(|state| state.name == name);
    if let Some((_, fault)) = state.as_ref().and_then(|state| state.fault.as_ref()) {
        bail!("{} was disabled: {fault}", case.plugin);
    }
    let quartiles = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| values[(values.len() * quarter / 4).min(values.len() - 1)])
    };
    let [_, whole, _] = quartiles(pairs.iter().map(|[with, _]| *with).collect());
    let [low, middle, high] = quartiles(pairs.iter().map(|[with, less]| with - less).collect());
    Ok(Point {
        plugin: case.plugin,
        engine: case.engine(),
        batch,
        limits: case.limits,
        copied: if case.engine() == Engine::Native.name() { 0 } else { case.copied },
        ns_per_packet: middle,
        ns_per_packet_quartiles: [low, high],
        pipeline_ns_per_packet: whole,
        mpps: 1e3 / whole,
        packets: state.map_or(0, |state| state.counters.packets),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_router::memory::Memory;
    use nilometer_router::plugin::{Batch, Effects, PacketFacts};
    use nilometer_stat::Rng;
    use nilometer_wire::Time;
    use nilometer_wire::memory::HeapMemory;

    /// A frame with a header of IPv4 whose fields are drawn, and a sound checksum.
    fn frame(rng: &mut Rng) -> Vec<u8> {
        let mut frame: Vec<u8> = (0..60).map(|_| rng.next_u64() as u8).collect();
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&46u16.to_be_bytes());
        frame[24..26].fill(0);
        let sum = nilometer_wire::checksum::internet_checksum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    #[test]
    fn timed_plugins_work_as_named_in_both_engines() {
        let mut rng = Rng::new(1, u32::from_be_bytes(*b"wats"), 0);
        let frames: Vec<Vec<u8>> = (0..256).map(|_| frame(&mut rng)).collect();
        for case in cases(46).expect("modules") {
            let Some(class) = &case.class else { continue };
            let mut instance = class.instantiate("", 1).expect("an instance");
            let mut memory = HeapMemory::new(256);
            let mut packets = Vec::new();
            for frame in &frames {
                let place = memory.take(60).expect("a buffer");
                memory.frame_mut(place).copy_from_slice(frame);
                packets.push(PacketFacts::new(place, 46, (0, None)));
            }
            let mut batch = Batch::new(&packets, &mut memory);
            let done = instance.process(Time::ZERO, &mut batch, &mut Effects::default());
            done.expect("no fault");
            assert!(batch.dropped().is_empty(), "{} {}", case.plugin, case.engine());
            let changed = if case.plugin == "header-changing" { 256 } else { 0 };
            assert_eq!(batch.changed().len(), changed, "{} {}", case.plugin, case.engine());
            for (before, facts) in frames.iter().zip(&packets) {
                let after = memory.frame(facts.place);
                let mut expected = before.clone();
                if case.plugin == "header-changing" {
                    expected[15] = DSCP << 2 | before[15] & 3;
                    expected[24..26].fill(0);
                    let sum = nilometer_wire::checksum::internet_checksum(&[&expected[14..34]]);
                    expected[24..26].copy_from_slice(&sum.to_be_bytes());
                }
                assert_eq!(after, expected, "{} {}", case.plugin, case.engine());
            }
            let counted = instance.counters().iter().map(|(_, count)| *count).sum::<u64>();
            assert_eq!(counted, if case.plugin == "counting" { 256 + 256 * 46 } else { 0 });
        }
    }
}
