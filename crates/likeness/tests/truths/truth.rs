//! A network whose laws are known: sessions of connections, as the follower would have seen them.

use std::net::{Ipv4Addr, SocketAddr};

use nilometer_conversation::{Act, Carried, Connection, Opening, Side, Step};
use nilometer_likeness::observed::{BIN_NS, Bin, Observed};
use nilometer_stat::{Alias, Rng, lognormal, zipf_weights};

const SECOND: f64 = 1e9;
const BEGINS_NS: u64 = 1_000_000_000_000;

/// The parameters of a random network.
pub struct Truth {
    /// Sessions.
    pub sessions: usize,
    /// In how many seconds they arrive.
    pub seconds: f64,
    /// Clients and servers, of popularity by Zipf's law.
    pub hosts: [usize; 2],
}

impl Truth {
    pub const USUAL: Truth = Truth { sessions: 5_000, seconds: 600.0, hosts: [1_000, 300] };

    /// A sample of this network's connections.
    pub fn connections(&self, seed: u64) -> Vec<Connection> {
        let mut rng = Rng::new(seed, 1, 0);
        let [clients, servers] =
            self.hosts.map(|hosts| Alias::new(&zipf_weights(hosts, 0.8)).expect("weights"));
        let mut all = Vec::new();
        for number in 0..self.sessions {
            let start_s = rng.unit() * self.seconds;
            let ends = [clients.draw(&mut rng), servers.draw(&mut rng)];
            session(&mut rng, number, start_s, ends, &mut all);
        }
        // What a meter would have seen by the end.
        let ends_ns = BEGINS_NS + ((self.seconds + 60.0) * SECOND) as u64;
        all.retain(|one| one.end_ns < ends_ns);
        all.sort_by_key(|one| one.start_ns);
        all
    }
}

fn session(
    rng: &mut Rng,
    number: usize,
    start_s: f64,
    ends: [usize; 2],
    all: &mut Vec<Connection>,
) {
    let service = [80, 443, 25, 22][(rng.unit() * rng.unit() * 4.0) as usize];
    // Properties of a whole session, so that its connections are correlated.
    let pace = lognormal(rng, 0.0, 0.7);
    let scale = lognormal(rng, 0.0, 0.5);
    let mut at_s = start_s;
    let mut gap_before = 0.0;
    let count = 1 + (rng.exponential(3.0) as usize).min(40);
    for turn in 0..count {
        if turn > 0 {
            gap_before = 0.6 * gap_before + 0.8 * rng.normal();
            at_s += (pace * (0.9 * gap_before).exp()).min(50.0);
        }
        let port = 10_000 + ((number * 41 + turn) % 50_000) as u16;
        all.push(connection(rng, at_s, ends, (port, service), scale));
    }
}

fn connection(
    rng: &mut Rng,
    start_s: f64,
    [client, server]: [usize; 2],
    (port, service): (u16, u16),
    scale: f64,
) -> Connection {
    let address = |base: u32, host: usize| Ipv4Addr::from_bits(base + host as u32);
    let start_ns = (start_s * SECOND) as u64 + BEGINS_NS;
    let mut made = Connection {
        client: SocketAddr::new(address(0xc612_0001, client).into(), port),
        server: SocketAddr::new(address(0xc613_0001, server).into(), service),
        start_ns,
        end_ns: start_ns,
        opening: Opening::Seen,
        syns: 1,
        handshake_ns: [Some(1_000_000), Some(1_000)],
        is_concurrent: false,
        has_time_stamps: true,
        steps: Vec::new(),
        carried: [Carried::default(), Carried::default()],
    };
    if rng.unit() < 0.04 {
        made.opening = if rng.unit() < 0.5 { Opening::Refused } else { Opening::Unanswered };
        made.carried[0].sizes.count(60);
        made.carried[0].packets = 1;
        made.carried[0].octets = 60;
        return made;
    }
    let mut now_ns = start_ns + 20_000_000;
    let is_server_first = rng.unit() < 0.1;
    let exchanges = 1 + (rng.exponential(1.5) as usize).min(20);
    for turn in 0..exchanges {
        if !(is_server_first && turn == 0) {
            let think_s = if turn == 0 { 0.001 } else { lognormal(rng, -1.0, 1.0) };
            let bytes = lognormal(rng, 5.7, 0.6) as u64 + 1;
            send(&mut made, Side::Client, think_s, bytes, &mut now_ns);
        }
        let bytes = (scale * lognormal(rng, 8.5, 1.3)) as u64 + 1;
        let takes_s = lognormal(rng, -3.0, 0.8);
        send(&mut made, Side::Server, takes_s, bytes, &mut now_ns);
    }
    let by = if rng.unit() < 0.7 { Side::Client } else { Side::Server };
    let act = |by, act| Step { by, awaits: 0, pause_ns: 0, act };
    match rng.unit() {
        chance if chance < 0.1 => made.steps.push(act(by, Act::Reset)),
        _ => made.steps.extend([act(by, Act::Fin), act(by.other(), Act::Fin)]),
    }
    made.end_ns = now_ns;
    made
}

fn send(made: &mut Connection, by: Side, pause_s: f64, bytes: u64, now_ns: &mut u64) {
    let pause_ns = (pause_s * SECOND) as u64;
    let segments = bytes.div_ceil(1_460) as u32;
    let took_ns = u64::from(segments - 1) * 200_000;
    *now_ns += pause_ns + took_ns;
    made.steps.push(Step { by, awaits: 0, pause_ns, act: Act::Send { bytes, segments, took_ns } });
    let carried = &mut made.carried[by.index()];
    carried.payload_bytes += bytes;
    carried.packets += u64::from(segments);
    carried.octets += bytes + 40 * u64::from(segments);
    (1..segments).for_each(|_| carried.sizes.count(1_500));
    carried.sizes.count(40 + (bytes - 1_460 * u64::from(segments - 1)) as u32);
    let other = &mut made.carried[by.other().index()];
    other.packets += u64::from(segments.div_ceil(2));
    other.octets += 40 * u64::from(segments.div_ceil(2));
    (0..segments.div_ceil(2)).for_each(|_| other.sizes.count(40));
}

/// What an observer would have recorded of connections whose packets are spread evenly over their
/// time.
pub fn observed(mut connections: Vec<Connection>) -> Observed {
    connections.sort_by_key(|one| one.start_ns);
    let mut bins: Vec<Bin> = Vec::new();
    for one in &connections {
        let bin = |ns: u64| ((ns - BEGINS_NS) / BIN_NS) as usize;
        let (first, last) = (bin(one.start_ns), bin(one.end_ns));
        bins.resize(bins.len().max(last + 1), Bin::default());
        let all = (last - first + 1) as u64;
        let (packets, octets) = one
            .carried
            .iter()
            .fold((0, 0), |(packets, octets), side| (packets + side.packets, octets + side.octets));
        for (turn, bin) in (0..all).zip(&mut bins[first..=last]) {
            let part = |whole: u64| whole * (turn + 1) / all - whole * turn / all;
            bin.packets += part(packets);
            bin.octets += part(octets);
        }
    }
    Observed { connections, bins, ..Observed::default() }
}
