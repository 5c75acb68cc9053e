//! A recording: runs of scenarios of every kind, the results of their flows, and what is refused.
//!
//! These numbers were not derived; they are the results of short runs when the file was written,
//! after each part had been tested by itself. A line that changes on purpose is rewritten with
//! `UPDATE=1 cargo test --release -p nilometer-sim`, and then read: which runs changed, and was
//! that meant? Whatever changes a TCP stack or a discipline changes these runs as well.

mod fluid;
#[path = "../../wire/tests/recording/mod.rs"]
mod recording;

use std::fmt::Write;

use fluid::pour;
use nilometer_queue::{DisciplineKind, Reason};
use nilometer_sim::course::Course;
use nilometer_sim::quantity::{
    self, de_rate, de_rate_if, de_size_if, de_span, de_span_if, ser_rate, ser_rate_if, ser_span,
    ser_span_if,
};
use nilometer_sim::queueing::{Place, QueueSpec};
use nilometer_sim::run::run;
use nilometer_sim::speedup::{SpeedupPlan, sweep};
use nilometer_sim::stress::{StressPlan, compare};
use nilometer_sim::{FlowOutcome, Outcome, Scenario, assemble};
use nilometer_stat::Empirical;
use nilometer_traffic::TrafficModel;
use nilometer_traffic::model::Origin;
use nilometer_traffic::model_specification::ModelSpecification;
use nilometer_wire::{Rate, Span};
use recording::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded.txt");

/// Two groups of hosts, two routers, and what is between them; `change` is put over it, key by key.
fn scenario(change: Value) -> Value {
    let mut base = json!({
        "version": 1,
        "name": "recorded",
        "duration_s": 2.0,
        "host": [{"name": "left", "count": 3}, {"name": "right", "count": 3}, {"name": "one"}],
        "router": [{"name": "west"}, {"name": "east"}],
        "link": [
            {"name": "in", "from": "left", "to": "west", "rate": "100 Mb/s", "delay": "1 ms"},
            {"name": "middle", "from": "west", "to": "east", "rate": "5 Mb/s", "delay": "8 ms",
             "queue": {"discipline": "tail_drop", "buffer_packets": 20}},
            {"name": "out", "from": "east", "to": "right", "rate": "80 Mb/s", "delay": "2 ms"},
            {"name": "aside", "from": "one", "to": "west", "rate": "9 Mb/s", "rate_back": "4 Mb/s"}
        ],
        "flow": [{"from": "left", "to": "right", "start_jitter_ms": 30.0}],
        "measure": {"bottleneck": "middle"}
    });
    let Value::Object(changes) = change else { panic!("changes are an object") };
    for (path, value) in changes {
        match base.pointer_mut(&path) {
            Some(place) => *place = value,
            None => {
                let (parent, key) = path.rsplit_once('/').expect("a path");
                let parent = base.pointer_mut(parent).expect("a place");
                match parent {
                    Value::Array(list) => list.push(value),
                    _ => parent[key] = value,
                }
            }
        }
    }
    base
}

fn outcome(change: Value, models: &[TrafficModel], seed: u64) -> Outcome {
    let scenario: Scenario = serde_json::from_value(scenario(change)).expect("a scenario");
    let assembly = assemble(&scenario, models, seed).expect("a network");
    let (outcome, ()) = run(assembly, seed, (), &mut |_| true).expect("an end");
    assert!(outcome.is_balanced, "{outcome:?}");
    outcome
}

/// The results of a run: packets delivered and dropped, timeouts and packets sent again, and
/// digests of what each flow has, of the bottleneck and of delays.
fn line(name: &str, outcome: &Outcome, table: &mut String) {
    let (sent, arrived) = (outcome.journal.sent, outcome.journal.deliveries);
    let dropped = outcome.bottleneck.drops.total_packets();
    let (timeouts, again) = (outcome.timeouts(), outcome.retransmits());
    let mut words = Vec::new();
    outcome.words(&mut |word| words.push(word));
    let flows = digest(&format!("{words:?}{:?}{:?}", outcome.flows, outcome.journal));
    let shown = (
        outcome.fair_share_percent(),
        outcome.stddev_over_fair_share(),
        (outcome.loss_ratio(), outcome.mean_datagram_delay_s(), outcome.packet_hops),
        (outcome.utilisation, outcome.mean_queue_packets, outcome.too_big),
    );
    let link = digest(&format!("{:?}{shown:?}", outcome.bottleneck));
    let courses = digest(&format!("{:?}", outcome.courses));
    let counts = format!("{sent:5} sent {arrived:5} arrived {dropped:3} dropped");
    let tcp = format!("{timeouts:2} timeouts {again:3} again");
    writeln!(table, "{name:20} {counts} {tcp} {flows:08x} {link:08x} {courses:08x}").unwrap();
}

fn stacks(table: &mut String) {
    for tcp in ["tahoe", "reno", "newreno", "sack", "cubic", "bbr", "fulltcp", "linux", "ns3"] {
        let change = json!({
            "/flow/0/tcp": tcp,
            "/flow/a": {"from": "right", "to": "left", "tcp": tcp, "count": 2, "bytes": 90_000,
                        "start_s": 0.4},
            "/flow/b": {"from": "one", "to": "right", "tcp": tcp, "bytes": 50_000, "count": 1},
        });
        line(tcp, &outcome(change, &[], 3), table);
    }
}

/// A queue with every key: each discipline takes those that concern it.
fn reported(kind: DisciplineKind) -> Value {
    json!({
        "discipline": kind.name(), "buffer_bytes": "30 kB", "ecn": true, "queues": 5,
        "hashing": "mixed", "drop_from": "front", "w_q": 0.05, "max_p": 0.2, "gentle": true,
        "min_th_percent": 10.0, "max_th_percent": 60.0, "d1": 0.03, "d2": 0.004, "freeze_ms": 20.0,
        "threshold_percent": 50.0, "averaging_ms": 90.0, "strictly_smallest": true,
        "release_below_percent": 20, "target": "3 ms", "interval": "40 ms", "quantum_bytes": 600,
    })
}

fn disciplines(table: &mut String) {
    for kind in DisciplineKind::ALL {
        let bare = json!({"discipline": kind.name(), "buffer_packets": 25});
        for (number, queue) in [bare, reported(kind)].into_iter().enumerate() {
            let spec: QueueSpec = serde_json::from_value(queue.clone()).expect("a queue");
            let rate = Rate::from_megabits(5);
            let place = Place { name: "here", rate, mtu: 1_500, seed: 3, index: 1 };
            let settings = spec.settings(&place).expect("settings");
            let in_force = QueueSpec::in_force(&settings);
            let again = in_force.settings(&place).expect("settings");
            assert_eq!(QueueSpec::in_force(&again), in_force, "read back");
            assert!(in_force.has_size() && !QueueSpec::default().has_size());
            let change = json!({
                "/link/1/queue": queue,
                "/link/1/queue_back": {"discipline": kind.name(), "buffer_cells": 400},
                "/link/0/overhead": "120 us",
                "/flow/0/ecn": number > 0,
                "/flow/0/count": 4,
                "/datagrams": [{"from": "one", "to": "left", "rate": "1 Mb/s", "size_bytes": 700,
                                "arrivals": "poisson"},
                               {"from": "left", "to": "right", "spacing": "9 ms", "count": 2,
                                "size_bytes": 300, "sizes": "exponential", "end_s": 1.5}],
                "/measure/delays_every": "250 ms",
            });
            line(&format!("{} {number}", kind.name()), &outcome(change, &[], 4), table);
            let written = serde_json::to_string(&in_force).expect("JSON");
            let shown = digest(&format!("{settings:?}{written}"));
            writeln!(table, "  settings {shown:08x}").unwrap();
        }
    }
}

fn faults(table: &mut String) {
    for (name, faults) in [
        ("loss", json!({"loss": 0.02})),
        ("period", json!({"loss_period": 40})),
        ("corruption", json!({"corrupt": 0.02})),
        ("duplication", json!({"duplicate": 0.05})),
        ("reordering", json!({"reorder": 0.05, "reorder_by": "7 ms"})),
        ("bursts", json!({"gilbert_elliott": {"worsens": 0.01, "recovers": 0.3}})),
        (
            "all",
            json!({"loss": 0.01, "corrupt": 0.01, "duplicate": 0.02, "reorder": 0.02,
                       "reorder_by": "3 ms", "loss_period": 90,
                       "gilbert_elliott": {"worsens": 0.01, "recovers": 0.3, "loss_good": 0.01,
                                           "loss_bad": 0.6}}),
        ),
    ] {
        for wire in ["1", "2"] {
            let changes = faults.as_object().expect("keys").iter();
            let change = changes.map(|(key, value)| (format!("/link/{wire}/{key}"), value.clone()));
            let mut change: serde_json::Map<String, Value> = change.collect();
            change.insert("/flow/0/tcp".to_owned(), json!("sack"));
            let datagrams = json!([{"from": "one", "to": "right", "rate": "300 kb/s",
                                    "size_bytes": 200, "start_s": 0.2}]);
            change.insert("/datagrams".to_owned(), datagrams);
            change.insert("/measure/delays_every".to_owned(), json!("1 s"));
            line(&format!("{name} at {wire}"), &outcome(change.into(), &[], 5), table);
        }
    }
}

fn model() -> TrafficModel {
    let law = |values: &[f64]| Empirical::linear_from(values.to_vec(), 64).expect("a law");
    let prefix = |text: &str| text.parse().expect("a prefix");
    let stated = ModelSpecification {
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: true, inputs: Vec::new() },
        file_size: law(&[300.0, 2_000.0, 9_000.0, 30_000.0]),
        inter_connection: law(&[0.05, 0.1, 0.3, 1.0]),
        sources: vec![5, 3, 1, 1],
        destinations: vec![2, 1],
        sessions: vec![4.0, 9.0],
        interval_s: 1.0,
        clients: vec![prefix("198.18.0.0/24")],
        servers: vec![prefix("198.19.0.0/24")],
    };
    stated.model().expect("a model")
}

fn others(table: &mut String) {
    let of_model = json!({
        "/model": [{"file": "stated", "from": "right", "to": "left", "tcp": "newreno"}],
        "/flow": [],
        "/link/1/rate_back": "3 Mb/s",
    });
    line("a model", &outcome(of_model, &[model()], 6), table);
    let fifo = json!({
        "/link/1/queue": null, "/link/1/fifo_bytes": 20_000, "/link/1/mtu": 1_000,
        "/link/2/overhead": "1 ms",
        "/flow/0/mss": 900,
        "/flow/a": {"from": "left", "to": "one", "count": 2, "timestamps": true},
    });
    line("a plain queue", &outcome(fifo, &[], 7), table);
    let only_datagrams = json!({
        "/flow": [],
        "/datagrams": [{"from": "left", "to": "right", "rate": "2 Mb/s", "size_bytes": 1_000,
                        "sizes": "exponential"},
                       {"from": "right", "to": "left", "spacing": "5 ms", "size_bytes": 28}],
        "/measure/delays_every": "300 ms",
    });
    line("datagrams", &outcome(only_datagrams, &[], 8), table);
    let reported = json!({
        "/flow/0/tcp": "cubic", "/flow/0/initial_window": 10, "/flow/0/receive_buffer": 200_000,
        "/flow/0/delayed_ack_ms": 40.0, "/flow/0/nagle": true, "/flow/0/limited_transmit": true,
        "/flow/0/hystart": false, "/flow/0/rto_min_ms": 300.0, "/flow/0/rto_initial_ms": 800.0,
        "/flow/0/bytes": 400_000,
    });
    line("a stack that is told", &outcome(reported, &[], 9), table);
}

/// What is wrong with a scenario, and its message.
fn refusals(table: &mut String) {
    let flow = |change: Value| {
        let mut flow = json!({"from": "left", "to": "right"});
        change.as_object().expect("keys").iter().for_each(|(key, value)| flow[key] = value.clone());
        json!({"/flow": [flow]})
    };
    let datagrams = |change: Value| {
        let mut one = json!({"from": "left", "to": "right", "size_bytes": 100});
        change.as_object().expect("keys").iter().for_each(|(key, value)| one[key] = value.clone());
        json!({"/datagrams": [one]})
    };
    for change in [
        json!({"/version": 2}),
        json!({"/duration_s": 0.0}),
        json!({"/duration_s": 1_000_001.0}),
        json!({"/measure/bottleneck": "in"}),
        json!({"/measure/bottleneck": "midle"}),
        json!({"/flow": []}),
        json!({"/host/0/count": 0}),
        json!({"/host/0/count": 4, "/link/0/to": "right"}),
        json!({"/host/1/name": "left"}),
        json!({"/link/1/name": "in"}),
        json!({"/link/0/to": "left"}),
        json!({"/link/2/to": "east2"}),
        json!({"/link/2/from": "west", "/link/1/to": "right"}),
        json!({"/link/0/loss": 0.1}),
        json!({"/link/1/loss": 1.1}),
        json!({"/link/1/corrupt": -0.1}),
        json!({"/link/1/duplicate": 2.0}),
        json!({"/link/1/reorder": 0.1}),
        json!({"/link/1/reorder": 1.5, "/link/1/reorder_by": "1 ms"}),
        json!({"/link/1/gilbert_elliott": {"worsens": 1.5, "recovers": 0.1}}),
        json!({"/link/1/gilbert_elliott": {"worsens": 0.5, "recovers": 0.1, "loss_bad": 3.0}}),
        json!({"/link/1/mtu": 67}),
        json!({"/link/1/mtu": 65_536}),
        json!({"/link/0/fifo_bytes": 0}),
        json!({"/link/0/fifo_bytes": 125_000_001, "/link/0/rate": "1 kb/s"}),
        json!({"/link/1/overhead": "1 us", "/link/1/queue_back": {"discipline": "red"}}),
        json!({"/link/1/queue": {"discipline": "rde", "buffer_packets": 3}}),
        json!({"/link/1/queue": {"discipline": "red"}}),
        json!({"/link/1/queue": {"discipline": "red", "buffer_packets": 3, "buffer_cells": 3}}),
        json!({"/link/1/queue": {"discipline": "red", "buffer_packets": 0}}),
        json!({"/link/1/queue": {"discipline": "blue", "buffer_packets": 9, "freeze_ms": -1.0}}),
        json!({"/link/1/queue": {"discipline": "tdrr", "buffer_packets": 9, "averaging_ms": 1.0,
                                 "averaging_weight": 0.1}}),
        flow(json!({"tcp": "new-reno"})),
        flow(json!({"count": 0})),
        flow(json!({"count": 1_000_001})),
        flow(json!({"from": "nobody"})),
        flow(json!({"start_s": -1.0})),
        flow(json!({"start_jitter_ms": -1.0})),
        flow(json!({"mss": 63})),
        flow(json!({"mss": 65_001})),
        flow(json!({"initial_window": 10_001})),
        flow(json!({"receive_buffer": 2_919})),
        flow(json!({"rto_min_ms": 1e9})),
        datagrams(json!({})),
        datagrams(json!({"rate": "1 Mb/s", "spacing": "1 ms"})),
        datagrams(json!({"rate": "1 Mb/s", "size_bytes": 27})),
        datagrams(json!({"spacing": "0 s"})),
        datagrams(json!({"spacing": "1 ms", "start_s": -1.0})),
        datagrams(json!({"spacing": "1 ms", "end_s": -1.0})),
    ] {
        let text = change.to_string();
        let read: Scenario = serde_json::from_value(scenario(change)).expect("a scenario");
        let shown = assemble(&read, &[], 1).expect_err(&text);
        writeln!(table, "refused: {shown}").unwrap();
    }
    for every in ["0 s", "199 us", "1 us"] {
        let mut change = datagrams(json!({"spacing": "1 us"}));
        change["/measure/delays_every"] = json!(every);
        let read: Scenario = serde_json::from_value(scenario(change)).expect("a scenario");
        let shown = assemble(&read, &[], 1).expect_err(every);
        writeln!(table, "refused: {shown}").unwrap();
    }
}

/// The switch under overload, in packets and as a fluid.
fn overloads(table: &mut String) {
    let plan = StressPlan { t1_periods: 60, ..StressPlan::default() };
    for main in 0..3 {
        let shown = compare(&plan, main).expect("a run");
        let variant = plan.variants()[main];
        let mut load = plan.load().expect("a load");
        let fabric = plan.switch(variant).expect("a switch").fabric;
        let fluid = pour(fabric, variant, plan.periods_most(), &mut load).expect("a pool");
        let (name, stages) = (shown.name, &shown.stages);
        let packets = digest(&format!("{shown:?}"));
        let fluid = digest(&format!("{fluid:?}{:?}", load.ends()));
        writeln!(table, "{name}: stages end at {stages:?}, {packets:08x} fluid {fluid:08x}")
            .unwrap();
    }
    let plan = SpeedupPlan {
        stress: plan,
        speedups: vec![1.0, 1.5],
        hostile_loads: 2,
        hostile_periods: 120,
        seed: 3,
    };
    for row in sweep(&plan).expect("rows") {
        let (load, variant, violations) = (row.load, row.variant, row.violations);
        let shown = digest(&format!("{row:?}"));
        writeln!(table, "speed-up {} load {load} {variant}: {violations} {shown:08x}", row.speedup)
            .unwrap();
    }
}

#[test]
fn runs_are_as_recorded() {
    let mut table = String::new();
    stacks(&mut table);
    disciplines(&mut table);
    faults(&mut table);
    others(&mut table);
    refusals(&mut table);
    overloads(&mut table);
    recording::compare(RECORDING, &table);
}

/// Figures of a run of known flows, by hand.
#[test]
fn an_outcome_agrees_with_its_flows() {
    let outcome = outcome(json!({"/flow/0/count": 2, "/duration_s": 4.0}), &[], 2);
    let [one, other] = &outcome.flows[..] else { panic!("two flows") };
    let fair = 2_500_000.0;
    assert_eq!((one.share, other.share), (Some(fair), Some(fair)));
    let ratios = [one, other].map(|flow: &FlowOutcome| flow.delivered_bytes * 8.0 / 4.0 / fair);
    let mean = (ratios[0] + ratios[1]) / 2.0;
    let near = |shown: Option<f64>, by_hand: f64| {
        let shown = shown.expect("measured");
        assert!((shown - by_hand).abs() < 1e-9, "{shown} and not {by_hand}");
    };
    near(outcome.fair_share_percent(), 100.0 * mean);
    near(outcome.stddev_over_fair_share(), (ratios[0] - ratios[1]).abs() / 2.0);
    let link = &outcome.bottleneck;
    near(Some(outcome.utilisation), link.transmitted_bytes as f64 * 8.0 / 20e6);
    let dropped = link.drops.total_packets();
    near(Some(outcome.loss_ratio()), dropped as f64 / link.offered_packets as f64);
    let by_reason = Reason::ALL.map(|reason| outcome.dropped(reason));
    assert_eq!((by_reason.iter().sum::<u64>(), outcome.dropped(Reason::Full)), (dropped, dropped));
    assert!(dropped > 0 && outcome.utilisation > 0.8 && outcome.utilisation <= 1.0, "{outcome:?}");
    assert_eq!(outcome.timeouts(), one.timeouts + other.timeouts);
    assert_eq!(outcome.retransmits(), one.retransmits + other.retransmits);
    assert_eq!(outcome.mean_datagram_delay_s(), None);
    assert!(outcome.mean_queue_packets > 1.0 && outcome.mean_queue_packets < 20.0);
}

/// A million delays may be kept of a run, of all its tables together; of one more it is refused.
#[test]
fn the_number_of_kept_delays_is_limited() {
    let kept = |counts: [u32; 2], spacing: &str| {
        let table = |count: u32| {
            json!({"from": "one", "to": "right", "spacing": spacing, "size_bytes": 100,
                   "count": count})
        };
        let change = json!({
            "/datagrams": counts.map(table),
            "/measure/delays_every": "500 ms",
        });
        let read: Scenario = serde_json::from_value(scenario(change)).expect("a scenario");
        assemble(&read, &[], 1).map(|_| ()).map_err(|refusal| refusal.to_string())
    };
    // Two seconds of one each 4 us are half a million.
    assert_eq!(kept([1, 1], "4 us"), Ok(()));
    let refused = kept([1, 2], "4 us").expect_err("too many");
    assert!(refused.contains("1500000 delays would be kept"), "{refused}");
    assert_eq!(kept([3, 3], "4 ms"), Ok(()));
}

/// The watcher of a run gets its progress, and may end it.
#[test]
fn a_run_may_be_ended_where_it_stands() {
    let assembly = || {
        let read: Scenario = serde_json::from_value(scenario(json!({}))).expect("a scenario");
        assemble(&read, &[], 1).expect("a network")
    };
    let mut reported = Vec::new();
    let ended = run(assembly(), 1, (), &mut |part| {
        reported.push(part);
        true
    });
    assert!(ended.is_some() && (900..1_100).contains(&reported.len()), "{}", reported.len());
    assert!(reported.is_sorted() && reported[0] > 0.0 && reported[reported.len() - 1] < 1.0);
    let mut stops = 0;
    let ended = run(assembly(), 1, (), &mut |_| {
        stops += 1;
        stops < 7
    });
    assert!(ended.is_none() && stops == 7);
    let course = Course::new(Span(10), Span(25));
    assert_eq!((course.every(), course.delays_ns().len()), (Span(10), 3));
}

/// Every way in which a quantity may stand in a document.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Quantities {
    #[serde(deserialize_with = "de_rate", serialize_with = "ser_rate")]
    rate: Rate,
    #[serde(default, deserialize_with = "de_rate_if", serialize_with = "ser_rate_if")]
    rate_if: Option<Rate>,
    #[serde(deserialize_with = "de_span", serialize_with = "ser_span")]
    span: Span,
    #[serde(default, deserialize_with = "de_span_if", serialize_with = "ser_span_if")]
    span_if: Option<Span>,
    #[serde(default, deserialize_with = "de_size_if")]
    size: Option<u16>,
}

#[test]
fn quantities_are_written_as_they_are_read() {
    let read = |value: Value| serde_json::from_value::<Quantities>(value);
    let bare = json!({"rate": "100 Tb/s", "span": "10000000 s"});
    let found = read(bare.clone()).expect("the most that there is");
    assert_eq!(
        (found.rate.bits_per_second(), found.span),
        (100_000_000_000_000, Span(10u64.pow(19)))
    );
    assert_eq!((found.rate_if, found.span_if, found.size), (None, None, None));
    let written = serde_json::to_value(&found).expect("JSON");
    assert_eq!((&written["rate"], &written["span"]), (&json!("100 Tb/s"), &json!("10000000 s")));
    assert_eq!((&written["rate_if"], &written["span_if"]), (&Value::Null, &Value::Null));
    let with = |key: &str, value: Value| {
        let mut changed = bare.clone();
        changed[key] = value;
        read(changed)
    };
    let all = json!({"rate": "3 kb/s", "rate_if": "7 Mb/s", "span": "4 us", "span_if": "9 ms", "size": 5});
    let found = read(all.clone()).expect("sound");
    assert_eq!(serde_json::to_value(&found).expect("JSON"), all);
    assert_eq!((found.rate_if, found.span_if), (Rate::new(7_000_000), Some(Span(9_000_000_000))));
    let size = |value| with("size", value).map(|it| it.size).map_err(|error| error.to_string());
    assert_eq!(size(Value::Null), Ok(None));
    assert_eq!((size(json!(65_535)), size(json!("2 KiB"))), (Ok(Some(65_535)), Ok(Some(2_048))));
    let refused = |value| size(value).expect_err("no size");
    assert!(refused(json!(65_536)).contains("65536 bytes is too much"));
    assert!(refused(json!(-1)).contains("a number of bytes, or a size as"));
    assert!(refused(json!("much")).contains("`64 kB`"));
    for (key, value, word) in [
        ("rate", "100.1 Tb/s", "rate"),
        ("rate", "0.9 b/s", "rate"),
        ("rate_if", "fast", "rate"),
        ("span", "10000001 s", "time"),
        ("span_if", "-1 s", "time"),
    ] {
        let shown = with(key, json!(value)).expect_err(value).to_string();
        assert!(shown.contains(&format!("is not a {word}")), "{shown}");
    }
    assert_eq!(
        with("rate", json!("1 b/s")).expect("the least").rate,
        Rate::new(1).expect("a rate")
    );
    assert_eq!(quantity::size("1e15 B"), Ok(1_000_000_000_000_000));
    assert!(quantity::size("1000000000000001 B").is_err());
    assert_eq!(quantity::seconds("s", 1e7), Ok(Span(10u64.pow(19))));
    assert!(
        quantity::seconds("s", 10_000_001.0).is_err_and(|shown| shown.contains("s is 10000001"))
    );
}
