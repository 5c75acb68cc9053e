//! The summary of reading inputs: counts, and warnings about them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::capture::Ending;
use super::source::{Gauge, InputDigest};
use super::supplement::Supplement;

/// The counts over all inputs.
///
/// `packets == IP packets + not_ip + malformed + snapped + other_link`: every packet of the files is
/// counted exactly once, whatever its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowSummary {
    /// Every packet of the captures; for flow records, the packets that they count.
    pub packets: u64,
    /// Bytes of the IP packets, from the IP header on, at original length; for flow records, the bytes
    /// that they count.
    pub bytes: u64,
    /// Packets whose headers contradict themselves or end too early.
    pub malformed: u64,
    /// What was wrong with them: reason and count.
    pub malformed_reasons: BTreeMap<String, u64>,
    /// Packets that are not IP: ARP, LLDP and the like.
    pub not_ip: u64,
    /// Packets cut by the snap length before their IP addresses.
    pub snapped: u64,
    /// Packets of interfaces with an unsupported link type.
    pub other_link: u64,
    /// Packets without a stamp, which took that of the packet before them.
    pub unstamped: u64,
    /// Flow records made or read.
    pub flow_records: u64,
    /// Flows after repair; `None` if repair was not requested.
    pub flows_after_repair: Option<u64>,
    /// Packets of the flows that were passed on, after repair if there was one.
    pub flow_packets: u64,
    /// Their bytes.
    pub flow_bytes: u64,
    /// What was repaired, by reason.
    pub repairs: BTreeMap<String, u64>,
    /// Distinct TCP 4-tuples, both directions together, by the innermost IP header.
    pub tcp_connections: u64,
    /// Those of them with a SYN without ACK.
    pub tcp_connections_with_syn: u64,
    /// Those of them that had a SYN without ACK and a FIN.
    pub tcp_connections_with_syn_and_fin: u64,
    /// Flows that ended early because the flow cache was full.
    pub evicted: u64,
    /// Inputs whose last record was cut.
    pub cut_records: u64,
    /// Damaged inputs, which were read up to the damage, or without the damaged parts.
    pub damaged: u64,
    /// From the earliest to the latest stamp of packets that were metered, or from the earliest
    /// start to the latest end of records that were read; seconds.
    pub seconds: f64,
    /// The formats of the inputs: containers of packets that were metered, and formats of flow records;
    /// joined by commas.
    pub format: String,
    /// Number of exporters of the records; for NetFlow v9, IPFIX and sFlow, of their domains.
    pub exporters: u64,
    /// What was skipped in exports and files of them, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// The counts of decoded export datagrams, if there were any.
    pub exports: Option<ExportSummary>,
    /// Exports among metered packets, which count as ordinary packets.
    #[serde(skip)]
    pub exports_beside: u64,
    /// The counts of a socket or an interface, if records were made live.
    pub live: Option<LiveSummary>,
    /// Information for a model besides the records, if that was requested.
    #[serde(skip)]
    pub beside: Option<Supplement>,
    /// Name and length of every input, and its SHA-256 if that was requested.
    pub inputs: Vec<InputDigest>,
    /// The time span of each input that holds traffic, in the order read.
    #[serde(skip)]
    pub spans: Vec<InputSpan>,
    /// How inputs were read, where there was a choice.
    pub notes: Vec<String>,
    /// What makes a figure above suspect, in plain words.
    pub warnings: Vec<String>,
}

/// The counts of a live reading, and its losses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveSummary {
    /// `udp ADDRESS:PORT`, or `interface NAME`.
    pub source: String,
    /// How long it lasted, seconds.
    pub seconds: f64,
    /// Datagrams received, or frames seen.
    pub received: u64,
    /// Their bytes: payload of datagrams, frames at original length.
    pub received_bytes: u64,
    /// Datagrams or frames that the kernel dropped because they were not read fast enough.
    pub kernel_dropped: u64,
    /// What ended it: `signal`, `seconds` or `count`.
    pub stopped_by: &'static str,
}

/// The counts of decoded exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportSummary {
    /// Datagrams decoded.
    pub datagrams: u64,
    /// Records in them.
    pub records: u64,
    /// Packets that these records count.
    pub packets: u64,
    /// Bytes that these records count.
    pub bytes: u64,
    /// Records that the exporters numbered and that did not arrive.
    pub lost: u64,
    /// Other packets among the exports, which were not metered.
    pub other_packets: u64,
    /// Datagrams that begin like exports but contradict themselves.
    pub malformed: u64,
}

impl ExportSummary {
    /// Adds the counts of another input.
    pub fn add(&mut self, other: &ExportSummary) {
        self.datagrams += other.datagrams;
        self.records += other.records;
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.lost += other.lost;
        self.other_packets += other.other_packets;
        self.malformed += other.malformed;
    }
}

/// The span of time seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeRange {
    /// The span of the current input.
    bounds: Option<(u64, u64)>,
    /// The span of the inputs before it.
    before: Option<(u64, u64)>,
}

/// The time span of one input's traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpan {
    /// The input, as it was given.
    pub name: String,
    /// The first stamp of its packets, or start of its records; ns since 1970.
    pub first_ns: u64,
    /// The last stamp, or end.
    pub last_ns: u64,
}

impl TimeRange {
    /// Widens the span to `stamp_ns`.
    pub fn widen(&mut self, stamp_ns: u64) {
        let (first, last) = self.bounds.unwrap_or((stamp_ns, stamp_ns));
        self.bounds = Some((first.min(stamp_ns), last.max(stamp_ns)));
    }

    /// Length of the span, seconds; zero when nothing was seen.
    pub fn seconds(&self) -> f64 {
        self.all().map_or(0.0, |(first, last)| (last - first) as f64 / 1e9)
    }

    /// The latest stamp, if any was seen.
    pub fn last_ns(&self) -> Option<u64> {
        self.all().map(|(_, last)| last)
    }

    /// Ends the input; returns the span of this input alone, if it held anything.
    pub fn input_ends(&mut self, name: &str) -> Option<InputSpan> {
        self.before = self.all();
        let (first_ns, last_ns) = self.bounds.take()?;
        Some(InputSpan { name: name.to_owned(), first_ns, last_ns })
    }

    /// The span of all inputs.
    fn all(&self) -> Option<(u64, u64)> {
        match (self.before, self.bounds) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (before, bounds) => before.or(bounds),
        }
    }
}

/// Counts before an input, for comparison with those after it.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    packets: u64,
    bytes: u64,
    snapped: u64,
    malformed: u64,
    unstamped: u64,
    other_link: u64,
}

impl FlowSummary {
    /// Counts packets and their bytes, saturating: records may claim anything.
    pub fn count(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The present counts, before another input.
    pub fn before(&self) -> Before {
        Before {
            packets: self.packets,
            bytes: self.bytes,
            snapped: self.snapped,
            malformed: self.malformed,
            unstamped: self.unstamped,
            other_link: self.other_link,
        }
    }

    /// Restores the counts, for an input of which no packet could be read.
    pub fn go_back_to(&mut self, before: &Before) {
        (self.packets, self.other_link) = (before.packets, before.other_link);
    }

    /// Takes the information besides the records.
    pub fn note_beside(&mut self, beside: Option<Supplement>) {
        if let Some(Supplement { openings, .. }) = &beside
            && openings.beyond > 0
        {
            let (kept, beyond) = (openings.trips.len(), openings.beyond);
            self.warnings.push(format!(
                "round trips are those of the first {kept} openings; {beyond} came after"
            ));
        }
        self.beside = beside;
    }

    /// Warns of a faulty end of an input, with how much of it was lost if that is known.
    pub fn note_ending(&mut self, gauge: &Gauge, ending: &Ending) {
        let name = gauge.name();
        let lost = |offset: u64| match (gauge.packing(), gauge.total_bytes()) {
            (None, Some(total)) if offset < total => {
                format!(", {}", of_all(total - offset, total, "bytes"))
            }
            _ => String::new(),
        };
        match ending {
            Ending::Whole => {}
            Ending::Cut { offset } => {
                self.cut_records += 1;
                self.warnings.push(format!(
                    "{name}: its last record, at byte {offset}, is cut{}; all before it was read",
                    lost(*offset)
                ));
            }
            Ending::Damaged { offset, what } => {
                self.damaged += 1;
                self.warnings.push(format!(
                    "{name}: is damaged at byte {offset}: {what}; nothing from there on was read{}",
                    lost(*offset)
                ));
            }
        }
        if let (Some(packing), Some(what)) = (gauge.packing(), gauge.packing_damage()) {
            self.damaged += u64::from(*ending == Ending::Whole);
            self.warnings.push(format!(
                "{name}: its {} stream is damaged: {what}; what could be unpacked was read",
                packing.name()
            ));
        }
    }

    /// Warns of packets of a capture that could not be metered.
    pub fn note_packets(&mut self, name: &str, before: &Before, others: &BTreeMap<u32, u64>) {
        let packets = self.packets - before.packets;
        let mut say = |count: u64, what: &str| {
            if count > 0 {
                let of = format!("{count} of {packets} packets");
                self.warnings.push(format!("{name}: {of} {what}"));
            }
        };
        for (link_type, count) in others {
            let link = describe_link(*link_type);
            say(*count, &format!("are of {link}, which is not read here; they were passed over"));
        }
        say(
            self.snapped - before.snapped,
            "were cut before their IP addresses; raise the snap length",
        );
        say(
            self.malformed - before.malformed,
            "have headers that contradict themselves or end too early, and were left out",
        );
        say(
            self.unstamped - before.unstamped,
            "carry no stamp and took that of the packet before them",
        );
        if packets == 0 {
            self.warnings.push(format!("{name}: holds no packet"));
        } else if self.bytes == before.bytes {
            self.warnings.push(format!("{name}: none of its {packets} packets is IP"));
        }
    }
}

/// "`some` of `all`", with their share.
pub(super) fn of_all(some: u64, all: u64, what: &str) -> String {
    let share = 100.0 * some as f64 / all.max(1) as f64;
    format!("{some} of {all} {what} ({share:.1} %)")
}

/// A LINKTYPE number, with its name if it is a common one.
pub fn describe_link(link_type: u32) -> String {
    const NAMES: [(u32, &str); 14] = [
        (105, "802.11"),
        (119, "802.11 with Prism header"),
        (127, "802.11 with radiotap header"),
        (163, "802.11 with AVS header"),
        (187, "Bluetooth HCI H4"),
        (189, "USB, Linux"),
        (192, "PPI"),
        (195, "802.15.4"),
        (197, "ERF"),
        (220, "USB, Linux, padded"),
        (227, "SocketCAN"),
        (239, "NFLOG"),
        (249, "USBPcap"),
        (253, "netlink"),
    ];
    match NAMES.iter().find(|(number, _)| *number == link_type) {
        Some((_, name)) => format!("link type {link_type} ({name})"),
        None => format!("link type {link_type}"),
    }
}
