//! The page of a sweep: two sentences, the figures of each facet, the paper's claims, every number.

use super::arrangement::{
    Arrangement, FACETS_MAX, Facet, Swept, arrange, label, label_with_value, number,
};
use super::metric::{METRICS, Measure, Metric};
use super::shares::{self, Shares};
use super::{course, files, footer, repeat, statements};
use crate::simulate::claims::{Reproduction, section7};
use crate::simulate::result::{PointResult, SimulationResult, shown_value};
use nilometer_report::figure::Figure;
use nilometer_report::format::{NOT_MEASURED, count, plural, si, significant};
use nilometer_report::heading::{Heading, words};
use nilometer_report::plot::svg::escape;
use nilometer_report::{page, tables};

/// Most rows of the table of points.
const ROWS_MAX: usize = 600;

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct SweepPage<'a> {
    /// The figures.
    pub result: &'a SimulationResult,
    /// What was swept.
    pub axes: &'a [Swept],
    /// What each flow got at each point; empty where none is measured.
    pub shares: &'a [Shares],
    /// The value of the numeric axis at which flows are shown, if it is among its values.
    pub reference: Option<f64>,
    /// The scenario's text.
    pub scenario: &'a str,
}

/// One self-contained HTML page.
pub fn render(sweep: &SweepPage<'_>) -> String {
    let result = sweep.result;
    let arrangement = arrange(&result.points, sweep.axes);
    let mut sections = vec![["figures", "Figures"]];
    if result.points.iter().any(|point| !point.datagram_delays.is_empty()) {
        sections.push(["course", "Delay over time"]);
    }
    if !result.claims.is_empty() {
        sections.push(["claims", "What the paper says"]);
    }
    sections.push(["details", "Details"]);
    let mut crumb = vec![
        "nilometer simulate".to_owned(),
        result.scenario.clone(),
        format!("seed {}", result.seed),
    ];
    if result.interrupted {
        crumb.push("interrupted".to_owned());
    }
    let heading = Heading {
        crumb,
        sentences: sentences(sweep, &arrangement),
        lede: lede(result),
        sections: &sections,
        warnings: &result.warnings,
    };
    let mut body = heading.html();
    body.push_str("<main>\n");
    body.push_str(&figures(sweep, &arrangement));
    body.push_str(&courses(sweep));
    body.push_str(&claims(result));
    body.push_str(&details(sweep));
    body.push_str("</main>\n");
    body.push_str(&footer(&result.tool, &result.digest));
    page::document(&format!("{} simulated", result.scenario), &body)
}

fn lede(result: &SimulationResult) -> String {
    let about = match result.about.as_str() {
        "" => String::new(),
        about => format!("{about}. "),
    };
    format!(
        "{about}{} at {} of {}\u{a0}s each, {} packet-hops in {}\u{a0}CPU-seconds.",
        plural(result.runs as u64, "run"),
        plural(result.points.len() as u64, "point"),
        significant(result.duration_s, 4),
        si(result.packet_hops as f64, ""),
        significant(result.cpu_seconds, 3)
    )
}

/// A summary in two sentences: which line has the most and the least; then how alike they are, or
/// the paper's claim.
fn sentences(
    sweep: &SweepPage<'_>,
    arrangement: &Arrangement<'_>,
) -> Vec<Vec<nilometer_report::verdict::Span>> {
    let of_paper = label_with_value("rtt_ms", &section7::RTT_MS.to_string());
    let is_judged = |facet: &&Facet<'_>| facet.name == of_paper;
    let facets = &arrangement.facets;
    let Some(facet) = facets.iter().find(is_judged).or(facets.first()) else {
        return vec![words("*Nothing was measured*: the first run had not ended.")];
    };
    let place = if facet.name.is_empty() { String::new() } else { format!("At {}, ", facet.name) };
    let first = first_sentence(facet, &place, arrangement.x.as_deref());
    let claims = &sweep.result.claims;
    let measured = claims.iter().filter(|c| c.verdict != Reproduction::NotMeasured).count();
    let second = match (measured, sweep.result.seeds) {
        (0, 1) => "One seed was run, so that *no figure has an interval*; --seeds 10 gives \
                   them."
            .to_owned(),
        (0, seeds) => format!(
            "Every figure is a mean over {seeds} seeds, with its *95 % confidence interval*."
        ),
        _ => format!("The paper’s {} statements: {}.", claims.len(), statements::tally(claims)),
    };
    vec![words(&first), words(&second)]
}

fn first_sentence(facet: &Facet<'_>, place: &str, x: Option<&str>) -> String {
    let over = match x {
        Some(key) => format!(", averaged over all values of {}", label(key).0),
        None => String::new(),
    };
    let [mean, deviation] = [&METRICS[0], &METRICS[1]];
    // A run with a single flow has no deviation.
    let spread = deviation.extremes(facet).filter(|[_, most]| most.1 > 0.0);
    let text = match mean.extremes(facet) {
        Some([least, most]) if facet.lines.len() > 1 => {
            let alike = spread.map_or_else(String::new, |[alike, unlike]| {
                format!(
                    "; they are most alike under *{}* (standard deviation {}) and least under \
                     *{}* ({})",
                    alike.0,
                    deviation.words(alike.1),
                    unlike.0,
                    deviation.words(unlike.1)
                )
            });
            format!(
                "flows get most of their fair share under *{}* ({} of it) and least under *{}* \
                 ({}){alike}",
                most.0,
                mean.words(most.1),
                least.0,
                mean.words(least.1)
            )
        }
        Some([_, only]) => {
            let alike = spread.map_or_else(String::new, |[_, spread]| {
                format!(", with a standard deviation of *{}* of it", deviation.words(spread.1))
            });
            format!("flows get *{}* of their fair share{alike}", mean.words(only.1))
        }
        None => {
            let shown = [&METRICS[4], &METRICS[6]].into_iter().filter_map(|metric| {
                let [least, most] = metric.extremes(facet)?;
                let (low, high) = (metric.words(least.1), metric.words(most.1));
                let range = if low == high { low } else { format!("{low} to {high}") };
                Some(format!("{}: *{range}*", metric.title.to_lowercase()))
            });
            shown.collect::<Vec<String>>().join("; ")
        }
    };
    nilometer_report::figure::capital(&format!("{place}{text}{over}."))
}

fn figures(sweep: &SweepPage<'_>, arrangement: &Arrangement<'_>) -> String {
    let shown = &arrangement.facets[..arrangement.facets.len().min(FACETS_MAX)];
    let x = arrangement.x.as_deref();
    let mut out = String::new();
    for (number, facet) in shown.iter().enumerate() {
        let mut parts: Vec<String> = Vec::new();
        let flows = flows(sweep, facet, (number, shown.len()), x);
        parts.extend(flows.map(|figure| figure.html()));
        for metric in METRICS.iter().filter(|metric| is_drawn(metric, facet)) {
            let drawn = metric.figure(x, shown, number);
            parts.extend(drawn.map(|figure| titled(figure, metric.of_paper, sweep).html()));
        }
        if parts.is_empty() {
            parts.push(format!("<p class=\"note\">Nothing to draw: {NOT_MEASURED}.</p>"));
        }
        let id = if number == 0 { "figures".to_owned() } else { format!("figures-{number}") };
        let title = if facet.name.is_empty() { "Figures" } else { &facet.name };
        let bands = match sweep.result.seeds {
            1 => "One seed: nothing here has an interval.".to_owned(),
            seeds => {
                format!("Means over {seeds} seeds; shaded: 95 % confidence intervals of the means.")
            }
        };
        out.push_str(&page::section(&id, &escape(title), &bands, &parts));
    }
    let left = arrangement.facets.len() - shown.len();
    if left > 0 {
        out.push_str(&format!(
            "<p class=\"note\">{left} more combinations are in the table and in result.json.</p>\n"
        ));
    }
    out
}

/// Utilisation adds little where goodput is known.
fn is_drawn(metric: &Metric, facet: &Facet<'_>) -> bool {
    metric.id != "utilisation" || METRICS[0].extremes(facet).is_none()
}

/// A figure that names the one of the paper that it draws again.
fn titled(figure: Figure, of_paper: &str, sweep: &SweepPage<'_>) -> Figure {
    match of_paper.is_empty() || sweep.result.claims.is_empty() {
        true => figure,
        false => Figure { title: format!("{} ({of_paper} of the paper)", figure.title), ..figure },
    }
}

fn flows(
    sweep: &SweepPage<'_>,
    facet: &Facet<'_>,
    (number, facets): (usize, usize),
    x: Option<&str>,
) -> Option<Figure> {
    let swept = |at: &f64| facet.lines.iter().flat_map(|l| &l.spots).any(|spot| spot.x == *at);
    let first = facet.lines.first()?.spots.first()?.x;
    let at = sweep.reference.filter(swept).unwrap_or(first);
    let id = if facets == 1 { "flows".to_owned() } else { format!("flows-{number}") };
    let part = if facet.name.is_empty() { String::new() } else { format!(", {}", facet.name) };
    let figure =
        shares::figure([&id, &format!("What each flow gets{part}")], facet, sweep.shares, (x, at))?;
    Some(titled(figure, "Figure 15", sweep))
}

/// Delays over time, where the scenario requests them.
fn courses(sweep: &SweepPage<'_>) -> String {
    let name = |point: &PointResult| named(sweep, point);
    let (drawn, left) = course::figures(&sweep.result.points, &name);
    if drawn.is_empty() {
        return String::new();
    }
    let parts: Vec<String> = drawn.iter().map(Figure::html).collect();
    let caption = "Percentiles of the delay of datagrams by when they were sent, over all seeds.";
    let mut out = page::section("course", "Delay over time", caption, &parts);
    if left > 0 {
        out.push_str(&format!("<p class=\"note\">{left} more courses are in result.json.</p>\n"));
    }
    out
}

/// What distinguishes a point from the others.
fn named(sweep: &SweepPage<'_>, point: &PointResult) -> String {
    let value = |(key, values): &&Swept| match values.iter().all(|v| number(v).is_some()) {
        true => label_with_value(key, &shown_value(&point.parameters, key)),
        false => super::arrangement::called(&shown_value(&point.parameters, key)),
    };
    let swept = sweep.axes.iter().filter(|(_, values)| values.len() > 1);
    let parts: Vec<String> = swept.map(|axis| value(&axis)).collect();
    if parts.is_empty() { "the only point".to_owned() } else { parts.join(", ") }
}

fn claims(result: &SimulationResult) -> String {
    if result.claims.is_empty() {
        return String::new();
    }
    format!(
        "<section id=\"claims\"><h2>What the paper says</h2><p>Section 7.3 of the DER paper, \
         sentence by sentence, at a round-trip time of {}\u{a0}ms: {}. Significant means that 95 % \
         confidence intervals do not overlap.</p>\n{}</section>\n",
        section7::RTT_MS,
        statements::tally(&result.claims).replace('*', ""),
        statements::table(&result.claims)
    )
}

fn details(sweep: &SweepPage<'_>) -> String {
    let mut out = String::from(
        "<section id=\"details\"><h2>Details</h2><p>Every number, and how to have it all \
         again.</p>\n",
    );
    out.push_str(&page::folded("Every number", false, &numbers(sweep)));
    out.push_str(&repeat(sweep.scenario));
    out.push_str(&files(&[
        ["result.json", "every figure of every point and seed"],
        ["flows.parquet", "every flow of every run"],
        ["scenario.toml", "what was run"],
    ]));
    out.push_str("</section>\n");
    out
}

fn numbers(sweep: &SweepPage<'_>) -> String {
    let points = &sweep.result.points;
    let has = |metric: &&Metric| points.iter().any(|point| (metric.of)(point).is_some());
    let metrics: Vec<&Metric> = METRICS.iter().filter(has).collect();
    let cell = |metric: &Metric, measure: Option<Measure>| match measure {
        None => NOT_MEASURED.to_owned(),
        Some(Measure { mean, ends }) if ends[0] == ends[1] => metric.words(mean),
        Some(Measure { mean, ends }) => {
            format!("{} ± {}", metric.words(mean), metric.words((ends[1] - ends[0]) / 2.0))
        }
    };
    let row = |point: &PointResult| {
        let cells = metrics.iter().map(|metric| cell(metric, (metric.of)(point)));
        [named(sweep, point), count(point.runs as u64)].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = points.iter().take(ROWS_MAX).map(row).collect();
    let titles = metrics.iter().map(|metric| metric.axis);
    let head: Vec<&str> = ["", "runs"].into_iter().chain(titles).collect();
    let mut out = tables::table("Points", &head, &rows);
    if points.len() > ROWS_MAX {
        out.push_str(&format!(
            "<p class=\"note\">The first {ROWS_MAX} of {} points; all are in result.json.</p>\n",
            count(points.len() as u64)
        ));
    }
    out
}
