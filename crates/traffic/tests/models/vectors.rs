//! The joint table of sessions, and the plans that are made from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use nilometer_conversation::{Act, Carried, Connection, Opening, Side, Step};
use nilometer_stat::{Rng, lognormal};
use nilometer_traffic::model::Origin;
use nilometer_traffic::vector_model::{self, VectorModelOptions};
use nilometer_traffic::vector_plan::{Draw, plan};
use nilometer_traffic::vectors::Vectors;
use nilometer_traffic::{Plan, TrafficModel};

const SECOND_NS: u64 = 1_000_000_000;
const BEGINS_NS: u64 = 1_000 * SECOND_NS;
const SECONDS: f64 = 60.0;

/// Sessions of several connections, with hosts of unlike popularity; the first are under way, the last are cut.
fn connections(seed: u64) -> Vec<Connection> {
    let mut rng = Rng::new(seed, 0, 0);
    let mut all = Vec::new();
    for session in 0..400u32 {
        let hosts =
            [(rng.unit() * rng.unit() * 120.0) as u8, (rng.unit() * rng.unit() * 40.0) as u8];
        let mut at_s = rng.unit() * SECONDS;
        for turn in 0..1 + rng.below(6) as u16 {
            if at_s >= SECONDS {
                break;
            }
            let port = 20_000 + (session * 8) as u16 + turn;
            all.push(connection(&mut rng, at_s, hosts, port));
            at_s += rng.exponential(0.7);
        }
    }
    all.sort_by_key(|one| one.start_ns);
    all
}

fn connection(rng: &mut Rng, at_s: f64, [client, server]: [u8; 2], port: u16) -> Connection {
    let start_ns = BEGINS_NS + (at_s * 1e9) as u64;
    let bytes = [100 + rng.below(400), lognormal(rng, 8.0, 1.2) as u64 + 1];
    let lasts_ns = 200_000_000;
    let step = |by, awaits, act| Step { by, awaits, pause_ns: 1_500_000, act };
    let send = |bytes: u64| Act::Send { bytes, segments: 1, took_ns: 0 };
    let mut steps =
        vec![step(Side::Client, 0, send(bytes[0])), step(Side::Server, bytes[0], send(bytes[1]))];
    if at_s + 0.2 < SECONDS {
        steps.push(step(Side::Server, bytes[0], Act::Fin));
        steps.push(step(Side::Client, bytes[1] + 1, Act::Fin));
    }
    let carried = bytes.map(|bytes| Carried {
        packets: 3 + bytes / 1_460,
        octets: bytes + 40 * (3 + bytes / 1_460),
        payload_bytes: bytes,
        segment_max_bytes: bytes.min(1_380) as u32,
        ..Carried::default()
    });
    Connection {
        client: SocketAddr::from(([10, 0, 0, client], port)),
        server: SocketAddr::from(([10, 1, 0, server], [80, 443][usize::from(port % 2)])),
        start_ns,
        end_ns: start_ns + lasts_ns,
        opening: if at_s < 0.3 { Opening::Unseen } else { Opening::Seen },
        syns: 1,
        handshake_ns: [None; 2],
        is_concurrent: false,
        has_time_stamps: true,
        steps,
        carried,
    }
}

fn table(connections: &[Connection]) -> Vectors {
    Vectors::of(connections, [BEGINS_NS - 5 * SECOND_NS, BEGINS_NS], SECONDS, 60 * SECOND_NS)
}

fn model(connections: &[Connection]) -> TrafficModel {
    let pool = |text: &str| vec![text.parse().expect("a prefix")];
    let options = VectorModelOptions {
        tool: "a test".to_owned(),
        origin: Origin { description: "by hand".to_owned(), synthetic: true, inputs: Vec::new() },
        bound_s: 60.0,
        pools: [pool("198.18.0.0/24"), pool("198.19.0.0/24")],
        other_octets: 12_345,
    };
    vector_model::model(table(connections), options)
}

fn hosts_and_pairs(plan: &Plan) -> [usize; 3] {
    let all = || plan.connections.iter().map(|one| (one.source, one.destination));
    let sources: BTreeSet<_> = all().map(|pair| pair.0).collect();
    let destinations: BTreeSet<_> = all().map(|pair| pair.1).collect();
    let pairs: BTreeSet<_> = all().collect();
    [sources.len(), destinations.len(), pairs.len()]
}

/// Read back from its file, a table has the same connections, with other addresses.
#[test]
fn a_table_reproduces_the_connections_it_was_made_of() {
    let mut connections = connections(3);
    for (at, one) in (1..).zip(&mut connections) {
        // Fractions of a microsecond are kept.
        one.start_ns += at;
        one.end_ns += 7 * at;
        one.steps.iter_mut().for_each(|step| step.pause_ns += at);
    }
    let text = serde_json::to_string(&table(&connections)).expect("it is written");
    let read: Vectors = serde_json::from_str(&text).expect("it is read");
    let found = read.observed();
    assert_eq!(found.len(), connections.len());
    let (mut clients, mut servers) = (BTreeMap::new(), BTreeMap::new());
    for (one, other) in connections.iter().zip(&found) {
        assert_eq!(one.start_ns - BEGINS_NS, other.start_ns);
        assert_eq!(one.end_ns - one.start_ns, other.end_ns - other.start_ns);
        assert_eq!((&one.steps, one.opening), (&other.steps, other.opening));
        let sums = |one: &Connection| {
            let [client, server] = &one.carried;
            let payload = [client.payload_bytes, server.payload_bytes];
            (payload, client.packets + server.packets, client.octets + server.octets)
        };
        assert_eq!(sums(one), sums(other));
        assert_eq!(*clients.entry(one.client.ip()).or_insert(other.client.ip()), other.client.ip());
        assert_eq!(*servers.entry(one.server.ip()).or_insert(other.server.ip()), other.server.ip());
    }
    let distinct = |hosts: &BTreeMap<_, std::net::IpAddr>| {
        hosts.values().collect::<BTreeSet<_>>().len() == hosts.len()
    };
    assert!(distinct(&clients) && distinct(&servers));
}

#[test]
fn an_exact_plan_has_each_connection_once() {
    let connections = connections(1);
    let model = model(&connections);
    let plan = plan(&model, Draw::Exact).expect("a plan");
    assert_eq!(plan.len(), connections.len());
    let reported = |start_ns: u64, sizes: [u64; 2]| (start_ns / 1_000, sizes);
    let mut wanted: Vec<_> = connections
        .iter()
        .map(|one| {
            reported(one.start_ns - BEGINS_NS, one.carried.clone().map(|side| side.payload_bytes))
        })
        .collect();
    let mut made: Vec<_> = plan
        .connections
        .iter()
        .map(|one| reported(one.start.as_nanos() + 1, [one.request_bytes, one.size_bytes]))
        .collect();
    wanted.sort_unstable();
    made.sort_unstable();
    let apart = wanted
        .iter()
        .zip(&made)
        .filter(|(one, other)| one.1 != other.1 || one.0.abs_diff(other.0) > 1);
    assert_eq!(apart.count(), 0);
    let distinct =
        |of: fn(&Connection) -> String| connections.iter().map(of).collect::<BTreeSet<_>>().len();
    let pair = |one: &Connection| format!("{} {}", one.client.ip(), one.server.ip());
    let wanted = [
        distinct(|one| one.client.ip().to_string()),
        distinct(|one| one.server.ip().to_string()),
        distinct(pair),
    ];
    assert_eq!((hosts_and_pairs(&plan), plan.hosts_folded), (wanted, 0));
    // Both ends do what was seen.
    for one in &plan.connections {
        let script = &plan.scripts[one.script.expect("a script") as usize];
        let sent: u64 = { script.steps.iter() }
            .map(|step| if let Act::Send { bytes, .. } = step.act { bytes } else { 0 })
            .sum();
        assert_eq!(sent, one.request_bytes + one.size_bytes);
        assert!(script.steps.iter().all(|step| step.pause_ns == 1_500_000));
    }
}

#[test]
fn seeds_are_samples_with_the_same_hosts_and_nearly_the_same_volume() {
    let connections = connections(2);
    let model = model(&connections);
    let exact = plan(&model, Draw::Exact).expect("a plan");
    let bytes = |plan: &Plan| plan.bytes() + plan.request_bytes();
    let sizes = |plan: &Plan| {
        let mut sizes: Vec<u64> = plan.connections.iter().map(|one| one.size_bytes).collect();
        sizes.sort_unstable();
        sizes
    };
    let plans: Vec<Plan> =
        (1..4).map(|seed| plan(&model, Draw::Seed(seed)).expect("a plan")).collect();
    for made in &plans {
        assert_eq!(hosts_and_pairs(made), hosts_and_pairs(&exact));
        let ratio = bytes(made) as f64 / bytes(&exact) as f64;
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
        let ratio = made.len() as f64 / exact.len() as f64;
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
        assert_ne!(sizes(made), sizes(&exact));
        assert_ne!(made.digest(), exact.digest());
    }
    assert_ne!(plans[0].digest(), plans[1].digest());
    let again = plan(&model, Draw::Seed(1)).expect("a plan");
    assert_eq!(again, plans[0]);
    let largest = |plan: &Plan| sizes(plan).into_iter().rev().take(20).collect::<Vec<_>>();
    assert_ne!(largest(&plans[0]), largest(&plans[1]), "the largest are drawn, too");
}

/// A hundred sessions, a few of which carry nearly everything, but none enough to be kept as it is.
#[test]
fn heavy_tails_keep_their_volume() {
    let mut few = connections(6);
    few.truncate(100);
    for (at, one) in few.iter_mut().enumerate() {
        let bytes = 1_000 << (at % 10);
        one.carried[1] = Carried { octets: bytes, payload_bytes: bytes, ..one.carried[1].clone() };
        one.steps.truncate(2);
        one.steps[1].act = Act::Send { bytes, segments: 1, took_ns: 0 };
    }
    let model = model(&few);
    let octets = |plan: &Plan| {
        let of = |one: &nilometer_traffic::PlannedConnection| one.size_bytes + one.request_bytes;
        plan.connections.iter().map(of).sum::<u64>() as f64
    };
    let exact = octets(&plan(&model, Draw::Exact).expect("a plan"));
    for seed in 0..20 {
        let ratio = octets(&plan(&model, Draw::Seed(seed)).expect("a plan")) / exact;
        assert!((0.98..1.02).contains(&ratio), "seed {seed}: {ratio}");
    }
}

#[test]
fn a_table_may_be_played_faster_and_without_its_pace() {
    let mut model = model(&connections(7));
    let usual = plan(&model, Draw::Exact).expect("a plan");
    let vectors = model.vectors.as_mut().expect("vectors");
    vectors.speed_up(4.0);
    vectors.unpace();
    let fast = plan(&model, Draw::Exact).expect("a plan");
    assert_eq!((fast.len(), fast.bytes()), (usual.len(), usual.bytes()));
    let starts =
        |plan: &Plan| plan.connections.iter().map(|one| one.start.as_secs_f64()).sum::<f64>();
    assert!((starts(&usual) / starts(&fast) - 4.0).abs() < 1e-6);
    // A fifth of a second behind the last start, as connections last no less.
    assert!((15.0..16.0).contains(&fast.end.as_secs_f64()), "{:?}", fast.end);
    let took = |step: &Step| matches!(step.act, Act::Send { took_ns, .. } if took_ns > 0);
    assert!(!fast.scripts.iter().flat_map(|script| &script.steps).any(took));
    let pauses = |plan: &Plan| {
        plan.scripts.iter().flat_map(|script| &script.steps).map(|step| step.pause_ns).sum::<u64>()
    };
    assert_eq!(pauses(&usual), pauses(&fast), "think times stay");
}

#[test]
fn no_two_connections_of_a_source_have_one_port() {
    let model = model(&connections(3));
    let made = plan(&model, Draw::Seed(1)).expect("a plan");
    let mut seen = BTreeMap::new();
    for one in &made.connections {
        *seen.entry((one.source, one.source_port)).or_insert(0) += 1;
    }
    assert!(seen.values().all(|count| *count == 1));
    assert!(made.connections.is_sorted_by_key(|one| one.start));
    for (at, before) in made.previous.iter().enumerate() {
        let Some(before) = before else { continue };
        let [one, other] = [*before as usize, at].map(|at| made.connections[at]);
        assert!(one.session == other.session && one.start <= other.start);
    }
}

#[test]
fn pools_that_are_too_small_are_reported() {
    let mut model = model(&connections(4));
    model.generation.clients = vec!["198.18.0.0/28".parse().expect("a prefix")];
    let hosts = model.vectors.as_ref().expect("vectors").hosts();
    let made = plan(&model, Draw::Exact).expect("a plan");
    assert_eq!(hosts_and_pairs(&made)[0], 14);
    assert_eq!(made.hosts_folded, hosts[0] as u64 - 14);
}

#[test]
fn a_table_is_read_as_it_was_written_and_nonsense_is_refused() {
    let model = model(&connections(5));
    model.check().expect("a sound model");
    let text = serde_json::to_string(&model).expect("JSON");
    assert!(!text.contains("10.0.0."), "addresses are not in it");
    let read: TrafficModel = serde_json::from_str(&text).expect("a model");
    assert_eq!(read, model);
    assert_eq!(
        plan(&read, Draw::Seed(7)).expect("a plan").digest(),
        plan(&model, Draw::Seed(7)).expect("a plan").digest()
    );
    let breaks: [fn(&mut Vectors); 4] = [
        |table| table.seconds = 0.0,
        |table| table.sessions[3].start_s = f64::NAN,
        |table| table.sessions[3].connections[0].after_s = -1.0,
        |table| table.sessions[3].connections.clear(),
    ];
    for break_it in breaks {
        let mut broken = model.clone();
        break_it(broken.vectors.as_mut().expect("vectors"));
        assert!(broken.check().is_err());
    }
    let row = "[0,0,1500.0,";
    assert!(text.contains(row));
    let broken = text.replacen(row, "[7,0,1500.0,", 1);
    let read: TrafficModel = serde_json::from_str(&broken).expect("JSON all the same");
    assert!(read.check().is_err(), "there are two ends");
}
