//! The load that a plan intends for each interval: connections and payload, depending on what drives the
//! plan.
//!
//! *Intended load* is what a tester tries to send (RFC 2285, section 3.5.1). A plan is driven by connections, or by active
//! sessions as Harpoon is (sections 3 and 4.1).

use crate::generation::LoadDriver;
use crate::model::{Interval, TrafficModel};
use crate::sessions::{self, Demand};

/// Connections intended for an interval; where sessions drive, those that its sessions make on average.
pub(crate) fn connections(model: &TrafficModel, interval: &Interval) -> u64 {
    match model.generation.driver {
        LoadDriver::Connections => interval.to_perform().connections,
        LoadDriver::Sessions => {
            let gaps = interval.duration_s / model.inter_connection.mean();
            libm::ceil(interval.sessions * gaps) as u64
        }
    }
}

/// Payload bytes intended for an interval: its own; where sessions drive, scaled by the ratio of the stated to
/// the estimated number of sessions.
pub(crate) fn payload_bytes(model: &TrafficModel, at: usize) -> u64 {
    let interval = &model.intervals[at];
    if model.generation.driver == LoadDriver::Connections {
        return interval.to_perform().bytes;
    }
    let demand =
        Demand { interval: at as u32, bytes: interval.bytes, duration_s: interval.duration_s };
    let (sizes, gaps) = (&model.file_size, &model.inter_connection);
    let active = sessions::active(demand, sizes, gaps);
    let bytes = match active > 0.0 {
        true => interval.bytes as f64 * interval.sessions / active,
        false => interval.sessions * interval.duration_s / gaps.mean() * sizes.mean(),
    };
    libm::round(bytes) as u64
}
