//! The arithmetic of prices, disturbances, pace and loads, on figures made up.

use super::result::Cost;
use super::tester::Run;
use super::usage::OTHERS_MAX;
use super::*;
use nilometer_linux::machine::MachineUse;

fn sampled(sent: u64, delivered: u64, cpu: f64) -> Sample {
    let run = Run { sent, delivered, seconds: 0.5, ..Run::default() };
    let machine = MachineUse { all_s: 1.0, elapsed_s: 0.5, busy_s: cpu, ..MachineUse::default() };
    let usage = Usage { machine, held_up: 0.0 };
    Sample { run, cpu, usage, paths: None }
}

/// A device's samples, each beside the bare link's.
fn coursed(pairs: &[[Sample; 2]]) -> Course {
    let mut course = Course::new(Rounds::new(8, pairs.len().max(1) as u32), OTHERS_MAX);
    pairs.iter().for_each(|[own, bare]| course.add(*own, *bare));
    course
}

#[test]
fn the_price_is_the_cost_beyond_that_of_the_bare_link() {
    // 1,000 frames cost 0.1 s bare, and 0.3 s through a device.
    let pairs = [
        [sampled(1_000, 900, 0.3), sampled(1_000, 1_000, 0.1)],
        [sampled(1_000, 900, 0.3), sampled(2_000, 2_000, 0.2)],
    ];
    let point = point(&coursed(&pairs.repeat(4)));
    assert_eq!((point.offered_pps, point.forwarded_pps), (2_000.0, 1_800.0));
    let price = point.packets_per_cpu_second.expect("it costs something");
    assert!((price - 900.0 / 0.2).abs() < 1e-6, "{price}");
    let interval = point.packets_per_cpu_second_interval.expect("no scatter");
    assert!((interval.low - price).abs() < 1e-6 && point.told, "{interval:?}");
    assert!((point.generator_cpu_seconds - 0.2).abs() < 1e-9);
    assert!(point.is_paced && point.rounds == 8 && point.rounds_discarded == 0);
}

#[test]
fn a_point_lost_in_the_noise_is_not_reported() {
    let bare = sampled(1_000, 1_000, 0.2);
    let pairs = [0.4, 0.1, 0.3, 0.0].map(|cpu| [sampled(1_000, 1_000, cpu), bare]);
    let point = point(&coursed(&pairs.repeat(3)));
    assert_eq!((point.told, point.packets_per_cpu_second), (false, None));
    assert_eq!(point.packets_per_cpu_second_range, None);
    assert!(point.not_told.is_some_and(|why| why.contains("noise")));
    let forwarding = |points: Vec<Point>| Forwarding {
        points_told: points.iter().filter(|point| point.told).count(),
        points,
        ..nothing()
    };
    let told = |told| Point { told, ..point_of_nothing() };
    assert!(forwarding([vec![told(true); 9], vec![told(false)]].concat()).is_complete());
    assert!(!forwarding([vec![told(true); 8], vec![told(false)]].concat()).is_complete());
}

fn point_of_nothing() -> Point {
    let sample = sampled(1, 1, 0.1);
    point(&coursed(&[[sample, sample]]))
}

fn nothing() -> Forwarding {
    Forwarding {
        seed: 1,
        seconds: 0.1,
        rounds: 8,
        rounds_max: 8,
        others_max: OTHERS_MAX,
        confidence: CONFIDENCE,
        half_width_max: HALF_WIDTH_MAX,
        points_told: 0,
        routes: 0,
        filters: 0,
        ports: Vec::new(),
        points: Vec::new(),
        comparison: None,
        warnings: Vec::new(),
    }
}

#[test]
fn rounds_that_others_disturbed_do_not_count() {
    let quiet = [sampled(1_000, 1_000, 0.3), sampled(1_000, 1_000, 0.1)];
    let mut disturbed = quiet;
    // The bare link's run, disturbed by a compiler.
    disturbed[1].cpu = 0.25;
    disturbed[1].usage.machine.busy_s = 0.9;
    let pairs = [[quiet; 8].as_slice(), &[disturbed; 3]].concat();
    let mut course = Course::new(Rounds::new(8, 40), OTHERS_MAX);
    pairs.iter().rev().for_each(|[own, bare]| course.add(*own, *bare));
    let point = point(&course);
    assert_eq!((point.rounds, point.rounds_discarded, point.told), (8, 3, true));
    assert!((point.packets_per_cpu_second.expect("told") - 5_000.0).abs() < 1e-6, "{point:?}");
    let found = doubts(&[point]);
    assert!(found.contains(&Doubt::Disturbed { disturbed: 3, rounds: 11 }), "{found:?}");
}

#[test]
fn runs_that_agree_are_distinguished_from_those_that_differ() {
    let run = |price_ns: f64, told| {
        let cost = Cost { mean: price_ns, error: 4.0, degrees: 7.0 };
        let point = |asked_pps| Point {
            dut: "nilometer".to_owned(),
            variant: "complete".to_owned(),
            asked_pps,
            told,
            packet_cpu_ns: Some(cost),
            ..point_of_nothing()
        };
        let points: Vec<Point> = [1e5, 2e5].map(point).to_vec();
        Forwarding { points_told: points.iter().filter(|it| it.told).count(), points, ..nothing() }
    };
    let alike = compare(&[&run(500.0, true), &run(510.0, true), &run(505.0, true)]);
    assert_eq!((alike.differences, alike.apart.len()), (6, 0));
    assert!((alike.confidence - (1.0 - 0.05 / 6.0)).abs() < 1e-12);
    let apart = compare(&[&run(500.0, true), &run(560.0, true), &run(505.0, true)]);
    assert_eq!(apart.apart.len(), 4, "{apart:?}");
    assert!(apart.shown()[1].contains("500 ns in run 0, 560 ns in run 1"), "{:?}", apart.shown());
    // What is not reported is not compared with anything.
    let untold = compare(&[&run(500.0, true), &run(900.0, false)]);
    assert_eq!((untold.differences, untold.apart.len()), (0, 0));
    assert_eq!(untold.points, [[2, 2], [2, 0]]);
}

#[test]
fn a_generator_that_was_held_up_is_reported() {
    let held = Run { sent: 90, missed: 10, ..Run::default() };
    let kept = Run { sent: 99, missed: 1, ..Run::default() };
    assert!(!held.is_paced() && kept.is_paced());
    let mut sample = sampled(90, 90, 0.5);
    sample.run = Run { seconds: 0.5, delivered: 90, ..held };
    let point = point(&coursed(&[[sample, sampled(90, 90, 0.2)]; 8]));
    assert!(!point.is_paced);
    assert_eq!(without_interrupts(doubts(&[point])).len(), 1);
}

/// The doubts about points, and not those about the kernel that this runs on.
fn without_interrupts(found: Vec<Doubt>) -> Vec<String> {
    let found = found.iter().filter(|doubt| **doubt != Doubt::InterruptsApart);
    found.map(Doubt::to_string).collect()
}

#[test]
fn losses_of_the_tester_itself_are_reported() {
    let deaf = |unheard| {
        let mut sample = sampled(1_000, 1_000 - unheard, 0.5);
        sample.run.unheard = unheard;
        let bare = sampled(1_000, 1_000, 0.2);
        let mut pairs = [[sampled(1_000, 1_000, 0.5), bare]; 8];
        pairs[3] = [sample, bare];
        point(&coursed(&pairs))
    };
    assert_eq!(without_interrupts(doubts(&[deaf(1)])), Vec::<String>::new());
    let found = without_interrupts(doubts(&[deaf(0), deaf(30)]));
    assert!(
        found.len() == 1 && found[0].contains("1 of 2") && found[0].contains("3.0 %"),
        "{found:?}"
    );
}

#[test]
fn the_first_length_is_offered_at_every_rate_and_the_others_at_two() {
    let options = Options {
        duts: Dut::ALL.to_vec(),
        variants: Variant::ALL.to_vec(),
        frame_bytes: vec![64, 512],
        rates: vec![1.0, 2.0, 3.0],
        seconds: 0.1,
        rounds: 1,
        rounds_max: 1,
        others_max: OTHERS_MAX,
        against: Vec::new(),
        seed: 1,
    };
    assert_eq!(loads(&options), [(64, 0), (64, 1), (64, 2), (512, 0), (512, 2)]);
    let ours = |variant| Some((Dut::Nilometer, variant));
    assert!(is_wanted(&options, ours(Variant::NoDq), (64, 1)));
    assert!(!is_wanted(&options, ours(Variant::NoDq), (512, 0)));
    assert!(is_wanted(&options, ours(Variant::Complete), (512, 0)));
    assert!(is_wanted(&options, None, (512, 2)));
}
