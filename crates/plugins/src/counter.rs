//! Packets and bytes counted, by protocol.

use alloc::string::String;

use nilometer_plugin::headers::{ICMP, ICMPV6, TCP, UDP};
use nilometer_plugin::{Context, Decision, Packet, Plugin, Settings};

const PACKETS: usize = 0;
const BYTES: usize = 1;
const TCP_PACKETS: usize = 2;
const UDP_PACKETS: usize = 3;
const ICMP_PACKETS: usize = 4;
const OTHER_PACKETS: usize = 5;

/// Counts what passes. It has no settings.
pub struct Counter;

impl Plugin for Counter {
    const NAME: &'static str = "counter";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 64;
    const COUNTERS: &'static [&'static str] =
        &["packets", "bytes", "tcp_packets", "udp_packets", "icmp_packets", "other_packets"];

    fn new(configuration: &str) -> Result<Counter, String> {
        Settings::parse(configuration)?.finish()?;
        Ok(Counter)
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        context.count(PACKETS, 1);
        context.count(BYTES, packet.ip_bytes().into());
        let protocol = packet.headers().map(|headers| headers.protocol);
        let counter = match protocol {
            Some(TCP) => TCP_PACKETS,
            Some(UDP) => UDP_PACKETS,
            Some(ICMP | ICMPV6) => ICMP_PACKETS,
            _ => OTHER_PACKETS,
        };
        context.count(counter, 1);
        Decision::Forward
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, icmp_echo, tcp, udp};

    #[test]
    fn each_protocol_is_counted() {
        let mut bench = Bench::<Counter>::new("");
        bench.forwarded(&mut udp("10.0.0.1:5", "10.0.0.2:6", 100));
        bench.forwarded(&mut tcp("10.0.0.1:5", "10.0.0.2:6", 2));
        bench.forwarded(&mut tcp("[fd00::1]:5", "[fd00::2]:6", 2));
        bench.forwarded(&mut icmp_echo("10.0.0.1", "10.0.0.2", 8, 7));
        assert_eq!(bench.counters(), [4, 128 + 40 + 60 + 36, 2, 1, 1, 0]);
        bench.forwarded(&mut [0; 3]);
        assert_eq!(bench.counters()[5], 1);
    }
}
