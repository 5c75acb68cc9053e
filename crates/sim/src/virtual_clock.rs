//! Drives nodes over frames by a virtual clock: a handful of nodes, joined by cables.
//!
//! The same nodes stand between real ports under the real clock (`lab::device::driver`). Of events at one moment,
//! frames arrive first, in the order in which they were sent, and then timers run out, in the order of the nodes.
//! What arrives at a node at the same moment arrives port by port, each with one batch of limited size, before
//! the node is polled for what it transmits, as in a turn of the other driver. So a run is a function of its
//! nodes and their order.
//!
//! A network of thousands of ends and links is [`crate::Network`]'s, which carries records without bytes.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Ordering;

use nilometer_wire::{Node, Order, Port, Rate, Span, Time, Turns};

use crate::fault::Frames;

/// A node whose timer is due again at once is called this much later, as if that were a turn of a loop.
const TURN: Span = Span::from_nanos(1_000);

/// A node's number and one of its ports.
pub type Plug = (usize, Port);

/// A link between two ports: each direction sends one frame after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cable {
    /// What it joins.
    pub ends: [Plug; 2],
    /// Its rate, at which Ethernet's overhead counts; `None` if transmission takes no time.
    pub rate: Option<Rate>,
    /// How long a bit is under way.
    pub delay: Span,
}

/// What sees frames at the ends of cables.
pub trait Watch<F, M> {
    /// A frame is given to the link of this port; it may wait there for others.
    fn sent(&mut self, at: Time, plug: Plug, frame: &F, memory: &M);
    /// A frame has wholly arrived at this port.
    fn arrived(&mut self, at: Time, plug: Plug, frame: &F, memory: &M);
}

/// Sees nothing.
impl<F, M> Watch<F, M> for () {
    fn sent(&mut self, _: Time, _: Plug, _: &F, _: &M) {}
    fn arrived(&mut self, _: Time, _: Plug, _: &F, _: &M) {}
}

/// A frame on a cable, in the order of arrival and then of sending.
struct Flight<F> {
    due: Time,
    order: u64,
    to: Plug,
    frame: F,
}

impl<F> PartialEq for Flight<F> {
    fn eq(&self, other: &Flight<F>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<F> Eq for Flight<F> {}

impl<F> PartialOrd for Flight<F> {
    fn partial_cmp(&self, other: &Flight<F>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> Ord for Flight<F> {
    /// The earliest is the greatest: the heap gives the greatest.
    fn cmp(&self, other: &Flight<F>) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

/// One direction of a cable.
#[derive(Clone, Copy, Debug)]
struct Lane {
    to: Plug,
    rate: Option<Rate>,
    delay: Span,
    free_at: Time,
}

/// Nodes, cables and the frames on them, under one clock.
pub struct VirtualClock<'a, F, M> {
    now: Time,
    has_begun: bool,
    nodes: Vec<Box<dyn Node<F, M> + 'a>>,
    /// When each node's timer was handled last.
    handled: Vec<Option<Time>>,
    lanes: BTreeMap<Plug, Lane>,
    flights: BinaryHeap<Flight<F>>,
    sent: u64,
    turns: Turns,
    /// What arrives at a node at one moment.
    arriving: Vec<Flight<F>>,
    frames: Vec<F>,
}

impl<'a, F: Copy + Default, M: Frames<F>> VirtualClock<'a, F, M> {
    /// `nodes` joined by `cables`, driven in `turns`. A frame for a port without a cable is discarded.
    pub fn new(
        nodes: Vec<Box<dyn Node<F, M> + 'a>>,
        cables: &[Cable],
        turns: Turns,
    ) -> VirtualClock<'a, F, M> {
        let mut lanes = BTreeMap::new();
        for &Cable { ends: [one, other], rate, delay } in cables {
            for (from, to) in [(one, other), (other, one)] {
                lanes.insert(from, Lane { to, rate, delay, free_at: Time::ZERO });
            }
        }
        VirtualClock {
            now: Time::ZERO,
            has_begun: false,
            handled: nodes.iter().map(|_| None).collect(),
            nodes,
            lanes,
            flights: BinaryHeap::new(),
            sent: 0,
            turns: Turns { batch: turns.batch.max(1), ..turns },
            arriving: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// The moment of the last event.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Frames that are on cables.
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Lets everything happen that is due until `end`, that moment included; false when nothing is due later.
    pub fn run_until(&mut self, end: Time, memory: &mut M, watch: &mut impl Watch<F, M>) -> bool {
        // Every node is polled once at the beginning, as in the other driver's first turn.
        if !self.has_begun {
            self.has_begun = true;
            (0..self.nodes.len()).for_each(|node| self.transmit(node, memory, watch));
        }
        loop {
            let arrival = self.flights.peek().map(|flight| flight.due);
            let timer = self.next_timer();
            let Some(next) = arrival.into_iter().chain(timer.map(|(due, _)| due)).min() else {
                return false;
            };
            if next > end {
                return true;
            }
            self.now = next;
            let node = match timer {
                Some((due, node)) if arrival.is_none_or(|arrival| self.is_before(due, arrival)) => {
                    self.handled[node] = Some(due);
                    self.nodes[node].handle_timeout(due, memory);
                    node
                }
                _ => self.arrive(memory, watch),
            };
            self.transmit(node, memory, watch);
        }
    }

    /// Whether a timer's turn is before that of an arrival.
    fn is_before(&self, due: Time, arrival: Time) -> bool {
        match self.turns.order {
            Order::ReceiveFirst => due < arrival,
            Order::TransmitFirst => due <= arrival,
        }
    }

    /// The node whose timer is next, and when.
    fn next_timer(&self) -> Option<(Time, usize)> {
        let due = self.nodes.iter().zip(&self.handled).enumerate().filter_map(
            |(number, (node, handled))| {
                let due = node.poll_timeout()?.max(self.now);
                let again = handled.is_some_and(|handled| handled == due);
                Some((if again { due + TURN } else { due }, number))
            },
        );
        due.min()
    }

    /// What arrives next does, at one node: of each of its ports a batch, in the order of ports; which node.
    fn arrive(&mut self, memory: &mut M, watch: &mut impl Watch<F, M>) -> usize {
        let (mut later, mut node) = (Vec::new(), None);
        self.arriving.clear();
        while self.flights.peek().is_some_and(|flight| flight.due <= self.now) {
            let Some(flight) = self.flights.pop() else { break };
            let at = *node.get_or_insert(flight.to.0);
            let of_port = |it: &&Flight<F>| it.to == flight.to;
            match at == flight.to.0
                && self.arriving.iter().filter(of_port).count() < self.turns.batch
            {
                true => self.arriving.push(flight),
                false => later.push(flight),
            }
        }
        self.flights.extend(later);
        self.arriving.sort_by_key(|flight| flight.to.1);
        for batch in self.arriving.chunk_by(|one, other| one.to == other.to) {
            let to = batch[0].to;
            self.frames.clear();
            for flight in batch {
                watch.arrived(self.now, to, &flight.frame, memory);
                self.frames.push(flight.frame);
            }
            self.nodes[to.0].receive_batch(self.now, to.1, &self.frames, memory);
        }
        node.unwrap_or(0)
    }

    /// Takes what a node has to send.
    fn transmit(&mut self, number: usize, memory: &mut M, watch: &mut impl Watch<F, M>) {
        let mut frame = F::default();
        while let Some(port) = self.nodes[number].poll_transmit(self.now, &mut frame, memory) {
            let plug = (number, port);
            let Some(lane) = self.lanes.get_mut(&plug) else {
                memory.discard(&frame);
                continue;
            };
            let begins = lane.free_at.max(self.now);
            let takes = lane.rate.map(|rate| rate.span_of(memory.link_bytes(&frame)));
            lane.free_at = begins + takes.unwrap_or(Span::ZERO);
            watch.sent(self.now, plug, &frame, memory);
            let due = lane.free_at + lane.delay;
            self.sent += 1;
            self.flights.push(Flight { due, order: self.sent, to: lane.to, frame });
        }
    }
}
