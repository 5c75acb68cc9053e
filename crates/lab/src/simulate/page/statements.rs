//! A paper's sentences beside the measurements: one row for each sentence, with its verdict.

use super::arrangement::called;
use crate::simulate::claims::{Cited, Claim, Quantity, Reproduction};
use nilometer_report::format::significant;
use nilometer_report::plot::svg::escape;

/// The number of sentences with each verdict, in words: `*12 reproduced*, 3 reversed`.
pub fn tally(claims: &[Claim]) -> String {
    let all = [
        Reproduction::Reproduced,
        Reproduction::NotReproduced,
        Reproduction::Reversed,
        Reproduction::NotMeasured,
    ];
    let count =
        |verdict: Reproduction| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let parts: Vec<String> = all
        .into_iter()
        .map(|verdict| (verdict, count(verdict)))
        .filter(|(verdict, count)| *verdict == Reproduction::Reproduced || *count > 0)
        .map(|(verdict, count)| match verdict {
            Reproduction::Reproduced => format!("*{count} {}*", verdict.name()),
            _ => format!("{count} {}", verdict.name()),
        })
        .collect();
    parts.join(", ")
}

/// The table.
pub fn table(claims: &[Claim]) -> String {
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"What the paper says\">\
         <table class=\"claims\"><thead><tr><th scope=\"col\">The paper’s sentence</th>\
         <th scope=\"col\">its figure</th><th scope=\"col\">here</th>\
         <th scope=\"col\">measured</th><th scope=\"col\">decided by</th></tr></thead><tbody>",
    );
    for claim in claims {
        let class = match claim.verdict {
            Reproduction::Reproduced => "good",
            Reproduction::NotMeasured => "",
            Reproduction::NotReproduced | Reproduction::Reversed => "bad",
        };
        out.push_str(&format!(
            "<tr id=\"claim-{}\"><th scope=\"row\">{}</th><td>{}</td>\
             <td class=\"verdict {class}\">{}</td><td>{}</td><td>{}</td></tr>",
            claim.id,
            escape(claim.sentence),
            escape(claim.paper),
            claim.verdict.name(),
            escape(&figures(&claim.figures)),
            escape(claim.rule)
        ));
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// Figures in words, those of one quantity and discipline together:
/// `TDRR 96.5 ± 0.2 at 100, 98.2 ± 0.1 at 200`.
fn figures(cited: &[Cited]) -> String {
    let mut order: Vec<(&str, Quantity)> = Vec::new();
    for one in cited {
        if !order.contains(&(one.discipline, one.quantity)) {
            order.push((one.discipline, one.quantity));
        }
    }
    let group = |(discipline, quantity): &(&str, Quantity)| {
        let own = cited.iter().filter(|c| c.discipline == *discipline && c.quantity == *quantity);
        let each: Vec<String> = own.map(figure_text).collect();
        format!("{} {}", called(discipline), each.join(", "))
    };
    order.iter().map(group).collect::<Vec<_>>().join("; ")
}

fn figure_text(cited: &Cited) -> String {
    let percent = |value: f64, scale: f64, decimals: usize| format!("{:.decimals$}", value * scale);
    let (scale, decimals, unit) = match cited.quantity {
        Quantity::FairSharePercent => (1.0, 1, "\u{a0}%"),
        Quantity::StddevOverFairShare => (100.0, 2, "\u{a0}%"),
        Quantity::VarianceRatio => {
            let value = significant(cited.value, 2);
            return format!("{value}\u{a0}× the variance");
        }
    };
    let half = cited.half_width.map_or_else(String::new, |half| {
        format!("\u{a0}±\u{a0}{}", percent(half, scale, decimals))
    });
    let place = cited.buffer_packets.map_or_else(|| " overall".to_owned(), |b| format!(" at {b}"));
    format!("{}{half}{unit}{place}", percent(cited.value, scale, decimals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_their_intervals() {
        let one = |discipline, buffer_packets, value, half_width| Cited {
            discipline,
            buffer_packets,
            quantity: Quantity::StddevOverFairShare,
            value,
            half_width,
        };
        let cited = [
            one("red", Some(100), 0.1, Some(0.002)),
            one("tail_drop", None, 0.123, None),
            one("red", Some(200), 0.12, None),
        ];
        assert_eq!(
            figures(&cited).replace('\u{a0}', " "),
            "RED 10.00 ± 0.20 % at 100, 12.00 % at 200; tail drop 12.30 % overall"
        );
    }
}
