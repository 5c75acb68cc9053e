//! Virtual output queues: an input's packets wait by output, and leave as their rates allow.
//!
//! With one queue, a packet for a congested output would hold up all behind it. So an input keeps a
//! first-in first-out queue for each output, and regulates how fast each moves into the fabric.
//!
//! # Pacing
//!
//! Once in each update period `D` every queue is granted what its rate `r` is worth for a period,
//! `r·D`, as credit that packets spend. Credit that is left when the next grant comes is kept up to
//! the largest packet, and no more. If none were kept, a queue whose grant is below a packet (8.3
//! Mb/s at 520 bytes and 500 µs) would never move, and the stress test's last stage grants less. If
//! all were kept, a queue could save up an hour's credit and then flood its output. Credit is
//! counted in bits times picoseconds, so that nothing is ever rounded but the rate, down to the bit
//! per second.
//!
//! # Order
//!
//! A grant is for a period, but an output needs its packets *during* the period, and the order in
//! which one input sends decides that. A smooth sender of rate `r` would have sent a queue's first
//! `n` bytes of the period by `n/r`, less what earlier credit pays for. An output at which backlog
//! waits does not miss them before it has sent that backlog, at `B_j/L`. The sum of both is the
//! head packet's deadline, and the earliest deadline among the queues that can pay goes first. The
//! rates of a row add up to at most the rate of the input's link into the fabric, so smooth senders
//! would all fit side by side; hence earliest-deadline-first is never later than they are by more
//! than the packet that is on the link and those that saved credit lets in front. All that was
//! granted is sent within the period whatever the order, since the link does not wait for
//! deadlines; later deadlines for full outputs only let empty ones go first. (Without them, the
//! stress test's last stages idle an empty output for three packets while full ones are fed.) Equal
//! deadlines go round from an output of the input's own, so that inputs with equal rows do not all
//! begin with the same output.
//!
//! # What a queue is promised
//!
//! An input's buffer is shared as [`crate::sharing`] says: a packet that finds fewer in its queue than
//! the reserve is never lost. What a queue holds depends on how fast it is emptied, and here is the rate
//! that distributed queueing never goes below. Let `F = S·L/N`, an output's fair share of an input's link
//! into the fabric, `S <= N`, and let `X` wait at output `j` and `Y` at the inputs for it when a period
//! begins. As no `lo` is above one, `wt_ij >= lo_ij/N`, and `hi_ij >= lo_ij`; so `r_ij >= F·lo_ij`, and
//! the rates of a column add up to `F·Y/(X+Y)` at least. (A minimum share and a minimum backlog move
//! both towards `1/N`, and reallocation adds; neither lowers a rate below that. Deferred urgency does, as long as much
//! waits at the output.) If `X+Y >= F·D`, the output thus has or receives `X + F·D·Y/(X+Y)`, which is `F·D` or more, in
//! the period, and sends it, if its own link is as fast as `F`. So `X+Y` behaves as on a link of rate `F`, but for one
//! period: if at most `s + F·t` bytes for the output arrive in any time `t`, at all inputs together, no more than
//! `s + 2·F·D` ever waits for it, plus one packet at each input, which waits until its credit is whole. (Three periods
//! where crossing takes time, as in the simulated switch: what is granted may arrive as late as at the period's end.)
//! This holds whatever the other outputs get. Hence *no input loses packets to an output whose load is within its fair
//! share of the input's link and within its own link, and whose burst, with what its share carries in two periods, is
//! within the reserve.* (An output whose own link is slower than `F` has a backlog by which its rates fall, and what
//! waits at the inputs then grows; with a grant that is late by `t`, a share waits for `t` more.)

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::Span;

use crate::aal5::Framing;
use crate::broadcast::{DqError, PORTS_MAX};
use crate::discipline::{Backlog, Drops, Packet, Reason};
use crate::sharing::{Shares, Sharing};

/// Credit of one byte: eight bits at one bit per second for 10¹² ps each.
const CREDIT_PER_BYTE: u128 = 8_000_000_000_000;

/// What an input's buffer holds, and how packets leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputLimits {
    /// Packets that may wait at the input, all queues together; at most 2³² - 1, more count as that.
    pub packets: u64,
    /// How the queues share them.
    pub sharing: Sharing,
    /// Bytes of the largest packet; larger ones are dropped.
    pub packet_bytes: u32,
    /// How packets travel through the fabric: what credit pays for.
    pub framing: Framing,
}

/// What a queue may send in this period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Credit {
    /// Bits per second.
    rate: u64,
    /// Left from earlier periods; at most the largest packet.
    kept: u128,
    /// Granted for this period.
    granted: u128,
    /// Spent in this period.
    spent: u128,
    /// For how long the output will not miss anything, picoseconds after the grant.
    hold: u64,
}

impl Credit {
    fn left(&self) -> u128 {
        self.kept + self.granted - self.spent
    }

    /// When a smooth sender would be done with `cost` more, in picoseconds after the grant, as a
    /// fraction: numerator and denominator.
    fn deadline(&self, cost: u128) -> (u128, u128) {
        let rate = u128::from(self.rate.max(1));
        let smooth = (self.spent + cost).saturating_sub(self.kept);
        (smooth + u128::from(self.hold) * rate, rate)
    }
}

/// The queues of one input (DER, 3.6).
#[derive(Clone, Debug)]
pub struct VirtualOutputs<P> {
    queues: Vec<VecDeque<P>>,
    credits: Vec<Credit>,
    backlog_bytes: Vec<u64>,
    shares: Shares,
    limits: InputLimits,
    first: usize,
}

impl<P: Packet> VirtualOutputs<P> {
    /// Empty queues for `outputs` outputs (1 to [`PORTS_MAX`]), without credit. Equal deadlines go
    /// round from output `first`.
    ///
    /// # Errors
    /// When there are too few or too many outputs, or their reserves are more than the buffer.
    pub fn new(outputs: usize, first: usize, limits: InputLimits) -> Result<Self, DqError> {
        if outputs == 0 || outputs > PORTS_MAX {
            return Err(DqError::Ports(outputs));
        }
        Ok(VirtualOutputs {
            queues: (0..outputs).map(|_| VecDeque::new()).collect(),
            credits: vec![Credit::default(); outputs],
            backlog_bytes: vec![0; outputs],
            shares: Shares::new(outputs, limits.packets, limits.sharing)?,
            limits,
            first: first % outputs,
        })
    }

    /// `packet` arrives for `output`. It waits, or goes to `drops`: it is too big, the input is full, or
    /// the queue has its share. Panics where there is no such output, as a slice does.
    pub fn enqueue(&mut self, output: usize, packet: P, drops: &mut impl Drops<P>) {
        if packet.bytes() > self.limits.packet_bytes {
            return drops.dropped(Reason::TooBig, packet);
        }
        if let Err(reason) = self.shares.admit(output) {
            return drops.dropped(reason, packet);
        }
        self.backlog_bytes[output] += u64::from(packet.bytes());
        self.queues[output].push_back(packet);
    }

    /// A period of length `period` begins, with these rates in bits per second, rounded down to the
    /// bit per second. The outputs will have sent what waits at them after `holds`; a hold longer
    /// than the period counts as the period. One rate and one hold for each output; an output
    /// without either keeps its last grant.
    pub fn grant(&mut self, period: Span, rates: &[f64], holds: &[Span]) {
        let most = self.cost(self.limits.packet_bytes);
        for ((credit, &rate), hold) in self.credits.iter_mut().zip(rates).zip(holds) {
            let rate = rate as u64;
            *credit = Credit {
                rate,
                kept: credit.left().min(most),
                granted: u128::from(rate) * u128::from(period.0),
                spent: 0,
                hold: hold.0.min(period.0),
            };
        }
    }

    /// The next packet for the fabric and the output it is for, if any queue has a packet and the
    /// credit to send it; its credit is spent.
    pub fn dequeue(&mut self) -> Option<(usize, P)> {
        let outputs = self.queues.len();
        let mut best: Option<(usize, u128, (u128, u128))> = None;
        for output in (self.first..outputs).chain(0..self.first) {
            let Some(head) = self.queues[output].front() else { continue };
            let cost = self.cost(head.bytes());
            let credit = &self.credits[output];
            if credit.left() < cost {
                continue;
            }
            let mine = credit.deadline(cost);
            if best.is_none_or(|(_, _, other)| mine.0 * other.1 < other.0 * mine.1) {
                best = Some((output, cost, mine));
            }
        }
        let (output, cost, _) = best?;
        let packet = self.queues[output].pop_front()?;
        self.credits[output].spent += cost;
        self.backlog_bytes[output] -= u64::from(packet.bytes());
        self.shares.leave(output, 1);
        Some((output, packet))
    }

    /// Bytes that wait for each output: what the input announces.
    pub fn backlog_bytes(&self) -> &[u64] {
        &self.backlog_bytes
    }

    /// What waits at the input, all queues together.
    pub fn backlog(&self) -> Backlog {
        Backlog { packets: self.shares.total(), bytes: self.backlog_bytes.iter().sum() }
    }

    /// Bytes of credit that the queue for `output` has left, rounded down. Panics where there is no
    /// such output, as a slice does.
    pub fn credit_bytes(&self, output: usize) -> u64 {
        (self.credits[output].left() / CREDIT_PER_BYTE) as u64
    }

    fn cost(&self, bytes: u32) -> u128 {
        u128::from(self.limits.framing.fabric_bytes(bytes)) * CREDIT_PER_BYTE
    }
}
