//! What each interval of a plan is to hold, by what drives it: its connections, or its active sessions.

use crate::generation::Driver;
use crate::model::{Interval, TrafficModel};
use crate::sessions::{self, Demand};

/// Connections that an interval is to hold, or that its sessions make on average where they drive.
pub(crate) fn expected(model: &TrafficModel, interval: &Interval) -> u64 {
    match model.generation.driver {
        Driver::Connections => interval.to_perform().connections,
        Driver::Sessions => {
            let gaps = interval.duration_s / model.inter_connection.mean();
            libm::ceil(interval.sessions * gaps) as u64
        }
    }
}

/// Payload bytes that an interval is to carry: its own; where sessions drive, by as many as it has of those that carry
/// them.
pub(crate) fn carried(model: &TrafficModel, at: usize) -> u64 {
    let interval = &model.intervals[at];
    if model.generation.driver == Driver::Connections {
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
