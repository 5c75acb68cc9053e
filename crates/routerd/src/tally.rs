//! All counters of a router, in one value that a script can read.

use std::collections::BTreeMap;

use nilometer_queue::{Ledger, Reason};
use nilometer_router::discard::Discard;
use nilometer_router::pipeline::account::Account;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::driver::{Driver, Lost, Presence};
use nilometer_linux::port::PortStatistics;
use nilometer_router::pipeline::Router;
use nilometer_wire::Time;

/// The counters of a router at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    /// Seconds since the router started.
    pub seconds: f64,
    /// Packets received on ports.
    pub received: u64,
    /// Packets received from the host kernel.
    pub injected: u64,
    /// Packets originated by the router: errors, replies, ARP requests, fragments, copies.
    pub made: u64,
    /// Packets transmitted on ports.
    pub transmitted: u64,
    /// Packets passed to the host kernel.
    pub punted: u64,
    /// Packets consumed by the router itself.
    pub absorbed: u64,
    /// Packets discarded by the router itself.
    pub discarded: u64,
    /// Packets dropped by queues.
    pub dropped: u64,
    /// Packets currently in the router.
    pub inside: u64,
    /// Whether the counters balance: every packet is accounted for.
    pub balances: bool,
    /// Broadcasts of distributed queueing.
    pub broadcasts: u64,
    /// Packets by forwarding path.
    #[serde(default)]
    pub paths: Paths,
    /// Ports, by number.
    pub ports: Vec<PortTally>,
}

/// Packets by the path that they took through the router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Paths {
    /// Forwarded in the kernel by a shortcut, bypassing the pipeline.
    pub shortcut: u64,
    /// Through the pipeline, partly or completely, without the slow path.
    pub pipeline: u64,
    /// Through the slow path: ARP and neighbour discovery, errors, options, packets for the router itself.
    pub slow_path: u64,
}

impl Paths {
    /// Of packets that came, and of how often the slow path was asked.
    pub fn of(account: &Account) -> Paths {
        let Account { received, by_shortcut, by_slow_path, .. } = *account;
        let pipeline = received.saturating_sub(by_shortcut + by_slow_path);
        Paths { shortcut: by_shortcut, pipeline, slow_path: by_slow_path }
    }

    /// Those since `before`.
    pub fn since(&self, before: &Paths) -> Paths {
        Paths {
            shortcut: self.shortcut - before.shortcut,
            pipeline: self.pipeline.saturating_sub(before.pipeline),
            slow_path: self.slow_path - before.slow_path,
        }
    }

    /// These and others.
    pub fn plus(&self, other: &Paths) -> Paths {
        Paths {
            shortcut: self.shortcut + other.shortcut,
            pipeline: self.pipeline + other.pipeline,
            slow_path: self.slow_path + other.slow_path,
        }
    }
}

/// The counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortTally {
    /// Interface name.
    pub name: String,
    /// `up`, `down` or `gone`.
    pub state: String,
    /// Frames received.
    pub in_packets: u64,
    /// Bytes received, from the Ethernet header on.
    pub in_bytes: u64,
    /// Frames transmitted.
    pub out_packets: u64,
    /// Bytes transmitted, counted as for the link's rate.
    pub out_bytes: u64,
    /// Transmitted frames that took a shortcut.
    #[serde(default)]
    pub shortcut_packets: u64,
    /// Frames lost by the device on input, and packets that left the pipeline but were not transmitted (`unsent`) or
    /// passed to the kernel (`unpunted`), by reason.
    pub lost: BTreeMap<String, u64>,
    /// Packets received here and discarded, by reason.
    pub discards: BTreeMap<String, u64>,
    /// Packets dropped by this input's queues, by reason.
    pub input_drops: BTreeMap<String, u64>,
    /// Packets dropped by this output's discipline, by reason.
    pub output_drops: BTreeMap<String, u64>,
    /// Packets queued at this output.
    pub waiting_packets: u64,
    /// Bytes queued at this output.
    pub waiting_bytes: u64,
    /// The queueing discipline.
    pub discipline: String,
}

/// A column of an SNMP table or, of the router, an object: where a counter is read by a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// Of ifTable (RFC 2863), 32 bits.
    If(u32),
    /// Of ifXTable, 64 bits.
    IfX(u32),
    /// Of our queues, a level.
    QueueLevel(u32),
    /// Of our queues, a count.
    QueueCount(u32),
}

use Object::{If, IfX, QueueCount, QueueLevel};

/// A counter of a port: its key, which is that of its metric between `port_` and `_total`, its heading for
/// display, what it counts, its SNMP objects, and its field.
pub type PortCounter =
    (&'static str, &'static str, &'static str, &'static [Object], fn(&PortTally) -> u64);

/// Counters of a port that only grow.
pub const PORT_TOTALS: [PortCounter; 5] = [
    ("in_packets", "IN packets", "Frames received.", &[If(11), IfX(7)], |port| port.in_packets),
    ("in_bytes", "IN bytes", "Bytes received.", &[If(10), IfX(6)], |port| port.in_bytes),
    ("out_packets", "OUT packets", "Frames transmitted.", &[If(17), IfX(11)], |port| {
        port.out_packets
    }),
    ("out_bytes", "OUT bytes", "Bytes transmitted.", &[If(16), IfX(10)], |port| port.out_bytes),
    ("shortcut_packets", "SHORTCUT packets", "Frames transmitted by shortcuts.", &[], |port| {
        port.shortcut_packets
    }),
];

/// Those that rise and fall.
pub const PORT_LEVELS: [PortCounter; 2] = [
    (
        "waiting_packets",
        "WAITING packets",
        "Packets waiting at the output.",
        &[QueueLevel(3)],
        |port| port.waiting_packets,
    ),
    ("waiting_bytes", "WAITING bytes", "Bytes waiting at the output.", &[QueueLevel(4)], |port| {
        port.waiting_bytes
    }),
];

/// Packets discarded at a port, by reason: the key, as above, the part that discarded them, what is
/// counted, the objects that have the sum of all reasons, and the field.
pub type PortLosses = (
    &'static str,
    &'static str,
    &'static str,
    &'static [Object],
    fn(&PortTally) -> &BTreeMap<String, u64>,
);

/// All losses at a port, in the order of a packet's path. An object named by two of them has the sum of both.
pub const PORT_LOSSES: [PortLosses; 4] = [
    ("lost", "the device", "Frames that the device lost.", &[If(14)], |port| &port.lost),
    ("discards", "the router", "Received packets that were discarded.", &[If(13)], |port| {
        &port.discards
    }),
    (
        "input_drops",
        "input queues",
        "Packets dropped by input queues.",
        &[If(13), QueueCount(6)],
        |port| &port.input_drops,
    ),
    (
        "output_drops",
        "the discipline",
        "Packets dropped by disciplines.",
        &[If(19), QueueCount(5)],
        |port| &port.output_drops,
    ),
];

/// A counter of a router: its name and its field.
pub type RouterCounter = (&'static str, fn(&Tally) -> u64);

/// Packets of a router by how they came and went.
pub const ROUTER_TOTALS: [RouterCounter; 8] = [
    ("received", |tally| tally.received),
    ("injected", |tally| tally.injected),
    ("made", |tally| tally.made),
    ("transmitted", |tally| tally.transmitted),
    ("punted", |tally| tally.punted),
    ("absorbed", |tally| tally.absorbed),
    ("discarded", |tally| tally.discarded),
    ("dropped", |tally| tally.dropped),
];

/// The counters of a port that SNMP has, each beside its object.
pub fn objects(port: &PortTally) -> BTreeMap<Object, u64> {
    let counts =
        PORT_TOTALS.into_iter().chain(PORT_LEVELS).map(|(.., objects, of)| (objects, of(port)));
    let losses =
        PORT_LOSSES.into_iter().map(|(.., objects, of)| (objects, of(port).values().sum()));
    let mut all = BTreeMap::new();
    for (objects, count) in counts.chain(losses) {
        objects.iter().for_each(|object| *all.entry(*object).or_insert(0) += count);
    }
    all
}

/// Those that are not zero.
fn counted<'a>(all: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    all.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

fn drops(ledger: &Ledger) -> BTreeMap<String, u64> {
    counted(Reason::ALL.iter().map(|reason| (reason.name(), ledger.drops.packets(*reason))))
}

/// Reads a router's counters.
pub fn tally(driver: &mut Driver) -> Tally {
    let ports = (0..driver.router().ports().len()).map(|number| port(driver, number)).collect();
    tally_of(driver.router(), driver.now(), ports)
}

/// The counters of a router at a moment, beside those of its ports.
pub fn tally_of(router: &Router, now: Time, ports: Vec<PortTally>) -> Tally {
    let account = *router.account();
    Tally {
        seconds: now.as_secs_f64(),
        received: account.received,
        injected: account.injected,
        made: account.made,
        transmitted: account.transmitted,
        punted: account.punted,
        absorbed: account.absorbed,
        discarded: account.discarded,
        dropped: router.fabric().dropped_packets(),
        inside: router.inside(),
        balances: router.balances(),
        broadcasts: router.fabric().updates(),
        paths: Paths::of(&account),
        ports,
    }
}

/// Reads the counters of port `number`. Panics where there is no such port.
pub fn port(driver: &mut Driver, number: usize) -> PortTally {
    let device = DeviceTally {
        statistics: driver.statistics(number),
        lost: driver.lost(number),
        presence: driver.presence(number),
    };
    port_of(driver.router(), number, &device)
}

/// The device behind a port of a router, and its counters.
pub struct DeviceTally {
    /// The device's counters.
    pub statistics: PortStatistics,
    /// Packets that left the pipeline and got no further.
    pub lost: Lost,
    /// Whether it is there.
    pub presence: Presence,
}

/// The counters of port `number`, with this device behind it. Panics where there is no such port.
pub fn port_of(router: &Router, number: usize, behind: &DeviceTally) -> PortTally {
    let &DeviceTally { statistics: device, lost, presence } = behind;
    let state = presence.name();
    let (port, fabric) = (&router.ports()[number], router.fabric());
    let (in_packets, in_bytes) = port.received();
    let (by_shortcut, shortcut_bytes) = port.left_by_shortcut();
    let (output, waiting) = (fabric.output_ledger(number), fabric.output_backlog(number));
    let reasons = [
        ("dropped", device.rx_dropped),
        ("invalid", device.rx_invalid),
        ("ring_full", device.rx_ring_full),
        ("fill_empty", device.rx_fill_empty),
        ("oversize", device.rx_oversize),
        ("tx_invalid", device.tx_invalid),
        ("unsent", lost.unsent),
        ("unpunted", lost.unpunted),
    ];
    let discards = Discard::ALL.iter().map(|why| (why.name(), port.discards().of(*why)));
    PortTally {
        name: port.plan().name.clone(),
        state: state.to_owned(),
        in_packets,
        in_bytes,
        out_packets: output.out_packets + by_shortcut,
        out_bytes: output.out_bytes + shortcut_bytes,
        shortcut_packets: by_shortcut,
        lost: counted(reasons.into_iter()),
        discards: counted(discards),
        input_drops: drops(fabric.input_ledger(number)),
        output_drops: drops(output),
        waiting_packets: waiting.packets,
        waiting_bytes: waiting.bytes,
        discipline: fabric.discipline(number).kind().name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_sum_of_all_that_is_counted_in_it() {
        let losses = |count| BTreeMap::from([("a".to_owned(), count), ("b".to_owned(), 1)]);
        let port = PortTally {
            in_packets: 1,
            in_bytes: 2,
            out_packets: 3,
            out_bytes: 4,
            waiting_packets: 5,
            waiting_bytes: 6,
            lost: losses(10),
            discards: losses(20),
            input_drops: losses(40),
            output_drops: losses(80),
            ..PortTally::default()
        };
        let all: Vec<_> = objects(&port).into_iter().collect();
        let of_if = [(10, 2), (11, 1), (13, 62), (14, 11), (16, 4), (17, 3), (19, 81)];
        let of_if = of_if.map(|(column, count)| (If(column), count));
        let of_if_x =
            [(6, 2), (7, 1), (10, 4), (11, 3)].map(|(column, count)| (IfX(column), count));
        let levels = [(QueueLevel(3), 5), (QueueLevel(4), 6)];
        let counts = [(QueueCount(5), 81), (QueueCount(6), 41)];
        assert_eq!(all, [&of_if[..], &of_if_x, &levels, &counts].concat());
    }
}
