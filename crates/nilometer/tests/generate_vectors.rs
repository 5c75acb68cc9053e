//! Scripted connections on loopback: their packets show what their scripts prescribe.

use nilometer_stat::Rng;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use nilometer_conversation::{Act, Connection, Follower, Limits, Opening, Side, Step};
use nilometer_lab::generate::{
    Execution, LiveCounters, Outcome, ServerReport, VectorClient, VectorConfig, VectorServer,
};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::offload;
use nilometer_linux::privilege::{self, Privilege};
use nilometer_linux::ring::{Ring, RingConfig};
use nilometer_traffic::plan::PlannedConnection;
use nilometer_traffic::script::Script;
use nilometer_wire::Time;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{Parsed, parse};

#[path = "generate_vectors/gone.rs"]
mod gone;

use Side::{Client, Server};

const MS: u64 = 1_000_000;
/// The segment of an Ethernet with time stamps.
const SEGMENT_BYTES: u16 = 1_448;

fn send(by: Side, awaits: u64, pause_ms: u64, bytes: u64) -> Step {
    sends(by, awaits, pause_ms, (bytes, bytes.div_ceil(u64::from(SEGMENT_BYTES)) as u32, 0))
}

fn sends(
    by: Side,
    awaits: u64,
    pause_ms: u64,
    (bytes, segments, took_ms): (u64, u32, u64),
) -> Step {
    let act = Act::Send { bytes, segments, took_ns: took_ms * MS };
    Step { by, awaits, pause_ns: pause_ms * MS, act }
}

fn act(by: Side, awaits: u64, pause_ms: u64, act: Act) -> Step {
    Step { by, awaits, pause_ns: pause_ms * MS, act }
}

fn seen(steps: Vec<Step>) -> Script {
    Script {
        opening: Opening::Seen,
        steps,
        tried_ns: 0,
        has_time_stamps: true,
        segment_bytes: 1_448,
        acks_each: [false; 2],
    }
}

fn unseen_server(opening: Opening, tried_ms: u64) -> Script {
    Script {
        opening,
        steps: Vec::new(),
        tried_ns: tried_ms * MS,
        has_time_stamps: true,
        segment_bytes: 1_448,
        acks_each: [false; 2],
    }
}

fn planned(index: u64, start_us: u64) -> PlannedConnection {
    PlannedConnection {
        start: Time::from_nanos(start_us * 1_000),
        session: (index % 40) as u32,
        interval: 0,
        source: Ipv4Addr::new(127, 1, (index % 7) as u8, 1 + (index % 250) as u8).into(),
        destination: Ipv4Addr::new(127, 2, (index % 5) as u8, 1 + (index % 199) as u8).into(),
        size_bytes: 0,
        request_bytes: 0,
        segment_bytes: SEGMENT_BYTES,
        source_port: 20_000 + (index % 10_000) as u16,
        script: Some(index as u32),
    }
}

/// A port that is free, like the two after it: another one each time, and below those that the kernel gives to
/// connections, so that no test beside this one takes it meanwhile.
fn free_ports() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    let number = || std::process::id().wrapping_add(NEXT.fetch_add(1, Relaxed));
    let mut ports = (0..1_000).map(|_| 10_000 + 3 * (number() % 6_000) as u16);
    ports.find(|port| (*port..port + 3).all(is_free)).expect("three free ports in a row")
}

/// The outcome of a run: the clients' executions, the server's account, and the greatest lateness of each.
struct Played {
    executions: Vec<Execution>,
    served: ServerReport,
    late_ns: [u64; 2],
}

impl Played {
    /// By how much a step may seem late: `milliseconds`, and the delay of the engines by a busy machine, ns.
    fn late_by(&self, milliseconds: u64) -> u64 {
        milliseconds * MS + self.late_ns.iter().sum::<u64>()
    }
}

/// Plays `plan` for a limited time; `seen` is called before open connections are released.
fn play(
    plan: &[PlannedConnection],
    scripts: &[Script],
    length: Duration,
    seen: impl FnOnce(),
) -> Played {
    let config = VectorConfig {
        open_max: 2_000,
        ..VectorConfig::new(free_ports(), Instant::now() + Duration::from_millis(30), length)
    };
    let any: IpAddr = Ipv4Addr::UNSPECIFIED.into();
    let server = VectorServer::bind(config.clone(), &[any]).unwrap();
    let client = VectorClient::new(config).unwrap();
    assert_eq!(client.congestion(), "cubic");
    let (live, server_live) = (LiveCounters::new(), LiveCounters::new());
    let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (executions, served) = thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(plan, scripts, &server_live, &over));
        let threads = NonZeroUsize::new(2).unwrap();
        let played = client.run_threads(threads, plan, scripts, &live, &stop);
        thread::sleep(Duration::from_millis(60));
        over.store(true, Relaxed);
        (played.unwrap(), serving.join().unwrap().unwrap())
    });
    seen();
    let progress = live.progress();
    assert_eq!((progress.started, progress.open), (plan.len() as u64, 0));
    Played { executions, served, late_ns: [client.late_ns(), server.late_ns()] }
}

fn outcomes(executions: &[Execution]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for execution in executions {
        *counts.entry(format!("{:?}", execution.outcome)).or_default() += 1;
    }
    counts
}

/// Bytes that a side's steps send.
fn sent_by(script: &Script, side: Side) -> u64 {
    let own = script.steps.iter().filter(|step| step.by == side);
    own.map(|step| if let Act::Send { bytes, .. } = step.act { bytes } else { 0 }).sum()
}

/// Follows what passes the loopback of this thread's namespace until `over` is set.
fn follow(ring: &mut Ring, over: &AtomicBool) -> Vec<Connection> {
    let (mut follower, mut found) = (Follower::new(Limits::default()), Vec::new());
    loop {
        let is_over = over.load(Relaxed);
        let came = ring.poll(60).unwrap();
        ring.drain(|seen| {
            // On a loopback each frame leaves and comes in.
            if !seen.outgoing
                && let Parsed::Ip(packet) =
                    parse(LinkType::Ethernet, seen.frame, seen.original_bytes)
            {
                follower.observe(seen.stamp_ns, &packet, &mut |made| found.push(made));
            }
        });
        if is_over && !came {
            break;
        }
    }
    follower.flush(&mut |made| found.push(made));
    assert_eq!(ring.statistics().unwrap().dropped, 0);
    found
}

/// Plays scripts one beside the other in a namespace of their own, and follows their packets; none without
/// the privilege.
fn observed(test: &str, scripts: &[Script], length_ms: u64) -> Option<(Vec<Connection>, Played)> {
    match privilege::privilege() {
        Privilege::Root => {}
        other => {
            println!("skipped {test}: it needs root (found: {other})");
            return None;
        }
    }
    let plan: Vec<_> =
        (0..scripts.len() as u64).map(|index| planned(index, index * 1_000)).collect();
    let namespace = Namespace::new().unwrap();
    let (mut found, played) = namespace
        .enter(|| {
            let config =
                RingConfig { block_bytes: 1 << 18, blocks: 128, retire_ms: 20, snap_bytes: None };
            // A loopback keeps some, but none that makes one frame of many segments.
            let _ = offload::switch_off("lo");
            let mut ring = Ring::open("lo", config)?;
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let following = scope.spawn(|| follow(&mut ring, &over));
                let mut found = Vec::new();
                let played = play(&plan, scripts, Duration::from_millis(length_ms), || {
                    over.store(true, Relaxed);
                    found = following.join().unwrap();
                });
                Ok((found, played))
            })
        })
        .unwrap();
    found.sort_by_key(|connection| connection.client.port());
    let ports: Vec<u16> = found.iter().map(|connection| connection.client.port()).collect();
    let planned_ports: Vec<u16> = plan.iter().map(|planned| planned.source_port).collect();
    assert_eq!(ports, planned_ports);
    Some((found, played))
}

/// Compares the steps that were seen with a script's: the same, with pauses that may be `late_ns` longer. A stamp is taken after
/// the clock was read, so that a pause lacks up to half a millisecond, and by how much the step before it seems late.
fn assert_as_scripted(script: &Script, seen: &Connection, late_ns: u64) {
    assert_eq!(seen.steps.len(), script.steps.len(), "{seen:#?}");
    let mut previous_late_ns = 0;
    for (number, (made, expected)) in seen.steps.iter().zip(&script.steps).enumerate() {
        let context = format!("step {number}: {made:?} for {expected:?} in {:#?}", seen.steps);
        assert_eq!((made.by, made.awaits), (expected.by, expected.awaits), "{context}");
        let least = expected.pause_ns.saturating_sub(MS / 2 + previous_late_ns);
        previous_late_ns = made.pause_ns.saturating_sub(expected.pause_ns);
        assert!((least..=expected.pause_ns + late_ns).contains(&made.pause_ns), "{context}");
        match (made.act, expected.act) {
            (
                Act::Send { bytes, segments, took_ns },
                Act::Send { bytes: all, segments: number, took_ns: time_ns },
            ) => {
                assert_eq!(bytes, all, "{context}");
                if number < 16 {
                    assert_eq!(segments, number, "{context}");
                }
                let off_ns = took_ns.abs_diff(time_ns);
                assert!(off_ns <= time_ns / 4 + 5 * MS, "{context}");
            }
            (made, expected) => assert_eq!(made, expected, "{context}"),
        }
    }
}

/// A request, an answer, a thought, and another; the client closes first.
fn two_exchanges() -> Script {
    seen(vec![
        send(Client, 0, 12, 400),
        send(Server, 400, 25, 20_000),
        send(Client, 20_000, 40, 300),
        send(Server, 700, 7, 900),
        act(Client, 20_900, 15, Act::Fin),
        act(Server, 701, 9, Act::Fin),
    ])
}

/// The server speaks first, and its FIN goes with its last answer.
fn server_first() -> Script {
    seen(vec![
        send(Server, 0, 20, 80),
        send(Client, 80, 10, 30),
        send(Server, 30, 10, 1_000),
        act(Server, 30, 0, Act::Fin),
        act(Client, 1_081, 6, Act::Fin),
    ])
}

/// The client has sent everything, and keeps receiving.
fn half_closed() -> Script {
    seen(vec![
        send(Client, 0, 5, 250),
        act(Client, 0, 10, Act::Fin),
        send(Server, 251, 30, 5_000),
        send(Server, 251, 600, 700),
        act(Server, 251, 20, Act::Fin),
    ])
}

fn reset_by(side: Side) -> Script {
    let awaits = if side == Client { 5_000 } else { 100 };
    let steps = vec![
        send(Client, 0, 5, 100),
        send(Server, 100, 10, 5_000),
        act(side, awaits, 30, Act::Reset),
    ];
    seen(steps)
}

/// Two independent lists: each end sends by its own clock alone.
fn both_at_once() -> Script {
    let mut steps = Vec::new();
    for (number, bytes) in [10, 20, 30].into_iter().enumerate() {
        steps.push(send(Client, 0, if number == 0 { 10 } else { 40 }, bytes));
        steps.push(send(Server, 0, if number == 0 { 30 } else { 40 }, bytes + 1));
    }
    steps.push(act(Client, 0, 40, Act::Fin));
    steps.push(act(Server, 0, 40, Act::Fin));
    seen(steps)
}

#[test]
fn a_connection_follows_its_script() {
    let scripts = [two_exchanges(), server_first(), half_closed()];
    let Some((found, played)) = observed("scripted connections", &scripts, 1_500) else { return };
    for (script, seen) in scripts.iter().zip(&found) {
        assert_as_scripted(script, seen, played.late_by(5));
        assert!(!seen.is_concurrent);
    }
    for (script, execution) in scripts.iter().zip(&played.executions) {
        assert_eq!(execution.outcome, Outcome::Completed);
        assert_eq!(execution.received_bytes, sent_by(script, Server));
        assert!(execution.finished_ns.is_some() && execution.local_port >= 20_000);
    }
    assert_eq!((played.served.accepted, played.served.completed), (3, 3));
    // A close without a pause goes with the data.
    assert_eq!(found[1].of(Server).packets, found[1].of(Server).data_packets + 2 + 1);
}

#[test]
fn either_end_resets_where_its_script_does() {
    let scripts = [reset_by(Client), reset_by(Server)];
    let Some((found, played)) = observed("resets", &scripts, 800) else { return };
    for (script, seen) in scripts.iter().zip(&found) {
        assert_as_scripted(script, seen, played.late_by(5));
    }
    assert_eq!(outcomes(&played.executions), BTreeMap::from([("Completed".to_owned(), 2)]));
    assert_eq!((played.served.completed, played.served.broken), (2, 0));
    assert!(played.executions.iter().all(|execution| execution.received_bytes == 5_000));
}

#[test]
fn refused_and_unanswered_openings_are_played() {
    let scripts = [unseen_server(Opening::Refused, 0), unseen_server(Opening::Unanswered, 1_200)];
    let Some((found, played)) = observed("refusals", &scripts, 2_000) else { return };
    let openings: Vec<_> = found.iter().map(|connection| connection.opening).collect();
    assert_eq!(openings, [Opening::Refused, Opening::Unanswered]);
    assert_eq!((found[0].syns, found[1].syns), (1, 2), "the second is tried for 1.2 s");
    assert!(found.iter().all(|connection| connection.steps.is_empty()));
    assert_eq!(found[1].of(Server).packets, 0);
    assert_eq!(outcomes(&played.executions), BTreeMap::from([("Completed".to_owned(), 2)]));
    let tried = played.executions[1];
    let tried_ns = tried.finished_ns.unwrap() - tried.started_ns;
    assert!((1_200 * MS..1_260 * MS).contains(&tried_ns), "{tried_ns}");
    assert_eq!(played.served.accepted, 0);
}

#[test]
fn small_segments_keep_their_times_and_a_bulk_its_rate() {
    let scripts = [seen(vec![
        sends(Client, 0, 10, (200, 10, 50)),
        sends(Server, 200, 10, (300_000, 208, 300)),
        send(Server, 200, 600, 50),
        act(Server, 200, 10, Act::Fin),
        act(Client, 300_051, 10, Act::Fin),
    ])];
    let Some((found, played)) = observed("paced traffic", &scripts, 2_000) else { return };
    // TCP is checked only now and then for having sent the last byte of a bulk transfer.
    assert_as_scripted(&scripts[0], &found[0], played.late_by(10));
    assert_eq!(found[0].of(Client).data_packets, 10);
    assert_eq!(played.executions[0].outcome, Outcome::Completed);
}

#[test]
fn ends_that_await_nothing_follow_their_clocks() {
    let script = both_at_once();
    let Some((found, played)) = observed("concurrent steps", std::slice::from_ref(&script), 1_000)
    else {
        return;
    };
    let what = |steps: &[Step]| -> Vec<_> {
        steps.iter().map(|step| (step.by, step.act == Act::Fin)).collect()
    };
    assert_eq!(what(&found[0].steps), what(&script.steps), "{:#?}", found[0].steps);
    for (number, step) in found[0].steps.iter().enumerate() {
        // What a step heard before it, without having waited for it, was 20 ms ago.
        let least = if number == 0 { 10 * MS } else { 20 * MS };
        let since = least.saturating_sub(played.late_by(2))..least + played.late_by(5);
        assert!(since.contains(&step.pause_ns), "{number}: {:#?}", found[0].steps);
    }
    assert_eq!(played.executions[0].outcome, Outcome::Completed);
}

#[test]
fn connections_left_open_send_nothing_more() {
    let open = seen(vec![send(Client, 0, 5, 100), send(Server, 100, 5, 200)]);
    let late = seen(vec![send(Client, 0, 5, 100), send(Server, 100, 60_000, 200)]);
    let half = seen(vec![send(Client, 0, 5, 100), act(Client, 0, 5, Act::Fin)]);
    let scripts = [open, late, half];
    let Some((found, played)) = observed("connections left open", &scripts, 300) else { return };
    assert_as_scripted(&scripts[0], &found[0], played.late_by(5));
    assert_eq!(found[1].steps.len(), 1);
    assert_as_scripted(&scripts[2], &found[2], played.late_by(5));
    let ends: Vec<_> = played.executions.iter().map(|execution| execution.outcome).collect();
    assert_eq!(ends, [Outcome::Completed, Outcome::Unfinished, Outcome::Completed]);
    assert_eq!((played.served.completed, played.served.unfinished), (2, 1));
}

/// A sequential script of up to five exchanges of up to 60 kB, small pauses, and any of three endings.
fn random_script(rng: &mut Rng) -> Script {
    let mut draw = |below: u64| rng.below(below);
    let mut sent = [0, 0];
    let mut steps = Vec::new();
    let first = draw(2) as usize;
    for turn in first..first + 1 + draw(9) as usize {
        let bytes = match draw(4) {
            0 => 1,
            1 => 1 + draw(60_000),
            _ => 1 + draw(2_000),
        };
        let segments = (1 + draw(4) as u32).max(bytes.div_ceil(1_448) as u32);
        let by = Side::BOTH[turn % 2];
        let act = Act::Send { bytes, segments, took_ns: draw(3 * MS) };
        steps.push(Step { by, awaits: sent[1 - turn % 2], pause_ns: draw(8 * MS), act });
        sent[turn % 2] += bytes;
    }
    let (last, pause_ms) = (draw(2) as usize, draw(3));
    match draw(4) {
        0 => steps.push(act(Side::BOTH[last], sent[1 - last], pause_ms, Act::Reset)),
        _ => {
            steps.push(act(Side::BOTH[last], sent[1 - last], pause_ms, Act::Fin));
            sent[last] += 1;
            steps.push(act(Side::BOTH[1 - last], sent[last], 1, Act::Fin));
        }
    }
    seen(steps)
}

#[test]
fn a_thousand_random_scripts_are_played_to_the_last_byte() {
    let mut rng = Rng::new(5, 0, 0);
    let scripts: Vec<Script> = (0..1_000).map(|_| random_script(&mut rng)).collect();
    let plan: Vec<_> = (0..1_000).map(|index| planned(index, index * 1_000)).collect();
    let begun = Instant::now();
    let played = play(&plan, &scripts, Duration::from_secs(20), || {});
    assert!(begun.elapsed() < Duration::from_secs(10), "nothing waits for the end");
    assert_eq!(outcomes(&played.executions), BTreeMap::from([("Completed".to_owned(), 1_000)]));
    for (index, (execution, script)) in played.executions.iter().zip(&scripts).enumerate() {
        assert_eq!(execution.index as usize, index);
        assert_eq!(execution.received_bytes, sent_by(script, Server), "{script:?}");
        assert_eq!(execution.local_port, plan[index].source_port);
        assert!(execution.started_ns >= plan[index].start.as_nanos());
    }
    let bytes: u64 = scripts.iter().map(|script| sent_by(script, Server)).sum();
    let served = &played.served;
    assert_eq!((served.accepted, served.completed), (1_000, 1_000), "{served:?}");
    assert_eq!((served.sent_bytes, served.congestion.as_deref()), (bytes, Some("cubic")));
    println!("latest steps: {:?} ns", played.late_ns);
}

#[test]
fn a_stranger_is_reset_and_a_stop_is_seen() {
    let port = free_ports();
    let config = VectorConfig {
        open_max: 10,
        ..VectorConfig::new(port, Instant::now(), Duration::from_secs(60))
    };
    let server = VectorServer::bind(config.clone(), &[Ipv4Addr::LOCALHOST.into()]).unwrap();
    let plan = [planned(0, 50_000_000)];
    let scripts = [two_exchanges()];
    let (live, stop) = (LiveCounters::new(), AtomicBool::new(false));
    let client = VectorClient::new(config).unwrap();
    let (served, executions) = thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(&plan, &scripts, &live, &stop).unwrap());
        let playing = scope.spawn(|| {
            let live = LiveCounters::new();
            client.run_threads(NonZeroUsize::MIN, &plan, &scripts, &live, &stop).unwrap()
        });
        let mut stranger = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let error = stranger.read(&mut [0]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        stop.store(true, Relaxed);
        let stopped_at = Instant::now();
        let served = serving.join().unwrap();
        let executions = playing.join().unwrap();
        assert!(stopped_at.elapsed() < Duration::from_millis(250));
        (served, executions)
    });
    assert_eq!((served.accepted, served.bad_requests), (1, 1));
    assert_eq!(executions[0].outcome, Outcome::NotStarted);
}

#[test]
fn a_plan_that_lacks_a_script_is_refused() {
    let config = VectorConfig::new(free_ports(), Instant::now(), Duration::from_secs(1));
    let client = VectorClient::new(VectorConfig { open_max: 10, ..config }).unwrap();
    let plan = [planned(0, 0), planned(1, 1)];
    let live = LiveCounters::new();
    let stop = AtomicBool::new(false);
    let refused = client.run_threads(NonZeroUsize::MIN, &plan, &[two_exchanges()], &live, &stop);
    let error = refused.unwrap_err().to_string();
    assert_eq!(error, "connection 1 of the plan has none of its 1 scripts");
}
