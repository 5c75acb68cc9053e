//! Axes: a scale with a unit and a title, its grid and its ticks.

use super::scale::{Scale, ScaleKind};
use super::svg::{Svg, px};
use super::{Area, WIDTH};
use crate::format;

/// The least room between the texts of two ticks, in figure units.
const TICK_ROOM: f64 = 4.0;

/// What an axis counts, and so how its ticks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, with SI prefixes.
    Count,
    /// Multiples of something, plain.
    Times,
    /// Seconds on a clock.
    Seconds,
    /// Durations, in seconds, with SI prefixes.
    Duration,
    /// Durations, in nanoseconds, with SI prefixes.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Bits per second.
    BitRate,
    /// A share, as a percentage.
    Share,
    /// A difference of shares, as a signed percentage.
    SignedShare,
}

impl Unit {
    /// A tick's text.
    pub fn tick(self, value: f64) -> String {
        match self {
            _ if value == 0.0 => "0".to_owned(),
            Unit::Times => format::significant(value, 3),
            Unit::Count => format::si(value, "").replace('\u{a0}', ""),
            Unit::Seconds => format::significant(value, 6),
            Unit::Duration => format::time_ns(value * 1e9),
            Unit::Nanoseconds => format::time_ns(value),
            Unit::Bytes => format::bytes(value),
            Unit::BitRate => format::si(value, "bit/s"),
            Unit::Share => format!("{}\u{a0}%", format::significant(value * 100.0, 3)),
            Unit::SignedShare if value > 0.0 => format!("+{}", Unit::Share.tick(value)),
            Unit::SignedShare => Unit::Share.tick(value),
        }
    }

    /// Its name in the hover read-out.
    fn key(self) -> &'static str {
        match self {
            Unit::Count | Unit::Times => "count",
            Unit::Seconds | Unit::Duration => "s",
            Unit::Nanoseconds => "ns",
            Unit::Bytes => "B",
            Unit::BitRate => "bit/s",
            Unit::Share | Unit::SignedShare => "%",
        }
    }
}

/// A scale, its unit and its title.
#[derive(Clone, Debug)]
pub struct Axis {
    /// From values to figure units.
    pub scale: Scale,
    /// How ticks are written.
    pub unit: Unit,
    /// What it shows; may be empty.
    pub title: String,
    /// About how many ticks at most; none for zero.
    pub ticks: usize,
}

impl Axis {
    /// An axis over a domain.
    pub fn new(kind: ScaleKind, domain: [f64; 2], unit: Unit, title: &str) -> Axis {
        let scale = Scale::new(kind, domain, [0.0, 1.0]);
        Axis { scale, unit, title: title.to_owned(), ticks: 5 }
    }

    /// The same axis with about `ticks` ticks.
    pub fn ticks(self, ticks: usize) -> Axis {
        Axis { ticks, ..self }
    }

    /// The same axis over a range of figure units.
    pub fn over(self, range: [f64; 2]) -> Axis {
        Axis { scale: self.scale.over(range), ..self }
    }

    /// The values that get a tick; of counts, which are whole, only whole ones.
    fn marked(&self) -> impl Iterator<Item = f64> {
        let whole = self.unit == Unit::Count;
        let values = self.scale.ticks(self.ticks).into_iter();
        values.filter(move |value| !whole || value.fract() == 0.0)
    }

    /// For the read-out: kind, domain, range and unit.
    pub fn describe(&self) -> String {
        let kind = match self.scale.kind() {
            ScaleKind::Linear => "linear",
            ScaleKind::Log => "log",
        };
        let ([low, high], [from, to]) = (self.scale.domain(), self.scale.range());
        format!("{kind} {low:e} {high:e} {} {} {}", px(from), px(to), self.unit.key())
    }
}

/// Horizontal grid lines at the ticks of y.
pub fn grid(svg: &mut Svg, area: Area, y: &Axis) {
    if y.ticks == 0 {
        return;
    }
    for tick in y.marked() {
        let at = y.scale.at(tick);
        let d = format!("M{} {}H{}", px(area.left), px(at), px(area.right));
        svg.leaf("path", &[("class", "grid"), ("d", &d)]);
        svg.text("tick", [area.left - 7.0, at + 4.0], "end", &y.unit.tick(tick));
    }
}

/// The middle of a tick's text, moved so that none of it is cut off.
fn inside(at: f64, text: &str) -> f64 {
    let half = super::label::width(text) / 2.0;
    at.clamp(half, (WIDTH - half).max(half))
}

/// One in this many ticks gets a text: the smallest number that leaves room between each two.
fn every(texts: &[(f64, String)]) -> usize {
    let room = |[(at, text), (next, after)]: [&(f64, String); 2]| {
        let middle = inside(*next, after) - inside(*at, text);
        middle - (super::label::width(text) + super::label::width(after)) / 2.0 >= TICK_ROOM
    };
    let fits = |every: &usize| {
        let shown: Vec<&(f64, String)> = texts.iter().step_by(*every).collect();
        shown.windows(2).all(|pair| room([pair[0], pair[1]]))
    };
    (1..=texts.len().max(1)).find(fits).unwrap_or(1)
}

/// The x axis with its ticks and both titles.
pub fn paint(svg: &mut Svg, area: Area, x: &Axis, y: &Axis, with_x: bool) {
    if !y.title.is_empty() {
        svg.text("title", [0.0, area.top - 11.0], "start", &y.title);
    }
    let base = format!("M{} {}H{}", px(area.left), px(area.bottom), px(area.right));
    svg.leaf("path", &[("class", "axis"), ("d", &base)]);
    if !with_x {
        return;
    }
    let texts: Vec<(f64, String)> =
        x.marked().map(|tick| (x.scale.at(tick), x.unit.tick(tick))).collect();
    for (at, _) in &texts {
        let d = format!("M{} {}v4", px(*at), px(area.bottom));
        svg.leaf("path", &[("class", "axis"), ("d", &d)]);
    }
    for (at, text) in texts.iter().step_by(every(&texts)) {
        svg.text("tick", [inside(*at, text), area.bottom + 18.0], "middle", text);
    }
    svg.text("title", [area.right, area.bottom + 36.0], "end", &x.title);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_are_close_have_every_other_text() {
        let texts = |places: &[f64]| -> Vec<(f64, String)> {
            places.iter().map(|at| (*at, "450 ms".to_owned())).collect()
        };
        assert_eq!(every(&texts(&[100.0, 200.0, 300.0])), 1);
        assert_eq!(every(&texts(&[100.0, 140.0, 180.0])), 2);
        assert_eq!(every(&texts(&[100.0, 120.0, 140.0, 160.0])), 3);
        // The last is moved to the left, so that it is not cut off.
        assert_eq!(every(&texts(&[470.0, 518.0])), 2);
        assert_eq!((every(&texts(&[])), every(&texts(&[7.0]))), (1, 1));
    }
}
