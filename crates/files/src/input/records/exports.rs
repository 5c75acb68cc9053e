//! Ready-made flow records: from export datagrams and from our own tables.
//!
//! A record is passed on as it is. It also counts in the summary: its packets and bytes if the input
//! holds no packets of its own, its times, and its connection: a SYN in a TCP record counts if the
//! record opened the connection, or the opening side is unknown.
//!
//! One collector receives the datagrams of all inputs, so that a capture which its writer cut in
//! pieces is read like the whole: a template in one piece is valid for the next. Files of datagrams
//! do not name their exporter; they share an unspecified one.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use nilometer_flow::FlowRecord;
use nilometer_flow::collector::{Collector, Format};
use nilometer_flow::counts::{Counts, Skip};
use nilometer_flow::framing::well_formed;
use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::template::{Exporter, Limits};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{IpPacket, Parsed, Transport, parse};

use super::super::capture::CapturedPacket;
use super::super::choice::{Evidence, ReadAs};
use super::super::datagrams::Datagrams;
use super::super::source::{Gauge, Stream};
use super::super::summary::{ExportSummary, of_all};
use super::super::udp;
use super::super::window::Window;
use super::Reading;
use crate::table::flows::read_flow_table;

/// The warning about contradictory records.
const LEFT_OUT: &str = "are damaged and were left out";

/// Why a valid record is not a flow. (Samples of counters come with all sFlow.)
const NO_FLOWS: [(Skip, &str); 5] = [
    (Skip::NoAddresses, "have no addresses"),
    (Skip::NoCounts, "count no packets (events, such as translations)"),
    (Skip::Aggregate, "are sums over many flows"),
    (Skip::KindUnknown, "are of kinds that are not known here"),
    (Skip::NotIp, "are samples of packets that are not IP"),
];

/// State and counts of exporters.
#[derive(Debug)]
pub(in crate::input) struct Exporters {
    collector: Collector,
    /// The counts of collectors' files, now and at the last warning.
    pub(super) archived: Counts,
    pub(super) warned: Counts,
    /// The flows of one datagram or block, on their way.
    pub(super) flows: Vec<FlowRecord>,
    /// For the current input: its formats, its sums, and the counts before it.
    formats: BTreeSet<Format>,
    sums: ExportSummary,
    before: Counts,
    sampling_max: u32,
}

impl Default for Exporters {
    fn default() -> Exporters {
        Exporters {
            collector: Collector::new(Limits::default()),
            archived: Counts::default(),
            warned: Counts::default(),
            flows: Vec::new(),
            formats: BTreeSet::new(),
            sums: ExportSummary::default(),
            before: Counts::default(),
            sampling_max: 0,
        }
    }
}

/// The evidence of a packet on whether its capture is one of exports.
pub(super) fn evidence(packet: &CapturedPacket<'_>) -> Evidence {
    let parsed = LinkType::from_dlt(packet.link_type)
        .map(|link| parse(link, packet.frame, packet.original_bytes));
    match parsed {
        Some(Parsed::Ip(ip)) => match udp::payload(packet.frame, &ip).and_then(well_formed) {
            Some(_) => Evidence::Export,
            None => Evidence::Traffic,
        },
        _ => Evidence::Nothing,
    }
}

impl Reading<'_> {
    /// Takes a packet of a capture that is read as exports.
    pub(super) fn decode_packet(&mut self, packet: &CapturedPacket<'_>, ip: &IpPacket) {
        let payload = udp::payload(packet.frame, ip).filter(|bytes| Format::of(bytes).is_some());
        match (payload, ip.transport) {
            (Some(payload), Transport::Udp { source_port, .. }) => {
                let exporter = Exporter { address: ip.source, port: source_port };
                self.take_datagram(exporter, packet.stamp_ns.unwrap_or(0), payload);
            }
            _ => self.exporters.sums.other_packets += 1,
        }
    }

    /// Reads a file of datagrams; returns the stream, to be read to its end.
    pub(super) fn read_datagrams(
        &mut self,
        gauge: &Gauge,
        mut datagrams: Datagrams<Stream>,
    ) -> Result<Window<Stream>> {
        let unreadable = || format!("{}: cannot be read", gauge.name());
        let unknown = Exporter { address: Ipv4Addr::UNSPECIFIED.into(), port: 0 };
        while let Some(datagram) = datagrams.next_datagram().with_context(unreadable)? {
            let (packets, bytes) = self.take_datagram(unknown, 0, datagram);
            self.summary.count(packets, bytes);
            self.report_progress(gauge);
            self.out.check()?;
        }
        self.summary.note_ending(gauge, datagrams.ending());
        self.note_exports(gauge.name());
        Ok(datagrams.into_window())
    }

    /// Reads a table of flow records.
    pub(super) fn read_table(&mut self, gauge: &Gauge, path: &Path) -> Result<()> {
        read_flow_table(path, &mut |record| {
            self.summary.count(record.packets, record.octets);
            self.note_record(&record);
            self.out.give(record);
            self.report_progress(gauge);
            self.out.check()
        })
    }

    /// Reads the records of a part, which were screened before.
    pub(super) fn read_screened(&mut self, gauge: &Gauge, path: &Path) -> Result<()> {
        read_flow_table(path, &mut |record| {
            self.summary.count(record.packets, record.octets);
            self.seen.widen(record.start_ns);
            self.seen.widen(record.end_ns);
            self.out.give_screened(record);
            self.report_progress(gauge);
            self.out.check()
        })
    }

    /// Adds the sums of an input's exports to the summary, and notes how a capture was read.
    pub(super) fn note_choice(&mut self, gauge: &Gauge, read_as: ReadAs) {
        if read_as == ReadAs::Exports {
            let name = gauge.name();
            let sums = &self.exporters.sums;
            let (datagrams, records) = (sums.datagrams, sums.records);
            let formats: Vec<_> = self.exporters.formats.iter().map(|of| of.name()).collect();
            let formats = formats.join(", ");
            let mut note =
                format!("{name}: read as {datagrams} exports ({formats}) of {records} flows");
            if self.read_as.is_none() {
                note += "; --from packets meters the packets that carry them";
            }
            self.summary.notes.push(note);
            self.note_exports(name);
        }
    }

    /// Takes a datagram received on a socket; one that is not an export is counted as such.
    pub(in crate::input) fn take_received(
        &mut self,
        exporter: Exporter,
        received_ns: u64,
        datagram: &[u8],
    ) {
        if Format::of(datagram).is_none() {
            self.exporters.sums.other_packets += 1;
            return;
        }
        let (packets, bytes) = self.take_datagram(exporter, received_ns, datagram);
        self.summary.count(packets, bytes);
    }

    /// Takes a datagram; returns the packets and bytes that its flows count.
    fn take_datagram(
        &mut self,
        exporter: Exporter,
        received_ns: u64,
        datagram: &[u8],
    ) -> (u64, u64) {
        let mut flows = std::mem::take(&mut self.exporters.flows);
        let out = &mut |flow| flows.push(flow);
        match self.exporters.collector.receive(exporter, received_ns, datagram, out) {
            Ok(format) => {
                self.exporters.formats.insert(format);
                self.exporters.sums.datagrams += 1;
            }
            Err(_) => self.exporters.sums.malformed += 1,
        }
        self.exporters.sums.records += flows.len() as u64;
        let (packets, bytes) = self.take_flows(&mut flows);
        self.exporters.flows = flows;
        let sums = &mut self.exporters.sums;
        sums.packets = sums.packets.saturating_add(packets);
        sums.bytes = sums.bytes.saturating_add(bytes);
        (packets, bytes)
    }

    /// Takes flows, and leaves their vector's capacity; returns the packets and bytes that they
    /// count.
    pub(super) fn take_flows(&mut self, flows: &mut Vec<FlowRecord>) -> (u64, u64) {
        let (mut packets, mut bytes) = (0u64, 0u64);
        for flow in flows.iter() {
            packets = packets.saturating_add(flow.packets);
            bytes = bytes.saturating_add(flow.octets);
            self.exporters.sampling_max = self.exporters.sampling_max.max(flow.sampling_interval);
            self.note_record(flow);
        }
        self.out.give_all(flows);
        (packets, bytes)
    }

    /// Counts a record that is about to be passed on.
    fn note_record(&mut self, record: &FlowRecord) {
        if let Some(series) = &mut self.series {
            series.record();
        }
        self.seen.widen(record.start_ns);
        self.seen.widen(record.end_ns);
        // Later fragments have the key with both ports zero; they do not show a connection.
        let whole = record.key.source_port != 0 || record.key.destination_port != 0;
        if let Some(connections) = &mut self.connections
            && record.key.protocol == TCP
            && whole
        {
            let syn = record.has_start() && record.opened != Some(false);
            connections.observe_tcp(&record.key, syn, record.tcp_flags & tcp_flags::FIN != 0);
        }
    }

    pub(in crate::input) fn note_exports(&mut self, name: &str) {
        let now = self.exporters.collector.counts();
        let before = std::mem::replace(&mut self.exporters.before, now);
        let mut sums = std::mem::take(&mut self.exporters.sums);
        let sampling = std::mem::take(&mut self.exporters.sampling_max);
        self.formats.extend(std::mem::take(&mut self.exporters.formats).iter().map(|of| of.name()));
        // Records counted as lost before may have come late.
        sums.lost = now.records_lost.saturating_sub(before.records_lost);
        let since = |of: fn(&Counts) -> u64| of(&now).saturating_sub(of(&before));
        let damaged = |reason| now.skips.of(reason) - before.skips.of(reason);
        let records = damaged(Skip::RecordDamaged);
        let of_records = of_all(records, since(|it| it.records), "records");
        let of_records = format!("{of_records} in exports {LEFT_OUT}");
        let of_sets = format!("# sets or templates in exports {LEFT_OUT}");
        let warnings = [
            (u64::from(sums.datagrams == 0), "holds no export"),
            (sums.lost, "by its numbering, # exported flows never arrived"),
            (since(|it| it.datagrams_lost), "by its numbering, # exports never arrived"),
            (
                since(|it| it.datagrams_repeated),
                "# exports have the number and the time of the one before, as where a port is mirrored \
                 both ways; their flows are doubles, which repair drops unless they are sampled",
            ),
            (
                since(|it| it.samples_dropped),
                "agents of sFlow had no room for # samples, and dropped them",
            ),
            (
                if sampling > 1 { sampling.into() } else { 0 },
                "counts 1 packet in #; packets and bytes are not scaled up",
            ),
            (
                since(|it| it.sampling_late),
                "# flows arrived before their exporter announced its sampling interval",
            ),
            (
                since(|it| it.lists_unknown),
                "# lists in records have no template; TCP's flags may be in them",
            ),
            (
                since(|it| it.times_reversed),
                "# flows end before they begin; they were taken as instants",
            ),
            (
                since(|it| it.times_estimated),
                "# flows are dated by an uptime whose beginning was estimated",
            ),
            (
                since(|it| it.times_absent),
                "# flows have no times; they took those of their export, or their agent's uptime where \
                 a file has no time of that either",
            ),
            (records, &of_records),
            (damaged(Skip::SetDamaged) + damaged(Skip::TemplateDamaged), &of_sets),
            (sums.malformed, "# exports contradict themselves and were left out"),
            (sums.other_packets, "# packets are no exports and were not metered"),
        ];
        for (count, what) in warnings.into_iter().filter(|(count, _)| *count > 0) {
            let what = what.replace('#', &count.to_string());
            self.summary.warnings.push(format!("{name}: {what}"));
        }
        self.summary.exports.get_or_insert_default().add(&sums);
    }

    /// Reports at the end what was skipped.
    pub(super) fn note_skips(&mut self) {
        self.exporters.collector.finish();
        let counts = self.exporters.collector.counts();
        self.summary.exporters = self.exporters.collector.exporters() as u64;
        for (reason, count) in counts.skips.met().chain(self.exporters.archived.skips.met()) {
            *self.summary.skipped.entry(reason.name().to_owned()).or_default() += count;
        }
        self.note_evictions();
        self.note_no_flows(&counts);
        let waiting = counts.skips.of(Skip::NoTemplate);
        if waiting > 0 {
            self.summary.warnings.push(format!(
                "{waiting} sets of records were skipped, for their templates never came: begin the \
                 capture earlier, or let it run until templates are repeated"
            ));
        }
    }

    /// Reports in one line how many valid records of exports are not flows.
    fn note_no_flows(&mut self, counts: &Counts) {
        let met = NO_FLOWS.map(|(reason, what)| (counts.skips.of(reason), what));
        let all: u64 = met.iter().map(|(count, _)| count).sum();
        if all > 0 {
            let met = met.iter().filter(|(count, _)| *count > 0);
            let parts: Vec<String> = met.map(|(count, what)| format!("{count} {what}")).collect();
            self.summary.warnings.push(format!(
                "{} describe no flow and were skipped: {}",
                of_all(all, counts.records, "exported records"),
                parts.join(", ")
            ));
        }
    }

    /// Reports in one line how many templates were forgotten because there were too many, and from
    /// which exporters.
    fn note_evictions(&mut self) {
        let evictions = self.exporters.collector.evictions();
        let Some((worst, lost)) = evictions.worst() else { return };
        let Limits { templates_max, templates_of_address_max, domains_max, .. } = Limits::default();
        let (addresses, has_more) = evictions.addresses();
        let more = if has_more { "more than " } else { "" };
        self.summary.warnings.push(format!(
            "{} templates were forgotten, of {more}{addresses} addresses, {lost} of them of {worst}, because \
             more came than are kept ({templates_max} of {domains_max} domains, {templates_of_address_max} \
             of an address); by {} of them records had been read",
            evictions.templates(),
            evictions.useful()
        ));
    }
}
