//! A switch that queues in a distributed manner, as a node: inputs, fabric, outputs, broadcasts.
//!
//! A packet's way through it (DER paper, section 3.6): it waits at its input in the virtual output
//! queue of its output ([`nilometer_queue::voq`]); the input's link into the fabric carries it, one
//! packet after the other at `S·L`; the fabric's link to the output carries it at `S·L` as well;
//! there it waits in the output's discipline, and the transmitter sends it at `L`. The fabric cuts
//! through: what arrives on an idle link to an output has passed it when its last bit left the
//! input's link, and otherwise it follows what is on that link. Hence a packet has crossed at the
//! later of the two moments: it has left its input; the link to its output has had time for it
//! after the one before.
//!
//! Every update period `D`, from time zero on, each port announces its backlogs: what waits at its
//! output (the packet on the wire is gone) and in its virtual output queues (the packet on the link
//! into the fabric is gone). Announcements take the broadcast delay, 0 to `D`, to be heard; then
//! every input computes its row of rates ([`nilometer_queue::distributed`]) and grants its queues a
//! period's credit. With a delay of zero, rates are those of the backlogs of the same moment, as in
//! the paper.
//!
//! At one moment, transmissions end first, then packets reach outputs, then links into the fabric
//! become free, then backlogs are announced, then grants are made, and what arrives from outside
//! comes last.
//!
//! A frame leaves by [`Node::poll_transmit`] when its last bit has left the transmitter: what the
//! port is wired to only adds the length of the wire. Nothing vanishes: [`Switch::balances`].

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_queue::broadcast::{Announcement, Board, DqError};
use nilometer_queue::distributed::{Allocator, SwitchShape, Variant};
use nilometer_queue::voq::{InputLimits, VirtualOutputs};
use nilometer_queue::{Backlog, Discipline, Ledger, Packet};
use nilometer_wire::{Node, Port, Span, Time};

use crate::tournament::{NEVER, Tournament};

/// Which output a frame is for.
pub trait OutputOf<F> {
    /// The output of `frame`, or nothing when there is no way for it.
    fn output_of(&self, frame: &F) -> Option<Port>;
}

impl<F, T: Fn(&F) -> Option<Port>> OutputOf<F> for T {
    fn output_of(&self, frame: &F) -> Option<Port> {
        self(frame)
    }
}

/// What a switch is made of, besides its output disciplines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchPlan {
    /// Ports, speed-up, links and update period.
    pub fabric: SwitchShape,
    /// Which equations give the rates.
    pub variant: Variant,
    /// What each input's buffer holds.
    pub input: InputLimits,
    /// From an announcement to when all have heard it; 0 to the update period.
    pub broadcast_delay: Span,
}

/// An input: its queues, and what its link into the fabric carries.
#[derive(Debug)]
struct Input<F> {
    waiting: VirtualOutputs<F>,
    on_link: Option<(usize, F)>,
    allocator: Allocator,
}

/// An output: what comes to it, what waits there, and what its transmitter carries.
#[derive(Debug)]
struct Output<F, D> {
    crossing: VecDeque<(Time, F)>,
    crossed_last: Time,
    crossing_bytes: u64,
    waiting: D,
    on_wire: Option<F>,
    owed: Backlog,
    idle: Span,
    idle_since: Option<Time>,
}

impl<F, D> Output<F, D> {
    /// Starts or stops the clock of idleness: nothing is on the wire, and something is owed.
    fn watch(&mut self, now: Time) {
        let is_idle = self.on_wire.is_none() && self.owed.packets > 0;
        match self.idle_since {
            None if is_idle => self.idle_since = Some(now),
            Some(since) if !is_idle => {
                self.idle = self.idle + now.since(since);
                self.idle_since = None;
            }
            _ => {}
        }
    }
}

/// The switch. `F` is what it forwards, `D` its outputs' discipline, `R` finds a frame's output.
#[derive(Debug)]
pub struct Switch<F, D, R> {
    plan: SwitchPlan,
    route: R,
    inputs: Vec<Input<F>>,
    outputs: Vec<Output<F, D>>,
    /// Slots: transmitters, crossings, links into the fabric, announcement, grant.
    calendar: Tournament,
    board: Board,
    announced: Vec<Announcement>,
    unheard: VecDeque<(Time, Vec<Announcement>)>,
    updates: u64,
    grants: u64,
    departed: VecDeque<(Port, F)>,
    ledger: Ledger,
    strays: Backlog,
    crossing_most_bytes: u64,
}

impl<F: Packet, D: Discipline<F>, R: OutputOf<F>> Switch<F, D, R> {
    /// An empty switch with one discipline in `outputs` for each port. Its first deadline is time
    /// zero, the first broadcast.
    pub fn new(plan: SwitchPlan, outputs: Vec<D>, route: R) -> Result<Self, DqError> {
        let ports = plan.fabric.ports();
        if outputs.len() != ports {
            return Err(DqError::Ports(outputs.len()));
        }
        if plan.broadcast_delay > plan.fabric.period() {
            return Err(DqError::Delay);
        }
        let input = |i| -> Result<Input<F>, DqError> {
            let waiting = VirtualOutputs::new(ports, i, plan.input)?;
            let allocator = Allocator::new(plan.fabric, plan.variant)?;
            Ok(Input { waiting, on_link: None, allocator })
        };
        let output = |waiting| Output {
            crossing: VecDeque::new(),
            crossed_last: Time::ZERO,
            crossing_bytes: 0,
            waiting,
            on_wire: None,
            owed: Backlog::default(),
            idle: Span::ZERO,
            idle_since: None,
        };
        let mut calendar = Tournament::new(3 * ports + 2);
        calendar.set(3 * ports, Time::ZERO);
        Ok(Switch {
            plan,
            route,
            inputs: (0..ports).map(input).collect::<Result<_, _>>()?,
            outputs: outputs.into_iter().map(output).collect(),
            calendar,
            board: Board::new(ports)?,
            announced: vec![Announcement::default(); ports],
            unheard: VecDeque::new(),
            updates: 0,
            grants: 0,
            departed: VecDeque::new(),
            ledger: Ledger::default(),
            strays: Backlog::default(),
            crossing_most_bytes: 0,
        })
    }

    /// How many times backlogs were announced.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// How many times rates were granted.
    pub fn grants(&self) -> u64 {
        self.grants
    }

    /// What each port announced last.
    pub fn announced(&self) -> &[Announcement] {
        &self.announced
    }

    /// What all ports have heard: the rates in force were computed from it.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The rates in force at `input`, and the `hi` and `lo` they came from. Panics where there is
    /// no such port, as a slice does.
    pub fn allocator(&self, input: usize) -> &Allocator {
        &self.inputs[input].allocator
    }

    /// How long, by `now`, the transmitter of `output` has stood idle while a packet for it was in
    /// the switch. Panics where there is no such port.
    pub fn idle(&self, output: usize, now: Time) -> Span {
        let output = &self.outputs[output];
        let running = output.idle_since.map_or(Span::ZERO, |since| now.since(since));
        output.idle + running
    }

    /// The most bytes that were ever between inputs and one output inside the fabric.
    pub fn crossing_most_bytes(&self) -> u64 {
        self.crossing_most_bytes
    }

    /// What arrived, left and was dropped. What [`Switch::strays`] counts never arrived.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Frames for which there was no way, or that came to a port that does not exist.
    pub fn strays(&self) -> Backlog {
        self.strays
    }

    /// All that is in the switch: at inputs, in the fabric, at outputs, on the wires out.
    pub fn inside(&self) -> Backlog {
        let mut sum = Backlog::default();
        let mut add = |packets: u64, bytes: u64| {
            sum.packets += packets;
            sum.bytes += bytes;
        };
        for input in &self.inputs {
            let waiting = input.waiting.backlog();
            add(waiting.packets, waiting.bytes);
            input.on_link.iter().for_each(|(_, frame)| add(1, u64::from(frame.bytes())));
        }
        for output in &self.outputs {
            let waiting = output.waiting.backlog();
            add(waiting.packets, waiting.bytes);
            output.crossing.iter().for_each(|(_, frame)| add(1, u64::from(frame.bytes())));
            output.on_wire.iter().for_each(|frame| add(1, u64::from(frame.bytes())));
        }
        sum
    }

    /// Whether nothing vanished: what arrived has left, was dropped, or is inside.
    pub fn balances(&self) -> bool {
        self.ledger.balances(self.inside())
    }

    fn advance(&mut self, now: Time) {
        let ports = self.inputs.len();
        while let Some((moment, slot)) = self.calendar.next().filter(|next| next.0 <= now) {
            self.calendar.set(slot, NEVER);
            match (slot / ports, slot % ports) {
                _ if slot == 3 * ports => self.announce(moment),
                _ if slot == 3 * ports + 1 => self.grant(moment),
                (0, j) => self.sent(moment, j),
                (1, j) => self.crossed(moment, j),
                (_, i) => self.left_input(moment, i),
            }
        }
    }

    fn announce(&mut self, now: Time) {
        let ports = self.inputs.len();
        for (port, announcement) in self.announced.iter_mut().enumerate() {
            announcement.output_backlog_bytes = self.outputs[port].waiting.backlog().bytes;
            announcement.input_backlog_bytes.clear();
            announcement
                .input_backlog_bytes
                .extend_from_slice(self.inputs[port].waiting.backlog_bytes());
        }
        self.updates += 1;
        self.unheard.push_back((now + self.plan.broadcast_delay, self.announced.clone()));
        self.calendar.set(3 * ports, now + self.plan.fabric.period());
        self.calendar.set(3 * ports + 1, self.unheard[0].0);
    }

    fn grant(&mut self, now: Time) {
        let Some((_, announced)) = self.unheard.pop_front() else { return };
        for (port, announcement) in announced.iter().enumerate() {
            let taken = self.board.hear(port, announcement);
            debug_assert!(taken.is_ok(), "the board was made for these ports");
        }
        self.grants += 1;
        let link = self.plan.fabric.link();
        let holds: Vec<Span> = announced
            .iter()
            .map(|announcement| link.span_of(announcement.output_backlog_bytes))
            .collect();
        for i in 0..self.inputs.len() {
            let input = &mut self.inputs[i];
            if let Ok(rates) = input.allocator.allocate(&self.board, i) {
                input.waiting.grant(self.plan.fabric.period(), rates, &holds);
            }
            self.feed(now, i);
        }
        if let Some(next) = self.unheard.front() {
            self.calendar.set(3 * self.inputs.len() + 1, next.0);
        }
    }

    /// Puts the next packet on the link of input `i` into the fabric, if the link is free.
    fn feed(&mut self, now: Time, i: usize) {
        let input = &mut self.inputs[i];
        if input.on_link.is_some() {
            return;
        }
        input.on_link = input.waiting.dequeue();
        if let Some((_, frame)) = &input.on_link {
            let bytes = self.plan.input.framing.fabric_bytes(frame.bytes());
            let done = now + self.plan.fabric.capacity().span_of(bytes);
            self.calendar.set(2 * self.inputs.len() + i, done);
        }
    }

    fn left_input(&mut self, now: Time, i: usize) {
        if let Some((j, frame)) = self.inputs[i].on_link.take() {
            let output = &mut self.outputs[j];
            let bytes = self.plan.input.framing.fabric_bytes(frame.bytes());
            let took = self.plan.fabric.capacity().span_of(bytes);
            let crossed = now.max(output.crossed_last + took);
            output.crossed_last = crossed;
            output.crossing_bytes += u64::from(frame.bytes());
            self.crossing_most_bytes = self.crossing_most_bytes.max(output.crossing_bytes);
            output.crossing.push_back((crossed, frame));
            self.calendar.set(self.inputs.len() + j, output.crossing[0].0);
        }
        self.feed(now, i);
    }

    fn crossed(&mut self, now: Time, j: usize) {
        let output = &mut self.outputs[j];
        if let Some((_, frame)) = output.crossing.pop_front() {
            let bytes = u64::from(frame.bytes());
            output.crossing_bytes -= bytes;
            output.owed.bytes -= bytes;
            output.owed.packets -= 1;
            output.waiting.enqueue(now, frame, &mut self.ledger.drops);
        }
        if let Some((next, _)) = output.crossing.front() {
            self.calendar.set(self.inputs.len() + j, *next);
        }
        self.transmit(now, j);
    }

    /// Puts the next packet on the wire out of output `j`, if the wire is free.
    fn transmit(&mut self, now: Time, j: usize) {
        let output = &mut self.outputs[j];
        if output.on_wire.is_none() {
            output.on_wire = output.waiting.dequeue(now, &mut self.ledger.drops);
            if let Some(frame) = &output.on_wire {
                let took = self.plan.fabric.link().span_of(u64::from(frame.bytes()));
                self.calendar.set(j, now + took);
            }
        }
        output.watch(now);
    }

    fn sent(&mut self, now: Time, j: usize) {
        if let Some(frame) = self.outputs[j].on_wire.take() {
            self.ledger.out_packets += 1;
            self.ledger.out_bytes += u64::from(frame.bytes());
            self.departed.push_back((Port(j as u32), frame));
        }
        self.transmit(now, j);
    }
}

impl<F: Packet + Clone, D: Discipline<F>, R: OutputOf<F>> Node<F> for Switch<F, D, R> {
    fn receive(&mut self, now: Time, port: Port, frame: &F, _: &mut ()) {
        self.advance(now);
        let (i, bytes) = (port.0 as usize, u64::from(frame.bytes()));
        let output = self.route.output_of(frame).map(|port| port.0 as usize);
        let Some(j) = output.filter(|&j| j.max(i) < self.inputs.len()) else {
            self.strays.packets += 1;
            self.strays.bytes += bytes;
            return;
        };
        self.ledger.in_packets += 1;
        self.ledger.in_bytes += bytes;
        let waiting = &mut self.inputs[i].waiting;
        let before = waiting.backlog().packets;
        waiting.enqueue(j, frame.clone(), &mut self.ledger.drops);
        if waiting.backlog().packets > before {
            self.outputs[j].owed.packets += 1;
            self.outputs[j].owed.bytes += bytes;
            self.outputs[j].watch(now);
            self.feed(now, i);
        }
    }

    fn handle_timeout(&mut self, now: Time, _: &mut ()) {
        self.advance(now);
    }

    fn poll_transmit(&mut self, _now: Time, frame: &mut F, _: &mut ()) -> Option<Port> {
        let (port, departed) = self.departed.pop_front()?;
        *frame = departed;
        Some(port)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.calendar.next().map(|next| next.0)
    }
}
