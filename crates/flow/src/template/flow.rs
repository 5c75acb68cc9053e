//! From the values of a record to a flow record, and a second one for the reverse half of a biflow.
//!
//! **Times.** Version 9 gives its flows in the exporter's uptime, and its header states uptime and wall
//! clock of one moment, so a flow's time is the export time less its age (signed, as in
//! [`crate::netflow5`]). IPFIX may use the same two elements, but its header has no uptime: they count
//! from systemInitTimeMilliseconds, in the record or in an option. Exporters often leave that out. The
//! moment of their start is then estimated: no flow can end after its export, so every record shows that
//! the start was at export less end, or before, and the least of these is kept; its error is the
//! shortest time for which the exporter ever held a record. An uptime wraps after 49.7 days, which shows
//! as a start more than half of that later than the one kept, and the estimate begins anew. Whether
//! stated or estimated, the start gives an uptime at the export, and from that the age of flows, signed
//! as above.
//!
//! **Biflows** (RFC 5103). The reverse half becomes a record of its own, with addresses and ports
//! exchanged, if it counts anything. Where it has no times of its own, it has those of the forward half
//! (section 5). The opening side is given by biflowDirection, or by the flags of the first packet where
//! they are exported separately.
//!
//! **Bytes.** The counts of initiator and responder (elements 231 and 232) are transport-layer payload.
//! Where there is no other count, they are used for the bytes of the record as well.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::element::{Read, Slot};
use super::message::{Dialect, Header};
use super::plan::{Plan, Values};
use crate::counts::Counts;
use crate::record::{EndReason, FlowKey, FlowRecord, has_ports, tcp_flags};

const NANOS_PER_MILLI: i64 = 1_000_000;
const NANOS_PER_MICRO: u64 = 1_000;
/// Half of the time after which an uptime wraps, ns: 24.8 days.
const HALF_WRAP_NS: u64 = (1 << 31) * NANOS_PER_MILLI as u64;

/// When the exporter of a domain started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start {
    /// As the exporter stated it, ns since 1970.
    pub(super) told_ns: Option<u64>,
    estimated_ns: Option<u64>,
}

impl Start {
    /// The best estimate after a flow that ended at `uptime_ms` and was exported with `header`.
    fn estimate(&mut self, header: &Header, uptime_ms: u64) -> u64 {
        let now_ns = header.export_ns();
        let latest_ns = now_ns.saturating_sub(uptime_ms.saturating_mul(NANOS_PER_MILLI as u64));
        let kept_ns = (self.estimated_ns)
            .filter(|kept_ns| *kept_ns <= latest_ns && latest_ns - *kept_ns < HALF_WRAP_NS)
            .unwrap_or(latest_ns);
        self.estimated_ns = Some(kept_ns);
        kept_ns
    }
}

/// The clock by which a record's times are computed.
struct Clock<'a> {
    header: &'a Header,
    /// When the uptime was zero, for IPFIX.
    start_ns: u64,
}

impl Clock<'_> {
    fn wall_ns(&self, read: Read, value: u64) -> u64 {
        match (read, self.header.dialect) {
            (Read::Uptime, Dialect::NetFlow9) => {
                let age_ms = self.header.uptime_ms.wrapping_sub(value as u32) as i32;
                self.header.export_ns().saturating_add_signed(-i64::from(age_ms) * NANOS_PER_MILLI)
            }
            (Read::Uptime, Dialect::Ipfix) => {
                let exported_ms = (self.header.export_ns() as i64)
                    .wrapping_sub(self.start_ns as i64)
                    .div_euclid(NANOS_PER_MILLI);
                let age_ms = (exported_ms as u32).wrapping_sub(value as u32) as i32;
                let since_ns = (exported_ms - i64::from(age_ms)).saturating_mul(NANOS_PER_MILLI);
                self.start_ns.saturating_add_signed(since_ns)
            }
            (Read::Before, _) => {
                self.header.export_ns().saturating_sub(value.saturating_mul(NANOS_PER_MICRO))
            }
            _ => value,
        }
    }
}

/// Passes on the flow that `values` describe.
pub(super) fn give(
    plan: &Plan,
    values: &Values,
    (header, start): (&Header, &mut Start),
    sampling_interval: u32,
    counts: &mut Counts,
    out: &mut impl FnMut(FlowRecord),
) {
    let clock = clock(plan, values, header, start, counts);
    let (start_ns, end_ns) = match times(plan, values, &clock, false) {
        Some(times) => times,
        None => {
            counts.times_absent += 1;
            let end_ns = header.export_ns();
            (end_ns.saturating_sub(values.of(Slot::Duration, false)), end_ns)
        }
    };
    let octets = values.of(Slot::Octets, false);
    let mut forward = FlowRecord {
        key: key(plan, values),
        start_ns,
        end_ns,
        packets: values.of(Slot::Packets, false),
        octets,
        tcp_flags: (values.of(Slot::Flags, false) | values.of(Slot::FirstFlags, false)) as u8,
        payload_octets: plan.counts_payload(false).then_some(octets),
        opened: opened(values, false),
        end_reason: EndReason::from_number(values.get(Slot::EndReason) as u8),
        sampling_interval,
    };
    counts.times_reversed += u64::from(forward.end_ns < forward.start_ns);
    forward.end_ns = forward.end_ns.max(forward.start_ns);
    let reverse = reverse(plan, values, &clock, &forward);
    counts.flows += 1;
    out(forward);
    if let Some(reverse) = reverse {
        counts.reverse_flows += 1;
        out(reverse);
    }
}

fn reverse(
    plan: &Plan,
    values: &Values,
    clock: &Clock<'_>,
    forward: &FlowRecord,
) -> Option<FlowRecord> {
    let (packets, octets) = (values.of(Slot::Packets, true), values.of(Slot::Octets, true));
    if packets == 0 && octets == 0 {
        return None;
    }
    let (start_ns, end_ns) = times(plan, values, clock, true).unwrap_or_else(|| {
        let start_ns = forward.start_ns.saturating_add(values.get(Slot::ReverseDelta));
        (start_ns.min(forward.end_ns), forward.end_ns)
    });
    Some(FlowRecord {
        key: forward.key.reversed(),
        start_ns,
        end_ns: end_ns.max(start_ns),
        packets,
        octets,
        payload_octets: plan.counts_payload(true).then_some(octets),
        tcp_flags: (values.of(Slot::Flags, true) | values.of(Slot::FirstFlags, true)) as u8,
        opened: opened(values, true),
        ..forward.clone()
    })
}

fn clock<'a>(
    plan: &Plan,
    values: &Values,
    header: &'a Header,
    start: &mut Start,
    counts: &mut Counts,
) -> Clock<'a> {
    let is_uptime = |slot| plan.time(slot, false) == Some(Read::Uptime);
    if header.dialect == Dialect::NetFlow9 || !(is_uptime(Slot::Start) || is_uptime(Slot::End)) {
        return Clock { header, start_ns: 0 };
    }
    let told_ns = match values.get(Slot::SystemInit) {
        0 => start.told_ns,
        told_ns => Some(told_ns),
    };
    let start_ns = told_ns.unwrap_or_else(|| {
        counts.times_estimated += 1;
        let last = if is_uptime(Slot::End) { Slot::End } else { Slot::Start };
        start.estimate(header, values.of(last, false))
    });
    Clock { header, start_ns }
}

/// First and last packet of one direction, if it has a time of its own.
fn times(plan: &Plan, values: &Values, clock: &Clock<'_>, reverse: bool) -> Option<(u64, u64)> {
    let lasted_ns = values.of(Slot::Duration, reverse);
    let wall_ns = |slot| {
        let read = plan.time(slot, reverse)?;
        Some(clock.wall_ns(read, values.of(slot, reverse)))
    };
    match (wall_ns(Slot::Start), wall_ns(Slot::End)) {
        (Some(start_ns), Some(end_ns)) => Some((start_ns, end_ns)),
        (Some(start_ns), None) => Some((start_ns, start_ns.saturating_add(lasted_ns))),
        (None, Some(end_ns)) => Some((end_ns.saturating_sub(lasted_ns), end_ns)),
        (None, None) => None,
    }
}

/// The five-tuple. Some templates have fields for both families and fill those of one; IPv4 is used
/// unless it is all zeros.
fn key(plan: &Plan, values: &Values) -> FlowKey {
    let get = |slot| values.get(slot);
    let (source, destination) = (get(Slot::SourceV4) as u32, get(Slot::DestinationV4) as u32);
    let is_v6 = plan.has(Slot::SourceV6, false)
        && plan.has(Slot::DestinationV6, false)
        && source == 0
        && destination == 0;
    let (source, destination): (IpAddr, IpAddr) = if is_v6 {
        let v6 = |high, low| {
            Ipv6Addr::from_bits(u128::from(get(high)) << 64 | u128::from(get(low))).into()
        };
        (v6(Slot::SourceV6, Slot::SourceV6Low), v6(Slot::DestinationV6, Slot::DestinationV6Low))
    } else {
        (Ipv4Addr::from_bits(source).into(), Ipv4Addr::from_bits(destination).into())
    };
    let protocol = get(Slot::Protocol) as u8;
    // Without a protocol, only ports distinguish flows.
    let keeps_ports = has_ports(protocol) || !plan.has(Slot::Protocol, false);
    let port = |slot| if keeps_ports { get(slot) as u16 } else { 0 };
    FlowKey {
        source,
        destination,
        source_port: port(Slot::SourcePort),
        destination_port: port(Slot::DestinationPort),
        protocol,
    }
}

/// Did this direction open the connection?
fn opened(values: &Values, reverse: bool) -> Option<bool> {
    // RFC 5103, section 6.3: 1 means that the forward half is the initiator's, 2 the reverse one.
    match values.get(Slot::BiflowDirection) {
        1 => return Some(!reverse),
        2 => return Some(reverse),
        _ => {}
    }
    let first = values.of(Slot::FirstFlags, reverse) as u8;
    (first & tcp_flags::SYN != 0).then_some(first & tcp_flags::ACK == 0)
}
