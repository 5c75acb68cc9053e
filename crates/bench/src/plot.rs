//! Speed of forwarding tables against their bytes per prefix, drawn as SVG.
//!
//! Two panels, for random addresses and for those drawn from prefixes; tables of other
//! implementations are drawn in another colour.

use nilometer_report::plot::axis::{Axis, Unit};
use nilometer_report::plot::scale::{ScaleKind, from_zero, round_log};
use nilometer_report::plot::{Area, Mark, Panel};

use super::fib_times::{EngineTimes, FibTimes};

/// How drawings of ours begin, and no others.
pub const BEGINNING: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 940 420\" \
     font-family=\"sans-serif\" font-size=\"12\">\n\
     <rect width=\"940\" height=\"420\" fill=\"#ffffff\"/>\n\
     <text x=\"50\" y=\"18\">Million lookups a second on one core against bytes per prefix: ";
/// As a page's style sheet has it.
const STYLE: &str = "<style>.ours{color:#0072b2}.theirs{color:#d55e00}tspan,.name,.dot{fill:currentColor}\
     .grid{stroke:#ddd}.axis{stroke:#888;fill:none}</style>\n";
/// Where the second panel begins.
const HALF: f64 = 450.0;
const AREA: Area = Area { left: 50.0, right: HALF, top: 60.0, bottom: 370.0 };

/// The drawing, whole.
pub fn plot(times: &FibTimes) -> String {
    let ours = times.engines.iter().map(|engine| (engine, "ours"));
    let all: Vec<_> = ours.chain(times.peers.iter().map(|engine| (engine, "theirs"))).collect();
    let others = match times.peers.is_empty() {
        true => "",
        false => ", <tspan class=\"theirs\">others</tspan>",
    };
    let mut svg = format!(
        "{BEGINNING}{} prefixes of IPv{}; <tspan class=\"ours\">ours</tspan>{others}</text>\n{STYLE}",
        times.prefixes, times.family
    );
    type Rated = fn(&EngineTimes) -> f64;
    let panels: [(&str, Rated); 2] = [
        ("random addresses", |times| times.mlookups_random),
        ("addresses drawn from prefixes", |times| times.mlookups_prefix),
    ];
    let fastest = from_zero(all.iter().flat_map(|(it, _)| panels.map(|(_, rate)| rate(it))));
    let bytes = round_log(all.iter().map(|(engine, _)| engine.bytes_per_prefix));
    for (number, (title, rate)) in panels.into_iter().enumerate() {
        let x = Axis::new(ScaleKind::Log, bytes, Unit::Times, "bytes per prefix");
        let mut panel =
            Panel::new(AREA, x, Axis::new(ScaleKind::Linear, fastest, Unit::Times, title));
        for (engine, class) in &all {
            let name = format!("{} {:.0}", engine.engine, rate(engine));
            panel.dot([engine.bytes_per_prefix, rate(engine)], Mark { class, name: &name }, &name);
        }
        let left = number as f64 * HALF;
        svg += &format!("<g transform=\"translate({left})\">{}</g>\n", panel.finish(true).svg);
    }
    svg + "</svg>\n"
}
