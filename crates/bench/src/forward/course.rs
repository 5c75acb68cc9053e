//! The rounds of a device under one load, and the figures derived from them.

use super::price::Rounds;
use super::result::{Cost, Point};
use super::tester::Run;
use super::usage::Usage;
use nilometer_linux::clock::median;
use nilometer_routerd::tally::Paths;

/// What one run of a load showed.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What was sent and received.
    pub run: Run,
    /// Processor seconds of all that took part.
    pub cpu: f64,
    /// What the whole machine did.
    pub usage: Usage,
    /// The paths of frames, if the device is ours.
    pub paths: Option<Paths>,
}

impl Sample {
    fn is_disturbed(&self, others_max: f64) -> bool {
        self.usage.is_disturbed(self.cpu, others_max)
    }
}

/// The rounds of a device under one load.
#[derive(Clone, Debug)]
pub struct Course {
    /// Their prices.
    pub rounds: Rounds,
    /// What others may use.
    others_max: f64,
    /// Of each round that counts, the device's sample and the bare link's.
    kept: Vec<[Sample; 2]>,
    /// Of the others.
    disturbed: Vec<[Sample; 2]>,
}

impl Course {
    /// No rounds yet; in each, others may use at most `others_max`.
    pub fn new(rounds: Rounds, others_max: f64) -> Course {
        Course { rounds, others_max, kept: Vec::new(), disturbed: Vec::new() }
    }

    /// A round: the device's sample, and the bare link's of the same round.
    pub fn add(&mut self, own: Sample, bare: Sample) {
        if own.is_disturbed(self.others_max) || bare.is_disturbed(self.others_max) {
            self.rounds.discard();
            return self.disturbed.push([own, bare]);
        }
        self.rounds.keep(price_of(&own, &bare));
        self.kept.push([own, bare]);
    }

    /// The rounds that count, or all if none does.
    fn samples(&self) -> &[[Sample; 2]] {
        if self.kept.is_empty() { &self.disturbed } else { &self.kept }
    }
}

/// Processor seconds for a frame that was forwarded; not a number where none was.
fn price_of(own: &Sample, bare: &Sample) -> f64 {
    (own.cpu - generator_of(own, bare)) / own.run.delivered as f64
}

/// Processor seconds of generator and sink in a device's run, by the bare link's.
fn generator_of(own: &Sample, bare: &Sample) -> f64 {
    bare.cpu / bare.run.sent as f64 * own.run.sent as f64
}

/// The figures of a device under a load.
pub fn point(course: &Course) -> Point {
    let samples = course.samples();
    let of = |figure: &dyn Fn(&Sample) -> f64| {
        samples.iter().map(|[own, _]| figure(own)).collect::<Vec<f64>>()
    };
    let runs = samples.iter().map(|[own, _]| own.run);
    let forwarded = of(&|sample| sample.run.delivered as f64 / sample.run.seconds);
    let generator: Vec<f64> =
        samples.iter().map(|[own, bare]| generator_of(own, bare) / own.run.seconds).collect();
    let paced = runs.clone().filter(Run::is_paced).count();
    let price = course.rounds.price();
    let paths = samples.iter().filter_map(|[own, _]| own.paths);
    Point {
        dut: String::new(),
        variant: String::new(),
        frame_bytes: 0,
        asked_pps: 0.0,
        offered_pps: median(of(&|sample| sample.run.sent as f64 / sample.run.seconds)),
        forwarded_pps: median(forwarded.clone()),
        forwarded_pps_range: range(&forwarded),
        is_paced: 2 * paced > samples.len(),
        disordered: runs.clone().map(|run| run.disordered).sum(),
        unheard_share: runs.map(|run| run.unheard_share()).fold(0.0, f64::max),
        packets_per_cpu_second: price.rate(),
        packets_per_cpu_second_interval: price.rate_interval(),
        packets_per_cpu_second_range: rates(course.rounds.prices()),
        told: price.not_told.is_none(),
        packet_cpu_ns: price.seconds.map(|seconds| Cost {
            mean: 1e9 * seconds.mean,
            error: 1e9 * seconds.error,
            degrees: seconds.degrees,
        }),
        rounds: price.rounds,
        rounds_discarded: price.discarded,
        not_told: price.not_told,
        paths: paths.reduce(|sum, one| sum.plus(&one)),
        cpu_seconds: median(of(&|sample| sample.cpu / sample.run.seconds)),
        generator_cpu_seconds: median(generator),
        machine_cpu_seconds: median(of(&|sample| sample.usage.machine.busy_s / sample.run.seconds)),
    }
}

/// Frames in a second of processor time in the dearest and in the cheapest round; `None` if the cheapest is
/// lost in the noise.
fn rates(prices: &[f64]) -> Option<[f64; 2]> {
    let [low, high] = range(prices);
    (low > 0.0 && high.is_finite()).then_some([1.0 / high, 1.0 / low])
}

fn range(values: &[f64]) -> [f64; 2] {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    [low, high]
}
