//! Inputs become flow records: packets are metered, exports decoded, tables read.
//!
//! All captures of one call pass through one meter in the order given, so a capture that was cut in pieces by
//! its writer gives the same records as the whole. For a model each input is metered by itself, so that parts
//! can be made from some of them, and combined later (`beside`). Only the live flows, the counted connections
//! and the records that wait for their repair are kept in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nilometer_flow::FlowRecord;
use nilometer_flow::collector::Format;
use nilometer_flow::connections::ConnectionCounter;
use nilometer_flow::echoes::Echoes;
use nilometer_flow::handshake::Handshakes;
use nilometer_flow::meter::Meter;
use nilometer_flow::prefetch_queue::PrefetchQueue;
use nilometer_flow::repair::RepairCounts;
use nilometer_wire::brief::Brief;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{IpPacket, Parsed, parse};

use super::capture::{Capture, CapturedPacket};
use super::choice::{Preamble, ReadAs};
use super::expand::files;
use super::open::{self, Input};
use super::pipe::{ONCE, is_pipe};
use super::series::PacketSeries;
use super::sites::Sites;
use super::source::{Gauge, NotRead, Stream};
use super::summary::{FlowSummary, TimeRange, describe_link};
use super::supplement::{ROUND_TRIPS_MAX, Supplement};
use super::window::Window;
use crate::table::flows::read_part_mark;

mod archives;
mod delivery;
mod exports;
mod lines;
mod metering;
mod options;
mod packet_supplement;
mod passed_over;

use delivery::Delivery;
use exports::{Exporters, evidence};
pub use options::FlowOptions;
use passed_over::PassedOver;

/// Progress is reported after this many packets, datagrams or records.
const PROGRESS_EVERY: u64 = 8_192;

/// The most TCP connections that are distinguished, some 50 bytes each.
const CONNECTIONS_MAX: usize = 1 << 23;

/// Openings, and connections with time stamps, watched at once.
const OPENINGS_MAX: usize = 1 << 20;

/// Progress of reading.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The input being read.
    pub name: &'a str,
    /// Bytes of its file read so far.
    pub read_bytes: u64,
    /// Length of its file, where it has one.
    pub total_bytes: Option<u64>,
    /// Packets read so far, over all inputs.
    pub packets: u64,
}

/// Takes every IP packet of captures, with its stamp (ns since 1970), in the order of its input.
pub type Watch<'a> = &'a mut dyn FnMut(u64, &IpPacket);

/// Takes every flow record as it becomes known: without repair in the order in which flows ended.
pub type Sink<'a> = &'a mut dyn FnMut(FlowRecord) -> Result<()>;

/// Reads all `inputs` (files, directories, globs; `-` is standard input), in the order given, and passes every record
/// to `sink`.
///
/// A file found in a directory or by a glob that cannot be read, or not to its end, is skipped, counted, and
/// named in a warning.
///
/// # Errors
/// When a named input cannot be read or is of an unknown kind, when all files were skipped, or when `sink`
/// fails.
pub fn read_flows(
    inputs: &[PathBuf],
    options: &FlowOptions,
    progress: &mut dyn FnMut(&Progress<'_>),
    sink: Sink<'_>,
) -> Result<FlowSummary> {
    read_all(inputs, Reading::new(options, progress, sink))
}

/// Reads captures and passes each packet to `watch`, without metering flows. Computes digests of the inputs if
/// `digests` is set.
///
/// # Errors
/// As [`read_flows`].
pub fn read_packets(
    inputs: &[PathBuf],
    digests: bool,
    progress: &mut dyn FnMut(&Progress<'_>),
    watch: Watch<'_>,
) -> Result<FlowSummary> {
    let options = FlowOptions { counts_connections: false, digests, ..FlowOptions::default() };
    let mut no_records = |_| Ok(());
    let reading = Reading::new(&options, progress, &mut no_records);
    read_all(inputs, Reading { watch: Some(watch), ..reading })
}

/// Reads inputs of either kind: packets go to `watch` and are not metered, flow records to `sink`, repaired.
///
/// # Errors
/// As [`read_flows`].
pub fn read_either(
    inputs: &[PathBuf],
    progress: &mut dyn FnMut(&Progress<'_>),
    watch: Watch<'_>,
    sink: Sink<'_>,
) -> Result<FlowSummary> {
    let plain = FlowOptions { counts_connections: false, digests: false, ..FlowOptions::default() };
    let reading = Reading::new(&FlowOptions { repairs: true, ..plain }, progress, sink);
    read_all(inputs, Reading { watch: Some(watch), ..reading })
}

fn read_all(inputs: &[PathBuf], mut reading: Reading<'_>) -> Result<FlowSummary> {
    if inputs.is_empty() {
        bail!("no input is named");
    }
    let files = files(inputs)?;
    let mut passed_over = PassedOver::default();
    for file in &files {
        let before = reading.taken();
        match reading.read(&file.path) {
            Err(error) if file.is_found && !reading.out.is_over() => {
                reading.leave(file, &error, before, &mut passed_over)?;
            }
            read => read?,
        }
    }
    passed_over.tell(files.len(), &mut reading.summary)?;
    reading.finish()
}

/// The state of reading inputs.
pub(super) struct Reading<'a> {
    pub(super) read_as: Option<ReadAs>,
    digests: bool,
    refuses_piped_packets: bool,
    /// Packets on their way to the meter.
    queue: PrefetchQueue,
    meter: Meter,
    /// `None` if connections are not counted.
    pub(super) connections: Option<ConnectionCounter>,
    pub(super) series: Option<PacketSeries>,
    handshakes: Option<Handshakes>,
    echoes: Option<Echoes>,
    watch: Option<Watch<'a>>,
    /// Information from parts.
    parts: Supplement,
    pub(super) out: Delivery<'a>,
    pub(super) summary: FlowSummary,
    pub(super) seen: TimeRange,
    pub(super) other_links: BTreeMap<u32, u64>,
    pub(super) exporters: Exporters,
    /// Exports among the packets of the current input.
    exports_beside: BTreeMap<Format, u64>,
    sites: Sites,
    /// The formats as which inputs were read.
    pub(super) formats: BTreeSet<&'static str>,
    progress: &'a mut dyn FnMut(&Progress<'_>),
    until_progress: u64,
}

impl<'a> Reading<'a> {
    pub(super) fn new(
        options: &FlowOptions,
        progress: &'a mut dyn FnMut(&Progress<'_>),
        sink: Sink<'a>,
    ) -> Reading<'a> {
        Reading {
            read_as: options.read_as,
            digests: options.digests,
            refuses_piped_packets: options.refuses_piped_packets,
            queue: PrefetchQueue::default(),
            meter: Meter::new(options.meter),
            connections: options
                .counts_connections
                .then(|| ConnectionCounter::new(CONNECTIONS_MAX)),
            series: options.for_model.then(PacketSeries::default),
            handshakes: options.for_model.then(|| Handshakes::new(OPENINGS_MAX, ROUND_TRIPS_MAX)),
            echoes: options.for_model.then(|| Echoes::new(OPENINGS_MAX, ROUND_TRIPS_MAX)),
            watch: None,
            parts: Supplement::default(),
            out: Delivery::new(sink, options.repairs, options.for_model),
            summary: FlowSummary::default(),
            seen: TimeRange::default(),
            other_links: BTreeMap::new(),
            exporters: Exporters::default(),
            exports_beside: BTreeMap::new(),
            sites: Sites::default(),
            formats: BTreeSet::new(),
            progress,
            until_progress: PROGRESS_EVERY,
        }
    }

    fn read(&mut self, path: &Path) -> Result<()> {
        let (gauge, input) = open::open(path, self.digests)?;
        let mut rest = match input {
            Input::Capture(capture) => self.read_capture(&gauge, capture)?,
            Input::Exports(datagrams) => self.read_datagrams(&gauge, datagrams)?,
            Input::Archive(archive, window) => self.read_archive(&gauge, archive, window)?,
            Input::Text(layout, window) => self.read_text(&gauge, layout, window)?,
            Input::FlowTable(path, window) => {
                self.formats.insert("nilometer-flows/1");
                if self.series.is_some() && self.read_part(&gauge, &path)? {
                    self.span_ends(gauge.name());
                    return Ok(());
                }
                self.read_table(&gauge, &path)?;
                window
            }
        };
        rest.skip(u64::MAX).with_context(|| format!("{}: cannot be read", gauge.name()))?;
        self.summary.inputs.push(gauge.identity());
        self.span_ends(gauge.name());
        self.input_ends()
    }

    /// Records the time span of an input's traffic, at the end of the input.
    pub(super) fn span_ends(&mut self, name: &str) {
        let span = self.seen.input_ends(name);
        self.sites.input_ends(span.as_ref());
        self.summary.spans.extend(span);
    }

    /// Reads a table of flow records as a part, if it is one.
    fn read_part(&mut self, gauge: &Gauge, path: &Path) -> Result<bool> {
        let Some(mark) = read_part_mark(path)? else { return Ok(false) };
        self.read_screened(gauge, path)?;
        self.parts.merge(mark.beside());
        self.summary.inputs.extend(mark.inputs);
        self.summary.warnings.extend(mark.warnings);
        Ok(true)
    }

    /// Ends the input: flows and round trips for a model do not cross inputs.
    pub(super) fn input_ends(&mut self) -> Result<()> {
        if let (Some(handshakes), Some(echoes)) = (&mut self.handshakes, &mut self.echoes) {
            handshakes.input_ends();
            echoes.input_ends();
            self.flush();
            self.out.input_ends();
        }
        self.out.check()
    }

    /// Meters all queued packets, and ends every flow.
    fn flush(&mut self) {
        self.meter_waiting();
        let out = &mut self.out;
        self.meter.flush(&mut |record| out.give(record));
    }

    pub(super) fn finish(mut self) -> Result<FlowSummary> {
        self.flush();
        self.out.check()?;
        self.note_skips();
        let counts = self.meter.counts();
        let connections = self.connections.map(|mut all| all.counts()).unwrap_or_default();
        let round_trips = self.handshakes.zip(self.echoes);
        let beside = beside(self.series, round_trips, self.out.screened(), self.parts);
        let mut summary = self.summary;
        self.out.finish(&mut summary)?;
        summary.tcp_connections = connections.tcp_connections;
        summary.tcp_connections_with_syn = connections.with_syn;
        summary.tcp_connections_with_syn_and_fin = connections.with_syn_and_fin;
        summary.evicted = counts.evicted;
        summary.format = self.formats.into_iter().collect::<Vec<_>>().join(", ");
        summary.seconds = self.seen.seconds();
        summary.note_beside(beside);
        summary.warnings.extend(self.sites.warning());
        if counts.evicted > 0 {
            summary.warnings.push(format!(
                "{} flows ended early because the flow cache was full; raise --flows-max",
                counts.evicted
            ));
        }
        if counts.clock_set_back > 0 {
            summary.warnings.push(format!(
                "the stamps of packets went back by more than flows wait for a packet, {} times; flows were \
                 ended there: give captures in the order of their times",
                counts.clock_set_back
            ));
        }
        if connections.lower_bound {
            summary.warnings.push(format!(
                "more than {CONNECTIONS_MAX} TCP connections: there are more than are counted"
            ));
        }
        Ok(summary)
    }

    fn read_capture(
        &mut self,
        gauge: &Gauge,
        mut capture: Capture<Stream>,
    ) -> Result<Window<Stream>> {
        refuse_unknown_links(gauge, &capture)?;
        self.other_links.clear();
        let before = self.summary.before();
        let mut read_as = self.read_as;
        let mut preamble = Preamble::default();
        let unreadable = || format!("{}: cannot be read", gauge.name());
        while let Some(packet) = capture.next_packet().with_context(unreadable)? {
            self.report_progress(gauge);
            match read_as {
                Some(read_as) => self.take(read_as, &packet)?,
                None => {
                    read_as = preamble.weigh(&packet, evidence(&packet));
                    if let Some(read_as) = read_as {
                        self.hold_to_files(gauge, read_as)?;
                        self.take_held(read_as, &std::mem::take(&mut preamble))?;
                    }
                }
            }
            if let Some(read_as) = read_as {
                capture.take_read(|packet| {
                    self.report_progress(gauge);
                    self.take_inlined(read_as, packet)
                })?;
            }
        }
        let read_as = match read_as {
            Some(read_as) => read_as,
            None => {
                let read_as = preamble.verdict();
                self.hold_to_files(gauge, read_as)?;
                self.take_held(read_as, &preamble)?;
                read_as
            }
        };
        // (The link types of a pcapng are known only now.)
        refuse_unknown_links(gauge, &capture).inspect_err(|_| self.summary.go_back_to(&before))?;
        if read_as == ReadAs::Packets {
            self.formats.insert(capture.container());
        }
        self.note_choice(gauge, read_as);
        self.note_exports_beside(gauge.name());
        self.summary.note_ending(gauge, capture.ending());
        self.summary.note_packets(gauge.name(), &before, &self.other_links);
        Ok(capture.into_window())
    }

    /// Packets that will be read again must come from a file.
    fn hold_to_files(&self, gauge: &Gauge, read_as: ReadAs) -> Result<()> {
        let is_once = read_as == ReadAs::Packets && is_pipe(Path::new(gauge.name()));
        if self.refuses_piped_packets && is_once {
            bail!("{}: {ONCE}, or add --fit, which reads its input once", gauge.name());
        }
        Ok(())
    }

    fn take_held(&mut self, read_as: ReadAs, held: &Preamble) -> Result<()> {
        held.packets().try_for_each(|packet| self.take(read_as, &packet))
    }

    /// Takes one packet of a capture, of any kind.
    pub(super) fn take(&mut self, read_as: ReadAs, packet: &CapturedPacket<'_>) -> Result<()> {
        self.take_inlined(read_as, packet)
    }

    /// Usual packets that are only metered are read in brief.
    #[inline(always)]
    fn take_inlined(&mut self, read_as: ReadAs, packet: &CapturedPacket<'_>) -> Result<()> {
        let is_metered_only =
            read_as == ReadAs::Packets && self.handshakes.is_none() && self.watch.is_none();
        let brief = match LinkType::from_dlt(packet.link_type) {
            Some(link) if is_metered_only => {
                Brief::of_usual(link, packet.frame, packet.original_bytes)
            }
            _ => None,
        };
        match brief {
            Some(brief) => {
                self.note_export_in_brief(packet, &brief);
                self.summary.packets = self.summary.packets.saturating_add(1);
                self.summary.bytes = self.summary.bytes.saturating_add(brief.ip_bytes.into());
                self.meter_brief(packet.stamp_ns, &brief);
            }
            None => self.take_any(read_as, packet),
        }
        self.out.check()
    }

    #[inline(never)]
    fn take_any(&mut self, read_as: ReadAs, packet: &CapturedPacket<'_>) {
        self.summary.packets = self.summary.packets.saturating_add(1);
        let Some(link) = LinkType::from_dlt(packet.link_type) else {
            self.summary.other_link += 1;
            *self.other_links.entry(packet.link_type).or_default() += 1;
            return;
        };
        match parse(link, packet.frame, packet.original_bytes) {
            Parsed::Ip(ip) => {
                self.summary.bytes = self.summary.bytes.saturating_add(ip.ip_bytes.into());
                match read_as {
                    ReadAs::Packets => {
                        self.note_export(packet, &ip);
                        self.meter_packet(packet.stamp_ns, &ip);
                    }
                    ReadAs::Exports => self.decode_packet(packet, &ip),
                }
            }
            Parsed::NotIp(_) => self.summary.not_ip += 1,
            Parsed::Cut => self.summary.snapped += 1,
            Parsed::Malformed(why) => {
                self.summary.malformed += 1;
                *self.summary.malformed_reasons.entry(why.to_string()).or_default() += 1;
            }
        }
    }

    pub(super) fn report_progress(&mut self, gauge: &Gauge) {
        self.until_progress -= 1;
        if self.until_progress == 0 {
            self.until_progress = PROGRESS_EVERY;
            (self.progress)(&Progress {
                name: gauge.name(),
                read_bytes: gauge.read_bytes(),
                total_bytes: gauge.total_bytes(),
                packets: self.summary.packets,
            });
        }
    }
}

/// The information besides the records, if it is for a model.
fn beside(
    series: Option<PacketSeries>,
    round_trips: Option<(Handshakes, Echoes)>,
    screened: Option<&RepairCounts>,
    parts: Supplement,
) -> Option<Supplement> {
    let (handshakes, echoes) = round_trips?;
    let (openings, echoes) = (handshakes.finish().into(), echoes.finish().into());
    let mut beside = Supplement { series: series?, openings, echoes, ..Supplement::default() };
    beside.note_screened(screened?);
    beside.merge(parts);
    Some(beside)
}

/// Refuses a capture if none of its declared link types is supported.
fn refuse_unknown_links(gauge: &Gauge, capture: &Capture<Stream>) -> Result<()> {
    let link_types = capture.link_types();
    let known = |number: &u32| LinkType::from_dlt(*number).is_some();
    if link_types.is_empty() || link_types.iter().any(known) {
        return Ok(());
    }
    let described: Vec<String> = link_types.iter().map(|number| describe_link(*number)).collect();
    Err(NotRead(format!(
        "{}: this {} holds {}, which is not read here; Ethernet, Linux cooked, raw IP, loopback, \
         PPP and Cisco HDLC are",
        gauge.name(),
        capture.container(),
        described.join(" and ")
    ))
    .into())
}
