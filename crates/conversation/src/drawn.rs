//! A sample of whole sessions, where there are more than can be played.
//!
//! Sessions are put in the order of their bytes and cut into strata of neighbours, and from each stratum the one with
//! the least hash is taken: each session has the same chance, and small and large ones keep their shares, which an
//! independent draw of a heavy-tailed law would not give. [`Drawn::within`] first takes the largest sessions that
//! fit, because they hold most of the bytes.
//!
//! [`Drawn::spread`] draws over the whole of a long original and moves each session: where a share *p* of the sessions
//! is taken and the time at which each begins is multiplied by *p*, as many begin in a second as before, while each
//! connection keeps its own time. Some begin before the run does (the lead), so that the run starts with connections
//! under way. Sessions of one pair move closer together; those closer than the bound merge into one, which
//! [`Drawn::sessions_played`] counts. A client port that the original used again is replaced, so that no two
//! connections have the same ends at the same time.

use core::net::{IpAddr, SocketAddr};

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use nilometer_flow::FlowKey;
use nilometer_flow::record::TCP;
use nilometer_wire::packet::{IpPacket, Transport};

use crate::connection::Connection;
use crate::sessions::{Brief, sessions_of_briefs};

/// The most sessions that [`Drawn::within`] takes for their size alone; together they fill at most half of its
/// limits.
const LARGEST: usize = 1_024;

/// The lowest port that may replace another.
const PORT_MIN: u16 = 1_024;

/// The most that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawLimits {
    /// Connections.
    pub connections: u64,
    /// Steps of all connections.
    pub steps: u64,
}

/// A count of sessions, and of all they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Sessions.
    pub sessions: u64,
    /// Connections.
    pub connections: u64,
    /// Their IP packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub octets: u64,
    /// Their payload bytes, each once.
    pub payload_bytes: u64,
    /// Steps of both their ends.
    pub steps: u64,
}

/// A connection of the original, from its first packet until another one between the same ends begins.
#[derive(Clone, Copy, Debug)]
struct Taken {
    start_ns: u64,
    /// How much earlier it is played than in the original; `None` if it is not drawn.
    earlier_ns: Option<u64>,
    client: SocketAddr,
    /// The client's port when it is played.
    port: u16,
}

/// A session to choose from.
struct Listed {
    start_ns: u64,
    /// Its connections and their steps.
    has: [u64; 2],
    hash: u64,
}

/// The ports that a pair of hosts never used, from the highest on.
#[derive(Default)]
struct FreePorts {
    used: BTreeSet<u16>,
    given: u16,
}

impl FreePorts {
    fn next(&mut self) -> Option<u16> {
        loop {
            let port = u16::MAX - self.given;
            if port < PORT_MIN {
                return None;
            }
            self.given += 1;
            if !self.used.contains(&port) {
                return Some(port);
            }
        }
    }
}

/// The sessions that were drawn.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    /// Both ends of connections, the lesser first, and the connections that were between them, by their starts.
    between: BTreeMap<[SocketAddr; 2], Vec<Taken>>,
    /// The whole original.
    pub all: Amount,
    /// The part that was drawn.
    pub drawn: Amount,
    /// Sessions when it is played: fewer than were drawn where those of one pair come within the bound of each
    /// other.
    pub sessions_played: u64,
}

impl Drawn {
    /// A share of all sessions, 0 to 1 and one at least. Each begins at that share of its time after `origin_ns` (ns
    /// since 1970), less `lead_ns`.
    /// Connections are in the order of their starts; a pair's session ends after `bound_ns` without one.
    pub fn spread(
        all: &[Brief],
        bound_ns: u64,
        [origin_ns, lead_ns]: [u64; 2],
        share: f64,
    ) -> Drawn {
        let mut drawn = Drawn::of(all, bound_ns, |sessions| {
            let every: Vec<usize> = (0..sessions.len()).collect();
            let share_min = 1.0 / sessions.len().max(1) as f64;
            let earlier = |start_ns: u64| {
                let since_ns = start_ns.saturating_sub(origin_ns);
                lead_ns + since_ns - (since_ns as f64 * share) as u64
            };
            let taken = stratified(sessions, &every, share.max(share_min));
            taken.map(|at| (at, earlier(sessions[at].start_ns))).collect()
        });
        drawn.replace_ports();
        drawn
    }

    /// As large a share of all sessions as the limits allow, at their original times; the largest that fit
    /// are taken first.
    pub fn within(all: &[Brief], bound_ns: u64, limits: DrawLimits) -> Drawn {
        Drawn::of(all, bound_ns, |sessions| {
            let taken = with_the_largest(sessions, [limits.connections, limits.steps]);
            taken.into_iter().map(|at| (at, 0)).collect()
        })
    }

    /// The sessions that `choose` selects from a list ordered by bytes, each with how much earlier it is played,
    /// ns.
    fn of(
        all: &[Brief],
        bound_ns: u64,
        choose: impl FnOnce(&[Listed]) -> Vec<(usize, u64)>,
    ) -> Drawn {
        let mut sessions = sessions_of_briefs(all, bound_ns);
        sessions.sort_by_key(|one| (one.octets, one.start_ns, one.pair));
        let brief = |at: &u32| &all[*at as usize];
        let listed = |one: &crate::sessions::Session| {
            let first = brief(&one.connections[0]);
            let steps = one.connections.iter().map(|at| u64::from(brief(at).steps)).sum();
            Listed {
                start_ns: one.start_ns,
                has: [one.connections.len() as u64, steps],
                hash: hash(first.client.ip(), first.server.ip(), one.start_ns),
            }
        };
        let listed: Vec<Listed> = sessions.iter().map(listed).collect();
        let mut earlier: Vec<Option<u64>> = alloc::vec![None; sessions.len()];
        choose(&listed).into_iter().for_each(|(at, ns)| earlier[at] = Some(ns));
        let mut made = Drawn::default();
        let mut played = Vec::new();
        for (session, earlier_ns) in sessions.iter().zip(earlier) {
            for one in session.connections.iter().map(brief) {
                let (client, port) = (one.client, one.client.port());
                let taken = Taken { start_ns: one.start_ns, earlier_ns, client, port };
                made.between.entry(ends(one.client, one.server)).or_default().push(taken);
                let moved = |ns| Brief { start_ns: one.start_ns.saturating_sub(ns), ..*one };
                played.extend(earlier_ns.map(moved));
            }
            let amount = Amount::of(session.connections.iter().map(brief));
            made.all.add(&amount);
            if earlier_ns.is_some() {
                made.drawn.add(&amount);
            }
        }
        made.between.values_mut().for_each(|taken| taken.sort_by_key(|one| one.start_ns));
        played.sort_by_key(|one| one.start_ns);
        made.sessions_played = sessions_of_briefs(&played, bound_ns).len() as u64;
        made
    }

    /// Gives each drawn connection that has the ends of an earlier one a client port that the pair never used; where
    /// all are in use it keeps its own.
    fn replace_ports(&mut self) {
        let mut free: BTreeMap<[IpAddr; 2], FreePorts> = BTreeMap::new();
        for [one, other] in self.between.keys() {
            let free = free.entry([one.ip(), other.ip()]).or_default();
            free.used.extend([one.port(), other.port()]);
        }
        for ([one, other], taken) in &mut self.between {
            let free = free.get_mut(&[one.ip(), other.ip()]).expect("every pair is there");
            for taken in taken.iter_mut().filter(|taken| taken.earlier_ns.is_some()).skip(1) {
                taken.port = free.next().unwrap_or(taken.port);
            }
        }
    }

    /// A packet as it is played: its time, ns since 1970, and the packet with the client port that it then has; `None`
    /// if its connection is not drawn.
    pub fn packet(&self, stamp_ns: u64, packet: &IpPacket) -> Option<(u64, IpPacket)> {
        let mut packet = *packet;
        let Transport::Tcp(segment) = &mut packet.transport else { return None };
        let sender = SocketAddr::new(packet.source, segment.source_port);
        let receiver = SocketAddr::new(packet.destination, segment.destination_port);
        let taken = self.taken(stamp_ns, sender, receiver)?;
        let at_ns = stamp_ns.checked_sub(taken.earlier_ns?)?;
        let port = match sender == taken.client {
            true => &mut segment.source_port,
            false => &mut segment.destination_port,
        };
        *port = taken.port;
        Some((at_ns, packet))
    }

    /// A connection as it is played; `None` if it is not drawn.
    pub fn connection(&self, mut one: Connection) -> Option<Connection> {
        let taken = self.taken(one.start_ns, one.client, one.server)?;
        let earlier_ns = taken.earlier_ns?;
        (one.start_ns, one.end_ns) =
            (one.start_ns.checked_sub(earlier_ns)?, one.end_ns.checked_sub(earlier_ns)?);
        one.client.set_port(taken.port);
        Some(one)
    }

    /// The connection between these ends that had begun by then.
    fn taken(&self, at_ns: u64, one: SocketAddr, other: SocketAddr) -> Option<&Taken> {
        let between = self.between.get(&ends(one, other))?;
        let begun = between.partition_point(|taken| taken.start_ns <= at_ns);
        between.get(begun.checked_sub(1)?)
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

/// Of sessions ordered by bytes: the largest that fit, and of the others as large a share as there is room for.
fn with_the_largest(sessions: &[Listed], most: [u64; 2]) -> Vec<usize> {
    let mut used = [0, 0];
    let mut has_room = |at: usize, most: [u64; 2]| {
        let has = sessions[at].has;
        let then = [used[0] + has[0], used[1] + has[1]];
        let fits = then[0] <= most[0] && then[1] <= most[1];
        if fits {
            used = then;
        }
        fits
    };
    let all: Vec<usize> = (0..sessions.len()).rev().collect();
    let half = most.map(|most| most / 2);
    let (candidates, rest) = all.split_at(LARGEST.min(all.len()));
    let (largest, smaller): (Vec<usize>, Vec<usize>) =
        candidates.iter().partition(|at| has_room(**at, half));
    let fits = |at: &usize| [0, 1].iter().all(|&of| sessions[*at].has[of] <= most[of]);
    let others: Vec<usize> = [&smaller[..], rest].concat().into_iter().filter(fits).collect();
    let sum = |of: usize, list: &[usize]| list.iter().map(|&at| sessions[at].has[of]).sum::<u64>();
    let share = |of: usize| {
        let left = most[of].saturating_sub(sum(of, &largest));
        left as f64 / sum(of, &others).max(1) as f64
    };
    // A share has the right size only on average: sessions that no longer fit are left out.
    let drawn = stratified(sessions, &others, share(0).min(share(1)).min(1.0));
    let drawn: Vec<usize> = drawn.filter(|at| has_room(*at, most)).collect();
    [largest, drawn].concat()
}

/// A share of a list, 0 to 1: the session with the least hash from each stratum of neighbours.
fn stratified<'a>(
    sessions: &'a [Listed],
    list: &'a [usize],
    share: f64,
) -> impl Iterator<Item = usize> + 'a {
    let count = (list.len() as f64 * share + 0.5) as usize;
    let begins = move |number: usize| number * list.len() / count;
    (0..count).filter_map(move |number| {
        let stratum = list[begins(number)..begins(number + 1)].iter().copied();
        stratum.min_by_key(|&at| (sessions[at].hash, at))
    })
}

/// A hash of a session that is the same on every machine.
fn hash(client: IpAddr, server: IpAddr, start_ns: u64) -> u64 {
    let [high, low] = [(start_ns >> 16) as u16, start_ns as u16];
    let key = FlowKey {
        source: client,
        destination: server,
        source_port: high,
        destination_port: low,
        protocol: TCP,
    };
    key.hash_word()
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

    /// This many sessions, one a second, of three connections each; the bytes of a session are its number.
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
        let taken = drawn.taken(one.start_ns, one.server, one.client)?;
        Some(one.start_ns - taken.earlier_ns?)
    }

    #[test]
    fn a_spread_has_as_many_sessions_a_second_and_every_size() {
        let all = briefs(6_000);
        let drawn = Drawn::spread(&all, BOUND_NS, [ORIGIN_NS, 0], 0.01);
        assert_eq!([drawn.all.sessions, drawn.drawn.sessions], [6_000, 60]);
        assert_eq!(drawn.drawn.connections, 180);
        let bytes = drawn.drawn.octets as f64 / drawn.all.octets as f64;
        assert!((bytes - 0.01).abs() < 5e-4, "{bytes}");
        assert_eq!(drawn.sessions_played, 60);
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
        // About one in nine of the others, small and large.
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
        let at = |ns: u64| {
            let taken = drawn.taken(ns, all[0].client, all[0].server)?;
            Some(ns - taken.earlier_ns?)
        };
        assert_eq!(at(ORIGIN_NS - 1), None, "before the first");
        assert_eq!(at(all[0].start_ns + 5), None, "the small session has three connections");
        assert_eq!(at(all[3].start_ns + 5), Some(all[3].start_ns + 5));
    }

    /// One pair with a session every two minutes, each by the same port.
    #[test]
    fn sessions_of_one_pair_that_come_together_are_counted_and_have_ports_of_their_own() {
        let mut all = briefs(600);
        all.retain(|one| one.client.port() == 1_000);
        for (number, one) in (0..).zip(&mut all) {
            (one.client, one.start_ns) = (end(1, 5_000), ORIGIN_NS + number * 120_000_000_000);
        }
        let drawn = Drawn::spread(&all, BOUND_NS, [ORIGIN_NS, 0], 0.01);
        assert_eq!([drawn.all.sessions, drawn.drawn.sessions], [600, 6]);
        // A hundredth of 20 h: sessions are less than the bound apart or not, depending on the draw.
        let mut starts: Vec<u64> = all.iter().filter_map(|one| played_ns(&drawn, one)).collect();
        starts.sort_unstable();
        let apart = starts.windows(2).filter(|pair| pair[1] - pair[0] > BOUND_NS).count() as u64;
        assert_eq!(drawn.sessions_played, apart + 1);
        let ports = drawn.between.values().flatten().filter(|taken| taken.earlier_ns.is_some());
        let ports: BTreeSet<u16> = ports.map(|taken| taken.port).collect();
        assert_eq!(ports.len(), 6, "{ports:?}");
        let none = Drawn::spread(&all, BOUND_NS, [ORIGIN_NS, 0], 1e-6);
        assert_eq!(none.drawn.sessions, 1, "one at least");
    }

    /// A session that is larger than all that may be taken leaves room for others.
    #[test]
    fn a_session_that_does_not_fit_is_passed_over() {
        let mut all = briefs(100);
        let giant = (0..5_000).map(|number| Brief {
            client: end(500, 10_000 + number as u16),
            start_ns: ORIGIN_NS + number,
            octets: 1_000,
            ..all[0]
        });
        let giant: Vec<Brief> = giant.collect();
        all.extend(giant);
        all.sort_by_key(|one| one.start_ns);
        let limits = DrawLimits { connections: 300, steps: 1_000_000 };
        let drawn = Drawn::within(&all, BOUND_NS, limits);
        assert!(drawn.drawn.connections > 250, "{:?}", drawn.drawn);
    }

    /// Pairs that take turns regularly are all drawn, since the draw does not follow their order.
    #[test]
    fn pollers_that_take_turns_are_all_drawn() {
        let mut all = briefs(2_000);
        for (number, one) in (0u32..).zip(&mut all) {
            let session = number / 3;
            one.client = end(session % 20, 1_000 + session as u16);
            one.start_ns = ORIGIN_NS + u64::from(session) * 10_000_000_000;
            one.octets = 7;
        }
        let drawn = Drawn::spread(&all, BOUND_NS, [ORIGIN_NS, 0], 0.05);
        let mut hosts = BTreeSet::new();
        for one in all.iter().filter(|one| played_ns(&drawn, one).is_some()) {
            hosts.insert(one.client.ip());
        }
        assert!(hosts.len() > 12, "{} of 20", hosts.len());
    }
}
