//! Packets on their way to the meter, or to a watcher in its place.

use nilometer_flow::prefetch_queue::Queued;
use nilometer_wire::brief::Brief;
use nilometer_wire::packet::IpPacket;

use super::Reading;

impl Reading<'_> {
    #[inline(never)]
    pub(super) fn meter_packet(&mut self, stamp_ns: Option<u64>, ip: &IpPacket) {
        if self.watch.is_some() || self.handshakes.is_some() {
            self.sites.note(ip.source);
            self.sites.note(ip.destination);
        }
        if self.watch.is_some() {
            let stamp_ns = self.stamped(stamp_ns);
            return self.watch.iter_mut().for_each(|watch| watch(stamp_ns, ip));
        }
        let stamp_ns = self.meter_brief(stamp_ns, &Brief::of(ip));
        if let (Some(handshakes), Some(echoes)) = (&mut self.handshakes, &mut self.echoes) {
            handshakes.observe(stamp_ns, ip);
            echoes.observe(stamp_ns, ip);
        }
    }

    /// The stamp of a packet, or that of the latest before it where it has none.
    #[inline(always)]
    fn stamped(&mut self, stamp_ns: Option<u64>) -> u64 {
        if let Some(stamp_ns) = stamp_ns {
            self.seen.widen(stamp_ns);
        } else {
            self.summary.unstamped += 1;
        }
        stamp_ns.or_else(|| self.seen.last_ns()).unwrap_or(0)
    }

    /// Meters a packet; returns the stamp that it was given.
    #[inline(always)]
    pub(super) fn meter_brief(&mut self, stamp_ns: Option<u64>, packet: &Brief) -> u64 {
        if let Some(series) = &mut self.series {
            series.packet(stamp_ns, packet.ip_bytes);
        }
        let stamp_ns = self.stamped(stamp_ns);
        if self.queue.is_used(&self.meter) {
            self.meter_carried(stamp_ns, packet);
        } else {
            let out = &mut self.out;
            let is_news =
                self.meter.observe_brief(stamp_ns, packet, &mut |record| out.give(record));
            self.note_connection(is_news, packet);
        }
        stamp_ns
    }

    #[inline(never)]
    fn meter_carried(&mut self, stamp_ns: u64, packet: &Brief) {
        if let Some(queued) = self.queue.push(&self.meter, stamp_ns, packet) {
            self.meter_queued(&queued);
        }
    }

    #[inline(always)]
    fn meter_queued(&mut self, queued: &Queued) {
        let out = &mut self.out;
        let is_news = self.meter.observe_queued(queued, &mut |record| out.give(record));
        self.note_connection(is_news, &queued.packet);
    }

    #[inline(always)]
    fn note_connection(&mut self, is_news: bool, packet: &Brief) {
        if is_news && let Some(connections) = &mut self.connections {
            connections.observe_brief(packet);
        }
    }

    /// Meters all queued packets, and passes on the waiting records.
    pub(in crate::input) fn meter_waiting(&mut self) {
        while let Some(queued) = self.queue.pop() {
            self.meter_queued(&queued);
        }
        self.out.hand_on();
    }
}
