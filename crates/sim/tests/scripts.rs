//! Simulated hosts play scripts: the packets of a run show what its plan prescribes.

#[path = "scripts/observed.rs"]
mod observed;
#[path = "scripts/random.rs"]
mod random;

use nilometer_conversation::{Act, Connection, Opening, Side, Step};
use nilometer_sim::{FlowOutcome, Network, Outcome, Scenario, assemble};
use nilometer_traffic::script::Script;
use nilometer_traffic::vector_plan::{Draw, plan_of_model};
use nilometer_traffic::{Plan, TrafficModel};
use nilometer_wire::Time;
use observed::{DELAY_NS, model, scenario, scripts_of, sent_by};
use serde_json::json;

use Side::{Client, Server};

const MS: u64 = 1_000_000;
/// What a pause may be longer by: the way from the observer and back, and transmission.
const LATE_NS: u64 = DELAY_NS + MS;

fn exact(change: serde_json::Value) -> Scenario {
    let mut scenario = scenario(change);
    scenario.model[0].exact = true;
    scenario
}

fn plan(model: &TrafficModel, draw: Draw) -> Plan {
    plan_of_model(model, draw, &mut |planner, slots| planner.arrivals(slots)).expect("a plan")
}

/// Compares the observed steps with a script's: the same, with pauses longer by the path's delay at most.
fn assert_as_scripted(script: &Script, seen: &Connection) {
    assert_eq!(seen.steps.len(), script.steps.len(), "{:#?}\n{script:#?}", seen.steps);
    for (number, (made, expected)) in seen.steps.iter().zip(&script.steps).enumerate() {
        let context = || {
            format!("step {number}: {made:?} for {expected:?} in {:#?}\n{script:#?}", seen.steps)
        };
        assert_eq!((made.by, made.awaits), (expected.by, expected.awaits), "{}", context());
        let is_first = seen.steps[..number].iter().all(|step| step.by != made.by);
        // What comes first waits for the handshake, too.
        let late_ns = if is_first { 2 * DELAY_NS + LATE_NS } else { LATE_NS };
        // Both packets that make a pause may have waited for others on the way to the observer.
        // A server's clock begins when it accepts, one and a half round trips after the SYN.
        let is_greeting = is_first && made.by == Server && made.awaits == 0;
        let accepts_ns = if is_greeting { 3 * DELAY_NS } else { 0 };
        let least = (expected.pause_ns + accepts_ns).saturating_sub(MS / 10);
        let pauses = least..=expected.pause_ns + late_ns;
        assert!(pauses.contains(&made.pause_ns), "{}", context());
        match (made.act, expected.act) {
            (
                Act::Send { bytes, segments, took_ns },
                Act::Send { bytes: all, segments: number, took_ns: time_ns },
            ) => {
                assert_eq!((bytes, segments), (all, number), "{}", context());
                // Of a bulk the last segment leaves one segment's time sooner; a window takes a round trip.
                let least = time_ns - time_ns / 16;
                let times = least.saturating_sub(MS)..=time_ns + 4 * LATE_NS;
                assert!(times.contains(&took_ns), "{}", context());
            }
            (made, expected) => assert_eq!(made, expected, "{}", context()),
        }
    }
}

/// SYNs of a client that tries for `tried_ns`, with a first timeout of a second that doubles.
fn syns(tried_ns: u64) -> u32 {
    [0, 1, 3, 7].into_iter().filter(|second| second * 1_000 * MS < tried_ns).count() as u32
}

/// Plays scripts exactly, and holds what is seen of each to its plan.
fn hold(scripts: &[Script], apart_s: f64) -> (Vec<Connection>, Outcome) {
    let model = model(scripts, apart_s);
    let plan = plan(&model, Draw::Exact);
    let (outcome, observer, _) = observed::observed(&exact(json!({})), &model, 3);
    let found = observer.connections();
    assert_eq!((found.len(), outcome.flows.len()), (scripts.len(), scripts.len()));
    for ((script, seen), flow) in scripts_of(&plan).into_iter().zip(&found).zip(&outcome.flows) {
        match script.opening {
            Opening::Refused => {
                assert_eq!((seen.opening, seen.syns), (Opening::Refused, 1));
                assert!(seen.steps.is_empty() && flow.finished.is_some());
                continue;
            }
            Opening::Unanswered => {
                assert_eq!((seen.opening, seen.syns), (Opening::Unanswered, syns(script.tried_ns)));
                assert_eq!(
                    (seen.of(Side::Server).packets, flow.timeouts + 1),
                    (0, seen.syns.into())
                );
                let gave_up = flow.finished.expect("it gives up").since(flow.start);
                assert_eq!(gave_up.as_nanos(), script.tried_ns);
                continue;
            }
            Opening::Seen | Opening::Unseen => assert_eq!(seen.opening, Opening::Seen),
        }
        assert_as_scripted(script, seen);
        assert_eq!(seen.has_time_stamps, script.has_time_stamps);
        for side in Side::BOTH {
            assert_eq!(seen.of(side).payload_bytes, sent_by(script, side));
            assert_eq!(seen.of(side).resent_packets, 0);
        }
        assert!(flow.finished.is_some(), "{script:#?}");
    }
    (found, outcome)
}

fn random_scripts(seed: u64) -> Vec<Script> {
    (0..600).map(|number| random::script(seed, number)).collect()
}

#[test]
fn packets_of_random_scripts_are_the_scripts_again() {
    for seed in 0..8 {
        let (found, _) = hold(&random_scripts(seed), 0.25);
        let steps = || found.iter().flat_map(|seen| &seen.steps);
        let of = |act| steps().filter(|step| step.act == act).count();
        let concurrent = found.iter().filter(|seen| seen.is_concurrent).count();
        let openings = [Opening::Refused, Opening::Unanswered]
            .map(|opening| found.iter().filter(|seen| seen.opening == opening).count());
        assert!(concurrent > 100 && openings.iter().all(|&count| count > 10), "{openings:?}");
        assert!(of(Act::Fin) > 500 && of(Act::Reset) > 50 && steps().count() > 2_500);
    }
}

fn seen(steps: Vec<Step>) -> Script {
    let (opening, tried_ns) = (Opening::Seen, 0);
    Script {
        opening,
        steps,
        tried_ns,
        has_time_stamps: true,
        segment_bytes: 1_448,
        acks_each: [false; 2],
    }
}

fn act(by: Side, awaits: u64, pause_ms: u64, act: Act) -> Step {
    Step { by, awaits, pause_ns: pause_ms * MS, act }
}

fn sends(
    by: Side,
    awaits: u64,
    pause_ms: u64,
    (bytes, segments, took_ms): (u64, u32, u64),
) -> Step {
    act(by, awaits, pause_ms, Act::Send { bytes, segments, took_ns: took_ms * MS })
}

fn two_exchanges() -> Script {
    seen(vec![
        sends(Client, 0, 0, (400, 1, 0)),
        sends(Server, 400, 25, (900, 1, 0)),
        sends(Client, 900, 40, (300, 1, 0)),
        sends(Server, 700, 7, (50, 1, 0)),
        act(Client, 950, 15, Act::Fin),
        act(Server, 701, 9, Act::Fin),
    ])
}

/// Eight times the network is waited for: a handshake, two exchanges, two FINs.
#[test]
fn a_slower_network_delays_later_steps() {
    let model = model(&[two_exchanges()], 1.0);
    let took_ns = |delay: &str| {
        let (outcome, ..) = observed::observed(&exact(json!({"delay": delay})), &model, 1);
        let flow = &outcome.flows[0];
        flow.finished.expect("it ends").since(flow.start).as_nanos()
    };
    let (fast_ns, slow_ns) = (took_ns("4 ms"), took_ns("54 ms"));
    assert!((fast_ns).abs_diff(8 * DELAY_NS + (25 + 40 + 7 + 15 + 9) * MS) < MS / 10, "{fast_ns}");
    assert_eq!(slow_ns - fast_ns, 8 * 50 * MS);
}

#[test]
fn a_fin_without_a_pause_goes_with_the_data_and_segments_stay_apart() {
    let (found, _) = hold(
        &[seen(vec![
            sends(Client, 0, 0, (50, 1, 0)),
            sends(Server, 50, 0, (2_400, 3, 0)),
            act(Server, 50, 0, Act::Fin),
            sends(Client, 2_401, 5, (2_400, 4, 30)),
            act(Client, 2_401, 0, Act::Fin),
        ])],
        1.0,
    );
    let carried = Side::BOTH.map(|side| found[0].of(side));
    assert_eq!(carried.map(|side| side.data_packets), [5, 3]);
    // A SYN each, and acknowledgements: the client's of three segments, and the server's, which has answered soon, of
    // four segments by twos. No FIN went alone.
    assert_eq!(carried.map(|side| side.packets - side.data_packets), [4, 3]);
}

#[test]
fn a_bulk_keeps_its_rate_where_the_path_is_faster() {
    let bulk = (300_000, 208, 1_500);
    let script = seen(vec![
        sends(Client, 0, 0, (100, 1, 0)),
        sends(Server, 100, 0, bulk),
        act(Server, 100, 30, Act::Reset),
    ]);
    let (found, _) = hold(std::slice::from_ref(&script), 1.0);
    let Act::Send { took_ns, .. } = found[0].steps[1].act else { panic!("it sends") };
    // 207 full segments lie before the last one, at 5,000 ns a byte.
    assert!(took_ns.abs_diff(207 * 1_448 * 5_000) < MS / 10, "{took_ns}");
    assert!(found[0].steps[2].pause_ns.abs_diff(30 * MS) < MS / 10, "a reset after the last of it");
}

/// The part is over after 200 s, the run after 220.
#[test]
fn connections_open_at_the_end_of_the_plan_stay_open() {
    let waits = seen(vec![
        sends(Client, 0, 150_000, (100, 1, 0)),
        sends(Server, 100, 40_000, (200, 1, 0)),
        act(Client, 200, 15_000, Act::Fin),
        act(Server, 101, 1, Act::Fin),
    ]);
    // Its answer comes 3 ms too late.
    let hears =
        seen(vec![sends(Client, 0, 199_995, (100, 1, 0)), sends(Server, 100, 0, (9, 1, 0))]);
    let scripts = [waits, hears];
    let (outcome, observer, _) = observed::observed(&exact(json!({})), &model(&scripts, 0.0), 1);
    let found = observer.connections();
    let steps: Vec<usize> = found.iter().map(|seen| seen.steps.len()).collect();
    assert_eq!(steps, [2, 1], "{found:#?}");
    assert!(outcome.flows.iter().all(|flow| flow.finished.is_none()));
    let spoke_last = observer.passed.iter().rfind(|(_, packet)| packet.segment.length > 0);
    assert!(spoke_last.expect("packets").0 < Time::from_nanos(200_000 * MS));
}

/// The third begins 10 s before the end; TCP itself gives up after seven SYNs, in 127 s.
#[test]
fn an_unanswered_client_gives_up_within_the_plan() {
    let tries = |tried_s: u64| Script {
        opening: Opening::Unanswered,
        tried_ns: tried_s * 1_000 * MS,
        ..seen(Vec::new())
    };
    let gave_up = |scripts: &[Script], apart_s| {
        let (outcome, ..) = observed::observed(&exact(json!({})), &model(scripts, apart_s), 1);
        let seconds = |flow: &FlowOutcome| Some(flow.finished?.since(flow.start).as_secs_f64());
        outcome.flows.iter().map(seconds).collect::<Vec<_>>()
    };
    assert_eq!(gave_up(&[tries(9), tries(9), tries(15)], 95.0), [Some(9.0), Some(9.0), None]);
    assert_eq!(gave_up(&[tries(190)], 1.0), [Some(127.0)]);
}

/// Bytes arrive whatever the path does; only those followed by a reset may be lost for good.
#[test]
fn scripts_are_played_to_the_end_over_a_bad_path() {
    // (An unanswered SYN may be lost before the observer sees it.)
    let mut scripts = random_scripts(7);
    scripts.retain(|script| script.opening != Opening::Unanswered);
    let model = model(&scripts, 0.25);
    let plan = plan(&model, Draw::Exact);
    let change = json!({"loss": 0.03, "reorder": 0.05, "reorder_by": "1 ms", "duplicate": 0.01});
    let (outcome, observer, _) = observed::observed(&exact(change), &model, 3);
    assert!(outcome.retransmits() > 200, "{}", outcome.retransmits());
    let found = observer.connections();
    assert_eq!(found.len(), scripts.len());
    for ((script, seen), flow) in scripts_of(&plan).into_iter().zip(&found).zip(&outcome.flows) {
        if script.steps.iter().any(|step| step.act == Act::Reset) {
            continue;
        }
        assert!(flow.finished.is_some(), "{script:#?}\n{seen:#?}");
        for side in Side::BOTH {
            assert_eq!(seen.of(side).payload_bytes, sent_by(script, side), "{script:#?}");
        }
    }
}

#[test]
fn a_seed_draws_the_plan_and_repeats_the_run() {
    let model = model(&random_scripts(1), 0.25);
    let [one, again, other] =
        [5, 5, 6].map(|seed| observed::observed(&scenario(json!({})), &model, seed));
    assert_eq!((one.0.journal, &one.2), (again.0.journal, &again.2));
    assert_ne!(one.0.journal.digest, other.0.journal.digest);
    for (seed, (outcome, observer, digests)) in [(5, &one), (6, &other)] {
        let plan = plan(&model, Draw::Seed(seed));
        assert_eq!(digests[..], [plan.digest()]);
        let starts = outcome.flows.iter().map(|flow| flow.start);
        assert!(starts.eq(plan.connections.iter().map(|planned| planned.start)));
        for (script, seen) in scripts_of(&plan).into_iter().zip(observer.connections()) {
            let payload = Side::BOTH.map(|side| seen.of(side).payload_bytes);
            assert_eq!(payload, Side::BOTH.map(|side| sent_by(script, side)));
        }
    }
    assert_ne!(one.2, other.2);
    assert_ne!(one.2[0], plan(&model, Draw::Exact).digest());
}

/// An engine with an event for every hop delivers the same packets at the same moments.
#[test]
fn scripts_are_the_same_with_an_event_for_each_hop() {
    let (model, scenario) = (model(&random_scripts(2), 0.25), exact(json!({})));
    let played = |fuses| {
        let assembly = assemble(&scenario, std::slice::from_ref(&model), 1).expect("a network");
        let mut network = Network::new(assembly.plan, (), fuses);
        network.run_until(Time::ZERO + assembly.duration);
        assert!(network.balances());
        let journal = network.journal();
        assert!(journal.deliveries > 30_000, "{journal:?}");
        (journal.digest, journal.sent, journal.deliveries)
    };
    assert_eq!(played(true), played(false));
}

#[test]
fn only_a_model_with_sessions_is_played_exactly() {
    let mut model = model(&[two_exchanges()], 1.0);
    model.vectors = None;
    let refused = assemble(&exact(json!({})), &[model], 1).expect_err("laws alone").to_string();
    assert!(refused.contains("[[model]] number 1: exact plays the connections"), "{refused}");
}
