//! Tables written row by row: their columns, declared once, and the writer that cuts rows into row groups.

use anyhow::Result;

use super::columns::{Cells, Format, ROW_GROUP_ROWS, TableWriter};
use crate::document::draft::Draft;

/// The columns of a table.
pub trait ColumnSet {
    /// Empty ones.
    fn new() -> Self;

    /// All of them, in the order of the schema.
    fn all(&mut self) -> Vec<&mut dyn Cells>;
}

/// Declares `Columns`, in the order of the schema: each `required` or `optional`, and of a Parquet type.
macro_rules! columns {
    ($($name:ident: $presence:ident $Type:ty,)+) => {
        struct Columns {
            $($name: $crate::table::columns::Column<$Type>,)+
        }

        impl $crate::table::rows::ColumnSet for Columns {
            fn new() -> Columns {
                Columns { $($name: $crate::table::columns::Column::$presence(),)+ }
            }

            fn all(&mut self) -> Vec<&mut dyn $crate::table::columns::Cells> {
                vec![$(&mut self.$name as &mut dyn $crate::table::columns::Cells),+]
            }
        }
    };
}
pub(super) use columns;

/// A table being written row by row; it has no name until [`RowWriter::finish`].
pub struct RowWriter<C> {
    table: TableWriter,
    /// Each gets a value, or none, before [`RowWriter::end_row`].
    pub columns: C,
    held: usize,
    rows: u64,
}

impl<C: ColumnSet> RowWriter<C> {
    /// Begins the table in the file of the draft.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn on(draft: Draft, format: &Format) -> Result<RowWriter<C>> {
        let table = TableWriter::on(draft, format)?;
        Ok(RowWriter { table, columns: C::new(), held: 0, rows: 0 })
    }

    /// Ends a row: a full row group is written.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn end_row(&mut self) -> Result<()> {
        self.held += 1;
        self.rows += 1;
        if self.held == ROW_GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    /// Completes the file with `marks` in its metadata; it now gets its name. Returns how many rows it has.
    ///
    /// # Errors
    /// When the file cannot be written or named.
    pub fn finish(mut self, marks: &[(&str, String)]) -> Result<u64> {
        if self.held > 0 {
            self.flush()?;
        }
        self.table.finish(marks)?;
        Ok(self.rows)
    }

    fn flush(&mut self) -> Result<()> {
        self.held = 0;
        self.table.write_group(&mut self.columns.all())
    }
}
