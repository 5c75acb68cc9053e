//! One figure of every point against the swept number, each line with its band of confidence.
//!
//! Bands are 95 % confidence intervals of means over seeds. Where nothing numeric is swept, each
//! point is a row with its interval as a bar.

use super::arrangement::{Facet, Line, label};
use crate::simulate::result::PointResult;
use nilometer_report::figure::Figure;
use nilometer_report::figure::rows::Rows;
use nilometer_report::format::{si, significant};
use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::scale::{ScaleKind, extent, from_zero, round_log};
use nilometer_report::plot::{Area, Mark, Panel};

/// A positive quantity that spans more than this factor is drawn on a logarithmic axis.
const WIDE: f64 = 12.0;

/// A mean with the ends of its interval; both equal the mean where there is no interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// The mean.
    pub mean: f64,
    /// Lower and upper end.
    pub ends: [f64; 2],
}

impl Measure {
    fn new(mean: Option<f64>, half: Option<f64>, unit: f64) -> Option<Measure> {
        let (mean, half) =
            (mean.filter(|mean| mean.is_finite())? * unit, half.unwrap_or(0.0) * unit);
        Some(Measure { mean, ends: [mean - half, mean + half] })
    }
}

/// Something that every point has a figure of.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its anchor.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Which figure of the paper it draws again, in the paper's own scenario.
    pub of_paper: &'static str,
    /// Title of its axis.
    pub axis: &'static str,
    /// How values are written.
    pub unit: Unit,
    /// Whether it is shown as a ratio that should be one.
    pub near_one: bool,
    /// The figure.
    pub of: fn(&PointResult) -> Option<Measure>,
}

/// All that are drawn, in the order of the page.
pub const METRICS: [Metric; 7] = [
    Metric {
        id: "mean",
        title: "Mean goodput",
        of_paper: "Figure 16",
        axis: "mean goodput by fair share",
        unit: Unit::Share,
        near_one: true,
        of: |p| Measure::new(p.fair_share_percent, p.fair_share_percent_ci, 0.01),
    },
    Metric {
        id: "deviation",
        title: "How unequal the flows are",
        of_paper: "Figure 17",
        axis: "standard deviation by fair share",
        unit: Unit::Share,
        near_one: false,
        of: |p| Measure::new(p.stddev_over_fair_share, p.stddev_over_fair_share_ci, 1.0),
    },
    Metric {
        id: "loss",
        title: "Loss at the bottleneck",
        of_paper: "",
        axis: "packets dropped of those offered",
        unit: Unit::Share,
        near_one: false,
        of: |p| Measure::new(Some(p.loss_ratio), p.loss_ratio_ci, 1.0),
    },
    Metric {
        id: "queue",
        title: "What waits at the bottleneck",
        of_paper: "",
        axis: "packets waiting on average",
        unit: Unit::Count,
        near_one: false,
        of: |p| Measure::new(Some(p.mean_queue_packets), p.mean_queue_packets_ci, 1.0),
    },
    Metric {
        id: "utilisation",
        title: "Use of the bottleneck",
        of_paper: "",
        axis: "transmitted by what it could",
        unit: Unit::Share,
        near_one: true,
        of: |p| Measure::new(Some(p.utilisation), None, 1.0),
    },
    Metric {
        id: "timeouts",
        title: "Retransmission timeouts",
        of_paper: "",
        axis: "timeouts of a run",
        unit: Unit::Times,
        near_one: false,
        of: |p| Measure::new(Some(p.timeouts), None, 1.0),
    },
    Metric {
        id: "delay",
        title: "Delay of datagrams",
        of_paper: "",
        axis: "mean delay from end to end",
        unit: Unit::Duration,
        near_one: false,
        of: |p| Measure::new(p.datagram_delay_ms, p.datagram_delay_ms_ci, 1e-3),
    },
];

impl Metric {
    /// A value in words.
    pub fn words(&self, value: f64) -> String {
        match self.unit {
            Unit::Count | Unit::Times if value < 1_000.0 => significant(value, 3),
            Unit::Count | Unit::Times => si(value, "").replace('\u{a0}', ""),
            unit => unit.tick(value),
        }
    }

    /// The mean over a line's points, each counted once.
    pub fn over(&self, line: &Line<'_>) -> Option<f64> {
        let values: Vec<f64> =
            line.spots.iter().filter_map(|spot| (self.of)(spot.point)).map(|m| m.mean).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The lines with the least and the greatest mean.
    pub fn extremes<'f>(&self, facet: &'f Facet<'_>) -> Option<[(&'f str, f64); 2]> {
        let means = || {
            let of = |line: &'f Line<'_>| Some((line.name.as_str(), self.over(line)?));
            facet.lines.iter().filter_map(of)
        };
        let least = means().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some([least, means().max_by(|a, b| a.1.total_cmp(&b.1))?])
    }

    /// The y axis that holds everything in `facets`, the same for all of them.
    fn axis_over(&self, facets: &[Facet<'_>]) -> Option<Axis> {
        let all: Vec<Measure> = facets
            .iter()
            .flat_map(|facet| &facet.lines)
            .flat_map(|line| &line.spots)
            .filter_map(|spot| (self.of)(spot.point))
            .collect();
        let means = || all.iter().map(|measure| measure.mean);
        let [low, high] = extent(ScaleKind::Linear, means())?;
        if low == 0.0 && high == 0.0 {
            return None;
        }
        let ends = || all.iter().flat_map(|measure| measure.ends);
        let (kind, domain) = match self.near_one {
            true => {
                let [low, high] = extent(ScaleKind::Linear, ends())?;
                let top = if high > 0.85 { high.max(1.0) } else { high };
                let room = 0.06 * (top - low).max(0.01);
                (ScaleKind::Linear, [(low - room).max(0.0), top + room])
            }
            false if low > 0.0 && high > WIDE * low => {
                (ScaleKind::Log, round_log(means().chain(ends().filter(|end| *end > low / 2.0))))
            }
            false => (ScaleKind::Linear, from_zero(ends())),
        };
        Some(Axis::new(kind, domain, self.unit, self.axis).ticks(6))
    }

    /// A figure for `facets[number]` on axes that hold all of them; none where nothing was measured.
    pub fn figure(&self, x: Option<&str>, facets: &[Facet<'_>], number: usize) -> Option<Figure> {
        let y = self.axis_over(facets)?;
        let facet = &facets[number];
        let id =
            if facets.len() == 1 { self.id.to_owned() } else { format!("{}-{number}", self.id) };
        let part = if facet.name.is_empty() { String::new() } else { format!(", {}", facet.name) };
        let names = [id, format!("{}{part}", self.title)];
        match x {
            Some(x) => self.curves(names, x, y, [facets, std::slice::from_ref(facet)]),
            None => self.rows(names, y, facet),
        }
    }

    fn curves(
        &self,
        [id, title]: [String; 2],
        key: &str,
        y: Axis,
        [all, own]: [&[Facet<'_>]; 2],
    ) -> Option<Figure> {
        let facet = &own[0];
        let spots = || all.iter().flat_map(|f| &f.lines).flat_map(|line| &line.spots);
        let mut panel =
            Panel::new(Area::between(28.0, 258.0), x_axis(key, spots().map(|spot| spot.x)), y);
        if self.near_one {
            panel.level(1.0, Mark { class: "guide", name: "" });
        }
        for line in &facet.lines {
            let measures = |spot: &super::arrangement::Spot<'_>| {
                (self.of)(spot.point).map(|measure| (spot.x, measure))
            };
            let found: Vec<(f64, Measure)> = line.spots.iter().filter_map(measures).collect();
            let floor = found.iter().map(|(_, m)| m.mean).fold(f64::INFINITY, f64::min) / 1e3;
            let low = |end: f64| if floor > 0.0 { end.max(floor) } else { end };
            let band: Vec<[f64; 3]> =
                found.iter().map(|(x, m)| [*x, low(m.ends[0]), m.ends[1]]).collect();
            panel.band(&band, Mark { class: &line.tone, name: "" });
        }
        for line in &facet.lines {
            let of = |spot: &super::arrangement::Spot<'_>| (self.of)(spot.point);
            let points: Vec<[f64; 2]> =
                line.spots.iter().filter_map(|s| Some([s.x, of(s)?.mean])).collect();
            panel.line(&points, Mark { class: &line.tone, name: &line.name });
            panel.dots(&points, Mark { class: &line.tone, name: "" });
        }
        Figure::new([&id, &title], self.caption(facet), 300.0, &[panel.finish(true)])
    }

    fn rows(&self, [id, title]: [String; 2], y: Axis, facet: &Facet<'_>) -> Option<Figure> {
        let names: Vec<String> = facet.lines.iter().map(|line| line.name.clone()).collect();
        let mut rows = Rows::new(&names, Axis { ticks: 6, ..y });
        for (i, line) in facet.lines.iter().enumerate() {
            let at = rows.y(i);
            for measure in line.spots.iter().filter_map(|spot| (self.of)(spot.point)) {
                let [low, high] = measure.ends;
                let mark = Mark { class: &line.tone, name: "" };
                let solid = line.tone.replace(" dashed", "");
                rows.panel.line(&[[low, at], [high, at]], Mark { class: &solid, name: "" });
                let words = format!("{}: {}", line.name, self.words(measure.mean));
                rows.panel.dot([measure.mean, at], mark, &words);
            }
        }
        let height = rows.height();
        Figure::new([&id, &title], self.caption(facet), height, &[rows.panel.finish(true)])
    }

    fn caption(&self, facet: &Facet<'_>) -> String {
        let Some([least, most]) = self.extremes(facet) else { return String::new() };
        let many = facet.lines.iter().any(|line| line.spots.len() > 1);
        let over = if many { ", averaged along the axis" } else { "" };
        match facet.lines.len() {
            1 => format!("{}{over}.", self.words(most.1)),
            _ => format!(
                "Least under {} ({}), most under {} ({}){over}.",
                least.0,
                self.words(least.1),
                most.0,
                self.words(most.1)
            ),
        }
    }
}

/// The axis of the swept number: logarithmic where it spans almost a decade.
fn x_axis(key: &str, values: impl Iterator<Item = f64> + Clone) -> Axis {
    let (stem, unit) = label(key);
    let title = if unit.is_empty() { stem } else { format!("{stem}, {unit}") };
    let [low, high] = extent(ScaleKind::Linear, values.clone()).unwrap_or([0.0, 1.0]);
    match low > 0.0 && high >= 8.0 * low {
        true => {
            let decades = (high / low).log10();
            let count = ((decades * 3.0).ceil() as usize).max(3);
            Axis::new(ScaleKind::Log, [low / 1.06, high * 1.06], Unit::Count, &title)
                .ticks(count.min(9))
        }
        false => {
            let room = 0.02 * (high - low);
            Axis::new(ScaleKind::Linear, [low - room, high + room], Unit::Times, &title).ticks(6)
        }
    }
}
