//! Tables on a terminal: columns beside each other where they fit, a line for each cell where they do
//! not.

use std::io::{IsTerminal, stdout};

use rustix::termios::tcgetwinsize;

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
pub(super) fn shown(rows: &[Vec<String>], columns: Option<usize>) -> String {
    let Some((titles, rest)) = rows.split_first() else { return String::new() };
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let whole = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    if columns.is_none_or(|columns| whole <= columns) {
        let line = |row: &Vec<String>| {
            let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            padded.collect::<Vec<_>>().join("  ") + "\n"
        };
        return rows.iter().map(line).collect();
    }
    let width = titles.iter().map(length).max().unwrap_or(0);
    let line = |(title, cell): (&String, &String)| format!("{title:<width$}  {cell}\n");
    let block = |row: &Vec<String>| titles.iter().zip(row).map(line).collect::<String>() + "\n";
    rest.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_line_by_line() {
        let rows = [["buffer", "loss %"], ["200", "3.21 ± 0.02"], ["1000", "–"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let table = "buffer       loss %\n   200  3.21 ± 0.02\n  1000            –\n";
        assert_eq!(shown(&rows, None), table);
        assert_eq!(shown(&rows, Some(19)), table);
        let blocks = "buffer  200\nloss %  3.21 ± 0.02\n\nbuffer  1000\nloss %  –\n\n";
        assert_eq!(shown(&rows, Some(18)), blocks);
        assert_eq!(shown(&[], Some(80)), "");
    }
}
