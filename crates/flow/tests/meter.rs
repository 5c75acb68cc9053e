//! The meter against its naive twin, and at its limits.

use nilometer_stat::Rng;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use nilometer_flow::connections::ConnectionCounter;
use nilometer_flow::meter::{Meter, MeterConfig};
use nilometer_flow::prefetch_queue::PrefetchQueue;
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_wire::brief::Brief;
use nilometer_wire::packet::{Fragment, IpPacket, TcpSegment, Transport};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

fn key_of(packet: &IpPacket) -> FlowKey {
    let (source_port, destination_port) = packet.ports();
    FlowKey {
        source: packet.source,
        destination: packet.destination,
        source_port,
        destination_port,
        protocol: packet.protocol,
    }
}

fn segment_of(packet: &IpPacket) -> Option<TcpSegment> {
    match packet.transport {
        Transport::Tcp(segment) => Some(segment),
        _ => None,
    }
}

/// One flow of the naive twin: all its packets, evaluated only when it ends.
struct Kept {
    seen_ns: u64,
    closes_ns: Option<u64>,
    packets: Vec<(u64, IpPacket)>,
}

impl Kept {
    fn start_ns(&self) -> u64 {
        self.packets.iter().map(|(stamp_ns, _)| *stamp_ns).min().expect("a packet")
    }
}

/// The naive twin: every packet is kept, and every flow is checked at every packet for its end.
struct Scan {
    config: MeterConfig,
    flows: HashMap<FlowKey, Kept>,
    now_ns: u64,
    records: Vec<FlowRecord>,
}

impl Scan {
    fn observe(&mut self, stamp_ns: u64, packet: &IpPacket) {
        self.now_ns = self.now_ns.max(stamp_ns);
        let (now_ns, config, key) = (self.now_ns, self.config, key_of(packet));
        let over: Vec<FlowKey> = (self.flows.iter())
            .filter(|(_, kept)| {
                kept.closes_ns.is_some_and(|closes_ns| closes_ns <= now_ns)
                    || now_ns - kept.seen_ns >= config.inactive_timeout_ns
            })
            .map(|(key, _)| *key)
            .collect();
        over.into_iter().for_each(|key| self.end(key, EndReason::IdleTimeout));

        if let Some(kept) = self.flows.get(&key) {
            let syns: Vec<u32> = (kept.packets.iter())
                .filter_map(|(_, packet)| segment_of(packet).filter(|s| s.flags & SYN != 0))
                .map(|segment| segment.sequence)
                .collect();
            let opens = segment_of(packet).is_some_and(|segment| {
                segment.flags & SYN != 0 && syns.last() != Some(&segment.sequence)
            });
            if kept.closes_ns.is_some() && opens {
                self.end(key, EndReason::EndOfFlow);
            } else if stamp_ns.saturating_sub(kept.start_ns()) >= config.active_timeout_ns {
                self.end(key, EndReason::ActiveTimeout);
            }
        } else if self.flows.len() >= config.flows_max {
            // Stamps never repeat in the test, so the least recently seen flow is one flow.
            let oldest = self.flows.iter().min_by_key(|(_, kept)| kept.packets.last().unwrap().0);
            let oldest = *oldest.unwrap().0;
            self.end(oldest, EndReason::LackOfResources);
        }
        let kept = self.flows.entry(key).or_insert(Kept {
            seen_ns: now_ns,
            closes_ns: None,
            packets: Vec::new(),
        });
        kept.seen_ns = now_ns;
        kept.packets.push((stamp_ns, *packet));
        if segment_of(packet).is_some_and(|segment| segment.flags & (FIN | RST) != 0) {
            kept.closes_ns.get_or_insert(now_ns + config.linger_ns);
        }
    }

    fn end(&mut self, key: FlowKey, reason: EndReason) {
        let kept = self.flows.remove(&key).unwrap();
        let pushed_out = reason == EndReason::LackOfResources;
        let reason =
            if kept.closes_ns.is_some() && !pushed_out { EndReason::EndOfFlow } else { reason };
        let segments = || kept.packets.iter().filter_map(|(_, packet)| segment_of(packet));
        let syns: Vec<_> = segments().filter(|segment| segment.flags & SYN != 0).collect();
        self.records.push(FlowRecord {
            key,
            start_ns: kept.start_ns(),
            end_ns: kept.packets.iter().map(|(stamp_ns, _)| *stamp_ns).max().unwrap(),
            packets: kept.packets.len() as u64,
            octets: kept.packets.iter().map(|(_, packet)| u64::from(packet.ip_bytes)).sum(),
            tcp_flags: segments().fold(0, |flags, segment| flags | segment.flags),
            payload_octets: match key.protocol {
                6 => Some(span(segments())),
                17 => Some(kept.packets.iter().map(|(_, p)| u64::from(p.ip_bytes) - 28).sum()),
                _ => None,
            },
            opened: match syns.is_empty() {
                true => None,
                false => Some(syns.iter().any(|segment| segment.flags & ACK == 0)),
            },
            end_reason: reason,
            sampling_interval: 0,
        });
    }
}

/// The span of the file, for numbers that stay within a megabyte of `ISN`.
fn span(segments: impl Iterator<Item = TcpSegment>) -> u64 {
    let (mut low, mut high) = (u64::MAX, 0);
    for segment in segments.filter(|segment| segment.flags & RST == 0) {
        if segment.payload_bytes > 0 || segment.flags & (SYN | FIN) != 0 {
            let syn = u64::from(segment.flags & SYN != 0);
            let at = u64::from(segment.sequence.wrapping_sub(ISN)) + syn;
            (low, high) = (low.min(at), high.max(at + u64::from(segment.payload_bytes)));
        }
    }
    high.saturating_sub(low)
}

const ISN: u32 = u32::MAX - 300_000;

fn packet_of_chance(rng: &mut Rng) -> IpPacket {
    let protocol = [6, 6, 6, 17, 1][rng.below(5) as usize];
    let payload_bytes = rng.below(1_400) as u32 * rng.below(2) as u32;
    let (source_port, destination_port) = (rng.below(40) as u16, 80 + rng.below(3) as u16);
    let flags = [ACK, ACK, ACK, ACK, ACK, ACK, SYN, SYN | ACK, FIN | ACK, RST];
    let transport = match protocol {
        6 => Transport::Tcp(TcpSegment {
            source_port,
            destination_port,
            sequence: ISN.wrapping_add(rng.below(1_000_000) as u32),
            acknowledgement: 0,
            flags: flags[rng.below(10) as usize],
            window: 1,
            payload_bytes,
            time_stamps: None,
            cut_options_bytes: None,
        }),
        17 => Transport::Udp { source_port, destination_port, payload_bytes },
        _ => Transport::Icmp { kind: 8, code: 0 },
    };
    packet(rng.below(4) as u8, protocol, transport, payload_bytes)
}

fn packet(host: u8, protocol: u8, transport: Transport, payload_bytes: u32) -> IpPacket {
    let headers_bytes = if protocol == 6 { 40 } else { 28 };
    IpPacket {
        source: IpAddr::V4(Ipv4Addr::new(198, 18, 0, host)),
        destination: IpAddr::V4(Ipv4Addr::new(198, 19, 0, 1)),
        protocol,
        traffic_class: 0,
        hop_limit: 64,
        ip_bytes: headers_bytes + payload_bytes,
        fragment: Fragment::Whole,
        transport,
        encapsulated: false,
    }
}

fn sorted(mut records: Vec<FlowRecord>) -> Vec<FlowRecord> {
    records.sort_by_key(|record| (record.key, record.start_ns, record.end_ns, record.packets));
    records
}

#[test]
fn agrees_with_the_naive_twin() {
    let configs =
        [(40, 90, 10, 1 << 20), (1_000, 25, 7, 60), (5, 1_000, 0, 20), (300, 300, 400, 1)];
    for (seed, (active, inactive, linger, flows_max)) in configs.into_iter().enumerate() {
        let config = MeterConfig {
            active_timeout_ns: active * 1_000,
            inactive_timeout_ns: inactive * 1_000,
            linger_ns: linger * 1_000,
            flows_max,
        };
        let mut rng = Rng::new(seed as u64 + 1, 0, 0);
        let mut meter = Meter::new(config);
        let mut twin = Scan { config, flows: HashMap::new(), now_ns: 0, records: Vec::new() };
        let (mut records, mut now_ns) = (Vec::new(), 1_000_000_000);
        // There are 480 TCP connections: not all can be counted.
        let mut connections = [(); 2].map(|()| ConnectionCounter::new(400));
        for _ in 0..25_000 {
            now_ns += 1 + rng.below(300) + 20_000 * u64::from(rng.below(100) == 0);
            // Capacity is tested without time running back, where the twin knows the oldest flow.
            let back = if flows_max < 1_000 { 0 } else { rng.below(5) / 4 * rng.below(900) };
            let packet = packet_of_chance(&mut rng);
            let out = &mut |record| records.push(record);
            if meter.observe(now_ns - back, &packet, out) {
                connections[0].observe(&packet);
            }
            connections[1].observe(&packet);
            twin.observe(now_ns - back, &packet);
        }
        let [by_news, by_all] = connections.map(|mut all| all.counts());
        assert_eq!(by_news, by_all, "what is no news of a flow is none of a connection");
        assert!(by_all.with_syn_and_fin > 0 && by_all.lower_bound);
        let counts = meter.counts();
        assert_eq!(counts.live, twin.flows.len() as u64);
        meter.flush(&mut |record| records.push(record));
        let left: Vec<FlowKey> = twin.flows.keys().copied().collect();
        left.into_iter().for_each(|key| twin.end(key, EndReason::ForcedEnd));
        let evicted = records.iter().filter(|r| r.end_reason == EndReason::LackOfResources).count();
        assert_eq!(counts.evicted, evicted as u64);
        assert_eq!(evicted > 0, flows_max < 1_000, "capacity must matter where it is small");
        assert!(counts.live as usize <= flows_max);
        assert!(records.len() > 1_000 && records.iter().all(|r| r.end_ns >= r.start_ns));
        assert_eq!(records.len(), twin.records.len());
        for (ours, theirs) in sorted(records).iter().zip(&sorted(twin.records)) {
            assert_eq!(ours, theirs, "seed {seed}");
        }
        assert_eq!(meter.counts().recorded_packets, 25_000);
    }
}

#[test]
fn a_time_stamp_far_in_the_past_or_future_is_tolerated() {
    let mut meter = Meter::new(MeterConfig { flows_max: 3, ..MeterConfig::default() });
    let mut records = Vec::new();
    let mut rng = Rng::new(3, 0, 0);
    for stamp_ns in [5, u64::MAX, 0, u64::MAX - 1, 1 << 60, 7, u64::MAX].repeat(50) {
        let packet = packet_of_chance(&mut rng);
        meter.observe(stamp_ns, &packet, &mut |record| records.push(record));
        assert!(meter.counts().live <= 3);
    }
    meter.flush(&mut |record| records.push(record));
    assert!(records.iter().all(|record| record.end_ns >= record.start_ns));
    assert_eq!(records.iter().map(|record| record.packets).sum::<u64>(), 350);
    // All but the greatest are before it, and the first 5 is not; no three in a row are far before it.
    assert_eq!((meter.counts().stamps_back, meter.counts().clock_set_back), (249, 0));
}

/// Files out of order, and one wrong stamp: timers expire in each file as if it had come by itself.
#[test]
fn a_clock_that_is_set_back_begins_anew() {
    const SECOND: u64 = 1_000_000_000;
    let datagram = Transport::Udp { source_port: 1, destination_port: 2, payload_bytes: 100 };
    let metered = |stamps_s: &[u64]| {
        let mut meter = Meter::new(MeterConfig::default());
        let mut records = Vec::new();
        for stamp_s in stamps_s {
            let packet = packet(1, 17, datagram, 100);
            meter.observe(stamp_s * SECOND, &packet, &mut |record| records.push(record));
        }
        meter.flush(&mut |record| records.push(record));
        let spans = records.iter().map(|r| (r.start_ns / SECOND, r.end_ns / SECOND, r.packets));
        (spans.collect::<Vec<_>>(), meter.counts().stamps_back, meter.counts().clock_set_back)
    };
    let (times, back, set_back) = metered(&[1_000, 1_001, 1_060, 700, 710, 800, 790]);
    let spans = [(1_000, 1_001, 2), (1_060, 1_060, 1), (700, 710, 2), (790, 800, 2)];
    assert_eq!((times, back, set_back), (spans.to_vec(), 4, 1), "10 s back is one time");
    let far = 4_102_444_800;
    let (times, _, set_back) = metered(&[1_000, 1_001, far, 1_002, 1_003, 1_060]);
    let spans = [(1_000, 1_001, 2), (far, far, 1), (1_002, 1_003, 2), (1_060, 1_060, 1)];
    assert_eq!((times, set_back), (spans.to_vec(), 1));
    let (times, _, set_back) = metered(&[900, 700, 710, 720, 300, 310, 320, 350]);
    let spans =
        [(900, 900, 1), (700, 710, 2), (720, 720, 1), (300, 310, 2), (320, 320, 1), (350, 350, 1)];
    assert_eq!((times, set_back), (spans.to_vec(), 2), "and again");
}

/// Two in a row, three that do not advance, or four with the old time between them.
#[test]
fn a_few_stamps_of_another_time_are_late() {
    let datagram = Transport::Udp { source_port: 1, destination_port: 2, payload_bytes: 100 };
    for late in [&[0][..], &[700, 800], &[700, 715, 705], &[700, 710, 1_002, 720, 730]] {
        let mut meter = Meter::new(MeterConfig::default());
        for stamp_s in [1_000, 1_001].iter().chain(late).chain(&[1_003]) {
            let packet = packet(1 + u8::from(*stamp_s < 1_000), 17, datagram, 100);
            meter.observe(stamp_s * 1_000_000_000, &packet, &mut |_| panic!("none has ended"));
        }
        let mut spans = Vec::new();
        meter.flush(&mut |r| spans.push([r.start_ns, r.end_ns].map(|ns| ns / 1_000_000_000)));
        let last = *late.iter().filter(|stamp_s| **stamp_s < 1_000).max().expect("one is late");
        assert_eq!(
            (spans, meter.counts().clock_set_back),
            (vec![[late[0], last], [1_000, 1_003]], 0)
        );
    }
}

/// A packet whose stamp is wrong by more than a record may last is a record of its own.
#[test]
fn one_wrong_stamp_gives_nothing_else_its_start() {
    const MILLI: u64 = 1_000_000;
    let datagram = Transport::Udp { source_port: 1, destination_port: 2, payload_bytes: 100 };
    let (mut meter, mut spans) = (Meter::new(MeterConfig::default()), Vec::new());
    let mut note = |r: FlowRecord| spans.push([r.start_ns, r.end_ns].map(|ns| ns / MILLI));
    for stamp_ms in [10_000_000, 10_000_100, 5, 10_000_200, 10_000_300] {
        meter.observe(stamp_ms * MILLI, &packet(1, 17, datagram, 100), &mut note);
    }
    meter.flush(&mut note);
    assert_eq!(spans, [[10_000_000, 10_000_100], [5, 5], [10_000_200, 10_000_300]]);
}

/// Two interfaces in one capture, one stamped in UTC and one in TAI, 37 s apart, a flow on each: packets of the
/// clock behind are late as long as the other clock appears, however rarely, even in a flow on both clocks.
#[test]
fn a_clock_behind_another_ends_no_flows() {
    const MILLI: u64 = 1_000_000;
    let datagram = Transport::Udp { source_port: 1, destination_port: 2, payload_bytes: 100 };
    // A packet every 100 ms; `behind_to_one` packets on the clock behind for each on the other.
    for (behind_to_one, flow_behind, expected) in [(1, 2, 2), (2, 2, 2), (149, 2, 2), (7, 1, 2)] {
        let mut meter = Meter::new(MeterConfig::default());
        let mut records = Vec::new();
        let mut observe = |stamp_ms, host| {
            let packet = packet(host, 17, datagram, 100);
            meter.observe(stamp_ms * MILLI, &packet, &mut |record| records.push(record));
        };
        for tick in 0..10_000 {
            let now_ms = 100_000 + tick * 100;
            if tick % behind_to_one == 0 {
                observe(now_ms, 1);
            }
            observe(now_ms - 37_000, flow_behind);
        }
        meter.flush(&mut |record| records.push(record));
        assert_eq!(records.len(), expected, "{behind_to_one} to one");
        let counts = meter.counts();
        assert_eq!((counts.stamps_back, counts.clock_set_back), (10_000, 0));
        let spans = records.iter().map(|r| (r.start_ns / MILLI, r.end_ns / MILLI));
        let latest_ms = 100_000 + 9_999 / behind_to_one * behind_to_one * 100;
        let apart = [(100_000, latest_ms), (63_000, 1_062_900)];
        let together = [(100_000, 100_000), (63_000, latest_ms)];
        let expected = if flow_behind == 1 { together } else { apart };
        assert_eq!(spans.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn payload_is_unknown_where_a_transport_header_was_cut() {
    let datagram = Transport::Udp { source_port: 0, destination_port: 0, payload_bytes: 100 };
    for (transport, payload) in [(datagram, Some(200)), (Transport::Cut, None)] {
        let mut meter = Meter::new(MeterConfig::default());
        let mut records = Vec::new();
        meter.observe(1, &packet(1, 17, datagram, 100), &mut |record| records.push(record));
        meter.observe(2, &packet(1, 17, transport, 100), &mut |record| records.push(record));
        meter.flush(&mut |record| records.push(record));
        assert_eq!((records.len(), records[0].payload_octets), (1, payload));
    }
}

/// Twenty thousand live flows, too many to bypass the queue: some end, some begin anew, some are evicted, and
/// their slots are reused before a packet has left the queue.
#[test]
fn queued_packets_are_metered_as_those_that_bypass_the_queue() {
    for (seed, flows_max) in [(5, 1 << 20), (6, 9_000)] {
        let timers = MeterConfig {
            active_timeout_ns: 40_000_000,
            inactive_timeout_ns: 15_000_000,
            linger_ns: 2_000,
            flows_max,
        };
        let mut meters = [(); 2].map(|()| Meter::new(timers));
        let mut records = [(); 2].map(|()| Vec::new());
        let mut news = [(); 2].map(|()| Vec::new());
        let (mut queue, mut through) = (PrefetchQueue::default(), 0);
        let mut rng = Rng::new(seed, 0, 0);
        for n in 0..300_000u64 {
            let mut ip = packet_of_chance(&mut rng);
            let host = rng.below(if n % 3 == 0 { 40 } else { 400 }) as u32;
            ip.source = Ipv4Addr::from_bits(0xc612_0000 + host).into();
            let (stamp_ns, packet) = (n * 200 + rng.below(900), Brief::of(&ip));
            let [ours, theirs] = &mut meters;
            if theirs.observe_brief(stamp_ns, &packet, &mut |record| records[1].push(record)) {
                news[1].push(packet);
            }
            let queued = match queue.is_used(ours) {
                true => queue.push(ours, stamp_ns, &packet),
                false => {
                    if ours.observe_brief(stamp_ns, &packet, &mut |record| records[0].push(record))
                    {
                        news[0].push(packet);
                    }
                    None
                }
            };
            // Now and then the queue is emptied, as when it is unknown whether more packets will come.
            let left = if n % 50_000 == 0 { usize::MAX } else { 0 };
            for queued in queued.into_iter().chain((0..left).map_while(|_| queue.pop())) {
                through += 1;
                if ours.observe_queued(&queued, &mut |record| records[0].push(record)) {
                    news[0].push(queued.packet);
                }
            }
        }
        while let Some(queued) = queue.pop() {
            through += 1;
            if meters[0].observe_queued(&queued, &mut |record| records[0].push(record)) {
                news[0].push(queued.packet);
            }
        }
        let [ours, theirs] = meters.map(|mut meter| {
            let counts = meter.counts();
            meter.flush(&mut |_| {});
            counts
        });
        assert_eq!(ours, theirs);
        assert_eq!(ours.evicted > 1_000, flows_max < 10_000);
        assert!((200_000..300_000).contains(&through), "{through} packets of 300,000 were queued");
        assert!(records[0] == records[1] && news[0] == news[1], "seed {seed}");
    }
}
