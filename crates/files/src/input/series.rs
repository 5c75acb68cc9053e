//! The packets of all inputs as one time series, for burstiness.

use nilometer_stat::Binned;
use nilometer_traffic::burstiness::{Hurst, NoHurst};
use serde::{Deserialize, Serialize};

/// The series while it is read, and why it may not be the whole traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketSeries {
    binned: Binned,
    packets: u64,
    others: u64,
    too_far: bool,
}

impl PacketSeries {
    /// Adds a metered packet, with its stamp if it has one.
    pub(super) fn packet(&mut self, stamp_ns: Option<u64>, ip_bytes: u32) {
        match stamp_ns {
            Some(at_ns) => {
                self.packets += 1;
                self.too_far |= self.binned.count(at_ns, ip_bytes.into()).is_err();
            }
            None => self.others += 1,
        }
    }

    /// Notes a flow record, whose packet times are unknown.
    pub(super) fn record(&mut self) {
        self.others += 1;
    }

    /// Adds the series of a part.
    pub(super) fn merge(&mut self, part: &PacketSeries) {
        self.packets += part.packets;
        self.others += part.others;
        self.too_far |= part.too_far || self.binned.merge(&part.binned).is_err();
    }

    /// The Hurst parameter of the series.
    ///
    /// # Errors
    /// Where the series is not all of the traffic, or the parameter cannot be estimated.
    pub fn hurst(self) -> Result<Hurst, NoHurst> {
        match () {
            () if self.packets == 0 => Err(NoHurst::NoPackets),
            () if self.others > 0 => Err(NoHurst::OnlySome),
            () if self.too_far => Err(NoHurst::TooFarApart),
            () => Hurst::of(self.binned),
        }
    }
}
