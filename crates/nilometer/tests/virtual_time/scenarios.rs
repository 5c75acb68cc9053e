//! Scenarios as values: the shipped ones are sound, and a run is a pure function of its scenario.

use std::sync::atomic::AtomicBool;

use nilometer_lab::simulate::perform::Sweep;
use nilometer_lab::simulate::shipped::{SHIPPED, find};
use nilometer_lab::simulate::stress::stress;
use nilometer_lab::simulate::template::Template;
use nilometer_sim::run::run;
use nilometer_sim::scenario::ScenarioKind;
use nilometer_sim::{FlowKind, Network, Outcome, Scenario, assemble};
use nilometer_traffic::TrafficModel;
use nilometer_traffic::vector_plan::Draw;
use nilometer_wire::{Span, Time};

fn shipped(name: &str, set: &[&str]) -> Template {
    let shipped = find(name).expect(name);
    let template = Template::read(shipped.name, shipped.text).expect(name);
    set.iter().fold(template, |template, assignment| template.set(assignment).expect(assignment))
}

/// The scenario at the first point.
fn scenario(name: &str, set: &[&str]) -> Scenario {
    let sweep = Sweep::new(shipped(name, set)).expect(name);
    sweep.scenarios.into_iter().next().expect("a point")
}

fn outcome(scenario: &Scenario, seed: u64) -> Outcome {
    let assembly = assemble(scenario, &[], seed).expect("sound");
    run(assembly, seed, (), &mut |_| true).expect("it ends").0
}

#[test]
fn every_point_of_every_shipped_scenario_is_sound() {
    for one in SHIPPED {
        let template = shipped(one.name, &[]);
        assert_eq!(template.name(), one.name);
        assert!(!template.about().is_empty() && template.about().len() <= 90, "{}", one.name);
        match template.kind().expect(one.name) {
            ScenarioKind::Network => {
                let sweep = Sweep::new(template).expect(one.name);
                assert!(!sweep.runs.is_empty());
            }
            ScenarioKind::Stress => assert!(stress(&template).is_ok(), "{}", one.name),
        }
    }
}

#[test]
fn the_qsdrr_study_is_the_one_that_was_published() {
    let template = shipped("qsdrr", &[]);
    let sweep = Sweep::new(template).expect("sound");
    assert_eq!((sweep.points.len(), sweep.runs.len()), (6 * 8, 6 * 8 * 10));
    let assembly = assemble(&sweep.scenarios[0], &[], 1).expect("sound");
    assert_eq!(assembly.flows.len(), 100);
    assert_eq!(assembly.rate.bits_per_second(), 500_000_000);
    assert_eq!(assembly.duration, Span::from_secs(100));
    assert!(assembly.flows.iter().all(|flow| flow.share == Some(5e6)));
    // Without a queue a packet and its acknowledgement take the round-trip time and their own time.
    let one = scenario(
        "qsdrr",
        &["flows=1", "buffer_packets=100", "discipline=tail_drop", "duration_s=2"],
    );
    let mut network: Network<_> = {
        let assembly = assemble(&one, &[], 1).expect("sound");
        Network::new(assembly.plan, (), true)
    };
    network.run_until(Time::from_nanos(2_000_000_000));
    let nilometer_sim::member::Member::Endpoint(sender) = network.member(0) else {
        panic!("the first member sends")
    };
    let rtt = sender.connection().smoothed_rtt().expect("measured").as_secs_f64();
    assert!((0.1..0.2).contains(&rtt), "{rtt}");
}

#[test]
fn looking_at_a_run_changes_nothing() {
    for discipline in ["tail_drop", "red", "qsdrr", "fq_codel"] {
        let set =
            [&*format!("discipline={discipline}"), "buffer_packets=50", "flows=20", "duration_s=5"];
        let scenario = scenario("qsdrr", &set);
        let looked = outcome(&scenario, 3);
        for fuses in [true, false] {
            let assembly = assemble(&scenario, &[], 3).expect("sound");
            let end = Time::ZERO + assembly.duration;
            let mut network: Network<_> = Network::new(assembly.plan, (), fuses);
            network.run_until(end);
            let journal = network.journal();
            assert_eq!(journal.digest, looked.journal.digest, "{discipline} {fuses}");
            assert_eq!(journal.deliveries, looked.journal.deliveries);
            let hops: u64 = network.counters().iter().map(|link| link.transmitted_packets).sum();
            assert_eq!(hops, looked.packet_hops, "the links' counters");
            assert!(network.balances());
        }
        assert_eq!(outcome(&scenario, 3), looked);
        assert_ne!(outcome(&scenario, 4).journal.digest, looked.journal.digest);
    }
}

/// The records of the call's packets, at their send times, add up to the counts of its sink.
#[test]
fn the_course_of_a_delay_has_every_packet_that_arrived() {
    let scenario = scenario("rrul", &["discipline=tail_drop", "duration_s=10"]);
    let outcome = outcome(&scenario, 1);
    let calls: Vec<_> =
        outcome.flows.iter().filter(|flow| flow.kind == FlowKind::Datagrams).collect();
    assert_eq!((calls.len(), outcome.courses.len()), (2, 2));
    for (number, (call, (table, course))) in calls.iter().zip(&outcome.courses).enumerate() {
        assert_eq!((*table as usize, course.delays_ns().len()), (number, 10));
        let all: Vec<u64> = course.delays_ns().iter().flatten().copied().collect();
        let (sent, received) = call.datagrams.expect("datagrams");
        assert!(received <= sent && all.len() as u64 == received);
        let (mean_s, most) = call.delay.expect("some arrived");
        let mean_ns = all.iter().sum::<u64>() as f64 / all.len() as f64;
        assert!((mean_ns / 1e9 - mean_s).abs() < 1e-8, "{mean_ns} {mean_s}");
        assert_eq!(all.iter().max().copied(), Some(most.0 / 1_000));
        // One packet each 20 ms: no interval has more than its fifty.
        assert!(course.delays_ns().iter().all(|delays| (1..=50).contains(&delays.len())));
    }
    // Where none is lost, an interval has as many as were sent in it: the first one begins with a pause.
    let calm = self::scenario("rrul", &["discipline=fq_codel", "duration_s=4"]);
    let sent =
        self::outcome(&calm, 1).courses[0].1.delays_ns().iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sent[..3], [49, 50, 50]);
    let mut unasked = scenario.clone();
    unasked.measure.delays_every = None;
    let without = self::outcome(&unasked, 1);
    assert!(without.courses.is_empty());
    assert_eq!(without.journal.digest, outcome.journal.digest, "keeping them changes nothing");
}

#[test]
fn courses_that_are_too_long_are_refused() {
    let refused = |duration_s: f64, every: f64| {
        let mut scenario = scenario("rrul", &["discipline=red"]);
        scenario.duration_s = duration_s;
        scenario.measure.delays_every = Some(Span::from_secs_f64(every));
        assemble(&scenario, &[], 1).expect_err("too much").to_string()
    };
    assert!(refused(10.0, 0.0).contains("more than nothing"));
    assert!(refused(10.0, 0.0001).contains("at most 10000 intervals"));
    let line = refused(15_000.0, 2.0);
    assert!(line.contains("measure.delays_every") && line.contains("1500000 delays"), "{line}");
}

/// With ECN a discipline that can mark drops none of the transfers' packets early; the call is not capable.
#[test]
fn rrul_has_a_switch_for_ecn() {
    let early = |set: &[&str]| {
        let set = [&["discipline=codel", "duration_s=10"], set].concat();
        let outcome = outcome(&scenario("rrul", &set), 1);
        (outcome.loss_ratio(), outcome.retransmits())
    };
    let (without, with) = (early(&[]), early(&["ecn=true"]));
    assert_eq!(without, early(&["ecn=false"]));
    assert!(without.0 > 0.0 && with.0 < without.0 / 4.0, "{without:?} {with:?}");
    assert!(with.1 < without.1 / 4, "{without:?} {with:?}");
}

#[test]
fn goodput_excludes_retransmissions_over_the_bottleneck() {
    let set = ["buffer_packets=200", "discipline=qsdrr", "duration_s=10"];
    let outcome = outcome(&scenario("qsdrr", &set), 1);
    assert!(outcome.is_balanced);
    let delivered: f64 = outcome.flows.iter().map(|flow| flow.delivered_bytes).sum();
    let carried = outcome.bottleneck.transmitted_bytes as f64;
    // Needless retransmissions, data behind a hole and data under way were carried as well.
    assert!(delivered < carried && delivered > 0.8 * carried, "{delivered} of {carried}");
    let percent = outcome.fair_share_percent().expect("measured");
    assert!((percent / 100.0 - delivered * 8.0 / 10.0 / 5e8).abs() < 1e-9);
    assert!(outcome.loss_ratio() > 0.0 && outcome.utilisation <= 1.0);
}

/// Anything quadratic would take hours.
#[test]
fn a_hundred_thousand_flows_are_set_up() {
    let scenario = scenario("qsdrr", &["flows=100000", "buffer_packets=200000", "duration_s=1"]);
    let assembly = assemble(&scenario, &[], 1).expect("sound");
    assert_eq!(assembly.flows.len(), 100_000);
}

#[test]
fn faults_happen_on_the_link_that_has_them() {
    let text = find("qsdrr").expect("shipped").text.replace(
        "delay = \"0.4 $rtt_ms\"",
        "delay = \"0.4 $rtt_ms\"\nloss = 0.01\nduplicate = 0.01\nreorder = 0.01\nreorder_by = \"2 ms\"",
    );
    let template = ["flows=10", "buffer_packets=5000", "discipline=tail_drop", "duration_s=20"]
        .iter()
        .fold(Template::read("faulty", &text).expect("sound"), |template, set| {
            template.set(set).expect("known")
        });
    let sweep = Sweep::new(template).expect("sound");
    let made = outcome(&sweep.scenarios[0], 1);
    assert!(made.is_balanced);
    assert!(made.retransmits() > 50, "{}", made.retransmits());
    let percent = made.fair_share_percent().expect("measured");
    assert!((5.0..80.0).contains(&percent), "loss keeps Reno from its share: {percent}");
    assert_eq!(outcome(&sweep.scenarios[0], 1), made);
}

#[test]
fn a_flow_with_an_end_ends() {
    let text = find("qsdrr").expect("shipped").text;
    let text = text.replace("tcp = \"$tcp\"", "tcp = \"$tcp\"\nbytes = 100000\nstart_s = 0.5");
    let template = ["flows=5", "buffer_packets=500", "discipline=tail_drop", "duration_s=5"]
        .iter()
        .fold(Template::read("finite", &text).expect("sound"), |template, set| {
            template.set(set).expect("known")
        });
    let sweep = Sweep::new(template).expect("sound");
    for flow in outcome(&sweep.scenarios[0], 1).flows {
        let packets: f64 = 100_000.0 / 1460.0;
        assert!((flow.delivered_bytes - packets * 1500.0).abs() < 1.0, "{flow:?}");
        let took = flow.finished.expect("it ends").since(flow.start).as_secs_f64();
        // A handshake and six windows from 2 to 64 segments, each a round trip of 100 ms.
        assert!(
            flow.start >= Time::from_nanos(500_000_000) && (0.5..1.0).contains(&took),
            "{took}"
        );
    }
}

#[test]
fn a_traffic_model_is_played() {
    let text = "version = 1\nname = \"played\"\nduration_s = 30\n\
        [[host]]\nname = \"servers\"\ncount = 7\n[[host]]\nname = \"clients\"\ncount = 3\n\
        [[router]]\nname = \"R1\"\n[[router]]\nname = \"R2\"\n\
        [[link]]\nname = \"a\"\nfrom = \"servers\"\nto = \"R1\"\nrate = \"1 Gb/s\"\n\
        [[link]]\nname = \"b\"\nfrom = \"R1\"\nto = \"R2\"\nrate = \"100 Mb/s\"\ndelay = \"5 ms\"\n\
        [[link]]\nname = \"c\"\nfrom = \"R2\"\nto = \"clients\"\nrate = \"1 Gb/s\"\n\
        [[model]]\nfile = \"embedded\"\nfrom = \"servers\"\nto = \"clients\"\ntcp = \"cubic\"\n\
        [measure]\nbottleneck = \"b\"\n";
    let sweep = Sweep::new(Template::read("played", text).expect("sound")).expect("sound");
    let models: &[TrafficModel] = &sweep.models[0];
    let performed = sweep.perform(1, &AtomicBool::new(false)).expect("it runs");
    let outcome = performed.made[0].as_ref().expect("made");
    assert!(outcome.flows.len() > 100, "{}", outcome.flows.len());
    assert!(outcome.flows.iter().all(|flow| flow.kind == FlowKind::Model && flow.share.is_none()));
    assert_eq!(performed.result.points[0].fair_share_percent, None);
    let finished = outcome.flows.iter().filter(|flow| flow.finished.is_some());
    assert!(finished.clone().count() * 10 > outcome.flows.len() * 8, "most end");
    assert!(finished.clone().all(|flow| flow.finished > Some(flow.start)));
    // The plan that the shell would perform, with its sizes and moments.
    let plan = nilometer_lab::trial::planning::plan(&models[0], Draw::Seed(1), 1).expect("a plan");
    for (flow, planned) in outcome.flows.iter().zip(&plan.connections) {
        assert_eq!(flow.start, planned.start);
        let packets = flow.delivered_bytes / 1500.0 * 1460.0;
        assert!(flow.finished.is_none() || (packets - planned.size_bytes as f64).abs() < 1.0);
    }
}

/// One host that sends datagrams, described by `datagrams`, over a long line and a bottleneck of 10 Mb/s.
fn one_source(bottleneck: &str, datagrams: &str) -> Outcome {
    let text = format!(
        "version = 1\nname = \"one\"\nduration_s = 10\n\
        [[host]]\nname = \"source\"\n[[host]]\nname = \"sink\"\n[[router]]\nname = \"R\"\n\
        [[link]]\nname = \"access\"\nfrom = \"source\"\nto = \"R\"\nrate = \"1 Gb/s\"\ndelay = \"20 ms\"\n\
        [[link]]\nname = \"b\"\nfrom = \"R\"\nto = \"sink\"\nrate = \"10 Mb/s\"\n{bottleneck}\n\
        [[datagrams]]\nfrom = \"source\"\nto = \"sink\"\n{datagrams}\n\
        [measure]\nbottleneck = \"b\"\n"
    );
    let sweep = Sweep::new(Template::read("one", &text).expect("sound")).expect("sound");
    outcome(&sweep.scenarios[0], 1)
}

/// A FIFO behind a single line may be decided before its packets arrive; the observed one is not.
#[test]
fn nothing_waits_at_a_queue_before_it_has_come() {
    let tail_drop = "[link.queue]\ndiscipline = \"tail_drop\"\nbuffer_packets = 5";
    let half = "rate = \"5 Mb/s\"\nsize_bytes = 1500";
    assert_eq!(one_source(tail_drop, half).mean_queue_packets, 0.0, "the line is never full");
    // The link is busy half of the time, with half of a packet on average.
    let waiting = one_source("", half).mean_queue_packets;
    assert!((0.2..0.3).contains(&waiting), "{waiting}");
    let twice = "rate = \"20 Mb/s\"\nsize_bytes = 1500";
    for (bottleneck, most) in [(tail_drop, 5.0), ("fifo_bytes = 6000", 5.0)] {
        let made = one_source(bottleneck, twice);
        let waiting = made.mean_queue_packets;
        assert!((most - 1.5..=most).contains(&waiting), "{waiting} with {bottleneck}");
        // A packet each 0.6 ms, the first 20 ms on the way and the last not there at the end.
        let offered = made.bottleneck.offered_packets;
        assert!((16_630..=16_634).contains(&offered), "{offered} with {bottleneck}");
    }
}

#[test]
fn drawn_lengths_keep_the_rate_and_oversized_ones_are_counted() {
    for (size, mtu) in [(100, 1_500), (28, 1_500)] {
        let datagrams = format!("rate = \"5 Mb/s\"\nsizes = \"exponential\"\nsize_bytes = {size}");
        let made = one_source(&format!("mtu = {mtu}"), &datagrams);
        let rate = made.flows[0].delivered_bytes * 8.0 / (10.0 - 0.02);
        assert!((rate / 5e6 - 1.0).abs() < 0.01, "{rate} b/s of {size} bytes");
        assert_eq!(made.too_big, 0);
    }
    let datagrams = "rate = \"5 Mb/s\"\nsizes = \"exponential\"\nsize_bytes = 1000";
    let made = one_source("", datagrams);
    let (sent, received) = made.flows[0].datagrams.expect("counts");
    // Of an exponential law, e^-1.5 is above one and a half means.
    let share = made.too_big as f64 / sent as f64;
    assert!((share - (-1.5f64).exp()).abs() < 0.01, "{share}");
    assert!(sent - received - made.too_big < 100, "nothing else is lost");
}
