//! Volume: what was planned for each interval against what was sent in each second.

use super::super::format::{self, count, percent};
use super::super::plot::axis::{Axis, Unit};
use super::super::plot::bars::Bar;
use super::super::plot::scale::{ScaleKind, from_zero};
use super::super::plot::{Area, Drawing, Mark, Panel};
use super::super::story::{Interval, Story};
use super::rows::Rows;
use super::{Figure, capital};

const HEIGHT: f64 = 236.0;
const AREA: [f64; 2] = [28.0, 194.0];

/// A deviation from the plan up to this share counts as kept.
const KEPT: f64 = 0.05;

/// A quantity that is planned by interval and seen by second.
struct Course<'a> {
    y: Axis,
    bars: Vec<Bar>,
    line: Vec<[f64; 2]>,
    bars_name: &'a str,
    bars_class: &'a str,
}

impl Course<'_> {
    fn draw(self, story: &Story) -> Drawing {
        let x = Axis::new(ScaleKind::Linear, span(story), Unit::Seconds, "seconds").ticks(6);
        let mut panel = Panel::new(Area::between(AREA[0], AREA[1]), x, self.y);
        panel.bars(&self.bars, Mark { class: self.bars_class, name: self.bars_name });
        panel.line(&self.line, Mark { class: "measured", name: "measured, each second" });
        panel.finish(true)
    }
}

/// Payload volume: planned blocks, measured line.
pub fn bytes(story: &Story) -> Option<Figure> {
    let bars: Vec<Bar> = bars(&story.intervals, |i| {
        let planned = format::bytes(i.bytes_target as f64);
        let sent = format::bytes(i.bytes_generated as f64);
        (8.0 * i.bytes_target as f64, format!("planned {planned}, generated {sent}"))
    });
    let line = by_second(story, |s| 8.0 * s.payload_bytes as f64);
    let y = axis(&bars, &line, Unit::BitRate, "payload")?;
    let caption = match off(&story.intervals, |i| [i.bytes_generated, i.bytes_target]) {
        Some(worst) if worst <= KEPT => {
            format!("Each interval carries its planned bytes: worst off by {}.", percent(worst))
        }
        Some(worst) => format!(
            "Not every interval carries its planned bytes: worst off by {}.",
            percent(worst)
        ),
        None => "No bytes were planned.".to_owned(),
    };
    let course = Course { y, bars, line, bars_name: "planned", bars_class: "planned" };
    Figure::new(["volume", "Volume"], caption, HEIGHT, &[course.draw(story)])
}

/// Connections started: planned blocks, measured line.
pub fn connections(story: &Story) -> Option<Figure> {
    let bars: Vec<Bar> = bars(&story.intervals, |i| {
        let (planned, sent) = (count(i.flows_target), count(i.flows_generated));
        (i.flows_target as f64, format!("planned {planned}, generated {sent}"))
    });
    let line = by_second(story, |s| s.flows as f64);
    let y = axis(&bars, &line, Unit::Count, "connections started each second")?;
    let planned: u64 = story.intervals.iter().map(|i| i.flows_target).sum();
    let sent: u64 = story.intervals.iter().map(|i| i.flows_generated).sum();
    let caption = format!(
        "{} of {} planned connections were seen to start, in bursts as sessions do.",
        count(sent),
        count(planned)
    );
    let course = Course { y, bars, line, bars_name: "planned", bars_class: "planned" };
    Figure::new(["connections", "Connections"], caption, HEIGHT, &[course.draw(story)])
}

/// Packets: as captured in dashed blocks where the input tells, measured line.
pub fn packets(story: &Story) -> Option<Figure> {
    let known: Vec<Interval> =
        story.intervals.iter().filter(|i| i.packets_captured.is_some()).cloned().collect();
    let bars: Vec<Bar> = bars(&known, |i| {
        let captured = i.packets_captured.unwrap_or(0);
        let title = format!("as captured {}, generated {}", count(captured), count(i.packets));
        (captured as f64, title)
    });
    let line = by_second(story, |s| s.packets as f64);
    let y = axis(&bars, &line, Unit::Count, "packets each second")?;
    let mean = mean_size(story.intervals.iter().map(|i| (i.ip_bytes, i.packets)));
    let captured = mean_size(
        known.iter().map(|i| (i.ip_bytes_captured.unwrap_or(0), i.packets_captured.unwrap_or(0))),
    );
    let generated: u64 = known.iter().map(|i| i.packets).sum();
    let original: u64 = known.iter().filter_map(|i| i.packets_captured).sum();
    let size = mean.map_or_else(String::new, |m| format!(" The mean packet has {m:.0} bytes."));
    let caption = match captured {
        Some(was) if original > 0 => format!(
            "{} packets for every one captured; the mean has {} bytes, {was:.0} as captured.",
            format::significant(generated as f64 / original as f64, 3),
            mean.map_or_else(|| format::NOT_MEASURED.to_owned(), |m| format!("{m:.0}")),
        ),
        _ => {
            let all: u64 = story.seconds.iter().map(|s| s.packets).sum();
            format!("{} IP packets in all, both directions.{size}", count(all))
        }
    };
    let course = Course { y, bars, line, bars_name: "as captured", bars_class: "model hollow" };
    Figure::new(["packets", "Packets"], caption, HEIGHT, &[course.draw(story)])
}

/// How far each interval is off its plan, by quantity.
pub fn off_plan(story: &Story) -> Option<Figure> {
    type Pair = fn(&Interval) -> [u64; 2];
    let quantities: [(&str, Pair); 3] = [
        ("payload bytes", |i| [i.bytes_generated, i.bytes_target]),
        ("connections", |i| [i.flows_generated, i.flows_target]),
        ("active sessions", |i| [i.sessions_generated, i.sessions_target]),
    ];
    let share = |[sent, planned]: [u64; 2]| match planned {
        0 => f64::NAN,
        _ => sent as f64 / planned as f64 - 1.0,
    };
    let all = quantities.iter().flat_map(|(_, pair)| story.intervals.iter().map(pair)).map(share);
    let reach = all.filter(|s| s.is_finite()).map(f64::abs).reduce(f64::max)?;
    let reach = reach.max(KEPT) * 1.25;
    let x = Axis::new(ScaleKind::Linear, [-reach, reach], Unit::SignedShare, "off plan");
    let names: Vec<String> = quantities.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut rows = Rows::new(&names, x);
    rows.band(-KEPT, KEPT, Mark { class: "planned", name: "" });
    rows.panel.upright(0.0, Mark { class: "wire", name: "" });
    let mut worst = (0.0_f64, String::new());
    for (row, (name, pair)) in quantities.iter().enumerate() {
        for interval in &story.intervals {
            let off = share(pair(interval));
            let between = between(interval);
            let title = format!("{name}, {between}: {}", Unit::SignedShare.tick(off));
            let y = rows.y(row);
            rows.panel.dot([off, y], Mark { class: "measured", name: "" }, &title);
            if off.abs() > worst.0 {
                worst = (off.abs(), format!("{name} of {between}"));
            }
        }
    }
    let caption = match worst.0 {
        0.0 => "Every interval met its plan exactly.".to_owned(),
        off if off <= KEPT => format!(
            "Each dot is an interval; all lie within the ±5\u{a0}% shaded. Farthest: {}, {}.",
            worst.1,
            percent(off)
        ),
        off => format!(
            "Each dot is an interval; ±5\u{a0}% is shaded. Farthest: {}, {}.",
            worst.1,
            percent(off)
        ),
    };
    let height = rows.height();
    let panels = [rows.panel.finish(true)];
    Figure::new(["off-plan", "Generated against planned"], caption, height, &panels)
}

/// Bars at the interval's mean rate, titled with when and what.
fn bars(intervals: &[Interval], what: impl Fn(&Interval) -> (f64, String)) -> Vec<Bar> {
    let lasting = intervals.iter().filter(|i| i.end_s > i.start_s);
    let bar = |i: &Interval| {
        let (amount, words) = what(i);
        let value = amount / (i.end_s - i.start_s);
        let title = format!("{}: {words}", capital(&between(i)));
        Bar { left: i.start_s, right: i.end_s, value, title }
    };
    lasting.map(bar).collect()
}

fn by_second(story: &Story, value: impl Fn(&super::super::story::Second) -> f64) -> Vec<[f64; 2]> {
    story.seconds.iter().map(|s| [s.start_s + 0.5, value(s)]).collect()
}

fn axis(bars: &[Bar], line: &[[f64; 2]], unit: Unit, title: &str) -> Option<Axis> {
    if bars.is_empty() && line.is_empty() {
        return None;
    }
    let values = bars.iter().map(|b| b.value).chain(line.iter().map(|p| p[1]));
    let [low, high] = from_zero(values);
    Some(Axis::new(ScaleKind::Linear, [low, high * 1.08], unit, title).ticks(5))
}

/// The seconds that the run covers.
pub fn span(story: &Story) -> [f64; 2] {
    let ends = story.intervals.iter().map(|i| i.end_s);
    let ends = ends.chain(story.seconds.iter().map(|s| s.start_s + 1.0));
    [0.0, ends.filter(|e| e.is_finite()).fold(1.0, f64::max)]
}

fn between(interval: &Interval) -> String {
    let [from, to] = [interval.start_s, interval.end_s].map(|s| format::significant(s, 4));
    format!("seconds {from} to {to}")
}

fn off(intervals: &[Interval], pair: impl Fn(&Interval) -> [u64; 2]) -> Option<f64> {
    let planned = intervals.iter().map(pair).filter(|[_, planned]| *planned > 0);
    planned.map(|[sent, planned]| (sent as f64 / planned as f64 - 1.0).abs()).reduce(f64::max)
}

fn mean_size(pairs: impl Iterator<Item = (u64, u64)>) -> Option<f64> {
    let (bytes, packets) = pairs.fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    (packets > 0 && bytes > 0).then(|| bytes as f64 / packets as f64)
}
