//! Speed of forwarding tables against their bytes per prefix, drawn as SVG.
//!
//! Two panels, for random addresses and for those drawn from prefixes. Bytes are on a scale of powers of
//! two; tables of others are drawn in another colour. Names stand right of their points and give way
//! downwards to one another.

use std::fmt::Write as _;

use super::fib_times::{EngineTimes, FibTimes};

/// As [`BEGINNING`] has it.
const WIDTH: f64 = 940.0;
/// Of a panel: its width, and where its scale of rates begins and ends.
const PANEL: f64 = 400.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 370.0;
/// Height of a name, and how far right of its point it may meet another.
const NAME_HEIGHT: f64 = 12.0;
const NAME_WIDTH: f64 = 110.0;
const OURS: &str = "#0072b2";
const THEIRS: &str = "#d55e00";

/// How drawings of ours begin, and no others.
pub const BEGINNING: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 940 420\" \
     font-family=\"sans-serif\" font-size=\"12\">\n\
     <rect width=\"940\" height=\"420\" fill=\"#ffffff\"/>\n\
     <text x=\"50\" y=\"18\">Million lookups a second on one core against bytes per prefix: ";

/// The drawing, whole.
pub fn plot(times: &FibTimes) -> String {
    let all = || times.engines.iter().chain(&times.peers);
    let rates: [fn(&EngineTimes) -> f64; 2] = [|t| t.mlookups_random, |t| t.mlookups_prefix];
    let fastest = all().flat_map(|t| rates.map(|rate| rate(t))).fold(1.0, f64::max);
    let step =
        [10.0, 20.0, 50.0, 100.0, 200.0, 500.0].into_iter().find(|step| fastest / step < 7.0);
    let step = step.unwrap_or(1_000.0);
    let scale = Scale {
        octaves: octaves(all().map(|times| times.bytes_per_prefix)),
        top: (fastest / step).ceil() * step,
        step,
    };
    let mut svg = format!(
        "{BEGINNING}{} \
         prefixes of IPv{}; <tspan fill=\"{OURS}\">ours</tspan>",
        times.prefixes, times.family
    );
    if !times.peers.is_empty() {
        write!(svg, ", <tspan fill=\"{THEIRS}\">others</tspan>").expect("memory can be written");
    }
    svg += "</text>\n";
    let titles = ["random addresses", "addresses drawn from prefixes"];
    for (number, (rate, title)) in rates.into_iter().zip(titles).enumerate() {
        let left = 50.0 + number as f64 * (WIDTH - 40.0) / 2.0;
        scale.frame(&mut svg, left, title);
        scale.points(&mut svg, left, times, rate);
    }
    svg + "</svg>\n"
}

/// Powers of two around all values.
fn octaves(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs: Vec<f64> = values.map(|value| value.max(1.0).log2()).collect();
    let first = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
    (first, logs.iter().copied().fold(first + 1.0, f64::max).ceil())
}

struct Scale {
    /// Powers of two of the bytes at both ends.
    octaves: (f64, f64),
    /// Million lookups a second at the upper end, and between two lines.
    top: f64,
    step: f64,
}

impl Scale {
    fn x(&self, left: f64, bytes: f64) -> f64 {
        let (first, last) = self.octaves;
        left + (bytes.max(1.0).log2() - first) / (last - first) * (PANEL - 60.0)
    }

    fn y(&self, rate: f64) -> f64 {
        BOTTOM - rate / self.top * (BOTTOM - TOP)
    }

    fn frame(&self, svg: &mut String, left: f64, title: &str) {
        let mut line = |text: String| writeln!(svg, "{text}").expect("memory can be written");
        line(format!("<text x=\"{left}\" y=\"38\">{title}</text>"));
        for number in 0..=(self.top / self.step).round() as u32 {
            let rate = f64::from(number) * self.step;
            let y = self.y(rate);
            line(format!(
                "<path d=\"M{left} {y:.1}h{PANEL}\" stroke=\"#ddd\"/><text x=\"{:.1}\" \
                 y=\"{:.1}\" text-anchor=\"end\">{rate}</text>",
                left - 6.0,
                y + 4.0
            ));
        }
        for octave in self.octaves.0 as i32..=self.octaves.1 as i32 {
            let bytes = 2f64.powi(octave);
            let x = self.x(left, bytes);
            line(format!(
                "<path d=\"M{x:.1} {BOTTOM}v5\" stroke=\"#888\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{bytes}</text>",
                BOTTOM + 18.0
            ));
        }
        let (x, y) = (left + PANEL, BOTTOM + 36.0);
        line(format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">bytes per prefix</text>"));
    }

    fn points(&self, svg: &mut String, left: f64, times: &FibTimes, rate: fn(&EngineTimes) -> f64) {
        let ours = times.engines.iter().map(|engine| (engine, OURS));
        let mut all: Vec<_> =
            ours.chain(times.peers.iter().map(|engine| (engine, THEIRS))).collect();
        all.sort_by(|(a, _), (b, _)| rate(b).total_cmp(&rate(a)));
        let mut names: Vec<(f64, f64)> = Vec::new();
        for (engine, colour) in all {
            let (x, y) = (self.x(left, engine.bytes_per_prefix), self.y(rate(engine)));
            let meets = |(other, _): &&(f64, f64)| (other - x).abs() < NAME_WIDTH;
            let lowest = names.iter().filter(meets).map(|(_, y)| *y).fold(0.0, f64::max);
            let name = (y + 4.0).max(lowest + NAME_HEIGHT);
            names.push((x, name));
            writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/><text x=\"{:.1}\" \
                 y=\"{name:.1}\" font-size=\"10\" fill=\"{colour}\">{} {:.0}</text>",
                x + 6.0,
                engine.engine,
                rate(engine)
            )
            .expect("memory can be written");
        }
    }
}
