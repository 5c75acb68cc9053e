//! Dots: many as one path, or one with a title.

use std::collections::BTreeSet;

use super::label::Sample;
use super::svg::px;
use super::{Mark, Panel, Pixel};

impl Panel {
    /// A cloud of points: one path of round strokes of no length, one for each cell of a unit square.
    pub fn dots(&mut self, points: &[[f64; 2]], mark: Mark) {
        let mut seen = BTreeSet::new();
        let mut pixels: Vec<Pixel> = self.drawable(points);
        pixels.retain(|p| seen.insert((p[0].round() as i64, p[1].round() as i64)));
        if pixels.is_empty() {
            return;
        }
        let d: String = pixels.iter().map(|p| format!("M{} {}h0", px(p[0]), px(p[1]))).collect();
        let class = format!("dots {}", mark.class);
        self.svg.leaf("path", &[("class", &class), ("data-name", mark.name), ("d", &d)]);
        self.ink.extend(&pixels);
        self.remember(mark, Sample::Dot, pixels);
    }

    /// One dot that says what it is when pointed at.
    pub fn dot(&mut self, point: [f64; 2], mark: Mark, title: &str) {
        for [x, y] in self.drawable(&[point]) {
            let class = format!("dot {}", mark.class);
            let (cx, cy) = (px(x), px(y));
            let attributes = [("class", class.as_str()), ("cx", &cx), ("cy", &cy), ("r", "4.5")];
            self.svg.titled("circle", &attributes, title);
            self.ink.extend([[x - 5.0, y], [x + 5.0, y], [x, y - 5.0], [x, y + 5.0]]);
            self.remember(mark, Sample::Bare, vec![[x, y]]);
        }
    }
}
