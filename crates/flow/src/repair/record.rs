//! Repairs of a single record: impossible stamps, and wrapped counters.

use super::{Reason, RepairCounts, SECOND_NS};
use crate::record::{FlowRecord, TCP, UDP};

/// An uptime in milliseconds, of 32 bits, wraps after 49.7 days.
const UPTIME_WRAP_NS: u64 = (1 << 32) * 1_000_000;
/// A duration this near to a multiple of [`UPTIME_WRAP_NS`] is replaced by the remainder: of the wrong
/// durations that exporters show, most are within a second of it.
const WRAP_NEAR_NS: u64 = 3_600 * SECOND_NS;
/// Shorter durations are believed.
const BELIEVED_NS: u64 = 86_400 * SECOND_NS;
/// The longest silence within a flow: longer than any usual inactive timeout.
const SILENCE_MAX_NS: u64 = 3_600 * SECOND_NS;

/// A counter of bytes of 32 bits wraps after 4 GiB.
const COUNTER_WRAP: u64 = 1 << 32;
/// No packet is longer.
const PACKET_BYTES_MAX: u64 = 65_575;

/// Whether a record's stamps are plausible by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// They are believed.
    Believed,
    /// The exporter's uptime wrapped between them; the flow then started at this time, ns since 1970.
    Wrapped(u64),
    /// One of them is wrong; other records show which.
    Doubtful,
}

/// Judges the stamps of a record, as [`Screen`](super::Screen) does before it repairs them.
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

/// Repairs stamps by those of earlier records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dates {
    /// The end of the last record whose stamps were believed.
    last_ns: Option<u64>,
}

impl Dates {
    /// The state after a believed record that ended at `last_ns`.
    pub(super) fn after(last_ns: Option<u64>) -> Dates {
        Dates { last_ns }
    }

    /// Repairs an impossible duration.
    ///
    /// Where it is about 2^32 ms, and the record begins before its exporter's uptime wrapped and ends after,
    /// or the other way round, the wrap is taken out. Where a flow with counted packets would have been
    /// silent for more than an hour between packets on average, and lasted for more than a day, one of the
    /// stamps is wrong: the one farther from the last believed record. The flow is then treated as an
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

/// Adds the 4 GiB that a counter of 32 bits lost each time it wrapped, where that is visible: where there
/// are fewer bytes than the headers of all packets need. The smallest number of wraps that explains this is
/// assumed. Counters that wrapped and still cover the headers are not found. Where payload is known, bytes
/// were counted from packets, or are payload without headers.
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
    // A few packets cannot have wrapped a counter: their count or their bytes are wrong for another reason.
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
