//! The table of queues over time, `nilometer-queues/1`: what waited at each port in each step.

use anyhow::Result;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};

use super::columns::{Cells, Column, Format, ROW_GROUP_ROWS, TableWriter};
use crate::document::results::ResultFile;
use crate::trial::router::QueueCourse;

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
};

/// Columns in the order of the schema.
struct Columns {
    port: Column<ByteArrayType>,
    place: Column<ByteArrayType>,
    start: Column<Int64Type>,
    length: Column<Int64Type>,
    mean_packets: Column<DoubleType>,
    max_packets: Column<Int64Type>,
    mean_bytes: Column<DoubleType>,
    max_bytes: Column<Int64Type>,
}

impl Columns {
    fn new() -> Columns {
        Columns {
            port: Column::required(),
            place: Column::required(),
            start: Column::required(),
            length: Column::required(),
            mean_packets: Column::required(),
            max_packets: Column::required(),
            mean_bytes: Column::required(),
            max_bytes: Column::required(),
        }
    }

    fn all(&mut self) -> [&mut dyn Cells; 8] {
        [
            &mut self.port,
            &mut self.place,
            &mut self.start,
            &mut self.length,
            &mut self.mean_packets,
            &mut self.max_packets,
            &mut self.mean_bytes,
            &mut self.max_bytes,
        ]
    }
}

/// Writes the courses of queues into a file of the results.
///
/// # Errors
/// When it cannot be written.
pub fn write_queues(to: &ResultFile, courses: &[QueueCourse]) -> Result<()> {
    let mut table = TableWriter::on(to.draft()?, &QUEUES)?;
    let (mut columns, mut held) = (Columns::new(), 0);
    for course in courses {
        let words = [course.port.as_str(), course.place].map(ByteArray::from);
        for step in &course.steps {
            columns.port.push(words[0].clone());
            columns.place.push(words[1].clone());
            columns.start.push(step.start_ns as i64);
            columns.length.push(step.length_ns as i64);
            columns.mean_packets.push(step.waited.mean_packets);
            columns.max_packets.push(step.waited.max_packets as i64);
            columns.mean_bytes.push(step.waited.mean_bytes);
            columns.max_bytes.push(step.waited.max_bytes as i64);
            held += 1;
            if held == ROW_GROUP_ROWS {
                table.write_group(&mut columns.all())?;
                held = 0;
            }
        }
    }
    if held > 0 {
        table.write_group(&mut columns.all())?;
    }
    table.finish(&[])
}
