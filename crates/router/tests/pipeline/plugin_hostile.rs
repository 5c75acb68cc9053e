//! Plugins that do random things, whatever a plugin can do.

use nilometer_router::classifier::{Action, Inputs, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::memory::Memory;
use nilometer_router::plugin::control::{InstanceCounters, InstanceState};
use nilometer_router::plugin::{Effects, Fault, OnFault, PluginDecision};
use nilometer_stat::Rng;
use nilometer_wire::Span;

use crate::bench::{Bench, framed, udp};
use crate::frames::Frames;
use crate::hostile::take;
use crate::plugins::{add, bind, class, instance, send_to};

/// Drops, damages, redirects, emits, logs and fails by chance.
fn hostile(
    seed: u64,
) -> impl FnMut(&mut [u8], &mut Effects) -> Result<PluginDecision, Fault> + Send {
    let mut rng = Rng::new(seed, u32::from_be_bytes(*b"plug"), 0);
    move |packet, effects| {
        let at = rng.below(packet.len().max(1) as u64) as usize;
        match rng.below(12) {
            0 => return Ok(PluginDecision::Drop),
            1 if rng.below(2_000) == 0 => return Err(Fault::Trap("by chance".into())),
            2 if !packet.is_empty() => packet[at] ^= 1 << rng.below(8),
            3 => _ = effects.emit(packet),
            4 => effects.log(&"x".repeat(at)),
            5..8 if packet.len() >= 20 && packet[0] >> 4 == 4 => {
                send_to(packet, [198, 19, rng.below(6) as u8, rng.below(4) as u8]);
            }
            _ => {}
        }
        Ok(PluginDecision::Forward)
    }
}

#[test]
fn hostile_plugins_lose_nothing_of_the_account_and_let_nothing_unsound_leave() {
    let mut bench = Bench::new();
    for (number, name) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
        let on_fault = if number % 2 == 0 { OnFault::Drop } else { OnFault::Bypass };
        add(&mut bench, name, on_fault, hostile(number as u64));
        bind(&mut bench, number as u32, &format!("198.19.{number}.0/30"), &[name, "a"]);
    }
    bind(&mut bench, 8, "0.0.0.0/0", &["b", "c"]);
    bind(&mut bench, 8, "::/0", &["d"]);
    let chain = bench.router.plugins_mut().bind(&["e"]).expect("it");
    let rule =
        (Some(Rule::any(0, Action::Active(chain))), Some(Rule::any(0, Action::Active(chain))));
    let outputs = bench.router.output_filters_mut();
    outputs.insert(RuleId(0), Inputs::of([1, 2]).expect("ports"), rule).expect("room");

    let (mut frames, mut sent) = (Frames::new(5), 0);
    let rounds = if cfg!(debug_assertions) { 200 } else { 5_000 };
    for round in 0..rounds {
        let mut batches: [Vec<_>; 4] = Default::default();
        for number in 0..32 {
            let (port, frame) = match number % 4 {
                0 => frames.next(),
                _ => (0, framed(0, &udp("198.19.0.9", &format!("198.19.{}.1", number % 6), 30))),
            };
            let place = bench.memory.take(frame.len() as u16).expect("the router holds few");
            bench.memory.frame_mut(place).copy_from_slice(&frame);
            batches[port].push(place);
        }
        for (port, batch) in batches.iter().enumerate() {
            bench.router.receive(bench.now, port, batch, &mut bench.memory, &mut ());
        }
        bench.now += Span::from_nanos(50_000);
        bench.router.advance(bench.now, &mut bench.memory, &mut ());
        sent += take(&mut bench);
        assert!(bench.router.balances(), "round {round}");
        assert_eq!(bench.memory.taken() as u64, bench.router.inside());
        // Instances that were cut off are replaced, so that all continue to be called.
        let is_cut = |state: InstanceState| state.fault.is_some().then_some(state.name);
        let cut_off: Vec<String> = bench.router.plugins().states().filter_map(is_cut).collect();
        for name in cut_off.iter().filter(|_| round % 100 == 0) {
            let (new, _) = instance(hostile(round));
            bench.router.plugins_mut().replace(name, class("tested"), new).expect("it is there");
        }
    }
    let states: Vec<_> = bench.router.plugins().states().collect();
    let sum = |of: fn(&InstanceCounters) -> u64| -> u64 {
        states.iter().map(|state| of(&state.counters)).sum()
    };
    assert!(sent > 10_000 || cfg!(debug_assertions), "{sent}");
    for why in [Discard::Plugin, Discard::PluginFault, Discard::PluginLoop, Discard::HeaderChecksum]
    {
        assert!(bench.router.ports()[0].discards().of(why) > 0 || cfg!(debug_assertions), "{why}");
    }
    assert!(sum(|of| of.faults) > 3 && sum(|of| of.emitted) > 0 || cfg!(debug_assertions));
}
