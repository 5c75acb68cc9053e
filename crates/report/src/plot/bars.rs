//! Bars: rectangles from the base line, each with a title.

use super::label::Sample;
use super::svg::px;
use super::{Mark, Panel, Pixel};

/// One bar: from `left` to `right` on x, as high as `value`.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Where it begins on x.
    pub left: f64,
    /// Where it ends on x.
    pub right: f64,
    /// How high it is.
    pub value: f64,
    /// What it shows when pointed at.
    pub title: String,
}

impl Panel {
    /// Bars standing on the base line.
    pub fn bars(&mut self, bars: &[Bar], mark: Mark) {
        let class = format!("bar {}", mark.class);
        let mut tops: Vec<Pixel> = Vec::new();
        for bar in bars {
            let (x, y) = (&self.x.scale, &self.y.scale);
            if !(x.takes(bar.left) && x.takes(bar.right) && y.takes(bar.value)) {
                continue;
            }
            let (left, right, top) = (x.at(bar.left), x.at(bar.right), y.at(bar.value));
            let gap = if right - left > 6.0 { 0.75 } else { 0.0 };
            let width = px((right - left - 2.0 * gap).max(0.6));
            let (at_x, at_y, height) = (px(left + gap), px(top), px(self.area.bottom - top));
            let attributes = [
                ("class", class.as_str()),
                ("x", &at_x),
                ("y", &at_y),
                ("width", &width),
                ("height", &height),
            ];
            self.svg.titled("rect", &attributes, &bar.title);
            self.cover([left, right], top);
            tops.push([(left + right) / 2.0, top]);
            tops.push([left + 20.0_f64.min(right - left), top]);
        }
        if !tops.is_empty() {
            self.remember(mark, Sample::Block, tops);
        }
    }

    /// Remembers where a bar lies, its edges closely and its inside loosely.
    fn cover(&mut self, [left, right]: [f64; 2], top: f64) {
        let columns = ((right - left) / 6.0).ceil().clamp(1.0, 90.0) as usize;
        for column in 0..=columns {
            let x = left + (right - left) * column as f64 / columns as f64;
            self.ink.push([x, top]);
        }
        self.ink.push([(left + right) / 2.0, (top + self.area.bottom) / 2.0]);
    }
}
