//! The table of sessions behind the embedded sample, printed as a model.
//!
//! An imagined access network, a minute long, made of what real ones have: web connections of several exchanges
//! with think times, mail servers that speak first, terminals, requests below a hundred bytes, connections
//! that are refused, unanswered, reset or half closed, many hosts of unlike popularity, both families, and
//! gaps that hang together. `examples/README.md` says how the capture is made of it: by hosts of Linux, so that
//! what is embedded are packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nilometer_conversation::{Act, Carried, Connection, Opening, Side, Step};
use nilometer_stat::parametric::zipf_weights;
use nilometer_stat::{Alias, Rng, lognormal};
use nilometer_traffic::model::Origin;
use nilometer_traffic::vector_model::{self, VectorModelOptions};
use nilometer_traffic::vectors::Vectors;

const SECOND_NS: u64 = 1_000_000_000;
const SEED: u64 = 2004;
const SECONDS: f64 = 60.0;
const SESSIONS: usize = 900;
const CLIENTS: usize = 120;
const SERVERS: usize = 45;
const ORIGIN_NS: u64 = 1_767_225_600 * SECOND_NS;
const BOUND_S: f64 = 60.0;
const FULL_BYTES: u64 = 1_448;
/// The largest file: a heavier tail would have one of them rule a minute.
const FILE_MAX_BYTES: f64 = 60_000.0;

const C: Side = Side::Client;
const S: Side = Side::Server;

/// What one connection does, in the making.
#[derive(Default)]
struct ConnectionSteps {
    steps: Vec<Step>,
    sent: [u64; 2],
    lasts_s: f64,
}

impl ConnectionSteps {
    fn act(&mut self, by: Side, pause_s: f64, act: Act) {
        let pause_ns = (pause_s * 1e9) as u64;
        self.lasts_s += pause_s;
        self.steps.push(Step { by, awaits: self.sent[by.other().index()], pause_ns, act });
    }

    fn say(&mut self, by: Side, pause_s: f64, bytes: f64) -> &mut ConnectionSteps {
        let bytes = bytes.clamp(1.0, FILE_MAX_BYTES) as u64;
        let segments = bytes.div_ceil(FULL_BYTES) as u32;
        // A segment every millisecond or so, as on an access link.
        let took_ns = u64::from(segments - 1) * 1_000_000;
        self.act(by, pause_s, Act::Send { bytes, segments, took_ns });
        self.sent[by.index()] += bytes;
        self
    }

    fn fin(&mut self, by: Side, pause_s: f64) -> &mut ConnectionSteps {
        self.act(by, pause_s, Act::Fin);
        self.sent[by.index()] += 1;
        self
    }

    fn close(&mut self, first: Side, pause_s: f64) {
        self.fin(first, pause_s).fin(first.other(), 0.001);
    }
}

/// What sessions are for, by the server's port, and how many of ten thousand.
const SERVICES: [(u16, f64); 8] = [
    (443, 4_400.0),
    (80, 2_200.0),
    (25, 900.0),
    (6379, 1_000.0),
    (22, 300.0),
    (79, 300.0),
    (8080, 400.0),
    (23, 500.0),
];
const REFUSING: u16 = 8080;
const SILENT: u16 = 23;

fn conversation(service: u16, rng: &mut Rng) -> ConnectionSteps {
    let mut conversation = ConnectionSteps::default();
    match service {
        443 => web(&mut conversation, rng),
        80 => {
            conversation.say(C, 0.002, 150.0 + 300.0 * rng.unit());
            let answers = lognormal(rng, 7.0, 1.1);
            conversation
                .say(S, 0.003 + rng.exponential(0.02), answers)
                .close(S, rng.exponential(0.01));
        }
        25 => mail(&mut conversation, rng),
        6379 => {
            let (asks, answers) = (30.0 + 50.0 * rng.unit(), 5.0 + 80.0 * rng.unit());
            conversation.say(C, 0.0002, asks).say(S, rng.exponential(0.01), answers);
            conversation.close(C, rng.exponential(0.005));
        }
        22 => terminal(&mut conversation, rng),
        79 => {
            // The client is done before it is answered.
            conversation.say(C, 0.002, 20.0).fin(C, 0.001);
            conversation.say(S, 0.01, 500.0 + 4_000.0 * rng.unit()).fin(S, 0.001);
        }
        _ => {}
    }
    conversation
}

fn web(conversation: &mut ConnectionSteps, rng: &mut Rng) {
    conversation.say(C, 0.0002, 517.0).say(
        S,
        rng.exponential(0.02),
        2_800.0 + 1_400.0 * rng.unit(),
    );
    conversation.say(C, rng.exponential(0.01), 80.0);
    for turn in 0..1 + rng.below(4) {
        let thinks_s = if turn == 0 { 0.0002 } else { 0.02 + rng.exponential(0.15) };
        conversation.say(C, thinks_s, 250.0 + rng.exponential(300.0));
        conversation.say(S, 0.002 + rng.exponential(0.03), lognormal(rng, 6.6, 1.2));
    }
    match rng.below(10) {
        0 => conversation.act(C, 0.05, Act::Reset),
        1 => conversation.act(S, 0.05, Act::Reset),
        2..5 => conversation.close(S, rng.exponential(0.1)),
        _ => conversation.close(C, rng.exponential(0.03)),
    }
}

fn mail(conversation: &mut ConnectionSteps, rng: &mut Rng) {
    conversation.say(S, 0.01, 60.0);
    for (asks, answers) in [(22.0, 140.0), (38.0, 14.0), (34.0, 14.0), (6.0, 37.0)] {
        conversation.say(C, 0.02 * (0.5 + rng.unit()), asks).say(S, 0.02 * rng.unit(), answers);
    }
    conversation.say(C, 0.1 * rng.unit(), lognormal(rng, 6.8, 1.0)).say(S, 0.06 * rng.unit(), 36.0);
    conversation.say(C, 0.03 * rng.unit(), 6.0).say(S, 0.001, 15.0).close(S, 0.001);
}

fn terminal(conversation: &mut ConnectionSteps, rng: &mut Rng) {
    conversation
        .say(S, 0.005, 41.0)
        .say(C, 0.001, 41.0)
        .say(C, 0.001, 1_400.0)
        .say(S, 0.003, 1_080.0);
    for _ in 0..10 + rng.below(15) {
        conversation.say(C, 0.05 + rng.exponential(0.1), 36.0).say(
            S,
            0.002,
            36.0 + rng.exponential(120.0),
        );
    }
    conversation.close(C, 0.1);
}

/// The ends of a session: every fifth client speaks IPv6.
fn ends([client, server]: [usize; 2], service: u16, port: u16) -> [SocketAddr; 2] {
    let address = |role: u16, rank: usize| -> IpAddr {
        match client % 5 {
            0 => Ipv6Addr::new(0xfd00, role, 0, 0, 0, 0, 0, 1 + rank as u16).into(),
            _ => Ipv4Addr::new(10, role as u8, 0, 1 + rank as u8).into(),
        }
    };
    [SocketAddr::new(address(0, client), port), SocketAddr::new(address(1, server), service)]
}

fn connection(
    conversation: ConnectionSteps,
    ends: [SocketAddr; 2],
    start_s: f64,
    service: u16,
) -> Connection {
    let start_ns = ORIGIN_NS + (start_s * 1e9) as u64;
    let of = |side: Side| {
        let sends = |step: &Step| match step.act {
            Act::Send { bytes, .. } if step.by == side => bytes,
            _ => 0,
        };
        let payload_bytes: u64 = conversation.steps.iter().map(sends).sum();
        let packets = 4 + payload_bytes / FULL_BYTES;
        Carried {
            packets,
            octets: payload_bytes + 52 * packets,
            data_bytes: payload_bytes,
            payload_bytes,
            segment_max_bytes: FULL_BYTES as u32,
            ..Carried::default()
        }
    };
    let (opening, lasts_s) = match service {
        REFUSING => (Opening::Refused, 0.0),
        SILENT => (Opening::Unanswered, 0.5),
        _ => (Opening::Seen, conversation.lasts_s),
    };
    Connection {
        client: ends[0],
        server: ends[1],
        start_ns,
        end_ns: start_ns + (lasts_s * 1e9) as u64,
        opening,
        syns: 1,
        handshake_ns: [None; 2],
        is_concurrent: false,
        has_time_stamps: !ends[0].port().is_multiple_of(3),
        carried: Side::BOTH.map(of),
        steps: conversation.steps,
    }
}

fn connections() -> Vec<Connection> {
    let mut rng = Rng::new(SEED, 1, 0);
    let alias = |weights: &[f64]| Alias::new(weights).expect("weights");
    let clients = alias(&zipf_weights(CLIENTS, 0.7));
    let servers = alias(&zipf_weights(SERVERS, 0.6));
    let services = alias(&SERVICES.map(|service| service.1));
    let (mut all, mut port) = (Vec::new(), 10_000u16);
    for _ in 0..SESSIONS {
        let service = SERVICES[services.draw(&mut rng)].0;
        let pair = [clients.draw(&mut rng), servers.draw(&mut rng)];
        let is_web = matches!(service, 80 | 443);
        let count = if is_web { 1 + (rng.exponential(1.6) as u64).min(7) } else { 1 };
        let pace = lognormal(&mut rng, 0.0, 0.7);
        let (mut at_s, mut lean) = (SECONDS * rng.unit(), 0.0);
        for _ in 0..count {
            let conversation = conversation(service, &mut rng);
            if at_s + conversation.lasts_s >= SECONDS - 0.5 {
                break;
            }
            port += 1;
            all.push(connection(conversation, ends(pair, service, port), at_s, service));
            lean = 0.6 * lean + 0.5 * rng.normal();
            at_s += 0.4 * pace * lean.exp();
        }
    }
    all.sort_by_key(|one| one.start_ns);
    all
}

fn main() {
    let table = Vectors::of(&connections(), [ORIGIN_NS; 2], SECONDS, (BOUND_S * 1e9) as u64);
    let pool = |text: &str| text.parse().expect("a prefix");
    let options = VectorModelOptions {
        tool: "nilometer's example `sample`".to_owned(),
        origin: Origin {
            description: "an imagined access network".to_owned(),
            synthetic: true,
            inputs: Vec::new(),
        },
        bound_s: BOUND_S,
        pools: [
            vec![pool("198.18.0.0/16"), pool("fd00:18::/112")],
            vec![pool("198.19.0.0/17"), pool("fd00:19::/112")],
        ],
        other_octets: 0,
    };
    let model = vector_model::model(table, options);
    println!("{}", serde_json::to_string(&model).expect("a model is JSON"));
}
