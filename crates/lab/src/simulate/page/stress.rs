//! The page of the stress test: stages against the paper's, Figures 18 to 21, how low S can go.

use nilometer_sim::speedup::SpeedupRow;
use nilometer_sim::stress::{StressPlan, StressRun};

use super::lowest::{Loads, lowest, missed, variants, violations};
use super::stages::{backlogs, equations, load, minimum_rates, rates};
use super::{files, footer, repeat};
use crate::simulate::stress::{StressPoint, StressReport};
use nilometer_report::figure::Figure;
use nilometer_report::format::{bytes, count, significant};
use nilometer_report::heading::{Heading, words};
use nilometer_report::{page, tables};

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct StressPage<'a> {
    /// What is common to all points.
    pub report: &'a StressReport,
    /// All points; the figures are those of the first.
    pub points: &'a [StressPoint],
    /// The first point's plan.
    pub plan: &'a StressPlan,
    /// The run under each set of equations.
    pub runs: &'a [StressRun],
    /// Results at many speed-ups, and under hostile loads.
    pub speedups: &'a [SpeedupRow],
    /// The scenario's text.
    pub scenario: &'a str,
}

/// The periods at which stages end when backlogs are fluids and equations 1 to 4 rule: in each stage
/// `S·L/K` of the old backlog leaves and `L - S·L/K` of the new one comes in.
pub fn ideal(plan: &StressPlan) -> Vec<f64> {
    let left = (1.0 - plan.speedup / plan.sources as f64).max(0.0);
    let mut ends = Vec::new();
    let (mut end, mut lasts) = (0.0, f64::from(plan.t1_periods));
    for _ in 1..plan.stages {
        end += lasts;
        lasts *= left;
        ends.push(end);
    }
    ends
}

/// One self-contained HTML page.
pub fn render(stress: &StressPage<'_>) -> String {
    let StressPage { report, plan, .. } = stress;
    let mut warnings: Vec<String> = Vec::new();
    if stress.points.len() > 1 {
        warnings.push(format!(
            "The figures are those of the first of {} points. The others are in the table.",
            stress.points.len()
        ));
    }
    let heading = Heading {
        crumb: vec!["nilometer simulate".to_owned(), report.scenario.clone()],
        sentences: vec![words(&first(stress)), words(&second(stress))],
        lede: format!(
            "{}. {} ports, S = {}, L = {} Mb/s, {} sources, {} stages, B_min = {} bytes.",
            report.about,
            plan.ports,
            significant(plan.speedup, 3),
            significant(plan.link.bits_per_second() as f64 / 1e6, 4),
            plan.sources,
            plan.stages,
            plan.minimum_backlog_bytes
        ),
        sections: &[
            ["stages", "Stages"],
            ["figures", "Figures"],
            ["speedup", "How low can S go?"],
            ["details", "Details"],
        ],
        warnings: &warnings,
    };
    let mut body = heading.html();
    body.push_str("<main>\n");
    body.push_str(&stages(stress));
    body.push_str(&figures(stress));
    body.push_str(&speedup(stress));
    body.push_str(
        "<section id=\"details\"><h2>Details</h2><p>Every number, and how to have it all \
                   again.</p>\n",
    );
    let numbers = outcomes("All equations", stress.runs);
    body.push_str(&page::folded("Every number", true, &numbers));
    body.push_str(&repeat(stress.scenario));
    body.push_str(&files(&[
        ["result.json", "the figures of every point"],
        ["series.json", "backlogs and rates in every period, under equations 1–4"],
        ["speedup.json", "every speed-up, set of equations and load"],
        ["scenario.toml", "what was run"],
    ]));
    body.push_str("</section>\n</main>\n");
    body.push_str(&footer(&report.tool, &report.digest));
    page::document(&format!("{} simulated", report.scenario), &body)
}

fn listed(ends: &[u64]) -> String {
    match ends {
        [] => "nowhere".to_owned(),
        ends => ends.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn first(stress: &StressPage<'_>) -> String {
    let Some(run) = stress.runs.first() else { return "*Nothing was run*.".to_owned() };
    let ideal: Vec<u64> = ideal(stress.plan).iter().map(|end| end.round() as u64).collect();
    let as_expected = match run.stages == ideal {
        true => "as an ideal fluid’s would".to_owned(),
        false => format!("an ideal fluid’s at {}", listed(&ideal)),
    };
    let missed = run.outcome.missed;
    let kept = match missed.violations {
        0 => "*no output idled*".to_owned(),
        some => format!("*outputs idled {} times*", count(some)),
    };
    format!(
        "Under {} the stages end at *{}* periods, {as_expected}; in {} periods with enough work \
         announced {kept}.",
        equations(run.name),
        listed(&run.stages),
        count(missed.promised_periods)
    )
}

fn second(stress: &StressPage<'_>) -> String {
    let mut kept = Vec::new();
    let mut never = Vec::new();
    for variant in variants(stress.speedups) {
        let name = equations(variant);
        match lowest(stress.speedups, variant, Loads::Stress) {
            Some(speedup) => kept.push(format!("*{}* with {name}", significant(speedup, 3))),
            None => never.push(format!("at no speed-up tried with {name}")),
        }
    }
    if kept.is_empty() && never.is_empty() {
        return "How low the speed-up can go was *not measured*.".to_owned();
    }
    if !kept.is_empty() {
        kept[0] = format!("from a speed-up of {}", kept[0]);
    }
    kept.extend(never);
    format!("How low can it go? Under this load every promise is kept {}.", kept.join(", "))
}

fn stages(stress: &StressPage<'_>) -> String {
    let ideal_ends: Vec<String> =
        ideal(stress.plan).iter().map(|end| significant(*end, 5)).collect();
    let mut rows = vec![vec!["ideal fluid".to_owned()]];
    rows[0].extend(ideal_ends);
    let stage_count = stress.plan.stages - 1;
    let cells = |ends: &[u64]| {
        let cell = |number: usize| ends.get(number).map_or("–".to_owned(), u64::to_string);
        (0..stage_count).map(cell).collect::<Vec<String>>()
    };
    for run in stress.runs {
        let mut row = vec![equations(run.name).to_owned()];
        row.extend(cells(&run.stages));
        rows.push(row);
    }
    let names: Vec<String> = (1..=stage_count).map(|stage| format!("T{stage}")).collect();
    let head: Vec<&str> = [""].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut left = tables::table("Periods at which stages end", &head, &rows);
    if stress.points.len() > 1 {
        left.push_str(&others(stress, &head));
    }
    let about = "The paper expects 400, 600, 700 and 750 periods for T1 = 400. A queue in which \
                 nothing waits takes rate from the others under equations 5–6, and stages last \
                 longer.";
    let mut parts = vec![format!("<div>{left}</div>\n")];
    parts.extend(load(stress.plan, stress.runs).map(|figure| figure.html()));
    page::section("stages", "Stages", about, &parts)
}

/// Every other point's stages.
fn others(stress: &StressPage<'_>, head: &[&str]) -> String {
    let row = |(number, point): (usize, &StressPoint)| {
        let ends = point.stages.iter().map(u64::to_string);
        let name = super::arrangement::label_with_value(
            "t1_periods",
            &crate::simulate::result::shown_value(&point.parameters, "t1_periods"),
        );
        let speedup = crate::simulate::result::shown_value(&point.parameters, "S");
        [format!("point {}: S {speedup}, {name}", number + 1)].into_iter().chain(ends).collect()
    };
    let rows: Vec<Vec<String>> = stress.points.iter().enumerate().map(row).collect();
    tables::table("All points, equations 1–4", head, &rows)
}

/// The outcomes of `runs`, a column for each.
fn outcomes(caption: &str, runs: &[StressRun]) -> String {
    type Cell = fn(&StressRun) -> String;
    let kinds: [(&str, Cell); 8] = [
        ("waits at output 1 at T1", |run| bytes(run.output_backlog_bytes_at_t1 as f64)),
        ("waits at input 1 for it", |run| bytes(run.input_backlog_bytes_at_t1 as f64)),
        ("granted to an idle queue at T1", |run| mbps(run.idle_voq_mbps)),
        ("granted to the last output", |run| mbps(run.last_stage_mbps)),
        ("most that an input owes", |run| mbps(run.outcome.minimum_rates_most_mbps)),
        ("idle violations", |run| count(run.outcome.missed.violations)),
        ("missed before the first announcement", |run| bytes(run.outcome.missed.first_bytes)),
        ("missed in all", |run| bytes(run.outcome.missed.bytes())),
    ];
    let row = |(name, cell): &(&str, Cell)| {
        [(*name).to_owned()].into_iter().chain(runs.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<String>> = kinds.iter().map(row).collect();
    let names = runs.iter().map(|run| equations(run.name));
    let head: Vec<&str> = [""].into_iter().chain(names).collect();
    tables::table(caption, &head, &rows)
}

fn mbps(rate: f64) -> String {
    format!("{}\u{a0}Mb/s", significant(rate, 4))
}

/// A section for each set of equations.
fn figures(stress: &StressPage<'_>) -> String {
    type Draw = fn(&StressPlan, &[StressRun], usize) -> Option<Figure>;
    let draws: [Draw; 3] = [backlogs, rates, minimum_rates];
    let mut out = String::new();
    for (number, run) in stress.runs.iter().enumerate() {
        let drawn = draws.iter().filter_map(|draw| draw(stress.plan, stress.runs, number));
        let mut parts: Vec<String> = drawn.map(|figure| figure.html()).collect();
        let own = outcomes("In numbers", std::slice::from_ref(run));
        parts.push(format!("<div>{own}</div>\n"));
        let about = match run.name {
            "original" => {
                "Rates in proportion to what waits: nothing is reserved for what has not yet been \
                 announced."
            }
            "reserved" => {
                "The variant that the paper draws: a little is reserved for queues in which nothing \
                 waits."
            }
            _ => {
                "As equations 5–6, and what a row leaves over is given out again under the ceilings: \
                 the paper’s “about 15 Mb/s” for idle queues."
            }
        };
        let id = if number == 0 { "figures".to_owned() } else { format!("figures-{number}") };
        let title = nilometer_report::figure::capital(equations(run.name));
        out.push_str(&page::section(&id, &title, about, &parts));
    }
    out
}

fn speedup(stress: &StressPage<'_>) -> String {
    let drawn = [Loads::Stress, Loads::Hostile]
        .into_iter()
        .flat_map(|loads| [violations(stress.speedups, loads), missed(stress.speedups, loads)]);
    let mut parts: Vec<String> = drawn.flatten().map(|figure| figure.html()).collect();
    if parts.is_empty() {
        parts.push("<p class=\"note\">Not measured.</p>".to_owned());
    }
    let hostile = stress.speedups.iter().map(|row| row.load).max().unwrap_or(0);
    let about = format!(
        "The question that the paper leaves open. An output is promised a period when as much waits \
         for it as its link sends in one; the promise is broken when it idles longer than a packet \
         takes. Hostile: {hostile} random loads of gangs and loners that attack the output with the \
         least backlog, and of permutations. Speed-ups are tried in steps of a tenth."
    );
    page::section("speedup", "How low can S go?", &about, &parts)
}
