//! What reading inputs came to: the counts, and the warnings that go with them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::beside::Beside;
use super::capture::Ending;
use super::source::{Gauge, InputDigest};

/// What was read and what became of it, over all inputs.
///
/// `packets == IP packets + not_ip + malformed + snapped + other_link`: every packet of the files is
/// counted once, whatever it turned out to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowSummary {
    /// Every packet of the captures. Where an input is flow records, the packets they count.
    pub packets: u64,
    /// Bytes of the IP packets, from the IP header on, at original length; likewise for records.
    pub bytes: u64,
    /// Packets whose headers contradict themselves or end too early.
    pub malformed: u64,
    /// What was wrong with them: reason and count.
    pub malformed_reasons: BTreeMap<String, u64>,
    /// Packets that are not IP: ARP, LLDP and the like.
    pub not_ip: u64,
    /// Packets cut by the snap length before their IP addresses.
    pub snapped: u64,
    /// Packets of interfaces whose link type is not read here.
    pub other_link: u64,
    /// Packets without a stamp, which took that of the packet before them.
    pub unstamped: u64,
    /// Flow records made or read.
    pub flow_records: u64,
    /// Flows after repair; none where it was not asked for.
    pub flows_after_repair: Option<u64>,
    /// Packets of the flows that were given on: after repair, where there was one.
    pub flow_packets: u64,
    /// Their bytes.
    pub flow_bytes: u64,
    /// What was repaired, by reason.
    pub repairs: BTreeMap<String, u64>,
    /// Distinct TCP 4-tuples, both directions together, by the innermost IP header.
    pub tcp_connections: u64,
    /// Of these, those with a SYN without ACK.
    pub tcp_connections_with_syn: u64,
    /// Of these, those that had a FIN as well.
    pub tcp_connections_with_syn_and_fin: u64,
    /// Flows that ended early because the flow cache was full.
    pub evicted: u64,
    /// Inputs whose last record was cut.
    pub cut_records: u64,
    /// Inputs that were damaged somewhere: read up to there, or without what was damaged.
    pub damaged: u64,
    /// From the earliest to the latest stamp of packets that were metered, or from the earliest
    /// start to the latest end of records that were read; seconds.
    pub seconds: f64,
    /// What the inputs were read as: containers of packets that were metered, and formats of flow
    /// records; joined by commas.
    pub format: String,
    /// Who exported the records: exporters, and for NetFlow v9, IPFIX and sFlow their domains.
    pub exporters: u64,
    /// What was passed over in exports and files of them, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// What export datagrams came to, where an input held any that were decoded.
    pub exports: Option<ExportSummary>,
    /// Exports among packets that were metered, which are packets like any other there.
    #[serde(skip)]
    pub exports_beside: u64,
    /// What a socket or an interface was asked for and gave, where records were made live.
    pub live: Option<LiveSummary>,
    /// What a model wants to know beside the records, where that was asked for.
    #[serde(skip)]
    pub beside: Option<Beside>,
    /// Name and length of every input, and its SHA-256 where that was asked for.
    pub inputs: Vec<InputDigest>,
    /// When the traffic of each input was, of those that hold any, in the order read.
    #[serde(skip)]
    pub spans: Vec<InputSpan>,
    /// How an input was read, where there was a choice.
    pub notes: Vec<String>,
    /// What makes a figure above suspect, in plain words.
    pub warnings: Vec<String>,
}

/// What came while records were made live, and what of it was lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveSummary {
    /// `udp ADDRESS:PORT`, or `interface NAME`.
    pub source: String,
    /// How long it was heard or watched, seconds.
    pub seconds: f64,
    /// Datagrams heard, or frames seen.
    pub received: u64,
    /// Their bytes: payload of datagrams, frames at original length.
    pub received_bytes: u64,
    /// Datagrams or frames that the kernel dropped because they were not fetched soon enough.
    pub kernel_dropped: u64,
    /// What ended it: `signal`, `seconds` or `count`.
    pub stopped_by: &'static str,
}

/// What decoded exports came to.
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
    /// Packets beside the exports, which were not metered.
    pub other_packets: u64,
    /// Datagrams that begin like exports and contradict themselves.
    pub malformed: u64,
}

impl ExportSummary {
    /// Adds what another input came to.
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
    /// Of the input that is being read.
    bounds: Option<(u64, u64)>,
    /// Of those before it.
    before: Option<(u64, u64)>,
}

/// When the traffic of one input was.
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

    /// The input ends, and another may follow: gives the span of this one alone, if it held anything.
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

/// The counts that are compared before and after an input.
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
    /// Counts packets and their bytes, as far as 64 bits go: records may claim anything.
    pub fn count(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The counts as they stand, before another input.
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

    /// Counts no packet of an input of which none could be read.
    pub fn go_back_to(&mut self, before: &Before) {
        (self.packets, self.other_link) = (before.packets, before.other_link);
    }

    /// Takes what there is beside the records.
    pub fn note_beside(&mut self, beside: Option<Beside>) {
        if let Some(Beside { openings, .. }) = &beside
            && openings.beyond > 0
        {
            let (kept, beyond) = (openings.trips.len(), openings.beyond);
            self.warnings.push(format!(
                "round trips are those of the first {kept} openings; {beyond} came after"
            ));
        }
        self.beside = beside;
    }

    /// Says what was wrong with the end of an input, and how much of it was lost, where that can be known.
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

    /// Says what of a capture's packets could not be metered.
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

/// So many of so many, with their share.
pub(super) fn of_all(some: u64, all: u64, what: &str) -> String {
    let share = 100.0 * some as f64 / all.max(1) as f64;
    format!("{some} of {all} {what} ({share:.1} %)")
}

/// A LINKTYPE number, with its name where people are likely to meet it.
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
