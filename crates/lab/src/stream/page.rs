//! The page of a stream: what was sent and received, its delays beside the wire's.

use nilometer_report::format::{NOT_MEASURED, count, significant, time_ns};
use nilometer_report::heading::{Heading, words};
use nilometer_report::plot::svg::escape;
use nilometer_report::{page, tables};

use super::figures;
use super::outcome::{Outcome, StreamOutcome};
use super::trial::Seen;
use crate::trial::outcome::Delay;

/// One self-contained HTML page.
pub(super) fn render(
    outcome: &Outcome,
    (seen, wire): (&Seen, Option<&Seen>),
    command: &str,
) -> String {
    let crumb = vec![
        "nilometer stream run".to_owned(),
        outcome.pattern.clone(),
        format!("DUT {}", outcome.dut),
    ];
    let pair = &outcome.stamps.pair;
    let noise = outcome.wire.as_ref().and_then(|wire| wire.noise_ns);
    let clock = outcome.clock.map_or(String::new(), |clock| {
        let uncertainty = time_ns(clock.uncertainty_ns as f64);
        format!(" The receiver is another host, and every delay may be wrong by {uncertainty}, as far as its clock is known.")
    });
    let heading = Heading {
        crumb,
        sentences: vec![words(&sentence(outcome))],
        lede: format!(
            "Stamps: sent {}; received {}. Noise of this pair at this rate: {}.{clock}",
            pair[0],
            pair[1],
            noise.map_or(NOT_MEASURED.to_owned(), |noise| time_ns(noise as f64))
        ),
        sections: &[["delays", "Delays"], ["frames", "Frames"]],
        warnings: &outcome.why,
    };
    let mut body = heading.html();
    body.push_str("<main>\n");
    let drawn = figures::of_trial(seen, wire, &outcome.dut);
    let about = "From the stamp of a frame's departure to that of its arrival.";
    body.push_str(&page::section("delays", "Delays", about, &drawn));
    let about = format!("Made by: {command}");
    let parts = [frames(outcome), quantiles(outcome)];
    body.push_str(&page::section("frames", "Frames", &about, &parts));
    body.push_str("</main>\n");
    body.push_str(&format!("<footer>nilometer {}</footer>\n", escape(&outcome.version)));
    page::document(&format!("A stream through {}", outcome.dut), &body)
}

/// The outcome, in one sentence; words between stars are emphasised.
pub fn sentence(outcome: &Outcome) -> String {
    let packets = &outcome.packets;
    let percent = 100.0 * packets.lost as f64 / packets.entered.max(1) as f64;
    let lost = match packets.lost {
        0 => "*no loss*".to_owned(),
        lost => format!("*{} lost* ({} %)", count(lost), significant(percent, 3)),
    };
    let delay = outcome.delay_ns.map_or(String::new(), |delay| {
        format!(
            ", *{}* at the median and {} at p99",
            time_ns(delay.p50 as f64),
            time_ns(delay.p99 as f64)
        )
    });
    format!(
        "{} frames at {} a second through {}: {lost}{delay}{}.",
        count(packets.entered),
        significant(outcome.sent_pps, 4),
        outcome.dut,
        if outcome.valid { "" } else { "; the trial is *not valid*" }
    )
}

fn frames(outcome: &Outcome) -> String {
    let row = |way: &StreamOutcome| {
        let packets = &way.packets;
        let mut row = vec![way.name.replace('_', " ")];
        row.extend([way.offered_pps, way.sent_pps].map(|pps| significant(pps, 6)));
        let counts = [
            packets.entered,
            packets.left,
            packets.lost,
            packets.duplicated,
            packets.reordered,
            packets.corrupted,
            packets.originated,
        ];
        row.extend(counts.map(count));
        row
    };
    let rows: Vec<Vec<String>> = outcome.directions.iter().map(row).collect();
    let head = [
        "",
        "offered fps",
        "sent fps",
        "sent",
        "received",
        "lost",
        "duplicated",
        "reordered",
        "corrupted",
        "originated",
    ];
    tables::table("Frames by fate", &head, &rows)
}

fn bounds(name: &str, values: [i64; 4]) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(values.map(|ns| time_ns(ns as f64))).collect()
}

fn quantiles(outcome: &Outcome) -> String {
    let row = |name: &str, delay: Option<Delay>| {
        let Some(delay) = delay else { return vec![name.to_owned(), NOT_MEASURED.to_owned()] };
        let mut row = vec![name.to_owned()];
        let values = [delay.p5, delay.p50, delay.p95, delay.p99].map(|ns| ns as f64);
        row.extend(values.map(time_ns));
        row
    };
    let mut rows = vec![
        row("from sent to received", outcome.delay_ns),
        row("from due to received", outcome.delay_scheduled_ns),
    ];
    if let Some(wire) = &outcome.wire {
        rows.push(row("over the bare wire", wire.delay_ns));
    }
    if let Some(added) = &outcome.added_ns {
        let quantiles = [added.p5, added.p50, added.p95, added.p99];
        rows.push(bounds("device adds", quantiles.map(|one| one.ns)));
        rows.push(bounds("at least", quantiles.map(|one| one.low_ns)));
        rows.push(bounds("at most", quantiles.map(|one| one.high_ns)));
    }
    tables::table("Delays", &["", "p5", "p50", "p95", "p99"], &rows)
}
