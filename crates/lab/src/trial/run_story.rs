//! The story that a run's page draws, from its results.

use nilometer_profile::delay::{DelaySummary, SIZE_CLASSES};
use nilometer_profile::{Counts, Delays, Direction};
use nilometer_stat::survival::{KaplanMeier, Lifetime};
use nilometer_stat::{Empirical, Histogram};
use nilometer_traffic::fidelity::{Fidelity, Gap, Measured};
use nilometer_traffic::{Plan, TrafficModel, model};
use nilometer_wire::Time;

use super::meter::{LEAD_NS, Sighted};
use super::outcome::{Delay, IntervalOutcome, Outcome, Packets, PathDelay};
use super::queue_story;
use super::router::RouterSeen;
use nilometer_report::story::{
    self, Comparison, Coverage, Curve, DelaySecond, Execution, LeftOut, Paths, Percentiles, Ranks,
    SizeClass, Story, Trait,
};
use nilometer_report::thin;
use nilometer_routerd::tally;

/// Points of a curve.
const POINTS: usize = 600;
/// A normal deviate exceeded by one in twenty: pointwise bands from the 5th to the 95th percentile.
const DEVIATE_95: f64 = 1.645;

/// The sources of the story, besides the outcome.
pub struct StorySources<'a> {
    /// The model as performed.
    pub model: &'a TrafficModel,
    /// The plan.
    pub plan: &'a Plan,
    /// The data of the fidelity figures.
    pub measured: &'a Measured,
    /// The meter's observations through the device.
    pub sighted: &'a Sighted,
    /// The meter's observations over the bare wire.
    pub wire: Option<&'a Sighted>,
    /// The observations of our router, where it is the device.
    pub router: Option<&'a RouterSeen>,
    /// Lateness of all connections, ns, rising.
    pub lateness_ns: &'a [u64],
}

/// Fills everything of the story that numbers fill; header, machine and files are the run's.
pub fn compose(outcome: &Outcome, sources: &StorySources<'_>) -> Story {
    Story {
        warnings: outcome.warnings.clone(),
        coverage: coverage(sources.model, sources.plan.is_joint),
        intervals: intervals(outcome, sources.model),
        seconds: seconds(sources.sighted),
        execution: execution(outcome, sources.lateness_ns),
        fidelity: match outcome.execution.laws.is_empty() {
            true => outcome.fidelity.iter().map(figure).collect(),
            false => outcome.execution.laws.iter().map(figure).collect(),
        },
        likeness: outcome.likeness.clone(),
        played: outcome.coverage.map(|coverage| coverage.bytes),
        sessions_off: sessions_off(&outcome.intervals),
        file_size: sizes(sources),
        inter_connection: gaps(&sources.measured.gaps, &sources.plan.gaps),
        source_rank: ranks(
            &sources.measured.source_uses,
            &sources.model.sources.shares(sources.plan.ranks.0),
        ),
        destination_rank: ranks(
            &sources.measured.destination_uses,
            &sources.model.destinations.shares(sources.plan.ranks.1),
        ),
        packets: outcome.packets,
        paths: outcome.router.as_ref().map(|router| {
            let tally::Paths { shortcut, pipeline, slow_path } = router.tally.paths;
            Paths { shortcut, pipeline, slow_path }
        }),
        delay_ns: outcome.delay_ns.as_ref().map(percentiles),
        wire_delay_ns: outcome.wire_delay_ns.as_ref().map(percentiles),
        delay_by_path: outcome.delay_by_path.iter().map(path_delay).collect(),
        directions: Direction::ALL.map(|way| direction(outcome, sources, way)).to_vec(),
        size_classes: size_classes(&sources.sighted.delays, sources.wire.map(|wire| &wire.delays)),
        queues: sources.router.map(queue_story::queues).unwrap_or_default(),
        losses: outcome.router.as_ref().map(queue_story::losses),
        ..Story::default()
    }
}

fn coverage(model: &TrafficModel, is_joint: bool) -> Coverage {
    let (coverage, out) = (&model.coverage, &model.coverage.left_out);
    let reasons = [
        ("not TCP", out.not_tcp),
        ("no SYN seen: the start is missing", out.no_start_marker),
        ("neither FIN nor RST seen: the end is missing", out.no_end_marker),
        ("only acknowledgements went this way", out.ack_flow),
        ("under 100 payload bytes", out.under_100_bytes),
        ("the other direction of the connection is larger", out.smaller_direction),
    ];
    Coverage {
        flows_total: coverage.flows,
        flows_entered: coverage.flows_in_model,
        bytes_total: coverage.octets,
        bytes_entered: coverage.octets_in_model,
        bytes_performed: Some(performed_octets(coverage, is_joint)),
        left_out: reasons
            .iter()
            .map(|(reason, share)| LeftOut {
                reason: (*reason).to_owned(),
                flows: share.flows,
                bytes: share.octets,
            })
            .collect(),
    }
}

/// IP bytes of the input that a plan performs: of whole connections, or of the flows in the model.
pub fn performed_octets(coverage: &model::Coverage, is_joint: bool) -> u64 {
    if is_joint { coverage.octets_in_connections } else { coverage.octets_in_model }
}

fn intervals(outcome: &Outcome, model: &TrafficModel) -> Vec<story::Interval> {
    let both = outcome.intervals.iter().zip(&model.intervals);
    both.map(|(made, target): (&IntervalOutcome, _)| story::Interval {
        start_s: made.start_s,
        end_s: made.end_s,
        bytes_target: made.bytes_target,
        bytes_generated: made.bytes_generated,
        flows_target: made.flows_target,
        flows_generated: made.flows_generated,
        sessions_target: made.sessions_target.round() as u64,
        sessions_generated: made.sessions_generated.round() as u64,
        packets: made.connection_packets,
        ip_bytes: made.connection_ip_bytes,
        packets_captured: match made.connection_packets_target {
            None => (!outcome.synthetic).then_some(target.packets),
            known => known,
        },
        ip_bytes_captured: made.connection_ip_bytes_target,
    })
    .collect()
}

/// The sum of what intervals are off in active sessions, as a share of the requested sessions.
fn sessions_off(intervals: &[IntervalOutcome]) -> Option<f64> {
    let target: f64 = intervals.iter().map(|interval| interval.sessions_target).sum();
    let off = |made: &IntervalOutcome| (made.sessions_generated - made.sessions_target).abs();
    (target > 0.0).then(|| intervals.iter().map(off).sum::<f64>() / target)
}

fn seconds(sighted: &Sighted) -> Vec<story::Second> {
    let by_second = sighted.seconds.iter().enumerate();
    by_second
        .map(|(second, seen)| story::Second {
            start_s: second as f64,
            payload_bytes: seen.payload_bytes,
            packets: seen.packets,
            flows: seen.flows,
        })
        .collect()
}

fn execution(outcome: &Outcome, lateness_ns: &[u64]) -> Execution {
    let done = &outcome.execution;
    let mut histogram = Histogram::new();
    for &late in lateness_ns {
        histogram.record(late);
    }
    Execution {
        planned: outcome.connections,
        completed: done.completed,
        failed: done.failed,
        sizes_exact: Some(done.sizes_exact),
        collisions: done.collisions,
        lateness: (!lateness_ns.is_empty()).then_some(story::Lateness {
            p50_ns: done.lateness_p50_ns as f64,
            p99_ns: done.lateness_p99_ns as f64,
            max_ns: done.lateness_max_ns as f64,
        }),
        // (In virtual time nothing is late: there is nothing to draw.)
        lateness_histogram: match done.lateness_max_ns {
            0 => Vec::new(),
            _ => octaves(&histogram),
        },
    }
}

/// The histogram in bins of powers of two, from one microsecond.
fn octaves(histogram: &Histogram) -> Vec<story::LatenessBin> {
    let mut bins: Vec<story::LatenessBin> = Vec::new();
    for bucket in histogram.buckets() {
        let mut high = 1_000.0;
        while high <= bucket.low as f64 {
            high *= 2.0;
        }
        let low = if high > 1_000.0 { high / 2.0 } else { 0.0 };
        match bins.last_mut() {
            Some(bin) if bin.high_ns == high => bin.count += bucket.count,
            _ => bins.push(story::LatenessBin { low_ns: low, high_ns: high, count: bucket.count }),
        }
    }
    bins
}

/// A distance under the name that the page has for it.
pub fn figure(figure: &Fidelity) -> story::Fidelity {
    let name = match figure.name.as_str() {
        "file_size" => Trait::FileSize,
        "inter_connection" => Trait::InterConnection,
        "source_rank" => Trait::SourceRank,
        _ => Trait::DestinationRank,
    };
    story::Fidelity {
        name,
        distance: figure.distance,
        floor: figure.floor,
        floor_p5: Some(figure.floor_p5),
        floor_p95: Some(figure.floor_p95),
        ratio: figure.ratio,
        count: figure.count,
    }
}

/// The difference of a second sample of `count` draws at `x`, from the 5th to the 95th percentile.
fn band(law: &Empirical, at: &[f64], count: usize) -> Vec<[f64; 3]> {
    let deviation = |x: f64| {
        let share = law.cdf(x);
        DEVIATE_95 * (share * (1.0 - share) / count.max(1) as f64).sqrt()
    };
    at.iter().map(|&x| [x, -deviation(x), deviation(x)]).collect()
}

/// Values at which both a law and a sorted sample are drawn.
fn common_grid(sorted: &[f64], law: &Empirical) -> Vec<f64> {
    let of_law: Vec<f64> =
        (0..=POINTS / 2).map(|step| law.quantile(step as f64 / (POINTS / 2) as f64)).collect();
    let mut at = thin::tail_grid(sorted, POINTS / 2);
    at.extend(of_law);
    at.sort_by(f64::total_cmp);
    at.dedup();
    at
}

fn law_curve(law: &Empirical, at: &[f64]) -> Curve {
    at.iter().map(|&x| [x, law.cdf(x)]).collect()
}

fn sizes(sources: &StorySources<'_>) -> Comparison {
    let mut sorted = sources.measured.sizes.clone();
    sorted.sort_by(f64::total_cmp);
    let law = &sources.plan.file_size;
    let at = common_grid(&sorted, law);
    Comparison {
        model: law_curve(law, &at),
        measured: thin::cumulative(&sorted, &at),
        band: band(law, &at, sorted.len()),
    }
}

fn gaps(gaps: &[Gap], law: &Empirical) -> Comparison {
    let mut waited: Vec<f64> =
        gaps.iter().filter(|gap| gap.observed).map(|gap| gap.waited_s).collect();
    waited.sort_by(f64::total_cmp);
    let at = common_grid(&waited, law);
    if waited.is_empty() {
        return Comparison { model: law_curve(law, &at), ..Comparison::default() };
    }
    let lives: Vec<Lifetime> = gaps
        .iter()
        .map(|gap| Lifetime { duration: gap.waited_s, observed: gap.observed })
        .collect();
    let estimate = KaplanMeier::new(&lives);
    Comparison {
        model: law_curve(law, &at),
        measured: at.iter().map(|&x| [x, estimate.cdf(x)]).collect(),
        band: band(law, &at, waited.len()),
    }
}

fn ranks(uses: &[u64], shares: &[f64]) -> Ranks {
    let total: u64 = uses.iter().sum();
    let by_rank = |value: &dyn Fn(usize) -> f64| -> Curve {
        (0..shares.len()).map(|rank| [(rank + 1) as f64, value(rank)]).collect()
    };
    let measured = by_rank(&|rank| uses[rank] as f64);
    Ranks {
        model: by_rank(&|rank| shares[rank] * total as f64),
        measured: measured.into_iter().filter(|point| point[1] > 0.0).collect(),
        counted: "sessions".to_owned(),
    }
}

/// Counts of the profiler under their fixed names.
pub fn packets(counts: &Counts, meter_lost: u64) -> Packets {
    Packets {
        entered: counts.entered,
        left: counts.left,
        lost: counts.lost,
        originated: counts.originated,
        consumed: counts.consumed,
        reordered: counts.reordered,
        duplicated: counts.duplicated,
        corrupted: counts.corrupted,
        meter_lost,
    }
}

/// A delay summary under its fixed names.
pub fn delay(summary: DelaySummary) -> Delay {
    Delay {
        p5: summary.p5_ns,
        mean: summary.mean_ns,
        p50: summary.p50_ns,
        p95: summary.p95_ns,
        p99: summary.p99_ns,
    }
}

fn path_delay(of: &PathDelay) -> story::PathDelay {
    let PathDelay { path, packets, delay_ns } = of;
    story::PathDelay { path: path.clone(), packets: *packets, delay_ns: percentiles(delay_ns) }
}

fn percentiles(delay: &Delay) -> Percentiles {
    Percentiles {
        p5: delay.p5 as f64,
        mean: delay.mean,
        p50: delay.p50 as f64,
        p95: delay.p95 as f64,
        p99: delay.p99 as f64,
    }
}

fn direction(outcome: &Outcome, sources: &StorySources<'_>, way: Direction) -> story::Direction {
    let made = &outcome.directions[way.index()];
    let cdf = |delays: &Delays| delay_cdf(&delays.histogram(Some(way)));
    story::Direction {
        name: made.name.replace('_', " "),
        packets: made.packets,
        ip_bytes: sources.sighted.entered_bytes[way.index()],
        delay_ns: made.delay_ns.as_ref().map(percentiles),
        wire_delay_ns: made.wire_delay_ns.as_ref().map(percentiles),
        delay_cdf: cdf(&sources.sighted.delays),
        wire_delay_cdf: sources.wire.map(|wire| cdf(&wire.delays)).unwrap_or_default(),
        seconds: delay_seconds(&sources.sighted.delays, way),
    }
}

fn delay_cdf(histogram: &Histogram) -> Curve {
    let total = histogram.count() as f64;
    let mut below = 0;
    let buckets = histogram.buckets();
    buckets
        .map(|bucket| {
            below += bucket.count;
            [bucket.high as f64, below as f64 / total]
        })
        .collect()
}

/// The steps of the series; the first may have begun before the traffic.
fn delay_seconds(delays: &Delays, way: Direction) -> Vec<DelaySecond> {
    let lead_s = LEAD_NS as f64 / 1e9;
    let points = delays.series(Some(way)).into_iter();
    let end_s = |start: Time| (start + delays.interval()).as_secs_f64() - lead_s;
    points
        .filter(|point| end_s(point.start) > 0.0)
        .map(|point| {
            let start_s = (point.start.as_secs_f64() - lead_s).max(0.0);
            DelaySecond {
                start_s,
                length_s: end_s(point.start) - start_s,
                p50_ns: point.delay.map(|delay| delay.p50_ns as f64),
                p99_ns: point.delay.map(|delay| delay.p99_ns as f64),
                packets: point.delay.map_or(0, |delay| delay.count) + point.lost,
                lost: point.lost,
                reordered: point.reordered,
            }
        })
        .collect()
}

fn size_classes(delays: &Delays, wire: Option<&Delays>) -> Vec<SizeClass> {
    let wire = wire.map(|wire| wire.by_size(None));
    let mut low = 0;
    let classes = delays.by_size(None).into_iter().enumerate();
    classes
        .map(|(index, class)| {
            let label = match SIZE_CLASSES[index] {
                u32::MAX => format!("over {low} B"),
                high if low == 0 => format!("up to {high} B"),
                high => format!("{}–{high} B", low + 1),
            };
            low = SIZE_CLASSES[index];
            SizeClass {
                label,
                packets: class.delay.map_or(0, |delay| delay.count) + class.lost,
                lost: class.lost,
                reordered: class.reordered,
                p50_ns: class.delay.map(|delay| delay.p50_ns as f64),
                p99_ns: class.delay.map(|delay| delay.p99_ns as f64),
                wire_p50_ns: wire
                    .as_ref()
                    .and_then(|wire| wire[index].delay)
                    .map(|delay| delay.p50_ns as f64),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_profile::delay::DelayConfig;
    use nilometer_profile::{Fate, PacketOutcome};

    #[test]
    fn sessions_are_off_by_the_sum_of_intervals_not_by_their_mean() {
        let interval = |(sessions_target, sessions_generated)| IntervalOutcome {
            sessions_target,
            sessions_generated,
            ..IntervalOutcome::default()
        };
        let off =
            |of: &[(f64, f64)]| sessions_off(&of.iter().copied().map(interval).collect::<Vec<_>>());
        assert_eq!(
            off(&[(0.5, 1.5), (1.5, 0.5)]),
            Some(1.0),
            "both are off, though the sum is not"
        );
        assert_eq!(off(&[(4.0, 4.0), (4.0, 3.0)]), Some(0.125));
        assert_eq!((off(&[(0.0, 1.0)]), off(&[])), (None, None));
    }

    /// Ten minutes are kept by the second; longer runs have steps of several seconds, the first of
    /// which begins before the traffic.
    #[test]
    fn long_runs_have_longer_steps_with_their_length() {
        const SECOND_NS: u64 = 1_000_000_000;
        let of = |config: DelayConfig, last_s: u64| {
            let mut delays = Delays::new(config);
            for at_s in 0..last_s {
                let entered_ns = LEAD_NS + at_s * SECOND_NS + 1;
                delays.record(&PacketOutcome {
                    direction: Direction::ClientToServer,
                    fate: Fate::Lost,
                    entered_at: Some(Time::from_nanos(entered_ns)),
                    left_at: None,
                    bytes: 40,
                    flow: 0,
                    reordered: false,
                });
            }
            let sources = delay_seconds(&delays, Direction::ClientToServer);
            sources.iter().map(|step| (step.start_s, step.length_s, step.lost)).collect::<Vec<_>>()
        };
        let few = DelayConfig { intervals_max: 8, ..DelayConfig::default() };
        assert_eq!(of(DelayConfig::default(), 3), [(0.0, 1.0, 1), (1.0, 1.0, 1), (2.0, 1.0, 1)]);
        assert_eq!(of(few, 14), [(0.0, 2.0, 2), (2.0, 4.0, 4), (6.0, 4.0, 4), (10.0, 4.0, 4)]);
        let all: u64 = of(DelayConfig::default(), 2_400).iter().map(|(.., lost)| lost).sum();
        assert_eq!(all, 2_400, "no second is left out");
    }
}
