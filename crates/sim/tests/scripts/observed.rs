//! A path with an observer in its middle, which follows the connections of a simulated run from their packets.

use std::net::{IpAddr, Ipv4Addr};

use nilometer_conversation::{Act, Connection, Follower, Limits, Opening, Side, Step};
use nilometer_queue::Reason;
use nilometer_sim::run::run;
use nilometer_sim::{Outcome, Packet, Route, Scenario, Tap, assemble};
use nilometer_traffic::model::Origin;
use nilometer_traffic::script::Script;
use nilometer_traffic::vector_model::{self, VectorModelOptions};
use nilometer_traffic::vectors::Vectors;
use nilometer_traffic::{Plan, TrafficModel};
use nilometer_wire::Time;
use nilometer_wire::packet::{Fragment, IpPacket, TcpSegment, TimeStamps, Transport};
use serde_json::{Value, json};

/// From one end to the other, ns.
pub const DELAY_NS: u64 = 8_000_000;
/// The length of a part whose sessions are played, seconds.
pub const SECONDS: f64 = 200.0;
/// TCP in an IP header.
const TCP: u8 = 6;

/// Clients and servers with the observer's router between two links of half of the delay each; `change` is put
/// over the link to the servers.
pub fn scenario(change: Value) -> Scenario {
    let mut far =
        json!({"name": "far", "from": "middle", "to": "east", "rate": "10 Gb/s", "delay": "4 ms"});
    let Value::Object(changes) = change else { panic!("changes are an object") };
    far.as_object_mut().expect("a link").extend(changes);
    let scenario = json!({
        "version": 1, "name": "scripts", "duration_s": SECONDS + 20.0,
        "host": [{"name": "clients", "count": 3}, {"name": "servers", "count": 2}],
        "router": [{"name": "west"}, {"name": "middle"}, {"name": "east"}],
        "link": [
            {"name": "in", "from": "clients", "to": "west", "rate": "10 Gb/s"},
            {"name": "near", "from": "west", "to": "middle", "rate": "10 Gb/s", "delay": "4 ms"},
            far,
            {"name": "out", "from": "east", "to": "servers", "rate": "10 Gb/s"}
        ],
        "model": [{"file": "scripts", "from": "servers", "to": "clients", "tcp": "linux"}],
        "measure": {"bottleneck": "far"}
    });
    serde_json::from_value(scenario).expect("a scenario")
}

/// A model whose sessions are one connection each, begun `apart_s` after the one before.
pub fn model(scripts: &[Script], apart_s: f64) -> TrafficModel {
    let session = |(number, script): (usize, &Script)| {
        json!({
            "start_s": number as f64 * apart_s,
            "source": number % 5, "destination": number % 3, "ipv6": false, "service": 80,
            "connections": [connection(script)],
        })
    };
    let sessions: Vec<Value> = scripts.iter().enumerate().map(session).collect();
    let table = json!({"start_s": 0.0, "seconds": SECONDS, "sessions": sessions});
    let vectors: Vectors = serde_json::from_value(table).expect("a table");
    let pool = |text: &str| vec![text.parse().expect("a prefix")];
    vector_model::model(
        vectors,
        VectorModelOptions {
            tool: "a test".to_owned(),
            origin: Origin {
                description: "by hand".to_owned(),
                synthetic: true,
                inputs: Vec::new(),
            },
            bound_s: 60.0,
            pools: [pool("10.0.0.0/24"), pool("10.1.0.0/24")],
            other_octets: 0,
        },
    )
}

fn connection(script: &Script) -> Value {
    let us = |ns: u64| ns as f64 / 1e3;
    let step = |step: &Step| {
        let (does, segments, took_us) = match step.act {
            Act::Send { bytes, segments, took_ns } => (bytes as i64, segments, us(took_ns)),
            Act::Fin => (-1, 0, 0.0),
            Act::Reset => (-2, 0, 0.0),
        };
        json!([step.by as u8, step.awaits, us(step.pause_ns), does, segments, took_us])
    };
    let opening = match script.opening {
        Opening::Seen => "seen",
        Opening::Unseen => "under_way",
        Opening::Unanswered => "unanswered",
        Opening::Refused => "refused",
    };
    json!({
        "after_s": 0.0, "opening": opening, "lasts_s": script.tried_ns as f64 / 1e9,
        "packets": 10, "octets": 1_000, "segment_bytes": script.segment_bytes,
        "time_stamps": script.has_time_stamps,
        "steps": script.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

/// What passed the observer.
#[derive(Default)]
pub struct Observer {
    pub passed: Vec<(Time, Packet)>,
    links: [usize; 2],
}

impl Tap for Observer {
    fn transmitted(&mut self, link: usize, arrival: Time, packet: &Packet) {
        // Towards the servers it is seen when it leaves, on the way back when it has come.
        if link == self.links[0] {
            self.passed.push((Time(arrival.0 - DELAY_NS * 500), *packet));
        } else if link == self.links[1] {
            self.passed.push((arrival, *packet));
        }
    }
    fn dropped(&mut self, _link: usize, _now: Time, _reason: Reason, _packet: &Packet) {}
    fn delivered(&mut self, _member: usize, _now: Time, _packet: &Packet) {}
}

/// A run, its packets in the order in which the observer saw them, and the digests of its plans.
pub fn observed(
    scenario: &Scenario,
    model: &TrafficModel,
    seed: u64,
) -> (Outcome, Observer, Vec<[u8; 32]>) {
    let assembly = assemble(scenario, std::slice::from_ref(model), seed).expect("a network");
    let link = assembly.bottleneck as usize;
    let digests = assembly.plan_digests.clone();
    let observer = Observer { passed: Vec::new(), links: [link, link + 1] };
    let (outcome, mut observer) = run(assembly, seed, observer, &mut |_| true).expect("it ends");
    assert!(outcome.is_balanced, "every packet is accounted for");
    observer.passed.sort_by_key(|(at, _)| *at);
    (outcome, observer, digests)
}

impl Observer {
    /// The connections found in the packets, by the numbers of their flows.
    pub fn connections(&self) -> Vec<Connection> {
        let (mut follower, mut found) = (Follower::new(Limits::default()), Vec::new());
        for (at, packet) in &self.passed {
            follower.observe(at.as_nanos(), &ip_packet(packet), &mut |made| found.push(made));
        }
        follower.flush(&mut |made| found.push(made));
        found.sort_by_key(|connection: &Connection| connection.client.port());
        let ports: Vec<u16> = found.iter().map(|one| one.client.port()).collect();
        assert!(ports.windows(2).all(|pair| pair[0] < pair[1]), "one connection for each flow");
        found
    }
}

fn ip_packet(packet: &Packet) -> IpPacket {
    let (flow, segment) = (packet.route.flow(), packet.segment);
    let ends: [(IpAddr, u16); 2] = [
        (Ipv4Addr::new(10, 0, 0, 1).into(), 10_000 + u16::try_from(flow).expect("few flows")),
        (Ipv4Addr::new(10, 1, 0, 1).into(), 80),
    ];
    let [from, to] = if packet.route == Route::out(flow) { ends } else { [ends[1], ends[0]] };
    let [value, echo] = segment.timestamps;
    let transport = Transport::Tcp(TcpSegment {
        source_port: from.1,
        destination_port: to.1,
        sequence: segment.sequence,
        acknowledgement: segment.acknowledgement,
        flags: segment.flags,
        window: segment.window,
        payload_bytes: segment.length.into(),
        time_stamps: segment.has_timestamps().then_some(TimeStamps { value, echo }),
        cut_options_bytes: None,
    });
    IpPacket {
        source: from.0,
        destination: to.0,
        protocol: TCP,
        traffic_class: 0,
        hop_limit: 64,
        ip_bytes: packet.bytes.into(),
        fragment: Fragment::Whole,
        transport,
        encapsulated: false,
    }
}

/// The scripts of a plan, in the order of its connections, which is that of the flows.
pub fn scripts_of(plan: &Plan) -> Vec<&Script> {
    let script = |planned: &nilometer_traffic::PlannedConnection| {
        &plan.scripts[planned.script.expect("a script") as usize]
    };
    plan.connections.iter().map(script).collect()
}

/// Payload bytes that a side of a script sends.
pub fn sent_by(script: &Script, side: Side) -> u64 {
    let own = script.steps.iter().filter(|step| step.by == side);
    own.map(|step| if let Act::Send { bytes, .. } = step.act { bytes } else { 0 }).sum()
}
