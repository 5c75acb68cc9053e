//! The stress test of distributed queueing drawn: load, backlogs, rates, minimum rates.
//!
//! Figures 18 to 21 of the DER paper, the last three for each set of equations. An output has the
//! same colour in all of them; its backlog at input 1 is dashed.

use nilometer_sim::overload::Row;
use nilometer_sim::stress::{StressPlan, StressRun};

use super::arrangement::tone;
use nilometer_report::figure::Figure;
use nilometer_report::format::{bytes, significant};
use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::scale::{ScaleKind, extent, from_zero};
use nilometer_report::plot::{Area, Mark, Panel, WIDTH};
use nilometer_report::thin::outline;

/// A line need not be truer than this part of its axes.
const SLACK: f64 = 8e-4;
/// Nor truer than this many periods.
const SLACK_PERIODS: f64 = 0.8;
/// Steps of a stacked band.
const STEPS: usize = 220;

/// The area in which all of them are drawn, so that periods line up vertically.
const AREA: Area = Area { left: 74.0, right: WIDTH - 12.0, top: 28.0, bottom: 238.0 };

/// A set of equations in words.
pub fn equations(name: &str) -> &'static str {
    match name {
        "original" => "equations 1–4",
        "reserved" => "equations 5–6",
        "dq_plus" => "DQ+",
        "dq_plus_deferred" => "deferring DQ+",
        _ => "other equations",
    }
}

fn x_axis(runs: &[StressRun]) -> Axis {
    let last = runs.iter().filter_map(|run| run.outcome.rows.last()).map(|row| row.period as f64);
    let domain = [0.0, last.fold(1.0, f64::max)];
    Axis::new(ScaleKind::Linear, domain, Unit::Times, "update periods").ticks(6)
}

/// A guide at the end of each stage.
fn marks(panel: &mut Panel, run: &StressRun) {
    for (number, &end) in run.stages.iter().enumerate() {
        let name = format!("T{}", number + 1);
        panel.upright(end as f64, Mark { class: "guide", name: &name });
    }
}

/// The number of the row from which on output `output` is sent to.
fn began(run: &StressRun, output: usize) -> usize {
    let end = |stage: usize| run.stages.get(stage).map_or(usize::MAX, |&end| end as usize);
    let row = if output == 0 { 0 } else { end(output - 1) };
    row.min(run.outcome.rows.len())
}

/// One value of each row as a line, which is named only from where its output is sent to.
fn course(
    panel: &mut Panel,
    (run, output): (&StressRun, usize),
    y: &Axis,
    mark: Mark,
    value: impl Fn(&Row) -> f64,
) {
    let rows = &run.outcome.rows;
    let start = began(run, output);
    let before = traced(&rows[..rows.len().min(start + 1)], y, &value);
    if before.iter().any(|point| point[1] > 0.0) && before.len() > 1 {
        panel.line(&before, Mark { name: "", ..mark });
    }
    panel.line(&traced(&rows[start..], y, &value), mark);
}

/// One value of each row, as the fewest points that draw the same line.
fn traced(rows: &[Row], y: &Axis, value: &impl Fn(&Row) -> f64) -> Vec<[f64; 2]> {
    let points: Vec<[f64; 2]> = rows.iter().map(|row| [row.period as f64, value(row)]).collect();
    let [low, high] = y.scale.domain();
    outline(&points, [SLACK_PERIODS, (high - low) * SLACK])
}

/// Which inputs send to which outputs and when (Figure 18), in the run under the first equations.
pub fn load(plan: &StressPlan, runs: &[StressRun]) -> Option<Figure> {
    let run = runs.first()?;
    let end = run.outcome.rows.last()?.period as f64;
    let count = plan.sources;
    let height = 34.0 + 26.0 * count as f64;
    let y = Axis::new(ScaleKind::Linear, [0.0, count as f64], Unit::Count, "").ticks(0);
    let area = Area { bottom: height, ..AREA };
    let mut panel = Panel::new(area, x_axis(runs), y);
    let mut from = 0.0;
    for stage in 0..=run.stages.len() {
        let to = run.stages.get(stage).map_or(end, |&at| at as f64);
        let is_last = stage + 1 == plan.stages;
        let class = format!("full {}", tone("", stage));
        let name = format!("to {}", stage + 1);
        for source in 0..if is_last { 1 } else { count } {
            let top = (count - source) as f64 - 0.12;
            let band = [[from, top - 0.76, top], [to, top - 0.76, top]];
            panel.band(&band, Mark { class: &class, name: "" });
        }
        panel.words_above([(from + to) / 2.0, count as f64], &name);
        from = to;
    }
    for source in 0..count {
        panel.words_left((count - source) as f64 - 0.5, &format!("source {}", source + 1));
    }
    let ends: Vec<String> = run.stages.iter().map(u64::to_string).collect();
    let caption = format!(
        "All {count} sources send at the link’s rate to one output after the other; the stages end \
         at {}. At last only source 1 sends, to output {}.",
        ends.join(", "),
        plan.stages
    );
    Figure::new(["load", "The load (Figure 18)"], caption, height + 42.0, &[panel.finish(true)])
}

/// Backlogs of outputs, and of input 1 for each output (Figure 19).
pub fn backlogs(plan: &StressPlan, runs: &[StressRun], number: usize) -> Option<Figure> {
    let run = &runs[number];
    let outputs = plan.stages - 1;
    let all = runs.iter().flat_map(|run| &run.outcome.rows).flat_map(|row| {
        let both = row.output_backlog_bytes.iter().chain(&row.input_backlog_bytes);
        both.map(|&bytes| bytes as f64).collect::<Vec<f64>>()
    });
    let y = Axis::new(ScaleKind::Linear, from_zero(all), Unit::Bytes, "bytes that wait");
    let mut panel = Panel::new(AREA, x_axis(runs), y.clone());
    marks(&mut panel, run);
    for output in 0..outputs {
        let class = tone("", output);
        let name = format!("output {}", output + 1);
        let mark = Mark { class: &class, name: &name };
        course(&mut panel, (run, output), &y, mark, |row| row.output_backlog_bytes[output] as f64);
    }
    for output in 0..outputs {
        let class = format!("{} dashed", tone("", output));
        let name = if output < 2 { format!("1 → {}", output + 1) } else { String::new() };
        let mark = Mark { class: &class, name: &name };
        course(&mut panel, (run, output), &y, mark, |row| row.input_backlog_bytes[output] as f64);
    }
    let caption = format!(
        "At T1 {} wait at output 1 (the paper says about 1.76 MB for its case) and {} at input 1 \
         for it (about 880 kB). Dashed: at input 1.",
        bytes(run.output_backlog_bytes_at_t1 as f64),
        bytes(run.input_backlog_bytes_at_t1 as f64)
    );
    named(["backlog", "Backlogs", "Figure 19"], run, caption, &[panel.finish(true)])
}

/// Rates of input 1 (Figure 20).
pub fn rates(plan: &StressPlan, runs: &[StressRun], number: usize) -> Option<Figure> {
    let run = &runs[number];
    let all = runs.iter().flat_map(|run| &run.outcome.rows).flat_map(|row| row.rate_mbps.clone());
    let top = extent(ScaleKind::Linear, all.map(|rate| rate * 1e6)).map_or(1.0, |[_, high]| high);
    let y =
        Axis::new(ScaleKind::Linear, from_zero([top]), Unit::BitRate, "rate granted to input 1");
    let mut panel = Panel::new(AREA, x_axis(runs), y.clone());
    marks(&mut panel, run);
    for output in 0..plan.stages {
        let name = format!("to {}", output + 1);
        let mark = Mark { class: &tone("", output), name: &name };
        course(&mut panel, (run, output), &y, mark, |row| row.rate_mbps[output] * 1e6);
    }
    let caption = format!(
        "In the last stage, in which its link brings {} Mb/s, input 1 is granted {} Mb/s to output \
         {} on average; at T1 {} Mb/s to an output for which nothing waits.",
        significant(plan.link.bits_per_second() as f64 / 1e6, 3),
        significant(run.last_stage_mbps, 3),
        plan.stages,
        significant(run.idle_voq_mbps, 3)
    );
    named(["rates", "Rates of input 1", "Figure 20"], run, caption, &[panel.finish(true)])
}

/// Minimum rates of input 1, one output upon the other, under the capacity (Figure 21).
pub fn minimum_rates(plan: &StressPlan, runs: &[StressRun], number: usize) -> Option<Figure> {
    let run = &runs[number];
    let capacity = plan.speedup * plan.link.bits_per_second() as f64;
    let most = run.outcome.minimum_rates_most_mbps * 1e6;
    let domain = from_zero([capacity, most]);
    let y = Axis::new(
        ScaleKind::Linear,
        domain,
        Unit::BitRate,
        "least rates that input 1 owes, summed",
    );
    let mut panel = Panel::new(AREA, x_axis(runs), y);
    let rows = &run.outcome.rows;
    let chosen = (0..=STEPS).filter_map(|i| rows.get((rows.len().max(1) - 1) * i / STEPS));
    let chosen: Vec<&Row> = chosen.collect();
    let up_to = |row: &Row, outputs: usize| row.minimum_rate_mbps[..outputs].iter().sum::<f64>();
    for output in 0..plan.ports {
        let band: Vec<[f64; 3]> = chosen
            .iter()
            .map(|row| {
                let [low, high] = [output, output + 1].map(|outputs| up_to(row, outputs) * 1e6);
                [row.period as f64, low, high]
            })
            .collect();
        let is_idle = output >= plan.stages;
        let class = if is_idle { "pile wire".into() } else { format!("pile {}", tone("", output)) };
        let name = match is_idle {
            false => format!("to {}", output + 1),
            true => String::new(),
        };
        let start = began(run, output) as f64;
        let split = band.partition_point(|point| point[0] < start);
        panel.band(&band[..band.len().min(split + 1)], Mark { class: &class, name: "" });
        panel.band(&band[split..], Mark { class: &class, name: &name });
    }
    marks(&mut panel, run);
    let shown = format!("capacity S·L, {} Mb/s", significant(capacity / 1e6, 4));
    panel.level(capacity, Mark { class: "model", name: &shown });
    let verdict = if most < capacity { "below" } else { "above" };
    let caption = format!(
        "Any input owes at most {} Mb/s, {verdict} what it has; so every promise {} be kept. Grey: \
         outputs to which nobody sends.",
        significant(most / 1e6, 4),
        if most < capacity { "can" } else { "cannot" }
    );
    named(["minimum", "Minimum rates of input 1", "Figure 21"], run, caption, &[panel.finish(true)])
}

/// A figure of one set of equations.
fn named(
    [id, title, paper]: [&str; 3],
    run: &StressRun,
    caption: String,
    panels: &[nilometer_report::plot::Drawing],
) -> Option<Figure> {
    let id = format!("{id}-{}", run.name);
    let title = format!("{title}, {} ({paper})", equations(run.name));
    Figure::new([&id, &title], caption, 280.0, panels)
}
