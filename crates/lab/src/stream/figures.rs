//! Pictures of a stream: its delays beside those of the wire, and over time.

use nilometer_report::figure::Figure;
use nilometer_report::format::time_ns;
use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::scale::{ScaleKind, from_zero, round_log};
use nilometer_report::plot::{Area, Mark, Panel};
use nilometer_stat::Histogram;

use super::trial::{Seen, StreamSeen};

/// Shares of frames smaller than this are not drawn.
const RAREST: f64 = 1e-6;

/// The share of frames slower than a delay, at the upper end of each bucket.
fn slower(histogram: &Histogram) -> Vec<[f64; 2]> {
    let all = histogram.count().max(1) as f64;
    let mut reached = 0;
    let points = histogram.buckets().map(|bucket| {
        reached += bucket.count;
        [bucket.high.max(1) as f64, 1.0 - reached as f64 / all]
    });
    points.filter(|point| point[1] >= RAREST).collect()
}

/// The distribution of the delays of one direction, with the wire's beside it.
pub(super) fn distribution(
    stream: &StreamSeen,
    wire: Option<&StreamSeen>,
    dut: &str,
) -> Option<Figure> {
    let through = slower(&stream.timings.delay);
    let bare = wire.map(|wire| slower(&wire.timings.delay)).unwrap_or_default();
    let both = || through.iter().chain(&bare);
    if through.is_empty() {
        return None;
    }
    let x = round_log(both().map(|point| point[0]));
    let rarest = round_log(both().map(|point| point[1]))[0].clamp(RAREST, 0.01);
    let x = Axis::new(ScaleKind::Log, x, Unit::Nanoseconds, "delay").ticks(6);
    let y =
        Axis::new(ScaleKind::Log, [rarest, 1.0], Unit::Share, "share of frames slower").ticks(6);
    let mut panel = Panel::new(Area::between(28.0, 208.0), x, y);
    panel.line(&bare, Mark { class: "wire", name: "bare wire" });
    panel.line(&through, Mark { class: "measured", name: dut });
    let quantile = |of: &StreamSeen, q| of.timings.delay.quantile(q).unwrap_or(0) as f64;
    let median = quantile(stream, 0.5);
    let caption = match wire {
        Some(wire) => format!(
            "Half of the frames at most {}, over the bare wire {}; one in a hundred over {}.",
            time_ns(median),
            time_ns(quantile(wire, 0.5)),
            time_ns(quantile(stream, 0.99))
        ),
        None => format!(
            "Half of the frames at most {}, one in a hundred over {}.",
            time_ns(median),
            time_ns(quantile(stream, 0.99))
        ),
    };
    Figure::new(["distribution", "Delay"], caption, 250.0, &[panel.finish(true)])
}

/// The course of the delays of one direction: from the 5th to the 95th percentile, and the median.
pub(super) fn course(stream: &StreamSeen, dut: &str) -> Option<Figure> {
    let series = stream.delays.series(Some(stream.direction));
    let points = || {
        series.iter().filter_map(|point| {
            let delay = point.delay?;
            Some((point.start.as_secs_f64(), delay))
        })
    };
    let last = points().next_back()?.0 + stream.delays.interval().as_secs_f64();
    let high = points().map(|(_, delay)| delay.p95_ns as f64);
    let x =
        Axis::new(ScaleKind::Linear, [0.0, last], Unit::Seconds, "seconds since the first frame");
    let y = Axis::new(ScaleKind::Linear, from_zero(high), Unit::Nanoseconds, "delay");
    let mut panel = Panel::new(Area::between(28.0, 208.0), x.ticks(6), y.ticks(5));
    let band: Vec<[f64; 3]> =
        points().map(|(s, delay)| [s, delay.p5_ns as f64, delay.p95_ns as f64]).collect();
    let median: Vec<[f64; 2]> = points().map(|(s, delay)| [s, delay.p50_ns as f64]).collect();
    panel.band(&band, Mark { class: "measured", name: "" });
    panel.line(&median, Mark { class: "measured", name: dut });
    let caption = "The median of each second, and the band from the 5th to the 95th percentile.";
    let drawn = [panel.finish(true)];
    Figure::new(["course", "Delay over time"], caption.to_owned(), 250.0, &drawn)
}

/// The first stream of a trial, and the wire's beside it.
pub(super) fn of_trial(seen: &Seen, wire: Option<&Seen>, dut: &str) -> Vec<String> {
    let mut figures = Vec::new();
    for (way, stream) in seen.streams.iter().enumerate() {
        let bare = wire.and_then(|wire| wire.streams.get(way));
        figures.extend(distribution(stream, bare, dut));
        figures.extend(course(stream, dut));
    }
    figures.iter().map(Figure::html).collect()
}
