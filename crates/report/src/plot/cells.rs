//! Cells: a grid of rectangles whose strength is a number, as in a histogram of two dimensions.

use std::collections::BTreeMap;

use super::svg::px;
use super::{Mark, Panel};

/// Shades.
const STEPS: f64 = 16.0;
/// The gap between rows, in figure units.
const GAP: f64 = 0.4;

/// A rectangle on the axes and its strength, 0 (not drawn) to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Where it begins and ends on x.
    pub x: [f64; 2],
    /// Where it begins and ends on y.
    pub y: [f64; 2],
    /// How strongly it is drawn.
    pub strength: f64,
}

impl Panel {
    /// Cells of one colour: one path for all of a strength.
    pub fn cells(&mut self, cells: &[Cell], mark: Mark) {
        let mut paths: BTreeMap<u8, String> = BTreeMap::new();
        for cell in cells {
            let [left, bottom] = [cell.x[0], cell.y[0]];
            let fits = |x: f64, y: f64| self.x.scale.takes(x) && self.y.scale.takes(y);
            let step = (cell.strength.clamp(0.0, 1.0) * STEPS).round() as u8;
            if step == 0 || !fits(left, bottom) || !fits(cell.x[1], cell.y[1]) {
                continue;
            }
            let ([x0, y0], [x1, y1]) = (self.pixel(left, bottom), self.pixel(cell.x[1], cell.y[1]));
            let (width, height) = (px(x1 - x0), (y0 - y1 - GAP).max(0.1));
            let (x, y, height) = (px(x0), px(y0 - height), px(height));
            let path = paths.entry(step).or_default();
            path.push_str(&format!("M{x} {y}h{width}v{height}h-{width}z"));
        }
        for (step, d) in &paths {
            let class = format!("bar {}", mark.class);
            let opacity = format!("{:.3}", f64::from(*step) / STEPS);
            self.svg.leaf("path", &[("class", &class), ("fill-opacity", &opacity), ("d", d)]);
        }
        self.marks += usize::from(!paths.is_empty());
    }
}
