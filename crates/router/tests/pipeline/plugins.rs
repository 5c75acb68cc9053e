//! Plugins in the data path of chosen flows: what they see, what they may do, and what happens when they fail.

use std::sync::{Arc, Mutex};

use nilometer_queue::Contract;
use nilometer_router::classifier::{Action, Inputs, Rule, RuleId};
use nilometer_router::discard::Discard;
use nilometer_router::memory::Memory;
use nilometer_router::neighbour::ArpPacket;
use nilometer_router::pipeline::reserved::ReservedFlow;
use nilometer_router::plugin::{
    Batch, ClassFacts, ControlError, Effects, Engine, Fault, Instance, OnFault, PluginDecision,
};
use nilometer_wire::{Rate, Time, build};

use crate::bench::{Bench, framed, mend, udp};

/// What the plugin of a test does with a packet.
type Work = Box<dyn FnMut(&mut [u8], &mut Effects) -> Result<PluginDecision, Fault> + Send>;

struct Tested {
    work: Work,
    due: Option<Time>,
    seen: Seen,
}

/// A packet as a plugin sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sight {
    input: u16,
    output: Option<u16>,
    bytes: usize,
    share_bps: Option<u64>,
}

impl Instance for Tested {
    fn process(
        &mut self,
        _: Time,
        batch: &mut Batch<'_>,
        effects: &mut Effects,
    ) -> Result<(), Fault> {
        for at in 0..batch.packets().len() {
            let facts = batch.packets()[at];
            let bytes = batch.packet(at).len();
            let share_bps = batch.share_bps();
            let sight = Sight { input: facts.input(), output: facts.output(), bytes, share_bps };
            self.seen.lock().expect("it").push(sight);
            let verdict = (self.work)(batch.packet_mut(at), effects)?;
            batch.decide(at, verdict);
        }
        Ok(())
    }

    fn handle_message(
        &mut self,
        now: Time,
        message: &str,
        _: &mut Effects,
    ) -> Result<Result<String, String>, Fault> {
        match message.split_once(' ') {
            Some(("in_us", number)) => {
                let after = number.parse::<u64>().expect("a number") * 1_000;
                self.due = Some(Time::from_nanos(now.as_nanos() + after));
                Ok(Ok("as you wish".into()))
            }
            _ if message == "trap" => Err(Fault::Trap("it was asked to".into())),
            _ => Ok(Err(format!("{message}: unknown"))),
        }
    }

    fn handle_timeout(&mut self, _: Time, effects: &mut Effects) -> Result<(), Fault> {
        self.due = None;
        (self.work)(&mut [], effects).map(|_| ())
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    fn counters(&self) -> Vec<(String, u64)> {
        vec![("seen".into(), self.seen.lock().expect("it").len() as u64)]
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

pub fn class(name: &str) -> ClassFacts {
    let (name, version) = (name.into(), "1.0.0".into());
    ClassFacts { name, version, engine: Engine::Native, seen_bytes: u16::MAX }
}

type Seen = Arc<Mutex<Vec<Sight>>>;

pub fn instance(
    work: impl FnMut(&mut [u8], &mut Effects) -> Result<PluginDecision, Fault> + Send + 'static,
) -> (Box<dyn Instance>, Seen) {
    let seen = Seen::default();
    let tested = Tested { work: Box::new(work), due: None, seen: Arc::clone(&seen) };
    (Box::new(tested), seen)
}

/// Enters an instance of this name; where it notes what it sees.
pub fn add(
    bench: &mut Bench,
    name: &str,
    on_fault: OnFault,
    work: impl FnMut(&mut [u8], &mut Effects) -> Result<PluginDecision, Fault> + Send + 'static,
) -> Seen {
    let (instance, seen) = instance(work);
    bench.router.plugins_mut().add(name, class("tested"), instance, on_fault).expect("room");
    seen
}

/// A filter for packets to a destination, before all others of a greater number.
pub fn bind(bench: &mut Bench, id: u32, destination: &str, names: &[&str]) {
    let chain = bench.router.plugins_mut().bind(names).expect("instances");
    let tables = bench.router.tables_mut();
    if let Ok(destination) = destination.parse() {
        let rule = Rule { destination, ..Rule::any(id, Action::Active(chain)) };
        tables.filters4.insert(RuleId(id), rule).expect("room");
    } else {
        let destination = destination.parse().expect("a prefix");
        let rule = Rule { destination, ..Rule::any(id, Action::Active(chain)) };
        tables.filters6.insert(RuleId(id), rule).expect("room");
    }
}

pub fn forward(_: &mut [u8], _: &mut Effects) -> Result<PluginDecision, Fault> {
    Ok(PluginDecision::Forward)
}

/// Gives a packet of IPv4 another destination, and mends its checksum.
pub fn send_to(packet: &mut [u8], address: [u8; 4]) {
    packet[16..20].copy_from_slice(&address);
    let mended = mend(packet.to_vec());
    packet.copy_from_slice(&mended);
}

fn discards(bench: &Bench, why: Discard) -> u64 {
    bench.router.ports()[0].discards().of(why)
}

#[test]
fn only_the_packets_of_its_flows_come_to_a_plugin_and_all_go_on() {
    let mut bench = Bench::new();
    let seen = add(&mut bench, "one", OnFault::Drop, forward);
    bind(&mut bench, 0, "198.19.1.0/24", &["one"]);
    bind(&mut bench, 0, "fd00:11::/64", &["one"]);
    for (to, by) in [("198.19.1.9", 1), ("198.19.2.9", 2), ("fd00:11::9", 1), ("fd00:12::9", 2)] {
        let from = if to.contains(':') { "fd00:10::9" } else { "198.19.0.9" };
        let mut padded = framed(0, &udp(from, to, 30));
        padded.extend([0; 6]);
        let out = bench.pass(0, &padded);
        assert!(matches!(out[..], [(port, _)] if port == by), "{to}: {out:?}");
    }
    let bytes: Vec<usize> = seen.lock().expect("it").iter().map(|sight| sight.bytes).collect();
    assert_eq!(bytes, [58, 78], "without the padding");
    let met = bench.router.tables().filters4.get(RuleId(0)).expect("it").1;
    assert_eq!((met.packets, met.bytes), (1, 58), "the filter counts them once");
}

#[test]
fn packets_of_a_flow_keep_their_order_and_so_do_all_others() {
    let mut bench = Bench::with(|plans| plans.router.fabric.variant = None);
    let mut number = 0;
    add(&mut bench, "odd ones", OnFault::Drop, move |_, _| {
        number += 1;
        Ok(if number % 2 == 0 { PluginDecision::Drop } else { PluginDecision::Forward })
    });
    bind(&mut bench, 0, "198.19.1.9/32", &["odd ones"]);
    let mut places = Vec::new();
    for index in 0..100 {
        let to = if index % 3 == 0 { "198.19.1.9" } else { "198.19.1.8" };
        let frame = framed(0, &udp("198.19.0.9", to, 100 + index));
        let place = bench.memory.take(frame.len() as u16).expect("a buffer");
        bench.memory.frame_mut(place).copy_from_slice(&frame);
        places.push(place);
    }
    bench.router.receive(bench.now, 0, &places, &mut bench.memory, &mut ());
    let out = bench.drain();
    let of = |last: u8| -> Vec<usize> {
        let those = out.iter().filter(|(_, frame)| frame[33] == last);
        those.map(|(_, frame)| frame.len() - 142).collect()
    };
    let expected: Vec<usize> = (0..100).filter(|index| index % 3 != 0).collect();
    assert_eq!(of(8), expected);
    let expected: Vec<usize> = (0..100).step_by(3).step_by(2).collect();
    assert_eq!(of(9), expected);
    assert_eq!(discards(&bench, Discard::Plugin), 17);
}

#[test]
fn a_changed_destination_is_classified_and_looked_up_again() {
    let mut bench = Bench::new();
    add(&mut bench, "elsewhere", OnFault::Drop, |packet, _| {
        send_to(packet, [198, 19, 2, 9]);
        Ok(PluginDecision::Forward)
    });
    let second = add(&mut bench, "second", OnFault::Drop, forward);
    bind(&mut bench, 0, "198.19.1.0/24", &["elsewhere"]);
    bind(&mut bench, 1, "198.19.2.0/24", &["second"]);
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.1.9", 30)));
    let [(2, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((frame[22], &frame[30..34]), (63, &[198, 19, 2, 9][..]), "one hop less, not two");
    assert_eq!(second.lock().expect("it").len(), 1, "the chain of the new destination, too");

    // A filter of the new destination that denies it is met as well.
    let destination = "198.19.2.0/24".parse().expect("a prefix");
    let deny = Rule { destination, ..Rule::any(0, Action::Deny) };
    bench.router.tables_mut().filters4.insert(RuleId(5), deny).expect("room");
    assert!(bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.1.9", 30))).is_empty());
    assert_eq!(discards(&bench, Discard::Denied), 1);
}

#[test]
fn packets_that_loop_between_plugins_are_dropped_after_four_chains() {
    let mut bench = Bench::new();
    for number in 0..5u8 {
        let name = format!("{number}");
        let next = [198, 19, 3, number + 1];
        add(&mut bench, &name, OnFault::Drop, move |packet, _| {
            send_to(packet, next);
            Ok(PluginDecision::Forward)
        });
        bind(&mut bench, number.into(), &format!("198.19.3.{number}/32"), &[&name]);
    }
    let pass = |bench: &mut Bench, last: u8| {
        let out = bench.pass(0, &framed(0, &udp("198.19.0.9", &format!("198.19.3.{last}"), 30)));
        out.first().map(|(_, frame)| frame[33])
    };
    assert_eq!(pass(&mut bench, 1), Some(5), "four chains");
    assert_eq!(pass(&mut bench, 0), None, "a fifth is one too many");
    assert_eq!(discards(&bench, Discard::PluginLoop), 1);

    // Two that send a packet to each other: each sees it once, and it goes where the second says.
    let mut bench = Bench::new();
    let mut seen = Vec::new();
    for (id, to) in [(1u8, 2u8), (2, 1)] {
        let name = format!("to {to}");
        seen.push(add(&mut bench, &name, OnFault::Drop, move |packet, _| {
            send_to(packet, [198, 19, 3, to]);
            Ok(PluginDecision::Forward)
        }));
        bind(&mut bench, id.into(), &format!("198.19.3.{id}/32"), &[&name]);
    }
    assert_eq!(pass(&mut bench, 1), Some(1));
    assert_eq!(seen.iter().map(|seen| seen.lock().expect("it").len()).sum::<usize>(), 2);
}

#[test]
fn the_instances_of_a_chain_work_in_its_order_and_may_be_in_several() {
    let mut bench = Bench::new();
    for (name, mark) in [("a", 1u8), ("b", 2)] {
        add(&mut bench, name, OnFault::Drop, move |packet, _| {
            packet[40] = packet[40] * 10 + mark;
            Ok(PluginDecision::Forward)
        });
    }
    let dropped = add(&mut bench, "none", OnFault::Drop, |_, _| Ok(PluginDecision::Drop));
    let after = add(&mut bench, "after", OnFault::Drop, forward);
    bind(&mut bench, 0, "198.19.1.1/32", &["a", "b"]);
    bind(&mut bench, 1, "198.19.1.2/32", &["b", "a", "b"]);
    bind(&mut bench, 2, "198.19.1.3/32", &["none", "after"]);
    let pass = |bench: &mut Bench, to: &str| {
        let mut packet = udp("198.19.0.9", to, 30);
        packet[40] = 0;
        bench.pass(0, &framed(0, &packet)).first().map(|(_, frame)| frame[54])
    };
    assert_eq!(pass(&mut bench, "198.19.1.1"), Some(12));
    assert_eq!(pass(&mut bench, "198.19.1.2"), Some(212));
    assert_eq!(pass(&mut bench, "198.19.1.3"), None);
    assert_eq!((dropped.lock().expect("it").len(), after.lock().expect("it").len()), (1, 0));
    let plugins = bench.router.plugins_mut();
    assert_eq!(plugins.bind::<&str>(&[]), Err(ControlError::Length(0)));
    assert_eq!(plugins.bind(&["a"; 9]), Err(ControlError::Length(9)));
    assert_eq!(plugins.bind(&["a", "c"]), Err(ControlError::Missing("c".into())));
    assert_eq!(plugins.remove("b").err(), Some(ControlError::Bound("b".into(), 2)));
}

#[test]
fn a_failing_plugin_is_disabled_and_its_flow_follows_the_fault_policy() {
    for (on_fault, passes) in [(OnFault::Drop, 0), (OnFault::Bypass, 1)] {
        let mut bench = Bench::new();
        let mut left = 2;
        let seen = add(&mut bench, "brittle", on_fault, move |_, effects| {
            effects.log("one more");
            left -= 1;
            if left == 0 { Err(Fault::Budget(1_000)) } else { Ok(PluginDecision::Forward) }
        });
        bind(&mut bench, 0, "198.19.1.0/24", &["brittle"]);
        let frame = framed(0, &udp("198.19.0.9", "198.19.1.9", 30));
        let other = framed(0, &udp("198.19.0.9", "198.19.2.9", 30));
        assert_eq!(bench.pass(0, &frame).len(), 1);
        for _ in 0..3 {
            assert_eq!(bench.pass(0, &frame).len(), passes, "{on_fault}");
            assert_eq!(bench.pass(0, &other).len(), 1, "no other flow's packet is lost");
        }
        assert_eq!(seen.lock().expect("it").len(), 2, "it is called no more");
        let lost = 3 * (1 - passes as u64);
        assert_eq!(discards(&bench, Discard::PluginFault), lost);
        let state = bench.router.plugins().states().next().expect("it");
        let counters = state.counters;
        assert_eq!((counters.packets, counters.faults), (1, 1));
        assert_eq!((counters.fault_dropped, counters.bypassed), (lost, 3 - lost));
        assert_eq!(state.fault.expect("cut off").1, Fault::Budget(1_000));
        let lines = bench.router.plugins_mut().take_lines();
        let (first, last) = (&lines[0], lines.last().expect("two"));
        assert_eq!((lines.len(), &first[..]), (2, "plugin brittle: one more"));
        assert!(last.contains("disabled: it used up its budget of 1000 instructions"), "{last}");

        // A new instance in its place: the flow is processed again, by the same filter.
        let (new, seen) = instance(forward);
        let version = ClassFacts { version: "1.0.1".into(), ..class("tested") };
        bench.router.plugins_mut().replace("brittle", version, new).expect("it is there");
        assert_eq!(bench.pass(0, &frame).len(), 1);
        assert_eq!(seen.lock().expect("it").len(), 1);
        let state = bench.router.plugins().states().next().expect("it");
        assert_eq!((state.fault, &state.class.version[..]), (None, "1.0.1"));
    }
}

#[test]
fn emitted_packets_are_looked_up_and_leave() {
    let mut bench = Bench::new();
    add(&mut bench, "twice", OnFault::Drop, |packet, effects| {
        assert!(effects.emit(packet), "a clone");
        let to = udp("198.18.0.1", "198.19.3.9", 9);
        assert!(effects.emit(&to));
        assert!(!effects.emit(&[0; 40]), "not IP");
        assert!(!effects.emit(&udp("198.18.0.1", "198.19.3.9", 1_473)), "too long");
        assert!(!effects.emit(&to[..30]), "cut short");
        Ok(PluginDecision::Forward)
    });
    bind(&mut bench, 0, "198.19.1.0/24", &["twice"]);
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.1.9", 30)));
    let mut by: Vec<usize> = out.iter().map(|(port, _)| *port).collect();
    by.sort_unstable();
    assert_eq!(by, [1, 1, 3]);
    let counters = bench.router.plugins().states().next().expect("it").counters;
    assert_eq!((counters.packets, counters.emitted, counters.not_emitted), (1, 2, 3));
    assert_eq!(bench.router.account().made, 2);
}

#[test]
fn timers_and_messages_reach_an_instance() {
    let mut bench = Bench::new();
    add(&mut bench, "clock", OnFault::Drop, |_, effects| {
        effects.emit(&udp("198.18.0.1", "198.19.3.9", 9));
        Ok(PluginDecision::Forward)
    });
    let now = bench.now;
    let plugins = bench.router.plugins_mut();
    assert_eq!(plugins.message(now, "clock", "in_us 300").expect("an answer"), "as you wish");
    let refused = plugins.message(now, "clock", "sing");
    let expected = ControlError::Answer("clock".into(), "sing: unknown".into());
    assert_eq!(refused, Err(expected));
    assert_eq!(
        plugins.message(now, "glock", "").err(),
        Some(ControlError::Missing("glock".into()))
    );
    let due = bench.router.poll_timeout().expect("a timer");
    assert!(due <= Time::from_nanos(now.as_nanos() + 300_000));
    assert_eq!(bench.drain().len(), 1, "once, and no more");
    assert!(bench.drain().is_empty());
    let failed = bench.router.plugins_mut().message(now, "clock", "trap");
    assert!(matches!(failed, Err(ControlError::CutOff(..))), "{failed:?}");
}

#[test]
fn filters_of_an_output_deny_and_hand_packets_to_plugins() {
    let mut bench = Bench::new();
    let seen = add(&mut bench, "out", OnFault::Drop, |packet, _| {
        if packet[19] == 77 {
            send_to(packet, [198, 19, 3, 9]);
        }
        Ok(PluginDecision::Forward)
    });
    let chain = bench.router.plugins_mut().bind(&["out"]).expect("it");
    let outputs = bench.router.output_filters_mut();
    let by1 = Inputs::of([1]).expect("a port");
    let rule = Rule::any(1, Action::Active(chain));
    outputs.insert(RuleId(0), by1, (Some(rule), None)).expect("room");
    let destination = "198.19.1.66/32".parse().expect("a prefix");
    let deny = Rule { destination, ..Rule::any(0, Action::Deny) };
    outputs.insert(RuleId(1), by1, (Some(deny), None)).expect("room");

    let pass = |bench: &mut Bench, to: &str| {
        let out = bench.pass(0, &framed(0, &udp("198.19.0.9", to, 30)));
        assert!(out.len() <= 1, "{out:?}");
        out.first().map(|(port, frame)| (*port, frame[22]))
    };
    assert_eq!(pass(&mut bench, "198.19.1.9"), Some((1, 63)));
    assert_eq!(pass(&mut bench, "198.19.2.9"), Some((2, 63)));
    assert_eq!(pass(&mut bench, "198.19.1.66"), None, "denied");
    assert_eq!(pass(&mut bench, "198.19.1.77"), Some((3, 63)), "looked up again");
    assert_eq!(discards(&bench, Discard::Denied), 1);
    let sight = Sight { input: 0, output: Some(1), bytes: 58, share_bps: None };
    assert_eq!(*seen.lock().expect("it"), [sight; 2]);

    // Packets of the router itself by that port meet them as well; its messages to neighbours do not.
    let echo = build::icmp(
        "198.19.1.5".parse().expect("it"),
        "198.18.1.1".parse().expect("it"),
        8,
        0,
        &[0; 9],
    );
    assert_eq!(bench.pass(1, &framed(1, &echo)).len(), 1);
    assert_eq!(seen.lock().expect("it").len(), 3);
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.18.1.99", 30)));
    assert_eq!(&out[0].1[12..14], &[8, 6], "ARP");
    assert_eq!(seen.lock().expect("it").len(), 3, "the packet still waits");
    bench.router.output_filters_mut().remove(RuleId(0));
    assert_eq!(pass(&mut bench, "198.19.1.9"), Some((1, 63)));
    assert_eq!(seen.lock().expect("it").len(), 3);
}

#[test]
fn packets_looked_up_again_skip_output_filters_even_after_waiting() {
    let mut bench = Bench::new();
    add(&mut bench, "away", OnFault::Drop, |packet, _| {
        send_to(packet, [198, 18, 3, 77]);
        Ok(PluginDecision::Forward)
    });
    let after = add(&mut bench, "after", OnFault::Drop, forward);
    for (id, name, output) in [(0, "away", 1), (1, "after", 3)] {
        let chain = bench.router.plugins_mut().bind(&[name]).expect("it");
        let rule = (Some(Rule::any(0, Action::Active(chain))), None);
        let outputs = Inputs::of([output]).expect("a port");
        bench.router.output_filters_mut().insert(RuleId(id), outputs, rule).expect("room");
    }
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.19.1.9", 30)));
    let [(3, request)] = &out[..] else { panic!("{out:?}") };
    let request = ArpPacket::read(request).expect("ARP");
    let (frame, bytes) = crate::answer(&request);
    let out = bench.pass(3, &frame[..bytes]);
    let [(3, frame)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((frame[22], &frame[30..34]), (63, &[198, 18, 3, 77][..]));
    assert!(after.lock().expect("it").is_empty());
    // One that was decided for that port from the beginning meets them, though it waits as well.
    let out = bench.pass(0, &framed(0, &udp("198.19.0.9", "198.18.3.78", 30)));
    let request = ArpPacket::read(&out[0].1).expect("ARP");
    let (frame, bytes) = crate::answer(&request);
    assert_eq!(bench.pass(3, &frame[..bytes]).len(), 1);
    assert_eq!(after.lock().expect("it").len(), 1);
}

#[test]
fn on_the_output_side_a_plugin_knows_the_share_of_its_flow() {
    let mut bench = Bench::with(|plans| {
        plans.router.fabric.variant = None;
        plans.ports[1].rate = Some(Rate::from_megabits(3));
    });
    let seen = add(&mut bench, "out", OnFault::Drop, forward);
    let chain = bench.router.plugins_mut().bind(&["out"]).expect("it");
    let destination = "198.19.1.9/32".parse().expect("a prefix");
    let rule = Rule { destination, ..Rule::any(0, Action::Active(chain)) };
    let outputs = bench.router.output_filters_mut();
    outputs.insert(RuleId(0), Inputs::ANY, (Some(rule), None)).expect("room");
    for other in [None, Some("198.19.1.50"), Some("198.19.1.51")] {
        for number in 0..40 {
            let to = other.unwrap_or("198.19.2.1");
            bench.receive(0, &framed(0, &udp("198.19.0.9", to, 1_000 + number)));
        }
        bench.router.advance(bench.now, &mut bench.memory, &mut ());
        bench.receive(0, &framed(0, &udp("198.19.0.9", "198.19.1.9", 30)));
    }
    // A flow with a reservation has its reserved rate.
    let (rate, queue) = (Rate::from_megabits(2), 5);
    let contract = Contract { rate, bucket_bytes: 3_000, capacity_bytes: 30_000 };
    bench.router.reserve(1, queue, contract).expect("a queue");
    let flow = ReservedFlow { queue, pinned: None };
    let rule = Rule { destination, ..Rule::any(0, Action::Permit) };
    let flows = bench.router.reserved_mut();
    flows.insert(RuleId(0), Inputs::ANY, (Some(rule), None), flow).expect("room");
    bench.receive(0, &framed(0, &udp("198.19.0.9", "198.19.1.9", 30)));
    let shares: Vec<_> = seen.lock().expect("it").iter().map(|sight| sight.share_bps).collect();
    assert_eq!(shares, [Some(3_000_000), Some(1_500_000), Some(1_000_000), Some(2_000_000)]);
}
