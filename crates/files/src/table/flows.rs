//! The table of flow records, `nilometer-flows/1`.
//!
//! Columns are named after the IPFIX information elements they hold (IANA's registry), except for
//! four. `sourceIPAddress` and `destinationIPAddress` stand for the IPv4 and the IPv6 element
//! alike, as text: one column that every tool can read, filter and join on, where two columns of
//! bytes would be half empty; Parquet's dictionary stores each address once for a row group.
//! `payloadOctets` and `initiator` have no element with their exact meaning and are described in
//! [`FlowRecord`], as are all others.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Result, anyhow};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};

use super::columns::{Format, TableReader};
use super::rows::{ColumnSet, RowWriter, columns};
use crate::document::draft::Draft;
use crate::input::source::InputDigest;
use crate::input::supplement::PartMark;

/// The format of flow records.
pub const FLOWS: Format = Format {
    name: "nilometer-flows/1",
    schema: "message flows {
        required int64 flowStartNanoseconds (TIMESTAMP(NANOS,true));
        required int64 flowEndNanoseconds (TIMESTAMP(NANOS,true));
        required binary sourceIPAddress (STRING);
        required binary destinationIPAddress (STRING);
        required int32 sourceTransportPort (INTEGER(16,false));
        required int32 destinationTransportPort (INTEGER(16,false));
        required int32 protocolIdentifier (INTEGER(8,false));
        required int64 packetDeltaCount (INTEGER(64,false));
        required int64 octetDeltaCount (INTEGER(64,false));
        required int32 tcpControlBits (INTEGER(8,false));
        required int32 flowEndReason (INTEGER(8,false));
        optional int64 payloadOctets (INTEGER(64,false));
        optional boolean initiator;
        optional int32 samplingInterval (INTEGER(32,false));
    }",
    later: 1,
    rising: &[],
};

/// Metadata key of the inputs: a JSON list of name, SHA-256 and length.
const INPUTS_KEY: &str = "inputs";

/// Metadata key of the mark that makes a table a part.
const PART_KEY: &str = "part";

columns! {
    start: required Int64Type,
    end: required Int64Type,
    source: required ByteArrayType,
    destination: required ByteArrayType,
    source_port: required Int32Type,
    destination_port: required Int32Type,
    protocol: required Int32Type,
    packets: required Int64Type,
    octets: required Int64Type,
    tcp_flags: required Int32Type,
    end_reason: required Int32Type,
    payload_octets: optional Int64Type,
    opened: optional BoolType,
    sampling_interval: optional Int32Type,
}

impl Columns {
    fn push(&mut self, record: &FlowRecord) {
        let key = &record.key;
        self.start.push(stamp_to_cell(record.start_ns));
        self.end.push(stamp_to_cell(record.end_ns));
        self.source.push(address_to_cell(key.source));
        self.destination.push(address_to_cell(key.destination));
        self.source_port.push(key.source_port.into());
        self.destination_port.push(key.destination_port.into());
        self.protocol.push(key.protocol.into());
        self.packets.push(record.packets as i64);
        self.octets.push(record.octets as i64);
        self.tcp_flags.push(record.tcp_flags.into());
        self.end_reason.push(record.end_reason as i32);
        self.payload_octets.push_optional(record.payload_octets.map(|octets| octets as i64));
        self.opened.push_optional(record.opened);
        let interval = Some(record.sampling_interval).filter(|interval| *interval != 0);
        self.sampling_interval.push_optional(interval.map(|interval| interval as i32));
    }

    fn records(&self) -> impl Iterator<Item = Result<FlowRecord>> {
        let mut payload_octets = self.payload_octets.rows();
        let mut opened = self.opened.rows();
        let mut sampling_interval = self.sampling_interval.rows();
        (0..self.start.values().len()).map(move |row| {
            let payload_octets = payload_octets.next().flatten();
            let opened = opened.next().flatten();
            let sampling_interval = sampling_interval.next().flatten();
            let start_ns = self.start.values()[row].max(0) as u64;
            Ok(FlowRecord {
                key: FlowKey {
                    source: cell_to_address(&self.source.values()[row])?,
                    destination: cell_to_address(&self.destination.values()[row])?,
                    source_port: self.source_port.values()[row] as u16,
                    destination_port: self.destination_port.values()[row] as u16,
                    protocol: self.protocol.values()[row] as u8,
                },
                start_ns,
                end_ns: (self.end.values()[row].max(0) as u64).max(start_ns),
                packets: self.packets.values()[row] as u64,
                octets: self.octets.values()[row] as u64,
                tcp_flags: self.tcp_flags.values()[row] as u8,
                payload_octets: payload_octets.map(|octets| *octets as u64),
                opened: opened.copied(),
                end_reason: end_reason(self.end_reason.values()[row]),
                sampling_interval: sampling_interval.map_or(0, |interval| *interval as u32),
            })
        })
    }
}

/// A table of flow records being written.
pub struct FlowWriter(RowWriter<Columns>);

impl FlowWriter {
    /// Begins the table in the file of the draft.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn on(draft: Draft) -> Result<FlowWriter> {
        Ok(FlowWriter(RowWriter::on(draft, &FLOWS)?))
    }

    /// Adds a record. Stamps after the year 2262 are stored as the last moment of a Parquet stamp.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, record: &FlowRecord) -> Result<()> {
        self.0.columns.push(record);
        self.0.end_row()
    }

    /// Completes the file, which now gets its name; returns how many records it holds.
    ///
    /// # Errors
    /// When the file cannot be written or named.
    pub fn finish(self, inputs: &[InputDigest]) -> Result<u64> {
        let inputs = serde_json::to_string(inputs)?;
        self.0.finish(&[(INPUTS_KEY, inputs)])
    }

    /// Completes the file as a part.
    ///
    /// # Errors
    /// When the file cannot be written or named.
    pub fn finish_part(self, mark: &PartMark) -> Result<u64> {
        let inputs = serde_json::to_string(&mark.inputs)?;
        let mark = serde_json::to_string(mark)?;
        self.0.finish(&[(INPUTS_KEY, inputs), (PART_KEY, mark)])
    }
}

/// The mark that makes the table `path` a part; `None` if it holds only flow records.
///
/// # Errors
/// When it is not a table of flow records, or its mark cannot be read.
pub fn read_part_mark(path: &Path) -> Result<Option<PartMark>> {
    let table = TableReader::open(path, &FLOWS)?;
    let Some(text) = table.mark(PART_KEY) else { return Ok(None) };
    let mark = PartMark::parse(text)
        .map_err(|error| anyhow!("{}: is a damaged part: {error}", path.display()))?;
    Ok(Some(mark))
}

/// Why the Parquet file `path` is not a table of flow records; `None` if it is one.
///
/// # Errors
/// When it cannot be read or is damaged.
pub fn why_no_flow_table(path: &Path) -> Result<Option<String>> {
    let table = TableReader::open_any(path)?;
    Ok(table.check(&FLOWS).err().map(|why| why.to_string()))
}

/// Reads every record of the table `path`, in its order.
///
/// # Errors
/// When it is not a table of flow records or is damaged, or when `sink` fails.
pub fn read_flow_table(path: &Path, sink: &mut dyn FnMut(FlowRecord) -> Result<()>) -> Result<()> {
    let table = TableReader::open(path, &FLOWS)?;
    let mut columns = Columns::new();
    for group in 0..table.groups() {
        table.read_group(group, &mut columns.all())?;
        for record in columns.records() {
            sink(record.map_err(|error| anyhow!("{}: {error}", path.display()))?)?;
        }
    }
    Ok(())
}

/// Parquet's stamps are signed: they end in the year 2262.
fn stamp_to_cell(stamp_ns: u64) -> i64 {
    i64::try_from(stamp_ns).unwrap_or(i64::MAX)
}

fn address_to_cell(address: IpAddr) -> ByteArray {
    address.to_string().into_bytes().into()
}

fn cell_to_address(cell: &ByteArray) -> Result<IpAddr> {
    let text = cell.as_utf8().unwrap_or("(not text)");
    text.parse().map_err(|_| anyhow!("`{}` is not an IP address", text.escape_debug()))
}

fn end_reason(cell: i32) -> EndReason {
    use EndReason::*;
    let known = [IdleTimeout, ActiveTimeout, EndOfFlow, ForcedEnd, LackOfResources];
    known.into_iter().find(|reason| *reason as i32 == cell).unwrap_or(Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{TABLE, guard_output};
    use crate::table::columns::{ROW_GROUP_ROWS, TableWriter};

    fn draft(path: &Path) -> Draft {
        guard_output(path, &[], true, TABLE).unwrap().draft().unwrap()
    }

    fn records(count: u64) -> Vec<FlowRecord> {
        let reasons = [EndReason::Unknown, EndReason::EndOfFlow, EndReason::LackOfResources];
        let record = |n: u64| FlowRecord {
            key: FlowKey {
                source: if n.is_multiple_of(3) {
                    IpAddr::V6(((0x2001_0db8_u128 << 96) + u128::from(n)).into())
                } else {
                    IpAddr::from((0x0a00_0000 + n as u32).to_be_bytes())
                },
                destination: "198.18.0.1".parse().unwrap(),
                source_port: 65_535 - (n % 60_000) as u16,
                destination_port: 80,
                protocol: 255 - (n % 250) as u8,
            },
            start_ns: 1_700_000_000_000_000_000 + n,
            end_ns: 1_700_000_000_000_000_000 + 2 * n,
            packets: u64::MAX - n,
            octets: n,
            tcp_flags: 0xff,
            payload_octets: n.is_multiple_of(2).then_some(n),
            opened: [None, Some(true), Some(false)][n as usize % 3],
            end_reason: reasons[n as usize % 3],
            sampling_interval: [0, 1, 1_000, u32::MAX][n as usize % 4],
        };
        (0..count).map(record).collect()
    }

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("nilometer-{name}-{}.parquet", std::process::id()))
    }

    #[test]
    fn writing_and_reading_round_trip() {
        // Two whole row groups and a third begun.
        for count in [0, 1, 2 * ROW_GROUP_ROWS as u64 + 5] {
            let (path, written) = (path("round-trip"), records(count));
            let mut writer = FlowWriter::on(draft(&path)).unwrap();
            written.iter().for_each(|record| writer.write(record).unwrap());
            let input =
                InputDigest { name: "a.pcap".into(), sha256: Some("00".repeat(32)), bytes: 24 };
            assert_eq!(writer.finish(std::slice::from_ref(&input)).unwrap(), count);
            let mut read = Vec::new();
            read_flow_table(&path, &mut |record| {
                read.push(record);
                Ok(())
            })
            .unwrap();
            assert!(read == written, "{count} records");
            let table = TableReader::open(&path, &FLOWS).unwrap();
            assert_eq!(table.groups(), (count as usize).div_ceil(ROW_GROUP_ROWS));
            assert_eq!(
                table.mark(INPUTS_KEY).unwrap(),
                format!(r#"[{{"name":"a.pcap","sha256":"{}","bytes":24}}]"#, "00".repeat(32))
            );
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn tables_from_before_sampling_was_kept_are_read() {
        let path = path("earlier");
        let column = "        optional int32 samplingInterval (INTEGER(32,false));\n";
        let schema = Box::leak(FLOWS.schema.replace(column, "").into_boxed_str());
        assert_ne!(schema, FLOWS.schema);
        let earlier = Format { name: FLOWS.name, schema, later: 0, rising: &[] };
        let mut table = TableWriter::on(draft(&path), &earlier).unwrap();
        let (mut columns, written) = (Columns::new(), records(9));
        written.iter().for_each(|record| columns.push(record));
        table.write_group(&mut columns.all()[..13]).unwrap();
        table.finish(&[]).unwrap();
        let mut read = Vec::new();
        read_flow_table(&path, &mut |record| {
            read.push(record);
            Ok(())
        })
        .unwrap();
        std::fs::remove_file(path).unwrap();
        let unsampled = |record: &FlowRecord| FlowRecord { sampling_interval: 0, ..record.clone() };
        assert_eq!(read, written.iter().map(unsampled).collect::<Vec<_>>());
    }

    #[test]
    fn refuses_other_tables_and_damage_in_one_line() {
        let path = path("other");
        let other = Format {
            name: "other/1",
            schema: "message m { required int32 a; }",
            later: 0,
            rising: &[],
        };
        let lying = Format { name: FLOWS.name, ..other };
        let mut messages = Vec::new();
        for format in [other, lying] {
            TableWriter::on(draft(&path), &format).unwrap().finish(&[]).unwrap();
            messages.push(read_flow_table(&path, &mut |_| Ok(())).unwrap_err().to_string());
        }
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        messages.push(read_flow_table(&path, &mut |_| Ok(())).unwrap_err().to_string());
        std::fs::remove_file(path).unwrap();
        for (messages, word) in messages.iter().zip(["other/1", "columns", "damaged"]) {
            assert!(messages.contains(word) && !messages.contains('\n'), "{messages}");
            assert!(!messages.contains("Parquet error"), "said twice: {messages}");
        }
    }

    #[test]
    fn no_damage_gets_past_the_reader_as_a_panic() {
        let path = path("mutated");
        let mut writer = FlowWriter::on(draft(&path)).unwrap();
        records(40).iter().for_each(|record| writer.write(record).unwrap());
        writer.finish(&[]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let mut refused = 0;
        for at in (0..whole.len()).step_by(5) {
            let mut damaged = whole.clone();
            damaged[at] = [0x00, 0xff, 0x7f][at % 3];
            std::fs::write(&path, &damaged).unwrap();
            if let Err(error) = read_flow_table(&path, &mut |_| Ok(())) {
                assert!(!error.to_string().contains('\n'), "byte {at}: {error}");
                refused += 1;
            }
        }
        assert!(refused * 10 > whole.len(), "{refused} of {} were refused", whole.len() / 5);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_stamp_beyond_parquet_saturates() {
        let path = path("late");
        let mut late = records(1).remove(0);
        late.start_ns = u64::MAX;
        late.end_ns = u64::MAX;
        let mut writer = FlowWriter::on(draft(&path)).unwrap();
        writer.write(&late).unwrap();
        writer.finish(&[]).unwrap();
        read_flow_table(&path, &mut |record| {
            assert_eq!((record.start_ns, record.end_ns), (i64::MAX as u64, i64::MAX as u64));
            Ok(())
        })
        .unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
