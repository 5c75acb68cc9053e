//! Table 2 of the paper, starting from records: ends that routers stamp late, and two ways of counting
//! sessions.
//!
//! The records are processed like those of an exporter. Figure 4 must count the same sessions whether ends
//! are late or not, because it does not use ends; the direct method cannot.

use core::net::{IpAddr, Ipv4Addr};

use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::Rng;
use nilometer_traffic::estimate::{EstimateOptions, estimate};
use nilometer_traffic::model::{Interval, Origin};

const SESSIONS: u64 = 40;
const DURATION_NS: u64 = 180_000_000_000;
/// The duration of each connection.
const TRANSFER_NS: u64 = 50_000_000;

fn address(group: u8, at: u64) -> IpAddr {
    Ipv4Addr::new(198, 18 + group, (at >> 8) as u8, at as u8).into()
}

/// How sessions behave.
#[derive(Clone, Copy)]
struct Habit {
    sessions: u64,
    /// The most connections of a session; it ends with the original in any case.
    connections: u16,
    /// Mean time between two starts, ns; they are uniform from half of it to one and a half.
    gap_ns: u64,
    /// Payload of each request: one under 100 bytes does not enter the model, as in the paper.
    request_bytes: u64,
}

/// Forty sessions that last as long as the original.
const STEADY: Habit =
    Habit { sessions: SESSIONS, connections: u16::MAX, gap_ns: 2_000_000_000, request_bytes: 80 };
/// Many short sessions: three connections within two thirds of a second.
const BRIEF: Habit =
    Habit { sessions: 2_000, connections: 3, gap_ns: 300_000_000, request_bytes: 80 };

/// Sessions of one address pair each: a request, and an answer of lognormal size; ends are stamped as late
/// as `late_ns` says.
fn records(habit: Habit, late_ns: impl Fn(&mut Rng) -> u64) -> Vec<FlowRecord> {
    let (mut rng, mut ends) = (Rng::new(1, 0x7432, 0), Rng::new(1, 0x7432, 1));
    let mut records = Vec::new();
    for session in 0..habit.sessions {
        let first_ns = if habit.connections < u16::MAX { DURATION_NS } else { habit.gap_ns };
        let mut start_ns = rng.below(first_ns);
        for connection in 0..habit.connections {
            if start_ns + TRANSFER_NS >= DURATION_NS {
                break;
            }
            let answer_bytes = (8_000.0 * (0.8 * rng.normal()).exp()) as u64 + 100;
            let ports = (1_024 + connection % 60_000, 80);
            let ways =
                [(0, 1, ports, habit.request_bytes), (1, 0, (ports.1, ports.0), answer_bytes)];
            for (from, to, (source_port, destination_port), payload) in ways {
                let key = FlowKey {
                    source: address(from, session),
                    destination: address(to, session),
                    source_port,
                    destination_port,
                    protocol: TCP,
                };
                let packets = 3 + payload.div_ceil(1_448);
                records.push(FlowRecord {
                    key,
                    start_ns: start_ns + u64::from(from) * 1_000,
                    end_ns: start_ns + TRANSFER_NS + late_ns(&mut ends),
                    packets,
                    octets: payload + 52 * packets,
                    tcp_flags: tcp_flags::SYN | tcp_flags::ACK | tcp_flags::FIN,
                    payload_octets: Some(payload),
                    opened: Some(from == 0),
                    end_reason: EndReason::Unknown,
                    sampling_interval: 0,
                });
            }
            start_ns += habit.gap_ns / 2 + rng.below(habit.gap_ns);
        }
    }
    records
}

/// 454 ± 254 ms, and never before the packet, as in Table 2.
fn late(ends: &mut Rng) -> u64 {
    (1e6 * (454.0 + 254.0 * ends.normal()).max(0.0)) as u64
}

/// The mean number of active sessions, by Figure 4 and by lifetimes: with exact ends, and with late ones.
fn counted(habit: Habit) -> [[f64; 2]; 2] {
    let both = |records| {
        let intervals = intervals(records);
        let mean = |of: fn(&Interval) -> f64| {
            intervals.iter().map(of).sum::<f64>() / intervals.len() as f64
        };
        [mean(|interval| interval.sessions), mean(|interval| interval.sessions_direct)]
    };
    [both(records(habit, |_| 0)), both(records(habit, late))]
}

fn intervals(records: Vec<FlowRecord>) -> Vec<Interval> {
    let prefix = |text: &str| text.parse().expect("a prefix");
    let options = EstimateOptions {
        interval_s: Some(60.0),
        bound_s: 60.0,
        keep_addresses: false,
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: true, inputs: Vec::new() },
        span_ns: Some((0, DURATION_NS)),
        clients: vec![prefix("198.18.0.0/16")],
        servers: vec![prefix("198.19.0.0/17")],
        harpoon: true,
    };
    estimate(records, &options).expect("a model").model.intervals
}

/// Short lifetimes become longer by the lateness of their ends; the count of Figure 4 does not change.
#[test]
fn late_ends_make_the_direct_method_overestimate_and_leave_figure_4_alone() {
    let [[exact, exact_direct], [late, late_direct]] = counted(BRIEF);
    println!(
        "brief: Figure 4 {exact:.2}, late {late:.2}; direct {exact_direct:.2}, {late_direct:.2}"
    );
    assert!(late_direct > 1.5 * exact_direct, "{late_direct} against {exact_direct}");
    assert!((late / exact - 1.0).abs() < 0.02, "{late} with ends that are late, {exact} without");
}

/// Forty are forty, whether ends are late or not.
#[test]
fn figure_4_counts_the_sessions_that_there_are() {
    for [sessions, _] in counted(STEADY) {
        println!("steady: Figure 4 {sessions:.2} of {SESSIONS}");
        assert!((sessions / SESSIONS as f64 - 1.0).abs() < 0.05, "{sessions} of {SESSIONS}");
    }
}

/// Nor does it matter whether requests are large enough to be files: a connection carries one, its larger direction.
#[test]
fn figure_4_counts_the_sessions_that_there_are_where_requests_enter() {
    for [sessions, _] in counted(Habit { request_bytes: 200, ..STEADY }) {
        println!("steady, requests of 200 bytes: Figure 4 {sessions:.2} of {SESSIONS}");
        assert!((sessions / SESSIONS as f64 - 1.0).abs() < 0.05, "{sessions} of {SESSIONS}");
    }
}
