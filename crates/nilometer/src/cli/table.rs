//! Tables on a terminal: columns beside each other where they fit, a line for each cell where they do
//! not.

use std::io::{IsTerminal, stdout};

use rustix::termios::tcgetwinsize;

/// Where the value of a fact begins.
const VALUE_COLUMN: usize = 22;

/// The side of its column at which a cell stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

use Side::{Left, Right};

/// A name and its value, the values of such lines below each other.
pub(super) fn fact(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name:<VALUE_COLUMN$} {value}\n")
}

/// A row of titles or cells.
pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Rows in columns as wide as they need to be. `sides` are those of the first columns; the last of them is that
/// of all that follow.
pub(super) fn table(sides: &[Side], rows: &[Vec<String>]) -> String {
    continued(sides, rows, &mut Vec::new())
}

/// A piece of a table that is printed piece by piece: its columns are at least as wide as those before it, which
/// `widths` holds.
pub(super) fn continued(sides: &[Side], rows: &[Vec<String>], widths: &mut Vec<usize>) -> String {
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let side = |column: usize| sides.get(column).or(sides.last()).copied().unwrap_or(Left);
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&*widths).enumerate();
        let padded = cells.map(|(column, (cell, width))| match side(column) {
            Left => format!("{cell:<width$}"),
            Right => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// How many characters stand beside each other on the terminal that standard output is; nothing where it
/// is none.
pub(super) fn terminal_columns() -> Option<usize> {
    let out = stdout();
    let size = out.is_terminal().then(|| tcgetwinsize(&out).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Rows under their titles, which are the first of them; cells stand at the right of their columns.
/// Where that is wider than `columns`, each row is a block of its own, a title and its cell a line, and an
/// empty line behind them.
pub(super) fn within(rows: &[Vec<String>], columns: Option<usize>) -> String {
    let Some((titles, rest)) = rows.split_first() else { return String::new() };
    let whole = table(&[Right], rows);
    let width = whole.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    if columns.is_none_or(|columns| width <= columns) {
        return whole;
    }
    let block = |row: &Vec<String>| {
        let lines = titles.iter().zip(row).map(|(title, cell)| vec![title.clone(), cell.clone()]);
        lines.collect::<Vec<_>>()
    };
    // (Every block has all titles, and so columns of one width.)
    rest.iter().map(|row| table(&[Left], &block(row)) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_too_wide_for_the_terminal_are_printed_as_blocks() {
        let rows = [["buffer", "loss %"], ["200", "3.21 ± 0.02"], ["1000", "–"]].map(row);
        let table = "buffer       loss %\n   200  3.21 ± 0.02\n  1000            –\n";
        assert_eq!(within(&rows, None), table);
        assert_eq!(within(&rows, Some(19)), table);
        let blocks = "buffer  200\nloss %  3.21 ± 0.02\n\nbuffer  1000\nloss %  –\n\n";
        assert_eq!(within(&rows, Some(18)), blocks);
        assert_eq!(within(&[], Some(80)), "");
    }

    #[test]
    fn columns_of_a_continued_table_do_not_shrink() {
        let mut widths = Vec::new();
        let sides = [Left, Right];
        let first = continued(&sides, &[row(["law", "floor"]), row(["size", "1"])], &mut widths);
        assert_eq!(first, "law   floor\nsize      1\n");
        assert_eq!(continued(&sides, &[row(["a", ""])], &mut widths), "a\n");
        assert_eq!(continued(&sides, &[row(["a", "22"])], &mut widths), "a        22\n");
    }
}
