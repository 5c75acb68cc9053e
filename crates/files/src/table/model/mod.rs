//! A model as plain tables, CSV or Parquet, for pandas, polars, R and whatever else reads them.
//!
//! The tables are long, one fact a row, so that a law with a thousand knots and one with three need no
//! other columns. Units are those of the model: bytes for `file_size`, seconds for `inter_connection`,
//! packets for `flow_length`, and what their name ends in for those of UDP's classes.

mod rows;

use std::path::Path;

use anyhow::Result;
use nilometer_traffic::TrafficModel;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};

use super::columns::{Cells, Column, Format, TableWriter};
use crate::document::results::{Directory, ResultFile};
use rows::tables;

/// In which form the tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A header and lines (RFC 4180, but with line feeds).
    Csv,
    /// Parquet.
    Parquet,
}

impl Form {
    fn ending(self) -> &'static str {
        match self {
            Form::Csv => "csv",
            Form::Parquet => "parquet",
        }
    }
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Text(String),
    Count(u64),
    Real(f64),
}

/// A table: what it is, and its rows in the columns of its schema.
struct Table {
    name: &'static str,
    format: Format,
    rows: Vec<Vec<Cell>>,
}

/// Writes the tables of `model` into the directory `to`, which appears whole or not at all, and says what
/// they are called. With `force` it takes the place of one that holds what this wrote and nothing else.
///
/// # Errors
/// When `to` is there and may not be replaced, or cannot be written.
pub fn write(model: &TrafficModel, to: &Path, form: Form, force: bool) -> Result<Vec<String>> {
    let tables = tables(model);
    let names: Vec<String> =
        tables.iter().map(|table| format!("{}.{}", table.name, form.ending())).collect();
    let directory = Directory::create(to, force)?;
    for (table, name) in tables.iter().zip(&names) {
        table.write(&directory.file(name), form)?;
    }
    directory.finish()?;
    Ok(names)
}

impl Table {
    /// The names of the columns, as the schema has them.
    fn columns(&self) -> Vec<&'static str> {
        let rows = self.format.schema.lines().filter(|line| line.trim().starts_with("required"));
        let name = |line: &'static str| line.split_whitespace().nth(2).unwrap_or_default();
        rows.map(|line| name(line).trim_end_matches(';')).collect()
    }

    fn write(&self, to: &ResultFile, form: Form) -> Result<()> {
        match form {
            Form::Csv => to.write(self.csv().as_bytes()),
            Form::Parquet => self.parquet(to),
        }
    }

    fn csv(&self) -> String {
        let mut text = self.columns().join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(plain).collect();
            text += &(cells.join(",") + "\n");
        }
        text
    }

    fn parquet(&self, to: &ResultFile) -> Result<()> {
        let mut table = TableWriter::on(to.draft()?, &self.format)?;
        let first = self.rows.first().map(Vec::as_slice).unwrap_or_default();
        let mut columns: Vec<Box<dyn Cells>> =
            (0..first.len()).map(|at| column(&self.rows, at)).collect();
        if !columns.is_empty() {
            let mut columns: Vec<&mut dyn Cells> =
                columns.iter_mut().map(|column| &mut **column as &mut dyn Cells).collect();
            table.write_group(&mut columns)?;
        }
        table.finish(&[])
    }
}

/// A column of the rows; all its cells are of the kind of the first.
fn column(rows: &[Vec<Cell>], at: usize) -> Box<dyn Cells> {
    let cells = rows.iter().map(|row| &row[at]);
    match rows[0][at] {
        Cell::Text(_) => {
            let mut column: Column<ByteArrayType> = Column::required();
            cells.for_each(|cell| {
                if let Cell::Text(text) = cell {
                    column.push(ByteArray::from(text.as_str()));
                }
            });
            Box::new(column)
        }
        Cell::Count(_) => {
            let mut column: Column<Int64Type> = Column::required();
            cells.for_each(|cell| {
                if let Cell::Count(count) = cell {
                    column.push(*count as i64);
                }
            });
            Box::new(column)
        }
        Cell::Real(_) => {
            let mut column: Column<DoubleType> = Column::required();
            cells.for_each(|cell| {
                if let Cell::Real(value) = cell {
                    column.push(*value);
                }
            });
            Box::new(column)
        }
    }
}

/// A cell of CSV: quoted where it must be, and with as many digits as bring the number back.
fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Cell::Text(text) => text.clone(),
        Cell::Count(count) => count.to_string(),
        Cell::Real(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_traffic::estimate::{EstimateOptions, estimate};
    use nilometer_traffic::model::Origin;
    use nilometer_traffic::synthetic;

    #[test]
    fn rows_have_the_columns_of_their_schema_and_text_is_quoted_where_it_must_be() {
        let end_ns = synthetic::ORIGIN_NS + (synthetic::DURATION_S * 1e9) as u64;
        let options = EstimateOptions {
            interval_s: Some(synthetic::INTERVAL_S),
            bound_s: synthetic::BOUND_S,
            keep_addresses: false,
            tool: String::new(),
            origin: Origin { description: String::new(), synthetic: true, inputs: Vec::new() },
            span_ns: Some((synthetic::ORIGIN_NS, end_ns)),
            clients: Vec::new(),
            servers: Vec::new(),
            harpoon: false,
        };
        let made = estimate(synthetic::records(), &options).expect("the embedded records");
        for table in tables(&made.model) {
            let columns = table.columns().len();
            assert!(columns >= 3 && table.rows.iter().all(|row| row.len() == columns));
            assert_eq!(table.rows.is_empty(), table.name == "scales", "{}", table.name);
        }
        let word = |text: &str| Cell::Text(text.to_owned());
        let cells = [word("a,b"), word("say \"a\""), Cell::Real(0.1), word("")];
        let expected = ["\"a,b\"", "\"say \"\"a\"\"\"", "0.1", ""];
        assert_eq!(cells.each_ref().map(plain), expected);
    }
}
