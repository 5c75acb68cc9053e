//! A model in the units that a person reads: kilobytes, milliseconds and minutes, rates a second.

use nilometer_stat::Empirical;
use nilometer_traffic::TrafficModel;
use nilometer_traffic::burstiness::HurstEstimate;
use nilometer_traffic::connections::ConnectionLaw;
use nilometer_traffic::lengths::Method;
use nilometer_traffic::model::{Identification, Interval, LoadDriver};
use nilometer_traffic::round_trips::Source;

use super::table::fact;
use super::{coverage, side_by_side};
use nilometer_files::terminal;
use nilometer_report::format::{bytes, percent, plain, si, significant};

const MINUTE_S: f64 = 60.0;
const HOUR_S: f64 = 3_600.0;
const DAY_S: f64 = 86_400.0;

/// The model as a person would want to hear it.
pub(super) fn of(model: &TrafficModel) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&fact(name, value));
    let kind = if model.origin.synthetic { "synthetic" } else { "measured" };
    // A file's own words are shown as one line, whatever is in them.
    line("origin", format!("{} ({kind})", terminal::plain(&model.origin.description)));
    let generation = &model.generation;
    line(
        "original",
        format!(
            "{} in {} intervals; played in {}",
            duration(model.original_s()),
            model.intervals.len(),
            duration(model.duration_s())
        ),
    );
    if let Some(lengths) = lengths(model) {
        line("TCP flows", lengths);
    }
    line("flows", format!("{} of {} payload", model.flows(), size(model.bytes() as f64)));
    line("file size", quantiles(&model.file_size, size));
    line(
        "inter-connection",
        format!(
            "{}, bound {}",
            quantiles(&model.inter_connection, duration),
            duration(generation.inter_connection_bound_s)
        ),
    );
    if let Some(gaps) = &model.sampled_gaps {
        let [low, high] = gaps.median_interval_s.ends().map(duration);
        let sure = match gaps.identification {
            Identification::Identified => "",
            Identification::NotIdentified => "not identified: ",
        };
        line(
            "  of sampled records",
            format!("{sure}median {low} to {high}, 95 %, {} seen", gaps.lags),
        );
    }
    for (name, ranks) in [("sources", &model.sources), ("destinations", &model.destinations)] {
        let top = ranks.shares(usize::MAX).first().copied().unwrap_or(0.0);
        let count = ranks.counts.len();
        line(name, format!("{count} addresses, the first has {}", plain(&percent(top))));
    }
    if let Some(law) = &model.connection_law {
        line("connections", connections(law));
    }
    if let Some(trips) = &model.round_trips {
        let how = match trips.source {
            Source::Handshakes => "by openings",
            Source::TimeStamps => "by time stamps",
            Source::FlowStarts => "at least, by the starts of flows",
        };
        line("round trips", format!("{}, {how}", quantiles(&trips.law, duration)));
    }
    for udp in &model.udp {
        line(
            &format!("UDP {}", udp.class.name()),
            format!(
                "{} conversations, {} packets of {}, {} answered",
                udp.conversations,
                udp.packets,
                size(udp.carried.octets as f64),
                plain(&percent(udp.answered_share))
            ),
        );
    }
    line("IPv6", format!("{} of flows", plain(&percent(generation.ipv6_share))));
    let (bytes, packets) = hurst(model);
    line("Hurst of bytes", bytes);
    line("Hurst of packets", packets);
    if generation.driver == LoadDriver::Sessions {
        line("driven by", "its active sessions".to_owned());
    }
    for one in &model.intervals {
        line(&format!("from {}", duration(one.start_s)), interval(one));
    }
    text.push_str(&coverage::shown(model));
    text
}

/// How many TCP flows the original had, how long they were, and how that is known.
fn lengths(model: &TrafficModel) -> Option<String> {
    let (count, mean) = (model.flow_count?, model.mean_length_packets?);
    let lengths = model.flow_lengths.as_ref()?;
    let interval = model.sampling_interval.unwrap_or(1);
    Some(match lengths.method {
        Method::Counted => format!("{count} of {} packets in the mean, counted", shown(mean)),
        Method::SynJointEm => {
            let [[few, many], [short, long]] =
                [lengths.flow_count_interval, lengths.mean_length_interval].map(|it| it.ends());
            format!(
                "{count} ({few:.0} to {many:.0}) of {} packets in the mean ({} to {}), 95 %, from the \
                 SYNs of 1 packet in {interval}",
                shown(mean),
                shown(short),
                shown(long)
            )
        }
        Method::LowerBound => {
            let [few, many] = lengths.flow_count_interval.ends();
            format!(
                "at least {count} ({few:.0} to {many:.0} are possible): 1 packet in {interval} was \
                 sampled and no TCP flags recorded"
            )
        }
    })
}

/// Hurst's parameter of both series, and where the line lies that it is the slope of.
fn hurst(model: &TrafficModel) -> (String, String) {
    let Some(hurst) = &model.hurst else {
        let unknown = "not known: no packets were metered, or too few";
        return (unknown.to_owned(), unknown.to_owned());
    };
    let bin_ms = hurst.bin_s * 1e3;
    let estimated = |estimate: &Option<HurstEstimate>| match estimate {
        Some(one) => format!(
            "{}, octaves {} to {} of bins of {bin_ms} ms",
            side_by_side::with_interval(one),
            one.from_octave,
            one.to_octave
        ),
        None => format!("no line fits the log-scale diagram of bins of {bin_ms} ms"),
    };
    (estimated(&hurst.bytes), estimated(&hurst.packets))
}

/// What whole connections carry, both ways.
fn connections(law: &ConnectionLaw) -> String {
    let all: u64 = law.connections.iter().sum();
    let sum = |of: &[u64]| -> u64 { of.iter().zip(&law.connections).map(|(b, n)| b * n).sum() };
    let small = law.segment_bytes.iter().zip(&law.connections).filter(|(bytes, _)| **bytes > 0);
    format!(
        "{all} whole, {} requested and {} answered; {} in segments of their own size",
        size(sum(&law.request_bytes) as f64),
        size(sum(&law.response_bytes) as f64),
        plain(&percent(small.map(|(_, count)| *count).sum::<u64>() as f64 / all as f64))
    )
}

/// What an interval asks for, and at which rates.
fn interval(one: &Interval) -> String {
    let a_second = |count: f64| count / one.duration_s.max(1e-9);
    format!(
        "{} flows ({} per second), {} ({}), {} active sessions (direct method {})",
        one.flows,
        significant(a_second(one.flows as f64), 2),
        size(one.bytes as f64),
        plain(&si(8.0 * a_second(one.bytes as f64), "bit/s")),
        significant(one.sessions, 3),
        significant(one.sessions_direct, 3)
    )
}

fn quantiles(law: &Empirical, reported: fn(f64) -> String) -> String {
    let at = |u| reported(law.quantile(u));
    let source = match law.samples() {
        0 => "stated".to_owned(),
        1 => "1 sample".to_owned(),
        samples => format!("{samples} samples"),
    };
    format!(
        "p10 {}, p50 {}, p90 {}, p99 {}, mean {} ({source})",
        at(0.1),
        at(0.5),
        at(0.9),
        at(0.99),
        reported(law.mean())
    )
}

fn shown(value: f64) -> String {
    significant(value, 3)
}

fn size(octets: f64) -> String {
    plain(&bytes(octets))
}

/// A length of time in the largest unit of which it has two, with three digits.
fn duration(seconds: f64) -> String {
    let units = [(DAY_S, "days"), (HOUR_S, "h"), (MINUTE_S, "min")];
    match units.iter().find(|(unit, _)| seconds >= 2.0 * unit) {
        Some((unit, name)) => format!("{} {name}", significant(seconds / unit, 3)),
        None if seconds >= 1.0 => format!("{} s", significant(seconds, 3)),
        None => plain(&si(seconds, "s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shown_in_readable_units() {
        let reported =
            [0.0, 0.000_02, 0.3, 1.0, 60.0, 119.0, 150.0, 10_000.0, 604_800.0].map(duration);
        assert_eq!(
            reported,
            ["0 s", "20 µs", "300 ms", "1 s", "60 s", "119 s", "2.5 min", "2.78 h", "7 days"]
        );
        assert_eq!([100.0, 22_045.0, 1.44e9].map(size), ["100 B", "22 kB", "1.44 GB"]);
    }
}
