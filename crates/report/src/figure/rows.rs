//! Rows: a picture with a row for each thing and its name above the row.

use super::super::plot::axis::Axis;
use super::super::plot::scale::ScaleKind;
use super::super::plot::{Area, Mark, Panel, WIDTH};
use crate::plot::axis::Unit;

/// Height of a row, in figure units.
pub const ROW: f64 = 40.0;

/// Room above the first row, in figure units.
const HEAD: f64 = 8.0;

/// Rows over a shared x axis.
#[derive(Debug)]
pub struct Rows {
    /// The axes; y counts rows, but [`Rows::y`] knows where each lies.
    pub panel: Panel,
    count: usize,
}

impl Rows {
    /// Rows with their names.
    pub fn new(names: &[String], x: Axis) -> Rows {
        let count = names.len().max(1);
        let area = Area {
            left: 10.0,
            right: WIDTH - 14.0,
            top: HEAD,
            bottom: HEAD + ROW * count as f64 + 4.0,
        };
        let y = Axis::new(ScaleKind::Linear, [0.0, count as f64], Unit::Count, "").ticks(0);
        let mut rows = Rows { panel: Panel::new(area, x, y), count };
        for (i, name) in names.iter().enumerate() {
            let y = rows.y(i);
            rows.panel.row(y, y + 0.38, name);
        }
        rows
    }

    /// Where row `i` lies on y.
    pub fn y(&self, i: usize) -> f64 {
        self.count as f64 - i as f64 - 0.68
    }

    /// Height of the whole figure, in figure units.
    pub fn height(&self) -> f64 {
        HEAD + ROW * self.count as f64 + 4.0 + 42.0
    }

    /// A band across all rows, between two values of x.
    pub fn band(&mut self, low: f64, high: f64, mark: Mark) {
        self.panel.column(low, high, mark);
    }
}
