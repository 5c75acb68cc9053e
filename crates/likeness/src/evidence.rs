//! The evidence for a law: the values of a set of packets, each with the unit by which a second sample would
//! draw it, and the distance of two weightings of these units.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_conversation::{Connection, Session, Side, sessions};

use crate::blocks::Blocks;
use crate::kernel::{Value, Values, correlation};
use crate::laws::{Law, Sampled, Unit};
use crate::observed::{BIN_NS, Observed};
use crate::ranks::{self, Uses};
use crate::series::Energies;

/// Pauses, durations and gaps below this count as this, ns: hosts need about as long to react to any event.
const RESOLUTION_NS: u64 = 1_000_000;
/// Between the classes of the client's packets and those of the server's.
const OTHER_DIRECTION: f64 = 1e9;

/// A set of packets as it is compared.
#[derive(Debug)]
pub(crate) struct Set<'a> {
    pub observed: &'a Observed,
    pub sessions: Vec<Session>,
    /// The side of which the original shows no packet. What it sent is inferred, and no law measures it.
    unseen: Option<Side>,
    /// How many times as fast as the original this was.
    speed: f64,
}

/// The values of one law.
#[derive(Clone, Debug)]
pub(crate) enum Evidence {
    Values(Vec<Value>),
    Uses(Uses),
    Pairs(Vec<([f64; 2], u32)>),
    Energies(Energies),
}

/// Evidence of both sets, ready to be weighed.
#[derive(Debug)]
pub(crate) enum Scale {
    Ks(Values),
    W1(Values),
    Ranks(Uses),
    Shares(Uses),
    Correlation(Vec<([f64; 2], u32)>),
    Energies(Energies),
}

impl<'a> Set<'a> {
    pub fn new(observed: &'a Observed, bound_ns: u64, unseen: Option<Side>, speed: f64) -> Set<'a> {
        let bound_ns = (bound_ns as f64 / speed) as u64;
        Set { observed, sessions: sessions(&observed.connections, bound_ns), unseen, speed }
    }

    /// The number of units by which a law is sampled.
    pub fn units(&self, sampled: Sampled) -> usize {
        match sampled {
            Sampled::Sessions => self.sessions.len(),
            Sampled::Bins => self.observed.bins.len(),
            Sampled::Arrivals => self.sessions.len().saturating_sub(1),
        }
    }

    /// The stretches of a series by which a law is sampled; `None` where it is too short.
    pub fn blocks(&self, sampled: Sampled) -> Option<Blocks> {
        match sampled {
            Sampled::Sessions => None,
            Sampled::Bins => Blocks::of(&self.rates(|bin| bin.octets as f64)),
            Sampled::Arrivals => {
                let arrivals: Vec<f64> = self.arrivals().map(libm::log2).collect();
                Blocks::of(&arrivals)
            }
        }
    }

    pub fn evidence(&self, law: &Law) -> Evidence {
        match law.name {
            "size_asked" | "size_asked_tail" => self.sizes(Side::Client),
            "size_answered" | "size_answered_tail" => self.sizes(Side::Server),
            "bytes_by_size" => self.bytes_by_size(),
            "exchanges" => self.by_connection(|one| one.exchanges().count() as f64),
            "first_speaker" => {
                self.categories(3, |one| one.speaks_first().map_or(2, |side| side.index() as u32))
            }
            "think_time" => self.think_times(),
            "duration" => self.by_connection(|one| nanos(one.end_ns - one.start_ns)),
            "gap" => self.gaps(),
            "gap_correlation" => self.gap_pairs(),
            "session_arrivals" => self.series(self.arrivals().collect()),
            "sources" => self.popularity(|session| session.hosts[0]),
            "destinations" => self.popularity(|session| session.hosts[1]),
            "pairs" => self.popularity(|session| session.pair),
            "bytes_by_host" => self.bytes_by_host(),
            "packets_per_second" => self.series(self.rates(|bin| bin.packets as f64)),
            "bytes_per_second" => self.series(self.rates(|bin| bin.octets as f64)),
            "packet_size" => self.packet_sizes(),
            "endings" => self.categories(9, |one| one.ending().number() as u32),
            "scaling" => Evidence::Energies(Energies::of(&self.rates(|bin| bin.octets as f64))),
            other => unreachable!("no evidence is known for {other}"),
        }
    }

    /// Each connection with the number of its session.
    fn connections(&self) -> impl Iterator<Item = (&Connection, u32)> {
        let all = &self.observed.connections;
        (0..).zip(&self.sessions).flat_map(move |(number, session)| {
            session.connections.iter().map(move |&at| (&all[at as usize], number))
        })
    }

    fn by_connection(&self, of: impl Fn(&Connection) -> f64) -> Evidence {
        let value = |(one, unit): (&Connection, u32)| Value { value: of(one), unit, mass: 1.0 };
        Evidence::Values(self.connections().map(value).collect())
    }

    fn sizes(&self, side: Side) -> Evidence {
        match self.unseen == Some(side) {
            true => Evidence::Values(Vec::new()),
            false => self.by_connection(|one| sent(one, side)),
        }
    }

    fn bytes_by_size(&self) -> Evidence {
        let value = |(one, unit): (&Connection, u32)| {
            let seen = Side::BOTH.into_iter().filter(|side| self.unseen != Some(*side));
            let bytes = seen.map(|side| sent(one, side)).sum();
            Value { value: bytes, unit, mass: bytes }
        };
        Evidence::Values(self.connections().map(value).collect())
    }

    fn think_times(&self) -> Evidence {
        let values = self.connections().flat_map(|(one, unit)| {
            let thinks = one.exchanges().filter_map(|exchange| exchange.think_ns);
            thinks.map(move |ns| Value { value: nanos(ns), unit, mass: 1.0 })
        });
        Evidence::Values(values.collect())
    }

    /// Gaps of each session, ns.
    fn session_gaps(&self) -> impl Iterator<Item = (Vec<f64>, u32)> {
        let start = |at: &u32| self.observed.connections[*at as usize].start_ns;
        (0..).zip(&self.sessions).map(move |(unit, session)| {
            let starts: Vec<u64> = session.connections.iter().map(start).collect();
            (starts.windows(2).map(|two| self.apart(two[0], two[1])).collect(), unit)
        })
    }

    fn gaps(&self) -> Evidence {
        let values = self.session_gaps().flat_map(|(gaps, unit)| {
            gaps.into_iter().map(move |value| Value { value, unit, mass: 1.0 })
        });
        Evidence::Values(values.collect())
    }

    fn gap_pairs(&self) -> Evidence {
        let pairs = self.session_gaps().flat_map(|(gaps, unit)| {
            let logs: Vec<f64> = gaps.into_iter().map(libm::log2).collect();
            let pairs: Vec<_> = logs.windows(2).map(|two| ([two[0], two[1]], unit)).collect();
            pairs
        });
        Evidence::Pairs(pairs.collect())
    }

    /// Between the beginnings of sessions, ns.
    fn arrivals(&self) -> impl Iterator<Item = f64> {
        self.sessions.windows(2).map(|two| self.apart(two[0].start_ns, two[1].start_ns))
    }

    /// Between two starts, by the original's clock; ns.
    fn apart(&self, one_ns: u64, other_ns: u64) -> f64 {
        nanos(((other_ns - one_ns) as f64 * self.speed) as u64)
    }

    fn rates(&self, of: impl Fn(&crate::observed::Bin) -> f64) -> Vec<f64> {
        let per_second = 1e9 / BIN_NS as f64;
        self.observed.bins.iter().map(|bin| of(bin) * per_second).collect()
    }

    fn series(&self, series: Vec<f64>) -> Evidence {
        let value = |(unit, value): (u32, f64)| Value { value, unit, mass: 1.0 };
        Evidence::Values((0..).zip(series).map(value).collect())
    }

    fn popularity(&self, of: impl Fn(&Session) -> u32) -> Evidence {
        let use_of = |(unit, session): (u32, &Session)| {
            (of(session), unit, session.connections.len() as f64)
        };
        let uses: Vec<_> = (0..).zip(&self.sessions).map(use_of).collect();
        Evidence::Uses(Uses { members: members(&uses), uses })
    }

    fn bytes_by_host(&self) -> Evidence {
        let clients = self.sessions.iter().map(|session| session.hosts[0] + 1).max().unwrap_or(0);
        let uses: Vec<_> = (0..)
            .zip(&self.sessions)
            .flat_map(|(unit, session)| {
                let [client, server] = session.hosts;
                [client, clients + server].map(|host| (host, unit, session.octets as f64))
            })
            .collect();
        Evidence::Uses(Uses { members: members(&uses), uses })
    }

    fn packet_sizes(&self) -> Evidence {
        let values = self.connections().flat_map(|(one, unit)| {
            Side::BOTH.into_iter().flat_map(move |side| {
                let above = OTHER_DIRECTION * side.index() as f64;
                one.of(side).sizes.iter().map(move |(bytes, packets)| Value {
                    value: above + f64::from(bytes),
                    unit,
                    mass: packets as f64,
                })
            })
        });
        Evidence::Values(values.collect())
    }

    fn categories(&self, members: usize, of: impl Fn(&Connection) -> u32) -> Evidence {
        let uses = self.connections().map(|(one, unit)| (of(one), unit, 1.0)).collect();
        Evidence::Uses(Uses { members, uses })
    }
}

fn members(uses: &[(u32, u32, f64)]) -> usize {
    uses.iter().map(|one| one.0 as usize + 1).max().unwrap_or(0)
}

fn sent(one: &Connection, side: Side) -> f64 {
    one.of(side).payload_bytes as f64
}

fn nanos(ns: u64) -> f64 {
    ns.max(RESOLUTION_NS) as f64
}

impl Evidence {
    /// How many values there are.
    pub fn samples(&self) -> usize {
        match self {
            Evidence::Values(values) => values.len(),
            Evidence::Uses(uses) => uses.uses.len(),
            Evidence::Pairs(pairs) => pairs.len(),
            Evidence::Energies(energies) => energies.len(),
        }
    }

    /// How many units have values.
    pub fn units(&self) -> usize {
        let mut units: Vec<u32> = match self {
            Evidence::Values(values) => values.iter().map(|value| value.unit).collect(),
            Evidence::Uses(uses) => uses.uses.iter().map(|one| one.1).collect(),
            Evidence::Pairs(pairs) => pairs.iter().map(|pair| pair.1).collect(),
            Evidence::Energies(energies) => energies.units().collect(),
        };
        units.sort_unstable();
        units.dedup();
        units.len()
    }

    /// Both sets together; the units of the other one follow from `offset` on. Hosts are separate members in each
    /// set, categories are shared.
    pub fn pooled(&self, other: &Evidence, offset: u32, are_categories: bool) -> Evidence {
        match (self, other) {
            (Evidence::Values(one), Evidence::Values(other)) => {
                let others =
                    other.iter().map(|value| Value { unit: value.unit + offset, ..*value });
                Evidence::Values(one.iter().copied().chain(others).collect())
            }
            (Evidence::Uses(one), Evidence::Uses(other)) => {
                let behind = if are_categories { 0 } else { one.members };
                let others = other
                    .uses
                    .iter()
                    .map(|&(member, unit, count)| (member + behind as u32, unit + offset, count));
                let uses = one.uses.iter().copied().chain(others).collect();
                let members = one.members.max(behind + other.members);
                Evidence::Uses(Uses { members, uses })
            }
            (Evidence::Pairs(one), Evidence::Pairs(other)) => {
                let others = other.iter().map(|&(pair, unit)| (pair, unit + offset));
                Evidence::Pairs(one.iter().copied().chain(others).collect())
            }
            (Evidence::Energies(one), Evidence::Energies(other)) => {
                Evidence::Energies(one.pooled(other, offset))
            }
            _ => unreachable!("both are of one law"),
        }
    }

    /// Prepared for a law's distance.
    pub fn scale(self, law: &Law) -> Scale {
        match self {
            Evidence::Values(values) if law.unit == Unit::Octaves => Scale::W1(Values::new(values)),
            Evidence::Values(values) => Scale::Ks(Values::new(values)),
            Evidence::Uses(uses) if are_categories(law) => Scale::Shares(uses),
            Evidence::Uses(uses) => Scale::Ranks(uses),
            Evidence::Pairs(pairs) => Scale::Correlation(pairs),
            Evidence::Energies(energies) => Scale::Energies(energies),
        }
    }
}

/// Are the members of a law the same in both sets?
pub(crate) fn are_categories(law: &Law) -> bool {
    matches!(law.name, "first_speaker" | "endings")
}

impl Scale {
    /// The distance of two weightings; the greatest possible where one of them has no mass.
    pub fn distance(&self, one: &[u32], other: &[u32]) -> f64 {
        match self {
            Scale::Ks(values) => values.ks(one, other),
            Scale::W1(values) => values.w1_log2(one, other),
            Scale::Ranks(uses) => ranks::apart(&uses.ranked(one), &uses.ranked(other)),
            Scale::Shares(uses) => ranks::apart(&uses.counted(one), &uses.counted(other)),
            Scale::Correlation(pairs) => {
                match (correlation(pairs, one), correlation(pairs, other)) {
                    (Some(one), Some(other)) => (one - other).abs(),
                    _ => 2.0,
                }
            }
            Scale::Energies(energies) => energies.apart(one, other).unwrap_or(f64::INFINITY),
        }
    }
}

/// Weights in which the first `first` units count once and the next `then` not at all, and the reverse.
pub(crate) fn apart(first: usize, then: usize) -> [Vec<u32>; 2] {
    let mut one = vec![1; first];
    one.resize(first + then, 0);
    let other = one.iter().map(|weight| 1 - weight).collect();
    [one, other]
}
