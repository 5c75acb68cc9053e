//! The paper's results from records only: active sessions (Figure 4), and how close a plan driven by them is to
//! the original (Table 1, Figures 6 and 7).

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::performed::performed;
use crate::truth::{Habit, Truth, late, punctual, truth};
use nilometer_flow::FlowRecord;
use nilometer_stat::{Empirical, Rng, parametric};
use nilometer_traffic::estimate::{EstimateOptions, estimate};
use nilometer_traffic::fidelity::{Laws, judge};
use nilometer_traffic::model::{Interval, LoadDriver, Origin};
use nilometer_traffic::{Plan, Planner, TrafficModel};

/// The number of truths in each mean.
const TRUTHS: u64 = 50;

/// Harpoon's own model of these records.
fn model(records: Vec<FlowRecord>, interval_s: Option<f64>) -> TrafficModel {
    let prefix = |text: &str| text.parse().expect("a prefix");
    let options = EstimateOptions {
        interval_s,
        bound_s: 60.0,
        keep_addresses: false,
        tool: "test".to_owned(),
        origin: Origin { description: "test".to_owned(), synthetic: true, inputs: Vec::new() },
        span_ns: None,
        clients: vec![prefix("198.18.0.0/16")],
        servers: vec![prefix("198.19.0.0/17")],
        harpoon: true,
    };
    estimate(records, &options).expect("a model").model.without_connections()
}

fn habit(sessions: usize) -> Habit {
    Habit {
        active: vec![sessions; 3],
        stretch_s: 200.0,
        session_s: 300.0,
        gap_s: |rng| rng.exponential(3.0).min(60.0),
        request_bytes: |rng| parametric::lognormal(rng, 6.2, 0.8),
        answer_bytes: |rng| parametric::lognormal(rng, 9.0, 1.2),
        weights: [Vec::new(), Vec::new()],
    }
}

/// The mean number of sessions by Figure 4, over the intervals' time.
fn counted(model: &TrafficModel) -> f64 {
    let of = |interval: &Interval| interval.sessions * interval.duration_s;
    model.intervals.iter().map(of).sum::<f64>() / model.original_s()
}

/// The means over all truths of counted sessions and of active ones.
fn mean(habit: &Habit, late_ns: fn(&mut Rng) -> u64) -> (f64, f64) {
    let each = (1..=TRUTHS).map(|seed| {
        let truth = truth(habit, seed);
        let active = truth.active.iter().sum::<f64>() / truth.active.len() as f64;
        let model = model(truth.records(late_ns), None);
        (counted(&model), active, model.coverage.records_joined)
    });
    let add =
        |sum: (f64, f64, u64), one: (f64, f64, u64)| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2);
    let (counted, active, joined) = each.fold((0.0, 0.0, 0), add);
    println!("{joined} records joined to what a timer of the exporter had cut");
    assert!(joined >= TRUTHS, "too few timers ran out: {joined}");
    (counted / TRUTHS as f64, active / TRUTHS as f64)
}

#[test]
fn estimated_sessions_agree_with_the_active_ones() {
    for sessions in [30, 40] {
        for (ends, late_ns) in [("punctual", punctual as fn(&mut Rng) -> u64), ("late", late)] {
            let (counted, active) = mean(&habit(sessions), late_ns);
            println!("{sessions} sessions, ends {ends}: {active:.2} active, {counted:.2} counted");
            assert!((active / sessions as f64 - 1.0).abs() < 1e-9);
            assert!((counted / active - 1.0).abs() < 0.05, "{counted} of {active}, ends {ends}");
        }
    }
}

/// Uploads and downloads: the file is the larger direction, whichever it is.
#[test]
fn uploads_are_sessions_like_any_other() {
    let swapped = |rng: &mut Rng| match rng.below(3) {
        0 => parametric::lognormal(rng, 9.0, 1.2),
        _ => parametric::lognormal(rng, 4.0, 0.5),
    };
    let uploads = Habit { request_bytes: swapped, ..habit(40) };
    let (counted, active) = mean(&uploads, late);
    println!("with uploads: {active:.2} active, {counted:.2} counted");
    assert!((counted / active - 1.0).abs() < 0.05, "{counted} of {active}");
}

/// A morning, a noon and an evening, with some servers far more popular than others.
fn day() -> Habit {
    Habit {
        active: vec![12, 20, 35, 60, 80, 90, 85, 70, 50, 40, 25, 15],
        weights: [Vec::new(), parametric::zipf_weights(60, 0.9)],
        ..habit(0)
    }
}

fn plan(model: &TrafficModel, seed: u64) -> Plan {
    let planner = Planner::new(model, seed).expect("a sound model");
    planner.plan(&mut |slots| planner.arrivals(slots)).expect("a plan")
}

/// Payload bytes of the larger directions that begin in each stretch.
fn bytes(truth: &Truth, stretch_s: f64) -> Vec<f64> {
    let mut bytes = vec![0.0; truth.active.len()];
    for made in &truth.connections {
        bytes[(made.start_s / stretch_s) as usize] += made.bytes[0].max(made.bytes[1]) as f64;
    }
    bytes
}

/// Figure 6: bytes and active sessions of each interval are the original's.
#[test]
fn a_plan_that_sessions_drive_keeps_the_course_of_the_day() {
    let day = day();
    let truth = truth(&day, 7);
    let model = model(truth.records(late), Some(day.stretch_s));
    assert_eq!(model.generation.driver, LoadDriver::Sessions);
    let (plan, bytes) = (plan(&model, 1), bytes(&truth, day.stretch_s));
    let whole = bytes.iter().zip(&truth.active).zip(&plan.intervals);
    for (at, ((&bytes, &active), planned)) in whole.enumerate() {
        let (volume, sessions) = (planned.bytes as f64 / bytes, planned.sessions / active);
        println!("{at}: {volume:.3} of the bytes, {sessions:.3} of {active:.1} sessions");
        assert!((volume - 1.0).abs() < 0.05, "interval {at}: {volume} of its bytes");
        assert!((sessions - 1.0).abs() < 0.12, "interval {at}: {sessions} of its sessions");
    }
    let mean = |each: &mut dyn Iterator<Item = f64>| each.take(12).sum::<f64>() / 12.0;
    let active = mean(&mut truth.active.iter().copied());
    let planned = mean(&mut plan.intervals.iter().map(|planned| planned.sessions));
    assert!((planned / active - 1.0).abs() < 0.05, "{planned} sessions for {active}");
}

/// Bursts of connections with pauses between them, in sessions of half a minute: gaps whose square of the coefficient
/// of variation is far above one.
#[test]
fn bursts_in_short_sessions_carry_the_bytes_of_each_interval() {
    let bursts = Habit {
        session_s: 60.0,
        gap_s: |rng| {
            let mean_s = if rng.unit() < 0.9 { 0.2 } else { 12.0 };
            rng.exponential(mean_s).min(60.0)
        },
        ..day()
    };
    let truth = truth(&bursts, 11);
    let model = model(truth.records(late), Some(bursts.stretch_s));
    let (plan, bytes) = (plan(&model, 1), bytes(&truth, bursts.stretch_s));
    for (at, (&bytes, planned)) in bytes.iter().zip(&plan.intervals).enumerate() {
        let volume = planned.bytes as f64 / bytes;
        println!(
            "{at}: {volume:.3} of the bytes, {:.1} of {:.1} sessions",
            planned.sessions, truth.active[at]
        );
        assert!((volume - 1.0).abs() < 0.05, "interval {at}: {volume} of its bytes");
    }
    let made = plan.len() as f64 / truth.connections.len() as f64;
    assert!((made - 1.0).abs() < 0.05, "{made} times the connections");
}

/// One file in a hundred is a giant, so that intervals differ by their number of giants: each carries its own
/// bytes, and not its number of files times the mean size.
#[test]
fn intervals_keep_their_own_bytes_where_few_giants_make_the_mean() {
    let giants = Habit {
        answer_bytes: |rng| match rng.below(100) {
            0 => 2e6,
            _ => parametric::lognormal(rng, 9.0, 1.2),
        },
        active: vec![15; 12],
        stretch_s: 100.0,
        ..habit(0)
    };
    let truth = truth(&giants, 12);
    let model = model(truth.records(punctual), Some(giants.stretch_s));
    let (plan, bytes) = (plan(&model, 1), bytes(&truth, giants.stretch_s));
    // (In the last interval, transfers that the original's end cuts are not files.)
    for (at, (&bytes, planned)) in bytes.iter().zip(&plan.intervals).enumerate().take(11) {
        let volume = planned.bytes as f64 / bytes;
        println!("{at}: {volume:.3} of {bytes:.0} bytes");
        assert!((volume - 1.0).abs() < 0.02, "interval {at}: {volume} of its bytes");
    }
}

/// Twice the sessions make twice the connections and carry twice the bytes.
#[test]
fn sessions_drive_the_plan() {
    let day = day();
    let model = model(truth(&day, 7).records(late), Some(day.stretch_s));
    let mut twice = model.clone();
    twice.intervals.iter_mut().for_each(|interval| interval.sessions *= 2.0);
    let (one, two) = (plan(&model, 1), plan(&twice, 1));
    for (what, ratio) in [
        ("connections", two.len() as f64 / one.len() as f64),
        ("bytes", two.bytes() as f64 / one.bytes() as f64),
    ] {
        assert!((ratio / 2.0 - 1.0).abs() < 0.02, "{ratio} times the {what}");
    }
}

/// Figure 7, and Table 1: the plan is as close to the original as a second sample of the original.
#[test]
fn a_plan_that_sessions_drive_follows_the_laws_of_the_original() {
    let day = day();
    let truth = truth(&day, 8);
    let model = model(truth.records(late), Some(day.stretch_s));
    let plan = plan(&model, 1);
    let sizes = truth.connections.iter().map(|made| made.bytes[0].max(made.bytes[1]) as f64);
    let mut starts: BTreeMap<[IpAddr; 2], Vec<f64>> = BTreeMap::new();
    for made in &truth.connections {
        starts.entry(made.ends).or_default().push(made.start_s);
    }
    let gaps = starts.values().flat_map(|starts| starts.windows(2).map(|two| two[1] - two[0]));
    let shares = |side: usize| {
        let mut counts: BTreeMap<IpAddr, f64> = BTreeMap::new();
        for made in &truth.connections {
            *counts.entry(made.ends[side]).or_default() += 1.0;
        }
        let all = truth.connections.len() as f64;
        let mut shares: Vec<f64> = counts.into_values().map(|count| count / all).collect();
        shares.sort_by(|a, b| b.total_cmp(a));
        shares
    };
    let laws = Laws {
        file_size: &Empirical::step_from(sizes.collect(), 2_048).expect("a law"),
        inter_connection: &Empirical::linear_from(gaps.collect(), 1_024).expect("a law"),
        sources: shares(0),
        destinations: shares(1),
    };
    assert_eq!(plan.ranks, (laws.sources.len(), laws.destinations.len()));
    for figure in judge(&performed(&plan), &laws, 1) {
        println!("{figure:?}");
        assert!(figure.ratio.expect("a floor") <= 2.0, "{figure:?}");
    }
}

/// A week of two sessions by night and twenty by day, with the default intervals, and with the paper's five minutes.
#[test]
fn a_week_of_records_keeps_its_days_and_nights() {
    const HOURS: usize = 24 * 7;
    let is_day = |hour: usize| (8..20).contains(&(hour % 24));
    let week = Habit {
        active: (0..HOURS).map(|hour| if is_day(hour) { 20 } else { 2 }).collect(),
        stretch_s: 3_600.0,
        session_s: 7_200.0,
        gap_s: |rng| 20.0 + 40.0 * rng.unit(),
        ..habit(0)
    };
    let records = truth(&week, 9).records(punctual);
    let model = |interval_s| model(records.clone(), interval_s);
    let by_the_hours = model(None);
    assert_eq!(by_the_hours.intervals.len(), HOURS / 2);
    for (at, interval) in by_the_hours.intervals.iter().enumerate() {
        assert_eq!(interval.sessions > 8.0, is_day(2 * at), "{at}: {interval:?}");
    }
    assert_eq!(model(Some(300.0)).intervals.len(), HOURS * 12);
}
