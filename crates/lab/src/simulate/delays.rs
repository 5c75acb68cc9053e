//! Delays of datagrams over time: percentiles of each interval, over all runs of a point.

use nilometer_sim::course::Course;
use nilometer_sim::{Outcome, Scenario};
use nilometer_stat::summary::quantile_sorted;
use serde::Serialize;

/// The course of the delay of one `[[datagrams]]` table at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelayCourse {
    /// The table's number among its kind, from 1.
    pub datagrams: u32,
    /// The senders' group.
    pub from: String,
    /// The receivers' group.
    pub to: String,
    /// How long an interval is, seconds.
    pub every_s: f64,
    /// One entry for each interval of the run.
    pub intervals: Vec<DelayInterval>,
}

/// Packets that were sent in one interval and arrived, of all runs together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DelayInterval {
    /// When it begins, seconds.
    pub start_s: f64,
    /// How many arrived.
    pub arrived: u64,
    /// Their median delay, ms; null where none arrived.
    pub p50_ms: Option<f64>,
    /// One in twenty took longer.
    pub p95_ms: Option<f64>,
    /// One in a hundred took longer.
    pub p99_ms: Option<f64>,
}

impl DelayInterval {
    fn new(start_s: f64, delays_ns: &[u64]) -> DelayInterval {
        let mut sorted: Vec<f64> = delays_ns.iter().map(|&delay| delay as f64 / 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |q| quantile_sorted(&sorted, q);
        let arrived = sorted.len() as u64;
        DelayInterval { start_s, arrived, p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99) }
    }
}

/// The courses that the runs of a point kept, one for each table; none where the scenario has none.
pub fn courses(scenario: &Scenario, made: &[(u64, &Outcome)]) -> Vec<DelayCourse> {
    let mut joined: Vec<(u32, Course)> = Vec::new();
    for (_, outcome) in made {
        for (table, course) in &outcome.courses {
            match joined.iter_mut().find(|(known, _)| known == table) {
                Some((_, own)) => own.join(course),
                None => joined.push((*table, course.clone())),
            }
        }
    }
    let reported = |(table, course): &(u32, Course)| {
        let spec = scenario.datagrams.get(*table as usize)?;
        let every_s = course.every().as_secs_f64();
        let each = course.delays_ns().iter().enumerate();
        let intervals =
            each.map(|(number, delays)| DelayInterval::new(number as f64 * every_s, delays));
        Some(DelayCourse {
            datagrams: table + 1,
            from: spec.from.clone(),
            to: spec.to.clone(),
            every_s,
            intervals: intervals.collect(),
        })
    };
    joined.iter().filter_map(reported).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_arrived_packets() {
        let delays: Vec<u64> = (1..=100).rev().map(|ms| ms * 1_000_000).collect();
        let interval = DelayInterval::new(3.0, &delays);
        assert_eq!((interval.start_s, interval.arrived), (3.0, 100));
        let reported = [interval.p50_ms, interval.p95_ms, interval.p99_ms];
        for (value, expected) in reported.into_iter().zip([50.0, 95.0, 99.0]) {
            assert!((value.expect("it arrived") - expected).abs() <= 1.0, "{reported:?}");
        }
        let none = DelayInterval::new(0.0, &[]);
        assert_eq!((none.arrived, none.p50_ms, none.p99_ms), (0, None, None));
    }
}
