//! What stands in the tables of a model: their columns, and their rows.

use nilometer_stat::{Empirical, Form};
use nilometer_traffic::TrafficModel;
use nilometer_traffic::burstiness::DiagramOctave;
use nilometer_traffic::model::Interval;
use nilometer_traffic::udp::UdpModel;

use super::{Cell, Format, Table};

const LAWS: Format = Format {
    name: "nilometer-model-laws/1",
    schema: "message laws {
        required binary law (STRING);
        required binary form (STRING);
        required int64 samples (INTEGER(64,false));
        required double cumulative;
        required double value;
    }",
    later: 0,
};

const INTERVALS: Format = Format {
    name: "nilometer-model-intervals/1",
    schema: "message intervals {
        required double start_s;
        required double duration_s;
        required int64 bytes (INTEGER(64,false));
        required int64 flows (INTEGER(64,false));
        required int64 packets (INTEGER(64,false));
        required double sessions;
        required double sessions_direct;
    }",
    later: 0,
};

const RANKS: Format = Format {
    name: "nilometer-model-ranks/1",
    schema: "message ranks {
        required binary side (STRING);
        required int64 rank (INTEGER(64,false));
        required int64 flows (INTEGER(64,false));
        required binary address (STRING);
    }",
    later: 0,
};

const COVERAGE: Format = Format {
    name: "nilometer-model-coverage/1",
    schema: "message coverage {
        required binary part (STRING);
        required int64 flows (INTEGER(64,false));
        required int64 octets (INTEGER(64,false));
    }",
    later: 0,
};

const SCALES: Format = Format {
    name: "nilometer-model-scales/1",
    schema: "message scales {
        required binary series (STRING);
        required int64 octave (INTEGER(64,false));
        required double seconds;
        required int64 count (INTEGER(64,false));
        required double log2_energy;
        required double deviation;
    }",
    later: 0,
};

const CONNECTIONS: Format = Format {
    name: "nilometer-model-connections/1",
    schema: "message connections {
        required int64 connections (INTEGER(64,false));
        required int64 request_bytes (INTEGER(64,false));
        required int64 response_bytes (INTEGER(64,false));
        required int64 segment_bytes (INTEGER(64,false));
        required binary interval (STRING);
    }",
    later: 0,
};

const CONNECTION_INTERVALS: Format = Format {
    name: "nilometer-model-connection-intervals/1",
    schema: "message connection_intervals {
        required double start_s;
        required int64 connections (INTEGER(64,false));
        required int64 bytes (INTEGER(64,false));
        required int64 packets (INTEGER(64,false));
        required int64 octets (INTEGER(64,false));
    }",
    later: 0,
};

const UDP: Format = Format {
    name: "nilometer-model-udp/1",
    schema: "message udp {
        required binary class (STRING);
        required int64 conversations (INTEGER(64,false));
        required double answered_share;
        required int64 flows (INTEGER(64,false));
        required int64 octets (INTEGER(64,false));
        required int64 packets (INTEGER(64,false));
    }",
    later: 0,
};

const UDP_SESSIONS: Format = Format {
    name: "nilometer-model-udp-sessions/1",
    schema: "message udp_sessions {
        required binary class (STRING);
        required double start_s;
        required double sessions;
    }",
    later: 0,
};

fn word(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

/// All tables of a model; those of what it does not know have no rows.
pub(super) fn tables(model: &TrafficModel) -> [Table; 9] {
    [
        Table { name: "laws", format: LAWS, rows: laws(model) },
        Table { name: "intervals", format: INTERVALS, rows: intervals(model) },
        Table { name: "ranks", format: RANKS, rows: ranks(model) },
        Table { name: "coverage", format: COVERAGE, rows: coverage(model) },
        Table { name: "scales", format: SCALES, rows: scales(model) },
        Table { name: "connections", format: CONNECTIONS, rows: connections(model) },
        Table {
            name: "connection_intervals",
            format: CONNECTION_INTERVALS,
            rows: connection_intervals(model),
        },
        Table { name: "udp", format: UDP, rows: udp(model) },
        Table { name: "udp_sessions", format: UDP_SESSIONS, rows: udp_sessions(model) },
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

fn laws(model: &TrafficModel) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (name, law) in named_laws(model) {
        let form = match law.form() {
            Form::Step => "step",
            Form::Linear => "linear",
        };
        rows.extend(law.knots().iter().map(|&(cumulative, value)| {
            let samples = Cell::Count(law.samples());
            vec![word(&name), word(form), samples, Cell::Real(cumulative), Cell::Real(value)]
        }));
    }
    rows
}

fn intervals(model: &TrafficModel) -> Vec<Vec<Cell>> {
    let row = |of: &Interval| {
        vec![
            Cell::Real(of.start_s),
            Cell::Real(of.duration_s),
            Cell::Count(of.bytes),
            Cell::Count(of.flows),
            Cell::Count(of.packets),
            Cell::Real(of.sessions),
            Cell::Real(of.sessions_direct),
        ]
    };
    model.intervals.iter().map(row).collect()
}

fn ranks(model: &TrafficModel) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (side, ranks) in [("source", &model.sources), ("destination", &model.destinations)] {
        for (at, count) in ranks.counts.iter().enumerate() {
            let address = ranks.addresses.get(at).map_or("", String::as_str);
            let rank = Cell::Count(at as u64 + 1);
            rows.push(vec![word(side), rank, Cell::Count(*count), word(address)]);
        }
    }
    rows
}

fn coverage(model: &TrafficModel) -> Vec<Vec<Cell>> {
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
    let row = |(part, flows, octets)| vec![word(part), Cell::Count(flows), Cell::Count(octets)];
    parts.into_iter().map(row).collect()
}

/// The log-scale diagrams; none where the model does not know.
fn scales(model: &TrafficModel) -> Vec<Vec<Cell>> {
    let Some(hurst) = &model.hurst else { return Vec::new() };
    let diagrams = [("bytes", &hurst.diagram.bytes), ("packets", &hurst.diagram.packets)];
    let row = |series: &str, of: &DiagramOctave| {
        vec![
            word(series),
            Cell::Count(of.octave.into()),
            Cell::Real(hurst.bin_s * (of.octave as f64).exp2()),
            Cell::Count(of.count),
            Cell::Real(of.log2_energy),
            Cell::Real(of.deviation),
        ]
    };
    let rows = |(series, octaves): (&str, &Vec<DiagramOctave>)| -> Vec<Vec<Cell>> {
        octaves.iter().map(|octave| row(series, octave)).collect()
    };
    diagrams.into_iter().flat_map(rows).collect()
}

/// The shapes of whole connections; `interval` is empty where a shape stands for connections of several.
fn connections(model: &TrafficModel) -> Vec<Vec<Cell>> {
    let Some(law) = &model.connection_law else { return Vec::new() };
    let row = |at: usize| {
        vec![
            Cell::Count(law.connections[at]),
            Cell::Count(law.request_bytes[at]),
            Cell::Count(law.response_bytes[at]),
            Cell::Count(law.segment_bytes[at].into()),
            Cell::Text(law.interval.get(at).map(u32::to_string).unwrap_or_default()),
        ]
    };
    (0..law.connections.len()).map(row).collect()
}

fn connection_intervals(model: &TrafficModel) -> Vec<Vec<Cell>> {
    let row = |interval: &Interval| {
        let whole = interval.whole?;
        Some(vec![
            Cell::Real(interval.start_s),
            Cell::Count(whole.connections),
            Cell::Count(whole.bytes),
            Cell::Count(whole.packets),
            Cell::Count(whole.octets),
        ])
    };
    model.intervals.iter().filter_map(row).collect()
}

fn udp(model: &TrafficModel) -> Vec<Vec<Cell>> {
    let row = |of: &UdpModel| {
        vec![
            word(of.class.name()),
            Cell::Count(of.conversations),
            Cell::Real(of.answered_share),
            Cell::Count(of.carried.flows),
            Cell::Count(of.carried.octets),
            Cell::Count(of.packets),
        ]
    };
    model.udp.iter().map(row).collect()
}

fn udp_sessions(model: &TrafficModel) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for udp in &model.udp {
        for (interval, sessions) in model.intervals.iter().zip(&udp.sessions) {
            let class = word(udp.class.name());
            rows.push(vec![class, Cell::Real(interval.start_s), Cell::Real(*sessions)]);
        }
    }
    rows
}
