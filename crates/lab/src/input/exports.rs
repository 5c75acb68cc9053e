//! Flow records that come ready made: from NetFlow v5 datagrams and from our own tables.
//!
//! A record is given on as it is. It also counts in the summary: its packets and bytes where the
//! input holds no packets of its own, its times, and its connection. The counter of connections
//! takes packets, so a TCP record is shown to it as the packets it must have held: its SYN, where
//! it opened the connection or does not say who did, and its other flags.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context, Result};
use nilometer_flow::netflow5::{self, Datagram};
use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::sequence::Sequences;
use nilometer_flow::{FlowKey, FlowRecord};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Fragment, IpPacket, Parsed, TcpSegment, Transport, parse};

use super::capture::CapturedPacket;
use super::choice::{Evidence, ReadAs};
use super::datagrams::Datagrams;
use super::records::Reading;
use super::source::{Gauge, Stream};
use super::summary::ExportSummary;
use super::udp;
use super::window::Window;
use crate::table::flows::read_flow_table;

/// Exporters whose sequence numbers are followed; a file rarely has more than a few.
const EXPORTERS_MAX: usize = 4_096;

/// What is known of the exporters of one input.
#[derive(Debug, Default)]
pub(super) struct Exporters {
    sequences: BTreeMap<IpAddr, Sequences>,
    sums: ExportSummary,
    sampling_max: u16,
    times_reversed: u64,
}

/// What a packet says about whether its capture is one of exports.
pub(super) fn evidence(packet: &CapturedPacket<'_>) -> Evidence {
    let parsed = LinkType::from_dlt(packet.link_type)
        .map(|link| parse(link, packet.frame, packet.original_bytes));
    match parsed {
        Some(Parsed::Ip(ip)) => match export_in(packet.frame, &ip) {
            Some(Ok(_)) => Evidence::Export,
            _ => Evidence::Traffic,
        },
        _ => Evidence::Nothing,
    }
}

/// The export that a packet carries, if its payload begins like one.
fn export_in(frame: &[u8], ip: &IpPacket) -> Option<Result<Datagram, netflow5::Error>> {
    let payload = udp::payload(frame, ip)?;
    payload.starts_with(&[0, 5]).then(|| netflow5::decode(payload))
}

impl Reading<'_> {
    /// Takes a packet of a capture that is read as exports.
    pub(super) fn decode_packet(&mut self, frame: &[u8], ip: &IpPacket) {
        match export_in(frame, ip) {
            Some(Ok(datagram)) => {
                let (packets, bytes) = self.take_datagram(ip.source, datagram);
                self.exporters.sums.packets += packets;
                self.exporters.sums.bytes += bytes;
            }
            Some(Err(_)) => self.exporters.sums.malformed += 1,
            None => self.exporters.sums.other_packets += 1,
        }
    }

    /// Reads a file of datagrams; gives back the stream, to be read to its end.
    pub(super) fn read_datagrams(
        &mut self,
        gauge: &Gauge,
        mut datagrams: Datagrams<Stream>,
    ) -> Result<Window<Stream>> {
        let unreadable = || format!("{}: cannot be read", gauge.name());
        while let Some(datagram) = datagrams.next_datagram().with_context(unreadable)? {
            let Ok(datagram) = netflow5::decode(datagram) else {
                self.exporters.sums.malformed += 1;
                continue;
            };
            let (packets, bytes) = self.take_datagram(Ipv4Addr::UNSPECIFIED.into(), datagram);
            self.exporters.sums.packets += packets;
            self.exporters.sums.bytes += bytes;
            self.summary.packets += packets;
            self.summary.bytes += bytes;
            self.tell_progress(gauge);
            self.out.check()?;
        }
        self.summary.note_ending(gauge, datagrams.ending());
        self.note_exports(gauge);
        Ok(datagrams.into_window())
    }

    /// Reads a table of flow records.
    pub(super) fn read_table(&mut self, gauge: &Gauge, path: &Path) -> Result<()> {
        read_flow_table(path, &mut |record| {
            self.summary.packets += record.packets;
            self.summary.bytes += record.octets;
            self.take_record(record);
            self.tell_progress(gauge);
            self.out.check()
        })
    }

    /// Adds the sums of an input's exports to the summary, and says how a capture was read.
    pub(super) fn note_choice(&mut self, gauge: &Gauge, read_as: ReadAs) {
        if read_as == ReadAs::Exports {
            let name = gauge.name();
            let sums = &self.exporters.sums;
            let (datagrams, records) = (sums.datagrams, sums.records);
            let mut note =
                format!("{name}: read as {datagrams} NetFlow v5 exports of {records} flows");
            if self.read_as.is_none() {
                note += "; --from packets meters the packets that carry them";
            }
            self.summary.notes.push(note);
            self.note_exports(gauge);
        }
    }

    /// The packets and bytes that the datagram's records count.
    fn take_datagram(&mut self, exporter: IpAddr, datagram: Datagram) -> (u64, u64) {
        let exporters = &mut self.exporters;
        exporters.sums.datagrams += 1;
        exporters.sums.records += datagram.records.len() as u64;
        exporters.sampling_max = exporters.sampling_max.max(datagram.header.sampling_interval);
        exporters.times_reversed += datagram.times_reversed as u64;
        let known = exporters.sequences.len();
        if known < EXPORTERS_MAX || exporters.sequences.contains_key(&exporter) {
            exporters.sequences.entry(exporter).or_default().observe(&datagram);
        }
        let (mut packets, mut bytes) = (0, 0);
        for record in datagram.records {
            packets += record.packets;
            bytes += record.octets;
            self.take_record(record);
        }
        (packets, bytes)
    }

    fn take_record(&mut self, record: FlowRecord) {
        self.seen.widen(record.start_ns);
        self.seen.widen(record.end_ns);
        // Both ports zero is what later fragments are keyed by; they tell of no connection.
        let whole = record.key.source_port != 0 || record.key.destination_port != 0;
        if record.key.protocol == TCP && whole {
            if record.has_start() && record.opened != Some(false) {
                self.connections.observe(&shown(&record.key, tcp_flags::SYN));
            }
            self.connections.observe(&shown(&record.key, record.tcp_flags | tcp_flags::ACK));
        }
        self.out.give(record);
    }

    fn note_exports(&mut self, gauge: &Gauge) {
        let exporters = std::mem::take(&mut self.exporters);
        let mut sums = exporters.sums;
        let lost = exporters.sequences.values().map(|sequences| sequences.counts().flows_lost);
        sums.lost = lost.sum();
        let name = gauge.name();
        let mut warn = |what: String| self.summary.warnings.push(format!("{name}: {what}"));
        if sums.datagrams == 0 {
            warn("holds no NetFlow v5 export".into());
        }
        if sums.lost > 0 {
            warn(format!("by its numbering, {} exported flows never arrived", sums.lost));
        }
        if exporters.sampling_max > 1 {
            let sampling = exporters.sampling_max;
            warn(format!("counts 1 packet in {sampling}; packets and bytes are not scaled up"));
        }
        if exporters.times_reversed > 0 {
            let reversed = exporters.times_reversed;
            warn(format!("{reversed} flows end before they begin; they were taken as instants"));
        }
        if sums.malformed > 0 {
            warn(format!("{} exports contradict themselves and were left out", sums.malformed));
        }
        if sums.other_packets > 0 {
            warn(format!("{} packets are no exports and were not metered", sums.other_packets));
        }
        self.summary.exports.get_or_insert_default().add(&sums);
    }
}

/// A packet of the flow, as far as the counter of connections looks.
fn shown(key: &FlowKey, flags: u8) -> IpPacket {
    IpPacket {
        source: key.source,
        destination: key.destination,
        protocol: key.protocol,
        traffic_class: 0,
        hop_limit: 0,
        ip_bytes: 0,
        fragment: Fragment::Whole,
        transport: Transport::Tcp(TcpSegment {
            source_port: key.source_port,
            destination_port: key.destination_port,
            sequence: 0,
            acknowledgement: 0,
            flags,
            window: 0,
            payload_bytes: 0,
        }),
        encapsulated: false,
    }
}
