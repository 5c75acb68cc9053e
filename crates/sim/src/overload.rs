//! Sources that never pause, in front of a switch, and an account of what its outputs missed.
//!
//! Each source is wired to one input and sends packets of one size back to back at the link's rate,
//! for the output that a [`Load`] aims it at. The load is called at every broadcast, sees what was
//! announced and nothing else, and may aim each source anew: a packet that is on its way keeps its
//! output, the next one has the new one. So the switching moments come out of the switch's own
//! behaviour, sampled once in each update period.
//!
//! # When an output misses something
//!
//! The equations promise (see [`nilometer_queue::distributed`]) that an output does not idle in a
//! period at whose start at least what its link sends in the period, `L·D` bytes, waits for it at
//! the inputs and at the output together. So periods are of three kinds: *promised* ones; those
//! *before the first* promised one of the output, in which its first packets wait for the first
//! broadcast that includes them; and *sparse* ones, later, with less than `L·D` announced. Idleness
//! is counted for each kind, as the bytes that the link would have sent while it stood idle and a
//! packet for it was inside the switch.
//!
//! The promise is one of fluids, and packets are indivisible. The first bit of a packet cannot
//! leave before its last bit has crossed the fabric, which takes `1/S` of the packet's time on the
//! output's link, and an input cannot spend the last of a grant when that is less than a packet. So
//! a promised period is a *violation* when its output idled for longer than one largest packet
//! takes on the output's link. Idleness below that is not hidden: it is in the sum, and the most in
//! one period is reported.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_queue::broadcast::{Announcement, DqError};
use nilometer_queue::{Capacity, Packet, TailDrop};
use nilometer_wire::{Ecn, Node, Port, Span, Time};
use serde::Serialize;

use crate::switch::{OutputOf, Switch, SwitchPlan};

/// A packet of an overload: its length and its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Bytes on the link.
    pub bytes: u32,
    /// Its output.
    pub output: u32,
}

impl Packet for Parcel {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow(&self) -> u32 {
        self.output
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }
    fn mark(&mut self) {}
}

/// Decides where sources send.
pub trait Load {
    /// Broadcast number `update` (from zero) has carried `announced`. Aims each source, by its
    /// input, at an output, or silences it. Returns whether to continue.
    fn aim(&mut self, update: u64, announced: &[Announcement], aims: &mut [Option<u32>]) -> bool;
}

/// The bytes that outputs missed: what their links would have sent while they idled and a packet
/// for them was in the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Missed {
    /// Pairs of an output and a promised period.
    pub promised_periods: u64,
    /// Those of them in which the output idled longer than a largest packet takes on its link.
    pub violations: u64,
    /// In periods before an output's first promised one.
    pub first_bytes: f64,
    /// In promised periods.
    pub promised_bytes: f64,
    /// The most in one promised period at one output.
    pub promised_most_bytes: f64,
    /// In later periods, with less than a period's worth announced.
    pub sparse_bytes: f64,
}

impl Missed {
    /// Counts a period of one output that idled for `bytes`. `before`: no period was promised to it yet.
    pub fn count(&mut self, bytes: f64, promised: bool, before: bool, allowance_bytes: f64) {
        if promised {
            self.promised_periods += 1;
            // A thousandth of a byte: spans are rounded to the picosecond.
            self.violations += u64::from(bytes > allowance_bytes + 1e-3);
            self.promised_bytes += bytes;
            self.promised_most_bytes = self.promised_most_bytes.max(bytes);
        } else if before {
            self.first_bytes += bytes;
        } else {
            self.sparse_bytes += bytes;
        }
    }

    /// All of them.
    pub fn bytes(&self) -> f64 {
        self.first_bytes + self.promised_bytes + self.sparse_bytes
    }
}

/// One period as input 1 sees it: what was heard at its start, and the rates that follow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Number of the period, from zero.
    pub period: u64,
    /// `B_j` of every output, bytes.
    pub output_backlog_bytes: Vec<u64>,
    /// `B_1,j` for every output, bytes.
    pub input_backlog_bytes: Vec<u64>,
    /// `r_1,j` for every output, Mb/s.
    pub rate_mbps: Vec<f64>,
    /// `L·lo_1,j` for every output, Mb/s: the least rates that keep outputs from running dry.
    pub minimum_rate_mbps: Vec<f64>,
}

/// The results of an overload.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// One row for each period.
    pub rows: Vec<Row>,
    /// What outputs missed.
    pub missed: Missed,
    /// The largest sum of minimum rates that any input had, Mb/s; promises are kept below `S·L`.
    pub minimum_rates_most_mbps: f64,
    /// The most bytes between the inputs and one output inside the fabric.
    pub crossing_most_bytes: u64,
    /// Packets that arrived at the switch.
    pub in_packets: u64,
    /// Packets that left it.
    pub out_packets: u64,
    /// Packets dropped.
    pub drop_packets: u64,
    /// Packets still inside at the end.
    pub inside_packets: u64,
    /// Whether what arrived has left, was dropped or was inside, at the end of every period.
    pub balanced: bool,
}

/// How an overload is made, besides the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// Bytes of every packet; at most the switch's largest.
    pub packet_bytes: u32,
    /// Packets that wait at most at each output.
    pub output_packets: u32,
    /// The run ends after this many periods, whatever the load returns.
    pub periods_most: u64,
}

/// A source: its aim, and the packet on its way to the switch.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    aim: Option<u32>,
    underway: Option<(Time, u32)>,
}

impl Source {
    fn start(&mut self, now: Time, took: Span) {
        if self.underway.is_none() {
            self.underway = self.aim.map(|output| (now + took, output));
        }
    }
}

/// Runs `load` against a switch made by `plan`, from the first broadcast until it stops the run.
pub fn drive(plan: SwitchPlan, supply: Supply, load: &mut impl Load) -> Result<Outcome, DqError> {
    let ports = plan.fabric.ports();
    let outputs =
        (0..ports).map(|_| TailDrop::new(Capacity::Packets(supply.output_packets))).collect();
    let route = |parcel: &Parcel| Some(Port(parcel.output));
    let mut switch = Switch::new(plan, outputs, route)?;
    let mut watch = Watch::new(plan);
    let mut sources = vec![Source::default(); ports];
    let mut aims = vec![None; ports];
    let took = plan.fabric.link().span_of(u64::from(supply.packet_bytes));
    let mut departed = Parcel { bytes: 0, output: 0 };
    loop {
        let (updates, grants) = (switch.updates(), switch.grants());
        let alarm = switch.poll_timeout().unwrap_or(Time(u64::MAX));
        let next = sources.iter().enumerate().filter_map(|(i, s)| Some((s.underway?.0, i))).min();
        match next {
            Some((moment, i)) if moment < alarm => {
                let output = sources[i].underway.take().map_or(0, |packet| packet.1);
                let parcel = Parcel { bytes: supply.packet_bytes, output };
                switch.receive(moment, Port(i as u32), &parcel, &mut ());
                sources[i].start(moment, took);
            }
            _ => switch.handle_timeout(alarm, &mut ()),
        }
        while switch.poll_transmit(alarm, &mut departed, &mut ()).is_some() {}
        if switch.grants() > grants {
            watch.period(&switch, alarm);
        }
        if switch.updates() == updates {
            continue;
        }
        let go_on = load.aim(updates, switch.announced(), &mut aims);
        if !go_on || updates >= supply.periods_most {
            return Ok(watch.outcome(&switch));
        }
        for (source, aim) in sources.iter_mut().zip(&aims) {
            source.aim = *aim;
            source.start(alarm, took);
        }
    }
}

/// The switch of an overload.
type Overloaded<R> = Switch<Parcel, TailDrop<Parcel>, R>;

/// Keeps the account of a run, period by period.
struct Watch {
    plan: SwitchPlan,
    outcome: Outcome,
    idle: Vec<Span>,
    promised: Vec<bool>,
    was_promised: Vec<bool>,
}

impl Watch {
    fn new(plan: SwitchPlan) -> Watch {
        let no = vec![false; plan.fabric.ports()];
        let outcome = Outcome { balanced: true, ..Outcome::default() };
        let idle = vec![Span::ZERO; no.len()];
        Watch { plan, outcome, idle, promised: no.clone(), was_promised: no }
    }

    /// A grant was made at `now`: a period has ended, another begins.
    fn period<R: OutputOf<Parcel>>(&mut self, switch: &Overloaded<R>, now: Time) {
        let fabric = self.plan.fabric;
        let allowance = f64::from(self.plan.input.packet_bytes);
        // Between announcement and the end of the period that follows from it.
        let horizon = fabric.period() + self.plan.broadcast_delay;
        let worth = fabric.link().bytes_in(horizon);
        for j in 0..self.idle.len() {
            let idle = switch.idle(j, now);
            let bytes = fabric.link().bytes_in(idle - self.idle[j]);
            self.was_promised[j] |= self.promised[j];
            let before = !self.was_promised[j];
            self.outcome.missed.count(bytes, self.promised[j], before, allowance);
            self.idle[j] = idle;
            let board = switch.board();
            let announced = board.output_bytes(j) as f64 + board.column_bytes(j) as f64;
            self.promised[j] = announced >= worth;
        }
        self.outcome.balanced &= switch.balances();
        self.row(switch);
    }

    fn row<R: OutputOf<Parcel>>(&mut self, switch: &Overloaded<R>) {
        let ports = self.plan.fabric.ports();
        let link_mbps = self.plan.fabric.link().bits_per_second() as f64 / 1e6;
        for i in 0..ports {
            let sum = link_mbps * switch.allocator(i).lo().iter().sum::<f64>();
            self.outcome.minimum_rates_most_mbps = self.outcome.minimum_rates_most_mbps.max(sum);
        }
        let (board, first) = (switch.board(), switch.allocator(0));
        self.outcome.rows.push(Row {
            period: self.outcome.rows.len() as u64,
            output_backlog_bytes: (0..ports).map(|j| board.output_bytes(j)).collect(),
            input_backlog_bytes: board.row(0).to_vec(),
            rate_mbps: first.rates().iter().map(|r| r / 1e6).collect(),
            minimum_rate_mbps: first.lo().iter().map(|lo| lo * link_mbps).collect(),
        });
    }

    fn outcome<R: OutputOf<Parcel>>(self, switch: &Overloaded<R>) -> Outcome {
        let mut outcome = self.outcome;
        let ledger = switch.ledger();
        outcome.crossing_most_bytes = switch.crossing_most_bytes();
        outcome.in_packets = ledger.in_packets;
        outcome.out_packets = ledger.out_packets;
        outcome.drop_packets = ledger.drops.total_packets();
        outcome.inside_packets = switch.inside().packets;
        outcome
    }
}
