//! The router as one machine: ports, tables and fabric; a driver passes it the time and its
//! packets.
//!
//! ```text
//!   receive ─ parse ─ classify ─ look up ─ decide and rewrite ─┬─ virtual output queues
//!               │                              │               │      │ distributed queueing
//!               └──────────── slow path ◄──────┘               │  output discipline ─ transmit
//!                     (options, errors, own packets, groups)───┘
//! ```
//!
//! This is the dark path of the paper's Figure 6, taken by batches: each stage goes over up to
//! [`BATCH`] packets before the next begins, so that a table's misses overlap and its code stays in
//! the cache. What a stage cannot do in a few nanoseconds goes to the slow path ([`slow`]), a bounded
//! queue that is served between batches and can never delay plain packets.
//!
//! The machine has no clock, no device and no thread. Its driver has them, and repeats this loop:
//! [`Router::receive`] what came to each port, [`Router::advance`], [`Router::transmit`] to each port
//! while the device has room; then it sleeps until [`Router::poll_timeout`] or the next packet.
//! Only the live driver (`routerd::driver`), benchmarks and tests do so; the simulator has a switch
//! of its own (`sim::switch`). The order and the size of batches change which packets are dropped.
//!
//! Buffers are handed over with their packets: a received one is the router's until it is transmitted,
//! punted or given back. Nothing vanishes ([`Router::balances`]), and a packet that goes no further is
//! counted under its reason ([`crate::discard`], and the queues' own).

pub mod account;
mod active;
mod adjacency;
pub mod admin;
pub mod batch;
mod broadcasts;
mod common;
mod decide;
pub mod engine;
pub mod groups;
mod icmp_errors;
mod labelled;
mod lane;
mod multicast_plan;
mod onward;
mod output_filters;
mod own;
pub mod port;
mod port_plan;
mod replicate;
mod reserve;
pub mod reserved;
pub mod reverse;
mod reverse_paths;
mod send;
pub mod shortcut;
pub mod signalling;
pub mod slow;
pub mod stage;
mod version;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::{fmt, mem};

use nilometer_queue::Any;
use nilometer_queue::broadcast::DqError;
use nilometer_wire::Time;

use crate::discard::Discard;
use crate::fabric::{Fabric, FabricPlan};
use crate::forward::limit::Limits;
use crate::forward::martian::MartianFilter;
use crate::forward::options::SourceRouting;
use crate::forward::{hop, reassemble};
use crate::memory::{Memory, Place, ReturnBuffers, Ticket};
use crate::next_hop::Snapshot;
use crate::plugin::{ControlUnit, PacketFacts};

use account::Account;
use adjacency::Adjacencies;
use broadcasts::Broadcasts;
use engine::Tables;
use groups::Groups;
use lane::Lanes;
pub use output_filters::{OUTPUT_FILTERS_MAX, OutputFilters};
use port::{PortPlan, RouterPort};
use reserved::ReservedFlows;
use reverse_paths::ReversePaths;
use slow::SlowPath;
use stage::{Probe, Stage};

/// Packets that a stage goes over before the next begins.
pub const BATCH: usize = 256;

/// The plan of a router, besides its ports and tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterPlan {
    /// Queueing between inputs and outputs.
    pub fabric: FabricPlan,
    /// Which addresses are refused.
    pub martians: MartianFilter,
    /// Seed of random choices: among equal paths, and of jittered timers.
    pub seed: u64,
    /// Its host behaviour, its ICMP messages, and its treatment of options.
    pub rfc1812: Rfc1812Settings,
}

impl RouterPlan {
    /// With the defaults of RFC 1812 and its successors.
    pub fn new(fabric: FabricPlan, seed: u64) -> RouterPlan {
        RouterPlan {
            fabric,
            martians: MartianFilter::default(),
            seed,
            rfc1812: Rfc1812Settings::default(),
        }
    }
}

/// Settings that RFC 1812 requires for a router as a whole; ports have their own ([`PortPlan`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc1812Settings {
    /// The time to live of packets that it makes, at least 1 (4.2.2.9).
    pub hop_limit: u8,
    /// Whether it answers echo requests (4.3.3.6).
    pub answers_echo: bool,
    /// How many ICMP messages it sends (4.3.2.8).
    pub limits: Limits,
    /// What it does with source routes (5.3.13.4; RFC 7126, 4.3 and 4.4).
    pub source_routing: SourceRouting,
    /// Bounds on fragments for the router that wait for reassembly (4.2.2.8).
    pub reassembly: reassemble::Settings,
    /// Whether a sender gets an ICMP error when a route prohibits its packet (5.2.7.1).
    pub tells_prohibited: bool,
    /// Whether a sender gets an ICMP error when a filter denies its packet (5.3.9). A flood of such
    /// packets then takes the slow path.
    pub tells_denied: bool,
}

impl Default for Rfc1812Settings {
    /// Echo is answered, source routes are refused, filters are silent.
    fn default() -> Rfc1812Settings {
        Rfc1812Settings {
            hop_limit: hop::ORIGINATED,
            answers_echo: true,
            limits: Limits::default(),
            source_routing: SourceRouting::default(),
            reassembly: reassemble::Settings::default(),
            tells_prohibited: true,
            tells_denied: false,
        }
    }
}

/// Why a router cannot be as described.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RouterError {
    /// The fabric cannot.
    #[error(transparent)]
    Fabric(#[from] DqError),
    /// A port cannot: its name, and why.
    #[error("port {0}: {1}")]
    Port(String, port::PortError),
}

/// The router.
pub struct Router {
    plan: RouterPlan,
    ports: Vec<RouterPort>,
    fabric: Fabric<Ticket>,
    tables: Tables,
    hops: Arc<Snapshot>,
    adjacencies: Adjacencies,
    broadcasts: Broadcasts,
    reverse_paths4: ReversePaths<u32>,
    reverse_paths6: ReversePaths<u128>,
    lanes: Box<Lanes>,
    slow: SlowPath,
    groups: Groups,
    plugins: ControlUnit,
    diversion: Option<Box<active::Diversion>>,
    /// Labelled frames of the batch that is parsed.
    labelled: Vec<PacketFacts>,
    outputs: OutputFilters,
    departures: output_filters::Departures,
    reserved: ReservedFlows,
    signalling: signalling::SignallingQueue,
    account: Account,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("ports", &self.ports.len()).finish_non_exhaustive()
    }
}

impl Router {
    /// A router with a discipline for each of its `ports`, and the tables that `tables` are.
    ///
    /// # Errors
    /// When a part cannot be as described.
    pub fn new(
        plan: RouterPlan,
        ports: Vec<(PortPlan, Any<Ticket>)>,
        tables: Tables,
    ) -> Result<Router, RouterError> {
        let (plans, disciplines): (Vec<_>, Vec<_>) = ports.into_iter().unzip();
        let mut fabric = Fabric::new(plan.fabric, disciplines)?;
        let mut ports = Vec::new();
        for (number, port) in plans.into_iter().enumerate() {
            fabric.set_rate(number, port.rate);
            fabric.set_burst(number, port.burst_bytes);
            fabric.set_delay(number, port.delay);
            let seed = plan.seed ^ number as u64;
            let name = port.name.clone();
            let port = RouterPort::new(Time::ZERO, port, seed);
            ports.push(port.map_err(|why| RouterError::Port(name, why))?);
        }
        Ok(Router {
            broadcasts: port::broadcasts(&ports),
            groups: Groups::new(&ports)?,
            reverse_paths4: ReversePaths::default(),
            reverse_paths6: ReversePaths::default(),
            plan,
            ports,
            fabric,
            tables,
            hops: Arc::new(Snapshot::default()),
            adjacencies: Adjacencies::default(),
            lanes: Box::default(),
            slow: SlowPath::new(plan.seed, &plan.rfc1812),
            plugins: ControlUnit::default(),
            diversion: None,
            labelled: Vec::new(),
            outputs: OutputFilters::default(),
            departures: output_filters::Departures::default(),
            reserved: ReservedFlows::default(),
            signalling: signalling::SignallingQueue::default(),
            account: Account::default(),
        })
    }

    /// Takes frames that arrived at port `input` as far as an output's queue or the slow path, or
    /// discards them.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn receive<M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        frames: &[Place],
        memory: &mut M,
        probe: &mut impl Probe,
    ) {
        if !self.ports[input].is_up {
            return self.receive_down(input, frames, memory);
        }
        for some in frames.chunks(BATCH) {
            probe.enter(Stage::Parse);
            self.parse(input, some, memory);
            if !self.labelled.is_empty() {
                self.switch_labelled(now, input, memory);
            }
            probe.enter(Stage::Classify);
            self.classify(input);
            self.divert(now, input, memory);
            probe.enter(Stage::LookUp);
            self.look_up();
            self.meet_reservations(input);
            probe.enter(Stage::Rewrite);
            self.decide(now, input, memory);
            probe.enter(Stage::VirtualQueue);
            self.enqueue(now, input, memory);
            probe.enter(Stage::Elsewhere);
        }
    }

    /// Puts what a batch decided to send into the virtual output queues.
    fn enqueue<M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        self.fabric.enqueue_all(now, input, &mut self.lanes.decided, &mut ReturnBuffers(memory));
    }

    /// Does what is due by `now`: broadcasts, timers of neighbours, the slow path; then moves
    /// packets that may cross the fabric.
    pub fn advance<M: Memory>(&mut self, now: Time, memory: &mut M, probe: &mut impl Probe) {
        self.plugins.handle_timeouts(now);
        self.send_emitted(now, memory);
        self.serve_slow(now, memory);
        self.serve_neighbours(now, memory);
        self.serve_groups(now, memory);
        let mut drops = ReturnBuffers(memory);
        probe.enter(Stage::Distribute);
        self.fabric.announce(now);
        probe.enter(Stage::Discipline);
        self.fabric.cross(now, &mut drops);
        self.drain_down(now, memory);
        probe.enter(Stage::Elsewhere);
    }

    /// The next frame for the device of port `output`, if its link's rate allows one at `now`. The
    /// caller has its buffer from then on.
    ///
    /// # Panics
    /// When there is no such port.
    #[inline]
    pub fn transmit<M: Memory>(
        &mut self,
        now: Time,
        output: usize,
        memory: &mut M,
    ) -> Option<Place> {
        if !self.ports[output].is_up {
            return None;
        }
        let ticket = self.fabric.transmit(now, output, &mut ReturnBuffers(memory))?;
        if ticket.is_marked() {
            crate::forward::ecn::mark(memory.frame_mut(ticket.place));
        }
        self.account.transmitted += 1;
        Some(ticket.place)
    }

    /// [`Router::transmit`] of `most` frames at most, one after the other, given to `give`.
    ///
    /// # Panics
    /// When there is no such port.
    #[inline]
    pub fn transmit_all<M: Memory>(
        &mut self,
        now: Time,
        output: usize,
        most: usize,
        memory: &mut M,
        mut give: impl FnMut(Place),
    ) {
        if !self.ports[output].is_up {
            return;
        }
        let mut marked = mem::take(&mut self.lanes.marked);
        let drops = &mut ReturnBuffers(memory);
        let sent = self.fabric.transmit_all(now, output, most, drops, |ticket| {
            if ticket.is_marked() {
                marked.push(ticket.place);
            }
            give(ticket.place);
        });
        for place in marked.drain(..) {
            crate::forward::ecn::mark(memory.frame_mut(place));
        }
        self.lanes.marked = marked;
        self.account.transmitted += sent as u64;
    }

    /// When the router must next be called with the time, if time alone changes anything.
    pub fn poll_timeout(&self) -> Option<Time> {
        let ports = self.ports.iter().filter_map(RouterPort::poll_timeout);
        let slow = self.slow.poll_timeout();
        let groups = self.groups.poll_timeout();
        let plugins = self.plugins.poll_timeout();
        ports.chain(slow).chain(groups).chain(plugins).chain(self.fabric.poll_timeout()).min()
    }

    /// Whether every packet that came or was made here has left, was discarded, or is here.
    pub fn balances(&self) -> bool {
        self.fabric.balances()
            && self.account.balances(self.inside(), self.fabric.dropped_packets())
    }

    /// Packets that are here: in queues, on the slow path, held for an address, waiting
    /// to be punted.
    pub fn inside(&self) -> u64 {
        let ports = 0..self.ports.len();
        let queued = ports.map(|port| self.fabric.waiting(port).packets).sum::<u64>();
        let held = self.ports.iter().map(RouterPort::held).sum::<usize>();
        queued + (held + self.slow.len()) as u64
    }

    /// Packets that arrived, were made, left and were discarded.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The fabric, for inspection or changes.
    pub fn fabric(&self) -> &Fabric<Ticket> {
        &self.fabric
    }

    /// The fabric, for changes under load.
    pub fn fabric_mut(&mut self) -> &mut Fabric<Ticket> {
        &mut self.fabric
    }

    /// The tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The tables, for changes between batches.
    pub fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// The plugin control unit.
    pub fn plugins(&self) -> &ControlUnit {
        &self.plugins
    }

    /// The plugin control unit, for changes between batches.
    pub fn plugins_mut(&mut self) -> &mut ControlUnit {
        &mut self.plugins
    }

    /// The filters of what leaves.
    pub fn output_filters(&self) -> &OutputFilters {
        &self.outputs
    }

    /// The output filters, for changes between batches.
    pub fn output_filters_mut(&mut self) -> &mut OutputFilters {
        &mut self.outputs
    }

    /// The ports.
    pub fn ports(&self) -> &[RouterPort] {
        &self.ports
    }

    /// A port, for changes between batches. Panics where there is no such port.
    pub fn port_mut(&mut self, port: usize) -> &mut RouterPort {
        &mut self.ports[port]
    }

    /// The next hops in force from now on.
    pub fn set_hops(&mut self, hops: Arc<Snapshot>) {
        self.adjacencies.renew(&hops);
        self.hops = hops;
    }

    /// Takes a packet out of the router: it is discarded.
    fn discard<M: Memory>(&mut self, input: usize, place: Place, why: Discard, memory: &mut M) {
        self.ports[input].discards.count(why);
        self.account.discarded += 1;
        memory.give(place);
    }
}
