//! The passive meter: both hosts' ends of the links watched at once.
//!
//! A ring on the client's interface (or at the end of the path in front of the device) and one on the server's (or of
//! the path behind it) see every frame with a kernel stamp. A frame that leaves a host enters the device; a frame that
//! arrives at one has left it. The same code that meters a capture turns the client's side into flow records; the
//! profiler matches both sides. The device itself is never touched, so every device is measured in the same way.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Result;
use nilometer_conversation::{Limits, Side};
use nilometer_flow::FlowRecord;
use nilometer_flow::meter::{Meter, MeterConfig, MeterCounts};
use nilometer_flow::record::tcp_flags;
use nilometer_likeness::{Observed, Observer};
use nilometer_profile::device_faults::DeviceWatch;
use nilometer_profile::{
    Counts, Delays, Direction, Fate, Fingerprint, Matcher, MatcherConfig, PacketOutcome,
};
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{IpPacket, Parsed, Transport, parse};
use nilometer_wire::{Span, Time};

use super::by_path::{DelaysByPath, OffloadObservation};
use nilometer_files::document::results::ResultFile;
use nilometer_files::table::capture::CaptureWriter;
use nilometer_files::table::packets::{self, PacketRow, PacketWriter};
use nilometer_linux::ring::{Ring, RingConfig, RingStatistics, StampedFrame};
use nilometer_linux::testbed::{CLIENT_INTERFACE, SERVER_INTERFACE, Testbed};

/// The profiler's clock begins this much before the traffic, so that no stamp is before it.
pub const LEAD_NS: u64 = 10_000_000_000;
/// How long a connection may be idle and stay one record: the generator gives it up sooner, ns.
const SILENCE_MAX_NS: u64 = 60_000_000_000;
/// How long a ring is waited for before both are looked at.
const WAIT_MS: u32 = 5;
const ETHERNET_BYTES: usize = 14;

/// The settings of the meter.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The wall clock at the traffic's beginning, ns since 1970.
    pub origin_ns: u64,
    /// Ends of the plan's intervals, ns after the beginning.
    pub interval_ends_ns: Vec<u64>,
    /// Addresses of the device itself.
    pub device_addresses: Vec<IpAddr>,
    /// Where to keep packets: the client's, the server's.
    pub captures: Option<[ResultFile; 2]>,
    /// Where to keep the stamps of each packet.
    pub stamps: Option<ResultFile>,
    /// How long a packet may stay in the device, beyond what any device may take.
    pub stay: Span,
    /// How the traffic is observed, as the original was; none where there is no original to compare
    /// it with.
    pub likewise: Option<Likewise>,
    /// What the meter knows of flow offload by our router; none where our router is not the device.
    pub offload: Option<OffloadObservation>,
}

/// How traffic is observed that is compared with an original.
#[derive(Clone, Copy, Debug)]
pub struct Likewise {
    /// For how long from the beginning on, ns.
    pub ns: u64,
    /// The one side whose packets the original shows, where it does not show both.
    pub one_side: Option<Side>,
}

impl Likewise {
    /// The observer of traffic that begins at this moment, ns since 1970.
    fn observer(self, origin_ns: u64) -> Observer {
        let limits = Limits::default();
        let all = Observer::between(limits, origin_ns, origin_ns.saturating_add(self.ns));
        match self.one_side {
            Some(side) => all.of_one_side(limits, side),
            None => all,
        }
    }
}

/// Counters for a progress display.
#[derive(Debug, Default)]
pub struct MeterLive {
    /// IP packets that entered the device.
    pub entered: AtomicU64,
    /// IP packets that left it.
    pub left: AtomicU64,
    /// Packets lost so far (decided two seconds after they entered).
    pub lost: AtomicU64,
}

/// One second at the client's interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// TCP payload bytes, both directions.
    pub payload_bytes: u64,
    /// IP packets, both directions.
    pub packets: u64,
    /// Connections opened: SYNs without ACK.
    pub flows: u64,
}

/// Frames seen on one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Leaving.
    pub outgoing: u64,
    /// Coming in.
    pub incoming: u64,
    /// Of both, those that are not IP or are neighbour discovery.
    pub not_ip: u64,
    /// Stamped only when the packet socket got its turn.
    pub stamped_late: u64,
}

/// All that the meter saw.
pub struct Sighted {
    /// Flow records of the client's side.
    pub records: Vec<FlowRecord>,
    /// The flow meter's own account.
    pub flows: MeterCounts,
    /// Packets by fate, by direction.
    pub counts: [Counts; 2],
    /// Delays of all kinds.
    pub delays: Delays,
    /// The device's faults, and when they began.
    pub device: DeviceWatch,
    /// Delays by forwarding path, in the order of [`super::by_path::ForwardingPath::ALL`]; empty
    /// where our router is not the device.
    pub delays_by_path: Vec<Delays>,
    /// By second of the traffic.
    pub seconds: Vec<Second>,
    /// IP packets and bytes that entered the device, by interval.
    pub intervals: Vec<(u64, u64)>,
    /// IP bytes that entered the device, by direction.
    pub entered_bytes: [u64; 2],
    /// Frames by side: client, server.
    pub frames: [Frames; 2],
    /// The rings' own counters by side.
    pub rings: [RingStatistics; 2],
    /// The client's side, observed as the original was.
    pub observed: Option<Observed>,
}

/// The meter, opened before the links are up.
pub struct PassiveMeter {
    rings: [Ring; 2],
    watch: Watch,
}

/// How packets are matched where one may stay in the device for so long, beyond what any may take.
fn matching(stay: Span) -> MatcherConfig {
    let usual = MatcherConfig::default();
    MatcherConfig { horizon: usual.horizon + stay, ..usual }
}

/// Data accumulated while the rings are drained.
pub(super) struct Ledger<'a> {
    watch: &'a Watch,
    flows: Meter,
    matcher: Matcher,
    observer: Option<Observer>,
    sighted: Sighted,
    by_path: Option<DelaysByPath>,
    captures: Option<[CaptureWriter; 2]>,
    stamps: Option<PacketWriter>,
    newest: [u64; 2],
    failure: Option<anyhow::Error>,
}

impl PassiveMeter {
    /// Opens both rings; the testbed's links should still be down.
    pub fn open(testbed: &Testbed, ring_mib: u32) -> Result<PassiveMeter> {
        let config = RingConfig::of_bytes(u64::from(ring_mib) << 20);
        let (client, name) = testbed.client_end();
        let client = client.enter(|| Ring::open(name, config))?;
        let (server, name) = testbed.server_end();
        let server = server.enter(|| Ring::open(name, config))?;
        Ok(PassiveMeter { rings: [client, server], watch: Watch::default() })
    }

    /// Watches until `stop` is set, then empties the rings and settles every packet's fate.
    pub fn run(mut self, watch: Watch, live: &MeterLive, stop: &AtomicBool) -> Result<Sighted> {
        self.watch = watch;
        let mut ledger = Ledger::new(&self.watch)?;
        loop {
            let last = stop.load(Ordering::Acquire);
            self.rings[0].poll(if last { 30 } else { WAIT_MS })?;
            let mut drained = 0;
            for (side, ring) in self.rings.iter_mut().enumerate() {
                drained += ring.drain(|seen| ledger.see(side, &seen));
            }
            ledger.settle(live);
            if last && drained == 0 {
                break;
            }
        }
        let rings = [self.rings[0].statistics()?, self.rings[1].statistics()?];
        ledger.finish(rings)
    }
}

impl<'a> Ledger<'a> {
    /// Nothing seen yet.
    pub(super) fn new(watch: &'a Watch) -> Result<Ledger<'a>> {
        let captures = match &watch.captures {
            Some([client, server]) => Some([
                CaptureWriter::create(client, CLIENT_INTERFACE)?,
                CaptureWriter::create(server, SERVER_INTERFACE)?,
            ]),
            None => None,
        };
        let stamps =
            watch.stamps.as_ref().map(|file| PacketWriter::on(file.draft()?)).transpose()?;
        // A connection is one record as long as the generator waits for it, which is longer than routers wait.
        let whole = MeterConfig {
            active_timeout_ns: u64::MAX,
            inactive_timeout_ns: SILENCE_MAX_NS,
            ..MeterConfig::default()
        };
        let flows = Meter::new(whole);
        Ok(Ledger {
            watch,
            matcher: Matcher::new(matching(watch.stay)),
            by_path: watch.offload.clone().map(|known| DelaysByPath::new(known, LEAD_NS)),
            observer: watch.likewise.map(|likewise| likewise.observer(watch.origin_ns)),
            sighted: Sighted {
                records: Vec::new(),
                flows: flows.counts(),
                counts: Default::default(),
                delays: Delays::new(Default::default()),
                device: DeviceWatch::new(Time::from_nanos(LEAD_NS)),
                delays_by_path: Vec::new(),
                seconds: Vec::new(),
                intervals: vec![(0, 0); watch.interval_ends_ns.len()],
                entered_bytes: [0; 2],
                frames: Default::default(),
                rings: Default::default(),
                observed: None,
            },
            flows,
            captures,
            stamps,
            newest: [0; 2],
            failure: None,
        })
    }

    /// The profiler's time of a wall-clock stamp.
    fn time(&self, stamp_ns: u64) -> Time {
        Time::from_nanos((stamp_ns + LEAD_NS).saturating_sub(self.watch.origin_ns))
    }

    /// A frame at one side.
    pub(super) fn see(&mut self, side: usize, seen: &StampedFrame<'_>) {
        self.newest[side] = self.newest[side].max(seen.stamp_ns);
        if let Some(captures) = &mut self.captures {
            let written =
                captures[side].write(seen.stamp_ns, seen.outgoing, seen.original_bytes, seen.frame);
            if let Err(error) = written {
                self.failure.get_or_insert(error);
            }
        }
        let frames = &mut self.sighted.frames[side];
        *if seen.outgoing { &mut frames.outgoing } else { &mut frames.incoming } += 1;
        frames.stamped_late += u64::from(!seen.stamped_on_arrival);
        match parse(LinkType::Ethernet, seen.frame, seen.original_bytes) {
            Parsed::Ip(packet) if !is_neighbour_discovery(&packet) => {
                self.see_ip(side, seen, &packet);
            }
            _ => self.sighted.frames[side].not_ip += 1,
        }
    }

    fn see_ip(&mut self, side: usize, seen: &StampedFrame<'_>, packet: &IpPacket) {
        let end = (ETHERNET_BYTES + packet.ip_bytes as usize).min(seen.frame.len());
        let print = Fingerprint::of(&seen.frame[ETHERNET_BYTES..end]);
        let at = self.time(seen.stamp_ns);
        let to_servers = (side == 0) == seen.outgoing;
        let direction =
            if to_servers { Direction::ClientToServer } else { Direction::ServerToClient };
        if seen.outgoing {
            let consumed = is_for_the_device(packet, &self.watch.device_addresses);
            self.matcher.entered(direction, at, &print, consumed);
            self.sighted.entered_bytes[direction.index()] += u64::from(packet.ip_bytes);
            self.book_interval(seen.stamp_ns, packet);
        } else {
            self.matcher.left(direction, at, &print);
        }
        if side == 0 {
            let records = &mut self.sighted.records;
            self.flows.observe(seen.stamp_ns, packet, &mut |record| records.push(record));
            if let Some(observer) = &mut self.observer {
                observer.observe(seen.stamp_ns, packet);
            }
            self.book_second(seen.stamp_ns, packet);
        }
    }

    fn book_interval(&mut self, stamp_ns: u64, packet: &IpPacket) {
        let since = stamp_ns.saturating_sub(self.watch.origin_ns);
        let interval = self.watch.interval_ends_ns.partition_point(|&end| end <= since);
        if stamp_ns >= self.watch.origin_ns
            && let Some(booked) = self.sighted.intervals.get_mut(interval)
        {
            booked.0 += 1;
            booked.1 += u64::from(packet.ip_bytes);
        }
    }

    fn book_second(&mut self, stamp_ns: u64, packet: &IpPacket) {
        let Some(since) = stamp_ns.checked_sub(self.watch.origin_ns) else { return };
        let second = (since / 1_000_000_000) as usize;
        let last = self.watch.interval_ends_ns.last().copied().unwrap_or(0) / 1_000_000_000 + 60;
        if second > last as usize {
            return;
        }
        if self.sighted.seconds.len() <= second {
            self.sighted.seconds.resize(second + 1, Second::default());
        }
        let booked = &mut self.sighted.seconds[second];
        booked.packets += 1;
        if let Transport::Tcp(segment) = &packet.transport {
            booked.payload_bytes += u64::from(segment.payload_bytes);
            let opens = segment.flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN;
            booked.flows += u64::from(opens);
        }
    }

    /// Decides the fates of packets that are old enough, as of the side that is further behind.
    pub(super) fn settle(&mut self, live: &MeterLive) {
        self.settle_by(self.newest[0].min(self.newest[1]), live);
    }

    /// Decides the fates of packets that are old enough at `stamp_ns`; no frame seen earlier comes after it.
    pub(super) fn settle_by(&mut self, stamp_ns: u64, live: &MeterLive) {
        let now = self.time(stamp_ns);
        self.by_path.iter_mut().for_each(DelaysByPath::drain_log);
        let mut verdicts = Vec::new();
        self.matcher.expire(now, &mut |verdict| verdicts.push(verdict));
        for verdict in verdicts {
            self.book_verdict(&verdict);
        }
        let both = Direction::ALL.map(|direction| self.matcher.counts(direction));
        live.entered.store(both[0].entered + both[1].entered, Ordering::Relaxed);
        live.left.store(both[0].left + both[1].left, Ordering::Relaxed);
        live.lost.store(both[0].lost + both[1].lost, Ordering::Relaxed);
    }

    fn book_verdict(&mut self, verdict: &PacketOutcome) {
        self.sighted.delays.record(verdict);
        self.sighted.device.record(verdict);
        self.by_path.iter_mut().for_each(|by_path| by_path.record(verdict));
        if let Some(stamps) = &mut self.stamps
            && let Err(error) = stamps.write(&row(verdict))
        {
            self.failure.get_or_insert(error);
        }
    }

    /// All observations; `rings` are the counters of the rings.
    pub(super) fn finish(mut self, rings: [RingStatistics; 2]) -> Result<Sighted> {
        self.by_path.iter_mut().for_each(DelaysByPath::drain_log);
        let mut verdicts = Vec::new();
        self.matcher.finish(&mut |verdict| verdicts.push(verdict));
        for verdict in verdicts {
            self.book_verdict(&verdict);
        }
        let records = &mut self.sighted.records;
        self.flows.flush(&mut |record| records.push(record));
        if let Some(error) = self.failure {
            return Err(error);
        }
        for capture in self.captures.into_iter().flatten() {
            capture.finish()?;
        }
        if let Some(stamps) = self.stamps {
            stamps.finish(&[("origin_ns", self.watch.origin_ns.to_string())])?;
        }
        self.sighted.records.sort_by_key(|record| (record.start_ns, record.key));
        self.sighted.flows = self.flows.counts();
        self.sighted.counts = Direction::ALL.map(|direction| self.matcher.counts(direction));
        for counts in &self.sighted.counts {
            counts.balance().expect("every packet has one fate");
        }
        self.sighted.rings = rings;
        let by_path = self.by_path.take().map(DelaysByPath::finish);
        self.sighted.delays_by_path = by_path.into_iter().flatten().collect();
        self.sighted.observed = self.observer.map(Observer::finish);
        Ok(self.sighted)
    }
}

/// A verdict as a row of the packet table; stamps are ns since the traffic began.
fn row(verdict: &PacketOutcome) -> PacketRow {
    let since = |time: Time| time.as_nanos().saturating_sub(LEAD_NS);
    PacketRow {
        entered_ns: verdict.entered_at.map(since),
        left_ns: verdict.left_at.map(since),
        delay_ns: verdict.delay().map(|delay| delay.as_nanos() as i64),
        direction: verdict.direction.index() as u8,
        bytes: verdict.bytes,
        fate: match verdict.fate {
            Fate::Forwarded => packets::Fate::Passed,
            Fate::Corrupted => packets::Fate::Corrupted,
            Fate::Lost => packets::Fate::Lost,
            Fate::Consumed => packets::Fate::Consumed,
            Fate::Originated => packets::Fate::Originated,
            Fate::Duplicated => packets::Fate::Duplicated,
        },
        reordered: verdict.reordered,
    }
}

/// Router and neighbour solicitations, advertisements and redirects (RFC 4861).
fn is_neighbour_discovery(packet: &IpPacket) -> bool {
    packet.source.is_ipv6() && matches!(packet.transport, Transport::Icmp { kind: 133..=137, .. })
}

/// Addressed to the device, or to all on the link, which no router forwards.
fn is_for_the_device(packet: &IpPacket, addresses: &[IpAddr]) -> bool {
    let link_scope = match packet.destination {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.octets()[..2] == [0xff, 0x02],
    };
    link_scope || addresses.contains(&packet.destination)
}
