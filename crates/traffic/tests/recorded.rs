//! A recording: models of records of every kind, their plans, and warnings about them.
//!
//! These numbers were not derived; they are the results for synthetic records at the time of
//! writing, after each part had been tested by itself. A line that changes on purpose is written
//! anew with `UPDATE=1 cargo test --release -p nilometer-traffic`, and then read: which parts of
//! which models changed, and was that meant?

mod performed;
#[path = "../../wire/tests/recording/mod.rs"]
mod recording;

use std::fmt::Write;
use std::net::IpAddr;

use nilometer_flow::record::{TCP, UDP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::{Binned, Empirical, Form, Law, Rng};
use nilometer_traffic::burstiness::Hurst;
use nilometer_traffic::compare::compare;
use nilometer_traffic::estimate::{EstimateOptions, estimate, estimate_as_given};
use nilometer_traffic::fidelity::{Laws, judge};
use nilometer_traffic::model::{Origin, TrafficModel};
use nilometer_traffic::model_specification::ModelSpecification;
use nilometer_traffic::udp::{Conversation, DirectionTotals, classify};
use nilometer_traffic::{Planner, synthetic};
use performed::performed;
use recording::digest;

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded.txt");
const ORIGIN_NS: u64 = synthetic::ORIGIN_NS;

fn options(interval_s: Option<f64>) -> EstimateOptions {
    let prefix = |text: &str| text.parse().expect("a prefix");
    EstimateOptions {
        interval_s,
        bound_s: 5.0,
        keep_addresses: true,
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: true, inputs: Vec::new() },
        span_ns: None,
        clients: vec![prefix("198.18.0.0/16"), prefix("fd00:18::/112")],
        servers: vec![prefix("198.19.0.0/17"), prefix("fd00:19::/112")],
        harpoon: false,
    }
}

/// The kinds of records of a case.
#[derive(Clone, Copy, Default)]
struct Kinds {
    /// One record in this many has no flags, and one in this many is of sampled packets; 0 for
    /// none.
    bare: u64,
    sampled: u64,
    /// Whether payload and the opening side are recorded.
    is_metered: bool,
    /// How many of ten records are UDP.
    udp_tenths: u64,
}

/// Random records: both directions, split flows, doubles, services of all kinds.
fn records(seed: u64, connections: u64, kinds: Kinds) -> Vec<FlowRecord> {
    const PORTS: [u16; 12] =
        [53, 443, 123, 3_478, 9_999, 27_960, 5_353, 80, 1_900, 50_007, 8_443, 40_404];
    let mut rng = Rng::new(seed, 0x7265_636f, 0);
    let mut made = Vec::new();
    for number in 0..connections {
        let is_v6 = rng.below(4) == 0;
        let mut address = |side: u64, hosts: u64| -> IpAddr {
            let host = rng.below(hosts).min(rng.below(hosts)) + 1;
            match is_v6 {
                true => IpAddr::V6((0x2001_0db8_u128 << 96 | u128::from(side << 32 | host)).into()),
                false => IpAddr::V4(((198 << 24 | (18 + side) << 16 | host) as u32).into()),
            }
        };
        let (source, destination) = (address(0, 40), address(1, 15));
        let is_udp = rng.below(10) < kinds.udp_tenths;
        let service = if is_udp { PORTS[rng.below(12) as usize] } else { 443 };
        let key = FlowKey {
            source,
            destination,
            source_port: 1_024 + rng.below(60_000) as u16,
            destination_port: service,
            protocol: if is_udp { UDP } else { TCP },
        };
        let start_ns = ORIGIN_NS + number * 90_000_000_000 / connections + rng.below(200_000_000);
        let lasts_ns = rng.below(3_000_000_000) >> rng.below(6);
        let most = 1 + rng.below(if is_udp { 200 } else { 60 });
        for is_up in [true, false] {
            if !is_up && rng.below(8) == 0 {
                continue;
            }
            let packets = 1 + rng.below(most);
            let size = [20, 120, 1_400][rng.below(3) as usize];
            let payload = packets * rng.below(size + 1);
            let start_ns = start_ns + u64::from(!is_up) * (1_000_000 + rng.below(80_000_000));
            let ends = [tcp_flags::FIN, tcp_flags::RST, tcp_flags::FIN, 0][rng.below(4) as usize];
            let begins = if rng.below(9) > 0 { tcp_flags::SYN } else { 0 };
            let is_sampled = kinds.sampled > 0 && rng.below(kinds.sampled) == 0;
            let is_bare = is_udp || kinds.bare > 0 && rng.below(kinds.bare) == 0;
            let record = FlowRecord {
                key: if is_up { key } else { key.reversed() },
                start_ns,
                end_ns: start_ns + lasts_ns,
                packets,
                octets: payload + packets * if is_udp { 28 } else { 52 },
                tcp_flags: if is_bare { 0 } else { tcp_flags::ACK | begins | ends },
                payload_octets: (kinds.is_metered && !is_sampled).then_some(payload),
                opened: (kinds.is_metered && !is_udp && !is_bare).then_some(is_up),
                end_reason: [EndReason::Unknown, EndReason::EndOfFlow][rng.below(2) as usize],
                sampling_interval: if is_sampled { [10, 100][rng.below(2) as usize] } else { 0 },
            };
            if rng.below(9) == 0 {
                let (start_ns, end_ns) = (record.end_ns + 5_000_000, record.end_ns + 900_000_000);
                made.push(FlowRecord { start_ns, end_ns, ..record.clone() });
            }
            if rng.below(20) == 0 {
                made.push(record.clone());
            }
            made.push(record);
        }
    }
    made
}

/// As written to a file, so that fields that are left out do not matter.
fn written(part: &impl serde::Serialize) -> String {
    serde_json::to_string(part).expect("JSON")
}

/// The digest of each part of a model, and of the whole as written.
fn model_lines(name: &str, model: &TrafficModel, warnings: &[String], table: &mut String) {
    let (flows, connections, bytes) = (model.flows(), model.connections(), model.bytes());
    writeln!(table, "{name}: {flows} flows, {connections} connections, {bytes} bytes").unwrap();
    let lengths = (model.flow_count, model.mean_length_packets, &model.flow_lengths);
    let unmodelled = (model.unmodelled_bytes_share, model.unmodelled_flows_share);
    let parts = [
        ("connection_law", written(&model.connection_law)),
        ("file_size", written(&model.file_size)),
        ("inter_connection", written(&model.inter_connection)),
        ("ranks", written(&(&model.sources, &model.destinations))),
        ("intervals", written(&model.intervals)),
        ("lengths", written(&(lengths, &model.sampling_interval))),
        ("round_trips", written(&model.round_trips)),
        ("udp", written(&model.udp)),
        ("coverage", written(&(&model.coverage, unmodelled))),
        ("generation", written(&model.generation)),
        ("written", written(model)),
        ("warnings", warnings.join("\n")),
    ];
    for parts in parts.chunks(4) {
        let each = parts.iter().map(|(key, rendered)| format!("{key} {:08x}", digest(rendered)));
        writeln!(table, "  {}", each.collect::<Vec<_>>().join(", ")).unwrap();
    }
}

fn plan_line(model: &TrafficModel, seed: u64, table: &mut String) {
    let planner = Planner::new(model, seed).expect("a sound model");
    let plan = planner.plan(&mut |slots| planner.arrivals(slots)).expect("a plan");
    let laws = Laws {
        file_size: &model.file_size,
        inter_connection: &plan.gaps,
        sources: model.sources.shares(plan.ranks.0),
        destinations: model.destinations.shares(plan.ranks.1),
    };
    let (connections, sessions) = (plan.len(), plan.sessions.len());
    let parts = [
        ("bytes", format!("{} {}", plan.bytes(), plan.request_bytes())),
        ("connections", format!("{:?}", plan.connections)),
        ("order", format!("{:?}{:?}", plan.previous, plan.censored)),
        ("sessions", format!("{:?} {} {:?}", plan.sessions, plan.collisions, plan.ranks)),
        ("intervals", format!("{:?}", plan.intervals)),
        ("laws", format!("{:?}{:?}", plan.gaps, plan.file_size)),
        ("judged", format!("{:?}", judge(&performed(&plan), &laws, seed))),
    ];
    let parts = parts.map(|(name, text)| format!("{name} {:08x}", digest(&text)));
    writeln!(table, "  plan {seed}: {connections} connections, {sessions} sessions").unwrap();
    writeln!(table, "    {}", parts[..4].join(", ")).unwrap();
    writeln!(table, "    {}", parts[4..].join(", ")).unwrap();
}

fn models(table: &mut String) {
    let metered = Kinds { is_metered: true, udp_tenths: 3, ..Kinds::default() };
    let exported = Kinds { is_metered: false, ..metered };
    let cases = [
        ("metered", records(1, 3_000, metered), Some(30.0)),
        ("exported", records(2, 3_000, exported), None),
        ("without flags", records(3, 3_000, Kinds { bare: 1, ..exported }), None),
        ("some without flags", records(4, 3_000, Kinds { bare: 3, ..metered }), Some(7.0)),
        ("sampled", records(5, 3_000, Kinds { sampled: 1, ..exported }), None),
        ("of all kinds", records(6, 3_000, Kinds { sampled: 4, bare: 4, ..metered }), None),
        ("embedded", synthetic::records(), Some(synthetic::INTERVAL_S)),
        ("many", records(7, 7_000, Kinds { udp_tenths: 1, ..metered }), Some(9.0)),
    ];
    let mut before: Option<TrafficModel> = None;
    for (name, records, interval_s) in cases {
        if name == "exported" {
            let given = estimate_as_given(records.clone(), &options(interval_s)).expect("a model");
            model_lines("as given", &given.model, &given.warnings, table);
        }
        let made = estimate(records, &options(interval_s)).expect("a model");
        model_lines(name, &made.model, &made.warnings, table);
        // Sampled flows represent so many connections that a plan of them takes long.
        if made.model.connections() < 5_000 {
            plan_line(&made.model, 1, table);
        }
        if let Some(before) = before.filter(|_| name == "exported") {
            let distances = format!("{:?}", compare(&before, &made.model, 1));
            writeln!(table, "  from the one before {:08x}", digest(&distances)).unwrap();
        }
        before = Some(made.model);
    }
    let mut small = before.expect("a model");
    small.generation.clients = vec!["198.18.0.0/28".parse().expect("a prefix")];
    small.generation.time_divisor = 7.0;
    plan_line(&small, 2, table);
    plan_line(&small.without_connections(), 3, table);
}

fn stated(table: &mut String) {
    for (name, gaps) in [
        ("exponential", Law::Exponential { mean: 0.5 }),
        ("Pareto", Law::Pareto { index: 1.2, minimum: 0.05 }),
    ] {
        let sizes = Law::Pareto { index: 1.5, minimum: 1_000.0 };
        let stated = ModelSpecification {
            tool: "test".to_owned(),
            origin: options(None).origin,
            file_size: sizes.table(Form::Step, None).expect("a law"),
            inter_connection: gaps.table(Form::Linear, None).expect("a law"),
            sources: vec![3, 0, 7, 5],
            destinations: vec![1, 2],
            sessions: vec![4.0, 0.0, 9.5],
            interval_s: 20.0,
            clients: options(None).clients,
            servers: options(None).servers,
        };
        type Change = fn(&mut ModelSpecification);
        let changes: [Change; 8] = [
            |it| it.interval_s = f64::INFINITY,
            |it| it.interval_s = 0.0,
            |it| it.inter_connection = Empirical::linear_from(vec![0.0], 4).expect("a law"),
            |it| it.file_size = Empirical::step_from(vec![0.0], 4).expect("a law"),
            |it| it.sessions[1] = f64::INFINITY,
            |it| it.sessions[1] = -0.1,
            |it| it.sessions.fill(0.0),
            |it| it.sources.fill(0),
        ];
        for change in changes {
            let mut wrong = stated.clone();
            change(&mut wrong);
            writeln!(table, "refused: {}", wrong.model().expect_err("a number")).unwrap();
        }
        let model = stated.model().expect("a model");
        model_lines(&format!("stated, {name}"), &model, &[], table);
        plan_line(&model, 4, table);
    }
}

/// Conversations of UDP with ports and rates about where classes begin and end.
fn classes(table: &mut String) {
    const PORTS: [u16; 22] = [
        53, 137, 443, 8_443, 67, 520, 57_621, 3_477, 3_478, 3_481, 3_482, 19_301, 19_302, 19_309,
        19_310, 49_999, 50_000, 50_059, 50_060, 40_000, 41_000, 9_000,
    ];
    let (mut rng, mut rendered) = (Rng::new(9, 0x7564_7000, 0), String::new());
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..20_000 {
        let mut way = || {
            let lasts_s = [0.0, 0.999, 1.0, 2.0, 10.0][rng.below(5) as usize];
            let a_second = [0, 5, 10, 66, 30][rng.below(5) as usize];
            let packets = a_second * lasts_s as u64 + rng.below(4);
            let size = [59, 60, 61, 129, 130, 131, 1_299, 1_300][rng.below(8) as usize];
            DirectionTotals {
                packets: packets.max(u64::from(lasts_s > 0.0)),
                octets: packets * size,
                lasts_s,
            }
        };
        let ways = [way(), way()];
        let ports = [(); 2].map(|()| PORTS[rng.below(22).max(rng.below(22)) as usize]);
        let class = classify(&Conversation { ports, ways }, rng.below(2) == 0);
        *counts.entry(class.name()).or_insert(0) += 1;
        rendered.push_str(class.name());
    }
    writeln!(table, "classes of UDP {counts:?} {:08x}", digest(&rendered)).unwrap();
}

fn burstiness(table: &mut String) {
    for mean_ns in [2e5, 3e6] {
        let (mut rng, mut series) = (Rng::new(8, 0x6275_7273, 1), Binned::new());
        let mut at_ns = 1_700_000_000_000_000_000_f64;
        for _ in 0..30_000 {
            at_ns += rng.exponential(mean_ns) * [0.3, 2.0][rng.below(2) as usize];
            series.count(at_ns as u64, 40 + rng.below(1_460)).expect("a minute");
        }
        let hurst = Hurst::of(series).expect("it scales");
        let rendered = digest(&format!("{hurst:?}"));
        writeln!(table, "burstiness {} bins {rendered:08x}", hurst.bins).unwrap();
    }
}

/// The errors of a model that was read, at both sides of its limits; and an interval cut short.
fn refusals(table: &mut String) {
    type Change = fn(&mut TrafficModel);
    const MOST: u64 = 1 << 62;
    let changes: [Change; 46] = [
        |m| m.format = "nilometer-model/2".to_owned(),
        |m| m.file_size = m.file_size.scaled(1e-12),
        |m| m.file_size = m.file_size.scaled(1e12),
        |m| m.inter_connection = m.inter_connection.scaled(1e-10),
        |m| m.mean_length_packets = Some(0.0),
        |m| m.mean_length_packets = Some(f64::INFINITY),
        |m| m.sampling_interval = Some(0),
        |m| m.sources.counts.clear(),
        |m| m.sources.counts[1] = m.sources.counts[0] + 1,
        |m| m.sources.counts[1] = m.sources.counts[0],
        |m| *m.destinations.counts.last_mut().expect("ranks") = 0,
        |m| m.destinations.counts[0] = u64::MAX,
        |m| m.destinations.counts = vec![MOST],
        |m| m.destinations.counts = vec![MOST, 1],
        |m| m.destinations.counts = vec![1; 1 << 20],
        |m| m.destinations.counts = vec![1; (1 << 20) + 1],
        |m| m.intervals.clear(),
        |m| m.intervals[0].start_s = 1e-7,
        |m| m.intervals[0].start_s = 1e-5,
        |m| m.intervals[1].start_s += 3e-5,
        |m| m.intervals[1].start_s += 4e-5,
        |m| m.intervals[1].start_s = f64::NAN,
        |m| m.intervals[1].duration_s = 0.0,
        |m| m.intervals[0].flows = MOST,
        |m| m.intervals[0].bytes = u64::MAX,
        |m| m.intervals[0].packets = MOST,
        |m| m.intervals[0].whole.as_mut().expect("whole").connections = MOST,
        |m| m.intervals[0].whole.as_mut().expect("whole").bytes = MOST,
        |m| m.intervals[0].whole.as_mut().expect("whole").packets = MOST,
        |m| m.intervals[0].whole.as_mut().expect("whole").octets = MOST,
        |m| m.intervals[0].whole = None,
        |m| m.unmodelled_bytes_share = Some(1.5),
        |m| m.unmodelled_flows_share = Some(-0.5),
        |m| m.generation.time_divisor = 0.0,
        |m| m.generation.time_divisor = 1e10,
        |m| m.generation.time_divisor = 1e-320,
        |m| m.generation.ipv6_share = 1.5,
        |m| m.generation.clients.clear(),
        |m| m.connection_law.as_mut().expect("a law").connections[3] = 0,
        |m| m.connection_law.as_mut().expect("a law").connections[3] = MOST,
        |m| m.connection_law.as_mut().expect("a law").request_bytes.clear(),
        |m| m.connection_law.as_mut().expect("a law").segment_bytes[3] = 75,
        |m| m.connection_law.as_mut().expect("a law").segment_bytes[3] = 76,
        |m| m.connection_law.as_mut().expect("a law").segment_bytes[3] = 1_449,
        |m| m.connection_law.as_mut().expect("a law").response_bytes[3] = (1 << 40) + 1,
        |m| m.connection_law.as_mut().expect("a law").interval.truncate(5),
    ];
    let metered = Kinds { is_metered: true, udp_tenths: 3, ..Kinds::default() };
    let made = estimate(records(1, 3_000, metered), &options(Some(30.0))).expect("a model");
    for change in changes {
        let mut model = made.model.clone();
        change(&mut model);
        match model.check() {
            Ok(()) => writeln!(table, "sound"),
            Err(error) => writeln!(table, "refused: {error}"),
        }
        .unwrap();
    }
    let mut interval = made.model.intervals[0].clone();
    interval.cut(0.3);
    let rendered = (made.model.original_s(), made.model.duration_s(), interval);
    writeln!(table, "cut: {rendered:?}").unwrap();
    for interval_s in [f64::NAN, -1.0, 0.0, 1e-6] {
        let refused = estimate(records(1, 300, metered), &options(Some(interval_s)));
        writeln!(table, "refused: {}", refused.expect_err("an interval")).unwrap();
    }
}

#[test]
fn models_and_plans_are_as_recorded() {
    let mut table = String::new();
    models(&mut table);
    refusals(&mut table);
    stated(&mut table);
    classes(&mut table);
    burstiness(&mut table);
    recording::compare(RECORDING, &table);
}
