//! Samplers: which packets an exporter sampled, according to its options or its records.
//!
//! A record may state its interval itself, or name a sampler (elements 48 or 302) whose interval an
//! option gave, or state nothing and mean the only sampler of its domain. Options are sent now and
//! then, so the first records of a capture come before them. Those are passed on with interval 0,
//! because it is still unknown; they are counted once the domain states an interval
//! (`sampling_late`), so that an estimate from the records can correct the earlier ones.

use alloc::collections::BTreeMap;

use super::element::Slot;
use super::plan::{Plan, Values};

/// Samplers that are remembered for a domain; a router has one or two, some one for each interface.
const SAMPLERS_MAX: usize = 1_024;

/// The samplers of one domain.
#[derive(Clone, Debug, Default)]
pub(super) struct Samplers {
    /// The interval of records that name no sampler: the last one stated, for any sampler.
    default: u32,
    by_id: BTreeMap<u64, u32>,
    /// Records passed on without an interval, while none was known.
    unstated: u64,
}

impl Samplers {
    /// Learns from an option record; returns how many records had been passed on without its
    /// interval.
    pub(super) fn learn(&mut self, plan: &Plan, values: &Values) -> u64 {
        let interval = stated(values);
        if interval == 0 {
            return 0;
        }
        if plan.has(Slot::SamplerId, false) {
            let id = values.get(Slot::SamplerId);
            if self.by_id.len() < SAMPLERS_MAX || self.by_id.contains_key(&id) {
                self.by_id.insert(id, interval);
            }
        }
        self.default = interval;
        core::mem::take(&mut self.unstated)
    }

    /// The interval of a data record.
    pub(super) fn interval(&mut self, plan: &Plan, values: &Values) -> u32 {
        let own = stated(values);
        let interval = if own != 0 {
            own
        } else if plan.has(Slot::SamplerId, false) {
            let id = values.get(Slot::SamplerId);
            self.by_id.get(&id).copied().unwrap_or(self.default)
        } else {
            self.default
        };
        self.unstated += u64::from(interval == 0);
        interval
    }

    /// The interval that the domain stated last; 0 if none.
    pub(super) fn last_interval(&self) -> u32 {
        self.default
    }
}

/// The interval that values state, 1 packet in this many; 0 if they state none.
///
/// RFC 5477 has three kinds: n packets in a row and then m left out (sections 8.2.2 and 8.2.3), n
/// out of a population of m (8.2.5 and 8.2.6), and a probability (8.2.7). An interval of the first
/// kind without a space comes last: some exporters mean 1 in n by it, others set it to 1 beside the
/// second kind. Ratios are rounded to the nearest whole number.
fn stated(values: &Values) -> u32 {
    let ratio = |of: u64, out_of: u64| of.saturating_add(out_of / 2) / out_of;
    let get = |slot| values.get(slot);
    let (taken, left) = (get(Slot::PacketInterval), get(Slot::PacketSpace));
    let (size, population) = (get(Slot::SampleSize), get(Slot::SamplePopulation));
    let probability = f64::from_bits(get(Slot::Probability));
    let interval = if get(Slot::Interval) != 0 {
        get(Slot::Interval)
    } else if taken != 0 && left != 0 {
        ratio(taken.saturating_add(left), taken)
    } else if size != 0 && population != 0 {
        ratio(population, size)
    } else if probability > 0.0 && probability <= 1.0 {
        (1.0 / probability + 0.5) as u64
    } else {
        taken
    };
    u32::try_from(interval).unwrap_or(u32::MAX)
}
