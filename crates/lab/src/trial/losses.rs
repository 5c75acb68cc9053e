//! Losses: packets that the meter misses on the far side, compared with the router's own drop counts by
//! reason.
//!
//! The meter sees that a packet entered the device and never left; it does not see why. The router counts
//! by reason, and does not see packets that never reached it. The two counts are of the same packets but
//! independent: where they differ, the difference is reported and not adjusted.

use std::collections::BTreeMap;

pub use super::lost::{Loss, Unexplained, WAYS};
use super::outcome::InterfaceOutcome;
use super::router::RouterSeen;
use nilometer_routerd::tally::PortTally;

/// The device's reasons for outgoing packets; the others are for incoming ones.
const OUTWARD: [&str; 2] = ["tx_invalid", "unsent"];

/// Collects losses, leaving out zeros.
#[derive(Default)]
struct Found(Vec<Loss>);

impl Found {
    fn put(&mut self, way: usize, [port, place, reason]: [&str; 3], packets: u64) {
        if packets > 0 {
            let [port, place, reason] = [port, place, reason].map(str::to_owned);
            let direction = WAYS[way].to_owned();
            self.0.push(Loss { direction, port, place, reason, packets });
        }
    }

    fn put_all(&mut self, way: usize, [port, place]: [&str; 2], all: &BTreeMap<String, u64>) {
        for (reason, &packets) in all {
            self.put(way, [port, place, reason], packets);
        }
    }
}

/// Explains the packets that the meter reports as `lost`, by direction.
pub fn explain(
    seen: &RouterSeen,
    interfaces: &[InterfaceOutcome],
    lost: [u64; 2],
) -> (Vec<Loss>, Unexplained) {
    let mut found = Found::default();
    // Packets received at port 0 go to the servers, packets sent there to the clients; at port 1 the
    // other way round.
    for (number, (port, host)) in seen.outcome.tally.ports.iter().zip(interfaces).enumerate() {
        let (inward, outward) = (number, 1 - number);
        found.put(inward, [&port.name, "link", "no_room"], host.tx_dropped);
        of_port(&mut found, port, [inward, outward]);
        found.put(outward, [&host.name, "host", "no_room"], host.rx_dropped);
    }
    for (way, packets) in seen.under_way.into_iter().enumerate() {
        found.put(way, ["both", "waiting", "at_the_end"], packets);
    }
    let mut rest = [0, 1].map(|way| i64::try_from(lost[way]).unwrap_or(i64::MAX));
    for loss in &found.0 {
        let way = usize::from(loss.direction == WAYS[1]);
        rest[way] -= i64::try_from(loss.packets).unwrap_or(i64::MAX);
    }
    found.0.sort_by_key(|loss| loss.direction == WAYS[1]);
    (found.0, Unexplained { to_servers: rest[0], to_clients: rest[1] })
}

fn of_port(found: &mut Found, port: &PortTally, [inward, outward]: [usize; 2]) {
    let name = port.name.as_str();
    for (reason, &packets) in &port.lost {
        let way = if OUTWARD.contains(&reason.as_str()) { outward } else { inward };
        found.put(way, [name, "device", reason], packets);
    }
    for (reason, &packets) in &port.discards {
        let place = if reason == "denied" { "filter" } else { "router" };
        found.put(inward, [name, place, reason], packets);
    }
    found.put_all(inward, [name, "input queue"], &port.input_drops);
    found.put_all(outward, [name, "output queue"], &port.output_drops);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::router::RouterOutcome;
    use nilometer_routerd::tally::Tally;

    fn counted(reason: &str, packets: u64) -> BTreeMap<String, u64> {
        BTreeMap::from([(reason.to_owned(), packets)])
    }

    /// Each counter goes to the direction of the packets that it counts.
    #[test]
    fn losses_are_reported_by_direction_with_an_unexplained_rest() {
        let port = |name: &str| PortTally { name: name.to_owned(), ..PortTally::default() };
        let mut lost = counted("ring_full", 1);
        lost.insert("unsent".to_owned(), 2);
        let client = PortTally {
            lost,
            discards: counted("denied", 4),
            input_drops: counted("full", 8),
            output_drops: counted("early", 16),
            ..port("client")
        };
        let server = PortTally { discards: counted("expired", 32), ..port("server") };
        let tally = Tally { ports: vec![client, server], ..Tally::default() };
        let outcome = RouterOutcome { tally, ..RouterOutcome::default() };
        let seen = RouterSeen { outcome, courses: Vec::new(), under_way: [64, 128] };
        let host = |name: &str, tx_dropped, rx_dropped| InterfaceOutcome {
            name: name.to_owned(),
            tx_packets: 0,
            rx_packets: 0,
            metered_tx: 0,
            metered_rx: 0,
            tx_dropped,
            rx_dropped,
            not_ip: 0,
        };
        let hosts = [host("client", 256, 512), host("server", 1_024, 2_048)];
        let (losses, rest) = explain(&seen, &hosts, [2_381 + 3, 1_000]);
        let sum = |way: &str| -> u64 {
            losses.iter().filter(|it| it.direction == way).map(|it| it.packets).sum()
        };
        assert_eq!(sum("to_servers"), 1 + 4 + 8 + 64 + 256 + 2_048);
        assert_eq!(sum("to_clients"), 2 + 16 + 32 + 128 + 512 + 1_024);
        assert_eq!(rest, Unexplained { to_servers: 3, to_clients: 1_000 - 1_714 });
        assert!(losses.is_sorted_by_key(|it| it.direction == WAYS[1]));
        assert_eq!(losses.len(), 12, "{losses:?}");
        let filter = losses.iter().find(|it| it.reason == "denied").expect("a filter");
        assert_eq!((filter.port.as_str(), filter.place.as_str()), ("client", "filter"));
    }
}
