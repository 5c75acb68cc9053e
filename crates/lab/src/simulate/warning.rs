//! Warnings about a simulation: what makes its figures suspect, each a value and its sentence.

use std::collections::BTreeSet;

use nilometer_sim::{Outcome, Scenario};

use super::result::PointResult;
use super::sweep::Run;

/// What makes figures of a simulation suspect.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    /// A study of the paper's that is shorter than there.
    #[error(
        "the study was shortened, to {own_s} s of {whole_s} s: the paper's claims are about the whole \
         study, and none is judged; leave duration_s out to judge them"
    )]
    Shortened {
        /// How long it lasts here.
        own_s: f64,
        /// How long in the paper.
        whole_s: f64,
    },
    /// Measured flows that delivered nothing.
    #[error(
        "in {silent} of {runs} runs a measured flow delivered nothing; look at its path, its start \
         and the MTU of its links"
    )]
    FlowSilent {
        /// Runs with such a flow.
        silent: usize,
        /// All runs.
        runs: usize,
    },
    /// Packets without a path.
    #[error("{0} packets came to a link from which they had no path")]
    Unroutable(u64),
    /// Packets longer than an MTU.
    #[error(
        "{0} packets were longer than the MTU of a link on their path and were dropped there; \
         give it a larger `mtu`"
    )]
    TooBig(u64),
    /// Bottlenecks that are none.
    #[error(
        "at {idle} of {points} points the bottleneck lost nothing and was less than half used: it is \
         none; look at the other links and at windows"
    )]
    BottleneckIdle {
        /// Points at which it is so.
        idle: usize,
        /// All points.
        points: usize,
    },
    /// No figure has an interval.
    #[error("one seed: no figure has an interval; --seeds 10 gives them")]
    OneSeed,
}

/// What makes the figures of these runs suspect.
pub fn warnings(
    points: &[PointResult],
    scenarios: &[Scenario],
    made: &[(Run, &Outcome)],
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let silent = made.iter().filter(|(_, outcome)| {
        outcome.flows.iter().any(|flow| flow.share.is_some() && flow.delivered_bytes == 0.0)
    });
    let (silent, runs) = (silent.count(), made.len());
    if silent > 0 {
        warnings.push(Warning::FlowSilent { silent, runs });
    }
    let unroutable: u64 = made.iter().map(|(_, outcome)| outcome.journal.unroutable).sum();
    if unroutable > 0 {
        warnings.push(Warning::Unroutable(unroutable));
    }
    let too_big: u64 = made.iter().map(|(_, outcome)| outcome.too_big).sum();
    if too_big > 0 {
        warnings.push(Warning::TooBig(too_big));
    }
    let idle = points.iter().filter(|point| {
        let reached = point.fair_share_percent.is_some_and(|percent| percent > 0.0);
        reached && point.utilisation < 0.5 && point.loss_ratio == 0.0
    });
    let idle = idle.count();
    let has_flows = scenarios.iter().any(|scenario| !scenario.flow.is_empty());
    if idle > 0 && has_flows {
        warnings.push(Warning::BottleneckIdle { idle, points: points.len() });
    }
    let seeds: BTreeSet<u64> = made.iter().map(|(run, _)| run.seed).collect();
    if seeds.len() == 1 && made.len() == points.len() {
        warnings.push(Warning::OneSeed);
    }
    warnings
}
