//! The page of several runs: what differs in how many of them, and how far the device's figures lie apart.

use nilometer_likeness::Verdict as LawVerdict;
use nilometer_stat::ConfidenceInterval;

use crate::trial::over_runs::{LawOverRuns, OverRuns, Repeats};
use nilometer_report::format::{NOT_MEASURED, count, plural, significant};
use nilometer_report::heading::{Heading, words};
use nilometer_report::likeness::word;
use nilometer_report::plot::svg::escape;
use nilometer_report::{PAGE_FILE, page, tables};

/// One self-contained HTML page.
pub fn render(all: &Repeats) -> String {
    let mut crumb = vec![
        "nilometer lab run --repeats".to_owned(),
        all.input.join(", "),
        format!("DUT {}", all.dut),
    ];
    if all.interrupted {
        crumb.push("interrupted".to_owned());
    }
    let heading = Heading {
        crumb,
        sentences: vec![words(&sentence(all))],
        lede: format!(
            "{}; figures are means over runs with their 95 % intervals.",
            plural(all.runs.len() as u64, "run")
        ),
        sections: &[["device", "Device"], ["laws", "Laws"], ["runs", "Runs"]],
        warnings: &[],
    };
    let mut body = heading.html();
    body.push_str("<main>\n");
    body.push_str(&page::section("device", "What the device did", "", &[device(all)]));
    if !all.likeness.is_empty() {
        body.push_str(&page::section("laws", "The copies against the original", "", &[laws(all)]));
    }
    body.push_str(&page::section("runs", "The runs", "Each has a page of its own.", &[runs(all)]));
    body.push_str("</main>\n");
    body.push_str(&format!("<footer>nilometer {}</footer>\n", escape(&all.version)));
    page::document(&format!("{} runs through {}", all.runs.len(), all.dut), &body)
}

/// What differs, and in how many runs; words between stars are emphasised.
pub fn sentence(all: &Repeats) -> String {
    let differing = |law: &&LawOverRuns| law.verdicts.contains(&LawVerdict::Differs);
    let runs = all.runs.len();
    let named: Vec<String> = { all.likeness.iter().filter(differing) }
        .map(|law| {
            let times =
                law.verdicts.iter().filter(|verdict| **verdict == LawVerdict::Differs).count();
            format!("{} in {times} of {runs}", law.name.replace('_', " "))
        })
        .collect();
    let verdict = |law: &&LawOverRuns| {
        law.verdicts
            .iter()
            .any(|verdict| matches!(verdict, LawVerdict::Alike | LawVerdict::Differs))
    };
    match (all.likeness.iter().filter(verdict).count(), named.is_empty()) {
        (0, _) if all.likeness.is_empty() => {
            format!("{runs} runs of a model were played through {}.", all.dut)
        }
        (0, _) => "*Too little was seen* to tell how like the original the copies are.".to_owned(),
        (laws, true) => {
            format!(
                "In none of *{laws} laws* with enough samples does any copy differ from the original."
            )
        }
        (_, false) => format!("Copies *differ from the original*: {}.", named.join(", ")),
    }
}

fn shown(figure: &OverRuns, scale: f64) -> String {
    let number = |value: f64| significant(value / scale, 3);
    match (figure.mean, figure.interval.map(ConfidenceInterval::ends)) {
        (Some(mean), Some([low, high])) => {
            // None of them is below 0, wherever the interval of a mean of few runs begins.
            format!("{} [{}, {}]", number(mean), number(low.max(0.0)), number(high))
        }
        (Some(mean), None) => number(mean),
        (None, _) => NOT_MEASURED.to_owned(),
    }
}

fn device(all: &Repeats) -> String {
    let row = |name: &str, figure: &OverRuns, scale: f64| {
        let each: Vec<String> = figure.runs.iter().map(|run| significant(run / scale, 3)).collect();
        vec![name.to_owned(), shown(figure, scale), each.join(", ")]
    };
    let rows = [
        row("median delay, µs", &all.delay_p50_ns, 1e3),
        row("99th percentile of delay, µs", &all.delay_p99_ns, 1e3),
        row("loss, %", &all.loss, 1e-2),
        row("volume of the copy / original", &all.volume_ratio, 1.0),
    ];
    tables::table("Means over runs", &["", "mean [95 % interval]", "runs"], &rows)
}

fn laws(all: &Repeats) -> String {
    let row = |law: &LawOverRuns| {
        let times =
            |wanted: LawVerdict| law.verdicts.iter().filter(|verdict| **verdict == wanted).count();
        let verdicts =
            [LawVerdict::Differs, LawVerdict::Alike, LawVerdict::TooFew, LawVerdict::NotPlayed];
        let verdicts: Vec<String> = { verdicts.into_iter().filter(|verdict| times(*verdict) > 0) }
            .map(|verdict| format!("{} × {}", times(verdict), word(verdict)))
            .collect();
        let distance =
            match (law.distance.mean, law.distance.interval.map(ConfidenceInterval::ends)) {
                // No distance is below 0, wherever the interval of a mean of few runs begins.
                (Some(mean), Some([low, high])) => {
                    let [mean, low, high] = [mean, low.max(0.0), high].map(|d| significant(d, 2));
                    format!("{mean} [{low}, {high}]")
                }
                _ => shown(&law.distance, 1.0),
            };
        vec![law.name.replace('_', " "), verdicts.join(", "), distance]
    };
    let rows: Vec<Vec<String>> = all.likeness.iter().map(row).collect();
    tables::table("Each law over all runs", &["", "verdicts", "distance"], &rows)
}

fn runs(all: &Repeats) -> String {
    let item = |one: &crate::trial::over_runs::OneRun| {
        let findings: String =
            one.findings.iter().map(|finding| format!("<br>{}", escape(finding))).collect();
        format!(
            "<li><a href=\"../{0}/{PAGE_FILE}\">{0}</a>: seed {1}, {2} packets, {3} lost{findings}</li>",
            escape(&one.directory),
            one.seed,
            count(one.packets),
            count(one.lost),
        )
    };
    format!("<ul>{}</ul>", all.runs.iter().map(item).collect::<String>())
}
