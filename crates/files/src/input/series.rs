//! The packets of all inputs as one series in time, for what it says of burstiness.

use nilometer_stat::Binned;
use nilometer_traffic::burstiness::{Hurst, NoHurst};
use serde::{Deserialize, Serialize};

/// The series while it is read, and what keeps it from being the whole traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketSeries {
    binned: Binned,
    packets: u64,
    others: u64,
    too_far: bool,
}

impl PacketSeries {
    /// A packet that is metered, with its stamp if it has one.
    pub(super) fn packet(&mut self, stamp_ns: Option<u64>, ip_bytes: u32) {
        match stamp_ns {
            Some(at_ns) => {
                self.packets += 1;
                self.too_far |= self.binned.count(at_ns, ip_bytes.into()).is_err();
            }
            None => self.others += 1,
        }
    }

    /// A flow record, whose packets came at times that it does not tell.
    pub(super) fn record(&mut self) {
        self.others += 1;
    }

    /// Adds the series of a part.
    pub(super) fn merge(&mut self, part: &PacketSeries) {
        self.packets += part.packets;
        self.others += part.others;
        self.too_far |= part.too_far || self.binned.merge(&part.binned).is_err();
    }

    /// What the series says.
    ///
    /// # Errors
    /// Where it is not all of the traffic, or cannot be had.
    pub fn hurst(self) -> Result<Hurst, NoHurst> {
        match () {
            () if self.packets == 0 => Err(NoHurst::NoPackets),
            () if self.others > 0 => Err(NoHurst::OnlySome),
            () if self.too_far => Err(NoHurst::TooFarApart),
            () => Hurst::of(self.binned),
        }
    }
}
