//! The table of simulated flows, `nilometer-simulated-flows/1`: each flow of each run of a sweep.

use anyhow::Result;
use nilometer_sim::FlowOutcome;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};

use super::columns::Format;
use super::rows::{RowWriter, columns};
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

columns! {
    point: required Int32Type,
    seed: required Int64Type,
    flow: required Int32Type,
    kind: required ByteArrayType,
    table: required Int32Type,
    goodput: required DoubleType,
    fair_share: optional DoubleType,
    timeouts: required Int64Type,
    retransmits: required Int64Type,
    start: required DoubleType,
    finished: optional DoubleType,
    mean_delay: optional DoubleType,
    longest_delay: optional DoubleType,
    sent: optional Int64Type,
    received: optional Int64Type,
}

/// A table of simulated flows being written.
pub struct SimulatedWriter(RowWriter<Columns>);

impl SimulatedWriter {
    /// Begins the table in the file of the draft.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn on(draft: Draft) -> Result<SimulatedWriter> {
        Ok(SimulatedWriter(RowWriter::on(draft, &SIMULATED)?))
    }

    /// Adds a flow.
    ///
    /// # Errors
    /// When a full row group cannot be written.
    pub fn write(&mut self, row: &FlowRow<'_>) -> Result<()> {
        let (columns, flow) = (&mut self.0.columns, row.flow);
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
        self.0.end_row()
    }

    /// Completes the table, with the scenario's text in its metadata.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self, scenario: &str) -> Result<()> {
        self.0.finish(&[(SCENARIO_KEY, scenario.to_owned())])?;
        Ok(())
    }
}
