//! The meter: turns packets into one-way flow records, as a NetFlow cache does (Harpoon, section 3).
//!
//! A record ends for one of five reasons. A FIN or RST ends it, but only `linger_ns` later, so that
//! the acknowledgements still under way stay in it and do not become a flow of their own (an FTP
//! transaction is four records, Figure 2, not six); a SYN of another connection ends the wait. No
//! packet for the inactive timeout ends it; so does the active timeout, at the first packet after
//! it. A full cache ends the flow that was seen least recently. And `flush` ends the rest.
//!
//! The clock is the greatest stamp seen: captures are merged, and clocks are set back, so a stamp may be older
//! than the one before it. It then widens its record (start is the smallest stamp, end the greatest), but does
//! not set the clock back. Idleness is measured by the clock, the active timeout by the stamps of a record.
//! Records leave in the order in which they end, which depends only on the packets.
//!
//! Stamps may lie farther back than flows wait for their next packet. Either time was set back: files were
//! given out of order, a clock was set, or an earlier stamp was wrong. No timer would then expire until the
//! old time comes again, so all flows must end and the clock must begin anew. Or a second clock runs beside
//! the first, as where one interface is stamped in UTC and another in TAI, 37 s ahead; then each change from
//! one clock to the other would end all flows. In the first case stamps of the old time never return, in the
//! second they do. So nothing ends until several such stamps in a row have advanced by more than flows wait:
//! all flows of the old time are then over. Until then they count as late stamps, but do not stretch a record
//! that begins later than they do by more than flows wait: that record ends, and a new one takes the packet,
//! so that no record reaches from one file into the next. A flow on both clocks is split by this once, not at
//! each packet, because the new record begins on the clock that is behind.

use nilometer_wire::brief::{Brief, Tuple};
use nilometer_wire::packet::IpPacket;

use crate::cache::{Cache, Order, Slot};
use crate::live::{Live, ends_flow, key_of_tuple};
use crate::queued::{Place, Queued};
use crate::record::{EndReason, FlowRecord};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// How many stamps in a row, far behind the clock, show that time was set back, if they advance for long
/// enough. A single one may be wrong, and two that lie far apart may be from two clocks. A larger number would
/// delay the decision in files of few packets.
const STAMPS_OF_ANOTHER_TIME: u64 = 3;

/// When flows end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// A flow that lasts this long is reported, and continues in another record; ns.
    pub active_timeout_ns: u64,
    /// A flow without a packet for this long is over; ns.
    pub inactive_timeout_ns: u64,
    /// How long a record stays open after its FIN or RST; ns.
    pub linger_ns: u64,
    /// Flows kept at once; at least one. A flow takes some 170 bytes.
    pub flows_max: usize,
}

impl Default for MeterConfig {
    /// Active 1800 s and inactive 15 s: the defaults of the routers whose records Harpoon was made for, so
    /// that a capture and an export of the same traffic give similar records. Linger 5 s: longer than a
    /// retransmitted FIN takes at usual round trip times, shorter than a port is reused. 1,048,576 flows.
    fn default() -> MeterConfig {
        MeterConfig {
            active_timeout_ns: 1_800 * NANOS_PER_SECOND,
            inactive_timeout_ns: 15 * NANOS_PER_SECOND,
            linger_ns: 5 * NANOS_PER_SECOND,
            flows_max: 1 << 20,
        }
    }
}

/// What a meter has done so far. `packets == recorded_packets + live_packets`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterCounts {
    /// Packets observed.
    pub packets: u64,
    /// Their bytes, from the IP header on, at original length.
    pub octets: u64,
    /// Records made.
    pub records: u64,
    /// Packets in these records.
    pub recorded_packets: u64,
    /// Bytes in these records.
    pub recorded_octets: u64,
    /// Records among them that had to make room in a full cache.
    pub evicted: u64,
    /// Live flows.
    pub live: u64,
    /// Packets in live flows.
    pub live_packets: u64,
    /// Packets whose stamp was before an earlier packet's.
    pub stamps_back: u64,
    /// How often the clock was found to be set back: all flows ended, and the clock began anew.
    pub clock_set_back: u64,
}

/// A flow in the cache, in two cache lines of the processor.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Metered {
    tuple: Tuple,
    live: Live,
}

const _: () = assert!(size_of::<Option<Metered>>() == 128);

/// Meters packets into records. Memory is bounded by `flows_max`, work a packet is constant.
#[derive(Debug)]
pub struct Meter {
    config: MeterConfig,
    pub(crate) cache: Cache<Metered>,
    now_ns: u64,
    /// No flow is over before this time, by its idleness or after its end marker.
    due_ns: u64,
    far_behind: FarBehind,
    counts: MeterCounts,
}

impl Meter {
    /// A meter that has seen nothing.
    pub fn new(config: MeterConfig) -> Meter {
        Meter {
            cache: Cache::new(config.flows_max),
            config,
            now_ns: 0,
            due_ns: u64::MAX,
            far_behind: FarBehind::default(),
            counts: MeterCounts::default(),
        }
    }

    /// Takes a packet, as [`Meter::observe_brief`] does.
    pub fn observe(
        &mut self,
        stamp_ns: u64,
        packet: &IpPacket,
        out: &mut impl FnMut(FlowRecord),
    ) -> bool {
        self.observe_brief(stamp_ns, &Brief::of(packet), out)
    }

    /// Takes a packet stamped `stamp_ns` (ns since 1970); records that end go to `out`. Returns whether the
    /// packet is the first in its record to show a TCP segment, an opening (a SYN without ACK) or a FIN: no
    /// other packet is news to a counter of connections.
    #[inline(always)]
    pub fn observe_brief(
        &mut self,
        stamp_ns: u64,
        packet: &Brief,
        out: &mut impl FnMut(FlowRecord),
    ) -> bool {
        self.observe_at(stamp_ns, packet, self.place_of(packet), out)
    }

    /// Takes a packet from a [`PrefetchQueue`](crate::prefetch_queue::PrefetchQueue), as
    /// [`Meter::observe_brief`] does.
    #[inline(always)]
    pub fn observe_queued(&mut self, queued: &Queued, out: &mut impl FnMut(FlowRecord)) -> bool {
        self.observe_at(queued.stamp_ns, &queued.packet, queued.place, out)
    }

    /// Where to look for the flow of a packet.
    #[inline(always)]
    pub(crate) fn place_of(&self, packet: &Brief) -> Place {
        Place { hash: self.cache.hashing.of_tuple(&packet.tuple), slot: None }
    }

    #[inline(always)]
    fn observe_at(
        &mut self,
        stamp_ns: u64,
        packet: &Brief,
        place: Place,
        out: &mut impl FnMut(FlowRecord),
    ) -> bool {
        if stamp_ns < self.now_ns {
            self.goes_back(stamp_ns, packet, place, out);
        }
        self.now_ns = self.now_ns.max(stamp_ns);
        if self.now_ns >= self.due_ns {
            self.expire(out);
        }
        let now_ns = self.now_ns;
        let slot = self.slot_for(stamp_ns, packet, place, out);
        let live = &mut self.cache.value_mut(slot).live;
        let is_news = live.add(now_ns, stamp_ns, packet);
        if ends_flow(packet) && !live.is_closing() {
            let closes_ns = now_ns.saturating_add(self.config.linger_ns);
            live.close_at(closes_ns);
            self.cache.move_last(Order::Closing, slot);
            self.due_ns = self.due_ns.min(closes_ns);
        }
        self.cache.move_last(Order::Seen, slot);
        self.counts.packets += 1;
        self.counts.octets += u64::from(packet.ip_bytes);
        self.counts.live_packets += 1;
        is_news
    }

    /// Ends every live flow, the least recently seen first, and resets the clock.
    pub fn flush(&mut self, out: &mut impl FnMut(FlowRecord)) {
        while let Some(slot) = self.cache.first(Order::Seen) {
            self.prefetch_next(Order::Seen);
            self.end(slot, EndReason::ForcedEnd, out);
        }
        (self.now_ns, self.due_ns) = (0, u64::MAX);
        self.far_behind = FarBehind::default();
        assert_eq!(self.counts.octets, self.counts.recorded_octets, "octets are conserved");
        self.assert_conserved();
    }

    /// Handles a packet that is stamped before an earlier one.
    #[cold]
    fn goes_back(
        &mut self,
        stamp_ns: u64,
        packet: &Brief,
        place: Place,
        out: &mut impl FnMut(FlowRecord),
    ) {
        self.counts.stamps_back += 1;
        let waited_ns = self.config.inactive_timeout_ns.max(self.config.linger_ns);
        if self.now_ns - stamp_ns <= waited_ns {
            return;
        }
        let row = self.far_behind.with(stamp_ns, self.counts.packets);
        self.far_behind = row;
        if row.stamps >= STAMPS_OF_ANOTHER_TIME && stamp_ns - row.least_ns > waited_ns {
            self.counts.clock_set_back += 1;
            self.flush(out);
        } else if let Some(slot) = self.find(packet, place)
            && self.cache.value(slot).live.start_ns.saturating_sub(stamp_ns) > waited_ns
        {
            self.end(slot, EndReason::ForcedEnd, out);
        }
    }

    /// What was done so far.
    pub fn counts(&self) -> MeterCounts {
        MeterCounts { live: self.cache.len() as u64, ..self.counts }
    }

    /// Prefetches what is needed to end the next flows of an order.
    #[inline]
    fn prefetch_next(&self, order: Order) {
        self.cache.prefetch_next(order, |metered| self.cache.hashing.of_tuple(&metered.tuple));
    }

    /// The live flow of this packet.
    #[inline(always)]
    fn find(&self, packet: &Brief, Place { hash, slot }: Place) -> Option<Slot> {
        let is_it = |metered: &Metered| metered.tuple == packet.tuple;
        slot.filter(|&slot| self.cache.get(slot).is_some_and(is_it))
            .or_else(|| self.cache.find_where(hash, is_it))
    }

    /// The flow that takes this packet: the live one, unless it is over, or a new one.
    #[inline]
    fn slot_for(
        &mut self,
        stamp_ns: u64,
        packet: &Brief,
        place: Place,
        out: &mut impl FnMut(FlowRecord),
    ) -> Slot {
        if let Some(slot) = self.find(packet, place) {
            let live = &self.cache.value(slot).live;
            if live.is_succeeded_by(packet) {
                self.end(slot, EndReason::EndOfFlow, out);
            } else if stamp_ns.saturating_sub(live.start_ns) >= self.config.active_timeout_ns {
                self.end(slot, EndReason::ActiveTimeout, out);
            } else {
                return slot;
            }
        } else if self.cache.is_full()
            && let Some(slot) = self.cache.first(Order::Seen)
        {
            self.counts.evicted += 1;
            self.end(slot, EndReason::LackOfResources, out);
        }
        self.due_ns = self.due_ns.min(self.idle_at_ns(self.now_ns));
        let live = Live::new(self.now_ns, stamp_ns, packet);
        self.cache.insert_at(place.hash, Metered { tuple: packet.tuple, live })
    }

    /// Ends flows that are over by the clock, and computes when the next one may be.
    #[inline(never)]
    fn expire(&mut self, out: &mut impl FnMut(FlowRecord)) {
        self.due_ns = u64::MAX;
        while let Some(slot) = self.cache.first(Order::Closing) {
            let closes_ns = self.cache.value(slot).live.closes_ns();
            if closes_ns > self.now_ns {
                self.due_ns = closes_ns;
                break;
            }
            self.prefetch_next(Order::Closing);
            self.end(slot, EndReason::EndOfFlow, out);
        }
        while let Some(slot) = self.cache.first(Order::Seen) {
            let seen_ns = self.cache.value(slot).live.seen_ns;
            if self.now_ns - seen_ns < self.config.inactive_timeout_ns.max(1) {
                self.due_ns = self.due_ns.min(self.idle_at_ns(seen_ns));
                break;
            }
            self.prefetch_next(Order::Seen);
            self.end(slot, EndReason::IdleTimeout, out);
        }
    }

    /// When a flow last seen at `seen_ns` is over without another packet; saturates.
    fn idle_at_ns(&self, seen_ns: u64) -> u64 {
        seen_ns.saturating_add(self.config.inactive_timeout_ns.max(1))
    }

    /// Ends a flow. If its FIN or RST was seen, that is its end reason, whichever timer expired; only a flow
    /// that had to make room keeps that reason.
    fn end(&mut self, slot: Slot, reason: EndReason, out: &mut impl FnMut(FlowRecord)) {
        let hash = self.cache.hashing.of_tuple(&self.cache.value(slot).tuple);
        let Metered { tuple, live } = self.cache.remove_at(hash, slot);
        let reason = match reason {
            EndReason::LackOfResources => reason,
            _ if live.is_closing() => EndReason::EndOfFlow,
            _ => reason,
        };
        let record = live.into_record(key_of_tuple(&tuple), reason);
        self.counts.records += 1;
        self.counts.live_packets -= record.packets;
        self.counts.recorded_packets += record.packets;
        self.counts.recorded_octets += record.octets;
        self.assert_conserved();
        out(record);
    }

    fn assert_conserved(&self) {
        let MeterCounts { packets, recorded_packets, live_packets, .. } = self.counts;
        assert_eq!(packets, recorded_packets + live_packets, "every packet is in one record");
    }
}

/// A run of stamps that lie farther behind the clock than flows wait.
#[derive(Clone, Copy, Debug, Default)]
struct FarBehind {
    stamps: u64,
    least_ns: u64,
    /// The number of packets observed up to the last of them. A late packet continues the run if it is
    /// observed next, so that other packets need not reset it.
    packets: u64,
}

impl FarBehind {
    /// The run with the stamp of a further packet, observed after `packets_before` others.
    fn with(self, stamp_ns: u64, packets_before: u64) -> FarBehind {
        let (stamps, least_ns) = match self.packets == packets_before {
            true => (self.stamps, self.least_ns),
            false => (0, stamp_ns),
        };
        let packets = packets_before + 1;
        FarBehind { stamps: stamps + 1, least_ns: least_ns.min(stamp_ns), packets }
    }
}
