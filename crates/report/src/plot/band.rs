//! Bands: the room between a lower and an upper curve, drawn behind what is measured.

use super::label::Sample;
use super::svg::px;
use super::{Mark, Panel, Pixel};

impl Panel {
    /// A band of `[x, low, high]`.
    pub fn band(&mut self, points: &[[f64; 3]], mark: Mark) {
        let (x, y) = (&self.x.scale, &self.y.scale);
        let fits = |p: &&[f64; 3]| x.takes(p[0]) && y.takes(p[1]) && y.takes(p[2]);
        let kept: Vec<[f64; 3]> =
            points.iter().filter(fits).map(|p| [x.at(p[0]), y.at(p[1]), y.at(p[2])]).collect();
        if kept.len() < 2 {
            return;
        }
        let upper: Vec<Pixel> = kept.iter().map(|p| [p[0], p[2]]).collect();
        let lower = kept.iter().rev().map(|p| [p[0], p[1]]);
        let mut d = String::from("M");
        for [x, y] in upper.iter().copied().chain(lower) {
            d.push_str(&format!("{} {} ", px(x), px(y)));
        }
        d.push('Z');
        let class = format!("band {}", mark.class);
        self.svg.leaf("path", &[("class", &class), ("d", &d)]);
        self.ink.extend(kept.iter().flat_map(|p| [[p[0], p[1]], [p[0], p[2]]]));
        self.remember(mark, Sample::Block, upper);
    }

    /// A band between two levels across the whole panel.
    pub fn strip(&mut self, low: f64, high: f64, mark: Mark) {
        let [left, right] = self.x.scale.domain();
        self.band(&[[left, low, high], [right, low, high]], mark);
    }

    /// A band between two values of x, from the base to the top.
    pub fn column(&mut self, low: f64, high: f64, mark: Mark) {
        let [bottom, top] = self.y.scale.domain();
        if self.x.scale.takes(low) && self.x.scale.takes(high) {
            self.band(&[[low, bottom, top], [high, bottom, top]], mark);
        }
    }
}
