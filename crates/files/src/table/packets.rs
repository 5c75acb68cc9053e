//! The table of packet stamps, `nilometer-packets/1`: the fate of every packet of a trial.
//!
//! One row is one packet seen on either side of the device. A stamp is absent on a side where the
//! packet was not seen: a lost packet never left, one that the device originated never entered.

use std::path::Path;

use anyhow::Result;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};

use super::columns::{Format, TableReader};
use super::rows::{ColumnSet, RowWriter, columns};
use crate::document::draft::Draft;

/// The format of packet stamps.
pub const PACKETS: Format = Format {
    name: "nilometer-packets/1",
    schema: "message packets {
        optional int64 entered_ns (INTEGER(64,false));
        optional int64 left_ns (INTEGER(64,false));
        optional int64 delay_ns (INTEGER(64,true));
        required int32 direction (INTEGER(8,false));
        required int32 bytes (INTEGER(32,false));
        required binary fate (STRING);
        required boolean reordered;
    }",
    later: 0,
    rising: &[],
};

nilometer_wire::named! {
    /// The fate of a packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fate {
        /// It entered and left unchanged.
        Passed = "passed",
        /// It entered and left with other bytes.
        Corrupted = "corrupted",
        /// It entered and did not leave.
        Lost = "lost",
        /// It was addressed to the device.
        Consumed = "consumed",
        /// The device originated it.
        Originated = "originated",
        /// It is a further copy of a packet that had left already.
        Duplicated = "duplicated",
    }
}

/// Each fate's word as a cell, in the order of [`Fate::ALL`], made once and shared by all rows.
pub(super) type FateWords = [ByteArray; Fate::ALL.len()];

pub(super) fn fate_words() -> FateWords {
    Fate::ALL.map(|fate| fate.name().into())
}

/// One packet of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRow {
    /// When it entered the device, ns since the trial began.
    pub entered_ns: Option<u64>,
    /// When it left the device, ns since the trial began.
    pub left_ns: Option<u64>,
    /// How long it was inside, ns; below zero only where two clocks disagree.
    pub delay_ns: Option<i64>,
    /// Which way it went: 0 from the clients, 1 from the servers.
    pub direction: u8,
    /// Length of the IP packet.
    pub bytes: u32,
    /// Its fate.
    pub fate: Fate,
    /// Did it leave after a packet of its flow that had entered later?
    pub reordered: bool,
}

columns! {
    entered: optional Int64Type,
    left: optional Int64Type,
    delay: optional Int64Type,
    direction: required Int32Type,
    bytes: required Int32Type,
    fate: required ByteArrayType,
    reordered: required BoolType,
}

/// A table of packet stamps being written.
pub struct PacketWriter {
    table: RowWriter<Columns>,
    words: FateWords,
}

impl PacketWriter {
    /// Begins the table in the file of the draft.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn on(draft: Draft) -> Result<PacketWriter> {
        Ok(PacketWriter { table: RowWriter::on(draft, &PACKETS)?, words: fate_words() })
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, row: &PacketRow) -> Result<()> {
        let columns = &mut self.table.columns;
        columns.entered.push_optional(row.entered_ns.map(|stamp| stamp as i64));
        columns.left.push_optional(row.left_ns.map(|stamp| stamp as i64));
        columns.delay.push_optional(row.delay_ns);
        columns.direction.push(row.direction.into());
        columns.bytes.push(row.bytes as i32);
        columns.fate.push(self.words[row.fate as usize].clone());
        columns.reordered.push(row.reordered);
        self.table.end_row()
    }

    /// Completes the file with `marks` in its metadata (seed, device and everything else needed to
    /// repeat the trial); it now gets its name. Returns how many packets it holds.
    ///
    /// # Errors
    /// When the file cannot be written or named.
    pub fn finish(self, marks: &[(&str, String)]) -> Result<u64> {
        self.table.finish(marks)
    }
}

/// Reads every packet of the table `path`, in its order.
///
/// # Errors
/// When it is not a table of packet stamps or is damaged, or when `sink` fails.
pub fn read_packet_table(path: &Path, sink: &mut dyn FnMut(PacketRow) -> Result<()>) -> Result<()> {
    let table = TableReader::open(path, &PACKETS)?;
    let mut columns = Columns::new();
    for group in 0..table.groups() {
        let rows = table.read_group(group, &mut columns.all())?;
        let mut entered = columns.entered.rows();
        let mut left = columns.left.rows();
        let mut delay = columns.delay.rows();
        for row in 0..rows {
            let word = columns.fate.values()[row].as_utf8().unwrap_or("(not text)");
            let Some(fate) = Fate::from_name(word) else {
                anyhow::bail!("{}: `{}` is not a known fate", path.display(), word.escape_debug());
            };
            sink(PacketRow {
                entered_ns: entered.next().flatten().map(|stamp| *stamp as u64),
                left_ns: left.next().flatten().map(|stamp| *stamp as u64),
                delay_ns: delay.next().flatten().copied(),
                direction: columns.direction.values()[row] as u8,
                bytes: columns.bytes.values()[row] as u32,
                fate,
                reordered: columns.reordered.values()[row],
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{TABLE, guard_output};
    use crate::table::columns::ROW_GROUP_ROWS;

    #[test]
    fn writing_and_reading_round_trip() {
        let name = format!("nilometer-packets-{}.parquet", std::process::id());
        let path = std::env::temp_dir().join(name);
        let row = |n: usize| PacketRow {
            entered_ns: (!n.is_multiple_of(5)).then_some(n as u64),
            left_ns: (!n.is_multiple_of(7)).then_some(u64::MAX - n as u64),
            delay_ns: (!n.is_multiple_of(35)).then_some(3 - n as i64),
            direction: (n % 2) as u8,
            bytes: u32::MAX - n as u32,
            fate: Fate::ALL[n % Fate::ALL.len()],
            reordered: n.is_multiple_of(3),
        };
        let written: Vec<_> = (0..ROW_GROUP_ROWS + 11).map(row).collect();
        let draft = guard_output(&path, &[], true, TABLE).unwrap().draft();
        let mut writer = PacketWriter::on(draft.unwrap()).unwrap();
        written.iter().for_each(|row| writer.write(row).unwrap());
        assert_eq!(writer.finish(&[("seed", "7".into())]).unwrap(), written.len() as u64);
        let mut read = Vec::new();
        read_packet_table(&path, &mut |row| {
            read.push(row);
            Ok(())
        })
        .unwrap();
        assert!(read == written);
        assert_eq!(TableReader::open(&path, &PACKETS).unwrap().mark("seed"), Some("7"));
        std::fs::remove_file(path).unwrap();
    }
}
