//! Repairs that one record shows by itself: stamps that cannot be, and counters that had wrapped.

use super::{Reason, RepairCounts, SECOND_NS};
use crate::record::{FlowRecord, TCP, UDP};

/// An uptime in milliseconds, of 32 bits, wraps after 49.7 days.
const UPTIME_WRAP_NS: u64 = (1 << 32) * 1_000_000;
/// A duration so near to a multiple of that is its remainder: of the durations that exporters show
/// wrongly, most are within a second of it.
const WRAP_NEAR_NS: u64 = 3_600 * SECOND_NS;
/// Shorter durations are believed.
const BELIEVED_NS: u64 = 86_400 * SECOND_NS;
/// The longest silence within a flow: longer than any usual inactive timeout.
const SILENCE_MAX_NS: u64 = 3_600 * SECOND_NS;

/// A counter of bytes of 32 bits wraps after 4 GiB.
const COUNTER_WRAP: u64 = 1 << 32;
/// No packet is longer.
const PACKET_BYTES_MAX: u64 = 65_575;

/// What a record's stamps are worth, as it shows by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// They are believed.
    Believed,
    /// The exporter's uptime wrapped between them; without that the flow started then, ns since 1970.
    Wrapped(u64),
    /// One of them is wrong; which, other records tell.
    Doubtful,
}

/// Looks at the stamps of a record, as [`Screen`](super::Screen) does before it sets them right.
pub fn stamps(record: &FlowRecord) -> Stamps {
    let duration_ns = record.end_ns.saturating_sub(record.start_ns);
    let wraps = duration_ns.saturating_add(WRAP_NEAR_NS) / UPTIME_WRAP_NS;
    let gaps = record.packets.saturating_sub(1);
    if wraps > 0 && duration_ns.abs_diff(wraps * UPTIME_WRAP_NS) <= WRAP_NEAR_NS {
        let unwrapped_ns = record.start_ns.saturating_add(wraps * UPTIME_WRAP_NS);
        Stamps::Wrapped(unwrapped_ns.min(record.end_ns))
    } else if record.packets > 0
        && duration_ns > gaps.saturating_mul(SILENCE_MAX_NS).max(BELIEVED_NS)
    {
        Stamps::Doubtful
    } else {
        Stamps::Believed
    }
}

/// Sets stamps right by what records say that came before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dates {
    /// The end of the last record whose stamps were believed.
    last_ns: Option<u64>,
}

impl Dates {
    /// Those after a record that ended then, and was believed.
    pub(super) fn after(last_ns: Option<u64>) -> Dates {
        Dates { last_ns }
    }

    /// Repairs a duration that cannot be.
    ///
    /// Where it is about 2^32 ms, and the record begins before its exporter's uptime wrapped and ends
    /// after, or the other way round, the wrap is taken out. Where a flow whose packets were counted would
    /// have been silent for an hour between any two of them, and all in all for more than a day, one of
    /// the stamps is wrong: the one that is further from the other records. The flow is then taken as an
    /// instant.
    pub(super) fn set_right(&mut self, record: &mut FlowRecord, counts: &mut RepairCounts) {
        match stamps(record) {
            Stamps::Believed => {
                self.last_ns = Some(record.end_ns);
                return;
            }
            Stamps::Wrapped(start_ns) => record.start_ns = start_ns,
            Stamps::Doubtful => {
                let last_ns = self.last_ns.unwrap_or(record.end_ns);
                if record.start_ns.abs_diff(last_ns) < record.end_ns.abs_diff(last_ns) {
                    record.end_ns = record.start_ns;
                } else {
                    record.start_ns = record.end_ns;
                }
            }
        }
        counts.count(Reason::DurationAbsurd);
    }
}

/// Adds the 4 GiB that a counter of 32 bits lost each time it wrapped, where that can be seen: where
/// the bytes would not do for the headers of so many packets. It is then taken to have wrapped as
/// often as it must have. Counters that wrapped and still do for the headers are not found. Where payload is
/// known, bytes were counted from packets, or are payload and have no headers to do for.
pub(super) fn unwrap(record: &mut FlowRecord, counts: &mut RepairCounts) {
    if record.payload_octets.is_some() {
        return;
    }
    let needed = record.packets.saturating_mul(header_bytes(record));
    if record.octets == 0 || record.octets >= needed || record.octets >= COUNTER_WRAP {
        return;
    }
    let missing = (needed - record.octets).div_ceil(COUNTER_WRAP).saturating_mul(COUNTER_WRAP);
    let Some(octets) = record.octets.checked_add(missing) else { return };
    // A few packets cannot have wrapped anything: their count or their bytes are something else.
    if octets > record.packets.saturating_mul(PACKET_BYTES_MAX) {
        return;
    }
    record.octets = octets;
    counts.octets_unwrapped += u128::from(missing);
    counts.count(Reason::CounterWrapped);
}

/// The fewest bytes that a packet of this flow has, from the IP header on.
fn header_bytes(record: &FlowRecord) -> u64 {
    let ip = if record.key.source.is_ipv4() { 20 } else { 40 };
    match record.key.protocol {
        TCP => ip + 20,
        UDP => ip + 8,
        _ => ip,
    }
}
