//! Plots: panels with axes, drawn as inline SVG.
//!
//! A [`Panel`] is one pair of axes. Marks are added to it in the order they are painted; each may
//! carry a direct label, which is placed last, where it covers least. All coordinates that reach
//! the SVG are finite and inside the panel, whatever the numbers were.

pub mod axis;
pub mod band;
pub mod bars;
pub mod cells;
pub mod dots;
pub mod label;
pub mod line;
pub mod scale;
pub mod svg;

use axis::Axis;
use label::{Name, Place, Sample};
use svg::Svg;

/// Width of every figure in its own units; a page scales it.
pub const WIDTH: f64 = 520.0;

/// A point in figure units.
pub type Pixel = [f64; 2];

/// A rectangle in figure units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Left edge.
    pub left: f64,
    /// Right edge.
    pub right: f64,
    /// Upper edge.
    pub top: f64,
    /// Lower edge.
    pub bottom: f64,
}

impl Area {
    /// An area as wide as a figure with its margins, between two heights.
    pub fn between(top: f64, bottom: f64) -> Area {
        Area { left: 64.0, right: WIDTH - 12.0, top, bottom }
    }
}

/// How a mark looks and what it is called.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// Classes of the style sheet, such as `measured` or `model`.
    pub class: &'a str,
    /// Its direct label; empty for none.
    pub name: &'a str,
}

/// One pair of axes and the marks on it.
#[derive(Debug)]
pub struct Panel {
    area: Area,
    x: Axis,
    y: Axis,
    svg: Svg,
    /// Where ink lies that a label should not cover.
    ink: Vec<Pixel>,
    names: Vec<Name>,
    /// Where texts stand that were written at once.
    written: Vec<Place>,
    marks: usize,
}

/// A panel as SVG elements, and how many marks are on it.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// The elements.
    pub svg: String,
    /// Marks made of numbers; axes and guides do not count.
    pub marks: usize,
}

impl Panel {
    /// Empty axes; the grid is painted first, beneath everything.
    pub fn new(area: Area, x: Axis, y: Axis) -> Panel {
        let x = x.over([area.left, area.right]);
        let y = y.over([area.bottom, area.top]);
        let mut svg = Svg::default();
        let (data_x, data_y) = (x.describe(), y.describe());
        svg.begin("g", &[("class", "panel"), ("data-x", &data_x), ("data-y", &data_y)]);
        axis::grid(&mut svg, area, &y);
        let (ink, names, written) = (Vec::new(), Vec::new(), Vec::new());
        Panel { area, x, y, svg, ink, names, written, marks: 0 }
    }

    /// Paints the axes and the labels; `with_x` says whether the x axis carries ticks and a title.
    pub fn finish(mut self, with_x: bool) -> Drawing {
        axis::paint(&mut self.svg, self.area, &self.x, &self.y, with_x);
        label::place(&mut self.svg, self.area, &self.names, &self.ink, &self.written);
        self.svg.end();
        Drawing { svg: self.svg.finish(), marks: self.marks }
    }

    /// A name above the panel's upper left corner.
    pub fn heading(&mut self, mark: Mark) {
        let class = format!("name {}", mark.class);
        let at = [self.area.left, self.area.top - 7.0];
        self.svg.text(&class, at, "start", mark.name);
    }

    fn pixel(&self, x: f64, y: f64) -> Pixel {
        [self.x.scale.at(x), self.y.scale.at(y)]
    }

    /// The points that can be drawn on these axes.
    fn drawable(&self, points: &[[f64; 2]]) -> Vec<Pixel> {
        let fits = |p: &&[f64; 2]| self.x.scale.takes(p[0]) && self.y.scale.takes(p[1]);
        points.iter().filter(fits).map(|p| self.pixel(p[0], p[1])).collect()
    }

    fn remember(&mut self, mark: Mark, sample: Sample, anchors: Vec<Pixel>) {
        self.marks += 1;
        if !mark.name.is_empty() && !anchors.is_empty() {
            let (text, class) = (mark.name.to_owned(), mark.class.to_owned());
            self.names.push(Name { text, class, sample, anchors });
        }
    }
}
