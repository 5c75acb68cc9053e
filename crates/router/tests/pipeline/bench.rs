//! A router of four ports on a bench: its memory, its tables, and its input frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use nilometer_queue::aal5::Framing;
use nilometer_queue::distributed::{SwitchShape, Variant};
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{Any, Capacity, DisciplineKind, Settings, Sharing};
use nilometer_router::classifier::{Classified, ClassifierTuples};
use nilometer_router::fabric::FabricPlan;
use nilometer_router::fib::{Fib, NextHop};
use nilometer_router::memory::Memory;
use nilometer_router::neighbour::{Given, Mac};
use nilometer_router::next_hop::{Hop, Member, NextHops, Point};
use nilometer_router::pipeline::engine::{Filters, Tables};
use nilometer_router::pipeline::port::PortPlan;
use nilometer_router::pipeline::{Router, RouterPlan};
use nilometer_router::{Prefix, TreeBitmap};
use nilometer_wire::memory::HeapMemory;
use nilometer_wire::{Rate, Span, Time, build};

pub const PORTS: usize = 4;

pub fn mac(port: usize) -> Mac {
    [2, 0, 0, 0, 0, port as u8]
}

pub fn host(port: usize) -> Mac {
    [2, 0, 0, 1, 0, port as u8]
}

fn link() -> Rate {
    Rate::from_megabits(10_000)
}

/// The router, its memory, and what may be changed beside it.
pub struct Bench {
    pub router: Router,
    pub memory: HeapMemory,
    pub hops: NextHops,
    pub fib4: TreeBitmap<u32>,
    pub fib6: TreeBitmap<u128>,
    pub now: Time,
}

/// The plans of the bench, for changes.
pub struct Plans {
    pub router: RouterPlan,
    pub ports: Vec<PortPlan>,
}

pub fn port(number: usize) -> PortPlan {
    let third = number as u8;
    let own4 = u32::from(Ipv4Addr::new(198, 18, third, 1));
    let own6 = u128::from(Ipv6Addr::new(0xfd00, number as u16, 0, 0, 0, 0, 0, 1));
    PortPlan {
        addresses4: vec![(own4, 24)],
        addresses6: vec![(own6, 64)],
        address_probes: 0,
        ..PortPlan::new(&format!("port{number}"), mac(number))
    }
}

fn filters<A: Classified + Send + 'static>() -> Filters<A> {
    Filters::new(Box::new(ClassifierTuples::<A>::new(1_000)))
}

impl Bench {
    /// Ports 0 to 3 with networks 198.18.N.0/24 and fd00:N::/64; 198.19.N.0/24 and fd00:1N::/64 are
    /// behind host 2 of network N, whose link-layer address is known.
    pub fn new() -> Bench {
        Bench::with(|_| ())
    }

    /// A bench with other plans of the ports and of the router.
    pub fn with(change: impl Fn(&mut Plans)) -> Bench {
        let shape =
            SwitchShape::new(PORTS, 2.0, link(), Span::from_nanos(500_000)).expect("a shape");
        let variant = Variant::DqPlus {
            minimum_backlog_bytes: 1_500,
            minimum_share: Variant::minimum_share(PORTS),
            deferral_periods: None,
        };
        let sharing = Sharing::default();
        let input =
            InputLimits { packets: 2_000, packet_bytes: 9_300, sharing, framing: Framing::Whole };
        let fabric = FabricPlan { shape, variant: Some(variant), input, memory: None };
        let mut plans =
            Plans { router: RouterPlan::new(fabric, 7), ports: (0..PORTS).map(port).collect() };
        change(&mut plans);
        let settings = Settings {
            mtu_bytes: 9_300,
            ..Settings::new(DisciplineKind::Qsdrr, Capacity::Packets(500), link())
        };
        let with_discipline = |plan| (plan, Any::new(&settings).expect("settings"));
        let ports = plans.ports.into_iter().map(with_discipline).collect();
        let fib4 = TreeBitmap::new(1 << 20).expect("room");
        let fib6 = TreeBitmap::new(1 << 20).expect("room");
        let tables = Tables {
            routes4: fib4.reader().map(|reader| Box::new(reader) as _).expect("a reader"),
            routes6: fib6.reader().map(|reader| Box::new(reader) as _).expect("a reader"),
            filters4: filters(),
            filters6: filters(),
        };
        let router = Router::new(plans.router, ports, tables).expect("a router");
        let hops = NextHops::new(256, 4_096);
        let memory = HeapMemory::new(4_096);
        let mut bench = Bench { router, memory, hops, fib4, fib6, now: Time::ZERO };
        for number in 0..PORTS {
            bench.connect(number);
        }
        bench.renew();
        bench
    }

    fn connect(&mut self, number: usize) {
        let (port, third) = (number as u16, number as u8);
        let gateway4 = Ipv4Addr::new(198, 18, third, 2);
        let gateway6 = Ipv6Addr::new(0xfd00, number as u16, 0, 0, 0, 0, 0, 2);
        let local = self.way(Hop::Local);
        let on_link = self.way(Hop::Via { port, gateway: None });
        let by4 = self.way(Hop::Via { port, gateway: Some(gateway4.into()) });
        let by6 = self.way(Hop::Via { port, gateway: Some(gateway6.into()) });
        self.route4(&format!("198.18.{number}.0/24"), on_link);
        self.route4(&format!("198.18.{number}.1/32"), local);
        self.route4(&format!("198.19.{number}.0/24"), by4);
        self.route6(&format!("fd00:{number}::/64"), on_link);
        self.route6(&format!("fd00:{number}::1/128"), local);
        self.route6(&format!("fd00:1{number}::/64"), by6);
        let router = self.router.port_mut(number);
        let table = &mut router.arp_mut().table;
        if table.own().is_on_link(gateway4.into()) {
            table.set(Time::ZERO, gateway4.into(), host(number), Given::Permanent).expect("room");
        }
        if router.neighbours6().own().is_on_link(gateway6.into()) {
            let table = router.neighbours6_mut();
            table.set(Time::ZERO, gateway6.into(), host(number), Given::Permanent).expect("room");
        }
    }

    pub fn way(&mut self, hop: Hop) -> NextHop {
        self.hops.define(&[Member { hop, weight: 1 }]).expect("room")
    }

    pub fn route4(&mut self, prefix: &str, next: NextHop) {
        let prefix: Prefix<u32> = prefix.parse().expect("a prefix");
        self.fib4.insert(prefix, next).expect("room");
    }

    pub fn route6(&mut self, prefix: &str, next: NextHop) {
        let prefix: Prefix<u128> = prefix.parse().expect("a prefix");
        self.fib6.insert(prefix, next).expect("room");
    }

    pub fn renew(&mut self) {
        let snapshot: Arc<_> = self.hops.snapshot();
        self.router.set_hops(snapshot);
    }

    pub fn fail(&mut self, point: Point) {
        self.hops.fail(point);
        self.renew();
    }

    /// Hands a frame to a port.
    pub fn receive(&mut self, port: usize, frame: &[u8]) {
        let place = self.memory.take(frame.len() as u16).expect("a buffer");
        self.memory.frame_mut(place).copy_from_slice(frame);
        self.router.receive(self.now, port, &[place], &mut self.memory, &mut ());
    }

    /// Everything that leaves, until nothing more does, as (port, frame).
    pub fn drain(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut out = Vec::new();
        for _ in 0..50 {
            self.now += Span::from_nanos(20_000);
            self.router.advance(self.now, &mut self.memory, &mut ());
            for port in 0..PORTS {
                while let Some(place) = self.router.transmit(self.now, port, &mut self.memory) {
                    out.push((port, self.memory.frame(place).to_vec()));
                    self.memory.give(place);
                }
            }
        }
        assert!(self.router.balances());
        assert_eq!(self.memory.taken() as u64, self.router.inside(), "buffers are packets");
        out
    }

    /// Everything that leaves within a time, in steps of a millisecond.
    pub fn wait(&mut self, milliseconds: u64) -> Vec<(usize, Vec<u8>)> {
        let mut out = Vec::new();
        for _ in 0..milliseconds {
            out.extend(self.drain()); // fifty steps of 20 us
        }
        out
    }

    /// The frames that leave after `frame` arrived at `port`.
    pub fn pass(&mut self, port: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        self.receive(port, frame);
        self.drain()
    }
}

/// A frame for a router's port around an IP packet.
pub fn framed(port: usize, packet: &[u8]) -> Vec<u8> {
    let mut frame = build::ethernet(packet);
    frame[..6].copy_from_slice(&mac(port));
    frame[6..12].copy_from_slice(&host(port));
    frame
}

/// A UDP packet with `bytes` of user data.
pub fn udp(from: &str, to: &str, bytes: usize) -> Vec<u8> {
    let [from, to] = [from, to].map(|text| text.parse::<IpAddr>().expect("an address"));
    build::udp((from, 1_000).into(), (to, 2_000).into(), &vec![7; bytes])
}

/// Sets the time to live and mends the checksum.
pub fn with_hop_limit(mut packet: Vec<u8>, hop_limit: u8) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        packet[7] = hop_limit;
        return packet;
    }
    packet[8] = hop_limit;
    mend(packet)
}

/// Computes the header checksum of IPv4 again.
pub fn mend(mut packet: Vec<u8>) -> Vec<u8> {
    packet[10..12].fill(0);
    let header_bytes = usize::from(packet[0] & 15) * 4;
    let sum = nilometer_wire::checksum::internet_checksum(&[&packet[..header_bytes]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}
