//! Direct labels: each curve is named beside itself, where the name covers least.
//!
//! For every name a few hundred places are tried: beside, above and below points along its own
//! mark. A place costs for each inked point it would cover, for other names, for distance, and for
//! lying nearer to another mark than to its own. The cheapest wins; the search is exhaustive and
//! has no chance in it, so a page is always the same.

use super::svg::{Svg, px};
use super::{Area, Pixel};

/// Height of a label's box, in figure units, in the largest size the style sheet uses.
const HEIGHT: f64 = 16.0;
/// Width of a letter of a label, which is bold, in figure units.
const NAME: f64 = 8.8;
/// Room for the sample of the mark before the text.
const SAMPLE: f64 = 20.0;

/// What stands before a label's text, so that colour is not its only tie to its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// A piece of line, dashed where the mark is.
    Line,
    /// A block in the mark's tone.
    Block,
    /// A dot.
    Dot,
    /// Nothing: the label stands at its one mark.
    Bare,
}

/// A label waiting for its place.
#[derive(Debug)]
pub struct Name {
    /// The words.
    pub text: String,
    /// The classes of its mark.
    pub class: String,
    /// What stands before the words.
    pub sample: Sample,
    /// Points of its mark.
    pub anchors: Vec<Pixel>,
}

/// About how wide a text is, in figure units, in the largest size the style sheet uses.
pub fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.6
}

fn room(sample: Sample) -> f64 {
    if sample == Sample::Bare { 0.0 } else { SAMPLE }
}

/// A box that a text takes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    left: f64,
    top: f64,
    width: f64,
}

impl Place {
    /// The box of a name that begins at a point of its base line.
    pub fn of(text: &str, [left, base]: Pixel) -> Place {
        Place { left, top: base - 12.0, width: text.chars().count() as f64 * NAME }
    }

    /// How wide it is.
    pub fn width(&self) -> f64 {
        self.width
    }

    /// Does it lie between the edges of an area?
    pub fn is_within(&self, area: Area) -> bool {
        self.left >= area.left - 1.0 && self.left + self.width <= area.right + 8.0
    }

    fn holds(&self, [x, y]: Pixel, margin: f64) -> bool {
        x > self.left - margin
            && x < self.left + self.width + margin
            && y > self.top - margin
            && y < self.top + HEIGHT + margin
    }

    /// Do they share room?
    pub fn meets(&self, other: &Place) -> bool {
        self.left < other.left + other.width + 4.0
            && other.left < self.left + self.width + 4.0
            && (self.top - other.top).abs() < HEIGHT + 1.0
    }

    /// Distance from a point to the nearest part of the box.
    fn distance(&self, [x, y]: Pixel) -> f64 {
        let dx = (self.left - x).max(x - self.left - self.width).max(0.0);
        let dy = (self.top - y).max(y - self.top - HEIGHT).max(0.0);
        dx.hypot(dy)
    }
}

/// Writes all names, each at its cheapest place; `taken` are the boxes of texts that stand already.
pub fn place(svg: &mut Svg, area: Area, names: &[Name], ink: &[Pixel], taken: &[Place]) {
    let mut placed: Vec<Place> = taken.to_vec();
    for (i, name) in names.iter().enumerate() {
        let others = |n: &(usize, &Name)| n.0 != i;
        let foreign: Vec<Pixel> = names
            .iter()
            .enumerate()
            .filter(others)
            .flat_map(|(_, other)| other.anchors.iter().copied())
            .collect();
        let cost = |at: &Place| price(at, area, name, [ink, &foreign], &placed);
        let places = candidates(name).into_iter().map(|at| (cost(&at), at));
        let Some((_, at)) = places.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        write(svg, name, at);
        placed.push(at);
    }
}

fn candidates(name: &Name) -> Vec<Place> {
    let wide = name.text.chars().count() as f64 * NAME + room(name.sample);
    let stride = (name.anchors.len() / 40).max(1);
    let mut places = Vec::new();
    for [x, y] in name.anchors.iter().step_by(stride).copied() {
        for gap in [7.0, 13.0, 22.0, 36.0] {
            for left in [x - wide / 2.0, x - wide * 0.1, x - wide * 0.9] {
                places.push(Place { left, top: y - gap - HEIGHT, width: wide });
                places.push(Place { left, top: y + gap, width: wide });
            }
            places.push(Place { left: x + gap + 2.0, top: y - HEIGHT / 2.0, width: wide });
            places.push(Place { left: x - gap - 2.0 - wide, top: y - HEIGHT / 2.0, width: wide });
        }
    }
    places
}

fn price(
    at: &Place,
    area: Area,
    name: &Name,
    [ink, foreign]: [&[Pixel]; 2],
    placed: &[Place],
) -> f64 {
    let right = at.left + at.width;
    let outside = (area.left - at.left).max(0.0)
        + (right - area.right).max(0.0)
        + (area.top - 8.0 - at.top).max(0.0)
        + (at.top + HEIGHT - area.bottom + 2.0).max(0.0);
    let covered = ink.iter().filter(|p| at.holds(**p, 3.5)).count() as f64;
    let meeting = placed.iter().filter(|other| at.meets(other)).count() as f64;
    let nearest =
        |points: &[Pixel]| points.iter().map(|p| at.distance(*p)).fold(f64::INFINITY, f64::min);
    let (own, other) = (nearest(&name.anchors), nearest(foreign));
    let astray = if other < own + 4.0 { (own + 4.0 - other) * 2.0 } else { 0.0 };
    outside * 200.0 + covered * 30.0 + meeting * 2_000.0 + own * 1.5 + astray
}

fn write(svg: &mut Svg, name: &Name, at: Place) {
    let middle = at.top + HEIGHT / 2.0;
    match name.sample {
        Sample::Line => {
            let class = format!("sample {}", name.class);
            let d = format!("M{} {}h14", px(at.left + 1.0), px(middle));
            svg.leaf("path", &[("class", &class), ("d", &d)]);
        }
        Sample::Block => {
            let class = format!("block {}", name.class);
            let (x, y) = (px(at.left + 1.0), px(middle - 5.0));
            let size = [("width", "14"), ("height", "10")];
            let place = [("class", class.as_str()), ("x", &x), ("y", &y)];
            svg.leaf("rect", &[&place[..], &size[..]].concat());
        }
        Sample::Bare => {}
        Sample::Dot => {
            let class = format!("dot {}", name.class);
            let (x, y) = (px(at.left + 10.0), px(middle));
            svg.leaf("circle", &[("class", &class), ("cx", &x), ("cy", &y), ("r", "4")]);
        }
    }
    let class = format!("name {}", name.class);
    svg.text(&class, [at.left + room(name.sample), middle + 4.2], "start", &name.text);
}
