//! Flow offload: flows whose packets a program at the traffic control hook forwards itself, by a shortcut.
//!
//! The pipeline's decision about a flow ([`nilometer_router::pipeline::shortcut`]) is entered in a table
//! that the programs of all ports share with us. A valid packet of such a flow is rewritten and sent on
//! from within the kernel, without a copy and without waking a thread; every other goes through the ring
//! (`crate::tcx`). This is what the kernel's own *flowtable* does with what its slow path has decided,
//! and the fast path of the DER with what its port processors have.
//!
//! ```text
//!                                 ┌─ a flow of the table, sound, nothing of it under way ─► other port
//!   veth ─► hook: which flow? ────┤
//!                                 └─ all else ─► ring ─► pipeline ─► other port
//! ```
//!
//! # Order
//!
//! A packet must not overtake those of its flow that went by the ring. So each *bucket* of the table has
//! two counters: the program counts what it lets into the ring (*passed*), and we count what has left
//! again, sent or dropped (*left*). A flow always has the same bucket, whether it is in the table or not,
//! so if both are equal no packet of it is under way. Then its packets take the shortcut, beginning with
//! the first that arrives when none has left for a while (30 µs); the first that has to go by the ring
//! again ends that. The packet memory does the accounting ([`Mark`]): a chunk carries its bucket until it
//! is given back.
//!
//! So packets are in order on the link. A veth has no link of its own: its far end takes what each processor
//! has sent from a queue of that processor's, and where one of these waits for more than the 30 µs (on a
//! machine whose processors are all taken) the far end sees packets of one flow in another order.
//! Restricting that end's input to one processor (`crate::steer`) prevents it.
//!
//! Fragments and packets with options belong to no bucket; they go by the ring, and others of their flow do
//! not wait for them.
//!
//! Flows could never leave a ring that is never empty. When it is nearly full, packets will be lost anyway,
//! and those of flows that have a shortcut are dropped first: their packets under way then leave, and the
//! flows leave the ring.
//!
//! # Changes
//!
//! A flow is changed while programs run. Its *version* is odd meanwhile, and a program that finds
//! different versions before and after reading the flow lets the packet into the ring. What a flow has
//! forwarded is counted in the table and never reset: the reader keeps the count that it last credited.

mod layout;
mod program;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use nilometer_router::Key;

use super::bpf::SharedMap;
use super::netlink::MacAddress;
use layout::{
    ADDRESSES, BUCKET_STRIDE, BUCKETS, BYTES, FIRST_WAY, INPUT_BIT, INTERFACE, LEFT, LEFT_AT, MTU,
    PACKETS, PORTS, PROTOCOL_BIT, STATIONS, TAGS, VERSION, WAY_STRIDE, WAYS,
};

pub(super) use program::{Taking, forward, mark_slot};

/// A bucket as packets carry it: its number and one, or zero for none.
pub type Mark = u32;

/// A flow's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u32);

impl Place {
    /// Its number, from 0 on.
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

/// Where the packets of a flow go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The interface, by its number.
    pub interface: u32,
    /// The link-layer address that they leave from.
    pub from: MacAddress,
    /// The link-layer address that they go to.
    pub to: MacAddress,
    /// The longest IP packet, in bytes.
    pub mtu_bytes: u16,
}

/// A flow's key as the programs compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    addresses: u64,
    ports: u64,
}

impl Words {
    fn of(input: u16, key: &Key<u32>) -> Words {
        let both = |source: [u8; 4], destination: [u8; 4]| {
            let [a, b, c, d] = source;
            let [e, f, g, h] = destination;
            u64::from_ne_bytes([a, b, c, d, e, f, g, h])
        };
        let [a, b] = key.source_port.to_be_bytes();
        let [c, d] = key.destination_port.to_be_bytes();
        Words {
            addresses: both(key.source.to_be_bytes(), key.destination.to_be_bytes()),
            ports: u64::from(u32::from_ne_bytes([a, b, c, d]))
                | u64::from(key.protocol) << PROTOCOL_BIT
                | u64::from(input) << INPUT_BIT,
        }
    }
}

/// The table of flows, shared with the programs of all ports. One thread changes it.
#[derive(Clone)]
pub struct FlowOffload {
    shared: Arc<SharedMap>,
    bits: u32,
}

impl fmt::Debug for FlowOffload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowOffload").field("places", &self.places()).finish_non_exhaustive()
    }
}

/// Equal if it is the same table, not one with the same flows.
impl PartialEq for FlowOffload {
    fn eq(&self, other: &FlowOffload) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for FlowOffload {}

impl FlowOffload {
    /// The fewest and the most places.
    pub const PLACES: std::ops::RangeInclusive<usize> = 64..=1 << 20;

    /// An empty table with places for `places` flows, a power of two.
    ///
    /// # Errors
    /// When it is not one, or the kernel does not grant the memory.
    pub fn new(places: usize) -> Result<FlowOffload> {
        ensure!(
            places.is_power_of_two() && FlowOffload::PLACES.contains(&places),
            "{places} shortcuts: choose a power of two from 64 to 1048576"
        );
        ensure!(cfg!(target_arch = "x86_64"), "shortcuts rest on the order in which x86-64 stores");
        let buckets = places / WAYS;
        let shared = SharedMap::new(BUCKETS + buckets * BUCKET_STRIDE)
            .context("cannot make a map for shortcuts")?;
        Ok(FlowOffload { shared: Arc::new(shared), bits: buckets.ilog2() })
    }

    /// How many flows there is room for.
    pub fn places(&self) -> usize {
        WAYS << self.bits
    }

    /// How many buckets there are; marks are from 1 to that.
    pub fn buckets(&self) -> usize {
        1 << self.bits
    }

    /// The possible places of a flow that arrives by port `input` of the router.
    pub fn places_of(&self, input: u16, key: &Key<u32>) -> [Place; WAYS] {
        let Words { addresses, ports } = Words::of(input, key);
        let (bucket, _) = layout::bucket(addresses, ports, self.bits);
        std::array::from_fn(|way| Place((bucket * WAYS + way) as u32))
    }

    /// Enters a flow in a place of its own, or gives the flow that has the place another exit. Its packets
    /// take it from the next one on that arrives when no packet of the flow is under way.
    pub fn set(&self, place: Place, input: u16, key: &Key<u32>, exit: &Exit) {
        let Words { addresses, ports } = Words::of(input, key);
        let [a, b, c, d, e, f] = exit.to;
        let [g, h, i, j, k, l] = exit.from;
        let stations = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let (_, tag) = layout::bucket(addresses, ports, self.bits);
        self.change(place, |at| {
            self.half(self.tag_at(place)).store(tag, Ordering::Relaxed);
            self.word(at + ADDRESSES).store(addresses, Ordering::Relaxed);
            self.word(at + PORTS).store(ports, Ordering::Relaxed);
            self.half(at + MTU).store(exit.mtu_bytes.into(), Ordering::Relaxed);
            self.half(at + INTERFACE).store(exit.interface, Ordering::Relaxed);
            self.word(at + STATIONS).store(stations, Ordering::Relaxed);
            let rest = u32::from_ne_bytes([i, j, k, l]);
            self.half(at + STATIONS + 8).store(rest, Ordering::Relaxed);
        });
    }

    /// Takes the flow of a place out.
    pub fn clear(&self, place: Place) {
        self.change(place, |at| {
            self.word(at + ADDRESSES).store(0, Ordering::Relaxed);
            self.word(at + PORTS).store(0, Ordering::Relaxed);
        });
    }

    fn change(&self, place: Place, write: impl FnOnce(usize)) {
        let at = self.at(place);
        self.half(at + VERSION).fetch_add(1, Ordering::SeqCst);
        write(at);
        self.half(at + VERSION).fetch_add(1, Ordering::SeqCst);
    }

    /// Packets and bytes, from the IP header on, that have taken the shortcuts of a place since the
    /// beginning.
    pub fn forwarded(&self, place: Place) -> (u64, u64) {
        let count = |what| self.word(self.at(place) + what).load(Ordering::Relaxed);
        (count(PACKETS), count(BYTES))
    }

    /// Packets with these marks have left user space.
    pub fn left(&self, marks: impl Iterator<Item = Mark>) {
        let now = monotonic_nanos();
        for mark in marks {
            let bucket = BUCKETS + (mark as usize - 1) * BUCKET_STRIDE;
            let left = self.word(bucket + LEFT);
            self.word(bucket + LEFT_AT).store(now, Ordering::Relaxed);
            // One thread alone counts here, after the time.
            left.store(left.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    fn at(&self, place: Place) -> usize {
        let (bucket, way) = (place.number() / WAYS, place.number() % WAYS);
        BUCKETS + bucket * BUCKET_STRIDE + FIRST_WAY + way * WAY_STRIDE
    }

    fn tag_at(&self, place: Place) -> usize {
        let (bucket, way) = (place.number() / WAYS, place.number() % WAYS);
        BUCKETS + bucket * BUCKET_STRIDE + TAGS + 4 * way
    }

    fn bytes(&self) -> usize {
        BUCKETS + (BUCKET_STRIDE << self.bits)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes());
        self.shared.word(at)
    }

    fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes());
        // SAFETY: the four bytes lie within the mapping, aligned; both sides change them as a whole, and
        // the mapping lives as long as the borrow.
        unsafe { self.shared.start().add(at).cast::<AtomicU32>().as_ref() }
    }
}

/// The time that programs read.
fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
