//! A draw of whole sessions, where there are more than can be played.
//!
//! Sessions are put in the order of their bytes and taken at even distances (systematic sampling of a sorted list):
//! each has the same chance, and small and large ones come in their own shares, which an independent draw of a
//! heavy-tailed law would not give. Of [`Drawn::within`] the largest are taken whatever their place is, because most
//! of the bytes are theirs.
//!
//! [`Drawn::spread`] draws over the whole of a long original and moves each session: where a share *p* of the sessions
//! is taken and the time at which each begins is multiplied by *p*, as many begin in a second as before, while all
//! within a session keeps its own time.

use core::net::SocketAddr;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nilometer_wire::packet::{IpPacket, Transport};

use crate::connection::Connection;
use crate::sessions::{Brief, sessions_of_briefs};

/// Sessions that [`Drawn::within`] takes for their bytes alone, at most; no more than half of what it may take.
const LARGEST: usize = 1_024;

/// What is drawn at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawLimits {
    /// Connections.
    pub connections: u64,
    /// Steps of them all.
    pub steps: u64,
}

/// How much there is of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Sessions.
    pub sessions: u64,
    /// Connections.
    pub connections: u64,
    /// Their IP packets.
    pub packets: u64,
    /// The bytes of these.
    pub octets: u64,
    /// Their payload bytes, each once.
    pub payload_bytes: u64,
    /// Steps of both their ends.
    pub steps: u64,
}

/// A connection that was drawn, from its first packet until another one between the same ends begins.
#[derive(Clone, Copy, Debug)]
struct Taken {
    start_ns: u64,
    /// How much earlier it is played than it was; none where it is not drawn.
    earlier_ns: Option<u64>,
}

/// A session to choose from: when it begins, and its connections and their steps.
type Listed = (u64, [u64; 2]);

/// The sessions that were drawn.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    /// Both ends of connections, the lesser first, and the connections that were between them, by their starts.
    between: BTreeMap<[SocketAddr; 2], Vec<Taken>>,
    /// What there is.
    pub all: Amount,
    /// What was drawn.
    pub drawn: Amount,
}

impl Drawn {
    /// A share of all sessions, 0 to 1, each begun at that share of its time after `origin_ns` (ns since 1970).
    /// Connections are in the order of their starts; a pair's session ends after `bound_ns` without one.
    pub fn spread(all: &[Brief], bound_ns: u64, origin_ns: u64, share: f64) -> Drawn {
        Drawn::of(all, bound_ns, |sessions| {
            let every: Vec<usize> = (0..sessions.len()).collect();
            let earlier = |start_ns: u64| {
                let since_ns = start_ns.saturating_sub(origin_ns);
                since_ns - (since_ns as f64 * share) as u64
            };
            let taken = systematic(&every, share);
            taken.map(|at| (at, earlier(sessions[at].0))).collect()
        })
    }

    /// As large a share of all sessions as the limits allow, when they were; the largest always.
    pub fn within(all: &[Brief], bound_ns: u64, limits: DrawLimits) -> Drawn {
        Drawn::of(all, bound_ns, |sessions| {
            let taken = with_the_largest(sessions, [limits.connections, limits.steps]);
            taken.into_iter().map(|at| (at, 0)).collect()
        })
    }

    /// Those that `choose` names of sessions in the order of their bytes, with how much earlier they are played.
    fn of(
        all: &[Brief],
        bound_ns: u64,
        choose: impl FnOnce(&[Listed]) -> Vec<(usize, u64)>,
    ) -> Drawn {
        let mut sessions = sessions_of_briefs(all, bound_ns);
        sessions.sort_by_key(|one| (one.octets, one.start_ns, one.pair));
        let brief = |at: &u32| &all[*at as usize];
        let of_session = |one: &crate::sessions::Session| {
            let steps = one.connections.iter().map(|at| u64::from(brief(at).steps)).sum();
            (one.start_ns, [one.connections.len() as u64, steps])
        };
        let listed: Vec<_> = sessions.iter().map(of_session).collect();
        let mut earlier: Vec<Option<u64>> = alloc::vec![None; sessions.len()];
        choose(&listed).into_iter().for_each(|(at, ns)| earlier[at] = Some(ns));
        let mut made = Drawn::default();
        for (session, earlier_ns) in sessions.iter().zip(earlier) {
            for one in session.connections.iter().map(brief) {
                let taken = Taken { start_ns: one.start_ns, earlier_ns };
                made.between.entry(ends(one.client, one.server)).or_default().push(taken);
            }
            let amount = Amount::of(session.connections.iter().map(brief));
            made.all.add(&amount);
            if earlier_ns.is_some() {
                made.drawn.add(&amount);
            }
        }
        made.between.values_mut().for_each(|taken| taken.sort_by_key(|one| one.start_ns));
        made
    }

    /// When a packet of that time is played, ns since 1970; none where its connection is not drawn.
    pub fn packet_ns(&self, stamp_ns: u64, packet: &IpPacket) -> Option<u64> {
        let Transport::Tcp(segment) = &packet.transport else { return None };
        let sender = SocketAddr::new(packet.source, segment.source_port);
        let receiver = SocketAddr::new(packet.destination, segment.destination_port);
        self.moved_ns(stamp_ns, sender, receiver)
    }

    /// A connection when it is played; none where it is not drawn.
    pub fn connection(&self, mut one: Connection) -> Option<Connection> {
        let start_ns = self.moved_ns(one.start_ns, one.client, one.server)?;
        let earlier_ns = one.start_ns - start_ns;
        (one.start_ns, one.end_ns) = (start_ns, one.end_ns - earlier_ns);
        Some(one)
    }

    fn moved_ns(&self, at_ns: u64, one: SocketAddr, other: SocketAddr) -> Option<u64> {
        let between = self.between.get(&ends(one, other))?;
        let begun = between.partition_point(|taken| taken.start_ns <= at_ns);
        Some(at_ns - between[begun.checked_sub(1)?].earlier_ns?)
    }
}

impl Amount {
    fn of<'a>(connections: impl Iterator<Item = &'a Brief>) -> Amount {
        let mut amount = Amount { sessions: 1, ..Amount::default() };
        for one in connections {
            amount.connections += 1;
            amount.packets += one.packets;
            amount.octets += one.octets;
            amount.payload_bytes += one.payload_bytes;
            amount.steps += u64::from(one.steps);
        }
        amount
    }

    fn add(&mut self, other: &Amount) {
        self.sessions += other.sessions;
        self.connections += other.connections;
        self.packets += other.packets;
        self.octets += other.octets;
        self.payload_bytes += other.payload_bytes;
        self.steps += other.steps;
    }
}

/// Of sessions in the order of their bytes the largest, and of the others as large a share as there is room for.
fn with_the_largest(sessions: &[Listed], most: [u64; 2]) -> Vec<usize> {
    let mut used = [0, 0];
    let mut has_room = |at: usize, most: [u64; 2]| {
        let has = sessions[at].1;
        let then = [used[0] + has[0], used[1] + has[1]];
        let fits = then[0] <= most[0] && then[1] <= most[1];
        if fits {
            used = then;
        }
        fits
    };
    let all: Vec<usize> = (0..sessions.len()).rev().collect();
    let half = most.map(|most| most / 2);
    let largest = all.iter().take(LARGEST).take_while(|at| has_room(**at, half)).count();
    let (largest, others) = all.split_at(largest);
    let sum = |of: usize, list: &[usize]| list.iter().map(|&at| sessions[at].1[of]).sum::<u64>();
    let share = |of: usize| {
        let left = most[of].saturating_sub(sum(of, largest));
        left as f64 / sum(of, others).max(1) as f64
    };
    // A share has the right size in the mean: what is too much of it is left out.
    let drawn = systematic(others, share(0).min(share(1)).min(1.0));
    let drawn: Vec<usize> = drawn.filter(|at| has_room(*at, most)).collect();
    largest.iter().copied().chain(drawn).collect()
}

/// A share of a list, 0 to 1, at even distances that begin with half of one.
fn systematic(all: &[usize], share: f64) -> impl Iterator<Item = usize> {
    let count = (all.len() as f64 * share + 0.5) as usize;
    let place = move |number: usize| (2 * number + 1) * all.len() / (2 * count);
    (0..count).map(move |number| all[place(number)])
}

fn ends(one: SocketAddr, other: SocketAddr) -> [SocketAddr; 2] {
    if one <= other { [one, other] } else { [other, one] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const BOUND_NS: u64 = 60_000_000_000;
    const ORIGIN_NS: u64 = 1_000_000_000_000;

    fn end(host: u32, port: u16) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::from(host).into(), port)
    }

    /// So many sessions, one a second, of three connections each; the bytes of a session are its number.
    fn briefs(sessions: u32) -> Vec<Brief> {
        let connection = |session: u32, number: u64| Brief {
            client: end(session, 1_000 + number as u16),
            server: end(1 << 31, 80),
            start_ns: ORIGIN_NS + u64::from(session) * 1_000_000_000 + number * 1_000_000,
            packets: 5,
            octets: u64::from(session) + 1,
            payload_bytes: 1,
            steps: 4,
        };
        let all = (0..sessions).flat_map(|session| (0..3).map(move |at| (session, at)));
        all.map(|(session, at)| connection(session, at)).collect()
    }

    fn played_ns(drawn: &Drawn, one: &Brief) -> Option<u64> {
        drawn.moved_ns(one.start_ns, one.server, one.client)
    }

    #[test]
    fn a_spread_has_as_many_sessions_a_second_and_every_size() {
        let all = briefs(6_000);
        let drawn = Drawn::spread(&all, BOUND_NS, ORIGIN_NS, 0.01);
        assert_eq!([drawn.all.sessions, drawn.drawn.sessions], [6_000, 60]);
        assert_eq!(drawn.drawn.connections, 180);
        let bytes = drawn.drawn.octets as f64 / drawn.all.octets as f64;
        assert!((bytes - 0.01).abs() < 1e-4, "{bytes}");
        for session in all.chunks(3) {
            let Some(first) = played_ns(&drawn, &session[0]) else {
                assert!(session.iter().all(|one| played_ns(&drawn, one).is_none()));
                continue;
            };
            let since = (session[0].start_ns - ORIGIN_NS) as f64;
            assert!(((first - ORIGIN_NS) as f64 - 0.01 * since).abs() < 2.0);
            assert!(first < ORIGIN_NS + 60_000_000_000);
            let third = played_ns(&drawn, &session[2]).expect("drawn with its session");
            assert_eq!(third - first, 2_000_000, "gaps stay");
        }
    }

    #[test]
    fn within_limits_are_the_largest_and_a_share_of_the_others() {
        let all = briefs(10_000);
        let limits = DrawLimits { connections: 6_000, steps: 1_000_000 };
        let drawn = Drawn::within(&all, BOUND_NS, limits);
        assert!((5_990..=6_000).contains(&drawn.drawn.connections), "{:?}", drawn.drawn);
        let largest = &all[3 * (10_000 - 900)..];
        assert!(largest.iter().all(|one| played_ns(&drawn, one) == Some(one.start_ns)));
        // Of the others one in nine or so, small and large.
        let small = all[..9_000].iter().step_by(3).filter(|one| played_ns(&drawn, one).is_some());
        let small = small.count();
        assert!((320..=370).contains(&small), "{small} of the 3,000 smallest");
        let few = DrawLimits { connections: 1 << 40, steps: 400 };
        assert!(Drawn::within(&all, BOUND_NS, few).drawn.steps <= 400);
        let enough = DrawLimits { connections: 30_000, steps: 120_000 };
        let whole = Drawn::within(&all, BOUND_NS, enough);
        assert_eq!(whole.drawn, whole.all);
    }

    #[test]
    fn a_port_that_is_used_again_is_another_connection() {
        let mut all = briefs(2);
        // The second session's connection has the ends of the first one's, five minutes later.
        all.truncate(4);
        (all[3].client, all[3].start_ns) = (all[0].client, ORIGIN_NS + 300_000_000_000);
        all[3].octets = 1_000;
        let limits = DrawLimits { connections: 2, steps: 100 };
        let drawn = Drawn::within(&all, BOUND_NS, limits);
        assert_eq!(drawn.drawn.sessions, 1);
        let at = |ns| drawn.moved_ns(ns, all[0].client, all[0].server);
        assert_eq!(at(ORIGIN_NS - 1), None, "before the first");
        assert_eq!(at(all[0].start_ns + 5), None, "the small session has three connections");
        assert_eq!(at(all[3].start_ns + 5), Some(all[3].start_ns + 5));
    }
}
