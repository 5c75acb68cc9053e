//! The account: everything that a run is judged by.

use std::path::Path;

use nilometer_traffic::estimate::Estimate;
use nilometer_traffic::{Plan, TrafficModel};

use super::config::LabConfig;
use super::judge::RunObservations;
use super::leg::LegOutcome;
use super::original::Original;
use super::round_trips::RoundTripsOutcome;
use nilometer_routerd::testbed::RouterFile;

/// Everything a run is judged from.
pub struct RunRecord<'a> {
    /// The configuration.
    pub config: &'a LabConfig,
    /// The command that repeats the run.
    pub command: &'a str,
    /// The model and the messages about it.
    pub estimate: &'a Estimate,
    /// The plan.
    pub plan: &'a Plan,
    /// The leg through the device.
    pub made: &'a LegOutcome,
    /// The leg over the bare wire.
    pub wire: Option<&'a LegOutcome>,
    /// Where the page will be.
    pub page: &'a Path,
    /// The file of our router, if one was given.
    pub router: Option<&'a RouterFile>,
    /// The round trips of the original, where they are played.
    pub round_trips: Option<RoundTripsOutcome>,
    /// The warnings before the traffic began.
    pub early_warnings: &'a [String],
    /// The original's part, where it was observed packet by packet.
    pub original: Option<&'a Original>,
}

impl RunRecord<'_> {
    pub(super) fn model(&self) -> &TrafficModel {
        &self.estimate.model
    }

    pub(super) fn seen(&self) -> RunObservations<'_> {
        RunObservations {
            plan: self.plan,
            executions: &self.made.executions,
            records: &self.made.sighted.records,
            origin_ns: self.made.origin_ns,
            port: self.config.traffic.port,
            end_ns: self.made.played_ns(self.plan.end),
        }
    }
}
