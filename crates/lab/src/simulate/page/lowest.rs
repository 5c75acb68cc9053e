//! How low can the speed-up go: broken promises and missed bytes against it, by set of equations.

use nilometer_sim::speedup::SpeedupRow;

use super::stages::equations;
use nilometer_report::figure::Figure;
use nilometer_report::format::significant;
use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::scale::{ScaleKind, extent, from_zero, round_log};
use nilometer_report::plot::{Area, Mark, Panel};

/// Which loads: the paper's stress test, or all hostile ones together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loads {
    /// The paper's.
    Stress,
    /// Random and adaptive ones.
    Hostile,
}

/// The rows of one speed-up, one set of equations and one kind of loads, together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    promised: f64,
    violations: f64,
    missed_bytes: f64,
}

/// The names of the sets of equations, in the order in which they come.
pub fn variants(rows: &[SpeedupRow]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for row in rows {
        if !names.contains(&row.variant) {
            names.push(row.variant);
        }
    }
    names
}

/// The speed-ups with the sums of all loads of a kind, ascending.
fn sums(rows: &[SpeedupRow], variant: &str, loads: Loads) -> Vec<(f64, Sum)> {
    let mut sums: Vec<(f64, Sum)> = Vec::new();
    let kind = |row: &&SpeedupRow| (row.load == 0) == (loads == Loads::Stress);
    for row in rows.iter().filter(|row| row.variant == variant).filter(kind) {
        if !sums.iter().any(|(speedup, _)| *speedup == row.speedup) {
            sums.push((row.speedup, Sum::default()));
        }
        if let Some((_, sum)) = sums.iter_mut().find(|(speedup, _)| *speedup == row.speedup) {
            sum.promised += row.promised_periods as f64;
            sum.violations += row.violations as f64;
            sum.missed_bytes += row.missed_bytes;
        }
    }
    sums.sort_by(|a, b| a.0.total_cmp(&b.0));
    sums
}

/// The least speed-up from which on nothing is violated up to the greatest that was tried.
pub fn lowest(rows: &[SpeedupRow], variant: &str, loads: Loads) -> Option<f64> {
    let sums = sums(rows, variant, loads);
    let kept = sums.iter().rev().take_while(|(_, sum)| sum.violations == 0.0);
    kept.last().map(|(speedup, _)| *speedup)
}

/// The answer for each set of equations, a sentence.
pub fn answer(rows: &[SpeedupRow], loads: Loads) -> String {
    let (mut kept, mut never) = (Vec::new(), Vec::new());
    for variant in variants(rows) {
        match lowest(rows, variant, loads) {
            Some(speedup) => {
                kept.push(format!("{} ({})", significant(speedup, 3), equations(variant)));
            }
            None => never.push(equations(variant)),
        }
    }
    let kept = match kept.is_empty() {
        true => String::new(),
        false => format!("No promise is broken from S = {} upwards. ", kept.join(", ")),
    };
    let never = match never.is_empty() {
        true => String::new(),
        false => format!("At every S tried some are broken with {}.", never.join(", ")),
    };
    format!("{kept}{never}").trim_end().to_owned()
}

fn tone(variant: &str) -> &'static str {
    match variant {
        "original" => "tone3",
        "reserved" => "tone2",
        "dq_plus" => "tone6",
        _ => "tone4 dashed",
    }
}

fn curves(
    rows: &[SpeedupRow],
    loads: Loads,
    value: fn(&Sum) -> f64,
) -> Vec<(&'static str, Vec<[f64; 2]>)> {
    let curve = |variant: &&'static str| {
        let points = sums(rows, variant, loads).iter().map(|(s, sum)| [*s, value(sum)]).collect();
        (*variant, points)
    };
    variants(rows).iter().map(curve).collect()
}

fn figure(
    [id, title]: [&str; 2],
    curves: &[(&'static str, Vec<[f64; 2]>)],
    y: Axis,
    caption: String,
) -> Option<Figure> {
    let xs = curves.iter().flat_map(|(_, points)| points).map(|point| point[0]);
    let [low, high] = extent(ScaleKind::Linear, xs)?;
    let room = 0.02 * (high - low);
    let x = Axis::new(ScaleKind::Linear, [low - room, high + room], Unit::Times, "speed-up S")
        .ticks(10);
    let mut panel = Panel::new(Area::between(28.0, 238.0), x, y);
    for (variant, points) in curves {
        let name = equations(variant);
        panel.line(points, Mark { class: tone(variant), name });
        panel.dots(points, Mark { class: tone(variant), name: "" });
    }
    Figure::new([id, title], caption, 280.0, &[panel.finish(true)])
}

/// Promised periods in which an output idled, against the speed-up.
pub fn violations(rows: &[SpeedupRow], loads: Loads) -> Option<Figure> {
    let curves = curves(rows, loads, |sum| sum.violations / sum.promised.max(1.0));
    let all = curves.iter().flat_map(|(_, points)| points).map(|point| point[1]);
    let y =
        Axis::new(ScaleKind::Linear, from_zero(all), Unit::Share, "promised periods that idled");
    let caption = answer(rows, loads);
    let names = match loads {
        Loads::Stress => ["broken-stress", "Broken promises, the paper’s load"],
        Loads::Hostile => ["broken-hostile", "Broken promises, hostile loads"],
    };
    figure(names, &curves, y, caption)
}

/// Bytes that outputs missed in all, against the speed-up.
pub fn missed(rows: &[SpeedupRow], loads: Loads) -> Option<Figure> {
    let curves = curves(rows, loads, |sum| sum.missed_bytes);
    let all = || curves.iter().flat_map(|(_, points)| points).map(|point| point[1]);
    let y =
        Axis::new(ScaleKind::Log, round_log(all()), Unit::Bytes, "missed while something waited");
    let last = |points: &[[f64; 2]]| points.last().map(|point| point[1]);
    let ends = || curves.iter().filter_map(|(name, points)| Some((*name, last(points)?)));
    let least = ends().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = ends().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let caption = format!(
        "What links would have sent while they idled and a packet for them was inside: at the \
         highest S least under {} ({}), most under {} ({}).",
        equations(least.0),
        nilometer_report::format::bytes(least.1),
        equations(most.0),
        nilometer_report::format::bytes(most.1)
    );
    let names = match loads {
        Loads::Stress => ["missed-stress", "Missed bytes, the paper’s load"],
        Loads::Hostile => ["missed-hostile", "Missed bytes, hostile loads"],
    };
    figure(names, &curves, y, caption)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(speedup: f64, load: u64, violations: u64) -> SpeedupRow {
        SpeedupRow {
            speedup,
            variant: "original",
            load,
            promised_periods: 100,
            violations,
            promised_bytes: 0.0,
            promised_most_bytes: 0.0,
            missed_bytes: 10.0,
            urgency_most: 0.5,
            out_packets: 1,
        }
    }

    #[test]
    fn the_lowest_is_where_no_later_one_fails() {
        let rows = [row(1.0, 0, 0), row(1.5, 0, 2), row(2.0, 0, 0), row(1.8, 0, 0), row(2.0, 1, 1)];
        assert_eq!(lowest(&rows, "original", Loads::Stress), Some(1.8));
        assert_eq!(lowest(&rows, "original", Loads::Hostile), None);
        let answers = [Loads::Stress, Loads::Hostile].map(|loads| answer(&rows, loads));
        assert_eq!(answers[0], "No promise is broken from S = 1.8 (equations 1–4) upwards.");
        assert_eq!(answers[1], "At every S tried some are broken with equations 1–4.");
        assert_eq!(sums(&rows, "original", Loads::Hostile)[0].1.violations, 1.0);
    }
}
