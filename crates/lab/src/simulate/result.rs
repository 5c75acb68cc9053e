//! The result of a sweep: what `--json` prints and `result.json` holds.

use std::collections::BTreeMap;

use nilometer_queue::Reason;
use nilometer_sim::{Outcome, Scenario};
use nilometer_stat::confidence::half_width;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use toml::Value;

use super::claims::{Claim, Estimate, Measured};
use super::delays::{DelayCourse, courses};
use super::sweep::{Made, Run};
use super::template::Parameters;
use crate::trial::planning::hex;

/// Name and version of the format.
pub const FORMAT: &str = "nilometer-simulation/1";
/// Of the intervals of means over seeds.
const CONFIDENCE: f64 = 0.95;
/// The file that has it, in the directory of results.
pub const RESULT_FILE: &str = "result.json";

/// The result of all runs of a command.
#[derive(Debug, Serialize)]
pub struct SimulationResult {
    /// [`FORMAT`].
    pub format: &'static str,
    /// The scenario's name.
    pub scenario: String,
    /// What it is about.
    pub about: String,
    /// The program and its commit.
    pub tool: String,
    /// Seed of each point's first run.
    pub seed: u64,
    /// Runs at each point.
    pub seeds: u32,
    /// Simulated seconds of a run.
    pub duration_s: f64,
    /// Threads that made them.
    pub threads: usize,
    /// Runs that were made.
    pub runs: usize,
    /// Whether the sweep was interrupted before its last run.
    pub interrupted: bool,
    /// SHA-256 over every run's point, seed, journal and flows, in order; hexadecimal.
    pub digest: String,
    /// The plans of traffic models, by run; empty where no scenario has any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<RunPlans>,
    /// Packets wholly transmitted on a link, all links and all runs together.
    pub packet_hops: u64,
    /// User and system time of the sweep, all threads.
    pub cpu_seconds: f64,
    /// Time that it took.
    pub wall_seconds: f64,
    /// Most memory of the process.
    pub peak_rss_bytes: u64,
    /// In the order of the sweep.
    pub points: Vec<PointResult>,
    /// The paper's claims and whether they hold here; for the paper's own scenario.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    /// What makes a figure suspect, and what to do.
    pub warnings: Vec<String>,
}

/// The plans of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunPlans {
    /// Which point of the sweep, from 0.
    pub point: usize,
    /// The run's seed.
    pub seed: u64,
    /// The digest of the plan of each `[[model]]`, hexadecimal: the same that `generate plan`
    /// prints for that model and seed, and that `lab run` plays.
    pub digests: Vec<String>,
}

/// Parameters as keys of the object that contains them.
#[derive(Clone, Debug)]
pub struct Keys(pub Parameters);

impl Serialize for Keys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// One point: means over its seeds, and half the width of their 95 % confidence intervals (`_ci`,
/// Student's t; null for a single seed).
#[derive(Clone, Debug, Serialize)]
pub struct PointResult {
    /// All parameters at this point.
    #[serde(flatten)]
    pub parameters: Keys,
    /// Runs that were made here.
    pub runs: usize,
    /// Mean goodput over fair share, percent; null where no flow is measured.
    pub fair_share_percent: Option<f64>,
    /// Around the mean.
    pub fair_share_percent_ci: Option<f64>,
    /// Standard deviation of goodput across the flows of a run, over fair share.
    pub stddev_over_fair_share: Option<f64>,
    /// Around the mean.
    pub stddev_over_fair_share_ci: Option<f64>,
    /// Packets dropped at the bottleneck by those offered to it.
    pub loss_ratio: f64,
    /// Around the mean.
    pub loss_ratio_ci: Option<f64>,
    /// The bottleneck's transmitted bits divided by its capacity.
    pub utilisation: f64,
    /// Packets that waited at the bottleneck.
    pub mean_queue_packets: f64,
    /// Around the mean.
    pub mean_queue_packets_ci: Option<f64>,
    /// Packets dropped at the bottleneck in all runs, by reason.
    pub drops: Drops,
    /// Retransmission timeouts of a run.
    pub timeouts: f64,
    /// Segments sent again in a run.
    pub retransmits: f64,
    /// Mean delay of datagrams from sender to receiver, ms; null where none arrived.
    pub datagram_delay_ms: Option<f64>,
    /// Around the mean.
    pub datagram_delay_ms_ci: Option<f64>,
    /// Percentiles of the delay of datagrams over time, where the scenario requests them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datagram_delays: Vec<DelayCourse>,
    /// What routers with descriptions of their own did, all runs of the point together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<RouterResult>,
    /// Packets wholly transmitted on a link, all links and all runs of the point together.
    pub packet_hops: u64,
    /// Each run by itself.
    pub by_seed: Vec<SeedResult>,
}

/// Packets dropped at the bottleneck, by reason: those of a discipline.
#[derive(Clone, Debug)]
pub struct Drops(pub [u64; Reason::OF_DISCIPLINES.len()]);

impl Serialize for Drops {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let by_name = Reason::OF_DISCIPLINES.iter().zip(self.0);
        serializer.collect_map(by_name.map(|(reason, count)| (reason.name(), count)))
    }
}

/// What a router of a ROUTER.toml did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RouterResult {
    /// Its name.
    pub name: String,
    /// Packets that came.
    pub received: u64,
    /// Packets that left.
    pub sent: u64,
    /// Packets that went no further, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that left with a mark of congestion that they did not bring.
    pub marked: u64,
}

/// The routers of a scenario over its runs.
fn routers(scenario: &Scenario, made: &[(u64, &Outcome)]) -> Vec<RouterResult> {
    let described = scenario.router.iter().filter(|router| router.file.is_some());
    let of = |(place, router): (usize, &nilometer_sim::scenario::Router)| {
        let mut result = RouterResult { name: router.name.clone(), ..RouterResult::default() };
        for account in made.iter().filter_map(|(_, outcome)| outcome.routers.get(place)) {
            result.received += account.received;
            result.sent += account.sent;
            result.marked += account.marked;
            for (reason, packets) in &account.dropped {
                *result.dropped.entry(reason.clone()).or_default() += packets;
            }
        }
        result
    };
    described.enumerate().map(of).collect()
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct SeedResult {
    /// Its seed.
    pub seed: u64,
    /// Mean goodput over fair share, percent.
    pub fair_share_percent: Option<f64>,
    /// Standard deviation of goodput across its flows, over fair share.
    pub stddev_over_fair_share: Option<f64>,
    /// Packets dropped at the bottleneck by those offered to it.
    pub loss_ratio: f64,
    /// Packets that waited at the bottleneck.
    pub mean_queue_packets: f64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Packets wholly transmitted on a link.
    pub packet_hops: u64,
}

/// Names that points have of their own, so that no parameter may have them.
pub const OWN_KEYS: [&str; 21] = [
    "runs",
    "fair_share_percent",
    "fair_share_percent_ci",
    "stddev_over_fair_share",
    "stddev_over_fair_share_ci",
    "loss_ratio",
    "loss_ratio_ci",
    "utilisation",
    "mean_queue_packets",
    "mean_queue_packets_ci",
    "drops",
    "timeouts",
    "retransmits",
    "datagram_delay_ms",
    "datagram_delay_ms_ci",
    "datagram_delays",
    "routers",
    "packet_hops",
    "by_seed",
    "warnings",
    "point",
];

/// A mean over runs and its half-width; only if every run has a value.
fn over(values: &[Option<f64>]) -> (Option<f64>, Option<f64>) {
    let whole: Option<Vec<f64>> = values.iter().copied().collect();
    let Some(values) = whole.filter(|values| !values.is_empty()) else { return (None, None) };
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (Some(mean), half_width(&values, CONFIDENCE))
}

impl PointResult {
    /// The point with these parameters and this scenario, from its seeds and outcomes.
    pub fn new(
        parameters: &Parameters,
        scenario: &Scenario,
        made: &[(u64, &Outcome)],
    ) -> PointResult {
        let of = |value: &dyn Fn(&Outcome) -> Option<f64>| {
            over(&made.iter().map(|(_, outcome)| value(outcome)).collect::<Vec<_>>())
        };
        let always = |value: &dyn Fn(&Outcome) -> f64| {
            let (mean, half) = of(&|outcome| Some(value(outcome)));
            (mean.unwrap_or(0.0), half)
        };
        let (fair_share_percent, fair_share_percent_ci) = of(&Outcome::fair_share_percent);
        let (stddev_over_fair_share, stddev_over_fair_share_ci) =
            of(&Outcome::stddev_over_fair_share);
        let (loss_ratio, loss_ratio_ci) = always(&Outcome::loss_ratio);
        let (mean_queue_packets, mean_queue_packets_ci) = always(&|o| o.mean_queue_packets);
        let (datagram_delay_ms, datagram_delay_ms_ci) =
            of(&|outcome| outcome.mean_datagram_delay_s().map(|seconds| seconds * 1e3));
        let dropped = |reason| made.iter().map(|(_, outcome)| outcome.dropped(reason)).sum::<u64>();
        PointResult {
            parameters: Keys(parameters.clone()),
            runs: made.len(),
            fair_share_percent,
            fair_share_percent_ci,
            stddev_over_fair_share,
            stddev_over_fair_share_ci,
            loss_ratio,
            loss_ratio_ci,
            utilisation: always(&|outcome| outcome.utilisation).0,
            mean_queue_packets,
            mean_queue_packets_ci,
            drops: Drops(Reason::OF_DISCIPLINES.map(dropped)),
            timeouts: always(&|outcome| outcome.timeouts() as f64).0,
            retransmits: always(&|outcome| outcome.retransmits() as f64).0,
            datagram_delay_ms,
            datagram_delay_ms_ci,
            datagram_delays: courses(scenario, made),
            routers: routers(scenario, made),
            packet_hops: made.iter().map(|(_, outcome)| outcome.packet_hops).sum(),
            by_seed: made.iter().map(|(seed, outcome)| SeedResult::new(*seed, outcome)).collect(),
        }
    }
}

/// A parameter as people read it.
pub fn shown_value(keys: &Keys, key: &str) -> String {
    match keys.0.iter().find(|(name, _)| name == key) {
        Some((_, Value::String(text))) => text.clone(),
        Some((_, value)) => value.to_string(),
        None => String::new(),
    }
}

impl Measured {
    /// A point of a sweep with this round-trip time; nothing of any other.
    pub fn of(point: &PointResult, rtt_ms: f64) -> Option<Measured> {
        let number = |key: &str| shown_value(&point.parameters, key).parse::<f64>().ok();
        if number("rtt_ms")? != rtt_ms {
            return None;
        }
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        let estimate =
            |value, half| finite(value).map(|value| Estimate { value, half: finite(half) });
        Some(Measured {
            discipline: shown_value(&point.parameters, "discipline"),
            buffer_packets: number("buffer_packets")? as u64,
            fair_share_percent: estimate(point.fair_share_percent, point.fair_share_percent_ci),
            stddev_over_fair_share: estimate(
                point.stddev_over_fair_share,
                point.stddev_over_fair_share_ci,
            ),
        })
    }
}

impl SeedResult {
    fn new(seed: u64, outcome: &Outcome) -> SeedResult {
        SeedResult {
            seed,
            fair_share_percent: outcome.fair_share_percent(),
            stddev_over_fair_share: outcome.stddev_over_fair_share(),
            loss_ratio: outcome.loss_ratio(),
            mean_queue_packets: outcome.mean_queue_packets,
            timeouts: outcome.timeouts(),
            packet_hops: outcome.packet_hops,
        }
    }
}

/// SHA-256 over every run that was made: its point, its seed and its words, eight bytes each,
/// little-endian.
pub fn digest(runs: &[Run], made: &[Made]) -> String {
    let mut sha = Sha256::new();
    for (run, outcome) in runs.iter().zip(made) {
        let Some(outcome) = outcome else { continue };
        sha.update((run.point as u64).to_le_bytes());
        sha.update(run.seed.to_le_bytes());
        outcome.words(&mut |word| sha.update(word.to_le_bytes()));
    }
    hex(&sha.finalize())
}

/// The plans of the runs that were made.
pub fn plans(made: &[(Run, &Outcome)]) -> Vec<RunPlans> {
    let planned = made.iter().filter(|(_, outcome)| !outcome.plan_digests.is_empty());
    planned
        .map(|(run, outcome)| RunPlans {
            point: run.point,
            seed: run.seed,
            digests: outcome.plan_digests.iter().map(|digest| hex(digest)).collect(),
        })
        .collect()
}
