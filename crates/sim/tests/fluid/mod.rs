//! The same overloads as a fluid model, with which packets, pacing and a fabric are compared.
//!
//! No packet, no event, no fabric: one step for each update period. At a broadcast the rates are
//! computed from the backlogs of the moment. In the period that follows, each input moves at its
//! rate what waited and what comes in, each output sends at `L` what waited and what comes to it,
//! and what an output could not send while something for it was at an input is what it missed.

use nilometer_queue::broadcast::{Announcement, Board, DqError};
use nilometer_queue::distributed::{Allocator, SwitchShape, Variant};

use nilometer_sim::overload::{Load, Missed};

/// What a fluid run shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FluidOutcome {
    /// What outputs missed.
    pub missed: Missed,
    /// `B_1` and `B_1,1` at each broadcast, bytes.
    pub first: Vec<(f64, f64)>,
    /// The largest backlog of any output, bytes.
    pub output_most_bytes: f64,
    /// The largest sum of minimum rates of any input, Mb/s.
    pub minimum_rates_most_mbps: f64,
    /// `r_1,N` at each broadcast, Mb/s.
    pub idle_voq_mbps: Vec<f64>,
}

/// Backlogs in bytes.
struct Pool {
    output: Vec<f64>,
    input: Vec<Vec<f64>>,
}

impl Pool {
    fn announce(&self) -> Vec<Announcement> {
        let whole = |bytes: &f64| bytes.round() as u64;
        let say = |(row, output): (&Vec<f64>, &f64)| Announcement {
            output_backlog_bytes: whole(output),
            input_backlog_bytes: row.iter().map(whole).collect(),
        };
        self.input.iter().zip(&self.output).map(say).collect()
    }
}

/// Pours `load` through a switch of `fabric` under `variant` until it stops the run, or for
/// `periods_most` periods.
pub fn pour(
    fabric: SwitchShape,
    variant: Variant,
    periods_most: u64,
    load: &mut impl Load,
) -> Result<FluidOutcome, DqError> {
    let ports = fabric.ports();
    let worth = fabric.link().bytes_in(fabric.period());
    let link_mbps = fabric.link().bits_per_second() as f64 / 1e6;
    let mut pool = Pool { output: vec![0.0; ports], input: vec![vec![0.0; ports]; ports] };
    let (mut board, mut aims) = (Board::new(ports)?, vec![None; ports]);
    let mut allocator = Allocator::new(fabric, variant)?;
    let mut was_promised = vec![false; ports];
    let mut outcome = FluidOutcome::default();
    for update in 0..=periods_most {
        let announced = pool.announce();
        for (port, announcement) in announced.iter().enumerate() {
            board.hear(port, announcement)?;
        }
        outcome.first.push((pool.output[0], pool.input[0][0]));
        if !load.aim(update, &announced, &mut aims) {
            break;
        }
        let mut reaches = vec![0.0; ports];
        for (i, aim) in aims.iter().enumerate() {
            let rates = allocator.allocate(&board, i)?.to_vec();
            if i == 0 {
                outcome.idle_voq_mbps.push(rates[ports - 1] / 1e6);
            }
            let least = link_mbps * allocator.lo().iter().sum::<f64>();
            outcome.minimum_rates_most_mbps = outcome.minimum_rates_most_mbps.max(least);
            for j in 0..ports {
                let here = pool.input[i][j] + if *aim == Some(j as u32) { worth } else { 0.0 };
                let moved = here.min(rates[j] / 8.0 * fabric.period().as_secs_f64());
                pool.input[i][j] = here - moved;
                reaches[j] += moved;
            }
        }
        for j in 0..ports {
            let promised = board.output_bytes(j) as f64 + board.column_bytes(j) as f64 >= worth;
            let here = pool.output[j] + reaches[j];
            let behind: f64 = pool.input.iter().map(|row| row[j]).sum();
            let missed = (worth - here).clamp(0.0, behind);
            outcome.missed.count(missed, promised, !was_promised[j], 0.0);
            was_promised[j] |= promised;
            pool.output[j] = (here - worth).max(0.0);
            outcome.output_most_bytes = outcome.output_most_bytes.max(pool.output[j]);
        }
    }
    Ok(outcome)
}
