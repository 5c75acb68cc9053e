//! The DER paper's stress test (section 8, Table 4): its figures, in packets and as a fluid.

use nilometer_queue::broadcast::DqError;
use nilometer_queue::distributed::Variant;
use nilometer_sim::speedup::{SpeedupPlan, sweep};
use nilometer_sim::stress::{StressError, StressPlan, StressRun, compare, run};

mod fluid;

use fluid::{FluidOutcome, pour};

const NAMES: [&str; 3] = ["original", "reserved", "dq_plus"];

fn table4() -> StressPlan {
    StressPlan::default()
}

fn all(plan: &StressPlan) -> [StressRun; 3] {
    plan.variants().map(|variant| run(plan, variant).unwrap())
}

fn fluid(plan: &StressPlan, variant: Variant) -> (Vec<u64>, FluidOutcome) {
    let mut load = plan.load().unwrap();
    let fabric = plan.switch(variant).unwrap().fabric;
    let outcome = pour(fabric, variant, plan.periods_most(), &mut load).unwrap();
    (load.ends().to_vec(), outcome)
}

/// How far stage ends lie from T1 times 1, 3/2, 7/4 and 15/8.
fn beyond_ideal(run: &StressRun, t1: u64) -> Vec<i64> {
    let ideal = [8, 12, 14, 15].map(|eighths| (t1 * eighths / 8) as i64);
    assert_eq!(run.stages.len(), 4);
    run.stages.iter().zip(ideal).map(|(&end, ideal)| end as i64 - ideal).collect()
}

#[test]
fn equations_1_to_4_end_the_stages_at_400_600_700_and_750() {
    let plan = table4();
    assert_eq!(run(&plan, Variant::Original).unwrap().stages, [400, 600, 700, 750]);
}

#[test]
fn halving_t1_halves_every_stage() {
    // Not only at the paper's T1: wherever the ideal ends fall on broadcasts.
    for t1_periods in [800, 400, 200, 104, 136, 240, 312, 376] {
        let plan = StressPlan { t1_periods, ..table4() };
        let run = run(&plan, Variant::Original).unwrap();
        assert_eq!(beyond_ideal(&run, u64::from(t1_periods)), [0, 0, 0, 0], "T1 = {t1_periods}");
    }
}

#[test]
fn the_reserve_delays_the_later_stages() {
    let [_, reserved, dq_plus] = all(&table4());
    assert_eq!(reserved.stages, [400, 604, 712, 771]);
    for run in [reserved, dq_plus] {
        let late = beyond_ideal(&run, 400);
        assert!(late.iter().zip([0, 5, 13, 22]).all(|(&l, most)| (0..=most).contains(&l)));
    }
    let half = StressPlan { t1_periods: 200, ..table4() };
    let half = run(&half, half.variants()[1]).unwrap();
    assert!(beyond_ideal(&half, 200).iter().all(|late| (0..=11).contains(late)), "{half:?}");
}

#[test]
fn backlogs_at_t1_are_the_papers() {
    for run in all(&table4()) {
        // 70 Mb/s and 35 Mb/s for 200 ms, and the paper's "about".
        let near = |bytes: u64, want: f64| (bytes as f64 / want - 1.0).abs() < 0.02;
        let (output, input) = (run.output_backlog_bytes_at_t1, run.input_backlog_bytes_at_t1);
        assert!(near(output, 1.75e6) && near(output, 1.76e6), "{}: {output}", run.name);
        assert!(near(input, 875e3) && near(input, 880e3), "{}: {input}", run.name);
    }
}

#[test]
fn idle_queues_are_allocated_15_where_leftovers_are_dealt_again() {
    let [original, reserved, dq_plus] = all(&table4()).map(|run| run.idle_voq_mbps);
    assert_eq!(original, 0.0);
    assert!((reserved - 13.06).abs() < 0.1, "{reserved}");
    assert!((14.5..15.5).contains(&dq_plus), "{dq_plus}");
}

#[test]
fn rates_are_a_quarter_of_the_fabric_and_then_the_link() {
    for run in all(&table4()) {
        let before_t1 = &run.outcome.rows[10..400];
        assert!(before_t1.iter().all(|row| (row.rate_mbps[0] - 35.0).abs() < 2.0), "{}", run.name);
        assert!((run.last_stage_mbps - 70.0).abs() < 1.5, "{}", run.last_stage_mbps);
    }
    // "Input 1 continues to drain the other input queues at about 10 Mb/s."
    let reserved = run(&table4(), table4().variants()[1]).unwrap();
    let row = &reserved.outcome.rows[reserved.stages[3] as usize + 10];
    assert!((row.rate_mbps[0] - 10.0).abs() < 1.0, "{row:?}");
    assert!(row.rate_mbps[..4].iter().all(|rate| (8.0..20.0).contains(rate)), "{row:?}");
}

#[test]
fn minimum_rates_stay_below_the_fabric() {
    for run in all(&table4()) {
        assert!(run.outcome.minimum_rates_most_mbps < 140.0, "{}", run.name);
        for row in &run.outcome.rows {
            assert!(row.minimum_rate_mbps.iter().sum::<f64>() < 140.0);
            assert!(row.rate_mbps.iter().sum::<f64>() < 140.0 + 1e-6);
        }
    }
}

#[test]
fn no_output_idles_in_a_period_that_was_promised() {
    for run in all(&table4()) {
        let missed = run.outcome.missed;
        assert!(missed.promised_periods > 1500, "the promise was made often");
        assert_eq!(missed.violations, 0, "{}: {missed:?}", run.name);
        assert!(missed.promised_most_bytes <= 520.0, "{}: {missed:?}", run.name);
        // What is missed is missed before the first announcements: at most a period for each
        // output.
        assert!(missed.first_bytes > 0.0 && missed.first_bytes <= 5.0 * 4375.0);
        assert!(missed.promised_bytes + missed.sparse_bytes < 2000.0, "{}: {missed:?}", run.name);
    }
}

#[test]
fn packets_are_conserved_and_the_fabric_is_never_congested() {
    for run in all(&table4()) {
        let o = &run.outcome;
        assert!(o.balanced);
        assert_eq!(o.in_packets, o.out_packets + o.drop_packets + o.inside_packets);
        assert!(o.drop_packets == 0 && o.in_packets > 20_000);
        assert!(o.crossing_most_bytes <= 8750 + 4 * 520, "{}", o.crossing_most_bytes);
    }
}

#[test]
fn the_fluid_ends_its_stages_with_the_packets() {
    let plan = table4();
    for (run, variant) in all(&plan).into_iter().zip(plan.variants()) {
        let (ends, fluid) = fluid(&plan, variant);
        let apart = run.stages.iter().zip(&ends).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(apart <= Some(3), "{}: {:?} and {ends:?}", run.name, run.stages);
        // Backlogs agree within the packets that are under way, all of stages 1 and 2.
        for (row, (output, input)) in run.outcome.rows.iter().zip(&fluid.first).take(600) {
            let output_apart = (row.output_backlog_bytes[0] as f64 - output).abs();
            let input_apart = (row.input_backlog_bytes[0] as f64 - input).abs();
            assert!(output_apart < 10.0 * 520.0 && input_apart < 4.0 * 520.0, "{row:?}");
        }
        assert_eq!(fluid.missed.violations, 0);
        assert!((run.idle_voq_mbps - fluid.idle_voq_mbps[400]).abs() < 0.01);
    }
}

#[test]
fn the_fluid_repeats_an_independent_replay() {
    // Stage ends and the largest output backlog (kB) of a replay written elsewhere, by B_min.
    let replay = [
        (0, [400, 600, 700, 750], 3145.0),
        (520, [400, 604, 712, 771], 2779.0),
        (4160, [400, 605, 714, 774], 2720.0),
        (16_640, [400, 607, 718, 780], 2615.0),
        (66_560, [400, 615, 735, 805], 2351.0),
    ];
    for (minimum_backlog_bytes, want, most_kb) in replay {
        let plan = StressPlan { minimum_backlog_bytes, ..table4() };
        let variant = plan.variants()[usize::from(minimum_backlog_bytes > 0)];
        let (ends, outcome) = fluid(&plan, variant);
        // It ended a stage at the first broadcast after the backlogs were equal, which is up to one
        // later than the nearest, in each stage after the first.
        for (stage, (end, want)) in ends.iter().zip(want).enumerate() {
            let early = want as i64 - *end as i64;
            assert!((0..=stage as i64).contains(&early), "{minimum_backlog_bytes}: {ends:?}");
        }
        let most = outcome.output_most_bytes / 1e3;
        assert!((most / most_kb - 1.0).abs() < 0.01, "B_min {minimum_backlog_bytes}: {most}");
    }
}

#[test]
fn a_slow_broadcast_moves_no_stage() {
    let plan = StressPlan { broadcast_delay: table4().period, ..table4() };
    let [original, reserved, _] = all(&plan);
    assert_eq!(original.stages, [400, 600, 700, 750]);
    assert!(beyond_ideal(&reserved, 400).iter().all(|late| (0..=22).contains(late)));
    let prompt = run(&table4(), Variant::Original).unwrap().outcome.missed.first_bytes;
    assert!(original.outcome.missed.first_bytes > 1.5 * prompt, "but first packets wait longer");
}

#[test]
fn the_report_holds_all_three() {
    let result = compare(&table4(), 0).unwrap();
    assert_eq!(result.variants.iter().map(|v| v.name).collect::<Vec<_>>(), NAMES);
    assert_eq!((result.name, &result.stages), (NAMES[0], &result.variants[0].stages));
    assert_eq!(result.idle_violations, 0);
    assert!(result.idle_bytes_first_periods > 0.0);
    assert_eq!(result.series[400].output_backlog_bytes[0], result.output_backlog_bytes_at_t1);
    assert!(result.series.iter().enumerate().all(|(k, row)| row.period == k as u64));
    assert_eq!(compare(&table4(), 2).unwrap().name, NAMES[2]);
}

#[test]
fn invalid_values_are_refused() {
    let refused = |plan: StressPlan| run(&plan, Variant::Original).unwrap_err();
    let plan = table4();
    assert_eq!(refused(StressPlan { sources: 9, ..plan }), StressError::Sources(9));
    assert_eq!(refused(StressPlan { stages: 1, ..plan }), StressError::Stages(1));
    assert_eq!(refused(StressPlan { t1_periods: 0, ..plan }), StressError::FirstStage(0));
    assert_eq!(refused(StressPlan { packet_bytes: 0, ..plan }), StressError::PacketBytes);
    for most in [
        StressPlan { sources: plan.ports, ..plan },
        StressPlan { stages: plan.ports, ..plan },
        StressPlan { stages: 2, ..plan },
        StressPlan { t1_periods: 1, ..plan },
        StressPlan { t1_periods: 100_000, ..plan },
    ] {
        assert!(most.load().is_ok(), "{most:?}");
    }
    let long = StressPlan { t1_periods: 100_001, ..plan }.load();
    assert_eq!(long.err(), Some(StressError::FirstStage(100_001)));
    let many = StressPlan { stages: plan.ports + 1, ..plan }.load();
    assert_eq!(many.err(), Some(StressError::Stages(plan.ports + 1)));
    let slow = refused(StressPlan { speedup: 0.5, ..plan });
    assert_eq!(slow, StressError::Switch(DqError::Speedup(0.5)));
}

#[test]
fn a_speedup_of_two_keeps_every_promise_and_one_does_not() {
    let plan = SpeedupPlan {
        speedups: vec![1.0, 1.4, 2.0],
        hostile_loads: 4,
        hostile_periods: 300,
        ..SpeedupPlan::default()
    };
    let rows = sweep(&plan).unwrap();
    assert_eq!(rows.len(), 3 * 4 * 5);
    for row in &rows {
        // Where the urgencies fit, the promise is kept; without a reserve, whole packets need a
        // margin.
        let fits = match row.variant {
            "original" => row.urgency_most <= 0.75,
            "dq_plus_deferred" => false,
            _ => row.urgency_most <= 1.0,
        };
        assert!(!fits || row.violations == 0, "{row:?}");
        assert!(row.promised_bytes <= row.missed_bytes);
    }
    let of = |speedup: f64, name: &str| {
        let mine = rows.iter().filter(|row| row.speedup == speedup && row.variant == name);
        mine.map(|row| row.violations).sum::<u64>()
    };
    for name in NAMES {
        assert_eq!(of(2.0, name), 0, "{name}");
        assert!(of(1.0, name) > of(1.4, name) && of(1.4, name) > 0, "{name}");
    }
    assert!(of(2.0, "dq_plus_deferred") > 0, "deferring urgency breaks the stress test");
    assert_eq!(rows, sweep(&plan).unwrap());
}
