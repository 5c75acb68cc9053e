//! Flow records written as CSV or as JSON line by line, in the columns of the Parquet table.
//!
//! Unknown values are empty in CSV and left out in JSON. Stamps are nanoseconds since 1970, as in
//! the columns' names, so that nothing is rounded; pandas, polars and R read them as integers.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use nilometer_flow::FlowRecord;
use serde_json::{Map, Value};

use super::flows::FlowWriter;
use crate::document::draft::Draft;
use crate::document::{Output, TABLE};
use crate::input::source::InputDigest;

/// The columns, in their order.
const COLUMNS: [&str; 14] = [
    "flowStartNanoseconds",
    "flowEndNanoseconds",
    "sourceIPAddress",
    "destinationIPAddress",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "packetDeltaCount",
    "octetDeltaCount",
    "tcpControlBits",
    "flowEndReason",
    "payloadOctets",
    "initiator",
    "samplingInterval",
];

/// How flow records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowFormat {
    /// The table `nilometer-flows/1`.
    Parquet,
    /// A header, and a line for each record.
    Csv,
    /// An object for each record, a line each.
    Ndjson,
}

impl FlowFormat {
    /// The format by the extension of a name: `.csv`, `.ndjson` or `.jsonl`; Parquet otherwise.
    ///
    /// # Errors
    /// When the extension is that of a format that is not written.
    pub fn of(path: &Path) -> Result<FlowFormat> {
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match ending.as_str() {
            "csv" => Ok(FlowFormat::Csv),
            "ndjson" | "jsonl" => Ok(FlowFormat::Ndjson),
            "json" | "tsv" | "gz" | "zst" | "bz2" | "xz" => bail!(
                "{}: records are written as .parquet, .csv or .ndjson, not as .{ending}",
                path.display()
            ),
            _ => Ok(FlowFormat::Parquet),
        }
    }

    /// How files of this kind begin.
    pub fn beginning(self) -> &'static [u8] {
        match self {
            FlowFormat::Parquet => TABLE,
            FlowFormat::Csv => b"flowStartNanoseconds,",
            // (Keys of an object are in alphabetical order.)
            FlowFormat::Ndjson => b"{\"destinationIPAddress\":",
        }
    }
}

/// A file of flow records being written, in any format; it has no name before it is finished.
pub enum FlowFile {
    /// Parquet.
    Table(Box<FlowWriter>),
    /// Lines.
    Text(Box<TextWriter>),
}

impl FlowFile {
    /// Begins the file, in the format of its name's extension.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(output: &Output) -> Result<FlowFile> {
        match FlowFormat::of(output.path())? {
            FlowFormat::Parquet => Ok(FlowFile::Table(Box::new(FlowWriter::on(output.draft()?)?))),
            kind => Ok(FlowFile::Text(Box::new(TextWriter::new(output, kind)?))),
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, record: &FlowRecord) -> Result<()> {
        match self {
            FlowFile::Table(table) => table.write(record),
            FlowFile::Text(text) => text.write(record),
        }
    }

    /// Completes the file, which now gets its name; returns how many records it holds. Text formats
    /// cannot store `inputs`.
    ///
    /// # Errors
    /// When the file cannot be written or named.
    pub fn finish(self, inputs: &[InputDigest]) -> Result<u64> {
        match self {
            FlowFile::Table(table) => table.finish(inputs),
            FlowFile::Text(text) => text.finish(),
        }
    }
}

/// Lines being written.
pub struct TextWriter {
    name: String,
    to: BufWriter<Draft>,
    kind: FlowFormat,
    records: u64,
}

impl TextWriter {
    fn new(output: &Output, kind: FlowFormat) -> Result<TextWriter> {
        let name = output.path().display().to_string();
        let mut to = BufWriter::new(output.draft()?);
        if kind == FlowFormat::Csv {
            writeln!(to, "{}", COLUMNS.join(","))
                .with_context(|| format!("{name}: cannot be written"))?;
        }
        Ok(TextWriter { name, to, kind, records: 0 })
    }

    fn write(&mut self, record: &FlowRecord) -> Result<()> {
        self.records += 1;
        let cells = cells(record);
        let line = match self.kind {
            FlowFormat::Ndjson => {
                let named = COLUMNS.iter().zip(cells).filter(|(_, cell)| !cell.is_null());
                let object: Map<String, Value> =
                    named.map(|(name, cell)| ((*name).to_owned(), cell)).collect();
                serde_json::to_string(&object)?
            }
            _ => cells.map(plain).join(","),
        };
        writeln!(self.to, "{line}").with_context(|| format!("{}: cannot be written", self.name))
    }

    fn finish(self) -> Result<u64> {
        let written = self.to.into_inner();
        let draft = written
            .map_err(|error| anyhow!("{}: cannot be written: {}", self.name, error.error()))?;
        draft.publish()?;
        Ok(self.records)
    }
}

/// The columns of a record; null for unknown values.
fn cells(record: &FlowRecord) -> [Value; 14] {
    let key = &record.key;
    [
        record.start_ns.into(),
        record.end_ns.into(),
        key.source.to_string().into(),
        key.destination.to_string().into(),
        key.source_port.into(),
        key.destination_port.into(),
        key.protocol.into(),
        record.packets.into(),
        record.octets.into(),
        record.tcp_flags.into(),
        (record.end_reason as u8).into(),
        record.payload_octets.into(),
        record.opened.into(),
        Some(record.sampling_interval).filter(|interval| *interval != 0).into(),
    ]
}

/// A cell of CSV: addresses and numbers need no quotation marks.
fn plain(cell: Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_the_table() {
        let names = super::super::flows::FLOWS.schema.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip(2);
            words.next().map(|name| name.trim_end_matches(';'))
        });
        let names: Vec<&str> = names.filter(|name| *name != "{").collect();
        assert_eq!(names, COLUMNS);
    }

    #[test]
    fn the_file_extension_gives_the_format() {
        let kinds = [
            ("a.csv", FlowFormat::Csv),
            ("a.NDJSON", FlowFormat::Ndjson),
            ("a.parquet", FlowFormat::Parquet),
        ];
        for (name, kind) in
            kinds.into_iter().chain([("a", FlowFormat::Parquet), ("b.jsonl", FlowFormat::Ndjson)])
        {
            assert_eq!(FlowFormat::of(Path::new(name)).expect("a kind"), kind, "{name}");
        }
        assert!(
            FlowFormat::of(Path::new("a.csv.gz")).is_err()
                && FlowFormat::of(Path::new("a.json")).is_err()
        );
    }
}
