//! What a model speaks for of its input, and a warning where that is next to nothing.

use nilometer_traffic::TrafficModel;
use nilometer_traffic::model::{LeftOut, Share};

use super::table::fact;
use nilometer_report::format::{percent, plain};

/// A model of fewer of its input's bytes than this is warned about: whatever its laws say, they are those of
/// the exception.
const LITTLE: f64 = 0.1;

/// Why flows are not in the model, what to do about it, and how many there are of them.
fn reasons(out: &LeftOut) -> [(&'static str, &'static str, Share); 6] {
    [
        (
            "not TCP",
            "only TCP enters the laws (UDP is modelled by class, in `udp`); give an input with more \
             of it",
            out.not_tcp,
        ),
        (
            "no SYN seen",
            "these flows began before the input, or their exporter does not report the flags of all \
             packets; add earlier captures or exports, or an export with cumulative \
             TCP flags",
            out.no_start_marker,
        ),
        (
            "no FIN or RST seen",
            "these flows continued after the input, or their exporter ended them by timeout; add later \
             captures or exports (fragments of a flow are joined), or an \
             export with cumulative TCP flags",
            out.no_end_marker,
        ),
        (
            "only acknowledgements",
            "the other direction of these connections is not in the input; give the export of both",
            out.ack_flow,
        ),
        (
            "under 100 bytes",
            "Harpoon's model has no such small files; there is no remedy",
            out.under_100_bytes,
        ),
        (
            "smaller direction of a connection",
            "a connection of Harpoon's carries one file; without --harpoon both directions are played",
            out.smaller_direction,
        ),
    ]
}

/// One line, where a model speaks for less than a tenth of its input's bytes: the reason that left out most
/// of them, and what to do.
pub fn warning(model: &TrafficModel) -> Option<String> {
    let coverage = &model.coverage;
    let covered = coverage.octets_in_model.max(coverage.octets_in_connections);
    let share = covered as f64 / coverage.octets as f64;
    // A model by hand speaks for no input.
    if coverage.octets == 0 || share >= LITTLE {
        return None;
    }
    let reasons = reasons(&coverage.left_out);
    let (why, remedy, left) = reasons.into_iter().max_by_key(|(_, _, share)| share.octets)?;
    Some(format!(
        "the model covers {} of the input's {} flows and {} of its bytes; the most, {} flows with {} of \
         the bytes, was left out for \"{why}\": {remedy}",
        coverage.flows_in_model,
        coverage.flows,
        plain(&percent(share)),
        left.flows,
        plain(&percent(left.octets as f64 / coverage.octets as f64))
    ))
}

/// What a model speaks for, in a few lines.
pub fn shown(model: &TrafficModel) -> String {
    let coverage = &model.coverage;
    if coverage.flows == 0 {
        return fact("the model covers", "nothing: its distributions were given, not measured");
    }
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let flows = percent(coverage.flows_in_model, coverage.flows);
    let octets = percent(coverage.octets_in_model, coverage.octets);
    let all = coverage.flows;
    let spoken =
        format!("{flows:.1} % of the input's {all} flows, {octets:.1} % of its bytes, as files");
    let mut text = fact("the model covers", spoken);
    let shares = (model.unmodelled_bytes_share, model.unmodelled_flows_share);
    if let (Some(bytes), Some(flows)) = shares {
        let [flows, bytes] = [flows, bytes].map(|share| 100.0 * share);
        let left = format!(
            "{flows:.1} % of the flows, {bytes:.1} % of the bytes, including whole connections and UDP"
        );
        text += &fact("  not spoken for", left);
    }
    for (reason, _, share) in reasons(&coverage.left_out) {
        let (flows, octets) = (share.flows, percent(share.octets, coverage.octets));
        text += &fact("  left out", format!("{flows} flows, {octets:.1} % of bytes: {reason}"));
    }
    text
}
