//! The table of a stream's frames, `nilometer-stream-packets/1`: when each was due, sent and received, and its fate.
//!
//! One row is one frame that was sent, or a further copy that was received. A time is absent where it is not known:
//! a lost frame was never received, and the stamp of a frame's departure may have been lost.

use anyhow::Result;
use parquet::data_type::{BoolType, ByteArrayType, Int32Type, Int64Type};

use super::columns::Format;
use super::packets::{Fate, FateWords, fate_words};
use super::rows::{RowWriter, columns};
use crate::document::draft::Draft;

/// The format of a stream's frames.
pub const STREAM_PACKETS: Format = Format {
    name: "nilometer-stream-packets/1",
    schema: "message stream_packets {
        required int64 sequence (INTEGER(64,false));
        required int32 direction (INTEGER(8,false));
        required int32 flow (INTEGER(32,false));
        required int32 frame_bytes (INTEGER(16,false));
        required int64 scheduled_ns (INTEGER(64,false));
        optional int64 sent_ns (INTEGER(64,false));
        optional int64 received_ns (INTEGER(64,false));
        required binary fate (STRING);
        required boolean reordered;
    }",
    later: 0,
    rising: &["sequence", "scheduled_ns", "sent_ns", "received_ns"],
};

/// About how many bytes a row takes in the file, for disk budgets and estimates.
pub const ROW_BYTES: u64 = 40;

/// One frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPacketRow {
    /// Its number in its stream.
    pub sequence: u64,
    /// Which way it went: 0 from the clients, 1 from the servers.
    pub direction: u8,
    /// The number of its flow.
    pub flow: u32,
    /// How long the frame is, with its check sequence.
    pub frame_bytes: u16,
    /// When it was due, ns since the stream began.
    pub scheduled_ns: u64,
    /// When it was sent, ns since the stream began.
    pub sent_ns: Option<u64>,
    /// When it was received, ns since the stream began.
    pub received_ns: Option<u64>,
    /// Its fate.
    pub fate: Fate,
    /// Was it received after a frame of its flow that was sent later?
    pub reordered: bool,
}

columns! {
    sequence: required Int64Type,
    direction: required Int32Type,
    flow: required Int32Type,
    frame_bytes: required Int32Type,
    scheduled: required Int64Type,
    sent: optional Int64Type,
    received: optional Int64Type,
    fate: required ByteArrayType,
    reordered: required BoolType,
}

/// A table of frames being written.
pub struct StreamPacketWriter {
    table: RowWriter<Columns>,
    words: FateWords,
}

impl StreamPacketWriter {
    /// Begins the table in the file of the draft.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn on(draft: Draft) -> Result<StreamPacketWriter> {
        let table = RowWriter::on(draft, &STREAM_PACKETS)?;
        Ok(StreamPacketWriter { table, words: fate_words() })
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, row: &StreamPacketRow) -> Result<()> {
        let columns = &mut self.table.columns;
        columns.sequence.push(row.sequence as i64);
        columns.direction.push(row.direction.into());
        columns.flow.push(row.flow as i32);
        columns.frame_bytes.push(row.frame_bytes.into());
        columns.scheduled.push(row.scheduled_ns as i64);
        columns.sent.push_optional(row.sent_ns.map(|stamp| stamp as i64));
        columns.received.push_optional(row.received_ns.map(|stamp| stamp as i64));
        columns.fate.push(self.words[row.fate as usize].clone());
        columns.reordered.push(row.reordered);
        self.table.end_row()
    }

    /// Completes the file with `marks` in its metadata; it now gets its name. Returns how many rows it has.
    ///
    /// # Errors
    /// When the file cannot be written or named.
    pub fn finish(self, marks: &[(&str, String)]) -> Result<u64> {
        self.table.finish(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{TABLE, guard_output};
    use crate::table::columns::{ROW_GROUP_ROWS, TableReader};

    #[test]
    fn every_frame_has_its_row() {
        let name = format!("nilometer-stream-packets-{}.parquet", std::process::id());
        let path = std::env::temp_dir().join(name);
        let draft = guard_output(&path, &[], true, TABLE).unwrap().draft();
        let mut writer = StreamPacketWriter::on(draft.unwrap()).unwrap();
        let rows = ROW_GROUP_ROWS as u64 + 11;
        for sequence in 0..rows {
            let row = StreamPacketRow {
                sequence,
                direction: (sequence % 2) as u8,
                flow: 3,
                frame_bytes: 64,
                scheduled_ns: sequence * 10,
                sent_ns: (!sequence.is_multiple_of(5)).then_some(sequence * 10 + 1),
                received_ns: None,
                fate: Fate::Lost,
                reordered: false,
            };
            writer.write(&row).unwrap();
        }
        assert_eq!(writer.finish(&[("seed", "7".into())]).unwrap(), rows);
        let table = TableReader::open(&path, &STREAM_PACKETS).unwrap();
        assert_eq!((table.mark("seed"), table.groups()), (Some("7"), 2));
        std::fs::remove_file(path).unwrap();
    }
}
