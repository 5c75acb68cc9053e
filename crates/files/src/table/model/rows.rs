//! The content of a model's tables: their columns, and their rows.

use nilometer_stat::{Empirical, Form};
use nilometer_traffic::TrafficModel;

use super::Column::{Count, Real, Text};
use super::Table;

/// All tables of a model; tables of laws that it does not have are empty.
pub(super) fn tables(model: &TrafficModel) -> [Table; 9] {
    [
        laws(model),
        intervals(model),
        ranks(model),
        coverage(model),
        scales(model),
        connections(model),
        connection_intervals(model),
        udp(model),
        udp_sessions(model),
    ]
}

/// Every law of a model, with its name.
fn named_laws(model: &TrafficModel) -> Vec<(String, &Empirical)> {
    let mut laws = vec![
        ("file_size".to_owned(), &model.file_size),
        ("inter_connection".to_owned(), &model.inter_connection),
    ];
    laws.extend(model.flow_lengths.iter().map(|it| ("flow_length".to_owned(), &it.law)));
    laws.extend(model.round_trips.iter().map(|it| ("round_trip".to_owned(), &it.law)));
    for udp in &model.udp {
        let always = [
            ("request_bytes", Some(&udp.request_bytes)),
            ("response_bytes", udp.response_bytes.as_ref()),
            ("packet_bytes", Some(&udp.packet_bytes)),
            ("duration_s", Some(&udp.duration_s)),
            ("packet_interval_s", udp.packet_interval_s.as_ref()),
            ("inter_request_s", udp.inter_request_s.as_ref()),
        ];
        let class = udp.class.name();
        let named = |(name, law): (&str, Option<_>)| Some((format!("{class}/{name}"), law?));
        laws.extend(always.into_iter().filter_map(named));
    }
    laws
}

fn laws(model: &TrafficModel) -> Table {
    let laws = named_laws(model);
    let knots = laws.iter().flat_map(|it| it.1.knots().iter().map(move |knot| (it, knot)));
    let form = |law: &Empirical| match law.form() {
        Form::Step => "step",
        Form::Linear => "linear",
    };
    let rows: Vec<_> = knots.map(|((name, law), knot)| (name, form(law), law, knot)).collect();
    Table::of(
        "laws",
        &rows,
        &[
            Text("law", |(name, ..)| name.to_string()),
            Text("form", |(_, form, ..)| form.to_string()),
            Count("samples", |(_, _, law, _)| law.samples()),
            Real("cumulative", |(.., knot)| knot.0),
            Real("value", |(.., knot)| knot.1),
        ],
    )
}

fn intervals(model: &TrafficModel) -> Table {
    Table::of(
        "intervals",
        &model.intervals,
        &[
            Real("start_s", |of| of.start_s),
            Real("duration_s", |of| of.duration_s),
            Count("bytes", |of| of.bytes),
            Count("flows", |of| of.flows),
            Count("packets", |of| of.packets),
            Real("sessions", |of| of.sessions),
            Real("sessions_direct", |of| of.sessions_direct),
        ],
    )
}

fn ranks(model: &TrafficModel) -> Table {
    let sides = [("source", &model.sources), ("destination", &model.destinations)];
    let rows = sides.into_iter().flat_map(|(side, ranks)| {
        let address = |at| ranks.addresses.get(at).map_or("", String::as_str);
        ranks.counts.iter().enumerate().map(move |(at, count)| (side, at, *count, address(at)))
    });
    Table::of(
        "ranks",
        &rows.collect::<Vec<_>>(),
        &[
            Text("side", |(side, ..)| side.to_string()),
            Count("rank", |(_, at, ..)| *at as u64 + 1),
            Count("flows", |(_, _, count, _)| *count),
            Text("address", |(.., address)| address.to_string()),
        ],
    )
}

fn coverage(model: &TrafficModel) -> Table {
    let all = &model.coverage;
    let out = &all.left_out;
    let parts = [
        ("input", all.flows, all.octets),
        ("in_model", all.flows_in_model, all.octets_in_model),
        ("not_tcp", out.not_tcp.flows, out.not_tcp.octets),
        ("no_start_marker", out.no_start_marker.flows, out.no_start_marker.octets),
        ("no_end_marker", out.no_end_marker.flows, out.no_end_marker.octets),
        ("ack_flow", out.ack_flow.flows, out.ack_flow.octets),
        ("under_100_bytes", out.under_100_bytes.flows, out.under_100_bytes.octets),
        ("smaller_direction", out.smaller_direction.flows, out.smaller_direction.octets),
    ];
    Table::of(
        "coverage",
        &parts,
        &[
            Text("part", |(part, ..)| part.to_string()),
            Count("flows", |(_, flows, _)| *flows),
            Count("octets", |(.., octets)| *octets),
        ],
    )
}

/// The log-scale diagrams; empty if the model has none.
fn scales(model: &TrafficModel) -> Table {
    let rows = model.hurst.iter().flat_map(|hurst| {
        let diagrams = [("bytes", &hurst.diagram.bytes), ("packets", &hurst.diagram.packets)];
        let rows = move |(series, octaves)| (series, hurst.bin_s, octaves);
        diagrams.map(rows)
    });
    let rows = rows.flat_map(|(series, bin_s, octaves)| {
        octaves.iter().map(move |octave| (series, bin_s, octave))
    });
    Table::of(
        "scales",
        &rows.collect::<Vec<_>>(),
        &[
            Text("series", |(series, ..)| series.to_string()),
            Count("octave", |(.., of)| of.octave.into()),
            Real("seconds", |(_, bin_s, of)| bin_s * (of.octave as f64).exp2()),
            Count("count", |(.., of)| of.count),
            Real("log2_energy", |(.., of)| of.log2_energy),
            Real("deviation", |(.., of)| of.deviation),
        ],
    )
}

/// The shapes of whole connections; `interval` is empty where a shape stands for connections of several.
fn connections(model: &TrafficModel) -> Table {
    let law = model.connection_law.iter();
    let rows = law.flat_map(|law| (0..law.connections.len()).map(move |at| (law, at)));
    Table::of(
        "connections",
        &rows.collect::<Vec<_>>(),
        &[
            Count("connections", |&(law, at)| law.connections[at]),
            Count("request_bytes", |&(law, at)| law.request_bytes[at]),
            Count("response_bytes", |&(law, at)| law.response_bytes[at]),
            Count("segment_bytes", |&(law, at)| law.segment_bytes[at].into()),
            Text("interval", |&(law, at)| {
                law.interval.get(at).map(u32::to_string).unwrap_or_default()
            }),
        ],
    )
}

fn connection_intervals(model: &TrafficModel) -> Table {
    let rows = model.intervals.iter().filter_map(|it| Some((it.start_s, it.whole?)));
    Table::of(
        "connection_intervals",
        &rows.collect::<Vec<_>>(),
        &[
            Real("start_s", |(start_s, _)| *start_s),
            Count("connections", |(_, whole)| whole.connections),
            Count("bytes", |(_, whole)| whole.bytes),
            Count("packets", |(_, whole)| whole.packets),
            Count("octets", |(_, whole)| whole.octets),
        ],
    )
}

fn udp(model: &TrafficModel) -> Table {
    Table::of(
        "udp",
        &model.udp,
        &[
            Text("class", |of| of.class.name().to_owned()),
            Count("conversations", |of| of.conversations),
            Real("answered_share", |of| of.answered_share),
            Count("flows", |of| of.carried.flows),
            Count("octets", |of| of.carried.octets),
            Count("packets", |of| of.packets),
        ],
    )
}

fn udp_sessions(model: &TrafficModel) -> Table {
    let rows = model.udp.iter().flat_map(|udp| {
        let sessions = model.intervals.iter().zip(&udp.sessions);
        sessions.map(|(interval, sessions)| (udp.class, interval.start_s, *sessions))
    });
    Table::of(
        "udp_sessions",
        &rows.collect::<Vec<_>>(),
        &[
            Text("class", |(class, ..)| class.name().to_owned()),
            Real("start_s", |(_, start_s, _)| *start_s),
            Real("sessions", |(.., sessions)| *sessions),
        ],
    )
}
