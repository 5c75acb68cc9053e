//! One line of text: its values, and the flow records in it.

use std::net::IpAddr;

use nilometer_flow::counts::Skip;
use nilometer_flow::record::{SCTP, TCP, UDP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};

use super::fields::{Field, Fields};
use super::values;

/// The values of a line.
#[derive(Clone, Debug, Default)]
pub struct Row {
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    duration_ns: Option<u64>,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    ports: [u16; 2],
    protocol: Option<u8>,
    packets: [Option<u64>; 2],
    octets: [Option<u64>; 2],
    packets_both: Option<u64>,
    octets_both: Option<u64>,
    payload: [Option<u64>; 2],
    flags: [u8; 2],
    opened: Option<bool>,
    end_reason: u8,
    sampling_interval: u32,
    is_of_zeek: bool,
}

/// Indices of the forward and the reverse direction.
const FORTH: usize = 0;
const BACK: usize = 1;

impl Row {
    /// Takes the values of a line.
    pub fn read<'a>(
        &mut self,
        fields: &Fields,
        mut values: impl Iterator<Item = &'a str>,
    ) -> Result<(), Skip> {
        for field in fields.iter() {
            let value = values.next().ok_or(Skip::RecordDamaged)?;
            if let Some(field) = field {
                self.set(field, value)?;
            }
        }
        Ok(())
    }

    /// Takes a value; an empty one or `-` is ignored.
    pub fn set(&mut self, field: Field, value: &str) -> Result<(), Skip> {
        let value = value.trim();
        if value.is_empty() || value == "-" || value == "(empty)" {
            return Ok(());
        }
        let number = || value.parse::<u64>().map_err(|_| Skip::RecordDamaged);
        let address = || value.parse::<IpAddr>().map_err(|_| Skip::NoAddresses);
        let damaged = Skip::RecordDamaged;
        match field {
            Field::Start(unit) => {
                self.start_ns = Some(values::moment(value, unit).ok_or(damaged)?);
            }
            Field::End(unit) => self.end_ns = Some(values::moment(value, unit).ok_or(damaged)?),
            Field::Duration => self.duration_ns = Some(values::span(value).ok_or(damaged)?),
            Field::Source => self.source = Some(address()?),
            Field::Destination => self.destination = Some(address()?),
            // ICMP has a type and code here, in a different form for every tool.
            Field::SourcePort => self.ports[FORTH] = values::port(value).unwrap_or(0),
            Field::DestinationPort => self.ports[BACK] = values::port(value).unwrap_or(0),
            Field::Protocol => {
                self.protocol = Some(values::protocol(value).ok_or(Skip::KindUnknown)?);
            }
            Field::Packets => self.packets[FORTH] = Some(number()?),
            Field::Octets => self.octets[FORTH] = Some(number()?),
            Field::PacketsBack => self.packets[BACK] = Some(number()?),
            Field::OctetsBack => self.octets[BACK] = Some(number()?),
            Field::PacketsBoth => self.packets_both = Some(number()?),
            Field::OctetsBoth => self.octets_both = Some(number()?),
            Field::Payload => self.payload[FORTH] = Some(number()?),
            Field::PayloadBack => self.payload[BACK] = Some(number()?),
            Field::Flags => self.flags[FORTH] = values::flags(value).ok_or(damaged)?,
            Field::History => {
                self.flags = values::history(value);
                self.is_of_zeek = true;
            }
            Field::State => {
                // For other protocols Argus writes words here, not flags.
                let (forth, back) = value.split_once('_').unwrap_or((value, ""));
                let both = [forth, back].map(|half| values::letters(half).unwrap_or(0));
                self.flags = both;
            }
            Field::EndReason => self.end_reason = values::port(value).ok_or(damaged)? as u8,
            Field::Opened => self.opened = Some(value.parse().map_err(|_| damaged)?),
            Field::Sampling => {
                self.sampling_interval = value.parse().map_err(|_| Skip::RecordDamaged)?;
            }
        }
        Ok(())
    }

    /// Were packets stated only as the sum of both directions?
    pub fn is_halved(&self) -> bool {
        self.packets_both.is_some() && self.packets == [None, None]
    }

    /// Is the last packet stated to be before the first?
    pub fn ends_before_it_begins(&self) -> bool {
        matches!((self.start_ns, self.end_ns), (Some(start), Some(end)) if end < start)
    }

    /// The records: one, and another if packets went in the reverse direction.
    pub fn flows(&self) -> Result<(FlowRecord, Option<FlowRecord>), Skip> {
        let (Some(source), Some(destination)) = (self.source, self.destination) else {
            return Err(Skip::NoAddresses);
        };
        let (Some(start_ns), Some(protocol)) = (self.start_ns, self.protocol) else {
            return Err(Skip::RecordDamaged);
        };
        let (packets, octets) = self.both_ways().ok_or(Skip::NoCounts)?;
        let ports = if matches!(protocol, TCP | UDP | SCTP) { self.ports } else { [0, 0] };
        let lasts_ns = self.duration_ns.unwrap_or(0);
        let end_ns = self.end_ns.unwrap_or(start_ns.saturating_add(lasts_ns)).max(start_ns);
        let flags = if protocol == TCP { self.flags } else { [0, 0] };
        let payload =
            |way: usize| self.payload[way].filter(|bytes| *bytes <= octets[way] && octets[way] > 0);
        let forward = FlowRecord {
            key: FlowKey {
                source,
                destination,
                source_port: ports[FORTH],
                destination_port: ports[BACK],
                protocol,
            },
            start_ns,
            end_ns,
            packets: packets[FORTH],
            octets: octets[FORTH],
            tcp_flags: flags[FORTH],
            payload_octets: payload(FORTH),
            opened: self.opened.or(self.opened_by(flags[FORTH], true)),
            end_reason: EndReason::from_number(self.end_reason),
            sampling_interval: self.sampling_interval,
        };
        let back = (packets[BACK] > 0 || octets[BACK] > 0).then(|| FlowRecord {
            key: forward.key.reversed(),
            packets: packets[BACK],
            octets: octets[BACK],
            tcp_flags: flags[BACK],
            payload_octets: payload(BACK),
            opened: self.opened.map(|opened| !opened).or(self.opened_by(flags[BACK], false)),
            ..forward.clone()
        });
        Ok((forward, back))
    }

    /// Zeek knows the originator, which is the opening side if Zeek saw the SYN.
    fn opened_by(&self, flags: u8, is_originator: bool) -> Option<bool> {
        (self.is_of_zeek && flags & tcp_flags::SYN != 0).then_some(is_originator)
    }

    /// Packets and bytes of each direction. If one direction and the sum of both are stated, the
    /// other is the difference; packets stated only as a sum are halved, as is typical of data and
    /// acknowledgements.
    fn both_ways(&self) -> Option<([u64; 2], [u64; 2])> {
        let other = |of: [Option<u64>; 2], both: Option<u64>| match (of, both) {
            ([Some(forth), back], None) => Some([forth, back.unwrap_or(0)]),
            ([Some(forth), None], Some(both)) => Some([forth, both.checked_sub(forth)?]),
            ([Some(forth), Some(back)], _) => Some([forth, back]),
            _ => None,
        };
        let octets = other(self.octets, self.octets_both)?;
        let packets = match self.packets_both {
            Some(both) if self.is_halved() => match octets {
                [_, 0] => [both, 0],
                [0, _] => [0, both],
                _ => [both.div_ceil(2), both / 2],
            },
            both => other(self.packets, both)?,
        };
        Some((packets, octets))
    }
}
