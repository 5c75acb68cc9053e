//! What may be wrong with a copy.

use std::net::{IpAddr, Ipv4Addr};

use nilometer_conversation::{Act, Connection, Side, sessions};
use nilometer_stat::Rng;

/// A bound of sessions, ns.
const BOUND_NS: u64 = 60_000_000_000;

/// All units are half as large again.
pub fn larger(mut copy: Vec<Connection>, _: u64) -> Vec<Connection> {
    copy.iter_mut().for_each(|one| scale(one, 1.5));
    copy
}

/// What is beyond the 99th percentile is cut to it.
pub fn without_tail(mut copy: Vec<Connection>, _: u64) -> Vec<Connection> {
    let bytes = |one: &Connection| one.carried.iter().map(|side| side.payload_bytes).sum::<u64>();
    let mut sizes: Vec<u64> = copy.iter().map(bytes).collect();
    sizes.sort_unstable();
    let most = sizes[sizes.len() * 99 / 100];
    for one in &mut copy {
        let has = bytes(one);
        if has > most {
            scale(one, most as f64 / has as f64);
        }
    }
    copy
}

fn scale(one: &mut Connection, factor: f64) {
    let scaled = |bytes: &mut u64| *bytes = (*bytes as f64 * factor) as u64;
    for step in &mut one.steps {
        if let Act::Send { bytes, .. } = &mut step.act {
            scaled(bytes);
        }
    }
    for side in &mut one.carried {
        let before = side.payload_bytes;
        scaled(&mut side.payload_bytes);
        side.octets = side.octets + side.payload_bytes - before.min(side.octets);
    }
}

/// Two clients become one, and two servers.
pub fn half_of_the_hosts(mut copy: Vec<Connection>, _: u64) -> Vec<Connection> {
    let halved = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => {
            let base = ip.to_bits() & 0xffff_0000;
            IpAddr::V4(Ipv4Addr::from_bits(base + (ip.to_bits() - base - 1) / 2 + 1))
        }
        IpAddr::V6(_) => unreachable!("the truth has none"),
    };
    for one in &mut copy {
        one.client.set_ip(halved(one.client.ip()));
        one.server.set_ip(halved(one.server.ip()));
    }
    copy
}

/// All gaps are there, in another order.
pub fn shuffled_gaps(copy: Vec<Connection>, seed: u64) -> Vec<Connection> {
    with_gaps(copy, |gaps| {
        let mut rng = Rng::new(seed, 9, 0);
        for last in (1..gaps.len()).rev() {
            gaps.swap(last, rng.below(last as u64 + 1) as usize);
        }
    })
}

/// Gaps are drawn one by one from all of them.
pub fn independent_gaps(copy: Vec<Connection>, seed: u64) -> Vec<Connection> {
    with_gaps(copy, |gaps| {
        let mut rng = Rng::new(seed, 9, 1);
        let pool = gaps.to_vec();
        gaps.iter_mut().for_each(|gap| *gap = pool[rng.below(pool.len() as u64) as usize]);
    })
}

fn with_gaps(mut copy: Vec<Connection>, change: impl Fn(&mut [u64])) -> Vec<Connection> {
    let all = sessions(&copy, BOUND_NS);
    let pairs = || all.iter().flat_map(|one| one.connections.windows(2));
    let start = |copy: &[Connection], at: u32| copy[at as usize].start_ns;
    let mut gaps: Vec<u64> =
        pairs().map(|two| start(&copy, two[1]) - start(&copy, two[0])).collect();
    change(&mut gaps);
    for (two, gap) in pairs().zip(gaps) {
        let at = start(&copy, two[0]) + gap;
        let one = &mut copy[two[1] as usize];
        let lasts = one.end_ns - one.start_ns;
        (one.start_ns, one.end_ns) = (at, at + lasts);
    }
    copy
}

/// No server speaks first.
pub fn without_server_first(mut copy: Vec<Connection>, _: u64) -> Vec<Connection> {
    copy.retain(|one| one.speaks_first() != Some(Side::Server));
    copy
}
