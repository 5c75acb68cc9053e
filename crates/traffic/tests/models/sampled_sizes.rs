//! File sizes of sampled records compared with the files that were sent.

use crate::sampling::{Packet, address, options};
use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_stat::{Empirical, Rng, ks_of_sorted, lognormal, pareto};
use nilometer_traffic::estimate::estimate;

const PURPOSE: u32 = 0x7369_7a65;
const DURATION_NS: u64 = 3_600_000_000_000;
const SPACING_NS: u64 = 2_000_000;
/// The largest file that is sent, bytes.
const LARGEST: f64 = 50e6;

/// How files are drawn, and how they travel.
struct Law {
    name: &'static str,
    /// Bytes of a file.
    draw: fn(&mut Rng) -> f64,
    /// Payload of a full packet.
    segment: u64,
    /// A FIN of its own follows the last packet.
    closes_apart: bool,
    /// Sizes are whole segments, and compared between two of them.
    is_whole: bool,
}

/// The flows of `sampled.rs`: whole packets of 1,000 bytes.
fn whole_packets(rng: &mut Rng) -> f64 {
    let length = if rng.unit() < 0.55 { 2.0 + rng.exponential(2.0) } else { pareto(rng, 1.3, 4.0) };
    1_000.0 * (length.min(20_000.0).floor() - 1.0)
}

/// Files of the Web: a lognormal body and a Pareto tail (Barford and Crovella, SIGMETRICS 1998).
fn web(rng: &mut Rng) -> f64 {
    if rng.unit() < 0.93 { lognormal(rng, 9.357, 1.318) } else { pareto(rng, 1.1, 133_000.0) }
}

/// Short answers and long downloads.
fn two_kinds(rng: &mut Rng) -> f64 {
    if rng.unit() < 0.55 { 200.0 + rng.exponential(3_000.0) } else { pareto(rng, 1.2, 6_000.0) }
}

/// One law from the shortest to the longest.
fn one_kind(rng: &mut Rng) -> f64 {
    lognormal(rng, 9.0, 2.0)
}

/// The repository's own synthetic originals (`synthetic`).
fn synthetic(rng: &mut Rng) -> f64 {
    if rng.unit() < 0.88 { lognormal(rng, 8.16, 1.1) } else { pareto(rng, 1.2, 9_000.0) }
}

/// Two humps, a factor of sixty apart.
fn bimodal(rng: &mut Rng) -> f64 {
    if rng.unit() < 0.6 { lognormal(rng, 7.0, 0.7) } else { lognormal(rng, 11.1, 0.9) }
}

fn weibull(rng: &mut Rng) -> f64 {
    20_000.0 * rng.exponential(1.0).powi(2)
}

/// A lognormal body and a Pareto tail of 1.2.
fn body_and_tail(rng: &mut Rng) -> f64 {
    if rng.unit() < 0.9 { lognormal(rng, 9.0, 1.2) } else { pareto(rng, 1.2, 30_000.0) }
}

fn log_logistic(rng: &mut Rng) -> f64 {
    let rank = rng.unit();
    9_000.0 * (rank / (1.0 - rank)).powf(1.0 / 1.4)
}

fn two_exponentials(rng: &mut Rng) -> f64 {
    let mean = if rng.unit() < 0.7 { 2_500.0 } else { 60_000.0 };
    rng.exponential(mean)
}

/// A Pareto law from its least size on.
fn pareto_alone(rng: &mut Rng) -> f64 {
    pareto(rng, 1.2, 2_000.0)
}

/// Files that a FIN of its own follows, or whose last packet has it.
const fn files(name: &'static str, draw: fn(&mut Rng) -> f64, closes_apart: bool) -> Law {
    let segment = if closes_apart { 1_448 } else { 1_460 };
    Law { name, draw, segment, closes_apart, is_whole: false }
}

const WHOLE_PACKETS: Law = Law {
    name: "whole packets",
    draw: whole_packets,
    segment: 1_000,
    closes_apart: false,
    is_whole: true,
};
const WEB: Law = files("web", web, true);
const SYNTHETIC: Law = files("synthetic", synthetic, true);
const TWO_KINDS: Law = files("two kinds", two_kinds, false);
const ONE_KIND: Law = files("one kind", one_kind, true);
const PARETO: Law = files("Pareto", pareto_alone, false);
const TWO_LOGNORMALS: Law = files("two lognormals", bimodal, false);

/// Laws with which families and priors of the inversion were chosen.
const TUNED: [Law; 8] = [
    WHOLE_PACKETS,
    WEB,
    SYNTHETIC,
    TWO_KINDS,
    ONE_KIND,
    TWO_LOGNORMALS,
    files("Weibull", weibull, true),
    PARETO,
];

/// Held-out laws, with which nothing was chosen.
const HELD_OUT: [Law; 3] = [
    files("body and tail", body_and_tail, true),
    files("log-logistic", log_logistic, true),
    files("two exponentials", two_exponentials, false),
];

const REFERENCES: [(u64, u32); 3] = [(50_000, 10), (1_000_000, 100), (1_000_000, 1_000)];

/// The record of a file with one packet in `interval` sampled, if any is.
fn record(number: u64, size: u64, law: &Law, interval: u32, rng: &mut Rng) -> Option<FlowRecord> {
    let carrying = size.div_ceil(law.segment);
    let packets = 1 + carrying + u64::from(law.closes_apart);
    let start_ns = rng.below(DURATION_NS);
    let key = FlowKey {
        source: address(1, number % 40),
        destination: address(0, number / 60_000),
        source_port: 80,
        destination_port: 1_024 + (number % 60_000) as u16,
        protocol: TCP,
    };
    crate::sampling::sampled(key, packets, interval, rng, |at| {
        let payload = match at {
            0 => 0,
            _ if at < carrying => law.segment,
            _ if at == carrying => size - (carrying - 1) * law.segment,
            _ => 0,
        };
        let flags = match at {
            0 => tcp_flags::SYN | tcp_flags::ACK,
            _ if at + 1 == packets => tcp_flags::FIN | tcp_flags::ACK,
            _ => tcp_flags::ACK,
        };
        Packet { at_ns: start_ns + at * SPACING_NS, payload, flags }
    })
}

/// The greatest difference of the distribution functions between possible sizes.
fn ks_between(sorted: &[f64], model: &Empirical, segment: f64) -> f64 {
    let mut worst = 0.0_f64;
    for whole in 1..2_000 {
        let at = segment * (f64::from(whole) + 0.5);
        let truth = sorted.partition_point(|size| *size <= at) as f64 / sorted.len() as f64;
        worst = worst.max((truth - model.cdf(at)).abs());
    }
    worst
}

struct Outcome {
    ks: f64,
    /// Ratio of estimated to true flows.
    flows: f64,
    /// Ratio of estimated bytes to bytes sent.
    bytes: f64,
    /// The stated distance from the truth (95 %).
    spread: f64,
    /// The ratio of the median to the true one, or its inverse if that is larger, and the stated factor (95 %).
    median_off: f64,
    median_factor: f64,
    is_identified: bool,
}

/// The stated KS distance of sizes and factor of their median, and whether they count as identified.
fn stated(warnings: &[String]) -> (f64, f64, bool) {
    let of_sizes = |one: &&String| one.contains("sizes of files are ");
    let line = warnings.iter().find(of_sizes).expect("sizes are estimated");
    let number = |before: &str| {
        let from = line.split_once(before)?.1;
        from.split([' ', ',']).next()?.parse().ok()
    };
    let factor = number("a factor of ").or(number("medians up to "));
    let is_identified = !line.contains("not identified");
    (number("KS ").expect("a distance"), factor.expect("a factor"), is_identified)
}

fn outcome(seed: u64, (files, interval): (u64, u32), law: &Law) -> Outcome {
    let mut rng = Rng::new(seed, PURPOSE, 0);
    let draw = |rng: &mut Rng| ((law.draw)(rng).min(LARGEST) as u64).max(100);
    let drawn: Vec<u64> = (0..files).map(|_| draw(&mut rng)).collect();
    let sizes = drawn.iter().zip(0..);
    let records = sizes.filter_map(|(size, at)| record(at, *size, law, interval, &mut rng));
    let made = estimate(records.collect(), &options(600.0, DURATION_NS)).expect("a model");
    let ((spread, median_factor, is_identified), model) = (stated(&made.warnings), made.model);
    let mut sorted: Vec<f64> = drawn.iter().map(|size| *size as f64).collect();
    sorted.sort_by(f64::total_cmp);
    let ks = match law.is_whole {
        true => ks_between(&sorted, &model.file_size, law.segment as f64),
        false => ks_of_sorted(&sorted, &model.file_size),
    };
    let flows = model.flow_count.expect("SYNs") as f64 / files as f64;
    let bytes = model.bytes() as f64 / sorted.iter().sum::<f64>();
    let median = model.file_size.quantile(0.5) / sorted[sorted.len() / 2];
    println!(
        "{}, {files} at 1:{interval}, seed {seed}: KS {ks:.3} of {spread:.2}, median x {median:.2} of {median_factor}, \
         identified: {is_identified}, flows x {flows:.3}, bytes x {bytes:.3}",
        law.name
    );
    let median_off = median.max(1.0 / median);
    Outcome { ks, flows, bytes, spread, median_off, median_factor, is_identified }
}

/// The outcomes of `seeds` seeds, and their mean KS.
fn outcomes(seeds: u64, size: (u64, u32), law: &Law) -> (Vec<Outcome>, f64) {
    let outcomes: Vec<Outcome> = (1..=seeds).map(|seed| outcome(seed, size, law)).collect();
    let ks = outcomes.iter().map(|one| one.ks).sum::<f64>() / seeds as f64;
    (outcomes, ks)
}

/// One packet in ten: the sample is sufficient for each law.
#[test]
fn sizes_are_recovered_at_one_in_ten() {
    let limits = [0.05, 0.02, 0.05, 0.05, 0.02];
    let more = [(&HELD_OUT[0], 0.03), (&PARETO, 0.05)];
    for (law, most) in TUNED.iter().zip(limits).chain(more) {
        let (outcomes, ks) = outcomes(2, (50_000, 10), law);
        assert!(ks <= most, "{}: KS {ks}", law.name);
        for Outcome { flows, bytes, .. } in outcomes {
            assert!((flows - 1.0).abs() < 0.03 && (bytes - 1.0).abs() < 0.03, "x {flows}, {bytes}");
        }
    }
}

/// One in a hundred, and the references at one in a thousand: sizes are recovered to within the stated precision. At
/// one in a thousand the medians of two humps stay open, and the warning says so.
#[test]
fn sizes_are_recovered_at_one_in_a_hundred_or_not_identified() {
    let limits = [(WEB, 100, 0.02), (SYNTHETIC, 100, 0.04), (WHOLE_PACKETS, 100, 0.06)];
    for (law, interval, most) in
        limits.into_iter().chain([(SYNTHETIC, 1_000, 0.08), (PARETO, 1_000, 0.05)])
    {
        let (outcomes, ks) = outcomes(2, (1_000_000, interval), &law);
        assert!(ks <= most, "{}: KS {ks}", law.name);
        for outcome in outcomes {
            assert!((outcome.flows - 1.0).abs() < 0.03, "x {}", outcome.flows);
            assert!(outcome.is_identified, "{} at 1:{interval}", law.name);
            assert_holds(&outcome);
        }
    }
    for (seed, law) in [(4, TWO_LOGNORMALS), (2, TWO_KINDS)] {
        let outcome = outcome(seed, (1_000_000, 1_000), &law);
        assert_holds(&outcome);
        let Outcome { median_factor, is_identified, .. } = outcome;
        assert_eq!(is_identified, law.name == TWO_KINDS.name, "{}: {median_factor}", law.name);
    }
}

/// The truth lies within the distance and the factor that are stated.
fn assert_holds(&Outcome { ks, spread, median_off, median_factor, .. }: &Outcome) {
    assert!(ks <= spread, "KS {ks}, stated to be within {spread}");
    assert!(median_off <= median_factor, "{median_off} times, stated as {median_factor}");
}

/// How often the truth lies within the stated distance: for a hundred seeds each of inputs with well and with hardly
/// identified sizes.
#[test]
#[ignore = "2,200 models take half an hour: the measure behind row F2.5, by hand"]
fn distances_hold_the_truth() {
    for law in TUNED.iter().chain(&HELD_OUT) {
        for size in [(5_000, 10), (50_000, 100)] {
            let (outcomes, ks) = outcomes(100, size, law);
            let holds = |one: &&Outcome| one.ks <= one.spread;
            let holds_median = |one: &&Outcome| one.median_off <= one.median_factor;
            let (identified, open): (Vec<&Outcome>, Vec<&Outcome>) =
                outcomes.iter().partition(|one| one.is_identified);
            let held = [&identified, &open].map(|some| some.iter().copied().filter(holds).count());
            println!(
                "{}, {size:?}: mean KS {ks:.3}; {} identified, {} held; {} not, {} held; medians {} held",
                law.name,
                identified.len(),
                held[0],
                open.len(),
                held[1],
                outcomes.iter().filter(holds_median).count()
            );
        }
    }
}

/// The figures of the specification: the mean of ten seeds, and how often the truth lies within the stated distance.
/// The reference is the synthetic original; the same holds for files of the Web.
#[test]
#[ignore = "ten seeds of a million flows of eleven laws, a quarter of an hour; run by hand"]
fn references_in_the_mean_of_ten_seeds() {
    for law in TUNED.iter().chain(&HELD_OUT) {
        for size in REFERENCES {
            let (outcomes, ks) = outcomes(10, size, law);
            let mean = |of: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / 10.0;
            let flows_off = mean(&|one| (one.flows - 1.0).abs());
            println!(
                "{}, {size:?}: mean KS {ks:.3}, flows off by {flows_off:.3}, bytes by {:.3}, {} identified, {} held, {} medians",
                law.name,
                mean(&|one| (one.bytes - 1.0).abs()),
                outcomes.iter().filter(|one| one.is_identified).count(),
                outcomes.iter().filter(|one| one.ks <= one.spread).count(),
                outcomes.iter().filter(|one| one.median_off <= one.median_factor).count()
            );
            if [SYNTHETIC.name, WEB.name].contains(&law.name) {
                assert!(ks <= 0.05 && flows_off <= 0.03, "{}, {size:?}: KS {ks}", law.name);
                assert!(outcomes.iter().all(|one| one.is_identified), "{}, {size:?}", law.name);
            }
        }
    }
}
