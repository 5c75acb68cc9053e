//! The table of queues over time, `nilometer-queues/1`: queue lengths at each port in each step.

use anyhow::Result;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};

use super::columns::Format;
use super::rows::{RowWriter, columns};
use crate::document::results::ResultFile;

/// The format of queues over time. Times are nanoseconds since the traffic began.
pub const QUEUES: Format = Format {
    name: "nilometer-queues/1",
    schema: "message queues {
        required binary port (STRING);
        required binary place (STRING);
        required int64 start_ns (INTEGER(64,false));
        required int64 length_ns (INTEGER(64,false));
        required double mean_packets;
        required int64 max_packets (INTEGER(64,false));
        required double mean_bytes;
        required int64 max_bytes (INTEGER(64,false));
    }",
    later: 0,
    rising: &[],
};

columns! {
    port: required ByteArrayType,
    place: required ByteArrayType,
    start: required Int64Type,
    length: required Int64Type,
    mean_packets: required DoubleType,
    max_packets: required Int64Type,
    mean_bytes: required DoubleType,
    max_bytes: required Int64Type,
}

/// The queue at one place in one step of time.
#[derive(Clone, Copy, Debug)]
pub struct QueueRow<'a> {
    /// The port.
    pub port: &'a str,
    /// `output` or `input`.
    pub place: &'a str,
    /// Beginning of the step, ns.
    pub start_ns: u64,
    /// Its length, ns.
    pub length_ns: u64,
    /// Packets, averaged by time.
    pub mean_packets: f64,
    /// The most packets.
    pub max_packets: u64,
    /// Bytes, averaged by time.
    pub mean_bytes: f64,
    /// The most bytes.
    pub max_bytes: u64,
}

/// Writes queues over time into a file of the results.
///
/// # Errors
/// When it cannot be written.
pub fn write_queues<'a>(to: &ResultFile, rows: impl Iterator<Item = QueueRow<'a>>) -> Result<()> {
    let mut table = RowWriter::<Columns>::on(to.draft()?, &QUEUES)?;
    for row in rows {
        let columns = &mut table.columns;
        columns.port.push(ByteArray::from(row.port));
        columns.place.push(ByteArray::from(row.place));
        columns.start.push(row.start_ns as i64);
        columns.length.push(row.length_ns as i64);
        columns.mean_packets.push(row.mean_packets);
        columns.max_packets.push(row.max_packets as i64);
        columns.mean_bytes.push(row.mean_bytes);
        columns.max_bytes.push(row.max_bytes as i64);
        table.end_row()?;
    }
    table.finish(&[])?;
    Ok(())
}
