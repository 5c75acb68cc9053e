//! A plan as it would be measured if it were played without a fault.

use nilometer_traffic::Plan;
use nilometer_traffic::fidelity::{Gap, Measured};

/// The measurements of a faultless run of the plan.
pub fn performed(plan: &Plan) -> Measured {
    let at = |index: usize| plan.connections[index].start.as_secs_f64();
    let end = plan.end.as_secs_f64();
    let gap = |before: usize, until: f64, observed| Gap {
        waited_s: until - at(before),
        observed,
        limit_s: end - at(before),
    };
    let followed = plan.previous.iter().enumerate();
    let mut gaps: Vec<Gap> = followed
        .filter_map(|(index, before)| before.map(|before| gap(before as usize, at(index), true)))
        .collect();
    gaps.extend(plan.censored.iter().map(|&index| gap(index as usize, end, false)));
    let mut uses = (vec![0; plan.ranks.0], vec![0; plan.ranks.1]);
    for session in &plan.sessions {
        uses.0[session.source_rank as usize] += 1;
        uses.1[session.destination_rank as usize] += 1;
    }
    Measured {
        sizes: plan.connections.iter().map(|c| c.size_bytes as f64).collect(),
        gaps,
        source_uses: uses.0,
        destination_uses: uses.1,
    }
}
