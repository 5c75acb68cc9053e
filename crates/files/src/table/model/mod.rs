//! A model as plain tables, CSV or Parquet, for pandas, polars, R and other tools.
//!
//! The tables are long, one fact a row, so that a law with a thousand knots and one with three need no
//! other columns. Units are those of the model: bytes for `file_size`, seconds for `inter_connection`,
//! packets for `flow_length`, and the unit at the end of the name for laws of UDP's classes.

mod rows;

use std::path::Path;

use anyhow::Result;
use nilometer_traffic::TrafficModel;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};

use super::columns::{self, Cells, Format, TableWriter};
use crate::document::results::{Directory, ResultFile};
use rows::tables;

/// The form of the tables.
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

/// A column of rows of type `T`: its name, and how its value is read from a row.
enum Column<T> {
    Text(&'static str, fn(&T) -> String),
    Count(&'static str, fn(&T) -> u64),
    Real(&'static str, fn(&T) -> f64),
}

/// All values of a column.
#[derive(Debug)]
enum Values {
    Text(Vec<String>),
    Count(Vec<u64>),
    Real(Vec<f64>),
}

/// A table: its name, and its columns.
struct Table {
    name: &'static str,
    columns: Vec<(&'static str, Values)>,
}

/// Writes the tables of `model` into the directory `to`, which appears whole or not at all, and returns
/// their names. With `force` it replaces a directory that holds only files that this function wrote.
///
/// # Errors
/// When `to` exists and may not be replaced, or cannot be written.
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
    fn of<T>(name: &'static str, rows: &[T], columns: &[Column<T>]) -> Table {
        let values = |column: &Column<T>| match *column {
            Column::Text(name, of) => (name, Values::Text(rows.iter().map(of).collect())),
            Column::Count(name, of) => (name, Values::Count(rows.iter().map(of).collect())),
            Column::Real(name, of) => (name, Values::Real(rows.iter().map(of).collect())),
        };
        Table { name, columns: columns.iter().map(values).collect() }
    }

    fn write(&self, to: &ResultFile, form: Form) -> Result<()> {
        match form {
            Form::Csv => to.write(self.csv().as_bytes()),
            Form::Parquet => self.parquet(to),
        }
    }

    fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, values)| values.count())
    }

    fn csv(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let mut text = names.join(",") + "\n";
        for row in 0..self.rows() {
            let cells: Vec<String> = self.columns.iter().map(|(_, of)| of.plain(row)).collect();
            text += &(cells.join(",") + "\n");
        }
        text
    }

    fn parquet(&self, to: &ResultFile) -> Result<()> {
        let columns = self.columns.iter().map(|(name, values)| match values {
            Values::Text(_) => format!("required binary {name} (STRING);"),
            Values::Count(_) => format!("required int64 {name} (INTEGER(64,false));"),
            Values::Real(_) => format!("required double {name};"),
        });
        let schema = format!("message {} {{ {} }}", self.name, columns.collect::<String>());
        let name = format!("nilometer-model-{}/1", self.name.replace('_', "-"));
        let format = Format { name: &name, schema: &schema, later: 0, rising: &[] };
        let mut table = TableWriter::on(to.draft()?, &format)?;
        if self.rows() > 0 {
            let mut columns: Vec<_> = self.columns.iter().map(|(_, of)| of.cells()).collect();
            let mut columns: Vec<&mut dyn Cells> =
                columns.iter_mut().map(|column| &mut **column as &mut dyn Cells).collect();
            table.write_group(&mut columns)?;
        }
        table.finish(&[])
    }
}

impl Values {
    fn count(&self) -> usize {
        match self {
            Values::Text(all) => all.len(),
            Values::Count(all) => all.len(),
            Values::Real(all) => all.len(),
        }
    }

    fn cells(&self) -> Box<dyn Cells> {
        match self {
            Values::Text(all) => {
                let texts = all.iter().map(|text| ByteArray::from(text.as_str()));
                Box::new(columns::Column::<ByteArrayType>::of(texts))
            }
            Values::Count(all) => {
                Box::new(columns::Column::<Int64Type>::of(all.iter().map(|&count| count as i64)))
            }
            Values::Real(all) => Box::new(columns::Column::<DoubleType>::of(all.iter().copied())),
        }
    }

    /// A cell of CSV: quoted where necessary, and with enough digits to restore the number exactly.
    fn plain(&self, row: usize) -> String {
        match self {
            Values::Text(all) if all[row].contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", all[row].replace('"', "\"\""))
            }
            Values::Text(all) => all[row].clone(),
            Values::Count(all) => all[row].to_string(),
            Values::Real(all) => all[row].to_string(),
        }
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
            assert!(table.columns.len() >= 3);
            assert!(table.columns.iter().all(|(_, values)| values.count() == table.rows()));
            assert_eq!(table.rows() == 0, table.name == "scales", "{}", table.name);
        }
        let texts = Values::Text(["a,b", "say \"a\"", ""].map(str::to_owned).into());
        let expected = ["\"a,b\"", "\"say \"\"a\"\"\"", ""];
        assert_eq!([0, 1, 2].map(|row| texts.plain(row)), expected);
        assert_eq!(Values::Real(vec![0.1]).plain(0), "0.1");
    }
}
