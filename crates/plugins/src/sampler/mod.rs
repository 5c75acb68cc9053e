//! Flows of every Nth packet, exported as IPFIX (RFC 7011) to a collector.
//!
//! Sampling is systematic and by count (RFC 5475, 5.1). Sampled packets are joined to flows of a bounded cache, which
//! is exported at an interval, or earlier where it has no more room; each record states how the packets were selected
//! (samplingPacketInterval, samplingPacketSpace), and its counts are of the sampled packets, not scaled up. A message
//! is one datagram, with its templates, since over UDP any of them may be lost (RFC 7011, 8.4).

mod message;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use nilometer_plugin::headers::{TCP, address_bits};
use nilometer_plugin::{Context, Decision, Headers, Packet, Plugin, Settings};

use crate::SECOND_NS;
use message::{Exporter, RECORDS_MAX};

const PACKETS: usize = 0;
const SAMPLED: usize = 1;
const RECORDS: usize = 2;
const MESSAGES: usize = 3;
const UNSENT: usize = 4;

const FLOWS_MAX: usize = 4_096;
/// Between two messages of one export: each is a call of its own, with a budget of its own.
const BETWEEN_MESSAGES_NS: u64 = 1_000_000;

/// What makes packets one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    ports: (u16, u16),
    source: u128,
    destination: u128,
    protocol: u8,
}

/// The address of its bits.
fn address(bits: u128) -> IpAddr {
    Ipv6Addr::from_bits(bits).to_canonical()
}

/// What was seen of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    packets: u64,
    bytes: u64,
    first_ns: u64,
    last_ns: u64,
    tcp_flags: u8,
}

/// Samples and exports.
///
/// Settings: `every=N`, one packet in N (1 takes all); `collector=ADDRESS:PORT` and `source=ADDRESS:PORT` of the
/// messages; `flows=N` in the cache (256), `interval=S` between exports (10), `domain=N`, the observation domain (1),
/// and `epoch=S`, the Unix time at which the router began, from which all times are counted (0).
pub struct Sampler {
    every: u32,
    /// Packets until the next is taken.
    left: u32,
    flows: BTreeMap<Key, Seen>,
    flows_max: usize,
    interval_ns: u64,
    exporter: Exporter,
}

impl Plugin for Sampler {
    const NAME: &'static str = "sampler";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 96;
    const COUNTERS: &'static [&'static str] =
        &["packets", "sampled", "records_exported", "messages_sent", "messages_unsent"];

    fn new(configuration: &str) -> Result<Sampler, String> {
        let mut settings = Settings::parse(configuration)?;
        let every: u32 = settings.required("every")?;
        let collector: SocketAddr = settings.required("collector")?;
        let source: SocketAddr = settings.required("source")?;
        let flows_max: usize = settings.or("flows", 256)?;
        let interval_s: u64 = settings.or("interval", 10)?;
        let domain = settings.or("domain", 1)?;
        let epoch_s: u64 = settings.or("epoch", 0)?;
        settings.finish()?;
        if every == 0 || interval_s == 0 {
            return Err("`every=` and `interval=` must be at least 1".into());
        }
        if !(1..=FLOWS_MAX).contains(&flows_max) {
            return Err(format!("`flows=` must be from 1 to {FLOWS_MAX}"));
        }
        if collector.is_ipv4() != source.is_ipv4() {
            return Err("`collector=` and `source=` are of two versions of IP".into());
        }
        let exporter = Exporter::new(source, collector, domain, epoch_s, every);
        Ok(Sampler {
            every,
            left: every,
            flows: BTreeMap::new(),
            flows_max,
            interval_ns: interval_s.saturating_mul(SECOND_NS),
            exporter,
        })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        context.count(PACKETS, 1);
        self.left -= 1;
        if self.left == 0 {
            self.left = self.every;
            if let Some(headers) = packet.headers() {
                context.count(SAMPLED, 1);
                self.take(packet, &headers, context);
            }
        }
        Decision::Forward
    }

    fn timeout(&mut self, context: &mut Context<'_>) {
        self.export(context, false);
        if !self.flows.is_empty() {
            context.set_timer(context.now_ns() + BETWEEN_MESSAGES_NS);
        }
    }
}

impl Sampler {
    fn take(&mut self, packet: &Packet<'_>, headers: &Headers, context: &mut Context<'_>) {
        let ports = headers.ports(packet.bytes()).unwrap_or((0, 0));
        let (source, destination) =
            (address_bits(headers.source), address_bits(headers.destination));
        let protocol = headers.protocol;
        let key = Key { ports, source, destination, protocol };
        if self.flows.len() >= self.flows_max && !self.flows.contains_key(&key) {
            self.export(context, true);
        }
        if self.flows.is_empty() && context.timer().is_none() {
            context.set_timer(context.now_ns().saturating_add(self.interval_ns));
        }
        let now_ns = context.now_ns();
        let fresh = Seen { first_ns: now_ns, ..Seen::default() };
        let seen = self.flows.entry(key).or_insert(fresh);
        seen.packets += 1;
        seen.bytes += u64::from(packet.ip_bytes());
        seen.last_ns = now_ns;
        let flags = headers.transport_at.and_then(|at| packet.bytes().get(at + 13));
        seen.tcp_flags |= flags.copied().filter(|_| protocol == TCP).unwrap_or(0);
    }

    /// Exports as many flows as a message holds.
    fn export(&mut self, context: &mut Context<'_>, for_want_of_room: bool) {
        let mut message = self.exporter.begin(context.now_ns());
        for _ in 0..RECORDS_MAX {
            let Some((key, seen)) = self.flows.pop_first() else { break };
            if !message.add(&key, &seen, for_want_of_room) {
                self.flows.insert(key, seen);
                break;
            }
        }
        if message.records() == 0 {
            return;
        }
        context.count(RECORDS, u64::from(message.records()));
        let datagram = self.exporter.end(message);
        let counter = if context.emit(&datagram) { MESSAGES } else { UNSENT };
        context.count(counter, 1);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use nilometer_flow::collector::Collector;
    use nilometer_flow::record::FlowRecord;
    use nilometer_flow::template::{Exporter as From, Limits};
    use nilometer_plugin::headers::UDP;

    use super::*;
    use crate::testing::{Bench, holds, refused, tcp, udp};

    const TO: &str = "collector=192.0.2.9:4739 source=192.0.2.1:9000";

    /// What Nilometer's own collector reads in the messages.
    fn read(messages: &[Vec<u8>]) -> (Vec<FlowRecord>, u64) {
        let mut collector = Collector::new(Limits::default());
        let mut records = Vec::new();
        for message in messages {
            assert!(holds(message), "the checksums of the datagram");
            let header = if message[0] >> 4 == 4 { 28 } else { 48 };
            let from = From { address: "192.0.2.1".parse().expect("an address"), port: 9_000 };
            collector
                .receive(from, 0, &message[header..], &mut |record| records.push(record))
                .expect("IPFIX");
        }
        collector.finish();
        (records, collector.counts().records_lost)
    }

    #[test]
    fn our_own_collector_reads_the_sampled_flows() {
        let mut bench = Bench::<Sampler>::new(&format!("every=1 epoch=1000 {TO}"));
        for flags in [2, 16, 17] {
            bench.forwarded(&mut tcp("10.0.0.1:5000", "10.0.0.2:80", flags));
            bench.wait(1_500_000_000);
        }
        bench.forwarded(&mut udp("[fd00::1]:53", "[fd00::2]:4000", 100));
        bench.wait(10 * SECOND_NS);
        let (records, lost) = read(&bench.wishes.emitted);
        assert_eq!((records.len(), lost), (2, 0));
        let flow = records.iter().find(|record| record.key.protocol == TCP).expect("the flow");
        assert_eq!((flow.packets, flow.octets, flow.tcp_flags), (3, 120, 19));
        assert_eq!((flow.key.source_port, flow.key.destination_port), (5_000, 80));
        assert_eq!((flow.start_ns, flow.end_ns), (1_000_000_000_000, 1_003_000_000_000));
        let flow = records.iter().find(|record| record.key.protocol == UDP).expect("the flow");
        assert_eq!((flow.packets, flow.octets), (1, 148));
        assert_eq!(flow.key.source, "fd00::1".parse::<IpAddr>().expect("an address"));
    }

    #[test]
    fn one_packet_in_n_is_taken_and_the_records_say_so() {
        let mut bench = Bench::<Sampler>::new(&format!("every=10 {TO}"));
        for number in 0..1_000 {
            bench.forwarded(&mut udp(&format!("10.0.0.{}:9", number % 7), "10.0.1.1:53", 20));
        }
        bench.wait(20 * SECOND_NS);
        let (records, _) = read(&bench.wishes.emitted);
        assert_eq!(records.iter().map(|record| record.packets).sum::<u64>(), 100);
        assert!(records.iter().all(|record| record.sampling_interval == 10));
        assert_eq!(records.len(), 7);
    }

    #[test]
    fn no_flow_is_lost_where_the_cache_is_full_and_messages_stay_short() {
        let mut bench = Bench::<Sampler>::new(&format!("every=1 flows=50 {TO}"));
        for number in 0..2_000 {
            let source = format!("10.{}.{}.1:9", number / 250, number % 250);
            bench.forwarded(&mut udp(&source, "10.0.1.1:53", 20));
        }
        bench.wait(20 * SECOND_NS);
        assert!(bench.wishes.emitted.iter().all(|message| message.len() <= 1_400));
        let (records, lost) = read(&bench.wishes.emitted);
        assert_eq!((records.len(), lost), (2_000, 0));
        assert_eq!(bench.counters()[RECORDS], 2_000);
    }

    #[test]
    fn a_collector_may_be_reached_by_ipv6() {
        let to = "collector=[2001:db8::9]:4739 source=[2001:db8::1]:9000";
        let mut bench = Bench::<Sampler>::new(&format!("every=1 {to}"));
        bench.forwarded(&mut udp("10.0.0.1:9", "10.0.1.1:53", 20));
        bench.wait(20 * SECOND_NS);
        assert_eq!(read(&bench.wishes.emitted).0.len(), 1);
    }

    #[test]
    fn settings_are_checked() {
        let zero = "`every=` and `interval=` must be at least 1";
        assert_eq!(refused::<Sampler>(&format!("every=0 {TO}")), zero);
        let versions = "every=1 collector=[::1]:1 source=192.0.2.1:1";
        let line = "`collector=` and `source=` are of two versions of IP";
        assert_eq!(refused::<Sampler>(versions), line);
        assert_eq!(refused::<Sampler>("every=1"), "`collector=` is missing");
    }
}
