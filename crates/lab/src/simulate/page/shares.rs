//! What each flow got (Figure 15 of the DER paper): goodput by fair share, flows in order of it.
//!
//! A small plot for each line of the sweep, at one value of its axis, with the other lines behind it
//! in grey. The flows of each run are sorted; the curve is the mean over runs of the goodput at each
//! rank, the band reaches from the least to the greatest. A flat curve is a fair discipline.

use super::arrangement::{Facet, Line, label_with_value};
use nilometer_report::figure::Figure;
use nilometer_report::format::significant;
use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::scale::{ScaleKind, extent};
use nilometer_report::plot::{Area, Mark, Panel, WIDTH};

/// Small plots beside each other.
const COLUMNS: usize = 3;
/// Most ranks that are drawn.
const RANKS_MAX: usize = 101;
/// Most small plots of a figure.
const PANELS_MAX: usize = 9;

/// Goodput by fair share at each rank: mean over runs, least, greatest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// `[rank, mean, least, greatest]`, ranks from 1, evenly chosen where there are many.
    pub ranks: Vec<[f64; 4]>,
}

impl Shares {
    /// From the flows of each run, in any order; empty where runs differ in their number, or a flow
    /// has no finite goodput.
    pub fn of(runs: &[Vec<f64>]) -> Shares {
        let count = runs.first().map_or(0, Vec::len);
        let is_whole = |run: &Vec<f64>| run.len() == count && run.iter().all(|v| v.is_finite());
        if count == 0 || !runs.iter().all(is_whole) {
            return Shares::default();
        }
        let mut sorted = runs.to_vec();
        sorted.iter_mut().for_each(|run| run.sort_by(f64::total_cmp));
        let steps = (count - 1).clamp(1, RANKS_MAX - 1);
        let mut chosen: Vec<usize> = (0..=steps).map(|i| (count - 1) * i / steps).collect();
        chosen.dedup();
        let rank = |at: usize| {
            let values = || sorted.iter().map(|run| run[at]);
            let mean = values().sum::<f64>() / sorted.len() as f64;
            let (least, most) = (values().reduce(f64::min), values().reduce(f64::max));
            [(at + 1) as f64, mean, least.unwrap_or(mean), most.unwrap_or(mean)]
        };
        Shares { ranks: chosen.into_iter().map(rank).collect() }
    }

    fn ends(&self) -> Option<[f64; 2]> {
        Some([self.ranks.first()?[1], self.ranks.last()?[1]])
    }
}

/// The lines of a facet that have flows at `x`.
fn found<'a>(
    facet: &'a Facet<'_>,
    shares: &'a [Shares],
    x: f64,
) -> Vec<(&'a Line<'a>, &'a Shares)> {
    let of = |line: &'a Line<'_>| {
        let spot = line.spots.iter().find(|spot| spot.x == x)?;
        let shares = shares.get(spot.index)?;
        (shares.ranks.len() > 1).then_some((line, shares))
    };
    facet.lines.iter().filter_map(of).take(PANELS_MAX).collect()
}

/// The figure of a facet at a value of the axis named `key`.
pub fn figure(
    [id, title]: [&str; 2],
    facet: &Facet<'_>,
    shares: &[Shares],
    at: (Option<&str>, f64),
) -> Option<Figure> {
    let lines = found(facet, shares, at.1);
    let all = || lines.iter().flat_map(|(_, shares)| &shares.ranks);
    let [low, high] = extent(ScaleKind::Linear, all().flat_map(|rank| [rank[2], rank[3], 1.0]))?;
    let room = 0.05 * (high - low);
    let domain = [(low - room).max(0.0), high + room];
    let flows = all().map(|rank| rank[0]).fold(1.0, f64::max);
    let rows = lines.len().div_ceil(COLUMNS);
    let mut panels = Vec::new();
    for (number, (line, own)) in lines.iter().enumerate() {
        let (row, column) = (number / COLUMNS, number % COLUMNS);
        let left = column as f64 * (WIDTH + 8.0) / COLUMNS as f64 + 46.0;
        let top = 24.0 + row as f64 * 122.0;
        let area = Area { left, right: left + 118.0, top, bottom: top + 88.0 };
        let is_lowest = number + COLUMNS >= lines.len();
        let name = if row + 1 == rows && column == 0 { "flows, least to most" } else { "" };
        let x = Axis::new(ScaleKind::Linear, [1.0, flows], Unit::Count, name).ticks(2);
        let y = Axis::new(ScaleKind::Linear, domain, Unit::Share, "").ticks(4);
        let mut panel = Panel::new(area, x, y);
        let curve = |shares: &Shares| shares.ranks.iter().map(|r| [r[0], r[1]]).collect::<Vec<_>>();
        for (_, theirs) in lines.iter().filter(|(other, _)| other.name != line.name) {
            panel.line(&curve(theirs), Mark { class: "ghost", name: "" });
        }
        panel.level(1.0, Mark { class: "guide", name: "" });
        let band: Vec<[f64; 3]> = own.ranks.iter().map(|r| [r[0], r[2], r[3]]).collect();
        panel.band(&band, Mark { class: &line.tone, name: "" });
        panel.heading(Mark { class: &line.tone, name: &line.name });
        let solid = line.tone.replace(" dashed", "");
        panel.line(&curve(own), Mark { class: &solid, name: "" });
        panels.push(panel.finish(is_lowest));
    }
    let caption = caption(&lines, at);
    Figure::new([id, title], caption, 24.0 + rows as f64 * 122.0 + 16.0, &panels)
}

fn caption(lines: &[(&Line<'_>, &Shares)], (key, x): (Option<&str>, f64)) -> String {
    let width = |shares: &Shares| shares.ends().map(|[low, high]| high - low);
    let widths = || lines.iter().filter_map(|(line, shares)| Some((line, shares, width(shares)?)));
    let least = widths().min_by(|a, b| a.2.total_cmp(&b.2));
    let most = widths().max_by(|a, b| a.2.total_cmp(&b.2));
    let place = key.map_or_else(String::new, |key| {
        format!("At {}, ", label_with_value(key, &significant(x, 6)))
    });
    let percent = |share: f64| significant(100.0 * share, 3);
    let range = |shares: &Shares| {
        shares.ends().map_or_else(String::new, |[low, high]| {
            format!("{} to {}\u{a0}%", percent(low), percent(high))
        })
    };
    let text = match (least, most) {
        (Some(least), Some(most)) if lines.len() > 1 => format!(
            "{place}the flows are most alike under {} ({} of the fair share, mean over seeds) and \
             least under {} ({}). Bands: all seeds. Grey: the others.",
            least.0.name,
            range(least.1),
            most.0.name,
            range(most.1)
        ),
        (Some(only), _) => format!("{place}flows got {} of the fair share.", range(only.1)),
        _ => String::new(),
    };
    nilometer_report::figure::capital(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_sorted_before_they_are_averaged() {
        let shares = Shares::of(&[vec![0.9, 0.7, 1.0], vec![1.2, 0.8, 0.5]]);
        let expected = [[1.0, 0.6, 0.5, 0.7], [2.0, 0.85, 0.8, 0.9], [3.0, 1.1, 1.0, 1.2]];
        for (rank, expected) in shares.ranks.iter().zip(expected) {
            for (a, b) in rank.iter().zip(expected) {
                assert!((a - b).abs() < 1e-12, "{rank:?} {expected:?}");
            }
        }
        assert_eq!(shares.ranks.len(), 3);
    }

    #[test]
    fn many_flows_are_thinned_and_odd_runs_are_refused() {
        let run: Vec<f64> = (0..5_000).map(f64::from).collect();
        let shares = Shares::of(&[run]);
        assert_eq!(shares.ranks.len(), RANKS_MAX);
        assert_eq!((shares.ranks[0][0], shares.ranks[RANKS_MAX - 1][0]), (1.0, 5_000.0));
        assert_eq!(Shares::of(&[vec![1.0], vec![1.0, 2.0]]), Shares::default());
        assert_eq!(Shares::of(&[vec![1.0, f64::NAN]]), Shares::default());
        assert_eq!(Shares::of(&[]), Shares::default());
    }
}
