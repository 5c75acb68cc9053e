//! `nilometer model compare`: two models side by side, and the distances between their laws.

use std::path::Path;

use anyhow::Result;
use nilometer_traffic::TrafficModel;
use nilometer_traffic::burstiness::{Hurst, HurstEstimate};
use nilometer_traffic::compare::{self, Distance};
use serde::Serialize;

use super::Exit;
use super::table::Side::{Left, Right};
use super::table::{row, table};
use nilometer_files::document::model::read_model;

/// Characters of a model's column: with the names of the rows, two of them fit sixty.
const COLUMN: usize = 20;

/// Bytes or packets.
type Series = fn(&Hurst) -> Option<HurstEstimate>;

/// What of a model stands beside the other's.
#[derive(Debug, Serialize)]
struct Side<'a> {
    original_s: f64,
    flows: u64,
    payload_bytes: u64,
    packets: u64,
    bits_per_second: f64,
    hurst: &'a Option<Hurst>,
}

impl<'a> Side<'a> {
    fn of(model: &'a TrafficModel) -> Side<'a> {
        Side {
            original_s: model.original_s(),
            flows: model.flows(),
            payload_bytes: model.bytes(),
            packets: model.intervals.iter().map(|interval| interval.packets).sum(),
            bits_per_second: 8.0 * model.bytes() as f64 / model.original_s(),
            hurst: &model.hurst,
        }
    }
}

/// Compares the models in two files; floors are drawn from the first with `seed`.
pub(super) fn run([a, b]: [&Path; 2], seed: u64, json: bool) -> Result<Exit> {
    let models = [read_model(a)?, read_model(b)?];
    let [first, second] = &models;
    let distances = compare::compare(first, second, seed);
    let sides = models.each_ref().map(Side::of);
    if json {
        let [a, b] = &sides;
        println!("{}", serde_json::json!({ "seed": seed, "distances": distances, "a": a, "b": b }));
    } else {
        print!("{}\n{}", of_laws(&distances), of_sides([a, b], &sides));
    }
    Ok(Exit::Done)
}

fn of_laws(distances: &[Distance]) -> String {
    let mut rows = vec![row(["law", "metric", "distance", "floor", "ratio"])];
    rows.extend(distances.iter().map(|it| {
        let ratio = it.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let [distance, floor] = [it.distance, it.floor].map(|value| format!("{value:.6}"));
        row([&it.name, it.metric, &distance, &floor, &ratio])
    }));
    table(&[Left, Left, Right], &rows)
}

/// The end of a file's name that fits its column.
fn heading(path: &Path) -> String {
    let name = path.display().to_string();
    match name.chars().count().checked_sub(COLUMN) {
        None | Some(0) => name,
        Some(over) => "…".chars().chain(name.chars().skip(over + 1)).collect(),
    }
}

fn of_sides(paths: [&Path; 2], sides: &[Side<'_>; 2]) -> String {
    let line = |name: &str, [a, b]: [String; 2]| vec![name.to_owned(), a, b];
    let mut rows = vec![line("model", paths.map(heading))];
    let mut row = |name: &str, of: &dyn Fn(&Side<'_>) -> String| {
        rows.push(line(name, sides.each_ref().map(of)));
    };
    row("original, s", &|side| format!("{:.3}", side.original_s));
    row("flows", &|side| side.flows.to_string());
    row("payload, bytes", &|side| side.payload_bytes.to_string());
    row("packets", &|side| match side.packets {
        0 => "not measured".to_owned(),
        packets => packets.to_string(),
    });
    row("payload, Mbit/s", &|side| format!("{:.3}", side.bits_per_second / 1e6));
    let series: [(&str, Series); 2] =
        [("Hurst of bytes", |hurst| hurst.bytes), ("Hurst of packets", |hurst| hurst.packets)];
    for (name, of) in series {
        row(name, &|side| hurst(side, of));
        row("  95 % interval", &|side| interval(side, of));
    }
    table(&[Left, Right], &rows)
}

fn hurst(side: &Side<'_>, of: Series) -> String {
    match side.hurst.as_ref().map(of) {
        None => "not known".to_owned(),
        Some(None) => "no line fits".to_owned(),
        Some(Some(estimate)) if drifts(&estimate) => format!("{:.3}, drifting", estimate.h),
        Some(Some(estimate)) => format!("{:.3}", estimate.h),
    }
}

fn interval(side: &Side<'_>, of: Series) -> String {
    match side.hurst.as_ref().and_then(of) {
        None => "-".to_owned(),
        Some(HurstEstimate { low, high, .. }) => format!("{low:.3} to {high:.3}"),
    }
}

/// Whether the series is not stationary.
fn drifts(estimate: &HurstEstimate) -> bool {
    estimate.low > 1.0
}

/// Hurst's parameter with the interval it lies in.
pub(super) fn with_interval(estimate: &HurstEstimate) -> String {
    let HurstEstimate { h, low, high, .. } = estimate;
    let drifts = if drifts(estimate) { ", not stationary" } else { "" };
    format!("{h:.3} ({low:.3} to {high:.3}, 95 %{drifts})")
}
