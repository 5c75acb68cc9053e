//! The stress test of distributed queueing in virtual time, with which the router's own is
//! compared.

use nilometer_queue::distributed::Variant;
use nilometer_sim::stress::{StressPlan, run};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::Refused;

/// Results of the same test in virtual time, on a fabric of the same parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SimulatedStress {
    /// The broadcasts at which the stages ended.
    pub stages: Vec<u64>,
    /// The first output's backlog at `T1`.
    pub output_backlog_bytes_at_t1: u64,
    /// The first input's backlog for that output at `T1`.
    pub input_backlog_bytes_at_t1: u64,
    /// The first input's rate at `T1` for the last port, whose virtual output queue is idle; Mb/s.
    pub idle_voq_mbps: f64,
    /// The first input's rate for the last stage's output; Mb/s.
    pub last_stage_mbps: f64,
}

/// Plays the test of `plan` in virtual time.
///
/// # Errors
/// 400 for a plan that cannot be played.
pub(super) fn simulated(plan: &StressPlan, variant: Variant) -> Result<SimulatedStress, Refused> {
    let run = run(plan, variant).map_err(Refused::bad)?;
    Ok(SimulatedStress {
        stages: run.stages,
        output_backlog_bytes_at_t1: run.output_backlog_bytes_at_t1,
        input_backlog_bytes_at_t1: run.input_backlog_bytes_at_t1,
        idle_voq_mbps: run.idle_voq_mbps,
        last_stage_mbps: run.last_stage_mbps,
    })
}
