//! Distributed queueing: how fast each input may send to each output (DER paper, sections 3.6, 8).
//!
//! An output-queued switch never lets a link idle while a packet for it waits anywhere, but needs a
//! fabric `N` times as fast as its links. Distributed queueing comes near with a fabric `S` times
//! as fast, `S` about two, and without a scheduler that sees every packet: once in each update
//! period `D` the ports announce their backlogs to each other, and each input computes its own row
//! of rates.
//!
//! Two bounds meet in a rate. Let `B_j` wait at output `j`, `B_ij` at input `i` for output `j`, and
//! let sums run over all inputs `h`.
//!
//! * *Not too fast.* `hi_ij = B_ij / sum B_hj` (equation 1) is input `i`'s share of what waits for
//!   output `j`. The shares of a column add up to at most one; so if no input sends faster than
//!   `S·L·hi_ij`, the fabric's link to output `j` (rate `S·L`) is never overbooked.
//! * *Not too slow.* `lo_ij = B_ij / (B_j + sum B_hj)` (equation 2). If every input sends at least
//!   `L·lo_ij`, then in a time `t` output `j` receives `L·t·Y/(X+Y)`, where `X = B_j` waited there
//!   and `Y = sum B_hj` at the inputs when the period began. It idles only if that and `X` are less
//!   than the `L·t` that it sends, which is `X < L·t·X/(X+Y)`, or `X+Y < L·t`. So an output for
//!   which a period's worth is announced somewhere does not idle in that period.
//!
//! An input's own link into the fabric has the rate `S·L` as well. It is divided in proportion to
//! urgency, `wt_ij = lo_ij / sum lo_ih` over all outputs `h` (equation 4), and the rate is the
//! smaller of weight and ceiling: `r_ij = S·L·min(hi_ij, wt_ij)` (equation 3). Then `r_ij >=
//! L·lo_ij` wherever `sum lo_ih <= S`, as `hi_ij >= lo_ij`; what the paper plots as Figure 21 is
//! that sum.
//!
//! Section 8 reserves a little for queues in which nothing waits yet, so that what arrives there
//! need not wait for the next broadcast: a minimum backlog `B_min` in `hi` (equation 5) and a
//! minimum share `lo_min` in `lo` (equation 6). DQ+ adds what [`crate::dq_plus`] explains.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::{Rate, Span};

use crate::broadcast::{Board, DqError, PORTS_MAX};
use crate::dq_plus;

const PERIOD_MAX: Span = Span::from_secs(1);
const MINIMUM_BACKLOG_MAX_BYTES: u64 = 1 << 30;
const DEFERRAL_MAX_PERIODS: u32 = 1_000_000;

/// The switch as its ports know it: `N`, `S`, `L` and `D` of the paper's Tables 1 and 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchShape {
    ports: usize,
    speedup: f64,
    link: Rate,
    period: Span,
}

impl SwitchShape {
    /// `ports` inputs and as many outputs (1 to [`PORTS_MAX`]) with links of rate `link`, a fabric
    /// `speedup` times as fast (1 to [`PORTS_MAX`]), and broadcasts every `period` (up to a
    /// second).
    pub fn new(
        ports: usize,
        speedup: f64,
        link: Rate,
        period: Span,
    ) -> Result<SwitchShape, DqError> {
        if ports == 0 || ports > PORTS_MAX {
            return Err(DqError::Ports(ports));
        }
        if !(speedup >= 1.0 && speedup <= PORTS_MAX as f64) {
            return Err(DqError::Speedup(speedup));
        }
        if period == Span::ZERO || period > PERIOD_MAX {
            return Err(DqError::Period);
        }
        Ok(SwitchShape { ports, speedup, link, period })
    }

    /// `N`: how many inputs and how many outputs.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// `S`: how many times as fast as a link the fabric is.
    pub fn speedup(&self) -> f64 {
        self.speedup
    }

    /// `L`: the rate of a link outside the switch.
    pub fn link(&self) -> Rate {
        self.link
    }

    /// `D`: the time from one broadcast to the next.
    pub fn period(&self) -> Span {
        self.period
    }

    /// `S·L`: the rate of a link inside the switch, rounded down to the bit per second.
    pub fn capacity(&self) -> Rate {
        let bits_per_second = self.link.bits_per_second() as f64 * self.speedup;
        Rate::new(bits_per_second as u64).unwrap_or(self.link)
    }
}

/// Which equations give the rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Variant {
    /// Equations 1 to 4.
    Original,
    /// Equations 3 to 6.
    Reserved {
        /// `B_min`, bytes; 1 to 2³⁰. The paper does not give its value.
        minimum_backlog_bytes: u64,
        /// `lo_min`, 0 to 1; [`Variant::minimum_share`] is the paper's.
        minimum_share: f64,
    },
    /// Equations 3 to 6, and what a row leaves is reallocated under the ceilings.
    DqPlus {
        /// `B_min`, bytes; 1 to 2³⁰.
        minimum_backlog_bytes: u64,
        /// `lo_min`, 0 to 1.
        minimum_share: f64,
        /// Urgency of an output is deferred while this many periods' worth waits there (1 to 10⁶);
        /// `None` defers nothing.
        deferral_periods: Option<u32>,
    },
}

impl Variant {
    /// The paper's `lo_min` for a switch of `ports` ports: `0.5/N`.
    pub fn minimum_share(ports: usize) -> f64 {
        0.5 / ports as f64
    }

    /// The name that files and scripts use.
    pub const fn name(&self) -> &'static str {
        match self {
            Variant::Original => "original",
            Variant::Reserved { .. } => "reserved",
            Variant::DqPlus { deferral_periods: None, .. } => "dq_plus",
            Variant::DqPlus { deferral_periods: Some(_), .. } => "dq_plus_deferred",
        }
    }

    /// `B_min` in bytes and `lo_min`; zeros where nothing is reserved.
    fn reserve(&self) -> (u64, f64) {
        match *self {
            Variant::Original => (0, 0.0),
            Variant::Reserved { minimum_backlog_bytes, minimum_share }
            | Variant::DqPlus { minimum_backlog_bytes, minimum_share, .. } => {
                (minimum_backlog_bytes, minimum_share)
            }
        }
    }

    fn check(&self) -> Result<(), DqError> {
        if *self == Variant::Original {
            return Ok(());
        }
        let (backlog, share) = self.reserve();
        if backlog == 0 || backlog > MINIMUM_BACKLOG_MAX_BYTES {
            return Err(DqError::MinimumBacklog(backlog));
        }
        if !(0.0..=1.0).contains(&share) {
            return Err(DqError::MinimumShare(share));
        }
        match *self {
            Variant::DqPlus { deferral_periods: Some(n), .. }
                if n == 0 || n > DEFERRAL_MAX_PERIODS =>
            {
                Err(DqError::Deferral(n))
            }
            _ => Ok(()),
        }
    }
}

/// `hi` of a queue (equations 1 and 5): its share of what waits at all inputs for its output.
/// Bytes; `minimum` is `B_min`, zero in equation 1. Zero where nothing waits and nothing is
/// reserved.
pub fn hi(own: u64, column: u128, minimum: u64, ports: usize) -> f64 {
    let whole = ports as f64 * minimum as f64 + column as f64;
    if whole > 0.0 { (minimum as f64 + own as f64) / whole } else { 0.0 }
}

/// `lo` of a queue (equations 2 and 6): its share of all that waits for its output, there and at
/// the inputs, and `minimum`, which is `lo_min`, zero in equation 2. Zero where nothing waits.
pub fn lo(own: u64, output: u64, column: u128, minimum: f64) -> f64 {
    let whole = output as f64 + column as f64;
    minimum + if whole > 0.0 { own as f64 / whole } else { 0.0 }
}

/// One input's row of rates, computed from what it heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocator {
    fabric: SwitchShape,
    variant: Variant,
    hi: Vec<f64>,
    lo: Vec<f64>,
    rates: Vec<f64>,
}

impl Allocator {
    /// An allocator for an input of `fabric`; an error where `variant` is out of its ranges.
    pub fn new(fabric: SwitchShape, variant: Variant) -> Result<Allocator, DqError> {
        variant.check()?;
        let zeros = vec![0.0; fabric.ports];
        Ok(Allocator { fabric, variant, hi: zeros.clone(), lo: zeros.clone(), rates: zeros })
    }

    /// The rates `r_i,1` to `r_i,N` of `input` in bits per second, given what stands on `board`.
    /// They add up to at most `S·L`, and so do those of all inputs to one output.
    pub fn allocate(&mut self, board: &Board, input: usize) -> Result<&[f64], DqError> {
        if board.ports() != self.fabric.ports {
            return Err(DqError::Ports(board.ports()));
        }
        if input >= self.fabric.ports {
            return Err(DqError::NoSuchPort(input));
        }
        self.weigh(board, input);
        let capacity = self.fabric.capacity().bits_per_second() as f64;
        let urgency: f64 = self.lo.iter().sum();
        for (j, rate) in self.rates.iter_mut().enumerate() {
            let weight = if urgency > 0.0 { self.lo[j] / urgency } else { 0.0 };
            *rate = capacity * self.hi[j].min(weight);
        }
        if let Variant::DqPlus { .. } = self.variant {
            dq_plus::reallocate(capacity, &self.hi, &mut self.rates);
        }
        Ok(&self.rates)
    }

    fn weigh(&mut self, board: &Board, input: usize) {
        let (minimum_backlog, minimum_share) = self.variant.reserve();
        let period_bytes = self.fabric.link.bytes_in(self.fabric.period);
        for (j, &own) in board.row(input).iter().enumerate() {
            let (output, column) = (board.output_bytes(j), board.column_bytes(j));
            self.hi[j] = hi(own, column, minimum_backlog, self.fabric.ports);
            self.lo[j] = match self.variant {
                Variant::DqPlus { deferral_periods: Some(periods), .. } => {
                    let enough = period_bytes * f64::from(periods);
                    let urgent = lo(own, output, column, 0.0) * dq_plus::deferral(output, enough);
                    minimum_share + urgent
                }
                _ => lo(own, output, column, minimum_share),
            };
        }
    }

    /// The rates of the last allocation, bits per second.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// `hi_i,1` to `hi_i,N` of the last allocation.
    pub fn hi(&self) -> &[f64] {
        &self.hi
    }

    /// `lo_i,1` to `lo_i,N` of the last allocation; `L` times one of them is the least rate that
    /// keeps its output from running dry (Figure 21).
    pub fn lo(&self) -> &[f64] {
        &self.lo
    }
}
