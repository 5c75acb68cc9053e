//! Flow exports among the packets of a metered capture: counted, and reported in one line.
//!
//! A capture of nothing but exports is decoded (`choice`). In a capture with other packets, exports are
//! ordinary traffic, and without this line the flows that they describe would be missed silently.

use nilometer_flow::collector::Format;
use nilometer_flow::framing::well_formed;
use nilometer_wire::brief::{Body, Brief};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{IpPacket, Parsed, Transport, parse};

use super::super::capture::CapturedPacket;
use super::super::udp;
use super::Reading;

impl Reading<'_> {
    /// Counts a metered packet if it is an export.
    #[inline(always)]
    pub(super) fn note_export(&mut self, packet: &CapturedPacket<'_>, ip: &IpPacket) {
        if matches!(ip.transport, Transport::Udp { .. })
            && let Some(format) = udp::payload(packet.frame, ip).and_then(well_formed)
        {
            *self.exports_beside.entry(format).or_default() += 1;
        }
    }

    /// As [`Reading::note_export`], for a packet in brief, whose payload ends with its frame.
    #[inline(always)]
    pub(super) fn note_export_in_brief(&mut self, packet: &CapturedPacket<'_>, brief: &Brief) {
        let payload = packet.frame.len().checked_sub(brief.payload_bytes as usize);
        if brief.body == Body::Datagram
            && let Some(payload) = payload.and_then(|at| packet.frame.get(at..))
            && Format::of(payload).is_some()
        {
            self.note_doubtful_export(packet);
        }
    }

    #[inline(never)]
    fn note_doubtful_export(&mut self, packet: &CapturedPacket<'_>) {
        let Some(link) = LinkType::from_dlt(packet.link_type) else { return };
        if let Parsed::Ip(ip) = parse(link, packet.frame, packet.original_bytes) {
            self.note_export(packet, &ip);
        }
    }

    /// Reports the exports among the packets of an input.
    pub(super) fn note_exports_beside(&mut self, name: &str) {
        let found = std::mem::take(&mut self.exports_beside);
        let count: u64 = found.values().sum();
        if count == 0 {
            return;
        }
        self.summary.exports_beside += count;
        let formats: Vec<&str> = found.keys().map(|format| format.name()).collect();
        self.summary.warnings.push(format!(
            "{name}: {count} of its packets are flow exports ({}), and were read as ordinary packets. For the \
             flows in them: `nilometer flows {name} --from exports -o records.parquet`, and \
             `nilometer lab run records.parquet`",
            formats.join(", ")
        ));
    }
}
