//! The table of simulated flows, `nilometer-simulated-flows/1`: each flow of each run of a sweep.

use anyhow::Result;
use nilometer_sim::FlowOutcome;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};

use super::columns::{Cells, Column, Format, ROW_GROUP_ROWS, TableWriter};
use crate::document::draft::Draft;

/// The format of simulated flows. Rates are in bits per second, headers included; times in seconds.
pub const SIMULATED: Format = Format {
    name: "nilometer-simulated-flows/1",
    schema: "message simulated_flows {
        required int32 point (INTEGER(32,false));
        required int64 seed (INTEGER(64,false));
        required int32 flow (INTEGER(32,false));
        required binary kind (STRING);
        required int32 table (INTEGER(32,false));
        required double goodput_bps;
        optional double fair_share_percent;
        required int64 timeouts (INTEGER(64,false));
        required int64 retransmits (INTEGER(64,false));
        required double start_s;
        optional double finished_s;
        optional double mean_delay_s;
        optional double longest_delay_s;
        optional int64 datagrams_sent (INTEGER(64,false));
        optional int64 datagrams_received (INTEGER(64,false));
    }",
    later: 0,
    rising: &[],
};

/// Metadata key of the scenario's text.
const SCENARIO_KEY: &str = "scenario";

/// One flow of one run.
pub struct FlowRow<'a> {
    /// Number of its point, from 0, in the order of `points` in `result.json`.
    pub point: usize,
    /// Seed of its run.
    pub seed: u64,
    /// Its number in the run, from 0.
    pub number: usize,
    /// Its outcome.
    pub flow: &'a FlowOutcome,
}

/// Columns in the order of the schema.
struct Columns {
    point: Column<Int32Type>,
    seed: Column<Int64Type>,
    flow: Column<Int32Type>,
    kind: Column<ByteArrayType>,
    table: Column<Int32Type>,
    goodput: Column<DoubleType>,
    fair_share: Column<DoubleType>,
    timeouts: Column<Int64Type>,
    retransmits: Column<Int64Type>,
    start: Column<DoubleType>,
    finished: Column<DoubleType>,
    mean_delay: Column<DoubleType>,
    longest_delay: Column<DoubleType>,
    sent: Column<Int64Type>,
    received: Column<Int64Type>,
}

impl Columns {
    fn new() -> Columns {
        Columns {
            point: Column::required(),
            seed: Column::required(),
            flow: Column::required(),
            kind: Column::required(),
            table: Column::required(),
            goodput: Column::required(),
            fair_share: Column::optional(),
            timeouts: Column::required(),
            retransmits: Column::required(),
            start: Column::required(),
            finished: Column::optional(),
            mean_delay: Column::optional(),
            longest_delay: Column::optional(),
            sent: Column::optional(),
            received: Column::optional(),
        }
    }

    fn all(&mut self) -> [&mut dyn Cells; 15] {
        [
            &mut self.point,
            &mut self.seed,
            &mut self.flow,
            &mut self.kind,
            &mut self.table,
            &mut self.goodput,
            &mut self.fair_share,
            &mut self.timeouts,
            &mut self.retransmits,
            &mut self.start,
            &mut self.finished,
            &mut self.mean_delay,
            &mut self.longest_delay,
            &mut self.sent,
            &mut self.received,
        ]
    }
}

/// A table of simulated flows being written.
pub struct SimulatedWriter {
    table: TableWriter,
    columns: Columns,
    held: usize,
}

impl SimulatedWriter {
    /// Begins the table in the file of the draft.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn on(draft: Draft) -> Result<SimulatedWriter> {
        let table = TableWriter::on(draft, &SIMULATED)?;
        Ok(SimulatedWriter { table, columns: Columns::new(), held: 0 })
    }

    /// Adds a flow.
    ///
    /// # Errors
    /// When a full row group cannot be written.
    pub fn write(&mut self, row: &FlowRow<'_>) -> Result<()> {
        let (columns, flow) = (&mut self.columns, row.flow);
        columns.point.push(row.point as i32);
        columns.seed.push(row.seed as i64);
        columns.flow.push(row.number as i32);
        columns.kind.push(ByteArray::from(flow.kind.name()));
        columns.table.push(flow.table as i32);
        columns.goodput.push(flow.goodput);
        columns.fair_share.push_optional(flow.share.map(|share| 100.0 * flow.goodput / share));
        columns.timeouts.push(flow.timeouts as i64);
        columns.retransmits.push(flow.retransmits as i64);
        columns.start.push(flow.start.as_secs_f64());
        columns.finished.push_optional(flow.finished.map(|at| at.as_secs_f64()));
        columns.mean_delay.push_optional(flow.delay.map(|(mean, _)| mean));
        columns.longest_delay.push_optional(flow.delay.map(|(_, most)| most.as_secs_f64()));
        columns.sent.push_optional(flow.datagrams.map(|(sent, _)| sent as i64));
        columns.received.push_optional(flow.datagrams.map(|(_, received)| received as i64));
        self.held += 1;
        if self.held == ROW_GROUP_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.held = 0;
        self.table.write_group(&mut self.columns.all())
    }

    /// Completes the table, with the scenario's text in its metadata.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self, scenario: &str) -> Result<()> {
        if self.held > 0 {
            self.flush()?;
        }
        self.table.finish(&[(SCENARIO_KEY, scenario.to_owned())])
    }
}
