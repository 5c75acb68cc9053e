//! Planning with threads: the arrivals of a plan drawn side by side.

use std::ops::Range;
use std::thread;

use anyhow::{Result, anyhow};
use nilometer_traffic::arrivals::Arrivals;
use nilometer_traffic::plan::PlanError;
use nilometer_traffic::vector_plan::{self, Draw};
use nilometer_traffic::{Plan, Planner, TrafficModel};

/// The plan of `model`: from its whole sessions where it has them, else from its laws. The plan
/// does not depend on `threads`.
///
/// # Errors
/// Why there is no plan, and what to do.
pub fn plan(model: &TrafficModel, draw: Draw, threads: usize) -> Result<Plan> {
    let mut arrivals = |planner: &Planner, slots| arrivals(planner, slots, threads.max(1));
    vector_plan::plan_of_model(model, draw, &mut arrivals).map_err(advised)
}

/// Adds the remedy to an error where a model has nothing to play.
fn advised(error: PlanError) -> anyhow::Error {
    match error {
        PlanError::NoConnections => anyhow!(
            "{error}, so there is nothing to play; `nilometer model show` says what the model holds: make it \
             of an input with more whole TCP connections, or of more sessions (`nilometer model new \
             --sessions`), or play a longer part of it (--duration)"
        ),
        PlanError::NoVectors => anyhow!("--{error}"),
        error => error.into(),
    }
}

fn arrivals(planner: &Planner, slots: Range<u32>, threads: usize) -> Vec<Arrivals> {
    let share = (slots.len() as u32).div_ceil(threads as u32).max(1);
    let parts = (0..threads as u32).map(|part| {
        let from = slots.start.saturating_add(part * share).min(slots.end);
        from..from.saturating_add(share).min(slots.end)
    });
    thread::scope(|scope| {
        let workers: Vec<_> =
            parts.map(|part| scope.spawn(move || planner.arrivals(part))).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("arrivals")).collect()
    })
}

/// A digest as it is written: lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
