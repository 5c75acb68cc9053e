//! A recording: laws, distances, estimators and special functions over made-up data.
//!
//! These numbers were not derived; they were computed when the table was written, after each part
//! had been tested against closed forms, tables or naive twins. Digests are of twelve digits. A
//! line that changes on purpose is written anew with
//! `UPDATE=1 cargo test --release -p nilometer-stat`, and then read: which parts changed, and was
//! that meant?

#[path = "../../wire/tests/recording/mod.rs"]
mod recording;

use std::fmt::Write;

use nilometer_stat::inversion::SampledFlows;
use nilometer_stat::special::{chi_square_tail, digamma, ln_binomial, trigamma};
use nilometer_stat::student::{student_tail, two_sided};
use nilometer_stat::{
    Alias, Binned, BottomK, Diagram, Empirical, Form, Histogram, KaplanMeier, Law, Lifetime,
    Pyramid, Residual, Rng, Sampler, Tally, Trimmed, floor, jsd, jsd_quarter_octave_models,
    jsd_quarter_octave_samples, jsd_quarter_octave_to, ks_models, ks_samples, ks_to, lognormal,
    median, pareto, poisson, quantile_sorted, ratio, sorted_uniforms, w1_log2_models,
    w1_log2_samples, w1_log2_to, zipf_weights,
};

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded.txt");

/// The text so far, and FNV-1a over it.
struct Recorded {
    sum: u64,
    numbers: u32,
    last: f64,
}

impl Recorded {
    fn new() -> Recorded {
        Recorded { sum: 0xcbf2_9ce4_8422_2325, numbers: 0, last: 0.0 }
    }

    fn text(&mut self, text: &str) {
        for byte in text.bytes() {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn number(&mut self, number: f64) {
        self.text(&format!("{number:.11e} "));
        (self.numbers, self.last) = (self.numbers + 1, number);
    }

    fn numbers(&mut self, numbers: impl IntoIterator<Item = f64>) {
        numbers.into_iter().for_each(|number| self.number(number));
    }

    fn whole(&mut self, what: impl std::fmt::Debug) {
        self.text(&format!("{what:?} "));
    }

    fn end(self, name: &str, table: &mut String) {
        let (numbers, last, sum) = (self.numbers, self.last, self.sum);
        writeln!(table, "{name:20} {numbers:6} numbers, last {last:14.6e}  {sum:016x}").unwrap();
    }
}

fn special(table: &mut String) {
    const AT: [f64; 19] = [
        1e-6, 0.01, 0.1, 0.37, 0.5, 1.0, 1.5, 2.0, 3.3, 7.0, 11.0, 11.9, 12.0, 12.1, 20.0, 55.5,
        400.0, 1e4, 1e9,
    ];
    for (name, function) in
        [("digamma", digamma as fn(f64) -> f64), ("trigamma", trigamma as fn(f64) -> f64)]
    {
        let mut recorded = Recorded::new();
        recorded.numbers(AT.map(function));
        recorded.end(name, table);
    }
    let mut recorded = Recorded::new();
    for degrees in [1, 2, 3, 5, 10, 24, 100, 1_001] {
        recorded.numbers(
            [0.0, 0.5, 1.0, 1.9, 2.0, 4.0, 7.0, 20.0, 100.0].map(|x| chi_square_tail(degrees, x)),
        );
        let about = degrees as f64;
        recorded
            .numbers([0.5, 0.9, 1.0, 1.1, 1.5].map(|part| chi_square_tail(degrees, part * about)));
    }
    recorded.end("chi-square", table);
    let mut recorded = Recorded::new();
    for (n, p) in
        [(1.0, 0.3), (5.0, 0.9), (11.0, 0.5), (12.0, 0.2), (13.0, 0.2), (400.0, 0.01), (1e8, 1e-7)]
    {
        for k in [0.0, 1.0, 2.0, 5.0, 11.0, 12.0, 13.0, 14.0, 30.0, 200.0, 400.0] {
            recorded.number(ln_binomial(k, n, p));
        }
    }
    recorded.end("binomial", table);
    let mut recorded = Recorded::new();
    for degrees in [0.5, 1.0, 2.0, 3.5, 10.0, 100.0, 1e5] {
        recorded
            .numbers([0.0, 1e-3, 0.4, 1.0, 1.7, 2.5, 9.0, 1e3].map(|x| student_tail(degrees, x)));
        recorded.numbers([0.01, 0.5, 0.9, 0.95, 0.999].map(|share| two_sided(degrees, share)));
    }
    recorded.end("student", table);
    let mut recorded = Recorded::new();
    let mut rng = Rng::new(3, 1, 0);
    let mut of = |count: usize| -> Option<Trimmed> {
        let values: Vec<f64> = (0..count).map(|_| 5.0 + rng.normal()).collect();
        Trimmed::of(&values)
    };
    for count in 0..24 {
        let (Some(one), Some(other)) = (of(count), of(count + 9)) else { continue };
        recorded.numbers([one.mean, one.error, one.degrees, one.half_width(0.9)]);
        let [interval, difference] = [one.interval(0.95), one.difference(&other, 0.99)];
        recorded.numbers(interval.ends().into_iter().chain(difference.ends()));
    }
    let exact = Trimmed { mean: 2.0, error: 0.0, degrees: 3.0 };
    recorded.numbers(exact.difference(&Trimmed { mean: 1.0, ..exact }, 0.95).ends());
    recorded.end("trimmed means", table);
}

fn tell(recorded: &mut Recorded, law: &Empirical) {
    recorded.whole((law.form(), law.samples(), law.knots().len()));
    recorded.numbers(law.knots().iter().flat_map(|&(x, y)| [x, y]));
    recorded.numbers([law.mean(), law.second_moment(), law.min(), law.max()]);
    recorded.numbers((0..=40).map(|part| law.quantile(f64::from(part) / 40.0)));
    let (low, high) = (law.min(), law.max());
    for part in -2..=42 {
        let x = low + (high - low) * f64::from(part) / 40.0;
        recorded.numbers([law.cdf(x), law.cdf_left(x)]);
    }
    recorded.numbers(law.knots().iter().take(20).flat_map(|&(x, _)| [law.cdf(x), law.cdf_left(x)]));
    recorded.numbers(law.pieces().flat_map(|(share, low, high)| [share, low, high]));
}

const LAWS: [Law; 3] = [
    Law::Exponential { mean: 0.5 },
    Law::Pareto { index: 1.5, minimum: 3.0 },
    Law::Pareto { index: 0.9, minimum: 3.0 },
];

fn laws(table: &mut String) {
    let others = [Law::Lognormal { mu: 2.0, sigma: 1.3 }, Law::Weibull { shape: 0.7, scale: 4.0 }];
    for (number, law) in LAWS.into_iter().chain(others).enumerate() {
        let mut recorded = Recorded::new();
        for x in [0.0, 0.1, 1.0, 3.0, 3.1, 7.0, 9.0, 100.0] {
            recorded.number(law.survival(x));
        }
        recorded.numbers([1e-6, 0.01, 0.3, 0.5, 0.9, 1.0].map(|share| law.exceeded_with(share)));
        for form in [Form::Step, Form::Linear] {
            for maximum in [None, Some(50.0), Some(2.0)] {
                match law.table(form, maximum) {
                    Ok(found) => tell(&mut recorded, &found),
                    Err(error) => recorded.text(&error.to_string()),
                }
            }
        }
        recorded.end(&format!("law {number}"), table);
    }
}

/// Samples of three laws, some of them rounded so that values repeat.
fn samples(seed: u64, count: usize) -> [Vec<f64>; 3] {
    let mut rng = Rng::new(seed, 2, 0);
    let body = (0..count).map(|_| lognormal(&mut rng, 3.0, 0.8)).collect();
    let tail = (0..count).map(|_| pareto(&mut rng, 1.2, 2.0)).collect();
    let whole = (0..count).map(|_| (1.0 + rng.exponential(9.0)).floor()).collect();
    [body, tail, whole]
}

fn empirical(table: &mut String) {
    for (number, values) in samples(4, 3_000).into_iter().enumerate() {
        let mut recorded = Recorded::new();
        for knots in [16, 64, 500] {
            for law in [
                Empirical::step_from(values.clone(), knots).expect("a law"),
                Empirical::linear_from(values.clone(), knots).expect("a law"),
            ] {
                tell(&mut recorded, &law);
                tell(&mut recorded, &law.scaled(2.5));
                let mut rng = Rng::new(5, 3, knots as u64);
                recorded.numbers((0..50).map(|_| law.draw(&mut rng)));
                recorded.numbers(law.draw_sorted(&mut rng, 40));
                let sampler = Sampler::new(&law);
                recorded.numbers((0..50).map(|_| sampler.draw(&mut rng)));
                let residual = Residual::new(&law);
                recorded.numbers((0..50).map(|_| residual.draw(&mut rng)));
            }
        }
        recorded.end(&format!("empirical {number}"), table);
    }
}

fn distances(table: &mut String) {
    let mut recorded = Recorded::new();
    let (some, more) = (samples(6, 700), samples(7, 400));
    for (mut a, mut b) in some.iter().flat_map(|a| more.iter().map(|b| (a.clone(), b.clone()))) {
        for knots in [20, 300] {
            let step = Empirical::step_from(a.clone(), knots).expect("a law");
            let linear = Empirical::linear_from(b.clone(), knots).expect("a law");
            for (one, other) in [(&step, &linear), (&step, &step), (&linear, &step)] {
                recorded.number(ks_models(one, other));
                recorded.number(w1_log2_models(one, other));
                recorded.number(jsd_quarter_octave_models(one, other));
            }
            for law in [&step, &linear] {
                recorded.number(ks_to(&mut a, law));
                recorded.number(w1_log2_to(&mut a, law));
                recorded.number(jsd_quarter_octave_to(&mut a, law));
            }
        }
        recorded.number(ks_samples(&mut a, &mut b));
        recorded.number(w1_log2_samples(&mut a, &mut b));
        recorded.number(jsd_quarter_octave_samples(&mut a, &mut b));
        let lifetimes: Vec<Lifetime> = (a.iter().zip(b.iter().cycle()))
            .map(|(&value, &limit)| Lifetime {
                duration: value.min(limit),
                observed: value <= limit,
            })
            .collect();
        let survival = KaplanMeier::new(&lifetimes);
        recorded.numbers([1.0, 5.0, 20.0, 90.0].map(|x| survival.cdf(x)));
        recorded.number(survival.horizon().unwrap_or(-1.0));
        recorded.number(survival.ks_to(&Empirical::linear_from(a.clone(), 64).expect("a law")));
        recorded.numbers([0.0, 0.3, 0.5, 1.0].map(|q| quantile_sorted(&a, q).expect("values")));
        recorded.number(median(&mut b).expect("values"));
    }
    for (p, q) in [([0.5, 0.5, 0.0], [0.1, 0.2, 0.7]), ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0])] {
        recorded.number(jsd(&p, &q));
    }
    let chance = floor(3, 40, |rng| rng.unit());
    recorded.whole(chance);
    recorded.whole(
        [(0.3, 0.1), (0.0, 0.0), (0.3, 0.0)].map(|(distance, floor)| ratio(distance, floor)),
    );
    recorded.end("distances", table);
}

fn counts(table: &mut String) {
    let mut recorded = Recorded::new();
    let mut rng = Rng::new(8, 4, 0);
    let (mut histogram, mut other) = (Histogram::new(), Histogram::new());
    for number in 0..4_000u64 {
        let value = rng.next_u64() >> (rng.below(60) + 4);
        histogram.record(value);
        other.record_n(value / 3, number % 4);
    }
    for _ in 0..2 {
        recorded.whole((histogram.count(), histogram.min(), histogram.max(), histogram.mean()));
        recorded.whole([0.0, 0.01, 0.5, 0.9, 0.999, 1.0].map(|q| histogram.quantile(q)));
        recorded.whole(histogram.buckets().collect::<Vec<_>>());
        histogram.merge(&other);
    }
    recorded.end("histogram", table);
    let mut recorded = Recorded::new();
    for limit in [8, 100, 10_000] {
        let mut tallies = [Tally::new(limit), Tally::new(limit)];
        let mut least = [BottomK::new(limit), BottomK::new(limit)];
        for number in 0..3_000u64 {
            let value = rng.below(900) * rng.below(900);
            tallies[number as usize % 2].add(value, 1 + number % 3);
            least[number as usize % 2].offer(value);
        }
        let [mut tally, more] = tallies;
        tally.merge(more);
        recorded.whole(tally.is_empty());
        recorded.whole(tally.clone().whole());
        recorded.whole(tally.in_units_of(1e3));
        recorded.whole(Tally::of((0..500).map(|n| n * n % 77).collect(), limit).whole());
        let [mut one, two] = least;
        one.merge(two);
        recorded.whole((one.offered(), one.bound().copied()));
        recorded.whole(one.into_sorted());
    }
    recorded.end("tallies", table);
    let mut recorded = Recorded::new();
    for gap_ns in [3e4, 2e6, 8e7] {
        let (mut series, mut more, mut at_ns) = (Binned::new(), Binned::new(), 1.7e18);
        for number in 0..6_000 {
            at_ns += rng.exponential(gap_ns);
            let series = if number % 3 == 0 { &mut more } else { &mut series };
            series.count(at_ns as u64, 40 + rng.below(1_400)).expect("near");
        }
        series.merge(&more).expect("near");
        recorded.whole((series.width_ns(), series.bins().len()));
        let series = series.widened(2.0);
        recorded.whole((series.width_ns(), series.bins().collect::<Vec<_>>()));
        let mut pyramid = Pyramid::new();
        series.bins().for_each(|bin| pyramid.push(bin.events as f64));
        recorded.whole(pyramid.count());
        let diagram = Diagram::from(&pyramid);
        recorded.whole(diagram.coarsest());
        for octave in diagram.octaves() {
            recorded.whole((octave.octave, octave.count));
            recorded.numbers([octave.log2_energy, octave.deviation]);
            recorded.numbers(octave.interval().ends());
        }
        for line in [diagram.choose(), diagram.fit(2, 5), diagram.fit(3, 4)].into_iter().flatten() {
            recorded.text(&format!("{line:.9?}"));
            recorded.numbers(line.interval().ends());
        }
    }
    recorded.end("binned", table);
}

fn chance(table: &mut String) {
    let mut recorded = Recorded::new();
    for (seed, purpose, index) in [(0, 0, 0), (1, 2, 3), (u64::MAX, u32::MAX, u64::MAX)] {
        let mut rng = Rng::new(seed, purpose, index);
        recorded.whole((0..20).map(|_| rng.next_u64()).collect::<Vec<_>>());
        recorded.numbers((0..20).map(|_| rng.unit()));
        recorded.whole([1, 2, 3, 1_000, 1 << 40, u64::MAX].map(|most| rng.below(most)));
        // For the first a quarter of the words are rejected and drawn again, for the second a half.
        recorded.whole(
            [3 << 61, (1 << 63) + 1]
                .map(|most| (0..100).map(|_| rng.below(most)).collect::<Vec<_>>()),
        );
        let mut items: Vec<u32> = (0..30).collect();
        rng.shuffle(&mut items);
        recorded.whole(items);
        recorded.numbers((0..20).map(|_| rng.exponential(3.0)));
        recorded.numbers((0..20).map(|_| rng.normal()));
        recorded.numbers([0.2, 3.0, 30.0, 700.0].map(|mean| poisson(&mut rng, mean)));
        recorded.numbers([0.7, 1.3].map(|alpha| pareto(&mut rng, alpha, 4.0)));
        recorded.numbers(sorted_uniforms(&mut rng, 12));
        let weights = zipf_weights(40, 0.9);
        let alias = Alias::new(&weights).expect("weights");
        recorded.numbers(weights);
        recorded.whole((alias.len(), (0..60).map(|_| alias.draw(&mut rng)).collect::<Vec<_>>()));
    }
    recorded.end("chance", table);
}

fn inversions(table: &mut String) {
    for interval in [4, 30] {
        let mut recorded = Recorded::new();
        let (mut rng, mut flows) =
            (Rng::new(9, 5, interval), SampledFlows::new(interval as u32).expect("one"));
        for _ in 0..2_500 {
            let packets = (pareto(&mut rng, 1.3, 2.0) as u64).min(3_000);
            let seen = (0..packets).filter(|_| rng.below(interval) == 0).count() as u64;
            if seen > 0 {
                flows.add(seen, rng.below(interval) == 0);
            }
        }
        flows.add_alike(3, 1, 40);
        let found = flows.invert().expect("a law");
        recorded.numbers(found.bins().flat_map(|(low, share)| [low, share]));
        for (packets, marked) in [(1, 0), (1, 1), (2, 0), (7, 0), (40, 1)] {
            for (bin, share) in found.lengths_of(packets, marked) {
                recorded.whole(bin);
                recorded.number(share);
            }
        }
        recorded.text(&format!("{found:.6?}"));
        recorded.end(&format!("inversion of {interval}"), table);
    }
}

#[test]
fn statistics_are_as_recorded() {
    let mut table = String::new();
    special(&mut table);
    laws(&mut table);
    empirical(&mut table);
    distances(&mut table);
    counts(&mut table);
    chance(&mut table);
    inversions(&mut table);
    recording::compare(RECORDING, &table);
}
