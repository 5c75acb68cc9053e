//! Distributed queueing seen from outside: rates recomputed from what the ports broadcast.
//!
//! The paper's visualiser captured the backlog broadcasts and computed the rates anew, as every port
//! processor does for itself (section 3.6). This module does the same: the forwarding thread passes
//! on the announcements of its last broadcast, and the equations are evaluated here, on another
//! thread. A test compares the rates with those in force.

use anyhow::{Result, anyhow};
use nilometer_queue::broadcast::{Announcement, Board};
use nilometer_queue::distributed::{Allocator, SwitchShape, Variant};
use nilometer_wire::Rate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::driver::Driver;

/// State of the fabric at one broadcast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FabricView {
    /// Name of the equations, or `off`.
    pub queueing: String,
    /// Seconds since the router started.
    pub seconds: f64,
    /// Broadcasts so far.
    pub broadcasts: u64,
    /// Time between broadcasts, in microseconds.
    pub period_us: f64,
    /// Speedup: fabric rate relative to a link's.
    pub speedup: f64,
    /// The rate `L` of a link into the fabric, in bits per second.
    pub link_rate_bps: u64,
    /// Maximum rate of an input or output across the fabric, `S·L`, in bits per second.
    pub capacity_bps: u64,
    /// Inputs, by port; empty if distributed queueing is off.
    pub inputs: Vec<InputView>,
    /// Outputs, by port.
    pub outputs: Vec<OutputView>,
}

/// An input; lists are indexed by output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InputView {
    /// Its port.
    pub port: usize,
    /// The port's interface.
    pub name: String,
    /// Announced backlog for each output, in bytes.
    pub backlog_bytes: Vec<u64>,
    /// `hi` of each queue: its share of the total backlog for its output.
    pub hi: Vec<f64>,
    /// `lo` of each queue: how urgently its output needs packets to stay busy.
    pub lo: Vec<f64>,
    /// The rate of each queue, in bits per second.
    pub rates_bps: Vec<f64>,
}

/// An output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OutputView {
    /// Its port.
    pub port: usize,
    /// The port's interface.
    pub name: String,
    /// Announced backlog of the output in bytes; the current backlog if distributed queueing is off.
    pub backlog_bytes: u64,
    /// Maximum total rate from all inputs to it, in bits per second.
    pub rate_bps: f64,
}

/// What is heard of the fabric, and no more work than copying it.
#[derive(Clone, Debug)]
pub struct FabricSnapshot {
    seconds: f64,
    broadcasts: u64,
    shape: SwitchShape,
    variant: Option<Variant>,
    announced: Vec<Announcement>,
    waiting: Vec<u64>,
    names: Vec<String>,
}

/// Copies the state that was broadcast last.
pub fn snapshot(driver: &mut Driver) -> FabricSnapshot {
    let (fabric, ports) = (driver.router().fabric(), driver.router().ports());
    FabricSnapshot {
        seconds: driver.now().as_secs_f64(),
        broadcasts: fabric.updates(),
        shape: fabric.plan().shape,
        variant: fabric.variant(),
        announced: fabric.announced().to_vec(),
        waiting: (0..fabric.ports()).map(|port| fabric.output_backlog(port).bytes).collect(),
        names: ports.iter().map(|port| port.plan().name.clone()).collect(),
    }
}

impl FabricSnapshot {
    /// How many broadcasts there had been.
    pub fn broadcasts(&self) -> u64 {
        self.broadcasts
    }

    /// Works out the rates.
    ///
    /// # Errors
    /// When the announcements are not those of such a fabric.
    pub fn view(&self) -> Result<FabricView> {
        let inputs = match self.variant {
            Some(variant) => self.inputs(variant)?,
            None => Vec::new(),
        };
        let output = |(port, waiting): (usize, &u64)| OutputView {
            port,
            name: self.names[port].clone(),
            backlog_bytes: self.announced.get(port).map_or(*waiting, |at| at.output_backlog_bytes),
            rate_bps: inputs.iter().map(|input| input.rates_bps[port]).sum(),
        };
        let bits = |rate: Rate| rate.bits_per_second();
        Ok(FabricView {
            queueing: self.variant.map_or("off", |variant| variant.name()).to_owned(),
            seconds: self.seconds,
            broadcasts: self.broadcasts,
            period_us: self.shape.period().as_nanos() as f64 / 1e3,
            speedup: self.shape.speedup(),
            link_rate_bps: bits(self.shape.link()),
            capacity_bps: bits(self.shape.capacity()),
            outputs: self.waiting.iter().enumerate().map(output).collect(),
            inputs,
        })
    }

    fn inputs(&self, variant: Variant) -> Result<Vec<InputView>> {
        let unreadable = |why| anyhow!("the broadcasts cannot be read: {why}");
        let mut board = Board::new(self.shape.ports()).map_err(unreadable)?;
        let mut allocator = Allocator::new(self.shape, variant).map_err(unreadable)?;
        // Before the first broadcast there are no announcements.
        let announcement = |announced: &&Announcement| !announced.input_backlog_bytes.is_empty();
        for (port, announced) in self.announced.iter().filter(announcement).enumerate() {
            board.hear(port, announced).map_err(unreadable)?;
        }
        let row = |port| {
            let rates_bps = allocator.allocate(&board, port).map_err(unreadable)?.to_vec();
            let (hi, lo) = (allocator.hi().to_vec(), allocator.lo().to_vec());
            let (name, backlog_bytes) = (self.names[port].clone(), board.row(port).to_vec());
            Ok(InputView { port, name, backlog_bytes, hi, lo, rates_bps })
        };
        (0..self.shape.ports()).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_wire::Span;

    #[test]
    fn rates_are_those_of_the_equations() {
        let link = Rate::from_megabits(100);
        let shape = SwitchShape::new(2, 2.0, link, Span::from_nanos(500_000)).expect("a fabric");
        let announcement = |output, input: [u64; 2]| Announcement {
            output_backlog_bytes: output,
            input_backlog_bytes: input.to_vec(),
        };
        let mut latest = FabricSnapshot {
            seconds: 1.0,
            broadcasts: 7,
            shape,
            variant: Some(Variant::Original),
            announced: vec![announcement(0, [3_000, 1_000]), announcement(4_000, [1_000, 0])],
            waiting: vec![0, 4_000],
            names: vec!["p0".to_owned(), "p1".to_owned()],
        };
        let view = latest.view().expect("it can be read");
        // Equation 1: of 4,000 bytes for output 0, input 0 has 3,000.
        assert_eq!(view.inputs[0].hi, [0.75, 1.0]);
        // Equation 2: 3,000 of 0 + 4,000, and 1,000 of 4,000 + 1,000.
        assert_eq!(view.inputs[0].lo, [0.75, 0.2]);
        // Equations 3 and 4: S·L times the lesser of hi and lo's share.
        let share = 0.75 / 0.95;
        let expected = [2e8 * 0.75, 2e8 * (1.0 - share)];
        for (rate, expected) in view.inputs[0].rates_bps.iter().zip(expected) {
            assert!((rate - expected).abs() < 1.0, "{rate} {expected}");
        }
        assert_eq!((view.outputs[1].backlog_bytes, view.capacity_bps), (4_000, 200_000_000));
        assert_eq!((view.inputs[0].name.as_str(), view.outputs[1].name.as_str()), ("p0", "p1"));
        latest.variant = None;
        latest.announced.clear();
        let off = latest.view().expect("it can be read");
        assert_eq!((off.queueing.as_str(), off.inputs.len()), ("off", 0));
        assert_eq!(off.outputs[1].backlog_bytes, 4_000);
    }
}
