//! The page: the paper's Figures 10, 12 and 13 for this machine, and the price of a packet.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::result::{Forwarding, Point};
use nilometer_files::document::{Output, together};
use nilometer_report::figure::Figure;
use nilometer_report::format::{NOT_MEASURED, significant};
use nilometer_report::page;
use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::scale::{ScaleKind, from_zero};
use nilometer_report::plot::svg::escape;
use nilometer_report::plot::{Area, Mark, Panel};
use nilometer_report::tables;

/// Colours of curves, in the order of their first points.
const TONES: [&str; 9] =
    ["tone1", "tone2", "tone3", "tone4", "tone5", "tone6", "tone7", "tone8", "tone9"];
/// Of a frame, what is not its IP packet: header and check sequence.
const AROUND_BYTES: u16 = 18;

/// How `forward.json` begins.
const JSON_BEGINNING: &[u8] = b"{\n  \"seed\": ";

/// Where `forward.json` and `forward.html` go.
#[derive(Debug)]
pub struct Places {
    directory: PathBuf,
    json: Output,
    page: Output,
}

impl Places {
    /// The places in a directory, which may be missing. With `force` they may replace files of an earlier
    /// run, unless that is one of those compared `against`.
    ///
    /// # Errors
    /// One line with the reason.
    pub fn guard(directory: &Path, against: &[PathBuf], force: bool) -> Result<Places> {
        let guard = |name: &str, beginning: &[u8]| {
            together::guard(directory, name.as_ref(), against, force, beginning)
        };
        let json = guard("forward.json", JSON_BEGINNING)?;
        let page = guard("forward.html", page::BEGINNING.as_bytes())?;
        Ok(Places { directory: directory.to_owned(), json, page })
    }

    /// Writes both.
    ///
    /// # Errors
    /// As those of [`together::write`].
    pub fn write(self, result: &Forwarding) -> Result<()> {
        let json = serde_json::to_string_pretty(result)?;
        together::write(&self.directory, &[(self.json, json), (self.page, page(result))])
    }
}

/// The page.
fn page(result: &Forwarding) -> String {
    let mut body = format!(
        "<header>\n<p class=\"crumb\">nilometer route bench forward · seed {}</p>\n<h1>Forwarding \
         on veths</h1>\n<p class=\"lede\">{}</p>\n{}</header>\n<main>\n",
        result.seed,
        escape(&lede(result)),
        page::warnings(&result.warnings)
    );
    for figure in [rates(result), prices(result), sizes(result, false), sizes(result, true)] {
        body.push_str(&figure.map_or_else(String::new, |figure| figure.html()));
    }
    body.push_str(&table(result));
    body.push_str("</main>\n");
    page::document("Forwarding on veths", &body)
}

fn lede(result: &Forwarding) -> String {
    format!(
        "Each point has {} to {} rounds of {} s; rates are medians, frames per CPU-second have intervals \
         of {:.0} %, and {} of {} points are told. Our router has {} routes, {} filters, distributed queueing \
         and QSDRR, and every frame passes all of it, but in the variant offloaded; linux has one route; \
         nftables has a set of filters and HTB besides. {}.",
        result.rounds,
        result.rounds_max,
        significant(result.seconds, 3),
        100.0 * result.confidence,
        result.points_told,
        result.points.len(),
        result.routes,
        result.filters,
        result.ports.join("; ")
    )
}

/// A device and its variant, as a curve is called.
fn name(point: &Point) -> String {
    match point.variant.as_str() {
        "complete" => point.dut.clone(),
        variant => format!("{} {variant}", point.dut),
    }
}

/// The names of all curves, in the order of their first points.
fn names(points: &[Point]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for point in points {
        let name = name(point);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A curve for each name, of points that are kept and have both coordinates.
fn curves(
    result: &Forwarding,
    is_kept: impl Fn(&Point) -> bool,
    at: impl Fn(&Point) -> Option<[f64; 2]>,
) -> Vec<(String, Vec<[f64; 2]>)> {
    let curve = |name_of: String| {
        let own = result.points.iter().filter(|point| name(point) == name_of && is_kept(point));
        let mut places: Vec<[f64; 2]> = own.filter_map(&at).collect();
        places.sort_by(|one, other| one[0].total_cmp(&other[0]));
        (name_of, places)
    };
    names(&result.points).into_iter().map(curve).filter(|(_, places)| !places.is_empty()).collect()
}

fn drawn(
    [id, title]: [&str; 2],
    caption: String,
    [x, y]: [(&str, Unit); 2],
    curves: &[(String, Vec<[f64; 2]>)],
) -> Option<Figure> {
    let values = |which: usize| {
        curves.iter().flat_map(move |(_, curve)| curve.iter().map(move |place| place[which]))
    };
    let x = Axis::new(ScaleKind::Linear, from_zero(values(0)), x.1, x.0).ticks(6);
    let high = from_zero(values(1));
    let y = Axis::new(ScaleKind::Linear, [0.0, high[1] * 1.1], y.1, y.0).ticks(5);
    let mut panel = Panel::new(Area::between(28.0, 254.0), x, y);
    for ((name, curve), class) in curves.iter().zip(TONES.iter().cycle()) {
        panel.line(curve, Mark { class, name });
    }
    Figure::new([id, title], caption, 296.0, &[panel.finish(true)])
}

/// Figure 10: forwarded against offered.
fn rates(result: &Forwarding) -> Option<Figure> {
    let first = result.points.first()?.frame_bytes;
    let at = |point: &Point| Some([point.offered_pps, point.forwarded_pps]);
    let caption = format!(
        "Frames of {first} bytes: forwarded against offered. Before its bottleneck a device \
         forwards what comes; beyond it, its curve is to stay flat."
    );
    let axes = [("offered, frames/s", Unit::Count), ("forwarded, frames/s", Unit::Count)];
    let curves = curves(result, |point| point.frame_bytes == first, at);
    drawn(["figure10", "Figure 10"], caption, axes, &curves)
}

/// Prices of packets, which the paper, whose machines do nothing else, does not need.
fn prices(result: &Forwarding) -> Option<Figure> {
    let first = result.points.first()?.frame_bytes;
    let at = |point: &Point| Some([point.offered_pps, point.packets_per_cpu_second?]);
    let caption = format!(
        "Frames of {first} bytes: forwarded per processor second of the device, generator and \
         sink taken away; only points whose interval is at most a tenth to either side."
    );
    let axes = [("offered, frames/s", Unit::Count), ("frames per CPU-second", Unit::Count)];
    let curves = curves(result, |point| point.frame_bytes == first, at);
    drawn(["price", "Frames per processor second"], caption, axes, &curves)
}

/// Figure 12, at the lowest rate, and Figure 13, at the highest: throughput against packet size.
fn sizes(result: &Forwarding, at_highest: bool) -> Option<Figure> {
    let rates = result.points.iter().map(|point| point.asked_pps);
    let rate = match at_highest {
        true => rates.fold(0.0, f64::max),
        false => rates.fold(f64::INFINITY, f64::min),
    };
    let at = |point: &Point| {
        // The paper's packets are IP packets; the shortest is padded to the shortest frame.
        let bytes = f64::from((point.frame_bytes - AROUND_BYTES).max(40));
        Some([bytes, point.forwarded_pps * bytes * 8.0])
    };
    let rate_said = significant(rate, 3);
    let (names, caption) = match at_highest {
        false => (
            ["figure12", "Figure 12"],
            format!("Throughput in bits of IP packets per second, {rate_said} packets/s asked."),
        ),
        true => (
            ["figure13", "Figure 13"],
            format!(
                "The same with {rate_said} packets/s asked, which is where copies tell. (The \
                 paper's pair of curves is with and without a swap of words that its hardware \
                 needs and ours does not.)"
            ),
        ),
    };
    let axes = [("IP packet, bytes", Unit::Count), ("forwarded", Unit::BitRate)];
    // Of each device the variant that goes through all lengths, its first.
    let first = |dut: &str| result.points.iter().find(|it| it.dut == dut).map(|it| &it.variant);
    let is_kept =
        |point: &Point| point.asked_pps == rate && first(&point.dut) == Some(&point.variant);
    drawn(names, caption, axes, &curves(result, is_kept, at))
}

/// A column of the tables of points: its heading, and what stands in it; as `None` what was not measured.
pub type Column = (&'static str, fn(&Point) -> Option<String>);

/// All of them.
pub const COLUMNS: [Column; 14] = [
    ("device", |point| Some(point.dut.clone())),
    ("variant", |point| Some(point.variant.clone())),
    ("bytes", |point| Some(point.frame_bytes.to_string())),
    ("asked/s", |point| whole(Some(point.asked_pps))),
    ("offered/s", |point| whole(Some(point.offered_pps))),
    ("forwarded/s", |point| whole(Some(point.forwarded_pps))),
    ("per CPU-s", |point| {
        whole(point.packets_per_cpu_second).or_else(|| Some("not told".to_owned()))
    }),
    ("from", |point| whole(point.packets_per_cpu_second_interval.map(|it| it.low))),
    ("to", |point| whole(point.packets_per_cpu_second_interval.map(|it| it.high))),
    ("rounds", |point| Some(point.rounds.to_string())),
    ("disturbed", |point| Some(point.rounds_discarded.to_string())),
    ("pipeline", |point| Some(point.paths?.pipeline.to_string())),
    ("slow path", |point| Some(point.paths?.slow_path.to_string())),
    ("shortcut", |point| Some(point.paths?.shortcut.to_string())),
];

fn whole(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{value:.0}"))
}

fn table(result: &Forwarding) -> String {
    let cell = |point: &Point, (_, of): Column| of(point).unwrap_or(NOT_MEASURED.to_owned());
    let row = |point: &Point| COLUMNS.map(|column| cell(point, column)).to_vec();
    let rows: Vec<Vec<String>> = result.points.iter().map(row).collect();
    tables::table("All points", &COLUMNS.map(|(heading, _)| heading), &rows)
}
