//! The stress test of distributed queueing (DER paper, section 8, Table 4 and Figures 18 to 21).
//!
//! `K` sources send at the link's rate, all to output 1, for `T1` periods. Then all move on to
//! output 2, and so on; at output `R` all but the first fall silent. Inputs and outputs are by then
//! full of backlog for outputs 1 to `R-1`, and input 1 must still hand output `R` its packets at
//! the full rate.
//!
//! # When a stage ends
//!
//! The paper ends stage `j > 1` "when the input backlog B_i,2 equals B_i,1" (for `j = 2`). Here the
//! load sees what the ports announce and nothing else, once in each period, and so a stage ends at
//! the broadcast *nearest* to the moment of equality: the first at which the two backlogs of input
//! 1 are apart by no more than half of what they came closer in the period before. The first
//! broadcast *after* that moment would be late by half a period on average, stage after stage, and
//! would turn on less than a packet: in the paper's case an ideal fluid is equal exactly at a
//! broadcast, where any crumb decides which side the next one falls on, and packets come in crumbs
//! of 520 bytes. (By the rule "the first broadcast at which they are within one packet" this switch
//! gives 400, 601, 702 and 753, and the fluid 400, 600, 700 and 750.)
//!
//! # What an ideal fluid does
//!
//! Under equations 1 to 4 it has `r = S·L/K = 35` Mb/s for each backlog that counts: the old one
//! falls by 35, the new one rises by `70 - 35`, both meet half way, and the stages last 400, 200,
//! 100 and 50 periods. The first period of each stage, whose packets wait for the first broadcast
//! that includes them, raises both backlogs alike and so changes nothing. Equations 5 and 6 give
//! part of each input's rate to queues in which nothing waits, backlogs fall more slowly, and the
//! later stages last longer.

use alloc::vec::Vec;

use nilometer_queue::Sharing;
use nilometer_queue::aal5::Framing;
use nilometer_queue::broadcast::{Announcement, DqError};
use nilometer_queue::distributed::{SwitchShape, Variant};
use nilometer_queue::voq::InputLimits;
use nilometer_wire::{Rate, Span};
use serde::Serialize;

use crate::overload::{Load, Missed, Outcome, Row, Supply, drive};
use crate::switch::SwitchPlan;

/// Packets that wait at most at an input or an output: far more than a test of a second brings.
const BUFFER_PACKETS: u32 = 10_000_000;
/// A run that has not drained after this many times `T1` is ended.
const T1_MOST: u64 = 12;
/// The most periods that stage 1 may last.
const T1_PERIODS_MAX: u32 = 100_000;

/// The parameters of Table 4, and those that the paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StressPlan {
    /// `N`: ports.
    pub ports: usize,
    /// `S`: speed-up.
    pub speedup: f64,
    /// `L`: rate of links and sources.
    pub link: Rate,
    /// `D`: update period.
    pub period: Span,
    /// `M`: packet size, bytes.
    pub packet_bytes: u32,
    /// `K`: sources, 1 to `N`.
    pub sources: usize,
    /// `R`: stages, 2 to `N`.
    pub stages: usize,
    /// `T1`: periods of the first stage, 1 to 100,000.
    pub t1_periods: u32,
    /// `B_min` of equations 5 and 6, bytes. The paper does not give it; one packet.
    pub minimum_backlog_bytes: u64,
    /// How packets travel through the fabric.
    pub framing: Framing,
    /// From an announcement to when it is heard; 0 to `D`.
    pub broadcast_delay: Span,
}

impl Default for StressPlan {
    /// Table 4.
    fn default() -> StressPlan {
        StressPlan {
            ports: 8,
            speedup: 2.0,
            link: Rate::from_megabits(70),
            period: Span::from_nanos(500_000),
            packet_bytes: 520,
            sources: 4,
            stages: 5,
            t1_periods: 400,
            minimum_backlog_bytes: 520,
            framing: Framing::Whole,
            broadcast_delay: Span::ZERO,
        }
    }
}

/// Why a stress test cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum StressError {
    /// The switch cannot be as described.
    #[error(transparent)]
    Switch(#[from] DqError),
    /// `K` is zero or above the number of ports.
    #[error("sources are 1 to the number of ports, not {0}")]
    Sources(usize),
    /// `R` is below two or above the number of ports.
    #[error("stages are 2 to the number of ports, not {0}")]
    Stages(usize),
    /// `T1` is zero or above 100,000 periods.
    #[error("the first stage lasts 1 to {T1_PERIODS_MAX} periods, not {0}")]
    FirstStage(u32),
    /// Packets have no bytes.
    #[error("packets have at least one byte")]
    PacketBytes,
}

impl StressPlan {
    /// The paper's three sets of equations, with this plan's reserve: `original`, `reserved`, and
    /// `dq_plus` without deferral.
    pub fn variants(&self) -> [Variant; 3] {
        let minimum_backlog_bytes = self.minimum_backlog_bytes;
        let minimum_share = Variant::minimum_share(self.ports);
        let deferral_periods = None;
        [
            Variant::Original,
            Variant::Reserved { minimum_backlog_bytes, minimum_share },
            Variant::DqPlus { minimum_backlog_bytes, minimum_share, deferral_periods },
        ]
    }

    /// The switch of this plan, under `variant`.
    pub fn switch(&self, variant: Variant) -> Result<SwitchPlan, DqError> {
        Ok(SwitchPlan {
            fabric: SwitchShape::new(self.ports, self.speedup, self.link, self.period)?,
            variant,
            input: InputLimits {
                packets: u64::from(BUFFER_PACKETS),
                packet_bytes: self.packet_bytes,
                sharing: Sharing::default(),
                framing: self.framing,
            },
            broadcast_delay: self.broadcast_delay,
        })
    }

    /// The packets of this plan, for at most `periods_most` periods.
    pub fn supply(&self, periods_most: u64) -> Supply {
        Supply { packet_bytes: self.packet_bytes, output_packets: BUFFER_PACKETS, periods_most }
    }

    /// When a run that has not drained is ended: twelve times `T1`.
    pub fn periods_most(&self) -> u64 {
        u64::from(self.t1_periods) * T1_MOST
    }

    /// The load of this plan.
    pub fn load(&self) -> Result<StressLoad, StressError> {
        if self.sources == 0 || self.sources > self.ports {
            return Err(StressError::Sources(self.sources));
        }
        if self.stages < 2 || self.stages > self.ports {
            return Err(StressError::Stages(self.stages));
        }
        if self.t1_periods == 0 || self.t1_periods > T1_PERIODS_MAX {
            return Err(StressError::FirstStage(self.t1_periods));
        }
        if self.packet_bytes == 0 {
            return Err(StressError::PacketBytes);
        }
        Ok(StressLoad { plan: *self, ends: Vec::new(), gap: None })
    }
}

/// The stress load: stage after stage, as the announced backlogs say.
#[derive(Clone, Debug)]
pub struct StressLoad {
    plan: StressPlan,
    ends: Vec<u64>,
    /// How far the two backlogs were apart at the last broadcast of this stage.
    gap: Option<u64>,
}

impl StressLoad {
    /// The broadcasts at which stages 1, 2, ... ended, as far as they have.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// Is `update` the broadcast nearest to the moment at which the backlogs are equal?
    fn stage_is_over(&mut self, update: u64, own: &[u64]) -> bool {
        let stage = self.ends.len();
        if stage == 0 {
            return update >= u64::from(self.plan.t1_periods);
        }
        let gap = own[stage - 1].saturating_sub(own[stage]);
        let before = self.gap.replace(gap);
        let is_over = before.is_some_and(|before| 2 * gap <= before.saturating_sub(gap));
        gap == 0 || is_over
    }
}

impl Load for StressLoad {
    fn aim(&mut self, update: u64, announced: &[Announcement], aims: &mut [Option<u32>]) -> bool {
        let own = &announced[0].input_backlog_bytes;
        let last = self.plan.stages - 1;
        if self.ends.len() < last && self.stage_is_over(update, own) {
            self.ends.push(update);
            self.gap = None;
        }
        let stage = self.ends.len();
        let is_last = stage == last;
        for (i, aim) in aims.iter_mut().enumerate() {
            let sends = if is_last { i == 0 } else { i < self.plan.sources };
            *aim = sends.then_some(stage as u32);
        }
        let drained = announced.iter().all(|announcement| {
            announcement.input_backlog_bytes[..last].iter().all(|&bytes| bytes == 0)
        });
        !(is_last && drained)
    }
}

/// What one set of equations made of the stress test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StressRun {
    /// `original`, `reserved` or `dq_plus`.
    pub name: &'static str,
    /// The broadcasts at which stages 1 to `R-1` ended; fewer when the run was cut off.
    pub stages: Vec<u64>,
    /// Output 1's backlog at `T1`.
    pub output_backlog_bytes_at_t1: u64,
    /// Input 1's backlog for output 1 at `T1`.
    pub input_backlog_bytes_at_t1: u64,
    /// Input 1's rate for output `N`, for which nothing waits, at `T1`; Mb/s.
    pub idle_voq_mbps: f64,
    /// Input 1's rate for output `R`, the mean of periods 10 to 60 of the last stage, Mb/s.
    pub last_stage_mbps: f64,
    /// Everything else.
    pub outcome: Outcome,
}

/// A stage's end and an idle queue's rate, under one set of equations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VariantRow {
    /// `original`, `reserved` or `dq_plus`.
    pub name: &'static str,
    /// The broadcasts at which stages 1 to `R-1` ended.
    pub stages: Vec<u64>,
    /// Input 1's rate for an output for which nothing waits, at `T1`; Mb/s.
    pub idle_voq_mbps: f64,
}

/// The stress test as it is reported: one set of equations in full, beside the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StressResult {
    /// The equations of all fields but `variants`.
    pub name: &'static str,
    /// The broadcasts at which stages 1 to `R-1` ended.
    pub stages: Vec<u64>,
    /// Output 1's backlog at `T1`.
    pub output_backlog_bytes_at_t1: u64,
    /// Input 1's backlog for output 1 at `T1`.
    pub input_backlog_bytes_at_t1: u64,
    /// Periods in which an output idled though a period's worth was announced for it.
    pub idle_violations: u64,
    /// Bytes that outputs missed in the periods before their first announcement.
    pub idle_bytes_first_periods: f64,
    /// What outputs missed in full.
    pub missed: Missed,
    /// One row for each period, for the plots.
    pub series: Vec<Row>,
    /// All three sets of equations.
    pub variants: Vec<VariantRow>,
}

/// Runs the stress test under `variant`.
pub fn run(plan: &StressPlan, variant: Variant) -> Result<StressRun, StressError> {
    let mut load = plan.load()?;
    let supply = plan.supply(plan.periods_most());
    let outcome = drive(plan.switch(variant)?, supply, &mut load)?;
    let row = |period: u64| outcome.rows.get(period as usize);
    let at_t1 = row(u64::from(plan.t1_periods));
    let last = plan.stages - 1;
    let settled: Vec<f64> = match load.ends.get(last - 1) {
        Some(end) => (end + 10..end + 60).filter_map(row).map(|row| row.rate_mbps[last]).collect(),
        None => Vec::new(),
    };
    Ok(StressRun {
        name: variant.name(),
        output_backlog_bytes_at_t1: at_t1.map_or(0, |row| row.output_backlog_bytes[0]),
        input_backlog_bytes_at_t1: at_t1.map_or(0, |row| row.input_backlog_bytes[0]),
        idle_voq_mbps: at_t1.map_or(0.0, |row| row.rate_mbps[plan.ports - 1]),
        last_stage_mbps: settled.iter().sum::<f64>() / settled.len().max(1) as f64,
        stages: load.ends,
        outcome,
    })
}

/// Runs the stress test under all three sets of equations, and reports number `main` (0 to 2, as
/// [`StressPlan::variants`] orders them) in full.
pub fn compare(plan: &StressPlan, main: usize) -> Result<StressResult, StressError> {
    let mut runs = Vec::new();
    for variant in plan.variants() {
        runs.push(run(plan, variant)?);
    }
    let row = |run: &StressRun| VariantRow {
        name: run.name,
        stages: run.stages.clone(),
        idle_voq_mbps: run.idle_voq_mbps,
    };
    let variants = runs.iter().map(row).collect();
    let full = runs.swap_remove(main.min(runs.len() - 1));
    Ok(StressResult {
        name: full.name,
        stages: full.stages,
        output_backlog_bytes_at_t1: full.output_backlog_bytes_at_t1,
        input_backlog_bytes_at_t1: full.input_backlog_bytes_at_t1,
        idle_violations: full.outcome.missed.violations,
        idle_bytes_first_periods: full.outcome.missed.first_bytes,
        missed: full.outcome.missed,
        series: full.outcome.rows,
        variants,
    })
}
