//! Lines: a curve, steps, and a level across the panel.

use super::label::{Place, Sample};
use super::svg::px;
use super::{Mark, Panel, Pixel};

/// Points nearer than this to the last one drawn are not drawn, in figure units.
const NEAR: f64 = 0.4;
/// Lines in which the name of a guide may stand, and their distance in figure units.
const GUIDE_ROWS: u8 = 6;
const GUIDE_ROW: f64 = 18.0;

impl Panel {
    /// A line through the points; a point that has no place on the axes breaks it.
    pub fn line(&mut self, points: &[[f64; 2]], mark: Mark) {
        let mut d = String::new();
        let mut anchors = Vec::new();
        let fits = |p: &[f64; 2]| self.x.scale.takes(p[0]) && self.y.scale.takes(p[1]);
        for piece in points.split(|p| !fits(p)).filter(|piece| !piece.is_empty()) {
            let pixels: Vec<Pixel> = piece.iter().map(|p| self.pixel(p[0], p[1])).collect();
            let drawn = thinned(&pixels);
            trail(&mut d, &drawn);
            anchors.extend(sampled(&drawn));
        }
        self.stroke(&d, mark, anchors);
    }

    /// A cumulative distribution: flat between its points, rising at them.
    pub fn steps(&mut self, points: &[[f64; 2]], mark: Mark) {
        let mut pixels: Vec<Pixel> = Vec::with_capacity(points.len() * 2);
        for [x, y] in self.drawable(points) {
            if let Some(&[_, before]) = pixels.last() {
                pixels.push([x, before]);
            }
            pixels.push([x, y]);
        }
        let drawn = thinned(&pixels);
        let mut d = String::new();
        trail(&mut d, &drawn);
        self.stroke(&d, mark, sampled(&drawn));
    }

    /// A level from the left edge to the right one.
    pub fn level(&mut self, y: f64, mark: Mark) {
        if self.y.scale.takes(y) {
            let at = self.y.scale.at(y);
            let d = format!("M{} {}H{}", px(self.area.left), px(at), px(self.area.right));
            let anchors = sampled(&[[self.area.left, at], [self.area.right, at]]);
            self.stroke(&d, mark, anchors);
        }
    }

    /// A guide from the base to the top, its name beside its upper end: where no other name stands.
    pub fn upright(&mut self, x: f64, mark: Mark) {
        if self.x.scale.takes(x) {
            let (at, top) = (self.x.scale.at(x), self.area.top);
            let d = format!("M{} {}V{}", px(at), px(self.area.bottom), px(top));
            let class = format!("line {}", mark.class);
            self.svg.leaf("path", &[("class", &class), ("d", &d)]);
            self.ink.extend(sampled(&[[at, self.area.bottom], [at, top]]));
            self.name_guide([at, top + 5.0], mark);
        }
    }

    /// Right or left of a guide, and as many lines further down as it takes.
    fn name_guide(&mut self, [at, top]: Pixel, mark: Mark) {
        let wide = Place::of(mark.name, [0.0, 0.0]).width();
        let rows = (0..GUIDE_ROWS).map(|row| top + f64::from(row) * GUIDE_ROW);
        let places = rows.flat_map(|base| [[at + 5.0, base], [at - 5.0 - wide, base]]);
        let is_free = |point: &Pixel| {
            let place = Place::of(mark.name, *point);
            place.is_within(self.area) && !self.written.iter().any(|other| place.meets(other))
        };
        let point = places.into_iter().find(is_free).unwrap_or([at + 5.0, top]);
        if !mark.name.is_empty() {
            self.written.push(Place::of(mark.name, point));
        }
        let class = format!("name {}", mark.class);
        self.svg.text(&class, point, "start", mark.name);
    }

    /// A row: a fine line across the panel at `y`, its name above it at `name_y`.
    pub fn row(&mut self, y: f64, name_y: f64, name: &str) {
        let (at, name_at) = (self.y.scale.at(y), self.y.scale.at(name_y));
        let (left, right) = (self.area.left, self.area.right);
        let d = format!("M{} {}H{}", px(left), px(at), px(right));
        self.svg.leaf("path", &[("class", "grid"), ("d", &d)]);
        self.svg.text("row", [left, name_at + 2.0], "start", name);
        self.written.push(Place::of(name, [left, name_at + 2.0]));
        let end = left + super::label::width(name);
        self.ink
            .extend((0..12).map(|i| [left + (end - left) * f64::from(i) / 11.0, name_at - 3.0]));
    }

    /// Words in the middle above a point.
    pub fn words_above(&mut self, point: [f64; 2], words: &str) {
        let [x, y] = self.pixel(point[0], point[1]);
        self.svg.text("tick", [x, y - 5.0], "middle", words);
    }

    /// Words in the margin, left of a value of y.
    pub fn words_left(&mut self, y: f64, words: &str) {
        let at = [self.area.left - 7.0, self.y.scale.at(y) + 4.0];
        self.svg.text("tick", at, "end", words);
    }

    fn stroke(&mut self, d: &str, mark: Mark, anchors: Vec<Pixel>) {
        if !d.is_empty() {
            let class = format!("line {}", mark.class);
            self.svg.leaf("path", &[("class", &class), ("data-name", mark.name), ("d", d)]);
            self.ink.extend(&anchors);
            self.remember(mark, Sample::Line, anchors);
        }
    }
}

/// `M x y L x y ...`; one point alone becomes a dot.
fn trail(d: &mut String, pixels: &[Pixel]) {
    for (i, [x, y]) in pixels.iter().enumerate() {
        d.push_str(if i == 0 { "M" } else { "L" });
        d.push_str(&format!("{} {}", px(*x), px(*y)));
    }
    if pixels.len() == 1 {
        d.push_str("h0");
    }
}

/// The pixels without those that would not be seen.
fn thinned(pixels: &[Pixel]) -> Vec<Pixel> {
    let mut kept: Vec<Pixel> = Vec::new();
    for (i, &pixel) in pixels.iter().enumerate() {
        let far = kept.last().is_none_or(|last| {
            (pixel[0] - last[0]).abs() >= NEAR || (pixel[1] - last[1]).abs() >= NEAR
        });
        if far || i + 1 == pixels.len() {
            kept.push(pixel);
        }
    }
    kept
}

/// Points every few units along a trail.
fn sampled(pixels: &[Pixel]) -> Vec<Pixel> {
    let mut along = Vec::new();
    for pair in pixels.windows(2) {
        let (dx, dy) = (pair[1][0] - pair[0][0], pair[1][1] - pair[0][1]);
        let steps = (dx.hypot(dy) / 4.0).ceil().clamp(1.0, 1_000.0) as usize;
        along.extend((0..steps).map(|i| {
            let share = i as f64 / steps as f64;
            [pair[0][0] + dx * share, pair[0][1] + dy * share]
        }));
    }
    along.extend(pixels.last());
    along
}

#[cfg(test)]
mod tests {
    use super::super::Area;
    use super::super::axis::{Axis, Unit};
    use super::super::scale::ScaleKind;
    use super::*;

    /// Where the names of a figure stand.
    fn places(svg: &str) -> Vec<Place> {
        let names = svg.split("<text class=\"name").skip(1);
        let number = |tag: &str, key: &str| -> f64 {
            let rest = tag.split(&format!("{key}=\"")).nth(1).expect("an attribute");
            rest.split('"').next().and_then(|n| n.parse().ok()).expect("a number")
        };
        names
            .map(|tag| {
                let text = tag.split('>').nth(1).and_then(|rest| rest.split('<').next());
                Place::of(text.expect("a text"), [number(tag, " x"), number(tag, " y")])
            })
            .collect()
    }

    #[test]
    fn names_of_guides_that_stand_close_are_apart() {
        for distances in [[0.0, 0.0], [0.1, 0.2], [1.0, 2.0], [40.0, 80.0]] {
            for first in [0.0, 50.0, 99.0] {
                let axis = |title| Axis::new(ScaleKind::Linear, [0.0, 100.0], Unit::Times, title);
                let area = Area::between(28.0, 194.0);
                let mut panel = Panel::new(area, axis("x"), axis("y"));
                panel.level(97.0, Mark { class: "wire", name: "a level near the top" });
                for (step, name) in
                    [0.0, distances[0], distances[1]].iter().zip(["half", "99 %", "most"])
                {
                    panel.upright(first + step, Mark { class: "wire", name });
                }
                let svg = panel.finish(true).svg;
                let places = places(&svg);
                assert_eq!(places.len(), 4, "{svg}");
                for (at, one) in places.iter().enumerate() {
                    let meets = places[..at].iter().any(|other| one.meets(other));
                    assert!(!meets && one.is_within(area), "{first} {distances:?}: {places:?}");
                }
            }
        }
    }
}
