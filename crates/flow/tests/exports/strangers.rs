//! Attackers that fill the collector's tables, and an exporter whose records are still read.

use std::net::{IpAddr, Ipv4Addr};

use nilometer_flow::collector::Collector;
use nilometer_flow::counts::Skip;
use nilometer_flow::template::{Exporter, Limits};

use crate::template::{iana, ipfix, set, template, v9};

/// The exporter that is in use: its address, its domain and its records.
const OWNER: u32 = 0x0a00_0001;
const DOMAIN: u32 = 1;
const RECORDS: u32 = 200;
/// Source and destination of IPv4, bytes and packets.
const FIELDS: [(u16, u16, Option<u32>); 4] =
    [(8, 4, None), (12, 4, None), (1, 4, None), (2, 4, None)];

fn exporter(address: u32) -> Exporter {
    Exporter { address: IpAddr::from(Ipv4Addr::from(address)), port: 2_055 }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Dialect {
    NetFlow9,
    Ipfix,
}

impl Dialect {
    fn datagram(self, sequence: u32, domain: u32, sets: &[Vec<u8>]) -> Vec<u8> {
        match self {
            Dialect::NetFlow9 => v9(sequence, domain, sets),
            Dialect::Ipfix => ipfix(sequence, domain, sets),
        }
    }

    fn template(self) -> Vec<u8> {
        let id = if self == Dialect::NetFlow9 { 0 } else { 2 };
        set(id, &template(256, &FIELDS))
    }
}

/// A set of one record, recognised by its count of bytes.
fn record(bytes: u32) -> Vec<u8> {
    let words = [0xc633_6401, 0xcb00_7101, bytes, 1];
    set(256, &words.into_iter().flat_map(u32::to_be_bytes).collect::<Vec<u8>>())
}

/// The behaviour of attackers.
#[derive(Clone, Copy, Debug)]
struct Attack {
    /// Addresses that they spoof, and domains of each.
    addresses: u32,
    domains: u32,
    /// Do they send records beside their templates?
    with_records: bool,
}

struct Scene {
    collector: Collector,
    dialect: Dialect,
    /// Domains that attackers have invented.
    invented: u32,
    /// The byte counts of the owner's records, in the order read.
    read: Vec<u64>,
    strangers: u64,
}

impl Scene {
    fn new(dialect: Dialect) -> Scene {
        let collector = Collector::new(Limits::default());
        Scene { collector, dialect, invented: 0, read: Vec::new(), strangers: 0 }
    }

    fn send(&mut self, from: Exporter, datagram: &[u8]) {
        let (read, strangers) = (&mut self.read, &mut self.strangers);
        let out = &mut |flow: nilometer_flow::FlowRecord| match flow.octets {
            0 => *strangers += 1,
            bytes => read.push(bytes),
        };
        self.collector.receive(from, 0, datagram, out).expect("a sound export");
    }

    /// Sends this many datagrams of attackers.
    fn attacked(&mut self, by: Attack, datagrams: u32) {
        for _ in 0..datagrams {
            let number = self.invented;
            self.invented += 1;
            let from = exporter(0x1400_0000 + number % by.addresses);
            let domain = 1_000 + number / by.addresses % by.domains;
            let mut sets = vec![self.dialect.template()];
            if by.with_records {
                sets.push(record(0));
            }
            self.send(from, &self.dialect.datagram(0, domain, &sets));
        }
    }

    fn send_from_owner(&mut self, sequence: u32, sets: &[Vec<u8>]) {
        self.send(exporter(OWNER), &self.dialect.datagram(sequence, DOMAIN, sets));
    }
}

/// From one address and from many; each attack sends more than every table holds.
const ATTACKS: [Attack; 4] = [
    Attack { addresses: 1, domains: 100_000, with_records: false },
    Attack { addresses: 5, domains: 100_000, with_records: true },
    Attack { addresses: 4_096, domains: 1, with_records: false },
    Attack { addresses: 1_000_000, domains: 1, with_records: false },
];

#[test]
fn all_records_of_an_exporter_are_read_during_a_flood_of_templates() {
    for dialect in [Dialect::NetFlow9, Dialect::Ipfix] {
        for attack in ATTACKS {
            let mut scene = Scene::new(dialect);
            scene.attacked(attack, 20_000);
            scene.send_from_owner(0, &[dialect.template()]);
            // Fewer than the places that new entries have among domains and templates.
            scene.attacked(attack, 1_000);
            for number in 1..=RECORDS {
                scene.send_from_owner(number, &[record(number)]);
                scene.attacked(attack, 100);
            }
            scene.collector.finish();
            let expected: Vec<u64> = (1..=RECORDS).map(u64::from).collect();
            assert_eq!(scene.read, expected, "{dialect:?} beside {attack:?}");
            let counts = scene.collector.counts();
            assert_eq!(counts.skips.of(Skip::NoTemplate), 0, "{dialect:?} beside {attack:?}");
            let evictions = scene.collector.evictions();
            assert_eq!(counts.skips.of(Skip::TemplateEvicted), evictions.templates());
            if attack.addresses != 4_096 {
                assert!(evictions.templates() > 30_000, "{dialect:?} beside {attack:?}");
            }
            let strangers = if attack.with_records { u64::from(scene.invented) } else { 0 };
            assert_eq!(scene.strangers, strangers, "their records are read, too");
        }
    }
}

#[test]
fn strangers_with_records_do_not_silence_an_exporter_that_sends_regularly() {
    let attack = Attack { addresses: 1_000_000, domains: 1, with_records: true };
    let mut scene = Scene::new(Dialect::NetFlow9);
    scene.send_from_owner(0, &[scene.dialect.template()]);
    for number in 1..=RECORDS {
        scene.send_from_owner(number, &[record(number)]);
        // As soon as it was useful in eight datagrams, only entries useful in one can be evicted.
        scene.attacked(attack, if number < 8 { 300 } else { 10_000 });
    }
    assert_eq!(scene.read.len(), RECORDS as usize);
    assert!(scene.collector.evictions().templates() > 1_900_000);
    let (worst, count) = scene.collector.evictions().worst().expect("many went");
    assert!(worst != exporter(OWNER).address && count < 10_000, "{worst}: {count}");
}

#[test]
fn records_that_wait_for_their_template_wait_beside_those_of_strangers() {
    for addresses in [1, 3, 100_000] {
        let mut scene = Scene::new(Dialect::Ipfix);
        // Sets of 1,400 bytes whose templates never come: more than there is room for.
        let body = set(300, &[0; 1_400]);
        let strangers = |scene: &mut Scene, count: u32| {
            for number in 0..count {
                let from = exporter(0x1400_0000 + number % addresses);
                scene.send(from, &ipfix(0, number, std::slice::from_ref(&body)));
            }
        };
        strangers(&mut scene, 20_000);
        for number in 0..RECORDS {
            scene.send_from_owner(number, &[record(1 + number)]);
            strangers(&mut scene, 30);
        }
        scene.send_from_owner(RECORDS, &[scene.dialect.template()]);
        let expected: Vec<u64> = (1..=RECORDS).map(u64::from).collect();
        assert_eq!(scene.read, expected, "beside {addresses} addresses");
        scene.collector.finish();
        assert!(scene.collector.counts().skips.of(Skip::NoTemplate) > 20_000);
    }
}

#[test]
fn an_address_loses_its_own_templates_when_it_has_too_many() {
    let limits = Limits { templates_of_address_max: 3, ..Limits::default() };
    let mut collector = Collector::new(limits);
    let least = [iana(8, 4), iana(12, 4), iana(1, 4)];
    let mut flows = 0;
    let mut send = |collector: &mut Collector, address: u32, sets: &[Vec<u8>]| {
        let out = &mut |_| flows += 1;
        collector.receive(exporter(address), 0, &ipfix(0, 7, sets), out).expect("sound");
    };
    for id in 256..259 {
        send(&mut collector, 1, &[set(2, &template(id, &least)), set(id, &[0; 12])]);
        send(&mut collector, 2, &[set(2, &template(id, &least))]);
    }
    send(&mut collector, 1, &[set(256, &[0; 12])]);
    send(&mut collector, 1, &[set(2, &template(259, &least))]);
    // 257 was useful least recently.
    assert_eq!(collector.evictions().worst(), Some((exporter(1).address, 1)));
    assert_eq!(collector.evictions().useful(), 1);
    send(&mut collector, 1, &[set(256, &[0; 12]), set(258, &[0; 12]), set(257, &[0; 12])]);
    send(&mut collector, 2, &[set(257, &[0; 12])]);
    collector.finish();
    assert_eq!(collector.counts().skips.of(Skip::NoTemplate), 1, "257 of the first");
    assert_eq!(flows, 7);
}
