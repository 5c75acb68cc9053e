//! Columns to and from Parquet: typed vectors, row groups, and the marks that identify a file.
//!
//! A [`Format`] is a name with a version and a schema. The name is written into the file, and a file is read
//! only when both agree, so a column can be read without checking its type again.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow, bail};
use parquet::basic::{Compression, Encoding};
use parquet::column::reader::{ColumnReader, get_column_reader, get_typed_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

use super::guarded;
use crate::document::draft::Draft;
use crate::tool;

/// Rows of a row group: the most that is held in memory of a table being written or read.
pub const ROW_GROUP_ROWS: usize = 131_072;

/// The most bytes of a footer: that of a part holds some million round trips.
const FOOTER_BYTES_MAX: u32 = 512 << 20;
/// Characters of a file's own words that an error repeats.
const SHOWN_MAX: usize = 64;
/// Metadata key of the format's name.
const FORMAT_KEY: &str = "format";
/// Metadata key of the program that wrote the file.
const TOOL_KEY: &str = "tool";

/// The format of a table: its name with a version, and its columns.
#[derive(Debug)]
pub struct Format<'a> {
    /// Name and version, such as `nilometer-flows/1`.
    pub name: &'a str,
    /// The schema in Parquet's own notation.
    pub schema: &'a str,
    /// How many of its last columns, all optional, were added later: a file without them is read as if no row
    /// had a value in them.
    pub later: usize,
    /// Columns of integers in which values hardly repeat and neighbours are close, such as times: written as
    /// differences, because a dictionary would only cost time.
    pub rising: &'a [&'a str],
}

/// A column of any type, as a table handles it.
pub trait Cells {
    /// Writes the column and empties it.
    ///
    /// # Errors
    /// When the file cannot be written.
    fn write(&mut self, to: &mut SerializedColumnWriter<'_>) -> parquet::errors::Result<()>;

    /// Replaces the column's content by `rows` rows that it reads.
    ///
    /// # Errors
    /// When the file is damaged or holds fewer rows.
    fn read(&mut self, from: ColumnReader, rows: usize) -> parquet::errors::Result<()>;

    /// Replaces the column's content by `rows` rows without a value.
    fn read_nothing(&mut self, rows: usize);
}

/// A column of one Parquet type.
#[derive(Debug)]
pub struct Column<T: DataType> {
    values: Vec<T::T>,
    /// 1 where a row has a value, 0 where it has none; empty for a required column.
    present: Vec<i16>,
    optional: bool,
}

impl<T: DataType> Column<T> {
    /// An empty column in which every row has a value.
    pub fn required() -> Column<T> {
        Column { values: Vec::new(), present: Vec::new(), optional: false }
    }

    /// An empty column in which a row may have no value.
    pub fn optional() -> Column<T> {
        Column { values: Vec::new(), present: Vec::new(), optional: true }
    }

    /// A column in which every row has a value, with these.
    pub fn of(values: impl Iterator<Item = T::T>) -> Column<T> {
        Column { values: values.collect(), ..Column::required() }
    }

    /// Adds a row to a required column.
    pub fn push(&mut self, value: T::T) {
        debug_assert!(!self.optional, "a row of an optional column may be absent");
        self.values.push(value);
    }

    /// Adds a row to an optional column.
    pub fn push_optional(&mut self, value: Option<T::T>) {
        debug_assert!(self.optional, "a row of a required column has a value");
        self.present.push(i16::from(value.is_some()));
        self.values.extend(value);
    }

    /// The values of a required column.
    pub fn values(&self) -> &[T::T] {
        &self.values
    }

    /// The rows of an optional column.
    pub fn rows(&self) -> impl Iterator<Item = Option<&T::T>> {
        let mut values = self.values.iter();
        self.present.iter().map(move |present| if *present == 1 { values.next() } else { None })
    }
}

impl<T: DataType> Cells for Column<T> {
    fn write(&mut self, to: &mut SerializedColumnWriter<'_>) -> parquet::errors::Result<()> {
        let levels = self.optional.then_some(&self.present[..]);
        to.typed::<T>().write_batch(&self.values, levels, None)?;
        self.values.clear();
        self.present.clear();
        Ok(())
    }

    fn read(&mut self, from: ColumnReader, rows: usize) -> parquet::errors::Result<()> {
        self.values.clear();
        self.present.clear();
        let mut reader = get_typed_column_reader::<T>(from);
        let levels = self.optional.then_some(&mut self.present);
        let (read, _, _) = reader.read_records(rows, levels, None, &mut self.values)?;
        let expected = if self.optional {
            self.present.iter().filter(|present| **present == 1).count()
        } else {
            rows
        };
        if read != rows || self.values.len() != expected {
            return Err(ParquetError::EOF(format!("{read} rows of {rows}")));
        }
        Ok(())
    }

    fn read_nothing(&mut self, rows: usize) {
        debug_assert!(self.optional, "a row of a required column has a value");
        self.values.clear();
        self.present.clear();
        self.present.resize(rows, 0);
    }
}

/// The file of a table. It keeps the first reason why it could not be written, because Parquet's own layers
/// report an error twice, or not at all.
struct Page {
    draft: Draft,
    cause: Arc<OnceLock<String>>,
}

impl Page {
    fn noted<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.cause.get_or_init(|| error.to_string());
            }
        })
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.draft.write(bytes);
        self.noted(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.draft.flush();
        self.noted(flushed)
    }
}

/// A table being written; it has no name until [`TableWriter::finish`].
pub struct TableWriter {
    name: String,
    cause: Arc<OnceLock<String>>,
    writer: SerializedFileWriter<BufWriter<Page>>,
}

impl TableWriter {
    /// Begins the table in the file of the draft.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn on(draft: Draft, format: &Format) -> Result<TableWriter> {
        let name = draft.shown().to_owned();
        let schema = parse_message_type(format.schema).context("the schema of a table")?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_created_by(tool::tool());
        for &column in format.rising {
            properties = properties
                .set_column_dictionary_enabled(column.into(), false)
                .set_column_encoding(column.into(), Encoding::DELTA_BINARY_PACKED);
        }
        let properties = properties.build();
        let cause = Arc::new(OnceLock::new());
        let page = Page { draft, cause: Arc::clone(&cause) };
        let page = BufWriter::new(page);
        let mut writer = SerializedFileWriter::new(page, Arc::new(schema), Arc::new(properties))
            .map_err(|error| unwritten(&name, &cause, &error))?;
        let mut mark = |key: &str, value: String| {
            writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        };
        mark(FORMAT_KEY, format.name.to_owned());
        mark(TOOL_KEY, tool::tool());
        Ok(TableWriter { name, cause, writer })
    }

    /// Writes one row group and empties the columns, which stand in the order of the schema.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_group(&mut self, columns: &mut [&mut dyn Cells]) -> Result<()> {
        let (name, cause) = (&self.name, &self.cause);
        let write = || -> parquet::errors::Result<()> {
            let mut group = self.writer.next_row_group()?;
            for column in columns {
                let mut to = group.next_column()?.expect("as many columns as the schema names");
                column.write(&mut to)?;
                to.close()?;
            }
            group.close()?;
            Ok(())
        };
        write().map_err(|error| unwritten(name, cause, &error))
    }

    /// Writes the footer with `marks` and gives the file its name.
    ///
    /// # Errors
    /// When the file cannot be written or named.
    pub fn finish(mut self, marks: &[(&str, String)]) -> Result<()> {
        for (key, value) in marks {
            let mark = KeyValue::new((*key).to_owned(), value.clone());
            self.writer.append_key_value_metadata(mark);
        }
        let (name, cause) = (self.name, self.cause);
        let buffered =
            self.writer.into_inner().map_err(|error| unwritten(&name, &cause, &error))?;
        let page =
            buffered.into_inner().map_err(|error| unwritten(&name, &cause, error.error()))?;
        page.draft.publish()
    }
}

/// Whether a file is a table that this program wrote.
pub fn is_table_of_ours(path: &Path) -> bool {
    let tool = |table: TableReader| table.mark(TOOL_KEY).map(str::to_owned);
    let table = TableReader::open_any(path).ok();
    table.and_then(tool).is_some_and(|tool| tool.starts_with("nilometer "))
}

/// A table being read.
pub struct TableReader {
    name: String,
    reader: SerializedFileReader<File>,
}

impl TableReader {
    /// Opens the table `path`.
    ///
    /// # Errors
    /// When it cannot be read, is not Parquet, or is not of this format.
    pub fn open(path: &Path, format: &Format) -> Result<TableReader> {
        let table = TableReader::open_any(path)?;
        table.check(format)?;
        Ok(table)
    }

    /// Opens the Parquet file `path` of any format.
    ///
    /// # Errors
    /// When it cannot be read, or is not Parquet.
    pub fn open_any(path: &Path) -> Result<TableReader> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("{name}: cannot be opened"))?;
        hold_footer(&file, &name)?;
        let reader = guarded::decode(|| SerializedFileReader::new(file))
            .map_err(|error| anyhow!("{name}: is a damaged Parquet file: {}", cause_of(&error)))?;
        Ok(TableReader { name, reader })
    }

    /// Checks that it is of this format.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, format: &Format) -> Result<()> {
        let wanted = format.name;
        match self.mark(FORMAT_KEY) {
            Some(found) if found == wanted => {}
            Some(found) => {
                let found = found.chars().take(SHOWN_MAX).collect::<String>();
                let found = found.escape_debug();
                bail!("{}: holds `{found}` instead of `{wanted}`", self.name)
            }
            None => bail!(
                "{}: is a Parquet file, but not one of `{wanted}`: its metadata has no `format`",
                self.name
            ),
        }
        let schema = parse_message_type(format.schema).context("the schema of a table")?;
        let found = self.reader.metadata().file_metadata().schema().get_fields();
        let wanted_fields = schema.get_fields();
        let there = found.len().max(wanted_fields.len() - format.later);
        if wanted_fields.get(..there) != Some(found) {
            bail!("{}: says it is `{wanted}`, but its columns are others", self.name);
        }
        Ok(())
    }

    /// The value of `key` in the file's metadata.
    pub fn mark(&self, key: &str) -> Option<&str> {
        let marks = self.reader.metadata().file_metadata().key_value_metadata()?;
        marks.iter().find(|mark| mark.key == key)?.value.as_deref()
    }

    /// How many row groups there are.
    pub fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// Reads row group `group` into the columns, which stand in the order of the schema; returns how many
    /// rows it has.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn read_group(&self, group: usize, columns: &mut [&mut dyn Cells]) -> Result<usize> {
        let damaged = |what: String| anyhow!("{}: row group {group} is damaged: {what}", self.name);
        let about = self.reader.metadata().row_group(group);
        let rows = usize::try_from(about.num_rows())
            .ok()
            .filter(|rows| *rows <= ROW_GROUP_ROWS)
            .ok_or_else(|| damaged(format!("it claims {} rows", about.num_rows())))?;
        let read = || -> parquet::errors::Result<()> {
            let from = self.reader.get_row_group(group)?;
            for (number, column) in columns.iter_mut().enumerate() {
                match number < from.num_columns() {
                    true => {
                        let pages = from.get_column_page_reader(number)?;
                        let pages = guarded::Pages::new(pages, ROW_GROUP_ROWS);
                        let about = from.metadata().schema_descr().column(number);
                        column.read(get_column_reader(about, Box::new(pages)), rows)?;
                    }
                    false => column.read_nothing(rows),
                }
            }
            Ok(())
        };
        guarded::decode(read).map_err(|error| damaged(cause_of(&error)))?;
        Ok(rows)
    }
}

/// Refuses a file whose footer claims more than the limit: the decoder would allocate all of it.
fn hold_footer(mut file: &File, name: &str) -> Result<()> {
    let mut end = [0; 8];
    let from_end = SeekFrom::End(-(end.len() as i64));
    // A file that is too short, or not seekable, is refused by the decoder in its own words.
    if file.seek(from_end).and_then(|_| file.read_exact(&mut end)).is_err() {
        return Ok(());
    }
    if let [a, b, c, d, b'P', b'A', b'R', b'1'] = end
        && u32::from_le_bytes([a, b, c, d]) > FOOTER_BYTES_MAX
    {
        bail!("{name}: its footer claims more than {FOOTER_BYTES_MAX} bytes, the limit")
    }
    Ok(())
}

/// The error of a table being written: that of the file, if there was one.
fn unwritten(name: &str, cause: &OnceLock<String>, error: &dyn std::error::Error) -> anyhow::Error {
    let cause = cause.get().cloned().unwrap_or_else(|| one_line(error));
    anyhow!("{name}: cannot be written: {cause}")
}

/// The decoder's message, without its prefix about the kind of error.
fn cause_of(error: &ParquetError) -> String {
    match error {
        ParquetError::General(message) => message.split_whitespace().collect::<Vec<_>>().join(" "),
        ParquetError::External(cause) => one_line(cause.as_ref()),
        error => one_line(error),
    }
}

fn one_line(error: &dyn std::error::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
