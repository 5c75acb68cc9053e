//! The router of the pipeline's bench: its ports, its tables, and what of it is switched off.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use nilometer_queue::aal5::Framing;
use nilometer_queue::distributed::{SwitchShape, Variant as Equations};
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{Any, Capacity, Hashing, Settings, Sharing};
use nilometer_router::fabric::MemoryLimits;
use nilometer_router::memory::Ticket;
use nilometer_router::neighbour::{Given, Mac};
use nilometer_router::pipeline::engine::{Filters, Tables};
use nilometer_router::pipeline::port::PortPlan;
use nilometer_router::pipeline::{Router, RouterPlan};
use nilometer_router::{
    Classified, ClassifierTuples, ClassifierVectors, FabricPlan, Lookups, NextHop, Rule, RuleId,
    TreeBitmap,
};
use nilometer_wire::{Rate, Span, Time};

use super::tables::{NEXT_HOPS, Routes, gateway};
use super::{LINKS_PPS, Options, Variant};
use nilometer_linux::pages::ask_for_large_pages;

/// Most ports.
pub const PORTS_MAX: usize = 64;
/// Packets that wait at each output.
pub const BACKLOG_PACKETS: u64 = 2_048;
/// Packets that an output has room for: the backlog, and what a grant lets across.
pub const CAPACITY_PACKETS: u32 = 8_192;
/// Queues of an output.
pub const QUEUES: u32 = 1_024;
/// From one broadcast to the next (DER, 3.6).
pub const PERIOD: Span = Span::from_nanos(500_000);
/// Bytes that Ethernet adds to a frame: check sequence, preamble, gap.
pub const LINK_OVERHEAD: u16 = 24;
/// Bytes of the check sequence, which is not in memory.
pub const CHECK_BYTES: u16 = 4;
const SPEEDUP: f64 = 2.0;

/// The link-layer address of a port.
pub fn mac(port: usize) -> Mac {
    [2, 0, 0, 0, 0, port as u8]
}

/// The link-layer address of a gateway.
fn mac_of_gateway(number: u16) -> Mac {
    [2, 0, 0, 1, 0, number as u8]
}

/// The rate of each link.
pub fn link(options: &Options) -> Rate {
    let frame_bits = 8 * (u64::from(options.frame_bytes) + u64::from(LINK_OVERHEAD - CHECK_BYTES));
    let rate = Rate::new(LINKS_PPS * frame_bits / options.ports as u64);
    rate.unwrap_or(Rate::from_megabits(1))
}

/// The next hop where there is no lookup.
#[inline]
pub fn unlooked(numbers: &[NextHop], destination: u32) -> NextHop {
    numbers[destination as usize % usize::from(NEXT_HOPS)]
}

/// No lookup: the last bits of an address are its next hop.
struct Unlooked(Vec<NextHop>);

impl Lookups<u32> for Unlooked {
    fn look_up(&mut self, addresses: &[u32], next_hops: &mut [Option<NextHop>]) {
        for (address, next_hop) in addresses.iter().zip(next_hops) {
            *next_hop = Some(unlooked(&self.0, *address));
        }
    }
}

/// The router, not yet at work.
#[derive(Debug)]
pub struct Machine {
    /// It itself.
    pub router: Router,
}

impl Machine {
    /// A router of empty queues.
    ///
    /// # Errors
    /// If the options are invalid.
    pub fn new(
        routes: &Routes,
        rules: &[Rule<u32>],
        variant: Variant,
        cache: Option<usize>,
        options: &Options,
    ) -> Result<Machine> {
        let ports = options.ports;
        let shape = SwitchShape::new(ports, SPEEDUP, link(options), PERIOD)?;
        let equations = Equations::DqPlus {
            minimum_backlog_bytes: 1_500,
            minimum_share: Equations::minimum_share(ports),
            deferral_periods: None,
        };
        let sharing = Sharing::default();
        let (packets, framing) = (1 << 16, Framing::Whole);
        let input = InputLimits { packets, packet_bytes: 9_300, sharing, framing };
        let variant_of_fabric = (variant != Variant::NoDq).then_some(equations);
        // As in a router that runs, the memory is shared by rule; here no port comes near its limits.
        let memory = Some(MemoryLimits { packets: 1 << 20, sharing });
        let fabric = FabricPlan { shape, variant: variant_of_fabric, input, memory };
        let plan = RouterPlan::new(fabric, options.seed);
        let plans =
            (0..ports).map(|port| Ok((port_plan(port, options), discipline(port, options)?)));
        let tables = tables(routes, rules, variant, cache)?;
        let mut router = Router::new(plan, plans.collect::<Result<_>>()?, tables)?;
        router.set_hops(Arc::clone(&routes.hops));
        for number in 0..NEXT_HOPS {
            let (port, address) = gateway(number, ports);
            let table = &mut router.port_mut(usize::from(port)).arp_mut().table;
            table
                .set(Time::ZERO, address.into(), mac_of_gateway(number), Given::Permanent)
                .map_err(|why| anyhow!("gateway {address}: {why:?}"))?;
        }
        Ok(Machine { router })
    }
}

fn port_plan(port: usize, options: &Options) -> PortPlan {
    PortPlan {
        addresses4: vec![(u32::from(Ipv4Addr::new(198, 18, port as u8, 1)), 24)],
        rate: Some(link(options)),
        overhead_bytes: LINK_OVERHEAD,
        ..PortPlan::new(&format!("port{port}"), mac(port))
    }
}

fn discipline(port: usize, options: &Options) -> Result<Any<Ticket>> {
    let settings = Settings {
        queues: QUEUES,
        hashing: Hashing::Mixed,
        mtu_bytes: 1_600,
        seed: options.seed,
        index: port as u64,
        ..Settings::new(options.discipline, Capacity::Packets(CAPACITY_PACKETS), link(options))
    };
    Any::new(&settings).with_context(|| options.discipline.name())
}

fn tables(
    routes: &Routes,
    rules: &[Rule<u32>],
    variant: Variant,
    cache: Option<usize>,
) -> Result<Tables> {
    let classifier = ClassifierVectors::<u32>::new(rules.len() as u32);
    let mut filters4 = Filters::new(Box::new(classifier));
    if variant != Variant::NoClassifier {
        for (id, rule) in rules.iter().enumerate() {
            filters4.insert(RuleId(id as u32), *rule)?;
        }
        filters4.settle();
    }
    filters4.set_flow_cache(cache);
    if let Some(span) = filters4.flow_cache_span() {
        ask_for_large_pages(span);
    }
    let routes6 = TreeBitmap::<u128>::new(1 << 17)?;
    let routes6 = routes6.reader().ok_or_else(|| anyhow!("no place for a reader"))?;
    Ok(Tables {
        routes4: match variant {
            Variant::NoLookup => Box::new(Unlooked(routes.numbers.clone())),
            _ => routes.reader()?,
        },
        routes6: Box::new(routes6),
        filters4,
        filters6: no_filters(),
    })
}

fn no_filters<A: Classified + Default + Send + 'static>() -> Filters<A> {
    Filters::new(Box::new(ClassifierTuples::<A>::new(0)))
}
