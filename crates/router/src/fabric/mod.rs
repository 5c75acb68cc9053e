//! The fabric of the live router: virtual output queues, distributed queueing, paced outputs.
//!
//! The paper's router has a switch between port processors; here the ports share one memory, and what
//! crosses the fabric is a handle. Crossing takes no time, so the fabric is as fast as it is *allowed*
//! to be, and what allows it is distributed queueing (section 3.6): every period `D` each port
//! announces its backlogs, each input computes its row of rates `r_ij` from them, and each virtual
//! output queue is granted `r_ij·D` to spend until the next broadcast. Rows add up to at most `S·L`,
//! and so do columns: the speed-up is kept period by period, as the paper's coarse scheduling keeps
//! it.
//!
//! `nilometer_sim::switch` is the same switch in exact time: there a packet occupies the link into the
//! fabric for its length, so that the order in which an input spends its grants matters and is a
//! deadline each. Here a grant may be spent at once, which is the earliest deadline of all. A test in
//! `sim` holds the stages of the paper's stress test in both together.
//!
//! # What is called when
//!
//! Arrivals are [`Fabric::enqueue`]d; [`Fabric::advance`] then makes the broadcasts that are due and
//! moves what has credit; [`Fabric::transmit`] asks an output for its next packet, as its rate allows.
//! Credit that is left at a grant is kept up to the largest packet: with less, a queue whose grant is
//! below a packet would never move; with more, it could save up and flood its output.
//!
//! Without distributed queueing (a case of the paper's Figure 10) an arrival goes to its output at
//! once, as in a switch that is as many times as fast as it has ports.
//!
//! Nothing vanishes: [`Fabric::balances`].

#[cfg(test)]
mod imbalance;
mod input;
mod output;
mod pool;
mod reserved;

use alloc::vec;
use alloc::vec::Vec;
use core::slice;

use nilometer_queue::broadcast::{Announcement, Board, DqError};
use nilometer_queue::distributed::{Allocator, SwitchShape, Variant};
use nilometer_queue::voq::InputLimits;
use nilometer_queue::{Any, Backlog, Drops, Ledger, Packet, Reason, Tally};
use nilometer_wire::{Rate, Span, Time};

use input::Input;
use output::Output;
use pool::Pool;

pub use output::BURST;
pub use pool::MemoryLimits;

/// Missed broadcasts are made up for, up to this many periods. The guarantee of a queue's reserve
/// ([`nilometer_queue::voq`]) assumes broadcasts on time: a turn of the driver that is later than this
/// by a time `t` costs each queue what its share carries in `t`.
const MADE_UP_PERIODS: u64 = 4;

/// How the fabric is regulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FabricPlan {
    /// Ports, speed-up, the rate `L` of a link and the period `D`.
    pub shape: SwitchShape,
    /// Which equations give the rates; nothing where arrivals cross at once.
    pub variant: Option<Variant>,
    /// What each input's buffer holds, and how its queues share it.
    pub input: InputLimits,
    /// What the memory of all packets holds; without it, the memory of the caller's buffers is not limited.
    pub memory: Option<MemoryLimits>,
}

/// The parts of distributed queueing that exist while it is on.
#[derive(Debug)]
struct Queueing {
    variant: Variant,
    allocators: Vec<Allocator>,
    board: Board,
    announced: Vec<Announcement>,
    next_update: Time,
    updates: u64,
}

impl Queueing {
    fn new(shape: SwitchShape, variant: Variant) -> Result<Queueing, DqError> {
        let ports = shape.ports();
        let allocators = (0..ports).map(|_| Allocator::new(shape, variant));
        Ok(Queueing {
            variant,
            allocators: allocators.collect::<Result<_, _>>()?,
            board: Board::new(ports)?,
            announced: vec![Announcement::default(); ports],
            next_update: Time::ZERO,
            updates: 0,
        })
    }
}

/// Inputs, what regulates them, and outputs.
#[derive(Debug)]
pub struct Fabric<P> {
    plan: FabricPlan,
    inputs: Vec<Input<P>>,
    outputs: Vec<Output<P>>,
    pool: Option<Pool>,
    queueing: Option<Queueing>,
}

impl<P: Packet + Copy> Fabric<P> {
    /// An empty fabric with one discipline in `outputs` for each port.
    ///
    /// # Errors
    /// When the number of disciplines differs from that of ports, the variant is out of its ranges, or
    /// a buffer does not hold the reserves of its queues.
    pub fn new(plan: FabricPlan, outputs: Vec<Any<P>>) -> Result<Fabric<P>, DqError> {
        let ports = plan.shape.ports();
        if outputs.len() != ports {
            return Err(DqError::Ports(outputs.len()));
        }
        let queueing =
            plan.variant.map(|variant| Queueing::new(plan.shape, variant)).transpose()?;
        let inputs = (0..ports).map(|_| Input::new(ports, plan.input));
        Ok(Fabric {
            plan,
            inputs: inputs.collect::<Result<_, _>>()?,
            outputs: outputs.into_iter().map(Output::new).collect(),
            pool: plan.memory.map(|limits| Pool::new(ports, limits)).transpose()?,
            queueing,
        })
    }

    /// How many ports there are.
    pub fn ports(&self) -> usize {
        self.inputs.len()
    }

    /// How it is regulated.
    pub fn plan(&self) -> &FabricPlan {
        &self.plan
    }

    /// `packet` arrives at `input` for `output`. Panics where there is no such port, as a slice does.
    #[inline]
    pub fn enqueue(
        &mut self,
        now: Time,
        ports: (usize, usize),
        packet: P,
        drops: &mut impl Drops<P>,
    ) {
        let (input, output) = ports;
        let is_reserved = self.has_contract(output, &packet);
        let pool = self.pool.as_mut();
        if self.queueing.is_some() && !is_reserved {
            return self.inputs[input].enqueue(output, packet, pool, drops);
        }
        let bytes = packet.bytes();
        let ledger = &mut self.inputs[input].ledger;
        ledger.in_packets += 1;
        ledger.in_bytes += u64::from(bytes);
        if let Some(Err(reason)) = pool.map(|pool| pool.admit(output, is_reserved)) {
            ledger.drops.count(reason, bytes);
            return drops.dropped(reason, packet);
        }
        ledger.out_packets += 1;
        ledger.out_bytes += u64::from(bytes);
        self.outputs[output].enqueue(now, packet, drops);
    }

    /// [`Fabric::enqueue`] of all `packets`, each with the output that it is for, in their order. None is
    /// left in the list.
    #[inline]
    pub fn enqueue_all(
        &mut self,
        now: Time,
        input: usize,
        packets: &mut Vec<(u16, P)>,
        drops: &mut impl Drops<P>,
    ) {
        if self.queueing.is_some() {
            if packets.iter().any(|(_, packet)| packet.reserved().is_some()) {
                self.enqueue_reserved(now, input, packets, drops);
            }
            return self.inputs[input].enqueue_all(packets, self.pool.as_mut(), drops);
        }
        for (output, packet) in packets.iter() {
            self.outputs[usize::from(*output)].expect(slice::from_ref(packet));
        }
        for (output, packet) in packets.drain(..) {
            self.enqueue(now, (input, usize::from(output)), packet, drops);
        }
    }

    /// [`Fabric::announce`], then [`Fabric::cross`].
    pub fn advance(&mut self, now: Time, drops: &mut impl Drops<P>) {
        self.announce(now);
        self.cross(now, drops);
    }

    /// Makes the broadcasts that are due by `now`, and the grants that follow from them.
    pub fn announce(&mut self, now: Time) {
        let Some(queueing) = &mut self.queueing else { return };
        let period = self.plan.shape.period();
        if now < queueing.next_update {
            return;
        }
        let late = now.since(queueing.next_update).0 / period.0;
        queueing.next_update = match late {
            0 => queueing.next_update + period,
            _ => now + period,
        };
        self.update((late + 1).min(MADE_UP_PERIODS));
    }

    /// Moves packets that have credit from inputs to outputs.
    pub fn cross(&mut self, now: Time, drops: &mut impl Drops<P>) {
        if self.queueing.is_some() {
            let outputs = &mut self.outputs;
            for input in &mut self.inputs {
                input.cross(now, outputs, drops);
            }
        }
        // What disciplines dropped is no longer in the memory.
        for output in 0..self.outputs.len() {
            self.settle(output);
        }
    }

    /// Tells the memory how much has left `output`.
    #[inline]
    fn settle(&mut self, output: usize) {
        if let Some(pool) = &mut self.pool {
            pool.settle(output, self.outputs[output].left());
        }
    }

    /// `packets` packets that [`Fabric::transmit`] gave out for `output` are still in the fabric's
    /// memory, because the device has not sent them. Panics where there is no such port.
    pub fn set_sending(&mut self, output: usize, packets: u32) {
        if let Some(pool) = &mut self.pool {
            pool.set_sending(output, packets);
        }
    }

    /// One broadcast, and grants worth `periods` periods.
    fn update(&mut self, periods: u64) {
        let Some(queueing) = &mut self.queueing else { return };
        queueing.updates += 1;
        for (port, announcement) in queueing.announced.iter_mut().enumerate() {
            announcement.output_backlog_bytes = self.outputs[port].backlog().bytes;
            announcement.input_backlog_bytes.clear();
            announcement.input_backlog_bytes.extend_from_slice(self.inputs[port].backlog_bytes());
            let taken = queueing.board.hear(port, announcement);
            debug_assert!(taken.is_ok(), "the board was made for these ports");
        }
        let span = Span(self.plan.shape.period().0 * periods);
        for (i, input) in self.inputs.iter_mut().enumerate() {
            if let Ok(rates) = queueing.allocators[i].allocate(&queueing.board, i) {
                input.grant(span, rates);
            }
        }
    }

    /// The next packet of `output`'s link, if its rate allows one at `now` and one waits. Panics
    /// where there is no such port.
    #[inline]
    pub fn transmit(&mut self, now: Time, output: usize, drops: &mut impl Drops<P>) -> Option<P> {
        let packet = self.outputs[output].transmit(now, drops);
        self.settle(output);
        packet
    }

    /// Calls [`Fabric::transmit`] for at most `most` packets; returns how many there were.
    #[inline]
    pub fn transmit_all(
        &mut self,
        now: Time,
        output: usize,
        most: usize,
        drops: &mut impl Drops<P>,
        give: impl FnMut(P),
    ) -> usize {
        let count = self.outputs[output].transmit_all(now, most, drops, give);
        self.settle(output);
        count
    }

    /// Puts back a packet that [`Fabric::transmit`] gave and the device had no room for: it is the
    /// next to be given.
    pub fn put_back(&mut self, output: usize, packet: P) {
        self.outputs[output].put_back(packet);
        self.settle(output);
    }

    /// When there is something to do next, if anything waits that time alone will move.
    pub fn poll_timeout(&self) -> Option<Time> {
        let outputs = self.outputs.iter().filter_map(Output::poll_timeout);
        let waits = self.inputs.iter().any(|input| input.ledger_waiting().packets > 0);
        let update = self.queueing.as_ref().filter(|_| waits).map(|queueing| queueing.next_update);
        outputs.chain(update).min()
    }

    /// Gives `output` another discipline; what waited in the old one goes to the new one in the order
    /// in which it would have left, and what that has no room for is dropped and counted.
    pub fn set_discipline(
        &mut self,
        now: Time,
        output: usize,
        discipline: Any<P>,
        drops: &mut impl Drops<P>,
    ) {
        self.outputs[output].set_discipline(now, discipline, drops);
        self.settle(output);
    }

    /// Marks whether the discipline of `output` is the default one of a port. Until this is called, and
    /// after [`Fabric::set_discipline`], the discipline counts as explicitly configured.
    /// Panics where there is no such port.
    pub fn set_usual(&mut self, output: usize, is_usual: bool) {
        self.outputs[output].is_usual = is_usual;
    }

    /// Whether a packet to `output` that arrives now, at any input, crosses and leaves as if there were no
    /// fabric: inputs hand over at once, because no link into the fabric has a limit (distributed queueing,
    /// whose grants are that limit, is off); the link of the output has neither a rate nor a length, nothing
    /// waits or is on its wire, and its discipline is the usual one ([`Fabric::set_usual`]), which decides
    /// nothing when no packet waits. Panics where there is no such port.
    pub fn is_transparent(&self, output: usize) -> bool {
        self.queueing.is_none() && self.outputs[output].is_transparent()
    }

    /// Gives the link of `output` another rate; without one, only the device limits it.
    pub fn set_rate(&mut self, output: usize, rate: Option<Rate>) {
        self.outputs[output].set_rate(rate);
    }

    /// The rate of the link of `output`. Panics where there is no such port.
    pub fn rate(&self, output: usize) -> Option<Rate> {
        self.outputs[output].rate
    }

    /// Lets the link of `output` send `burst_bytes` at once beyond its rate when it was served late;
    /// without a number, what its rate carries in [`BURST`]. With 0 no lag is made up. Panics where
    /// there is no such port.
    pub fn set_burst(&mut self, output: usize, burst_bytes: Option<u64>) {
        self.outputs[output].set_burst(burst_bytes);
    }

    /// The burst that [`Fabric::set_burst`] set. Panics where there is no such port.
    pub fn burst_bytes(&self, output: usize) -> Option<u64> {
        self.outputs[output].burst_bytes
    }

    /// The latest service that all links with a rate make up for; nothing where none has a rate.
    pub fn made_up(&self) -> Option<Span> {
        self.outputs.iter().filter_map(Output::made_up).min()
    }

    /// By how much the link of `output` is made longer. Panics where there is no such port.
    pub fn delay(&self, output: usize) -> Span {
        self.outputs[output].delay
    }

    /// Delays packets that leave `output` from now on by `delay`: a longer link.
    pub fn set_delay(&mut self, output: usize, delay: Span) {
        self.outputs[output].delay = delay;
    }

    /// Changes the equations, the period or the speed-up; without a `variant` distributed queueing is
    /// switched off, and packets waiting at inputs cross at once. The number of ports stays.
    ///
    /// # Errors
    /// When the shape has another number of ports or the variant is out of its ranges; nothing has
    /// changed then.
    pub fn set_queueing(
        &mut self,
        now: Time,
        shape: SwitchShape,
        variant: Option<Variant>,
        drops: &mut impl Drops<P>,
    ) -> Result<(), DqError> {
        if shape.ports() != self.ports() {
            return Err(DqError::Ports(shape.ports()));
        }
        let mut queueing = variant.map(|variant| Queueing::new(shape, variant)).transpose()?;
        match &mut queueing {
            Some(new) => {
                new.next_update = now;
                new.updates = self.updates();
            }
            None => {
                let outputs = &mut self.outputs;
                for input in &mut self.inputs {
                    input.release(|j, packet| outputs[j].enqueue(now, packet, drops));
                }
            }
        }
        self.plan.shape = shape;
        self.plan.variant = variant;
        self.queueing = queueing;
        Ok(())
    }

    /// How many broadcasts there were.
    pub fn updates(&self) -> u64 {
        self.queueing.as_ref().map_or(0, |queueing| queueing.updates)
    }

    /// Which equations are in force.
    pub fn variant(&self) -> Option<Variant> {
        self.queueing.as_ref().map(|queueing| queueing.variant)
    }

    /// What each port announced last; nothing where distributed queueing is off.
    pub fn announced(&self) -> &[Announcement] {
        self.queueing.as_ref().map_or(&[], |queueing| &queueing.announced)
    }

    /// The rates in force at `input`, with the `hi` and `lo` they came from.
    pub fn allocator(&self, input: usize) -> Option<&Allocator> {
        self.queueing.as_ref().and_then(|queueing| queueing.allocators.get(input))
    }

    /// Bytes that wait at `input` for each output. Panics where there is no such port.
    pub fn input_backlog_bytes(&self, input: usize) -> &[u64] {
        self.inputs[input].backlog_bytes()
    }

    /// The backlog at `input`, for all outputs together. Panics where there is no such port.
    pub fn input_backlog(&self, input: usize) -> Backlog {
        self.inputs[input].ledger_waiting()
    }

    /// The backlog at `output`. Panics where there is no such port.
    pub fn output_backlog(&self, output: usize) -> Backlog {
        self.outputs[output].backlog()
    }

    /// The discipline of `output`: its kind and the states of its queues. Panics where there is no
    /// such port.
    pub fn discipline(&self, output: usize) -> &Any<P> {
        self.outputs[output].discipline()
    }

    /// Packets that came to `input`, left it for outputs, and were dropped there. Panics where there is
    /// no such port.
    pub fn input_ledger(&self, input: usize) -> &Ledger {
        &self.inputs[input].ledger
    }

    /// Packets that `output` got over the fabric, sent, and dropped. Panics where there is no such port.
    pub fn output_ledger(&self, output: usize) -> &Ledger {
        &self.outputs[output].ledger
    }

    /// All that waits at `port`: at its input, at its output, on its wire. Panics where there is no
    /// such port.
    pub fn waiting(&self, port: usize) -> Backlog {
        let input = self.inputs[port].ledger_waiting();
        let output = self.outputs[port].ledger_waiting();
        Backlog { packets: input.packets + output.packets, bytes: input.bytes + output.bytes }
    }

    /// Packets that were dropped, at inputs and by disciplines.
    pub fn dropped_packets(&self) -> u64 {
        let inputs = self.inputs.iter().map(|input| input.ledger.drops.total_packets());
        let outputs = self.outputs.iter().map(|output| output.ledger.drops.total_packets());
        inputs.chain(outputs).sum()
    }

    /// Whether nothing vanished, at any port and in sum.
    pub fn balances(&self) -> bool {
        let inputs = self.inputs.iter().map(|input| (&input.ledger, input.ledger_waiting()));
        let outputs = self.outputs.iter().map(|output| (&output.ledger, output.ledger_waiting()));
        let out: u64 = self.inputs.iter().map(|input| input.ledger.out_packets).sum();
        let into: u64 = self.outputs.iter().map(|output| output.ledger.in_packets).sum();
        out == into
            && inputs.chain(outputs).all(|(ledger, waiting)| ledger.balances(waiting))
            && self.pool.as_ref().is_none_or(|pool| self.balances_with(pool))
    }

    /// Whether the memory's count agrees with the packets here.
    fn balances_with(&self, pool: &Pool) -> bool {
        self.outputs.iter().enumerate().all(|(j, output)| {
            let waiting: u64 = self.inputs.iter().map(|input| input.packets(j)).sum();
            let inside = waiting + output.ledger_waiting().packets;
            pool.balances(j, inside, output.left())
        })
    }
}

/// Counts what it passes on.
struct Counted<'a, D> {
    tally: &'a mut Tally,
    drops: &'a mut D,
}

impl<P: Packet, D: Drops<P>> Drops<P> for Counted<'_, D> {
    fn dropped(&mut self, reason: Reason, packet: P) {
        self.tally.count(reason, packet.bytes());
        self.drops.dropped(reason, packet);
    }
}
