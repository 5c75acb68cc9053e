//! Half-open TCP connections bounded, by source and by destination, against floods of SYNs (RFC 4987).
//!
//! A SYN makes a connection half-open until its client sends an ACK or a RST, or until it times out. One source can hold no
//! more than its share, so that one host cannot fill a server's backlog; and a destination gets no more than it can hold,
//! whatever the sources claim to be. What is beyond is dropped: an honest client sends its SYN again. There are no SYN
//! cookies: the scrubber does not answer for the server.
//!
//! Bind it to the packets towards the servers; it needs to see only that direction.

use alloc::collections::BTreeMap;
use alloc::string::String;

use nilometer_plugin::headers::{TCP, address_bits};
use nilometer_plugin::{Context, Decision, Headers, Packet, Plugin, Settings};

use crate::SECOND_NS;
use crate::expiring::Expiring;

const SYNS: usize = 0;
const COMPLETED: usize = 1;
const TIMED_OUT: usize = 2;
const OF_SOURCE: usize = 3;
const OF_DESTINATION: usize = 4;
const TABLE_FULL: usize = 5;

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The most connections known at a time.
const TABLE_MAX: usize = 65_536;
/// How often the table is swept for those that timed out, and by how many steps of four entries.
const SWEEP_NS: u64 = 10_000_000;
const SWEEPS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Connection {
    ports: (u16, u16),
    source: u128,
    destination: u128,
}

/// How many connections of each address are half-open.
#[derive(Default)]
struct Shares(BTreeMap<u128, u32>);

impl Shares {
    fn of(&self, address: u128) -> u32 {
        self.0.get(&address).copied().unwrap_or(0)
    }

    fn add(&mut self, address: u128) {
        *self.0.entry(address).or_default() += 1;
    }

    fn take(&mut self, address: u128) {
        if let Some(count) = self.0.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&address);
            }
        }
    }
}

/// Scrubs SYNs.
///
/// Settings: `per_source=N` (16) and `per_destination=N` (1024) half-open connections, `timeout=S` (10), and `table=N`
/// (16384) of all together.
pub struct Scrubber {
    half_open: Expiring<Connection, ()>,
    sources: Shares,
    destinations: Shares,
    per_source: u32,
    per_destination: u32,
    timeout_ns: u64,
}

impl Plugin for Scrubber {
    const NAME: &'static str = "scrubber";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 96;
    const COUNTERS: &'static [&'static str] = &[
        "syns",
        "completed",
        "timed_out",
        "dropped_by_source",
        "dropped_by_destination",
        "dropped_table_full",
    ];

    fn new(configuration: &str) -> Result<Scrubber, String> {
        let mut settings = Settings::parse(configuration)?;
        let per_source = settings.or("per_source", 16)?;
        let per_destination = settings.or("per_destination", 1_024)?;
        let timeout_s: u64 = settings.or("timeout", 10)?;
        let table: usize = settings.or("table", 16_384)?;
        settings.finish()?;
        if per_source == 0 || per_destination == 0 || timeout_s == 0 {
            return Err(
                "`per_source=`, `per_destination=` and `timeout=` must be at least 1".into()
            );
        }
        if !(1..=TABLE_MAX).contains(&table) {
            return Err(alloc::format!("`table=` must be from 1 to {TABLE_MAX}"));
        }
        Ok(Scrubber {
            half_open: Expiring::new(table),
            sources: Shares::default(),
            destinations: Shares::default(),
            per_source,
            per_destination,
            timeout_ns: timeout_s.saturating_mul(SECOND_NS),
        })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        let Some((connection, flags)) = segment(packet) else { return Decision::Forward };
        if flags & SYN == 0 {
            let is_over = flags & (ACK | RST) != 0 && self.half_open.remove(&connection).is_some();
            if is_over {
                self.sources.take(connection.source);
                self.destinations.take(connection.destination);
                context.count(COMPLETED, 1);
            }
            return Decision::Forward;
        }
        if flags & ACK != 0 {
            return Decision::Forward;
        }
        context.count(SYNS, 1);
        match self.open(connection, context) {
            None => Decision::Forward,
            Some(counter) => {
                context.count(counter, 1);
                Decision::Drop
            }
        }
    }

    fn timeout(&mut self, context: &mut Context<'_>) {
        for _ in 0..SWEEPS {
            self.sweep(context);
        }
        if !self.half_open.is_empty() {
            context.set_timer(context.now_ns() + SWEEP_NS);
        }
    }
}

impl Scrubber {
    /// Makes a connection half-open; else, under which counter it is not.
    fn open(&mut self, connection: Connection, context: &mut Context<'_>) -> Option<usize> {
        let now_ns = context.now_ns();
        self.sweep(context);
        let until_ns = now_ns.saturating_add(self.timeout_ns);
        if let Some((_, until)) = self.half_open.get_mut(&connection, now_ns) {
            *until = until_ns;
            return None;
        }
        // One that timed out and was not swept yet is replaced, and counted as timed out.
        if self.half_open.remove(&connection).is_some() {
            self.ended(connection, context);
        }
        if self.sources.of(connection.source) >= self.per_source {
            return Some(OF_SOURCE);
        }
        if self.destinations.of(connection.destination) >= self.per_destination {
            return Some(OF_DESTINATION);
        }
        if !self.half_open.insert(connection, (), until_ns, now_ns, |_, ()| {}) {
            return Some(TABLE_FULL);
        }
        self.sources.add(connection.source);
        self.destinations.add(connection.destination);
        if context.timer().is_none() {
            context.set_timer(now_ns + SWEEP_NS);
        }
        None
    }

    /// Ends some that timed out.
    fn sweep(&mut self, context: &mut Context<'_>) {
        let Scrubber { half_open, sources, destinations, .. } = self;
        half_open.sweep(context.now_ns(), &mut |connection: Connection, ()| {
            sources.take(connection.source);
            destinations.take(connection.destination);
            context.count(TIMED_OUT, 1);
        });
    }

    fn ended(&mut self, connection: Connection, context: &mut Context<'_>) {
        self.sources.take(connection.source);
        self.destinations.take(connection.destination);
        context.count(TIMED_OUT, 1);
    }
}

/// The connection and the flags of a TCP segment.
fn segment(packet: &Packet<'_>) -> Option<(Connection, u8)> {
    let headers: Headers = packet.headers().filter(|headers| headers.protocol == TCP)?;
    let ports = headers.ports(packet.bytes())?;
    let flags = *packet.bytes().get(headers.transport_at? + 13)?;
    let (source, destination) = (address_bits(headers.source), address_bits(headers.destination));
    Some((Connection { ports, source, destination }, flags))
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::testing::{Bench, refused, tcp};

    fn syn(source: &str, port: u16) -> alloc::vec::Vec<u8> {
        tcp(&format!("{source}:{port}"), "192.0.2.1:80", SYN)
    }

    #[test]
    fn a_source_holds_no_more_than_its_share() {
        let mut bench = Bench::<Scrubber>::new("per_source=3");
        for port in 1..=3 {
            bench.forwarded(&mut syn("10.0.0.1", port));
            bench.forwarded(&mut syn("10.0.0.1", port)); // sent again: the same connection
        }
        bench.dropped(&mut syn("10.0.0.1", 4));
        bench.forwarded(&mut syn("10.0.0.2", 4));
        // A handshake that ends makes room.
        bench.forwarded(&mut tcp("10.0.0.1:2", "192.0.2.1:80", ACK));
        bench.forwarded(&mut syn("10.0.0.1", 4));
        bench.forwarded(&mut tcp("10.0.0.1:3", "192.0.2.1:80", RST));
        bench.forwarded(&mut syn("10.0.0.1", 5));
        bench.dropped(&mut syn("10.0.0.1", 6));
        assert_eq!(bench.counters(), [11, 2, 0, 2, 0, 0]);
    }

    #[test]
    fn a_destination_gets_no_more_than_its_limit_from_any_sources() {
        let mut bench = Bench::<Scrubber>::new("per_destination=100");
        let mut passed = 0;
        for host in 0..1_000 {
            let mut packet = syn(&format!("10.9.{}.{}", host / 250, host % 250), 1_000);
            passed += u32::from(bench.decide(&mut packet) == Decision::Forward);
        }
        assert_eq!((passed, bench.counters()[OF_DESTINATION]), (100, 900));
        // Established traffic and other destinations are not held up.
        bench.forwarded(&mut tcp("10.1.1.1:7", "192.0.2.1:80", ACK));
        bench.forwarded(&mut tcp("10.1.1.1:7", "192.0.2.2:80", SYN));
    }

    #[test]
    fn half_open_connections_time_out() {
        let mut bench = Bench::<Scrubber>::new("per_source=3000 per_destination=3000 timeout=10");
        (0..3_000).for_each(|port| bench.forwarded(&mut syn("10.0.0.1", port)));
        bench.dropped(&mut syn("10.0.0.1", 3_000));
        bench.wait(9 * SECOND_NS);
        bench.dropped(&mut syn("10.0.0.1", 3_000));
        bench.wait(2 * SECOND_NS);
        (0..3_000).for_each(|port| bench.forwarded(&mut syn("10.0.0.1", 4_000 + port)));
        assert_eq!(bench.counters()[TIMED_OUT], 3_000);
        bench.wait(20 * SECOND_NS);
        assert_eq!(bench.counters()[TIMED_OUT], 6_000, "by the timer alone");
    }

    #[test]
    fn the_table_is_bounded() {
        let mut bench = Bench::<Scrubber>::new("per_source=100 table=10");
        (0..20).for_each(|port| _ = bench.decide(&mut syn("10.0.0.1", port)));
        assert_eq!(bench.counters()[TABLE_FULL], 10);
        assert_eq!(
            refused::<Scrubber>("timeout=0"),
            "`per_source=`, `per_destination=` and `timeout=` must be at least 1"
        );
        assert_eq!(refused::<Scrubber>("table=0"), "`table=` must be from 1 to 65536");
    }
}
